"""What all kinds of groups have in common, and who asks something of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from ottla.decisions import CoordinatorRecord, Decision
from ottla.errors import ApiError, ErrorCode


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, and in which version of its API."""

    api_version: int
    client_id: str = ""
    client_host: str = ""
    # Whether it may see the topic of a name; None: everybody may see all of them.
    may_describe: Callable[[str], bool] | None = None


@dataclass(slots=True)
class GroupDecision(Decision):
    """A decision that changed volatile state ahead of its records, and how to put that right if they are refused."""

    undo: Callable[[int], Decision] | None = None


# The partitions of a commit by topic id; worked out only where it matters.
CommittedPartitions: TypeAlias = Callable[[], Iterable[tuple[UUID, int]]]

# The generation or epoch of a request that comes from no member.
NO_EPOCH: Final = -1


class Commit(NamedTuple):
    """Who commits offsets, in which generation or epoch, and of which partitions."""

    member_id: str
    instance_id: str | None
    epoch: int
    api_version: int
    partitions: CommittedPartitions
    is_transactional: bool

    @property
    def names_member(self) -> bool:
        return bool(self.member_id) or self.instance_id is not None


class GroupType(StrEnum):
    """The kinds of groups by the names that ListGroups filters by."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Group(ABC):
    """A group as offsets, lists and deletions see it. Checks raise ApiError."""

    __slots__ = ("group_id",)

    group_type: GroupType

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state as the tools print it."""

    @property
    @abstractmethod
    def listed_protocol_type(self) -> str:
        """What ListGroups says about the protocol: `consumer`, `connect`; empty if the group only stores offsets."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    @abstractmethod
    def check_commit(self, commit: Commit) -> None:
        """Whether that member may commit offsets of these partitions in that generation or epoch."""

    @abstractmethod
    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Whether that member may see the offsets."""

    @abstractmethod
    def check_offsets_may_be_deleted(self) -> None:
        """Whether OffsetDelete may be tried; topics in use are refused one by one."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether some member reads the topic, as far as the coordinator can know."""

    @abstractmethod
    def unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        """From when on the retention of an offset counts; None while offsets do not expire."""

    @abstractmethod
    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that delete the group, its offsets apart."""


SomeMember = TypeVar("SomeMember")


class GroupOfMembers(Group, Generic[SomeMember]):
    """A group as its members see it: who they are, by member id and, those who have one, by instance id."""

    __slots__ = ("members", "static_members")

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.members: dict[str, SomeMember] = {}
        # Member id by instance id.
        self.static_members: dict[str, str] = {}

    def static_member(self, instance_id: str | None) -> SomeMember | None:
        """The member that has this instance id now."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def check_member(self, member_id: str, instance_id: str | None) -> SomeMember:
        """The member of this id; a static one must be the one that has its instance id."""
        if instance_id is not None:
            existing = self.static_members.get(instance_id)
            if existing is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id}")
            if existing != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID, f"{instance_id} is now {existing}")
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not in the group {self.group_id}")
        return member

"""The state of one partition of `__consumer_offsets`, which the parts of the machine share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from ottla.config.group import GroupConfig
from ottla.groups.classic import ClassicGroup
from ottla.groups.consumer import ConsumerGroup
from ottla.groups.group import Group
from ottla.groups.offsets import OffsetStore
from ottla.groups.settings import GroupSettings
from ottla.timers import Timers


class TopicInfo(NamedTuple):
    """What groups need to know of a topic."""

    topic_id: UUID
    partition_count: int
    # Where the replicas of each partition stand; empty if no broker says.
    partition_racks: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class TopicsView:
    """The topics of the cluster at one moment, by name and by id. One value serves all shards."""

    topics: Mapping[str, TopicInfo] = field(default_factory=lambda: MappingProxyType({}))
    names: Mapping[UUID, str] = field(default_factory=lambda: MappingProxyType({}))
    # What `gone_since` says of the view that this one was made of.
    _origin: Mapping[str, TopicInfo] | None = field(default=None, compare=False, repr=False)
    _gone: Mapping[str, UUID] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)

    @staticmethod
    def of(topics: Mapping[str, TopicInfo]) -> TopicsView:
        return TopicsView(
            MappingProxyType(dict(topics)),
            MappingProxyType({info.topic_id: name for name, info in topics.items()}),
        )

    def changed(self, topics: Mapping[str, TopicInfo], removed: Iterable[str]) -> TopicsView:
        """The view in which these topics are new or not as before, and those went, or were there with another id."""
        infos, names = dict(self.topics), dict(self.names)
        gone: dict[str, UUID] = {}
        for name in removed:
            if name in infos:
                gone[name] = infos.pop(name).topic_id
                del names[gone[name]]
        infos.update(topics)
        names.update((info.topic_id, name) for name, info in topics.items())
        return TopicsView(MappingProxyType(infos), MappingProxyType(names), self.topics, MappingProxyType(gone))

    def gone_since(self, earlier: TopicsView) -> Mapping[str, UUID]:
        """The topics of an earlier view that are no more, and their ids; quick where this one was made of it."""
        if earlier.topics is self.topics:
            return {}
        if earlier.topics is self._origin:
            return self._gone
        return {
            name: info.topic_id
            for name, info in earlier.topics.items()
            if name not in self.topics or self.topics[name].topic_id != info.topic_id
        }


class TimerKind(IntEnum):
    """What a deadline is for."""

    OFFSETS = 0  # look for offsets that are too old
    TOPICS = 1  # take away offsets of deleted topics, those that are left
    SESSION = 2  # a member is silent
    JOIN = 3  # a rebalance waits for members no longer
    SYNC = 4  # members have not asked for their assignment
    REVOCATION = 5  # a member of a consumer group has not given up its partitions
    MIGRATION = 6  # a consumer group whose members all speak the classic protocol becomes a classic one


class TimerKey(NamedTuple):
    """Whose deadline, and for what."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


class GroupShard:
    """Groups, offsets and deadlines. Durable state changes by `GroupMachine.apply` only."""

    __slots__ = ("_config_of", "groups", "new_id", "offsets", "settings", "timers", "topics", "wall_ahead_ms")

    def __init__(
        self,
        settings: GroupSettings,
        topics: TopicsView,
        new_id: Callable[[], str],
        config_of: Callable[[str], GroupConfig] | None = None,
    ) -> None:
        self.settings = settings
        self._config_of = config_of
        self.topics = topics
        # Makes the random part of member ids.
        self.new_id = new_id
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.timers: Timers[TimerKey] = Timers()
        self.wall_ahead_ms = 0

    def wall_ms(self, now_ms: int) -> int:
        """What the wall clock says at a moment of steady time: for what records carry, and what is compared with it."""
        return now_ms + self.wall_ahead_ms

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def consumer_config(self, group_id: str) -> GroupConfig:
        """The settings that a group has of its own, or the broker's."""
        return self.settings.consumer_config if self._config_of is None else self._config_of(group_id)

    def touch(self, group_id: str, member_id: str, timeout_ms: int, now_ms: int) -> None:
        """A member lives: its session lasts from now."""
        self.timers.set(TimerKey(TimerKind.SESSION, group_id, member_id), now_ms + timeout_ms)

    def end_session(self, group_id: str, member_id: str) -> None:
        self.timers.cancel(TimerKey(TimerKind.SESSION, group_id, member_id))

"""A member of a group of the consumer protocol (KIP-848), as a machine. Pure: the time is an argument.

One request does everything: `request` is a heartbeat that says what has changed, and `handle_response` takes the
member's epoch and its target assignment from the answer. The coordinator moves one partition after the other: a member
gives up what it loses, says so in its next heartbeat (`acknowledge`), and gets what others have given up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple
from uuid import UUID

from ottla.client.consumer.membership.classic import Step
from ottla.errors import ErrorCode
from ottla.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
FIRST_INTERVAL_S: Final = 5.0  # until the coordinator says which one it wants


class State(Enum):
    UNSUBSCRIBED = auto()
    JOINING = auto()
    RECONCILING = auto()  # what is assigned differs from what is owned
    ACKNOWLEDGING = auto()  # what is owned has changed, and is to be sent to the coordinator at once
    STABLE = auto()
    FENCED = auto()  # the coordinator has forgotten this member: give everything up, then join
    STALE = auto()  # left because nobody polled; joins with the next poll
    FATAL = auto()


_BEATING: Final = frozenset({State.JOINING, State.RECONCILING, State.ACKNOWLEDGING, State.STABLE})

_STEPS: Final[Mapping[ErrorCode, Step]] = {
    ErrorCode.NONE: Step.GO_ON,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Step.WAIT,
    ErrorCode.REQUEST_TIMED_OUT: Step.WAIT,
    ErrorCode.UNKNOWN_SERVER_ERROR: Step.WAIT,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Step.WAIT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Step.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: Step.FIND_COORDINATOR,
    ErrorCode.FENCED_MEMBER_EPOCH: Step.LOST,
    ErrorCode.UNKNOWN_MEMBER_ID: Step.LOST,
}


class TopicIdPartition(NamedTuple):
    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    group_id: str
    member_id: str  # made by the client, kept for life
    instance_id: str | None = None
    rack: str | None = None
    assignor: str | None = None
    max_poll_interval_s: float = 300.0


class Interest(NamedTuple):
    """What a member subscribes to."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None


class _Confirmed(NamedTuple):
    """What was sent to the coordinator and confirmed by it: it need not be sent again."""

    interest: Interest
    owned: frozenset[TopicIdPartition] | None  # None: to be said again


class ConsumerMember:
    def __init__(self, options: ConsumerOptions) -> None:
        self.options = options
        self.state = State.UNSUBSCRIBED
        self.epoch = JOIN_EPOCH
        self.target: frozenset[TopicIdPartition] = frozenset()  # what the coordinator wants us to read
        self.owned: frozenset[TopicIdPartition] = frozenset()  # what we read
        self.interest = Interest()
        self._said: _Confirmed | None = None
        self._sent: _Confirmed | None = None  # in the request in flight
        self._interval_s = FIRST_INTERVAL_S
        self._due = 0.0

    # -- what the user wants -------------------------------------------------------------------------------------------

    def subscribe(self, interest: Interest) -> None:
        if interest != self.interest:
            self.interest = interest
            self._due = 0.0
        if self.state is State.UNSUBSCRIBED:
            self._join()

    def _join(self) -> None:
        self.state = State.JOINING
        self.epoch = JOIN_EPOCH
        self.owned = self.target = frozenset()
        self._said = None
        self._due = 0.0

    def gave_up_everything(self) -> None:
        """After it was fenced or away: the listener knows."""
        assert self.state in (State.STALE, State.FENCED)
        self._join()

    # -- heartbeats ----------------------------------------------------------------------------------------------------

    @property
    def heartbeat_due(self) -> float | None:
        """When the next heartbeat is to be sent: 0 for at once, None for not at all."""
        if self.state not in _BEATING:
            return None
        return self._due

    def request(self) -> ConsumerGroupHeartbeatRequest:
        """What is new since the last confirmed heartbeat; everything in one that joins or follows a failure."""
        options, said = self.options, self._said
        is_full = said is None or self.epoch == JOIN_EPOCH
        self._sent = _Confirmed(self.interest, self.owned)
        names: list[str] | None = None
        if is_full or (said is not None and said.interest.topics != self.interest.topics):
            names = sorted(self.interest.topics)
        pattern: str | None = None
        if (is_full and self.interest.pattern is not None) or (
            said is not None and said.interest.pattern != self.interest.pattern
        ):
            pattern = self.interest.pattern or ""  # an empty one takes back the last
        owned: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = None
        if is_full or (said is not None and said.owned != self.owned):
            owned = _grouped(self.owned)
        return ConsumerGroupHeartbeatRequest(
            group_id=options.group_id,
            member_id=options.member_id,
            member_epoch=self.epoch,
            instance_id=options.instance_id,
            rack_id=options.rack if is_full else None,
            rebalance_timeout_ms=int(options.max_poll_interval_s * 1000) if is_full else -1,
            subscribed_topic_names=names,
            subscribed_topic_regex=pattern,
            server_assignor=options.assignor if is_full else None,
            topic_partitions=owned,
        )

    def handle_response(self, response: ConsumerGroupHeartbeatResponse, now: float) -> Step:
        if self.state not in _BEATING:
            return Step.GO_ON  # left or fenced meanwhile
        step = step_of(response.error_code)
        self._interval_s = response.heartbeat_interval_ms / 1000 or self._interval_s
        self._due = now + self._interval_s
        if step is Step.GO_ON:
            self._said, self._sent = self._sent, None
            self.epoch = response.member_epoch
            if response.assignment is not None:
                had_new_target = self.target != self.owned
                self.target = frozenset(
                    TopicIdPartition(each.topic_id, number)
                    for each in response.assignment.topic_partitions
                    for number in each.partitions
                )
                if had_new_target and self.target == self.owned and self._said is not None:
                    # Taken back before it was taken up: the coordinator waits to hear that it is not ours.
                    self._said = self._said._replace(owned=None)
            confirmed = self._said is not None and self._said.owned == self.owned
            if self.target != self.owned:
                self.state = State.RECONCILING if confirmed else State.ACKNOWLEDGING
            else:
                self.state = State.STABLE if confirmed else State.ACKNOWLEDGING
            if self.state is State.ACKNOWLEDGING or (self._said is not None and self._said.interest != self.interest):
                self._due = 0.0
        else:
            self._said = None
            if step is Step.LOST:
                self.state = State.FENCED
            elif step is Step.FAIL:
                self.state = State.FATAL
        return step

    def beat_at_once(self) -> None:
        """Something is to be asked for or sent before the interval is over."""
        self._due = 0.0

    def failed(self, now: float, pause_s: float) -> None:
        """No answer came: the coordinator may know more or less than we think."""
        self._said = None
        self._due = now + pause_s

    # -- reconciliation ------------------------------------------------------------------------------------------------

    @property
    def has_new_target(self) -> bool:
        return self.state in (State.RECONCILING, State.ACKNOWLEDGING) and self.target != self.owned

    def acknowledge(self, owned: Iterable[TopicIdPartition]) -> None:
        """The listener knows, and this is what we read now."""
        self.owned = frozenset(owned)
        if self.state in _BEATING and self.epoch != JOIN_EPOCH:
            self.state = State.ACKNOWLEDGING
            self._due = 0.0

    # -- leaving -------------------------------------------------------------------------------------------------------

    def poll_overdue_s(self, last_poll: float, now: float) -> float:
        """By how much the user has been away for too long; at most 0 where not."""
        return now - last_poll - self.options.max_poll_interval_s

    def leave_request(self, *, for_good: bool = False) -> ConsumerGroupHeartbeatRequest | None:
        """None where there is nothing to leave. A static member only steps out, unless it goes for good."""
        if self.state not in _BEATING or self.epoch == JOIN_EPOCH:
            return None
        epoch = STATIC_LEAVE_EPOCH if self.options.instance_id is not None and not for_good else LEAVE_EPOCH
        return ConsumerGroupHeartbeatRequest(
            group_id=self.options.group_id,
            member_id=self.options.member_id,
            member_epoch=epoch,
            instance_id=self.options.instance_id,
        )

    def went_stale(self) -> None:
        self.state = State.STALE
        self.epoch = JOIN_EPOCH

    def left(self) -> None:
        self.state = State.UNSUBSCRIBED
        self.interest = Interest()
        self.epoch = JOIN_EPOCH
        self.owned = self.target = frozenset()
        self._said = None


def step_of(code: int) -> Step:
    return _STEPS.get(ErrorCode.of(code), Step.FAIL)


def _grouped(partitions: Iterable[TopicIdPartition]) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    numbers: dict[UUID, list[int]] = {}
    for topic_id, number in sorted(partitions):
        numbers.setdefault(topic_id, []).append(number)
    return [
        ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=found)
        for topic_id, found in numbers.items()
    ]

"""A partition as its follower sees it: where it fetches from, and what an answer of the leader makes it do. Pure.

A follower asks from the end of its log on and says which epoch its last record is of. The leader answers with records
that fit there, or with the place where both histories part (KIP-595): what lies behind it was never committed and is
cut off. A leader from before that (Kafka 2.6 and earlier) does not say so: the follower asks it where the epoch of its
last record ends before it fetches (KIP-101, KIP-279), and asks again until it is an epoch that both know. A follower
whose place the leader does not have any more, or not yet, starts where the leader's log starts or ends. Everything is
done in order, and each answer is matched against the question: what the follower asked in an earlier epoch, or from
another place, is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from ottla.errors import ErrorCode
from ottla.protocol.messages.fetch import PartitionData
from ottla.protocol.messages.offsets import EpochEndOffset
from ottla.replication.fetch_requests import FetchPosition


class Fetched(Protocol):
    """What is appended of a partition in a response of the leader."""

    @property
    def records(self) -> Any: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def log_start_offset(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Append:
    """Records that fit at the end of the log, and how far the leader says that they are committed."""

    data: PartitionData


@dataclass(frozen=True, slots=True)
class Truncate:
    """The last epoch that both know ends here for the leader: cut off what lies behind, and ask again."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class FindRestartOffset:
    """The leader has no such offset: ask it where its log ends and starts."""


@dataclass(frozen=True, slots=True)
class Pause:
    """It may work in a while."""

    reason: ErrorCode


@dataclass(frozen=True, slots=True)
class Stop:
    """The leader knows of a newer leadership than this one: the controller will say more."""

    reason: ErrorCode


@dataclass(frozen=True, slots=True)
class Ignore:
    """The response to a fetch from a position that is no longer current."""


@dataclass(frozen=True, slots=True)
class AskEpochEnd:
    """The log may have what the leader's does not: ask the leader where this epoch, its last one, ends there."""

    epoch: int


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Cut off what lies behind `offset`. `is_last`: it has nothing of its own then; if not, ask again."""

    offset: int
    is_last: bool


FIRST_PAUSE_S: Final = 0.02
DOUBLED_MAX: Final = 16


def pause_s(failures: int, longest_s: float) -> float:
    """How long to wait after so many failures in a row, the last one included: each time twice as long.

    After an election followers may know their new leader before it knows that it leads. Its writers wait for them, so
    they ask again soon; `longest_s` is for a leader that stays away.
    """
    return min(longest_s, FIRST_PAUSE_S * (1 << min(failures - 1, DOUBLED_MAX)))


Step: TypeAlias = Append | Truncate | FindRestartOffset | Pause | Stop | Ignore


@dataclass(slots=True)
class Follower:
    """The following of one leader in one epoch. `position` is where it asks next."""

    leader_id: int
    leader_epoch: int
    position: FetchPosition
    paused_until: float = 0.0  # by the loop's clock
    failures: int = 0  # since it last appended what the leader sent
    is_caught_up: bool = False  # it had, at the last answer, all that the leader knew to be committed
    is_stopped: bool = False
    is_truncated: bool = False  # the log is known to have nothing that the leader's does not have

    def is_ready(self, now: float) -> bool:
        return not self.is_stopped and now >= self.paused_until

    def pause(self, now: float, longest_s: float) -> None:
        self.failures += 1
        self.paused_until = now + pause_s(self.failures, longest_s)

    def before_fetch(self, high_watermark: int, *, reports_divergence: bool) -> AskEpochEnd | TruncateTo | None:
        """What comes before it may fetch; None where it may. `reports_divergence`: the leader's responses do that."""
        if self.is_truncated:
            return None
        if self.position.last_fetched_epoch < 0:
            # Nobody can say where histories without epochs part.
            return TruncateTo(high_watermark, is_last=True) if self.position.offset > high_watermark else None
        return None if reports_divergence else AskEpochEnd(self.position.last_fetched_epoch)

    def handle_epoch_end(
        self, answer: EpochEndOffset, own_end_of: Callable[[int], tuple[int, int]], high_watermark: int
    ) -> TruncateTo | Pause:
        """What to do about where the leader's last epoch up to the one that was asked for ends.

        `own_end_of`: the last epoch up to a given one in our log, and where it ends; -1 for both where there is none.
        """
        if answer.error_code:
            return Pause(ErrorCode.of(answer.error_code))
        if answer.end_offset < 0:  # it knows no epochs
            return TruncateTo(high_watermark, is_last=True)
        end_offset = self.position.offset
        # Version 0 of the answer does not say of which epoch it is.
        epoch, own_end = own_end_of(answer.leader_epoch) if answer.leader_epoch >= 0 else (-1, -1)
        if epoch < 0:
            return TruncateTo(min(answer.end_offset, end_offset), is_last=True)
        offset = truncation_offset(own_end, answer.end_offset, end_offset)
        # One that we do not know begins where ours has been cut: what is before that is asked about again.
        return TruncateTo(offset, is_last=epoch == answer.leader_epoch)

    def handle_response(self, asked: FetchPosition, data: PartitionData) -> Step:
        """What to do about the leader's response to a fetch from `asked`."""
        if asked != self.position or self.is_stopped:
            return Ignore()
        match data.error_code:
            case ErrorCode.NONE if data.diverging_epoch is not None:
                return Truncate(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            case ErrorCode.NONE:
                return Append(data)
            case ErrorCode.OFFSET_OUT_OF_RANGE:
                return FindRestartOffset()
            case ErrorCode.FENCED_LEADER_EPOCH:
                return Stop(ErrorCode.FENCED_LEADER_EPOCH)
            case code:
                return Pause(ErrorCode.of(code))


def truncation_offset(own_epoch_end: int, leader_end_offset: int, end_offset: int) -> int:
    """Where to cut after a divergence.

    `own_epoch_end`: where the epoch that the leader named, or the last one before it, ends in our log. Both logs agree
    up to the smaller of the two ends.
    """
    return min(own_epoch_end, leader_end_offset, end_offset)


@dataclass(frozen=True, slots=True)
class RestartOffset:
    """Where a follower continues after the leader did not have its offset."""

    offset: int
    is_new_start: bool  # everything before it is dropped, and the log begins there


def find_restart_offset(end_offset: int, leader_start_offset: int, leader_end_offset: int) -> RestartOffset:
    """A follower that is ahead of its leader (an unclean election) goes back; one that is behind its start, forward."""
    if leader_end_offset < end_offset:
        return RestartOffset(leader_end_offset, is_new_start=False)
    if leader_start_offset > end_offset:
        return RestartOffset(leader_start_offset, is_new_start=True)
    return RestartOffset(end_offset, is_new_start=False)  # the leader has moved since it answered: ask again


def follower_high_watermark(leader_high_watermark: int, end_offset: int, log_start_offset: int) -> int:
    """What a follower knows to be committed: as much of it as it has."""
    known = leader_high_watermark if leader_high_watermark < end_offset else end_offset
    return known if known > log_start_offset else log_start_offset

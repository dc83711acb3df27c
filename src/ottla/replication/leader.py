"""A partition as its leader sees it: epoch, what the followers have, in-sync replicas, high watermark.

Values in, decisions out; the log and the waiting are the partition's (`broker.partition`), asking the controller for
another set of in-sync replicas is the broker's.

A change of the in-sync replicas (ISR) is a proposal until the controller has written it. Meanwhile the larger of both
sets counts for the high watermark, and the committed one for `min.insync.replicas`: whichever of the two stands in the
end, nothing was reported as committed that a member of it lacks.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field

from ottla.errors import ApiError, ErrorCode

NO_EPOCH = -1
UNKNOWN_OFFSET = -1
NEVER_MS = -1
UNKNOWN_BROKER_EPOCH = -1


def high_watermark(ends: Mapping[int, int], isr: Collection[int]) -> int:
    """The first offset that some in-sync replica still lacks; consumers may read below it."""
    assert isr, "a leader is always in its own ISR"
    return min(ends[node] for node in isr)


def check_epoch(epoch: int, current_leader_epoch: int) -> None:
    """A client that knows the leader epoch must know the same one as the replica; -1 does not say."""
    if current_leader_epoch in (epoch, NO_EPOCH):
        return
    if current_leader_epoch < epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"epoch {current_leader_epoch} is over, it is {epoch}")
    raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"epoch {current_leader_epoch} is not known, it is {epoch}")


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """The in-sync replicas that a leader asks its controller for, and the state that it asks about."""

    leader_epoch: int
    version: int  # of the partition's state, which the change is conditional on
    isr: tuple[int, ...]
    # Of those that join: the registrations in which they caught up (KIP-903). One that has registered again since may
    # have lost what it had.
    broker_epochs: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class LastFetch:
    """When a follower last asked for all partitions of a session, most of which it does not name again."""

    at_ms: int


@dataclass(slots=True)
class FollowerProgress:
    """What the leader knows of a follower from its fetches. Times are of a clock that does not jump."""

    end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    caught_up_ms: int = NEVER_MS  # when it last had everything that the leader had
    fetched_ms: int = NEVER_MS
    leader_end_at_fetch: int = UNKNOWN_OFFSET
    broker_epoch: int = UNKNOWN_BROKER_EPOCH  # of the registration in which it fetches; older brokers do not say
    # Of the session by which it asks, where that is noted once for all of its partitions. It holds for this one as long
    # as the follower stands at the leader's end: `settle` takes it over before that moves.
    last_fetch: LastFetch | None = None

    def fetched(self, offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """It asks from `offset` on, so it has everything below."""
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end_at_fetch and self.fetched_ms != NEVER_MS:
            # It has all that there was at its last fetch: under steady writes it never has more.
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.end_offset = offset
        self.log_start_offset = log_start_offset
        self.fetched_ms = now_ms
        self.leader_end_at_fetch = leader_end_offset

    def settle(self, leader_end_offset: int) -> None:
        """The leader's end is about to move: until its last fetch a follower that stood there had everything."""
        if self.last_fetch is not None and self.end_offset >= leader_end_offset:
            self.caught_up_ms = self.fetched_ms = max(self.fetched_ms, self.last_fetch.at_ms)
            self.leader_end_at_fetch = leader_end_offset

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        if self.end_offset == leader_end_offset:
            return True
        return self.caught_up_ms != NEVER_MS and now_ms - self.caught_up_ms <= lag_ms_max


class Leader:
    """The leadership of one partition by one node in one epoch."""

    __slots__ = (
        "_ends",
        "_in_sync_count",
        "_maximal_isr",
        "epoch",
        "epoch_start_offset",
        "followers",
        "high_watermark",
        "is_alone",
        "isr",
        "node_id",
        "proposal",
        "replicas",
        "version",
    )

    def __init__(
        self,
        node_id: int,
        epoch: int,
        replicas: Collection[int],
        isr: Collection[int],
        *,
        end_offset: int,
        high_watermark: int,
        version: int = 0,
        now_ms: int = 0,
    ) -> None:
        """`end_offset` is that of the log when the epoch begins. Members of the ISR have until a lag after `now_ms`."""
        self.node_id = node_id
        self.epoch = epoch
        self.epoch_start_offset = end_offset
        self.replicas = tuple(replicas)
        self.isr = tuple(isr)
        self.version = version
        self.proposal: IsrProposal | None = None
        self.followers = {
            node: FollowerProgress(caught_up_ms=now_ms if node in self.isr else NEVER_MS)
            for node in self.replicas
            if node != node_id
        }
        # What followers have is not known until they fetch; nothing of it counts as committed before.
        self._ends = {node: end_offset if node == node_id else UNKNOWN_OFFSET for node in self.replicas}
        self.high_watermark = high_watermark
        self._settle_isr()
        self.record_end(node_id, end_offset)

    def _settle_isr(self) -> None:
        # A replica that moves away is still in the ISR when the leader learns its new assignment. It fetches no more:
        # nothing waits for it, and it does not make others safe.
        proposed = () if self.proposal is None else self.proposal.isr
        self._maximal_isr = frozenset((*self.isr, *proposed)).intersection(self.replicas)
        self._in_sync_count = sum(node in self.replicas for node in self.isr)
        self.is_alone = self._maximal_isr == {self.node_id}

    # -- clients -------------------------------------------------------------------------------------------------------

    def check_epoch(self, current_leader_epoch: int) -> None:
        check_epoch(self.epoch, current_leader_epoch)

    def check_append(self, acks: int, min_insync_replicas: int) -> None:
        """With acks=all a record is taken only where enough replicas could take it."""
        if acks == -1 and not self.has_enough_in_sync(min_insync_replicas):
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self._in_sync_count} replicas are in sync, min.insync.replicas asks for {min_insync_replicas}",
            )

    def has_enough_in_sync(self, min_insync_replicas: int) -> bool:
        """Whether as many replicas are in sync as asked for; a topic cannot be asked for more than it has."""
        return self._in_sync_count >= min(min_insync_replicas, len(self.replicas))

    # -- progress ------------------------------------------------------------------------------------------------------

    def record_end(self, node_id: int, end_offset: int) -> bool:
        """A replica has everything below `end_offset`; whether that moved the high watermark."""
        if node_id == self.node_id:
            if self.is_alone:
                self._ends[node_id] = end_offset
                return self._raise_high_watermark(end_offset)
            for progress in self.followers.values():
                progress.settle(self._ends[node_id])
        self._ends[node_id] = end_offset
        return self._raise_high_watermark(high_watermark(self._ends, self._maximal_isr))

    def _raise_high_watermark(self, offset: int) -> bool:
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def check_follower(self, node_id: int, current_leader_epoch: int, broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> None:
        """Only a replica of this partition may fetch as one, and not the leader from itself."""
        if node_id in self.followers:
            if not self.is_outdated(node_id, broker_epoch):
                return
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {node_id} has registered again since epoch {broker_epoch}"
            )
        # One that names our epoch may know of a move before we do, and asks again.
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if current_leader_epoch < 0 else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise ApiError(code, f"broker {node_id} is not a follower of this partition")

    def is_outdated(self, node_id: int, broker_epoch: int) -> bool:
        """Whether a follower has fetched in a later registration: what it had in this one it may have lost."""
        return UNKNOWN_BROKER_EPOCH < broker_epoch < self.followers[node_id].broker_epoch

    def record_fetch(
        self,
        node_id: int,
        offset: int,
        log_start_offset: int,
        now_ms: int,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
    ) -> bool:
        """A follower fetches from `offset` on; whether that moved the high watermark."""
        progress = self.followers[node_id]
        progress.broker_epoch = broker_epoch
        progress.fetched(offset, log_start_offset, self._ends[self.node_id], now_ms)
        return self.record_end(node_id, offset)

    def low_watermark(self, log_start_offset: int, alive: Container[int]) -> int:
        """The smallest log start of the leader, whose is given, and of all followers that are alive; -1: not known."""
        starts = [known.log_start_offset for node, known in self.followers.items() if node in alive]
        return min([log_start_offset, *starts])

    # -- in-sync replicas ----------------------------------------------------------------------------------------------

    def propose_growth(self, node_id: int, eligible: Collection[int]) -> IsrProposal | None:
        """A follower that has all that is committed, and all from before this epoch, may join.

        `eligible`: the brokers that are alive and not about to leave.
        """
        if self.proposal is not None or node_id in self.isr or node_id not in eligible:
            return None
        end_offset = self._ends.get(node_id, UNKNOWN_OFFSET)
        if end_offset < self.high_watermark or end_offset < self.epoch_start_offset:
            return None
        return self._propose((*self.isr, node_id), {node_id: self.followers[node_id].broker_epoch})

    def propose_shrink(self, now_ms: int, lag_ms_max: int) -> IsrProposal | None:
        """Followers that have been behind for too long leave, whether stuck or slow."""
        if self.proposal is not None:
            return None
        end_offset = self._ends[self.node_id]
        kept = tuple(
            node
            for node in self.isr
            if node == self.node_id
            or (node in self.followers and self.followers[node].is_caught_up(end_offset, now_ms, lag_ms_max))
        )
        return None if kept == self.isr else self._propose(kept)

    def _propose(self, isr: tuple[int, ...], broker_epochs: Mapping[int, int] | None = None) -> IsrProposal:
        self.proposal = IsrProposal(self.epoch, self.version, isr, broker_epochs or {})
        self._settle_isr()
        return self.proposal

    def withdraw_proposal(self) -> bool:
        """The controller refused it: what was committed before stands. Whether that moved the high watermark.

        Who was proposed may lack what those in sync have, and counted until now.
        """
        self.proposal = None
        self._settle_isr()
        return self._raise_high_watermark(high_watermark(self._ends, self._maximal_isr))

    def commit_isr(self, isr: Collection[int], version: int) -> bool:
        """The controller wrote a set of in-sync replicas; whether that moved the high watermark.

        An answer that is older than what is known changes nothing.
        """
        if version < self.version:
            return False
        self.isr = tuple(isr)
        self.version = version
        self.proposal = None
        self._settle_isr()
        return self._raise_high_watermark(high_watermark(self._ends, self._maximal_isr))

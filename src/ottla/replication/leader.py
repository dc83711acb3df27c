"""A partition as its leader sees it: epoch, in-sync replicas, high watermark.

Values in, decisions out; the log and the waiting are the partition's (`broker.partition`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla.errors import ApiError, ErrorCode

NO_EPOCH = -1


def high_watermark(ends: Mapping[int, int], isr: Collection[int]) -> int:
    """The first offset that some in-sync replica still lacks; consumers may read below it."""
    assert isr, "a leader is always in its own ISR"
    return min(ends[node] for node in isr)


class Leader:
    """The leadership of one partition by one node in one epoch."""

    __slots__ = ("_ends", "epoch", "high_watermark", "is_alone", "isr", "node_id", "replicas")

    def __init__(
        self,
        node_id: int,
        epoch: int,
        replicas: Collection[int],
        isr: Collection[int],
        *,
        end_offset: int,
        high_watermark: int,
    ) -> None:
        self.node_id = node_id
        self.epoch = epoch
        self.replicas = tuple(replicas)
        self.isr = frozenset(isr)
        self.is_alone = self.isr == {node_id}
        # What followers have is not known until they fetch; nothing of it counts as committed before.
        self._ends = {node: end_offset if node == node_id else -1 for node in self.replicas}
        self.high_watermark = high_watermark
        self.record_end(node_id, end_offset)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """A client that knows the leader epoch must know the same one; -1 does not say."""
        if current_leader_epoch in (self.epoch, NO_EPOCH):
            return
        if current_leader_epoch < self.epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"epoch {current_leader_epoch} is over, it is {self.epoch}")
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"epoch {current_leader_epoch} is not known, it is {self.epoch}")

    def check_follower(self, node_id: int) -> None:
        """Only a replica of this partition may fetch as one, and not the leader from itself."""
        if node_id == self.node_id or node_id not in self.replicas:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {node_id} is no follower of this partition")

    def check_append(self, acks: int, min_insync_replicas: int) -> None:
        """With acks=all a record is taken only where enough replicas could take it."""
        if acks == -1 and not self.has_enough_in_sync(min_insync_replicas):
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} replicas are in sync, {min_insync_replicas} are asked for (min.insync.replicas)",
            )

    def has_enough_in_sync(self, min_insync_replicas: int) -> bool:
        """Whether as many replicas are in sync as asked for; a topic cannot be asked for more than it has."""
        return len(self.isr) >= min(min_insync_replicas, len(self.replicas))

    def record_end(self, node_id: int, end_offset: int) -> bool:
        """A replica has everything below `end_offset`; whether that moved the high watermark."""
        self._ends[node_id] = end_offset
        moved = end_offset if self.is_alone and node_id == self.node_id else high_watermark(self._ends, self.isr)
        if moved <= self.high_watermark:
            return False
        self.high_watermark = moved
        return True

"""Which replica a consumer is to read from (KIP-392). Pure.

Followers serve consumers like leaders do, up to what they know to be committed. Whom to ask is the leader's decision,
which consumers follow until it is a while old or does not work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.replication.leader import NEVER_MS, Leader

RACK_AWARE_SELECTOR = "RackAwareReplicaSelector"


class ReadReplica(NamedTuple):
    """A follower that has what a consumer asks for. Better ones compare larger."""

    end_offset: int
    caught_up_ms: int
    node_id: int


def has_rack_aware_selector(selector_class: str | None) -> bool:
    """Whether this value of `replica.selector.class` names Kafka's selector by racks, in whatever package."""
    return selector_class is not None and selector_class.rpartition(".")[2] == RACK_AWARE_SELECTOR


def replica_in_rack(leader: Leader, offset: int, rack: str, racks: Mapping[int, str | None]) -> int | None:
    """The follower that a consumer in `rack` is to read from, from `offset` on; None: the leader.

    `racks`: of the brokers that the consumer can reach. The leader serves its own rack, and racks without a replica
    that is in sync and has the offset: one that lags behind for ever must not keep its consumers behind as well.
    """
    if not rack or racks.get(leader.node_id) == rack:
        return None
    best = max(_that_have(leader, offset, (node for node in leader.isr if racks.get(node) == rack)), default=None)
    return None if best is None else best.node_id


def _that_have(leader: Leader, offset: int, nodes: Iterable[int]) -> Iterable[ReadReplica]:
    for node in nodes:
        known = leader.followers.get(node)
        if known is not None and known.log_start_offset <= offset <= known.end_offset:
            caught_up_ms = known.fetched_ms if known.end_offset >= known.leader_end_at_fetch else known.caught_up_ms
            yield ReadReplica(known.end_offset, max(NEVER_MS, caught_up_ms), node)

"""A whole cluster on virtual time: brokers crash, networks part, sessions end; nothing acknowledged is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.broker.handlers import fetch
from ottla.cluster import leadership
from ottla.replication.leader import Leader
from ottla.testing.cluster_soak import soak_cluster
from ottla.testing.seeds import portion_id, portions
from ottla.testing.world import SimulationError

SEEDS_MAX = 12  # chance decides when a bug shows; so many histories must be enough


@pytest.mark.parametrize("portion", portions(6, per_test=2), ids=portion_id)
def test_a_cluster_loses_nothing_that_it_acknowledged(portion: range) -> None:
    for seed in portion:
        soak_cluster(seed)


# Seeds that found something, while the histories are those that they were then.
FOUND = {
    9: "a run that was not registered yet took LeaderAndIsr of the one before",
    254: "a partition left its fetcher while the connection was made",
}


@pytest.mark.parametrize("seed", FOUND)
def test_what_a_history_found_before_stays_mended(seed: int) -> None:
    soak_cluster(seed)


def the_watermark_does_not_wait_for_followers(patch: pytest.MonkeyPatch) -> None:
    record_end = Leader.record_end

    def record_end_alone(leader: Leader, node_id: int, end_offset: int) -> bool:
        moved = record_end(leader, node_id, end_offset)
        return (leader._raise_high_watermark(end_offset) if node_id == leader.node_id else False) or moved

    patch.setattr(Leader, "record_end", record_end_alone)


def histories_that_part_are_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetch._Reading, "_note_divergence", staticmethod(lambda partition, entry, data: False))


def anybody_may_lead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leadership, "elect_of_in_sync", leadership.elect_of_any)


@pytest.mark.parametrize(
    "plant",
    [
        the_watermark_does_not_wait_for_followers,
        histories_that_part_are_not_noticed,
        anybody_may_lead,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS_MAX):
        try:
            soak_cluster(seed)
        except SimulationError:
            return
    pytest.fail(f"{SEEDS_MAX} histories did not find it")

"""A whole cluster on virtual time: brokers crash, networks part, sessions end; nothing acknowledged is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.broker import refused_starts
from ottla.broker.control_requests import ControlRequests
from ottla.broker.coordinators import CoordinatorShard
from ottla.broker.follower_fetches import FollowerFetches
from ottla.broker.handlers import fetch, list_offsets
from ottla.broker.partition import Partition
from ottla.broker.repeated_produce import RepeatedProduce, _Waiting
from ottla.broker.replicas import Replicas
from ottla.cluster import leadership
from ottla.controller import in_sync
from ottla.controller.term import ControllerMoved, Term
from ottla.errors import ApiError, ErrorCode
from ottla.records import batch
from ottla.replication.follower import Follower
from ottla.replication.leader import Leader
from ottla.storage import logs
from ottla.storage.log import Log
from ottla.storage.producer_state import ProducerStates
from ottla.storage.recovery import open_log
from ottla.store.api import ANY_VERSION, Put, SessionLost, StoreError
from ottla.testing.cluster_climate import ClusterClimate
from ottla.testing.cluster_soak import soak_cluster
from ottla.testing.seeds import portion_id, portions
from ottla.testing.simulated_ensemble import SimulatedStore
from ottla.testing.world import SimulationError

SEEDS_MAX = 24  # chance decides when a bug shows; so many histories must be enough

Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("portion", portions(200, per_test=5), ids=portion_id)
def test_a_cluster_loses_nothing_that_it_acknowledged(portion: range) -> None:
    for seed in portion:
        soak_cluster(seed)


# -- planted bugs, each with the climate that shows it soonest ---------------------------------------------------------


def the_watermark_does_not_wait_for_followers(patch: pytest.MonkeyPatch) -> None:
    record_end = Leader.record_end

    def record_end_alone(leader: Leader, node_id: int, end_offset: int) -> bool:
        moved = record_end(leader, node_id, end_offset)
        return (leader._raise_high_watermark(end_offset) if node_id == leader.node_id else False) or moved

    patch.setattr(Leader, "record_end", record_end_alone)


def the_watermark_goes_back(patch: pytest.MonkeyPatch) -> None:
    """To what the followers have that are known of: a new leader knows of none, and one may have restarted."""

    def move(leader: Leader, offset: int) -> bool:
        has_moved, leader.high_watermark = offset != leader.high_watermark, offset
        return has_moved

    patch.setattr(Leader, "_raise_high_watermark", move)


def who_is_proposed_as_in_sync_is_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """Whom the controller lets in meanwhile may be elected, and lack what was acknowledged."""

    def settle(leader: Leader) -> None:
        leader._maximal_isr = frozenset(leader.isr).intersection(leader.replicas)
        leader._in_sync_count = len(leader._maximal_isr)
        leader.is_alone = leader._maximal_isr == {leader.node_id}

    patch.setattr(Leader, "_settle_isr", settle)


def histories_that_part_are_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetch._Reading, "_note_divergence", staticmethod(lambda partition, entry, data: False))


def a_follower_truncates_to_its_watermark(patch: pytest.MonkeyPatch) -> None:
    follow = Partition.follow

    def follow_from_watermark(partition: Partition, leader_id: int, leader_epoch: int, high_watermark: int) -> Follower:
        partition._truncate(partition.name, min(high_watermark, partition.log.end_offset), 0)
        return follow(partition, leader_id, leader_epoch, high_watermark)

    patch.setattr(Partition, "follow", follow_from_watermark)


def anybody_may_lead(patch: pytest.MonkeyPatch) -> None:
    repair = leadership.repair

    def repair_uncleanly(state: Any, able: Any, *, unclean: bool) -> Any:
        return repair(state, able, unclean=True)

    patch.setattr(leadership, "repair", repair_uncleanly)


def a_second_batch_becomes_the_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(refused_starts.RefusedStarts, "check", lambda starts, place, producer, producers, now_ms: None)


def duplicates_are_not_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerStates, "check", lambda states, header: None)


def followers_forget_producers(patch: pytest.MonkeyPatch) -> None:
    append = Log.append_as_follower

    def append_and_forget(log: Log, data: Any, *, now_ms: int) -> Any:
        appended = append(log, data, now_ms=now_ms)
        log.producers.producers.clear()
        return appended

    patch.setattr(Log, "append_as_follower", append_and_forget)


def truncation_keeps_producers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "rebuild_producers", lambda log, rebuilt_aborted=(): None)


def followers_are_told_that_all_is_committed(patch: pytest.MonkeyPatch) -> None:
    fetched = FollowerFetches._fetched

    def fetched_and_more(fetches: FollowerFetches, place: Any, *arguments: Any, **options: Any) -> Any:
        found = fetched(fetches, place, *arguments, **options)
        return None if found is None else found._replace(high_watermark=place.partition.log.end_offset)

    patch.setattr(FollowerFetches, "_fetched", fetched_and_more)


def a_batch_behind_one_that_waits_is_acknowledged_at_once(patch: pytest.MonkeyPatch) -> None:
    append = RepeatedProduce._append

    def append_and_answer(repeated: RepeatedProduce, frame: memoryview) -> Any:
        found = append(repeated, frame)
        return found.answer if isinstance(found, _Waiting) and repeated._pending else found

    patch.setattr(RepeatedProduce, "_append", append_and_answer)


def the_short_way_looks_at_no_history(patch: pytest.MonkeyPatch) -> None:
    def is_led_here(fetches: FollowerFetches, place: Any, leader_epoch: int, offset: int, last_epoch: int) -> bool:
        log = place.partition.log
        return place.partition.current_leader is place.leader and log.log_start_offset <= offset <= log.end_offset

    patch.setattr(FollowerFetches, "_is_usual", is_led_here)


def no_log_starts_in_the_middle_of_a_batch(patch: pytest.MonkeyPatch) -> None:
    append = Log._append_one_by_one

    def append_whole(log: Log, view: memoryview, now_ms: int) -> None:
        if batch.read_header(view).base_offset < log.end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, "the leader sent an offset that is here")
        append(log, view, now_ms)

    patch.setattr(Log, "_append_one_by_one", append_whole)


def a_controller_that_is_over_is_obeyed(patch: pytest.MonkeyPatch) -> None:
    async def refusal(control: ControlRequests, request: Any) -> ErrorCode:
        control.controller_epoch = request.controller_epoch
        return ErrorCode.NONE

    patch.setattr(ControlRequests, "_refusal", refusal)


def a_controller_writes_whatever_is_there_by_now(patch: pytest.MonkeyPatch) -> None:
    async def write(term: Term, operation: Any) -> Any:
        change = replace(operation, version=ANY_VERSION) if isinstance(operation, Put) else operation
        try:
            return (await term.store.commit(change))[0]
        except SessionLost as error:
            raise ControllerMoved(str(error)) from error
        except StoreError as refusal:
            return refusal

    patch.setattr(Term, "write", write)


def a_new_leader_says_what_it_knows_to_be_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(list_offsets, "_check_watermark", lambda partition, request: None)


def a_fetch_counts_before_histories_are_compared(patch: pytest.MonkeyPatch) -> None:
    note_divergence = fetch._Reading._note_divergence

    def note_both(reading: Any, partition: Partition, entry: Any, data: Any) -> bool:
        if reading._follower_id is not None:
            reading._note_follower(partition, entry, reading._follower_id)
        return note_divergence(partition, entry, data)

    patch.setattr(fetch._Reading, "_note_divergence", note_both)


def a_replica_that_starts_takes_all_for_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replicas, "_known_high_watermark", lambda replicas, partition: partition.log.end_offset)


def a_log_is_not_checked_after_a_power_loss(patch: pytest.MonkeyPatch) -> None:
    def open_unchecked(*arguments: Any, is_clean: bool = False, **options: Any) -> Log:
        return open_log(*arguments, is_clean=True, **options)

    patch.setattr(logs, "open_log", open_unchecked)


def any_number_of_replicas_is_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leader, "has_enough_in_sync", lambda leader, min_insync_replicas: True)


def a_replica_joins_before_it_has_all(patch: pytest.MonkeyPatch) -> None:
    propose_growth = Leader.propose_growth

    def propose_all(leader: Leader, node_id: int, eligible: Any) -> Any:
        end_offset, leader._ends[node_id] = leader._ends[node_id], leader._ends[leader.node_id]
        try:
            return propose_growth(leader, node_id, eligible)
        finally:
            leader._ends[node_id] = end_offset

    patch.setattr(Leader, "propose_growth", propose_all)


def epochs_of_leaders_do_not_count(patch: pytest.MonkeyPatch) -> None:
    decide = in_sync.decide

    def decide_all(state: Any, request: Any, eligible: Any) -> Any:
        asked = replace(request, version=state.version, leader_epoch=state.leader_epoch)
        return decide(state, asked, eligible)

    patch.setattr(in_sync, "decide", decide_all)


def a_coordinator_loads_only_the_beginning_of_its_log(patch: pytest.MonkeyPatch) -> None:
    async def load(shard: CoordinatorShard[Any], replay: Any) -> None:
        found = shard.partition.read(0, 1, upper_offset=shard.partition.log.end_offset, at_least_one=True)
        if found is not None:
            replay.take(found.records.read())

    patch.setattr(CoordinatorShard, "load", load)


def readers_of_what_is_committed_get_what_is_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "last_stable_offset", lambda log, high_watermark: high_watermark)


def settings_are_read_from_a_server_that_is_behind(patch: pytest.MonkeyPatch) -> None:
    async def sync(store: SimulatedStore, path: str) -> None:
        return

    patch.setattr(SimulatedStore, "sync", sync)


# Messages take long: a follower knows late what is committed, and is told late that another leads.
HAND_OVERS = ClusterClimate(
    faults=("hand_over_and_kill",), fault_s_max=2.0, partitions=4, pause_s_max=0.02, latency_s=0.1, jitter_s=0.2
)
DELETIONS = ClusterClimate(
    brokers=4, faults=("delete_records", "move_replicas"), fault_s_max=2.0, records_per_batch_max=5
)
DEPOSED_CONTROLLERS = ClusterClimate(
    faults=("depose_the_controller", "kill", "make_and_delete_a_topic", "move_replicas"),
    fault_count=20,
    fault_s_max=2.0,
    partitions=10,
    is_overlapping=True,
)
POWER_LOSSES = ClusterClimate(faults=("power_losses_in_turn",), fault_s_max=1.0, partitions=10, pause_s_max=0.02)
KILLS = ClusterClimate(
    faults=("kill", "isolate", "power_loss"),
    fault_s_max=4.0,
    partitions=4,
    pause_s_max=0.02,
    latency_s=0.05,
    jitter_s=0.1,
    is_overlapping=True,
)
TRANSACTIONS = ClusterClimate(faults=("stop", "reset_connections"), fault_s_max=2.0, has_transactions=True)
PLANTS: dict[Plant, ClusterClimate | None] = {
    the_watermark_does_not_wait_for_followers: None,
    the_watermark_goes_back: HAND_OVERS,
    who_is_proposed_as_in_sync_is_not_waited_for: replace(KILLS, partitions=10, fault_count=15),
    histories_that_part_are_not_noticed: HAND_OVERS,
    a_follower_truncates_to_its_watermark: HAND_OVERS,
    anybody_may_lead: HAND_OVERS,
    a_second_batch_becomes_the_first: HAND_OVERS,
    duplicates_are_not_known: None,
    followers_forget_producers: None,
    truncation_keeps_producers: HAND_OVERS,
    followers_are_told_that_all_is_committed: HAND_OVERS,
    a_batch_behind_one_that_waits_is_acknowledged_at_once: replace(HAND_OVERS, fault_count=12),
    the_short_way_looks_at_no_history: replace(KILLS, partitions=10, fault_count=15),
    no_log_starts_in_the_middle_of_a_batch: DELETIONS,
    a_controller_that_is_over_is_obeyed: DEPOSED_CONTROLLERS,
    a_controller_writes_whatever_is_there_by_now: replace(DEPOSED_CONTROLLERS, fault_count=40),
    a_new_leader_says_what_it_knows_to_be_committed: replace(HAND_OVERS, partitions=1, fault_count=25),
    a_fetch_counts_before_histories_are_compared: replace(KILLS, partitions=10, fault_count=15),
    a_replica_that_starts_takes_all_for_committed: HAND_OVERS,
    a_log_is_not_checked_after_a_power_loss: POWER_LOSSES,
    any_number_of_replicas_is_enough: KILLS,
    a_replica_joins_before_it_has_all: KILLS,
    epochs_of_leaders_do_not_count: replace(KILLS, partitions=10, fault_count=15),
    a_coordinator_loads_only_the_beginning_of_its_log: replace(KILLS, fault_count=15),
    readers_of_what_is_committed_get_what_is_open: TRANSACTIONS,
    settings_are_read_from_a_server_that_is_behind: ClusterClimate(store_lag_s_max=0.8, fault_count=1),
}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS_MAX):
        try:
            soak_cluster(seed, PLANTS[plant])
        except SimulationError:
            return
    pytest.fail(f"{SEEDS_MAX} histories did not find it")

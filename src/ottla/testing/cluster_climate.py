"""What one simulated cluster is like: how large, how slow, and which faults come. A seed draws it."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from ottla.records.layout import HEADER_BYTES
from ottla.testing.network import Conditions
from ottla.testing.simulated_ensemble import EnsembleConditions

# Kinds of faults and how often each comes where it comes at all: `ClusterFaults` has a method for each.
FAULTS: Final = {
    "kill": 3,
    "kill_in_a_write": 2,
    "power_loss": 2,
    "power_losses_in_turn": 1,
    "wipe_the_disk": 1,
    "restart_all_in_turn": 1,
    "stop": 2,
    "hand_over_and_kill": 3,
    "depose_and_elect": 1,
    "part_two": 3,
    "isolate": 2,
    "slow_a_link": 2,
    "reset_connections": 2,
    "cut_from_zookeeper": 3,
    "end_session": 2,
    "end_all_sessions": 1,
    "ensemble_down": 1,
    "lose_store_answers": 2,
    "watch_late": 1,
    "watch_late_alone": 2,
    "depose_the_controller": 2,
    "set_the_clock": 1,
    "slow_the_disk": 2,
    "fail_a_directory": 2,
    "move_replicas": 3,
    "move_and_cancel": 2,
    "move_logs": 2,
    "delete_records": 2,
    "add_partitions": 1,
    "throttle_replicas": 2,
    "change_fetchers": 1,
    "change_a_topic_without_a_broker": 1,
    "elect_preferred": 2,
    "make_and_delete_a_topic": 2,
}
# What others have must stay with them until these are over.
ALONE: Final = ("power_loss", "power_losses_in_turn", "wipe_the_disk")
FAULTS_AT_ONCE: Final = 9  # kinds in one climate
DIRECTORIES: Final = ("/data-0", "/data-1")
SESSION_TIMEOUT_S: Final = 2.0
MUCH_BYTES: Final = 10_000  # in a batch
BATCHES_FETCHED: Final = 10
SLOW_S: Final = 0.01
RECORD_BYTES: Final = 50  # what stands around a value, at most, with its name


@dataclass(frozen=True, slots=True)
class ClusterClimate:
    """Drawn once for each history."""

    brokers: int = 3
    partitions: int = 2
    segment_bytes: int = 4_000
    records_per_batch_max: int = 1
    value_bytes: int = 10
    pause_s_max: float = 0.1  # of a producer between two requests
    latency_s: float = 0.000_5
    jitter_s: float = 0.000_5
    disk_delay_s: float = 0.0
    store_lag_s_max: float = 0.1
    faults: tuple[str, ...] = tuple(FAULTS)
    fault_count: int = 6
    fault_s_max: float = 6.0
    has_transactions: bool = False
    has_group: bool = False
    min_isr: int = 2
    is_overlapping: bool = False  # a fault may come before the one before it is over
    has_unclean: bool = False  # a topic beside the others whose leaders may be elected outside the ISR

    @classmethod
    def of(cls, rng: Random) -> ClusterClimate:
        is_slow = rng.random() < 0.4
        records_per_batch_max, value_bytes = rng.choice([1, 1, 5, 40]), rng.choice([10, 10, 300])
        if is_slow and records_per_batch_max * value_bytes > MUCH_BYTES:
            value_bytes = 10
        batch_bytes_max = HEADER_BYTES + records_per_batch_max * (value_bytes + RECORD_BYTES)
        return cls(
            brokers=rng.choice([3, 3, 3, 3, 4, 5]),
            partitions=rng.choice([1, 1, 2, 2, 2, 2, 4, 4, 10, 30]),
            # A fetch reads from one segment: over a slow network a replica that lost all would never have it all again.
            segment_bytes=max(
                batch_bytes_max * (BATCHES_FETCHED if is_slow else 1), rng.choice([1_000, 4_000, 4_000, 1_000_000])
            ),
            records_per_batch_max=records_per_batch_max,
            value_bytes=value_bytes,
            pause_s_max=rng.choice([0.02, 0.1, 0.1] if is_slow else [0.05, 0.2, 0.2]),
            # Between brokers whose messages take long, a follower knows late what is committed, and catches up late.
            latency_s=rng.uniform(0.02, 0.15) if is_slow else 0.000_5,
            jitter_s=rng.uniform(0.02, 0.3) if is_slow else 0.000_5,
            disk_delay_s=rng.choice([0.0, 0.0, 0.02, 0.3]),
            store_lag_s_max=rng.choice([0.02, 0.1, 0.1, 0.8]),
            faults=tuple(rng.sample(list(FAULTS), FAULTS_AT_ONCE)),
            fault_count=rng.choice([4, 6, 8]),
            fault_s_max=rng.choice([1.0, 4.0, 6.0]),
            has_transactions=rng.random() < 0.3,
            has_group=rng.random() < 0.3,
            # Where messages take long, writers that wait for nobody are faster than followers ever are.
            min_isr=2 if is_slow else rng.choice([2, 2, 1]),
            is_overlapping=rng.random() < 0.3,
            has_unclean=rng.random() < 0.15,
        )

    @property
    def settings(self) -> dict[str, str]:
        return {"min.insync.replicas": str(self.min_isr)}

    @property
    def network(self) -> Conditions:
        return Conditions(latency_s=self.latency_s, jitter_s=self.jitter_s)

    @property
    def ensemble(self) -> EnsembleConditions:
        return EnsembleConditions(session_timeout_s=SESSION_TIMEOUT_S, lag_s_max=self.store_lag_s_max)

    def kind(self, rng: Random) -> str:
        """The next fault."""
        return rng.choices(self.faults, [FAULTS[kind] for kind in self.faults])[0]

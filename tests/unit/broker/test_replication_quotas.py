"""Which replicas are throttled, and for how long."""

import pytest

from ottla.broker.replication_quotas import ReplicationQuota
from ottla.config import LogConfig
from ottla.ids import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Clock:
    now = 10.0


def quota(rate: int = 1000) -> tuple[ReplicationQuota, Clock]:
    clock = Clock()
    return (
        ReplicationQuota(
            7, lambda: rate, lambda config: config.leader_replication_throttled_replicas, lambda: clock.now
        ),
        clock,
    )


@pytest.mark.parametrize(
    ("replicas", "delays"),
    [((), (0, 0)), (("*",), (5, 5)), (("0:7",), (5, 0)), (("1:7", "0:8"), (0, 5)), (("0:17",), (0, 0))],
)
def test_only_the_replicas_that_the_topic_names_are_throttled(
    replicas: tuple[str, ...], delays: tuple[float, float]
) -> None:
    known, _ = quota()
    known.record(T0, LogConfig(leader_replication_throttled_replicas=("*",)), 5000)
    config = LogConfig(leader_replication_throttled_replicas=replicas)
    assert (known.delay_s(T0, config), known.delay_s(T1, config)) == delays


def test_what_passes_of_others_does_not_count() -> None:
    known, clock = quota()
    config = LogConfig(leader_replication_throttled_replicas=("0:7",))
    known.record(T1, config, 5000)
    assert known.delay_s(T0, config) == 0
    known.record(T0, config, 5000)
    assert known.delay_s(T0, config) == 5
    clock.now += 5
    assert known.delay_s(T0, config) == 0

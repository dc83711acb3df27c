"""Clients send and poll, plain and in transactions, while brokers and ZooKeeper servers of a cluster are killed, paused
and restarted; the history of what they were told is then checked for what cannot be. See `ottla.testing.history`."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.local_cluster.broker import BrokerProcess
from ottla.local_cluster.cluster import LocalCluster
from ottla.local_cluster.layout import Wanted
from ottla.testing.history import History
from ottla.testing.history_check import check
from ottla.testing.history_workload import PARTITIONS, TOPIC, play
from ottla.testing.ports import free_range
from ottla.testing.waiting import WAIT_S, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("java") is None, reason="ZooKeeper runs on Java, which is not installed here"),
]

BROKERS = ZOOKEEPERS = 3
SEED = int(os.environ.get("OTTLA_CHAOS_SEED") or 7)
RUN_S = float(os.environ.get("OTTLA_CHAOS_SECONDS") or 15)
# On a busy machine these take longer than the run; without them it would say nothing.
COMMITTED_MIN = 5
ENOUGH_S = RUN_S + 300.0
SESSION_MS = 3000
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "zookeeper.connection.timeout.ms": "60000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "unclean.leader.election.enable": "false",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    wanted = Wanted(BROKERS, ZOOKEEPERS, free_range(BROKERS), SETTINGS)
    cluster = LocalCluster.prepare(tmp_path, wanted)
    with cluster.starting(is_supervised=False):
        wait_until(lambda: len(alive(cluster)) == BROKERS)
    yield cluster
    cluster.stop()


def alive(cluster: LocalCluster) -> set[int]:
    """The brokers that the cluster tells clients of."""
    metadata = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}).list_topics(timeout=WAIT_S)
    return set(metadata.brokers)


def is_in_sync(cluster: LocalCluster) -> bool:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    topics = admin.list_topics(timeout=WAIT_S).topics.values()
    partitions = [partition for topic in topics for partition in topic.partitions.values()]
    return all(len(partition.isrs) == BROKERS for partition in partitions)


# -- bad things, each made good again ----------------------------------------------------------------------------------


def restart_what_is_down(cluster: LocalCluster) -> None:
    with cluster.starting(is_supervised=False):
        pass


def kill_a_broker(cluster: LocalCluster, rng: random.Random) -> None:
    rng.choice(cluster.brokers).kill()
    time.sleep(SESSION_MS / 1000 * 2 * rng.random())  # back before the session ends, or after
    restart_what_is_down(cluster)


def restart_a_broker(cluster: LocalCluster, rng: random.Random) -> None:
    assert rng.choice(cluster.brokers).stop(), "a broker stops when it is told to"
    restart_what_is_down(cluster)


def pause_a_broker(cluster: LocalCluster, rng: random.Random) -> None:
    """Shorter than its session, or longer: then it wakes up as a leader that is none any more."""
    broker: BrokerProcess = rng.choice(cluster.brokers)
    broker.process.send(signal.SIGSTOP)
    time.sleep(SESSION_MS / 1000 * (0.3 + 1.5 * rng.random()))
    broker.process.send(signal.SIGCONT)


def kill_the_leader_of_zookeeper(cluster: LocalCluster, rng: random.Random) -> None:
    leaders = [server for server in cluster.zookeepers if server.is_leader()]
    for leader in leaders:
        leader.kill()
    time.sleep(2 * rng.random())
    restart_what_is_down(cluster)


HARMS: tuple[Callable[[LocalCluster, random.Random], None], ...] = (
    kill_a_broker,
    pause_a_broker,
    kill_the_leader_of_zookeeper,
    restart_a_broker,
)


def test_what_clients_of_a_cluster_were_told_is_so(cluster: LocalCluster, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    history = History()
    harms: list[str] = []
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS)])[TOPIC].result(WAIT_S)

    def is_enough() -> bool:
        return history.transactions()["ok"] >= COMMITTED_MIN

    def trouble() -> None:
        started = time.monotonic()
        # Each of them at least once, in any order; then whatever comes.
        waiting = rng.sample(HARMS, len(HARMS))
        while waiting or time.monotonic() < started + (RUN_S if is_enough() else ENOUGH_S):
            time.sleep(0.5 + 2 * rng.random())
            harm = waiting.pop() if waiting else rng.choice(HARMS)
            harms.append(harm.__name__)
            harm(cluster, rng)
        wait_until(lambda: is_in_sync(cluster), timeout_s=2 * WAIT_S)

    play(history, cluster.bootstrap_servers, SEED, trouble)
    history.save(tmp_path / "history.jsonl")
    counts = history.transactions()
    print(f"{len(history.operations)} operations, transactions {counts}, harm: {', '.join(harms)}")
    assert counts["ok"] >= COMMITTED_MIN, counts
    findings = check(history)
    assert findings == [], "\n".join(map(str, findings[:20]))

"""Three brokers of Ottla beside three of Apache Kafka 3.9, each kind over a ZooKeeper, on one machine.

Replication factor 3, acks=all, min.insync.replicas 2; the load comes from librdkafka in a process of its own. What
counts is the CPU of the three brokers together. Kafka runs as its start script runs it. Both are warm before anything
counts and take turns, see turns.py; what is done once (a topic of 1,000 partitions, a broker that is killed) is done
once on each.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from ottla.local_cluster.zookeeper import ZooKeeperEnsemble
from ottla.testing.apache_kafka import AS_ITS_SCRIPT, missing_programs
from ottla.testing.cluster_clients import create_assigned, create_topic
from ottla.testing.mixed_cluster import KAFKA, OTTLA, MixedCluster
from ottla.testing.waiting import wait_until
from peers import AS_SHIPPED, Client
from turns import Plan, Work, measure_alone, take_turns
from wire import Peer

BROKERS = 3
PARTITIONS = 6
BULK_BYTES = 100_000_000
SENDS = 2000
BEHIND_BYTES = 300_000_000
MANY_PARTITIONS = 1000
IDLE_S = 20.0
SESSION_MS = 6000
WAIT_S = 300.0
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": "30000",
    "replica.fetch.backoff.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}
# Value bytes, compression, batch bytes.
LOADS = {
    "100 B, none, 16 kB": (100, "none", 16_384),
    "1 KiB, none, 1 MB": (1024, "none", 1_000_000),
    "1 KiB, lz4, 16 kB": (1024, "lz4", 16_384),
}


class Contender:
    """A running cluster of one kind."""

    def __init__(self, cluster: MixedCluster) -> None:
        self.cluster = cluster

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    def peers(self) -> list[Peer]:
        """The processes that run now."""
        return [Peer("", self.bootstrap_servers, broker.pid, 0.0) for broker in self.cluster.brokers.values()]

    def cpu_s(self) -> float:
        return sum(peer.cpu_s() for peer in self.peers())

    def resident_mb(self) -> float:
        return sum(peer.resident_mb() for peer in self.peers())

    def is_in_sync(self, topic: str, partitions: int) -> bool:
        found = AdminClient({"bootstrap.servers": self.bootstrap_servers}).list_topics(topic, 60).topics[topic]
        known = list(found.partitions.values())
        return len(known) == partitions and all(each.leader > 0 and len(each.isrs) == BROKERS for each in known)

    def wait_in_sync(self, topic: str, partitions: int) -> None:
        wait_until(lambda: self.is_in_sync(topic, partitions), timeout_s=WAIT_S)


@contextlib.contextmanager
def contenders() -> Iterator[dict[str, Contender]]:
    """Both, each with a path of its own in one ZooKeeper."""
    if missing := missing_programs():
        raise SystemExit(f"a cluster needs Java, and to compare it Maven: {missing}")
    with tempfile.TemporaryDirectory(prefix="ottla-cluster-") as directory, contextlib.ExitStack() as stack:
        ensemble = stack.enter_context(ZooKeeperEnsemble(Path(directory, "zookeeper")))
        found = {}
        for kind in (OTTLA, KAFKA):
            settings = {**AS_SHIPPED, **SETTINGS} if kind == KAFKA else SETTINGS
            place = Path(directory, kind)
            place.mkdir()
            cluster = MixedCluster(f"{ensemble.connect}/{kind}", place, [kind] * BROKERS, settings, AS_ITS_SCRIPT)
            found[kind] = Contender(stack.enter_context(cluster))
        yield found


# -- under load --------------------------------------------------------------------------------------------------------


def bulk_round(client: Client, contender: Contender, load: tuple[int, str, int], total: int) -> dict[str, float]:
    """CPU of all brokers and seconds per GB of values, to the acknowledgement of the last."""
    value_bytes, compression, batch_bytes = load
    count = total // value_bytes // PARTITIONS * PARTITIONS
    gigabytes = count * value_bytes / 1e9
    topic = f"bulk-{os.urandom(6).hex()}"
    job = {
        "bootstrap": contender.bootstrap_servers,
        "topic": topic,
        "partitions": PARTITIONS,
        "replicas": BROKERS,
        "value_bytes": value_bytes,
        "batch_bytes": batch_bytes,
        "compression": compression,
        "count": count,
    }
    client.run("create", job)
    before = contender.cpu_s()
    seconds = client.run("produce", job)
    cpu = contender.cpu_s() - before
    client.run("delete", {"bootstrap": contender.bootstrap_servers, "topics": [topic]})
    return {"cpu_s_per_gb": cpu / gigabytes, "s_per_gb": seconds / gigabytes}


def bulk(found: Mapping[str, Contender], plan: Plan, total: int) -> dict[str, Any]:
    results = {}
    with Client() as client:
        for name, load in LOADS.items():
            print(f"  bulk: {name}", flush=True)
            works: dict[str, Work] = {
                kind: partial(bulk_round, client, contender, load, total) for kind, contender in found.items()
            }
            results[name] = take_turns(works, plan)
    return results


def send_round(contender: Contender, topic: str, count: int) -> dict[str, float]:
    """One record at a time, each acknowledged by all replicas before the next."""
    producer = Producer({"bootstrap.servers": contender.bootstrap_servers, "acks": "all", "linger.ms": 0})
    producer.produce(topic, bytes(100), partition=0)
    producer.flush(60)
    before, times = contender.cpu_s(), []
    for _ in range(count):
        started = time.perf_counter()
        producer.produce(topic, bytes(100), partition=0)
        assert producer.flush(60) == 0
        times.append(time.perf_counter() - started)
    quantiles = statistics.quantiles(times, n=100)
    return {
        "cpu_us_per_send": (contender.cpu_s() - before) / count * 1e6,
        "p50_ms": quantiles[49] * 1e3,
        "p99_ms": quantiles[98] * 1e3,
    }


def one_by_one(found: Mapping[str, Contender], plan: Plan, count: int) -> dict[str, Any]:
    print("  one by one", flush=True)
    for contender in found.values():
        create_topic(contender.cluster, "single")
        contender.wait_in_sync("single", 1)
    works: dict[str, Work] = {
        kind: partial(send_round, contender, "single", count) for kind, contender in found.items()
    }
    return take_turns(works, plan)


def catch_up_round(contender: Contender, total: int) -> dict[str, float]:
    """A broker that was away copies what it missed: how fast, and what the copying costs it and its leaders."""
    topic = f"behind-{os.urandom(6).hex()}"
    create_assigned(contender.cluster, topic, *[[1, 2, 3]] * PARTITIONS)
    contender.wait_in_sync(topic, PARTITIONS)
    contender.cluster.brokers[3].stop()
    with Client() as client:
        job = {
            "bootstrap": contender.bootstrap_servers,
            "topic": topic,
            "partitions": PARTITIONS,
            "value_bytes": 1024,
            "batch_bytes": 1_000_000,
            "compression": "none",
            "count": total // 1024 // PARTITIONS * PARTITIONS,
        }
        client.run("produce", job)
        contender.cluster.start_broker(3)
        started, before = time.perf_counter(), contender.cpu_s()
        contender.wait_in_sync(topic, PARTITIONS)
        seconds, cpu = time.perf_counter() - started, contender.cpu_s() - before
        client.run("delete", {"bootstrap": contender.bootstrap_servers, "topics": [topic]})
    return {"s_per_gb": seconds / (total / 1e9), "cpu_s_per_gb": cpu / (total / 1e9)}


def catch_up(found: Mapping[str, Contender], plan: Plan, total: int) -> dict[str, Any]:
    """Brokers start again for it, so nobody is as warm as in the rows before; which is how it happens."""
    print("  catching up", flush=True)
    works: dict[str, Work] = {kind: partial(catch_up_round, contender, total) for kind, contender in found.items()}
    return take_turns(works, replace(plan, warm_up_s=0.0))


# -- done once ---------------------------------------------------------------------------------------------------------


def many_partitions(contender: Contender, count: int) -> dict[str, float]:
    """A topic of many partitions is made and rests; then a broker that leads as many as that has leaves in order."""
    started = time.perf_counter()
    create_topic(contender.cluster, "wide", count)
    answered = time.perf_counter() - started
    contender.wait_in_sync("wide", count)
    created = time.perf_counter() - started
    time.sleep(5)
    before = contender.cpu_s()
    time.sleep(IDLE_S)
    idle = (contender.cpu_s() - before) / IDLE_S * 100
    memory = contender.resident_mb()
    more = count - count // BROKERS  # it leads a third of the others
    create_assigned(contender.cluster, "led", *([[2, 3, 1], [2, 1, 3]] * more)[:more])
    contender.wait_in_sync("led", more)
    started = time.perf_counter()
    contender.cluster.brokers[2].stop()
    stopped = time.perf_counter() - started
    contender.cluster.start_broker(2)
    contender.wait_in_sync("wide", count)
    contender.wait_in_sync("led", more)
    return {
        "create_answered_s": answered,
        "create_in_sync_s": created,
        "idle_percent_of_a_core": idle,
        "resident_mb": memory,
        "controlled_shutdown_s": stopped,
    }


class Writes:
    """One write after the other in a thread, each acknowledged by all replicas; notes when."""

    def __init__(self, contender: Contender, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": contender.bootstrap_servers,
                "acks": "all",
                "linger.ms": 0,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 50,
            }
        )
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: list[float] = []

    def _run(self) -> None:
        while not self._ending.is_set():
            self._producer.produce(self._topic, bytes(100), partition=0, on_delivery=self._delivered)
            assert self._producer.flush(60) == 0

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        assert error is None, error
        self.acknowledged.append(time.monotonic())

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_for_more()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def wait_for_more(self, count: int = 50) -> None:
        enough = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= enough, timeout_s=WAIT_S)

    def longest_gap_s(self) -> float:
        return max(later - earlier for earlier, later in pairwise(self.acknowledged))

    def first_after(self, moment: float) -> float:
        return next(each for each in self.acknowledged if each > moment)


def failover(contender: Contender) -> dict[str, float]:
    """Writes around the loss of their leader: the longest pause, and where it was killed also what is left of that
    behind the end of its session. The same for a new controller."""
    cluster = contender.cluster
    create_assigned(cluster, "failing", [3, 1, 2])
    contender.wait_in_sync("failing", 1)
    found = {}
    leader = cluster.state("failing", 0)["leader"]
    with Writes(contender, "failing") as writes:
        cluster.brokers[leader].stop()
        writes.wait_for_more()
    found["gap_leader_stopped_s"] = writes.longest_gap_s()
    cluster.start_broker(leader)
    contender.wait_in_sync("failing", 1)
    leader = cluster.state("failing", 0)["leader"]
    with Writes(contender, "failing") as writes, cluster.noting_end_of_session(leader) as ended:
        cluster.brokers[leader].kill()
        writes.wait_for_more()
    found["gap_leader_killed_s"] = writes.longest_gap_s()
    found["leader_killed_after_session_s"] = writes.first_after(ended.moment) - ended.moment
    cluster.start_broker(leader)
    contender.wait_in_sync("failing", 1)
    controller = cluster.controller_id
    assert controller is not None
    started = time.monotonic()
    with cluster.noting_end_of_session(controller) as ended:
        cluster.brokers[controller].kill()
        wait_until(lambda: cluster.controller_id not in (None, controller), timeout_s=WAIT_S)
        elected = time.monotonic()
    found["new_controller_s"] = elected - started
    found["new_controller_after_session_s"] = elected - ended.moment
    cluster.start_broker(controller)
    return found


# -- all of it ---------------------------------------------------------------------------------------------------------


def run(plan: Plan | None = None, scale: float = 1.0) -> dict[str, Any]:
    plan = plan or Plan()
    results: dict[str, Any] = {"profile_of_kafka": AS_ITS_SCRIPT.name, "session_ms": SESSION_MS}
    with contenders() as found:
        results["bulk"] = bulk(found, plan, int(BULK_BYTES * scale))
        results["one_by_one"] = one_by_one(found, plan, max(100, int(SENDS * scale)))
        results["catch_up"] = catch_up(found, plan, int(BEHIND_BYTES * scale))
        once: dict[str, Callable[[Contender], dict[str, float]]] = {
            "many_partitions": partial(many_partitions, count=max(30, int(MANY_PARTITIONS * scale))),
            "failover": failover,
        }
        for name, work in once.items():
            print(f"  {name}", flush=True)
            results[name] = {kind: work(contender) for kind, contender in found.items()}
    return results


if __name__ == "__main__":
    measure_alone(run, __doc__)

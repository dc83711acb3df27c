"""Ottla beside Apache Kafka: the same loads on both, in turns, on one machine, and the floor beside them.

Bulk loads go through librdkafka (confluent-kafka), tiny requests through a raw generator. What counts is the CPU of the
broker, all threads of its process: wall time on a small machine measures the client too. Kafka runs as its start script
runs it, with the settings that it is shipped with. Everybody is warm before anything counts, and they take turns; see
turns.py. The floor is a C program that receives, checksums, writes and answers, and sends files; see floor.c. It is
driven with the same frames, or, for bulk loads, with batches like those that librdkafka makes.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import floor
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records import batch
from ottla.records.batch import Compression
from ottla.testing.apache_kafka import AS_ITS_SCRIPT, KAFKA_4, ApacheKafka, KafkaBroker, missing_programs
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import metadata
from turns import Plan, Spread, Work, measure_alone, take_turns
from wire import Peer, RawConnection, frame_of

PARTITIONS = 6
BULK_BYTES = 100_000_000
READY_ROUNDS = 3
UNLINKED_S = 2.0
PRODUCE_VERSION = 9
CLIENT_TIMEOUT_S = 300
# What both are told: files of deleted topics go soon, between rows.
SETTINGS = {
    "num.partitions": str(PARTITIONS),
    "log.segment.delete.delay.ms": "1000",
    "auto.create.topics.enable": "false",  # a client that asks once more for a deleted topic must not bring it back
}
# As in the settings file that Kafka is shipped with; tests run it with fewer threads and less memory.
AS_SHIPPED = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "log.cleaner.dedupe.buffer.size": str(128 << 20),
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
}


# -- who is measured ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def ottla(settings: Mapping[str, str] = SETTINGS) -> Iterator[Peer]:
    with Broker({**SETTINGS, **settings}, in_process=False) as broker:
        yield Peer("ottla", broker.bootstrap_servers, broker.pid, 0.0)


@contextlib.contextmanager
def kafka(settings: Mapping[str, str] = SETTINGS) -> Iterator[Peer]:
    with tempfile.TemporaryDirectory(prefix="ottla-peer-") as directory, kafka_in(Path(directory), settings) as broker:
        yield Peer("kafka", broker.bootstrap, broker.pid, 0.0)


def kafka_in(directory: Path, settings: Mapping[str, str]) -> KafkaBroker:
    """Kafka as people run it."""
    distribution = ApacheKafka.resolve(KAFKA_4)
    return KafkaBroker(distribution, directory, {**AS_SHIPPED, **SETTINGS, **settings}, profile=AS_ITS_SCRIPT)


@contextlib.contextmanager
def everybody(settings: Mapping[str, str] = SETTINGS) -> Iterator[dict[str, Peer]]:
    """All that can be had here, by name: Ottla, Apache Kafka and the floor."""
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(ottla(settings))]
        if missing := missing_programs():
            print(f"  Apache Kafka is left out: {missing}")
        else:
            peers.append(stack.enter_context(kafka(settings)))
        if (reason := floor.missing()) is not None:
            print(f"  {reason}")
        else:
            peers.append(stack.enter_context(floor.floor()))
        yield {peer.name: peer for peer in peers}


# -- bulk, by librdkafka in a process of its own -----------------------------------------------------------------------


@dataclass(frozen=True)
class BulkLoad:
    """One row of the bulk table."""

    value_bytes: int
    compression: str
    batch_bytes: int

    @property
    def name(self) -> str:
        size = "1 KiB" if self.value_bytes == 1024 else f"{self.value_bytes} B"
        batch_size = "1 MB" if self.batch_bytes >= 1_000_000 else f"{self.batch_bytes // 1000} kB"
        return f"{size}, {self.compression}, {batch_size}"


BULK_LOADS = (
    BulkLoad(100, "none", 16_384),
    BulkLoad(100, "none", 1_000_000),
    BulkLoad(100, "lz4", 16_384),
    BulkLoad(100, "lz4", 1_000_000),
    BulkLoad(1024, "none", 16_384),
    BulkLoad(1024, "none", 1_000_000),
    BulkLoad(1024, "lz4", 16_384),
    BulkLoad(1024, "lz4", 1_000_000),
)

CLIENT = """
import json, os, sys, time
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

def create(job, servers):
    admin = AdminClient(servers)
    for future in admin.create_topics([NewTopic(job["topic"], job["partitions"], job.get("replicas", 1))]).values():
        future.result()
    while True:
        known = admin.list_topics(job["topic"]).topics[job["topic"]].partitions
        if len(known) == job["partitions"] and all(each.leader >= 0 for each in known.values()):
            return
        time.sleep(0.02)

def delete(job, servers):
    admin = AdminClient(servers)
    for future in admin.delete_topics(job["topics"]).values():
        future.result()

def produce(job, servers):
    producer = Producer({**servers, "acks": "all", "linger.ms": 5, "batch.size": job["batch_bytes"],
        "batch.num.messages": 1000000, "compression.type": job["compression"],
        "queue.buffering.max.messages": 2000000, "queue.buffering.max.kbytes": 1000000})
    # Half of each value repeats, so that a codec has something to do.
    half = job["value_bytes"] // 2
    values = [os.urandom(half) + bytes(job["value_bytes"] - half) for _ in range(64)]
    for number in range(job["count"]):
        while True:
            try:
                producer.produce(job["topic"], values[number & 63], partition=number % job["partitions"])
                break
            except BufferError:
                producer.poll(0.01)
    left = producer.flush(120)
    assert left == 0, left

consumers = {}  # they stay connected: what it costs to connect is not a matter of bytes

def consume(job, servers):
    consumer = consumers.get(job["bootstrap"])
    if consumer is None:
        consumer = consumers[job["bootstrap"]] = Consumer({**servers, "group.id": "bench",
            "enable.auto.commit": False, "fetch.queue.backoff.ms": 5, "queued.max.messages.kbytes": 200000,
            "queued.min.messages": 1000000, "fetch.message.max.bytes": 4194304, "fetch.wait.max.ms": 100,
            "check.crcs": False})
    consumer.assign([TopicPartition(job["topic"], index, 0) for index in range(job["partitions"])])
    started, count = time.perf_counter(), 0
    while count < job["count"]:
        # Never more than there are: it would wait for them, and the broker with it.
        count += len(consumer.consume(min(10000, job["count"] - count), 5.0))
        assert time.perf_counter() - started < 300
    consumer.unassign()

works = {"create": create, "delete": delete, "produce": produce, "consume": consume}
for line in sys.stdin:
    job = json.loads(line)
    started = time.perf_counter()
    works[job["work"]](job, {"bootstrap.servers": job["bootstrap"], **job.get("login", {})})
    print(json.dumps({"seconds": time.perf_counter() - started}), flush=True)
"""


class Client:
    """A process with librdkafka that does one job after the other, so that it is as warm as the brokers."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(CLIENT_TIMEOUT_S)
        self._process.stdout.close()

    def run(self, work: str, job: Mapping[str, Any]) -> float:
        """How many seconds it took, once it is done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**job, "work": work}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the client failed at {work}: its last words are above")
        return float(json.loads(answer)["seconds"])


def fill(bootstrap: str, topic: str, *, partitions: int, value_bytes: int, count: int) -> None:
    """Makes a topic and puts records into it."""
    job = {
        "bootstrap": bootstrap,
        "topic": topic,
        "partitions": partitions,
        "value_bytes": value_bytes,
        "batch_bytes": 1_000_000,
        "compression": "none",
        "count": count,
    }
    with Client() as client:
        client.run("create", job)
        client.run("produce", job)


def bulk_round(
    client: Client, peer: Peer, load: BulkLoad, total_bytes: int, login: Mapping[str, str] | None = None
) -> dict[str, float]:
    """CPU seconds of the broker per GB of values, produced and consumed; `login`: where and how, if it is asked for."""
    count = total_bytes // load.value_bytes // PARTITIONS * PARTITIONS
    gigabytes = count * load.value_bytes / 1e9
    job: dict[str, Any] = {
        "bootstrap": peer.bootstrap,
        "topic": f"bulk-{os.urandom(6).hex()}",
        "partitions": PARTITIONS,
        "value_bytes": load.value_bytes,
        "batch_bytes": load.batch_bytes,
        "compression": load.compression,
        "count": count,
    }
    client.run("create", job)
    if login is not None:
        job |= {"bootstrap": login["bootstrap.servers"], "login": dict(login)}
    costs = {}
    for work in ("produce", "consume"):
        before = peer.cpu_s()
        seconds = client.run(work, job)
        costs[f"{work}_cpu_s_per_gb"] = (peer.cpu_s() - before) / gigabytes
        costs[f"{work}_s_per_gb"] = seconds / gigabytes
    return costs


def delete_bulk_topics(client: Client, peer: Peer) -> None:
    """After a row, and with a pause: what it costs to unlink so many bytes is no part of the next one."""
    topics = [name for name in topic_names(peer.bootstrap) if name.startswith("bulk-")]
    client.run("delete", {"bootstrap": peer.bootstrap, "topics": topics})
    time.sleep(UNLINKED_S)


def topic_names(bootstrap: str) -> list[str]:
    with RawClient(bootstrap) as client:
        return [topic.name for topic in client.ask(metadata(all_topics=True), 9).topics]


def bulk_round_on_the_floor(peer: Peer, load: BulkLoad, total_bytes: int) -> dict[str, float]:
    """The same with requests of one batch each, as librdkafka sends them, and files read by sendfile."""
    half = load.value_bytes // 2
    count = max(1, load.batch_bytes // (load.value_bytes + 10))
    values = [os.urandom(half) + bytes(load.value_bytes - half) for _ in range(64)]
    codec = Compression[load.compression.upper()]
    records = bytes(batch.build(None, [values[i & 63] for i in range(count)], 1, compression=codec))
    frame = produce_frame("floor", records)
    frames = max(1, total_bytes // (count * load.value_bytes))
    gigabytes = frames * count * load.value_bytes / 1e9
    answer_bytes = 64
    connection = RawConnection(peer.bootstrap)
    floor.set_answer_size(connection, answer_bytes)
    floor.begin_anew(connection, answer_bytes)
    before = peer.cpu_s()
    for _ in range(frames):
        connection.send(frame)
        connection.receive(answer_bytes)
    produced = peer.cpu_s()
    floor.read_file(connection, answer_bytes, frames * (len(frame) - 4))
    consumed = peer.cpu_s()
    connection.close()
    return {
        "produce_cpu_s_per_gb": (produced - before) / gigabytes,
        "consume_cpu_s_per_gb": (consumed - produced) / gigabytes,
    }


# -- tiny requests -----------------------------------------------------------------------------------------------------


def produce_frame(topic: str, records: bytes) -> bytes:
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
    return frame_of(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data), PRODUCE_VERSION)


def one_by_one(connections: list[RawConnection], frame: bytes, answer_bytes: int, count: int) -> list[float]:
    latencies = []
    for _ in range(count):
        started = time.perf_counter()
        connections[0].send(frame)
        connections[0].receive(answer_bytes)
        latencies.append(time.perf_counter() - started)
    return latencies


def pipelined(connections: list[RawConnection], frame: bytes, answer_bytes: int, count: int) -> list[float]:
    depth = 100
    latencies = []
    for _ in range(count // depth):
        started = time.perf_counter()
        connections[0].send(frame * depth)
        connections[0].receive(answer_bytes * depth)
        latencies.append(time.perf_counter() - started)
    return latencies


def many_connections(connections: list[RawConnection], frame: bytes, answer_bytes: int, count: int) -> list[float]:
    latencies = []
    for _ in range(count // len(connections)):
        started = time.perf_counter()
        for connection in connections:
            connection.send(frame)
        for connection in connections:
            connection.receive(answer_bytes)
        latencies.append(time.perf_counter() - started)
    return latencies


Generator = Callable[[list[RawConnection], bytes, int, int], list[float]]
TINY_LOADS: dict[str, tuple[Generator, int, int]] = {
    "1 connection × 1 in flight": (one_by_one, 1, 10_000),
    "1 × 100": (pipelined, 1, 30_000),
    "100 × 1": (many_connections, 100, 20_000),
}
TINY_TOPIC = "tiny"


def tiny_round(
    peer: Peer, generate: Generator, connections: list[RawConnection], frame: bytes, answer_bytes: int, count: int
) -> dict[str, float]:
    """CPU per request, and latency as the generator sees it."""
    before = peer.cpu_s()
    latencies = generate(connections, frame, answer_bytes, count)
    cpu = peer.cpu_s() - before
    quantiles = statistics.quantiles(latencies, n=100)
    return {"cpu_us_per_request": cpu / count * 1e6, "p50_ms": quantiles[49] * 1e3, "p99_ms": quantiles[98] * 1e3}


def tiny(peers: Mapping[str, Peer], plan: Plan, scale: float) -> dict[str, Any]:
    """Produce requests of one record of 100 bytes."""
    frame = produce_frame(TINY_TOPIC, bytes(batch.build(None, [bytes(100)], int(time.time() * 1000))))
    for name, peer in peers.items():
        if name != "floor":
            fill(peer.bootstrap, TINY_TOPIC, partitions=1, value_bytes=100, count=1000)
    results = {}
    for load, (generate, connection_count, count) in TINY_LOADS.items():
        print(f"  tiny: {load}", flush=True)
        with contextlib.ExitStack() as stack:
            works: dict[str, Work] = {}
            answer_bytes = 0
            for name, peer in peers.items():
                connections = [RawConnection(peer.bootstrap) for _ in range(connection_count)]
                for connection in connections:
                    stack.callback(connection.close)
                if name == "floor":
                    floor.set_answer_size(connections[0], answer_bytes)  # as long as that of the broker before it
                else:
                    answer_bytes = len(connections[0].ask(frame))
                asked = max(200, int(count * scale))
                works[name] = partial(tiny_round, peer, generate, connections, frame, answer_bytes, asked)
            results[load] = take_turns(works, plan)
    return results


# -- starting ----------------------------------------------------------------------------------------------------------


def ready(plan: Plan) -> dict[str, Any]:
    """Seconds from the start of a process until it serves, on a directory of its own that it has started on before."""
    with tempfile.TemporaryDirectory(prefix="ottla-peer-") as directory, contextlib.ExitStack() as stack:
        ours = Broker(SETTINGS, directory=Path(directory, "ottla"), in_process=False)
        starting: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {"ottla": (ours.start, ours.stop)}
        if not missing_programs():
            theirs = kafka_in(Path(directory, "kafka"), SETTINGS)
            stack.callback(theirs.kill)
            starting["kafka"] = (theirs.start, theirs.stop)
        seen: dict[str, list[float]] = {name: [] for name in starting}
        for _ in range(1 + min(plan.rounds, READY_ROUNDS)):
            for name, (start, stop) in starting.items():
                started = time.perf_counter()
                start()
                seen[name].append(time.perf_counter() - started)
                stop()
    return {name: {"ready_s": vars(Spread.of(seconds[1:]))} for name, seconds in seen.items()}


# -- all of it ---------------------------------------------------------------------------------------------------------


def bulk(peers: Mapping[str, Peer], plan: Plan, loads: tuple[BulkLoad, ...], total_bytes: int) -> dict[str, Any]:
    results = {}
    with Client() as client:
        for load in loads:
            print(f"  bulk: {load.name}", flush=True)
            works: dict[str, Work] = {
                name: partial(bulk_round_on_the_floor, peer, load, total_bytes)
                if name == "floor"
                else partial(bulk_round, client, peer, load, total_bytes)
                for name, peer in peers.items()
            }
            results[load.name] = take_turns(works, plan)
            for name, peer in peers.items():
                if name != "floor":
                    delete_bulk_topics(client, peer)
    return results


def run(plan: Plan | None = None, scale: float = 1.0) -> dict[str, Any]:
    """`scale` below 1 is for rehearsals: smaller loads, and of the bulk rows a compressed and a plain one."""
    plan = plan or Plan()
    loads = BULK_LOADS if scale == 1.0 else BULK_LOADS[1:3]
    results: dict[str, Any] = {"profile_of_kafka": AS_ITS_SCRIPT.name, "flags_of_kafka": list(AS_ITS_SCRIPT.flags)}
    print("  ready", flush=True)
    results["ready"] = ready(plan)
    with everybody() as peers:
        results["tiny"] = tiny(peers, plan, scale)
        results["bulk"] = bulk(peers, plan, loads, int(BULK_BYTES * scale))
        results["resident_mb"] = {name: peer.resident_mb() for name, peer in peers.items()}
    return results


if __name__ == "__main__":
    measure_alone(run, __doc__)

"""Ottla beside Apache Kafka: the same loads on both, in one run, on one machine.

Bulk loads go through librdkafka (confluent-kafka), tiny requests through a raw generator. What counts is the CPU of the
broker, read from the system for its process with all threads: wall time on a small machine measures the client too.
Each load runs several times and the smallest CPU counts; the first run of the JVM warms it up.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla.protocol.codec import encode
from ottla.protocol.headers import encode_request_header
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records import batch
from ottla.testing.apache_kafka import KAFKA_4, ApacheKafka, KafkaBroker, missing_programs
from ottla.testing.broker import Broker

PARTITIONS = 6
ROUNDS = 3
KAFKA_HEAP = "1g"
BULK_BYTES = 300_000_000
TICKS = os.sysconf("SC_CLK_TCK")
PRODUCE_VERSION = 9


@dataclass(frozen=True)
class BulkLoad:
    """One row of the bulk table."""

    value_bytes: int
    compression: str
    batch_bytes: int

    @property
    def name(self) -> str:
        return f"{self.value_bytes} B, {self.compression}, batch {self.batch_bytes // 1000} kB"


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


@dataclass
class Peer:
    """A running broker under test."""

    name: str
    bootstrap: str
    pid: int
    ready_s: float

    def cpu_s(self) -> float:
        with open(f"/proc/{self.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_mb(self) -> float:
        with open(f"/proc/{self.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextlib.contextmanager
def ottla() -> Iterator[Peer]:
    settings = {"num.partitions": str(PARTITIONS)}
    started = time.perf_counter()
    with Broker(settings, in_process=False) as broker:
        yield Peer("ottla", broker.bootstrap_servers, broker.pid, time.perf_counter() - started)


@contextlib.contextmanager
def kafka() -> Iterator[Peer]:
    distribution = ApacheKafka.resolve(KAFKA_4)
    with tempfile.TemporaryDirectory(prefix="ottla-peer-") as directory:
        broker = KafkaBroker(distribution, Path(directory), {"num.partitions": str(PARTITIONS)}, heap=KAFKA_HEAP)
        started = time.perf_counter()
        with broker:
            yield Peer("kafka", broker.bootstrap, broker.pid, time.perf_counter() - started)


# -- bulk, by librdkafka in a process of its own -----------------------------------------------------------------------

CLIENT = """
import json, sys, time
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
job = json.loads(sys.argv[1])
servers = {"bootstrap.servers": job["bootstrap"]}
topic = job["topic"]
if job["work"] == "produce":
    admin = AdminClient(servers)
    for future in admin.create_topics([NewTopic(topic, job["partitions"], 1)]).values():
        future.result()
    time.sleep(0.5)
    producer = Producer({**servers, "acks": "all", "linger.ms": 5, "batch.size": job["batch_bytes"],
        "batch.num.messages": 1000000, "compression.type": job["compression"],
        "queue.buffering.max.messages": 2000000, "queue.buffering.max.kbytes": 1000000})
    # Half of each value repeats, so that a codec has something to do.
    import os
    half = job["value_bytes"] // 2
    values = [os.urandom(half) + bytes(job["value_bytes"] - half) for _ in range(64)]
    errors = []
    started = time.perf_counter()
    for number in range(job["count"]):
        while True:
            try:
                producer.produce(topic, values[number & 63], partition=number % job["partitions"])
                break
            except BufferError:
                producer.poll(0.01)
    left = producer.flush(120)
    assert left == 0, left
    print(json.dumps({"seconds": time.perf_counter() - started}))
else:
    consumer = Consumer({**servers, "group.id": "bench", "enable.auto.commit": False, "fetch.queue.backoff.ms": 5,
        "queued.max.messages.kbytes": 200000, "queued.min.messages": 1000000, "fetch.message.max.bytes": 4194304,
        "fetch.wait.max.ms": 100, "check.crcs": False})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(job["partitions"])])
    started, count = time.perf_counter(), 0
    while count < job["count"]:
        count += len(consumer.consume(10000, 5.0))
        assert time.perf_counter() - started < 300
    print(json.dumps({"seconds": time.perf_counter() - started}))
"""


def run_client(job: dict[str, Any]) -> float:
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, json.dumps(job)], capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        raise RuntimeError(f"the client failed: {done.stderr.strip()[-2000:]}")
    return float(json.loads(done.stdout)["seconds"])


def bulk(peer: Peer, load: BulkLoad, rounds: int) -> dict[str, float]:
    """CPU seconds of the broker per GB of values, produced and consumed."""
    count = BULK_BYTES // load.value_bytes // PARTITIONS * PARTITIONS
    gigabytes = count * load.value_bytes / 1e9
    produce: list[float] = []
    consume: list[float] = []
    for number in range(rounds):
        job = {
            "bootstrap": peer.bootstrap,
            "topic": f"bulk-{load.value_bytes}-{load.compression}-{load.batch_bytes}-{number}",
            "partitions": PARTITIONS,
            "value_bytes": load.value_bytes,
            "batch_bytes": load.batch_bytes,
            "compression": load.compression,
            "count": count,
        }
        for work, costs in (("produce", produce), ("consume", consume)):
            before = peer.cpu_s()
            run_client({**job, "work": work})
            costs.append((peer.cpu_s() - before) / gigabytes)
    return {"produce_cpu_s_per_gb": min(produce), "consume_cpu_s_per_gb": min(consume)}


# -- tiny requests -----------------------------------------------------------------------------------------------------


class RawConnection:
    """Sends ready-made frames and counts the bytes that come back."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self, size: int) -> bytes:
        pieces = []
        while size:
            piece = self._socket.recv(min(size, 1 << 20))
            assert piece, "the broker closed the connection"
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def ask(self, frame: bytes) -> bytes:
        self.send(frame)
        length = self.receive(4)
        return length + self.receive(struct.unpack(">i", length)[0])

    def close(self) -> None:
        self._socket.close()


def tiny_frame(topic: str) -> bytes:
    """A Produce request of one record of 100 bytes."""
    records = bytes(batch.build(None, [bytes(100)], int(time.time() * 1000)))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])],
    )
    header = RequestHeader(request_api_key=0, request_api_version=PRODUCE_VERSION, correlation_id=7, client_id="tiny")
    body = encode_request_header(header) + encode(request, PRODUCE_VERSION)
    return struct.pack(">i", len(body)) + body


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
    "1 connection × 1 in flight": (one_by_one, 1, 20_000),
    "1 × 100": (pipelined, 1, 60_000),
    "100 × 1": (many_connections, 100, 40_000),
}


def tiny(peer: Peer, rounds: int) -> dict[str, dict[str, float]]:
    """CPU per request, requests per second and core, and latency as the generator sees it."""
    topic = "tiny"
    run_client(
        {
            "bootstrap": peer.bootstrap,
            "topic": topic,
            "work": "produce",
            "partitions": 1,
            "value_bytes": 100,
            "batch_bytes": 16_384,
            "compression": "none",
            "count": 1000,
        }
    )
    frame = tiny_frame(topic)
    results = {}
    for name, (generate, connection_count, count) in TINY_LOADS.items():
        connections = [RawConnection(peer.bootstrap) for _ in range(connection_count)]
        answer_bytes = len(connections[0].ask(frame))
        best, latencies = float("inf"), []
        for _ in range(rounds + 1):  # one more, to warm up
            before = peer.cpu_s()
            seen = generate(connections, frame, answer_bytes, count)
            cost = (peer.cpu_s() - before) / count
            if cost < best:
                best, latencies = cost, seen
        for connection in connections:
            connection.close()
        quantiles = statistics.quantiles(latencies, n=100)
        results[name] = {
            "cpu_us_per_request": best * 1e6,
            "requests_per_s_and_core": 1 / best if best else 0.0,
            "p50_ms": quantiles[49] * 1e3,
            "p99_ms": quantiles[98] * 1e3,
        }
    return results


# -- all of it ---------------------------------------------------------------------------------------------------------


def measure(peer: Peer, rounds: int, loads: tuple[BulkLoad, ...]) -> dict[str, Any]:
    results: dict[str, Any] = {"ready_s": peer.ready_s}
    results["tiny"] = tiny(peer, rounds)
    results["bulk"] = {}
    for load in loads:
        print(f"  {peer.name}: {load.name}", flush=True)
        results["bulk"][load.name] = bulk(peer, load, rounds)
    results["resident_mb"] = peer.resident_mb()
    return results


def run(rounds: int = ROUNDS, loads: tuple[BulkLoad, ...] = BULK_LOADS) -> dict[str, Any]:
    results: dict[str, Any] = {}
    missing = missing_programs()
    if missing:
        print(f"  Apache Kafka is left out: {missing}")
    for start in (ottla,) if missing else (ottla, kafka):
        with start() as peer:
            results[peer.name] = measure(peer, rounds, loads)
    if "kafka" in results:
        results["kafka_over_ottla"] = ratios(results["kafka"], results["ottla"])
    return results


def ratios(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """How many times our cost Kafka's is, row by row; above 1 is in our favour."""
    compared: dict[str, Any] = {}
    for name, value in theirs.items():
        if isinstance(value, dict):
            compared[name] = ratios(value, ours[name])
        elif name.endswith(("_per_gb", "_per_request", "_s", "_mb", "_ms")) and ours[name]:
            compared[name] = value / ours[name]
    return compared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="two bulk rows only")
    arguments = parser.parse_args()
    results = run(arguments.rounds, BULK_LOADS[:2] if arguments.quick else BULK_LOADS)
    print(json.dumps(results, indent=2))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()

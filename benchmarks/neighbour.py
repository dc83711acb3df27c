"""How long a neighbour waits beside a stranger: every API at its largest request, and each job in the background.

    python benchmarks/neighbour.py [--quick] [--kafka] [--only TITLE]

A process of its own asks for ApiVersions every 2 ms, which costs a broker nothing; meanwhile a stranger sends the
requests of `ottla.testing.largest_requests`, or a job runs, or very many come who never log in. A row tells the longest
wait, the 99th percentile, how long the stranger waited, and by how much the broker's memory was above what it was
before. Wall time: on a quiet machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import security
from ottla.local_cluster.certificates import Authority
from ottla.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.wire import ZERO_UUID
from ottla.testing.apache_kafka import missing_programs
from ottla.testing.broker import Broker
from ottla.testing.largest_requests import GROUP, ROWS, WIDE, Row, Size, Stage
from ottla.testing.login_floods import begin_handshakes, begin_logins, leave_handshakes, try_passwords
from ottla.testing.neighbour import Neighbour
from ottla.testing.raw_client import ConnectionEnded, RawClient
from ottla.testing.raw_groups import fetch_offsets
from ottla.testing.raw_requests import create_topic, list_offsets, one_batch, produce, produce_to_many
from ottla.testing.secured_listeners import SecuredListeners
from peers import kafka_in

SIZE = Size(
    partitions=5000, names=100_000, groups=300, offsets_per_group=1000, zipped_batches=20, zipped_bytes=50_000_000
)
QUICK = Size(partitions=300, names=10_000, groups=20, offsets_per_group=300, zipped_batches=3, zipped_bytes=20_000_000)
SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "2000",
    "log.retention.check.interval.ms": "3000",
    "log.initial.task.delay.ms": "0",
    "offsets.retention.check.interval.ms": "5000",
    "log.cleaner.backoff.ms": "1000",
}
TIMEOUT_S = 600.0
EARLIEST = -2
ALONE_S = 0.2  # before and after the stranger
ROUNDS_S = 12.0  # long enough for each job that comes by itself
EXPIRING_PARTITIONS = 1000


@dataclass
class Peer:
    """A running broker; `restart` ends it in order and brings it back on the same data."""

    name: str
    bootstrap: Callable[[], str]
    pid: Callable[[], int]
    restart: Callable[[], None]

    def reset_peak(self) -> None:
        with open(f"/proc/{self.pid()}/clear_refs", "w") as file:
            file.write("5")

    def memory_mb(self, field: str) -> float:
        with open(f"/proc/{self.pid()}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(field)) / 1000


@contextlib.contextmanager
def ottla() -> Iterator[Peer]:
    with Broker(SETTINGS, in_process=False) as broker:
        yield Peer("ottla", lambda: broker.bootstrap_servers, lambda: broker.pid, lambda: void(broker.restart()))


@contextlib.contextmanager
def kafka() -> Iterator[Peer]:
    with (
        tempfile.TemporaryDirectory(prefix="ottla-neighbour-") as directory,
        kafka_in(Path(directory), SETTINGS) as broker,
    ):

        def restart() -> None:
            broker.stop()
            broker.start()

        yield Peer("kafka", lambda: broker.bootstrap, lambda: broker.pid, restart)


def void(_: object) -> None: ...


def beside(peer: Peer, stranger: Callable[[], object]) -> dict[str, Any]:
    """What the neighbour saw while the stranger was at it."""
    before_mb = peer.memory_mb("VmRSS")
    peer.reset_peak()
    with Neighbour(peer.bootstrap(), None) as neighbour:
        time.sleep(ALONE_S)
        started = time.perf_counter()
        outcome = stranger()
        took_s = time.perf_counter() - started
        time.sleep(ALONE_S)
    row: dict[str, Any] = {
        "longest_wait_ms": neighbour.times[-1] * 1000,
        "p99_wait_ms": neighbour.percentile(99) * 1000,
        "stranger_s": took_s,
        "peak_memory_mb": peer.memory_mb("VmHWM") - before_mb,
    }
    if isinstance(outcome, str):
        row["outcome"] = outcome
    return row


def answered(peer: Peer, row: Row, size: Size) -> dict[str, Any]:
    """Beside the largest request that is answered: what holds more than a broker takes ends its connection."""

    def send() -> str | None:
        with RawClient(peer.bootstrap(), timeout_s=TIMEOUT_S) as client:
            try:
                client.ask(request, row.version)
            except ConnectionEnded:
                return "refused"
        return None

    longest_wait_ms = 0.0  # beside those that were refused, too
    while True:
        request = row.make(size)
        seen = beside(peer, send)
        longest_wait_ms = seen["longest_wait_ms"] = max(longest_wait_ms, seen["longest_wait_ms"])
        if "outcome" not in seen:
            return seen
        size = replace(size, names=size.names // 2)


def requests(peer: Peer, size: Size, only: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for row in ROWS:
        if only in row.title:
            yield row.title, answered(peer, row, size)


# -- jobs --------------------------------------------------------------------------------------------------------------


def jobs(peer: Peer, size: Size) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each job with what starts it and waits for its end; the last ones leave little behind."""

    def client() -> RawClient:
        return RawClient(peer.bootstrap(), timeout_s=TIMEOUT_S)

    def wait_for_rounds() -> None:
        time.sleep(ROUNDS_S)

    def expire_records() -> None:
        with client() as asking:
            count = min(EXPIRING_PARTITIONS, size.partitions)
            asking.ask(create_topic("expiring", count, config={"retention.ms": "1"}, timeout_ms=300_000), 7)
            batches = ((index, one_batch(b"x")) for index in range(count))
            asking.ask(produce_to_many("expiring", batches), 9)
            last = list_offsets("expiring", EARLIEST, partition=count - 1)
            deadline = time.monotonic() + 120
            while not asking.ask(last, 7).topics[0].partitions[0].offset and time.monotonic() < deadline:
                time.sleep(0.1)

    def compact() -> None:
        settings = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
        with client() as asking:
            asking.ask(create_topic("compacted", config=settings), 7)
            for number in range(60):
                values = [bytes(10_000)] * 50
                keys = [str(key % 20).encode() for key in range(50)]
                times = 1_700_000_000_000 + number * 1000
                asking.ask(produce("compacted", one_batch(*values, keys=keys, timestamps=times)), 9)
        time.sleep(ROUNDS_S)

    def load() -> None:
        peer.restart()

    def wait_until_loaded() -> None:
        with client() as asking:
            deadline = time.monotonic() + 120
            while asking.ask(fetch_offsets(8, GROUP, {WIDE: [0]}), 8).groups[0].error_code:
                assert time.monotonic() < deadline, "the groups are not loaded"
                time.sleep(0.05)

    def delete() -> None:
        doomed = [DeleteTopicState(name=WIDE, topic_id=ZERO_UUID)]
        with client() as asking:
            asking.ask(DeleteTopicsRequest(topics=doomed, timeout_ms=300_000), 6)
        time.sleep(ROUNDS_S)

    yield "checkpoints, flushes, looks for old offsets", wait_for_rounds
    yield f"retention of {min(EXPIRING_PARTITIONS, size.partitions)} partitions", expire_records
    yield "compaction", compact
    load()
    yield "load of the coordinators", wait_until_loaded
    yield "deletion of a topic of very many partitions", delete


# -- those who never log in --------------------------------------------------------------------------------------------


FLOOD = 1000  # connections, or wrong passwords


def floods(listeners: SecuredListeners) -> dict[str, Callable[[], object]]:
    """The neighbour is on a listener where nobody logs in."""

    def held(flood: Callable[[str, int, contextlib.ExitStack], None], listener: str) -> Callable[[], object]:
        def hold() -> None:
            with contextlib.ExitStack() as stack:
                flood(listeners.address(listener), FLOOD, stack)
                time.sleep(ALONE_S)

        return hold

    return {
        f"{FLOOD} logins that never end": held(begin_logins, security.LOGIN),
        f"{FLOOD} slow handshakes": held(begin_handshakes, security.TLS),
        f"{FLOOD} handshakes that are left": held(leave_handshakes, security.TLS),
        f"{FLOOD} wrong passwords": lambda: void(try_passwords(listeners.address(security.LOGIN), FLOOD)),
    }


def measure_floods(peer: security.SecuredPeer, only: str) -> dict[str, Any]:
    def not_again() -> None:
        raise AssertionError("it is not restarted")

    flooded = Peer(peer.name, lambda: peer.bootstrap, lambda: peer.pid, not_again)
    rows = {title: flood for title, flood in floods(peer.listeners).items() if only in title}
    return {title: told(flooded, title, beside(flooded, flood)) for title, flood in rows.items()}


def flooded(*, with_kafka: bool, only: str) -> dict[str, Any]:
    results = {}
    with tempfile.TemporaryDirectory(prefix="ottla-neighbour-") as directory:
        authority = Authority(Path(directory, "certificates"))
        with security.ottla(authority) as ours:
            results[ours.name] = measure_floods(ours, only)
        if with_kafka:
            with security.kafka(authority, Path(directory, "kafka")) as theirs:
                results[theirs.name] = measure_floods(theirs, only)
    return results


def measure(peer: Peer, size: Size, only: str) -> dict[str, Any]:
    with RawClient(peer.bootstrap(), timeout_s=TIMEOUT_S) as client:
        size = Stage(client, size).make()
    results: dict[str, Any] = {"requests": {}, "jobs": {}}
    for title, row in requests(peer, size, only):
        results["requests"][title] = told(peer, title, row)
    for title, job in jobs(peer, size):
        if only in title:
            results["jobs"][title] = told(peer, title, beside(peer, job))
    rows = [row for kind in results.values() for row in kind.values()]
    results["longest_wait_ms"] = max((row["longest_wait_ms"] for row in rows), default=0.0)
    return results


def told(peer: Peer, title: str, row: dict[str, Any]) -> dict[str, Any]:
    print(
        f"  {peer.name:6} {title:50} longest {row['longest_wait_ms']:8.1f} ms  p99 {row['p99_wait_ms']:7.1f} ms  "
        f"stranger {row['stranger_s']:6.1f} s  memory {row['peak_memory_mb']:+7.0f} MB  {row.get('outcome', '')}",
        flush=True,
    )
    return row


def run(size: Size = SIZE, *, with_kafka: bool = True, only: str = "") -> dict[str, Any]:
    results: dict[str, Any] = {"cores": os.cpu_count()}
    missing = missing_programs() if with_kafka else ["not asked for"]
    for start in (ottla,) if missing else (ottla, kafka):
        with start() as peer:
            results[peer.name] = measure(peer, size, only)
    for name, rows in flooded(with_kafka=not missing, only=only).items():
        results[name]["floods"] = rows
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--kafka", action="store_true", help="the same rows on Apache Kafka")
    parser.add_argument("--only", default="", metavar="TITLE", help="the requests and jobs with this in their title")
    arguments = parser.parse_args()
    results = run(QUICK if arguments.quick else SIZE, with_kafka=arguments.kafka, only=arguments.only)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()

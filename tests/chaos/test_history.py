"""Clients send and poll, plain and in transactions, while the broker is killed, paused and restarted; the history of
what they were told is then checked for what cannot be. See `ottla.testing.history`."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.broker import Broker
from ottla.testing.history import History
from ottla.testing.history_check import check
from ottla.testing.history_workload import CALL_S, PARTITIONS, TOPIC, play
from ottla.testing.waiting import WAIT_S

pytestmark = pytest.mark.slow

RUN_S = float(os.environ.get("OTTLA_CHAOS_SECONDS") or 20)
# On a busy machine these take longer; without them the run would say nothing.
HARMS_MIN = 5
COMMITTED_MIN = 20
ABORTED_MIN = 3
ENOUGH_S = RUN_S + 300.0
SEED = int(os.environ.get("OTTLA_CHAOS_SEED") or 5)


def harm(broker: Broker, rng: random.Random) -> str:
    """Does one bad thing to the broker, and makes it good again."""
    what = rng.choice(("kill", "kill", "pause", "restart"))
    match what:
        case "kill":
            broker.kill()
            time.sleep(rng.random())
            broker.restart()
        case "pause":
            os.kill(broker.pid, signal.SIGSTOP)
            time.sleep(0.5 + 2 * rng.random())
            os.kill(broker.pid, signal.SIGCONT)
        case "restart":
            broker.restart()
    return what


def test_what_clients_were_told_is_so(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    history = History()
    harms: list[str] = []
    settings = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
    with Broker(settings, directory=tmp_path / "data", in_process=False) as broker:
        address = broker.bootstrap_servers
        admin = AdminClient(
            {"bootstrap.servers": address, "log_level": 0}
        )  # without a name it would go before its answer comes
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(WAIT_S)

        def is_enough() -> bool:
            counts = history.transactions()
            return len(harms) >= HARMS_MIN and counts["ok"] >= COMMITTED_MIN and counts["failed"] >= ABORTED_MIN

        def trouble() -> None:
            started = time.monotonic()
            while time.monotonic() < started + (RUN_S if is_enough() else ENOUGH_S):
                time.sleep(1 + 2 * rng.random())
                harms.append(harm(broker, rng))

        play(history, address, SEED, trouble)
    history.save(tmp_path / "history.jsonl")
    counts = history.transactions()
    print(f"{len(history.operations)} operations, transactions {counts}, harm: {', '.join(harms)}")
    assert counts["ok"] >= COMMITTED_MIN, counts
    assert counts["failed"] >= ABORTED_MIN, counts
    findings = check(history)
    assert findings == [], "\n".join(map(str, findings[:20]))


# -- a copy with the offsets of its group ------------------------------------------------------------------------------

COPIED = 3000
COPY_S = 300.0


class Copier(threading.Thread):
    """Copies a topic in transactions, with the offsets of its group; whatever fails, it starts anew from these."""

    def __init__(self, bootstrap_servers: str, stopping: threading.Event) -> None:
        super().__init__(name="copier")
        self.bootstrap = {"bootstrap.servers": bootstrap_servers, "log_level": 0, "reconnect.backoff.max.ms": 200}
        self.stopping = stopping
        self.lives = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.lives += 1
                self._live()
        except BaseException as error:
            self.failure = error

    def _live(self) -> None:
        consumer = Consumer(
            {
                **self.bootstrap,
                "group.id": "copier",
                "session.timeout.ms": 6000,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        producer = Producer(
            {
                **self.bootstrap,
                "transactional.id": "copier",
                "transaction.timeout.ms": 10_000,
                "message.timeout.ms": 10_000,
            }
        )
        try:
            producer.init_transactions(CALL_S)
            consumer.subscribe(["source"])
            while not self.stopping.is_set():
                messages = [message for message in consumer.consume(4, 0.2) if message.error() is None]
                if messages:
                    producer.begin_transaction()
                    for message in messages:
                        producer.produce("target", message.value(), partition=message.partition() or 0)
                    offsets = consumer.position(consumer.assignment())
                    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), CALL_S)
                    producer.commit_transaction(CALL_S)
        except KafkaException:
            pass  # what was not committed comes again in the next life
        finally:
            consumer.close()


def test_a_copy_with_its_offsets_has_every_record_once(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    stopping = threading.Event()
    settings = {
        "transaction.state.log.num.partitions": "3",
        "offsets.topic.num.partitions": "3",
        "group.min.session.timeout.ms": "1000",
    }
    with Broker(settings, directory=tmp_path / "data", in_process=False) as broker:
        address = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        for made in admin.create_topics([NewTopic("source", 2), NewTopic("target", 2)]).values():
            made.result(WAIT_S)
        plain = Producer({"bootstrap.servers": address, "log_level": 0})
        for number in range(COPIED):
            plain.produce("source", b"%d" % number, partition=number % 2)
        assert plain.flush(WAIT_S) == 0
        copier = Copier(address, stopping)
        copier.start()
        try:
            for _ in range(6):
                time.sleep(1 + rng.random())
                harm(broker, rng)
            found = read_target(address)
        finally:
            stopping.set()
            copier.join(COPY_S)
    assert copier.failure is None
    print(f"{copier.lives} lives")
    for partition, values in found.items():
        assert values == list(range(partition, COPIED, 2)), "each once, in order"


def read_target(address: str) -> dict[int, list[int]]:
    """What a reader of committed data finds, once all of it is there."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "log_level": 0,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition("target", partition, OFFSET_BEGINNING) for partition in range(2)])
    found: dict[int, list[int]] = {0: [], 1: []}
    deadline = time.monotonic() + COPY_S
    try:
        while sum(map(len, found.values())) < COPIED:
            assert time.monotonic() < deadline, {partition: len(values) for partition, values in found.items()}
            for message in consumer.consume(500, 0.5):
                if message.error() is None:
                    found[message.partition() or 0].append(int(message.value() or b""))
    finally:
        consumer.close()
    return found

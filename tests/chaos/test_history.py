"""Clients send and poll, plain and in transactions, while the broker is killed, paused and restarted; the history of
what they were told is then checked for what cannot be. See `ottla.testing.history`."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import ids
from ottla.testing.broker import Broker
from ottla.testing.history import History, Operation, Outcome
from ottla.testing.history_check import check

pytestmark = pytest.mark.slow

TOPIC = "t"
PARTITIONS = 4
RUN_S = 35.0
HARMS_MIN = 5  # on a busy machine that takes longer
DRAIN_S = 180.0
CALL_S = 15.0
SEED = int(os.environ.get("OTTLA_CHAOS_SEED") or 5)


def name_of(partition: int) -> ids.TopicPartition:
    return ids.TopicPartition(TOPIC, partition)


class Process(threading.Thread):
    """One process of the history: does one operation after the other until it is told to stop."""

    def __init__(self, number: int, history: History, bootstrap_servers: str, stopping: threading.Event) -> None:
        super().__init__(name=f"{type(self).__name__} {number}")
        self.number = number
        self.history = history
        self.bootstrap = {"bootstrap.servers": bootstrap_servers, "log_level": 0, "reconnect.backoff.max.ms": 200}
        self.stopping = stopping
        self.rng = random.Random(f"{SEED} {number}")
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.begin()
            while not self.stopping.is_set():
                self.step()
        except BaseException as error:
            self.failure = error

    def begin(self) -> None: ...

    def step(self) -> None:
        raise NotImplementedError


class Sender(Process):
    """Sends a few values at a time with an idempotent producer."""

    def begin(self) -> None:
        self.producer = Producer({**self.bootstrap, "enable.idempotence": True, "message.timeout.ms": 60_000})

    def step(self) -> None:
        with self.history.operation(self.number) as operation:
            failed = send_some(self.history, self.producer, operation, self.rng)
            self.producer.flush(90)
            if not failed and all(send.offset is not None for send in operation.sends):
                operation.succeed()
        time.sleep(0.01)


def send_some(history: History, producer: Producer, operation: Operation, rng: random.Random) -> list[KafkaError]:
    """Puts one to four values on their way; what fails is in the list by the time of the flush."""
    failed: list[KafkaError] = []

    def delivered(value: int) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error)
            else:
                operation.sent(value, message.offset())

        return note

    for _ in range(rng.randint(1, 4)):
        value, partition = history.new_value(), rng.randrange(PARTITIONS)
        operation.send(name_of(partition), value)
        producer.produce(TOPIC, b"%d" % value, partition=partition, on_delivery=delivered(value))
    return failed


class Reader(Process):
    """Reads all partitions from their beginning on, only what is committed."""

    def begin(self) -> None:
        self.consumer = committed_reader(self.bootstrap, self.number)
        self.is_new = True

    def step(self) -> None:
        with self.history.operation(self.number) as operation:
            operation.is_new_position, self.is_new = self.is_new, False
            poll_some(self.consumer, operation)
            operation.succeed()
        if not operation.reads:
            time.sleep(0.02)  # a client without a broker answers at once

    def close(self) -> None:
        self.consumer.close()


def committed_reader(bootstrap: dict[str, Any], number: int) -> Consumer:
    consumer = Consumer(
        {
            **bootstrap,
            "group.id": f"reader-{number}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": False,
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    return consumer


def poll_some(consumer: Consumer, operation: Operation, count: int = 50, timeout_s: float = 0.2) -> int:
    messages = consumer.consume(count, timeout_s)
    for message in messages:
        error = message.error()
        if error is not None:
            assert error.retriable() or error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN), error
        else:
            operation.read(name_of(message.partition()), message.offset(), int(message.value()))
    return len(messages)


class Transactor(Process):
    """Reads and sends in transactions; commits most of them and aborts some."""

    def begin(self) -> None:
        self.consumer = committed_reader(self.bootstrap, self.number)
        self.is_new = True
        self.producer: Producer | None = None

    def _new_producer(self) -> Producer:
        """One that may begin: whatever the last one left open is aborted or carried out."""
        producer = Producer(
            {
                **self.bootstrap,
                "transactional.id": f"transactor-{self.number}",
                "transaction.timeout.ms": 20_000,
                "message.timeout.ms": 20_000,
            }
        )
        while not self.stopping.is_set():
            try:
                producer.init_transactions(CALL_S)
                break
            except KafkaException as caught:
                if not caught.args[0].retriable():
                    raise
        return producer

    def step(self) -> None:
        if self.producer is None:
            self.producer = self._new_producer()
            return
        try:
            self.producer.begin_transaction()
        except KafkaException:
            self.producer = None
            return
        with self.history.operation(self.number, is_transaction=True) as operation:
            operation.is_new_position, self.is_new = self.is_new, False
            poll_some(self.consumer, operation, 10, 0.05)
            failed = send_some(self.history, self.producer, operation, self.rng)
            self._end(self.producer, operation, failed)

    def _end(self, producer: Producer, operation: Operation, failed: list[KafkaError]) -> None:
        if self.rng.random() < 0.8:
            try:
                self._insist(lambda: producer.commit_transaction(CALL_S))
                operation.succeed()
                return
            except KafkaException as caught:
                if not caught.args[0].txn_requires_abort():
                    self.producer = None  # it may have been committed, or not
                    return
        try:
            producer.flush(CALL_S)
            self._insist(lambda: producer.abort_transaction(CALL_S))
            operation.fail("aborted")
        except KafkaException:
            self.producer = None

    def _insist(self, call: Callable[[], None]) -> None:
        """Asks again as long as the client says that this helps."""
        deadline = time.monotonic() + 60
        while True:
            try:
                call()
                return
            except KafkaException as caught:
                if not caught.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def close(self) -> None:
        self.consumer.close()


class Watcher(Process):
    """Asks where the partitions end."""

    def begin(self) -> None:
        self.consumer = committed_reader(self.bootstrap, self.number)

    def step(self) -> None:
        partition = self.rng.randrange(PARTITIONS)
        time.sleep(0.05)
        with self.history.operation(self.number) as operation:
            try:
                _, end = self.consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=2)
            except KafkaException:
                return
            operation.saw("stable end", name_of(partition), end)
            operation.succeed()

    def close(self) -> None:
        self.consumer.close()


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


def drain(history: History, bootstrap_servers: str) -> None:
    """Somebody reads everything, up to the end of each partition."""
    consumer = committed_reader({"bootstrap.servers": bootstrap_servers}, 99)
    try:
        deadline = time.monotonic() + DRAIN_S
        left = set(range(PARTITIONS))
        while left:
            assert time.monotonic() < deadline, f"partitions {left} were never read to their ends"
            with history.operation(99) as operation:
                poll_some(consumer, operation, 500)
                operation.succeed()
            for partition in list(left):
                name = TopicPartition(TOPIC, partition)
                _, end = consumer.get_watermark_offsets(name, timeout=CALL_S)
                position = consumer.position([name])[0].offset
                if position >= end or (position < 0 and end == 0):
                    left.discard(partition)
    finally:
        consumer.close()


def test_what_clients_were_told_is_so(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    history = History()
    stopping = threading.Event()
    settings = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
    with Broker(settings, directory=tmp_path / "data", in_process=False) as broker:
        address = broker.bootstrap_servers
        admin = AdminClient(
            {"bootstrap.servers": address, "log_level": 0}
        )  # without a name it would go before its answer comes
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(CALL_S)
        kinds = (Sender, Sender, Transactor, Transactor, Transactor, Reader, Reader, Watcher)
        processes = [kind(number, history, address, stopping) for number, kind in enumerate(kinds)]
        for process in processes:
            process.start()
        harms: list[str] = []
        try:
            deadline = time.monotonic() + RUN_S
            while time.monotonic() < deadline or len(harms) < HARMS_MIN:
                time.sleep(1 + 2 * rng.random())
                harms.append(harm(broker, rng))
        finally:
            stopping.set()
            for process in processes:
                process.join(120)
        assert [process.failure for process in processes if process.failure is not None] == []
        drain(history, address)
        for process in processes:
            if isinstance(process, Reader | Transactor | Watcher):
                process.close()
    history.save(tmp_path / "history.jsonl")
    outcomes = [operation.outcome for operation in history.operations if operation.is_transaction]
    counts = {outcome.value: outcomes.count(outcome) for outcome in Outcome}
    print(f"{len(history.operations)} operations, transactions {counts}, harm: {', '.join(harms)}")
    assert counts["ok"] >= 20, counts
    assert counts["failed"] >= 3, counts
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
                        producer.produce("target", message.value(), partition=message.partition())
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
            made.result(CALL_S)
        plain = Producer({"bootstrap.servers": address, "log_level": 0})
        for number in range(COPIED):
            plain.produce("source", b"%d" % number, partition=number % 2)
        assert plain.flush(30) == 0
        copier = Copier(address, stopping)
        copier.start()
        try:
            for _ in range(6):
                time.sleep(1 + rng.random())
                harm(broker, rng)
            found = read_target(address)
        finally:
            stopping.set()
            copier.join(60)
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
                    found[message.partition()].append(int(message.value()))
    finally:
        consumer.close()
    return found

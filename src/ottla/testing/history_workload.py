"""Clients that note what they do and which responses they get: a workload for `history_check`.

They send and poll, plain and in transactions, each in a thread of its own, while somebody breaks the brokers. Most of
them are librdkafka's; Java's producer and our own send beside them where a test asks for it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

import ottla
from ottla import ids
from ottla.errors import OttlaError
from ottla.testing.clients import Driver, Sent, StepError
from ottla.testing.history import History, Operation

TOPIC: Final = "t"
PARTITIONS: Final = 4
DRAIN_S: Final = 300.0
CALL_S: Final = 15.0
JOIN_S: Final = 300.0  # more than a process insists on its last transaction
CLOSE_S: Final = 30.0
DRAINER: Final = 99  # the process that reads everything in the end
# Leaders may still change when brokers are back, and a busy machine is slow to answer.
ASKED_AGAIN: Final = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
)


def name_of(partition: int) -> ids.TopicPartition:
    return ids.TopicPartition(TOPIC, partition)


class Process(threading.Thread):
    """One process of the history: does one operation after the other until it is stopped."""

    def __init__(
        self, number: int, history: History, bootstrap_servers: str, stopping: threading.Event, seed: int
    ) -> None:
        super().__init__(name=f"{type(self).__name__} {number}")
        self.number = number
        self.history = history
        self.bootstrap: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
            "reconnect.backoff.max.ms": 200,
        }
        self.stopping = stopping
        self.rng = random.Random(f"{seed} {number}")
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

    def close(self) -> None: ...


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


def some_values(history: History, rng: random.Random) -> list[tuple[int, int]]:
    """One to four values, each with its partition."""
    return [(history.new_value(), rng.randrange(PARTITIONS)) for _ in range(rng.randint(1, 4))]


def send_some(history: History, producer: Producer, operation: Operation, rng: random.Random) -> list[KafkaError]:
    """Puts one to four values on their way; what fails is in the list by the time of the flush."""
    failed: list[KafkaError] = []

    def delivered(value: int) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error)
            else:
                offset = message.offset()
                assert offset is not None, "a record that was delivered has an offset"
                operation.sent(value, offset)

        return note

    for value, partition in some_values(history, rng):
        operation.send(name_of(partition), value)
        producer.produce(TOPIC, b"%d" % value, partition=partition, on_delivery=delivered(value))
    return failed


class OttlaSender(Process):
    """The same with our own producer. `login`: its settings where brokers ask who it is."""

    def __init__(self, *arguments: Any, login: Mapping[str, str] | None = None) -> None:
        super().__init__(*arguments)
        self._login = login or {}

    def begin(self) -> None:
        servers = self.bootstrap["bootstrap.servers"]
        settings = {**self._login, "bootstrap.servers": servers, "delivery.timeout.ms": 60_000}
        self.producer = ottla.Producer(settings)

    def step(self) -> None:
        with self.history.operation(self.number) as operation:
            futures = {}
            for value, partition in some_values(self.history, self.rng):
                operation.send(name_of(partition), value)
                futures[value] = self.producer.send(TOPIC, b"%d" % value, partition=partition)
            with suppress(OttlaError):  # it may be written, or not
                for value, future in futures.items():
                    operation.sent(value, future.result(JOIN_S).offset)
                operation.succeed()
        time.sleep(0.01)

    def close(self) -> None:
        self.producer.close()


class JavaSender(Process):
    """The same with Java's producer, in a process of its own. `command` starts its driver."""

    def __init__(self, *arguments: Any, command: Sequence[str]) -> None:
        super().__init__(*arguments)
        self._command = command

    def begin(self) -> None:
        self.driver = Driver(self._command, self.bootstrap["bootstrap.servers"])

    def step(self) -> None:
        with self.history.operation(self.number) as operation:
            values = some_values(self.history, self.rng)
            for value, partition in values:
                operation.send(name_of(partition), value)
            try:
                offsets = self.driver.send(TOPIC, [Sent(b"%d" % value, partition=place) for value, place in values])
            except StepError:
                return  # some of it may be written, or nothing
            for (value, _), offset in zip(values, offsets, strict=True):
                operation.sent(value, offset)
            operation.succeed()
        time.sleep(0.01)

    def close(self) -> None:
        self.driver.close()


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
        close(self.consumer)


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


def close(consumer: Consumer) -> None:
    """Gives up after a while: librdkafka's close may wait for ever, for nothing that it has asked of a broker.

    Seen once in some hundred consumers whose brokers were killed, paused and cut off: all it sent was the refresh of
    its metadata, and all of that was answered (issues 3740 and 4884 of librdkafka are alike).
    """
    closing = threading.Thread(target=consumer.close, name="close", daemon=True)
    closing.start()
    closing.join(CLOSE_S)


def poll_some(consumer: Consumer, operation: Operation, count: int = 50, timeout_s: float = 0.2) -> int:
    messages = consumer.consume(count, timeout_s)
    for message in messages:
        error = message.error()
        if error is not None:
            assert error.retriable() or error.code() in ASKED_AGAIN, error
        else:
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert None not in (partition, offset, value), "a record has all of them"
            operation.read(name_of(partition or 0), offset or 0, int(value or b""))
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
        close(self.consumer)


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
        close(self.consumer)


StartProcess = Callable[[int, History, str, threading.Event, int], Process]
EVERYBODY: Final[tuple[StartProcess, ...]] = (
    Sender,
    Sender,
    Transactor,
    Transactor,
    Transactor,
    Reader,
    Reader,
    Watcher,
)


def drain(history: History, bootstrap_servers: str, settings: Mapping[str, Any]) -> None:
    """Somebody reads everything, up to the end of each partition."""
    consumer = committed_reader({"bootstrap.servers": bootstrap_servers, **settings}, DRAINER)
    try:
        deadline = time.monotonic() + DRAIN_S
        left = set(range(PARTITIONS))
        while left:
            assert time.monotonic() < deadline, f"partitions {left} were never read to their ends"
            with history.operation(DRAINER) as operation:
                poll_some(consumer, operation, 500)
                operation.succeed()
            for partition in list(left):
                if _is_at_its_end(consumer, partition):
                    left.discard(partition)
    finally:
        close(consumer)


def _is_at_its_end(consumer: Consumer, partition: int) -> bool:
    name = TopicPartition(TOPIC, partition)
    try:
        _, end = consumer.get_watermark_offsets(name, timeout=CALL_S)
    except KafkaException as error:
        if error.args[0].code() not in ASKED_AGAIN:
            raise
        return False
    position = consumer.position([name])[0].offset
    return position >= end or (position < 0 and end == 0)


def play(
    history: History,
    bootstrap_servers: str,
    seed: int,
    trouble: Callable[[], None],
    kinds: Sequence[StartProcess] = EVERYBODY,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Lets processes work until `trouble` returns, and then has somebody read everything.

    `settings` are given to every client.
    """
    stopping = threading.Event()
    processes = [kind(number, history, bootstrap_servers, stopping, seed) for number, kind in enumerate(kinds)]
    for process in processes:
        process.bootstrap |= settings or {}
        process.start()
    try:
        trouble()
    finally:
        stopping.set()
        for process in processes:
            process.join(JOIN_S)
    assert not any(process.is_alive() for process in processes), "a process does not end"
    assert [process.failure for process in processes if process.failure is not None] == []
    drain(history, bootstrap_servers, settings or {})
    for process in processes:
        process.close()

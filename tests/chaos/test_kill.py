"""kill -9 under load, many times: every acknowledged record is there, in order, once."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from ottla.protocol.messages.transactions import InitProducerIdRequest
from ottla.records import batch
from ottla.records.layout import Compression
from ottla.testing.broker import Broker
from ottla.testing.raw_client import ConnectionEnded, RawClient
from ottla.testing.raw_requests import create_topic, fetch, list_offsets, one_batch, produce
from ottla.testing.waiting import WAIT_S, wait_until

pytestmark = pytest.mark.slow

KILLS = 8
ACKNOWLEDGED_MIN = 100  # by each writer
PARTITIONS = 3
CODECS = (Compression.NONE, Compression.LZ4, Compression.ZSTD)
GONE = (ConnectionEnded, ConnectionError, TimeoutError)


class IdempotentWriter:
    """Writes numbers to one partition; after a crash it sends the batch again that was not acknowledged."""

    def __init__(self, bootstrap_servers: str, partition: int, stopping: threading.Event) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._partition = partition
        self._stopping = stopping
        self.acknowledged: list[bytes] = []
        self.offsets: list[int] = []
        self.failure: BaseException | None = None
        self.resent_count = 0
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self._write()
        except BaseException as error:
            self.failure = error

    def _connected(self) -> RawClient | None:
        while not self._stopping.is_set():
            try:
                return RawClient(self._bootstrap_servers)
            except OSError:
                time.sleep(0.01)
        return None

    def _write(self) -> None:
        producer_id = -1
        sequence = 0
        pending: list[bytes] = []
        while (client := self._connected()) is not None:
            try:
                if producer_id < 0:
                    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
                    producer_id = client.ask(request, 4).producer_id
                while not self._stopping.is_set():
                    if not pending:
                        pending = [b"%d-%d" % (self._partition, sequence + number) for number in range(5)]
                    records = one_batch(
                        *pending,
                        compression=CODECS[self._partition % len(CODECS)],
                        producer_id=producer_id,
                        producer_epoch=0,
                        base_sequence=sequence,
                    )
                    answer = client.ask(produce("t", records, partition=self._partition), 9)
                    outcome = answer.responses[0].partition_responses[0]
                    assert outcome.error_code == 0, outcome
                    self.acknowledged += pending
                    self.offsets += range(outcome.base_offset, outcome.base_offset + len(pending))
                    sequence += len(pending)
                    pending = []
            except GONE:
                self.resent_count += bool(pending)
            finally:
                client.close()


def wait_for_progress(writers: list[IdempotentWriter]) -> None:
    """Until each of them has had something acknowledged: on a busy machine a broker is back long before its clients."""
    before = [len(writer.acknowledged) for writer in writers]

    def have_all_written() -> bool:
        ended = [writer.failure for writer in writers if writer.failure is not None]
        assert not ended, ended[0]
        return all(len(writer.acknowledged) > count for writer, count in zip(writers, before, strict=True))

    wait_until(have_all_written)


@contextmanager
def writers_to(broker: Broker) -> Iterator[list[IdempotentWriter]]:
    """One for each partition, at work until the end of the block. None of them may fail."""
    stopping = threading.Event()
    writers = [IdempotentWriter(broker.bootstrap_servers, index, stopping) for index in range(PARTITIONS)]
    for writer in writers:
        writer.thread.start()
    try:
        yield writers
    finally:
        stopping.set()
        for writer in writers:
            writer.thread.join()
    for writer in writers:
        assert writer.failure is None, writer.failure


def read_all(client: RawClient, partition: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    offset = client.ask(list_offsets("t", -2, partition=partition), 7).topics[0].partitions[0].offset
    while True:
        answer = client.ask(fetch("t", offset, partitions=(partition,), partition_max_bytes=1 << 20), 11)
        data = bytes(answer.responses[0].partitions[0].records)
        if not data:
            return found
        position = 0
        while position + 61 <= len(data):
            header = batch.read_header(data, position)
            if position + header.batch_length + 12 > len(data):
                break
            found += [(record.offset, bytes(record.value or b"")) for record in batch.iterate(data, position)]
            position += header.batch_length + 12
            offset = header.end_offset


def test_idempotent_writers_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    rng = random.Random(11)
    with Broker({"log.segment.bytes": "1048576"}, directory=tmp_path, in_process=False) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            client.ask(create_topic("t", PARTITIONS, config={"internal.segment.bytes": "65536"}), 7)
        with writers_to(broker) as writers:
            for _ in range(KILLS):
                wait_for_progress(writers)
                time.sleep(rng.uniform(0.2, 0.8))
                broker.kill()
                broker.restart()
            wait_until(lambda: all(len(writer.acknowledged) > ACKNOWLEDGED_MIN for writer in writers))
        with RawClient(broker.bootstrap_servers) as client:
            for index, writer in enumerate(writers):
                stored = read_all(client, index)
                assert [offset for offset, _ in stored] == list(range(len(stored))), "no gap, no overlap"
                values = [value for _, value in stored]
                count = len(writer.acknowledged)
                assert values[:count] == writer.acknowledged, f"partition {index}"
                assert writer.offsets == list(range(count)), "and at the offsets that were told"
                assert len(values) - count <= 5, "at most the batch that was on its way when it ended"
        assert sum(writer.resent_count for writer in writers) > 0, "the kills met nobody at work"
        print({"acknowledged": sum(len(writer.acknowledged) for writer in writers), "kills": KILLS})


def test_librdkafka_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    rng = random.Random(12)
    broker = Broker(directory=tmp_path, in_process=False).start()
    acknowledged: list[tuple[int, bytes]] = []
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)
        else:
            acknowledged.append((message.partition() or 0, message.value() or b""))

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "compression.type": "lz4",
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            "log_level": 0,
        }
    )
    sent = 0
    try:
        with RawClient(broker.bootstrap_servers) as client:
            client.ask(create_topic("t", PARTITIONS), 7)
        for _ in range(4):
            deadline = time.monotonic() + rng.uniform(0.3, 0.8)
            while time.monotonic() < deadline:
                for _ in range(50):
                    producer.produce("t", b"%d" % sent, partition=sent % PARTITIONS, on_delivery=delivered)
                    sent += 1
                producer.poll(0.005)
            broker.kill()
            broker.restart()
        assert producer.flush(WAIT_S) == 0
        assert not failures, failures[0]
        assert len(acknowledged) == sent
        settings = {"group.id": "none", "enable.auto.commit": False, "log_level": 0}  # nobody coordinates groups yet
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, **settings})
        consumer.assign([TopicPartition("t", partition, 0) for partition in range(PARTITIONS)])
        read: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        deadline = time.monotonic() + 120
        while sum(map(len, read.values())) < sent:
            assert time.monotonic() < deadline, "records are missing"
            messages: list[Any] = consumer.consume(1000, timeout=0.2)
            for message in messages:
                assert message.error() is None, message.error()
                read[message.partition()].append(int(message.value()))
        assert not consumer.consume(1, timeout=0.5), "a record is there twice"
        consumer.close()
        for partition, numbers in read.items():
            assert numbers == list(range(partition, sent, PARTITIONS))
        print({"acknowledged": sent, "kills": 4})
    finally:
        broker.stop()


def test_sigterm_under_load_loses_nothing(tmp_path: Path) -> None:
    with Broker(directory=tmp_path, in_process=False) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            client.ask(create_topic("t", PARTITIONS), 7)
        with writers_to(broker) as writers:
            for _ in range(3):
                wait_for_progress(writers)
                broker.stop()
                assert (tmp_path / ".kafka_cleanshutdown").exists()
                broker.restart()
        with RawClient(broker.bootstrap_servers) as client:
            for index, writer in enumerate(writers):
                values = [value for _, value in read_all(client, index)]
                assert values[: len(writer.acknowledged)] == writer.acknowledged


def test_killed_at_its_start_it_comes_up_the_next_time(tmp_path: Path) -> None:
    """A crash in the middle of recovery, again and again."""
    broker = Broker(directory=tmp_path, in_process=False).start()
    with RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("t", 20), 7)
        for partition in range(20):
            answer = client.ask(produce("t", one_batch(b"kept"), partition=partition), 9)
            assert not answer.responses[0].partition_responses[0].error_code
    broker.kill()
    rng = random.Random(5)
    for _ in range(6):
        command = [
            sys.executable,
            "-m",
            "ottla",
            "serve",
            "--listen",
            broker.bootstrap_servers,
            "--data",
            str(tmp_path),
        ]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(rng.uniform(0.05, 0.6))
            process.kill()
    broker.restart()
    try:
        with RawClient(broker.bootstrap_servers) as client:
            for partition in range(20):
                assert [value for _, value in read_all(client, partition)] == [b"kept"]
    finally:
        broker.stop()

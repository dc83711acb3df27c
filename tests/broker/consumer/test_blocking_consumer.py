"""The consumer without a loop."""

from __future__ import annotations

import contextlib
import itertools
import linecache
import sys
import threading
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any

import pytest

from ottla.client.consumer import blocking as blocking_module
from ottla.client.consumer.blocking import Consumer as BlockingConsumer
from ottla.client.consumer.errors import WakeupError
from ottla.client.errors import ClosedError, ConcurrentUseError, UsageError
from ottla.client.values import ConsumerRecord, OffsetAndMetadata
from ottla.ids import TopicPartition
from ottla.testing.broker import Broker
from ottla.testing.waiting import WAIT_S

from .scene import PROTOCOLS, Topic, settings_of


def blocking(broker: Broker, *topics: str, **settings: Any) -> BlockingConsumer[Any, Any]:
    return BlockingConsumer(*topics, **{**settings_of(broker), **settings})


def test_the_blocking_consumer_reads_commits_and_seeks(broker: Broker, topic_of: Topic, group: str) -> None:
    topic = topic_of(30)
    partition = TopicPartition(topic, 0)
    with blocking(broker, topic, group_id=group) as consumer:
        for record in consumer:
            if record.offset == 9:
                break
        consumer.commit()
        assert consumer.committed([partition])[partition] == OffsetAndMetadata(10, leader_epoch=0)
        assert consumer.position(partition) == 10
        assert len(consumer.poll(WAIT_S, max_records=5)[partition]) == 5
        consumer.seek(partition, 2)
        assert next(iter(consumer)).offset == 2
        assert consumer.lag(partition) == 27
        assert "ottla-consumer" in {thread.name for thread in threading.enumerate()}
        assert consumer.assignment() == {partition}
        assert consumer.end_offsets([partition]) == {partition: 30}
    with pytest.raises(ClosedError):
        consumer.poll(0)
    assert "ottla-consumer" not in {thread.name for thread in threading.enumerate()}


def test_listeners_of_the_blocking_consumer_run_in_the_callers_thread_and_may_use_it(
    broker: Broker, topic_of: Topic, group: str
) -> None:
    topic = topic_of(5)
    partition = TopicPartition(topic, 0)
    heard: list[tuple[str, threading.Thread]] = []
    with blocking(broker, group_id=group, enable_auto_commit=False) as consumer:

        def assigned(partitions: Collection[TopicPartition]) -> None:
            heard.append(("assigned", threading.current_thread()))
            for each in partitions:
                consumer.seek(each, 3)

        def revoked(partitions: Collection[TopicPartition]) -> None:
            heard.append(("revoked", threading.current_thread()))
            consumer.commit({partition: 5})

        consumer.subscribe([topic], on_assigned=assigned, on_revoked=revoked)
        assert [record.offset for record in consumer.poll(WAIT_S)[partition]] == [3, 4]
        consumer.commit_async({partition: 4}, lambda offsets, error: heard.append(("done", threading.current_thread())))
        consumer.commit({partition: 4})
        consumer.unsubscribe()
        assert consumer.committed([partition])[partition] == OffsetAndMetadata(5)
    me = threading.current_thread()
    assert heard == [("assigned", me), ("done", me), ("revoked", me)]


def test_another_thread_may_wake_the_blocking_consumer_and_nothing_else(
    broker: Broker, topic_of: Topic, group: str
) -> None:
    topic = topic_of(1)
    with blocking(broker, group_id=group) as consumer:

        def elsewhere() -> None:
            with pytest.raises(ConcurrentUseError, match="another thread"):
                consumer.poll(0)
            consumer.wakeup()

        def in_the_middle_of_a_poll(partitions: object) -> None:
            other = threading.Thread(target=elsewhere)
            other.start()
            other.join()

        consumer.subscribe([topic], on_assigned=in_the_middle_of_a_poll)
        with pytest.raises(WakeupError):
            consumer.poll(WAIT_S, max_records=0)
        assert len(consumer.take(WAIT_S)) == 1


def test_the_blocking_consumer_processes_in_threads(broker: Broker, topic_of: Topic, group: str) -> None:
    topic = topic_of(20)
    handled: list[int] = []
    with blocking(broker, topic, group_id=group) as consumer:

        def handle(record: ConsumerRecord[Any, Any]) -> None:
            handled.append(record.offset)
            if len(handled) == 20:
                consumer.wakeup()

        consumer.process(handle, concurrency=4)
        assert sorted(handled) == list(range(20))
        partition = TopicPartition(topic, 0)
        assert consumer.committed([partition])[partition] == OffsetAndMetadata(20, leader_epoch=0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_numbers_tell_what_was_read_and_how_the_group_does(
    broker: Broker, topic_of: Topic, group: str, protocol: str
) -> None:
    class Reporter:
        events: list[str] = []  # noqa: RUF012

        def init(self, metrics: Any) -> None:
            self.events.append("init")

        def close(self) -> None:
            self.events.append("close")

    topic = topic_of(20, 10)
    with BlockingConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        metric_reporters=[Reporter()],
    ) as consumer:
        seen = 0
        while seen < 30:
            seen += sum(map(len, consumer.poll().values()))
        consumer.commit()
        found = {each.name: value for each, value in consumer.metrics().items() if len(each.tags) == 1}
        assert found["records-consumed-total"] == 30
        assert (found["records-lag-max"], found["records-lead-min"]) == (0, 10)
        assert found["assigned-partitions"] == 2
        assert found["rebalance-total"] >= 1
        assert found["commit-total"] >= 1
        assert found["fetch-latency-avg"] > 0
        assert found["last-poll-seconds-ago"] >= 0
        assert Reporter.events == ["init"]
    assert Reporter.events == ["init", "close"]


class InterruptAt:
    """An interrupt at the n-th line that this thread begins in the client, as Ctrl-C at that moment would raise it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.has_come = False

    def __enter__(self) -> InterruptAt:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != blocking_module.__file__:
            return None
        # CPython looks for interrupts when something is called or repeated, and handing out a name is neither.
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and line not in ("return found", "yield found"):
            self.number -= 1
            if not self.number:
                self.has_come = True
                raise KeyboardInterrupt
        return self._trace


def _polled(consumer: BlockingConsumer[Any, Any]) -> list[int]:
    return [record.offset for records in consumer.poll(WAIT_S, max_records=3).values() for record in records]


def _taken(consumer: BlockingConsumer[Any, Any]) -> list[int]:
    return [record.offset for record in consumer.take(WAIT_S, max_records=3)]


def _columns(consumer: BlockingConsumer[Any, Any]) -> list[int]:
    found: list[int] = consumer.poll_arrow(WAIT_S, max_records=3).column("offset").to_pylist()
    return found


def _iterated(consumer: BlockingConsumer[Any, Any]) -> list[int]:
    return [next(iter(consumer)).offset]


def _in_batches(consumer: BlockingConsumer[Any, Any]) -> list[int]:
    return [record.offset for record in next(iter(consumer.batches(max_records=3))).records]


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # an interrupt came before it could be
@pytest.mark.parametrize("reads", [_polled, _taken, _columns, _iterated, _in_batches])
def test_an_interrupt_at_any_moment_of_a_read_loses_nothing(
    broker: Broker, topic_of: Topic, group: str, reads: Callable[[BlockingConsumer[Any, Any]], list[int]]
) -> None:
    topic = topic_of(10)
    partition = TopicPartition(topic, 0)
    with blocking(broker, group_id=group, fetch_max_wait_ms=1) as consumer:
        consumer.assign([partition])
        for number in itertools.count(1):
            consumer.seek(partition, 0)
            with contextlib.suppress(KeyboardInterrupt), InterruptAt(number) as interrupt:
                reads(consumer)
            if not interrupt.has_come:
                break
            assert consumer.position(partition) == 0, number
            consumer.commit()
            committed = consumer.committed([partition])[partition]
            assert committed is None or committed.offset == 0, number
            assert reads(consumer)[0] == 0, number
        assert number > 10
        assert consumer.position(partition) > 0


def test_batches_that_are_not_taken_any_more_are_not_read(broker: Broker, topic_of: Topic, group: str) -> None:
    topic = topic_of(5, 5, 5)
    seen: set[tuple[int, int]] = set()
    with blocking(broker, group_id=group) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(3)])
        while len(seen) < 15:
            for batch in consumer.batches(max_wait_s=WAIT_S):
                seen.update((record.partition, record.offset) for record in batch)
                break
            consumer.commit()
            committed = consumer.committed(list(consumer.assignment()))
            assert sum(each.offset for each in committed.values() if each is not None) == len(seen)


@pytest.mark.parametrize("read", ["poll", "take", "poll_arrow"])
def test_limits_of_a_poll_that_are_none_are_refused(broker: Broker, read: str) -> None:
    with blocking(broker) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        for arguments, name in (((0, -4), "max_records=-4"), ((0, 2.5), "max_records=2.5"), (("1",), "timeout_s='1'")):
            with pytest.raises(UsageError, match=name):
                getattr(consumer, read)(*arguments)

"""Transactions of ten records in four partitions: how many a second, and what one costs the broker.

Several producers of version 2 take turns over raw connections, so that the generator is light and the broker is busy.
Each transaction is four Produce requests in flight at once and an EndTxn. What counts is the CPU of the broker for each
transaction; wall time on a small machine measures the generator too. Everybody is warm and takes turns, see turns.py;
the floor gets frames of the same size and writes as often as a broker must, ten times for a transaction.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import floor
import peers
from ottla.errors import ErrorCode
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, list_offsets, one_batch, produce
from ottla.testing.raw_transactions import RawProducer, end_request
from turns import Plan, Work, take_turns
from wire import Peer, RawConnection, frame_of

PARTITIONS = 4
RECORDS = (3, 3, 2, 2)  # for each partition
VALUE = bytes(100)
PRODUCERS = 8
COUNT = 800
TOPIC = "transactions"
ANSWER_BYTES = 64  # of the floor, about as long as a broker's
PRODUCE_VERSION = 12
END_VERSION = 5


class Generator:
    """One producer, whose requests are sent and answered apart."""

    def __init__(self, bootstrap: str, number: int, topic: str) -> None:
        self.producer = RawProducer(RawClient(bootstrap), f"bench-{number}")
        self.producer.init()
        self._topic = topic

    def send(self) -> None:
        """Puts a transaction's records on their way. Each transaction has its own epoch, which starts at sequence 0."""
        producer = self.producer
        for partition, count in enumerate(RECORDS):
            records = one_batch(
                *[VALUE] * count,
                timestamps=int(time.time() * 1000),
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=0,
                is_transactional=True,
            )
            request = produce(self._topic, records, partition=partition, transactional_id=producer.transactional_id)
            producer.client.send(request, PRODUCE_VERSION)

    def is_sent(self) -> bool:
        """Takes the answers; False where the end of the transaction before was still under way."""
        codes = set()
        for _ in RECORDS:
            answer, _ = self.producer.client.receive()
            codes.add(answer.responses[0].partition_responses[0].error_code)
        if ErrorCode.CONCURRENT_TRANSACTIONS in codes:
            return False
        assert codes == {ErrorCode.NONE}, codes
        return True

    def commit(self) -> None:
        producer = self.producer
        request = end_request(producer.transactional_id, producer.producer_id, producer.epoch, commit=True)
        producer.client.send(request, END_VERSION)

    def take_committed(self) -> None:
        answer, _ = self.producer.client.receive()
        assert not answer.error_code, answer
        self.producer.producer_id, self.producer.epoch = answer.producer_id, answer.producer_epoch


def commit_all(generators: list[Generator], count: int) -> None:
    """Commits `count` transactions, each producer in its turn."""
    for _ in range(count // len(generators)):
        waiting = generators
        while waiting:
            for generator in waiting:
                generator.send()
            waiting = [generator for generator in waiting if not generator.is_sent()]
        for generator in generators:
            generator.commit()
        for generator in generators:
            generator.take_committed()


def prepare(peer: Peer) -> list[Generator]:
    """The topic and the producers on a running broker."""
    with RawClient(peer.bootstrap) as client:
        client.ask(create_topic(TOPIC, PARTITIONS), 7)
        for partition in range(PARTITIONS):
            while client.ask(list_offsets(TOPIC, -1, partition=partition), 7).topics[0].partitions[0].error_code:
                time.sleep(0.05)
    return [Generator(peer.bootstrap, number, TOPIC) for number in range(PRODUCERS)]


def costs_of(peer: Peer, count: int, work: Callable[[], None]) -> dict[str, float]:
    started, before = time.perf_counter(), peer.cpu_s()
    work()
    return {
        "cpu_us_per_transaction": (peer.cpu_s() - before) / count * 1e6,
        "us_per_transaction": (time.perf_counter() - started) / count * 1e6,
    }


class FloorGenerators:
    """The same frames for the floor, which answers without looking at them."""

    def __init__(self, peer: Peer) -> None:
        self._connections = [RawConnection(peer.bootstrap) for _ in range(PRODUCERS)]
        floor.set_answer_size(self._connections[0], ANSWER_BYTES)
        batches = [one_batch(*[VALUE] * count, producer_id=1, producer_epoch=0, base_sequence=0) for count in RECORDS]
        requests = [produce(TOPIC, records, partition=number) for number, records in enumerate(batches)]
        self._records = b"".join(frame_of(request, PRODUCE_VERSION) for request in requests)
        self._end = frame_of(end_request("bench-0", 1, 0, commit=True), END_VERSION)

    def commit_all(self, count: int) -> None:
        for _ in range(count // PRODUCERS):
            for frames, answers in ((self._records, len(RECORDS)), (self._end, 1)):
                for connection in self._connections:
                    connection.send(frames)
                for connection in self._connections:
                    connection.receive(ANSWER_BYTES * answers)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


def run(plan: Plan | None = None, scale: float = 1.0) -> dict[str, Any]:
    count = max(PRODUCERS, int(COUNT * scale))
    with peers.everybody() as everybody, contextlib.ExitStack() as stack:
        works: dict[str, Work] = {}
        for name, peer in everybody.items():
            if name == "floor":
                on_the_floor = FloorGenerators(peer)
                stack.callback(on_the_floor.close)
                works[name] = partial(costs_of, peer, count, partial(on_the_floor.commit_all, count))
            else:
                generators = prepare(peer)
                for generator in generators:
                    stack.callback(generator.producer.client.close)
                works[name] = partial(costs_of, peer, count, partial(commit_all, generators, count))
        return {"of_10_records_in_4_partitions": take_turns(works, plan or Plan())}


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))

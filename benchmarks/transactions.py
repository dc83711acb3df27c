"""Transactions of ten records in four partitions: how many a second, and what one costs the broker.

Several producers of version 2 take turns over raw connections, so that the generator is light and the broker is busy.
Each transaction is four Produce requests in flight at once and an EndTxn. What counts is the CPU of the broker for each
transaction; wall time on a small machine measures the generator too. `measure(peer)` is what other benchmarks call.
"""

from __future__ import annotations

import time
from typing import Any

import peers
from ottla.errors import ErrorCode
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, list_offsets, one_batch, produce
from ottla.testing.raw_transactions import RawProducer, end_request
from peers import Peer

PARTITIONS = 4
RECORDS = (3, 3, 2, 2)  # for each partition
VALUE = bytes(100)
PRODUCERS = 8
WARM_UP = 400
COUNT = 1600
ROUNDS = 3
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


def measure(peer: Peer, count: int = COUNT) -> dict[str, float]:
    """Transactions per second and per CPU-second of a running broker."""
    topic = "transactions"
    with RawClient(peer.bootstrap) as client:
        client.ask(create_topic(topic, PARTITIONS), 7)
        for partition in range(PARTITIONS):
            while client.ask(list_offsets(topic, -1, partition=partition), 7).topics[0].partitions[0].error_code:
                time.sleep(0.05)
    generators = [Generator(peer.bootstrap, number, topic) for number in range(PRODUCERS)]
    try:
        commit_all(generators, WARM_UP)
        seconds = cpu_s = float("inf")
        for _ in range(ROUNDS):
            started, cpu_before = time.perf_counter(), peer.cpu_s()
            commit_all(generators, count)
            seconds = min(seconds, time.perf_counter() - started)
            cpu_s = min(cpu_s, peer.cpu_s() - cpu_before)
    finally:
        for generator in generators:
            generator.producer.client.close()
    return {
        "transactions_per_s": round(count / seconds),
        "transactions_per_cpu_s": round(count / cpu_s),
        "broker_cpu_us_per_transaction": round(cpu_s / count * 1e6),
    }


def run() -> dict[str, Any]:
    results: dict[str, Any] = {}
    for start in (peers.ottla, peers.kafka) if not peers.missing_programs() else (peers.ottla,):
        with start() as peer:
            results[peer.name] = measure(peer)
    return results


if __name__ == "__main__":
    print(run())

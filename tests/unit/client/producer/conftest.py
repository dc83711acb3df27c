"""Brokers that keep logs as Kafka's do, with answers that a test plans: real bytes, virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.records import batch

TOPIC = "orders"
LOSE = "lose"  # appended, but the connection ends before the answer
DROP = "drop"  # the connection ends, and nothing was appended
SILENT = "silent"  # no answer, nothing appended

Plan = ErrorCode | str | None


@dataclass
class Log:
    """A partition with the broker's memory of one producer: the next number that it takes."""

    values: list[bytes] = field(default_factory=list)
    batches: list[tuple[int, int, int]] = field(default_factory=list)  # id, epoch, base sequence
    expected: dict[tuple[int, int], int] = field(default_factory=dict)
    taken: dict[tuple[int, int, int], int] = field(default_factory=dict)  # and at which offset


class FakeCluster:
    """Logs behind the scripted brokers of `network`, whoever leads them."""

    def __init__(self, network) -> None:
        self.network = network
        self.logs: dict[TopicPartition, Log] = {}
        self.plan: list[Plan] = []  # of the next Produce requests
        self.batch_bytes_max = 1 << 30
        self.requests: list[ProduceRequest] = []
        self.identities = 0
        self.on_produce: Callable[[], None] = lambda: None

    def add(self, node_id: int):
        broker = self.network.add(node_id)
        broker.scripts[ProduceRequest] = lambda request, version: self.produce(node_id, request)
        broker.scripts[InitProducerIdRequest] = self.identify
        return broker

    def identify(self, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
        self.identities += 1
        return InitProducerIdResponse(producer_id=1000 + self.identities, producer_epoch=0)

    def log(self, partition: int = 0) -> Log:
        return self.logs.setdefault(TopicPartition(TOPIC, partition), Log())

    def values(self, partition: int = 0) -> list[bytes]:
        return self.log(partition).values

    def produce(self, node_id: int, request: ProduceRequest) -> ProduceResponse | None:
        self.requests.append(request)
        self.on_produce()
        plan = self.plan.pop(0) if self.plan else None
        broker = self.network.brokers[node_id]
        if plan == SILENT:
            return None
        if plan == DROP:
            broker.pipes[-1].close()
            return None
        topics = []
        for topic in request.topic_data:
            answers = [
                self._append(node_id, TopicPartition(TOPIC, each.index), bytes(each.records or b""), plan)
                for each in topic.partition_data
            ]
            topics.append(TopicProduceResponse(name=TOPIC, topic_id=topic.topic_id, partition_responses=answers))
        if plan == LOSE:
            broker.pipes[-1].close()
            return None
        return ProduceResponse(responses=topics)

    def _append(self, node_id: int, place: TopicPartition, data: bytes, plan: Plan) -> PartitionProduceResponse:
        log = self.log(place.partition)
        code, offset = self._outcome(node_id, place, log, data, plan)
        return PartitionProduceResponse(index=place.partition, error_code=code, base_offset=offset)

    def _outcome(self, node_id, place, log, data, plan) -> tuple[int, int]:
        if isinstance(plan, ErrorCode):
            return plan, -1
        if self.network.leaders[place.partition] != node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        if len(data) > self.batch_bytes_max:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        header = batch.read_header(data)
        key = header.producer_id, header.producer_epoch, header.base_sequence
        if header.producer_id >= 0:
            if key in log.taken:
                return ErrorCode.NONE, log.taken[key]
            expected = log.expected.get(key[:2])
            if expected is not None and expected != header.base_sequence:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            if expected is None and log.expected and header.base_sequence:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            log.expected[key[:2]] = header.base_sequence + header.record_count
        offset = log.taken[key] = len(log.values)
        log.batches.append(key)
        log.values += [bytes(value or b"") for value in batch.decode(data).values]
        return ErrorCode.NONE, offset


@pytest.fixture
def cluster(network) -> FakeCluster:
    made = FakeCluster(network)
    made.add(1)
    return made

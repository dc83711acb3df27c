"""Transactions as Apache Kafka 4.3 has them: the same requests to both brokers, answer by answer, record by record.

Each conversation is played to both and written down in short: codes, epochs, states, and producer ids by the order in
which they came. Kafka carries out an end after it has answered, we before: where that shows, both are waited for.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.metadata import DescribeProducersRequest, DescribeProducersRequestTopicRequest
from ottla.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
)
from ottla.testing.apache_kafka import KAFKA_4, ApacheKafka, KafkaBroker, missing_programs
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, fetch, list_offsets, one_batch, produce
from ottla.testing.raw_transactions import (
    WAITED_FOR,
    RawProducer,
    add_request,
    end_request,
    find_coordinator,
    init_request,
    list_request,
    marker_request,
    offsets_request,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_programs()), reason=f"needs {', '.join(missing_programs())}"),
]

SETTINGS = {
    "auto.create.topics.enable": "false",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
FORMATTER = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
WAIT_S = 20.0


def name_of(code: int) -> str:
    return ErrorCode(code).name


class Side:
    """One of the two brokers, and what it said."""

    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        self.client = RawClient(bootstrap_servers)
        self._prefix = prefix
        self.transcript: list[Any] = []
        self._ids: dict[int, str] = {}

    def name(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def note(self, *what: Any) -> None:
        self.transcript.append(what)

    def id(self, producer_id: int) -> str | int:
        """A producer id by its order: both brokers give out their own."""
        return producer_id if producer_id <= 0 else self._ids.setdefault(producer_id, f"id {len(self._ids)}")

    def topic(self, name: str, partitions: int = 2) -> str:
        full = self.name(name)
        assert not self.client.ask(create_topic(full, partitions), 7).topics[0].error_code
        for index in range(partitions):
            request = list_offsets(full, -1, partition=index)
            wait_until(lambda request=request: not self.client.ask(request, 7).topics[0].partitions[0].error_code)
        return full

    # -- requests, each written down -----------------------------------------------------------------------------------

    def producer(self, name: str, **how: Any) -> RawProducer:
        """A producer that was let in. Ids below 1 would not be told from none."""
        find_coordinator(self.client, self.name(name))
        wait_until(lambda: self.client.ask(init_request(None), 4).producer_id > 0)
        producer = RawProducer(self.client, self.name(name), **how)
        self.note("let in", self.id(producer.init().producer_id), producer.epoch)
        return producer

    def init(self, name: str, version: int = 5, *, timeout_ms: int = 60_000, waits: bool = True, **fields: Any) -> Any:
        request = init_request(name and self.name(name), timeout_ms, **fields)
        answer = self.client.ask(request, version)
        while waits and answer.error_code in WAITED_FOR:
            time.sleep(0.02)
            answer = self.client.ask(request, version)
        self.note("init", version, name_of(answer.error_code), self.id(answer.producer_id), answer.producer_epoch)
        return answer

    def add(self, producer: RawProducer, topic: str, *partitions: int, version: int = 3, **other: Any) -> None:
        fields = {
            "id": producer.transactional_id,
            "producer_id": producer.producer_id,
            "epoch": producer.epoch,
            **other,
        }
        request = add_request(fields["id"], fields["producer_id"], fields["epoch"], topic, *partitions)
        results = self.client.ask(request, version).results_by_topic_v3_and_below
        codes = {
            one.partition_index: name_of(one.partition_error_code)
            for result in results
            for one in result.results_by_partition
        }
        self.note("add", version, sorted(codes.items()))

    def add_many(self, version: int, *transactions: AddPartitionsToTxnTransaction) -> None:
        answer = self.client.ask(AddPartitionsToTxnRequest(transactions=list(transactions)), version)
        self.note(
            "add many",
            name_of(answer.error_code),
            sorted(
                (result.transactional_id, one.partition_index, name_of(one.partition_error_code))
                for result in answer.results_by_transaction
                for topic in result.topic_results
                for one in topic.results_by_partition
            ),
        )

    def produce(self, producer: RawProducer, topic: str, sequence: int, *, version: int = 12, **other: Any) -> None:
        fields = {
            "producer_id": producer.producer_id,
            "epoch": producer.epoch,
            "id": producer.transactional_id,
            **other,
        }
        records = one_batch(
            b"v",
            timestamps=int(time.time() * 1000),
            producer_id=fields["producer_id"],
            producer_epoch=fields["epoch"],
            base_sequence=sequence,
            is_transactional=other.get("is_transactional", True),
        )
        request = produce(topic, records, transactional_id=fields["id"])
        answer = self.client.ask(request, version).responses[0].partition_responses[0]
        self.note("produce", version, sequence, name_of(answer.error_code), answer.base_offset)

    def end(self, producer: RawProducer, *, commit: bool, version: int = 5, **other: Any) -> None:
        fields = {
            "id": producer.transactional_id,
            "producer_id": producer.producer_id,
            "epoch": producer.epoch,
            **other,
        }
        request = end_request(fields["id"], fields["producer_id"], fields["epoch"], commit=commit)
        answer = self.client.ask(request, version)
        new = (self.id(answer.producer_id), answer.producer_epoch) if version >= 5 else None
        self.note("end", version, commit, name_of(answer.error_code), new)

    def rest(self, producer: RawProducer) -> None:
        """Until the end has reached everybody."""
        producer.wait_for_state("CompleteCommit", "CompleteAbort", "Empty")
        self.describe(producer.transactional_id)

    def describe(self, transactional_id: str) -> None:
        answer = self.client.ask(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
        (state,) = answer.transaction_states
        self.note(
            "described",
            name_of(state.error_code),
            state.transaction_state,
            self.id(state.producer_id),
            state.producer_epoch,
            state.transaction_timeout_ms,
            state.transaction_start_time_ms > 0,
            sorted((topic.topic, sorted(topic.partitions)) for topic in state.topics),
        )

    def list(self, version: int = 2, **filters: Any) -> None:
        answer = self.client.ask(list_request(**filters), version)
        ours = [one for one in answer.transaction_states if one.transactional_id.startswith(f"{self._prefix}-")]
        self.note(
            "listed",
            name_of(answer.error_code),
            answer.unknown_state_filters,
            sorted((one.transactional_id, self.id(one.producer_id), one.transaction_state) for one in ours),
        )

    def markers(self, version: int, producer: RawProducer, topic: str, *partitions: int, **fields: Any) -> None:
        epoch = fields.pop("epoch", producer.epoch)
        request = marker_request(producer.producer_id, epoch, topic, *partitions, **fields)
        (marker,) = self.client.ask(request, version).markers
        codes = [(one.partition_index, name_of(one.error_code)) for one in marker.topics[0].partitions]
        self.note("markers", version, epoch, self.id(marker.producer_id), sorted(codes))

    def producers(self, topic: str) -> None:
        wish = DescribeProducersRequestTopicRequest(name=topic, partition_indexes=[0])
        partition = self.client.ask(DescribeProducersRequest(topics=[wish]), 0).topics[0].partitions[0]
        self.note(
            "producers",
            sorted(
                (
                    self.id(one.producer_id),
                    one.producer_epoch,
                    one.last_sequence,
                    one.coordinator_epoch,
                    one.current_txn_start_offset,
                )
                for one in partition.active_producers
            ),
        )

    def readable(self, topic: str) -> None:
        request: FetchRequest = fetch(topic, isolation_level=1)
        answer = self.client.ask(request, 11).responses[0].partitions[0]
        aborted = [(self.id(one.producer_id), one.first_offset) for one in answer.aborted_transactions or ()]
        self.note("readable", answer.high_watermark, answer.last_stable_offset, aborted)

    def offsets(self, producer: RawProducer, topic: str, version: int, group: str = "group", **other: Any) -> None:
        fields = {"id": producer.transactional_id, "epoch": producer.epoch, "offset": 5, **other}
        request = offsets_request(
            fields["id"], producer.producer_id, fields["epoch"], group and self.name(group), topic, fields["offset"]
        )
        answer = self.client.ask(request, version)
        self.note("offsets", version, name_of(answer.topics[0].partitions[0].error_code))

    def committed(self, topic: str, *, stable: bool) -> None:
        wish = OffsetFetchRequestGroup(
            group_id=self.name("group"), topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        )
        answer = self.client.ask(OffsetFetchRequest(groups=[wish], require_stable=stable), 8).groups[0]
        found = answer.topics[0].partitions[0]
        self.note("committed", stable, found.committed_offset, name_of(found.error_code))


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "the broker never got there"
        time.sleep(0.01)


@dataclass(frozen=True)
class Brokers:
    kafka: str
    ours: str


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    directory = Path(tmp_path_factory.mktemp("kafka"))
    with KafkaBroker(ApacheKafka.resolve(KAFKA_4), directory, SETTINGS) as kafka, Broker(SETTINGS) as ours:
        yield Brokers(kafka.bootstrap, ours.bootstrap_servers)


Conversation = Callable[[Side], None]
CONVERSATIONS: dict[str, Conversation] = {}


def conversation(play: Conversation) -> Conversation:
    CONVERSATIONS[play.__name__.replace("_", " ")] = play
    return play


# -- conversations -----------------------------------------------------------------------------------------------------


@conversation
def a_life_in_version_2(side: Side) -> None:
    topic = side.topic("t")
    producer = side.producer("tx")
    side.describe(producer.transactional_id)
    side.produce(producer, topic, 0)
    side.describe(producer.transactional_id)
    side.readable(topic)
    side.end(producer, commit=True)
    side.rest(producer)
    side.readable(topic)
    side.end(producer, commit=True)  # asked again
    side.end(producer, commit=False)
    producer.epoch += 1
    side.end(producer, commit=True)  # nothing was begun
    side.end(producer, commit=False)
    side.rest(producer)
    side.end(producer, commit=False)  # asked again
    side.end(producer, commit=True)
    producer.epoch += 1
    side.produce(producer, topic, 3)
    side.produce(producer, topic, 0)
    side.produce(producer, topic, 0)
    side.end(producer, commit=False)
    side.rest(producer)
    side.readable(topic)
    side.producers(topic)


@conversation
def a_life_in_version_1(side: Side) -> None:
    topic = side.topic("t")
    producer = side.producer("tx", version=1)
    side.end(producer, commit=True, version=4)
    side.end(producer, commit=False, version=4)
    side.produce(producer, topic, 0, version=10)
    side.produce(producer, topic, 0, version=11)
    side.add(producer, topic, 0)
    side.add(producer, topic, 0, version=0)
    side.add(producer, topic, 0, 1)
    side.describe(producer.transactional_id)
    side.produce(producer, topic, 0, version=11)
    side.produce(producer, topic, 0, version=9)  # sent again
    side.produce(producer, topic, 5, version=11)
    side.produce(producer, topic, 1, version=11, id=None, is_transactional=False)
    side.end(producer, commit=True, version=3)
    side.rest(producer)
    side.end(producer, commit=True, version=4)
    side.end(producer, commit=False, version=4)
    side.produce(producer, topic, 1, version=11)
    side.add(producer, topic, 0)
    side.produce(producer, topic, 1, version=11)
    side.end(producer, commit=False, version=4)
    side.rest(producer)
    side.readable(topic)
    side.producers(topic)


@conversation
def introductions(side: Side) -> None:
    side.producer("other")
    for timeout_ms in (0, -1, 900_001, 2**31 - 1):
        side.init("tx", timeout_ms=timeout_ms, waits=False)
    side.init("", waits=False)
    side.init("tx", producer_id=5, waits=False)
    side.init("tx", producer_epoch=5, waits=False)
    first = side.init("tx", producer_id=5, producer_epoch=3)
    known = {"producer_id": first.producer_id}
    side.init("tx", **known, producer_epoch=0)
    side.init("tx", **known, producer_epoch=0)  # the answer was lost
    side.init("tx", **known, producer_epoch=1)
    side.init("tx", **known, producer_epoch=0)
    side.init("tx", **known, producer_epoch=0, version=3)
    side.init("tx")
    side.init("tx", **known, producer_epoch=2)
    side.init("tx", producer_id=first.producer_id + 1000, producer_epoch=3)
    side.describe(side.name("tx"))


@conversation
def a_successor_fences(side: Side) -> None:
    topic = side.topic("t")
    for version in (1, 2):
        producer = side.producer(f"tx-{version}", version=version)
        assert not producer.send(topic, b"v").error_code
        side.init(f"tx-{version}", waits=False)
        side.rest(producer)
        side.end(producer, commit=True)
        side.end(producer, commit=False)
        side.end(producer, commit=True, version=4)
        side.end(producer, commit=True, version=1)
        side.add(producer, topic, 0)
        side.add(producer, topic, 0, version=1)
        side.produce(producer, topic, 1, version=11)
        side.produce(producer, topic, 1, version=12)
        side.init(f"tx-{version}", producer_id=producer.producer_id, producer_epoch=producer.epoch)
        side.init(f"tx-{version}")


@conversation
def strangers_and_nonsense(side: Side) -> None:
    topic = side.topic("t")
    producer = side.producer("tx")
    for other in ({"epoch": 7}, {"producer_id": 10**9}, {"id": "nobody"}, {"id": ""}):
        side.add(producer, topic, 0, **other)
        side.end(producer, commit=True, **other)
        side.end(producer, commit=False, version=4, **other)
        side.produce(producer, topic, 0, version=12, **other)
        side.produce(producer, topic, 0, version=11, **other)
    side.add(producer, side.name("nothing"), 0)
    side.add(producer, topic, 0, 9)
    side.produce(producer, topic, 0, version=12, id=None)
    side.produce(producer, topic, 0, version=9, id=None)
    side.describe("nobody")
    side.describe("")


@conversation
def brokers_ask_for_many(side: Side) -> None:
    topic = side.topic("t")
    producer = side.producer("tx")

    def wish(partition: int, **fields: Any) -> AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnTransaction(
            **{
                "transactional_id": producer.transactional_id,
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "topics": [AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
                **fields,
            }
        )

    for version in (4, 5):
        side.add_many(version, wish(0, verify_only=True))
        side.add_many(version, wish(0), wish(0, transactional_id="nobody"))
        side.add_many(version, wish(0, verify_only=True), wish(0, verify_only=True, transactional_id="nobody"))
        side.add_many(version, wish(1, verify_only=True))
        side.add_many(version, wish(0, producer_epoch=9))
        side.add_many(version, wish(0, producer_epoch=9, verify_only=True))
        side.add_many(version, wish(0, producer_id=9, verify_only=True))
        side.add_many(version, wish(9))
    side.end(producer, commit=False)
    side.rest(producer)


@conversation
def markers_by_request(side: Side) -> None:
    topic = side.topic("t")
    producer = side.producer("tx")
    side.produce(producer, topic, 0)
    side.markers(2, producer, topic, 0, commit=False, transaction_version=2)
    side.markers(2, producer, topic, 0, 5, commit=False, epoch=1, transaction_version=2)
    side.producers(topic)
    side.readable(topic)
    side.markers(2, producer, topic, 0, commit=False, epoch=1, transaction_version=2)
    side.markers(1, producer, topic, 0, commit=False)
    side.markers(1, producer, topic, 0, commit=True, epoch=2, coordinator_epoch=-1)
    side.markers(1, producer, topic, 0, commit=True, epoch=2, coordinator_epoch=7)
    side.markers(1, producer, topic, 0, commit=True, epoch=2, coordinator_epoch=6)
    side.markers(1, producer, side.name("nothing"), 0, commit=True, epoch=2)
    side.produce(producer, topic, 1, version=12)
    side.produce(producer, topic, 1, version=11)
    side.producers(topic)


@conversation
def a_hanging_transaction(side: Side) -> None:
    topic = side.topic("t")
    producer = side.producer("tx", version=1)
    side.add(producer, topic, 0)
    side.produce(producer, topic, 0, version=11)
    side.markers(1, producer, topic, 0, commit=False)  # somebody aborts by hand
    side.produce(producer, topic, 1, version=11)
    side.producers(topic)
    side.readable(topic)
    side.end(producer, commit=True, version=4)
    side.rest(producer)
    side.readable(topic)


@conversation
def offsets_in_transactions(side: Side) -> None:
    topic = side.topic("t")
    find_coordinator(side.client, side.name("group"), key_type=0)
    loaded = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=side.name("group"), topics=None)])
    wait_until(lambda: not side.client.ask(loaded, 8).groups[0].error_code)
    producer = side.producer("tx")
    for version in (0, 2, 3, 4):
        side.offsets(producer, topic, version)
    for version in (3, 5):
        side.offsets(producer, topic, version, epoch=7)
        side.offsets(producer, topic, version, id="nobody")
        side.offsets(producer, topic, version, id="")
        side.offsets(producer, topic, version, group="")
        side.offsets(producer, side.name("nothing"), version)
    side.offsets(producer, topic, 5)
    side.offsets(producer, topic, 5, offset=6)
    side.offsets(producer, topic, 3, offset=7)
    side.committed(topic, stable=True)
    side.committed(topic, stable=False)
    side.end(producer, commit=True)
    side.rest(producer)
    side.committed(topic, stable=True)
    side.offsets(producer, topic, 4)
    producer.epoch += 1
    for version, epoch in ((3, 1), (1, 1), (3, 0), (1, 0)):
        request = AddOffsetsToTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=epoch,
            group_id=side.name("group"),
        )
        side.note("add offsets", version, epoch, name_of(side.client.ask(request, version).error_code))
    side.offsets(producer, topic, 3, offset=99)
    side.end(producer, commit=False)
    side.rest(producer)
    side.committed(topic, stable=True)


@conversation
def lists(side: Side) -> None:
    topic = side.topic("t")
    busy = side.producer("busy")
    side.producer("idle")
    side.produce(busy, topic, 0)
    side.list(0)
    side.list(state_filters=["Ongoing"])
    side.list(state_filters=["Ongoing", "Empty", "Nonsense", "Dead"])
    side.list(state_filters=["ongoing"])
    side.list(producer_id_filters=[busy.producer_id])
    side.list(producer_id_filters=[10**9])
    side.list(1, duration_filter=0)
    side.list(1, duration_filter=10**9)
    side.list(1, duration_filter=-5)
    side.list(transactional_id_pattern=".*busy")
    side.list(transactional_id_pattern="busy")
    side.list(transactional_id_pattern="")
    side.list(transactional_id_pattern="[")
    side.end(busy, commit=False)
    side.rest(busy)


@conversation
def time_is_up(side: Side) -> None:
    topic = side.topic("t")
    for version in (1, 2):
        producer = RawProducer(side.client, side.name(f"tx-{version}"), version=version)
        producer.init(timeout_ms=200)
        producer.send(topic, b"v")
        side.rest(producer)
        side.readable(topic)
        for end_version in (4, 5):
            side.end(producer, commit=True, version=end_version)
            side.end(producer, commit=False, version=end_version)
        side.produce(producer, topic, 1, version=11)
        side.init(f"tx-{version}", producer_id=producer.producer_id, producer_epoch=0)


@pytest.mark.parametrize("title", CONVERSATIONS)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    number = list(CONVERSATIONS).index(title)
    sides = [Side(address, f"c{number}") for address in (brokers.kafka, brokers.ours)]
    for side in sides:
        try:
            CONVERSATIONS[title](side)
        finally:
            side.client.close()
    theirs, our_own = (side.transcript for side in sides)
    for line, (expected, actual) in enumerate(zip(theirs, our_own, strict=False)):
        assert actual == expected, f"line {line} of «{title}»"
    assert len(theirs) == len(our_own)


# -- what is stored ----------------------------------------------------------------------------------------------------


def printed(kafka: ApacheKafka, bootstrap_servers: str, transactional_id: str) -> list[Any]:
    """The records of a transactional id as Kafka's own tool prints them, ids and times by their order."""
    arguments = ["--bootstrap-server", bootstrap_servers, "--topic", "__transaction_state", "--from-beginning"]
    arguments += ["--formatter", FORMATTER, "--timeout-ms", "5000"]
    command = kafka.java(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "256m", arguments, {"defaultLogLevel": "error"}
    )
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    names: dict[Any, str] = {}
    records = []
    for record in _objects(done.stdout):
        if record["key"]["data"]["transactionalId"] != transactional_id:
            continue
        value = record["value"] and record["value"]["data"]
        for field in ("producerId", "previousProducerId", "nextProducerId") if value else ():
            if value.get(field, -1) >= 0:
                value[field] = names.setdefault(value[field], f"id {len(names)}")
        for field in ("transactionLastUpdateTimestampMs", "transactionStartTimestampMs") if value else ():
            value[field] = value[field] > 0
        records.append(record)
    return records


def _objects(text: str) -> Iterator[Any]:
    """The tool prints one object after the other, on one line."""
    decoder = json.JSONDecoder()
    position = 0
    while position < len(text.rstrip()):
        found, position = decoder.raw_decode(text, position + len(text[position:]) - len(text[position:].lstrip()))
        yield found


def test_kafkas_formatter_prints_our_records_as_its_own(brokers: Brokers) -> None:
    kafka = ApacheKafka.resolve(KAFKA_4)
    seen = []
    for address in (brokers.kafka, brokers.ours):
        side = Side(address, "stored")
        topic = side.topic("t", 1)
        producer = side.producer("tx")
        producer.send(topic, b"v")
        producer.end(commit=True)
        side.rest(producer)
        producer.send(topic, b"v")
        producer.end(commit=False)
        side.rest(producer)
        older = RawProducer(side.client, producer.transactional_id, version=1)
        older.init()
        older.send(topic, b"v")
        older.end(commit=True)
        side.rest(older)
        side.init("tx", producer_id=older.producer_id, producer_epoch=older.epoch)
        side.client.close()
        seen.append(printed(kafka, address, producer.transactional_id))
    theirs, ours = seen
    assert len(theirs) >= 12
    for expected, actual in zip(theirs, ours, strict=True):
        assert actual == expected

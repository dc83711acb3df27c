"""The same requests to Apache Kafka 4.3 and to us: the same answers, up to ids, times and words.

Each conversation is played to both brokers over a raw connection and written down; the two transcripts must be equal.
Where we differ on purpose, the conversation says so beside the line. One JVM for the module.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.cluster import DescribeClusterRequest
from ottla.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestAlterableConfig,
    AlterConfigsRequestAlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    ListConfigResourcesRequest,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.protocol.messages.metadata import (
    Cursor,
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopicRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from ottla.protocol.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.topics import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.protocol.messages.transactions import InitProducerIdRequest
from ottla.records.layout import Compression
from ottla.testing.apache_kafka import KAFKA_4, ApacheKafka, KafkaBroker, missing_programs
from ottla.testing.broker import Broker
from ottla.testing.raw_client import ConnectionEnded, RawClient
from ottla.testing.raw_requests import creatable, create_topic, fetch, list_offsets, metadata, one_batch, produce

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_programs()), reason=f"needs {', '.join(missing_programs())}"),
]

SETTINGS = {"auto.create.topics.enable": "false", "broker.id": "1", "log.segment.delete.delay.ms": "60000"}
# What differs from broker to broker and from run to run.
IDS = {"topic_id": "an id", "cluster_id": "an id", "session_id": "an id", "producer_id": "an id", "log_dir": "a path"}
PLACES = {"host": "a host", "port": "a port", "error_message": "words", "batch_index_error_message": "words"}
TIMES = {"last_timestamp": "a time", "total_bytes": "a size", "usable_bytes": "a size", "documentation": "words"}
HIDDEN = {**IDS, **PLACES, **TIMES}


class Side:
    """One of the two brokers, and what it said."""

    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self.prefix = prefix
        self.client = RawClient(bootstrap_servers)
        self.transcript: list[Any] = []
        self._settled_count = 0

    def topic(self, name: str) -> str:
        """Every conversation has topics of its own."""
        return f"{self.prefix}-{name}"

    def ask(self, request: object, version: int, note: Callable[[Any], Any] | None = None) -> Any:
        """Asks and writes the answer down; a closed connection is an answer too."""
        label = f"{type(request).__name__} v{version}"
        try:
            answer = self.client.ask(request, version)
        except ConnectionEnded:
            self.transcript.append((label, "closed"))
            self.client.close()
            self.client = RawClient(self._bootstrap_servers)
            return None
        seen = plain(answer) if note is None else note(answer)
        self.transcript.append((label, seen))
        return answer

    def new_topic(self, name: str, partitions: int = 1, **config: str) -> tuple[str, UUID]:
        """A topic that is there: Kafka answers before its brokers know it."""
        full = self.topic(name)
        settings = {key.replace("_", "."): value for key, value in config.items()}
        made = self.client.ask(create_topic(full, partitions, config=settings), 7).topics[0]
        assert not made.error_code, made
        self.wait_until(
            lambda: all(
                not self.client.ask(list_offsets(full, -1, partition=index), 7).topics[0].partitions[0].error_code
                for index in range(partitions)
            )
        )
        return full, made.topic_id

    def settle(self) -> None:
        """Kafka's controller answers before its broker knows. What is made after a change is known after it as well.

        Twice: of what one round of news brings to the broker, topics come before settings.
        """
        for _ in range(2):
            self._settled_count += 1
            self.new_topic(f"settled-{self._settled_count}")

    def new_producer_id(self) -> int:
        """Kafka has none to give at first; ids below 1 would not be told from none."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        self.wait_until(lambda: self.client.ask(request, 4).producer_id > 0)
        return int(self.client.ask(request, 4).producer_id)

    @staticmethod
    def wait_until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, "Kafka never got there"
            time.sleep(0.01)


def plain(value: Any) -> Any:
    """A message as dicts and lists, with what cannot be equal replaced by its kind."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, memoryview):
        return bytes(value)
    if not hasattr(type(value), "__slots__") or isinstance(value, UUID | bytes | str):
        return value
    seen = {
        name: _hidden(name, getattr(value, name)) if name in HIDDEN else plain(getattr(value, name))
        for name in type(value).__slots__
    }
    if seen.get("error_code"):
        # Told with some errors and not with others; nobody looks.
        if "base_offset" in seen:
            seen.pop("log_start_offset")
        seen.pop("aborted_transactions", None)
    return seen


def _hidden(name: str, value: Any) -> Any:
    is_empty = value in (None, "", 0, -1) or value == UUID(int=0)
    if name in ("error_message", "batch_index_error_message", "documentation"):
        return HIDDEN[name]  # words or none: both are fine
    return value if is_empty else HIDDEN[name]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with KafkaBroker(ApacheKafka.resolve(KAFKA_4), Path(tmp_path_factory.mktemp("kafka"))) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    with Broker(SETTINGS) as broker:
        yield broker.bootstrap_servers


Conversation = Callable[[Side], None]
CONVERSATIONS: dict[str, Conversation] = {}


def conversation(play: Conversation) -> Conversation:
    CONVERSATIONS[play.__name__.replace("_", " ")] = play
    return play


# -- Metadata ----------------------------------------------------------------------------------------------------------


@conversation
def metadata_by_name_id_and_nothing(side: Side) -> None:
    topic, topic_id = side.new_topic("seen", 2)
    for version in range(13 + 1):
        side.ask(metadata(topic), version)
        side.ask(metadata(side.topic("unknown")), version)
        if version >= 1:
            side.ask(metadata(), version)
    for version in (12, 13):
        side.ask(metadata(topic_id), version)
        side.ask(metadata(UUID(int=77)), version)
    side.ask(metadata("not a name!"), 12)
    side.ask(metadata(""), 12)
    side.ask(metadata("." * 2), 12)
    side.ask(metadata("x" * 250), 9)
    side.ask(metadata(topic, topic), 9)


@conversation
def metadata_with_authorized_operations(side: Side) -> None:
    topic, _ = side.new_topic("allowed")
    for version in (8, 10, 11, 12):
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        if version <= 10:
            request.include_cluster_authorized_operations = True
        side.ask(request, version)
    for version in (0, 1, 2):
        side.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
        side.ask(DescribeClusterRequest(include_cluster_authorized_operations=False), version)


# -- topics ------------------------------------------------------------------------------------------------------------


@conversation
def topics_that_cannot_be_created(side: Side) -> None:
    topic, _ = side.new_topic("taken")
    for version in (2, 4, 5, 6, 7):
        side.ask(create_topic(topic), version)
        side.ask(create_topic(side.topic("no-partitions"), 0), version)
        side.ask(create_topic(side.topic("negative"), -3), version)
        side.ask(create_topic(side.topic("wide"), 1, 3), version)
        side.ask(create_topic(side.topic("thin"), 1, 0), version)
        side.ask(create_topic("what name?"), version)
        side.ask(create_topic(""), version)
        side.ask(create_topic(side.topic("config"), config={"retention.ms": "soon"}), version)
        side.ask(create_topic(side.topic("config"), config={"no.such.thing": "1"}), version)
        side.ask(create_topic(side.topic("config"), config={"retention.ms": None}), version)
        side.ask(create_topic(side.topic("hand"), 1, 1, assignments={0: [1]}), version)
        side.ask(create_topic(side.topic("hand"), -1, -1, assignments={0: [1], 2: [1]}), version)
        side.ask(create_topic(side.topic("hand"), -1, -1, assignments={0: [1, 1]}), version)
        side.ask(create_topic(side.topic("hand"), -1, -1, assignments={0: [5]}), version)
        side.ask(create_topic(side.topic("hand"), -1, -1, assignments={0: []}), version)
        twice = CreateTopicsRequest(topics=[creatable(side.topic("twice")), creatable(side.topic("twice"))])
        side.ask(twice, version)
    side.new_topic("dotted.name")
    side.ask(create_topic(side.topic("dotted_name")), 7)
    side.ask(create_topic(side.topic("dotted.name")), 7)


def without_configs(answer: Any) -> Any:
    seen = plain(answer)
    for topic in seen["topics"]:
        topic["configs"] = "compared elsewhere"
    return seen


@conversation
def topics_that_can_be_created(side: Side) -> None:
    for version in (2, 3, 4, 5, 6, 7):
        name = f"made-{version}"
        side.ask(create_topic(side.topic(name), 3, validate_only=True), version, without_configs)
        side.ask(create_topic(side.topic(name), 3), version, without_configs)
        side.ask(create_topic(side.topic(f"default-{version}"), -1, -1), version, without_configs)
        by_hand = create_topic(side.topic(f"hand-{version}"), -1, -1, assignments={0: [1], 1: [1]})
        side.ask(by_hand, version, without_configs)


@conversation
def the_configs_of_a_new_topic(side: Side) -> None:
    answer = side.client.ask(create_topic(side.topic("described"), config={"retention.ms": "1000"}), 7)
    configs = {entry.name: entry for entry in answer.topics[0].configs}
    entry = configs["retention.ms"]
    side.transcript.append((entry.value, entry.read_only, entry.config_source, entry.is_sensitive))
    # Storage on two tiers is not ours.
    values = {name: entry.value for name, entry in sorted(configs.items()) if "remote" not in name}
    side.transcript.append({name: value for name, value in values.items() if not name.startswith("local.")})


@conversation
def topics_are_deleted_by_name_and_by_id(side: Side) -> None:
    for version in (1, 4, 5):
        topic, _ = side.new_topic(f"doomed-{version}")
        side.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=5000), version)
        side.ask(DeleteTopicsRequest(topic_names=[side.topic("never")], timeout_ms=5000), version)
    topic, _ = side.new_topic("doomed-6")
    unknown = UUID(int=5)
    side.ask(_delete(DeleteTopicState(name=topic, topic_id=UUID(int=0))), 6)
    topic, topic_id = side.new_topic("doomed-by-id")
    side.ask(_delete(DeleteTopicState(name=topic, topic_id=topic_id)), 6)
    side.ask(_delete(DeleteTopicState(name=None, topic_id=UUID(int=0))), 6)
    side.ask(_delete(DeleteTopicState(name=None, topic_id=unknown)), 6)
    side.ask(_delete(DeleteTopicState(name=None, topic_id=topic_id)), 6)
    topic, _ = side.new_topic("doomed-twice")
    both = [DeleteTopicState(name=topic, topic_id=UUID(int=0)), DeleteTopicState(name=topic, topic_id=UUID(int=0))]
    side.ask(_delete(*both), 6, lambda answer: sorted({one.error_code for one in answer.responses}))


def _delete(*topics: DeleteTopicState) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=list(topics), timeout_ms=5000)


@conversation
def partitions_are_added_and_never_taken(side: Side) -> None:
    topic, _ = side.new_topic("grown", 2)
    for version in range(4):
        for count, assignments in (
            (2, None),
            (1, None),
            (0, None),
            (-1, None),
            (3, []),
            (3, [[1], [1]]),
            (3, [[9]]),
            (3, [[1, 1]]),
            (3, [[]]),
        ):
            side.ask(_grow(topic, count, assignments, validate_only=True), version)
        side.ask(_grow(topic, 3, [[1]], validate_only=True), version)
        side.ask(_grow(side.topic("never"), 3), version)
    side.ask(_grow(topic, 4), 3)
    twice = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=9, assignments=None)] * 2, timeout_ms=5000, validate_only=True
    )
    side.ask(twice, 3)


def _grow(
    topic: str, count: int, assignments: list[list[int]] | None = None, *, validate_only: bool = False
) -> CreatePartitionsRequest:
    wanted = None if assignments is None else [CreatePartitionsAssignment(broker_ids=nodes) for nodes in assignments]
    return CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=count, assignments=wanted)],
        timeout_ms=5000,
        validate_only=validate_only,
    )


@conversation
def topics_page_by_page(side: Side) -> None:
    topics = [side.new_topic(f"page-{number}", 3)[0] for number in range(3)]
    for limit in (1, 3, 4, 2000, 0, -1):
        side.ask(_pages(topics, limit), 0)
    side.ask(_pages(topics, 4, Cursor(topic_name=topics[1], partition_index=1)), 0)
    side.ask(_pages(topics, 4, Cursor(topic_name=topics[1], partition_index=9)), 0)
    side.ask(_pages([side.topic("never"), topics[0]], 10), 0)
    side.ask(_pages(["what?"], 10), 0)


def _pages(topics: list[str], limit: int, cursor: Cursor | None = None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequestTopicRequest(name=name) for name in topics],
        response_partition_limit=limit,
        cursor=cursor,
    )


# -- Produce -----------------------------------------------------------------------------------------------------------


@conversation
def produce_in_every_version(side: Side) -> None:
    topic, topic_id = side.new_topic("written")
    for version in range(3, 14):
        known = {"topic_id": topic_id} if version >= 13 else {}
        name = "" if version >= 13 else topic
        for acks in (-1, 1):
            side.ask(produce(name, one_batch(b"a", b"b"), acks=acks, **known), version)
        side.ask(produce(name, one_batch(b"a"), acks=2, **known), version)
        side.ask(produce(name, one_batch(b"a"), partition=7, **known), version)
        unknown = {"topic_id": UUID(int=3)} if version >= 13 else {}
        side.ask(produce("" if version >= 13 else side.topic("never"), one_batch(b"a"), **unknown), version)


@conversation
def produce_of_bad_batches(side: Side) -> None:
    topic, _ = side.new_topic("picky", max_message_bytes="1000")
    good = bytearray(one_batch(b"a", b"b", b"c"))
    flipped = bytearray(good)
    flipped[-1] ^= 1
    old_magic = bytearray(good)
    old_magic[16] = 1
    future_magic = bytearray(good)
    future_magic[16] = 3
    for version in (3, 7, 8, 11, 12):
        side.ask(produce(topic, bytes(flipped)), version)
        side.ask(produce(topic, bytes(good + good)), version)
        side.ask(produce(topic, bytes(good[:-1])), version)
        side.ask(produce(topic, bytes(good[:30])), version)
        side.ask(produce(topic, bytes(good[:10])), version)
        side.ask(produce(topic, b""), version)
        side.ask(produce(topic, one_batch(b"x" * 2000)), version)
        side.ask(produce(topic, one_batch(b"x" * 100, compression=Compression.ZSTD)), version)
        side.ask(produce(topic, bytes(future_magic)), version)
        side.ask(produce(topic, one_batch(b"c", is_control=True, producer_id=1, producer_epoch=0)), version)


@conversation
def produce_to_topics_with_rules(side: Side) -> None:
    compacted, _ = side.new_topic("compacted", cleanup_policy="compact")
    now_ms = int(time.time() * 1000)
    for version in (7, 8, 11):
        side.ask(produce(compacted, one_batch(b"a", b"b", keys=[b"k", None])), version)
        side.ask(produce(compacted, one_batch(b"a", keys=[b"k"])), version)
    timed, _ = side.new_topic("timed", message_timestamp_after_max_ms="1000", message_timestamp_before_max_ms="60000")
    for version in (7, 8, 11):
        side.ask(produce(timed, one_batch(b"a", b"b", timestamps=[now_ms, now_ms + 3_600_000])), version)
        side.ask(produce(timed, one_batch(b"a", b"b", timestamps=[now_ms, now_ms - 3_600_000])), version)
        side.ask(produce(timed, one_batch(b"a", timestamps=-1)), version)
        side.ask(produce(timed, one_batch(b"a", timestamps=now_ms)), version)
    appended, _ = side.new_topic("appended", message_timestamp_type="LogAppendTime")
    answer = side.client.ask(produce(appended, one_batch(b"a")), 9)
    stamped = answer.responses[0].partition_responses[0].log_append_time_ms
    side.transcript.append(abs(stamped - now_ms) < 60_000)
    strict, _ = side.new_topic("strict", min_insync_replicas="2")
    for acks in (-1, 1):
        side.ask(produce(strict, one_batch(b"a"), acks=acks), 9)


@conversation
def an_idempotent_producer(side: Side) -> None:
    topic, _ = side.new_topic("counted")
    other, _ = side.new_topic("other")
    producer_id = side.new_producer_id()

    def without_time(answer: Any) -> Any:
        # Kafka gives the create time of a duplicate as its append time; we give none.
        seen = plain(answer)["responses"][0]["partition_responses"][0]
        return {**seen, "log_append_time_ms": "not compared"}

    def write(sequence: int, *values: bytes, epoch: int = 0, to: str = topic, who: int = producer_id) -> None:
        records = one_batch(*values, producer_id=who, producer_epoch=epoch, base_sequence=sequence)
        side.ask(produce(to, records), 9, without_time)

    write(0, b"a", b"b")
    write(2, b"c")
    write(0, b"a", b"b")  # again
    write(2, b"c")  # again
    write(4, b"gap")
    write(1, b"inside")
    write(0, b"another", b"size", b"now")
    for number in range(3, 9):
        write(number, b"more")
    write(0, b"a", b"b")  # too long ago
    write(4, b"more")  # of the last five
    write(9, b"new epoch with a sequence", epoch=1)
    write(0, b"new epoch", epoch=1)
    write(9, b"old epoch", epoch=0)
    write(1, b"on", epoch=1)
    write(5, b"starts in the middle", to=other)
    write(6, b"goes on", to=other)
    write(5, b"a stranger in the middle", to=other, who=producer_id + 100_000)
    write(2**31 - 2, b"before", b"the wrap", epoch=2, to=other)
    write(0, b"reset", epoch=3, to=other)


@conversation
def a_sequence_wraps(side: Side) -> None:
    topic, _ = side.new_topic("wrapped")
    producer_id = side.new_producer_id()
    for sequence in (2**31 - 3, 0, 2):
        records = one_batch(b"a", b"b", b"c", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        side.ask(produce(topic, records), 9)
    side.ask(
        DescribeProducersRequest(
            topics=[
                DescribeProducersRequestTopicRequest(name=topic, partition_indexes=[0, 5]),
                DescribeProducersRequestTopicRequest(name=side.topic("never"), partition_indexes=[0]),
            ]
        ),
        0,
    )


@conversation
def init_producer_id(side: Side) -> None:
    side.new_producer_id()
    for version in range(6):
        side.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), version)
    for version in (3, 4, 5):
        for producer_id, epoch in ((-1, 3), (5, -1), (123456, 2)):
            request = InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch
            )
            side.ask(request, version)
    for version in range(6):
        side.ask(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), version)


# -- Fetch -------------------------------------------------------------------------------------------------------------


@conversation
def fetch_in_every_version(side: Side) -> None:
    topic, topic_id = side.new_topic("read", 2)
    for value in (b"one", b"two", b"three"):
        side.ask(produce(topic, one_batch(value, value)), 9)
    for version in range(4, 19):
        name = "" if version >= 13 else topic
        known = {"topic_id": topic_id} if version >= 13 else {}
        for offset in (0, 1, 3, 6, 7, -1):
            side.ask(fetch(name, offset, **known), version)
        for isolation_level in (0, 1):
            side.ask(fetch(name, 2, partitions=(0, 1), isolation_level=isolation_level, **known), version)
        side.ask(fetch(name, 0, partitions=(9,), **known), version)
        for limit in (0, 1, 100, 200):
            side.ask(fetch(name, 0, max_bytes=limit, **known), version)
            side.ask(fetch(name, 0, partition_max_bytes=limit, **known), version)
        if version >= 9:
            for epoch in (0, 1, 5):
                side.ask(fetch(name, 0, current_leader_epoch=epoch, **known), version)
        if version >= 12:
            for epoch in (0, 1):
                side.ask(fetch(name, 2, last_fetched_epoch=epoch, **known), version)
            side.ask(fetch(name, 8, last_fetched_epoch=0, **known), version)
        unknown = {"topic_id": UUID(int=9)} if version >= 13 else {}
        side.ask(fetch("" if version >= 13 else side.topic("never"), **unknown), version)


@conversation
def fetch_of_several_partitions_within_limits(side: Side) -> None:
    topic, _ = side.new_topic("shared", 3)
    for partition in range(3):
        for _ in range(2):
            side.ask(produce(topic, one_batch(b"x" * 100), partition=partition), 9)
    for max_bytes in (0, 1, 170, 340, 341, 600, 10_000):
        for partition_max_bytes in (0, 1, 170, 340, 10_000):
            side.ask(
                fetch(topic, partitions=(0, 1, 2), max_bytes=max_bytes, partition_max_bytes=partition_max_bytes), 11
            )


@conversation
def a_fetch_session(side: Side) -> None:
    topic, _ = side.new_topic("session", 2)
    side.ask(produce(topic, one_batch(b"a")), 9)
    opened = side.ask(fetch(topic, partitions=(0, 1), session_epoch=0), 12)
    session = opened.session_id

    def go_on(epoch: int, offset: int = 0, partitions: tuple[int, ...] = (), **more: Any) -> None:
        side.ask(fetch(topic, offset, partitions=partitions, session_id=session, session_epoch=epoch, **more), 12)

    go_on(1, 1, (0,))
    go_on(2)
    side.ask(produce(topic, one_batch(b"b"), partition=1), 9)
    go_on(3)
    go_on(3)  # said already
    go_on(9)  # not yet
    go_on(4, forgotten=(1,))
    go_on(5)
    side.ask(fetch(topic, session_id=session + 1, session_epoch=1), 12)
    side.ask(fetch(topic, session_id=0, session_epoch=1), 12)
    go_on(6, 9, (0,))  # out of range: told every time
    go_on(7)
    go_on(8, forgotten=(0,))  # nothing left: the session ends
    go_on(9, 0, (0,))
    opened = side.ask(fetch(topic, partitions=(0,), session_epoch=0), 12)
    session = opened.session_id
    go_on(-1)
    go_on(1)
    side.ask(fetch(topic, partitions=(), session_epoch=0), 12)
    side.ask(fetch(topic, partitions=(0,), session_epoch=-1, session_id=99), 12)


@conversation
def a_fetch_session_by_topic_id(side: Side) -> None:
    topic, topic_id = side.new_topic("session-id", 2)
    side.ask(produce(topic, one_batch(b"a")), 9)
    opened = side.ask(fetch("", partitions=(0, 1), topic_id=topic_id, session_epoch=0), 16)
    session = opened.session_id
    side.ask(fetch("", partitions=(), session_id=session, session_epoch=1), 16)
    side.ask(fetch(topic, partitions=(0,), session_id=session, session_epoch=2), 12)
    side.ask(fetch("", topic_id=UUID(int=4), session_id=session, session_epoch=2), 16)


@conversation
def compressed_records_come_back_as_they_were(side: Side) -> None:
    topic, _ = side.new_topic("codecs")
    for codec in Compression:
        side.ask(produce(topic, one_batch(b"x" * 500, compression=codec)), 9)
    for version in (10, 12):  # Kafka 4 hands zstd to readers of Fetch 9 that cannot know it; we do not
        side.ask(fetch(topic), version)


# -- offsets -----------------------------------------------------------------------------------------------------------


@conversation
def offsets_by_time_in_every_version(side: Side) -> None:
    topic, _ = side.new_topic("times")
    side.ask(list_offsets(topic, -1), 7)
    side.ask(list_offsets(topic, -2), 7)
    side.ask(list_offsets(topic, -3), 7)
    side.ask(list_offsets(topic, 0), 7)
    start = 1_700_000_000_000
    side.ask(produce(topic, one_batch(b"a", b"b", timestamps=[start, start + 10])), 9)
    mixed = one_batch(b"c", b"d", timestamps=[start + 50, start + 20], compression=Compression.GZIP)
    side.ask(produce(topic, mixed), 9)
    for version in range(1, 12):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, start, start + 5, start + 10, start + 20, start + 51):
            side.ask(list_offsets(topic, timestamp), version)
        side.ask(list_offsets(topic, -1, partition=4), version)
        side.ask(list_offsets(side.topic("never"), -1), version)
        if version >= 2:
            side.ask(list_offsets(topic, -1, isolation_level=1), version)
        if version >= 4:
            for epoch in (0, 3):
                side.ask(list_offsets(topic, -1, current_leader_epoch=epoch), version)


@conversation
def epochs_and_their_ends(side: Side) -> None:
    topic, _ = side.new_topic("epochs")
    for round_ in range(2):
        for version in (2, 3, 4):
            for current, wanted in ((-1, 0), (0, 0), (-1, 1), (3, 0), (-1, -1)):
                wish = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=wanted)
                side.ask(
                    OffsetForLeaderEpochRequest(
                        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[wish])]
                    ),
                    version,
                )
            wish = OffsetForLeaderPartition(partition=3, leader_epoch=0)
            side.ask(
                OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[wish])]), version
            )
        if not round_:
            side.ask(produce(topic, one_batch(b"a", b"b")), 9)


@conversation
def records_are_deleted_up_to_an_offset(side: Side) -> None:
    topic, _ = side.new_topic("trimmed")
    for _ in range(3):
        side.ask(produce(topic, one_batch(b"a", b"b")), 9)
    for version in range(3):
        for offset in (7, -2, version, version):
            side.ask(_trim(topic, offset), version)
        side.ask(_trim(topic, 0, partition=8), version)
        side.ask(_trim(side.topic("never"), 0), version)
    side.ask(fetch(topic, 0), 12)
    side.ask(fetch(topic, 2), 12)
    side.ask(list_offsets(topic, -2), 7)
    side.ask(_trim(topic, -1), 2)
    side.ask(fetch(topic, 6), 12)
    side.ask(list_offsets(topic, -2), 7)


def _trim(topic: str, offset: int, partition: int = 0) -> DeleteRecordsRequest:
    return DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic, partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)]
            )
        ],
        timeout_ms=5000,
    )


# -- configs -----------------------------------------------------------------------------------------------------------

TOPIC, BROKER = 2, 4


def _describe(kind: int, name: str, keys: list[str] | None, **more: bool) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return DescribeConfigsRequest(resources=[resource], **more)


def _set(kind: int, name: str, *changes: tuple[str, int, str | None], **more: bool) -> IncrementalAlterConfigsRequest:
    entries = [
        IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=kind, resource_name=name, configs=entries
    )
    return IncrementalAlterConfigsRequest(resources=[resource], **{"validate_only": False, **more})


def _replace(kind: int, name: str, *settings: tuple[str, str | None], **more: bool) -> AlterConfigsRequest:
    entries = [AlterConfigsRequestAlterableConfig(name=key, value=value) for key, value in settings]
    resource = AlterConfigsRequestAlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    return AlterConfigsRequest(resources=[resource], **{"validate_only": False, **more})


def _by_name(answer: Any) -> Any:
    seen = plain(answer)
    for result in seen["results"]:
        result["configs"] = sorted(result["configs"], key=lambda entry: entry["name"])
    return seen


@conversation
def configs_of_a_topic(side: Side) -> None:
    topic, _ = side.new_topic("configured", retention_ms="5000")
    keys = ["retention.ms", "cleanup.policy", "segment.bytes", "compression.type", "no.such.key"]
    for version in range(1, 5):
        side.ask(_describe(TOPIC, topic, keys), version, _by_name)
        side.ask(_describe(TOPIC, topic, []), version, lambda answer: len(answer.results[0].configs) > 0)
        side.ask(_describe(TOPIC, side.topic("never"), None), version, _by_name)
        side.ask(_describe(TOPIC, "what?", None), version, _by_name)
        side.ask(_describe(TOPIC, "", None), version, _by_name)
        side.ask(_describe(99, topic, None), version, _by_name)
        # Of retention.ms we name the broker's default as well (log.retention.hours), which Kafka leaves out.
        side.ask(_describe(TOPIC, topic, keys[1:], include_synonyms=True), version, _by_name)


@conversation
def configs_of_a_topic_change(side: Side) -> None:
    topic, _ = side.new_topic("altered")
    set_, delete, append, subtract = range(4)
    changes: list[tuple[tuple[str, int, str | None], ...]] = [
        (("retention.ms", set_, "1000"),),
        (("retention.ms", set_, "never"),),
        (("retention.ms", set_, None),),
        (("retention.ms", append, "1"),),
        (("no.such", set_, "1"),),
        (("cleanup.policy", append, "compact"),),
        (("cleanup.policy", append, "compact"),),
        (("cleanup.policy", subtract, "delete"),),
        (("cleanup.policy", subtract, "delete"),),
        (("cleanup.policy", append, "nonsense"),),
        (("retention.ms", set_, "1"), ("retention.ms", set_, "2")),
        (("retention.ms", delete, None),),
        (("retention.ms", delete, None),),
        (("segment.bytes", set_, "1"),),
        (("min.insync.replicas", set_, "0"),),
        (("max.message.bytes", set_, "-1"),),
    ]
    keys = ["retention.ms", "cleanup.policy"]
    for change in changes:
        side.ask(_set(TOPIC, topic, *change), 1)
        side.settle()
        side.ask(_describe(TOPIC, topic, keys), 4, _by_name)
    side.ask(_set(TOPIC, topic, ("retention.ms", set_, "7"), validate_only=True), 0)
    side.ask(_set(TOPIC, side.topic("never"), ("retention.ms", set_, "7")), 1)
    side.ask(_set(TOPIC, "", ("retention.ms", set_, "7")), 1)
    side.ask(_set(77, topic, ("retention.ms", set_, "7")), 1)
    for version in range(3):
        side.ask(_replace(TOPIC, topic, ("retention.ms", "8"), ("segment.bytes", "2000000")), version)
        side.ask(_replace(TOPIC, topic, ("retention.ms", "9"), validate_only=True), version)
        side.ask(_replace(TOPIC, topic, ("retention.ms", "x")), version)
        side.ask(_replace(TOPIC, topic, ("retention.ms", None)), version)
        side.settle()
        side.ask(_describe(TOPIC, topic, keys), 4, _by_name)
        side.ask(_replace(TOPIC, topic), version)
        side.settle()
        side.ask(_describe(TOPIC, topic, keys), 4, _by_name)
    side.ask(_replace(TOPIC, side.topic("never"), ("retention.ms", "8")), 2)


@conversation
def configs_of_a_broker_change(side: Side) -> None:
    set_, delete = 0, 1
    keys = ["log.retention.ms", "log.cleaner.backoff.ms", "max.connections", "broker.id", "message.max.bytes"]
    for name in ("1", ""):
        side.ask(_set(BROKER, name, ("log.retention.ms", set_, "123456789")), 1)
        side.ask(_set(BROKER, name, ("broker.id", set_, "7")), 1)
        side.ask(_set(BROKER, name, ("max.connections", set_, "100000")), 1)
        side.settle()
        side.ask(_describe(BROKER, name, keys), 4, _by_name)
        side.ask(_describe(BROKER, name, keys, include_synonyms=True), 4, _by_name)
        side.ask(_set(BROKER, name, ("log.retention.ms", delete, None), ("max.connections", delete, None)), 1)
        side.settle()
        side.ask(_describe(BROKER, name, ["log.retention.ms", "max.connections"]), 4, _by_name)
    side.ask(_describe(BROKER, "9", None), 4)
    side.ask(_describe(BROKER, "abc", None), 4)
    side.ask(_set(BROKER, "9", ("log.retention.ms", set_, "1")), 1)
    side.ask(_set(BROKER, "abc", ("log.retention.ms", set_, "1")), 1)


@conversation
def config_resources(side: Side) -> None:
    topic, _ = side.new_topic("listed")
    side.ask(ListConfigResourcesRequest(), 0)
    kinds = [2, 4, 8, 16, 32]
    for kind in kinds:
        side.ask(
            ListConfigResourcesRequest(resource_types=[kind]),
            1,
            lambda answer: [
                plain(one)
                for one in answer.config_resources
                if one.resource_type != TOPIC or one.resource_name == topic
            ],
        )
    side.ask(ListConfigResourcesRequest(resource_types=[1]), 1)
    side.ask(ListConfigResourcesRequest(resource_types=[2, 77]), 1)


# -- the rest ----------------------------------------------------------------------------------------------------------


@conversation
def log_directories(side: Side) -> None:
    topic, _ = side.new_topic("stored", 2)
    side.ask(produce(topic, one_batch(b"x" * 100), partition=1), 9)
    for version in range(1, 6):
        side.ask(
            DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=[0, 1, 7])]),
            version,
            lambda answer: [
                {**directory, "topics": [sorted(one["partitions"], key=str) for one in directory["topics"]]}
                for directory in plain(answer)["results"]
            ],
        )


@conversation
def api_versions(side: Side) -> None:
    for name, version_name in (("x", "1"), ("", "1"), ("-x", "1"), ("x", "1!"), ("a.b-c", "1.2.3"), ("x", "")):
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version_name)
        for version in (3, 4):
            side.ask(request, version, lambda answer: (answer.error_code, bool(answer.api_keys)))
    for version in range(3):
        side.ask(ApiVersionsRequest(), version, lambda answer: (answer.error_code, bool(answer.api_keys)))
    for version in (3, 4):
        side.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), version, features)


def features(answer: Any) -> Any:
    """Of the features, those that we have; Kafka has others, and knows share groups and KRaft by them."""
    ours = ("metadata.version", "group.version", "transaction.version")
    return (
        {each.name: (each.min_version, each.max_version) for each in answer.supported_features if each.name in ours},
        {each.name: each.max_version_level for each in answer.finalized_features if each.name in ours},
    )


@conversation
def a_fetch_of_nothing(side: Side) -> None:
    side.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 4)
    side.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 12)
    topic, _ = side.new_topic("empty")
    side.ask(fetch(topic, max_wait_ms=0, min_bytes=0), 12)
    side.ask(fetch(topic, max_wait_ms=50, min_bytes=1), 12)
    twice = FetchTopic(
        topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)] * 2
    )
    side.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[twice]), 11)


@pytest.mark.parametrize("title", CONVERSATIONS)
def test_the_answers_are_those_of_apache_kafka(title: str, kafka: str, ours: str) -> None:
    number = list(CONVERSATIONS).index(title)
    sides = [Side(address, f"c{number}") for address in (kafka, ours)]
    for side in sides:
        try:
            CONVERSATIONS[title](side)
        finally:
            side.client.close()
    theirs, our_own = (side.transcript for side in sides)
    assert len(theirs) == len(our_own)
    for line, (expected, actual) in enumerate(zip(theirs, our_own, strict=True)):
        assert actual == expected, f"line {line} of «{title}»"

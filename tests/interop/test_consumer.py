"""Our consumer against Apache Kafka and against our broker, and in groups with members of librdkafka and of Java."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any

import confluent_kafka
import pytest

import ottla
from ottla import TopicPartition, aio
from ottla.client.admin.groups import GroupDescription
from ottla.testing.apache_kafka import ApacheKafka, KafkaBroker
from ottla.testing.broker import Broker
from ottla.testing.waiting import WAIT_S

PARTITIONS = 4
PROTOCOLS = ["classic", "consumer"]
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
}
numbers = count()


@pytest.fixture(scope="module", params=["apache", "ottla"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "apache":
        kafka = request.getfixturevalue("newest_kafka")
        with KafkaBroker(kafka, tmp_path_factory.mktemp("broker"), QUICK) as broker:
            yield broker.bootstrap
    else:
        with Broker(QUICK) as broker:
            yield broker.bootstrap_servers


@pytest.fixture
def group() -> str:
    return f"group-{next(numbers)}"


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"consumed-{next(numbers)}"

    with ottla.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(name, PARTITIONS)
    return name


def write(bootstrap: str, topic: str, values: range, **settings: str) -> None:
    """By librdkafka: value n goes to partition n mod 4."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **settings})
    for value in values:
        headers: list[tuple[str, str | bytes | None]] = [("n", b"%d" % value), ("none", None)]
        producer.produce(topic, b"%d" % value, b"key", value % PARTITIONS, headers=headers, timestamp=1000 + value)
    assert producer.flush(WAIT_S) == 0


def consumer_of(bootstrap: str, *topics: str, **settings: Any) -> aio.Consumer[bytes, bytes]:
    return aio.Consumer(
        *topics, bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=100, **settings
    )


async def read(consumer: aio.Consumer[bytes, bytes], wanted: int) -> list[ottla.ConsumerRecord[bytes, bytes]]:
    found = []
    async with asyncio.timeout(WAIT_S):
        async for record in consumer:
            found.append(record)
            if len(found) == wanted:
                break
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_librdkafka_are_read_as_they_were_written(bootstrap: str, topic: str, codec: str) -> None:
    write(bootstrap, topic, range(100), **{"compression.type": codec})

    async def main() -> None:
        async with consumer_of(bootstrap) as consumer:
            consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
            found = await read(consumer, 100)
            for number in range(PARTITIONS):
                mine = [record for record in found if record.partition == number]
                assert [int(record.value or b"") for record in mine] == list(range(number, 100, PARTITIONS))
                assert [record.offset for record in mine] == list(range(25))
            first = next(record for record in found if record.value == b"7")
            assert (first.key, first.timestamp) == (b"key", 1007)
            assert first.headers == (("n", b"7"), ("none", None))

    asyncio.run(main())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_goes_on_where_it_committed(bootstrap: str, topic: str, group: str, protocol: str) -> None:
    write(bootstrap, topic, range(40))

    async def main() -> None:
        found = []
        for _ in range(2):
            async with consumer_of(bootstrap, topic, group_id=group, group_protocol=protocol) as consumer:
                found += await read(consumer, 20)
        assert sorted(int(record.value or b"") for record in found) == list(range(40))
        async with consumer_of(bootstrap, group_id=group, group_protocol=protocol) as consumer:
            partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            committed = await consumer.committed(partitions)
            assert [offset.offset for offset in committed.values() if offset is not None] == [10] * PARTITIONS
            assert await consumer.end_offsets(partitions) == dict.fromkeys(partitions, 10)

    asyncio.run(main())


def test_only_committed_transactions_are_read_and_their_offsets_are_the_groups(
    bootstrap: str, topic: str, group: str
) -> None:
    partition = TopicPartition(topic, 0)

    async def main() -> None:
        async with aio.Producer(bootstrap_servers=bootstrap, transactional_id=f"id-{topic}") as producer:
            await producer.init_transactions()
            for number in range(4):
                producer.begin_transaction()
                await producer.send(topic, b"%d" % number, partition=0)
                await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
            async with consumer_of(
                bootstrap, topic, group_id=group, isolation_level="read_committed", enable_auto_commit=False
            ) as consumer:
                assert [record.value for record in await read(consumer, 2)] == [b"0", b"2"]
                producer.begin_transaction()
                offset = await consumer.position(partition)
                await producer.send_offsets_to_transaction({partition: offset}, consumer.group_metadata())
                await producer.commit_transaction()
                found = (await consumer.committed([partition]))[partition]
                assert found is not None
                assert found.offset == offset

    asyncio.run(main())


# -- together with librdkafka ------------------------------------------------------------------------------------------


class Neighbour:
    """A member of librdkafka that polls in a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, group: str, strategy: str) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": True,
            "auto.commit.interval.ms": 100,
        }
        if strategy == "consumer":
            settings["group.protocol"] = "consumer"
        else:
            settings |= {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 200}
        self.values: list[int] = []
        self.partition_count = 0
        self._consumer = confluent_kafka.Consumer(settings)
        self._consumer.subscribe([topic])
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _poll(self) -> None:
        while not self._is_ending.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.values.append(int(message.value() or b""))
            self.partition_count = len(self._consumer.assignment())
        self._consumer.close()

    def close(self) -> None:
        self._is_ending.set()
        self._thread.join()


async def until(
    consumer: aio.Consumer[bytes, bytes], found: list[int], is_so: Callable[[], bool], *, what: str
) -> None:
    """Reads on until it is so."""
    try:
        async with asyncio.timeout(WAIT_S):
            while not is_so():
                found += [int(record.value or b"") for record in await consumer.take(0.1)]
    except TimeoutError:
        raise AssertionError(f"{what}, and {len(found)} records were read") from None


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky", "consumer"])
def test_members_of_ours_and_of_librdkafka_share_a_group(bootstrap: str, topic: str, group: str, strategy: str) -> None:
    protocol: dict[str, object] = {"group_protocol": "consumer"}
    if strategy != "consumer":
        protocol = {"partition_assignment_strategy": [strategy], "heartbeat_interval_ms": 200}
    write(bootstrap, topic, range(40))
    found: list[int] = []

    async def main() -> None:
        async with consumer_of(bootstrap, topic, group_id=group, **protocol) as consumer:
            await until(consumer, found, lambda: len(found) == 40, what="alone")
            neighbour = await asyncio.to_thread(Neighbour, bootstrap, topic, group, strategy)
            try:
                await until(
                    consumer,
                    found,
                    lambda: len(consumer.assignment()) == neighbour.partition_count == 2,
                    what="they do not share",
                )
                await asyncio.to_thread(write, bootstrap, topic, range(40, 80))
                await until(
                    consumer, found, lambda: len(set(found) | set(neighbour.values)) == 80, what="not all was read"
                )
            finally:
                await asyncio.to_thread(neighbour.close)
            await until(consumer, found, lambda: len(consumer.assignment()) == PARTITIONS, what="nothing came back")
        assert sorted(set(found) | set(neighbour.values)) == list(range(80))
        assert len(neighbour.values) == 20, "what it read in its partitions"

    asyncio.run(main())


# -- together with Java ------------------------------------------------------------------------------------------------

JAVA_STRATEGIES = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


class JavaNeighbour:
    """Kafka's console consumer as a member; it prints what it reads, and leaves its group when it is told to end."""

    def __init__(self, kafka: ApacheKafka, bootstrap: str, topic: str, group: str, strategy: str) -> None:
        properties = {"auto.commit.interval.ms": "100", "auto.offset.reset": "earliest"}
        if strategy == "consumer":
            properties["group.protocol"] = "consumer"
        else:
            properties |= {
                "partition.assignment.strategy": JAVA_STRATEGIES[strategy],
                "heartbeat.interval.ms": "200",
            }
        given = [f"--command-property={name}={value}" for name, value in properties.items()]
        arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--group", group, *given]
        main = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        self._process = subprocess.Popen(
            kafka.java(main, "128m", arguments, {"defaultLogLevel": "error"}), stdout=subprocess.PIPE, text=True
        )
        self.values: list[int] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.values.extend(map(int, self._process.stdout))

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(WAIT_S)
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.mark.parametrize("strategy", [*JAVA_STRATEGIES, "consumer"])
def test_members_of_ours_of_librdkafka_and_of_java_share_a_group(
    bootstrap: str, topic: str, group: str, strategy: str, newest_kafka: ApacheKafka
) -> None:
    protocol: dict[str, object] = {"group_protocol": "consumer"}
    if strategy != "consumer":
        protocol = {"partition_assignment_strategy": [strategy], "heartbeat_interval_ms": 200}
    found: list[int] = []

    async def main() -> None:
        async with (
            aio.Admin(bootstrap_servers=bootstrap) as admin,
            consumer_of(bootstrap, topic, group_id=group, **protocol) as consumer,
        ):
            neighbours: list[Neighbour | JavaNeighbour] = []

            async def reads_until(condition: Callable[[], Awaitable[bool]]) -> None:
                async with asyncio.timeout(WAIT_S):
                    while not await condition():
                        found.extend(int(record.value or b"") for record in await consumer.take(0.1))

            async def is_shared() -> bool:
                described = (await admin.describe_groups([group]))[group]
                if not isinstance(described, GroupDescription):
                    return False
                shares = [len(member.partitions or ()) for member in described.members]
                return described.state == "Stable" and len(shares) == 3 and sum(shares) == PARTITIONS and all(shares)

            async def is_read() -> bool:
                return len(found) + sum(len(each.values) for each in neighbours) >= 80

            async def is_alone() -> bool:
                return len(consumer.assignment()) == PARTITIONS

            try:
                neighbours.append(await asyncio.to_thread(Neighbour, bootstrap, topic, group, strategy))
                java = await asyncio.to_thread(JavaNeighbour, newest_kafka, bootstrap, topic, group, strategy)
                neighbours.append(java)
                await reads_until(is_shared)
                await asyncio.to_thread(write, bootstrap, topic, range(80))
                await reads_until(is_read)
            finally:
                for each in neighbours:
                    await asyncio.to_thread(each.close)
            await reads_until(is_alone)
            everything = [*found, *(value for each in neighbours for value in each.values)]
            assert sorted(everything) == list(range(80)), "each record is read once: nothing moved while they read"
            assert java.values

    asyncio.run(main())

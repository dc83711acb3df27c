"""The same little program with the original library and with `ottla.compat`: what they print is the same."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from itertools import count

import pytest

from ottla.client.errors import SettingsError
from ottla.compat.not_here import NotHereError
from ottla.testing.broker import Broker

numbers = count()

KAFKA_PYTHON = """
from {module} import KafkaConsumer, KafkaProducer, TopicPartition
{admin_import}

admin = KafkaAdminClient(bootstrap_servers="{servers}")
admin.create_topics([NewTopic("{topic}", num_partitions=3, replication_factor=1)])
admin.close()

producer = KafkaProducer(bootstrap_servers="{servers}", value_serializer=str.encode, key_serializer=str.encode)
told = []
for number in range(20):
    future = producer.send("{topic}", f"value {{number}}", key=f"key {{number % 5}}", headers=[("n", b"%d" % number)])
    future.add_callback(lambda number, metadata: told.append(number), number)
    sent = future.get(timeout=30)
    print("sent", sent.topic, sent.partition, sent.offset, future.succeeded())
print(sorted(producer.partitions_for("{topic}")))
producer.flush()
producer.close()
print(len(told))

consumer = KafkaConsumer(
    "{topic}",
    bootstrap_servers="{servers}",
    group_id="{group}",
    auto_offset_reset="earliest",
    enable_auto_commit=False,
    consumer_timeout_ms=3000,
    value_deserializer=bytes.decode,
)
seen = []
for record in consumer:
    seen.append((record.partition, record.offset, record.key, record.value, record.headers, record.timestamp_type))
    if len(seen) == 20:
        break
for each in sorted(seen):
    print(each)
consumer.commit()
places = [TopicPartition("{topic}", number) for number in range(3)]
print({{place: consumer.committed(place) for place in places}})
print(sorted(consumer.beginning_offsets(places).items()), sorted(consumer.end_offsets(places).items()))
print(sorted(consumer.assignment()) == places, consumer.subscription())
consumer.seek(places[0], 0)
print(consumer.position(places[0]))
consumer.pause(places[1])
print(consumer.paused())
print(sorted(consumer.partitions_for_topic("{topic}")))
consumer.close()
"""

AIOKAFKA = """
import asyncio
from {module} import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition


async def main():
    async with AIOKafkaProducer(bootstrap_servers="{servers}") as producer:
        for number in range(20):
            future = await producer.send("{topic}", b"value %d" % number, key=b"key %d" % (number % 5))
            sent = await future
            print("sent", sent.topic, sent.partition, sent.offset, repr(sent.topic_partition))
        sent = await producer.send_and_wait("{topic}", b"last", partition=0, headers=[("a", b"1")])
        print(sent.partition, sorted(await producer.partitions_for("{topic}")))

    consumer = AIOKafkaConsumer(
        "{topic}",
        bootstrap_servers="{servers}",
        group_id="{group}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    seen = []
    async for record in consumer:
        headers = list(record.headers)
        seen.append((record.partition, record.offset, record.key, record.value, headers, record.timestamp_type))
        if len(seen) == 21:
            break
    for each in sorted(seen):
        print(each)
    places = [TopicPartition("{topic}", number) for number in range(3)]
    await consumer.commit({{places[0]: 1}})
    print([await consumer.committed(place) for place in places])
    print(sorted((await consumer.end_offsets(places)).items()))
    consumer.seek(places[0], 0)
    found = await consumer.getmany(timeout_ms=5000, max_records=1)
    print([(place, [record.offset for record in records]) for place, records in found.items()])
    await consumer.stop()


asyncio.run(main())
"""

CONFLUENT = """
{confluent_import}

admin = AdminClient({{"bootstrap.servers": "{servers}"}})
print({{name: future.result() for name, future in admin.create_topics([NewTopic("{topic}", 3, 1)]).items()}})

producer = Producer({{"bootstrap.servers": "{servers}"}})
told = []
for number in range(20):
    producer.produce(
        "{topic}",
        f"value {{number}}",
        f"key {{number % 5}}",
        on_delivery=lambda error, message: told.append(
            (error, message.topic(), message.partition(), message.offset(), message.key(), message.value())
        ),
        headers={{"n": str(number)}},
    )
    producer.poll(0)
print(producer.flush(30), len(producer))
for each in sorted(told, key=lambda each: each[1:]):
    print(each)

consumer = Consumer({{"bootstrap.servers": "{servers}", "group.id": "{group}", "auto.offset.reset": "earliest",
    "enable.auto.commit": False}})
consumer.subscribe(["{topic}"])
seen = []
while len(seen) < 20:
    message = consumer.poll(1.0)
    if message is None:
        continue
    if message.error():
        raise KafkaException(message.error())
    seen.append(
        (message.partition(), message.offset(), message.key(), message.value(), message.headers(),
         message.timestamp()[0])
    )
for each in sorted(seen):
    print(each)
places = [TopicPartition("{topic}", number) for number in range(3)]
print(sorted((each.partition, each.offset) for each in consumer.commit(offsets=[TopicPartition("{topic}", 0, 1)],
    asynchronous=False)))
print([(each.topic, each.partition, each.offset) for each in consumer.committed(places)])
print([consumer.get_watermark_offsets(place) for place in places])
filled = [place for place in places if consumer.get_watermark_offsets(place)[1]]
print([(each.partition, each.offset) for each in consumer.position(filled)])
consumer.close()
"""

PROGRAMS = {
    "kafka_python": (
        KAFKA_PYTHON,
        {"module": "kafka", "admin_import": "from kafka.admin import KafkaAdminClient, NewTopic"},
        {
            "module": "ottla.compat.kafka_python",
            "admin_import": "from ottla.compat.kafka_python import KafkaAdminClient, NewTopic",
        },
    ),
    "aiokafka": (AIOKAFKA, {"module": "aiokafka"}, {"module": "ottla.compat.aiokafka"}),
    "confluent": (
        CONFLUENT,
        {
            "confluent_import": "from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition\n"
            "from confluent_kafka.admin import AdminClient, NewTopic"
        },
        {
            "confluent_import": "from ottla.compat.confluent import (AdminClient, Consumer, KafkaException, NewTopic,"
            " Producer, TopicPartition)"
        },
    ),
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"num.partitions": "3"}) as broker:
        yield broker.bootstrap_servers


def output_of(program: str, servers: str, names: dict[str, str]) -> str:
    topic = f"compat-{next(numbers)}"
    code = program.format(servers=servers, topic=topic, group=f"group-{topic}", **names)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.replace(topic, "TOPIC")


@pytest.mark.parametrize("library", PROGRAMS)
def test_the_same_program_prints_the_same(library: str, servers: str) -> None:
    program, original, ours = PROGRAMS[library]
    assert output_of(program, servers, ours) == output_of(program, servers, original)


@pytest.mark.parametrize(
    ("library", "name", "settings", "missing"),
    [
        ("kafka_python", "KafkaAdminClient", {"bootstrap_servers": "127.0.0.1:1"}, "describe_configs"),
        ("aiokafka", "AIOKafkaProducer", {"bootstrap_servers": "127.0.0.1:1"}, "create_batch"),
        ("aiokafka", "AIOKafkaConsumer", {"bootstrap_servers": "127.0.0.1:1"}, "last_poll_timestamp"),
    ],
)
def test_what_is_missing_says_so(library: str, name: str, settings: dict[str, str], missing: str) -> None:
    client = getattr(importlib.import_module(f"ottla.compat.{library}"), name)(**settings)
    with pytest.raises(NotHereError, match=f"{name}.{missing} of .* is not here: "):
        getattr(client, missing)
    if name == "KafkaAdminClient":
        client.close()


def test_a_setting_that_is_refused_says_why() -> None:
    module = importlib.import_module("ottla.compat.kafka_python")
    with pytest.raises(SettingsError, match="socks5_proxy is not here: there is no proxy"):
        module.KafkaProducer(bootstrap_servers="127.0.0.1:1", socks5_proxy="x")

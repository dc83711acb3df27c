"""The types that a user of the clients sees, as `mypy --strict` tells them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"

RIGHT = """
from dataclasses import dataclass
from uuid import UUID

import ottla
from ottla import aio
from ottla.client import serializers
from ottla.client.producer.deliveries import RecordFuture


@dataclass
class Order:
    number: int


plain = ottla.Producer(bootstrap_servers="127.0.0.1:9092")
keyed = ottla.Producer(bootstrap_servers="127.0.0.1:9092", key_serializer=serializers.text)
orders = aio.Producer(
    {"bootstrap.servers": "127.0.0.1:9092"},
    key_serializer=serializers.uuid_text,
    value_serializer=serializers.dataclass_values(Order),
)
future: RecordFuture = plain.send("orders", b"value", b"key")
where: tuple[str, int, int] = (future.result().topic, future.result().partition, future.result().offset)
keyed.send("orders", b"value", "key")
registry = serializers.SchemaRegistry("http://127.0.0.1:8081")
typed = ottla.Producer(
    bootstrap_servers="127.0.0.1:9092", value_serializer=serializers.AvroSerde(registry, "string", kind=Order)
)
typed.send("orders", Order(7))
untyped = ottla.Producer(
    bootstrap_servers="127.0.0.1:9092", value_serializer=serializers.JsonSchemaSerde(registry, {"type": "object"})
)
untyped.send("orders", {"number": 7})


records = ottla.Consumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="g")
texts = aio.Consumer(
    {"bootstrap.servers": "127.0.0.1:9092", "group.id": "g"},
    key_deserializer=serializers.text,
    value_deserializer=serializers.dataclass_values(Order),
)
value: bytes | None = next(iter(records)).value
taken: dict[ottla.TopicPartition, list[ottla.ConsumerRecord[bytes, bytes]]] = records.poll()


admin = ottla.Admin(bootstrap_servers="127.0.0.1:9092")
made = admin.create_topic("orders", partitions=3)
outcomes = admin.create_topics([ottla.NewTopic("orders")], timeout_s=5)
place = ottla.TopicPartition("orders", 0)
lag: int | None = admin.lag("billing")[place].lag
asynchronous = aio.Admin({"bootstrap.servers": "127.0.0.1:9092"})


async def administer() -> int:
    await asynchronous.alter_config(ottla.ConfigResource.topic("orders"), {"retention.ms": None})
    return (await asynchronous.list_offset(place, ottla.OffsetSpec.LATEST)).offset


async def read() -> int:
    async for record in texts:
        if record.value is not None:
            return record.value.number
    async for batch in texts.batches():
        await batch.commit()
    await texts.process(lambda record: print(record.key), order="partition")
    return 0


async def main() -> ottla.RecordMetadata:
    async with orders.transaction() as t:
        t.send("orders", Order(7), UUID(int=1))
        await t.send_offsets({ottla.TopicPartition("orders", 0): 7}, "group")
    return await orders.send("orders", Order(7))
"""

REVEALED = {
    "plain": "ottla.client.producer.blocking.Producer[bytes, bytes]",
    "keyed": "ottla.client.producer.blocking.Producer[str, bytes]",
    "orders": "ottla.client.producer.producer.Producer[uuid.UUID, {module}.Order]",
    "records": "ottla.client.consumer.blocking.Consumer[bytes, bytes]",
    "made": "ottla.client.admin.topics.CreatedTopic",
    "outcomes": "dict[str, ottla.client.admin.topics.CreatedTopic | ottla.errors.ApiError]",
    "texts": "ottla.client.consumer.consumer.Consumer[str, {module}.Order]",
}

WRONG = {
    'plain.send("orders", "text")': "incompatible type",
    'orders.send("orders", b"value")': "incompatible type",
    'orders.send("orders", Order(7), "key")': "incompatible type",
    'admin.create_topic("orders", partitions="3")': "incompatible type",
    'admin.create_topic("orders", partition_count=3)': "Unexpected keyword argument",
    "offset: int = admin.lag('billing')[place].lag": "Incompatible types",
    "plain.sent()": "has no attribute",
    "text: str = next(iter(records)).value": "Incompatible types",
    'records.process(lambda record: None, order="random")': "incompatible type",
}


@pytest.fixture(scope="module")
def judgement(tmp_path_factory) -> str:
    """What mypy says of a program with right and wrong lines."""
    directory = tmp_path_factory.mktemp("types")
    lines = [RIGHT, *(f"reveal_type({name})" for name in REVEALED), *WRONG]
    (directory / "program.py").write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(directory / "cache"), "program.py"]
    config = directory / "mypy.ini"
    config.write_text(
        "[mypy]\nfollow_imports = silent\n[mypy-lz4.*,cramjam.*,pyarrow.*]\nignore_missing_imports = True\n"
    )
    done = subprocess.run(
        [*command, "--config-file", str(config)],
        cwd=directory,
        env={**os.environ, "MYPYPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", REVEALED)
def test_a_client_knows_its_keys_and_values(judgement, name):
    assert f'Revealed type is "{REVEALED[name].format(module="program")}"' in judgement, judgement


def test_wrong_lines_are_found_and_right_ones_are_not(judgement):
    errors = [line for line in judgement.splitlines() if ": error:" in line]
    assert len(errors) == len(WRONG), judgement
    for message, line in zip(WRONG.values(), errors, strict=True):
        assert message in line

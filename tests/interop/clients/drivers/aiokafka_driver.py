"""aiokafka as a driver; `steps` says how it is spoken to."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError
from steps import ROUND, decoded, decoded_headers, encoded, encoded_headers, raise_for, serve

CONNECTION: dict[str, Any] = {"bootstrap_servers": sys.argv[1]}
WAIT_S = 100


async def use(bootstrap: str, security: dict[str, str]) -> None:
    CONNECTION.clear()
    CONNECTION.update(bootstrap_servers=bootstrap, security_protocol=security["protocol"])
    if "ca" in security:
        CONNECTION.update(ssl_context=ssl.create_default_context(cafile=security["ca"]))
    if "mechanism" in security:
        CONNECTION.update(sasl_mechanism=security["mechanism"])
    if "token" in security:
        CONNECTION.update(sasl_oauth_token_provider=_FromFile(security["token"]))
    elif "mechanism" in security:
        CONNECTION.update(sasl_plain_username=security["username"], sasl_plain_password=security["password"])


class _FromFile(AbstractTokenProvider):  # type: ignore[misc]  # the package is not typed
    def __init__(self, path: str) -> None:
        self._path = path

    async def token(self) -> str:
        return Path(self._path).read_text()


async def stream(topic: str, until: str) -> dict[str, int]:
    sent = 0
    async with AIOKafkaProducer(**CONNECTION, acks="all") as producer:
        while not os.path.exists(until):
            numbers = range(sent, sent + ROUND)
            waiting = [await producer.send(topic, b"%d" % number, partition=0) for number in numbers]
            await asyncio.wait_for(asyncio.gather(*waiting), WAIT_S)
            sent += ROUND
    return {"sent": sent}


async def hello() -> dict[str, str]:
    return {"version": aiokafka.__version__}


async def create_topic(topic: str, partitions: int, configs: dict[str, str]) -> None:
    async with admin_client() as admin:
        _raise_first((await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])).topic_errors)


async def add_partitions(topic: str, partitions: int) -> None:
    async with admin_client() as admin:
        await admin.create_partitions({topic: NewPartitions(partitions)})


async def delete_topic(topic: str) -> None:
    async with admin_client() as admin:
        _raise_first((await admin.delete_topics([topic])).topic_error_codes)


async def describe_topic(topic: str) -> dict[str, int]:
    async with admin_client() as admin:
        (found,) = await admin.describe_topics([topic])
    raise_for(found["error_code"])
    return {"partitions": len(found["partitions"])}


async def describe_cluster() -> dict[str, Any]:
    async with admin_client() as admin:
        found = await admin.describe_cluster()
    return {
        "cluster_id": found["cluster_id"],
        "controller": found["controller_id"],
        "brokers": [{"id": each["node_id"], "host": each["host"], "port": each["port"]} for each in found["brokers"]],
    }


async def describe_configs(topic: str) -> dict[str, str | None]:
    async with admin_client() as admin:
        (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    code, message, _kind, _name, entries = answer.resources[0]
    raise_for(code, message)
    return {entry[0]: entry[1] for entry in entries}


async def alter_configs(topic: str, configs: dict[str, str]) -> None:
    async with admin_client() as admin:
        (answer,) = await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=configs)])
    code, message, *_ = answer.resources[0]
    raise_for(code, message)


async def delete_records(topic: str, partition: int, before: int) -> dict[str, int]:
    async with admin_client() as admin:
        (low_watermark,) = (
            await admin.delete_records({TopicPartition(topic, partition): RecordsToDelete(before)})
        ).values()
    return {"low_watermark": low_watermark}


async def list_offsets(topic: str, partition: int, at: str | int) -> dict[str, int]:
    where = TopicPartition(topic, partition)
    async with consumer_client() as consumer:
        if isinstance(at, int):
            found = (await consumer.offsets_for_times({where: at}))[where]
            return {"offset": -1 if found is None else found.offset}
        ask = consumer.beginning_offsets if at == "earliest" else consumer.end_offsets
        return {"offset": (await ask([where]))[where]}


async def produce(
    topic: str, acks: str, codec: str, idempotent: bool, records: list[dict[str, Any]]
) -> dict[str, list[int | None]]:
    producer = AIOKafkaProducer(
        **CONNECTION,
        acks="all" if acks == "all" else int(acks),
        compression_type=None if codec == "none" else codec,
        enable_idempotence=idempotent,
        linger_ms=20,
        max_request_size=8 << 20,
    )
    async with producer:
        sent = [
            await producer.send(
                topic,
                key=decoded(record["key"]),
                value=decoded(record["value"]),
                partition=record["partition"],
                headers=decoded_headers(record["headers"]),
                timestamp_ms=record["timestamp"],
            )
            for record in records
        ]
        stored = await asyncio.wait_for(asyncio.gather(*sent), WAIT_S)
    # With acks=0 there is nothing to tell.
    return {"offsets": [None if each is None else each.offset for each in stored]}


async def consume(topic: str, partitions: list[int], start: dict[str, int], count: int) -> dict[str, list[Any]]:
    places = [TopicPartition(topic, each) for each in partitions]
    async with consumer_client() as consumer:
        consumer.assign(places)
        if "timestamp" in start:
            found_offsets = await consumer.offsets_for_times(dict.fromkeys(places, start["timestamp"]))
            starts = {place: found.offset for place, found in found_offsets.items()}
        else:
            starts = dict.fromkeys(places, start["offset"])
        for place, offset in starts.items():
            consumer.seek(place, offset)
        found: list[Any] = []
        async with asyncio.timeout(WAIT_S):
            while len(found) < count:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    found += records
    return {
        "records": [
            {
                "partition": record.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": encoded(record.key),
                "value": encoded(record.value),
                "headers": encoded_headers(record.headers),
            }
            for record in found
        ]
    }


async def transact(topic: str, transactional_id: str, values: list[str], commit: bool) -> None:
    async with AIOKafkaProducer(**CONNECTION, transactional_id=transactional_id) as producer:
        await producer.begin_transaction()
        for value in values:
            await producer.send(topic, decoded(value), partition=0)
        await producer.flush()
        await (producer.commit_transaction() if commit else producer.abort_transaction())


async def copy(source: str, target: str, group: str, transactional_id: str, count: int) -> None:
    consumer = AIOKafkaConsumer(
        source, **CONNECTION, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    async with (
        consumer,
        AIOKafkaProducer(**CONNECTION, transactional_id=transactional_id) as producer,
        asyncio.timeout(WAIT_S),
    ):
        copied = 0
        while copied < count:
            for place, records in (await consumer.getmany(timeout_ms=1000, max_records=20)).items():
                async with producer.transaction():
                    for record in records:
                        await producer.send(target, record.value, partition=0)
                    await producer.send_offsets_to_transaction({place: records[-1].offset + 1}, group)
                copied += len(records)


async def read_in_group(topic: str, group: str, count: int) -> dict[str, list[Any]]:
    values: list[Any] = []
    async with member_client(topic, group) as member, asyncio.timeout(WAIT_S):
        while len(values) < count:
            for records in (await member.getmany(timeout_ms=1000)).values():
                values += [encoded(record.value) for record in records]
        await member.commit()
    return {"values": values}


async def share_in_group(topic: str, group: str, partitions: int) -> dict[str, list[int]]:
    async with member_client(topic, group) as one, asyncio.timeout(WAIT_S):
        async with member_client(topic, group) as two:
            shares = [0, 0]
            while 0 in shares or sum(shares) != partitions:
                await asyncio.sleep(0.05)
                shares = [len(one.assignment()), len(two.assignment())]
        while len(one.assignment()) != partitions:
            await asyncio.sleep(0.05)
    return {"shares": shares}


class admin_client:  # noqa: N801  used as a function
    """The admin client, closed at the end: it is no context manager itself."""

    async def __aenter__(self) -> AIOKafkaAdminClient:
        self._client = AIOKafkaAdminClient(**CONNECTION)
        await self._client.start()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()


def member_client(topic: str, group: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic,
        **CONNECTION,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        session_timeout_ms=30_000,
    )


def consumer_client() -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        **CONNECTION,
        group_id=None,
        enable_auto_commit=False,
        fetch_max_wait_ms=100,
        isolation_level="read_committed",
        max_partition_fetch_bytes=8 << 20,
    )


def _raise_first(errors: list[tuple[Any, ...]]) -> None:
    for _topic, code, *message in errors:
        raise_for(code, message[0] if message else None)


def _code_of(error: Exception) -> int | None:
    return getattr(error, "errno", None) if isinstance(error, KafkaError) else None


def _blocking(step: Callable[..., Coroutine[Any, Any, Any]], loop: asyncio.Runner) -> Callable[..., Any]:
    return lambda **parameters: loop.run(step(**parameters))


STEPS = (
    use,
    stream,
    hello,
    create_topic,
    add_partitions,
    delete_topic,
    describe_topic,
    describe_cluster,
    describe_configs,
    alter_configs,
    delete_records,
    list_offsets,
    produce,
    consume,
    transact,
    copy,
    read_in_group,
    share_in_group,
)
with asyncio.Runner() as runner:
    serve({step.__name__: _blocking(step, runner) for step in STEPS}, _code_of)

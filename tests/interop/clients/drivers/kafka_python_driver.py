"""kafka-python as a driver, 2.0.2 and 3.x: the producer and the consumer are alike, the admin client is not."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic
from kafka.errors import KafkaError
from steps import ROUND, RefusedError, decoded, decoded_headers, encoded, encoded_headers, raise_for, serve

CONNECTION: dict[str, Any] = {"bootstrap_servers": sys.argv[1]}
WAIT_S = 100
IS_3 = not kafka.__version__.startswith("2.0.")
admin = KafkaAdminClient(**CONNECTION)


def use(bootstrap: str, security: dict[str, str]) -> None:
    CONNECTION.clear()
    CONNECTION.update(bootstrap_servers=bootstrap, security_protocol=security["protocol"])
    if "ca" in security:
        CONNECTION.update(ssl_cafile=security["ca"])
    if "mechanism" in security:
        CONNECTION.update(sasl_mechanism=security["mechanism"])
    if "token" in security:
        CONNECTION.update(sasl_oauth_token_provider=_token_provider(security["token"]))
    elif "mechanism" in security:
        CONNECTION.update(sasl_plain_username=security["username"], sasl_plain_password=security["password"])


def _token_provider(path: str) -> Any:
    if IS_3:
        from kafka.net.sasl.oauth import AbstractTokenProvider
    else:
        from kafka.oauth.abstract import AbstractTokenProvider

    class FromFile(AbstractTokenProvider):
        def token(self) -> str:
            return Path(path).read_text()

    return FromFile()


def stream(topic: str, until: str) -> dict[str, int]:
    producer = KafkaProducer(**CONNECTION, acks="all", max_block_ms=WAIT_S * 1000, retries=10)  # 2.0.2 has none
    sent = 0
    try:
        while not os.path.exists(until):
            futures = [producer.send(topic, b"%d" % number, partition=0) for number in range(sent, sent + ROUND)]
            for future in futures:
                future.get(WAIT_S)
            sent += ROUND
    finally:
        producer.close(WAIT_S)
    return {"sent": sent}


def hello() -> dict[str, str]:
    return {"version": kafka.__version__}


def create_topic(topic: str, partitions: int, configs: dict[str, str]) -> None:
    if IS_3:
        admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1, "configs": configs}})
    else:
        # It raises where the topic exists already or the controller moved, and for nothing else.
        answer = admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])
        _raise_first(answer.topic_errors)


def add_partitions(topic: str, partitions: int) -> None:
    if IS_3:
        admin.create_partitions({topic: partitions})
    else:
        _raise_first(admin.create_partitions({topic: NewPartitions(partitions)}).topic_errors)


def delete_topic(topic: str) -> None:
    answer = admin.delete_topics([topic])
    if not IS_3:
        _raise_first(answer.topic_error_codes)


def describe_topic(topic: str) -> dict[str, int]:
    (found,) = admin.describe_topics([topic])
    raise_for(found["error_code"])
    return {"partitions": len(found["partitions"])}


def describe_cluster() -> dict[str, Any]:
    found = admin.describe_cluster()
    return {
        "cluster_id": found["cluster_id"],
        "controller": found["controller_id"],
        "brokers": [
            {"id": each["broker_id" if "broker_id" in each else "node_id"], "host": each["host"], "port": each["port"]}
            for each in found["brokers"]
        ],
    }


def describe_configs(topic: str) -> dict[str, str | None]:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    if IS_3:
        (found,) = admin.describe_configs([resource], config_filter="all").values()
        return {name: entry["value"] for name, entry in found[topic].items()}
    (answer,) = admin.describe_configs([resource])
    code, message, _kind, _name, entries = answer.resources[0]
    raise_for(code, message)
    return {entry[0]: entry[1] for entry in entries}


def alter_configs(topic: str, configs: dict[str, str]) -> None:
    answer = admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=configs)])
    if not IS_3:
        code, message, *_ = answer.resources[0]
        raise_for(code, message)


def delete_records(topic: str, partition: int, before: int) -> dict[str, int]:
    (found,) = admin.delete_records({TopicPartition(topic, partition): before}).values()
    return {"low_watermark": found["low_watermark"]}


def list_offsets(topic: str, partition: int, at: str | int) -> dict[str, int]:
    where = TopicPartition(topic, partition)
    if IS_3:
        from kafka.admin import OffsetSpec

        spec = at if isinstance(at, int) else getattr(OffsetSpec, at.upper())
        return {"offset": admin.list_partition_offsets({where: spec})[where].offset}
    consumer = _consumer()
    if isinstance(at, int):
        found = consumer.offsets_for_times({where: at})[where]
        offset = -1 if found is None else found.offset
    else:
        ask = consumer.beginning_offsets if at == "earliest" else consumer.end_offsets
        offset = ask([where])[where]
    consumer.close()
    return {"offset": offset}


def produce(
    topic: str, acks: str, codec: str, idempotent: bool, records: list[dict[str, Any]]
) -> dict[str, list[int | None]]:
    producer = KafkaProducer(
        **CONNECTION,
        acks="all" if acks == "all" else int(acks),
        compression_type=None if codec == "none" else codec,
        linger_ms=20,
        max_request_size=8 << 20,
        max_block_ms=WAIT_S * 1000,
        **({"enable_idempotence": idempotent} if IS_3 else {}),
    )
    try:
        futures = [
            producer.send(
                topic,
                key=decoded(record["key"]),
                value=decoded(record["value"]),
                partition=record["partition"],
                headers=decoded_headers(record["headers"]),
                timestamp_ms=record["timestamp"],
            )
            for record in records
        ]
        return {"offsets": [future.get(WAIT_S).offset for future in futures]}
    finally:
        producer.close(WAIT_S)


def consume(topic: str, partitions: list[int], start: dict[str, int], count: int) -> dict[str, list[Any]]:
    consumer = _consumer()
    places = [TopicPartition(topic, each) for each in partitions]
    consumer.assign(places)
    if "timestamp" in start:
        found_offsets = consumer.offsets_for_times(dict.fromkeys(places, start["timestamp"]))
        starts = {place: found.offset for place, found in found_offsets.items()}
    else:
        starts = dict.fromkeys(places, start["offset"])
    for place, offset in starts.items():
        consumer.seek(place, offset)
    found: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} records came"
        for records in consumer.poll(timeout_ms=1000).values():
            found += [
                {
                    "partition": record.partition,
                    "offset": record.offset,
                    "timestamp": record.timestamp,
                    "key": encoded(record.key),
                    "value": encoded(record.value),
                    "headers": encoded_headers(record.headers),
                }
                for record in records
            ]
    consumer.close()
    return {"records": found}


def transact(topic: str, transactional_id: str, values: list[str], commit: bool) -> None:
    producer = _transactional(transactional_id)
    try:
        producer.begin_transaction()
        for value in values:
            producer.send(topic, decoded(value), partition=0)
        if commit:
            producer.commit_transaction()
        else:
            producer.flush(WAIT_S)
            producer.abort_transaction()
    finally:
        producer.close(WAIT_S)


def copy(source: str, target: str, group: str, transactional_id: str, count: int) -> None:
    consumer = KafkaConsumer(
        source, **CONNECTION, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    producer = _transactional(transactional_id)
    try:
        copied = 0
        deadline = time.monotonic() + WAIT_S
        while copied < count:
            assert time.monotonic() < deadline, f"only {copied} of {count} records came"
            for place, records in consumer.poll(timeout_ms=1000, max_records=20).items():
                producer.begin_transaction()
                for record in records:
                    producer.send(target, record.value, partition=0)
                offsets = {place: kafka.OffsetAndMetadata(records[-1].offset + 1, "", -1)}
                producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                producer.commit_transaction()
                copied += len(records)
    finally:
        producer.close(WAIT_S)
        consumer.close()


def _transactional(transactional_id: str) -> KafkaProducer:
    producer = KafkaProducer(**CONNECTION, transactional_id=transactional_id)
    producer.init_transactions()
    return producer


def _consumer() -> KafkaConsumer:
    return KafkaConsumer(
        **CONNECTION,
        group_id=None,
        enable_auto_commit=False,
        fetch_max_wait_ms=100,
        max_partition_fetch_bytes=8 << 20,
        **({"isolation_level": "read_committed"} if IS_3 else {}),
    )


def read_in_group(topic: str, group: str, count: int) -> dict[str, list[Any]]:
    member = _member(topic, group)
    values: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while len(values) < count:
        assert time.monotonic() < deadline, f"only {len(values)} of {count} records came"
        for records in member.poll(timeout_ms=1000).values():
            values += [encoded(record.value) for record in records]
    member.commit()
    member.close()
    return {"values": values}


def share_in_group(topic: str, group: str, partitions: int) -> dict[str, list[int]]:
    deadline = time.monotonic() + WAIT_S

    def wait_until(condition: Any) -> None:
        while not condition():
            assert time.monotonic() < deadline, "the members did not come to terms"
            time.sleep(0.02)

    with _Polling(topic, group) as one:
        with _Polling(topic, group) as two:
            wait_until(lambda: one.owned and two.owned and len(one.owned) + len(two.owned) == partitions)
            shares = [len(one.owned), len(two.owned)]
        wait_until(lambda: len(one.owned) == partitions)
    return {"shares": shares}


class _Polling:
    """A member in a thread of its own: in version 2.0.2 a poll lasts as long as its rebalance.

    In 3.0.12 a poll that ends in the middle of a join may leave the member spinning in the next one with partitions
    that it never reads, whatever the broker answers; so polls here are longer than a join.
    """

    def __init__(self, topic: str, group: str) -> None:
        self._place = topic, group
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self.owned: set[TopicPartition] = set()

    def _poll(self) -> None:
        member = _member(*self._place)
        while not self._is_over.is_set():
            member.poll(timeout_ms=1_000)
            self.owned = set(member.assignment())
        member.close()

    def __enter__(self) -> _Polling:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(WAIT_S)


def _member(topic: str, group: str) -> KafkaConsumer:
    return KafkaConsumer(
        topic,
        **CONNECTION,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        session_timeout_ms=30_000,
    )


def _raise_first(errors: list[tuple[Any, ...]]) -> None:
    for _topic, code, *message in errors:
        raise_for(code, message[0] if message else None)


def _code_of(error: Exception) -> int | None:
    return (
        getattr(error, "errno", None) if isinstance(error, KafkaError) and not isinstance(error, RefusedError) else None
    )


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
serve({step.__name__: step for step in STEPS}, _code_of)

"""confluent-kafka as a driver, from 2.0.2 to the newest; `steps` says how it is spoken to."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic
from steps import ROUND, RefusedError, decoded, decoded_headers, encoded, encoded_headers, serve

CONNECTION: dict[str, Any] = {"bootstrap.servers": sys.argv[1], "log_level": 2}
WAIT_S = 100
# It goes on trying after these, and reports them beside its calls.
HOPELESS = (KafkaError._AUTHENTICATION, KafkaError._SSL)
TOKEN_LIFETIME_S = 600  # after which it asks for the next one; the broker goes by what the token says
admin = AdminClient(CONNECTION)


def use(bootstrap: str, security: dict[str, str]) -> None:
    CONNECTION.clear()
    CONNECTION.update({"bootstrap.servers": bootstrap, "log_level": 2, "security.protocol": security["protocol"]})
    if "ca" in security:
        CONNECTION["ssl.ca.location"] = security["ca"]
        CONNECTION["ssl.endpoint.identification.algorithm"] = "https"  # not yet the default in 2.0.2
    if "mechanism" in security:
        CONNECTION["sasl.mechanism"] = security["mechanism"]
    if "token" in security:
        CONNECTION["oauth_cb"] = lambda _: (Path(security["token"]).read_text(), time.time() + TOKEN_LIFETIME_S)
    elif "mechanism" in security:
        CONNECTION.update({"sasl.username": security["username"], "sasl.password": security["password"]})


class _Failures:
    """What a producer could not deliver, and what it reports beside that; a broker that goes away is no failure."""

    def __init__(self) -> None:
        self.found: list[KafkaError] = []

    def note(self, error: KafkaError | None, _: Message | None = None) -> None:
        if error is not None:
            self.found.append(error)

    def note_hopeless(self, error: KafkaError) -> None:
        if error.code() in HOPELESS:
            self.found.append(error)


def _flush(producer: Producer, failures: _Failures) -> None:
    """Until all are delivered, or there is no hope."""
    deadline = time.monotonic() + WAIT_S
    while len(producer) and not failures.found:
        producer.poll(0.1)
        assert time.monotonic() < deadline, f"{len(producer)} records were not sent"
    if failures.found:
        producer.purge()
        producer.flush(WAIT_S)
        raise KafkaException(failures.found[0])


def stream(topic: str, until: str) -> dict[str, int]:
    failures = _Failures()
    producer = Producer({**CONNECTION, "acks": "all", "error_cb": failures.note_hopeless})
    sent = 0
    while not os.path.exists(until):
        for number in range(sent, sent + ROUND):
            producer.produce(topic, b"%d" % number, partition=0, on_delivery=failures.note)
        _flush(producer, failures)
        sent += ROUND
    return {"sent": sent}


def hello() -> dict[str, str]:
    return {"version": str(confluent_kafka.__version__)}


def create_topic(topic: str, partitions: int, configs: dict[str, str]) -> None:
    _result(admin.create_topics([NewTopic(topic, partitions, 1, config=configs)]))


def add_partitions(topic: str, partitions: int) -> None:
    _result(admin.create_partitions([NewPartitions(topic, partitions)]))


def delete_topic(topic: str) -> None:
    _result(admin.delete_topics([topic]))


def describe_topic(topic: str) -> dict[str, int]:
    found = admin.list_topics(topic, timeout=WAIT_S).topics[topic]
    if found.error is not None:
        raise RefusedError(found.error.code(), found.error.str())
    return {"partitions": len(found.partitions)}


def describe_cluster() -> dict[str, Any]:
    found = admin.list_topics(timeout=WAIT_S)
    return {
        "cluster_id": found.cluster_id,
        "controller": found.controller_id,
        "brokers": [{"id": each.id, "host": each.host, "port": each.port} for each in found.brokers.values()],
    }


def describe_configs(topic: str) -> dict[str, str | None]:
    found = _result(admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]))
    return {name: entry.value for name, entry in found.items()}


def alter_configs(topic: str, configs: dict[str, str]) -> None:
    if not hasattr(admin, "incremental_alter_configs"):
        _result(admin.alter_configs([ConfigResource(ConfigResource.Type.TOPIC, topic, set_config=configs)]))
        return
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry

    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    _result(admin.incremental_alter_configs([resource]))


def delete_records(topic: str, partition: int, before: int) -> dict[str, int]:
    return {"low_watermark": _result(admin.delete_records([TopicPartition(topic, partition, before)])).low_watermark}


def list_offsets(topic: str, partition: int, at: str | int) -> dict[str, int]:
    if hasattr(admin, "list_offsets"):
        from confluent_kafka.admin import OffsetSpec

        spec = OffsetSpec.for_timestamp(at) if isinstance(at, int) else getattr(OffsetSpec, at)()
        return {"offset": _result(admin.list_offsets({TopicPartition(topic, partition): spec})).offset}
    consumer = _consumer()
    try:
        if isinstance(at, int):
            asked = [TopicPartition(topic, partition, at)]
            return {"offset": consumer.offsets_for_times(asked, timeout=WAIT_S)[0].offset}
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=WAIT_S)
        return {"offset": low if at == "earliest" else high}
    finally:
        consumer.close()


def produce(
    topic: str, acks: str, codec: str, idempotent: bool, records: list[dict[str, Any]]
) -> dict[str, list[int | None]]:
    failures = _Failures()
    producer = Producer(
        {
            **CONNECTION,
            "acks": acks,
            "compression.type": codec,
            "enable.idempotence": idempotent,
            "linger.ms": 20,
            "message.max.bytes": 8 << 20,
            "message.timeout.ms": WAIT_S * 1000,
            "error_cb": failures.note_hopeless,
        }
    )
    offsets: list[int | None] = [None] * len(records)

    def delivered(index: int) -> Any:
        def note(error: KafkaError | None, message: Message) -> None:
            failures.note(error)
            if error is None:
                offsets[index] = message.offset()

        return note

    for index, record in enumerate(records):
        producer.produce(
            topic,
            key=decoded(record["key"]),
            value=decoded(record["value"]),
            partition=record["partition"],
            headers=decoded_headers(record["headers"]),
            timestamp=record["timestamp"] or 0,
            on_delivery=delivered(index),
        )
    _flush(producer, failures)
    return {"offsets": offsets}


def consume(topic: str, partitions: list[int], start: dict[str, int], count: int) -> dict[str, list[Any]]:
    consumer = _consumer()
    if "timestamp" in start:
        asked = [TopicPartition(topic, each, start["timestamp"]) for each in partitions]
        consumer.assign(consumer.offsets_for_times(asked, timeout=WAIT_S))
    else:
        consumer.assign([TopicPartition(topic, each, start["offset"]) for each in partitions])
    found: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count:
        message = consumer.poll(1)
        assert time.monotonic() < deadline, f"only {len(found)} of {count} records came"
        if message is None:
            continue
        if message.error() is not None:
            raise KafkaException(message.error())
        found.append(
            {
                "partition": message.partition(),
                "offset": message.offset(),
                "timestamp": message.timestamp()[1],
                "key": encoded(message.key()),
                "value": encoded(message.value()),
                "headers": encoded_headers(message.headers()),
            }
        )
    consumer.close()
    return {"records": found}


def transact(topic: str, transactional_id: str, values: list[str], commit: bool) -> None:
    producer = _transactional(transactional_id)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, decoded(value), partition=0)
    if commit:
        producer.commit_transaction(WAIT_S)
    else:
        producer.flush(WAIT_S)
        producer.abort_transaction(WAIT_S)


def copy(source: str, target: str, group: str, transactional_id: str, count: int) -> None:
    consumer = Consumer({**CONNECTION, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    consumer.subscribe([source])
    producer = _transactional(transactional_id)
    copied = 0
    deadline = time.monotonic() + WAIT_S
    while copied < count:
        assert time.monotonic() < deadline, f"only {copied} of {count} records came"
        messages = [message for message in consumer.consume(20, 1) if message.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value(), partition=0)
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), WAIT_S)
        producer.commit_transaction(WAIT_S)
        copied += len(messages)
    consumer.close()


def read_in_group(topic: str, group: str, count: int) -> dict[str, list[Any]]:
    member = _member(topic, group)
    values: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while len(values) < count:
        assert time.monotonic() < deadline, f"only {len(values)} of {count} records came"
        values += [encoded(message.value()) for message in member.consume(20, 1) if message.error() is None]
    member.commit(asynchronous=False)
    member.close()
    return {"values": values}


def share_in_group(topic: str, group: str, partitions: int) -> dict[str, list[int]]:
    one, two = _member(topic, group), _member(topic, group)
    deadline = time.monotonic() + WAIT_S

    def poll_until(condition: Any) -> None:
        while not condition():
            assert time.monotonic() < deadline, "the members did not come to terms"
            for member in members:
                member.poll(0.05)

    members = [one, two]
    poll_until(lambda: _owned(one) and _owned(two) and len(_owned(one)) + len(_owned(two)) == partitions)
    shares = [len(_owned(one)), len(_owned(two))]
    two.close()
    members = [one]
    poll_until(lambda: len(_owned(one)) == partitions)
    one.close()
    return {"shares": shares}


def _owned(member: Consumer) -> set[int]:
    return {each.partition for each in member.assignment()}


def _member(topic: str, group: str) -> Consumer:
    pace = {"heartbeat.interval.ms": 200, "session.timeout.ms": 30_000}
    settings = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    member = Consumer({**CONNECTION, **settings, **pace})
    member.subscribe([topic])
    return member


def _transactional(transactional_id: str) -> Producer:
    producer = Producer({**CONNECTION, "transactional.id": transactional_id})
    producer.init_transactions(WAIT_S)
    return producer


def _consumer() -> Consumer:
    # The group is never joined: every partition is assigned by hand.
    return Consumer({**CONNECTION, "group.id": "unused", "enable.auto.commit": False, "fetch.wait.max.ms": 100})


def _result(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(WAIT_S)


def _code_of(error: Exception) -> int | None:
    return error.args[0].code() if isinstance(error, KafkaException) else None


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

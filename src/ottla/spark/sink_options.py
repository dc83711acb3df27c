"""The options of the sink: those of Spark's own Kafka sink, checked before a row is written. Pure.

`kafka.*` are settings of a Kafka producer: those that mean something to ours are honoured with Kafka's meaning, those
that would break the sink are refused, and the rest is named in `SinkOptions.ignored`, so that it can be reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.spark.option_reader import (
    OptionError,
    OptionReader,
    read_boolean,
    read_count,
    read_long_count,
    read_long_natural,
    read_natural,
)
from ottla.spark.security_options import Security, take_security

REFUSED: Final = {
    "kafka.key.serializer": "keys are text or bytes: cast them in the query, such as key.cast('string')",
    "kafka.value.serializer": "values are text or bytes: build them in the query, such as to_json(struct('*'))",
    "kafka.interceptor.classes": "Java classes cannot be used",
    "kafka.transactional.id": "transactions are the sink's own: write with delivery=exactly-once",
}
# Accepted because jobs have them, and without meaning here: what they ask for is so anyway, or there is nothing to set.
WITHOUT_MEANING: Final = frozenset(
    {
        "path",
        "checkpointlocation",
        "includeheaders",
        "queryname",
        "kafka.retries",
        "kafka.retry.backoff.ms",
        "kafka.retry.backoff.max.ms",
        "kafka.reconnect.backoff.ms",
        "kafka.reconnect.backoff.max.ms",
        "kafka.max.in.flight.requests.per.connection",
        "kafka.buffer.memory",
        "kafka.send.buffer.bytes",
        "kafka.receive.buffer.bytes",
        "kafka.connections.max.idle.ms",
    }
)
ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
# By the last part of a class name: whether keys decide. Other partitioners are code of Java.
PARTITIONERS: Final = {"DefaultPartitioner": True, "UniformStickyPartitioner": False}


AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"
EXACTLY_ONCE_SPELLINGS: Final = frozenset({EXACTLY_ONCE, "exactly_once", "exactlyonce"})
DECISIONS_TOPIC: Final = "__ottla_spark_decisions"
# What `ottla.spark.write_batch` names the batch of a stream by.
BATCH_OPTIONS: Final = ("ottla.batch.scope", "ottla.batch.run", "ottla.batch.id")


@dataclass(frozen=True, slots=True)
class BatchOfStream:
    """The batch of a streaming query that a batch write belongs to."""

    scope: str
    run: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All of them, understood. It travels to the executors, as plain values: so it is light to make."""

    bootstrap_servers: str
    topic: str | None = None
    client_id: str = "ottla-spark"
    acks: int = -1
    compression: str = "none"
    is_idempotent: bool = True
    hashes_keys: bool = True
    batch_bytes_max: int = 1_000_000
    request_bytes_max: int = 4 * 1024 * 1024
    linger_ms: int = 100
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    block_ms_max: int = 60_000
    metadata_age_ms_max: int = 300_000
    delivery: str = AT_LEAST_ONCE
    transaction_timeout_ms: int = 900_000
    decisions_topic: str = DECISIONS_TOPIC
    fail_on_data_loss: bool = True
    batch: BatchOfStream | None = None
    security: Security | None = None
    keeps_timestamps: bool = False  # records have the times in the column `timestamp`, and not that of writing
    ignored: tuple[str, ...] = ()  # names that mean nothing to this sink

    @property
    def is_exactly_once(self) -> bool:
        return self.delivery == EXACTLY_ONCE


def parse(options: Mapping[str, str]) -> SinkOptions:
    """The options of a query, or an `OptionError` that names the one to change."""
    reader = OptionReader(options, {})
    reader.refuse(REFUSED, "this sink")
    default = SinkOptions("")
    acks = reader.take("kafka.acks", _acks, default.acks)
    ignores_keys = reader.take("kafka.partitioner.ignore.keys", read_boolean, False)
    batch_bytes_max = max(1, reader.take("kafka.batch.size", read_natural, default.batch_bytes_max))
    request_bytes_max = reader.take("kafka.max.request.size", read_count, default.request_bytes_max)
    # As in Kafka: numbers are the default, and whoever wants fewer acknowledgements does without them.
    is_idempotent = reader.take("kafka.enable.idempotence", read_boolean, acks == ACKS["all"])
    if is_idempotent and acks != ACKS["all"]:
        raise OptionError("kafka.enable.idempotence needs kafka.acks all: remove one of the two")
    delivery = reader.take("delivery", _delivery, default.delivery)
    if delivery == EXACTLY_ONCE and not is_idempotent:
        raise OptionError(
            "delivery exactly-once needs kafka.acks all and kafka.enable.idempotence: remove what they say"
        )
    parsed = SinkOptions(
        bootstrap_servers=reader.bootstrap_servers(),
        topic=reader.take("topic", _topic, None),
        client_id=reader.take("kafka.client.id", str, default.client_id),
        acks=acks,
        compression=reader.take("kafka.compression.type", _codec, default.compression),
        is_idempotent=is_idempotent,
        hashes_keys=reader.take("kafka.partitioner.class", _partitioner, True) and not ignores_keys,
        batch_bytes_max=min(batch_bytes_max, request_bytes_max),
        request_bytes_max=request_bytes_max,
        linger_ms=reader.take("kafka.linger.ms", read_long_natural, default.linger_ms),
        delivery_timeout_ms=reader.take("kafka.delivery.timeout.ms", read_count, default.delivery_timeout_ms),
        request_timeout_ms=reader.take("kafka.request.timeout.ms", read_count, default.request_timeout_ms),
        connect_timeout_ms=reader.take(
            "kafka.socket.connection.setup.timeout.ms", read_long_count, default.connect_timeout_ms
        ),
        block_ms_max=reader.take("kafka.max.block.ms", read_long_count, default.block_ms_max),
        metadata_age_ms_max=reader.take("kafka.metadata.max.age.ms", read_long_count, default.metadata_age_ms_max),
        delivery=delivery,
        transaction_timeout_ms=reader.take("kafka.transaction.timeout.ms", read_count, default.transaction_timeout_ms),
        decisions_topic=reader.take("decisionstopic", _decisions_topic, default.decisions_topic),
        fail_on_data_loss=reader.take("failondataloss", read_boolean, default.fail_on_data_loss),
        batch=_batch(reader),
        security=take_security(reader),
        keeps_timestamps=reader.take("keeptimestamps", read_boolean, False),
        ignored=reader.ignored(WITHOUT_MEANING),
    )
    # Other options may be ignored. Whoever asks for this under another name would get duplicates without a word.
    if astray := reader.left_with(EXACTLY_ONCE_SPELLINGS):
        raise OptionError(f"{astray[0]} is not an option of this sink: write delivery {EXACTLY_ONCE}")
    if parsed.is_exactly_once and parsed.topic == parsed.decisions_topic:
        raise OptionError(f"decisionsTopic is the topic {parsed.topic} itself: decisions need one of their own")
    return parsed


def _delivery(text: str) -> str:
    if text.strip().lower() not in (AT_LEAST_ONCE, EXACTLY_ONCE):
        raise ValueError(f"write {AT_LEAST_ONCE} or {EXACTLY_ONCE}")
    return text.strip().lower()


def _decisions_topic(text: str) -> str:
    if not text.strip():
        raise ValueError("give a topic that nobody else writes to, or remove the option")
    return text


def _batch(reader: OptionReader) -> BatchOfStream | None:
    scope, run = (reader.take(name, str, "") for name in BATCH_OPTIONS[:2])
    batch_id = reader.take(BATCH_OPTIONS[2], read_long_natural, None)
    return None if batch_id is None else BatchOfStream(scope, run, batch_id)


def _topic(text: str) -> str | None:
    if not text.strip():
        raise ValueError("give a topic, or remove the option and add a column `topic`")
    return text.strip()


def _acks(text: str) -> int:
    if text.strip().lower() not in ACKS:
        raise ValueError("write all, 1 or 0")
    return ACKS[text.strip().lower()]


def _codec(text: str) -> str:
    if text.strip().lower() not in CODECS:
        raise ValueError(f"write one of {', '.join(CODECS)}")
    return text.strip().lower()


def _partitioner(text: str) -> bool:
    name = text.strip().rpartition(".")[2]
    if name not in PARTITIONERS:
        raise ValueError("Java classes cannot be used: put the number into a column `partition`")
    return PARTITIONERS[name]

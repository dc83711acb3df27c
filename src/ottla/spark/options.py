"""The options of the source: those of Spark's own Kafka source, checked before anything is read. Pure.

    options = parse({"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}, is_streaming=False)

Names are not case-sensitive, as everywhere in Spark. `kafka.*` are settings of a Kafka consumer: those that mean
something to our client are honoured, those that would break the source are refused as Spark refuses them, and the rest
is named in `SourceOptions.ignored`, so that it can be reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ottla.client.offsets import Isolation
from ottla.ids import TopicPartition
from ottla.spark.offsets import EARLIEST, LATEST, Offsets, offsets_from_json
from ottla.spark.option_reader import (
    INT64_MAX,
    OptionError,
    OptionReader,
    read_boolean,
    read_count,
    read_long_count,
    read_natural,
)
from ottla.spark.security_options import Security, take_security

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS_COLUMN: Final = "headers"
MAX_TRIGGER_DELAY_MS: Final = 15 * 60_000
ROWS_PER_BATCH: Final = 65_536  # of an Arrow batch, about
IDLE_WAIT_MS: Final = 500  # how long a stream waits for records before it tells Spark that there are none
SMALL_BATCH_OFFSETS: Final = 1000  # a batch of a stream with no more than this is read by the driver

# What Spark's source refuses, and what to do instead.
REFUSED: Final = {
    "kafka.auto.offset.reset": "set where to start with startingOffsets: earliest, latest or JSON",
    "kafka.key.deserializer": "keys are bytes: cast them in the query, such as key.cast('string')",
    "kafka.value.deserializer": "values are bytes: cast them in the query, such as value.cast('string')",
    "kafka.enable.auto.commit": "offsets are stored in the checkpoint of the query, not in a group",
    "kafka.interceptor.classes": "Java classes cannot be used",
}
# Accepted because jobs have them, and without meaning here.
WITHOUT_MEANING: Final = frozenset(
    {
        "groupidprefix",
        "fetchoffset.retryintervalms",
        "usedeprecatedoffsetfetching",
        "path",
    }
)
GROUP: Final = "group"  # as startingOffsets
BATCH_ONLY: Final = ("endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp")

_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class NoMatch(StrEnum):
    """What to do where no record is as late as the time to start from."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Topics:
    """What is read: topics by name, every topic in whose name a pattern is found, or single partitions."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading starts or ends: one place for all, an offset or a time for each partition, or a time for all."""

    option: str  # the option that says so, for messages
    place: int = EARLIEST
    is_group: bool = False  # where the group has got to; where it has no offset, at the beginning
    offsets: Offsets | None = None  # EARLIEST and LATEST may stand in place of one
    timestamps: Mapping[TopicPartition, int] | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The `kafka.*` that our client honours, under its own names."""

    client_id: str = "ottla-spark"
    timeout_ms: int = 60_000
    offset_attempts_max: int = 3  # of a stream that finds no broker, each as long as `timeout_ms`
    read_patience_ms: int = 120_000  # of a task that gets no records
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    fetch_max_bytes: int = 32 * 1024 * 1024
    partition_max_bytes: int = 8 * 1024 * 1024
    fetch_max_wait_ms: int = 500
    fetch_min_bytes: int = 1
    security: Security | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All of them, understood. It travels to the executors."""

    bootstrap_servers: str
    topics: Topics
    starting: Bound
    ending: Bound
    no_match: NoMatch = NoMatch.ERROR
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    min_offsets_per_trigger: int | None = None
    max_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS
    push_filters: bool = False  # see `datasource`: Spark mixes up the filters of a DataFrame that is used twice
    columns: tuple[str, ...] = COLUMNS
    rows_per_batch: int = ROWS_PER_BATCH
    idle_wait_ms: int = IDLE_WAIT_MS
    small_batch_offsets: int = SMALL_BATCH_OFFSETS
    group: str | None = None  # that a stream commits its progress to
    client: ClientSettings = field(default_factory=ClientSettings)
    ignored: tuple[str, ...] = ()  # names that mean nothing to this source

    @property
    def names_tasks(self) -> bool:
        """Whether the query says how many tasks it wants, or how large."""
        return self.min_partitions is not None or self.max_records_per_partition is not None


def parse(options: Mapping[str, str], *, is_streaming: bool) -> SourceOptions:
    """The options of a query, or an `OptionError` that names the one to change."""
    reader = _reader(options)
    reader.refuse(REFUSED, "this source")
    if is_streaming:
        for name in BATCH_ONLY:
            if reader.has(name):
                raise OptionError(f"{_spelled(name)} is for batch queries: a stream has no end")
    parsed = SourceOptions(
        bootstrap_servers=reader.bootstrap_servers(),
        topics=_topics(reader),
        starting=_bound(reader, "starting", LATEST if is_streaming else EARLIEST),
        ending=_bound(reader, "ending", LATEST),
        no_match=reader.take("startingoffsetsbytimestampstrategy", _no_match, NoMatch.ERROR),
        fail_on_data_loss=reader.take("failondataloss", read_boolean, True),
        min_partitions=reader.take("minpartitions", read_count, None),
        max_records_per_partition=reader.take("maxrecordsperpartition", read_long_count, None),
        min_offsets_per_trigger=reader.take("minoffsetspertrigger", read_long_count, None),
        max_offsets_per_trigger=reader.take("maxoffsetspertrigger", read_long_count, None),
        max_trigger_delay_ms=reader.take("maxtriggerdelay", _duration_ms, MAX_TRIGGER_DELAY_MS),
        push_filters=reader.take("pushfilters", read_boolean, False),
        columns=_columns(reader),
        rows_per_batch=reader.take("rowsperbatch", read_count, ROWS_PER_BATCH),
        idle_wait_ms=reader.take("idlewaitms", read_natural, IDLE_WAIT_MS),
        small_batch_offsets=reader.take("smallbatchoffsets", read_natural, SMALL_BATCH_OFFSETS),
        group=reader.take("group", _group, None) or reader.take("kafka.group.id", _group, None),
        client=_client_settings(reader),
        ignored=reader.ignored(WITHOUT_MEANING),
    )
    _check(parsed, is_streaming)
    # Other options may be ignored. Whoever asks for this under another name would get aborted records without a word.
    if astray := reader.left_with(READ_COMMITTED):
        raise OptionError(f"{astray[0]} is not an option of this source: write kafka.isolation.level read_committed")
    return parsed


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that a query gets, which are known before the rest of its options is looked at."""
    return _columns(_reader(options))


def _check(options: SourceOptions, is_streaming: bool) -> None:
    if options.starting.is_group and options.group is None:
        raise OptionError("startingOffsets is group, and there is none: name it with kafka.group.id")
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger {least} is above maxOffsetsPerTrigger {most}")
    if is_streaming:
        return
    starting, ending = options.starting, options.ending
    if _names(starting, LATEST):
        raise OptionError(f"{starting.option} of a batch query cannot be latest: it would read nothing")
    if _names(ending, EARLIEST):
        raise OptionError(f"{ending.option} of a batch query cannot be earliest: it would read nothing")
    _check_order(starting, ending)


def _check_order(starting: Bound, ending: Bound) -> None:
    """What can be checked without asking a broker; `BatchReader` looks at the offsets that come of it."""
    if starting.timestamp_ms is not None and ending.timestamp_ms is not None:
        if starting.timestamp_ms > ending.timestamp_ms:
            raise OptionError(
                f"{starting.option} {starting.timestamp_ms} is after {ending.option} {ending.timestamp_ms}"
            )
        return
    for first, last in ((starting.offsets, ending.offsets), (starting.timestamps, ending.timestamps)):
        for partition in sorted((first or {}).keys() & (last or {}).keys()):
            assert first is not None
            assert last is not None
            start, end = first[partition], last[partition]
            if start > end and end not in (EARLIEST, LATEST):
                raise OptionError(f"{starting.option} of {partition} is {start}, after {ending.option} {end}")


def _names(bound: Bound, place: int) -> bool:
    if bound.timestamps is not None or bound.timestamp_ms is not None or bound.is_group:
        return False
    return place in bound.offsets.values() if bound.offsets is not None else bound.place == place


# -- single options ----------------------------------------------------------------------------------------------------


# As they are written; options reach a Python source in lower case.
OPTION_NAMES: Final = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "minOffsetsPerTrigger",
    "maxOffsetsPerTrigger",
    "maxTriggerDelay",
    "includeHeaders",
    "columns",
    "pushFilters",
    "rowsPerBatch",
    "idleWaitMs",
    "smallBatchOffsets",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
)
READ_COMMITTED: Final = ("read_committed",)
_SPELLINGS = {name.lower(): name for name in OPTION_NAMES}


def _spelled(name: str) -> str:
    return _SPELLINGS.get(name, name)


def _reader(options: Mapping[str, str]) -> OptionReader:
    return OptionReader(options, _SPELLINGS)


def _topics(reader: OptionReader) -> Topics:
    given = [name for name in ("assign", "subscribe", "subscribepattern") if reader.has(name)]
    if len(given) != 1:
        found = " and ".join(_spelled(name) for name in given) or "none of them"
        raise OptionError(f"exactly one of subscribe, subscribePattern and assign is required, and there is {found}")
    return Topics(
        names=reader.take("subscribe", _topic_names, ()),
        pattern=reader.take("subscribepattern", _pattern, ""),
        partitions=reader.take("assign", _assigned, ()),
    )


def _topic_names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError("give a topic, or several separated by commas")
    return names


def _pattern(text: str) -> str:
    if not text.strip():
        raise ValueError("write a regular expression that is found in the names of topics, such as ^orders-")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"it is not a regular expression: {error}") from error
    return text


def _group(text: str) -> str | None:
    if not text.strip():
        raise ValueError("give the name of a group")
    return text.strip()


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    shape = 'write JSON such as {"orders":[0,1]}'
    loaded = _json(text, shape)
    found: set[TopicPartition] = set()
    for topic, numbers in loaded.items():
        if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError(shape)
        found |= {TopicPartition(topic, number) for number in numbers}
    if not found:
        raise ValueError(f"it has no partitions; {shape}")
    return tuple(sorted(found))


def _bound(reader: OptionReader, side: str, default: int) -> Bound:
    """Of the three ways to say it the one with a time for all comes first, then a time for each, then offsets."""
    for_all = reader.take(f"{side}timestamp", _timestamp_ms, None)
    for_each = reader.take(f"{side}offsetsbytimestamp", _timestamps, None)
    is_group = side == "starting" and reader.is_text(f"{side}offsets", GROUP)
    nothing: tuple[int, Offsets | None] = (default, None)
    place, offsets = nothing if is_group else reader.take(f"{side}offsets", _offsets, nothing)
    if for_all is not None:
        return Bound(f"{side}Timestamp", timestamp_ms=for_all)
    if for_each is not None:
        return Bound(f"{side}OffsetsByTimestamp", timestamps=for_each)
    return Bound(f"{side}Offsets", place=place, is_group=is_group, offsets=offsets)


def _offsets(text: str) -> tuple[int, Offsets | None]:
    places = {"earliest": EARLIEST, "latest": LATEST}
    if (place := places.get(text.strip().lower())) is not None:
        return place, None
    shape = (
        'write earliest, latest, group or JSON such as {"orders":{"0":23,"1":-2}}, where -2 is earliest and -1 latest'
    )
    offsets = offsets_from_json(_json(text, shape))
    if not offsets or min(offsets.values()) < EARLIEST:
        raise ValueError(shape)
    return EARLIEST, offsets


def _timestamps(text: str) -> Offsets:
    shape = (
        'write JSON with milliseconds since 1970, such as {"orders":{"0":1700000000000,"1":-2}}, where -2 is earliest '
        "and -1 latest"
    )
    timestamps = offsets_from_json(_json(text, shape))
    if not timestamps or min(timestamps.values()) < EARLIEST:
        raise ValueError(shape)
    return timestamps


def _no_match(text: str) -> NoMatch:
    if text.strip().lower() not in list(NoMatch):
        raise ValueError("write error or latest")
    return NoMatch(text.strip().lower())


def _timestamp_ms(text: str) -> int | None:
    if not text.strip().isdecimal() or int(text) > INT64_MAX:
        raise ValueError("write milliseconds since 1970, such as 1700000000000")
    return int(text)


def _json(text: str, shape: str) -> dict[str, object]:
    try:
        loaded = json.loads(text, object_pairs_hook=_object)
    except _TwiceError:
        raise
    except ValueError as error:
        raise ValueError(shape) from error
    if not isinstance(loaded, dict):
        raise ValueError(shape)
    return loaded


class _TwiceError(ValueError):
    """A name stands twice in one JSON object."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Of a topic or partition that stands twice, json would silently take the last."""
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise _TwiceError(f"{name!r} stands there twice")
        found[name] = value
    return found


def _columns(reader: OptionReader) -> tuple[str, ...]:
    with_headers = reader.take("includeheaders", read_boolean, False)
    every = (*COLUMNS, HEADERS_COLUMN)
    default = every if with_headers else COLUMNS

    def names(text: str) -> tuple[str, ...]:
        by_name = {name.lower(): name for name in every}
        wanted = [name.strip().lower() for name in text.split(",") if name.strip()]
        unknown = [name for name in wanted if name not in by_name]
        if unknown or not wanted:
            raise ValueError(f"give some of {', '.join(every)}, separated by commas")
        chosen = {by_name[name] for name in wanted} | ({HEADERS_COLUMN} if with_headers else set())
        # In the order of the schema, whatever order they are named in.
        return tuple(name for name in every if name in chosen)

    return reader.take("columns", names, default)


def _client_settings(reader: OptionReader) -> ClientSettings:
    default = ClientSettings()
    request_timeout_ms = reader.take("kafka.request.timeout.ms", read_count, default.request_timeout_ms)
    return ClientSettings(
        client_id=reader.take("kafka.client.id", str, default.client_id),
        timeout_ms=reader.take("kafka.default.api.timeout.ms", read_count, default.timeout_ms),
        offset_attempts_max=reader.take("fetchoffset.numretries", read_count, default.offset_attempts_max),
        read_patience_ms=reader.take("kafkaconsumer.polltimeoutms", read_count, default.read_patience_ms),
        request_timeout_ms=request_timeout_ms,
        connect_timeout_ms=reader.take(
            "kafka.socket.connection.setup.timeout.ms", read_long_count, default.connect_timeout_ms
        ),
        isolation=reader.take("kafka.isolation.level", _isolation, default.isolation),
        fetch_max_bytes=reader.take("kafka.fetch.max.bytes", read_count, default.fetch_max_bytes),
        partition_max_bytes=reader.take("kafka.max.partition.fetch.bytes", read_count, default.partition_max_bytes),
        fetch_max_wait_ms=reader.take("kafka.fetch.max.wait.ms", read_natural, default.fetch_max_wait_ms),
        fetch_min_bytes=reader.take("kafka.fetch.min.bytes", read_natural, default.fetch_min_bytes),
        security=take_security(reader),
    )


def _isolation(text: str) -> Isolation:
    levels = {"read_uncommitted": Isolation.READ_UNCOMMITTED, "read_committed": Isolation.READ_COMMITTED}
    if text.strip().lower() not in levels:
        raise ValueError("write read_uncommitted or read_committed")
    return levels[text.strip().lower()]


def _duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError("write a time such as 500ms, 30s, 15m or 1h")
    return int(found[1]) * _DURATION_MS[found[2] or "ms"]

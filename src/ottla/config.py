"""Every setting with its type, default, bounds and help.

A setting is declared once, in the table; parsing, checking, documentation and `DescribeConfigs` all read it from there.
So far the table holds the settings of a topic: what one partition's log needs to know.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from ottla.errors import ConfigError

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


class Kind(StrEnum):
    """The types that Kafka's tools know a setting by."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"


Value = bool | int | float | str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: `broker_names` are the broker's settings that give its default, the strongest first."""

    name: str
    kind: Kind
    default: Value
    help: str
    minimum: float = -math.inf
    maximum: float = math.inf
    choices: tuple[str, ...] = ()
    broker_names: tuple[str, ...] = ()

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")

    def parse(self, text: str) -> Value:
        """The value that `text` stands for; ConfigError names the setting, the text and what would do."""
        value = self._convert(text.strip())
        if isinstance(value, (int, float)) and not self.minimum <= value <= self.maximum:
            raise ConfigError(
                f"{self.name}={text}: must be at least {self.minimum:g}"
                if value < self.minimum
                else f"{self.name}={text}: must be at most {self.maximum:g}"
            )
        if self.choices:
            given = value if isinstance(value, tuple) else (value,)
            for choice in given:
                if choice not in self.choices:
                    raise ConfigError(f"{self.name}={text}: must be one of {', '.join(self.choices)}")
        return value

    def _convert(self, text: str) -> Value:
        try:
            return _CONVERTERS[self.kind](text)
        except ValueError:
            raise ConfigError(f"{self.name}={text}: is not of type {self.kind}") from None


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"


def _number(text: str) -> str:
    if "_" in text:  # Python reads 1_000 as a number, no other tool that sets it does
        raise ValueError(text)
    return text


def _bounded(bound: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        value = int(_number(text))
        if not -bound - 1 <= value <= bound:
            raise ValueError(text)
        return value

    return convert


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_CONVERTERS: dict[Kind, Callable[[str], Value]] = {
    Kind.BOOLEAN: _boolean,
    Kind.INT: _bounded(INT_MAX),
    Kind.LONG: _bounded(LONG_MAX),
    Kind.DOUBLE: lambda text: float(_number(text)),
    Kind.STRING: str,
    Kind.LIST: _list,
}


COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"

_TOPIC_SETTINGS = (
    Setting(
        "cleanup.policy",
        Kind.LIST,
        ("delete",),
        "What happens to old segments: `delete` drops them by age and size, `compact` keeps the last value of each "
        "key, both together do both.",
        choices=("delete", "compact"),
        broker_names=("log.cleanup.policy",),
    ),
    Setting(
        "compression.gzip.level",
        Kind.INT,
        -1,
        "The level when the topic compresses with gzip; -1 is the library's default.",
        minimum=-1,
        maximum=9,
        broker_names=("compression.gzip.level",),
    ),
    Setting(
        "compression.lz4.level",
        Kind.INT,
        9,
        "The level when the topic compresses with lz4.",
        minimum=1,
        maximum=17,
        broker_names=("compression.lz4.level",),
    ),
    Setting(
        "compression.type",
        Kind.STRING,
        "producer",
        "The codec in which batches are stored; `producer` keeps what the producer chose.",
        choices=COMPRESSION_TYPES,
        broker_names=("compression.type",),
    ),
    Setting(
        "compression.zstd.level",
        Kind.INT,
        3,
        "The level when the topic compresses with zstd.",
        minimum=-131072,
        maximum=22,
        broker_names=("compression.zstd.level",),
    ),
    Setting(
        "delete.retention.ms",
        Kind.LONG,
        86_400_000,
        "How long compaction keeps a tombstone or a transaction marker after it was first cleaned.",
        minimum=0,
        broker_names=("log.cleaner.delete.retention.ms",),
    ),
    Setting(
        "file.delete.delay.ms",
        Kind.LONG,
        60_000,
        "How long a deleted segment stays on disk under the name `.deleted`.",
        minimum=0,
        broker_names=("log.segment.delete.delay.ms",),
    ),
    Setting(
        "flush.messages",
        Kind.LONG,
        LONG_MAX,
        "Force the log to disk after this many records; by default the operating system decides.",
        minimum=1,
        broker_names=("log.flush.interval.messages",),
    ),
    Setting(
        "flush.ms",
        Kind.LONG,
        LONG_MAX,
        "Force the log to disk when its oldest unflushed record is this old; by default the operating system decides.",
        minimum=0,
        broker_names=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ),
    Setting(
        "follower.replication.throttled.replicas",
        Kind.LIST,
        (),
        "The replicas whose replication is throttled on the follower's side: `partition:broker`, or `*`.",
    ),
    Setting(
        "index.interval.bytes",
        Kind.INT,
        4096,
        "About how many bytes of the log lie between two entries of its offset index.",
        minimum=0,
        broker_names=("log.index.interval.bytes",),
    ),
    Setting(
        "leader.replication.throttled.replicas",
        Kind.LIST,
        (),
        "The replicas whose replication is throttled on the leader's side: `partition:broker`, or `*`.",
    ),
    Setting(
        "max.compaction.lag.ms",
        Kind.LONG,
        LONG_MAX,
        "The longest time that a record may stay uncompacted.",
        minimum=1,
        broker_names=("log.cleaner.max.compaction.lag.ms",),
    ),
    Setting(
        "max.message.bytes",
        Kind.INT,
        1_048_588,
        "The largest record batch, as compressed by the producer, that the topic takes.",
        minimum=0,
        broker_names=("message.max.bytes",),
    ),
    Setting(
        "message.timestamp.after.max.ms",
        Kind.LONG,
        3_600_000,
        "How far a record's timestamp may be ahead of the broker's clock.",
        minimum=0,
        broker_names=("log.message.timestamp.after.max.ms",),
    ),
    Setting(
        "message.timestamp.before.max.ms",
        Kind.LONG,
        LONG_MAX,
        "How far a record's timestamp may be behind the broker's clock.",
        minimum=0,
        broker_names=("log.message.timestamp.before.max.ms",),
    ),
    Setting(
        "message.timestamp.type",
        Kind.STRING,
        CREATE_TIME,
        "Whose clock a record carries: the producer's (CreateTime) or the broker's (LogAppendTime).",
        choices=(CREATE_TIME, LOG_APPEND_TIME),
        broker_names=("log.message.timestamp.type",),
    ),
    Setting(
        "min.cleanable.dirty.ratio",
        Kind.DOUBLE,
        0.5,
        "The share of the log that must be uncompacted before compaction starts.",
        minimum=0,
        maximum=1,
        broker_names=("log.cleaner.min.cleanable.ratio",),
    ),
    Setting(
        "min.compaction.lag.ms",
        Kind.LONG,
        0,
        "The shortest time that a record stays uncompacted.",
        minimum=0,
        broker_names=("log.cleaner.min.compaction.lag.ms",),
    ),
    Setting(
        "min.insync.replicas",
        Kind.INT,
        1,
        "With acks=all, how many replicas must have a record before the producer is told so.",
        minimum=1,
        broker_names=("min.insync.replicas",),
    ),
    Setting(
        "preallocate",
        Kind.BOOLEAN,
        False,
        "Reserve the whole segment on disk when it is created. Accepted and without effect: file systems in use on "
        "Linux allocate late and in large pieces.",
        broker_names=("log.preallocate",),
    ),
    Setting(
        "retention.bytes",
        Kind.LONG,
        -1,
        "The size of a partition past which its oldest segments go; -1 is no limit.",
        minimum=-1,
        broker_names=("log.retention.bytes",),
    ),
    Setting(
        "retention.ms",
        Kind.LONG,
        604_800_000,
        "The age past which a segment goes; -1 is no limit.",
        minimum=-1,
        broker_names=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ),
    Setting(
        "segment.bytes",
        Kind.INT,
        1_073_741_824,
        "The size of one segment file.",
        minimum=14,
        broker_names=("log.segment.bytes",),
    ),
    Setting(
        "segment.index.bytes",
        Kind.INT,
        10_485_760,
        "The largest size of one index file; a full index rolls the segment.",
        minimum=12,
        broker_names=("log.index.size.max.bytes",),
    ),
    Setting(
        "segment.jitter.ms",
        Kind.LONG,
        0,
        "The most by which a segment's roll is brought forward by chance, so that not all roll at once.",
        minimum=0,
        broker_names=("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ),
    Setting(
        "segment.ms",
        Kind.LONG,
        604_800_000,
        "The age past which the active segment is rolled even if it is not full.",
        minimum=1,
        broker_names=("log.roll.ms", "log.roll.hours"),
    ),
    Setting(
        "unclean.leader.election.enable",
        Kind.BOOLEAN,
        False,
        "Whether a replica that is not in sync may become leader, at the price of losing records.",
        broker_names=("unclean.leader.election.enable",),
    ),
)

TOPIC_SETTINGS: dict[str, Setting] = {setting.name: setting for setting in _TOPIC_SETTINGS}


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one topic, typed. The field names are the setting names with `_` for `.`."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = CREATE_TIME
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes_old_segments(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def segment_ms_max(self) -> int:
        """When the active segment must roll: only a sealed one is compacted, so the compaction lag bounds it too."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @property
    def uses_append_time(self) -> bool:
        return self.message_timestamp_type == LOG_APPEND_TIME

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> LogConfig:
        """The configuration that these texts describe; ConfigError for an unknown name or a bad value."""
        parsed: dict[str, Any] = {}
        for name, text in properties.items():
            setting = TOPIC_SETTINGS.get(name)
            if setting is None:
                raise ConfigError(unknown_setting(name, TOPIC_SETTINGS))
            parsed[setting.attribute] = setting.parse(text)
        config = cls(**parsed)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise ConfigError("min.compaction.lag.ms must not be larger than max.compaction.lag.ms")
        return config


def unknown_setting(name: str, known: Mapping[str, Setting]) -> str:
    """The error text for a setting that is not in `known`, with the nearest name that is."""
    nearest = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"{name}: unknown setting{hint}"


assert [field.name for field in fields(LogConfig)] == [setting.attribute for setting in _TOPIC_SETTINGS]

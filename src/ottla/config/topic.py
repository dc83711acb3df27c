"""The settings of a topic: what the log of one partition needs to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ottla.config.setting import (
    LONG_MAX,
    NO_TIERED_STORAGE,
    Kind,
    Setting,
    setting,
    settings_of,
)
from ottla.errors import ConfigError

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
THROTTLED_REPLICA = r"(\d+:\d+)?"  # gaps are let pass, as in Kafka
THROTTLED_REPLICAS = rf"\*|{THROTTLED_REPLICA}(,{THROTTLED_REPLICA})*"
INDEX_ENTRY_BYTES = 12  # the largest of an index: one of times
THROTTLED_REPLICA_FORM = "* or a list of partition:broker, such as 0:1,1:2"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one topic, typed."""

    cleanup_policy: tuple[str, ...] = setting(
        Kind.LIST,
        ("delete",),
        "What happens to old segments: `delete` removes them by age and size, `compact` keeps the last value of each "
        "key; both can be combined.",
        choices=("delete", "compact"),
        broker_names=("log.cleanup.policy",),
    )
    compression_gzip_level: int = setting(
        Kind.INT,
        -1,
        "The compression level for gzip; -1 is the library's default.",
        minimum=-1,
        maximum=9,
        but_not=0,
        broker_names=("compression.gzip.level",),
    )
    compression_lz4_level: int = setting(
        Kind.INT,
        9,
        "The compression level for lz4.",
        minimum=1,
        maximum=17,
        broker_names=("compression.lz4.level",),
    )
    compression_type: str = setting(
        Kind.STRING,
        "producer",
        "The codec in which batches are stored; `producer` keeps what the producer chose.",
        choices=COMPRESSION_TYPES,
        broker_names=("compression.type",),
    )
    compression_zstd_level: int = setting(
        Kind.INT,
        3,
        "The compression level for zstd.",
        minimum=-131072,
        maximum=22,
        broker_names=("compression.zstd.level",),
    )
    delete_retention_ms: int = setting(
        Kind.LONG,
        86_400_000,
        "How long compaction keeps a tombstone or a transaction marker after it was first cleaned.",
        minimum=0,
        broker_names=("log.cleaner.delete.retention.ms",),
    )
    file_delete_delay_ms: int = setting(
        Kind.LONG,
        60_000,
        "How long a deleted segment stays on disk under the name `.deleted`.",
        minimum=0,
        broker_names=("log.segment.delete.delay.ms",),
    )
    flush_messages: int = setting(
        Kind.LONG,
        LONG_MAX,
        "Force the log to disk after this many records; by default the operating system decides.",
        minimum=1,
        broker_names=("log.flush.interval.messages",),
    )
    flush_ms: int = setting(
        Kind.LONG,
        LONG_MAX,
        "Force the log to disk when its oldest unflushed record is this old; by default the operating system decides.",
        minimum=0,
        broker_names=(
            "log.flush.interval.ms",
            "log.flush.scheduler.interval.ms",
        ),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        Kind.LIST,
        (),
        "The replicas whose replication is throttled on the follower's side: `partition:broker`, or `*`.",
        pattern=THROTTLED_REPLICAS,
        form=THROTTLED_REPLICA_FORM,
    )
    index_interval_bytes: int = setting(
        Kind.INT,
        4096,
        "The approximate number of bytes between two entries of the offset index.",
        minimum=0,
        broker_names=("log.index.interval.bytes",),
    )
    internal_segment_bytes: int | None = setting(
        Kind.INT,
        None,
        "The size of one segment file, also a smaller one than `segment.bytes` allows, which it replaces: for tests.",
        minimum=1,
        is_internal=True,
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        Kind.LIST,
        (),
        "The replicas whose replication is throttled on the leader's side: `partition:broker`, or `*`.",
        pattern=THROTTLED_REPLICAS,
        form=THROTTLED_REPLICA_FORM,
    )
    local_retention_bytes: int = setting(
        Kind.LONG,
        -2,
        "How much of a partition in tiered storage is kept on the broker's disk; -2: as `retention.bytes`.",
        minimum=-2,
        broker_names=("log.local.retention.bytes",),
        no_effect=NO_TIERED_STORAGE,
    )
    local_retention_ms: int = setting(
        Kind.LONG,
        -2,
        "How long records in tiered storage are kept on the broker's disk; -2: as `retention.ms`.",
        minimum=-2,
        broker_names=("log.local.retention.ms",),
        no_effect=NO_TIERED_STORAGE,
    )
    max_compaction_lag_ms: int = setting(
        Kind.LONG,
        LONG_MAX,
        "The longest time that a record may stay uncompacted.",
        minimum=1,
        broker_names=("log.cleaner.max.compaction.lag.ms",),
    )
    max_message_bytes: int = setting(
        Kind.INT,
        1_048_588,
        "The largest record batch that the topic accepts, as compressed by the producer.",
        minimum=0,
        broker_names=("message.max.bytes",),
    )
    message_timestamp_after_max_ms: int = setting(
        Kind.LONG,
        3_600_000,
        "How far a record's timestamp may be ahead of the broker's clock.",
        minimum=0,
        broker_names=("log.message.timestamp.after.max.ms",),
    )
    message_timestamp_before_max_ms: int = setting(
        Kind.LONG,
        LONG_MAX,
        "How far a record's timestamp may be behind the broker's clock.",
        minimum=0,
        broker_names=("log.message.timestamp.before.max.ms",),
    )
    message_timestamp_type: str = setting(
        Kind.STRING,
        CREATE_TIME,
        "Whether timestamps come from the producer (CreateTime) or from the broker (LogAppendTime).",
        choices=(CREATE_TIME, LOG_APPEND_TIME),
        broker_names=("log.message.timestamp.type",),
    )
    min_cleanable_dirty_ratio: float = setting(
        Kind.DOUBLE,
        0.5,
        "The share of the log that must be uncompacted before compaction starts.",
        minimum=0,
        maximum=1,
        broker_names=("log.cleaner.min.cleanable.ratio",),
    )
    min_compaction_lag_ms: int = setting(
        Kind.LONG,
        0,
        "The shortest time that a record stays uncompacted.",
        minimum=0,
        broker_names=("log.cleaner.min.compaction.lag.ms",),
    )
    min_insync_replicas: int = setting(
        Kind.INT,
        1,
        "With acks=all, how many replicas must have a record before it is acknowledged.",
        minimum=1,
        broker_names=("min.insync.replicas",),
    )
    preallocate: bool = setting(
        Kind.BOOLEAN,
        False,
        "Reserve the whole segment on disk when it is created.",
        no_effect="Linux file systems allocate late and in large pieces",
        broker_names=("log.preallocate",),
    )
    remote_log_copy_disable: bool = setting(
        Kind.BOOLEAN, False, "Whether to stop copying to tiered storage.", no_effect=NO_TIERED_STORAGE
    )
    remote_log_delete_on_disable: bool = setting(
        Kind.BOOLEAN,
        False,
        "Whether to delete a topic's data in tiered storage when tiered storage is disabled for it.",
        no_effect=NO_TIERED_STORAGE,
    )
    remote_storage_enable: bool = setting(
        Kind.BOOLEAN,
        False,
        "Whether old segments are moved to tiered storage.",
        pattern="False",
        form="false: there is no tiered storage",
        no_effect=NO_TIERED_STORAGE,
    )
    retention_bytes: int = setting(
        Kind.LONG,
        -1,
        "The size of a partition above which its oldest segments are deleted; a negative value means no limit.",
        broker_names=("log.retention.bytes",),
    )
    retention_ms: int = setting(
        Kind.LONG,
        604_800_000,
        "The age at which a segment is deleted; -1 means no limit.",
        minimum=-1,
        broker_names=(
            "log.retention.ms",
            "log.retention.minutes",
            "log.retention.hours",
        ),
    )
    segment_bytes: int = setting(
        Kind.INT,
        1_073_741_824,
        "The size of one segment file.",
        minimum=1_048_576,
        minimum_before=14,
        broker_names=("log.segment.bytes",),
    )
    segment_index_bytes: int = setting(
        Kind.INT,
        10_485_760,
        "The largest size of one index file; a full index rolls the segment.",
        minimum=4,
        broker_names=("log.index.size.max.bytes",),
    )
    segment_jitter_ms: int = setting(
        Kind.LONG,
        0,
        "The largest random time by which a segment is rolled early, so that not all are rolled at once.",
        minimum=0,
        broker_names=(
            "log.roll.jitter.ms",
            "log.roll.jitter.hours",
        ),
    )
    segment_ms: int = setting(
        Kind.LONG,
        604_800_000,
        "The age at which the active segment is rolled even if it is not full.",
        minimum=1,
        broker_names=(
            "log.roll.ms",
            "log.roll.hours",
        ),
    )
    unclean_leader_election_enable: bool = setting(
        Kind.BOOLEAN,
        False,
        "Whether a replica that is not in sync may become leader, which can lose records.",
        broker_names=("unclean.leader.election.enable",),
    )

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
    def combined(cls, values: dict[str, Any]) -> LogConfig:
        """The configuration that the values of all settings make, where one may stand for another."""
        if values.get("internal_segment_bytes") is not None:
            values["segment_bytes"] = values["internal_segment_bytes"]
        if "segment_index_bytes" in values:
            values["segment_index_bytes"] = max(INDEX_ENTRY_BYTES, values["segment_index_bytes"])
        return cls(**values)

    def check(self) -> None:
        """ConfigError if two settings contradict each other."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                f"min.compaction.lag.ms={self.min_compaction_lag_ms}: must not be larger than "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})"
            )


TOPIC_SETTINGS: dict[str, Setting] = settings_of(LogConfig)

"""The settings of a broker, as a table: one class per concern, which `BrokerConfig` puts together.

Names, types, defaults and bounds are Kafka's; what differs is listed with its reason in the test that compares them.
The classes are never made on their own, so they have no methods, and start-up does not pay for those.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from typing import Any

from ottla.config.setting import INT_MAX, LONG_MAX, Kind, Update, setting
from ottla.config.topic import LogConfig

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def topic_default(attribute: str, **changes: Any) -> Any:
    """Declares the broker's setting that gives the default of the topic's setting `attribute`."""
    field = next(field for field in dataclasses.fields(LogConfig) if field.name == attribute)
    details = {**field.metadata, "update": Update.CLUSTER_WIDE, **changes}
    del details["broker_names"]
    kind, default = details.pop("kind"), details.pop("default", field.default)
    topic_name = attribute.replace("_", ".")
    meaning = f"For topics that do not set `{topic_name}`. {details.pop('help')}"
    return setting(kind, default, meaning, **details)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class IdentitySettings:
    """Who the broker is and where its cluster is."""

    broker_id: int = setting(
        Kind.INT,
        -1,
        "The broker's id in its cluster. -1: chosen at the first start and stored in the data directory.",
        minimum=-1,
    )
    node_id: int = setting(Kind.INT, -1, "Another name of `broker.id`, from Kafka's KRaft mode.", minimum=-1)
    broker_id_generation_enable: bool = setting(
        Kind.BOOLEAN,
        True,
        "Whether a broker without a configured id may choose one.",
    )
    reserved_broker_max_id: int = setting(
        Kind.INT,
        1000,
        "Ids that brokers choose are above this number, so that they differ from configured ones.",
        minimum=0,
    )
    broker_rack: str | None = setting(
        Kind.STRING, None, "The rack of the broker; the replicas of a partition are spread over racks."
    )
    zookeeper_connect: str | None = setting(
        Kind.STRING,
        None,
        "The ZooKeeper ensemble that keeps the cluster's metadata: `host:port,…` and optionally a path. Without it the "
        "broker keeps the metadata itself, in its data directory, and is a cluster of one.",
    )
    zookeeper_session_timeout_ms: int = setting(
        Kind.INT, 18_000, "ZooKeeper considers a broker dead after this time without contact.", minimum=1
    )
    zookeeper_connection_timeout_ms: int | None = setting(
        Kind.INT,
        None,
        "How long the first connection to ZooKeeper may take; by default the session timeout.",
        minimum=1,
    )
    controlled_shutdown_enable: bool = setting(
        Kind.BOOLEAN, True, "Whether a stopping broker first hands its leaderships to other brokers."
    )
    controlled_shutdown_max_retries: int = setting(
        Kind.INT,
        3,
        "How often handing over is retried before the broker stops anyway.",
        minimum=0,
    )
    controlled_shutdown_retry_backoff_ms: int = setting(Kind.LONG, 5000, "The pause between two attempts.", minimum=0)
    controller_socket_timeout_ms: int = setting(
        Kind.INT, 30_000, "How long the controller waits for a response of a broker.", minimum=1
    )
    request_timeout_ms: int = setting(
        Kind.INT, 30_000, "How long the broker waits for responses to its own requests.", minimum=1
    )


@dataclass(frozen=True, init=False, repr=False, eq=False)
class NetworkSettings:
    """Listeners, connections and the limits on them."""

    listeners: tuple[str, ...] = setting(
        Kind.LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        "Where the broker listens: `NAME://host:port`, separated by commas. No host: all interfaces; port 0: any free "
        "port.",
    )
    advertised_listeners: tuple[str, ...] | None = setting(
        Kind.LIST,
        None,
        "The addresses that clients use, by listener name. By default those of `listeners`; needed if clients reach "
        "the broker at another address.",
    )
    listener_security_protocol_map: str = setting(
        Kind.STRING,
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "The security protocol of each listener name: `NAME:PROTOCOL,…`.",
    )
    inter_broker_listener_name: str | None = setting(
        Kind.STRING,
        None,
        "The listener by which brokers reach each other; by default the first with `security.inter.broker.protocol`.",
    )
    security_inter_broker_protocol: str = setting(
        Kind.STRING, "PLAINTEXT", "The security protocol between brokers.", choices=SECURITY_PROTOCOLS
    )
    controller_listener_names: tuple[str, ...] = setting(
        Kind.LIST, (), "Listeners that only controllers of Kafka's KRaft mode use; the broker does not open them."
    )
    max_connections: int = setting(
        Kind.INT,
        INT_MAX,
        "The largest number of connections; others wait. A listener may have its own besides, with its prefix.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
    )
    max_connections_per_ip: int = setting(
        Kind.INT, INT_MAX, "The largest number of connections from one address.", minimum=0, update=Update.CLUSTER_WIDE
    )
    max_connections_per_ip_overrides: str = setting(
        Kind.STRING,
        "",
        "Exceptions to `max.connections.per.ip`: `address:count,…`.",
        pattern=r"\s*|[^,]+:\s*\d+\s*(,[^,]+:\s*\d+\s*)*",
        form="a list of address:count, such as 10.0.0.7:100,::1:50",
        update=Update.CLUSTER_WIDE,
    )
    max_connection_creation_rate: int = setting(
        Kind.INT,
        INT_MAX,
        "The largest number of new connections per second; others wait. A listener may have its own, with its prefix.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
    )
    connections_max_idle_ms: int = setting(
        Kind.LONG, 600_000, "A connection without requests for this long is closed; -1: never."
    )
    connection_failed_authentication_delay_ms: int = setting(
        Kind.INT,
        100,
        "How long a failed login waits for its answer, which slows down whoever tries passwords.",
        minimum=0,
    )
    socket_request_max_bytes: int = setting(
        Kind.INT, 104_857_600, "The largest request; a connection that sends a larger one is closed.", minimum=1
    )
    socket_send_buffer_bytes: int = setting(
        Kind.INT, 102_400, "The send buffer of a connection in the kernel; -1: the system's default.", minimum=-1
    )
    socket_receive_buffer_bytes: int = setting(
        Kind.INT, 102_400, "The receive buffer of a connection in the kernel; -1: the system's default.", minimum=-1
    )
    socket_listen_backlog_size: int = setting(Kind.INT, 50, "How many connections may wait to be accepted.", minimum=1)
    socket_connection_setup_timeout_ms: int = setting(
        Kind.LONG,
        10_000,
        "How long the broker waits for a connection to another broker.",
        minimum=1,
        no_effect="a connection to another broker may take 10 s",
    )
    socket_connection_setup_timeout_max_ms: int = setting(
        Kind.LONG,
        30_000,
        "The longest such wait after several failures in a row.",
        minimum=1,
        no_effect="a connection to another broker may take 10 s",
    )
    queued_max_requests: int = setting(
        Kind.INT,
        500,
        "The largest number of requests in progress; connections are not read while it is reached.",
        minimum=1,
        no_effect="a connection has one request in progress, or some Produce requests that wait for followers",
    )
    queued_max_request_bytes: int = setting(
        Kind.LONG,
        -1,
        "The most bytes of requests in progress; connections are not read while it is reached. -1: no limit.",
    )
    max_request_partition_size_limit: int = setting(
        Kind.INT, 2000, "The largest number of partitions in one DescribeTopicPartitions response.", minimum=1
    )


@dataclass(frozen=True, init=False, repr=False, eq=False)
class TopicCreationSettings:
    """Making and deleting topics."""

    num_partitions: int = setting(Kind.INT, 1, "The default number of partitions of a new topic.", minimum=1)
    default_replication_factor: int = setting(Kind.INT, 1, "The default replication factor of a new topic.", minimum=1)
    auto_create_topics_enable: bool = setting(
        Kind.BOOLEAN, True, "Whether a missing topic is created when a client asks for it."
    )
    delete_topic_enable: bool = setting(Kind.BOOLEAN, True, "Whether topics can be deleted.")


@dataclass(frozen=True, init=False, repr=False, eq=False)
class LogSettings:
    """The logs on disk, and what holds for topics that do not say otherwise."""

    log_dir: tuple[str, ...] = setting(
        Kind.LIST, ("ottla-data",), "The data directory, if `log.dirs` is not set; relative to the current directory."
    )
    log_dirs: tuple[str, ...] | None = setting(
        Kind.LIST,
        None,
        "The data directories, separated by commas. The first holds the metadata; a new partition goes to the "
        "directory with the fewest.",
    )
    log_cleanup_policy: tuple[str, ...] = topic_default("cleanup_policy")
    compression_type: str = topic_default("compression_type")
    compression_gzip_level: int = topic_default("compression_gzip_level")
    compression_lz4_level: int = topic_default("compression_lz4_level")
    compression_zstd_level: int = topic_default("compression_zstd_level")
    message_max_bytes: int = topic_default("max_message_bytes")
    log_message_timestamp_type: str = topic_default("message_timestamp_type")
    log_message_timestamp_before_max_ms: int = topic_default("message_timestamp_before_max_ms")
    log_message_timestamp_after_max_ms: int = topic_default("message_timestamp_after_max_ms")
    log_preallocate: bool = topic_default("preallocate")
    log_index_interval_bytes: int = topic_default("index_interval_bytes")
    log_index_size_max_bytes: int = topic_default("segment_index_bytes")
    log_segment_bytes: int = topic_default("segment_bytes")
    log_segment_delete_delay_ms: int = topic_default("file_delete_delay_ms")
    log_roll_ms: int | None = topic_default("segment_ms", default=None)
    log_roll_hours: int = setting(
        Kind.INT, 168, "As `log.roll.ms`, in hours; used if that is not set.", minimum=1, unit=HOUR_MS
    )
    log_roll_jitter_ms: int | None = topic_default("segment_jitter_ms", default=None)
    log_roll_jitter_hours: int = setting(
        Kind.INT, 0, "As `log.roll.jitter.ms`, in hours; used if that is not set.", minimum=0, unit=HOUR_MS
    )
    log_retention_bytes: int = topic_default("retention_bytes")
    log_retention_ms: int | None = topic_default("retention_ms", default=None)
    log_retention_minutes: int | None = setting(
        Kind.INT, None, "As `log.retention.ms`, in minutes; used if that is not set.", minimum=-1, unit=MINUTE_MS
    )
    log_retention_hours: int = setting(
        Kind.INT,
        168,
        "As `log.retention.ms`, in hours; used if neither that nor `log.retention.minutes` is set.",
        minimum=-1,
        unit=HOUR_MS,
    )
    log_retention_check_interval_ms: int = setting(
        Kind.LONG, 300_000, "How often logs are checked for segments to delete.", minimum=1
    )
    log_flush_interval_messages: int = topic_default("flush_messages")
    log_flush_interval_ms: int | None = topic_default("flush_ms", default=None)
    log_flush_scheduler_interval_ms: int = setting(
        Kind.LONG,
        LONG_MAX,
        "How often logs are checked for records to force to disk; also the value of `log.flush.interval.ms` if that "
        "is not set.",
        minimum=1,
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        Kind.INT,
        60_000,
        "How often recovery points are written: the offsets from which logs are checked after a crash.",
        minimum=1,
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        Kind.INT,
        60_000,
        "How often the start offsets of logs are written.",
        minimum=1,
        no_effect="they are written together with the recovery points",
    )
    log_initial_task_delay_ms: int = setting(
        Kind.LONG,
        30_000,
        "The delay after the start before the first maintenance of logs.",
        minimum=0,
        no_effect="maintenance begins after its first interval",
    )
    producer_id_expiration_ms: int = setting(
        Kind.INT,
        86_400_000,
        "How long a partition remembers an idempotent producer that sends nothing.",
        minimum=1,
        update=Update.CLUSTER_WIDE,
    )
    producer_id_expiration_check_interval_ms: int = setting(
        Kind.INT, 600_000, "How often partitions are checked for such producers.", minimum=1
    )
    fetch_max_bytes: int = setting(
        Kind.INT, 57_671_680, "The most bytes in one Fetch response, whatever the client asks for.", minimum=1024
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        Kind.INT, 1000, "How many fetch sessions the broker keeps; 0: none.", minimum=0
    )


@dataclass(frozen=True, init=False, repr=False, eq=False)
class CleanerSettings:
    """Compaction."""

    log_cleaner_enable: bool = setting(Kind.BOOLEAN, True, "Whether compacted topics are compacted.")
    log_cleaner_threads: int = setting(
        Kind.INT, 1, "How many logs are compacted at a time.", minimum=1, update=Update.CLUSTER_WIDE
    )
    log_cleaner_backoff_ms: int = setting(
        Kind.LONG, 15_000, "The pause when no log needs compaction.", minimum=0, update=Update.CLUSTER_WIDE
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        Kind.LONG,
        134_217_728,
        "The memory for the keys seen in one run, for all compactions together; at least 1 MiB for each.",
        minimum=1 << 20,
        update=Update.CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_size: int = setting(
        Kind.INT,
        524_288,
        "The memory for reading and writing, for all compactions together.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
        no_effect="a compaction sizes its buffers itself",
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        Kind.DOUBLE,
        0.9,
        "How full the memory for keys may get before another run is needed.",
        minimum=0,
        maximum=1,
        update=Update.CLUSTER_WIDE,
        no_effect="a compaction sizes its buffers itself",
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        Kind.DOUBLE,
        sys.float_info.max,
        "The most bytes per second that compaction reads and writes.",
        minimum=1,
        update=Update.CLUSTER_WIDE,
    )
    log_cleaner_min_cleanable_ratio: float = topic_default("min_cleanable_dirty_ratio")
    log_cleaner_min_compaction_lag_ms: int = topic_default("min_compaction_lag_ms")
    log_cleaner_max_compaction_lag_ms: int = topic_default("max_compaction_lag_ms")
    log_cleaner_delete_retention_ms: int = topic_default("delete_retention_ms")


@dataclass(frozen=True, init=False, repr=False, eq=False)
class ReplicationSettings:
    """Replicas, leaders and what moves them."""

    min_insync_replicas: int = topic_default("min_insync_replicas")
    unclean_leader_election_enable: bool = topic_default("unclean_leader_election_enable")
    num_replica_fetchers: int = setting(
        Kind.INT,
        1,
        "How many connections a broker uses to fetch from each leader.",
        minimum=1,
        update=Update.CLUSTER_WIDE,
    )
    replica_fetch_max_bytes: int = setting(
        Kind.INT,
        1_048_576,
        "How many bytes of one partition a follower asks for at a time.",
        minimum=0,
    )
    replica_fetch_response_max_bytes: int = setting(
        Kind.INT, 10_485_760, "How many bytes a follower asks for in one request.", minimum=0
    )
    replica_fetch_min_bytes: int = setting(Kind.INT, 1, "How many bytes a follower's fetch waits for.", minimum=0)
    replica_fetch_wait_max_ms: int = setting(
        Kind.INT, 500, "How long a follower's fetch waits for that many bytes.", minimum=0
    )
    replica_fetch_backoff_ms: int = setting(
        Kind.INT, 1000, "The pause after a partition could not be fetched.", minimum=0
    )
    replica_lag_time_max_ms: int = setting(
        Kind.LONG,
        30_000,
        "A follower that has not caught up for this long is no longer in sync.",
        minimum=1,
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        Kind.LONG, 5000, "How often high watermarks are written to disk.", minimum=1
    )
    replica_socket_timeout_ms: int = setting(
        Kind.INT, 30_000, "How long a follower waits for a response of its leader.", minimum=1
    )
    replica_socket_receive_buffer_bytes: int = setting(
        Kind.INT,
        65_536,
        "The receive buffer of a follower's connection in the kernel; -1: the system's default.",
        minimum=-1,
        no_effect="the system chooses the size",
    )
    replica_selector_class: str | None = setting(
        Kind.STRING,
        None,
        "How the replica for a consumer is chosen. With a name that ends in `RackAwareReplicaSelector`, one in its own "
        "rack; otherwise the leader.",
    )
    auto_leader_rebalance_enable: bool = setting(
        Kind.BOOLEAN,
        True,
        "Whether leadership is moved back to preferred replicas automatically.",
    )
    leader_imbalance_check_interval_seconds: int = setting(Kind.LONG, 300, "How often that is checked.", minimum=1)
    leader_imbalance_per_broker_percentage: int = setting(
        Kind.INT,
        10,
        "The share of a broker's preferred leaderships that may be on other brokers before they are moved back.",
        minimum=0,
        maximum=100,
    )
    leader_replication_throttled_rate: int = setting(
        Kind.LONG,
        LONG_MAX,
        "The most bytes per second that a leader sends to throttled replicas.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
    )
    follower_replication_throttled_rate: int = setting(
        Kind.LONG,
        LONG_MAX,
        "The most bytes per second that throttled replicas fetch.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        Kind.LONG,
        LONG_MAX,
        "The most bytes per second by which replicas move between data directories.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
    )


@dataclass(frozen=True, init=False, repr=False, eq=False)
class GroupCoordinatorSettings:
    """Consumer groups and their offsets."""

    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        Kind.LIST,
        ("classic", "consumer"),
        "The group protocols that are served; `share` and `streams` are accepted here and not served.",
        choices=("classic", "consumer", "share", "streams"),
    )
    group_initial_rebalance_delay_ms: int = setting(
        Kind.INT, 3000, "How long the first rebalance of an empty group waits for more members.", minimum=0
    )
    group_min_session_timeout_ms: int = setting(
        Kind.INT, 6000, "The shortest session timeout that a member may ask for.", minimum=1
    )
    group_max_session_timeout_ms: int = setting(
        Kind.INT, 1_800_000, "The longest session timeout that a member may ask for.", minimum=1
    )
    group_max_size: int = setting(Kind.INT, INT_MAX, "The largest number of members of a group.", minimum=1)
    group_consumer_session_timeout_ms: int = setting(
        Kind.INT, 45_000, "A member of a consumer group that sends no heartbeat for this long is removed.", minimum=1
    )
    group_consumer_min_session_timeout_ms: int = setting(
        Kind.INT, 45_000, "The shortest session timeout that a group may set.", minimum=1
    )
    group_consumer_max_session_timeout_ms: int = setting(
        Kind.INT, 60_000, "The longest session timeout that a group may set.", minimum=1
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        Kind.INT, 5000, "The interval between heartbeats of a member of a consumer group.", minimum=1
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        Kind.INT, 5000, "The shortest heartbeat interval that a group may set.", minimum=1
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        Kind.INT, 15_000, "The longest heartbeat interval that a group may set.", minimum=1
    )
    group_consumer_assignment_interval_ms: int = setting(
        Kind.INT,
        1000,
        "The shortest time between two new assignments of a group.",
        minimum=0,
        update=Update.CLUSTER_WIDE,
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        Kind.INT, 0, "The shortest assignment interval that a group may set.", minimum=0
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        Kind.INT, 15_000, "The longest assignment interval that a group may set.", minimum=0
    )
    group_consumer_max_size: int = setting(
        Kind.INT, INT_MAX, "The largest number of members of a consumer group.", minimum=1
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        Kind.LIST,
        ("uniform", "range"),
        "The assignors of the consumer protocol; the first is used when members name none.",
        choices=("uniform", "range"),
    )
    group_consumer_migration_policy: str = setting(
        Kind.STRING,
        "bidirectional",
        "Whether a group may change between the classic and the consumer protocol while it is in use.",
        choices=("disabled", "downgrade", "upgrade", "bidirectional"),
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        Kind.INT, 600_000, "How often subscription patterns are matched against the topics.", minimum=10_000
    )
    offset_metadata_max_bytes: int = setting(
        Kind.INT, 4096, "The longest metadata that a consumer may store with an offset.", minimum=0
    )
    offsets_commit_timeout_ms: int = setting(
        Kind.INT, 5000, "How long a commit waits for the replicas of the offsets topic.", minimum=1
    )
    offsets_load_buffer_size: int = setting(
        Kind.INT,
        5_242_880,
        "How many bytes are read at a time when a coordinator loads its groups.",
        minimum=1,
        no_effect="coordinators are loaded in parts of a fixed size",
    )
    offsets_retention_minutes: int = setting(
        Kind.INT, 10_080, "How long the offsets of an empty group are kept.", minimum=1
    )
    offsets_retention_check_interval_ms: int = setting(
        Kind.LONG, 600_000, "How often offsets are checked for expired ones.", minimum=1
    )
    offsets_topic_num_partitions: int = setting(
        Kind.INT, 50, "The partitions of `__consumer_offsets`; must not change later.", minimum=1
    )
    offsets_topic_replication_factor: int = setting(
        Kind.SHORT,
        3,
        "The replicas of `__consumer_offsets`: a cluster makes it once so many brokers are alive.",
        minimum=1,
    )
    offsets_topic_segment_bytes: int = setting(
        Kind.INT, 104_857_600, "The segment size of `__consumer_offsets`: small segments are loaded faster.", minimum=1
    )
    offsets_topic_compression_codec: int = setting(
        Kind.INT,
        0,
        "The codec of records in `__consumer_offsets`, by its number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        minimum=0,
        maximum=4,
    )


@dataclass(frozen=True, init=False, repr=False, eq=False)
class TransactionBrokerSettings:
    """Transactions."""

    transaction_max_timeout_ms: int = setting(
        Kind.INT, 900_000, "The longest transaction timeout that a producer may ask for.", minimum=1
    )
    transactional_id_expiration_ms: int = setting(
        Kind.INT, 604_800_000, "How long a transactional id that is not used is remembered.", minimum=1
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        Kind.INT,
        10_000,
        "How often transactions are checked for timeouts.",
        minimum=1,
        no_effect="each has its own timer",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        Kind.INT,
        3_600_000,
        "How often unused transactional ids are looked for.",
        minimum=1,
        no_effect="each has its own timer",
    )
    transaction_partition_verification_enable: bool = setting(
        Kind.BOOLEAN,
        True,
        "Whether the broker asks the coordinator if a transaction of an older producer is really open.",
        update=Update.CLUSTER_WIDE,
    )
    transaction_two_phase_commit_enable: bool = setting(
        Kind.BOOLEAN, False, "Whether a producer may take part in a two-phase commit, for which there is no timeout."
    )
    transaction_state_log_num_partitions: int = setting(
        Kind.INT, 50, "The partitions of `__transaction_state`; must not change later.", minimum=1
    )
    transaction_state_log_replication_factor: int = setting(
        Kind.SHORT,
        3,
        "The replicas of `__transaction_state`: a cluster makes it once so many brokers are alive.",
        minimum=1,
    )
    transaction_state_log_min_isr: int = setting(
        Kind.INT, 2, "The `min.insync.replicas` of `__transaction_state`; at most its replicas.", minimum=1
    )
    transaction_state_log_segment_bytes: int = setting(
        Kind.INT, 104_857_600, "The segment size of `__transaction_state`.", minimum=1
    )
    transaction_state_log_load_buffer_size: int = setting(
        Kind.INT,
        5_242_880,
        "How many bytes are read at a time when a coordinator loads its transactions.",
        minimum=1,
        no_effect="coordinators are loaded in parts of a fixed size",
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        Kind.INT, 20, "The pause before a verification is retried because the coordinator was busy.", minimum=1
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        Kind.INT, 100, "The longest time for which it is retried.", minimum=0
    )

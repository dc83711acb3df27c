"""Settings that Kafka changes while a broker runs and that mean nothing here: accepted, kept and described.

Tools and operators set them for all brokers of a fleet and expect to read them back. What else Kafka's files may hold
is named in `unsupported`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ottla.config.setting import LONG_MAX, NO_TIERED_STORAGE, Kind, Update, setting

NO_SASL = "no listener speaks Kerberos, and a login is never refreshed in the background"
NO_JAVA = "TLS is that of Python's ssl module, which has no such choice"
NO_POOLS = "one event loop does this work, with threads for what waits for the disk"
NO_SUCH_GROUPS = "share groups and streams groups are not served"
NO_PLUGINS = "no classes are loaded"


def for_one(kind: Kind, default: Any, meaning: str, **details: Any) -> Any:
    return setting(kind, default, meaning, update=Update.PER_BROKER, **details)


def for_all(kind: Kind, default: Any, meaning: str, **details: Any) -> Any:
    return setting(kind, default, meaning, update=Update.CLUSTER_WIDE, **details)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class SettingsWithoutEffect:
    """Kept for tools that set them."""

    background_threads: int = for_all(
        Kind.INT, 10, "The number of threads for background work.", minimum=1, no_effect=NO_POOLS
    )
    num_io_threads: int = for_all(
        Kind.INT, 8, "The number of threads that handle requests.", minimum=1, no_effect=NO_POOLS
    )
    num_network_threads: int = for_all(
        Kind.INT, 3, "The number of threads that read requests and send responses.", minimum=1, no_effect=NO_POOLS
    )
    num_recovery_threads_per_data_dir: int = for_all(
        Kind.INT, 2, "The number of threads that open the logs of a data directory.", minimum=1, no_effect=NO_POOLS
    )
    cordoned_log_dirs: tuple[str, ...] = for_one(
        Kind.LIST, (), "The data directories that get no new partitions.", no_effect="every directory gets partitions"
    )
    config_providers: tuple[str, ...] = for_all(
        Kind.LIST, (), "The providers of values that are not in the file.", no_effect=NO_PLUGINS
    )
    metric_reporters: tuple[str, ...] = for_all(
        Kind.LIST,
        ("org.apache.kafka.common.metrics.JmxReporter",),
        "The classes that report metrics.",
        no_effect=NO_PLUGINS,
    )
    principal_builder_class: str = for_one(
        Kind.CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "The class that derives the principal of a connection.",
        no_effect=NO_PLUGINS,
    )
    group_coordinator_cached_buffer_max_bytes: int = for_all(
        Kind.INT,
        1_048_588,
        "The largest buffer that the group coordinator keeps for its next write.",
        minimum=524_288,
        no_effect="no buffers are kept",
    )
    share_coordinator_cached_buffer_max_bytes: int = for_all(
        Kind.INT,
        1_048_588,
        "The largest buffer that the share coordinator keeps for its next write.",
        minimum=524_288,
        no_effect=NO_SUCH_GROUPS,
    )
    group_share_assignment_interval_ms: int = for_all(
        Kind.INT,
        1000,
        "The shortest time between two new assignments of a share group.",
        minimum=0,
        no_effect=NO_SUCH_GROUPS,
    )
    group_streams_assignment_interval_ms: int = for_all(
        Kind.INT,
        1000,
        "The shortest time between two new assignments of a streams group.",
        minimum=0,
        no_effect=NO_SUCH_GROUPS,
    )
    follower_fetch_last_tiered_offset_enable: bool = for_all(
        Kind.BOOLEAN,
        False,
        "Whether a new follower starts after the last offset in tiered storage.",
        no_effect=NO_TIERED_STORAGE,
    )
    log_local_retention_bytes: int = for_all(
        Kind.LONG,
        -2,
        "For topics that do not set `local.retention.bytes`.",
        minimum=-2,
        no_effect=NO_TIERED_STORAGE,
    )
    log_local_retention_ms: int = for_all(
        Kind.LONG, -2, "For topics that do not set `local.retention.ms`.", minimum=-2, no_effect=NO_TIERED_STORAGE
    )
    remote_fetch_max_wait_ms: int = for_all(
        Kind.INT, 500, "How long a fetch waits for tiered storage.", minimum=1, no_effect=NO_TIERED_STORAGE
    )
    remote_list_offsets_request_timeout_ms: int = for_all(
        Kind.LONG,
        30_000,
        "How long a request for offsets waits for tiered storage.",
        minimum=1,
        no_effect=NO_TIERED_STORAGE,
    )
    remote_log_index_file_cache_total_size_bytes: int = for_all(
        Kind.LONG,
        1_073_741_824,
        "The disk space for indexes of tiered segments.",
        minimum=1,
        no_effect=NO_TIERED_STORAGE,
    )
    remote_log_manager_copier_thread_pool_size: int = for_all(
        Kind.INT, 10, "The threads that copy to tiered storage.", minimum=1, no_effect=NO_TIERED_STORAGE
    )
    remote_log_manager_copy_max_bytes_per_second: int = for_all(
        Kind.LONG,
        LONG_MAX,
        "The most bytes per second that are copied to tiered storage.",
        minimum=1,
        no_effect=NO_TIERED_STORAGE,
    )
    remote_log_manager_expiration_thread_pool_size: int = for_all(
        Kind.INT, 10, "The threads that delete from tiered storage.", minimum=1, no_effect=NO_TIERED_STORAGE
    )
    remote_log_manager_fetch_max_bytes_per_second: int = for_all(
        Kind.LONG,
        LONG_MAX,
        "The most bytes per second that are read from tiered storage.",
        minimum=1,
        no_effect=NO_TIERED_STORAGE,
    )
    remote_log_manager_follower_thread_pool_size: int = for_all(
        Kind.INT, 2, "The threads of followers for tiered storage.", minimum=1, no_effect=NO_TIERED_STORAGE
    )
    remote_log_reader_threads: int = for_all(
        Kind.INT, 10, "The threads that read from tiered storage.", minimum=1, no_effect=NO_TIERED_STORAGE
    )
    sasl_kerberos_kinit_cmd: str = for_one(Kind.STRING, "/usr/bin/kinit", "Kerberos's kinit.", no_effect=NO_SASL)
    sasl_kerberos_min_time_before_relogin: int = for_one(
        Kind.LONG, 60_000, "The pause before the next Kerberos login.", no_effect=NO_SASL
    )
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = for_one(
        Kind.LIST, ("DEFAULT",), "How Kerberos principals become short names.", no_effect=NO_SASL
    )
    sasl_kerberos_service_name: str | None = for_one(
        Kind.STRING, None, "The Kerberos name of brokers.", no_effect=NO_SASL
    )
    sasl_kerberos_ticket_renew_jitter: float = for_one(
        Kind.DOUBLE, 0.05, "The random part of the time after which tickets are renewed.", no_effect=NO_SASL
    )
    sasl_kerberos_ticket_renew_window_factor: float = for_one(
        Kind.DOUBLE, 0.8, "The share of their lifetime after which tickets are renewed.", no_effect=NO_SASL
    )
    sasl_login_refresh_buffer_seconds: int = for_one(
        Kind.SHORT, 300, "How long before its end a login is refreshed at the latest.", no_effect=NO_SASL
    )
    sasl_login_refresh_min_period_seconds: int = for_one(
        Kind.SHORT, 60, "The shortest time between two refreshes of a login.", no_effect=NO_SASL
    )
    sasl_login_refresh_window_factor: float = for_one(
        Kind.DOUBLE, 0.8, "The share of its lifetime after which a login is refreshed.", no_effect=NO_SASL
    )
    sasl_login_refresh_window_jitter: float = for_one(
        Kind.DOUBLE, 0.05, "The random part of the time after which a login is refreshed.", no_effect=NO_SASL
    )
    ssl_engine_factory_class: str | None = for_one(
        Kind.CLASS, None, "The class that creates TLS engines.", no_effect=NO_JAVA
    )
    ssl_keymanager_algorithm: str = for_one(Kind.STRING, "SunX509", "Java's key manager.", no_effect=NO_JAVA)
    ssl_protocol: str = for_one(Kind.STRING, "TLSv1.3", "The version of TLS to start with.", no_effect=NO_JAVA)
    ssl_provider: str | None = for_one(Kind.STRING, None, "Java's provider of TLS.", no_effect=NO_JAVA)
    ssl_secure_random_implementation: str | None = for_one(
        Kind.STRING, None, "Java's source of random numbers.", no_effect=NO_JAVA
    )
    ssl_trustmanager_algorithm: str = for_one(Kind.STRING, "PKIX", "Java's trust manager.", no_effect=NO_JAVA)

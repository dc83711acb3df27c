"""The settings of a consumer group: what its members get, within what the broker allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ottla.config.broker import BrokerConfig
from ottla.config.setting import Kind, Setting, attribute_of, setting, settings_of
from ottla.errors import ConfigError


def _of_shares(kind: Kind, default: Any, meaning: str, **details: Any) -> Any:
    return setting(kind, default, f"Of a share group: {meaning}", no_effect="share groups are not served", **details)


def _of_streams(kind: Kind, default: Any, meaning: str, **details: Any) -> Any:
    return setting(
        kind, default, f"Of a streams group: {meaning}", no_effect="streams groups are not served", **details
    )


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings of one group of the consumer protocol, typed."""

    consumer_assignment_interval_ms: int = setting(
        Kind.INT,
        1000,
        "The shortest time between two new assignments of the group.",
        minimum=0,
        broker_names=("group.consumer.assignment.interval.ms",),
    )
    consumer_heartbeat_interval_ms: int = setting(
        Kind.INT,
        5000,
        "The interval between heartbeats of a member.",
        minimum=1,
        broker_names=("group.consumer.heartbeat.interval.ms",),
    )
    consumer_session_timeout_ms: int = setting(
        Kind.INT,
        45_000,
        "A member that sends no heartbeat for this long is removed.",
        minimum=1,
        broker_names=("group.consumer.session.timeout.ms",),
    )

    share_assignment_interval_ms: int = _of_shares(
        Kind.INT, 1000, "The shortest time between two new assignments.", minimum=0, maximum=15_000
    )
    share_auto_offset_reset: str = _of_shares(
        Kind.STRING,
        "latest",
        "Where a group without a start offset begins: `latest`, `earliest`, or `by_duration:` and how long ago.",
    )
    share_delivery_count_limit: int = _of_shares(
        Kind.INT, 5, "How many times a record is delivered at most.", minimum=2, maximum=10
    )
    share_heartbeat_interval_ms: int = _of_shares(
        Kind.INT, 5000, "The interval between heartbeats of a member.", minimum=5000, maximum=15_000
    )
    share_isolation_level: str = _of_shares(
        Kind.STRING,
        "read_uncommitted",
        "Whether records of open and aborted transactions are delivered.",
        choices=("read_committed", "read_uncommitted"),
    )
    share_partition_max_record_locks: int = _of_shares(
        Kind.INT,
        2000,
        "The largest number of records of a partition that are being delivered.",
        minimum=100,
        maximum=4000,
    )
    share_record_lock_duration_ms: int = _of_shares(
        Kind.INT, 30_000, "How long a delivered record is reserved for its consumer.", minimum=15_000, maximum=60_000
    )
    share_renew_acknowledge_enable: bool = _of_shares(Kind.BOOLEAN, True, "Whether a consumer may extend that time.")
    share_session_timeout_ms: int = _of_shares(
        Kind.INT, 45_000, "A member that sends no heartbeat for this long is removed.", minimum=45_000, maximum=60_000
    )
    streams_assignment_interval_ms: int = _of_streams(
        Kind.INT, 1000, "The shortest time between two new assignments.", minimum=0, maximum=15_000
    )
    streams_heartbeat_interval_ms: int = _of_streams(
        Kind.INT, 5000, "The interval between heartbeats of a member.", minimum=5000, maximum=15_000
    )
    streams_initial_rebalance_delay_ms: int = _of_streams(
        Kind.INT, 3000, "How long the first assignment waits for further members.", minimum=0
    )
    streams_num_standby_replicas: int = _of_streams(
        Kind.INT, 0, "How many standby tasks each task has.", minimum=0, maximum=2
    )
    streams_session_timeout_ms: int = _of_streams(
        Kind.INT, 45_000, "A member that sends no heartbeat for this long is removed.", minimum=45_000, maximum=60_000
    )

    def check(self, broker: BrokerConfig) -> None:
        """ConfigError if a value is outside of what the broker allows, or at odds with another."""
        for each in GROUP_SETTINGS.values():
            if each.no_effect:
                continue
            value = getattr(self, each.attribute)
            what = each.name.removeprefix("consumer.")
            for bound, is_outside in (
                (f"group.consumer.min.{what}", int.__lt__),
                (f"group.consumer.max.{what}", int.__gt__),
            ):
                limit = getattr(broker, attribute_of(bound))
                if is_outside(value, limit):
                    raise ConfigError(f"{each.name}={value}: the broker's {bound} is {limit}")
        if self.consumer_heartbeat_interval_ms > self.consumer_session_timeout_ms:
            raise ConfigError(
                f"consumer.heartbeat.interval.ms={self.consumer_heartbeat_interval_ms}: must not be larger than "
                f"consumer.session.timeout.ms ({self.consumer_session_timeout_ms})"
            )


GROUP_SETTINGS: dict[str, Setting] = settings_of(GroupConfig)

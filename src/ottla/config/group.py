"""The settings of a consumer group: what its members are told, within what the broker allows."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.broker import BrokerConfig
from ottla.config.setting import Kind, Setting, attribute_of, setting, settings_of
from ottla.errors import ConfigError


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
        "How often a member is told to report.",
        minimum=1,
        broker_names=("group.consumer.heartbeat.interval.ms",),
    )
    consumer_session_timeout_ms: int = setting(
        Kind.INT,
        45_000,
        "After this silence a member has left.",
        minimum=1,
        broker_names=("group.consumer.session.timeout.ms",),
    )

    def check(self, broker: BrokerConfig) -> None:
        """ConfigError if a value is outside of what the broker allows, or at odds with another."""
        for each in GROUP_SETTINGS.values():
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

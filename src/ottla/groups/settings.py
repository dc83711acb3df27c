"""The settings of the group coordinator, as one small value."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.config.broker import BrokerConfig
from ottla.config.group import GroupConfig

INT_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of a broker that a shard of groups lives by. The defaults are Kafka's."""

    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_retention_check_interval_ms: int = 600_000

    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = INT_MAX

    # For a consumer group that has no settings of its own.
    consumer_config: GroupConfig = field(default_factory=GroupConfig)
    consumer_max_size: int = INT_MAX
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000

    @staticmethod
    def of(config: BrokerConfig) -> GroupSettings:
        return GroupSettings(
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
            offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            max_size=config.group_max_size,
            consumer_config=GroupConfig(
                consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
                consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
                consumer_assignment_interval_ms=config.group_consumer_assignment_interval_ms,
            ),
            consumer_max_size=config.group_consumer_max_size,
            consumer_assignors=config.group_consumer_assignors,
            consumer_migration_policy=config.group_consumer_migration_policy,
            consumer_regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
        )

    @property
    def allows_upgrade(self) -> bool:
        """Whether a classic group becomes a consumer group when a member asks for it."""
        return self.consumer_migration_policy in ("upgrade", "bidirectional")

    @property
    def allows_downgrade(self) -> bool:
        """Whether a consumer group becomes a classic one when its last member of the new protocol leaves."""
        return self.consumer_migration_policy in ("downgrade", "bidirectional")

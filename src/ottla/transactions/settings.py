"""The settings of the transaction coordinator, as one small value."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.broker import BrokerConfig


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The settings of a broker that a shard of transactions lives by. The defaults are Kafka's."""

    max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    two_phase_commit_enable: bool = False

    @staticmethod
    def of(config: BrokerConfig) -> TransactionSettings:
        return TransactionSettings(
            max_timeout_ms=config.transaction_max_timeout_ms,
            transactional_id_expiration_ms=config.transactional_id_expiration_ms,
            two_phase_commit_enable=config.transaction_two_phase_commit_enable,
        )

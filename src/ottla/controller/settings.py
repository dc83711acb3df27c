"""The settings of a controller."""

from __future__ import annotations

from typing import Protocol


class ControllerSettings(Protocol):
    """Asked when it is needed, so that settings that change take effect at once."""

    @property
    def listener_name(self) -> str:
        """The listener by which brokers reach each other: `inter.broker.listener.name`."""
        ...

    @property
    def deletes_topics(self) -> bool:
        """`delete.topic.enable`"""
        ...

    @property
    def rebalances_leaders(self) -> bool:
        """`auto.leader.rebalance.enable`"""
        ...

    @property
    def imbalance_check_s(self) -> float:
        """`leader.imbalance.check.interval.seconds`"""
        ...

    @property
    def imbalance_percent(self) -> int:
        """`leader.imbalance.per.broker.percentage`"""
        ...

    def elects_unclean(self, topic: str) -> bool:
        """`unclean.leader.election.enable` of a topic."""
        ...

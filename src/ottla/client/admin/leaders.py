"""Asking the leader of every partition, wherever it moves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from ottla.client.metadata import Cluster
from ottla.client.retrying import Deadline, is_passing
from ottla.errors import ApiError, OttlaError
from ottla.ids import TopicPartition
from ottla.net.client import ConnectionFailedError

Item = TypeVar("Item")


async def ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ask: Callable[[int, Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, Item | ApiError]]],
    timeout_s: float | None = None,
) -> dict[TopicPartition, Item]:
    """Asks the leader of every partition; those that have moved are asked for again at the new one."""
    deadline = cluster.deadline() if timeout_s is None else Deadline.after(timeout_s)
    pauses = iter(cluster.options.pauses)
    outcomes: dict[TopicPartition, Item] = {}
    missing = list(partitions)
    while True:
        failure: OttlaError | None = None
        for node_id, led in (await cluster.by_leader(missing, deadline)).items():
            try:
                answers = await ask(node_id, led)
            except (ApiError, ConnectionFailedError) as error:
                answers = {}
                failure = _noted(cluster, error, led)
            for partition, answer in answers.items():
                if isinstance(answer, ApiError):
                    failure = _noted(cluster, answer, [partition])
                else:
                    outcomes[partition] = answer
        missing = [partition for partition in missing if partition not in outcomes]
        if not missing:
            return outcomes
        assert failure is not None, "a broker answers for every partition it was asked about"
        await deadline.pause(next(pauses), failure)


def _noted(cluster: Cluster, error: OttlaError, partitions: Iterable[TopicPartition]) -> OttlaError:
    """The error, if it may pass; what it shows to be out of date is forgotten."""
    if not is_passing(error):
        raise error
    cluster.learn_from(error, {partition.topic for partition in partitions})
    return error


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of the partitions under their topic, as most requests want them."""
    groups: dict[str, list[int]] = {}
    for topic, number in partitions:
        groups.setdefault(topic, []).append(number)
    return groups

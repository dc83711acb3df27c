"""Asking the coordinator of a group or of a transactional id: who it is, and again if that has become another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final, TypeVar

from ottla.client.error_codes import error_of_code
from ottla.client.metadata import NOT_NOW, Cluster
from ottla.client.retrying import Deadline, error_of, retrying
from ottla.errors import ErrorCode
from ottla.net.client import BrokerConnection
from ottla.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse

Answer = TypeVar("Answer")

SINGLE_KEY_VERSION_MAX: Final = 3  # later ones take several names, which does not help here
KNOWN_MAX: Final = 1000


class CoordinatorType(IntEnum):
    """What is coordinated, in Kafka's numbers."""

    GROUP = 0
    TRANSACTION = 1

    def of(self, key: str) -> str:
        """In words."""
        return f"the group {key}" if self is CoordinatorType.GROUP else f"the transactional id {key}"


async def find_coordinator(cluster: Cluster, kind: CoordinatorType, key: str) -> int:
    """The broker that coordinates a name, asked for now; ApiError where there is none at the moment."""
    request = FindCoordinatorRequest(key=key, key_type=kind)
    connection = await cluster.any_connection()
    response = await connection.request(request, FindCoordinatorResponse, version_max=SINGLE_KEY_VERSION_MAX)
    error = error_of(response.error_code, response.error_message, kind.of(key))
    if error is not None:
        raise error
    known = cluster.coordinators
    while len(known) >= KNOWN_MAX:
        del known[next(iter(known))]  # the oldest
    known[kind, key] = response.node_id
    return response.node_id


async def known_coordinator(cluster: Cluster, kind: CoordinatorType, key: str) -> int:
    """The broker that coordinated a name when it was last asked for; asked for now where that is not known."""
    known = cluster.coordinators.get((kind, key))
    return await find_coordinator(cluster, kind, key) if known is None else known


async def coordinator_of(cluster: Cluster, kind: CoordinatorType, key: str, deadline: Deadline) -> int:
    """The same, asked until there is one."""
    return await retrying(
        lambda: deadline.within(find_coordinator(cluster, kind, key), cluster.where), deadline, cluster.options.pauses
    )


async def ask_coordinator(
    cluster: Cluster,
    kind: CoordinatorType,
    key: str,
    request: object,
    answer: type[Answer],
    codes: Callable[[Answer], Iterable[int]],
    *,
    version_max: int | None = None,
    deadline: Deadline | None = None,
) -> Answer:
    """Asks the coordinator of a name; `codes` are the error codes of an answer that may ask for patience.

    Who that is was perhaps learned long ago: whatever goes wrong has it asked for again.
    """
    until = deadline or cluster.deadline()

    async def coordinator() -> BrokerConnection:
        return await cluster.coordinator_connection(await known_coordinator(cluster, kind, key))

    async def attempt() -> Answer:
        try:
            return await ask()
        except BaseException:
            cluster.coordinators.pop((kind, key), None)
            raise

    async def ask() -> Answer:
        connection = await until.within(coordinator(), cluster.where)
        timeout_s = min(until.left_s, cluster.options.connection.request_timeout_s)
        response = await connection.request(request, answer, version_max=version_max, timeout_s=timeout_s)
        for code in codes(response):
            if code in NOT_NOW:
                raise error_of_code(ErrorCode(code), f"{kind.of(key)}: {ErrorCode(code).name}")
        return response

    return await retrying(attempt, until, cluster.options.pauses, cluster.learn_from)

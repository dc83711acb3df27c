"""What ZooKeeper says of a cluster, for tests; and sessions that are ended when a test wants it.

A test that kills a broker ends its session too, as the timeout would, and does not wait for that. So sessions are as
long as a slow machine needs: short ones also end under brokers that are alive and wait for a core.
"""

from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoNodeError
from kazoo.protocol.states import WatchedEvent
from kazoo.retry import KazooRetry

from ottla.testing.waiting import WAIT_S, wait_until

# ZooKeeper derives the password of a session from its number, with a constant and Java's generator of random numbers.
PASSWORD_SECRET: Final = 0xB3415C00
PASSWORD_BYTES: Final = 16
JAVA_MULTIPLIER: Final = 0x5DEECE66D
JAVA_INCREMENT: Final = 0xB
JAVA_SEED_MASK: Final = (1 << 48) - 1


class InZooKeeper:
    """The nodes of one cluster. Every question has a connection of its own, so that there is nothing to close."""

    def __init__(self, connect: str) -> None:
        """`connect`: where ZooKeeper is, with a path of the cluster's own if others use it too."""
        self.connect = connect

    def stored(self, path: str) -> Any:
        """The JSON of a node; None where it is not there."""
        with _client(self.connect) as client:
            try:
                return json.loads(client.retry(client.get, path)[0])
            except NoNodeError:
                return None

    @property
    def controller_id(self) -> int | None:
        found = self.stored("/controller")
        return None if found is None else int(found["brokerid"])

    def state(self, topic: str, partition: int) -> dict[str, Any]:
        """Leader, epoch and in-sync replicas of a partition, as soon as there are any."""
        found: dict[str, Any] | None = None

        def is_there() -> bool:
            nonlocal found
            found = self.stored(f"/brokers/topics/{topic}/partitions/{partition}/state")
            return found is not None

        wait_until(is_there)
        assert found is not None
        return found

    def wait_for_leader(self, topic: str, partition: int, node_id: int) -> None:
        wait_until(lambda: self.state(topic, partition)["leader"] == node_id)

    def wait_for_isr(self, topic: str, partition: int, *node_ids: int) -> None:
        wait_until(lambda: sorted(self.state(topic, partition)["isr"]) == sorted(node_ids))

    def end_session_of(self, node_id: int) -> None:
        """Ends the session of a broker, and with it what is registered; nothing happens where it is over already.

        The broker takes its session back where it is faster than we are: then it is ended again.
        """
        owner = first = self._owner_of_registration(node_id)
        while owner is not None and owner == first:
            with suppress(ConnectionLoss):
                end_session(self.connect, owner, _password_of(owner))
            owner = self._owner_of_registration(node_id)

    def _owner_of_registration(self, node_id: int) -> int | None:
        with _client(self.connect) as client:
            try:
                _, stat = client.retry(client.get, f"/brokers/ids/{node_id}")
            except NoNodeError:
                return None
        owner: int = stat.ephemeralOwner
        return owner

    @contextmanager
    def noting_end_of_session(self, node_id: int) -> Iterator[EndOfSession]:
        """Watches for the end of a broker's session; the `moment` is there once the block has been left."""
        ended = threading.Event()
        noted = EndOfSession()

        def gone(_: WatchedEvent) -> None:
            noted.moment = time.monotonic()
            ended.set()

        with _client(self.connect) as client:
            assert client.retry(client.exists, f"/brokers/ids/{node_id}", watch=gone), f"{node_id} is not registered"
            yield noted
            assert ended.wait(WAIT_S), f"the session of broker {node_id} does not end"


@dataclass(slots=True)
class EndOfSession:
    """When ZooKeeper removed what a session had made, by the monotonic clock."""

    moment: float = 0.0


def end_session(connect: str, session_id: int, password: bytes) -> None:
    """Whoever knows a session's password may go on with it, and so may close it."""
    hosts, _, _ = connect.partition("/")  # with a path kazoo would look for it first, and the session be taken back
    with _client(hosts, client_id=(session_id, password)):
        pass


def _password_of(session_id: int) -> bytes:
    seed = (session_id ^ PASSWORD_SECRET ^ JAVA_MULTIPLIER) & JAVA_SEED_MASK
    password = b""
    while len(password) < PASSWORD_BYTES:
        seed = (seed * JAVA_MULTIPLIER + JAVA_INCREMENT) & JAVA_SEED_MASK
        password += struct.pack("<I", seed >> 16)
    return password


@contextmanager
def _client(connect: str, **options: Any) -> Iterator[Any]:
    """A connection that a busy machine may interrupt: `retry` asks again."""
    client = KazooClient(connect, command_retry=KazooRetry(max_tries=-1, deadline=WAIT_S), **options)
    try:
        client.start(WAIT_S)
        yield client
    finally:
        client.stop()
        client.close()

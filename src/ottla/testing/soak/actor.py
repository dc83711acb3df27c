"""A client of the soak: on a host of its own, one connection at a time, and a request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.testing.ledger import PartitionKey
from ottla.testing.wire_client import WireClient

if TYPE_CHECKING:
    from ottla.testing.soak.run import Soak

CALL_TIMEOUT_S: Final = 4.0
HASTY_S: Final = 0.003
LONG_POLL_MS: Final = 500

# A topic that is gone, or was never there: its writers and readers look for another one.
GONE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)
# What a partition answers whose disk has failed, and a leader that is just learning it.
OFFLINE: Final = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Disconnected(Exception):  # noqa: N818
    """Nobody knows whether the request was served."""


class Settings:
    """Settings that a response confirmed; not those for which an answer never came, for they may change at any time."""

    def __init__(self, confirmed: Mapping[str, str] | None = None) -> None:
        self._confirmed = dict(confirmed or {})
        self._unclear: set[str] = set()

    @contextmanager
    def asking(self, name: str, value: str) -> Iterator[None]:
        """A change is in flight; an exception leaves open whether it arrives."""
        try:
            yield
        except BaseException:
            self._unclear.add(name)
            raise
        self._confirmed[name] = value

    def check(self, there: Mapping[str, str]) -> None:
        for name, value in self._confirmed.items():
            assert name in self._unclear or there.get(name) == value, f"{name} was set to {value}: {there}"


class Topic:
    """A topic that exists, as far as clients know."""

    def __init__(
        self, name: str, topic_id: UUID, partition_count: int, settings: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_count = partition_count
        self.settings = Settings(settings)
        self.is_doomed = False  # somebody asked for its deletion

    def key(self, partition: int) -> PartitionKey:
        return PartitionKey(self.topic_id, partition, self.name)

    @property
    def keys(self) -> list[PartitionKey]:
        return [self.key(index) for index in range(self.partition_count)]


class Actor:
    """Acts until the soak is over, and connects again whenever it has to."""

    haste = 0.05  # how often it does not wait for an answer

    def __init__(self, soak: Soak, name: str) -> None:
        self.soak = soak
        self.name = name
        self.rng = soak.world.rng(name)
        self.connection_count = 0
        self._host = soak.world.network.host(name)
        self._client: WireClient | None = None

    async def run(self) -> None:
        while self.soak.is_on:
            await self.think()
            try:
                await self.act()
            except Disconnected:
                continue
        self.close()

    async def think(self) -> None:
        await asyncio.sleep(self.rng.uniform(0.001, 0.1))

    async def act(self) -> None:
        raise NotImplementedError

    async def call(self, request: object, version: int) -> Any:
        client = await self.connected()
        try:
            return await client.call(request, version, timeout_s=self._patience_s())
        except (OSError, TimeoutError) as error:
            self.close()
            raise Disconnected from error

    async def send(self, request: object, version: int) -> None:
        """A request without an answer."""
        client = await self.connected()
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await client.send(request, version)
        except (OSError, TimeoutError) as error:
            self.close()
            raise Disconnected from error

    def _patience_s(self) -> float:
        """Some hang up while they send, while they are served or while they are answered."""
        return self.rng.uniform(0, HASTY_S) if self.rng.random() < self.haste else CALL_TIMEOUT_S

    async def connected(self) -> WireClient:
        if self._client is None:
            try:
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    self._client = WireClient(await self._host.connect(*self.soak.process.address), self.name)
            except (OSError, TimeoutError) as error:
                raise Disconnected from error
            self.connection_count += 1
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def refuses(self, error_code: int, asked_at: float, topic: Topic | None = None) -> bool:
        """Whether an answer says no in a way that it may: the topic is going, or a disk has failed. Any other no fails.

        `asked_at` is when it was asked; an answer may arrive when the disk is well again.
        """
        if error_code == ErrorCode.NONE:
            return False
        if topic is not None and error_code in GONE and topic.is_doomed:
            return True
        assert error_code in OFFLINE, ErrorCode(error_code).name
        assert self.soak.sickness.was_there_since(asked_at), "a partition is offline on a disk that works"
        return True

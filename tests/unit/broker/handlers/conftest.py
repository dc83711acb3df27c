"""A broker in a simulated world, asked without a socket: bytes of a request in, bytes of its answer out.

What a test asks goes through the decoder, the handler and the encoder of its version, as from a client; nothing waits
for anything real, so a broker and its conversation take some milliseconds.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.ids import TopicPartition
from ottla.net.connection import Parked
from ottla.protocol.codec import decode, encode
from ottla.protocol.headers import decode_response_header, encode_request_header
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.schema import message_schema_of
from ottla.protocol.versions import API_TABLE
from ottla.testing.raw_requests import create_topic
from ottla.testing.world import World

LENGTH_BYTES = 4


class AskedBroker:
    """A broker that runs, and a client of it that sends just what a test says."""

    def __init__(self, properties: dict[str, str] | None = None) -> None:
        self._world = World(seed=1)
        self._loop = self._world.loop
        self._process = self._world.broker("broker-1", {"broker.id": "1", **(properties or {})})
        self._loop.run_until_complete(self._process.start())
        self._connection: Any = SimpleNamespace(session=self.broker.sessions.open("PLAINTEXT", "127.0.0.1"))

    @property
    def broker(self) -> Any:
        return self._process.broker

    def ask(self, request: object, version: int) -> Any:
        """The answer; None where there is none (acks=0), ProtocolError where the connection would be closed."""
        key = message_schema_of(type(request)).key
        assert key is not None, f"{type(request).__name__} is no request"
        header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=7, client_id="a test")
        reply = self.send(encode_request_header(header) + encode(request, version))
        if reply is None:
            return None
        told, position = decode_response_header(reply, key, version)
        assert told.correlation_id == 7
        return decode(API_TABLE[key].response, reply, version, position)

    def send(self, frame: bytes) -> bytes | None:
        """The bytes of the answer to the bytes of a request."""
        reply = self._loop.run_until_complete(self._dispatched(memoryview(bytearray(frame))))
        if reply is None:
            return None
        parts = [part.read() if hasattr(part, "read") else bytes(part) for part in reply]
        return b"".join(parts)[LENGTH_BYTES:]

    async def _dispatched(self, frame: memoryview) -> Any:
        reply = self.broker.dispatcher(self._connection, frame)
        if isinstance(reply, Parked):
            reply = reply.reply
        return await reply if inspect.isawaitable(reply) else reply

    def new_topic(self, name: str, partitions: int = 1, **config: str) -> UUID:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        made = self.ask(create_topic(name, partitions, config=settings), 7).topics[0]
        assert not made.error_code, made
        return made.topic_id  # type: ignore[no-any-return]

    def lose(self, *lost: TopicPartition) -> None:
        """As if the log directory of these partitions had failed."""
        self._loop.run_until_complete(self.broker.controller.replicas_lost(1, lost))

    def close(self) -> None:
        self._loop.run_until_complete(self._process.stop())
        self._loop.close()
        assert not self._world.failures


@pytest.fixture
def new_broker() -> Iterator[Callable[..., AskedBroker]]:
    """Makes brokers with settings of their own."""
    made: list[AskedBroker] = []

    def new_broker(**properties: str) -> AskedBroker:
        made.append(AskedBroker({key.replace("_", "."): value for key, value in properties.items()}))
        return made[-1]

    yield new_broker
    for broker in made:
        broker.close()


@pytest.fixture
def broker(new_broker: Callable[..., AskedBroker]) -> AskedBroker:
    """A broker with the settings of most tests: topics are there because somebody created them."""
    return new_broker(auto_create_topics_enable="false")

"""A client that sends single requests, for tests that check exactly what a broker answers.

    with RawClient(broker.bootstrap_servers) as client:
        answer = client.ask(MetadataRequest(topics=None), version=12)

No retries, no negotiation, no metadata: the test decides what is sent, right or wrong. It blocks, so that a test
controls the order of events; `send` and `receive` are separate for tests with several requests in flight.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Any, NamedTuple, Self

from ottla.errors import OttlaError
from ottla.protocol.codec import decode, encode
from ottla.protocol.frames import FRAME_BYTES_MAX, LENGTH_BYTES, frame_bytes, framed
from ottla.protocol.headers import decode_response_header, encode_request_header
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.schema import message_schema_of
from ottla.protocol.versions import API_TABLE
from ottla.testing.waiting import WAIT_S

TIMEOUT_S = WAIT_S


class ConnectionEnded(OttlaError):  # noqa: N818 (it is what happened, and often what a test wants)
    """The broker closed the connection."""


class Sent(NamedTuple):
    """A request that waits for its answer."""

    api_key: int
    version: int
    correlation_id: int


class RawClient:
    """One connection to a broker."""

    def __init__(self, bootstrap_servers: str, *, client_id: str | None = "raw", timeout_s: float = TIMEOUT_S) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client_id = client_id
        self._correlation_id = 0
        self._in_flight: deque[Sent] = deque()

    # -- requests ------------------------------------------------------------------------------------------------------

    def ask(self, request: object, version: int) -> Any:
        """Sends a request and returns its response, which must be the next one to arrive."""
        sent = self.send(request, version)
        answer, correlation_id = self.receive()
        assert correlation_id == sent.correlation_id, "answers came out of order"
        return answer

    def send(self, request: object, version: int, *, is_answered: bool = True) -> Sent:
        """Sends a request; its response is left for `receive`. There is none with acks=0."""
        sent, data = self.encoded(request, version)
        if is_answered:
            self._in_flight.append(sent)
        self.socket.sendall(data)
        return sent

    def send_together(self, requests: Iterable[tuple[object, int]]) -> list[Sent]:
        """Sends requests, each with its version, in one piece, so that the broker reads them together."""
        encoded = [self.encoded(request, version) for request, version in requests]
        self._in_flight.extend(sent for sent, _ in encoded)
        self.socket.sendall(b"".join(frame for _, frame in encoded))
        return [sent for sent, _ in encoded]

    def encoded(self, request: object, version: int) -> tuple[Sent, bytes]:
        """The frame of a request with the next correlation id, for tests that cut or damage it."""
        key = message_schema_of(type(request)).key
        assert key is not None, f"{type(request).__name__} is not a request"
        self._correlation_id += 1
        header = RequestHeader(
            request_api_key=key,
            request_api_version=version,
            correlation_id=self._correlation_id,
            client_id=self.client_id,
        )
        sent = Sent(key, version, self._correlation_id)
        return sent, framed(encode_request_header(header), encode(request, version))

    def receive(self) -> tuple[Any, int]:
        """The answer to the oldest request in flight, and its correlation id."""
        sent = self._in_flight.popleft()
        frame = self.receive_frame()
        header, position = decode_response_header(frame, sent.api_key, sent.version)
        answer: Any = decode(API_TABLE[sent.api_key].response, frame, sent.version, position)
        return answer, header.correlation_id

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def receive_frame(self) -> bytes:
        """The next frame without its length; ConnectionEnded where there is none."""
        return self._receive_exactly(frame_bytes(self._receive_exactly(LENGTH_BYTES), 0, FRAME_BYTES_MAX))

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                piece = self.socket.recv(min(1 << 20, size - len(data)))
            except ConnectionResetError as error:
                raise ConnectionEnded("the broker reset the connection") from error
            if not piece:
                raise ConnectionEnded(f"the broker closed the connection after {len(data)} of {size} bytes")
            data += piece
        return bytes(data)

    def is_ended(self, timeout_s: float = TIMEOUT_S) -> bool:
        """Whether the broker closes the connection within the time, without another byte."""
        self.socket.settimeout(timeout_s)
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    # -- life ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def wait_until_read(bootstrap_servers: str) -> None:
    """Returns when the broker has read everything that was sent to it before.

    Its loop sees what has arrived no later than what arrives on a connection that is opened now.
    """
    with RawClient(bootstrap_servers) as client:
        client.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 3)

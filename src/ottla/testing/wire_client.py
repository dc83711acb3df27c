"""The smallest client: one connection, one request at a time, typed messages in and out.

It retries nothing and hides nothing, so that a test sees what a broker does. Any trouble closes the connection.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any

from ottla.errors import ProtocolError
from ottla.protocol.codec import decode, encode
from ottla.protocol.frames import framed
from ottla.protocol.headers import decode_response_header, encode_request_header
from ottla.protocol.messages.headers import RequestHeader
from ottla.protocol.schema import message_schema_of
from ottla.protocol.versions import API_TABLE, Api

RECEIVE_BYTES = 65_536


class WireClient:
    """One connection to a broker."""

    def __init__(self, sock: socket.socket, client_id: str = "wire") -> None:
        self._socket = sock
        self._client_id = client_id
        self._correlation_id = 0
        self._received = bytearray()

    async def call(self, request: object, version: int, *, timeout_s: float = 30.0) -> Any:
        """The broker's answer; OSError if the connection breaks, TimeoutError if nothing comes."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self.receive(request, version, await self.send(request, version))
        except BaseException:
            self.close()
            raise

    async def call_together(
        self, requests: Sequence[object], version: int, *, pause_s: Callable[[], float], timeout_s: float = 30.0
    ) -> list[Any]:
        """The answers to requests that are in flight together, each sent a pause after the one before."""
        first = self._correlation_id + 1
        answers: list[Any] = []
        try:
            async with asyncio.timeout(timeout_s):
                for request in requests:
                    await self.send(request, version)
                    await asyncio.sleep(pause_s())
                for number, request in enumerate(requests, first):
                    answers.append(await self.receive(request, version, number))
        except BaseException:
            self.close()
            raise
        return answers

    async def receive(self, request: object, version: int, correlation_id: int) -> Any:
        """The next answer, which has to be the one to a request that was sent."""
        api, answer = _api_of(request), await self._receive_frame()
        header, position = decode_response_header(answer, api.key, version)
        if header.correlation_id != correlation_id:
            raise ProtocolError(f"answer {header.correlation_id} to request {correlation_id}")
        return decode(api.response, answer, version, position)

    async def send(self, request: object, version: int) -> int:
        """Only sends; the correlation id, for `receive`."""
        self._correlation_id += 1
        header = RequestHeader(
            request_api_key=_api_of(request).key,
            request_api_version=version,
            correlation_id=self._correlation_id,
            client_id=self._client_id,
        )
        data = framed(encode_request_header(header), encode(request, version))
        await self.send_part(data)
        return self._correlation_id

    async def send_part(self, data: bytes) -> None:
        """Bytes as they are."""
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    def end(self) -> None:
        """No more will be sent; answers are still read."""
        self._socket.shutdown(socket.SHUT_WR)

    async def _receive_frame(self) -> bytes:
        return await self._receive(int.from_bytes(await self._receive(4)))

    async def _receive(self, count: int) -> bytes:
        loop = asyncio.get_running_loop()
        while len(self._received) < count:
            piece = await loop.sock_recv(self._socket, RECEIVE_BYTES)
            if not piece:
                raise ConnectionResetError("the broker closed the connection")
            self._received += piece
        data = bytes(self._received[:count])
        del self._received[:count]
        return data

    def close(self) -> None:
        self._socket.close()


def _api_of(request: object) -> Api:
    key = message_schema_of(type(request)).key
    assert key is not None, f"{request} is not a request"
    return API_TABLE[key]

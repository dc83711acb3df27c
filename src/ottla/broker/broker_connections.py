"""Requests of this broker to other brokers of its cluster: a connection to each, made when it is first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.cluster.image import ClusterImage
from ottla.errors import ApiError, ErrorCode
from ottla.net.client import (
    Address,
    BrokerConnection,
    ConnectionFailedError,
    ConnectionOptions,
    Connector,
    UnsupportedByBrokerError,
    connect,
    connect_tcp,
)

Answer = TypeVar("Answer")


class BrokerConnections:
    """Of one broker to all others. Several requests may be in flight on a connection."""

    def __init__(
        self,
        client_id: str,
        listener_name: str,
        image: Callable[[], ClusterImage],
        request_timeout_s: float,
        connector: Connector = connect_tcp,
    ) -> None:
        self._listener_name = listener_name
        self._image = image
        self._options = ConnectionOptions(client_id=client_id, request_timeout_s=request_timeout_s)
        self._connector = connector
        self._connections: dict[int, BrokerConnection] = {}
        self._connecting: dict[int, asyncio.Lock] = {}

    async def ask(self, node_id: int, request: Any, answer: type[Answer], *, version_min: int = 0) -> Answer:
        """Asks once; ApiError where the broker cannot be asked: COORDINATOR_NOT_AVAILABLE, NETWORK_EXCEPTION, or
        UNSUPPORTED_VERSION where it has none from `version_min` on."""
        # In a task of its own: timeouts need one, and the first step of a handler has none (`runtime/stepping.py`).
        return await asyncio.create_task(self._ask(node_id, request, answer, version_min))

    async def _ask(self, node_id: int, request: Any, answer: type[Answer], version_min: int) -> Answer:
        try:
            connection = await self._connected(node_id)
            if connection.version_for(request) < version_min:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"broker {node_id} is too old for this request")
            return await connection.request(request, answer)
        except (ConnectionFailedError, UnsupportedByBrokerError) as error:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"broker {node_id} does not answer: {error}") from error

    async def _connected(self, node_id: int) -> BrokerConnection:
        async with self._connecting.setdefault(node_id, asyncio.Lock()):
            address = self._address_of(node_id)
            known = self._connections.get(node_id)
            if known is not None and not known.is_closed and known.address == address:
                return known
            if known is not None:
                known.abort()
            connection = self._connections[node_id] = await connect(address, self._options, self._connector)
            return connection

    def _address_of(self, node_id: int) -> Address:
        endpoint = self._image().endpoint(node_id, self._listener_name)
        if endpoint is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"broker {node_id} is not there")
        return Address(endpoint.host, endpoint.port)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.abort()
        self._connections.clear()

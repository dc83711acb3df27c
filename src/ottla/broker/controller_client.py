"""Asking the controller, wherever it is: one connection, one request at a time, again until the right broker answers.

Who the controller is comes from the cluster's metadata. One that has moved answers NOT_CONTROLLER, or nothing; the
question is asked again once more is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from ottla.cluster.image import ClusterImage
from ottla.cluster.older_requests import in_version
from ottla.errors import ErrorCode
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

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

RETRY_S: Final = 0.05
# What a broker answers that is not the controller, or not any more.
ELSEWHERE: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_CONTROLLER_EPOCH})


class ControllerClient:
    """One broker's way to the controller."""

    def __init__(
        self,
        node_id: int,
        listener_name: str,
        image: Callable[[], ClusterImage],
        handle_locally: Callable[[Any], Awaitable[Any]],
        request_timeout_s: float,
        connector: Connector = connect_tcp,
    ) -> None:
        self._node_id = node_id
        self._listener_name = listener_name
        self._image = image
        self._handle_locally = handle_locally
        self._options = ConnectionOptions(client_id=str(node_id), request_timeout_s=request_timeout_s)
        self._connector = connector
        self._connection: BrokerConnection | None = None
        self._turn = asyncio.Lock()

    async def ask(self, make_request: Callable[[], Any], answer: type[Answer]) -> Answer:
        """Asks until the controller has answered. The request is made again each time: its content may change."""
        while True:
            async with self._turn:
                response = await self._try(make_request(), answer)
            if response is not None and response.error_code not in ELSEWHERE:  # type: ignore[attr-defined]
                return response
            await asyncio.sleep(RETRY_S)

    async def _try(self, request: Any, answer: type[Answer]) -> Answer | None:
        image = self._image()
        if image.controller_id == self._node_id:
            response: Answer = await self._handle_locally(request)
            return response
        endpoint = image.endpoint(image.controller_id, self._listener_name)
        if endpoint is None:
            return None
        address = Address(endpoint.host, endpoint.port)
        try:
            if self._connection is None or self._connection.is_closed or self._connection.address != address:
                self.close()
                self._connection = await connect(address, self._options, self._connector)
            (asked,) = in_version(request, self._connection.version_for(request))
            return await self._connection.request(asked, answer)
        except (ConnectionFailedError, UnsupportedByBrokerError) as error:
            logger.info("the controller does not answer: %s", error)
            self.close()
            return None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

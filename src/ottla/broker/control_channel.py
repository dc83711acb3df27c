"""The controller's broker to brokers: for each one a queue, a connection, and one request in flight.

A request is sent again until it is answered or the broker is gone, so a broker sees every change in its order. Where
very many wait, they become fewer (`cluster.control_backlog`). To an older broker it is sent as its version has it. To
the broker that the controller runs on it is a call.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ottla.cluster.control_backlog import coalesced
from ottla.cluster.control_batch import ControlRequest
from ottla.cluster.image import BrokerNode
from ottla.cluster.older_requests import in_version, merged
from ottla.controller.peers import OnAnswer
from ottla.errors import CannotEncodeError, OttlaError
from ottla.net.client import (
    Address,
    BrokerConnection,
    ConnectionFailedError,
    ConnectionOptions,
    Connector,
    connect,
    connect_tcp,
)
from ottla.protocol.messages.replication import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from ottla.runtime.signal import Signal

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.1
WAITING_MAX: Final = 100  # requests, from which on those that say the same in the end become one
FAILED_S_MAX: Final = 5.0  # between two attempts that failed for another reason than the connection
RESPONSES: Final[dict[type, type]] = {
    LeaderAndIsrRequest: LeaderAndIsrResponse,
    UpdateMetadataRequest: UpdateMetadataResponse,
    StopReplicaRequest: StopReplicaResponse,
}

HandleLocally = Callable[[ControlRequest], Awaitable[Any]]


class ControlChannels:
    """Implements `ottla.controller.peers.Peers`."""

    def __init__(
        self,
        node_id: int,
        listener_name: str,
        handle_locally: HandleLocally,
        request_timeout_s: float,
        connector: Connector = connect_tcp,
    ) -> None:
        self._node_id = node_id
        self._listener_name = listener_name
        self._handle_locally = handle_locally
        self._options = ConnectionOptions(client_id=str(node_id), request_timeout_s=request_timeout_s)
        self._connector = connector
        self._channels: dict[int, _Channel] = {}

    def add(self, broker: BrokerNode) -> None:
        self.remove(broker.node_id)
        if broker.node_id == self._node_id:
            self._channels[broker.node_id] = _Channel(broker.node_id, _LocalBroker(self._handle_locally))
            return
        endpoint = broker.endpoints.get(self._listener_name)
        if endpoint is None:
            logger.error(
                "broker %d has no listener %s (inter.broker.listener.name) and cannot be reached",
                broker.node_id,
                self._listener_name,
            )
            return
        there = _RemoteBroker(Address(endpoint.host, endpoint.port), self._options, self._connector)
        self._channels[broker.node_id] = _Channel(broker.node_id, there)

    def remove(self, node_id: int) -> None:
        channel = self._channels.pop(node_id, None)
        if channel is not None:
            channel.close()

    def send(self, node_id: int, request: ControlRequest, on_answer: OnAnswer) -> None:
        channel = self._channels.get(node_id)
        if channel is not None:
            channel.send(request, on_answer)

    async def wait_until_answered(self) -> None:
        for channel in list(self._channels.values()):
            await channel.wait_until_answered()

    def close(self) -> None:
        for node_id in list(self._channels):
            self.remove(node_id)


class _LocalBroker:
    """This broker: its requests are handled without a connection."""

    def __init__(self, handle: HandleLocally) -> None:
        self._handle = handle

    async def ask(self, request: ControlRequest) -> Any:
        return await self._handle(request)

    def close(self) -> None:
        return


class _RemoteBroker:
    """Another broker; its connection is made when it is needed, and again after a failure."""

    def __init__(self, address: Address, options: ConnectionOptions, connector: Connector) -> None:
        self._address = address
        self._options = options
        self._connector = connector
        self._connection: BrokerConnection | None = None

    async def ask(self, request: ControlRequest) -> Any:
        if self._connection is None or self._connection.is_closed:
            self._connection = await connect(self._address, self._options, self._connector)
        connection, response = self._connection, RESPONSES[type(request)]
        parts = in_version(request, connection.version_for(request))
        return merged([await connection.request(part, response) for part in parts])

    def close(self) -> None:
        if self._connection is not None:
            self._connection.abort()


class _Channel:
    """What is on its broker to one broker."""

    def __init__(self, node_id: int, broker: _LocalBroker | _RemoteBroker) -> None:
        self._node_id = node_id
        self._broker = broker
        self._queue: deque[tuple[ControlRequest, OnAnswer]] = deque()  # the first one is on its way
        self._waiting_max = WAITING_MAX
        self._more = Signal()
        self._answered = Signal()
        self._is_closed = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"control of broker {node_id}")

    def send(self, request: ControlRequest, on_answer: OnAnswer) -> None:
        if not self._queue:
            self._waiting_max = WAITING_MAX
        self._queue.append((request, on_answer))
        if len(self._queue) > self._waiting_max:
            first, *waiting = self._queue
            self._queue = deque((first, *coalesced(waiting)))
            # Not again with every request, where there are many that cannot become one.
            self._waiting_max = max(WAITING_MAX, 2 * len(self._queue))
        self._more.fire()

    async def wait_until_answered(self) -> None:
        while self._queue and not self._is_closed:
            await self._answered.wait()

    def close(self) -> None:
        self._is_closed = True
        self._answered.fire()
        self._task.cancel()
        self._broker.close()

    async def _run(self) -> None:
        while True:
            while self._queue:
                request, on_answer = self._queue[0]
                answer = await self._answer(request)
                self._queue.popleft()
                if answer is not None:
                    self._hand_over(request, answer, on_answer)
                self._answered.fire()
            await self._more.wait()

    def _hand_over(self, request: ControlRequest, answer: Any, on_answer: OnAnswer) -> None:
        try:
            on_answer(answer)
        except Exception:  # a mistake of ours, which must not cost the broker all later requests
            name = type(request).__name__
            logger.exception("what broker %d answered to %s could not be taken in", self._node_id, name)

    async def _answer(self, request: ControlRequest) -> Any:
        """None for a request that cannot be sent at all: what comes behind it must not wait for ever."""
        failures = 0
        pause_s = RETRY_S
        while True:
            try:
                return await self._broker.ask(request)
            except ConnectionFailedError as error:
                failures += 1
                if failures == 1:
                    logger.info("broker %d does not answer the controller: %s", self._node_id, error)
            except CannotEncodeError as error:
                logger.error("%s to broker %d is not sent: %s", type(request).__name__, self._node_id, error)
                return None
            except Exception as error:
                # Perhaps a mistake of ours. The broker must get it, so it is reported and tried again.
                bug = None if isinstance(error, OttlaError) else error
                name = type(request).__name__
                logger.error("%s to broker %d failed: %s", name, self._node_id, error, exc_info=bug)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, FAILED_S_MAX)
                continue
            await asyncio.sleep(RETRY_S)

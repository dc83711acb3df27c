"""How a controller reaches brokers: what it needs of its channels. The broker brings them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ottla.cluster.control_batch import ControlRequest
from ottla.cluster.image import BrokerNode

# Called on the event loop with the broker's answer.
OnAnswer = Callable[[Any], None]


class Peers(Protocol):
    """One queue and one request in flight for each broker. A request is sent again until it is answered, or until the
    broker is removed.
    """

    def add(self, broker: BrokerNode) -> None: ...

    def remove(self, node_id: int) -> None: ...

    def send(self, node_id: int, request: ControlRequest, on_answer: OnAnswer) -> None: ...

    async def wait_until_answered(self) -> None:
        """Until every broker has answered all that was sent to it, or was removed."""
        ...

    def close(self) -> None:
        """The term is over: what waits is dropped."""
        ...

"""How an API is served: the handler of its request class, and what the dispatcher must know about it.

`serve` ties a handler to the class of the requests that it takes, so that the type checker sees a wrong pair.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.protocol.schema import message_schema_of
from ottla.protocol.versions import API_TABLE, Api

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

Request = TypeVar("Request")

# Elements of all arrays of a request together. Kafka has no such limit; ten times what a broker is advised to hold.
ELEMENTS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class ServedApi:
    """One API as this broker serves it."""

    api: Api
    # Of broker, request and context, whose types were checked by `serve`.
    handle: Callable[[Any, Any, Any], Coroutine[Any, Any, Any]]
    elements_max: int
    keep: Callable[[Any, Context], None] | None
    ends_with_peer: bool
    reports_bytes: bool

    @property
    def is_decoded_at_once(self) -> bool:
        """Whatever its size, where the bytes of its records stand: a request that waits has to be kept."""
        return self.keep is not None


def serve(
    request: type[Request],
    handle: Callable[[Broker, Request, Context], Coroutine[Any, Any, object]],
    *,
    elements_max: int = ELEMENTS_MAX,
    keep: Callable[[Request, Context], None] | None = None,
    ends_with_peer: bool = False,
    reports_bytes: bool = False,
) -> ServedApi:
    """Requests of this class go to `handle`, which answers with the response.

    `elements_max`: fewer where a request is decided in one go. `keep`: if most of a request are records, it is decoded
    at once and they stay where they arrived; this copies them before others have their turn. `ends_with_peer`: it
    reads, or only waits for others, so nobody needs its answer once the peer is gone. `reports_bytes`: the answer holds
    what clients wrote about themselves, of whatever size; all others that are made within a turn are small enough to be
    encoded in it.
    """
    key = message_schema_of(request).key
    assert key is not None, f"{request.__name__} is not a request"
    assert API_TABLE[key].request is request, f"{request.__name__} is not what the API table has"
    return ServedApi(API_TABLE[key], handle, elements_max, keep, ends_with_peer, reports_bytes)


def by_key(*served: ServedApi) -> dict[int, ServedApi]:
    """The table that the dispatcher looks into."""
    apis = {one.api.key: one for one in served}
    assert len(apis) == len(served), "an API is served by one handler"
    return apis

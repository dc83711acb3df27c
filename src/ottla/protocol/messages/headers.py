"""The headers before the body of a request and of a response."""

from ottla.protocol.schema import message, wire
from ottla.protocol.wire import Int16, Int32, String


@message(versions=(0, 2), flexible=2)
class RequestHeader:
    """Stands before every request; the client id keeps its old form in every version."""

    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    client_id: String | None = wire(since=1, default=None, ignorable=True, compact=False)


@message(versions=(0, 1), flexible=1)
class ResponseHeader:
    """Stands before every response."""

    correlation_id: Int32

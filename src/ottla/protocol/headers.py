"""What stands before the body of a request or response, and in which version.

A flexible request has header version 2, any other version 1, except that ControlledShutdown 0 has no client
id (version 0). A flexible response has header version 1, any other 0, except that ApiVersions always answers
with 0: the client may not know yet what the broker speaks. The client id keeps its int16 length everywhere,
so that a broker can read it before it knows whether the version is one it has.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

from ottla.errors import ProtocolError
from ottla.protocol.codec import decode_at, encode
from ottla.protocol.messages.headers import RequestHeader, ResponseHeader
from ottla.protocol.versions import API_TABLE

API_VERSIONS_KEY: Final = 18
CONTROLLED_SHUTDOWN_KEY: Final = 7

KINDS_MAX: Final = 1024  # APIs and versions that are remembered: more than there are, fewer than a peer can make up

_pack_correlation_id = struct.Struct(">i").pack
_unpack_key_and_version = struct.Struct(">hh").unpack_from


@lru_cache(maxsize=KINDS_MAX)
def request_header_version(api_key: int, api_version: int) -> int:
    """Which header stands before a request. A version that we do not have gets the one it would have."""
    api = API_TABLE.get(api_key)
    if api is None:
        raise ProtocolError(f"there is no API with key {api_key}")
    if api.is_flexible(api_version):
        return 2
    return 0 if api_key == CONTROLLED_SHUTDOWN_KEY and api_version == 0 else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """Which response header stands before the answer to a request."""
    if api_key == API_VERSIONS_KEY:
        return 0
    api = API_TABLE.get(api_key)
    if api is None:
        raise ProtocolError(f"there is no API with key {api_key}")
    return 1 if api.is_flexible(api_version) else 0


def decode_request_header(buffer: bytes | memoryview, position: int = 0) -> tuple[RequestHeader, int]:
    """The header of a request and the position of its body. It may name a version that we do not have."""
    try:
        api_key, api_version = _unpack_key_and_version(buffer, position)
    except struct.error as error:
        raise ProtocolError("a request ends before its header") from error
    return decode_at(RequestHeader, buffer, request_header_version(api_key, api_version), position)


def encode_request_header(header: RequestHeader) -> bytes:
    return encode(header, request_header_version(header.request_api_key, header.request_api_version))


def decode_response_header(
    buffer: bytes | memoryview, api_key: int, api_version: int, position: int = 0
) -> tuple[ResponseHeader, int]:
    """The header of the answer to a request of that API and version, and the position of the body."""
    return decode_at(ResponseHeader, buffer, response_header_version(api_key, api_version), position)


def encode_response_header(correlation_id: int, api_key: int, api_version: int) -> bytes:
    return _pack_correlation_id(correlation_id) + _behind_correlation_id(api_key, api_version)


@lru_cache(maxsize=KINDS_MAX)
def _behind_correlation_id(api_key: int, api_version: int) -> bytes:
    """The rest of a response header: the same in every answer of a version."""
    header = encode(ResponseHeader(correlation_id=0), response_header_version(api_key, api_version))
    return header[len(_pack_correlation_id(0)) :]

"""Messages to bytes and back: the functions that the rest of Ottla calls.

    request = decode(ProduceRequest, frame, version=9, position=body)
    reply = encode(ProduceResponse(responses=[]), version=9)

The codec of a class and version is made when it is first used, and kept. Decoding raises `ProtocolError`
whatever the bytes are; encoding raises it for a value that the version cannot carry.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from ottla.protocol.compiler import Decoder, Encoder, compile_decoder, compile_encoder
from ottla.protocol.schema import schema_of
from ottla.protocol.wire import IN_MEMORY, RECORDS, FilePart

Message = TypeVar("Message")

LARGE_PIECE_BYTES: Final = 64 * 1024  # from here on a copy costs more than another call of the system

_bytes_decoders: dict[tuple[type, int], Decoder] = {}
_view_decoders: dict[tuple[type, int], Decoder] = {}
_bounded_decoders: dict[tuple[type, int], Decoder] = {}
_encoders: dict[tuple[type, int], Encoder] = {}
_carry_records: dict[type, bool] = {}


def decode(cls: type[Message], buffer: bytes | memoryview, version: int, position: int = 0) -> Message:
    """The message that starts at `position`. Bytes after it are ignored: old librdkafka sends some.

    Records are views of the buffer, not copies.
    """
    return decode_at(cls, buffer, version, position)[0]


def decode_at(cls: type[Message], buffer: bytes | memoryview, version: int, position: int = 0) -> tuple[Message, int]:
    """The message that starts at `position`, and the position after it."""
    of_views = type(buffer) is not bytes
    decoders = _view_decoders if of_views else _bytes_decoders
    decoder = decoders.get((cls, version))
    if decoder is None:
        decoder = decoders[cls, version] = compile_decoder(cls, version, of_views=of_views)
    return decoder(buffer, position)


def decode_bounded(cls: type[Message], view: memoryview, version: int, position: int, elements_max: int) -> Message:
    """The same of a frame that is large; TooManyElementsError before more than `elements_max` elements are made of it.

    An element of a byte or two becomes an object of a hundred and an answer of as many. Counting them costs a little,
    so it is for frames that can hold too many.
    """
    decoder = _bounded_decoders.get((cls, version))
    if decoder is None:
        decoder = _bounded_decoders[cls, version] = compile_decoder(cls, version, of_views=True, is_bounded=True)
    message: Message = decoder(view, position, elements_max)[0]
    return message


class _Buffer(bytearray):
    """Takes the parts of a message as a list does, and keeps none of them."""

    append = bytearray.extend  # type: ignore[assignment]


def encode_large(message: object, version: int) -> bytearray:
    """The bytes of a message of very many parts, all of them in memory: a list of them would be ten times the size."""
    buffer = _Buffer()
    _encoder(type(message), version)(message, buffer)
    return buffer


def encode(message: object, version: int) -> bytes:
    """The bytes of a message. Its records must be in memory; `encode_parts` takes files as well."""
    parts: list[Any] = []
    _encoder(type(message), version)(message, parts)
    return b"".join(parts)


def encode_pieces(start: bytes, message: object, version: int) -> list[bytes | memoryview]:
    """`start` and the bytes of a message in a few pieces: small ones together, large records as they are, no copies."""
    parts: list[Any] = [start]
    _encoder(type(message), version)(message, parts)
    pieces: list[bytes | memoryview] = []
    small: list[bytes] = []
    for part in parts:
        if len(part) < LARGE_PIECE_BYTES:
            small.append(part)
        else:
            pieces += (b"".join(small), memoryview(part))
            small.clear()
    return [*pieces, b"".join(small)] if small else pieces


def encode_parts(message: object, version: int) -> list[bytes | FilePart]:
    """The bytes of a message around the parts that are not in memory, which come out as they are, in order.

    A Fetch response puts slices of segment files in its `records`; the connection sends them without reading
    them.
    """
    pieces: list[Any] = []
    cls = type(message)
    _encoder(cls, version)(message, pieces)
    carries_records = _carry_records.get(cls)
    if carries_records is None:
        carries_records = _carry_records[cls] = _has_records(cls)
    if not carries_records:  # as of most answers: to look at each piece takes as long as to make it
        return [b"".join(pieces)]
    parts: list[bytes | FilePart] = []
    in_memory: list[bytes | bytearray | memoryview] = []
    for piece in pieces:
        if type(piece) in IN_MEMORY:
            in_memory.append(piece)
        else:
            parts.append(b"".join(in_memory))
            parts.append(piece)
            in_memory.clear()
    if in_memory:
        parts.append(b"".join(in_memory))
    return parts


def _has_records(cls: type) -> bool:
    """Whether some field of a message, however deep, is for records: nothing else is ever left in a file."""
    fields = schema_of(cls).fields
    return any(one.wire_type is RECORDS or (one.struct is not None and _has_records(one.struct)) for one in fields)


def _encoder(cls: type, version: int) -> Encoder:
    encoder = _encoders.get((cls, version))
    if encoder is None:
        encoder = _encoders[cls, version] = compile_encoder(cls, version)
    return encoder

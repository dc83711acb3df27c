"""The codecs of a record batch, each with a cap on what comes out.

A few kilobytes can announce or unfold to gigabytes, so every decompressor is bounded before or while it
works: it never holds much more than `limit` bytes. Anything a decompressor refuses becomes a `RecordsError`.
Which library serves which codec, and why, is in docs/decisions/0003-codec-libraries.md.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import cramjam
import lz4.frame
import zstandard

from ottla.errors import ErrorCode, RecordsError
from ottla.records.layout import Compression

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Wide enough for a batch of the default `message.max.bytes` that shrank a hundredfold.
DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024

# The default levels of Kafka's producers; snappy has none.
DEFAULT_LEVELS = {Compression.GZIP: zlib.Z_DEFAULT_COMPRESSION, Compression.LZ4: 0, Compression.ZSTD: 3}

_CHUNK_BYTES = 64 * 1024
_GZIP_WINDOW = 31  # a window of 2^15 with a gzip header and trailer
_LZ4_RATIO_MAX = 255  # a byte of an lz4 block stands for at most 255

# What snappy-java ("xerial") writes: a header, then blocks of raw snappy behind their int32 length.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_RATIO_MAX = 32  # a copy of 3 bytes yields at most 64


def compress(compression: Compression, data: Buffer, level: int | None = None) -> Buffer:
    """`data` in the form that every client reads: see the writers below."""
    if compression is Compression.NONE:
        return data
    if level is None:
        level = DEFAULT_LEVELS.get(compression, 0)
    return _COMPRESSORS[compression](data, level)


def decompress(compression: Compression, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """What `data` unfolds to, refused as MESSAGE_TOO_LARGE beyond `limit` bytes."""
    if compression is Compression.NONE:
        return data
    return _DECOMPRESSORS[compression](data, limit)


def _too_large(limit: int) -> RecordsError:
    return RecordsError(ErrorCode.MESSAGE_TOO_LARGE, f"the records unfold to more than the {limit} bytes allowed")


def _broken(codec: str, reason: object) -> RecordsError:
    # The checksum of the batch was right, so the producer sent it so: sending it again would not help.
    return RecordsError(ErrorCode.INVALID_RECORD, f"the records are not valid {codec}: {reason}")


class _Gathered:
    """The pieces that a decompressor gives, up to `limit` bytes of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self.size_bytes = 0

    @property
    def room(self) -> int:
        """How much the decompressor may give next: one byte over the limit, to see that there is more."""
        return self._limit + 1 - self.size_bytes

    def take(self, piece: bytes) -> None:
        self.size_bytes += len(piece)
        if self.size_bytes > self._limit:
            raise _too_large(self._limit)
        self._pieces.append(piece)

    def joined(self) -> bytes:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)


# --- gzip ---------------------------------------------------------------------------------------------------


def _gzip_compress(data: Buffer, level: int) -> Buffer:
    return zlib.compress(data, level, _GZIP_WINDOW)


def _gzip_decompress(data: Buffer, limit: int) -> Buffer:
    gathered = _Gathered(limit)
    rest: Buffer = data
    try:
        while True:  # a member of a gzip file, of which there may be several
            member = zlib.decompressobj(_GZIP_WINDOW)
            while not member.eof:
                piece = member.decompress(rest, gathered.room)
                rest = member.unconsumed_tail
                gathered.take(piece)
                if not piece and not rest and not member.eof:
                    raise _broken("gzip", "the data ends early")
            rest = member.unused_data
            if not rest:
                return gathered.joined()
    except zlib.error as error:
        raise _broken("gzip", error) from None


# --- snappy -------------------------------------------------------------------------------------------------


def _snappy_compress(data: Buffer, level: int) -> Buffer:
    """The framing of snappy-java: Java, librdkafka, sarama and the Python clients all read it."""
    framed = bytearray(_XERIAL_HEADER)
    with memoryview(data) as view:
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = memoryview(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
            framed += len(block).to_bytes(4, "big")
            framed += block
    return framed


def _snappy_decompress(data: Buffer, limit: int) -> Buffer:
    with memoryview(data) as view:
        if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
            return _snappy_block(view, limit)
        out = bytearray()
        position = len(_XERIAL_HEADER)
        if len(view) < position:
            raise _broken("snappy", "the framing header is cut")
        while position < len(view):
            start = position + 4
            if start > len(view):
                raise _broken("snappy", "a block length is cut")
            position = start + int.from_bytes(view[position:start], "big")
            if position > len(view):
                raise _broken("snappy", "a block is cut")
            try:
                out += _snappy_block(view[start:position], limit - len(out))
            except RecordsError as error:
                raise _too_large(limit) if error.code is ErrorCode.MESSAGE_TOO_LARGE else error from None
        return out


def _snappy_block(block: memoryview, limit: int) -> memoryview:
    try:
        announced = cramjam.snappy.decompress_raw_len(block)
        if announced > limit:
            raise _too_large(limit)
        # The library allocates what is announced: no block of this size can hold more than so much.
        if announced > len(block) * _SNAPPY_RATIO_MAX:
            raise _broken("snappy", "it announces more than it can hold")
        return memoryview(cramjam.snappy.decompress_raw(block))
    except (cramjam.DecompressionError, ValueError) as error:
        raise _broken("snappy", error) from None


# --- lz4 ----------------------------------------------------------------------------------------------------


def _lz4_compress(data: Buffer, level: int) -> Buffer:
    # Java reads only frames whose blocks do not refer to earlier ones.
    compressed: bytes = lz4.frame.compress(data, compression_level=level, block_linked=False)
    return compressed


def _lz4_decompress(data: Buffer, limit: int) -> Buffer:
    gathered = _Gathered(limit)
    rest: Buffer = data
    try:
        while True:  # a frame, of which there may be several
            frame = lz4.frame.LZ4FrameDecompressor()
            while not frame.eof:
                with memoryview(rest) as view:
                    at_a_time = max(len(view) * _LZ4_RATIO_MAX, _CHUNK_BYTES)
                    piece = frame.decompress(view, max_length=min(gathered.room, at_a_time))
                gathered.take(piece)
                if not piece and frame.needs_input:
                    raise _broken("lz4", "the data ends early")
                rest = b""
            rest = frame.unused_data
            if not rest:
                return gathered.joined()
    except (RuntimeError, EOFError) as error:
        raise _broken("lz4", error) from None


# --- zstd ---------------------------------------------------------------------------------------------------

# A context is costly to make and must serve one thread at a time. `list.pop` and `append` are atomic, so
# these lists are pools without a lock: they grow to the number of threads that ever worked at once.
_zstd_decompressors: list[zstandard.ZstdDecompressor] = []
_zstd_compressors: dict[int, list[zstandard.ZstdCompressor]] = {}


def _zstd_compress(data: Buffer, level: int) -> Buffer:
    pool = _zstd_compressors.setdefault(level, [])
    try:
        compressor = pool.pop()
    except IndexError:
        compressor = zstandard.ZstdCompressor(level)
    try:
        with memoryview(data) as view:
            return compressor.compress(view)
    finally:
        pool.append(compressor)


def _zstd_decompress(data: Buffer, limit: int) -> Buffer:
    try:
        decompressor = _zstd_decompressors.pop()
    except IndexError:
        decompressor = zstandard.ZstdDecompressor(max_window_size=DECOMPRESSED_BYTES_MAX)
    gathered = _Gathered(limit)
    try:
        # Streaming, because Java and librdkafka do not state the size, and a stated one may be a lie.
        with memoryview(data) as view, decompressor.stream_reader(view, read_across_frames=True) as reader:
            at_a_time = max(len(view) * 4, _CHUNK_BYTES)
            while piece := reader.read(min(gathered.room, at_a_time)):
                gathered.take(piece)
        return gathered.joined()
    except zstandard.ZstdError as error:
        raise _broken("zstd", error) from None
    finally:
        _zstd_decompressors.append(decompressor)


_COMPRESSORS: dict[Compression, Callable[[Buffer, int], Buffer]] = {
    Compression.GZIP: _gzip_compress,
    Compression.SNAPPY: _snappy_compress,
    Compression.LZ4: _lz4_compress,
    Compression.ZSTD: _zstd_compress,
}
_DECOMPRESSORS: dict[Compression, Callable[[Buffer, int], Buffer]] = {
    Compression.GZIP: _gzip_decompress,
    Compression.SNAPPY: _snappy_decompress,
    Compression.LZ4: _lz4_decompress,
    Compression.ZSTD: _zstd_decompress,
}

"""The codecs of a record batch, each with a cap on what comes out.

A few kilobytes can announce or decompress to gigabytes, so every decompressor is bounded before or while it
works: it never holds much more than `limit` bytes. Anything a decompressor refuses becomes a `RecordsError`.
Which library serves which codec, and why, is in docs/decisions/0003-codec-libraries.md.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import cramjam

from ottla.errors import ErrorCode, RecordsError
from ottla.records.layout import Compression

# Neither has a wheel for every Python and C library. Cramjam has, and does their work where they are missing.
try:
    import lz4.frame
except ModuleNotFoundError:
    HAS_LZ4 = False
else:
    HAS_LZ4 = True
try:
    import zstandard
except ModuleNotFoundError:
    HAS_ZSTANDARD = False
else:
    HAS_ZSTANDARD = True

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Wide enough for a batch of the default `message.max.bytes` that shrank a hundredfold.
DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024

# The default levels of Kafka's producers; snappy has none.
DEFAULT_LEVELS = {Compression.GZIP: zlib.Z_DEFAULT_COMPRESSION, Compression.LZ4: 0, Compression.ZSTD: 3}

_CHUNK_BYTES = 64 * 1024
_GZIP_PIECE_BYTES = 1024 * 1024  # zlib joins what one call gives with the interpreter's lock held
_GZIP_WINDOW = 31  # a window of 2^15 with a gzip header and trailer
_USUAL_RATIO = 8  # what decompressors get to start with
_ZSTD_REPEATED_BLOCK = 1  # a block of one byte and how often it is repeated

# What snappy-java ("xerial") writes: a header, then blocks of raw snappy behind their int32 length.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_RATIO_MAX = 32  # a copy of 3 bytes yields at most 64


class DecompressedTooLargeError(RecordsError):
    """The records decompress to more than the caller allows. Nothing else is known to be wrong with them."""

    def __init__(self, limit: int) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, f"the records decompress to more than the {limit} bytes allowed")


def compress(compression: Compression, data: Buffer, level: int | None = None) -> Buffer:
    """`data` in the form that every client reads: see the writers below."""
    if compression is Compression.NONE:
        return data
    if level is None:
        level = DEFAULT_LEVELS.get(compression, 0)
    return COMPRESSORS[compression](data, level)


def decompress(compression: Compression, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """What `data` decompresses to; DecompressedTooLargeError beyond `limit` bytes. Other threads run on."""
    if compression is Compression.NONE:
        return data
    return DECOMPRESSORS[compression](data, limit)


def _broken(codec: str, reason: object) -> RecordsError:
    # The checksum of the batch was right, so the producer sent it so: sending it again would not help.
    return RecordsError(ErrorCode.INVALID_RECORD, f"the records are not valid {codec}: {reason}")


class _Gathered:
    """The pieces that a decompressor gives, up to `limit` bytes of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size_bytes = 0
        self._pieces: list[bytes | memoryview] = []

    @property
    def room(self) -> int:
        """How much the decompressor may give next: one byte over the limit, to see that there is more."""
        return self._limit + 1 - self._size_bytes

    def expect(self, size_bytes: int) -> None:
        """Refuses what is announced to be too much, before anything is allocated for it."""
        if size_bytes >= self.room:
            raise DecompressedTooLargeError(self._limit)

    def take(self, piece: bytes | memoryview) -> None:
        self.expect(len(piece))
        self._size_bytes += len(piece)
        self._pieces.append(piece)

    def joined(self) -> Buffer:
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
                piece = member.decompress(rest, min(gathered.room, _GZIP_PIECE_BYTES))
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
    gathered = _Gathered(limit)
    with memoryview(data) as view:
        if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
            gathered.take(_snappy_block(view, gathered))
            return gathered.joined()
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
            gathered.take(_snappy_block(view[start:position], gathered))
        return gathered.joined()


def _snappy_block(block: memoryview, gathered: _Gathered) -> memoryview:
    try:
        announced = cramjam.snappy.decompress_raw_len(block)
        gathered.expect(announced)
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
    position = 0
    try:
        with memoryview(data) as view:
            at_a_time = max(len(view) * _USUAL_RATIO, _CHUNK_BYTES)
            while not position or position < len(view):  # a frame, of which there may be several
                context = lz4.frame.create_decompression_context()
                is_whole = False
                while not is_whole:
                    piece, consumed, is_whole = lz4.frame.decompress_chunk(
                        context, view[position:], max_length=min(gathered.room, at_a_time)
                    )
                    position += consumed
                    gathered.take(piece)
                    if not piece and not consumed and not is_whole:
                        raise _broken("lz4", "the data ends early")
        return gathered.joined()
    except RuntimeError as error:
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
    position = 0
    try:
        with memoryview(data) as view:
            while not position or position < len(view):
                end = _zstd_frame_end(view, position)
                gathered.take(_zstd_frame(decompressor, view[position:end], gathered))
                position = end
        return gathered.joined()
    except zstandard.ZstdError as error:
        raise _broken("zstd", error) from None
    finally:
        _zstd_decompressors.append(decompressor)


def _zstd_frame(decompressor: zstandard.ZstdDecompressor, frame: memoryview, gathered: _Gathered) -> bytes:
    stated = zstandard.frame_content_size(frame)
    if stated >= 0:
        gathered.expect(stated)
        return decompressor.decompress(frame)
    # Java and librdkafka do not state the size. One call is the fast way, but it allocates all that it may use.
    try:
        allowed = max(len(frame) * _USUAL_RATIO, _CHUNK_BYTES)
        return decompressor.decompress(frame, max_output_size=min(allowed, gathered.room))
    except zstandard.ZstdError:
        # More than usual, or broken: reading the stream shows which.
        with decompressor.stream_reader(frame) as reader:
            return reader.read(gathered.room)


def _zstd_frame_end(view: memoryview, start: int) -> int:
    """Where the frame at `start` ends, by its block headers: the library takes one whole frame at a time."""
    frame = view[start:]
    position = start + zstandard.frame_header_size(frame)
    is_last = False
    while not is_last:
        header = int.from_bytes(view[position : position + 3], "little")
        is_last = bool(header & 1)
        position += 3 + (1 if header >> 1 & 3 == _ZSTD_REPEATED_BLOCK else header >> 3)
        if position > len(view):
            raise _broken("zstd", "the data ends early")
    if zstandard.get_frame_parameters(frame).has_checksum:
        position += 4
    if position > len(view):
        raise _broken("zstd", "the data ends early")
    return position


# --- lz4 and zstd by cramjam ----------------------------------------------------------------------------------

_CRAMJAM_IS_FULL = "failed to write whole buffer"  # of its output; it has no other sign of that


def cramjam_lz4_compress(data: Buffer, level: int) -> Buffer:
    compressor = cramjam.lz4.Compressor(level=max(level, 0), content_checksum=False, block_linked=False)
    compressor.compress(data if isinstance(data, bytes) else bytes(data))  # it takes nothing else
    return memoryview(compressor.finish())


def cramjam_zstd_compress(data: Buffer, level: int) -> Buffer:
    return memoryview(cramjam.zstd.compress(data, level=level))


def cramjam_lz4_decompress(data: Buffer, limit: int) -> Buffer:
    return _cramjam_decompress("lz4", cramjam.lz4.decompress_into, data, limit)


def cramjam_zstd_decompress(data: Buffer, limit: int) -> Buffer:
    return _cramjam_decompress("zstd", cramjam.zstd.decompress_into, data, limit)


def _cramjam_decompress(codec: str, into: Callable[[Buffer, bytearray], int], data: Buffer, limit: int) -> Buffer:
    """Into a buffer that is as large as usual, then larger, up to the limit: it takes no streams in pieces."""
    room = memoryview(data).nbytes * _USUAL_RATIO
    while True:
        output = bytearray(min(room, limit))
        try:
            return memoryview(output)[: into(data, output)]
        except cramjam.DecompressionError as error:
            if str(error) != _CRAMJAM_IS_FULL:
                raise _broken(codec, error) from None
        if room >= limit:
            raise DecompressedTooLargeError(limit)
        room *= _USUAL_RATIO


COMPRESSORS: dict[Compression, Callable[[Buffer, int], Buffer]] = {
    Compression.GZIP: _gzip_compress,
    Compression.SNAPPY: _snappy_compress,
    Compression.LZ4: _lz4_compress if HAS_LZ4 else cramjam_lz4_compress,
    Compression.ZSTD: _zstd_compress if HAS_ZSTANDARD else cramjam_zstd_compress,
}
DECOMPRESSORS: dict[Compression, Callable[[Buffer, int], Buffer]] = {
    Compression.GZIP: _gzip_decompress,
    Compression.SNAPPY: _snappy_decompress,
    Compression.LZ4: _lz4_decompress if HAS_LZ4 else cramjam_lz4_decompress,
    Compression.ZSTD: _zstd_decompress if HAS_ZSTANDARD else cramjam_zstd_decompress,
}

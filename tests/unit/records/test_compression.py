import gzip
import random
import struct
import threading
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard

from ottla.errors import ErrorCode, RecordsError
from ottla.records import compression as codecs
from ottla.records.compression import compress, decompress
from ottla.records.layout import Compression

CODECS = [codec for codec in Compression if codec]
PAYLOADS = {
    "nothing": b"",
    "a byte": b"x",
    "text": b"the quick brown fox " * 500,
    "noise": random.Random(1).randbytes(70_000),
    "zeros": bytes(300_000),
}
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


@pytest.fixture(params=["usual libraries", "cramjam"], autouse=True)
def library(request, monkeypatch):
    """Every test runs with the libraries that are chosen first, and with the one that does their work without them."""
    if request.param == "cramjam":
        for codec, compressor, decompressor in (
            (Compression.LZ4, codecs.cramjam_lz4_compress, codecs.cramjam_lz4_decompress),
            (Compression.ZSTD, codecs.cramjam_zstd_compress, codecs.cramjam_zstd_decompress),
        ):
            monkeypatch.setitem(codecs.COMPRESSORS, codec, compressor)
            monkeypatch.setitem(codecs.DECOMPRESSORS, codec, decompressor)


def test_what_one_library_writes_the_other_reads():
    for codec, theirs, ours in (
        (Compression.LZ4, codecs.cramjam_lz4_compress, lz4.frame.decompress),
        (Compression.ZSTD, codecs.cramjam_zstd_compress, zstandard.ZstdDecompressor().decompress),
    ):
        for payload in PAYLOADS.values():
            assert ours(bytes(theirs(payload, codecs.DEFAULT_LEVELS[codec]))) == payload


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("rest", [b"x", b"garbage garbage", bytes(20)])
def test_what_follows_the_last_frame_and_is_none_is_refused(compression, rest):
    with pytest.raises(RecordsError) as caught:
        decompress(compression, bytes(compress(compression, PAYLOADS["text"])) + rest)
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_what_goes_in_comes_out(compression, payload):
    assert bytes(decompress(compression, compress(compression, payload))) == payload


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("level", [1, 9])
def test_a_level_can_be_chosen(compression, level):
    payload = PAYLOADS["text"]
    assert bytes(decompress(compression, compress(compression, payload, level))) == payload


@pytest.mark.parametrize("compression", CODECS)
def test_any_buffer_is_taken(compression):
    payload = PAYLOADS["text"]
    compressed = compress(compression, memoryview(bytearray(payload)))
    assert bytes(decompress(compression, memoryview(bytearray(compressed)))) == payload


@pytest.mark.parametrize("compression", CODECS)
def test_the_cap_is_exact(compression):
    compressed = compress(compression, bytes(100_000))
    assert len(memoryview(decompress(compression, compressed, 100_000))) == 100_000
    with pytest.raises(RecordsError) as caught:
        decompress(compression, compressed, 99_999)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("compression", CODECS)
def test_data_that_is_cut_anywhere_is_refused(compression):
    compressed = bytes(compress(compression, PAYLOADS["text"][:300]))
    whole_frames = {b""} | ({XERIAL} if compression is Compression.SNAPPY else set())
    for size in range(len(compressed)):
        if compressed[:size] in whole_frames:
            continue
        with pytest.raises(RecordsError) as caught:
            decompress(compression, compressed[:size])
        assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_several_frames_in_a_row_are_one_stream_and_share_the_cap(compression):
    frames = bytes(compress(compression, b"a" * 1000)) + bytes(compress(compression, b"b" * 1000))
    assert bytes(decompress(compression, frames)) == b"a" * 1000 + b"b" * 1000
    with pytest.raises(RecordsError) as caught:
        decompress(compression, frames, 1999)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_raw_snappy_and_snappy_java_framing_are_both_read():
    payload = PAYLOADS["text"]
    raw = bytes(cramjam.snappy.compress_raw(payload))
    assert bytes(decompress(Compression.SNAPPY, raw)) == payload
    half = len(payload) // 2
    blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in (payload[:half], payload[half:])]
    framed = XERIAL + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
    assert bytes(decompress(Compression.SNAPPY, framed)) == payload
    with pytest.raises(RecordsError):
        decompress(Compression.SNAPPY, framed, len(payload) - 1)


def test_snappy_is_written_in_the_framing_of_snappy_java():
    compressed = bytes(compress(Compression.SNAPPY, PAYLOADS["zeros"]))
    assert compressed.startswith(XERIAL)
    first_block = int.from_bytes(compressed[16:20], "big")
    assert len(cramjam.snappy.decompress_raw(compressed[20 : 20 + first_block])) == 32 * 1024


def test_lz4_is_written_in_blocks_that_stand_alone():
    """Java refuses frames whose blocks refer to earlier ones."""
    assert not lz4.frame.get_frame_info(compress(Compression.LZ4, PAYLOADS["zeros"]))["block_linked"]


def test_lz4_and_zstd_without_a_content_size_are_read():
    payload = PAYLOADS["text"] * 50
    with_none = lz4.frame.compress(payload, store_size=False)
    assert bytes(decompress(Compression.LZ4, with_none)) == payload
    streamed = zstandard.ZstdCompressor(write_content_size=False).compress(payload)
    assert bytes(decompress(Compression.ZSTD, streamed)) == payload


@pytest.mark.parametrize("states_size", [True, False])
def test_zstd_frames_with_checksums_are_read_one_after_the_other(states_size):
    compressor = zstandard.ZstdCompressor(write_checksum=True, write_content_size=states_size)
    payloads = [PAYLOADS["text"], b"", b"x" * 100_000, b"last"]
    frames = b"".join(compressor.compress(payload) for payload in payloads)
    assert bytes(decompress(Compression.ZSTD, frames)) == b"".join(payloads)


def test_gzip_with_a_name_in_its_header_is_read():
    assert bytes(decompress(Compression.GZIP, gzip.compress(b"payload", mtime=7))) == b"payload"


CAP = 1 << 20
HUGE = 1 << 28


def zstd_bomb() -> bytes:
    compressor = zstandard.ZstdCompressor(level=1, write_content_size=False).compressobj()
    chunk = bytes(1 << 20)
    return b"".join(compressor.compress(chunk) for _ in range(HUGE >> 20)) + compressor.flush()


def gzip_bomb() -> bytes:
    compressor = zlib.compressobj(1, wbits=31)
    chunk = bytes(1 << 20)
    return b"".join(compressor.compress(chunk) for _ in range(HUGE >> 20)) + compressor.flush()


def lz4_bomb() -> bytes:
    compressor = lz4.frame.LZ4FrameCompressor()
    chunk = bytes(1 << 20)
    out = compressor.begin()
    return out + b"".join(compressor.compress(chunk) for _ in range(HUGE >> 20)) + compressor.flush()


def announcing(size: int) -> bytes:
    """A snappy block that announces `size` bytes and has none of them."""
    length = bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*length, size]) + b"\x00a" * 10


BOMBS = {
    "gzip": (Compression.GZIP, gzip_bomb),
    "many gzip members": (Compression.GZIP, lambda: gzip.compress(bytes(CAP // 2)) * 200),
    "raw snappy": (Compression.SNAPPY, lambda: bytes(cramjam.snappy.compress_raw(bytes(HUGE >> 2)))),
    "snappy that lies": (Compression.SNAPPY, lambda: announcing(HUGE)),
    "snappy that lies below the cap": (Compression.SNAPPY, lambda: announcing(CAP - 1)),
    "snappy blocks": (Compression.SNAPPY, lambda: bytes(compress(Compression.SNAPPY, bytes(HUGE >> 2)))),
    "lz4": (Compression.LZ4, lz4_bomb),
    "lz4 with its size": (Compression.LZ4, lambda: lz4.frame.compress(bytes(HUGE >> 2))),
    "zstd": (Compression.ZSTD, zstd_bomb),
    "zstd with its size": (Compression.ZSTD, lambda: zstandard.ZstdCompressor(1).compress(bytes(HUGE >> 2))),
}


OF_CRAMJAM = [name for name, (codec, _) in BOMBS.items() if codec in (Compression.LZ4, Compression.ZSTD)]


@pytest.mark.parametrize(
    ("library", "name"),
    [*(("usual libraries", name) for name in BOMBS), *(("cramjam", name) for name in OF_CRAMJAM)],
    indirect=["library"],
)
def test_a_bomb_is_refused_within_bounded_memory(name):
    compression, make = BOMBS[name]
    bomb = make()
    tracemalloc.start()
    try:
        with pytest.raises(RecordsError) as caught:
            decompress(compression, bomb, CAP)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    lies = "lies below" in name
    assert caught.value.code is (ErrorCode.INVALID_RECORD if lies else ErrorCode.MESSAGE_TOO_LARGE)
    # The pieces, and what was left of the input when a stream ended.
    assert peak < 3 * CAP + 2 * len(bomb)


def test_threads_may_compress_at_the_same_time():
    failures: list[object] = []

    def work(seed: int) -> None:
        payload = bytes([seed]) * 200_000
        for _ in range(20):
            failures.extend(
                (seed, compression)
                for compression in CODECS
                if bytes(decompress(compression, compress(compression, payload))) != payload
            )

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []

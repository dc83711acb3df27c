"""What strangers' bytes may cost in memory, the compiled libraries' own included: measured from outside."""

import subprocess
import sys
from pathlib import Path

import cramjam
import lz4.frame
import pytest
import zstandard

from ottla.records import batch, codec
from ottla.records.compression import compress
from ottla.records.layout import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES, Compression

DECOMPRESSED_BYTES = 256 << 20
CAP = 4 << 20
GROWTH_MAX = 32 << 20
T = 1_700_000_000_000

# Reads the batch into memory first, so that the growth is what judging it costs.
JUDGE = """
import resource, sys
from ottla.errors import RecordsError
from ottla.records import batch
data = open(sys.argv[1], "rb").read()
batch.check(batch.build(None, [b"v" * 100], 1, compression=batch.Compression(data[22] & 7)))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for judge in (lambda: batch.check(data, decompressed_bytes_max=int(sys.argv[2])),
              lambda: batch.decode(data, limit=int(sys.argv[2]))):
    try:
        judge()
    except RecordsError:
        continue
    sys.exit("it was taken")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def sealed(header_of: bytearray, section: bytes) -> bytes:
    data = bytearray(header_of[:HEADER_BYTES]) + section
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[CRC_AT:ATTRIBUTES_AT] = codec.crc32c(memoryview(data)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return bytes(data)


def zeros(compression: Compression) -> bytes:
    """Compressed zeros, in the form that says least about its size."""
    payload = bytes(DECOMPRESSED_BYTES)
    match compression:
        case Compression.LZ4:
            return bytes(lz4.frame.compress(payload, store_size=False))
        case Compression.ZSTD:
            return zstandard.ZstdCompressor(1, write_content_size=False).compress(payload)
        case Compression.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(payload))
        case _:
            return bytes(compress(compression, payload, 1))


def growth(tmp_path: Path, data: bytes) -> int:
    path = tmp_path / "batch"
    path.write_bytes(data)
    run = subprocess.run(
        [sys.executable, "-c", JUDGE, str(path), str(CAP)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return int(run.stdout)


@pytest.mark.parametrize("compression", [codec_ for codec_ in Compression if codec_])
def test_a_bomb_costs_about_the_cap(tmp_path, compression):
    small = batch.build(None, [b"v"], T, compression=compression)
    assert growth(tmp_path, sealed(small, zeros(compression))) < GROWTH_MAX


def test_a_count_of_two_billion_costs_nothing(tmp_path):
    small = batch.build(None, [b"v"], T)
    small[23:27] = (2**31 - 2).to_bytes(4, "big")
    small[57:61] = (2**31 - 1).to_bytes(4, "big")
    assert growth(tmp_path, sealed(small, bytes(small[HEADER_BYTES:]))) < GROWTH_MAX


def test_a_header_count_of_a_billion_costs_nothing(tmp_path):
    small = batch.build(None, [b"v"], T)
    record = b"\x00\x00\x00\x01\x01" + b"\xfe\xff\xff\xff\x0f"
    assert growth(tmp_path, sealed(small, bytes([2 * len(record)]) + record)) < GROWTH_MAX

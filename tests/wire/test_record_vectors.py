"""Batches as others put them on the wire: worked bytes, and captures of real clients."""

import json
from pathlib import Path

import pytest

from ottla.records import batch, codec, control
from ottla.records.control import EndTransactionMarker
from ottla.records.layout import Compression

SHARED = Path(__file__).parents[3] / "shared" / "protocol"
T = 1_700_000_000_000

PLAIN = (
    "000000000000000000000052ffffffff028db9c6db0000000000020000018bcfe568000000018bcfe56805"
    "ffffffffffffffffffffffffffff00000003"
    "1c000000046b31047631020268027810000a02010476320010000a04046b330100"
)
TRANSACTIONAL = (
    "000000000000000a0000003a000000030219b8aaac0010000000000000018bcfe568000000018bcfe56800"
    "0000000000000fa0000200000007000000011000000002610262" + "00"
)
COMMIT = (
    "000000000000000b000000420000000002998fbfc40030000000000000018bcfe568000000018bcfe56800"
    "0000000000000fa00002ffffffff000000012000000008000000010c00000000000000"
)
ABORT = (
    "000000000000000b0000004200000000026db1698c0030000000000000018bcfe568000000018bcfe56800"
    "0000000000000fa00002ffffffff000000012000000008000000000c00000000000000"
)

# Two records each, (key-0, value-0 twenty times), (key-1, …), header h=x: the section behind the 61 bytes of the
# header, as these clients compressed it.
SECTIONS = {
    "gzip, librdkafka": (
        Compression.GZIP,
        "1f8b0800000000000003dbc1c4c0c0c0959d5aa96b3083a92c31a73455d76050504c4c194c153b98189898c0ae3384b9"
        "ce70505060d701009b53168a3c010000",
    ),
    "raw snappy, librdkafka": (
        Compression.SNAPPY,
        "bc024cb8020000000a6b65792d30980276616c75652d30fe0700fe07000507240202680278b802000202059e0031119e"
        "0031099efe0700fa0700100202680278",
    ),
    "framed snappy, kafka-python and aiokafka": (
        Compression.SNAPPY,
        "82534e4150505900000000010000000100000040bc024cb8020000000a6b65792d30980276616c75652d30fe0700fe07"
        "000507240202680278b802000202059e0031119e0031099efe0700fa0700100202680278",
    ),
    "lz4, librdkafka": (
        Compression.LZ4,
        "04224d1860408238000000ff05b8020000000a6b65792d30980276616c75652d30070072a10202680278b8020002029e"
        "0014319e0012319e000f07006c50020268027800000000",
    ),
    "lz4 with content size, kafka-python": (
        Compression.LZ4,
        "04224d1868403c010000000000000138000000ff05b8020000000a6b65792d30980276616c75652d30070072a1020268"
        "0278b8020002029e0014319e0012319e000f07006c50020268027800000000",
    ),
    "lz4 with block checksums, aiokafka": (
        Compression.LZ4,
        "04224d187040ad35000000ff05b8020000000a6b65792d30980276616c75652d30070072a10202680278b8020002029e"
        "0014319e001f310700725002026802783e1e251c00000000",
    ),
    "zstd without content size, librdkafka": (
        Compression.ZSTD,
        "28b52ffd0058b501005402b8020000000a6b65792d30980276616c75652d300202680278b80200020231310202680278"
        "05001c2400f88058c85c9d40546102",
    ),
    "zstd, kafka-python and aiokafka": (
        Compression.ZSTD,
        "28b52ffd603c00b501005402b8020000000a6b65792d30980276616c75652d300202680278b802000202313102026802"
        "7805001c2400f88058c85c9d40546102",
    ),
}


def shared(name: str) -> dict:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{name} is not here")
    return json.loads(path.read_text())


def two_values() -> list[bytes]:
    return [b"value-0" * 20, b"value-1" * 20]


def test_the_plain_vector_is_built_and_read():
    built = batch.build([b"k1", None, b"k3"], [b"v1", b"v2", None], [T, T + 5, T + 5], headers=[[("h", b"x")], [], []])
    assert built.hex() == PLAIN
    columns = batch.decode(bytes.fromhex(PLAIN))
    assert (columns.keys, columns.timestamps) == ([b"k1", None, b"k3"], [T, T + 5, T + 5])


def test_the_transactional_vector_is_built():
    built = batch.build(
        [b"a"], [b"b"], T, base_offset=10, leader_epoch=3, producer_id=4000, producer_epoch=2, base_sequence=7,
        is_transactional=True,
    )  # fmt: skip
    assert built.hex() == TRANSACTIONAL


@pytest.mark.parametrize(("commit", "vector"), [(True, COMMIT), (False, ABORT)])
def test_the_markers_are_built_and_read(commit, vector):
    marker = EndTransactionMarker(commit, 0)
    assert control.build_marker(4000, 2, marker, T, base_offset=11, leader_epoch=0).hex() == vector
    assert control.read_marker(bytes.fromhex(vector)) == marker


@pytest.mark.parametrize(("compression", "section"), SECTIONS.values(), ids=SECTIONS)
def test_sections_that_clients_compressed_are_read(compression, section):
    plain = batch.build([b"key-0", b"key-1"], two_values(), [T, T + 1], headers=[[("h", b"x")]] * 2)
    from ottla.records.compression import decompress

    assert bytes(decompress(compression, bytes.fromhex(section))) == bytes(plain[61:])


def test_the_shared_vectors_hold():
    vectors = shared("vectors.json")
    for name in ("batch_plain", "batch_txn", "control_commit", "control_abort"):
        batch.check(bytes.fromhex(vectors[name]["hex"]), strict=name == "batch_plain")  # the others stand in a log
    for text, checksum in vectors["crc32c"].items():
        assert codec.crc32c(text.encode()) == int(checksum, 16)


def test_captured_batches_of_every_client_are_sound_and_equal():
    captured = shared("captured_batches.json")["batches"]
    assert captured
    for client, batches in captured.items():
        for entry in batches:
            data = bytearray.fromhex(entry["hex"])
            # Whoever captured them gave them offsets, as a broker does. The clients had sent 0.
            batch.stamp(data, 0, batch.read_header(data).leader_epoch)
            checked = batch.check(data)
            assert checked.header.compression.name.lower() == entry["codec"], client
            columns = batch.decode(data)
            assert columns.keys == [b"key-0", b"key-1"]
            assert columns.values == two_values()
            assert columns.timestamps == [T, T + 1]
            assert columns.headers == [(("h", b"x"),)] * 2

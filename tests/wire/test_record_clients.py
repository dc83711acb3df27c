"""Our batches against the record builders and readers of other clients, as an independent word on the format."""

from types import SimpleNamespace

import cramjam
import pytest

from ottla.records import batch, legacy
from ottla.records.layout import Compression

T = 1_700_000_000_000
ROWS = [(b"k%d" % n if n % 3 else None, b"value-%d" % n * n if n % 5 else None, T + n % 4) for n in range(40)]
HEADERS = [[("h", b"x")] * (n % 3) for n in range(40)]


@pytest.fixture
def kafka_codecs(monkeypatch):
    """kafka-python's own framing of snappy needs a module of raw blocks, which cramjam's stands in for."""
    kafka_codec = pytest.importorskip("kafka.codec")
    raw = SimpleNamespace(
        compress=lambda data: bytes(cramjam.snappy.compress_raw(data)),
        decompress=lambda data: bytes(cramjam.snappy.decompress_raw(data)),
    )
    monkeypatch.setattr(kafka_codec, "snappy", raw)
    return kafka_codec


def built_by_us(compression: Compression) -> bytearray:
    keys, values, times = zip(*ROWS, strict=True)
    return batch.build(keys, values, times, headers=HEADERS, compression=compression)


def append_all(builder, *, with_headers: bool) -> None:
    for n, (key, value, timestamp) in enumerate(ROWS):
        extra = {"headers": HEADERS[n]} if with_headers else {}
        assert builder.append(n, timestamp=timestamp, key=key, value=value, **extra) is not None


@pytest.mark.parametrize("compression", Compression)
def test_kafka_python_builds_what_we_read(kafka_codecs, compression):
    from kafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=compression, is_transactional=False, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=1 << 20,
    )  # fmt: skip
    append_all(builder, with_headers=True)
    theirs = bytes(builder.build())
    batch.check(theirs)
    assert batch.decode(theirs) == batch.decode(built_by_us(compression))
    if compression is Compression.NONE:
        ours = built_by_us(compression)
        batch.stamp(ours, 0, batch.read_header(theirs).leader_epoch)
        assert theirs == ours


@pytest.mark.parametrize("compression", Compression)
def test_kafka_python_reads_what_we_build(kafka_codecs, compression):
    from kafka.record.default_records import DefaultRecordBatch

    theirs = DefaultRecordBatch(bytes(built_by_us(compression)))
    assert theirs.validate_crc()
    found = [(record.key, record.value, record.timestamp, list(record.headers)) for record in theirs]
    assert found == [(*row, headers) for row, headers in zip(ROWS, HEADERS, strict=True)]


@pytest.mark.parametrize("compression", Compression)
def test_aiokafka_reads_what_we_build(compression):
    records = pytest.importorskip("aiokafka.record.default_records")
    theirs = records.DefaultRecordBatch(bytes(built_by_us(compression)))
    assert theirs.validate_crc()
    found = [(record.key, record.value, record.timestamp, list(record.headers)) for record in theirs]
    assert found == [(*row, headers) for row, headers in zip(ROWS, HEADERS, strict=True)]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", [codec for codec in Compression if codec < Compression.ZSTD])
def test_old_messages_of_kafka_python_are_read_and_converted(kafka_codecs, magic, compression):
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

    if compression is Compression.LZ4 and magic == 0 and getattr(kafka_codecs, "xxhash", None) is None:
        pytest.skip("kafka-python writes the old lz4 framing only with xxhash")
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=compression, batch_size=1 << 20)
    append_all(builder, with_headers=False)
    data = bytes(builder.build())
    times = [row[2] if magic else -1 for row in ROWS]
    found = legacy.read(data)
    assert [(message.key, message.value) for message in found] == [row[:2] for row in ROWS]
    assert [message.timestamp for message in found] == times
    assert [message.offset for message in found] == list(range(len(ROWS)))
    converted = legacy.convert_up(data)
    batch.check(converted)
    assert batch.decode(converted).timestamps == times

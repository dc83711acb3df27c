"""Clients write: every codec and acknowledgement, every shape of record, and what is refused."""

from __future__ import annotations

import random

import pytest

from ottla.errors import ErrorCode
from ottla.records.layout import Compression
from ottla.testing.clients import Sent, StepError

COUNT = 100
MIB = 1 << 20
CODECS = [
    pytest.param(
        codec,
        marks=pytest.mark.feature(f"produce {'uncompressed' if codec is Compression.NONE else codec.name.lower()}"),
    )
    for codec in Compression
]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())
def test_records_are_stored_in_order_with_the_codec_asked_for(driver, judged, make_topic, codec, acks):
    topic = make_topic()
    records = [Sent(b"value %d " % number + b"." * 100, key=b"key %d" % number) for number in range(COUNT)]
    offsets = driver.produce(topic, records, acks=acks, codec=codec.name.lower())
    if acks != "0":
        assert offsets in ([None] * COUNT, list(range(COUNT)))
    judged.wait_for_end(topic, COUNT)
    assert {header.compression for header in judged.batches(topic)} == {codec}
    seen = driver.consume(topic, COUNT)
    assert [(record.key, record.value) for record in seen] == [(record.key, record.value) for record in records]


@pytest.mark.feature("record headers")
def test_headers_come_back_in_order_with_their_repetitions(driver, make_topic):
    topic = make_topic()
    headers = (("trace", b"4711"), ("twice", b"1"), ("twice", b"2"), ("empty", b""), ("snow ☃", "❄".encode()))
    driver.produce(topic, [Sent(b"with", headers=headers), Sent(b"without")])
    assert [record.headers for record in driver.consume(topic, 2)] == [headers, ()]


@pytest.mark.feature("null header values")
def test_a_header_without_a_value_is_told_from_an_empty_one(driver, make_topic):
    topic = make_topic()
    headers = (("null", None), ("empty", b""))
    driver.produce(topic, [Sent(b"value", headers=headers)])
    assert driver.consume(topic, 1)[0].headers == headers


@pytest.mark.feature("null keys and values")
def test_null_is_told_from_empty(driver, make_topic):
    topic = make_topic()
    # Not both null: several clients refuse to send nothing at all.
    pairs = [(None, b"value"), (b"key", None), (b"key", b""), (b"key", b"value")]
    driver.produce(topic, [Sent(value, key=key) for key, value in pairs])
    assert [(record.key, record.value) for record in driver.consume(topic, len(pairs))] == pairs


@pytest.mark.feature("record timestamps")
def test_the_timestamps_of_the_producer_are_kept(driver, make_topic, recently):
    topic = make_topic()
    times = [recently + 5, recently, recently + 9000]
    driver.produce(topic, [Sent(b"value", timestamp=timestamp) for timestamp in times])
    assert [record.timestamp for record in driver.consume(topic, len(times))] == times


@pytest.mark.feature("1 MiB records")
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_records_of_a_mebibyte_come_back_whole(driver, make_topic, codec):
    topic = make_topic(configs={"max.message.bytes": str(8 * MIB)})
    # Printable, because kcat finds the end of a record by a delimiter.
    values = [random.Random(number).randbytes(MIB // 2).hex().encode() for number in range(3)]
    driver.produce(topic, [Sent(value) for value in values], codec=codec)
    assert [record.value for record in driver.consume(topic, len(values))] == values


@pytest.mark.feature("idempotent producer")
def test_an_idempotent_producer_numbers_its_batches(driver, judged, make_topic):
    topic = make_topic()
    for _ in range(2):
        driver.produce(topic, [Sent(b"value %d" % number) for number in range(10)], idempotent=True)
    headers = judged.batches(topic)
    assert all(header.producer_id >= 0 and header.producer_epoch == 0 for header in headers)
    assert len({header.producer_id for header in headers}) == 2
    expected = 0
    for header in headers:
        assert header.base_sequence == expected % 10
        expected += header.record_count
    assert [record.value for record in driver.consume(topic, 20)] == [b"value %d" % (n % 10) for n in range(20)]


@pytest.mark.feature("error: record too large")
def test_a_record_that_the_topic_does_not_take_is_refused(driver, make_topic):
    with pytest.raises(StepError) as refused:
        driver.produce(make_topic(configs={"max.message.bytes": "1000"}), [Sent(b"x" * 5000)])
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE

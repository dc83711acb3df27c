"""Clients read: from an offset, from a time, after records were deleted, and what others wrote."""

from __future__ import annotations

import pytest

from ottla.testing.clients import CLIENTS, Sent

COUNT = 60
STEP_MS = 1000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def timed_topic(drivers, make_topic, recently):
    """A topic of several batches with a record a second, written by the newest librdkafka."""
    topic = make_topic()
    writer = drivers.of(next(client for client in CLIENTS if client.name == "confluent-kafka"))
    for first in range(0, COUNT, 10):
        writer.produce(
            topic,
            [Sent(b"value %d" % number, timestamp=recently + number * STEP_MS) for number in range(first, first + 10)],
        )
    return topic


@pytest.mark.feature("consume from an offset")
@pytest.mark.parametrize("offset", [0, 10, 37, COUNT - 1])
def test_reading_begins_at_the_offset_asked_for_even_inside_a_batch(driver, timed_topic, offset):
    seen = driver.consume(timed_topic, COUNT - offset, offset=offset)
    assert [(record.offset, record.value) for record in seen] == [
        (number, b"value %d" % number) for number in range(offset, COUNT)
    ]


@pytest.mark.feature("consume from a timestamp")
@pytest.mark.parametrize(("number", "early_ms"), [(0, 5000), (23, 0), (23, 1), (COUNT - 1, STEP_MS - 1)])
def test_reading_begins_at_the_first_record_not_before_the_timestamp(driver, timed_topic, recently, number, early_ms):
    seen = driver.consume(timed_topic, COUNT - number, timestamp=recently + number * STEP_MS - early_ms)
    assert [record.offset for record in seen] == list(range(number, COUNT))


@pytest.mark.feature("list offsets")
def test_the_offsets_of_the_ends_and_of_a_time_are_listed(driver, timed_topic, recently):
    asked = {"earliest": 0, "latest": COUNT, recently + 17 * STEP_MS: 17, recently + 17 * STEP_MS + 1: 18}
    found = {at: driver.do("list_offsets", topic=timed_topic, partition=0, at=at)["offset"] for at in asked}
    assert found == asked


@pytest.mark.feature("offset of the newest timestamp")
def test_the_offset_of_the_newest_timestamp_is_listed(driver, drivers, client, make_topic, recently):
    topic = make_topic()
    driver.produce(topic, [Sent(b"value", timestamp=recently + time) for time in (1, 5000, 300)])
    assert driver.do("list_offsets", topic=topic, partition=0, at="max_timestamp") == {"offset": 1}


@pytest.mark.feature("delete records")
def test_deleted_records_are_not_read_again(driver, timed_topic):
    assert driver.do("delete_records", topic=timed_topic, partition=0, before=25) == {"low_watermark": 25}
    assert driver.do("list_offsets", topic=timed_topic, partition=0, at="earliest") == {"offset": 25}
    seen = driver.consume(timed_topic, COUNT - 25, offset=25)
    assert [record.offset for record in seen] == list(range(25, COUNT))


@pytest.fixture(scope="session")
def written(drivers, judged, recently):
    """By client the topic that it wrote and the records that went in, with every codec and all that it can."""
    topics = {}
    for client in CLIENTS:
        if client.missing_programs:
            continue
        topic = f"written-by-{client.slug}"
        judged.create_topic(topic)
        records = []
        for codec in CODECS:
            part = [
                Sent(b"%s 0" % codec.encode(), key=b"key", headers=(("codec", codec.encode()),)),
                Sent(None, key=b"tombstone"),
                Sent("❄".encode() * 50, headers=(("trace", b"1"), ("trace", b"2"))),
            ]
            drivers.of(client).produce(topic, part, codec=codec)
            records += part
        topics[client] = topic, records
    return topics


@pytest.mark.feature("read what every other client wrote")
def test_each_client_reads_what_every_other_wrote(driver, written):
    for writer, (topic, records) in written.items():
        seen = driver.consume(topic, len(records))
        assert [(record.offset, record.key, record.value, record.headers) for record in seen] == [
            (offset, record.key, record.value, record.headers) for offset, record in enumerate(records)
        ], f"written by {writer}"

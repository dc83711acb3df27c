"""Bad input while others work: a clear error or a closed connection, the neighbours unharmed, memory bounded."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.records.compression import compress
from ottla.records.layout import Compression
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, fetch, list_offsets, one_batch, produce

pytestmark = pytest.mark.slow

Unharmed = Callable[..., dict[str, float]]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(in_process=False) as running:
        with RawClient(running.bootstrap_servers) as client:
            client.ask(create_topic("t"), 7)
        yield running


def end_offset(broker: Broker, topic: str = "t") -> int:
    with RawClient(broker.bootstrap_servers) as client:
        return int(client.ask(list_offsets(topic, -1), 7).topics[0].partitions[0].offset)


def test_random_bytes(broker: Broker, unharmed: Unharmed) -> None:
    rng = random.Random(3)

    def throw() -> None:
        for _ in range(500):
            with RawClient(broker.bootstrap_servers) as rude:
                junk = rng.randbytes(rng.randint(0, 2000))
                rude.socket.sendall(junk if rng.random() < 0.3 else struct.pack(">i", len(junk)) + junk)

    unharmed(broker, throw)


def test_requests_with_random_damage(broker: Broker, unharmed: Unharmed) -> None:
    rng = random.Random(4)
    before = end_offset(broker)

    def throw() -> None:
        for _ in range(500):
            with RawClient(broker.bootstrap_servers) as rude:
                request = rng.choice([(fetch("t"), 12), (create_topic("x"), 7), (list_offsets("t", -1), 7)])
                frame = bytearray(rude.encoded(*request)[1])
                for _ in range(rng.randint(1, 4)):
                    frame[rng.randrange(8, len(frame))] = rng.randrange(256)
                rude.socket.sendall(frame)
                rude.is_ended(timeout_s=0.02)  # or answered, or parked for years

    unharmed(broker, throw)
    assert end_offset(broker) == before


def test_huge_and_negative_lengths_and_frames_that_never_end(broker: Broker, unharmed: Unharmed) -> None:
    def throw() -> None:
        held = []
        for number in range(500):
            client = RawClient(broker.bootstrap_servers)
            size = (-1, -(2**31), 2**31 - 1, 104_857_600)[number % 4]
            client.socket.sendall(struct.pack(">i", size) + bytes(100))
            held.append(client)
        for client in held:
            client.close()

    unharmed(broker, throw)


def test_wrong_checksums(broker: Broker, unharmed: Unharmed) -> None:
    before = end_offset(broker)
    damaged = bytearray(one_batch(b"x" * 1000))
    damaged[-1] ^= 1

    def throw() -> None:
        with RawClient(broker.bootstrap_servers) as client:
            for _ in range(200):
                answer = client.ask(produce("t", bytes(damaged)), 9).responses[0].partition_responses[0]
                assert answer.error_code == ErrorCode.CORRUPT_MESSAGE

    unharmed(broker, throw)
    assert end_offset(broker) == before


# As far as a megabyte goes: snappy has no more than 21 to 1.
DECOMPRESSED_BYTES = {
    Compression.GZIP: 120 << 20,
    Compression.SNAPPY: 20 << 20,
    Compression.LZ4: 120 << 20,
    Compression.ZSTD: 120 << 20,
}


def bomb(codec: Compression) -> bytes:
    """A batch of a megabyte or less that decompresses to almost as much as is allowed, and is no record."""
    packed = bytes(compress(codec, bytes(DECOMPRESSED_BYTES[codec])))
    sound = one_batch(b"x")
    header = batch.read_header(sound)
    return bytes(
        batch.wrap(
            bytearray(bytes(61) + packed),
            1,
            0,
            header.base_timestamp,
            header.max_timestamp,
        )
    )


def reattributed(records: bytes, codec: Compression) -> bytes:
    """The batch with another codec in its attributes, and its checksum made right again."""
    changed = bytearray(records)
    changed[22] = (changed[22] & ~7) | codec
    batch._seal(changed)
    return bytes(changed)


@pytest.mark.parametrize("codec", list(DECOMPRESSED_BYTES))
def test_decompression_bombs(codec: Compression, broker: Broker, unharmed: Unharmed) -> None:
    """One takes 0.05 s (snappy) to 0.6 s (gzip): on the loop, the neighbour would wait as long."""
    before = end_offset(broker)
    records = reattributed(bomb(codec), codec)
    outcomes: list[Any] = []

    def throw() -> None:
        with RawClient(broker.bootstrap_servers) as client:
            for _ in range(2):
                answer = client.ask(produce("t", records), 9).responses[0].partition_responses[0]
                outcomes.append(ErrorCode(answer.error_code).name)

    unharmed(broker, throw, grown_kb_max=300_000, p99_ms_max=40)
    assert set(outcomes) == {"INVALID_RECORD"}, outcomes
    assert end_offset(broker) == before


def test_connections_that_come_and_go_in_thousands(broker: Broker, unharmed: Unharmed) -> None:
    def throw() -> None:
        for _ in range(5):
            held = [RawClient(broker.bootstrap_servers) for _ in range(200)]
            for client in held:
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()

    unharmed(broker, throw)


def test_readers_that_do_not_read(broker: Broker, unharmed: Unharmed) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("large"), 7)
        for _ in range(20):
            client.ask(produce("large", one_batch(random.Random(1).randbytes(900_000))), 9)

    def throw() -> None:
        held = []
        for _ in range(100):
            client = RawClient(broker.bootstrap_servers)
            for _ in range(10):
                client.send(fetch("large"), 11)
            held.append(client)
        for client in held:
            client.close()

    # Until their buffers are full these are a hundred readers like any other, gigabytes a second.
    unharmed(broker, throw, p99_ms_max=400)


def test_a_large_request_that_is_refused_costs_no_memory_for_good(broker: Broker, unharmed: Unharmed) -> None:
    def throw() -> None:
        for _ in range(5):
            with RawClient(broker.bootstrap_servers) as client:
                answer = client.ask(produce("t", one_batch(bytes(30 << 20))), 9)
                assert answer.responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE

    unharmed(broker, throw)


def test_half_sent_requests_of_many(broker: Broker, unharmed: Unharmed) -> None:
    before = end_offset(broker)

    def throw() -> None:
        for _ in range(300):
            with RawClient(broker.bootstrap_servers) as client:
                _, frame = client.encoded(produce("t", one_batch(b"x" * 5000)), 9)
                client.socket.sendall(frame[: random.Random(1).randrange(len(frame))])

    unharmed(broker, throw)
    assert end_offset(broker) == before


def test_the_broker_still_stands(broker: Broker) -> None:
    """The last of the module: the same process, its complaints without a failure of our own."""
    before = end_offset(broker)
    with RawClient(broker.bootstrap_servers) as client:
        assert not client.ask(produce("t", one_batch(b"well")), 9).responses[0].partition_responses[0].error_code
    assert end_offset(broker) == before + 1
    with open(f"{broker.directory}/broker.err") as complaints:
        assert "Traceback" not in complaints.read()

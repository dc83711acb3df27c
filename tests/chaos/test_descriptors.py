"""A broker that may open few files: partitions do not need them for good, connections past their share are refused."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.descriptors import DescriptorTable
from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.testing.raw_client import ConnectionEnded, RawClient
from ottla.testing.raw_requests import create_topic, fetch, metadata, one_batch, produce_to_many
from ottla.testing.waiting import wait_until

LIMIT = 96
PARTITIONS = 200  # twice what there are descriptors for
ROUNDS = 3
SETTINGS = {"internal.segment.bytes": "1000"}  # of the topic


@contextmanager
def serving(directory: Path) -> Iterator[str]:
    """`ottla serve` in a process that may have so few descriptors and cannot have more."""
    command = ["sh", "-c", f'ulimit -n {LIMIT} && exec "$@"', "sh"]
    command += [sys.executable, "-m", "ottla", "serve", "--listen", "127.0.0.1:0", "--data", str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("ready "), line
        yield line.split()[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, "the broker ended by itself, or not in order"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def write_everywhere(client: RawClient, value: bytes) -> None:
    answer = client.ask(produce_to_many("t", [(index, one_batch(value)) for index in range(PARTITIONS)]), 9)
    codes = {one.error_code for one in answer.responses[0].partition_responses}
    assert codes == {ErrorCode.NONE}, codes


def values(client: RawClient, partition: int) -> list[bytes]:
    found: list[bytes] = []
    while True:
        (answer,) = client.ask(fetch("t", len(found), partitions=(partition,)), 11).responses[0].partitions
        assert answer.error_code == ErrorCode.NONE
        data = bytes(answer.records)
        if not data:
            return found
        position = 0
        for header in batch.scan(data).headers:
            found += [bytes(record.value or b"") for record in batch.iterate(data, position)]
            position += header.size_bytes


def is_served(address: str) -> bool:
    """Whether a new connection is kept: a refused one is closed before it is answered."""
    try:
        with RawClient(address) as client:
            client.ask(metadata(), 9)
    except (ConnectionEnded, OSError):
        return False
    return True


@pytest.mark.slow
def test_more_partitions_and_clients_than_descriptors(tmp_path: Path) -> None:
    rounds = [b"%d" % number + b"x" * 600 for number in range(ROUNDS)]  # every round rolls every partition
    with serving(tmp_path / "data") as address, RawClient(address) as client:
        assert client.ask(create_topic("t", PARTITIONS, config=SETTINGS), 7).topics[0].error_code == ErrorCode.NONE
        write_everywhere(client, rounds[0])
        host, _, port = address.rpartition(":")
        crowd = [socket.create_connection((host, int(port))) for _ in range(LIMIT)]
        assert not is_served(address)
        for value in rounds[1:]:
            write_everywhere(client, value)
        for sock in crowd:
            sock.close()
        assert all(values(client, partition) == rounds for partition in range(PARTITIONS))
        wait_until(lambda: is_served(address))
    with serving(tmp_path / "data") as address, RawClient(address) as client:
        assert all(values(client, partition) == rounds for partition in range(PARTITIONS))


def test_the_table_is_shared_out_whole() -> None:
    for limit in (32, LIMIT, 256, 1024, 20_000, 1 << 20):
        table = DescriptorTable(limit)
        assert table.files_max > 0
        assert table.connections_max > 0
        assert table.files_max + table.connections_max < limit, "something is left for what is open for a moment"

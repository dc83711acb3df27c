"""Disks that are full or fail: an error to the producer, an offline directory, never a torn log."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.log_dirs import DescribeLogDirsRequest
from ottla.records import batch
from ottla.testing.broker import Broker
from ottla.testing.disk import SimulatedDisk
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, fetch, list_offsets, one_batch, produce

SIZE_MB = 24


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(place)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def written(client: RawClient, topic: str, value: bytes, partition: int = 0) -> tuple[int, int]:
    answer = client.ask(produce(topic, one_batch(value), partition=partition), 9).responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


def values(client: RawClient, topic: str, partition: int = 0) -> list[bytes]:
    found: list[bytes] = []
    end = client.ask(list_offsets(topic, -1, partition=partition), 7).topics[0].partitions[0].offset
    while len(found) < end:
        answer = client.ask(fetch(topic, len(found), partitions=(partition,), partition_max_bytes=4 << 20), 11)
        data = bytes(answer.responses[0].partitions[0].records)
        position = 0
        while position + 61 <= len(data):
            header = batch.read_header(data, position)
            if position + header.batch_length + 12 > len(data):
                break
            found += [bytes(record.value or b"") for record in batch.iterate(data, position)]
            position += header.batch_length + 12
    return found


@pytest.mark.slow
def test_a_full_disk_is_told_and_what_was_acknowledged_is_there_when_there_is_room(
    small_disk: Path, tmp_path: Path
) -> None:
    directory = small_disk / "data"
    acknowledged: list[bytes] = []
    settings = {"log.index.size.max.bytes": "4096"}
    with Broker(settings, directory=directory) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("t"), 7)
        for number in range(100):
            value = b"%03d" % number + os.urandom(500_000)
            code, offset = written(client, "t", value)
            if code:
                break
            assert offset == number
            acknowledged.append(value)
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(acknowledged) > 20
        again, _ = written(client, "t", b"x")
        assert again == ErrorCode.KAFKA_STORAGE_ERROR
    roomy = tmp_path / "roomy"
    subprocess.run(["cp", "-a", str(directory), str(roomy)], check=True)
    with Broker(directory=roomy) as broker, RawClient(broker.bootstrap_servers) as client:
        assert values(client, "t") == acknowledged
        assert written(client, "t", b"goes on") == (0, len(acknowledged))


def test_a_failing_directory_takes_only_its_own_partitions_offline() -> None:
    disk = SimulatedDisk()
    settings = {"log.dirs": "/a,/b"}
    with Broker(settings, directory="/a", disk=disk) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("t", 6), 7)
        for partition in range(6):
            assert written(client, "t", b"first", partition) == (0, 0)
        on_b = sorted(name.partition for name in broker.running.logs.directories[1].logs)
        assert len(on_b) == 3
        with RawClient(broker.bootstrap_servers) as parked:
            parked.send(fetch("t", 1, partitions=tuple(on_b), max_wait_ms=20_000), 11)
            disk.fail("/b/*.log", "write", errno.EIO)
            assert written(client, "t", b"lost", on_b[0]) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
            woken = parked.receive()[0].responses[0].partitions
            assert {one.error_code for one in woken} == {ErrorCode.KAFKA_STORAGE_ERROR}, "a parked fetch is woken"
        for partition in range(6):
            expected = ErrorCode.KAFKA_STORAGE_ERROR if partition in on_b else ErrorCode.NONE
            assert written(client, "t", b"second", partition)[0] == expected
        for partition in on_b:
            assert client.ask(fetch("t", partitions=(partition,)), 11).responses[0].partitions[0].error_code == 56
            assert client.ask(list_offsets("t", -1, partition=partition), 7).topics[0].partitions[0].error_code == 56
        results = client.ask(DescribeLogDirsRequest(topics=None), 4).results
        assert [(one.log_dir, one.error_code) for one in results] == [("/a", 0), ("/b", 56)]
        client.ask(create_topic("new", 3), 7)
        assert written(client, "new", b"x", 2) == (0, 0), "new partitions go to the directory that works"
    disk.heal()
    with Broker(settings, directory="/a", disk=disk) as broker, RawClient(broker.bootstrap_servers) as client:
        for partition in range(6):
            kept = [b"first"] if partition in on_b else [b"first", b"second"]
            assert values(client, "t", partition) == kept


def test_a_disk_that_cannot_read_is_told_and_others_read_on() -> None:
    disk = SimulatedDisk()
    settings = {"log.dirs": "/a,/b"}
    with Broker(settings, directory="/a", disk=disk) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("t", 2), 7)
        for partition in range(2):
            for number in range(3):
                assert written(client, "t", b"%d" % number, partition) == (0, number)
        bad = next(iter(broker.running.logs.directories[1].logs)).partition
        disk.fail("/b/*.log", "read", errno.EIO)
        answer = client.ask(list_offsets("t", 1_700_000_000_000, partition=bad), 7).topics[0].partitions[0]
        assert answer.error_code in (0, ErrorCode.KAFKA_STORAGE_ERROR)
        assert values(client, "t", 1 - bad) == [b"0", b"1", b"2"]


def test_a_metadata_store_that_cannot_write_refuses_and_serves_on() -> None:
    disk = SimulatedDisk()
    with Broker(directory="/a", disk=disk) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("t"), 7)
        fault = disk.fail("*metadata.journal*", "write", errno.ENOSPC)
        refused = client.ask(create_topic("u"), 7).topics[0]
        assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert written(client, "t", b"still") == (0, 0)
        disk.heal(fault)
        assert client.ask(create_topic("u"), 7).topics[0].error_code == 0

"""Disks that are full or fail: an error to the producer, an offline directory, never a torn log."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.errors import ErrorCode
from ottla.protocol.messages.log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.records import batch
from ottla.testing.broker import Broker
from ottla.testing.disk import SimulatedDisk
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, fetch, list_offsets, metadata, one_batch, produce
from ottla.testing.waiting import WAIT_S, wait_until

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
        told = client.ask(metadata("t"), 12).topics[0].partitions
        for one in told:
            is_offline = one.partition_index in on_b
            described = (ErrorCode.LEADER_NOT_AVAILABLE, -1, 1, [1], [1]) if is_offline else (0, 1, 0, [1], [])
            found = one.error_code, one.leader_id, one.leader_epoch, one.isr_nodes, one.offline_replicas
            assert found == described, one
        client.ask(create_topic("new", 3), 7)
        assert written(client, "new", b"x", 2) == (0, 0), "new partitions go to the directory that works"
        more = CreatePartitionsTopic(name="t", count=7, assignments=None)
        client.ask(CreatePartitionsRequest(topics=[more], timeout_ms=1000, validate_only=False), 3)
        assert written(client, "t", b"first", 6) == (0, 0)
        assert written(client, "t", b"x", on_b[0])[0] == 56, "no second, empty log takes the place of a lost one"
    disk.heal()
    with Broker(settings, directory="/a", disk=disk) as broker, RawClient(broker.bootstrap_servers) as client:
        for partition in range(6):
            kept = [b"first"] if partition in on_b else [b"first", b"second"]
            assert values(client, "t", partition) == kept
        told = client.ask(metadata("t"), 12).topics[0].partitions
        assert all((one.error_code, one.leader_id, one.offline_replicas) == (0, 1, []) for one in told)


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_a_producer_whose_append_failed_sends_the_same_batch_again_and_it_is_taken(is_idempotent: bool) -> None:
    """The append that failed had stamped the batch already; what comes again must be a producer's batch as before."""
    disk = SimulatedDisk()
    with Broker({"log.dirs": "/a,/b"}, directory="/a", disk=disk) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            client.ask(create_topic("t", 2), 7)
        failing = broker.running.logs.directories[1]
        (partition,) = (name.partition for name in failing.logs)
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "enable.idempotence": is_idempotent,
                "retry.backoff.ms": 10,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
            }
        )
        for value in (b"first", b"second"):  # the second is a repetition of the first request
            producer.produce("t", value, partition=partition)
            assert producer.flush(WAIT_S) == 0
        disk.fail("/b/*.log", "write", errno.EIO)
        producer.produce("t", b"third", partition=partition)
        wait_until(lambda: not failing.is_online)
        disk.heal()
        broker.restart()
        assert producer.flush(WAIT_S) == 0
        with RawClient(broker.bootstrap_servers) as client:
            assert values(client, "t", partition) == [b"first", b"second", b"third"]


def test_a_directory_that_is_away_at_the_start_has_offline_replicas_until_it_is_back() -> None:
    disk = SimulatedDisk()
    settings = {"log.dirs": "/a,/b"}
    with Broker(settings, directory="/a", disk=disk) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("t", 2), 7)
        (lost,) = (name.partition for name in broker.running.logs.directories[1].logs)
        assert written(client, "t", b"kept", lost) == (0, 0)
    disk.fail("/b/.kafka_cleanshutdown", "unlink", errno.EIO)
    with Broker(settings, directory="/a", disk=disk) as broker, RawClient(broker.bootstrap_servers) as client:
        told = client.ask(metadata("t"), 12).topics[0].partitions
        assert [one.offline_replicas for one in told] == [[1] if index == lost else [] for index in range(2)]
        assert told[lost].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert written(client, "t", b"x", lost)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    disk.heal()
    with Broker(settings, directory="/a", disk=disk) as broker, RawClient(broker.bootstrap_servers) as client:
        assert values(client, "t", lost) == [b"kept"]


def test_a_broker_without_any_directory_left_says_so_and_ends(small_disk: Path) -> None:
    """As Kafka does: whoever runs it learns that there is something to mend."""
    settings = {"log.dirs": f"{small_disk / 'a'},{small_disk / 'b'}", "log.index.size.max.bytes": "4096"}
    command = [sys.executable, "-m", "ottla", "serve", "--listen", "127.0.0.1:0"]
    for setting in settings.items():
        command += ["--set", "=".join(setting)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        with RawClient(process.stdout.readline().split()[1]) as client:
            client.ask(create_topic("t", 2), 7)
            codes = [0, 0]
            while not all(codes):
                for partition in range(2):
                    codes[partition], _ = written(client, "t", os.urandom(500_000), partition)
            assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
        _, complaints = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 1
    last = complaints.splitlines()[-1]
    assert last.startswith("ottla: "), complaints
    assert "all log directories have failed" in last
    assert "Traceback" not in complaints


def test_a_disk_that_cannot_read_takes_its_directory_offline_and_others_read_on() -> None:
    disk = SimulatedDisk()
    settings = {"log.dirs": "/a,/b"}
    with Broker(settings, directory="/a", disk=disk) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topic("t", 4), 7)
        for partition in range(4):
            for number in range(3):
                assert written(client, "t", b"%d" % number, partition) == (0, number)
        on_b = sorted(name.partition for name in broker.running.logs.directories[1].logs)
        disk.fail("/b/*.log", "read", errno.EIO)
        answer = client.ask(list_offsets("t", 1_700_000_000_000, partition=on_b[0]), 7).topics[0].partitions[0]
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        results = client.ask(DescribeLogDirsRequest(topics=None), 4).results
        assert [(one.log_dir, one.error_code) for one in results] == [("/a", 0), ("/b", 56)]
        disk.heal()
        for partition in range(4):
            if partition in on_b:
                assert written(client, "t", b"x", partition)[0] == 56, "it stays offline until a restart"
            else:
                assert values(client, "t", partition) == [b"0", b"1", b"2"]
    with Broker(settings, directory="/a", disk=disk) as broker, RawClient(broker.bootstrap_servers) as client:
        for partition in range(4):
            assert values(client, "t", partition) == [b"0", b"1", b"2"]


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

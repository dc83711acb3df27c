"""Backups of stopped and of running brokers, restored and read; and backups that are not what they should be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.cli.command import ExitCode
from ottla.cli.main import main
from ottla.testing.broker import Broker, Setting

SETTINGS = {"log.segment.bytes": 1 << 20, "num.partitions": 2, "log.cleaner.backoff.ms": 100}
PARTITIONS = 2


def produce(broker: Broker, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 10, "acks": "all"})
    for number in numbers:
        producer.produce(topic, f"{number:04d}".encode() * 512, key=f"{number % 7}", partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def values(broker: Broker, topic: str) -> list[list[bytes]]:
    """The values of each partition, from its start to its end."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "log_level": 0})
    found = []
    try:
        for partition in range(PARTITIONS):
            place = TopicPartition(topic, partition)
            start, end = consumer.get_watermark_offsets(place, timeout=60)
            consumer.assign([TopicPartition(topic, partition, start)])
            read: list[bytes] = []
            position = start
            while position < end:
                message = consumer.poll(60)
                assert message is not None
                assert message.error() is None
                read.append(message.value() or b"")
                position = (message.offset() or 0) + 1
            found.append(read)
    finally:
        consumer.close()
    return found


def committed(broker: Broker, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "log_level": 0})
    try:
        offset: int = consumer.committed([TopicPartition(topic, 0)], timeout=60)[0].offset
        return offset
    finally:
        consumer.close()


def commit(broker: Broker, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "log_level": 0})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def ottla(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_a_stopped_broker_comes_back_as_it_was(tmp_path: Path) -> None:
    data, backup, restored = tmp_path / "data", tmp_path / "backup", tmp_path / "restored"
    with Broker(SETTINGS, directory=data) as broker:
        produce(broker, "orders", range(2000))
        commit(broker, "readers", "orders", 123)
        expected = values(broker, "orders")
    assert ottla("backup", data, "--to", backup) == ExitCode.OK
    with Broker(SETTINGS, directory=data) as broker:
        produce(broker, "orders", range(500))  # the backup must not change with its source
    assert ottla("restore", backup, "--check") == ExitCode.OK
    assert ottla("restore", backup, "--to", restored) == ExitCode.OK
    with Broker(SETTINGS, directory=restored) as broker:
        assert values(broker, "orders") == expected
        assert committed(broker, "readers", "orders") == 123
        produce(broker, "orders", range(10))
        assert [len(one) for one in values(broker, "orders")] == [1005, 1005]
    assert ottla("restore", backup, "--check") == ExitCode.OK


def test_closed_segments_are_linked_and_open_ones_are_copied(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    with Broker(SETTINGS, directory=data) as broker:
        produce(broker, "orders", range(2000))
    assert ottla("backup", data, "--to", backup) == ExitCode.OK
    *closed, open_one = sorted((backup / "0" / "orders-0").glob("*.log"))
    assert closed
    assert {path.stat().st_nlink for path in closed} == {2}
    assert open_one.stat().st_nlink == 1


def test_a_running_broker_is_copied_as_a_crash_would_leave_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    settings: dict[str, Setting] = {
        **SETTINGS,
        "log.cleanup.policy": "compact",
        "log.cleaner.min.cleanable.ratio": 0.01,
    }
    with Broker(settings, directory=data, in_process=False) as broker:
        produce(broker, "orders", range(700))
        with writing(broker, "orders"):
            for number in range(3):
                assert ottla("backup", data, "--to", tmp_path / f"backup{number}", "--json") == ExitCode.OK
    last = [json.loads(line) for line in capsys.readouterr().out.splitlines()][-1]
    assert last["was_running"]
    ends = {one["name"]: one["end_offset"] for one in last["partitions"]}
    assert min(ends["orders-0"], ends["orders-1"]) >= 350
    assert ottla("restore", tmp_path / "backup2", "--to", tmp_path / "restored") == ExitCode.OK
    with Broker(settings, directory=tmp_path / "restored") as broker:
        found = values(broker, "orders")
        keys_of_each = {0: {0, 1, 2, 3, 4, 5, 6}, 1: {0, 1, 2, 3, 4, 5, 6}}
        assert all(len(found[partition]) >= len(keys) for partition, keys in keys_of_each.items())


class writing:  # noqa: N801 (reads as a verb)
    """Writes in a thread from the beginning of a `with` to its end."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker, self._topic = broker, topic
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        while not self._is_over.is_set():
            produce(self._broker, self._topic, range(700))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `data` and a `backup` of it."""
    place = tmp_path_factory.mktemp("made")
    with Broker(SETTINGS, directory=place / "data") as broker:
        produce(broker, "orders", range(1000))
    assert ottla("backup", place / "data", "--to", place / "backup") == ExitCode.OK
    return place


def test_a_backup_that_was_damaged_is_not_restored_as_if_it_were_whole(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segment = sorted((made / "backup/0/orders-1").glob("*.log"))[-1]
    content = segment.read_bytes()
    try:
        segment.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert ottla("restore", made / "backup", "--check") == ExitCode.DAMAGED
        assert ottla("restore", made / "backup", "--to", tmp_path / "new") == ExitCode.DAMAGED
    finally:
        segment.write_bytes(content)
    assert "orders-1: holds offsets 0 to 500" in capsys.readouterr().err
    assert not (tmp_path / "new" / "meta.properties").exists(), "a broker would serve it"


@pytest.mark.parametrize("name", [".ottla-metadata/metadata.journal", "meta.properties", "orders-0/partition.metadata"])
@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "damaged"])
def test_files_without_which_no_record_would_be_found_are_checked_too(
    made: Path, tmp_path: Path, name: str, is_gone: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    file = made / "backup/0" / name
    content = file.read_bytes()
    try:
        file.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
        if is_gone:
            file.unlink()
        assert ottla("restore", made / "backup", "--check") == ExitCode.DAMAGED
        assert ottla("restore", made / "backup", "--to", tmp_path / "new") == ExitCode.DAMAGED
    finally:
        file.write_bytes(content)
    assert f"{name}: is {'missing' if is_gone else 'not what was backed up'}" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_file_with_the_name_of_a_partition_is_left_out_as_a_broker_does(made: Path, tmp_path: Path) -> None:
    stray = made / "data" / "notes-0"
    stray.touch()
    try:
        assert ottla("backup", made / "data", "--to", tmp_path / "backup") == ExitCode.OK
    finally:
        stray.unlink()
    assert not (tmp_path / "backup/0/notes-0").exists()


def test_a_disk_that_is_full_is_named_and_leaves_nothing_that_looks_like_a_backup(made: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk."""
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({1 << 18}, {1 << 18})); "
    program = f"{limited}import sys; from ottla.cli.main import main; sys.exit(main(sys.argv[1:]))"
    target = tmp_path / "new"
    done = subprocess.run(
        [sys.executable, "-c", program, "restore", made / "backup", "--to", target],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == ExitCode.UNEXPECTED
    assert done.stderr.endswith("cannot be written: File too large\n")
    assert "Traceback" not in done.stderr
    assert not (target / "meta.properties").exists(), "a broker would serve it"
    assert ottla("restore", made / "backup", "--to", target) == ExitCode.USAGE, "it is not empty"


def test_a_backup_that_was_interrupted_is_named(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "part" / "0").mkdir(parents=True)
    assert ottla("restore", tmp_path / "part", "--to", tmp_path / "new") == ExitCode.USAGE
    assert "backup.json is missing, which is written last" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', '{"format": 1, "directories": [[]]}'])
def test_a_manifest_that_is_none_is_a_clear_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "backup.json").write_text(text)
    assert ottla("restore", tmp_path, "--check") in (ExitCode.DAMAGED, ExitCode.USAGE)


def test_places_that_are_not_right_are_refused(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    empty = tmp_path / "empty"
    empty.mkdir()
    clustered = tmp_path / "clustered"
    clustered.mkdir()
    (clustered / "meta.properties").write_bytes((made / "data/meta.properties").read_bytes())
    for arguments, message in {
        ("backup", made / "data", "--to", full): "is there and not empty",
        ("backup", full, "--to", empty): "is not a log directory of a broker",
        ("backup", tmp_path / "gone", "--to", empty): "is not a directory",
        ("backup", clustered, "--to", empty): "its replicas on other brokers are its backup",
        ("backup", made / "data", "--to", made / "data" / "copy-0"): "is inside of",
        ("backup", made / "data", made / "data/../data", "--to", empty): "a directory is named twice",
        ("restore", made / "backup", "--to", full): "is there and not empty",
        ("restore", made / "backup", "--to", empty, tmp_path / "more"): "is of 1 log directories, and 2 are named",
        ("restore", made / "backup"): "--to, or check the backup with --check",
        ("restore", tmp_path / "gone", "--check"): "is not a directory",
    }.items():
        assert ottla(*arguments) in (ExitCode.USAGE, ExitCode.NOT_FOUND), arguments
        assert message in capsys.readouterr().err
    assert not os.listdir(empty)

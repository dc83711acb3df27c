"""All logs of a broker, in one or several directories."""

import os
import random
import struct
import zlib
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.config import LogConfig
from ottla.disk import RealDisk
from ottla.errors import ApiError, CorruptFileError, LockHeldError, StorageError
from ottla.ids import TopicPartition
from ottla.records import batch
from ottla.storage import checkpoints
from ottla.storage.cleaning_job import CleaningResult
from ottla.storage.directory_names import DELETE_SUFFIX, partition_of, set_aside_name
from ottla.storage.logs import Logs
from ottla.testing.disk import EVERY_FATE, DiskStopped, Fate, SimulatedDisk
from ottla.testing.log_upkeep import commit_cleaning, unlink_due, write_checkpoints, write_high_watermarks

NOW = 1_700_000_000_000
DELAY = 60_000
TOPIC_ID = UUID("b8f5c3d2-1a2b-4c3d-8e4f-5a6b7c8d9e0f")
CLEAN_MARK = ".kafka_cleanshutdown"


def tp(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)


def note_cleaned(logs: Logs, partition: TopicPartition, end_offset: int) -> None:
    """A compaction that found nothing to drop up to `end_offset`."""
    assert commit_cleaning(logs, partition, CleaningResult(end_offset, truncation_count=0), now_ms=NOW)


class FailingDisk(RealDisk):
    """The real disk, except that every change below a path fails once it is told to."""

    broken: str | None = None

    def _check(self, path: str) -> None:
        if self.broken is not None and path.startswith(self.broken):
            raise StorageError(path, "cannot read: Input/output error")

    def open(self, path: str, **options: Any) -> Any:
        self._check(path)
        return super().open(path, **options)

    def list_directory(self, path: str) -> list[str]:
        self._check(path)
        return super().list_directory(path)

    def make_directory(self, path: str) -> None:
        self._check(path)
        super().make_directory(path)


class Broker:
    """Two log directories, opened and closed as a broker does."""

    def __init__(self, root: Path) -> None:
        self.disk = FailingDisk()
        self.paths = [str(root / "one"), str(root / "two")]
        self.config = LogConfig()
        self._opened: list[Logs] = []

    def open(self, paths: list[str] | None = None, **options: Any) -> Logs:
        logs = Logs(self.disk, paths or self.paths, lambda topic: self.config, rng=random.Random(0), **options)
        self._opened.append(logs)
        logs.open(NOW)
        return logs

    def kill(self, logs: Logs) -> None:
        """The process is gone: nothing is written, the locks are free."""
        for log in logs:
            log.abandon()
        logs.close_locks()

    def let_go(self) -> None:
        for logs in self._opened:
            self.kill(logs)


@pytest.fixture
def broker(tmp_path: Path) -> Any:
    owner = Broker(tmp_path)
    yield owner
    owner.let_go()


def produce(log: Any, *values: bytes) -> None:
    log.append(batch.build(None, values, NOW), leader_epoch=0, now_ms=NOW)


def names(directory: str) -> list[str]:
    return sorted(os.listdir(directory))


# -- locks -------------------------------------------------------------------------------------------------------------


def test_a_directory_belongs_to_one_broker(broker: Broker) -> None:
    broker.open()
    with pytest.raises(
        LockHeldError, match=r"one/\.lock: is held by another process: a directory belongs to one broker"
    ):
        broker.open()


def test_a_refused_owner_gives_back_the_locks_it_had_got(broker: Broker) -> None:
    first = broker.open(broker.paths[1:])
    with pytest.raises(LockHeldError, match="two"):
        broker.open()
    first.close()
    broker.open()


def test_a_closed_broker_frees_its_directories(broker: Broker) -> None:
    broker.open().close()
    broker.open()


# -- making and finding ------------------------------------------------------------------------------------------------


def test_a_new_log_goes_where_the_fewest_are(broker: Broker) -> None:
    logs = broker.open()
    for number in range(5):
        logs.create(tp("t", number), now_ms=NOW)
    assert [len(directory.logs) for directory in logs.directories] == [3, 2]
    logs.delete(tp("t", 0), now_ms=NOW)
    logs.delete(tp("t", 2), now_ms=NOW)
    logs.create(tp("u"), now_ms=NOW)
    assert logs.directory_of(tp("u")) is logs.directories[0]
    assert len(logs) == 4


def test_a_log_is_made_with_the_id_of_its_topic(broker: Broker) -> None:
    logs = broker.open()
    log = logs.create(tp("t", 3), now_ms=NOW, topic_id=TOPIC_ID)
    assert os.path.basename(log.directory) == "t-3"
    assert checkpoints.read_topic_id(broker.disk, log.directory) == TOPIC_ID


def test_making_what_is_there_returns_it(broker: Broker) -> None:
    logs = broker.open()
    log = logs.create(tp("t"), now_ms=NOW)
    assert logs.create(tp("t"), now_ms=NOW) is log
    assert logs.get(tp("t")) is log
    assert list(logs) == [log]


def test_an_unknown_partition_has_no_log(broker: Broker) -> None:
    logs = broker.open()
    assert logs.get(tp("t")) is None
    assert logs.directory_of(tp("t")) is None
    logs.delete(tp("t"), now_ms=NOW)


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("orders-0", tp("orders", 0)),
        ("a-b-12", tp("a-b", 12)),
        ("-0", None),
        ("orders", None),
        ("orders-x", None),
        ("orders-0.0123-delete", None),
        ("a b-0", None),
    ],
)
def test_a_directory_name_tells_its_partition(name: str, partition: TopicPartition | None) -> None:
    assert partition_of(name) == partition


# -- stopping and starting ---------------------------------------------------------------------------------------------


def test_a_clean_stop_is_marked_and_the_mark_is_gone_while_the_broker_runs(broker: Broker) -> None:
    logs = broker.open()
    produce(logs.create(tp("t"), now_ms=NOW), b"a")
    assert CLEAN_MARK not in names(broker.paths[0])
    logs.close()
    assert all(CLEAN_MARK in names(path) for path in broker.paths)
    again = broker.open()
    assert not any(CLEAN_MARK in names(path) for path in broker.paths)
    assert again.reports[tp("t")].recovered_segments == 0
    assert again.get(tp("t")).end_offset == 1  # type: ignore[union-attr]


def test_after_a_crash_the_logs_are_checked_from_their_recovery_points(broker: Broker) -> None:
    logs = broker.open()
    flushed, unflushed = (logs.create(tp(topic), now_ms=NOW) for topic in "tu")
    for log in (flushed, unflushed):
        produce(log, b"a")
        log.roll(NOW)
        produce(log, b"b")
    flushed.flush(NOW)
    write_checkpoints(logs)
    broker.kill(logs)
    again = broker.open()
    assert again.reports[tp("t")].recovered_segments == 1
    assert again.reports[tp("u")].recovered_segments == 2
    assert {log.end_offset for log in again} == {2}


def test_checkpoints_say_where_each_log_was_flushed_starts_and_is_clean(broker: Broker) -> None:
    logs = broker.open(broker.paths[:1])
    log = logs.create(tp("t"), now_ms=NOW)
    produce(log, b"a", b"b", b"c")
    log.flush(NOW)
    log.advance_log_start(2)
    note_cleaned(logs, tp("t"), 1)
    write_checkpoints(logs)
    directory = Path(broker.paths[0])
    assert (directory / checkpoints.RECOVERY_POINTS).read_text() == "0\n1\nt 0 3\n"
    assert (directory / checkpoints.LOG_START_OFFSETS).read_text() == "0\n1\nt 0 2\n"
    assert (directory / checkpoints.CLEANER_OFFSETS).read_text() == "0\n1\nt 0 1\n"
    broker.kill(logs)
    again = broker.open(broker.paths[:1])
    assert again.get(tp("t")).log_start_offset == 2  # type: ignore[union-attr]
    assert again.clean_offset(tp("t")) == 1
    assert again.clean_offset(tp("unknown")) == 0


def test_high_watermarks_are_written_to_the_directory_of_their_log(broker: Broker) -> None:
    logs = broker.open()
    for topic in "tu":
        logs.create(tp(topic), now_ms=NOW)
    write_high_watermarks(logs, {tp("t"): 5, tp("u"): 6, tp("gone"): 7})
    contents = [Path(path, checkpoints.HIGH_WATERMARKS).read_text() for path in broker.paths]
    assert contents == ["0\n1\nt 0 5\n", "0\n1\nu 0 6\n"]
    broker.kill(logs)
    assert broker.open().checkpointed_high_watermarks() == {tp("t"): 5, tp("u"): 6}


def test_a_damaged_checkpoint_of_high_watermarks_is_not_believed_at_any_later_start(broker: Broker) -> None:
    logs = broker.open(broker.paths[:1])
    logs.create(tp("t"), now_ms=NOW)
    write_high_watermarks(logs, {tp("t"): 5})
    broker.kill(logs)
    path = Path(broker.paths[0], checkpoints.HIGH_WATERMARKS)
    path.write_bytes(path.read_bytes().replace(b"5", b"7"))
    for _ in range(2):
        logs = broker.open(broker.paths[:1])
        assert logs.checkpointed_high_watermarks() == {}
        broker.kill(logs)


def test_a_start_without_a_change_still_knows_the_checkpoint_of_high_watermarks(broker: Broker) -> None:
    logs = broker.open(broker.paths[:1])
    logs.create(tp("t"), now_ms=NOW)
    write_high_watermarks(logs, {tp("t"): 5})
    broker.kill(logs)
    for _ in range(2):
        logs = broker.open(broker.paths[:1])
        assert logs.checkpointed_high_watermarks() == {tp("t"): 5}
        broker.kill(logs)
    path = Path(broker.paths[0], checkpoints.HIGH_WATERMARKS)
    path.write_bytes(path.read_bytes().replace(b"5", b"7"))
    assert broker.open(broker.paths[:1]).checkpointed_high_watermarks() == {}


def leave_as_another_program_does(broker: Broker, log_start_offset: int, mark: bytes) -> None:
    """Apache Kafka, or an older release, deletes records of `t` and stops in order: it knows nothing of checksums."""
    directory = Path(broker.paths[0])
    text = checkpoints.offsets_text({tp("t"): log_start_offset})
    (directory / checkpoints.LOG_START_OFFSETS).write_bytes(text)
    (directory / CLEAN_MARK).write_bytes(mark)


@pytest.mark.parametrize("mark", [b'{"version":0,"brokerEpoch":-1}', b""], ids=["Kafka 4", "older"])
def test_what_another_program_deleted_between_two_runs_of_ours_stays_deleted(broker: Broker, mark: bytes) -> None:
    logs = broker.open(broker.paths[:1])
    log = logs.create(tp("t"), now_ms=NOW)
    produce(log, b"a", b"b", b"c")
    log.advance_log_start(1)
    logs.close()
    leave_as_another_program_does(broker, 2, mark)
    again = broker.open(broker.paths[:1])
    assert again.get(tp("t")).log_start_offset == 2  # type: ignore[union-attr]
    broker.kill(again)
    assert broker.open(broker.paths[:1]).get(tp("t")).log_start_offset == 2  # type: ignore[union-attr]


def test_what_checkpoints_say_of_partitions_that_are_gone_is_dropped(broker: Broker) -> None:
    logs = broker.open(broker.paths[:1])
    logs.create(tp("t"), now_ms=NOW)
    logs.close()
    path = str(Path(broker.paths[0], checkpoints.RECOVERY_POINTS))
    Path(path).write_bytes(checkpoints.offsets_text({tp("t"): 0, tp("ghost"): 99}))
    broker.open(broker.paths[:1])
    assert checkpoints.read_offsets(broker.disk, path) == {tp("t"): 0}


def test_damaged_checkpoints_cost_a_longer_check_and_no_data(broker: Broker) -> None:
    logs = broker.open(broker.paths[:1])
    produce(logs.create(tp("t"), now_ms=NOW), b"a")
    write_checkpoints(logs)
    broker.kill(logs)
    for name in (checkpoints.RECOVERY_POINTS, checkpoints.LOG_START_OFFSETS, checkpoints.CLEANER_OFFSETS):
        Path(broker.paths[0], name).write_bytes(b"\0\0\0")
    again = broker.open(broker.paths[:1])
    assert again.get(tp("t")).end_offset == 1  # type: ignore[union-attr]
    assert again.reports[tp("t")].recovered_segments == 1


def test_what_is_no_partition_is_left_alone(broker: Broker) -> None:
    Path(broker.paths[0], "lost+found").mkdir(parents=True)
    Path(broker.paths[0], "meta.properties").write_text("version=1\n")
    logs = broker.open()
    assert len(logs) == 0
    assert "lost+found" in names(broker.paths[0])


# -- failing directories -----------------------------------------------------------------------------------------------


def test_a_directory_that_fails_at_the_start_takes_only_its_own_logs_offline(broker: Broker) -> None:
    logs = broker.open()
    for topic in "tu":
        logs.create(tp(topic), now_ms=NOW)
    logs.close()
    broker.disk.broken = broker.paths[0]
    again = broker.open()
    assert [directory.is_online for directory in again.directories] == [False, True]
    assert again.get(tp("t")) is None
    assert again.get(tp("u")) is not None
    assert again.create(tp("v"), now_ms=NOW).directory.startswith(broker.paths[1])


def test_a_path_that_is_no_directory_fails_alone(broker: Broker) -> None:
    Path(broker.paths[0]).write_text("a file")
    logs = broker.open()
    assert [directory.is_online for directory in logs.directories] == [False, True]


def test_a_broker_without_any_working_directory_does_not_start(broker: Broker) -> None:
    for path in broker.paths:
        Path(path).write_text("a file")
    with pytest.raises(StorageError, match="one"):
        broker.open()


def test_a_directory_that_fails_later_takes_only_its_own_logs_offline(broker: Broker) -> None:
    logs = broker.open()
    for number in range(4):
        produce(logs.create(tp("t", number), now_ms=NOW), b"a")
    lost_log = logs.get(tp("t", 0))
    broken = logs.directories[0]
    assert logs.fail(broken, StorageError(broken.path, "gone")) == [tp("t", 0), tp("t", 2)]
    assert not broken.is_online
    assert [log.name for log in logs] == [tp("t", 1), tp("t", 3)]
    with pytest.raises(StorageError, match="closed"):
        produce(lost_log, b"b")
    write_checkpoints(logs)
    logs.close()
    assert CLEAN_MARK not in names(broken.path)
    assert CLEAN_MARK in names(logs.directories[1].path)


def test_a_directory_that_fails_while_it_is_closed_is_not_marked_clean(broker: Broker) -> None:
    logs = broker.open()
    for topic in "tu":
        produce(logs.create(tp(topic), now_ms=NOW), b"a")
    broker.disk.broken = broker.paths[0]
    logs.close()
    broker.disk.broken = None
    assert CLEAN_MARK not in names(broker.paths[0])
    assert CLEAN_MARK in names(broker.paths[1])
    again = broker.open()
    assert again.reports[tp("t")].recovered_segments == 1
    assert {log.end_offset for log in again} == {1}


def test_when_every_directory_is_offline_there_is_nowhere_to_put_a_log(broker: Broker) -> None:
    logs = broker.open()
    for directory in logs.directories:
        logs.fail(directory, StorageError(directory.path, "gone"))
    with pytest.raises(StorageError, match="no log directory is online"):
        logs.create(tp("t"), now_ms=NOW)


def test_a_log_that_cannot_be_read_is_set_aside_and_not_replaced_by_an_empty_one(broker: Broker) -> None:
    logs = broker.open()
    for topic in "tu":
        produce(logs.create(tp(topic), now_ms=NOW), b"a")
    broker.kill(logs)
    path = Path(broker.paths[0], "t-0", "00000000000000000000.log")
    message = struct.pack(">bbqii", 1, 0, NOW, -1, 1) + b"v"
    data = struct.pack(">qiI", 0, 4 + len(message), zlib.crc32(message)) + message
    path.write_bytes(data)  # a format that we do not read from disk
    again = broker.open()
    assert [log.name for log in again] == [tp("u")]
    assert all(directory.is_online for directory in again.directories)
    with pytest.raises(CorruptFileError, match="formats 0 and 1"):
        again.create(tp("t"), now_ms=NOW)
    assert path.read_bytes() == data


# -- deleting ----------------------------------------------------------------------------------------------------------


def test_a_deleted_log_is_gone_at_once_and_its_files_after_the_delay(broker: Broker) -> None:
    logs = broker.open(broker.paths[:1])
    produce(logs.create(tp("t"), now_ms=NOW), b"a")
    logs.delete(tp("t"), now_ms=NOW)
    assert logs.get(tp("t")) is None
    (waiting,) = [name for name in names(broker.paths[0]) if name.endswith("-delete")]
    assert waiting.startswith("t-0.")
    assert unlink_due(logs, NOW + DELAY - 1) == 0
    assert unlink_due(logs, NOW + DELAY) == 1
    assert not any(name.endswith("-delete") for name in names(broker.paths[0]))


def test_a_topic_of_the_same_name_starts_empty(broker: Broker) -> None:
    logs = broker.open(broker.paths[:1])
    log = logs.create(tp("t"), now_ms=NOW)
    produce(log, b"a", b"b")
    log.flush(NOW)
    log.advance_log_start(1)
    note_cleaned(logs, tp("t"), 2)
    write_checkpoints(logs)
    logs.delete(tp("t"), now_ms=NOW)
    broker.kill(logs)
    again = broker.open(broker.paths[:1])
    new = again.create(tp("t"), now_ms=NOW)
    assert (new.log_start_offset, new.end_offset, new.recovery_point, again.clean_offset(tp("t"))) == (0, 0, 0, 0)


def test_a_topic_of_the_same_name_starts_unclean(broker: Broker) -> None:
    logs = broker.open(broker.paths[:1])
    logs.create(tp("t"), now_ms=NOW)
    note_cleaned(logs, tp("t"), 2)
    logs.delete(tp("t"), now_ms=NOW)
    logs.create(tp("t"), now_ms=NOW)
    assert logs.clean_offset(tp("t")) == 0


def test_what_was_being_deleted_at_a_crash_is_deleted_after_it(broker: Broker) -> None:
    logs = broker.open(broker.paths[:1])
    logs.create(tp("t"), now_ms=NOW)
    logs.delete(tp("t"), now_ms=NOW)
    broker.kill(logs)
    again = broker.open(broker.paths[:1])
    assert len(again) == 0
    assert unlink_due(again, NOW) == 1
    assert not any(name.endswith("-delete") for name in names(broker.paths[0]))


def test_the_longest_topic_name_can_be_deleted(broker: Broker) -> None:
    logs = broker.open(broker.paths[:1])
    longest = tp("x" * 249, 12345)
    logs.create(longest, now_ms=NOW)
    logs.delete(longest, now_ms=NOW)
    assert unlink_due(logs, NOW + DELAY) == 1
    assert len(set_aside_name(longest, random.Random(0), DELETE_SUFFIX)) == 255


def test_two_deletions_of_one_topic_do_not_meet(broker: Broker) -> None:
    logs = broker.open(broker.paths[:1])
    for _ in range(2):
        logs.create(tp("t"), now_ms=NOW)
        logs.delete(tp("t"), now_ms=NOW)
    assert unlink_due(logs, NOW + DELAY) == 2


# -- upkeep ------------------------------------------------------------------------------------------------------------


def test_what_retention_took_is_unlinked_in_every_log_when_its_time_has_come(broker: Broker) -> None:
    broker.config = LogConfig(retention_bytes=0)
    logs = broker.open()
    for topic in "tu":
        produce(logs.create(tp(topic), now_ms=NOW), b"a")
    assert [log.delete_expired(NOW, log.end_offset) for log in logs] == [1, 1]
    assert unlink_due(logs, NOW + DELAY - 1) == 0
    assert unlink_due(logs, NOW + DELAY) == 2


def test_a_truncation_makes_its_lower_recovery_point_durable_at_once(broker: Broker) -> None:
    logs = broker.open(broker.paths[:1])
    log = logs.create(tp("t"), now_ms=NOW)
    for _ in range(5):
        produce(log, b"a")
    log.flush(NOW)
    note_cleaned(logs, tp("t"), 4)
    write_checkpoints(logs)
    logs.truncate(tp("t"), 2, now_ms=NOW)
    directory = broker.paths[0]
    read = checkpoints.read_offsets
    assert read(broker.disk, os.path.join(directory, checkpoints.RECOVERY_POINTS)) == {tp("t"): 2}
    assert read(broker.disk, os.path.join(directory, checkpoints.CLEANER_OFFSETS)) == {tp("t"): 2}


def test_truncating_what_was_never_cleaned_leaves_it_so(broker: Broker) -> None:
    logs = broker.open(broker.paths[:1])
    produce(logs.create(tp("t"), now_ms=NOW), b"a")
    logs.truncate(tp("t"), 0, now_ms=NOW)
    assert logs.clean_offset(tp("t")) == 0


def test_an_error_of_the_log_is_no_error_of_the_directory(broker: Broker) -> None:
    logs = broker.open()
    log = logs.create(tp("t"), now_ms=NOW)
    with pytest.raises(ApiError):
        log.read(7, 100)
    assert all(directory.is_online for directory in logs.directories)


def test_the_mark_of_another_stop_is_not_believed(broker: Broker) -> None:
    logs = broker.open(broker.paths[:1])
    produce(logs.create(tp("t"), now_ms=NOW), b"a")
    logs.close()
    mark = Path(broker.paths[0], CLEAN_MARK)
    content = mark.read_bytes()
    logs = broker.open(broker.paths[:1])
    produce(logs.get(tp("t")), b"b")
    broker.kill(logs)
    mark.write_bytes(content)
    again = broker.open(broker.paths[:1])
    assert again.reports[tp("t")].recovered_segments == 1
    assert again.get(tp("t")).end_offset == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("content", [b"", b'{"version":0,"brokerEpoch":7}'])
def test_the_mark_of_apache_kafka_is_believed_where_only_it_ran(broker: Broker, content: bytes) -> None:
    logs = broker.open(broker.paths[:1])
    produce(logs.create(tp("t"), now_ms=NOW), b"a")
    logs.close()
    Path(broker.paths[0], CLEAN_MARK).write_bytes(content)
    assert_recovered(broker, 1)
    Path(broker.paths[0], checkpoints.CHECKSUMS).unlink()
    Path(broker.paths[0], CLEAN_MARK).write_bytes(content)
    assert_recovered(broker, 0)


def assert_recovered(broker: Broker, segments: int) -> None:
    logs = broker.open(broker.paths[:1])
    assert logs.reports[tp("t")].recovered_segments == segments
    logs.close()


def test_a_log_that_names_another_topic_is_neither_served_nor_replaced_by_an_empty_one(broker: Broker) -> None:
    logs = broker.open(broker.paths[:1])
    logs.create(tp("t"), now_ms=NOW, topic_id=UUID(int=1))
    with pytest.raises(CorruptFileError, match="delete this file, else move the directory away"):
        logs.set_strays_aside(tp("t"), UUID(int=2), is_new=False)
    assert logs.get(tp("t")) is not None
    logs.set_strays_aside(tp("t"), UUID(int=2), is_new=True)
    assert logs.get(tp("t")) is None


def test_a_damaged_topic_id_counts_as_none(broker: Broker) -> None:
    logs = broker.open(broker.paths[:1])
    produce(logs.create(tp("t"), now_ms=NOW, topic_id=UUID(int=1)), b"a")
    logs.close()
    Path(broker.paths[0], "t-0", checkpoints.PARTITION_METADATA).write_bytes(b"\0")
    again = broker.open(broker.paths[:1])
    again.set_strays_aside(tp("t"), UUID(int=1), is_new=False)
    again.claim(tp("t"), UUID(int=1))
    assert again.owner_of(tp("t")) == UUID(int=1)
    assert again.get(tp("t")).end_offset == 1  # type: ignore[union-attr]


def test_a_start_that_is_cut_off_anywhere_leaves_checkpoints_that_are_believed() -> None:
    """Also its own first writing of them: what stood before is known until what comes is whole."""

    def opened(disk: SimulatedDisk) -> Logs:
        logs = Logs(disk, ["/data"], lambda topic: LogConfig(), rng=random.Random(1))
        logs.open(NOW)
        return logs

    disk = SimulatedDisk()
    logs = opened(disk)
    for partition in range(2):
        log = logs.create(tp("t", partition), now_ms=NOW, topic_id=TOPIC_ID)
        produce(log, b"value")
        log.flush(NOW)
    for plan in logs.begin_checkpoint():
        plan.run()
    produce(log, b"behind the recovery point")
    for stopped_at in range(200):
        start = disk.crash(fates=(Fate.KEPT,))
        start.stop_at(stopped_at)
        try:
            opened(start)
        except DiskStopped:
            left = start.crash(stopped_at, EVERY_FATE)
        else:
            break  # the whole start is behind us
        known = checkpoints.read_checksums(left, f"/data/{checkpoints.CHECKSUMS}")
        recovery_points = f"/data/{checkpoints.RECOVERY_POINTS}"
        assert checkpoints.read_offsets(left, recovery_points, known[checkpoints.RECOVERY_POINTS])
    assert stopped_at > 10


def test_a_checkpoint_that_was_written_in_part_is_written_again_also_if_it_says_what_it_said_before(
    broker: Broker,
) -> None:
    """The recovery point had reached the disk, the disk was full for the next file, and then the log was cut."""
    logs = broker.open(broker.paths[:1])
    log = logs.create(tp("t"), now_ms=NOW)
    produce(log, b"a")
    log.flush(NOW)
    write_checkpoints(logs)
    produce(log, b"b")
    log.flush(NOW)
    log.advance_log_start(1)
    broker.disk.broken = str(Path(broker.paths[0], checkpoints.LOG_START_OFFSETS))
    with pytest.raises(StorageError):
        write_checkpoints(logs)
    broker.disk.broken = None
    logs.truncate(tp("t"), 1, now_ms=NOW)
    assert Path(broker.paths[0], checkpoints.RECOVERY_POINTS).read_text() == "0\n1\nt 0 1\n"


def test_what_checkpoints_say_of_a_log_that_could_not_be_opened_is_there_once_it_can_be(broker: Broker) -> None:
    logs = broker.open(broker.paths[:1])
    log = logs.create(tp("t"), now_ms=NOW)
    for value in (b"a", b"b", b"c"):
        produce(log, value)
    log.advance_log_start(2)
    note_cleaned(logs, tp("t"), 1)
    logs.close()
    rubbish = Path(broker.paths[0], "t-0", f"{0:020}.log.swap")
    rubbish.write_bytes(b"rubbish" * 20)
    logs = broker.open(broker.paths[:1])
    assert list(logs.unreadable) == [tp("t")]
    logs.close()
    assert CLEAN_MARK not in names(broker.paths[0]), "what a crash left in it was not checked yet"
    rubbish.unlink()
    logs = broker.open(broker.paths[:1])
    assert logs.get(tp("t")).log_start_offset == 2  # type: ignore[union-attr]
    assert logs.clean_offset(tp("t")) == 1

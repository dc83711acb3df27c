from pathlib import Path
from uuid import UUID

import pytest

from ottla.disk import RealDisk
from ottla.errors import CorruptFileError
from ottla.ids import TopicPartition
from ottla.records.codec import crc32c
from ottla.storage import checkpoints

TOPIC_ID = UUID("b8f5c3d2-1a2b-4c3d-8e4f-5a6b7c8d9e0f")


def test_offsets_are_written_as_kafka_writes_them(disk: RealDisk, tmp_path: Path) -> None:
    path = tmp_path / checkpoints.RECOVERY_POINTS
    offsets = {TopicPartition("other", 1): 0, TopicPartition("my-topic", 0): 123}
    path.write_bytes(checkpoints.offsets_text(offsets))
    assert path.read_text() == "0\n2\nmy-topic 0 123\nother 1 0\n"
    assert checkpoints.read_offsets(disk, str(path)) == offsets


def test_leader_epochs_are_written_as_kafka_writes_them(disk: RealDisk, tmp_path: Path) -> None:
    path = tmp_path / checkpoints.LEADER_EPOCHS
    checkpoints.write_epochs(disk, str(path), [(0, 0), (3, 57)])
    assert path.read_text() == "0\n2\n0 0\n3 57\n"
    assert checkpoints.read_epochs(disk, str(path)) == [(0, 0), (3, 57)]


def test_a_topic_id_is_written_as_kafka_writes_it(disk: RealDisk, tmp_path: Path) -> None:
    checkpoints.write_topic_id(disk, str(tmp_path), TOPIC_ID)
    assert (tmp_path / "partition.metadata").read_text() == "version: 0\ntopic_id: uPXD0horTD2OT1prfI2eDw"
    assert checkpoints.read_topic_id(disk, str(tmp_path)) == TOPIC_ID


def test_the_files_have_kafkas_names() -> None:
    assert checkpoints.RECOVERY_POINTS == "recovery-point-offset-checkpoint"
    assert checkpoints.LOG_START_OFFSETS == "log-start-offset-checkpoint"
    assert checkpoints.HIGH_WATERMARKS == "replication-offset-checkpoint"
    assert checkpoints.CLEANER_OFFSETS == "cleaner-offset-checkpoint"
    assert checkpoints.LEADER_EPOCHS == "leader-epoch-checkpoint"


def test_offsets_that_are_missing_are_not_taken_for_none(disk: RealDisk, tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match="is missing"):
        checkpoints.read_offsets(disk, str(tmp_path / "a"))


def test_offsets_of_another_time_are_not_believed(disk: RealDisk, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(checkpoints.offsets_text({TopicPartition("t", 0): 7}))
    right = crc32c(path.read_bytes())
    assert checkpoints.read_offsets(disk, str(path), [right]) == {TopicPartition("t", 0): 7}
    path.write_bytes(path.read_bytes().replace(b"7", b"8"))
    with pytest.raises(CorruptFileError, match="not what was written last"):
        checkpoints.read_offsets(disk, str(path), [right])


def test_checksums_come_back_as_they_were_written(disk: RealDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "sums")
    assert checkpoints.read_checksums(disk, path) == {}
    checkpoints.write_checksums(disk, path, {"b": [3, 4], "a": [1]})
    assert checkpoints.read_checksums(disk, path) == {"a": (1,), "b": (3, 4)}
    Path(path).write_bytes(b"0\n1\na one\n")
    with pytest.raises(CorruptFileError, match="line of 'a'"):
        checkpoints.read_checksums(disk, path)


def test_a_file_that_does_not_exist_says_nothing(disk: RealDisk, tmp_path: Path) -> None:
    assert checkpoints.read_epochs(disk, str(tmp_path / "b")) == []
    assert checkpoints.read_topic_id(disk, str(tmp_path)) is None


def test_an_empty_checkpoint_is_a_checkpoint(disk: RealDisk, tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_bytes(checkpoints.offsets_text({}))
    assert path.read_text() == "0\n0\n"
    assert checkpoints.read_offsets(disk, str(path)) == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", "is cut"),
        (b"0\n", "is cut"),
        (b"0\n1\nt 0 5", "is cut"),
        (b"0\n2\nt 0 5\n", "announces '2' entries and has 1"),
        (b"0\n1\nt 0 5\nu 0 5\n", "announces '1' entries and has 2"),
        (b"1\n1\nt 0 5\n", "unknown version '1'"),
        (b"0\n1\nt 0\n", "does not understand the line 't 0'"),
        (b"0\n1\nt 0 five\n", "does not understand the line 't 0 five'"),
        (b"0\n1\nt 0 5 9\n", "does not understand"),
        (b"\xff\xfe\n", "is not text"),
        (b"\0" * 20, "is cut"),
    ],
)
def test_a_damaged_checkpoint_is_reported(disk: RealDisk, tmp_path: Path, text: bytes, complaint: str) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(text)
    with pytest.raises(CorruptFileError, match=complaint) as caught:
        checkpoints.read_offsets(disk, str(path))
    assert caught.value.path == str(path)


@pytest.mark.parametrize("lines", ["3 57\n3 60\n", "3 57\n2 60\n", "3 57\n4 56\n", "3\n4 1\n"])
def test_epochs_that_do_not_rise_are_reported(disk: RealDisk, tmp_path: Path, lines: str) -> None:
    path = tmp_path / "epochs"
    path.write_text("0\n2\n" + lines)
    with pytest.raises(CorruptFileError):
        checkpoints.read_epochs(disk, str(path))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 0",
        "version: 1\ntopic_id: uPXD0horTD2OT1prfI2eDw",
        "version: 0\ntopic_id: short",
        "version: 0\ntopic_id: uPXD0horTD2OT1prfI2eD!",
        "nonsense",
    ],
)
def test_damaged_partition_metadata_is_reported(disk: RealDisk, tmp_path: Path, text: str) -> None:
    (tmp_path / "partition.metadata").write_text(text)
    with pytest.raises(CorruptFileError):
        checkpoints.read_topic_id(disk, str(tmp_path))

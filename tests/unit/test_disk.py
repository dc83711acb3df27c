import errno
import os
from pathlib import Path

import pytest

from ottla.disk import RealDisk, read_file, remove_tree, storage_error, write_atomically
from ottla.errors import DiskFullError, StorageError


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk()


def test_what_is_written_at_a_position_is_read_from_there(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "f"), create=True, writable=True)
    file.write(0, b"hello world")
    file.write(6, b"there")
    assert file.read(6, 5) == b"there"
    assert file.size() == 11


def test_a_read_at_the_end_returns_fewer_bytes_and_past_it_none(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "f"), create=True, writable=True)
    file.write(0, b"hello")
    assert file.read(3, 100) == b"lo"
    assert file.read(5, 100) == b""


def test_a_view_of_larger_items_is_written_byte_by_byte(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "f"), create=True, writable=True)
    file.write(2, memoryview(bytearray(b"abcdef"))[1:4])
    assert file.read(0, 10) == b"\0\0bcd"


def test_truncation_cuts_the_end(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "f"), create=True, writable=True)
    file.write(0, b"hello")
    file.truncate(2)
    assert file.read(0, 10) == b"he"


def test_a_missing_file_is_a_storage_error_that_names_it(disk: RealDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "nowhere")
    for action in (disk.open, disk.size, disk.map, disk.list_directory, disk.sync_directory):
        with pytest.raises(StorageError, match="nowhere") as caught:
            action(path)
        assert caught.value.path == path


def test_a_full_device_is_told_apart_from_other_trouble(disk: RealDisk) -> None:
    with pytest.raises(DiskFullError, match="free some space"):
        disk.open("/dev/full", writable=True).write(0, b"x")


def test_a_quota_counts_as_a_full_disk_and_an_io_error_does_not() -> None:
    assert isinstance(storage_error("p", "write", OSError(errno.EDQUOT, "")), DiskFullError)
    assert not isinstance(storage_error("p", "write", OSError(errno.EIO, "")), DiskFullError)
    assert str(storage_error("p", "read", OSError("odd"))) == "p: cannot read: odd"


def test_a_file_opened_for_reading_refuses_to_be_written(disk: RealDisk, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x")
    file = disk.open(str(path))
    for change in (lambda: file.write(0, b"y"), lambda: file.truncate(0)):
        with pytest.raises(StorageError):
            change()
    assert path.read_bytes() == b"x"


def test_an_open_file_outlives_its_name(disk: RealDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    file = disk.open(path, create=True, writable=True)
    file.write(0, b"still here")
    disk.unlink(path)
    assert file.read(0, 100) == b"still here"


def test_closing_twice_closes_only_once(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "f"), create=True)
    file.close()
    other = os.open(tmp_path, os.O_RDONLY)  # takes the number that was just freed
    file.close()
    os.fstat(other)
    os.close(other)


def test_a_dropped_file_gives_its_descriptor_back(disk: RealDisk, tmp_path: Path) -> None:
    descriptor = disk.open(str(tmp_path / "f"), create=True).fileno()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_removing_what_is_not_there_is_fine(disk: RealDisk, tmp_path: Path) -> None:
    disk.unlink(str(tmp_path / "f"))
    disk.remove_directory(str(tmp_path / "d"))


def test_a_directory_that_holds_something_is_not_removed(disk: RealDisk, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").touch()
    with pytest.raises(StorageError, match="not empty"):
        disk.remove_directory(str(tmp_path / "d"))


def test_names_are_listed_in_order(disk: RealDisk, tmp_path: Path) -> None:
    for name in ("b", "c", "a"):
        (tmp_path / name).touch()
    assert disk.list_directory(str(tmp_path)) == ["a", "b", "c"]


def test_directories_are_made_with_their_parents_and_may_exist(disk: RealDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "b")
    disk.make_directory(path)
    disk.make_directory(path)
    assert disk.is_directory(path)
    assert disk.exists(path)
    assert not disk.is_directory(path + "c")


def test_a_failing_rename_names_both_ends(disk: RealDisk, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="old: cannot rename to new"):
        disk.rename(str(tmp_path / "old"), str(tmp_path / "new"))


def test_a_map_shows_the_content_and_an_empty_file_maps_to_nothing(disk: RealDisk, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    (tmp_path / "empty").touch()
    assert bytes(memoryview(disk.map(str(tmp_path / "f")))) == b"abc"
    assert bytes(memoryview(disk.map(str(tmp_path / "empty")))) == b""


def test_an_atomic_write_replaces_the_file_and_leaves_nothing_beside_it(disk: RealDisk, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"a longer text that must be gone")
    (tmp_path / "f.tmp").write_bytes(b"left by a crash, longer than what comes now")
    write_atomically(disk, str(path), [b"new ", b"text"])
    assert read_file(disk, str(path)) == b"new text"
    assert os.listdir(tmp_path) == ["f"]


def test_a_lock_has_one_holder_until_it_is_closed(disk: RealDisk, tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    held = disk.lock(path)
    with pytest.raises(StorageError, match=r"\.lock: is held by another process"):
        disk.lock(path)
    held.close()
    disk.lock(path).close()


def test_a_tree_is_removed_with_its_subdirectories_and_links_but_not_what_they_point_at(
    disk: RealDisk, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("kept")
    tree = tmp_path / "tree"
    (tree / "below" / "further").mkdir(parents=True)
    (tree / "below" / "file").write_text("x")
    (tree / "file").write_text("x")
    (tree / "link").symlink_to(kept)
    remove_tree(disk, str(tree))
    assert not tree.exists()
    assert (kept / "file").read_text() == "kept"


def test_a_tree_that_cannot_be_removed_is_a_storage_error(disk: RealDisk, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nowhere"):
        remove_tree(disk, str(tmp_path / "nowhere"))

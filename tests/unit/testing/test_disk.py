"""The simulated disk keeps the promises that storage relies on, and no others."""

from __future__ import annotations

import contextlib
import errno

import pytest

from ottla.disk import write_atomically
from ottla.errors import DiskFullError, StorageError
from ottla.testing.disk import SECTOR_BYTES, DiskStopped, Fate, Operation, SimulatedDisk, SimulatedFile

DROPPED, KEPT = (Fate.DROPPED,), (Fate.KEPT,)


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/d")
    disk.sync_directory("/")
    return disk


def new_file(disk: SimulatedDisk, path: str, content: bytes = b"", *, is_durable: bool = False) -> SimulatedFile:
    file = disk.open(path, create=True, writable=True)
    if content:
        file.write(0, content)
    if is_durable:
        file.sync()
        disk.sync_directory("/d")
    return file


def content(disk: SimulatedDisk, path: str) -> bytes:
    return bytes(disk.map(path))


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_file_reads_back_what_was_written_at_each_position(disk: SimulatedDisk) -> None:
    file = new_file(disk, "/d/f", b"0123456789")
    file.write(4, b"xy")
    file.write(12, b"z")
    assert file.read(0, 100) == b"0123xy6789\0\0z"
    file.truncate(5)
    assert (file.read(3, 10), file.size(), disk.size("/d/f")) == (b"3x", 5, 5)


def test_a_file_that_was_opened_for_reading_refuses_writes(disk: SimulatedDisk) -> None:
    new_file(disk, "/d/f")
    with pytest.raises(StorageError, match="/d/f"):
        disk.open("/d/f").write(0, b"x")


def test_an_open_file_outlives_its_name(disk: SimulatedDisk) -> None:
    file = new_file(disk, "/d/f", b"abc")
    disk.unlink("/d/f")
    assert not disk.exists("/d/f")
    assert file.read(0, 3) == b"abc"


def test_what_is_missing_is_an_error_that_names_it(disk: SimulatedDisk) -> None:
    for ask in (disk.open, disk.map, disk.size, disk.list_directory, disk.sync_directory):
        with pytest.raises(StorageError, match="/d/none"):
            ask("/d/none")
    with pytest.raises(StorageError, match="/d/none"):
        disk.rename("/d/none", "/d/f")
    disk.unlink("/d/none")
    disk.remove_directory("/d/none")


def test_only_an_empty_directory_can_be_removed(disk: SimulatedDisk) -> None:
    disk.make_directory("/d/a/b")
    with pytest.raises(StorageError, match="not empty"):
        disk.remove_directory("/d/a")
    disk.remove_directory("/d/a/b")
    disk.remove_directory("/d/a")
    assert disk.list_directory("/d") == []


def test_a_lock_is_held_until_it_is_closed_or_the_power_fails(disk: SimulatedDisk) -> None:
    lock = disk.lock("/d/.lock")
    with pytest.raises(StorageError, match="held by another process"):
        disk.lock("/d/.lock")
    disk.crash(0, KEPT).lock("/d/.lock")
    lock.close()
    disk.lock("/d/.lock")


# -- power loss --------------------------------------------------------------------------------------------------------


def test_what_was_synced_survives_and_the_rest_may_not(disk: SimulatedDisk) -> None:
    file = new_file(disk, "/d/f", b"synced", is_durable=True)
    file.write(6, b" and more")
    assert content(disk.crash(0, DROPPED), "/d/f") == b"synced"
    assert content(disk.crash(0, KEPT), "/d/f") == b"synced and more"


def test_a_cut_is_lost_like_a_write_if_it_was_not_synced(disk: SimulatedDisk) -> None:
    file = new_file(disk, "/d/f", b"synced", is_durable=True)
    file.truncate(0)
    assert content(disk.crash(0, DROPPED), "/d/f") == b"synced"
    file.sync()
    assert content(disk.crash(0, DROPPED), "/d/f") == b""


def test_a_cut_write_survives_as_a_beginning(disk: SimulatedDisk) -> None:
    file = new_file(disk, "/d/f", b"01", is_durable=True)
    file.write(2, b"234")
    file.write(5, b"56789")
    survivors = {content(disk.crash(seed, (Fate.CUT,)), "/d/f") for seed in range(200)}
    assert survivors == {b"0123456789"[:size] for size in range(2, 11)}


def test_sectors_survive_one_by_one_and_what_was_synced_is_never_touched(disk: SimulatedDisk) -> None:
    file = new_file(disk, "/d/f", b"s" * 100, is_durable=True)
    file.write(100, b"n" * (3 * SECTOR_BYTES))
    survivors = [content(disk.crash(seed, (Fate.SECTORS,)), "/d/f") for seed in range(50)]
    assert all(survivor.startswith(b"s" * 100) for survivor in survivors)
    assert {len(survivor) for survivor in survivors} == {100, 100 + 3 * SECTOR_BYTES}
    kinds = {bytes(sorted(set(survivor[SECTOR_BYTES : 2 * SECTOR_BYTES]))) for survivor in survivors}
    assert kinds == {b"", b"\0", b"n"}


def test_a_synced_file_without_a_synced_name_is_lost(disk: SimulatedDisk) -> None:
    new_file(disk, "/d/f", b"x").sync()
    assert not disk.crash(0, DROPPED).exists("/d/f")
    disk.sync_directory("/d")
    assert content(disk.crash(0, DROPPED), "/d/f") == b"x"


def test_names_become_durable_in_the_order_in_which_they_changed(disk: SimulatedDisk) -> None:
    new_file(disk, "/d/a", is_durable=True)
    disk.rename("/d/a", "/d/b")
    new_file(disk, "/d/c")
    disk.unlink("/d/b")
    survivors = {tuple(disk.crash(seed, (Fate.CUT,)).list_directory("/d")) for seed in range(100)}
    assert survivors == {("a",), ("b",), ("b", "c"), ("c",)}


def test_a_new_directory_is_a_name_of_its_parent(disk: SimulatedDisk) -> None:
    disk.make_directory("/d/e")
    new_file(disk, "/d/e/f", b"x").sync()
    disk.sync_directory("/d/e")
    assert not disk.crash(0, DROPPED).exists("/d/e")
    disk.sync_directory("/d")
    assert content(disk.crash(0, DROPPED), "/d/e/f") == b"x"


def test_a_file_that_is_replaced_atomically_is_old_or_new_wherever_the_disk_stops() -> None:
    def replaced(stop_at: int | None) -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.make_directory("/d")
        disk.sync_directory("/")
        write_atomically(disk, "/d/f", [b"old"])
        if stop_at is not None:
            disk.stop_at(stop_at)
        with contextlib.suppress(DiskStopped):
            write_atomically(disk, "/d/f", [b"n", b"ew"])
        return disk

    found = set()
    for number in range(8, len(replaced(None).operations)):
        for seed in range(30):
            found.add(content(replaced(number).crash(seed), "/d/f"))
    assert found == {b"old", b"new"}
    assert content(replaced(None).crash(0, DROPPED), "/d/f") == b"new"


def test_a_survivor_is_durable_whole_and_the_same_for_the_same_seed(disk: SimulatedDisk) -> None:
    for number in range(5):
        new_file(disk, f"/d/{number}", bytes(range(100)))
    survivor = disk.crash(3)
    again = disk.crash(3)
    files = {path: content(survivor, path) for path in survivor.walk()}
    assert {path: content(again, path) for path in again.walk()} == files
    assert {path: content(survivor.crash(0, DROPPED), path) for path in survivor.walk()} == files


# -- stops and faults --------------------------------------------------------------------------------------------------


def test_operations_that_change_something_are_counted(disk: SimulatedDisk) -> None:
    file = new_file(disk, "/d/f", b"abc")
    file.read(0, 3)
    file.sync()
    disk.unlink("/d/none")
    assert disk.operations[2:] == [Operation("create", "/d/f"), Operation("write", "/d/f"), Operation("sync", "/d/f")]


def test_nothing_happens_from_the_stop_on(disk: SimulatedDisk) -> None:
    file = new_file(disk, "/d/f", b"abc")
    disk.stop_at(len(disk.operations))
    with pytest.raises(DiskStopped, match="truncate /d/f"):
        file.truncate(0)
    for ask in (file.size, file.sync, lambda: file.read(0, 1), lambda: disk.exists("/d/f")):
        with pytest.raises(DiskStopped):
            ask()
    file.close()
    assert content(disk.crash(0, KEPT), "/d/f") == b"abc"


def test_a_stopped_write_may_leave_a_part_of_its_bytes(disk: SimulatedDisk) -> None:
    file = new_file(disk, "/d/f", b"abc")
    disk.stop_at(len(disk.operations), written=0.5)
    with pytest.raises(DiskStopped):
        file.write(3, b"0123456789")
    assert content(disk.crash(0, KEPT), "/d/f") == b"abc01234"


def test_a_fault_hits_what_it_names_until_it_is_healed(disk: SimulatedDisk) -> None:
    file, other = new_file(disk, "/d/f.log"), new_file(disk, "/d/f.index")
    fault = disk.fail("*.log", "write", errno.EIO, written=0.5)
    with pytest.raises(StorageError, match="Input/output error"):
        file.write(0, b"abcd")
    assert content(disk, "/d/f.log") == b"ab"
    other.write(0, b"x")
    file.sync()
    disk.heal(fault)
    file.write(0, b"abcd")


def test_a_fault_may_heal_by_itself(disk: SimulatedDisk) -> None:
    file = new_file(disk, "/d/f")
    disk.fail("/d/f", "sync", errno.ENOSPC, times=1)
    with pytest.raises(DiskFullError):
        file.sync()
    file.sync()


def test_a_full_disk_takes_what_fits_and_goes_on_once_there_is_room(disk: SimulatedDisk) -> None:
    disk.capacity_bytes = 10
    file, other = new_file(disk, "/d/f"), new_file(disk, "/d/g", b"12345678")
    with pytest.raises(DiskFullError, match="No space left"):
        file.write(0, b"abcdef")
    assert content(disk, "/d/f") == b"ab"
    other.write(0, b"overwrite"[:8])
    disk.unlink("/d/g")
    file.write(0, b"abcdef")
    assert disk.free_bytes() == 4


def test_what_a_killed_process_wrote_is_there_and_may_still_be_lost(disk: SimulatedDisk) -> None:
    file = new_file(disk, "/d/f", b"old", is_durable=True)
    disk.sync_directory("/d")
    file.write(0, b"new")
    survivor = disk.kill()
    assert survivor.open("/d/f").read(0, 3) == b"new"
    with pytest.raises(DiskStopped):
        file.write(0, b"dead")
    assert survivor.crash(fates=DROPPED).open("/d/f").read(0, 3) == b"old"

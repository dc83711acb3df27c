"""Who keeps files open, and who gives them up."""

from __future__ import annotations

import errno
import gc
import os
import pickle
from pathlib import Path

import pytest

from ottla.disk import OpenFiles, RealDisk
from ottla.errors import OutOfDescriptorsError


class Holder:
    def __init__(self) -> None:
        self.is_open = True
        self.was_used = False

    def release_if_idle(self) -> bool:
        if self.was_used:
            self.was_used = False
            return False
        self.release()
        return True

    def release(self) -> None:
        self.is_open = False


def test_the_one_that_opened_first_gives_up_first() -> None:
    files = OpenFiles(2)
    holders = [Holder() for _ in range(4)]
    for holder in holders:
        files.note(holder)
    assert [holder.is_open for holder in holders] == [False, False, True, True]


def test_one_that_was_used_since_the_last_look_is_passed_over_once() -> None:
    files = OpenFiles(2)
    first, second, third, fourth = (Holder() for _ in range(4))
    files.note(first)
    files.note(second)
    first.was_used = True
    files.note(third)
    assert (first.is_open, second.is_open) == (True, False)
    files.note(fourth)
    files.note(Holder())
    assert not first.is_open


def test_where_all_are_in_use_somebody_gives_up_all_the_same() -> None:
    files = OpenFiles(3)
    holders = [Holder() for _ in range(4)]
    for holder in holders:
        holder.was_used = True
        files.note(holder)
    assert sum(holder.is_open for holder in holders) == 3


def test_whoever_is_gone_or_has_closed_its_file_does_not_count() -> None:
    files = OpenFiles(2)
    stays, goes, closes = Holder(), Holder(), Holder()
    for holder in (goes, stays):
        files.note(holder)
    del goes, holder
    gc.collect()
    files.note(closes)
    files.forget(closes)
    files.note(Holder())
    assert stays.is_open


def test_a_full_table_makes_those_who_keep_files_for_later_give_them_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, holder, open_for_real = RealDisk(), Holder(), os.open
    disk.open_files.note(holder)

    def open_unless_full(*arguments: object) -> int:
        if holder.is_open:
            raise OSError(errno.EMFILE, "Too many open files")
        return open_for_real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", open_unless_full)
    disk.open(str(tmp_path / "a"), create=True, writable=True).write(0, b"content")
    assert disk.size(str(tmp_path / "a")) == 7
    holder.is_open = True  # and nobody is left to give anything up
    with pytest.raises(OutOfDescriptorsError, match="ulimit -n"):
        disk.open(str(tmp_path / "a"))
    with pytest.raises(OutOfDescriptorsError):
        disk.sync_directory(str(tmp_path))


def test_a_disk_goes_to_another_process_without_what_is_open_here() -> None:
    disk, holder = RealDisk(files_max=7), Holder()
    disk.open_files.note(holder)
    other = pickle.loads(pickle.dumps(disk))
    assert (other.open_files.count_max, len(other.open_files)) == (7, 0)

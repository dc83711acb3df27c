import asyncio
import errno
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.disk import RealDisk
from ottla.errors import CorruptFileError, DiskFullError, StorageError
from ottla.records.codec import crc32c
from ottla.store import journal, local
from ottla.store.api import Create, Delete, Node, Put, StoreUnavailable
from ottla.store.embedded import JOURNAL_FILE, EmbeddedStore
from ottla.testing.disk import SimulatedDisk
from ottla.testing.inline import run_inline
from ottla.testing.memory_store import MemoryStore
from ottla.testing.tree_model import seen_in

Opener = Callable[[], EmbeddedStore]
PATH = f"/data/{JOURNAL_FILE}"


def open_on(disk: SimulatedDisk) -> EmbeddedStore:
    return EmbeddedStore(disk, "/data", run=run_inline)


def flip(disk: SimulatedDisk, position: int, bit: int = 0) -> None:
    file = disk.open(PATH, writable=True)
    file.write(position, bytes([file.read(position, 1)[0] ^ (1 << bit)]))


def test_everything_but_ephemeral_nodes_is_there_again(reopen: Opener, run: Any) -> None:
    store = reopen()
    run(store.commit(Create("/a", b"\xff\x00"), Create("/a/b"), Put("/a/b", b"2"), Create("/q"), Create("/gone")))
    run(store.commit(Create("/me", ephemeral=True), Create("/q/n_", sequential=True), Delete("/gone")))
    run(store.commit(Delete("/q/n_0000000000")))
    run(store.close())
    again = reopen()
    assert run(seen_in(again)) == {
        "/": Node(b"", 0),
        "/a": Node(b"\xff\x00", 0),
        "/a/b": Node(b"2", 1),
        "/q": Node(b"", 0),
    }
    assert run(again.commit(Create("/q/n_", sequential=True))) == ["/q/n_0000000001"]
    run(again.close())


def test_an_ephemeral_node_in_place_of_a_lasting_one_leaves_nothing_behind(reopen: Opener, run: Any) -> None:
    store = reopen()
    run(store.commit(Create("/a", b"lasting")))
    run(store.commit(Delete("/a"), Create("/a", ephemeral=True)))
    run(store.close())
    again = reopen()
    assert run(again.get("/a")) is None
    run(again.close())


def test_the_disk_is_never_waited_for_on_the_loop(tmp_path: Path, run: Any) -> None:
    threads: set[threading.Thread] = set()

    class Spy(RealDisk):
        def open(self, path: str, *, create: bool = False, writable: bool = False) -> Any:
            file = super().open(path, create=create, writable=writable)
            sync = file.sync

            def spied_sync() -> None:
                threads.add(threading.current_thread())
                sync()

            return SpyFile(file, spied_sync)

    class SpyFile:
        def __init__(self, file: Any, sync: Callable[[], object]) -> None:
            self._file, self.sync = file, sync

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

    store = EmbeddedStore(Spy(), str(tmp_path / "data"))
    threads.clear()
    run(store.commit(Create("/a")))
    run(store.close())
    assert threads
    assert threading.main_thread() not in threads


def test_commits_that_wait_together_share_a_sync(run: Any) -> None:
    disk = SimulatedDisk()
    store = open_on(disk)
    before = len(disk.operations)

    async def commit_together() -> None:
        await asyncio.gather(*(store.commit(Create(f"/{n}")) for n in range(100)))

    run(commit_together())
    assert [operation.kind for operation in disk.operations[before:]] == ["write", "sync"]


def test_a_batch_is_bounded_in_number_and_in_bytes(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "BATCH_COMMITS_MAX", 10)
    monkeypatch.setattr(local, "BATCH_BYTES_MAX", 100)
    disk = SimulatedDisk()
    store = open_on(disk)

    async def syncs_of(count: int, data: bytes) -> int:
        before = len(disk.operations)
        await asyncio.gather(*(store.commit(Create("/n_", data, sequential=True)) for _ in range(count)))
        return sum(operation.kind == "sync" for operation in disk.operations[before:])

    assert run(syncs_of(100, b"")) == 10
    assert run(syncs_of(10, bytes(50))) == 5


def test_too_many_waiting_commits_are_refused(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "WAITING_COMMITS_MAX", 3)

    async def flood() -> list[object]:
        store = MemoryStore()
        return await asyncio.gather(*(store.commit(Create(f"/{n}")) for n in range(5)), return_exceptions=True)

    outcomes = run(flood())
    assert outcomes[:3] == [["/0"], ["/1"], ["/2"]]
    assert [type(outcome) for outcome in outcomes[3:]] == [StoreUnavailable] * 2


def test_readers_do_not_see_what_is_not_durable_yet(run: Any) -> None:
    async def look_while_writing() -> list[Node | None]:
        seen: list[Node | None] = []

        async def slow(work: Callable[[], None]) -> None:
            seen.append(await store.get("/a"))
            work()
            seen.append(await store.get("/a"))

        store = EmbeddedStore(SimulatedDisk(), "/data", run=slow)
        await store.commit(Create("/a"))
        return seen

    assert run(look_while_writing()) == [None, None]


def test_a_long_journal_is_folded_into_a_snapshot(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "JOURNAL_BYTES_MAX", 2_000)
    monkeypatch.setattr(journal, "SNAPSHOT_FRAME_NODES", 7)
    disk = SimulatedDisk()
    store = open_on(disk)
    run(store.commit(*(Create(f"/{n}") for n in range(20)), Create("/me", ephemeral=True)))
    largest = 0
    for n in range(300):
        run(store.commit(Put(f"/{n % 20}", b"x" * 30)))
        largest = max(largest, disk.size(PATH))
    assert largest < 6_000
    assert list(disk.walk("/data")) == [PATH]
    run(store.commit(Delete("/me")))
    expected = run(seen_in(store))
    run(store.close())
    assert run(seen_in(open_on(disk))) == expected


# -- trouble -----------------------------------------------------------------------------------------------------------


def test_on_a_full_disk_a_commit_fails_and_changes_nothing_and_later_ones_work(run: Any) -> None:
    disk = SimulatedDisk()
    store = open_on(disk)
    run(store.commit(Create("/a", b"kept")))
    size = disk.size(PATH)
    disk.capacity_bytes = size + 100
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="free some space") as failure:
            run(store.commit(Put("/a", b"x" * 500)))
        assert isinstance(failure.value.__cause__, DiskFullError)
        assert disk.size(PATH) == size, "the room that the attempt took is free again"
    assert run(store.get("/a")) == Node(b"kept", 0)
    assert run(store.commit(Put("/a", b"short"))) == [1]
    disk.capacity_bytes = None
    assert run(store.commit(Put("/a", b"y" * 500))) == [2]
    for survivor in (disk.crash(seed) for seed in range(10)):
        assert run(open_on(survivor).get("/a")) == Node(b"y" * 500, 2)


def test_who_was_refused_because_of_a_commit_that_then_failed_hears_of_the_failure(run: Any) -> None:
    disk = SimulatedDisk()
    store = open_on(disk)
    disk.fail(PATH, "write", errno.ENOSPC, times=1)

    async def both() -> Any:
        return await asyncio.gather(store.commit(Create("/a")), store.commit(Create("/a")), return_exceptions=True)

    assert [type(outcome) for outcome in run(both())] == [StoreUnavailable] * 2
    assert run(store.commit(Create("/a"))) == ["/a"]


@pytest.mark.parametrize("kind", ["sync", "truncate"])
def test_after_a_failure_that_leaves_doubt_the_file_is_written_anew(run: Any, kind: Any) -> None:
    disk = SimulatedDisk()
    store = open_on(disk)
    run(store.commit(Create("/a")))
    disk.fail(PATH, kind, errno.EIO)
    if kind == "truncate":
        disk.fail(PATH, "write", errno.EIO, written=0.5)
    with pytest.raises(StoreUnavailable):
        run(store.commit(Create("/lost")))
    assert run(store.get("/lost")) is None
    disk.heal()
    before = len(disk.operations)
    assert run(store.commit(Create("/b"))) == ["/b"]
    assert "rename" in [operation.kind for operation in disk.operations[before:]]
    for survivor in (disk.crash(seed) for seed in range(10)):
        assert run(open_on(survivor).children("/")) == ["a", "b"]


@pytest.mark.parametrize("kind", ["create", "write", "sync", "rename", "sync_directory"])
def test_a_snapshot_that_fails_costs_no_commit(
    run: Any, kind: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(journal, "JOURNAL_BYTES_MAX", 300)
    disk = SimulatedDisk()
    store = open_on(disk)
    run(store.commit(Create("/a")))
    disk.fail("/data*" if kind == "sync_directory" else "/data/*.tmp", kind, errno.ENOSPC, written=0.5, times=1)
    with caplog.at_level(logging.WARNING):
        for n in range(50):
            assert run(store.commit(Put("/a", str(n).encode()))) == [n + 1]
            assert kind == "rename" or not disk.exists(PATH + ".tmp"), "a full disk needs its room elsewhere"
    assert "keeps growing" in caplog.text
    assert list(disk.walk("/data")) == [PATH]
    for survivor in (disk.crash(seed) for seed in range(10)):
        assert run(open_on(survivor).get("/a")) == Node(b"49", 50)


def test_half_a_snapshot_that_a_crash_left_behind_is_removed(run: Any) -> None:
    disk = SimulatedDisk()
    run(open_on(disk).commit(Create("/a")))
    disk.open(PATH + ".tmp", create=True, writable=True).write(0, b"half of it")
    assert run(open_on(disk).children("/")) == ["a"]
    assert list(disk.walk("/data")) == [PATH]


def test_closing_on_a_broken_disk_loses_nothing(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    store = open_on(disk)
    run(store.commit(Create("/a")))
    disk.fail(PATH, "write", errno.EIO)
    run(store.close())
    assert "nothing is lost" in caplog.text
    disk.heal()
    assert run(open_on(disk).children("/")) == ["a"]


def test_a_bug_in_a_write_stops_the_store_instead_of_guessing(run: Any) -> None:
    async def buggy(work: Callable[[], None]) -> None:
        raise ZeroDivisionError

    store = EmbeddedStore(SimulatedDisk(), "/data", run=buggy)
    with pytest.raises(ZeroDivisionError):
        run(store.commit(Create("/a")))
    with pytest.raises(StoreUnavailable, match="restart"):
        run(store.commit(Create("/a")))


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file stands here")
    with pytest.raises(StorageError, match="data"):
        EmbeddedStore(RealDisk(), str(tmp_path / "data"))


# -- damage ------------------------------------------------------------------------------------------------------------


def test_a_torn_end_is_cut_off_and_said(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    store = open_on(disk)
    run(store.commit(Create("/a")))
    whole = disk.size(PATH)
    run(store.commit(Create("/b")))
    for size in range(whole, disk.size(PATH)):
        copy = disk.crash()
        copy.open(PATH, writable=True).truncate(size)
        again = open_on(copy)
        assert run(again.children("/")) == ["a"]
        assert copy.size(PATH) == whole
        run(again.commit(Create("/c")))
        assert run(open_on(copy).children("/")) == ["a", "c"]
    assert f"cut off at byte {whole}" in caplog.text


def test_damage_in_the_middle_is_told_with_file_byte_and_remedy(run: Any) -> None:
    disk = SimulatedDisk()
    store = open_on(disk)
    run(store.commit(Create("/a")))
    second = disk.size(PATH)
    run(store.commit(Create("/b")))
    run(store.commit(Create("/c")))
    flip(disk, second + 20)
    with pytest.raises(CorruptFileError) as error:
        open_on(disk)
    assert error.value.path == PATH
    assert f"the record at byte {second} is damaged" in str(error.value)
    assert f"truncate --size={second} {PATH}" in str(error.value)
    disk.open(PATH, writable=True).truncate(second)
    assert run(open_on(disk).children("/")) == ["a"], "the remedy works"


def test_damage_to_a_snapshot_is_never_taken_for_a_torn_write(run: Any) -> None:
    disk = SimulatedDisk()
    store = open_on(disk)
    run(store.commit(Create("/a")))
    store._journal.rewrite()
    flip(disk, disk.size(PATH) - 1)
    with pytest.raises(CorruptFileError, match=f"snapshot is damaged at byte {journal.HEADER.size}"):
        open_on(disk)


def test_after_a_clean_close_no_flipped_bit_goes_unnoticed_or_changes_anything(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "JOURNAL_BYTES_MAX", 200)
    monkeypatch.setattr(journal, "SNAPSHOT_FRAME_NODES", 2)
    disk = SimulatedDisk()
    store = open_on(disk)
    for n in range(8):
        run(store.commit(Create(f"/{n}", b"data")))
    expected = run(seen_in(store))
    run(store.close())
    refused = 0
    for position in range(disk.size(PATH)):
        for bit in range(8):
            copy = disk.crash()
            flip(copy, position, bit)
            try:
                assert run(seen_in(open_on(copy))) == expected
            except CorruptFileError:
                refused += 1
    closing_mark = journal.FRAME.size + len(journal.encode_changes(()))
    assert refused == 8 * (disk.size(PATH) - closing_mark)


def test_the_file_of_another_format_is_not_touched(run: Any) -> None:
    disk = SimulatedDisk()
    run(open_on(disk).close())
    content = journal.HEADER.pack(b"OTTLAMD2", 20, 0)[:-4]
    file = disk.open(PATH, writable=True)
    file.write(0, content + crc32c(content).to_bytes(4, "big"))
    with pytest.raises(CorruptFileError, match="OTTLAMD2"):
        open_on(disk)


def test_a_record_that_makes_no_sense_is_an_error(run: Any) -> None:
    disk = SimulatedDisk()
    store = open_on(disk)
    end = disk.size(PATH)
    store._journal.append(b'[["/a"],[0],[0]]')
    with pytest.raises(CorruptFileError, match=f"byte {end} is whole and makes no sense"):
        open_on(disk)


@pytest.mark.parametrize("content", [b"", b"OTTLAMD1"])
def test_a_file_without_a_whole_header_is_an_error(content: bytes) -> None:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    disk.open(PATH, create=True, writable=True).write(0, content or b"x")
    with pytest.raises(CorruptFileError, match="cut short"):
        open_on(disk)

"""A disk in memory that can stop at any operation, lose power, fail on request and run full.

It follows the rules of `ottla.disk`, and where a real file system may do better, it assumes the worst:

- the content of a file is durable once `File.sync` returned; what was changed since then may survive a power
  loss not at all, in part, or whole, at random;
- `File.sync` does not make the *name* of a file durable. Names of one directory (create, rename, unlink) become durable
  in the order in which they changed, at the latest with `sync_directory`;
- a new directory is a name of its parent, so that one has to be synced too.

Everything is a function of the operations and of a seed, so a failure can be replayed. Not thread-safe.

    disk = SimulatedDisk()
    disk.stop_at(7)                                  # the eighth operation that changes something never happens
    with pytest.raises(DiskStopped):
        exercise(disk)
    recover(disk.crash(seed=1))                      # what is on the disk after the power is back
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, NamedTuple

from ottla.disk import OpenFiles, storage_error
from ottla.errors import LockHeldError

SPACE_BYTES = 1 << 40
# So few that every longer run closes files and opens them again.
FILES_MAX = 5

if TYPE_CHECKING:
    from typing_extensions import Buffer

SECTOR_BYTES = 512  # what a disk writes whole or not at all

Mutation = Literal[
    "create",
    "write",
    "truncate",
    "sync",
    "rename",
    "unlink",
    "make_directory",
    "remove_directory",
    "sync_directory",
]
Kind = Mutation | Literal["open", "read"]


class DiskStopped(BaseException):
    """The power is off. No handler of the code under test may continue, hence not an `Exception`."""


class Fate(Enum):
    """What becomes of changes that were not synced when the power went off."""

    DROPPED = "dropped"
    KEPT = "kept"
    CUT = "cut"  # the first of them survive, the last survivor perhaps in part
    SECTORS = "sectors"  # each sector by itself: the new size may be there with nothing behind it but zeros


EVERY_FATE = tuple(Fate)


class Operation(NamedTuple):
    """One operation that changes something."""

    kind: Mutation
    path: str


@dataclass(eq=False, slots=True)
class Fault:
    """Operations that fail until it is healed: see `SimulatedDisk.fail`."""

    pattern: str
    kind: Kind
    error_number: int
    written: float
    times: int | None

    def hits(self, kind: Kind, path: str) -> bool:
        return kind == self.kind and self.times != 0 and fnmatchcase(path, self.pattern)


class _Trouble(NamedTuple):
    """Why an operation fails, and which part of its bytes a write leaves behind all the same."""

    error: BaseException
    written: float = 0.0


class _Write(NamedTuple):
    position: int
    data: bytes


class _Truncate(NamedTuple):
    size: int


class _Inode:
    """The content of a file: as a reader sees it, as it was synced, and what happened in between."""

    __slots__ = ("changes", "content", "durable", "modified_ms")

    def __init__(self, content: bytes = b"", modified_ms: int = 0) -> None:
        self.modified_ms = modified_ms
        self.content = bytearray(content)
        self.durable = content
        self.changes: list[_Write | _Truncate] = []

    def change(self, change: _Write | _Truncate, now_ms: int) -> None:
        self.modified_ms = now_ms
        _apply(change, self.content)
        self.changes.append(change)

    def sync(self) -> None:
        if self.changes:
            self.durable = bytes(self.content)
            self.changes.clear()

    def after_power_loss(self, fate: Fate, rng: random.Random) -> bytes:
        if not self.changes or fate is Fate.DROPPED:
            return self.durable
        if fate is Fate.KEPT:
            return bytes(self.content)
        if fate is Fate.CUT:
            return self._cut(rng)
        return self._sectors(rng)

    def _cut(self, rng: random.Random) -> bytes:
        content = bytearray(self.durable)
        kept = rng.randint(0, len(self.changes) - 1)
        for change in self.changes[:kept]:
            _apply(change, content)
        torn = self.changes[kept]
        if isinstance(torn, _Write):
            _apply(_Write(torn.position, torn.data[: rng.randint(0, len(torn.data))]), content)
        return bytes(content)

    def _sectors(self, rng: random.Random) -> bytes:
        """Every sector is as new as the last write or as old as the last sync, zeros where there was nothing then."""
        sizes, smallest = [len(self.durable)], len(self.durable)
        content = bytearray(self.durable)
        for change in self.changes:
            _apply(change, content)
            sizes.append(len(content))
            smallest = min(smallest, len(content))
        size = rng.choice(sizes)
        old = self.durable[: min(size, smallest)].ljust(size, b"\0") if size > smallest else self.durable[:size]
        new = bytes(self.content[:size]).ljust(size, b"\0")
        return b"".join(rng.choice((old, new))[start : start + SECTOR_BYTES] for start in range(0, size, SECTOR_BYTES))


def _apply(change: _Write | _Truncate, content: bytearray) -> None:
    if isinstance(change, _Write):
        content.extend(bytes(max(0, change.position - len(content))))
        content[change.position : change.position + len(change.data)] = change.data
    elif change.size < len(content):
        del content[change.size :]
    else:
        content.extend(bytes(change.size - len(content)))


class _Rename(NamedTuple):
    """A change of names: create has no old name, unlink no new one."""

    old: str | None
    new: str | None
    node: _Inode | _Directory

    def apply(self, entries: dict[str, _Inode | _Directory]) -> None:
        if self.old is not None:
            entries.pop(self.old, None)
        if self.new is not None:
            entries[self.new] = self.node


@dataclass(eq=False, slots=True)
class _Directory:
    """The names of a directory: as a reader sees them, as they were synced, and how they changed in between."""

    entries: dict[str, _Inode | _Directory] = field(default_factory=dict)
    durable: dict[str, _Inode | _Directory] = field(default_factory=dict)
    changes: list[_Rename] = field(default_factory=list)

    def change(self, change: _Rename) -> None:
        change.apply(self.entries)
        self.changes.append(change)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.changes.clear()

    def after_power_loss(self, fates: Sequence[Fate], rng: random.Random) -> _Directory:
        fate = rng.choice(fates)
        if fate is Fate.DROPPED:
            kept = 0
        elif fate is Fate.KEPT:
            kept = len(self.changes)
        else:
            kept = rng.randint(0, len(self.changes))
        names = dict(self.durable)
        for change in self.changes[:kept]:
            change.apply(names)
        survived = _Directory()
        for name, node in names.items():
            if isinstance(node, _Directory):
                survived.entries[name] = node.after_power_loss(fates, rng)
            else:
                survived.entries[name] = _Inode(node.after_power_loss(rng.choice(fates), rng), node.modified_ms)
        survived.sync()
        return survived

    def size_bytes(self) -> int:
        return sum(
            node.size_bytes() if isinstance(node, _Directory) else len(node.content) for node in self.entries.values()
        )


class SimulatedFile:
    """An open file of a `SimulatedDisk`. It stays usable after it was unlinked, as on any file system."""

    __slots__ = ("_disk", "_inode", "_is_writable", "_path")

    def __init__(self, disk: SimulatedDisk, path: str, inode: _Inode, is_writable: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._is_writable = is_writable

    @property
    def path(self) -> str:
        return self._path

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a simulated file has no descriptor", self._path)

    def size(self) -> int:
        self._disk._check_running()
        return len(self._inode.content)

    def read(self, position: int, size: int) -> bytes:
        self._disk._admit("read", self._path)
        return bytes(self._inode.content[position : position + size])

    def write(self, position: int, data: Buffer) -> None:
        self._check_writable("write")
        new = bytes(data)
        trouble = self._disk._trouble("write", self._path) or self._full_disk(position, new)
        if trouble is None:
            self._inode.change(_Write(position, new), self._disk.now_ms())
            return
        done = int(len(new) * trouble.written)
        if done:
            self._inode.change(_Write(position, new[:done]), self._disk.now_ms())
        raise trouble.error

    def _full_disk(self, position: int, data: bytes) -> _Trouble | None:
        free = self._disk.free_bytes()
        if free is None:
            return None
        lacking = position + len(data) - len(self._inode.content) - free
        if lacking <= 0:
            return None
        error = storage_error(self._path, "write", OSError(errno.ENOSPC, ""))
        return _Trouble(error, max(0, len(data) - lacking) / len(data))

    def truncate(self, size: int) -> None:
        self._check_writable("truncate")
        self._disk._admit("truncate", self._path)
        if size != len(self._inode.content):
            self._inode.change(_Truncate(size), self._disk.now_ms())

    def sync(self) -> None:
        self._disk._admit("sync", self._path)
        self._inode.sync()

    def close(self) -> None:
        """Always possible, even when the power is off: cleaning up must not fail."""

    def _check_writable(self, action: str) -> None:
        if not self._is_writable:
            raise storage_error(self._path, action, OSError(errno.EBADF, ""))


class _LockFile(SimulatedFile):
    """Held until it is closed. A crash lets go of all locks, as the end of a process does."""

    __slots__ = ()

    def close(self) -> None:
        self._disk._locked.discard(self._path)


class SimulatedDisk:
    """A file system in memory: implements `ottla.disk.Disk`. Files are as old as `now_ms` says."""

    def __init__(self, *, capacity_bytes: int | None = None, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.capacity_bytes = capacity_bytes
        self.now_ms = now_ms
        self.operations: list[Operation] = []
        self.on_stop: Callable[[], None] | None = None  # called at the moment at which the power goes off
        self._root = _Directory()
        self._stop_at: int | None = None
        self._written_at_stop = 0.0
        self._is_stopped = False
        self.faults: list[Fault] = []  # those that are not healed yet
        self.open_files = OpenFiles(FILES_MAX)
        self.descriptors_taken = 0  # so far, by whatever opens a file or a directory for however long
        self._refused: range = range(0)
        self._locked: set[str] = set()

    # -- what a test does to it ----------------------------------------------------------------------------------------

    def stop_at(self, number: int, *, written: float = 0.0) -> None:
        """Operation `number` (as counted in `operations`, from 0) does not happen, and nothing does after it.

        If it is a write, the part `written` (0 to 1) of its bytes still gets into the file.
        """
        assert number >= len(self.operations), f"operation {number} is past"
        self._stop_at, self._written_at_stop = number, written

    def stop(self) -> None:
        """The power is off from here on."""
        self._is_stopped = True
        if self.on_stop is not None:
            self.on_stop()

    def crash(self, seed: int = 0, fates: Sequence[Fate] = EVERY_FATE) -> SimulatedDisk:
        """What is left after a power loss at this moment: one of `fates` befalls each file and each list of names.

        With only `Fate.KEPT` everything that was written is durable; `kill` is the end of the process alone.
        """
        survivor = SimulatedDisk(capacity_bytes=self.capacity_bytes, now_ms=self.now_ms)
        survivor._root = self._root.after_power_loss(fates, random.Random(seed))
        return survivor

    def kill(self) -> SimulatedDisk:
        """What is left after the end of the process alone: all that was written, which a later power loss may take."""
        survivor = SimulatedDisk(capacity_bytes=self.capacity_bytes, now_ms=self.now_ms)
        survivor._root = self._root
        self._is_stopped = True  # whoever still holds a file of before is dead
        return survivor

    def fail(
        self, pattern: str, kind: Kind, error_number: int, *, written: float = 0.0, times: int | None = None
    ) -> Fault:
        """From now on, operations of `kind` on paths that match `pattern` fail: EIO, ENOSPC and the like.

        A write leaves the part `written` of its bytes behind. The fault ends after `times` failures, or with `heal`.
        """
        fault = Fault(pattern, kind, error_number, written, times)
        self.faults.append(fault)
        return fault

    def heal(self, fault: Fault | None = None) -> None:
        """Ends one fault, or all."""
        self.faults = [] if fault is None else [other for other in self.faults if other is not fault]

    def run_out_of_descriptors(self, first: int, count: int) -> None:
        """From the descriptor `first` (as counted in `descriptors_taken`) on, this many are refused: EMFILE."""
        self._refused = range(first, first + count)

    def free_bytes(self) -> int | None:
        """How much more can be written; None where there is no limit."""
        return None if self.capacity_bytes is None else max(0, self.capacity_bytes - self._root.size_bytes())

    def walk(self, path: str = "/") -> Iterable[str]:
        """The paths of all files below `path`, in order."""
        for name in self.list_directory(path):
            child = os.path.join(path, name)
            if self.is_directory(child):
                yield from self.walk(child)
            else:
                yield child

    # -- what decides whether an operation happens ---------------------------------------------------------------------

    def _check_running(self) -> None:
        if self._is_stopped:
            raise DiskStopped("the disk has stopped")

    def _trouble(self, kind: Kind, path: str) -> _Trouble | None:
        self._check_running()
        if kind != "read" and kind != "open":
            number = len(self.operations)
            self.operations.append(Operation(kind, path))
            if number == self._stop_at:
                self.stop()
                return _Trouble(DiskStopped(f"stopped at operation {number}, {kind} {path}"), self._written_at_stop)
        for fault in self.faults:
            if fault.hits(kind, path):
                if fault.times is not None:
                    fault.times -= 1
                return _Trouble(storage_error(path, kind, OSError(fault.error_number, "")), fault.written)
        return None

    def _take_descriptor(self, action: str, path: str) -> None:
        self._check_running()
        number = self.descriptors_taken
        self.descriptors_taken += 1
        if number in self._refused:
            raise storage_error(path, action, OSError(errno.EMFILE, ""))

    def _admit(self, kind: Kind, path: str) -> None:
        trouble = self._trouble(kind, path)
        if trouble is not None:
            raise trouble.error

    # -- names ---------------------------------------------------------------------------------------------------------

    def _find(self, path: str) -> _Inode | _Directory | None:
        node: _Inode | _Directory | None = self._root
        for name in path.split("/"):
            if name:
                node = node.entries.get(name) if isinstance(node, _Directory) else None
        return node

    def _directory(self, path: str, action: str) -> _Directory:
        node = self._find(path)
        if not isinstance(node, _Directory):
            number = errno.ENOENT if node is None else errno.ENOTDIR
            raise storage_error(path, action, OSError(number, ""))
        return node

    def _file(self, path: str, action: str) -> _Inode:
        node = self._find(path)
        if not isinstance(node, _Inode):
            number = errno.ENOENT if node is None else errno.EISDIR
            raise storage_error(path, action, OSError(number, ""))
        return node

    def _parent(self, path: str, action: str) -> tuple[_Directory, str]:
        directory, name = os.path.split(path)
        return self._directory(directory, action), name

    # -- what storage asks of it ---------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> SimulatedFile:
        self._take_descriptor("open", path)
        self._admit("open", path)
        if create and self._find(path) is None:
            parent, name = self._parent(path, "open")
            self._admit("create", path)
            parent.change(_Rename(None, name, _Inode()))
        return SimulatedFile(self, path, self._file(path, "open"), writable)

    def map(self, path: str) -> Buffer:
        self._take_descriptor("map", path)
        self._admit("read", path)
        return bytes(self._file(path, "map").content)

    def exists(self, path: str) -> bool:
        self._check_running()
        return self._find(path) is not None

    def size(self, path: str) -> int:
        self._check_running()
        return len(self._file(path, "stat").content)

    def modified_ms(self, path: str) -> int:
        self._check_running()
        return self._file(path, "stat").modified_ms

    def list_directory(self, path: str) -> list[str]:
        self._take_descriptor("list", path)
        self._admit("read", path)
        return sorted(self._directory(path, "list").entries)

    def is_directory(self, path: str) -> bool:
        self._check_running()
        return isinstance(self._find(path), _Directory)

    def make_directory(self, path: str) -> None:
        self._check_running()
        if isinstance(self._find(path), _Directory):
            return
        self.make_directory(os.path.dirname(path))
        parent, name = self._parent(path, "create")
        self._admit("make_directory", path)
        parent.change(_Rename(None, name, _Directory()))

    def remove_directory(self, path: str) -> None:
        self._check_running()
        if self._find(path) is None:
            return
        if self._directory(path, "remove").entries:
            raise storage_error(path, "remove", OSError(errno.ENOTEMPTY, ""))
        parent, name = self._parent(path, "remove")
        self._admit("remove_directory", path)
        parent.change(_Rename(name, None, _Directory()))

    def rename(self, source: str, target: str) -> None:
        """Within one directory only: how names of two directories become durable together is a different question."""
        assert os.path.dirname(source) == os.path.dirname(target), f"rename of {source} to another directory"
        self._check_running()
        parent, old = self._parent(source, "rename")
        node = parent.entries.get(old)
        if node is None:
            raise storage_error(source, "rename", OSError(errno.ENOENT, ""))
        replaced = self._find(target)
        if isinstance(replaced, _Directory) and (replaced.entries or isinstance(node, _Inode)):
            raise storage_error(source, "rename", OSError(errno.ENOTEMPTY, ""))
        self._admit("rename", source)
        parent.change(_Rename(old, os.path.basename(target), node))

    def unlink(self, path: str) -> None:
        self._check_running()
        if self._find(path) is None:
            return
        inode = self._file(path, "unlink")
        parent, name = self._parent(path, "unlink")
        self._admit("unlink", path)
        parent.change(_Rename(name, None, inode))

    def sync_directory(self, path: str) -> None:
        directory = self._directory(path, "sync")
        self._take_descriptor("sync", path)
        self._admit("sync_directory", path)
        directory.sync()

    def space(self, path: str) -> tuple[int, int]:
        """As much as nobody fills in a test; a full disk is a planned failure here, not a size."""
        return SPACE_BYTES, SPACE_BYTES

    def lock(self, path: str) -> SimulatedFile:
        file = self.open(path, create=True, writable=True)
        if path in self._locked:
            raise LockHeldError(path, "is held by another process: a directory belongs to one broker")
        self._locked.add(path)
        return _LockFile(self, path, file._inode, is_writable=True)

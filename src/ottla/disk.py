"""The interface to the disk: the few operations by which the log and the metadata store touch files.

Everything above it speaks to a `Disk`, so that a test can stop the world at any write, rename, truncate or sync. The
rules that they rely on, and that a simulated disk keeps as well:

- what `File.sync` returned for is there after a power loss; what was written and not synced may be there in part;
- names (create, rename, unlink) become durable in the order in which they were made, at the latest with
  `sync_directory`; a journalling file system gives no more and no less;
- an operation either succeeds or raises a `StorageError` that names the path; no space is a `DiskFullError`, and a
  full table of open files an `OutOfDescriptorsError`.

Whoever keeps a file open registers it with `OpenFiles`, which closes it when there are too many.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import ref

from ottla.descriptors import DescriptorTable
from ottla.errors import DiskFullError, LockHeldError, OutOfDescriptorsError, StorageError

if TYPE_CHECKING:
    from typing_extensions import Buffer

TEMPORARY_SUFFIX = ".tmp"
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})

Result = TypeVar("Result")


class File(Protocol):
    """An open file, read and written at positions that the caller knows."""

    @property
    def path(self) -> str: ...

    def fileno(self) -> int:
        """The descriptor, for `os.sendfile`; a simulated file has none and raises OSError."""
        ...

    def size(self) -> int: ...

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end of the file."""
        ...

    def write(self, position: int, data: Buffer) -> None:
        """All of `data` at `position`, or an error after which the bytes past `position` are undefined."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class Holder(Protocol):
    """Somebody who keeps one file open, or mapped, and can open it again."""

    def release_if_idle(self) -> bool:
        """Gives it up unless it was used since the last call; whether it did."""
        ...

    def release(self) -> None: ...


class OpenFiles:
    """Those who keep files open, at most `count_max` of them: the least used give theirs up.

    Every holder has a second chance: one that was used since the last look is passed over once. Threads may open files
    at the same time; a holder that another thread makes give up its file opens it again.
    """

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        # By identity, the one that opened first in front; who is gone has closed its file.
        self._holders: OrderedDict[int, ref[Holder]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders)

    def note(self, holder: Holder) -> None:
        """`holder` has opened its file."""
        key = id(holder)
        self._holders[key] = ref(holder, lambda _: self._holders.pop(key, None))
        for _ in range(2 * len(self._holders)):
            if len(self._holders) <= self.count_max:
                return
            self._release_one()

    def _release_one(self) -> None:
        try:
            key, known = self._holders.popitem(last=False)
        except KeyError:
            return  # another thread was faster
        holder = known()
        if holder is not None and not holder.release_if_idle():
            self._holders[key] = known

    def forget(self, holder: Holder) -> None:
        """`holder` has closed its file by itself."""
        self._holders.pop(id(holder), None)

    def release_all(self) -> bool:
        """Everybody gives up what they hold; whether anybody did."""
        has_released = False
        while self._holders:
            try:
                _, known = self._holders.popitem()
            except KeyError:
                break
            holder = known()
            if holder is not None:
                holder.release()
                has_released = True
        return has_released


class Disk(Protocol):
    """The file system as the log and the store see it. Paths are plain strings."""

    open_files: OpenFiles

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> File: ...

    def map(self, path: str) -> Buffer:
        """The content of a file that will not change, for random access."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """When the content of a file last changed, in milliseconds since 1970."""
        ...

    def list_directory(self, path: str) -> list[str]: ...

    def is_directory(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None:
        """Removes the file; that it is gone already is fine."""
        ...

    def sync_directory(self, path: str) -> None: ...

    def space(self, path: str) -> tuple[int, int]:
        """How many bytes the file system below `path` has, and how many of them are free to us."""
        ...

    def lock(self, path: str) -> File:
        """Takes the lock file `path` for this process until the file is closed; LockHeldError if another has it."""
        ...


def read_file(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def make_durable_directory(disk: Disk, path: str) -> None:
    """Makes a directory, and those above it that are missing, whose names survive a power loss."""
    if not disk.is_directory(path):
        parent = os.path.dirname(path)
        if parent:
            make_durable_directory(disk, parent)
        disk.make_directory(path)
        disk.sync_directory(parent or os.curdir)


def write_atomically(disk: Disk, path: str, parts: Sequence[bytes]) -> None:
    """Replaces `path` so that after a crash it is either the old or the new file, whole."""
    temporary = path + TEMPORARY_SUFFIX
    file = disk.open(temporary, create=True, writable=True)
    try:
        file.truncate(0)
        file.write(0, b"".join(parts))
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(os.path.dirname(path))


def remove_tree(disk: Disk, path: str) -> None:
    """Removes a directory with everything in it; of a link only the link."""
    for name in disk.list_directory(path):
        child = os.path.join(path, name)
        try:
            disk.unlink(child)
        except StorageError:
            if not disk.is_directory(child):
                raise
            remove_tree(disk, child)
    disk.remove_directory(path)


def storage_error(path: str, action: str, error: OSError) -> StorageError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in NO_SPACE:
        return DiskFullError(path, f"cannot {action}: {reason}; free some space or lower the topic's retention")
    if error.errno in NO_DESCRIPTORS:
        return OutOfDescriptorsError(path, f"cannot {action}: {reason}; allow this process more (ulimit -n)")
    return StorageError(path, f"cannot {action}: {reason}")


class RealFile:
    """A file of the operating system. Its descriptor lives as long as anybody holds the object."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @property
    def path(self) -> str:
        return self._path

    def fileno(self) -> int:
        return self._descriptor

    def size(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise storage_error(self._path, "stat", error) from error

    def read(self, position: int, size: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, position)
            if len(data) == size or not data:
                return data
            return data + self._read_rest(position + len(data), size - len(data))
        except OSError as error:
            raise storage_error(self._path, "read", error) from error

    def _read_rest(self, position: int, size: int) -> bytes:
        """One pread returns at most about 2 GiB, and may return less at a signal: go on until the end."""
        pieces = []
        while size:
            data = os.pread(self._descriptor, size, position)
            if not data:
                break
            pieces.append(data)
            position += len(data)
            size -= len(data)
        return b"".join(pieces)

    def write(self, position: int, data: Buffer) -> None:
        view = data if type(data) is memoryview else memoryview(data)
        try:
            written = os.pwrite(self._descriptor, view, position)
            while written < view.nbytes:
                written += os.pwrite(self._descriptor, view[written:], position + written)
        except OSError as error:
            raise storage_error(self._path, "write", error) from error

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise storage_error(self._path, "truncate", error) from error

    def sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise storage_error(self._path, "sync", error) from error

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class RealDisk:
    """The file system of this machine. `files_max`: how many files are kept open; else this process's share."""

    def __init__(self, files_max: int | None = None) -> None:
        self.open_files = OpenFiles(DescriptorTable.of_process().files_max if files_max is None else files_max)

    def __reduce__(self) -> tuple[Any, ...]:
        return RealDisk, (self.open_files.count_max,)  # what is open here is not open in another process

    def _with_descriptor(self, take: Callable[[], Result]) -> Result:
        """Takes a descriptor; where there is none left, those that are only kept for later make room."""
        try:
            return take()
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS or not self.open_files.release_all():
                raise
            return take()

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> RealFile:
        flags = (os.O_RDWR if writable else os.O_RDONLY) | (os.O_CREAT if create else 0) | os.O_CLOEXEC
        try:
            return RealFile(path, self._with_descriptor(lambda: os.open(path, flags, 0o644)))
        except OSError as error:
            raise storage_error(path, "open", error) from error

    def map(self, path: str) -> Buffer:
        file = self.open(path)
        try:
            if file.size() == 0:  # an empty file cannot be mapped
                return b""
            # A map of Python's has a descriptor of its own.
            return self._with_descriptor(lambda: mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        except OSError as error:
            raise storage_error(path, "map", error) from error
        finally:
            file.close()

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return self._stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return self._stat(path).st_mtime_ns // 1_000_000

    @staticmethod
    def _stat(path: str) -> os.stat_result:
        try:
            return os.stat(path)
        except OSError as error:
            raise storage_error(path, "stat", error) from error

    def list_directory(self, path: str) -> list[str]:
        try:
            return sorted(self._with_descriptor(lambda: os.listdir(path)))
        except OSError as error:
            raise storage_error(path, "list", error) from error

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_directory(self, path: str) -> None:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise storage_error(path, "create", error) from error

    def remove_directory(self, path: str) -> None:
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error(path, "remove", error) from error

    def rename(self, source: str, target: str) -> None:
        try:
            os.rename(source, target)
        except OSError as error:
            raise storage_error(source, f"rename to {os.path.basename(target)}", error) from error

    def unlink(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error(path, "unlink", error) from error

    def sync_directory(self, path: str) -> None:
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            descriptor = self._with_descriptor(lambda: os.open(path, flags))
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise storage_error(path, "sync", error) from error

    def space(self, path: str) -> tuple[int, int]:
        try:
            found = os.statvfs(path)
        except OSError as error:
            raise storage_error(path, "stat", error) from error
        return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail

    def lock(self, path: str) -> RealFile:
        file = self.open(path, create=True, writable=True)
        try:
            # Of two kinds that do not know each other: the second is Java's, by which Apache Kafka holds a directory.
            # It does not keep a process from itself, which the first one does.
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:  # POSIX allows either for the second
            file.close()
            raise LockHeldError(path, "is held by another process: a directory belongs to one broker") from error
        except OSError as error:
            file.close()
            raise storage_error(path, "lock", error) from error
        return file

"""The file of the embedded store: a snapshot, and after it what changed since.

    magic, 8 bytes | end of the snapshot, u64 | crc32c of these 16 bytes, u32
    frames of the snapshot, some thousand nodes each
    one frame per write: all commits that shared a sync

    frame:   marker, 4 bytes | length of the payload, u32 | crc32c of the payload, u32 | payload
    payload: JSON in ASCII, four columns: [paths, versions, next sequences, data as latin-1, null where a node is gone]

The file comes into being under another name and takes its own when it is whole and synced, so its snapshot is never
torn. A frame is written after the one before it is synced, so a crash can tear the last one only: it is cut off. What
is broken and has a whole frame behind it was synced once and is damaged: an error for the operator. The marker is not
ASCII, so no payload contains it and a whole frame can be found behind a broken one. `close` adds an empty frame, so
that after a clean end even damage to the last commit is told apart from a torn write.

Ephemeral nodes live as long as the process: to the file they are gone.
"""

from __future__ import annotations

import json
import logging
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from ottla.disk import Disk, File, make_durable_directory, read_file
from ottla.errors import CorruptFileError, StorageError
from ottla.records.codec import crc32c
from ottla.store.tree import Changes, Entry, Tree

logger = logging.getLogger(__name__)

MAGIC: Final = b"OTTLAMD1"
MARKER: Final = b"\xf0\x9f\x8c\xb3"
HEADER = struct.Struct(">8sQI")
FRAME = struct.Struct(">4sII")

SNAPSHOT_FRAME_NODES = 1_000  # encoding this many holds the GIL for about a millisecond
# The journal is folded into a new snapshot when it is longer than this and longer than the snapshot: so the file stays
# within a few times the size of what it says, and a write is written once more on average.
JOURNAL_BYTES_MAX = 1024 * 1024

_encode_json = json.JSONEncoder(separators=(",", ":")).encode


def encode_changes(changes: Iterable[tuple[str, Entry | None]]) -> bytes:
    paths: list[str] = []
    versions: list[int] = []
    sequences: list[int] = []
    data: list[str | None] = []
    for path, entry in changes:
        paths.append(path)
        if entry is None or entry.is_ephemeral:
            versions.append(0)
            sequences.append(0)
            data.append(None)
        else:
            versions.append(entry.version)
            sequences.append(entry.next_sequence)
            data.append(entry.data.decode("latin-1"))
    return _encode_json([paths, versions, sequences, data]).encode("ascii")


def decode_changes(payload: bytes) -> Changes:
    paths, versions, sequences, data = json.loads(payload)
    return {
        path: None if text is None else Entry(text.encode("latin-1"), version, next_sequence=sequence)
        for path, version, sequence, text in zip(paths, versions, sequences, data, strict=True)
    }


def snapshot_of(tree: Tree) -> Iterator[bytes]:
    """The payloads that make an empty tree into this one."""
    nodes = tree.items()
    while some := list(islice(nodes, SNAPSHOT_FRAME_NODES)):
        yield encode_changes(some)


class StoreJournal:
    """The open file. Not for two threads at once; the store lets one write finish before the next."""

    def __init__(self, disk: Disk, path: str, snapshot: Callable[[], Iterator[bytes]]) -> None:
        self._disk = disk
        self._path = path
        self._snapshot = snapshot
        self._file: File | None = None
        self._snapshot_end = 0
        self._end = 0
        self._rewrite_at = 0
        # After a failed sync nobody knows what the file holds, nor after a failed rename which file has the name.
        self._is_doubtful = False

    @property
    def size(self) -> int:
        return self._end

    @property
    def is_long(self) -> bool:
        return self._end > self._rewrite_at

    def open(self, apply: Callable[[Changes], None]) -> None:
        """Hands every change of the file to `apply`; a torn end is cut off. A file that is missing is made."""
        make_durable_directory(self._disk, os.path.dirname(self._path))
        self._disk.unlink(self._temporary)
        if not self._disk.exists(self._path):
            self.rewrite()
            return
        content = read_file(self._disk, self._path)
        self._snapshot_end = _read_header(self._path, content)
        self._end = HEADER.size
        while (frame := _whole_frame(content, self._end)) is not None:
            apply(self._decode(frame, self._end))
            self._end += FRAME.size + len(frame)
        self._check_end(content)
        self._file = self._disk.open(self._path, writable=True)
        if self._end < len(content):
            logger.warning("%s: a write was torn by a crash; cut off at byte %d", self._path, self._end)
            self._file.truncate(self._end)
        # What was read may be in the page cache only, its name too: a frame behind it, or an answer built on it, must
        # not outlive it.
        self._file.sync()
        self._disk.sync_directory(os.path.dirname(self._path))
        self._plan_rewrite()

    def append(self, payload: bytes) -> None:
        """Durable when it returns; an error leaves the file as it was, or to be rewritten by the next append."""
        if self._is_doubtful:
            self.rewrite()
        assert self._file is not None, "the journal is closed"
        try:
            self._file.write(self._end, _frame(payload))
        except StorageError:
            self._cut_back()
            raise
        try:
            self._file.sync()
        except StorageError:
            self._is_doubtful = True
            raise
        self._end += FRAME.size + len(payload)

    def _cut_back(self) -> None:
        assert self._file is not None
        try:
            self._file.truncate(self._end)
        except StorageError as error:
            logger.warning("%s; it is rewritten with the next commit", error)
            self._is_doubtful = True

    def rewrite(self) -> None:
        """Folds everything into a new snapshot. It fails before the old file is touched, or leaves it in doubt."""
        size = self._write_temporary()
        self._is_doubtful = True
        self._close_file()
        self._disk.rename(self._temporary, self._path)
        self._disk.sync_directory(os.path.dirname(self._path))
        self._file = self._disk.open(self._path, writable=True)
        self._snapshot_end = self._end = size
        self._plan_rewrite()
        self._is_doubtful = False

    def postpone_rewrite(self) -> None:
        self._rewrite_at = self._end + JOURNAL_BYTES_MAX

    def close(self) -> None:
        """Marks the end as intended. Failing to do so loses nothing: the commits are durable."""
        try:
            self.append(encode_changes(()))
        finally:
            self._close_file()

    @property
    def _temporary(self) -> str:
        return self._path + ".tmp"

    def _write_temporary(self) -> int:
        frames = b"".join(_frame(payload) for payload in self._snapshot())
        size = HEADER.size + len(frames)
        start = HEADER.pack(MAGIC, size, 0)[:-4]
        try:
            file = self._disk.open(self._temporary, create=True, writable=True)
            try:
                file.truncate(0)
                file.write(0, HEADER.pack(MAGIC, size, crc32c(start)) + frames)
                file.sync()
            finally:
                file.close()
        except StorageError:
            self._disk.unlink(self._temporary)  # on a full disk its bytes are needed elsewhere
            raise
        return size

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _plan_rewrite(self) -> None:
        self._rewrite_at = self._snapshot_end + max(JOURNAL_BYTES_MAX, self._snapshot_end)

    def _decode(self, payload: bytes, position: int) -> Changes:
        try:
            return decode_changes(payload)
        except (ValueError, TypeError) as error:
            raise CorruptFileError(
                self._path, f"the record at byte {position} is whole and makes no sense: {error}. {_RESTORE}"
            ) from error

    def _check_end(self, content: bytes) -> None:
        """The frames end here; is it the end of the file, a torn write, or damage?"""
        if self._end < self._snapshot_end:
            raise CorruptFileError(self._path, f"the snapshot is damaged at byte {self._end}. {_RESTORE}")
        behind = content.find(MARKER, self._end + 1)
        while behind >= 0:
            if _whole_frame(content, behind) is not None:
                raise CorruptFileError(
                    self._path,
                    f"the record at byte {self._end} is damaged, and there are whole ones behind it. {_RESTORE} To "
                    f"give up that change and all later ones instead: truncate --size={self._end} {self._path}",
                )
            behind = content.find(MARKER, behind + 1)


_RESTORE = (
    "Bring the file back from a copy; without it the broker would forget topics and settings. Moving it away starts an "
    "empty store."
)


def _frame(payload: bytes) -> bytes:
    return FRAME.pack(MARKER, len(payload), crc32c(payload)) + payload


def _whole_frame(content: bytes, position: int) -> bytes | None:
    if position + FRAME.size > len(content):
        return None
    marker, length, crc = FRAME.unpack_from(content, position)
    start = position + FRAME.size
    payload = content[start : start + length]
    if marker != MARKER or len(payload) < length or crc32c(payload) != crc:
        return None
    return payload


def _read_header(path: str, content: bytes) -> int:
    if len(content) < HEADER.size:
        raise CorruptFileError(path, f"is cut short: {len(content)} bytes. {_RESTORE}")
    magic, snapshot_end, crc = HEADER.unpack_from(content)
    if crc32c(content[: HEADER.size - 4]) != crc:
        raise CorruptFileError(path, f"its header, at byte 0, is damaged. {_RESTORE}")
    if magic != MAGIC:
        raise CorruptFileError(path, f"was written in the format {magic!r}; this version of Ottla reads {MAGIC!r}")
    return int(snapshot_end)

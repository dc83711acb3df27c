"""Standard input that does not stop the event loop: a pipe or terminal is read when it has something."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator
from typing import Final

from ottla.cli.command import CommandError, ExitCode

CHUNK_BYTES: Final = 1024 * 1024
CHUNKS_AHEAD_MAX: Final = 4
F_SETPIPE_SZ: Final = 1031  # of Linux; `fcntl` names it from Python 3.10 on, on Linux only


class StandardInput:
    """Reads ahead while its user is busy, so that what has arrived in the meantime comes in one piece."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._is_pollable = True
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(CHUNKS_AHEAD_MAX)
        # Fewer, larger reads. A file or a terminal has no such size.
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, F_SETPIPE_SZ, CHUNK_BYTES)

    async def chunks(self) -> AsyncIterator[bytes]:
        """What is read, about a megabyte at a time where there is that much, to the end."""
        reader = asyncio.get_running_loop().create_task(self._read_all())
        try:
            while chunk := await self._chunks.get():
                parts, size = [chunk], len(chunk)
                while parts[-1] and size < CHUNK_BYTES and not self._chunks.empty():
                    parts.append(self._chunks.get_nowait())
                    size += len(parts[-1])
                yield b"".join(parts)
                if not parts[-1]:
                    break
            await reader
        finally:
            reader.cancel()

    async def _read_all(self) -> None:
        """Puts what is read in the queue; an empty piece is the end, also where reading failed."""
        failure: OSError | None = None
        try:
            while data := await self._read():
                await self._chunks.put(data)
        except OSError as error:
            failure = error
        # Not in a `finally`: a reader that is cancelled has nobody left who would make room in the queue.
        await self._chunks.put(b"")
        if failure is not None:
            raise CommandError(ExitCode.USAGE, f"standard input cannot be read: {failure.strerror}") from failure

    async def _read(self) -> bytes:
        if self._is_pollable:
            await self._wait_readable()
        return os.read(self._descriptor, CHUNK_BYTES)

    async def _wait_readable(self) -> None:
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()
        try:
            loop.add_reader(self._descriptor, _resolve, readable)
        except PermissionError:
            # A file: it always has something, and the system knows no waiting for it.
            self._is_pollable = False
            return
        try:
            await readable
        finally:
            loop.remove_reader(self._descriptor)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)

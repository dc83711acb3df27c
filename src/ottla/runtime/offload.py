"""Work that must not run on the event loop: waiting for the disk, computing for a while, computing for long.

The first two have threads of their own. To check a batch of a hundred megabytes takes half a second; where a few of
them took all the threads, a flush, a new topic and every deletion waited for them, and a slow disk kept whoever sent
such a batch waiting. What takes seconds, compaction, goes to another process.

A simulation replaces both by running the work in place, so that a run can be replayed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from ottla.runtime.processes import WorkerProcess

Result = TypeVar("Result")

DISK_THREADS = 4  # they wait, and hold no core while they do
# What computes long without the interpreter's lock is checksums and codecs. More threads than this would not make them
# faster on a machine of few cores, and each that holds the lock keeps the loop from it.
COMPUTING_THREADS = 2


class Offload(Protocol):
    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """Work that waits for the system with the interpreter's lock released, such as fsync."""
        ...

    async def computed(self, work: Callable[[], Result]) -> Result:
        """Work that computes for milliseconds, in a thread: what it needs is here, and too much to be copied."""
        ...

    async def in_process(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Work that computes for seconds; function, arguments and result must be picklable."""
        ...

    async def finish(self) -> None:
        """Waits for the threads and ends the other process, whatever it does: nothing works on the disk after this.

        New work may be given.
        """
        ...

    def close(self) -> None: ...


class SystemOffload:
    """Threads and one process of this machine, started when first needed."""

    def __init__(self) -> None:
        self._disk_threads: ThreadPoolExecutor | None = None
        self._computing_threads: ThreadPoolExecutor | None = None
        self._process: WorkerProcess | None = None

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        if self._disk_threads is None:
            self._disk_threads = ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="ottla-disk")
        return await asyncio.get_running_loop().run_in_executor(self._disk_threads, work)

    async def computed(self, work: Callable[[], Result]) -> Result:
        if self._computing_threads is None:
            self._computing_threads = ThreadPoolExecutor(COMPUTING_THREADS, thread_name_prefix="ottla-computing")
        return await asyncio.get_running_loop().run_in_executor(self._computing_threads, work)

    async def in_process(self, work: Callable[..., Result], *arguments: object) -> Result:
        if self._process is None:
            from ottla.runtime.processes import WorkerProcess  # not at the top: see there

            self._process = WorkerProcess()
        return await self._process.run(work, *arguments)

    async def finish(self) -> None:
        for end in self._detached():
            await asyncio.get_running_loop().run_in_executor(None, end)

    def close(self) -> None:
        for end in self._detached():
            end()

    def _detached(self) -> list[Callable[[], None]]:
        """What ends the process and the threads that there are; new work starts others."""
        ends = [] if self._process is None else [self._process.close]
        ends += [pool.shutdown for pool in (self._disk_threads, self._computing_threads) if pool is not None]
        self._disk_threads = self._computing_threads = self._process = None
        return ends

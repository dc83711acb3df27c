"""Work that must not run on the event loop: syncing files (a thread) and computing (another process).

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

THREADS = 4  # they wait for the disk, they do not compute


class Offload(Protocol):
    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """Work that waits for the system with the interpreter's lock released, such as fsync."""
        ...

    async def in_process(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Work that computes; function, arguments and result must be picklable."""
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
        self._threads: ThreadPoolExecutor | None = None
        self._process: WorkerProcess | None = None

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="ottla-disk")
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def in_process(self, work: Callable[..., Result], *arguments: object) -> Result:
        if self._process is None:
            from ottla.runtime.processes import WorkerProcess  # not at the top: see there

            self._process = WorkerProcess()
        return await self._process.run(work, *arguments)

    async def finish(self) -> None:
        threads, self._threads = self._threads, None
        process, self._process = self._process, None
        loop = asyncio.get_running_loop()
        if process is not None:
            await loop.run_in_executor(None, process.close)
        if threads is not None:
            await loop.run_in_executor(None, threads.shutdown)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=True)
        if self._process is not None:
            self._process.close()


class InlineOffload:
    """Everything in place, one after the other: for simulations."""

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        return work()

    async def in_process(self, work: Callable[..., Result], *arguments: object) -> Result:
        return work(*arguments)

    async def finish(self) -> None:
        return

    def close(self) -> None:
        return

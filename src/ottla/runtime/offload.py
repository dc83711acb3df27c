"""Work that must not run on the event loop: syncing files (a thread) and computing (another process).

A simulation replaces both by running the work in place, so that a run can be replayed.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, parent_process
from threading import Thread
from typing import Protocol, TypeVar

Result = TypeVar("Result")

THREADS = 4  # they wait for the disk, they do not compute


class Offload(Protocol):
    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """Work that waits for the system with the interpreter's lock released, such as fsync."""
        ...

    async def in_process(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Work that computes; function, arguments and result must be picklable."""
        ...

    def close(self) -> None: ...


class SystemOffload:
    """Threads and one process of this machine, started when first needed."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._processes: ProcessPoolExecutor | None = None

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="ottla-disk")
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def in_process(self, work: Callable[..., Result], *arguments: object) -> Result:
        if self._processes is None:
            # Not at the top: it takes a good part of a broker's start, and most never compact anything.
            from concurrent.futures import ProcessPoolExecutor
            from multiprocessing import get_context

            # Spawned, not forked: a fork would copy the broker's sockets and locks.
            self._processes = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=end_with_parent)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._processes, work, *arguments)
        except BrokenProcessPool:
            self._processes = None  # killed, perhaps for its memory: the next piece of work gets a new one
            raise

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=True)
        if self._processes is not None:
            self._processes.shutdown(wait=True, cancel_futures=True)


def end_with_parent() -> None:
    """In the other process: ends it when the broker is gone, however that ended. Ctrl-C is the broker's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None, "only a process that was started by another calls this"
    Thread(target=_wait_and_exit, args=(parent.sentinel,), name="parent", daemon=True).start()


def _wait_and_exit(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


class InlineOffload:
    """Everything in place, one after the other: for simulations."""

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        return work()

    async def in_process(self, work: Callable[..., Result], *arguments: object) -> Result:
        return work(*arguments)

    def close(self) -> None:
        return

"""One other process for work that computes. Apart from `offload`, because a broker that compacts nothing never needs it
and its imports would take a good part of a broker's start.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, get_context, parent_process
from threading import Thread
from typing import TypeVar

Result = TypeVar("Result")


class WorkerProcess:
    """A process that is started when first needed, and again when it was killed."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def run(self, work: Callable[..., Result], *arguments: object) -> Result:
        if self._pool is None:
            # Spawned, not forked: a fork would copy the broker's sockets and locks.
            self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=end_with_parent)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)
        except BrokenProcessPool:
            self._pool = None  # killed, perhaps for its memory: the next piece of work gets a new one
            raise

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def end_with_parent() -> None:
    """In the other process: ends it when the broker is gone, however that ended. Ctrl-C is the broker's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None, "only a process that was started by another calls this"
    Thread(target=_wait_and_exit, args=(parent.sentinel,), name="parent", daemon=True).start()


def _wait_and_exit(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)

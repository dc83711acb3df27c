"""One other process for work that computes. Apart from `offload`, because a broker that compacts nothing never needs it
and its imports would take a good part of a broker's start.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from threading import Lock, Thread
from typing import TypeVar

from ottla.errors import OttlaError

Result = TypeVar("Result")


class WorkerDiedError(OttlaError):
    """The other process was killed, perhaps for its memory. The next piece of work gets a new one."""


class WorkerProcess:
    """A process that is started when first needed, and again when it was killed. One piece of work at a time.

    Not an executor of the standard library: what runs in one of those cannot be ended, and an error that cannot be
    unpickled breaks it.
    """

    def __init__(self) -> None:
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None
        self._is_closed = False
        self._lock = Lock()  # of the three above
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ottla-worker")  # waits for the answers

    async def run(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, work, arguments)

    def _ask(self, work: Callable[..., Result], arguments: tuple[object, ...]) -> Result:
        with self._lock:
            if self._is_closed:
                raise WorkerDiedError("the process that computes was ended")
            if self._process is None:
                self._start()
            process, link = self._process, self._connection
        assert process is not None
        assert link is not None
        try:
            link.send((work, arguments))
            is_done, answer = link.recv()
        except (EOFError, OSError) as error:
            process.join()
            with self._lock:
                self._process = self._connection = None
            raise WorkerDiedError(f"the process that computes ended with code {process.exitcode}") from error
        if not is_done:
            raise answer
        result: Result = answer
        return result

    def _start(self) -> None:
        # Spawned, not forked: a fork would copy the broker's sockets and locks.
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), name="ottla-worker", daemon=True)
        self._process.start()
        theirs.close()

    def close(self) -> None:
        """Ends the process, whatever it does: what it was asked for is of no use any more."""
        with self._lock:
            self._is_closed = True
            process = self._process
        if process is not None:
            process.kill()
            process.join()
        self._thread.shutdown(wait=True, cancel_futures=True)


def _serve(link: Connection) -> None:
    """In the other process: does what it is asked for until nobody asks any more."""
    end_with_parent()
    while True:
        try:
            work, arguments = link.recv()
        except EOFError:
            return
        try:
            answer = True, work(*arguments)
        except Exception as error:
            answer = False, _as_sent(error)
        link.send(answer)


def _as_sent(error: Exception) -> Exception:
    """The error, or what it says where it would not survive the way."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return OttlaError(f"{type(error).__name__}: {error}")
    return error


def end_with_parent() -> None:
    """In the other process: ends it when the broker is gone, however that ended. Ctrl-C is the broker's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None, "only a process that was started by another calls this"
    Thread(target=_wait_and_exit, args=(parent.sentinel,), name="parent", daemon=True).start()


def _wait_and_exit(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)

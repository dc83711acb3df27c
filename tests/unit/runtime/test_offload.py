"""Work away from the loop: threads for the disk and for computing, a process for what takes long; none outlives us."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from ottla.errors import CorruptFileError, OttlaError
from ottla.runtime.offload import SystemOffload
from ottla.runtime.processes import WorkerDiedError
from ottla.testing.inline import InlineOffload


def test_waiting_work_runs_in_a_thread_and_computing_work_in_a_process() -> None:
    async def scenario() -> None:
        offload = SystemOffload()
        try:
            assert await offload.in_thread(threading.get_ident) != threading.get_ident()
            assert await offload.in_process(os.getpid) != os.getpid()
            with pytest.raises(ZeroDivisionError):
                await offload.in_process(divmod, 1, 0)
        finally:
            offload.close()

    asyncio.run(scenario())


def test_neither_waits_for_the_disk_nor_computations_keep_the_other_waiting() -> None:
    async def scenario() -> None:
        offload = SystemOffload()
        release = threading.Event()
        try:
            for busy, free in ((offload.in_thread, offload.computed), (offload.computed, offload.in_thread)):
                release.clear()
                waiting = [asyncio.create_task(busy(lambda: release.wait(60))) for _ in range(10)]
                await asyncio.sleep(0)  # all of them have their place in the queue
                assert await free(threading.get_ident) != threading.get_ident()
                assert not any(task.done() for task in waiting)
                release.set()
                await asyncio.gather(*waiting)
        finally:
            release.set()
            offload.close()

    asyncio.run(scenario())


def test_a_process_that_was_killed_is_replaced() -> None:
    async def scenario() -> None:
        offload = SystemOffload()
        try:
            victim = await offload.in_process(os.getpid)
            os.kill(victim, signal.SIGKILL)
            while await _is_answered(offload):
                pass
            assert await offload.in_process(os.getpid) != victim
        finally:
            offload.close()

    asyncio.run(scenario())


def damaged(path: str) -> None:
    raise CorruptFileError(path, "is cut")


class OfNoOtherProcessError(Exception):
    def __init__(self, message: str, needed: int) -> None:
        super().__init__(message)
        self.needed = needed


def strange() -> None:
    raise OfNoOtherProcessError("cannot be unpickled", 3)


def test_what_goes_wrong_in_the_process_is_told_as_it_is() -> None:
    async def scenario() -> None:
        offload = SystemOffload()
        try:
            with pytest.raises(CorruptFileError, match=r"^/data/x: is cut$") as raised:
                await offload.in_process(damaged, "/data/x")
            assert raised.value.path == "/data/x"
            with pytest.raises(OttlaError, match="OfNoOtherProcessError: cannot be unpickled"):
                await offload.in_process(strange)
            assert await offload.in_process(os.getpid) != os.getpid(), "it goes on"
        finally:
            offload.close()

    asyncio.run(scenario())


def test_a_stop_ends_what_computes_and_waits_for_what_writes() -> None:
    async def scenario() -> None:
        offload = SystemOffload()
        pid = await offload.in_process(os.getpid)
        computing = asyncio.create_task(offload.in_process(time.sleep, 3600))
        release, written = threading.Event(), threading.Event()

        def write() -> None:
            release.wait()
            written.set()

        writing = asyncio.create_task(offload.in_thread(write))
        await asyncio.sleep(0)  # both have begun
        for task in (computing, writing):
            task.cancel()
        threading.Timer(0.05, release.set).start()
        await offload.finish()
        assert written.is_set()
        assert not _is_alive(pid)
        assert await offload.in_thread(threading.get_ident) != threading.get_ident(), "the last work of a stop"
        offload.close()

    asyncio.run(scenario())


def test_the_process_does_not_outlive_a_broker_that_was_killed() -> None:
    program = """
import asyncio, os, time
from ottla.runtime.offload import SystemOffload

async def main():
    print(await SystemOffload().in_process(os.getpid), flush=True)
    time.sleep(600)

if __name__ == "__main__":
    asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 60
    while _is_alive(child):
        assert time.monotonic() < deadline, "it is an orphan"
        time.sleep(0.02)


async def _is_answered(offload: SystemOffload) -> bool:
    try:
        await offload.in_process(os.getpid)
    except WorkerDiedError:
        return False
    return True


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_simulation_does_everything_in_place() -> None:
    async def scenario() -> None:
        offload = InlineOffload()
        assert await offload.in_thread(threading.get_ident) == threading.get_ident()
        assert await offload.computed(threading.get_ident) == threading.get_ident()
        assert await offload.in_process(os.getpid) == os.getpid()
        offload.close()

    asyncio.run(scenario())

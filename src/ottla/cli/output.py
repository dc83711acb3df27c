"""Standard output that somebody reads: a command that waits for new records ends when the reader is gone."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def while_read(work: Coroutine[Any, Any, Result]) -> Result:
    """Awaits the work; BrokenPipeError as soon as the reader of standard output has gone, as in `| head -2`.

    Otherwise that would show only when the next record is written, which may be never.
    """
    try:
        descriptor = sys.stdout.fileno()
    except OSError:  # something of Python's that has no file
        return await work
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return await work
    loop = asyncio.get_running_loop()
    working = loop.create_task(work)
    gone = loop.create_future()
    # The writing end of a pipe is never readable: what is reported here is that its reading end was closed.
    loop.add_reader(descriptor, _resolve, gone)
    try:
        await asyncio.wait([working, gone], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise BrokenPipeError
        return await working
    finally:
        loop.remove_reader(descriptor)
        if not working.done():
            working.cancel()
            await asyncio.wait([working])


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)

"""Blocking work of somebody else's code, such as the look-up of a schema, away from the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


async def off_loop(work: Callable[[], Result]) -> Result:
    """What `work` returns or raises. Its thread is its own: look-ups are rare, and one that hangs delays no other.

    A daemon: a program that ends does not wait for it.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def settle(result: Result | None, error: BaseException | None) -> None:
        if done.done():  # whoever waited was cancelled
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="ottla-look-up", daemon=True).start()
    return await done

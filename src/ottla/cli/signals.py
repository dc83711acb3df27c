"""Signals that end a command: it closes what it has open, such as its place in a group, and reports the signal."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from ottla.cli.command import EndedBySignal

Result = TypeVar("Result")

# What a shell or a supervisor sends; SIGHUP comes when the terminal is closed. Ctrl-C is asyncio's own affair.
ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


def is_ignored(number: int) -> bool:
    """Whether whoever started us wants a signal to be ignored: nohup, or a shell for a job in the background."""
    return signal.getsignal(number) is signal.SIG_IGN


async def ended_by_signals(work: Coroutine[Any, Any, Result]) -> Result:
    """Awaits the work; a signal cancels it, and raises EndedBySignal once it is closed."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    received: list[int] = []

    def end(number: int) -> None:
        received.append(number)
        task.cancel()

    # Handlers belong to the main thread; a program that runs a command in another one keeps its own.
    numbers = [each for each in ENDING if not is_ignored(each)] if _is_main_thread() else []
    for number in numbers:
        loop.add_signal_handler(number, end, number)
    try:
        return await task
    except asyncio.CancelledError:
        if received:
            raise EndedBySignal(received[0]) from None
        # Cancelled from outside, by Ctrl-C: the work has ended by the time that the caller goes on.
        task.cancel()
        await asyncio.wait([task])
        raise
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()

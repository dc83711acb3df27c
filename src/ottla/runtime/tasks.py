"""Background tasks of a running part: none fails unseen, all end together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

logger = logging.getLogger(__name__)


class Tasks:
    """The tasks that one owner started. A task that fails is logged and handed to `on_failure`."""

    def __init__(self, on_failure: Callable[[BaseException], None] | None = None) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in order, so that a simulated run can be replayed
        self._on_failure = on_failure

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """A task that ends with the others, and whose failure is seen by whoever waits for it."""
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def every(self, name: str, seconds: Callable[[], float], work: Callable[[], Awaitable[None]]) -> None:
        """Does `work` again and again; the pause is asked for each time, because settings change."""
        self.start(name, self._repeat(name, seconds, work))

    @staticmethod
    async def _repeat(name: str, seconds: Callable[[], float], work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds())
            try:
                await work()
            except Exception:
                # One bad round must not end retention or flushing for good: it is logged, and tried again.
                logger.exception("the background task %s failed; it continues", name)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            logger.error("the background task %s failed", task.get_name(), exc_info=error)
            if self._on_failure is not None:
                self._on_failure(error)

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

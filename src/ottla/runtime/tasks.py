"""Background tasks of a running part: none fails unseen, all end together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ottla.errors import OttlaError

logger = logging.getLogger(__name__)

# A task that fails is started again after a pause, which grows while it goes on failing.
AGAIN_S = 1.0
AGAIN_S_MAX = 30.0


class Tasks:
    """The tasks that one owner started. A task that fails is logged and handed to `on_failure`."""

    def __init__(self, on_failure: Callable[[BaseException], None] | None = None) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in order, so that a simulated run can be replayed
        self._on_failure = on_failure

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def keep(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Work without which its owner would be half dead: a failure is logged, and it is started again."""
        self.start(name, self._kept(name, work))

    @staticmethod
    async def _kept(name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        loop = asyncio.get_running_loop()
        pause_s = AGAIN_S
        while True:
            started = loop.time()
            try:
                await work()
                return
            except Exception as error:
                if loop.time() - started > AGAIN_S_MAX:
                    pause_s = AGAIN_S
                bug = None if isinstance(error, OttlaError) else error
                logger.error("the background task %s failed; next try in %g s: %s", name, pause_s, error, exc_info=bug)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_S_MAX)

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

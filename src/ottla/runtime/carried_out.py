"""Work that is carried out to its end, also where whoever asked for it goes away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from ottla.errors import OttlaError
from ottla.runtime.tasks import Tasks

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


async def carried_out(work: Coroutine[Any, Any, Result], tasks: Tasks) -> Result:
    """Waits for work that goes on when the waiting is cancelled, until `tasks` stop. Of how it ends then, only failures
    are logged."""
    task = asyncio.get_running_loop().create_task(work)
    tasks.adopt(task)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_ended_unseen)  # `shield` forgets it, and the loop would complain of what nobody saw
        raise


def _ended_unseen(task: asyncio.Future[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if isinstance(error, OttlaError):
        logger.info("failed after the client that asked for it had hung up: %s", error)
    elif error is not None:
        logger.error("failed after the client that asked for it had hung up", exc_info=error)

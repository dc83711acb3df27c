"""What was begun for a client is carried out, and how it ends is seen by somebody, once."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from ottla.errors import ApiError, ErrorCode
from ottla.runtime.carried_out import carried_out
from ottla.runtime.tasks import Tasks
from ottla.testing.loop import run


async def ends(error: Exception | None) -> str:
    await asyncio.sleep(5)
    if error is not None:
        raise error
    return "done"


def test_whoever_waits_gets_the_result_or_the_error(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        tasks = Tasks()
        assert await carried_out(ends(None), tasks) == "done"
        with pytest.raises(ApiError, match="no room"):
            await carried_out(ends(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "no room")), tasks)

    run(scenario())
    assert caplog.records == []


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (None, None),
        (ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the store is away"), logging.INFO),
        (ValueError("a mistake of ours"), logging.ERROR),
    ],
)
def test_work_goes_on_where_nobody_waits_and_its_failure_is_logged(
    error: Exception | None, level: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        unseen: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unseen.append(context))
        has_ended = asyncio.Event()

        async def work() -> str:
            try:
                return await ends(error)
            finally:
                has_ended.set()

        waiting = asyncio.ensure_future(carried_out(work(), Tasks()))
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.sleep(10)
        assert has_ended.is_set()
        gc.collect()
        assert unseen == []

    run(scenario())
    assert [record.levelno for record in caplog.records] == ([] if level is None else [level])


def test_work_that_nobody_waits_for_ends_with_the_other_tasks() -> None:
    async def scenario() -> None:
        tasks, work = Tasks(), asyncio.Event()
        waiting = asyncio.ensure_future(carried_out(work.wait(), tasks))
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.sleep(1)
        assert len(asyncio.all_tasks()) == 2
        await tasks.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(scenario())

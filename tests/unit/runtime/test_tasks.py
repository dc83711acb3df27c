"""Background tasks: none fails unseen, none outlives its owner."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ottla.errors import OttlaError
from ottla.runtime.tasks import Tasks
from ottla.testing.loop import run


def test_repeated_work_goes_on_after_a_failure_and_its_pause_may_change(caplog: pytest.LogCaptureFixture) -> None:
    times: list[float] = []
    pauses = [1.0, 2.0, 4.0]

    async def scenario() -> None:
        tasks = Tasks()
        loop = asyncio.get_running_loop()
        started = loop.time()

        async def work() -> None:
            times.append(loop.time() - started)
            if len(times) == 1:
                raise RuntimeError("a bad round")

        tasks.every("work", lambda: pauses[min(len(times), 2)], work)
        await asyncio.sleep(7.5)
        await tasks.stop()
        await asyncio.sleep(100)

    with caplog.at_level(logging.ERROR):
        run(scenario())
    assert times == [1.0, 3.0, 7.0]
    assert [record.getMessage() for record in caplog.records] == ["the background task work failed; it continues"]


def test_a_task_that_fails_is_told_to_its_owner(caplog: pytest.LogCaptureFixture) -> None:
    failures: list[BaseException] = []

    async def scenario() -> None:
        tasks = Tasks(failures.append)

        async def broken() -> None:
            raise ValueError("no")

        tasks.start("broken", broken())
        await asyncio.sleep(0.1)
        await tasks.stop()

    run(scenario())
    assert [str(error) for error in failures] == ["no"]
    assert "broken" in caplog.text


def test_stopping_waits_for_the_last_words() -> None:
    ended: list[str] = []

    async def scenario() -> None:
        tasks = Tasks()

        async def tidy() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                await asyncio.sleep(1)
                ended.append("tidied")

        tasks.start("tidy", tidy())
        await asyncio.sleep(0)
        await tasks.stop()
        assert ended == ["tidied"]

    run(scenario())


def test_kept_work_is_started_again_after_longer_and_longer_pauses(caplog: pytest.LogCaptureFixture) -> None:
    times: list[float] = []

    async def scenario() -> None:
        tasks = Tasks()
        loop = asyncio.get_running_loop()
        started = loop.time()

        async def work() -> None:
            times.append(loop.time() - started)
            if len(times) == 7:
                await asyncio.sleep(100)  # for so long that what went wrong before does not count
            if len(times) < 9:
                raise RuntimeError("a bad round") if len(times) % 2 else OttlaError("a bad node")

        tasks.keep("work", work)
        await asyncio.sleep(1000)
        await tasks.stop()

    with caplog.at_level(logging.ERROR):
        run(scenario())
    assert times == [0, 1, 3, 7, 15, 31, 61, 162, 164]
    assert caplog.records[0].getMessage() == "the background task work failed; next try in 1 s: a bad round"
    assert [bool(record.exc_info) for record in caplog.records] == [True, False] * 4

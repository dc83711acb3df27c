import asyncio
from typing import Any

import pytest

from ottla.store.api import Create, StoreUnavailable
from ottla.testing.memory_store import MemoryStore


def test_a_commit_takes_as_long_as_the_simulation_says_and_is_not_seen_before(run: Any) -> None:
    async def story() -> list[list[str]]:
        durable = asyncio.Event()

        async def delay() -> None:
            await durable.wait()

        store = MemoryStore(delay)
        commit = asyncio.ensure_future(store.commit(Create("/a")))
        await asyncio.sleep(0.01)
        seen = [await store.children("/")]
        assert not commit.done()
        durable.set()
        await commit
        return [*seen, await store.children("/")]

    assert run(story()) == [[], ["a"]]


def test_a_simulation_can_make_a_commit_fail_and_the_next_one_work(run: Any) -> None:
    failures = [StoreUnavailable("/a", "the link is down")]

    async def delay() -> None:
        if failures:
            raise failures.pop()

    store = MemoryStore(delay)
    with pytest.raises(StoreUnavailable):
        run(store.commit(Create("/a")))
    assert run(store.children("/")) == []
    assert run(store.commit(Create("/a"))) == ["/a"]

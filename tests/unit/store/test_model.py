"""Random histories on each store and on a plain dict: every answer, every refusal and every state must be the same."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.store.api import ANY_VERSION, Check, Create, Delete, Operation, Put, StoreError
from ottla.store.embedded import EmbeddedStore
from ottla.store.local import LocalStore
from ottla.testing.disk import SimulatedDisk
from ottla.testing.inline import run_inline
from ottla.testing.memory_store import MemoryStore
from ottla.testing.tree_model import TreeModel, seen_in

PATHS = st.sampled_from(["/", "/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/deep", "/a/n_0000000000", "/a/n_0000000001"])
DATA = st.binary(max_size=6)
VERSIONS = st.sampled_from([ANY_VERSION, ANY_VERSION, ANY_VERSION, 0, 1, 2])
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, PATHS, DATA, ephemeral=st.booleans()),
    st.builds(
        Create, st.sampled_from(["/n_", "/a/n_", "/a/x/n_"]), DATA, ephemeral=st.booleans(), sequential=st.just(True)
    ),
    st.builds(Put, PATHS, DATA, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
COMMITS = st.lists(OPERATIONS, max_size=4)
# Some commits that are made at the same time; None is a restart.
HISTORIES = st.lists(st.none() | st.lists(COMMITS, min_size=1, max_size=4), max_size=12)


@settings(max_examples=300)
@given(HISTORIES)
def test_the_stores_do_what_the_model_does(history: list[list[list[Operation]] | None]) -> None:
    asyncio.run(play(history))


async def play(history: list[list[list[Operation]] | None]) -> None:
    disk = SimulatedDisk()
    stores: list[LocalStore] = [MemoryStore(), EmbeddedStore(disk, "/data", run=run_inline)]
    models = [TreeModel(), TreeModel()]
    for step in history:
        if step is None:
            await stores[1].close()
            stores[1] = EmbeddedStore(disk, "/data", run=run_inline)
            models[1].restart()
            continue
        for store, model in zip(stores, models, strict=True):
            expected = [outcome_in(model, commit) for commit in step]
            found = await asyncio.gather(*(store.commit(*commit) for commit in step), return_exceptions=True)
            assert [told(outcome) for outcome in found] == expected
            assert await seen_in(store) == model.seen()


def outcome_in(model: TreeModel, commit: list[Operation]) -> object:
    try:
        return model.commit(*commit)
    except StoreError as refusal:
        return told(refusal)


def told(outcome: object) -> object:
    return (type(outcome), outcome.path) if isinstance(outcome, StoreError) else outcome

"""What every store promises. A new one joins by a parameter of the `store` fixture."""

import asyncio
import time
from typing import Any

import pytest

from ottla.store.api import (
    ANY_VERSION,
    COMMIT_BYTES_MAX,
    NODE_BYTES_MAX,
    PATH_LENGTH_MAX,
    BadVersion,
    Check,
    Create,
    Delete,
    InvalidPath,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Put,
    SessionState,
    Store,
    StoreClosed,
    StoreError,
    TooLarge,
)

CLOCK_SLACK_MS = 1000  # a server's clock may be read a moment before or after ours


def test_an_empty_store_has_a_root_and_nothing_else(store: Store, run: Any) -> None:
    assert run(store.get("/")) == Node(b"", 0)
    assert run(store.children("/")) == []
    assert run(store.get("/a")) is None


def test_what_is_created_is_there_with_version_zero(store: Store, run: Any) -> None:
    assert run(store.commit(Create("/a", b"one"))) == ["/a"]
    assert run(store.get("/a")) == Node(b"one", 0)
    assert run(store.children("/")) == ["a"]


def test_each_put_counts_the_version_up(store: Store, run: Any) -> None:
    run(store.commit(Create("/a", b"one")))
    assert run(store.commit(Put("/a", b"two"))) == [1]
    assert run(store.commit(Put("/a", b"three", version=1))) == [2]
    assert run(store.get("/a")) == Node(b"three", 2)


def test_a_node_that_comes_again_starts_at_version_zero(store: Store, run: Any) -> None:
    run(store.commit(Create("/a", b"one"), Put("/a", b"two")))
    run(store.commit(Delete("/a")))
    run(store.commit(Create("/a", b"new")))
    assert run(store.get("/a")) == Node(b"new", 0)


def test_children_come_sorted_and_by_name_only(store: Store, run: Any) -> None:
    run(store.commit(Create("/t"), Create("/t/b"), Create("/t/a"), Create("/t/a/deep"), Create("/t/c")))
    assert run(store.children("/t")) == ["a", "b", "c"]
    assert run(store.children("/t/b")) == []


def test_children_of_nothing_is_an_error(store: Store, run: Any) -> None:
    with pytest.raises(NoNode) as refusal:
        run(store.children("/nowhere"))
    assert refusal.value.path == "/nowhere"


def test_any_bytes_can_be_kept(store: Store, run: Any) -> None:
    every_byte = bytes(range(256)) * 3
    run(store.commit(Create("/a", every_byte), Create("/ä€", every_byte)))
    assert run(store.get("/a")) == Node(every_byte, 0)
    assert run(store.get("/ä€")) == Node(every_byte, 0)


REFUSED: list[tuple[Operation, type[StoreError], str]] = [
    (Create("/a"), NodeExists, "/a"),
    (Create("/"), NodeExists, "/"),
    (Create("/x/y"), NoNode, "/x"),
    (Create("/x/y_", sequential=True), NoNode, "/x"),
    (Create("/mine/child"), NoChildrenForEphemerals, "/mine"),
    (Put("/x", b""), NoNode, "/x"),
    (Put("/a", b"", version=7), BadVersion, "/a"),
    (Put("/a", bytes(NODE_BYTES_MAX + 1)), TooLarge, "/a"),
    (Create("/big", bytes(NODE_BYTES_MAX + 1)), TooLarge, "/big"),
    (Delete("/x"), NoNode, "/x"),
    (Delete("/a/b", version=1), BadVersion, "/a/b"),
    (Delete("/a"), NotEmpty, "/a"),
    (Delete("/"), InvalidPath, "/"),
    (Check("/x", ANY_VERSION), NoNode, "/x"),
    (Check("/a", 1), BadVersion, "/a"),
    *(
        (Create(path), InvalidPath, path)
        for path in ("", "a", "a/b", "/a/", "//a", "/a//b", "/.", "/a/../b", "/\0", "/\x7f", "/𝄞")
    ),
    (Put("/a/", b""), InvalidPath, "/a/"),
    (Check("nowhere", 0), InvalidPath, "nowhere"),
]


@pytest.mark.parametrize(("operation", "kind", "path"), REFUSED, ids=lambda value: repr(value)[:40])
def test_what_the_rules_refuse_undoes_the_whole_commit(
    store: Store, run: Any, operation: Operation, kind: type[StoreError], path: str
) -> None:
    run(store.commit(Create("/a", b"one"), Create("/a/b"), Create("/mine", ephemeral=True)))
    with pytest.raises(kind) as refusal:
        run(store.commit(Create("/first"), Put("/a/b", b"changed"), Put("/a/b", b""), operation, Create("/last")))
    assert refusal.value.path == path
    assert str(refusal.value).startswith(path)
    assert run(store.get("/a")) == Node(b"one", 0)
    assert run(store.get("/a/b")) == Node(b"", 0)
    assert run(store.children("/")) == ["a", "mine"]


@pytest.mark.parametrize("path", ["", "a", "/a/", "/a//b", pytest.param(f"/{'a' * PATH_LENGTH_MAX}", id="long")])
def test_a_path_that_is_none_is_refused_by_readers_too(store: Store, run: Any, path: str) -> None:
    with pytest.raises(InvalidPath):
        run(store.get(path))
    with pytest.raises(InvalidPath):
        run(store.children(path))
    with pytest.raises(InvalidPath):
        store.watch_node(path, lambda: None)
    with pytest.raises(InvalidPath):
        store.watch_children(path, lambda: None)


def test_a_sync_is_answered_whether_the_node_is_there_or_not(store: Store, run: Any) -> None:
    run(store.commit(Create("/a", b"one")))
    for path in ("/", "/a", "/nowhere"):
        run(store.sync(path))
    assert run(store.get("/a")) == Node(b"one", 0)
    with pytest.raises(InvalidPath):
        run(store.sync("nowhere"))


def test_an_operation_sees_those_before_it_in_its_commit(store: Store, run: Any) -> None:
    results = run(
        store.commit(
            Create("/a"), Create("/a/b"), Put("/a", b"x"), Check("/a", 1), Delete("/a/b"), Delete("/a"), Create("/a")
        )
    )
    assert results == ["/a", "/a/b", 1, None, None, None, "/a"]
    assert run(store.get("/a")) == Node(b"", 0)


def test_a_commit_of_nothing_answers_nothing(store: Store, run: Any) -> None:
    assert run(store.commit()) == []


def test_a_commit_that_is_too_large_as_a_whole_is_refused(store: Store, run: Any) -> None:
    node = bytes(NODE_BYTES_MAX)
    with pytest.raises(TooLarge):
        run(store.commit(*(Create(f"/n{number}", node) for number in range(COMMIT_BYTES_MAX // len(node) + 1))))
    assert run(store.children("/")) == []


def test_sequential_nodes_are_numbered_by_their_parent_and_no_number_comes_twice(store: Store, run: Any) -> None:
    run(store.commit(Create("/q")))
    assert run(store.commit(Create("/q/n_", sequential=True))) == ["/q/n_0000000000"]
    assert run(store.commit(Create("/q/m_", sequential=True), Create("/q/", sequential=True))) == [
        "/q/m_0000000001",
        "/q/0000000002",
    ]
    run(store.commit(Delete("/q/0000000002")))
    assert run(store.commit(Create("/q/n_", sequential=True))) == ["/q/n_0000000003"]
    assert run(store.get("/q")) == Node(b"", 0), "numbering is no change of the parent"


def test_commits_at_the_same_time_come_one_after_the_other(store: Store, run: Any) -> None:
    async def count() -> None:
        await store.commit(Create("/counter", b"0"))

        async def increment() -> None:
            while True:
                node = await store.get("/counter")
                assert node is not None
                try:
                    await store.commit(Put("/counter", str(int(node.data) + 1).encode(), node.version))
                    return
                except BadVersion:
                    continue

        await asyncio.gather(*(increment() for _ in range(20)))

    run(count())
    assert run(store.get("/counter")) == Node(b"20", 20)


def test_of_many_that_want_to_be_the_first_one_is(store: Store, run: Any) -> None:
    async def elect() -> list[object]:
        candidates = (store.commit(Create("/controller", str(n).encode(), ephemeral=True)) for n in range(50))
        return await asyncio.gather(*candidates, return_exceptions=True)

    outcomes = run(elect())
    assert outcomes[0] == ["/controller"]
    assert [type(outcome) for outcome in outcomes[1:]] == [NodeExists] * 49
    assert run(store.get("/controller")) == Node(b"0", 0)


def test_a_parent_whose_child_is_just_being_made_is_not_empty(store: Store, run: Any) -> None:
    async def create_and_delete() -> Any:
        return await asyncio.gather(
            store.commit(Create("/a/x")),
            store.commit(Delete("/a")),
            store.commit(Delete("/a/x")),
            return_exceptions=True,
        )

    run(store.commit(Create("/a")))
    created, refused, deleted = run(create_and_delete())
    assert (created, deleted) == (["/a/x"], [None])
    assert isinstance(refused, NotEmpty)
    run(store.commit(Delete("/a")))


def test_a_watch_of_a_node_is_called_when_it_comes_changes_and_goes_before_the_commit_returns(
    store: Store, run: Any
) -> None:
    calls: list[str] = []
    store.watch_node("/topics", lambda: calls.append("called"))
    for commit in (Create("/topics"), Put("/topics", b"x"), Delete("/topics"), Create("/topics")):
        run(store.commit(commit))
        assert calls == ["called"], commit
        calls.clear()


def test_a_watch_of_children_is_called_when_one_comes_or_goes_and_when_the_node_itself_does(
    store: Store, run: Any
) -> None:
    calls: list[str] = []
    store.watch_children("/topics", lambda: calls.append("called"))
    run(store.commit(Create("/topics")))
    run(store.get("/topics"))
    for commit in (Create("/topics/t"), Create("/topics/u", sequential=True), Delete("/topics/t")):
        calls.clear()
        run(store.commit(commit))
        assert calls == ["called"], commit


def test_a_watch_hears_nothing_of_neighbours_refusals_and_reads(store: Store, run: Any) -> None:
    run(store.commit(Create("/topics"), Create("/topics/t"), Create("/topics-too")))
    calls: list[str] = []
    store.watch_node("/topics", lambda: calls.append("node"))
    store.watch_children("/topics", lambda: calls.append("children"))
    run(store.commit(Put("/topics-too", b""), Create("/topics-too/a"), Check("/topics", 0)))
    run(store.commit(Put("/topics/t", b"deeper"), Create("/topics/t/deeper")))
    with pytest.raises(NoNode):
        run(store.commit(Create("/topics/a"), Delete("/nowhere")))
    run(store.children("/topics"))
    assert calls == []
    run(store.commit(Put("/topics", b"data")))
    run(store.commit(Create("/topics/b")))
    assert calls == ["node", "children"]


def test_what_is_read_because_of_a_watch_is_as_new_as_the_change_and_no_change_is_missed(
    store: Store, run: Any
) -> None:
    """Whoever looks whenever it is called has seen the last state in the end, however fast the changes come."""

    async def follow() -> None:
        await store.commit(Create("/a", b"0"))
        seen: list[bytes] = []
        looks: list[asyncio.Task[None]] = []

        async def look() -> None:
            node = await store.get("/a")
            assert node is not None
            seen.append(node.data)

        store.watch_node("/a", lambda: looks.append(asyncio.ensure_future(look())))
        await asyncio.gather(*(store.commit(Put("/a", str(number).encode())) for number in range(1, 50)))
        await store.get("/a")  # whatever was on its way has arrived before this answer
        await asyncio.gather(*looks)
        assert seen[-1] == b"49"
        assert [int(each) for each in seen] == sorted(int(each) for each in seen)

    run(follow())


def test_a_cancelled_watch_is_silent(store: Store, run: Any) -> None:
    calls: list[str] = []
    kept = store.watch_node("/a", lambda: None)
    for watch in (store.watch_node, store.watch_children):
        cancelled = watch("/a", lambda: calls.append("called"))
        cancelled.cancel()
        cancelled.cancel()
    run(store.commit(Create("/a")))
    kept.cancel()
    run(store.commit(Delete("/a")))
    assert calls == []


def test_a_watch_that_fails_harms_nobody_else(store: Store, run: Any) -> None:
    def fail() -> None:
        raise RuntimeError("a bug above the store")

    async def commit() -> list[str]:
        reported: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: reported.append(str(context["exception"])))
        calls: list[str] = []
        store.watch_node("/a", fail)
        store.watch_node("/a", lambda: calls.append("called"))
        await store.commit(Create("/a"))
        assert calls == ["called"]
        return reported

    assert run(commit()) == ["a bug above the store"]


def test_a_session_is_connected_until_the_store_is_closed_and_owns_its_ephemeral_nodes(store: Store, run: Any) -> None:
    assert store.session.state is SessionState.CONNECTED
    run(store.commit(Create("/mine", ephemeral=True), Create("/everybodys")))
    mine, everybodys = run(store.get("/mine")), run(store.get("/everybodys"))
    assert mine.owner == store.session.session_id != 0
    assert everybodys.owner == 0
    run(store.close())
    assert store.session.state is SessionState.LOST


def test_nodes_know_the_order_in_which_they_were_made(store: Store, run: Any) -> None:
    before_ms = time.time() * 1000 - CLOCK_SLACK_MS
    for path in ("/b", "/a", "/c"):
        run(store.commit(Create(path)))
    first, second, third = (run(store.get(path)) for path in ("/b", "/a", "/c"))
    assert 0 < first.created < second.created < third.created
    assert before_ms < first.created_ms < time.time() * 1000 + CLOCK_SLACK_MS
    run(store.commit(Put("/b", b"changed")))
    assert run(store.get("/b")).created == first.created == first.changed
    assert run(store.get("/b")).changed > third.changed == third.created
    run(store.commit(Delete("/a")))
    run(store.commit(Create("/a")))
    assert run(store.get("/a")).created > third.created


def test_who_gives_up_waiting_does_not_stop_the_others(store: Store, run: Any) -> None:
    async def give_up() -> None:
        first, second, third = (asyncio.ensure_future(store.commit(Create(f"/{name}"))) for name in "abc")
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(first, third)

    run(give_up())
    assert set(run(store.children("/"))) >= {"a", "c"}


def test_closing_finishes_the_commits_that_wait(store: Store, run: Any) -> None:
    async def close() -> list[object]:
        commits = [asyncio.ensure_future(store.commit(Create(f"/{n}"))) for n in range(5)]
        await asyncio.sleep(0)
        await store.close()
        return await asyncio.gather(*commits)

    assert run(close()) == [[f"/{n}"] for n in range(5)]


def test_a_closed_store_refuses_everything_and_closes_again(store: Store, run: Any) -> None:
    run(store.close())
    run(store.close())
    with pytest.raises(StoreClosed):
        run(store.commit(Create("/a")))
    with pytest.raises(StoreClosed):
        run(store.get("/a"))
    with pytest.raises(StoreClosed):
        run(store.children("/"))
    with pytest.raises(StoreClosed):
        store.watch_node("/", lambda: None)
    with pytest.raises(StoreClosed):
        store.watch_children("/", lambda: None)

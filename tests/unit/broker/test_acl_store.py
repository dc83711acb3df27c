"""Many ACLs are changed with few commits, and a change of another broker in between is not lost."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.acl_store import NODES_AT_ONCE
from ottla.errors import ErrorCode
from ottla.security.acls import Acl, AclFilter, Operation, Pattern, Permission, Resource, encode_acls, node_path
from ottla.store.api import NODE_BYTES_MAX, Create, Put
from ottla.testing.scene import Scene, perform

SETTINGS = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:ANONYMOUS"}
COUNT = 1000


def acl(name: str, operation: Operation = Operation.READ) -> Acl:
    return Acl(Resource.TOPIC, name, Pattern.LITERAL, "User:alice", "*", operation, Permission.ALLOW)


def test_many_rules_are_created_and_removed_by_few_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(scene: Scene) -> None:
        acls, store = scene.broker.dispatcher.acls, scene.broker.store
        assert acls is not None
        commits = []
        commit = store.commit

        async def counted(*operations: Any) -> Any:
            commits.append(len(operations))
            return await commit(*operations)

        monkeypatch.setattr(store, "commit", counted)
        wanted = {acl(f"t{number}") for number in range(COUNT)}
        assert not any(await acls.create([*wanted]))
        assert acls.authorizer.acls == wanted
        assert sum(size > 1 for size in commits) == COUNT / NODES_AT_ONCE
        commits.clear()
        (removed,) = await acls.delete([AclFilter(Resource.TOPIC, None, 1, None, None, 1, 1)])
        assert {*removed} == wanted
        assert acls.authorizer.acls == frozenset()
        assert sum(size > 1 for size in commits) == COUNT / NODES_AT_ONCE

    perform(play, SETTINGS)


@pytest.mark.parametrize("name", [".", "..", "a\x01b", "\U0001f600"])
def test_a_name_that_no_node_can_have_is_refused_by_itself(name: str) -> None:
    async def play(scene: Scene) -> None:
        acls = scene.broker.dispatcher.acls
        assert acls is not None
        first, refused, last = await acls.create([acl("a"), acl(name), acl("b")])
        assert refused is not None
        assert refused.code == ErrorCode.INVALID_REQUEST
        assert (first, last) == (None, None)
        assert acls.authorizer.acls == {acl("a"), acl("b")}

    perform(play, SETTINGS)


def test_long_names_are_changed_by_commits_that_zookeeper_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(scene: Scene) -> None:
        acls, store = scene.broker.dispatcher.acls, scene.broker.store
        assert acls is not None
        sizes = []
        commit = store.commit

        async def measured(*operations: Any) -> Any:
            sizes.append(sum(len(each.path) + len(each.data) for each in operations if isinstance(each, Create)))
            return await commit(*operations)

        monkeypatch.setattr(store, "commit", measured)
        assert not any(await acls.create([acl(f"{number:03}{'n' * 32_000}") for number in range(100)]))
        assert max(sizes) < NODE_BYTES_MAX

    perform(play, SETTINGS)


@pytest.mark.parametrize("is_there_before", [False, True])
def test_a_node_that_another_broker_changes_meanwhile_keeps_the_rules_of_both(
    monkeypatch: pytest.MonkeyPatch, is_there_before: bool
) -> None:
    async def play(scene: Scene) -> None:
        acls, store = scene.broker.dispatcher.acls, scene.broker.store
        assert acls is not None
        path = node_path(Resource.TOPIC, Pattern.LITERAL, "b")
        if is_there_before:
            await acls.create([acl("b", Operation.DELETE)])
        commit = store.commit

        async def beaten(*operations: Any) -> Any:
            monkeypatch.setattr(store, "commit", commit)
            theirs = encode_acls({acl("b", Operation.WRITE)})
            node = await store.get(path)
            await commit(Create(path, theirs) if node is None else Put(path, theirs, node.version))
            return await commit(*operations)

        monkeypatch.setattr(store, "commit", beaten)
        await acls.create([acl("a"), acl("b"), acl("c")])
        assert acls.authorizer.acls == {acl("a"), acl("b"), acl("b", Operation.WRITE), acl("c")}

    perform(play, SETTINGS)

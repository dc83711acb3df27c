"""What a broker takes for gone, though nobody said so to it, and what it does not."""

from __future__ import annotations

from uuid import UUID

from ottla.broker.strays import Assignments, Strays
from ottla.cluster import nodes
from ottla.cluster.controller_context import unwritten
from ottla.cluster.image import ClusterImage, PartitionState, TopicState
from ottla.ids import TopicPartition
from ottla.store.api import Create, Delete, Put
from ottla.store.recipes import ensure_path
from ottla.testing.loop import run
from ottla.testing.memory_store import MemoryStore

US, OTHERS = 1, (2, 3)
NAME = TopicPartition("t", 0)
ID, NEXT_ID = UUID(int=7), UUID(int=8)
EMPTY = ClusterImage("cluster")


def topic(name: str = "t", topic_id: UUID = ID, replicas: tuple[int, ...] = OTHERS, epoch: int = 5) -> TopicState:
    return TopicState(name, topic_id, (PartitionState(replicas, replicas[0], epoch, replicas),))


def test_a_replica_is_a_stray_where_its_partition_has_it_no_longer_in_an_epoch_that_is_not_older() -> None:
    strays, image = Strays(US), EMPTY.with_topics([topic()])
    assert strays.is_stray(NAME, ID, 5, image)
    assert strays.is_stray(NAME, ID, 4, image)
    assert not strays.is_stray(NAME, ID, 6, image)  # given back, and the image is about to say so
    assert not strays.is_stray(NAME, ID, -1, image)  # just made
    assert not strays.is_stray(NAME, NEXT_ID, 5, image)  # of a newer topic of that name
    assert not strays.is_stray(NAME, ID, 5, EMPTY)  # of a topic that the image is about to have
    assert not strays.is_stray(NAME, ID, 5, EMPTY.with_topics([topic(replicas=(2, US))]))


def test_a_replica_of_a_topic_that_was_deleted_is_a_stray_until_it_is_gone() -> None:
    strays, before = Strays(US), EMPTY.with_topics([topic(replicas=(2, US))])
    after = before.with_topics([], ["t"])
    strays.image_changed(before, after)
    strays.forget_deleted([("t", ID)])
    assert strays.is_stray(NAME, ID, 5, after)
    assert not strays.is_stray(NAME, NEXT_ID, 0, after)
    strays.forget_deleted([("t", NEXT_ID)])
    assert not strays.is_stray(NAME, ID, 5, after)


def test_a_topic_that_a_new_controller_does_not_name_is_looked_up() -> None:
    async def main() -> None:
        store = MemoryStore()
        await ensure_path(store, nodes.TOPICS)
        assignments = Assignments(US, store)
        for name in ("kept", "named"):
            await store.commit(Create(nodes.topic_path(name), b""))
        strays = Strays(US)
        before = EMPTY.with_topics(
            [topic(name, UUID(int=place)) for place, name in enumerate(("kept", "gone", "named"))]
        )
        strays.told_by(1, EMPTY)
        strays.image_changed(EMPTY, before)
        assert await strays.gone_topics(assignments) == []  # its word is good for as long as it is the controller
        strays.told_by(2, before)
        assert await strays.gone_topics(assignments) == ["gone"]
        strays.told_by(2, before)
        strays.image_changed(before, before.with_topics([topic("gone", UUID(int=1))]))
        assert strays.unconfirmed(["gone"]) == []  # made again while it was looked up

    run(main())


def test_who_has_a_partition_is_what_the_store_says() -> None:
    async def main() -> None:
        store = MemoryStore()
        await ensure_path(store, nodes.TOPICS)
        assignments = Assignments(US, store)
        path = nodes.topic_path("t")
        assert await assignments.is_gone("t")
        assert not await assignments.is_ours(NAME, ID)
        partitions = (unwritten((US, 2)), unwritten(OTHERS))
        await store.commit(Create(path, nodes.encode_topic(TopicState("t", ID, partitions))))
        assert not await assignments.is_gone("t")
        assert await assignments.is_ours(NAME, ID)
        assert await assignments.is_ours(NAME, None)
        assert await assignments.is_ours(NAME, NEXT_ID)  # nothing is deleted because an id has changed
        assert not await assignments.is_ours(TopicPartition("t", 1), NEXT_ID)
        assert not await assignments.is_ours(TopicPartition("t", 1), ID)
        assert not await assignments.is_ours(TopicPartition("t", 2), ID)
        await store.commit(Put(path, b"{"))
        assert await assignments.is_ours(TopicPartition("t", 2), ID)  # nothing is deleted on a damaged node's word
        await store.commit(Delete(path))
        assert await assignments.is_gone("t")

    run(main())

"""Which batches are ready, for whom, and in what order they are taken."""

from __future__ import annotations

import random

import pytest

from ottla.client.producer.accumulator import Accumulator, AccumulatorOptions, Leader
from ottla.client.producer.memory import MemoryPool
from ottla.ids import TopicPartition

LINGER_S = 0.005


class Scene:
    """An accumulator with a topic, whose partitions are led by nodes 1, 2, 1, 2, …"""

    def __init__(self, partitions=2, batch_size=1000, memory=10_000, **options):
        self.pool = MemoryPool(memory)
        self.accumulator = Accumulator(
            AccumulatorOptions(batch_size, LINGER_S, 120.0, **options), self.pool, random.Random(1)
        )
        self.topic = self.accumulator.topic("orders")
        self.topic.resize(partitions, list(range(partitions)))
        self.leaders = {TopicPartition("orders", number): Leader(1 + number % 2, 0) for number in range(partitions)}

    def append(self, partition=0, value=b"v" * 100, now=0.0, key=None, reserved=0):
        size = 24 + len(value)
        return self.accumulator.append(self.topic, partition, key, value, 1000, (), size, now, None, reserved)

    def ready(self, now=0.0):
        return self.accumulator.ready(now, self.leaders.get)

    def drain(self, node=1, now=10.0, limit=1 << 20, **options):
        return self.accumulator.drain(node, self.leaders.get, limit, now, **options)


def test_a_batch_lingers_and_is_ready_then():
    scene = Scene()
    scene.append(now=1.0)
    assert scene.ready(1.0).nodes == frozenset()
    assert scene.ready(1.0).next_at == 1.0 + LINGER_S
    assert scene.ready(1.0 + LINGER_S).nodes == {1}


def test_a_full_batch_is_ready_at_once():
    scene = Scene()
    while len(scene.topic.queues[0].batches) < 2:
        scene.append()
    assert scene.ready().nodes == {1}
    (batch,) = scene.drain()
    assert batch.size_bytes <= 1000
    assert scene.ready().nodes == frozenset()


def test_a_record_larger_than_a_batch_has_one_of_its_own():
    scene = Scene()
    scene.append(value=b"v" * 5000)
    scene.append()
    assert [batch.record_count for batch in scene.topic.queues[0].batches] == [1, 1]
    assert scene.ready().nodes == {1}


def test_batches_of_size_nothing_hold_a_record_each():
    scene = Scene(batch_size=0)
    scene.append()
    scene.append()
    assert [batch.record_count for batch in scene.topic.queues[0].batches] == [1, 1]


@pytest.mark.parametrize("reason", ["flush", "closing", "transaction", "waiter"])
def test_everything_is_ready_when_somebody_waits_for_it(reason):
    scene = Scene()
    scene.append()
    match reason:
        case "flush":
            scene.accumulator.begin_flush()
        case "closing":
            scene.accumulator.is_closing = True
        case "transaction":
            scene.accumulator.is_completing_transaction = True
        case "waiter":
            scene.pool.wait(scene.pool.available_bytes + 1, lambda: None)
    assert scene.ready().nodes == {1}


def test_a_partition_without_leader_is_told():
    scene = Scene()
    scene.append()
    scene.leaders.clear()
    readiness = scene.ready(10.0)
    assert readiness.nodes == frozenset()
    assert readiness.leaderless == {"orders"}


def test_a_request_takes_one_batch_of_each_partition_and_the_others_first_the_next_time():
    scene = Scene(partitions=6)
    for partition in (0, 2, 4):
        for _ in range(2):
            scene.append(partition, b"v" * 900)
    first = scene.drain(limit=2500)
    assert [batch.partition.partition for batch in first] == [0, 2]
    assert [batch.partition.partition for batch in scene.drain(limit=2500)] == [4, 0]


def test_a_batch_larger_than_a_request_goes_alone():
    scene = Scene()
    scene.append(value=b"v" * 5000)
    assert len(scene.drain(limit=100)) == 1


def test_who_may_not_go_is_passed_over():
    scene = Scene(partitions=4)
    scene.append(0)
    scene.append(2)
    (batch,) = scene.drain(may_send=lambda batch: batch.partition.partition == 2)
    assert batch.partition.partition == 2


def test_a_muted_partition_gives_nothing_until_it_is_unmuted():
    scene = Scene()
    scene.append(value=b"v" * 2000)
    scene.append()
    (batch,) = scene.drain(mutes=True)
    assert scene.drain() == []
    assert scene.ready(10.0).nodes == frozenset()
    scene.accumulator.unmute(batch)
    assert len(scene.drain()) == 1


def test_a_batch_that_comes_back_stands_before_later_ones_and_waits_for_its_pause():
    scene = Scene()
    for _ in range(3):
        scene.append(value=b"v" * 2000)
    (first,), (second,) = scene.drain(), scene.drain()
    for batch in (second, first):
        batch.attempts, batch.retry_after = 1, 12.0
        scene.accumulator.put_back(batch)
    assert list(scene.topic.queues[0].batches)[:2] == [first, second]
    assert scene.ready(11.0).nodes == frozenset()
    assert scene.ready(11.0).next_at == 12.0
    assert scene.drain(now=11.0) == []
    assert scene.drain(now=12.0) == [first]


def test_a_new_leader_ends_the_pause():
    scene = Scene()
    scene.append()
    (batch,) = scene.drain()
    batch.attempts, batch.retry_after = 1, 12.0
    scene.accumulator.put_back(batch)
    scene.leaders[batch.partition] = Leader(2, 1)
    assert scene.ready(11.0).nodes == {2}
    assert scene.drain(node=2, now=11.0) == [batch]


def test_no_room_is_told_and_comes_back_with_the_batch():
    scene = Scene(memory=2500)
    assert scene.append(0)
    assert scene.append(1)
    scene.accumulator.begin_flush()
    assert scene.append(0) is None
    (batch,) = scene.drain()
    scene.accumulator.done(batch)
    assert scene.append(0) is not None
    for batch in [*scene.drain(), *scene.drain(node=2)]:
        scene.accumulator.done(batch)
    assert scene.pool.available_bytes == scene.pool.limit_bytes


def test_room_that_was_waited_for_is_used_or_given_back():
    scene = Scene()
    assert scene.pool.try_take(1000)
    scene.append(reserved=1000)
    assert scene.pool.limit_bytes - scene.pool.available_bytes == 1000
    assert scene.pool.try_take(1000)
    scene.append(reserved=1000)  # fits into the batch that is open
    assert scene.pool.limit_bytes - scene.pool.available_bytes == 1000


def test_batches_expire_in_the_queue():
    scene = Scene()
    scene.append(now=0.0)
    scene.append(1, now=50.0)
    assert scene.accumulator.next_deadline == 120.0
    (expired,) = scene.accumulator.expired(120.0)
    assert expired.partition.partition == 0
    expired.delivery.failed(TimeoutError())
    scene.accumulator.done(expired)
    assert scene.accumulator.next_deadline == 170.0
    assert scene.drain() == []
    assert scene.append(now=130.0) is not None


def test_keyless_records_fill_a_batch_of_one_partition_and_then_one_of_another():
    scene = Scene(partitions=5, memory=1 << 20)
    for _ in range(200):
        scene.append(None)
    counts = [[batch.record_count for batch in queue.batches] for queue in scene.topic.queues]
    assert sum(map(sum, counts)) == 200
    full = (1000 - 61) // 109  # bytes that such a record takes
    assert sum(1 for queue in counts for count in queue if count != full) <= 1


def test_pieces_of_a_batch_that_was_too_large_take_its_place():
    scene = Scene()
    for _ in range(16):
        scene.append()
    (batch,) = scene.drain()
    futures_before = batch.delivery
    pieces = batch.split(400)
    scene.accumulator.replace(batch, pieces)
    assert [piece.record_count for piece in pieces] == [3, 3, 2]
    assert list(scene.topic.queues[0].batches)[:3] == pieces
    assert sum(piece.reserved_bytes for piece in pieces) == batch.reserved_bytes
    assert futures_before.find(6) == (pieces[2].delivery, 0)
    assert pieces[0].deadline == batch.deadline
    (again,) = scene.drain()
    assert [piece.record_count for piece in again.split(400)] == [1, 1, 1]


def test_compression_makes_batches_hold_more_and_worse_ratios_are_learned_at_once():
    scene = Scene(is_compressed=True)
    scene.topic.observe(0.1)
    assert scene.topic.ratio == 0.995
    scene.topic.ratio = 0.5
    scene.topic.observe(0.52)
    assert scene.topic.ratio == 0.55
    scene.topic.observe(0.9)
    assert scene.topic.ratio == 0.9

"""A coordinator that lost its partition and has it again: what it began before is left to who has read the log."""

from __future__ import annotations

import asyncio

from ottla.replication.leader import Leader
from ottla.testing.scene import Producer, Scene, perform


def test_the_end_of_a_transaction_whose_marker_was_on_its_way_is_written_once() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        producer = Producer(scene, "tx", version=1)
        await producer.init()
        await producer.send(topic, b"v")
        scene.follow(topic)
        await producer.end(commit=True)
        await asyncio.sleep(0.05)
        journal = scene.broker.replicas.find("__transaction_state", 0)
        leader = journal.leader
        journal.go_idle(leader.epoch + 1)
        scene.broker.role_changed(journal)
        alone, end = (leader.node_id,), journal.log.end_offset
        journal.lead(Leader(leader.node_id, leader.epoch + 2, alone, alone, end_offset=end, high_watermark=end))
        scene.broker.role_changed(journal)
        await asyncio.sleep(0.5)
        scene.catch_up(topic)
        await asyncio.sleep(0.5)
        assert journal.log.end_offset == end + 1

    perform(play)

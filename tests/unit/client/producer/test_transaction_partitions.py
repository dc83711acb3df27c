"""Partitions are added to a transaction by a task that ends with the producer."""

from __future__ import annotations

import asyncio

from ottla.client.producer.transaction_partitions import TransactionPartitions
from ottla.ids import TopicPartition

PARTITION = TopicPartition("orders", 0)


def test_a_sender_that_asks_after_the_close_begins_nothing() -> None:
    async def main() -> None:
        async def add(_: set[TopicPartition]) -> bool:
            await asyncio.Event().wait()
            return True

        partitions = TransactionPartitions(add, lambda: void(partitions.may_write(PARTITION, is_implicit=False)))
        assert not partitions.may_write(PARTITION, is_implicit=False)
        await asyncio.sleep(0)
        await partitions.close()
        assert not partitions.may_write(PARTITION, is_implicit=False)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def void(_: object) -> None: ...

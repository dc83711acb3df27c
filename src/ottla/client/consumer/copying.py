"""From topics to topics, exactly once: what comes out and how far was read are one transaction.

    await copy(consumer, producer, lambda record: ProducerRecord("bills", bill_of(record.value), record.key))

The consumer reads committed records of its group and commits nothing itself; the producer has a transactional id. A
transaction that fails in a way that passes is aborted, and its records are read again.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.client.consumer.commits import offsets_meant
from ottla.client.consumer.errors import WakeupError
from ottla.client.consumer.fetched import first_offsets
from ottla.client.errors import AbortableError, TransactionAbortedError, UsageError
from ottla.client.values import ConsumerRecord, ProducerRecord

if TYPE_CHECKING:
    from ottla.client.consumer.consumer import Consumer
    from ottla.client.producer.producer import Producer

Key = TypeVar("Key")
Value = TypeVar("Value")

log = logging.getLogger("ottla.client.consumer")


async def copy(
    consumer: Consumer[Any, Any],
    producer: Producer[Key, Value],
    transform: Callable[[ConsumerRecord[Any, Any]], Any],
    *,
    max_records: int | None = None,
    max_wait_s: float = 1.0,
) -> None:
    """Until `consumer.wakeup()`. `transform` gives a ProducerRecord, several, or None for none; it may be `async`."""
    if consumer.settings.enable_auto_commit:
        raise UsageError("copy() commits with the transaction: make the consumer with enable_auto_commit=False")
    try:
        while True:
            records = await consumer.take(max_wait_s, max_records)
            if records:
                await _copy_once(consumer, producer, transform, records)
    except WakeupError:
        return


async def _copy_once(
    consumer: Consumer[Any, Any],
    producer: Producer[Key, Value],
    transform: Callable[[ConsumerRecord[Any, Any]], Any],
    records: list[ConsumerRecord[Any, Any]],
) -> None:
    made = [each for record in records for each in await _made(transform, record)]
    try:
        async with producer.transaction() as transaction:
            for each in made:
                transaction.send(
                    each.topic,
                    each.value,
                    each.key,
                    partition=each.partition,
                    timestamp=each.timestamp,
                    headers=each.headers,
                )
            await transaction.send_offsets(offsets_meant(records), consumer.group_metadata())
    except (AbortableError, TransactionAbortedError) as error:
        log.warning("a transaction was aborted, and its %d records are read again: %s", len(records), error)
        for partition, position in first_offsets(records).items():
            if partition in consumer.assignment():
                consumer.seek(partition, position.offset)


async def _made(
    transform: Callable[[ConsumerRecord[Any, Any]], Any], record: ConsumerRecord[Any, Any]
) -> Iterable[ProducerRecord[Any, Any]]:
    result = transform(record)
    if inspect.isawaitable(result):
        result = await result
    if result is None:
        return ()
    return (result,) if isinstance(result, ProducerRecord) else result

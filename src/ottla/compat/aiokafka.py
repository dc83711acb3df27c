"""aiokafka's producer and consumer, with its names and defaults (0.14).

    from ottla.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer

`send` needs two awaits as there: the first waits for room, the second for the acknowledgement.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Final, NamedTuple, Self

from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.producer import Producer
from ottla.client.values import ConsumerRecord as ConsumerRecord
from ottla.client.values import OffsetAndMetadata as OffsetAndMetadata
from ottla.client.values import OffsetAndTimestamp as OffsetAndTimestamp
from ottla.compat.not_here import Partial, translated
from ottla.errors import OttlaError as KafkaError
from ottla.ids import TopicPartition as TopicPartition

_LIBRARY: Final = "aiokafka"
_WITHOUT_EFFECT: Final = frozenset({"api_version", "loop", "rebalance_timeout_ms", "consumer_timeout_ms"})
_REFUSED: Final = {
    "sasl_kerberos_service_name": "there is no Kerberos",
    "sasl_kerberos_domain_name": "there is no Kerberos",
}
_DEFAULTS: Final = {"bootstrap_servers": "localhost:9092", "request_timeout_ms": 40000}
IDLE_POLL_S: Final = 1.0


class RecordMetadata(NamedTuple):
    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    timestamp_type: int = 0
    log_start_offset: int | None = None


class AIOKafkaProducer(Partial):
    library: ClassVar[str] = _LIBRARY
    missing: ClassVar[Mapping[str, str]] = {
        "create_batch": "use ottla.aio.Producer.send_columns",
        "send_batch": "use ottla.aio.Producer.send_columns",
    }

    def __init__(self, **configs: Any) -> None:
        is_idempotent = configs.get("enable_idempotence", False) or configs.get("transactional_id") is not None
        defaults = {"enable_idempotence": is_idempotent, "acks": "all" if is_idempotent else 1, "linger_ms": 0}
        settings = translated(configs, {**_DEFAULTS, **defaults}, _WITHOUT_EFFECT, _REFUSED)
        settings["enable_idempotence"] = is_idempotent
        self._producer: Producer[Any, Any] = Producer(settings)

    async def start(self) -> None:
        self._producer.start()
        if self._producer.settings.transactional_id is not None:
            await self._producer.init_transactions()

    async def stop(self) -> None:
        await self._producer.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes]] | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        await self._producer.room()
        sent = self._producer.send(
            topic,
            value,
            key,
            partition=partition,
            timestamp=timestamp_ms,
            headers=None if headers is None else list(headers),
        )

        async def acknowledged() -> RecordMetadata:
            found = await sent
            return RecordMetadata(found.topic, found.partition, found.topic_partition, found.offset, found.timestamp)

        return asyncio.ensure_future(acknowledged())

    async def send_and_wait(self, topic: str, *arguments: Any, **keywords: Any) -> RecordMetadata:
        return await (await self.send(topic, *arguments, **keywords))

    async def flush(self) -> None:
        await self._producer.flush()

    async def partitions_for(self, topic: str) -> set[int]:
        return set(await self._producer.partitions_for(topic))

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        return self._producer.transaction()

    async def begin_transaction(self) -> None:
        self._producer.begin_transaction()

    async def commit_transaction(self) -> None:
        await self._producer.commit_transaction()

    async def abort_transaction(self) -> None:
        await self._producer.abort_transaction()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group_id: str
    ) -> None:
        await self._producer.send_offsets_to_transaction(offsets, group_id)


class AIOKafkaConsumer(Partial):
    library: ClassVar[str] = _LIBRARY
    missing: ClassVar[Mapping[str, str]] = {"last_poll_timestamp": "see ottla.aio.Consumer.metrics"}

    def __init__(self, *topics: str, **configs: Any) -> None:
        defaults = {**_DEFAULTS, "session_timeout_ms": 10000}
        strategies = configs.pop("partition_assignment_strategy", ("roundrobin",))
        settings = translated(configs, defaults, _WITHOUT_EFFECT, _REFUSED)
        settings["partition_assignment_strategy"] = [getattr(each, "name", each) for each in strategies]
        if settings.get("group_id") is None:
            settings.pop("enable_auto_commit", None)
        self._topics = topics
        self._consumer: Consumer[Any, Any] = Consumer(settings)

    async def start(self) -> None:
        await self._consumer.start()
        if not self._topics:
            return
        if self._consumer.settings.group_id is not None:
            self._consumer.subscribe(self._topics)
        else:
            self._consumer.assign(
                [
                    TopicPartition(name, number)
                    for name in self._topics
                    for number in await self._consumer.partitions_for(name)
                ]
            )

    async def stop(self) -> None:
        await self._consumer.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[Any, Any]:
        self._check_all(partitions)
        while True:
            for records in (await self._consumer.poll(IDLE_POLL_S, 1)).values():
                return records[0]

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        self._check_all(partitions)
        return await self._consumer.poll(timeout_ms / 1000, max_records)

    def _check_all(self, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            raise NotImplementedError("records of some partitions only: pause() the others")

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[Any, Any]]:
        return self

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        return await self.getone()

    def subscribe(self, topics: Collection[str] = (), pattern: str | None = None, listener: Any | None = None) -> None:
        calls: dict[str, Any] = {}
        if listener is not None:
            calls = {"on_assigned": listener.on_partitions_assigned, "on_revoked": listener.on_partitions_revoked}
        if pattern is not None:
            self._consumer.subscribe(pattern=re.compile(pattern), **calls)
        else:
            self._consumer.subscribe(list(topics), **calls)

    def unsubscribe(self) -> None:
        raise NotImplementedError("stop() the consumer, or `await ottla.aio.Consumer.unsubscribe()`")

    def subscription(self) -> frozenset[str]:
        return self._consumer.subscription()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._consumer.assign(partitions)

    def assignment(self) -> frozenset[TopicPartition]:
        return self._consumer.assignment()

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        meant = None
        if offsets is not None:
            meant = {
                partition: OffsetAndMetadata(*each) if isinstance(each, tuple) else each
                for partition, each in offsets.items()
            }
        await self._consumer.commit(meant)

    async def committed(self, partition: TopicPartition) -> int | None:
        found = (await self._consumer.committed([partition]))[partition]
        return None if found is None else found.offset

    async def position(self, partition: TopicPartition) -> int:
        return await self._consumer.position(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._consumer.seek(partition, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        self._consumer.seek_to_beginning(*partitions)
        return True

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        self._consumer.seek_to_end(*partitions)
        return True

    async def seek_to_committed(self, *partitions: TopicPartition) -> None:
        await self._consumer.seek_to_committed(*partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        self._consumer.pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._consumer.resume(*partitions)

    def paused(self) -> set[TopicPartition]:
        return set(self._consumer.paused())

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._consumer.beginning_offsets(partitions)

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._consumer.end_offsets(partitions)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return dict(await self._consumer.offsets_for_times(dict(timestamps)))


__all__ = [
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "ConsumerRecord",
    "KafkaError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordMetadata",
    "TopicPartition",
]

"""The log of decisions: a compacted topic with the last decision of every query, under the query's scope as key.

A decision is written in a transaction of a transactional id that belongs to the query. Whoever opens the log introduces
itself by that id first and reads afterwards: what another driver has in flight is then either written and read, or
fenced for good. So there is one decision per batch, whoever tries to make another.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Final

from ottla.client import prepared
from ottla.client.admin.over_cluster import ClusterAdmin
from ottla.client.admin.topics import NewTopic
from ottla.client.fetching import Fetcher, FetchOptions
from ottla.client.metadata import Cluster, Topic
from ottla.client.offsets import Isolation, OffsetSpec, list_offsets
from ottla.client.partitioning import RecordColumns
from ottla.client.prepared import EndedOtherwiseError, Prepared
from ottla.client.producer.over_cluster import ClusterProducer
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import TopicPartition
from ottla.spark.delivery.decision import Decision, Writer

# The place of a query's decisions follows from this number: it must never change for a topic that has some.
PARTITIONS: Final = 8
# Segments are small, so that the cleaner gets at them and a reader finds little more than the last decisions.
TOPIC_CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 * 1024 * 1024),
    "segment.ms": str(10 * 60_000),
    "min.cleanable.dirty.ratio": "0.1",
}
# Of the transaction of one decision. Readers of other queries' decisions wait for one that was left open.
TIMEOUT_MS: Final = 10_000
# By somebody else, or by a controller that takes its time.
_CREATED: Final = frozenset({ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT})
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})


class DecisionsError(OttlaError):
    """The topic of decisions cannot be used as it is."""


class FencedError(OttlaError):
    """Somebody else has opened the log since: what was to be decided is not, and perhaps something else is."""


class DecisionLog:
    """The decisions of one query, as long as nobody else opens them."""

    def __init__(self, cluster: Cluster, topic: str, writer: Writer) -> None:
        self.last: Decision | None = None
        self._cluster = cluster
        self._topic = topic
        self.writer = writer
        self._partition = TopicPartition(topic, zlib.crc32(writer.scope.encode()) % PARTITIONS)
        self._position = 0  # up to which it is read
        self._transaction: Prepared | None = None  # to write the next decision in; None: not open

    @property
    def is_open(self) -> bool:
        return self._transaction is not None

    async def open(self) -> None:
        """Fences every other writer of this query's decisions, and reads the last one."""
        topic = await self._ensure_topic()
        self._transaction = await prepared.begin(self._cluster, self.writer.decisions_id, TIMEOUT_MS, two_phase=False)
        await self._read_last(topic)

    async def write(self, decision: Decision, now_ms: int) -> None:
        """Returns once it is durable. After an error the log has to be opened again, to see what became of it."""
        assert self._transaction is not None, "open it first"
        transaction, self._transaction = self._transaction, None
        producer = ClusterProducer(self._cluster, transaction)
        record = RecordColumns([decision.to_json()], now_ms, keys=[self.writer.scope.encode()])
        try:
            await producer.produce(self._topic, record, self._partition.partition)
            following = await prepared.end(self._cluster, transaction, commits=True)
        except EndedOtherwiseError as error:
            raise FencedError(str(error)) from error
        except ApiError as error:
            if error.code in _FENCED:
                raise FencedError(str(error)) from error
            raise
        finally:
            await producer.close(0)
        self.last = decision
        # By the old rules numbers go on where they were; a new introduction is the simple way to begin them again.
        self._transaction = following if transaction.raises_epochs else None

    async def read_last(self) -> Decision | None:
        """The last decision; None where there is none, or no topic yet. What was read once is not read again."""
        topic = (await self._cluster.find_topics([self._topic])).topics.get(self._topic)
        return None if topic is None else await self._read_last(topic)

    async def _read_last(self, topic: Topic) -> Decision | None:
        self._check(topic)
        # Up to the end that readers of uncommitted records see: an open decision may be followed by a committed one.
        ends = await list_offsets(self._cluster, {self._partition: int(OffsetSpec.LATEST)})
        starts = await list_offsets(self._cluster, {self._partition: int(OffsetSpec.EARLIEST)})
        start, end = max(self._position, starts[self._partition].offset), ends[self._partition].offset
        try:
            async with asyncio.timeout(self._cluster.options.timeout_s):
                await self._read(start, end)
        except TimeoutError as error:
            raise DecisionsError(
                f"the decisions in {self._partition} could not be read within {self._cluster.options.timeout_s:g} s: "
                "is a transaction open there? `ottla transactions list --state Ongoing` shows it"
            ) from error
        return self.last

    async def _read(self, start: int, end: int) -> None:
        place, key = self._partition, self.writer.scope.encode()
        options = FetchOptions(isolation=Isolation.READ_COMMITTED)
        async with Fetcher(self._cluster, {place: start}, {place: end}, options) as fetcher:
            while not fetcher.is_done:
                for fetched in await fetcher.next():
                    columns = fetched.columns()
                    for found_key, value in zip(columns.keys, columns.values, strict=True):
                        if found_key == key:
                            self.last = None if value is None else Decision.from_json(bytes(value))
        self._position = end

    async def _ensure_topic(self) -> Topic:
        topic = (await self._cluster.find_topics([self._topic])).topics.get(self._topic)
        if topic is None:
            made = await ClusterAdmin(self._cluster).create_topics(
                [NewTopic(self._topic, PARTITIONS, config=TOPIC_CONFIG)]
            )
            outcome = made[self._topic]
            if isinstance(outcome, ApiError) and outcome.code not in _CREATED:
                raise DecisionsError(f"the topic {self._topic} for decisions cannot be created: {outcome}") from outcome
            # Whoever created it, the broker that is asked here may not have heard of it yet.
            topic = await self._cluster.topic(self._topic, exists=True)
        return topic

    def _check(self, topic: Topic) -> None:
        """Anything may have the name that was given, also a topic with records of somebody else."""
        if len(topic.partitions) < PARTITIONS:
            raise DecisionsError(
                f"the topic {self._topic} for decisions has {len(topic.partitions)} partitions and needs {PARTITIONS}: "
                "name another one with the option decisionsTopic, and let the sink create it"
            )

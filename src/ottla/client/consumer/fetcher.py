"""Fetches: one request in flight to every broker that leads something to be read, the next before it is needed.

What is held per broker is one answer that is being handed out, one that waits and one on its way; `fetch_max_bytes`
bounds each. Requests name what has changed since the last one (fetch sessions, KIP-227). Partitions are read from the
replica that their leader names (KIP-392) as long as that goes well.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from ottla.client.consumer.consumer_metrics import FetchMetrics
from ottla.client.consumer.fetched import Answer, Reader, Taken
from ottla.client.consumer.positions import NO_EPOCH, PartitionState, Positions, PreferredReplica
from ottla.client.error_codes import error_of_code
from ottla.client.fetching import FETCH_BY_NAME_MAX, FetchedBatch
from ottla.client.leaders import learn_leader
from ottla.client.metadata import Cluster, Lane
from ottla.client.off_loop import off_loop
from ottla.client.offsets import Isolation
from ottla.client.retrying import Deadline, error_of
from ottla.client.serializers.base import LookupNeededError
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import ZERO_TOPIC_ID, TopicPartition
from ottla.net.client import ConnectionFailedError
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from ottla.replication.fetch_requests import FetchKey, FetchPosition, FetchSessionReader, SessionPart

log = logging.getLogger("ottla.client.consumer")

CONSUMER_MAX_WAIT_SLACK_S: Final = 10.0  # beyond the time that a broker may wait for records
SESSION_CLOSE_S: Final = 1.0  # a broker that does not take part forgets a session by itself

# What a broker says that knows better than our metadata who leads the partition.
_LEADER_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
_JUST_AGAIN: Final = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR})


@dataclass(frozen=True, slots=True)
class FetchLimits:
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    max_wait_s: float = 0.5
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    rack: str = ""
    checks_crcs: bool = True
    retry_s: float = 0.1
    replica_max_age_s: float = 300.0  # a preferred replica is asked about again after that


class _Wanted(NamedTuple):
    """A partition in a request: where it stood then."""

    partition: TopicPartition
    offset: int
    attempt: int


@dataclass(eq=False, slots=True)
class _Node:
    """What goes on with one broker."""

    session: FetchSessionReader = field(default_factory=FetchSessionReader)
    task: asyncio.Task[None] | None = None
    not_before: float = 0.0


class ConsumerFetcher:
    def __init__(
        self,
        cluster: Cluster,
        positions: Positions,
        limits: FetchLimits,
        reader: Reader,
        wake: Callable[[], None],
        metrics: FetchMetrics,
    ) -> None:
        self._cluster = cluster
        self._positions = positions
        self._limits = limits
        self._reader = reader
        self._wake = wake
        self._metrics = metrics
        self._nodes: dict[int, _Node] = {}
        self._answers: deque[tuple[int, Answer]] = deque()  # with the broker that gave it
        self._failure: OttlaError | None = None
        self._look_up: asyncio.Task[None] | None = None
        self._closing = False
        self.partitions_in_trouble: dict[TopicPartition, float] = {}  # not to be asked for before
        self.moved_leaders = False  # an answer showed that metadata is old

    # -- handing out ---------------------------------------------------------------------------------------------------

    def take(self, records_max: int) -> list[Taken]:
        """Records that are here, up to a number; empty ones tell of positions that moved past what nobody may see."""
        found: list[Taken] = []
        for state, answer in self._heads():
            if records_max <= 0:
                break
            try:
                taken = answer.take(records_max, self._reader)
            except LookupNeededError as needed:
                self._begin_look_up(needed)
                continue
            except Exception:  # also what users' deserializers and policies raise
                if found:
                    break  # what went well before is handed out first; the next call raises it
                raise
            state.position = taken.position
            records_max -= len(taken.records)
            found.append(taken)
        return found

    def _begin_look_up(self, needed: LookupNeededError) -> None:
        """Asks for what a deserializer needs, away from the loop, one question at a time; then the poll looks again."""
        if self._look_up is None and not self._closing:
            self._look_up = asyncio.get_running_loop().create_task(self._looked_up(needed), name="ottla-look-up")

    async def _looked_up(self, needed: LookupNeededError) -> None:
        try:
            await off_loop(needed.look_up)
        except Exception as error:
            self._failure = self._failure or OttlaError(f"the look-up of a deserializer failed: {error!r}")
        finally:
            self._look_up = None
            self._wake()

    def take_batches(self, records_max: int) -> list[FetchedBatch]:
        """The same, batch by batch and not decoded."""
        found: list[FetchedBatch] = []
        for state, answer in self._heads():
            if records_max <= 0:
                break
            batches, state.position = answer.take_batches(records_max)
            records_max -= sum(batch.header.record_count for batch in batches)
            found += batches
        return found

    def _heads(self) -> Iterator[tuple[PartitionState, Answer]]:
        """Answers that may be handed out, in order; those that are used up, or of no use any more, are dropped."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        kept: deque[tuple[int, Answer]] = deque()
        waiting, self._answers = self._answers, deque()
        blocked: set[TopicPartition] = set()
        try:
            while waiting:
                node_id, answer = waiting.popleft()
                state = self._positions.get(answer.partition)
                if state is None or state.position is None or answer.is_done():
                    continue
                if state.position.offset != answer.position.offset and answer.partition not in blocked:
                    continue  # sought elsewhere, or given up and assigned again
                if not state.is_fetchable or answer.partition in blocked:
                    kept.append((node_id, answer))
                    blocked.add(answer.partition)
                    continue
                try:
                    yield state, answer
                finally:
                    if not answer.is_done():
                        kept.append((node_id, answer))
                        blocked.add(answer.partition)
                    else:
                        self._positions.rotate(answer.partition)
        finally:
            kept.extend(waiting)
            self._answers = kept

    @property
    def has_records(self) -> bool:
        return bool(self._answers) or self._failure is not None

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """What waits of these is of no use any more."""
        gone = set(partitions)
        self._answers = deque(each for each in self._answers if each[1].partition not in gone)

    # -- asking --------------------------------------------------------------------------------------------------------

    def send(self, now: float) -> None:
        """A request to every broker that has none in flight and no response that waits to be read."""
        if self._closing or (not self._is_free(now) and self._nodes):
            return
        waiting = {node_id for node_id, answer in self._answers if not answer.is_started}
        wanted: dict[int, dict[FetchKey, FetchPosition]] = {}
        asked: dict[int, list[_Wanted]] = {}
        ends = {answer.partition: answer.end for _, answer in self._answers}
        for partition, state in self._positions.items():
            node_id = self._node_of(partition, state, now)
            if node_id is None or node_id in waiting:
                continue
            node = self._nodes.setdefault(node_id, _Node())
            if node.task is not None or node.not_before > now:
                continue
            if not state.is_fetchable or self.partitions_in_trouble.get(partition, 0.0) > now:
                continue
            assert state.position is not None, "what is fetched has a position"
            # Behind what is here already; an answer that ends with a bad record has no end.
            end = ends.get(partition, state.position)
            if end is None:
                continue
            leader_epoch = NO_EPOCH if state.leader is None else state.leader.epoch
            key = FetchKey(partition.topic, self._cluster.known_topic_id(partition.topic), partition.partition)
            wanted.setdefault(node_id, {})[key] = FetchPosition(
                end.offset, leader_epoch, bytes_max=self._limits.partition_max_bytes
            )
            asked.setdefault(node_id, []).append(_Wanted(partition, end.offset, state.attempt))
        for node_id, positions in wanted.items():
            node = self._nodes[node_id]
            part = node.session.next_request(positions)
            work = self._fetch(node_id, node, part, positions, asked[node_id])
            node.task = asyncio.get_running_loop().create_task(work, name=f"ottla-fetch-{node_id}")

    def _is_free(self, now: float) -> bool:
        """Whether a broker could be asked: most polls find all of them busy, and need not look at each partition."""
        waiting = {node_id for node_id, answer in self._answers if not answer.is_started}
        known = self._cluster.known_nodes()
        return any(
            node_id not in self._nodes
            or (self._nodes[node_id].task is None and node_id not in waiting and self._nodes[node_id].not_before <= now)
            for node_id in known
        )

    def next_look(self, now: float) -> float | None:
        """When something that rests after a failure may be asked for again."""
        times = [at for at in self.partitions_in_trouble.values() if at > now]
        times += [node.not_before for node in self._nodes.values() if node.not_before > now]
        return min(times, default=None)

    def _node_of(self, partition: TopicPartition, state: PartitionState, now: float) -> int | None:
        """Whom to ask: the replica that the leader named, else the leader."""
        if state.preferred is not None:
            if state.preferred.until > now and state.preferred.node_id in self._cluster.known_nodes():
                return state.preferred.node_id
            state.preferred = None
        known = self._cluster.known_partition(partition)
        if known is None or known.leader_id < 0:
            return None
        return known.leader_id

    async def _fetch(
        self,
        node_id: int,
        node: _Node,
        part: SessionPart,
        positions: dict[FetchKey, FetchPosition],
        asked: list[_Wanted],
    ) -> None:
        asked_at = asyncio.get_running_loop().time()
        try:
            response = await self._ask(node_id, part, positions)
        except (ApiError, ConnectionFailedError) as error:
            node.session.failed()
            self._failed(node, error, asked)
        else:
            self._metrics.answered(asked_at, asyncio.get_running_loop().time(), response.throttle_time_ms)
            if node.session.answered(response):
                names = {key.topic_id: key.topic for key in positions}
                self._take(node_id, {each.partition: each for each in asked}, names, response)
            elif error_of(response.error_code, None, "Fetch") is not None:
                log.debug("the fetch session with broker %d starts again: error %d", node_id, response.error_code)
        finally:
            node.task = None
            self._wake()

    def _request(self, part: SessionPart, wait_s: float) -> FetchRequest:
        limits = self._limits
        return FetchRequest(
            max_wait_ms=int(wait_s * 1000),
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            isolation_level=limits.isolation,
            session_id=part.session_id,
            session_epoch=part.session_epoch,
            topics=part.topics,
            forgotten_topics_data=part.forgotten,
            rack_id=limits.rack,
        )

    async def _ask(self, node_id: int, part: SessionPart, positions: Iterable[FetchKey]) -> FetchResponse:
        has_ids = all(key.topic_id != ZERO_TOPIC_ID for key in positions) and all(
            each.topic_id != ZERO_TOPIC_ID for each in part.forgotten
        )
        connection = await self._cluster.connection(node_id, Lane.FETCH)
        wait_s = self._limits.max_wait_s
        return await connection.request(
            self._request(part, wait_s),
            FetchResponse,
            version_max=None if has_ids else FETCH_BY_NAME_MAX,
            timeout_s=wait_s + CONSUMER_MAX_WAIT_SLACK_S,
        )

    # -- answers -------------------------------------------------------------------------------------------------------

    def _failed(self, node: _Node, error: OttlaError, asked: Iterable[_Wanted]) -> None:
        node.not_before = asyncio.get_running_loop().time() + self._limits.retry_s
        for each in asked:
            state = self._positions.get(each.partition)
            if state is not None:
                state.preferred = None
        self._cluster.learn_from(error, {each.partition.topic for each in asked})
        self.moved_leaders = True
        log.debug("a fetch failed and is tried again: %s", error)

    def _take(
        self, node_id: int, asked: dict[TopicPartition, _Wanted], names: dict[UUID, str], response: FetchResponse
    ) -> None:
        now = asyncio.get_running_loop().time()
        self._metrics.taken(self._take_topics(node_id, asked, names, response, now), now)

    def _take_topics(
        self,
        node_id: int,
        asked: dict[TopicPartition, _Wanted],
        names: dict[UUID, str],
        response: FetchResponse,
        now: float,
    ) -> dict[str, tuple[int, int]]:
        """Takes what an answer brought; how many bytes and records of each topic."""
        brought: dict[str, tuple[int, int]] = {}
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for each in topic.partitions:
                wanted = asked.get(TopicPartition(name, each.partition_index))
                state = self._positions.get(wanted.partition) if wanted is not None else None
                # Sought elsewhere or given up meanwhile: this is for nobody.
                if wanted is None or state is None or state.attempt != wanted.attempt:
                    continue
                if each.error_code:
                    self._take_error(node_id, wanted, state, each, response, now)
                elif (answer := self._take_records(node_id, wanted, state, each, now)) is not None:
                    size_bytes, count = brought.get(name, (0, 0))
                    brought[name] = (size_bytes + answer.size_bytes, count + answer.record_count)
        return brought

    def _take_records(
        self, node_id: int, wanted: _Wanted, state: PartitionState, found: PartitionData, now: float
    ) -> Answer | None:
        self.partitions_in_trouble.pop(wanted.partition, None)
        if found.high_watermark >= 0:
            state.high_watermark = found.high_watermark
        if found.last_stable_offset >= 0:
            state.last_stable_offset = found.last_stable_offset
        if found.log_start_offset >= 0:
            state.log_start_offset = found.log_start_offset
        if found.preferred_read_replica >= 0:
            state.preferred = PreferredReplica(found.preferred_read_replica, now + self._limits.replica_max_age_s)
            return None
        data = found.records
        if not data:
            return None
        assert isinstance(data, memoryview), "records of an answer are views of its buffer"
        try:
            answer = Answer(wanted.partition, wanted.offset, data, found, checks_crcs=self._limits.checks_crcs)
        except OttlaError as error:
            self._failure = self._failure or error
            self.partitions_in_trouble[wanted.partition] = now + self._limits.retry_s
            return None
        if answer.end is not None:
            self._answers.append((node_id, answer))
        return answer

    def _take_error(
        self,
        node_id: int,
        wanted: _Wanted,
        state: PartitionState,
        found: PartitionData,
        response: FetchResponse,
        now: float,
    ) -> None:
        partition = wanted.partition
        code = ErrorCode(found.error_code) if found.error_code in ErrorCode._value2member_map_ else None
        self.partitions_in_trouble[partition] = now + self._limits.retry_s
        asked_replica = state.preferred is not None and state.preferred.node_id == node_id
        state.preferred = None
        if code in _LEADER_MOVED:
            self.moved_leaders = True
            if not learn_leader(self._cluster, partition, found.current_leader, response.node_endpoints):
                self._cluster.forget([partition.topic])
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.partitions_in_trouble.pop(partition)
            # A follower may lack what the leader has: only the leader's word counts.
            if not asked_replica and self._positions.out_of_range(partition, wanted.offset):
                log.info("%s does not have offset %d: the policy decides where to go on", partition, wanted.offset)
        elif code not in _JUST_AGAIN:
            error = error_of(found.error_code, None, str(partition))
            self._failure = self._failure or error or error_of_code(ErrorCode.UNKNOWN_SERVER_ERROR, str(partition))

    # -- ending --------------------------------------------------------------------------------------------------------

    async def stop(self, deadline: Deadline) -> None:
        """Cancels what is in flight and ends the sessions, as far as brokers take part in it at once."""
        self._closing = True
        tasks = [node.task for node in self._nodes.values() if node.task is not None]
        if self._look_up is not None:
            tasks.append(self._look_up)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._answers.clear()
        limit_s = min(SESSION_CLOSE_S, deadline.left_s)
        await asyncio.gather(*(self._end_session(node_id, limit_s) for node_id in self._nodes))

    async def _end_session(self, node_id: int, limit_s: float) -> None:
        """A broker has room for so many sessions: one that is not ended takes it until it is evicted (KIP-227)."""
        part = self._nodes[node_id].session.last_request()
        if part is None:
            return
        try:
            async with asyncio.timeout(limit_s):
                # Not on the connection of fetches: there it would wait behind the one that waits for records.
                connection = await self._cluster.connection(node_id)
                await connection.request(self._request(part, 0.0), FetchResponse, timeout_s=limit_s)
        except (ApiError, ConnectionFailedError, TimeoutError) as error:
            log.debug("the fetch session with broker %d was not ended: %s", node_id, error)

"""Followers at work: for each leader some tasks, each of which fetches all its partitions in one session.

Records are appended as they come, in the order of the answers, and never decoded. What an answer means is decided by
`replication.follower`; here it is done to the log. That is never done in a thread, though truncation waits for the
disk: nobody can become leader of a log, or read it, while it is being cut. A partition that moves to another leader, or
is stopped, leaves between two answers: answers to earlier requests are ignored. So it is where another number of tasks
is set: those that have another one then go on with it where they stood, and a task without partitions ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.broker.followed_partition import FollowedPartition, FollowerFailures
from ottla.broker.follower_truncation import FIRST_DIVERGENCE_VERSION, FollowerTruncation
from ottla.broker.replication_quotas import ReplicationQuota
from ottla.broker.steady_fetches import SteadyFetches
from ottla.errors import ApiError, ErrorCode, OttlaError, StorageError
from ottla.ids import TopicPartition
from ottla.net.client import (
    Address,
    BrokerConnection,
    ConnectionFailedError,
    ConnectionOptions,
    Connector,
    connect,
    connect_tcp,
)
from ottla.protocol.codec import decode
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState
from ottla.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.versions import API_TABLE
from ottla.protocol.wire import ZERO_UUID
from ottla.replication.fetch_frames import FetchedPartition, template_of
from ottla.replication.fetch_requests import (
    SESSION_ERRORS,
    FetchKey,
    FetchPosition,
    FetchSessionReader,
    SessionPart,
    without_last_epochs,
)
from ottla.replication.follower import (
    Append,
    FindRestartOffset,
    Follower,
    Ignore,
    Pause,
    Stop,
    Truncate,
    find_restart_offset,
    pause_s,
)
from ottla.runtime.clock import Clock
from ottla.runtime.signal import Signal
from ottla.runtime.turns import Turns

logger = logging.getLogger(__name__)

LATEST: Final = -1
EARLIEST: Final = -2
THROTTLE_CHECK_S: Final = 0.5
FETCH_KEY: Final = 1
FIRST_TOPIC_ID_VERSION: Final = 13
FIRST_REPLICA_STATE_VERSION: Final = 15


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """The settings of a fetcher."""

    fetch_bytes_max: int
    response_bytes_max: int
    min_bytes: int
    wait_ms_max: int
    backoff_ms: int
    request_timeout_s: float


class Fetchers:
    """All fetchers of a broker: which partition is fetched by which task."""

    def __init__(
        self,
        node_id: int,
        settings: Callable[[], FetcherSettings],
        fetcher_count: Callable[[], int],
        broker_epoch: Callable[[], int],
        quota: ReplicationQuota,
        clock: Clock,
        connector: Connector = connect_tcp,
    ) -> None:
        self._clock = clock
        self._node_id = node_id
        self._settings = settings
        self._fetcher_count = fetcher_count
        self._broker_epoch = broker_epoch
        self._connector = connector
        self._quota = quota
        self._fetchers: dict[tuple[int, Address, int], _Fetcher] = {}
        self._ending: dict[_Fetcher, None] = {}  # without partitions, until their last response has come
        self._places: dict[TopicPartition, _Fetcher] = {}
        self._is_closed = False

    def follow(self, partition: FollowedPartition, leader_id: int, address: Address) -> None:
        """Fetches a partition from this leader from now on, and from no other."""
        self.leave(partition.name)
        if self._is_closed:
            return
        number = self._number_of(partition.name)
        key = (leader_id, address, number)
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            options = ConnectionOptions(
                client_id=f"broker-{self._node_id}-fetcher-{number}",
                request_timeout_s=self._settings().request_timeout_s,
            )
            fetcher = self._fetchers[key] = _Fetcher(
                self._node_id,
                leader_id,
                address,
                number,
                options,
                self._settings,
                self._broker_epoch,
                self._quota,
                self._clock,
                self._connector,
            )
        fetcher.add(partition)
        self._places[partition.name] = fetcher

    def _number_of(self, name: TopicPartition) -> int:
        return hash_of(name) % max(1, self._fetcher_count())

    async def resize(self, turns: Turns) -> None:
        """Another number of fetchers may be set: who has another one then leaves its own and goes on with that."""
        async for name in turns.over(list(self._places)):
            fetcher = self._places.get(name)
            if fetcher is not None and fetcher.number != self._number_of(name):
                self.follow(fetcher.partitions[name], fetcher.leader_id, fetcher.address)

    def source_of(self, name: TopicPartition) -> Address | None:
        """From where a partition is fetched now."""
        fetcher = self._places.get(name)
        return None if fetcher is None else fetcher.address

    def leave(self, name: TopicPartition) -> None:
        fetcher = self._places.pop(name, None)
        if fetcher is None:
            return
        fetcher.remove(name)
        if not fetcher.partitions:
            del self._fetchers[fetcher.leader_id, fetcher.address, fetcher.number]
            self._ending[fetcher] = None
            fetcher.end(lambda: self._ending.pop(fetcher, None))

    def close(self) -> None:
        """For good: a broker that is about to stop must not become one that leaders wait for."""
        self._is_closed = True
        for fetcher in (*self._fetchers.values(), *self._ending):
            fetcher.close()
        self._fetchers.clear()
        self._places.clear()


def hash_of(name: TopicPartition) -> int:
    """The same on every run, so that a simulation can be replayed."""
    return sum(name.topic.encode()) * 31 + name.partition


def _key_of(partition: FollowedPartition) -> FetchKey:
    return FetchKey(partition.name.topic, partition.topic_id, partition.name.partition)


class _Fetcher:
    """One task that fetches from one leader."""

    def __init__(
        self,
        node_id: int,
        leader_id: int,
        address: Address,
        number: int,
        options: ConnectionOptions,
        settings: Callable[[], FetcherSettings],
        broker_epoch: Callable[[], int],
        quota: ReplicationQuota,
        clock: Clock,
        connector: Connector,
    ) -> None:
        self._clock = clock
        self._node_id = node_id
        self.leader_id = leader_id
        self.address = address
        self.number = number
        self._options = options
        self._settings = settings
        self._broker_epoch = broker_epoch
        self._quota = quota
        self._connector = connector
        self._loop = asyncio.get_running_loop()
        self._session = FetchSessionReader()
        self._connection: BrokerConnection | None = None
        self._changed = Signal()
        self._has_missed_answers = False
        self._is_ending = False
        self._failed_requests = 0  # in a row
        self._failures = FollowerFailures(lambda: self._backoff_s)
        self._truncation = FollowerTruncation(node_id, self._is_here, self._failures, clock)
        self.partitions: dict[TopicPartition, FollowedPartition] = {}
        self._task = self._loop.create_task(self._run(), name=f"fetcher from broker {leader_id}")

    def add(self, partition: FollowedPartition) -> None:
        self.partitions[partition.name] = partition
        known, follower = self._session.known.get(_key_of(partition)), partition.follower
        if known is not None and follower is not None and known.leader_epoch == follower.leader_epoch:
            # It was away since. What was reported meanwhile was not taken, and is not reported again in this session.
            self._has_missed_answers = True
        self._changed.fire()

    def remove(self, name: TopicPartition) -> None:
        self.partitions.pop(name, None)
        self._changed.fire()

    def end(self, on_end: Callable[[], object]) -> None:
        """Its last partition has left, and none will come: ends by itself once its request in flight is answered."""
        self._is_ending = True
        self._task.add_done_callback(lambda _: on_end())
        self._changed.fire()

    def close(self) -> None:
        """Ends at once."""
        self._task.cancel()
        if self._connection is not None:
            self._connection.abort()

    # -- the loop ------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._is_ending:
            wanted = self._wanted()
            if not wanted:
                await self._changed.wait(self._time_to_next())
                continue
            try:
                await self._fetch(wanted)
                self._failed_requests = 0
            except ConnectionFailedError as error:
                if not self._failed_requests:
                    logger.info("cannot fetch from broker %d: %s", self.leader_id, error)
                await self._pause_all()
            except Exception as error:  # whatever it is: a fetcher that ends would be missed by nobody
                known = isinstance(error, OttlaError)
                logger.error("fetching from broker %d failed: %s", self.leader_id, error, exc_info=not known)
                await self._pause_all()

        await self._end_session()

    async def _end_session(self) -> None:
        """A leader has room for so many sessions: one that is not ended takes it until it is evicted (KIP-227)."""
        connection, part = self._connection, self._session.last_request()
        if connection is None:
            return
        try:
            if part is not None and not connection.is_closed:
                version = self._version(connection, ())
                await connection.request(self._request(version, part), FetchResponse, version_max=version)
        except OttlaError as error:
            logger.debug("the fetch session with broker %d was not ended: %s", self.leader_id, error)
        finally:
            connection.abort()

    async def _pause_all(self) -> None:
        self._failed_requests += 1
        self._session.failed()
        await asyncio.sleep(pause_s(self._failed_requests, self._backoff_s))

    def _wanted(self) -> dict[FetchKey, FollowedPartition]:
        now = self._loop.time()
        return {
            _key_of(partition): partition
            for partition in self.partitions.values()
            if (follower := partition.follower) is not None
            and follower.is_ready(now)
            and self._throttle_s(partition, follower) == 0
        }

    def _throttle_s(self, partition: FollowedPartition, follower: Follower) -> float:
        """How long a partition is not fetched because others took what the throttle allows."""
        return 0.0 if follower.is_caught_up else self._quota.delay_s(partition.name, partition.log.config)

    def _time_to_next(self) -> float | None:
        """Until a partition that pauses goes on; a throttle is looked at again soon, for it may be lifted."""
        now = self._loop.time()
        times = [
            max(follower.paused_until - now, min(self._throttle_s(partition, follower), THROTTLE_CHECK_S))
            for partition in self.partitions.values()
            if (follower := partition.follower) is not None and not follower.is_stopped
        ]
        return max(0.0, min(times)) if times else None

    async def _fetch(self, wanted: dict[FetchKey, FollowedPartition]) -> None:
        connection = await self._connected()
        wanted = await self._truncated(connection, wanted)
        positions = self._positions(wanted)
        if not positions:
            return  # all have left meanwhile, or pause
        response = await self._ask(connection, positions)
        await self._handle_answer(response, wanted, positions)
        run = self._steady_run(connection, wanted)
        unusual = None if run is None else await run.run()
        if unusual is not None:
            version = self._version(connection, wanted)
            response = decode(FetchResponse, unusual.frame, version, unusual.body_at)
            await self._handle_answer(response, wanted, dict(self._session.known))

    async def _truncated(
        self, connection: BrokerConnection, wanted: dict[FetchKey, FollowedPartition]
    ) -> dict[FetchKey, FollowedPartition]:
        """Those of them that may fetch, once what the leader does not have is cut off or fetching says what that is."""
        reports_divergence = self._version(connection, wanted) >= FIRST_DIVERGENCE_VERSION
        await self._truncation.run(connection, wanted.values(), reports_divergence=reports_divergence)
        now = self._loop.time()
        return {
            key: partition
            for key, partition in wanted.items()
            if (follower := partition.follower) is not None
            and follower.is_ready(now)
            and follower.before_fetch(partition.high_watermark, reports_divergence=reports_divergence) is None
        }

    def _is_here(self, partition: FollowedPartition) -> bool:
        return self.partitions.get(partition.name) is partition

    def _positions(self, wanted: Mapping[FetchKey, FollowedPartition]) -> dict[FetchKey, FetchPosition]:
        """Where those of them that are still followed here stand."""
        bytes_max = self._settings().fetch_bytes_max
        return {
            key: follower.position._replace(bytes_max=bytes_max)
            for key, partition in wanted.items()
            if (follower := partition.follower) is not None and self.partitions.get(partition.name) is partition
        }

    async def _handle_answer(
        self,
        response: FetchResponse,
        wanted: Mapping[FetchKey, FollowedPartition],
        positions: Mapping[FetchKey, FetchPosition],
    ) -> None:
        if not self._session.answered(response):
            if response.error_code not in SESSION_ERRORS:
                raise ApiError(ErrorCode.of(response.error_code), f"broker {self.leader_id} rejects fetches")
            return
        keys: dict[tuple[object, int], FetchKey] = {}
        for key in positions:
            keys[key.topic, key.partition] = keys[key.topic_id, key.partition] = key
        for topic in response.responses:
            name = topic.topic if topic.topic_id == ZERO_UUID else topic.topic_id
            for data in topic.partitions:
                asked = keys.get((name, data.partition_index))
                if asked is not None:
                    await self._handle_response(wanted[asked], positions[asked], data)

    async def _connected(self) -> BrokerConnection:
        if self._connection is None or self._connection.is_closed:
            self._connection = await connect(self.address, self._options, self._connector)
        return self._connection

    async def _ask(self, connection: BrokerConnection, positions: Mapping[FetchKey, FetchPosition]) -> FetchResponse:
        if self._has_missed_answers:
            self._has_missed_answers = False
            self._session.failed()
        version = self._version(connection, positions)
        part = self._session.next_request(positions)
        if version < FIRST_DIVERGENCE_VERSION:
            without_last_epochs(part.topics)
        request = self._request(version, part)
        return await connection.request(request, FetchResponse, version_max=version)

    def _version(self, connection: BrokerConnection, keys: Iterable[FetchKey]) -> int:
        """A leader from before topic ids, or topics without one, are asked by name."""
        version_max = FIRST_TOPIC_ID_VERSION - 1 if any(key.topic_id == ZERO_UUID for key in keys) else None
        return connection.version_of(API_TABLE[FETCH_KEY], version_max)

    def _request(self, version: int, part: SessionPart) -> FetchRequest:
        settings = self._settings()
        request = FetchRequest(
            max_wait_ms=settings.wait_ms_max,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_bytes_max,
            session_id=part.session_id,
            session_epoch=part.session_epoch,
            topics=part.topics,
            forgotten_topics_data=part.forgotten,
        )
        if version >= FIRST_REPLICA_STATE_VERSION:
            request.replica_state = ReplicaState(replica_id=self._node_id, replica_epoch=self._broker_epoch())
        else:
            request.replica_id = self._node_id
        return request

    # -- while nothing but records comes -------------------------------------------------------------------------------

    def _steady_run(
        self, connection: BrokerConnection, wanted: Mapping[FetchKey, FollowedPartition]
    ) -> SteadyFetches | None:
        """The next fetches, where all of our partitions are in the session, and none is throttled or pauses."""
        session = self._session
        positions = self._positions(wanted)
        now = self._loop.time()
        if (
            not session.is_established
            or session.known.keys() != positions.keys()
            # One whose directory has failed stays here until the controller says more, and is not waited for.
            or len(positions) != sum(one.follower is not None for one in self.partitions.values())
            or not all(one.follower is not None and one.follower.is_ready(now) for one in wanted.values())
            or connection.is_closed
            or any(self._quota.applies_to(one.name, one.log.config) for one in wanted.values())
        ):
            return None
        version = self._version(connection, wanted)
        request = self._request(version, SessionPart(session.session_id, session.epoch, [], []))
        template = template_of(connection.frame_of(request, version), request)
        if template is None:
            return None
        epoch, changes = self._broker_epoch(), self._changed.count

        taken = {(key.topic_id.bytes, key.partition): partition for key, partition in wanted.items()}

        def take(asked: FetchPosition, fetched: FetchedPartition, now_ms: int) -> FetchPosition | None:
            return self._append(taken[fetched.topic_id, fetched.partition], asked, fetched, now_ms)

        def may_go_on() -> bool:
            return self._changed.count == changes and self._broker_epoch() == epoch and not connection.is_login_due

        moved = [(key, position) for key, position in positions.items() if session.known[key] != position]
        now_ms, timeout_s = self._clock.now_ms, self._options.request_timeout_s
        return SteadyFetches(connection, session, template, moved, take, may_go_on, now_ms, timeout_s)

    def _append(
        self, partition: FollowedPartition, asked: FetchPosition, fetched: FetchedPartition, now_ms: int
    ) -> FetchPosition | None:
        """Appends records that fit, in the callback of the connection; where to ask next, or None where they do not."""
        follower = partition.follower
        if (
            follower is None
            or follower.is_stopped
            or self.partitions.get(partition.name) is not partition
            or (follower.position is not asked and follower.position[:-1] != asked[:-1])
        ):
            return None
        try:
            partition.append_fetched(follower, fetched, now_ms)
        except (ApiError, StorageError):
            return None  # it fails on the general way again, which deals with it
        if follower.position.bytes_max != asked.bytes_max:
            follower.position = follower.position._replace(bytes_max=asked.bytes_max)
        return follower.position

    # -- answers -------------------------------------------------------------------------------------------------------

    async def _handle_response(self, partition: FollowedPartition, asked: FetchPosition, data: PartitionData) -> None:
        follower = partition.follower
        if follower is None or self.partitions.get(partition.name) is not partition:
            return  # it left while the answer was on its way
        step = follower.handle_response(asked._replace(bytes_max=follower.position.bytes_max), data)
        with self._failures.of(partition, follower):
            match step:
                case Append():
                    partition.append_fetched(follower, data, self._clock.now_ms())
                    if data.records:
                        self._quota.record(partition.name, partition.log.config, len(data.records))  # type: ignore[arg-type]
                case Truncate(epoch, end_offset):
                    logger.info("%s: the leader's epoch %d ends at %d; truncating", partition.name, epoch, end_offset)
                    partition.truncate_to_leader(follower, epoch, end_offset, self._clock.now_ms())
                case FindRestartOffset():
                    await self._find_restart_offset(partition, follower)
                case Pause(reason):
                    logger.debug("%s: %s; will retry", partition.name, reason.name)
                    self._failures.pause(follower)
                case Stop(reason):
                    logger.info("%s: %s; waiting for the controller", partition.name, reason.name)
                    follower.is_stopped = True
                case Ignore():
                    pass

    @property
    def _backoff_s(self) -> float:
        return self._settings().backoff_ms / 1000

    async def _find_restart_offset(self, partition: FollowedPartition, follower: Follower) -> None:
        leader_end = await self._leader_offset(partition, follower, LATEST)
        leader_start = await self._leader_offset(partition, follower, EARLIEST)
        if partition.follower is not follower:
            return
        place = find_restart_offset(partition.log.end_offset, leader_start, leader_end)
        logger.warning(
            "%s: the leader has offsets %d to %d, this replica ends at %d; continuing at %d",
            partition.name,
            leader_start,
            leader_end,
            partition.log.end_offset,
            place.offset,
        )
        if place.offset == partition.log.end_offset and not place.is_new_start:
            self._failures.pause(follower)  # the leader has moved since: ask again, but not in a circle
            return
        partition.restart_at(follower, place.offset, self._clock.now_ms(), is_new_start=place.is_new_start)

    async def _leader_offset(self, partition: FollowedPartition, follower: Follower, spec: int) -> int:
        request = ListOffsetsRequest(
            replica_id=self._node_id,
            isolation_level=0,
            topics=[
                ListOffsetsTopic(
                    name=partition.name.topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=partition.name.partition,
                            current_leader_epoch=follower.leader_epoch,
                            timestamp=spec,
                        )
                    ],
                )
            ],
        )
        connection = await self._connected()
        response = await connection.request(request, ListOffsetsResponse)
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise ApiError(
                ErrorCode.of(answer.error_code), f"the leader does not report the offsets of {partition.name}"
            )
        return answer.offset

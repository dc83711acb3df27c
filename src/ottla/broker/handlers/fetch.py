"""Fetch: resolve the session, look whether there is enough, wait if not, then hand out slices of segment files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.follower_fetches import (
    FETCH_KEY,
    FRAME_BYTES_MAX,
    LOOKED_AT_MAX,
    FollowerFetches,
    FollowerSession,
    Leading,
)
from ottla.broker.known_leaders import known_leader
from ottla.broker.known_rights import READ_TOPIC
from ottla.broker.partition import READ_COMMITTED, READ_UNCOMMITTED, Partition, check_isolation
from ottla.broker.repeated import Repeated
from ottla.broker.rights import tells_all
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.replication.fetch_frames import FetchTemplate, template_of
from ottla.replication.fetch_sessions import FetchPlan, Reported, WantedKey, replica_epoch_of, replica_id_of
from ottla.replication.leader import NO_EPOCH
from ottla.replication.read_replicas import has_rack_aware_selector, replica_in_rack
from ottla.runtime.signal import Signal, Watch
from ottla.runtime.turns import STEP, Pace, Steps
from ottla.security.acls import Operation, Resource

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_BATCH_VERSION = 4  # earlier readers know only formats 0 and 1
FIRST_AT_LEAST_ONE_VERSION = 3
FIRST_SESSION_VERSION = 7
FIRST_RACK_VERSION = 11  # from here on followers serve consumers (KIP-392)
FIRST_TOPIC_ID_VERSION = 13
FIRST_LEADER_VERSION = 16  # the answer of a broker that does not lead names the one that does (KIP-951)
NO_OFFSET = -1
RESPONSE_BYTES, PARTITION_BYTES = 32, 48  # of a response, and of each partition in it, without records
HUNG_UP = -1  # among the places of partitions that moved: the reader did
UNKNOWN_CODES = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def handle(broker: Broker, request: FetchRequest, context: Context) -> FetchResponse:
    try:
        check_isolation(request.isolation_level)
    except ApiError as error:
        return await broker.turns.finish(_refused(request, context.version, error.code))
    remembered = context.session.repeated
    _forget_fetches(remembered)  # this one changes what they go on with
    asked_ms = broker.clock.steady_ms()
    # Now: the bytes are gone once the request has waited.
    frame = bytes(context.frame) if _may_repeat(broker, request, context) else None
    try:
        names = broker.image.names_by_id
        planning = broker.fetch_sessions.plan(request, context.version, asked_ms, names)
        plan = await broker.turns.finish(planning)
    except ApiError as error:
        return FetchResponse(error_code=error.code, session_id=0, responses=[])
    session = plan.continued_session
    changes = 0 if session is None else session.changes
    reading = _Reading(broker, request, context, plan)
    response = await reading.answer()
    # What is remembered is another dict where rules changed while the request waited.
    if frame is not None and session is not None and context.session.repeated is remembered:
        template = template_of(frame, request)
        follower = FollowerSession(replica_id_of(request), replica_epoch_of(request), session, asked_ms, changes)
        if template is not None:
            await broker.turns.finish(reading.learn(template, follower))
    return response


def _forget_fetches(remembered: dict[int, Repeated]) -> None:
    known = remembered.pop(FETCH_KEY, None)
    if known is not None:
        known.forget()


def _may_repeat(broker: Broker, request: FetchRequest, context: Context) -> bool:
    """Whether the next requests of a follower may take the short way."""
    return (
        broker.cluster is not None
        and replica_id_of(request) >= 0
        and 0 < len(context.frame) <= FRAME_BYTES_MAX
        and sum(len(topic.partitions) for topic in request.topics) <= LOOKED_AT_MAX
        and context.version >= FIRST_TOPIC_ID_VERSION
        and request.min_bytes <= 1
        and request.max_bytes >= 0
        and request.isolation_level == READ_UNCOMMITTED
        and not has_rack_aware_selector(broker.config.replica_selector_class)
        and context.session.listener_name == broker.config.inter_broker_listener
        and (context.rights is None or not tells_all())
    )


def _refused(request: FetchRequest, version: int, code: ErrorCode) -> Steps[FetchResponse]:
    """An error of the whole request. The oldest answers have no place for one but the partitions."""
    topics = []
    for topic in [] if version >= FIRST_TOPIC_ID_VERSION else request.topics:
        partitions = []
        for entry in topic.partitions:
            partitions.append(_failed(entry.partition, code))
            yield
        topics.append(FetchableTopicResponse(topic=topic.topic, partitions=partitions))
        yield
    error_code = code if version >= FIRST_SESSION_VERSION else ErrorCode.NONE
    return FetchResponse(error_code=error_code, session_id=0, responses=topics)


def _failed(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index, error_code=code, high_watermark=NO_OFFSET, aborted_transactions=None, records=b""
    )


class _Reading:
    """One Fetch request while it is served.

    Each partition is read once, and again only when it has moved: what was read of the others still holds.
    """

    __slots__ = (
        "_at_least_one",
        "_broker",
        "_bytes_max",
        "_bytes_min",
        "_bytes_read",
        "_context",
        "_follower_id",
        "_is_all_in_sync",
        "_is_complete",
        "_plan",
        "_rack",
        "_read_from",
        "_reads_followers",
        "_request",
        "_results",
        "_selects_by_rack",
    )

    def __init__(self, broker: Broker, request: FetchRequest, context: Context, plan: FetchPlan) -> None:
        self._broker = broker
        self._request = request
        self._context = context
        self._plan = plan
        replica_id = replica_id_of(request)
        self._follower_id = replica_id if replica_id >= 0 else None  # every negative id is a consumer's
        self._reads_followers = self._follower_id is None and context.version >= FIRST_RACK_VERSION
        # Of the consumer, where somebody wants it to matter. A broker that is alone has no followers.
        self._selects_by_rack = broker.cluster is not None and has_rack_aware_selector(
            broker.config.replica_selector_class
        )
        self._rack = request.rack_id if self._selects_by_rack and self._reads_followers else ""
        self._at_least_one = context.version >= FIRST_AT_LEAST_ONE_VERSION
        self._results: list[PartitionData] = []  # in the order of what is wanted
        self._read_from: list[tuple[Partition, int]] = []  # with how often it had moved by then
        self._bytes_max = min(request.max_bytes, broker.config.fetch_max_bytes)
        self._bytes_min = request.min_bytes
        if self._follower_id is not None:
            context.quota = None  # that of replication holds
        if context.quota is not None:
            self._bytes_max = int(min(self._bytes_max, context.quota.fetch_bytes_max))
            self._bytes_min = min(self._bytes_min, self._bytes_max)
        self._bytes_read = 0
        self._is_complete = False
        self._is_all_in_sync = True  # the follower, with every partition

    async def answer(self) -> FetchResponse:
        """The response, once there is enough to report or the reader has waited for as long as it wants to."""
        wanted = self._plan.wanted
        pace = self._broker.turns.pace() if len(wanted) >= STEP else None
        for key, entry in wanted:
            self._results.append(self._look(key, entry))
            if pace is not None and len(self._results) % STEP == 0 and pace.is_spent:
                await pace.yield_turn()
        if not self._is_enough() and self._request.max_wait_ms > 0:
            await self._wait()
        if self._context.quota is not None and not self._context.quota.may_fetch(self._response_bytes):
            return FetchResponse(session_id=self._broker.fetch_sessions.give_up(self._plan), responses=[])
        return await self._response(pace)

    def learn(self, template: FetchTemplate, follower: FollowerSession) -> Steps[None]:
        """Remembers what the follower's next requests repeat, where there was nothing unusual in any partition."""
        broker, session, node_id = self._broker, follower.session, follower.node_id
        repeated, connection = self._context.session.repeated, self._context.connection
        wanted = self._plan.wanted
        if broker.cluster is None or session.changes != follower.changes or len(self._read_from) != len(wanted):
            return
        if not self._is_all_in_sync:
            return  # known before thousands of others are looked at
        leading = Leading(
            broker.fetch_sessions,
            broker.cluster.leader_quota,
            broker.clock,
            lambda: broker.config.fetch_max_bytes,
            lambda: broker.is_stopping,
        )
        fetches = FollowerFetches(leading, follower, template, self._request)
        # At once: whoever closes the connection, or changes rules, between two steps has it forgotten.
        repeated[FETCH_KEY] = fetches
        connection.on_close = self._context.session.forget_repeated
        is_learned = False
        try:
            for place, (key, entry) in enumerate(wanted):
                (partition, seen_count), data = self._read_from[place], self._results[place]
                leader, known = partition.current_leader, session.partitions.get(key)
                has_news = data.error_code or data.diverging_epoch is not None
                if fetches.is_forgotten or fetches.has_too_many or has_news or known is None or leader is None:
                    return
                if node_id not in leader.isr or node_id not in leader.followers:
                    return  # one that moves away may be in sync, and not a follower
                has_more = partition.log.end_offset > entry.fetch_offset
                fetches.add(key, known, partition, leader, has_moved=has_more or partition.moved.count != seen_count)
                if place % STEP == STEP - 1:
                    yield
            is_learned = not connection.is_closed
        finally:  # also where the task is cancelled between two steps
            if not is_learned:
                _forget_fetches(repeated)
                fetches.forget()

    @property
    def _response_bytes(self) -> int:
        """About how large the response will be."""
        return self._bytes_read + RESPONSE_BYTES + PARTITION_BYTES * len(self._results)

    async def _wait(self) -> None:
        """Looks again at partitions that move, until there is enough or the time is up.

        A reader that hung up is answered with what is available: if it is gone, nothing is held for it any longer.
        """
        deadline = self._broker.loop.time() + self._request.max_wait_ms / 1000
        connection, hung_up = self._context.connection, Signal()
        connection.on_hang_up = hung_up.fire
        watch = Watch()
        watch.add(HUNG_UP, hung_up, hung_up.count)
        try:
            # An error would have been an answer by itself, so every partition was found.
            await self._broker.turns.finish(self._watch_all(watch))
            while not (self._is_enough() or self._broker.is_stopping or connection.has_hung_up):
                moved = await watch.wait(deadline - self._broker.loop.time())
                if not moved or HUNG_UP in moved:
                    break
                await self._broker.turns.finish(self._look_again(moved, watch))
        finally:
            watch.close()

    def _watch_all(self, watch: Watch) -> Steps[None]:
        for place, (partition, seen_count) in enumerate(self._read_from):
            watch.add(place, partition.moved, seen_count)
            if place % STEP == STEP - 1:
                yield

    def _look_again(self, moved: list[int], watch: Watch) -> Steps[None]:
        for place in moved:
            self._bytes_read -= _size_of(self._results[place])
            before, _ = self._read_from[place]
            self._results[place] = self._look(*self._plan.wanted[place], place)
            partition, seen_count = self._read_from[place]
            if partition is not before:  # deleted, and recreated under the same name
                watch.add(place, partition.moved, seen_count)
            yield

    def _is_enough(self) -> bool:
        """Whether what was read is worth answering: enough bytes, or an error."""
        return self._is_complete or not self._plan.wanted or self._bytes_read >= self._bytes_min

    def _look(self, key: WantedKey, entry: FetchPartition, place: int | None = None) -> PartitionData:
        """Reads what is available in one partition, and notes what the answer holds then."""
        try:
            partition = self._find(key)
            read_from = (partition, partition.moved.count)
            if place is None:
                self._read_from.append(read_from)
            else:
                self._read_from[place] = read_from
            bytes_left = max(0, self._bytes_max - self._bytes_read)
            data = self._read(partition, entry, bytes_left, is_first=self._bytes_read == 0)
        except ApiError as refusal:
            data = _failed(entry.partition, self._code_of(key, refusal))
            self._is_complete = True
        self._bytes_read += _size_of(data)
        self._is_complete = (
            self._is_complete
            or data.diverging_epoch is not None
            or data.preferred_read_replica >= 0
            or (self._selects_by_rack and self._follower_id is not None and self._is_watermark_news(key, data))
        )
        return data

    def _code_of(self, key: WantedKey, refusal: ApiError) -> ErrorCode:
        error = refusal if self._follower_id is not None else self._broker.unless_outdated(refusal)
        return self._of_topic_that_went(key) if error.code == ErrorCode.UNKNOWN_TOPIC_ID else error.code

    def _is_watermark_news(self, key: WantedKey, data: PartitionData) -> bool:
        """Consumers read from followers, up to the high watermark that the leader sent them: so it is sent at once."""
        reported = self._plan.reported_of(key)
        return reported is not None and data.high_watermark > reported.high_watermark

    def _find(self, key: WantedKey) -> Partition:
        rights = self._context.rights
        if rights is not None and self._follower_id is None:
            name = key.topic or self._plan.name_of(key)
            if name and name not in rights.known(READ_TOPIC) and not rights.may(Operation.READ, Resource.TOPIC, name):
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if self._context.version >= FIRST_TOPIC_ID_VERSION:
            return self._broker.replicas.find_by_id(key.topic_id, key.partition)
        return self._broker.replicas.find(key.topic, key.partition)

    def _of_topic_that_went(self, key: WantedKey) -> ErrorCode:
        """A topic id that existed when the reader named it and does not now: the topic was deleted, or recreated."""
        name = self._plan.name_of(key)
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        is_there = self._broker.image.partition(TopicPartition(name, key.partition)) is not None
        return ErrorCode.INCONSISTENT_TOPIC_ID if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _read(self, partition: Partition, entry: FetchPartition, bytes_left: int, *, is_first: bool) -> PartitionData:
        partition.check_epoch(max(NO_EPOCH, entry.current_leader_epoch))  # here every negative one does not say
        if not self._reads_followers:
            partition.check_leader()
        high_watermark, last_stable_offset, log_start_offset = partition.watermarks
        data = PartitionData(
            partition_index=entry.partition,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
            aborted_transactions=None,
            records=b"",
        )
        if self._rack and self._note_read_replica(partition, entry, data):
            return data
        if self._follower_id is not None:
            self._check_is_broker()
            partition.leader.check_follower(
                self._follower_id, entry.current_leader_epoch, replica_epoch_of(self._request)
            )
        if entry.last_fetched_epoch >= 0 and self._note_divergence(partition, entry, data):
            return data
        if self._follower_id is not None:
            self._note_follower(partition, entry, self._follower_id)
            data.high_watermark, data.last_stable_offset, _ = partition.watermarks
            upper_offset = partition.log.end_offset
            if self._is_throttled(partition, self._follower_id):
                return data
        else:
            is_committed_only = self._request.isolation_level == READ_COMMITTED
            upper_offset = last_stable_offset if is_committed_only else high_watermark
        max_bytes = min(entry.partition_max_bytes, bytes_left)
        is_negative = entry.partition_max_bytes < 0 or self._request.max_bytes < 0
        found = partition.read(
            entry.fetch_offset,
            max_bytes,
            upper_offset=upper_offset,
            at_least_one=is_negative or (is_first and self._at_least_one),
        )
        if is_negative and found is not None:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the number of bytes is negative")
        if self._request.isolation_level == READ_COMMITTED and self._follower_id is None:
            data.aborted_transactions = []
        if found is None or (max_bytes <= 0 and not is_first):
            return data
        self._check_format()
        if data.aborted_transactions is not None:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in partition.aborted_transactions(entry.fetch_offset, found.upper_offset)
            ]
        data.records = found.records
        if self._follower_id is not None and self._broker.cluster is not None:
            self._broker.cluster.leader_quota.record(partition.name, partition.log.config, found.records.size_bytes)
        return data

    def _is_throttled(self, partition: Partition, node_id: int) -> bool:
        """Whether a follower that is not in sync gets nothing for now: it asks again."""
        cluster = self._broker.cluster
        if cluster is None or node_id in partition.leader.isr:
            return False
        return cluster.leader_quota.delay_s(partition.name, partition.log.config) > 0

    def _note_read_replica(self, partition: Partition, entry: FetchPartition, data: PartitionData) -> bool:
        """Names the replica that this consumer is to read from, if that is another one: nothing is read here then."""
        leader = partition.current_leader
        if leader is None:
            return False
        racks = {node.node_id: node.rack for node, _ in self._broker.endpoints(self._context.session.listener_name)}
        chosen = replica_in_rack(leader, entry.fetch_offset, self._rack, racks)
        if chosen is None:
            return False
        data.preferred_read_replica = chosen
        return True

    def _check_is_broker(self) -> None:
        """Followers read what is not committed, and what they read counts as replicated: that is for brokers only."""
        if self._context.session.listener_name != self._broker.config.inter_broker_listener:
            raise ApiError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "replicas fetch by the listener of brokers (inter.broker.listener.name)",
            )

    def _note_follower(self, partition: Partition, entry: FetchPartition, node_id: int) -> None:
        """A follower that asks from an offset on has everything before: more may be committed now, or it in sync."""
        if not partition.log.log_start_offset <= entry.fetch_offset <= partition.log.end_offset:
            return
        now_ms, broker_epoch = self._broker.clock.steady_ms(), replica_epoch_of(self._request)
        partition.record_fetch(node_id, entry.fetch_offset, entry.log_start_offset, now_ms, broker_epoch)
        if self._broker.cluster is not None:
            self._broker.cluster.in_sync.fetched(partition, node_id)
        if node_id not in partition.leader.isr:
            self._is_all_in_sync = False

    def _check_format(self) -> None:
        """Readers of the oldest versions cannot decode what is in the log; they get an error instead.

        zstd is not held back, though a version came with it: clients that ask with an older one read it, and Kafka 4
        gives it to them.
        """
        version = self._context.version
        if version < FIRST_BATCH_VERSION:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Fetch {version} cannot carry batches of format 2")

    @staticmethod
    def _note_divergence(partition: Partition, entry: FetchPartition, data: PartitionData) -> bool:
        """Reports that the reader's last epoch ended earlier here than where it reads: it must go back (KIP-595)."""
        epoch, end_offset = partition.log.epochs.end_of(entry.last_fetched_epoch, partition.log.end_offset)
        if epoch < 0:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition.name} does not know epoch {entry.last_fetched_epoch}"
            )
        if epoch >= entry.last_fetched_epoch and end_offset >= entry.fetch_offset:
            return False
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return True

    # -- answering -----------------------------------------------------------------------------------------------------

    async def _response(self, pace: Pace | None) -> FetchResponse:
        """The answer: all partitions in a full fetch, those with news in an incremental one."""
        topics: list[FetchableTopicResponse] = []
        leaders: set[int] = set()
        for number, (key, data) in enumerate(self._in_order(), 1):
            if pace is not None and number % STEP == 0 and pace.is_spent:
                await pace.yield_turn()
            reported = Reported(data.high_watermark, data.log_start_offset)
            has_trouble = bool(data.error_code) or data.diverging_epoch is not None or data.preferred_read_replica >= 0
            if not self._plan.note_reported(key, reported, has_records=data.records != b"", has_trouble=has_trouble):
                continue
            if data.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
                self._name_leader(key, data, leaders)
            # The order of partitions is kept, also where those of one topic do not stand together.
            if not topics or (topics[-1].topic, topics[-1].topic_id) != key[:2]:
                topics.append(FetchableTopicResponse(topic=key.topic, topic_id=key.topic_id, partitions=[]))
            topics[-1].partitions.append(data)
        response = FetchResponse(session_id=self._plan.session_id, responses=topics)
        if leaders and self._follower_id is None:  # a broker knows where the others are
            response.node_endpoints = [
                NodeEndpoint(node_id=node.node_id, host=endpoint.host, port=endpoint.port, rack=node.rack)
                for node, endpoint in self._broker.endpoints(self._context.session.listener_name)
                if node.node_id in leaders
            ]
        return response

    def _in_order(self) -> list[tuple[WantedKey, PartitionData]]:
        """What was read, in the order of what is wanted; but who is not there comes last, as Kafka answers."""
        read = [(key, data) for (key, _), data in zip(self._plan.wanted, self._results, strict=True)]
        if self._is_complete:
            read.sort(key=lambda one: one[1].error_code in UNKNOWN_CODES)
        return read

    def _name_leader(self, key: WantedKey, data: PartitionData, leaders: set[int]) -> None:
        if self._context.version < FIRST_LEADER_VERSION:
            return
        broker = self._broker
        leader = known_leader(broker.image, broker.replicas, key.topic, key.topic_id, key.partition)
        if leader is not None:
            data.current_leader = LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.epoch)
            leaders.add(leader.node_id)


def _size_of(data: PartitionData) -> int:
    return getattr(data.records, "size_bytes", 0)

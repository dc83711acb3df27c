"""Produce: append to every partition first, then wait once for all of them.

A batch that takes long to check is copied and checked in a thread, so that others are served meanwhile. Its connection
waits, as for any answer, so what the same producer sends next is appended behind it.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.broker.commits import PendingAcknowledgement, committed
from ottla.broker.known_leaders import known_leader
from ottla.broker.partition import ALL_REPLICAS, Partition
from ottla.broker.produce_refusals import refuse
from ottla.broker.refused_starts import FOR_NOW, BatchStart, Place, start_of
from ottla.broker.repeated_produce import PRODUCE_KEY, RepeatedProduce
from ottla.broker.rights import tells_all
from ottla.broker.transactional_produce import TransactionChecks, has_transactional_batches
from ottla.cluster.image import INTERNAL_TOPICS
from ottla.errors import ApiError, ErrorCode, ProtocolError, RecordsError
from ottla.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.records.layout import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    LEGACY_LENGTH_MIN,
    LENGTH_AT,
    LENGTH_PREFIX,
    MAGIC,
    MAGIC_AT,
    Compression,
)
from ottla.runtime.turns import STEP, Pace, Steps, done_at_once
from ottla.storage.admission import TakesLongError, only_batch
from ottla.storage.appended import Appended

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_BATCH_VERSION = 3  # from here on only batches of format 2 are sent
FIRST_ZSTD_VERSION = 7
FIRST_LEADER_VERSION = 10  # the answer of a broker that does not lead names the one that does (KIP-951)
FIRST_TOPIC_ID_VERSION = 13
NO_OFFSET = -1
APPENDED_AT_ONCE_MAX = 100  # partitions: a millisecond or two
ADMIN_CLIENT_ID = "__admin_client"  # who may write even to the topics of coordinators, as in Kafka

_LENGTH = struct.Struct(">i")


class Waiting(NamedTuple):
    """An answer that is right once its records are committed."""

    pending: PendingAcknowledgement
    answer: PartitionProduceResponse
    place: Place
    start: BatchStart | None


class Unchecked(NamedTuple):
    """A batch that is checked in a thread, and the answer that waits for it."""

    place: Place
    partition: Partition
    item: PartitionProduceData
    records: bytearray
    answer: PartitionProduceResponse


async def handle(broker: Broker, request: ProduceRequest, context: Context) -> ProduceResponse | None:
    names_no_transaction = request.transactional_id is None
    topics = request.topic_data
    count = (
        len(topics[0].partition_data) if len(topics) == 1 else sum(1 + len(topic.partition_data) for topic in topics)
    )
    gives_way = count > APPENDED_AT_ONCE_MAX
    if gives_way:
        keep_records(request, context)
    if names_no_transaction and has_transactional_batches(request):
        refusing = _all_refused(request)
        return await broker.turns.finish(refusing) if gives_way else done_at_once(refusing)
    if count > 1:
        naming = _named_once(topics)
        request.topic_data = await broker.turns.finish(naming) if gives_way else done_at_once(naming)
    checks = None
    # Looked at again: where a partition stood twice, the entry with such a batch may have gone.
    if not names_no_transaction and has_transactional_batches(request):
        checks = TransactionChecks(
            broker.replicas,
            request,
            context.version,
            broker.clock.now_ms(),
            verifies_added=broker.config.transaction_partition_verification_enable,
        )
        if checks.asked:
            keep_records(request, context)
            await checks.ask_coordinator(broker.verifier)
    unchecked: list[Unchecked] = []
    uncommitted: list[Waiting] = []
    pace = broker.turns.pace() if gives_way else None
    response = await _append_all(broker, request, context, checks, unchecked, uncommitted, pace)
    if names_no_transaction and not unchecked:
        _remember(broker, request, response, context)
    if unchecked:
        await _append_checked(broker, request, context, unchecked, uncommitted, checks)
    if request.acks == 0:
        _check_unanswered(response)
        return None
    if uncommitted:
        await _wait_until_committed(broker, request, context, uncommitted)
    return _with_leaders(broker, context.version, context.session.listener_name, response)


def _remember(broker: Broker, request: ProduceRequest, response: ProduceResponse, context: Context) -> None:
    """A request to one partition that went well is likely to come again, with other records."""
    topics = response.responses
    if not context.frame:
        return  # some of it was forbidden, so what came is not what was handled; or it is gone
    if context.quota is not None:
        return  # whoever is limited is measured, on the general way
    if context.rights is not None and tells_all():
        return  # and so is what is allowed written down
    if len(topics) != 1 or len(topics[0].partition_responses) != 1 or topics[0].partition_responses[0].error_code:
        return
    index = topics[0].partition_responses[0].index
    partition = broker.replicas.find_named_or_by_id(topics[0].name, topics[0].topic_id, index)
    version, session = context.version, context.session
    repeated = session.repeated.get(PRODUCE_KEY)
    if repeated is None:
        repeated = session.repeated[PRODUCE_KEY] = RepeatedProduce(session, broker.clock)
        context.connection.on_close = session.forget_repeated
    assert isinstance(repeated, RepeatedProduce)
    completed = partial(_with_leaders, broker, version, session.listener_name)
    repeated.learn(context.frame, request, response, version, partition, completed)


def _named_once(topics: list[TopicProduceData]) -> Steps[list[TopicProduceData]]:
    """Every partition once: of one that is named again, what is named last, as Kafka does."""
    items: dict[tuple[str, UUID], dict[int, PartitionProduceData]] = {}
    for number, topic in enumerate(topics, 1):
        items.setdefault((topic.name, topic.topic_id), {}).update((item.index, item) for item in topic.partition_data)
        if number % STEP == 0:
            yield
    named = []
    for (name, topic_id), of_topic in items.items():
        named.append(TopicProduceData(name=name, topic_id=topic_id, partition_data=list(of_topic.values())))
        if len(named) % STEP == 0:
            yield
    return named


def _all_refused(request: ProduceRequest) -> Steps[ProduceResponse | None]:
    """Records of a transaction without its id fail the whole request, whatever else there is to say."""
    refusal = ApiError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "records of a transaction need its transactional id"
    )
    responses = []
    for topic in (yield from _named_once(request.topic_data)):
        answers = []
        for item in topic.partition_data:
            answers.append(PartitionProduceResponse(index=item.index, base_offset=NO_OFFSET))
            refuse(answers[-1], refusal, item.records, NO_OFFSET)
            yield
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    response = ProduceResponse(responses=responses)
    if request.acks == 0:
        _check_unanswered(response)
        return None
    return response


def keep_records(request: ProduceRequest, context: Context) -> None:
    """The bytes of a request may stand in a buffer that the next bytes overwrite: waiting takes a copy."""
    for topic in request.topic_data:
        for item in topic.partition_data:
            if item.records is not None:
                item.records = context.connection.kept(memoryview(item.records))
    context.forget_frame()


async def _append_all(
    broker: Broker,
    request: ProduceRequest,
    context: Context,
    checks: TransactionChecks | None,
    unchecked: list[Unchecked],
    uncommitted: list[Waiting],
    pace: Pace | None,
) -> ProduceResponse:
    """Appends to every partition; `checks` know of transactions, where the request has any.

    Partitions are independent of each other, so others may have their turn between two of them, where there is a pace.
    """
    version = context.version
    acks = request.acks
    now_ms = broker.clock.now_ms()
    responses = []
    for topic in request.topic_data:
        if pace is not None and pace.is_spent:
            await pace.yield_turn()
        partitions = []
        for item in topic.partition_data:
            answer = PartitionProduceResponse(index=item.index, base_offset=NO_OFFSET)
            log_start_offset = NO_OFFSET
            try:
                partition = (
                    broker.replicas.find(topic.name, item.index)
                    if version < FIRST_TOPIC_ID_VERSION
                    else broker.replicas.find_by_id(topic.topic_id, item.index)
                )
                records = _checked_request(item, version)
                if checks is not None:
                    checks.check_verdict(item)
                if acks not in (-1, 0, 1):
                    raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}: must be 0, 1 or -1 (all)")
                if partition.name.topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
                    raise ApiError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION,
                        f"{partition.name.topic} is an internal topic: only brokers write to it",
                    )
                log_start_offset = partition.log.log_start_offset
                if checks is not None:
                    checks.check_log(item)
                starts = context.session.refused_starts
                if starts is not None:
                    starts.check(
                        _place(topic, item), start_of(records), partition.log.producers, broker.clock.steady_ms()
                    )
                appended = partition.append(records, acks=acks, now_ms=now_ms)
                if _accept(answer, partition, appended, acks):
                    pending = PendingAcknowledgement(partition, appended.last_offset + 1, partition.leadership)
                    uncommitted.append(Waiting(pending, answer, _place(topic, item), start_of(records)))
            except TakesLongError:
                unchecked.append(Unchecked(_place(topic, item), partition, item, bytearray(records), answer))
            except ApiError as error:
                _refuse(broker, context, answer, error, _place(topic, item), item.records, log_start_offset)
            partitions.append(answer)
            if pace is not None and pace.is_spent:
                await pace.yield_turn()
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions))
    return ProduceResponse(responses=responses)


def _checked_request(item: PartitionProduceData, version: int) -> Buffer:
    """The records for a partition, if a request of this version may carry them so."""
    records = item.records
    if not records:
        raise RecordsError(ErrorCode.INVALID_RECORD, "there are no records for this partition")
    if version >= FIRST_BATCH_VERSION and len(records) > ATTRIBUTES_AT:
        if records[MAGIC_AT] < MAGIC:
            if _LENGTH.unpack_from(records, LENGTH_AT)[0] < LEGACY_LENGTH_MIN:
                raise RecordsError(ErrorCode.CORRUPT_MESSAGE, "the records have a length below the smallest possible")
            raise RecordsError(ErrorCode.INVALID_RECORD, f"Produce {version} carries batches of format 2 only")
        if version < FIRST_ZSTD_VERSION and records[ATTRIBUTES_AT + 1] & COMPRESSION_MASK == Compression.ZSTD:
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Produce {version} does not support zstd")
        if LENGTH_PREFIX + _LENGTH.unpack_from(records, LENGTH_AT)[0] < len(records):
            only_batch(memoryview(records))  # before anybody asks whose it is
    return records


def _place(topic: TopicProduceData, item: PartitionProduceData) -> Place:
    return Place(topic.name, topic.topic_id, item.index)


def _refuse(
    broker: Broker,
    context: Context,
    answer: PartitionProduceResponse,
    refusal: ApiError,
    place: Place,
    records: Buffer | None,
    log_start_offset: int,
) -> None:
    """A function of its own: an error that a frame keeps keeps the frame, and with it the records."""
    error = broker.unless_outdated(refusal)
    refuse(answer, error, records, log_start_offset)
    if error.code in FOR_NOW:
        context.session.note_refused(place, start_of(records), broker.clock.steady_ms())


async def _append_checked(
    broker: Broker,
    request: ProduceRequest,
    context: Context,
    unchecked: list[Unchecked],
    uncommitted: list[Waiting],
    checks: TransactionChecks | None,
) -> None:
    """Appends the batches that take long, each once a thread has found it sound."""
    acks = request.acks
    for place, partition, item, records, answer in unchecked:
        try:
            async with broker.long_checks:
                admit = partial(partition.log.admission.admit, records, broker.clock.now_ms())
                admitted = await broker.offload.computed(admit)
            if checks is not None:
                checks.check_log(item)  # a marker may have come meanwhile
            start, starts = start_of(records), context.session.refused_starts
            if starts is not None:
                starts.check(place, start, partition.log.producers, broker.clock.steady_ms())
            appended = partition.append_admitted(admitted, acks=acks, now_ms=broker.clock.now_ms())
            if _accept(answer, partition, appended, acks):
                pending = PendingAcknowledgement(partition, appended.last_offset + 1, partition.leadership)
                uncommitted.append(Waiting(pending, answer, place, start))
        except ApiError as error:
            _refuse(broker, context, answer, error, place, records, partition.log.log_start_offset)


def _accept(answer: PartitionProduceResponse, partition: Partition, appended: Appended, acks: int) -> bool:
    """Sets the offsets in the answer; returns whether they are right only once the records are committed."""
    answer.base_offset = appended.first_offset
    answer.log_append_time_ms = appended.append_time_ms
    answer.log_start_offset = partition.log.log_start_offset
    return acks == ALL_REPLICAS and partition.committed_offset <= appended.last_offset


def _check_unanswered(response: ProduceResponse) -> None:
    """acks=0 has no answer; if something failed, the connection is closed so that the producer notices."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise ProtocolError(
                    f"a record for {topic.name}-{partition.index} sent with acks=0 failed with "
                    f"{ErrorCode(partition.error_code).name}: {partition.error_message}"
                )


async def _wait_until_committed(
    broker: Broker, request: ProduceRequest, context: Context, uncommitted: list[Waiting]
) -> None:
    """Waits until every in-sync replica has the records, or the request's time is up."""
    deadline = broker.loop.time() + max(0, request.timeout_ms) / 1000
    outcomes = await committed([waiting.pending for waiting in uncommitted], deadline)
    for (_, answer, place, start), error in zip(uncommitted, outcomes, strict=True):
        if error:
            answer.error_code = error
            answer.base_offset = NO_OFFSET
            context.session.note_refused(place, start, broker.clock.steady_ms())


def _with_leaders(broker: Broker, version: int, listener_name: str, response: ProduceResponse) -> ProduceResponse:
    """From version 10 on, the answer of a broker that does not lead names the leader (KIP-951)."""
    if version < FIRST_LEADER_VERSION:
        return response
    leaders: set[int] = set()
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader = known_leader(broker.image, broker.replicas, topic.name, topic.topic_id, answer.index)
                if leader is not None:
                    answer.current_leader = LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.epoch)
                    leaders.add(leader.node_id)
    if leaders:
        response.node_endpoints = [
            NodeEndpoint(node_id=node.node_id, host=endpoint.host, port=endpoint.port, rack=node.rack)
            for node, endpoint in broker.endpoints(listener_name)
            if node.node_id in leaders
        ]
    return response

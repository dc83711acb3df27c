"""TxnOffsetCommit: a group's offsets as a part of a transaction. They count once its marker says so."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.group_requests import caller_of, commits_in_pieces, partition_count, topics_of_pieces
from ottla.broker.verification import code_for_writer
from ottla.errors import ApiError, ErrorCode
from ottla.groups.machine import GroupMachine
from ottla.ids import NO_SEQUENCE, TopicPartition
from ottla.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.runtime.stepping import all_of
from ottla.runtime.turns import STEP, Steps
from ottla.storage.producer_state import Verification
from ottla.transactions.state import ProducerIdAndEpoch

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.cluster.image import ClusterImage

FIRST_ABORTABLE_VERSION = 4
PARTITIONS_PER_STEP = 1000  # that are answered with an error
FIRST_VERSION_2_VERSION = 5  # adds the partition of the offsets by itself


class _Asked(NamedTuple):
    """A request whose topics all stand in `image`, and the partition that keeps the offsets of its group."""

    broker: Broker
    context: Context
    image: ClusterImage
    name: TopicPartition
    verification: Verification | None


async def handle(broker: Broker, request: TxnOffsetCommitRequest, context: Context) -> TxnOffsetCommitResponse:
    image = broker.image  # one view to look for topics in
    unknown = await broker.turns.finish(_take_unknown_out(image, request))
    if not request.topics:
        return TxnOffsetCommitResponse(topics=unknown)
    answer = await _commit(broker, request, context, image)
    return _with_unknown(answer, unknown) if unknown else answer


async def _commit(
    broker: Broker, request: TxnOffsetCommitRequest, context: Context, image: ClusterImage
) -> TxnOffsetCommitResponse:
    """Commits if the coordinator knows of the transaction, and no marker has ended it since."""
    if not request.group_id:
        return await broker.turns.finish(_all_refused(request, ErrorCode.INVALID_GROUP_ID))
    if not request.transactional_id:
        return await broker.turns.finish(_all_refused(request, ErrorCode.INVALID_REQUEST))
    adds = context.version >= FIRST_VERSION_2_VERSION
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    verification = None
    try:
        broker.groups.runner_of(request.group_id)
        name = TopicPartition(broker.groups.topic, broker.groups.partition_of(request.group_id))
        is_verified = adds or broker.config.transaction_partition_verification_enable
        if is_verified and not broker.replicas.find(*name).log.producers.has_open_transaction(*producer):
            verification = _begin_verification(broker, name, producer)

            def begin_again(name: TopicPartition) -> bool:
                nonlocal verification
                if broker.replicas.find(*name).log.producers.has_open_transaction(*producer):
                    return False  # a request beside this one has opened it
                before, verification = verification, _begin_verification(broker, name, producer)
                return verification is not before

            verdicts = await broker.verifier.verify(
                request.transactional_id, producer, [name], adds=adds, begin_again=begin_again
            )
            code = code_for_writer(verdicts[name], knows_abortable=context.version >= FIRST_ABORTABLE_VERSION)
            if code:
                return await broker.turns.finish(_all_refused(request, code))
            broker.replicas.find(*name).log.producers.check_verified(*producer, NO_SEQUENCE, verification)
    except ApiError as error:
        return await broker.turns.finish(_all_refused(request, error.code))
    asked = _Asked(broker, context, image, name, verification)
    pieces = commits_in_pieces(request)
    if len(pieces) == 1:
        return await _commit_piece(asked, request, is_checked=False)
    answers = await all_of(_commits(asked, pieces), broker.turns)
    return TxnOffsetCommitResponse(topics=topics_of_pieces(answers))


def _begin_verification(broker: Broker, name: TopicPartition, producer: ProducerIdAndEpoch) -> Verification:
    """The one that is in progress, if no marker has ended it."""
    producers = broker.replicas.find(*name).log.producers
    now_ms = broker.clock.now_ms()
    return producers.begin_verification(*producer, NO_SEQUENCE, starts_at_zero=False, now_ms=now_ms)


def _commits(
    asked: _Asked, pieces: list[TxnOffsetCommitRequest]
) -> Iterator[Coroutine[Any, Any, TxnOffsetCommitResponse]]:
    """One for each piece, to be begun one after the other."""
    is_first, was_open = True, False
    for piece in pieces:
        is_checked = not is_first and (was_open or asked.verification is not None)
        yield _commit_piece(asked, piece, is_checked=is_checked)
        is_first, was_open = False, was_open or _is_open(asked, piece)


async def _commit_piece(asked: _Asked, piece: TxnOffsetCommitRequest, *, is_checked: bool) -> TxnOffsetCommitResponse:
    broker = asked.broker
    if is_checked:
        # A marker may have come while others had their turn: what is written behind it would belong to no
        # transaction. Where no piece has been written yet, none is open here, and the coordinator's word holds.
        try:
            producers = broker.replicas.find(*asked.name).log.producers
            producers.check_verified(piece.producer_id, piece.producer_epoch, NO_SEQUENCE, asked.verification)
        except ApiError as error:
            return _refused(piece, error.code)
    gone = [] if broker.image is asked.image else _take_gone_out(asked.image, broker.image, piece)
    if not piece.topics:
        return TxnOffsetCommitResponse(topics=gone)
    decide, caller = GroupMachine.commit_offsets_in_transaction, caller_of(asked.context)
    answer = await broker.groups.ask(piece.group_id, partial(_refused, piece), decide, piece, caller)
    return TxnOffsetCommitResponse(topics=[*gone, *answer.topics]) if gone else answer


def _is_open(asked: _Asked, piece: TxnOffsetCommitRequest) -> bool:
    try:
        producers = asked.broker.replicas.find(*asked.name).log.producers
    except ApiError:
        return False
    return producers.has_open_transaction(piece.producer_id, piece.producer_epoch)


def _take_unknown_out(
    image: ClusterImage, request: TxnOffsetCommitRequest
) -> Steps[list[TxnOffsetCommitResponseTopic]]:
    """Leaves in the request the partitions that exist; returns the answers for the others."""
    unknown, known = [], []
    for number, topic in enumerate(request.topics, 1):
        if number % STEP == 0:
            yield
        count = partition_count(image, topic.name)
        missing = [one for one in topic.partitions if not 0 <= one.partition_index < count]
        if missing:
            unknown.append((yield from _failed_in_steps(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
            topic.partitions = [one for one in topic.partitions if 0 <= one.partition_index < count]
        if topic.partitions:
            known.append(topic)
    request.topics = known
    return unknown


def _take_gone_out(
    known: ClusterImage, image: ClusterImage, piece: TxnOffsetCommitRequest
) -> list[TxnOffsetCommitResponseTopic]:
    """Topics that were deleted while others had their turn: nobody would take their offsets away any more."""
    gone: list[TxnOffsetCommitRequestTopic] = []
    there: list[TxnOffsetCommitRequestTopic] = []
    for topic in piece.topics:
        (there if image.topic_by_id(known.topics[topic.name].topic_id) is not None else gone).append(topic)
    piece.topics = there
    return [_failed(topic, topic.partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for topic in gone]


def _refused(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(topics=[_failed(topic, topic.partitions, code) for topic in request.topics])


def _all_refused(request: TxnOffsetCommitRequest, code: ErrorCode) -> Steps[TxnOffsetCommitResponse]:
    topics = []
    for topic in request.topics:
        topics.append((yield from _failed_in_steps(topic, topic.partitions, code)))
        yield
    return TxnOffsetCommitResponse(topics=topics)


def _failed_in_steps(
    topic: TxnOffsetCommitRequestTopic, partitions: list[TxnOffsetCommitRequestPartition], code: ErrorCode
) -> Steps[TxnOffsetCommitResponseTopic]:
    answer = _failed(topic, [], code)
    for start in range(0, len(partitions), PARTITIONS_PER_STEP):
        answer.partitions += _failed(topic, partitions[start : start + PARTITIONS_PER_STEP], code).partitions
        yield
    return answer


def _failed(
    topic: TxnOffsetCommitRequestTopic, partitions: list[TxnOffsetCommitRequestPartition], code: ErrorCode
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code) for one in partitions
        ],
    )


def _with_unknown(
    answer: TxnOffsetCommitResponse, unknown: list[TxnOffsetCommitResponseTopic]
) -> TxnOffsetCommitResponse:
    """One answer: the partitions of a topic together."""
    by_name = {topic.name: topic for topic in answer.topics}
    for topic in unknown:
        if topic.name in by_name:
            by_name[topic.name].partitions += topic.partitions
        else:
            answer.topics.append(topic)
    return answer

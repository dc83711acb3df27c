"""TxnOffsetCommit: a group's offsets as a part of a transaction. They count once its marker says so."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.coordinators import together
from ottla.broker.group_requests import caller_of, commits_in_pieces, partition_count, topics_of_pieces
from ottla.broker.transaction_requests import waited_for
from ottla.broker.verification import Verdicts, as_told_to, verify
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
from ottla.runtime.turns import STEP, Steps, in_turns
from ottla.storage.producer_state import Verification
from ottla.transactions.state import ProducerIdAndEpoch

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.cluster.image import ClusterImage

FIRST_ABORTABLE_VERSION = 4
FIRST_VERSION_2_VERSION = 5  # adds the partition of the offsets by itself

Answer = TxnOffsetCommitResponse | Coroutine[Any, Any, TxnOffsetCommitResponse]


class _Asked(NamedTuple):
    """A request whose topics all stand in `image`."""

    broker: Broker
    request: TxnOffsetCommitRequest
    context: Context
    image: ClusterImage


@in_turns
def handle(broker: Broker, request: TxnOffsetCommitRequest, context: Context) -> Steps[Any]:
    image = broker.image  # one view to look for topics in
    unknown = yield from _take_unknown_out(image, request)
    if not request.topics:
        return TxnOffsetCommitResponse(topics=unknown)
    answer = _commit(_Asked(broker, request, context, image))
    if type(answer) is CoroutineType:
        return _with_unknown_later(answer, unknown)
    return _with_unknown(answer, unknown)  # type: ignore[arg-type]


def _commit(asked: _Asked) -> Answer:
    broker, request, context, _ = asked
    if not request.group_id:
        return _refused(request, ErrorCode.INVALID_GROUP_ID)
    if not request.transactional_id:
        return _refused(request, ErrorCode.INVALID_REQUEST)
    try:
        broker.groups.runner_of(request.group_id)
        name = TopicPartition(broker.groups.topic, broker.groups.partition_of(request.group_id))
        producers = broker.replicas.find(*name).log.producers
    except ApiError as error:
        return _refused(request, error.code)
    adds = context.version >= FIRST_VERSION_2_VERSION
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if producers.has_open_transaction(*producer) or not (
        adds or broker.config.transaction_partition_verification_enable
    ):
        return _committed(asked, name, None)
    try:
        verification = producers.begin_verification(
            *producer, NO_SEQUENCE, starts_at_zero=False, now_ms=broker.clock.now_ms()
        )
    except ApiError as error:
        return _refused(request, error.code)
    verdicts = verify(broker, request.transactional_id, producer, [name], adds=adds)
    if type(verdicts) is CoroutineType:
        return _verified_later(asked, name, verdicts, verification)
    return _verified(asked, name, verdicts, verification)  # type: ignore[arg-type]


async def _verified_later(
    asked: _Asked, name: TopicPartition, verdicts: Coroutine[Any, Any, Verdicts], verification: Verification
) -> TxnOffsetCommitResponse:
    return await waited_for(_verified(asked, name, await verdicts, verification))


def _verified(asked: _Asked, name: TopicPartition, verdicts: Verdicts, verification: Verification) -> Answer:
    """Commits if the coordinator knows of the transaction, and no marker has ended it since."""
    broker, request, context, _ = asked
    code = as_told_to(verdicts[name], knows_abortable=context.version >= FIRST_ABORTABLE_VERSION)
    if code:
        return _refused(request, code)
    try:
        producers = broker.replicas.find(*name).log.producers
        producers.check_verified(request.producer_id, request.producer_epoch, NO_SEQUENCE, verification)
    except ApiError as error:
        return _refused(request, error.code)
    return _committed(asked, name, verification)


def _committed(asked: _Asked, name: TopicPartition, verification: Verification | None) -> Answer:
    answer: Any = asked.broker.turns.take(_committed_in_pieces(asked, name, verification))
    return answer  # type: ignore[no-any-return]


def _committed_in_pieces(asked: _Asked, name: TopicPartition, verification: Verification | None) -> Steps[Any]:
    broker, request, context, image = asked
    answers: list[Any] = []
    was_open = False
    for piece in commits_in_pieces(request):
        if answers:
            yield
            try:
                # A marker may have come while others had their turn: what is written behind it would belong to no
                # transaction. Where no piece has been written yet, none is open here, and the coordinator's word holds.
                if was_open or verification is not None:
                    producers = broker.replicas.find(*name).log.producers
                    producers.check_verified(request.producer_id, request.producer_epoch, NO_SEQUENCE, verification)
            except ApiError as error:
                answers.append(_refused(piece, error.code))
                continue
        gone = [] if broker.image is image else _take_gone_out(image, broker.image, piece)
        if gone:
            answers.append(TxnOffsetCommitResponse(topics=gone))
        if piece.topics:
            decide, caller = GroupMachine.commit_offsets_in_transaction, caller_of(context)
            answers.append(broker.groups.ask(request.group_id, partial(_refused, piece), decide, piece, caller))
            was_open = was_open or _is_open(broker, request, name)
    if len(answers) == 1:
        return answers[0]
    return together(answers, lambda pieces: TxnOffsetCommitResponse(topics=topics_of_pieces(pieces)))


def _is_open(broker: Broker, request: TxnOffsetCommitRequest, name: TopicPartition) -> bool:
    try:
        producers = broker.replicas.find(*name).log.producers
    except ApiError:
        return False
    return producers.has_open_transaction(request.producer_id, request.producer_epoch)


def _take_unknown_out(
    image: ClusterImage, request: TxnOffsetCommitRequest
) -> Steps[list[TxnOffsetCommitResponseTopic]]:
    """Leaves in the request what there is; what is said about the rest."""
    unknown, known = [], []
    for number, topic in enumerate(request.topics, 1):
        if number % STEP == 0:
            yield
        count = partition_count(image, topic.name)
        missing = [one for one in topic.partitions if not 0 <= one.partition_index < count]
        if missing:
            unknown.append(_failed(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
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


def _failed(
    topic: TxnOffsetCommitRequestTopic, partitions: list[TxnOffsetCommitRequestPartition], code: ErrorCode
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code) for one in partitions
        ],
    )


async def _with_unknown_later(
    answer: Coroutine[Any, Any, TxnOffsetCommitResponse], unknown: list[TxnOffsetCommitResponseTopic]
) -> TxnOffsetCommitResponse:
    return _with_unknown(await answer, unknown)


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

"""Which rights each API needs: the table beside the API table, by API key. The facts are Kafka's.

A name is judged before anybody looks whether it exists, so that a missing thing and a forbidden one look the same. An
API without a rule is not served (`Dispatcher`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from operator import attrgetter
from typing import Any

from ottla.broker.authorized import NOT_ASKED
from ottla.broker.error_answers import error_answer, error_of_entries
from ottla.broker.known_rights import DESCRIBE_TOPIC
from ottla.broker.rights import (
    FORBIDDEN,
    MESSAGE,
    PASSED,
    Asked,
    Outcome,
    Rights,
    Rule,
    chosen,
    cluster,
    each,
    each_named,
    each_topic,
    in_turn,
    only_visible,
    open_to_all,
    outcome_of,
    unless,
    whole,
)
from ottla.broker.transactional_produce import has_transactional_batches
from ottla.config.dynamic import ConfigResourceType
from ottla.errors import ErrorCode, ProtocolError
from ottla.protocol.messages.metadata import MetadataResponseTopic
from ottla.protocol.wire import ZERO_UUID
from ottla.runtime.turns import STEP, Steps
from ottla.security.acls import CLUSTER_NAME, Operation, Resource

FIRST_TXN_BATCH_VERSION = 4  # of AddPartitionsToTxn: between brokers
FIRST_GROUPS_VERSION = 8  # of OffsetFetch
FIRST_TOPIC_ID_VERSION = 12  # of Metadata
FIRST_SHARE_VERSION = 6  # of FindCoordinator: below it other types of keys are an error for everybody
TXN_WRITE = whole(Operation.WRITE, Resource.TRANSACTIONAL_ID, "transactional_id")


def _produce(asked: Asked) -> Outcome | Steps[Outcome]:
    found = _produce_rights(asked)
    return found if found is PASSED or asked.request.acks != 0 else _unanswered_produce(found)


def _unanswered_produce(found: Outcome | Steps[Outcome]) -> Steps[Outcome]:
    outcome = yield from outcome_of(found)
    if outcome is PASSED:
        return outcome

    # There is no other way to say it. What may be written is written before.
    if outcome.refusal is not None:
        raise _unsaid()

    def close(_: Any) -> Steps[None]:
        yield
        raise _unsaid()

    return Outcome(finish=close)


def _unsaid() -> ProtocolError:
    return ProtocolError("records that may not be written, without a response to say so")


def _produce_rights(asked: Asked) -> Outcome | Steps[Outcome]:
    if not has_transactional_batches(asked.request):
        return _PRODUCE_TOPICS(asked)
    if asked.request.transactional_id is None:  # nobody has a right on no id
        return asked.refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return _PRODUCE_IN_TRANSACTION(asked)


_PRODUCE_TOPICS = each_topic(Operation.WRITE, "topic_data", "responses")
_PRODUCE_IN_TRANSACTION = in_turn(TXN_WRITE, _PRODUCE_TOPICS)


def _fetch(asked: Asked) -> Outcome | Steps[Outcome]:
    """Followers; what a consumer may read is asked for each partition of its session, in the handler."""
    request = asked.request
    replica_id = request.replica_state.replica_id if request.replica_state is not None else request.replica_id
    if replica_id < 0 or asked.rights.may(Operation.CLUSTER_ACTION, Resource.CLUSTER):
        return PASSED
    return _refused_fetch(asked)


def _refused_fetch(asked: Asked) -> Steps[Outcome]:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    answer = yield from error_of_entries(asked.api, asked.request, asked.version, code)
    answer.error_code = ErrorCode.NONE  # of each partition, and not of the request
    return Outcome(answer)


_NAME = attrgetter("name")


def _metadata(asked: Asked) -> Steps[Outcome]:
    request, rights, image = asked.request, asked.rights, asked.image
    denied: list[MetadataResponseTopic] = []
    is_all = request.topics is None or (asked.version == 0 and not request.topics)
    if not is_all:
        by_id = yield from chosen(request.topics, lambda entry: entry.topic_id != ZERO_UUID)
        if by_id and asked.version < FIRST_TOPIC_ID_VERSION:
            return PASSED  # which the handler refuses as a whole
        request.topics = by_id or request.topics  # others are not looked at
        may_create = request.allow_auto_topic_creation and asked.topics_are_created()
        creates_any: bool | None = None
        allowed = []
        for number, entry in enumerate(request.topics, 1):
            if number % STEP == 0:
                yield
            name = asked.topic_name(entry)
            is_allowed = name is None or rights.may(Operation.DESCRIBE, Resource.TOPIC, name)
            if is_allowed and name is not None and may_create and name not in image.topics:
                if creates_any is None:
                    creates_any = rights.may(Operation.CREATE, Resource.CLUSTER, quietly=True)
                is_allowed = creates_any or rights.may(Operation.CREATE, Resource.TOPIC, name)
            if is_allowed:
                allowed.append(entry)
            else:
                denied.append(
                    MetadataResponseTopic(
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                        name=entry.name if entry.topic_id == ZERO_UUID else None,
                        topic_id=entry.topic_id,
                        is_internal=False,
                        partitions=[],
                    )
                )
        request.topics = allowed
    has_some = is_all or bool(request.topics)

    def finish(response: Any) -> Steps[None]:
        if is_all and not rights.are_known(DESCRIBE_TOPIC, response.topics, _NAME):
            response.topics = yield from chosen(
                response.topics,
                lambda topic: rights.may(Operation.DESCRIBE, Resource.TOPIC, topic.name or "", quietly=True),
            )
        if not has_some:
            response.topics = []
        if request.include_topic_authorized_operations:
            yield from _narrow(response.topics, "topic_authorized_operations", "name", Resource.TOPIC, rights)
        response.topics += denied
        _narrow_cluster(response, rights)

    return Outcome(finish=finish)


def _narrow(entries: Iterable[Any], field: str, name: str, resource: Resource, rights: Rights) -> Steps[None]:
    """Authorized operations, where they were asked for: only those that are allowed."""
    for entry in entries:
        yield
        if getattr(entry, field) != NOT_ASKED:
            setattr(entry, field, rights.bits(resource, getattr(entry, name) or ""))


def _narrow_cluster(response: Any, rights: Rights) -> None:
    if response.cluster_authorized_operations != NOT_ASKED:
        may_see = rights.may(Operation.DESCRIBE, Resource.CLUSTER, quietly=True)
        response.cluster_authorized_operations = rights.bits(Resource.CLUSTER) if may_see else 0


def _narrowed_groups(asked: Asked) -> Outcome:
    def finish(response: Any) -> Steps[None]:
        described = (group for group in response.groups if group.error_code == ErrorCode.NONE)
        yield from _narrow(described, "authorized_operations", "group_id", Resource.GROUP, asked.rights)

    return Outcome(finish=finish)


def _described_cluster(asked: Asked) -> Outcome:
    def finish(response: Any) -> Steps[None]:
        _narrow_cluster(response, asked.rights)
        yield

    return Outcome(finish=finish)


def _offset_fetch(asked: Asked) -> Outcome | Steps[Outcome]:
    request, rights = asked.request, asked.rights
    if asked.version >= FIRST_GROUPS_VERSION:
        return _offset_fetch_of_groups(asked)
    if not rights.may(Operation.DESCRIBE, Resource.GROUP, request.group_id):
        return asked.refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if request.topics is None:
        return only_visible("topics", "name", Operation.DESCRIBE, Resource.TOPIC)(asked)
    return each_topic(Operation.DESCRIBE, "topics", "topics")(asked)


def _offset_fetch_of_groups(asked: Asked) -> Steps[Outcome]:
    request, rights = asked.request, asked.rights
    allowed, refused = [], []
    hidden: dict[str, list[Any]] = {}  # by group: what is said of the topics that may not be seen
    for group in list(request.groups):
        yield
        if not rights.may(Operation.DESCRIBE, Resource.GROUP, group.group_id):
            refused.append((yield from _refused_group(asked, group, ErrorCode.GROUP_AUTHORIZATION_FAILED)))
            continue
        allowed.append(group)
        topics: list[Any] = []
        forbidden: list[Any] = []
        for topic in group.topics or ():
            (topics if asked.may_topic(Operation.DESCRIBE, topic) else forbidden).append(topic)
            yield
        if forbidden:
            group.topics = forbidden
            answer = yield from _refused_group(asked, group)
            hidden.setdefault(group.group_id, []).extend(answer.topics)
            group.topics = topics
    request.groups = allowed

    def finish(response: Any) -> Steps[None]:
        for group in response.groups:
            group.topics = yield from chosen(group.topics, partial(_is_visible, asked))
            group.topics += hidden.get(group.group_id, ())
            yield
        response.groups += refused

    return Outcome(finish=finish)


def _is_visible(asked: Asked, topic: Any) -> bool:
    name = asked.topic_name(topic)
    return name is None or asked.rights.may(Operation.DESCRIBE, Resource.TOPIC, name, quietly=True)


def _refused_group(asked: Asked, group: Any, code: ErrorCode = ErrorCode.TOPIC_AUTHORIZATION_FAILED) -> Steps[Any]:
    asked.request.groups = [group]
    refusal = yield from error_of_entries(asked.api, asked.request, asked.version, code)
    answer = refusal.groups[0]
    if code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
        answer.topics = []
    return answer


def _find_coordinator(asked: Asked) -> Outcome | Steps[Outcome]:
    request = asked.request
    resource = {0: Resource.GROUP, 1: Resource.TRANSACTIONAL_ID}.get(request.key_type)
    if resource is None:
        return PASSED if asked.version < FIRST_SHARE_VERSION else cluster(Operation.CLUSTER_ACTION)(asked)
    if asked.version < 4:
        return whole(Operation.DESCRIBE, resource, "key")(asked)
    return each_named(Operation.DESCRIBE, resource, "coordinator_keys", "coordinators")(asked)


def _create_topics(asked: Asked) -> Outcome:
    def finish(response: Any) -> Steps[None]:
        for topic in response.topics:
            yield
            if topic.error_code == ErrorCode.NONE and not asked.rights.may(
                Operation.DESCRIBE_CONFIGS, Resource.TOPIC, topic.name, quietly=True
            ):
                topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = []

    return Outcome(finish=finish if asked.version >= 5 else None)


def _delete_topics(asked: Asked) -> Outcome | Steps[Outcome]:
    def code_of(_: Asked, entry: Any) -> ErrorCode:
        name = asked.topic_name(entry)
        if name is None:
            return ErrorCode.NONE
        if not asked.rights.may(Operation.DESCRIBE, Resource.TOPIC, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if name not in asked.image.topics or asked.rights.may(Operation.DELETE, Resource.TOPIC, name):
            return ErrorCode.NONE
        if not isinstance(entry, str):
            entry.name = name  # whoever may see the topic may know which one an id is of
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED

    return each("topics" if asked.version >= 6 else "topic_names", "responses", code_of)(asked)


def _init_producer_id(asked: Asked) -> Outcome | Steps[Outcome]:
    rights, name = asked.rights, asked.request.transactional_id
    if name is None:
        is_allowed = rights.may(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER, quietly=True)
        is_allowed = is_allowed or rights.may_any(Operation.WRITE, Resource.TOPIC)
        return PASSED if is_allowed else asked.refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    is_allowed = rights.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, name)
    if is_allowed and asked.request.enable2_pc:
        is_allowed = rights.may(Operation.TWO_PHASE_COMMIT, Resource.TRANSACTIONAL_ID, name)
    return PASSED if is_allowed else asked.refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def _add_partitions(asked: Asked) -> Outcome | Steps[Outcome]:
    request = asked.request
    if asked.version >= FIRST_TXN_BATCH_VERSION:
        return cluster(Operation.CLUSTER_ACTION)(asked)
    name = request.v3_and_below_transactional_id
    if not asked.rights.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, name):
        return asked.refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return _add_partitions_of_topics(asked)


def _add_partitions_of_topics(asked: Asked) -> Steps[Outcome]:
    """All of them, or none."""
    request = asked.request
    forbidden = yield from chosen(
        request.v3_and_below_topics,
        lambda topic: not asked.rights.may(Operation.WRITE, Resource.TOPIC, topic.name),
    )
    if not forbidden:
        return PASSED
    denied = {topic.name for topic in forbidden}
    answer = yield from error_answer(asked.api, request, asked.version, ErrorCode.OPERATION_NOT_ATTEMPTED)
    for topic in answer.results_by_topic_v3_and_below:
        for partition in topic.results_by_partition if topic.name in denied else ():
            partition.partition_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            yield
        yield
    return Outcome(answer)


def _markers(asked: Asked) -> Outcome | Steps[Outcome]:
    if asked.rights.may(Operation.ALTER, Resource.CLUSTER, quietly=True):
        return PASSED
    return cluster(Operation.CLUSTER_ACTION)(asked)


def _configs(operation: Operation, answers: str) -> Rule:
    resources = {ConfigResourceType.TOPIC: Resource.TOPIC, ConfigResourceType.GROUP: Resource.GROUP}

    def code_of(asked: Asked, entry: Any) -> ErrorCode:
        resource = resources.get(entry.resource_type, Resource.CLUSTER)
        name = CLUSTER_NAME if resource is Resource.CLUSTER else entry.resource_name
        return ErrorCode.NONE if asked.rights.may(operation, resource, name) else FORBIDDEN[resource]

    return each("resources", answers, code_of)


def _transaction_topics(asked: Asked) -> Outcome:
    def finish(response: Any) -> Steps[None]:
        for state in response.transaction_states:
            state.topics = yield from chosen(state.topics, partial(_is_visible, asked))
            yield

    return Outcome(finish=finish)


def _subscription(asked: Asked) -> Steps[Outcome]:
    for name in asked.request.subscribed_topic_names or ():
        if not asked.rights.may(Operation.DESCRIBE, Resource.TOPIC, name):
            return (yield from asked.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        yield
    return PASSED


def _assigned_topics(asked: Asked) -> Outcome:
    """A group whose members read what the caller may not see is not described."""

    def finish(response: Any) -> Steps[None]:
        for group in response.groups:
            topics = (
                topic
                for member in group.members
                for assignment in (member.assignment, member.target_assignment)
                for topic in assignment.topic_partitions
            )
            for topic in topics:
                if not asked.rights.may(Operation.DESCRIBE, Resource.TOPIC, topic.topic_name):
                    group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    group.error_message = MESSAGE
                    group.group_state = group.assignor_name = ""
                    group.group_epoch = group.assignment_epoch = 0
                    group.authorized_operations = NOT_ASKED
                    group.members = []
                    break
                yield
            yield

    return Outcome(finish=finish)


def _topic_partitions(asked: Asked) -> Steps[Outcome]:
    """Of all topics the handler takes those that may be seen: a page is cut between them, not between all."""
    outcome = yield from outcome_of(each_topic(Operation.DESCRIBE, "topics", "topics")(asked))
    if outcome.refusal is not None:
        return outcome

    def finish(response: Any) -> Steps[None]:
        for topic in response.topics:
            topic.topic_authorized_operations = asked.rights.bits(Resource.TOPIC, topic.name or "")
            yield
        if outcome.finish is not None:
            yield from outcome.finish(response)

    return Outcome(finish=finish)


GROUP_READ = whole(Operation.READ, Resource.GROUP, "group_id")
BETWEEN_BROKERS = cluster(Operation.CLUSTER_ACTION)

# By API key. The order of checks is Kafka's.
RIGHTS: dict[int, Rule] = {
    0: _produce,
    1: _fetch,
    2: each_topic(Operation.DESCRIBE, "topics", "topics"),
    3: _metadata,
    4: BETWEEN_BROKERS,
    5: BETWEEN_BROKERS,
    6: BETWEEN_BROKERS,
    7: BETWEEN_BROKERS,
    8: in_turn(GROUP_READ, each_topic(Operation.READ, "topics", "topics")),
    9: _offset_fetch,
    10: _find_coordinator,
    11: GROUP_READ,
    12: GROUP_READ,
    13: GROUP_READ,
    14: GROUP_READ,
    15: in_turn(each_named(Operation.DESCRIBE, Resource.GROUP, "groups", "groups"), _narrowed_groups),
    16: unless(Operation.DESCRIBE, only_visible("groups", "group_id", Operation.DESCRIBE, Resource.GROUP)),
    17: open_to_all,
    18: open_to_all,
    19: in_turn(unless(Operation.CREATE, each_topic(Operation.CREATE, "topics", "topics")), _create_topics),
    20: unless(Operation.DELETE, _delete_topics),
    21: each_topic(Operation.DELETE, "topics", "topics"),
    22: _init_producer_id,
    23: unless(Operation.CLUSTER_ACTION, each_topic(Operation.DESCRIBE, "topics", "topics")),
    24: _add_partitions,
    25: in_turn(TXN_WRITE, GROUP_READ),
    26: TXN_WRITE,
    27: _markers,
    28: in_turn(TXN_WRITE, GROUP_READ, each_topic(Operation.READ, "topics", "topics")),
    29: cluster(Operation.DESCRIBE),
    30: cluster(Operation.ALTER),
    31: cluster(Operation.ALTER),
    32: _configs(Operation.DESCRIBE_CONFIGS, "results"),
    33: _configs(Operation.ALTER_CONFIGS, "responses"),
    34: cluster(Operation.ALTER),
    35: cluster(Operation.DESCRIBE),
    36: open_to_all,
    37: each_topic(Operation.ALTER, "topics", "results"),
    # Of delegation tokens: their handlers look at the connection first, and then ask for rights.
    38: open_to_all,
    39: open_to_all,
    40: open_to_all,
    41: open_to_all,
    42: each_named(Operation.DELETE, Resource.GROUP, "groups_names", "results"),
    43: cluster(Operation.ALTER),
    44: _configs(Operation.ALTER_CONFIGS, "responses"),
    45: cluster(Operation.ALTER),
    46: cluster(Operation.DESCRIBE),
    47: in_turn(whole(Operation.DELETE, Resource.GROUP, "group_id"), each_topic(Operation.READ, "topics", "topics")),
    48: cluster(Operation.DESCRIBE_CONFIGS),
    49: cluster(Operation.ALTER_CONFIGS),
    50: cluster(Operation.DESCRIBE),
    51: cluster(Operation.ALTER),
    55: cluster(Operation.DESCRIBE),
    56: BETWEEN_BROKERS,
    57: cluster(Operation.ALTER),
    60: _described_cluster,
    61: each_topic(Operation.READ, "topics", "topics"),
    64: cluster(Operation.ALTER),
    65: in_turn(
        each_named(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, "transactional_ids", "transaction_states"),
        _transaction_topics,
    ),
    66: only_visible("transaction_states", "transactional_id", Operation.DESCRIBE, Resource.TRANSACTIONAL_ID),
    67: BETWEEN_BROKERS,
    68: in_turn(GROUP_READ, _subscription),
    69: in_turn(
        each_named(Operation.DESCRIBE, Resource.GROUP, "group_ids", "groups"), _narrowed_groups, _assigned_topics
    ),
    71: open_to_all,
    72: open_to_all,
    74: cluster(Operation.DESCRIBE_CONFIGS),
    75: _topic_partitions,
}

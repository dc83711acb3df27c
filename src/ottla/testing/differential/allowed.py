"""Where we may differ from Apache Kafka, each with its reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ottla.broker.reference import NOT_SERVED
from ottla.config.broker import BROKER_SETTINGS
from ottla.errors import ErrorCode
from ottla.protocol.schema import schema_of
from ottla.records.layout import HEADER_BYTES, LENGTH_AT, LENGTH_PREFIX, MAGIC, MAGIC_AT
from ottla.testing.differential.comparing import CLOSED, UNANSWERED, Difference
from ottla.testing.differential.history import Step
from ottla.testing.differential.values import INTERNAL_TOPICS
from ottla.testing.side_by_side.transcript import NOTHING


@dataclass(frozen=True, slots=True)
class Allowed:
    """A difference in a field of an API's answers. `fields` is its path without indexes; `when` looks closer."""

    api: str
    fields: str
    reason: str
    when: Callable[[Case], bool] = lambda case: True
    ends: bool = False  # whether the two have gone different ways, so that the rest of the history says nothing


@dataclass(frozen=True, slots=True)
class Case:
    """A difference and the request, as it was sent to Kafka, that showed it."""

    step: Step
    request: Any
    answer: Any  # Kafka's
    difference: Difference

    @property
    def kafka(self) -> Any:
        return self.difference.kafka

    @property
    def ours(self) -> Any:
        return self.difference.ours


BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16


def _codes(case: Case) -> list[Any]:
    """The error codes of Kafka's answer, of the whole and of its parts."""
    return list(_values(case.answer, "error_code"))


def _values(value: Any, name: str) -> Iterator[Any]:
    if isinstance(value, dict):
        if name in value:
            yield value[name]
        for one in value.values():
            yield from _values(one, name)
    elif isinstance(value, list):
        for one in value:
            yield from _values(one, name)


def _values_of(message: Any, name: str) -> Iterator[Any]:
    """The values of all fields of that name in a message."""
    if isinstance(message, list):
        for one in message:
            yield from _values_of(one, name)
    elif hasattr(type(message), "__schema__"):
        for field in schema_of(type(message)).fields:
            value = getattr(message, field.name)
            if field.name == name:
                yield value
            yield from _values_of(value, name)


def _is_no_batch(records: bytes | None) -> bool:
    """Whether the records begin with a length shorter than any batch, or say that they are of an unknown format."""
    if not records or len(records) <= MAGIC_AT:
        return bool(records)
    if records[MAGIC_AT] > MAGIC:
        return True
    return int.from_bytes(records[LENGTH_AT:LENGTH_PREFIX]) < HEADER_BYTES - LENGTH_PREFIX


def _repeats(value: Any) -> bool:
    """Whether a list of the request names something twice."""
    if isinstance(value, list):
        names = [_name(one) for one in value]
        return any(name in names[:index] for index, name in enumerate(names)) or any(map(_repeats, value))
    if hasattr(type(value), "__schema__"):
        return any(_repeats(getattr(value, field.name)) for field in schema_of(type(value)).fields)
    return False


def _name(element: Any) -> Any:
    """The fields of an element that are no lists: what it is called."""
    if not hasattr(type(element), "__schema__"):
        return element
    names = (
        "name",
        "topic",
        "topic_id",
        "partition",
        "partition_index",
        "index",
        "group_id",
        "transactional_id",
        "resource_name",
        "member_id",
    )
    return [getattr(element, name, None) for name in names]


def _is_not_served(case: Case) -> bool:
    return case.ours is NOTHING and str(case.difference.path[1]) in map(str, NOT_SERVED)


def _asks_nothing(case: Case) -> bool:
    """An element of which nothing was asked, on one side only."""
    only = case.kafka if case.ours is NOTHING else case.ours if case.kafka is NOTHING else None
    return isinstance(only, dict) and _is_empty(only)


def _is_empty(element: Any) -> bool:
    asked = [
        element[name]
        for name in ("topics", "partitions", "partition_responses", "results_by_partition")
        if name in element
    ]
    return bool(asked) and not element.get("error_code") and all(_is_empty(one) for value in asked for one in value)


def _is_not_text(case: Case) -> bool:
    change = case.step.change
    return change is not None and change.byte >= 0x80 and case.ours == CLOSED


def _is_setting_of_what_is_not_served(case: Case) -> bool:
    return any(str(part).startswith(("share.", "streams.")) for part in case.difference.path)


def _is_setting_of_broker(case: Case) -> bool:
    is_of_broker = any(one.resource_type == BROKER for one in case.request.resources)
    return is_of_broker and "configs" in case.difference.path


def _is_no_setting_of_broker(case: Case) -> bool:
    changes = (change for one in case.request.resources if one.resource_type == BROKER for change in one.configs)
    is_refused = (case.kafka, case.ours) == (ErrorCode.NONE, ErrorCode.INVALID_CONFIG)
    return is_refused and any(change.name not in BROKER_SETTINGS for change in changes)


def _sets_segments_without_room(case: Case) -> bool:
    entries = getattr(case.request, "topics", None) or case.request.resources
    values = [each.value for entry in entries for each in entry.configs if each.name == "internal.segment.bytes"]
    return any(value is not None and re.fullmatch(r"0+|-[0-9]+", value) for value in values)


ALLOWED: Final[tuple[Allowed, ...]] = (
    Allowed("DescribeConfigs", "*", "settings of share and streams groups", _is_setting_of_what_is_not_served),
    Allowed("DescribeConfigs", "*", "the two brokers were not started with the same settings", _is_setting_of_broker),
    Allowed(
        "*",
        "",
        "we serve versions that Kafka has given up",
        lambda case: (
            case.kafka == CLOSED
            and case.step.header_version is not None
            and case.step.header_version in case.step.api.versions
        ),
        ends=True,
    ),
    Allowed(
        "IncrementalAlterConfigs",
        "responses.error_code",
        "of several settings that are wrong Kafka tells the one that its hash map has first",
        lambda case: any(len(one.configs) > 1 for one in case.request.resources),
    ),
    Allowed("*", "*", "Kafka fails with an exception of its own", lambda case: -1 in _codes(case), ends=True),
    Allowed("WriteTxnMarkers", "*", "a marker for no partition may be reported or not", _asks_nothing, ends=True),
    Allowed(
        "WriteTxnMarkers",
        "*",
        "a negative producer id or epoch: Kafka writes a marker of a producer that cannot be, we refuse it",
        lambda case: case.kafka == 0 and case.ours == ErrorCode.INVALID_REQUEST,
        ends=True,
    ),
    Allowed("*", "*", "a topic of which no partition is asked for may be reported or not", _asks_nothing),
    Allowed(
        "*",
        "",
        "text that is not UTF-8: Kafka puts question marks in its place, we refuse it",
        _is_not_text,
        ends=True,
    ),
    Allowed(
        "AddPartitionsToTxn",
        "",
        "Kafka never answers a request without transactions",
        lambda case: case.kafka == UNANSWERED and not case.request.transactions,
        ends=True,
    ),
    Allowed(
        "Produce",
        "",
        "Kafka never answers records that are null",
        lambda case: case.kafka == UNANSWERED and None in _values_of(case.request, "records"),
        ends=True,
    ),
    Allowed(
        "Produce",
        "*",
        "records that are no batches at all fail the whole request in Kafka, their partition with us",
        lambda case: any(_is_no_batch(records) for records in _values_of(case.request, "records")),
        ends=True,
    ),
    Allowed(
        "*",
        "",
        "Kafka never answers some requests that name a resource, a protocol or a marker twice",
        lambda case: case.kafka == UNANSWERED and _repeats(case.request),
        ends=True,
    ),
    Allowed(
        "JoinGroup",
        "protocol_name",
        "a protocol without a name: to Kafka it is none",
        lambda case: case.kafka is None and case.ours == "",
    ),
    *(
        Allowed(
            api,
            "*",
            "no client names anything twice here; Kafka gathers what it tells by name, we tell it as it was asked",
            lambda case: _repeats(case.request),
            ends=True,
        )
        for api in (
            "AddPartitionsToTxn",
            "WriteTxnMarkers",
            "TxnOffsetCommit",
            "OffsetDelete",
            "DeleteTopics",
            "Produce",
        )
    ),
    Allowed(
        "Fetch",
        "*",
        "an isolation level that is none: Kafka notices it where there is something to read",
        lambda case: case.request.isolation_level not in (0, 1),
        ends=True,
    ),
    Allowed(
        "Produce",
        "responses.partition_responses.log_start_offset",
        "where the log starts is reported with some refusals of records and not with others; nobody looks",
        lambda case: ErrorCode.INVALID_RECORD in _values(case.answer, "error_code"),
    ),
    Allowed(
        "Produce",
        "responses.partition_responses.error_code",
        "acks that are none: Kafka looks first whether it is one batch, which we learn when we append it",
        lambda case: case.kafka == ErrorCode.INVALID_RECORD and case.ours == ErrorCode.INVALID_REQUIRED_ACKS,
    ),
    *(
        Allowed(
            api,
            "*",
            "Kafka takes any number for internal.segment.bytes, also one that leaves no room for a batch",
            _sets_segments_without_room,
            ends=True,
        )
        for api in ("CreateTopics", "AlterConfigs", "IncrementalAlterConfigs")
    ),
    Allowed(
        "CreateTopics",
        "topics.error_code",
        "where the counts of partitions add up to more than 31 bits Kafka does not notice that they are too many",
        lambda case: (
            case.ours == ErrorCode.POLICY_VIOLATION
            and sum(max(topic.num_partitions, 0) for topic in case.request.topics) + len(case.request.topics) > 2**31
        ),
    ),
    *(
        Allowed(
            api,
            "*",
            "how much a broker has written into its own topics",
            lambda case: (
                "error_code" not in case.difference.path
                and any(
                    name in INTERNAL_TOPICS for field in ("topic", "name") for name in _values_of(case.request, field)
                )
            ),
        )
        for api in ("ListOffsets", "OffsetForLeaderEpoch", "Fetch", "DescribeProducers", "DescribeLogDirs", "Metadata")
    ),
    Allowed(
        "DescribeTopicPartitions",
        "next_cursor",
        "behind the largest partition Kafka counts on with negative ones",
        lambda case: case.request.cursor is not None and case.kafka["partition_index"] < 0,
    ),
    Allowed("ApiVersions", "*", "an API that we do not serve", _is_not_served),
    Allowed(
        "ApiVersions",
        "*",
        "we read more old versions, for old clients",
        lambda case: case.difference.path[-1] == "min_version" and case.ours < case.kafka,
    ),
    Allowed(
        "ApiVersions",
        "*",
        "a feature of what we do not serve",
        lambda case: case.difference.path[0] in ("supported_features", "finalized_features") and case.ours is NOTHING,
    ),
    Allowed("ApiVersions", "finalized_features_epoch", "the place of the features in the metadata log"),
    *(
        Allowed(
            api,
            "*",
            "there are no subscriptions of client metrics here",
            lambda case: any(one.resource_type == CLIENT_METRICS for one in case.request.resources),
        )
        for api in ("AlterConfigs", "IncrementalAlterConfigs", "DescribeConfigs")
    ),
    *(
        Allowed(
            api,
            "*",
            "the loggers of Kafka are other ones, and so are their levels",
            lambda case: any(one.resource_type == BROKER_LOGGER for one in case.request.resources),
        )
        for api in ("AlterConfigs", "IncrementalAlterConfigs", "DescribeConfigs")
    ),
    *(
        Allowed(
            api,
            "responses.error_code",
            "Kafka keeps unknown settings of a broker for its plugins; here there are none, so they are refused",
            _is_no_setting_of_broker,
        )
        for api in ("AlterConfigs", "IncrementalAlterConfigs")
    ),
    *(
        Allowed(
            api,
            "*",
            "a commit that is refused makes an empty group in Kafka, until its next start; none here",
            lambda case: case.ours in (ErrorCode.GROUP_ID_NOT_FOUND, "Dead", NOTHING),
        )
        for api in ("DeleteGroups", "DescribeGroups", "ListGroups", "OffsetDelete")
    ),
)

# What is known and being mended elsewhere; empty when that is done.
BEING_MENDED: Final[tuple[Allowed, ...]] = ()


def permission(case: Case) -> Allowed | None:
    """The entry that allows the difference, if any."""
    for entry in (*ALLOWED, *BEING_MENDED):
        if (
            entry.api in (case.step.api.name, "*")
            and entry.fields in (case.difference.fields, "*")
            and entry.when(case)
        ):
            return entry
    return None

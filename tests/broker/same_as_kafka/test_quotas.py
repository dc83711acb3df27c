"""Quotas of clients: set, told, removed and refused; and how long the same load is throttled."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.protocol.messages.cluster import FeatureUpdateKey, UnregisterBrokerRequest, UpdateFeaturesRequest
from ottla.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from ottla.protocol.messages.topics import CreateTopicsRequest
from ottla.testing.raw_requests import creatable, one_batch, produce
from ottla.testing.side_by_side import Brokers, Conversations, Side

pytestmark = pytest.mark.slow

conversations = Conversations(Side)

EXACT, DEFAULT, ANY = 0, 1, 2
CLIENT_ID = "raw"  # of every conversation
Parts = list[tuple[str, str | None]]


def _alter(*entries: tuple[Parts, dict[str, float | None]], validate_only: bool = False) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequestEntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
                ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
            )
            for parts, changes in entries
        ],
        validate_only=validate_only,
    )


def _describe(*components: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasRequest:
    wanted = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    return DescribeClientQuotasRequest(components=wanted, strict=strict)


def _in_order(answer: Any) -> Any:
    """Neither side promises an order; the words for what is wrong with an entity name it in their own way."""
    for entry in answer.entries or ():
        entry.entity.sort(key=lambda part: part.entity_type)
        if hasattr(entry, "values"):
            entry.values.sort(key=lambda value: value.key)
    if answer.entries is not None:
        answer.entries.sort(key=lambda entry: str(entry.entity))
    return answer


def _but_words(answer: Any) -> Any:
    for entry in _in_order(answer).entries:
        entry.error_message = bool(entry.error_message)
    return answer


@conversations.add
def quotas_are_set_told_and_removed(side: Side) -> None:
    alice, app = side.name("alice"), side.name("app")
    entities: list[tuple[Parts, dict[str, float | None]]] = [
        ([("user", alice)], {"producer_byte_rate": 1024.0, "request_percentage": 12.5}),
        ([("user", alice), ("client-id", app)], {"consumer_byte_rate": 2048.0}),
        ([("client-id", None), ("user", alice)], {"controller_mutation_rate": 0.5}),
        ([("client-id", app)], {"consumer_byte_rate": 9.0}),
        ([("ip", "10.1.2.3")], {"connection_creation_rate": 5.0}),
    ]
    for version in (0, 1):
        side.ask(_alter(*entities), version, note=_in_order)
        side.settle()
        for strict in (False, True):
            side.ask(_describe(("user", EXACT, alice), strict=strict), version, note=_in_order)
            side.ask(_describe(("client-id", EXACT, app), strict=strict), version, note=_in_order)
            both = (("user", EXACT, alice), ("client-id", ANY, None))
            side.ask(_describe(*both, strict=strict), version, note=_in_order)
            side.ask(
                _describe(("user", EXACT, alice), ("client-id", DEFAULT, None), strict=strict), version, note=_in_order
            )
            side.ask(_describe(("ip", ANY, None), strict=strict), version, note=_in_order)
        side.ask(_alter(([("user", alice)], {"producer_byte_rate": None})), version, note=_in_order)
        side.settle()
        side.ask(_describe(("user", EXACT, alice), strict=True), version, note=_in_order)
        gone = [(parts, dict.fromkeys(changes)) for parts, changes in entities]
        side.ask(_alter(*gone), version, note=_in_order)
        side.settle()
        side.ask(_describe(("user", EXACT, alice)), version, note=_in_order)
        side.ask(_describe(("ip", ANY, None)), version, note=_in_order)


@conversations.add
def quotas_that_cannot_be(side: Side) -> None:
    alice = side.name("alice")
    user: Parts = [("user", alice)]
    impossible: list[tuple[Parts, dict[str, float | None]]] = [
        ([], {"producer_byte_rate": 1.0}),
        ([("colour", "red")], {"producer_byte_rate": 1.0}),
        ([("user", "")], {"producer_byte_rate": 1.0}),
        ([("user", alice), ("ip", "10.0.0.1")], {"producer_byte_rate": 1.0}),
        ([("ip", "10.0.0.1")], {"producer_byte_rate": 1.0}),
        (user, {"connection_creation_rate": 1.0}),
        (user, {"colour": 1.0}),
        (user, {"producer_byte_rate": 0.0}),
        (user, {"producer_byte_rate": -5.0}),
        (user, {"producer_byte_rate": 1.5}),
        (user, {"producer_byte_rate": 1e30}),
        ([("ip", "10.0.0.1")], {"connection_creation_rate": 1e10}),
        ([("ip", "10.0.0.1")], {"connection_creation_rate": 0.5}),
        (user, {"colour": None}),
        (user, {}),
    ]
    for parts, changes in impossible:
        side.ask(_alter((parts, changes)), 1, note=_in_order)
    side.ask(_alter((user, {"producer_byte_rate": 1.0}), validate_only=True), 1, note=_in_order)
    side.ask(_describe(("user", EXACT, alice)), 1, note=_in_order)
    twice: tuple[Parts, dict[str, float | None]] = (user, {"producer_byte_rate": 1.0})
    side.ask(_alter(twice, twice), 1, note=_but_words)
    side.ask(_alter((user, {"producer_byte_rate": None})), 1, note=_in_order)
    for wanted in (
        [("", EXACT, "x")],
        [("user", EXACT, "x"), ("user", ANY, None)],
        [("colour", EXACT, "x")],
        [("user", EXACT, None)],
        [("user", DEFAULT, "x")],
        [("user", ANY, "x")],
        [("user", 7, None)],
        [("user", ANY, None), ("ip", ANY, None)],
    ):
        side.ask(_describe(*wanted), 1, note=_in_order)


@conversations.add
def the_same_load_is_throttled_alike(side: Side) -> None:
    """Times are told in steps of two seconds: the rest is how fast the machine is."""
    topic, _ = side.new_topic("throttled")
    client_id: Parts = [("client-id", CLIENT_ID)]
    side.ask(_alter((client_id, {"producer_byte_rate": 100_000.0})), 1, note=_in_order)
    side.settle()

    def about(answer: Any) -> Any:
        return round(answer.throttle_time_ms / 2000)

    side.ask(produce(topic, one_batch(b"x" * 500_000)), 9, note=about)
    side.ask(produce(topic, one_batch(b"x" * 700_000)), 9, note=about)
    side.ask(_alter((client_id, {"producer_byte_rate": None})), 1, note=_in_order)


@conversations.add
def too_many_new_partitions_are_refused_alike(side: Side) -> None:
    client_id: Parts = [("client-id", CLIENT_ID)]
    side.ask(_alter((client_id, {"controller_mutation_rate": 4.0})), 1, note=_in_order)
    side.settle()
    names = [side.name(f"many-{number}") for number in range(3)]
    topics = [creatable(name, partitions=25) for name in names]

    def refused(answer: Any) -> Any:
        codes = sorted(topic.error_code for topic in answer.topics)
        return codes, answer.throttle_time_ms > 0

    side.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7, note=refused)
    side.ask(_alter((client_id, {"controller_mutation_rate": None})), 1, note=_in_order)


@conversations.add
def features_and_registrations(side: Side) -> None:
    """What Kafka would change and we do not is not asked for."""

    def codes(answer: Any) -> Any:
        return answer.error_code, [result.feature for result in answer.results], bool(answer.error_message)

    for version in (0, 1, 2):
        for feature, level in (("colour.version", 1), ("group.version", 9), ("group.version", 1)):
            update = FeatureUpdateKey(feature=feature, max_version_level=level)
            side.ask(UpdateFeaturesRequest(feature_updates=[update]), version, note=codes)
    side.ask(UnregisterBrokerRequest(broker_id=4711), 0)


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)

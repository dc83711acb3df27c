"""Whose quota holds, what may be one, and which are asked for."""

from __future__ import annotations

import pytest

from ottla.errors import ApiError, ErrorCode
from ottla.security.quotas import (
    CLIENT_QUOTAS,
    IP_QUOTAS,
    NO_LIMITS,
    Component,
    QuotaEntity,
    QuotaFilter,
    Scope,
    check_entity,
    check_value,
    entity_of,
    read_quotas,
    value_text,
)

RATE = "producer_byte_rate"


def entity(**parts: str | None) -> QuotaEntity:
    return entity_of((kind.replace("_", "-"), name) for kind, name in parts.items())


# The strongest first, with who shares it.
PRECEDENCE = [
    (entity(user="alice", client_id="app"), Scope("alice", "app")),
    (entity(user="alice", client_id=None), Scope("alice", "app")),
    (entity(user="alice"), Scope("alice", None)),
    (entity(user=None, client_id="app"), Scope("alice", "app")),
    (entity(user=None, client_id=None), Scope("alice", "app")),
    (entity(user=None), Scope("alice", None)),
    (entity(client_id="app"), Scope(None, "app")),
    (entity(client_id=None), Scope(None, "app")),
]


def test_the_most_specific_quota_holds_and_the_others_in_their_order_without_it() -> None:
    limits = NO_LIMITS.replaced({one: {RATE: float(place + 1)} for place, (one, _) in enumerate(PRECEDENCE)})
    for place, (one, scope) in enumerate(PRECEDENCE):
        found = limits.limit_of(RATE, "alice", "app")
        assert found == (place + 1, scope), one
        limits = limits.replaced({one: {}})
    assert limits.limit_of(RATE, "alice", "app") is None
    assert not limits.quotas


def test_each_quota_is_looked_for_by_itself() -> None:
    limits = NO_LIMITS.replaced(
        {entity(user="alice"): {RATE: 10.0}, entity(user=None): {RATE: 5.0, "consumer_byte_rate": 7.0}}
    )
    assert limits.limit_of(RATE, "alice", "x") == (10, ("alice", None))
    assert limits.limit_of("consumer_byte_rate", "alice", "x") == (7, ("alice", None))
    assert limits.limit_of(RATE, "bob", "x") == (5, ("bob", None)), "each user has the default for himself"


def test_addresses_limit_connections_only() -> None:
    limits = NO_LIMITS.replaced(
        {entity(ip="10.0.0.1"): {"connection_creation_rate": 3.0}, entity(ip=None): {"connection_creation_rate": 9.0}}
    )
    assert not limits.limits_clients
    assert limits.connection_rates() == ({"10.0.0.1": 3.0}, 9.0)
    assert NO_LIMITS.connection_rates() == ({}, None)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((), "Invalid empty client quota entity"),
        ((("colour", "red"),), "Unhandled client quota entity type: colour"),
        ((("user", ""),), "Empty user not supported"),
        ((("ip", "10.0.0.1"), ("user", "alice")), "Invalid empty client quota entity"),
        ((("ip", "not an address"),), "not an address is not a valid IP or resolvable host."),
    ],
)
def test_entities_that_cannot_be(parts: tuple[tuple[str, str | None], ...], reason: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_entity(entity_of(parts))
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REQUEST, reason)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("colour", 1.0, "Invalid configuration key colour"),
        ("connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        (RATE, 0.0, "Quota producer_byte_rate must be greater than 0"),
        (RATE, -1.0, "Quota producer_byte_rate must be greater than 0"),
        (RATE, float("nan"), "Quota producer_byte_rate must be greater than 0"),
        (RATE, 1.5, "producer_byte_rate cannot be a fractional value."),
        (RATE, 1e30, "Proposed value for producer_byte_rate is too large for a LONG."),
    ],
)
def test_values_that_cannot_be(key: str, value: float, reason: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_value(key, value, CLIENT_QUOTAS)
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REQUEST, reason)


def test_the_rate_of_connections_is_a_small_whole_number() -> None:
    check_value("connection_creation_rate", 5.0, IP_QUOTAS)
    with pytest.raises(ApiError, match="too large for an INT"):
        check_value("connection_creation_rate", 2.0**31, IP_QUOTAS)
    check_value("request_percentage", 0.5, CLIENT_QUOTAS)


def test_values_are_written_as_kafka_writes_them() -> None:
    written = {key: value_text(key, 50.0) for key in (*CLIENT_QUOTAS, *IP_QUOTAS)}
    assert written == {
        "producer_byte_rate": "50",
        "consumer_byte_rate": "50",
        "request_percentage": "50.0",
        "controller_mutation_rate": "50.0",
        "connection_creation_rate": "50",
    }


def test_only_quotas_are_read_and_bad_ones_are_named() -> None:
    stored = {"SCRAM-SHA-256": "salt=…", RATE: "1024", "request_percentage": "many", "consumer_byte_rate": "-1"}
    quotas, problems = read_quotas(entity(user="alice"), stored)
    assert quotas == {RATE: 1024.0}
    assert len(problems) == 2


EXACT, DEFAULT, ANY = 0, 1, 2
ENTITIES = [
    entity(user="alice"),
    entity(user=None),
    entity(user="alice", client_id="app"),
    entity(user="alice", client_id=None),
    entity(client_id="app"),
    entity(ip="10.0.0.1"),
]


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ((), False, [0, 1, 2, 3, 4, 5]),
        ((), True, []),
        ((Component("user", EXACT, "alice"),), False, [0, 2, 3]),
        ((Component("user", EXACT, "alice"),), True, [0]),
        ((Component("user", DEFAULT, None),), False, [1]),
        ((Component("user", ANY, None),), True, [0, 1]),
        ((Component("user", ANY, None), Component("client-id", ANY, None)), False, [2, 3]),
        ((Component("user", EXACT, "alice"), Component("client-id", DEFAULT, None)), True, [3]),
        ((Component("ip", ANY, None),), False, [5]),
    ],
)
def test_filters(components: tuple[Component, ...], strict: bool, found: list[int]) -> None:
    wanted = QuotaFilter.of(components, strict=strict)
    assert [place for place, one in enumerate(ENTITIES) if wanted.matches(one)] == found


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([Component("", EXACT, "x")], ErrorCode.INVALID_REQUEST),
        ([Component("user", EXACT, "x"), Component("user", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([Component("colour", EXACT, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([Component("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([Component("user", DEFAULT, "x")], ErrorCode.INVALID_REQUEST),
        ([Component("user", ANY, "x")], ErrorCode.INVALID_REQUEST),
        ([Component("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([Component("user", ANY, None), Component("ip", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_cannot_be(components: list[Component], code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refused:
        QuotaFilter.of(components, strict=False)
    assert refused.value.code == code

"""Quotas of clients as values: whose they are, what may be limited, and which limit holds for whom. Pure.

A quota belongs to a user, a client id, both together, or an address; the entity without a name is the default of its
kind. Of several that fit, the most specific holds, for each quota by itself; where it was found says who shares it: one
of a user is shared by all his clients, one of a client id by all users.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.errors import ApiError, ErrorCode

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

# The largest whole number that a quota may be; None: any number.
CLIENT_QUOTAS: Final[Mapping[str, int | None]] = {
    PRODUCER_BYTE_RATE: 2**63 - 1,
    CONSUMER_BYTE_RATE: 2**63 - 1,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
IP_QUOTAS: Final[Mapping[str, int | None]] = {CONNECTION_CREATION_RATE: 2**31 - 1}
FRACTION_MAX: Final = 1e-6  # of a whole number that came as a floating point one


class QuotaEntity(NamedTuple):
    """Whose quotas: types and names, in the order of `ENTITY_TYPES`; None is the default of a type."""

    parts: tuple[tuple[str, str | None], ...]

    def __str__(self) -> str:
        return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in self.parts)

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(kind for kind, _ in self.parts)


def entity_of(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """An entity by its parts; of a type that is named twice, what is named last, as in Kafka."""
    named = dict(parts)
    order = [kind for kind in ENTITY_TYPES if kind in named] + sorted(
        kind for kind in named if kind not in ENTITY_TYPES
    )
    return QuotaEntity(tuple((kind, named[kind]) for kind in order))


def check_entity(entity: QuotaEntity) -> Mapping[str, int | None]:
    """Which quotas the entity may have; ApiError (INVALID_REQUEST) where there can be no such entity."""
    if not entity.parts:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity.parts:
        if kind not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP not in entity.types:
        return CLIENT_QUOTAS
    if len(entity.parts) > 1:
        raise _invalid("Invalid empty client quota entity")
    name = entity.parts[0][1]
    if name is not None and not is_address(name):
        raise _invalid(f"{name} is not a valid IP or resolvable host.")
    return IP_QUOTAS


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def check_value(key: str, value: float, allowed: Mapping[str, int | None]) -> None:
    """ApiError (INVALID_REQUEST) where a quota of this name cannot be that much."""
    if key not in allowed:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0.0 or math.isinf(value):
        raise _invalid(f"Quota {key} must be greater than 0")
    largest = allowed[key]
    if largest is None:
        return
    if value > largest:
        raise _invalid(f"Proposed value for {key} is too large for {'a LONG' if largest > 2**31 else 'an INT'}.")
    if value % 1.0 > FRACTION_MAX:
        raise _invalid(f"{key} cannot be a fractional value.")


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)


# -- as text -----------------------------------------------------------------------------------------------------------


def value_text(key: str, value: float) -> str:
    """As Kafka writes it in ZooKeeper: whole numbers without a fraction, others with one."""
    is_whole = CLIENT_QUOTAS.get(key, IP_QUOTAS.get(key)) is not None
    return str(int(value)) if is_whole else repr(float(value))


def read_quotas(entity: QuotaEntity, config: Mapping[str, str]) -> tuple[dict[str, float], list[str]]:
    """The quotas among what is stored for an entity, and what is wrong with others; a user's passwords are neither."""
    quotas: dict[str, float] = {}
    problems = []
    allowed = check_entity(entity)
    for key, text in config.items():
        if key not in allowed:
            continue
        try:
            value = float(text)
            check_value(key, value, allowed)
            quotas[key] = value
        except (ValueError, ApiError) as error:
            problems.append(f"{key}={text!r}: {error}")
    return quotas, problems


# -- which holds -------------------------------------------------------------------------------------------------------


class Scope(NamedTuple):
    """Who shares a quota: a user, a client id, or a client id of a user."""

    user: str | None
    client_id: str | None


class Limit(NamedTuple):
    """So much, for all in the scope together."""

    value: float
    scope: Scope


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """All quotas of the cluster."""

    quotas: Mapping[QuotaEntity, Mapping[str, float]]

    def replaced(self, changes: Mapping[QuotaEntity, Mapping[str, float]]) -> QuotaLimits:
        """With these entities having just these; one that has none is forgotten."""
        every = dict(self.quotas)
        for entity, quotas in changes.items():
            every.pop(entity, None)
            if quotas:
                every[entity] = dict(quotas)
        return QuotaLimits(every)

    @property
    def limits_clients(self) -> bool:
        """Whether any request may be limited at all."""
        return any(IP not in entity.types for entity in self.quotas)

    def limit_of(self, key: str, user: str, client_id: str) -> Limit | None:
        for entity, scope in _candidates(user, client_id):
            value = self.quotas.get(entity, {}).get(key)
            if value is not None:
                return Limit(value, scope)
        return None

    def connection_rates(self) -> tuple[dict[str, float], float | None]:
        """How many connections addresses may make in a second, and all that are not named."""
        rates = {
            entity.parts[0][1]: quotas[CONNECTION_CREATION_RATE]
            for entity, quotas in self.quotas.items()
            if entity.types == (IP,) and CONNECTION_CREATION_RATE in quotas
        }
        default = rates.pop(None, None)
        return {name: rate for name, rate in rates.items() if name is not None}, default


NO_LIMITS: Final = QuotaLimits({})


def _candidates(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, Scope]]:
    """What may hold for a client of a user, the strongest first."""
    for user_name in (user, None):
        for client_name in (client_id, None):
            yield QuotaEntity(((USER, user_name), (CLIENT_ID, client_name))), Scope(user, client_id)
        yield QuotaEntity(((USER, user_name),)), Scope(user, None)
    for client_name in (client_id, None):
        yield QuotaEntity(((CLIENT_ID, client_name),)), Scope(None, client_id)


# -- what is asked for -------------------------------------------------------------------------------------------------

MATCH_EXACT: Final = 0
MATCH_DEFAULT: Final = 1
MATCH_SPECIFIED: Final = 2


class Component(NamedTuple):
    """What an entity must have to be found, as it comes from the wire."""

    entity_type: str
    match_type: int
    match: str | None


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """Which entities are meant: by names, by having a type at all; `strict`: and no other types."""

    exact: Mapping[str, str | None]
    types: frozenset[str]
    strict: bool

    @classmethod
    def of(cls, components: Iterable[Component], *, strict: bool) -> QuotaFilter:
        """ApiError where nothing can be meant by them."""
        exact: dict[str, str | None] = {}
        types: set[str] = set()
        for kind, match_type, match in components:
            if not kind:
                raise _invalid("Invalid empty entity type.")
            if kind in exact or kind in types:
                raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
            if kind not in ENTITY_TYPES:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
            _check_match(match_type, match)
            if match_type == MATCH_SPECIFIED:
                types.add(kind)
            else:
                exact[kind] = match
        named = exact.keys() | types
        if IP in named and len(named) > 1:
            raise _invalid(
                "Invalid entity filter component combination. IP filter component should not be used with user or "
                "clientId filter component."
            )
        return cls(exact, frozenset(types), strict)

    def matches(self, entity: QuotaEntity) -> bool:
        names = dict(entity.parts)
        if self.strict and len(names) != len(self.exact) + len(self.types):
            return False
        return all(kind in names and names[kind] == name for kind, name in self.exact.items()) and all(
            kind in names for kind in self.types
        )


def _check_match(match_type: int, name: str | None) -> None:
    match match_type:
        case 0 if name is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        case 1 if name is not None:
            raise _invalid("Request specified MATCH_TYPE_DEFAULT, but also specified a match string.")
        case 2 if name is not None:
            raise _invalid("Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.")
        case 0 | 1 | 2:
            return
    raise _invalid(f"Unknown match type {match_type}")

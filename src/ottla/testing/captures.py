"""Operations of Apache Kafka 3.9 with ZooKeeper as others captured them: znodes, transactions and requests.

They lie beside the repository, not in it; `captures()` is empty where they are not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from ottla.ids import parse_topic_id, topic_id_text
from ottla.protocol.schema import Field, schema_of
from ottla.protocol.versions import API_TABLE
from ottla.protocol.wire import BYTES, RECORDS, UUID16, ZERO_UUID, Primitive

FILE = Path(__file__).parents[4] / "shared" / "protocol" / "zookeeper" / "captures.json"
MISSING = "the captured operations are not beside this repository"
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


@dataclass(frozen=True, slots=True)
class CapturedRequest:
    """A request and its response; `sender` is the client id: a number is a broker or the controller."""

    done_ms: int
    sender: str
    receiver: int
    api_key: int
    version: int
    request: dict[str, Any]
    response: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Capture:
    """What was seen while one thing happened: the data of nodes afterwards, and of those that changed also before."""

    number: int
    operation: str
    created: dict[str, str | None]
    changed: dict[str, str | None]
    before: dict[str, tuple[str | None, int]]  # with the version
    deleted: list[str]
    transactions: list[dict[str, Any]]
    requests: list[CapturedRequest]
    raw: list[dict[str, Any]]

    def __str__(self) -> str:
        return f"{self.number}: {self.operation}"


@cache
def captures() -> list[Capture]:
    if not FILE.exists():
        return []
    return [
        Capture(
            number,
            entry["operation"],
            {path: node["data"] for path, node in entry["znodes"]["created"].items()},
            {path: node["after"] for path, node in entry["znodes"]["changed"].items()},
            {
                path: (node["before"], node["versionBefore"])
                for path, node in entry["znodes"]["changed"].items()
                if "versionBefore" in node  # else it went and came again
            },
            entry["znodes"]["deleted"],
            entry["transactions"],
            [
                CapturedRequest(
                    each["done_ms"],
                    each["from"],
                    each["to"],
                    each["apiKey"],
                    each["version"],
                    _without_sizes(each["json"]),
                    _without_sizes(each["response"]),
                )
                for each in entry["requests"]
            ],
            entry.get("raw_requests_received_by_broker_9", []),
        )
        for number, entry in enumerate(json.loads(FILE.read_text())["captures"])
    ]


def _without_sizes(document: Any) -> Any:
    """Kafka logs the size of records in their place."""
    if isinstance(document, list):
        return [_without_sizes(each) for each in document]
    if isinstance(document, dict):
        sizes = {"records": None} if "recordsSizeInBytes" in document else {}
        return {name: _without_sizes(value) for name, value in document.items() if name != "recordsSizeInBytes"} | sizes
    return document


def operations_of(transaction: dict[str, Any]) -> list[dict[str, Any]]:
    """The single operations of a transaction, also where it is only one."""
    return list(transaction["ops"]) if transaction["op"] == "multi" else [transaction]


# -- messages as JSON --------------------------------------------------------------------------------------------------


def request_from_json(captured: CapturedRequest) -> Any:
    return from_json(API_TABLE[captured.api_key].request, captured.version, captured.request)


def response_from_json(captured: CapturedRequest) -> Any:
    assert captured.response is not None
    return from_json(API_TABLE[captured.api_key].response, captured.version, captured.response)


def from_json(cls: type, version: int, document: dict[str, Any]) -> Any:
    """A message by the names that Kafka gives its fields in JSON; ValueError where one has no place in the class."""
    values = {}
    left = dict(document)
    for field in schema_of(cls).fields:
        name = json_name(field.name)
        if name in left and version in field.versions:
            values[field.name] = _value(field, version, left.pop(name))
    if left:
        raise ValueError(f"{cls.__name__} {version} has no {sorted(left)}")
    return cls(**values)


def to_json(message: Any, version: int, like: dict[str, Any]) -> dict[str, Any]:
    """A message in the same form, with the fields that `like` has."""
    document = {}
    for field in schema_of(type(message)).fields:
        name = json_name(field.name)
        if name in like and version in field.versions:
            document[name] = _document(getattr(message, field.name), version, like[name])
    return document


def json_name(name: str) -> str:
    first, *others = name.split("_")
    joined = first + "".join(part.capitalize() for part in others)
    return joined.replace("Kraft", "KRaft")


def _value(field: Field, version: int, value: Any) -> Any:
    if value is None:
        return None
    if field.is_array:
        return [_element(field, version, each) for each in value]
    return _element(field, version, value)


def _element(field: Field, version: int, value: Any) -> Any:
    kind = field.wire_type
    if not isinstance(kind, Primitive):
        return from_json(kind, version, value)
    if kind is UUID16:
        return ZERO_UUID if value == NO_ID else parse_topic_id(value)
    return value.encode() if kind in (BYTES, RECORDS) and isinstance(value, str) else value


def _document(value: Any, version: int, like: Any) -> Any:
    if isinstance(value, list):
        return [_document(each, version, example) for each, example in zip(value, like, strict=True)]
    if isinstance(value, UUID):
        return NO_ID if value == ZERO_UUID else topic_id_text(value)
    if isinstance(like, dict):
        return to_json(value, version, like)
    return value.decode() if isinstance(value, bytes) else value

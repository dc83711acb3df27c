"""Our classes say what the public definitions of the protocol say, field by field and version by version.

The definitions lie beside the repository, not in it; without them these tests are skipped.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.schema import REQUIRED, Field, Versions, message_schema_of, schema_of
from ottla.protocol.versions import API_TABLE, all_messages
from ottla.protocol.wire import BOOL, BYTES, FLOAT64, RECORDS, STRING, UUID16, ZERO_UUID, Primitive

DEFINITIONS = Path(__file__).parents[2].parent / "shared" / "protocol"
pytestmark = pytest.mark.skipif(
    not DEFINITIONS.is_dir(), reason="the protocol definitions are not beside this repository"
)

OURS = {cls.__name__: cls for cls in all_messages()}
LEFT_OUT = {
    "spoken by KRaft controllers only": {
        "Vote",
        "BeginQuorumEpoch",
        "EndQuorumEpoch",
        "FetchSnapshot",
        "BrokerRegistration",
        "BrokerHeartbeat",
        "ControllerRegistration",
        "AssignReplicasToDirs",
        "UpdateRaftVoter",
        "Envelope",
    },
    "stored by KRaft controllers only": {
        "KRaftVersionRecord",
        "QuorumStateData",
        "SnapshotFooterRecord",
        "SnapshotHeaderRecord",
        "VotersRecord",
    },
    "written and read by Kafka Streams only": {"SubscriptionInfoData"},
    "the old name of ListConfigResources 0": {"ListClientMetricsResources"},
}
# The early form of Kafka 3.9 gave its record type where others give a version.
TYPE_FOR_VERSION = "ShareGroupPartitionMetadataKey"


def load(name: str) -> Any:
    return json.loads((DEFINITIONS / name).read_text())


@cache
def definitions() -> dict[str, dict[str, Any]]:
    if not DEFINITIONS.is_dir():
        return {}
    return {
        entry["name"]: entry
        for entry in load("kafka_messages_union.json")
        # Of the records of the metadata log we have those that say what we serve.
        if entry["type"] != "metadata" or entry["name"] in OURS
    }


def parse_versions(text: str | None) -> Versions:
    if text is None or text == "none":
        return Versions(0, -1)
    first, _, last = text.removesuffix("+").partition("-")
    return Versions(int(first), 32767 if text.endswith("+") else int(last or first))


class OnTheWire(NamedTuple):
    """What one version has at one place."""

    path: str
    wire_type: str
    nullable: bool
    tag: int | None
    compact: bool


def squeezed(name: str) -> str:
    return name.replace("_", "").lower()


def defined_layout(definition: dict[str, Any], version: int) -> Iterator[OnTheWire]:
    dropped = definition.get("droppedDefinition")
    if dropped and version in parse_versions(dropped["validVersions"]):
        used = dropped
    else:
        used = definition
    structs = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", [])}
    yield from defined_fields(used["fields"], structs, version, "")


def defined_fields(
    fields: list[dict[str, Any]], structs: dict[str, Any], version: int, parent: str
) -> Iterator[OnTheWire]:
    for field in fields:
        if version not in parse_versions(field["versions"]):
            continue
        path = f"{parent}.{squeezed(field['name'])}"
        element = field["type"].removeprefix("[]")
        is_struct = element[0].isupper()
        yield OnTheWire(
            path,
            field["type"].replace(element, "struct") if is_struct else field["type"],
            version in parse_versions(field.get("nullableVersions")),
            field.get("tag"),
            field.get("flexibleVersions") != "none",
        )
        if is_struct:
            yield from defined_fields(field.get("fields") or structs[element], structs, version, path)


def our_layout(cls: type, version: int, parent: str = "") -> Iterator[OnTheWire]:
    for field in schema_of(cls).fields:
        if version not in field.versions:
            continue
        path = f"{parent}.{squeezed(field.name)}"
        element = "struct" if field.struct else str(field.wire_type)
        yield OnTheWire(
            path,
            f"[]{element}" if field.is_array else element,
            version in field.nullable,
            field.tag,
            field.compact,
        )
        if field.struct:
            yield from our_layout(field.struct, version, path)


def covered_versions(definition: dict[str, Any]) -> Versions:
    """From the oldest version that was ever dropped to the newest."""
    current = parse_versions(definition["validVersions"])
    if "droppedVersions" not in definition:
        return current
    return Versions(min(current.first, parse_versions(definition["droppedVersions"]).first), current.last)


@pytest.mark.parametrize("name", sorted(OURS))
def test_every_version_has_the_defined_fields_in_the_defined_order(name: str) -> None:
    definition = definitions()[name]
    schema = message_schema_of(OURS[name])
    if name == TYPE_FOR_VERSION:
        assert list(our_layout(OURS[name], 0)) == list(defined_layout(definition, version=9))
        return
    assert schema.versions == covered_versions(definition)
    for version in schema.versions:
        assert list(our_layout(OURS[name], version)) == list(defined_layout(definition, version)), version


def test_every_message_has_the_defined_key_and_listeners_and_becomes_flexible_when_defined() -> None:
    for name, cls in OURS.items():
        definition = definitions()[name]
        schema = message_schema_of(cls)
        flexible = parse_versions(definition["flexibleVersions"])
        for version in schema.versions:
            assert schema.is_flexible(version) == (version in flexible), name
        if definition["type"] in ("request", "response"):
            assert schema.key == definition["apiKey"], name
            assert list(schema.listeners) == definition.get("listeners", []), name
        elif definition["type"].startswith(("coordinator", "metadata")):
            assert schema.record_type == definition["apiKey"], name


def defined_by_path(definition: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every field of a definition, those of dropped versions included."""
    structs = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", [])}
    dropped = definition.get("droppedDefinition", {"fields": []})
    return dict(walk(dropped["fields"], structs, "")) | dict(walk(definition["fields"], structs, ""))


def walk(fields: list[dict[str, Any]], structs: dict[str, Any], parent: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for field in fields:
        path = f"{parent}.{squeezed(field['name'])}"
        yield path, field
        element = field["type"].removeprefix("[]")
        if element[0].isupper():
            yield from walk(field.get("fields") or structs[element], structs, path)


def our_fields(cls: type, parent: str = "") -> Iterator[tuple[str, Field]]:
    for field in schema_of(cls).fields:
        path = f"{parent}.{squeezed(field.name)}"
        yield path, field
        if field.struct:
            yield from our_fields(field.struct, path)


def stated_default(definition: dict[str, Any], field: Field) -> Any:
    """The default that a definition states, as a Python value; REQUIRED if it states none."""
    text = definition.get("default", REQUIRED)
    if text is REQUIRED or (text == "" and field.wire_type is not STRING):
        return REQUIRED
    if text in (None, "null"):
        return None
    if field.wire_type is STRING:
        return text
    if field.wire_type is BOOL:
        return str(text).lower() == "true"
    return int(str(text), 0)


def zero_of(field: Field) -> Any:
    """The default of a field whose definition states none."""
    if field.is_array:
        return []
    if not isinstance(field.wire_type, Primitive):
        return None  # a tagged struct that is left out
    zeros: dict[Primitive, Any] = {STRING: "", BYTES: b"", RECORDS: b"", UUID16: ZERO_UUID, BOOL: False, FLOAT64: 0.0}
    return zeros.get(field.wire_type, 0)


def test_defaults_are_those_of_the_definition() -> None:
    for name, cls in OURS.items():
        defined = defined_by_path(definitions()[name])
        for path, field in our_fields(cls):
            stated = stated_default(defined[path], field)
            if stated is not REQUIRED:
                assert field.default == stated, name + path
            elif field.default is not REQUIRED:
                # A nullable string that nobody set is null here and empty there; no peer can tell, as every
                # version that has the field carries what the sender set.
                is_null_string = field.default is None and field.wire_type is STRING and field.tag is None
                assert is_null_string or field.default == zero_of(field), name + path


def test_a_field_may_be_ignored_only_where_the_definition_lets_it() -> None:
    for name, cls in OURS.items():
        defined = defined_by_path(definitions()[name])
        for path, field in our_fields(cls):
            is_partial = not all(version in field.versions for version in message_schema_of(cls).versions)
            # Header 0 has no client id, and whoever sends it has one all the same.
            if is_partial and (name, path) != ("RequestHeader", ".clientid"):
                assert field.ignorable == bool(defined[path].get("ignorable")), name + path


def test_nothing_is_left_out_but_what_is_listed() -> None:
    left_out = set().union(*LEFT_OUT.values())
    for name in definitions():
        is_listed = name.removesuffix("Request").removesuffix("Response") in left_out
        assert (name in OURS) != is_listed, name


def test_the_api_table_is_the_public_one() -> None:
    for entry in load("api_table.json"):
        api = API_TABLE.get(entry["apiKey"])
        if api is None:
            assert entry["name"] in set().union(*LEFT_OUT.values()) or entry["v4.3.1"] is None
            continue
        ranges = [entry[column] for column in ("v3.9.1", "v4.3.1") if entry[column]]
        assert api.name == entry["name"]
        assert api.versions == Versions(min(first for first, _ in ranges), max(last for _, last in ranges))
        assert api.flexible_since == entry["firstFlexible"]
        advertised = entry["advertised_4.3.1_broker"]
        assert api.advertised == (Versions(*advertised) if advertised else None), api.name


def test_the_error_table_is_the_public_one() -> None:
    for entry in load("errors.json"):
        code = ErrorCode(entry["code"])
        assert code.name == entry["name"]
        assert code.retriable == entry["retriable"], code
        assert code.refresh_metadata == entry["refreshMetadata"], code
        assert code.aborts_transaction == entry["txnAbortable"], code
    assert len(ErrorCode) == len(load("errors.json"))

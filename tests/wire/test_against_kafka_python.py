"""Our bytes are those of kafka-python, whose codec knows nothing of ours."""

import importlib
import warnings
from random import Random
from typing import Any

import pytest

from ottla.protocol.codec import decode, encode
from ottla.protocol.schema import Field, Versions, message_schema_of, schema_of
from ottla.protocol.versions import all_messages
from ottla.testing.messages import random_message, smallest_message

with warnings.catch_warnings():
    # It reads its definitions in a way that Python 3.11 deprecates and 3.13 allows again.
    warnings.simplefilter("ignore", DeprecationWarning)
    for module in ("admin", "consumer", "metadata", "producer", "sasl"):
        importlib.import_module(f"kafka.protocol.{module}")
    from kafka.protocol.api_data import ApiData
    from kafka.protocol.api_header import ApiHeader
    from kafka.protocol.api_message import ApiMessage

OURS = {cls.__name__: cls for cls in all_messages()}
THEIRS = {
    cls.__name__: cls
    for base in (ApiMessage, ApiData, ApiHeader)
    for cls in base.__subclasses__()
    if cls.__name__ in OURS
}

# What kafka-python 3.0.12 has no class for. Nothing else may be missing.
ONLY_OURS = {
    "between brokers, which a client does not speak": {
        "LeaderAndIsr",
        "StopReplica",
        "UpdateMetadata",
        "ControlledShutdown",
        "AlterPartition",
        "AllocateProducerIds",
        "InitializeShareGroupState",
        "ReadShareGroupState",
        "WriteShareGroupState",
        "DeleteShareGroupState",
        "ReadShareGroupStateSummary",
    },
    "administration it does not offer": {
        "CreateDelegationToken",
        "RenewDelegationToken",
        "ExpireDelegationToken",
        "DescribeDelegationToken",
        "UnregisterBroker",
        "AddRaftVoter",
        "RemoveRaftVoter",
    },
    "kinds of groups and telemetry that it lacks": {
        "ConsumerGroupHeartbeat",
        "ConsumerGroupDescribe",
        "ShareGroupHeartbeat",
        "ShareGroupDescribe",
        "ShareFetch",
        "ShareAcknowledge",
        "DescribeShareGroupOffsets",
        "AlterShareGroupOffsets",
        "DeleteShareGroupOffsets",
        "StreamsGroupHeartbeat",
        "StreamsGroupDescribe",
        "GetTelemetrySubscriptions",
        "PushTelemetry",
    },
    "inside records and files of a broker": {
        "ControlRecordTypeSchema",
        "EndTxnMarker",
        "LeaderChangeMessage",
        "ProducerSnapshot",
        "DefaultPrincipalData",
    },
}
# Versions that Kafka 4 dropped, with fields that kafka-python's definitions no longer have.
GONE = {
    "ListOffsetsRequest": Versions(0, 0),
    "ListOffsetsResponse": Versions(0, 0),
    "OffsetCommitRequest": Versions(1, 1),
    "DescribeConfigsResponse": Versions(0, 0),
    "RequestHeader": Versions(0, 0),
}


def common_versions(name: str) -> list[int]:
    ours, theirs = message_schema_of(OURS[name]).versions, THEIRS[name]
    gone = GONE.get(name, ())
    last = theirs._valid_versions[1]
    return [version for version in ours if version <= last and version not in gone]


def their_struct(struct: Any, message: Any, version: int) -> Any:
    """The same message in kafka-python's classes."""
    fields = {field.name.replace("_", ""): field for field in schema_of(type(message)).fields}
    values = {}
    for theirs in struct.fields.values():
        if not theirs.for_version_q(version):
            continue
        ours = our_field(fields, theirs.name.replace("_", ""))
        value = getattr(message, ours.name)
        # They know a tagged field at its default only by its absence.
        if ours.tag is None or value != ours.default:
            values[theirs.name] = their_value(theirs, value, version)
    return struct.data_class(version=version, **values)


def our_field(fields: dict[str, Field], name: str) -> Field:
    """The field of that name; kafka-python shortens `topic_authorized_operations` and the like."""
    return fields.get(name) or next(field for squeezed, field in fields.items() if squeezed.endswith(name))


def their_value(theirs: Any, value: Any, version: int) -> Any:
    if value is None:
        return None
    if theirs.is_struct_array():
        return [their_struct(theirs, element, version) for element in value]
    if theirs.is_struct():
        return their_struct(theirs, value, version)
    if theirs.type_str == "bitfield":
        return {bit for bit in range(32) if value & 0xFFFFFFFF & (1 << bit)}
    return value


def their_bytes(name: str, message: Any, version: int) -> bytes:
    cls = THEIRS[name]
    theirs = their_struct(cls._struct, message, version)
    if issubclass(cls, ApiHeader):
        return bytes(theirs.encode(flexible=message_schema_of(OURS[name]).is_flexible(version)))
    return bytes(theirs.encode(version=version, header=False))


@pytest.mark.parametrize("name", sorted(THEIRS))
def test_random_messages_have_the_same_bytes(name: str) -> None:
    for version in common_versions(name):
        for seed in range(8):
            message: Any = random_message(OURS[name], version, Random(f"{name} {version} {seed}"))
            expected = their_bytes(name, message, version)
            assert encode(message, version) == expected, f"version {version}: {message}"
            assert decode(OURS[name], expected, version) == message


@pytest.mark.parametrize("name", sorted(THEIRS))
def test_the_smallest_messages_have_the_same_bytes(name: str) -> None:
    for version in common_versions(name):
        message: Any = smallest_message(OURS[name], version)
        assert encode(message, version) == their_bytes(name, message, version), f"version {version}"


def test_every_version_is_compared_but_those_that_are_gone() -> None:
    beyond = {
        name: message_schema_of(OURS[name]).versions.last
        for name in THEIRS
        if message_schema_of(OURS[name]).versions.last > THEIRS[name]._valid_versions[1]
    }
    assert beyond == {}


def test_what_kafka_python_lacks_is_listed() -> None:
    lacking = set().union(*ONLY_OURS.values())
    for name, cls in OURS.items():
        is_record = message_schema_of(cls).record_type is not None
        listed = name.removesuffix("Request").removesuffix("Response") in lacking
        assert (name not in THEIRS) == (is_record or listed), name

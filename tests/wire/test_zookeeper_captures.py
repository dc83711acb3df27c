"""What brokers of Apache Kafka 3.9 write to ZooKeeper and send to each other, read and written again by us.

Every znode and every request of 78 captured operations: what we would write is the same JSON (the order of its keys
has no meaning), and what we would send is the same bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker import producer_ids, token_store
from ottla.cluster import nodes
from ottla.cluster.image import NO_LEADER, PartitionState, TopicState
from ottla.ids import parse_topic_id, topic_id_text
from ottla.protocol.codec import decode, encode
from ottla.protocol.headers import decode_request_header, encode_request_header
from ottla.protocol.versions import API_TABLE
from ottla.security.acls import Pattern, Resource, change_node, decode_acls, encode_acls, resource_of_node
from ottla.security.scram import BY_SASL_NAME, ScramCredential
from ottla.testing.captures import (
    MISSING,
    Capture,
    captures,
    operations_of,
    request_from_json,
    response_from_json,
    to_json,
)

pytestmark = pytest.mark.skipif(not captures(), reason=MISSING)

# Written by clients and by older brokers; we read them.
ONLY_READ = "only read"


def broker(path: str, data: bytes) -> bytes:
    registered = nodes.decode_broker(path, data, int(path.rpartition("/")[2]), 7)
    written = json.loads(nodes.encode_broker(registered, int(json.loads(data)["timestamp"])))
    # Ours names the features that its clients may rely on; Kafka 3.9 has none with ZooKeeper.
    return nodes.encode({**written, "features": json.loads(data)["features"]})


def topic(path: str, data: bytes) -> bytes:
    assignment = nodes.decode_assignment(path, data)
    if assignment.topic_id is None:  # of a release from before there were ids: the controller writes it again
        return data
    partitions = tuple(
        PartitionState(each.replicas, NO_LEADER, -1, (), adding=each.adding, removing=each.removing)
        for each in assignment.partitions
    )
    return nodes.encode_topic(TopicState(path.rpartition("/")[2], assignment.topic_id, partitions))


def state(path: str, data: bytes) -> bytes:
    decoded = nodes.decode_state(path, data, (), 3)
    return nodes.encode_state(decoded, json.loads(data)["controller_epoch"])


def config(path: str, data: bytes) -> bytes:
    values = nodes.decode_config(path, data)
    for mechanism in BY_SASL_NAME:
        if mechanism in values:
            values[mechanism] = ScramCredential.from_text(values[mechanism]).to_text()
    return nodes.encode_config(values)


def acls(path: str, data: bytes) -> bytes:
    *_, type_name, name = path.split("/")
    resource = resource_of_node(type_name)
    assert resource is not None
    pattern = Pattern.PREFIXED if "prefixed" in path else Pattern.LITERAL
    return encode_acls(decode_acls(resource, pattern, name, data))


def acl_change(path: str, data: bytes) -> bytes:
    if data.startswith(b"{"):
        change = json.loads(data)
        resource, pattern, name = change["resourceType"], change["patternType"], change["name"]
    else:
        resource, _, name = data.decode().partition(":")
        pattern = "LITERAL"
    where, written = change_node(Resource[resource], Pattern[pattern], name)
    assert path.startswith(where)
    return written


def token(path: str, data: bytes) -> bytes:
    return token_store._encode(token_store._decode(path, data))


def producer_block(path: str, data: bytes) -> bytes:
    start = int(json.loads(data)["block_start"])
    assert nodes.decode_producer_ids_end(path, data) == start + producer_ids.BLOCK_SIZE
    return producer_ids.encode_block(json.loads(data)["broker"], start)


def number(path: str, data: bytes) -> bytes:
    return str(int(data)).encode()


def legacy_election(path: str, data: bytes) -> str:
    assert nodes.decode_partitions(path, data)
    return ONLY_READ


def legacy_move(path: str, data: bytes) -> str:
    assert all(replicas for _, replicas in nodes.decode_reassignments(path, data))
    return ONLY_READ


def cluster_id(path: str, data: bytes) -> bytes:
    return nodes.encode({"version": "1", "id": json.loads(data)["id"]})


def controller(path: str, data: bytes) -> bytes:
    return nodes.encode_controller(json.loads(data)["brokerid"], int(json.loads(data)["timestamp"]))


NODES: dict[str, Callable[[str, bytes], bytes | str]] = {
    r"/brokers/ids/\d+": broker,
    r"/brokers/topics/[^/]+": topic,
    r"/brokers/topics/[^/]+/partitions/\d+/state": state,
    r"/config/(topics|brokers|users|clients|ips)/.+": config,
    r"/config/changes/config_change_\d{10}": lambda path, data: nodes.encode_config_change(
        nodes.decode_config_change(path, data)
    ),
    r"/controller": controller,
    r"/controller_epoch": number,
    r"/cluster/id": cluster_id,
    r"/feature": lambda path, data: nodes.encode_features(),
    r"/latest_producer_id_block": producer_block,
    r"/admin/reassign_partitions": legacy_move,
    r"/admin/preferred_replica_election": legacy_election,
    r"/isr_change_notification/isr_change_\d{10}": legacy_election,
    r"/log_dir_event_notification/log_dir_event_\d{10}": lambda path, data: nodes.encode_log_dir_event(
        nodes.decode_log_dir_event(path, data)
    ),
    r"/kafka-acl(-extended/prefixed)?/\w+/[^/]+": acls,
    r"/kafka-acl-(extended-)?changes/acl_changes_\d{10}": acl_change,
    r"/delegation_token/tokens/[^/]+": token,
    r"/delegation_token/token_changes/token_change_\d{10}": lambda path, data: token_store._change(data.decode()).data,
}


def written(capture: Capture) -> dict[tuple[str, str], None]:
    """Every path with what anybody wrote there, in the course of the operation too."""
    found = {(path, data): None for data_of in (capture.created, capture.changed) for path, data in data_of.items()}
    for transaction in capture.transactions:
        for operation in operations_of(transaction):
            if operation["op"] in ("create", "setData"):
                found[operation["path"], operation.get("data")] = None
    return {(path, data): None for path, data in found if data}


def normal(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_znodes_are_written_as_kafka_writes_them(capture: Capture) -> None:
    for path, text in written(capture):
        data = text.encode()
        again = next(write for pattern, write in NODES.items() if re.fullmatch(pattern, path))(path, data)
        if again is not ONLY_READ:
            assert isinstance(again, bytes)
            assert normal(again) == normal(data), path
            assert b" " not in again.replace(b"CN=a b", b"") or b" " in data, "compact, as Kafka writes it"


def test_every_kind_of_node_was_captured() -> None:
    paths = {path for capture in captures() for path, _ in written(capture)}
    unseen = [pattern for pattern in NODES if not any(re.fullmatch(pattern, path) for path in paths)]
    assert unseen == []


def test_the_tree_after_the_first_start_has_the_nodes_that_we_make() -> None:
    first = captures()[0]
    ours = {*nodes.CLUSTER_ROOTS, nodes.CLUSTER_ID, nodes.CONTROLLER, nodes.CONTROLLER_EPOCH, nodes.FEATURE}
    ours |= {"/brokers/ids/1", "/delegation_token", token_store.TOKENS, token_store.CHANGES}
    assert first.created.keys() - ours == set()
    # Settings of groups came with later releases.
    assert ours - first.created.keys() - {"/delegation_token", token_store.TOKENS, token_store.CHANGES} == {
        "/config/groups"
    }


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_requests_and_responses_have_their_places_in_our_messages(capture: Capture) -> None:
    for captured in capture.requests:
        for document, message in (
            (captured.request, request_from_json(captured)),
            (captured.response, None if captured.response is None else response_from_json(captured)),
        ):
            if message is None:
                continue
            assert document is not None
            again = decode(type(message), encode(message, captured.version), captured.version)
            assert again == message
            assert to_json(again, captured.version, document) == document


@pytest.mark.parametrize("capture", [each for each in captures() if each.raw], ids=str)
def test_requests_are_the_same_bytes(capture: Capture) -> None:
    for each in capture.raw:
        data = bytes.fromhex(each["hex_without_length"])
        header, position = decode_request_header(data)
        assert (header.request_api_key, header.request_api_version) == (each["apiKey"], each["version"])
        assert (header.client_id, header.correlation_id) == (each["clientId"], each["correlationId"])
        body: Any = decode(API_TABLE[each["apiKey"]].request, data[position:], each["version"])
        assert encode_request_header(header) + encode(body, each["version"]) == data


def test_topic_ids_are_written_as_kafka_writes_them() -> None:
    texts = {
        json.loads(data)["topic_id"]
        for capture in captures()
        for path, data in written(capture)
        if re.fullmatch(r"/brokers/topics/[^/]+", path) and "topic_id" in data
    }
    assert texts
    assert {topic_id_text(parse_topic_id(text)) for text in texts} == texts

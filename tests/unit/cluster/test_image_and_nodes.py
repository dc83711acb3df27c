"""The cluster as a value, and how the metadata store writes it down."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from ottla.cluster import nodes
from ottla.cluster.image import BrokerEndpoint, BrokerNode, ClusterImage, PartitionState, TopicState
from ottla.ids import TopicPartition
from ottla.store.api import check_path

STATE = PartitionState(replicas=(1, 2), leader=2, leader_epoch=7, isr=(2,), version=4)
TOPIC = TopicState("t", UUID(int=5), (STATE,))


def test_an_image_is_never_changed_only_followed_by_another() -> None:
    empty = ClusterImage("c")
    one = empty.with_topics([TOPIC])
    none = one.with_topics([], removed=["t"])
    assert (len(empty.topics), len(one.topics), len(none.topics)) == (0, 1, 0)
    assert one.topic_by_id(UUID(int=5)) is TOPIC
    assert none.topic_by_id(UUID(int=5)) is None
    assert none.names_by_id == {}


def test_partitions_are_found_by_name_and_number() -> None:
    image = ClusterImage("c").with_topics([TOPIC])
    assert image.partition(TopicPartition("t", 0)) is STATE
    for name in (("t", 1), ("t", -1), ("u", 0)):
        assert image.partition(TopicPartition(*name)) is None


def test_topics_and_states_come_back_as_they_were_written() -> None:
    assignment = nodes.decode_assignment("p", nodes.encode_topic(TOPIC))
    assert assignment == nodes.TopicAssignment(UUID(int=5), (nodes.PartitionAssignment((1, 2)),))
    assert nodes.decode_state("p", nodes.encode_state(STATE, 3), (1, 2), 4) == STATE
    assert nodes.decode_deletion("p", nodes.encode_deletion(UUID(int=5))) == UUID(int=5)
    assert nodes.decode_config("p", nodes.encode_config({"a": "1"})) == {"a": "1"}


def test_a_state_is_written_as_kafka_writes_it() -> None:
    assert nodes.encode_state(STATE, 3) == b'{"controller_epoch":3,"leader":2,"version":1,"leader_epoch":7,"isr":[2]}'


def test_a_broker_names_its_listeners() -> None:
    broker = BrokerNode(1, {"INTERNAL": BrokerEndpoint("h", 9092), "OUT": BrokerEndpoint("::1", 9093, "SSL")}, "r")
    data = nodes.encode_broker(broker, 1000)
    value = nodes.decode("p", data)
    assert value["endpoints"][0] == "INTERNAL://h:9092"
    assert value["listener_security_protocol_map"] == {"INTERNAL": "PLAINTEXT", "OUT": "SSL"}
    assert (value["host"], value["port"], value["rack"], value["timestamp"]) == ("h", 9092, "r", "1000")
    assert nodes.decode_broker("p", data, 1, epoch=7) == replace(broker, epoch=7)
    without = nodes.decode("p", nodes.encode_broker(BrokerNode(1, {"S": BrokerEndpoint("h", 1, "SSL")}), 0))
    assert (without["host"], without["port"]) == (None, -1)
    assert "rack" not in without


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b'{"partitions":{"1":[1]},"topic_id":"AAAAAAAAAAAAAAAAAAAAAA"}']
)
def test_a_node_that_does_not_hold_what_it_must_is_named(data: bytes) -> None:
    with pytest.raises(nodes.MetadataError, match="/brokers/topics/t"):
        nodes.decode_assignment("/brokers/topics/t", data)
    with pytest.raises(nodes.MetadataError, match="/state"):
        nodes.decode_state("/state", data, (), 0)
    with pytest.raises(nodes.MetadataError, match="/deletion"):
        nodes.decode_deletion("/deletion", b"{}")


@pytest.mark.parametrize("name", ["plain", "a/b", "%41", "<default>", "ü", "a b", ".", "..", "...", "a.b", "\0", "%2E"])
def test_entity_names_are_one_segment_of_a_path(name: str) -> None:
    path = nodes.config_path("users", name)
    check_path(path)
    check_path(nodes.consumer_offset_path(name, "t", 0))
    assert path.count("/") == 3
    assert nodes.config_name(path.rpartition("/")[2]) == name


def test_what_is_called_default_is_not_the_default() -> None:
    assert nodes.config_path("users", "") == "/config/users/<default>"
    assert nodes.config_path("users", "<default>") == "/config/users/%3Cdefault%3E"


@pytest.mark.parametrize(
    "partitions",
    [{"0": [1, 99999999999]}, {"0": [-1]}, {"0": ["1"]}, {"0": [True]}, {"0": [1, 1]}, {"0": []}, {"0": 1}, {"1": [1]}],
    ids=str,
)
def test_replicas_that_no_message_can_name_are_no_assignment(partitions: dict[str, object]) -> None:
    """A request that cannot be encoded would hold up all that a controller has to say to a broker."""
    data = nodes.encode({"version": 1, "partitions": partitions})
    with pytest.raises(nodes.MetadataError, match="/brokers/topics/t"):
        nodes.decode_assignment("/brokers/topics/t", data)


@pytest.mark.parametrize(
    "wrong",
    [{"leader": 2**31}, {"leader": -2}, {"leader": None}, {"leader_epoch": -1}, {"isr": ["a", None]}, {"isr": [2, 2]}],
    ids=str,
)
def test_numbers_that_no_message_can_hold_are_no_state(wrong: dict[str, object]) -> None:
    value = {"controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 0, "isr": [1]}
    assert nodes.decode_state("/state", nodes.encode(value), (1, 2), version=0).leader == 1
    with pytest.raises(nodes.MetadataError, match="/state"):
        nodes.decode_state("/state", nodes.encode({**value, **wrong}), (1, 2), version=0)


@pytest.mark.parametrize(
    ("node_id", "wrong"),
    [(1, {"rack": 5}), (1, {"endpoints": ["PLAINTEXT://host:65536"]}), (2**31, {}), (1, {"endpoints": [7]})],
    ids=str,
)
def test_a_registration_that_no_message_can_hold_is_none(node_id: int, wrong: dict[str, object]) -> None:
    value = {"version": 5, "endpoints": ["PLAINTEXT://host:9092"], "rack": "a"}
    assert nodes.decode_broker("/ids", nodes.encode(value), 1, epoch=7).rack == "a"
    with pytest.raises(nodes.MetadataError, match="/ids"):
        nodes.decode_broker("/ids", nodes.encode({**value, **wrong}), node_id, epoch=7)


def test_an_epoch_of_the_controller_that_is_no_number_names_its_node() -> None:
    assert nodes.decode_controller_epoch("/controller_epoch", b"7") == 7
    with pytest.raises(nodes.MetadataError, match="/controller_epoch"):
        nodes.decode_controller_epoch("/controller_epoch", b"x")

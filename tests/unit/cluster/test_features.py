"""A client may rely on a feature once every broker has it."""

from __future__ import annotations

from ottla.cluster import nodes
from ottla.cluster.features import FINALIZED_FEATURES, common_features
from ottla.cluster.image import BrokerEndpoint, BrokerNode

OURS = nodes.decode_features(
    "/brokers/ids/1", nodes.encode_broker(BrokerNode(1, {"PLAINTEXT": BrokerEndpoint("h", 9092, "PLAINTEXT")}), 0)
)
KAFKA_3_9 = nodes.decode_features("/brokers/ids/2", b'{"version":5,"endpoints":[],"features":{}}')


def test_brokers_of_one_kind_have_all_features() -> None:
    assert common_features([OURS, OURS]) == FINALIZED_FEATURES
    assert OURS["transaction.version"] == FINALIZED_FEATURES["transaction.version"] == 2


def test_one_broker_without_a_feature_is_enough_to_do_without() -> None:
    assert "transaction.version" not in common_features([OURS, KAFKA_3_9])
    assert "group.version" not in common_features([OURS, KAFKA_3_9])


def test_the_lowest_version_counts_and_never_more_than_this_broker_has() -> None:
    assert common_features([OURS, {**OURS, "transaction.version": 1}])["transaction.version"] == 1
    assert common_features([{**OURS, "transaction.version": 7}])["transaction.version"] == 2

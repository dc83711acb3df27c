"""How well a cluster is, and what its brokers carry."""

from __future__ import annotations

from uuid import UUID

from ottla.client.health import BrokerLoad, health_of, loads_of
from ottla.client.metadata import ClusterView, Node, Partition, Topic
from ottla.ids import TopicPartition
from ottla.net.client import Address


def view_of(**topics: list[tuple[int, tuple[int, ...], tuple[int, ...]]]) -> ClusterView:
    """Topics by name; of each partition the leader, the replicas and those in sync. Brokers 1 and 2 are alive."""
    return ClusterView(
        cluster_id="c",
        controller_id=1,
        nodes={node: Node(node, Address("h", node)) for node in (1, 2)},
        topics={
            name: Topic(
                name,
                UUID(int=1),
                False,
                tuple(
                    Partition(number, leader, 0, replicas, isr)
                    for number, (leader, replicas, isr) in enumerate(partitions)
                ),
            )
            for name, partitions in topics.items()
        },
        errors={},
    )


def test_a_cluster_in_which_all_is_in_sync_is_well():
    health = health_of(view_of(t=[(1, (1, 2), (1, 2))]), {"t": 2})
    assert health.is_good
    assert health.partition_count == 1


def test_what_is_wrong_is_named_by_its_kind():
    view = view_of(behind=[(1, (1, 3), (1,)), (1, (1, 2), (1, 2))], gone=[(-1, (3,), (3,))], strict=[(1, (1, 3), (1,))])
    health = health_of(view, {"strict": 2})
    assert not health.is_good
    assert health.partition_count == 4
    assert health.under_replicated == (TopicPartition("behind", 0), TopicPartition("strict", 0))
    assert health.under_min_isr == (TopicPartition("strict", 0),)
    assert health.offline == (TopicPartition("gone", 0),)


def test_the_load_of_a_broker_that_is_down_is_told_too():
    view = view_of(t=[(1, (3, 1), (1,)), (2, (2, 1), (2, 1)), (1, (1,), (1,))])
    assert loads_of(view) == {
        1: BrokerLoad(replicas=3, leaders=2, preferred_leaders=1, out_of_sync=0),
        2: BrokerLoad(replicas=1, leaders=1, preferred_leaders=1, out_of_sync=0),
        3: BrokerLoad(replicas=1, leaders=0, preferred_leaders=1, out_of_sync=1),
    }

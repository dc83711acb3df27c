"""All replicas in sync are gone: nobody leads, until somebody takes the loss, by a setting or by hand.

What is lost then is exactly what only the lost leader had. Everybody involved says so in its log.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.testing.cluster import Cluster
from ottla.testing.cluster_clients import consume, create_assigned, new_producer, produce
from ottla.testing.waiting import wait_until

LEADER, FOLLOWERS = 2, (3, 4)
FAILOVER_S = 30.0  # what a busy machine may take from the end of a session on
SETTINGS = {
    "zookeeper.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "min.insync.replicas": "1",
}
COMMON = [b"everybody has %d" % number for number in range(100)]
ALONE = [b"only the leader has %d" % number for number in range(50)]
LATER = [b"written later: %d" % number for number in range(50)]


def lose_the_last_in_sync(cluster: Cluster) -> float:
    """The leader takes records while nobody follows, and is killed; the moment when it is missed.

    Followers are paused until requests that they had sent before have been answered: the answer could be records.
    """
    producer = new_producer(cluster)
    produce(producer, "t", COMMON)
    cluster.wait_for_isr("t", 0, LEADER, *FOLLOWERS)
    for node_id in FOLLOWERS:
        os.kill(cluster.brokers[node_id].pid, signal.SIGSTOP)
    cluster.wait_for_isr("t", 0, LEADER)
    produce(producer, "t", ALONE)
    wait_until(lambda: f"t 0 {len(COMMON + ALONE)}" in high_watermarks(cluster, LEADER))
    with cluster.noting_end_of_session(LEADER) as ended:
        cluster.brokers[LEADER].kill()
        for node_id in FOLLOWERS:
            os.kill(cluster.brokers[node_id].pid, signal.SIGCONT)
    return ended.moment


def high_watermarks(cluster: Cluster, node_id: int) -> list[str]:
    return (Path(cluster.brokers[node_id].directory) / "replication-offset-checkpoint").read_text().splitlines()


def log_bytes(cluster: Cluster, node_id: int) -> bytes:
    segments = sorted((Path(cluster.brokers[node_id].directory) / "t-0").glob("*.log"))
    return b"".join(segment.read_bytes() for segment in segments)


def check_what_is_lost(cluster: Cluster) -> None:
    """The others write and read; the lost leader comes back and gives up what only it had."""
    leader = cluster.state("t", 0)["leader"]
    assert leader in FOLLOWERS
    produce(new_producer(cluster), "t", LATER)
    assert consume(cluster, "t", len(COMMON + LATER)) == COMMON + LATER
    cluster.start_broker(LEADER)
    cluster.wait_for_isr("t", 0, LEADER, *FOLLOWERS)
    assert consume(cluster, "t", len(COMMON + LATER)) == COMMON + LATER
    wait_until(lambda: len({log_bytes(cluster, node_id) for node_id in (LEADER, *FOLLOWERS)}) == 1)
    elected = f"t-0: unclean election: broker {leader} leads; records that only [{LEADER}] had are lost"
    assert elected in cluster.brokers[1].log_tail()
    truncated = f"t-0: committed records from {len(COMMON)} to {len(COMMON + ALONE)} are truncated"
    assert truncated in cluster.brokers[LEADER].log_tail()


@pytest.fixture
def cluster(connect: str) -> Cluster:
    """Its first broker is the controller and has no replica of what is lost."""
    return Cluster(connect, size=4, settings=SETTINGS, in_process=False)


def test_with_unclean_elections_another_leads_soon_and_only_what_nobody_else_had_is_lost(cluster: Cluster) -> None:
    with cluster:
        assert cluster.controller_id == 1
        create_assigned(cluster, "t", [LEADER, *FOLLOWERS], config={"unclean.leader.election.enable": "true"})
        missed = lose_the_last_in_sync(cluster)
        wait_until(lambda: cluster.state("t", 0)["leader"] in FOLLOWERS)
        waited_s = time.monotonic() - missed
        print(f"led {waited_s:.2f} s after the end of the session")
        assert waited_s < FAILOVER_S
        check_what_is_lost(cluster)


def test_without_them_nobody_leads_until_a_leader_is_elected_by_hand(
    cluster: Cluster, run_command: Callable[..., Any]
) -> None:
    def ottla(*arguments: str) -> Any:
        return run_command(*arguments, "--bootstrap-server", cluster.bootstrap_servers)

    with cluster:
        assert cluster.controller_id == 1
        create_assigned(cluster, "t", [LEADER, *FOLLOWERS])
        lose_the_last_in_sync(cluster)
        cluster.wait_for_leader("t", 0, -1)
        assert cluster.state("t", 0)["isr"] == [LEADER]
        (offline,) = ottla("topics", "describe", "--offline", "--json").documents
        assert offline["topic"] == "t"
        # A follower that was paused for longer than its session has to register again first.
        wait_until(lambda: ottla("elect", "t:0", "--unclean").code == 0)
        check_what_is_lost(cluster)

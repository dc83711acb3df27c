"""A partition moves to another broker, slowed down, over a change of the controller; on a real ZooKeeper."""

from __future__ import annotations

import json

from ottla.cli.main import main
from ottla.ids import TopicPartition
from ottla.testing.cluster import Cluster
from ottla.testing.cluster_clients import consume, create_assigned, new_producer, produce
from ottla.testing.waiting import wait_until

T0 = TopicPartition("t", 0)


def test_a_throttled_move_goes_on_under_the_next_controller_and_loses_its_throttle_in_the_end(
    connect: str, tmp_path, capsys
) -> None:
    with Cluster(connect, settings={"min.insync.replicas": "1", "replica.fetch.max.bytes": "100000"}) as cluster:
        create_assigned(cluster, "t", [2], config={"compression.type": "uncompressed"})
        values = [bytes([number]) * 100_000 for number in range(20)]
        produce(new_producer(cluster), "t", values)
        file = tmp_path / "plan.json"
        file.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [3]}]}))

        def ottla(*arguments: str) -> int:
            code = main([*arguments, "--bootstrap-server", cluster.bootstrap_servers])
            capsys.readouterr()
            return code

        assert ottla("reassign", "execute", str(file), "--throttle", "1") == 0
        follower = cluster.brokers[3].running
        wait_until(lambda: (known := follower.replicas.get(T0)) is not None and known.log.end_offset > 0)
        assert cluster.controller_id == 1
        cluster.brokers[1].restart()
        wait_until(lambda: cluster.controller_id in (2, 3))
        assert 0 < follower.replicas.find("t", 0).log.end_offset < 20
        assert cluster.state("t", 0)["isr"] == [2]

        assert ottla("reassign", "execute", str(file), "--additional", "--throttle", "100000000") == 0
        cluster.wait_for_isr("t", 0, 3)
        assert ottla("reassign", "verify", str(file), "--wait") == 0
        assert "throttled" not in json.dumps(cluster.stored("/config/topics/t"))
        assert "throttled" not in json.dumps(cluster.stored("/config/brokers/2"))
        assert consume(cluster, "t", 20) == values

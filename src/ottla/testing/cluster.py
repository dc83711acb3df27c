"""Real brokers that form a cluster, for tests: on free ports, in this process or beside it, with a ZooKeeper.

with ZooKeeperEnsemble(directory) as ensemble, Cluster(ensemble.connect) as cluster:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    cluster.brokers[2].kill()
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ottla.testing.broker import Broker
from ottla.testing.waiting import wait_until

# What a test wants unless it says otherwise: few partitions of internal topics, sessions that end soon.
CLUSTER_SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",
    "zookeeper.connection.timeout.ms": "60000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


class InZooKeeper:
    """What ZooKeeper says of a cluster."""

    def __init__(self, connect: str) -> None:
        """`connect`: where ZooKeeper is, with a path of the cluster's own if others use it too."""
        self.connect = connect

    def stored(self, path: str) -> Any:
        """The JSON of a node; None where it is not there."""
        client = KazooClient(self.connect)
        client.start()
        try:
            return json.loads(client.get(path)[0])
        except NoNodeError:
            return None
        finally:
            client.stop()
            client.close()

    @property
    def controller_id(self) -> int | None:
        found = self.stored("/controller")
        return None if found is None else int(found["brokerid"])

    def state(self, topic: str, partition: int) -> dict[str, Any]:
        """Leader, epoch and in-sync replicas of a partition."""
        found: dict[str, Any] = self.stored(f"/brokers/topics/{topic}/partitions/{partition}/state")
        return found

    def wait_for_isr(self, topic: str, partition: int, *node_ids: int) -> None:
        wait_until(lambda: sorted(self.state(topic, partition)["isr"]) == sorted(node_ids))


class Cluster(InZooKeeper):
    """Brokers 1 to `size`. The ensemble is the test's own."""

    def __init__(
        self, connect: str, *, size: int = 3, settings: Mapping[str, str] | None = None, in_process: bool = True
    ) -> None:
        super().__init__(connect)
        self.brokers = {
            node_id: Broker(
                {
                    **CLUSTER_SETTINGS,
                    **(settings or {}),
                    "broker.id": str(node_id),
                    "zookeeper.connect": connect,
                },
                in_process=in_process,
            )
            for node_id in range(1, size + 1)
        }

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def start(self) -> Self:
        for broker in self.brokers.values():
            broker.start()
        return self

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.stop()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

"""Real brokers that form a cluster, for tests: on free ports, in this process or beside it, with a ZooKeeper.

with ZooKeeperEnsemble(directory) as ensemble, Cluster(ensemble.connect) as cluster:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    cluster.kill(2)
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Final, Protocol, Self

from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.testing.broker import Broker
from ottla.testing.in_zookeeper import InZooKeeper
from ottla.testing.raw_client import RawClient
from ottla.testing.waiting import wait_until

METADATA_VERSION: Final = 12
# What a test wants unless it says otherwise: few partitions of internal topics, and sessions that last until `kill` or
# `stop` ends them, however long a broker waits for a core.
CLUSTER_SETTINGS = {
    "zookeeper.session.timeout.ms": "60000",
    "zookeeper.connection.timeout.ms": "60000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


class OneBroker(Protocol):
    """A broker of a cluster, whatever it runs on."""

    @property
    def bootstrap_servers(self) -> str: ...

    def start(self) -> object: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class BrokersOfCluster(InZooKeeper):
    """Brokers by their ids. Whoever starts one through here may rely on every other one knowing it."""

    def __init__(self, connect: str) -> None:
        super().__init__(connect)
        self._running: set[int] = set()

    @property
    def bootstrap_servers(self) -> str:
        raise NotImplementedError

    def broker(self, node_id: int) -> OneBroker:
        raise NotImplementedError

    def start_broker(self, *node_ids: int) -> None:
        """Starts brokers, and returns when all that run know of each other."""
        for node_id in node_ids:
            self.broker(node_id).start()
            self._running.add(node_id)
        self.wait_until_known()

    def wait_until_known(self) -> None:
        """Until all that run tell clients of each other, of nobody else, and of a controller among them.

        librdkafka, told of a controller that has just died, asks for it for ever.
        """
        for node_id in self._running:
            wait_until(lambda: self._known_to(node_id) == self._running)  # noqa: B023 (called at once)

    def _known_to(self, node_id: int) -> set[int]:
        """The brokers that one of them tells its clients of; none while it names a controller that does not run."""
        with RawClient(self.broker(node_id).bootstrap_servers) as client:
            answer = client.ask(MetadataRequest(topics=[]), METADATA_VERSION)
        is_controlled = answer.controller_id in self._running
        return {broker.node_id for broker in answer.brokers} if is_controlled else set()

    def wait_for_topic(self, topic: str, partitions: int) -> None:
        """Until every broker knows the topic, and who leads its partitions: a client may ask any of them."""
        for node_id in self._running:
            wait_until(lambda: self._led_partitions(node_id, topic) == partitions)  # noqa: B023 (called at once)

    def _led_partitions(self, node_id: int, topic: str) -> int:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        with RawClient(self.broker(node_id).bootstrap_servers) as client:
            (found,) = client.ask(request, METADATA_VERSION).topics
        return sum(partition.leader_id >= 0 for partition in found.partitions)

    def stop_broker(self, node_id: int) -> None:
        """In order: its leaders go elsewhere first."""
        self._running.discard(node_id)
        self.broker(node_id).stop()

    def kill(self, node_id: int) -> None:
        """As a crash does, at the moment when its session ends."""
        self._running.discard(node_id)
        self.broker(node_id).kill()
        self.end_session_of(node_id)


class Cluster(BrokersOfCluster):
    """Brokers 1 to `size`. The ensemble is the test's own."""

    def __init__(
        self,
        connect: str,
        *,
        size: int = 3,
        settings: Mapping[str, str] | None = None,
        racks: Mapping[int, str] | None = None,
        in_process: bool = True,
    ) -> None:
        super().__init__(connect)
        self.brokers = {
            node_id: Broker(
                {
                    **CLUSTER_SETTINGS,
                    "offsets.topic.replication.factor": str(min(size, 3)),
                    "transaction.state.log.replication.factor": str(min(size, 3)),
                    **(settings or {}),
                    **({"broker.rack": racks[node_id]} if racks else {}),
                    "broker.id": str(node_id),
                    "zookeeper.connect": connect,
                },
                in_process=in_process,
            )
            for node_id in range(1, size + 1)
        }

    def broker(self, node_id: int) -> Broker:
        return self.brokers[node_id]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def start(self) -> Self:
        self.start_broker(*self.brokers)
        return self

    def stop(self) -> None:
        self._running.clear()
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

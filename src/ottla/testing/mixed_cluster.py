"""A cluster of brokers of two kinds, Apache Kafka 3.9 and Ottla, as processes over one ZooKeeper.

with MixedCluster(connect, directory, [KAFKA, OTTLA, OTTLA]) as cluster:    # brokers 1, 2, 3; the first one controls
    cluster.kill(1)
    cluster.replace(2, KAFKA)
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeAlias

from ottla.local_cluster.process import ServerProcess
from ottla.testing.apache_kafka import (
    JVM_FLAGS,
    KAFKA_3_9,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    ApacheKafka,
    JvmProfile,
)
from ottla.testing.broker import Broker
from ottla.testing.cluster import CLUSTER_SETTINGS, BrokersOfCluster
from ottla.testing.ports import free_port
from ottla.testing.waiting import wait_until

KAFKA: Final = "kafka"
OTTLA: Final = "ottla"

SMALL: Final = JvmProfile("small", "256m", JVM_FLAGS)
# Said once the broker has registered and takes connections.
READY_LINE: Final = re.compile(r"\[KafkaServer id=\d+\] started")
LOG_LEVELS: Final = {"defaultLogLevel": "warn", "log.kafka.server.KafkaServer": "info"}
MIXED_SETTINGS: Final = {
    **CLUSTER_SETTINGS,
    "replica.fetch.backoff.ms": "200",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    # A partition's leader is where the test has put it.
    "auto.leader.rebalance.enable": "false",
}
# What makes a Kafka start soon and stay small.
SMALL_KAFKA: Final = {
    "num.network.threads": "2",
    "num.io.threads": "2",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
}


MoreListeners: TypeAlias = Callable[[int], Mapping[str, str]]


class KafkaWithZooKeeper:
    """A broker of Apache Kafka 3.9 that registers in ZooKeeper. Like `Broker`, beside this process."""

    def __init__(self, settings: Mapping[str, str], directory: Path, listen: str, profile: JvmProfile = SMALL) -> None:
        self._kafka = ApacheKafka.resolve(KAFKA_3_9)
        self._settings = {**SMALL_KAFKA, "listeners": f"PLAINTEXT://{listen}", **settings, "log.dirs": str(directory)}
        self._directory = directory
        self._profile = profile
        self.bootstrap_servers = listen
        self._properties = directory.with_name(f"{directory.name}.properties")
        self.process = ServerProcess(f"kafka at {listen}", directory.with_name(f"{directory.name}.log"))

    def start(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        flags = [flag.format(directory=self._directory.parent) for flag in self._profile.flags]
        heap, arguments = self._profile.heap, [str(self._properties)]
        self.process.launch(self._kafka.java("kafka.Kafka", heap, arguments, LOG_LEVELS, flags))
        try:
            self.process.wait_until(lambda: READY_LINE.search(self.process.output()) is not None, START_TIMEOUT_S)
        except BaseException:
            self.kill()
            raise
        return self

    @property
    def pid(self) -> int:
        assert self.process.pid is not None, "the broker does not run"
        return self.process.pid

    def stop(self) -> None:
        """Ends the broker in order: its leaders have gone elsewhere, and everything is flushed."""
        assert self.process.end(signal.SIGTERM, STOP_TIMEOUT_S), f"it did not stop: {self.process.end_of_log()}"

    def kill(self) -> None:
        """Ends it as a crash does."""
        self.process.end(signal.SIGKILL, STOP_TIMEOUT_S)


class MixedCluster(BrokersOfCluster):
    """Brokers 1, 2, … of the given kinds, started in this order: the first one is the controller."""

    def __init__(
        self,
        connect: str,
        directory: Path,
        kinds: Sequence[str],
        settings: Mapping[str, str] | None = None,
        profile: JvmProfile = SMALL,
        more_listeners: MoreListeners | None = None,
    ) -> None:
        """`more_listeners`: the settings of a broker's listeners beside the open one, at which a test reaches it."""
        super().__init__(connect)
        self._profile = profile
        self._more_listeners = more_listeners or (lambda _: {})
        self._directory = directory
        self._settings = {**MIXED_SETTINGS, **(settings or {}), "zookeeper.connect": connect}
        self._listen = {node_id: f"127.0.0.1:{free_port()}" for node_id in range(1, len(kinds) + 1)}
        self.kinds: dict[int, str] = {}
        self.brokers: dict[int, Broker | KafkaWithZooKeeper] = {}
        for node_id, kind in enumerate(kinds, 1):
            self._become(node_id, kind)

    def _become(self, node_id: int, kind: str) -> None:
        directory, listen = self._directory / f"broker-{node_id}", self._listen[node_id]
        more = dict(self._more_listeners(node_id))
        listeners = ",".join([f"PLAINTEXT://{listen}", *filter(None, [more.pop("listeners", "")])])
        settings = {**self._settings, **more, "broker.id": str(node_id), "listeners": listeners}
        self.kinds[node_id] = kind
        self.brokers[node_id] = (
            KafkaWithZooKeeper(settings, directory, listen, self._profile)
            if kind == KAFKA
            else Broker(settings, directory=directory, in_process=False, listen=listen)
        )

    def broker(self, node_id: int) -> Broker | KafkaWithZooKeeper:
        return self.brokers[node_id]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self._listen.values())

    def log_bytes(self, topic: str, partition: int, node_id: int) -> bytes:
        """A replica's log as it is on disk: its batches with their offsets and epochs."""
        directory = self._directory / f"broker-{node_id}" / f"{topic}-{partition}"
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))

    def wait_for_equal_logs(self, topic: str, partition: int) -> None:
        """Until all replicas have the same bytes."""
        wait_until(lambda: len({self.log_bytes(topic, partition, node_id) for node_id in self.brokers}) == 1)

    def replace(self, node_id: int, kind: str, *, kills: bool = False) -> None:
        """Stops or kills a broker, and starts one of that kind on its data, with its number, at its address."""
        if kills:
            self.kill(node_id)
        else:
            self.stop_broker(node_id)
        self._become(node_id, kind)
        self.start_broker(node_id)

    def __enter__(self) -> Self:
        try:
            self.start_broker(*self.brokers)
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._kill()

    def _kill(self) -> None:
        """What the test wanted to know it knows by now: nobody has to hand over leaders."""
        for broker in self.brokers.values():
            broker.kill()

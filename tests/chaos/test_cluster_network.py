"""The network of a cluster in trouble: brokers that nobody reaches, without ZooKeeper, whose answers get lost.

Every broker is reached through a proxy of its own, and reaches ZooKeeper through another. Clients of librdkafka,
Java and our own send and poll, plain and in transactions; the history of what they were told is then checked for what
cannot be. See `ottla.testing.history`.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.local_cluster.broker import BrokerProcess
from ottla.local_cluster.zookeeper import ZooKeeperEnsemble
from ottla.net.ports import free_ports
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.replication import AlterPartitionRequest, LeaderAndIsrRequest, UpdateMetadataRequest
from ottla.protocol.messages.transactions import AddPartitionsToTxnRequest, EndTxnRequest, WriteTxnMarkersRequest
from ottla.testing.history_workload import PARTITIONS, TOPIC
from ottla.testing.proxy import Proxy
from ottla.testing.troubled_history import TroubledClients, play_in_trouble
from ottla.testing.waiting import WAIT_S, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("java") is None, reason="ZooKeeper runs on Java, which is not installed here"),
]

BROKERS = 3
SEED = int(os.environ.get("OTTLA_CHAOS_SEED") or 3)
RUN_S = float(os.environ.get("OTTLA_CHAOS_SECONDS") or 15)
SESSION_S = 3.0
SETTINGS = {
    "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
    "zookeeper.connection.timeout.ms": "60000",
    "replica.lag.time.max.ms": "3000",
    "replica.socket.timeout.ms": "2000",
    "controller.socket.timeout.ms": "2000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
# A client whose request meets a cut asks elsewhere after this time.
CLIENT_SETTINGS = {"socket.timeout.ms": 4000, "topic.metadata.refresh.interval.ms": 2000}
OUR_SETTINGS = {"request.timeout.ms": "4000"}
DRIVERS = Path(__file__).parents[1] / "interop" / "clients" / "drivers"


@dataclass(frozen=True)
class Member:
    broker: BrokerProcess
    front: Proxy  # through which others reach it
    store: Proxy  # through which it reaches ZooKeeper


@pytest.fixture
def members(tmp_path: Path) -> Iterator[list[Member]]:
    with ExitStack() as stack:
        ensemble = ZooKeeperEnsemble(tmp_path / "zookeeper")
        ensemble.start()
        stack.callback(ensemble.kill)
        members = []
        for number, port in enumerate(free_ports(BROKERS), 1):
            front = stack.enter_context(Proxy(port))
            store = stack.enter_context(Proxy(ensemble.servers[0].client_port))
            settings = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{front.port}"}
            connect = f"127.0.0.1:{store.port}"
            broker = BrokerProcess(number, tmp_path / f"broker-{number}", port, settings, connect)
            stack.callback(broker.kill)
            broker.launch()
            members.append(Member(broker, front, store))
        for member in members:
            member.broker.wait_ready()
        yield members


def admin_of(members: list[Member]) -> AdminClient:
    servers = ",".join(f"127.0.0.1:{member.front.port}" for member in members)
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


def is_in_sync(members: list[Member]) -> bool:
    metadata = admin_of(members).list_topics(timeout=WAIT_S)
    partitions = [partition for topic in metadata.topics.values() for partition in topic.partitions.values()]
    return len(metadata.brokers) == BROKERS and all(len(partition.isrs) == BROKERS for partition in partitions)


# -- bad things; what they do ends with `heal` -------------------------------------------------------------------------


def nobody_reaches_it(member: Member, rng: random.Random) -> None:
    member.front.cut()


def it_does_not_reach_zookeeper(member: Member, rng: random.Random) -> None:
    """Its session ends, others lead, and it does not know for as long as clients and followers still ask it."""
    member.store.cut()


def it_is_alone(member: Member, rng: random.Random) -> None:
    member.front.cut()
    member.store.cut()


def a_request_is_held(member: Member, rng: random.Random) -> None:
    held = (AlterPartitionRequest, LeaderAndIsrRequest, UpdateMetadataRequest, FetchRequest, WriteTxnMarkersRequest)
    member.front.hold(rng.choice(held))


def answers_are_lost(member: Member, rng: random.Random) -> None:
    apis = (ProduceRequest, AddPartitionsToTxnRequest, EndTxnRequest, WriteTxnMarkersRequest, AlterPartitionRequest)
    for api in rng.choices(apis, k=5):
        member.front.lose_response(api)


def everything_takes_longer(member: Member, rng: random.Random) -> None:
    member.front.delay(0.2)
    member.store.delay(0.2)


def connections_break(member: Member, rng: random.Random) -> None:
    member.front.reset()
    member.store.reset()


TROUBLES: tuple[Callable[[Member, random.Random], None], ...] = (
    it_does_not_reach_zookeeper,
    nobody_reaches_it,
    it_is_alone,
    a_request_is_held,
    answers_are_lost,
    everything_takes_longer,
    connections_break,
)


def test_what_clients_were_told_through_a_bad_network_is_so(members: list[Member], tmp_path: Path) -> None:
    rng = random.Random(SEED)
    wait_until(lambda: is_in_sync(members))
    admin = admin_of(members)
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS)])[TOPIC].result(WAIT_S)

    def harm() -> str:
        member = rng.choice(members)
        trouble = rng.choice(TROUBLES)
        trouble(member, rng)
        time.sleep(SESSION_S * (0.3 + 1.2 * rng.random()))
        member.front.heal()
        member.store.heal()
        time.sleep(rng.random())
        return f"{trouble.__name__} (broker {member.broker.broker_id})"

    def settle() -> None:
        wait_until(lambda: is_in_sync(members), timeout_s=2 * WAIT_S)

    servers = ",".join(f"127.0.0.1:{member.front.port}" for member in members)
    clients = TroubledClients(servers, SEED, DRIVERS, OUR_SETTINGS, CLIENT_SETTINGS)
    play_in_trouble(clients, harm, settle, run_s=RUN_S, path=tmp_path / "history.jsonl")

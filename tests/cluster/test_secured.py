"""`ottla up --secure`: a cluster with TLS, logins and ACLs on a ZooKeeper that only its brokers may change."""

from __future__ import annotations

import asyncio
import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from ottla.broker.broker import Broker as RunningBroker
from ottla.client.connecting import cluster_of
from ottla.client.settings import AdminSettings
from ottla.config.properties import parse_properties
from ottla.errors import ErrorCode, OttlaError
from ottla.local_cluster.cluster import LocalCluster
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.replication import AlterPartitionRequest, AlterPartitionResponse
from ottla.testing.ports import free_port, free_range
from ottla.testing.waiting import WAIT_S, wait_until

RECORDS = 200
LONG_SESSIONS = ("--set", "zookeeper.session.timeout.ms=60000")


def ottla(*arguments: object, stdin: str = "") -> str:
    """A command that must succeed."""
    command = [sys.executable, "-m", "ottla", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * WAIT_S, input=stdin)
    assert done.returncode == 0, done
    return done.stdout


class Secured:
    """The cluster, and how its administrator and alice reach it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.first = json.loads(
            ottla(
                *("up", "--secure", "--brokers", 3, "--data", directory, "--port", free_range(3)),
                *LONG_SESSIONS,
                *("--detach", "--json"),
            )
        )
        self.bootstrap: str = self.first["bootstrap_servers"]
        self.admin_file = Path(self.first["command_config"])

    @property
    def local(self) -> LocalCluster:
        found = LocalCluster.find(self.directory)
        assert found is not None
        return found

    def admin(self, *arguments: object, stdin: str = "") -> str:
        return ottla(*arguments, "-b", self.bootstrap, "--command-config", self.admin_file, stdin=stdin)

    def status(self) -> dict[str, Any]:
        return json.loads(ottla("status", "--data", self.directory, "--json"))

    def librdkafka(self, user: str, password: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.admin_file.parent / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }

    def broker_settings(self, broker_id: int) -> dict[str, str]:
        """What a broker of this cluster is told."""
        text = (self.directory / f"broker-{broker_id}" / "server.properties").read_text()
        return dict(parse_properties(text))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    try:
        yield Secured(directory)
    finally:
        cluster = LocalCluster.find(directory)
        if cluster is not None:
            cluster.stop()


def test_records_are_replicated_between_brokers_that_log_in_to_each_other(secured: Secured) -> None:
    secured.admin("topics", "create", "orders", "--partitions", 3)
    failures: list[object] = []
    settings = secured.librdkafka(secured.first["user"], secured.first["password"])
    producer = Producer({**settings, "acks": "all", "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(
            "orders",
            b"%d" % number,
            partition=number % 3,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(WAIT_S) == 0
    assert failures == []
    consumer = Consumer({**settings, "group.id": "readers"})
    try:
        consumer.assign([TopicPartition("orders", number, 0) for number in range(3)])
        found: set[int] = set()
        while len(found) < RECORDS:
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None, message.error()
            found.add(int(message.value() or b""))
    finally:
        consumer.close()
    wait_until(lambda: secured.status()["is_healthy"])
    assert len(secured.status()["brokers"]) == 3


def test_secrets_are_shown_once_and_only_their_owner_can_read_them(secured: Secured) -> None:
    again = json.loads(ottla("up", "--data", secured.directory, "--detach", "--json"))
    assert (again["command_config"], "password" in again) == (str(secured.admin_file), False)
    assert secured.first["password"] not in ottla("up", "--data", secured.directory, "--detach")
    security = secured.directory / "security"
    assert stat.S_IMODE(security.stat().st_mode) == 0o700
    private = [*security.iterdir(), *secured.directory.glob("broker-*/server.properties")]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in private if path.name != "ca.pem"}
    assert set(modes.values()) == {0o600}, modes
    secrets = json.loads((security / "secrets.json").read_text()).values()
    for log in secured.directory.rglob("*.log"):
        text = log.read_text(errors="replace")
        assert not [secret for secret in secrets if secret in text], log
    assert not [secret for secret in secrets if secret in (secured.directory / "cluster.json").read_text()]


def test_a_user_has_the_rights_that_were_given_and_cannot_pose_as_a_replica(secured: Secured) -> None:
    secured.admin("users", "create", "alice", "--password-file", "-", stdin="a password\n")
    secured.admin("topics", "create", "posts", "--partitions", 1)
    secured.admin("acls", "add", "alice", "--role", "consumer", "--topic", "posts", "--group", "alice")
    before = json.loads(secured.admin("topics", "describe", "posts", "--json"))
    settings = AdminSettings.read(
        {
            **parse_properties(secured.admin_file.read_text()),
            "bootstrap.servers": secured.bootstrap,
            "sasl.jaas.config": None,
            "sasl.username": "alice",
            "sasl.password": "a password",
        }
    )

    async def pose() -> None:
        async with cluster_of(settings, "alice") as cluster:
            connection = await cluster.any_connection()
            fetch = FetchRequest(
                replica_id=2,
                max_wait_ms=0,
                min_bytes=0,
                topics=[
                    FetchTopic(
                        topic="posts",
                        partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
                    )
                ],
            )
            answer = await connection.request(fetch, FetchResponse, version_max=11)
            (partition,) = answer.responses[0].partitions
            assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            altered = await connection.request(
                AlterPartitionRequest(broker_id=1, broker_epoch=0, topics=[]), AlterPartitionResponse
            )
            assert altered.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    asyncio.run(pose())
    after = json.loads(secured.admin("topics", "describe", "posts", "--json"))
    assert after == before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # kazoo's own, when it is refused
@pytest.mark.parametrize(
    "wrong",
    [
        {"zookeeper.sasl.password": "wrong"},
        {"zookeeper.sasl.username": None, "zookeeper.sasl.password": None, "zookeeper.set.acl": "false"},
    ],
    ids=["a wrong password", "no login"],
)
def test_a_broker_without_the_identity_of_the_others_never_joins(
    secured: Secured, tmp_path: Path, wrong: dict[str, str | None]
) -> None:
    settings = {
        **secured.broker_settings(1),
        "broker.id": "9",
        "log.dirs": str(tmp_path),
        "listeners": f"SASL_SSL://127.0.0.1:{free_port('127.0.0.1')}",
        "zookeeper.connection.timeout.ms": "3000",
        "zookeeper.session.timeout.ms": "3000",
        **wrong,
    }

    async def start() -> None:
        broker = RunningBroker({name: value for name, value in settings.items() if value is not None})
        try:
            await broker.start()
        except OttlaError:
            return
        await broker.stop()
        pytest.fail("it serves")

    asyncio.run(start())
    assert sorted(each["broker"] for each in secured.status()["brokers"]) == [1, 2, 3]


def pose_as_a_broker(stranger: KazooClient) -> None:
    stranger.start(timeout=5)
    stranger.create("/brokers/ids/9", b"{}", ephemeral=True)


def test_nobody_else_changes_zookeeper(secured: Secured) -> None:
    stranger = KazooClient(secured.local.zookeepers[0].address, timeout=2.0)
    try:
        with pytest.raises((KazooException, KazooTimeoutError)):
            pose_as_a_broker(stranger)
    finally:
        stranger.stop()
        stranger.close()
    assert sorted(each["broker"] for each in secured.status()["brokers"]) == [1, 2, 3]


def test_a_broker_that_cannot_log_in_to_the_others_is_never_in_sync(
    secured: Secured, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It has a key of the authority and may write to ZooKeeper, but not the password of the brokers."""
    settings = secured.broker_settings(1)
    name = "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config"
    (login,) = [word for word in settings[name].split() if word.startswith("password=")]
    port = free_port("127.0.0.1")
    settings |= {
        "broker.id": "9",
        "log.dirs": str(tmp_path),
        "listeners": f"SASL_SSL://127.0.0.1:{port}",
        "controlled.shutdown.enable": "false",  # nobody would answer
        name: settings[name].replace(login, 'password="wrong"', 1),
    }

    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "shared", "partition": 0, "replicas": [1, 9]}]}))
    caplog.set_level("INFO", "ottla.broker.fetchers")

    async def serve() -> None:
        broker = RunningBroker(settings)
        await broker.start()
        try:
            await asyncio.to_thread(secured.admin, "reassign", "execute", plan)
            await asyncio.to_thread(wait_until, lambda: "cannot fetch from broker 1" in caplog.text)
            described = await asyncio.to_thread(secured.admin, "topics", "describe", "shared", "--json")
            (partition,) = json.loads(described)["partitions"]
            assert (partition["leader"], partition["isr"]) == (1, [1])
            await asyncio.to_thread(secured.admin, "reassign", "cancel", plan)
        finally:
            await broker.stop()

    secured.admin("topics", "create", "shared", "--replica-assignment", "1")
    asyncio.run(serve())


def test_it_stops_in_order_and_starts_again_with_the_same_users(secured: Secured) -> None:
    stopped = json.loads(ottla("down", "--data", secured.directory, "--json"))
    assert stopped == {"stopped": ["zookeeper 1", "broker 1", "broker 2", "broker 3"], "killed": []}
    ottla("up", "--data", secured.directory, "--detach")
    assert "alice" in secured.admin("users", "list")

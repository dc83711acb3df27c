"""A directory that Apache Kafka wrote is taken over, and what was there is served: records, groups, transactions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from ottla.cli.takeover import takeover
from ottla.cli.takeover.kafka_directory import read
from ottla.local_cluster.zookeeper import ZooKeeperEnsemble
from ottla.testing.apache_kafka import ApacheKafka, KafkaBroker
from ottla.testing.broker import Broker
from ottla.testing.mixed_cluster import KafkaWithZooKeeper
from ottla.testing.ports import free_port
from ottla.testing.waiting import wait_until

WAIT_S = 60
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


def run_import(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", "import", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)


def write_history(bootstrap: str) -> None:
    """Topics with settings, one of them deleted and made anew, records, a group's offsets, transactions of each end."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic("events", 3, 1, config={"retention.ms": "-1", "segment.bytes": "2000000"}),
        NewTopic("table", 1, 1, config={"cleanup.policy": "compact"}),
        NewTopic("again", 1, 1),
    ]
    for future in admin.create_topics(topics).values():
        future.result(WAIT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(300):
        producer.produce("events", b"%d" % number, partition=number % 3)
    producer.produce("table", b"v", b"k")
    producer.produce("again", b"old")
    assert producer.flush(WAIT_S) == 0
    for future in admin.delete_topics(["again"], operation_timeout=WAIT_S).values():
        future.result(WAIT_S)
    wait_until(lambda: is_made(admin, NewTopic("again", 2, 1)))
    for future in admin.create_partitions([NewPartitions("table", 2)]).values():
        future.result(WAIT_S)
    writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx"})
    writer.init_transactions(WAIT_S)
    for value, is_committed in ((b"committed", True), (b"aborted", False)):
        writer.begin_transaction()
        writer.produce("again", value, partition=1)
        if is_committed:
            writer.commit_transaction(WAIT_S)
        else:
            writer.flush(WAIT_S)
            writer.abort_transaction(WAIT_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("events", 0, 42), TopicPartition("events", 2, 7)], asynchronous=False)
    consumer.close()


def is_made(admin: AdminClient, topic: NewTopic) -> bool:
    """A topic may be made anew once its deletion is over."""
    try:
        admin.create_topics([topic])[topic.topic].result(WAIT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True


def values_of(bootstrap: str, topic: str, partition: int, isolation: str = "read_committed") -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[bytes] = []
    try:
        while (message := consumer.poll(WAIT_S)) is not None and message.error() is None:
            values.append(message.value() or b"")
    finally:
        consumer.close()
    assert message is not None, "no end was reported"
    return values


def check_served(bootstrap: str, topic_ids: dict[str, str]) -> None:
    """Everything that `write_history` wrote; then new records, offsets and transactions behind it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.list_topics(timeout=WAIT_S).topics
    assert {name: len(found[name].partitions) for name in ("events", "table", "again")} == {
        "events": 3,
        "table": 2,
        "again": 2,
    }
    assert ids_by_client(bootstrap) == topic_ids
    for partition in range(3):
        assert values_of(bootstrap, "events", partition) == [b"%d" % n for n in range(300) if n % 3 == partition]
    assert values_of(bootstrap, "table", 0) == [b"v"]
    assert values_of(bootstrap, "again", 0) == []
    assert values_of(bootstrap, "again", 1) == [b"committed"]
    assert values_of(bootstrap, "again", 1, "read_uncommitted") == [b"committed", b"aborted"]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    committed = consumer.committed([TopicPartition("events", index) for index in range(3)], WAIT_S)
    assert [each.offset for each in committed] == [42, -1001, 7]
    consumer.commit(offsets=[TopicPartition("events", 1, 5)], asynchronous=False)
    consumer.close()
    writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx"})
    writer.init_transactions(WAIT_S)
    writer.begin_transaction()
    writer.produce("again", b"next", partition=1)
    writer.commit_transaction(WAIT_S)
    assert values_of(bootstrap, "again", 1) == [b"committed", b"next"]
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce("events", b"new", partition=0)
    assert producer.flush(WAIT_S) == 0
    assert values_of(bootstrap, "events", 0)[-2:] == [b"297", b"new"]


def ids_by_client(bootstrap: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # held until its answers are there
    described = admin.describe_topics(TopicCollection(["events", "again"]))
    return {name: str(future.result(WAIT_S).topic_id) for name, future in described.items()}


def controller_of(bootstrap: str) -> int:
    found: int = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=WAIT_S).controller_id
    return found


def settings_of(bootstrap: str, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.describe_configs([resource]).values()
    return {name: entry.value for name, entry in future.result(WAIT_S).items()}


@pytest.mark.parametrize(("release", "end"), [("kafka", "stop"), ("newest_kafka", "stop"), ("newest_kafka", "kill")])
def test_a_broker_without_zookeeper_is_taken_over(
    request: pytest.FixtureRequest, tmp_path: Path, release: str, end: str
) -> None:
    distribution: ApacheKafka = request.getfixturevalue(release)
    kafka = KafkaBroker(distribution, tmp_path / "kafka", SETTINGS)
    with kafka:
        write_history(kafka.bootstrap)
        topic_ids = ids_by_client(kafka.bootstrap)
        running = run_import(kafka.log_dir, "--yes")
        assert running.returncode == 2
        assert "is held by another process" in running.stderr
        getattr(kafka, end)()
    shown = run_import(kafka.log_dir)
    assert shown.returncode == 0, shown.stderr
    assert "events  3 partitions" in shown.stdout
    assert "nothing was changed" in shown.stdout
    done = run_import(kafka.log_dir, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["imported"] is True
    with Broker(SETTINGS, directory=kafka.log_dir) as broker:
        check_served(broker.bootstrap_servers, topic_ids)
        settings = settings_of(broker.bootstrap_servers, "events")
        assert (settings["retention.ms"], settings["segment.bytes"]) == ("-1", "2000000")
        assert settings_of(broker.bootstrap_servers, "table")["cleanup.policy"] == "compact"
        assert settings_of(broker.bootstrap_servers, "__consumer_offsets")["cleanup.policy"] == "compact"
    again = run_import(kafka.log_dir)
    assert again.returncode == 2
    assert "is a directory of Ottla already" in again.stderr


@pytest.mark.parametrize("from_zookeeper", [True, False])
def test_a_broker_with_zookeeper_is_taken_over(kafka: ApacheKafka, tmp_path: Path, from_zookeeper: bool) -> None:
    with ZooKeeperEnsemble(tmp_path / "zookeeper") as ensemble:
        connect = f"{ensemble.connect}/kafka"
        settings = {**SETTINGS, "zookeeper.connect": connect, "broker.id": "4"}
        broker = KafkaWithZooKeeper(settings, tmp_path / "data", f"127.0.0.1:{free_port()}")
        try:
            broker.start()
            # It serves before it knows its controller, and librdkafka waits long after such an answer.
            wait_until(lambda: controller_of(broker.bootstrap_servers) == 4)
            write_history(broker.bootstrap_servers)
            topic_ids = ids_by_client(broker.bootstrap_servers)
        finally:
            broker.stop()
        assert run_import(tmp_path / "data").returncode == 2
        options = ["--zookeeper", connect] if from_zookeeper else ["--default-settings"]
        done = run_import(tmp_path / "data", "--yes", *options)
        assert done.returncode == 0, done.stdout + done.stderr
    with Broker(SETTINGS, directory=tmp_path / "data") as ours:
        check_served(ours.bootstrap_servers, topic_ids)
        assert settings_of(ours.bootstrap_servers, "__consumer_offsets")["cleanup.policy"] == "compact"
        if from_zookeeper:
            assert settings_of(ours.bootstrap_servers, "events")["retention.ms"] == "-1"


def test_an_interrupted_import_is_finished_by_the_next(
    newest_kafka: ApacheKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = KafkaBroker(newest_kafka, tmp_path / "kafka", SETTINGS)
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(WAIT_S)
    directories = [kafka.log_dir]
    found = read(directories, None, with_default_settings=False)
    monkeypatch.setattr(takeover, "finish", lambda _: None)
    takeover.take_over(directories, found)
    monkeypatch.undo()
    done = run_import(kafka.log_dir)
    assert "interrupted is finished" in done.stdout, done.stderr
    with Broker(SETTINGS, directory=kafka.log_dir) as broker:
        known = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=WAIT_S).topics
        assert len(known["t"].partitions) == 2

"""`ottla up --brokers 3` for real: a broker is killed under the load of librdkafka, seen, brought back, all counted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.local_cluster.cluster import LocalCluster
from ottla.local_cluster.process import identity_of
from ottla.testing.in_zookeeper import InZooKeeper
from ottla.testing.ports import free_range
from ottla.testing.waiting import WAIT_S, wait_until

RECORDS = 300
PARTITIONS = 6
# On a busy machine a broker may be late with its heartbeats. Whoever is killed here has its session ended at once.
LONG_SESSIONS = ("--set", "zookeeper.session.timeout.ms=60000")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "Größe mit Namen"  # which Java reads in its own way
    yield directory
    if (cluster := LocalCluster.find(directory)) is not None:
        cluster.stop()
    assert list(tmp_path.iterdir()) == [directory]


def ottla(*arguments: object) -> str:
    """A command that must succeed."""
    command = [sys.executable, "-m", "ottla", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * WAIT_S)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def status(directory: Path) -> dict[str, Any]:
    return json.loads(ottla("status", "--data", directory, "--json"))


def produce(producer: Producer, topic: str, numbers: range) -> None:
    failures: list[object] = []
    for number in numbers:
        producer.produce(
            topic,
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(WAIT_S) == 0
    assert failures == []


def consume(bootstrap: str, topic: str, amount: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        found: list[int] = []
        while len(found) < amount:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"{len(found)} of {amount} came"
            assert message.error() is None, message.error()
            found.append(int(message.value() or b""))
        return sorted(found)
    finally:
        consumer.close()


def end_session_of(directory: Path, broker_id: int) -> None:
    cluster = LocalCluster.find(directory)
    assert cluster is not None
    InZooKeeper(cluster.zookeepers[0].address).end_session_of(broker_id)


def test_a_cluster_survives_the_loss_of_a_broker_and_shows_it(directory):
    up = json.loads(
        ottla("up", "--brokers", 3, "--data", directory, "--port", free_range(3), *LONG_SESSIONS, "--detach", "--json")
    )
    bootstrap = up["bootstrap_servers"]
    assert [each["name"] for each in up["servers"]] == ["zookeeper 1", "broker 1", "broker 2", "broker 3"]
    ottla("topics", "create", "orders", "--partitions", PARTITIONS, "-b", bootstrap)
    before = status(directory)
    assert (len(before["brokers"]), before["is_healthy"], before["partition_count"]) == (3, True, PARTITIONS)
    assert [each["leaders"] for each in before["brokers"]] == [2, 2, 2]

    assert (directory / "zookeeper" / "1" / "data" / "version-2").is_dir()

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 2})
    produce(producer, "orders", range(RECORDS))
    victim = next(each for each in up["servers"] if each["name"] == f"broker {before['controller']}")
    os.kill(victim["pid"], signal.SIGKILL)
    end_session_of(directory, before["controller"])
    produce(producer, "orders", range(RECORDS, 2 * RECORDS))  # with a new controller and new leaders

    during: dict[str, Any] = {}

    def is_missed() -> bool:
        during.update(status(directory))
        return len(during["under_replicated"]) == PARTITIONS and during["controller"] not in (
            None,
            before["controller"],
        )

    wait_until(is_missed)
    assert (during["offline"], during["under_min_isr"]) == ([], [])
    assert [each["name"] for each in during["servers"] if not each["is_running"]] == [victim["name"]]
    shown = ottla("status", "--data", directory)
    assert "6 under-replicated, 0 under min ISR, 0 offline" in shown
    assert f"ENDED, was process {victim['pid']}" in shown

    ottla("up", "--data", directory, "--detach")
    produce(producer, "orders", range(2 * RECORDS, 3 * RECORDS))
    wait_until(lambda: status(directory)["is_healthy"])
    assert consume(bootstrap, "orders", 3 * RECORDS) == list(range(3 * RECORDS))
    stopped = json.loads(ottla("down", "--data", directory, "--json"))
    assert stopped == {"stopped": ["zookeeper 1", "broker 1", "broker 2", "broker 3"], "killed": []}


def test_another_call_starts_a_broker_again_that_died_under_the_one_in_the_foreground(directory):
    port = free_range(2)
    command = [sys.executable, "-m", "ottla", "up", "--brokers", "2", "--data", str(directory), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as up:
        try:
            out, err = up.stdout, up.stderr
            assert out is not None
            assert err is not None
            wait_until(lambda: out.readline().startswith("up: "))
            victim = next(each for each in status(directory)["servers"] if each["name"] == "broker 2")
            os.kill(victim["pid"], signal.SIGKILL)
            wait_until(lambda: f"`ottla up --detach --data {directory}` starts it again" in err.readline())
            # Its session would have to end first, which is not what is looked at here.
            end_session_of(directory, 2)
            ottla("up", "--data", directory, "--detach")
            wait_until(lambda: status(directory)["is_healthy"])
            again = next(each for each in status(directory)["servers"] if each["name"] == "broker 2")
            assert again["pid"] != victim["pid"]
            up.send_signal(signal.SIGINT)
            assert up.wait(WAIT_S) == 0
            assert "broker 2 stopped" in out.read()
            cluster = LocalCluster.find(directory)
            assert cluster is not None
            assert not any(process.is_alive() for process in cluster.processes)
            assert identity_of(again["pid"]) is None
        finally:
            up.kill()

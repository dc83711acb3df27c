"""Clients send and poll, plain and in transactions, while a cluster is mistreated: brokers and ZooKeeper servers are
killed, paused and restarted, all of ZooKeeper is away, disks fill up and are replaced by empty ones, wall clocks jump.

The history of the responses they got is then checked for anomalies. See `ottla.testing.history`.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.local_cluster.broker import BrokerProcess
from ottla.local_cluster.cluster import LocalCluster
from ottla.local_cluster.layout import Wanted
from ottla.testing.harms import (
    BROKER_HARMS,
    ZOOKEEPER_HARMS,
    Victim,
    a_disk_is_full,
    a_disk_is_wiped,
    overlap,
    small_file_system,
)
from ottla.testing.history_workload import PARTITIONS, TOPIC
from ottla.testing.ports import free_range
from ottla.testing.troubled_history import TroubledClients, play_in_trouble
from ottla.testing.wall_clock import WallClocks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("java") is None, reason="ZooKeeper runs on Java, which is not installed here"),
]

BROKERS = ZOOKEEPERS = 3
SEED = int(os.environ.get("OTTLA_CHAOS_SEED") or 7)
RUN_S = float(os.environ.get("OTTLA_CHAOS_SECONDS") or 15)
SESSION_S = 3.0
SETTINGS = {
    "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
    "zookeeper.connection.timeout.ms": "60000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "unclean.leader.election.enable": "false",
    "log.index.size.max.bytes": "65536",  # of segments on a small disk
}
DRIVERS = Path(__file__).parents[1] / "interop" / "clients" / "drivers"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    with small_file_system(tmp_path / "small") as disk:
        yield disk


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.long)], ids=["open", "secured"])
def victim(
    request: pytest.FixtureRequest, tmp_path: Path, small_disk: Path | None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Victim]:
    """A cluster where nobody is asked, and one as `ottla up --secure` makes it, with one directory for each broker."""
    clocks = WallClocks(tmp_path / "clocks")
    monkeypatch.setenv("PYTHONPATH", clocks.python_path)
    wanted = Wanted(BROKERS, ZOOKEEPERS, free_range(BROKERS), SETTINGS, is_secure=request.param)
    cluster = LocalCluster.prepare(tmp_path, wanted)
    login: dict[str, str] = {}
    librdkafka_login: dict[str, str] = {}
    if cluster.security is not None:
        small_disk = None
        lines = cluster.security.admin_file.read_text().splitlines()
        login = dict(line.split("=", 1) for line in lines)
        librdkafka_login = {
            "security.protocol": login["security.protocol"],
            "ssl.ca.location": login["ssl.truststore.location"],
            "sasl.mechanism": login["sasl.mechanism"],
            "sasl.username": "admin",
            "sasl.password": cluster.security.admin_password,
        }
    if small_disk is not None:
        first = cluster.brokers[0]
        directories = {"log.dirs": f"{first.directory / 'data'},{small_disk / 'data'}"}
        connect = ",".join(server.address for server in cluster.zookeepers)
        settings = {**cluster.layout.broker_settings(), **directories}
        cluster.brokers[0] = BrokerProcess(first.broker_id, first.directory, first.port, settings, connect)
    made = Victim(
        cluster.brokers,
        cluster.zookeepers,
        SESSION_S,
        clocks,
        small_disk,
        login=login,
        librdkafka_login=librdkafka_login,
    )
    try:
        made.start()
        yield made
    finally:
        cluster.stop()


def test_what_clients_of_a_cluster_were_told_is_so(victim: Victim, tmp_path: Path) -> None:
    possible = [*BROKER_HARMS, *ZOOKEEPER_HARMS, a_disk_is_wiped]
    if victim.small_disk is not None:
        possible.append(a_disk_is_full)
    rng = random.Random(SEED)
    victim.create_topic(TOPIC, PARTITIONS)
    # Each of them at least once, in any order; then whatever comes.
    waiting = rng.sample(possible, len(possible))

    def harm() -> str:
        time.sleep(0.5 + 2 * rng.random())
        chosen = waiting.pop() if waiting else rng.choice(possible)
        overlap(victim, [chosen], rng)
        victim.wait_until_ready()
        return chosen.__name__

    clients = TroubledClients(
        victim.bootstrap_servers,
        SEED,
        DRIVERS,
        victim.login,
        victim.librdkafka_login,
        has_java=not victim.login,  # its driver has no producer that logs in and stays
    )
    play_in_trouble(
        clients,
        harm,
        victim.wait_until_in_sync,
        run_s=RUN_S,
        path=tmp_path / "history.jsonl",
        harms_min=len(possible),
    )

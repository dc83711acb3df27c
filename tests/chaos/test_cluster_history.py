"""Clients send and poll, plain and in transactions, while a cluster is mistreated: brokers and ZooKeeper servers are
killed, paused and restarted, all of ZooKeeper is away, disks fill up and are replaced by empty ones, wall clocks jump.

The history of the responses they got is then checked for anomalies. See `ottla.testing.history`.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.local_cluster.broker import BrokerProcess
from ottla.local_cluster.cluster import LocalCluster
from ottla.local_cluster.layout import Wanted
from ottla.testing.clients import CLIENTS
from ottla.testing.history import History, Outcome
from ottla.testing.history_check import check
from ottla.testing.history_workload import (
    EVERYBODY,
    PARTITIONS,
    TOPIC,
    JavaSender,
    OttlaSender,
    Reader,
    StartProcess,
    Watcher,
    play,
)
from ottla.testing.ports import free_range
from ottla.testing.waiting import WAIT_S, wait_until
from ottla.testing.wall_clock import WallClocks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("java") is None, reason="ZooKeeper runs on Java, which is not installed here"),
]

BROKERS = ZOOKEEPERS = 3
SEED = int(os.environ.get("OTTLA_CHAOS_SEED") or 7)
RUN_S = float(os.environ.get("OTTLA_CHAOS_SECONDS") or 15)
# On a busy machine these take longer than the run; without them it would say nothing.
COMMITTED_MIN = 5
ENOUGH_S = RUN_S + 300.0
SESSION_MS = 3000
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "zookeeper.connection.timeout.ms": "60000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "unclean.leader.election.enable": "false",
    "log.index.size.max.bytes": "65536",  # of segments on a small disk
}


SMALL_DISK_MB = 48
CLOCKS_AHEAD_S = (3000.0, -3000.0, 12 * 3600.0)  # by less than what producers may differ from brokers, or by a lot
DRIVERS = Path(__file__).parents[1] / "interop" / "clients" / "drivers"
JAVA_CLIENT = CLIENTS[0]


@dataclass(frozen=True)
class Victim:
    """A cluster, and what can be done to its surroundings."""

    cluster: LocalCluster
    clocks: WallClocks
    small_disk: Path | None  # the second log directory of the first broker, where a file system can be mounted
    login: dict[str, str]  # of clients, in Java's names; empty where nobody asks
    librdkafka_login: dict[str, str]

    @property
    def brokers(self) -> list[BrokerProcess]:
        return self.cluster.brokers


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    place = tmp_path / "small"
    place.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={SMALL_DISK_MB}m", "tmpfs", str(place)]
    if subprocess.run(["mount", *options], check=False, capture_output=True).returncode:
        yield None
        return
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


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
    with cluster.starting(is_supervised=False):
        made = Victim(cluster, clocks, small_disk, login, librdkafka_login)
        wait_until(lambda: len(alive(made)) == BROKERS)
    yield made
    cluster.stop()


def admin_client(victim: Victim) -> AdminClient:
    servers = victim.cluster.bootstrap_servers
    return AdminClient({"bootstrap.servers": servers, "log_level": 0, **victim.librdkafka_login})


def alive(victim: Victim) -> set[int]:
    """The brokers that the cluster tells clients of."""
    return set(admin_client(victim).list_topics(timeout=WAIT_S).brokers)


def is_in_sync(victim: Victim) -> bool:
    topics = admin_client(victim).list_topics(timeout=WAIT_S).topics.values()
    partitions = [partition for topic in topics for partition in topic.partitions.values()]
    return all(len(partition.isrs) == BROKERS for partition in partitions)


# -- faults, each repaired again ---------------------------------------------------------------------------------------


def restart_what_is_down(victim: Victim) -> None:
    with victim.cluster.starting(is_supervised=False):
        pass


def kill_a_broker(victim: Victim, rng: random.Random) -> None:
    rng.choice(victim.brokers).kill()
    time.sleep(SESSION_MS / 1000 * 2 * rng.random())  # back before the session ends, or after
    restart_what_is_down(victim)


def restart_a_broker(victim: Victim, rng: random.Random) -> None:
    assert rng.choice(victim.brokers).stop(), "a broker stops when it is told to"
    restart_what_is_down(victim)


def pause_a_broker(victim: Victim, rng: random.Random) -> None:
    """Shorter than its session, or longer: then it wakes up as a leader that is none any more."""
    broker = rng.choice(victim.brokers)
    broker.process.send(signal.SIGSTOP)
    time.sleep(SESSION_MS / 1000 * (0.3 + 1.5 * rng.random()))
    broker.process.send(signal.SIGCONT)


def kill_the_leader_of_zookeeper(victim: Victim, rng: random.Random) -> None:
    leaders = [server for server in victim.cluster.zookeepers if server.is_leader()]
    for leader in leaders:
        leader.kill()
    time.sleep(2 * rng.random())
    restart_what_is_down(victim)


def kill_all_of_zookeeper(victim: Victim, rng: random.Random) -> None:
    """For less than a session, or for longer. No session ends while nobody is there to end it."""
    for server in victim.cluster.zookeepers:
        server.kill()
    time.sleep(SESSION_MS / 1000 * (0.3 + 1.5 * rng.random()))
    restart_what_is_down(victim)


def wipe_a_disk(victim: Victim, rng: random.Random) -> None:
    """Only one, and while all replicas are in sync: whoever is the last to have a record must not lose it."""
    wait_until(lambda: is_in_sync(victim), timeout_s=2 * WAIT_S)
    broker = rng.choice(victim.brokers[1:])
    broker.kill()
    shutil.rmtree(broker.directory / "data")
    restart_what_is_down(victim)


def write_without_end(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))


def fill_a_disk(victim: Victim, rng: random.Random) -> None:
    """One of the two log directories of a broker fails while it serves; it goes on with the other."""
    assert victim.small_disk is not None
    ballast = victim.small_disk / "ballast"
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        write_without_end(ballast)
    time.sleep(1 + rng.random())
    broker = victim.brokers[0]
    assert broker.process.is_alive(), "the other directory works"
    ballast.unlink()
    assert broker.stop()
    restart_what_is_down(victim)


def set_a_clock(victim: Victim, rng: random.Random) -> None:
    pid = rng.choice(victim.brokers).process.pid
    assert pid is not None
    victim.clocks.set_ahead(pid, rng.choice(CLOCKS_AHEAD_S))
    time.sleep(1 + rng.random())
    victim.clocks.set_ahead(pid, 0.0)


HARMS: tuple[Callable[[Victim, random.Random], None], ...] = (
    kill_a_broker,
    pause_a_broker,
    kill_the_leader_of_zookeeper,
    kill_all_of_zookeeper,
    restart_a_broker,
    wipe_a_disk,
    fill_a_disk,
    set_a_clock,
)


def test_what_clients_of_a_cluster_were_told_is_so(victim: Victim, tmp_path: Path) -> None:
    cluster = victim.cluster
    possible = [harm for harm in HARMS if harm is not fill_a_disk or victim.small_disk is not None]
    kinds: list[StartProcess] = [*EVERYBODY, partial(OttlaSender, login=victim.login)]
    if not JAVA_CLIENT.missing_programs and not victim.login:  # its driver has no producer that logs in and stays
        kinds.append(partial(JavaSender, command=JAVA_CLIENT.command(DRIVERS)))
    rng = random.Random(SEED)
    history = History()
    harms: list[str] = []
    admin = admin_client(victim)
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS)])[TOPIC].result(WAIT_S)

    def is_enough() -> bool:
        return history.transactions()["ok"] >= COMMITTED_MIN

    def trouble() -> None:
        started = time.monotonic()
        # Each of them at least once, in any order; then whatever comes.
        waiting = rng.sample(possible, len(possible))
        while waiting or time.monotonic() < started + (RUN_S if is_enough() else ENOUGH_S):
            time.sleep(0.5 + 2 * rng.random())
            harm = waiting.pop() if waiting else rng.choice(possible)
            harms.append(harm.__name__)
            harm(victim, rng)
        wait_until(lambda: is_in_sync(victim), timeout_s=2 * WAIT_S)

    play(history, cluster.bootstrap_servers, SEED, trouble, kinds, victim.librdkafka_login)
    history.save(tmp_path / "history.jsonl")
    counts = history.transactions()
    print(f"{len(history.operations)} operations, transactions {counts}, harm: {', '.join(harms)}")
    assert counts["ok"] >= COMMITTED_MIN, counts
    senders = {number for number, kind in enumerate(kinds) if kind not in (Reader, Watcher)}
    assert senders <= {each.process for each in history.operations if each.sends and each.outcome is Outcome.OK}
    findings = check(history)
    assert findings == [], "\n".join(map(str, findings[:20]))

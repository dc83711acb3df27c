"""A cluster on a network of its own: any two members are cut off from each other, and harms overlap.

Brokers, ZooKeeper servers and the clients have a network namespace each. Where these are not allowed, partitions are
not tested and the other harms overlap without them. Clients of librdkafka, Java and our own send and poll, plain and in
transactions; what they were told is then checked for what cannot be. See `ottla.testing.harms` and
`ottla.testing.history`.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

import pytest

from ottla.local_cluster.broker import BrokerProcess
from ottla.local_cluster.zookeeper import ZooKeeperEnsemble
from ottla.net.ports import free_ports
from ottla.testing.harms import (
    CLIENTS,
    CUTS,
    Harm,
    Victim,
    a_broker_is_cut_off_from_everybody,
    a_broker_is_killed,
    a_broker_is_paused,
    a_clock_jumps_during_a_restart,
    a_disk_is_full,
    mixes,
    name_of_broker,
    name_of_zookeeper,
    overlap,
    small_file_system,
    the_leader_of_zookeeper_is_killed,
)
from ottla.testing.history_workload import PARTITIONS, TOPIC
from ottla.testing.private_network import PrivateNetwork, why_not
from ottla.testing.troubled_history import TroubledClients, play_in_trouble
from ottla.testing.wall_clock import WallClocks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("java") is None, reason="ZooKeeper runs on Java, which is not installed here"),
]

NUMBERS = (1, 2, 3)
SEED = int(os.environ.get("OTTLA_CHAOS_SEED") or 5)
RUN_S = float(os.environ.get("OTTLA_CHAOS_SECONDS") or 35)
SESSION_S = 3.0
SETTINGS = {
    "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
    "zookeeper.connection.timeout.ms": "120000",
    "replica.lag.time.max.ms": "3000",
    "replica.socket.timeout.ms": "2000",
    "controller.socket.timeout.ms": "2000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "unclean.leader.election.enable": "false",
    "log.index.size.max.bytes": "65536",  # of segments on a small disk
}
# A client whose request meets a cut asks elsewhere after this time.
CLIENT_SETTINGS = {"socket.timeout.ms": 4000, "topic.metadata.refresh.interval.ms": 2000}
OUR_SETTINGS = {"request.timeout.ms": "4000"}
DRIVERS = Path(__file__).parents[1] / "interop" / "clients" / "drivers"
NO_NETWORK = why_not()


@pytest.fixture
def victim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Victim]:
    clocks = WallClocks(tmp_path / "clocks")
    monkeypatch.setenv("PYTHONPATH", clocks.python_path)
    with ExitStack() as stack:
        network = None
        if not NO_NETWORK:
            members = [*map(name_of_broker, NUMBERS), *map(name_of_zookeeper, NUMBERS), CLIENTS]
            network = stack.enter_context(PrivateNetwork(*members))
        small_disk = stack.enter_context(small_file_system(tmp_path / "small"))
        hosts = ["127.0.0.1" if network is None else network.address(name_of_zookeeper(n)) for n in NUMBERS]
        ensemble = ZooKeeperEnsemble(tmp_path / "zookeeper", len(NUMBERS), hosts=hosts)
        brokers = []
        for number, port in zip(NUMBERS, free_ports(len(NUMBERS)), strict=True):
            directory = tmp_path / name_of_broker(number)
            settings = dict(SETTINGS)
            if small_disk is not None and number == NUMBERS[0]:
                settings["log.dirs"] = f"{directory / 'data'},{small_disk / 'data'}"
            host = "127.0.0.1" if network is None else network.address(name_of_broker(number))
            brokers.append(BrokerProcess(number, directory, port, settings, ensemble.connect, host=host))
        if network is not None:
            for broker in brokers:
                broker.process = network.process(name_of_broker(broker.broker_id), broker.process)
            for server in ensemble.servers:
                server.process = network.process(name_of_zookeeper(server.server_id), server.process)
            stack.enter_context(network.entered(CLIENTS))
        made = Victim(brokers, ensemble.servers, SESSION_S, clocks, small_disk, network)
        stack.callback(made.kill)
        made.start()
        yield made


def play_rounds(victim: Victim, rounds: Iterator[Sequence[Harm]], path: Path) -> None:
    """Harms, one round of them after the other, under load."""
    rng = random.Random(SEED)
    victim.create_topic(TOPIC, PARTITIONS)

    def harm() -> str:
        time.sleep(rng.random())
        chosen = next(rounds)
        overlap(victim, chosen, rng)
        return " + ".join(each.__name__ for each in chosen)

    clients = TroubledClients(victim.bootstrap_servers, SEED, DRIVERS, OUR_SETTINGS, CLIENT_SETTINGS)
    play_in_trouble(clients, harm, victim.wait_until_in_sync, run_s=RUN_S, path=path)


def without_end(first: Sequence[Sequence[Harm]], then: Sequence[Sequence[Harm]]) -> Iterator[Sequence[Harm]]:
    """All of the first ones, then all others in any order, again and again."""
    rng = random.Random(SEED)
    yield from rng.sample(first, len(first))
    while True:
        yield from rng.sample(then, len(then))


@pytest.mark.skipif(bool(NO_NETWORK), reason=NO_NETWORK)
def test_any_two_members_are_cut_off_from_each_other_and_nothing_is_lost(victim: Victim, tmp_path: Path) -> None:
    """Alone, and while a broker is killed or paused. The first rounds have each cut."""
    companions: list[Sequence[Harm]] = [(), (a_broker_is_killed,), (a_broker_is_paused,)]
    first = [(cut, *others) for cut, others in zip(CUTS, cycle(companions), strict=False)]
    play_rounds(
        victim,
        without_end(first, [(cut, *others) for cut in CUTS for others in companions]),
        tmp_path / "history.jsonl",
    )


def test_harms_overlap_and_nothing_is_lost(victim: Victim, tmp_path: Path) -> None:
    possible = mixes(victim)
    first: list[tuple[Harm, Harm]] = [
        (a_broker_is_paused, the_leader_of_zookeeper_is_killed),
        (a_disk_is_full, a_broker_is_cut_off_from_everybody),
        (the_leader_of_zookeeper_is_killed, a_clock_jumps_during_a_restart),
    ]
    first = [mix for mix in first if mix in possible]
    play_rounds(victim, without_end(first, possible), tmp_path / "history.jsonl")

"""What can be done to a cluster of real processes, and how it ends: one harm at a time, or two that overlap.

A harm is a function that does something to a `Victim` and returns how that ends. It leaves nothing to wait for: while
another one goes on, a broker that is started again may have no ZooKeeper to register in.

Nothing that was acknowledged may be lost by them, so there is a bound on what they take away together. A process is
harmed by one of them only; a disk is wiped while all replicas are in sync, and beside it no other broker is harmed:
whoever is the last to have a record must not lose it.
"""

from __future__ import annotations

import errno
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from ottla.local_cluster.broker import BrokerProcess
from ottla.local_cluster.cluster import Server
from ottla.local_cluster.zookeeper import ZooKeeperServer
from ottla.testing.private_network import PrivateNetwork
from ottla.testing.waiting import WAIT_S, wait_until
from ottla.testing.wall_clock import WallClocks

CLIENTS: Final = "clients"  # the member of a private network that the clients are
SMALL_DISK_MB: Final = 48
CLOCKS_AHEAD_S: Final = (3000.0, -3000.0, 12 * 3600.0)  # less than producers may differ from brokers, or a lot
IN_SYNC_S: Final = 2 * WAIT_S
PIECE_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class Victim:
    """A cluster, and what can be done to its surroundings."""

    brokers: Sequence[BrokerProcess]
    zookeepers: Sequence[ZooKeeperServer]
    session_s: float
    clocks: WallClocks
    small_disk: Path | None = None  # a log directory of the first broker is on it
    network: PrivateNetwork | None = None
    login: Mapping[str, str] = field(default_factory=dict)  # of clients, in Java's names; empty where nobody asks
    librdkafka_login: Mapping[str, str] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)  # ids of brokers that a harm has at the moment

    @property
    def servers(self) -> list[Server]:
        """In the order in which they start."""
        return [*self.zookeepers, *self.brokers]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def _admin_client(self, bootstrap_servers: str) -> AdminClient:
        return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0, **self.librdkafka_login})

    def create_topic(self, name: str, partitions: int) -> None:
        """With a replica on every broker."""
        admin = self._admin_client(self.bootstrap_servers)  # kept: what it was asked ends with it
        admin.create_topics([NewTopic(name, partitions, len(self.brokers))])[name].result(WAIT_S)

    def is_in_sync(self) -> bool:
        """Whether all brokers are there and in sync everywhere, by what each says: one may be behind."""
        return all(self._is_in_sync_to(broker) for broker in self.brokers)

    def _is_in_sync_to(self, broker: BrokerProcess) -> bool:
        metadata = self._admin_client(broker.address).list_topics(timeout=WAIT_S)
        partitions = [partition for topic in metadata.topics.values() for partition in topic.partitions.values()]
        count = len(self.brokers)
        return len(metadata.brokers) == count and all(len(partition.isrs) == count for partition in partitions)

    def start(self) -> None:
        """All of it serves when this returns."""
        groups: tuple[Sequence[Server], ...] = (self.zookeepers, self.brokers)
        for group in groups:
            for server in group:
                server.launch()
            for server in group:
                server.wait_ready()
        wait_until(self.is_in_sync)

    def wait_until_ready(self) -> None:
        """Every process serves, after harms that have ended; fails where one has ended by itself."""
        for server in self.servers:
            server.wait_ready()

    def wait_until_in_sync(self) -> None:
        self.wait_until_ready()
        wait_until(self.is_in_sync, timeout_s=IN_SYNC_S)

    def kill(self) -> None:
        for server in reversed(self.servers):
            server.kill()

    def take(self, broker: BrokerProcess) -> BrokerProcess:
        assert broker.broker_id not in self.taken, f"broker {broker.broker_id} is harmed already"
        self.taken.add(broker.broker_id)
        return broker

    def take_one(self, rng: random.Random) -> BrokerProcess:
        return self.take(rng.choice([broker for broker in self.brokers if broker.broker_id not in self.taken]))

    def some_time(self, rng: random.Random) -> float:
        """Less than a session or more than one."""
        return self.session_s * (0.3 + 1.5 * rng.random())


End = Callable[[], None]
Harm = Callable[[Victim, random.Random], End]


# -- brokers -----------------------------------------------------------------------------------------------------------


def a_broker_is_killed(victim: Victim, rng: random.Random) -> End:
    broker = victim.take_one(rng)
    broker.kill()
    return broker.launch


def a_broker_is_restarted(victim: Victim, rng: random.Random) -> End:
    broker = victim.take_one(rng)
    assert broker.stop(), "a broker stops by SIGTERM"
    return broker.launch


def a_broker_is_paused(victim: Victim, rng: random.Random) -> End:
    """If for longer than its session, it wakes up as a leader that is none any more."""
    broker = victim.take_one(rng)
    broker.process.send(signal.SIGSTOP)
    return lambda: broker.process.send(signal.SIGCONT)


def a_disk_is_wiped(victim: Victim, rng: random.Random) -> End:
    """That of a broker with one directory. Its end waits until everything is in sync."""
    victim.wait_until_in_sync()
    broker = rng.choice(victim.brokers[1:])
    for each in victim.brokers:
        victim.take(each)
    broker.kill()
    shutil.rmtree(broker.directory / "data")
    return broker.launch


def a_disk_is_full(victim: Victim, rng: random.Random) -> End:
    """One of the two log directories of a broker fails while it serves; it continues with the other."""
    assert victim.small_disk is not None
    broker = victim.take(victim.brokers[0])
    ballast = victim.small_disk / "ballast"
    _write_until_full(ballast)

    def end() -> None:
        assert broker.process.is_alive(), "the other directory works"
        ballast.unlink()
        assert broker.stop(), "a broker with a failed directory stops by SIGTERM"
        broker.launch()

    return end


def _write_until_full(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(PIECE_BYTES))
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    return
                raise


def a_clock_jumps(victim: Victim, rng: random.Random) -> End:
    """That of any broker that runs, whatever else is done to it."""
    running = [broker for broker in victim.brokers if broker.process.pid is not None]
    return _set_clock(victim, rng.choice(running), rng)


def a_clock_jumps_during_a_restart(victim: Victim, rng: random.Random) -> End:
    broker = victim.take_one(rng)
    broker.kill()
    broker.launch()
    return _set_clock(victim, broker, rng)


def _set_clock(victim: Victim, broker: BrokerProcess, rng: random.Random) -> End:
    pid = broker.process.pid
    assert pid is not None
    victim.clocks.set_ahead(pid, rng.choice(CLOCKS_AHEAD_S))
    return lambda: victim.clocks.set_ahead(pid, 0.0)


# -- ZooKeeper ---------------------------------------------------------------------------------------------------------


def the_leader_of_zookeeper_is_killed(victim: Victim, rng: random.Random) -> End:
    return _kill_zookeepers([server for server in victim.zookeepers if server.is_leader()])


def all_of_zookeeper_is_killed(victim: Victim, rng: random.Random) -> End:
    """No session ends while nobody is there to end it."""
    return _kill_zookeepers(victim.zookeepers)


def _kill_zookeepers(servers: Sequence[ZooKeeperServer]) -> End:
    for server in servers:
        server.kill()

    def end() -> None:
        for server in servers:
            server.launch()

    return end


# -- the network between them ------------------------------------------------------------------------------------------


def name_of_broker(broker_id: int) -> str:
    return f"broker-{broker_id}"


def name_of_zookeeper(server_id: int) -> str:
    return f"zookeeper-{server_id}"


def _network(victim: Victim) -> PrivateNetwork:
    assert victim.network is not None, "nothing can be cut here"
    return victim.network


def _cut(victim: Victim, rng: random.Random, *pairs: tuple[str, str]) -> End:
    """In both directions, or in one of them."""
    network = _network(victim)
    directions = [*pairs, *((receiver, sender) for sender, receiver in pairs)]
    match rng.choice(("both", "there", "back")):
        case "there":
            directions = directions[: len(pairs)]
        case "back":
            directions = directions[len(pairs) :]
    for pair in directions:
        network.cut_one_way(*pair)

    def end() -> None:
        for pair in directions:
            network.heal_one_way(*pair)

    return end


def two_brokers_are_cut_off_from_each_other(victim: Victim, rng: random.Random) -> End:
    one, other = rng.sample(victim.brokers, 2)
    return _cut(victim, rng, (name_of_broker(one.broker_id), name_of_broker(other.broker_id)))


def a_broker_is_cut_off_from_a_zookeeper(victim: Victim, rng: random.Random) -> End:
    """From one server of the ensemble: it goes to another one."""
    broker, server = rng.choice(victim.brokers), rng.choice(victim.zookeepers)
    return _cut(victim, rng, (name_of_broker(broker.broker_id), name_of_zookeeper(server.server_id)))


def a_broker_is_cut_off_from_all_of_zookeeper(victim: Victim, rng: random.Random) -> End:
    """Its session ends, others lead, and it does not know for as long as clients and followers still ask it."""
    name = name_of_broker(rng.choice(victim.brokers).broker_id)
    return _cut(victim, rng, *((name, name_of_zookeeper(server.server_id)) for server in victim.zookeepers))


def clients_are_cut_off_from_a_broker(victim: Victim, rng: random.Random) -> End:
    return _cut(victim, rng, (CLIENTS, name_of_broker(rng.choice(victim.brokers).broker_id)))


def two_zookeepers_are_cut_off_from_each_other(victim: Victim, rng: random.Random) -> End:
    one, other = rng.sample(victim.zookeepers, 2)
    return _cut(victim, rng, (name_of_zookeeper(one.server_id), name_of_zookeeper(other.server_id)))


def a_broker_is_cut_off_from_everybody(victim: Victim, rng: random.Random) -> End:
    broker = victim.take_one(rng)
    others = [name_of_broker(each.broker_id) for each in victim.brokers if each is not broker]
    servers = [name_of_zookeeper(server.server_id) for server in victim.zookeepers]
    name = name_of_broker(broker.broker_id)
    return _cut(victim, rng, *((name, other) for other in (*others, *servers, CLIENTS)))


# -- several at a time -------------------------------------------------------------------------------------------------


BROKER_HARMS: Final[tuple[Harm, ...]] = (
    a_broker_is_killed,
    a_broker_is_paused,
    a_broker_is_restarted,
    a_clock_jumps,
    a_clock_jumps_during_a_restart,
)
ZOOKEEPER_HARMS: Final[tuple[Harm, ...]] = (the_leader_of_zookeeper_is_killed, all_of_zookeeper_is_killed)
# Between any two; from the last one on one of the two is cut off from several.
CUTS: Final[tuple[Harm, ...]] = (
    two_brokers_are_cut_off_from_each_other,
    a_broker_is_cut_off_from_a_zookeeper,
    clients_are_cut_off_from_a_broker,
    two_zookeepers_are_cut_off_from_each_other,
    a_broker_is_cut_off_from_all_of_zookeeper,
    a_broker_is_cut_off_from_everybody,
)


def mixes(victim: Victim) -> list[tuple[Harm, Harm]]:
    """Harms that may overlap, of those that are possible here; who has to be a certain broker comes first."""
    cuts = CUTS if victim.network is not None else ()
    others = (*BROKER_HARMS, *ZOOKEEPER_HARMS, *cuts)
    pairs = [(one, other) for one in BROKER_HARMS for other in others]
    pairs += [(one, other) for one in ZOOKEEPER_HARMS for other in (*BROKER_HARMS, *cuts)]
    pairs += [(a_disk_is_wiped, other) for other in ZOOKEEPER_HARMS]
    pairs += [(one, other) for one in cuts for other in cuts]
    if victim.small_disk is not None:
        pairs += [(a_disk_is_full, other) for other in others]
    return pairs


def overlap(victim: Victim, harms: Sequence[Harm], rng: random.Random) -> None:
    """One begins after the other, and they end in any order."""
    ends: list[End] = []
    try:
        for harm in harms:
            ends.append(harm(victim, rng))
            time.sleep(victim.some_time(rng) / len(harms))
    finally:
        for end in rng.sample(ends, len(ends)):
            end()
            time.sleep(rng.random())
        victim.taken.clear()
    if a_disk_is_wiped in harms:
        victim.wait_until_in_sync()


@contextmanager
def small_file_system(place: Path) -> Iterator[Path | None]:
    """A small disk, mounted there; None where nobody may mount anything."""
    place.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={SMALL_DISK_MB}m", "tmpfs", str(place)]
    if subprocess.run(["mount", *options], check=False, capture_output=True).returncode:
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)

"""What a local cluster consists of: brokers and ZooKeeper servers with their ports, and settings.

It is decided when the cluster is first started, and kept in its directory: clients find the brokers at the same
addresses after a restart. Later starts may add brokers and settings, and move the ports where somebody asks for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ottla.config.broker import BrokerConfig
from ottla.config.properties import Properties
from ottla.errors import ConfigError

FILE_NAME: Final = "cluster.json"
FORMAT: Final = 1
BROKERS_DEFAULT: Final = 3
PORT_DEFAULT: Final = 9092
PORTS_PER_ZOOKEEPER: Final = 3  # for clients, for its peers, for elections
REPLICAS_MAX: Final = 3  # of what is created without saying how many
# Shorter than a broker's default: the network of one machine loses nothing, and a broker that dies is noticed sooner.
SESSION_TIMEOUT_MS: Final = 6000
# Longer than a session, which is the default: a busy machine takes a while to start a ZooKeeper and brokers at once.
CONNECTION_TIMEOUT_MS: Final = 60_000
# What this command gives to each broker itself: one value for all of them would be in each other's way.
NOT_FOR_ALL: Final = (
    "broker.id",
    "node.id",
    "listeners",
    "advertised.listeners",
    "log.dir",
    "log.dirs",
    "zookeeper.connect",
)


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    broker_id: int
    port: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Without ZooKeeper ports it is one broker that keeps the metadata itself."""

    brokers: tuple[BrokerPlace, ...]
    zookeeper_ports: tuple[int, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    is_secure: bool = False  # with the secrets of `security.py`

    @property
    def zookeepers(self) -> int:
        return len(self.zookeeper_ports) // PORTS_PER_ZOOKEEPER

    def broker_settings(self) -> dict[str, str]:
        """The settings of every broker: replication that this many brokers can hold, then what the user wants."""
        replicas = min(REPLICAS_MAX, len(self.brokers))
        # With three replicas one may be lost without losing writes; with two that would stop them.
        in_sync = 2 if replicas == REPLICAS_MAX else 1
        return {
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(in_sync),
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(in_sync),
            **(_of_zookeeper() if self.zookeepers else {}),
            **self.settings,
        }


def _of_zookeeper() -> dict[str, str]:
    return {
        "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        "zookeeper.connection.timeout.ms": str(CONNECTION_TIMEOUT_MS),
    }


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody asks for; None takes what exists, or the default."""

    brokers: int | None = None
    zookeepers: int | None = None
    port: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    is_secure: bool = False


def decide_layout(
    existing: Layout | None, wanted: Wanted, free_ports: Callable[[int], list[int]], *, is_running: bool = False
) -> Layout:
    """The layout of a new cluster, or that of an existing one with what is changed; ConfigError for what cannot be."""
    if wanted.brokers is not None and wanted.brokers < 1:
        raise ConfigError(f"--brokers {wanted.brokers}: there must be at least one")
    if wanted.zookeepers is not None and wanted.zookeepers < 0:
        raise ConfigError(f"--zookeepers {wanted.zookeepers}: there cannot be fewer than none")
    for name in NOT_FOR_ALL:
        if name in wanted.settings:
            raise ConfigError(
                f"--set {name}: each broker of this cluster has its own, which --port and --data decide; "
                "to choose it, write a server.properties and start brokers with `ottla serve`"
            )
    layout = _new(wanted, free_ports) if existing is None else _changed(existing, wanted, is_running=is_running)
    if wanted.settings:
        # Before they are stored: brokers that do not start with them would not start the next time either.
        BrokerConfig.load(Properties({}).overridden(layout.broker_settings(), "--set"))
    return layout


def _new(wanted: Wanted, free_ports: Callable[[int], list[int]]) -> Layout:
    count = BROKERS_DEFAULT if wanted.brokers is None else wanted.brokers
    zookeepers = wanted.zookeepers
    if zookeepers is None:
        zookeepers = 0 if count == 1 else 1
    if zookeepers == 0 and count > 1:
        raise ConfigError(f"{count} brokers need a ZooKeeper between them: leave out --zookeepers 0")
    port = PORT_DEFAULT if wanted.port is None else wanted.port
    _check_port(port, count)
    needed = PORTS_PER_ZOOKEEPER * zookeepers
    return Layout(
        tuple(BrokerPlace(number + 1, port + number) for number in range(count)),
        # As many more as the brokers may take of them.
        tuple(
            [each for each in free_ports(needed + count) if not port <= each < port + count][:needed] if needed else ()
        ),
        dict(wanted.settings),
        wanted.is_secure,
    )


def _check_port(port: int, count: int) -> None:
    if not 0 < port <= 65536 - count:
        raise ConfigError(f"{count} brokers from port {port} on: their ports must lie between 1 and 65535")


def _changed(existing: Layout, wanted: Wanted, *, is_running: bool) -> Layout:
    port = existing.brokers[0].port if wanted.port is None else wanted.port
    if port != existing.brokers[0].port and is_running:
        raise ConfigError(
            f"--port {port}: this cluster runs at port {existing.brokers[0].port}; stop it first with `ottla down`"
        )
    if wanted.zookeepers is not None and wanted.zookeepers != existing.zookeepers:
        raise ConfigError(
            f"--zookeepers {wanted.zookeepers}: this cluster has {existing.zookeepers}, and their number cannot change"
        )
    if wanted.is_secure and not existing.is_secure:
        raise ConfigError("--secure: this cluster was made without it, and is open; name another --data")
    count = len(existing.brokers) if wanted.brokers is None else wanted.brokers
    if count < len(existing.brokers):
        raise ConfigError(
            f"--brokers {count}: this cluster has {len(existing.brokers)}; empty those that are to go with"
            " `ottla reassign plan --without`, or name another --data"
        )
    if count > len(existing.brokers) and not existing.zookeepers:
        raise ConfigError(
            f"--brokers {count}: this cluster is one broker without a ZooKeeper and cannot grow; name another --data"
        )
    _check_port(port, count)
    ids = [place.broker_id for place in existing.brokers]
    ids += range(ids[-1] + 1, ids[-1] + 1 + count - len(ids))
    return Layout(
        tuple(BrokerPlace(broker_id, port + number) for number, broker_id in enumerate(ids)),
        existing.zookeeper_ports,
        {**existing.settings, **wanted.settings},
        existing.is_secure,
    )


def read_layout(directory: Path) -> Layout | None:
    """The layout of the cluster in a directory; None where there is none."""
    path = directory / FILE_NAME
    try:
        document = json.loads(path.read_text())
        if document["format"] != FORMAT:
            raise ConfigError(f"{path}: format {document['format']} is not known here, only {FORMAT}")
        brokers = tuple(BrokerPlace(int(each["broker_id"]), int(each["port"])) for each in document["brokers"])
        if not brokers:
            raise ValueError("it has no brokers")
        return Layout(
            brokers,
            tuple(map(int, document["zookeeper_ports"])),
            {str(name): str(value) for name, value in document["settings"].items()},
            bool(document.get("is_secure", False)),
        )
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{path}: this describes no cluster ({error!r})") from error


def write_layout(directory: Path, layout: Layout) -> None:
    document = {
        "format": FORMAT,
        "brokers": [{"broker_id": each.broker_id, "port": each.port} for each in layout.brokers],
        "zookeeper_ports": list(layout.zookeeper_ports),
        "settings": dict(layout.settings),
        "is_secure": layout.is_secure,
    }
    replace_text(directory / FILE_NAME, json.dumps(document, indent=2) + "\n")


def replace_text(path: Path, text: str) -> None:
    """Writes a small file as a whole: readers see the old one or the new one."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(text)
    beside.replace(path)

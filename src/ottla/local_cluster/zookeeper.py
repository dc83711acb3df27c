"""ZooKeeper servers on this machine, from the jars that pyspark brings: no other installation is needed.

ensemble = ZooKeeperEnsemble(Path("/tmp/zookeeper"), size=3)
ensemble.start()
ensemble.connect                # "127.0.0.1:40211,127.0.0.1:40217,127.0.0.1:40219"
ensemble.servers[0].kill()
ensemble.stop()
"""

from __future__ import annotations

import shutil
import signal
import socket
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from ottla.errors import ConfigError
from ottla.local_cluster.process import ServerProcess
from ottla.net.ports import free_ports

MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# The smallest Java machine that serves: it starts in a second and holds some tens of megabytes.
JAVA_OPTIONS: Final = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Dzookeeper.admin.enableServer=false",
)
TICK_MS: Final = 500  # sessions may last 2 to 20 of them
SESSION_TIMEOUT_MAX_MS: Final = 60_000
START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 60.0
ANSWER_TIMEOUT_S: Final = 5.0
HOST: Final = "127.0.0.1"
CONFIGURATION: Final = "zoo.cfg"


def jars_directory() -> Path:
    """Where pyspark keeps its jars, with ZooKeeper among them; a ConfigError says what is missing."""
    if shutil.which("java") is None:
        raise ConfigError("ZooKeeper runs on Java, and there is no java on the path: install Java 17 or newer")
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError("ZooKeeper comes with pyspark, which is not installed: pip install 'ottla[cluster,spark]'")
    jars = Path(spec.origin).parent / "jars"
    if not any(jars.glob("zookeeper-3*.jar")):
        raise ConfigError(f"there is no ZooKeeper in {jars}: install pyspark from its wheel")
    return jars


class ZooKeeperServer:
    """One server as a process. Its files, its configuration and its log are in `directory`."""

    def __init__(
        self,
        server_id: int,
        directory: Path,
        client_port: int,
        settings: Mapping[str, str],
        java_options: Sequence[str] = (),
        *,
        host: str = HOST,
    ) -> None:
        self._java_options = java_options
        self.host = host
        self.server_id = server_id
        self.directory = directory
        self.client_port = client_port
        self._settings = settings
        self.process = ServerProcess(f"zookeeper {server_id}", directory / "zookeeper.log")

    @property
    def pid(self) -> int | None:
        return self.process.pid

    @property
    def address(self) -> str:
        return f"{self.host}:{self.client_port}"

    def launch(self) -> None:
        """Starts the process; `wait_ready` waits until it serves."""
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(f"{self.server_id}\n")
        settings = {"dataDir": "./data", "clientPort": str(self.client_port)}
        settings |= {"clientPortAddress": self.host, **self._settings}
        (self.directory / CONFIGURATION).write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.process.launch(
            [
                "java",
                *JAVA_OPTIONS,
                *self._java_options,
                "-cp",
                f"{jars_directory()}/*",
                MAIN_CLASS,
                f"./{CONFIGURATION}",
            ],
            # Java reads its configuration as Latin-1, and its arguments by the locale: so no path is in either.
            directory=self.directory,
        )

    def is_ready(self) -> bool:
        """Whether it serves: it answers `srvr`, which a member without a quorum does not do."""
        return "Mode:" in four_letter_word(self.host, self.client_port, "srvr")

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        self.process.wait_until(self.is_ready, timeout_s)

    def is_leader(self) -> bool:
        return "Mode: leader" in four_letter_word(self.host, self.client_port, "srvr")

    def stop(self) -> bool:
        """False where it had to be killed."""
        return self.process.end(signal.SIGTERM, STOP_TIMEOUT_S)

    def kill(self) -> None:
        self.process.end(signal.SIGKILL, STOP_TIMEOUT_S)

    def pause(self) -> None:
        self.process.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send(signal.SIGCONT)


class ZooKeeperEnsemble:
    """One server, or several that elect a leader among them."""

    def __init__(
        self,
        directory: Path,
        size: int = 1,
        *,
        ports: Sequence[int] | None = None,
        settings: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
        hosts: Sequence[str] | None = None,
    ) -> None:
        hosts = [HOST] * size if hosts is None else hosts
        own = free_ports(3 * size) if ports is None else list(ports)
        assert len(own) == 3 * size, "a server has a port for clients and two for its peers"
        clients, quorum, election = own[:size], own[size : 2 * size], own[2 * size :]
        common = {
            "tickTime": str(TICK_MS),
            "initLimit": "40",
            "syncLimit": "10",
            "maxSessionTimeout": str(SESSION_TIMEOUT_MAX_MS),
            "4lw.commands.whitelist": "srvr,mntr,ruok",
            "maxClientCnxns": "0",
            **(settings or {}),
        }
        if size > 1:
            common |= {f"server.{n + 1}": f"{hosts[n]}:{quorum[n]}:{election[n]}" for n in range(size)}
        self.servers = [
            ZooKeeperServer(n + 1, directory / f"{n + 1}", clients[n], common, java_options, host=hosts[n])
            for n in range(size)
        ]

    @property
    def connect(self) -> str:
        """What clients connect to: `zookeeper.connect`."""
        return ",".join(server.address for server in self.servers)

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Returns when all servers serve; on failure none is left running."""
        try:
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.wait_ready(timeout_s)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def four_letter_word(host: str, port: int, word: str) -> str:
    """What a server answers to one of its short commands; nothing where it does not answer."""
    try:
        with socket.create_connection((host, port), timeout=ANSWER_TIMEOUT_S) as connection:
            connection.sendall(word.encode())
            connection.shutdown(socket.SHUT_WR)
            answer = bytearray()
            while piece := connection.recv(65_536):
                answer += piece
            return answer.decode(errors="replace")
    except OSError:
        return ""

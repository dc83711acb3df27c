"""A broker as a process of its own: `ottla serve` with a `server.properties` that is written for it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.local_cluster.private_files import write_private
from ottla.local_cluster.process import ServerProcess

HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 60.0
READY: Final = "ready "  # how the line begins that `ottla serve` prints once it serves


class BrokerProcess:
    """One broker. Its settings, its data and its log are in `directory`."""

    def __init__(
        self,
        broker_id: int,
        directory: Path,
        port: int,
        settings: Mapping[str, str],
        zookeeper_connect: str = "",
        *,
        protocol: str = "PLAINTEXT",
        host: str = HOST,
    ) -> None:
        self.host = host
        self.broker_id = broker_id
        self.directory = directory
        self.port = port
        self._settings = settings
        self._zookeeper_connect = zookeeper_connect
        self._protocol = protocol
        self.process = ServerProcess(f"broker {broker_id}", directory / "broker.log")

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def launch(self) -> None:
        """Starts the process; `wait_ready` waits until it serves."""
        self.directory.mkdir(parents=True, exist_ok=True)
        write_private(self._properties, self._text_of_properties().encode())  # there may be passwords in it
        self.process.launch([sys.executable, "-m", "ottla", "serve", str(self._properties)])

    def has_new_settings(self) -> bool:
        """Whether its next start will be with other settings than its latest one."""
        try:
            return self._properties.read_bytes() != self._text_of_properties().encode()
        except FileNotFoundError:
            return True

    @property
    def _properties(self) -> Path:
        return self.directory / "server.properties"

    def _text_of_properties(self) -> str:
        settings = {
            "broker.id": str(self.broker_id),
            "listeners": f"{self._protocol}://{self.address}",
            "log.dirs": str(self.directory / "data"),
            **({"zookeeper.connect": self._zookeeper_connect} if self._zookeeper_connect else {}),
            **self._settings,
        }
        return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())

    def is_ready(self) -> bool:
        return any(line.startswith(READY) for line in self.process.output().splitlines())

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        self.process.wait_until(self.is_ready, timeout_s)

    def stop(self) -> bool:
        """The controlled way: it hands its leaders over and closes its logs. False where it had to be killed."""
        return self.process.end(signal.SIGTERM, STOP_TIMEOUT_S)

    def kill(self) -> None:
        self.process.end(signal.SIGKILL, STOP_TIMEOUT_S)


def _escaped(value: str) -> str:
    """In the format of Java's properties a backslash is the only character with a meaning inside a value."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")

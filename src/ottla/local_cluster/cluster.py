"""A whole cluster on this machine, in one directory: started, stopped and looked at, by one call or by several.

cluster.json            its layout: brokers, ports, settings (`layout.py`)
running.json            its processes (`running.py`)
lock                    held by whoever starts or stops something, while they do
zookeeper/1/, broker-1/ files, configuration and log of each
security/               keys and passwords, where it was made with them (`security.py`)
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final, TextIO

from ottla.errors import ConfigError
from ottla.local_cluster.broker import BrokerProcess
from ottla.local_cluster.layout import FILE_NAME, Layout, Wanted, decide_layout, read_layout, write_layout
from ottla.local_cluster.process import ProcessIdentity, ServerProcess, identity_of
from ottla.local_cluster.running import Running, read_running, write_running
from ottla.local_cluster.security import PROTOCOL, ClusterSecurity, make_security
from ottla.local_cluster.zookeeper import ZooKeeperEnsemble, ZooKeeperServer, jars_directory
from ottla.net.ports import free_ports, is_free

LOCK_NAME: Final = "lock"
SECURITY_DIRECTORY: Final = "security"
LOOK_S: Final = 0.05

Server = ZooKeeperServer | BrokerProcess


class AlreadyRunningError(ConfigError):
    """Somebody else starts or stops this cluster, or looks after it."""


class LocalCluster:
    """The cluster in a directory. Who changes anything holds its lock (`hold`)."""

    def __init__(self, directory: Path, layout: Layout) -> None:
        self.directory = directory
        self.layout = layout
        self.security = ClusterSecurity(directory / SECURITY_DIRECTORY) if layout.is_secure else None
        self.is_new = False  # made by this very call
        security = self.security
        self.zookeepers: list[ZooKeeperServer] = []
        connect = ""
        settings: dict[str, str] = {} if security is None else security.broker_settings()
        if layout.zookeepers:
            ensemble = ZooKeeperEnsemble(
                directory / "zookeeper",
                layout.zookeepers,
                ports=layout.zookeeper_ports,
                settings=None if security is None else security.zookeeper_settings(),
                java_options=() if security is None else security.java_options(directory / "zookeeper" / "1"),
            )
            self.zookeepers, connect = ensemble.servers, ensemble.connect
            settings |= {} if security is None else security.of_zookeeper()
        self.brokers = [
            BrokerProcess(
                place.broker_id,
                directory / f"broker-{place.broker_id}",
                place.port,
                {**settings, **layout.broker_settings()},
                connect,
                protocol="PLAINTEXT" if security is None else PROTOCOL,
            )
            for place in layout.brokers
        ]
        running = read_running(directory)
        self._supervisor = running.supervisor
        for process in self.processes:
            process.identity = running.processes.get(process.name)

    @classmethod
    def find(cls, directory: Path) -> LocalCluster | None:
        """The cluster that is in a directory; None where there is none."""
        layout = read_layout(directory)
        return None if layout is None else cls(directory, layout)

    @classmethod
    def decide(cls, directory: Path, wanted: Wanted) -> tuple[LocalCluster | None, Layout]:
        """The cluster that is in a directory, and its layout with what is added. Nothing is changed."""
        before = cls.find(directory)
        layout = decide_layout(
            None if before is None else before.layout,
            wanted,
            free_ports,
            is_running=before is not None and any(process.is_alive() for process in before.processes),
        )
        if before is not None and before.supervisor is not None and layout != before.layout:
            raise before.looked_after(
                "only what has ended can be started again meanwhile, by --detach and nothing else"
            )
        if layout.zookeepers:
            jars_directory()  # says what is missing before anything is made
        return before, layout

    @classmethod
    def prepare(cls, directory: Path, wanted: Wanted) -> LocalCluster:
        """The cluster that is in a directory, with what is added, or a new one. Hold its lock."""
        before, layout = cls.decide(directory, wanted)
        if before is None and layout.is_secure:
            make_security(directory / SECURITY_DIRECTORY)
        write_layout(directory, layout)
        cluster = cls(directory, layout)
        cluster.is_new = before is None
        return cluster

    @property
    def supervisor(self) -> ProcessIdentity | None:
        """The call of `ottla up` that looks after it, if there is one."""
        return Running({}, self._supervisor).living_supervisor()

    @property
    def servers(self) -> list[Server]:
        """In the order in which they start."""
        return [*self.zookeepers, *self.brokers]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    @property
    def processes(self) -> list[ServerProcess]:
        return [server.process for server in self.servers]

    def looked_after(self, advice: str) -> AlreadyRunningError:
        """Why a call that is not the one in the foreground may not do something."""
        assert self._supervisor is not None
        return AlreadyRunningError(
            f"{self.directory}: `ottla up` (process {self._supervisor.pid}) looks after this cluster; "
            f"end it with Ctrl-C there or with `ottla down`; {advice}"
        )

    def look_again(self) -> None:
        """Finds what other calls have started since."""
        for name, identity in read_running(self.directory).processes.items():
            for process in self.processes:
                if process.name == name:
                    process.started_elsewhere(identity)

    def ended(self) -> list[ServerProcess]:
        """Processes that were started and have ended by themselves."""
        return [process for process in self.processes if process.identity is not None and not process.is_alive()]

    def check_start(self, *, is_supervised: bool) -> None:
        """Whether what does not run can be started by this call; the error says why not."""
        if is_supervised and self.supervisor is not None:
            raise self.looked_after("--detach starts again what has ended")
        for server in self.servers:
            if server.process.is_alive():
                continue
            for port in self._ports_of(server):
                if not is_free(server.host, port):
                    in_use = f"another program uses port {port}, which {server.process.name} needs"
                    if isinstance(server, BrokerProcess):
                        raise ConfigError(f"{in_use}: end it, or choose other ports with --port")
                    raise ConfigError(
                        f"{in_use}: end it, or write another one into zookeeper_ports of {self.directory / FILE_NAME}"
                    )

    def _ports_of(self, server: Server) -> Sequence[int]:
        if isinstance(server, BrokerProcess):
            return (server.port,)
        size = len(self.zookeepers)  # a single one has no peers
        return self.layout.zookeeper_ports[self.zookeepers.index(server) :: size] if size > 1 else (server.client_port,)

    @contextmanager
    def starting(
        self,
        on_ready: Callable[[Server], None] = lambda server: None,
        *,
        is_supervised: bool,
        whole: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Iterator[None]:
        """Starts what does not run; all of it serves inside. What fails there or before stops what was started.

        `whole` keeps interrupts away: a process that is started and not noted would be left running by everybody.
        """
        supervisor_before = self.supervisor
        self.check_start(is_supervised=is_supervised)
        self._supervisor = identity_of(os.getpid()) if is_supervised else supervisor_before
        launched: list[Server] = []
        try:
            for group in (self.zookeepers, self.brokers):
                missing = [server for server in group if not server.process.is_alive()]
                for server in missing:
                    with whole():
                        launched.append(server)
                        server.launch()
                        self._note()
                for server in missing:
                    server.wait_ready()
                    on_ready(server)
            self._note()
            yield
        except BaseException:
            self._supervisor = supervisor_before
            for server in reversed(launched):
                server.stop()
                self._note()
            raise

    def stop(self, on_stopped: Callable[[Server], None] = lambda server: None) -> list[ServerProcess]:
        """Stops all that runs, brokers first and one after the other. Returns those that had to be killed."""
        killed: list[ServerProcess] = []
        in_order: list[Server] = [*self.brokers, *self.zookeepers]
        for server in in_order:
            if server.process.is_alive():
                if not server.stop():
                    killed.append(server.process)
                on_stopped(server)
            else:
                server.process.forget()
            self._note()
        self._supervisor = None
        self._note()
        return killed

    def _note(self) -> None:
        identities = {process.name: process.identity for process in self.processes}
        known = {name: identity for name, identity in identities.items() if identity is not None}
        write_running(self.directory, Running(known, self._supervisor))


@contextmanager
def hold(directory: Path, wait_s: float = 0.0) -> Iterator[None]:
    """The right to start and stop what is in a directory, which is made where it is missing."""
    deadline = time.monotonic() + wait_s
    with _lock_file(directory) as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise AlreadyRunningError(
                        f"{directory}: another call of ottla starts or stops this cluster; try again when it is done"
                    ) from error
            time.sleep(LOOK_S)
        yield


def _lock_file(directory: Path) -> TextIO:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return (directory / LOCK_NAME).open("a")
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: {error.strerror}: give --data a directory in which files can be written"
        ) from error

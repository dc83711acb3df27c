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
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final

from ottla.errors import ConfigError
from ottla.local_cluster.broker import BrokerProcess
from ottla.local_cluster.layout import Layout, Wanted, decide_layout, read_layout, write_layout
from ottla.local_cluster.process import ProcessIdentity, ServerProcess, identity_of
from ottla.local_cluster.running import Running, read_running, write_running
from ottla.local_cluster.security import PROTOCOL, ClusterSecurity, make_security
from ottla.local_cluster.zookeeper import ZooKeeperEnsemble, ZooKeeperServer, jars_directory
from ottla.net.ports import free_ports

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
                java_options=() if security is None else security.java_options(),
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
    def prepare(cls, directory: Path, wanted: Wanted) -> LocalCluster:
        """The cluster that is in a directory, with what is added, or a new one. Hold its lock."""
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
        if is_supervised and supervisor_before is not None:
            raise self.looked_after("--detach starts again what has ended")
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
    directory.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_s
    with (directory / LOCK_NAME).open("a") as lock:
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

"""A real broker for tests: on a free port, in this process or in its own, removed without a trace.

    with Broker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)

By default it runs on an event loop in a thread of this process: it is ready in a fraction of a second, and a debugger
can inspect it. With `in_process=False` it is a separate process, which a test can kill. Either way its data is in a
temporary directory, unless the test names one that outlives the broker.

A broker in this process uses half of the process's file descriptors for files, and leaves the limit unchanged;
`ottla serve`, and so a broker in its own process, raises the limit as far as the system allows.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Coroutine, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar
from weakref import WeakSet

from ottla.broker.broker import Broker as RunningBroker
from ottla.disk import Disk
from ottla.errors import OttlaError
from ottla.store.embedded import EmbeddedStore
from ottla.testing.inline import InlineOffload, run_inline
from ottla.testing.ports import free_port
from ottla.testing.security import ADMIN, Security

Result = TypeVar("Result")

LOOPBACK = "127.0.0.1"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 120.0
# What a test wants unless it says otherwise: topics by themselves, small, without waiting.
TEST_SETTINGS = {
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.delete.delay.ms": "1000",
}
LOG_FILE = "broker.err"  # of a broker in its own process, beside its data
LOG_LINES_SHOWN = 100

Setting: TypeAlias = str | int | float | bool


class BrokerError(OttlaError):
    """The broker of a test did not start, or did not stop."""


def setting_text(name: str, value: Setting) -> str:
    """A setting as a file of settings has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(f"setting {name}: a string, a number or a boolean is needed, not {value!r}")


class Broker:
    """A broker that serves from `start` (or the beginning of a `with`) to `stop` (or its end)."""

    def __init__(
        self,
        settings: Mapping[str, Setting] | None = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        in_process: bool = True,
        listen: str | None = None,
        disk: Disk | None = None,
        security: Security | None = None,
    ) -> None:
        """`disk`: one to run on in place of the machine's, for tests of disks that fail; in this process only.
        `security`: how clients must log in; without it the listener is open to everybody. `settings` may have
        `listeners` of their own, of which clients get the first.
        """
        assert disk is None or in_process, "a broker beside this process runs on the machine's disk"
        self._security = security
        of_security = {} if security is None else security.broker_settings()
        own = {name: setting_text(name, value) for name, value in (settings or {}).items()}
        self._settings = {**TEST_SETTINGS, **of_security, **own}
        self._keeps_directory = directory is not None
        self._directory = None if directory is None else os.fspath(directory)
        # Always the same place: whoever was connected finds it there after a restart.
        self._listen = listen or f"{LOOPBACK}:{free_port(LOOPBACK)}"
        self._runner: _Thread | _Process
        protocol = "PLAINTEXT" if security is None else security.protocol
        self._runner = _Thread(disk, protocol) if in_process else _Process(protocol)
        self.host = ""
        self.port = 0

    @property
    def directory(self) -> str:
        """Where its data is; a temporary directory is made when it is first needed."""
        if self._directory is None:
            self._directory = tempfile.mkdtemp(prefix="ottla-broker-")
        return self._directory

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients: `host:port`."""
        return f"{self.host}:{self.port}"

    def client_settings(self, user: str = ADMIN) -> dict[str, str]:
        """The settings of a client of this broker, in Java's names; `user`: who it is, where the broker asks for it."""
        own = {} if self._security is None else self._security.client_settings(user)
        return {"bootstrap.servers": self.bootstrap_servers, **own}

    @property
    def pid(self) -> int:
        """The process id of a broker in its own process, for tests that send it signals."""
        assert isinstance(self._runner, _Process), "a broker in this process has no process of its own"
        return self._runner.pid

    def start(self) -> Self:
        try:
            self.host, self.port = self._runner.start(self._listen, self.directory, self._settings)
        except BaseException:
            self._forget()
            raise
        _STARTED.add(self)
        return self

    def log_tail(self) -> str:
        """The last lines that a broker in its own process has logged; one in this process logs as the test does."""
        if self._directory is None:
            return ""
        try:
            with open(os.path.join(self._directory, LOG_FILE), errors="replace") as file:
                return "".join(deque(file, LOG_LINES_SHOWN))
        except FileNotFoundError:
            return ""

    def stop(self) -> None:
        """Stops the broker cleanly; everything is flushed."""
        _STARTED.discard(self)
        try:
            self._runner.stop()
        finally:
            self._forget()

    def kill(self) -> None:
        """Ends a broker in its own process like a crash (SIGKILL). Its directory is kept for the next start."""
        assert isinstance(self._runner, _Process), "a broker in this process cannot be killed without killing the test"
        self._runner.kill()

    def restart(self) -> Self:
        """Starts again on the same address and data, after `kill` or instead of a running broker."""
        self._runner.stop()
        self._listen = self.bootstrap_servers
        return self.start()

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs a coroutine on the event loop of a broker in this process, to inspect its state."""
        assert isinstance(self._runner, _Thread), "only a broker in this process can be called"
        return self._runner.call(work)

    @property
    def running(self) -> RunningBroker:
        """The broker object itself, in this process."""
        assert isinstance(self._runner, _Thread), "only a broker in this process can be looked into"
        assert self._runner.broker is not None, "the broker is not running"
        return self._runner.broker

    def _forget(self) -> None:
        if self._security is not None:
            self._security.close()
        if not self._keeps_directory and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and (log := self.log_tail()):
            error.add_note(f"log of the broker at {self.bootstrap_servers}:\n{log}")
        self.stop()


_STARTED: WeakSet[Broker] = WeakSet()


def logs_of_started_brokers() -> Iterator[tuple[str, str]]:
    """Address and last lines of the log of each broker in its own process that was not stopped."""
    for broker in sorted(_STARTED, key=lambda broker: broker.port):
        if log := broker.log_tail():
            yield broker.bootstrap_servers, log


class _Thread:
    """A broker on an event loop in a thread of this process."""

    def __init__(self, disk: Disk | None, protocol: str) -> None:
        self._disk = disk
        self._protocol = protocol
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._stopping: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self.broker: RunningBroker | None = None

    def start(self, listen: str, directory: str, settings: Mapping[str, str]) -> tuple[str, int]:
        properties = {"log.dirs": directory, "listeners": f"{self._protocol}://{listen}", **settings}
        self._ready.clear()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(properties)), name="ottla-broker", daemon=True
        )
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_S):
            raise BrokerError(f"the broker was not ready after {START_TIMEOUT_S:.0f} s")
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        assert self.broker is not None
        return self.broker.address

    async def _serve(self, properties: Mapping[str, str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._failure = None
        try:
            broker = self._make(properties)
            await broker.start()
            self.broker = broker
        except BaseException as error:
            self._failure = error
            return
        finally:
            self._ready.set()
        await self._stopping.wait()
        self.broker = None
        await broker.stop()

    def _make(self, properties: Mapping[str, str]) -> RunningBroker:
        if self._disk is None:
            return RunningBroker(properties)
        # A disk of a test's own knows no threads: everything is done in place.
        return RunningBroker(
            properties,
            disk=self._disk,
            offload=InlineOffload(),
            open_store=lambda disk, directory: EmbeddedStore(disk, directory, run_inline),
        )

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._loop is not None and self._stopping is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join(STOP_TIMEOUT_S)
        if thread.is_alive():
            raise BrokerError(f"the broker did not stop within {STOP_TIMEOUT_S:.0f} s")


class _Process:
    """A broker in a process of its own, started as a user would."""

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    def start(self, listen: str, directory: str, settings: Mapping[str, str]) -> tuple[str, int]:
        command = [sys.executable, "-m", "ottla", "serve"]
        listeners = f"{self._protocol}://{listen}"
        for name, value in {"log.dirs": directory, "listeners": listeners, **settings}.items():
            command += ["--set", f"{name}={value}"]
        os.makedirs(directory, exist_ok=True)
        # Its complaints are kept beside its data, so that a test that fails can show them.
        with open(os.path.join(directory, LOG_FILE), "ab") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("ready "):
            self._process.wait()
            self._process.stdout.close()
            with open(os.path.join(directory, LOG_FILE), errors="replace") as file:
                raise BrokerError(f"the broker did not come up: {file.read().strip() or line.strip()}")
        host, _, port = line.split()[1].rpartition(":")
        return host, int(port)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.send_signal(number)
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerError(f"the broker did not end within {STOP_TIMEOUT_S:.0f} s of {number.name}") from None
        finally:
            if process.stdout is not None:
                process.stdout.close()

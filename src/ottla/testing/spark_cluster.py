"""A standalone Spark cluster from the pip package: a master and workers as processes of this machine.

    with SparkCluster(directory) as cluster:
        ...  # a driver with the master `cluster.url`

It runs as an operator would run it (`spark-class …Master`, `…Worker`), on free ports of loopback, with its files in one
directory. Executors are children of their worker: `executor_pids` finds them, for tests that kill one.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ottla.errors import OttlaError

START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.05
HOST: Final = "127.0.0.1"
# Master and workers do little: the first compiler tier, the serial collector and a small heap cost the least.
DAEMON_ENVIRONMENT: Final = {
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "SPARK_NO_DAEMONIZE": "1",
    "SPARK_LOCAL_IP": HOST,
}
MASTER: Final = "org.apache.spark.deploy.master.Master"
WORKER: Final = "org.apache.spark.deploy.worker.Worker"
EXECUTOR: Final = "CoarseGrainedExecutorBackend"
MASTER_READY: Final = re.compile(r"Starting Spark master at (spark://\S+)")
WORKER_READY: Final = re.compile(r"Successfully registered with master")


class SparkClusterError(OttlaError):
    """A part of the cluster did not start or stop; the message contains the end of its log."""


class _Daemon:
    """A master or a worker, and the file it writes its log to."""

    def __init__(self, name: str, directory: Path, main: str, arguments: list[str]) -> None:
        self._name = name
        self._log = directory / f"{name}.log"
        spark_home = _spark_home()
        # The daemon leads a group of its own, so that what it starts ends with it.
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [spark_home / "bin" / "spark-class", main, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "SPARK_HOME": str(spark_home), **DAEMON_ENVIRONMENT},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Until its log says so."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            text = self._log.read_text(errors="replace")
            if found := pattern.search(text):
                return found
            if self._process.poll() is not None:
                raise SparkClusterError(f"the {self._name} ended while it started: {text[-4000:]}")
            if time.monotonic() > deadline:
                raise SparkClusterError(f"the {self._name} is not ready after {START_TIMEOUT_S:.0f} s: {text[-4000:]}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            _end_group(self._process.pid)


class SparkCluster:
    """A master and `workers` workers of `cores` cores each, from the beginning of a `with` to its end."""

    def __init__(self, directory: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        self._directory = directory
        self._worker_arguments = [["--cores", str(cores), "--memory", memory] for _ in range(workers)]
        self._master: _Daemon | None = None
        self._workers: list[_Daemon] = []
        self.url = ""

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        workers, self._workers = self._workers, []
        master, self._master = self._master, None
        for daemon in (*workers, *([master] if master else [])):
            daemon.stop()

    def executor_pids(self) -> list[int]:
        """The executors that run now."""
        workers = {worker.pid for worker in self._workers}
        return [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdecimal() and _parent_of(entry) in workers and EXECUTOR in _command_of(entry)
        ]

    def _start(self) -> None:
        listening = ["--host", HOST, "--port", "0", "--webui-port", "0"]
        self._master = _Daemon("master", self._directory, MASTER, listening)
        self.url = self._master.wait_for(MASTER_READY)[1]
        for number, arguments in enumerate(self._worker_arguments):
            home = self._directory / f"worker-{number}"
            self._workers.append(
                _Daemon(home.name, self._directory, WORKER, [*listening, *arguments, "--work-dir", str(home), self.url])
            )
        for worker in self._workers:
            worker.wait_for(WORKER_READY)


def _spark_home() -> Path:
    import pyspark

    return Path(os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__))


def _end_group(leader: int) -> None:
    """Ends what a daemon has left behind; usually nothing."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def _parent_of(entry: Path) -> int | None:
    try:
        return int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, IndexError):
        return None  # it has ended meanwhile


def _command_of(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""

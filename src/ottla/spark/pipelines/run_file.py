"""Which pipelines of this user run on this machine: a file each, locked by its process as long as that lives.

    with RunFile("shop").held():
        …                            # in another terminal: RunFile("shop").stop()

The lock tells whether the process is there, so that a process id that the system has given to somebody else is never
sent a signal.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ottla.errors import ConfigError

DIRECTORY_VARIABLE: Final = "OTTLA_PIPELINES_DIR"
POLL_S: Final = 0.05
ATTEMPTS: Final = 3  # whoever only asks whether a pipeline runs has its lock for a moment
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]")


class NotRunningError(ConfigError):
    """There is no such pipeline of this user on this machine."""


class StillRunningError(ConfigError):
    """A pipeline was asked to stop, and has not within the time that it had."""


def directory() -> Path:
    if given := os.environ.get(DIRECTORY_VARIABLE):
        return Path(given)
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state) / "ottla" / "pipelines"


class RunFile:
    """The file of one pipeline."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = directory() / f"{_UNFIT.sub('_', name)}.pid"

    @contextmanager
    def held(self) -> Iterator[None]:
        """This process runs the pipeline; a ConfigError where another one does."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+") as file:
            if not _lock_soon(file.fileno()):
                raise ConfigError(
                    f"the pipeline {self.name} runs already, as process {_pid(self.path)}: `ottla pipeline stop "
                    f"{self.name}` ends it"
                )
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            try:
                yield
            finally:
                file.truncate(0)

    @property
    def pid(self) -> int | None:
        """The process that runs the pipeline, if there is one."""
        try:
            with self.path.open("r+") as file:
                return None if _lock(file.fileno()) else _pid(self.path)
        except FileNotFoundError:
            return None

    def stop(self, timeout_s: float) -> int:
        """Asks it to stop, waits until it has, and returns its process id."""
        pid = self.pid
        if pid is None:
            running = ", ".join(running_names()) or "none"
            raise NotRunningError(f"no pipeline {self.name} runs here; running: {running}")
        os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + timeout_s
        while self.pid == pid:
            if time.monotonic() >= end:
                raise StillRunningError(
                    f"the pipeline {self.name} (process {pid}) has not stopped within {timeout_s:g} s: it may be in a "
                    "long batch; wait for it, or end it with kill -9, which loses nothing"
                )
            time.sleep(POLL_S)
        return pid


def running_names() -> list[str]:
    """The pipelines that run now."""
    found = sorted(path.stem for path in directory().glob("*.pid"))
    return [name for name in found if RunFile(name).pid is not None]


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_soon(descriptor: int) -> bool:
    for _ in range(ATTEMPTS):
        if _lock(descriptor):
            return True
        time.sleep(POLL_S)
    return False


def _pid(path: Path) -> int | None:
    text = path.read_text().strip()
    return int(text) if text.isdecimal() else None

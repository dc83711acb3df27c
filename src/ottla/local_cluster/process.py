"""A program that runs beside us, and how it is told apart from a later one with the same process id.

A process number is used again once its process is gone. So a process is known by its number *and* by the moment when it
started, and nothing is signalled unless both are right: what a file says was running may long be somebody else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.errors import OttlaError

LOOK_S: Final = 0.05
LOG_END_BYTES: Final = 2000
LOG_LINES_SHOWN: Final = 8
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class ProcessFailedError(OttlaError):
    """A program did not start, or ended: what happened, and its own last words."""

    def __init__(self, what: str, last_words: str) -> None:
        super().__init__(f"{what}; {last_words}")
        self.what = what
        self.last_words = last_words


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process among all that ever had its number; `started` is comparable on the machine that wrote it."""

    pid: int
    started: str


def identity_of(pid: int) -> ProcessIdentity | None:
    """The process that has this number now; None where none has, or only the remains of one that has ended."""
    started = _started_by_proc(pid) if BOOT_ID.exists() else _started_by_ps(pid)
    return None if started is None else ProcessIdentity(pid, started)


def _started_by_proc(pid: int) -> str | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name of the program stands in parentheses and may hold anything; behind it come the state and 19 more.
    state, *fields = text.rpartition(")")[2].split()
    if state in "ZX":
        return None
    return f"{BOOT_ID.read_text().strip()}/{fields[18]}"


def _started_by_ps(pid: int) -> str | None:
    done = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], check=False, capture_output=True, text=True, timeout=10
    )
    state, _, started = done.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else started.strip()


def is_alive(identity: ProcessIdentity) -> bool:
    return identity_of(identity.pid) == identity


def send_signal(identity: ProcessIdentity, number: signal.Signals) -> bool:
    """Whether that very process was there to be signalled."""
    if not hasattr(os, "pidfd_open"):  # only Linux has handles of processes
        if is_alive(identity):
            os.kill(identity.pid, number)
            return True
        return False
    try:
        handle = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return False
    try:
        # What the handle stands for cannot be replaced between the look and the signal.
        if not is_alive(identity):
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


class ServerProcess:
    """A program that serves until it is stopped, with a log; started by us, or by a call before us."""

    def __init__(self, name: str, log: Path, identity: ProcessIdentity | None = None) -> None:
        self.name = name
        self.log = log
        self.identity = identity
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        return None if self.identity is None else self.identity.pid

    def launch(self, command: Sequence[str], directory: Path | None = None) -> None:
        """Starts the program in a session of its own: Ctrl-C at our terminal is not meant for it."""
        assert not self.is_alive(), "it runs already"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._child = subprocess.Popen(
                command, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.identity = identity_of(self._child.pid) or ProcessIdentity(self._child.pid, "ended at once")

    def started_elsewhere(self, identity: ProcessIdentity) -> None:
        """Another call has started it again, after it had ended."""
        if identity != self.identity and not self.is_alive():
            self.identity, self._child = identity, None

    def is_alive(self) -> bool:
        if self._child is not None:
            return self._child.poll() is None
        return self.identity is not None and is_alive(self.identity)

    def how_it_ended(self) -> str:
        code = None if self._child is None else self._child.poll()
        if code is None:
            return "ended"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def output(self) -> str:
        """What it has written since we started it."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def end_of_log(self) -> str:
        try:
            return self.log.read_bytes()[-LOG_END_BYTES:].decode(errors="replace").strip()
        except OSError as error:
            return str(error)

    def last_words(self) -> str:
        """The last lines of its log, to be shown to somebody who asks why it ended."""
        lines = self.end_of_log().splitlines()[-LOG_LINES_SHOWN:]
        return "\n".join([f"the end of {self.log}:", *(f"    {line}" for line in lines or ["(it is empty)"])])

    def wait_until(self, is_ready: Callable[[], bool], timeout_s: float) -> None:
        """Until it serves; ProcessFailedError where it ends before, or takes too long."""
        deadline = time.monotonic() + timeout_s
        while not is_ready():
            if not self.is_alive():
                raise ProcessFailedError(f"{self.name} {self.how_it_ended()}", self.last_words())
            if time.monotonic() > deadline:
                raise ProcessFailedError(f"{self.name} does not serve after {timeout_s:g} s", self.last_words())
            time.sleep(LOOK_S)

    def send(self, number: signal.Signals) -> None:
        if self._child is not None:
            self._child.send_signal(number)  # a child of ours keeps its number until we have asked how it ended
        elif self.identity is not None:
            send_signal(self.identity, number)

    def end(self, number: signal.Signals, timeout_s: float) -> bool:
        """Has it end, and waits; False where it did not in time and was killed."""
        if not self.is_alive():
            self.forget()
            return True
        self.send(signal.SIGCONT)  # one that is paused would not get it
        self.send(number)
        deadline = time.monotonic() + timeout_s
        while self.is_alive() and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        is_in_time = not self.is_alive()
        if not is_in_time:
            self.send(signal.SIGKILL)
            while self.is_alive():
                time.sleep(LOOK_S)
        self.forget()
        return is_in_time

    def forget(self) -> None:
        """Of one that has ended: the next one is another process."""
        assert not self.is_alive(), "it still runs"
        self.identity = None
        self._child = None

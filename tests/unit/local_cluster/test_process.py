"""Programs beside us: known by number and start, ended only if they are ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.local_cluster.process import (
    ProcessFailedError,
    ServerProcess,
    identity_of,
    is_alive,
    send_signal,
)
from ottla.testing.waiting import wait_until

SERVES = "import time; print('ready', flush=True); time.sleep(600)"
IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SERVES


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess("the server", tmp_path / "deep" / "server.log")
    yield process
    process.end(signal.SIGKILL, 60)


def launch(server: ServerProcess, program: str = SERVES) -> None:
    server.launch([sys.executable, "-c", program])


def serves(server: ServerProcess) -> bool:
    return "ready\n" in server.output()


def test_a_process_is_told_from_another_one_with_its_number(server):
    launch(server)
    assert server.identity == identity_of(server.pid)
    earlier = replace(server.identity, started="earlier")
    assert not is_alive(earlier)
    assert not send_signal(earlier, signal.SIGKILL)
    assert server.is_alive()
    assert send_signal(server.identity, signal.SIGKILL)
    wait_until(lambda: not server.is_alive())


def test_the_remains_of_a_process_are_not_alive():
    child = subprocess.Popen([sys.executable, "-c", ""])
    identity = identity_of(child.pid)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has asked how
    assert identity_of(child.pid) is None
    assert identity is None or not is_alive(identity)
    child.wait()


def test_a_server_that_another_call_started_is_found_and_ended(server, tmp_path):
    launch(server)
    found = ServerProcess("the server", server.log, server.identity)
    assert found.is_alive()
    assert found.end(signal.SIGTERM, 60)
    assert not server.is_alive()
    assert server.how_it_ended() == "was ended by SIGTERM"


def test_waiting_ends_when_it_serves(server):
    launch(server)
    server.wait_until(lambda: serves(server), 60)
    assert server.end_of_log() == "ready"


def test_a_server_that_ends_while_it_starts_tells_its_last_words(server):
    launch(server, "raise SystemExit('the port is taken')")
    with pytest.raises(ProcessFailedError) as failed:
        server.wait_until(lambda: False, 60)
    assert failed.value.what == "the server ended with exit code 1"
    assert failed.value.last_words == f"the end of {server.log}:\n    the port is taken"


def test_a_server_that_takes_too_long_is_told(server):
    launch(server)
    with pytest.raises(ProcessFailedError, match="the server does not serve after 0 s"):
        server.wait_until(lambda: False, 0)


def test_what_a_server_says_is_what_this_start_says(server):
    launch(server)
    server.wait_until(lambda: serves(server), 60)
    server.end(signal.SIGTERM, 60)
    launch(server, "print('second')")
    wait_until(lambda: not server.is_alive())
    assert server.output() == "second\n"


def test_a_paused_server_is_ended_too(server):
    launch(server)
    server.send(signal.SIGSTOP)
    assert server.end(signal.SIGTERM, 60)
    assert server.identity is None


def test_a_server_that_does_not_listen_is_killed(server):
    launch(server, IGNORES_SIGTERM)
    server.wait_until(lambda: serves(server), 60)
    assert not server.end(signal.SIGTERM, 0)
    assert server.identity is None


def test_one_that_is_gone_needs_no_ending(server):
    assert server.end(signal.SIGTERM, 0)
    assert server.pid is None

"""`ottla up`, `status` and `down` with a single broker, which needs neither Java nor ZooKeeper."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.cli.command import ExitCode
from ottla.cli.main import main
from ottla.local_cluster.cluster import LocalCluster
from ottla.local_cluster.process import is_alive
from ottla.local_cluster.running import read_running
from ottla.testing.ports import free_port
from ottla.testing.waiting import WAIT_S, wait_until

INTERRUPT_AGAIN_S = 0.01

Tool = Callable[..., tuple[int, str, str]]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "cluster"
    if (cluster := LocalCluster.find(tmp_path / "cluster")) is not None:
        cluster.stop()


@pytest.fixture
def ottla(directory: Path) -> Tool:
    """Runs the command as a process of its own: it leaves others behind, and has its own way with signals."""

    def run(command: str, *arguments: object) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "ottla", command, "--data", str(directory), *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_S,
        )
        return done.returncode, done.stdout, done.stderr

    return run


def up(directory: Path, *arguments: object) -> subprocess.Popen[str]:
    """In the foreground of a process of its own; returns when it is up."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", "up", "--data", str(directory), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("up: "):
            return process
    raise AssertionError(process.communicate(timeout=WAIT_S)[1])


def broker_pid(directory: Path) -> int:
    cluster = LocalCluster.find(directory)
    assert cluster is not None
    assert cluster.brokers[0].process.is_alive()
    return cluster.brokers[0].process.pid or 0


def test_a_detached_cluster_is_found_again_and_comes_back_after_a_kill(ottla, directory):
    port = free_port()
    code, out, err = ottla("up", "--brokers", 1, "--port", port, "--detach", "--json")
    assert (code, err) == (ExitCode.OK, "")
    document = json.loads(out)
    assert document["bootstrap_servers"] == f"127.0.0.1:{port}"
    assert [each["name"] for each in document["servers"]] == ["broker 1"]
    assert main(["topics", "create", "kept", "-b", f"127.0.0.1:{port}"]) == ExitCode.OK

    code, out, err = ottla("status", "--json")
    status = json.loads(out)
    assert (code, status["controller"], status["is_healthy"], status["partition_count"]) == (0, 1, True, 1)
    assert status["servers"][0]["is_running"]
    code, out, err = ottla("status")
    assert re.search(rf"(?m)^  BROKER  ADDRESS .*\n  1 +127\.0\.0\.1:{port} .* controller +process \d+$", out), out
    assert "1 partition: all in sync" in out

    os.kill(broker_pid(directory), signal.SIGKILL)
    _wait_until_down(directory)
    code, out, err = ottla("status")
    assert code == ExitCode.UNREACHABLE
    assert "ENDED, was process" in out
    assert "start it with `ottla up --data" in err

    assert ottla("up", "--detach")[0] == ExitCode.OK  # the same port, the same data
    again = json.loads(ottla("status", "--json")[1])
    assert (again["cluster_id"], again["partition_count"]) == (status["cluster_id"], 1)
    assert again["brokers"][0]["port"] == port

    pid = broker_pid(directory)
    assert ottla("up", "--detach")[0] == ExitCode.OK  # nothing to do
    assert broker_pid(directory) == pid
    assert ottla("up", "--port", port + 1)[0] == ExitCode.USAGE
    code, out, err = ottla("down")
    assert (code, out, err) == (ExitCode.OK, "broker 1 stopped\n", "")
    assert ottla("down") == (ExitCode.OK, "nothing was running\n", "")
    assert ottla("status")[0] == ExitCode.UNREACHABLE


def _wait_until_down(directory: Path) -> None:
    cluster = LocalCluster.find(directory)
    assert cluster is not None
    cluster.brokers[0].process.end(signal.SIGKILL, WAIT_S)


def test_in_the_foreground_it_stays_until_it_is_told_to_stop(ottla, directory):
    process = up(directory, "--brokers", 1, "--port", free_port())
    try:
        assert ottla("up", "--detach")[0] == ExitCode.OK  # nothing to do
        for more in ((), ("--detach", "--set", "num.partitions=3")):
            code, _, err = ottla("up", *more)
            assert code == ExitCode.USAGE
            assert f"`ottla up` (process {process.pid}) looks after this cluster" in err
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (ExitCode.OK, "broker 1 stopped\n", "")


def test_down_ends_one_that_is_in_the_foreground(ottla, directory):
    process = up(directory, "--brokers", 1, "--port", free_port())
    try:
        assert ottla("down") == (ExitCode.OK, "stopped broker 1\n", "")
        out, err = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (ExitCode.OK, "broker 1 stopped\n", "")


def test_a_broker_that_dies_is_reported_with_the_end_of_its_log(directory):
    process = up(directory, "--brokers", 1, "--port", (port := free_port()))
    try:
        os.kill(broker_pid(directory), signal.SIGKILL)
        _, err = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
    assert process.returncode == ExitCode.UNEXPECTED
    assert "was ended by SIGKILL; the end of" in err
    assert f"    ready 127.0.0.1:{port}" in err
    assert "no broker is left" in err


def test_a_broker_that_cannot_start_is_told_with_its_own_words(ottla, directory):
    (directory / "broker-1").mkdir(parents=True)
    (directory / "broker-1" / "data").write_text("a file in the way")
    code, _, err = ottla("up", "--brokers", 1, "--port", free_port(), "--detach")
    assert code == ExitCode.UNEXPECTED
    what, *words = err.splitlines()
    assert re.fullmatch(
        r"ottla: broker 1 ended with exit code \d, and whatever this command had started has been stopped; "
        rf"the end of {directory}/broker-1/broker.log:",
        what,
    )
    assert words[-1].startswith("    ottla: ")
    assert json.loads((directory / "running.json").read_text())["processes"] == {}


def test_a_port_that_is_taken_is_told_before_anything_starts(ottla, directory):
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        code, _, err = ottla("up", "--brokers", 1, "--port", port, "--detach")
    assert code == ExitCode.USAGE
    in_use = f"another program uses port {port}, which broker 1 needs"
    assert err == f"ottla: {in_use}: end it, or choose other ports with --port\n"
    assert not (directory / "broker-1").exists()
    assert ottla("up", "--detach")[0] == ExitCode.OK  # it was remembered, and is free now


@pytest.mark.parametrize("wrong", [("--brokers", 0), ("--port", 0), ("--zookeepers", 0), ("--set", "listeners=x")])
def test_what_is_refused_leaves_no_directory_behind(ottla, directory, wrong):
    code, out, err = ottla("up", "--detach", *wrong)
    assert (code, out) == (ExitCode.USAGE, "")
    assert err.startswith("ottla: ")
    assert not directory.exists()


def test_a_directory_that_cannot_be_written_is_told(capsys):
    assert main(["up", "--data", "/proc/nowhere", "--brokers", "1"]) == ExitCode.USAGE
    hint = "give --data a directory in which files can be written"
    assert capsys.readouterr().err == f"ottla: /proc/nowhere: No such file or directory: {hint}\n"


@pytest.mark.parametrize("command", ["up", "status", "down"])
def test_a_variable_that_is_not_set_does_not_name_the_current_directory(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--data", ""])
    assert ended.value.code == ExitCode.USAGE
    assert "argument --data: must be the name of a directory, and not empty" in capsys.readouterr().err


def test_a_setting_that_no_broker_takes_is_not_stored(ottla, directory):
    code, _, err = ottla("up", "--brokers", 1, "--port", free_port(), "--set", "log.retention.ms=soon", "--detach")
    assert code == ExitCode.USAGE
    assert err.startswith("ottla: --set: log.retention.ms=soon: must be a whole number")
    assert not (directory / "cluster.json").exists()


def test_a_broker_that_runs_on_with_old_settings_is_told(ottla, directory):
    assert ottla("up", "--brokers", 1, "--port", free_port(), "--detach")[::2] == (ExitCode.OK, "")
    changed = ottla("up", "--set", "num.partitions=5", "--detach")
    again = ottla("up", "--detach")
    for code, _, err in (changed, again):
        assert code == ExitCode.OK
        assert "the settings of this cluster have changed since broker 1 started" in err
    ottla("down")
    assert ottla("up", "--detach")[::2] == (ExitCode.OK, "")


def test_nothing_is_left_running_by_two_interrupts_at_the_start(directory):
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", "up", "--data", directory, "--brokers", "1", "--port", str(free_port())],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: "broker 1" in read_running(directory).processes)
        started = read_running(directory).processes["broker 1"]
        process.send_signal(signal.SIGINT)
        while process.poll() is None:  # by somebody who has no patience
            process.send_signal(signal.SIGINT)
            time.sleep(INTERRUPT_AGAIN_S)
        process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
    assert not is_alive(started)
    assert read_running(directory).processes == {}


def test_without_java_it_says_what_is_missing(ottla, directory, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    code, _, err = ottla("up", "--brokers", 3)
    assert code == ExitCode.USAGE
    assert err == "ottla: ZooKeeper runs on Java, and there is no java on the path: install Java 17 or newer\n"
    assert not (directory / "cluster.json").exists()


@pytest.fixture
def a_java(tmp_path, monkeypatch):
    """Something that is found where Java is looked for: these tests end before it is run."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(java.parent))


@pytest.mark.usefixtures("a_java")
def test_without_pyspark_it_says_where_zookeeper_would_come_from(directory, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyspark", None)  # as if it were not installed
    assert main(["up", "--data", str(directory), "--brokers", "3"]) == ExitCode.USAGE
    hint = "ZooKeeper comes with pyspark, which is not installed: pip install 'ottla[cluster,spark]'"
    assert capsys.readouterr().err == f"ottla: {hint}\n"
    assert not (directory / "cluster.json").exists()


@pytest.mark.usefixtures("a_java")
def test_without_zookeeper_in_pyspark_it_says_where_it_has_looked(tmp_path, directory, monkeypatch, capsys):
    package = tmp_path / "packages" / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.syspath_prepend(package.parent)
    assert main(["up", "--data", str(directory), "--brokers", "3"]) == ExitCode.USAGE
    hint = f"there is no ZooKeeper in {package / 'jars'}: install pyspark from its wheel"
    assert capsys.readouterr().err == f"ottla: {hint}\n"
    assert not (directory / "cluster.json").exists()


@pytest.mark.parametrize("command", ["down", "status"])
def test_a_directory_without_a_cluster_is_told(ottla, command):
    code, _, err = ottla(command)
    assert code == ExitCode.NOT_FOUND
    assert "give its directory with --data" in err

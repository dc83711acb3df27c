"""`ottla serve`: the ready line, what it refuses to start with, and how it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.cli.command import ExitCode
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient, wait_until_read
from ottla.testing.raw_requests import create_topic, fetch, metadata, one_batch, produce
from ottla.testing.waiting import WAIT_S

Serve = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    started: list[subprocess.Popen[str]] = []

    def serve(*arguments: str, is_in_background: bool = False) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "ottla", "serve", *arguments]
        if is_in_background:  # as a script starts it with `&`
            command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, start_new_session=True
        )
        started.append(process)
        return process

    yield serve
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ready(process: subprocess.Popen[str]) -> str:
    """The address of the ready line."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("ready 127.0.0.1:"), line
    return line.split()[1]


def failure(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and the one line that says why."""
    out, err = process.communicate(timeout=WAIT_S)
    assert out == "", "nothing but the ready line goes to stdout"
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    return process.returncode, err


def test_ready_means_served_and_sigterm_ends_it_clean(serve: Serve, tmp_path: Path) -> None:
    process = serve("--listen", "127.0.0.1:0", "--data", "data")
    address = ready(process)
    with RawClient(address) as client:
        client.ask(create_topic("t"), 7)
        client.ask(produce("t", one_batch(b"kept")), 9)
        client.send(fetch("t", 1, max_wait_ms=2 * WAIT_S * 1000), 11)
        wait_until_read(address)
        process.send_signal(signal.SIGTERM)
        client.receive()
        assert process.wait(WAIT_S) == 0, "it did not wait for the end of the poll"
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    out, err = process.communicate()
    assert (out, err) == ("", "")


def test_ctrl_c_ends_it_clean(serve: Serve, tmp_path: Path) -> None:
    process = serve("--listen", "127.0.0.1:0", "--data", "data")
    ready(process)
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_S) == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_ctrl_c_does_not_concern_a_broker_in_the_background(serve: Serve) -> None:
    process = serve("--listen", "127.0.0.1:0", "--data", "data", is_in_background=True)
    with RawClient(ready(process)) as client:
        client.ask(create_topic("t"), 7)
        process.send_signal(signal.SIGINT)
        client.ask(fetch("t", max_wait_ms=200), 11)  # a broker that stops answers, and closes the connection
        assert client.ask(metadata(), 12).brokers
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_S) == 0


def test_a_second_signal_while_it_stops_does_no_harm(serve: Serve) -> None:
    process = serve("--listen", "127.0.0.1:0", "--data", "data")
    ready(process)
    for _ in range(3):
        process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_S) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "num.partitions=many"], "num.partitions"),
        (["--set", "num.partitons=3"], "num.partitons"),
        (["--set", "nonsense"], "KEY=VALUE"),
        (["--listen", "nowhere"], "HOST:PORT"),
        (["--set", "listeners=PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.2:0"], "same name"),
        (["--listen", "203.0.113.7:9092"], "cannot listen"),
        (["--set", "log.retention.ms=-7"], "log.retention.ms"),
    ],
)
def test_a_bad_setting_is_one_clear_line_and_exit_code_2(serve: Serve, arguments: list[str], words: str) -> None:
    code, line = failure(serve("--data", "data", *arguments))
    assert code == 2
    assert words in line


def test_a_settings_file_that_is_missing_or_no_text(serve: Serve, tmp_path: Path) -> None:
    code, line = failure(serve("missing.properties"))
    assert (code, "missing.properties" in line) == (3, True)
    (tmp_path / "binary.properties").write_bytes(b"\xff\xfe\x00num.partitions=1")
    code, line = failure(serve("binary.properties"))
    assert (code, "binary.properties" in line) == (2, True)


def test_a_port_that_is_taken(serve: Serve) -> None:
    with Broker() as running:
        code, line = failure(serve("--listen", running.bootstrap_servers, "--data", "data"))
    assert code == 2
    assert running.bootstrap_servers in line


def test_a_directory_that_another_broker_uses(serve: Serve, tmp_path: Path) -> None:
    with Broker(directory=tmp_path / "data"):
        code, line = failure(serve("--listen", "127.0.0.1:0", "--data", "data"))
    assert code == 2
    assert "held by another process" in line


def test_a_directory_of_another_broker(serve: Serve, tmp_path: Path) -> None:
    with Broker({"broker.id": "5"}, directory=tmp_path / "data"):
        pass
    code, line = failure(serve("--listen", "127.0.0.1:0", "--data", "data", "--set", "broker.id=6"))
    assert code == 2
    assert "belongs to broker 5" in line


def test_a_data_directory_that_cannot_be(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    process = serve("--listen", "127.0.0.1:0", "--data", "file/data")
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == ExitCode.USAGE
    assert err.startswith("ottla: log.dirs: file")


def test_a_listener_may_have_two_addresses(serve: Serve) -> None:
    with Broker() as running:
        port = running.port
    process = serve("--data", "data", "--set", f"listeners=PLAINTEXT://127.0.0.1:{port},PLAINTEXT://[::1]:{port}")
    assert ready(process) == f"127.0.0.1:{port}"
    for address in (f"127.0.0.1:{port}", f"::1:{port}"):
        with RawClient(address) as client:
            assert client.ask(metadata(), 12).brokers
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_S) == 0


def test_a_file_of_kafka_is_taken_and_what_is_not_honoured_is_named_once(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(
        "node.id=7\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs=data\nnum.partitions=4\n"
        "process.roles=broker,controller\nnum.io.threads=8\nlog.retention.hours=1\n"
    )
    process = serve("server.properties", "--set", "num.partitions=5")
    with RawClient(ready(process)) as client:
        client.ask(metadata("made"), 12)
        made = client.ask(metadata("made"), 12)
        assert (made.controller_id, len(made.topics[0].partitions)) == (7, 5)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=WAIT_S)
    warnings = err.splitlines()
    assert all(line.startswith("ottla: warning: ") for line in warnings)
    for name in ("process.roles",):
        assert sum(name in line for line in warnings) == 1, err
    assert "num.partitions" not in err


def test_a_zookeeper_that_cannot_be_reached_is_told_in_a_sentence(serve: Serve) -> None:
    settings = ("--set", "zookeeper.connect=127.0.0.1:1", "--set", "zookeeper.connection.timeout.ms=100")
    process = serve("--listen", "127.0.0.1:0", "--data", "data", "--log-level", "ERROR", *settings)
    code, words = failure(process)
    assert code == ExitCode.UNREACHABLE
    assert words.startswith("ottla: 127.0.0.1:1: no session with this ZooKeeper within 0.1 s")


def test_sigterm_ends_a_broker_that_waits_for_zookeeper_to_start(serve: Serve) -> None:
    settings = ("--set", "zookeeper.connect=127.0.0.1:1", "--set", "zookeeper.connection.timeout.ms=3600000")
    process = serve("--listen", "127.0.0.1:0", "--data", "data", *settings)
    assert process.stderr is not None
    assert "Connection refused" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in err
    assert "Task" not in err


def test_the_environment_sets_the_level_of_the_log_and_the_log_says_why_it_stops(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_LOG_LEVEL", "INFO")
    process = serve("--listen", "127.0.0.1:0")
    ready(process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert " INFO ottla.broker.life_log: Ottla " in err
    assert err.index("ottla.cli.serve: SIGTERM was received") < err.index("the broker has stopped in")
    monkeypatch.setenv("OTTLA_LOG_LEVEL", "LOUD")
    assert failure(serve())[0] == ExitCode.USAGE

"""The guide to testing with Ottla: every block of code in it runs."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from ottla.errors import OttlaError
from ottla.testing.broker import TEST_SETTINGS, Broker

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "testing.md").read_text()
PLUGIN = "ottla.testing.pytest_plugin"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


def test_the_guide_has_examples() -> None:
    assert BLOCKS


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[-1].strip()[:40])
def test_an_example_of_the_guide_runs(block: str, tmp_path: Path) -> None:
    if "def test_" in block:
        run_pytest(tmp_path, block, passed=1)
    else:
        exec(compile(block, "testing.md", "exec"), {"__name__": "example"})


def run_pytest(directory: Path, text: str, *, passed: int, failed: int = 0) -> str:
    """Runs a project of one test file, as somebody who installed Ottla has it."""
    (directory / "test_project.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(directory)]
    if not any(one.value == PLUGIN for one in entry_points(group="pytest11")):
        command += ["-p", PLUGIN]  # an installation from before the plugin
    done = subprocess.run([*command, str(directory)], check=False, capture_output=True, text=True)
    assert ("failed", failed) in counts(done.stdout) or not failed, done.stdout + done.stderr
    assert ("passed", passed) in counts(done.stdout) or not passed, done.stdout + done.stderr
    return done.stdout


def counts(output: str) -> list[tuple[str, int]]:
    """How many tests ended how, by pytest's last line."""
    return [(how, int(count)) for count, how in re.findall(r"(\d+) (passed|failed)", output.splitlines()[-1])]


def test_the_guide_names_every_argument_of_the_broker() -> None:
    for name in list(inspect.signature(Broker.__init__).parameters)[1:]:
        assert f"| `{name}` |" in GUIDE


def test_the_guide_names_every_default_that_is_not_kafkas() -> None:
    for name, value in TEST_SETTINGS.items():
        assert f"| `{name}` | `{value}` |" in GUIDE


def test_a_broker_leaves_nothing_behind() -> None:
    for in_process in (True, False):
        with Broker(in_process=in_process) as broker:
            directory = broker.directory
            assert os.path.isdir(directory)
        assert not os.path.exists(directory)


def test_the_fixtures_are_there_for_every_project(tmp_path: Path) -> None:
    assert f'ottla = "{PLUGIN}"' in (Path(__file__).parents[2] / "pyproject.toml").read_text()
    run_pytest(
        tmp_path,
        """
def test_a_broker_of_its_own(ottla_broker, ottla_session_broker):
    assert ottla_broker.port != ottla_session_broker.port

def test_one_for_all(ottla_session_broker):
    ports.append(ottla_session_broker.port)

def test_one_for_all_again(ottla_session_broker):
    assert ports == [ottla_session_broker.port]

ports = []
""",
        passed=3,
    )


def test_settings_may_be_numbers_and_booleans() -> None:
    with Broker(
        {"num.partitions": 3, "auto.create.topics.enable": False, "log.cleaner.io.buffer.load.factor": 0.5}
    ) as broker:
        config = broker.running.config
        assert (config.num_partitions, config.auto_create_topics_enable) == (3, False)
    with pytest.raises(TypeError, match=r"setting num\.partitions: .* is needed, not None"):
        Broker({"num.partitions": None})  # type: ignore[dict-item]


@pytest.mark.parametrize("in_process", [True, False])
def test_a_broker_that_never_started_leaves_nothing_behind(
    in_process: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    Broker(in_process=in_process)
    with pytest.raises(OttlaError):
        Broker({"num.partitions": -3}, in_process=in_process).start()
    assert not list(tmp_path.iterdir())


def test_what_a_broker_in_its_own_process_logged_is_shown_when_a_test_fails(tmp_path: Path) -> None:
    text = """
import socket

import pytest
from ottla.testing.broker import Broker

def disturb(broker):
    with socket.create_connection((broker.host, broker.port)) as connection:
        connection.sendall(bytes([127, 255, 255, 255]))
        assert connection.recv(1) == b"never"

@pytest.fixture
def broker():
    with Broker(in_process=False) as broker:
        yield broker

def test_of_a_fixture(broker):
    disturb(broker)

def test_of_its_own():
    with Broker(in_process=False) as broker:
        disturb(broker)
"""
    output = run_pytest(tmp_path, text, passed=0, failed=2)
    output = output.partition("short test summary")[0]  # which repeats it where CI is set
    assert output.count("log of the broker at 127.0.0.1:") == 2
    assert output.count("2147483647") == 2

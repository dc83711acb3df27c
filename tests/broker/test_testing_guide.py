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

from ottla.testing.broker import Broker

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


def run_pytest(directory: Path, text: str, *, passed: int) -> None:
    """Runs a project of one test file, as somebody who installed Ottla has it."""
    (directory / "test_project.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(directory)]
    if not any(one.value == PLUGIN for one in entry_points(group="pytest11")):
        command += ["-p", PLUGIN]  # an installation from before the plugin
    done = subprocess.run([*command, str(directory)], check=False, capture_output=True, text=True)
    assert f"{passed} passed" in done.stdout, done.stdout + done.stderr


def test_the_guide_names_every_argument_of_the_broker() -> None:
    for name in list(inspect.signature(Broker.__init__).parameters)[1:]:
        assert f"| `{name}` |" in GUIDE


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

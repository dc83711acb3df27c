"""`make demo` and `make demo-cluster` run, count right and end by themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LOG_CHARACTERS = 10_000


def end_of_log(log: Path) -> str:
    """What Spark and the pipeline said last: an error of a query is there, and gone with the directory."""
    return f"\n{log.name}:\n{log.read_text()[-LOG_CHARACTERS:]}" if log.exists() else ""


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("demo", ["demo.py", "demo_cluster.py"])
def test_the_demo_accounts_for_every_event(tmp_path: Path, demo: str) -> None:
    command = [sys.executable, str(EXAMPLES / demo), "4"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr + end_of_log(tmp_path / "out" / "demo" / "spark.log")
    assert "all accounted for" in done.stdout
    assert (tmp_path / "out" / "demo" / "revenue.svg").read_text().startswith("<svg")

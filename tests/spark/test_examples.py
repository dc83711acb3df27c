"""`make demo` and `make demo-cluster` run, count right and end by themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("demo", ["demo.py", "demo_cluster.py"])
def test_the_demo_accounts_for_every_event(tmp_path: Path, demo: str) -> None:
    command = [sys.executable, str(EXAMPLES / demo), "4"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all accounted for" in done.stdout
    assert (tmp_path / "out" / "demo" / "revenue.svg").read_text().startswith("<svg")

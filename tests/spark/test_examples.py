"""`make demo` runs, counts right and ends by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.mark.usefixtures("java")
def test_the_demo_accounts_for_every_event(tmp_path: Path) -> None:
    command = [sys.executable, DEMO, "4"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all accounted for" in done.stdout
    assert (tmp_path / "out" / "demo" / "revenue.svg").read_text().startswith("<svg")

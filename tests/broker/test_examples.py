"""The examples that need no Spark run, and end as they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(("example", "arguments"), [("broker_tour.py", ["6000"]), ("log_tour.py", ["60000"])])
def test_an_example_runs(example: str, arguments: list[str], tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / example), *arguments]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Done" in done.stdout or "done" in done.stdout

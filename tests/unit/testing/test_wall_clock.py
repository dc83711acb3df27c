"""A process whose wall clock a test moves."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from ottla.testing.wall_clock import WallClocks

SHOW = "import sys, time\nfor _ in sys.stdin: print(time.time(), flush=True)"
HOUR_S = 3600.0


def test_the_clock_of_a_process_jumps_while_it_runs(tmp_path: Path) -> None:
    clocks = WallClocks(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", SHOW],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": clocks.python_path},
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        seen = []
        for ahead_s in (None, 24 * HOUR_S, -24 * HOUR_S, 0.0):
            if ahead_s is not None:
                clocks.set_ahead(process.pid, ahead_s)
            process.stdin.write("\n")
            process.stdin.flush()
            seen.append(round((float(process.stdout.readline()) - time.time()) / HOUR_S))
        process.stdin.close()
    assert seen == [0, 24, -24, 0]

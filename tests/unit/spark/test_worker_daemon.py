"""Python workers of Spark, from the daemon that starts them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

# A worker whose connection Spark has closed. Spark sets the variable: what cannot be sent ends the worker.
PROGRAM = """
import gc, socket
from ottla.spark import worker_daemon
here, there = socket.socketpair()
there.close()
print(worker_daemon.{function}(here, True), gc.get_freeze_count() > 0)
"""


@pytest.mark.parametrize(("function", "is_frozen"), [("run_first_task", True), ("run_task", False)])
def test_a_worker_that_spark_lets_go_ends_without_a_stack_trace(function: str, is_frozen: bool) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(function=function)],
        env={**os.environ, "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "Traceback" not in ended.stderr
    assert ended.stdout.split() == ["1", str(is_frozen)]

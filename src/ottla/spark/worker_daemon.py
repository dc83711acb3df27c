"""Spark's daemon of Python workers, whose workers freeze what their first task loaded, and end without a stack trace.

Spark starts it as `python -m ottla.spark.worker_daemon` when `spark.python.daemon.module` says so. The daemon forks a
worker per task at a time and has each collect its garbage after every task: with pyspark, pyarrow and the like loaded,
that is 20 ms of walking over objects that stay for good. Frozen objects are not walked over.

A worker that Spark lets go, because its query was stopped or it was idle for a minute, finds its connection closed when
it says farewell. Spark's own daemon prints a stack trace then, into the middle of whatever the user looks at.

It is imported before the fork, so it must start no thread: nothing heavy is imported here.
"""

from __future__ import annotations

import gc
import socket
from typing import Final

from pyspark import daemon

run_sparks_task = daemon.worker
LET_GO: Final = 1  # as the exit code of a task: there will be no other


def run_task(sock: socket.socket, authenticated: bool) -> int:
    try:
        return run_sparks_task(sock, authenticated)
    except BrokenPipeError:
        return LET_GO


def run_first_task(sock: socket.socket, authenticated: bool) -> int:
    """The first task of a worker. What is alive after it stays out of later collections."""
    daemon.worker = run_task
    code = run_task(sock, authenticated)
    gc.collect()
    gc.freeze()
    return code


if __name__ == "__main__":
    daemon.worker = run_first_task
    daemon.manager()

"""A client that works all the while, in a process of its own: how fast it is shows how a broker copes with the others.

    with Neighbour(broker.bootstrap_servers, broker.pid) as neighbour:
        something_nasty()
    assert neighbour.percentile(99) < 0.1

It writes and reads its own topic, a record at a time, and minds how long the broker's loop computed between question
and answer. That is what others make it wait for; how long the machine lets the broker wait for a core is not.

Without the broker's process, it asks for ApiVersions instead, which costs a broker nothing, and minds the
time on the wall: for benchmarks on a quiet machine, and for brokers that are none of ours.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from types import TracebackType
from typing import Self

from ottla.errors import OttlaError
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, fetch, one_batch, produce

PAUSE_S = 0.002
TOPIC = "neighbour"
ASK_TIMEOUT_S = 300.0  # a long wait is what it is there to see


class NeighbourError(OttlaError):
    """The neighbour was harmed: it got an error, or its connection was closed."""


class Neighbour:
    """Works from the beginning of a `with` to its end; then its times are known."""

    def __init__(self, bootstrap_servers: str, pid: int | None) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._pid = pid
        self._process: subprocess.Popen[str] | None = None
        self.times: list[float] = []  # of the rounds, in seconds, sorted

    def percentile(self, percent: float) -> float:
        return self.times[min(len(self.times) - 1, int(len(self.times) * percent / 100))]

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "ottla.testing.neighbour", self._bootstrap_servers]
        command += [] if self._pid is None else [str(self._pid)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "at work\n":
            self._process.kill()
            raise NeighbourError("the neighbour could not begin")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process is not None
        output, _ = self._process.communicate("stop\n")
        if self._process.returncode:
            raise NeighbourError("the neighbour was harmed; its traceback is on stderr")
        self.times = sorted(json.loads(output))


def computed_s(pid: int) -> float:
    """How long the first thread of a process has computed: a broker's loop. Linux counts it in nanoseconds."""
    with open(f"/proc/{pid}/task/{pid}/schedstat") as file:
        return int(file.read().split()[0]) / 1e9


def work(bootstrap_servers: str, pid: int) -> list[float]:
    """Rounds of one write and one read, until somebody writes to standard input; at least one."""
    times: list[float] = []
    with RawClient(bootstrap_servers) as client:
        client.ask(create_topic(TOPIC), 7)
        print("at work", flush=True)
        while not times or not select.select([sys.stdin], [], [], PAUSE_S)[0]:
            started = computed_s(pid)
            written = client.ask(produce(TOPIC, one_batch(b"x" * 100)), 9).responses[0].partition_responses[0]
            read = client.ask(fetch(TOPIC, written.base_offset), 11).responses[0].partitions[0]
            times.append(computed_s(pid) - started)
            if written.error_code or read.error_code or not read.records:
                raise NeighbourError(f"{written} {read}")
    return times


def ask(bootstrap_servers: str) -> list[float]:
    """Rounds of one ApiVersions, until somebody writes to standard input."""
    times = []
    request = ApiVersionsRequest(client_software_name="neighbour", client_software_version="1")
    with RawClient(bootstrap_servers, timeout_s=ASK_TIMEOUT_S) as client:
        client.ask(request, 3)
        print("at work", flush=True)
        while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
            started = time.perf_counter()
            client.ask(request, 3)
            times.append(time.perf_counter() - started)
    return times


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(json.dumps(ask(sys.argv[1])))
    else:
        print(json.dumps(work(sys.argv[1], int(sys.argv[2]))))

"""The main job on a cluster: three brokers, one of which is killed in the middle of the day, and all is counted.

    python examples/demo_cluster.py [MINUTES]

It is examples/demo.py with another place for the events: `ottla up --brokers 3`. In the middle of the day the
controller of the cluster is killed with SIGKILL, later it is brought back by `ottla up`. Neither
the producer nor Spark knows of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import demo
from steps import check, step

from ottla.testing.ports import free_range

BROKERS = 3
COMMAND_TIMEOUT_S = 300


def ottla(*arguments: str) -> dict:
    """What a command says with --json."""
    command = [sys.executable, "-m", "ottla", *arguments, "--json"]
    return json.loads(subprocess.run(command, capture_output=True, check=True, timeout=COMMAND_TIMEOUT_S).stdout)


class Cluster:
    """The cluster in a directory, as `ottla up`, `status` and `down` see it."""

    def __init__(self, directory: str) -> None:
        self._data = ("--data", directory)
        port = free_range(BROKERS)
        up = ottla("up", *self._data, "--brokers", str(BROKERS), "--port", str(port), "--detach")
        self.servers: str = up["bootstrap_servers"]

    def status(self) -> dict:
        return ottla("status", *self._data)

    def kill_the_controller(self) -> str:
        status = self.status()
        victim = next(each for each in status["servers"] if each["name"] == f"broker {status['controller']}")
        leaders = next(each["leaders"] for each in status["brokers"] if each["broker"] == status["controller"])
        os.kill(victim["pid"], signal.SIGKILL)
        return f"{victim['name']} is killed: the controller, and the leader of {leaders} partitions"

    def bring_it_back(self) -> str:
        lost = {each["topic"] for each in self.status()["under_replicated"]}
        ottla("up", *self._data, "--detach")
        return f"it is started again; {len(lost)} topics were under-replicated, and none was lost"

    def wait_until_healthy(self) -> str:
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        while not (status := self.status())["is_healthy"]:
            check(time.monotonic() < deadline, "all replicas are in sync again")
            time.sleep(0.5)
        return f"{status['partition_count']} partitions, all in sync on {len(status['brokers'])} brokers"

    def down(self) -> None:
        ottla("down", *self._data)


def main() -> None:
    minutes = int(sys.argv[1]) if len(sys.argv) > 1 else demo.MINUTES
    print(f"Ottla: {minutes} minutes of a shop, on {BROKERS} brokers, one of which is killed\n")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ottla-demo-") as home:
        with step("start a cluster") as notes:
            cluster = Cluster(os.path.join(home, "cluster"))
            notes.append(cluster.servers)
        try:
            happenings: dict[float, demo.Happening] = {
                0.4: lambda _: cluster.kill_the_controller(),
                0.8: lambda _: cluster.bring_it_back(),
            }
            demo.run(demo.Day(minutes, cluster.servers, BROKERS, happenings), home)
            with step("wait for the broker that was killed") as notes:
                notes.append(cluster.wait_until_healthy())
        finally:
            cluster.down()
    print(f"\nDone in {time.perf_counter() - started:.1f} s.")


if __name__ == "__main__":
    main()

"""A stream from a topic into a table and into topics, and a part of it killed in the middle.

Afterwards every input is in the table exactly once, in one topic at least once, and in the other exactly once.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.testing.broker import Broker
from ottla.testing.spark_cluster import SparkCluster

pytestmark = pytest.mark.usefixtures("java")

DRIVER = Path(__file__).parent / "drivers" / "copy_topic.py"
FIRST, MORE = 6000, 1000
# Of 30 batches of 200: enough to be in the middle.
BATCHES_BEFORE = 3
WAIT_S = 240.0
# Spark gives each Python process ten seconds to start, and has no setting for it.
SPARK_DID_NOT_WAIT = "Timed out while waiting for the Python worker to connect back"
DRAIN_DRIVERS_MAX = 5
DRAIN_S = 900.0
OUTPUTS = ("table", "topic", "exact")
# With state: a join, an aggregation and, where pandas is, which Spark wants for it, a processor of one's own.
STATEFUL = ("joined", "counted", *(("stateful",) if find_spec("pandas") is not None else ()))


class Copy:
    """Copies `source` into `home/table` and into `target`, by drivers that come and go."""

    def __init__(
        self,
        broker: Broker,
        home: Path,
        master: str = "local[2]",
        outputs: Sequence[str] = OUTPUTS,
        **config: str,
    ) -> None:
        self.broker = broker
        self.home = home
        self.outputs = outputs
        self.source, self.target = "source", "target"
        self._master = master
        self._config = config
        self._console = home / "driver.log"

    @contextmanager
    def driver(
        self,
        *,
        drain: bool = False,
        in_turn: bool = False,
        may_fail: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> Iterator[subprocess.Popen[bytes]]:
        job = {
            "master": self._master,
            "servers": self.broker.bootstrap_servers,
            "source": self.source,
            "target": self.target,
            "home": str(self.home),
            "drain": drain,
            "in_turn": in_turn,
            "outputs": self.outputs,
            "config": self._config,
        }
        with self._console.open("ab") as console:
            process = subprocess.Popen(
                [sys.executable, DRIVER, json.dumps(job)],
                stdin=subprocess.PIPE,
                stdout=console,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, **(environment or {})},
                start_new_session=True,  # Java and Python end together when the group is killed
            )
        assert process.stdin is not None
        try:
            yield process
            process.stdin.close()
            assert process.wait(WAIT_S) in (0, -signal.SIGKILL) or may_fail, self.console()
        finally:
            kill(process)
            process.stdin.close()

    def console(self) -> str:
        return self._console.read_text(errors="replace")[-4000:]

    def batch_count(self, output: str) -> int:
        """How many batches of an output are committed."""
        return len(list((self.home / f"{output}-checkpoint" / "commits").glob("[0-9]*")))

    def committed(self, output: str) -> int:
        """How many records of the source an output has committed."""
        batches = self.batch_count(output)
        if batches == 0:
            return 0
        planned = self.home / f"{output}-checkpoint" / "offsets" / str(batches - 1)
        return sum(json.loads(planned.read_text().splitlines()[-1])[self.source].values())

    def wait_until(self, condition: Callable[[], bool], driver: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert driver.poll() is None, f"the driver ended: {self.console()}"
            done = {output: self.batch_count(output) for output in self.outputs}
            assert time.monotonic() < deadline, f"after {WAIT_S:.0f} s only {done} batches: {self.console()}"
            time.sleep(0.05)

    def wait_for_the_middle(self, driver: subprocess.Popen[bytes]) -> None:
        self.wait_until(lambda: all(self.batch_count(output) >= BATCHES_BEFORE for output in self.outputs), driver)
        # The slowest of them has just begun; the others may be further.
        assert any(self.committed(output) < FIRST for output in self.outputs), "it was over before anything was killed"

    def wait_for_the_end(self, driver: subprocess.Popen[bytes]) -> None:
        self.wait_until(lambda: all(self.committed(output) == FIRST + MORE for output in self.outputs), driver)


def kill(process: subprocess.Popen[bytes]) -> None:
    """The driver, its Java and whatever they have started in their group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


@pytest.fixture
def own_broker(create_topic: Callable[..., None], send: Callable[..., None]) -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": "true"}, in_process=False) as broker:
        for topic in ("source", "target", "target-exact"):
            create_topic(broker.bootstrap_servers, topic)
        send(broker.bootstrap_servers, "source", range(FIRST))
        yield broker


@pytest.fixture
def verify(spark: SparkSession, receive: Callable[[str, str], list[tuple[bytes, bytes]]]) -> Callable[[Copy], None]:
    def check(copy: Copy) -> None:
        everything = {b"%d" % number: b"value %d" % number for number in range(FIRST + MORE)}
        reader = spark.read.format("ottla").option("kafka.bootstrap.servers", copy.broker.bootstrap_servers)
        committed = reader.options(**{"subscribe": f"{copy.target}-exact", "kafka.isolation.level": "read_committed"})
        for output in ("exact", *(name for name in STATEFUL if name in copy.outputs)):
            committed = committed.option("subscribe", f"{copy.target}-{output}")
            exact = [(bytes(row.key), bytes(row.value)) for row in committed.load().collect()]
            assert len(exact) == len(everything), f"{output}: exactly once"
            assert dict(exact) == everything
        if copy.outputs == ("exact",):
            return
        table = [(bytes(row.key), bytes(row.value)) for row in spark.read.parquet(str(copy.home / "table")).collect()]
        assert len(table) == len(everything), "exactly once"
        assert dict(table) == everything
        topic = receive(copy.broker.bootstrap_servers, copy.target)
        assert len(topic) >= len(everything)
        assert dict(topic) == everything

    return check


def test_a_killed_driver_is_followed_by_another_that_goes_on(
    own_broker: Broker, tmp_path: Path, send: Callable[..., None], verify: Callable[[Copy], None]
) -> None:
    copy = Copy(own_broker, tmp_path)
    with copy.driver() as driver:
        copy.wait_for_the_middle(driver)
        kill(driver)
    before = {output: copy.committed(output) for output in OUTPUTS}
    send(own_broker.bootstrap_servers, copy.source, range(FIRST, FIRST + MORE))
    drain(copy)
    assert all(copy.committed(output) == FIRST + MORE > before[output] for output in OUTPUTS)
    verify(copy)


def test_a_driver_that_is_killed_between_a_decision_and_its_end_is_followed_by_one_that_carries_it_out(
    own_broker: Broker, tmp_path: Path, send: Callable[..., None], verify: Callable[[Copy], None]
) -> None:
    copy = Copy(own_broker, tmp_path, outputs=("exact",))
    decided = tmp_path / "decided"
    hold = {"OTTLA_TEST_HOLD": str(decided), "OTTLA_TEST_HOLD_BATCH": "3"}
    path = f"{DRIVER.parent / 'hold'}:{os.environ.get('PYTHONPATH', '')}"
    with copy.driver(environment={**hold, "PYTHONPATH": path}) as driver:
        copy.wait_until(decided.exists, driver)
        kill(driver)
    assert copy.batch_count("exact") == 3
    send(own_broker.bootstrap_servers, copy.source, range(FIRST, FIRST + MORE))
    drain(copy)
    verify(copy)


def test_a_stream_outlives_a_killed_broker(
    own_broker: Broker, tmp_path: Path, send: Callable[..., None], verify: Callable[[Copy], None]
) -> None:
    copy = Copy(own_broker, tmp_path)
    with copy.driver() as driver:
        copy.wait_for_the_middle(driver)
        own_broker.kill()
        own_broker.restart()
        send(own_broker.bootstrap_servers, copy.source, range(FIRST, FIRST + MORE))
        copy.wait_for_the_end(driver)
    verify(copy)


@pytest.fixture(scope="module")
def cluster(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


EXECUTORS = {"spark.executor.memory": "512m", "spark.executor.cores": "1"}


def test_a_stream_runs_on_the_workers_of_a_cluster(
    cluster: SparkCluster,
    own_broker: Broker,
    tmp_path: Path,
    send: Callable[..., None],
    verify: Callable[[Copy], None],
) -> None:
    send(own_broker.bootstrap_servers, "source", range(FIRST, FIRST + MORE))
    copy = Copy(own_broker, tmp_path, cluster.url, **EXECUTORS)

    def look(driver: subprocess.Popen[bytes]) -> None:
        """It has both workers, unless it has failed before."""
        copy.wait_until(lambda: len(cluster.executor_pids()) == 2 or bool(driver.poll()), driver)

    drain(copy, look)
    verify(copy)


def test_a_stream_outlives_a_killed_executor(
    cluster: SparkCluster,
    own_broker: Broker,
    tmp_path: Path,
    send: Callable[..., None],
    verify: Callable[[Copy], None],
) -> None:
    copy = Copy(own_broker, tmp_path, cluster.url, **EXECUTORS)
    with copy.driver() as driver:
        copy.wait_for_the_middle(driver)
        killed = cluster.executor_pids()[0]
        os.kill(killed, signal.SIGKILL)
        copy.wait_until(lambda: killed not in cluster.executor_pids(), driver)
        send(own_broker.bootstrap_servers, copy.source, range(FIRST, FIRST + MORE))
        copy.wait_for_the_end(driver)
    verify(copy)


def python_workers(driver: subprocess.Popen[bytes]) -> list[int]:
    """The Python processes of a driver that run tasks, commit batches and look for records."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_python = b"daemon" in (directory / "cmdline").read_bytes()
            if is_python and os.getsid(int(directory.name)) == driver.pid:
                found.append(int(directory.name))
    return sorted(found)


@pytest.mark.long
def test_whatever_is_killed_again_and_again_each_row_is_there_once(
    own_broker: Broker, tmp_path: Path, send: Callable[..., None], verify: Callable[[Copy], None]
) -> None:
    """At random points, which is why this one sleeps: drivers, Python workers and the broker."""
    seed = int(os.environ.get("OTTLA_SPARK_SEED", "0"))
    rng = random.Random(seed)
    copy = Copy(own_broker, tmp_path, "local[2,4]", (*OUTPUTS, *STATEFUL))
    send(own_broker.bootstrap_servers, copy.source, range(FIRST, FIRST + MORE))
    end = time.monotonic() + float(os.environ.get("OTTLA_CHAOS_SECONDS", "300"))
    while time.monotonic() < end:
        with copy.driver(may_fail=True) as driver:
            for _ in range(rng.randint(1, 4)):
                time.sleep(rng.uniform(1, 15))
                match rng.choice(["broker", "worker", "driver"]):
                    case "broker":
                        own_broker.kill()
                        own_broker.restart()
                    case "worker":
                        for pid in rng.sample(workers := python_workers(driver), min(2, len(workers))):
                            with contextlib.suppress(ProcessLookupError):
                                os.kill(pid, signal.SIGKILL)
                    case _:
                        break
            kill(driver)
    drain(copy)
    verify(copy)


def drain(copy: Copy, look: Callable[[subprocess.Popen[bytes]], None] = lambda driver: None) -> None:
    """By the first driver that gets through: on a busy machine Spark itself may not wait until its Python is there.

    One query at a time, so that few processes start at once. `look`: what is to be seen of a driver while it runs.
    """
    for attempts_left in reversed(range(DRAIN_DRIVERS_MAX)):
        with copy.driver(drain=True, in_turn=True, may_fail=True) as driver:
            look(driver)
            if driver.wait(DRAIN_S) == 0:
                return
        assert attempts_left, copy.console()
        assert SPARK_DID_NOT_WAIT in copy.console(), copy.console()

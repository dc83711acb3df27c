"""Our clients beside confluent-kafka, kafka-python and aiokafka, on one Ottla broker, in turns, on one machine.

Each client runs in a process of its own (client_programs.py) and stays connected from round to round; for the next row
there is a new one, because some go on asking for topics that are gone. What is measured:
records per second as the program sees them, until everything is acknowledged or read; CPU time of the client's process,
all threads, per million records; the latency of a record that is sent alone with acks=all; what a consumer costs that
waits in a group and gets nothing; how long an import takes; and how much memory a producer takes whose broker stands
still, and a consumer that does not read on. The slow ones get fewer records in a round, so that rounds take about as
long. Everybody is warm and takes turns, see turns.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import ottla
import peers
from turns import Plan, Spread, Work, measure_alone, take_turns
from wire import Peer

PROGRAM: Final = Path(__file__).with_name("client_programs.py")
OURS: Final = ("ottla", "ottla asyncio")
EVERYBODY: Final = (*OURS, "confluent-kafka", "kafka-python", "aiokafka")
WITH_COLUMNS: Final = ("ottla", "confluent-kafka")
WITH_BOUNDS: Final = ("ottla", "confluent-kafka")  # the others have no setting that bounds what they hold
SHARES: Final = {"kafka-python": 0.1, "aiokafka": 0.1}  # of the records of a round
PARTITIONS: Final = 6
COUNTS: Final = {100: 400_000, 1024: 100_000}  # records of a round, by the size of a value
COLUMN_COUNTS: Final = {100: 1_000_000, 1024: 200_000}
SENDS: Final = 1000  # one by one
IDLE_S: Final = 20.0
IMPORT_ROUNDS: Final = 7
MEMORY_BYTES_MAX: Final = 16 << 20
MEMORY_TOPIC_BYTES: Final = 200_000_000
READY_S: Final = 60.0

IMPORTS: Final = {
    "ottla": "import ottla",
    "ottla, its clients": "from ottla import Admin, Consumer, Producer",
    "ottla.aio, its clients": "from ottla.aio import Admin, Consumer, Producer",
    "confluent-kafka": "from confluent_kafka import Consumer, Producer; from confluent_kafka.admin import AdminClient",
    "kafka-python": "from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer",
    "aiokafka": "from aiokafka import AIOKafkaConsumer, AIOKafkaProducer; import aiokafka.admin",
}


class Program:
    """A client in its process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(READY_S)
        self._process.stdout.close()

    def do(self, work: str, job: Mapping[str, Any]) -> dict[str, float]:
        """What it took, once it is done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**job, "work": work}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self._name} failed at {work}: its last words are above")
        found: dict[str, float] = json.loads(answer)
        return found


class Topics:
    """Topics of the broker, by what is in them; those that were written to in a row go with it."""

    def __init__(self, broker: Peer) -> None:
        self.broker = broker
        self._written: list[str] = []

    def job(self, topic: str, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap": self.broker.bootstrap,
            "broker_pid": self.broker.pid,
            "topic": topic,
            "partitions": PARTITIONS,
            **more,
        }

    def empty(self) -> str:
        name = f"written-{os.urandom(6).hex()}"
        with ottla.Admin(bootstrap_servers=self.broker.bootstrap) as admin:
            admin.create_topic(name, partitions=PARTITIONS)
            admin.wait_for_topic(name)
        self._written.append(name)
        return name

    def filled(self, value_bytes: int, count: int) -> str:
        name = f"read-{value_bytes}-{count}"
        with ottla.Admin(bootstrap_servers=self.broker.bootstrap) as admin:
            if name not in admin.list_topics():
                peers.fill(self.broker.bootstrap, name, partitions=PARTITIONS, value_bytes=value_bytes, count=count)
        return name

    def delete_written(self) -> None:
        with ottla.Admin(bootstrap_servers=self.broker.bootstrap) as admin:
            for name in self._written:
                admin.delete_topic(name)
        self._written.clear()


def count_for(name: str, count: int, scale: float) -> int:
    wanted = int(count * scale * SHARES.get(name, 1.0))
    return max(1, wanted // PARTITIONS) * PARTITIONS


def per_million(found: Mapping[str, float], count: int) -> dict[str, float]:
    return {"s_per_million": found["seconds"] / count * 1e6, "cpu_s_per_million": found["cpu_s"] / count * 1e6}


def write_round(topics: Topics, program: Program, work: str, job: Mapping[str, Any]) -> dict[str, float]:
    return per_million(program.do(work, topics.job(topics.empty(), **job)), job["count"])


def read_round(topics: Topics, program: Program, work: str, job: Mapping[str, Any]) -> dict[str, float]:
    topic = topics.filled(job["value_bytes"], job["count"])
    return per_million(program.do(work, topics.job(topic, **job)), job["count"])


def one_by_one(topics: Topics, program: Program, topic: str, count: int) -> dict[str, float]:
    found = program.do("one_by_one", topics.job(topic, value_bytes=100, count=count))
    return {"p50_ms": found["p50_ms"], "p99_ms": found["p99_ms"], "cpu_us_per_send": found["cpu_s"] / count * 1e6}


def throughput(topics: Topics, plan: Plan, scale: float) -> dict[str, Any]:
    """Records one by one in the program, many at once on the wire; and columns."""
    rows: list[tuple[str, str, tuple[str, ...], dict[int, int], dict[str, Any]]] = [
        ("send", "send", EVERYBODY, COUNTS, {}),
        ("send, settings as installed", "send", EVERYBODY, {100: COUNTS[100]}, {"as_installed": True}),
        ("iterate", "iterate", EVERYBODY, COUNTS, {}),
        ("poll many", "poll", EVERYBODY, {100: COUNTS[100]}, {}),
        ("send columns", "send_columns", WITH_COLUMNS, COLUMN_COUNTS, {}),
        ("poll columns", "poll_columns", WITH_COLUMNS, COLUMN_COUNTS, {}),
    ]
    results: dict[str, Any] = {}
    for title, work, names, counts, more in rows:
        for value_bytes, count in counts.items():
            row = f"{title}, {value_bytes} B"
            print(f"  {row}", flush=True)
            works: dict[str, Work] = {}
            with running(names) as programs:
                for name, program in programs.items():
                    job = {"value_bytes": value_bytes, "count": count_for(name, count, scale), **more}
                    a_round = write_round if work.startswith("send") else read_round
                    works[name] = partial(a_round, topics, program, work, job)
                results[row] = take_turns(works, plan)
            topics.delete_written()
    return results


def resting(topics: Topics, programs: Mapping[str, Program], seconds: float) -> dict[str, Any]:
    """Percent of a core that a member of a group takes which gets nothing to read."""
    topic = topics.empty()
    found = {
        name: program.do("idle", topics.job(topic, group=f"idle-{name}", seconds=seconds))
        for name, program in programs.items()
    }
    topics.delete_written()
    return {name: {"percent_of_a_core": each["percent_of_a_core"]} for name, each in found.items()}


def memory(topics: Topics, scale: float) -> dict[str, Any]:
    """What is held by a producer whose broker stands still, and by a consumer that does not read on.

    Each in a new process, whose memory has not been in use before.
    """
    count = max(PARTITIONS, int(MEMORY_TOPIC_BYTES * scale) // 1024 // PARTITIONS * PARTITIONS)
    found: dict[str, Any] = {"bytes_max_mb": MEMORY_BYTES_MAX / 1e6}
    for name in WITH_BOUNDS:
        job = {"bytes_max": MEMORY_BYTES_MAX, "value_bytes": 1024, "seconds": 3.0}
        with Program(name) as program:
            holding = program.do("hold_memory", topics.job(topics.filled(1024, count), **job))
        with Program(name) as program:
            try:
                filling = program.do("fill_memory", topics.job(topics.empty(), **job))
            finally:
                os.kill(topics.broker.pid, signal.SIGCONT)
        found[name] = {
            "producer_mb": filling["peak_mb_more"],
            "producer_took_mb": filling["taken_mb"],
            "consumer_mb": holding["peak_mb_more"],
        }
    topics.delete_written()
    return found


def imports(plan: Plan) -> dict[str, Any]:
    """Seconds in a new interpreter, whose files are in the page cache."""
    timed = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
    seen: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for _ in range(1 + min(plan.rounds, IMPORT_ROUNDS)):
        for name, statement in IMPORTS.items():
            ran = subprocess.run(
                [sys.executable, "-c", timed.format(statement)], check=True, capture_output=True, text=True
            )
            seen[name].append(float(ran.stdout))
    return {name: {"s": vars(Spread.of(seconds[1:]))} for name, seconds in seen.items()}


@contextlib.contextmanager
def running(names: tuple[str, ...] = EVERYBODY) -> Iterator[dict[str, Program]]:
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(Program(name)) for name in names}


def run(plan: Plan | None = None, scale: float = 1.0) -> dict[str, Any]:
    plan = plan or Plan()
    results: dict[str, Any] = {}
    print("  imports", flush=True)
    results["imports"] = imports(plan)
    with peers.ottla() as broker:
        topics = Topics(broker)
        results["throughput"] = throughput(topics, plan, scale)
        print("  one by one", flush=True)
        topic, count = topics.empty(), max(20, int(SENDS * scale))
        with running() as programs:
            sends: dict[str, Work] = {
                name: partial(one_by_one, topics, program, topic, count) for name, program in programs.items()
            }
            results["one_by_one"] = take_turns(sends, plan)
        topics.delete_written()
        print("  idle", flush=True)
        with running() as programs:
            results["idle"] = resting(topics, programs, max(1.0, IDLE_S * scale))
        print("  memory", flush=True)
        results["memory"] = memory(topics, scale)
    results["ratios"] = ratios(results)
    return results


def ratios(results: Mapping[str, Any]) -> dict[str, Any]:
    """How many times our cost theirs is, of the slower of our fronts: more than 1 is better."""
    compared: dict[str, Any] = {}
    for row, costs in results["throughput"].items():
        ours = [costs[name] for name in OURS if name in costs]
        for name in costs:
            if name in (*OURS, "warm_up"):
                continue
            for what in ("s_per_million", "cpu_s_per_million"):
                worst = max(each[what]["median"] for each in ours)
                compared.setdefault(row, {}).setdefault(name, {})[what] = costs[name][what]["median"] / worst
    return compared


if __name__ == "__main__":
    measure_alone(run, __doc__)

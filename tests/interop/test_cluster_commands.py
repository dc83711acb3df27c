"""The commands about brokers and where partitions are, against two brokers of Apache Kafka and two of ours."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.cli.command import ExitCode
from ottla.local_cluster.broker import BrokerProcess
from ottla.local_cluster.zookeeper import ZooKeeperEnsemble
from ottla.net.ports import free_ports
from ottla.testing.apache_kafka import SHORT_SESSION, ApacheKafka, KafkaBroker
from ottla.testing.waiting import wait_until

names = (f"moved-{number}" for number in count())


Tool = Callable[..., Any]


@dataclass(frozen=True)
class Server:
    bootstrap: str
    start: Callable[[], object]
    stop: Callable[[], object]


@dataclass(frozen=True)
class Brokers:
    servers: list[Server]
    second_directory: Path  # of the first broker
    is_ours: bool

    @property
    def bootstrap(self) -> str:
        return ",".join(server.bootstrap for server in self.servers)


@pytest.fixture(scope="module", params=["apache", "ottla"])
def brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    home = tmp_path_factory.mktemp("brokers")
    if request.param == "apache":
        yield from _brokers_of_kafka(request.getfixturevalue("newest_kafka"), home)
    else:
        yield from _our_brokers(home)


def _directories(home: Path) -> str:
    return f"{home / '1' / 'data'},{home / '1' / 'data2'}"


def _brokers_of_kafka(kafka: ApacheKafka, home: Path) -> Iterator[Brokers]:
    first = KafkaBroker(kafka, home / "1", {**SHORT_SESSION, "broker.rack": "a", "log.dirs": _directories(home)})
    second = KafkaBroker(kafka, home / "2", {**SHORT_SESSION, "broker.rack": "b"}, node_id=2, first=first)
    try:
        with ThreadPoolExecutor() as threads:
            list(threads.map(KafkaBroker.start, (first, second)))
        servers = [Server(broker.bootstrap, broker.start, broker.stop) for broker in (first, second)]
        yield Brokers(servers, home / "1" / "data2", is_ours=False)
    finally:
        for broker in (second, first):
            broker.kill()


def _our_brokers(home: Path) -> Iterator[Brokers]:
    ensemble = ZooKeeperEnsemble(home / "zookeeper")
    ensemble.start()
    settings = {"zookeeper.session.timeout.ms": "60000", "auto.create.topics.enable": "false"}
    first_port, second_port = free_ports(2)
    both = [
        BrokerProcess(
            1,
            home / "1",
            first_port,
            {**settings, "broker.rack": "a", "log.dirs": _directories(home)},
            ensemble.connect,
        ),
        BrokerProcess(2, home / "2", second_port, {**settings, "broker.rack": "b"}, ensemble.connect),
    ]

    def start(broker: BrokerProcess) -> None:
        broker.launch()
        broker.wait_ready()

    try:
        for broker in both:
            start(broker)
        servers = [Server(broker.address, partial(start, broker), broker.stop) for broker in both]
        yield Brokers(servers, home / "1" / "data2", is_ours=True)
    finally:
        for broker in both:
            broker.kill()
        ensemble.kill()


@pytest.fixture
def ottla(brokers: Brokers, run_command: Tool) -> Tool:
    return lambda *arguments: run_command(*arguments, "--bootstrap-server", brokers.bootstrap)


def new_topic(ottla: Tool, assignment: str, *arguments: str) -> str:
    name = next(names)
    created = ottla("topics", "create", name, "--replica-assignment", assignment, *arguments)
    assert (created.code, created.err) == (ExitCode.OK, "")
    return name


def partitions_of(ottla: Tool, topic: str) -> list[dict]:
    (described,) = ottla("topics", "describe", topic, "--json").documents
    return described["partitions"]


def throttles(ottla: Tool, topic: str) -> set[str]:
    """The names of all settings that slow replication down, of the topic and of the brokers."""
    found: set[str] = set()
    for resource in (("--topic", topic), ("--broker", 1), ("--broker", 2)):
        entries = [each for line in ottla("configs", "describe", *resource, "--json").documents for each in [line]]
        found |= {name for name in _names_in(entries) if ".replication.throttled." in name}
    return found


def _names_in(documents: object) -> set[str]:
    """Every string below a document: names of settings are keys or values, as the command likes."""
    if isinstance(documents, dict):
        return set(documents) | {name for value in documents.values() for name in _names_in(value)}
    if isinstance(documents, list):
        return {name for value in documents for name in _names_in(value)}
    return {documents} if isinstance(documents, str) else set()


def plan_file(path: Path, topic: str, *replicas: list[int]) -> Path:
    entries = [{"topic": topic, "partition": number, "replicas": each} for number, each in enumerate(replicas)]
    path.write_text(json.dumps({"version": 1, "partitions": entries}))
    return path


def test_brokers_are_shown_with_what_they_carry(ottla, brokers):
    new_topic(ottla, "1:2,1:2")
    first, second = ottla("brokers", "--json").documents
    assert (first["broker"], first["rack"], second["broker"], second["rack"]) == (1, "a", 2, "b")
    assert f"{second['host']}:{second['port']}" == brokers.servers[1].bootstrap
    assert first["leaders"] >= 2
    assert second["replicas"] >= 2
    assert first["out_of_sync"] == second["out_of_sync"] == 0
    titles, line, _ = ottla("brokers").out.splitlines()
    assert titles.split()[:3] == ["BROKER", "ADDRESS", "RACK"]
    assert line.split()[:3] == ["1", brokers.servers[0].bootstrap, "a"]


def test_a_plan_is_executed_with_a_throttle_and_verified_by_both_tools(ottla, brokers, newest_kafka, tmp_path):
    topic = new_topic(ottla, "1,1,1,1")
    planned = ottla("reassign", "plan", topic, "--brokers", "1,2")
    assert "copied" in planned.err
    headings_and_json = planned.out.splitlines()
    assert headings_and_json[3] == "Proposed partition reassignment configuration"
    file = tmp_path / "plan.json"
    file.write_text(headings_and_json[4])
    wanted = {each["partition"]: each["replicas"] for each in json.loads(file.read_text())["partitions"]}
    assert set(map(tuple, wanted.values())) == {(2,)}

    executed = ottla("reassign", "execute", file, "--throttle", 10_000_000)
    assert executed.code == ExitCode.OK
    way_back = json.loads(executed.out.splitlines()[1])
    assert [each["replicas"] for each in way_back["partitions"]] == [[1]] * len(wanted)
    assert throttles(ottla, topic) == {
        *("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"),
        *("leader.replication.throttled.rate", "follower.replication.throttled.rate"),
    }
    verified = ottla("reassign", "verify", file, "--wait")
    assert (verified.code, verified.err) == (ExitCode.OK, "")
    assert f"{len(wanted)} of {len(wanted)} partitions complete, 0 replicas remain" in verified.out
    assert throttles(ottla, topic) == set()
    assert {each["partition"]: each["replicas"] for each in partitions_of(ottla, topic)}.items() >= wanted.items()

    arguments = ["--bootstrap-server", brokers.bootstrap, "--verify", "--reassignment-json-file", str(file)]
    main_class = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    command = newest_kafka.java(main_class, "128m", arguments, {"defaultLogLevel": "error"})
    theirs = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert theirs.stdout.count("is completed.") == len(wanted)


def test_what_is_under_way_is_shown_and_cancelled(ottla, brokers, tmp_path):
    topic = new_topic(ottla, "1", "--config", "compression.type=uncompressed")
    producer = Producer({"bootstrap.servers": brokers.bootstrap})
    for _ in range(20):
        producer.produce(topic, bytes(100_000))
    assert producer.flush(60) == 0
    file = plan_file(tmp_path / "plan.json", topic, [2])
    assert ottla("reassign", "verify", file).code == ExitCode.REFUSED

    assert ottla("reassign", "execute", file, "--throttle", 1).code == ExitCode.OK
    looked = ottla("reassign", "verify", file, "--json")
    assert looked.code == ExitCode.TIMED_OUT
    (progress,) = looked.documents
    assert (progress["complete"], progress["remaining_replicas"]) == (False, 1)
    assert progress["partitions"][0]["standing"] == "moving"
    (move,) = ottla("reassign", "list", "--json").documents
    assert (move["topic"], move["adding"], move["removing"]) == (topic, [2], [1])
    again = ottla("reassign", "execute", file)
    assert again.code == ExitCode.REFUSED
    assert "--additional" in again.err

    assert ottla("reassign", "cancel", file).out == f"cancelled {topic}-0\n"
    assert ottla("reassign", "list").err == "ottla: nothing is moving\n"
    assert throttles(ottla, topic) == set()
    assert partitions_of(ottla, topic)[0]["replicas"] == [1]
    assert ottla("reassign", "cancel", file).out == "no partition of this plan is moving\n"


def test_the_preferred_leader_is_elected(ottla, tmp_path):
    topic = new_topic(ottla, "1:2")
    assert ottla("elect", topic).out == f"{topic}-0  leader 1 stays: no election is needed\n"
    file = plan_file(tmp_path / "plan.json", topic, [2, 1])
    assert ottla("reassign", "execute", file, "--wait").code == ExitCode.OK
    elected = ottla("elect", f"{topic}:0", "--json")
    assert elected.code == ExitCode.OK
    (outcome,) = elected.documents
    assert (outcome["leader"], outcome["elected"]) == (2, True)
    assert ottla("elect", "--all").out == "no election is needed\n"
    refused = ottla("elect", topic, "--unclean")
    assert "no election is needed" in refused.out


def test_a_replica_moves_to_another_directory(ottla, brokers):
    topic = new_topic(ottla, "1,1")
    moved = ottla("log-dirs", "move", f"{topic}:1", "--broker", 1, "--to", brokers.second_directory)
    assert moved.code == ExitCode.OK

    def paths() -> dict[int, str]:
        directories = ottla("log-dirs", "describe", "--broker", 1, "--topic", topic, "--json").documents
        return {each["partition"]: path["path"] for path in directories for each in path["replicas"]}

    wait_until(lambda: paths()[1] == str(brokers.second_directory))
    refused = ottla("log-dirs", "move", topic, "--broker", 1, "--to", "/nowhere")
    assert refused.code == ExitCode.REFUSED
    assert "LOG_DIR_NOT_FOUND" in refused.err


def test_a_plan_that_is_refused_leaves_no_throttle(ottla, tmp_path):
    topic = new_topic(ottla, "1")
    plan = plan_file(tmp_path / "plan.json", topic, [9])
    refused = ottla("reassign", "execute", plan, "--throttle", 1_000_000)
    assert refused.code == ExitCode.REFUSED
    assert "broker 9" in refused.err
    assert "moves" not in refused.err
    assert throttles(ottla, topic) == set()
    unknown = ottla("reassign", "plan", topic, "--without", 9)
    assert (unknown.code, unknown.err) == (
        ExitCode.NOT_FOUND,
        "ottla: there is no broker 9; `ottla brokers` shows them\n",
    )
    nothing = ottla("reassign", "plan", topic, "--replication-factor", 0)
    assert nothing.code == ExitCode.USAGE


def test_what_a_lost_broker_leaves_behind_is_told(ottla, brokers, tmp_path):
    both, alone = new_topic(ottla, "1:2"), new_topic(ottla, "2")
    strict = new_topic(ottla, "1:2", "--config", "min.insync.replicas=2")
    brokers.servers[1].stop()
    try:

        def described(*flags: str) -> set[str]:
            return {each["topic"] for each in ottla("topics", "describe", *flags, "--json").documents}

        wait_until(lambda: {both, alone, strict} <= described("--under-replicated", "--offline"))
        assert alone in described("--offline")
        assert both not in described("--offline")
        assert both in described("--at-min-isr")
        assert strict in described("--under-min-isr")
        assert both not in described("--under-min-isr")
        down = ottla("brokers", "--json").documents[1]
        assert (down["broker"], down["is_alive"]) == (2, False)
        assert down["out_of_sync"] >= 2
        line = ottla("brokers").out.splitlines()[2].split()
        assert (line[:3], line[-1]) == (["2", "-", "-"], "DOWN")
        refused = ottla("reassign", "plan", both)
        assert refused.code == ExitCode.REFUSED
        assert "--without 2" in refused.err
        plan = plan_file(tmp_path / "plan.json", alone, [1])
        assert ottla("reassign", "execute", plan, "--throttle", 1_000_000).code == ExitCode.OK
    finally:
        brokers.servers[1].start()
    assert ottla("reassign", "verify", plan, "--wait").code == ExitCode.OK
    assert throttles(ottla, alone) == set()
    whole = ottla("topics", "describe", both, "--offline", "--under-min-isr")
    assert (whole.code, whole.err) == (ExitCode.OK, "ottla: no partition is under min ISR or offline\n")

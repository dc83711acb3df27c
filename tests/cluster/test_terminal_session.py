"""Every command in a terminal: as it is meant, mistyped, without a broker, and with a reader that goes away.

The commands come from the parser's tree, so none can be forgotten: a new one fails here until it has a line in
`SESSION`. They run in children of one process that has imported everything (`_serve`), each in a terminal of its own.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Self

import pytest

import ottla
from ottla.cli.command import ExitCode
from ottla.cli.main import COMMANDS, PIPE_CLOSED, load, main, make_parser
from ottla.cli.syntax import Syntax, syntax_of
from ottla.local_cluster.broker import BrokerProcess
from ottla.local_cluster.zookeeper import ZooKeeperEnsemble
from ottla.net.ports import free_ports
from ottla.testing.waiting import WAIT_S

HEADING = "\x1b[1m"  # bold: the titles of a table


@dataclass(frozen=True)
class Line:
    """A command as it is meant to be used. `{words}` are places and names of this run."""

    command: str
    shows: str = ""  # a pattern of what it writes
    given: tuple[str, ...] = ()  # commands to run before it
    typed: str = ""  # what is typed while it runs
    signal: int = 0  # sent once it shows what it should: it would go on
    code: int = ExitCode.OK


TOPIC = ("topics create {topic} --partitions 2",)
FILLED = (*TOPIC, "perf produce {topic} --records 5")
GROUP = (*FILLED, "consume {topic} --group {group} --from earliest --exit")

STOPPED = ("up --brokers 1 --data {new} --port {port} --detach", "down --data {new}")
QUOTA = ("quotas set --user {group} producer_byte_rate=1000",)
NAMED = ("cluster add {group} -b 127.0.0.1:1",)
USER = ("users create {group} --password-env TERM",)
ACL = ("acls add User:{group} --operation read --topic {topic}",)

# A line for every command that does something itself.
SESSION = {
    "ottla serve": Line("serve --listen 127.0.0.1:0 --data {new}", r"ready 127\.0\.0\.1:\d+", signal=signal.SIGHUP),
    "ottla up": Line("up --brokers 1 --data {new} --port {port}", r"up: 127\.0\.0\.1:\d+", signal=signal.SIGHUP),
    "ottla status": Line("status", r"BROKER.*\d+ partitions?: .*all in sync"),
    "ottla down": Line(
        "down --data {new}", "broker 1 stopped", ("up --brokers 1 --data {new} --port {port} --detach",)
    ),
    "ottla topics create": Line("topics create {topic}", "created {topic}: 1 partition"),
    "ottla topics list": Line("topics list", "TOPIC.*PARTITIONS.*{topic}", TOPIC),
    "ottla topics describe": Line("topics describe {topic}", "{topic}  id .*LEADER.*IN SYNC", TOPIC),
    "ottla topics alter": Line("topics alter {topic} --partitions 3", "altered {topic}", TOPIC),
    "ottla topics delete": Line("topics delete {topic}", "deleted {topic}", TOPIC),
    "ottla topics delete-records": Line("topics delete-records {topic} --before -1h", "--execute", FILLED),
    "ottla produce": Line(
        "produce {topic} -K :", r"Ctrl-D ends the input.*2 records to {topic}", TOPIC, typed="a:1\nb:2\n\x04"
    ),
    "ottla consume": Line("consume {topic} --from-beginning -n 5 --format '%p %o|'", r"\d 0\|", FILLED),
    "ottla offsets get": Line("offsets get {topic} --at -1h", "EARLIEST.*AT -1h", FILLED),
    "ottla perf produce": Line("perf produce {topic} --records 5", r"5 records, 500 bytes.*P99\.9", TOPIC),
    "ottla perf consume": Line("perf consume {topic} --records 5", r"5 records, 500 bytes.*P99\.9", FILLED),
    "ottla groups list": Line("groups list", "GROUP.*{group}.*Empty", GROUP),
    "ottla groups describe": Line("groups describe {group}", "PARTITION.*LAG.*{topic}-[01]", GROUP),
    "ottla groups delete": Line("groups delete {group}", "deleted {group}", GROUP),
    "ottla groups reset": Line("groups reset {group} --topic {topic} --to -1h", "NEW OFFSET.*--execute", GROUP),
    "ottla transactions list": Line("transactions list --hanging", "no hanging transactions"),
    "ottla transactions describe": Line("transactions describe billing", "billing  Empty  producer"),
    "ottla transactions abort": Line("transactions abort billing", "billing: no transaction is open"),
    "ottla pipeline init": Line("pipeline init shop --directory {new}", "a pipeline that reads"),
    "ottla pipeline check": Line("pipeline check {job}", "job.py  program  ok"),
    "ottla pipeline stop": Line("pipeline stop {group}", "{group}", code=ExitCode.NOT_FOUND),
    "ottla pipeline status": Line("pipeline status", "no pipeline has reported"),
    "ottla configs describe": Line("configs describe --topic {topic} --all", "SETTING.*retention.ms", TOPIC),
    "ottla configs alter": Line("configs alter --topic {topic} --add retention.ms=5000", "altered", TOPIC),
    "ottla cluster": Line("cluster", "cluster .*controller"),
    "ottla cluster add": Line("cluster add {group} -b 127.0.0.1:1", "{group} is kept in"),
    "ottla cluster use": Line("cluster use {group}", "commands use {group}", NAMED),
    "ottla cluster list": Line("cluster list", "NAME.*{group}", NAMED),
    "ottla cluster remove": Line("cluster remove {group}", "removed {group}", NAMED),
    "ottla brokers": Line("brokers", "BROKER.*controller"),
    "ottla metadata": Line("metadata --topic {topic}", "BROKER.*{topic}", TOPIC),
    "ottla log-dirs describe": Line("log-dirs describe", "REPLICA.*{topic}-0.*", FILLED),
    "ottla log-dirs move": Line("log-dirs move {topic} --broker 1 --to {second}", "moves to {second}", TOPIC),
    "ottla reassign plan": Line("reassign plan {topic}", "the brokers are balanced", TOPIC),
    "ottla reassign execute": Line(
        "reassign execute {plan}", "nothing to move: all partitions are where the plan wants them", TOPIC
    ),
    "ottla reassign verify": Line("reassign verify {plan}", r"complete.*2 of 2 partitions complete", TOPIC),
    "ottla reassign cancel": Line("reassign cancel {plan}", "no partition of this plan is moving", TOPIC),
    "ottla reassign list": Line("reassign list", "nothing is moving"),
    "ottla elect": Line("elect {topic}", "no election is needed", TOPIC),
    "ottla users create": Line("users create {group} --password-env TERM", "{group}"),
    "ottla users alter": Line("users alter {group} --password-env TERM", "{group}", USER),
    "ottla users list": Line("users list", "{group}", USER),
    "ottla users delete": Line("users delete {group}", "{group}", USER),
    "ottla acls add": Line("acls add User:{group} --role consumer --topic {topic} --group g", "{topic}"),
    "ottla acls list": Line("acls list --topic {topic}", "{topic}", ACL),
    "ottla acls check": Line("acls check User:{group} read topic:{topic}", "{group}", ACL),
    "ottla acls remove": Line("acls remove --topic {topic}", "{topic}", ACL),
    "ottla quotas list": Line("quotas list --user {group}", "{group}", QUOTA),
    "ottla quotas set": Line("quotas set --user {group} producer_byte_rate=1000", "{group}"),
    "ottla quotas remove": Line("quotas remove --user {group} producer_byte_rate", "{group}", QUOTA),
    "ottla certs create": Line("certs create {new} --broker one", "NAME.*ca.pem"),
    "ottla import": Line("import {kafka} --default-settings", "the same with --yes takes it over"),
    "ottla backup": Line("backup {new}/broker-1/data --to {new}-backup", "{new}-backup", STOPPED),
    "ottla restore": Line(
        "restore {new}-backup --check", "0 partitions", (*STOPPED, "backup {new}/broker-1/data --to {new}-backup")
    ),
    "ottla dump-log": Line("dump-log {data}/{topic}-0", "00000000000000000000.log: ", FILLED),
    "ottla completion": Line("completion bash", "complete -o default -F _ottla ottla"),
}
# What runs on Spark takes its time: tests/spark does that.
ON_SPARK = {
    *("ottla pipeline run", "ottla job to-table", "ottla job to-topic", "ottla job compact", "ottla job mirror"),
    *("ottla job replay", "ottla job audit"),
}
# What needs no broker although it can be given one, and what starts one.
WITHOUT_BROKER = {
    *("ottla serve", "ottla up", "ottla down", "ottla certs create", "ottla import", "ottla dump-log"),
    *(
        "ottla backup",
        "ottla restore",
        "ottla completion",
        "ottla cluster add",
        "ottla cluster use",
        "ottla cluster list",
        "ottla cluster remove",
    ),
    *("ottla pipeline init", "ottla pipeline check", "ottla pipeline stop"),
}


def leaves() -> list[Syntax]:
    """Commands without actions, and the one that does something without one: `ottla cluster`."""
    return [
        command
        for command in syntax_of(make_parser()).walk()
        if not command.subcommands or any("--json" in option.flags for option in command.options)
    ]


ALL_PATHS = [command.path for command in leaves()]
PATHS = [path for path in ALL_PATHS if path not in ON_SPARK]


def test_every_command_has_its_line():
    assert set(PATHS) == set(SESSION), "give a new command its line in SESSION"
    talking = {each.path for each in leaves() if any("--bootstrap-server" in option.flags for option in each.options)}
    assert (talking - ON_SPARK) | WITHOUT_BROKER == set(PATHS)


# -- the terminal ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    code: int
    screen: str


class Session:
    """Runs commands in children of a process that has imported everything."""

    def __init__(self, environment: dict[str, str], directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=directory,
            env={**os.environ, **environment},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(WAIT_S)
        self._process.stdout.close()

    def run(self, command: str, **how: Any) -> Seen:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"arguments": shlex.split(command), **how}) + "\n")
        self._process.stdin.flush()
        seen = Seen(**json.loads(self._process.stdout.readline()))
        for word in ("Traceback", "Exception ignored", "was never"):
            assert word not in seen.screen, seen.screen
        return seen


def _serve() -> None:
    """The other process: a command per line of standard input."""
    for name in COMMANDS:
        load(name)
    for line in sys.stdin:
        print(json.dumps(_run_in_terminal(**json.loads(line))), flush=True)


def _run_in_terminal(
    arguments: list[str],
    typed: str = "",
    until: str = "",
    number: int = 0,
    is_read: bool = True,
) -> dict[str, Any]:
    """Runs a command with a terminal; without `is_read`, its output is a pipe that nobody reads."""
    pid, terminal = pty.fork()
    if pid == 0:
        if not is_read:
            read, write = os.pipe()
            os.close(read)
            os.dup2(write, 1)
            os.close(write)
        sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1)  # noqa: SIM115
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        except BaseException:
            import traceback

            traceback.print_exc()
            code = 255
        try:
            sys.stdout.flush()
        finally:
            os._exit(code)
    if typed:
        os.write(terminal, typed.encode())
    screen = b""
    deadline = time.monotonic() + WAIT_S
    while True:
        if not select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0]:
            os.kill(pid, signal.SIGKILL)
            screen += b"\r\n(it did not end, and was killed)"
            break
        try:
            data = os.read(terminal, 65536)
        except OSError:  # Linux says so when the other side is closed
            break
        screen += data
        if number and re.search(until, screen.decode(errors="replace"), re.DOTALL):
            os.kill(pid, number)
            number = 0
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return {"code": os.waitstatus_to_exitcode(status), "screen": screen.decode(errors="replace")}


# -- the session -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """A terminal, a broker, and the places and names that lines mention."""

    session: Session
    broker: BrokerProcess
    directory: Path
    numbers: Iterator[int]

    def play(self, line: Line, **how: Any) -> tuple[Seen, str]:
        """Runs the commands before it and the line; what it shows, and the pattern with the names of this run."""
        number = next(self.numbers)
        names = {
            "topic": f"topic-{number}",
            "group": f"group-{number}",
            "new": self.directory / f"new-{number}",
            "port": free_ports(1)[0],
            "data": self.directory / "broker" / "data",
            "second": self.directory / "broker" / "data2",
            "plan": self.directory / f"plan-{number}.json",
            "kafka": self.directory / "kafka",
            "job": self.directory / "job.py",
        }
        for command in line.given:
            before = self.session.run(command.format(**names))
            assert before.code == ExitCode.OK, before.screen
        entries = [{"topic": names["topic"], "partition": each, "replicas": [1]} for each in (0, 1)]
        (self.directory / f"plan-{number}.json").write_text(json.dumps({"version": 1, "partitions": entries}))
        shows = re.sub(r"\{(\w+)\}", lambda found: re.escape(str(names[found[1]])), line.shows)
        arguments = (
            line.command.format(**names)
            if "%" not in line.command
            else line.command.replace("{topic}", str(names["topic"]))
        )
        return self.session.run(arguments, typed=line.typed, until=shows, number=line.signal, **how), shows


@pytest.fixture(scope="module")
def stage(shared_ensemble: ZooKeeperEnsemble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("session")
    home = directory / "broker"
    (port,) = free_ports(1)
    settings = {
        "log.dirs": f"{home / 'data'},{home / 'data2'}",
        "zookeeper.session.timeout.ms": "60000",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    # A place of its own each time: a worker that comes back to this module would find the session of the one before.
    place = f"{shared_ensemble.connect}/{directory.name}"
    broker = BrokerProcess(1, home, port, settings, place)
    _write_directory_of_kafka(directory / "kafka")
    (directory / "job.py").write_text("print('a program that starts streaming queries')\n")
    broker.launch()
    try:
        broker.wait_ready()
        with ottla.Producer(bootstrap_servers=broker.address, transactional_id="billing") as producer:
            producer.init_transactions()
        environment = {"OTTLA_BOOTSTRAP_SERVERS": broker.address, "TERM": "xterm", "XDG_CONFIG_HOME": str(directory)}
        with Session(environment, directory) as session:
            yield Stage(session, broker, directory, count())
    finally:
        broker.kill()


def _write_directory_of_kafka(directory: Path) -> None:
    """As a broker of Apache Kafka with ZooKeeper leaves it that has never had a topic."""
    directory.mkdir()
    (directory / ".kafka_cleanshutdown").touch()
    (directory / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=b3R0bGEtZ3VpZGUtMTIzNA\n")


@pytest.mark.parametrize("path", PATHS)
def test_a_command_does_what_it_is_meant_for(stage: Stage, path: str):
    seen, shows = stage.play(SESSION[path])
    assert seen.code == SESSION[path].code, seen.screen
    plain = re.sub(r"\x1b\[[0-9;]*[mK]", "", seen.screen)
    assert re.search(shows, plain, re.DOTALL), f"{shows!r} in {plain!r}"
    if re.search(r"^ *[A-Z]+  +[A-Z]", plain, re.MULTILINE):
        assert HEADING in seen.screen, "a table on a terminal has titles in bold"


@pytest.mark.parametrize("path", ALL_PATHS)
def test_a_typo_gets_a_suggestion(stage: Stage, path: str):
    words = path.removeprefix("ottla ")
    mistyped = stage.session.run(f"{words[:-1]}{words[-1] * 2}")
    assert mistyped.code == ExitCode.USAGE
    assert f"did you mean `{path}`?" in mistyped.screen
    if path in ON_SPARK:
        return
    unknown = stage.session.run(re.sub(r"\{\w+\}", "1", f"{SESSION[path].command} --hlep"))
    assert unknown.code == ExitCode.USAGE
    assert "did you mean `--help`?" in unknown.screen
    assert unknown.screen.count("\n") == 1


@pytest.mark.parametrize("path", sorted(set(PATHS) - WITHOUT_BROKER))
def test_a_missing_broker_is_reported_with_its_address_and_what_to_try(stage: Stage, path: str):
    line = SESSION[path]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        seen, _ = stage.play(Line(f"{line.command} -b {where}", typed=line.typed))
    assert seen.code == ExitCode.UNREACHABLE
    assert f"{where}: no connection: connection refused; start a broker with `ottla serve`" in seen.screen


@pytest.mark.parametrize("path", PATHS)
def test_a_reader_that_goes_away_ends_a_command_quietly(stage: Stage, path: str):
    line = SESSION[path]
    if line.signal:
        pytest.skip("it serves on, whoever reads its first line")
    seen, _ = stage.play(line, is_read=False)
    assert seen.code in (PIPE_CLOSED, line.code)
    assert "Broken pipe" not in seen.screen


if __name__ == "__main__":
    _serve()

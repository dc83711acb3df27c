"""`ottla produce`, `consume`, `offsets` and `topics delete-records` with a broker: what they read, write and commit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

import ottla
from ottla.cli.command import ExitCode
from ottla.cli.main import PIPE_CLOSED, main
from ottla.client.serializers import AvroSerde, Context, JsonSchemaSerde, ProtobufSerde, SchemaRegistry
from ottla.runtime.clock import SystemClock
from ottla.testing.broker import Broker
from ottla.testing.schema_registry import SchemaRegistryServer
from ottla.testing.waiting import WAIT_S, wait_until

HOUR_MS = 3_600_000
numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@dataclass(frozen=True)
class Done:
    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()

    @property
    def documents(self) -> list[dict]:
        return [json.loads(line) for line in self.lines]


Tool = Callable[..., Done]


@pytest.fixture
def tool(broker: Broker, capsysbinary: pytest.CaptureFixture[bytes]) -> Tool:
    def run(*arguments: object) -> Done:
        code = main([*map(str, arguments), "--bootstrap-server", broker.bootstrap_servers])
        captured = capsysbinary.readouterr()
        return Done(code, captured.out, captured.err.decode())

    return run


@pytest.fixture
def topic(tool: Tool) -> str:
    """Two partitions without records."""
    name = f"records-{next(numbers)}"
    assert tool("topics", "create", name, "--partitions", 2).code == ExitCode.OK
    return name


@pytest.fixture
def filled(topic: str, broker: Broker) -> str:
    """Ten records in partition 0, one an hour until an hour ago, and four of now in partition 1."""
    now_ms = SystemClock().now_ms()
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(10):
            producer.send(topic, b"a%d" % number, partition=0, timestamp=now_ms - (10 - number) * HOUR_MS)
        for number in range(4):
            producer.send(topic, b"b%d" % number, partition=1)
        producer.flush()
    return topic


def started(broker: Broker, *arguments: object, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "ottla", *map(str, arguments), "-b", broker.bootstrap_servers],
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


# -- where to start and to end -----------------------------------------------------------------------------------------


def test_several_topics_are_read(tool, filled, broker):
    other = f"other-{filled}"
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(other, b"c0").result()
    named = tool("consume", filled, other, "--from-beginning", "--exit")
    assert len(named.lines) == 15
    assert "c0" in named.lines
    matching = tool("consume", "--pattern", f"(other-)?{filled}", "--from-beginning", "--exit", "--format", "%t\\n")
    assert set(matching.lines) == {filled, other}
    assert tool("consume", "--pattern", "no-such-.*").code == ExitCode.NOT_FOUND


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--from", "-150m", "--exit"), ["a8", "a9"]),
        (("--from", "-5h30m", "--to", "-3h30m"), ["a5", "a6"]),
        (("--from-beginning", "--to", "3"), ["a0", "a1", "a2"]),
        (("--from", "2", "--to", "4", "--exit"), ["a2", "a3"]),
        (("--from", "8", "--to", "99", "--exit"), ["a8", "a9"]),
        (("--from", "-2", "--exit"), ["a8", "a9"]),
        (("-o", "earliest", "-n", "1"), ["a0"]),
    ],
    ids=" ".join,
)
def test_a_part_of_a_partition_is_read(tool, filled, arguments, expected):
    read = tool("consume", filled, "--partition", 0, *arguments)
    assert (read.code, read.err) == (ExitCode.OK, "")
    assert read.lines == expected


def test_an_offset_that_a_shorter_partition_does_not_have_stops_nothing(tool, filled):
    read = tool("consume", filled, "--from", 7, "--exit")
    assert (read.code, read.lines) == (ExitCode.OK, ["a7", "a8", "a9"])
    assert read.err == f"ottla: warning: {filled}-1 ends at offset 4: it has no offset 7\n"
    nowhere = tool("consume", filled, "--from", 70, "--exit")
    assert (nowhere.code, nowhere.out) == (ExitCode.REFUSED, b"")
    assert "--from earliest" in nowhere.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("consume", "--from", f"@{10**20}", "--exit"),
        ("consume", "--from", f"-{10**20}w", "--exit"),
        ("offsets", "get", "--at", f"@{10**20}"),
        ("topics", "alter", "--partitions", 10**10),
        ("topics", "describe", "\udcff"),
    ],
)
def test_what_does_not_fit_the_protocol_is_refused_in_words(tool, filled, arguments):
    at = 2 if arguments[0] in ("topics", "offsets") else 1
    refused = tool(*arguments[:at], filled, *arguments[at:])
    assert (refused.code, refused.out) == (ExitCode.USAGE, b"")
    assert refused.err.endswith("; numbers have limits, and texts are UTF-8\n")
    assert refused.err.count("\n") == 1


def test_records_before_an_offset_to_come_are_left_out(broker, tool, filled):
    reading = started(broker, "consume", filled, "--from", 5, "--to", 7)
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(4, 8):
            producer.send(filled, b"b%d" % number, partition=1).result()
    out, err = reading.communicate(timeout=WAIT_S)
    assert reading.returncode == ExitCode.OK, err
    assert sorted(out.split()) == [b"a5", b"a6", b"b5", b"b6"]


# -- groups ------------------------------------------------------------------------------------------------------------


def test_a_group_goes_on_where_it_was(tool, filled):
    group = ("--group", f"group-of-{filled}", "--from", "earliest", "--exit")
    first = tool("consume", filled, *group, "--max-messages", 5)
    assert (first.code, len(first.lines)) == (ExitCode.OK, 5)
    second = tool("consume", filled, *group)
    assert len(second.lines) == 9
    assert not set(first.lines) & set(second.lines)
    assert tool("consume", filled, *group).out == b""
    (described,) = tool("groups", "describe", group[1], "--json").documents
    assert sorted(each["lag"] for each in described["partitions"]) == [0, 0]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_member_in_order(broker, tool, filled, number):
    group = f"signalled-{filled}"
    reading = started(broker, "consume", filled, "--group", group, "--from", "earliest")
    assert reading.stdout is not None
    read = [reading.stdout.readline() for _ in range(14)]
    reading.send_signal(number)
    _, err = reading.communicate(timeout=WAIT_S)
    assert (reading.returncode, err) == (128 + number, b"")
    (described,) = tool("groups", "describe", group, "--json").documents
    assert described["state"] == "Empty"
    assert sum(each["offset"] for each in described["partitions"]) == len(read)


# -- where the records go ----------------------------------------------------------------------------------------------


def test_a_reader_that_has_seen_enough_is_not_kept_waiting(broker, filled):
    reading = started(broker, "consume", filled, "--from-beginning", "--follow")
    assert reading.stdout is not None
    for _ in range(2):
        assert reading.stdout.readline()
    reading.stdout.close()  # and no further record comes
    assert reading.stderr is not None
    assert reading.stderr.read() == b""
    assert reading.wait(WAIT_S) == PIPE_CLOSED
    reading.stderr.close()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_the_output_is_reported(broker, filled, unbuffered, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        reading = started(broker, "consume", filled, "--from-beginning", "--exit", stdout=full)
        _, err = reading.communicate(timeout=WAIT_S)
    finally:
        os.close(full)
    assert err == b"ottla: the output cannot be written: No space left on device\n"
    assert reading.returncode == ExitCode.UNEXPECTED


# -- produce -----------------------------------------------------------------------------------------------------------


def test_files_are_sent_with_a_delimiter_of_their_own(tool, topic, tmp_path: Path):
    (tmp_path / "one").write_bytes(b"a\0b\nc\0")
    (tmp_path / "two").write_bytes(b"d")
    sent = tool("produce", topic, tmp_path / "one", tmp_path / "two", "--delimiter", "\\0", "--partition", 0)
    assert sent.code == ExitCode.OK
    assert "3 records" in sent.err
    whole = tool("produce", topic, tmp_path / "one", "--whole", "--partition", 0)
    assert whole.code == ExitCode.OK
    values = [each["value"] for each in tool("consume", topic, "--from-beginning", "--exit", "--json").documents]
    assert values == ["a", "b\nc", "d", "a\0b\nc\0"]
    missing = tool("produce", topic, tmp_path / "one", tmp_path / "three")
    assert missing.code == ExitCode.NOT_FOUND
    assert str(tmp_path / "three") in missing.err
    assert tool("produce", topic, tmp_path).code == ExitCode.USAGE


def test_keys_and_headers_of_each_record_go_around_as_text(tool, topic, tmp_path: Path):
    text = b"lang=en,v=2\tanna\thello\n\tbob\thi\nx=\tNULL\tNULL\n"
    (tmp_path / "records").write_bytes(text)
    separators = ("--headers-separator", "\\t", "--key-separator", "\\x09", "--null-marker", "NULL", "--partition", 0)
    sent = tool("produce", topic, tmp_path / "records", *separators, "--header", "of=all")
    assert sent.code == ExitCode.OK, sent.err
    first, second, third = tool("consume", topic, "--from-beginning", "--exit", "--json").documents
    assert (first["key"], first["value"]) == ("anna", "hello")
    assert first["headers"] == [["of", "all"], ["lang", "en"], ["v", "2"]]
    assert second["headers"] == [["of", "all"]]
    assert (third["key"], third["value"], third["headers"]) == (None, None, [["of", "all"], ["x", ""]])

    written = tool("consume", topic, "--partition", 0, "-o", 1, "-n", 1, "--format", "%h\\t%k\\t%v\\n")
    assert written.out == b"of=all\tbob\thi\n"


def test_a_field_that_no_record_has_loses_nothing_unseen(tool, topic, tmp_path: Path):
    (tmp_path / "lines").write_text(
        '{"key": "a", "value": "1", "topic": "x", "offset": 5}\n{"kye": "b", "value": "2"}\n'
    )
    sent = tool("produce", topic, tmp_path / "lines", "--json-lines")
    assert sent.code == ExitCode.USAGE
    assert f"{tmp_path / 'lines'}, line 2: a record has no field 'kye'; did you mean `key`" in sent.err
    assert tool("consume", topic, "--from-beginning", "--exit", "--format", "%k=%v").out == b"a=1"


# -- schemas -----------------------------------------------------------------------------------------------------------


def test_values_are_decoded_with_the_schemas_of_a_registry(tool, topic, broker):
    from google.protobuf.duration_pb2 import Duration

    avro = {"type": "record", "name": "Order", "fields": [{"name": "total", "type": "long"}]}
    json_schema = {"title": "Order", "type": "object", "properties": {"total": {"type": "integer"}}}
    context = Context(topic, is_key=False)
    with SchemaRegistryServer() as server:
        registry = SchemaRegistry(server.url)
        values = {
            "avro": (AvroSerde(registry, avro).dumps({"total": 5}, context), {"total": 5}),
            "json-schema": (
                JsonSchemaSerde(registry, json_schema, subject_name=lambda *_: "json").dumps({"total": 5}, context),
                {"total": 5},
            ),
            "protobuf": (
                ProtobufSerde(registry, Duration, subject_name=lambda *_: "proto").dumps(Duration(seconds=90), context),
                "90s",
            ),
        }
        for number, (name, (data, expected)) in enumerate(values.items()):
            with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                producer.send(topic, data, partition=0).result()
            arguments = ("consume", topic, "--partition", 0, "-o", number, "-n", 1)
            schema = ("--value-format", name, "--registry", server.url)
            read = tool(*arguments, *schema)
            assert (read.code, read.err) == (ExitCode.OK, "")
            assert json.loads(read.out) == expected
            assert tool(*arguments, *schema, "--json").documents[0]["value"] == expected
            assert tool(*arguments, "--value-format", "hex").lines == [data.hex()]
        with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send(topic, b"plain", partition=1).result()
        damaged = tool("consume", topic, "--partition", 1, "-o", 0, "-n", 1, *schema[:1], "avro", *schema[2:])
    assert damaged.code == ExitCode.DAMAGED
    assert f"the value of {topic}-1 at offset 0 cannot be decoded" in damaged.err
    assert "--value-format hex" in damaged.err


# -- offsets -----------------------------------------------------------------------------------------------------------


def test_offsets_are_shown_and_the_oldest_records_deleted(tool, filled):
    first, second = tool("offsets", "get", filled, "--at", "-150m", "--json").documents
    assert first == {"topic": filled, "partition": 0, "earliest": 0, "latest": 10, "at": 8}
    assert (second["latest"], second["at"]) == (4, 0)
    assert tool("offsets", "get", f"{filled}:1").lines[1].split() == [f"{filled}-1", "0", "4", "4"]

    shown = tool("topics", "delete-records", filled, "--before", 7)
    assert [line.split()[1:] for line in shown.lines[1:]] == [["0", "7", "10", "7"], ["0", "4", "4", "4"]]
    assert "nothing was deleted; add --execute" in shown.err
    assert tool("offsets", "get", filled, "--json").documents[0]["earliest"] == 0
    done = tool("topics", "delete-records", f"{filled}:0", "--before", 7, "--execute", "--json")
    assert (done.code, done.err) == (ExitCode.OK, "")
    assert (done.documents[0]["earliest"], done.documents[0]["new_earliest"]) == (0, 7)
    wait_until(lambda: tool("offsets", "get", filled, "--json").documents[0]["earliest"] == 7)


def test_throughput_and_latencies_are_measured(tool, topic):
    (produced,) = tool("perf", "produce", topic, "--records", 300, "--record-size", 10, "--json").documents
    assert (produced["records"], produced["size_bytes"]) == (300, 3000)
    latencies = produced["latency_ms"]
    assert list(latencies) == ["average", "p50", "p95", "p99", "p99.9", "max"]
    assert 0 < latencies["p50"] <= latencies["p99.9"] <= latencies["max"]
    (consumed,) = tool("perf", "consume", topic, "--records", 300, "--json").documents
    assert (consumed["records"], consumed["size_bytes"]) == (300, 3000)
    short = tool("perf", "consume", topic, "--records", 301, "--idle", 0.2)
    assert short.code == ExitCode.TIMED_OUT
    assert "300 of 301" in short.err


def test_an_end_without_a_start_says_why_nothing_is_read(tool: Tool, filled: str) -> None:
    done = tool("consume", filled, "--exit")
    assert (done.code, done.out) == (ExitCode.OK, b"")
    assert "--from-beginning reads what is there" in done.err
    assert "--from-beginning" not in tool("consume", filled, "--exit", "--from", "latest").err


def test_an_offset_that_no_partition_has_is_refused_by_the_one_that_comes_nearest(tool: Tool, filled: str) -> None:
    refused = tool("consume", filled, "--from", 1000, "--exit")
    assert refused.code == ExitCode.REFUSED
    assert (
        f"{filled}-0 does not have offset 1000: it has 0 to 9; 1 more partition does not have it either" in refused.err
    )

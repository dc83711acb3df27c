"""Every command of the command line as a process of its own, against Apache Kafka and against our broker."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.testing.apache_kafka import KafkaBroker
from ottla.testing.waiting import WAIT_S

OK, USAGE, NOT_FOUND, REFUSED, TIMED_OUT = 0, 2, 3, 6, 7
numbers = count()


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


@dataclass(frozen=True)
class Tool:
    """The `ottla` command with a broker to talk to."""

    bootstrap: str
    is_ours: bool

    def start(self, *arguments: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "ottla", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "OTTLA_BOOTSTRAP_SERVERS": self.bootstrap},
        )

    def __call__(self, *arguments: object, stdin: bytes = b"") -> Done:
        process = self.start(*arguments)
        out, err = process.communicate(stdin, timeout=WAIT_S)
        return Done(process.returncode, out, err.decode())

    def new_topic(self, *arguments: object) -> str:
        name = f"topic-{next(numbers)}"
        created = self("topics", "create", name, *arguments)
        assert (created.code, created.err) == (OK, "")
        return name


@pytest.fixture(scope="module", params=["apache", "ottla"])
def tool(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tool]:
    directory = tmp_path_factory.mktemp("broker")
    if request.param == "apache":
        with KafkaBroker(request.getfixturevalue("newest_kafka"), directory) as broker:
            yield Tool(broker.bootstrap, is_ours=False)
    else:
        yield from _our_broker(directory)


def _our_broker(directory: Path) -> Iterator[Tool]:
    command = ["serve", "--listen", "127.0.0.1:0", "--data", str(directory), "--set", "auto.create.topics.enable=false"]
    process = subprocess.Popen([sys.executable, "-m", "ottla", *command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        ready = process.stdout.readline()
        address = re.search(r"127\.0\.0\.1:\d+", ready)
        assert address, f"the broker did not start: {ready}"
        yield Tool(address[0], is_ours=True)
    finally:
        process.terminate()
        process.wait(WAIT_S)
        process.stdout.close()


# -- topics ------------------------------------------------------------------------------------------------------------


def test_a_topic_lives_from_create_to_delete(tool):
    name = f"life-{next(numbers)}"
    created = tool("topics", "create", name, "--partitions", 3, "--config", "retention.ms=3600000", "--json")
    assert created.code == OK
    (document,) = created.documents
    assert (document["topic"], document["partitions"], document["created"]) == (name, 3, True)
    assert name in tool("topics", "list").lines

    (described,) = tool("topics", "describe", name, "--json").documents
    assert described["topic_id"] == document["topic_id"]
    assert described["configs"]["retention.ms"] == "3600000"
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2]
    assert described["partitions"][0]["isr"] == described["partitions"][0]["replicas"]

    altered = tool("topics", "alter", name, "--partitions", 5, "--delete-config", "retention.ms")
    assert (altered.code, altered.out, altered.err) == (OK, f"altered {name}\n".encode(), "")
    text = tool("topics", "describe", name).lines
    assert text[0].startswith(f"{name}  id {document['topic_id']}  5 partitions  replication factor 1")
    assert "retention.ms" not in text[0]
    assert text[1].split() == ["PARTITION", "LEADER", "REPLICAS", "IN", "SYNC", "OFFLINE"]
    assert len(text) == 7

    deleted = tool("topics", "delete", name)
    assert (deleted.code, deleted.out, deleted.err) == (OK, f"deleted {name}\n".encode(), "")
    assert name not in tool("topics", "list").lines


def test_a_topic_that_exists_is_an_error_unless_that_is_fine(tool):
    name = tool.new_topic("--partitions", 2)
    again = tool("topics", "create", name)
    assert again.code == REFUSED
    assert "exist" in again.err
    assert "--if-not-exists" in again.err
    fine = tool("topics", "create", name, "--if-not-exists")
    assert (fine.code, fine.out) == (OK, f"already exists: {name}: 2 partitions, replication factor 1\n".encode())


def test_validating_creates_nothing(tool):
    name = f"never-{next(numbers)}"
    validated = tool("topics", "create", name, "--partitions", 2, "--validate-only")
    assert (validated.code, validated.err) == (OK, "")
    assert validated.out.startswith(f"would create {name}".encode())
    assert name not in tool("topics", "list").lines


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("bad name",), "'_' and '-'"),
        (("fine", "--config", "no.such.setting=1"), "configs describe"),
        (("fine", "--config", "retention.ms=soon"), "configs describe"),
        (("fine", "--replication-factor", "3"), "ottla cluster"),
        (("fine", "--replica-assignment", "77"), ""),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else "",
)
def test_what_a_broker_refuses_is_told_in_one_line(tool, arguments, hint):
    refused = tool("topics", "create", *arguments)
    assert (refused.code, refused.out) == (REFUSED, b"")
    assert refused.err.startswith("ottla: the topic ")
    assert hint in refused.err
    assert refused.err.count("\n") == 1


def test_a_dot_in_a_name_is_warned_of(tool):
    created = tool("topics", "create", f"with.dot-{next(numbers)}")
    assert created.code == OK
    assert created.err.startswith("ottla: warning: ")


def test_topics_that_do_not_exist_are_told_beside_those_that_do(tool):
    name = tool.new_topic()
    described = tool("topics", "describe", name, "not-there")
    assert described.code == NOT_FOUND
    assert described.lines[0].startswith(name)
    assert described.err == "ottla: the topic not-there does not exist; `ottla topics list` shows the topics\n"
    deleted = tool("topics", "delete", name, "not-there")
    assert (deleted.code, deleted.out) == (NOT_FOUND, f"deleted {name}\n".encode())
    assert tool("topics", "delete", "not-there", "--if-exists").code == OK


def test_partitions_do_not_become_fewer(tool):
    name = tool.new_topic("--partitions", 4)
    refused = tool("topics", "alter", name, "--partitions", 2)
    assert refused.code == REFUSED
    assert "partitions can only be added" in refused.err


# -- settings, the cluster, directories --------------------------------------------------------------------------------


def test_settings_of_a_topic(tool):
    name = tool.new_topic()
    assert (
        tool("configs", "alter", "--topic", name, "--add", "cleanup.policy=compact", "--add", "segment.ms=60000").code
        == OK
    )
    shown = tool("configs", "describe", "--topic", name).lines
    assert ["cleanup.policy", "compact", "set for the topic"] in [line.split(maxsplit=2) for line in shown]
    documents = {
        each["name"]: each for each in tool("configs", "describe", "--topic", name, "--all", "--json").documents
    }
    assert documents["segment.ms"]["source"] == "topic"
    assert documents["retention.bytes"] | {"synonyms": []} == {
        "name": "retention.bytes",
        "value": "-1",
        "source": "default",
        "is_read_only": False,
        "is_sensitive": False,
        "synonyms": [],
    }
    assert tool("configs", "alter", "--topic", name, "--delete", "segment.ms").code == OK
    assert "segment.ms" not in tool("configs", "describe", "--topic", name).out.decode()


def test_a_wrong_setting_changes_nothing(tool):
    name = tool.new_topic()
    refused = tool("configs", "alter", "--topic", name, "--add", "segment.ms=60000", "--add", "retention.ms=soon")
    assert refused.code == REFUSED
    assert "retention.ms" in refused.err
    assert "segment.ms" not in tool("configs", "describe", "--topic", name).out.decode()


def test_settings_of_brokers(tool):
    assert tool("configs", "alter", "--broker-defaults", "--add", "log.retention.ms=7200000", "--json").code == OK
    defaults = tool("configs", "describe", "--broker-defaults").lines
    assert ["log.retention.ms", "7200000", "set for all brokers"] in [line.split(maxsplit=2) for line in defaults]
    (cluster,) = tool("cluster", "--json").documents
    broker = cluster["brokers"][0]["broker"]
    own = {each["name"]: each for each in tool("configs", "describe", "--broker", broker, "--json").documents}
    assert own["log.retention.ms"]["source"] == "broker_default"
    assert tool("configs", "alter", "--broker-defaults", "--delete", "log.retention.ms").code == OK
    assert tool("configs", "describe", "--broker", 77).code == NOT_FOUND
    assert tool("configs", "describe", "--topic", "not-there").code == NOT_FOUND


def test_settings_of_groups(tool):
    altered = tool("configs", "alter", "--group", "g", "--add", "consumer.session.timeout.ms=50000")
    assert (altered.code, altered.err) == (OK, "")
    assert "consumer.session.timeout.ms  50000  set for the group" in tool("configs", "describe", "--group", "g").lines
    assert tool("configs", "alter", "--group", "g", "--delete", "consumer.session.timeout.ms").code == OK


def test_quotas_of_users_clients_and_addresses(tool):
    assert tool("quotas", "list", "--json").documents == []
    set_ = tool("quotas", "set", "--user", "alice", "producer_byte_rate=1024", "request_percentage=12.5")
    assert (set_.code, set_.err) == (OK, "")
    assert set_.lines == ["altered the quotas of user alice"]
    assert tool("quotas", "set", "--user", "alice", "--default-client", "consumer_byte_rate=9").code == OK
    assert tool("quotas", "set", "--ip", "127.0.0.9", "connection_creation_rate=5", "--json").documents == [
        {"ip": "127.0.0.9", "quotas": {"connection_creation_rate": 5.0}, "removed": [], "altered": True}
    ]
    checked = tool("quotas", "set", "--default-user", "producer_byte_rate=1", "--validate-only")
    assert checked.lines == ["would alter the quotas of default user"]
    assert [line.split() for line in tool("quotas", "list").lines] == [
        ["USER", "CLIENT", "ID", "ADDRESS", "QUOTA", "VALUE"],
        ["-", "-", "127.0.0.9", "connection_creation_rate", "5"],
        ["alice", "-", "-", "producer_byte_rate", "1,024"],
        ["alice", "-", "-", "request_percentage", "12.5"],
        ["alice", "(default)", "-", "consumer_byte_rate", "9"],
    ]
    assert tool("quotas", "list", "--user", "alice", "--strict", "--json").documents == [
        {"user": "alice", "quotas": {"producer_byte_rate": 1024.0, "request_percentage": 12.5}}
    ]
    refused = tool("quotas", "set", "--user", "alice", "producer_byte_rate=0")
    assert refused.code == REFUSED
    assert "producer_byte_rate must be greater than 0" in refused.err
    assert tool("quotas", "remove", "--user", "alice", "request_percentage").code == OK
    assert tool("quotas", "remove", "--user", "alice").code == OK
    assert tool("quotas", "remove", "--user", "alice").code == NOT_FOUND
    assert tool("quotas", "remove", "--user", "alice", "--default-client").code == OK
    assert tool("quotas", "remove", "--ip", "127.0.0.9").code == OK
    assert tool("quotas", "list").lines == []


def test_the_cluster_and_its_metadata(tool):
    name = tool.new_topic("--partitions", 2)
    (cluster,) = tool("cluster", "--json").documents
    assert f"{cluster['brokers'][0]['host']}:{cluster['brokers'][0]['port']}" == tool.bootstrap
    assert all(level >= 0 for level in cluster["features"].values())
    assert f"cluster {cluster['cluster_id']}" in tool("cluster").lines
    (metadata,) = tool("metadata", "--topic", name, "--json").documents
    assert metadata["cluster_id"] == cluster["cluster_id"]
    assert [each["topic"] for each in metadata["topics"]] == [name]
    assert len(metadata["topics"][0]["partitions"]) == 2
    assert tool("metadata", "--topic", "not-there").code == NOT_FOUND
    assert any(line.startswith(f"{name}  ") for line in tool("metadata").lines)


def test_log_directories(tool):
    name = tool.new_topic("--partitions", 2)
    tool("produce", name, "--partition", 1, stdin=b"x" * 5000)
    (directory,) = tool("log-dirs", "describe", "--topic", name, "--json").documents
    sizes = {each["partition"]: each["size_bytes"] for each in directory["replicas"]}
    assert sizes[0] == 0
    assert 5000 < sizes[1] < 6000
    assert directory["error"] is None
    assert [f"{name}-0", "0", "0", "-"] in [line.split() for line in tool("log-dirs", "describe").lines]


@pytest.mark.parametrize(
    ("redirection", "code", "words"),
    [
        ("< /dev/null", OK, "0 records to "),
        ("<&-", USAGE, "standard input is closed"),
    ],
)
def test_odd_things_on_standard_input(tool, redirection, code, words):
    name = tool.new_topic()
    command = f"exec {sys.executable} -m ottla produce {name} -b {tool.bootstrap} {redirection}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


# -- produce and consume -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compression", "acks"),
    [("none", "all"), ("none", "1"), ("gzip", "all"), ("snappy", "1"), ("lz4", "all"), ("zstd", "1")],
)
def test_lines_go_in_and_come_out(tool, compression, acks):
    name = tool.new_topic()
    lines = b"".join(b"line %d\n" % number for number in range(1000))
    sent = tool("produce", name, "--compression", compression, "--acks", acks, stdin=lines)
    assert (sent.code, sent.out) == (OK, b"")
    assert sent.err.startswith(f"1,000 records to {name}: ")
    read = tool("consume", name, "--from-beginning", "--exit")
    assert (read.code, read.out, read.err) == (OK, lines, "")


def test_what_is_not_acknowledged_arrives_too(tool):
    name = tool.new_topic()
    sent = tool("produce", name, "--acks", 0, stdin=b"a\nb\n")
    assert "2 records to " in sent.err
    assert "not acknowledged" in sent.err
    assert tool("consume", name, "--offset", 0, "--max-messages", 2).out == b"a\nb\n"


def test_keys_headers_nulls_and_bytes_that_are_no_text(tool):
    name = tool.new_topic("--partitions", 4)
    lines = b"a:1\nb:NULL\nNULL:3\n\xff\xfe:\x00\x80\na::\n:empty key\nlast:no end of line"
    options = ("--key-separator", ":", "--null-marker", "NULL", "--header", "h=1", "--header", "g=")
    sent = tool("produce", name, *options, "--json", stdin=lines)
    (summary,) = sent.documents
    assert (summary["records"], sent.err) == (7, "")

    found = _read_with_librdkafka(tool.bootstrap, name, 4, 7)
    assert {(key, value) for _, key, value, _ in found} == {
        (b"a", b"1"),
        (b"b", None),
        (None, b"3"),
        (b"\xff\xfe", b"\x00\x80"),
        (b"a", b":"),
        (b"", b"empty key"),
        (b"last", b"no end of line"),
    }
    assert all(headers == [("h", b"1"), ("g", b"")] for _, _, _, headers in found)
    # librdkafka's own partitioner of the same name puts keys in the same places.
    places = {key: partition for partition, key, _, _ in found}
    producer = Producer({"bootstrap.servers": tool.bootstrap, "partitioner": "murmur2"})
    seen: dict[bytes, int] = {}
    for key in places:
        if key is not None:
            producer.produce(
                name,
                key=key,
                value=b"",
                on_delivery=lambda error, message: seen.update({message.key() or b"": message.partition() or 0}),
            )
    assert producer.flush(WAIT_S) == 0
    assert seen == {key: partition for key, partition in places.items() if key is not None}


def _read_with_librdkafka(bootstrap: str, topic: str, partitions: int, records: int) -> list[tuple]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[tuple] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < records and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None
            found.append((message.partition(), message.key(), message.value(), message.headers()))
    consumer.close()
    return found


def test_json_goes_around(tool):
    first, second = tool.new_topic("--partitions", 3), tool.new_topic("--partitions", 3)
    lines = b"k1:v1\nk2:\xff\nk3:v3\n"
    assert tool("produce", first, "--key-separator", ":", "--header", "a=b", stdin=lines).code == OK
    read = tool("consume", first, "--from-beginning", "--exit", "--json")
    assert tool("produce", second, "--json-lines", stdin=read.out).code == OK
    copied = tool("consume", second, "--from-beginning", "--exit", "--json").documents
    expected = [{**document, "topic": second} for document in read.documents]
    order = lambda document: (document["partition"], document["offset"])  # noqa: E731
    assert sorted(copied, key=order) == sorted(expected, key=order)


def test_a_bad_line_ends_it_after_those_before(tool):
    name = tool.new_topic()
    sent = tool("produce", name, "--key-separator", ":", stdin=b"a:1\nb:2\noops\nc:3\n")
    assert sent.code == USAGE
    assert "line 3: it does not contain the separator" in sent.err
    assert tool("consume", name, "--from-beginning", "--exit", "--format", "%k=%v\\n").out == b"a=1\nb=2\n"


def test_a_line_at_a_time_arrives_at_once(tool):
    name = tool.new_topic()
    consumer = tool.start("consume", name, "--from-beginning", "--max-messages", 2)
    producer = tool.start("produce", name)
    for line in (b"first\n", b"second\n"):
        producer.stdin.write(line)
        producer.stdin.flush()
        assert consumer.stdout.readline() == line
    consumer.communicate(timeout=WAIT_S)
    producer.communicate(timeout=WAIT_S)
    assert (consumer.returncode, producer.returncode) == (OK, OK)


def test_places_to_start_and_to_end(tool):
    name = tool.new_topic("--config", "retention.ms=-1")  # the times below are of 1970
    times = b"".join(b'{"value": "%d", "timestamp": %d}\n' % (number, 1000 * number) for number in range(1, 11))
    assert tool("produce", name, "--json-lines", stdin=times).code == OK
    for options, values in (
        (("--offset", "earliest"), range(1, 11)),
        (("--offset", "7"), (8, 9, 10)),
        (("--offset", "-2"), (9, 10)),
        (("--offset", "-99"), range(1, 11)),
        (("--offset", "@4500"), range(5, 11)),
        (("--offset", "@1970-01-01T00:00:09"), (9, 10)),
        (("--offset", "@99999"), ()),
        (("--offset", "latest"), ()),
        (("--offset", "10"), ()),
        (("--from-beginning", "--max-messages", "3"), (1, 2, 3)),
        (("--from-beginning", "--max-messages", "0"), ()),
    ):
        read = tool("consume", name, "--exit", *options)
        assert (read.code, read.out.split(), read.err) == (OK, [b"%d" % value for value in values], ""), options
    refused = tool("consume", name, "--offset", "11", "--exit")
    assert refused.code == REFUSED
    assert f"{name}-0 does not have offset 11: it has 0 to 9" in refused.err


def test_a_topic_or_partition_that_does_not_exist(tool):
    name = tool.new_topic()
    for arguments in (
        ("consume", "not-there"),
        ("consume", name, "--partition", 3),
        ("produce", name, "--partition", 3),
    ):
        missing = tool(*arguments, stdin=b"x\n")
        assert (missing.code, missing.out) == (NOT_FOUND, b"")
        assert "ottla topics list" in missing.err
    missing = tool("produce", "not-there", stdin=b"x\n")
    assert missing.code == NOT_FOUND
    assert "the topic not-there does not exist" in missing.err


def test_a_record_too_large_for_the_topic_is_refused_and_batches_are_cut_to_fit(tool):
    name = tool.new_topic("--config", "max.message.bytes=2000")
    lines = b"".join(b"%0100d\n" % number for number in range(200))
    assert tool("produce", name, stdin=lines).code == OK
    assert tool("consume", name, "--from-beginning", "--exit").out == lines
    refused = tool("produce", name, stdin=b"x" * 3000)
    assert refused.code == REFUSED
    assert "max.message.bytes" in refused.err


def test_a_large_record_goes_around(tool):
    name = tool.new_topic()
    line = b"m" * 1_000_000 + b"\n"
    assert tool("produce", name, stdin=line * 3).code == OK
    assert tool("consume", name, "--from-beginning", "--exit").out == line * 3


def test_a_million_lines_arrive_once_and_in_order(tool):
    name = tool.new_topic()
    lines = b"".join(b"%d\n" % number for number in range(1_000_000))
    sent = tool("produce", name, "--compression", "lz4", stdin=lines)
    assert sent.code == OK
    assert tool("consume", name, "--from-beginning", "--exit").out == lines


def test_a_reader_that_has_seen_enough_ends_it_quietly(tool):
    name = tool.new_topic()
    tool("produce", name, stdin=b"line\n" * 200_000)
    consumer = tool.start("consume", name, "--from-beginning")
    assert consumer.stdout.readline() == b"line\n"
    consumer.stdout.close()
    assert consumer.stderr.read() == b""
    assert consumer.wait(WAIT_S) == 141
    for pipe in (consumer.stderr, consumer.stdin):
        pipe.close()


@pytest.mark.parametrize("command", ["consume", "produce"])
def test_an_interrupt_ends_it_quietly(tool, command):
    name = tool.new_topic()
    tool("produce", name, stdin=b"line\n")
    process = tool.start(command, name, *(["--from-beginning"] if command == "consume" else ["--json"]))
    if command == "consume":
        assert process.stdout.readline() == b"line\n"
    else:
        process.stdin.write(b"more\n")
        process.stdin.flush()
        deadline = time.monotonic() + WAIT_S
        while tool("consume", name, "--from-beginning", "--exit").out != b"line\nmore\n":
            assert time.monotonic() < deadline
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_S) == 130
    assert process.stderr.read() == b""
    for pipe in (process.stdin, process.stdout, process.stderr):
        pipe.close()


def test_read_committed_hides_what_was_aborted(tool):
    name = tool.new_topic()
    producer = Producer({"bootstrap.servers": tool.bootstrap, "transactional.id": name})
    producer.init_transactions(WAIT_S)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(name, value=b"%d" % number)
        producer.flush(WAIT_S)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(WAIT_S)
    committed = tool("consume", name, "--from-beginning", "--exit", "--isolation", "read_committed")
    assert (committed.code, committed.out) == (OK, b"0\n2\n4\n")
    assert tool("consume", name, "--from-beginning", "--exit").out == b"0\n1\n2\n3\n4\n5\n"
    producer.begin_transaction()
    producer.produce(name, value=b"open")
    producer.flush(WAIT_S)
    assert tool("consume", name, "--offset", 0, "--exit", "--isolation", "read_committed").out == b"0\n2\n4\n"
    producer.abort_transaction(WAIT_S)

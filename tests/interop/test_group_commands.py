"""`ottla groups` against Apache Kafka and against our broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.apache_kafka import KafkaBroker
from ottla.testing.broker import Broker
from ottla.testing.waiting import WAIT_S

OK, USAGE, NOT_FOUND, REFUSED = 0, 2, 3, 6
T0_MS = 1_700_000_000_000

_numbers = count()


@pytest.fixture(scope="module", params=["apache", "ottla"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "apache":
        with KafkaBroker(request.getfixturevalue("newest_kafka"), tmp_path_factory.mktemp("broker")) as broker:
            yield broker.bootstrap
    else:
        with Broker({"auto.create.topics.enable": "false"}) as ours:
            yield ours.bootstrap_servers


@pytest.fixture
def ottla(bootstrap: str, run_command: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: run_command(*arguments, "--bootstrap-server", bootstrap)


@pytest.fixture
def topic(bootstrap: str) -> str:
    """Two partitions with ten records each, a second apart."""
    name = f"topic-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2)])[name].result(WAIT_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce(name, b"x", partition=number % 2, timestamp=T0_MS + number // 2 * 1000)
    assert producer.flush(WAIT_S) == 0
    return name


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"


def consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 2, "client.id": "reader"})


@pytest.fixture
def committed(bootstrap: str, group: str, topic: str) -> str:
    """A group without members that has committed 4 in partition 0."""
    reader = consumer(bootstrap, group)
    reader.commit(offsets=[TopicPartition(topic, 0, 4, metadata="half way")], asynchronous=False)
    reader.close()
    return group


@contextmanager
def member_of(bootstrap: str, group: str, topic: str) -> Iterator[Consumer]:
    reader = consumer(bootstrap, group)
    reader.subscribe([topic])
    try:
        while len(reader.assignment()) < 2:
            reader.poll(0.05)
        yield reader
    finally:
        reader.close()


# -- list, describe ----------------------------------------------------------------------------------------------------


def test_groups_are_listed_and_filtered(ottla, bootstrap, committed, topic):
    busy = f"busy-{topic}"
    with member_of(bootstrap, busy, topic):
        assert {committed, busy} <= set(ottla("groups", "list").lines)
        assert committed not in ottla("groups", "list", "--state", "Stable").lines
        assert busy not in ottla("groups", "list", "--type", "consumer").lines
        listed = {each["group"]: each for each in ottla("groups", "list", "--json").documents}
    assert listed[committed] == {"group": committed, "state": "Empty", "type": "classic", "protocol_type": ""}
    assert listed[busy] == {"group": busy, "state": "Stable", "type": "classic", "protocol_type": "consumer"}


def test_a_group_without_members_is_described_with_its_lag(ottla, committed, topic):
    described = ottla("groups", "describe", committed)
    assert (described.code, described.err) == (OK, "")
    headline, *table = described.lines
    assert headline == f"{committed}  Empty  classic  0 members  coordinator 1"
    assert [line.split() for line in table] == [
        ["PARTITION", "OFFSET", "END", "LAG", "MEMBER", "HOST"],
        [f"{topic}-0", "4", "10", "6", "-", "-"],
    ]
    (document,) = ottla("groups", "describe", committed, "--json").documents
    (partition,) = document["partitions"]
    assert (partition["offset"], partition["end_offset"], partition["lag"]) == (4, 10, 6)
    assert partition["metadata"].rstrip("\0") == "half way"  # librdkafka sends the zero of its C string along
    assert partition["member"] is None
    assert (document["state"], document["members"]) == ("Empty", [])


def test_members_are_described_with_what_they_read(ottla, bootstrap, group, topic):
    with member_of(bootstrap, group, topic) as member:
        member.commit(offsets=[TopicPartition(topic, 1, 3)], asynchronous=False)
        lines = ottla("groups", "describe", group).lines
        assert lines[0] == f"{group}  Stable  classic  assignor range  1 member  coordinator 1"
        assert lines[2].split()[:4] == [f"{topic}-0", "-", "10", "-"]
        assert lines[3].split()[:4] == [f"{topic}-1", "3", "10", "7"]
        assert all(line.split()[4].startswith("reader-") for line in lines[2:])
        _, titles, line = ottla("groups", "describe", group, "--members").lines
        assert titles.split() == ["MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"]
        assert line.startswith("  reader-")
        assert line.split()[1:] == ["-", "reader", "/127.0.0.1", f"{topic}-0", f"{topic}-1"]
        (document,) = ottla("groups", "describe", group, "--json").documents
        (found,) = document["members"]
        assert found["partitions"] == [{"topic": topic, "partition": number} for number in (0, 1)]


def test_a_group_that_nobody_knows_is_told(ottla, committed):
    described = ottla("groups", "describe", "nobody", committed)
    assert described.code == NOT_FOUND
    assert described.lines[0].startswith(committed)
    assert described.err.startswith("ottla: the group nobody")
    assert "`ottla groups list`" in described.err


# -- delete ------------------------------------------------------------------------------------------------------------


def test_a_group_is_deleted_once(ottla, committed):
    deleted = ottla("groups", "delete", committed)
    assert (deleted.code, deleted.out) == (OK, f"deleted {committed}\n")
    assert ottla("groups", "delete", committed).code == NOT_FOUND
    assert ottla("groups", "delete", committed, "--if-exists", "--json").documents == [
        {"group": committed, "deleted": False}
    ]


def test_a_group_with_members_is_neither_deleted_nor_reset(ottla, bootstrap, group, topic):
    with member_of(bootstrap, group, topic):
        deleted = ottla("groups", "delete", group)
        assert deleted.code == REFUSED
        assert "stop its members first" in deleted.err
        reset = ottla("groups", "reset", group, "--topic", topic, "--to", "earliest", "--execute")
        assert reset.code == REFUSED
        assert "has 1 member" in reset.err


# -- reset -------------------------------------------------------------------------------------------------------------


def offsets(ottla: Callable[..., Any], group: str) -> dict[int, int]:
    (document,) = ottla("groups", "describe", group, "--json").documents
    return {each["partition"]: each["offset"] for each in document["partitions"]}


def test_a_reset_shows_what_it_would_do_and_does_it_when_told_to(ottla, committed, topic):
    arguments = ("groups", "reset", committed, "--topic", topic, "--to", "latest")
    shown = ottla(*arguments)
    assert shown.code == OK
    assert [line.split() for line in shown.lines] == [
        ["PARTITION", "OFFSET", "NEW", "OFFSET"],
        [f"{topic}-0", "4", "10"],
        [f"{topic}-1", "-", "10"],
    ]
    assert "--execute" in shown.err
    assert offsets(ottla, committed) == {0: 4}
    done = ottla(*arguments, "--execute", "--json")
    assert (done.code, done.err) == (OK, "")
    assert [(each["partition"], each["offset"], each["new_offset"], each["executed"]) for each in done.documents] == [
        (0, 4, 10, True),
        (1, None, 10, True),
    ]
    assert offsets(ottla, committed) == {0: 10, 1: 10}


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (("--to", "earliest"), 0),
        (("--to", "7"), 7),
        (("--to", "99"), 10),
        (("--to=-3",), 7),
        (("--to", f"@{T0_MS + 5500}"), 6),
        (("--to", "@2023-11-14T22:13:22"), 2),
        (("--to", "@2100-01-01T00:00:00"), 10),
        (("--shift-by", "3"), 7),
        (("--shift-by", "-3"), 1),
        (("--shift-by=-99",), 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_offsets_are_reset_to(ottla, committed, place: tuple[str, ...], expected: int):
    done = ottla("groups", "reset", committed, "--all-topics", *place, "--execute")
    assert (done.code, done.err) == (OK, "")
    assert offsets(ottla, committed) == {0: expected}


def test_some_partitions_of_a_group_that_is_not_there_yet_are_set(ottla, group, topic):
    done = ottla("groups", "reset", group, "--topic", f"{topic}:1", "--to", "5", "--execute")
    assert (done.code, done.lines[1].split()) == (OK, [f"{topic}-1", "-", "5"])
    assert offsets(ottla, group) == {1: 5}


def test_what_cannot_be_reset_is_told(ottla, committed, topic):
    for arguments, code, words in (
        (("--topic", "nowhere", "--to", "0"), NOT_FOUND, "the topic nowhere does not exist"),
        (("--topic", f"{topic}:7", "--to", "0"), NOT_FOUND, "no partition 7"),
        (("--topic", f"{topic}:x", "--to", "0"), USAGE, "is not a list of partitions"),
        (("--topic", topic, "--to", "soon"), USAGE, "'soon' is not a place"),
        (("--topic", f"{topic}:1", "--shift-by", "1"), NOT_FOUND, "no committed offset in"),
        (("--topic", topic), USAGE, "one of the arguments --to --shift-by is required"),
        (("--to", "0"), USAGE, "one of the arguments --topic --all-topics is required"),
    ):
        done = ottla("groups", "reset", committed, *arguments, "--execute")
        assert (done.code, words in done.err) == (code, True), done.err
    assert ottla("groups", "reset", "nobody", "--all-topics", "--to", "0").code == NOT_FOUND

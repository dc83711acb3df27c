"""`ottla transactions` against a broker: what it lists and describes, and what it aborts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from ottla.cli.command import ExitCode
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, fetch, one_batch, produce
from ottla.testing.raw_transactions import RawProducer

_names = (f"command-{number}" for number in itertools.count())


Ottla = Callable[..., Any]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"transaction.state.log.num.partitions": "3", "transaction.partition.verification.enable": "false"}
    with Broker(settings) as running:
        yield running


@pytest.fixture
def ottla(broker: Broker, run_command: Ottla, monkeypatch: pytest.MonkeyPatch) -> Ottla:
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    return partial(run_command, "transactions")


@pytest.fixture
def topic(client: RawClient) -> str:
    name = next(_names)
    assert not client.ask(create_topic(name, 2), 7).topics[0].error_code
    return name


@pytest.fixture
def busy(client: RawClient, topic: str) -> RawProducer:
    """A producer with an open transaction."""
    producer = RawProducer(client, next(_names))
    producer.init()
    producer.send(topic, b"v")
    return producer


def stable_offset(client: RawClient, topic: str) -> int:
    return int(client.ask(fetch(topic, isolation_level=1), 11).responses[0].partitions[0].last_stable_offset)


def test_a_list_names_ids_states_and_producers(ottla: Ottla, busy: RawProducer) -> None:
    found = {each["transactional_id"]: each for each in ottla("list", "--json").documents}
    assert found[busy.transactional_id] == {
        "transactional_id": busy.transactional_id,
        "state": "Ongoing",
        "producer_id": busy.producer_id,
        "coordinator": 1,
    }
    rows = [line.split() for line in ottla("list").out.splitlines()]
    assert [busy.transactional_id, "Ongoing", str(busy.producer_id), "1"] in rows


def test_a_list_is_filtered(ottla: Ottla, busy: RawProducer) -> None:
    name = busy.transactional_id
    assert [each["transactional_id"] for each in ottla("list", "--json", "--pattern", name).documents] == [name]
    assert ottla("list", "--pattern", name, "--state", "Empty").out == ""
    assert ottla("list", "--pattern", name, "--longer-than", 10**9).out == ""
    assert ottla("list", "--producer-id", busy.producer_id).out.splitlines()[1].startswith(name)
    wrong = ottla("list", "--state", "Nonsense")
    assert wrong.code == ExitCode.REFUSED
    assert "Nonsense" in wrong.err


def test_a_description_tells_what_is_open(ottla: Ottla, busy: RawProducer, topic: str) -> None:
    (described,) = ottla("describe", "--json", busy.transactional_id).documents
    assert described.pop("start_ms") > 0
    assert described == {
        "transactional_id": busy.transactional_id,
        "coordinator": 1,
        "state": "Ongoing",
        "producer_id": busy.producer_id,
        "producer_epoch": 0,
        "timeout_ms": 60_000,
        "partitions": [{"topic": topic, "partition": 0}],
    }
    assert f"  {topic}-0\n" in ottla("describe", busy.transactional_id).out


def test_an_unknown_id_is_told_and_does_not_come_into_being(ottla: Ottla, busy: RawProducer) -> None:
    done = ottla("describe", "nobody", busy.transactional_id)
    assert done.code == ExitCode.NOT_FOUND
    assert "nobody" in done.err
    assert busy.transactional_id in done.out
    assert ottla("abort", "nobody").code == ExitCode.NOT_FOUND
    assert ottla("list", "--pattern", "nobody").out == ""


def test_an_open_transaction_is_aborted_by_name(ottla: Ottla, client: RawClient, busy: RawProducer, topic: str) -> None:
    assert stable_offset(client, topic) == 0
    assert ottla("abort", "--json", busy.transactional_id).documents == [
        {"transactional_id": busy.transactional_id, "aborted": True}
    ]
    assert stable_offset(client, topic) == 2
    assert "no transaction is open" in ottla("abort", busy.transactional_id).out


def test_a_hanging_transaction_is_found_and_aborted_where_it_hangs(
    ottla: Ottla, client: RawClient, busy: RawProducer, topic: str
) -> None:
    records = one_batch(b"v", producer_id=900_900, producer_epoch=3, base_sequence=0, is_transactional=True)
    client.ask(produce(topic, records, partition=1, transactional_id="nobody"), 9)
    (hanging,) = ottla("list", "--hanging", "--json").documents
    assert (hanging["topic"], hanging["partition"], hanging["start_offset"]) == (topic, 1, 0)
    assert (hanging["producer_id"], hanging["producer_epoch"]) == (900_900, 3)
    place = ("--topic", topic, "--partition", 1, "--start-offset")
    missing = ottla("abort", *place, 5)
    assert missing.code == ExitCode.NOT_FOUND
    done = ottla("abort", *place, 0)
    assert (done.code, done.out.rstrip().endswith("aborted")) == (ExitCode.OK, True)
    assert ottla("list", "--hanging", "--topic", topic).out == ""


@pytest.mark.parametrize(
    "arguments",
    [("abort",), ("abort", "name", "--topic", "t"), ("abort", "--topic", "t"), ("list", "--topic", "t")],
    ids=" ".join,
)
def test_arguments_that_make_no_sense_together_are_refused(ottla: Ottla, arguments: tuple[str, ...]) -> None:
    assert ottla(*arguments).code == ExitCode.USAGE

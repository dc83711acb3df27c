"""The fuzzer that compares two brokers finds what is not the same, and tells it. Both are ours here: no JVM."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ottla.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from ottla.testing.broker import Broker
from ottla.testing.differential import Fuzzer
from ottla.testing.differential.drawing import draw_history
from ottla.testing.differential.history import History, Step
from ottla.testing.differential.references import Name
from ottla.testing.side_by_side import Brokers
from ottla.testing.side_by_side.brokers import OUR_SETTINGS

CREATE_TOPICS = 19


@contextmanager
def two_brokers(**settings_of_one: str) -> Iterator[Brokers]:
    with Broker(OUR_SETTINGS) as one, Broker({**OUR_SETTINGS, **settings_of_one}) as other:
        yield Brokers(one.bootstrap_servers, other.bootstrap_servers)


def new_topic(name: str) -> Step:
    own_name: Any = Name(name)  # resolved when it is sent
    topic = CreatableTopic(name=own_name, num_partitions=-1, replication_factor=-1, assignments=[], configs=[])
    return Step(CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False))


def test_two_brokers_of_the_same_kind_say_the_same() -> None:
    with two_brokers() as brokers, Fuzzer(brokers) as fuzzer:
        fuzzer.run(range(12), seconds=600)  # as long as it takes
    assert fuzzer.tally.histories == 12


def test_a_broker_that_answers_otherwise_is_found_out_with_the_one_step_that_shows_it() -> None:
    noise = draw_history(1).steps[:4]
    with two_brokers(**{"num.partitions": "3"}) as brokers, Fuzzer(brokers) as fuzzer:
        report = fuzzer.report(History(7, (*noise, (90, new_topic("new")))))
    assert report is not None
    assert "topics[0].num_partitions: Kafka says 1, we say 3" in report
    assert "again: make differential SEED=7 STEPS=90" in report


def test_an_error_in_our_log_is_a_difference_too() -> None:
    with two_brokers() as brokers, Fuzzer(brokers) as fuzzer:
        logging.getLogger("ottla.somewhere").error("this was not expected")
        report = fuzzer.report(History(7, ((0, new_topic("new")),)))
    assert report is not None
    assert "our log: ottla.somewhere: this was not expected" in report


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_seed_is_a_history(seed: int) -> None:
    assert repr(draw_history(seed)) == repr(draw_history(seed))
    assert repr(draw_history(seed)) != repr(draw_history(seed + 1))

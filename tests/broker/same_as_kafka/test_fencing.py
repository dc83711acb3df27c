"""Producers that were replaced, once, twice and many times, and come back with everything that they could send."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.testing.raw_transactions import RawProducer
from ottla.testing.side_by_side import Brokers, Conversations, TransactionSide
from ottla.testing.side_by_side.groups import wait_for_group_coordinator

pytestmark = pytest.mark.slow


class FencingSide(TransactionSide):
    """A side on which somebody of before tries all that a producer can do."""

    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        super().__init__(bootstrap_servers, prefix)
        wait_for_group_coordinator(self.client, self.name("group"))

    def try_everything(self, producer: RawProducer, topic: str, **other: Any) -> None:
        """The answers to all that names a producer; `other` is what it says in place of the truth."""
        for commit in (True, False):
            for version in (5, 4, 1):
                self.end(producer, commit=commit, version=version, **other)
        for version in (3, 1):
            self.add(producer, topic, 1, version=version, **other)
        for version in (12, 11):
            for sequence in (0, 1, 7):
                self.produce(producer, topic, sequence, version=version, **other)
        for version in (5, 3):
            self.offsets(producer, topic, version, **other)

    def try_from_behind(self, producer: RawProducer, topic: str) -> None:
        """As one, two and many epochs behind, and by the ids of others."""
        for behind in (1, 2, producer.epoch):
            if 0 < behind <= producer.epoch:
                stale = producer.epoch - behind
                self.note("behind", behind)
                self.try_everything(producer, topic, epoch=stale)
                self.try_everything(producer, topic, epoch=stale, id=self.name("nobody"))
                self.try_everything(producer, topic, epoch=stale, producer_id=10**9)


conversations = Conversations(FencingSide)


def raised(side: FencingSide, producer: RawProducer, name: str) -> None:
    """The producer introduces itself again and again: its epoch is far from the first."""
    for _ in range(5):
        producer.epoch = side.init(name).producer_epoch


@conversations.add
def fenced_while_nothing_is_open(side: FencingSide) -> None:
    topic, _ = side.new_topic("t", 2)
    side.producer("other")
    producer = side.producer("tx")
    raised(side, producer, "tx")
    side.try_from_behind(producer, topic)
    side.describe(producer.transactional_id)


@conversations.add
def fenced_while_a_transaction_is_open(side: FencingSide) -> None:
    topic, _ = side.new_topic("t", 2)
    for version in (1, 2):
        name = f"tx-{version}"
        producer = side.producer(name, version=version)
        raised(side, producer, name)
        assert not producer.send(topic, b"v").error_code
        side.try_from_behind(producer, topic)
        side.describe(producer.transactional_id)
        side.end(producer, commit=True, version=5 if version == 2 else 4)
        side.rest(producer)


@conversations.add
def fenced_after_an_end(side: FencingSide) -> None:
    topic, _ = side.new_topic("t", 2)
    for version in (1, 2):
        for commit in (True, False):
            name = f"tx-{version}-{commit}"
            producer = side.producer(name, version=version)
            raised(side, producer, name)
            assert not producer.send(topic, b"v").error_code
            producer.end(commit=commit)
            side.rest(producer)
            side.try_from_behind(producer, topic)
            side.describe(producer.transactional_id)


def ended(side: FencingSide, name: str, topic: str, ends: tuple[int, ...], *, commit: bool = True) -> RawProducer:
    """A producer after an introduction of its own and a transaction of each of these versions."""
    producer = side.producer(name)
    producer.epoch = side.init(name, producer_id=producer.producer_id, producer_epoch=0).producer_epoch
    sequence = 0
    for version in ends:
        producer.version = version
        if version == 1:
            side.add(producer, topic, 0)
        side.produce(producer, topic, sequence, version=12 if version == 2 else 11)
        producer.end(commit=commit)
        side.rest(producer)
        sequence = 0 if version == 2 else sequence + 1
    return producer


@conversations.add
def introductions_with_earlier_epochs(side: FencingSide) -> None:
    """Ends of both versions in turn, and after each the epochs of before ask for a new one."""
    topic, _ = side.new_topic("t", 2)
    for ends in ((2,), (1,), (2, 1), (1, 2), (2, 2), (2, 1, 1), (2, 2, 1)):
        for commit in (True, False):
            for behind in (0, 1, 2, 3):
                name = f"tx-{'-'.join(map(str, ends))}-{commit}-{behind}"
                producer = ended(side, name, topic, ends, commit=commit)
                if behind <= producer.epoch:
                    known: dict[str, Any] = {
                        "producer_id": producer.producer_id,
                        "producer_epoch": producer.epoch - behind,
                    }
                    side.init(name, **known)
                    side.init(name, **known)
                    side.describe(producer.transactional_id)


@conversations.add
def introductions_while_a_transaction_is_open(side: FencingSide) -> None:
    topic, _ = side.new_topic("t")
    for ends in ((), (2,), (1,), (2, 1)):
        for behind in (1, 0):
            name = f"tx-{'-'.join(map(str, ends))}-{behind}"
            producer = ended(side, name, topic, ends)
            side.add(producer, topic, 0)
            known: dict[str, Any] = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch - behind}
            side.init(name, **known, waits=False)
            side.rest(producer)
            side.init(name, **known)
            side.init(name, **known)


@conversations.add
def lists_by_odd_patterns(side: FencingSide) -> None:
    side.producer("tx")
    for pattern in (
        "[",
        "(",
        "*",
        "tx",
        ".*tx",
        ".*[t]x",
        "(?i).*TX",
        ".*-tx$",
        r".*\btx",
        r".*\Qtx\E",
        ".*t{1}x",
        "x{2,1}",
    ):
        side.list(transactional_id_pattern=pattern)
        side.list(transactional_id_pattern=pattern, state_filters=["Empty", "Nonsense"])


@pytest.mark.parametrize("title", conversations.titles)
def test_the_answers_are_those_of_apache_kafka(title: str, brokers: Brokers) -> None:
    conversations.play(title, brokers)

"""Conversations that are played to two brokers find what is not the same. Both are ours here: no JVM is needed."""

from __future__ import annotations

import pytest

from ottla.testing.broker import Broker
from ottla.testing.raw_requests import create_topic, metadata
from ottla.testing.side_by_side import Brokers, Conversations, GroupSide, Side

conversations = Conversations(Side)


@conversations.add
def a_topic_of_the_usual_size(side: Side) -> None:
    side.ask(create_topic(side.name("usual"), -1, -1), 7)
    side.ask(metadata(side.name("usual")), 12)


@conversations.add
def silence(side: Side) -> None:
    pass


def played(title: str, **settings_of_ours: str) -> None:
    settings = {name.replace("_", "."): value for name, value in settings_of_ours.items()}
    with Broker() as other, Broker(settings) as ours:
        conversations.play(title, Brokers(other.bootstrap_servers, ours.bootstrap_servers))


def test_two_brokers_of_the_same_kind_say_the_same() -> None:
    played("a topic of the usual size")


def test_a_broker_that_answers_otherwise_is_found_out() -> None:
    with pytest.raises(
        AssertionError, match=r"line 0, CreateTopicsRequest v7:\n .*num_partitions: Kafka says 1, we say 3"
    ):
        played("a topic of the usual size", num_partitions="3")


def test_a_conversation_in_which_nothing_is_said_proves_nothing() -> None:
    with pytest.raises(AssertionError, match="says nothing"):
        played("silence")


def test_a_title_is_given_once() -> None:
    own = Conversations(GroupSide)

    def hello(side: GroupSide) -> None:
        raise NotImplementedError

    own.add(hello)
    assert own.titles == ["hello"]
    with pytest.raises(AssertionError, match="another conversation 'hello'"):
        own.add(hello)

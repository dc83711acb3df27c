"""Clients as members of groups: they read, commit and go on from there, and share partitions with each other."""

from __future__ import annotations

from itertools import count

import pytest

from ottla.testing.clients import CLIENTS, Sent

PARTITIONS = 4
RECORDS = 20

numbers = count()


@pytest.fixture
def group() -> str:
    return f"group-{next(numbers)}"


@pytest.fixture
def write(drivers):
    """Writes values to all partitions of a topic, by a client that is not the one on trial."""
    writer = drivers.of(next(client for client in CLIENTS if client.name == "confluent-kafka"))

    def write(topic: str, values: range) -> None:
        writer.produce(topic, [Sent(b"%d" % value, partition=value % PARTITIONS) for value in values])

    return write


@pytest.mark.feature("read in a group, commit, go on")
def test_a_member_goes_on_where_the_one_before_it_committed(driver, make_topic, write, group):
    topic = make_topic(PARTITIONS)
    for first in (0, RECORDS):
        write(topic, range(first, first + RECORDS))
        seen = driver.read_in_group(topic, group, RECORDS)
        assert sorted(map(int, seen)) == list(range(first, first + RECORDS))


@pytest.mark.feature("share partitions in a group")
def test_two_members_share_the_partitions_and_one_takes_over_from_the_other(driver, make_topic, group):
    topic = make_topic(PARTITIONS)
    shares = driver.do("share_in_group", topic=topic, group=group, partitions=PARTITIONS)["shares"]
    assert sum(shares) == PARTITIONS

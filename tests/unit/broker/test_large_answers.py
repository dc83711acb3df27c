"""Which answers are too large to be encoded at once, and what they are made of."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.broker.large_messages import is_large, structs_of
from ottla.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseAssignment,
    ConsumerGroupDescribeResponseTopicPartitions,
    DescribedGroup,
    Member,
)
from ottla.protocol.messages.groups import DescribedGroup as ClassicGroup
from ottla.protocol.messages.groups import DescribedGroupMember, DescribeGroupsResponse
from ottla.testing.messages import smallest_message

TOPIC_ID = UUID(int=1)


@pytest.mark.parametrize(("count", "expected"), [(10, False), (1900, False), (2100, True)])
def test_elements_count_in_structs_that_are_no_element_of_anything(count: int, expected: bool) -> None:
    partitions = ConsumerGroupDescribeResponseTopicPartitions(
        topic_id=TOPIC_ID, topic_name="t", partitions=list(range(count))
    )
    member, group = smallest_message(Member, 0), smallest_message(DescribedGroup, 0)
    member.assignment = ConsumerGroupDescribeResponseAssignment(topic_partitions=[partitions])
    group.members = [member]
    assert is_large(ConsumerGroupDescribeResponse(groups=[group])) is expected


@pytest.mark.parametrize(("size_bytes", "expected"), [(0, False), (1_900_000, False), (2_100_000, True)])
def test_what_clients_wrote_counts_by_its_size(size_bytes: int, expected: bool) -> None:
    member, group = smallest_message(DescribedGroupMember, 4), smallest_message(ClassicGroup, 4)
    member.member_metadata = bytes(size_bytes)
    group.members = [member]
    assert is_large(DescribeGroupsResponse(groups=[group])) is expected


def test_the_structs_of_a_message_are_listed_each_before_those_that_it_holds() -> None:
    partitions = ConsumerGroupDescribeResponseTopicPartitions(topic_id=TOPIC_ID, topic_name="t", partitions=[1, 2])
    members = [smallest_message(Member, 0) for _ in range(2)]
    members[1].assignment = ConsumerGroupDescribeResponseAssignment(topic_partitions=[partitions])
    group = smallest_message(DescribedGroup, 0)
    group.members = members
    message = ConsumerGroupDescribeResponse(groups=[group])
    structs = structs_of(message)
    places = [
        next(place for place, struct in enumerate(structs) if struct is one)
        for one in (message, group, members[1], members[1].assignment, partitions)
    ]
    assert places == sorted(places)
    assert len(structs) == 2 + 2 * 3 + 1, "each member has two assignments"

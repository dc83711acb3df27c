"""Two transcripts: what is told by its order, what by its kind, and how a difference is told."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.groups import (
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupResponse,
    MemberResponse,
)
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from ottla.testing.side_by_side.transcript import Line, Transcript, first_difference


def transcript_of(*answers: Any) -> list[Line]:
    transcript = Transcript()
    for answer in answers:
        transcript.add("Question v0", answer)
    return transcript.lines


def of_session(session_id: int) -> FetchResponse:
    return FetchResponse(session_id=session_id, responses=[])


def of_topic(topic_id: UUID) -> MetadataResponse:
    broker = MetadataResponseBroker(node_id=1, host="somewhere", port=9)
    topic = MetadataResponseTopic(name="t", topic_id=topic_id, error_code=0, partitions=[])
    return MetadataResponse(brokers=[broker], topics=[topic], cluster_id=str(uuid4()))


def test_ids_of_two_brokers_are_the_same_when_they_come_in_the_same_order() -> None:
    first, second = uuid4(), uuid4()
    theirs = transcript_of(of_session(5), of_session(9), of_session(5), of_topic(first), of_topic(first))
    ours = transcript_of(of_session(7), of_session(8), of_session(7), of_topic(second), of_topic(second))
    assert first_difference(theirs, ours) is None


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ([of_session(5), of_session(5)], [of_session(7), of_session(8)]),
        ([of_session(5)], [of_session(0)]),
        ([of_topic(UUID(int=1)), of_topic(UUID(int=1))], [of_topic(UUID(int=1)), of_topic(UUID(int=2))]),
        ([of_topic(UUID(int=1))], [of_topic(UUID(int=0))]),
    ],
)
def test_an_id_that_changes_or_is_missing_on_one_side_is_a_difference(theirs: list[Any], ours: list[Any]) -> None:
    assert first_difference(transcript_of(*theirs), transcript_of(*ours)) is not None


def fetched(error_code: int = 0, **fields: Any) -> FetchResponse:
    partition = PartitionData(
        **{"partition_index": 0, "error_code": error_code, "high_watermark": 3, "records": b"", **fields}
    )
    return FetchResponse(error_code=0, responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


def test_a_difference_names_the_line_the_field_and_what_both_said() -> None:
    theirs = transcript_of(fetched(), fetched(high_watermark=3))
    ours = transcript_of(fetched(), fetched(high_watermark=4, error_code=1))
    assert first_difference(theirs, ours) == (
        "line 1, Question v0:"
        "\n  the answer.responses[0].partitions[0].error_code: Kafka says 0, we say 1"
        "\n  the answer.responses[0].partitions[0].high_watermark: Kafka says 3, we say 4"
        "\n  the answer.responses[0].partitions[0].aborted_transactions: Kafka says [], we say nothing"
    )


def test_bytes_are_compared_however_they_are_held() -> None:
    held = transcript_of(fetched(records=memoryview(b"abc")))
    assert first_difference(held, transcript_of(fetched(records=b"abc"))) is None
    assert first_difference(held, transcript_of(fetched(records=b"abd"))) is not None


def test_a_transcript_that_is_longer_or_was_asked_something_else_is_a_difference() -> None:
    one = [Line("Question v0", 1)]
    assert first_difference(one, [*one, *one]) is not None
    assert first_difference([*one, *one], one) is not None
    assert first_difference(one, [Line("Question v1", 1)]) is not None


def test_members_are_a_set_where_kafka_keeps_one_and_a_list_where_it_was_asked_in_order() -> None:
    def joined(*members: str) -> JoinGroupResponse:
        listed = [JoinGroupResponseMember(member_id=each, metadata=b"") for each in members]
        return JoinGroupResponse(
            error_code=0, generation_id=1, protocol_name="range", leader="a", member_id="a", members=listed
        )

    def left(*members: str) -> LeaveGroupResponse:
        listed = [MemberResponse(member_id=each, group_instance_id=None, error_code=0) for each in members]
        return LeaveGroupResponse(error_code=0, members=listed)

    assert first_difference(transcript_of(joined("a", "b")), transcript_of(joined("b", "a"))) is None
    assert first_difference(transcript_of(left("a", "b")), transcript_of(left("b", "a"))) is not None

"""Readers and brokers agree on what a fetch session asks for, whatever gets lost between them."""

from __future__ import annotations

import random
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.replication.fetch_requests import FetchKey, FetchPosition, FetchSessionReader, SessionPart
from ottla.replication.fetch_sessions import FetchSessions
from ottla.testing.steps import finished

VERSION = 17
KEYS = [FetchKey("", UUID(int=topic), partition) for topic in (1, 2) for partition in (0, 1, 2)]


def ask(sessions: FetchSessions, part: SessionPart) -> tuple[FetchResponse, dict[FetchKey, int]]:
    """What the broker answers, and what it takes the reader to ask for."""
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_id=part.session_id,
        session_epoch=part.session_epoch,
        topics=part.topics,
        forgotten_topics_data=part.forgotten,
    )
    try:
        plan = finished(sessions.plan(request, VERSION, now_ms=0))
    except ApiError as error:
        return FetchResponse(error_code=error.code, responses=[]), {}
    asked = {FetchKey(*key): wanted.fetch_offset for key, wanted in plan.wanted}
    return FetchResponse(session_id=plan.session_id, responses=[]), asked


STEPS = st.tuples(
    st.dictionaries(st.sampled_from(KEYS), st.integers(0, 3).map(FetchPosition), min_size=1),
    st.sampled_from(["answered", "answered", "answered", "lost request", "lost answer", "broker forgets"]),
)


@given(st.lists(STEPS, max_size=30), st.sampled_from([0, 1, 10]))
def test_both_sides_mean_the_same_partitions_and_offsets(
    steps: list[tuple[dict[FetchKey, FetchPosition], str]], slots: int
) -> None:
    sessions = FetchSessions(random.Random(1), slots)
    reader = FetchSessionReader()
    for wanted, fate in steps:
        if fate == "broker forgets":
            sessions = FetchSessions(random.Random(2), slots)
        part = reader.next_request(wanted)
        if fate == "lost request":
            reader.failed()
            continue
        response, asked = ask(sessions, part)
        if fate == "lost answer":
            reader.failed()
        elif reader.answered(response):
            assert asked == {key: position.offset for key, position in wanted.items()}
        else:
            # The next one starts anew and is understood.
            response, asked = ask(sessions, reader.next_request(wanted))
            assert reader.answered(response)
            assert asked == {key: position.offset for key, position in wanted.items()}


def test_later_requests_name_only_what_changed() -> None:
    sessions, reader = FetchSessions(random.Random(1)), FetchSessionReader()
    wanted = dict.fromkeys(KEYS, FetchPosition(5))
    first = reader.next_request(wanted)
    assert sum(len(topic.partitions) for topic in first.topics) == len(KEYS)
    reader.answered(ask(sessions, first)[0])
    wanted[KEYS[1]] = FetchPosition(6)
    del wanted[KEYS[4]]
    second = reader.next_request(wanted)
    assert [(topic.topic_id, [each.partition for each in topic.partitions]) for topic in second.topics] == [
        (KEYS[1].topic_id, [1])
    ]
    assert [(topic.topic_id, topic.partitions) for topic in second.forgotten] == [(KEYS[4].topic_id, [1])]
    assert reader.answered(ask(sessions, second)[0])
    third = reader.next_request(wanted)
    assert (third.topics, third.forgotten) == ([], [])
    assert third.session_epoch == 2


def test_an_error_of_the_session_is_no_answer_about_partitions() -> None:
    reader = FetchSessionReader()
    reader.next_request(dict.fromkeys(KEYS, FetchPosition(0)))
    assert not reader.answered(FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, responses=[]))
    assert reader.next_request({}).session_epoch == 0

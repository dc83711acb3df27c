"""The reader's side of fetch sessions (KIP-227): what a Fetch request has to say, given what the other side knows.

The first request of a session names everything, later ones what is new or changed and what is forgotten. An error of
the session, or an answer that did not come, begins a new one. Pure; followers and consumers share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from ottla.replication.fetch_sessions import EPOCH_MAX, FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION

SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class FetchKey(NamedTuple):
    """A partition of a topic; both of its names, because old leaders know topics by name and new ones by id."""

    topic: str
    topic_id: UUID
    partition: int


class FetchPosition(NamedTuple):
    """Where a reader stands in a partition, as its requests say it."""

    offset: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    bytes_max: int = 1024 * 1024


class SessionPart(NamedTuple):
    """The part of a Fetch request that depends on the session."""

    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class FetchSessionReader:
    """One session with one broker. One request at a time: `next_request`, then `answered` or `failed`."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._known: dict[FetchKey, FetchPosition] = {}

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def epoch(self) -> int:
        """Of the next request."""
        return self._epoch

    @property
    def is_established(self) -> bool:
        """Whether the next request goes on with a session of the other side."""
        return self._session_id != NO_SESSION and self._epoch != INITIAL_EPOCH

    @property
    def known(self) -> Mapping[FetchKey, FetchPosition]:
        """What the last request asked for, whether it had to say so or not."""
        return self._known

    def next_request(self, wanted: Mapping[FetchKey, FetchPosition]) -> SessionPart:
        """What to send in order to ask for `wanted`."""
        known, self._known = self._known, dict(wanted)
        if self._epoch == INITIAL_EPOCH:
            return SessionPart(self._session_id, INITIAL_EPOCH, _topics(wanted), [])
        changed = {key: position for key, position in wanted.items() if known.get(key) != position}
        forgotten: dict[tuple[str, UUID], ForgottenTopic] = {}
        for key in known:
            if key not in wanted:
                topic = forgotten.setdefault(
                    key[:2], ForgottenTopic(topic=key.topic, topic_id=key.topic_id, partitions=[])
                )
                topic.partitions.append(key.partition)
        return SessionPart(self._session_id, self._epoch, _topics(changed), list(forgotten.values()))

    def answered(self, response: FetchResponse) -> bool:
        """Takes the session from an answer; whether its partitions may be looked at."""
        if response.error_code:
            self.failed()
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = NO_SESSION  # nothing is left to close
            return False
        if response.session_id == NO_SESSION:
            # No room on the other side: every request names everything.
            self._session_id, self._epoch = NO_SESSION, INITIAL_EPOCH
        elif response.session_id != self._session_id or self._epoch == INITIAL_EPOCH:
            self._session_id, self._epoch = response.session_id, 1
        else:
            self.advance()
        return True

    def note_positions(self, changed: Iterable[tuple[FetchKey, FetchPosition]]) -> None:
        """The next request says of partitions that are known already where the reader stands now."""
        self._known.update(changed)

    def advance(self) -> None:
        """An answer of this session came, without an error."""
        self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1

    def last_request(self) -> SessionPart | None:
        """What ends the session, so that the other side need not keep it; None where there is none."""
        session_id, self._session_id = self._session_id, NO_SESSION
        self.failed()
        return None if session_id == NO_SESSION else SessionPart(session_id, FINAL_EPOCH, [], [])

    def failed(self) -> None:
        """No answer came, or none that counts: the other side may know more or less than we think."""
        self._epoch = INITIAL_EPOCH


def without_last_epochs(topics: Iterable[FetchTopic]) -> None:
    """Leaves out what the versions of Fetch before 12 cannot say: a reader of these asks for it in another way."""
    for topic in topics:
        for partition in topic.partitions:
            partition.last_fetched_epoch = -1


def _topics(positions: Mapping[FetchKey, FetchPosition]) -> list[FetchTopic]:
    topics: dict[tuple[str, UUID], FetchTopic] = {}
    for key, position in positions.items():
        topic = topics.get(key[:2])
        if topic is None:
            topic = topics[key[:2]] = FetchTopic(topic=key.topic, topic_id=key.topic_id, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=key.partition,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.offset,
                last_fetched_epoch=position.last_fetched_epoch,
                log_start_offset=position.log_start_offset,
                partition_max_bytes=position.bytes_max,
            )
        )
    return list(topics.values())

"""A follower's next Fetch, which goes on with its session and names only the partitions that have moved.

Where a follower is in sync, nearly all of its requests are of one kind: it says how far it has come with what it got
last, and waits for more. The general way reads such a request to objects, looks at every partition of the session and
takes a task to wait. Here the bytes are compared with those of the request before (`replication/fetch_frames.py`), and
only the partitions that are named or have moved are looked at: each of the session is watched, for as long as the
connection lasts. A request costs as much as there is news in it, however many partitions the session has.

What is the least bit unusual goes the general way: another leader epoch, a history that differs, a replica that is not
in sync, an error. A request that waits here when that happens is answered with the records that are there, so that the
next one can go that way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from ottla.broker.partition import Partition
from ottla.broker.repeated import LateAnswer
from ottla.broker.replication_quotas import ReplicationQuota
from ottla.errors import ApiError, StorageError
from ottla.net.connection import Connection
from ottla.net.outbox import Part
from ottla.protocol.frames import frame_length
from ottla.protocol.messages.fetch import FetchRequest
from ottla.replication.fetch_frames import CORRELATION_ID_AT, FetchedPartition, FetchTemplate, write_response
from ottla.replication.fetch_sessions import FetchSession, FetchSessions, Reported, WantedKey, WantedPartition
from ottla.replication.leader import LastFetch, Leader
from ottla.runtime.clock import Clock
from ottla.runtime.deadline import Deadline
from ottla.storage.file_slice import FileSlice

FETCH_KEY: Final = 1
LOOKED_AT_MAX: Final = 256  # partitions with news in one request: a millisecond or two
FRAME_BYTES_MAX: Final = 16 * 1024  # of a request about as many, and more than enough besides
INLINE_BYTES_MAX: Final = 32 * 1024  # of records that are copied into a response: it leaves in one piece
CORRELATION_ID_BYTES: Final = 4


class Leading(NamedTuple):
    """What a leader needs in order to serve its followers."""

    sessions: FetchSessions
    quota: ReplicationQuota
    clock: Clock
    bytes_max: Callable[[], int]  # of a response, as it is set now
    is_stopping: Callable[[], bool]


class FollowerSession(NamedTuple):
    """A session, and whose it is."""

    node_id: int
    broker_epoch: int  # of the registration in which it asks
    session: FetchSession
    asked_ms: int  # when its last request came
    changes: int  # of the session by then


class _Place:
    """A partition of the session, as it was led when it was learned."""

    __slots__ = ("index", "leader", "partition", "topic_id", "wanted")

    def __init__(self, key: WantedKey, wanted: WantedPartition, partition: Partition, leader: Leader) -> None:
        self.topic_id = key.topic_id.bytes
        self.index = key.partition
        self.wanted = wanted
        self.partition = partition
        self.leader = leader


class FollowerFetches(LateAnswer):
    """What is remembered of a follower's session, and its request that waits."""

    __slots__ = (
        "_broker_epoch",
        "_bytes_max",
        "_changes",
        "_correlation_id",
        "_deadline",
        "_has_trouble",
        "_is_due",
        "_is_forgotten",
        "_is_parked",
        "_last_fetch",
        "_leading",
        "_loop",
        "_moved",
        "_node_id",
        "_numbers",
        "_places",
        "_sent",
        "_session",
        "_template",
        "_wait_s",
    )

    api_key = FETCH_KEY
    ends_with_peer = True

    def __init__(
        self, leading: Leading, follower: FollowerSession, template: FetchTemplate, request: FetchRequest
    ) -> None:
        super().__init__()
        session = follower.session
        self._leading = leading
        self._node_id = follower.node_id
        self._broker_epoch = follower.broker_epoch
        self._session = session
        self._template = template
        self._wait_s = request.max_wait_ms / 1000
        self._bytes_max = request.max_bytes
        self._loop = asyncio.get_running_loop()
        self._deadline = Deadline(self._loop, self._look)
        self._places: list[_Place] = []
        self._numbers: dict[tuple[bytes, int], int] = {}
        self._moved: dict[int, None] = {}  # places that are to be looked at, the longest waiting first
        self._sent: list[int] = []  # places whose records were in the last response
        self._last_fetch = LastFetch(follower.asked_ms)
        self._correlation_id = b""
        self._is_parked = False
        self._is_due = False  # whether it is about to be looked at
        self._is_forgotten = False
        self._has_trouble = False  # a partition has to say something out of the ordinary
        self._changes = follower.changes

    def add(
        self, key: WantedKey, wanted: WantedPartition, partition: Partition, leader: Leader, *, has_moved: bool
    ) -> None:
        """A partition of the session, which was looked at just now; `has_moved` since, or there is more of it."""
        assert not self._is_forgotten, "nobody would let go of it again"
        number = len(self._places)
        place = _Place(key, wanted, partition, leader)
        self._places.append(place)
        self._numbers[place.topic_id, place.index] = number
        leader.followers[self._node_id].last_fetch = self._last_fetch
        partition.moved.watch(self, number)
        if has_moved:
            self._moved[number] = None

    # -- a request -----------------------------------------------------------------------------------------------------

    def repeat(self, connection: Connection, frame: memoryview) -> list[Part] | LateAnswer | None:
        """The response to a request that is like the last, or the promise of it; None where it goes the general way."""
        session, places = self._session, self._places
        if self._is_forgotten or self._has_trouble or session.changes != self._changes or len(frame) > FRAME_BYTES_MAX:
            return None
        read = self._template.read(bytes(frame))
        if read is None:
            return None
        epoch, asked = read
        if not self._leading.sessions.is_current(session, epoch) or max(len(asked), len(self._moved)) > LOOKED_AT_MAX:
            return None
        looked: dict[int, None] = {}
        for one in asked:
            number = self._numbers.get((one.topic_id, one.partition))
            position = one.position
            if number is None or number in looked or position.bytes_max <= 0:
                return None
            if not self._is_usual(places[number], position.leader_epoch, position.offset, position.last_fetched_epoch):
                return None
            looked[number] = None
        others = [number for number in dict.fromkeys((*self._moved, *self._sent)) if number not in looked]
        if len(looked) + len(others) > LOOKED_AT_MAX or not self._are_usual(others):
            return None
        now_ms = self._leading.clock.steady_ms()
        self._leading.sessions.advance(session, now_ms)
        self._last_fetch.at_ms = now_ms
        for one, number in zip(asked, looked, strict=True):
            entry = places[number].wanted.entry
            (
                entry.fetch_offset,
                entry.current_leader_epoch,
                entry.last_fetched_epoch,
                entry.log_start_offset,
                entry.partition_max_bytes,
            ) = one.position
        for number in (*looked, *others):
            place = places[number]
            entry = place.wanted.entry
            place.partition.record_fetch(
                self._node_id, entry.fetch_offset, entry.log_start_offset, now_ms, self._broker_epoch
            )
            if place.partition.log.end_offset > entry.fetch_offset:
                self._moved[number] = None
        self._sent.clear()
        self._correlation_id = bytes(frame[CORRELATION_ID_AT : CORRELATION_ID_AT + CORRELATION_ID_BYTES])
        if self._wait_s <= 0 or self._leading.is_stopping() or any(map(self._has_more, self._moved)):
            return self._response()
        self.connection = connection
        self._is_parked = True
        self._deadline.set(self._loop.time() + self._wait_s)
        return self

    def _has_more(self, number: int) -> bool:
        place = self._places[number]
        return place.partition.log.end_offset > place.wanted.entry.fetch_offset

    def _are_usual(self, numbers: Iterable[int]) -> bool:
        for number in numbers:
            place = self._places[number]
            entry = place.wanted.entry
            if not self._is_usual(place, entry.current_leader_epoch, entry.fetch_offset, entry.last_fetched_epoch):
                return False
        return True

    def _is_usual(self, place: _Place, leader_epoch: int, offset: int, last_fetched_epoch: int) -> bool:
        """Whether there is nothing to say of it but what is new: all else is for the general way."""
        partition, leader = place.partition, place.leader
        log = partition.log
        if (
            partition.current_leader is not leader
            or leader_epoch != leader.epoch
            or self._node_id not in leader.isr
            or leader.is_outdated(self._node_id, self._broker_epoch)
            or not log.log_start_offset <= offset <= log.end_offset
        ):
            return False
        if last_fetched_epoch < 0 or last_fetched_epoch == log.epochs.latest:
            return True
        epoch, end_offset = log.epochs.end_of(last_fetched_epoch, log.end_offset)
        return epoch >= last_fetched_epoch and end_offset >= offset

    # -- waiting -------------------------------------------------------------------------------------------------------

    def note(self, place: int) -> None:
        """A partition has moved. What is worth an answer is answered in another turn, with all that came by then."""
        self._moved[place] = None
        if self._is_parked and not self._is_due and self._is_worth_an_answer(place):
            self._is_due = True
            self._loop.call_soon(self._look)

    def _is_worth_an_answer(self, number: int) -> bool:
        place = self._places[number]
        return (
            place.partition.current_leader is not place.leader or self._has_more(number) or self._leading.is_stopping()
        )

    def _look(self) -> None:
        """Answers the request that waits: there is something to say, or its time is up."""
        self._is_due = False
        if self._is_parked:
            self._is_parked = False
            self._deadline.clear()
            self.answer(self._response())

    @property
    def has_too_many(self) -> bool:
        """Whether more partitions have moved than the next request may be about."""
        return len(self._moved) > LOOKED_AT_MAX

    @property
    def is_forgotten(self) -> bool:
        return self._is_forgotten

    def cancel(self) -> None:
        self._is_parked = False
        super().cancel()

    def forget(self) -> None:
        """None of it holds any longer. A request that waits is answered."""
        if self._is_forgotten:
            return
        self._is_forgotten = True
        self._deadline.close()
        for place in self._places:
            place.partition.moved.unwatch(self)
        if self._is_parked:
            self._loop.call_soon(self._look)

    # -- the response --------------------------------------------------------------------------------------------------

    def _response(self) -> list[Part]:
        fetched: list[FetchedPartition] = []
        room = min(self._bytes_max, self._leading.bytes_max())
        inline_room = INLINE_BYTES_MAX
        left: dict[int, None] = {}
        for count, number in enumerate(self._moved):
            place, one = self._places[number], None
            is_first = not self._sent
            if count < LOOKED_AT_MAX:
                one = self._fetched(place, room, inline_room, is_first=is_first) if self._are_usual((number,)) else None
                # The general way has to say why there is nothing.
                self._has_trouble |= one is None or (is_first and one.size_bytes == 0 and self._has_more(number))
            if one is None or (one.size_bytes == 0 and self._has_more(number)):
                left[number] = None  # there was no room, or no time
            if one is None:
                continue
            if one.size_bytes:
                room -= one.size_bytes
                inline_room -= one.size_bytes
                self._sent.append(number)
            elif not self._is_news(place, one):
                continue
            place.wanted.reported = Reported(one.high_watermark, one.log_start_offset)
            fetched.append(one)
        self._moved = left
        parts = write_response(self._correlation_id, self._session.session_id, fetched)
        size = sum(len(part) if type(part) is bytes else part.size_bytes for part in parts)
        parts[0] = frame_length(size) + parts[0]
        return parts

    def _is_news(self, place: _Place, one: FetchedPartition) -> bool:
        return place.wanted.reported != (one.high_watermark, one.log_start_offset)

    def _fetched(self, place: _Place, room: int, inline_room: int, *, is_first: bool) -> FetchedPartition | None:
        """What a partition has for the follower; None where it cannot be read."""
        partition, entry = place.partition, place.wanted.entry
        records: FileSlice | bytes = b""
        end_offset = partition.log.end_offset
        if end_offset > entry.fetch_offset and (room > 0 or is_first):
            bytes_max = min(entry.partition_max_bytes, max(0, room))
            try:
                found = partition.tail_from(entry.fetch_offset, bytes_max)
                if found is None:
                    read = partition.read(entry.fetch_offset, bytes_max, upper_offset=end_offset, at_least_one=is_first)
                    found = None if read is None else read.records
                if found is not None:
                    self._leading.quota.record(partition.name, partition.log.config, found.size_bytes)
                    records = found.read() if found.size_bytes <= inline_room else found
            except (ApiError, StorageError):
                return None
        return FetchedPartition(place.topic_id, place.index, *partition.watermarks, records)

"""Fetch sessions (KIP-227): a reader names its partitions once, then only what changes.

The cache is bounded: when it is full, a session that was not used for a while makes room; if there is none, the reader
goes on without. Nothing here is durable; a reader that meets a broker that forgot its session starts a new one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest
from ottla.protocol.wire import ZERO_UUID
from ottla.replication.leader import UNKNOWN_BROKER_EPOCH

if TYPE_CHECKING:
    import random

Result = TypeVar("Result")
Steps: TypeAlias = Generator[None, None, Result]  # others have their turn between two of them

STEP = 16  # partitions
NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
SESSION_ID_MAX = 2**31 - 1
SLOTS_DEFAULT = 1000  # max.incremental.fetch.session.cache.slots
EVICTION_MS = 120_000  # a session that was used since then keeps its place


class WantedKey(NamedTuple):
    """A partition as the reader names it: by topic name until version 12, by topic id from 13 on."""

    topic: str
    topic_id: UUID
    partition: int


class Reported(NamedTuple):
    """What was last reported of a partition; an incremental answer leaves it out unless it changed."""

    high_watermark: int
    log_start_offset: int


NOTHING_REPORTED = Reported(-1, -1)


# What topics are called, by their ids, at one moment.
Names: TypeAlias = Mapping[UUID, str]
NO_NAMES: Final[Names] = MappingProxyType({})


class WantedPartition:
    """A partition of a session: what the reader asked for last, and what it knows."""

    __slots__ = ("entry", "name", "reported")

    def __init__(self, entry: FetchPartition, name: str | None) -> None:
        self.entry = entry
        # What the topic was called when the reader named it by id; None if nobody knew the id.
        self.name = name
        self.reported = NOTHING_REPORTED


class FetchSession:
    """One reader's partitions, in the order in which they are served."""

    __slots__ = ("changes", "epoch", "last_used_ms", "partitions", "session_id", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.changes = 0  # requests that may have changed what is wanted: who remembers that looks again
        self.last_used_ms = now_ms
        self.partitions: OrderedDict[WantedKey, WantedPartition] = OrderedDict()

    def add(
        self, named: list[tuple[WantedKey, FetchPartition]], names: Names, *, is_follower: bool = False
    ) -> Steps[None]:
        """A follower that names a partition in another epoch did not get what was reported in the one before."""
        for number, (key, entry) in enumerate(named, 1):
            if number % STEP == 0:
                yield
            wanted = self.partitions.get(key)
            if wanted is None:
                self.partitions[key] = WantedPartition(entry, names.get(key.topic_id))
            else:
                if is_follower and wanted.entry.current_leader_epoch != entry.current_leader_epoch:
                    wanted.reported = NOTHING_REPORTED
                wanted.entry = entry

    def forget(self, request: FetchRequest) -> Steps[None]:
        number = 0
        for forgotten in request.forgotten_topics_data:
            for partition in forgotten.partitions:
                self.partitions.pop(WantedKey(forgotten.topic, forgotten.topic_id, partition), None)
                number += 1
                if number % STEP == 0:
                    yield

    def advance(self, now_ms: int) -> None:
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        self.last_used_ms = now_ms


class FetchPlan:
    """What one Fetch request wants, and which of the results its answer has to carry."""

    __slots__ = ("_is_incremental", "_names", "_session", "_wanted")

    def __init__(
        self,
        session: FetchSession | None,
        wanted: list[tuple[WantedKey, FetchPartition]],
        names: Names,
        *,
        is_incremental: bool,
    ) -> None:
        self._session = session
        self._wanted = wanted
        self._names = names
        self._is_incremental = is_incremental

    @property
    def session_id(self) -> int:
        return NO_SESSION if self._session is None else self._session.session_id

    @property
    def continued_session(self) -> FetchSession | None:
        """The session that the request goes on with, if it does."""
        return self._session if self._is_incremental else None

    @property
    def begins_session(self) -> bool:
        return self._session is not None and not self._is_incremental

    @property
    def wanted(self) -> list[tuple[WantedKey, FetchPartition]]:
        return self._wanted

    def name_of(self, key: WantedKey) -> str | None:
        """What a topic that was named by its id was called when the reader named it first; None if it was not known."""
        wanted = None if self._session is None else self._session.partitions.get(key)
        return self._names.get(key.topic_id) if wanted is None else wanted.name

    def reported_of(self, key: WantedKey) -> Reported | None:
        """What was last reported of a partition in this session; None where nobody keeps that."""
        wanted = None if self._session is None else self._session.partitions.get(key)
        return None if wanted is None else wanted.reported

    def note_reported(self, key: WantedKey, reported: Reported, *, has_records: bool, has_trouble: bool) -> bool:
        """Notes what a partition has to report, in the order of the answer; whether the answer carries it."""
        if self._session is None:
            return True
        wanted = self._session.partitions.get(key)
        if wanted is None:  # forgotten while the request waited
            return not self._is_incremental
        is_reported = has_records or has_trouble or not self._is_incremental or reported != wanted.reported
        # After an error, or a divergence, the reader takes nothing from the answer but that.
        wanted.reported = NOTHING_REPORTED if has_trouble else reported
        if has_records or not self._is_incremental:
            # Whoever got something goes to the end of the row, so that no partition starves. The first row is that of
            # the first answer.
            self._session.partitions.move_to_end(key)
        return is_reported


class FetchSessions:
    """All sessions of a broker."""

    def __init__(self, rng: random.Random, slots: int = SLOTS_DEFAULT) -> None:
        self._rng = rng
        self.slots = slots
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first
        self.evicted_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, version: int, now_ms: int, names: Names = NO_NAMES) -> Steps[FetchPlan]:
        """Resolves the session of a request; ApiError where the reader and we do not agree on it.

        In steps: a request may name very many topics. A reader has one request in flight; one that comes with the
        same session meanwhile meets the next epoch.
        """
        named = yield from entries(request)
        if version < 7 or request.session_epoch == FINAL_EPOCH:
            self._sessions.pop(request.session_id, None)
            return FetchPlan(None, named, names, is_incremental=False)
        uses_topic_ids = version >= 13
        if request.session_epoch == INITIAL_EPOCH:
            self._sessions.pop(request.session_id, None)
            session = self._open(uses_topic_ids, now_ms)
            if session is not None:
                yield from session.add(named, names)  # what it forgets as well is ignored: there was nothing before
            return FetchPlan(session, named, names, is_incremental=False)
        known = self._sessions.get(request.session_id)
        if known is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"fetch session {request.session_id} is not known")
        if known.epoch != request.session_epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {request.session_id} is at epoch {known.epoch}, not {request.session_epoch}",
            )
        if known.uses_topic_ids != uses_topic_ids:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a session names topics by name or by id, not both")
        self.advance(known, now_ms)
        known.changes += 1
        yield from known.add(named, names, is_follower=replica_id_of(request) >= 0)
        yield from known.forget(request)
        if not known.partitions:
            self._sessions.pop(known.session_id, None)
            # What it names and forgets in one breath is still an answer, to a reader without a session.
            return FetchPlan(None, named, names, is_incremental=False)
        wanted = []
        for key, one in list(known.partitions.items()):
            wanted.append((key, one.entry))
            if len(wanted) % STEP == 0:
                yield
        return FetchPlan(known, wanted, names, is_incremental=True)

    def is_current(self, session: FetchSession, epoch: int) -> bool:
        """Whether a request of this epoch goes on with the session."""
        return session.epoch == epoch and self._sessions.get(session.session_id) is session

    def advance(self, session: FetchSession, now_ms: int) -> None:
        """A request went on with the session."""
        session.advance(now_ms)
        self._sessions.move_to_end(session.session_id)

    def give_up(self, plan: FetchPlan) -> int:
        """Nothing is answered this time: the id of the session that goes on, if one does. One that the reader has not
        heard of does not (KIP-219)."""
        if not plan.begins_session:
            return plan.session_id
        self._sessions.pop(plan.session_id, None)
        return NO_SESSION

    def _open(self, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        """A new session; None where there is no room, and the reader goes on without."""
        if not self._spend(now_ms):
            return None
        session_id = self._rng.randint(1, SESSION_ID_MAX)
        while session_id in self._sessions:
            session_id = self._rng.randint(1, SESSION_ID_MAX)
        session = self._sessions[session_id] = FetchSession(session_id, uses_topic_ids, now_ms)
        return session

    def _spend(self, now_ms: int) -> bool:
        if len(self._sessions) < self.slots:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.last_used_ms < EVICTION_MS:
            return False
        del self._sessions[oldest.session_id]
        self.evicted_count += 1
        return True


def replica_id_of(request: FetchRequest) -> int:
    """The broker that fetches as a follower; negative for any other reader."""
    return request.replica_id if request.replica_state is None else request.replica_state.replica_id


def replica_epoch_of(request: FetchRequest) -> int:
    """The registration in which a follower fetches; -1 where it does not say."""
    return UNKNOWN_BROKER_EPOCH if request.replica_state is None else request.replica_state.replica_epoch


def entries(request: FetchRequest) -> Steps[list[tuple[WantedKey, FetchPartition]]]:
    """The partitions of a request, in its order; of one that is named twice, the last word counts."""
    wanted = {}
    number = 0
    for topic in request.topics:
        name = topic.topic if topic.topic_id == ZERO_UUID else ""
        for entry in topic.partitions:
            wanted[WantedKey(name, topic.topic_id, entry.partition)] = entry
            number += 1
            if number % STEP == 0:
                yield
        number += 1  # one without partitions, too
        if number % STEP == 0:
            yield
    return list(wanted.items())

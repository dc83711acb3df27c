"""Those who read: everything, with long polls and sessions; and those who only ask for offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData
from ottla.protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.testing.ledger import Licence, PartitionKey
from ottla.testing.soak.actor import LONG_POLL_MS, Actor, Disconnected, Topic

if TYPE_CHECKING:
    from ottla.testing.soak.run import Soak

FETCH_VERSIONS: Final = range(4, 18)
FIRST_TOPIC_ID: Final = 13
FIRST_SESSION: Final = 7
NO_SESSION: Final = -1
SESSION_LOST: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
LIST_OFFSETS_VERSIONS: Final = range(1, 12)
FIRST_MAX_TIMESTAMP: Final = 7
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
NOWHERE: Final = -1


def received(data: PartitionData) -> bytes:
    """The records of a partition's answer, as they came over the wire."""
    assert isinstance(data.records, bytes | memoryview | None), data.records
    return bytes(data.records or b"")


class OffsetAsker(Actor):
    """What it takes to ask for an offset."""

    async def list_offset(self, topic: Topic, partition: int, timestamp: int, version: int) -> Any:
        """The partition's answer."""
        entry = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=[entry])], timeout_ms=1000
        )
        return (await self.call(request, version)).topics[0].partitions[0]


class Scout(OffsetAsker):
    """Asks where partitions begin and end, and what was written when."""

    async def act(self) -> None:
        topic = self.soak.some_topic(self.rng)
        if topic is None:
            return
        version = self.rng.choice(LIST_OFFSETS_VERSIONS)
        questions = [LATEST, EARLIEST, self.soak.now_ms() - self.rng.randint(0, 8_000)]
        questions += [MAX_TIMESTAMP] * (version >= FIRST_MAX_TIMESTAMP)
        await self._ask(topic, self.rng.randrange(topic.partition_count), self.rng.choice(questions), version)

    async def _ask(self, topic: Topic, partition: int, question: int, version: int) -> None:
        ledger, key = self.soak.ledger, topic.key(partition)
        losses, life, asked_at = ledger.losses, self.soak.life, self.soak.time()
        start, end = ledger.book(key).log_start, ledger.high_watermark(key)
        acknowledged = dict(ledger.book(key).acknowledged)
        answer = await self.list_offset(topic, partition, question, version)
        if self.refuses(answer.error_code, asked_at, topic) or topic.is_doomed or losses != ledger.losses:
            return
        found = answer.offset
        if question == LATEST:
            ledger.told_high_watermark(key, found, known=end, losses=losses)
        elif question == EARLIEST:
            is_same_life = life is not None and life == self.soak.life
            assert found >= start or not is_same_life, f"{key} started at {start}, now at {found}"
        elif question == MAX_TIMESTAMP:
            latest = max((one.timestamp for one in acknowledged.values()), default=-1)
            is_whole = ledger.licences.of(key) == Licence()
            assert not is_whole or answer.timestamp >= latest, f"{key}: {answer} is not the latest, there is {latest}"
        else:
            assert found == NOWHERE or answer.timestamp >= question, f"{key}: {answer} is before {question}"
            ledger.found_by_time(key, question, found, acknowledged)


class Reader(OffsetAsker):
    """Reads everything with long polls, within fetch sessions where the version has them."""

    def __init__(self, soak: Soak, name: str) -> None:
        super().__init__(soak, name)
        self._version = self.rng.choice(FETCH_VERSIONS)
        self._positions: dict[PartitionKey, int] = {}
        # Where the log begins behind our position, and in which life of the broker it said so.
        self._lost: list[tuple[Topic, PartitionKey, int]] = []
        self._losses = 0
        self._leave_session()

    def _leave_session(self) -> None:
        self._session_id, self._session_epoch = 0, 0
        self._in_session: dict[PartitionKey, tuple[Topic, int]] = {}  # what the session knows: topic and position

    async def act(self) -> None:
        losses, asked_at = self.soak.ledger.losses, self.soak.time()
        if losses != self._losses:
            self._positions.clear()  # offsets may mean other records now
            self._lost.clear()
            self._losses = losses
            self._leave_session()
        while self._lost:
            await self._find_start(*self._lost.pop())
        topics = {topic.topic_id: topic for topic in self.soak.topics.values()}
        if not topics:
            return
        wanted = {key: topic for topic in topics.values() for key in topic.keys}
        request = self._request(wanted)
        known = {key: self.soak.ledger.high_watermark(key) for key in wanted}
        epoch_sent = self._session_epoch
        try:
            response = await self.call(request, self._version)
        except Disconnected:
            self._leave_session()
            raise
        if response.error_code in SESSION_LOST:
            self._leave_session()
            return
        assert response.error_code == ErrorCode.NONE, response
        self._note_session(response.session_id, epoch_sent)
        answered = set()
        for topic, data in self._answers(response, wanted):
            key = topic.key(data.partition_index)
            answered.add(key)
            if not topic.is_doomed and losses == self.soak.ledger.losses:
                self._take(topic, key, data, known[key], asked_at)
        assert epoch_sent > 0 or answered == wanted.keys(), f"a full fetch of {wanted} was answered with {answered}"

    async def _find_start(self, topic: Topic, key: PartitionKey, starts: int) -> None:
        """Our position is not in the log: it must have passed us by."""
        position, losses = self._positions.get(key, 0), self.soak.ledger.losses
        asked_at = self.soak.time()
        answer = await self.list_offset(topic, key.partition, EARLIEST, max(LIST_OFFSETS_VERSIONS))
        if self.refuses(answer.error_code, asked_at, topic) or topic.is_doomed or losses != self.soak.ledger.losses:
            return
        is_same_life = starts == self.soak.process.starts
        assert answer.offset > position or not is_same_life, f"{key} has {position} and says that it has not"
        self._positions[key] = max(answer.offset, position)

    def _request(self, wanted: dict[PartitionKey, Topic]) -> FetchRequest:
        has_sessions = self._version >= FIRST_SESSION
        if not has_sessions:
            self._leave_session()
        news = {
            key: topic
            for key, topic in wanted.items()
            if self._in_session.get(key) != (topic, self._positions.get(key, 0))
        }
        forgotten = [(key, topic) for key, (topic, _) in self._in_session.items() if key not in wanted]
        self._in_session = {key: (topic, self._positions.get(key, 0)) for key, topic in wanted.items()}
        return FetchRequest(
            max_wait_ms=self.rng.choice([0, LONG_POLL_MS]),
            min_bytes=self.rng.choice([1, 1, 5_000]),
            max_bytes=self.rng.choice([1_000, 1_000_000]),
            isolation_level=self.rng.choice([0, 1]),
            session_id=self._session_id if has_sessions else 0,
            session_epoch=self._session_epoch if has_sessions else NO_SESSION,
            topics=[
                FetchTopic(
                    **self._named(topic),
                    partitions=[
                        FetchPartition(
                            partition=key.partition,
                            fetch_offset=self._positions.get(key, 0),
                            partition_max_bytes=self.rng.choice([500, 100_000]),
                        )
                    ],
                )
                for key, topic in news.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(**self._named(topic), partitions=[key.partition]) for key, topic in forgotten
            ],
        )

    def _named(self, topic: Topic) -> dict[str, Any]:
        return {"topic_id": topic.topic_id} if self._version >= FIRST_TOPIC_ID else {"topic": topic.name}

    def _note_session(self, session_id: int, epoch_sent: int) -> None:
        if session_id == 0:
            self._leave_session()
        elif epoch_sent == 0:
            self._session_id, self._session_epoch = session_id, 1
        else:
            assert session_id == self._session_id
            self._session_epoch = epoch_sent + 1

    def _answers(self, response: Any, wanted: dict[PartitionKey, Topic]) -> list[tuple[Topic, PartitionData]]:
        by_name = {topic.name: topic for topic in wanted.values()}
        by_id = {topic.topic_id: topic for topic in wanted.values()}
        return [
            (by_id[one.topic_id] if self._version >= FIRST_TOPIC_ID else by_name[one.topic], data)
            for one in response.responses
            for data in one.partitions
        ]

    def _take(self, topic: Topic, key: PartitionKey, data: PartitionData, known: int, asked_at: float) -> None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._lost.append((topic, key, self.soak.process.starts))
        elif not self.refuses(data.error_code, asked_at):
            self._positions[key] = self.soak.ledger.read(
                key,
                self._positions.get(key, 0),
                received(data),
                data.high_watermark,
                known=known,
                losses=self._losses,
            )

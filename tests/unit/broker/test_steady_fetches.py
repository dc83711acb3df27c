"""A run of fetches on the short way: what ends it, and what it hands over to the general one."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from uuid import UUID

import pytest

from ottla.broker.steady_fetches import STEADY_S, SteadyFetches, Unusual
from ottla.net.client import Address, BrokerConnection, ConnectionOptions, RequestTimedOutError
from ottla.protocol.frames import frame_length
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from ottla.replication.fetch_frames import FetchedPartition, template_of, write_response
from ottla.replication.fetch_requests import FetchKey, FetchPosition, FetchSessionReader
from ottla.testing import loop

VERSION, SESSION, FOLLOWER = 17, 7, 2
TIMEOUT_S = 5.0
TOPIC = UUID(int=1)
KEY, OTHER = FetchKey("t", TOPIC, 0), FetchKey("t", TOPIC, 1)
START = FetchPosition(0, 4, 4, 0, 1000)


class Transport:
    """What was sent; nobody answers by itself."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes | memoryview) -> None:
        self.sent.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


class Leader:
    """The other side of a run, and the log of this one: a record of each partition that comes is taken."""

    def __init__(self) -> None:
        self.transport = Transport()
        self.connection = BrokerConnection(Address("leader", 9092), ConnectionOptions())
        self.connection.attach(self.transport)
        self.session = FetchSessionReader()
        self.session.next_request({KEY: START, OTHER: START})
        self.session.answered(FetchResponse(session_id=SESSION, responses=[]))
        self.taken: list[FetchKey] = []
        self.may_go_on = True
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            topics=[],
            session_id=SESSION,
            session_epoch=1,
            replica_state=ReplicaState(replica_id=FOLLOWER, replica_epoch=1),
        )
        template = template_of(self.connection.frame_of(request, VERSION), request)
        assert template is not None
        self.template = template

    def take(self, asked: FetchPosition, fetched: FetchedPartition, now_ms: int) -> FetchPosition | None:
        self.taken.append(KEY if fetched.partition == KEY.partition else OTHER)
        return asked._replace(offset=asked.offset + 1) if fetched.records else asked

    def begin(self) -> asyncio.Task[Unusual | None]:
        run = SteadyFetches(
            self.connection, self.session, self.template, [], self.take, lambda: self.may_go_on, lambda: 0, TIMEOUT_S
        )
        return asyncio.get_running_loop().create_task(run.run())

    @property
    def last_asked(self) -> tuple[int, list[tuple[int, int]]]:
        """The epoch of the last request, and the partitions that it names with their offsets."""
        read = self.template.read(self.transport.sent[-1][4:])
        assert read is not None
        epoch, asked = read
        return epoch, [(one.partition, one.position.offset) for one in asked]

    def answer(self, *partitions: int, session_id: int = SESSION, records: bytes = b"r") -> bytes:
        """To the last request, whole; sent in pieces by `send`."""
        correlation_id = self.transport.sent[-1][8:12]
        fetched = [FetchedPartition(TOPIC.bytes, index, 0, 0, 0, records) for index in partitions]
        body = b"".join(write_response(correlation_id, session_id, fetched))
        return frame_length(len(body)) + body

    def send(self, data: bytes, piece_bytes: int = 1 << 20) -> None:
        for start in range(0, len(data), piece_bytes):
            piece = data[start : start + piece_bytes]
            self.connection.get_buffer(-1)[: len(piece)] = piece
            self.connection.buffer_updated(len(piece))


def play(scenario: Callable[[Leader], object]) -> None:
    async def main() -> None:
        await scenario(Leader())  # type: ignore[misc]

    loop.run(main())


@pytest.mark.parametrize("piece_bytes", [1, 3, 1000])
def test_each_response_is_followed_by_the_next_request_which_names_what_has_moved(piece_bytes: int) -> None:
    async def scenario(leader: Leader) -> None:
        running = leader.begin()
        await asyncio.sleep(0)
        epoch, asked = leader.last_asked
        assert (epoch, len(asked)) == (1, 0)
        for number, partitions in enumerate([(0,), (0, 1), (), (1,)], 1):
            leader.send(leader.answer(*partitions), piece_bytes)
            epoch, asked = leader.last_asked
            assert epoch == number + 1
            assert [index for index, _ in asked] == [*partitions]
        assert leader.session.known == {KEY: START._replace(offset=2), OTHER: START._replace(offset=2)}
        running.cancel()

    play(scenario)


def test_a_log_start_that_has_moved_is_said_at_once() -> None:
    """Whoever deletes records waits for it."""

    async def scenario(leader: Leader) -> None:
        leader.take = lambda asked, fetched, now_ms: asked._replace(log_start_offset=3)  # type: ignore[method-assign]
        running = leader.begin()
        await asyncio.sleep(0)
        leader.send(leader.answer(1, records=b""))
        assert leader.last_asked == (2, [(1, 0)])
        running.cancel()

    play(scenario)


@pytest.mark.parametrize(
    "answer",
    [
        lambda leader: leader.answer(0, session_id=SESSION + 1),
        lambda leader: leader.answer(0, session_id=0),
        lambda leader: leader.answer(9),  # which nobody asked for
        lambda leader: leader.answer(0)[:-1] + b"\1",  # a tag
    ],
)
def test_a_response_that_is_not_as_expected_is_handed_over_and_takes_nothing(answer: Callable[[Leader], bytes]) -> None:
    async def scenario(leader: Leader) -> None:
        running = leader.begin()
        await asyncio.sleep(0)
        data = answer(leader)
        leader.send(data)
        found = await running
        assert found is not None
        assert bytes(found.frame) == data[4:]
        assert leader.taken == []
        assert leader.session.epoch == 1, "the general way goes on with the session"
        assert len(leader.transport.sent) == 1

    play(scenario)


def test_a_partition_that_comes_twice_is_left_to_who_takes_it() -> None:
    """The second one is not where it was asked for any more."""

    async def scenario(leader: Leader) -> None:
        places: list[FetchPosition] = []

        def take(asked: FetchPosition, fetched: FetchedPartition, now_ms: int) -> FetchPosition | None:
            if places and places[-1] != asked:
                return None
            places.append(asked._replace(offset=asked.offset + 1))
            return places[-1]

        leader.take = take  # type: ignore[method-assign]
        running = leader.begin()
        await asyncio.sleep(0)
        leader.send(leader.answer(0, 0))
        assert await running is not None
        assert len(places) == 1

    play(scenario)


def test_a_run_ends_after_its_time_and_where_the_next_request_is_another_one() -> None:
    async def scenario(leader: Leader) -> None:
        running = leader.begin()
        await asyncio.sleep(STEADY_S * 0.9)
        leader.send(leader.answer(0))
        assert not running.done()
        await asyncio.sleep(STEADY_S * 0.2)
        leader.send(leader.answer(0))
        assert await running is None
        assert len(leader.transport.sent) == 2
        assert leader.session.epoch == 3
        assert leader.session.known[KEY].offset == 1, "as it was asked for last"
        running = leader.begin()
        await asyncio.sleep(0)
        leader.may_go_on = False
        leader.send(leader.answer())
        assert await running is None

    play(scenario)


def test_a_leader_that_says_no_more_is_given_up_after_the_time_of_a_request() -> None:
    async def scenario(leader: Leader) -> None:
        now = asyncio.get_running_loop().time
        running = leader.begin()
        await asyncio.sleep(0.5)
        leader.send(leader.answer(0))
        asked_at = now()
        with pytest.raises(RequestTimedOutError):
            await running
        assert asked_at + TIMEOUT_S == pytest.approx(now())
        assert leader.transport.is_closed

    play(scenario)


def test_whatever_goes_wrong_in_the_callback_is_said_to_the_task_and_not_to_the_connection() -> None:
    async def scenario(leader: Leader) -> None:
        def take(asked: FetchPosition, fetched: FetchedPartition, now_ms: int) -> FetchPosition | None:
            raise struct.error("nobody expected that")

        leader.take = take  # type: ignore[method-assign]
        running = leader.begin()
        await asyncio.sleep(0)
        leader.send(leader.answer(0))
        with pytest.raises(struct.error):
            await running
        assert not leader.connection.is_closed

    play(scenario)

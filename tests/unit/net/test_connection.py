"""A connection over a pair of sockets: one request at a time, answers in order, whatever the pieces."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from random import Random
from typing import Any

import pytest

from ottla.errors import ProtocolError
from ottla.net import connection as connection_module
from ottla.net.connection import PIPELINED_S, Connection, Deferred, Parked, Reply
from ottla.net.hang_ups import HangUps
from ottla.net.server import RECEIVE_BUFFER_BYTES
from ottla.net.spare_frames import SpareFrames
from ottla.net.transport import Plain
from ottla.runtime.turns import Turns

REQUESTS_PER_TURN = 4
WAIT_S = 60


@pytest.fixture(params=["with the compiled shortcut", "by itself"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it holds with the compiled shortcut and without."""
    if request.param == "by itself":
        monkeypatch.setattr(connection_module, "Shortcut", None)
    elif connection_module.Shortcut is None:
        pytest.skip("the shortcut is not compiled here")


class Listener:
    """What a connection needs of its listener."""

    name = "TEST"
    address = ("here", 1)

    def __init__(self, frame_bytes_max: int = 1 << 20) -> None:
        self.loop = asyncio.get_running_loop()
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.spare_frames = SpareFrames()
        self.frame_bytes_max = frame_bytes_max
        self.closed_count = 0
        # Time passes by being looked at: a few requests that arrive together are a turn.
        looks = count()
        self.turns = Turns(lambda: next(looks) * PIPELINED_S / REQUESTS_PER_TURN)

    def closed(self, connection: Connection) -> None:
        self.closed_count += 1

    def keep_until_done(self, task: asyncio.Task[None]) -> None:
        """Who serves waits for it; here the test does."""


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


Handle = Callable[[Connection, memoryview], "Reply | Awaitable[Reply] | Parked"]
Play = Callable[[Connection, socket.socket, Listener], Coroutine[Any, Any, None]]


def connected(handle: Handle, play: Play, **limits: int) -> None:
    async def run() -> None:
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setblocking(False)
        listener = Listener(**limits)
        connection = Connection(listener, Plain(ours), ("there", 2), handle)  # type: ignore[arg-type]
        try:
            await play(connection, theirs, listener)
        finally:
            connection.close()
            theirs.close()
        assert listener.closed_count == 1, "closed once, however often it was told"

    asyncio.run(run())


def echo(connection: Connection, frame: memoryview) -> Reply:
    return [framed(bytes(frame))]


async def received(theirs: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < size:
        piece = await asyncio.wait_for(loop.sock_recv(theirs, size - len(data)), WAIT_S)
        if not piece:
            break
        data += piece
    return data


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 7, 64, 100_000])
def test_frames_are_found_however_they_are_cut(piece: int) -> None:
    bodies = [b"", b"a", b"bc" * 300, b"d" * 5, b"", b"e" * 2000]

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        stream = framed(*bodies)
        for start in range(0, len(stream), piece):
            await loop.sock_sendall(theirs, stream[start : start + piece])
            await asyncio.sleep(0)
        assert await received(theirs, len(stream)) == stream

    connected(echo, play)


def test_a_frame_larger_than_the_buffer_arrives_whole() -> None:
    large = bytes(range(256)) * 4000

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        sending = asyncio.ensure_future(loop.sock_sendall(theirs, framed(large, b"next")))
        assert await received(theirs, len(large) + 12) == framed(large, b"next")
        await sending

    connected(echo, play, frame_bytes_max=1 << 21)


def test_the_buffer_of_a_large_frame_serves_for_others_while_nobody_looks_at_it() -> None:
    """Frames of all sizes, each behind bytes of its own; those whose handler holds them stay as they are."""
    sizes = [300_000, 200_000, 70_000, 900_000, 100, 65_000, 899_000, 500_000, 12, 700_000]
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
    held: list[memoryview] = []

    def handle(connection: Connection, frame: memoryview) -> Reply:
        if frame[0] % 3 == 0:
            held.append(connection.kept(frame))
        return [framed(bytes(frame[:1]) + len(frame).to_bytes(4, "big"))]

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        for together in (True, False):
            held.clear()
            for sent in [framed(*bodies)] if together else [framed(body) for body in bodies]:
                sending = asyncio.ensure_future(loop.sock_sendall(theirs, sent))
                count = len(bodies) if together else 1
                answers = await received(theirs, 9 * count)
                await sending
            assert answers[-9:] == framed(bytes([9]) + sizes[9].to_bytes(4, "big"))
            assert [bytes(frame) for frame in held] == bodies[::3]

    connected(handle, play)


def test_one_buffer_serves_for_frame_after_frame() -> None:
    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        for size in (900_000, 300_000, 899_000):
            sending = asyncio.ensure_future(loop.sock_sendall(theirs, framed(bytes(size))))
            await received(theirs, 4)
            await sending
        spare = listener.spare_frames.take(1)
        assert spare is not None
        assert len(spare) >= 900_000
        assert listener.spare_frames.take(1) is None

    connected(lambda connection, frame: [framed(b"")], play)


@pytest.mark.parametrize("together", [True, False], ids=["that came with the first", "that came later"])
def test_a_muted_connection_answers_and_takes_no_request_until_its_time_is_over(together: bool) -> None:
    seen: list[bytes] = []

    def handle(connection: Connection, frame: memoryview) -> Reply:
        seen.append(bytes(frame))
        if len(seen) == 1:
            connection.mute(3600)
        return [framed(seen[-1])]

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        theirs.send(framed(b"1", b"2") if together else framed(b"1"))
        assert await received(theirs, 5) == framed(b"1")
        if not together:
            theirs.send(framed(b"2"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert seen == [b"1"]
        assert connection.is_busy, "it is not closed for being idle"
        connection.mute(0)
        assert await received(theirs, 5) == framed(b"2")
        assert not connection.is_busy

    connected(handle, play)


def test_the_next_request_waits_until_the_one_in_hand_is_answered() -> None:
    gate = asyncio.Event()
    seen: list[bytes] = []

    async def later(body: bytes) -> Reply:
        await gate.wait()
        return [framed(body)]

    def handle(connection: Connection, frame: memoryview) -> Reply | Awaitable[Reply]:
        body = bytes(frame)
        seen.append(body)
        return later(body) if body.startswith(b"slow") else [framed(body)]

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        stream = framed(b"1", b"slow", b"2", b"slow too", b"3")
        theirs.send(stream)
        assert await received(theirs, 5) == framed(b"1")
        await asyncio.sleep(0.05)
        assert seen == [b"1", b"slow"]
        gate.set()
        assert await received(theirs, len(stream) - 5) == stream[5:]

    connected(handle, play)


def test_what_waits_behind_a_request_is_not_overwritten_by_what_others_send() -> None:
    """All connections of a server receive into one buffer."""
    gate = asyncio.Event()

    async def later(body: bytes) -> Reply:
        await gate.wait()
        return [framed(body)]

    def handle(connection: Connection, frame: memoryview) -> Reply | Awaitable[Reply]:
        body = bytes(frame)
        return later(body) if body == b"slow" else [framed(body)]

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        others, there = socket.socketpair()
        for sock in (others, there):
            sock.setblocking(False)
        other = Connection(listener, Plain(others), ("elsewhere", 3), echo)  # type: ignore[arg-type]
        theirs.send(framed(b"slow", b"behind it", b"and the beginning of more")[:-5])
        while not connection.is_busy:
            await asyncio.sleep(0)
        for _ in range(3):
            there.send(framed(b"\xff" * 200))
            assert await received(there, 204) == framed(b"\xff" * 200)
        gate.set()
        assert await received(theirs, 21) == framed(b"slow", b"behind it")
        there.send(framed(b"\xff" * 200))
        assert await received(there, 204) == framed(b"\xff" * 200)
        theirs.send(b" more")
        assert await received(theirs, 29) == framed(b"and the beginning of more")
        other.close()
        listener.closed_count -= 1
        there.close()

    connected(handle, play)


def test_what_was_answered_before_a_bad_request_is_sent() -> None:
    def handle(connection: Connection, frame: memoryview) -> Reply:
        if bytes(frame) == b"bad":
            raise ProtocolError("bad")
        return [framed(bytes(frame))]

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        theirs.send(framed(b"good", b"bad", b"never seen"))
        assert await received(theirs, 100) == framed(b"good")
        assert connection.is_closed

    connected(handle, play)


@pytest.mark.parametrize("size", [-1, 1001, 2**31 - 1])
def test_a_length_out_of_bounds_closes(size: int) -> None:
    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        theirs.send(struct.pack(">i", size))
        assert await received(theirs, 1) == b""

    connected(echo, play, frame_bytes_max=1000)


def test_a_peer_that_does_not_read_is_not_read_from() -> None:
    answered = 0

    def handle(connection: Connection, frame: memoryview) -> Reply:
        nonlocal answered
        answered += 1
        return [framed(bytes(100_000))]

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        theirs.send(framed(*[b"x"] * 1000))
        await asyncio.sleep(0.1)
        held_at = answered
        assert held_at < 50, "the socket was full long before"
        assert not connection.is_busy, "it may be closed as idle"
        await received(theirs, 3_000_000)
        await asyncio.sleep(0.05)
        assert answered > held_at, "it goes on when the peer does"

    connected(handle, play)


def test_closing_gives_up_a_request_that_only_waits() -> None:
    cancelled = asyncio.Event()

    async def never() -> Reply:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return None

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        theirs.send(framed(b"x"))
        await asyncio.sleep(0.05)
        assert connection.is_busy
        connection.close()
        await asyncio.wait_for(cancelled.wait(), WAIT_S)

    connected(lambda connection, frame: Parked(never()), play)


def test_stopping_answers_what_has_arrived_then_closes() -> None:
    gate = asyncio.Event()

    async def later() -> Reply:
        await gate.wait()
        return [framed(b"late")]

    def handle(connection: Connection, frame: memoryview) -> Reply | Awaitable[Reply]:
        return later() if bytes(frame) == b"slow" else [framed(bytes(frame))]

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        theirs.send(framed(b"slow", b"behind"))
        await asyncio.sleep(0.05)
        connection.stop()
        assert not connection.is_closed
        gate.set()
        assert await received(theirs, 100) == framed(b"late", b"behind")
        assert connection.is_closed

    connected(handle, play)


class InMemoryRange:
    """A range of no file of the operating system."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0
        self.size_bytes = len(data)

    def fileno(self) -> int:
        raise OSError("none")

    def read(self) -> bytes:
        return self._data


def test_ranges_of_files_are_sent_between_bytes(tmp_path: Any) -> None:
    content = bytes(range(256)) * 20_000
    path = tmp_path / "file"
    path.write_bytes(content)
    with path.open("rb") as file:

        class FileRange(InMemoryRange):
            def __init__(self, position: int, size: int) -> None:
                self.position, self.size_bytes = position, size

            def fileno(self) -> int:
                return file.fileno()

        def handle(connection: Connection, frame: memoryview) -> Any:
            return [b"head", FileRange(1000, 4_000_000), b"middle", InMemoryRange(b"memory"), b"tail"]

        async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
            theirs.send(framed(b"x", b"y"))
            expected = b"head" + content[1000:4_001_000] + b"middlememorytail"
            assert await received(theirs, 2 * len(expected)) == expected * 2

        connected(handle, play)


def test_a_file_that_is_shorter_than_promised_closes_instead_of_lying(tmp_path: Any) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"short")
    with path.open("rb") as file:

        class FileRange(InMemoryRange):
            def fileno(self) -> int:
                return file.fileno()

        async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
            theirs.send(framed(b"x"))
            assert await received(theirs, 100) == b"headshort"
            assert connection.is_closed

        connected(lambda connection, frame: [b"head", FileRange(bytes(100))], play)


def test_a_handler_may_close_its_connection_and_nothing_is_sent_elsewhere() -> None:
    def hang_up(connection: Connection, frame: memoryview) -> Reply:
        connection.close()
        return [b"too late"]

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        await asyncio.get_running_loop().sock_sendall(theirs, framed(b"go"))
        assert await received(theirs, 100) == b""

    connected(hang_up, play)


def test_an_answer_that_the_socket_takes_only_in_part_arrives_whole() -> None:
    answer = bytes(range(256)) * 20_000  # 5 MB: more than any socket buffer here

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        await asyncio.get_running_loop().sock_sendall(theirs, framed(b"go"))
        assert await received(theirs, len(answer)) == answer

    connected(lambda connection, frame: [answer], play)


# -- hanging up --------------------------------------------------------------------------------------------------------


def test_a_parked_request_is_given_up_when_its_peer_hangs_up() -> None:
    ended = asyncio.Event()

    async def wait_for_ever() -> Reply:
        try:
            await asyncio.Event().wait()
            return None
        finally:
            ended.set()

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        hang_ups = HangUps(asyncio.get_running_loop())
        hang_ups.watch(connection._transport.socket, connection.hung_up)
        await asyncio.get_running_loop().sock_sendall(theirs, framed(b"park", b"and one behind it"))
        while not connection.is_busy:
            await asyncio.sleep(0)
        theirs.close()
        await asyncio.wait_for(ended.wait(), 5)
        assert connection.is_closed
        hang_ups.close()

    connected(lambda connection, frame: Parked(wait_for_ever()), play)


def test_a_request_that_is_parked_after_its_peer_hung_up_is_given_up_too() -> None:
    begun = asyncio.Event()

    async def wait_for_ever() -> Reply:
        begun.set()
        await asyncio.Event().wait()
        return None

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        connection.hung_up()
        await asyncio.get_running_loop().sock_sendall(theirs, framed(b"park"))
        await asyncio.wait_for(begun.wait(), 5)
        while not connection.is_closed:
            await asyncio.sleep(0)

    connected(lambda connection, frame: Parked(wait_for_ever()), play)


def test_a_request_that_changes_something_is_carried_out_and_answered_to_a_peer_that_only_reads() -> None:
    release = asyncio.Event()

    async def change() -> Reply:
        await release.wait()
        return [framed(b"done")]

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        hang_ups = HangUps(asyncio.get_running_loop())
        hang_ups.watch(connection._transport.socket, connection.hung_up)
        await asyncio.get_running_loop().sock_sendall(theirs, framed(b"change"))
        while not connection.is_busy:
            await asyncio.sleep(0)
        theirs.shutdown(socket.SHUT_WR)
        while not connection.has_hung_up:
            await asyncio.sleep(0)
        assert not connection.is_closed
        release.set()
        assert await received(theirs, 8) == framed(b"done")
        while not connection.is_closed:
            await asyncio.sleep(0)
        hang_ups.close()

    connected(lambda connection, frame: change(), play)


# -- turns


def test_a_peer_that_sends_many_requests_at_once_has_a_few_of_them_handled_per_turn() -> None:
    handled_in_this_turn: list[int] = [0]

    def handle(connection: Connection, frame: memoryview) -> Reply:
        handled_in_this_turn[-1] += 1
        return [framed(bytes(frame))]

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        async def others() -> None:
            while True:
                handled_in_this_turn.append(0)
                await asyncio.sleep(0)

        neighbour = asyncio.create_task(others())
        sent = framed(*(str(number).encode() for number in range(500)))
        await asyncio.get_running_loop().sock_sendall(theirs, sent)
        assert await received(theirs, len(sent)) == sent, "all are answered, in order"
        neighbour.cancel()

    connected(handle, play)
    assert 0 < max(handled_in_this_turn) <= REQUESTS_PER_TURN + 1


def test_peers_that_send_many_requests_at_once_stand_in_one_line() -> None:
    """Between two looks at the sockets one of them has its turn, not each: however many there are, others wait once."""
    handled_in_this_turn: list[int] = [0]

    def handle(connection: Connection, frame: memoryview) -> Reply:
        handled_in_this_turn[-1] += 1
        return [framed(bytes(frame))]

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        pairs = [socket.socketpair() for _ in range(8)]
        others = [Connection(listener, Plain(ours), ("there", 3), handle) for ours, _ in pairs]  # type: ignore[arg-type]
        sent = framed(*(b"x" for _ in range(100)))
        for sock in (sock for pair in pairs for sock in pair):
            sock.setblocking(False)
        for _, peer in pairs:
            peer.send(sent)
        for _ in range(4):  # each has had its first turn, and waits for the next
            await asyncio.sleep(0)
        while any(other._is_waiting_its_turn for other in others):
            handled_in_this_turn.append(0)
            await asyncio.sleep(0)
        for _, peer in pairs:
            assert await received(peer, len(sent)) == sent, "all are answered, in order"
            peer.close()
        for other in others:
            other.close()
        listener.closed_count -= len(others)

    connected(handle, play)
    assert 0 < max(handled_in_this_turn[1:]) <= REQUESTS_PER_TURN + 1


def test_an_answer_of_very_many_slices_is_sent_in_several_turns(tmp_path: Any) -> None:
    """Each slice is a call of the system: those of 5,000 partitions took 30 ms."""
    sent_in_this_turn: list[int] = [0]
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file:

        class FileRange(InMemoryRange):
            def fileno(self) -> int:
                sent_in_this_turn[-1] += 1
                return file.fileno()

        def handle(connection: Connection, frame: memoryview) -> Any:
            return [part for number in range(500) for part in (b"%d" % (number % 10), FileRange(b"0123456789"))]

        async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
            async def others() -> None:
                while True:
                    sent_in_this_turn.append(0)
                    await asyncio.sleep(0)

            neighbour = asyncio.create_task(others())
            theirs.send(framed(b"x"))
            expected = b"".join(b"%d0123456789" % (number % 10) for number in range(500))
            assert await received(theirs, len(expected)) == expected
            neighbour.cancel()

        connected(handle, play)
    assert 0 < max(sent_in_this_turn) <= REQUESTS_PER_TURN + 1


def test_requests_that_wait_for_their_turn_are_answered_before_the_connection_is_stopped() -> None:
    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        sent = framed(*(bytes(10) for _ in range(50)))
        await asyncio.get_running_loop().sock_sendall(theirs, sent)
        await asyncio.sleep(0)  # some are handled, the others wait
        await asyncio.sleep(0)
        connection.stop()
        assert await received(theirs, len(sent) + 1) == sent

    connected(echo, play)


def test_the_bytes_of_a_request_are_kept_for_a_handler_that_waits() -> None:
    kept: list[memoryview] = []

    def handle(connection: Connection, frame: memoryview) -> Reply:
        kept.append(connection.kept(frame))
        return [framed(b"")]

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        bodies = [b"first", b"second", bytes(RECEIVE_BUFFER_BYTES + 1)]
        for body in bodies:
            await asyncio.get_running_loop().sock_sendall(theirs, framed(body))
            await received(theirs, 4)
        assert [bytes(frame) for frame in kept] == bodies

    connected(handle, play, frame_bytes_max=1 << 20)


# -- answers that come late, without a task ----------------------------------------------------------------------------


class Late(Deferred):
    """Answers when it is told to, and takes more meanwhile: frames that begin with `takes`."""

    takes_more = True

    def __init__(self, takes: bytes = b"L") -> None:
        self._takes = takes
        self.waiting: deque[bytes] = deque()

    def begun(self, frame: memoryview) -> Late:
        self.waiting.append(bytes(frame))
        return self

    def take(self, connection: Connection, frame: memoryview) -> bool:
        if bytes(frame[:1]) != self._takes:
            return False
        self.waiting.append(bytes(frame))
        return True

    def answer(self, connection: Connection, count: int | None = None) -> None:
        answers: Any = [framed(self.waiting.popleft()) for _ in range(len(self.waiting) if count is None else count)]
        connection.answer_deferred(self, answers, is_last=not self.waiting)

    def cancel(self) -> None:
        self.waiting.clear()


def late_or_echo(late: Late) -> Handle:
    def handle(connection: Connection, frame: memoryview) -> Any:
        return late.begun(frame) if bytes(frame[:1]) == b"L" else [framed(bytes(frame))]

    return handle


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0.001)


def test_late_answers_and_those_at_once_leave_in_the_order_of_their_requests() -> None:
    late = Late()

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        sent = [b"L1", b"L2", b"now", b"L3"]
        theirs.send(framed(*sent))
        await settled()
        assert list(late.waiting) == [b"L1", b"L2"], "what is to be answered at once waits, and what is behind it"
        late.answer(connection, 1)
        await settled()
        assert list(late.waiting) == [b"L2"]
        late.answer(connection)
        await settled()
        assert list(late.waiting) == [b"L3"]
        late.answer(connection)
        expected = framed(*sent)
        assert await received(theirs, len(expected)) == expected

    connected(late_or_echo(late), play)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_sent_is_answered_once_and_in_order(seed: int) -> None:
    """Late answers in groups, tasks and answers at once, in any pieces, to a peer that reads slowly."""
    rng, late = Random(seed), Late()

    async def slowly(frame: bytes) -> Reply:
        await asyncio.sleep(rng.random() * 0.002)
        return [framed(frame)]

    def handle(connection: Connection, frame: memoryview) -> Any:
        match bytes(frame[:1]):
            case b"L":
                return late.begun(frame)
            case b"T":
                return slowly(bytes(frame))
        return [framed(bytes(frame))]

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        connection._transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        kinds = rng.choice(["L", "LLLN", "LNT", "LN"])
        bodies = [
            rng.choice(kinds).encode() + b"%d" % number + bytes(rng.choice([0, 10, 3000, 20_000]))
            for number in range(40)
        ]
        stream = framed(*bodies)

        async def send() -> None:
            position = 0
            while position < len(stream):
                size = rng.choice([1, 7, 500, 5000, 100_000])
                await asyncio.get_running_loop().sock_sendall(theirs, stream[position : position + size])
                position += size
                if rng.random() < 0.3:
                    await asyncio.sleep(rng.random() * 0.002)

        async def answer() -> None:
            while True:
                await asyncio.sleep(rng.random() * 0.003)
                if late.waiting:
                    late.answer(connection, rng.randint(1, len(late.waiting)))

        sending, answering = asyncio.create_task(send()), asyncio.create_task(answer())
        assert await received(theirs, len(stream)) == stream
        await sending
        answering.cancel()

    connected(handle, play)


def test_an_answer_that_does_not_fit_the_socket_is_not_cut_in_two_by_the_next() -> None:
    late = Late()

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        theirs.send(framed(b"L"))
        await settled()
        large = framed(bytes(4_000_000))
        connection.answer_deferred(late, [large])
        assert connection._is_writing
        begun = theirs.recv(10_000_000)
        theirs.send(framed(b"now"))
        rest = await received(theirs, len(large) + 7 - len(begun))
        assert begun + rest == large + framed(b"now")

    connected(late_or_echo(late), play)


def test_what_came_before_a_frame_that_is_none_is_answered_before_the_connection_closes() -> None:
    late = Late()

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        theirs.send(framed(b"L"))
        await settled()
        theirs.send(b"\x40\0\0\0 this is no frame")
        await settled()
        assert not connection.is_closed
        late.answer(connection)
        assert await received(theirs, 5) == framed(b"L")
        assert connection.is_closed

    connected(late_or_echo(late), play)


def test_answers_that_do_not_fit_the_socket_are_sent_whole_before_a_frame_that_is_none_closes_it() -> None:
    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        connection._transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        sent = framed(*(bytes([number]) * 30_000 for number in range(3)))
        await asyncio.get_running_loop().sock_sendall(theirs, sent + b"\xff" * 8)
        await settled()
        assert await received(theirs, len(sent)) == sent
        assert await received(theirs, 1) == b"", "closed"

    connected(echo, play)


def test_an_end_that_is_seen_once_closes_the_connection_behind_the_answers() -> None:
    """A peer's goodbye over TLS is read with what came before it, and not again."""
    late = Late()

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        theirs.send(framed(b"L"))
        await settled()
        connection._ended()
        await settled()
        assert not connection.is_closed
        late.answer(connection)
        assert await received(theirs, 5) == framed(b"L")
        assert connection.is_closed

    connected(late_or_echo(late), play)


def test_a_large_frame_that_has_to_wait_stays_where_it_is() -> None:
    late = Late()

    async def play(connection: Connection, theirs: socket.socket, listener: Listener) -> None:
        theirs.send(framed(b"L"))
        await settled()
        body = b"N" + bytes(900_000)
        await asyncio.get_running_loop().sock_sendall(theirs, framed(body))
        await settled()
        kept = connection._remainder
        assert isinstance(kept, memoryview)
        assert len(kept) == len(body) + 4
        late.answer(connection)
        assert await received(theirs, 5 + 4 + len(body)) == framed(b"L", body)

    connected(late_or_echo(late), play)

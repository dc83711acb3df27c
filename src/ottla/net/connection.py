"""One connection of a client: bytes in, requests handled in their order, answers out in that order.

Our own non-blocking socket on the loop's readiness callbacks; streams would cost twice as much per request. A request
whose answer is ready at once never leaves the callback that received it; one that has to wait (a parked Fetch,
acks=all) becomes a task, and until it is done nothing more is read. One that comes again and again may wait without a
task (`Deferred`), and then others of its kind may be taken behind it. Answers to requests that arrived together leave
together.

Limits: a frame is at most `frame_bytes_max`; memory grows with the bytes that came, not with those a peer announced;
a peer that does not read its answers is not read from either; one that sends many requests at once gets `PIPELINED_S`
of a turn and then stands in the line of those with much to do; what is sent of one whose answers are large is limited
in `Outbox`; one that is muted, because it did more than its quotas allow, is not read from until that time is over.

A request is a view of the receive buffer and valid until its handler first waits: what it needs longer it copies.

A peer that closes its side may be gone, or may still read: nobody can tell the two apart. What is answered at once is
answered, but nothing waits or works on for it. A handler that can answer before its time asks to be notified
(`on_hang_up`); a request whose answer nobody else needs (`Parked`) is given up, and the connection with it; any other
is carried out to its end, as in Kafka.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.compiled import is_pure_python_asked_for
from ottla.errors import ProtocolError
from ottla.net.outbox import Outbox, Part
from ottla.net.transport import Transport
from ottla.protocol.frames import LENGTH_BYTES, frame_bytes

if TYPE_CHECKING:
    from ottla.net.server import Listener

# Where it was built, the compiled short way of most requests; without it, or with this in the environment to see
# whether a fault is in the compiled code, `Connection` does all of it by itself.
Shortcut: Callable[..., Callable[[], None]] | None = None
if not is_pure_python_asked_for():
    with suppress(ImportError):
        from ottla.net._shortcut import Shortcut  # type: ignore[import-not-found,no-redef,unused-ignore]

logger = logging.getLogger(__name__)

FRAME_START_BYTES = 64 * 1024  # reserved for a large frame before more of it has arrived
# Of such a size are the buffers of frames that are used again: larger ones are rare.
SPARE_FRAME_BYTES_MIN = 64 * 1024
SPARE_FRAME_BYTES_MAX = 2 * 1024 * 1024
LOGIN_FRAME_START_BYTES = 512  # the same of a peer that has not logged in: there may be very many of them
OUT_PARTS_MAX = 64  # answers that are collected before they are sent, as long as they are small
OUT_PART_BYTES_MAX = 16 * 1024
PIPELINED_S = 0.002  # spent on requests that arrived together before others get their turn

# The peer is gone, and saying so helps nobody.
GONE = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT, errno.ENOTCONN, errno.ECONNABORTED, errno.EBADF})


Reply: TypeAlias = list[Part] | None


class Deferred:
    """The promise of an answer without a task: once it is there, `Connection.answer_deferred` is called with it.

    A task costs two turns of the loop and a dozen objects. This is for what is asked very often. One that `takes_more`
    promises the answers to several requests, in their order.
    """

    __slots__ = ()

    ends_with_peer = False  # whether nobody needs the answer once the peer is gone
    takes_more = False  # whether requests behind this one may be offered to it before it is answered

    def take(self, connection: Connection, frame: memoryview) -> bool:
        """Whether it took another request, whose answer will follow those that wait."""
        return False

    def cancel(self) -> None:
        """The connection is closed: nobody waits any longer."""


class Parked:
    """The promise of an answer that nobody needs once the peer is gone: it reads, or only waits for others."""

    __slots__ = ("reply",)

    def __init__(self, reply: Awaitable[Reply]) -> None:
        self.reply = reply


Handled: TypeAlias = Reply | Awaitable[Reply] | Parked | Deferred
Handler = Callable[["Connection", memoryview], Handled]


class Connection:
    """One accepted socket. Closed at most once; `closed` informs its server."""

    __slots__ = (
        "__weakref__",
        "_deferred",
        "_filled",
        "_frame",
        "_frame_end",
        "_handler",
        "_is_holding_off",
        "_is_last",
        "_is_parked",
        "_is_reading",
        "_is_sending_ahead",
        "_is_stopping",
        "_is_waiting_its_turn",
        "_is_writing",
        "_listener",
        "_loop",
        "_muted",
        "_on_readable",
        "_out",
        "_outbox",
        "_remainder",
        "_task",
        "_transport",
        "_watched",
        "accepted_at",
        "descriptor",
        "has_hung_up",
        "is_closed",
        "last_active",
        "login_bytes_max",
        "on_close",
        "on_hang_up",
        "peer",
        "session",
    )

    def __init__(
        self, listener: Listener, transport: Transport, peer: tuple[str, int], handler: Handler, session: Any = None
    ) -> None:
        """`session` is what the handler knows about the peer, and none of our business."""
        self._listener = listener
        self._loop = listener.loop
        self._transport = transport
        self._handler = handler
        self.peer = peer
        self.session = session
        self._frame: bytearray | None = None  # a frame that is arriving, and its length before it
        self._filled = 0
        self._frame_end = 0  # how much of that is for it: a buffer that was used before may be larger
        self._remainder: bytes | memoryview = b""  # arrived behind a request that is still being handled
        self._outbox = Outbox(transport, listener.turns)
        self._out = self._outbox.parts
        self._task: asyncio.Task[None] | None = None
        self._is_parked = False  # whether the task is one that may be given up
        self._deferred: Deferred | None = None  # at most one of a task and this
        self.has_hung_up = False
        self.on_hang_up: Callable[[], None] | None = None  # of the request in hand
        self.on_close: Callable[[], None] | None = None  # of what the handler keeps for the next requests
        self.descriptor = transport.socket.fileno()
        # By its number where it has one: of a socket that it does not know, asyncio makes a text with both addresses.
        self._watched: Any = self.descriptor if isinstance(transport.socket, socket.socket) else transport.socket
        self._is_reading = False
        self._is_holding_off = False  # what it reads now is not taken, though the loop is not told yet
        self._is_sending_ahead = False  # whether the peer sent its last request before it had the answer to another
        self._is_writing = False
        self._is_stopping = False
        self._is_last = False  # whether nothing comes behind what is in hand
        self._is_waiting_its_turn = False  # others have theirs before its next request is taken
        self._muted: asyncio.TimerHandle | None = None  # while no request is taken
        self.is_closed = False
        self.last_active = self.accepted_at = self._loop.time()
        self.login_bytes_max: int | None = None  # of a frame, until the peer has logged in; None: it has
        self._on_readable: Callable[[], None] = self._readable
        if Shortcut is not None and transport.can_shortcut:
            self._on_readable = Shortcut(self, self.descriptor, handler, self._loop.time, listener)
        elif not transport.can_sendfile:
            self._on_readable = self._readable_or_pending
        self._resume_reading()

    @property
    def is_busy(self) -> bool:
        """Whether we are at work for the peer, or keep it waiting. Answers that it does not take are its business."""
        return self._task is not None or self._deferred is not None or self._muted is not None

    @property
    def listener_name(self) -> str:
        return self._listener.name

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate by which the peer is known, where its transport has one, in DER."""
        return self._transport.peer_certificate

    @property
    def watched_socket(self) -> Any:
        """What carries it: the accepted socket may have been wrapped."""
        return self._transport.socket

    def kept(self, frame: memoryview) -> memoryview:
        """The bytes of a request for a handler that waits: a copy, where the next bytes would overwrite them."""
        is_shared = frame.obj is self._listener.receive_buffer.obj
        return memoryview(bytearray(frame)) if is_shared else frame

    # -- reading -------------------------------------------------------------------------------------------------------

    def _resume_reading(self) -> None:
        self._is_holding_off = False
        if not self._is_reading and not self.is_closed:
            self._loop.add_reader(self._watched, self._on_readable)
            self._is_reading = True
            if self._transport.has_pending:
                self._loop.call_soon(self._readable_or_pending)

    def _pause_reading(self) -> None:
        if self._is_reading:
            self._loop.remove_reader(self._watched)
            self._is_reading = False

    def _hold_off(self) -> None:
        """Takes no bytes while a request is in hand. Most peers send none then, so the loop is asked to stop reading
        once some come: system calls for each request are saved. A peer that sends ahead is expected to do so again."""
        if self._is_sending_ahead or not self._transport.can_shortcut:
            self._pause_reading()
        else:
            self._is_holding_off = True

    def _came_early(self) -> None:
        """Bytes came while a request is in hand."""
        self._is_sending_ahead = True
        self._pause_reading()

    def _readable(self) -> None:
        if self._is_holding_off:
            self._came_early()
            return
        self.last_active = self._loop.time()
        try:
            if self._frame is None:
                buffer = self._listener.receive_buffer
                count = self._transport.recv_into(buffer)
            else:
                # The rest of a frame goes straight to its place.
                with memoryview(self._frame) as frame, frame[self._filled : self._frame_end] as rest:
                    count = self._transport.recv_into(rest)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lost(error)
            return
        if count == 0:
            self._ended()
            return
        if not self._is_reading:
            self._is_sending_ahead = True
        if self._frame is None:
            self._received(buffer[:count])
        else:
            try:
                self._fill(count)
            except Exception as error:
                self._failed(error)

    def _ended(self) -> None:
        """Nothing more is taken from the peer. What it asked for before is still answered."""
        if self._deferred is None:
            self.close()
        else:
            self._is_last = True
            self._pause_reading()

    def _readable_or_pending(self) -> None:
        """For transports that may have received more than was taken, and that begin with a handshake."""
        if self._is_reading:
            if not self._transport.is_shaking_hands:
                self._readable()
            elif not self._listener.handshakes.take(self._readable):
                self._pause_reading()
                self._listener.handshakes.wait(self._resume_handshake)
            if self._is_reading and self._transport.has_pending:
                self._loop.call_soon(self._readable_or_pending)

    def _resume_handshake(self) -> None:
        if not self.is_closed:
            self._resume_reading()
            self._readable_or_pending()

    def _received(self, data: memoryview) -> None:
        try:
            self._take(data)
        except Exception as error:
            self._failed(error)

    def _fill(self, count: int) -> None:
        """More of a large frame has arrived; its buffer grows as it fills."""
        frame = self._frame
        assert frame is not None
        self._filled += count
        if self._filled < LENGTH_BYTES:
            return
        size = self._frame_bytes(frame, 0) + LENGTH_BYTES
        if self._filled < size:
            if self._filled == len(frame):
                frame += bytes(min(max(self._frame_start_bytes, len(frame)), size - len(frame)))
            self._frame_end = min(len(frame), size)
            return
        self._frame = None
        if size <= SPARE_FRAME_BYTES_MAX:
            self._listener.spare_frames.handed_out(frame)
        self._take(memoryview(frame)[:size])

    @property
    def _frame_start_bytes(self) -> int:
        return FRAME_START_BYTES if self.login_bytes_max is None else LOGIN_FRAME_START_BYTES

    def _frame_bytes(self, data: bytearray | memoryview, position: int) -> int:
        if self.login_bytes_max is not None:
            return frame_bytes(data, position, self.login_bytes_max, setting="sasl.server.max.receive.size")
        return frame_bytes(data, position, self._listener.frame_bytes_max, setting="socket.request.max.bytes")

    def _take(self, data: memoryview) -> None:
        """Handles the requests that are whole in `data`, as long as they are answered at once and answers leave."""
        position, end = 0, len(data)
        timer = self._listener.turns.timer
        turn_ends = timer() + PIPELINED_S
        has_to_wait = False
        while end - position >= LENGTH_BYTES and self._may_take:
            start = position + LENGTH_BYTES
            size = self._frame_bytes(data, position)
            if end - start < size:
                break
            frame = data[start : start + size]
            if self._deferred is None:
                self._accept(self._handler(self, frame))
            elif not self._deferred.take(self, frame):
                has_to_wait = True
                break
            position = start + size
            if timer() >= turn_ends and end - position >= LENGTH_BYTES:
                self._is_waiting_its_turn = True
                self._listener.turns.in_line(self._next_turn)
        self._settle(data[position:], has_to_wait=has_to_wait)

    def _next_turn(self) -> None:
        self._is_waiting_its_turn = False
        self._proceed()

    def _accept(self, reply: Handled) -> None:
        """What a handler returned: an answer to be sent, the promise of one, or nothing."""
        if type(reply) is list:
            self._out.extend(reply)
            if len(self._out) >= OUT_PARTS_MAX or len(reply[0]) > OUT_PART_BYTES_MAX:  # type: ignore[arg-type]
                self._flush()
        elif isinstance(reply, Deferred):
            self._deferred = reply
            if self.has_hung_up and reply.ends_with_peer:
                self._loop.call_soon(self.hung_up)
        elif reply is not None:
            self._is_parked = type(reply) is Parked
            promise = reply.reply if isinstance(reply, Parked) else reply
            self._task = self._loop.create_task(self._finish(promise))  # type: ignore[arg-type]
            if self.has_hung_up:
                self._loop.call_soon(self.hung_up)  # once the handler waits, and has asked to be notified

    def _settle(self, rest: memoryview | bytes, *, has_to_wait: bool = False) -> None:
        """Sends the answers that are ready, and puts away what came behind the last request that was handled.

        `has_to_wait`: a whole request begins there, which whoever answers late did not take.
        """
        if self._out:
            self._flush()
        if self.is_closed:
            return
        if self._may_take and not has_to_wait:
            if rest:
                self._keep(rest)
            if self._deferred is not None:
                self._read_on()
            return
        if rest:
            self._is_sending_ahead = True
        if self._is_writing or self._is_waiting_its_turn or self._muted is not None:
            self._pause_reading()
        else:
            self._hold_off()
        # A large frame stays in the buffer that was made for it; the other buffer is everybody's.
        is_own = isinstance(rest, memoryview) and rest.obj is not self._listener.receive_buffer.obj
        self._remainder = rest if is_own else bytes(rest)

    @property
    def _is_free(self) -> bool:
        """Whether no request is in hand, and the next one may be taken."""
        return self._deferred is None and self._may_take

    @property
    def _may_take(self) -> bool:
        """Whether another request may be looked at: nothing is in hand that has to be answered before that, the peer
        takes its answers, and it has its turn."""
        return (
            self._task is None
            and (self._deferred is None or self._deferred.takes_more)
            and not self._is_writing
            and not self.is_closed
            and not self._is_waiting_its_turn
            and self._muted is None
        )

    def _proceed(self) -> None:
        """Something that held requests back is over: go on with those that have arrived, then with reading."""
        if self._may_take:  # also behind one that is in hand, which may have had no room for them
            remainder, self._remainder = self._remainder, b""
            if remainder:
                self._received(remainder if isinstance(remainder, memoryview) else memoryview(bytearray(remainder)))
        self._read_on()

    def _read_on(self) -> None:
        if self._is_free and (self._is_stopping or self._is_last):
            self.close()
        elif self._is_free and self._is_sending_ahead and not self._is_reading and not self._transport.has_pending:
            # The next request is here, or will be waited for: one look costs less than telling the loop twice.
            self._is_sending_ahead = self._is_holding_off = False
            self._on_readable()
        if self._may_take and not self._remainder and not self._is_stopping and not self._is_last:
            self._resume_reading()

    def answer_deferred(self, deferred: Deferred, parts: Reply, *, is_last: bool = True) -> None:
        """Answers to requests that are in hand, by whoever promised them; `is_last`: there are no others."""
        if self._deferred is not deferred:
            return  # the connection was closed meanwhile
        if is_last:
            self._deferred = None
        if parts:
            self._out.extend(parts)
            self._flush()
        self._proceed()

    def _keep(self, rest: memoryview | bytes) -> None:
        """The beginning of a frame waits for the rest in a buffer of its own, which grows with what arrives; or in one
        that is there already: memory that comes fresh from the system costs more than receiving what is written there.
        """
        filled = len(rest)
        size = LENGTH_BYTES if filled < LENGTH_BYTES else self._frame_bytes(memoryview(rest), 0) + LENGTH_BYTES
        spare = self._listener.spare_frames.take(size) if size > SPARE_FRAME_BYTES_MIN else None
        if spare is None:
            frame = bytearray(rest)
            frame += bytes(min(max(self._frame_start_bytes, filled), size - filled))
        else:
            frame = spare
            frame[:filled] = rest
        self._frame, self._filled, self._frame_end = frame, filled, min(len(frame), size)

    async def _finish(self, reply: Awaitable[Reply]) -> None:
        """Waits for the answer of a request that needs time."""
        try:
            parts = await reply
        except Exception as error:
            self._failed(error)
            return
        finally:
            self._task = None
            self._is_parked = False
            self.on_hang_up = None
        if parts and not self.is_closed:
            self._out.extend(parts)
            self._flush()
        self._proceed()

    def mute(self, seconds: float) -> None:
        """Takes no request for so long; the answer to the one in hand is sent all the same (KIP-219)."""
        if self.is_closed or self._is_stopping:
            return
        if self._muted is not None:
            self._muted.cancel()
        self._pause_reading()
        self._muted = self._loop.call_later(seconds, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self.last_active = self._loop.time()
        self._proceed()

    # -- writing -------------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Sends what is to be sent; what the socket does not take now waits, and the next request with it."""
        if self._is_writing or self.is_closed:
            return
        try:
            if self._outbox.send():
                return
        except OSError as error:
            self._lost(error)
            return
        self._is_writing = True
        self._pause_reading()  # a peer that does not take its answers is not read from
        self._loop.add_writer(self._watched, self._writable)

    def _writable(self) -> None:
        self.last_active = self._loop.time()
        try:
            is_done = self._outbox.send()
        except OSError as error:
            self._lost(error)
            return
        if is_done:
            self._loop.remove_writer(self._watched)
            self._is_writing = False
            self._proceed()

    # -- ending --------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Closes once the requests that have arrived are answered; at once where there are none."""
        self._is_stopping = True
        self._pause_reading()
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        self._proceed()

    def hung_up(self) -> None:
        """The peer has closed its side, or is gone."""
        self.has_hung_up = True
        if self.on_hang_up is not None:
            self.on_hang_up()
        elif self._is_parked or (self._deferred is not None and self._deferred.ends_with_peer):
            self.close()

    def _failed(self, error: Exception) -> None:
        """A request that cannot be handled costs its connection, and nobody else anything."""
        if isinstance(error, ProtocolError):
            logger.warning("%s: %s; the connection is closed", self, error)
            self._flush()
            if self._deferred is not None or self._is_writing:
                self._is_last = True  # what came before it is answered
                self._pause_reading()
                return
        else:
            logger.error("%s: a request failed; the connection is closed", self, exc_info=error)
        if not self._is_writing:
            with suppress(OSError):  # a peer that is gone loses nothing
                self._outbox.send()  # what was answered before it is not lost with it
        self.close()

    def _lost(self, error: OSError) -> None:
        if error.errno not in GONE:
            logger.warning("%s: %s; the connection is closed", self, error)
        self.close()

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._pause_reading()
        if self._is_writing:
            self._loop.remove_writer(self._watched)
            self._is_writing = False
        if self._deferred is not None:
            deferred, self._deferred = self._deferred, None
            deferred.cancel()
        if self._task is not None:
            if self._is_parked:
                self._loop.call_soon(self._task.cancel)  # once it has begun: what it holds, it lets go of
            else:
                self._listener.keep_until_done(self._task)
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        self._out.clear()
        self._frame = None
        self._remainder = b""
        self._transport.close()
        self._listener.closed(self)
        if self.on_close is not None:
            self.on_close()

    def __str__(self) -> str:
        return f"{self.peer[0]}:{self.peer[1]}"

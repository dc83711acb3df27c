"""A network in memory: hosts, listening sockets and connections with the habits of TCP, good and bad.

Sockets have the methods of `socket.socket` that non-blocking code uses, so servers and clients run on them unchanged.
Bytes of one direction arrive in order, late, and in other pieces than they were sent in. Buffers are bounded: a peer
that does not read makes `send` take less and then nothing. Beyond that, on request:

- `SimulatedNetwork.reset`: a connection breaks; what was not read yet is lost;
- `SimulatedNetwork.cut`: nothing passes between two hosts until `heal`; connections stall, and go on afterwards;
- `Host.kill`: a process ends; its peers see the end of the stream or a reset, because its kernel cleans up;
- `Host.power_off`: a machine is gone; its peers notice nothing until they speak to it when it is up again.

Everything is a function of what was asked and of the rng. A host has one address; 127.0.0.1 and localhost are the host
itself, and 0.0.0.0 listens there too.
"""

from __future__ import annotations

import contextvars
import errno
import os
import socket
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random
from typing import TYPE_CHECKING, cast

from ottla.testing.loop import SimulatedLoop

if TYPE_CHECKING:
    from typing_extensions import Buffer

Address = tuple[str, int]
Trace = Callable[[str], None]

FIRST_EPHEMERAL_PORT = 40_000
SYN_RETRY_S = 1.0  # a full backlog drops the attempt, and the kernel of the client tries again
WAKE_FRACTION = 3  # a socket is writable from a third of its buffer on
LOOPBACK = frozenset({"127.0.0.1", "localhost", "0.0.0.0", ""})


@dataclass(frozen=True, slots=True)
class Conditions:
    """How good the way between two hosts is."""

    latency_s: float = 0.000_5
    jitter_s: float = 0.000_5
    bytes_per_second: float = 125e6
    buffer_bytes: int = 65_536  # sent and not yet read, in one direction
    cut_chance: float = 0.1  # that a call moves only a part of the bytes that it could


class _Mark(Enum):
    """What travels between the bytes of a stream."""

    OPEN = auto()  # the other side has taken the connection
    END = auto()


class _State(Enum):
    FRESH = auto()
    LISTENING = auto()
    CONNECTING = auto()
    CONNECTED = auto()
    CLOSED = auto()


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))  # the constructor picks BlockingIOError and the like


@dataclass(eq=False, slots=True)
class Link:
    """The way between two hosts, or from a host to itself."""

    network: SimulatedNetwork
    ends: tuple[Host, Host]
    conditions: Conditions
    is_cut: bool = False
    _held: list[Callable[[], None]] = field(default_factory=list)

    def carry(self, arrive: Callable[[], None], *, not_before: float = 0.0) -> None:
        """Calls `arrive` on the other side; later, if nothing passes now."""
        network, conditions = self.network, self.conditions
        delay_s = conditions.latency_s + network.rng.random() * conditions.jitter_s
        network.later(max(network.loop.time(), not_before) + delay_s, lambda: self._arrived(arrive))

    def _arrived(self, arrive: Callable[[], None]) -> None:
        if self.is_passing:
            arrive()
        else:
            self._held.append(arrive)

    @property
    def is_passing(self) -> bool:
        return not self.is_cut and all(end.is_up for end in self.ends)

    def release(self) -> None:
        """What was sent in vain is sent again, as TCP does."""
        if self.is_passing:
            held, self._held = self._held, []
            for arrive in held:
                self.carry(arrive)


class _Pipe:
    """One direction of a connection."""

    __slots__ = ("_busy_until", "_link", "_receiver", "_segments", "unread_bytes")

    def __init__(self, link: Link, receiver: SimulatedSocket) -> None:
        self._link = link
        self._receiver = receiver
        self._segments: deque[bytes | _Mark] = deque()
        self._busy_until = 0.0
        self.unread_bytes = 0

    @property
    def free_bytes(self) -> int:
        return max(0, self._link.conditions.buffer_bytes - self.unread_bytes)

    @property
    def has_room(self) -> bool:
        """Whether it is worth waking a writer; for every byte that gets free, it would be woken for that byte."""
        return self.free_bytes * WAKE_FRACTION >= self._link.conditions.buffer_bytes

    def push(self, segment: bytes | _Mark) -> None:
        self._segments.append(segment)
        if isinstance(segment, bytes):
            self.unread_bytes += len(segment)
            now = self._link.network.loop.time()
            self._busy_until = max(now, self._busy_until) + len(segment) / self._link.conditions.bytes_per_second
        self._link.carry(self._arrive, not_before=self._busy_until)

    def _arrive(self) -> None:
        """Something has arrived, and that is what was sent first, whatever was drawn: a stream keeps its order."""
        if self._segments:
            self._receiver.take(self._segments.popleft())

    def clear(self) -> None:
        self._segments.clear()
        self.unread_bytes = 0


class SimulatedSocket:
    """A non-blocking TCP socket of a host."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = socket.IPPROTO_TCP

    def __init__(self, host: Host) -> None:
        self._host = host
        self._network = host.network
        self._state = _State.FRESH
        self._descriptor = self._network.loop.sockets.open(self)
        self.is_caller = False  # it asked for the connection
        self._is_orphan = False  # the process that had it is gone; what is left of its code gets nothing done with it
        self._name: Address = ("0.0.0.0", 0)
        self._peer_name: Address | None = None
        self._peer: SimulatedSocket | None = None
        self._link: Link | None = None
        self._out: _Pipe | None = None
        self._inbox = bytearray()
        self._has_end = False  # the peer sends no more
        self._has_ended = False  # we send no more
        self._failure: int | None = None
        self._queue: deque[SimulatedSocket] = deque()  # of a listening socket: not accepted yet
        self._backlog = 0
        self.on_hang_up: Callable[[], None] | None = None
        host.sockets[self._descriptor] = self

    def __repr__(self) -> str:
        return f"<{self.label} {self._state.name.lower()}>"

    @property
    def label(self) -> str:
        return f"{self._host.name}:{self._name[1]}"

    @property
    def host(self) -> Host:
        return self._host

    @property
    def peer(self) -> SimulatedSocket | None:
        """The other end; for faults and tests, no socket has that."""
        return self._peer

    @property
    def is_connected(self) -> bool:
        return self._state is _State.CONNECTED and not self._is_orphan

    # -- what the selector asks ----------------------------------------------------------------------------------------

    def fileno(self) -> int:
        return self._descriptor

    def is_readable(self) -> bool:
        if self._is_orphan:
            return False
        return bool(self._queue or self._inbox or self._has_end or self._failure is not None)

    def is_writable(self) -> bool:
        if self._is_orphan:
            return False
        return self._failure is not None or (self._out is not None and self._out.has_room and self.is_connected)

    def _changed(self) -> None:
        if self._descriptor >= 0:
            self._network.loop.sockets.look_at(self._descriptor)

    # -- options and names ---------------------------------------------------------------------------------------------

    def setblocking(self, flag: bool) -> None:
        assert not flag, "a blocking socket would stop the simulated world"

    def gettimeout(self) -> float:
        return 0.0

    def setsockopt(self, level: int, name: int, value: int) -> None:
        self._check_open()

    def getsockopt(self, level: int, name: int) -> int:
        self._check_open()
        if (level, name) == (socket.SOL_SOCKET, socket.SO_ERROR):
            failure, self._failure = self._failure, None
            return failure or 0
        return 0

    def getsockname(self) -> Address:
        return self._name

    def getpeername(self) -> Address:
        if self._peer_name is None:
            raise _error(errno.ENOTCONN)
        return self._peer_name

    def _check_open(self) -> None:
        if self._state is _State.CLOSED:
            raise _error(errno.EBADF)

    def _check_usable(self) -> None:
        self._check_open()
        if self._is_orphan:
            raise _error(errno.EAGAIN)

    # -- listening -----------------------------------------------------------------------------------------------------

    def bind(self, address: Address) -> None:
        self._check_usable()
        name, port = address
        if self._network.resolve(name, self._host) is not self._host:
            raise _error(errno.EADDRNOTAVAIL)
        if port in self._host.listeners:
            raise _error(errno.EADDRINUSE)
        self._name = (name or "0.0.0.0", port or self._host.free_port())
        self._host.listeners[self._name[1]] = self

    def listen(self, backlog: int = 128) -> None:
        self._check_usable()
        self._state = _State.LISTENING
        self._backlog = max(1, backlog)

    def accept(self) -> tuple[socket.socket, Address]:
        self._check_usable()
        if not self._queue:
            raise _error(errno.EAGAIN)
        sock = self._queue.popleft()
        return cast("socket.socket", sock), sock.getpeername()

    # -- connecting ----------------------------------------------------------------------------------------------------

    def connect(self, address: Address) -> None:
        self._check_usable()
        assert self._state is _State.FRESH, f"{self} was used before"
        host = self._network.resolve(address[0], self._host)
        self._link = self._network.link(self._host.name, host.name)
        self._name = (self._host.address, self._host.free_port())
        self._peer_name = (host.address, address[1])
        self._state, self.is_caller = _State.CONNECTING, True
        self._network.trace(f"{self.label} connects to {host.name}:{address[1]}")
        self._link.carry(lambda: self._knock(host, address[1]))
        raise _error(errno.EINPROGRESS)

    def _knock(self, host: Host, port: int) -> None:
        """The attempt to connect has arrived at the other host."""
        if self._state is not _State.CONNECTING or self._is_orphan:
            return
        link = self._link
        assert link is not None
        listener = host.listeners.get(port)
        if listener is None or listener._state is not _State.LISTENING:
            link.carry(lambda: self._fail(errno.ECONNREFUSED))
        elif len(listener._queue) >= listener._backlog:
            again = self._network.loop.time() + SYN_RETRY_S
            self._network.later(again, lambda: link.carry(lambda: self._knock(host, port)))
        else:
            listener._queue.append(self._meet(host, port, link))
            listener._changed()

    def _meet(self, host: Host, port: int, link: Link) -> SimulatedSocket:
        """The other end of a connection that this socket asked for."""
        other = SimulatedSocket(host)
        other._state = _State.CONNECTED
        other._name, other._peer_name = (host.address, port), self._name
        other._link = link
        self._peer, other._peer = other, self
        self._out, other._out = _Pipe(link, other), _Pipe(link, self)
        other._out.push(_Mark.OPEN)
        return other

    # -- what arrives --------------------------------------------------------------------------------------------------

    def take(self, segment: bytes | _Mark) -> None:
        """The next piece of the peer's stream is here."""
        if self._state is _State.CLOSED or self._is_orphan:
            if segment is not _Mark.END:
                self._send_reset()
            return
        if segment is _Mark.OPEN:
            self._state = _State.CONNECTED
        elif segment is _Mark.END:
            self._has_end = True
            self._network.trace(f"{self.label} reads the end")
        else:
            assert isinstance(segment, bytes)
            self._inbox += segment
            self._network.trace(f"{self.label} gets {len(segment)} {zlib.crc32(segment):08x}")
        self._changed()
        if self._has_end and self.on_hang_up is not None:
            self.on_hang_up()

    def _send_reset(self) -> None:
        """Tells the peer that nobody is here."""
        link, peer = self._link, self._peer
        if link is not None and peer is not None:
            link.carry(lambda: peer._fail(errno.ECONNRESET))

    def _fail(self, number: int) -> None:
        if self._state is _State.CLOSED or self._is_orphan or self._failure is not None:
            return
        self._network.trace(f"{self.label} fails: {errno.errorcode[number]}")
        self._failure = number
        self._inbox.clear()
        self._has_end = self._has_ended = True
        if self._out is not None:
            self._out.clear()
        self._changed()
        if self.on_hang_up is not None:
            self.on_hang_up()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise _error(failure)

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def _portion(self, count: int) -> int:
        """How much of what a call could move it does move."""
        assert self._link is not None
        if count > 1 and self._network.rng.random() < self._link.conditions.cut_chance:
            return self._network.rng.randint(1, count)
        return count

    def recv(self, size: int) -> bytes:
        self._check_usable()
        self._raise_failure()
        if self._inbox:
            count = self._portion(min(size, len(self._inbox)))
            data = bytes(self._inbox[:count])
            del self._inbox[:count]
            self._was_read(count)
            return data
        if self._has_end:
            return b""
        raise self._not_now()

    def _not_now(self) -> OSError:
        return _error(errno.EAGAIN if self._state is _State.CONNECTED else errno.ENOTCONN)

    def _was_read(self, count: int) -> None:
        peer = self._peer
        assert peer is not None
        if peer._out is not None:
            peer._out.unread_bytes = max(0, peer._out.unread_bytes - count)
        peer._changed()

    def recv_into(self, buffer: Buffer, size: int = 0) -> int:
        with memoryview(buffer) as view, view.cast("B") as target:
            data = self.recv(size or len(target))
            target[: len(data)] = data
        return len(data)

    def send(self, data: Buffer) -> int:
        self._check_usable()
        self._raise_failure()
        if self._has_ended:
            raise _error(errno.EPIPE)
        if self._state is not _State.CONNECTED:
            raise self._not_now()
        assert self._out is not None
        with memoryview(data) as view, view.cast("B") as source:
            if not len(source):
                return 0
            count = min(len(source), self._out.free_bytes)
            if not count:
                raise self._not_now()
            count = self._portion(count)
            self._out.push(bytes(source[:count]))
        return count

    def sendmsg(self, buffers: Iterable[Buffer]) -> int:
        return self.send(b"".join(bytes(buffer) for buffer in buffers))

    # -- ending --------------------------------------------------------------------------------------------------------

    def shutdown(self, how: int) -> None:
        self._check_usable()
        if self._state is not _State.CONNECTED:
            raise _error(errno.ENOTCONN)
        if how in (socket.SHUT_WR, socket.SHUT_RDWR):
            self._end()
        if how in (socket.SHUT_RD, socket.SHUT_RDWR):
            self._has_end = True
            self._changed()

    def _end(self) -> None:
        if not self._has_ended and self._out is not None:
            self._has_ended = True
            self._out.push(_Mark.END)

    def close(self) -> None:
        if self._state is _State.CLOSED:
            return
        self._network.loop.sockets.forget(self._descriptor)
        if not self._is_orphan:
            self._part()
        self._host.sockets.pop(self._descriptor, None)
        self._state, self._descriptor = _State.CLOSED, -1

    def _part(self) -> None:
        """What the kernel tells the peers of a socket that is closed."""
        if self._host.listeners.get(self._name[1]) is self:
            del self._host.listeners[self._name[1]]
        for waiting in self._queue:
            waiting.abort()
        self._queue.clear()
        if self._state is _State.CONNECTED:
            if self._inbox:  # the peer must learn that not all was read
                self._send_reset()
            else:
                self._end()

    def abort(self) -> None:
        """Ends with a reset."""
        if self._state is not _State.CLOSED:
            self._send_reset()
            self._inbox.clear()
            self._has_ended = True
            self.close()

    def orphan(self, *, silently: bool) -> None:
        """The process is gone: from here on, whatever of its code still runs can neither receive nor send anything."""
        if self._state is _State.CLOSED:
            return
        self._network.loop.sockets.abandon(self._descriptor)
        if not silently:
            self._part()
        else:
            if self._host.listeners.get(self._name[1]) is self:
                del self._host.listeners[self._name[1]]
            if self._out is not None:
                self._out.clear()  # nobody is left to send it again
        self._is_orphan = True


class Host:
    """A machine with one address and one process on it."""

    def __init__(self, network: SimulatedNetwork, name: str, address: str) -> None:
        self.network = network
        self.name = name
        self.address = address
        self.is_up = True
        self.listeners: dict[int, SimulatedSocket] = {}
        self.sockets: dict[int, SimulatedSocket] = {}  # the open ones by descriptor
        self._next_port = FIRST_EPHEMERAL_PORT

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port - 1

    def new_socket(self) -> socket.socket:
        """A socket to connect with; it stands in for a real one, hence the type."""
        if not self.is_up:
            raise _error(errno.ENETDOWN)
        return cast("socket.socket", SimulatedSocket(self))

    def bind(self, host: str, port: int) -> socket.socket:
        """As `ottla.net.server.bind`."""
        sock = self.new_socket()
        try:
            sock.bind((host, port))
        except OSError:
            sock.close()
            raise
        return sock

    async def connect(self, host: str, port: int) -> socket.socket:
        """A connection to a listening socket; OSError where there is none."""
        sock = self.new_socket()
        try:
            await self.network.loop.sock_connect(sock, (self.network.resolve(host, self).address, port))
        except BaseException:
            sock.close()
            raise
        return sock

    def kill(self) -> None:
        """The process ends; the machine is still there, and says goodbye for it."""
        self.network.trace(f"{self.name} is killed")
        self._lose_sockets(silently=False)

    def power_off(self) -> None:
        self.network.trace(f"{self.name} is off")
        self.is_up = False
        self._lose_sockets(silently=True)

    def power_on(self) -> None:
        if not self.is_up:
            self.network.trace(f"{self.name} is on")
            self.is_up = True
            self.network.release()

    def _lose_sockets(self, *, silently: bool) -> None:
        for sock in list(self.sockets.values()):
            sock.orphan(silently=silently)
        self.sockets.clear()


class SimulatedNetwork:
    """All hosts and the ways between them."""

    def __init__(
        self,
        loop: SimulatedLoop,
        rng: Random,
        conditions: Conditions | None = None,
        trace: Trace | None = None,
    ) -> None:
        self.loop = loop
        self.rng = rng
        self.conditions = Conditions() if conditions is None else conditions  # of links that are made from now on
        self.trace: Trace = trace or (lambda event: None)
        self._hosts: dict[str, Host] = {}
        self._links: dict[tuple[str, str], Link] = {}
        # What arrives belongs to no process, whoever sent it.
        self._context = contextvars.Context()
        loop.resolve_with(lambda name: self.resolve(name).address)

    def later(self, when: float, act: Callable[[], None]) -> None:
        self.loop.call_at(when, act, context=self._context)

    # -- hosts and links -----------------------------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        """The host of that name; it is there from the moment that it is named."""
        host = self._hosts.get(name)
        if host is None:
            number = len(self._hosts) + 1
            host = self._hosts[name] = Host(self, name, f"10.0.{number >> 8}.{number & 255}")
        return host

    def resolve(self, name: str, seen_from: Host | None = None) -> Host:
        if seen_from is not None and name in LOOPBACK:
            return seen_from
        for host in self._hosts.values():
            if name in (host.name, host.address):
                return host
        raise socket.gaierror(socket.EAI_NONAME, f"no host is called {name}")

    def link(self, one: str, other: str) -> Link:
        key = (one, other) if one <= other else (other, one)
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = Link(self, (self.host(one), self.host(other)), self.conditions)
        return link

    # -- faults --------------------------------------------------------------------------------------------------------

    def cut(self, one: str, other: str) -> None:
        """Nothing passes between the two until `heal`."""
        self.trace(f"{one} and {other} are cut off")
        self.link(one, other).is_cut = True

    def heal(self, one: str | None = None, other: str | None = None) -> None:
        """Takes back the cut between two hosts, or all cuts."""
        for link in self._links.values() if one is None or other is None else [self.link(one, other)]:
            if link.is_cut:
                self.trace(f"{link.ends[0].name} and {link.ends[1].name} are connected again")
                link.is_cut = False
        self.release()

    def release(self) -> None:
        for link in self._links.values():
            link.release()

    def connections(self, one: str | None = None, other: str | None = None) -> list[SimulatedSocket]:
        """One end of every open connection, or of those between two hosts; the end that asked for it."""
        return [
            sock
            for host in self._hosts.values()
            for sock in host.sockets.values()
            if sock.is_connected
            and sock.is_caller
            and sock.peer is not None
            and (one is None or {one, other} == {sock.host.name, sock.peer.host.name})
        ]

    def reset(self, sock: SimulatedSocket) -> None:
        """Breaks a connection; both ends learn it at once."""
        peer = sock.peer
        sock._fail(errno.ECONNRESET)
        if peer is not None:
            peer._fail(errno.ECONNRESET)

"""Listeners: accept connections within the limits, close idle ones, stop in order.

Whoever comes while there are as many connections as there may be, or faster than they may come, waits in the kernel's
queue; an address that has too many of its own is closed at once, one that makes them too fast after a pause. The
listener of brokers is not kept waiting by those of clients: an idle connection of another one goes instead.

One event loop plays acceptor, processor and handler; the properties that Kafka's threads give hold here by the rules of
`Connection`. Limits are Kafka's settings and are looked at when a connection arrives, so that they can change while the
server runs.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.errors import ConfigError
from ottla.net.connection import Connection, Handler
from ottla.net.handshakes import HandshakeTurns
from ottla.net.hang_ups import HangUps
from ottla.net.spare_frames import SpareFrames
from ottla.net.transport import OpenTransport, Plain
from ottla.runtime.turns import Turns
from ottla.security.rates import Rate, Windows

logger = logging.getLogger(__name__)

RECEIVE_BUFFER_BYTES = 256 * 1024
ACCEPTS_AT_ONCE = 64  # taken in one turn of the loop, so that a storm of connections starves nobody
ACCEPTING_S = 0.002  # spent on them in one turn
# The process has no descriptor or memory left: the peer stays in the kernel's queue and is taken later.
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
ACCEPT_PAUSE_S = 0.1
MAPPED_IPV4 = "::ffff:"
# Kafka's default of 50 is for a thread that does nothing but accept. Ours also serves, and whoever finds the queue full
# comes back after a second: 5,000 connections at once took a minute.
BACKLOG_MIN = 1024
NO_LIMIT = 2**31 - 1
IP_RATES_MAX = 10_000  # addresses whose rate of connections is measured
HELD_MAX = 1000  # connections of addresses that made too many, until they are closed

Bind = Callable[[str, int], socket.socket]
OpenSession = Callable[[str, str], Any]


@dataclass(slots=True)
class ServerLimits:
    """Kafka's settings of the socket server."""

    connections_max: int = NO_LIMIT  # max.connections
    connections_max_of_listeners: Mapping[str, int] = field(default_factory=dict)
    connections_per_s: int = NO_LIMIT  # max.connection.creation.rate
    connections_per_s_of_listeners: Mapping[str, int] = field(default_factory=dict)
    connections_per_s_of_ips: Mapping[str, float] = field(default_factory=dict)  # quotas: connection_creation_rate
    connections_per_s_of_other_ips: float | None = None
    windows: Windows = field(default_factory=Windows)  # over which these rates are averaged
    protected_listener: str | None = None  # that of brokers, where there are others
    descriptors_max: int = NO_LIMIT  # what of the process's descriptors is for connections
    connections_per_ip_max: int = NO_LIMIT  # max.connections.per.ip
    connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    idle_ms: int = 600_000  # connections.max.idle.ms
    frame_bytes_max: int = 104_857_600  # socket.request.max.bytes
    send_buffer_bytes: int = 102_400  # socket.send.buffer.bytes; -1: the system's


class Listener:
    """One listening socket and its connections."""

    def __init__(
        self,
        server: Server,
        name: str,
        sock: socket.socket,
        address: tuple[str, int],
        handler: Handler,
        open_session: OpenSession,
        open_transport: OpenTransport,
        login_bytes_max: int | None,
    ) -> None:
        self._server = server
        self._login_bytes_max = login_bytes_max
        self._handler = handler
        self._open_session = open_session
        self._open_transport = open_transport
        self._socket = sock
        self.name = name
        self.loop = server.loop
        self.address = address
        self.receive_buffer = server.receive_buffer
        self.spare_frames = server.spare_frames
        self._is_exhausted = False  # logged once, not ten times a second
        self._is_accepting = False
        self._resume_timer: asyncio.TimerHandle | None = None  # while connections come too fast
        self.turns = server.turns
        self.handshakes = server.handshakes

    @property
    def frame_bytes_max(self) -> int:
        return self._server.limits.frame_bytes_max

    def start(self) -> None:
        if not self._is_accepting and self._resume_timer is None and self._socket.fileno() >= 0:
            self._is_accepting = True
            self.loop.add_reader(self._socket, self._acceptable)

    def _pause(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            self.loop.remove_reader(self._socket)

    def _pause_for(self, seconds: float) -> None:
        self._pause()
        self._resume_timer = self.loop.call_later(seconds, self._accept_again)

    def _acceptable(self) -> None:
        turn_ends = self.turns.timer() + ACCEPTING_S
        for number in range(ACCEPTS_AT_ONCE):
            if number and self.turns.timer() >= turn_ends:
                return  # a handshake of TLS may take a millisecond; the loop comes back to those who wait
            if not self._server.has_room(self.name):
                self._pause()  # until a connection is closed
                return
            try:
                sock, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                if not self._is_exhausted:
                    logger.warning("%s: cannot accept connections: %s; retrying", self.name, error)
                self._is_exhausted = True
                self._pause_for(ACCEPT_PAUSE_S)
                return
            self._is_exhausted = False
            delay_ms = self._server.accepted(self, sock, peer)
            if delay_ms:
                self._pause_for(delay_ms / 1000)
                return

    def _accept_again(self) -> None:
        self._resume_timer = None
        self.start()

    def connect(self, sock: socket.socket, peer: tuple[str, int]) -> Connection:
        session = self._open_session(self.name, peer[0])
        connection = Connection(self, self._open_transport(sock), peer, self._handler, session)
        connection.login_bytes_max = self._login_bytes_max
        return connection

    def closed(self, connection: Connection) -> None:
        self._server.closed(connection)

    def keep_until_done(self, task: asyncio.Task[None]) -> None:
        self._server.keep_until_done(task)

    def close(self) -> None:
        self._pause()
        if self._resume_timer is not None:
            self._resume_timer.cancel()
        self._socket.close()


class Server:
    """All listeners of a broker and the connections that came in through them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: ServerLimits, turns: Turns | None = None) -> None:
        """`turns`: whose turn it is on the loop; connections with much to do stand in its line."""
        self.loop = loop
        self._limits = limits
        self.turns = Turns() if turns is None else turns
        # One buffer for all: a request is handled, or copied, before the next bytes are received.
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.spare_frames = SpareFrames()
        self.listeners: list[Listener] = []
        self.connections: dict[Connection, None] = {}  # in order, so that a simulated run can be replayed
        self.refused_count = 0
        self._is_started = False
        self._per_ip: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._rate = Rate()
        self._listener_rates: dict[str, Rate] = {}
        self._ip_rates: dict[str, Rate] = {}
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}
        self.handshakes = HandshakeTurns(loop, self.turns.timer)
        self._emptied = asyncio.Event()
        self._hang_ups = HangUps(loop)
        self._without_connection: dict[asyncio.Task[None], None] = {}  # requests whose connection is closed
        self._idle_timer: asyncio.TimerHandle | None = None

    def listen(
        self,
        name: str,
        sock: socket.socket,
        handler: Handler,
        *,
        open_session: OpenSession = lambda listener_name, client_host: None,
        open_transport: OpenTransport = Plain,
        login_bytes_max: int | None = None,
    ) -> Listener:
        """Serves a socket that listens; connections are taken once `start` is called.

        `open_session` makes what the handler finds as `connection.session`, from the listener's name and the peer's
        address. `login_bytes_max`: where peers log in, the largest frame until the handler has seen that.
        """
        sock.setblocking(False)
        host, port = sock.getsockname()[:2]
        listener = Listener(self, name, sock, (host, port), handler, open_session, open_transport, login_bytes_max)
        self.listeners.append(listener)
        return listener

    def start(self) -> None:
        self._is_started = True
        for listener in self.listeners:
            listener.start()
        self._schedule_idle_check()

    # -- connections ---------------------------------------------------------------------------------------------------

    @property
    def limits(self) -> ServerLimits:
        return self._limits

    @limits.setter
    def limits(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._let_wait_no_longer()

    def has_room(self, listener_name: str) -> bool:
        """Whether a listener may have one more connection."""
        limits = self.limits
        own_max = limits.connections_max_of_listeners.get(listener_name, NO_LIMIT)
        if self._per_listener[listener_name] >= own_max:
            return False
        return len(self.connections) < limits.connections_max or listener_name == limits.protected_listener

    def _let_wait_no_longer(self) -> None:
        """There may be room for those who wait."""
        if self._is_started:
            for listener in self.listeners:
                if self.has_room(listener.name):
                    listener.start()

    def accepted(self, listener: Listener, sock: socket.socket, peer: tuple[str, int]) -> int:
        """Serves a new connection, or not; returns how long its listener takes no more, in milliseconds."""
        ip = plain_ip(peer[0])
        delay_ms = self._ip_delay_ms(ip)
        if delay_ms:
            self.refused_count += 1
            logger.warning("%s: connection from %s refused: it makes them too fast (its quota)", listener.name, ip)
            self._hold(sock, delay_ms)
            return 0
        delay_ms = self._delay_ms(listener.name)
        reason = self._reason_to_refuse(ip)
        if reason is not None:
            self.refused_count += 1
            logger.warning("%s: connection from %s refused: %s", listener.name, ip, reason)
            sock.close()
            return delay_ms
        if len(self.connections) >= self.limits.connections_max:
            self._close_longest_idle(listener.name)
        try:
            self._configure(sock)
            connection = listener.connect(sock, (ip, peer[1]))
        except OSError as error:
            logger.info("%s: connection from %s was closed at once: %s", listener.name, ip, error)
            sock.close()
            return delay_ms
        self._per_ip[ip] += 1
        self._per_listener[listener.name] += 1
        self.connections[connection] = None
        self._hang_ups.watch(connection.watched_socket, connection.hung_up)
        return delay_ms

    def _delay_ms(self, listener_name: str) -> int:
        """A listener has one more connection: how long it waits with the next so that they do not come too fast."""
        limits = self.limits
        own = limits.connections_per_s_of_listeners.get(listener_name)
        delays_ms = [0]
        if own is not None:
            delays_ms.append(self._measured(self._listener_rates.setdefault(listener_name, Rate()), own))
        if limits.connections_per_s < NO_LIMIT and listener_name != limits.protected_listener:
            delays_ms.append(self._measured(self._rate, limits.connections_per_s))
        return max(delays_ms)

    def _ip_delay_ms(self, ip: str) -> int:
        """How long a connection of an address that makes too many is held; it does not count then."""
        limit = self.limits.connections_per_s_of_ips.get(ip, self.limits.connections_per_s_of_other_ips)
        if limit is None:
            return 0
        rate = self._ip_rates.get(ip)
        if rate is None:
            if len(self._ip_rates) >= IP_RATES_MAX:
                del self._ip_rates[next(iter(self._ip_rates))]
            rate = self._ip_rates[ip] = Rate()
        delay_ms = self._measured(rate, limit)
        if delay_ms:
            rate.record(-1, self._now_ms(), self.limits.windows)
        return delay_ms

    def _measured(self, rate: Rate, limit: float) -> int:
        now_ms, windows = self._now_ms(), self.limits.windows
        rate.record(1, now_ms, windows)
        return min(rate.delay_ms(max(limit, 1e-9), now_ms, windows), windows.size_ms)

    def _now_ms(self) -> int:
        return int(self.loop.time() * 1000)

    def _hold(self, sock: socket.socket, delay_ms: int) -> None:
        """Closes a connection later, so that whoever makes them too fast is not faster for it."""
        if len(self._held) >= HELD_MAX:
            sock.close()
        else:
            self._held[sock] = self.loop.call_later(delay_ms / 1000, self._let_go, sock)

    def _let_go(self, sock: socket.socket) -> None:
        self._held.pop(sock).cancel()
        sock.close()

    def _close_longest_idle(self, listener_name: str) -> None:
        """Makes room for a broker: whoever of others was served longest ago has to come again."""
        others = [one for one in self.connections if one.listener_name != listener_name and not one.is_busy]
        if others:
            oldest = min(others, key=lambda one: one.last_active)
            logger.warning("%s: closed to make room for a broker (max.connections)", oldest)
            oldest.close()

    def _reason_to_refuse(self, ip: str) -> str | None:
        limits = self.limits
        if len(self.connections) >= limits.descriptors_max:
            return f"there are {len(self.connections)} already, and no file descriptors for more (ulimit -n)"
        per_ip_max = limits.connections_per_ip_overrides.get(ip, limits.connections_per_ip_max)
        if self._per_ip[ip] >= per_ip_max:
            return f"this address has {self._per_ip[ip]} already (max.connections.per.ip)"
        return None

    def _configure(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.limits.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.limits.send_buffer_bytes)

    def closed(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self._hang_ups.forget(connection.descriptor)
        ip = connection.peer[0]
        self._per_ip[ip] -= 1
        if self._per_ip[ip] <= 0:
            del self._per_ip[ip]
        self._per_listener[connection.listener_name] -= 1
        self._let_wait_no_longer()
        if not self.connections:
            self._emptied.set()

    def keep_until_done(self, task: asyncio.Task[None]) -> None:
        """A request is carried out to its end although its connection is closed; `drain` waits for it."""
        self._without_connection[task] = None
        task.add_done_callback(lambda done: self._without_connection.pop(done, None))

    def _schedule_idle_check(self) -> None:
        interval_s = max(0.05, min(10.0, self.limits.idle_ms / 1000 / 4))
        self._idle_timer = self.loop.call_later(interval_s, self._close_idle)

    def _close_idle(self) -> None:
        oldest = self.loop.time() - self.limits.idle_ms / 1000
        if self.limits.idle_ms >= 0:
            for connection in [one for one in self.connections if _used_last(one) < oldest and not one.is_busy]:
                logger.debug("%s: idle for %d ms; closed", connection, self.limits.idle_ms)
                connection.close()
        self._forget_idle_ips()
        self._schedule_idle_check()

    def _forget_idle_ips(self) -> None:
        windows = self.limits.windows
        oldest_ms = self._now_ms() - windows.count * windows.size_ms
        self._ip_rates = {ip: rate for ip, rate in self._ip_rates.items() if rate.used_ms > oldest_ms}

    # -- ending --------------------------------------------------------------------------------------------------------

    def stop_accepting(self) -> None:
        self._is_started = False
        for listener in self.listeners:
            listener.close()
        for sock in list(self._held):
            self._let_go(sock)
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    async def drain(self, timeout_s: float) -> None:
        """Lets every connection finish what it has in hand, then closes it; the rest goes when the time is up."""
        self._close_after_answer(self.connections)
        try:
            async with asyncio.timeout(timeout_s):
                while self.connections:
                    self._emptied.clear()
                    await self._emptied.wait()
                if self._without_connection:
                    await asyncio.wait(self._without_connection)
        except TimeoutError:
            logger.warning("%d connections did not finish in %.0f s; closed", len(self.connections), timeout_s)
        for connection in list(self.connections):
            connection.close()
        for task in list(self._without_connection):
            task.cancel()
        self._hang_ups.close()

    @staticmethod
    def _close_after_answer(connections: Iterable[Connection]) -> None:
        for connection in list(connections):
            connection.stop()


def _used_last(connection: Connection) -> float:
    """Bytes of somebody who has not logged in do not count: sent one by one, they would keep a connection for ever."""
    return connection.last_active if connection.login_bytes_max is None else connection.accepted_at


def open_listener(
    host: str, port: int, *, receive_buffer_bytes: int, backlog: int, bind: Bind | None = None
) -> socket.socket:
    """A socket to which peers can connect: they wait in the kernel's queue for whoever accepts. Or a ConfigError.

    `receive_buffer_bytes` is socket.receive.buffer.bytes (-1: the system's), `backlog` socket.listen.backlog.size.
    """
    try:
        sock = (bind or bind_socket)(host, port)
        if receive_buffer_bytes > 0:  # before listening: it decides the window that connections begin with
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        sock.listen(max(backlog, BACKLOG_MIN))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise ConfigError(
            f"cannot listen on {host}:{port}: {reason}; "
            "is another broker running there? choose another port with listeners or --listen"
        ) from error
    return sock


def plain_ip(address: str) -> str:
    """The address of a peer as limits and ACLs name it: one of IPv4 that came to a socket of IPv6 is one of IPv4."""
    return address.removeprefix(MAPPED_IPV4) if "." in address else address.partition("%")[0]


def bind_socket(host: str, port: int) -> socket.socket:
    """A bound TCP socket; OSError where the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock

"""Listeners: accept connections within the limits, close idle ones, stop in order.

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
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.errors import ConfigError
from ottla.net.connection import Connection, Handler
from ottla.net.hang_ups import HangUps
from ottla.net.transport import OpenTransport, Plain

logger = logging.getLogger(__name__)

RECEIVE_BUFFER_BYTES = 256 * 1024
ACCEPTS_AT_ONCE = 64  # taken in one turn of the loop, so that a storm of connections starves nobody
# The process has no descriptor or memory left: the peer stays in the kernel's queue and is taken later.
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
ACCEPT_PAUSE_S = 0.1
# Kafka's default of 50 is for a thread that does nothing but accept. Ours also serves, and whoever finds the queue full
# comes back after a second: 5,000 connections at once took a minute.
BACKLOG_MIN = 1024

Bind = Callable[[str, int], socket.socket]
OpenSession = Callable[[str, str], Any]


@dataclass(slots=True)
class ServerLimits:
    """Kafka's settings of the socket server."""

    connections_max: int = 2**31 - 1  # max.connections
    descriptors_max: int = 2**31 - 1  # what of the process's descriptors is for connections
    connections_per_ip_max: int = 2**31 - 1  # max.connections.per.ip
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
        self._is_exhausted = False  # told once, not ten times a second
        self.timer = server.timer

    @property
    def frame_bytes_max(self) -> int:
        return self._server.limits.frame_bytes_max

    def start(self) -> None:
        self.loop.add_reader(self._socket, self._acceptable)

    def _acceptable(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
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
                self.loop.remove_reader(self._socket)
                self.loop.call_later(ACCEPT_PAUSE_S, self._accept_again)
                return
            self._is_exhausted = False
            self._server.accepted(self, sock, peer)

    def _accept_again(self) -> None:
        if self._socket.fileno() >= 0:
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
        self.loop.remove_reader(self._socket)
        self._socket.close()


class Server:
    """All listeners of a broker and the connections that came in through them."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limits: ServerLimits, timer: Callable[[], float] = time.perf_counter
    ) -> None:
        """`timer` tells seconds, for the turns of connections; a simulation counts looks at it instead."""
        self.loop = loop
        self.limits = limits
        self.timer = timer
        # One buffer for all: a request is handled, or copied, before the next bytes are received.
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.listeners: list[Listener] = []
        self.connections: dict[Connection, None] = {}  # in order, so that a simulated run can be replayed
        self.refused_count = 0
        self._per_ip: Counter[str] = Counter()
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
        for listener in self.listeners:
            listener.start()
        self._schedule_idle_check()

    # -- connections ---------------------------------------------------------------------------------------------------

    def accepted(self, listener: Listener, sock: socket.socket, peer: tuple[str, int]) -> None:
        ip = peer[0]
        reason = self._reason_to_refuse(ip)
        if reason is not None:
            self.refused_count += 1
            logger.warning("%s: connection from %s refused: %s", listener.name, ip, reason)
            sock.close()
            return
        try:
            self._configure(sock)
            connection = listener.connect(sock, (ip, peer[1]))
        except OSError as error:
            logger.info("%s: connection from %s was closed at once: %s", listener.name, ip, error)
            sock.close()
            return
        self._per_ip[ip] += 1
        self.connections[connection] = None
        self._hang_ups.watch(connection.watched_socket, connection.hung_up)

    def _reason_to_refuse(self, ip: str) -> str | None:
        limits = self.limits
        if len(self.connections) >= limits.connections_max:
            return f"there are {len(self.connections)} already (max.connections)"
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
        self._schedule_idle_check()

    # -- ending --------------------------------------------------------------------------------------------------------

    def stop_accepting(self) -> None:
        for listener in self.listeners:
            listener.close()
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

"""Notices that a peer has hung up while nothing is read from it.

A connection does not read while it is at work for its peer, so the end of the stream would be found only when the
answer leaves: a consumer that dies in a Fetch of a minute would keep its connection for that minute. One epoll watches
all connections for nothing but that. It costs a system call when a connection is accepted, and none later.

Without epoll nobody is notified, and the end is noticed when the answer is sent.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)

EVENTS_AT_ONCE = 256  # taken in one turn of the loop: a thousand clients may vanish together


class HangUps:
    """Sockets that are watched, and what is called once for each whose peer has closed its side, or is gone."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._epoll: select.epoll | None = None

    def watch(self, sock: Any, on_hang_up: Callable[[], None]) -> None:
        if not isinstance(sock, socket.socket):
            sock.on_hang_up = on_hang_up  # a simulated one calls it by itself
            return
        if not hasattr(select, "epoll"):
            return
        descriptor = sock.fileno()
        try:
            if self._epoll is None:
                self._epoll = select.epoll()
                self._loop.add_reader(self._epoll.fileno(), self._look)
            self._epoll.register(descriptor, select.EPOLLRDHUP | select.EPOLLET)
        except OSError as error:  # no descriptor or no memory left: the connection works without
            logger.warning("a connection cannot be watched: %s; it is noticed late if its peer hangs up", error)
            return
        self._callbacks[descriptor] = on_hang_up

    def forget(self, descriptor: int) -> None:
        """The socket is closed, with which the system has let it go already."""
        self._callbacks.pop(descriptor, None)

    def _look(self) -> None:
        assert self._epoll is not None
        for descriptor, _ in self._epoll.poll(0, EVENTS_AT_ONCE):
            on_hang_up = self._callbacks.pop(descriptor, None)
            if on_hang_up is not None:
                on_hang_up()

    def close(self) -> None:
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

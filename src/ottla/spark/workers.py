"""Clients that outlive the task that made them.

    with client_for("127.0.0.1:9092", options) as client:
        view = client.wait(client.cluster.view(["orders"]))

Spark runs one small task after the other in the same Python process, and a connection with what is known of its cluster
costs more than most of them. So clients are kept here, a few, for the next task of this process that asks the same
cluster in the same way. A client that was not used for a while is closed by the next call; where no call comes, Spark
ends an idle worker after a minute by itself. A process made by fork starts with none: a connection serves one process.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Final, NamedTuple

from ottla import compiled
from ottla.client.blocking import Blocking
from ottla.client.errors import TimedOutError
from ottla.client.metadata import ClientOptions
from ottla.client.retrying import is_passing
from ottla.net.client import ConnectionFailedError, ConnectionOptions, connect_tcp
from ottla.spark.security_options import Security

_log = logging.getLogger(__name__)

CLIENTS_MAX: Final = 8  # kept without a user; those in use are as many as there are tasks at a time
IDLE_S: Final = 300.0
FIRST_CONTACT_S: Final = 5.0


class _Key(NamedTuple):
    """What makes two clients the same. The pauses between tries differ by chance, so they do not count."""

    bootstrap_servers: str
    connection: ConnectionOptions
    timeout_s: float
    security: Security | None


class _Kept:
    """A place for a client. It is connected by its first user, while others that want the same one wait."""

    def __init__(self) -> None:
        self.connecting = threading.Lock()
        self.client: Blocking | None = None
        self.user_count = 0
        self.idle_since = 0.0


class Clients:
    """The clients of one process, for any number of threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[_Key, _Kept] = {}
        self._inherited: list[dict[_Key, _Kept]] = []

    @contextmanager
    def client_for(
        self,
        bootstrap_servers: str,
        options: ClientOptions | None = None,
        security: Security | None = None,
        *,
        is_first_contact: bool = False,
    ) -> Iterator[Blocking]:
        """A connected client. No broker within `options.timeout_s` is a TimedOutError that says what was tried.

        `is_first_contact`: the address was never seen to work, and may be wrong, so it is not tried for as long.
        """
        options = options or ClientOptions()
        key = _Key(bootstrap_servers, options.connection, options.timeout_s, security)
        with self._lock:
            kept = self._kept.setdefault(key, _Kept())
            kept.user_count += 1
            surplus = self._take_surplus()
        _close(surplus)
        try:
            with kept.connecting:
                if kept.client is None:
                    kept.client = self._connect(bootstrap_servers, options, security, is_first_contact)
            yield kept.client
        finally:
            with self._lock:
                kept.user_count -= 1
                kept.idle_since = self._clock()

    def close(self) -> None:
        """Closes what nobody uses."""
        with self._lock:
            unused = [key for key, kept in self._kept.items() if not kept.user_count]
            closing = [self._kept.pop(key) for key in unused]
        _close(closing)

    def start_empty(self) -> None:
        """After a fork: the sockets and the loop are the parent's. They are held, so that nothing here closes them."""
        self._inherited.append(self._kept)
        self._kept = {}
        self._lock = threading.Lock()  # the old one may be held by a thread that is not here

    def _take_surplus(self) -> list[_Kept]:
        """Those that have been idle for too long, and the longest idle ones beyond the limit."""
        now = self._clock()
        idle = sorted(
            (key for key, kept in self._kept.items() if not kept.user_count), key=lambda key: self._kept[key].idle_since
        )
        beyond = len(idle) - CLIENTS_MAX
        surplus = [key for place, key in enumerate(idle) if place < beyond or now - self._kept[key].idle_since > IDLE_S]
        return [self._kept.pop(key) for key in surplus]

    def _connect(
        self, bootstrap_servers: str, options: ClientOptions, security: Security | None, is_first_contact: bool
    ) -> Blocking:
        """A client tries once; a task tries until its time is over, because a broker that restarts is back soon."""
        connector = connect_tcp if security is None else security.connector()
        timeout_s = min(options.timeout_s, FIRST_CONTACT_S) if is_first_contact else options.timeout_s
        end = self._clock() + timeout_s
        for pause_s in options.pauses:
            try:
                return Blocking(bootstrap_servers, options, connector).__enter__()
            except ConnectionFailedError as error:
                if not is_passing(error):
                    raise
                if self._clock() + pause_s >= end:
                    raise TimedOutError(timeout_s, error) from error
            time.sleep(pause_s)
        raise AssertionError("pauses never end")


def _close(closing: list[_Kept]) -> None:
    for kept in closing:
        if kept.client is not None:
            kept.client.__exit__()


_clients = Clients()
os.register_at_fork(after_in_child=_clients.start_empty)


def client_for(
    bootstrap_servers: str,
    options: ClientOptions | None = None,
    security: Security | None = None,
    *,
    is_first_contact: bool = False,
) -> AbstractContextManager[Blocking]:
    """The client of this process for that cluster, connected; see `Clients.client_for`."""
    _complain_once()
    return _clients.client_for(bootstrap_servers, options, security, is_first_contact=is_first_contact)


@cache
def _complain_once() -> None:
    """Whoever runs a Spark job looks into the logs of its workers, if anywhere, to learn why it is slow."""
    if (complaint := compiled.complaint()) is not None:
        _log.warning(complaint)

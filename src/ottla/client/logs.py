"""What clients log: each line with the id of its client, nothing on a terminal unless the program asks for it, and
one line a minute about an address that cannot be reached.

A client sets its id for whatever it begins; tasks inherit it. The loggers are below `ottla.client`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from ottla.net.client import Address, ConnectionFailedError

LOGGERS: Final = ("ottla.client", "ottla.client.producer", "ottla.client.consumer", "ottla.client.metadata")
# A broker that restarts is back by then, and nobody needs to know.
SAID_AFTER_S: Final = 5.0
SAID_AGAIN_AFTER_S: Final = 60.0

log = logging.getLogger("ottla.client.metadata")
_client_id: ContextVar[str] = ContextVar("ottla_client_id", default="")


class _ClientIds(logging.Filter):
    """Puts the id of the client before what it says, and into `record.client_id`."""

    def filter(self, record: logging.LogRecord) -> bool:
        client_id = _client_id.get()
        if client_id and not hasattr(record, "client_id"):
            record.client_id = client_id
            record.msg, record.args = f"{client_id}: {record.getMessage()}", None
        return True


def set_up() -> None:
    """Once, when clients are imported."""
    logging.getLogger("ottla.client").addHandler(logging.NullHandler())
    ids = _ClientIds()
    for name in LOGGERS:
        logging.getLogger(name).addFilter(ids)


@contextmanager
def named(client_id: str) -> Iterator[None]:
    """What is logged in this block, and by the tasks that it begins, is said by this client."""
    token = _client_id.set(client_id)
    try:
        yield
    finally:
        _client_id.reset(token)


@dataclass(slots=True)
class _Trouble:
    since: float
    said_at: float | None = None
    failures: int = 0


class ConnectionLog:
    """Of one client: which addresses it cannot reach, and when that was said last."""

    def __init__(self) -> None:
        self._troubles: dict[Address, _Trouble] = {}

    def failed(self, address: Address, error: ConnectionFailedError, now: float) -> None:
        trouble = self._troubles.setdefault(address, _Trouble(now))
        trouble.failures += 1
        last = trouble.since + SAID_AFTER_S - SAID_AGAIN_AFTER_S if trouble.said_at is None else trouble.said_at
        if now - last >= SAID_AGAIN_AFTER_S:
            trouble.said_at = now
            log.warning("no connection for %.0f s, after %d tries: %s", now - trouble.since, trouble.failures, error)
        else:
            log.debug("no connection: %s", error)

    def made(self, address: Address, now: float) -> None:
        trouble = self._troubles.pop(address, None)
        if trouble is not None and trouble.said_at is not None:
            log.info("%s can be reached again, after %.0f s", address, now - trouble.since)

"""How far the login of a connection has come."""

from __future__ import annotations

from enum import Enum, auto

from ottla.broker.logins import Login
from ottla.config.listener_security import Mechanism


class State(Enum):
    START = auto()
    VERSIONS_KNOWN = auto()
    HANDSHAKE = auto()  # a mechanism is agreed on
    FAILED = auto()  # the last answer is on its way, and nothing else is taken


class LoginInProgress:
    """The login of one connection, from its first byte or from a new handshake to its end."""

    __slots__ = ("is_again", "is_raw", "login", "mechanism", "state")

    def __init__(self, state: State = State.START, *, is_again: bool = False) -> None:
        self.state = state
        self.is_again = is_again
        self.mechanism: Mechanism | None = None
        self.login: Login | None = None
        self.is_raw = False  # tokens come without requests around them (handshake version 0)

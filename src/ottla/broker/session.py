"""Who is at the other end of a connection, by which listener it came, and what of its requests is remembered.

What is remembered was allowed to somebody, by the rules of that moment. It holds as long as the versions of both are
the same: whoever becomes another principal, or loses a right, is checked again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.login_state import LoginInProgress
from ottla.broker.refused_starts import BatchStart, Place, RefusedStarts

if TYPE_CHECKING:
    from ottla.broker.repeated import Repeated
    from ottla.broker.rights import Rights
    from ottla.runtime.clock import Clock

ANONYMOUS = "User:ANONYMOUS"  # a peer that has not said who it is, in Kafka's words


class Sessions:
    """The sessions of a broker: they have the rules in common."""

    __slots__ = ("rules_version",)

    def __init__(self) -> None:
        self.rules_version = 0

    def open(self, listener_name: str, client_host: str) -> Session:
        return Session(self, listener_name, client_host)

    def open_for_login(self, listener_name: str, client_host: str) -> Session:
        """Of a peer that must log in first."""
        session = Session(self, listener_name, client_host)
        session.login = LoginInProgress()
        return session

    def rules_changed(self) -> None:
        """What somebody may do has changed: nothing that was allowed before counts."""
        self.rules_version += 1


class Session:
    """One connection's peer. `version` goes up when it becomes somebody else."""

    __slots__ = (
        "_repeated",
        "_rules_version_then",
        "_sessions",
        "_version_then",
        "client_host",
        "ends_ms",
        "is_by_token",
        "listener_name",
        "login",
        "login_started_ms",
        "mechanism",
        "principal",
        "refused_starts",
        "rights",
        "version",
    )

    def __init__(self, sessions: Sessions, listener_name: str, client_host: str) -> None:
        self._sessions = sessions
        self.listener_name = listener_name
        self.client_host = client_host
        self.principal = ANONYMOUS
        self.mechanism: str | None = None  # by which it logged in
        self.login: LoginInProgress | None = None  # where one is due, or in progress
        self.login_started_ms = 0
        self.is_by_token = False  # by a delegation token, which cannot make others
        self.ends_ms: int | None = None  # when it must have logged in again, in steady time
        self.version = 0
        self.rights: dict[int, Rights] = {}  # of this principal, by API key, where rights are checked
        self._repeated: dict[int, Repeated] = {}  # by API key
        self.refused_starts: RefusedStarts | None = None  # from the first on
        self._version_then, self._rules_version_then = 0, sessions.rules_version  # when it was remembered

    def become(self, principal: str) -> None:
        """The peer has shown who it is."""
        if principal == self.principal:
            return
        self.principal = principal
        self.version += 1
        self.rights = {}

    def logged_in(self, principal: str, mechanism: str, ends_ms: int | None, *, is_by_token: bool = False) -> None:
        """The peer has logged in, for the first time or again."""
        self.login = None
        self.is_by_token = is_by_token
        self.mechanism = mechanism
        self.ends_ms = ends_ms
        self.become(principal)

    @property
    def repeated(self) -> dict[int, Repeated]:
        """What is remembered of its requests, by API key: as long as it is the same peer, by the same rules."""
        if self._version_then != self.version or self._rules_version_then != self._sessions.rules_version:
            self._version_then, self._rules_version_then = self.version, self._sessions.rules_version
            self.forget_repeated()
        return self._repeated

    def forget_repeated(self) -> None:
        """The connection is closed, or the peer is another one."""
        for one in self._repeated.values():
            one.forget()
        self._repeated = {}

    def has_refused(self, clock: Clock) -> bool:
        """Whether batches of this peer were refused that have to come again."""
        return self.refused_starts is not None and not self.refused_starts.is_empty(clock.steady_ms())

    def note_refused(self, place: Place, start: BatchStart | None, now_ms: int) -> None:
        """Remembers a batch that will come again, so that those behind it wait for it."""
        if start is None:
            return
        if self.refused_starts is None:
            self.refused_starts = RefusedStarts()
        self.refused_starts.note(place, start, now_ms)

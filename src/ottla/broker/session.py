"""Who is at the other end of a connection, by which listener it came, and what of its requests is remembered.

What is remembered was allowed to somebody, by the rules of that moment. It holds as long as the versions of both are
the same: whoever becomes another principal, and whoever loses a right, is looked at anew.
"""

from __future__ import annotations

from ottla.broker.repeated_produce import RepeatedProduce

ANONYMOUS = "User:ANONYMOUS"  # a peer that has not said who it is, in Kafka's words


class Sessions:
    """The sessions of a broker: they have the rules in common."""

    __slots__ = ("rules_version",)

    def __init__(self) -> None:
        self.rules_version = 0

    def open(self, listener_name: str, client_host: str) -> Session:
        return Session(self, listener_name, client_host)

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
        "listener_name",
        "principal",
        "version",
    )

    def __init__(self, sessions: Sessions, listener_name: str, client_host: str) -> None:
        self._sessions = sessions
        self.listener_name = listener_name
        self.client_host = client_host
        self.principal = ANONYMOUS
        self.version = 0
        self._repeated: RepeatedProduce | None = None
        self._version_then = self._rules_version_then = 0  # when it was begun

    def become(self, principal: str) -> None:
        """The peer has shown who it is."""
        self.principal = principal
        self.version += 1

    @property
    def repeated(self) -> RepeatedProduce | None:
        """What is remembered of its Produce requests; None where nothing is, or where it no longer holds."""
        repeated = self._repeated
        if self._version_then != self.version or self._rules_version_then != self._sessions.rules_version:
            repeated = self._repeated = None
        return repeated

    def remember_repeated(self) -> RepeatedProduce:
        """Where to note what this peer repeats."""
        repeated = self.repeated
        if repeated is None:
            repeated = self._repeated = RepeatedProduce()
            self._version_then = self.version
            self._rules_version_then = self._sessions.rules_version
        return repeated

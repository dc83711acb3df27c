"""A session knows who asks; what it remembers holds for that principal, by those rules, and no longer."""

from __future__ import annotations

from ottla.broker.session import ANONYMOUS, Session, Sessions

PRODUCE = 0


class Remembered:
    """What would be remembered of one API."""

    def __init__(self) -> None:
        self.is_forgotten = False

    def repeat(self, *_: object) -> None:
        """Nothing is repeated here."""

    def forget(self) -> None:
        self.is_forgotten = True


def remember(session: Session) -> Remembered:
    session.repeated[PRODUCE] = remembered = Remembered()
    return remembered


def test_a_peer_that_has_not_said_who_it_is_is_anonymous_and_nothing_is_remembered() -> None:
    session = Sessions().open("PLAINTEXT", "10.0.0.1")
    assert (session.principal, session.listener_name, session.client_host) == (ANONYMOUS, "PLAINTEXT", "10.0.0.1")
    assert session.repeated == {}


def test_what_is_remembered_stays_as_long_as_nothing_changes() -> None:
    session = Sessions().open("PLAINTEXT", "10.0.0.1")
    remembered = remember(session)
    assert session.repeated == {PRODUCE: remembered}
    assert not remembered.is_forgotten


def test_a_peer_that_becomes_somebody_else_is_looked_at_anew() -> None:
    session = Sessions().open("SASL_PLAINTEXT", "10.0.0.1")
    remembered = remember(session)
    session.become("User:alice")
    assert session.principal == "User:alice"
    assert session.repeated == {}
    assert remembered.is_forgotten
    anew = remember(session)
    assert session.repeated == {PRODUCE: anew}


def test_other_rules_make_every_session_forget_and_what_is_learned_after_them_holds() -> None:
    sessions = Sessions()
    both = [sessions.open("PLAINTEXT", host) for host in ("10.0.0.1", "10.0.0.2")]
    remembered = [remember(session) for session in both]
    sessions.rules_changed()
    assert [session.repeated for session in both] == [{}, {}]
    assert [one.is_forgotten for one in remembered] == [True, True]
    later = remember(both[0])
    assert both[0].repeated == {PRODUCE: later}
    sessions.rules_changed()
    both[0].become("User:alice")
    assert both[0].repeated == {}

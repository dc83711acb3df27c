"""A session knows who asks; what it remembers holds for that principal, by those rules, and no longer."""

from __future__ import annotations

from ottla.broker.session import ANONYMOUS, Sessions


def test_a_peer_that_has_not_said_who_it_is_is_anonymous_and_nothing_is_remembered() -> None:
    session = Sessions().open("PLAINTEXT", "10.0.0.1")
    assert (session.principal, session.listener_name, session.client_host) == (ANONYMOUS, "PLAINTEXT", "10.0.0.1")
    assert session.repeated is None


def test_what_is_remembered_stays_as_long_as_nothing_changes() -> None:
    session = Sessions().open("PLAINTEXT", "10.0.0.1")
    remembered = session.remember_repeated()
    assert session.repeated is remembered
    assert session.remember_repeated() is remembered


def test_a_peer_that_becomes_somebody_else_is_looked_at_anew() -> None:
    session = Sessions().open("SASL_PLAINTEXT", "10.0.0.1")
    remembered = session.remember_repeated()
    session.become("User:alice")
    assert session.principal == "User:alice"
    assert session.repeated is None
    assert session.remember_repeated() is not remembered
    assert session.repeated is not None


def test_other_rules_make_every_session_forget_and_what_is_learned_after_them_holds() -> None:
    sessions = Sessions()
    both = [sessions.open("PLAINTEXT", host) for host in ("10.0.0.1", "10.0.0.2")]
    for session in both:
        session.remember_repeated()
    sessions.rules_changed()
    assert [session.repeated for session in both] == [None, None]
    later = both[0].remember_repeated()
    assert both[0].repeated is later
    sessions.rules_changed()
    both[0].become("User:alice")
    assert both[0].repeated is None

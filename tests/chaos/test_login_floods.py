"""A thousand peers that never finish to log in, slow and abandoned handshakes, a flood of wrong passwords: a neighbour
is served as before, and the broker's memory is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from ottla.local_cluster.certificates import Authority
from ottla.testing.broker import Broker
from ottla.testing.login_floods import begin_handshakes, begin_logins, leave_handshakes, try_passwords
from ottla.testing.secured_listeners import SecuredListeners

pytestmark = pytest.mark.slow

PROTOCOLS = {"OPEN": "PLAINTEXT", "LOGIN": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}
CONNECTIONS = 1000
WRONG_PASSWORDS = 200
P99_MS_MAX = 60

Unharmed = Callable[..., dict[str, float]]


@pytest.fixture(scope="module")
def listeners(tmp_path_factory: pytest.TempPathFactory) -> SecuredListeners:
    return SecuredListeners(PROTOCOLS, Authority(tmp_path_factory.mktemp("certificates")))


@pytest.fixture(scope="module")
def broker(listeners: SecuredListeners, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A neighbour is on its first listener, where nobody logs in."""
    directory = tmp_path_factory.mktemp("flooded")
    with Broker(listeners.settings(), directory=directory, in_process=False) as running:
        yield running


@pytest.fixture
def held(broker: Broker) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_logins_that_are_never_finished(
    broker: Broker, listeners: SecuredListeners, held: ExitStack, unharmed: Unharmed
) -> None:
    """What a frame announces is not reserved: half a megabyte for each of them would be five hundred."""
    flood = once(partial(begin_logins, listeners.address("LOGIN"), CONNECTIONS, held))
    unharmed(broker, flood, grown_kb_max=60_000, p99_ms_max=P99_MS_MAX)


def test_handshakes_that_are_slow(
    broker: Broker, listeners: SecuredListeners, held: ExitStack, unharmed: Unharmed
) -> None:
    flood = once(partial(begin_handshakes, listeners.address("BOTH"), CONNECTIONS, held))
    unharmed(broker, flood, grown_kb_max=120_000, p99_ms_max=P99_MS_MAX)


def test_handshakes_that_are_left(
    broker: Broker, listeners: SecuredListeners, held: ExitStack, unharmed: Unharmed
) -> None:
    flood = once(partial(leave_handshakes, listeners.address("BOTH"), CONNECTIONS, held))
    unharmed(broker, flood, grown_kb_max=160_000, p99_ms_max=P99_MS_MAX)


def test_wrong_passwords(broker: Broker, listeners: SecuredListeners, unharmed: Unharmed) -> None:
    def flood() -> None:
        assert try_passwords(listeners.address("LOGIN"), WRONG_PASSWORDS) == WRONG_PASSWORDS

    unharmed(broker, flood, grown_kb_max=20_000, p99_ms_max=P99_MS_MAX)


def once(flood: Callable[[], None]) -> Callable[[], None]:
    """Its connections are held from the first call on; later ones do nothing."""
    left = [flood]

    def nasty() -> None:
        while left:
            left.pop()()

    return nasty

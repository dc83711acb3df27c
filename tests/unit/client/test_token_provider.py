"""OAUTHBEARER: where tokens come from, how long they are kept, and what happens where there is none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.error_codes import SaslAuthenticationFailedError
from ottla.client.errors import SettingsError, TimedOutError
from ottla.net.tokens import TokenSource
from ottla.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ottla.runtime.clock import SystemClock
from ottla.testing import loop


class Listener:
    """What a broker with OAUTHBEARER does with tokens."""

    def __init__(self, network: Any, session_s: float = 0.0, refuses: Callable[[str], bool] = lambda token: False):
        self.tokens: list[str] = []
        self._session_ms = int(session_s * 1000)
        self._refuses = refuses
        broker = network.add(1)
        broker.scripts[SaslHandshakeRequest] = lambda request, version: SaslHandshakeResponse(
            mechanisms=["OAUTHBEARER"]
        )
        broker.scripts[SaslAuthenticateRequest] = self._authenticate

    def _authenticate(self, request: SaslAuthenticateRequest, version: int) -> SaslAuthenticateResponse:
        message = bytes(request.auth_bytes)
        if message == b"\x01":
            return SaslAuthenticateResponse(error_code=58, error_message="no such token", auth_bytes=b"")
        token = message.split(b"Bearer ")[1].rstrip(b"\x01").decode()
        self.tokens.append(token)
        if self._refuses(token):
            return SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}')
        return SaslAuthenticateResponse(auth_bytes=b"", session_lifetime_ms=self._session_ms)


def admin(network: Any, provider: Any, **settings: Any) -> Admin:
    return Admin(
        bootstrap_servers="broker:9001",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_token_provider=provider,
        connector=network.connector,
        **settings,
    )


class SetClock(SystemClock):
    now_s = 1000.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)


class WithToken:
    def token(self) -> str:
        return "token"


async def from_coroutine() -> str:
    await asyncio.sleep(1)
    return "token"


PROVIDERS = {
    "a function": lambda: "token",
    "a coroutine function": from_coroutine,
    "an object": WithToken(),
    "confluent-kafka's": lambda config: ("token", 2e9, "me", {}),
}


@pytest.mark.parametrize("kind", PROVIDERS)
def test_every_kind_of_provider_gives_a_token(network: Any, kind: str) -> None:
    listener = Listener(network)

    async def main() -> None:
        async with admin(network, PROVIDERS[kind]) as client:
            assert await client.list_topics() == ["orders"]

    loop.run(main())
    assert listener.tokens == ["token"]


def test_a_function_runs_in_a_thread_of_its_own(network: Any) -> None:
    Listener(network)
    threads: list[threading.Thread] = []

    def provide() -> str:
        threads.append(threading.current_thread())
        return "token"

    async def main() -> None:
        async with admin(network, provide):
            assert threads[0] is not threading.current_thread()

    asyncio.run(main())


def test_a_session_that_ends_is_renewed_with_a_new_token_before_the_next_request(network: Any) -> None:
    listener = Listener(network, session_s=100.0)
    numbers = iter(range(100))

    async def main() -> None:
        async with admin(network, lambda: f"token-{next(numbers)}") as client:
            for _ in range(10):
                await client.list_topics()
                await asyncio.sleep(50)

    loop.run(main())
    assert listener.tokens == [f"token-{number}" for number in range(5)]


def test_a_token_whose_end_is_known_serves_many_logins_and_is_renewed_in_time() -> None:
    clock = SetClock()
    given: list[float] = []

    def provide() -> tuple[str, float]:
        given.append(clock.now_ms() / 1000)
        return f"token-{len(given)}", clock.now_ms() / 1000 + 100

    async def main() -> None:
        source = TokenSource(provide, clock)
        assert set(await asyncio.gather(*(source.token(1.0) for _ in range(10)))) == {"token-1"}
        clock.now_s += 79
        assert await source.token(1.0) == "token-1"
        clock.now_s += 2
        assert await source.token(1.0) == "token-2"

    loop.run(main())
    assert given == [1000.0, 1081.0]


def test_a_provider_that_fails_is_asked_again_until_the_time_is_over_and_its_error_is_told(network: Any) -> None:
    listener = Listener(network)
    outcomes = iter([OSError("the identity provider is down"), OSError("still down"), "token"])

    def provide() -> str:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return str(outcome)

    def always_fails() -> str:
        raise OSError("the identity provider is down")

    async def main() -> None:
        async with admin(network, provide) as client:
            await client.list_topics()
        with pytest.raises(TimedOutError, match=r"broker:9001: no login: the token provider failed: .*is down"):
            await admin(network, always_fails).start(5.0)

    loop.run(main())
    assert listener.tokens == ["token"]


def test_a_provider_that_never_answers_does_not_hold_up_a_client_for_ever(network: Any) -> None:
    Listener(network)

    async def never() -> str:
        return await asyncio.get_running_loop().create_future()

    async def main() -> None:
        client = admin(network, never)
        with pytest.raises(TimedOutError):
            await client.list_topics(timeout_s=5.0)
        with pytest.raises(TimedOutError, match="the token provider gave no token within 10 s"):
            await client.list_topics(timeout_s=30.0)
        await client.close()

    loop.run(main())


def test_a_token_that_is_refused_is_an_error_at_once(network: Any) -> None:
    Listener(network, refuses=lambda token: True)

    async def main() -> None:
        with pytest.raises(SaslAuthenticationFailedError, match="no such token"):
            await admin(network, lambda: "token").start()

    loop.run(main())


def test_what_is_no_token_is_not_sent(network: Any) -> None:
    listener = Listener(network)

    async def main() -> None:
        for bad in ("", "a b", "x\x01auth=", None):
            with pytest.raises(SaslAuthenticationFailedError, match="not a bearer token"):
                await admin(network, lambda bad=bad: bad).start()

    loop.run(main())
    assert listener.tokens == []


def test_a_provider_is_asked_for_when_the_client_is_made(network: Any) -> None:
    with pytest.raises(SettingsError, match="sasl_token_provider"):
        admin(network, None)

"""Tokens of OAUTHBEARER: the exchange, the keys and their rotation, on virtual time."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.jwks import Jwks, fetch_keys
from ottla.config.broker import BrokerConfig
from ottla.config.jaas import OAUTHBEARER_MODULE
from ottla.config.oauth import OAuthConfig
from ottla.errors import ConfigError, ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.security.jwt import InvalidKeysError, InvalidTokenError, Key, UnknownKeyError, parse_keys
from ottla.security.sasl.oauthbearer import INVALID_TOKEN, oauthbearer_token
from ottla.testing.inline import InlineOffload
from ottla.testing.scene import Scene, perform
from ottla.testing.token_issuer import TokenIssuer, jwks
from ottla.testing.wire_client import WireClient
from ottla.testing.world import SimulationError

FIRST, SECOND = TokenIssuer(key_id="first"), TokenIssuer(key_id="second")
METADATA = MetadataRequest(topics=None)


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_bytes(jwks(FIRST))
    return path


def settings_of(keys_file: Path, **more: str) -> dict[str, str]:
    return {
        "listeners": "SASL_PLAINTEXT://broker:9092",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys_file.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def claims(scene: Scene, **changes: Any) -> dict[str, Any]:
    now_s = scene.broker.clock.now_ms() // 1000
    return {"sub": "alice", "iat": now_s, "exp": now_s + 600, "aud": "kafka", "iss": "https://issuer", **changes}


async def log_in(scene: Scene, token: str) -> tuple[WireClient, Any]:
    client = await scene.connect()
    return client, await send(client, token)


async def send(client: WireClient, token: str) -> Any:
    shaken = await client.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    assert not shaken.error_code
    return await client.call(SaslAuthenticateRequest(auth_bytes=oauthbearer_token(token)), 2)


async def is_closed(client: WireClient) -> bool:
    try:
        await client.call(METADATA, 9)
    except (ConnectionError, OSError):
        return True
    return False


def play(steps: Callable[[Scene], Awaitable[None]], keys_file: Path, **settings: str) -> None:
    async def whole(scene: Scene) -> None:
        await steps(scene)

    perform(whole, settings_of(keys_file, **settings))


def test_a_token_logs_its_subject_in_until_it_expires(keys_file: Path) -> None:
    async def steps(scene: Scene) -> None:
        client, answer = await log_in(scene, FIRST.token(claims(scene)))
        assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b"")
        assert 598_000 < answer.session_lifetime_ms <= 600_000
        assert (await client.call(METADATA, 9)).brokers
        assert next(iter(scene.broker.server.connections)).session.principal == "User:alice"
        await asyncio.sleep(599)
        assert not (await send(client, FIRST.token(claims(scene)))).error_code  # a new one, in time
        await asyncio.sleep(300)
        assert not await is_closed(client)
        await asyncio.sleep(301)
        assert await is_closed(client)

    play(steps, keys_file)


def test_the_setting_limits_a_session_that_the_token_would_allow(keys_file: Path) -> None:
    async def steps(scene: Scene) -> None:
        _, answer = await log_in(scene, FIRST.token(claims(scene)))
        assert answer.session_lifetime_ms == 60_000

    play(steps, keys_file, connections_max_reauth_ms="60000")


def test_a_token_that_has_just_expired_has_a_session_that_has_expired(keys_file: Path) -> None:
    async def steps(scene: Scene) -> None:
        now_s = scene.broker.clock.now_ms() // 1000
        client, answer = await log_in(scene, FIRST.token(claims(scene, iat=now_s - 60, exp=now_s - 5)))
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
        assert await is_closed(client)

    play(steps, keys_file)


def test_a_refused_token_is_told_in_two_steps(keys_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")

    async def steps(scene: Scene) -> None:
        for token in (
            SECOND.token(claims(scene), kid="first"),
            FIRST.token(claims(scene, aud="other")),
            FIRST.token(claims(scene, iss="other")),
            FIRST.token(claims(scene, exp=1, iat=0)),
            "not.a.token",
        ):
            client, answer = await log_in(scene, token)
            assert (answer.error_code, bytes(answer.auth_bytes)) == (0, INVALID_TOKEN)
            last = await client.call(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
            assert (last.error_code, last.error_message) == (
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                INVALID_TOKEN.decode(),
            )
            assert await is_closed(client)
            assert token not in caplog.text

    play(steps, keys_file)


def test_nobody_passes_after_a_refused_token(keys_file: Path) -> None:
    async def steps(scene: Scene) -> None:
        client, _ = await log_in(scene, SECOND.token(claims(scene), kid="first"))
        assert (await client.call(METADATA, 9)).topics == []  # ILLEGAL_SASL_STATE has no other place
        assert await is_closed(client)

    play(steps, keys_file)


def test_a_message_that_is_none_fails_at_once_and_another_name_is_not_given(keys_file: Path) -> None:
    async def steps(scene: Scene) -> None:
        token = FIRST.token(claims(scene)).encode()
        for message in (b"nonsense", b"n,a=bob,\x01auth=Bearer " + token + b"\x01\x01"):
            client = await scene.connect()
            await client.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
            answer = await client.call(SaslAuthenticateRequest(auth_bytes=message), 2)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await is_closed(client)

    play(steps, keys_file)


def test_another_subject_cannot_take_over_a_session(keys_file: Path) -> None:
    async def steps(scene: Scene) -> None:
        client, _ = await log_in(scene, FIRST.token(claims(scene)))
        await asyncio.sleep(2)
        answer = await send(client, FIRST.token(claims(scene, sub="bob")))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await is_closed(client)

    play(steps, keys_file)


def test_keys_are_replaced_while_the_broker_runs(keys_file: Path) -> None:
    async def steps(scene: Scene) -> None:
        keys_file.write_bytes(jwks(SECOND))
        _, answer = await log_in(scene, SECOND.token(claims(scene)))  # an unknown key: fetched again
        assert bytes(answer.auth_bytes) == b""
        _, answer = await log_in(scene, FIRST.token(claims(scene)))
        assert bytes(answer.auth_bytes) == INVALID_TOKEN, "a key that was taken out of the set"
        keys_file.write_bytes(jwks(FIRST))
        await asyncio.sleep(120)  # by itself, in time
        _, answer = await log_in(scene, FIRST.token(claims(scene)))
        assert bytes(answer.auth_bytes) == b""
        keys_file.write_text("damaged")
        await asyncio.sleep(120)
        _, answer = await log_in(scene, FIRST.token(claims(scene)))
        assert bytes(answer.auth_bytes) == b"", "while they cannot be fetched, those that are known hold"

    play(steps, keys_file, sasl_oauthbearer_jwks_endpoint_refresh_ms="60000")


def test_made_up_names_of_keys_do_not_load_the_server_of_the_keys() -> None:
    fetched = 0
    now_ms = 0

    def fetch(url: str) -> tuple[Key, ...]:
        nonlocal fetched
        fetched += 1
        return parse_keys(jwks(FIRST))

    async def attack() -> None:
        nonlocal now_ms
        config = OAuthConfig("file:///keys", (), None, 30, "sub", 3_600_000, 100, 10_000)
        keys = Jwks(config, InlineOffload(), lambda: now_ms, lambda: now_ms, fetch)
        await keys.open()
        token = TokenIssuer(key_id="made up").token({"sub": "a"})
        while now_ms < 100_000:
            with pytest.raises(UnknownKeyError):
                await keys.verify(token)
            now_ms += 50

    asyncio.run(attack())
    assert fetched <= 1 + 7 + 10  # the start, the pauses that double, and one in ten seconds


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": ""}, "needs the keys that tokens are verified with"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://host/keys"}, "must be a URL"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file://host/keys"}, "must be a URL"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "https:///keys"}, "must be a URL"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "https://a:b@host/keys"}, "must not hold a password"),
        (
            {"listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": "com.example.Evil"},
            "or left out",
        ),
        (
            {
                "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": "org.apache.kafka.common.security."
                'oauthbearer.OAuthBearerLoginModule required unsecuredValidatorAllowableClockSkewMs="1";'
            },
            "unsecured tokens, which are never accepted",
        ),
    ],
)
def test_cve_2026_110985_without_keys_it_cannot_be_enabled(
    keys_file: Path, changes: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        BrokerConfig.load({**settings_of(keys_file), **changes})


def test_kafkas_own_settings_are_understood(keys_file: Path) -> None:
    prefix = "listener.name.sasl_plaintext.oauthbearer."
    config, warnings = BrokerConfig.load(
        {
            **settings_of(keys_file),
            f"{prefix}sasl.jaas.config": f"{OAUTHBEARER_MODULE} required ;",
            f"{prefix}sasl.server.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.secured."
            "OAuthBearerValidatorCallbackHandler",
            f"{prefix}sasl.oauthbearer.expected.audience": "a,b",
        }
    )
    assert warnings == []
    oauth = config.security_of_listeners["SASL_PLAINTEXT"].mechanisms["OAUTHBEARER"].oauth
    assert oauth is not None
    assert oauth.expected_audience == ("a", "b")


@pytest.mark.parametrize("content", [None, b"", b'{"keys": []}', b" " * (1 << 21)])
def test_a_broker_whose_keys_cannot_be_had_does_not_start(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_bytes(content)

    async def steps(scene: Scene) -> None:
        pytest.fail("it serves")

    with pytest.raises(SimulationError, match=r"ConfigError: sasl\.oauthbearer\.jwks\.endpoint\.url"):
        play(steps, path)


# -- keys over HTTP ----------------------------------------------------------------------------------------------------


class _Keys(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/nonsense":
            self.wfile.write(b"this is not HTTP\r\n\r\n")
            return
        if self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "/keys")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(jwks(FIRST))

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), _Keys) as server:
        thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_keys_are_fetched_over_http_and_cve_2025_27817_redirects_are_not_followed(server: str) -> None:
    assert [key.key_id for key in fetch_keys(f"{server}/keys")] == ["first"]
    for url in (f"{server}/redirect", f"{server}/nonsense"):
        with pytest.raises(InvalidKeysError):
            fetch_keys(url)
    for host in ("169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]"):
        with pytest.raises(InvalidKeysError, match="of the link itself"):
            fetch_keys(f"http://{host}/latest")


def test_json_that_is_no_token_is_no_token() -> None:
    keys = parse_keys(json.dumps({"keys": [FIRST.jwk(), {"kty": "unknown"}, 5]}).encode())
    assert len(keys) == 1
    config = OAuthConfig("file:///keys", (), None, 30, "sub", 1, 1, 1)
    unopened = Jwks(config, InlineOffload(), lambda: 0, lambda: 0, lambda url: keys)
    with pytest.raises(InvalidTokenError):
        asyncio.run(unopened.verify("a.b.c"))

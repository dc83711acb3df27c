"""Listeners whose peers log in: the states, the errors and the limits of Kafka, on virtual time."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.frames import framed
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.groups import DeleteGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from ottla.security.sasl.plain import plain_token
from ottla.security.sasl.scram import ScramClient
from ottla.security.scram import BY_SASL_NAME, ScramMechanism, salted_password
from ottla.store.api import Put
from ottla.testing.scene import Scene, perform
from ottla.testing.wire_client import WireClient

PLAIN_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="alice-secret" user_bob="bob-secret" user_admin="admin-secret";'
)
SCRAM_JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required user_alice="alice-secret";'
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://broker:9092",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_JAAS,
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": SCRAM_JAAS,
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": SCRAM_JAAS,
}
VERSIONS = ApiVersionsRequest(client_software_name="t", client_software_version="1")
METADATA = MetadataRequest(topics=None)


def play(steps: Callable[[Scene], Awaitable[None]], **settings: str) -> None:
    async def whole(scene: Scene) -> None:
        await steps(scene)

    perform(whole, {**SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}})


async def handshake(client: WireClient, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return await client.call(SaslHandshakeRequest(mechanism=mechanism), version)


async def authenticate(client: WireClient, token: bytes, version: int = 2) -> Any:
    return await client.call(SaslAuthenticateRequest(auth_bytes=token), version)


async def log_in(scene: Scene, user: str = "alice", password: str = "alice-secret") -> tuple[WireClient, Any]:
    client = await scene.connect()
    await client.call(VERSIONS, 3)
    assert not (await handshake(client)).error_code
    return client, await authenticate(client, plain_token(user, password))


async def is_closed(client: WireClient, request: object = METADATA, version: int = 9) -> bool:
    try:
        await client.call(request, version)
    except (ConnectionError, OSError):
        return True
    return False


async def log_in_by_scram(client: WireClient, mechanism: str, user: str, password: str) -> Any:
    assert not (await handshake(client, mechanism)).error_code
    scram = ScramClient(BY_SASL_NAME[mechanism], user, password, "nonce")
    first = await authenticate(client, scram.first)
    assert not first.error_code, first
    last = await authenticate(client, scram.prove(bytes(first.auth_bytes)))
    if not last.error_code:
        scram.check(bytes(last.auth_bytes))
    return last


def test_a_password_opens_the_door_and_the_session_knows_who_came() -> None:
    async def steps(scene: Scene) -> None:
        client, answer = await log_in(scene)
        assert (answer.error_code, bytes(answer.auth_bytes), answer.session_lifetime_ms) == (0, b"", 0)
        assert (await client.call(METADATA, 9)).brokers
        session = next(iter(scene.broker.server.connections)).session
        assert (session.principal, session.mechanism, session.listener_name) == (
            "User:alice",
            "PLAIN",
            "SASL_PLAINTEXT",
        )

    play(steps)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_with_the_first_users_of_the_settings(mechanism: str) -> None:
    async def steps(scene: Scene) -> None:
        client = await scene.connect()
        assert not (await log_in_by_scram(client, mechanism, "alice", "alice-secret")).error_code
        assert (await client.call(METADATA, 9)).brokers
        for user, password in (("alice", "wrong"), ("nobody", "alice-secret")):
            other = await scene.connect()
            failed = await log_in_by_scram(other, mechanism, user, password)
            assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert user not in failed.error_message
            assert await is_closed(other)

    play(steps)


def test_a_wrong_password_is_answered_after_the_delay_and_the_connection_ends() -> None:
    async def steps(scene: Scene) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        client, answer = await log_in(scene, "alice", "wrong")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert loop.time() - started >= 0.7
        assert await is_closed(client)
        assert not scene.broker.server.connections

    play(steps, connection_failed_authentication_delay_ms="700")


def test_cve_2017_12610_a_login_with_the_name_of_another() -> None:
    async def steps(scene: Scene) -> None:
        client = await scene.connect()
        await handshake(client)
        answer = await authenticate(client, b"admin\0bob\0bob-secret")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

    play(steps)


def test_an_unknown_mechanism_is_refused_with_the_list_of_those_that_are_enabled() -> None:
    async def steps(scene: Scene) -> None:
        for name in ("GSSAPI", "plain", "OAUTHBEARER"):
            client = await scene.connect()
            answer = await handshake(client, name)
            assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
            assert await is_closed(client)

    play(steps)


def test_nothing_but_versions_and_handshake_is_taken_at_the_start() -> None:
    async def steps(scene: Scene) -> None:
        for request, version in ((METADATA, 9), (SaslAuthenticateRequest(auth_bytes=b"x"), 1)):
            assert await is_closed(await scene.connect(), request, version)
        client = await scene.connect()
        assert not (await client.call(VERSIONS, 3)).error_code
        assert await is_closed(client, VERSIONS, 3)  # once

    play(steps)


def test_versions_that_were_refused_may_be_asked_again() -> None:
    async def steps(scene: Scene) -> None:
        client = await scene.connect()
        bad = ApiVersionsRequest(client_software_name="-", client_software_version="-")
        assert (await client.call(bad, 3)).error_code == ErrorCode.INVALID_REQUEST
        assert not (await client.call(VERSIONS, 3)).error_code

    play(steps)


def test_another_request_in_the_middle_of_a_login_is_answered_with_its_own_error_and_ends_it() -> None:
    async def steps(scene: Scene) -> None:
        client = await scene.connect()
        await handshake(client)
        assert (await handshake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await is_closed(client)

    play(steps)


def test_a_large_request_in_the_middle_of_a_login_costs_its_connection_and_no_time() -> None:
    """Half a million elements fit in what a peer may send before it has logged in: to answer them takes seconds."""

    async def steps(scene: Scene) -> None:
        client = await scene.connect()
        await handshake(client)
        with pytest.raises(ConnectionResetError):
            await client.call(DeleteGroupsRequest(groups_names=["g"] * 1000), 2)

    play(steps)


def test_bare_tokens_behind_the_first_version_of_the_handshake() -> None:
    async def steps(scene: Scene) -> None:
        client = await scene.connect()
        await handshake(client, version=0)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client._socket, framed(plain_token("alice", "alice-secret")))
        assert await client._receive(4) == bytes(4)
        assert (await client.call(METADATA, 9)).brokers
        wrong = await scene.connect()
        await handshake(wrong, version=0)
        await loop.sock_sendall(wrong._socket, framed(plain_token("alice", "wrong")))
        assert await loop.sock_recv(wrong._socket, 10) == b""

    play(steps)


def test_whoever_is_logged_in_and_begins_again_without_need_is_refused_and_stays() -> None:
    async def steps(scene: Scene) -> None:
        client, _ = await log_in(scene)
        answer = await handshake(client)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        assert (await authenticate(client, b"x")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await client.call(METADATA, 9)).brokers

    play(steps)


def test_cve_2022_34917_a_frame_before_the_login_is_small_and_costs_nothing_before_it_is_there() -> None:
    async def steps(scene: Scene) -> None:
        loop = asyncio.get_running_loop()
        for length in (2**31 - 1, 524_289, -1):
            client = await scene.connect()
            await loop.sock_sendall(client._socket, length.to_bytes(4, signed=True) + b"\0\x12\0\0")
            assert await loop.sock_recv(client._socket, 10) == b""

    play(steps)


def test_bytes_one_by_one_do_not_keep_a_connection_that_never_logs_in() -> None:
    async def steps(scene: Scene) -> None:
        client = await scene.connect()
        loop = asyncio.get_running_loop()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):  # noqa: PT012 (whichever is first)
            await loop.sock_sendall(client._socket, (1000).to_bytes(4))
            for _ in range(100):
                await loop.sock_sendall(client._socket, b"x")
                await asyncio.sleep(1)
        assert not scene.broker.server.connections

    play(steps, connections_max_idle_ms="10000")


# -- logins with a lifetime --------------------------------------------------------------------------------------------


def test_a_login_with_a_lifetime_is_renewed_on_the_same_connection() -> None:
    async def steps(scene: Scene) -> None:
        client, answer = await log_in(scene)
        assert answer.session_lifetime_ms == 10_000
        for _ in range(3):
            await asyncio.sleep(9)
            assert not (await handshake(client)).error_code
            assert (await authenticate(client, plain_token("alice", "alice-secret"))).session_lifetime_ms == 10_000
        assert (await client.call(METADATA, 9)).brokers

    play(steps, connections_max_reauth_ms="10000")


@pytest.mark.parametrize("version", [0, 1])
def test_kafka_13848_and_9241_a_login_that_was_not_renewed_ends_with_the_next_request(version: int) -> None:
    async def steps(scene: Scene) -> None:
        client = await scene.connect()
        await handshake(client, version=version)
        if version == 0:
            await asyncio.get_running_loop().sock_sendall(client._socket, framed(plain_token("bob", "bob-secret")))
            await client._receive(4)
        else:
            await authenticate(client, plain_token("bob", "bob-secret"), 0)
        assert (await client.call(METADATA, 9)).brokers
        await asyncio.sleep(11)
        assert await is_closed(client)

    play(steps, connections_max_reauth_ms="10000")


def test_a_login_may_be_renewed_after_its_end() -> None:
    async def steps(scene: Scene) -> None:
        client, _ = await log_in(scene)
        await asyncio.sleep(60)
        assert not (await handshake(client)).error_code
        assert not (await authenticate(client, plain_token("alice", "alice-secret"))).error_code
        assert (await client.call(METADATA, 9)).brokers

    play(steps, connections_max_reauth_ms="10000")


def test_a_renewed_login_has_the_same_user_and_mechanism_and_starts_once_a_second() -> None:
    async def steps(scene: Scene) -> None:
        client, _ = await log_in(scene)
        await asyncio.sleep(2)
        await handshake(client)
        answer = await authenticate(client, plain_token("bob", "bob-secret"))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "principals" in answer.error_message
        other, _ = await log_in(scene)
        await asyncio.sleep(2)
        assert not (await handshake(other, "SCRAM-SHA-256")).error_code
        assert await is_closed(other, SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=x"), 2)
        hasty, _ = await log_in(scene)
        await asyncio.sleep(2)
        await handshake(hasty)
        await authenticate(hasty, plain_token("alice", "alice-secret"))
        assert (await handshake(hasty)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await hasty.call(METADATA, 9)).brokers

    play(steps, connections_max_reauth_ms="10000")


# -- users -------------------------------------------------------------------------------------------------------------


def upsertion(name: str, password: str, iterations: int = 4096, mechanism: int = 1) -> ScramCredentialUpsertion:
    salted = salted_password(ScramMechanism.SCRAM_SHA_256, password, b"salt", iterations)
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


def test_users_are_added_changed_described_and_removed() -> None:
    async def steps(scene: Scene) -> None:
        admin, _ = await log_in(scene, "admin", "admin-secret")

        async def alter(*changes: Any) -> list[int]:
            request = AlterUserScramCredentialsRequest(
                deletions=[one for one in changes if isinstance(one, ScramCredentialDeletion)],
                upsertions=[one for one in changes if isinstance(one, ScramCredentialUpsertion)],
            )
            return [one.error_code for one in (await admin.call(request, 0)).results]

        async def can_log_in(password: str) -> bool:
            client = await scene.connect()
            return not (await log_in_by_scram(client, "SCRAM-SHA-256", "carol", password)).error_code

        assert await alter(upsertion("carol", "one")) == [0]
        assert await can_log_in("one")
        assert await alter(upsertion("carol", "two", 8192)) == [0]
        assert not await can_log_in("one")
        assert await can_log_in("two")
        described = (await admin.call(DescribeUserScramCredentialsRequest(users=None), 0)).results
        assert {one.user: [(i.mechanism, i.iterations) for i in one.credential_infos] for one in described} == {
            "alice": [(1, 4096), (2, 4096)],
            "carol": [(1, 8192)],
        }
        assert await alter(ScramCredentialDeletion(name="carol", mechanism=1)) == [0]
        assert not await can_log_in("two")
        assert await alter(ScramCredentialDeletion(name="carol", mechanism=1)) == [ErrorCode.RESOURCE_NOT_FOUND]
        assert await alter(upsertion("", "x")) == [ErrorCode.UNACCEPTABLE_CREDENTIAL]
        assert await alter(upsertion("carol", "x", 16385)) == [ErrorCode.UNACCEPTABLE_CREDENTIAL]
        assert await alter(upsertion("carol", "x", mechanism=9)) == [ErrorCode.UNSUPPORTED_SASL_MECHANISM]
        assert await alter(upsertion("carol", "x"), upsertion("carol", "y")) == [ErrorCode.DUPLICATE_RESOURCE]
        asked = DescribeUserScramCredentialsRequest(
            users=[UserName(name="carol"), UserName(name="a"), UserName(name="a")]
        )
        answers = (await admin.call(asked, 0)).results
        assert [(one.user, one.error_code) for one in answers] == [
            ("carol", ErrorCode.RESOURCE_NOT_FOUND),
            ("a", ErrorCode.DUPLICATE_RESOURCE),
        ]

    play(steps)


def test_users_stay_across_a_restart_with_the_password_that_was_given_last() -> None:
    async def steps(scene: Scene) -> None:
        admin, _ = await log_in(scene, "admin", "admin-secret")
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion("alice", "changed")])
        assert not (await admin.call(request, 0)).results[0].error_code
        await scene.restart()
        client = await scene.connect()
        assert not (await log_in_by_scram(client, "SCRAM-SHA-256", "alice", "changed")).error_code

    play(steps)


@pytest.mark.parametrize("data", [b"?", b'{"version":1,"config":{"SCRAM-SHA-256":"salt=?"}}'])
def test_a_damaged_user_logs_in_nobody_and_hides_no_other(data: bytes) -> None:
    async def steps(scene: Scene) -> None:
        admin, _ = await log_in(scene, "admin", "admin-secret")
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion("carol", "one")])
        assert not (await admin.call(request, 0)).results[0].error_code
        await scene.broker.store.commit(Put("/config/users/carol", data))
        described = (await admin.call(DescribeUserScramCredentialsRequest(users=None), 0)).results
        assert {one.user: one.error_code for one in described} == {
            "alice": ErrorCode.NONE,
            "carol": ErrorCode.UNKNOWN_SERVER_ERROR,
        }
        client = await scene.connect()
        await handshake(client, "SCRAM-SHA-256")
        failed = await authenticate(client, b"n,,n=carol,r=nonce")
        assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        other = await scene.connect()
        assert not (await log_in_by_scram(other, "SCRAM-SHA-256", "alice", "alice-secret")).error_code

    play(steps)


# -- what is never shown -----------------------------------------------------------------------------------------------


def test_cve_2026_33558_no_secret_is_in_any_log(caplog: pytest.LogCaptureFixture) -> None:
    async def steps(scene: Scene) -> None:
        for password in ("alice-secret", "wrong-secret"):
            await log_in(scene, "alice", password)
            client = await scene.connect()
            await log_in_by_scram(client, "SCRAM-SHA-256", "alice", password)

    caplog.set_level(0)
    play(steps)
    assert "login by PLAIN failed" in caplog.text
    assert "-secret" not in caplog.text


def test_cve_2022_34917_and_2026_111115_what_a_frame_declares_before_the_login_takes_no_memory() -> None:
    """Strings of two billion letters, and a quarter of a million empty tagged fields, in header and body."""
    header = (18).to_bytes(2) + (3).to_bytes(2) + bytes(4) + b"\xff\xff"
    many = b"\xff\xff\x0f" + b"\x7f\x00" * 250_000
    huge = b"\xff\xff\xff\xff\x0f"
    handshake = (17).to_bytes(2) + (1).to_bytes(2) + bytes(4) + b"\xff\xff"
    frames = [
        header + many,
        header + b"\x00" + huge,
        header + b"\x00\x02a\x021" + many,
        header + b"\x00\x02a\x02" + huge,
        handshake + b"\x7f\xff",
    ]

    async def steps(scene: Scene) -> None:
        loop = asyncio.get_running_loop()
        for frame in frames:
            client = await scene.connect()
            tracemalloc.start()
            await loop.sock_sendall(client._socket, framed(frame))
            assert await loop.sock_recv(client._socket, 10) == b""
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 20 * len(frame) + 1_000_000

    play(steps)


@pytest.mark.parametrize(
    "name",
    [
        *("..", ".", "a/b", "../../brokers/ids/1", "%2e%2e", "a\nb", "<default>"),
        pytest.param("x" * 500_000, id="half a megabyte"),
        pytest.param("%" * 500_000, id="more than a megabyte, quoted"),
    ],
)
@pytest.mark.parametrize("extension", ["", ",tokenauth=true"])
def test_names_of_nobody_are_refused_and_break_no_line_of_the_log(
    name: str, extension: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(scene: Scene) -> None:
        client = await scene.connect()
        assert not (await handshake(client, "SCRAM-SHA-256")).error_code
        first = await authenticate(client, f"n,,n={name},r=nonce{extension}".encode())
        assert not first.error_code, "as of somebody who exists"
        nonce = bytes(first.auth_bytes).decode().partition(",")[0]
        last = await authenticate(client, f"c=biws,{nonce},p={'A' * 43}=".encode())
        assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await is_closed(client)

    caplog.set_level(0)
    play(steps, delegation_token_secret_key="key")
    assert not [line for line in caplog.messages if "\n" in line]
    assert max(map(len, caplog.messages)) < 5000, "nobody fills the disk with the names that he tries"

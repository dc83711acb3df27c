"""Delegation tokens: made, used to log in, renewed, ended and seen, on virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.protocol.messages.tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from ottla.security.acls import Operation, Permission, Resource
from ottla.security.delegation_tokens import token_password
from ottla.security.sasl.plain import plain_token
from ottla.security.sasl.scram import ScramClient
from ottla.security.scram import BY_SASL_NAME
from ottla.store.api import Put
from ottla.testing.scene import Scene, perform
from ottla.testing.wire_client import WireClient

SECRET_KEY = "the key of all tokens"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://broker:9092,PLAINTEXT://broker:9093",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
    'required user_admin="admin-secret" user_alice="alice-secret" user_bob="bob-secret" user_carol="carol-secret";',
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
    "delegation.token.secret.key": SECRET_KEY,
    "delegation.token.max.lifetime.ms": "1000000",
    "delegation.token.expiry.time.ms": "100000",
    "delegation.token.expiry.check.interval.ms": "50000",
}
METADATA = MetadataRequest(topics=[])


def play(steps: Callable[[Scene], Awaitable[None]], **changes: str | None) -> None:
    async def whole(scene: Scene) -> None:
        await steps(scene)

    settings = {**SETTINGS, **{name.replace("_", "."): value for name, value in changes.items()}}
    perform(whole, {name: value for name, value in settings.items() if value is not None})


async def log_in(scene: Scene, user: str) -> WireClient:
    client = await scene.connect()
    await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = await client.call(SaslAuthenticateRequest(auth_bytes=plain_token(user, f"{user}-secret")), 1)
    assert not answer.error_code
    return client


async def log_in_by_token(
    scene: Scene, token_id: str, hmac: bytes, mechanism: str = "SCRAM-SHA-512", *, is_token: bool = True
) -> tuple[WireClient, Any]:
    client = await scene.connect()
    assert not (await client.call(SaslHandshakeRequest(mechanism=mechanism), 1)).error_code
    scram = ScramClient(BY_SASL_NAME[mechanism], token_id, token_password(hmac), "nonce", is_token=is_token)
    first = await client.call(SaslAuthenticateRequest(auth_bytes=scram.first), 2)
    if first.error_code:
        return client, first
    last = await client.call(SaslAuthenticateRequest(auth_bytes=scram.prove(bytes(first.auth_bytes))), 2)
    if not last.error_code:
        scram.check(bytes(last.auth_bytes))
    return client, last


async def create(
    client: WireClient, *renewers: str, owner: str | None = None, lifetime_ms: int = -1, renewer_type: str = "User"
) -> Any:
    return await client.call(
        CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else "User",
            owner_principal_name=owner,
            renewers=[CreatableRenewers(principal_type=renewer_type, principal_name=each) for each in renewers],
            max_lifetime_ms=lifetime_ms,
        ),
        3,
    )


async def describe(client: WireClient, *owners: str, everybody: bool = False) -> list[str]:
    wanted = [DescribeDelegationTokenOwner(principal_type="User", principal_name=each) for each in owners]
    answer = await client.call(DescribeDelegationTokenRequest(owners=None if everybody else wanted), 3)
    assert not answer.error_code
    return sorted(each.token_id for each in answer.tokens)


async def is_closed(client: WireClient) -> bool:
    try:
        await client.call(METADATA, 9)
    except (ConnectionError, OSError):
        return True
    return False


async def allow(admin: WireClient, user: str, operation: Operation, resource: Resource, name: str) -> None:
    rule = AclCreation(
        resource_type=resource,
        resource_name=name,
        resource_pattern_type=3,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission_type=Permission.ALLOW,
    )
    assert not (await admin.call(CreateAclsRequest(creations=[rule]), 3)).results[0].error_code


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_whoever_knows_a_token_is_its_owner_until_it_expires(mechanism: str) -> None:
    async def steps(scene: Scene) -> None:
        alice = await log_in(scene, "alice")
        made = await create(alice)
        assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "alice", "alice")
        assert (len(made.token_id), len(made.hmac)) == (22, 64)
        assert made.expiry_timestamp_ms - made.issue_timestamp_ms == 100_000
        assert made.max_timestamp_ms - made.issue_timestamp_ms == 1_000_000
        client, answer = await log_in_by_token(scene, made.token_id, bytes(made.hmac), mechanism)
        assert not answer.error_code
        assert 99_000 < answer.session_lifetime_ms <= 100_000
        session = list(scene.broker.server.connections)[-1].session
        assert (session.principal, session.is_by_token) == ("User:alice", True)
        assert not await is_closed(client)
        await asyncio.sleep(101)
        assert await is_closed(client)

    play(steps)


def test_a_wrong_secret_an_unknown_token_and_a_token_as_a_password_fail_alike() -> None:
    async def steps(scene: Scene) -> None:
        made = await create(await log_in(scene, "alice"))
        secret = bytes(made.hmac)
        messages = set()
        for token_id, hmac, is_token in (
            (made.token_id, b"wrong", True),
            ("unknown", secret, True),
            ("../tokens", secret, True),
            ("alice", secret, True),
            (made.token_id, secret, False),
        ):
            client, answer = await log_in_by_token(scene, token_id, hmac, is_token=is_token)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            messages.add(answer.error_message)
            assert await is_closed(client)
        assert len(messages) == 1

    play(steps)


def test_tokens_are_not_for_connections_without_a_name_and_make_no_others() -> None:
    async def steps(scene: Scene) -> None:
        made = await create(await log_in(scene, "alice"))
        by_token, _ = await log_in_by_token(scene, made.token_id, bytes(made.hmac))
        plain = WireClient(await scene.world.network.host("plain").connect("broker", 9093))
        for client in (by_token, plain):
            not_allowed = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            assert (await create(client)).error_code == not_allowed
            assert (await create(client, owner="bob", renewer_type="Group")).error_code == not_allowed
            renew = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=1)
            assert (await client.call(renew, 2)).error_code == not_allowed
            expire = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
            assert (await client.call(expire, 2)).error_code == not_allowed
            assert (await client.call(DescribeDelegationTokenRequest(owners=None), 3)).error_code == not_allowed
        plain.close()

    play(steps)


def test_tokens_for_others_need_a_right_and_renewers_are_users() -> None:
    async def steps(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        refused = await create(alice, owner="bob")
        assert (refused.error_code, bytes(refused.hmac)) == (ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, b"")
        assert (await create(alice, "x", renewer_type="Group")).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
        await allow(admin, "alice", Operation.CREATE_TOKENS, Resource.USER, "User:bob")
        made = await create(alice, owner="bob")
        assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "bob", "alice")
        _, answer = await log_in_by_token(scene, made.token_id, bytes(made.hmac))
        assert not answer.error_code
        assert list(scene.broker.server.connections)[-1].session.principal == "User:bob"

    play(steps)


def test_owners_and_renewers_renew_and_end_a_token_and_nobody_else() -> None:
    async def steps(scene: Scene) -> None:
        alice, bob, carol = [await log_in(scene, user) for user in ("alice", "bob", "carol")]
        made = await create(alice, "bob")

        def renew(period_ms: int = -1, hmac: bytes = bytes(made.hmac)) -> RenewDelegationTokenRequest:
            return RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)

        def expire(period_ms: int) -> ExpireDelegationTokenRequest:
            return ExpireDelegationTokenRequest(hmac=bytes(made.hmac), expiry_time_period_ms=period_ms)

        await asyncio.sleep(10)
        renewed = await bob.call(renew(), 2)
        assert 100_000 < renewed.expiry_timestamp_ms - made.issue_timestamp_ms < 120_000
        assert (await carol.call(renew(), 2)).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert (await carol.call(expire(-1), 2)).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert (await alice.call(renew(hmac=b"x"), 2)).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        most = await alice.call(renew(10**15), 2)
        assert most.expiry_timestamp_ms == made.max_timestamp_ms
        sooner = await alice.call(expire(5000), 2)
        assert sooner.expiry_timestamp_ms < made.issue_timestamp_ms + 20_000
        await asyncio.sleep(6)
        assert (await alice.call(renew(), 2)).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
        # Not swept yet: the login succeeds, with a session that has ended.
        client, answer = await log_in_by_token(scene, made.token_id, bytes(made.hmac))
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
        assert await is_closed(client)
        await asyncio.sleep(51)
        assert await describe(alice, everybody=True) == []
        another = await create(alice)
        made = another
        assert not (await alice.call(expire(-1), 2)).error_code
        _, answer = await log_in_by_token(scene, another.token_id, bytes(another.hmac))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

    play(steps)


def test_a_token_that_is_ended_while_another_renews_it_is_gone() -> None:
    async def steps(scene: Scene) -> None:
        alice = await log_in(scene, "alice")
        token = await create(alice)
        path, store = f"/delegation_token/tokens/{token.token_id}", scene.broker.store
        commit, rivals = store.commit, 1

        async def contended(*operations: Any) -> list[Any]:
            nonlocal rivals
            if rivals and operations[0].path == path:
                rivals -= 1
                node = await store.get(path)
                assert node is not None
                await commit(Put(path, node.data))
            return await commit(*operations)

        store.commit = contended  # type: ignore[method-assign]
        answer = await alice.call(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1), 2)
        assert not answer.error_code
        assert not rivals
        assert await store.get(path) is None

    play(steps)


def test_a_token_is_seen_by_those_it_concerns_and_by_those_with_a_right() -> None:
    async def steps(scene: Scene) -> None:
        admin, alice, bob, carol = [await log_in(scene, user) for user in ("admin", "alice", "bob", "carol")]
        first, second = (await create(alice, "bob")).token_id, (await create(alice)).token_id
        assert await describe(alice, everybody=True) == sorted([first, second])
        assert await describe(alice) == []
        assert await describe(alice, "bob") == []
        assert await describe(bob, everybody=True) == [first]
        assert await describe(carol, everybody=True) == []
        assert await describe(admin, "alice") == sorted([first, second])
        await allow(admin, "carol", Operation.DESCRIBE, Resource.DELEGATION_TOKEN, second)
        assert await describe(carol, "alice") == [second]
        await allow(admin, "bob", Operation.DESCRIBE_TOKENS, Resource.USER, "User:alice")
        assert await describe(bob, everybody=True) == sorted([first, second])

    play(steps)


def test_a_token_is_stored_as_kafka_does_without_its_secret_and_stays_across_a_restart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")

    async def steps(scene: Scene) -> None:
        alice = await log_in(scene, "alice")
        made = await create(alice, "bob")
        path = f"/delegation_token/tokens/{made.token_id}"
        node = await scene.broker.store.get(path)
        assert node is not None
        assert json.loads(node.data) == {
            "version": 3,
            "owner": "User%3Aalice",
            "tokenRequester": "User%3Aalice",
            "renewers": ["User%3Abob"],
            "issueTimestamp": made.issue_timestamp_ms,
            "maxTimestamp": made.max_timestamp_ms,
            "expiryTimestamp": made.expiry_timestamp_ms,
            "tokenId": made.token_id,
        }
        assert await scene.broker.store.children("/delegation_token/token_changes") == ["token_change_0000000000"]
        _, answer = await log_in_by_token(scene, made.token_id, bytes(made.hmac))
        assert not answer.error_code
        for secret in (SECRET_KEY, token_password(bytes(made.hmac)), bytes(made.hmac).hex()):
            assert secret not in caplog.text
        older = {"version": 1, "owner": "User%3Acarol", "renewers": [], "issueTimestamp": 1, "tokenId": made.token_id}
        times = {"maxTimestamp": made.max_timestamp_ms, "expiryTimestamp": made.expiry_timestamp_ms}
        await scene.broker.store.commit(Put(path, json.dumps({**older, **times}).encode()))
        carol = await log_in(scene, "carol")
        assert await describe(carol, everybody=True) == [made.token_id]
        await scene.broker.store.commit(Put(path, b"damaged"))
        _, answer = await log_in_by_token(scene, made.token_id, bytes(made.hmac))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

    play(steps)


def test_without_a_key_there_are_no_tokens() -> None:
    async def steps(scene: Scene) -> None:
        alice = await log_in(scene, "alice")
        assert (await create(alice)).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        answer = await alice.call(DescribeDelegationTokenRequest(owners=None), 3)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        _, answer = await log_in_by_token(scene, "id", b"x")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

    play(steps, delegation_token_secret_key=None)

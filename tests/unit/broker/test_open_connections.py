"""Connections that are open while something changes: rights, logins and quotas hold for them from that moment on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.security.acls import Operation, Pattern, Permission, Resource
from ottla.security.sasl.plain import plain_token
from ottla.testing.raw_requests import create_topic, fetch, one_batch, produce
from ottla.testing.raw_transactions import marker_request
from ottla.testing.scene import Scene, perform
from ottla.testing.wire_client import WireClient

SETTINGS = {
    "listeners": "SASL_PLAINTEXT://broker:9092",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
    'required user_admin="admin-secret" user_alice="alice-secret" user_bob="bob-secret";',
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin;User:CN=x,O=y",
}
LIMITED = {**SETTINGS, "connections.max.reauth.ms": "10000"}
ALLOW, DENY = Permission.ALLOW, Permission.DENY
FORBIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def log_in(client: WireClient, user: str, password: str | None = None) -> Any:
    await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = plain_token(user, f"{user}-secret" if password is None else password)
    return await client.call(SaslAuthenticateRequest(auth_bytes=token), 1)


async def connect(scene: Scene, user: str, host: str | None = None) -> WireClient:
    client = await scene.connect(host)
    assert not (await log_in(client, user)).error_code
    return client


def rule(operation: Operation, name: str = "t", **changes: Any) -> AclCreation:
    values: dict[str, Any] = {
        "resource_type": Resource.TOPIC,
        "resource_name": name,
        "resource_pattern_type": Pattern.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": operation,
        "permission_type": ALLOW,
        **changes,
    }
    return AclCreation(**values)


async def add(admin: WireClient, *rules: AclCreation) -> None:
    results = (await admin.call(CreateAclsRequest(creations=list(rules)), 3)).results
    assert [one.error_code for one in results] == [0] * len(rules)


async def send(client: WireClient) -> int:
    answer = await client.call(produce("t", one_batch(b"x")), 9)
    return int(answer.responses[0].partition_responses[0].error_code)


async def prepared(scene: Scene) -> tuple[WireClient, WireClient]:
    """An administrator, and alice, who has sent until her requests were remembered."""
    admin = await connect(scene, "admin")
    await admin.call(create_topic("t"), 7)
    await add(admin, rule(Operation.WRITE), rule(Operation.READ))
    alice = await connect(scene, "alice")
    assert [await send(alice) for _ in range(3)] == [0, 0, 0]
    assert session_of(scene, "alice").repeated is not None
    return admin, alice


def session_of(scene: Scene, user: str) -> Any:
    return next(one.session for one in scene.broker.server.connections if one.session.principal == f"User:{user}")


def test_remembered_requests_end_with_the_login() -> None:
    async def play(scene: Scene) -> None:
        _, alice = await prepared(scene)
        await asyncio.sleep(11)
        with pytest.raises(ConnectionError):
            await send(alice)
        assert scene.partition("t").log.end_offset == 3

    perform(play, LIMITED)


def test_nothing_passes_between_the_start_of_a_second_login_and_its_end() -> None:
    async def play(scene: Scene) -> None:
        _, alice = await prepared(scene)
        await asyncio.sleep(2)
        assert not (await alice.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)).error_code
        answer = await alice.call(produce("t", one_batch(b"x")), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.ILLEGAL_SASL_STATE
        with pytest.raises(ConnectionError):
            await send(alice)
        assert scene.partition("t").log.end_offset == 3

    perform(play, LIMITED)


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("bob", "bob-secret"), ("admin", "admin-secret")])
def test_a_second_login_that_fails_or_is_another_ends_the_first(user: str, password: str) -> None:
    async def play(scene: Scene) -> None:
        _, alice = await prepared(scene)
        await asyncio.sleep(2)
        assert (await log_in(alice, user, password)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with pytest.raises(ConnectionError):
            await send(alice)
        assert scene.partition("t").log.end_offset == 3
        principals = {one.session.principal for one in scene.broker.server.connections}
        assert principals <= {"User:admin"}

    perform(play, LIMITED)


@pytest.mark.parametrize(
    "denial",
    [
        rule(Operation.WRITE, permission_type=DENY),
        rule(Operation.ALL, permission_type=DENY),
        rule(Operation.ALL, "*", permission_type=DENY),
        rule(Operation.WRITE, "t", permission_type=DENY, resource_pattern_type=Pattern.PREFIXED),
        rule(Operation.WRITE, permission_type=DENY, principal="User:*"),
    ],
    ids=["the operation", "all operations", "all topics", "a prefix", "everybody"],
)
def test_a_denial_reaches_remembered_requests_at_once(denial: AclCreation) -> None:
    async def play(scene: Scene) -> None:
        admin, alice = await prepared(scene)
        await add(admin, denial)
        assert await send(alice) == FORBIDDEN
        assert await send(admin) == 0, "a super user is not asked"
        assert scene.partition("t").log.end_offset == 4

    perform(play, SETTINGS)


def test_a_denial_of_a_host_is_for_that_host() -> None:
    async def play(scene: Scene) -> None:
        admin, _ = await prepared(scene)
        here, there = await connect(scene, "alice", "here"), await connect(scene, "alice", "there")
        assert [await send(each) for each in (here, there)] == [0, 0]
        hosts = [one.session.client_host for one in scene.broker.server.connections]
        assert len(set(hosts)) == 4
        await add(admin, rule(Operation.WRITE, permission_type=DENY, host=hosts[-2]))
        assert [await send(each) for each in (here, there)] == [FORBIDDEN, 0]

    perform(play, SETTINGS)


def test_a_fetch_that_waits_gets_nothing_once_its_right_is_gone() -> None:
    async def play(scene: Scene) -> None:
        admin, alice = await prepared(scene)
        waiting = asyncio.ensure_future(alice.call(fetch("t", 3, max_wait_ms=60_000), 11, timeout_s=300))
        await asyncio.sleep(1)
        await add(admin, rule(Operation.READ, permission_type=DENY))
        assert await send(admin) == 0
        (partition,) = (await waiting).responses[0].partitions
        assert (partition.error_code, bytes(partition.records or b"")) == (FORBIDDEN, b"")

    perform(play, SETTINGS)


@pytest.mark.parametrize(
    ("pattern", "name", "is_allowed"),
    [
        (Pattern.LITERAL, "t", True),
        (Pattern.LITERAL, "T", False),
        (Pattern.LITERAL, "t ", False),
        (Pattern.PREFIXED, "t", True),
        (Pattern.PREFIXED, "tt", False),
        (Pattern.PREFIXED, "*", False),
        (Pattern.LITERAL, "*", True),
    ],
)
def test_names_fit_as_they_are_written(pattern: Pattern, name: str, is_allowed: bool) -> None:
    async def play(scene: Scene) -> None:
        admin = await connect(scene, "admin")
        await admin.call(create_topic("t"), 7)
        await add(admin, rule(Operation.WRITE, name, resource_pattern_type=pattern))
        assert (await send(await connect(scene, "alice")) == 0) is is_allowed

    perform(play, SETTINGS)


def test_whoever_is_no_broker_is_measured_also_by_what_only_brokers_may_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(scene: Scene) -> None:
        admin = await connect(scene, "admin")
        quota = AlterClientQuotasRequestEntryData(
            entity=[EntityData(entity_type="user", entity_name="alice")],
            ops=[OpData(key="request_percentage", value=0.0001, remove=False)],
        )
        assert (
            not (await admin.call(AlterClientQuotasRequest(entries=[quota], validate_only=False), 1))
            .entries[0]
            .error_code
        )
        alice = await connect(scene, "alice")
        loop = asyncio.get_running_loop()
        started = loop.time()
        for _ in range(3):
            answer = await alice.call(marker_request(1, 0, "t", 0, commit=True), 1)
            assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        await alice.call(MetadataRequest(topics=[]), 9)
        assert loop.time() - started >= 1, "its connection was not read for a while"

    perform(play, SETTINGS)

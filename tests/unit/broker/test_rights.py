"""Every API and every right that is missing: the codes of authorization.json, on a running broker."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.acl_store import AclStore
from ottla.broker.api_rights import RIGHTS
from ottla.broker.authorized import NOT_ASKED
from ottla.broker.handlers import CLUSTER_HANDLERS, HANDLERS
from ottla.broker.known_rights import KNOWN_RIGHTS
from ottla.broker.rights import Asked, Rights, outcome_of
from ottla.config.dynamic import AlterOperation, ConfigResourceType
from ottla.errors import ErrorCode
from ottla.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from ottla.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from ottla.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.group_offsets import OffsetFetchRequest
from ottla.protocol.messages.groups import FindCoordinatorRequest, ListGroupsRequest
from ottla.protocol.messages.metadata import DescribeTopicPartitionsRequest, MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.protocol.messages.transactions import ListTransactionsRequest
from ottla.protocol.schema import schema_of
from ottla.protocol.versions import API_TABLE
from ottla.protocol.wire import BYTES, RECORDS, STRING, UUID16, ZERO_UUID
from ottla.runtime.turns import done_at_once
from ottla.security.acls import REAL_RESOURCES, Acl, Operation, Pattern, Permission, Resource, node_path
from ottla.security.authorizer import Authorizer, Verdict
from ottla.security.sasl.plain import plain_token
from ottla.store.api import NoNode, Put, StoreUnavailable
from ottla.testing.network import Conditions
from ottla.testing.raw_groups import first_beat
from ottla.testing.raw_requests import create_topic, fetch, list_offsets, metadata, one_batch, produce
from ottla.testing.raw_transactions import init_request
from ottla.testing.scene import FOLLOWER_ID, Scene, perform, values_of
from ottla.testing.wire_client import WireClient

FACTS = Path(__file__).parents[4] / "shared" / "protocol" / "security" / "authorization.json"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://broker:9092",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
    'required user_admin="admin-secret" user_alice="alice-secret";',
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
}
DENIALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
NAME = "secret"
# By name, and not by topic id: what a name may tell is what is asked here.
VERSIONS = {0: 12, 1: 12, 3: 9, 8: 9, 9: 9, 22: 5, 24: 3, 32: 4}
# Those of 39 to 41 are for the owner of a token and not by ACLs: test_delegation_tokens.py.
OPEN = {17, 18, 36, 39, 40, 41, 60}
ALLOW, DENY = Permission.ALLOW, Permission.DENY


async def log_in(scene: Scene, user: str) -> WireClient:
    client = await scene.connect()
    await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = await client.call(SaslAuthenticateRequest(auth_bytes=plain_token(user, f"{user}-secret")), 1)
    assert not answer.error_code
    return client


def rule(
    operation: Operation,
    resource: Resource = Resource.TOPIC,
    name: str = "*",
    permission: Permission = ALLOW,
    pattern: Pattern = Pattern.LITERAL,
) -> AclCreation:
    return AclCreation(
        resource_type=resource,
        resource_name="kafka-cluster" if resource is Resource.CLUSTER else name,
        resource_pattern_type=pattern,
        principal="User:alice",
        host="*",
        operation=operation,
        permission_type=permission,
    )


async def add(admin: WireClient, *rules: AclCreation) -> None:
    results = (await admin.call(CreateAclsRequest(creations=list(rules)), 3)).results
    assert [one.error_code for one in results] == [0] * len(rules)


async def remove_all(admin: WireClient) -> None:
    everything = DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    await admin.call(DeleteAclsRequest(filters=[everything]), 3)


def sample(cls: type, version: int) -> Any:
    """A request about one thing of each kind, each called `secret`."""
    values: dict[str, Any] = {}
    for field in schema_of(cls).fields:
        if version not in field.versions or field.tag is not None:
            continue
        if field.struct is not None:
            one: Any = sample(field.struct, version)
        elif field.wire_type is STRING:
            one = NAME
        elif field.wire_type in (BYTES, RECORDS):
            one = b""
        elif field.wire_type is UUID16:
            one = ZERO_UUID
        else:
            one = False if str(field.wire_type) == "bool" else 0
        values[field.name] = [one] if field.is_array else one
    return cls(**values)


def request_of(key: int) -> tuple[Any, int]:
    api = API_TABLE[key]
    version = VERSIONS.get(key, api.versions.last)
    request = sample(api.request, version)
    if key == 0:
        request = produce(
            NAME,
            one_batch(b"x", is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
            transactional_id=NAME,
        )
    if key == 1:
        request = fetch(NAME)
    if key in (32, 33, 44):
        request.resources[0].resource_type = 2
    if key in (29, 30, 31):
        target = request if key == 29 else (request.creations if key == 30 else request.filters)[0]
        for name in ("resource_type", "resource_type_filter", "resource_pattern_type", "pattern_type_filter"):
            if hasattr(target, name):
                setattr(target, name, 3)
        target.operation, target.permission_type = 3, 3
        if key == 30:
            target.principal = "User:x"
    if key == 68:
        request.subscribed_topic_regex = None
    return request, version


def codes(value: Any) -> Iterator[int]:
    """Every error code in an answer."""
    if isinstance(value, list):
        for one in value:
            yield from codes(one)
    elif hasattr(type(value), "__slots__") and not isinstance(value, (int, str, bytes, memoryview)):
        try:
            fields = schema_of(type(value)).fields
        except Exception:
            return
        for field in fields:
            found = getattr(value, field.name)
            if field.name.endswith("error_code"):
                yield found
            else:
                yield from codes(found)


@pytest.fixture(scope="module")
def facts() -> dict[int, dict[str, Any]]:
    if not FACTS.exists():
        pytest.skip(f"{FACTS.name} with the rights of Kafka is not here")
    return {api["api_key"]: api for api in json.loads(FACTS.read_text())["apis"]}


def test_every_api_that_is_served_has_a_rule() -> None:
    assert HANDLERS.keys() <= RIGHTS.keys()


def test_without_any_right_every_api_is_refused_and_with_all_of_them_none_is(facts: dict[int, dict[str, Any]]) -> None:
    async def play(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        await admin.call(create_topic(NAME), 7)
        for key in HANDLERS.keys() - OPEN:
            request, version = request_of(key)
            answer = await alice.call(request, version)
            listed = {check["error_code"] for check in facts[key]["checks"]} - {None}
            found = set(codes(answer)) & DENIALS
            if listed:
                assert found, f"{API_TABLE[key].name} is not refused: {answer}"
                assert found <= listed, f"{API_TABLE[key].name}: {found}"
            else:
                assert not [
                    one
                    for field in schema_of(type(answer)).fields
                    if field.is_array and field.struct
                    for one in getattr(answer, field.name)
                ]
        everything = [rule(Operation.ALL, resource) for resource in Resource if resource in REAL_RESOURCES]
        await add(admin, *everything)
        for key in sorted(HANDLERS.keys() - OPEN - {11, 20, 30, 31}):
            request, version = request_of(key)
            found = set(codes(await alice.call(request, version))) & DENIALS
            assert not found, f"{API_TABLE[key].name}: {found}"

    perform(play, SETTINGS)


# Checks that the sample of a request does not come to, and what is hidden elsewhere.
NOT_ASKED_BY_SAMPLE = {
    (1, "CLUSTER", "CLUSTER_ACTION"): "of a follower",
    (3, "TOPIC", "CREATE"): "the topic exists",
    (10, "TRANSACTIONAL_ID", "DESCRIBE"): "another type of key",
    (10, "CLUSTER", "CLUSTER_ACTION"): "another type of key",
    (19, "TOPIC", "DESCRIBE_CONFIGS"): "the topic exists already",
    (22, "TRANSACTIONAL_ID", "TWO_PHASE_COMMIT"): "a later version",
    (22, "TOPIC", "WRITE"): "without a transactional id",
    (24, "CLUSTER", "CLUSTER_ACTION"): "a later version",
    (44, "CLUSTER", "CLUSTER_ACTION"): "of a controller's listener",
    (60, "CLUSTER", "ALTER"): "of a controller's listener",
    (69, "TOPIC", "DESCRIBE"): "the group has no members",
}


def test_each_right_that_is_missing_is_noticed_by_each_api_that_needs_it(facts: dict[int, dict[str, Any]]) -> None:
    async def play(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        await admin.call(create_topic(NAME), 7)
        everything = [rule(Operation.ALL, resource) for resource in Resource if resource in REAL_RESOURCES]
        for key in sorted(HANDLERS.keys() - OPEN):
            checks = facts[key]["checks"]
            for check in checks:
                resource, operation = check["resource_type"], check["operation"]
                if check["error_code"] is None or operation == "(none)":
                    continue
                if (key, resource, operation) in NOT_ASKED_BY_SAMPLE:
                    continue
                if key in (32, 33, 44) and resource != "TOPIC":
                    continue
                denied = {(resource, operation)}
                denied |= {(one["resource_type"], one["operation"]) for one in checks if one.get("alternative_to")}
                await add(
                    admin,
                    *everything,
                    *(rule(Operation[name], Resource[kind], permission=DENY) for kind, name in denied),
                )
                request, version = request_of(key)
                answer = await alice.call(request, version)
                assert check["error_code"] in set(codes(answer)), f"{API_TABLE[key].name} without {operation}: {answer}"
                await remove_all(admin)

    perform(play, SETTINGS)


def test_a_missing_topic_and_a_forbidden_one_look_the_same() -> None:
    async def play(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        await admin.call(create_topic("there"), 7)
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("there", "missing")])
        there, missing = (await alice.call(asked, 12)).topics
        there.name = missing.name = ""
        assert there == missing
        assert (await alice.call(MetadataRequest(topics=None), 12)).topics == []
        assert (await alice.call(MetadataRequest(topics=[]), 0)).topics == []

    perform(play, SETTINGS)


def test_a_right_that_is_taken_away_ends_a_stream_of_produce_requests_at_once() -> None:
    async def play(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        await admin.call(create_topic("t"), 7)
        await add(admin, rule(Operation.WRITE, name="t"))

        async def send() -> int:
            answer = await alice.call(produce("t", one_batch(b"x")), 9)
            return int(answer.responses[0].partition_responses[0].error_code)

        assert [await send() for _ in range(3)] == [0, 0, 0]
        session = next(one.session for one in scene.broker.server.connections if one.session.principal == "User:alice")
        assert session.repeated is not None, "it was remembered"
        await remove_all(admin)
        assert await send() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert scene.partition("t").log.end_offset == 3

    perform(play, SETTINGS)


async def scene_produce(client: WireClient) -> Any:
    answer = await client.call(produce("t", one_batch(b"x"), acks=1), 9)
    return answer.responses[0].partition_responses[0]


REPEATED: dict[str, tuple[Any, int]] = {
    "Produce": (produce("t", one_batch(b"x")), 9),
    "Fetch": (fetch("t", max_wait_ms=0), 11),
    "ListOffsets": (list_offsets("t", -1), 7),
    "Metadata of a topic": (metadata("t"), 9),
    "Metadata of all": (metadata(all_topics=True), 9),
}


@pytest.mark.parametrize("title", REPEATED)
def test_what_was_allowed_is_not_decided_again_until_the_rules_change(
    title: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided: list[str] = []
    decide = Authorizer.decide

    def counted(self: Authorizer, principal: str, *what: Any) -> Verdict:
        decided.append(principal)
        return decide(self, principal, *what)

    monkeypatch.setattr(Authorizer, "decide", counted)
    request, version = REPEATED[title]

    async def play(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        await admin.call(create_topic("t"), 7)

        async def shown() -> tuple[set[int], int]:
            """The codes of the answer, and how many topics it is about."""
            answer = await alice.call(request, version)
            return set(codes(answer)), len(getattr(answer, "topics", ()))

        refused = await shown()
        for _ in range(2):
            await add(admin, rule(Operation.READ, name="t"), rule(Operation.WRITE, name="t"))
            allowed = await shown()
            assert allowed != refused
            decided.clear()
            assert await shown() == allowed
            assert "User:alice" not in decided
            await remove_all(admin)
            assert await shown() == refused

    perform(play, SETTINGS)


def test_what_is_known_to_be_allowed_is_audited_each_time(caplog: pytest.LogCaptureFixture) -> None:
    async def play(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        await admin.call(create_topic("t"), 7)
        await add(admin, rule(Operation.READ, name="t"), rule(Operation.WRITE, name="t"))
        for title, (request, version) in REPEATED.items():
            caplog.clear()
            for _ in range(3):
                await alice.call(request, version)
            lines = [record.getMessage() for record in caplog.records if record.name == "kafka.authorizer.logger"]
            told = [line for line in lines if "'User:alice' is Allowed" in line and "Topic:LITERAL:t" in line]
            assert len(told) >= 3, title

    with caplog.at_level(logging.DEBUG, "kafka.authorizer.logger"):
        perform(play, SETTINGS)


def test_what_is_remembered_as_allowed_is_audited_from_the_moment_that_this_is_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    audited = "kafka.authorizer.logger"

    async def play(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        await admin.call(create_topic("t"), 7)
        await add(admin, rule(Operation.WRITE, name="t"))
        for _ in range(3):
            await alice.call(produce("t", one_batch(b"v")), 9)
        change = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequestAlterConfigsResource(
                    resource_type=ConfigResourceType.BROKER_LOGGER,
                    resource_name=str(scene.broker.node_id),
                    configs=[
                        IncrementalAlterConfigsRequestAlterableConfig(
                            name=audited, config_operation=AlterOperation.SET, value="DEBUG"
                        )
                    ],
                )
            ],
            validate_only=False,
        )
        assert not (await admin.call(change, 1)).responses[0].error_code
        caplog.clear()
        await alice.call(produce("t", one_batch(b"v")), 9)
        assert any("'User:alice' is Allowed operation = WRITE" in record.getMessage() for record in caplog.records)

    with caplog.at_level(logging.DEBUG, audited):
        logging.getLogger(audited).setLevel(logging.INFO)
        perform(play, SETTINGS)


@pytest.mark.parametrize("key", KNOWN_RIGHTS)
def test_what_is_seen_at_once_to_be_allowed_its_rule_lets_pass(key: int) -> None:
    api = API_TABLE[key]
    ids = {"seen": UUID(int=1), "hidden": UUID(int=2), "unknown": UUID(int=3)}
    image: Any = SimpleNamespace(
        topics={"seen": None, "hidden": None}, names_by_id={ids[name]: name for name in ("seen", "hidden")}
    )
    allowed = [
        Acl(resource, name, Pattern.LITERAL, "User:alice", "*", Operation.ALL, Permission.ALLOW)
        for resource, name in ((Resource.TOPIC, "seen"), (Resource.TOPIC, "missing"), (Resource.GROUP, "seen"))
    ]
    rng = random.Random(key)
    outcomes = Counter[bool]()
    for _ in range(2000):
        store: Any = SimpleNamespace(authorizer=Authorizer(allowed))
        rights = Rights(store, "User:alice", "127.0.0.1", api)
        for resource in (Resource.TOPIC, Resource.GROUP):
            for operation in (Operation.READ, Operation.WRITE, Operation.DESCRIBE):
                for name in ("seen", "missing"):
                    rights.may(operation, resource, name)
        version = rng.choice(list(api.versions))
        request = about_any_of(("seen", "seen", "seen", "hidden", "missing", ""), ids, rng, api.request, version)
        is_known = KNOWN_RIGHTS[key](rights, request, image)
        outcomes[is_known] += 1
        if is_known:
            asked, before = Asked(request, version, rights, image, lambda: True), repr(request)
            outcome = done_at_once(outcome_of(RIGHTS[key](asked)))
            assert outcome.refusal is None, request
            assert outcome.finish is None or key == 3, request
            assert repr(request) == before, "nothing was taken out of it"
    assert len(outcomes) == 2, "both occur"


def about_any_of(names: Sequence[str], ids: Mapping[str, UUID], rng: random.Random, cls: type, version: int) -> Any:
    """A request about none, one or two things of each kind, by name, by id, or both."""
    values: dict[str, Any] = {}
    for field in schema_of(cls).fields:
        if version not in field.versions or field.tag is not None:
            continue
        count = rng.choice((0, 1, 1, 1, 2)) if field.is_array else 1
        found = []
        for _ in range(count):
            if field.struct is not None:
                found.append(about_any_of(names, ids, rng, field.struct, version))
            elif field.wire_type is STRING:
                found.append(rng.choice(names))
            elif field.wire_type in (BYTES, RECORDS):
                found.append(b"")
            elif field.wire_type is UUID16:
                found.append(rng.choice((ZERO_UUID, *ids.values())))
            elif str(field.wire_type) == "bool":
                found.append(rng.random() < 0.2)
            else:
                found.append(rng.choice((-1, -1, 0)))
        values[field.name] = found if field.is_array else found[0]
    return cls(**values)


def test_cve_2018_1288_nobody_poses_as_a_follower() -> None:
    async def play(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        await admin.call(create_topic("t"), 7)
        await add(admin, rule(Operation.READ, name="t"))
        assert not (await alice.call(fetch("t"), 11)).responses[0].partitions[0].error_code
        scene.follow("t")
        assert not (await scene_produce(admin)).error_code
        leader = scene.partition("t").leader
        before = leader.high_watermark
        for replica_id in (0, 1, FOLLOWER_ID):
            request: FetchRequest = fetch("t", 1)
            request.replica_id = replica_id
            answer = await alice.call(request, 11)
            assert answer.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert leader.high_watermark == before == 0, "nothing is committed by what she said to have"

    perform(play, SETTINGS)


def test_metadata_tells_of_a_topic_by_its_id_only_who_may_see_that_topic() -> None:
    """Where an entry has a name and an id, the id counts, and so it is what is checked."""

    async def play(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        for name in ("allowed", "secret"):
            await admin.call(create_topic(name), 7)
        await add(admin, rule(Operation.DESCRIBE, name="allowed"))
        ids = {topic.name: topic.topic_id for topic in (await admin.call(MetadataRequest(topics=None), 12)).topics}
        both = MetadataRequestTopic(name="allowed", topic_id=ids["secret"])
        (topic,) = (await alice.call(MetadataRequest(topics=[both]), 12)).topics
        assert (topic.error_code, topic.name, topic.partitions) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, [])

    perform(play, SETTINGS)


def test_a_page_of_topics_ends_at_none_that_its_reader_may_not_see() -> None:
    async def play(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        for name in ("a-secret", "b-seen", "c-secret", "d-seen", "e-secret"):
            await admin.call(create_topic(name), 7)
        await add(admin, rule(Operation.DESCRIBE, name="b-seen"), rule(Operation.DESCRIBE, name="d-seen"))
        pages = []
        cursor = None
        while True:
            request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=1, cursor=cursor)
            answer = await alice.call(request, 0)
            pages.append([topic.name for topic in answer.topics])
            if answer.next_cursor is None:
                break
            assert answer.next_cursor.topic_name.endswith("-seen")
            cursor = answer.next_cursor
        assert pages == [["b-seen"], ["d-seen"]]

    perform(play, SETTINGS)


@pytest.mark.parametrize("is_transactional", [False, True])
def test_records_without_a_response_that_are_refused_close_the_connection_and_keep_what_is_allowed(
    is_transactional: bool,
) -> None:
    async def play(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        for name in ("allowed", "secret"):
            await admin.call(create_topic(name), 7)
        await add(admin, rule(Operation.WRITE, name="allowed"))
        if is_transactional:
            records = one_batch(b"x", is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
            request = produce("allowed", records, acks=0, transactional_id="not hers")
        else:
            request = produce("allowed", one_batch(b"x"), acks=0)
            request.topic_data += produce("secret", one_batch(b"x")).topic_data
        await alice.send(request, 9)
        with pytest.raises(ConnectionError):
            await alice.call(MetadataRequest(topics=[]), 9)
        assert scene.partition("allowed").log.end_offset == (0 if is_transactional else 1)
        assert scene.partition("secret").log.end_offset == 0

    perform(play, SETTINGS)


def test_a_group_whose_members_read_what_is_hidden_shows_nothing_of_itself() -> None:
    async def play(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        await admin.call(create_topic("secret"), 7)
        await admin.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        joined = await admin.call(first_beat("g", "m", "secret"), 1)
        assert joined.assignment.topic_partitions
        await add(admin, rule(Operation.DESCRIBE, Resource.GROUP, "g"))
        request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True)
        (group,) = (await alice.call(request, 1)).groups
        assert group.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (group.group_state, group.assignor_name, group.members) == ("", "", [])
        assert (group.group_epoch, group.assignment_epoch, group.authorized_operations) == (0, 0, NOT_ASKED)

    perform(play, SETTINGS)


def test_what_only_brokers_may_say_is_refused_to_everybody_else() -> None:
    """Of a cluster: its messages between brokers, and what changes where replicas are."""
    acls = Authorizer([], frozenset())
    store = SimpleNamespace(authorizer=acls)
    for key, served in CLUSTER_HANDLERS.items():
        for version in served.api.versions:
            rights = Rights(store, "User:alice", "127.0.0.1", served.api)  # type: ignore[arg-type]
            request = sample(served.api.request, version)
            asked = Asked(request, version, rights, None, lambda: False)  # type: ignore[arg-type]
            outcome = done_at_once(outcome_of(RIGHTS[key](asked)))
            assert outcome.refusal is not None, served.api.name
            assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED in set(codes(outcome.refusal)), served.api.name


def test_cve_2026_105931_and_105938_lists_of_all_tell_no_more_than_single_questions() -> None:
    async def play(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        await admin.call(create_topic("secret"), 7)
        for kind, name in ((0, "secret-group"), (1, "secret-txn")):
            await admin.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[name]), 4)
        await admin.call(first_beat("secret-group", "m", "secret"), 1)
        await admin.call(init_request("secret-txn"), 4)
        answers = [
            await alice.call(MetadataRequest(topics=None), 12),
            await alice.call(MetadataRequest(topics=[]), 0),
            await alice.call(DescribeTopicPartitionsRequest(topics=[]), 0),
            await alice.call(ListGroupsRequest(), 5),
            await alice.call(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 1),
            await alice.call(OffsetFetchRequest(group_id="secret-group", topics=None), 7),
        ]
        assert "secret" not in repr(answers).replace("alice-secret", "")

    perform(play, SETTINGS)


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a\nb", "a\0b", "*", "x" * 300, "\N{SNOWMAN}", " "])
def test_odd_names_in_rules_are_stored_or_refused_and_never_mean_others(name: str) -> None:
    async def play(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        await admin.call(create_topic("t"), 7)
        answer = await admin.call(CreateAclsRequest(creations=[rule(Operation.READ, name=name)]), 3)
        assert len(answer.results) == 1
        may_read = not (await alice.call(fetch("t"), 11)).responses[0].partitions[0].error_code
        assert may_read is (name == "*")
        acls = scene.broker.dispatcher.acls
        assert acls is not None
        await acls.read()
        assert not acls.authorizer.is_closed
        assert len(acls.authorizer.acls) == (0 if answer.results[0].error_code else 1)

    perform(play, SETTINGS)


def test_a_part_of_the_acls_that_went_away_closes_the_broker() -> None:
    async def play(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        await admin.call(create_topic("t"), 7)
        await add(admin, rule(Operation.READ, Resource.GROUP, "g"))
        acls = scene.broker.dispatcher.acls
        assert acls is not None
        children = scene.broker.store.children

        async def without_topics(path: str) -> list[str]:
            if path == "/kafka-acl/Topic":
                raise NoNode(path)
            return list(await children(path))

        scene.broker.store.children = without_topics  # type: ignore[method-assign]
        await acls.read()
        assert (await alice.call(MetadataRequest(topics=None), 9)).topics == []
        scene.broker.store.children = children  # type: ignore[method-assign]
        await acls.read()
        assert [topic.name for topic in (await alice.call(MetadataRequest(topics=None), 9)).topics] == ["t"]

    perform(play, {**SETTINGS, "allow.everyone.if.no.acl.found": "true"})


def test_cve_2018_17196_records_of_a_transaction_need_a_right_on_its_id() -> None:
    async def play(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        await admin.call(create_topic("t", 2), 7)
        await add(admin, rule(Operation.WRITE, name="t"))
        hidden = one_batch(b"x", is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
        request = produce("t", one_batch(b"y"), transactional_id="id")
        request.topic_data[0].partition_data += produce("t", hidden, partition=1).topic_data[0].partition_data
        answer = await alice.call(request, 9)
        assert {one.error_code for one in answer.responses[0].partition_responses} == {
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        }

    perform(play, SETTINGS)


def test_rules_are_stored_as_kafka_does_described_and_kept_across_a_restart() -> None:
    async def play(scene: Scene) -> None:
        admin = await log_in(scene, "admin")
        await add(admin, rule(Operation.READ, name="t"), rule(Operation.READ, name="p", pattern=Pattern.PREFIXED))
        assert await scene.broker.store.get("/kafka-acl/Topic/t") is not None
        assert await scene.broker.store.get("/kafka-acl-extended/prefixed/Topic/p") is not None
        await scene.restart()
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        match = DescribeAclsRequest(
            resource_type_filter=2,
            resource_name_filter="pt",
            pattern_type_filter=Pattern.MATCH,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        found = (await admin.call(match, 3)).resources
        assert [(one.resource_name, one.pattern_type) for one in found] == [("p", Pattern.PREFIXED)]
        assert (await alice.call(match, 3)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    perform(play, SETTINGS)


def test_damaged_acls_close_the_broker_to_all_but_super_users() -> None:
    async def play(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        await admin.call(create_topic("t"), 7)
        await add(admin, rule(Operation.ALL, name="t"))
        acls = scene.broker.dispatcher.acls
        assert acls is not None
        await scene.broker.store.commit(Put(node_path(Resource.TOPIC, Pattern.LITERAL, "t"), b"?"))
        await acls.read()
        assert (await alice.call(MetadataRequest(topics=None), 9)).topics == []
        assert [topic.name for topic in (await admin.call(MetadataRequest(topics=None), 9)).topics] == ["t"]

    perform(play, {**SETTINGS, "allow.everyone.if.no.acl.found": "true"})


def test_unreachable_acls_close_a_broker_that_starts_and_leave_one_that_runs_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is known holds; nothing that is not known is taken for a permission."""

    async def play(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        await admin.call(create_topic("t"), 7)
        await admin.call(create_topic("u"), 7)
        await add(admin, rule(Operation.ALL, name="t"))
        acls = scene.broker.dispatcher.acls
        assert acls is not None

        async def unreachable(path: str) -> list[str]:
            raise StoreUnavailable(path, "away")

        monkeypatch.setattr(scene.broker.store, "children", unreachable)
        with pytest.raises(StoreUnavailable):
            await acls.read()
        assert [topic.name for topic in (await alice.call(MetadataRequest(topics=None), 9)).topics] == ["t"]
        broker = scene.broker
        fresh = AclStore(broker.store, broker.config, broker.clock.now_ms, lambda: None, broker.turns, broker.offload)
        with pytest.raises(StoreUnavailable):
            await fresh.open()
        for principal, is_allowed in (("User:alice", False), ("User:admin", True)):
            verdict = fresh.authorizer.decide(principal, "h", Operation.READ, Resource.TOPIC, "t")
            assert verdict.is_allowed is is_allowed
        monkeypatch.undo()

    perform(play, SETTINGS)


def test_one_damaged_node_hides_no_denial_of_another() -> None:
    async def play(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        await admin.call(create_topic("t"), 7)
        await add(admin, rule(Operation.ALL, name="*"), rule(Operation.ALL, name="t", permission=DENY))
        acls = scene.broker.dispatcher.acls
        assert acls is not None
        path = node_path(Resource.TOPIC, Pattern.LITERAL, "t")
        for data in (b"", b"null", b"{}", b'{"version":1,"acls":[{"principal":"User:alice"}]}', b'{"acls":[5]}'):
            await scene.broker.store.commit(Put(path, data))
            await acls.read()
            assert (await alice.call(MetadataRequest(topics=None), 9)).topics == []
        refused = await admin.call(CreateAclsRequest(creations=[rule(Operation.READ, name="t")]), 3)
        assert refused.results[0].error_code != ErrorCode.NONE

    perform(play, {**SETTINGS, "allow.everyone.if.no.acl.found": "true"})


def test_a_pattern_stands_for_the_topics_that_its_member_may_see() -> None:
    def heartbeat(epoch: int, member_id: str, regex: str | None = None) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if regex else -1,
            subscribed_topic_regex=regex,
            topic_partitions=[] if regex else None,
        )

    async def play(scene: Scene) -> None:
        admin, alice = await log_in(scene, "admin"), await log_in(scene, "alice")
        for name in ("seen-1", "seen-2", "hidden"):
            assert not (await admin.call(create_topic(name), 7)).topics[0].error_code
        await admin.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        await add(
            admin,
            rule(Operation.READ, Resource.GROUP, "g"),
            rule(Operation.READ, name="seen-", pattern=Pattern.PREFIXED),
        )
        ids = {topic.name: topic.topic_id for topic in (await admin.call(MetadataRequest(topics=None), 12)).topics}
        joined = await alice.call(heartbeat(0, "alices", ".*"), 1)
        assert not joined.error_code
        assert {each.topic_id for each in joined.assignment.topic_partitions} == {ids["seen-1"], ids["seen-2"]}
        described = (
            await admin.call(ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False), 1)
        ).groups[0]
        (member,) = described.members
        assert {each.topic_name for each in member.target_assignment.topic_partitions} == {"seen-1", "seen-2"}
        # When it is due, the heartbeat of somebody else does not widen it either.
        theirs = await admin.call(heartbeat(0, "admins", "nothing"), 1)
        await asyncio.sleep(2000)
        assert not (await admin.call(heartbeat(theirs.member_epoch, "admins"), 1)).error_code
        group = (
            await admin.call(ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False), 1)
        ).groups[0]
        found = {topic.topic_name for each in group.members for topic in each.target_assignment.topic_partitions}
        assert found <= {"seen-1", "seen-2"}

    perform(
        play,
        {
            **SETTINGS,
            "connections.max.idle.ms": "7200000",
            "group.consumer.session.timeout.ms": "3600000",
            "group.consumer.max.session.timeout.ms": "3600000",
        },
    )


@pytest.mark.parametrize("allowed", ["*", "mine"])
def test_records_whose_rights_are_judged_in_steps_are_those_that_came(allowed: str) -> None:
    """All connections receive into one buffer: what comes in between two steps must not be written in their place."""

    def request(value: bytes) -> ProduceRequest:
        records = {"mine": value, **{f"other-{number}": b"x" for number in range(40)}}
        data = {topic: [PartitionProduceData(index=0, records=one_batch(one))] for topic, one in records.items()}
        return ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=topic, partition_data=of_topic) for topic, of_topic in data.items()],
        )

    async def play(scene: Scene) -> None:
        # What is sent at the same time is here at the same time, and whole.
        scene.world.network.conditions = Conditions(jitter_s=0, bytes_per_second=1e15, cut_chance=0)
        admin, *clients = [await log_in(scene, user) for user in ("admin", "alice", "alice", "alice")]
        await admin.call(create_topic("mine"), 7)
        await add(admin, rule(Operation.WRITE, name=allowed))
        values = [b"A" * 20, b"B" * 20, b"C" * 20]
        sent = [await client.send(request(value), 9) for client, value in zip(clients, values, strict=True)]
        for client, value, correlation_id in zip(clients, values, sent, strict=True):
            answer = await client.receive(request(value), 9, correlation_id)
            codes = {one.name: one.partition_responses[0].error_code for one in answer.responses}
            assert codes["mine"] == 0
            assert codes["other-0"] == (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if allowed == "*" else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
        found = (await admin.call(fetch("mine"), 11)).responses[0].partitions[0]
        assert Counter(values_of(bytes(found.records))) == Counter(values)

    perform(play, SETTINGS)

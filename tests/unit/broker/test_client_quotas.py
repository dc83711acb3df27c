"""Quotas of clients on a running broker, in virtual time: changed, told, enforced."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from ottla.broker.client_quotas import IDLE_MS_MAX, METERS_MAX, ClientQuotas, RequestQuota
from ottla.broker.scram_users import ScramChange, ScramUsers
from ottla.config.broker import BrokerConfig
from ottla.errors import ErrorCode
from ottla.protocol.messages.cluster import FeatureUpdateKey, UnregisterBrokerRequest, UpdateFeaturesRequest
from ottla.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from ottla.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.protocol.wire import ZERO_UUID
from ottla.security.quotas import NO_LIMITS, entity_of
from ottla.security.scram import ScramMechanism, from_salted
from ottla.testing.raw_requests import creatable, fetch, metadata, one_batch, produce
from ottla.testing.scene import Scene, perform

ANONYMOUS = "ANONYMOUS"


def alteration(changes: dict[str, float | None], validate_only: bool = False, **parts: str | None) -> Any:
    entity = [EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in parts.items()]
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()]
    entry = AlterClientQuotasRequestEntryData(entity=entity, ops=ops)
    return AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)


async def alter(scene: Scene, changes: dict[str, float | None], **parts: Any) -> int:
    (entry,) = (await scene.ask(alteration(changes, **parts), 1)).entries
    return int(entry.error_code)


async def described(scene: Scene) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    answer = await scene.ask(DescribeClientQuotasRequest(components=[], strict=False), 1)
    assert not answer.error_code, answer
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            one.key: one.value for one in entry.values
        }
        for entry in answer.entries
    }


def steady_s(scene: Scene) -> float:
    return scene.world.loop.time()


# -- changing ----------------------------------------------------------------------------------------------------------


def test_quotas_are_set_told_kept_over_a_restart_and_removed() -> None:
    async def play(scene: Scene) -> None:
        assert not await described(scene)
        assert await alter(scene, {"producer_byte_rate": 1024.0}, user="alice") == 0
        assert await alter(scene, {"request_percentage": 50.0}, user="alice", client_id="app") == 0
        assert await alter(scene, {"consumer_byte_rate": 9.0}, client_id=None) == 0
        assert await alter(scene, {"connection_creation_rate": 100.0}, ip="127.0.0.9") == 0
        everything = {
            (("user", "alice"),): {"producer_byte_rate": 1024.0},
            (("user", "alice"), ("client-id", "app")): {"request_percentage": 50.0},
            (("client-id", None),): {"consumer_byte_rate": 9.0},
            (("ip", "127.0.0.9"),): {"connection_creation_rate": 100.0},
        }
        assert await described(scene) == everything
        await scene.restart()
        assert await described(scene) == everything
        for key, parts in (
            ("request_percentage", {"user": "alice", "client_id": "app"}),
            ("producer_byte_rate", {"user": "alice"}),
            ("consumer_byte_rate", {"client_id": None}),
            ("connection_creation_rate", {"ip": "127.0.0.9"}),
        ):
            assert await alter(scene, {key: None}, **parts) == 0
        assert not await described(scene)
        assert scene.broker.dispatcher.quotas is None
        for kind in ("users", "clients", "ips"):
            assert not await scene.broker.store.children(f"/config/{kind}"), "an entity without quotas is deleted"

    perform(play)


def test_the_nodes_are_those_of_kafka() -> None:
    """Names and bytes of the captures of Kafka 3.9 with ZooKeeper."""

    async def play(scene: Scene) -> None:
        assert await alter(scene, {"consumer_byte_rate": 2048.0}, client_id="app1", user="u1") == 0
        assert await alter(scene, {"request_percentage": 50.0}, client_id=None, user=None) == 0
        assert await alter(scene, {"controller_mutation_rate": 10.0}, client_id=None) == 0
        assert await alter(scene, {"connection_creation_rate": 100.0}, ip="127.0.0.9") == 0
        assert await alter(scene, {"producer_byte_rate": 1024.0}, user="CN=a b") == 0
        assert await alter(scene, {"producer_byte_rate": 1024.0}, user="a~*") == 0
        stored = {}
        for path in (
            "users/u1/clients/app1",
            "users/<default>/clients/<default>",
            "clients/<default>",
            "ips/127.0.0.9",
            "users/CN%3Da%20b",
            "users/a%7E%2A",
        ):
            node = await scene.broker.store.get(f"/config/{path}")
            assert node is not None, path
            stored[path] = node.data
        assert stored["users/u1/clients/app1"] == b'{"version":1,"config":{"consumer_byte_rate":"2048"}}'
        assert stored["users/<default>/clients/<default>"] == b'{"version":1,"config":{"request_percentage":"50.0"}}'
        assert stored["clients/<default>"] == b'{"version":1,"config":{"controller_mutation_rate":"10.0"}}'
        assert stored["ips/127.0.0.9"] == b'{"version":1,"config":{"connection_creation_rate":"100"}}'
        assert stored["users/CN%3Da%20b"] == b'{"version":1,"config":{"producer_byte_rate":"1024"}}'

    perform(play)


def test_a_users_password_outlives_his_quotas_and_the_other_way_round() -> None:
    async def play(scene: Scene) -> None:
        users = ScramUsers(scene.broker.store)
        credential = from_salted(ScramMechanism.SCRAM_SHA_256, b"x" * 32, b"salt", 4096)
        assert await users.change("alice", [ScramChange(ScramMechanism.SCRAM_SHA_256, credential)])
        assert await alter(scene, {"producer_byte_rate": 10.0}, user="alice") == 0
        assert await users.credential("alice", ScramMechanism.SCRAM_SHA_256) == credential
        assert await alter(scene, {"producer_byte_rate": None}, user="alice") == 0
        assert await users.credential("alice", ScramMechanism.SCRAM_SHA_256) == credential
        assert await alter(scene, {"producer_byte_rate": 20.0}, user="alice") == 0
        assert await users.change("alice", [ScramChange(ScramMechanism.SCRAM_SHA_256, None)])
        await scene.restart()
        assert await described(scene) == {(("user", "alice"),): {"producer_byte_rate": 20.0}}

    perform(play)


def test_what_cannot_be_a_quota_is_refused_and_changes_nothing() -> None:
    async def play(scene: Scene) -> None:
        assert await alter(scene, {"producer_byte_rate": -1.0}, user="alice") == ErrorCode.INVALID_REQUEST
        assert await alter(scene, {"colour": 1.0}, user="alice") == ErrorCode.INVALID_REQUEST
        assert await alter(scene, {"producer_byte_rate": 1.0}, ip="127.0.0.1") == ErrorCode.INVALID_REQUEST
        assert await alter(scene, {"producer_byte_rate": 1.0}, validate_only=True, user="alice") == 0
        twice = alteration({"producer_byte_rate": 1.0}, user="alice").entries * 2
        (entry,) = (await scene.ask(AlterClientQuotasRequest(entries=twice, validate_only=True), 0)).entries
        assert entry.error_code == ErrorCode.INVALID_REQUEST
        assert not await described(scene)
        bad = ComponentData(entity_type="user", match_type=0, match=None)
        answer = await scene.ask(DescribeClientQuotasRequest(components=[bad], strict=False), 0)
        assert (answer.error_code, answer.entries) == (ErrorCode.INVALID_REQUEST, None)

    perform(play)


def test_a_user_who_is_called_default_is_not_every_other_user() -> None:
    async def play(scene: Scene) -> None:
        assert await alter(scene, {"producer_byte_rate": 1.0}, user="<default>") == 0
        assert await alter(scene, {"producer_byte_rate": 9.0}, user=None) == 0
        await scene.restart()
        assert await described(scene) == {
            (("user", "<default>"),): {"producer_byte_rate": 1.0},
            (("user", None),): {"producer_byte_rate": 9.0},
        }

    perform(play)


# -- bytes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 9])
def test_a_producer_over_its_quota_is_told_and_not_read_for_that_time(version: int) -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        assert await alter(scene, {"producer_byte_rate": 1000.0}, client_id="wire") == 0
        client, other = await scene.connect(), await scene.connect()
        first = await client.call(produce(topic, one_batch(b"x" * 5000)), version)
        assert first.throttle_time_ms == 0, "less than ten seconds' worth"
        started = steady_s(scene)
        second = await client.call(produce(topic, one_batch(b"x" * 15_000)), version)
        assert steady_s(scene) - started < 1, "the answer itself is not late"
        assert second.throttle_time_ms > 5000
        await client.call(metadata(topic), 9)
        waited_ms = (steady_s(scene) - started) * 1000
        assert second.throttle_time_ms <= waited_ms < second.throttle_time_ms + 1000
        assert (await other.call(metadata(topic), 9)).throttle_time_ms == 0, "only what is limited is throttled"

    perform(play)


def test_a_repeated_produce_does_not_escape_a_quota() -> None:
    """The short way is left when a quota comes, for those whom it limits, and taken again when it goes."""

    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        client = await scene.connect()

        async def send() -> int:
            return int((await client.call(produce(topic, one_batch(b"x" * 1000)), 9)).throttle_time_ms)

        def is_short() -> bool:
            return any(connection.session.repeated for connection in scene.broker.server.connections)

        assert [await send() for _ in range(3)] == [0, 0, 0]
        assert is_short()
        assert await alter(scene, {"producer_byte_rate": 10.0}, user="somebody-else") == 0
        assert await send() == 0
        assert is_short(), "it is not limited"
        assert await alter(scene, {"producer_byte_rate": 100.0}, user=ANONYMOUS) == 0
        throttled = [await send() for _ in range(3)]
        assert max(throttled) > 5000
        assert not is_short()
        assert await alter(scene, {"producer_byte_rate": None}, user=ANONYMOUS) == 0
        assert [await send() for _ in range(3)] == [0, 0, 0]
        assert is_short()

    perform(play)


def test_records_without_an_answer_count_and_mute() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        assert await alter(scene, {"producer_byte_rate": 100.0}, user=ANONYMOUS) == 0
        client = await scene.connect()
        started = steady_s(scene)
        await client.send(produce(topic, one_batch(b"x" * 3000), acks=0), 9)
        await client.call(metadata(topic), 9)
        assert steady_s(scene) - started > 15
        assert await scene.values(topic) == [b"x" * 3000]

    perform(play)


def test_requests_that_arrived_together_are_taken_one_by_one_and_none_is_lost() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        assert await alter(scene, {"producer_byte_rate": 1000.0}, user=ANONYMOUS) == 0
        client = await scene.connect()
        requests = [produce(topic, one_batch(b"%d" % number + b"x" * 5000)) for number in range(6)]
        answers = await client.call_together(requests, 9, pause_s=lambda: 0.0, timeout_s=600)
        offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
        assert offsets == list(range(6))
        assert any(answer.throttle_time_ms for answer in answers)

    perform(play)


def test_a_consumer_over_its_quota_gets_nothing_for_a_time_and_everything_in_the_end() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        for number in range(20):
            await scene.ask(produce(topic, one_batch(b"%d" % number + b"x" * 5000)), 9)
        assert await alter(scene, {"consumer_byte_rate": 2000.0}, user=ANONYMOUS) == 0
        client = await scene.connect()
        offset, throttled_count, started = 0, 0, steady_s(scene)
        while offset < 20:
            answer = await client.call(fetch(topic, offset, max_bytes=1 << 20), 11, timeout_s=600)
            throttled_count += answer.throttle_time_ms > 0
            if not answer.responses:
                assert answer.throttle_time_ms > 0
                assert answer.session_id == 0
                continue
            size = len(bytes(answer.responses[0].partitions[0].records))
            assert 0 < size <= 20_000, "no more than the windows give at once"
            offset += size // 5000
        assert throttled_count
        assert 30 < steady_s(scene) - started < 120, "100 kB at 2 kB per second, of which 20 kB at once"

    perform(play)


def test_a_batch_larger_than_the_quota_gives_at_once_is_sent_and_waited_for_afterwards() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        for number in range(2):
            await scene.ask(produce(topic, one_batch(b"%d" % number + b"x" * 50_000)), 9)
        assert await alter(scene, {"consumer_byte_rate": 1000.0}, user=ANONYMOUS) == 0
        client = await scene.connect()
        for offset in range(2):
            records = b""
            while not records:
                answer = await client.call(fetch(topic, offset), 11, timeout_s=600)
                records = bytes(answer.responses[0].partitions[0].records) if answer.responses else b""
            assert answer.throttle_time_ms > 30_000

    perform(play)


def test_what_a_consumer_was_not_sent_is_not_counted() -> None:
    quotas = ClientQuotas(BrokerConfig(), lambda: 5)
    quotas.take(NO_LIMITS.replaced({entity_of([("user", "alice")]): {"consumer_byte_rate": 100.0}}))
    limits = quotas.of("User:alice", "any")
    assert limits is not None
    assert RequestQuota(limits, 0).may_fetch(900)
    for _ in range(3):
        request = RequestQuota(limits, 0)
        assert not request.may_fetch(500)
        assert request.throttle_ms == 4000, "400 bytes too many, however often they are asked for"
    assert RequestQuota(limits, 0).may_fetch(100)


def test_a_session_of_fetches_survives_being_throttled() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        for number in range(3):
            await scene.ask(produce(topic, one_batch(b"%d" % number + b"x" * 8000)), 9)
        assert await alter(scene, {"consumer_byte_rate": 1000.0}, user=ANONYMOUS) == 0
        client = await scene.connect()
        first = await client.call(fetch(topic, 0, session_epoch=0, partition_max_bytes=8000), 11, timeout_s=600)
        assert first.session_id
        throttled_count = 0
        for epoch in itertools.count(1):
            again = fetch(topic, 1, session_id=first.session_id, session_epoch=epoch, partition_max_bytes=8000)
            answer = await client.call(again, 11, timeout_s=600)
            assert answer.session_id == first.session_id
            if answer.responses:
                break
            assert answer.throttle_time_ms > 0
            throttled_count += 1
        assert throttled_count
        assert len(bytes(answer.responses[0].partitions[0].records)) > 8000

    perform(play)


# -- time --------------------------------------------------------------------------------------------------------------


def test_the_time_of_requests_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(0, 300_000_000)

    async def play(scene: Scene) -> None:
        assert await alter(scene, {"request_percentage": 1.0}, client_id="wire") == 0
        client = await scene.connect()
        monkeypatch.setattr("ottla.broker.dispatch.time.perf_counter_ns", lambda: next(ticks))
        throttled = [(await client.call(metadata(), 9)).throttle_time_ms for _ in range(3)]
        monkeypatch.undo()
        assert max(throttled) == 1000, "never more than a window"

    perform(play)


# -- changes of the cluster --------------------------------------------------------------------------------------------


def test_whoever_changes_too_much_is_refused_by_newer_versions_and_delayed_by_older_ones() -> None:
    async def play(scene: Scene) -> None:
        assert await alter(scene, {"controller_mutation_rate": 1.0}, user=ANONYMOUS) == 0
        client = await scene.connect()
        topics = [creatable(name, partitions=10) for name in ("a", "b", "c")]
        checked = await client.call(CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=True), 7)
        assert not any(topic.error_code for topic in checked.topics), "only what is done is charged"
        started = steady_s(scene)
        answer = await client.call(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
        codes = {topic.name: topic.error_code for topic in answer.topics}
        assert codes == {"a": 0, "b": 0, "c": ErrorCode.THROTTLING_QUOTA_EXCEEDED}, "eleven at once, and once more"
        assert 8000 < answer.throttle_time_ms <= 9000
        more = CreatePartitionsTopic(name="a", count=12, assignments=None)
        request = CreatePartitionsRequest(topics=[more], timeout_ms=1000, validate_only=False)
        grown = await client.call(request, 2)
        assert steady_s(scene) - started >= answer.throttle_time_ms / 1000
        assert grown.results[0].error_code == 0
        assert grown.throttle_time_ms > 0, "an older version is carried out, and waits afterwards"
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="b", topic_id=ZERO_UUID)], timeout_ms=1000)
        other = await scene.connect()
        refused = await other.call(gone, 6)
        assert refused.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        await asyncio.sleep(10)
        assert (await (await scene.connect()).call(gone, 6)).responses[0].error_code == 0

    perform(play)


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_what_is_measured_is_bounded_and_forgotten_when_idle() -> None:
    now_ms = 0
    quotas = ClientQuotas(BrokerConfig(), lambda: now_ms)
    quotas.take(NO_LIMITS.replaced({entity_of([("client-id", None)]): {"producer_byte_rate": 10.0}}))
    for number in range(METERS_MAX + 1000):
        quotas.of("User:alice", f"client-{number}")
    assert quotas.meter_count == METERS_MAX
    assert len(quotas._known) <= METERS_MAX
    now_ms = IDLE_MS_MAX + 1
    limits = quotas.of("User:alice", "new")
    assert limits is not None
    assert limits.produce is not None
    limits.produce.record(5)
    asyncio.run(quotas.expire())
    assert quotas.meter_count == 1


def test_a_broker_without_quotas_measures_nobody() -> None:
    async def play(scene: Scene) -> None:
        await scene.new_topic()
        await scene.ask(produce("t", one_batch(b"x")), 9)
        assert scene.broker.dispatcher.quotas is None
        assert scene.broker.quotas.meter_count == 0

    perform(play)


def test_a_connection_that_is_muted_does_not_hold_up_the_end_of_the_broker() -> None:
    async def play(scene: Scene) -> None:
        topic = await scene.new_topic()
        assert await alter(scene, {"producer_byte_rate": 1.0}, user=ANONYMOUS) == 0
        client = await scene.connect()
        assert (await client.call(produce(topic, one_batch(b"x" * 5000)), 9)).throttle_time_ms > 1_000_000
        started = steady_s(scene)
        await scene.process.stop()
        assert steady_s(scene) - started < 5
        await scene.process.start()
        client.close()

    perform(play)


def test_the_audit_log_says_who_changed_which_quota(caplog: pytest.LogCaptureFixture) -> None:
    async def play(scene: Scene) -> None:
        with caplog.at_level("INFO", "kafka.authorizer.logger"):
            assert await alter(scene, {"producer_byte_rate": 1024.0, "request_percentage": None}, user="alice") == 0
            assert await alter(scene, {"producer_byte_rate": 1.0}, user="alice", validate_only=True) == 0
        (line,) = caplog.messages
        assert "'User:ANONYMOUS'" in line
        assert "user alice: producer_byte_rate=1024, request_percentage removed" in line

    perform(play)


# -- features and registrations ----------------------------------------------------------------------------------------


def test_features_stay_as_they_are() -> None:
    async def play(scene: Scene) -> None:
        async def update(level: int, feature: str = "group.version", version: int = 2) -> tuple[int, str | None]:
            change = FeatureUpdateKey(feature=feature, max_version_level=level)
            answer = await scene.ask(UpdateFeaturesRequest(feature_updates=[change]), version)
            return answer.error_code, answer.error_message

        assert await update(1) == (0, None)
        assert await update(1, version=0) == (0, None)
        for level, feature in ((0, "group.version"), (2, "group.version"), (1, "colour.version")):
            code, message = await update(level, feature)
            assert code == ErrorCode.INVALID_UPDATE_VERSION
            assert message is not None
            assert f"Invalid update version {level} for feature {feature}" in message

    perform(play)


def test_a_broker_that_runs_is_not_unregistered() -> None:
    async def play(scene: Scene) -> None:
        unknown = await scene.ask(UnregisterBrokerRequest(broker_id=99), 0)
        assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        itself = await scene.ask(UnregisterBrokerRequest(broker_id=scene.broker.node_id), 0)
        assert itself.error_code == ErrorCode.INVALID_REQUEST
        assert "is running" in itself.error_message

    perform(play)

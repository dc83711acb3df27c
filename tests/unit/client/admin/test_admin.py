"""The admin client and scripted brokers: who is asked, what is tried again, what is returned and what is raised."""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import threading
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

import ottla
from ottla import ConfigResource, OffsetSpec, TopicPartition, aio
from ottla.client.admin.acls import Acl, AclFilter, AclOperation, AclPermission, AclResourceType
from ottla.client.admin.calls import AdminCalls
from ottla.client.admin.configs import ConfigChange, ConfigOperation
from ottla.client.admin.quotas import DEFAULT, QuotaEntity
from ottla.client.admin.topics import CreatedTopic, NewTopic
from ottla.client.admin.users import ScramMechanism
from ottla.client.error_codes import (
    GroupIdNotFoundError,
    NonEmptyGroupError,
    ThrottlingQuotaExceededError,
    TopicAlreadyExistsError,
)
from ottla.client.errors import ClosedError, ForkedError, SettingsError, TimedOutError, UsageError
from ottla.client.metadata import NoBrokerReachableError
from ottla.errors import ApiError, ErrorCode
from ottla.net.client import CannotConnectError
from ottla.protocol.messages.acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.protocol.messages.configs import (
    AlterConfigsResourceResponse,
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.protocol.messages.consumer_groups import DescribedGroup as DescribedConsumerGroup
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.protocol.messages.groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
)
from ottla.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ottla.protocol.messages.topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ottla.testing.loop import run

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def make_admin(network):
    def make_admin(**settings) -> aio.Admin:
        given = {
            "bootstrap_servers": ",".join(str(network.address(node_id)) for node_id in network.brokers or (1,)),
            "default_api_timeout_s": 2,
            "request_timeout_s": 2,
            "retry_backoff_s": 0.001,
            "retry_backoff_max_s": 0.002,
            **settings,
        }
        return aio.Admin(given, connector=network.connector, rng=random.Random(1))

    return make_admin


@pytest.fixture
def ask(make_admin):
    """Runs a call of a client that is closed afterwards."""

    def ask(call, **settings):
        async def main():
            async with make_admin(**settings) as admin:
                return await call(admin)

        return run(main())

    return ask


def creation(*codes: ErrorCode):
    """The codes of one answer after the other, for every topic."""
    left = list(codes)

    def create(request: CreateTopicsRequest, version: int) -> CreateTopicsResponse:
        code = left.pop(0) if len(left) > 1 else left[0]
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, topic_id=UUID(int=9), error_code=code) for topic in request.topics
            ]
        )

    return create


# -- the client --------------------------------------------------------------------------------------------------------


def test_both_clients_have_the_same_calls():
    def calls(kind: type) -> set[str]:
        return {name for name, each in inspect.getmembers(kind, callable) if not name.startswith("_")}

    assert calls(ottla.Admin) == calls(aio.Admin)
    for name in calls(aio.Admin) - {"close"}:
        assert inspect.iscoroutinefunction(getattr(aio.Admin, name)), name
        assert getattr(ottla.Admin, name).__doc__, name


def test_every_call_has_a_deadline():
    for kind in aio.Admin.__mro__:
        if issubclass(kind, AdminCalls) and kind is not AdminCalls:
            for name, call in vars(kind).items():
                if not name.startswith("_"):
                    assert "timeout_s" in inspect.signature(call).parameters, name


def test_a_setting_that_is_unknown_is_refused_with_the_nearest_name():
    with pytest.raises(SettingsError, match="did you mean request_timeout_ms"):
        aio.Admin(bootstrap_servers="127.0.0.1:9092", request_timeout_msec=1)


def test_a_closed_client_refuses_calls(make_admin, network):
    network.add(1)

    async def main():
        admin = make_admin()
        async with admin:
            await admin.list_topics()
        with pytest.raises(ClosedError, match="the admin client is closed"):
            await admin.list_topics()
        await admin.close()

    run(main())


def test_a_blocking_client_serves_threads_and_refuses_after_close_and_fork(network):
    network.add(1)
    with ottla.Admin(bootstrap_servers="broker:9001", connector=network.connector) as admin:
        found = []
        threads = [threading.Thread(target=lambda: found.append(admin.list_topics())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [["orders"]] * 4
        child = os.fork()
        if not child:
            try:
                admin.list_topics()
            except ForkedError:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(ClosedError):
        admin.list_topics()
    admin.close()
    assert not any("ottla-admin" in thread.name for thread in threading.enumerate())


def test_no_broker_at_all_is_told_with_the_cause_of_each_address(network, make_admin):
    async def main():
        admin = make_admin(bootstrap_servers="broker:9001,broker:9002")
        try:
            with pytest.raises(NoBrokerReachableError) as caught:
                await admin.start(0)
            assert [str(failure.address) for failure in caught.value.failures] == ["broker:9001", "broker:9002"]
            assert str(caught.value).count("connection refused") == 2
            with pytest.raises(TimedOutError, match=r"given up after 0\.05 s: no broker can be reached"):
                await admin.start(0.05)
        finally:
            await admin.close()

    run(main())


def test_the_first_connection_is_tried_again_until_a_broker_is_there(network, make_admin):
    broker = network.add(1)
    broker.is_down = True

    async def main():
        asyncio.get_running_loop().call_later(0.02, lambda: setattr(broker, "is_down", False))
        async with make_admin() as admin:
            assert await admin.list_topics() == ["orders"]

    run(main())


def test_without_patience_the_cause_is_raised_as_it_is(network, make_admin):
    async def main():
        admin = make_admin()
        try:
            with pytest.raises(CannotConnectError):
                await admin.start(0)
        finally:
            await admin.close()

    run(main())


def test_a_call_ends_with_its_own_timeout_even_if_nobody_answers(network, make_admin):
    network.add(1).scripts[MetadataRequest] = lambda request, version: None

    async def main():
        async with make_admin() as admin:
            with pytest.raises(TimedOutError, match=r"given up after 0\.02 s"):
                await admin.list_topics(timeout_s=0.02)

    run(main())


def test_retries_can_be_limited(network, ask):
    broker = network.add(1)
    broker.scripts[CreateTopicsRequest] = creation(ErrorCode.NOT_CONTROLLER)
    with pytest.raises(ApiError) as caught:
        ask(lambda admin: admin.create_topic("orders"), retries=3)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    assert len(broker.requests(CreateTopicsRequest)) == 4


# -- topics ------------------------------------------------------------------------------------------------------------


def test_a_change_follows_the_controller(network, ask):
    first, second = network.add(1), network.add(2)
    first.scripts[CreateTopicsRequest] = creation(ErrorCode.NOT_CONTROLLER)
    second.scripts[CreateTopicsRequest] = creation(ErrorCode.NONE)

    def metadata(request: MetadataRequest, version: int) -> object:
        response = network.metadata(request, version)
        response.controller_id = 2 if first.requests(CreateTopicsRequest) else 1
        return response

    for broker in (first, second):
        broker.scripts[MetadataRequest] = metadata
    assert ask(lambda admin: admin.create_topic("orders", partitions=2)).name == "orders"
    assert len(first.requests(CreateTopicsRequest)) == 1
    assert second.requests(CreateTopicsRequest)[0].topics[0].num_partitions == 2


def test_one_topic_raises_and_several_have_their_outcomes(network, ask):
    broker = network.add(1)

    def create(request: CreateTopicsRequest, version: int) -> CreateTopicsResponse:
        codes = {"orders": ErrorCode.NONE, "taken": ErrorCode.TOPIC_ALREADY_EXISTS}
        return CreateTopicsResponse(
            topics=[CreatableTopicResult(name=each.name, error_code=codes[each.name]) for each in request.topics]
        )

    broker.scripts[CreateTopicsRequest] = create
    with pytest.raises(TopicAlreadyExistsError, match="the topic taken"):
        ask(lambda admin: admin.create_topic("taken"))
    outcomes = ask(lambda admin: admin.create_topics([NewTopic("orders"), NewTopic("taken")]))
    assert isinstance(outcomes["orders"], CreatedTopic)
    assert isinstance(outcomes["taken"], TopicAlreadyExistsError)


def test_only_what_a_quota_held_back_is_asked_for_again(network, ask):
    broker = network.add(1)
    throttled = {"orders": 2}

    def create(request: CreateTopicsRequest, version: int) -> CreateTopicsResponse:
        results = []
        for topic in request.topics:
            code = ErrorCode.NONE
            if throttled.get(topic.name, 0):
                throttled[topic.name] -= 1
                code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            results.append(CreatableTopicResult(name=topic.name, error_code=code))
        return CreateTopicsResponse(topics=results)

    broker.scripts[CreateTopicsRequest] = create
    outcomes = ask(lambda admin: admin.create_topics([NewTopic("orders"), NewTopic("bills")], validate_only=True))
    assert all(isinstance(each, CreatedTopic) for each in outcomes.values())
    asked = [[topic.name for topic in request.topics] for request in broker.requests(CreateTopicsRequest)]
    assert asked == [["orders", "bills"], ["orders"], ["orders"]]


def test_a_quota_that_never_lets_go_is_the_outcome(network, ask):
    network.add(1).scripts[CreateTopicsRequest] = creation(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    with pytest.raises(ThrottlingQuotaExceededError):
        ask(lambda admin: admin.create_topic("orders", timeout_s=0.01))


def test_topics_are_deleted_by_name_and_by_id(network, ask):
    broker = network.add(1)
    gone, unknown = UUID(int=5), UUID(int=6)

    def delete(request: DeleteTopicsRequest, version: int) -> DeleteTopicsResponse:
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(
                    name=each.name,
                    topic_id=each.topic_id if each.name is None else UUID(int=1),
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID if each.topic_id == unknown else ErrorCode.NONE,
                )
                for each in request.topics
            ]
        )

    broker.scripts[DeleteTopicsRequest] = delete
    outcomes = ask(lambda admin: admin.delete_topics(["orders", gone, unknown]))
    assert outcomes["orders"] is None
    assert outcomes[gone] is None
    assert isinstance(outcomes[unknown], ApiError)
    assert outcomes[unknown].code is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_topic_is_waited_for_until_every_broker_knows_it_and_it_has_leaders(network, ask):
    first, second = network.add(1), network.add(2)
    network.leaders = [1, -1]

    def metadata_of_second(request: MetadataRequest, version: int) -> object:
        response = network.metadata(request, version)
        if len(second.requests(MetadataRequest)) < 3 and request.topics:
            response.topics[0].error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            response.topics[0].partitions = []
        elif request.topics:
            network.leaders = [1, 2]
        return response

    second.scripts[MetadataRequest] = metadata_of_second
    topic = ask(lambda admin: admin.wait_for_topic("orders", partitions=2))
    assert [each.leader_id for each in topic.partitions] == [1, 2]
    assert len(second.requests(MetadataRequest)) >= 3
    assert first.requests(MetadataRequest)
    with pytest.raises(TimedOutError, match=r"waiting for the topic orders: given up .* has 2 partitions, not yet 3"):
        ask(lambda admin: admin.wait_for_topic("orders", partitions=3, timeout_s=0.02))


# -- settings ----------------------------------------------------------------------------------------------------------


def test_settings_of_a_broker_are_asked_of_that_broker(network, ask):
    first, second = network.add(1), network.add(2)

    def describe(request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    configs=[
                        DescribeConfigsResourceResult(
                            name="retention.ms", value="7", read_only=False, is_sensitive=False, config_source=1
                        )
                    ],
                )
                for each in request.resources
            ]
        )

    def alter(request: IncrementalAlterConfigsRequest, version: int) -> IncrementalAlterConfigsResponse:
        return IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(resource_type=each.resource_type, resource_name=each.resource_name)
                for each in request.resources
            ]
        )

    for broker in (first, second):
        broker.scripts[DescribeConfigsRequest] = describe
        broker.scripts[IncrementalAlterConfigsRequest] = alter
    wanted = [ConfigResource.topic("orders"), ConfigResource.broker(2), ConfigResource.all_brokers()]
    found = ask(lambda admin: admin.describe_configs(wanted))
    assert [found[each]["retention.ms"].value for each in wanted] == ["7", "7", "7"]
    assert [each.resource_name for each in second.requests(DescribeConfigsRequest)[0].resources] == ["2"]

    changes = {
        ConfigResource.topic("orders"): {"retention.ms": "8", "cleanup.policy": None},
        ConfigResource.broker(2): [ConfigChange("listeners", ConfigOperation.APPEND, "x")],
    }
    assert ask(lambda admin: admin.alter_configs(changes)) == dict.fromkeys(changes)
    sent = [
        (each.name, each.config_operation, each.value)
        for broker in (first, second)
        for request in broker.requests(IncrementalAlterConfigsRequest)
        for resource in request.resources
        for each in resource.configs
    ]
    assert sent == [("retention.ms", 0, "8"), ("cleanup.policy", 1, None), ("listeners", 2, "x")]


# -- partitions --------------------------------------------------------------------------------------------------------


def offsets(network, node_id: int, ends: dict[int, int]):
    """Ends by partition; a start of 10 everywhere, and no record after the time 5000."""

    def listed(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        def answer(partition) -> ListOffsetsPartitionResponse:
            number = partition.partition_index
            if network.leaders[number] != node_id:
                code, offset = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
            else:
                code = ErrorCode.NONE
                places = {OffsetSpec.LATEST: ends[number], OffsetSpec.EARLIEST: 10}
                offset = places.get(partition.timestamp, 15 if partition.timestamp <= 5000 else -1)
            return ListOffsetsPartitionResponse(partition_index=number, error_code=code, offset=offset)

        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(name=topic.name, partitions=list(map(answer, topic.partitions)))
                for topic in request.topics
            ]
        )

    return listed


def test_offsets_come_from_the_leaders_with_errors_beside_what_went_well(network, ask):
    network.leaders = [1, 2]
    for node_id in (1, 2):
        network.add(node_id).scripts[ListOffsetsRequest] = offsets(network, node_id, {0: 20, 1: 30})
    places = {ORDERS: OffsetSpec.LATEST, TopicPartition("orders", 1): OffsetSpec.LATEST}
    wrong = {TopicPartition("odrers", 0): OffsetSpec.LATEST, TopicPartition("orders", 9): OffsetSpec.LATEST}
    found = ask(lambda admin: admin.list_offsets(places | wrong))
    assert [found[each].offset for each in places] == [20, 30]
    assert all(isinstance(found[each], ApiError) for each in wrong)
    assert [found[each].code for each in wrong] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


# -- groups ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def group_broker(network):
    """A broker that coordinates the idle group `billing`, which has committed 12 in orders-0."""
    broker = network.add(1)
    network.leaders = [1, 1]
    state: dict[str, Any] = {"members": [], "committed": {0: 12}}

    def find(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(node_id=1, host="broker", port=9001)

    def describe_consumer(request, version: int) -> ConsumerGroupDescribeResponse:
        group = DescribedConsumerGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            group_id=request.group_ids[0],
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=[],
        )
        return ConsumerGroupDescribeResponse(groups=[group])

    def describe(request: DescribeGroupsRequest, version: int) -> DescribeGroupsResponse:
        is_there = request.groups[0] == "billing"
        group = DescribedGroup(
            group_id=request.groups[0],
            group_state="Stable" if is_there and state["members"] else "Empty" if is_there else "Dead",
            protocol_type="consumer",
            protocol_data="range",
            members=state["members"] if is_there else [],
        )
        return DescribeGroupsResponse(groups=[group])

    def fetch(request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        partitions = [
            OffsetFetchResponsePartition(partition_index=number, committed_offset=offset, metadata="")
            for number, offset in state["committed"].items()
        ]
        topics = [OffsetFetchResponseTopic(name="orders", partitions=partitions)] if partitions else []
        return OffsetFetchResponse(topics=topics)

    def commit(request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
        for topic in request.topics:
            state["committed"] |= {each.partition_index: each.committed_offset for each in topic.partitions}
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=each.partition_index) for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    broker.scripts |= {
        FindCoordinatorRequest: find,
        ConsumerGroupDescribeRequest: describe_consumer,
        DescribeGroupsRequest: describe,
        OffsetFetchRequest: fetch,
        OffsetCommitRequest: commit,
        ListOffsetsRequest: offsets(network, 1, {0: 20, 1: 30}),
    }
    broker.state = state
    return broker


def test_the_lag_of_a_group_is_what_it_has_not_read_yet(group_broker, ask):
    found = ask(lambda admin: admin.lag("billing"))
    assert list(found) == [ORDERS]
    assert (found[ORDERS].committed.offset, found[ORDERS].end_offset, found[ORDERS].lag) == (12, 20, 8)


def test_a_group_that_is_not_there_is_an_error_for_one_and_an_outcome_for_several(group_broker, ask):
    with pytest.raises(GroupIdNotFoundError, match="the group strangers does not exist"):
        ask(lambda admin: admin.describe_group("strangers"))
    outcomes = ask(lambda admin: admin.describe_groups(["billing", "strangers"]))
    assert outcomes["billing"].state == "Empty"
    assert isinstance(outcomes["strangers"], GroupIdNotFoundError)


@pytest.mark.parametrize(
    ("how", "after"),
    [
        ({"to": "earliest"}, {0: 10}),
        ({"to": "latest"}, {0: 20}),
        ({"to": 14}, {0: 14}),
        ({"to": 400}, {0: 20}),
        ({"to": timedelta(days=40000)}, {0: 15}),
        ({"to": timedelta(0)}, {0: 20}),
        ({"shift_by": -1}, {0: 11}),
        ({"shift_by": -100}, {0: 10}),
        ({"offsets": {TopicPartition("orders", 1): 25}}, {1: 25}),
        ({"to": "earliest", "topics": ["orders"]}, {0: 10, 1: 10}),
        ({"to": "latest", "partitions": [TopicPartition("orders", 1)]}, {1: 30}),
    ],
)
def test_offsets_are_reset(group_broker, ask, how, after):
    planned = ask(lambda admin: admin.reset_offsets("billing", dry_run=True, **how))
    assert group_broker.state["committed"] == {0: 12}
    done = ask(lambda admin: admin.reset_offsets("billing", **how))
    assert planned == done
    assert {partition.partition: reset.after for partition, reset in done.items()} == after
    assert {partition.partition: reset.before for partition, reset in done.items()} == {
        number: {0: 12}.get(number) for number in after
    }
    assert group_broker.state["committed"] == {0: 12} | after


def test_offsets_are_not_reset_under_a_living_member_or_without_a_place(group_broker, ask):
    with pytest.raises(UsageError, match="give one of to, shift_by and offsets"):
        ask(lambda admin: admin.reset_offsets("billing"))
    with pytest.raises(UsageError, match="no committed offset in orders-1 to shift"):
        ask(lambda admin: admin.reset_offsets("billing", shift_by=1, topics=["orders"]))
    group_broker.state["members"] = [
        DescribedGroupMember(member_id="m", client_id="c", client_host="/h", member_metadata=b"", member_assignment=b"")
    ]
    with pytest.raises(NonEmptyGroupError, match="has 1 member, which would continue"):
        ask(lambda admin: admin.reset_offsets("billing", to="earliest"))
    assert not group_broker.requests(OffsetCommitRequest)


def test_groups_are_listed_by_every_broker_and_a_broker_that_fails_is_not_left_out(network, ask):
    for node_id in (1, 2):
        network.add(node_id).scripts[ListGroupsRequest] = lambda request, version, name=f"group-{node_id}": (
            ListGroupsResponse(groups=[ListedGroup(group_id=name, protocol_type="consumer")])
        )
    assert [each.group_id for each in ask(lambda admin: admin.list_groups())] == ["group-1", "group-2"]
    network.brokers[2].scripts[ListGroupsRequest] = lambda request, version: ListGroupsResponse(
        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, groups=[]
    )
    with pytest.raises(ApiError, match="the groups of broker 2"):
        ask(lambda admin: admin.list_groups())


def test_where_a_broker_leaves_while_all_are_asked_they_are_asked_again(network, ask):
    for node_id in (1, 2):
        network.add(node_id).scripts[ListGroupsRequest] = lambda request, version, name=f"group-{node_id}": (
            ListGroupsResponse(groups=[ListedGroup(group_id=name, protocol_type="consumer")])
        )
    leaving = network.brokers[2]

    def metadata(request: MetadataRequest, version: int) -> object:
        answer = network.metadata(request, version)
        if len(network.brokers[1].requests(MetadataRequest)) == 1:
            network.brokers.pop(2)  # its groups are at the other one now
            network.brokers[1].scripts[ListGroupsRequest] = lambda request, version: ListGroupsResponse(
                groups=[ListedGroup(group_id=name, protocol_type="consumer") for name in ("group-1", "group-2")]
            )
        return answer

    network.brokers[1].scripts[MetadataRequest] = metadata
    assert [each.group_id for each in ask(lambda admin: admin.list_groups())] == ["group-1", "group-2"]
    assert not leaving.requests(ListGroupsRequest)


# -- rules, quotas, users ----------------------------------------------------------------------------------------------


def test_rules_are_created_and_deleted_with_an_outcome_each(network, ask):
    broker = network.add(1)
    rule = Acl(AclResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)
    denied = Acl(AclResourceType.GROUP, "g", "User:bob", AclOperation.READ, AclPermission.DENY)

    def create(request: CreateAclsRequest, version: int) -> CreateAclsResponse:
        codes = {"orders": ErrorCode.NONE, "g": ErrorCode.SECURITY_DISABLED}
        return CreateAclsResponse(
            results=[AclCreationResult(error_code=codes[each.resource_name]) for each in request.creations]
        )

    def delete(request: DeleteAclsRequest, version: int) -> DeleteAclsResponse:
        found = DeleteAclsMatchingAcl(
            resource_type=2,
            resource_name="orders",
            principal="User:alice",
            host="*",
            operation=3,
            permission_type=3,
        )
        return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(matching_acls=[found])])

    broker.scripts |= {CreateAclsRequest: create, DeleteAclsRequest: delete}
    outcomes = ask(lambda admin: admin.create_acls([rule, denied]))
    assert outcomes[rule] is None
    assert str(outcomes[denied]).startswith("SECURITY_DISABLED") or "deny User:bob read on group g" in str(
        outcomes[denied]
    )
    everything = AclFilter(resource_name="orders")
    assert ask(lambda admin: admin.delete_acls([everything])) == {everything: [rule]}


def test_quotas_are_set_and_taken_away(network, ask):
    broker = network.add(1)

    def alter(request: AlterClientQuotasRequest, version: int) -> AlterClientQuotasResponse:
        return AlterClientQuotasResponse(
            entries=[AlterClientQuotasResponseEntryData(entity=each.entity) for each in request.entries]
        )

    broker.scripts[AlterClientQuotasRequest] = alter
    entity = QuotaEntity(user="alice", client_id=DEFAULT)
    ask(lambda admin: admin.alter_client_quota(entity, {"producer_byte_rate": 1e6, "consumer_byte_rate": None}))
    (sent,) = broker.requests(AlterClientQuotasRequest)[0].entries
    assert [(each.entity_type, each.entity_name) for each in sent.entity] == [("user", "alice"), ("client-id", None)]
    assert [(each.key, each.value, each.remove) for each in sent.ops] == [
        ("producer_byte_rate", 1e6, False),
        ("consumer_byte_rate", 0.0, True),
    ]
    with pytest.raises(UsageError, match="belongs to a user"):
        ask(lambda admin: admin.alter_client_quota(QuotaEntity(), {"producer_byte_rate": 1}))


def test_a_password_does_not_leave_the_client(network, ask):
    broker = network.add(1)
    broker.scripts[AlterUserScramCredentialsRequest] = lambda request, version: AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(user="alice")]
    )
    ask(lambda admin: admin.set_password("alice", "secret", ScramMechanism.SCRAM_SHA_512))
    (sent,) = broker.requests(AlterUserScramCredentialsRequest)[0].upsertions
    assert (sent.name, sent.mechanism, sent.iterations) == ("alice", 2, 4096)
    assert len(sent.salt) == 16
    assert len(sent.salted_password) == 64
    assert b"secret" not in bytes(sent.salted_password) + bytes(sent.salt)

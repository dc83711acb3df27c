"""A group that changes its protocol while it is in use, in both directions, member by member."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.codec import decode, encode
from ottla.protocol.messages.embedded import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

OK = ErrorCode.NONE
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


@pytest.fixture
def driver(make_driver: Callable[..., Any]) -> Any:
    driver = make_driver(consumer_assignment_interval_ms=0)
    driver.create_topics(a=4)
    return driver


def metadata(owned: dict[str, set[int]] | None = None) -> dict[str, bytes]:
    subscription = ConsumerProtocolSubscription(
        topics=["a"],
        owned_partitions=[
            TopicPartition(topic=topic, partitions=sorted(found)) for topic, found in (owned or {}).items()
        ],
    )
    return {"cooperative-sticky": b"\0\3" + encode(subscription, 3)}


def assignment(*partitions: int) -> bytes:
    return b"\0\3" + encode(
        ConsumerProtocolAssignment(assigned_partitions=[TopicPartition(topic="a", partitions=list(partitions))]), 3
    )


def read(assigned: bytes) -> set[int]:
    found = decode(ConsumerProtocolAssignment, assigned, 0, 2)
    return {partition for topic in found.assigned_partitions for partition in topic.partitions}


def classic_group(driver: Any, *instances: str) -> list[str]:
    """Two classic members that share the topic."""
    tickets = []
    for instance in instances or (None, None):
        driver.join(version=3 if instance is None else 9, protocols=metadata(), instance=instance)
        tickets.append(driver.ticket)
    driver.pass_time(6000)
    members = [driver.replies[ticket].member_id for ticket in tickets]
    shares = {members[0]: assignment(0, 1), members[1]: assignment(2, 3)}
    for member, instance in zip(members, instances or (None, None), strict=True):
        driver.sync(member, 1, shares, instance=instance, protocol_name="cooperative-sticky")
    return members


def kind(driver: Any) -> str:
    return str(driver.list_groups()["g"][2])


def rejoin(driver: Any, member: str, **join: Any) -> Any:
    owned = has(driver, member)
    reply = driver.join(member, protocols=metadata({"a": owned}), **join)
    driver.sync(member, reply.generation_id, protocol_name="cooperative-sticky", instance=join.get("instance"))
    return reply


def has(driver: Any, member: str) -> set[int]:
    return {index for found in driver.machine.group("g").members[member].assigned.values() for index in found}


def settle(driver: Any, classic: list[str], consumers: list[str]) -> None:
    """Heartbeats of all members until the group is stable."""
    for _ in range(10):
        group = driver.machine.group("g")
        if group.state_name == "Stable":
            return
        for member in classic:
            if driver.heartbeat(member, group.members[member].epoch) == REBALANCE:
                rejoin(driver, member)
        for member in consumers:
            owned = has(driver, member)
            driver.beat(member, group.members[member].epoch, owned={"a": owned} if owned else {})
    raise AssertionError("the group does not become stable")


def test_a_member_of_the_new_protocol_makes_a_classic_group_a_consumer_group(driver: Any) -> None:
    first, second = classic_group(driver)
    reply = driver.start("m3")
    assert (kind(driver), reply.member_epoch) == ("consumer", 2)
    assert (has(driver, first), has(driver, second), has(driver, "m3")) == ({0, 1}, {2, 3}, set())
    assert driver.heartbeat(first, 1) == REBALANCE
    settle(driver, [first, second], ["m3"])
    shares = [has(driver, member) for member in (first, second, "m3")]
    assert sorted(index for share in shares for index in share) == [0, 1, 2, 3]
    assert all(shares)
    assert [each.member_type for each in driver.describe_consumer().members] == [0, 0, 1]


def test_classic_members_are_told_their_assignments_in_their_own_words(driver: Any) -> None:
    first, second = classic_group(driver)
    driver.start("m3")
    settle(driver, [first, second], ["m3"])
    epoch = driver.machine.group("g").members[first].epoch
    assigned = driver.sync(first, epoch, protocol_name="cooperative-sticky")
    assert read(assigned) == has(driver, first)
    assert driver.heartbeat(first, epoch) == OK
    assert driver.commit({("a", 0): 7}, member=first, generation=epoch, version=7) == [OK]
    assert driver.commit({("a", 0): 7}, member=first, generation=99) == [ErrorCode.ILLEGAL_GENERATION]


def test_requests_of_classic_members_are_refused_by_what_is_wrong(driver: Any) -> None:
    first, _ = classic_group(driver)
    driver.start("m3")
    assert driver.heartbeat("m3", 2) == UNKNOWN  # it does not speak the classic protocol
    assert driver.heartbeat(first, 7) == ErrorCode.ILLEGAL_GENERATION
    assert driver.sync("stranger", 1) == UNKNOWN
    assert driver.sync(first, 7, protocol_name="cooperative-sticky") == ErrorCode.ILLEGAL_GENERATION
    assert driver.sync(first, 1, protocol_name="range") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.sync(first, 1, protocol_name="cooperative-sticky") == REBALANCE  # it must join first
    assert driver.join(protocols={"range": b"\0\0"}) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.join(protocols={"cooperative-sticky": b"\0"}, version=3) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.join(protocol_type="connect") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.leave("stranger") == [UNKNOWN]


def test_a_new_classic_member_joins_a_consumer_group(driver: Any) -> None:
    driver.start("m1")
    assert driver.join(protocols=metadata()) == ErrorCode.MEMBER_ID_REQUIRED
    member = driver.given_id
    reply = driver.join(member, protocols=metadata())
    assert (reply.generation_id, reply.leader, reply.members) == (3, "", [])
    assert driver.sync(member, 3, protocol_name="cooperative-sticky") is not None
    settle(driver, [member], ["m1"])
    assert len(has(driver, member)) == len(has(driver, "m1")) == 2


def test_parked_members_are_sent_back_when_the_group_changes(driver: Any) -> None:
    driver.join(version=3, protocols=metadata())
    joining = driver.ticket
    reply = driver.start("m3")
    assert driver.replies[joining] == REBALANCE
    assert (kind(driver), reply.member_epoch) == ("consumer", 1)


def test_a_group_that_may_not_change_stays_classic(make_driver: Callable[..., Any]) -> None:
    driver = make_driver(consumer_migration_policy="downgrade")
    driver.create_topics(a=4)
    first, _ = classic_group(driver)
    assert driver.start("m3") == ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.heartbeat(first, 1) == OK


def test_a_group_of_another_kind_stays_classic(driver: Any) -> None:
    driver.join_together(1, protocol_type="connect", protocols={"v1": b""})
    assert driver.start("m3") == ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.beat("m3", 1) == ErrorCode.GROUP_ID_NOT_FOUND
    assert kind(driver) == "classic"


def test_a_refused_heartbeat_leaves_the_classic_group_as_it_was(driver: Any) -> None:
    first, second = classic_group(driver)
    driver.join(first, protocols=metadata())
    parked = driver.ticket
    assert driver.start("m3", regex="(") == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert parked not in driver.replies
    assert driver.join(second, protocols=metadata()).generation_id == 2
    assert driver.replies[parked].generation_id == 2


def test_when_the_last_member_of_the_new_protocol_leaves_the_group_is_classic_again(driver: Any) -> None:
    first, second = classic_group(driver)
    driver.start("m3")
    settle(driver, [first, second], ["m3"])
    shares = {member: has(driver, member) for member in (first, second)}
    driver.beat("m3", -1)
    driver.pass_time(0)
    assert kind(driver) == "classic"
    group = driver.machine.group("g")
    assert (group.state_name, group.generation) == ("PreparingRebalance", 2)
    assert {member: read(group.members[member].assignment) for member in shares} == shares
    driver.join(first, protocols=metadata())
    assert driver.join(second, protocols=metadata()).generation_id == 3
    driver.restart()
    assert kind(driver) == "classic"


def test_a_group_that_may_not_go_back_stays_a_consumer_group(make_driver: Callable[..., Any]) -> None:
    driver = make_driver(consumer_migration_policy="upgrade", consumer_assignment_interval_ms=0)
    driver.create_topics(a=4)
    first, second = classic_group(driver)
    driver.start("m3")
    driver.beat("m3", -1)
    driver.pass_time(0)
    assert kind(driver) == "consumer"
    settle(driver, [first, second], [])


def test_a_static_member_moves_to_the_new_protocol_and_back(driver: Any) -> None:
    first, second = classic_group(driver, "i1", "i2")
    share = {0, 1}
    reply = driver.start("m3", instance="i1")
    assert (kind(driver), reply.member_epoch) == ("consumer", 1)
    assert has(driver, "m3") == share
    assert driver.heartbeat(first, 1, instance="i1") == ErrorCode.FENCED_INSTANCE_ID
    assert driver.heartbeat(second, 1, instance="i2") == OK
    reply = driver.join(instance="i1", protocols=metadata({"a": share}))
    assert driver.sync(reply.member_id, reply.generation_id, instance="i1", protocol_name="cooperative-sticky")
    driver.pass_time(0)
    assert kind(driver) == "classic"
    assert driver.beat("m3", 1, instance="i1") == ErrorCode.GROUP_ID_NOT_FOUND
    # Nothing else has changed: nobody has to join again.
    assert driver.machine.group("g").state_name == "Stable"
    assert driver.heartbeat(second, 1, instance="i2") == OK
    assert driver.heartbeat(reply.member_id, 1, instance="i1") == OK
    again = driver.sync(reply.member_id, 1, instance="i1", protocol_name="cooperative-sticky")
    assert read(again) == share


def test_classic_members_leave_a_consumer_group(driver: Any) -> None:
    first, second = classic_group(driver, "i1", "i2")
    driver.start("m3")
    assert driver.leave("", "wrong", instances=("i1", "i2")) == [OK, ErrorCode.FENCED_INSTANCE_ID]
    assert driver.leave(second, instances=("i2",)) == [OK]
    assert list(driver.machine.group("g").members) == ["m3"]
    assert driver.leave(first, version=2) == UNKNOWN
    assert kind(driver) == "consumer"


def test_members_of_the_new_protocol_are_made_to_leave(driver: Any) -> None:
    first, second = classic_group(driver)
    driver.start("m3")
    driver.start("m4", instance="i4")
    driver.start("m5", instance="i5")
    assert driver.leave("m4", "", "m3", instances=("i5", "nobody", "i4")) == [
        ErrorCode.FENCED_INSTANCE_ID,
        UNKNOWN,
        ErrorCode.FENCED_INSTANCE_ID,
    ]
    assert len(driver.machine.group("g").members) == 5
    epoch = driver.machine.group("g").epoch
    assert driver.leave("m3", "", instances=(None, "i4")) == [OK, OK]
    assert set(driver.machine.group("g").members) == {first, second, "m5"}
    assert driver.machine.group("g").epoch == epoch + 1
    assert driver.leave("m5", version=2) == OK
    driver.pass_time(0)
    assert kind(driver) == "classic"


def test_classic_members_do_not_rejoin_while_an_assignment_is_put_off(make_driver: Callable[..., Any]) -> None:
    driver = make_driver(consumer_assignment_interval_ms=15_000)
    driver.create_topics(a=4)
    first, second = classic_group(driver)
    epochs = dict.fromkeys((first, second), 1)
    driver.start("m3")
    driver.start("m4")  # a moment later: its assignment is put off
    group = driver.machine.group("g")
    assert (group.epoch, group.assignment_epoch) == (3, 2)

    def all_beat() -> int:
        """How many of the classic members had to join again."""
        joins = 0
        for member in (first, second):
            if driver.heartbeat(member, epochs[member]) == REBALANCE:
                epochs[member] = rejoin(driver, member).generation_id
                assigned = driver.sync(member, epochs[member], protocol_name="cooperative-sticky")
                assert read(assigned) == has(driver, member), "whoever has joined has its assignment"
                joins += 1
        for member in ("m3", "m4"):
            driver.beat(member, group.members[member].epoch, owned={"a": has(driver, member)})
        driver.pass_time(250)
        return joins

    joins = sum(all_beat() for _ in range(40))
    assert (group.epoch, group.assignment_epoch) == (3, 2)
    assert joins <= 4, "each to give up partitions, and once more to be done with it"
    joins = sum(all_beat() for _ in range(40))
    assert (group.state_name, epochs[first], epochs[second]) == ("Stable", 3, 3)
    assert joins <= 4


def test_a_consumer_group_takes_no_classic_members_where_groups_may_not_change(make_driver: Callable[..., Any]) -> None:
    driver = make_driver(consumer_migration_policy="disabled")
    driver.create_topics(a=4)
    driver.start("m1")
    assert driver.join(version=3, protocols=metadata()) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    driver.beat("m1", -1)
    assert driver.join(version=3, protocols=metadata()) is None


def test_a_static_member_that_goes_back_and_reads_others_leaves_the_assignment_to_the_leader(driver: Any) -> None:
    driver.create_topics(b=2)
    _, second = classic_group(driver, "i1", "i2")
    driver.start("m3", instance="i1")
    others = {"cooperative-sticky": b"\0\0" + encode(ConsumerProtocolSubscription(topics=["a", "b"]), 0)}
    reply = driver.join(instance="i1", protocols=others)
    assert reply.generation_id == 0
    driver.restart()  # the rebalance must not be lost
    driver.pass_time(0)
    assert (kind(driver), driver.machine.group("g").state_name) == ("classic", "PreparingRebalance")
    assert driver.heartbeat(reply.member_id, 0, instance="i1") == ErrorCode.ILLEGAL_GENERATION
    assert driver.heartbeat(second, 1, instance="i2") == REBALANCE
    driver.join(second, instance="i2", protocols=metadata())
    assert driver.join(reply.member_id, instance="i1", protocols=others).generation_id == 2


def test_a_classic_member_that_does_not_rejoin_or_sync_in_time_is_dropped(driver: Any) -> None:
    first, second = classic_group(driver)
    driver.start("m3")
    for _ in range(11):
        driver.heartbeat(first, 1)
        driver.heartbeat(second, 1)
        driver.beat("m3", 2)
        driver.pass_time(5500)
    assert list(driver.machine.group("g").members) == ["m3"]


def test_a_classic_member_that_is_silent_is_dropped(driver: Any) -> None:
    classic_group(driver)
    driver.start("m3")
    driver.pass_time(10_000)
    assert list(driver.machine.group("g").members) == ["m3"]


def test_an_empty_consumer_group_becomes_classic_when_somebody_joins_it_so(driver: Any) -> None:
    driver.start("m1")
    driver.commit({("a", 0): 9}, member="m1", generation=2)
    driver.beat("m1", -1)
    assert driver.join("stranger") == UNKNOWN
    assert kind(driver) == "consumer"
    driver.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.join(version=3, protocols=metadata()) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert kind(driver) == "consumer"
    driver.refuse = None
    assert driver.join(version=3, protocols=metadata()) is None
    ticket = driver.ticket
    assert kind(driver) == "classic"
    driver.pass_time(3000)
    assert driver.replies[ticket].generation_id == 1
    assert driver.fetch() == {("a", 0): 9}
    driver.sync(driver.replies[ticket].member_id, 1, {}, protocol_name="cooperative-sticky")
    driver.restart()
    assert kind(driver) == "classic"


def test_a_migration_that_was_cut_short_goes_on_after_a_load(driver: Any) -> None:
    first, second = classic_group(driver)
    driver.start("m3")
    settle(driver, [first, second], ["m3"])
    driver.beat("m3", -1)
    driver.restart()
    driver.pass_time(0)
    assert kind(driver) == "classic"
    assert driver.machine.group("g").state_name == "PreparingRebalance"


def test_a_rebalance_that_was_cut_short_comes_after_a_load(driver: Any) -> None:
    first, second = classic_group(driver)
    driver.start("m3")
    settle(driver, [first, second], ["m3"])
    driver.beat("m3", -1)
    driver.carry_out(driver.machine.expire(driver.now_ms))  # it is written as a classic group, and nobody was called
    assert (kind(driver), driver.machine.group("g").state_name) == ("classic", "Stable")
    driver.restart()
    assert driver.heartbeat(first, 2) == REBALANCE
    driver.join(first, protocols=metadata())
    reply = driver.join(second, protocols=metadata())
    assert (reply.generation_id, reply.leader) == (3, first)
    shares = {first: assignment(0, 1), second: assignment(2, 3)}
    assert read(driver.sync(first, 3, shares, protocol_name="cooperative-sticky")) == {0, 1}
    driver.restart()
    assert driver.heartbeat(second, 3) == OK


def test_an_upgraded_group_is_loaded_as_one(driver: Any) -> None:
    classic_group(driver)
    driver.start("m3")
    before = driver.machine.group("g")
    driver.restart()
    after = driver.machine.group("g")
    assert (after.members, after.target, after.epoch) == (before.members, before.target, before.epoch)

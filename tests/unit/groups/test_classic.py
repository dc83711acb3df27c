"""Classic groups: joining, syncing, living and leaving, by the states of the group and Kafka's codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.groups.classic_requests import NEW_MEMBER_JOIN_TIMEOUT_MS
from ottla.protocol.coordinator_records import GROUP_RECORDS, decode_value

OK = ErrorCode.NONE
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
DAY_MS = 24 * 60 * 60_000


def state_of(driver: Any, group: str = "g") -> str:
    return str(driver.machine.group(group).state_name)


def rejoin(driver: Any, member: str, **join: Any) -> int:
    """Parks a JoinGroup and tells its ticket."""
    assert driver.join(member, **join) is None
    return int(driver.ticket)


# --- joining


def test_a_new_member_is_given_an_id_and_asked_to_come_back(driver: Any) -> None:
    assert driver.join(client="app") == ErrorCode.MEMBER_ID_REQUIRED
    assert driver.given_id == "app-id1"
    assert driver.join(driver.given_id) is None
    assert state_of(driver) == "PreparingRebalance"


def test_an_old_client_is_taken_without_an_id(driver: Any) -> None:
    assert driver.join(version=3) is None
    ticket = driver.ticket
    driver.pass_time(3000)
    assert (driver.replies[ticket].generation_id, driver.replies[ticket].member_id) == (1, "c-id1")


def test_the_leader_hears_of_all_members_and_the_others_of_none(driver: Any) -> None:
    driver.join(version=3)
    first = driver.ticket
    driver.join(version=3, topics=("b",))
    second = driver.ticket
    driver.pass_time(6000)
    leading, following = driver.replies[first], driver.replies[second]
    assert leading.leader == leading.member_id == following.leader
    assert [member.member_id for member in leading.members] == [leading.member_id, following.member_id]
    assert following.members == []
    assert (leading.protocol_type, leading.protocol_name) == ("consumer", "range")


def test_the_first_rebalance_waits_longer_while_members_come(driver: Any) -> None:
    driver.join(version=3, rebalance_ms=8000)
    first = driver.ticket
    driver.pass_time(2000)
    driver.join(version=3, rebalance_ms=8000)
    driver.pass_time(1500)
    assert first not in driver.replies  # 3.5 s: it was extended to 6 s
    driver.join(version=3, rebalance_ms=8000)
    driver.pass_time(3000)
    assert first not in driver.replies  # 6.5 s: extended to 8 s, the rebalance timeout
    driver.join(version=3, rebalance_ms=8000)
    driver.pass_time(1500)
    assert len(driver.replies[first].members) == 4


def test_the_first_rebalance_ends_after_the_delay_if_nobody_else_comes(driver: Any) -> None:
    driver.join(version=3)
    ticket = driver.ticket
    driver.pass_time(2999)
    assert ticket not in driver.replies
    driver.pass_time(1)
    assert driver.replies[ticket].generation_id == 1


def test_a_session_timeout_outside_of_the_limits_is_refused(driver: Any) -> None:
    assert driver.join(session_ms=5999) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert driver.join(session_ms=1_800_001) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert driver.machine.group("g") is None


def test_a_group_must_have_a_name(driver: Any) -> None:
    assert driver.join(group="") == ErrorCode.INVALID_GROUP_ID
    assert driver.sync("m", 1, group="") == ErrorCode.INVALID_GROUP_ID
    assert driver.heartbeat("m", 1, group="") == ErrorCode.INVALID_GROUP_ID
    assert driver.leave("m", group="") == ErrorCode.INVALID_GROUP_ID


def test_an_unknown_member_is_refused_and_leaves_no_group_behind(driver: Any) -> None:
    assert driver.join("stranger") == UNKNOWN
    assert driver.machine.group("g") is None
    driver.stable_group()
    assert driver.join("stranger") == UNKNOWN


def test_protocols_that_do_not_fit_are_refused(driver: Any) -> None:
    assert driver.join(protocols={}) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.join(protocol_type="") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    # What is left behind is a group without members, which goes when offsets are looked for that are too old.
    assert driver.list_groups() == {"g": ("", "Empty", "classic")}
    driver.stable_group(1)
    assert driver.join(protocol_type="connect") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.join(protocols={"sticky": b""}) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_is_chosen_by_vote_among_those_that_all_speak(driver: Any) -> None:
    for names in (["sticky", "range", "own"], ["range", "sticky"], ["range", "sticky", "roundrobin"]):
        driver.join(version=3, protocols=dict.fromkeys(names, b"x"))
    driver.pass_time(6000)
    assert driver.replies[driver.ticket].protocol_name == "range"


def test_version_0_has_no_rebalance_timeout_so_the_session_timeout_serves(driver: Any) -> None:
    driver.join(version=0, rebalance_ms=-1, session_ms=7000)
    (member,) = driver.machine.group("g").members.values()
    assert member.rebalance_timeout_ms == 7000


def test_a_member_that_asks_again_gets_the_answer_where_it_asked_last(driver: Any) -> None:
    members = driver.stable_group(2)
    first = rejoin(driver, members[0])
    second = rejoin(driver, members[0])
    assert driver.replies[first] == REBALANCE
    driver.join(members[1])
    assert driver.replies[second].generation_id == 2


# --- the size of a group


def test_a_full_group_takes_no_more_members(make_driver: Callable[..., Any]) -> None:
    driver = make_driver(max_size=2)
    members = driver.stable_group(2)
    assert driver.join() == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.heartbeat(members[0], 1) == OK


def test_members_that_were_only_given_an_id_count(make_driver: Callable[..., Any]) -> None:
    driver = make_driver(max_size=2)
    assert driver.join() == ErrorCode.MEMBER_ID_REQUIRED
    first = driver.given_id
    assert driver.join() == ErrorCode.MEMBER_ID_REQUIRED
    assert driver.join() == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.join(first) is None
    driver.pass_time(10_000)
    assert driver.join() == ErrorCode.MEMBER_ID_REQUIRED


def test_a_limit_that_was_lowered_turns_away_the_last_to_rejoin(make_driver: Callable[..., Any]) -> None:
    driver = make_driver()
    members = driver.stable_group(3)
    driver.settings = make_driver(max_size=2).settings
    driver.restart()
    assert state_of(driver) == "PreparingRebalance"
    first = rejoin(driver, members[0])
    rejoin(driver, members[1])
    assert driver.join(members[2]) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(driver.replies[first].members) == 2


# --- syncing


def test_followers_wait_for_the_leader_and_all_get_their_own(driver: Any) -> None:
    leader, follower = driver.join_together(2)
    assert driver.sync(follower, 1) is None
    waiting = driver.ticket
    assert driver.sync(leader, 1, {leader: b"L", follower: b"F"}) == b"L"
    assert driver.replies[waiting].assignment == b"F"
    assert state_of(driver) == "Stable"
    assert driver.sync(follower, 1) == b"F"


def test_a_member_that_the_leader_forgot_gets_an_empty_assignment(driver: Any) -> None:
    leader, follower = driver.join_together(2)
    driver.sync(leader, 1, {leader: b"L"})
    assert driver.sync(follower, 1) == b""


def test_sync_is_refused_by_what_is_wrong(driver: Any) -> None:
    assert driver.sync("m", 1) == UNKNOWN
    leader, _follower = driver.join_together(2)
    assert driver.sync("stranger", 1) == UNKNOWN
    assert driver.sync(leader, 7) == ErrorCode.ILLEGAL_GENERATION
    assert driver.sync(leader, 1, protocol_type="connect") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.sync(leader, 1, protocol_name="sticky") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.sync(leader, 1, protocol_name=None) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.sync(leader, 1, {}, protocol_name=None, protocol_type=None, version=4) == b""


def test_sync_while_members_join_again_is_refused(driver: Any) -> None:
    members = driver.stable_group(2)
    rejoin(driver, members[0])
    assert driver.sync(members[1], 1) == REBALANCE


def test_whoever_waits_for_its_assignment_is_sent_back_when_another_member_comes(driver: Any) -> None:
    _, follower = driver.join_together(2)
    assert driver.sync(follower, 1) is None
    waiting = driver.ticket
    driver.join(version=3)
    assert driver.replies[waiting] == REBALANCE


def test_members_that_never_ask_for_their_assignment_are_dropped(driver: Any) -> None:
    leader, follower = driver.join_together(2, rebalance_ms=20_000)
    driver.sync(leader, 1, {leader: b"L"})
    for _ in range(3):
        driver.pass_time(5000)
        driver.heartbeat(leader, 1)
        driver.heartbeat(follower, 1)
    driver.pass_time(5000)
    assert state_of(driver) == "PreparingRebalance"
    assert driver.heartbeat(follower, 1) == UNKNOWN
    assert [member.member_id for member in driver.join(leader).members] == [leader]


def test_what_a_rebalance_agreed_on_is_written_once(driver: Any) -> None:
    leader, follower = driver.stable_group(2)
    ((_, value, _),) = driver.log
    stored = decode_value(GROUP_RECORDS[2], value)
    assert value[:2] == b"\0\3"
    assert (stored.generation, stored.protocol, stored.leader) == (1, "range", leader)
    assert [(each.member_id, each.assignment) for each in stored.members] == [
        (leader, leader.encode()),
        (follower, follower.encode()),
    ]


def test_an_assignment_that_cannot_be_written_sends_the_members_back_to_joining(driver: Any) -> None:
    leader, follower = driver.join_together(2)
    driver.sync(follower, 1)
    waiting = driver.ticket
    driver.refuse = ErrorCode.NOT_COORDINATOR
    assert driver.sync(leader, 1, {leader: b"L"}) == ErrorCode.NOT_COORDINATOR
    assert driver.replies[waiting] == ErrorCode.NOT_COORDINATOR
    assert state_of(driver) == "PreparingRebalance"
    driver.refuse = None
    rejoin(driver, follower)
    assert driver.join(leader).generation_id == 2


def test_an_assignment_that_is_too_large_is_an_unknown_error(driver: Any) -> None:
    (leader,) = driver.join_together(1)
    driver.refuse = ErrorCode.MESSAGE_TOO_LARGE
    assert driver.sync(leader, 1, {leader: b"L"}) == ErrorCode.UNKNOWN_SERVER_ERROR


# --- rejoining


def test_a_follower_that_rejoins_unchanged_gets_the_generation_it_has(driver: Any) -> None:
    _, follower = driver.stable_group(2)
    assert driver.join(follower).generation_id == 1
    assert state_of(driver) == "Stable"


def test_a_leader_that_rejoins_starts_a_rebalance(driver: Any) -> None:
    leader, follower = driver.stable_group(2)
    ticket = rejoin(driver, leader)
    assert driver.heartbeat(follower, 1) == REBALANCE
    assert driver.join(follower).generation_id == 2
    assert driver.replies[ticket].leader == leader


def test_a_changed_subscription_starts_a_rebalance(driver: Any) -> None:
    leader, follower = driver.stable_group(2)
    rejoin(driver, follower, topics=("b",))
    reply = driver.join(leader)
    assert reply.generation_id == 2
    assert reply.members[1].metadata != reply.members[0].metadata


def test_an_answer_that_was_lost_is_given_again_while_the_leader_assigns(driver: Any) -> None:
    leader, follower = driver.join_together(2)
    assert len(driver.join(leader).members) == 2
    assert driver.join(follower).members == []
    assert state_of(driver) == "CompletingRebalance"


def test_a_changed_subscription_while_the_leader_assigns_starts_over(driver: Any) -> None:
    _, follower = driver.join_together(2)
    rejoin(driver, follower, topics=("b",))
    assert state_of(driver) == "PreparingRebalance"


def test_a_member_that_does_not_rejoin_in_time_is_dropped_and_the_leader_follows(driver: Any) -> None:
    leader, follower = driver.stable_group(2, rebalance_ms=30_000)
    ticket = rejoin(driver, follower, topics=("b",), rebalance_ms=30_000)
    for _ in range(6):
        assert driver.heartbeat(leader, 1) == REBALANCE
        driver.pass_time(5000)
    assert driver.replies[ticket].leader == follower
    assert [member.member_id for member in driver.replies[ticket].members] == [follower]
    assert driver.heartbeat(leader, 2) == UNKNOWN


def test_a_new_member_joins_a_stable_group_and_all_rejoin(driver: Any) -> None:
    leader, follower = driver.stable_group(2)
    driver.join()
    new = rejoin(driver, driver.given_id)
    rejoin(driver, follower)
    reply = driver.join(leader)
    assert reply.generation_id == driver.replies[new].generation_id == 2
    assert len(reply.members) == 3


def test_a_rebalance_waits_for_members_that_were_given_an_id(driver: Any) -> None:
    (leader,) = driver.stable_group(1)
    driver.join()
    ticket = rejoin(driver, leader)
    given = driver.given_id
    assert driver.join(given).generation_id == 2
    assert len(driver.replies[ticket].members) == 2


def test_a_rebalance_ends_when_a_pending_member_is_given_up(driver: Any) -> None:
    (leader,) = driver.stable_group(1)
    driver.join(session_ms=6000)
    ticket = rejoin(driver, leader)
    driver.pass_time(6000)
    assert driver.replies[ticket].generation_id == 2


# --- heartbeats and sessions


def test_heartbeats_by_state(driver: Any) -> None:
    assert driver.heartbeat("m", 1) == UNKNOWN
    leader, follower = driver.join_together(2)
    assert driver.heartbeat(leader, 1) == OK  # while the leader assigns
    driver.sync(leader, 1, {})
    assert driver.heartbeat(leader, 1) == OK
    assert driver.heartbeat(leader, 0) == ErrorCode.ILLEGAL_GENERATION
    assert driver.heartbeat("stranger", 1) == UNKNOWN
    rejoin(driver, leader)
    assert driver.heartbeat(follower, 1) == REBALANCE


def test_a_silent_member_is_dropped_after_its_session_timeout(driver: Any) -> None:
    leader, follower = driver.stable_group(2)
    driver.pass_time(9000)
    driver.heartbeat(leader, 1)
    driver.pass_time(2000)
    assert driver.heartbeat(leader, 1) == REBALANCE
    assert driver.heartbeat(follower, 1) == UNKNOWN


def test_a_commit_keeps_a_member_alive(driver: Any) -> None:
    (member,) = driver.stable_group(1)
    for _ in range(4):
        driver.pass_time(9000)
        assert driver.commit({("a", 0): 1}, member=member, generation=1) == [OK]


def test_a_member_that_waits_for_the_others_is_not_dropped(driver: Any) -> None:
    leader, follower = driver.stable_group(2, rebalance_ms=40_000)
    ticket = rejoin(driver, leader, rebalance_ms=40_000)
    for _ in range(7):
        driver.pass_time(5000)
        driver.heartbeat(follower, 1)
    driver.join(follower)
    assert driver.replies[ticket].generation_id == 2


def test_a_new_member_whose_client_never_comes_back_is_dropped(driver: Any) -> None:
    driver.join(version=3, rebalance_ms=10 * 60_000)
    (first,) = driver.machine.group("g").members
    driver.pass_time(3000)
    driver.sync(first, 1, {})
    driver.join(version=3, rebalance_ms=10 * 60_000)
    parked = driver.ticket
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5000):
        assert driver.heartbeat(first, 1) == REBALANCE
        driver.pass_time(5000)
    assert driver.replies[parked] == UNKNOWN


def test_the_last_member_leaves_an_empty_group_with_its_generation(driver: Any) -> None:
    (member,) = driver.stable_group(1)
    driver.pass_time(10_000)
    assert state_of(driver) == "Empty"
    stored = decode_value(GROUP_RECORDS[2], driver.log[-1][1])
    assert (stored.generation, stored.protocol, stored.leader, stored.members) == (2, None, None, [])
    assert driver.heartbeat(member, 1) == UNKNOWN
    assert driver.sync(member, 1) == UNKNOWN


# --- leaving


def test_a_member_that_leaves_starts_a_rebalance(driver: Any) -> None:
    leader, follower = driver.stable_group(2)
    assert driver.leave(follower) == [OK]
    assert driver.heartbeat(leader, 1) == REBALANCE
    assert driver.leave("stranger") == [UNKNOWN]
    assert driver.leave(leader, version=2) == OK
    assert state_of(driver) == "Empty"
    assert driver.leave(leader, version=2) == UNKNOWN


def test_leaving_an_unknown_group_is_an_error_of_the_whole_request(driver: Any) -> None:
    assert driver.leave("m", group="nobody") == UNKNOWN


def test_several_leave_at_once_each_with_its_own_answer(driver: Any) -> None:
    driver.join(instance="i1")
    driver.join(instance="i2")
    driver.pass_time(6000)
    first, second = driver.machine.group("g").members
    answers = driver.leave("", "wrong", second, instances=("i1", "i2", "i2"))
    assert answers == [OK, ErrorCode.FENCED_INSTANCE_ID, OK]
    assert driver.leave("", instances=("i1",)) == [UNKNOWN]
    assert state_of(driver) == "Empty"
    assert driver.heartbeat(first, 1) == UNKNOWN


def test_a_parked_join_is_answered_when_its_member_leaves(driver: Any) -> None:
    leader, _follower = driver.stable_group(2)
    ticket = rejoin(driver, leader)
    assert driver.leave(leader) == [OK]
    assert driver.replies[ticket] == UNKNOWN


def test_a_pending_member_that_leaves_calls_the_others_to_rejoin(driver: Any) -> None:
    (leader,) = driver.stable_group(1)
    driver.join()
    assert driver.leave("nobody") == [UNKNOWN]
    assert driver.heartbeat(leader, 1) == OK
    assert driver.leave(driver.given_id) == [OK]
    assert driver.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.join(driver.given_id) == UNKNOWN


def test_a_pending_member_leaves_a_group_without_members(driver: Any) -> None:
    driver.join()
    assert driver.leave(driver.given_id) == [OK]
    assert driver.list_groups() == {"g": ("", "Empty", "classic")}
    assert driver.machine.next_deadline_ms == driver.settings.offsets_retention_check_interval_ms + 1_000_000


# --- static members


def static_group(driver: Any, *instances: str, **join: Any) -> list[str]:
    for instance in instances:
        driver.join(instance=instance, **join)
    driver.pass_time(6000)
    members = list(driver.machine.group("g").members)
    driver.sync(members[0], 1, {each: each.encode() for each in members}, instance=instances[0])
    for member, instance in zip(members[1:], instances[1:], strict=True):
        driver.sync(member, 1, instance=instance)
    return members


def test_a_static_member_is_taken_without_asking_back(driver: Any) -> None:
    assert driver.join(instance="i1", client="app") is None
    assert list(driver.machine.group("g").members) == ["i1-id1"]


def test_a_static_member_that_returns_unchanged_gets_its_assignment_without_a_rebalance(driver: Any) -> None:
    leader, follower = static_group(driver, "i1", "i2")
    reply = driver.join(instance="i2")
    assert (reply.generation_id, reply.leader, reply.members, reply.skip_assignment) == (1, leader, [], False)
    assert reply.member_id != follower
    assert driver.sync(reply.member_id, 1, instance="i2") == follower.encode()
    assert driver.heartbeat(leader, 1, instance="i1") == OK
    assert driver.heartbeat(follower, 1, instance="i2") == ErrorCode.FENCED_INSTANCE_ID
    assert driver.sync(follower, 1, instance="i2") == ErrorCode.FENCED_INSTANCE_ID
    assert driver.join(follower, instance="i2") == ErrorCode.FENCED_INSTANCE_ID
    assert driver.commit({("a", 0): 1}, member=follower, generation=1, instance="i2") == [ErrorCode.FENCED_INSTANCE_ID]
    assert driver.heartbeat(follower, 1) == UNKNOWN


def test_a_static_leader_that_returns_is_told_to_skip_the_assignment(driver: Any) -> None:
    static_group(driver, "i1", "i2")
    reply = driver.join(instance="i1", version=9)
    assert (reply.leader, reply.skip_assignment, len(reply.members)) == (reply.member_id, True, 2)


def test_an_old_static_leader_that_returns_does_not_find_itself_leading(driver: Any) -> None:
    leader, _ = static_group(driver, "i1", "i2")
    reply = driver.join(instance="i1", version=8)
    assert (reply.leader, reply.skip_assignment, reply.members) == (leader, False, [])
    assert driver.machine.group("g").leader_id == reply.member_id


@pytest.mark.parametrize("instance", ["i1", "i2"], ids=["leader", "follower"])
@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_static_member_that_returns_with_other_bytes_keeps_the_generation(
    driver: Any, instance: str, version: int
) -> None:
    members = static_group(driver, "i1", "i2")
    for topics in (("b",), ("a", "b"), ()):
        reply = driver.join(instance=instance, topics=topics, version=version)
        assert reply.generation_id == 1
        assert driver.sync(reply.member_id, 1, instance=instance) == members[int(instance[1]) - 1].encode()
    driver.restart()
    assert driver.machine.group("g").subscribed_topics == {"a"}
    assert driver.heartbeat(reply.member_id, 1, instance=instance) == OK


def test_a_static_member_that_returns_and_changes_the_protocol_starts_a_rebalance(driver: Any) -> None:
    static_group(driver, "i1", "i2", protocols={"range": b"", "sticky": b""})
    assert driver.join(instance="i2", protocols={"sticky": b""}) is None
    assert state_of(driver) == "PreparingRebalance"
    reply = driver.join(instance="i1", protocols={"range": b"", "sticky": b""})
    assert (reply.generation_id, reply.protocol_name) == (2, "sticky")


def joined_static_group(driver: Any) -> tuple[str, str]:
    """Two static members of a generation in which only the leader has synced."""
    for instance in ("i1", "i2"):
        driver.join(instance=instance, session_ms=100_000)
    driver.pass_time(6000)
    leader, follower = driver.machine.group("g").members
    driver.sync(leader, 1, {leader: b"1", follower: b"2"}, instance="i1")
    assert state_of(driver) == "Stable"
    return leader, follower


def test_a_static_member_that_returns_before_its_sync_and_syncs_is_not_waited_for(driver: Any) -> None:
    leader, _ = joined_static_group(driver)
    again = driver.join(instance="i2", session_ms=100_000).member_id
    assert driver.sync(again, 1, instance="i2") == b"2"
    driver.pass_time(90_000)
    assert (state_of(driver), driver.machine.group("g").generation) == ("Stable", 1)
    assert driver.heartbeat(leader, 1, instance="i1") == OK


def test_a_static_member_that_returns_before_its_sync_and_never_syncs_is_dropped(driver: Any) -> None:
    leader, _ = joined_static_group(driver)
    driver.join(instance="i2", session_ms=100_000)
    driver.pass_time(59_000)
    assert state_of(driver) == "Stable"
    driver.pass_time(1000)
    assert list(driver.machine.group("g").members) == [leader]
    assert state_of(driver) == "PreparingRebalance"


def test_a_static_member_that_returns_while_the_leader_assigns_starts_over(driver: Any) -> None:
    for instance in ("i1", "i2"):
        driver.join(instance=instance)
    driver.pass_time(6000)
    _, follower = driver.machine.group("g").members
    assert driver.sync(follower, 1, instance="i2") is None
    waiting = driver.ticket
    assert driver.join(instance="i2") is None
    assert driver.replies[waiting] == ErrorCode.FENCED_INSTANCE_ID
    assert state_of(driver) == "PreparingRebalance"


def test_the_replaced_member_is_stored_and_taken_back_if_that_fails(driver: Any) -> None:
    leader, follower = static_group(driver, "i1", "i2")
    driver.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.join(instance="i2") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.heartbeat(follower, 1, instance="i2") == OK
    driver.refuse = None
    reply = driver.join(instance="i2")
    stored = decode_value(GROUP_RECORDS[2], driver.log[-1][1])
    assert [each.member_id for each in stored.members] == [leader, reply.member_id]
    driver.restart()
    assert driver.heartbeat(reply.member_id, 1, instance="i2") == OK


def test_an_id_that_was_given_to_a_dynamic_member_is_not_for_a_static_one(driver: Any) -> None:
    leader, _ = static_group(driver, "i1", "i2")
    driver.join()
    assert driver.join(driver.given_id, instance="i3") == UNKNOWN
    assert driver.join(driver.given_id, instance="i1") == ErrorCode.FENCED_INSTANCE_ID
    assert driver.heartbeat(leader, 1, instance="i1") == OK


def test_static_members_that_do_not_rejoin_stay_until_their_session_ends(driver: Any) -> None:
    _leader, _follower = static_group(driver, "i1", "i2", rebalance_ms=10_000, session_ms=60_000)
    driver.join(version=3, rebalance_ms=10_000)
    new = driver.ticket
    driver.pass_time(10_000)
    assert len(driver.replies[new].members) == 3
    assert driver.replies[new].leader == driver.replies[new].member_id


def test_a_group_of_static_members_of_whom_none_rejoins_waits(driver: Any) -> None:
    leader, _follower = static_group(driver, "i1", "i2", rebalance_ms=10_000, session_ms=25_000)
    rejoin(driver, leader, instance="i1", rebalance_ms=10_000, session_ms=25_000)
    driver.leave(leader, instances=("i1",))
    driver.pass_time(10_000)
    assert state_of(driver) == "PreparingRebalance"
    driver.pass_time(20_000)
    assert state_of(driver) == "Empty"


# --- offsets of groups with members


def test_commits_are_checked_in_kafkas_order(driver: Any) -> None:
    offsets = {("a", 0): 1}
    leader, follower = driver.join_together(2)
    assert driver.commit(offsets) == [UNKNOWN]  # there are members: only they may
    assert driver.commit(offsets, member="stranger", generation=7) == [UNKNOWN]
    assert driver.commit(offsets, member=leader, generation=7) == [ErrorCode.ILLEGAL_GENERATION]
    assert driver.commit(offsets, member=leader, generation=1) == [REBALANCE]  # waiting for the assignment
    driver.sync(leader, 1, {})
    driver.sync(follower, 1)
    assert driver.commit(offsets, member=leader, generation=1) == [OK]
    rejoin(driver, leader)
    assert driver.commit(offsets, member=follower, generation=1) == [OK]  # before it gives up its partitions


def test_transactional_commits_are_checked_by_member_and_generation_only(driver: Any) -> None:
    offsets = {("a", 0): 1}
    (leader,) = driver.join_together(1)
    assert driver.commit_in_transaction(offsets) == [OK]  # old producers name no member
    assert driver.commit_in_transaction(offsets, member=leader, generation=1) == [OK]
    assert driver.commit_in_transaction(offsets, member=leader, generation=2) == [ErrorCode.ILLEGAL_GENERATION]
    assert driver.commit_in_transaction(offsets, member="stranger", generation=1) == [UNKNOWN]


def test_offsets_of_topics_that_are_read_cannot_be_deleted(driver: Any) -> None:
    (member,) = driver.stable_group(1)
    driver.commit({("a", 0): 1, ("b", 0): 2}, member=member, generation=1)
    assert driver.delete_offsets({"a": [0], "b": [0]}) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, OK]
    assert driver.fetch() == {("a", 0): 1}


def test_offsets_of_a_group_that_does_not_say_what_it_reads_cannot_be_deleted(driver: Any) -> None:
    join = {"protocol_type": "connect", "protocols": {"sessioned": b"opaque"}}
    members = driver.join_together(1, **join)
    driver.sync(members[0], 1, {}, protocol_type="connect", protocol_name="sessioned")
    assert driver.delete_offsets({"a": [0]}) == ErrorCode.NON_EMPTY_GROUP
    driver.leave(members[0])
    assert driver.delete_offsets({"a": [0]}) == [OK]


def test_a_subscription_that_cannot_be_read_protects_all_topics(driver: Any) -> None:
    (member,) = driver.stable_group(1, protocols={"range": b"\0"})
    driver.commit({("a", 0): 1}, member=member, generation=1)
    assert driver.delete_offsets({"a": [0]}) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offsets_expire_a_week_after_the_group_became_empty(driver: Any) -> None:
    (member,) = driver.stable_group(1, session_ms=1_800_000)
    driver.commit({("a", 0): 1}, member=member, generation=1)
    for _ in range(6 * 48):
        driver.pass_time(1_700_000)
        driver.heartbeat(member, 1)
    driver.leave(member)
    driver.pass_time(6 * DAY_MS)
    assert driver.fetch() == {("a", 0): 1}
    driver.pass_time(2 * DAY_MS)
    assert driver.fetch() == {}
    assert driver.machine.group("g") is None


def test_offsets_of_topics_that_a_living_group_does_not_read_expire(driver: Any) -> None:
    (member,) = driver.stable_group(1, session_ms=1_800_000)
    driver.commit({("a", 0): 1, ("b", 0): 2}, member=member, generation=1)
    for _ in range(8 * 52):
        driver.pass_time(1_700_000)
        assert driver.heartbeat(member, 1) == OK
    assert driver.fetch() == {("a", 0): 1}


# --- administration


def test_a_stable_group_is_described_with_metadata_and_assignments(driver: Any) -> None:
    members = driver.stable_group(2)
    found = driver.describe()
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    assert [each.member_id for each in found.members] == members
    assert found.members[0].member_assignment == members[0].encode()
    assert (found.members[0].client_id, found.members[0].client_host) == ("c", "/127.0.0.1")
    assert found.members[0].member_metadata


def test_a_group_in_a_rebalance_is_described_without(driver: Any) -> None:
    driver.join_together(2)
    found = driver.describe()
    assert (found.group_state, found.protocol_data) == ("CompletingRebalance", "")
    assert [each.member_metadata for each in found.members] == [b"", b""]


def test_an_unknown_group_is_dead(driver: Any) -> None:
    found = driver.describe("nobody", version=5)
    assert (found.group_state, found.error_code) == ("Dead", OK)
    found = driver.describe("nobody", version=6)
    assert (found.group_state, found.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)


def test_groups_are_listed_by_state_and_type(driver: Any) -> None:
    driver.stable_group(1)
    driver.commit({("a", 0): 1}, group="simple")
    assert driver.list_groups() == {"g": ("consumer", "Stable", "classic"), "simple": ("", "Empty", "classic")}
    assert list(driver.list_groups(states=("stable",))) == ["g"]
    assert list(driver.list_groups(types=("Classic",))) == ["g", "simple"]
    assert list(driver.list_groups(types=("consumer",))) == []
    assert list(driver.list_groups(states=("Dead", "nonsense"))) == []


def test_only_groups_without_members_are_deleted_with_their_offsets(driver: Any) -> None:
    (member,) = driver.stable_group(1)
    driver.commit({("a", 0): 1}, member=member, generation=1)
    driver.commit_in_transaction({("a", 1): 1}, member=member, generation=1)
    assert driver.delete() == ErrorCode.NON_EMPTY_GROUP
    assert driver.delete("nobody") == ErrorCode.GROUP_ID_NOT_FOUND
    driver.leave(member)
    assert driver.delete() == OK
    driver.end_transaction(7, True)
    assert driver.fetch() == {}
    assert driver.machine.group("g") is None
    assert driver.replayed().group("g") is None


# --- loading


def test_a_loaded_group_goes_on_where_it_was(driver: Any) -> None:
    leader, follower = driver.stable_group(2)
    driver.restart()
    assert state_of(driver) == "Stable"
    assert driver.heartbeat(leader, 1) == OK
    assert driver.sync(follower, 1) == follower.encode()
    assert driver.join(follower).leader == leader
    driver.pass_time(10_000)
    assert state_of(driver) == "Empty"


def test_an_empty_group_is_loaded_with_the_time_since_when_it_is_empty(driver: Any) -> None:
    (member,) = driver.stable_group(1)
    driver.leave(member)
    emptied_ms = driver.now_ms
    driver.restart()
    group = driver.machine.group("g")
    assert (group.state_name, group.state_timestamp_ms, group.generation) == ("Empty", emptied_ms, 2)
    driver.join(version=3)
    driver.pass_time(3000)
    assert driver.replies[driver.ticket].generation_id == 3


def test_parked_requests_are_sent_away_when_the_coordinator_moves(driver: Any) -> None:
    leader, follower = driver.join_together(2)
    driver.sync(follower, 1)
    syncing = driver.ticket
    driver.join(version=3, group="h")
    joining = driver.ticket
    driver.restart()
    assert driver.replies[syncing] == driver.replies[joining] == ErrorCode.NOT_COORDINATOR
    assert driver.heartbeat(leader, 1) == UNKNOWN


@pytest.mark.parametrize("protocol_type", ["connect", "sr", "streams"])
def test_what_groups_of_other_kinds_say_stays_opaque(driver: Any, protocol_type: str) -> None:
    join = {"protocol_type": protocol_type, "protocols": {"v1": b"\xff\xfe"}}
    members = driver.join_together(2, **join)
    driver.sync(members[0], 1, {members[1]: b"\x01"}, protocol_type=protocol_type, protocol_name="v1")
    assert driver.sync(members[1], 1, protocol_type=protocol_type, protocol_name="v1") == b"\x01"
    assert driver.list_groups()["g"] == (protocol_type, "Stable", "classic")


def test_a_cooperative_group_rebalances_twice_like_any_other(driver: Any) -> None:
    join = {"protocols": {"cooperative-sticky": b"\0\1" + b"\0" * 8}}
    leader, follower = driver.join_together(2, **join)
    driver.sync(leader, 1, {leader: b"1", follower: b""}, protocol_name="cooperative-sticky")
    driver.sync(follower, 1, protocol_name="cooperative-sticky")
    rejoin(driver, leader, **join)
    driver.join(follower, **join)
    driver.sync(leader, 2, {leader: b"1", follower: b"2"}, protocol_name="cooperative-sticky")
    assert driver.sync(follower, 2, protocol_name="cooperative-sticky") == b"2"


def test_very_many_groups_are_listed_in_steps(driver: Any) -> None:
    for number in range(200):
        driver.commit({("t", 0): number}, group=f"g{number}")
    steps = driver.ask(driver.machine.list, (), ())
    assert sum(1 for _ in steps) >= 3
    assert len(driver.list_groups()) == 200

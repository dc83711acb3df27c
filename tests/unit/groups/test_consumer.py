"""Groups of the consumer protocol: heartbeats, epochs, revoking and assigning, fencing, patterns, static members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.config.group import GroupConfig
from ottla.errors import ErrorCode
from ottla.protocol.coordinator_records import GROUP_RECORDS, decode_key

OK = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_MEMBER_EPOCH
INVALID = ErrorCode.INVALID_REQUEST
DAY_MS = 24 * 60 * 60_000


@pytest.fixture
def driver(make_driver: Callable[..., Any]) -> Any:
    """Topics `a` of four partitions and `b` of two; new assignments are not put off."""
    driver = make_driver(consumer_assignment_interval_ms=0)
    driver.create_topics(a=4, b=2)
    return driver


def told(driver: Any, reply: Any) -> dict[str, set[int]] | None:
    """The assignment of a reply, by topic name; None if it has none."""
    if reply.assignment is None:
        return None
    names = driver.topics.names
    return {names[each.topic_id]: set(each.partitions) for each in reply.assignment.topic_partitions}


def has(driver: Any, member: str) -> dict[str, set[int]]:
    names = driver.topics.names
    return {names[topic]: set(found) for topic, found in driver.machine.group("g").members[member].assigned.items()}


def pair(driver: Any, **asked: Any) -> tuple[int, int]:
    """Two members that share the topics; their epochs."""
    driver.start("m1", **asked)
    driver.start("m2", **asked)
    owned = has(driver, "m1")
    driver.beat("m1", 2, owned=owned)  # learns what to give up
    first = driver.beat("m1", 2, owned=has(driver, "m1")).member_epoch
    second = driver.beat("m2", 3).member_epoch
    assert driver.machine.group("g").state_name == "Stable"
    return first, second


# --- the first heartbeats


def test_the_first_member_gets_all_partitions_at_once(driver: Any) -> None:
    reply = driver.start(topics=("a", "b"))
    assert (reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms) == ("m1", 2, 5000)
    assert told(driver, reply) == {"a": {0, 1, 2, 3}, "b": {0, 1}}
    assert told(driver, driver.beat("m1", 2)) is None


def test_an_old_member_is_given_an_id(driver: Any) -> None:
    assert driver.start("", version=0).member_id == "id1"
    assert driver.start("", version=1) == INVALID


def test_a_second_member_waits_until_the_first_has_given_up_its_share(driver: Any) -> None:
    driver.start("m1")
    reply = driver.start("m2")
    assert (reply.member_epoch, told(driver, reply)) == (3, {})
    assert driver.machine.group("g").state_name == "Reconciling"
    reply = driver.beat("m1", 2, owned={"a": {0, 1, 2, 3}})
    kept = told(driver, reply)
    assert reply.member_epoch == 2  # it has yet to give up two
    assert kept is not None
    assert len(kept["a"]) == 2
    assert told(driver, driver.beat("m2", 3)) is None
    assert driver.beat("m1", 2, owned=kept).member_epoch == 3
    assert told(driver, driver.beat("m2", 3)) == {"a": {0, 1, 2, 3} - kept["a"]}
    assert driver.machine.group("g").state_name == "Stable"


def test_a_full_heartbeat_is_told_the_assignment_again(driver: Any) -> None:
    driver.start("m1")
    reply = driver.beat("m1", 2, topics=("a",), owned={}, rebalance_ms=60_000)
    assert told(driver, reply) == {"a": {0, 1, 2, 3}}


def test_subscribing_to_nothing_is_fine_and_makes_no_difference(driver: Any) -> None:
    reply = driver.start(topics=())
    assert (reply.member_epoch, told(driver, reply)) == (1, {})
    assert (driver.machine.group("g").epoch, driver.machine.group("g").state_name) == (1, "Stable")
    driver.start("m2")
    assert driver.start("m3", topics=()).member_epoch == 2
    assert driver.machine.group("g").epoch == 2
    driver.restart()
    assert driver.machine.group("g").epoch == 2


def test_a_group_whose_epoch_never_moved_on_is_loaded_with_its_first_epoch(driver: Any) -> None:
    driver.start(topics=())
    driver.restart()
    assert driver.beat("m1", 1).member_epoch == 1
    assert driver.start("m2").member_epoch == 2


def test_a_topic_that_is_not_there_yet_is_assigned_when_it_appears(driver: Any) -> None:
    assert told(driver, driver.start(topics=("later",))) == {}
    driver.create_topics(later=2)
    reply = driver.beat("m1", 2)
    assert (reply.member_epoch, told(driver, reply)) == (3, {"later": {0, 1}})


@pytest.mark.parametrize(
    "asked",
    [
        {"group": " "},
        {"instance": ""},
        {"rack": ""},
        {"member": ""},
        {"rebalance_ms": -1},
        {"owned": None},
        {"owned": {"a": {0}}},
        {"topics": None},
        {"epoch": -3},
        {"epoch": -2},
    ],
)
def test_a_heartbeat_that_says_too_little_is_refused(driver: Any, asked: dict[str, Any]) -> None:
    whole = {"member": "m1", "epoch": 0, "owned": {}, "rebalance_ms": 1000, "topics": ("a",)}
    assert driver.beat(**{**whole, **asked}) == INVALID
    assert driver.log == []


def test_an_assignor_that_the_broker_does_not_have_is_refused(driver: Any) -> None:
    assert driver.start(assignor="clever") == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "uniform, range" in driver.replies[driver.ticket].error_message


def test_the_assignor_that_most_members_ask_for_is_used(driver: Any) -> None:
    driver.start("m1", assignor="range")
    assert driver.describe_consumer().assignor_name == "range"
    driver.start("m2", assignor="uniform")
    driver.start("m3", assignor="uniform")
    assert driver.describe_consumer().assignor_name == "uniform"


def test_a_full_group_takes_no_more_members(make_driver: Callable[..., Any]) -> None:
    driver = make_driver(consumer_max_size=1)
    driver.start("m1")
    assert driver.start("m2") == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.beat("m1", 2).member_epoch == 2


# --- fencing


def test_strangers_and_wrong_epochs_are_refused(driver: Any) -> None:
    assert driver.beat("m1", 2) == ErrorCode.GROUP_ID_NOT_FOUND
    driver.start("m1")
    assert driver.beat("m9", 2) == UNKNOWN
    assert driver.beat("m1", 8) == FENCED
    pair(driver)
    assert driver.beat("m1", 2) == FENCED


def test_a_member_whose_last_reply_was_lost_may_come_with_the_epoch_before(driver: Any) -> None:
    first, _ = pair(driver)
    group = driver.machine.group("g")
    assert (first, group.members["m1"].previous_epoch) == (3, 2)
    assert driver.beat("m1", 2, owned=has(driver, "m1")).member_epoch == 3
    assert driver.beat("m1", 2, owned={"a": {0, 1, 2, 3}}) == FENCED  # it has more than it should
    assert driver.beat("m1", 2) == FENCED  # it does not say


def test_a_first_heartbeat_that_is_repeated_changes_nothing(driver: Any) -> None:
    driver.start("m1")
    written = len(driver.log)
    reply = driver.start("m1")
    assert (reply.member_epoch, told(driver, reply)) == (2, {"a": {0, 1, 2, 3}})
    assert len(driver.log) == written


def test_a_member_that_starts_over_goes_on_with_what_it_had(driver: Any) -> None:
    pair(driver)
    reply = driver.start("m1")
    assert (reply.member_epoch, told(driver, reply)) == (3, has(driver, "m1"))


def test_a_silent_member_is_dropped_and_the_other_gets_its_partitions(driver: Any) -> None:
    pair(driver)
    driver.pass_time(44_000)
    driver.beat("m1", 3)
    driver.pass_time(2000)
    assert driver.beat("m2", 3) == UNKNOWN
    assert driver.machine.group("g").state_name == "Assigning"
    reply = driver.beat("m1", 3)
    assert (reply.member_epoch, told(driver, reply)) == (4, {"a": {0, 1, 2, 3}})


def test_a_member_that_does_not_give_up_its_partitions_in_time_is_dropped(driver: Any) -> None:
    driver.start("m1", rebalance_ms=10_000)
    driver.start("m2")
    driver.beat("m1", 2, owned={"a": {0, 1, 2, 3}})
    for _ in range(2):
        driver.pass_time(4000)
        assert driver.beat("m1", 2).member_epoch == 2
    driver.pass_time(2000)
    assert driver.beat("m1", 2) == UNKNOWN
    assert told(driver, driver.beat("m2", 3)) == {"a": {0, 1, 2, 3}}


def test_a_member_that_leaves_frees_its_partitions(driver: Any) -> None:
    pair(driver)
    assert driver.beat("m1", -1).member_epoch == -1
    assert driver.beat("m1", -1) == UNKNOWN
    assert told(driver, driver.beat("m2", 3)) == {"a": {0, 1, 2, 3}}
    driver.beat("m2", -1)
    assert driver.machine.group("g").state_name == "Empty"
    assert driver.beat("m2", -1, group="nobody") == ErrorCode.GROUP_ID_NOT_FOUND


# --- what changes


def test_a_changed_subscription_moves_the_epoch_on(driver: Any) -> None:
    driver.start("m1")
    reply = driver.beat("m1", 2, topics=("b",), owned={"a": {0, 1, 2, 3}})
    assert (reply.member_epoch, told(driver, reply)) == (2, {})
    reply = driver.beat("m1", 2, owned={})
    assert (reply.member_epoch, told(driver, reply)) == (3, {"b": {0, 1}})


def test_new_partitions_are_assigned(driver: Any) -> None:
    driver.start("m1")
    driver.create_topics(a=6)
    reply = driver.beat("m1", 2)
    assert (reply.member_epoch, told(driver, reply)) == (3, {"a": {0, 1, 2, 3, 4, 5}})


def test_topics_of_others_are_no_matter(driver: Any) -> None:
    driver.start("m1")
    written = len(driver.log)
    driver.create_topics(other=1)
    assert driver.beat("m1", 2).member_epoch == 2
    assert len(driver.log) == written


def test_a_deleted_topic_is_taken_from_its_readers(driver: Any) -> None:
    driver.start("m1", topics=("a", "b"))
    driver.create_topics(b=0)
    reply = driver.beat("m1", 2, owned={"a": {0, 1, 2, 3}})
    assert (reply.member_epoch, told(driver, reply)) == (3, {"a": {0, 1, 2, 3}})


def test_replicas_in_other_racks_move_the_epoch_on(driver: Any) -> None:
    driver.create_topics(a=2)
    driver.start("m1")
    epochs = [2]
    for racks in ((("east",), ("west",)), (("east",), ("west",)), (("west",), ("east",)), (("east", "west"), ())):
        driver.move_topic("a", *racks)
        epochs.append(driver.beat("m1", epochs[-1]).member_epoch)
    assert epochs == [2, 3, 3, 4, 5]
    driver.move_topic("b", ("east",))  # nobody reads it
    assert driver.beat("m1", 5).member_epoch == 5


def test_a_member_in_another_rack_is_remembered_and_makes_no_difference(driver: Any) -> None:
    driver.start("m1", rack="east")
    assert driver.beat("m1", 2, rack="west").member_epoch == 2
    driver.restart()
    (member,) = driver.describe_consumer().members
    assert (member.rack_id, driver.machine.group("g").epoch) == ("west", 2)


def test_new_assignments_are_put_off_for_a_moment(make_driver: Callable[..., Any]) -> None:
    driver = make_driver(consumer_assignment_interval_ms=1000)
    driver.create_topics(a=4)
    driver.start("m1")
    driver.pass_time(400)
    reply = driver.start("m2")
    assert (reply.member_epoch, reply.heartbeat_interval_ms, told(driver, reply)) == (2, 600, {})
    assert driver.machine.group("g").state_name == "Assigning"
    driver.pass_time(600)
    reply = driver.beat("m2", 2)
    assert (reply.member_epoch, reply.heartbeat_interval_ms) == (3, 5000)


def test_changes_of_the_same_moment_share_an_assignment(make_driver: Callable[..., Any]) -> None:
    driver = make_driver()
    driver.create_topics(a=10)
    for number in range(10):
        driver.start(f"m{number}")
    assert driver.machine.group("g").assignment_epoch == 2
    driver.pass_time(1000)
    driver.beat("m9", 2)
    assert driver.machine.group("g").assignment_epoch == driver.machine.group("g").epoch == 11


def test_a_member_gives_up_at_once_what_it_reads_no_longer(make_driver: Callable[..., Any]) -> None:
    driver = make_driver(consumer_assignment_interval_ms=1000)
    driver.create_topics(a=2, b=1)
    driver.start(topics=("a", "b"))
    # The next assignment is not due yet. What the old one says of b does not count any more.
    reply = driver.beat("m1", 2, topics=("a",))
    assert (reply.member_epoch, told(driver, reply)) == (2, {"a": {0, 1}})
    described = driver.describe_consumer().members[0]
    assert {each.topic_name for each in described.assignment.topic_partitions} == {"a", "b"}  # until it has said so
    driver.pass_time(1000)
    reply = driver.beat("m1", 2, owned={"a": {0, 1}})
    assert (reply.member_epoch, has(driver, "m1")) == (3, {"a": {0, 1}})


def test_a_partition_that_comes_back_before_it_was_given_up_is_had_again_at_once(driver: Any) -> None:
    driver.start("m1")
    driver.start("m2")
    assert driver.beat("m1", 2, owned={"a": {0, 1, 2, 3}}).member_epoch == 2
    driver.beat("m2", -1)
    # It was to give up two; now it is to have all again. It has given them up meanwhile, and nobody else had them.
    reply = driver.beat("m1", 2, owned=has(driver, "m1"))
    assert (reply.member_epoch, told(driver, reply)) == (4, {"a": {0, 1, 2, 3}})


# --- patterns


def test_a_pattern_reads_the_topics_that_match(driver: Any) -> None:
    driver.create_topics(**{"orders.eu": 1, "orders.us": 2, "other": 1})
    reply = driver.start(regex=r"orders\..*")
    assert told(driver, reply) == {"orders.eu": {0}, "orders.us": {0, 1}}


def test_a_pattern_finds_new_topics_after_a_while(driver: Any) -> None:
    assert driver.start(regex="x.*").member_epoch == 1  # there is nothing to read
    driver.create_topics(x1=1)
    assert driver.beat("m1", 1).member_epoch == 1
    driver.pass_time(10_000)
    assert told(driver, driver.beat("m1", 1)) == {"x1": {0}}
    driver.pass_time(10_000)
    driver.create_topics(x2=1)
    assert told(driver, driver.beat("m1", 2)) == {"x1": {0}, "x2": {0}}


def test_a_pattern_moves_the_epoch_on_when_it_makes_a_difference(driver: Any) -> None:
    driver.start("m1", regex="b")
    group = driver.machine.group("g")
    assert group.epoch == 2
    driver.start("m2", regex="nothing")
    assert group.epoch == 2
    driver.start("m3", regex="b")  # one more reader
    assert group.epoch == 3
    driver.beat("m2", 2, regex="b")
    assert group.epoch == 4
    driver.beat("m2", 4, regex="")
    assert group.epoch == 5
    driver.beat("m2", 5, regex="", topics=())
    assert group.epoch == 5


def test_a_pattern_that_cannot_be_read_is_refused(driver: Any) -> None:
    assert driver.start(regex="(") == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert driver.machine.group("g") is None


def test_names_and_patterns_go_together_and_the_pattern_can_be_dropped(driver: Any) -> None:
    reply = driver.start(topics=("a",), regex="b")
    assert told(driver, reply) == {"a": {0, 1, 2, 3}, "b": {0, 1}}
    group = driver.machine.group("g")
    assert list(group.regexes) == ["b"]
    driver.beat("m1", 2, regex="", owned={"a": {0, 1, 2, 3}})
    assert (group.regexes, has(driver, "m1")) == ({}, {"a": {0, 1, 2, 3}})


def test_the_pattern_of_a_member_that_left_is_forgotten(driver: Any) -> None:
    driver.start("m1", regex="b")
    driver.start("m2", regex="a|b")
    driver.beat("m2", -1)
    assert list(driver.machine.group("g").regexes) == ["b"]
    assert not driver.machine.group("g").is_subscribed_to("a")


# --- static members


def test_an_instance_id_that_is_in_use_is_refused(driver: Any) -> None:
    driver.start("m1", instance="i1")
    assert driver.start("m2", instance="i1") == ErrorCode.UNRELEASED_INSTANCE_ID
    assert driver.start("m1", instance="i1") == ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_static_member_that_left_for_a_while_is_replaced_without_a_rebalance(driver: Any) -> None:
    driver.start("m1", instance="i1")
    driver.start("m2", instance="i2")
    driver.beat("m1", 2, instance="i1", owned={"a": {0, 1, 2, 3}})
    driver.beat("m1", 2, instance="i1", owned=has(driver, "m1"))
    driver.beat("m2", 3, instance="i2")
    mine = has(driver, "m1")
    assert driver.beat("m1", -2, instance="i1").member_epoch == -2
    epoch = driver.machine.group("g").epoch
    reply = driver.start("m3", instance="i1")
    assert (reply.member_epoch, told(driver, reply), driver.machine.group("g").epoch) == (3, mine, epoch)
    assert driver.beat("m1", 3, instance="i1") == ErrorCode.FENCED_INSTANCE_ID
    assert driver.beat("m1", 3) == UNKNOWN
    assert driver.beat("m9", 3, instance="unheard") == UNKNOWN


def test_a_static_member_that_returns_may_commit_what_it_kept_whatever_its_epoch_was(driver: Any) -> None:
    driver.start("m1", instance="i1")
    driver.beat("m1", -2, instance="i1")
    assert driver.start("m3", instance="i1").member_epoch == 2
    assert driver.commit({("a", 0): 5}, member="m3", generation=1) == [OK]
    assert driver.commit({("b", 0): 5}, member="m3", generation=1) == [ErrorCode.STALE_MEMBER_EPOCH]


def test_a_static_member_returns_under_its_own_member_id(driver: Any) -> None:
    driver.start("m1", instance="i1")
    driver.beat("m1", -2, instance="i1")
    reply = driver.start("m1", instance="i1")
    assert (reply.member_epoch, told(driver, reply)) == (2, {"a": {0, 1, 2, 3}})


def test_a_static_member_that_stays_away_is_dropped(driver: Any) -> None:
    driver.start("m1", instance="i1")
    driver.beat("m1", -2, instance="i1")
    driver.pass_time(45_000)
    assert driver.machine.group("g").state_name == "Empty"
    assert driver.start("m2", instance="i1").member_epoch == 4


def test_a_static_member_can_leave_for_good(driver: Any) -> None:
    driver.start("m1", instance="i1")
    assert driver.beat("m9", -1, instance="i1") == ErrorCode.FENCED_INSTANCE_ID
    assert driver.beat("m1", -1, instance="i1").member_epoch == -1
    assert driver.machine.group("g").is_empty


# --- offsets


def test_commits_are_checked_by_member_epoch(driver: Any) -> None:
    offsets = {("a", 0): 5}
    driver.start("m1")
    assert driver.commit(offsets, member="m1", generation=2) == [OK]
    assert driver.commit(offsets, member="m1", generation=2, version=8) == [ErrorCode.UNSUPPORTED_VERSION]
    assert driver.commit(offsets, member="m1", generation=0) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert driver.commit(offsets, member="m1", generation=3) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert driver.commit(offsets, member="m9", generation=2) == [UNKNOWN]
    assert driver.commit(offsets) == [UNKNOWN]
    assert driver.commit_in_transaction(offsets, member="m1", generation=2) == [OK]
    assert driver.commit_in_transaction(offsets, member="m1", generation=8) == [ErrorCode.ILLEGAL_GENERATION]
    driver.beat("m1", -1)
    assert driver.commit(offsets) == [OK]


def test_a_member_that_moved_on_may_commit_what_it_has_had_all_the_time(driver: Any) -> None:
    pair(driver)
    mine, other = sorted(has(driver, "m1")["a"]), sorted(has(driver, "m2")["a"])
    stale = ErrorCode.STALE_MEMBER_EPOCH
    assert driver.commit({("a", mine[0]): 5}, member="m1", generation=2) == [OK]  # it is at 3 now
    assert driver.commit({("a", mine[0]): 5, ("a", other[0]): 5}, member="m1", generation=2) == [stale]
    assert driver.commit({("a", other[0]): 5}, member="m2", generation=2) == [stale]  # assigned at 3
    assert driver.commit({("unheard", 0): 5}, member="m1", generation=2) == [stale]
    assert driver.commit({("a", mine[0]): 5}, member="m1", generation=4) == [stale]
    driver.restart()
    assert driver.commit({("a", mine[1]): 5}, member="m1", generation=2) == [OK]


def test_partitions_that_are_refused_by_themselves_are_not_held_against_the_member(
    make_driver: Callable[..., Any],
) -> None:
    driver = make_driver(consumer_assignment_interval_ms=0, offset_metadata_max_bytes=3)
    driver.create_topics(a=4)
    pair(driver)
    other = sorted(has(driver, "m2")["a"])[0]
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert driver.commit({("a", other): 5}, member="m1", generation=2, metadata="long") == [too_large]


def test_older_producers_name_no_member(driver: Any) -> None:
    driver.start("m1")
    assert driver.commit_in_transaction({("a", 0): 5}) == [OK]


def test_offsets_are_shown_to_members_of_the_right_epoch_and_to_administrators(driver: Any) -> None:
    driver.start("m1")
    driver.commit({("a", 0): 5}, member="m1", generation=2)
    assert driver.fetch(member="m1", epoch=2) == {("a", 0): 5}
    assert driver.fetch() == {("a", 0): 5}
    assert driver.fetch(member="m1", epoch=0) == ErrorCode.STALE_MEMBER_EPOCH
    assert driver.fetch(member="m9", epoch=2) == UNKNOWN


def test_offsets_of_topics_that_are_read_stay(make_driver: Callable[..., Any]) -> None:
    driver = make_driver(consumer_session_timeout_ms=DAY_MS)
    driver.create_topics(a=4, b=2)
    driver.start("m1")
    driver.commit({("a", 0): 5, ("b", 0): 6}, member="m1", generation=2)
    assert driver.delete_offsets({"a": [0], "b": [0]}) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, OK]
    for _ in range(9 * 2):
        driver.pass_time(DAY_MS // 2)
        driver.beat("m1", 2)
    assert driver.fetch() == {("a", 0): 5}


def test_an_empty_group_goes_with_its_last_offset(driver: Any) -> None:
    driver.start("m1")
    driver.commit({("a", 0): 5}, member="m1", generation=2)
    driver.beat("m1", -1)
    driver.pass_time(6 * DAY_MS)
    assert driver.fetch() == {("a", 0): 5}
    driver.pass_time(2 * DAY_MS)
    assert driver.machine.group("g") is None
    assert driver.replayed().group("g") is None


# --- administration


def test_a_consumer_group_is_described(driver: Any) -> None:
    pair(driver, topics=("a",))
    found = driver.describe_consumer()
    assert (found.group_state, found.group_epoch, found.assignment_epoch, found.assignor_name) == (
        "Stable",
        3,
        3,
        "uniform",
    )
    first = found.members[0]
    assert (first.member_id, first.member_epoch, first.client_id, first.client_host) == ("m1", 3, "c", "/127.0.0.1")
    assert (first.subscribed_topic_names, first.member_type) == (["a"], 1)
    assert {each.topic_name: set(each.partitions) for each in first.assignment.topic_partitions} == has(driver, "m1")
    assert first.assignment == first.target_assignment


def test_what_is_no_consumer_group_cannot_be_described_as_one(driver: Any) -> None:
    assert driver.describe_consumer("nobody").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    driver.commit({("a", 0): 1}, group="simple")
    assert driver.describe_consumer("simple").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    driver.start("m1")
    assert driver.describe().group_state == "Dead"


def test_consumer_groups_are_listed_and_deleted(driver: Any) -> None:
    driver.start("m1")
    assert driver.list_groups(types=("consumer",)) == {"g": ("consumer", "Stable", "consumer")}
    assert driver.delete() == ErrorCode.NON_EMPTY_GROUP
    driver.beat("m1", -1)
    assert driver.delete() == OK
    assert driver.machine.group("g") is None
    assert driver.replayed().group("g") is None
    assert compacted(driver) == {}


def compacted(driver: Any) -> dict[bytes, bytes]:
    """What compaction would leave of the log."""
    latest = {key: value for key, value, _ in driver.log}
    return {key: value for key, value in latest.items() if value is not None}


# --- the log


def test_records_are_kafkas_in_kafkas_order(driver: Any) -> None:
    driver.start("m1", regex="b", topics=("a",))
    kinds = [type(decode_key(GROUP_RECORDS, key)).__name__.removeprefix("ConsumerGroup") for key, _, _ in driver.log]
    assert kinds == [
        "MemberMetadataKey",
        "RegularExpressionKey",
        "MetadataKey",
        "TargetAssignmentMemberKey",
        "TargetAssignmentMetadataKey",
        "CurrentMemberAssignmentKey",
    ]


def test_a_loaded_group_goes_on_where_it_was(driver: Any) -> None:
    driver.start("m1", topics=("a",), regex="b")
    driver.start("m2")
    driver.beat("m1", 2, owned={"a": {0, 1, 2, 3}, "b": {0, 1}})
    before = driver.machine.group("g")
    driver.restart()
    after = driver.machine.group("g")
    for name in ("epoch", "metadata_hash", "assignment_epoch", "members", "target", "owners", "regexes"):
        assert getattr(after, name) == getattr(before, name), name
    driver.beat("m1", 2, owned=has(driver, "m1"))
    driver.beat("m2", 3)
    assert driver.machine.group("g").state_name == "Stable"


def test_members_that_do_not_come_back_after_a_load_are_dropped(driver: Any) -> None:
    driver.start("m1", rebalance_ms=10_000)
    driver.start("m2")
    driver.beat("m1", 2, owned={"a": {0, 1, 2, 3}})
    driver.restart()
    driver.pass_time(10_000)
    assert list(driver.machine.group("g").members) == ["m2"]
    driver.pass_time(40_000)
    assert driver.machine.group("g").is_empty


def test_a_compacted_log_loads_the_same_group(driver: Any) -> None:
    pair(driver)
    driver.beat("m1", 3, topics=("b",), owned=has(driver, "m1"))
    before = driver.machine.group("g")
    latest: dict[bytes, Any] = {}
    for entry in driver.log:
        latest.pop(entry[0], None)
        latest[entry[0]] = entry
    driver.log = list(latest.values())
    after = driver.replayed().group("g")
    for name in ("epoch", "assignment_epoch", "members", "target", "owners"):
        assert getattr(after, name) == getattr(before, name), name


def test_a_refused_append_changes_nothing(driver: Any) -> None:
    driver.refuse = ErrorCode.NOT_COORDINATOR
    assert driver.start("m1") == ErrorCode.NOT_COORDINATOR
    assert driver.machine.group("g") is None
    driver.refuse = None
    driver.start("m1")
    driver.create_topics(a=6)
    driver.refuse = ErrorCode.NOT_COORDINATOR
    assert driver.beat("m1", 2) == ErrorCode.NOT_COORDINATOR
    driver.refuse = None
    assert driver.beat("m1", 2).member_epoch == 3  # it looks at the topics again


def test_a_group_that_stored_offsets_only_becomes_a_consumer_group_and_keeps_them(driver: Any) -> None:
    driver.commit({("a", 0): 5})
    driver.start("m1")
    assert driver.list_groups() == {"g": ("consumer", "Stable", "consumer")}
    driver.restart()
    assert driver.list_groups() == {"g": ("consumer", "Stable", "consumer")}
    assert driver.fetch() == {("a", 0): 5}


def test_a_member_whose_removal_could_not_be_written_is_removed_later(driver: Any) -> None:
    driver.start("m1")
    driver.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.pass_time(45_000)
    assert not driver.machine.group("g").is_empty
    driver.refuse = None
    driver.pass_time(45_000)
    assert driver.machine.group("g").is_empty


def test_a_group_has_settings_of_its_own(driver: Any) -> None:
    own = GroupConfig(
        consumer_session_timeout_ms=60_000, consumer_heartbeat_interval_ms=15_000, consumer_assignment_interval_ms=0
    )
    driver.config_of = lambda group_id: own if group_id == "g" else driver.settings.consumer_config
    driver.restart()
    assert driver.start("m1").heartbeat_interval_ms == 15_000
    assert driver.start("m1", group="h").heartbeat_interval_ms == 5000
    driver.pass_time(59_000)
    assert not driver.machine.group("g").is_empty
    assert driver.machine.group("h").is_empty
    driver.pass_time(1000)
    assert driver.machine.group("g").is_empty

"""Plans as files, and what a throttle slows down."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from ottla.client.admin.reassignments import OngoingReassignment
from ottla.client.metadata import ClusterView, Partition, Topic
from ottla.client.reassigning import (
    Progress,
    Standing,
    Target,
    Throttle,
    parse_plan,
    plan_document,
    throttle_of,
    verdict_of,
)
from ottla.errors import ConfigError
from ottla.ids import TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_plan_is_written_and_read_as_by_the_tool_of_kafka():
    text = json.dumps(plan_document({SECOND: (2, 3), FIRST: (1, 2)}))
    assert text == (
        '{"version": 1, "partitions": ['
        '{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}, '
        '{"topic": "t", "partition": 1, "replicas": [2, 3], "log_dirs": ["any", "any"]}]}'
    )
    assert parse_plan(text, "x") == {
        FIRST: Target((1, 2), ("any", "any")),
        SECOND: Target((2, 3), ("any", "any")),
    }


def test_the_document_of_our_plan_command_is_a_plan_too():
    document = {"current": plan_document({FIRST: (1,)}), "proposed": plan_document({FIRST: (2,)})}
    assert parse_plan(json.dumps(document), "x")[FIRST].replicas == (2,)


def test_directories_are_those_that_are_named():
    entry = {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/d"]}
    plan = parse_plan(json.dumps({"version": 1, "partitions": [entry]}), "x")
    assert list(plan[FIRST].named_directories()) == [(2, "/d")]
    without = parse_plan(json.dumps({"partitions": [{**entry, "log_dirs": None}]}), "x")
    assert list(without[FIRST].named_directories()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "this is not JSON"),
        ("[]", "a plan is an object"),
        ('{"version": 2, "partitions": []}', "version 2"),
        ('{"partitions": []}', "has no partitions"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "this one has not"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "this one has not"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}', "this one has not"),
        ('{"partitions": [{"topic": "t", "partition": true, "replicas": [1]}]}', "this one has not"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, true]}]}', "this one has not"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "a broker stands twice"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["a", "b"]}]}',
            "not as many log_dirs",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "t-0 stands there twice",
        ),
    ],
)
def test_what_is_no_plan_is_told_with_its_place(text, words):
    with pytest.raises(ConfigError, match=f"^plan.json: .*{words}"):
        parse_plan(text, "plan.json")


def test_a_throttle_slows_down_who_may_hand_out_and_who_comes():
    moves = {SECOND: ((1, 2), (2, 3)), FIRST: ((4, 1), (1, 5, 6)), TopicPartition("u", 0): ((7, 8), (8, 7))}
    assert throttle_of(moves) == Throttle(
        leaders={"t": "0:1,0:4,1:1,1:2"}, followers={"t": "0:5,0:6,1:3"}, brokers=(1, 2, 3, 4, 5, 6)
    )


@pytest.mark.parametrize(
    ("replicas", "isr", "ongoing", "standing", "remaining"),
    [
        ((2, 3), (2, 3), None, Standing.COMPLETE, ()),
        ((2, 3), (2,), None, Standing.COMPLETE, ()),  # broker 3 is down, and nothing is left to copy
        ((3, 2), (2, 3), None, Standing.DIFFERENT, ()),
        ((1, 2), (1, 2), None, Standing.DIFFERENT, (3,)),
        ((2, 3, 1), (1, 2), OngoingReassignment((2, 3, 1), (3,), (1,)), Standing.MOVING, (3,)),
        ((2, 3, 1), (1, 2, 3), OngoingReassignment((2, 3, 1), (3,), (1,)), Standing.MOVING, ()),
    ],
)
def test_where_a_partition_of_a_plan_stands(replicas, isr, ongoing, standing, remaining):
    partition = Partition(0, leader_id=2, leader_epoch=1, replicas=replicas, isr=isr)
    view = ClusterView("c", 1, {}, {"t": Topic("t", UUID(int=1), False, (partition,))}, {})
    verdict = verdict_of(view, FIRST, (2, 3), ongoing)
    assert (verdict.standing, verdict.remaining) == (standing, remaining)
    progress = Progress({FIRST: verdict}, is_anything_moving=ongoing is not None)
    assert progress.of(standing) == [FIRST]
    assert progress.remaining_replicas == len(remaining)


def test_a_move_knows_where_it_comes_from_and_where_it_goes():
    move = OngoingReassignment((2, 3, 1), adding=(3,), removing=(1,))
    assert (move.origin, move.target) == ((2, 1), (2, 3))


def test_the_text_of_a_plan_is_one_too() -> None:
    now, then = (json.dumps(plan_document({TopicPartition("t", 0): replicas})) for replicas in ((1,), (2,)))
    text = f"Current partition replica assignment\n{now}\n\nProposed partition reassignment configuration\n{then}\n"
    assert parse_plan(text, "plan") == parse_plan(then, "plan")

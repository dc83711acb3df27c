"""Moving partitions to other brokers, from a plan to its end: the file, the throttle, the start, the verdict.

A plan is a file in the format of Kafka's own tool (`kafka-reassign-partitions`), so that either can take what the other
wrote. A throttle is what Kafka's tool makes of it: two settings of each topic that moves say which replicas are slowed
down, two of each broker say to how many bytes a second. It outlives the command; `verify` and `cancel` take it away.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigResource
from ottla.client.admin.reassignments import OngoingReassignment
from ottla.client.metadata import ClusterView
from ottla.errors import ApiError, ConfigError, ErrorCode
from ottla.ids import TopicPartition

ANY_DIRECTORY: Final = "any"
PROPOSED_HEADING: Final = "Proposed partition reassignment configuration\n"  # as Kafka's tool prints it
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
ALTERED_AT_ONCE: Final = 100  # moves that one request begins or cancels
LOOK_S: Final = 1.0  # between two looks at a move in progress
LOOKS_AT_THE_END: Final = 3  # when nothing moves any more, and not all is as planned


# -- the file ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """The brokers of a partition, the preferred leader first, and a directory on each; a broker chooses for `any`."""

    replicas: tuple[int, ...]
    directories: tuple[str, ...] = ()

    def named_directories(self) -> Iterable[tuple[int, str]]:
        return (pair for pair in zip(self.replicas, self.directories, strict=True) if pair[1] != ANY_DIRECTORY)


Plan = Mapping[TopicPartition, Target]


def plan_document(assignment: Mapping[TopicPartition, Sequence[int]]) -> dict[str, object]:
    """The document of Kafka's tool; any directory will do."""
    partitions = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(replicas),
            "log_dirs": [ANY_DIRECTORY] * len(replicas),
        }
        for partition, replicas in sorted(assignment.items())
    ]
    return {"version": 1, "partitions": partitions}


def parse_plan(text: str, where: str) -> dict[TopicPartition, Target]:
    """A plan of Kafka's tool, or what `ottla reassign plan` printed; ConfigError says what is wrong with it.

    The text has the plan behind a heading, and before it what would undo it.
    """
    _, heading, proposed = text.partition(PROPOSED_HEADING)
    try:
        document = json.loads(proposed if heading else text)
    except ValueError as error:
        raise ConfigError(f"{where}: this is not JSON: {error}") from error
    if isinstance(document, dict) and isinstance(document.get("proposed"), dict):
        document = document["proposed"]
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise ConfigError(
            f"{where}: a plan is an object with a list of `partitions`, as `ottla reassign plan` prints it"
        )
    if document.get("version", 1) != 1:
        raise ConfigError(f"{where}: version {document['version']!r} of the format is not known, only 1")
    plan: dict[TopicPartition, Target] = {}
    for entry in document["partitions"]:
        partition, target = _parse_entry(entry, where)
        if partition in plan:
            raise ConfigError(f"{where}: {partition} stands there twice")
        plan[partition] = target
    if not plan:
        raise ConfigError(f"{where}: the plan has no partitions")
    return plan


def _parse_entry(entry: object, where: str) -> tuple[TopicPartition, Target]:
    match entry:
        case {"topic": str(topic), "partition": int(number), "replicas": [*replicas], **rest} if replicas and all(
            type(each) is int  # true and false are integers for Python
            for each in (number, *replicas)
        ):
            directories = rest.get("log_dirs") or [ANY_DIRECTORY] * len(replicas)
            if len(set(replicas)) != len(replicas):
                raise ConfigError(f"{where}: a broker stands twice among the replicas of {topic}-{number}")
            if not isinstance(directories, list) or len(directories) != len(replicas):
                raise ConfigError(f"{where}: {topic}-{number} has {len(replicas)} replicas and not as many log_dirs")
            return TopicPartition(topic, number), Target(tuple(replicas), tuple(map(str, directories)))
    raise ConfigError(
        f"{where}: an entry has `topic`, `partition` and a list of `replicas`; this one has not: {entry!r}"
    )


def current_assignment(
    view: ClusterView, topics: Collection[str] | None = None
) -> dict[TopicPartition, tuple[int, ...]]:
    return {
        TopicPartition(name, partition.partition): partition.replicas
        for name, topic in view.topics.items()
        if topics is None or name in topics
        for partition in topic.partitions
    }


# -- the throttle ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Throttle:
    """Which replicas of which topics are slowed down, as `PARTITION:BROKER`, and which brokers get the rate."""

    leaders: Mapping[str, str]
    followers: Mapping[str, str]
    brokers: tuple[int, ...]


def throttle_of(moves: Mapping[TopicPartition, tuple[Sequence[int], Sequence[int]]]) -> Throttle:
    """Slows down what each move (from, to) copies: whoever may lead hands out slowly, who comes takes in slowly."""
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for (topic, number), (before, after) in sorted(moves.items()):
        coming = sorted(set(after) - set(before))
        if coming:
            leaders.setdefault(topic, []).extend(f"{number}:{node}" for node in sorted(before))
            followers.setdefault(topic, []).extend(f"{number}:{node}" for node in coming)
            brokers.update(before, coming)
    return Throttle(
        {topic: ",".join(entries) for topic, entries in leaders.items()},
        {topic: ",".join(entries) for topic, entries in followers.items()},
        tuple(sorted(brokers)),
    )


async def _set_throttle(admin: Admin, throttle: Throttle, bytes_per_s: int, alive: Container[int]) -> None:
    """Of brokers that are down nobody fetches, and they cannot be asked for anything."""
    # The replicas first: a rate without them slows nothing down, they without a rate neither.
    for topic in throttle.leaders:
        replicas = {LEADER_REPLICAS: throttle.leaders[topic], FOLLOWER_REPLICAS: throttle.followers[topic]}
        await admin.alter_config(ConfigResource.topic(topic), replicas)
    for node in (each for each in throttle.brokers if each in alive):
        rates = dict.fromkeys((LEADER_RATE, FOLLOWER_RATE), str(bytes_per_s))
        await admin.alter_config(ConfigResource.broker(node), rates)


async def remove_throttle(admin: Admin, topics: Collection[str]) -> None:
    """From these topics and from all brokers that are alive."""
    view = await admin.metadata(topics)
    for topic in sorted(view.topics):
        await admin.alter_config(ConfigResource.topic(topic), dict.fromkeys((LEADER_REPLICAS, FOLLOWER_REPLICAS)))
    for node in sorted(view.nodes):
        await admin.alter_config(ConfigResource.broker(node), dict.fromkeys((LEADER_RATE, FOLLOWER_RATE)))


# -- from the start to the end -----------------------------------------------------------------------------------------


class MovesUnderWayError(ApiError):
    """Other partitions are moving: the throttles of two plans would mix."""

    def __init__(self, partitions: Collection[TopicPartition]) -> None:
        names = ", ".join(map(str, sorted(partitions)[:5]))
        super().__init__(ErrorCode.REASSIGNMENT_IN_PROGRESS, f"partitions are moving already: {names}")


@dataclass(frozen=True, slots=True)
class Started:
    """What was there before, by which everything can be sent back, and what could not be started."""

    before: Mapping[TopicPartition, tuple[int, ...]]
    errors: Mapping[TopicPartition, ApiError] = field(default_factory=dict)

    def changed(self, plan: Plan) -> list[TopicPartition]:
        """What does not stay where it was."""
        return [
            partition
            for partition, target in plan.items()
            if partition not in self.errors
            and (target.replicas != self.before[partition] or any(target.named_directories()))
        ]


async def execute(admin: Admin, plan: Plan, *, bytes_per_s: int | None = None, is_additional: bool = False) -> Started:
    """Starts the moves of a plan; it returns before they are done. `is_additional` allows others to be in progress."""
    view = await admin.metadata({partition.topic for partition in plan})
    before = {partition: view.topic(partition.topic).partition(partition.partition).replicas for partition in plan}
    ongoing = await admin.list_reassignments()
    if ongoing and not is_additional:
        raise MovesUnderWayError(ongoing)
    if bytes_per_s is not None:
        moves = {partition: (each.origin, each.target) for partition, each in ongoing.items()}
        moves |= {
            partition: (ongoing[partition].origin if partition in ongoing else before[partition], target.replicas)
            for partition, target in plan.items()
        }
        await _set_throttle(admin, throttle_of(moves), bytes_per_s, view.nodes)
    errors = await _choose_directories(admin, plan)
    outcomes = await _alter(admin, {partition: target.replicas for partition, target in plan.items()})
    errors |= {partition: error for partition, error in outcomes.items() if error is not None}
    if bytes_per_s is not None and not ongoing and errors.keys() >= plan.keys():
        await remove_throttle(admin, {partition.topic for partition in plan})  # for nothing
    return Started(before, errors)


async def _alter(
    admin: Admin, targets: Mapping[TopicPartition, tuple[int, ...] | None]
) -> dict[TopicPartition, ApiError | None]:
    """In portions, each with a time of its own: the controller writes the moves one by one, and would still be at it
    when the time of a request about thousands is up."""
    outcomes: dict[TopicPartition, ApiError | None] = {}
    partitions = list(targets)
    for start in range(0, len(partitions), ALTERED_AT_ONCE):
        portion = partitions[start : start + ALTERED_AT_ONCE]
        outcomes |= await admin.alter_reassignments({partition: targets[partition] for partition in portion})
    return outcomes


async def _choose_directories(admin: Admin, plan: Plan) -> dict[TopicPartition, ApiError]:
    """Tells brokers the directories that a plan names: of replicas that they have, and of those that are to come."""
    errors: dict[TopicPartition, ApiError] = {}
    for node, directories in _directories_by_broker(plan).items():
        outcomes = await admin.alter_replica_log_dirs(node, directories)
        errors |= {
            partition: error
            for partition, error in outcomes.items()
            if error is not None and error.code is not ErrorCode.REPLICA_NOT_AVAILABLE
        }
    return errors


def _directories_by_broker(plan: Plan) -> dict[int, dict[TopicPartition, str]]:
    by_broker: dict[int, dict[TopicPartition, str]] = {}
    for partition, target in plan.items():
        for node, path in target.named_directories():
            by_broker.setdefault(node, {})[partition] = path
    return by_broker


class Standing(StrEnum):
    COMPLETE = "complete"
    MOVING = "moving"
    DIFFERENT = "different"  # it does not move, and is not where the plan wants it


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where a partition of a plan stands; `remaining` are the brokers of its target to which it is still to be copied.

    A replica that is out of sync where nothing moves is none of them: the plan is done, and its broker may be down.
    """

    standing: Standing
    replicas: tuple[int, ...]
    target: tuple[int, ...]
    remaining: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    verdicts: Mapping[TopicPartition, Verdict]
    is_anything_moving: bool  # also what is not in the plan

    def of(self, standing: Standing) -> list[TopicPartition]:
        return [partition for partition, verdict in self.verdicts.items() if verdict.standing is standing]

    @property
    def remaining_replicas(self) -> int:
        return sum(len(verdict.remaining) for verdict in self.verdicts.values())


async def look(admin: Admin, plan: Plan) -> Progress:
    """Where the partitions of a plan stand now."""
    ongoing = await admin.list_reassignments()
    view = await admin.metadata({partition.topic for partition in plan})
    verdicts = {
        partition: verdict_of(view, partition, target.replicas, ongoing.get(partition))
        for partition, target in sorted(plan.items())
    }
    for partition in await _in_other_directories(admin, plan):
        if verdicts[partition].standing is Standing.COMPLETE:
            verdict = verdicts[partition]
            verdicts[partition] = Verdict(Standing.MOVING, verdict.replicas, verdict.target, ())
    return Progress(verdicts, bool(ongoing))


def verdict_of(
    view: ClusterView, partition: TopicPartition, target: tuple[int, ...], ongoing: OngoingReassignment | None
) -> Verdict:
    found = view.topic(partition.topic).partition(partition.partition)
    remaining = tuple(node for node in target if node not in found.isr)
    if ongoing is not None:
        return Verdict(Standing.MOVING, found.replicas, target, remaining)
    if found.replicas == target:
        return Verdict(Standing.COMPLETE, found.replicas, target, ())
    return Verdict(Standing.DIFFERENT, found.replicas, target, remaining)


async def _in_other_directories(admin: Admin, plan: Plan) -> set[TopicPartition]:
    """Partitions with a replica that is not in the directory that the plan names, or still on its way there."""
    missing: set[TopicPartition] = set()
    for node, paths in _directories_by_broker(plan).items():
        there = {
            replica.partition: directory.path
            for directory in await admin.describe_log_dirs(node, list(paths))
            for replica in directory.replicas
            if not replica.is_future
        }
        missing |= {partition for partition, path in paths.items() if there.get(partition) != path}
    return missing


async def follow(admin: Admin, plan: Plan) -> AsyncIterator[Progress]:
    """Looks again and again, until nothing of the plan moves.

    The broker that is asked may learn of the end of a move a moment after the controller, which no longer lists it:
    what is neither moving nor as planned is looked at some times more.
    """
    looks_left = LOOKS_AT_THE_END
    while True:
        progress = await look(admin, plan)
        yield progress
        if progress.of(Standing.MOVING):
            looks_left = LOOKS_AT_THE_END
        elif not progress.of(Standing.DIFFERENT) or not looks_left:
            return
        else:
            looks_left -= 1
        await asyncio.sleep(LOOK_S)


async def cancel(admin: Admin, plan: Plan) -> dict[TopicPartition, ApiError | None]:
    """Stops the moves of a plan that are in progress: their partitions stay where they were."""
    ongoing = await admin.list_reassignments(list(plan))
    return await _alter(admin, dict.fromkeys(ongoing))

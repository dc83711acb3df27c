"""Brings a classic member to its coordinator: joins, heartbeats, revocations in the right order.

A rebalance goes through stages. Those that concern the user's code (commit, listeners, a new assignment) happen inside
`advance`, which only a poll calls; what waits for brokers is a task beside it. Heartbeats have a task of their
own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from ottla.client.consumer.assignors import ASSIGNORS, Assignor
from ottla.client.consumer.commits import Identity, Outcome
from ottla.client.consumer.membership.classic import Assignments, ClassicMember, ClassicOptions, State, Step
from ottla.client.consumer.membership.runner import UNPOLLED, UNPOLLED_LOSS, Runner, cancelled, names_of, why_lost
from ottla.client.consumer.parts import GroupParts, Parts
from ottla.client.consumer.topic_watch import TopicWatch
from ottla.client.errors import SettingsError
from ottla.client.metadata import Lane
from ottla.client.retrying import Deadline, error_of, is_passing
from ottla.client.settings import ConsumerSettings
from ottla.client.values import ConsumerGroupMetadata
from ottla.errors import ApiError, ErrorCode
from ottla.net.client import ConnectionFailedError
from ottla.protocol.messages.groups import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from ottla.runtime.signal import Signal

log = logging.getLogger("ottla.client.consumer")

JOIN_SLACK_S: Final = 5.0  # beyond the time that members have for joining


def assignors_of(settings: ConsumerSettings) -> tuple[Assignor, ...]:
    """Assignors by name or as objects, in order of preference."""
    found: list[Assignor] = []
    for given in settings.partition_assignment_strategy:
        if not isinstance(given, str):
            found.append(given)
        elif (name := _short_name(given)) in ASSIGNORS:
            found.append(ASSIGNORS[name])
        else:
            raise SettingsError(
                "partition_assignment_strategy",
                f"partition_assignment_strategy cannot be {given!r}: there are {', '.join(ASSIGNORS)}",
            )
    if not found:
        raise SettingsError("partition_assignment_strategy", "partition_assignment_strategy is empty")
    return tuple(found)


def _short_name(given: str) -> str:
    """Java names classes."""
    classes = {
        "RangeAssignor": "range",
        "RoundRobinAssignor": "roundrobin",
        "StickyAssignor": "sticky",
        "CooperativeStickyAssignor": "cooperative-sticky",
    }
    return classes.get(given.rpartition(".")[2], given)


class ClassicRunner(Runner):
    def __init__(self, parts: Parts, group: GroupParts, topics: TopicWatch) -> None:
        super().__init__(parts, group, topics)
        settings = parts.settings
        self._member = ClassicMember(
            ClassicOptions(
                group.group_id,
                assignors_of(settings),
                settings.group_instance_id,
                settings.client_rack or None,
                settings.session_timeout_s,
                settings.heartbeat_interval_s,
                settings.max_poll_interval_s,
            )
        )
        self._joined_version = -1  # of the subscription that was sent to the group last
        self._partition_counts: dict[str, int] = {}  # as the leader shared them out
        self._join: asyncio.Task[None] | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        self._generation_began = Signal()
        self._reason = "the consumer starts"

    # -- who we are ----------------------------------------------------------------------------------------------------

    def identity(self) -> Identity:
        return Identity(self._member.member_id, self._member.generation, self._member.options.instance_id)

    def metadata(self) -> ConsumerGroupMetadata:
        member = self._member
        return ConsumerGroupMetadata(
            self._group.group_id, member.generation, member.member_id, member.options.instance_id
        )

    def commit_rejected(self, outcome: Outcome, identity: Identity) -> None:
        member = self._member
        if identity != self.identity():
            return  # of a generation that is over already
        if outcome is Outcome.NOT_A_MEMBER:
            self._why_lost = "a commit was refused, as of no member; it joins again"
            member.left()
        elif outcome is Outcome.REBALANCING:
            member.rejoin()

    def enforce_rebalance(self, reason: str) -> None:
        self._reason = reason
        self._member.rejoin()

    def topics_seen(self) -> None:
        """The leader assigns again when topics have got partitions."""
        if not self._partition_counts:
            return
        known = self._parts.cluster.known_topics()
        counts = {topic: len(known[topic].partitions) for topic in self._partition_counts if topic in known}
        if any(counts[topic] != self._partition_counts[topic] for topic in counts):
            self._reason = "the partitions of a topic have changed"
            self._member.rejoin()

    # -- a rebalance ---------------------------------------------------------------------------------------------------

    async def advance(self) -> None:
        self._raise_failure()
        member = self._member
        if self._join is not None:
            if not self._join.done():
                return
            join, self._join = self._join, None
            join.result()
            if member.state is State.STABLE:
                await self._take_assignment()
        if member.is_lost and self._join is None:
            member.lost_taken_note_of()
            await self._lose_all()
        if self._needs_join():
            await self._prepare()

    def _needs_join(self) -> bool:
        subscription = self._parts.subscription
        if not subscription.is_of_group or not subscription.topics:
            return False
        return self._member.needs_rejoin or self._joined_version != subscription.version

    async def _prepare(self) -> None:
        """What comes before a join: a commit of what was done, and the revocation of what is not kept."""
        parts, positions = self._parts, self._parts.positions
        if self._member.options.is_cooperative:
            going = {each for each in positions if each.topic not in parts.subscription.topics}
        else:
            going = set(positions)
        positions.revoke_soon(going)
        commits = parts.commits_before_revoking and len(positions) and self._member.generation >= 0
        if (commits or self._commit is not None) and not await self._commit_first(going, persists=False):
            return
        if going:
            await self._revoke(going)
        # A listener may have changed the subscription: what is sent to the group is read now.
        self._joined_version = parts.subscription.version
        self._join = asyncio.get_running_loop().create_task(self._join_and_sync(), name="ottla-join")
        self._join.add_done_callback(lambda done: parts.moved.fire())

    async def _take_assignment(self) -> None:
        parts, member = self._parts, self._member
        new, old = set(member.assigned), set(parts.positions)
        revoked, added = old - new, new - old
        if revoked:
            # Cooperative: what goes to others is given up now, and another round hands it on.
            parts.positions.revoke_soon(revoked)
            if parts.commits_before_revoking:
                await self._commit_all(revoked, persists=False)
            await self._revoke(revoked)
            self._reason = "partitions were given up for other members"
            member.rejoin()
        log.info(
            "[group %s] assigned %s in generation %d", self._group.group_id, names_of(added) or "nothing new",
            member.generation,
        )  # fmt: skip
        await self._take(new, added)

    async def _join_and_sync(self) -> None:
        """Until this member has an assignment, or has to give up what it holds first."""
        member, parts = self._member, self._parts
        pauses = iter(parts.pauses)
        while True:
            try:
                step, code = await self._join_once()
            except (ApiError, ConnectionFailedError) as error:
                if not is_passing(error):
                    raise
                log.debug("[group %s] joining failed and is tried again: %s", self._group.group_id, error)
                await asyncio.sleep(next(pauses))
                continue
            match step:
                case Step.GO_ON:
                    return
                case Step.REJOIN:
                    continue
                case Step.LOST:
                    self._why_lost = why_lost(code)
                    # What a cooperative member holds has to be given up in a poll; others have nothing to lose.
                    if len(parts.positions):
                        return
                    member.lost_taken_note_of()
                case Step.FIND_COORDINATOR:
                    self._group.coordinator.forget()
                    await asyncio.sleep(next(pauses))
                case Step.WAIT:
                    await asyncio.sleep(next(pauses))
                case Step.FAIL:
                    refusal = error_of(code, None, f"joining the group {self._group.group_id}")
                    raise refusal or ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group chose another protocol")

    async def _join_once(self) -> tuple[Step, int]:
        member, coordinator = self._member, self._group.coordinator
        self._parts.metrics.coordinator.rebalance_began(self._parts.now())
        request = member.join_request(self._parts.subscription.topics, self._parts.positions, self._reason)
        timeout_s = max(self._parts.settings.request_timeout_s, member.options.max_poll_interval_s + JOIN_SLACK_S)
        await coordinator.find()
        joined = await coordinator.ask(request, JoinGroupResponse, lane=Lane.JOIN, timeout_s=timeout_s)
        step = member.joined(joined, self._parts.now())
        if step is not Step.GO_ON:
            return step, joined.error_code
        self._start_heartbeats()
        assignments: Assignments = {}
        self._partition_counts = {}
        if member.group_members:
            assignments = member.assignments(await self._topics_of_group())
        sync = member.sync_request(assignments)
        synced = await coordinator.ask(sync, SyncGroupResponse, lane=Lane.JOIN, timeout_s=timeout_s)
        return member.synced(synced, self._parts.now()), synced.error_code

    async def _topics_of_group(self) -> dict[str, list[frozenset[str]]]:
        """What the leader shares out: the partitions of all topics that members subscribe to, with their racks."""
        cluster, wanted = self._parts.cluster, self._member.topics_of_group
        self._topics.extra = wanted - self._parts.subscription.topics
        view = await cluster.view(sorted(wanted), may_create=False)
        nodes = view.nodes
        found = {}
        for name, topic in view.topics.items():
            found[name] = [
                frozenset(nodes[each].rack or "" for each in partition.replicas if each in nodes) - {""}
                for partition in topic.partitions
            ]
        self._partition_counts = {name: len(partitions) for name, partitions in found.items()}
        return found

    # -- heartbeats ----------------------------------------------------------------------------------------------------

    def _start_heartbeats(self) -> None:
        self._generation_began.fire()
        if self._heartbeats is None or self._heartbeats.done():
            self._heartbeats = asyncio.get_running_loop().create_task(self._beat(), name="ottla-heartbeats")

    async def _beat(self) -> None:
        member, parts = self._member, self._parts
        pauses: Iterator[float] = iter(parts.pauses)
        while True:
            due = member.heartbeat_due
            now = parts.now()
            if due is None:
                if member.state is State.UNJOINED:
                    return  # the next join starts from the beginning
                await self._generation_began.wait()
                continue
            if not self._is_polled and (over_s := member.poll_overdue_s(self._last_poll, now)) > 0:
                await self._leave_unpolled(over_s)
                return
            if due > now:
                until_overdue_s = -member.poll_overdue_s(self._last_poll, now) + 0.001
                wait_s = due - now
                await asyncio.sleep(wait_s if self._is_polled else min(wait_s, max(0.0, until_overdue_s)))
                continue
            request, asked_at = member.heartbeat_request(), parts.now()
            try:
                response = await self._group.coordinator.ask(
                    request, HeartbeatResponse, timeout_s=self._heartbeat_timeout_s
                )
            except (ApiError, ConnectionFailedError) as error:
                log.debug("[group %s] a heartbeat failed: %s", self._group.group_id, error)
                if member.heartbeat_failed(parts.now(), next(pauses)):
                    self._group.coordinator.forget()
                continue
            parts.metrics.coordinator.heartbeat_answered(asked_at, parts.now())
            step = member.handle_heartbeat(request, response.error_code, parts.now())
            if step is Step.GO_ON:
                pauses = iter(parts.pauses)
                continue
            self._take_heartbeat(step, response.error_code, next(pauses))

    @property
    def _heartbeat_timeout_s(self) -> float:
        return min(self._parts.settings.request_timeout_s, self._member.options.session_timeout_s)

    def _take_heartbeat(self, step: Step, code: int, pause_s: float) -> None:
        member = self._member
        match step:
            case Step.FIND_COORDINATOR:
                self._group.coordinator.forget()
                member.heartbeat_failed(self._parts.now(), pause_s)
            case Step.WAIT:
                member.heartbeat_failed(self._parts.now(), pause_s)
            case Step.REJOIN:
                self._reason = "the group rebalances"
            case Step.FAIL:
                self._failure = error_of(code, None, f"a heartbeat to the group {self._group.group_id}")
                member.left()
            case Step.LOST:
                self._why_lost = why_lost(code)
            case _:
                pass
        self._parts.moved.fire()

    async def _leave_unpolled(self, over_s: float) -> None:
        member = self._member
        log.warning(UNPOLLED, self._group.group_id, over_s, member.options.max_poll_interval_s)
        request = member.leave_request("nobody polled for longer than max.poll.interval.ms")
        self._why_lost = UNPOLLED_LOSS
        member.left()
        if request is not None:
            await self._send_leave(request, LeaveGroupResponse, Deadline.after(self._heartbeat_timeout_s))

    # -- leaving -------------------------------------------------------------------------------------------------------

    async def leave(self, deadline: Deadline) -> None:
        member = self._member
        is_rebalancing = self._join is not None and len(self._parts.positions) > 0
        await self.stop()
        request = member.leave_request("the consumer is closed or has unsubscribed")
        await self._give_up_all(is_lost=member.is_lost or is_rebalancing or not member.member_id)
        if request is not None:
            await self._send_leave(request, LeaveGroupResponse, deadline)
        member.left()
        member.lost_taken_note_of()

    async def stop(self) -> None:
        tasks = self._join, self._commit, self._heartbeats
        self._join = self._commit = self._heartbeats = None
        await cancelled(*tasks)

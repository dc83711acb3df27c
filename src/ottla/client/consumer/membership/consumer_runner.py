"""Brings a member of the consumer protocol (KIP-848) to its coordinator: one heartbeat after the other, in a task.

What the coordinator wants changed is changed inside `advance`, which only a poll calls: positions are then those of
records that the user has had, and what goes to others is committed before it goes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from uuid import UUID

from ottla.client.consumer.commits import Identity, Outcome
from ottla.client.consumer.membership.classic import Step
from ottla.client.consumer.membership.consumer import (
    ConsumerMember,
    ConsumerOptions,
    Interest,
    State,
)
from ottla.client.consumer.membership.runner import UNPOLLED, UNPOLLED_LOSS, Runner, cancelled, names_of, why_lost
from ottla.client.consumer.parts import GroupParts, Parts
from ottla.client.consumer.subscription import BrokerPattern
from ottla.client.consumer.topic_watch import TopicWatch
from ottla.client.retrying import Deadline, error_of, is_passing
from ottla.client.values import ConsumerGroupMetadata
from ottla.errors import ApiError, OttlaError
from ottla.ids import TopicPartition
from ottla.net.client import ConnectionFailedError
from ottla.protocol.messages.consumer_groups import ConsumerGroupHeartbeatResponse
from ottla.runtime.signal import Signal

log = logging.getLogger("ottla.client.consumer")


class ConsumerRunner(Runner):
    def __init__(self, parts: Parts, group: GroupParts, topics: TopicWatch) -> None:
        super().__init__(parts, group, topics)
        settings = parts.settings
        self._member = ConsumerMember(
            ConsumerOptions(
                group.group_id,
                str(UUID(int=parts.rng.getrandbits(128), version=4)),
                settings.group_instance_id,
                settings.client_rack or None,
                settings.group_remote_assignor,
                settings.max_poll_interval_s,
            )
        )
        self._heartbeats: asyncio.Task[None] | None = None
        self._resolving: asyncio.Task[None] | None = None
        self._names: dict[UUID, str] = {}
        self._beat_now = Signal()

    # -- who we are ----------------------------------------------------------------------------------------------------

    def identity(self) -> Identity:
        options = self._member.options
        return Identity(options.member_id, self._member.epoch, options.instance_id)

    def metadata(self) -> ConsumerGroupMetadata:
        options = self._member.options
        return ConsumerGroupMetadata(self._group.group_id, self._member.epoch, options.member_id, options.instance_id)

    def commit_rejected(self, outcome: Outcome, identity: Identity) -> None:
        """The next heartbeat finds out whether this member is still known."""
        if outcome is Outcome.NOT_A_MEMBER:
            self._member.beat_at_once()
            self._beat_now.fire()

    def enforce_rebalance(self, reason: str) -> None:
        """The coordinator assigns by itself: there is nothing to enforce."""

    def topics_seen(self) -> None:
        self._learn_names()

    # -- reconciliation ------------------------------------------------------------------------------------------------

    async def advance(self) -> None:
        self._raise_failure()
        if not self._parts.subscription.is_of_group:
            return
        member = self._member
        if member.state in (State.FENCED, State.STALE):
            await self._give_up_lost()
        self._subscribe()
        if member.has_new_target:
            await self._reconcile()

    def _subscribe(self) -> None:
        wanted = self._parts.subscription.wanted
        pattern = wanted.expression if isinstance(wanted, BrokerPattern) else None
        interest = Interest(tuple(sorted(self._parts.subscription.topics)), pattern)
        if not interest.topics and interest.pattern is None:
            return
        if interest != self._member.interest or self._member.state is State.UNSUBSCRIBED:
            self._member.subscribe(interest)
            self._beat_now.fire()
        if self._heartbeats is None or self._heartbeats.done():
            self._heartbeats = asyncio.get_running_loop().create_task(self._beat(), name="ottla-heartbeats")

    async def _give_up_lost(self) -> None:
        await self._lose_all()
        self._member.gave_up_everything()
        self._beat_now.fire()

    async def _reconcile(self) -> None:
        """From what is owned to what the coordinator wants, as far as the names of topics are known."""
        parts, member = self._parts, self._member
        self._learn_names()
        wanted = {
            TopicPartition(self._names[each.topic_id], each.partition): each
            for each in member.target
            if each.topic_id in self._names
        }
        if len(wanted) < len(member.target) and self._resolving is None:
            self._resolving = asyncio.get_running_loop().create_task(self._resolve(), name="ottla-topic-ids")
        owned, new = set(parts.positions), set(wanted)
        revoked, added = owned - new, new - owned
        if not revoked and not added:
            if len(wanted) == len(member.target):
                member.acknowledge(wanted.values())
                self._beat_now.fire()
            return
        parts.metrics.coordinator.rebalance_began(parts.now())
        if revoked:
            parts.positions.revoke_soon(revoked)
        commits = bool(revoked) and parts.commits_before_revoking
        if (commits or self._commit is not None) and not await self._commit_first(revoked, persists=True):
            return
        if revoked:
            await self._revoke(revoked)
        if added:
            log.info("[group %s] assigned %s in epoch %d", self._group.group_id, names_of(added), member.epoch)
        await self._take(new, added)
        member.acknowledge(wanted.values())
        self._beat_now.fire()

    def _learn_names(self) -> None:
        for topic in self._parts.cluster.known_topics().values():
            self._names[topic.topic_id] = topic.name

    async def _resolve(self) -> None:
        """Topics that the coordinator names by ids that nobody here has heard of: the list of all explains them."""
        try:
            await self._parts.cluster.view(None)
            self._learn_names()
        except OttlaError as error:
            log.debug("[group %s] topics could not be listed: %s", self._group.group_id, error)
            await asyncio.sleep(next(iter(self._parts.pauses)))
        finally:
            self._resolving = None
            self._parts.moved.fire()

    # -- heartbeats ----------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        member, parts = self._member, self._parts
        pauses: Iterator[float] = iter(parts.pauses)
        while True:
            due, now = member.heartbeat_due, parts.now()
            if due is None:
                await self._beat_now.wait()
                continue
            if not self._is_polled and (over_s := member.poll_overdue_s(self._last_poll, now)) > 0:
                await self._leave_unpolled(over_s)
                continue
            if due > now:
                until_overdue_s = -member.poll_overdue_s(self._last_poll, now) + 0.001
                await self._beat_now.wait(due - now if self._is_polled else min(due - now, max(0.0, until_overdue_s)))
                continue
            asked_at = parts.now()
            try:
                response = await self._group.coordinator.ask(
                    member.request(),
                    ConsumerGroupHeartbeatResponse,
                    timeout_s=parts.settings.request_timeout_s,
                )
            except (ApiError, ConnectionFailedError) as error:
                log.debug("[group %s] a heartbeat failed: %s", self._group.group_id, error)
                member.failed(parts.now(), next(pauses))
                if not is_passing(error):
                    self._failure = error
                    parts.moved.fire()
                continue
            parts.metrics.coordinator.heartbeat_answered(asked_at, parts.now())
            step = member.handle_response(response, parts.now())
            if step is Step.GO_ON:
                pauses = iter(parts.pauses)
            elif step is Step.LOST:
                self._why_lost = why_lost(response.error_code, response.error_message)
            elif step in (Step.WAIT, Step.FIND_COORDINATOR):
                member.failed(parts.now(), next(pauses))
                if step is Step.FIND_COORDINATOR:
                    self._group.coordinator.forget()
            if step is Step.FAIL or (step is Step.WAIT and response.error_message):
                error_found = error_of(response.error_code, response.error_message, f"the group {self._group.group_id}")
                if error_found is not None and not error_found.code.retriable:
                    self._failure = error_found
            parts.moved.fire()

    async def _leave_unpolled(self, over_s: float) -> None:
        member = self._member
        log.warning(UNPOLLED, self._group.group_id, over_s, member.options.max_poll_interval_s)
        request = member.leave_request()
        self._why_lost = UNPOLLED_LOSS
        member.went_stale()
        if request is not None:
            deadline = Deadline.after(self._parts.settings.request_timeout_s)
            await self._send_leave(request, ConsumerGroupHeartbeatResponse, deadline)

    # -- leaving -------------------------------------------------------------------------------------------------------

    async def leave(self, deadline: Deadline) -> None:
        member = self._member
        await self.stop()
        request = member.leave_request()
        await self._give_up_all(is_lost=member.state in (State.FENCED, State.STALE, State.FATAL))
        if request is not None:
            await self._send_leave(request, ConsumerGroupHeartbeatResponse, deadline)
        member.left()

    async def stop(self) -> None:
        tasks = self._heartbeats, self._commit, self._resolving
        self._heartbeats = self._commit = None
        await cancelled(*tasks)

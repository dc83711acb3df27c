"""ConsumerGroupHeartbeat: joining, staying in and leaving a group whose coordinator assigns (KIP-848).

A heartbeat says what changed; the answer says what the member is to do next. If what the group reads has changed, its
epoch moves on; if the epoch is ahead of the target assignment, a new one is worked out; then the member goes a step
from what it has to what it is to have. All of it is one decision: state changes when its records are applied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from ottla.decisions import CoordinatorRecord, Decision, Ticket
from ottla.errors import ApiError, ErrorCode
from ottla.groups.assignors import ASSIGNORS, Assignment, MemberSpec
from ottla.groups.consumer import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ClassicDetails,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    ResolvedRegex,
    topics_of,
)
from ottla.groups.consumer_records import (
    assignment_epoch_record,
    current_record,
    group_record,
    member_record,
    member_tombstones,
    metadata_hash,
    regex_record,
    regex_tombstone,
    target_record,
)
from ottla.groups.group import Caller, GroupDecision
from ottla.groups.partitions import NO_PARTITIONS, Partitions, each_partition, is_subset, read_partitions
from ottla.groups.patterns import TopicPattern
from ottla.groups.reconciliation import Target, reconcile
from ottla.groups.shard import GroupShard, TimerKey, TimerKind
from ottla.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
)

JOIN_EPOCH: Final = 0
# Since this version members make up their ids themselves, so that a repeated first heartbeat is known as such.
_MEMBER_NAMES_ITSELF: Final = 1
# Topics come and go by the dozen; patterns are matched against them once in a while.
REGEX_REFRESH_MIN_INTERVAL_MS: Final = 10_000


class MemberUpdate(NamedTuple):
    """What a member says of itself, in either protocol; None where it says nothing new."""

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    topics: frozenset[str] | None = None
    regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    classic: ClassicDetails | None = None
    may_describe: Callable[[str], bool] | None = None  # of whoever sends it


@dataclass(slots=True)
class HeartbeatStep:
    """What follows from an update: the member before and after, and the records."""

    before: ConsumerMember
    after: ConsumerMember
    # When the assignment that the group needs may be worked out; 0 if nothing is put off.
    assignable_ms: int = 0
    records: list[CoordinatorRecord] = field(default_factory=list)


class ConsumerRequests:
    """The decisions about consumer groups of one shard."""

    __slots__ = ("_shard",)

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard

    # --- heartbeats

    def check(self, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> None:
        """What can be said of a heartbeat without looking at the group."""
        epoch = request.member_epoch
        for name, text in (
            ("group id", request.group_id),
            ("instance id", request.instance_id),
            ("rack id", request.rack_id),
        ):
            if text is not None and not text.strip():
                raise _invalid(f"the {name} is empty")
        if not request.member_id and (epoch != JOIN_EPOCH or caller.api_version >= _MEMBER_NAMES_ITSELF):
            raise _invalid("the member id is empty")
        if epoch < LEAVE_STATIC_EPOCH:
            raise _invalid(f"{epoch} is not a member epoch")
        if epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
            raise _invalid("only a member with an instance id leaves for a while")
        if epoch == JOIN_EPOCH:
            if request.rebalance_timeout_ms == -1:
                raise _invalid("the rebalance timeout is missing in the first heartbeat")
            if request.topic_partitions is None or request.topic_partitions:
                raise _invalid("a member that joins has no partitions, and says so")
            if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
                raise _invalid("the subscription is missing in the first heartbeat")
        assignors = self._shard.settings.consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in assignors:
            raise ApiError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {request.server_assignor} is not supported. "
                f"Supported assignors: {', '.join(assignors)}.",
            )

    def heartbeat(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller, ticket: Ticket, now_ms: int
    ) -> Decision:
        """One that joins or stays. `group` may be one that only the records of this decision will bring to life."""
        epoch = request.member_epoch
        member_id = request.member_id or self._shard.new_id()
        self.check_room(group, member_id, request.instance_id)
        owned = None if request.topic_partitions is None else read_partitions(request.topic_partitions)
        member, records = self._member_of(group, member_id, request.instance_id, epoch, owned)
        timeout_ms = request.rebalance_timeout_ms
        names = request.subscribed_topic_names
        update = MemberUpdate(
            member_id,
            caller.client_id,
            caller.client_host,
            request.instance_id,
            request.rack_id,
            None if timeout_ms == -1 else timeout_ms,
            None if names is None else frozenset(names),
            request.subscribed_topic_regex,
            request.server_assignor,
            owned,
            may_describe=caller.may_describe,
        )
        step = self.advance(group, member, update, records, now_ms)
        config = self._shard.consumer_config(group.group_id)
        self._shard.touch(group.group_id, member_id, config.consumer_session_timeout_ms, now_ms)
        self._watch_revocation(group, step, now_ms)
        says_topics = names is not None or request.subscribed_topic_regex is not None
        is_full = epoch == JOIN_EPOCH or (timeout_ms != -1 and says_topics and owned is not None)
        reply = self._reply(step, is_full, config.consumer_heartbeat_interval_ms, now_ms)
        return self.decision(group, step, (ticket, reply))

    def decision(self, group: ConsumerGroup, step: HeartbeatStep, reply: tuple[Ticket, object]) -> GroupDecision:
        undo = partial(self._take_back, group, [step.before])
        return GroupDecision(step.records, [reply], undo=undo)

    def _take_back(self, group: ConsumerGroup, members: list[ConsumerMember], now_ms: int) -> Decision:
        """Nothing was written: members that are still there have their deadlines again, topics are looked at again."""
        group.seen_topics = None
        for member in members:
            if member.member_id in group.members:
                self._start_timers(group, member, now_ms)
        return Decision()

    @staticmethod
    def _reply(step: HeartbeatStep, is_full: bool, interval_ms: int, now_ms: int) -> ConsumerGroupHeartbeatResponse:
        """The assignment is sent if it changed, or after a full heartbeat: the member may have missed something."""
        assignment = None
        if is_full or step.before.assigned != step.after.assigned:
            assignment = ConsumerGroupHeartbeatResponseAssignment(
                topic_partitions=[
                    ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=sorted(found))
                    for topic_id, found in step.after.assigned.items()
                ]
            )
        if step.assignable_ms:
            # Whoever waits for an assignment that was put off should come for it when it is due.
            interval_ms = max(1, min(interval_ms, step.assignable_ms - now_ms))
        return ConsumerGroupHeartbeatResponse(
            member_id=step.after.member_id,
            member_epoch=step.after.epoch,
            heartbeat_interval_ms=interval_ms,
            assignment=assignment,
        )

    def check_room(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
        limit = self._shard.settings.consumer_max_size
        is_known = member_id in group.members or group.static_member(instance_id) is not None
        if len(group.members) >= limit and not is_known:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def _member_of(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, epoch: int, owned: Partitions | None
    ) -> tuple[ConsumerMember, list[CoordinatorRecord]]:
        """The member that sends a heartbeat, new or known, and the records by which it takes over from another."""
        if epoch == JOIN_EPOCH:
            existing = group.static_member(instance_id)
            if existing is None:
                return group.members.get(member_id) or ConsumerMember(member_id), []
            # Its own member id makes no difference: who has not left may be another process that is still running.
            if not existing.is_classic and existing.epoch != LEAVE_STATIC_EPOCH:
                raise ApiError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                    f"instance id is owned by {existing.member_id} member.",
                )
            return self.take_over(group, existing, member_id)
        member = group.check_member(member_id, instance_id)
        is_last_reply_lost = epoch == member.previous_epoch and owned is not None and is_subset(owned, member.assigned)
        if epoch != member.epoch and not (epoch < member.epoch and is_last_reply_lost):
            raise ApiError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The consumer group member has the epoch {epoch}, the group coordinator knows {member.epoch}. "
                "The member must abandon all its partitions and rejoin.",
            )
        return member, []

    @staticmethod
    def take_over(
        group: ConsumerGroup, existing: ConsumerMember, member_id: str
    ) -> tuple[ConsumerMember, list[CoordinatorRecord]]:
        """A static member comes back, mostly under another member id, and gets what it had."""
        member = replace(existing, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
        if member_id == existing.member_id:
            return member, []
        target = group.target.get(existing.member_id, NO_PARTITIONS)
        return member, [
            *member_tombstones(group.group_id, existing.member_id),
            member_record(group.group_id, member),
            target_record(group.group_id, member_id, target),
            current_record(group.group_id, member),
        ]

    # --- the three steps

    def advance(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        update: MemberUpdate,
        records: list[CoordinatorRecord],
        now_ms: int,
        *,
        may_assign: bool = True,
    ) -> HeartbeatStep:
        """Subscription, target assignment, reconciliation: what follows from what a member says.

        Without `may_assign` the group is about to be a classic one, whose leader assigns: if an assignment is due, the
        member waits for that.
        """
        group_id = group.group_id
        wall_ms = self._shard.wall_ms(now_ms)
        replaced = group.static_member(update.instance_id)
        replaced_id = None if replaced is None else replaced.member_id
        after = _updated(member, update)
        step = HeartbeatStep(before=member, after=after, records=records)
        if after is not member or (member.member_id not in group.members and not records):
            records.append(member_record(group_id, after))
        # Whether a new member makes a difference depends on what it reads, as with any other.
        has_other_names, has_other_regex = after.topics != member.topics, after.regex != member.regex
        reads_others = has_other_names or has_other_regex
        epoch, regexes = group.epoch, group.regexes
        if reads_others or self._has_to_look(group, wall_ms):
            members = _with(group, after, replaced_id)
            regexes = self._resolved(group, members, records, wall_ms, after.regex, update.may_describe)
            known = metadata_hash(topics_of(members, regexes), self._shard.topics)
            uses_resolved = has_other_regex and (not after.regex or after.regex in group.regexes)
            match_others = uses_resolved or _match_other_topics(regexes, group.regexes)
            if has_other_names or match_others or known != group.metadata_hash:
                epoch += 1
                records.append(group_record(group_id, epoch, known))
        target_epoch = group.assignment_epoch
        target = group.target.get(replaced_id or update.member_id, NO_PARTITIONS)
        if epoch > target_epoch and not may_assign:
            return step
        if epoch > target_epoch:
            interval_ms = self._shard.consumer_config(group_id).consumer_assignment_interval_ms
            due_ms = group.assignment_timestamp_ms + interval_ms
            if group.assignment_timestamp_ms and group.assignment_timestamp_ms <= wall_ms < due_ms:
                step.assignable_ms = now_ms + due_ms - wall_ms
            else:
                target_epoch = epoch
                assignment = self._assign(group, _with(group, after, replaced_id), regexes, replaced_id, records)
                records.append(assignment_epoch_record(group_id, epoch, wall_ms))
                target = assignment[update.member_id]
        if reads_others or not after.is_reconciled_to(target_epoch):
            may_have = Target(target, target_epoch, self._ids_of(after, regexes), group.has_owner)
            step.after = reconcile(after, may_have, update.owned, reads_others=reads_others)
        if step.after is not after and step.after != after:
            records.append(current_record(group_id, step.after))
        return step

    def _has_to_look(self, group: ConsumerGroup, wall_ms: int) -> bool:
        """Whether topics have changed since the group last looked, or a pattern is due."""
        return group.seen_topics is not self._shard.topics or any(
            self._is_due(group, known, wall_ms) for known in group.regexes.values()
        )

    def _is_due(self, group: ConsumerGroup, known: ResolvedRegex, wall_ms: int) -> bool:
        """By the time in its record, for it outlives this process. One of the future: the clock was set back."""
        interval_ms = self._shard.settings.consumer_regex_refresh_interval_ms
        if group.seen_topics is not self._shard.topics:
            interval_ms = REGEX_REFRESH_MIN_INTERVAL_MS
        return not 0 <= wall_ms - known.timestamp_ms < interval_ms

    def _ids_of(self, member: ConsumerMember, regexes: dict[str, ResolvedRegex]) -> frozenset[UUID]:
        """The topics that a member reads, those that there are."""
        known = self._shard.topics.topics
        found = regexes.get(member.regex)
        names = member.topics if found is None else member.topics | found.topics
        return frozenset(known[name].topic_id for name in names if name in known)

    def _resolved(
        self,
        group: ConsumerGroup,
        members: dict[str, ConsumerMember],
        records: list[CoordinatorRecord],
        wall_ms: int,
        own_regex: str,
        may_describe: Callable[[str], bool] | None,
    ) -> dict[str, ResolvedRegex]:
        """The patterns that members use and the topics they stand for: new ones at once, others once in a while.

        Where not everybody may see everything, a pattern stands for what the member that uses it may see, so it waits
        for the next heartbeat of such a member.
        """
        resolved: dict[str, ResolvedRegex] = {}
        is_put_off = False
        for regex in sorted({member.regex for member in members.values() if member.regex}):
            known = group.regexes.get(regex)
            is_of_others = may_describe is not None and regex != own_regex
            if known is not None and (is_of_others or not self._is_due(group, known, wall_ms)):
                is_put_off = True
                resolved[regex] = known
                continue
            topics = self._matching(regex, known)
            if may_describe is not None:
                topics = frozenset() if is_of_others else frozenset(filter(may_describe, topics))
            resolved[regex] = ResolvedRegex(topics, wall_ms)
            records.append(regex_record(group.group_id, regex, topics, wall_ms))
        records.extend(regex_tombstone(group.group_id, regex) for regex in group.regexes if regex not in resolved)
        if not is_put_off:
            group.seen_topics = self._shard.topics
        return resolved

    def _matching(self, regex: str, known: ResolvedRegex | None) -> frozenset[str]:
        try:
            return TopicPattern(regex).matching(self._shard.topics.topics)
        except ApiError:
            if known is None:
                raise
            # It could be read before and has become too slow for the topics that there are now. Whoever sends this
            # heartbeat may not even be the one who uses it: what it matched stays.
            return known.topics

    def _assign(
        self,
        group: ConsumerGroup,
        members: dict[str, ConsumerMember],
        regexes: dict[str, ResolvedRegex],
        replaced_id: str | None,
        records: list[CoordinatorRecord],
    ) -> Assignment:
        """Works out a new target assignment for these members."""
        known = self._shard.topics.topics
        # Members that read the same share one set.
        ids_of: dict[tuple[frozenset[str], str], frozenset[UUID]] = {}
        specs = {}
        for member_id, member in members.items():
            reads = (member.topics, member.regex)
            if reads not in ids_of:
                ids_of[reads] = self._ids_of(member, regexes)
            is_replacing = member_id not in group.members and replaced_id is not None
            before = group.target.get(replaced_id if is_replacing and replaced_id else member_id, NO_PARTITIONS)
            specs[member_id] = MemberSpec(ids_of[reads], before, member.instance_id)
        assignor = group.preferred_assignor(members, self._shard.settings.consumer_assignors[0])
        read = {topic_id for ids in ids_of.values() for topic_id in ids}
        names_by_id = self._shard.topics.names
        sizes = {topic_id: known[names_by_id[topic_id]].partition_count for topic_id in read}
        assignment = ASSIGNORS[assignor](specs, sizes)
        records.extend(
            target_record(group.group_id, member_id, target)
            for member_id, target in assignment.items()
            if target != specs[member_id].target or member_id not in group.target
        )
        return assignment

    def _watch_revocation(self, group: ConsumerGroup, step: HeartbeatStep, now_ms: int) -> None:
        """A member that is to give up partitions has its rebalance timeout to do so."""
        key = TimerKey(TimerKind.REVOCATION, group.group_id, step.after.member_id)
        if step.after.state != MemberState.UNREVOKED_PARTITIONS:
            self._shard.timers.cancel(key)
        elif step.after is not step.before or key not in self._shard.timers:
            self._shard.timers.set(key, now_ms + step.after.rebalance_timeout_ms)

    # --- leaving

    def leave(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, ticket: Ticket, now_ms: int
    ) -> Decision:
        member = group.check_member(request.member_id, request.instance_id)
        reply = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch, heartbeat_interval_ms=0
        )
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            # Whoever comes back in its place may commit what it has, whatever epoch that will be.
            kept_since = dict.fromkeys(each_partition(member.assigned), JOIN_EPOCH)
            away = replace(member, epoch=LEAVE_STATIC_EPOCH, revoking=NO_PARTITIONS, assignment_epochs=kept_since)
            return Decision([current_record(group.group_id, away)], [(ticket, reply)])
        assert request.member_epoch == LEAVE_EPOCH
        decided = self.fence(group, [member], now_ms)
        decided.replies.append((ticket, reply))
        return decided

    def fence(self, group: ConsumerGroup, gone: list[ConsumerMember], now_ms: int) -> GroupDecision:
        """Takes out members. The others get what they had by their next heartbeats."""
        group_id = group.group_id
        records: list[CoordinatorRecord] = []
        left = dict(group.members)
        for member in gone:
            del left[member.member_id]
            records += member_tombstones(group_id, member.member_id)
            self.forget_timers(group_id, member.member_id)
        used = {member.regex for member in left.values()}
        regexes = {regex: found for regex, found in group.regexes.items() if regex in used}
        records.extend(regex_tombstone(group_id, regex) for regex in group.regexes if regex not in used)
        records.append(
            group_record(group_id, group.epoch + 1, metadata_hash(topics_of(left, regexes), self._shard.topics))
        )
        if left and all(member.is_classic for member in left.values()) and self._shard.settings.allows_downgrade:
            self._shard.timers.set(TimerKey(TimerKind.MIGRATION, group_id), now_ms)
        return GroupDecision(records, undo=partial(self._take_back, group, gone))

    def forget_timers(self, group_id: str, member_id: str) -> None:
        for kind in (TimerKind.SESSION, TimerKind.REVOCATION, TimerKind.JOIN, TimerKind.SYNC):
            self._shard.timers.cancel(TimerKey(kind, group_id, member_id))

    # --- time

    def expire(self, group: ConsumerGroup, key: TimerKey, now_ms: int) -> Decision:
        """A member is silent, or did not give up its partitions, join or sync in time."""
        member = group.members.get(key.member_id)
        if member is None:
            return Decision()
        if key.kind == TimerKind.REVOCATION and member.state != MemberState.UNREVOKED_PARTITIONS:
            return Decision()
        return self.fence(group, [member], now_ms)

    def loaded(self, group: ConsumerGroup, now_ms: int) -> None:
        for member in group.members.values():
            self._start_timers(group, member, now_ms)
        if group.members and group.classic_member_count == len(group.members):
            self._shard.timers.set(TimerKey(TimerKind.MIGRATION, group.group_id), now_ms)

    def _start_timers(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        else:
            timeout_ms = self._shard.consumer_config(group.group_id).consumer_session_timeout_ms
        self._shard.touch(group.group_id, member.member_id, timeout_ms, now_ms)
        if member.state == MemberState.UNREVOKED_PARTITIONS and not member.is_classic:
            key = TimerKey(TimerKind.REVOCATION, group.group_id, member.member_id)
            self._shard.timers.set(key, now_ms + member.rebalance_timeout_ms)


def _updated(member: ConsumerMember, update: MemberUpdate) -> ConsumerMember:
    """The member with what it says of itself; what it does not say stays. Nearly always it says nothing new."""
    changes = {
        name: said
        for name, said in (
            ("instance_id", update.instance_id),
            ("rack_id", update.rack_id),
            ("client_id", update.client_id),
            ("client_host", update.client_host),
            ("rebalance_timeout_ms", update.rebalance_timeout_ms),
            ("topics", update.topics),
            ("regex", update.regex),
            ("server_assignor", update.server_assignor),
        )
        if said is not None and said != getattr(member, name)
    }
    if not changes and update.classic == member.classic:
        return member
    return replace(member, classic=update.classic, **changes)  # type: ignore[arg-type]


def _match_other_topics(regexes: dict[str, ResolvedRegex], before: dict[str, ResolvedRegex]) -> bool:
    """Whether a pattern stands for other topics than before; one that was not there stood for none."""
    return any(
        found.topics != (before[regex].topics if regex in before else frozenset()) for regex, found in regexes.items()
    )


def _with(group: ConsumerGroup, member: ConsumerMember, replaced_id: str | None) -> dict[str, ConsumerMember]:
    """The members as they will be."""
    members = {each_id: each for each_id, each in group.members.items() if each_id != replaced_id}
    members[member.member_id] = member
    return members


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)

"""How a member comes from what it has to what it is to have (KIP-848).

It first gives up what is not in its target. Only when it has said so does its epoch move on, and it gets what others
have given up; the rest follows as they do. So a partition has one owner at every time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from ottla.errors import ApiError, ErrorCode
from ottla.groups.consumer import ConsumerMember, MemberState
from ottla.groups.partitions import (
    NO_PARTITIONS,
    AssignmentEpochs,
    Partitions,
    difference,
    each_partition,
    intersection,
    union,
)


class Target(NamedTuple):
    """What a member is to have and may have."""

    partitions: Partitions
    epoch: int
    # The topics that it reads. A target may be of before it changed its mind, or of topics that are gone.
    topic_ids: Collection[UUID]
    has_owner: Callable[[UUID, int], bool]


def reconcile(
    member: ConsumerMember, target: Target, owned: Partitions | None, *, reads_others: bool = False
) -> ConsumerMember:
    """The member a step further. `owned` is what it says to have; None if it does not say.

    `reads_others`: it has just changed what it reads. What it reads no longer it gives up at once.
    """
    match member.state:
        case MemberState.STABLE:
            if member.epoch != target.epoch:
                return _step(member, member.epoch, target, owned)
            return _without_unread(member, target, owned) if reads_others else member
        case MemberState.UNREVOKED_PARTITIONS:
            if not _still_has(member.revoking, owned):
                return _step(member, member.epoch, target, owned)
            return _without_unread(member, target, owned) if reads_others else member
        case MemberState.UNRELEASED_PARTITIONS:
            return _step(member, member.epoch, target, owned)
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise ApiError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "the member is in a state of a newer broker version: it must rejoin",
                )
            return _step(member, target.epoch, target, owned)


def _still_has(revoking: Partitions, owned: Partitions | None) -> bool:
    return owned is None or bool(intersection(owned, revoking))


def _without_unread(member: ConsumerMember, target: Target, owned: Partitions | None) -> ConsumerMember:
    """The target is as before; partitions of topics that the member does not read any more it gives up already."""
    kept = {topic_id: found for topic_id, found in member.assigned.items() if topic_id in target.topic_ids}
    if len(kept) == len(member.assigned):
        return member
    revoking = union(member.revoking, difference(member.assigned, kept))
    if _still_has(revoking, owned):
        return replace(member, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking)
    return replace(member, assigned=kept, assignment_epochs=_epochs(member, kept))


def _step(member: ConsumerMember, epoch: int, target: Target, owned: Partitions | None) -> ConsumerMember:
    wanted = {topic_id: found for topic_id, found in target.partitions.items() if topic_id in target.topic_ids}
    kept = intersection(member.assigned, wanted)
    to_revoke = difference(member.assigned, kept)
    if to_revoke and _still_has(to_revoke, owned):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            epoch=epoch,
            previous_epoch=_previous_epoch(member, epoch),
            assigned=kept,
            revoking=to_revoke,
            assignment_epochs=_epochs(member, kept, to_revoke),
        )
    free: dict[UUID, set[int]] = {}
    is_complete = True
    for topic_id, partition in each_partition(difference(wanted, kept)):
        # What it has given up itself it may have again.
        if target.has_owner(topic_id, partition) and partition not in member.revoking.get(topic_id, ()):
            is_complete = False
        else:
            free.setdefault(topic_id, set()).add(partition)
    gained = {topic_id: frozenset(found) for topic_id, found in free.items()}
    return replace(
        member,
        state=MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS,
        epoch=target.epoch,
        previous_epoch=_previous_epoch(member, target.epoch),
        assigned=union(kept, gained),
        revoking=NO_PARTITIONS,
        assignment_epochs={**_epochs(member, kept), **dict.fromkeys(each_partition(gained), target.epoch)},
    )


def _previous_epoch(member: ConsumerMember, epoch: int) -> int:
    """A member that has missed the last reply comes with the epoch before its own, however long it has been in that."""
    return member.previous_epoch if epoch == member.epoch else member.epoch


def _epochs(member: ConsumerMember, *held: Partitions) -> AssignmentEpochs:
    """When each of these partitions, which the member has had, was assigned to it."""
    return {each: member.assignment_epochs[each] for partitions in held for each in each_partition(partitions)}

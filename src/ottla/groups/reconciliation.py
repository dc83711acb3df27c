"""How a member comes from what it has to what it is to have (KIP-848).

It first gives up what is not in its target. Only when it has said so does its epoch move on, and it gets what others
have given up; the rest follows as they do. So a partition has one owner at every time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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


def reconcile(
    member: ConsumerMember,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    has_owner: Callable[[UUID, int], bool],
) -> ConsumerMember:
    """The member a step further. `owned` is what it says to have; None if it does not say."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch == target_epoch:
                return member
            return _step(member, member.epoch, target, target_epoch, owned, has_owner)
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_has(member.revoking, owned):
                return member
            return _step(member, member.epoch + 1, target, target_epoch, owned, has_owner)
        case MemberState.UNRELEASED_PARTITIONS:
            return _step(member, member.epoch, target, target_epoch, owned, has_owner)
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise ApiError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "the member is in a state that only a newer broker knows: it must join again",
                )
            return _step(member, target_epoch, target, target_epoch, owned, has_owner)


def _still_has(revoking: Partitions, owned: Partitions | None) -> bool:
    return owned is None or bool(intersection(owned, revoking))


def _step(
    member: ConsumerMember,
    epoch: int,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    has_owner: Callable[[UUID, int], bool],
) -> ConsumerMember:
    kept = intersection(member.assigned, target)
    to_revoke = difference(member.assigned, kept)
    if to_revoke and _still_has(to_revoke, owned):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            epoch=epoch,
            previous_epoch=_previous_epoch(member, epoch),
            assigned=kept,
            revoking=to_revoke,
            assignment_epochs=_epochs(member, target_epoch, kept, to_revoke),
        )
    missing = difference(target, kept)
    free: dict[UUID, set[int]] = {}
    is_complete = True
    for topic_id, partition in each_partition(missing):
        if has_owner(topic_id, partition):
            is_complete = False
        else:
            free.setdefault(topic_id, set()).add(partition)
    assigned = union(kept, {topic_id: frozenset(found) for topic_id, found in free.items()})
    return replace(
        member,
        state=MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS,
        epoch=target_epoch,
        previous_epoch=_previous_epoch(member, target_epoch),
        assigned=assigned,
        revoking=NO_PARTITIONS,
        assignment_epochs=_epochs(member, target_epoch, assigned),
    )


def _previous_epoch(member: ConsumerMember, epoch: int) -> int:
    """A member that has missed the last reply comes with the epoch before its own, however long it has been in that."""
    return member.previous_epoch if epoch == member.epoch else member.epoch


def _epochs(member: ConsumerMember, target_epoch: int, *held: Partitions) -> AssignmentEpochs:
    """When each partition was assigned: as before, or now."""
    known = member.assignment_epochs
    return {each: known.get(each, target_epoch) for partitions in held for each in each_partition(partitions)}

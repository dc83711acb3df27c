"""Cooperative sticky: the sticky assignor's result, reached in two rounds.

Members keep what they read while the group rebalances, so a partition that changes hands is given to nobody at first:
its owner gives it up and asks for another round, in which it has no owner and goes where it belongs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.client.consumer.assignors import sticky
from ottla.client.consumer.assignors.spec import NO_GENERATION, Assignment, Member, Topics
from ottla.client.consumer.assignors.wire import decode_generation, encode_generation
from ottla.ids import TopicPartition


class CooperativeStickyAssignor:
    name = "cooperative-sticky"
    is_cooperative = True

    def user_data(self, assigned: Iterable[TopicPartition], generation: int) -> bytes | None:
        return None if generation == NO_GENERATION else encode_generation(generation)

    def assign(self, members: Mapping[str, Member], topics: Topics) -> Assignment:
        claims = sticky.claims_of({member_id: _dated(member) for member_id, member in members.items()})
        assignment = sticky.balance(members, topics, claims)
        for member_id, partitions in assignment.items():
            assignment[member_id] = [each for each in partitions if not claims.is_taken_from(each, member_id)]
        return assignment


def _dated(member: Member) -> Member:
    """Subscriptions before version 2 have their generation in the user data only."""
    if member.generation != NO_GENERATION or not member.user_data:
        return member
    return member._replace(generation=decode_generation(member.user_data))

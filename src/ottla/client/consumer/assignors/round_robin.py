"""Round robin: all partitions in a row, members in a ring, one each in turn to the next who subscribes to the topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.client.consumer.assignors.spec import Assignment, Member, Topics, readers_of, static_first
from ottla.ids import TopicPartition


class RoundRobinAssignor:
    name = "roundrobin"
    is_cooperative = False

    def user_data(self, assigned: Iterable[TopicPartition], generation: int) -> bytes | None:
        return None

    def assign(self, members: Mapping[str, Member], topics: Topics) -> Assignment:
        assignment: Assignment = {member_id: [] for member_id in members}
        ring = static_first(members)
        place = 0
        for topic in readers_of(members, ring, topics):
            for number in range(len(topics[topic])):
                while topic not in members[ring[place]].topics:
                    place = (place + 1) % len(ring)
                assignment[ring[place]].append(TopicPartition(topic, number))
                place = (place + 1) % len(ring)
        return assignment

"""What a controller still has to say to a broker that does not answer, in as few requests as will do. Pure.

A broker may be registered and out of the controller's reach for hours, while in-sync replicas come and go: a request
for each of those changes would fill the memory, and the broker would live through all of them afterwards. Only the
latest state of a partition counts, so requests of one kind become one. UpdateMetadata comes before LeaderAndIsr then: a
follower finds the address of its leader in the metadata. Nothing passes a StopReplica, after which a partition may come
again; nor do two topics of one name meet in one request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Any, TypeVar

from ottla.cluster.control_batch import ControlRequest
from ottla.ids import TopicPartition
from ottla.protocol.messages.replication import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest

OnAnswer = TypeVar("OnAnswer")  # comes with each request; of several that become one, the last stays


def coalesced(backlog: Iterable[tuple[ControlRequest, OnAnswer]]) -> list[tuple[ControlRequest, OnAnswer]]:
    """Requests that say the same in the end."""
    said: list[tuple[ControlRequest, OnAnswer]] = []
    metadata: list[tuple[ControlRequest, OnAnswer]] = []
    roles: list[tuple[ControlRequest, OnAnswer]] = []
    for request, on_answer in backlog:
        if isinstance(request, StopReplicaRequest):
            said += [*_merged(metadata), *_merged(roles), (request, on_answer)]
            metadata, roles = [], []
        elif isinstance(request, UpdateMetadataRequest):
            metadata.append((request, on_answer))
        else:
            roles.append((request, on_answer))
    return [*said, *_merged(metadata), *_merged(roles)]


def _merged(requests: Sequence[tuple[Any, OnAnswer]]) -> Iterator[tuple[ControlRequest, OnAnswer]]:
    """One for each run of requests in which no topic has two ids."""
    run: list[tuple[Any, OnAnswer]] = []
    ids: dict[str, object] = {}
    for request, on_answer in requests:
        named = {topic.topic_name: topic.topic_id for topic in request.topic_states}
        if any(ids.get(name, topic_id) != topic_id for name, topic_id in named.items()):
            yield _one(run)
            run, ids = [], {}
        run.append((request, on_answer))
        ids.update(named)
    if run:
        yield _one(run)


def _one(run: Sequence[tuple[Any, OnAnswer]]) -> tuple[ControlRequest, OnAnswer]:
    """The last request, with what those before it say of other partitions."""
    last, on_answer = run[-1]
    topics: dict[str, Any] = {}
    states: dict[TopicPartition, Any] = {}
    for request, _ in run:
        for topic in request.topic_states:
            topics[topic.topic_name] = topic
            for state in topic.partition_states:
                name = TopicPartition(topic.topic_name, state.partition_index)
                states[name] = _still_new(states.get(name), state)
    by_topic: dict[str, list[Any]] = {name: [] for name in topics}
    for name, state in states.items():
        by_topic[name.topic].append(state)
    merged: ControlRequest = copy(last)  # the requests themselves are other brokers' as well
    merged.topic_states = [_with_states(topic, by_topic[name]) for name, topic in topics.items()]
    if isinstance(merged, LeaderAndIsrRequest):
        leaders = {leader.broker_id: leader for request, _ in run for leader in request.live_leaders}
        merged.live_leaders = list(leaders.values())
    return merged, on_answer


def _still_new(before: Any, state: Any) -> Any:
    """A replica that the broker has not heard of yet is new, whatever else has happened to it meanwhile."""
    if getattr(before, "is_new", False) and not state.is_new:
        state = copy(state)
        state.is_new = True
    return state


def _with_states(topic: Any, states: list[Any]) -> Any:
    changed = copy(topic)
    changed.partition_states = states
    return changed

"""What leaders ask of their controller: another set of in-sync replicas (AlterPartition)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ottla.cluster.controller_context import ControllerContext
from ottla.cluster.image import PartitionState
from ottla.controller.term import Term
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.replication.leader import UNKNOWN_BROKER_EPOCH


@dataclass(frozen=True, slots=True)
class IsrRequest:
    """What one leader asks for one partition."""

    leader_epoch: int
    version: int
    isr: tuple[int, ...]
    is_recovering: bool = False
    # The registrations in which the replicas have what the leader says, where it says so.
    broker_epochs: Mapping[int, int] = field(default_factory=dict)


async def alter(
    term: Term, requests: Mapping[TopicPartition, IsrRequest]
) -> dict[TopicPartition, PartitionState | ErrorCode]:
    """The state of each partition afterwards, or why it stays as it is."""
    context = term.context
    outcomes: dict[TopicPartition, PartitionState | ErrorCode] = {}
    changes: dict[TopicPartition, PartitionState] = {}
    for partition, request in requests.items():
        state = context.find(partition)
        if state is None or partition.topic in context.deleting:
            outcomes[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            continue
        decided = decide(state, request, _eligible(context, state, request))
        if isinstance(decided, ErrorCode) or decided is state:
            outcomes[partition] = decided
        else:
            changes[partition] = decided
    written = await term.write_states(changes)
    for partition in changes:
        outcomes[partition] = context.state(partition) if partition in written else ErrorCode.INVALID_UPDATE_VERSION
    if written:
        # The leader has its answer; the others learn of it as metadata.
        term.batch.update_metadata(context.brokers, sorted(written))
        term.send()
    return outcomes


def _eligible(context: ControllerContext, state: PartitionState, request: IsrRequest) -> Iterator[int]:
    """The replicas that are alive, not about to leave, and still in the registration in which they caught up.

    One that has registered again may have lost records since, and the request may have been on its way for long.
    """
    for node in state.replicas:
        broker = context.brokers.get(node)
        if broker is None or node in context.shutting_down:
            continue
        if request.broker_epochs.get(node, UNKNOWN_BROKER_EPOCH) in (UNKNOWN_BROKER_EPOCH, broker.epoch):
            yield node


def decide(state: PartitionState, request: IsrRequest, eligible: Iterable[int]) -> PartitionState | ErrorCode:
    """The new state, the same one where it is what was asked for, or a refusal. The order of the checks is Kafka's."""
    if request.version > state.version or request.leader_epoch > state.leader_epoch:
        return ErrorCode.NOT_CONTROLLER  # the leader knows a later state: another broker is the controller
    if request.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request.isr == state.isr and request.is_recovering == state.is_recovering:
        return state  # asked for again, because the first answer was lost
    if request.version < state.version:
        return ErrorCode.INVALID_UPDATE_VERSION
    if request.is_recovering and (len(request.isr) > 1 or not state.is_recovering):
        return ErrorCode.INVALID_REQUEST
    if not set(request.isr) <= set(eligible):
        return ErrorCode.INELIGIBLE_REPLICA
    return replace(state, isr=request.isr, is_recovering=request.is_recovering, version=state.version + 1)

"""A controller's term: what is known, fenced writes, and the requests that are sent after them.

Every write is conditional on the controller's epoch. One that fails that condition ends the term: `ControllerMoved`
goes up to whoever runs it, and everything known is dropped. If the answer to a write is lost, the node is read, and
written again if it has to be. Nothing is sent before it is written, and nothing is known that was not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from ottla.cluster import nodes
from ottla.cluster.control_batch import ControlBatch, ControlRequest
from ottla.cluster.controller_context import ControllerContext
from ottla.cluster.image import PartitionState
from ottla.controller.peers import Peers
from ottla.controller.settings import ControllerSettings
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.store.api import (
    BadVersion,
    Check,
    Create,
    Delete,
    Node,
    NoNode,
    NotAllowed,
    Operation,
    Put,
    Result,
    SessionLost,
    SessionState,
    Store,
    StoreError,
    StoreUnavailable,
)

logger = logging.getLogger(__name__)

Key = TypeVar("Key")


class ControllerMoved(OttlaError):  # noqa: N818 (what happened, not a mistake)
    """Somebody else is the controller, or will be: this term is over."""


class Term:
    """The time from one election of a controller to its end."""

    def __init__(
        self,
        context: ControllerContext,
        store: Store,
        peers: Peers,
        settings: ControllerSettings,
        on_response: Callable[[int, ControlRequest, Any], None],
    ) -> None:
        """`on_response` is called with each response of a broker."""
        self.context = context
        self.store = store
        self.settings = settings
        self._session_id = store.session.session_id
        self._peers = peers
        self._on_response = on_response
        self.batch = ControlBatch()

    # -- brokers -------------------------------------------------------------------------------------------------------

    def send(self) -> None:
        """Sends what the batch has gathered."""
        batch, self.batch = self.batch, ControlBatch()
        for node_id, requests in batch.requests(self.context, self.settings.listener_name).items():
            for request in requests:
                self._peers.send(node_id, request, partial(self._on_response, node_id, request))

    def notify_replicas(self, partition: TopicPartition, *, is_new: bool = False, leaving: int | None = None) -> None:
        """Adds a partition's state to the batch: for its replicas except `leaving`, and as metadata for all brokers."""
        holders = [node for node in self.context.online_replicas(partition) if node != leaving]
        self.batch.lead_or_follow(holders, partition, is_new=is_new)

    # -- reading -------------------------------------------------------------------------------------------------------

    async def get(self, path: str) -> Node | None:
        """Reads a node, however long the store cannot be reached."""
        while True:
            try:
                return await self.store.get(path)
            except SessionLost as error:
                raise ControllerMoved(str(error)) from error
            except StoreUnavailable:
                await self._reconnected()

    async def get_many(self, paths: Mapping[Key, str]) -> dict[Key, Node | None]:
        found = await asyncio.gather(*(self.get(path) for path in paths.values()))
        return dict(zip(paths, found, strict=True))

    async def children(self, path: str) -> list[str]:
        while True:
            try:
                return await self.store.children(path)
            except NoNode:
                return []
            except SessionLost as error:
                raise ControllerMoved(str(error)) from error
            except StoreUnavailable:
                await self._reconnected()

    async def _reconnected(self) -> None:
        """Waits for the store; a session that has ended was the term's."""
        session = self.store.session
        while session.state is SessionState.SUSPENDED:
            await session.changed.wait()
        if session.state is SessionState.LOST or session.session_id != self._session_id:
            raise ControllerMoved("the session with the metadata store has ended")

    # -- writing -------------------------------------------------------------------------------------------------------

    async def write(self, operation: Operation) -> Result | StoreError:
        """Makes one change, or returns the rule of the tree that is against it."""
        fence = Check(nodes.CONTROLLER_EPOCH, self.context.epoch_version)
        while True:
            try:
                return (await self.store.commit(fence, operation))[1]
            except (BadVersion, NoNode) as refusal:
                if refusal.path == nodes.CONTROLLER_EPOCH:
                    raise ControllerMoved(str(refusal)) from refusal
                return refusal
            except SessionLost as error:
                raise ControllerMoved(str(error)) from error
            except StoreUnavailable:
                await self._reconnected()
                result = await self._result_if_done(operation)
                if result is not None:
                    return result
            except StoreError as refusal:
                return refusal

    async def _result_if_done(self, operation: Operation) -> Result:
        """What a change whose answer was lost has come to; None where it has to be made (again)."""
        node = await self.get(operation.path)
        match operation:
            case Put(_, data, version) if node is not None and node.data == data:
                return node.version if node.version == version + 1 else None
            case Create(path, data) if node is not None and node.data == data:
                return path
            case Delete(path) if node is None:
                return path
            case _:
                return None

    async def write_many(self, operations: Mapping[Key, Operation]) -> dict[Key, Result | StoreError]:
        """Makes changes one by one, pipelined: together they might not fit, and one that fails stops no other."""
        results = await asyncio.gather(*(self.write(operation) for operation in operations.values()))
        return dict(zip(operations, results, strict=True))

    async def write_states(self, changes: Mapping[TopicPartition, PartitionState]) -> set[TopicPartition]:
        """Writes new states of partitions, each conditional on the one that is known; returns those that were written.

        Where somebody was faster the newer state is known afterwards, and what to do about it has to be decided again.
        """
        context = self.context
        known = {partition: context.state(partition) for partition in changes}
        results = await self.write_many(
            {
                partition: Put(
                    nodes.state_path(*partition), nodes.encode_state(state, context.epoch), known[partition].version
                )
                for partition, state in changes.items()
            }
        )
        written = {partition: changes[partition] for partition, result in results.items() if isinstance(result, int)}
        context.set_states(written)
        missed = [partition for partition, result in results.items() if not isinstance(result, int)]
        if missed:
            await self.read_states(missed)
            for partition in missed:
                if isinstance(results[partition], NotAllowed):
                    logger.error("the state of %s stays as it is: %s", partition, results[partition])
                else:
                    logger.info("the state of %s was changed by another broker: %s", partition, results[partition])
        return set(written)

    async def read_states(self, partitions: list[TopicPartition]) -> None:
        """Reads the states of partitions again."""
        context = self.context
        found = await self.get_many({partition: nodes.state_path(*partition) for partition in partitions})
        states = {}
        for partition, node in found.items():
            before, path = context.state(partition), nodes.state_path(*partition)
            try:
                if node is None:
                    raise nodes.MetadataError(path, "is gone")
                state = nodes.decode_state(path, node.data, before.replicas, node.version)
            except nodes.MetadataError as error:
                logger.error("%s; the partition stays as it is until that is repaired", error)
                continue
            states[partition] = replace(state, adding=before.adding, removing=before.removing)
        context.set_states(states)

"""Changes of metadata in a cluster, as Kafka makes them with ZooKeeper: whoever is asked writes what is wanted to the
store; the controller sees it there, does the rest and tells all brokers.

Topics are created, extended and deleted by the broker that is the controller: it has the newest view, and clients find
it. Automatic creation and settings are any broker's. A change is complete when this broker has learned of it from
the controller.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final
from uuid import UUID

from ottla.broker.client_quotas import Charge, free_of_charge
from ottla.broker.config_changes import ConfigChanges
from ottla.broker.controller import config_entity
from ottla.broker.metadata_changes import ANSWER_S, RequestedTopic, decide_requested, unless_there
from ottla.cluster import nodes
from ottla.cluster.controller_context import unwritten
from ottla.cluster.image import (
    CLUSTER_METADATA_TOPIC,
    INTERNAL_TOPICS,
    NO_LEADER,
    ClusterImage,
    PartitionState,
    TopicState,
)
from ottla.cluster.topics import decide_more_partitions
from ottla.config.dynamic import ConfigResourceType, ConfigScope, DynamicConfigs
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.runtime.signal import Signal
from ottla.store.api import (
    Check,
    Create,
    Delete,
    NodeExists,
    Operation,
    Put,
    SessionState,
    Store,
    StoreError,
    StoreUnavailable,
    parent_of,
)
from ottla.store.recipes import ensure_path, until_available, until_undisturbed

logger = logging.getLogger(__name__)

UNAVAILABLE_S: Final = 2.0  # how long a change waits for the store before whoever asked is answered
AUTO_CREATE_S: Final = 2.0  # the same where it did not ask for it, and will ask again


class ClusterMetadata:
    """Implements `MetadataChanges` on the store of a cluster."""

    def __init__(
        self,
        store: Store,
        image: Callable[[], ClusterImage],
        image_changed: Signal,
        configs: Callable[[], DynamicConfigs],
        config_changes: ConfigChanges,
        is_controller: Callable[[], bool],
        rng: random.Random,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._image = image
        self._image_changed = image_changed
        self._configs = configs
        self._config_changes = config_changes
        self._is_controller = is_controller
        self._rng = rng
        self._now = now
        self._changing_settings = asyncio.Lock()  # of this broker, so that few have to decide again

    def check_controller(self) -> None:
        if not self._is_controller():
            raise ApiError(
                ErrorCode.NOT_CONTROLLER, "this broker is not the controller: see the metadata for which one is"
            )

    async def _wait_for_image(self, is_there: Callable[[ClusterImage], bool], wait_s: float) -> bool:
        """Waits until this broker knows of a change; False if it does not within that time."""
        deadline = self._now() + wait_s
        while not is_there(self._image()):
            left_s = deadline - self._now()
            if left_s <= 0:
                return False
            await self._image_changed.wait(left_s)
        return True

    # -- creating ------------------------------------------------------------------------------------------------------

    async def create_topics(
        self,
        all_requested: Iterable[RequestedTopic],
        *,
        validate_only: bool = False,
        wait_s: float = ANSWER_S,
        charge: Charge = free_of_charge,
    ) -> list[TopicState | ApiError]:
        requested = list(all_requested)
        try:
            self.check_controller()
        except ApiError as error:
            return [error for _ in requested]
        return await self._create(requested, wait_s, charge, validate_only=validate_only)

    async def _create(
        self,
        all_requested: Iterable[RequestedTopic],
        wait_s: float,
        charge: Charge = free_of_charge,
        *,
        validate_only: bool = False,
    ) -> list[TopicState | ApiError]:
        outcomes: list[TopicState | ApiError] = []
        image = self._image()
        for requested in all_requested:
            try:
                topic, config = decide_requested(requested, image, self._configs(), self._rng)
                if not validate_only:
                    charge(len(topic.partitions))
                    await self._write_topic(topic, config)
                image = image.with_topics([topic])  # what is asked for next must not look like it
                outcomes.append(topic)
            except ApiError as error:
                outcomes.append(error)
        if validate_only:
            return outcomes
        deadline = self._now() + wait_s  # of all together
        return [
            await self._created(outcome, deadline - self._now()) if isinstance(outcome, TopicState) else outcome
            for outcome in outcomes
        ]

    async def _write_topic(self, topic: TopicState, config: dict[str, str]) -> None:
        """Settings and assignment in one commit: nobody finds one without the other.

        Not while a topic of that name is being deleted: what is deleted last would be the new one's.
        """
        path, data = nodes.config_path("topics", topic.name), nodes.encode_config(config)
        creation = Create(nodes.topic_path(topic.name), nodes.encode_topic(topic))
        mark = nodes.deletion_path(topic.name)
        new: list[Operation] = [Create(mark), Delete(mark), creation]  # no other operation asks whether a node is not

        async def write() -> bool:
            """False where there is a topic of that name."""
            try:
                try:
                    await self._store.commit(Create(path, data), *new)
                except NodeExists as error:
                    if error.path != path:
                        raise
                    # Left behind by a topic of that name: it must not rule the new one.
                    await self._store.commit(Put(path, data), *new)
            except NodeExists:
                node = await self._store.get(creation.path)
                return node is not None and node.data == creation.data  # ours: the first answer was lost
            return True

        try:
            is_written = await until_available(lambda: until_undisturbed(write), UNAVAILABLE_S)
        except StoreError as error:
            raise _not_written(error) from error
        if not is_written:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, await self._why_it_exists(topic.name))

    async def _why_it_exists(self, name: str) -> str:
        with suppress(StoreError):
            if await self._store.get(nodes.deletion_path(name)) is not None:
                return f"topic {name} is being deleted, and exists until {await self._who_has_to_delete(name)}"
        return f"topic {name} already exists"

    async def _who_has_to_delete(self, name: str) -> str:
        path = nodes.topic_path(name)
        node = await self._store.get(path)
        if node is not None:
            with suppress(nodes.MetadataError):
                partitions = [unwritten(each.replicas) for each in nodes.decode_assignment(path, node.data).partitions]
                if absent := self._absent_holders(partitions):
                    names = ", ".join(map(str, absent))
                    return f"brokers that are away are back and have deleted their replicas: {names}"
        return "every broker has deleted its replicas"

    async def _created(self, topic: TopicState, wait_s: float) -> TopicState | ApiError:
        def is_led(image: ClusterImage) -> bool:
            known = image.topics.get(topic.name)
            return (
                known is not None
                and known.topic_id == topic.topic_id
                and len(known.partitions) >= len(topic.partitions)
                and all(state.leader != NO_LEADER for state in known.partitions)
            )

        if await self._wait_for_image(is_led, wait_s):
            return topic
        return ApiError(ErrorCode.REQUEST_TIMED_OUT, f"topic {topic.name} is being created")

    async def auto_create(self, names: Iterable[str], *, charge: Charge = free_of_charge) -> dict[str, ApiError | None]:
        names = list(names)
        new = [name for name in names if name not in INTERNAL_TOPICS and name != CLUSTER_METADATA_TOPIC]
        outcomes = await self._create(map(RequestedTopic, new), AUTO_CREATE_S, charge)
        created = {name: _unless_under_way(outcome) for name, outcome in zip(new, outcomes, strict=True)}
        own = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "only brokers create this topic")
        return {name: created.get(name) if name in created else own for name in names}

    async def create_unless_there(self, requested: RequestedTopic) -> ApiError | None:
        (outcome,) = await self._create([requested], ANSWER_S)
        if isinstance(outcome, ApiError) and outcome.code == ErrorCode.TOPIC_ALREADY_EXISTS:
            # Another broker was faster: this one does not know of it yet.
            await self._wait_for_image(lambda image: requested.name in image.topics, AUTO_CREATE_S)
        return unless_there(outcome)

    # -- extending and deleting ----------------------------------------------------------------------------------------

    async def create_partitions(
        self,
        name: str,
        total: int,
        assignments: Sequence[Sequence[int]] | None,
        *,
        validate_only: bool = False,
        wait_s: float = ANSWER_S,
        charge: Charge = free_of_charge,
    ) -> TopicState:
        self.check_controller()
        if name not in self._image().topics:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        is_charged = False

        async def write() -> TopicState:
            nonlocal is_charged
            topic, version = await self._assigned(name)
            if any(state.adding or state.removing for state in topic.partitions):
                raise ApiError(ErrorCode.REASSIGNMENT_IN_PROGRESS, f"partitions of {name} are being moved")
            grown = decide_more_partitions(self._image(), topic, total, assignments)
            if not validate_only:
                if not is_charged:
                    charge(len(grown.partitions) - len(topic.partitions))
                    is_charged = True
                await self._store.commit(Put(nodes.topic_path(name), nodes.encode_topic(grown), version))
            return grown

        try:
            grown = await until_undisturbed(write)
        except StoreError as error:
            raise _not_written(error) from error
        if validate_only:
            return grown
        outcome = await self._created(grown, wait_s)
        if isinstance(outcome, ApiError):
            raise outcome
        return outcome

    async def _assigned(self, name: str) -> tuple[TopicState, int]:
        """A topic as the store has it, and the version of that."""
        path = nodes.topic_path(name)
        node = await self._store.get(path)
        if node is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        assignment = nodes.decode_assignment(path, node.data)
        if assignment.topic_id is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} has no id yet")
        states = tuple(
            replace(unwritten(each.replicas), adding=each.adding, removing=each.removing)
            for each in assignment.partitions
        )
        return TopicState(name, assignment.topic_id, states), node.version

    async def delete_topic(
        self,
        name: str,
        topic_id: UUID | None = None,
        *,
        wait_s: float = ANSWER_S,
        charge: Charge = free_of_charge,
    ) -> TopicState:
        self.check_controller()
        topic = self._image().topics.get(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic_id is None else ErrorCode.UNKNOWN_TOPIC_ID
        unknown = ApiError(code, f"topic {name} does not exist")
        if topic is None or topic_id not in (None, topic.topic_id):
            raise unknown
        charge(len(topic.partitions))
        gone = Signal()
        watch = self._store.watch_node(nodes.topic_path(name), gone.fire)
        try:
            if not await until_undisturbed(lambda: self._mark(topic)):
                raise unknown
            await self._wait_until_gone(topic, gone, wait_s)
        except StoreError as error:
            raise _not_written(error) from error
        finally:
            watch.cancel()
        return topic

    async def _mark(self, topic: TopicState) -> bool:
        """Marks a topic to be deleted; False where it is gone by now, and another has its name perhaps."""
        path = nodes.topic_path(topic.name)
        node = await self._store.get(path)
        if node is None:
            return False
        with suppress(nodes.MetadataError):  # one that nobody can read may go
            if nodes.decode_assignment(path, node.data).topic_id not in (None, topic.topic_id):
                return False
        mark = Create(nodes.deletion_path(topic.name))
        try:
            await self._store.commit(Check(path, node.version), mark)
        except NodeExists as error:
            if error.path != mark.path:
                raise
        return True  # perhaps somebody wanted it before us

    async def _wait_until_gone(self, topic: TopicState, gone: Signal, wait_s: float) -> None:
        """Until a topic of the name could be created again; where that depends on brokers that are away, until nobody
        finds the topic any more, as in Kafka."""
        deadline = self._now() + wait_s
        while await self._store.get(nodes.deletion_path(topic.name)) is not None:
            if topic.name not in self._image().topics and self._absent_holders(topic.partitions):
                return
            left_s = deadline - self._now()
            if left_s <= 0:
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"topic {topic.name} is being deleted")
            await gone.wait(min(left_s, 0.1))  # the mark goes just after the topic

    def _absent_holders(self, partitions: Iterable[PartitionState]) -> list[int]:
        """The brokers that have replicas of them, and cannot delete them now."""
        alive = self._image().brokers.keys()
        return sorted(
            {node for state in partitions for node in state.replicas if node not in alive or node in state.offline}
        )

    # -- settings ------------------------------------------------------------------------------------------------------

    async def change_config(
        self, resource: ConfigScope, decide: Callable[[DynamicConfigs], dict[str, str]], *, validate_only: bool
    ) -> None:
        """The entity is written together with a notification that every broker follows.

        It is written where it still is what was decided on; else it is read and decided again, so that no change of
        somebody else is lost. The same happens where the answer of the store is: to decide twice comes to the same.
        """
        deadline = self._now() + UNAVAILABLE_S
        try:
            async with self._changing_settings:
                is_written = await until_available(
                    lambda: until_undisturbed(
                        lambda: self._write_config(resource, decide, validate_only=validate_only)
                    ),
                    deadline - self._now(),
                )
            if is_written:
                await until_available(self._config_changes.catch_up, deadline - self._now())
        except StoreError as error:
            raise _not_written(error) from error

    async def _write_config(
        self, resource: ConfigScope, decide: Callable[[DynamicConfigs], dict[str, str]], *, validate_only: bool
    ) -> bool:
        stored, version = await self._config_changes.stored_version(resource)
        overrides = decide(self._configs().replaced(resource, stored))
        if resource.type == ConfigResourceType.TOPIC and resource.name not in self._image().topics:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {resource.name} does not exist")
        secrets = self._config_changes.secrets
        secrets.check(resource, stored, overrides)
        if validate_only:
            return False
        path = nodes.config_path(*config_entity(resource))
        data = nodes.encode_config(await secrets.encrypted(resource, overrides))
        if version is None:
            await ensure_path(self._store, parent_of(path))
        controller = await self._store.get(nodes.CONTROLLER)
        fence: list[Operation] = [] if controller is None else [Check(nodes.CONTROLLER, controller.version)]
        entity: Operation = Create(path, data) if version is None else Put(path, data, version)
        entity_path = path.removeprefix(f"{nodes.CONFIGS}/")
        notification = nodes.encode_config_change(entity_path)
        changes = f"{nodes.CONFIG_CHANGES}/config_change_"
        await self._store.commit(*fence, entity, Create(changes, notification, sequential=True))
        return True

    async def purge_notifications(self) -> None:
        await self._config_changes.purge()

    # -- log directories -----------------------------------------------------------------------------------------------

    async def replicas_lost(self, node_id: int, lost: Iterable[TopicPartition]) -> None:
        """The controller asks this broker about all its replicas then, and learns which are lost."""
        event = Create(f"{nodes.LOG_DIR_EVENTS}/log_dir_event_", nodes.encode_log_dir_event(node_id), sequential=True)
        while True:
            try:
                await self._store.commit(event)
                return
            except StoreUnavailable as error:
                logger.warning("the loss of a log directory cannot be reported yet: %s", error)
                session = self._store.session
                while session.state is not SessionState.CONNECTED:
                    await session.changed.wait()


def _unless_under_way(outcome: TopicState | ApiError) -> ApiError | None:
    """Why a topic will not be there: one that is being created will."""
    error = unless_there(outcome)
    return None if error is not None and error.code == ErrorCode.REQUEST_TIMED_OUT else error


def _not_written(error: StoreError) -> ApiError:
    if isinstance(error, StoreUnavailable):
        return ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the metadata store cannot be reached: {error}")
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the metadata store rejected the change: {error}")

"""The controller of a broker that is alone: the one place where its metadata changes.

Decisions are pure (`cluster`); this makes them durable in the metadata store, then gives the broker the new image. One
change at a time: requests queue on a lock, so that each decides over what the one before it wrote.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from uuid import UUID

from ottla.broker.changed_settings import log_changed_settings
from ottla.broker.client_quotas import Charge, free_of_charge
from ottla.broker.metadata_changes import ANSWER_S, RequestedTopic, decide_requested, unless_there
from ottla.broker.stored_secrets import StoredSecrets
from ottla.cluster import nodes
from ottla.cluster.elections import decide_loss, decide_return
from ottla.cluster.image import (
    CLUSTER_METADATA_TOPIC,
    INTERNAL_TOPICS,
    ClusterImage,
    PartitionState,
    TopicState,
    look_of,
)
from ottla.cluster.topics import decide_more_partitions
from ottla.config.dynamic import ConfigResourceType, ConfigScope, DynamicConfigs, without_effect
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.runtime.turns import Turns
from ottla.store.api import Create, Delete, Operation, Put, Result, Store, StoreError

logger = logging.getLogger(__name__)

# Notifications of changed settings are for brokers that watch; one that does not see them in this time reads
# everything.
NOTIFICATION_S = 15 * 60.0  # as in Kafka
NOTIFICATIONS_MAX = 1000
CREATED_TOGETHER_MAX = 200  # partitions of new topics that share a commit and an image


class StandaloneController:
    """Changes topics. `prepare`, `publish` and `finish` are called for every new image, in order.

    `prepare` makes what it adds, `publish` lets everybody see it, `finish` waits until what it removed is gone.
    """

    def __init__(
        self,
        store: Store,
        image: ClusterImage,
        prepare: Callable[[ClusterImage], Awaitable[None]],
        publish: Callable[[ClusterImage], None],
        finish: Callable[[], Awaitable[None]],
        rng: random.Random,
        turns: Turns,
        *,
        epoch: int,
        configs: Callable[[], DynamicConfigs],
        change_configs: Callable[[DynamicConfigs, Collection[ConfigScope]], Awaitable[None]],
        secrets: StoredSecrets,
    ) -> None:
        self._store = store
        self._prepare = prepare
        self._publish = publish
        self._finish = finish
        self._turns = turns
        self._rng = rng
        self._epoch = epoch
        self._configs = configs
        self._change_configs = change_configs
        self._secrets = secrets
        self._lock = asyncio.Lock()
        self._notifications: deque[tuple[float, str]] = deque()  # when they were made, by the loop's clock, and paths
        self.image = image

    def check_controller(self) -> None:
        """A broker that is alone always is it."""

    # -- creating ------------------------------------------------------------------------------------------------------

    async def create_topic(self, requested: RequestedTopic, *, validate_only: bool = False) -> TopicState:
        """Creates a topic; ApiError says why not, and nothing is changed then."""
        (outcome,) = await self.create_topics([requested], validate_only=validate_only)
        if isinstance(outcome, ApiError):
            raise outcome
        return outcome

    async def create_topics(
        self,
        all_requested: Iterable[RequestedTopic],
        *,
        validate_only: bool = False,
        wait_s: float = ANSWER_S,
        charge: Charge = free_of_charge,
    ) -> list[TopicState | ApiError]:
        """Creates topics, many of them with one commit and one new image: each, or why it is not created."""
        outcomes: list[TopicState | ApiError] = []
        waiting = deque(all_requested)
        while waiting:
            async with self._lock:
                outcomes += await self._create_some(waiting, validate_only, charge)
        return outcomes

    async def _create_some(
        self, waiting: deque[RequestedTopic], validate_only: bool, charge: Charge
    ) -> list[TopicState | ApiError]:
        """Takes topics from those that wait, as many as go together, and creates them."""
        outcomes: list[TopicState | ApiError] = []
        new: dict[str, TopicState] = {}  # by its look: two that look alike are not made together
        configs: dict[ConfigScope, dict[str, str]] = {}
        partition_count = 0
        pace = self._turns.pace()
        while waiting and partition_count < CREATED_TOGETHER_MAX and look_of(waiting[0].name) not in new:
            if pace.is_spent:
                await pace.yield_turn()
            requested = waiting.popleft()
            resource = ConfigScope(ConfigResourceType.TOPIC, requested.name)
            try:
                topic, config = decide_requested(requested, self.image, self._configs(), self._rng)
                if not validate_only:
                    charge(len(topic.partitions))
                configs[resource] = config
                new[look_of(topic.name)] = topic
                partition_count += len(topic.partitions)
                outcomes.append(topic)
            except ApiError as error:
                outcomes.append(error)
        if validate_only or not new:
            return outcomes
        try:
            await self._commit(await self._creations(new.values(), configs))
        except ApiError as error:
            return [error if isinstance(outcome, TopicState) else outcome for outcome in outcomes]
        await self._change_configs(self._configs().all_replaced(configs), configs)
        await self._publish_and_finish(self.image.with_topics(new.values()))
        for topic in new.values():
            logger.info("topic %s has been created, with %d partitions", topic.name, len(topic.partitions))
        return outcomes

    async def _creations(
        self, topics: Iterable[TopicState], configs: Mapping[ConfigScope, Mapping[str, str]]
    ) -> list[Operation]:
        operations: list[Operation] = []
        for topic in topics:
            data = nodes.encode_config(dict(configs[ConfigScope(ConfigResourceType.TOPIC, topic.name)]))
            config_path = nodes.config_path("topics", topic.name)
            if await self._store.get(config_path) is None:
                operations.append(Create(config_path, data))
            else:  # left behind by a topic of that name: it must not rule the new one
                operations.append(Put(config_path, data))
            operations += [
                Create(nodes.topic_path(topic.name), nodes.encode_topic(topic)),
                Create(nodes.partitions_path(topic.name)),
            ]
            operations += await self._new_partitions(topic, range(len(topic.partitions)))
        return operations

    async def _new_partitions(self, topic: TopicState, indexes: range) -> list[Operation]:
        operations: list[Operation] = []
        encoded: dict[PartitionState, bytes] = {}  # most of them are alike
        async for index in self._turns.over(indexes):
            state = topic.partitions[index]
            data = encoded.get(state)
            if data is None:
                data = encoded[state] = nodes.encode_state(state, self._epoch)
            operations += [
                Create(nodes.partition_path(topic.name, index)),
                Create(nodes.state_path(topic.name, index), data),
            ]
        return operations

    async def auto_create(self, names: Iterable[str], *, charge: Charge = free_of_charge) -> dict[str, ApiError | None]:
        """Creates topics that a client named for the first time: name → why not, None where it is there now."""
        names = list(names)
        new = [name for name in names if name not in INTERNAL_TOPICS and name != CLUSTER_METADATA_TOPIC]
        created = dict(zip(new, await self.create_topics(map(RequestedTopic, new), charge=charge), strict=True))
        own = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "only brokers create this topic")
        return {name: unless_there(created[name]) if name in created else own for name in names}

    async def create_unless_there(self, requested: RequestedTopic) -> ApiError | None:
        """Creates a topic that may be there by now; why not, None where it is."""
        (outcome,) = await self.create_topics([requested])
        return unless_there(outcome)

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
        """Adds partitions to a topic."""
        async with self._lock:
            topic = self._known(name)
            grown = decide_more_partitions(self.image, topic, total, assignments)
            if not validate_only:
                charge(len(grown.partitions) - len(topic.partitions))
                operations: list[Operation] = [Put(nodes.topic_path(name), nodes.encode_topic(grown))]
                operations += await self._new_partitions(grown, range(len(topic.partitions), total))
                await self._commit(operations)
                await self._publish_and_finish(self.image.with_topics([grown]))
                logger.info("topic %s grows from %d to %d partitions", name, len(topic.partitions), total)
            return grown

    # -- deleting ------------------------------------------------------------------------------------------------------

    async def delete_topic(
        self,
        name: str,
        topic_id: UUID | None = None,
        *,
        wait_s: float = ANSWER_S,
        charge: Charge = free_of_charge,
    ) -> TopicState:
        """Deletes a topic with its configuration; a topic of the same name may be created at once.

        With an id, that topic only: another one may have its name by the time that this change has its turn.
        """
        async with self._lock:
            topic = self._known(name) if topic_id is None else self._known_by_id(topic_id)
            charge(len(topic.partitions))
            operations: list[Operation] = []
            async for index in self._turns.over(range(len(topic.partitions))):
                operations += [Delete(nodes.state_path(name, index)), Delete(nodes.partition_path(name, index))]
            operations += [Delete(nodes.partitions_path(name)), Delete(nodes.topic_path(name))]
            if await self._store.get(nodes.config_path("topics", name)) is not None:
                operations.append(Delete(nodes.config_path("topics", name)))
            # Until its logs are gone: a crash in between must not hand old records to a new topic of that name.
            mark, data = nodes.deletion_path(name), nodes.encode_deletion(topic.topic_id)
            is_marked = await self._store.get(mark) is not None  # of an earlier topic, and could not be taken away
            operations.append(Put(mark, data) if is_marked else Create(mark, data))
            await self._commit(operations)
            await self._publish_and_finish(self.image.with_topics([], removed=[name]))
            resource = ConfigScope(ConfigResourceType.TOPIC, name)
            await self._change_configs(self._configs().replaced(resource, {}), [resource])
            try:
                await self._commit([Delete(mark)])
            except ApiError as error:  # the topic is gone all the same; the next start takes the mark away
                logger.warning("the mark for the deletion of %s cannot be removed yet: %s", name, error)
            logger.info("topic %s has been deleted, with %d partitions", name, len(topic.partitions))
            return topic

    def _known(self, name: str) -> TopicState:
        topic = self.image.topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        return topic

    def _known_by_id(self, topic_id: UUID) -> TopicState:
        topic = self.image.topic_by_id(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
        return topic

    # -- leaders -------------------------------------------------------------------------------------------------------

    async def replicas_lost(self, node_id: int, lost: Iterable[TopicPartition]) -> None:
        """A log directory of a broker failed, and these replicas are gone with it: others lead them, or nobody does."""
        async with self._lock:
            topics = decide_loss(self.image, node_id, lost)
            try:
                await self._commit(state_changes(self.image, topics, self._epoch))
            except ApiError as error:  # the store may be on the same disk; what is lost is lost all the same
                logger.error("the loss of replicas could not be recorded: %s", error)
            await self._publish_and_finish(self.image.with_topics(topics))

    # -- configuration -------------------------------------------------------------------------------------------------

    async def change_config(
        self, resource: ConfigScope, decide: Callable[[DynamicConfigs], dict[str, str]], *, validate_only: bool
    ) -> None:
        """Makes what `decide` returns the whole of the resource's settings; it raises ApiError to refuse.

        The entity is written first, then a sequential notification, as Kafka does: brokers apply changes in order.
        """
        async with self._lock:
            overrides = decide(self._configs())
            if resource.type == ConfigResourceType.TOPIC:  # Kafka looks whether it is there last
                self._known(resource.name)
            self._secrets.check(resource, self._configs().overrides_of(resource), overrides)
            if validate_only:
                return
            kind, name = config_entity(resource)
            path = nodes.config_path(kind, name)
            data = nodes.encode_config(await self._secrets.encrypted(resource, overrides))
            exists = await self._store.get(path) is not None
            notification = nodes.encode_config_change(path.removeprefix(f"{nodes.CONFIGS}/"))
            *_, notified = await self._commit(
                [
                    Put(path, data) if exists else Create(path, data),
                    Create(f"{nodes.CONFIG_CHANGES}/config_change_", notification, sequential=True),
                ]
            )
            assert isinstance(notified, str)
            self._notifications.append((asyncio.get_running_loop().time(), notified))
            self._note_what_has_no_effect(resource, overrides)
            log_changed_settings(resource, self._configs().overrides_of(resource), overrides)
            await self._change_configs(self._configs().replaced(resource, overrides), [resource])
            await self._purge_notifications()

    async def purge_notifications(self) -> None:
        """Deletes old notifications."""
        async with self._lock:
            await self._purge_notifications()

    async def _purge_notifications(self) -> None:
        made = self._notifications
        oldest = asyncio.get_running_loop().time() - NOTIFICATION_S
        count = max(sum(made_at <= oldest for made_at, _ in made), len(made) - NOTIFICATIONS_MAX)
        if count <= 0:
            return
        try:
            await self._commit([Delete(path) for _, path in islice(made, count)])
        except ApiError as error:  # what was changed stands all the same
            logger.warning("%d notifications of changed settings cannot be removed yet: %s", count, error)
            return
        for _ in range(count):
            made.popleft()

    def _note_what_has_no_effect(self, resource: ConfigScope, overrides: Mapping[str, str]) -> None:
        """Says once of a setting what is said of one in the file: it is kept, and changes nothing."""
        before = self._configs().overrides_of(resource)
        added = {name for name, text in overrides.items() if before.get(name) != text}
        if ignored := sorted(added & without_effect(resource)):
            logger.warning("settings of Kafka without effect here: %s", ", ".join(ignored))

    # -- telling -------------------------------------------------------------------------------------------------------

    async def _commit(self, operations: Sequence[Operation]) -> list[Result]:
        try:
            return await self._store.commit(*operations)
        except StoreError as error:
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"the metadata store rejected the change: {error}"
            ) from error

    async def _publish_and_finish(self, image: ClusterImage) -> None:
        await self._prepare(image)
        self.image = image
        self._publish(image)
        await self._finish()


ENTITY_KINDS = {
    ConfigResourceType.TOPIC: "topics",
    ConfigResourceType.BROKER: "brokers",
    ConfigResourceType.GROUP: "groups",
}


def config_entity(resource: ConfigScope) -> tuple[str, str]:
    """Under which kind and name the store keeps the settings of a resource."""
    return ENTITY_KINDS[ConfigResourceType(resource.type)], resource.name


async def load_configs(store: Store, configs: DynamicConfigs, secrets: StoredSecrets) -> DynamicConfigs:
    """All settings that the store knows, over those that the broker was started with."""
    for resource_type, kind in ENTITY_KINDS.items():
        for segment in await store.children(f"{nodes.CONFIGS}/{kind}"):
            path = f"{nodes.CONFIGS}/{kind}/{segment}"
            node = await store.get(path)
            if node is not None:
                resource = ConfigScope(resource_type, nodes.config_name(segment))
                overrides = await secrets.decrypted(resource, stored_config(path, node.data))
                configs = configs.replaced(resource, overrides)
                for problem in configs.problems(resource):
                    logger.warning("%s: %s; it has no effect", path, problem)
    return configs


def stored_config(path: str, data: bytes) -> dict[str, str]:
    """What a node holds; nothing where it cannot be read: one entity that somebody damaged stops no broker."""
    if not data:
        return {}
    try:
        return nodes.decode_config(path, data)
    except nodes.MetadataError as error:
        logger.error("%s; its settings have no effect until it is written again", error)
        return {}


async def finish_deletions(store: Store, finish: Callable[[str, UUID], None]) -> None:
    """Goes on with the deletions that a crash interrupted."""
    for name in await store.children(nodes.DELETIONS):
        path = nodes.deletion_path(name)
        node = await store.get(path)
        assert node is not None, "nobody else writes yet"
        finish(name, nodes.decode_deletion(path, node.data))
        await store.commit(Delete(path))


async def begin_controller_epoch(store: Store, image: ClusterImage, node_id: int) -> tuple[ClusterImage, int]:
    """The controller's next epoch begins with an election of what the broker leads: the image then, and the epoch.

    All of it is one commit: a start costs one sync more, however many partitions there are. Notifications of settings
    that are left go with it: whoever starts reads the settings themselves.
    """
    node = await store.get(nodes.CONTROLLER_EPOCH)
    epoch = 1 if node is None else nodes.decode_controller_epoch(nodes.CONTROLLER_EPOCH, node.data) + 1
    data = str(epoch).encode()
    topics = decide_return(image, node_id)
    notifications = await store.children(nodes.CONFIG_CHANGES)
    await store.commit(
        Create(nodes.CONTROLLER_EPOCH, data) if node is None else Put(nodes.CONTROLLER_EPOCH, data),
        *state_changes(image, topics, epoch),
        *(Delete(f"{nodes.CONFIG_CHANGES}/{name}") for name in notifications),
    )
    return image.with_topics(topics), epoch


def state_changes(image: ClusterImage, topics: Iterable[TopicState], epoch: int) -> list[Operation]:
    """What makes new states of partitions durable. Without versions: nobody else writes them."""
    return [
        Put(nodes.state_path(topic.name, index), nodes.encode_state(state, epoch))
        for topic in topics
        for index, (old, state) in enumerate(zip(image.topics[topic.name].partitions, topic.partitions, strict=True))
        if old.version != state.version
    ]


async def load_topics(store: Store, image: ClusterImage) -> ClusterImage:
    """The image with every topic that the store knows."""
    topics = []
    for name in await store.children(nodes.TOPICS):
        path = nodes.topic_path(name)
        node = await store.get(path)
        if node is None:
            continue
        assignment = nodes.decode_assignment(path, node.data)
        if assignment.topic_id is None:
            raise nodes.MetadataError(path, "has no topic id")
        partitions = []
        for index, assigned in enumerate(assignment.partitions):
            state_path = nodes.state_path(name, index)
            state = await store.get(state_path)
            if state is None:
                raise nodes.MetadataError(state_path, "is missing")
            partitions.append(nodes.decode_state(state_path, state.data, assigned.replicas, state.version))
        topics.append(TopicState(name, assignment.topic_id, tuple(partitions)))
    return image.with_topics(topics)

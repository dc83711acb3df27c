"""The controller: decides, makes it durable, then tells; a change that fails on the way changes nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import Any

import pytest

from ottla.broker import controller
from ottla.broker.controller import (
    StandaloneController,
    begin_controller_epoch,
    finish_deletions,
    load_configs,
    load_topics,
)
from ottla.broker.metadata_changes import RequestedTopic
from ottla.broker.stored_secrets import StoredSecrets
from ottla.cluster import nodes
from ottla.cluster.image import BrokerNode, ClusterImage
from ottla.config.broker import BrokerConfig
from ottla.config.dynamic import ConfigResourceType, ConfigScope, DynamicConfigs
from ottla.errors import ApiError, ErrorCode
from ottla.runtime.turns import Turns
from ottla.store.recipes import ensure_path
from ottla.testing.inline import InlineOffload
from ottla.testing.loop import run
from ottla.testing.memory_store import MemoryStore

PROPERTIES = {"num.partitions": "3"}


def no_secrets() -> StoredSecrets:
    return StoredSecrets(BrokerConfig(), InlineOffload())


class World:
    """A controller, its store, and everything it told."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.configs = DynamicConfigs(PROPERTIES, 1)
        self.images: list[ClusterImage] = []
        self.prepared: list[ClusterImage] = []
        image = ClusterImage("c").with_brokers([BrokerNode(1, {})], controller_id=1)

        async def prepare(image: ClusterImage) -> None:
            self.prepared.append(image)

        self.controller = StandaloneController(
            self.store,
            image,
            prepare,
            self.publish,
            self._finish,
            random.Random(1),
            Turns(),
            epoch=4,
            configs=lambda: self.configs,
            change_configs=self._change,
            secrets=no_secrets(),
        )

    def publish(self, image: ClusterImage) -> None:
        assert self.prepared[-1] is image, "logs are made before anybody hears of their partitions"
        self.images.append(image)

    async def _finish(self) -> None:
        assert self.images[-1] is self.prepared[-1], "what was removed is taken away once nobody sees it"

    async def _change(self, configs: DynamicConfigs, changed: Collection[ConfigScope]) -> None:
        self.configs = configs


def scenario(play: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        world = World()
        await ensure_path(world.store, *nodes.ROOTS)
        await play(world)

    asyncio.run(run())


def test_a_topic_is_durable_before_it_is_told_and_is_loaded_as_it_was() -> None:
    async def play(world: World) -> None:
        topic = await world.controller.create_topic(RequestedTopic("t", 2, 1, config={"retention.ms": "5"}))
        assert world.images[-1].topics == {"t": topic}
        loaded = await load_topics(world.store, ClusterImage("c"))
        assert loaded.topics == {"t": topic}
        configs = await load_configs(world.store, DynamicConfigs(PROPERTIES, 1), no_secrets())
        assert configs.topic_config("t").retention_ms == 5

    scenario(play)


def test_defaults_are_the_brokers() -> None:
    async def play(world: World) -> None:
        topic = await world.controller.create_topic(RequestedTopic("t"))
        assert (len(topic.partitions), topic.partitions[0].replicas) == (3, (1,))

    scenario(play)


def test_validating_and_refusing_leave_no_trace() -> None:
    async def play(world: World) -> None:
        await world.controller.create_topic(RequestedTopic("t", 1, 1), validate_only=True)
        for requested in (
            RequestedTopic("b d"),
            RequestedTopic("t", 0),
            RequestedTopic("t", 1, 9),
            RequestedTopic("t", config={"x": "y"}),
        ):
            with pytest.raises(ApiError):
                await world.controller.create_topic(requested)
        assert (world.images, await world.store.children(nodes.TOPICS)) == ([], [])

    scenario(play)


def test_a_store_that_fails_leaves_the_image_as_it_was() -> None:
    async def play(world: World) -> None:
        await world.controller.create_topic(RequestedTopic("t", 1, 1))
        world.store._failure = OSError("full")
        for change in (world.controller.create_topic(RequestedTopic("u", 1, 1)), world.controller.delete_topic("t")):
            with pytest.raises(ApiError) as caught:
                await change
            assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert list(world.controller.image.topics) == ["t"]

    scenario(play)


def test_a_store_that_fails_leaves_the_settings_as_they_were() -> None:
    async def play(world: World) -> None:
        await world.controller.create_topic(RequestedTopic("t", 1, 1, config={"retention.ms": "5"}))
        before = world.configs
        world.store._failure = OSError("full")
        for resource in (ConfigScope(ConfigResourceType.TOPIC, "t"), ConfigScope(ConfigResourceType.BROKER, "1")):
            with pytest.raises(ApiError):
                await world.controller.change_config(
                    resource, lambda configs: {"retention.ms": "7"}, validate_only=False
                )
            assert world.configs is before

    scenario(play)


def test_changes_of_many_at_once_are_made_one_after_the_other() -> None:
    async def play(world: World) -> None:
        outcomes = await asyncio.gather(
            *(world.controller.create_topic(RequestedTopic("same", 1, 1)) for _ in range(5)), return_exceptions=True
        )
        refused = [one.code for one in outcomes if isinstance(one, ApiError)]
        assert refused == [ErrorCode.TOPIC_ALREADY_EXISTS] * 4
        assert len(world.images) == 1

    scenario(play)


def test_an_id_does_not_delete_the_next_topic_of_the_name() -> None:
    async def play(world: World) -> None:
        first = await world.controller.create_topic(RequestedTopic("t", 1, 1))
        # All three wait for their turn at the same time; the third was asked for while the first topic was there.
        _, second, refusal = await asyncio.gather(
            world.controller.delete_topic("t"),
            world.controller.create_topic(RequestedTopic("t", 1, 1)),
            world.controller.delete_topic("t", first.topic_id),
            return_exceptions=True,
        )
        assert isinstance(refusal, ApiError)
        assert refusal.code == ErrorCode.UNKNOWN_TOPIC_ID
        assert world.controller.image.topics == {"t": second}

    scenario(play)


def test_a_deleted_topic_leaves_nothing_in_the_store_and_its_settings_are_not_inherited() -> None:
    async def play(world: World) -> None:
        first = await world.controller.create_topic(RequestedTopic("t", 2, 1, config={"retention.ms": "5"}))
        await world.controller.delete_topic("t")
        assert world.images[-1].topics == {}
        for path in (nodes.TOPICS, "/config/topics", nodes.DELETIONS):
            assert await world.store.children(path) == []
        second = await world.controller.create_topic(RequestedTopic("t", 2, 1))
        assert second.topic_id != first.topic_id
        assert world.configs.topic_config("t").retention_ms != 5

    scenario(play)


def test_a_mark_that_could_not_be_taken_away_is_no_obstacle_to_the_next_deletion_of_that_name() -> None:
    async def play(world: World) -> None:
        await world.controller.create_topic(RequestedTopic("t", 1, 1))
        publish = world.controller._publish

        def publish_and_fail(image: ClusterImage) -> None:
            publish(image)
            world.store._failure = OSError("full")

        world.controller._publish = publish_and_fail
        await world.controller.delete_topic("t")
        world.controller._publish, world.store._failure = publish, None
        assert await world.store.children(nodes.DELETIONS) == ["t"]
        await world.controller.create_topic(RequestedTopic("t", 1, 1))
        await world.controller.delete_topic("t")
        assert await world.store.children(nodes.DELETIONS) == []

    scenario(play)


def test_the_mark_of_a_deletion_stands_until_the_logs_are_gone() -> None:
    async def play(world: World) -> None:
        topic = await world.controller.create_topic(RequestedTopic("t", 1, 1))

        def crash(image: ClusterImage) -> None:
            raise RuntimeError("the power went off")

        world.controller._publish = crash
        with pytest.raises(RuntimeError):
            await world.controller.delete_topic("t")
        finished: list[Any] = []
        await finish_deletions(world.store, lambda name, topic_id: finished.append((name, topic_id)))
        assert finished == [("t", topic.topic_id)]
        assert await world.store.children(nodes.DELETIONS) == []

    scenario(play)


def test_partitions_are_added_in_the_store_too() -> None:
    async def play(world: World) -> None:
        await world.controller.create_topic(RequestedTopic("t", 1, 1))
        grown = await world.controller.create_partitions("t", 4, None)
        assert (await load_topics(world.store, ClusterImage("c"))).topics == {"t": grown}
        await world.controller.create_partitions("t", 9, None, validate_only=True)
        assert len(world.controller.image.topics["t"].partitions) == 4

    scenario(play)


def _retention(value: str, configs: DynamicConfigs) -> dict[str, str]:
    return {"retention.ms": value}


def _alter(resource: ConfigScope, settings: Mapping[str, str | None], configs: DynamicConfigs) -> dict[str, str]:
    return configs.alter(resource, settings)


def test_a_change_of_settings_is_written_and_announced_in_order() -> None:
    async def play(world: World) -> None:
        await world.controller.create_topic(RequestedTopic("t", 1, 1))
        resource = ConfigScope(ConfigResourceType.TOPIC, "t")
        for value in ("1", "2"):
            await world.controller.change_config(resource, partial(_retention, value), validate_only=False)
        assert world.configs.topic_config("t").retention_ms == 2
        announced = await world.store.children(nodes.CONFIG_CHANGES)
        assert len(announced) == 2
        node = await world.store.get(f"{nodes.CONFIG_CHANGES}/{min(announced)}")
        assert node is not None
        assert node.data == b'{"version":2,"entity_path":"topics/t"}'
        refused: tuple[tuple[str, dict[str, str | None], ErrorCode], ...] = (
            ("", {}, ErrorCode.INVALID_REQUEST),
            ("u", {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("u", {"retention.ms": "many"}, ErrorCode.INVALID_CONFIG),
            ("not a name", {"retention.ms": "many"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("not a name", {"retention.ms": None}, ErrorCode.INVALID_REQUEST),
        )
        for name, settings, code in refused:
            other = ConfigScope(ConfigResourceType.TOPIC, name)
            with pytest.raises(ApiError) as caught:
                await world.controller.change_config(
                    other,
                    partial(_alter, other, settings),
                    validate_only=False,
                )
            assert caught.value.code == code

    scenario(play)


def test_internal_topics_are_not_created_by_being_named() -> None:
    async def play(world: World) -> None:
        outcome = await world.controller.auto_create(["t", "__consumer_offsets", "b d", "t"])
        codes = {name: None if error is None else error.code for name, error in outcome.items()}
        assert codes == {
            "t": None,
            "__consumer_offsets": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "b d": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }

    scenario(play)


def test_notifications_of_settings_go_after_a_while_and_are_never_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "NOTIFICATIONS_MAX", 3)

    async def play() -> None:
        world = World()
        await ensure_path(world.store, *nodes.ROOTS)

        async def change(value: int) -> None:
            resource = ConfigScope(ConfigResourceType.TOPIC, "t")
            await world.controller.change_config(
                resource, lambda configs: configs.alter(resource, {"retention.ms": str(value)}), validate_only=False
            )

        await world.controller.create_topic(RequestedTopic("t"))
        for value in range(5):
            await change(value)
        assert [name[-1] for name in await world.store.children(nodes.CONFIG_CHANGES)] == ["2", "3", "4"]
        await asyncio.sleep(controller.NOTIFICATION_S - 1)
        await change(5)
        await world.controller.purge_notifications()
        assert len(await world.store.children(nodes.CONFIG_CHANGES)) == 3
        await asyncio.sleep(2)
        await world.controller.purge_notifications()
        assert [name[-1] for name in await world.store.children(nodes.CONFIG_CHANGES)] == ["5"]
        await begin_controller_epoch(world.store, world.controller.image, 1)
        assert await world.store.children(nodes.CONFIG_CHANGES) == []
        assert world.configs.topic_config("t").retention_ms == 5

    run(play())

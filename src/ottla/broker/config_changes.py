"""Dynamic settings in a cluster: whoever changes one writes it to the store and leaves a notification; all follow.

A notification names whose settings changed, not what they are: those are read from their node. Notifications are
handled in the order of their numbers, each once, and taken away after 15 minutes; whoever was away for longer, or
starts, reads all settings. A new topic has no notification: its settings are read when this broker learns of the topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final
from uuid import UUID

from ottla.broker.changed_settings import log_changed_settings
from ottla.broker.controller import ENTITY_KINDS, config_entity, load_configs, stored_config
from ottla.broker.quota_store import KINDS as QUOTA_KINDS
from ottla.broker.quota_store import QuotaStore
from ottla.broker.stored_secrets import StoredSecrets
from ottla.cluster import nodes
from ottla.config.dynamic import ConfigResourceType, ConfigScope, DynamicConfigs
from ottla.runtime.signal import Signal, wait_any
from ottla.store.api import Delete, NoNode, SessionState, Store, StoreUnavailable

logger = logging.getLogger(__name__)

AGE_MS_MAX: Final = 15 * 60_000  # of a notification, as in Kafka
RETRY_S: Final = 0.2  # where the store cannot be asked
NONE_HANDLED: Final = -1

KINDS: Final = {kind: resource_type for resource_type, kind in ENTITY_KINDS.items()}


class ConfigChanges:
    """Follows the settings in the store. `apply` is called with every change, one at a time."""

    def __init__(
        self,
        store: Store,
        configs: Callable[[], DynamicConfigs],
        apply: Callable[[DynamicConfigs, Collection[ConfigScope]], Awaitable[None]],
        started_with: DynamicConfigs,
        now_ms: Callable[[], int],
        quotas: QuotaStore,
        secrets: StoredSecrets,
    ) -> None:
        """`started_with`: the settings of the file alone."""
        self._store = store
        self._configs = configs
        self._apply = apply
        self._started_with = started_with
        self._now_ms = now_ms
        self._quotas = quotas
        self.secrets = secrets
        self._turn = asyncio.Lock()
        self._handled = NONE_HANDLED
        self._learned: dict[str, UUID] = {}
        self._changed = Signal()

    async def run(self) -> None:
        """Until it is cancelled."""
        session = self._store.session
        session_id = session.session_id
        watch = self._store.watch_children(nodes.CONFIG_CHANGES, self._changed.fire)
        try:
            while True:
                seen = self._changed.count
                try:
                    if session.session_id != session_id:
                        session_id = session.session_id
                        await self.read_all()  # notifications may have come and gone
                    await self.catch_up()
                except StoreUnavailable as error:
                    logger.info("changes of settings cannot be followed now: %s", error)
                    await session.changed.wait(RETRY_S)
                    continue
                if self._changed.count == seen:
                    await wait_any((self._changed, session.changed), None)
        finally:
            watch.cancel()

    async def read_all(self) -> None:
        """Reads every setting again."""
        async with self._turn:
            configs = await load_configs(self._store, self._started_with, self.secrets)
            await self._apply(configs, [ConfigScope(ConfigResourceType.BROKER, "")])
            await self._quotas.load()

    async def catch_up(self) -> None:
        """Handles the notifications that are new."""
        async with self._turn:
            for name in await self._store.children(nodes.CONFIG_CHANGES):
                number = _number_of(name)
                if number <= self._handled:
                    continue
                path = f"{nodes.CONFIG_CHANGES}/{name}"
                node = await self._store.get(path)
                if node is not None:
                    await self._handle(path, node.data)
                self._handled = number

    async def _handle(self, path: str, data: bytes) -> None:
        try:
            entity_path = nodes.decode_config_change(path, data)
        except nodes.MetadataError as error:
            logger.error("%s; this notification is skipped", error)
            return
        kind, _, name = entity_path.partition("/")
        resource_type = KINDS.get(kind)
        if kind in QUOTA_KINDS.values():
            await self._quotas.read(entity_path)
        elif resource_type is not None:
            resource = ConfigScope(resource_type, nodes.config_name(name))
            before = self._configs().overrides_of(resource)
            await self._read([resource])
            log_changed_settings(resource, before, self._configs().overrides_of(resource))

    async def _read(self, resources: Iterable[ConfigScope]) -> None:
        """Takes what the store has for these, and nothing where it has nothing."""
        resources = list(resources)
        found = await asyncio.gather(*map(self.stored, resources))
        known = self._configs()
        changed = {
            resource: overrides
            for resource, overrides in zip(resources, found, strict=True)
            if overrides != known.overrides_of(resource)
        }
        if not changed:
            return
        configs = known.all_replaced(changed)
        for resource in changed:
            for problem in configs.problems(resource):
                logger.warning("%s: %s; it has no effect", resource, problem)
        await self._apply(configs, changed)

    async def stored(self, resource: ConfigScope) -> dict[str, str]:
        """What the store has for a resource now: of some types, and of unknown ones, it has nothing."""
        return (await self.stored_version(resource))[0]

    async def stored_version(self, resource: ConfigScope) -> tuple[dict[str, str], int | None]:
        """That and the version of its node; None where there is no node."""
        if resource.type not in ENTITY_KINDS:
            return {}, None
        path = nodes.config_path(*config_entity(resource))
        node = await self._store.get(path)
        if node is None:
            return {}, None
        return await self.secrets.decrypted(resource, stored_config(path, node.data)), node.version

    async def learn_topics(self, topics: Mapping[str, UUID]) -> None:
        """Reads the settings of topics that are new here, by name, however long the store cannot be reached."""
        while new := [name for name, topic_id in topics.items() if self._learned.get(name) != topic_id]:
            try:
                async with self._turn:
                    # The controller said that they are there, and our server may not have heard of it: it would have no
                    # settings for them, or those of earlier topics, and no notification would ever correct that.
                    await self._store.sync(nodes.TOPICS)
                    await self._read(ConfigScope(ConfigResourceType.TOPIC, name) for name in new)
                self._learned.update(topics)
            except StoreUnavailable as error:
                logger.info("the settings of %d topics cannot be read now: %s", len(new), error)
                await self._store.session.changed.wait(RETRY_S)

    async def forget_topics(self, names: Collection[str]) -> None:
        """Topics are gone: one of their name starts without their settings."""
        if not names:
            return
        async with self._turn:
            for name in names:
                self._learned.pop(name, None)
            gone: dict[ConfigScope, dict[str, str]] = {
                ConfigScope(ConfigResourceType.TOPIC, name): {} for name in names
            }
            await self._apply(self._configs().all_replaced(gone), gone)

    async def purge(self) -> None:
        """Takes away notifications that everybody had time to see. Several brokers do it; one of them is first."""
        if self._store.session.state is not SessionState.CONNECTED:
            return
        with suppress(StoreUnavailable):
            for name in await self._store.children(nodes.CONFIG_CHANGES):
                if _number_of(name) > self._handled:
                    continue
                path = f"{nodes.CONFIG_CHANGES}/{name}"
                node = await self._store.get(path)
                if node is not None and self._now_ms() - node.created_ms >= AGE_MS_MAX:
                    with suppress(NoNode):
                        await self._store.commit(Delete(path))


def _number_of(name: str) -> int:
    digits = name.rpartition("_")[2]
    return int(digits) if digits.isdecimal() else NONE_HANDLED

"""The quotas of clients in the metadata store, where Kafka keeps them: read, followed and changed.

    /config/users/<user>   /config/users/<user>/clients/<client>   /config/clients/<client>   /config/ips/<address>

The node of a user also holds his SCRAM credentials: a change touches its quotas only. Every broker has all quotas in
memory; in a cluster a change leaves a notification, on which all read the entity again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Final

from ottla.cluster import nodes
from ottla.errors import ApiError
from ottla.runtime.turns import Turns
from ottla.security.quotas import (
    CLIENT_ID,
    IP,
    NO_LIMITS,
    USER,
    QuotaEntity,
    QuotaLimits,
    check_entity,
    check_value,
    read_quotas,
    value_text,
)
from ottla.store.api import (
    Create,
    Delete,
    Node,
    NoNode,
    NotEmpty,
    Operation,
    Put,
    Store,
    parent_of,
)
from ottla.store.recipes import ensure_path, until_undisturbed

logger = logging.getLogger(__name__)

KINDS: Final = {USER: "users", CLIENT_ID: "clients", IP: "ips"}
TYPES: Final = {kind: entity_type for entity_type, kind in KINDS.items()}
CHANGES: Final = f"{nodes.CONFIG_CHANGES}/config_change_"

Changes = Mapping[str, float | None]  # by quota; None: it is removed


class QuotaStore:
    """Reads and changes quotas. `on_change` is called with all of them when one has changed."""

    def __init__(self, store: Store, turns: Turns, on_change: Callable[[QuotaLimits], None], *, notifies: bool) -> None:
        """`notifies`: whether others follow the store."""
        self._store = store
        self._turns = turns
        self._on_change = on_change
        self._notifies = notifies
        self._changing = asyncio.Lock()
        self.limits = NO_LIMITS

    # -- reading -------------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Reads every quota."""
        async with self._changing:
            found = {}
            pace = self._turns.pace()
            async for entity in self._stored_entities():
                if quotas := await self._stored(entity):
                    found[entity] = quotas
                if pace.is_spent:
                    await pace.yield_turn()
            self._take(QuotaLimits(found))

    async def read(self, entity_path: str) -> None:
        """Reads one entity again, by its path below that of all settings."""
        entity = _entity_at(entity_path)
        if entity is None:
            logger.error("%s is not an entity that may have quotas", entity_path)
            return
        async with self._changing:
            self._take(self.limits.replaced({entity: await self._stored(entity)}))

    def _take(self, limits: QuotaLimits) -> None:
        if limits != self.limits:
            self.limits = limits
            self._on_change(limits)

    async def _stored_entities(self) -> AsyncIterator[QuotaEntity]:
        for kind in KINDS.values():
            root = f"{nodes.CONFIGS}/{kind}"
            for segment in await self._store.children(root):
                paths = [f"{kind}/{segment}"]
                if kind == KINDS[USER]:
                    with suppress(NoNode):
                        clients = await self._store.children(f"{root}/{segment}/clients")
                        paths += [f"{kind}/{segment}/clients/{client}" for client in clients]
                for path in paths:
                    entity = _entity_at(path)
                    if entity is not None:
                        yield entity

    async def _stored(self, entity: QuotaEntity) -> dict[str, float]:
        """What counts of what the store has; what cannot be read limits nobody."""
        path = path_of(entity)
        try:
            config = _config(path, await self._store.get(path))
            quotas, problems = read_quotas(entity, config)
        except (nodes.MetadataError, ApiError) as error:
            logger.warning("%s: %s; it limits nobody", path, error)
            return {}
        for problem in problems:
            logger.warning("%s: %s; it limits nobody", path, problem)
        return quotas

    # -- changing ------------------------------------------------------------------------------------------------------

    def check(self, entity: QuotaEntity, changes: Changes) -> None:
        """ApiError where an entity cannot have such quotas."""
        allowed = check_entity(entity)
        for key, value in changes.items():
            if value is not None:
                check_value(key, value, allowed)

    async def change(self, entity: QuotaEntity, changes: Changes) -> None:
        """Makes a change that was checked; it holds on this broker when the call returns."""
        async with self._changing:
            # Somebody else may change the entity meanwhile, perhaps a password.
            await until_undisturbed(lambda: self._write(entity, changes))
            self._take(self.limits.replaced({entity: await self._stored(entity)}))

    async def _write(self, entity: QuotaEntity, changes: Changes) -> None:
        path = path_of(entity)
        node = await self._store.get(path)
        before = _config(path, node)
        after = dict(before)
        for key, value in changes.items():
            if value is None:
                after.pop(key, None)
            else:
                after[key] = value_text(key, value)
        if after == before:
            return
        data = nodes.encode_config(after)
        operations: list[Operation]
        if node is None:
            await ensure_path(self._store, parent_of(path))
            operations = [Create(path, data)]
        elif after or await self._has_children(path):
            operations = [Put(path, data, node.version)]
        else:
            operations = [Delete(path, node.version)]
        if self._notifies:
            notification = nodes.encode_config_change(path.removeprefix(f"{nodes.CONFIGS}/"))
            operations.append(Create(CHANGES, notification, sequential=True))
        await self._store.commit(*operations)

    async def _has_children(self, path: str) -> bool:
        """Of a node that may have some: of a user those of his clients, which may be none."""
        with suppress(NoNode):
            if await self._store.children(f"{path}/clients"):
                return True
            with suppress(NotEmpty, NoNode):
                await self._store.commit(Delete(f"{path}/clients"))
        return bool(await self._store.children(path))


def path_of(entity: QuotaEntity) -> str:
    path = nodes.CONFIGS
    for kind, name in entity.parts:
        path += nodes.config_path(KINDS[kind], name or "").removeprefix(nodes.CONFIGS)
    return path


def _entity_at(entity_path: str) -> QuotaEntity | None:
    """The entity of a path such as `users/alice/clients/app`; None where it is that of none."""
    segments = entity_path.split("/")
    kinds = tuple(segments[0::2])
    if len(segments) % 2 or kinds not in (("users",), ("users", "clients"), ("clients",), ("ips",)):
        return None
    return QuotaEntity(
        tuple(
            (TYPES[kind], None if segment == nodes.DEFAULT_ENTITY else nodes.config_name(segment))
            for kind, segment in zip(kinds, segments[1::2], strict=True)
        )
    )


def _config(path: str, node: Node | None) -> dict[str, str]:
    return {} if node is None or not node.data else nodes.decode_config(path, node.data)

"""The ACLs of the cluster: kept in the metadata store as Kafka keeps them, followed, and changed.

Every broker has all of them in memory, as an `Authorizer`. A change is written with a notification, on which every
broker reads the ACLs again; the one that was asked has read them before it answers. ACLs that cannot be read close the
cluster to everybody but super users, until they can.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from ottla.config.broker import BrokerConfig
from ottla.errors import ApiError
from ottla.runtime.signal import Signal, wait_any
from ottla.security.acls import (
    LITERAL_CHANGES,
    LITERAL_ROOT,
    PREFIXED_CHANGES,
    PREFIXED_ROOT,
    REAL_RESOURCES,
    Acl,
    AclFilter,
    DamagedAclError,
    Pattern,
    Resource,
    change_node,
    decode_acls,
    encode_acls,
    node_path,
    resource_of_node,
)
from ottla.security.authorizer import Authorizer
from ottla.store.api import (
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    Put,
    Store,
    StoreUnavailable,
)
from ottla.store.recipes import ensure_path

logger = logging.getLogger(__name__)

RETRY_S = 0.2
AGE_MS_MAX = 15 * 60_000  # of a notification, as in Kafka
ROOTS = (
    LITERAL_CHANGES,
    PREFIXED_CHANGES,
    *(f"{root}/{resource.node_name}" for root in (LITERAL_ROOT, PREFIXED_ROOT) for resource in sorted(REAL_RESOURCES)),
)


class AclStore:
    """Owns the authorizer of a broker. `on_change` is called whenever it is another one."""

    def __init__(
        self, store: Store, config: BrokerConfig, now_ms: Callable[[], int], on_change: Callable[[], None]
    ) -> None:
        self._store = store
        self._now_ms = now_ms
        self._super_users = frozenset(filter(None, (user.strip() for user in config.super_users.split(";"))))
        self._allows_unnamed = config.allow_everyone_if_no_acl_found
        self._on_change = on_change
        self._changed = Signal()
        self._reading = asyncio.Lock()
        self.authorizer = Authorizer(None, self._super_users)

    async def open(self) -> None:
        """Reads the ACLs: before the first request is served."""
        await ensure_path(self._store, *ROOTS)
        await self.read()

    async def run(self) -> None:
        """Follows the changes of others until it is cancelled."""
        session = self._store.session
        watches = [self._store.watch_children(path, self._changed.fire) for path in (LITERAL_CHANGES, PREFIXED_CHANGES)]
        try:
            while True:
                seen = self._changed.count
                try:
                    await self.read()
                    await self._purge()
                except StoreUnavailable as error:
                    logger.info("ACLs cannot be read now: %s; those that are known hold", error)
                    await session.changed.wait(RETRY_S)
                    continue
                if self._changed.count == seen:
                    await wait_any((self._changed, session.changed), None)
        finally:
            for watch in watches:
                watch.cancel()

    async def read(self) -> None:
        """Everything anew, as a whole: nobody is judged by half of it."""
        async with self._reading:
            acls: set[Acl] | None = set()
            try:
                for root, pattern in ((LITERAL_ROOT, Pattern.LITERAL), (PREFIXED_ROOT, Pattern.PREFIXED)):
                    for type_name in await self._store.children(root):
                        resource = resource_of_node(type_name)
                        if resource is not None and acls is not None:
                            acls |= await self._of_type(f"{root}/{type_name}", resource, pattern)
            except DamagedAclError as error:
                logger.warning("%s: only super users are served until that is repaired", error)
                acls = None
            known = self.authorizer
            new = Authorizer(acls, self._super_users, allows_unnamed=self._allows_unnamed)
            if acls is None or new.acls != known.acls or known.is_closed:
                self.authorizer = new
                self._on_change()

    async def _purge(self) -> None:
        """Takes away notifications that everybody had time to see. Several brokers do it; one of them is first."""
        for path in (LITERAL_CHANGES, PREFIXED_CHANGES):
            for name in await self._store.children(path):
                node = await self._store.get(f"{path}/{name}")
                if node is not None and self._now_ms() - node.created_ms >= AGE_MS_MAX:
                    with suppress(NoNode):
                        await self._store.commit(Delete(f"{path}/{name}"))

    async def _of_type(self, path: str, resource: Resource, pattern: Pattern) -> set[Acl]:
        found: set[Acl] = set()
        for name in await self._store.children(path):
            node = await self._store.get(f"{path}/{name}")
            if node is not None:
                found |= decode_acls(resource, pattern, name, node.data)
        return found

    # -- changes -------------------------------------------------------------------------------------------------------

    async def create(self, acls: Sequence[Acl]) -> list[ApiError | None]:
        """Adds rules; what is wrong with each, in their order. One that exists already is no error."""
        outcomes: list[ApiError | None] = []
        wanted: dict[tuple[Resource, Pattern, str], set[Acl]] = defaultdict(set)
        for acl in acls:
            try:
                acl.check()
                wanted[acl.resource, acl.pattern, acl.name].add(acl)
                outcomes.append(None)
            except ApiError as error:
                outcomes.append(error)
        for (resource, pattern, name), new in wanted.items():
            await self._change(resource, pattern, name, add=new)
        await self.read()
        return outcomes

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Removes the rules that match; which those were, for each filter."""
        found = [sorted(acl for acl in self.authorizer.acls if one.matches(acl)) for one in filters]
        doomed: dict[tuple[Resource, Pattern, str], set[Acl]] = defaultdict(set)
        for acls in found:
            for acl in acls:
                doomed[acl.resource, acl.pattern, acl.name].add(acl)
        for (resource, pattern, name), gone in doomed.items():
            await self._change(resource, pattern, name, remove=gone)
        await self.read()
        return found

    async def _change(
        self, resource: Resource, pattern: Pattern, name: str, add: Iterable[Acl] = (), remove: Iterable[Acl] = ()
    ) -> None:
        """One node, with its notification; the version sees to it that no change of another is lost."""
        path = node_path(resource, pattern, name)
        while True:
            node = await self._store.get(path)
            before = frozenset() if node is None else decode_acls(resource, pattern, name, node.data)
            after = (before | set(add)) - set(remove)
            if after == before:
                return
            change: Operation
            if node is None:
                change = Create(path, encode_acls(after))
            elif after:
                change = Put(path, encode_acls(after), node.version)
            else:
                change = Delete(path, node.version)
            notified_at, notification = change_node(resource, pattern, name)
            try:
                await self._store.commit(change, Create(notified_at, notification, sequential=True))
                return
            except (BadVersion, NodeExists, NoNode):
                continue

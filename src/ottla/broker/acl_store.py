"""The ACLs of the cluster: kept in the metadata store as Kafka keeps them, followed, and changed.

Every broker has all of them in memory, as an `Authorizer`. A change is written with a notification, on which every
broker reads the ACLs again; the one that was asked has read them before it answers. ACLs that cannot be read close the
cluster to everybody but super users, until they can.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ottla.config.broker import BrokerConfig
from ottla.errors import ApiError, ErrorCode
from ottla.runtime.offload import Offload
from ottla.runtime.signal import Signal, wait_any
from ottla.runtime.turns import STEP, Steps, Turns
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
    parse_super_users,
    resource_of_node,
)
from ottla.security.authorizer import Authorizer
from ottla.store.api import (
    Create,
    Delete,
    InvalidPath,
    NoNode,
    Operation,
    Put,
    Store,
    StoreUnavailable,
    check_path,
)
from ottla.store.recipes import CONFLICTS, ensure_path, remove_old_children, until_undisturbed

logger = logging.getLogger(__name__)

RETRY_S = 0.2
AT_ONCE_MAX = 500  # ACLs: a millisecond or two
DECODED_AT_ONCE_BYTES_MAX = 64 * 1024
AGE_MS_MAX = 15 * 60_000  # of a notification, as in Kafka
ROOTS = (
    LITERAL_CHANGES,
    PREFIXED_CHANGES,
    *(f"{root}/{resource.node_name}" for root in (LITERAL_ROOT, PREFIXED_ROOT) for resource in sorted(REAL_RESOURCES)),
)
NODES_AT_ONCE = 100  # changed by one commit
COMMIT_BYTES_MAX = 256 * 1024  # ZooKeeper takes a megabyte


@dataclass(frozen=True, slots=True)
class _Change:
    """What becomes of the ACLs of one node."""

    resource: Resource
    pattern: Pattern
    name: str
    add: frozenset[Acl] = frozenset()
    remove: frozenset[Acl] = frozenset()


class AclStore:
    """Owns the authorizer of a broker. `on_change` is called whenever it is another one."""

    def __init__(
        self,
        store: Store,
        config: BrokerConfig,
        now_ms: Callable[[], int],
        on_change: Callable[[], None],
        turns: Turns,
        offload: Offload,
    ) -> None:
        """`turns` and `offload`: there may be very many ACLs, and others are served while they are read and changed."""
        self._store = store
        self._turns = turns
        self._offload = offload
        self._now_ms = now_ms
        self._super_users = parse_super_users(config.super_users)
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
        """Reads all ACLs again and replaces them as a whole: no request is checked against half of them."""
        async with self._reading:
            acls: set[Acl] | None = set()
            try:
                for root, pattern in ((LITERAL_ROOT, Pattern.LITERAL), (PREFIXED_ROOT, Pattern.PREFIXED)):
                    for type_name in await self._store.children(root):
                        resource = resource_of_node(type_name)
                        if resource is not None and acls is not None:
                            await self._add_of_type(acls, f"{root}/{type_name}", resource, pattern)
            except (DamagedAclError, NoNode) as error:  # nor is a part that went away a permission
                logger.warning("%s: only super users are served until that is repaired", error)
                acls = None
            is_small = acls is None or len(acls) <= AT_ONCE_MAX
            build = partial(self._built, acls)
            new = build() if is_small else await self._offload.computed(build)
            if new is not None:
                self.authorizer = new
                self._on_change()

    def _built(self, acls: set[Acl] | None) -> Authorizer | None:
        """What these ACLs come to; None where it is what holds already."""
        known = self.authorizer
        new = Authorizer(acls, self._super_users, allows_unnamed=self._allows_unnamed)
        return new if acls is None or new.acls != known.acls or known.is_closed else None

    async def _purge(self) -> None:
        """Takes away notifications that everybody had time to see. Several brokers do it; one of them is first."""
        for path in (LITERAL_CHANGES, PREFIXED_CHANGES):
            await remove_old_children(self._store, path, self._now_ms() - AGE_MS_MAX, self._turns)

    async def _add_of_type(self, acls: set[Acl], path: str, resource: Resource, pattern: Pattern) -> None:
        names = await self._store.children(path)
        async for name in self._turns.over(names):
            node = await self._store.get(f"{path}/{name}")
            if node is not None:
                acls |= await self._decoded(resource, pattern, name, node.data)

    async def _decoded(self, resource: Resource, pattern: Pattern, name: str, data: bytes) -> frozenset[Acl]:
        decode = partial(decode_acls, resource, pattern, name, data)
        return decode() if len(data) <= DECODED_AT_ONCE_BYTES_MAX else await self._offload.computed(decode)

    # -- changes -------------------------------------------------------------------------------------------------------

    async def create(self, acls: Sequence[Acl]) -> list[ApiError | None]:
        """Adds rules; what is wrong with each, in their order. One that exists already is not an error."""
        outcomes: list[ApiError | None] = []
        wanted: dict[tuple[Resource, Pattern, str], set[Acl]] = defaultdict(set)
        async for acl in self._turns.over(acls):
            try:
                acl.check()
                check_path(node_path(acl.resource, acl.pattern, acl.name))
                wanted[acl.resource, acl.pattern, acl.name].add(acl)
                outcomes.append(None)
            except ApiError as error:
                outcomes.append(error)
            except InvalidPath as error:  # the others can be
                outcomes.append(ApiError(ErrorCode.INVALID_REQUEST, f"no ACL can be of that name: {error}"))
        await self._change_all([_Change(*place, add=frozenset(new)) for place, new in wanted.items()])
        await self.read()
        return outcomes

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Removes the rules that match; which those were, for each filter."""
        found: dict[AclFilter, list[Acl]] = {}
        doomed: dict[tuple[Resource, Pattern, str], set[Acl]] = defaultdict(set)
        async for wanted in self._turns.over(dict.fromkeys(filters)):
            found[wanted] = await self.matching(wanted)
            async for acl in self._turns.over(found[wanted]):
                doomed[acl.resource, acl.pattern, acl.name].add(acl)
        await self._change_all([_Change(*place, remove=frozenset(gone)) for place, gone in doomed.items()])
        await self.read()
        return [found[wanted] async for wanted in self._turns.over(filters)]

    async def matching(self, wanted: AclFilter) -> list[Acl]:
        """The rules that are meant, in order."""
        acls = self.authorizer.acls
        matching = await self._turns.finish(_matching(wanted, acls))
        return (
            sorted(matching)
            if len(matching) <= AT_ONCE_MAX
            else await self._offload.computed(partial(sorted, matching))
        )

    async def _change_all(self, changes: Sequence[_Change]) -> None:
        """Several nodes with each commit: a commit is synced, and every broker reads all ACLs after it."""
        together: list[_Change] = []
        operations: list[Operation] = []
        size_bytes = 0
        async for change in self._turns.over(changes):
            needed = await self._operations(change)
            if not needed:
                continue
            needed_bytes = sum(len(one.path) for one in needed)
            needed_bytes += sum(len(one.data) for one in needed if isinstance(one, (Create, Put)))
            if len(together) == NODES_AT_ONCE or (together and size_bytes + needed_bytes > COMMIT_BYTES_MAX):
                await self._commit(together, operations)
                together, operations, size_bytes = [], [], 0
            together.append(change)
            operations += needed
            size_bytes += needed_bytes
        await self._commit(together, operations)

    async def _commit(self, changes: Sequence[_Change], operations: Sequence[Operation]) -> None:
        """All of them, or where another broker has changed one of the nodes meanwhile, one after the other."""
        if not operations:
            return
        try:
            await self._store.commit(*operations)
        except CONFLICTS:
            for change in changes:
                await self._change(change)

    async def _change(self, change: _Change) -> None:
        """One node, with its notification; the version sees to it that no change of another is lost."""

        async def write() -> None:
            if operations := await self._operations(change):
                await self._store.commit(*operations)

        await until_undisturbed(write)

    async def _operations(self, change: _Change) -> list[Operation]:
        """What changes the node from what it is now, with its notification; nothing where it is so already."""
        resource, pattern, name = change.resource, change.pattern, change.name
        path = node_path(resource, pattern, name)
        node = await self._store.get(path)
        before = frozenset() if node is None else await self._decoded(resource, pattern, name, node.data)
        after = (before | change.add) - change.remove
        if after == before:
            return []
        operation: Operation
        if node is None:
            operation = Create(path, encode_acls(after))
        elif after:
            operation = Put(path, encode_acls(after), node.version)
        else:
            operation = Delete(path, node.version)
        notified_at, notification = change_node(resource, pattern, name)
        return [operation, Create(notified_at, notification, sequential=True)]


def _matching(wanted: AclFilter, acls: frozenset[Acl]) -> Steps[list[Acl]]:
    matching = []
    for number, acl in enumerate(acls, 1):
        if wanted.matches(acl):
            matching.append(acl)
        if number % STEP == 0:
            yield
    return matching

"""The store of a cluster: a ZooKeeper ensemble, through kazoo.

kazoo runs one thread, which owns the connection. Everything that it has to report (answers, watches, the state of the
session) goes to the event loop in the order in which it came over the wire, so the code here runs on the loop only.
That order is what watches rest on: a watch of ZooKeeper fires once. When it does, it is set again before
its callback is called, so whatever is read because of it is read behind that; and while there is no connection there
are none, so all of them are called after a reconnect.

An empty node holds null, as those that Kafka makes: its readers take empty bytes for broken JSON.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from kazoo import exceptions
from kazoo.client import KazooClient, KazooState
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol import serialization
from kazoo.protocol.states import EventType, WatchedEvent
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from ottla.runtime.signal import Signal, wait_any
from ottla.store.api import (
    ROOT,
    BadVersion,
    Check,
    Create,
    Delete,
    InvalidPath,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotAllowed,
    NotEmpty,
    OnChange,
    Operation,
    Put,
    Result,
    SessionLost,
    SessionState,
    StoreClosed,
    StoreError,
    StoreSession,
    StoreUnavailable,
    StoreWatch,
    TooLarge,
    check_node_size,
    check_path,
    commit_bytes,
    parent_of,
)

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

RECONNECT_PAUSE_S: Final = 0.05
RECONNECT_PAUSE_MAX_S: Final = 1.0
# The whole of a request, which `jute.maxbuffer` limits: ZooKeeper closes the connection on a larger one.
REQUEST_BYTES_MAX: Final = 1024 * 1024 - 1 - 64
OPERATION_BYTES: Final = 128  # at most, of one operation besides its path and its data: header, ACL, lengths
FLAG_EPHEMERAL: Final = 1
FLAG_SEQUENTIAL: Final = 2
# Where `zookeeper.set.acl` protects nodes: what only brokers may read, with all below; and where everybody may write.
SECRET_PATHS: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")
OPEN_PATH: Final = "/consumers"  # the oldest consumers make nodes of their own below it
STATES: Final = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}


@dataclass(frozen=True, slots=True)
class ZooKeeperTls:
    """Certificates as PEM files."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify_host_name: bool = True


@dataclass(frozen=True, slots=True)
class Digest:
    """A user of the ensemble, who logs in by SASL DIGEST-MD5."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ZooKeeperOptions:
    """`connect` is Kafka's `zookeeper.connect`: host:port,host:port/chroot."""

    connect: str
    session_timeout_s: float = 18.0
    connection_timeout_s: float = 18.0
    in_flight_max: int = 10
    tls: ZooKeeperTls | None = None
    digest: Digest | None = None
    set_acl: bool = False


async def connect(options: ZooKeeperOptions) -> ZooKeeperStore:
    """A store with a session; StoreUnavailable if there is none within the connection timeout."""
    store = ZooKeeperStore(options)
    try:
        await store.start()
    except BaseException:
        await store.close()
        raise
    return store


class ZooKeeperStore:
    """Implements `ottla.store.api.Store`."""

    def __init__(self, options: ZooKeeperOptions) -> None:
        self._options = options
        self._loop = asyncio.get_running_loop()
        self.session = StoreSession()
        self._is_closed = False
        self._watches: set[_OneShotWatch] = set()
        self._places = asyncio.Semaphore(options.in_flight_max)
        self._kazoo = _client(options, _LoopHandler(self._loop))
        self._kazoo.add_listener(lambda state: self._loop.call_soon_threadsafe(self._state_changed, state))

    async def start(self) -> None:
        options = self._options
        self._kazoo.start_async()
        try:
            async with asyncio.timeout(options.connection_timeout_s):
                while self.session.state is not SessionState.CONNECTED:
                    await self.session.changed.wait()
        except TimeoutError:
            raise StoreUnavailable(
                options.connect,
                f"no session with this ZooKeeper within {options.connection_timeout_s:g} s "
                "(zookeeper.connection.timeout.ms): is it running, and is zookeeper.connect right?",
            ) from None
        if self._kazoo.chroot:
            await self._make_chroot()

    async def _make_chroot(self) -> None:
        """The node that is the root of this store, and those above it."""
        names = self._kazoo.chroot.strip("/").split("/")
        for count in range(1, len(names) + 1):
            transaction = self._kazoo.transaction()
            path = "/" + "/".join(names[:count])
            transaction.operations.append(serialization.Create(path, None, self._acl(ROOT), 0))
            (outcome,) = await self._ask(path, transaction.commit_async)
            if isinstance(outcome, Exception) and not isinstance(outcome, exceptions.NodeExistsError):
                raise _refusal(Create(path), outcome)

    # -- reading -------------------------------------------------------------------------------------------------------

    async def get(self, path: str) -> Node | None:
        self._check_usable(path)
        try:
            data, stat = await self._ask(path, lambda: self._kazoo.get_async(path))
        except NoNode:
            return None
        return Node(data or b"", stat.version, stat.czxid, stat.ctime, stat.ephemeralOwner, stat.mzxid)

    async def children(self, path: str) -> list[str]:
        self._check_usable(path)
        return sorted(await self._ask(path, lambda: self._kazoo.get_children_async(path)))

    async def sync(self, path: str) -> None:
        self._check_usable(path)
        await self._ask(path, lambda: self._kazoo.sync_async(path))

    def watch_node(self, path: str, on_change: OnChange) -> StoreWatch:
        return self._watch(path, on_change, of_children=False)

    def watch_children(self, path: str, on_change: OnChange) -> StoreWatch:
        return self._watch(path, on_change, of_children=True)

    def _watch(self, path: str, on_change: OnChange, *, of_children: bool) -> _OneShotWatch:
        self._check_usable(path)
        watch = _OneShotWatch(self._kazoo, path, on_change, self._watches, of_children=of_children)
        self._watches.add(watch)
        if self.session.state is SessionState.CONNECTED:
            watch.arm()
        return watch

    # -- writing -------------------------------------------------------------------------------------------------------

    async def commit(self, *operations: Operation) -> list[Result]:
        if self._is_closed:
            raise StoreClosed(operations[0].path if operations else ROOT)
        if not operations:
            return []
        _check(operations)
        transaction = self._kazoo.transaction()
        transaction.operations.extend(self._request(operation) for operation in operations)
        outcomes = await self._ask(operations[0].path, transaction.commit_async)
        for operation, outcome in zip(operations, outcomes, strict=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, _CONSEQUENCES):
                raise _refusal(operation, outcome)
        return [_result(operation, outcome) for operation, outcome in zip(operations, outcomes, strict=True)]

    def _request(self, operation: Operation) -> Any:
        match operation:
            case Create(path, data, ephemeral, sequential):
                flags = FLAG_EPHEMERAL * ephemeral + FLAG_SEQUENTIAL * sequential
                return serialization.Create(self._full(path), data or None, self._acl(path), flags)
            case Put(path, data, version):
                return serialization.SetData(self._full(path), data or None, version)
            case Delete(path, version):
                return serialization.Delete(self._full(path), version)
            case Check(path, version):
                return serialization.CheckVersion(self._full(path), version)

    def _full(self, path: str) -> str:
        return f"{self._kazoo.chroot}{path}" if path != ROOT else self._kazoo.chroot or ROOT

    def _acl(self, path: str) -> list[ACL]:
        return protecting_acl(path) if self._options.set_acl else list(OPEN_ACL_UNSAFE)

    async def _ask(self, path: str, send: Callable[[], Any]) -> Any:
        """Sends a request of kazoo's and waits for its answer, whose errors become ours."""
        async with self._places:
            if self._is_closed:
                raise StoreClosed(path)
            if self.session.state is SessionState.LOST:
                raise SessionLost(path, "there is no session with ZooKeeper; one is being made")
            answer: asyncio.Future[Any] = self._loop.create_future()
            send().rawlink(lambda result: _hand_over(result, answer))
            try:
                return await answer
            except exceptions.KazooException as error:
                raise _error(path, error) from error

    # -- the session ---------------------------------------------------------------------------------------------------

    def _state_changed(self, state: str) -> None:
        """On the loop. kazoo makes a new session by itself after the old one has ended."""
        known = STATES[state]
        client_id = self._kazoo.client_id
        session_id = client_id[0] if known is SessionState.CONNECTED and client_id else self.session.session_id
        logger.info("ZooKeeper session %#x: %s", session_id, known.name.lower())
        self.session.become(known, session_id)
        if known is SessionState.CONNECTED:
            for watch in tuple(self._watches):
                watch.arm()
                watch.call()

    def _check_usable(self, path: str) -> None:
        if self._is_closed:
            raise StoreClosed(path)
        check_path(path)

    async def close(self) -> None:
        if self._is_closed:
            return
        finished = Signal()
        finishing = asyncio.ensure_future(self._take_all_places())
        finishing.add_done_callback(lambda _: finished.fire())
        # Without a connection nothing is answered until there is one, which may be never.
        while self.session.state is SessionState.CONNECTED and not finishing.done():
            await wait_any((finished, self.session.changed), None)
        self._is_closed = True
        finishing.cancel()
        await asyncio.wait((finishing,))
        self._watches.clear()
        await asyncio.to_thread(self._stop)  # what is still in flight fails
        self.session.become(SessionState.LOST, self.session.session_id)

    async def _take_all_places(self) -> None:
        """Until no request is in flight: each holds its place."""
        async with AsyncExitStack() as stack:
            for _ in range(self._options.in_flight_max):
                await stack.enter_async_context(self._places)
            self._is_closed = True

    def _stop(self) -> None:
        self._kazoo.stop()
        self._kazoo.close()


class _OneShotWatch:
    """A watch that is set again whenever it fired."""

    __slots__ = ("_is_of_children", "_kazoo", "_on_change", "_watches", "path")

    def __init__(
        self,
        kazoo: KazooClient,
        path: str,
        on_change: OnChange,
        watches: set[_OneShotWatch],
        *,
        of_children: bool,
    ) -> None:
        self.path = path
        self._kazoo = kazoo
        self._on_change: OnChange | None = on_change
        self._watches = watches
        self._is_of_children = of_children

    def arm(self) -> None:
        if self._is_of_children:
            self._kazoo.get_children_async(self.path, watch=self._fired).rawlink(self._armed)
        else:
            self._kazoo.exists_async(self.path, watch=self._fired)

    def _armed(self, result: Any) -> None:
        if isinstance(result.exception, exceptions.NoNodeError):
            # No children to watch; when the node comes, this fires and they are.
            self._kazoo.exists_async(self.path, watch=self._fired).rawlink(self._looked_for)

    def _looked_for(self, result: Any) -> None:
        if result.exception is None and result.value is not None and self._on_change is not None:
            self.arm()  # it came between the two requests
            self.call()

    def _fired(self, event: WatchedEvent) -> None:
        if event.type == EventType.NONE or self._on_change is None:
            return  # the connection went; the next one arms all watches
        self.arm()
        self.call()

    def call(self) -> None:
        if self._on_change is not None:
            self._on_change()

    def cancel(self) -> None:
        self._on_change = None
        self._watches.discard(self)


class _LoopQueue:
    """Takes kazoo's callbacks and runs them on the event loop, in their order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def put(self, callback: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)


class _LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's way to run callbacks, without its two threads for them: they could overtake each other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.callback_queue = self.completion_queue = _LoopQueue(loop)

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False


def _client(options: ZooKeeperOptions, handler: _LoopHandler) -> KazooClient:
    tls, digest = options.tls, options.digest
    return KazooClient(
        options.connect,
        timeout=options.session_timeout_s,
        handler=handler,
        connection_retry=KazooRetry(
            max_tries=-1, delay=RECONNECT_PAUSE_S, max_delay=RECONNECT_PAUSE_MAX_S, sleep_func=handler.sleep_func
        ),
        logger=logging.getLogger("ottla.store.kazoo"),
        use_ssl=tls is not None,
        ca=tls.ca_file if tls else None,
        certfile=tls.certificate_file if tls else None,
        keyfile=tls.key_file if tls else None,
        keyfile_password=tls.key_password if tls else None,
        check_hostname=tls.verify_host_name if tls else False,
        sasl_options=None
        if digest is None
        else {"mechanism": "DIGEST-MD5", "username": digest.user, "password": digest.password},
    )


def _hand_over(result: Any, answer: asyncio.Future[Any]) -> None:
    if answer.done():
        return  # whoever asked has given up
    if result.exception is not None:
        answer.set_exception(result.exception)
    else:
        answer.set_result(result.value)


# -- errors ------------------------------------------------------------------------------------------------------------

# What kazoo says of operations that another one of their commit has undone.
_CONSEQUENCES: Final = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)
_LOST: Final = (exceptions.SessionExpiredError, exceptions.ConnectionClosedError)


def _error(path: str, error: exceptions.KazooException) -> StoreError:
    """What a whole request failed with."""
    if isinstance(error, exceptions.NoNodeError):
        return NoNode(path)
    if isinstance(error, _LOST):
        return SessionLost(path, "the session with ZooKeeper has ended")
    if isinstance(error, exceptions.ConnectionLoss):
        return StoreUnavailable(path, "the connection to ZooKeeper was lost; whether the request was done is unknown")
    if isinstance(error, exceptions.NoAuthError):
        return NotAllowed(path)
    if isinstance(error, exceptions.AuthFailedError):
        return StoreUnavailable(path, "ZooKeeper refuses the login: check user and password")
    return StoreUnavailable(path, f"ZooKeeper answers {type(error).__name__}: {error}")


def _refusal(operation: Operation, error: Exception) -> StoreError:
    """What a rule of the tree has against an operation."""
    path = operation.path
    match error:
        case exceptions.NodeExistsError():
            return NodeExists(path)
        case exceptions.NoNodeError():
            return NoNode(parent_of(path) if isinstance(operation, Create) else path)
        case exceptions.BadVersionError():
            assert not isinstance(operation, Create)
            return BadVersion(path, operation.version)
        case exceptions.NotEmptyError():
            return NotEmpty(path)
        case exceptions.NoChildrenForEphemeralsError():
            return NoChildrenForEphemerals(parent_of(path))
        case exceptions.KazooException():
            return _error(path, error)
    raise error


def _result(operation: Operation, outcome: Any) -> Result:
    match operation:
        case Create():
            return str(outcome)
        case Put():
            return int(outcome.version)
        case _:
            return None


def _check(operations: Sequence[Operation]) -> None:
    """The rules that ZooKeeper would answer with a closed connection or not at all."""
    for operation in operations:
        path = operation.path
        check_path(f"{path}0" if isinstance(operation, Create) and operation.sequential else path)
        if path == ROOT and isinstance(operation, Create):
            raise NodeExists(ROOT)
        if path == ROOT and isinstance(operation, Delete):
            raise InvalidPath(path, "the root cannot be deleted")
        if isinstance(operation, Create | Put):
            check_node_size(path, operation.data)
    size_bytes = commit_bytes(operations) + sum(len(operation.path.encode()) for operation in operations)
    size_bytes += OPERATION_BYTES * len(operations)
    if size_bytes > REQUEST_BYTES_MAX:
        raise TooLarge(
            operations[0].path, f"a commit of {size_bytes} bytes is more than a request to ZooKeeper may hold"
        )


def protecting_acl(path: str) -> list[ACL]:
    """Who may do what with a node where `zookeeper.set.acl` is on, as in Kafka."""
    if path == OPEN_PATH:
        return list(OPEN_ACL_UNSAFE)
    return [*CREATOR_ALL_ACL, *([] if _is_below(path, SECRET_PATHS) else READ_ACL_UNSAFE)]


def _is_below(path: str, roots: Sequence[str]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)

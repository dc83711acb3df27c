"""A ZooKeeper ensemble that is not real, shared by the brokers of a simulated world, with all that it may do to them.

    ensemble = SimulatedEnsemble(loop, rng, now_ms)
    store = ensemble.connect("broker-1")        # a store with a session of its own
    ensemble.cut("broker-1")                    # no message passes any more; after a while the session ends
    ensemble.heal("broker-1")

It keeps the promises of the real one and no others. Commits have one order. A session reads from a server that may be
behind, but never goes back and never misses what it wrote itself; answers and watches reach it in the order of that
server's view. When a connection breaks, requests that were in flight may have been done or not, and their callers learn
only that it is unknown. A session whose client is silent for its timeout ends: its ephemeral nodes go, and the
client learns of it when it comes back.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from ottla.store.api import (
    ROOT,
    Delete,
    Node,
    NotAllowed,
    OnChange,
    Operation,
    Result,
    SessionLost,
    SessionState,
    StoreClosed,
    StoreError,
    StoreSession,
    StoreUnavailable,
    StoreWatch,
    check_path,
    commit_bytes,
)
from ottla.store.local import node_of
from ottla.store.tree import CommitContext, Tree, TreeDecision, decide
from ottla.store.watches import Watches

UNKNOWN_OUTCOME = "the connection was lost; whether the request was done is unknown"


@dataclass(slots=True)
class EnsembleConditions:
    """How the ensemble behaves. All chance is drawn from the world's."""

    message_s_max: float = 0.005  # a message takes up to this long
    lag_s_max: float = 0.05  # a server learns of a commit up to this long after the others
    session_timeout_s: float = 6.0
    break_chance: float = 0.0  # of a connection, before each answer


@dataclass(slots=True)
class _Interruption:
    session_id: int
    commits_left: int
    happen: Callable[[], object]


class SimulatedEnsemble:
    """The servers: the log of all commits, and the sessions."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        rng: Random,
        now_ms: Callable[[], int],
        conditions: EnsembleConditions | None = None,
        trace: Callable[[str], None] = lambda event: None,
    ) -> None:
        self.loop = loop
        self.rng = rng
        self.now_ms = now_ms
        self.conditions = EnsembleConditions() if conditions is None else conditions
        self.trace = trace
        self.tree = Tree()  # the newest state
        self.commits: list[TreeDecision] = []
        self.foreign: set[str] = set()  # nodes that another user protects from clients
        self._sessions: dict[int, _ServerSession] = {}
        self._next_session_id = 0x1000
        self.lag_s_max_of: dict[str, float] = {}  # of the servers of single clients, instead of that of the conditions
        self._cut_off: set[str] = set()
        self._interruption: _Interruption | None = None
        self.is_down = False

    # -- for a scenario ------------------------------------------------------------------------------------------------

    def connect(self, client_name: str) -> SimulatedStore:
        """A store of a process; its session begins as soon as a server can be reached."""
        return SimulatedStore(self, client_name)

    def cut(self, client_name: str) -> None:
        """No message of this client reaches a server any more, nor the other way round."""
        self._cut_off.add(client_name)
        self._break(client_name)

    def heal(self, client_name: str) -> None:
        self._cut_off.discard(client_name)

    def go_down(self) -> None:
        """No server serves; sessions do not end meanwhile, as nobody is there to end them."""
        self.is_down = True
        self.break_connections()

    def come_up(self) -> None:
        """A new leader gives every session its whole time again."""
        self.is_down = False
        for session in list(self._sessions.values()):
            session.expect_client()

    def break_connections(self) -> None:
        """All clients have to connect again; their sessions go on."""
        for session in list(self._sessions.values()):
            session.break_connection()

    def interrupt_after(self, session_id: int, commits: int, interrupt: Callable[[], object]) -> None:
        """Once a session has made so many commits from here on, something happens before the answer arrives."""
        self._interruption = _Interruption(session_id, commits, interrupt)

    def was_interrupted(self) -> bool:
        """Whether that has happened; if not it will not any more."""
        interruption, self._interruption = self._interruption, None
        return interruption is not None and interruption.commits_left == 0

    def end_session(self, session_id: int) -> None:
        """As if its time were up."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        self.trace(f"session {session_id:#x} of {session.client_name} ends")
        session.pause()
        owned = [path for path, entry in self.tree.items() if entry.owner == session_id]
        self.commit(session_id, tuple(Delete(path) for path in owned))
        session.break_connection()

    def _break(self, client_name: str) -> None:
        for session in list(self._sessions.values()):
            if session.client_name == client_name:
                session.break_connection()

    # -- for sessions --------------------------------------------------------------------------------------------------

    def is_reachable(self, client_name: str) -> bool:
        return not self.is_down and client_name not in self._cut_off

    def begin_session(self, client_name: str) -> _ServerSession:
        self._next_session_id += 1
        session = _ServerSession(self, self._next_session_id, client_name)
        self._sessions[session.session_id] = session
        self.trace(f"session {session.session_id:#x} of {client_name} begins")
        return session

    def session(self, session_id: int) -> _ServerSession | None:
        return self._sessions.get(session_id)

    def commit(self, session_id: int, operations: tuple[Operation, ...]) -> list[Result]:
        for operation in operations:
            if operation.path in self.foreign and session_id:
                raise NotAllowed(operation.path)
        context = CommitContext(session_id, len(self.commits) + 1, self.now_ms())
        decision = decide(self.tree, operations, context)
        self._log(decision)
        interruption = self._interruption
        if interruption is not None and interruption.session_id == session_id and interruption.commits_left:
            interruption.commits_left -= 1
            if not interruption.commits_left:
                self.loop.call_soon(interruption.happen)
        return decision.results

    def _log(self, decision: TreeDecision) -> None:
        self.tree.apply(decision.changes)
        self.commits.append(decision)
        for session in self._sessions.values():
            session.hear_of_commit()

    def delay_s(self) -> float:
        return self.rng.random() * self.conditions.message_s_max


class _Watches(Watches):
    """Those of a client that loses its connection now and then."""

    def call_all(self, loop: asyncio.AbstractEventLoop) -> None:
        """Changes may have been missed: everybody looks again."""
        for by_path in (self._nodes, self._children):
            for watches in by_path.values():
                for watch in watches:
                    loop.call_soon(watch.call)


class _ServerSession:
    """A session as its server keeps it: a view of the log that only goes forward, and the connection to the client."""

    def __init__(self, ensemble: SimulatedEnsemble, session_id: int, client_name: str) -> None:
        self._ensemble = ensemble
        self.session_id = session_id
        self.client_name = client_name
        self.view = Tree()
        self._seen = 0  # commits that the view holds
        self._client: SimulatedStore | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._catch_up_timer: asyncio.TimerHandle | None = None
        self._catch_up(len(ensemble.commits))

    # -- the connection ------------------------------------------------------------------------------------------------

    def attach(self, client: SimulatedStore) -> None:
        """The client is back; the server that it found may be another one, but none that is behind what it saw."""
        self._client = client
        self.pause()

    def break_connection(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.connection_broke()
        if self._ensemble.session(self.session_id) is self:
            self.expect_client()

    def expect_client(self) -> None:
        """The session's time runs while there is no connection."""
        self.pause()
        if self._client is None and not self._ensemble.is_down:
            timeout_s = self._ensemble.conditions.session_timeout_s
            self._timer = self._ensemble.loop.call_later(
                timeout_s, self._ensemble.end_session, self.session_id, context=contextvars.Context()
            )

    def pause(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- the view ------------------------------------------------------------------------------------------------------

    def hear_of_commit(self) -> None:
        """Some time after the others, this server knows too."""
        if self._catch_up_timer is None:
            ensemble = self._ensemble
            lag_s_max = ensemble.lag_s_max_of.get(self.client_name, ensemble.conditions.lag_s_max)
            lag_s = ensemble.rng.random() * lag_s_max
            self._catch_up_timer = self._ensemble.loop.call_later(
                lag_s, self._catch_up_in_time, context=contextvars.Context()
            )

    def _catch_up_in_time(self) -> None:
        self._catch_up_timer = None
        self._catch_up(len(self._ensemble.commits))

    def _catch_up(self, count: int) -> None:
        while self._seen < count:
            decision = self._ensemble.commits[self._seen]
            self._seen += 1
            self.view.apply(decision.changes)
            if self._client is not None and (decision.touched or decision.came_or_went):
                self._client.view_moved(decision)

    def sync(self) -> None:
        self._catch_up(len(self._ensemble.commits))

    def commit(self, operations: tuple[Operation, ...]) -> list[Result]:
        try:
            return self._ensemble.commit(self.session_id, operations)
        finally:
            self._catch_up(len(self._ensemble.commits))  # what it wrote, or why it could not, it sees from here on


class _Channel:
    """One direction of a connection: what is sent arrives later, in its order, until the channel is dropped."""

    def __init__(self, ensemble: SimulatedEnsemble, context: contextvars.Context) -> None:
        self._ensemble = ensemble
        self._context = context
        self._waiting: deque[Callable[[], None]] = deque()
        self._last_at = 0.0

    def send(self, arrive: Callable[[], None]) -> None:
        loop = self._ensemble.loop
        self._last_at = max(self._last_at, loop.time() + self._ensemble.delay_s())
        self._waiting.append(arrive)
        loop.call_at(self._last_at, self._deliver, context=self._context)

    def _deliver(self) -> None:
        # The oldest one, whichever timer this is: those of one moment fire in any order.
        if self._waiting:
            self._waiting.popleft()()

    def drop(self) -> None:
        self._waiting.clear()


@dataclass(slots=True)
class _Request:
    serve: Callable[[_ServerSession], Any]
    answer: asyncio.Future[Any]
    path: str


class SimulatedStore:
    """Implements `ottla.store.api.Store` for one process of the world."""

    def __init__(self, ensemble: SimulatedEnsemble, client_name: str) -> None:
        self._ensemble = ensemble
        self._name = client_name
        self._loop = ensemble.loop
        self._context = contextvars.copy_context()
        self.session = StoreSession()
        self._server: _ServerSession | None = None
        self._to_server = _Channel(ensemble, contextvars.Context())
        self._to_client = _Channel(ensemble, self._context)
        self._under_way: deque[_Request] = deque()
        self._watches = _Watches()
        self._is_closed = False
        self._connect()

    # -- the contract --------------------------------------------------------------------------------------------------

    async def get(self, path: str) -> Node | None:
        self._check_usable(path)
        entry = await self._ask(path, lambda session: session.view.entry(path))
        return None if entry is None else node_of(entry)

    async def children(self, path: str) -> list[str]:
        self._check_usable(path)
        names: list[str] = await self._ask(path, lambda session: session.view.children(path))
        return names

    async def sync(self, path: str) -> None:
        self._check_usable(path)
        await self._ask(path, lambda session: session.sync())

    async def commit(self, *operations: Operation) -> list[Result]:
        path = operations[0].path if operations else ROOT
        if self._is_closed:
            raise StoreClosed(path)
        if not operations:
            return []
        commit_bytes(operations)
        results: list[Result] = await self._ask(path, lambda session: session.commit(operations))
        return results

    def watch_node(self, path: str, on_change: OnChange) -> StoreWatch:
        self._check_usable(path)
        return self._watches.add_node(path, on_change)

    def watch_children(self, path: str, on_change: OnChange) -> StoreWatch:
        self._check_usable(path)
        return self._watches.add_children(path, on_change)

    async def close(self) -> None:
        """Ends the session at once where the ensemble can be reached; else it ends by itself."""
        if self._is_closed:
            return
        while self._under_way:
            answer = self._under_way[0].answer
            await asyncio.wait([answer])
            # Who asked may have been cancelled: then the answer is still on its way.
            await asyncio.sleep(self._ensemble.conditions.message_s_max if answer.cancelled() else 0)
        self._is_closed = True
        server, self._server = self._server, None
        self._to_client.drop()
        if server is not None and self._ensemble.is_reachable(self._name):
            self._ensemble.end_session(server.session_id)
        self.session.become(SessionState.LOST, self.session.session_id)

    def vanish(self) -> None:
        """The process is gone without a word: nobody answers any more, and the session runs out."""
        self._is_closed = True
        server, self._server = self._server, None
        self._to_server.drop()
        self._to_client.drop()
        if server is not None:
            server.break_connection()

    def _check_usable(self, path: str) -> None:
        if self._is_closed:
            raise StoreClosed(path)
        check_path(path)

    async def _ask(self, path: str, serve: Callable[[_ServerSession], Any]) -> Any:
        if self.session.state is SessionState.LOST:
            raise SessionLost(path, "there is no session; one is being made")
        if self._server is None:
            raise StoreUnavailable(path, UNKNOWN_OUTCOME)
        request = _Request(serve, self._loop.create_future(), path)
        self._under_way.append(request)
        self._to_server.send(lambda: self._arrive(request))
        return await request.answer

    # -- messages ------------------------------------------------------------------------------------------------------

    def _arrive(self, request: _Request) -> None:
        """At the server."""
        server = self._server
        assert server is not None, "what is sent goes with its connection"
        outcome: object
        try:
            outcome = request.serve(server)
        except StoreError as refusal:
            outcome = refusal
        if self._ensemble.rng.random() < self._ensemble.conditions.break_chance:
            server.break_connection()  # it was done, and the response is lost
            return
        self._to_client.send(lambda: self._answered(request, outcome))

    def view_moved(self, decision: TreeDecision) -> None:
        """At the server: watches fire in the order of the view, among the answers."""
        self._to_client.send(lambda: self._watches.schedule(decision.touched, decision.came_or_went, self._loop))

    def _answered(self, request: _Request, outcome: object) -> None:
        self._under_way.remove(request)
        if request.answer.done():
            return
        if isinstance(outcome, StoreError):
            request.answer.set_exception(outcome)
        else:
            request.answer.set_result(outcome)

    # -- the session ---------------------------------------------------------------------------------------------------

    def connection_broke(self) -> None:
        """At the client: what was in flight is unknown, and another server is looked for."""
        self._server = None
        self._to_server.drop()
        self._to_client.drop()
        self._context.run(self._fail_under_way)
        if not self._is_closed:
            self.session.become(SessionState.SUSPENDED, self.session.session_id)
            self._loop.call_later(self._ensemble.delay_s(), self._connect, context=self._context)

    def _fail_under_way(self) -> None:
        while self._under_way:
            request = self._under_way.popleft()
            if not request.answer.done():
                request.answer.set_exception(StoreUnavailable(request.path, UNKNOWN_OUTCOME))

    def _connect(self) -> None:
        if self._is_closed or self._server is not None:
            return
        if not self._ensemble.is_reachable(self._name):
            self._loop.call_later(0.05 + self._ensemble.delay_s(), self._connect, context=self._context)
            return
        known = self._ensemble.session(self.session.session_id)
        if known is None and self.session.session_id and self.session.state is not SessionState.LOST:
            self.session.become(SessionState.LOST, self.session.session_id)
            self._loop.call_later(self._ensemble.delay_s(), self._connect, context=self._context)
            return
        self._server = known if known is not None else self._ensemble.begin_session(self._name)
        self._server.attach(self)
        self.session.become(SessionState.CONNECTED, self._server.session_id)
        self._watches.call_all(self._loop)

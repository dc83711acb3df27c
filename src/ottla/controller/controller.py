"""The controller of a cluster: every broker runs one, and one of them is elected for a term.

Whoever creates the ephemeral node `/controller` first is elected, and raises the epoch in the same commit. During
a term, events are queued and handled one at a time: changes in the store, responses of brokers, requests. Nothing of a
term outlives it. A term belongs to a session with the store: when the session ends, so does the term, before a new
session does anything.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from ottla.cluster import nodes
from ottla.cluster.control_batch import ControlRequest
from ottla.cluster.controller_context import ControllerContext
from ottla.cluster.moves import is_moving
from ottla.cluster.topics import new_topic_id
from ottla.controller import brokers, elections, moves, topics
from ottla.controller.deletions import Deletions
from ottla.controller.peers import Peers
from ottla.controller.settings import ControllerSettings
from ottla.controller.term import ControllerMoved, Term
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.replication import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
)
from ottla.runtime.signal import Signal, wait_any
from ottla.store.api import (
    BadVersion,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NotAllowed,
    Put,
    SessionState,
    Store,
    StoreError,
    StoreUnavailable,
    StoreWatch,
)

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

FIRST_REBALANCE_S = 5.0  # after the election
REQUESTS_WAITING_MAX = 10_000
FAILED_PAUSE_S = 1.0  # before a broker whose term failed tries to be elected again: others first


class Controller:
    """Tries to be elected, and serves when it is, until `run` is cancelled."""

    def __init__(
        self,
        node_id: int,
        store: Store,
        make_peers: Callable[[], Peers],
        settings: ControllerSettings,
        rng: random.Random,
        now_ms: Callable[[], int],
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._make_peers = make_peers
        self._settings = settings
        self._rng = rng
        self._now_ms = now_ms
        self._changed = Signal()  # the node of the controller, or whether this broker wants to be it
        self._ended = Signal()  # a term
        self._has_stood_down = False
        self._active: _Active | None = None
        self._context: ControllerContext | None = None  # of the latest term

    @property
    def is_active(self) -> bool:
        """From the election on: whoever is announced as the controller takes requests, which wait for the take-over."""
        return self._active is not None and not self._active.is_over

    async def run(self) -> None:
        """Until it is cancelled, or stands down."""
        session = self._store.session
        watch = self._store.watch_node(nodes.CONTROLLER, self._changed.fire)
        try:
            while not self._has_stood_down:
                seen = self._changed.count, session.changed.count
                if session.state is SessionState.CONNECTED:
                    elected = await self._try_election()
                    if elected is not None:
                        await self._serve(elected)
                        continue
                # A node that goes right behind the answer is reported before this goes on.
                if (self._changed.count, session.changed.count) == seen:
                    await wait_any((self._changed, session.changed), None)
            await self.resign()  # elected while it stood down
        finally:
            watch.cancel()

    async def ask(self, work: Callable[[Term], Awaitable[Answer]]) -> Answer:
        """Has an event handled and returns what it answers; NOT_CONTROLLER where another broker is to be asked."""
        if self._active is None or self._active.is_over:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        return await self._active.ask(work)

    def settings_changed(self, topics: Collection[str] | None) -> None:
        """Of these topics, or of all (None): it may be allowed now to elect leaders where there are none."""
        if self._active is not None:
            self._active.settings_changed(topics)

    def close(self) -> None:
        if self._active is not None:
            self._active.end()

    # -- election ------------------------------------------------------------------------------------------------------

    async def _try_election(self) -> ControllerContext | None:
        """The context of the new term; None if another broker is the controller."""
        try:
            node: Node | None = await self._store.get(nodes.CONTROLLER)
            if node is not None and not (self._is_ours(node) and await self._delete_unserved()):
                return None
            return await self._create_controller_node()
        except StoreUnavailable as error:
            logger.info("no election yet: %s", error)
            return None
        except NotAllowed as error:
            logger.error("this broker cannot be the controller: %s", error)
            return None
        except StoreError as error:
            logger.info("another broker won the election: %s", error)
            return None

    def _is_ours(self, node: Node | None) -> bool:
        return node is not None and node.owner == self._store.session.session_id

    async def _delete_unserved(self) -> bool:
        """Of a term that this broker does not serve: its election was not known to be won, or its end not written.

        Others wait for as long as the node is there. The epoch is read before the node: if the session has ended and
        another broker is elected by then, its node is not taken for ours.
        """
        epoch: Node | None = await self._store.get(nodes.CONTROLLER_EPOCH)
        if epoch is None or not self._is_ours(await self._store.get(nodes.CONTROLLER)):
            return False
        await self._store.commit(Check(nodes.CONTROLLER_EPOCH, epoch.version), Delete(nodes.CONTROLLER))
        return True

    async def _create_controller_node(self) -> ControllerContext | None:
        with suppress(NodeExists):
            if await self._store.get(nodes.CONTROLLER_EPOCH) is None:
                await self._store.commit(Create(nodes.CONTROLLER_EPOCH, b"0"))
        node = await self._store.get(nodes.CONTROLLER_EPOCH)
        assert node is not None, "just made, and never deleted"
        epoch = nodes.decode_controller_epoch(nodes.CONTROLLER_EPOCH, node.data) + 1
        try:
            await self._store.commit(
                Create(nodes.CONTROLLER, nodes.encode_controller(self._node_id, self._now_ms()), ephemeral=True),
                Put(nodes.CONTROLLER_EPOCH, str(epoch).encode(), node.version),
            )
        except (NodeExists, BadVersion):
            return None
        except StoreUnavailable:
            if not await self._was_elected(epoch):
                raise
        logger.info("broker %d is the controller, in epoch %d", self._node_id, epoch)
        return ControllerContext(self._node_id, epoch, node.version + 1)

    async def _was_elected(self, epoch: int) -> bool:
        """Whether an election whose answer was lost was won."""
        session = self._store.session
        while session.state is SessionState.SUSPENDED:
            await session.changed.wait()
        controller: Node | None = await self._store.get(nodes.CONTROLLER)
        raised: Node | None = await self._store.get(nodes.CONTROLLER_EPOCH)
        return (
            controller is not None
            and controller.owner == session.session_id
            and raised is not None
            and raised.data == str(epoch).encode()
        )

    # -- a term --------------------------------------------------------------------------------------------------------

    async def _serve(self, context: ControllerContext) -> None:
        """Serves a term to its end."""
        session_id = self._store.session.session_id
        self._context = context
        active = self._active = _Active(context, self._store, self._make_peers(), self._settings, self._rng)
        serving = asyncio.ensure_future(active.run())
        served = Signal()
        serving.add_done_callback(lambda _: served.fire())
        try:
            while not serving.done():
                session = self._store.session
                if session.state is SessionState.LOST or session.session_id != session_id or self._has_stood_down:
                    break
                seen = self._changed.count, session.changed.count
                if not await self._has_office(session_id):
                    logger.info("the node of the controller is not of broker %d any more", self._node_id)
                    break
                if (self._changed.count, session.changed.count) == seen:
                    await wait_any((session.changed, self._changed, served), None)
        finally:
            active.end()
            serving.cancel()
            await asyncio.wait((serving,))
            self._active = None
            self._ended.fire()
            logger.info("broker %d is no longer the controller of epoch %d", self._node_id, context.epoch)
        failure = None if serving.cancelled() else serving.exception()
        if failure is not None and not isinstance(failure, ControllerMoved):
            # What is known may be wrong by now. Whoever is elected next reads everything again, even this broker.
            logger.error("the controller failed in epoch %d and resigns", context.epoch, exc_info=failure)
            await self.resign()
            await asyncio.sleep(FAILED_PAUSE_S)

    async def _has_office(self, session_id: int) -> bool:
        """Whether the node of the controller is still ours: operators delete it to have another broker elected."""
        try:
            node: Node | None = await self._store.get(nodes.CONTROLLER)
        except StoreError:
            return True  # as far as we know; every write is checked
        return node is not None and node.owner == session_id

    async def stand_down(self, patience_s: float) -> None:
        """Has another broker be elected, if this one is the controller, and is not elected again.

        What it has decided is sent to the brokers first, as long as that takes less than `patience_s`: otherwise they
        wait until the next controller has read everything.
        """
        active = self._active
        if active is not None:
            await active.wait_until_sent(patience_s)
        self._has_stood_down = True
        while self._active is not None:
            self._changed.fire()
            await self._ended.wait()
        self._changed.fire()
        await self.resign()

    async def resign(self) -> None:
        """Lets another broker be elected at once, before the session ends, if this one is the controller."""
        context, self._context = self._context, None
        if context is None or self._store.session.state is not SessionState.CONNECTED:
            return
        with suppress(StoreError):
            await self._store.commit(Check(nodes.CONTROLLER_EPOCH, context.epoch_version), Delete(nodes.CONTROLLER))


class _Active:
    """An elected controller: its queue, and all events that are put into it."""

    def __init__(
        self, context: ControllerContext, store: Store, peers: Peers, settings: ControllerSettings, rng: random.Random
    ) -> None:
        self._peers = peers
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._term = Term(context, store, peers, settings, self._on_response)
        self._deletions = Deletions(self._term)
        self._queue: deque[Callable[[], Awaitable[None]]] = deque()
        self._due: set[str] = set()  # what is in the queue already and need not be twice
        self._waiting: dict[asyncio.Future[Any], None] = {}
        self._more = Signal()
        self._watches: list[StoreWatch] = []
        self._watches_below: dict[str, dict[str, StoreWatch]] = {nodes.BROKER_IDS: {}, nodes.TOPICS: {}}
        self._timer: asyncio.TimerHandle | None = None
        self.is_over = False

    async def run(self) -> None:
        """Takes over, then handles one event after the other, until the term is over."""
        await self._take_over()
        while True:
            while self._queue:
                await self._queue.popleft()()
                self._term.send()
            await self._more.wait()

    async def wait_until_sent(self, patience_s: float) -> None:
        """Until brokers have answered all that follows from the events so far."""
        with suppress(TimeoutError, ApiError):
            async with asyncio.timeout(patience_s):
                await self.ask(_nothing)
                await self._peers.wait_until_answered()

    def end(self) -> None:
        """Drops everything at once."""
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
        for watch in (*self._watches, *(watch for below in self._watches_below.values() for watch in below.values())):
            watch.cancel()
        self._peers.close()
        self._queue.clear()
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(ApiError(ErrorCode.NOT_CONTROLLER, "the controller has moved"))

    # -- the queue -----------------------------------------------------------------------------------------------------

    def _enqueue(self, work: Callable[[], Awaitable[None]]) -> None:
        if not self.is_over:
            self._queue.append(work)
            self._more.fire()

    def _look(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Something changed in the store: it is looked at once, however often it changed before that."""
        if name in self._due or self.is_over:
            return
        self._due.add(name)

        async def look() -> None:
            self._due.discard(name)
            await work()

        self._enqueue(look)

    async def ask(self, work: Callable[[Term], Awaitable[Answer]]) -> Answer:
        if len(self._waiting) >= REQUESTS_WAITING_MAX:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{REQUESTS_WAITING_MAX} requests wait for the controller")
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting[answer] = None

        async def handle() -> None:
            if answer.done():
                return
            try:
                result = await work(self._term)
            except ApiError as error:
                if not answer.done():
                    answer.set_exception(error)
                return
            if not answer.done():
                answer.set_result(result)
            await self._after_changes()

        self._enqueue(handle)
        try:
            return await answer
        finally:
            self._waiting.pop(answer, None)

    def settings_changed(self, topics: Collection[str] | None) -> None:
        self._enqueue(partial(elections.elect_where_nobody_leads, self._term, topics))

    # -- taking over ---------------------------------------------------------------------------------------------------

    async def _take_over(self) -> None:
        term, context = self._term, self._term.context
        await term.write(Create(nodes.FEATURE, nodes.encode_features()))
        self._watch()
        await self._drop_old_notifications()
        await self._watch_brokers()
        context.brokers.update(await brokers.read_brokers(term))
        for broker in context.brokers.values():
            self._peers.add(broker)
        written: dict[TopicPartition, int] = {}
        names = await self._watch_topics()
        for topic in await topics.read_topics(term, names, self._new_topic_id, written):
            context.set_topic(topic)
        await self._deletions.read_marks()
        # Brokers must know who is alive before they are asked to follow one of them.
        term.batch.update_metadata(context.brokers)
        term.send()
        partitions = [partition for partition, _ in context.partitions()]
        await topics.begin_partitions(term, partitions)
        returned = self._returned(written)
        await elections.repair(term, returned, returned)
        for partition in partitions:
            if context.state(partition).leader_epoch >= 0:
                term.notify_replicas(partition)
        term.send()
        await elections.repair(term, partitions)
        term.send()
        await self._deletions.follow_marks()
        for partition in self._moving():
            await moves.resume(term, partition)
        await self._follow_legacy_requests()
        self._timer = self._loop.call_later(FIRST_REBALANCE_S, self._rebalance_due)

    def _returned(self, written: Mapping[TopicPartition, int]) -> dict[TopicPartition, list[int]]:
        """In-sync replicas whose broker registered after the state was written: nobody noticed that it was away.

        It may have lost what was not on its disk. As leader in the same epoch it would write other records at offsets
        that its followers have; as follower it would count for what it lacks.
        """
        brokers = self._term.context.brokers
        returned = {}
        for partition, commit in written.items():
            isr = self._term.context.state(partition).isr
            nodes_back = [node for node in isr if node in brokers and brokers[node].epoch > commit]
            if nodes_back:
                returned[partition] = nodes_back
        return returned

    def _watch(self) -> None:
        """Before anything is read: what changes behind the reading is looked at after it."""
        store = self._term.store
        for path, work in (
            (nodes.BROKER_IDS, self._follow_brokers),
            (nodes.TOPICS, self._follow_topics),
            (nodes.DELETIONS, self._deletions.follow_marks),
            (nodes.LOG_DIR_EVENTS, partial(brokers.directories_failed, self._term)),
            (nodes.ISR_CHANGES, self._follow_isr_changes),
        ):
            self._watches.append(store.watch_children(path, partial(self._look, path, work)))
        for path in (nodes.REASSIGNMENTS, nodes.PREFERRED_ELECTIONS):
            look = partial(self._look, path, self._follow_legacy_requests)
            self._watches.append(store.watch_node(path, look))

    async def _watch_brokers(self) -> None:
        """Brokers of Kafka change their addresses without registering again."""
        names = await self._term.children(nodes.BROKER_IDS)
        self._watch_below(nodes.BROKER_IDS, dict.fromkeys(names, (nodes.BROKER_IDS, self._follow_brokers)))

    async def _watch_topics(self) -> set[str]:
        """The topics that there are; each of them is watched from before it is read."""
        names = set(await self._term.children(nodes.TOPICS))
        follow = partial(topics.follow_topic, self._term)
        self._watch_below(
            nodes.TOPICS,
            {name: (nodes.topic_path(name), partial(follow, name, self._new_topic_id)) for name in names},
        )
        return names

    def _watch_below(self, parent: str, wanted: Mapping[str, tuple[str, Callable[[], Awaitable[None]]]]) -> None:
        """Watches these nodes below a parent and no others; for each of them, what is looked at then, and how."""
        watches = self._watches_below[parent]
        for name in watches.keys() - wanted.keys():
            watches.pop(name).cancel()
        for name, (looked_at, work) in wanted.items():
            if name not in watches:
                watches[name] = self._term.store.watch_node(f"{parent}/{name}", partial(self._look, looked_at, work))

    async def _drop_old_notifications(self) -> None:
        """What they announced is read anyway."""
        for parent in (nodes.ISR_CHANGES, nodes.LOG_DIR_EVENTS):
            names = await self._term.children(parent)
            await self._term.write_many({name: Delete(f"{parent}/{name}") for name in names})

    def _new_topic_id(self) -> UUID:
        return new_topic_id(self._rng, self._term.context.names_by_id)

    # -- events --------------------------------------------------------------------------------------------------------

    async def _follow_brokers(self) -> None:
        await self._watch_brokers()
        changes = await brokers.follow_brokers(self._term, self._peers)
        for node_id in changes.left:
            self._deletions.broker_left(node_id)
        self._deletions.brokers_joined(broker.node_id for broker in changes.joined)
        if changes.joined or changes.left:
            await self._after_changes()

    async def _follow_topics(self) -> None:
        await topics.follow_topics(self._term, await self._watch_topics(), self._new_topic_id)
        await self._deletions.follow_marks()

    async def _after_changes(self) -> None:
        """What had to wait may be possible now."""
        await self._deletions.resume()
        await self._complete_moves()

    async def _complete_moves(self) -> None:
        for partition in self._moving():
            await moves.complete_if_caught_up(self._term, partition)

    def _moving(self) -> list[TopicPartition]:
        return [partition for partition, state in self._term.context.partitions() if is_moving(state)]

    async def _follow_isr_changes(self) -> None:
        """Leaders of old releases write states themselves and leave a note."""
        term = self._term
        names = await term.children(nodes.ISR_CHANGES)
        paths = {name: f"{nodes.ISR_CHANGES}/{name}" for name in names}
        changed: dict[TopicPartition, None] = {}
        for name, node in (await term.get_many(paths)).items():
            if node is not None:
                changed.update(dict.fromkeys(_readable(nodes.decode_partitions, paths[name], node.data)))
        known = [partition for partition in changed if term.context.find(partition) is not None]
        await term.read_states(known)
        term.batch.update_metadata(term.context.brokers, known)
        term.send()
        await term.write_many({name: Delete(path) for name, path in paths.items()})
        await self._complete_moves()

    async def _follow_legacy_requests(self) -> None:
        """What operators of old ask for by writing a node."""
        term = self._term
        node = await term.get(nodes.PREFERRED_ELECTIONS)
        if node is not None:
            asked = _readable(nodes.decode_partitions, nodes.PREFERRED_ELECTIONS, node.data)
            await elections.elect_by_request(term, asked, unclean=False)
            await term.write(Delete(nodes.PREFERRED_ELECTIONS))
        node = await term.get(nodes.REASSIGNMENTS)
        if node is not None:
            for partition, replicas in _readable(nodes.decode_reassignments, nodes.REASSIGNMENTS, node.data):
                try:
                    await moves.begin(term, partition, replicas)
                except ApiError as error:
                    logger.warning("%s is not moved: %s", partition, error)
            await term.write(Delete(nodes.REASSIGNMENTS))

    # -- answers of brokers --------------------------------------------------------------------------------------------

    def _on_response(self, node_id: int, request: ControlRequest, answer: Any) -> None:
        match request, answer:
            case LeaderAndIsrRequest(), LeaderAndIsrResponse():
                lost = _lost(answer, self._term.context.names_by_id)
                if lost:
                    self._enqueue(partial(brokers.replicas_offline, self._term, node_id, lost))
            case StopReplicaRequest(), StopReplicaResponse():
                gone = _deleted(request, answer)
                if gone:
                    self._enqueue(partial(self._deletions.replicas_deleted, node_id, gone))

    # -- timers --------------------------------------------------------------------------------------------------------

    def _rebalance_due(self) -> None:
        settings = self._term.settings
        self._timer = self._loop.call_later(settings.imbalance_check_s, self._rebalance_due)
        if settings.rebalances_leaders:
            self._look("preferred leaders", self._rebalance)

    async def _rebalance(self) -> None:
        await elections.rebalance_leaders(self._term)


def _readable(decode: Callable[[str, bytes], Iterable[Answer]], path: str, data: bytes) -> list[Answer]:
    """What somebody wrote, perhaps by hand; nothing where it cannot be read."""
    try:
        return list(decode(path, data))
    except nodes.MetadataError as error:
        logger.error("%s; it is dropped", error)
        return []


async def _nothing(term: Term) -> None:
    """An event of its own: those before it have been handled when it is."""


def _lost(answer: LeaderAndIsrResponse, names: Mapping[UUID, str]) -> list[TopicPartition]:
    """The replicas that a broker cannot have, as their directory has failed."""
    outcomes = [
        (names[topic.topic_id], each)
        for topic in answer.topics
        if topic.topic_id in names
        for each in topic.partition_errors
    ]
    outcomes += [(each.topic_name, each) for each in answer.partition_errors]  # of a broker before topic ids
    return [
        TopicPartition(name, each.partition_index)
        for name, each in outcomes
        if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    ]


def _deleted(request: StopReplicaRequest, answer: StopReplicaResponse) -> list[tuple[TopicPartition, ErrorCode]]:
    """The replicas that were to be deleted, with what became of them."""
    asked = {
        TopicPartition(topic.topic_name, each.partition_index)
        for topic in request.topic_states
        for each in topic.partition_states
        if each.delete_partition
    }
    if answer.error_code:
        return [(partition, ErrorCode.of(answer.error_code)) for partition in sorted(asked)]
    return [
        (TopicPartition(each.topic_name, each.partition_index), ErrorCode.of(each.error_code))
        for each in answer.partition_errors
        if TopicPartition(each.topic_name, each.partition_index) in asked
    ]

"""What a client knows of a cluster, and its connections: who is there, who leads which partition.

A `Cluster` starts from a few addresses and learns the rest. What it knows is a value, replaced as a whole when it is
asked for again: because it is too old for the question, or because an answer showed that it is wrong. One connection
per broker, made when first needed and again after it broke.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import zip_longest
from typing import Final, TypeVar
from uuid import UUID

from ottla.client.error_codes import error_of_code
from ottla.client.logs import ConnectionLog
from ottla.client.retrying import Deadline, Pauses, UnknownTopicError, error_of, retrying, wants_metadata
from ottla.errors import ApiError, ConfigError, ErrorCode, OttlaError
from ottla.ids import ZERO_TOPIC_ID, TopicPartition
from ottla.net.client import (
    Address,
    BrokerConnection,
    CannotConnectError,
    ConnectionFailedError,
    ConnectionOptions,
    Connector,
    LoginRefusedError,
    connect,
    connect_tcp,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

Answer = TypeVar("Answer")

DEFAULT_PORT: Final = 9092
# What a broker says that is the wrong one, or not ready yet: nothing was done, and all of it may be asked again.
NOT_NOW: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
SHARE_OF_BROKER: Final = 0.95  # of the time of a request; the rest is for the way
CREATION_WAIT_S: Final = 2.0  # for a topic that a broker creates because it was asked for


class NotInClusterYetError(ConnectionFailedError):
    """The broker that answers has just started and knows nothing of its cluster yet, nor of any topic."""

    def __init__(self, address: Address) -> None:
        super().__init__(address, "this broker has just started and does not know its cluster yet")


class NoBrokerReachableError(CannotConnectError):
    """None of several addresses leads to a broker; `failures` has the cause of each."""

    def __init__(self, failures: Sequence[ConnectionFailedError]) -> None:
        OttlaError.__init__(self, f"no broker can be reached: {'; '.join(map(str, failures))}")
        self.address = failures[0].address
        self.failures = tuple(failures)


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How a client behaves towards every broker. `timeout_s` bounds one operation with all its tries."""

    connection: ConnectionOptions = field(default_factory=ConnectionOptions)
    timeout_s: float = 30.0
    pauses: Pauses = field(default_factory=Pauses)

    @property
    def timeout_ms(self) -> int:
        """The same as requests carry it: how long a broker may take for what it is asked to do."""
        return int(self.timeout_s * 1000)


class Lane(Enum):
    """Connections to one broker that must not wait for each other: it answers the requests of each in order."""

    GENERAL = auto()
    FETCH = auto()  # a Fetch waits for records
    COORDINATOR = auto()  # heartbeats and commits
    JOIN = auto()  # a JoinGroup waits for other members


@dataclass(frozen=True, slots=True)
class Node:
    node_id: int
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a topic; `leader_id` is -1 while it has no leader."""

    partition: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[Partition, ...]  # by number, without gaps

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0

    def partition(self, number: int) -> Partition:
        if not 0 <= number < len(self.partitions):
            raise UnknownTopicError(
                f"{self.name} has no partition {number}: it has {len(self.partitions)}, counted from 0"
            )
        return self.partitions[number]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The answer to one question for metadata. A topic that was asked for is in `topics` or in `errors`."""

    cluster_id: str | None
    controller_id: int
    nodes: Mapping[int, Node]
    topics: Mapping[str, Topic]
    errors: Mapping[str, ApiError]

    def topic(self, name: str) -> Topic:
        if name in self.errors:
            raise self.errors[name]
        if name not in self.topics:
            raise UnknownTopicError(f"the topic {name} does not exist")
        return self.topics[name]


def parse_addresses(text: str) -> list[Address]:
    """`HOST:PORT`, several with commas between; the port may be left out, an IPv6 address stands in brackets."""
    addresses = [_parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ConfigError("no bootstrap server is named; write HOST:PORT")
    return addresses


def _parse_address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or "/" in host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"{text!r} is not the address of a broker; write HOST:PORT, such as 127.0.0.1:9092")
    return Address(host, int(port))


class Cluster:
    """The cluster as one client sees it. Use it as an asynchronous context manager, or call `close`."""

    def __init__(
        self, bootstrap: Sequence[Address], options: ClientOptions | None = None, connector: Connector = connect_tcp
    ) -> None:
        self.options = options or ClientOptions()
        self._bootstrap = list(bootstrap)
        self._connector = connector
        self._nodes: dict[int, Node] = {}
        self._controller_id = -1
        self._topics: dict[str, Topic] = {}
        # Of groups and transactional ids, by kind and name: for `coordinators` alone.
        self.coordinators: dict[tuple[int, str], int] = {}
        self._connections: dict[tuple[Address, Lane], BrokerConnection] = {}
        self._log = ConnectionLog()
        self._connecting: dict[tuple[Address, Lane], asyncio.Lock] = {}
        # Who knew nothing of the cluster when it was asked last, in that order: others are asked first.
        self._uninformed: dict[Address, None] = {}
        self._is_closed = False

    async def __aenter__(self) -> Cluster:
        # Not tried again: who names a wrong port wants to know at once. Once connected, what breaks is mended.
        await self.any_connection()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends all connections; what is in the middle of making another one fails."""
        self._is_closed = True
        connections, self._connections = list(self._connections.values()), {}
        try:
            await asyncio.gather(*(connection.close() for connection in connections))
        except BaseException:  # whoever closes is cancelled
            for connection in connections:
                connection.abort()
            raise

    @property
    def bootstrap_servers(self) -> list[str]:
        """The addresses that the user named."""
        return [str(address) for address in self._bootstrap]

    @property
    def where(self) -> str:
        """Whom a client tries to reach, in words."""
        return f"connecting to {', '.join(map(str, self._addresses()))}"

    def _addresses(self) -> Iterable[Address]:
        return dict.fromkeys([*(node.address for node in self._nodes.values()), *self._bootstrap])

    def deadline(self) -> Deadline:
        return Deadline.after(self.options.timeout_s)

    # -- connections ---------------------------------------------------------------------------------------------------

    async def connect(self, deadline: Deadline) -> None:
        """Connects to some broker, and tries again until the time is over."""
        await retrying(lambda: deadline.within(self.any_connection(), self.where), deadline, self.options.pauses)

    async def any_connection(self) -> BrokerConnection:
        """An open connection, else a new one to the first broker that takes it."""
        for (address, lane), connection in self._connections.items():
            if lane is Lane.GENERAL and not connection.is_closed and address not in self._uninformed:
                return connection
        failures: list[ConnectionFailedError] = []
        asked = {address: place for place, address in enumerate(self._uninformed)}
        for address in sorted(self._addresses(), key=lambda each: asked.get(each, -1)):
            try:
                return await self._connection_to(address)
            except ConnectionFailedError as failure:
                failures.append(failure)
        if len(failures) == 1:
            raise failures[0]
        raise NoBrokerReachableError(failures)

    async def connection(self, node_id: int, lane: Lane = Lane.GENERAL) -> BrokerConnection:
        """The connection to one broker, one for each lane."""
        if node_id not in self._nodes:
            await self.refresh(())
        if node_id not in self._nodes:
            raise error_of_code(ErrorCode.BROKER_NOT_AVAILABLE, f"the cluster has no broker {node_id} now")
        return await self._connection_to(self._nodes[node_id].address, lane)

    async def leader_connection(self, node_id: int) -> BrokerConnection:
        """The connection to a broker that metadata named as a leader; that it is gone is an error that may pass."""
        return await self._connection_or(ErrorCode.LEADER_NOT_AVAILABLE, node_id, Lane.GENERAL)

    async def coordinator_connection(self, node_id: int, lane: Lane = Lane.GENERAL) -> BrokerConnection:
        """The connection to a broker that another one named as a coordinator; that it is gone is an error that may
        pass: after a kill some brokers know of it before others do."""
        return await self._connection_or(ErrorCode.COORDINATOR_NOT_AVAILABLE, node_id, lane)

    async def _connection_or(self, code: ErrorCode, node_id: int, lane: Lane) -> BrokerConnection:
        try:
            return await self.connection(node_id, lane)
        except ApiError as error:
            # Whom we know of is not among the brokers that we know of: one of the two is out of date.
            raise error_of_code(code, str(error)) from error

    async def controller_connection(self) -> BrokerConnection:
        """The connection to the broker that takes changes of topics and settings."""
        if self._controller_id not in self._nodes:
            await self.refresh(())
        if self._controller_id not in self._nodes:
            raise error_of_code(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")
        return await self.connection(self._controller_id)

    async def _connection_to(self, address: Address, lane: Lane = Lane.GENERAL) -> BrokerConnection:
        # Looked at under the lock: two callers that need the same broker make one connection.
        place = address, lane
        async with self._connecting.setdefault(place, asyncio.Lock()):
            connection = self._connections.get(place)
            if connection is None or connection.is_closed:
                now = asyncio.get_running_loop().time
                try:
                    connection = await self._connect(address)
                except LoginRefusedError as error:  # another try does not help
                    raise error_of_code(error.code, str(error)) from error
                except ConnectionFailedError as error:
                    self._log.failed(address, error, now())
                    raise
                self._log.made(address, now())
                self._connections[place] = connection
            return connection

    async def _connect(self, address: Address) -> BrokerConnection:
        """A new connection. Requests in progress when the client is closed may ask for one; nobody would end it."""
        self._refuse_if_closed(address)
        connection = await connect(address, self.options.connection, self._connector)
        try:
            self._refuse_if_closed(address)
        except CannotConnectError:
            connection.abort()
            raise
        return connection

    def _refuse_if_closed(self, address: Address) -> None:
        if self._is_closed:
            raise CannotConnectError(address, "the client is closed")

    # -- metadata ------------------------------------------------------------------------------------------------------

    async def view(
        self,
        topics: Collection[str] | None = None,
        *,
        may_create: bool = False,
        node_id: int | None = None,
        deadline: Deadline | None = None,
    ) -> ClusterView:
        """Asks a broker now. None means all topics; `may_create` lets the broker create what is missing.

        `node_id` asks that broker, as not every one is up to date.
        """
        deadline = deadline or self.deadline()
        reaching = self.any_connection() if node_id is None else self.connection(node_id)
        connection = await deadline.within(reaching, self.where)
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=may_create)
        view = _view_of(await connection.request(request, MetadataResponse, timeout_s=self._request_s(deadline)))
        if not view.nodes:
            # Not even the one that answers: it cannot know which topics do not exist.
            self._uninformed.pop(connection.address, None)
            self._uninformed[connection.address] = None
            raise NotInClusterYetError(connection.address)
        self._uninformed.pop(connection.address, None)
        self._nodes, self._controller_id = dict(view.nodes), view.controller_id
        if topics is None:
            self._topics.clear()
        for name in view.errors:
            self._topics.pop(name, None)
        for name, topic in view.topics.items():
            self._topics[name] = _with_newer_leaders(topic, self._topics.get(name))
        return view

    async def refresh(self, topics: Collection[str] | None, deadline: Deadline | None = None) -> ClusterView:
        """Asks until a broker answers. What is wrong with single topics is in the answer, not raised."""
        deadline = deadline or self.deadline()
        return await retrying(lambda: self.view(topics, deadline=deadline), deadline, self.options.pauses)

    async def find_topics(
        self, names: Collection[str] | None, expected: Collection[str] = (), deadline: Deadline | None = None
    ) -> ClusterView:
        """The same, but topics that are named or expected are missing only where no broker knows them.

        For whoever concludes something from that: a broker that gets a change later than others, or that has just
        started, knows less than they do.
        """
        deadline = deadline or self.deadline()
        view = await self.refresh(names, deadline)
        for node_id in view.nodes:
            missing = {*(names or ()), *expected} - view.topics.keys()
            if not missing:
                break
            try:
                seen = await self.view(missing, node_id=node_id, deadline=deadline)
            except (ApiError, ConnectionFailedError):
                continue  # it cannot tell
            view = replace(view, topics={**view.topics, **seen.topics})
        return view

    async def topic(
        self, name: str, deadline: Deadline | None = None, *, may_create: bool = False, exists: bool = False
    ) -> Topic:
        """A topic with its partitions, from memory where it is known.

        A topic that does not exist is an error at once, or with `may_create` when it has not appeared in a short while.
        `exists`: the controller has it, so whoever does not know it will.
        """
        if name in self._topics:
            return self._topics[name]
        deadline = deadline or self.deadline()
        created_by = Deadline.after(min(CREATION_WAIT_S, deadline.left_s) if may_create else 0.0)

        async def look() -> Topic:
            try:
                return (await self.view([name], may_create=may_create, deadline=deadline)).topic(name)
            except ApiError as error:
                # A broker that creates a topic and one that will not give the same answer at first.
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not exists and not created_by.left_s:
                    raise UnknownTopicError(f"the topic {name} does not exist") from error
                raise

        return await retrying(look, deadline, self.options.pauses)

    async def leader_now(self, partition: TopicPartition) -> Partition:
        """The partition with its leader, from memory or by one question; an error that may pass where it has none."""
        topic = self._topics.get(partition.topic)
        if topic is None:
            view = await self.view([partition.topic])
            topic = view.topic(partition.topic)
        found = topic.partition(partition.partition)
        if found.leader_id < 0:
            self.forget([partition.topic])
            raise error_of_code(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader now")
        return found

    def known_partition(self, partition: TopicPartition) -> Partition | None:
        """The partition as far as it is known, without asking."""
        topic = self._topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def known_topics(self) -> Mapping[str, Topic]:
        return self._topics

    def known_nodes(self) -> Mapping[int, Node]:
        return self._nodes

    def known_topic_id(self, name: str) -> UUID:
        """The id under which newer versions of Produce and Fetch name a topic; zero where it is not known."""
        return self._topics[name].topic_id if name in self._topics else ZERO_TOPIC_ID

    def learn_leader(self, partition: TopicPartition, leader_id: int, leader_epoch: int, nodes: Iterable[Node]) -> bool:
        """Takes over a leader from an answer (KIP-951); whether it is new."""
        known = self.known_partition(partition)
        if known is None or leader_epoch <= known.leader_epoch:
            return False
        self._nodes.update({node.node_id: node for node in nodes})
        if leader_id not in self._nodes:
            return False
        topic = self._topics[partition.topic]
        moved = replace(known, leader_id=leader_id, leader_epoch=leader_epoch)
        partitions = tuple(moved if each is known else each for each in topic.partitions)
        self._topics[partition.topic] = replace(topic, partitions=partitions)
        return True

    def rebootstrap(self) -> None:
        """Forgets the brokers: the next question goes to the addresses that the user named (KIP-899, KIP-1102)."""
        self._nodes.clear()
        self._controller_id = -1
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.abort()

    def forget(self, topics: Iterable[str]) -> None:
        """These are to be asked for again: an answer showed that what is known of them is wrong."""
        for name in topics:
            self._topics.pop(name, None)

    def learn_from(self, error: OttlaError, topics: Iterable[str] = ()) -> None:
        """Forgets what an error shows to be out of date."""
        if wants_metadata(error):
            self.forget(topics)
            self._controller_id = -1

    # -- asking --------------------------------------------------------------------------------------------------------

    async def ask_any(
        self,
        request: object,
        answer: type[Answer],
        codes: Callable[[Answer], Iterable[int]] = lambda response: (),
        deadline: Deadline | None = None,
    ) -> Answer:
        """Asks any broker; `codes` are the error codes of an answer, looked at for those that ask for patience."""
        return await self._ask(self.any_connection, request, answer, codes, deadline)

    async def ask_node(
        self,
        node_id: int,
        request: object,
        answer: type[Answer],
        codes: Callable[[Answer], Iterable[int]] = lambda response: (),
        deadline: Deadline | None = None,
    ) -> Answer:
        """Asks that broker, for as long as it is in the cluster."""
        until = deadline or self.deadline()
        has_failed = False

        async def reach() -> BrokerConnection:
            nonlocal has_failed
            if has_failed:  # it may have left
                await self.view((), deadline=until)
            has_failed = True
            return await self.connection(node_id)

        return await self._ask(reach, request, answer, codes, until)

    async def ask_controller(
        self,
        request: object,
        answer: type[Answer],
        codes: Callable[[Answer], Iterable[int]],
        deadline: Deadline | None = None,
    ) -> Answer:
        """Asks the broker that takes changes, and again if that has become another one."""
        return await self._ask(self.controller_connection, request, answer, codes, deadline)

    async def _ask(
        self,
        connection: Callable[[], Awaitable[BrokerConnection]],
        request: object,
        answer: type[Answer],
        codes: Callable[[Answer], Iterable[int]],
        deadline: Deadline | None,
    ) -> Answer:
        until = deadline or self.deadline()

        async def attempt() -> Answer:
            found = await until.within(connection(), self.where)
            response = await found.request(request, answer, timeout_s=self._request_s(until))
            for code in codes(response):
                if code in NOT_NOW:
                    raise error_of_code(ErrorCode(code))
            return response

        return await retrying(attempt, until, self.options.pauses, self.learn_from)

    def broker_timeout_ms(self, deadline: Deadline) -> int:
        """How long a broker may take for what it is asked to do; the answer that it took too long has time to come."""
        return int(self._request_s(deadline) * SHARE_OF_BROKER * 1000)

    def _request_s(self, deadline: Deadline) -> float:
        request_s = self.options.connection.request_timeout_s
        return min(deadline.left_s, request_s) if deadline.timeout_s else request_s


def _with_newer_leaders(topic: Topic, known: Topic | None) -> Topic:
    """A topic as a broker tells it, unless we heard of later leaders already: not every broker is up to date."""
    if known is None or known.topic_id != topic.topic_id:
        return topic
    partitions = tuple(
        old if old.leader_epoch > new.leader_epoch else new
        for new, old in zip_longest(topic.partitions, known.partitions[: len(topic.partitions)])
        for old in (old or new,)
    )
    return topic if partitions == topic.partitions else replace(topic, partitions=partitions)


def _view_of(response: MetadataResponse) -> ClusterView:
    topics: dict[str, Topic] = {}
    errors: dict[str, ApiError] = {}
    for each in response.topics:
        assert each.name is not None, "topics are asked for by name"
        if (error := error_of(each.error_code, None, f"the topic {each.name}")) is not None:
            errors[each.name] = error
        else:
            topics[each.name] = _topic_of(each)
    return ClusterView(
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        nodes={each.node_id: Node(each.node_id, Address(each.host, each.port), each.rack) for each in response.brokers},
        topics=topics,
        errors=errors,
    )


def _topic_of(found: MetadataResponseTopic) -> Topic:
    assert found.name is not None
    partitions = sorted(map(_partition_of, found.partitions), key=lambda each: each.partition)
    return Topic(found.name, found.topic_id, found.is_internal, tuple(partitions))


def _partition_of(found: MetadataResponsePartition) -> Partition:
    # The error of a partition (no leader, an offline replica) is in these fields as well.
    return Partition(
        partition=found.partition_index,
        leader_id=found.leader_id,
        leader_epoch=found.leader_epoch,
        replicas=tuple(found.replica_nodes),
        isr=tuple(found.isr_nodes),
        offline_replicas=tuple(found.offline_replicas),
    )

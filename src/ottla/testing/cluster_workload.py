"""The clients of a simulated cluster: each records its responses, and reports at once what must not be.

Some speak the protocol themselves, so that nothing is retried but what they mean to: a producer that sends each record
once, an idempotent one with several requests in flight, readers. Others are our own clients: transactions and groups.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, Final

from ottla.aio import Consumer, Producer
from ottla.cluster.image import NO_LEADER
from ottla.errors import ErrorCode, OttlaError
from ottla.hashing import partition_of_coordinator
from ottla.ids import TopicPartition
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.protocol.messages.transactions import InitProducerIdRequest
from ottla.records import batch, control
from ottla.replication.leader import NO_EPOCH
from ottla.testing.audit import batches_of
from ottla.testing.cluster_climate import SLOW_S, ClusterClimate
from ottla.testing.raw_groups import commit, fetch_offsets
from ottla.testing.raw_requests import fetch, list_offsets, one_batch, produce
from ottla.testing.simulated_cluster import (
    CLIENT_TIMEOUT_S,
    OFFSETS_PARTITIONS,
    SimulatedCluster,
    contents,
    shown,
    values_of,
)
from ottla.testing.simulated_connector import simulated_connector
from ottla.testing.wire_client import WireClient
from ottla.testing.world import EPOCH_MS, PORT

PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 11
INIT_VERSION: Final = 4
LIST_OFFSETS_VERSION: Final = 7
FIND_COORDINATOR_VERSION: Final = 3
COMMIT_VERSION: Final = 7
FETCH_OFFSETS_VERSION: Final = 7
OFFSETS_TOPIC: Final = "__consumer_offsets"
READ_COMMITTED: Final = 1
LATEST: Final = -1
IN_FLIGHT_MAX: Final = 5
PRODUCE_TIMEOUT_MS: Final = 1000
LONG_TIMEOUT_MS: Final = 8000  # an answer may wait from one leadership to the next
NEW_ID_CHANCE: Final = 0.05
CALM_FACTOR: Final = 8  # times as long are pauses while nothing happens
READ_FACTOR: Final = 3  # times as long as producers readers wait: there is more to read then
KEEP_CONNECTION_CHANCE: Final = 0.9
REQUEST_TIMEOUT_S: Final = 2.0
TRANSACTION_TIMEOUT_S: Final = 5.0
CALL_S: Final = 20.0
ABORT_CHANCE: Final = 0.3
LONG_CHANCE: Final = 0.3  # that a transaction stays open for a while
LONG_S_MAX: Final = 1.0


class Work:
    """What all clients of one history share."""

    def __init__(self, cluster: SimulatedCluster, climate: ClusterClimate, topic: str) -> None:
        self.cluster = cluster
        self.climate = climate
        self.world = cluster.world
        self._topic = topic
        self._epochs: dict[tuple[str, TopicPartition], int] = {}

    @property
    def names(self) -> list[TopicPartition]:
        """The partitions of the topic, to which others may come."""
        return [name for name in self.cluster.observed if name.topic == self._topic]

    def rng(self, client: str) -> Random:
        return self.world.rng(f"client {client}")

    def values(self, client: str, name: TopicPartition, numbers: Iterator[int], rng: Random) -> list[bytes]:
        """The values of the next batch: each names its writer, its partition and its place among them."""
        padding = "x" * self.climate.value_bytes
        count_of = rng.randint(1, self.climate.records_per_batch_max)
        return [f"{client} {name.partition} {next(numbers)} {padding}".encode() for _ in range(count_of)]

    def leader(self, client: str, rng: Random) -> tuple[TopicPartition, int]:
        """Some partition and its leader, as some broker knows them; NO_LEADER where none is known.

        A client that knows of a later epoch does not go back to the leader of an earlier one.
        """
        name = rng.choice(self.names)
        state = self.cluster.state_known(name, rng)
        if state is None or state.leader_epoch < self._epochs.get((client, name), NO_EPOCH):
            return name, NO_LEADER
        self._epochs[client, name] = state.leader_epoch
        return name, state.leader

    async def pause(self, rng: Random, factor: int = 1) -> None:
        """Between two requests. While nothing happens to the cluster, many of them show no more than a few.

        Where messages take long, there is always something in flight.
        """
        is_idle = self.cluster.is_calm and self.climate.latency_s < SLOW_S
        await asyncio.sleep(rng.random() * self.climate.pause_s_max * factor * (CALM_FACTOR if is_idle else 1))

    def acknowledged(self, name: TopicPartition, base_offset: int, values: Sequence[bytes]) -> None:
        self.cluster.check_held(name, base_offset + len(values) - 1, self.climate.min_isr)
        self.cluster.observed[name].acknowledged.update(enumerate(values, base_offset))

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{broker.name}:{PORT}" for broker in self.cluster.brokers.values())


class Connections:
    """Of one client, one to each broker: brokers know its requests there. Now and then a new one is made."""

    def __init__(self, cluster: SimulatedCluster, rng: Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._kept: dict[int, WireClient] = {}

    async def __aenter__(self) -> Connections:
        return self

    async def __aexit__(self, *raised: object) -> None:
        for client in self._kept.values():
            client.close()

    async def take(self, node_id: int) -> WireClient:
        """One that nobody else uses until it is given back."""
        return self._kept.pop(node_id, None) or await self._cluster.connected(node_id)

    def give_back(self, node_id: int, client: WireClient) -> None:
        if self._rng.random() < KEEP_CONNECTION_CHANCE and node_id not in self._kept:
            self._kept[node_id] = client
        else:
            client.close()

    async def asked(self, node_id: int, request: object, version: int) -> Any:
        client = await self.take(node_id)
        answer = await client.call(request, version, timeout_s=CLIENT_TIMEOUT_S)
        self.give_back(node_id, client)
        return answer


# -- those who speak the protocol --------------------------------------------------------------------------------------


async def produce_once(work: Work, client: str) -> None:
    """Writes records, each once, whatever becomes of it; until it is cancelled."""
    rng, numbers = work.rng(client), count()
    async with Connections(work.cluster, rng) as brokers:
        while True:
            await work.pause(rng)
            name, leader = work.leader(client, rng)
            if leader == NO_LEADER:
                continue
            values = work.values(client, name, numbers, rng)
            request = produce(name.topic, one_batch(*values), partition=name.partition, timeout_ms=PRODUCE_TIMEOUT_MS)
            try:
                response = await brokers.asked(leader, request, PRODUCE_VERSION)
            except (OSError, TimeoutError):
                continue  # it may be there or not
            answer = response.responses[0].partition_responses[0]
            if answer.error_code == ErrorCode.NONE:
                work.acknowledged(name, answer.base_offset, values)


@dataclass(slots=True)
class _Unacknowledged:
    sequence: int
    values: list[bytes]
    data: bytes


@dataclass(slots=True)
class _Sequences:
    """Of one partition: what was not acknowledged yet, in order."""

    next_sequence: int = 0
    batches: list[_Unacknowledged] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)


class IdempotentProducer:
    """Up to five requests in flight to a partition, sent again together until all of them are acknowledged.

    As librdkafka does: all that is in flight comes back before anything is sent again, and if the first batch that is
    not acknowledged is out of order, the broker has lost what was, or has taken a later one in its place.
    """

    def __init__(self, work: Work, client: str) -> None:
        self._work = work
        self._client = client
        self._rng = work.rng(client)
        self._producer_id = -1
        self._sequences: dict[TopicPartition, _Sequences] = {}
        self._brokers = Connections(work.cluster, self._rng)

    async def run(self) -> None:
        """Until it is cancelled."""
        async with self._brokers:
            while True:
                await self._work.pause(self._rng)
                name, leader = self._work.leader(self._client, self._rng)
                if leader == NO_LEADER or not await self._ensure_id():
                    continue
                state = self._sequences.setdefault(name, _Sequences())
                for _ in range(self._rng.randint(1, IN_FLIGHT_MAX) - len(state.batches)):
                    self._add(name, state)
                await self._exchange(name, leader, state)

    async def _ensure_id(self) -> bool:
        """A new id now and then, once nothing of the last one is in flight: logs know nothing of it."""
        is_idle = not any(state.batches for state in self._sequences.values())
        if self._producer_id >= 0 and not (is_idle and self._rng.random() < NEW_ID_CHANCE):
            return True
        node_id = self._rng.choice(list(self._work.cluster.brokers))
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        try:
            response = await self._work.cluster.asked(node_id, request, INIT_VERSION)
        except (OSError, TimeoutError):
            return False
        if response.error_code:
            return False
        self._producer_id = response.producer_id
        for state in self._sequences.values():
            state.next_sequence = 0
        return True

    def _add(self, name: TopicPartition, state: _Sequences) -> None:
        values = self._work.values(self._client, name, state.numbers, self._rng)
        data = one_batch(*values, producer_id=self._producer_id, producer_epoch=0, base_sequence=state.next_sequence)
        state.batches.append(_Unacknowledged(state.next_sequence, values, data))
        state.next_sequence += len(values)

    async def _exchange(self, name: TopicPartition, leader: int, state: _Sequences) -> None:
        sent = state.batches[:IN_FLIGHT_MAX]
        timeout_ms = self._rng.choice([PRODUCE_TIMEOUT_MS, PRODUCE_TIMEOUT_MS, LONG_TIMEOUT_MS])
        requests = [produce(name.topic, each.data, partition=name.partition, timeout_ms=timeout_ms) for each in sent]
        try:
            client = await self._brokers.take(leader)
        except (OSError, TimeoutError):
            return
        pause = self._rng.choice([0.0, 0.01, 0.2])
        try:
            responses = await client.call_together(
                requests, PRODUCE_VERSION, pause_s=lambda: self._rng.random() * pause, timeout_s=5 * REQUEST_TIMEOUT_S
            )
        except (OSError, TimeoutError):
            return
        self._brokers.give_back(leader, client)
        for each, response in zip(sent, responses, strict=True):
            answer = response.responses[0].partition_responses[0]
            self._answered(name, state, each, answer)

    def _answered(self, name: TopicPartition, state: _Sequences, batch: _Unacknowledged, answer: Any) -> None:
        if batch not in state.batches:
            return
        place = state.batches.index(batch)
        if answer.error_code == ErrorCode.NONE:
            # A log takes a batch only behind those before it: the answers to them said that it was not known yet.
            for before in state.batches[:place]:
                self._work.cluster.observed[name].implied += before.values
            del state.batches[: place + 1]
            self._work.acknowledged(name, answer.base_offset, batch.values)
        elif answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            # A broker that starts knows its rules before it serves; and a real producer does not try this again.
            self._work.world.fail(f"{name}: {self._client} may write, and was refused")
        elif answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and place == 0:
            if self._is_stored(name, batch):
                # A broker that was started again, or whose log was cut, knows only the last batch of a producer.
                self._work.cluster.observed[name].implied += batch.values
                state.batches.remove(batch)
                return
            self._work.world.fail(
                f"{name}: all before sequence {batch.sequence} of producer {self._producer_id} is acknowledged, and it "
                f"is out of order: {answer.error_message}"
            )
            state.batches.clear()
            self._producer_id = -1

    def _is_stored(self, name: TopicPartition, batch: _Unacknowledged) -> bool:
        """Whether the leader has it; where there is none at this moment, any replica. It may have been deleted."""
        if self._work.cluster.observed[name].start:
            return True
        replicas = self._work.cluster.replicas(name)
        leaders = [replica for replica in replicas if replica.is_leader]
        return any(batch.values[0] in contents(replica).values() for replica in leaders or replicas)


async def consume(work: Work, client: str, *, from_any: bool = False) -> None:
    """Reads all partitions from their beginning on; until it is cancelled. `from_any`: from followers too (KIP-392)."""
    rng = work.rng(client)
    offsets: dict[TopicPartition, int] = {}
    async with Connections(work.cluster, rng) as brokers:
        while True:
            await work.pause(rng, READ_FACTOR)
            name, leader = work.leader(client, rng)
            if leader == NO_LEADER:
                continue
            node_id = rng.choice(work.cluster.running) if from_any and work.cluster.running else leader
            offset = max(offsets.get(name, 0), work.cluster.observed[name].start)
            request = fetch(name.topic, offset, partitions=[name.partition])
            try:
                response = await brokers.asked(node_id, request, FETCH_VERSION)
            except (OSError, TimeoutError):
                continue
            for topic in response.responses:
                for data in topic.partitions:
                    _read(work, name, offsets, offset, data, is_led=work.cluster.is_current_leader(name, node_id))


def _read(
    work: Work, name: TopicPartition, offsets: dict[TopicPartition, int], offset: int, data: Any, *, is_led: bool
) -> None:
    seen = work.cluster.observed[name]
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and is_led and offset >= seen.start:
        work.world.fail(f"{name}: a reader was at {offset}, which is out of range now")
    if data.error_code == ErrorCode.NONE and data.records:
        read = values_of(data.records)
        if max(read) >= data.high_watermark:
            work.world.fail(f"{name}: a reader was sent {max(read)}, and all is committed below {data.high_watermark}")
        seen.read.update(read)
        offsets[name] = max(offset, max(read) + 1)


async def watch_ends(work: Work, client: str) -> None:
    """Asks where partitions end: what was once reported as committed stays so. Until it is cancelled."""
    rng = work.rng(client)
    async with Connections(work.cluster, rng) as brokers:
        while True:
            await work.pause(rng)
            name, leader = work.leader(client, rng)
            if leader == NO_LEADER:
                continue
            seen = work.cluster.observed[name]
            before = seen.end
            try:
                request = list_offsets(name.topic, LATEST, partition=name.partition)
                response = await brokers.asked(leader, request, LIST_OFFSETS_VERSION)
            except (OSError, TimeoutError):
                continue
            answer = response.topics[0].partitions[0]
            if answer.error_code == ErrorCode.NONE:
                if answer.offset < before and work.cluster.is_current_leader(name, leader):
                    work.world.fail(f"{name} ended at {before}, and ends at {answer.offset} now")
                seen.end = max(seen.end, answer.offset)


# -- our own clients ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Transactions:
    """What became of transactions: the values of each."""

    committed: list[list[bytes]] = field(default_factory=list)
    aborted: list[list[bytes]] = field(default_factory=list)
    unclear: list[list[bytes]] = field(default_factory=list)
    read: set[bytes] = field(default_factory=set)  # by a reader of what is committed

    def check(self, work: Work) -> None:
        """Each is there as a whole or not at all."""
        visible: set[bytes] = set()
        for name in work.names:
            visible |= committed_values(work, name)
        for values in self.committed:
            if not visible.issuperset(values):
                work.world.fail(f"{shown(values[0])} was committed and is not there")
        for values in self.aborted:
            if not visible.isdisjoint(values):
                work.world.fail(f"{shown(values[0])} was aborted and is there")
        unseen = self.read.difference(visible)
        if unseen:
            work.world.fail(f"{shown(min(unseen))} was read as committed and is not there")
        for values in self.unclear:
            if not visible.isdisjoint(values) and not visible.issuperset(values):
                work.world.fail(f"of the transaction with {shown(values[0])} a part is there")


def committed_values(work: Work, name: TopicPartition) -> set[bytes]:
    """What a reader of committed records sees of a partition in the end."""
    replica = work.cluster.replicas(name)[0]
    found: set[bytes] = set()
    open_values: dict[int, set[bytes]] = {}
    for header, data in batches_of(replica.log):
        if header.is_control:
            marker = control.read_marker(data, 0)
            values = open_values.pop(header.producer_id, set())
            if marker is not None and marker.commit:
                found |= values
        elif header.is_transactional:
            open_values.setdefault(header.producer_id, set()).update(values_of(data).values())
        else:
            found.update(values_of(data).values())
    return found


def committed_in(data: Any) -> set[bytes]:
    """The values of a partition in a response for which a reader of committed records takes them."""
    view, position = memoryview(data.records), 0
    aborted = deque(sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or ()))
    skipped: set[int] = set()
    found: set[bytes] = set()
    for header in batch.scan(view).headers:
        piece = view[position : position + header.size_bytes]
        position += header.size_bytes
        while aborted and aborted[0][0] <= header.last_offset:
            skipped.add(aborted.popleft()[1])
        if header.is_control:
            skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            found.update(values_of(piece).values())
    return found


async def read_committed(work: Work, client: str, outcomes: Transactions) -> None:
    """Reads what is committed, from any replica; until it is cancelled."""
    rng = work.rng(client)
    offsets: dict[TopicPartition, int] = {}
    async with Connections(work.cluster, rng) as brokers:
        while True:
            await work.pause(rng, READ_FACTOR)
            name, leader = work.leader(client, rng)
            if leader == NO_LEADER or not work.cluster.running:
                continue
            node_id = rng.choice([leader, rng.choice(work.cluster.running)])
            request = fetch(
                name.topic, offsets.get(name, 0), partitions=[name.partition], isolation_level=READ_COMMITTED
            )
            try:
                response = await brokers.asked(node_id, request, FETCH_VERSION)
            except (OSError, TimeoutError):
                continue
            for topic in response.responses:
                for data in topic.partitions:
                    if data.error_code == ErrorCode.NONE and data.records:
                        outcomes.read |= committed_in(data)
                        offsets[name] = batch.scan(memoryview(data.records)).headers[-1].end_offset


async def commit_offsets(work: Work, client: str) -> None:
    """Commits offsets for a group without members, each larger than the one before; until it is cancelled.

    What is fetched is the one that was acknowledged last, or one whose answer was lost.
    """
    rng, numbers = work.rng(client), count(1)
    name, offsets_partition = work.names[0], partition_of_coordinator(client, OFFSETS_PARTITIONS)
    acknowledged, unclear = -1, set[int]()
    async with Connections(work.cluster, rng) as brokers:
        while True:
            await work.pause(rng, READ_FACTOR)
            if not work.cluster.running:
                continue
            wanted = FindCoordinatorRequest(key=client, key_type=0)
            try:
                found = await brokers.asked(rng.choice(work.cluster.running), wanted, FIND_COORDINATOR_VERSION)
                if found.error_code or found.node_id not in work.cluster.brokers:
                    continue
                offset = next(numbers)
                unclear.add(offset)
                request = commit(client, name.topic, {name.partition: offset})
                response = await brokers.asked(found.node_id, request, COMMIT_VERSION)
                if not response.topics[0].partitions[0].error_code:
                    acknowledged = offset
                    unclear.discard(offset)
                asked = fetch_offsets(FETCH_OFFSETS_VERSION, client, {name.topic: [name.partition]})
                response = await brokers.asked(found.node_id, asked, FETCH_OFFSETS_VERSION)
            except (OSError, TimeoutError):
                continue
            # A coordinator that others have followed tells what was so, until it knows of them.
            is_current = work.cluster.is_current_leader(TopicPartition(OFFSETS_TOPIC, offsets_partition), found.node_id)
            if response.error_code or not is_current:
                continue
            committed = response.topics[0].partitions[0].committed_offset
            if committed != acknowledged and committed not in unclear:
                work.world.fail(f"{client} committed {acknowledged}, and {committed} is fetched")
            acknowledged = committed
            unclear.discard(committed)


async def transact(work: Work, client: str, outcomes: Transactions) -> None:
    """Writes in transactions; commits most of them and aborts some. Until it is cancelled."""
    rng, numbers = work.rng(client), count()
    while True:
        await asyncio.sleep(rng.random())
        producer = Producer(
            bootstrap_servers=work.bootstrap_servers,
            client_id=client,  # one of its own would depend on what ran in this process before
            connector=simulated_connector(work.world.network.host(client)),
            transactional_id=client,
            transaction_timeout_s=TRANSACTION_TIMEOUT_S,
            request_timeout_s=REQUEST_TIMEOUT_S,
            delivery_timeout_s=CALL_S,
            max_block_s=CALL_S,
        )
        producer._rng.seed(rng.random())
        try:
            await producer.init_transactions()
            while True:
                await work.pause(rng)
                await _one_transaction(work, client, producer, outcomes, rng, numbers)
        except (OttlaError, TimeoutError):
            continue  # the next one of this name ends what is open
        finally:
            await producer.close(0)


async def _one_transaction(
    work: Work, client: str, producer: Producer[bytes, bytes], outcomes: Transactions, rng: Random, numbers: Any
) -> None:
    values: list[bytes] = []
    outcomes.unclear.append(values)
    producer.begin_transaction()
    for _ in range(rng.randint(1, 4)):
        name = rng.choice(work.names)
        for value in work.values(client, name, numbers, rng):
            values.append(value)
            producer.send(name.topic, value, partition=name.partition, timestamp=EPOCH_MS)
    await producer.flush()
    if rng.random() < LONG_CHANCE:
        await asyncio.sleep(rng.random() * LONG_S_MAX)
    if rng.random() < ABORT_CHANCE:
        await producer.abort_transaction()
        outcomes.aborted.append(values)
    else:
        await producer.commit_transaction()
        outcomes.committed.append(values)
    outcomes.unclear.remove(values)


@dataclass(slots=True)
class GroupReads:
    """What the members of a group were given."""

    next_offsets: dict[TopicPartition, int] = field(default_factory=dict)

    def note(self, work: Work, client: str, name: TopicPartition, offset: int, value: bytes) -> None:
        expected = max(self.next_offsets.get(name, 0), work.cluster.observed[name].start)
        if offset > expected:
            work.world.fail(f"{client} was given {offset} of {name}, and nobody {expected}")
        self.next_offsets[name] = max(expected, offset + 1)
        work.cluster.observed[name].read[offset] = value


async def join_group(work: Work, client: str, reads: GroupReads) -> None:
    """Reads as a member of a group and commits what it has read; until it is cancelled."""
    rng = work.rng(client)
    while True:
        await asyncio.sleep(rng.random())
        consumer = Consumer(
            bootstrap_servers=work.bootstrap_servers,
            group_id="readers",
            client_id=client,
            auto_offset_reset="earliest",
            connector=simulated_connector(work.world.network.host(client)),
            rng=Random(f"{work.world.seed}/{client}/{rng.random()}"),
            request_timeout_s=REQUEST_TIMEOUT_S,
            session_timeout_s=6.0,
            heartbeat_interval_s=1.0,
            auto_commit_interval_s=0.5,
        )
        consumer.subscribe([work.names[0].topic])
        try:
            await consumer.start()
            while True:
                for record in await consumer.take(1.0):
                    name = TopicPartition(record.topic, record.partition)
                    reads.note(work, client, name, record.offset, bytes(record.value or b""))
        except (OttlaError, OSError, TimeoutError):
            continue
        finally:
            await consumer.close()


# -- in the end --------------------------------------------------------------------------------------------------------


def check_order(work: Work, clients: Sequence[str]) -> None:
    """What an idempotent producer wrote is there once and in its order."""
    for name in work.names:
        seen: dict[str, int] = {}
        for offset, value in contents(work.cluster.replicas(name)[0]).items():
            client, _, number, _ = value.decode().split(" ", 3)
            if client in clients and offset >= work.cluster.observed[name].start:
                if int(number) <= seen.get(client, -1):
                    work.world.fail(f"{name}: {number} of {client} comes after {seen[client]}")
                seen[client] = int(number)

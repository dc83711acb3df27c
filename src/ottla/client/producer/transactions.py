"""Transactions of a producer: what is asked of the coordinator, by the rules of both versions of the protocol.

In version 1 every partition and every group is added to the transaction before it is written to. In version 2 (KIP-890,
`transaction.version` 2) writing adds them, and the end of each transaction gives the producer its next epoch.

One operation runs at a time. It is a task of its own: a caller whose time is over may make the same call again and
waits for the same outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar

from ottla.client.coordinators import CoordinatorType, find_coordinator
from ottla.client.errors import AbortableError, TimedOutError, TransactionAbortedError, UsageError
from ottla.client.metadata import Cluster
from ottla.client.producer.sender import TransactionView
from ottla.client.producer.sequences import Identity, Sequences
from ottla.client.producer.transaction_partitions import TransactionPartitions
from ottla.client.producer.transaction_state import Request, State, TransactionState, Verdict, verdict_of
from ottla.client.retrying import error_of
from ottla.client.transaction_requests import (
    ADD_PARTITIONS_VERSION_MAX,
    END_V1_MAX,
    INIT_VERSION_MAX,
    add_partitions_request,
    added_partition_codes,
    end_request,
    uses_implicit_partitions,
)
from ottla.client.values import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.errors import ApiError, OttlaError
from ottla.ids import TopicPartition
from ottla.net.client import BrokerConnection, ConnectionFailedError
from ottla.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

Answer = TypeVar("Answer")

OFFSET_COMMIT_V1_MAX: Final = 4

log = logging.getLogger("ottla.client.producer")


class Transactions(TransactionView):
    is_transactional = True

    def __init__(
        self,
        cluster: Cluster,
        sequences: Sequences,
        transactional_id: str,
        timeout_ms: int,
        max_block_s: float,
        wake: Callable[[], None],
    ) -> None:
        self.state = TransactionState()
        self.uses_implicit_partitions = False
        self._cluster = cluster
        self._sequences = sequences
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._max_block_s = max_block_s
        self._wake = wake
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}
        self._partitions = TransactionPartitions(self._add, wake)
        self._has_offsets = False
        self._trouble: OttlaError | None = None  # why the coordinator has not done what it was asked
        self._operation: tuple[str, asyncio.Task[Any]] | None = None

    # -- what the sender asks ------------------------------------------------------------------------------------------

    @property
    def error(self) -> BaseException | None:
        """Why nothing may be sent, or sent again."""
        if self.state.now is State.ABORTING:
            return TransactionAbortedError("the transaction was aborted before the record was sent")
        return self.state.error

    def may_send(self, partition: TopicPartition) -> bool:
        if self.state.now not in (State.IN_TRANSACTION, State.COMMITTING):
            return False
        return self._partitions.may_write(partition, is_implicit=self.uses_implicit_partitions)

    def produce_failed(self, error: OttlaError) -> None:
        if isinstance(error, ApiError) and verdict_of(Request.PRODUCE, error.code) is Verdict.FATAL:
            self.state.fatal(error)
        elif not isinstance(error, TransactionAbortedError):
            self.state.abortable(error)

    # -- what the user asks --------------------------------------------------------------------------------------------

    async def init(self) -> None:
        if not self._is_under_way("init_transactions"):
            self.state.move(State.INITIALIZING)
        await self._run("init_transactions", self._init)

    def begin(self) -> None:
        self._check_idle()
        self.state.move(State.IN_TRANSACTION)
        self._partitions.clear()
        self._has_offsets = False

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        self.state.check_may_send()
        if offsets:
            await self._run("send_offsets_to_transaction", lambda: self._send_offsets(offsets, group))

    async def commit(self, flush: Callable[[], Awaitable[None]]) -> None:
        if not self._is_under_way("commit_transaction"):
            self._check_idle()
            self.state.move(State.COMMITTING)
        await self._run("commit_transaction", lambda: self._commit(flush))

    async def abort(self, flush: Callable[[], Awaitable[None]]) -> None:
        if not self._is_under_way("abort_transaction"):
            self._check_idle()
            self.state.move(State.ABORTING)
        await self._run("abort_transaction", lambda: self._abort(flush))

    @property
    def is_open(self) -> bool:
        return self.state.now in (State.IN_TRANSACTION, State.ABORTABLE_ERROR)

    async def is_left_open(self) -> bool:
        """Whether it is to be aborted: a commit or an abort that was cancelled goes on to its end."""
        await self.settle()
        return self.is_open

    async def close(self) -> None:
        await self._partitions.close()
        if self._operation is not None:
            self._operation[1].cancel()
            await asyncio.gather(self._operation[1], return_exceptions=True)

    # -- one operation at a time ---------------------------------------------------------------------------------------

    def _is_under_way(self, name: str) -> bool:
        return self._operation is not None and self._operation[0] == name

    def _check_idle(self) -> None:
        if self._operation is not None:
            raise UsageError(f"{self._operation[0]}() is not over: call it again and wait for it")

    async def _run(self, name: str, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if not self._is_under_way(name):
            self._check_idle()
            self._operation = name, asyncio.get_running_loop().create_task(start())
        assert self._operation is not None
        task = self._operation[1]
        try:
            async with asyncio.timeout(self._max_block_s):
                await asyncio.shield(task)
        except TimeoutError:
            if not task.done():
                what = f"{name}(): call it again to go on waiting"
                what = what if self._trouble is not None else f"{what}; {self._cluster.where}"
                raise TimedOutError(self._max_block_s, self._trouble, what) from self._trouble
        finally:
            if task.done():
                self._over(task)

    def _over(self, task: asyncio.Task[Any]) -> None:
        if self._operation is not None and self._operation[1] is task:
            self._operation = None

    async def settle(self) -> bool:
        """Waits for an operation that goes on although its caller was cancelled. Whether there was one that ended."""
        if self._operation is None:
            return False
        name, task = self._operation
        await asyncio.wait({task}, timeout=self._max_block_s)
        if not task.done():
            return False
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s() of %s failed after its caller was cancelled: %s", name, self._id, error)
        self._over(task)
        return True

    # -- the operations ------------------------------------------------------------------------------------------------

    async def _init(self) -> None:
        await self._introduce(Identity(-1, -1))
        self.state.move(State.READY)

    async def _introduce(self, current: Identity) -> None:
        """Asks for a producer id or, for one that we have, for its next epoch."""
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=current.producer_id,
            producer_epoch=current.epoch,
        )
        response, connection = await self._ask(
            Request.INIT_PRODUCER_ID,
            request,
            InitProducerIdResponse,
            lambda answer: (answer.error_code,),
            version_max=INIT_VERSION_MAX,
        )
        self._renew(Identity(response.producer_id, response.producer_epoch), connection)

    def _renew(self, identity: Identity, connection: BrokerConnection) -> None:
        self._sequences.forget()
        self._sequences.start(identity)
        self.uses_implicit_partitions = uses_implicit_partitions(connection)

    async def _add(self, partitions: set[TopicPartition]) -> bool:
        if self.state.now not in (State.IN_TRANSACTION, State.COMMITTING):
            return False
        identity = self._identity()
        await self._ask(
            Request.ADD_PARTITIONS,
            add_partitions_request(self._id, identity.producer_id, identity.epoch, partitions),
            AddPartitionsToTxnResponse,
            added_partition_codes,
            version_max=ADD_PARTITIONS_VERSION_MAX,
        )
        return True

    async def _send_offsets(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        identity = self._identity()
        if not self.uses_implicit_partitions:
            await self._ask(
                Request.ADD_OFFSETS,
                AddOffsetsToTxnRequest(
                    transactional_id=self._id,
                    producer_id=identity.producer_id,
                    producer_epoch=identity.epoch,
                    group_id=group.group_id,
                ),
                AddOffsetsToTxnResponse,
                lambda answer: (answer.error_code,),
            )
        self._has_offsets = True
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for partition, given in offsets.items():
            offset = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
            topics.setdefault(partition.topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        await self._ask(
            Request.OFFSET_COMMIT,
            TxnOffsetCommitRequest(
                transactional_id=self._id,
                group_id=group.group_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                generation_id=group.generation_id,
                member_id=group.member_id,
                group_instance_id=group.group_instance_id,
                topics=[TxnOffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
            ),
            TxnOffsetCommitResponse,
            lambda answer: (each.error_code for topic in answer.topics for each in topic.partitions),
            place=(CoordinatorType.GROUP, group.group_id),
            version_max=None if self.uses_implicit_partitions else OFFSET_COMMIT_V1_MAX,
        )

    async def _commit(self, flush: Callable[[], Awaitable[None]]) -> None:
        await flush()
        self._raise_error()
        await self._end(Request.COMMIT)
        self.state.move(State.READY)

    async def _abort(self, flush: Callable[[], Awaitable[None]]) -> None:
        self._wake()  # the sender drops what it has not sent
        await flush()
        self._raise_fatal()
        has_ended = await self._end(Request.ABORT)
        # By the old rules nobody knows which numbers were used up, so a new epoch starts from 0.
        if has_ended and not self.uses_implicit_partitions:
            await self._introduce(self._identity())
        self.state.move(State.READY)
        self.state.error = None

    async def _end(self, request: Request) -> bool:
        """Ends the transaction; whether there was anything to end."""
        if not self._partitions and not self._has_offsets:
            return False
        was_implicit = self.uses_implicit_partitions
        identity = self._identity()
        response, connection = await self._ask(
            request,
            end_request(self._id, identity.producer_id, identity.epoch, commits=request is Request.COMMIT),
            EndTxnResponse,
            lambda answer: (answer.error_code,),
            version_max=None if was_implicit else END_V1_MAX,
        )
        if was_implicit:
            self._renew(Identity(response.producer_id, response.producer_epoch), connection)
        elif request is Request.COMMIT and uses_implicit_partitions(connection):
            # The cluster was upgraded meanwhile: the new rules need an epoch of their own.
            await self._introduce(identity)
        return True

    def _identity(self) -> Identity:
        assert self._sequences.identity is not None, "a producer is introduced before it does anything"
        return self._sequences.identity

    def _raise_error(self) -> None:
        if self.state.error is not None:
            raise self.state.error

    def _raise_fatal(self) -> None:
        if self.state.now is State.FATAL_ERROR:
            self._raise_error()

    # -- asking --------------------------------------------------------------------------------------------------------

    async def _ask(
        self,
        kind: Request,
        request: object,
        answer: type[Answer],
        codes: Callable[[Answer], Iterable[int]],
        *,
        place: tuple[CoordinatorType, str] | None = None,
        version_max: int | None = None,
    ) -> tuple[Answer, BrokerConnection]:
        """Asks a coordinator until it answers for good; an error moves the state and is raised."""
        place = place or (CoordinatorType.TRANSACTION, self._id)
        pauses = iter(self._cluster.options.pauses)
        while True:
            self._raise_fatal()
            try:
                connection = await self._coordinator(place)
                response = await connection.request(request, answer, version_max=version_max)
                error = next((found for code in codes(response) if (found := error_of(code, None, place[1]))), None)
                asked = kind
            except ConnectionFailedError as failure:
                self._trouble = failure
                self._coordinators.pop(place, None)
                await asyncio.sleep(next(pauses))
                continue
            except _CoordinatorError as failure:
                error, asked = failure.error, Request.FIND_COORDINATOR
            except ApiError as failure:
                error, asked = failure, kind
            if error is None:
                self._trouble = None
                return response, connection
            self._trouble = error
            verdict = verdict_of(asked, error.code)
            if verdict is Verdict.LOOK_UP:
                self._coordinators.pop(place, None)
            elif verdict is not Verdict.RETRY:
                self._raise(verdict, error)
            await asyncio.sleep(next(pauses))

    def _raise(self, verdict: Verdict, error: ApiError) -> None:
        match verdict:
            case Verdict.ABORTABLE:
                self.state.abortable(error)
                if isinstance(self.state.error, AbortableError):
                    raise self.state.error
                if self.state.now is State.INITIALIZING:
                    self.state.move(State.UNINITIALIZED)
            case Verdict.UNINITIALIZE:
                self.state.move(State.UNINITIALIZED)
            case _:
                self.state.fatal(error)
        raise error

    async def _coordinator(self, place: tuple[CoordinatorType, str]) -> BrokerConnection:
        if place not in self._coordinators:
            try:
                self._coordinators[place] = await find_coordinator(self._cluster, *place)
            except ApiError as error:
                raise _CoordinatorError(error) from error
        return await self._cluster.coordinator_connection(self._coordinators[place])


class _CoordinatorError(Exception):
    """The answer to the question who coordinates."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(str(error))
        self.error = error

"""The states of a transactional producer, and what an error code means for each of its requests. Pure.

    UNINITIALIZED → INITIALIZING → READY → IN_TRANSACTION → COMMITTING | ABORTING → READY

An abortable error ends a transaction: only `abort` leads on from there. A fatal one ends the producer.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from ottla.client.error_codes import TransactionAbortableError
from ottla.client.errors import AbortableError, UsageError
from ottla.errors import ErrorCode


class State(Enum):
    UNINITIALIZED = "has not been initialized: call init_transactions() first"
    INITIALIZING = "is being initialized"
    READY = "has no transaction open: call begin_transaction() first"
    IN_TRANSACTION = "has a transaction open"
    COMMITTING = "is committing a transaction"
    ABORTING = "is aborting a transaction"
    ABORTABLE_ERROR = "has a transaction that has to be aborted: call abort_transaction()"
    FATAL_ERROR = "has failed for good"


MOVES: Final = {
    State.UNINITIALIZED: {State.INITIALIZING},
    State.INITIALIZING: {State.READY, State.UNINITIALIZED},
    State.READY: {State.IN_TRANSACTION},
    State.IN_TRANSACTION: {State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR},
    State.COMMITTING: {State.READY, State.ABORTABLE_ERROR},
    State.ABORTING: {State.READY},
    State.ABORTABLE_ERROR: {State.ABORTING},
    State.FATAL_ERROR: set(),
}


class Request(Enum):
    FIND_COORDINATOR = auto()
    INIT_PRODUCER_ID = auto()
    ADD_PARTITIONS = auto()
    ADD_OFFSETS = auto()
    OFFSET_COMMIT = auto()
    COMMIT = auto()
    ABORT = auto()
    PRODUCE = auto()


class Verdict(Enum):
    RETRY = auto()
    LOOK_UP = auto()  # the coordinator is another one: find it, then again
    ABORTABLE = auto()
    UNINITIALIZE = auto()  # the call fails, and may be made again
    FATAL = auto()


_LOOKS_UP: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
_ABORTABLE: Final = {
    Request.FIND_COORDINATOR: {ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TRANSACTION_ABORTABLE},
    Request.INIT_PRODUCER_ID: {ErrorCode.TRANSACTION_ABORTABLE},
    Request.ADD_OFFSETS: {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    },
    Request.OFFSET_COMMIT: {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.TRANSACTION_ABORTABLE,
    },
    Request.COMMIT: {ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_PRODUCER_ID},
    Request.ABORT: {ErrorCode.UNKNOWN_PRODUCER_ID},
}
# Of these requests everything that is not fatal is abortable.
_FATAL: Final = {
    Request.ADD_PARTITIONS: {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    },
    Request.PRODUCE: {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
    },
}
_UNINITIALIZES: Final = frozenset(
    {ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
)


def verdict_of(request: Request, code: ErrorCode) -> Verdict:
    """What an error code in the answer to a request means."""
    if request is Request.PRODUCE:
        # Whatever may pass was tried again until the time was over: by now the batch is lost.
        return Verdict.FATAL if code in _FATAL[request] else Verdict.ABORTABLE
    if code.retriable:
        looks_up = request is not Request.FIND_COORDINATOR and (
            code in _LOOKS_UP or (request is Request.OFFSET_COMMIT and code is ErrorCode.REQUEST_TIMED_OUT)
        )
        return Verdict.LOOK_UP if looks_up else Verdict.RETRY
    if request in _FATAL:
        return Verdict.FATAL if code in _FATAL[request] else Verdict.ABORTABLE
    if request is Request.INIT_PRODUCER_ID and code in _UNINITIALIZES:
        return Verdict.UNINITIALIZE
    return Verdict.ABORTABLE if code in _ABORTABLE[request] else Verdict.FATAL


class TransactionState:
    """Where a producer stands, and the error that brought it there."""

    def __init__(self) -> None:
        self.now = State.UNINITIALIZED
        self.error: BaseException | None = None

    def move(self, to: State) -> None:
        """A step that the user asked for, or that follows from it; one that does not fit raises and changes nothing."""
        if to not in MOVES[self.now]:
            if self.error is not None:
                raise self.error
            raise UsageError(f"the producer {self.now.value}")
        self.now = to
        if to is not State.ABORTING:
            self.error = None

    def abortable(self, error: BaseException) -> None:
        """The transaction is lost. Where none is open there is nothing to lose."""
        if self.now in (State.IN_TRANSACTION, State.COMMITTING):
            self.now = State.ABORTABLE_ERROR
            if not isinstance(error, AbortableError):
                abortable = TransactionAbortableError(f"the transaction has to be aborted: {error}")
                abortable.__cause__ = error
                error = abortable
            self.error = error

    def fatal(self, error: BaseException) -> None:
        if self.now is not State.FATAL_ERROR:
            self.now, self.error = State.FATAL_ERROR, error

    def check_may_send(self) -> None:
        if self.now is State.IN_TRANSACTION:
            return
        if self.error is not None:
            raise self.error
        raise UsageError(f"the producer {self.now.value}")

"""The transactions of tasks: which id an attempt writes under, and whether it has to write at all.

A worker keeps its transactional id for the next task of the run, so that a query has as many of them as it has
workers, and not as many as it runs tasks. An id is used again only once its coordinator says that its transaction has
ended: what was decided may not have been carried out yet, and an id that is used again aborts what is open under it.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Final

from ottla.client import prepared
from ottla.client.admin.over_cluster import ClusterAdmin
from ottla.client.admin.transactions import TransactionDescription
from ottla.client.metadata import Cluster
from ottla.client.prepared import Prepared
from ottla.spark.delivery.decision import Writer, is_decided
from ottla.spark.delivery.log import DecisionLog
from ottla.transactions.state import STATES_BY_TITLE, TransactionState

RUNS_KEPT_MAX: Final = 16
# States in which the end of a transaction stands, carried out or not.
_ENDED: Final = frozenset(state.title for state in STATES_BY_TITLE.values() if state is not TransactionState.ONGOING)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a task of a batch."""

    writer: Writer
    batch_id: int
    partition_id: int = 0
    attempt_number: int = 0


@dataclass(slots=True)
class _Run:
    """What this process remembers of a run."""

    kept: list[str] = field(default_factory=list)
    last_batch: int | None = None


class TaskTransactions:
    """The transactional ids of this process, by run."""

    def __init__(self) -> None:
        self._runs: dict[Writer, _Run] = {}

    async def begin(self, cluster: Cluster, attempt: Attempt, decisions_topic: str, timeout_ms: int) -> Prepared | None:
        """A transaction to write in; None where the batch is decided, so that nothing is to be written."""
        run = self._run(attempt.writer)
        # First what became of a kept id, then whether the batch is decided. The other way round an id could be used
        # again whose transaction was decided in between, for this very batch.
        transactional_id = await self._ended_id(cluster, run)
        is_first = run.last_batch is not None and attempt.batch_id > run.last_batch
        run.last_batch = max(attempt.batch_id, -1 if run.last_batch is None else run.last_batch)
        if not is_first:
            last = await DecisionLog(cluster, decisions_topic, attempt.writer).read_last()
            if is_decided(last, attempt.batch_id):
                if transactional_id is not None:
                    run.kept.append(transactional_id)
                return None
        new_id = f"{attempt.writer.run_prefix}{uuid.uuid4().hex}"
        two_phase = await prepared.has_two_phase(cluster)
        return await prepared.begin(cluster, transactional_id or new_id, timeout_ms, two_phase=two_phase)

    def keep(self, attempt: Attempt, transaction: Prepared) -> None:
        """The transaction is whole and waits for its end; its id is looked at again by the next task."""
        self._run(attempt.writer).kept.append(transaction.transactional_id)

    def _run(self, writer: Writer) -> _Run:
        if writer not in self._runs:
            while len(self._runs) >= RUNS_KEPT_MAX:
                del self._runs[next(iter(self._runs))]  # the oldest: a run that goes on makes a new id
            self._runs[writer] = _Run()
        return self._runs[writer]

    @staticmethod
    async def _ended_id(cluster: Cluster, run: _Run) -> str | None:
        """A kept id whose transaction has ended; it is taken out of those that are kept."""
        described = await ClusterAdmin(cluster).describe_transactions(run.kept)
        for transactional_id, found in described.items():
            if not isinstance(found, TransactionDescription):
                run.kept.remove(transactional_id)  # its coordinator has forgotten it, or does not tell
            elif found.state in _ENDED:
                run.kept.remove(transactional_id)
                return transactional_id
        return None

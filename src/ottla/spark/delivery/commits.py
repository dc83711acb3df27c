"""The driver's part of the exactly-once sink: one decision per batch, and then the end of every transaction."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Sequence
from functools import cache
from typing import Final

from ottla.client import prepared
from ottla.client.admin.over_cluster import ClusterAdmin
from ottla.client.admin.transactions import ONGOING
from ottla.client.error_codes import TransactionalIdNotFoundError
from ottla.client.metadata import Cluster
from ottla.client.prepared import EndedOtherwiseError, Prepared
from ottla.errors import ApiError, OttlaError
from ottla.runtime.clock import SystemClock
from ottla.spark.delivery.decision import Steps, Writer, steps_of_abort, steps_of_commit
from ottla.spark.delivery.log import DecisionLog, FencedError
from ottla.spark.delivery.messages import PreparedWrite

_log = logging.getLogger(__name__)

LIST_TRANSACTIONS: Final = 66
PATTERN_VERSION: Final = 2  # of ListTransactions: brokers choose by name
LOGS_KEPT_MAX: Final = 32
ENDS_AT_ONCE_MAX: Final = 32
ATTEMPTS_MAX: Final = 4  # of a decision; each but the first needs another writer that came in between


class LostTransactionError(OttlaError):
    """Rows that a decision has committed were aborted all the same, because their time was over."""


class Commits:
    """Commits and aborts the batches of queries, in one process of a driver and towards one cluster."""

    def __init__(self, cluster: Cluster, decisions_topic: str, *, fail_on_data_loss: bool = True) -> None:
        self._cluster = cluster
        self._topic = decisions_topic
        self._fails_on_data_loss = fail_on_data_loss
        self._logs: dict[Writer, DecisionLog] = {}
        # What a sweep found and could not abort. A run sweeps up after others once, so these are remembered: an open
        # transaction hides everything behind it from readers of what is committed.
        self._left_open: set[str] = set()

    async def commit(self, writer: Writer, batch_id: int, writes: Sequence[PreparedWrite]) -> None:
        """Returns once the batch is decided and every transaction of it has its end.

        Spark commits the batches of a query in several processes of its driver. Whichever did not write the last
        decision is fenced when it writes the next one, and looks again.
        """
        for attempts_left in reversed(range(ATTEMPTS_MAX)):
            log = await self._open_log(writer)
            steps = steps_of_commit(log.last, writer, batch_id, _offered(writes))
            try:
                await self._carry_out(log, steps, batch_id)
                return
            except FencedError:
                if not attempts_left:
                    raise
                self._logs[writer] = log  # it opens itself again

    async def abort(self, writer: Writer, batch_id: int, writes: Sequence[PreparedWrite]) -> None:
        """Aborts what was not decided. What is left, the next commit of the query sweeps up."""
        self._logs.pop(writer, None)  # what its last write came to is not known, so it is read again
        log = await self._open_log(writer)
        await self._carry_out(log, steps_of_abort(log.last, batch_id, _offered(writes)), batch_id)

    async def _open_log(self, writer: Writer) -> DecisionLog:
        while len(self._logs) >= LOGS_KEPT_MAX:
            del self._logs[next(iter(self._logs))]
        log = self._logs.pop(writer, None) or DecisionLog(self._cluster, self._topic, writer)
        if not log.is_open:
            await log.open()
        return log

    async def _carry_out(self, log: DecisionLog, steps: Steps, batch_id: int) -> None:
        if steps.sweep_prefix is None:
            await self._decide_and_end(log, steps, batch_id)
        else:
            # What was left open is looked for meanwhile: the attempts of the batch have ended, unless they are
            # outdated. It is aborted last.
            done, found = await asyncio.gather(
                self._decide_and_end(log, steps, batch_id), self._open_under(steps.sweep_prefix), return_exceptions=True
            )
            if done is not None:
                raise done
            if isinstance(found, BaseException):
                raise found
            ended = {each.transactional_id for each in (*steps.commits, *steps.aborts)}
            await self._sweep(found, ended, log.writer)
        # Kept only now: after an error in any step it is opened again, and reads what was decided.
        self._logs[log.writer] = log

    async def _decide_and_end(self, log: DecisionLog, steps: Steps, batch_id: int) -> None:
        if steps.decision is not None:
            await log.write(steps.decision, SystemClock().now_ms())
        await self._end_all(steps.commits, batch_id, commits=True)
        await self._end_all(steps.aborts, batch_id, commits=False)

    async def _end_all(self, transactions: Collection[Prepared], batch_id: int, *, commits: bool) -> None:
        room = asyncio.Semaphore(ENDS_AT_ONCE_MAX)

        async def end(transaction: Prepared) -> str | None:
            async with room:
                try:
                    await prepared.end(self._cluster, transaction, commits=commits)
                except EndedOtherwiseError as error:
                    return str(error)
                return None

        ended = await asyncio.gather(*map(end, transactions))
        reasons = [reason for reason in ended if reason is not None]
        if commits and reasons:
            self._report_lost(batch_id, len(transactions), reasons)

    def _report_lost(self, batch_id: int, count: int, reasons: Sequence[str]) -> None:
        lost = (
            f"batch {batch_id} was decided, and {len(reasons)} of its {count} transactions were aborted before they "
            f"could be committed ({reasons[0]}): their rows are not in their topics. This happens where brokers have no"
            " two-phase transactions and a driver stays away for longer than kafka.transaction.timeout.ms. Write the "
            "batch again from its source, and set failOnDataLoss to false to let the query continue after it"
        )
        if self._fails_on_data_loss:
            raise LostTransactionError(lost)
        _log.warning("%s", lost)

    async def _open_under(self, prefix: str) -> set[str]:
        """The transactional ids that begin so and have an open transaction."""
        versions = (await self._cluster.any_connection()).versions.get(LIST_TRANSACTIONS)
        if versions is None:
            return set()  # older than KIP-664: what is left waits for its timeout
        pattern = f"{re.escape(prefix)}.*" if versions.last >= PATTERN_VERSION else None
        listed = await ClusterAdmin(self._cluster).list_transactions(states=[ONGOING], pattern=pattern)
        return {each.transactional_id for each in listed if each.transactional_id.startswith(prefix)}

    async def _sweep(self, found: Collection[str], ended: Collection[str], writer: Writer) -> None:
        """Aborts what attempts, executors and drivers that are gone have left open."""
        self._left_open.difference_update(ended)
        left_open = {each for each in self._left_open if each.startswith(writer.scope_prefix)}
        admin = ClusterAdmin(self._cluster)
        for transactional_id in sorted(left_open.union(found).difference(ended)):
            try:
                await admin.abort_transaction(transactional_id)
                self._left_open.discard(transactional_id)
            except TransactionalIdNotFoundError:
                self._left_open.discard(transactional_id)  # it has ended, and its coordinator has forgotten it
            except ApiError as error:
                self._left_open.add(transactional_id)
                _log.warning(
                    "a transaction that was left open is not aborted yet; the next batch tries again: %s", error
                )


def _offered(writes: Sequence[PreparedWrite]) -> list[Prepared]:
    return [write.transaction for write in writes if write.transaction is not None]


@cache
def warn_of_timeouts(timeout_ms: int) -> None:
    """Once a process, where brokers have no two-phase transactions."""
    _log.warning(
        "these brokers have no two-phase transactions (transaction.two.phase.commit.enable): a batch that was decided "
        "is lost if its driver fails and no other one takes over within %d s (kafka.transaction.timeout.ms)",
        timeout_ms // 1000,
    )

"""A producer over a cluster that somebody else has open, and closes: what the sink of Spark writes columns with.

    producer = ClusterProducer(cluster, compression_type="lz4")
    appended = await (await producer.send_records("orders", records))
    await producer.close()

With a transaction (`prepared.py`) everything is written in it, and its end is left to whoever holds it. The cluster
says how long to wait for answers and between tries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ottla.client.metadata import Cluster
from ottla.client.partitioning import Records
from ottla.client.prepared import Prepared, add_partitions
from ottla.client.producer.columns import AppendedRecords
from ottla.client.producer.producer import Producer
from ottla.client.producer.sender import SenderOptions, TransactionView
from ottla.client.producer.sequences import Identity, Sequences
from ottla.client.producer.transaction_partitions import TransactionPartitions
from ottla.client.producer.transactions import Transactions
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.net.client import Connector
from ottla.records.layout import INT32_MAX


class ClusterProducer(Producer[bytes, bytes]):
    """Sends columns. Closing it leaves the cluster open."""

    def __init__(self, cluster: Cluster, transaction: Prepared | None = None, **settings: Any) -> None:
        self._shared = cluster
        self._prepared = transaction
        options = cluster.options
        super().__init__(
            {
                "bootstrap_servers": cluster.bootstrap_servers,
                "client_id": options.connection.client_id,
                "max_block_s": options.timeout_s,
                "delivery_timeout_s": options.timeout_s,
                "request_timeout_s": min(options.connection.request_timeout_s, options.timeout_s),
                "retry_backoff_s": options.pauses.first_s,
                "retry_backoff_max_s": options.pauses.max_s,
                "reconnect_backoff_s": options.pauses.first_s,
                "reconnect_backoff_max_s": options.pauses.max_s,
                "linger_s": 0.0,
                "transactional_id": None if transaction is None else transaction.transactional_id,
                **settings,
            }
        )
        self._record_bytes_max = INT32_MAX  # the topic decides

    @property
    def has_failed(self) -> bool:
        """Whether it refuses everything from now on; another one has to take its place."""
        return self._sender.failure is not None

    async def produce(self, topic: str, records: Records, partition: int | None = None) -> list[AppendedRecords]:
        """Sends columns and waits until all are acknowledged; the error of the first batch that failed."""
        return await (await self.send_records(topic, records, partition))

    def _make_cluster(self, connector: Connector | None) -> Cluster:
        return self._shared

    async def _close_cluster(self) -> None:
        """It is not ours."""

    def _make_transactions(self) -> Transactions | None:
        return None

    def _transaction_view(self) -> TransactionView:
        if self._prepared is None:
            return TransactionView()
        assert self._sequences is not None, "batches of a transaction are numbered"
        return _WritingPrepared(self._cluster, self._sequences, self._prepared, self._look_again)

    def _sender_options(self) -> SenderOptions:
        return replace(super()._sender_options(), mutes=not self.settings.enable_idempotence)


class _WritingPrepared(TransactionView):
    """A transaction that somebody else began and will end. After an error nothing more is written in it."""

    is_transactional = True

    def __init__(self, cluster: Cluster, sequences: Sequences, transaction: Prepared, wake: Callable[[], None]) -> None:
        self.uses_implicit_partitions = transaction.raises_epochs
        self._cluster = cluster
        self._transaction = transaction
        self._partitions = TransactionPartitions(self._add, wake)
        self._error: BaseException | None = None
        sequences.start(Identity(transaction.producer_id, transaction.producer_epoch))

    @property
    def error(self) -> BaseException | None:
        return self._error

    def may_send(self, partition: TopicPartition) -> bool:
        return self._error is None and self._partitions.may_write(partition, is_implicit=self.uses_implicit_partitions)

    async def _add(self, partitions: set[TopicPartition]) -> bool:
        try:
            await add_partitions(self._cluster, self._transaction, partitions)
        except OttlaError as error:
            self.produce_failed(error)
            raise
        return True

    def produce_failed(self, error: OttlaError) -> None:
        self._error = self._error or error

    async def close(self) -> None:
        await self._partitions.close()

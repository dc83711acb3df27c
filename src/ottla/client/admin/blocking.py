"""The admin client for callers without an event loop.

    with Admin(bootstrap_servers="127.0.0.1:9092") as admin:
        admin.create_topic("orders", partitions=3)
        lag = admin.lag("billing")

The same names, arguments and results as on asyncio; every call waits. Any number of threads may use it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from ottla.client.admin import admin as asynchronous
from ottla.client.admin.admin import CLOSE_TIMEOUT_S
from ottla.client.blocking import ThreadedClient, waiting
from ottla.client.settings import AdminSettings
from ottla.net.client import Connector
from ottla.runtime.clock import Clock


class Admin(ThreadedClient[asynchronous.Admin]):
    """Asks about a cluster and changes it. Use it as a context manager, or call `close`."""

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        connector: Connector | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        **keywords: Any,
    ) -> None:
        """Settings as a mapping or as keywords, under any of their names.

        `connector`, `clock` and `rng`: other ways to the network, to time and to chance, for tests.
        """
        super().__init__(asynchronous.Admin(settings, connector=connector, clock=clock, rng=rng, **keywords))

    @property
    def settings(self) -> AdminSettings:
        return self._core.settings

    def start(self, timeout_s: float | None = None) -> Self:
        """Connects to a broker: who names a wrong address hears it now. With 0 every address is tried once."""
        self._wait(self._core.start(timeout_s))
        return self

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Ends all connections; calls of other threads that wait for an answer fail."""
        self._close(self._core.close(timeout_s))

    # -- topics --------------------------------------------------------------------------------------------------------

    list_topics = waiting(asynchronous.Admin.list_topics)
    describe_topic = waiting(asynchronous.Admin.describe_topic)
    describe_topics = waiting(asynchronous.Admin.describe_topics)
    metadata = waiting(asynchronous.Admin.metadata)
    wait_for_topic = waiting(asynchronous.Admin.wait_for_topic)
    create_topic = waiting(asynchronous.Admin.create_topic)
    create_topics = waiting(asynchronous.Admin.create_topics)
    delete_topic = waiting(asynchronous.Admin.delete_topic)
    delete_topics = waiting(asynchronous.Admin.delete_topics)
    create_partitions = waiting(asynchronous.Admin.create_partitions)
    create_partitions_of_topics = waiting(asynchronous.Admin.create_partitions_of_topics)

    # -- settings ------------------------------------------------------------------------------------------------------

    describe_config = waiting(asynchronous.Admin.describe_config)
    describe_configs = waiting(asynchronous.Admin.describe_configs)
    alter_config = waiting(asynchronous.Admin.alter_config)
    alter_configs = waiting(asynchronous.Admin.alter_configs)
    list_config_resources = waiting(asynchronous.Admin.list_config_resources)

    # -- the cluster ---------------------------------------------------------------------------------------------------

    describe_cluster = waiting(asynchronous.Admin.describe_cluster)
    describe_features = waiting(asynchronous.Admin.describe_features)
    update_features = waiting(asynchronous.Admin.update_features)
    unregister_broker = waiting(asynchronous.Admin.unregister_broker)
    describe_quorum = waiting(asynchronous.Admin.describe_quorum)
    add_voter = waiting(asynchronous.Admin.add_voter)
    remove_voter = waiting(asynchronous.Admin.remove_voter)
    list_pipelines = waiting(asynchronous.Admin.list_pipelines)

    # -- partitions ----------------------------------------------------------------------------------------------------

    list_offset = waiting(asynchronous.Admin.list_offset)
    list_offsets = waiting(asynchronous.Admin.list_offsets)
    delete_records = waiting(asynchronous.Admin.delete_records)
    describe_producers = waiting(asynchronous.Admin.describe_producers)

    # -- groups --------------------------------------------------------------------------------------------------------

    list_groups = waiting(asynchronous.Admin.list_groups)
    describe_group = waiting(asynchronous.Admin.describe_group)
    describe_groups = waiting(asynchronous.Admin.describe_groups)
    delete_group = waiting(asynchronous.Admin.delete_group)
    delete_groups = waiting(asynchronous.Admin.delete_groups)
    remove_members = waiting(asynchronous.Admin.remove_members)

    # -- offsets of groups ---------------------------------------------------------------------------------------------

    committed_offsets = waiting(asynchronous.Admin.committed_offsets)
    committed_offsets_of_groups = waiting(asynchronous.Admin.committed_offsets_of_groups)
    lag = waiting(asynchronous.Admin.lag)
    alter_offsets = waiting(asynchronous.Admin.alter_offsets)
    delete_offsets = waiting(asynchronous.Admin.delete_offsets)
    reset_offsets = waiting(asynchronous.Admin.reset_offsets)

    # -- transactions --------------------------------------------------------------------------------------------------

    list_transactions = waiting(asynchronous.Admin.list_transactions)
    describe_transaction = waiting(asynchronous.Admin.describe_transaction)
    describe_transactions = waiting(asynchronous.Admin.describe_transactions)
    open_transactions = waiting(asynchronous.Admin.open_transactions)
    hanging_transactions = waiting(asynchronous.Admin.hanging_transactions)
    fence_producer = waiting(asynchronous.Admin.fence_producer)
    fence_producers = waiting(asynchronous.Admin.fence_producers)
    abort_transaction = waiting(asynchronous.Admin.abort_transaction)
    abort_open_transaction = waiting(asynchronous.Admin.abort_open_transaction)

    # -- replicas ------------------------------------------------------------------------------------------------------

    elect_leaders = waiting(asynchronous.Admin.elect_leaders)
    describe_log_dirs = waiting(asynchronous.Admin.describe_log_dirs)
    describe_log_dirs_of_brokers = waiting(asynchronous.Admin.describe_log_dirs_of_brokers)
    alter_replica_log_dirs = waiting(asynchronous.Admin.alter_replica_log_dirs)
    alter_reassignments = waiting(asynchronous.Admin.alter_reassignments)
    list_reassignments = waiting(asynchronous.Admin.list_reassignments)

    # -- rules, quotas, users ------------------------------------------------------------------------------------------

    describe_acls = waiting(asynchronous.Admin.describe_acls)
    create_acl = waiting(asynchronous.Admin.create_acl)
    create_acls = waiting(asynchronous.Admin.create_acls)
    delete_acls = waiting(asynchronous.Admin.delete_acls)
    describe_client_quotas = waiting(asynchronous.Admin.describe_client_quotas)
    alter_client_quota = waiting(asynchronous.Admin.alter_client_quota)
    alter_client_quotas = waiting(asynchronous.Admin.alter_client_quotas)
    describe_user_scram_credentials = waiting(asynchronous.Admin.describe_user_scram_credentials)
    set_password = waiting(asynchronous.Admin.set_password)
    delete_password = waiting(asynchronous.Admin.delete_password)
    alter_user_scram_credentials = waiting(asynchronous.Admin.alter_user_scram_credentials)
    create_delegation_token = waiting(asynchronous.Admin.create_delegation_token)
    renew_delegation_token = waiting(asynchronous.Admin.renew_delegation_token)
    expire_delegation_token = waiting(asynchronous.Admin.expire_delegation_token)
    describe_delegation_tokens = waiting(asynchronous.Admin.describe_delegation_tokens)

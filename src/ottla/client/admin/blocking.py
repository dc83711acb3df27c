"""The admin client for callers without an event loop.

    with Admin(bootstrap_servers="127.0.0.1:9092") as admin:
        admin.create_topic("orders", partitions=3)
        lag = admin.lag("billing")

The same names, arguments and results as on asyncio; every call waits. Any number of threads may use it.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from ottla.client.admin import admin as asynchronous
from ottla.client.admin.admin import CLOSE_TIMEOUT_S
from ottla.client.blocking import LoopThread
from ottla.client.settings import AdminSettings
from ottla.net.client import Connector
from ottla.runtime.clock import Clock

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _waiting(
    call: Callable[Concatenate[asynchronous.Admin, Parameters], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Admin, Parameters], Result]:
    """A method that waits for what its twin on asyncio does, with the same arguments and documentation."""

    @functools.wraps(call)
    def wait(self: Admin, /, *arguments: Parameters.args, **keywords: Parameters.kwargs) -> Result:
        self._core._lifetime.check()
        return self._thread.wait(call(self._core, *arguments, **keywords))

    return wait


class Admin:
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
        self._core = asynchronous.Admin(settings, connector=connector, clock=clock, rng=rng, **keywords)
        self._thread = LoopThread(f"ottla-{self._core.client_id}")
        self._thread.start()

    @property
    def settings(self) -> AdminSettings:
        return self._core.settings

    @property
    def client_id(self) -> str:
        return self._core.client_id

    def start(self, timeout_s: float | None = None) -> Self:
        """Connects to a broker: who names a wrong address hears it now. With 0 every address is tried once."""
        self._core._lifetime.check()
        self._thread.wait(self._core.start(timeout_s))
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
        if self._core._lifetime.is_closed and not self._thread.is_running:
            return
        try:
            self._thread.wait(self._core.close(timeout_s))
        finally:
            self._thread.stop()

    # -- topics --------------------------------------------------------------------------------------------------------

    list_topics = _waiting(asynchronous.Admin.list_topics)
    describe_topic = _waiting(asynchronous.Admin.describe_topic)
    describe_topics = _waiting(asynchronous.Admin.describe_topics)
    metadata = _waiting(asynchronous.Admin.metadata)
    wait_for_topic = _waiting(asynchronous.Admin.wait_for_topic)
    create_topic = _waiting(asynchronous.Admin.create_topic)
    create_topics = _waiting(asynchronous.Admin.create_topics)
    delete_topic = _waiting(asynchronous.Admin.delete_topic)
    delete_topics = _waiting(asynchronous.Admin.delete_topics)
    create_partitions = _waiting(asynchronous.Admin.create_partitions)
    create_partitions_of_topics = _waiting(asynchronous.Admin.create_partitions_of_topics)

    # -- settings ------------------------------------------------------------------------------------------------------

    describe_config = _waiting(asynchronous.Admin.describe_config)
    describe_configs = _waiting(asynchronous.Admin.describe_configs)
    alter_config = _waiting(asynchronous.Admin.alter_config)
    alter_configs = _waiting(asynchronous.Admin.alter_configs)
    list_config_resources = _waiting(asynchronous.Admin.list_config_resources)

    # -- the cluster ---------------------------------------------------------------------------------------------------

    describe_cluster = _waiting(asynchronous.Admin.describe_cluster)
    describe_features = _waiting(asynchronous.Admin.describe_features)
    update_features = _waiting(asynchronous.Admin.update_features)
    unregister_broker = _waiting(asynchronous.Admin.unregister_broker)
    describe_quorum = _waiting(asynchronous.Admin.describe_quorum)
    add_voter = _waiting(asynchronous.Admin.add_voter)
    remove_voter = _waiting(asynchronous.Admin.remove_voter)

    # -- partitions ----------------------------------------------------------------------------------------------------

    list_offset = _waiting(asynchronous.Admin.list_offset)
    list_offsets = _waiting(asynchronous.Admin.list_offsets)
    delete_records = _waiting(asynchronous.Admin.delete_records)
    describe_producers = _waiting(asynchronous.Admin.describe_producers)

    # -- groups --------------------------------------------------------------------------------------------------------

    list_groups = _waiting(asynchronous.Admin.list_groups)
    describe_group = _waiting(asynchronous.Admin.describe_group)
    describe_groups = _waiting(asynchronous.Admin.describe_groups)
    delete_group = _waiting(asynchronous.Admin.delete_group)
    delete_groups = _waiting(asynchronous.Admin.delete_groups)
    remove_members = _waiting(asynchronous.Admin.remove_members)

    # -- offsets of groups ---------------------------------------------------------------------------------------------

    committed_offsets = _waiting(asynchronous.Admin.committed_offsets)
    committed_offsets_of_groups = _waiting(asynchronous.Admin.committed_offsets_of_groups)
    lag = _waiting(asynchronous.Admin.lag)
    alter_offsets = _waiting(asynchronous.Admin.alter_offsets)
    delete_offsets = _waiting(asynchronous.Admin.delete_offsets)
    reset_offsets = _waiting(asynchronous.Admin.reset_offsets)

    # -- transactions --------------------------------------------------------------------------------------------------

    list_transactions = _waiting(asynchronous.Admin.list_transactions)
    describe_transaction = _waiting(asynchronous.Admin.describe_transaction)
    describe_transactions = _waiting(asynchronous.Admin.describe_transactions)
    open_transactions = _waiting(asynchronous.Admin.open_transactions)
    hanging_transactions = _waiting(asynchronous.Admin.hanging_transactions)
    fence_producer = _waiting(asynchronous.Admin.fence_producer)
    fence_producers = _waiting(asynchronous.Admin.fence_producers)
    abort_transaction = _waiting(asynchronous.Admin.abort_transaction)
    abort_open_transaction = _waiting(asynchronous.Admin.abort_open_transaction)

    # -- replicas ------------------------------------------------------------------------------------------------------

    elect_leaders = _waiting(asynchronous.Admin.elect_leaders)
    describe_log_dirs = _waiting(asynchronous.Admin.describe_log_dirs)
    describe_log_dirs_of_brokers = _waiting(asynchronous.Admin.describe_log_dirs_of_brokers)
    alter_replica_log_dirs = _waiting(asynchronous.Admin.alter_replica_log_dirs)
    alter_reassignments = _waiting(asynchronous.Admin.alter_reassignments)
    list_reassignments = _waiting(asynchronous.Admin.list_reassignments)

    # -- rules, quotas, users ------------------------------------------------------------------------------------------

    describe_acls = _waiting(asynchronous.Admin.describe_acls)
    create_acl = _waiting(asynchronous.Admin.create_acl)
    create_acls = _waiting(asynchronous.Admin.create_acls)
    delete_acls = _waiting(asynchronous.Admin.delete_acls)
    describe_client_quotas = _waiting(asynchronous.Admin.describe_client_quotas)
    alter_client_quota = _waiting(asynchronous.Admin.alter_client_quota)
    alter_client_quotas = _waiting(asynchronous.Admin.alter_client_quotas)
    describe_user_scram_credentials = _waiting(asynchronous.Admin.describe_user_scram_credentials)
    set_password = _waiting(asynchronous.Admin.set_password)
    alter_user_scram_credentials = _waiting(asynchronous.Admin.alter_user_scram_credentials)
    create_delegation_token = _waiting(asynchronous.Admin.create_delegation_token)
    renew_delegation_token = _waiting(asynchronous.Admin.renew_delegation_token)
    expire_delegation_token = _waiting(asynchronous.Admin.expire_delegation_token)
    describe_delegation_tokens = _waiting(asynchronous.Admin.describe_delegation_tokens)

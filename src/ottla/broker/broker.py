"""A broker and its life: start in order, serve, stop in order.

Start: listen → lock the log directories → see that they are ours → open the metadata store → cluster id, broker id,
`meta.properties` → load the logs → replicas → register → background tasks → serve. In a cluster it registers last: from
then on its controller tells it what it leads, and others ask for that. Ready means: a client that connects is served.
Stop: in a cluster leaders move elsewhere first; no new requests, those in hand are finished, what runs in the
background is ended, logs are flushed and marked clean, the registration goes, and last of all the locks: nobody else
works in a directory as long as anything of ours does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ottla import compiled
from ottla.broker.acl_store import AclStore
from ottla.broker.client_quotas import ClientQuotas
from ottla.broker.cluster_member import ClusterMember
from ottla.broker.compaction import Compaction
from ottla.broker.connection_limits import server_limits
from ottla.broker.controller import (
    StandaloneController,
    begin_controller_epoch,
    finish_deletions,
    load_configs,
    load_topics,
)
from ottla.broker.coordinators import CoordinatorParts
from ottla.broker.directory_moves import DirectoryMoves
from ottla.broker.disk_failures import DiskFailures
from ottla.broker.dispatch import Dispatcher
from ottla.broker.first_users import store_first_users
from ottla.broker.group_coordinator import GroupCoordinator
from ottla.broker.handlers import CLUSTER_HANDLERS, HANDLERS
from ottla.broker.handlers.api_versions import advertised
from ottla.broker.identity import (
    Identity,
    check_belongs_to_cluster,
    check_identity,
    check_ours,
    cluster_id_in,
    metadata_is_missing,
    read_identity,
)
from ottla.broker.jwks import jwks_of_listeners
from ottla.broker.life_log import LifeLog
from ottla.broker.logins import LoginSources
from ottla.broker.metadata_changes import MetadataChanges
from ottla.broker.partition import Partition
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.quota_store import QuotaStore
from ottla.broker.replicas import Replicas
from ottla.broker.sasl_authenticator import SaslAuthenticator
from ottla.broker.scram_users import ScramUsers
from ottla.broker.session import Sessions
from ottla.broker.stored_secrets import StoredSecrets
from ottla.broker.tls_listeners import CertificateAuthenticator, TlsListeners
from ottla.broker.token_store import TokenStore
from ottla.broker.transaction_coordinator import TransactionCoordinator
from ottla.broker.upkeep import Upkeep
from ottla.broker.verification import TransactionVerifier
from ottla.broker.zookeeper_connection import connect_zookeeper
from ottla.cluster import nodes
from ottla.cluster.image import BrokerEndpoint, BrokerNode, ClusterImage
from ottla.config.broker import BrokerConfig
from ottla.config.dynamic import ConfigResourceType, ConfigScope, DynamicConfigs
from ottla.config.group import GroupConfig
from ottla.config.listener_security import ListenerSecurity
from ottla.config.topic import LogConfig
from ottla.descriptors import DescriptorTable
from ottla.disk import Disk, RealDisk
from ottla.errors import ApiError, ConfigError, ErrorCode, StorageError
from ottla.net.client import Connector, connect_tcp
from ottla.net.connection import Handler
from ottla.net.server import Bind, Server, open_listener
from ottla.replication.fetch_sessions import FetchSessions
from ottla.runtime.carried_out import carried_out
from ottla.runtime.clock import Clock, SystemClock
from ottla.runtime.offload import Offload, SystemOffload
from ottla.runtime.signal import Signal
from ottla.runtime.tasks import Tasks
from ottla.runtime.turns import Turns
from ottla.security.quotas import NO_LIMITS, QuotaLimits
from ottla.storage.logs import Logs
from ottla.store.api import Create, Put, Store
from ottla.store.embedded import EmbeddedStore
from ottla.store.recipes import ensure_path, until_available

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

METADATA_DIRECTORY = ".ottla-metadata"  # in the first log directory, whose lock protects it
UNKNOWN_NODE_ID = -1
EMBEDDED_NODE_ID = 1  # of a broker that was given no id and is alone
DRAIN_S = 10.0
DELAYED_RETRY_S = 1.0
NOTIFICATIONS_CHECK_S = 60.0
QUOTAS_CHECK_S = 600.0
LONG_CHECKS_MAX = 2  # batches that are decompressed in threads at once: each may take 128 MB, and a core


class Broker:
    """One broker. It serves once `start` has returned, and is started at most once."""

    store: Store
    replicas: Replicas
    controller: MetadataChanges
    producer_ids: ProducerIds
    quota_store: QuotaStore
    directory_moves: DirectoryMoves
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    verifier: TransactionVerifier
    node_id: int

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        offload: Offload | None = None,
        turns: Turns | None = None,
        rng: random.Random | None = None,
        bind: Bind | None = None,
        open_store: Callable[[Disk, str], Store] = EmbeddedStore,
        connect_store: Callable[[BrokerConfig], Awaitable[Store]] = connect_zookeeper,
        connector: Connector = connect_tcp,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_failure` is called once no log directory works any more; `logs.failure` says why.

        In a cluster, `connect_store` reaches the metadata store and `connector` the other brokers.
        """
        BrokerConfig.load(properties)  # refuses what cannot be, before anything is touched
        self.configs = DynamicConfigs(properties, UNKNOWN_NODE_ID)
        self.properties = properties
        self.disk = RealDisk() if disk is None else disk
        self.clock = SystemClock() if clock is None else clock
        self.offload = SystemOffload() if offload is None else offload
        self.turns = Turns() if turns is None else turns
        self.rng = random.Random() if rng is None else rng
        self.loop = asyncio.get_running_loop()
        self._bind = bind
        self._open_store = open_store
        self._connect_store = connect_store
        self._connector = connector
        self.cluster: ClusterMember | None = None  # where there is one
        self.is_stopping = False
        self._on_failure = on_failure
        self._failures = DiskFailures()
        self.image = ClusterImage(cluster_id="")
        self.image_changed = Signal()
        handlers = {**HANDLERS, **(CLUSTER_HANDLERS if self.is_clustered else {})}
        self.fetch_sessions = FetchSessions(self.rng, self.config.max_incremental_fetch_session_cache_slots)
        self.advertised = advertised(
            list(handlers), has_two_phase_commit=self.config.transaction_two_phase_commit_enable
        )
        self.sessions = Sessions()
        self.dispatcher = Dispatcher(handlers, self, self.clock, self.offload)
        self.quotas = ClientQuotas(self.config, self.clock.steady_ms)
        self.long_checks = asyncio.Semaphore(LONG_CHECKS_MAX)
        self._descriptors = DescriptorTable.of_process()
        self.server = Server(self.loop, server_limits(self.config, self._descriptors, NO_LIMITS), self.turns)
        self.logs = Logs(self.disk, list(self.config.log_directories), self._topic_config, rng=self.rng)
        self._life = LifeLog(self.clock)
        self._tasks = Tasks()
        self._sockets: list[tuple[str, socket.socket]] = []  # one name may have an IPv4 and an IPv6 address
        self._store: Store | None = None
        self.tls_listeners = TlsListeners()
        self.secrets = StoredSecrets(self.config, self.offload)
        self.tokens: TokenStore | None = None  # where delegation tokens are enabled
        self._jwks = jwks_of_listeners(
            self.config.security_of_listeners.values(), self.offload, self.clock.now_ms, self.clock.steady_ms
        )

    @property
    def config(self) -> BrokerConfig:
        return self.configs.broker_config()

    @property
    def is_clustered(self) -> bool:
        """Whether the metadata is that of a cluster, in ZooKeeper."""
        return bool(self.config.zookeeper_connect)

    def _topic_config(self, topic: str) -> LogConfig:
        return self.configs.topic_config(topic)

    def _group_config(self, group: str) -> GroupConfig:
        return self.configs.group_config(group)

    # -- starting ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Comes up or raises; what was opened on the way is closed again."""
        if (complaint := compiled.complaint()) is not None:
            logger.warning(complaint)
        if (complaint := compiled.codec_complaint()) is not None:
            logger.warning("a codec is slow: %s", complaint)
        self._life.starts(self.config.log_directories)
        try:
            self.tls_listeners.open(self.config)  # before anything else: a key that cannot be read stops the start
            for keys in self._jwks.values():
                await keys.open()
            self._bind_listeners()
            self.logs.lock()
            self._check_directories()
            await self._open_metadata()
            await self._until_available(self._identify)
            self.configs = await self._until_available(
                lambda: load_configs(self.store, DynamicConfigs(self.properties, self.node_id), self.secrets)
            )
            self._take_over_settings()
            self.quota_store = QuotaStore(self.store, self.turns, self._change_quotas, notifies=self.is_clustered)
            await self._until_available(self.quota_store.load)
            self._life.loads()
            self.logs.load(self.clock.now_ms())
            self._life.loaded(self.logs)
            self.producer_ids = ProducerIds(self.store, self.node_id)
            self.replicas = Replicas(self.node_id, self.logs, self.clock, self._failures)
            self.replicas.load_high_watermarks()
            self.directory_moves = DirectoryMoves(
                self.logs, self.replicas, self.clock, self.offload, lambda: self.config
            )
            if self.is_clustered:
                self.cluster = ClusterMember(self, self.store, self._itself(), self._connector)
                self.controller = self.cluster.metadata
            self._make_coordinators(self.cluster)
            if self.cluster is None:
                await self._become_controller()
            if self.config.authorizer_class_name:
                self.dispatcher.acls = AclStore(
                    self.store, self.config, self.clock.now_ms, self.sessions.rules_changed, self.turns, self.offload
                )
                await self._until_available(self.dispatcher.acls.open)
            if self.config.delegation_token_secret_key:
                self.tokens = TokenStore(self.store, self.offload, self.turns, self.config, self.clock.now_ms)
                await self._until_available(self.tokens.open)
            await store_first_users(self.config.security_of_listeners.values(), ScramUsers(self.store), self.offload)
            self._serve_listeners()
        except BaseException:
            await self._give_up()
            raise
        self._tasks.keep("disk failures", self._act_on_failures)
        if self.dispatcher.acls is not None:
            self._tasks.keep("ACLs", self.dispatcher.acls.run)
        if self.tokens is not None:
            interval_s = self.config.delegation_token_expiry_check_interval_ms / 1000
            self._tasks.every("expired tokens", lambda: interval_s, self.tokens.remove_expired)
        for name, keys in self._jwks.items():
            self._tasks.keep(f"keys of {name}", keys.run)
        self._tasks.every("idle quotas", lambda: QUOTAS_CHECK_S, self.quotas.expire)
        self._tasks.every("notifications", lambda: NOTIFICATIONS_CHECK_S, self.controller.purge_notifications)
        if self.cluster is None:
            self._tasks.every("delayed partitions", lambda: DELAYED_RETRY_S, self._add_delayed)
        upkeep = Upkeep(self.logs, self.replicas, self.clock, self.offload, self.turns, lambda: self.config)
        upkeep.start(self._tasks)
        self.directory_moves.start(self._tasks)
        Compaction(self.logs, self.replicas, self.clock, self.offload, lambda: self.config).start(self._tasks)
        self.server.start()
        if self.cluster is not None:
            await self._join(self.cluster)
        self._life.serves(self.node_id, self.image.cluster_id, self._endpoints())

    async def _join(self, cluster: ClusterMember) -> None:
        """Behind everything else: as soon as the broker is registered, its controller and other brokers ask for it."""
        try:
            await cluster.join(self._tasks)
        except BaseException:
            await self.stop()
            raise
        if self.replicas.offline:
            await self.controller.replicas_lost(self.node_id, self.replicas.offline)

    async def _give_up(self) -> None:
        """Lets go of everything, as a crash would: what was read is not marked clean."""
        for _, sock in self._sockets:
            sock.close()
        for log in self.logs:
            log.abandon()
        if self._store is not None:
            await self._store.close()
        self.offload.close()
        self.logs.close_locks()

    def _make_coordinators(self, cluster: ClusterMember | None) -> None:
        parts = CoordinatorParts(
            self.node_id,
            lambda: self.image,
            lambda: self.config,
            self.replicas,
            lambda: self.controller,
            self.clock,
            self.turns,
            self.in_background,
        )
        self.groups = GroupCoordinator(parts, self._group_config, self.rng)
        self.transactions = TransactionCoordinator(parts, self.groups, cluster.remote_markers if cluster else None)
        others = cluster.others if cluster else None
        self.verifier = TransactionVerifier(self.transactions, self.node_id, lambda: self.config, others)

    def _bind_listeners(self) -> None:
        """First of all: an address that is taken is found before a long recovery.

        Peers can connect from here on and are served once we are ready. Refused, they would come back after a pause
        that grows with each attempt, to seconds while a restart takes one.
        """
        config = self.config
        for endpoint in config.endpoints:
            sock = open_listener(
                endpoint.host,
                endpoint.port,
                receive_buffer_bytes=config.socket_receive_buffer_bytes,
                backlog=config.socket_listen_backlog_size,
                bind=self._bind,
            )
            self._sockets.append((endpoint.name, sock))

    def _serve_listeners(self) -> None:
        for name, sock in self._sockets:
            security = self.config.security_of_listeners[name]
            self.server.listen(
                name,
                sock,
                self._handler_of(security),
                open_session=self.sessions.open_for_login if security.is_sasl else self.sessions.open,
                open_transport=self.tls_listeners.transport_of(name),
                login_bytes_max=security.receive_bytes_max if security.is_sasl else None,
            )

    def _handler_of(self, security: ListenerSecurity) -> Handler:
        """What a request of the listener meets first: where nobody has to say who they are, the dispatcher."""
        if security.is_sasl:
            sources = LoginSources(
                ScramUsers(self.store), self._jwks.get(security.name), self.tokens, self.clock.now_ms
            )
            return SaslAuthenticator(security.name, self.dispatcher, lambda: self.config, sources, self.clock.steady_ms)
        if security.tls is not None and security.tls.client_auth != "none":
            return CertificateAuthenticator(security, self.dispatcher)
        return self.dispatcher

    def _check_directories(self) -> None:
        """They are ours, and that of the metadata can be had: before anything is written to one of them."""
        if self.is_clustered:
            return  # the cluster's id says whose they are
        first = self.logs.directories[0]
        if first.failure is not None:
            raise StorageError(first.path, f"holds the metadata, and cannot be used: {first.failure}")
        check_ours(self.disk, self._online_directories(), METADATA_DIRECTORY)

    def _online_directories(self) -> list[str]:
        return [directory.path for directory in self.logs.directories if directory.is_online]

    async def _open_metadata(self) -> None:
        if self.is_clustered:
            self.store = self._store = await self._connect_store(self.config)
            await self._until_available(lambda: ensure_path(self.store, *nodes.CLUSTER_ROOTS))
            return
        directory = os.path.join(self.config.log_directories[0], METADATA_DIRECTORY)
        self.disk.make_directory(directory)
        self.store = self._store = self._open_store(self.disk, directory)
        await ensure_path(self.store, *nodes.ROOTS)

    async def _until_available(self, step: Callable[[], Awaitable[Result]]) -> Result:
        """A cluster's store may be away for a while; the one of a broker that is alone is a file."""
        wait_s = self.config.zookeeper_session_timeout_ms / 1000 if self.is_clustered else 0.0
        return await until_available(step, wait_s)

    async def _identify(self) -> None:
        """Cluster and broker id: configured, remembered, or new; the directories must agree."""
        directories = self._online_directories()
        owners = {path: owner for path in directories if (owner := read_identity(self.disk, path)) is not None}
        if owners and await self.store.get(nodes.CLUSTER_ID) is None:
            # The id is in the metadata before it is in any directory, so the metadata was lost.
            raise metadata_is_missing(*next(iter(owners.items())), self.config.zookeeper_connect)
        cluster_id = await cluster_id_in(self.store, self.rng)
        if self.is_clustered:
            check_belongs_to_cluster(self.disk, directories, cluster_id)
        configured, _ = BrokerConfig.load(self.properties)
        node_id = configured.broker_id
        if node_id < 0:
            remembered = next((owner.node_id for owner in owners.values()), UNKNOWN_NODE_ID)
            node_id = remembered if remembered >= 0 else await self._new_node_id(configured)
        check_identity(self.disk, directories, Identity(cluster_id, node_id))
        self.node_id = node_id
        self.image = ClusterImage(cluster_id)

    async def _new_node_id(self, config: BrokerConfig) -> int:
        """An id that no broker of the cluster has: above all that may be configured, and never given twice."""
        if not self.is_clustered:
            return EMBEDDED_NODE_ID
        if not config.broker_id_generation_enable:
            raise ConfigError("broker.id is not set, and broker.id.generation.enable=false: set one of the two")
        (sequence,) = await self.store.commit(Put(nodes.BROKER_SEQUENCE, b""))
        assert isinstance(sequence, int)
        return config.reserved_broker_max_id + sequence

    def _itself(self) -> BrokerNode:
        return BrokerNode(self.node_id, self._endpoints(), self.config.broker_rack, epoch=0)

    async def _become_controller(self) -> None:
        """Registers a broker that is alone, makes it the controller and loads what is in the store."""
        broker_node = self._itself()
        await self.store.commit(
            Create(
                f"{nodes.BROKER_IDS}/{self.node_id}",
                nodes.encode_broker(broker_node, self.clock.now_ms()),
                ephemeral=True,
            ),
            Create(nodes.CONTROLLER, nodes.encode({"version": 2, "brokerid": self.node_id}), ephemeral=True),
        )
        image = await load_topics(self.store, self.image.with_brokers([broker_node], controller_id=self.node_id))
        image, epoch = await begin_controller_epoch(self.store, image, self.node_id)
        self.publish(image)
        await finish_deletions(self.store, self.replicas.finish_deletion)
        for log in self.replicas.unclaimed():
            logger.warning("%s does not belong to a topic of this cluster; it is ignored", log.directory)
        self.controller = StandaloneController(
            self.store,
            self.image,
            lambda image: self.replicas.prepare(image, self.offload, self.turns),
            self.publish,
            lambda: self.replicas.finish(self.offload),
            self.rng,
            self.turns,
            epoch=epoch,
            configs=lambda: self.configs,
            change_configs=self.change_configs,
            secrets=self.secrets,
        )
        if self.replicas.offline:
            await self.controller.replicas_lost(self.node_id, self.replicas.offline)

    def _endpoints(self) -> Mapping[str, BrokerEndpoint]:
        """The addresses that clients get; where the configuration leaves host or port open, what was bound."""
        endpoints: dict[str, BrokerEndpoint] = {}
        for endpoint in self.config.advertised_endpoints:
            if endpoint.name in endpoints:
                continue  # clients get one address of a listener, its first
            sock = next(sock for name, sock in self._sockets if name == endpoint.name)
            host, port = sock.getsockname()[:2]
            endpoints[endpoint.name] = BrokerEndpoint(
                endpoint.host or (socket.gethostname() if host in ("0.0.0.0", "::") else host),
                endpoint.port or port,
                endpoint.security_protocol,
            )
        return endpoints

    # -- what handlers ask ---------------------------------------------------------------------------------------------

    @property
    def address(self) -> tuple[str, int]:
        """Where clients reach the first listener."""
        endpoint = next(iter(self.image.brokers[self.node_id].endpoints.values()))
        return endpoint.host, endpoint.port

    def endpoints(self, listener_name: str) -> Iterator[tuple[BrokerNode, BrokerEndpoint]]:
        """The brokers that can be reached by the listener over which somebody asks."""
        for node in self.image.brokers.values():
            endpoint = node.endpoints.get(listener_name)
            if endpoint is not None:
                yield node, endpoint

    def unless_outdated(self, error: ApiError) -> ApiError:
        """What to say of a client that is ahead of a log here; NOT_LEADER_OR_FOLLOWER where others may lead it by now.

        Only then is it ahead: an answer that says so would end a producer, or send a reader elsewhere.
        """
        is_ahead = error.code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.OFFSET_OUT_OF_RANGE)
        if not is_ahead or self.cluster is None or self.cluster.knows_its_roles:
            return error
        return ApiError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not know whether it still leads: {error.message}"
        )

    def publish(self, image: ClusterImage) -> None:
        """The cluster changed: partitions are made, led and dropped before anybody sees the new image."""
        self.replicas.apply(image)
        self.image = image
        self.groups.follow(image)
        self.transactions.follow(image)

    def update_image(self, image: ClusterImage) -> None:
        """A new image from the controller, which says in other requests what this broker leads and follows."""
        self.image = image
        self.replicas.update_image(image)
        self.groups.update_image(image)
        self.transactions.update_image(image)
        self.image_changed.fire()

    def role_changed(self, partition: Partition) -> None:
        """A partition is led here from now on, or no longer: what its leader coordinates comes and goes with it."""
        for coordinator in (self.groups, self.transactions):
            if partition.name.topic == coordinator.topic:
                coordinator.role_changed(partition)

    async def _add_delayed(self) -> None:
        """What could not be opened or deleted for want of descriptors, and what depends on it, is tried again."""
        await self.replicas.finish_delayed(self.offload)
        if self.replicas.add_delayed():
            self.groups.follow_again(self.image)
            self.transactions.follow_again(self.image)

    async def change_configs(self, configs: DynamicConfigs, changed: Collection[ConfigScope]) -> None:
        """Settings of these resources changed: what is running uses them before the change is answered."""
        self.configs = configs
        are_topics = all(resource.type == ConfigResourceType.TOPIC for resource in changed)
        if self.cluster is not None:
            self.cluster.controller.settings_changed([topic.name for topic in changed] if are_topics else None)
        if are_topics:
            for topic in changed:
                await self._configure_logs(self.replicas.of_topic(topic.name))
            return
        await self._configure_logs(list(self.replicas))
        self._take_over_settings()
        self.groups.configure(self.config)
        self.transactions.configure(self.config)
        if self.cluster is not None:
            await self.cluster.settings_changed()

    def _take_over_settings(self) -> None:
        """What does not look at the settings by itself gets those that hold now."""
        self.server.limits = server_limits(self.config, self._descriptors, self.quotas.limits)
        self.tls_listeners.reload(self.config)
        self.fetch_sessions.slots = self.config.max_incremental_fetch_session_cache_slots

    def _change_quotas(self, limits: QuotaLimits) -> None:
        """Other quotas hold from the next request on. What was remembered of repeated requests no longer counts."""
        self.quotas.take(limits)
        self.dispatcher.quotas = self.quotas if limits.limits_clients else None
        self.sessions.rules_changed()
        self.server.limits = server_limits(self.config, self._descriptors, limits)

    async def _configure_logs(self, partitions: Iterable[Partition]) -> None:
        async for partition in self.turns.over(partitions):
            partition.log.config = self.configs.topic_config(partition.name.topic)

    async def _act_on_failures(self) -> None:
        """Directories whose disk failed go offline, and the controller learns which partitions are lost with them.

        Without the last one there is nothing to do: whoever runs the broker ends it.
        """
        while True:
            await self._failures.wait()
            for log, error in self._failures.take_failures():
                self.replicas.directory_failed(log, error)
            lost = self._failures.take_lost_partitions()
            for coordinator in (self.groups, self.transactions):
                coordinator.replicas_lost(lost)
            if lost and not self.is_stopping:
                if self.logs.failure is not None:
                    self._on_failure()
                self.in_background("lost replicas", self.controller.replicas_lost(self.node_id, lost))

    def in_background(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Goes on with work that nobody waits for."""
        self._tasks.start(name, work)

    async def carried_out(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Waits for work that goes on when the client that asked for it hangs up, until the broker stops."""
        return await carried_out(work, self._tasks)

    # -- stopping ------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stops in order: SIGTERM loses nothing."""
        self._life.stops(len(self.server.connections))
        if self.cluster is not None:
            await self.cluster.shut_down()
        self.is_stopping = True
        self.server.stop_accepting()
        self.transactions.stop()
        self.groups.stop()
        for partition in self.replicas:
            partition.moved.fire()
        await self.server.drain(DRAIN_S)
        await self._tasks.stop()
        if self.cluster is not None:
            await self.cluster.close()
        await self.offload.finish()
        for plan in self.logs.begin_high_watermarks(self.replicas.high_watermarks()):
            try:
                await self.offload.in_thread(plan.run)
            except StorageError as error:  # the other directories are still closed in order
                self.replicas.take_offline(plan.directory, error)
        await self.offload.in_thread(self.logs.close_logs)
        await self.store.close()
        self.offload.close()
        self.logs.close_locks()
        self._life.stopped(self.logs)

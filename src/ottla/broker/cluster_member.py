"""A broker's part in a cluster: its registration, the controller that it may become, what the controller tells it, the
partitions that it follows, and the in-sync replicas of those that it leads.

Everything here is made and ended with the broker; a broker that is alone has none of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.broker.broker_connections import BrokerConnections
from ottla.broker.cluster_features import ClusterFeatures
from ottla.broker.cluster_metadata import ClusterMetadata
from ottla.broker.config_changes import ConfigChanges
from ottla.broker.control_channel import ControlChannels
from ottla.broker.control_requests import ControlRequests
from ottla.broker.controller_client import ControllerClient
from ottla.broker.controller_requests import ControllerRequests
from ottla.broker.fetchers import Fetchers, FetcherSettings
from ottla.broker.in_sync import InSyncReplicas, IsrChanges
from ottla.broker.inter_broker import inter_broker_connector
from ottla.broker.membership import NOT_REGISTERED, Membership
from ottla.broker.remote_markers import RemoteMarkers
from ottla.broker.replication_quotas import ReplicationQuota
from ottla.broker.strays import Assignments
from ottla.cluster.image import BrokerNode, ClusterImage
from ottla.config.broker import BrokerConfig
from ottla.config.dynamic import DynamicConfigs
from ottla.controller.controller import Controller
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.net.client import Connector
from ottla.protocol.messages.replication import ControlledShutdownRequest, ControlledShutdownResponse
from ottla.runtime.tasks import Tasks
from ottla.store.api import SessionState, Store, StoreError

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

logger = logging.getLogger(__name__)

MS: Final = 1000
RETRY_S: Final = 0.2
STRAYS_AFTER_S: Final = 5.0  # the metadata has changed
HAND_OVER_S: Final = 5.0  # for the requests by which all learn who leads instead of a broker that stops


class ClusterMember:
    """Of one broker, from its start to its end."""

    def __init__(self, broker: Broker, store: Store, itself: BrokerNode, connector: Connector) -> None:
        """`itself`: as it registers; its epoch is not known yet."""
        self._node_id = broker.node_id
        self._store = store
        self._replicas = broker.replicas
        self._turns = broker.turns
        self._image: Callable[[], ClusterImage] = lambda: broker.image
        self._image_changed = broker.image_changed
        self._config: Callable[[], BrokerConfig] = lambda: broker.config
        config = broker.config
        connector = inter_broker_connector(config, connector)
        listener = config.inter_broker_listener
        self.features = ClusterFeatures(store)
        self.membership = Membership(itself, store, broker.clock.now_ms, config.zookeeper_session_timeout_ms / MS)
        self.leader_quota = ReplicationQuota(
            broker.node_id,
            lambda: broker.config.leader_replication_throttled_rate,
            lambda topic: topic.leader_replication_throttled_replicas,
            broker.loop.time,
        )
        follower_quota = ReplicationQuota(
            broker.node_id,
            lambda: broker.config.follower_replication_throttled_rate,
            lambda topic: topic.follower_replication_throttled_replicas,
            broker.loop.time,
        )
        self._fetchers = Fetchers(
            broker.node_id,
            lambda: fetcher_settings(broker.config),
            lambda: broker.config.num_replica_fetchers,
            lambda: self.membership.epoch,
            follower_quota,
            broker.clock,
            connector,
        )
        started_with = DynamicConfigs(broker.properties, broker.node_id)
        self.config_changes = ConfigChanges(
            store,
            lambda: broker.configs,
            broker.change_configs,
            started_with,
            broker.clock.now_ms,
            broker.quota_store,
            broker.secrets,
        )
        self._assignments = Assignments(broker.node_id, store)
        self.control = ControlRequests(
            broker,
            broker.node_id,
            broker.replicas,
            broker.offload,
            broker.turns,
            self.membership.known_epoch,
            self._fetchers,
            self.config_changes,
            listener,
            self._assignments,
        )
        self.controller = Controller(
            broker.node_id,
            store,
            lambda: ControlChannels(
                broker.node_id,
                listener,
                self.control.handle,
                broker.config.controller_socket_timeout_ms / MS,
                connector,
            ),
            _Settings(lambda: broker.configs),
            broker.rng,
            broker.clock.now_ms,
        )
        self.controller_requests = ControllerRequests(self.controller, store)
        self._controller_client = ControllerClient(
            broker.node_id,
            listener,
            self._image,
            self.controller_requests.handle,
            config.request_timeout_ms / MS,
            connector,
        )
        self.others = BrokerConnections(
            f"broker-{broker.node_id}", listener, self._image, config.request_timeout_ms / MS, connector
        )
        self._isr_changes = IsrChanges(broker.node_id, lambda: self.membership.epoch, self._controller_client)
        self.in_sync = InSyncReplicas(
            broker.replicas, self._image, self._config, self._isr_changes, broker.clock, broker.turns
        )
        self.remote_markers = RemoteMarkers(broker.node_id, self._image, self.others, self.is_topic_gone)
        self.metadata = ClusterMetadata(
            store,
            self._image,
            broker.image_changed,
            lambda: broker.configs,
            self.config_changes,
            lambda: self.controller.is_active,
            broker.rng,
            broker.loop.time,
        )

    async def settings_changed(self) -> None:
        """What does not look at the settings by itself gets those that hold now."""
        await self._fetchers.resize(self._turns)

    # -- life ----------------------------------------------------------------------------------------------------------

    async def join(self, tasks: Tasks) -> None:
        """Registers, stands for election, and returns once the controller's image has this broker."""
        await self.membership.join()
        tasks.keep("registration", self.membership.keep_registered)
        tasks.keep("features", self.features.run)
        tasks.keep("controller", self.controller.run)
        tasks.keep("settings of the cluster", self.config_changes.run)
        tasks.keep("changes of in-sync replicas", self._isr_changes.run)
        tasks.every(
            "in-sync replicas", lambda: self._config().replica_lag_time_max_ms / 2 / MS, self.in_sync.propose_shrinks
        )
        while self._node_id not in self._image().brokers:
            await self._image_changed.wait()
        tasks.keep("stray replicas", self._drop_strays)

    async def shut_down(self) -> None:
        """Has the controller move leaders elsewhere before this broker stops; tried some times, then it stops."""
        config = self._config()
        self.membership.give_up()
        if not config.controlled_shutdown_enable or self.membership.epoch == NOT_REGISTERED:
            return
        attempts, pause_s = 1 + config.controlled_shutdown_max_retries, config.controlled_shutdown_retry_backoff_ms / MS
        for attempt in range(attempts):
            if attempt:
                await asyncio.sleep(pause_s)
            if not await self._is_connected_within(attempts * pause_s):
                break
            if self._image().brokers.keys() <= {self._node_id}:
                return  # nobody is left to lead
            try:
                async with asyncio.timeout(config.controller_socket_timeout_ms / MS):
                    response = await self._controller_client.ask(self._shutdown_request, ControlledShutdownResponse)
            except TimeoutError:
                logger.warning("the controller does not answer; this broker keeps its leaderships until it has stopped")
                continue
            if response.error_code == ErrorCode.NONE and not response.remaining_partitions:
                await self._hand_over()
                return
            logger.warning(
                "%d partitions are still led here: %s",
                len(response.remaining_partitions),
                ErrorCode.of(response.error_code).name,
            )
            if response.error_code == ErrorCode.NONE and not self._has_successors(response):
                break
        logger.warning("the broker stops before all its leaderships have been handed over")

    async def _is_connected_within(self, seconds: float) -> bool:
        """Whether there is a session with ZooKeeper, or a server for it is found in time.

        A broker that stops without one leaves its registration behind, and its leaderships with it, until the session
        has ended by itself.
        """
        session = self._store.session
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while session.state is SessionState.SUSPENDED:
                    await session.changed.wait()
        return session.state is SessionState.CONNECTED

    def _has_successors(self, response: ControlledShutdownResponse) -> bool:
        """Whether any partition that is still led here has another replica on a broker that is there.

        Where a whole cluster is stopped, one broker after the other, the last ones have nobody to wait for.
        """
        image = self._image()
        others = image.brokers.keys() - {self._node_id}
        names = (TopicPartition(each.topic_name, each.partition_index) for each in response.remaining_partitions)
        states = (image.partition(name) for name in names)
        return any(state is None or not others.isdisjoint(state.replicas) for state in states)

    async def _hand_over(self) -> None:
        """Others lead now. Serves until the controller's requests have arrived here too, and hands over the controller.

        Until then clients would be answered as if this broker led; behind it they learn who does. The next controller
        does not know who is about to leave: it must not find this broker registered, or leaders would be allowed to
        take it back into sync, and writes would wait for it until its session ends.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(HAND_OVER_S):
                for partition in list(self._replicas):
                    while (leader := partition.current_leader) is not None and len(leader.replicas) > 1:
                        await partition.moved.wait()
        self._fetchers.close()
        await self.membership.leave()
        await self.controller.stand_down(HAND_OVER_S)

    def _shutdown_request(self) -> ControlledShutdownRequest:
        return ControlledShutdownRequest(broker_id=self._node_id, broker_epoch=self.membership.epoch)

    async def close(self) -> None:
        """What is left once the tasks have ended."""
        await self.controller.resign()
        self._fetchers.close()
        self._controller_client.close()
        self.others.close()

    async def _drop_strays(self) -> None:
        """What the store does not assign to this broker, now that it is registered, nobody will ask for.

        Nor for what goes later without anybody's word; whoever has one to say gets the time.
        """
        await self._when_the_store_answers(self.control.drop_unclaimed)
        while True:
            seen = self._image_changed.count
            await self._when_the_store_answers(self.control.drop_strays)
            if self._image_changed.count == seen:
                await self._image_changed.wait()
            await asyncio.sleep(STRAYS_AFTER_S)

    async def _when_the_store_answers(self, drop: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await drop()
                return
            except StoreError as error:
                logger.info("stray replicas cannot be looked for now: %s", error)
                await self._store.session.changed.wait(RETRY_S)

    async def is_topic_gone(self, name: str) -> bool:
        """Whether a topic that is not in this broker's image does not exist: only the store knows that."""
        try:
            return await self._assignments.is_gone(name)
        except StoreError as error:
            logger.info("whether topic %s is there is not known for now: %s", name, error)
            return False

    @property
    def knows_its_roles(self) -> bool:
        """Whether this broker knows who leads its partitions, as far as it can know.

        Without a session, or in a new one whose registration the controller has not answered, it may lead no more.
        """
        is_connected = self._store.session.state is SessionState.CONNECTED
        return is_connected and self.control.epoch_of_roles == self.membership.epoch != NOT_REGISTERED


class _Settings:
    """Implements `ottla.controller.settings.ControllerSettings`."""

    def __init__(self, configs: Callable[[], DynamicConfigs]) -> None:
        self._configs = configs

    @property
    def _config(self) -> BrokerConfig:
        return self._configs().broker_config()

    @property
    def listener_name(self) -> str:
        return self._config.inter_broker_listener

    @property
    def deletes_topics(self) -> bool:
        return self._config.delete_topic_enable

    @property
    def rebalances_leaders(self) -> bool:
        return self._config.auto_leader_rebalance_enable

    @property
    def imbalance_check_s(self) -> float:
        return float(self._config.leader_imbalance_check_interval_seconds)

    @property
    def imbalance_percent(self) -> int:
        return self._config.leader_imbalance_per_broker_percentage

    def elects_unclean(self, topic: str) -> bool:
        return self._configs().topic_config(topic).unclean_leader_election_enable


def fetcher_settings(config: BrokerConfig) -> FetcherSettings:
    return FetcherSettings(
        fetch_bytes_max=config.replica_fetch_max_bytes,
        response_bytes_max=config.replica_fetch_response_max_bytes,
        min_bytes=config.replica_fetch_min_bytes,
        wait_ms_max=config.replica_fetch_wait_max_ms,
        backoff_ms=config.replica_fetch_backoff_ms,
        request_timeout_s=config.replica_socket_timeout_ms / MS,
    )

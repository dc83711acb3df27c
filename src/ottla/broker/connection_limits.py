"""From settings and quotas to the limits on connections."""

from __future__ import annotations

from ottla.config.broker import BrokerConfig
from ottla.descriptors import DescriptorTable
from ottla.net.server import ServerLimits
from ottla.security.quotas import QuotaLimits
from ottla.security.rates import SECOND_MS, Windows


def server_limits(config: BrokerConfig, descriptors: DescriptorTable, quotas: QuotaLimits) -> ServerLimits:
    ip_rates, other_ips_rate = quotas.connection_rates()
    return ServerLimits(
        connections_max=config.max_connections,
        connections_max_of_listeners=config.limits_of_listeners("max.connections"),
        connections_per_s=config.max_connection_creation_rate,
        connections_per_s_of_listeners=config.limits_of_listeners("max.connection.creation.rate"),
        connections_per_s_of_ips=ip_rates,
        connections_per_s_of_other_ips=other_ips_rate,
        windows=Windows(config.quota_window_num, config.quota_window_size_seconds * SECOND_MS),
        protected_listener=config.inter_broker_listener if len(config.endpoints) > 1 else None,
        descriptors_max=descriptors.connections_max,
        connections_per_ip_max=config.max_connections_per_ip,
        connections_per_ip_overrides=config.connections_per_ip_overrides,
        idle_ms=config.connections_max_idle_ms,
        frame_bytes_max=config.socket_request_max_bytes,
        send_buffer_bytes=config.socket_send_buffer_bytes,
    )

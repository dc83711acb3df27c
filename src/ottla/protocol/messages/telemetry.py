"""Metrics that clients push to brokers (KIP-714)."""

from ottla.protocol.schema import message, wire
from ottla.protocol.wire import Bool, Bytes, Int8, Int16, Int32, String, Uuid


@message(key=71, versions=(0, 0), flexible=0, listeners=("broker",))
class GetTelemetrySubscriptionsRequest:
    """A client asks which metrics it should push."""

    client_instance_id: Uuid


@message(key=71, versions=(0, 0), flexible=0)
class GetTelemetrySubscriptionsResponse:
    """The metrics to push, how often, and how."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)
    client_instance_id: Uuid
    subscription_id: Int32
    accepted_compression_types: list[Int8]
    push_interval_ms: Int32
    telemetry_max_bytes: Int32
    delta_temporality: Bool
    requested_metrics: list[String]


@message(key=72, versions=(0, 0), flexible=0, listeners=("broker",))
class PushTelemetryRequest:
    """A client pushes its metrics."""

    client_instance_id: Uuid
    subscription_id: Int32
    terminating: Bool
    compression_type: Int8
    metrics: Bytes


@message(key=72, versions=(0, 0), flexible=0)
class PushTelemetryResponse:
    """Whether the metrics were taken."""

    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16 = wire(default=0)

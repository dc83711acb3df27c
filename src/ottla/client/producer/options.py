"""From the settings of a producer to the options of its parts."""

from __future__ import annotations

from ottla.client.producer.accumulator import AccumulatorOptions
from ottla.client.producer.columns import BATCH_BYTES_DEFAULT
from ottla.client.producer.sender import SenderOptions
from ottla.client.rebootstrap import rebootstrap_after_s
from ottla.client.refreshing import RefreshOptions
from ottla.client.settings import ProducerSettings
from ottla.records.layout import Compression


def accumulator_options(settings: ProducerSettings) -> AccumulatorOptions:
    return AccumulatorOptions(
        batch_size=settings.batch_size,
        linger_s=settings.linger_s,
        delivery_timeout_s=settings.delivery_timeout_s,
        record_bytes_max=min(settings.max_request_size, settings.buffer_memory),
        is_compressed=settings.compression_type != "none",
        is_adaptive=settings.partitioner_adaptive_partitioning_enable and settings.partitioner is None,
        availability_timeout_s=settings.partitioner_availability_timeout_s,
    )


def refresh_options(settings: ProducerSettings) -> RefreshOptions:
    return RefreshOptions(
        max_age_s=settings.metadata_max_age_s,
        max_idle_s=settings.metadata_max_idle_s,
        rebootstrap_after_s=rebootstrap_after_s(settings),
    )


def sender_options(settings: ProducerSettings) -> SenderOptions:
    compression = Compression[settings.compression_type.upper()]
    return SenderOptions(
        acks=settings.acks,
        request_timeout_s=settings.request_timeout_s,
        request_bytes_max=settings.max_request_size,
        in_flight_max=settings.max_in_flight_requests_per_connection,
        mutes=settings.max_in_flight_requests_per_connection == 1,
        retries=settings.retries,
        retry_backoff_s=settings.retry_backoff_s,
        retry_backoff_max_s=settings.retry_backoff_max_s,
        reconnect_backoff_s=settings.reconnect_backoff_s,
        reconnect_backoff_max_s=settings.reconnect_backoff_max_s,
        batch_size=settings.batch_size,
        compression=compression,
        compression_level=_level(settings, compression),
        transactional_id=settings.transactional_id,
    )


def _level(settings: ProducerSettings, compression: Compression) -> int | None:
    """The level for the codec in use; None is its default, as for LZ4, where Kafka's 9 stands for the fast one."""
    if settings.compression_level is not None:
        return settings.compression_level
    if compression is Compression.GZIP:
        return settings.compression_gzip_level
    if compression is Compression.LZ4:
        return None if settings.compression_lz4_level == 9 else settings.compression_lz4_level
    return settings.compression_zstd_level if compression is Compression.ZSTD else None


def columns_bytes_max(settings: ProducerSettings) -> int:
    """Of a batch of columns: large ones are what columns are for, unless the user wants otherwise."""
    if settings.is_given("batch_size"):
        return max(1, settings.batch_size)
    return min(BATCH_BYTES_DEFAULT, settings.max_request_size)

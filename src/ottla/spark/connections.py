"""Connections of a Python worker to brokers."""

from __future__ import annotations

from typing import Final

from ottla.client.metadata import ClientOptions
from ottla.net.client import ConnectionOptions
from ottla.spark.options import ClientSettings

FRAME_SLACK_BYTES: Final = 64 * 1024  # of an answer, beside its records


def client_options(settings: ClientSettings, purpose: str = "") -> ClientOptions:
    """How to talk to brokers; another `purpose` has connections of its own."""
    return ClientOptions(
        connection=ConnectionOptions(
            client_id=f"{settings.client_id}-{purpose}" if purpose else settings.client_id,
            connect_timeout_s=settings.connect_timeout_ms / 1000,
            request_timeout_s=settings.request_timeout_ms / 1000,
            # Answers are as large as they were asked to be, and a buffer that grows is copied again and again.
            frame_start_bytes=min(settings.fetch_max_bytes, settings.partition_max_bytes) + FRAME_SLACK_BYTES,
        ),
        timeout_s=settings.timeout_ms / 1000,
    )

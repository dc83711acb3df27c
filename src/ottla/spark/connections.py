"""Connections of a Python worker to brokers."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

from ottla.client.blocking import Blocking
from ottla.client.metadata import ClientOptions
from ottla.net.client import ConnectionOptions
from ottla.spark.options import ClientSettings, SourceOptions
from ottla.spark.workers import client_for

FRAME_SLACK_BYTES: Final = 64 * 1024  # of an answer, beside its records


def client_of(
    options: SourceOptions, purpose: str = "", *, is_first_contact: bool = False
) -> AbstractContextManager[Blocking]:
    """The client of this process for what a source reads; another `purpose` has connections of its own."""
    settings = options.client
    return client_for(
        options.bootstrap_servers,
        client_options(settings, purpose),
        settings.security,
        is_first_contact=is_first_contact,
    )


def client_options(settings: ClientSettings, purpose: str = "") -> ClientOptions:
    """How to talk to brokers."""
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

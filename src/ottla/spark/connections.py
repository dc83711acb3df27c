"""Connections of a Python worker to brokers."""

from __future__ import annotations

from ottla.client.metadata import ClientOptions
from ottla.net.client import ConnectionOptions
from ottla.spark.options import ClientSettings


def client_options(settings: ClientSettings, purpose: str = "") -> ClientOptions:
    """How to talk to brokers; another `purpose` has connections of its own."""
    return ClientOptions(
        connection=ConnectionOptions(
            client_id=f"{settings.client_id}-{purpose}" if purpose else settings.client_id,
            connect_timeout_s=settings.connect_timeout_ms / 1000,
            request_timeout_s=settings.request_timeout_ms / 1000,
        ),
        timeout_s=settings.timeout_ms / 1000,
    )

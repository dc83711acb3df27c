"""From the settings of a client to its cluster: what every client makes when it starts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Final

from ottla.client.metadata import ClientOptions, Cluster, parse_addresses
from ottla.client.retrying import RETRIES_MAX, Pauses
from ottla.client.security import secure_connector
from ottla.client.settings import ClientSettings
from ottla.net.client import Address, ConnectionOptions, Connector, connect_tcp

_numbers: Final = itertools.count(1)


def client_id_of(settings: ClientSettings) -> str:
    """The name that brokers log: the one that was given, or one for each client of this process."""
    return settings.client_id or f"{settings.client_kind}-{next(_numbers)}"


def cluster_of(
    settings: ClientSettings,
    client_id: str,
    connector: Connector | None = None,
    rng: random.Random | None = None,
    *,
    retries: int = RETRIES_MAX,
) -> Cluster:
    options = ClientOptions(
        connection=ConnectionOptions(
            client_id=client_id,
            connect_timeout_s=settings.socket_connection_setup_timeout_s,
            request_timeout_s=settings.request_timeout_s,
            frame_bytes_max=settings.receive_message_max_bytes,
        ),
        timeout_s=settings.default_api_timeout_s,
        pauses=Pauses(settings.retry_backoff_s, settings.retry_backoff_max_s, rng or random.Random(), retries),
    )
    return Cluster(
        _addresses(settings.bootstrap_servers), options, secure_connector(settings, connector or connect_tcp)
    )


def _addresses(servers: Sequence[str]) -> list[Address]:
    return [address for server in servers for address in parse_addresses(server)]

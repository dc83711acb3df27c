"""When a client goes back to the addresses that the user named (KIP-899, KIP-1102)."""

from __future__ import annotations

import logging

from ottla.client.metadata import Cluster
from ottla.client.settings import ClientSettings
from ottla.errors import ApiError, ErrorCode, OttlaError

log = logging.getLogger("ottla.client.metadata")


class Rebootstrap:
    """Brokers say so, or none has answered for too long; never where the setting forbids it."""

    def __init__(self, cluster: Cluster, after_s: float | None) -> None:
        self._cluster = cluster
        self._after_s = after_s
        self._silent_since: float | None = None

    def answered(self) -> None:
        self._silent_since = None

    def failed(self, error: OttlaError, now: float) -> None:
        """A question for metadata was not answered, or by an error."""
        if self._silent_since is None:
            self._silent_since = now
        if self._after_s is None:
            return
        is_asked_to = isinstance(error, ApiError) and error.code is ErrorCode.REBOOTSTRAP_REQUIRED
        if is_asked_to or now - self._silent_since >= self._after_s:
            log.warning("going back to the bootstrap servers: %s", error)
            self._cluster.rebootstrap()
            self._silent_since = now


def rebootstrap_after_s(settings: ClientSettings) -> float | None:
    """After how long; None: never."""
    is_on = settings.metadata_recovery_strategy == "rebootstrap"
    return settings.metadata_recovery_rebootstrap_trigger_s if is_on else None

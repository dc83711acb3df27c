"""The request handlers, a module per API: `handle(broker, request, context)` returns the response, or a coroutine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.broker.handlers import (
    api_versions,
    create_topics,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)

# By API key. What is not here is neither served nor announced.
HANDLERS: dict[int, Callable[..., Any]] = {
    0: produce.handle,
    1: fetch.handle,
    2: list_offsets.handle,
    3: metadata.handle,
    10: find_coordinator.handle,
    18: api_versions.handle,
    19: create_topics.handle,
    22: init_producer_id.handle,
}

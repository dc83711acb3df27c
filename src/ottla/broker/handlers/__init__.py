"""The request handlers, a module per API: `handle(broker, request, context)` returns the response, or a coroutine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.broker.handlers import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    init_producer_id,
    list_config_resources,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
)

# By API key. What is not here is neither served nor announced.
HANDLERS: dict[int, Callable[..., Any]] = {
    0: produce.handle,
    1: fetch.handle,
    2: list_offsets.handle,
    3: metadata.handle,
    8: offset_commit.handle,
    9: offset_fetch.handle,
    10: find_coordinator.handle,
    18: api_versions.handle,
    19: create_topics.handle,
    20: delete_topics.handle,
    21: delete_records.handle,
    22: init_producer_id.handle,
    23: offset_for_leader_epoch.handle,
    32: describe_configs.handle,
    33: alter_configs.handle,
    35: describe_log_dirs.handle,
    37: create_partitions.handle,
    44: alter_configs.handle_incremental,
    47: offset_delete.handle,
    60: describe_cluster.handle,
    61: describe_producers.handle,
    74: list_config_resources.handle,
    75: describe_topic_partitions.handle,
}

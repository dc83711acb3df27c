"""A schema registry in this process, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.serializers import SchemaRegistry
from ottla.testing.schema_registry import SchemaRegistryServer


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as running:
        yield running


@pytest.fixture
def registry(server: SchemaRegistryServer) -> SchemaRegistry:
    return SchemaRegistry(server.url)

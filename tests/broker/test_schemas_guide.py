"""The guide to schemas: every block of code in it runs, with a broker and a registry at the addresses that it names."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from ottla.client.serializers import RegistrySettings
from ottla.testing.schema_registry import SchemaRegistryServer

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "schemas.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_an_example_of_the_guide_runs(broker, number):
    with SchemaRegistryServer() as server:
        block = BLOCKS[number].replace("127.0.0.1:9092", broker.bootstrap_servers)
        block = block.replace("http://127.0.0.1:8081", server.url)
        exec(compile(block, "schemas.md", "exec"), {"__name__": "__main__"})


def test_settings_of_the_registry_in_the_guide_exist():
    table = GUIDE.partition("## The registry")[2].partition("Errors are")[0]
    named = {
        name for row in re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert named == {each.name for each in dataclasses.fields(RegistrySettings)}

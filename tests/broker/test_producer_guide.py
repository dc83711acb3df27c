"""The guide to the producer: every block of code in it runs, against a broker at the address that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.client.settings import ProducerSettings

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "producer.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_an_example_of_the_guide_runs(broker, number):
    block = BLOCKS[number].replace("127.0.0.1:9092", broker.bootstrap_servers)
    exec(compile(block, "producer.md", "exec"), {"__name__": "__main__"})


def test_settings_in_the_guide_exist():
    settings = ProducerSettings.read(bootstrap_servers="x:1")
    for row in re.findall(r"^\| (`[^|]*) \|", GUIDE, re.MULTILINE):
        for name in re.findall(r"`(\w+)`", row):
            if name.islower():
                assert hasattr(settings, name), name

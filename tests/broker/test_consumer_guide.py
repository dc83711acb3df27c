"""The examples of the consumer's guide run, one after the other, against a broker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, one_batch, produce

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "consumer.md"


def test_the_examples_of_the_guide_run(client: RawClient, broker: Broker) -> None:
    values = [b"order %d" % number for number in range(10)]
    client.ask(create_topic("orders"), 7)
    assert not client.ask(produce("orders", one_batch(*values)), 9).responses[0].partition_responses[0].error_code
    shared: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) > 5
    for block in blocks:
        code = compile(block.replace("127.0.0.1:9092", broker.bootstrap_servers), str(PAGE), "exec")
        exec(code, shared)
    assert sorted(shared["seen"]) == values

"""The examples of the consumer's guide run, one after the other, against a broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import create_topic, one_batch, produce

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "consumer.md"


def test_the_examples_of_the_guide_run(client: RawClient, run_examples: Callable[[Path], dict[str, Any]]) -> None:
    values = [b"order %d" % number for number in range(10)]
    client.ask(create_topic("orders"), 7)
    assert not client.ask(produce("orders", one_batch(*values)), 9).responses[0].partition_responses[0].error_code
    shared = run_examples(PAGE)
    assert sorted(shared["seen"]) == values

"""The guide to reading: every block of code in it runs, one after the other, and it names every option."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from ottla.spark import options
from ottla.testing.broker import Broker

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "spark-reading.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


def test_the_examples_of_the_guide_run(
    spark: SparkSession, create_topic: Callable[..., None], send: Callable[..., None]
) -> None:
    assert BLOCKS
    names: dict[str, object] = {"__name__": "example"}
    with Broker(in_process=False) as broker:
        create_topic(broker.bootstrap_servers, "orders")
        send(broker.bootstrap_servers, "orders", range(20))
        for block in BLOCKS:
            text = block.replace("127.0.0.1:9092", broker.bootstrap_servers)
            exec(compile(text, "spark-reading.md", "exec"), names)


def test_the_guide_names_every_option_and_every_setting_that_is_refused() -> None:
    for name in options.OPTION_NAMES:
        assert name in GUIDE, name
    for name in options.REFUSED:
        assert name in GUIDE or name.endswith("deserializer"), name

"""The guides to decoding and to tables: every block of code in them runs, with a broker and a schema registry."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.testing.broker import Broker
from ottla.testing.schema_registry import SchemaRegistryServer

GUIDES = Path(__file__).parents[2] / "docs" / "guide"


@pytest.mark.parametrize("page", ["spark-decoding.md", "spark-tables.md"])
def test_a_page_runs_from_top_to_bottom(spark: SparkSession, page: str, tmp_path: Path) -> None:
    text = (GUIDES / page).read_text()
    with Broker({"num.partitions": "1"}, in_process=False) as broker, SchemaRegistryServer() as registry:
        for written, real in (
            ("127.0.0.1:9092", broker.bootstrap_servers),
            ("http://127.0.0.1:8081", registry.url),
            ("./shop", str(tmp_path)),
        ):
            text = text.replace(written, real)
        names: dict[str, object] = {"__name__": "guide"}
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            exec(compile(block, page, "exec"), names)

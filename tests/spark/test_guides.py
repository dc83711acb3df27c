"""Every block of Python in the guides to Spark runs, on a real broker and a real Spark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.testing.broker import Broker
from ottla.testing.spark_cluster import SparkCluster

GUIDES = Path(__file__).parents[2] / "docs" / "guide"
# What a page writes for a broker, for the master of a cluster and for a directory.
SERVERS, MASTER, HOME = "127.0.0.1:9092", "spark://master:7077", "./shop"
TIMEOUT_S = 300
README = "../../README.md"


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    with Broker(in_process=False) as running:
        yield running


def blocks_of(page: str, replacements: dict[str, str]) -> list[str]:
    text = (GUIDES / page).read_text()
    for written, real in replacements.items():
        text = text.replace(written, real)
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks, f"{page} shows nothing"
    return blocks


def produce_numbers(broker: Broker) -> None:
    """What the commands of README do before its pipeline."""
    for arguments, text in (
        (["topics", "create", "orders", "--partitions", "3"], ""),
        (["produce", "orders"], "".join(f"{number}\n" for number in range(1, 1001))),
    ):
        command = [sys.executable, "-m", "ottla", *arguments, "--bootstrap-server", broker.bootstrap_servers]
        subprocess.run(command, input=text, text=True, check=True, timeout=TIMEOUT_S)


@pytest.mark.parametrize(
    "page", ["spark-streaming.md", "spark-from-kafka.md", "spark-testing.md", "spark-jobs.md", README]
)
def test_a_page_runs_from_top_to_bottom(spark: SparkSession, own_broker: Broker, page: str, tmp_path: Path) -> None:
    names: dict[str, object] = {"__name__": "guide"}
    if page == README:
        produce_numbers(own_broker)
    for block in blocks_of(page, {SERVERS: own_broker.bootstrap_servers, HOME: str(tmp_path)}):
        exec(compile(block, page, "exec"), names)


def test_the_page_on_clusters_runs_on_one(java: None, own_broker: Broker, tmp_path: Path) -> None:
    with SparkCluster(tmp_path / "cluster") as cluster:
        program = tmp_path / "guide.py"
        program.write_text(
            "\n".join(blocks_of("spark-cluster.md", {SERVERS: own_broker.bootstrap_servers, MASTER: cluster.url}))
        )
        done = subprocess.run(
            [sys.executable, program],
            cwd=tmp_path,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            check=False,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    assert done.returncode == 0, done.stdout + done.stderr

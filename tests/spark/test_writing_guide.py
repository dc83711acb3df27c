"""The guide to writing: every block of code in it runs, one after the other, and its table of options is whole."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import SparkSession

from ottla.spark.sink_options import SinkOptions
from ottla.testing.broker import Broker

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guide" / "spark-writing.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


def test_the_examples_of_the_guide_run(spark: SparkSession, receive) -> None:
    names: dict[str, object] = {"__name__": "example"}
    with Broker({"num.partitions": "1"}) as broker:
        for block in BLOCKS:
            exec(compile(block.replace("127.0.0.1:9092", broker.bootstrap_servers), "spark-writing.md", "exec"), names)
        servers = broker.bootstrap_servers
        assert sorted(receive(servers, "orders")) == [(b"c1", b"two apples"), (b"c2", b"a pear")]
        assert sorted(receive(servers, "payments"))[1] == (b"1", b'{"id":1,"amount":10}')
        assert sorted(value for _, value in receive(servers, "lines")) == [b"one", b"two"]
        assert sorted(receive(servers, "totals")) == [(b"one", b"1"), (b"two", b"1")]
        once = spark.read.format("ottla").option("kafka.bootstrap.servers", servers).option("subscribe", "totals-once")
        assert once.option("kafka.isolation.level", "read_committed").load().count() == 2


def test_the_guide_says_every_option_and_its_default() -> None:
    parser = (ROOT / "src" / "ottla" / "spark" / "sink_options.py").read_text()
    taken = set(re.findall(r'take\(\s*"(kafka\.[a-z.]+)"', parser))
    documented = dict(re.findall(r"\| `(kafka\.[a-z.]+)` \| ([^|]*?) \|", GUIDE))
    assert taken - {"kafka.partitioner.class"} == set(documented)
    default = SinkOptions("")
    numbers = {name: int(text) for name, text in documented.items() if text.isdecimal()}
    assert numbers == {
        "kafka.batch.size": default.batch_bytes_max,
        "kafka.linger.ms": default.linger_ms,
        "kafka.max.request.size": default.request_bytes_max,
        "kafka.delivery.timeout.ms": default.delivery_timeout_ms,
        "kafka.request.timeout.ms": default.request_timeout_ms,
        "kafka.max.block.ms": default.block_ms_max,
        "kafka.socket.connection.setup.timeout.ms": default.connect_timeout_ms,
        "kafka.metadata.max.age.ms": default.metadata_age_ms_max,
        "kafka.transaction.timeout.ms": default.transaction_timeout_ms,
    }

"""TLS and SASL options reach the clients of driver and executors, and their secrets reach nobody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import ottla
import ottla.spark
from ottla.client.offsets import OffsetSpec
from ottla.client.pipelines import PLACE
from ottla.testing.broker import Broker
from ottla.testing.security import Security, password
from ottla.testing.waiting import wait_until

Stopped = Callable[[StreamingQuery], StreamingQuery]
WAIT_S = 120
USER = "alice"
KEY_SIGN = "PRIVATE KEY"
NOT_THE_PASSWORD = "open-sesame"


@pytest.fixture(scope="module")
def security() -> Security:
    return Security("SASL_SSL")


@pytest.fixture(scope="module")
def secured(security: Security) -> Iterator[Broker]:
    settings = {"num.partitions": "2", "transaction.two.phase.commit.enable": "true"}
    with Broker(settings, in_process=False, security=security) as running:
        yield running


@pytest.fixture(scope="module")
def options(secured: Broker, security: Security) -> dict[str, str]:
    """With a login and, as text, a key of the client's own."""
    key, end, chain = security.authority.create(USER).keystore.read_text().partition(f"-----END {KEY_SIGN}-----\n")
    own = {"ssl.keystore.key": key + end, "ssl.keystore.certificate.chain": chain}
    return {f"kafka.{name}": value for name, value in {**secured.client_settings(USER), **own}.items()}


def send(broker: Broker, topic: str, count: int) -> None:
    with ottla.Producer(broker.client_settings(USER)) as producer:
        for number in range(count):
            producer.send(topic, b"value %d" % number, key=b"%d" % number)


def keys(spark: SparkSession, options: dict[str, str], topic: str) -> list[int]:
    rows = (
        spark.read.format("ottla").options(**options, subscribe=topic).option("kafka.isolation.level", "read_committed")
    )
    return sorted(int(row.key) for row in rows.load().selectExpr("CAST(key AS string) AS key").collect())


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_stream_reads_and_writes_over_tls_with_scram_and_shows_no_secret(
    spark: SparkSession,
    secured: Broker,
    options: dict[str, str],
    topic: str,
    checkpoint: str,
    stopped: Stopped,
    delivery: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    send(secured, topic, 100)
    source = spark.readStream.format("ottla").options(**options, subscribe=topic, startingOffsets="earliest").load()
    query = stopped(
        source.writeStream.format("ottla")
        .options(**options, topic=f"{topic}-out", checkpointLocation=checkpoint, delivery=delivery)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_S)
    assert keys(spark, options, f"{topic}-out") == list(range(100))
    source.explain(extended=True)
    query.explain(extended=True)
    shown = "".join(capfd.readouterr()) + str(query.lastProgress) + str(source._jdf.queryExecution())
    written = b"".join(path.read_bytes() for path in Path(checkpoint).rglob("*") if path.is_file())
    assert "kafka.ssl.keystore.key" in shown, "Spark shows no options any more: nothing was looked at"
    assert KEY_SIGN not in shown
    assert KEY_SIGN.encode() not in written
    assert password(USER) not in shown
    assert password(USER).encode() not in written


def test_a_wrong_password_is_said_at_once_and_not_repeated(
    spark: SparkSession, secured: Broker, options: dict[str, str], topic: str, checkpoint: str, stopped: Stopped
) -> None:
    jaas = options["kafka.sasl.jaas.config"].replace(password(USER), NOT_THE_PASSWORD)
    wrong = {**options, "kafka.sasl.jaas.config": jaas}
    said = []
    with pytest.raises(Exception, match=r"127\.0\.0\.1:\d+: .*[Aa]uthentication") as reading:
        spark.read.format("ottla").options(**wrong, subscribe=topic).load().collect()
    said.append(str(reading.value))
    with pytest.raises(Exception, match=r"Look at user and password in kafka\.sasl\.jaas\.config") as writing:
        spark.range(3).selectExpr("CAST(id AS string) AS value").write.format("ottla").mode("append").options(
            **wrong, topic=topic
        ).save()
    said.append(str(writing.value))
    query = stopped(
        spark.readStream.format("ottla").options(**wrong, subscribe=topic).load()
        .writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    )  # fmt: skip
    with pytest.raises(Exception, match=r"127\.0\.0\.1:\d+: .*[Aa]uthentication") as streaming:
        query.awaitTermination(WAIT_S)
    said.append(str(streaming.value))
    assert NOT_THE_PASSWORD not in "".join(said)


def test_a_file_that_is_missing_is_named_before_anything_is_read(
    spark: SparkSession, options: dict[str, str], topic: str, tmp_path: Path
) -> None:
    lacking = {**options, "kafka.ssl.truststore.location": str(tmp_path / "ca.pem")}
    with pytest.raises(Exception, match=r"kafka\.ssl\.truststore\.location is .*ca\.pem, and .* has no such file"):
        spark.read.format("ottla").options(**lacking, subscribe=topic).load().collect()


def test_reports_log_in_as_the_query_does(
    spark: SparkSession,
    secured: Broker,
    options: dict[str, str],
    topic: str,
    checkpoint: str,
    stopped: Stopped,
) -> None:
    send(secured, topic, 3)
    reports = ottla.spark.report(spark, secured.bootstrap_servers, options)
    try:
        query = stopped(
            spark.readStream.format("ottla").options(**options, subscribe=topic, startingOffsets="earliest").load()
            .writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        )  # fmt: skip
        query.processAllAvailable()
        with ottla.Admin(secured.client_settings()) as admin:
            wait_until(lambda: admin.list_offset(PLACE, OffsetSpec.LATEST).offset > 0)
    finally:
        reports.close()

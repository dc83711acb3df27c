"""Ready jobs: mirror, replay and audit, with what they refuse, and killed in the middle where they stream."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import ottla
from ottla.client.offsets import OffsetSpec
from ottla.errors import ConfigError
from ottla.ids import TopicPartition
from ottla.spark.jobs import PartitionAudit, Range, audit_segments, audit_topics, mirror, replay
from ottla.spark.jobs.mirror import MirrorBatch
from ottla.spark.jobs.segments import DamagedSegmentError, find_segments, read_segment
from ottla.spark.pipelines.run_file import DIRECTORY_VARIABLE
from ottla.testing.broker import Broker
from ottla.testing.waiting import wait_until

TWO_PHASE = {
    "transaction.two.phase.commit.enable": "true",
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
}
ONCE = {"availableNow": True}
WAIT_S = 240
START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def here() -> Iterator[Broker]:
    with Broker(TWO_PHASE, in_process=False) as running:
        yield running


@pytest.fixture(scope="module")
def there() -> Iterator[Broker]:
    with Broker(TWO_PHASE, in_process=False) as running:
        yield running


@pytest.fixture(scope="module")
def here_admin(here: Broker) -> Iterator[ottla.Admin]:
    with ottla.Admin(bootstrap_servers=here.bootstrap_servers) as admin:
        yield admin


@pytest.fixture(scope="module")
def there_admin(there: Broker) -> Iterator[ottla.Admin]:
    with ottla.Admin(bootstrap_servers=there.bootstrap_servers) as admin:
        yield admin


def options(broker: Broker) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers}


def fill(broker: Broker, topic: str, numbers: range, partitions: int = 2) -> None:
    """Record n is in partition n % partitions, n seconds after the start."""
    with ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in numbers:
            producer.send(
                topic,
                b"value %d" % number,
                key=b"%d" % number,
                partition=number % partitions,
                timestamp=START_MS + number * 1000,
                headers=[("number", b"%d" % number)],
            )


def checksums(found: list[PartitionAudit]) -> list[tuple[int, int, str]]:
    return [(each.partition, each.records, each.checksum) for each in found]


# -- mirror ------------------------------------------------------------------------------------------------------------


def test_a_mirror_has_the_records_settings_and_groups(
    spark: SparkSession,
    here: Broker,
    there: Broker,
    here_admin: ottla.Admin,
    there_admin: ottla.Admin,
    topic: str,
    checkpoint: str,
) -> None:
    here_admin.create_topic(topic, 2, config={"retention.ms": "12345678901234"})
    fill(here, topic, range(100))
    here_admin.alter_offsets("billing", {TopicPartition(topic, 0): 50, TopicPartition(topic, 1): 20})

    def run() -> None:
        query = mirror(
            spark,
            [topic],
            options(here),
            options(there),
            checkpoint=checkpoint,
            rename="west.{topic}",
            groups=["billing"],
            trigger=ONCE,
        )
        assert query.awaitTermination(WAIT_S)

    run()
    copy = f"west.{topic}"
    original = audit_topics(spark, [topic], options(here))
    assert checksums(audit_topics(spark, [copy], options(there))) == checksums(original)
    assert there_admin.describe_topic(copy).partitions[1].partition == 1
    described = there_admin.describe_config(ottla.ConfigResource.topic(copy), ["retention.ms"])
    assert described["retention.ms"].value == "12345678901234"
    # Partition 0 was read to its end. In partition 1 the group is in the middle of the only batch: no place is known.
    end = there_admin.list_offset(TopicPartition(copy, 0), OffsetSpec.LATEST).offset
    translated = {place: each.offset for place, each in there_admin.committed_offsets("billing").items()}
    assert translated == {TopicPartition(copy, 0): end}
    here_admin.create_partitions(topic, 3)
    fill(here, topic, range(100, 160), partitions=3)
    run()
    original = audit_topics(spark, [topic], options(here))
    assert checksums(audit_topics(spark, [copy], options(there))) == checksums(original)
    assert sum(each.records for each in original) == 160


def test_a_mirror_that_cannot_be_is_refused_before_anything_is_copied(
    spark: SparkSession, here: Broker, there: Broker, here_admin: ottla.Admin, topic: str, checkpoint: str
) -> None:
    here_admin.create_topic(topic, 1)
    with pytest.raises(ConfigError, match="no topics to mirror"):
        mirror(spark, [], options(here), options(there), checkpoint=checkpoint)
    with pytest.raises(ConfigError, match="all topics would become one"):
        mirror(spark, [topic], options(here), options(there), checkpoint=checkpoint, rename="copy")
    with pytest.raises(ConfigError, match="would be copied into itself"):
        mirror(spark, [topic], options(here), options(here), checkpoint=checkpoint)
    with pytest.raises(ConfigError, match="nowhere does not exist"):
        mirror(spark, ["nowhere"], options(here), options(there), checkpoint=checkpoint)
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers is missing"):
        mirror(spark, [topic], options(here), {"kafka.acks": "all"}, checkpoint=checkpoint)


def test_a_batch_that_failed_after_it_was_written_is_not_copied_twice(
    spark: SparkSession,
    here: Broker,
    there: Broker,
    here_admin: ottla.Admin,
    topic: str,
    checkpoint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here_admin.create_topic(topic, 2)
    fill(here, topic, range(40))
    source = {**options(here), "maxOffsetsPerTrigger": "20"}

    def run() -> None:
        query = mirror(spark, [topic], source, options(there), checkpoint=checkpoint, groups=["billing"], trigger=ONCE)
        query.awaitTermination(WAIT_S)

    def killed(*_: object) -> None:
        raise RuntimeError("after the batch was written")

    with monkeypatch.context() as patched:
        patched.setattr(MirrorBatch, "_translate", killed)
        with pytest.raises(StreamingQueryException, match="after the batch was written"):
            run()
    run()
    copied = audit_topics(spark, [topic], options(there))
    assert checksums(copied) == checksums(audit_topics(spark, [topic], options(here)))


@pytest.mark.long
def test_a_mirror_that_is_killed_goes_on_and_copies_each_record_once(
    spark: SparkSession,
    here: Broker,
    there: Broker,
    here_admin: ottla.Admin,
    there_admin: ottla.Admin,
    topic: str,
    tmp_path: Path,
) -> None:
    here_admin.create_topic(topic, 2)
    fill(here, topic, range(4000))
    command = [sys.executable, "-m", "ottla", "job", "mirror", topic, "--to", there.bootstrap_servers]
    command += ["--checkpoint", str(tmp_path / "state"), "--master", "local[2]", "--name", topic]
    command += ["--option", "maxOffsetsPerTrigger=200", "--bootstrap-server", here.bootstrap_servers]
    environment = {**os.environ, DIRECTORY_VARIABLE: str(tmp_path / "runs")}
    log = tmp_path / "mirror.log"
    commits = tmp_path / "state" / "commits"
    with log.open("ab") as out:
        killed = subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True)
        try:
            wait_until(lambda: len(list(commits.glob("[0-9]*"))) >= 3 or killed.poll() is not None, timeout_s=WAIT_S)
            assert killed.poll() is None, log.read_text()
        finally:
            os.killpg(killed.pid, signal.SIGKILL)
            killed.wait()
        fill(here, topic, range(4000, 4100))
        done = subprocess.run(
            [*command, "--once"], env=environment, stdout=out, stderr=out, timeout=WAIT_S, check=False
        )
    assert done.returncode == 0, log.read_text()[-4000:]
    copied = audit_topics(spark, [topic], options(there))
    assert checksums(copied) == checksums(audit_topics(spark, [topic], options(here)))
    assert [each.duplicates for each in copied] == [0, 0]


# -- replay ------------------------------------------------------------------------------------------------------------


def numbers(spark: SparkSession, broker: Broker, topic: str) -> list[int]:
    rows = spark.read.format("ottla").options(**options(broker), subscribe=topic).load()
    return sorted(int(row.key) for row in rows.selectExpr("CAST(key AS string) AS key").collect())


@pytest.fixture(scope="module")
def history(here: Broker, here_admin: ottla.Admin) -> str:
    here_admin.create_topic("history", 2)
    fill(here, "history", range(100))
    return "history"


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (Range(since_ms=START_MS + 90_000), range(90, 100)),
        (Range(since_ms=START_MS + 10_000, until_ms=START_MS + 20_000), range(10, 20)),
        (Range(start_offsets={0: 40}, end_offsets={1: 0}), range(80, 100, 2)),
        (Range(start_offsets={0: 40}, end_offsets={0: 45}), range(80, 90, 2)),
    ],
)
def test_a_range_is_replayed(
    spark: SparkSession, here: Broker, here_admin: ottla.Admin, topic: str, history: str, what: Range, expected: range
) -> None:
    here_admin.create_topic(topic, 2)
    replay(spark, history, topic, options(here), what)
    assert numbers(spark, here, topic) == list(expected)
    times = spark.read.format("ottla").options(**options(here), subscribe=topic).load()
    seconds = times.selectExpr("unix_millis(timestamp) - 1000 * cast(key AS string) AS start").distinct().collect()
    assert [int(row.start) for row in seconds] == [START_MS]


def test_what_cannot_be_replayed_is_refused(
    spark: SparkSession, here: Broker, here_admin: ottla.Admin, topic: str, history: str
) -> None:
    here_admin.create_topic(topic, 1)
    for what, match in (
        (Range(since_ms=2, until_ms=1), "not after its start"),
        (Range(since_ms=2, start_offsets={0: 1}), "one of time or one of offsets"),
        (Range(start_offsets={7: 1}), "history has no partition 7"),
    ):
        with pytest.raises(ConfigError, match=match):
            replay(spark, history, topic, options(here), what)
    with pytest.raises(ConfigError, match="replayed into itself"):
        replay(spark, history, history, options(here), Range(since_ms=0))
    with pytest.raises(ConfigError, match="nowhere does not exist"):
        replay(spark, history, "nowhere", options(here), Range(since_ms=0))
    assert numbers(spark, here, topic) == []


# -- audit -------------------------------------------------------------------------------------------------------------


def test_an_audit_counts_what_is_wrong(spark: SparkSession, here: Broker, here_admin: ottla.Admin, topic: str) -> None:
    here_admin.create_topic(topic, 1)
    with ottla.Producer(bootstrap_servers=here.bootstrap_servers) as producer:
        for value, after_ms in ((b"a", 5), (b"b", 3), (b"a", 7), (b"c", 7)):
            producer.send(topic, value, timestamp=START_MS + after_ms)
    (found,) = audit_topics(spark, [topic], options(here))
    assert (found.records, found.first_offset, found.last_offset) == (4, 0, 3)
    assert (found.missing_offsets, found.repeated_offsets, found.duplicates, found.out_of_order) == (0, 0, 1, 1)
    (of_file,) = audit_segments(spark, str(Path(here.directory) / f"{topic}-0"))
    assert of_file == found
    with pytest.raises(ConfigError, match="nowhere does not exist"):
        audit_topics(spark, ["nowhere"], options(here))
    with pytest.raises(ConfigError, match="no topics to audit"):
        audit_topics(spark, [], options(here))


def test_files_that_are_no_segments_are_refused(here: Broker, history: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no directory"):
        find_segments(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="has no segments"):
        find_segments(tmp_path)
    ((path, partition),) = find_segments(Path(here.directory) / f"{history}-0")
    copy = tmp_path / path.name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    copy.write_bytes(content)
    with pytest.raises(DamagedSegmentError, match="begins no sound batch"):
        list(read_segment(copy, partition))

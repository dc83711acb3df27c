"""Topics into another cluster, each record once, with their settings, and the progress of groups translated.

    query = mirror(spark, ["orders"], source, target, checkpoint="./mirror", groups=["billing"])

Records keep partition, key, headers and time; offsets differ, as the other cluster counts its own. After each batch two
places of every partition are known to be the same: the end of the batch here, and the end of the log there. A group
that has read up to an offset here is given the last such place at or before it: it may see some records again there,
and misses none.
"""

from __future__ import annotations

import json
import logging
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import ottla
from ottla.client.offsets import Isolation, OffsetSpec
from ottla.errors import ApiError, ConfigError, OttlaError
from ottla.ids import TopicPartition
from ottla.spark.batches import write_batch
from ottla.spark.jobs.clusters import Options, admin_of, existing_topics, own_config
from ottla.spark.offsets import Offsets, offsets_from_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

PLACES_KEPT_MAX: Final = 1000  # of a partition; a group that is further behind waits until it has caught up
SAME_NAME: Final = "{topic}"


def mirror(
    spark: SparkSession,
    topics: Sequence[str],
    source: Options,
    target: Options,
    *,
    checkpoint: str,
    rename: str = SAME_NAME,
    groups: Sequence[str] = (),
    trigger: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Starts a query that copies topics, from their beginning unless `source` says otherwise.

    source, target: the options of a source and of a sink, `kafka.bootstrap.servers` at least.
    rename: what a topic is called there, such as `west.{topic}`.
    groups: whose offsets are translated after each batch; there, no member may be in them.
    """
    names = _names(topics, rename)
    copy_topics(names, source, target)
    given = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed", **source}
    rows = spark.readStream.format("ottla").options(**given, subscribe=",".join(names), includeHeaders="true").load()
    batch = MirrorBatch(spark, names, source, target, checkpoint, groups)
    writer = rows.writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint)
    return (writer.trigger(**trigger) if trigger else writer).start()


def _names(topics: Sequence[str], rename: str) -> dict[str, str]:
    if not topics:
        raise ConfigError("there are no topics to mirror: name at least one")
    if SAME_NAME not in rename:
        raise ConfigError(f"rename is {rename!r}, and has no {SAME_NAME}: all topics would become one")
    return {topic: rename.replace(SAME_NAME, topic) for topic in topics}


# -- topics ------------------------------------------------------------------------------------------------------------


def copy_topics(names: Mapping[str, str], source: Options, target: Options) -> None:
    """Creates what is missing there, with the partitions and the settings of the topics here; adds partitions."""
    with admin_of(source) as here, admin_of(target) as there:
        topics = existing_topics(here, names)
        is_same = here.describe_cluster().cluster_id == there.describe_cluster().cluster_id
        if is_same and any(name == other for name, other in names.items()):
            raise ConfigError("source and target are one cluster: a topic would be copied into itself; give rename")
        found = there.describe_topics(list(names.values()))
        for name, other in names.items():
            count = len(topics[name].partitions)
            known = found[other]
            if isinstance(known, ApiError):
                there.create_topic(other, count, config=own_config(here, name))
            elif len(known.partitions) < count:
                there.create_partitions(other, count)


# -- batches -----------------------------------------------------------------------------------------------------------


class MirrorBatch:
    """What is done with each batch: written once, and then groups are translated."""

    def __init__(
        self,
        spark: SparkSession,
        names: Mapping[str, str],
        source: Options,
        target: Options,
        checkpoint: str,
        groups: Sequence[str],
    ) -> None:
        self._spark = spark
        self._names = dict(names)
        self._source = dict(source)
        self._target = dict(target)
        self._checkpoint = checkpoint.rstrip("/")
        self._groups = tuple(groups)
        self._places = Places()

    def __call__(self, rows: DataFrame, number: int) -> None:
        from pyspark.sql import functions as F  # noqa: N812 (its usual name)

        renamed = F.create_map(*[F.lit(text) for pair in self._names.items() for text in pair])
        copied = rows.withColumn("topic", renamed[F.col("topic")])
        write_batch(copied, number, "mirror", **{**self._target, "keepTimestamps": "true"})
        if self._groups:
            self._translate(number)

    def _translate(self, number: int) -> None:
        """Groups are a convenience: that they cannot be translated now does not stop the copy."""
        try:
            with admin_of(self._source) as here, admin_of(self._target) as there:
                self._places.add(self._ends_here(number), self._ends_there(there))
                for group in self._groups:
                    self._translate_group(group, here, there)
        except OttlaError as error:
            _log.warning("the offsets of groups are not translated now, and will be after the next batch: %s", error)

    def _ends_here(self, number: int) -> Offsets:
        """Where the batch ends, as Spark has written it down before it began."""
        text = self._spark.read.text(f"{self._checkpoint}/offsets/{number}", wholetext=True).first()
        assert text is not None, "Spark writes the offsets of a batch before it runs it"
        return offsets_from_json(json.loads(text.value.splitlines()[-1]))

    def _ends_there(self, there: ottla.Admin) -> Offsets:
        found = there.describe_topics(list(self._names.values()))
        back = {other: name for name, other in self._names.items()}
        specs = {
            TopicPartition(topic.name, each.partition): int(OffsetSpec.LATEST)
            for topic in found.values()
            if not isinstance(topic, ApiError)
            for each in topic.partitions
        }
        ends: dict[TopicPartition, int] = {}
        for partition, end in there.list_offsets(specs, isolation=Isolation.READ_COMMITTED).items():
            if isinstance(end, ApiError):
                raise end
            ends[TopicPartition(back[partition.topic], partition.partition)] = end.offset
        return ends

    def _translate_group(self, group: str, here: ottla.Admin, there: ottla.Admin) -> None:
        read = {partition: each.offset for partition, each in here.committed_offsets(group).items()}
        has = {partition: each.offset for partition, each in there.committed_offsets(group).items()}
        new = translated(read, has, self._places.find, self._names)
        for partition, error in (there.alter_offsets(group, new) if new else {}).items():
            if error is not None:
                _log.warning("the offset of the group %s in %s is not translated: %s", group, partition, error)


def translated(
    read: Offsets, has: Offsets, find: Callable[[TopicPartition, int], int | None], names: Mapping[str, str]
) -> dict[TopicPartition, int]:
    """The offsets to commit for a group there; none that would lead it back."""
    new: dict[TopicPartition, int] = {}
    for partition, offset in read.items():
        place = find(partition, offset)
        if place is None or partition.topic not in names:
            continue
        there = TopicPartition(names[partition.topic], partition.partition)
        if place > has.get(there, -1):
            new[there] = place
    return new


class Places:
    """Offsets that are the same place here and there, by partition, in their order."""

    def __init__(self) -> None:
        self._here: dict[TopicPartition, list[int]] = {}
        self._there: dict[TopicPartition, list[int]] = {}

    def add(self, here: Offsets, there: Offsets) -> None:
        for partition, offset in here.items():
            known = self._here.setdefault(partition, [])
            if partition not in there or (known and known[-1] >= offset):
                continue
            others = self._there.setdefault(partition, [])
            known.append(offset)
            others.append(there[partition])
            del known[:-PLACES_KEPT_MAX], others[:-PLACES_KEPT_MAX]

    def find(self, partition: TopicPartition, offset: int) -> int | None:
        """The last place there that is not after the offset here; None where none is known."""
        known = self._here.get(partition, [])
        index = bisect_right(known, offset)
        return self._there[partition][index - 1] if index else None

"""`ottla job`: ready jobs on Spark, for topics and tables."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from ottla.cli import remote
from ottla.cli.command import Command, CommandError, ExitCode, command_group
from ottla.cli.pipeline_runs import kafka_options, settings_of, shown
from ottla.cli.places import Kind, parse_place
from ottla.cli.render import json_line
from ottla.cli.table import print_table
from ottla.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ottla.spark.decode.formats import Json

SOURCE_OPTION: Final = "--option maxOffsetsPerTrigger=100000"
_OFFSETS: Final = re.compile(r"(\d+):(\d+)-(\d+)")


def _add_spark_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Spark")
    group.add_argument("--master", metavar="URL", help="where Spark runs, such as local[4] or spark://HOST:7077")
    group.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark; again for more"
    )


def _add_stream_arguments(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument("--checkpoint", required=True, metavar="DIR", help="where the job notes how far it is")
    parser.add_argument("--once", action="store_true", help="end when everything that is there now is done")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the source; again for more"
    )
    parser.add_argument("--name", default=name, help=f"for `ottla pipeline status` and stop (default: {name})")


def _source_options(options: argparse.Namespace) -> dict[str, str]:
    return {**kafka_options(remote.target_of(options)), **settings_of(getattr(options, "option", []), SOURCE_OPTION)}


def _run_stream(
    options: argparse.Namespace, start: Callable[[SparkSession, Mapping[str, Any] | None], StreamingQuery]
) -> ExitCode:
    from ottla.spark.pipelines.running import RunOptions, run_job

    cluster = remote.target_of(options)
    run_job(
        options.name,
        RunOptions(
            once=options.once,
            master=options.master,
            config=settings_of(options.conf),
            bootstrap_servers=cluster.bootstrap_servers,
            report_options=kafka_options(cluster),
            shown=shown,
        ),
        start,
    )
    return ExitCode.OK


def _session(options: argparse.Namespace, name: str) -> SparkSession:
    from ottla.spark.sessions import session

    return session(name, options.master, config={"spark.ui.showConsoleProgress": "false", **settings_of(options.conf)})


def _json_format(schema: str | None) -> Json | None:
    if schema is None:
        return None
    from ottla.spark.decode.formats import Json

    return Json(schema=schema)


# -- topics and tables -------------------------------------------------------------------------------------------------


def _add_to_table_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("path", metavar="TABLE", help="the path of the Delta table")
    parser.add_argument("--schema", metavar="COLUMNS", help="values are JSON of these: 'number long, article string'")
    parser.add_argument("--key-schema", metavar="COLUMNS", help="the same for keys")
    parser.add_argument(
        "--upsert", metavar="COLUMN,…", help="the last change of each key counts, and tombstones delete"
    )
    parser.add_argument("--partition-by", default="", metavar="COLUMN,…")
    parser.add_argument("--compact-every", type=int, default=0, metavar="BATCHES")
    _add_stream_arguments(parser, "to-table")
    _add_spark_arguments(parser)
    remote.add_arguments(parser)


def _to_table(options: argparse.Namespace) -> ExitCode:
    source = _source_options(options)

    def start(spark: SparkSession, trigger: Mapping[str, Any] | None) -> StreamingQuery:
        from ottla.spark.tables import topic_to_table

        return topic_to_table(
            spark,
            options.topic,
            options.path,
            source,
            checkpoint=options.checkpoint,
            how=_json_format(options.schema),
            key_how=_json_format(options.key_schema),
            mode="upsert" if options.upsert else "append",
            keys=_list(options.upsert or ""),
            partition_by=_list(options.partition_by),
            compact_every=options.compact_every,
            trigger=trigger,
        )

    return _run_stream(options, start)


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _add_to_topic_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="TABLE", help="the path of the Delta table")
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--schema", required=True, metavar="COLUMNS", help="values become JSON of these")
    parser.add_argument("--key", metavar="EXPRESSION", help="the keys, such as 'cast(number AS string)'")
    parser.add_argument("--since-version", type=int, metavar="N", help="only rows of files that are newer than that")
    _add_spark_arguments(parser)
    remote.add_arguments(parser)


def _to_topic(options: argparse.Namespace) -> ExitCode:
    from ottla.spark.decode.formats import Json
    from ottla.spark.tables import table_to_topic

    spark = _session(options, "to-topic")
    try:
        target = {**_source_options(options), "delivery": "exactly-once"}
        version = table_to_topic(
            spark,
            options.path,
            options.topic,
            target,
            how=Json(schema=options.schema),
            key=options.key,
            since_version=options.since_version,
        )
    finally:
        spark.stop()
    print(f"version {version} of {options.path} is in {options.topic}: next time, --since-version {version}")
    return ExitCode.OK


def _add_compact_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="TABLE", help="the path of the Delta table")
    parser.add_argument("--target-mb", type=int, default=128, metavar="N", help="size of the new files (default: 128)")


def _compact(options: argparse.Namespace) -> ExitCode:
    from ottla.spark.tables import compact

    done = compact(options.path, target_bytes=options.target_mb << 20)
    print(f"{options.path}: {done['numFilesRemoved']:,} files became {done['numFilesAdded']:,}")
    return ExitCode.OK


# -- topics ------------------------------------------------------------------------------------------------------------


def _add_mirror_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument("--to", required=True, metavar="HOST:PORT", help="a broker of the cluster that gets the copy")
    parser.add_argument("--to-config", metavar="FILE", help="how to log in there, as the file of --command-config")
    parser.add_argument("--rename", default="{topic}", metavar="PATTERN", help="the name there, such as 'west.{topic}'")
    parser.add_argument("--group", action="append", default=[], help="whose offsets are translated; again for more")
    _add_stream_arguments(parser, "mirror")
    _add_spark_arguments(parser)
    remote.add_arguments(parser)


def _mirror(options: argparse.Namespace) -> ExitCode:
    settings = {} if options.to_config is None else remote.read_command_config(options.to_config)
    target = kafka_options(remote.Target(options.to, settings, options.to_config or ""))
    source = _source_options(options)

    def start(spark: SparkSession, trigger: Mapping[str, Any] | None) -> StreamingQuery:
        from ottla.spark.jobs import mirror

        return mirror(
            spark,
            options.topics,
            source,
            target,
            checkpoint=options.checkpoint,
            rename=options.rename,
            groups=options.group,
            trigger=trigger,
        )

    return _run_stream(options, start)


def _add_replay_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("into", metavar="INTO", help="the topic that gets the records")
    parser.add_argument("--from", dest="start", metavar="@TIME", help="records of this time and later")
    parser.add_argument("--until", metavar="@TIME", help="records before this time")
    parser.add_argument(
        "--offsets", action="append", default=[], metavar="PARTITION:START-END", help="END excluded; again for more"
    )
    parser.add_argument("--new-timestamps", action="store_true", help="records get the time of the replay")
    _add_spark_arguments(parser)
    remote.add_arguments(parser)


def _replay(options: argparse.Namespace) -> ExitCode:
    from ottla.spark.jobs import Range, replay

    offsets = [_offset_range(text) for text in options.offsets]
    what = Range(
        since_ms=_time_ms(options.start),
        until_ms=_time_ms(options.until),
        start_offsets={number: start for number, start, _ in offsets} or None,
        end_offsets={number: end for number, _, end in offsets} or None,
    )
    if what == Range():
        raise CommandError(ExitCode.USAGE, "there is no range to replay", "give --from, --until or --offsets")
    what.check()
    spark = _session(options, "replay")
    try:
        replay(
            spark,
            options.topic,
            options.into,
            _source_options(options),
            what,
            keep_timestamps=not options.new_timestamps,
        )
    finally:
        spark.stop()
    print(f"the range of {options.topic} is in {options.into}")
    return ExitCode.OK


def _offset_range(text: str) -> tuple[int, int, int]:
    found = _OFFSETS.fullmatch(text)
    if found is None:
        raise CommandError(
            ExitCode.USAGE, f"{text!r} is not a range of offsets", "write PARTITION:START-END, such as 0:10-20"
        )
    number, start, end = map(int, found.groups())
    return number, start, end


def _time_ms(text: str | None) -> int | None:
    if text is None:
        return None
    place = parse_place(text, SystemClock().now_ms())
    if place.kind is not Kind.TIME:
        raise CommandError(ExitCode.USAGE, f"{text!r} is not a time", "write @TIME; offsets are given by --offsets")
    return place.number


def _add_audit_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="*", metavar="TOPIC")
    parser.add_argument("--segments", metavar="DIR", help="the files of a log directory, or of one partition, instead")
    parser.add_argument(
        "--identity",
        default="key, value",
        metavar="EXPRESSIONS",
        help="which records are the same (default: those of the same key and value)",
    )
    remote.add_json_argument(parser, "one JSON document per partition")
    _add_spark_arguments(parser)
    remote.add_arguments(parser)


def _audit(options: argparse.Namespace) -> ExitCode:
    from ottla.spark.jobs import audit_segments, audit_topics

    if bool(options.topics) == (options.segments is not None):
        raise CommandError(ExitCode.USAGE, "audit takes topics, or --segments with a directory", "give one of them")
    spark = _session(options, "audit")
    try:
        if options.segments is not None:
            found = audit_segments(spark, options.segments, identity=options.identity)
        else:
            found = audit_topics(spark, options.topics, _source_options(options), identity=options.identity)
    finally:
        spark.stop()
    if options.json:
        for each in found:
            print(json_line(asdict(each)))
        return ExitCode.OK
    print_table(AUDIT_TITLES, [list(asdict(each).values()) for each in found], if_empty="there are no records")
    return ExitCode.OK


AUDIT_TITLES: Final = (
    "topic",
    "partition",
    "records",
    "first",
    "last",
    "missing",
    "repeated",
    "duplicates",
    "out of order",
    "checksum",
)


ACTIONS: Sequence[Command] = (
    Command(
        name="to-table",
        help="a topic into a Delta table",
        description="Writes a topic into a Delta table, each record once, until it is stopped or, with --once, done.",
        add_arguments=_add_to_table_arguments,
        run=_to_table,
    ),
    Command(
        name="to-topic",
        help="a Delta table into a topic",
        description="Writes the rows of a Delta table into a topic, all of them or, when it is interrupted, none.",
        add_arguments=_add_to_topic_arguments,
        run=_to_topic,
    ),
    Command(
        name="compact",
        help="rewrite the small files of a Delta table",
        description="Rewrites small files of a Delta table as larger ones; readers see the same rows.",
        add_arguments=_add_compact_arguments,
        run=_compact,
    ),
    Command(
        name="mirror",
        help="topics into another cluster",
        description=(
            "Copies topics into another cluster, each record once, with their partitions, settings and times, and "
            "translates the offsets of groups."
        ),
        add_arguments=_add_mirror_arguments,
        run=_mirror,
    ),
    Command(
        name="replay",
        help="a part of a topic into another one",
        description=(
            "Writes the records of a range of time or of offsets into another topic, all of them or, when it is "
            "interrupted, none."
        ),
        add_arguments=_add_replay_arguments,
        run=_replay,
    ),
    Command(
        name="audit",
        help="count and compare what is in topics or segment files",
        description=(
            "Shows for each partition how many records it has, which offsets are missing, how many records are there "
            "twice or older than the one before, and a checksum that is the same for the same records."
        ),
        add_arguments=_add_audit_arguments,
        run=_audit,
    ),
)

COMMAND = command_group("job", "run ready jobs on topics and tables", "Ready jobs on Spark.", ACTIONS)

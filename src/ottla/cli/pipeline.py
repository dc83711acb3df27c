"""`ottla pipeline`: what the pipelines of a cluster report of themselves; its other actions are in `pipeline_runs`."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from ottla.cli import pipeline_runs, remote
from ottla.cli.command import Command, ExitCode, command_group
from ottla.cli.render import Json, json_line, time_text
from ottla.client.admin.admin import Admin
from ottla.client.pipelines import PipelineReport, PipelineState
from ottla.runtime.clock import SystemClock

WATCH_S_DEFAULT: Final = 1.0


def _add_status_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="only the pipeline of this name or id")
    parser.add_argument("--watch", action="store_true", help="show what has changed, until interrupted")
    parser.add_argument(
        "--every", type=float, default=WATCH_S_DEFAULT, metavar="SECONDS", help="with --watch: how often to look"
    )
    remote.add_json_argument(parser, "one JSON document per pipeline: state, batch, rows, rates, lag and error")
    remote.add_arguments(parser)


def _status(options: argparse.Namespace) -> ExitCode:
    async def work(admin: Admin) -> ExitCode:
        shown: dict[str, PipelineReport] = {}
        while True:
            for report in await admin.list_pipelines():
                is_wanted = not options.names or {report.name, report.query_id} & set(options.names)
                if is_wanted and shown.get(report.query_id) != report:
                    shown[report.query_id] = report
                    print(json_line(_fields(report)) if options.json else _line(report, SystemClock().now_ms()))
            if not options.watch:
                break
            await asyncio.sleep(options.every)
        if not shown and not options.json:
            print("no pipeline has reported: a Spark program calls ottla.spark.report(spark, servers)")
        return ExitCode.OK

    return remote.run(options, work)


def _fields(report: PipelineReport) -> dict[str, Json]:
    return {**asdict(report), "lag_offsets": report.lag_offsets}


def _line(report: PipelineReport, now_ms: int) -> str:
    words = report.words()
    words.append(f"{max(0, now_ms - report.at_ms) // 1000:,} s ago ({time_text(report.at_ms)})")
    if report.state is PipelineState.FAILED:
        words.append(report.error.splitlines()[0][:200] if report.error else "no reason given")
    return "  ".join(words)


ACTIONS: Sequence[Command] = (
    *pipeline_runs.ACTIONS,
    Command(
        name="status",
        help="show every pipeline of the cluster, from its last report",
        description=(
            "Shows the pipelines that report into the topic __ottla_pipelines: state, last batch, rows, rate, duration "
            "and lag. A Spark program reports with ottla.spark.report(spark, servers)."
        ),
        add_arguments=_add_status_arguments,
        run=_status,
    ),
)

COMMAND = command_group(
    "pipeline",
    "make, check, run, stop and show pipelines",
    "Pipelines on Spark: lays out new ones, checks, runs and stops them, and shows what they report of themselves.",
    ACTIONS,
)

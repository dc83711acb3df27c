"""Runs a pipeline until it is stopped, or once: declared ones and plain programs, in this process.

A declared pipeline is run by Spark's own code (`pyspark.pipelines`), round after round: each round reads what is there.
A program runs as it would by itself, with the session that we have made as the one it finds. SIGTERM and Ctrl-C let a
batch or a round end; a second one does not wait.
"""

from __future__ import annotations

import json
import logging
import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from ottla.client.pipelines import PipelineReport
from ottla.errors import OttlaError
from ottla.runtime.stop_flag import StopFlag
from ottla.spark.pipelines.project import Program, Target
from ottla.spark.pipelines.run_file import RunFile
from ottla.spark.sessions import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

SERVERS_VARIABLE: Final = "OTTLA_BOOTSTRAP_SERVERS"
POLL_S: Final = 0.2
PAUSE_S: Final = 1.0
LAST_REPORTS_S: Final = 10.0  # Spark tells of the end of a query from a thread of its own


Trigger = Mapping[str, Any]
Reports = Callable[[], list[PipelineReport]]
Show = Callable[[Reports], AbstractContextManager[None]]  # shows what the queries do while it is entered


class RunFailedError(OttlaError):
    """A pipeline, or one of its queries, has failed."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a pipeline is run."""

    once: bool = False
    master: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    storage: str | None = None  # of a declared pipeline, in place of the one in its specification
    pause_s: float = PAUSE_S  # between the rounds of a declared pipeline
    bootstrap_servers: str | None = None  # whom to report to
    report_options: Mapping[str, str] = field(default_factory=dict)
    shown: Show = lambda reports: nullcontext()


def run(target: Target, options: RunOptions) -> None:
    """Returns when the pipeline has ended or was stopped; a RunFailedError where it has failed."""
    with RunFile(target.name).held(), stop_signals() as stopping:
        if isinstance(target, Program):
            run_program(target, options, stopping)
        else:
            from ottla.spark.pipelines.declared import run_declared

            run_declared(target, options, stopping)


# -- plain programs ----------------------------------------------------------------------------------------------------


def run_program(program: Program, options: RunOptions, stopping: StopFlag) -> None:
    environment = {SERVERS_VARIABLE: options.bootstrap_servers} if options.bootstrap_servers else {}
    with patch.dict(os.environ, environment), running_session(program.name, options, stopping) as (_, keeper):
        _run_main(program.path, keeper)
        keeper.wait_until_ended()


def run_job(name: str, options: RunOptions, start: Callable[[SparkSession, Trigger | None], StreamingQuery]) -> None:
    """A job that is one query, run as a pipeline is; `start` is given the trigger of a run that is to end."""
    with RunFile(name).held(), stop_signals() as stopping:
        trigger: Trigger | None = {"availableNow": True} if options.once else None
        with running_session(name, replace(options, once=False), stopping) as (spark, keeper):
            query = start(spark, trigger)
            keeper.wait_until_ended()
            if (failure := query.exception()) is not None:
                raise RunFailedError(f"the job {name} has failed: {failure}")


@contextmanager
def running_session(name: str, options: RunOptions, stopping: StopFlag) -> Iterator[tuple[SparkSession, QueryKeeper]]:
    """A session whose queries are shown, reported and, when the time comes, stopped."""
    spark = session(name, options.master, config=options.config)
    with ExitStack() as stack:
        stack.callback(spark.stop)
        stack.enter_context(handled_signals(stopping))  # Spark has put a handler of its own in place of ours
        if options.bootstrap_servers is not None:
            stack.enter_context(reports(spark, options))
        keeper = stack.enter_context(QueryKeeper(spark, stopping, once=options.once))
        stack.enter_context(options.shown(lambda: _last_reports(spark)))
        yield spark, keeper


def _last_reports(spark: SparkSession) -> list[PipelineReport]:
    """A query that has not run a batch has none."""
    from ottla.spark.listener import report_of_progress

    progresses = [query.lastProgress for query in spark.streams.active]
    return [report_of_progress(json.loads(each.json)) for each in progresses if each is not None]


def _run_main(path: Path, keeper: QueryKeeper) -> None:
    with patch.object(sys, "argv", [str(path)]), patch.object(sys, "path", [str(path.parent), *sys.path]):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            if end.code not in (None, 0):
                raise RunFailedError(f"{path} ended with {end.code}") from end
        except Exception as error:
            if keeper.failure is None and not keeper.is_ending:
                raise RunFailedError(f"{path} has failed: {type(error).__name__}: {error}") from error


class QueryKeeper:
    """Ends the queries of a session: when the pipeline is to stop, and with `once` when they have caught up."""

    def __init__(self, spark: SparkSession, stopping: StopFlag, *, once: bool) -> None:
        self.failure: str | None = None
        self._spark = spark
        self._stopping = stopping
        self._once = once
        self._done: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ottla-queries", daemon=True)

    def __enter__(self) -> QueryKeeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def is_ending(self) -> bool:
        return self._stopping.is_set()

    def wait_until_ended(self) -> None:
        """Returns once no query is left; a RunFailedError where one has failed."""
        while self._spark.streams.active and self.failure is None:
            self._ended.wait(POLL_S)
        if self.failure is not None:
            raise RunFailedError(self.failure)

    def _run(self) -> None:
        while not self._ended.wait(POLL_S):
            for query in self._spark.streams.active:
                if self._stopping.is_set():
                    self._stop(query)
                elif self._once and query.id not in self._done:
                    self._done.add(query.id)
                    self._catch_up(query)

    def _catch_up(self, query: StreamingQuery) -> None:
        """Everything that is there now; what comes later is left to the next run."""
        try:
            query.processAllAvailable()
        except Exception as error:
            self.failure = f"the query {query.name or query.id} has failed: {error}"
        self._stop(query)

    def _stop(self, query: StreamingQuery) -> None:
        try:
            query.stop()
        except Exception as error:
            self.failure = f"the query {query.name or query.id} did not stop: {error}"


@contextmanager
def reports(spark: SparkSession, options: RunOptions) -> Iterator[None]:
    """What `ottla pipeline status` shows; a pipeline also runs where nobody takes its reports."""
    from ottla.spark.listener import report

    assert options.bootstrap_servers is not None
    try:
        listener = report(spark, options.bootstrap_servers, options.report_options)
    except OttlaError as error:
        _log.warning("this run is not reported to `ottla pipeline status`: %s", error)
        yield
        return
    try:
        yield
        listener.wait_for_ends(LAST_REPORTS_S)
    finally:
        listener.close()


# -- stopping ----------------------------------------------------------------------------------------------------------


@contextmanager
def stop_signals() -> Iterator[StopFlag]:
    stopping = StopFlag()
    with handled_signals(stopping):
        yield stopping


@contextmanager
def handled_signals(stopping: StopFlag) -> Iterator[None]:
    """The first signal asks for a stop, a second one ends the process as if nobody had asked."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()
        os.write(2, b"stopping; once more to stop at once\n")  # a print may have been interrupted by this handler

    before = [(number, signal.signal(number, on_signal)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)

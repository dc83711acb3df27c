"""`ottla pipeline init`, `check`, `run` and `stop`: pipelines on Spark, from a new project to a running one."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.cli import remote
from ottla.cli.command import Command, CommandError, ExitCode
from ottla.cli.progress import EVERY_S, Progress
from ottla.cli.render import count_text, json_line
from ottla.cli.terminal import note
from ottla.client.pipelines import PipelineReport
from ottla.runtime.stop_flag import StopFlag

if TYPE_CHECKING:
    from ottla.spark.pipelines.checking import Finding
    from ottla.spark.pipelines.project import Target

STOP_S_DEFAULT: Final = 120.0
PAUSE_S_DEFAULT: Final = 1.0


def _add_init_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="of the pipeline, and of the directory that is made for it")
    parser.add_argument(
        "--directory", type=Path, default=Path(), metavar="DIR", help="where to make it (default: here)"
    )


def _init(options: argparse.Namespace) -> ExitCode:
    from ottla.spark.pipelines import project

    made = project.init(options.name, options.directory)
    print(f"{made}: a pipeline that reads the topic orders and writes large-orders")
    note(f"next: cd {made}; README.md there has the commands")
    return ExitCode.OK


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path",
        nargs="?",
        type=Path,
        default=Path(),
        metavar="PATH",
        help="a project with spark-pipeline.yaml, or a Python program that starts streaming queries (default: the "
        "project of this directory)",
    )


def _find(path: Path) -> Target:
    from ottla.spark.pipelines import project

    return project.find(path)


# -- check -------------------------------------------------------------------------------------------------------------


def _add_check_arguments(parser: argparse.ArgumentParser) -> None:
    _add_target(parser)
    parser.add_argument(
        "--spark",
        action="store_true",
        help="then let Spark check the whole graph, with all columns and tables, in a dry run: half a minute",
    )
    parser.add_argument("--master", metavar="URL", help="with --spark: where Spark runs (default: this machine)")
    remote.add_json_argument(parser, "one JSON document per finding: where, what, problem and note")


def _check(options: argparse.Namespace) -> ExitCode:
    from ottla.spark.pipelines.checking import check
    from ottla.spark.pipelines.project import Project

    target = _find(options.path)
    found = check(target)
    for finding in found:
        if options.json:
            fields = {"where": finding.where, "what": finding.what, "problem": finding.problem, "note": finding.note}
            print(json_line({"pipeline": target.name, **fields}))
        else:
            print(_line(finding))
    _raise_problems(target, found)
    if options.spark and isinstance(target, Project):
        from ottla.spark.pipelines.declared import run_declared
        from ottla.spark.pipelines.running import RunOptions

        run_declared(target, RunOptions(once=True, master=options.master), StopFlag(), dry=True)
    return ExitCode.OK


def _line(finding: Finding) -> str:
    words = [finding.where, finding.what, f"WRONG: {finding.problem}" if finding.problem else "ok", finding.note]
    return "  ".join(filter(None, words))


def _raise_problems(target: Target, found: Sequence[Finding]) -> None:
    wrong = [finding for finding in found if not finding.is_good]
    if not wrong:
        return
    is_missing = all("does not exist" in finding.problem for finding in wrong)
    raise CommandError(
        ExitCode.NOT_FOUND if is_missing else ExitCode.USAGE,
        f"the pipeline {target.name} cannot run: {wrong[0].where}: {wrong[0].problem}",
        f"there are {count_text(len(wrong), 'problem', 'problems')} in all" if len(wrong) > 1 else "",
    )


# -- run ---------------------------------------------------------------------------------------------------------------


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    _add_target(parser)
    parser.add_argument("--once", action="store_true", help="end when everything that is there now is done")
    parser.add_argument("--master", metavar="URL", help="where Spark runs, such as local[4] or spark://HOST:7077")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark; repeatable"
    )
    parser.add_argument("--storage", metavar="URI", help="checkpoints and tables, in place of those of the project")
    parser.add_argument(
        "--pause",
        type=float,
        default=PAUSE_S_DEFAULT,
        metavar="SECONDS",
        help=f"between the rounds of a declared pipeline (default: {PAUSE_S_DEFAULT:g})",
    )
    parser.add_argument("--no-check", action="store_true", help="do not check before Spark starts")
    remote.add_arguments(parser)


def _run(options: argparse.Namespace) -> ExitCode:
    from ottla.spark.pipelines import running
    from ottla.spark.pipelines.checking import check

    target = _find(options.path)
    config = settings_of(options.conf)
    cluster = remote.target_of(options)
    if not options.no_check:
        _raise_problems(target, check(target))
    running.run(
        target,
        running.RunOptions(
            once=options.once,
            master=options.master,
            config=config,
            storage=options.storage,
            pause_s=options.pause,
            bootstrap_servers=cluster.bootstrap_servers,
            report_options=kafka_options(cluster),
            shown=shown,
        ),
    )
    return ExitCode.OK


def settings_of(pairs: Sequence[str], example: str = "--conf spark.executor.memory=2g") -> dict[str, str]:
    """NAME=VALUE, as they stand on the command line."""
    for pair in pairs:
        if "=" not in pair:
            raise CommandError(ExitCode.USAGE, f"{pair!r} is not NAME=VALUE", f"write {example}")
    return dict(pair.split("=", 1) for pair in pairs)


def kafka_options(target: remote.Target) -> dict[str, str]:
    """The options of a source or a sink for a cluster that the command line names."""
    families = ("security.", "ssl.", "sasl.")
    named = {f"kafka.{name}": value for name, value in target.settings.items() if name.startswith(families)}
    return {**named, "kafka.bootstrap.servers": target.bootstrap_servers}


@contextmanager
def shown(reports: Callable[[], list[PipelineReport]]) -> Iterator[None]:
    """One line on a terminal with what every query does."""
    ended = threading.Event()
    with Progress() as progress:

        def follow() -> None:
            while not ended.wait(EVERY_S):
                progress.show(lambda: " | ".join("  ".join(each.words()) for each in reports()))

        thread = threading.Thread(target=follow, name="ottla-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


# -- stop --------------------------------------------------------------------------------------------------------------


def _add_stop_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="(default: that of the project of this directory)")
    parser.add_argument(
        "--timeout", type=float, default=STOP_S_DEFAULT, metavar="SECONDS", help="how long to wait for its end"
    )


def _stop(options: argparse.Namespace) -> ExitCode:
    from ottla.spark.pipelines.run_file import NotRunningError, RunFile, StillRunningError

    name = options.name or _find(Path()).name
    try:
        pid = RunFile(name).stop(options.timeout)
    except NotRunningError as error:
        raise CommandError(ExitCode.NOT_FOUND, str(error)) from error
    except StillRunningError as error:
        raise CommandError(ExitCode.TIMED_OUT, str(error)) from error
    print(f"{name} has stopped (process {pid})")
    return ExitCode.OK


ACTIONS: Sequence[Command] = (
    Command(
        name="init",
        help="lay out a new pipeline",
        description=(
            "Makes a directory with a pipeline of Spark (Spark Declarative Pipelines): a specification, files with "
            "transformations in Python and SQL, and a test that passes."
        ),
        add_arguments=_add_init_arguments,
        run=_init,
    ),
    Command(
        name="check",
        help="check a pipeline before Spark starts",
        description=(
            "Checks a pipeline in a second or two: its specification and files, the options of its sources and sinks, "
            "that brokers can be reached with them, that topics exist and that groups are free. Exit code 2 or 3 where "
            "something is wrong."
        ),
        add_arguments=_add_check_arguments,
        run=_check,
    ),
    Command(
        name="run",
        help="run a pipeline",
        description=(
            "Runs a pipeline until Ctrl-C or `ottla pipeline stop`: a declared one in rounds, each of which reads what "
            "is there, or a Python program that starts streaming queries, which report to `ottla pipeline status`."
        ),
        add_arguments=_add_run_arguments,
        run=_run,
    ),
    Command(
        name="stop",
        help="stop a pipeline that runs on this machine",
        description=(
            "Asks a pipeline that runs in another terminal to stop, and waits until it has. A round of a declared one "
            "that has begun is ended first."
        ),
        add_arguments=_add_stop_arguments,
        run=_stop,
    ),
)

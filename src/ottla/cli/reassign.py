"""`ottla reassign`: move partitions to other brokers. Plan, execute, verify, cancel."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Final, cast

from ottla.cli import remote
from ottla.cli.arguments import positive_number
from ottla.cli.command import Command, CommandError, ExitCode, command_group
from ottla.cli.render import Json, count_text, json_line
from ottla.cli.table import Cell, print_table
from ottla.cli.terminal import Style, note
from ottla.client import reassigning
from ottla.client.admin.admin import Admin
from ottla.client.metadata import ClusterView
from ottla.client.reassigning import Plan, Progress, Standing, parse_plan, plan_document
from ottla.cluster.balancing import balance, replicas_moved
from ottla.ids import TopicPartition

Assignment = Mapping[TopicPartition, Sequence[int]]

_STYLES: Final = {
    Standing.COMPLETE: Style.GOOD,
    Standing.MOVING: Style.WARNING,
    Standing.DIFFERENT: Style.BAD,
}


def _add_common_arguments(parser: argparse.ArgumentParser, json_help: str) -> None:
    remote.add_json_argument(parser, json_help)
    remote.add_arguments(parser)


def _add_plan_file_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", help="a plan, as written by `plan` or by Kafka's own tool; - is standard input"
    )


def _read_plan(path: str) -> dict[TopicPartition, reassigning.Target]:
    try:
        if path == "-":
            return parse_plan(sys.stdin.read(), "standard input")
        with open(path, encoding="utf-8") as file:
            return parse_plan(file.read(), path)
    except OSError as error:
        raise CommandError(ExitCode.NOT_FOUND, f"{path}: {error.strerror}", "give a plan that can be read") from error
    except UnicodeDecodeError as error:
        raise CommandError(ExitCode.USAGE, f"{path}: {error}", "a plan is JSON in UTF-8") from error


# -- plan --------------------------------------------------------------------------------------------------------------


def _add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "topics", nargs="*", metavar="TOPIC", help="only partitions of this topic (default: all topics)"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--brokers", metavar="ID,ID", type=_broker_ids, help="the brokers to use (default: all)")
    which.add_argument(
        "--without", metavar="ID,ID", type=_broker_ids, help="all brokers except these, which are emptied"
    )
    parser.add_argument(
        "--replication-factor", type=positive_number, metavar="N", help="the number of replicas (default: as now)"
    )
    parser.add_argument("--ignore-racks", action="store_true", help="allow several replicas of a partition in one rack")
    _add_common_arguments(
        parser, "one JSON document: current and proposed assignment in the format of Kafka's tool; `execute` reads it"
    )


def _broker_ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be broker ids, such as 1,2, not {text!r}") from None


def _plan(options: argparse.Namespace) -> ExitCode:
    async def work(admin: Admin) -> ExitCode:
        view = await admin.metadata(None)
        for name in options.topics:
            view.topic(name)
        everything = reassigning.current_assignment(view)
        current = reassigning.current_assignment(view, options.topics or None)
        proposed = balance(
            current,
            _usable_brokers(view, options),
            replication_factor=options.replication_factor,
            elsewhere={partition: everything[partition] for partition in everything.keys() - current.keys()},
        )
        changed = {partition: replicas for partition, replicas in proposed.items() if replicas != current[partition]}
        before = {partition: current[partition] for partition in changed}
        _show_plan(options, before, changed)
        return ExitCode.OK

    return remote.run(options, work)


def _usable_brokers(view: ClusterView, options: argparse.Namespace) -> dict[int, str | None]:
    holders = {node for replicas in reassigning.current_assignment(view).values() for node in replicas}
    if not options.brokers and (down := sorted(holders - view.nodes.keys() - set(options.without or ()))):
        raise CommandError(
            ExitCode.REFUSED,
            f"broker {down[0]} holds replicas and is down",
            f"start it, or create its replicas on other brokers with --without {','.join(map(str, down))}",
        )
    for node in options.brokers or ():
        if node not in view.nodes:
            raise CommandError(ExitCode.NOT_FOUND, f"broker {node} is not running", "`ottla brokers` shows them")
    for node in options.without or ():
        if node not in holders and node not in view.nodes:
            raise CommandError(ExitCode.NOT_FOUND, f"there is no broker {node}", "`ottla brokers` shows them")
    return {
        node: None if options.ignore_racks else view.nodes[node].rack
        for node in sorted(view.nodes)
        if (not options.brokers or node in options.brokers) and node not in (options.without or ())
    }


def _show_plan(options: argparse.Namespace, before: Assignment, changed: Assignment) -> None:
    moved = replicas_moved(before, changed)
    if options.json:
        fields = {"current": plan_document(before), "proposed": plan_document(changed), "replicas_moved": moved}
        print(json_line(cast("dict[str, Json]", fields)))
        return
    if not changed:
        print("nothing to move: the brokers are balanced")
        return
    print(f"Current partition replica assignment\n{_kafka_json(before)}\n")
    print(f"{reassigning.PROPOSED_HEADING}{_kafka_json(changed)}")
    partitions = count_text(len(changed), "partition changes", "partitions change")
    replicas = count_text(moved, "replica is", "replicas are")
    note(f"{partitions}, {replicas} copied")


def _kafka_json(assignment: Assignment) -> str:
    return json_line(cast("dict[str, Json]", plan_document(assignment)))


# -- execute -----------------------------------------------------------------------------------------------------------


def _add_execute_arguments(parser: argparse.ArgumentParser) -> None:
    _add_plan_file_argument(parser)
    parser.add_argument(
        "--throttle",
        type=positive_number,
        metavar="BYTES",
        help="the most bytes per second to copy to or from a broker",
    )
    parser.add_argument("--additional", action="store_true", help="start even if other partitions are already moving")
    parser.add_argument("--wait", action="store_true", help="show progress until all is done, then remove the throttle")
    _add_common_arguments(parser, "JSON documents, one per line: the assignment before, then each step of progress")


def _execute(options: argparse.Namespace) -> ExitCode:
    plan = _read_plan(options.file)

    async def work(admin: Admin) -> ExitCode:
        started = await reassigning.execute(admin, plan, bytes_per_s=options.throttle, is_additional=options.additional)
        if options.json:
            print(json_line(cast("dict[str, Json]", {"current": plan_document(started.before)})), flush=True)
        else:
            print("Current partition replica assignment; execute it to undo the moves")
            print(_kafka_json(started.before), flush=True)
            if moving := len(started.changed(plan)):
                count = count_text(moving, "partition moves", "partitions move")
                note(f"{count}; `ottla reassign verify` shows their progress")
            elif not started.errors:
                note("nothing to move: all partitions are where the plan wants them")
        if started.errors:
            return remote.report_failures(started.errors.values())
        return await _follow(admin, plan, options, keep_throttle=False) if options.wait else ExitCode.OK

    return remote.run(options, work)


# -- verify ------------------------------------------------------------------------------------------------------------


def _add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    _add_plan_file_argument(parser)
    parser.add_argument("--wait", action="store_true", help="show progress until all is done")
    _add_keep_throttle_argument(parser)
    _add_common_arguments(
        parser, "one JSON document per check: the state of each partition, and the remaining replicas"
    )


def _add_keep_throttle_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep-throttle", action="store_true", help="keep the throttle even if nothing is moving")


def _verify(options: argparse.Namespace) -> ExitCode:
    plan = _read_plan(options.file)

    async def work(admin: Admin) -> ExitCode:
        if options.wait:
            return await _follow(admin, plan, options, keep_throttle=options.keep_throttle)
        progress = await reassigning.look(admin, plan)
        _show_progress(progress, options)
        return await _end(admin, plan, progress, keep_throttle=options.keep_throttle)

    return remote.run(options, work)


async def _follow(admin: Admin, plan: Plan, options: argparse.Namespace, *, keep_throttle: bool) -> ExitCode:
    before: Progress | None = None
    async for progress in reassigning.follow(admin, plan):
        if progress != before:
            _show_progress(progress, options)
        before = progress
    assert before is not None, "it looks at least once"
    return await _end(admin, plan, before, keep_throttle=keep_throttle)


async def _end(admin: Admin, plan: Plan, progress: Progress, *, keep_throttle: bool) -> ExitCode:
    """Removes the throttle once nothing is moving; the exit code says how it ended."""
    if not (progress.is_anything_moving or progress.of(Standing.MOVING) or keep_throttle):
        await reassigning.remove_throttle(admin, {partition.topic for partition in plan})
    if moving := progress.of(Standing.MOVING):
        raise CommandError(
            ExitCode.TIMED_OUT,
            f"{count_text(len(moving), 'partition is', 'partitions are')} still moving",
            "check again later, or use --wait",
        )
    if different := progress.of(Standing.DIFFERENT):
        raise CommandError(
            ExitCode.REFUSED,
            f"{_names(different)}: not as planned, and not moving",
            "execute the plan; it may have been cancelled",
        )
    return ExitCode.OK


def _show_progress(progress: Progress, options: argparse.Namespace) -> None:
    if options.json:
        print(json_line(_progress_fields(progress)), flush=True)
        return
    rows = [
        (
            str(partition),
            Cell(str(verdict.standing), _STYLES[verdict.standing]),
            _ids(verdict.replicas),
            _ids(verdict.target),
            _ids(verdict.remaining) if verdict.remaining else None,
        )
        for partition, verdict in progress.verdicts.items()
    ]
    print_table(("PARTITION", "STATE", "REPLICAS", "TARGET", "REMAINING"), rows)
    done = len(progress.of(Standing.COMPLETE))
    remaining = count_text(progress.remaining_replicas, "replica remains", "replicas remain")
    print(f"{done:,} of {len(progress.verdicts):,} partitions complete, {remaining}", flush=True)


def _progress_fields(progress: Progress) -> dict[str, Json]:
    partitions: list[Json] = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "standing": str(verdict.standing),
            "replicas": list(verdict.replicas),
            "target": list(verdict.target),
            "remaining": list(verdict.remaining),
        }
        for partition, verdict in progress.verdicts.items()
    ]
    return {
        "complete": len(progress.of(Standing.COMPLETE)) == len(progress.verdicts),
        "remaining_replicas": progress.remaining_replicas,
        "partitions": partitions,
    }


# -- cancel, list ------------------------------------------------------------------------------------------------------


def _add_cancel_arguments(parser: argparse.ArgumentParser) -> None:
    _add_plan_file_argument(parser)
    _add_keep_throttle_argument(parser)
    _add_common_arguments(parser, "one JSON document per cancelled move: topic and partition")


def _cancel(options: argparse.Namespace) -> ExitCode:
    plan = _read_plan(options.file)

    async def work(admin: Admin) -> ExitCode:
        outcomes = await reassigning.cancel(admin, plan)
        for partition, error in sorted(outcomes.items()):
            if error is None and options.json:
                print(json_line({"topic": partition.topic, "partition": partition.partition}))
            elif error is None:
                print(f"cancelled {partition}")
        if not outcomes and not options.json:
            print("no partition of this plan is moving")
        if not options.keep_throttle and not await admin.list_reassignments():
            await reassigning.remove_throttle(admin, {partition.topic for partition in plan})
        return remote.report_failures(error for error in outcomes.values() if error is not None)

    return remote.run(options, work)


def _add_list_arguments(parser: argparse.ArgumentParser) -> None:
    _add_common_arguments(parser, "one JSON document per partition: topic, partition, replicas, added and removed ones")


def _list(options: argparse.Namespace) -> ExitCode:
    async def work(admin: Admin) -> ExitCode:
        ongoing = await admin.list_reassignments()
        if options.json:
            for partition, move in sorted(ongoing.items()):
                fields: dict[str, Json] = {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "replicas": list(move.replicas),
                    "adding": list(move.adding),
                    "removing": list(move.removing),
                }
                print(json_line(fields))
        else:
            rows = (
                (str(partition), _ids(move.replicas), _ids(move.adding), _ids(move.removing))
                for partition, move in sorted(ongoing.items())
            )
            print_table(("PARTITION", "REPLICAS", "ADDING", "REMOVING"), rows, if_empty="nothing is moving")
        return ExitCode.OK

    return remote.run(options, work)


def _ids(nodes: Collection[int]) -> str:
    return ",".join(map(str, nodes)) or "none"


def _names(partitions: Sequence[TopicPartition]) -> str:
    rest = f" and {len(partitions) - 5} more" if len(partitions) > 5 else ""
    return f"{', '.join(map(str, partitions[:5]))}{rest}"


COMMAND: Final = command_group(
    "reassign",
    "move partitions to other brokers",
    "Move partitions to other brokers: plan the moves, execute them, verify that they are done, or cancel them.\n"
    "Plans are files in the format of kafka-reassign-partitions; each tool reads the plans of the other.",
    (
        Command(
            "plan",
            "propose which replicas to move",
            "Propose moves after which all brokers hold and lead equally many partitions, with the replicas of a\n"
            "partition in different racks. As little as possible is moved. Nothing is changed yet.",
            _add_plan_arguments,
            _plan,
        ),
        Command(
            "execute",
            "start the moves of a plan",
            "Start the moves of a plan. Prints the assignment before the moves, which can be executed to undo them.",
            _add_execute_arguments,
            _execute,
        ),
        Command(
            "verify",
            "show the progress of a plan, and clean up after it",
            "Show the progress of the moves of a plan. Removes the throttle once nothing is moving any more.\n"
            "Exit code 0: complete; 7: still moving; 6: neither complete nor moving.",
            _add_verify_arguments,
            _verify,
        ),
        Command(
            "cancel",
            "stop the moves of a plan",
            "Stop the moves of a plan that are in progress: their partitions stay where they were.\n"
            "Removes the throttle.",
            _add_cancel_arguments,
            _cancel,
        ),
        Command("list", "show what is moving", "Show all partitions that are moving.", _add_list_arguments, _list),
    ),
)

"""The `ottla` command: finds the subcommand, runs it and turns its failures into words and exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final, NoReturn

import ottla
from ottla import compiled
from ottla.cli.command import Command, CommandError, ExitCode, add_commands
from ottla.errors import ConfigError, CorruptFileError, LockHeldError, StorageError

# A new command is a module with a COMMAND and a line here. Only the module of the command that is run is imported:
# all of them take longer than most commands.
COMMANDS: Final = {
    "serve": "ottla.cli.serve",
    "up": "ottla.cli.up",
    "status": "ottla.cli.status",
    "down": "ottla.cli.down",
    "topics": "ottla.cli.topics",
    "produce": "ottla.cli.produce",
    "consume": "ottla.cli.consume",
    "groups": "ottla.cli.groups",
    "transactions": "ottla.cli.transactions",
    "pipeline": "ottla.cli.pipeline",
    "configs": "ottla.cli.configs",
    "cluster": "ottla.cli.cluster",
    "brokers": "ottla.cli.brokers",
    "metadata": "ottla.cli.metadata",
    "log-dirs": "ottla.cli.log_dirs",
    "reassign": "ottla.cli.reassign",
    "elect": "ottla.cli.elect",
    "certs": "ottla.cli.certs",
    "import": "ottla.cli.import_directory",
    "dump-log": "ottla.cli.dump_log",
    "completion": "ottla.cli.completion",
}

# As the shell reports a program that a signal ended: 128 + SIGINT, 128 + SIGPIPE.
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141


class _Parser(argparse.ArgumentParser):
    """Reports errors in the format of all commands, without the usage text in front."""

    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.USAGE, f"ottla: {message}; try {self.prog} --help\n")


class _ShowVersion(argparse.Action):
    """Looks the version up when it is asked for: that takes longer than all the rest of the parser."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(f"ottla {ottla.__version__}")
        if compiled.is_pure_python_asked_for():
            print(f"without the compiled core: {compiled.PURE_PYTHON} is set")
        elif (complaint := compiled.complaint()) is not None:
            print(complaint)
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code of the process. A bug of ours is raised."""
    arguments = sys.argv[1:] if arguments is None else arguments
    is_known = bool(arguments) and arguments[0] in COMMANDS
    options = make_parser(arguments[:1] if is_known else None).parse_args(arguments)
    command: Command = options.command
    try:
        code = command.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`head`, a pager) has seen enough. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except (CommandError, ConfigError, StorageError) as error:
        print(f"ottla: {error}", file=sys.stderr)
        return _code_of(error)
    return code


def make_parser(names: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The command line with the named commands, or with all; also for completion and the generated reference."""
    codes = "\n".join(f"  {code.value}  {code.meaning}" for code in ExitCode)
    parser = _Parser(
        prog="ottla",
        description="A Kafka-compatible event streaming platform in Python.",
        epilog=f"exit codes:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version and exit")
    add_commands(parser, list(map(load, names or COMMANDS)), destination="command", metavar="COMMAND")
    return parser


def load(name: str) -> Command:
    """The command of that name."""
    command: Command = import_module(COMMANDS[name]).COMMAND
    assert command.name == name
    return command


def _code_of(error: CommandError | ConfigError | StorageError) -> ExitCode:
    match error:
        case CommandError(code=code):
            return code
        case ConfigError() | LockHeldError():
            return ExitCode.USAGE
        case CorruptFileError():
            return ExitCode.DAMAGED
        case _ if isinstance(error.__cause__, FileNotFoundError):
            return ExitCode.NOT_FOUND
        case _:
            return ExitCode.UNEXPECTED

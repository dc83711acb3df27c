"""The `ottla` command: finds the subcommand, runs it and turns its failures into words and exit codes."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Final, NoReturn

import ottla
from ottla import compiled
from ottla.cli.command import Command, CommandError, EndedBySignal, ExitCode, add_commands
from ottla.cli.parser import PROGRAM, Parser
from ottla.cli.terminal import report_error
from ottla.errors import ConfigError, CorruptFileError, LockHeldError, StorageError

# A new command is a module with a COMMAND and a line here: its module and what `ottla --help` says of it. Only the
# module of the command that is run is imported: all of them take longer than most commands.
COMMANDS: Final = {
    "serve": ("ottla.cli.serve", "run a broker"),
    "up": ("ottla.cli.up", "run a whole cluster on this machine"),
    "status": ("ottla.cli.status", "show the health of a cluster"),
    "down": ("ottla.cli.down", "stop the cluster on this machine"),
    "topics": ("ottla.cli.topics", "create, list, describe, alter and delete topics"),
    "produce": ("ottla.cli.produce", "send standard input or files to a topic"),
    "consume": ("ottla.cli.consume", "write the records of topics to standard output"),
    "offsets": ("ottla.cli.offsets", "show the offsets of partitions"),
    "perf": ("ottla.cli.perf", "measure throughput and latency"),
    "groups": ("ottla.cli.groups", "list, describe, delete and reset groups"),
    "transactions": ("ottla.cli.transactions", "list, describe and abort transactions"),
    "pipeline": ("ottla.cli.pipeline", "make, check, run, stop and show pipelines"),
    "job": ("ottla.cli.job", "run ready jobs on topics and tables"),
    "configs": ("ottla.cli.configs", "show and change settings of topics, brokers and groups"),
    "cluster": ("ottla.cli.cluster", "show the brokers of a cluster, or give clusters names"),
    "brokers": ("ottla.cli.brokers", "show the load of each broker"),
    "metadata": ("ottla.cli.metadata", "show brokers, topics and leaders as a client sees them"),
    "log-dirs": ("ottla.cli.log_dirs", "show log directories, move replicas between them"),
    "reassign": ("ottla.cli.reassign", "move partitions to other brokers"),
    "elect": ("ottla.cli.elect", "elect leaders on request"),
    "users": ("ottla.cli.users", "users that log in with a password, and their passwords"),
    "acls": ("ottla.cli.acls", "who may do what"),
    "quotas": ("ottla.cli.quotas", "show and change what clients may do per second"),
    "certs": ("ottla.cli.certs", "certificates for trying TLS out"),
    "backup": ("ottla.cli.backup", "copy the directories of a broker"),
    "restore": ("ottla.cli.restore", "bring back a backup, or check it"),
    "import": ("ottla.cli.import_directory", "take over the data directory of an Apache Kafka broker"),
    "dump-log": ("ottla.cli.dump_log", "show and check the files of a partition"),
    "completion": ("ottla.cli.completion", "print a completion script for a shell"),
}

# As the shell reports a program that a signal ended: 128 + SIGINT, 128 + SIGPIPE.
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
# Without the name of a file, these are about standard output: what our own files lack is a StorageError.
_OUTPUT_FAILS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


class _ShowVersion(argparse.Action):
    """Looks the version up when it is asked for: that takes longer than all the rest of the parser."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(f"ottla {ottla.__version__}")
        if compiled.is_pure_python_asked_for():
            print(f"without the compiled core: {compiled.PURE_PYTHON} is set")
        elif (complaint := compiled.complaint()) is not None:
            print(complaint)
        if (complaint := compiled.codec_complaint()) is not None:
            print(complaint)
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code of the process. A bug of ours is raised."""
    _replace_closed_streams()
    try:
        try:
            return _run(sys.argv[1:] if arguments is None else arguments)
        except (CommandError, ConfigError, StorageError) as error:
            report_error(str(error))
            return _code_of(error)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`head`, a pager) has seen enough.
        _discard_output()
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except EndedBySignal as signalled:
        return 128 + signalled.number
    except OSError as error:
        return _report_system_error(error)


def _run(arguments: Sequence[str]) -> int:
    parser = make_parser(arguments[:1] if arguments and arguments[0] in COMMANDS else ())
    if arguments and arguments[0].startswith("--") and not parser.has_option(arguments[0]):
        parser.reject(arguments[0], "options of a command follow it")
    options = parser.parse_args(arguments)
    command: Command | None = getattr(options, "command", None)
    if command is None:
        parser.print_help()
        return ExitCode.OK
    return command.run(options)


def make_parser(names: Collection[str] = COMMANDS.keys()) -> Parser:
    """The command line; only the named commands have their arguments, as the others are not imported."""
    codes = "\n".join(f"  {code.value}  {code.meaning}" for code in ExitCode)
    parser = Parser(
        prog=PROGRAM,
        description="A Kafka-compatible event streaming platform in Python.",
        epilog=f"exit codes:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version and exit")
    commands = [load(name) if name in names else (name, text) for name, (_, text) in COMMANDS.items()]
    add_commands(parser, commands, destination="command", metavar="COMMAND")
    return parser


def load(name: str) -> Command:
    """The command of that name."""
    module, _ = COMMANDS[name]
    command: Command = import_module(module).COMMAND
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
        case _ if isinstance(error.__cause__, OSError):
            return _code_of_system_error(error.__cause__)
        case _:
            return ExitCode.UNEXPECTED


def _code_of_system_error(error: OSError) -> ExitCode:
    match error:
        case FileNotFoundError():
            return ExitCode.NOT_FOUND
        case FileExistsError() | IsADirectoryError() | NotADirectoryError() | PermissionError():
            return ExitCode.USAGE
        case _:
            return ExitCode.UNEXPECTED


def _report_system_error(error: OSError) -> ExitCode:
    """A file that cannot be used as asked, or a failing machine."""
    if error.filename is not None:
        report_error(f"{error.filename}: {error.strerror}")
    elif error.errno in _OUTPUT_FAILS:
        report_error(f"the output cannot be written: {error.strerror}")
    else:
        report_error(str(error))
    try:
        sys.stdout.flush()
    except OSError:
        _discard_output()
    return _code_of_system_error(error)


def _discard_output() -> None:
    """Lets what is left in the buffer go nowhere: Python would complain once more when it flushes at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _replace_closed_streams() -> None:
    """Started with `>&-`, there is no stream to print to, and the next file would become standard output."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115

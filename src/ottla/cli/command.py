"""What every command of the command line has: a name, arguments, a way to run, and how it ends."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from ottla.errors import OttlaError


class ExitCode(IntEnum):
    """One code per kind of failure, so that scripts need not parse messages. `--help` shows this table."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    OK = 0, "done"
    UNEXPECTED = 1, "something unexpected: a bug, or a failing machine"
    USAGE = 2, "bad arguments, configuration or input"
    NOT_FOUND = 3, "a file, topic, group or other thing does not exist"
    DAMAGED = 4, "the data is damaged"
    UNREACHABLE = 5, "no broker could be reached, or the connection was lost"
    REFUSED = 6, "a broker rejected the request"
    TIMED_OUT = 7, "no success within the time limit"


class CommandError(OttlaError):
    """A command cannot do what was asked: what happened, to what; and what to try next."""

    def __init__(self, code: ExitCode, message: str, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.code = code


class EndedBySignal(BaseException):
    """A signal such as SIGTERM or SIGHUP has ended the command, which has closed what it had open."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand. `help` is one line; `description` is the text of its own `--help`."""

    name: str
    help: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], ExitCode]


def command_group(name: str, help: str, description: str, actions: Sequence[Command]) -> Command:  # noqa: A002
    """A command whose first argument says what to do, each with arguments of its own."""

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        add_commands(parser, actions, destination="action", metavar="ACTION")

    def run(options: argparse.Namespace) -> ExitCode:
        action: Command | None = getattr(options, "action", None)
        if action is None:
            options.parser.print_help()
            return ExitCode.OK
        return action.run(options)

    return Command(name, help, description, add_arguments, run)


def add_commands(
    parser: argparse.ArgumentParser, commands: Sequence[Command | tuple[str, str]], *, destination: str, metavar: str
) -> None:
    """Gives a parser its subcommands; the chosen one is stored at `destination`, and its parser at `parser`.

    Of a subcommand that is not loaded, its name and help are enough to list it.
    """
    subparsers = parser.add_subparsers(title=f"{destination}s", metavar=metavar)
    for command in commands:
        if isinstance(command, tuple):
            name, text = command
            subparsers.add_parser(name, help=text)
            continue
        subparser = subparsers.add_parser(
            command.name,
            help=command.help,
            description=command.description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        subparser.set_defaults(**{destination: command, "parser": subparser})
        command.add_arguments(subparser)

"""Renders `docs/reference/commands.md` from the parsers.

python -m ottla.cli.reference > docs/reference/commands.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.cli.command import ExitCode
from ottla.cli.main import INTERRUPTED, PIPE_CLOSED, make_parser
from ottla.cli.syntax import Argument, Syntax, syntax_of

_INTRODUCTION: Final = """\
# Commands

Every command with its arguments, as `--help` shows them. This page is generated: `python -m ottla.cli.reference`.
The [guide](../guide/command-line.md) shows them at work.
"""


def commands() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    root = syntax_of(make_parser())
    yield "| command | what it does |"
    yield "|---|---|"
    for command in root.subcommands:
        yield f"| [`{command.path}`](#{_anchor(command.path)}) | {_cell(command.help)} |"
    yield "\n## Exit codes\n"
    yield "| code | meaning |"
    yield "|---|---|"
    for code in ExitCode:
        yield f"| {code.value} | {code.meaning} |"
    yield "| 129, 143 | ended by SIGHUP, as when a terminal is closed, or by SIGTERM |"
    yield f"| {INTERRUPTED} | ended by Ctrl-C |"
    yield f"| {PIPE_CLOSED} | the reader of the output has gone away |"
    for command in root.walk():
        if command is not root:
            yield from _section(command)


def _section(command: Syntax) -> Iterator[str]:
    depth = command.path.count(" ") + 1
    yield f"\n{'#' * depth} {command.path}\n"
    yield from command.description.splitlines()
    if command.subcommands:
        yield ""
        yield from (f"- [`{each.path}`](#{_anchor(each.path)}): {each.help}" for each in command.subcommands)
    arguments = [each for each in command.arguments if "--help" not in each.flags]
    if arguments:
        yield "\n| argument | |"
        yield "|---|---|"
        yield from (f"| {_name(each)} | {_cell(each.help)} |" for each in arguments)


def _name(argument: Argument) -> str:
    names = ", ".join(f"`{flag}`" for flag in argument.flags) or f"`{argument.metavar}`"
    if argument.flags and argument.takes_value:
        names += f" `{_cell(argument.metavar)}`"
    if argument.is_repeatable and not argument.flags:
        names += " …"
    return names


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _anchor(title: str) -> str:
    return title.replace(" ", "-")


if __name__ == "__main__":
    print(commands(), end="")

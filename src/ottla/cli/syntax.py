"""The command line as a value, read from the parsers: what completion and the reference are made of."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Argument:
    """An option or a positional argument. `flags` is empty for the latter."""

    flags: tuple[str, ...]
    metavar: str  # empty for a switch
    choices: tuple[str, ...]
    help: str
    is_required: bool
    is_repeatable: bool

    @property
    def takes_value(self) -> bool:
        return bool(self.metavar)

    @property
    def names(self) -> str:
        """The command that lists the things of which this names one: `topics`, `groups`, or none."""
        return next((f"{noun.lower()}s" for noun in ("TOPIC", "GROUP") if self.metavar.startswith(noun)), "")


@dataclass(frozen=True, slots=True)
class Syntax:
    """One command or subcommand; `path` is how it is called, such as `ottla topics create`."""

    path: str
    help: str
    description: str
    usage: str
    arguments: tuple[Argument, ...]
    subcommands: tuple[Syntax, ...]

    @property
    def name(self) -> str:
        return self.path.rpartition(" ")[2]

    @property
    def options(self) -> list[Argument]:
        return [argument for argument in self.arguments if argument.flags]

    def walk(self) -> Iterator[Syntax]:
        """This command and everything below it."""
        yield self
        for each in self.subcommands:
            yield from each.walk()


def syntax_of(parser: argparse.ArgumentParser, help_text: str = "") -> Syntax:
    arguments: list[Argument] = []
    subcommands: list[Syntax] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            subcommands += [syntax_of(child, helps[name]) for name, child in action.choices.items()]
        else:
            arguments.append(_argument(parser, action))
    return Syntax(
        path=parser.prog,
        help=help_text,
        description=parser.description or "",
        usage=" ".join(parser.format_usage().removeprefix("usage: ").split()),
        arguments=tuple(arguments),
        subcommands=tuple(subcommands),
    )


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> Argument:
    formatter = parser._get_formatter()
    choices = tuple(map(str, action.choices or ()))
    metavar = "" if action.nargs == 0 else str(action.metavar or ",".join(choices) or action.dest.upper())
    return Argument(
        flags=tuple(action.option_strings),
        metavar=metavar,
        choices=choices,
        help=formatter._expand_help(action) if action.help else "",
        is_required=action.required,
        is_repeatable=action.nargs in ("*", "+") or isinstance(action, argparse._AppendAction),
    )

"""What every command of the command line has: a name, arguments, a way to run, and how it ends."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from ottla.errors import OttlaError


class ExitCode(IntEnum):
    """One code per kind of failure, so that scripts need not read words. `--help` shows this table."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    OK = 0, "done"
    UNEXPECTED = 1, "something unexpected: a bug, or a failing machine"
    USAGE = 2, "bad arguments or configuration"
    NOT_FOUND = 3, "a file or thing that was named does not exist"
    DAMAGED = 4, "data was read and found damaged"


class CommandError(OttlaError):
    """A command cannot do what was asked: what happened, to what; and what to try next."""

    def __init__(self, code: ExitCode, message: str, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand. `help` is one line; `description` is the text of its own `--help`."""

    name: str
    help: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], ExitCode]

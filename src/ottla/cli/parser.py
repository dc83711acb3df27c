"""How arguments are parsed: errors are one line, a typo gets a suggestion, and a command without arguments its help."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, Final, NoReturn

from ottla.cli.arguments import whole_number
from ottla.cli.command import ExitCode

PROGRAM: Final = "ottla"


class Parser(argparse.ArgumentParser):
    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.register("type", int, whole_number)
        # `--from -1h`, `--offset -10`: a dash and a digit begin a value, as no option of ours begins like that.
        self._negative_number_matcher = re.compile(r"-\d")

    def error(self, message: str) -> NoReturn:
        hint = "" if message.endswith("?") else f"; try {self.prog} --help"
        self.exit(ExitCode.USAGE, f"{PROGRAM}: {message}{hint}\n")

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            # Whose arguments they are: the command's, or the action's.
            parser: Parser = getattr(options, "parser", self)
            parser.reject(unknown[0])
        return options

    def has_option(self, argument: str) -> bool:
        """Whether an argument is an option here; options may be shortened."""
        name = argument.partition("=")[0]
        return any(option.startswith(name) for option in self._option_string_actions)

    def reject(self, argument: str, hint: str = "") -> NoReturn:
        """Ends the program because of an argument that this command does not have."""
        if not argument.startswith("-"):
            self.error(f"unexpected argument: {argument!r}")
        name = argument.partition("=")[0]
        # Without the dashes, which make all short options look alike.
        options = {option.lstrip("-"): option for option in self._option_string_actions}
        found = get_close_matches(name.lstrip("-"), options, n=1)
        self.error(f"unknown option: {name}{_suggestion(options[found[0]]) if found else hint and f': {hint}'}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As in argparse, with words of ours."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        if isinstance(action, argparse._SubParsersAction):
            suggestion = did_you_mean(str(value), choices, before=f"{self.prog} ")
            raise argparse.ArgumentError(None, f"unknown {str(action.metavar).lower()}: {value!r}{suggestion}")
        suggestion = did_you_mean(str(value), choices)
        wanted = suggestion or f"; choose from {', '.join(choices)}"
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}{wanted}")


def did_you_mean(word: str, known: Iterable[str], before: str = "") -> str:
    """What to add to a message about a word that is not known; empty where nothing is like it."""
    found = get_close_matches(word, list(known), n=1)
    return _suggestion(f"{before}{found[0]}") if found else ""


def _suggestion(text: str) -> str:
    return f"; did you mean `{text}`?"

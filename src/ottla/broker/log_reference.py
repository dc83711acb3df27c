"""Renders `docs/reference/log-messages.md` from the calls of loggers in the broker's modules and the table of advice.

python -m ottla.broker.log_reference > docs/reference/log-messages.md
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import ottla
from ottla.broker.log_advice import ADVICE

SOURCE: Final = Path(ottla.__file__).parent
# What runs in a broker's process. Clients and Spark jobs have logs of their own.
PARTS: Final = (
    "broker",
    "cli/serve.py",
    "cluster",
    "config",
    "controller",
    "groups",
    "net",
    "replication",
    "runtime",
    "security",
    "storage",
    "store",
    "transactions",
)
LEVELS: Final = ("ERROR", "WARNING", "INFO")
OF_METHODS: Final = {"critical": "ERROR", "error": "ERROR", "exception": "ERROR", "warning": "WARNING", "info": "INFO"}
FIELD: Final = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]")
ANYTHING: Final = "…"
# Recovery collects its findings in a report, which writes them: the calls that add one are listed instead.
RELAYED: Final = ("ottla.storage.recovery", ANYTHING)

_INTRODUCTION = """\
# Messages of a broker's log

Every line that a broker writes at ERROR, WARNING and INFO, and what to do about it. Search for a part of the line
without names and numbers: they are shown as `…` here. This page is generated: `python -m ottla.broker.log_reference`.

A line has time, level, logger and message. How to see INFO, rotate the log and watch for these lines:
[operations](../guide/operations.md).
"""
_TITLES: Final = {
    "ERROR": "Something is not served, or was lost; somebody has to look.",
    "WARNING": "The broker copes, or will try again; look if a line is repeated.",
    "INFO": "What happened, in order. Nothing has to be done.",
}


class Message(NamedTuple):
    """A line that may be written, with the level at which it is at most."""

    level: str
    logger: str
    text: str


def log_messages() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


@cache
def messages() -> tuple[Message, ...]:
    """Of all modules of a broker, each once, by logger and in the order of the code."""
    found = [message for path in _modules() for message in _messages_of(path)]
    return tuple(dict.fromkeys(one for one in found if (one.logger, one.text) != RELAYED))


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    found = messages()
    for level in LEVELS:
        yield f"## {level}\n"
        yield f"{_TITLES[level]}\n"
        has_advice = level != "INFO"
        yield "| Message | Logger | What to do |" if has_advice else "| Message | Logger |"
        yield "| --- | --- | --- |" if has_advice else "| --- | --- |"
        for one in found:
            if one.level == level:
                advice = f" {ADVICE[one.logger][one.text]} |" if has_advice else ""
                yield f"| {_quoted(one.text)} | `{one.logger}` |{advice}"
        yield ""


def _quoted(text: str) -> str:
    mark = "``" if "`" in text else "`"
    return f"{mark}{text}{mark}".replace("|", "\\|")


def _modules() -> Iterator[Path]:
    for part in PARTS:
        path = SOURCE / part
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _messages_of(path: Path) -> Iterator[Message]:
    source = path.read_text(encoding="utf-8")
    if "getLogger" not in source:
        return
    tree = ast.parse(source)
    module = ".".join(("ottla", *path.relative_to(SOURCE).with_suffix("").parts))
    loggers = _loggers_of(tree, module)
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))
    for call in sorted(calls, key=lambda one: one.lineno):
        assert isinstance(call.func, ast.Attribute)
        owner, method = ast.unparse(call.func.value).removeprefix("self."), call.func.attr
        if owner == "report" and method == "note":
            yield Message("WARNING", module, _text_of(call.args[0]))
        elif owner in loggers and method in OF_METHODS:
            yield Message(OF_METHODS[method], loggers[owner], _text_of(call.args[0]))
        elif owner in loggers and method == "log":
            yield Message(_highest_level(tree, ast.unparse(call.args[0])), loggers[owner], _text_of(call.args[1]))


def _loggers_of(tree: ast.Module, module: str) -> dict[str, str]:
    """The variables that hold loggers, and the names of these."""
    loggers = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=variable)], value=ast.Call(func=function, args=[name])) if (
                ast.unparse(function) == "logging.getLogger"
            ):
                loggers[variable] = str(name.value) if isinstance(name, ast.Constant) else module
    return loggers


def _text_of(node: ast.expr) -> str:
    """The message with a mark in place of every value."""
    match node:
        case ast.Constant(value=str(text)):
            return FIELD.sub(ANYTHING, text)
        case ast.JoinedStr(values=parts):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else ANYTHING for part in parts)
    return ANYTHING


def _highest_level(tree: ast.Module, variable: str) -> str:
    """Of the levels that a variable is given."""
    given = {
        part.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == variable
        for part in ast.walk(node.value)
        if isinstance(part, ast.Attribute) and part.attr in LEVELS
    }
    return next(level for level in LEVELS if level in given)


if __name__ == "__main__":
    print(log_messages(), end="")

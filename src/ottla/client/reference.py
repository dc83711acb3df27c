"""Writes `docs/reference/client-api.md`: the public classes of the clients, from their signatures and docstrings.

python -m ottla.client.reference > docs/reference/client-api.md
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Final

import ottla
from ottla import aio
from ottla.client import errors

HEAD: Final = """\
# Clients: API reference

The public classes of `ottla` and `ottla.aio`. This page is generated: `python -m ottla.client.reference`. The guides
show them at work: [producer](../guide/producer.md), [consumer](../guide/consumer.md),
[admin client](../guide/admin.md).

Clients for asyncio (`ottla.aio`) have the same methods, which are awaited where they wait.
"""
_CLIENTS: Final = ("Producer", "Consumer", "Admin")


def page() -> str:
    lines = [HEAD]
    for name in _CLIENTS:
        lines += _section(f"ottla.{name}", getattr(ottla, name), getattr(aio, name))
    lines.append("## Values\n")
    for name in sorted(set(ottla.__all__) - {*_CLIENTS, "__version__"}):
        lines.append(f"- `ottla.{name}`: {_sentence(getattr(ottla, name))}")
    lines.append("\n## Errors by what to do about them\n")
    for name, kind in inspect.getmembers(errors, inspect.isclass):
        if kind.__module__ == errors.__name__:
            lines.append(f"- `{name}`: {_sentence(kind)}")
    return "\n".join(lines) + "\n"


def _section(title: str, blocking: type, asynchronous: type) -> Iterator[str]:
    yield f"## {title}\n"
    yield f"{inspect.getdoc(blocking)}\n"
    yield "| method | what it does |\n|---|---|"
    for name, method in inspect.getmembers(blocking, callable):
        if name.startswith("_"):
            continue
        twin = getattr(asynchronous, name, None)
        text = _sentence(method) or _sentence(twin)
        yield f"| `{name}{_arguments(twin or method)}` | {text} |"
    yield ""


def _arguments(method: object) -> str:
    """The arguments by name, with their defaults; types are in the source, where editors find them."""
    assert callable(method)
    parts = []
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        plain = parameter.replace(annotation=inspect.Parameter.empty)
        parts.append(str(plain))
    return f"({', '.join(parts)})".replace("|", "\\|")


def _sentence(thing: object) -> str:
    """The first paragraph of a docstring, in one line."""
    text = inspect.getdoc(thing) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")

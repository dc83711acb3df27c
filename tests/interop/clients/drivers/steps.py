"""The loop of the drivers in Python: a step a line comes in as JSON, what the client saw goes out as JSON.

A driver is started with the address of the broker as its only argument. `{"do": "NAME", ...}` asks for a step, and
`{"ok": RESULT}` or `{"error": {"code": NUMBER_OR_NULL, "message": TEXT}}` answers, until the input ends. Bytes travel
in base 64. The same holds for the drivers in other languages; `ottla.testing.clients` is the other end.

The step `use` says how producers and consumers connect and log in from then on: an address, and of `protocol`,
`mechanism`, `username`, `password`, `ca` (a file) and `token` (a file) what the protocol and the mechanism need.
`stream` writes ROUND records and waits for them, again and again, until the file `until` is there or an error comes.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

ROUND = 20  # records that a stream has in flight


class RefusedError(Exception):
    """The broker said no in a field of its answer, where the client does not raise."""

    def __init__(self, code: int, message: str | None = None) -> None:
        super().__init__(message or f"error code {code}")
        self.code = code


def raise_for(code: int, message: str | None = None) -> None:
    if code:
        raise RefusedError(code, message)


def serve(steps: Mapping[str, Callable[..., Any]], code_of: Callable[[Exception], int | None]) -> None:
    """Answers every step until the input ends; `code_of` finds the error code in the client's exceptions."""
    for line in sys.stdin:
        step = json.loads(line)
        try:
            reply = {"ok": steps[step.pop("do")](**step)}
        except Exception as error:  # whatever it is, the test wants to hear of it
            code = error.code if isinstance(error, RefusedError) else code_of(error)
            reply = {"error": {"code": code, "message": f"{type(error).__name__}: {error}"}}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def decoded_headers(headers: list[tuple[str, str | None]]) -> list[tuple[str, bytes | None]]:
    return [(name, decoded(value)) for name, value in headers]


def encoded_headers(headers: Any) -> list[list[str | None]]:
    return [[name, encoded(value)] for name, value in headers or ()]

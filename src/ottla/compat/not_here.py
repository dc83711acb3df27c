"""What a class of another library has and ours has not: said when it is used."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

from ottla.client.errors import SettingsError

log = logging.getLogger("ottla.compat")


class NotHereError(AttributeError):
    """A method of the other library that is not offered; the message says what to use."""


class Partial:
    """A class with a part of another one's methods. `missing` names what to use for some of the others."""

    library: ClassVar[str]
    missing: ClassVar[Mapping[str, str]] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        hint = self.missing.get(name, "see docs/guide/migration-clients.md")
        raise NotHereError(f"{type(self).__name__}.{name} of {self.library} is not here: {hint}")


def translated(
    given: Mapping[str, Any], defaults: Mapping[str, Any], without_effect: frozenset[str], refused: Mapping[str, str]
) -> dict[str, Any]:
    """The settings of another library for a client of ours: its defaults, less what has no meaning here."""
    for name in given:
        if name in refused:
            raise SettingsError(name, f"{name} is not here: {refused[name]}")
    for name in sorted(without_effect & given.keys()):
        log.info("the setting %s has no effect", name)
    merged = {**defaults, **given}
    return {name: value for name, value in merged.items() if name not in without_effect and value is not None}

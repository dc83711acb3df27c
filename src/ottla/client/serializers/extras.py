"""Libraries that only some serializers need, imported when one of those is made."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from ottla.errors import ConfigError


@cache
def extra(name: str, group: str = "schemas") -> Any:
    """A module that an extra of ours brings; a ConfigError says how to get it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{name} is not installed: pip install 'ottla[{group}]' installs it") from error

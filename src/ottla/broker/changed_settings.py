"""Which settings somebody changed, in the broker's log. Their values may be secrets and are not in it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla.config.dynamic import ConfigResourceType, ConfigScope
from ottla.runtime.listed import Listed

logger = logging.getLogger(__name__)


def log_changed_settings(resource: ConfigScope, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """One line for a resource of which anything is different."""
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    if names:
        kind = ConfigResourceType(resource.type).name.lower()
        logger.info("the settings of %s %s were changed: %s", kind, resource.name or "(all)", Listed(names))

"""The settings of a topic as an operator writes them, for tests that open logs without a broker."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.config import TOPIC_SETTINGS, LogConfig, unknown_setting
from ottla.errors import ConfigError


def topic_config(properties: Mapping[str, str]) -> LogConfig:
    """The configuration that these texts describe; ConfigError for an unknown name or a bad value."""
    for name in properties:
        if name not in TOPIC_SETTINGS:
            raise ConfigError(unknown_setting(name, TOPIC_SETTINGS))
    config = LogConfig.combined(
        {TOPIC_SETTINGS[name].attribute: TOPIC_SETTINGS[name].parse(text) for name, text in properties.items()}
    )
    config.check()
    return config

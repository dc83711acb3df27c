"""Clusters as jobs name them, by the options of a source or a sink, and what jobs ask of their topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import ottla
from ottla.client.admin.configs import ConfigResource, ConfigSource
from ottla.client.metadata import Topic
from ottla.client.settings import AdminSettings
from ottla.errors import ApiError, ConfigError
from ottla.spark.option_reader import OptionReader
from ottla.spark.security_options import PREFIX, take_security

Options = Mapping[str, str]

SERVERS: Final = "bootstrap.servers"


def admin_of(options: Options) -> ottla.Admin:
    """A client for what the options name; those that mean nothing to it are left out."""
    reader = OptionReader(options, {})
    servers = reader.bootstrap_servers()
    security = take_security(reader)
    if security is not None:
        security.check_files()
    settings = {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)}
    known = {name: value for name, value in settings.items() if AdminSettings.has_setting(name)}
    return ottla.Admin({**known, SERVERS: servers})


def existing_topics(admin: ottla.Admin, names: Iterable[str]) -> dict[str, Topic]:
    """The topics of these names; a ConfigError for the first that does not exist."""
    found = admin.describe_topics(list(names))
    for topic in found.values():
        if isinstance(topic, ApiError):
            raise ConfigError(f"{topic}: name topics that exist")
    return {name: topic for name, topic in found.items() if not isinstance(topic, ApiError)}


def own_config(admin: ottla.Admin, topic: str) -> dict[str, str]:
    """What was set for a topic itself."""
    described = admin.describe_config(ConfigResource.topic(topic))
    return {
        name: entry.value
        for name, entry in described.items()
        if entry.source is ConfigSource.TOPIC and entry.value is not None
    }

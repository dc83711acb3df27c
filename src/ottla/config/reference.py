"""Renders `docs/reference/settings.md` from the settings themselves.

python -m ottla.config.reference > docs/reference/settings.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.config import broker_settings, security_settings
from ottla.config.broker import BROKER_SETTINGS
from ottla.config.group import GROUP_SETTINGS
from ottla.config.quota_settings import QuotaSettings
from ottla.config.setting import Setting, format_value, settings_of
from ottla.config.settings_without_effect import SettingsWithoutEffect
from ottla.config.topic import TOPIC_SETTINGS
from ottla.config.unsupported import KNOWN_UNSUPPORTED, KNOWN_UNSUPPORTED_PREFIXES
from ottla.config.zookeeper_settings import ZooKeeperSettings

_INTRODUCTION = """\
# Settings

Names, types and meanings are those of Apache Kafka, so that its files, tools and habits work. This page is generated:
`python -m ottla.config.reference`.

A broker reads its settings from a file in the format of `server.properties` and from `--set NAME=VALUE`, which takes
precedence. With an unknown name, a bad value or a contradiction it does not start, and says in one line what to change.
Settings that can change while it runs are changed with `ottla configs` or any Kafka tool, for one broker or for all. Of
several values the first of these counts: topic, broker, all brokers, file, default.
"""

_BROKER_NOTE = """\
*Change* says how a setting is changed without a restart: `cluster-wide` for all brokers or one, `per-broker` for one.
Settings that have no effect here say so, and why: they are accepted, stored and described, for tools that set them.
"""

_SECTIONS = (
    broker_settings.IdentitySettings,
    broker_settings.NetworkSettings,
    QuotaSettings,
    broker_settings.TopicCreationSettings,
    broker_settings.LogSettings,
    broker_settings.CleanerSettings,
    broker_settings.ReplicationSettings,
    broker_settings.GroupCoordinatorSettings,
    broker_settings.TransactionBrokerSettings,
    security_settings.TlsSettings,
    security_settings.SaslSettings,
    security_settings.OAuthSettings,
    security_settings.DelegationTokenSettings,
    security_settings.PasswordEncoderSettings,
    security_settings.AuthorizationSettings,
    ZooKeeperSettings,
    SettingsWithoutEffect,
)


def settings_page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    yield "## Topics\n"
    yield "*Default from* lists the broker settings that give a topic its default, in order of precedence.\n"
    yield from _inheriting_table(TOPIC_SETTINGS.values())
    yield "\n## Consumer groups\n"
    yield from _inheriting_table(GROUP_SETTINGS.values())
    yield "\n## Broker\n"
    yield _BROKER_NOTE
    for section in _SECTIONS:
        yield f"### {(section.__doc__ or '').rstrip('.')}\n"
        yield from _table(
            ("Setting", "Type", "Default", "Valid", "Change", "Meaning"),
            (
                (*_common(setting), str(setting.update) if setting.is_dynamic else "–", setting.documentation)
                for setting in (BROKER_SETTINGS[name] for name in settings_of(section))
            ),
        )
        yield ""
    yield "## Accepted in a file and without effect\n"
    yield "A file may contain these settings of Kafka too; they are ignored. When the broker starts, one warning lists"
    yield "all settings in the file that have no effect.\n"
    yield from (f"- `{name}`" for name in sorted(KNOWN_UNSUPPORTED))
    yield from (f"- `{prefix}…`" for prefix in KNOWN_UNSUPPORTED_PREFIXES)


def _inheriting_table(settings: Iterable[Setting]) -> Iterator[str]:
    return _table(
        ("Setting", "Type", "Default", "Valid", "Default from", "Meaning"),
        (
            (*_common(setting), ", ".join(f"`{name}`" for name in setting.broker_names) or "–", setting.documentation)
            for setting in settings
        ),
    )


def _common(setting: Setting) -> tuple[str, ...]:
    return f"`{setting.name}`", str(setting.kind), _default(setting), _valid(setting)


def _default(setting: Setting) -> str:
    text = format_value(setting.default)
    if text is None:
        return "–"
    return f"`{text}`" if text else "empty"


def _valid(setting: Setting) -> str:
    if setting.choices:
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    return setting.range_in_words or setting.form or "–"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for row in (head, ("---",) * len(head), *rows):
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    print(settings_page(), end="")

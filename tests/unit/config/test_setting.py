import re
import sys
from pathlib import Path

import pytest

from ottla.config import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    ConfigError,
    Kind,
    Setting,
    Value,
    format_value,
)
from ottla.config.setting import settings_of
from ottla.config.topic import LogConfig

ALL_SETTINGS = [*TOPIC_SETTINGS.values(), *GROUP_SETTINGS.values(), *BROKER_SETTINGS.values()]

EXTREMES = {Kind.SHORT: 2**15, Kind.INT: 2**31, Kind.LONG: 2**63}


def values_of(setting: Setting) -> list[Value]:
    """Values that the setting takes, among them the outermost."""
    if setting.choices:
        return list(setting.choices) if setting.kind is not Kind.LIST else [(), setting.choices[:1], setting.choices]
    match setting.kind:
        case Kind.BOOLEAN:
            return [False] if setting.pattern else [False, True]
        case Kind.DOUBLE:
            return [max(setting.minimum, -1e300), 0.75 if setting.maximum == 1 else 1e9, min(setting.maximum, 1e300)]
        case Kind.SHORT | Kind.INT | Kind.LONG:
            extreme = EXTREMES[setting.kind]
            low, high = max(-extreme, setting.minimum), min(extreme - 1, setting.maximum)
            edges = [int(low), int(low) + 1, int(high) - 1, int(high)]
            return [edge for edge in edges if edge != setting.but_not]
        case Kind.LIST:
            return [(), ("*",) if setting.pattern else ("/a b", "c:d")]
        case _:
            return ["", "10.0.0.1:5,::1:7" if setting.pattern else "any text, with = and #"]


@pytest.mark.parametrize("setting", ALL_SETTINGS, ids=lambda setting: setting.name)
def test_a_setting_reads_what_it_writes(setting: Setting) -> None:
    for value in values_of(setting):
        text = format_value(value)
        assert text is not None
        assert setting.parse(text) == value


def test_every_default_is_a_value_that_its_setting_takes() -> None:
    for setting in ALL_SETTINGS:
        text = format_value(setting.default)
        if text is not None:
            assert setting.parse(text) == setting.default, setting.name


def test_every_setting_has_a_sentence_of_help() -> None:
    assert [setting.name for setting in ALL_SETTINGS if not setting.help.endswith(".")] == []


def test_every_broker_setting_behind_a_topic_or_group_exists_and_is_in_the_same_unit_or_says_which() -> None:
    for setting in (*TOPIC_SETTINGS.values(), *GROUP_SETTINGS.values()):
        for name in setting.broker_names:
            behind = BROKER_SETTINGS[name]
            assert behind.kind is setting.kind or behind.unit > 1, name


def test_a_settings_class_gives_its_table() -> None:
    assert list(settings_of(LogConfig))[:2] == ["cleanup.policy", "compression.gzip.level"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (False, "false"),
        (-1, "-1"),
        ("producer", "producer"),
        ((), ""),
        (("compact", "delete"), "compact,delete"),
        (0.0, "0.0"),
        (0.5, "0.5"),
        (1.0, "1.0"),
        (1_000_000.0, "1000000.0"),
        (9_999_999.5, "9999999.5"),
        (1e7, "1.0E7"),
        (123_456_789.0, "1.23456789E8"),
        (0.001, "0.001"),
        (0.0005, "5.0E-4"),
        (-2.5e-8, "-2.5E-8"),
        (sys.float_info.max, "1.7976931348623157E308"),
    ],
)
def test_values_are_written_as_kafka_writes_them(value: Value | None, text: str | None) -> None:
    assert format_value(value) == text


def test_a_refused_password_is_not_repeated() -> None:
    setting = Setting("a.password", Kind.PASSWORD, None, "A password.", pattern="[a-z]+", form="lower-case letters")
    with pytest.raises(ConfigError) as caught:
        setting.parse("Secret1")
    assert str(caught.value) == "a.password=[hidden]: must be lower-case letters"


def test_a_bound_is_told_in_whole_numbers() -> None:
    with pytest.raises(ConfigError, match=r"log.cleaner.dedupe.buffer.size=5: must be at least 1048576$"):
        BROKER_SETTINGS["log.cleaner.dedupe.buffer.size"].parse("5")


@pytest.mark.parametrize("text", ["inf", "-Infinity", "nan"])
def test_a_number_is_finite(text: str) -> None:
    with pytest.raises(ConfigError, match="must be a number such as"):
        BROKER_SETTINGS["log.cleaner.io.max.bytes.per.second"].parse(text)


def test_a_list_has_each_item_once() -> None:
    assert TOPIC_SETTINGS["cleanup.policy"].parse(" delete, compact,delete") == ("delete", "compact")
    assert BROKER_SETTINGS["log.dirs"].parse("/a,,/b, /a,") == ("/a", "/b")


@pytest.mark.parametrize("text", ["delete,", ",delete", "delete,,compact", ","])
def test_a_list_of_choices_has_no_gaps(text: str) -> None:
    with pytest.raises(ConfigError, match="must be one of delete, compact"):
        TOPIC_SETTINGS["cleanup.policy"].parse(text)


def test_a_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be at least -1 and at most 9 and not 0"):
        TOPIC_SETTINGS["compression.gzip.level"].parse("0")


def test_throttled_replicas_have_the_form_of_kafka() -> None:
    setting = TOPIC_SETTINGS["leader.replication.throttled.replicas"]
    assert setting.parse("*") == ("*",)
    with pytest.raises(ConfigError, match=r"must be \* or a list of partition:broker"):
        setting.parse("0:1,x")
    with pytest.raises(ConfigError, match=r"must be \* or a list of partition:broker"):
        setting.parse("*,0:1")
    assert format_value(setting.parse("0:1,,0:1,")) == "0:1,,0:1,"


# -- what has no effect ------------------------------------------------------------------------------------------------

SOURCES = Path(__file__).parents[3] / "src" / "ottla"
# Read under names that are put together.
READ_BY_PATTERN = re.compile(
    r"internal_segment_bytes|group_consumer_(min|max)_.*|.*_retention_(minutes|hours)|log_roll(_jitter)?_hours"
)


def names_read(sources: str) -> set[str]:
    """The attributes that some code looks at, and the settings that it looks up by name."""
    by_name = r'\b(?:get|own)\("([\w.]+)"|^(?:JAAS_CONFIG|    setting) = "([\w.]+)"'  # also under a listener's prefix
    found = {name for pair in re.findall(by_name, sources, re.M) for name in pair}
    return found | set(re.findall(r"\.(\w+)\b(?!\")", sources))


def is_read(setting: Setting, names: set[str]) -> bool:
    """Whether some code looks at the setting, or it gives the default of one that is looked at."""
    if {setting.attribute, setting.name} & names or READ_BY_PATTERN.fullmatch(setting.attribute):
        return True
    behind = [one for one in (*TOPIC_SETTINGS.values(), *GROUP_SETTINGS.values()) if setting.name in one.broker_names]
    return any(is_read(one, names) for one in behind if one.attribute != setting.attribute)


def test_a_setting_says_that_it_has_no_effect_if_and_only_if_nobody_reads_it() -> None:
    sources = "\n".join(
        path.read_text() for path in SOURCES.rglob("*.py") if not {"testing", "client"} & {*path.parts}
    )  # clients have settings of their own
    names = names_read(sources)
    unread = {setting.name for setting in ALL_SETTINGS if not is_read(setting, names)}
    assert unread == {setting.name for setting in ALL_SETTINGS if setting.no_effect}


def test_every_dynamic_setting_of_kafka_can_be_changed_here() -> None:
    names = {name for name, setting in BROKER_SETTINGS.items() if setting.is_dynamic}
    assert len(names) == 100  # all 99 of Kafka but for the listeners, and three rates that it does not describe

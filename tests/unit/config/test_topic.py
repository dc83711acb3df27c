import json
from pathlib import Path

import pytest

from ottla.config import INT_MAX, LONG_MAX, TOPIC_SETTINGS, Kind, LogConfig, Setting, unknown_setting
from ottla.errors import ConfigError
from ottla.testing.topic_config import topic_config

PUBLIC_SETTINGS = Path(__file__).parents[4] / "shared" / "protocol" / "configs.json"

# Tiered storage is not built (SYSTEM.md has no remote log), and internal settings are for Kafka's own tests.


def parsed(name: str, text: str) -> object:
    return getattr(topic_config({name: text}), TOPIC_SETTINGS[name].attribute)


def refusal(properties: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        topic_config(properties)
    return str(caught.value)


# -- the table ---------------------------------------------------------------------------------------------------------


def test_names_types_defaults_and_broker_synonyms_equal_the_public_ones() -> None:
    if not PUBLIC_SETTINGS.exists():
        pytest.skip(f"{PUBLIC_SETTINGS.name} with the public settings is not here")
    public = {
        entry["name"]: (
            entry["type"].lower(),
            (entry["default"],) if entry["name"] == "cleanup.policy" else _as_ours(entry["default"]),
            tuple(entry.get("brokerSynonyms", ())),
        )
        for entry in json.loads(PUBLIC_SETTINGS.read_text())
        if entry["scope"] == "topic"
    }
    ours = {
        setting.name: (str(setting.kind), setting.default, setting.broker_names) for setting in TOPIC_SETTINGS.values()
    }
    assert ours == public


def _as_ours(default: object) -> object:
    return tuple(default) if isinstance(default, list) else default


# -- parsing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "1000", 1000),
        ("retention.ms", " 1000 ", 1000),
        ("retention.ms", "-1", -1),
        ("flush.messages", str(LONG_MAX), LONG_MAX),
        ("segment.bytes", str(INT_MAX), INT_MAX),
        ("cleanup.policy", "compact", ("compact",)),
        ("cleanup.policy", "compact,delete", ("compact", "delete")),
        ("cleanup.policy", " compact , delete ", ("compact", "delete")),
        ("preallocate", "TRUE", True),
        ("preallocate", "false", False),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("min.cleanable.dirty.ratio", "1", 1.0),
        ("compression.type", "zstd", "zstd"),
        ("compression.zstd.level", "-5", -5),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
        ("leader.replication.throttled.replicas", "", ()),
    ],
)
def test_a_text_becomes_a_value(name: str, text: str, value: object) -> None:
    assert parsed(name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("retention.ms", "soon", "retention.ms=soon: must be a whole number up to"),
        ("retention.ms", "", "retention.ms=: must be a whole number up to"),
        ("retention.ms", "1.5", "must be a whole number up to"),
        ("retention.ms", "1_000", "must be a whole number up to"),
        ("min.cleanable.dirty.ratio", "0_0.5", "must be a number such as 0.5"),
        ("retention.ms", str(LONG_MAX + 1), "must be a whole number up to"),
        ("segment.bytes", str(INT_MAX + 1), "must be a whole number up to"),
        ("preallocate", "yes", "preallocate=yes: must be true or false"),
        ("min.cleanable.dirty.ratio", "half", "must be a number such as 0.5"),
        ("min.cleanable.dirty.ratio", "nan", "min.cleanable.dirty.ratio=nan"),
        ("retention.ms", "-2", "retention.ms=-2: must be at least -1"),
        ("segment.bytes", "14", "segment.bytes=14: must be at least 1048576"),
        ("segment.ms", "0", "must be at least 1"),
        ("min.insync.replicas", "0", "must be at least 1"),
        ("min.cleanable.dirty.ratio", "1.01", "must be at least 0 and at most 1"),
        ("min.cleanable.dirty.ratio", "-0.1", "must be at least 0"),
        ("compression.gzip.level", "10", "must be at least -1 and at most 9"),
        ("compression.lz4.level", "0", "must be at least 1"),
        ("compression.zstd.level", "23", "must be at least -131072 and at most 22"),
        ("cleanup.policy", "compact,forget", "must be one of delete, compact"),
        ("compression.type", "none", "must be one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("message.timestamp.type", "logappendtime", "must be one of CreateTime, LogAppendTime"),
    ],
)
def test_a_bad_text_is_refused_by_name_with_what_would_do(name: str, text: str, complaint: str) -> None:
    assert complaint in refusal({name: text})


def test_an_unknown_setting_is_refused_with_the_nearest_known_one() -> None:
    assert refusal({"retention.msec": "1"}) == "retention.msec: unknown setting; did you mean retention.ms?"


def test_a_setting_like_no_other_gets_no_guess() -> None:
    assert unknown_setting("xyzzy", TOPIC_SETTINGS) == "xyzzy: unknown setting"


def test_the_compaction_lags_must_not_cross() -> None:
    assert "min.compaction.lag.ms" in refusal({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"})
    topic_config({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "10"})


def test_what_is_not_named_has_its_default() -> None:
    assert topic_config({"retention.ms": "1"}) == LogConfig(retention_ms=1)


def test_a_setting_without_bounds_takes_any_number() -> None:
    assert Setting("any", Kind.LONG, 0, "Any.").parse(str(-LONG_MAX)) == -LONG_MAX


# -- what follows from the settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "is_compacted", "deletes"),
    [(("delete",), False, True), (("compact",), True, False), (("compact", "delete"), True, True)],
)
def test_the_cleanup_policy_says_what_happens_to_old_segments(
    policy: tuple[str, ...], is_compacted: bool, deletes: bool
) -> None:
    config = LogConfig(cleanup_policy=policy)
    assert (config.is_compacted, config.deletes_old_segments) == (is_compacted, deletes)


def test_a_compacted_topic_rolls_in_time_for_its_compaction_lag() -> None:
    assert LogConfig(segment_ms=100, max_compaction_lag_ms=10).segment_ms_max == 100
    assert LogConfig(segment_ms=100, max_compaction_lag_ms=10, cleanup_policy=("compact",)).segment_ms_max == 10
    assert LogConfig(segment_ms=100, max_compaction_lag_ms=200, cleanup_policy=("compact",)).segment_ms_max == 100

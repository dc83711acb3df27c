import dataclasses

import pytest

from ottla.config import (
    BROKER_SETTINGS,
    DEFAULT_BROKER,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    AlterOperation,
    ConfigResourceType,
    ConfigScope,
    DescribedSetting,
    DynamicConfigs,
    GroupConfig,
    Kind,
    LogConfig,
    SettingChange,
    SettingSynonym,
    ValueSource,
)
from ottla.errors import ApiError, ErrorCode

TOPIC = ConfigScope(ConfigResourceType.TOPIC, "orders")
BROKER = ConfigScope(ConfigResourceType.BROKER, "1")
GROUP = ConfigScope(ConfigResourceType.GROUP, "readers")
SET, DELETE, APPEND, SUBTRACT = AlterOperation


def image(static: dict[str, str] | None = None, **layers: dict[str, str]) -> DynamicConfigs:
    """An image of broker 1; layers are `topic`, `broker`, `cluster` and `group`."""
    resources = {"topic": TOPIC, "broker": BROKER, "cluster": DEFAULT_BROKER, "group": GROUP}
    return DynamicConfigs(static or {}, 1, {resources[layer]: overrides for layer, overrides in layers.items()})


def entry(configs: DynamicConfigs, resource: ConfigScope, name: str) -> DescribedSetting:
    (found,) = configs.describe(resource, [name], synonyms=True)
    return found


def refusal(error: pytest.ExceptionInfo[ApiError]) -> tuple[ErrorCode, str]:
    return error.value.code, error.value.message


# -- what holds --------------------------------------------------------------------------------------------------------

LAYERS = {
    "topic": {"retention.ms": "1"},
    "broker": {"log.retention.ms": "2"},
    "cluster": {"log.retention.ms": "3"},
}


@pytest.mark.parametrize(
    ("layers", "static", "retention_ms", "source"),
    [
        (["topic", "broker", "cluster"], {"log.retention.ms": "4"}, 1, ValueSource.DYNAMIC_TOPIC),
        (["broker", "cluster"], {"log.retention.ms": "4"}, 2, ValueSource.DYNAMIC_BROKER),
        (["cluster"], {"log.retention.ms": "4"}, 3, ValueSource.DYNAMIC_DEFAULT_BROKER),
        ([], {"log.retention.ms": "4"}, 4, ValueSource.STATIC_BROKER),
        # Kafka does not count a value under a weaker name as one of this setting.
        ([], {"log.retention.hours": "1"}, 3_600_000, ValueSource.DEFAULT),
        ([], {}, 604_800_000, ValueSource.DEFAULT),
    ],
)
def test_the_topic_wins_over_the_broker_over_the_cluster_over_the_file_over_the_default(
    layers: list[str], static: dict[str, str], retention_ms: int, source: ValueSource
) -> None:
    configs = image(static, **{layer: LAYERS[layer] for layer in layers})
    assert configs.topic_config("orders").retention_ms == retention_ms
    described = entry(configs, TOPIC, "retention.ms")
    assert (described.value, described.source) == (str(retention_ms), source)


def test_topics_that_set_nothing_share_one_configuration() -> None:
    configs = image(topic={"retention.ms": "1"})
    assert configs.topic_config("a") is configs.topic_config("b")
    assert configs.topic_config("a") == LogConfig()


def test_a_topic_is_worked_out_once_and_again_when_it_changes() -> None:
    configs = image(topic={"retention.ms": "1"})
    assert configs.topic_config("orders") is configs.topic_config("orders")
    other = configs.replaced(ConfigScope(ConfigResourceType.TOPIC, "other"), {"retention.ms": "9"})
    assert other.topic_config("orders") is configs.topic_config("orders")
    changed = configs.replaced(TOPIC, {"retention.ms": "2"})
    assert (configs.topic_config("orders").retention_ms, changed.topic_config("orders").retention_ms) == (1, 2)
    assert changed.replaced(TOPIC, {}).topic_config("orders") == LogConfig()
    assert changed.replaced(TOPIC, {}).overrides == {}


def test_a_change_of_the_broker_reaches_topics() -> None:
    configs = image(topic={"retention.ms": "1"})
    changed = configs.replaced(DEFAULT_BROKER, {"message.max.bytes": "77"})
    assert changed.topic_config("orders") == LogConfig(retention_ms=1, max_message_bytes=77)
    assert changed.broker_config().message_max_bytes == 77


def test_the_broker_is_the_file_with_what_was_changed_on_top() -> None:
    configs = image(
        {"num.partitions": "3", "max.connections": "10", "num.io.threads": "5"},
        cluster={"max.connections": "11", "max.connections.per.ip": "12"},
        broker={"max.connections": "13"},
    )
    config = configs.broker_config()
    assert (config.broker_id, config.num_partitions) == (1, 3)
    assert (config.max_connections, config.max_connections_per_ip) == (13, 12)


def test_the_overrides_of_another_broker_do_not_matter() -> None:
    other = ConfigScope(ConfigResourceType.BROKER, "2")
    assert image().replaced(other, {"max.connections": "5"}).broker_config() == image().broker_config()


def test_a_group_inherits_from_the_broker() -> None:
    static = {"group.consumer.session.timeout.ms": "50000"}
    assert image(static).group_config("readers") == GroupConfig(consumer_session_timeout_ms=50_000)
    assert image(static, group={"consumer.session.timeout.ms": "55000"}).group_config("readers") == GroupConfig(
        consumer_session_timeout_ms=55_000
    )


def test_stored_settings_that_cannot_be_used_count_as_not_set_and_are_named() -> None:
    configs = image(topic={"retention.ms": "soon", "remote.storage.enable": "true", "segment.ms": "5"})
    assert configs.topic_config("orders") == LogConfig(segment_ms=5)
    assert entry(configs, TOPIC, "retention.ms").source is ValueSource.DEFAULT
    first, second = configs.problems(TOPIC)
    assert first.startswith("retention.ms=soon: must be a whole number")
    assert second == "remote.storage.enable=true: must be false: there is no tiered storage"


def test_an_image_that_is_printed_shows_no_values() -> None:
    assert repr(image({"ssl.key.password": "hunter2"}, topic={"retention.ms": "1"})) == "DynamicConfigs(node_id=1)"


def test_resources_that_set_something_are_listed() -> None:
    configs = image(topic={"retention.ms": "1"}, cluster={"max.connections": "5"}, broker={"max.connections": "6"})
    assert configs.resources(ConfigResourceType.TOPIC) == ["orders"]
    assert configs.resources(ConfigResourceType.BROKER) == ["", "1"]
    assert configs.resources(ConfigResourceType.GROUP) == []


# -- descriptions ------------------------------------------------------------------------------------------------------


def test_every_setting_of_a_topic_is_described_and_can_be_changed() -> None:
    described = image().describe_topic("orders")
    assert [one.name for one in described] == [name for name in TOPIC_SETTINGS if name != "internal.segment.bytes"]
    assert [one.name for one in described if not one.is_default] == ["min.insync.replicas"]
    assert not any(one.is_read_only or one.is_sensitive for one in described)
    assert all(one.synonyms == () and one.documentation is None for one in described)


def test_only_the_asked_keys_that_exist_are_described() -> None:
    configs = image()
    assert [one.name for one in configs.describe_topic("orders", ["segment.ms", "nonsense"])] == ["segment.ms"]
    assert len(configs.describe_topic("orders", [])) == len(TOPIC_SETTINGS) - 1
    assert len(configs.describe(BROKER)) == len(BROKER_SETTINGS)


def test_documentation_is_given_when_asked() -> None:
    (described,) = image().describe_topic("orders", ["segment.ms"], documentation=True)
    assert described.documentation == TOPIC_SETTINGS["segment.ms"].help


def test_synonyms_of_a_topic_setting_are_all_that_give_it_a_value() -> None:
    configs = image(
        {"log.retention.minutes": "600"},
        topic={"retention.ms": "1"},
        broker={"log.retention.ms": "2"},
        cluster={"log.retention.ms": "3"},
    )
    assert entry(configs, TOPIC, "retention.ms").synonyms == (
        SettingSynonym("retention.ms", "1", ValueSource.DYNAMIC_TOPIC),
        SettingSynonym("log.retention.ms", "2", ValueSource.DYNAMIC_BROKER),
        SettingSynonym("log.retention.ms", "3", ValueSource.DYNAMIC_DEFAULT_BROKER),
        SettingSynonym("log.retention.minutes", "600", ValueSource.STATIC_BROKER),
        SettingSynonym("log.retention.hours", "168", ValueSource.DEFAULT),
    )


def test_a_broker_setting_without_a_value_has_none_even_if_a_weaker_one_has() -> None:
    described = entry(image({"log.retention.minutes": "600"}), BROKER, "log.retention.ms")
    assert (described.value, described.source, described.synonyms) == (None, ValueSource.DEFAULT, ())


def test_a_broker_setting_names_its_fallbacks() -> None:
    described = entry(image({"log.roll.ms": "700000"}), BROKER, "log.roll.ms")
    assert described.synonyms == (
        SettingSynonym("log.roll.ms", "700000", ValueSource.STATIC_BROKER),
        SettingSynonym("log.roll.hours", "168", ValueSource.DEFAULT),
    )


def test_read_only_is_what_needs_a_restart() -> None:
    read_only = {one.name for one in image().describe(BROKER) if one.is_read_only}
    assert {"broker.id", "log.dirs", "num.partitions", "log.retention.hours"} <= read_only
    assert not {"log.retention.ms", "max.connections", "compression.type"} & read_only


def test_a_password_is_never_told() -> None:
    described = entry(
        image({"ssl.keystore.password": "hunter2"}, broker={"ssl.keystore.password": "hunter3"}),
        BROKER,
        "ssl.keystore.password",
    )
    assert described.is_sensitive
    assert described.kind is Kind.PASSWORD
    assert "hunter" not in str(dataclasses.asdict(described))
    assert [synonym.source for synonym in described.synonyms] == [
        ValueSource.DYNAMIC_BROKER,
        ValueSource.STATIC_BROKER,
    ]


def test_values_are_described_in_the_way_of_kafka() -> None:
    configs = image(topic={"preallocate": "TRUE", "min.cleanable.dirty.ratio": "1", "retention.ms": " 77 "})
    own = ValueSource.DYNAMIC_TOPIC
    values = {one.name: one.value for one in configs.describe_topic("orders") if one.source is own}
    assert values == {"preallocate": "true", "min.cleanable.dirty.ratio": "1.0", "retention.ms": "77"}


def test_an_internal_setting_is_told_where_it_is_set_and_stands_for_another() -> None:
    configs = image(topic={"internal.segment.bytes": "100"})
    assert configs.topic_config("orders").segment_bytes == 100
    assert entry(configs, TOPIC, "internal.segment.bytes").value == "100"
    assert entry(configs, TOPIC, "segment.bytes").value == "1073741824"


def test_what_kafka_3_9_allowed_holds_where_it_is_set_and_cannot_be_set_any_more() -> None:
    name = "segment.bytes"
    configs = image({"log.segment.bytes": "70000"}, topic={name: "60000"})
    assert configs.problems(TOPIC) == []
    assert configs.topic_config("orders").segment_bytes == 60_000
    assert entry(configs, TOPIC, name).value == "60000"
    assert configs.topic_config("others").segment_bytes == 70_000
    kept = configs.incremental_alter(TOPIC, [SettingChange("retention.ms", SET, "5")])
    assert kept == {name: "60000", "retention.ms": "5"}
    with pytest.raises(ApiError, match="at least 1048576"):
        configs.incremental_alter(TOPIC, [SettingChange(name, SET, "60000")])
    with pytest.raises(ApiError, match="at least 1048576"):
        configs.alter(DEFAULT_BROKER, {"log.segment.bytes": "60000"})
    below = image(topic={name: "13"})
    assert below.problems(TOPIC) == ["segment.bytes=13: must be at least 14"]
    assert below.topic_config("orders").segment_bytes == 1_073_741_824


@pytest.mark.parametrize("static", [{}, {"min.insync.replicas": "2"}])
def test_all_brokers_agree_on_the_replicas_that_must_be_in_sync(static: dict[str, str]) -> None:
    value = static.get("min.insync.replicas", "1")
    for resource in (TOPIC, BROKER, DEFAULT_BROKER):
        (described,) = image(static).describe(resource, ["min.insync.replicas"], synonyms=True)
        assert (described.value, described.source) == (value, ValueSource.DYNAMIC_DEFAULT_BROKER)
    assert image(static).topic_config("orders").min_insync_replicas == int(value)
    changed = image(static, cluster={"min.insync.replicas": "3"})
    assert changed.topic_config("orders").min_insync_replicas == 3
    for resource, operation in (
        (BROKER, SET),
        (BROKER, DELETE),
        (DEFAULT_BROKER, DELETE),
    ):
        with pytest.raises(ApiError) as caught:
            changed.incremental_alter(resource, [SettingChange("min.insync.replicas", operation, "2")])
        assert caught.value.code is ErrorCode.INVALID_CONFIG
    for alter in (
        lambda: changed.alter(BROKER, {"min.insync.replicas": "true"}),
        lambda: changed.incremental_alter(BROKER, [SettingChange("min.insync.replicas", SET, "true")]),
    ):
        with pytest.raises(ApiError) as caught:
            alter()
        assert caught.value.code is ErrorCode.INVALID_REQUEST, "a value that is none comes first"


def test_what_has_no_effect_is_taken_and_told_and_says_so() -> None:
    assert image().incremental_alter(DEFAULT_BROKER, [SettingChange("num.io.threads", SET, "4")]) == {
        "num.io.threads": "4"
    }
    (described,) = image(cluster={"num.io.threads": "4"}).describe(BROKER, ["num.io.threads"], documentation=True)
    assert (described.value, described.source) == ("4", ValueSource.DYNAMIC_DEFAULT_BROKER)
    assert described.documentation is not None
    assert "Has no effect here" in described.documentation


def test_the_default_of_all_brokers_is_only_what_was_set() -> None:
    described = image({"num.partitions": "3"}, cluster={"max.connections": "5"}).describe(DEFAULT_BROKER)
    assert [(one.name, one.value) for one in described] == [("min.insync.replicas", "1"), ("max.connections", "5")]
    assert all(one.source is ValueSource.DYNAMIC_DEFAULT_BROKER for one in described)


def test_a_group_is_described() -> None:
    configs = image(group={"consumer.session.timeout.ms": "50000"})
    served = [one for one in configs.describe(GROUP) if not GROUP_SETTINGS[one.name].no_effect]
    assert {one.name: (one.value, int(one.source)) for one in served} == {
        "consumer.assignment.interval.ms": ("1000", 5),
        "consumer.heartbeat.interval.ms": ("5000", 5),
        "consumer.session.timeout.ms": ("50000", 8),
    }


def test_types_and_sources_have_the_numbers_of_the_wire() -> None:
    assert {kind.name: kind.number for kind in Kind} == {
        "BOOLEAN": 1,
        "STRING": 2,
        "INT": 3,
        "SHORT": 4,
        "LONG": 5,
        "DOUBLE": 6,
        "LIST": 7,
        "CLASS": 8,
        "PASSWORD": 9,
    }
    assert [int(source) for source in ValueSource] == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("resource", "complaint"),
    [
        (ConfigScope(4, "2"), "this is broker 1 and not 2"),
        (ConfigScope(4, "x"), "this is broker 1 and not x"),
        (ConfigScope(8, "1"), "levels of loggers are changed one by one"),
        (ConfigScope(16, "m"), "resources of type CLIENT_METRICS have no configuration here"),
        (ConfigScope(77, "1"), "unknown resource type 77"),
    ],
)
def test_resources_that_have_no_configuration_here_are_refused(resource: ConfigScope, complaint: str) -> None:
    for ask in (image().describe, lambda one: image().alter(one, {}), lambda one: image().incremental_alter(one, [])):
        with pytest.raises(ApiError) as caught:
            ask(resource)
        assert caught.value.code is ErrorCode.INVALID_REQUEST
        assert complaint in caught.value.message


# -- changes -----------------------------------------------------------------------------------------------------------


def test_altering_replaces_all_that_was_set() -> None:
    configs = image(topic={"retention.ms": "1", "segment.ms": "2"})
    assert configs.alter(TOPIC, {"retention.ms": "3"}) == {"retention.ms": "3"}
    assert configs.alter(TOPIC, {}) == {}
    assert configs.topic_config("orders").segment_ms == 2


def test_incremental_changes_leave_the_rest() -> None:
    configs = image(topic={"retention.ms": "1", "segment.ms": "2"})
    changes = [SettingChange("retention.ms", SET, "3"), SettingChange("segment.ms", DELETE)]
    assert configs.incremental_alter(TOPIC, changes) == {"retention.ms": "3"}
    assert configs.incremental_alter(TOPIC, []) == configs.overrides_of(TOPIC)


def test_deleting_what_was_not_set_changes_nothing() -> None:
    assert image().incremental_alter(TOPIC, [SettingChange("nonsense", DELETE)]) == {}


def test_lists_grow_and_shrink_from_what_holds() -> None:
    def changed(configs: DynamicConfigs, resource: ConfigScope, name: str, operation: int, value: str) -> str:
        return configs.incremental_alter(resource, [SettingChange(name, operation, value)])[name]

    assert changed(image(), TOPIC, "cleanup.policy", APPEND, "compact") == "delete,compact"
    assert changed(image(), BROKER, "log.cleanup.policy", APPEND, "compact") == "delete,compact"
    both = image(topic={"cleanup.policy": "compact,delete"})
    assert changed(both, TOPIC, "cleanup.policy", APPEND, "delete") == "compact,delete"
    assert changed(both, TOPIC, "cleanup.policy", SUBTRACT, "delete") == "compact"
    assert changed(both, TOPIC, "cleanup.policy", SUBTRACT, "compact,delete") == ""
    assert changed(both, TOPIC, "cleanup.policy", SUBTRACT, "no such policy") == "compact,delete"
    cluster = image(cluster={"log.cleanup.policy": "compact"})
    assert changed(cluster, TOPIC, "cleanup.policy", APPEND, "delete") == "compact,delete"


def test_values_are_kept_in_the_way_of_kafka() -> None:
    settings = {"preallocate": "TRUE", "min.cleanable.dirty.ratio": "0.50", "retention.ms": " 77 "}
    assert image().alter(TOPIC, dict(settings)) == {
        "preallocate": "true",
        "min.cleanable.dirty.ratio": "0.5",
        "retention.ms": "77",
    }


@pytest.mark.parametrize(
    ("resource", "change", "code", "complaint"),
    [
        (TOPIC, ("retention.ms", SET, "abc"), "INVALID_CONFIG", "retention.ms=abc: must be a whole number"),
        (TOPIC, ("retention.ms", SET, "-2"), "INVALID_CONFIG", "retention.ms=-2: must be at least -1"),
        (TOPIC, ("retention.ms", SET, ""), "INVALID_CONFIG", "retention.ms=: must be a whole number"),
        (TOPIC, ("retention.msec", SET, "1"), "INVALID_CONFIG", "unknown setting; did you mean retention.ms?"),
        (TOPIC, ("log.retention.ms", SET, "1"), "INVALID_CONFIG", "log.retention.ms: unknown setting"),
        (TOPIC, ("retention.ms", SET, None), "INVALID_REQUEST", "retention.ms: a value is needed"),
        (TOPIC, ("retention.ms", 9, "1"), "INVALID_REQUEST", "retention.ms: unknown operation 9"),
        (TOPIC, ("retention.ms", APPEND, "1"), "INVALID_CONFIG", "retention.ms: APPEND works on lists; this is a long"),
        (TOPIC, ("nonsense", APPEND, "1"), "INVALID_CONFIG", "nonsense: unknown setting"),
        (TOPIC, ("cleanup.policy", APPEND, "forget"), "INVALID_CONFIG", "must be one of delete, compact"),
        (TOPIC, ("max.compaction.lag.ms", SET, "5"), "INVALID_CONFIG", "min.compaction.lag.ms=10: must not be larger"),
        (ConfigScope(2, ""), ("retention.ms", SET, "1"), "INVALID_REQUEST", "a topic must be named"),
        (BROKER, ("broker.id", SET, "4"), "INVALID_REQUEST", "broker.id: changes only with a restart"),
        (
            BROKER,
            ("log.retention.hours", SET, "4"),
            "INVALID_REQUEST",
            "log.retention.hours: changes only with a restart",
        ),
        (BROKER, ("max.connections", SET, "-4"), "INVALID_REQUEST", "max.connections=-4: must be at least 0"),
        (BROKER, ("max.conections", SET, "4"), "INVALID_CONFIG", "did you mean max.connections?"),
        (
            BROKER,
            ("replication.quota.window.num", SET, "4"),
            "INVALID_REQUEST",
            "this setting of Kafka has no effect here",
        ),
        (BROKER, ("log.cleaner.threads", SET, "999"), "INVALID_REQUEST", "log.cleaner.dedupe.buffer.size=134217728"),
        (DEFAULT_BROKER, ("ssl.key.password", SET, "x"), "INVALID_REQUEST", "ssl.key.password: is set for one broker"),
        (
            GROUP,
            ("consumer.session.timeout.ms", SET, "5"),
            "INVALID_CONFIG",
            "group.consumer.min.session.timeout.ms is",
        ),
        (
            GROUP,
            ("consumer.heartbeat.interval.ms", SET, "20000"),
            "INVALID_CONFIG",
            "max.heartbeat.interval.ms is 15000",
        ),
        (GROUP, ("share.session.timeout.ms", SET, "5"), "INVALID_CONFIG", "share.session.timeout.ms=5: must be at"),
        (ConfigScope(32, ""), ("consumer.session.timeout.ms", SET, "5"), "INVALID_REQUEST", "a group must be named"),
    ],
)
def test_a_change_that_cannot_be_is_refused_by_the_name_of_its_setting(
    resource: ConfigScope, change: tuple[str, int, str | None], code: str, complaint: str
) -> None:
    with pytest.raises(ApiError) as caught:
        image(topic={"min.compaction.lag.ms": "10"}).incremental_alter(resource, [SettingChange(*change)])
    assert caught.value.code is ErrorCode[code]
    assert complaint in caught.value.message


def test_a_setting_is_changed_once_in_a_request() -> None:
    with pytest.raises(ApiError) as caught:
        image().incremental_alter(TOPIC, [SettingChange("segment.ms", SET, "1"), SettingChange("segment.ms", DELETE)])
    assert refusal(caught) == (ErrorCode.INVALID_REQUEST, "segment.ms: is changed twice in one request")


def test_altering_with_one_bad_setting_is_refused_as_a_whole() -> None:
    with pytest.raises(ApiError) as caught:
        image().alter(TOPIC, {"retention.ms": "3", "segment.ms": "x"})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    with pytest.raises(ApiError) as caught:
        image().alter(TOPIC, {"retention.ms": None})
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_the_cluster_wide_default_and_one_broker_can_be_changed() -> None:
    changes = [SettingChange("log.retention.ms", SET, "5")]
    assert image().incremental_alter(DEFAULT_BROKER, changes) == {"log.retention.ms": "5"}
    assert image().incremental_alter(BROKER, changes) == {"log.retention.ms": "5"}
    assert image().incremental_alter(GROUP, [SettingChange("consumer.session.timeout.ms", SET, "50000")]) == {
        "consumer.session.timeout.ms": "50000"
    }


def test_a_lower_limit_of_the_broker_does_not_break_topics_that_were_fine() -> None:
    configs = image(topic={"min.compaction.lag.ms": "10"}, cluster={"log.cleaner.max.compaction.lag.ms": "5"})
    assert configs.topic_config("orders").max_compaction_lag_ms == 5


def test_a_refusal_repeats_no_more_than_a_reader_wants() -> None:
    long = "x" * 1_000_000
    for change in (SettingChange(long, SET, "1"), SettingChange("retention.ms", SET, long), SettingChange(long, SET)):
        with pytest.raises(ApiError) as caught:
            image().incremental_alter(TOPIC, [change])
        assert len(caught.value.message) < 400

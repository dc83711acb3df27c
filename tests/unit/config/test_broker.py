import pytest

from ottla.config import BrokerConfig, ConfigError, Endpoint, LogConfig, parse_properties

# What Kafka 3.9 ships for ZooKeeper mode, by its facts.
ZOOKEEPER_FILE = """
broker.id=0
#listeners=PLAINTEXT://:9092
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/var/lib/kafka
num.partitions=3
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
#log.retention.bytes=1073741824
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""

# What Kafka 4 ships for a broker that is its own controller, by its facts.
KRAFT_FILE = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/var/lib/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def load(**settings: str) -> BrokerConfig:
    """The configuration of settings given as keywords: `a_b="c"` is `a.b=c`."""
    config, warnings = BrokerConfig.load({name.replace("_", "."): text for name, text in settings.items()})
    assert warnings == []
    return config


def refusal(**settings: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(**settings)
    message = str(caught.value)
    assert "\n" not in message
    return message


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_file_of_zookeeper_mode_is_accepted_with_one_warning() -> None:
    config, warnings = BrokerConfig.load(parse_properties(ZOOKEEPER_FILE))
    assert warnings == [
        "settings of Kafka without effect here: num.io.threads, num.network.threads, num.recovery.threads.per.data.dir"
    ]
    assert (config.broker_id, config.node_id, config.num_partitions) == (0, 0, 3)
    assert config.log_directories == ("/var/lib/kafka",)
    assert config.zookeeper_connect == "localhost:2181"


def test_a_file_of_kraft_mode_is_accepted_with_one_warning_and_without_its_controller() -> None:
    config, warnings = BrokerConfig.load(parse_properties(KRAFT_FILE))
    assert len(warnings) == 1
    assert "process.roles" in warnings[0]
    assert "controller.quorum.bootstrap.servers" in warnings[0]
    assert config.node_id == config.broker_id == 1
    assert [str(endpoint) for endpoint in config.endpoints] == ["PLAINTEXT://:9092"]
    assert [str(endpoint) for endpoint in config.advertised_endpoints] == ["PLAINTEXT://localhost:9092"]
    assert config.inter_broker_listener == "PLAINTEXT"


def test_nothing_at_all_is_a_configuration() -> None:
    config = load()
    assert config == BrokerConfig()
    assert config.endpoints == (Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    assert config.log_directories == ("ottla-data",)


def test_notes_on_the_file_are_warnings() -> None:
    _, warnings = BrokerConfig.load(parse_properties("num.partitions=1\nnum.partitions=2\n"))
    assert warnings == ["server.properties: num.partitions is given in lines 1 and 2; the last one counts"]


def test_settings_per_listener_are_named_and_their_values_are_not() -> None:
    _, warnings = BrokerConfig.load({"listener.name.sasl.plain.sasl.jaas.config": "password=hunter2"})
    assert warnings == ["settings of Kafka without effect here: listener.name.sasl.plain.sasl.jaas.config"]


def test_an_unknown_setting_is_refused_with_its_line_and_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(parse_properties("# mine\nnum.partition=3\n"))
    assert str(caught.value) == (
        "server.properties, line 2: num.partition: unknown setting; did you mean num.partitions?"
    )


def test_a_bad_value_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(parse_properties("num.partitions=0\n"))
    assert str(caught.value) == "server.properties, line 1: num.partitions=0: must be at least 1"


def test_a_configuration_that_is_printed_shows_what_was_set_and_no_password() -> None:
    config, _ = BrokerConfig.load({"num.partitions": "4", "ssl.keystore.password": "hunter2"})
    assert repr(config) == "BrokerConfig(ssl_keystore_password=[hidden], num_partitions=4)"


# -- what follows from the settings ------------------------------------------------------------------------------------


def test_either_name_of_the_id_gives_both() -> None:
    assert load(broker_id="3").node_id == 3
    assert load(node_id="3").broker_id == 3
    assert load(node_id="3", broker_id="-1").broker_id == 3
    assert refusal(node_id="3", broker_id="4") == "broker.id=4 and node.id=3 differ: set one of them"


def test_topics_inherit_from_the_broker() -> None:
    assert load().topic_defaults == LogConfig()
    assert load(message_max_bytes="5", log_cleanup_policy="compact").topic_defaults == LogConfig(
        max_message_bytes=5, cleanup_policy=("compact",)
    )


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log_retention_hours": "2"}, 7_200_000),
        ({"log_retention_hours": "-1"}, -1),
        ({"log_retention_hours": "2", "log_retention_minutes": "3"}, 180_000),
        ({"log_retention_hours": "2", "log_retention_minutes": "-1"}, -1),
        ({"log_retention_hours": "2", "log_retention_minutes": "3", "log_retention_ms": "4"}, 4),
        ({"log_retention_hours": "2147483647"}, 2_147_483_647 * 3_600_000),
    ],
)
def test_the_finest_unit_of_retention_wins(settings: dict[str, str], retention_ms: int) -> None:
    assert load(**settings).topic_defaults.retention_ms == retention_ms


def test_rolling_and_flushing_have_fallbacks_too() -> None:
    assert load(log_roll_hours="1").topic_defaults.segment_ms == 3_600_000
    assert load(log_roll_hours="1", log_roll_ms="7").topic_defaults.segment_ms == 7
    assert load(log_roll_jitter_hours="1").topic_defaults.segment_jitter_ms == 3_600_000
    assert load(log_flush_scheduler_interval_ms="9").topic_defaults.flush_ms == 9
    assert load(log_flush_scheduler_interval_ms="9", log_flush_interval_ms="8").topic_defaults.flush_ms == 8


def test_several_directories_win_over_one() -> None:
    assert load(log_dir="/a").log_directories == ("/a",)
    assert load(log_dir="/a", log_dirs="/b, /c").log_directories == ("/b", "/c")


def test_limits_by_address_are_parsed() -> None:
    config = load(max_connections_per_ip_overrides="10.0.0.7:100, ::1:50,example.org:0")
    assert config.connections_per_ip_overrides == {"10.0.0.7": 100, "::1": 50, "example.org": 0}
    assert "must be a list of address:count" in refusal(max_connections_per_ip_overrides="10.0.0.7:100,foo")


# -- listeners ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("PLAINTEXT://:9092", "", 9092),
        ("PLAINTEXT://127.0.0.1:0", "127.0.0.1", 0),
        ("plaintext://broker-1.example.org:65535", "broker-1.example.org", 65535),
        ("PLAINTEXT://[::1]:9092", "::1", 9092),
    ],
)
def test_a_listener_is_a_name_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert load(listeners=text).endpoints == (Endpoint("PLAINTEXT", host, port, "PLAINTEXT"),)


def test_a_listener_is_written_as_it_is_read() -> None:
    texts = ["INSIDE://[fe80::1]:9092", "OUTSIDE://example.org:9093"]
    config = load(listeners=",".join(texts), listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT")
    assert [str(endpoint) for endpoint in config.endpoints] == texts
    assert config.inter_broker_listener == "INSIDE"


def test_ipv4_and_ipv6_may_share_a_name_and_a_port() -> None:
    assert len(load(listeners="PLAINTEXT://127.0.0.1:9092,PLAINTEXT://[::1]:9092").endpoints) == 2


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            {"listeners": "127.0.0.1:9092"},
            "listeners=127.0.0.1:9092: must be NAME://host:port, such as PLAINTEXT://127",
        ),
        ({"listeners": "PLAINTEXT://a"}, "must be NAME://host:port"),
        ({"listeners": "PLAINTEXT://::1:9092"}, "must be NAME://host:port"),
        ({"listeners": "PLAINTEXT://a:65536"}, "the port must be at most 65535"),
        ({"listeners": ""}, "listeners: the broker needs one"),
        (
            {"listeners": "INSIDE://:9092"},
            "listeners=INSIDE://:9092: no security protocol for INSIDE; "
            "add INSIDE:PLAINTEXT to listener.security.protocol.map",
        ),
        (
            {
                "listeners": "PLAINTEXT://a:1,B://b:1",
                "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
            },
            "listeners: PLAINTEXT://a:1 and B://b:1 have the same port",
        ),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://a:2"}, "have the same name"),
        ({"listeners": "SSL://a:1"}, "SSL://a:1: TLS needs a key and certificates"),
        (
            {"listeners": "PLAINTEXT://0.0.0.0:9092"},
            "PLAINTEXT://0.0.0.0:9092: clients cannot connect to 0.0.0.0; set advertised.listeners",
        ),
        ({"listeners": "PLAINTEXT://[::]:9092"}, "clients cannot connect to ::"),
        ({"advertised_listeners": "PLAINTEXT://0.0.0.0:9092"}, "clients cannot connect to 0.0.0.0"),
        (
            {"advertised_listeners": "SSL://a:9092"},
            "advertised.listeners=SSL://a:9092: there is no listener SSL; listeners has PLAINTEXT",
        ),
        ({"inter_broker_listener_name": "OTHER"}, "inter.broker.listener.name=OTHER: is not among the advertised"),
        ({"security_inter_broker_protocol": "SSL"}, "no listener speaks SSL, which brokers use among themselves"),
        (
            {"inter_broker_listener_name": "PLAINTEXT", "security_inter_broker_protocol": "PLAINTEXT"},
            "exclude each other",
        ),
        ({"listener_security_protocol_map": "A"}, "must be a list of NAME:PROTOCOL, and A is none"),
        ({"listener_security_protocol_map": "A:TELNET"}, "the protocol of A must be one of PLAINTEXT, SSL"),
        ({"listener_security_protocol_map": "A:SSL,A:PLAINTEXT"}, "A has two protocols"),
    ],
)
def test_listeners_that_cannot_work_are_refused_with_what_would(settings: dict[str, str], complaint: str) -> None:
    assert complaint in refusal(**settings)


def test_all_interfaces_are_fine_behind_an_advertised_address() -> None:
    config = load(listeners="PLAINTEXT://0.0.0.0:9092", advertised_listeners="PLAINTEXT://example.org:19092")
    assert [str(endpoint) for endpoint in config.advertised_endpoints] == ["PLAINTEXT://example.org:19092"]


# -- contradictions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"log_retention_ms": "0"}, "log.retention.ms=0: must be at least 1, or -1 for no limit"),
        (
            {"log_cleaner_dedupe_buffer_size": "2097152", "log_cleaner_threads": "3"},
            "log.cleaner.dedupe.buffer.size=2097152: must be at least 1048576 for each of log.cleaner.threads (3)",
        ),
        (
            {"log_cleaner_min_compaction_lag_ms": "10", "log_cleaner_max_compaction_lag_ms": "9"},
            "min.compaction.lag.ms=10: must not be larger than max.compaction.lag.ms (9)",
        ),
        (
            {"group_min_session_timeout_ms": "10", "group_max_session_timeout_ms": "9"},
            "group.min.session.timeout.ms=10: must not be larger than group.max.session.timeout.ms (9)",
        ),
        ({"group_consumer_session_timeout_ms": "70000"}, "group.consumer.session.timeout.ms=70000: must not be larger"),
        ({"group_consumer_heartbeat_interval_ms": "1"}, "group.consumer.min.heartbeat.interval.ms=5000: must not be"),
        ({"replica_fetch_wait_max_ms": "40000"}, "replica.fetch.wait.max.ms=40000: must not be larger than replica.s"),
        ({"replica_lag_time_max_ms": "400"}, "must not be larger than replica.lag.time.max.ms (400)"),
        ({"queued_max_request_bytes": "5"}, "must be at least socket.request.max.bytes (104857600), or -1"),
        ({"max_connections_per_ip": "0"}, "nobody can connect without max.connections.per.ip.overrides"),
        ({"log_dirs": "", "log_dir": ""}, "the broker needs a data directory"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, str], complaint: str) -> None:
    assert complaint in refusal(**settings)

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from ottla.net.login import SecureConnector
from ottla.spark import options, sink_options
from ottla.spark.option_reader import OptionError
from ottla.spark.security_options import Security

SECRET = "opensesame"
JAAS = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="{SECRET}";'
SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
LOGIN = {
    "kafka.security.protocol": "sasl_plaintext",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": JAAS,
}


def security(**given: str) -> Security | None:
    named = {name.replace("__", "."): value for name, value in given.items()}
    return sink_options.parse({**SERVERS, "topic": "out", **named}).security


def test_source_and_sink_take_the_settings_of_a_login() -> None:
    source = options.parse({**SERVERS, "subscribe": "orders", **LOGIN}, is_streaming=True)
    sink = sink_options.parse({**SERVERS, "topic": "out", **LOGIN})
    assert source.client.security == sink.security
    assert sink.security is not None
    assert source.ignored == sink.ignored == ()
    connector = sink.security.connector()
    assert isinstance(connector, SecureConnector)
    assert connector.credentials is not None
    assert (connector.credentials.username, connector.credentials.mechanism) == ("alice", "SCRAM-SHA-512")


def test_no_secret_is_shown_where_options_are_shown() -> None:
    source = options.parse({**SERVERS, "subscribe": "orders", **LOGIN}, is_streaming=True)
    sink = sink_options.parse({**SERVERS, "topic": "out", **LOGIN})
    assert SECRET not in repr(source) + repr(sink) + str(sink.security)
    assert "SASL_PLAINTEXT" in repr(sink)


def test_the_settings_reach_an_executor_whole() -> None:
    sent = security(**{name.replace(".", "__"): value for name, value in LOGIN.items()})
    assert pickle.loads(pickle.dumps(sent)) == sent


def test_without_a_protocol_the_settings_of_tls_are_accepted_and_mean_nothing() -> None:
    parsed = sink_options.parse({**SERVERS, "topic": "out", "kafka.ssl.truststore.location": "/nowhere"})
    assert parsed.security is None
    assert parsed.ignored == ()


def test_settings_of_java_alone_are_named_as_ignored() -> None:
    parsed = sink_options.parse(
        {**SERVERS, "topic": "out", "kafka.security.protocol": "SSL", "kafka.ssl.provider": "BC"}
    )
    assert parsed.ignored == ("kafka.ssl.provider",)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"kafka__security__protocol": "TLS"}, "kafka.security.protocol cannot be 'TLS': one of PLAINTEXT"),
        ({"kafka__security__protocol": "SASL_SSL"}, r"needs kafka\.sasl\.jaas\.config"),
        (
            {"kafka__security__protocol": "SASL_SSL", "kafka__sasl__mechanism": "GSSAPI"},
            "kafka.sasl.mechanism cannot be 'GSSAPI'",
        ),
        (
            {"kafka__security__protocol": "SASL_SSL", "kafka__sasl__mechanism": "OAUTHBEARER"},
            "OAUTHBEARER needs a function",
        ),
        (
            {"kafka__security__protocol": "SSL", "kafka__ssl__truststore__type": "JKS"},
            "kafka.ssl.truststore.type cannot be 'JKS': one of PEM, PKCS12",
        ),
    ],
)
def test_what_cannot_be_is_rejected_with_the_option_to_change(given: dict[str, str], match: str) -> None:
    with pytest.raises(OptionError, match=match):
        security(**given)


def test_a_login_that_is_no_login_is_rejected_without_repeating_it() -> None:
    wrong = security(**{**{n.replace(".", "__"): v for n, v in LOGIN.items()}, "kafka__sasl__jaas__config": SECRET})
    assert wrong is not None
    with pytest.raises(OptionError, match=r"kafka\.security\.protocol SASL_PLAINTEXT") as raised:
        wrong.connector()
    assert SECRET not in str(raised.value)


def test_a_file_that_is_not_here_is_named_before_anything_connects(tmp_path: Path) -> None:
    missing = security(kafka__security__protocol="SSL", kafka__ssl__truststore__location=str(tmp_path / "ca.pem"))
    assert missing is not None
    for use in (missing.check_files, missing.connector):
        with pytest.raises(
            OptionError, match=r"kafka\.ssl\.truststore\.location is .*ca\.pem, and .* has no such file"
        ):
            use()


def test_a_store_whose_name_says_pkcs12_is_one() -> None:
    found = security(kafka__security__protocol="SSL", kafka__ssl__truststore__location="/etc/trusted.p12")
    assert found is not None
    assert dict(found.settings)["ssl.truststore.type"] == "PKCS12"

"""A secured broker and its clients with every log at its lowest level: no secret is in a log, an error or an answer."""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, Consumer, Producer
from ottla.cli.main import main
from ottla.client.admin.configs import ConfigResource, ResourceType
from ottla.client.admin.users import ScramMechanism
from ottla.errors import OttlaError
from ottla.testing.broker import Broker
from ottla.testing.security import Security, password
from ottla.testing.token_issuer import TokenIssuer, jwks

AUDIT = "kafka.authorizer.logger"
WAIT_S = 60
ENCODER_SECRET, TOKEN_KEY, NEW_PASSWORD, STORE_PASSWORD = (
    "encoder-9431",
    "token-key-1187",
    "new-word-5512",
    "store-7743",
)


class Watched:
    """Everything that anybody could see of a run."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def failure(self, work: Callable[[], object]) -> None:
        """Work that must fail; what it says is kept."""
        with pytest.raises(OttlaError) as failed:
            work()
        error: BaseException | None = failed.value
        while error is not None:
            self.texts += [str(error), repr(error)]
            error = error.__cause__ or error.__context__


def write(settings: dict[str, Any]) -> None:
    with Producer(settings) as producer:
        producer.send("t", b"x").result(WAIT_S)


def test_no_secret_is_shown(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(1)
    for name in ("ottla", AUDIT, "asyncio"):
        caplog.set_level(1, name)
    issuer, stranger = TokenIssuer(), TokenIssuer()
    keys = tmp_path / "keys.json"
    keys.write_bytes(jwks(issuer))
    security = Security("SASL_SSL")
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "delegation.token.secret.key": TOKEN_KEY,
        "password.encoder.secret": ENCODER_SECRET,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    watched = Watched()
    now_s = int(time.time())
    good, bad = (each.token({"sub": "alice", "iat": now_s, "exp": now_s + 600}) for each in (issuer, stranger))
    with Broker(settings, security=security) as broker:
        admin_settings: dict[str, Any] = broker.client_settings("admin")
        with Admin(admin_settings) as admin:
            made = admin.create_delegation_token()
            admin.renew_delegation_token(made.hmac)
            watched.texts += [repr(made), repr(admin.describe_delegation_tokens()), repr(admin.settings)]
            admin.set_password("carol", NEW_PASSWORD, ScramMechanism.SCRAM_SHA_512)
            node = ConfigResource(ResourceType.BROKER, str(admin.describe_cluster().brokers[0].broker_id))
            admin.alter_config(node, {"ssl.truststore.password": STORE_PASSWORD})
            watched.texts.append(repr(admin.describe_config(node, with_synonyms=True, with_documentation=True)))
            watched.failure(lambda: admin.alter_config(node, {"ssl.keystore.password": STORE_PASSWORD}))
            watched.texts.append(repr(admin.describe_user_scram_credentials()))
            for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
                login = {**admin_settings, "sasl.mechanism": mechanism, "sasl.username": "admin"}
                del login["sasl.jaas.config"]
                write({**login, "sasl.password": password("admin")})
                wrong = {**login, "sasl.password": password("admin") + "-wrong"}
                watched.failure(lambda: write(wrong))  # noqa: B023 (called at once)
            by_bearer = {**admin_settings, "sasl.mechanism": "OAUTHBEARER"}
            del by_bearer["sasl.jaas.config"]
            watched.failure(lambda: write({**by_bearer, "sasl_token_provider": lambda: good}))  # alice has no right
            watched.failure(lambda: write({**by_bearer, "sasl_token_provider": lambda: bad}))
            hmac = base64.b64encode(made.hmac).decode()
            module = "org.apache.kafka.common.security.scram.ScramLoginModule"
            by_token = f'{module} required username="{made.token_id}" password="{hmac}" tokenauth="true";'
            write({**admin_settings, "sasl.jaas.config": by_token})
            watched.failure(lambda: write({**admin_settings, "sasl.jaas.config": by_token.replace(" tokenauth", " x")}))
            admin.expire_delegation_token(made.hmac)
        with Consumer({**admin_settings, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe(["t"])
            assert consumer.poll(WAIT_S)
            watched.texts += [repr(consumer.settings), repr(consumer)]
        broker_key = (Path(admin_settings["ssl.truststore.location"]).parent / "broker.pem").read_text().splitlines()[1]
        file = tmp_path / "admin.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in admin_settings.items()))
        monkeypatch.setenv("THE_PASSWORD", NEW_PASSWORD)
        where = ["-b", broker.bootstrap_servers, "--command-config", str(file)]
        for command in (
            ["users", "create", "dan", "--password-env", "THE_PASSWORD"],
            ["users", "list"],
            ["configs", "describe", "--broker", node.name, "--all", "--verbose"],
            ["configs", "describe", "--broker", node.name, "--all", "--json"],
        ):
            assert main([*command, *where]) == 0
        captured = capsys.readouterr()
        watched.texts += [captured.out, captured.err]
    seen = "\n".join([caplog.text, *watched.texts])
    secrets = [password(user) for user in ("admin", "alice", "bob")]
    secrets += [
        ENCODER_SECRET,
        TOKEN_KEY,
        NEW_PASSWORD,
        STORE_PASSWORD,
        good,
        bad,
        hmac,
        repr(made.hmac),
        made.hmac.hex(),
    ]
    secrets.append(broker_key)
    assert [secret for secret in secrets if secret in seen] == []
    # The log was listened to: logins and decisions are in it, with who, what, from where and why.
    denied = [
        record.getMessage() for record in caplog.records if record.name == AUDIT and record.levelno == logging.INFO
    ]
    assert any(
        "'User:alice' is Denied operation = DESCRIBE from host = 127.0.0.1 on resource = 'Topic:LITERAL:t'" in line
        and "no ACL allows it" in line
        for line in denied
    )
    assert any(record.name == AUDIT and "Allowed" in record.getMessage() for record in caplog.records)
    assert any("login by SCRAM-SHA-512 failed" in record.getMessage() for record in caplog.records)

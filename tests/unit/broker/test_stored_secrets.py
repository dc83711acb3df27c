"""Passwords that are changed while a broker runs: encrypted in the store, and nowhere to be seen."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.config.dynamic import AlterOperation
from ottla.errors import ErrorCode
from ottla.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.configs import (
    IncrementalAlterConfigsRequestAlterableConfig as AlterableConfig,
)
from ottla.protocol.messages.configs import (
    IncrementalAlterConfigsRequestAlterConfigsResource as AlterConfigsResource,
)
from ottla.security.password_encoder import PasswordEncoder
from ottla.store.api import Put
from ottla.testing.scene import Scene, perform

BROKER = 4
NAME = "ssl.keystore.password"
LISTENER_NAME = "listener.name.sasl_ssl.plain.sasl.jaas.config"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="hunter4";'
PATH = "/config/brokers/1"
SECRET = {"password.encoder.secret": "the secret of the encoder"}


async def alter(scene: Scene, name: str, value: str, *, validate_only: bool = False) -> Any:
    change = AlterableConfig(name=name, config_operation=AlterOperation.SET, value=value)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (answer,) = (await scene.ask(request, 1)).responses
    return answer


async def stored(scene: Scene) -> dict[str, str]:
    node = await scene.broker.store.get(PATH)
    return {} if node is None else json.loads(node.data)["config"]


def test_a_password_is_stored_encrypted_and_holds_after_a_restart(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")

    async def play(scene: Scene) -> None:
        assert not (await alter(scene, NAME, "hunter2")).error_code
        assert not (await alter(scene, LISTENER_NAME, JAAS)).error_code
        assert not (await alter(scene, "log.cleaner.threads", "2")).error_code
        assert scene.broker.config.ssl_keystore_password == "hunter2"
        found = await stored(scene)
        assert found["log.cleaner.threads"] == "2"
        encoder = PasswordEncoder(SECRET["password.encoder.secret"])
        assert (encoder.decode(found[NAME]), encoder.decode(found[LISTENER_NAME])) == ("hunter2", JAAS)
        assert "hunter" not in json.dumps(found)
        described = await scene.ask(
            DescribeConfigsRequest(
                resources=[DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)],
                include_synonyms=True,
            ),
            4,
        )
        assert "hunter" not in repr(described)
        assert SECRET["password.encoder.secret"] not in repr(described)
        await scene.restart()
        assert scene.broker.config.ssl_keystore_password == "hunter2"
        assert scene.broker.config.listener_overrides[LISTENER_NAME] == JAAS
        for secret in ("hunter", SECRET["password.encoder.secret"]):
            assert secret not in caplog.text

    perform(play, SECRET)


def test_without_a_secret_no_password_is_taken_and_others_are() -> None:
    async def play(scene: Scene) -> None:
        for validate_only in (True, False):
            refused = await alter(scene, NAME, "hunter2", validate_only=validate_only)
            assert refused.error_code == ErrorCode.INVALID_REQUEST
            assert "password.encoder.secret" in refused.error_message
            assert "hunter2" not in refused.error_message
        assert not (await alter(scene, "log.cleaner.threads", "2")).error_code
        assert NAME not in await stored(scene)

    perform(play)


def test_what_cannot_be_decrypted_has_no_effect_and_what_was_stored_before_still_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play(scene: Scene) -> None:
        assert not (await alter(scene, "log.cleaner.threads", "2")).error_code
        foreign = PasswordEncoder("another secret").encode("hunter2", bytes(256), bytes(16))
        old = PasswordEncoder("the secret before").encode("hunter3", bytes(256), bytes(16))
        config = {
            NAME: foreign,
            "ssl.truststore.password": old,
            "ssl.key.password": "hunter4",
            "log.cleaner.threads": "3",
        }
        await scene.broker.store.commit(Put(PATH, json.dumps({"version": 1, "config": config}).encode()))
        await scene.restart()
        held = scene.broker.config
        assert (held.ssl_keystore_password, held.ssl_truststore_password, held.ssl_key_password) == (
            None,
            "hunter3",
            "hunter4",
        )
        assert held.log_cleaner_threads == 3
        assert f"{NAME} of" in caplog.text
        assert "hunter" not in caplog.text
        assert not (await alter(scene, "log.cleaner.threads", "1")).error_code
        assert "hunter" not in json.dumps(await stored(scene)), "encrypted with the next change"

    perform(play, {**SECRET, "password.encoder.old.secret": "the secret before"})

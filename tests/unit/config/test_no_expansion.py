"""Values are what they say: nothing in them is replaced by a file or a variable of the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.client.settings import AdminSettings
from ottla.config import BrokerConfig, parse_properties
from ottla.config.jaas import PLAIN_MODULE, parse_jaas


@pytest.mark.parametrize("kind", ["env:OTTLA_SECRET", "file:{file}:key", "directory:{directory}:file", "OTTLA_SECRET"])
def test_cve_2024_31141_no_value_is_expanded(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_SECRET", "hunter2")
    file = tmp_path / "file"
    file.write_text("key=hunter2\n")
    value = "${" + kind.format(file=file, directory=tmp_path) + "}"
    providers = "config.providers=env,file\nconfig.providers.env.class=EnvVarConfigProvider\n"
    config, _ = BrokerConfig.load(parse_properties(f"super.users={value}\n{providers}"))
    assert config.super_users == value
    entry = parse_jaas("setting", f'{PLAIN_MODULE} required user_a="{value}";', "PLAIN")
    assert entry.users == {"a": value}
    settings = AdminSettings.read(
        {
            "bootstrap.servers": "127.0.0.1:1",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": value,
            "sasl.password": value,
        }
    )
    assert settings.sasl_password == value

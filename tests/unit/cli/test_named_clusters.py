"""Clusters by name, and which cluster a command means."""

from __future__ import annotations

import argparse
import json
import stat
from pathlib import Path

import pytest

from ottla.cli.command import CommandError, ExitCode
from ottla.cli.main import make_parser
from ottla.cli.named_clusters import NamedClusters, clusters_file, read_clusters, write_clusters
from ottla.cli.remote import client_settings, target_of

PRODUCTION = {
    "bootstrap.servers": "broker.example.org:9093",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": 'a "word" with \\ and =, \u20ac, \U0001f600',
}


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("OTTLA_BOOTSTRAP_SERVERS", "OTTLA_COMMAND_CONFIG", "OTTLA_CLUSTER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=bob\nsasl.password=bob-secret\n"
    )
    return path


def parsed(*arguments: object) -> argparse.Namespace:
    return make_parser().parse_args(["topics", "list", *map(str, arguments)])


def test_what_was_written_is_read_and_nobody_else_can_read_it():
    written = NamedClusters({"production": PRODUCTION, "a.b c": {"bootstrap.servers": "x:1"}}, "production")
    write_clusters(written)
    assert read_clusters() == written
    assert stat.S_IMODE(clusters_file().stat().st_mode) == 0o600
    assert stat.S_IMODE(clusters_file().parent.stat().st_mode) == 0o700


def test_a_file_that_others_may_read_is_refused():
    write_clusters(NamedClusters({"production": PRODUCTION}))
    clusters_file().chmod(0o640)
    with pytest.raises(CommandError, match="others may read it, and it may hold passwords; run chmod 600"):
        read_clusters()


@pytest.mark.parametrize("text", ["clusters = [", "clusters = 3", "clusters.a = 3", "\x00"])
def test_a_file_that_cannot_be_read_is_named(text):
    write_clusters(NamedClusters())
    clusters_file().write_text(text)
    with pytest.raises(CommandError, match=r"clusters\.toml: "):
        read_clusters()


def test_names_may_be_written_without_quotes_by_hand():
    write_clusters(NamedClusters())
    clusters_file().write_text('[clusters.here]\nbootstrap.servers = "x:1"\nssl.check = true\nrequest.timeout.ms = 5\n')
    assert read_clusters().get("here") == {
        "bootstrap.servers": "x:1",
        "ssl.check": "true",
        "request.timeout.ms": "5",
    }


def test_a_list_of_addresses_is_what_their_text_would_be():
    write_clusters(NamedClusters())
    clusters_file().write_text('[clusters.a]\n"bootstrap.servers" = ["b1:9092", "b2:9092"]')
    assert read_clusters().get("a") == {"bootstrap.servers": "b1:9092,b2:9092"}


def test_a_name_with_a_typo_gets_a_suggestion(ottla):
    write_clusters(NamedClusters())
    clusters_file().write_text('[clusters.production]\n"bootstrap.servers" = "b1:9092"')
    assert ottla("cluster", "use", "prodution").err.endswith("; did you mean `production`?\n")


def test_secrets_are_in_no_representation():
    assert "word" not in repr(NamedClusters({"production": PRODUCTION}))
    write_clusters(NamedClusters({"production": PRODUCTION}))
    assert "word" not in repr(target_of(parsed("--cluster", "production")))


# -- which cluster is meant --------------------------------------------------------------------------------------------


def test_without_anything_it_is_the_one_on_this_machine():
    target = target_of(parsed())
    assert (target.bootstrap_servers, dict(target.settings)) == ("127.0.0.1:9092", {})


def test_the_current_cluster_is_meant_and_its_user_logs_in():
    write_clusters(NamedClusters({"production": PRODUCTION}, "production"))
    settings = client_settings(parsed())
    assert settings["bootstrap_servers"] == PRODUCTION["bootstrap.servers"]
    assert (settings["sasl_username"], settings["sasl_password"]) == ("alice", PRODUCTION["sasl.password"])


def test_an_address_that_is_given_never_gets_the_password_of_the_current_cluster(monkeypatch):
    write_clusters(NamedClusters({"production": PRODUCTION}, "production"))
    assert dict(target_of(parsed("-b", "other:9092")).settings) == {}
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "another:9092")
    target = target_of(parsed())
    assert (target.bootstrap_servers, dict(target.settings)) == ("another:9092", {})


def test_a_name_in_the_command_counts_over_the_environment_and_the_environment_over_the_file(monkeypatch):
    write_clusters(NamedClusters({name: {"bootstrap.servers": f"{name}:1"} for name in ("a", "b", "c")}, "a"))
    assert target_of(parsed()).bootstrap_servers == "a:1"
    monkeypatch.setenv("OTTLA_CLUSTER", "b")
    assert target_of(parsed()).bootstrap_servers == "b:1"
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "elsewhere:1")
    assert target_of(parsed("--cluster", "c")).bootstrap_servers == "c:1"
    assert target_of(parsed("--cluster", "c", "-b", "d:1")).bootstrap_servers == "d:1"


def test_a_file_counts_in_place_of_the_settings_of_the_cluster_and_a_variable_over_both(properties, monkeypatch):
    write_clusters(NamedClusters({"production": PRODUCTION}, "production"))
    target = target_of(parsed("--command-config", properties))
    assert target.bootstrap_servers == PRODUCTION["bootstrap.servers"]
    assert (target.settings["sasl.username"], target.settings["sasl.password"]) == ("bob", "bob-secret")
    monkeypatch.setenv("OTTLA_SASL_PASSWORD", "from a variable")
    assert client_settings(parsed("--command-config", properties))["sasl_password"] == "from a variable"
    assert client_settings(parsed())["sasl_password"] == "from a variable"


def test_what_is_wrong_with_settings_says_where_they_stand(ottla, monkeypatch):
    write_clusters(NamedClusters({"production": {**PRODUCTION, "sasl.mechanism": "GSSAPI"}}))
    refused = ottla("topics", "list", "--cluster", "production")
    assert refused.code == ExitCode.USAGE
    assert f"cluster production of {clusters_file()}: " in refused.err
    assert "word" not in refused.err
    missing = ottla("topics", "list", "--cluster", "staging")
    assert (missing.code, "there is no cluster staging" in missing.err) == (ExitCode.NOT_FOUND, True)


# -- the command -------------------------------------------------------------------------------------------------------


def test_clusters_are_added_used_listed_and_removed(ottla, properties, tmp_path):
    added = ottla("cluster", "add", "production", "-b", "x:1", "--command-config", properties)
    assert added.out == f"production is kept in {clusters_file()}, which only you can read\n"
    assert ottla("cluster", "add", "local", "-b", "127.0.0.1:9092", "--use").code == ExitCode.OK
    listed = ottla("cluster", "list")
    assert [line.split() for line in listed.lines[1:]] == [
        ["local", "127.0.0.1:9092", "PLAINTEXT", "yes"],
        ["production", "x:1", "SASL_PLAINTEXT", "-"],
    ]
    assert ottla("cluster", "use", "production").out == "commands use production from now on\n"
    assert [json.loads(line) for line in ottla("cluster", "list", "--json").lines][1] == {
        "name": "production",
        "bootstrap_servers": "x:1",
        "security_protocol": "SASL_PLAINTEXT",
        "is_current": True,
    }
    assert ottla("cluster", "remove", "production").out == "removed production\n"
    assert read_clusters() == NamedClusters({"local": {"bootstrap.servers": "127.0.0.1:9092"}})
    assert ottla("cluster", "use", "production").code == ExitCode.NOT_FOUND


def test_a_name_that_is_taken_is_changed_only_on_request(ottla):
    ottla("cluster", "add", "here", "-b", "x:1")
    assert "--replace changes it" in ottla("cluster", "add", "here", "-b", "y:1").err
    assert ottla("cluster", "add", "here", "-b", "y:1", "--replace").code == ExitCode.OK
    assert read_clusters().get("here") == {"bootstrap.servers": "y:1"}


def test_files_are_found_from_every_directory_and_what_is_wrong_is_found_at_once(ottla, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "tls.properties"
    file.write_text("security.protocol=SSL\nssl.truststore.location=ca.pem\n")
    refused = ottla("cluster", "add", "tls", "-b", "x:1", "--command-config", file)
    assert (refused.code, "ca.pem" in refused.err) == (ExitCode.USAGE, True)
    file.write_text("security.protocol=PLAINTEXT\nssl.truststore.location=ca.pem\n")
    assert ottla("cluster", "add", "tls", "-b", "x:1", "--command-config", file).code == ExitCode.OK
    assert read_clusters().get("tls")["ssl.truststore.location"] == str(tmp_path / "ca.pem")


def test_without_an_action_the_command_shows_the_brokers(ottla):
    assert "127.0.0.1:1: no connection" in ottla("cluster", "-b", "127.0.0.1:1").err

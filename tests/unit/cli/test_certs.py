"""`ottla certs create`: names that are no names of files, hosts that are none, and an authority that is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.command import ExitCode


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--broker", "ca=localhost"), "the authority's own"),  # its file would replace ca.pem
        (("--client", "ca"), "the authority's own"),
        (("--broker", "../b=localhost"), "'../b'"),
        (("--client", "/tmp/b"), "'/tmp/b'"),
        (("--broker", "=localhost"), "''"),
        (("--client", ""), "''"),
        (("--client", "."), "'.'"),
        (("--client", "x" * 65), "up to 64"),
        (("--broker", "b=localhost,"), "'' is not a host name"),
        (("--broker", "b="), "'' is not a host name"),
        (("--broker", "b=999.1.1.1"), "'999.1.1.1' is not a host name"),
        (("--broker", "b=h\xe9"), "is not a host name"),
        (("--broker", "b=a b"), "'a b' is not a host name"),
        (("--broker", "b", "--client", "b"), "the same name"),
        (("--client", "b", "--days", "99999999"), "--days 99999999"),
    ],
)
def test_what_cannot_be_made_is_refused_before_anything_is_written(ottla, tmp_path: Path, arguments, words) -> None:
    result = ottla("certs", "create", str(tmp_path / "certs"), *arguments)
    assert (result.code, words in result.err) == (ExitCode.USAGE, True), result.err
    assert not (tmp_path / "certs").exists()


def test_names_and_hosts_of_every_kind(ottla, tmp_path: Path) -> None:
    hosts = "localhost,*.example.org,10.0.0.7,::1,broker_1"
    result = ottla("certs", "create", str(tmp_path), "--broker", f"b1={hosts}", "--client", "j.d@x")
    assert result.code == ExitCode.OK
    assert {each.name for each in tmp_path.iterdir()} == {"ca.key", "ca.pem", "b1.pem", "j.d@x.pem"}


def test_an_authority_that_cannot_be_read_is_named(ottla, tmp_path: Path) -> None:
    (tmp_path / "ca.key").write_text("hello")
    result = ottla("certs", "create", str(tmp_path), "--client", "a")
    assert result.code != ExitCode.OK
    assert "Traceback" not in result.err
    assert f"{tmp_path / 'ca.key'} and" in result.err

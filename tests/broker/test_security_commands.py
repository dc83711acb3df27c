"""`ottla users` and `ottla acls` on a broker with logins and ACLs: what they print, and what it changes for clients."""

from __future__ import annotations

import getpass
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import Producer
from ottla.cli.command import ExitCode
from ottla.cli.main import main
from ottla.client.error_codes import TopicAuthorizationFailedError
from ottla.testing.broker import Broker
from ottla.testing.security import Security, password

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


Run = Callable[..., Any]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(AUTHORIZED, security=Security("SASL_PLAINTEXT")) as broker:
        yield broker


@pytest.fixture
def run(broker: Broker, tmp_path: Path, run_command: Run) -> Run:
    file = tmp_path / "admin.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in broker.client_settings("admin").items()))

    return lambda *arguments: run_command(*arguments, "-b", broker.bootstrap_servers, "--command-config", file)


@pytest.fixture
def no_rules(run: Run) -> None:
    assert run("acls", "remove", "--all").code == ExitCode.OK


def writes(broker: Broker, user: str, word: str, mechanism: str, topic: str) -> bool:
    """Whether a user who logs in so may write to a topic; raises where the login fails."""
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": word,
    }
    with Producer(settings) as producer:
        try:
            producer.send(topic, b"value").result()
        except TopicAuthorizationFailedError:
            return False
    return True


# -- users -------------------------------------------------------------------------------------------------------------


def test_a_user_is_created_logs_in_gets_another_password_and_is_deleted(
    broker: Broker, run: Run, no_rules: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("THE_PASSWORD", "first word")
    created = run("users", "create", "carol", "--password-env", "THE_PASSWORD", "--json")
    assert created.documents == [{"user": "carol", "credentials": [{"mechanism": "SCRAM-SHA-512", "iterations": 4096}]}]
    run("acls", "add", "carol", "--role", "producer", "--topic", "t")
    assert writes(broker, "carol", "first word", "SCRAM-SHA-512", "t")

    file = tmp_path / "password"
    file.write_text("second word\nnot a part of it\n")
    again = run("users", "create", "carol", "--password-file", str(file))
    assert (again.code, again.err) == (
        ExitCode.REFUSED,
        "ottla: user carol exists already; `ottla users alter` changes the password\n",
    )
    altered = run(
        "users",
        "alter",
        "carol",
        *("--password-file", str(file)),
        *("--mechanism", "SCRAM-SHA-256"),
        *("--iterations", "8192"),
    )
    assert [line.split() for line in altered.out.splitlines()] == [
        ["USER", "MECHANISM", "ITERATIONS"],
        ["carol", "SCRAM-SHA-256", "8,192"],
        ["carol", "SCRAM-SHA-512", "4,096"],
    ]
    assert altered.err == "ottla: warning: the password for SCRAM-SHA-512 is still the old one\n"
    assert writes(broker, "carol", "second word", "SCRAM-SHA-256", "t")
    assert {each["user"] for each in run("users", "list", "--json").documents} >= {"admin", "alice", "bob", "carol"}

    assert run("users", "delete", "carol").out == "deleted carol\n"
    assert "carol" not in run("users", "list").out
    gone = run("users", "delete", "carol")
    assert (gone.code, "there is no user carol" in gone.err) == (ExitCode.NOT_FOUND, True)
    assert run("users", "alter", "carol", "--password-env", "THE_PASSWORD").code == ExitCode.NOT_FOUND


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "code"),
    [(["word", "word"], ExitCode.OK), (["word", "other"], ExitCode.USAGE), (["", ""], ExitCode.USAGE)],
)
def test_a_password_is_asked_for_twice(
    run: Run, monkeypatch: pytest.MonkeyPatch, typed: list[str], code: ExitCode
) -> None:
    monkeypatch.setattr("sys.stdin", _Terminal())
    monkeypatch.setattr(getpass, "getpass", lambda prompt: typed.pop(0))
    assert run("users", "alter", "bob", "--mechanism", "SCRAM-SHA-256").code == code


def test_without_a_terminal_a_password_comes_from_elsewhere(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe\n"))
    refused = run("users", "create", "dan")
    assert refused.code == ExitCode.USAGE
    assert "there is no terminal to ask for the password; give --password-file" in refused.err
    assert run("users", "create", "dan", "--password-file", "-").code == ExitCode.OK
    assert run("users", "delete", "dan").code == ExitCode.OK


def rows(done: Any) -> list[list[str]]:
    """The lines of a table, without the titles."""
    return [line.split() for line in done.out.splitlines()[1:]]


# -- ACLs --------------------------------------------------------------------------------------------------------------


def test_a_role_gives_what_it_needs_and_no_more(broker: Broker, run: Run, no_rules: None) -> None:
    assert not writes(broker, "alice", password("alice"), "SCRAM-SHA-512", "orders")
    added = run(
        "acls", "add", "alice", "--role", "producer", "--topic", "orders", "--transactional-id", "tx-", "--prefixed"
    )
    assert rows(added) == [
        ["allow", "User:alice", "write", "topic", "orders", "prefixed", "*"],
        ["allow", "User:alice", "create", "topic", "orders", "prefixed", "*"],
        ["allow", "User:alice", "write", "transactional-id", "tx-", "prefixed", "*"],
    ]
    assert writes(broker, "alice", password("alice"), "SCRAM-SHA-512", "orders-1")
    assert not writes(broker, "alice", password("alice"), "SCRAM-SHA-512", "other")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("alice", "--role", "consumer", "--topic", "t"), "a consumer needs --group"),
        (("alice", "--role", "producer", "--topic", "t", "--group", "g"), "a producer has nothing to do with --group"),
        (("alice", "--operation", "read"), "no resource is named"),
        (("alice", "--operation", "fly", "--topic", "t"), "'fly' is not an operation; there are all, read, write"),
    ],
)
def test_what_is_missing_is_named(run: Run, arguments: tuple[str, ...], words: str) -> None:
    refused = run("acls", "add", *arguments)
    assert refused.code == ExitCode.USAGE
    assert words in refused.err


def test_a_check_names_the_rule_that_decides(run: Run, no_rules: None) -> None:
    denied = run("acls", "check", "alice", "read", "topic:orders")
    assert (denied.code, denied.out) == (
        ExitCode.REFUSED,
        "denied: User:alice read topic orders: no ACL allows it\n",
    )
    run("acls", "add", "alice", "--role", "consumer", "--topic", "orders", "--group", "billing")
    allowed = run("acls", "check", "alice", "describe", "topic:orders", "--json")
    assert allowed.code == ExitCode.OK
    assert allowed.documents == [
        {
            "principal": "User:alice",
            "operation": "DESCRIBE",
            "resource_type": "TOPIC",
            "resource_name": "orders",
            "host": "127.0.0.1",
            "is_allowed": True,
            "rule": "ALLOW User:alice from * to READ Topic:LITERAL:orders",
        }
    ]
    run("acls", "add", "*", "--operation", "read", "--topic", "ord", "--prefixed", "--deny", "--host", "10.0.0.1")
    assert run("acls", "check", "alice", "read", "topic:orders").code == ExitCode.OK
    from_there = run("acls", "check", "alice", "read", "topic:orders", "--host", "10.0.0.1")
    assert from_there.out.endswith("DENY User:* from 10.0.0.1 to READ Topic:PREFIXED:ord\n")
    assert run("acls", "check", "admin", "alter", "cluster").out.endswith(": super user\n")
    assert run("acls", "check", "alice", "read", "orders").code == ExitCode.USAGE


def test_rules_are_listed_and_removed_by_what_they_are_about(run: Run, no_rules: None) -> None:
    run("acls", "add", "alice", "--role", "consumer", "--topic", "orders", "--group", "billing")
    run("acls", "add", "bob", "--operation", "write", "--topic", "ord", "--prefixed")
    run("acls", "add", "carol", "--role", "admin")
    assert len(rows(run("acls", "list", "--principal", "carol"))) == 6
    matching = rows(run("acls", "list", "--topic", "orders", "--pattern", "match"))
    assert matching == [
        ["allow", "User:carol", "all", "topic", "*", "literal", "*"],
        ["allow", "User:bob", "write", "topic", "ord", "prefixed", "*"],
        ["allow", "User:alice", "read", "topic", "orders", "literal", "*"],
    ]
    careless = run("acls", "remove")
    assert (careless.code, "name the rules to remove, or give --all" in careless.err) == (ExitCode.USAGE, True)
    assert run("acls", "remove", "--principal", "carol", "--all").code == ExitCode.USAGE
    removed = run("acls", "remove", "--principal", "alice", "--json").documents
    assert [each["resource_type"] for each in removed] == ["TOPIC", "GROUP"]
    assert "User:alice" not in run("acls", "list").out
    assert run("acls", "remove", "--topic", "nothing").out == ""


def test_a_broker_without_an_authorizer_says_what_to_set(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        code = main(["acls", "list", "-b", broker.bootstrap_servers])
    assert code == ExitCode.REFUSED
    assert "authorizer.class.name" in capsys.readouterr().err

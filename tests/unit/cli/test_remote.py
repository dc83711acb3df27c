"""Arguments that lead to a broker, and words for what goes wrong on the way."""

from __future__ import annotations

import socket

import pytest

from ottla.cli.arguments import parse_assignment, parse_headers, parse_settings
from ottla.cli.command import CommandError, ExitCode
from ottla.cli.main import make_parser
from ottla.cli.places import Kind, Place, parse_place
from ottla.cli.remote import command_error
from ottla.client.errors import TimedOutError
from ottla.client.offsets import OffsetSpec
from ottla.client.retrying import UnknownTopicError
from ottla.errors import ApiError, ErrorCode, RecordsError
from ottla.net.client import (
    Address,
    CannotConnectError,
    ClosedUnansweredError,
    ConnectionLostError,
    NotABrokerError,
    RequestTimedOutError,
)

HERE = Address("127.0.0.1", 9092)


@pytest.mark.parametrize(
    ("error", "code", "hint"),
    [
        (CannotConnectError(HERE, "refused"), ExitCode.UNREACHABLE, "ottla serve"),
        (NotABrokerError(HERE, "HTTP"), ExitCode.UNREACHABLE, "--command-config"),
        (ClosedUnansweredError(HERE, "closed"), ExitCode.UNREACHABLE, "--command-config"),
        (ConnectionLostError(HERE, "closed"), ExitCode.UNREACHABLE, "try again"),
        (RequestTimedOutError(HERE, "late"), ExitCode.TIMED_OUT, "--timeout"),
        (TimedOutError(3, ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)), ExitCode.TIMED_OUT, "--timeout"),
        (UnknownTopicError("no such topic"), ExitCode.NOT_FOUND, "topics list"),
        (ApiError(ErrorCode.INVALID_CONFIG, "bad"), ExitCode.REFUSED, "configs describe"),
        (ApiError(ErrorCode.POLICY_VIOLATION, "no"), ExitCode.REFUSED, ""),
        (RecordsError(ErrorCode.CORRUPT_MESSAGE, "checksum"), ExitCode.DAMAGED, "dump-log"),
    ],
)
def test_every_kind_of_failure_has_its_code_and_says_what_to_try(error, code, hint):
    reported = command_error(error)
    assert reported.code is code
    assert str(reported).startswith(str(error))
    assert hint in str(reported)


@pytest.mark.parametrize(
    ("command", "code", "hint"),
    [
        ("produce __consumer_offsets", ErrorCode.INVALID_TOPIC_EXCEPTION, "only brokers write to it"),
        ("produce a/b", ErrorCode.INVALID_TOPIC_EXCEPTION, "letters, digits"),
        ("consume a/b", ErrorCode.INVALID_TOPIC_EXCEPTION, "letters, digits"),
        ("topics create a/b", ErrorCode.INVALID_TOPIC_EXCEPTION, None),  # the broker's message explains it
        ("topics create t --partitions 0", ErrorCode.INVALID_PARTITIONS, "at least one"),
        ("topics alter t --partitions 1", ErrorCode.INVALID_PARTITIONS, "can only be added"),
        ("produce t", ErrorCode.INVALID_RECORD, "--key-separator"),
        ("consume t --offset 5", ErrorCode.OFFSET_OUT_OF_RANGE, "--offset earliest"),
        ("groups describe g", ErrorCode.GROUP_ID_NOT_FOUND, "ottla groups list"),
        ("groups describe g", ErrorCode.INVALID_RECORD, None),
    ],
)
def test_a_hint_fits_what_was_asked(command, code, hint):
    options = make_parser().parse_args(command.split())
    message = str(command_error(ApiError(code, "what happened"), options))
    assert message.startswith("what happened")
    assert (hint in message) if hint else message == "what happened"


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "list"),
        ("topics", "create", "t"),
        ("topics", "describe"),
        ("topics", "alter", "t", "--partitions", "3"),
        ("topics", "delete", "t"),
        ("produce", "t"),
        ("consume", "t"),
        ("metadata",),
        ("cluster",),
        ("configs", "describe", "--topic", "t"),
        ("configs", "alter", "--topic", "t", "--add", "a=b"),
        ("log-dirs", "describe"),
        ("log-dirs", "move", "t", "--broker", "1", "--to", "/d"),
        ("brokers",),
        ("elect", "--all"),
        ("reassign", "plan"),
        ("reassign", "list"),
    ],
    ids=" ".join,
)
def test_without_a_broker_every_command_says_where_it_looked(ottla, command):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        result = ottla(*command, "--bootstrap-server", where)
    assert result.code == ExitCode.UNREACHABLE
    assert result.out == ""
    assert result.err.startswith(f"ottla: {where}: no connection: connection refused; start a broker")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("topics", "create", "t", "--config", "x"), "'x' is not a setting; write NAME=VALUE"),
        (("topics", "create", "t", "--replica-assignment", "a"), "'a' is not an assignment"),
        (("topics", "create", "t", "--replica-assignment", "1:1"), "partition 0 has two replicas on one broker"),
        (("topics", "create", "t", "--replica-assignment", "1:2,1"), "partition 1 has 1 replicas"),
        (("topics", "create", "t", "--replica-assignment", "1", "--partitions", "2"), "leave out --partitions"),
        (("topics", "create", "t", "--partitions", "many"), "invalid int value"),
        (("topics", "alter", "t"), "nothing to alter"),
        (("topics", "alter", "t", "--config", "a=1", "--delete-config", "a"), "both set and deleted"),
        (("topics",), "required: ACTION"),
        (("topics", "delete"), "required: NAME"),
        (("configs", "describe"), "one of the arguments --topic --broker --broker-defaults is required"),
        (("configs", "alter", "--topic", "t"), "no setting to change"),
        (("consume", "t", "--offset", "soon"), "'soon' is not a place to start"),
        (("consume", "t", "--offset", "@noon"), "'noon' is not a time"),
        (("consume", "t", "--format", "%q"), "%q is not a field"),
        (("consume", "t", "--max-messages", "-1"), "name 0 or more"),
        (("consume", "t", "--from-beginning", "--offset", "3"), "not allowed with argument"),
        (("produce", "t", "--key-separator", ""), "the key separator is empty"),
        (("produce", "t", "--acks", "2"), "invalid choice: '2'"),
        (("produce", "t", "--header", "x"), "'x' is not a header; write NAME=VALUE, such as source=import"),
        (("topics", "list", "--bootstrap-server", "host:port"), "is not the address of a broker"),
        (("topics", "list", "--timeout", "0"), "invalid number of seconds value: '0'"),
        (("elect",), "name topics, or give --all"),
        (("elect", "t", "--all"), "name topics, or give --all"),
        (("log-dirs", "move", "t", "--broker", "1"), "required: --to"),
        (("reassign", "plan", "--brokers", "1", "--without", "2"), "not allowed with argument"),
        (("reassign", "plan", "--brokers", "one"), "invalid list of broker ids value: 'one'"),
        (("reassign", "execute", "p.json", "--throttle", "0"), "invalid number of bytes value: '0'"),
        (("completion", "tcsh"), "invalid choice: 'tcsh'"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else "",
)
def test_bad_arguments_are_found_before_a_broker_is_asked(ottla, command, words):
    result = ottla(*command)
    assert result.code == ExitCode.USAGE
    assert result.out == ""
    assert words in result.err
    assert result.err.startswith("ottla: ")


def test_the_environment_names_the_broker(ottla, monkeypatch):
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert "127.0.0.1:1: no connection" in ottla("topics", "list").err


def test_settings_may_hold_an_equals_sign_and_may_be_empty():
    assert parse_settings(["a=b=c", "d="]) == {"a": "b=c", "d": ""}


def test_several_headers_may_have_one_name():
    assert parse_headers(["a=1", "a=2", "b="]) == [("a", "1"), ("a", "2"), ("b", "")]


def test_an_assignment_names_brokers_per_partition():
    assert parse_assignment("0:1,1:2") == [[0, 1], [1, 2]]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("0", Place(Kind.OFFSET, 0)),
        ("-10", Place(Kind.LAST, 10)),
        ("earliest", Place(Kind.SPEC, OffsetSpec.EARLIEST)),
        ("end", Place(Kind.SPEC, OffsetSpec.LATEST)),
        ("@1700000000000", Place(Kind.TIME, 1_700_000_000_000)),
        ("@2023-11-14T22:13:20", Place(Kind.TIME, 1_700_000_000_000)),
        ("@2023-11-14T23:13:20+01:00", Place(Kind.TIME, 1_700_000_000_000)),
    ],
)
def test_places_to_start(text, place):
    assert parse_place(text) == place


def test_a_place_that_is_none_is_refused():
    with pytest.raises(CommandError):
        parse_place("+3")

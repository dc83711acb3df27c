"""Arguments that lead to a broker, and words for what goes wrong on the way."""

from __future__ import annotations

import socket
import ssl

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
    TlsRefusedError,
)

NOW_MS = 1_800_000_000_000
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
        (ApiError(ErrorCode.REQUEST_TIMED_OUT, "is being deleted"), ExitCode.TIMED_OUT, "--timeout"),
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


def test_a_failure_of_tls_is_not_one_of_passwords():
    failed = ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED, "no TLS")
    failed.__cause__ = TlsRefusedError(HERE, ssl.SSLError())
    reported = command_error(failed)
    assert (reported.code, str(reported)) == (
        ExitCode.REFUSED,
        "no TLS; TLS is set in the file of --command-config",
    )


@pytest.mark.parametrize(
    ("command", "code", "hint"),
    [
        ("produce __consumer_offsets", ErrorCode.INVALID_TOPIC_EXCEPTION, "only brokers write to it"),
        ("produce a/b", ErrorCode.INVALID_TOPIC_EXCEPTION, "letters, digits"),
        ("consume a/b", ErrorCode.INVALID_TOPIC_EXCEPTION, "letters, digits"),
        ("topics create a/b", ErrorCode.INVALID_TOPIC_EXCEPTION, None),  # the broker's message explains it
        ("topics create t", ErrorCode.INVALID_PARTITIONS, None),  # the same
        ("topics alter t --partitions 1", ErrorCode.INVALID_PARTITIONS, "can only be added"),
        ("produce t", ErrorCode.INVALID_RECORD, "--key-separator"),
        ("consume t --offset 5", ErrorCode.OFFSET_OUT_OF_RANGE, "--from earliest"),
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
        ("users", "list"),
        ("users", "delete", "u"),
        ("acls", "list"),
        ("acls", "check", "u", "read", "topic:t"),
        ("acls", "add", "u", "--role", "admin"),
        ("acls", "remove", "--all"),
        ("configs", "describe", "--topic", "t"),
        ("configs", "alter", "--topic", "t", "--add", "a=b"),
        ("log-dirs", "describe"),
        ("log-dirs", "move", "t", "--broker", "1", "--to", "/d"),
        ("brokers",),
        ("elect", "--all"),
        ("quotas", "list"),
        ("quotas", "set", "--user", "u", "producer_byte_rate=1"),
        ("quotas", "remove", "--user", "u"),
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
        (("topics", "create", "t", "--partitions", "many"), "must be a number from 1 on, not 'many'"),
        (("topics", "create", "t", "--partitions", "0"), "must be a number from 1 on, not '0'"),
        (("topics", "create", "t", "--replication-factor", "-1"), "must be a number from 1 on, not '-1'"),
        (("topics", "delete-records", "t"), "required: --before"),
        (("topics", "alter", "t"), "nothing to alter"),
        (("topics", "alter", "t", "--config", "a=1", "--delete-config", "a"), "both set and deleted"),
        (("topics", "delete"), "required: TOPIC"),
        (
            ("configs", "describe"),
            "one of the arguments --topic --broker --group --broker-loggers --broker-defaults is required",
        ),
        (("configs", "alter", "--topic", "t"), "no setting to change"),
        (("consume", "t", "--offset", "soon"), "'soon' is not a place in a partition"),
        (("consume",), "name topics, or give --pattern"),
        (("consume", "t", "--pattern", "u"), "name topics, or give --pattern"),
        (("consume", "--pattern", "("), "unterminated subpattern"),
        (("consume", "t", "--to", "2999-01-01"), "is in the future"),
        (("consume", "t", "--exit", "--follow"), "not allowed with argument"),
        (("consume", "t", "--group", "g", "--partition", "0"), "leave out --partition or --group"),
        (("consume", "t", "--group", "g", "--from", "-1h"), "`ottla groups reset g` sets them elsewhere"),
        (("consume", "t", "--value-format", "avro"), "name it with --registry or $OTTLA_SCHEMA_REGISTRY"),
        (("consume", "t", "--value-format", "avro", "--registry", "nowhere"), "is not the URL of a schema registry"),
        (("offsets", "get", "t", "--at", "soon"), "'soon' is not a place in a partition"),
        (("perf", "produce", "t", "--records", "0"), "must be a number from 1 on"),
        (("perf", "produce", "t", "--record-size", "99999999999"), "must be at most 100000000, not"),
        (("consume", "t", "--offset", "@noon"), "'noon' is not a time"),
        (("consume", "t", "--format", "%q"), "%q is not a field"),
        (("consume", "t", "--max-messages", "-1"), "name 0 or more"),
        (("consume", "t", "--from-beginning", "--offset", "3"), "not allowed with argument"),
        (("produce", "t", "--key-separator", ""), "--key-separator is empty"),
        (("produce", "t", "--delimiter", ""), "--delimiter is empty"),
        (("produce", "t", "--json-lines", "--key-separator", ":"), "leave out the separators"),
        (("produce", "t", "--acks", "2"), "invalid choice: '2'"),
        (("produce", "t", "--header", "x"), "'x' is not a header; write NAME=VALUE, such as source=import"),
        (("topics", "list", "--bootstrap-server", "host:port"), "is not the address of a broker"),
        (
            ("topics", "list", "--bootstrap-server", "http://host:9092"),
            "'http://host:9092' is not the address of a broker",
        ),
        (("topics", "list", "--bootstrap-server", "PLAINTEXT://host"), "is not the address of a broker"),
        (("topics", "list", "--timeout", "0"), "must be a number of seconds above 0, not '0'"),
        (("topics", "list", "--timeout", "soon"), "must be a number of seconds above 0, not 'soon'"),
        (("elect",), "name topics, or give --all"),
        (("elect", "t", "--all"), "name topics, or give --all"),
        (("quotas", "set", "producer_byte_rate=1"), "give --user, --client or --ip"),
        (("quotas", "set", "--user", "u", "--ip", "::1", "producer_byte_rate=1"), "give --ip without --user"),
        (("quotas", "set", "--user", "u", "producer_byte_rate=much"), "producer_byte_rate=much: not a number"),
        (("quotas", "set", "--user", "u", "--default-user", "a=1"), "not allowed with argument"),
        (("log-dirs", "move", "t", "--broker", "1"), "required: --to"),
        (("reassign", "plan", "--brokers", "1", "--without", "2"), "not allowed with argument"),
        (("reassign", "plan", "--brokers", "one"), "argument --brokers: must be broker ids, such as 1,2, not 'one'"),
        (
            ("reassign", "execute", "p.json", "--throttle", "0"),
            "argument --throttle: must be a number from 1 on, not '0'",
        ),
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
        ("2023-11-14T22:13:20", Place(Kind.TIME, 1_700_000_000_000)),
        ("2023-11-14", Place(Kind.TIME, 1_699_920_000_000)),
        ("-1h", Place(Kind.TIME, NOW_MS - 3_600_000)),
        ("-1h30m", Place(Kind.TIME, NOW_MS - 5_400_000)),
        ("-2w", Place(Kind.TIME, NOW_MS - 14 * 86_400_000)),
        ("-250ms", Place(Kind.TIME, NOW_MS - 250)),
    ],
)
def test_places_to_start(text, place):
    assert parse_place(text, NOW_MS) == place


@pytest.mark.parametrize("text", ["+3", "-1y", "-h", "1h", "now-1h", ""])
def test_a_place_that_is_none_is_refused(text):
    with pytest.raises(CommandError, match="not a place"):
        parse_place(text, NOW_MS)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("set --user a producer_byte_rat=5", ("producer_byte_rat'", "did you mean `producer_byte_rate`")),
        ("remove --user a producer_byte_rat", ("producer_byte_rat'", "did you mean `producer_byte_rate`")),
        ("set --user a connection_creation_rate=5", ("not a quota of user a", "--ip")),
        ("set --default-ip producer_byte_rate=5", ("not a quota of default ip", "--user or --client")),
        ("set --user a producer_byte_rate", ("is not a quota", "producer_byte_rate=1048576")),
    ],
)
def test_a_quota_that_there_is_not_is_found_before_a_broker_is_asked(ottla, command, words):
    result = ottla("quotas", *command.split())
    assert result.code == ExitCode.USAGE
    for word in words:
        assert word in result.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("", "--role", "producer", "--topic", "t"), "'' names nobody"),
        (("User:", "--role", "producer", "--topic", "t"), "'User:' names nobody"),
        ((":a", "--role", "producer", "--topic", "t"), "':a' names nobody"),
        (("a", "--role", "producer", "--topic", "t", "--host", "web01"), "'web01' is not an address"),
        (("a", "--role", "producer", "--topic", "t", "--host", "10.0.0.0/8"), "'10.0.0.0/8' is not an address"),
    ],
)
def test_a_rule_that_would_never_hold_is_not_added(ottla, arguments, words):
    result = ottla("acls", "add", *arguments)
    assert (result.code, words in result.err) == (ExitCode.USAGE, True)

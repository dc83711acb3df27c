"""What all commands that talk to a broker share: its address, the timeout, errors and hints."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.cli.command import CommandError, ExitCode
from ottla.cli.named_clusters import BOOTSTRAP, clusters_file, read_clusters
from ottla.cli.signals import ended_by_signals
from ottla.cli.terminal import report_error
from ottla.client.admin.admin import Admin
from ottla.client.errors import TimedOutError
from ottla.client.metadata import parse_addresses
from ottla.client.security import secure_connector
from ottla.client.settings import AdminSettings
from ottla.cluster.image import INTERNAL_TOPICS
from ottla.config.properties import parse_properties
from ottla.errors import ApiError, CannotEncodeError, ConfigError, ErrorCode, OttlaError, RecordsError
from ottla.net.client import (
    CannotConnectError,
    ClosedUnansweredError,
    ConnectionFailedError,
    NotABrokerError,
    RequestTimedOutError,
    TlsRefusedError,
    connect_tcp,
)

BOOTSTRAP_DEFAULT: Final = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE: Final = "OTTLA_BOOTSTRAP_SERVERS"
CONFIG_VARIABLE: Final = "OTTLA_COMMAND_CONFIG"
CLUSTER_VARIABLE: Final = "OTTLA_CLUSTER"
# Settings of security may also be variables: OTTLA_SASL_PASSWORD is sasl.password.
SETTING_VARIABLES: Final = ("OTTLA_SECURITY_", "OTTLA_SASL_", "OTTLA_SSL_")
TIMEOUT_S_DEFAULT: Final = 30.0
CLIENT_ID: Final = "ottla-cli"
CONNECT_TIMEOUT_S_MAX: Final = 10.0

_TOPIC_NAMES: Final = "a name has up to 249 letters, digits, dots, underscores and dashes"
_NOT_FOUND: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
# What to try after an error code, where that is the same for every command.
_HINTS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`ottla topics list` shows the topics",
    ErrorCode.BROKER_NOT_AVAILABLE: "`ottla cluster` shows the brokers",
    ErrorCode.GROUP_ID_NOT_FOUND: "`ottla groups list` shows the groups",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "`ottla transactions list` shows the transactional ids",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first; `ottla groups describe --members` shows them",
    ErrorCode.TOPIC_ALREADY_EXISTS: "use --if-not-exists to accept that, or `ottla topics alter` to change it",
    ErrorCode.INVALID_CONFIG: "`ottla configs describe` with --all shows names and values",
    ErrorCode.INVALID_REPLICATION_FACTOR: "`ottla cluster` shows how many brokers there are",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "`ottla reassign list` shows them: wait, cancel, or give --additional",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "`ottla topics describe` shows which replicas are in sync",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "start a broker that holds a replica: `ottla topics describe`",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "`ottla brokers` shows which brokers there are",
    ErrorCode.LOG_DIR_NOT_FOUND: "`ottla log-dirs describe` shows the directories of each broker",
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the topic, or send less in one record",
    ErrorCode.NOT_ENOUGH_REPLICAS: "`ottla topics describe` shows what is in sync; min.insync.replicas requires more",
    ErrorCode.TOPIC_DELETION_DISABLED: "the broker is configured with delete.topic.enable=false",
    ErrorCode.UNSUPPORTED_VERSION: "brokers of another version, or a cluster of several brokers, may have it",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "ask an administrator for permission",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ask an administrator for permission",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "ask an administrator for permission",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "ask an administrator for permission",
    ErrorCode.SECURITY_DISABLED: "set authorizer.class.name of the brokers",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "choose another name, or other --iterations",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "look at user and password in the file of --command-config or of --cluster",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "set sasl.mechanism in the file of --command-config",
    ErrorCode.ILLEGAL_SASL_STATE: "set security.protocol in the file of --command-config to that of the listener",
}
# Where it depends on the command. `topics create` has no hint for a bad name: the broker's message explains names.
_HINTS_OF_COMMANDS: Final = {
    ("topics alter", ErrorCode.INVALID_PARTITIONS): "partitions can only be added",
    ("reassign plan", ErrorCode.INVALID_REPLICATION_FACTOR): "add a broker, or have fewer with --replication-factor",
    ("consume", ErrorCode.OFFSET_OUT_OF_RANGE): "use --from earliest, or one of these",
    ("produce", ErrorCode.INVALID_RECORD): "give keys with --key-separator or --json-lines",
    ("produce", ErrorCode.INVALID_TOPIC_EXCEPTION): _TOPIC_NAMES,
    ("consume", ErrorCode.INVALID_TOPIC_EXCEPTION): _TOPIC_NAMES,
    ("topics describe", ErrorCode.INVALID_TOPIC_EXCEPTION): _TOPIC_NAMES,
}


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster to talk to. `settings`: of security, in Java's names; `origin`: where they stand, if anywhere."""

    bootstrap_servers: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    origin: str = ""


def target_of(options: argparse.Namespace) -> Target:
    """The cluster that is meant: by its address, by its name, or the current one of the user's file.

    An address that is given without a name is not the current cluster's, whose password is not for it.
    """
    given = options.bootstrap_server
    in_environment = os.environ.get(BOOTSTRAP_VARIABLE)
    name = options.cluster
    settings: Mapping[str, str] = {}
    origin = ""
    if name is None and given is None and in_environment is None:
        name = os.environ.get(CLUSTER_VARIABLE) or read_clusters().current
    if name is not None:
        settings = read_clusters().get(name)
        origin = f"cluster {name} of {clusters_file()}"
        given = given or settings.get(BOOTSTRAP)
    if options.command_config is not None:
        settings, origin = read_command_config(options.command_config), options.command_config
    from_environment = _settings_in_environment()
    if from_environment:
        settings = {**settings, **from_environment}
        origin = f"{origin} and the environment" if origin else "the environment"
    of_security = {each: value for each, value in settings.items() if each != BOOTSTRAP}
    return Target(given or in_environment or BOOTSTRAP_DEFAULT, of_security, origin)


def read_command_config(path: str) -> Mapping[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            return parse_properties(file.read(), path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise CommandError(ExitCode.USAGE, f"{path}: {reason}", "name a file that can be read") from error
    except ConfigError as error:
        raise CommandError(ExitCode.USAGE, f"{path}: {error}", "see the guide on security for a whole file") from error


def _settings_in_environment() -> dict[str, str]:
    return {
        name.removeprefix("OTTLA_").lower().replace("_", "."): value
        for name, value in os.environ.items()
        if name.startswith(SETTING_VARIABLES)
    }


def add_arguments(parser: argparse.ArgumentParser, *, otherwise: str = "") -> None:
    """`otherwise` says where a command looks first that finds a cluster by itself."""
    group = parser.add_argument_group("broker")
    group.add_argument(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        help=f"a broker of the cluster, or several separated by commas (default: {otherwise}"
        f"${BOOTSTRAP_VARIABLE} if it is set, else the current cluster of `ottla cluster use`, else "
        f"{BOOTSTRAP_DEFAULT})",
    )
    group.add_argument(
        "--cluster",
        metavar="NAME",
        help=f"a cluster that was named with `ottla cluster add` (default: ${CLUSTER_VARIABLE} if it is set)",
    )
    group.add_argument(
        "--command-config",
        metavar="FILE",
        default=os.environ.get(CONFIG_VARIABLE),
        help="settings of the client, such as security.protocol, sasl.jaas.config and ssl.truststore.location, in the "
        f"format of server.properties (default: ${CONFIG_VARIABLE} if it is set)",
    )
    group.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=TIMEOUT_S_DEFAULT,
        help=f"how long to try before giving up (default: {TIMEOUT_S_DEFAULT:g})",
    )


def add_json_argument(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--json", action="store_true", help=what)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {text!r}")
    return value


def run(options: argparse.Namespace, work: Callable[[Admin], Awaitable[ExitCode]]) -> ExitCode:
    """Connects, does the work and turns its failures into messages and exit codes."""
    settings = client_settings(options)

    async def main() -> ExitCode:
        admin = Admin(settings)
        try:
            # Not tried again: who names a wrong port wants to know at once. Once connected, what breaks is mended.
            await admin.start(0)
            return await work(admin)
        finally:
            await admin.close()

    try:
        return asyncio.run(ended_by_signals(main()))
    except (ApiError, ConnectionFailedError) as error:
        raise command_error(error, options) from error
    except CannotEncodeError as error:
        raise CommandError(ExitCode.USAGE, str(error), "numbers have limits, and texts are UTF-8") from error


def client_settings(options: argparse.Namespace) -> dict[str, object]:
    """The settings of every client that a command makes."""
    target = target_of(options)
    parse_addresses(target.bootstrap_servers)
    return {
        "bootstrap_servers": target.bootstrap_servers,
        "client_id": CLIENT_ID,
        "default_api_timeout_s": options.timeout,
        "request_timeout_s": options.timeout,
        "socket_connection_setup_timeout_s": min(options.timeout, CONNECT_TIMEOUT_S_MAX),
        **security_settings(target),
    }


def security_settings(target: Target) -> dict[str, object]:
    """What the settings of a target say about TLS and SASL; the rest of them is for other tools."""
    if not target.settings:
        return {}
    try:
        settings = AdminSettings.read({BOOTSTRAP: target.bootstrap_servers, **target.settings})
        secure_connector(settings, connect_tcp)  # what is wrong with certificates is wrong with these settings
    except ConfigError as error:
        raise CommandError(
            ExitCode.USAGE, f"{target.origin}: {error}", "see the guide on security for a whole file"
        ) from error
    return {name: getattr(settings, name) for name in settings.given if name.startswith(("security_", "ssl_", "sasl_"))}


def report_failures(errors: Iterable[ApiError]) -> ExitCode:
    """Reports all failures but the last, which ends the command with its exit code."""
    found = list(errors)
    for error in found[:-1]:
        report_error(str(error))
    if found:
        raise found[-1]
    return ExitCode.OK


def command_error(error: OttlaError, options: argparse.Namespace | None = None) -> CommandError:
    """The exit code of a failure, and what to try next; `options` say what was asked."""
    match error:
        case RecordsError():
            return CommandError(ExitCode.DAMAGED, str(error), "`ottla dump-log --verify` checks the broker's files")
        case RequestTimedOutError() | TimedOutError() | ApiError(code=ErrorCode.REQUEST_TIMED_OUT):
            return CommandError(
                ExitCode.TIMED_OUT, str(error), "look at the broker's log, or allow more time with --timeout"
            )
        case ApiError(__cause__=TlsRefusedError()):
            return CommandError(ExitCode.REFUSED, str(error), "TLS is set in the file of --command-config")
        case ApiError(code=code):
            exit_code = ExitCode.NOT_FOUND if code in _NOT_FOUND else ExitCode.REFUSED
            return CommandError(exit_code, str(error), _hint(code, options or argparse.Namespace()))
        case ClosedUnansweredError():
            return CommandError(
                ExitCode.UNREACHABLE, str(error), "TLS and logins are set in the file of --command-config"
            )
        case NotABrokerError():
            return CommandError(
                ExitCode.UNREACHABLE, str(error), "does the listener ask for TLS or a login? see --command-config"
            )
        case CannotConnectError():
            return CommandError(
                ExitCode.UNREACHABLE,
                str(error),
                "start a broker with `ottla serve`, or name another one with --bootstrap-server",
            )
        case _:
            return CommandError(ExitCode.UNREACHABLE, str(error), "look at the broker's log, then try again")


def _hint(code: ErrorCode, options: argparse.Namespace) -> str:
    topic = getattr(options, "topic", None)
    if code is ErrorCode.INVALID_TOPIC_EXCEPTION and isinstance(topic, str) and topic in INTERNAL_TOPICS:
        return "only brokers write to it: name a topic of your own"
    command = " ".join(getattr(options, part).name for part in ("command", "action") if hasattr(options, part))
    return _HINTS_OF_COMMANDS.get((command, code)) or _HINTS.get(code, "")

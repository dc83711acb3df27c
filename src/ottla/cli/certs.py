"""`ottla certs`: certificates for trying TLS out."""

from __future__ import annotations

import argparse
import re
from typing import Final

from ottla.cli.arguments import directory, positive_number
from ottla.cli.command import Command, CommandError, ExitCode, command_group
from ottla.cli.remote import add_json_argument
from ottla.cli.render import json_line
from ottla.cli.table import print_table
from ottla.local_cluster.certificates import AUTHORITY, DAYS_DEFAULT, DAYS_MAX, Authority
from ottla.security.quotas import is_address

HOSTS_DEFAULT: Final = ("localhost", "127.0.0.1")
_NAME: Final = re.compile(r"(?!\.)[\w.@ -]{1,64}")  # as long as the common name of a certificate may be
_HOST: Final = re.compile(r"[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*|(\*\.)?[A-Za-z0-9_]([A-Za-z0-9._-]{0,252})")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=directory, metavar="DIRECTORY", help="where the files are, or will be")
    parser.add_argument(
        "--broker",
        action="append",
        default=[],
        metavar="NAME[=HOST,HOST]",
        help="a certificate for a broker, with the host names and addresses that clients use (default: localhost and "
        "127.0.0.1); can be repeated",
    )
    parser.add_argument(
        "--client", action="append", default=[], metavar="NAME", help="a certificate for a client; can be repeated"
    )
    parser.add_argument(
        "--days",
        type=positive_number,
        default=DAYS_DEFAULT,
        metavar="N",
        help=f"how many days they are valid (default: {DAYS_DEFAULT})",
    )
    add_json_argument(parser, "one JSON document: the files")


def _create(options: argparse.Namespace) -> ExitCode:
    wanted = dict(map(_broker, options.broker)) | dict.fromkeys(options.client, ())
    if len(wanted) < len(options.broker) + len(options.client):
        raise CommandError(ExitCode.USAGE, "two certificates have the same name", "give each a name, and so a file")
    for name in wanted:
        _check_name(name)
    if options.days > DAYS_MAX:
        raise CommandError(ExitCode.USAGE, f"--days {options.days}", f"name {DAYS_MAX} at most")
    authority = Authority(options.directory, days=options.days)
    made = {"truststore": str(authority.truststore)}
    for name, hosts in wanted.items():
        made[name] = str(authority.create(name, hosts).keystore)
    if options.json:
        print(json_line(dict(made)))
    else:
        print_table(("NAME", "FILE"), made.items())
    return ExitCode.OK


def _broker(text: str) -> tuple[str, tuple[str, ...]]:
    """The name of a broker's certificate and the hosts that it is for."""
    name, equals, hosts = text.partition("=")
    names = tuple(hosts.split(",")) if equals else HOSTS_DEFAULT
    for host in names:
        if not _HOST.fullmatch(host) or (host.replace(".", "").isdecimal() and not is_address(host)):
            raise CommandError(
                ExitCode.USAGE,
                f"--broker {text}: {host!r} is not a host name or an address",
                f"write it such as {name or 'broker'}=broker.example.org,10.0.0.7",
            )
    return name, names


def _check_name(name: str) -> None:
    """The name becomes that of a file, beside those of the authority."""
    if not _NAME.fullmatch(name) or name == AUTHORITY:
        reason = f"{AUTHORITY}.pem is the authority's own" if name == AUTHORITY else "a certificate's file has its name"
        raise CommandError(
            ExitCode.USAGE, f"{name!r}: {reason}", "choose another one, of up to 64 letters, digits, . _ - @ and spaces"
        )


COMMAND: Final = command_group(
    "certs",
    "certificates for trying TLS out",
    "Make certificates for trying TLS out. For production, use the authority of your organization.",
    [
        Command(
            "create",
            "make an authority and certificates",
            "Make an authority in the directory, unless it has one, and certificates that it signs. A file NAME.pem\n"
            "holds a key and its certificates and is what ssl.keystore.location names, with ssl.keystore.type=PEM;\n"
            "ca.pem is what ssl.truststore.location names. Files with keys are readable by their owner only.",
            _add_arguments,
            _create,
        )
    ],
)

"""`ottla certs`: certificates for trying TLS out."""

from __future__ import annotations

import argparse
from typing import Final

from ottla.cli.arguments import directory, positive_number
from ottla.cli.command import Command, ExitCode, command_group
from ottla.cli.remote import add_json_argument
from ottla.cli.render import json_line
from ottla.cli.table import print_table
from ottla.local_cluster.certificates import DAYS_DEFAULT, Authority


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
    authority = Authority(options.directory, days=options.days)
    made = {"truststore": str(authority.truststore)}
    for text in options.broker:
        name, _, hosts = text.partition("=")
        made[name] = str(authority.create(name, hosts.split(",") if hosts else ("localhost", "127.0.0.1")).keystore)
    for name in options.client:
        made[name] = str(authority.create(name).keystore)
    if options.json:
        print(json_line(dict(made)))
    else:
        print_table(("NAME", "FILE"), made.items())
    return ExitCode.OK


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

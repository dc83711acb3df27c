"""`ottla users`: users of SCRAM and their passwords."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.cli import remote
from ottla.cli.command import Command, CommandError, ExitCode, command_group
from ottla.cli.render import Json, json_line
from ottla.cli.table import print_table
from ottla.cli.terminal import warn
from ottla.client.admin.admin import Admin
from ottla.client.admin.users import ITERATIONS_DEFAULT, ScramCredential
from ottla.errors import ApiError, ErrorCode
from ottla.security.scram import BY_SASL_NAME, ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism

MECHANISM_DEFAULT: Final = ScramMechanism.SCRAM_SHA_512.sasl_name
STANDARD_INPUT: Final = "-"


# -- passwords ---------------------------------------------------------------------------------------------------------


def _add_password_arguments(parser: argparse.ArgumentParser) -> None:
    """There is no argument for the password itself: the shell's history and the list of processes would have it."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--password-file",
        metavar="FILE",
        help="read the password from the first line of a file; - is standard input (default: ask for it)",
    )
    source.add_argument("--password-env", metavar="VARIABLE", help="take it from an environment variable")
    parser.add_argument(
        "--mechanism",
        action="append",
        choices=list(BY_SASL_NAME),
        default=[],
        help=f"by which the user logs in; can be repeated (default: {MECHANISM_DEFAULT})",
    )
    parser.add_argument(
        "--iterations",
        type=_iterations,
        default=ITERATIONS_DEFAULT,
        metavar="N",
        help=f"how often the password is hashed, {ITERATIONS_MIN} to {ITERATIONS_MAX} (default: {ITERATIONS_DEFAULT}): "
        "more makes a stolen hash harder to guess and each login of a client slower",
    )


def _iterations(text: str) -> int:
    value = int(text)
    if not ITERATIONS_MIN <= value <= ITERATIONS_MAX:
        raise ValueError
    return value


_iterations.__name__ = "number of iterations"  # argparse names it when it complains


def _read_password(options: argparse.Namespace) -> str:
    if options.password_env is not None:
        password = os.environ.get(options.password_env, "")
        where = f"${options.password_env}"
    elif options.password_file is not None:
        password = _first_line(options.password_file)
        where = "standard input" if options.password_file == STANDARD_INPUT else options.password_file
    else:
        password = _ask(options.name)
        where = "the password"
    if not password:
        raise CommandError(ExitCode.USAGE, f"{where} is empty", "a user needs a password")
    return password


def _first_line(path: str) -> str:
    try:
        text = sys.stdin.readline() if path == STANDARD_INPUT else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise CommandError(ExitCode.USAGE, f"{path}: {reason}", "name a file that holds the password") from error
    return (text.splitlines() or [""])[0]


def _ask(user: str) -> str:
    if not sys.stdin.isatty():
        raise CommandError(
            ExitCode.USAGE,
            "there is no terminal to ask for the password",
            "give --password-file FILE, or --password-env VARIABLE",
        )
    password = getpass.getpass(f"password of {user}: ")
    if getpass.getpass("again: ") != password:
        raise CommandError(ExitCode.USAGE, "the two passwords differ", "try again")
    return password


# -- create and alter --------------------------------------------------------------------------------------------------


def _add_create_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the user")
    _add_password_arguments(parser)
    remote.add_json_argument(parser, "one JSON document: the user and its mechanisms")
    remote.add_arguments(parser)


def _create(options: argparse.Namespace) -> ExitCode:
    return _set_password(options, is_new=True)


def _alter(options: argparse.Namespace) -> ExitCode:
    return _set_password(options, is_new=False)


def _set_password(options: argparse.Namespace, *, is_new: bool) -> ExitCode:
    password = _read_password(options)
    mechanisms = [BY_SASL_NAME[name] for name in dict.fromkeys(options.mechanism or [MECHANISM_DEFAULT])]

    async def work(admin: Admin) -> ExitCode:
        known = await _credentials(admin, options.name)
        existing = known or ()
        if is_new and known is not None:
            raise CommandError(
                ExitCode.REFUSED, f"user {options.name} exists already", "`ottla users alter` changes the password"
            )
        if not is_new and known is None:
            raise _no_user(options.name)
        for mechanism in mechanisms:
            await admin.set_password(options.name, password, mechanism, options.iterations)
        kept = [each for each in existing if each.mechanism not in mechanisms]
        if kept and not options.json:
            names = ", ".join(_mechanism_name(each) for each in kept)
            warn(f"the password for {names} is still the old one")
        set_now = [ScramCredential(mechanism, options.iterations) for mechanism in mechanisms]
        _show({options.name: (*kept, *set_now)}, options)
        return ExitCode.OK

    return remote.run(options, work)


async def _credentials(admin: Admin, user: str) -> tuple[ScramCredential, ...] | None:
    """What a user has; None for one that does not exist."""
    found = (await admin.describe_user_scram_credentials([user]))[user]
    if isinstance(found, ApiError):
        if found.code is ErrorCode.RESOURCE_NOT_FOUND:
            return None
        raise found
    return found


def _no_user(name: str) -> CommandError:
    return CommandError(ExitCode.NOT_FOUND, f"there is no user {name}", "`ottla users list` shows all")


# -- list and delete ---------------------------------------------------------------------------------------------------


def _add_list_arguments(parser: argparse.ArgumentParser) -> None:
    remote.add_json_argument(parser, "one JSON document for each user: name, mechanisms and iterations")
    remote.add_arguments(parser)


def _list(options: argparse.Namespace) -> ExitCode:
    async def work(admin: Admin) -> ExitCode:
        found: dict[str, tuple[ScramCredential, ...]] = {}
        for name, credentials in sorted((await admin.describe_user_scram_credentials()).items()):
            if isinstance(credentials, ApiError):
                raise credentials
            found[name] = credentials
        _show(found, options)
        return ExitCode.OK

    return remote.run(options, work)


def _add_delete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="+", help="a user")
    remote.add_json_argument(parser, "one JSON document for each user that was deleted")
    remote.add_arguments(parser)


def _delete(options: argparse.Namespace) -> ExitCode:
    async def work(admin: Admin) -> ExitCode:
        for name in options.name:
            found = await _credentials(admin, name)
            if found is None:
                raise _no_user(name)
            for each in found:
                await admin.delete_password(name, each.mechanism)
            print(json_line({"user": name, "is_deleted": True}) if options.json else f"deleted {name}")
        return ExitCode.OK

    return remote.run(options, work)


def _show(users: Mapping[str, tuple[ScramCredential, ...]], options: argparse.Namespace) -> None:
    if not options.json:
        print_table(
            ("USER", "MECHANISM", "ITERATIONS"),
            [
                (name, _mechanism_name(each), each.iterations)
                for name, credentials in users.items()
                for each in sorted(credentials, key=_mechanism_name)
            ],
            if_empty="there are no users",
        )
        return
    for name, credentials in users.items():
        entries: list[Json] = [
            {"mechanism": _mechanism_name(each), "iterations": each.iterations}
            for each in sorted(credentials, key=_mechanism_name)
        ]
        print(json_line({"user": name, "credentials": entries}))


def _mechanism_name(credential: ScramCredential) -> str:
    return credential.mechanism.sasl_name


COMMAND: Final = command_group(
    "users",
    "users that log in with a password, and their passwords",
    "Create, change, list and delete the users of SCRAM. A password never leaves this process: brokers get a salted\n"
    "hash of it. It is asked for, or read from a file or an environment variable; it is never an argument.",
    [
        Command(
            "create",
            "create a user",
            "Create a user. What it may do is the matter of `ottla acls`.",
            _add_create_arguments,
            _create,
        ),
        Command(
            "alter",
            "change the password of a user",
            "Change the password of a user, or add a mechanism. It counts from the next login on; connections that\n"
            "exist go on, unless the brokers limit sessions (connections.max.reauth.ms).",
            _add_create_arguments,
            _alter,
        ),
        Command("list", "list users", "List all users with their mechanisms.", _add_list_arguments, _list),
        Command(
            "delete",
            "delete users",
            "Delete users: they cannot log in any more. ACLs that name them stay; `ottla acls remove --principal`\n"
            "removes those.",
            _add_delete_arguments,
            _delete,
        ),
    ],
)

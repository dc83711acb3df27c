"""`ottla quotas`: show, set and remove the quotas of users, client ids and addresses."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.cli import remote
from ottla.cli.arguments import parse_quotas
from ottla.cli.command import Command, CommandError, ExitCode, command_group
from ottla.cli.parser import did_you_mean
from ottla.cli.render import Json, json_line
from ottla.cli.table import print_table
from ottla.client.admin.admin import Admin
from ottla.client.admin.quotas import DEFAULT, Default, QuotaEntity
from ottla.security.quotas import CLIENT_QUOTAS, IP_QUOTAS

NAMES: Final = (
    "producer_byte_rate and consumer_byte_rate (bytes per second), request_percentage (percent of one thread), "
    "controller_mutation_rate (partitions per second); of an address connection_creation_rate (per second)"
)


def _add_entity_arguments(parser: argparse.ArgumentParser) -> None:
    whose = parser.add_argument_group("whose quotas")
    user = whose.add_mutually_exclusive_group()
    user.add_argument("--user", metavar="NAME", help="a user, without the User: in front")
    user.add_argument("--default-user", action="store_true", help="every user without quotas of his own")
    client = whose.add_mutually_exclusive_group()
    client.add_argument("--client", metavar="ID", help="a client id; together with a user, that client of that user")
    client.add_argument("--default-client", action="store_true", help="every client id without quotas of its own")
    ip = whose.add_mutually_exclusive_group()
    ip.add_argument("--ip", metavar="ADDRESS", help="an address")
    ip.add_argument("--default-ip", action="store_true", help="every address without quotas of its own")


def _entity(options: argparse.Namespace) -> QuotaEntity:
    return QuotaEntity(
        DEFAULT if options.default_user else options.user,
        DEFAULT if options.default_client else options.client,
        DEFAULT if options.default_ip else options.ip,
    )


def _named_entity(options: argparse.Namespace) -> QuotaEntity:
    entity = _entity(options)
    parts = entity.parts()
    if not parts:
        raise CommandError(ExitCode.USAGE, "nobody is named", "give --user, --client or --ip, or the default of one")
    if "ip" in parts and len(parts) > 1:
        raise CommandError(ExitCode.USAGE, "an address has quotas by itself", "give --ip without --user and --client")
    return entity


def _check_names(entity: QuotaEntity, names: Iterable[str]) -> None:
    """The broker's own error names no other, and what is removed may have any name there."""
    allowed, others = (CLIENT_QUOTAS, IP_QUOTAS) if entity.ip is None else (IP_QUOTAS, CLIENT_QUOTAS)
    for name in names:
        if name in others:
            whose = "addresses: give --ip" if entity.ip is None else "users and client ids: give --user or --client"
            raise CommandError(ExitCode.USAGE, f"{name} is not a quota of {_text(entity)}", f"it is one of {whose}")
        if name not in allowed:
            meant = did_you_mean(name, allowed) or f"; there are {', '.join(allowed)}"
            raise CommandError(ExitCode.USAGE, f"there is no quota {name!r}{meant}")


def _fields(entity: QuotaEntity, quotas: Mapping[str, float]) -> dict[str, Json]:
    """A default is null; what an entity does not have is left out."""
    parts: dict[str, Json] = {
        kind.replace("-", "_"): None if isinstance(name, Default) else name for kind, name in entity.parts().items()
    }
    return {**parts, "quotas": dict[str, Json](quotas)}


def _text(entity: QuotaEntity) -> str:
    return ", ".join(
        f"default {kind}" if isinstance(name, Default) else f"{kind} {name}" for kind, name in entity.parts().items()
    )


def _names(entity: QuotaEntity) -> tuple[str | None, ...]:
    """User, client id and address of an entity, as a table shows them."""
    return tuple(
        "(default)" if isinstance(name, Default) else name for name in (entity.user, entity.client_id, entity.ip)
    )


# -- list --------------------------------------------------------------------------------------------------------------


def _add_list_arguments(parser: argparse.ArgumentParser) -> None:
    _add_entity_arguments(parser)
    parser.add_argument("--strict", action="store_true", help="of a user, not those of his client ids as well")
    remote.add_json_argument(
        parser, "one JSON document per entity: user, client_id or ip (null: the default), and its quotas"
    )
    remote.add_arguments(parser)


def _list(options: argparse.Namespace) -> ExitCode:
    entity = _entity(options)

    async def work(admin: Admin) -> ExitCode:
        found = await admin.describe_client_quotas(entity if entity.parts() else None, strict=options.strict)
        in_order = sorted(found.items(), key=lambda one: _text(one[0]))
        if options.json:
            for each, quotas in in_order:
                print(json_line(_fields(each, quotas)))
        else:
            rows = [
                (*_names(each), key, f"{value:,.15g}")
                for each, quotas in in_order
                for key, value in sorted(quotas.items())
            ]
            print_table(("USER", "CLIENT ID", "ADDRESS", "QUOTA", "VALUE"), rows, if_empty="no quotas")
        return ExitCode.OK

    return remote.run(options, work)


# -- set and remove ----------------------------------------------------------------------------------------------------


def _add_set_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("quotas", nargs="+", metavar="QUOTA=VALUE", help=NAMES)
    _add_entity_arguments(parser)
    _add_change_arguments(parser)


def _add_remove_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("quotas", nargs="*", metavar="QUOTA", help="a quota (default: all of them)")
    _add_entity_arguments(parser)
    _add_change_arguments(parser)


def _add_change_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--validate-only", action="store_true", help="only check whether it could be changed")
    remote.add_json_argument(parser, "one JSON document: whose quotas, what was changed, and whether it was")
    remote.add_arguments(parser)


def _set(options: argparse.Namespace) -> ExitCode:
    entity = _named_entity(options)
    texts = parse_quotas(options.quotas)
    _check_names(entity, texts)
    changes = {name: _number(name, text) for name, text in texts.items()}

    async def work(admin: Admin) -> ExitCode:
        return await _change(admin, entity, changes, options)

    return remote.run(options, work)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CommandError(ExitCode.USAGE, f"{name}={text}: not a number", "write it such as 1048576") from None


def _remove(options: argparse.Namespace) -> ExitCode:
    entity = _named_entity(options)
    _check_names(entity, options.quotas)

    async def work(admin: Admin) -> ExitCode:
        names = list(dict.fromkeys(options.quotas))
        if not names:
            found = await admin.describe_client_quotas(entity, strict=True)
            names = sorted(found.get(entity, ()))
        if not names:
            raise CommandError(ExitCode.NOT_FOUND, f"{_text(entity)} has no quotas", "`ottla quotas list` shows them")
        return await _change(admin, entity, dict.fromkeys(names), options)

    return remote.run(options, work)


async def _change(
    admin: Admin, entity: QuotaEntity, changes: Mapping[str, float | None], options: argparse.Namespace
) -> ExitCode:
    await admin.alter_client_quota(entity, changes, validate_only=options.validate_only)
    if options.json:
        fields = _fields(entity, {key: value for key, value in changes.items() if value is not None})
        removed: list[Json] = [key for key, value in changes.items() if value is None]
        print(json_line({**fields, "removed": removed, "altered": not options.validate_only}))
    else:
        print(f"{'would alter' if options.validate_only else 'altered'} the quotas of {_text(entity)}")
    return ExitCode.OK


COMMAND: Final = command_group(
    "quotas",
    "show and change what clients may do per second",
    "Show and change how much users, client ids and addresses may do per second on each broker. Of several quotas\n"
    "that fit a client the most specific holds: that of a client id of a user, of a user, of a client id.",
    (
        Command(
            "list",
            "show quotas",
            "Show all quotas, or those of a user, a client id or an address.",
            _add_list_arguments,
            _list,
        ),
        Command(
            "set", "set quotas", "Set quotas; those that are not named stay as they are.", _add_set_arguments, _set
        ),
        Command(
            "remove",
            "remove quotas",
            "Remove quotas of a user, a client id or an address: the next that fits holds, or none.",
            _add_remove_arguments,
            _remove,
        ),
    ),
)

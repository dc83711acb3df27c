"""`ottla acls`: who may do what."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.cli import remote
from ottla.cli.command import Command, CommandError, ExitCode, command_group
from ottla.cli.render import Json, json_line
from ottla.cli.table import Cell, print_table
from ottla.cli.terminal import Style
from ottla.client.admin.acls import Acl, AclFilter, AclOperation, AclPermission, AclResourceType, PatternType
from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigResource, ResourceType
from ottla.errors import ApiError
from ottla.security import acls as rules
from ottla.security.authorizer import Authorizer, Verdict
from ottla.security.quotas import is_address

USER_PREFIX: Final = "User:"
EVERYTHING: Final = "*"
# By the name of their argument; the cluster has no name of its own.
RESOURCES: Final = {
    "topic": AclResourceType.TOPIC,
    "group": AclResourceType.GROUP,
    "transactional_id": AclResourceType.TRANSACTIONAL_ID,
    "delegation_token": AclResourceType.DELEGATION_TOKEN,
    "user": AclResourceType.USER,
}
OPERATIONS: Final = {operation.name.lower().replace("_", "-"): operation for operation in sorted(rules.REAL_OPERATIONS)}
PATTERNS: Final = {each.name.lower(): each for each in PatternType if each is not PatternType.UNKNOWN}
# What a role may do with each kind of resource. READ and WRITE include DESCRIBE.
ROLES: Final[Mapping[str, Mapping[AclResourceType, tuple[AclOperation, ...]]]] = {
    "producer": {
        AclResourceType.TOPIC: (AclOperation.WRITE, AclOperation.CREATE),
        AclResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE,),
    },
    "consumer": {
        AclResourceType.TOPIC: (AclOperation.READ,),
        AclResourceType.GROUP: (AclOperation.READ,),
    },
    "admin": dict.fromkeys(sorted(rules.REAL_RESOURCES), (AclOperation.ALL,)),
}
# What a role is nothing without.
REQUIRED: Final = {
    "producer": (AclResourceType.TOPIC,),
    "consumer": (AclResourceType.TOPIC, AclResourceType.GROUP),
    "admin": (),
}


@dataclass(frozen=True, slots=True)
class Named:
    """A resource as the arguments name it."""

    type: AclResourceType
    name: str


def _add_resource_arguments(parser: argparse.ArgumentParser) -> None:
    for argument, type_ in RESOURCES.items():
        what = type_.name.lower().replace("_", " ")
        parser.add_argument(
            f"--{argument.replace('_', '-')}",
            action="append",
            default=[],
            metavar="NAME",
            help=f"a {what}, or * for all; can be repeated",
        )
    parser.add_argument("--on-cluster", action="store_true", help="the cluster itself")


def _resources(options: argparse.Namespace) -> list[Named]:
    named = [Named(type_, name) for argument, type_ in RESOURCES.items() for name in getattr(options, argument)]
    return named + ([Named(AclResourceType.CLUSTER, rules.CLUSTER_NAME)] if options.on_cluster else [])


def _principal(text: str) -> str:
    """`alice` is short for `User:alice`."""
    principal = text if ":" in text else f"{USER_PREFIX}{text}"
    kind, _, name = principal.partition(":")
    if not kind or not name:
        raise CommandError(ExitCode.USAGE, f"{text!r} names nobody", "write alice or User:alice")
    return principal


def _host(text: str) -> str:
    """Rules are compared with the address of a client: a rule for anything else would never hold."""
    if text != EVERYTHING and not is_address(text):
        raise CommandError(
            ExitCode.USAGE, f"--host {text!r} is not an address", "write one such as 10.0.0.7; leave it out for any"
        )
    return text


def _operation(text: str) -> AclOperation:
    try:
        return OPERATIONS[text.lower().replace("_", "-")]
    except KeyError as error:
        raise CommandError(
            ExitCode.USAGE, f"{text!r} is not an operation", f"there are {', '.join(OPERATIONS)}"
        ) from error


# -- add ---------------------------------------------------------------------------------------------------------------


def _add_add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("principal", metavar="WHO", help="a user such as alice or User:alice; * is everybody")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--role",
        choices=list(ROLES),
        help="all that a producer of topics, a consumer of topics in groups, or an administrator of everything needs",
    )
    what.add_argument(
        "--operation",
        action="append",
        metavar="WHAT",
        help=f"an operation; can be repeated ({', '.join(OPERATIONS)})",
    )
    _add_resource_arguments(parser)
    parser.add_argument("--prefixed", action="store_true", help="the names are the beginnings of names")
    parser.add_argument("--host", default=EVERYTHING, metavar="ADDRESS", help="only from this address (default: any)")
    parser.add_argument("--deny", action="store_true", help="forbid it, whatever else allows it")
    remote.add_json_argument(parser, "one JSON document for each rule")
    remote.add_arguments(parser)


def _add(options: argparse.Namespace) -> ExitCode:
    named = _resources(options)
    wanted = _of_role(options.role, named) if options.role else _of_operations(options.operation, named)
    pattern = PatternType.PREFIXED if options.prefixed else PatternType.LITERAL
    host = _host(options.host)
    created = [
        Acl(
            resource.type,
            resource.name,
            _principal(options.principal),
            operation,
            AclPermission.DENY if options.deny else AclPermission.ALLOW,
            host,
            # The cluster and "all" have no beginnings.
            PatternType.LITERAL if resource.name in (EVERYTHING, rules.CLUSTER_NAME) else pattern,
        )
        for resource, operation in wanted
    ]

    async def work(admin: Admin) -> ExitCode:
        outcomes = await admin.create_acls(created)
        if added := [acl for acl, error in outcomes.items() if error is None]:
            _show(added, options)
        return remote.report_failures(filter(None, outcomes.values()))

    return remote.run(options, work)


def _of_role(role: str, named: list[Named]) -> list[tuple[Named, AclOperation]]:
    rights = ROLES[role]
    types = {each.type for each in named}
    if missing := [type_ for type_ in REQUIRED[role] if type_ not in types]:
        arguments = " and ".join(f"--{_argument(type_)}" for type_ in missing)
        raise CommandError(ExitCode.USAGE, f"a {role} needs {arguments}", "* stands for all of them")
    if strange := [each for each in named if each.type not in rights]:
        raise CommandError(
            ExitCode.USAGE, f"a {role} has nothing to do with --{_argument(strange[0].type)}", "use --operation for it"
        )
    if role == "admin" and not named:
        named = [
            Named(type_, rules.CLUSTER_NAME if type_ is AclResourceType.CLUSTER else EVERYTHING) for type_ in rights
        ]
    return [(each, operation) for each in named for operation in rights[each.type]]


def _of_operations(texts: Iterable[str], named: list[Named]) -> list[tuple[Named, AclOperation]]:
    operations = [_operation(text) for text in texts]
    if not named:
        raise CommandError(ExitCode.USAGE, "no resource is named", "give --topic, --group, --on-cluster or another one")
    return [(each, operation) for each in named for operation in operations]


def _argument(type_: AclResourceType) -> str:
    return type_.name.lower().replace("_", "-")


# -- list and remove ---------------------------------------------------------------------------------------------------


def _add_filter_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--principal", metavar="WHO", help="only rules for exactly this principal")
    parser.add_argument("--operation", metavar="WHAT", help="only rules about this operation")
    parser.add_argument("--host", metavar="ADDRESS", help="only rules for this address")
    _add_resource_arguments(parser)
    parser.add_argument(
        "--pattern",
        choices=list(PATTERNS),
        default="any",
        help="how rules name the resource: exactly (literal), by the beginning (prefixed), or either (any); match: all "
        "that apply to a resource of that name (default: any)",
    )


def _filters(options: argparse.Namespace) -> list[AclFilter]:
    named: list[Named | None] = list(_resources(options)) or [None]
    return [
        AclFilter(
            AclResourceType.ANY if each is None else each.type,
            None if each is None else each.name,
            None if options.principal is None else _principal(options.principal),
            AclOperation.ANY if options.operation is None else _operation(options.operation),
            AclPermission.ANY,
            options.host,
            PATTERNS[options.pattern],
        )
        for each in named
    ]


def _add_list_arguments(parser: argparse.ArgumentParser) -> None:
    _add_filter_arguments(parser)
    remote.add_json_argument(parser, "one JSON document for each rule")
    remote.add_arguments(parser)


def _list(options: argparse.Namespace) -> ExitCode:
    filters = _filters(options)

    async def work(admin: Admin) -> ExitCode:
        found = {acl for each in filters for acl in await admin.describe_acls(each)}
        _show(sorted(found, key=_order), options)
        return ExitCode.OK

    return remote.run(options, work)


def _add_remove_arguments(parser: argparse.ArgumentParser) -> None:
    _add_filter_arguments(parser)
    parser.add_argument("--all", action="store_true", help="remove every rule")
    remote.add_json_argument(parser, "one JSON document for each rule that was removed")
    remote.add_arguments(parser)


def _remove(options: argparse.Namespace) -> ExitCode:
    filters = _filters(options)
    is_narrow = filters != [AclFilter(pattern_type=filters[0].pattern_type)]
    if is_narrow == options.all:
        raise CommandError(
            ExitCode.USAGE, "name the rules to remove, or give --all", "`ottla acls list` takes the same arguments"
        )

    async def work(admin: Admin) -> ExitCode:
        outcomes = await admin.delete_acls(filters)
        failures = []
        removed: set[Acl] = set()
        for outcome in outcomes.values():
            if isinstance(outcome, ApiError):
                failures.append(outcome)
            else:
                removed |= set(outcome)
        _show(sorted(removed, key=_order), options)
        return remote.report_failures(failures)

    return remote.run(options, work)


# -- check -------------------------------------------------------------------------------------------------------------


def _add_check_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("principal", metavar="WHO", help="a user such as alice or User:alice")
    parser.add_argument("operation", metavar="WHAT", help=f"one of {', '.join(OPERATIONS)}")
    parser.add_argument(
        "resource",
        metavar="WHICH",
        help=f"cluster, or one of {', '.join(f'{_argument(type_)}:NAME' for type_ in RESOURCES.values())}",
    )
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="from where (default: 127.0.0.1)")
    remote.add_json_argument(parser, "one JSON document: whether it is allowed, and by which rule")
    remote.add_arguments(parser)


def _check(options: argparse.Namespace) -> ExitCode:
    resource = _parse_resource(options.resource)
    operation = _operation(options.operation)
    principal = _principal(options.principal)

    async def work(admin: Admin) -> ExitCode:
        found = [_as_rule(acl) for acl in await admin.describe_acls()]
        settings = await _authorizer_settings(admin)
        authorizer = Authorizer(found, settings.super_users, allows_unnamed=settings.allows_unnamed)
        verdict = authorizer.decide(principal, options.host, operation, resource.type, resource.name)
        _show_verdict(verdict, principal, resource, options)
        return ExitCode.OK if verdict.is_allowed else ExitCode.REFUSED

    return remote.run(options, work)


def _show_verdict(verdict: Verdict, principal: str, resource: Named, options: argparse.Namespace) -> None:
    if options.json:
        fields: dict[str, Json] = {
            "principal": principal,
            "operation": _operation(options.operation).name,
            "resource_type": resource.type.name,
            "resource_name": resource.name,
            "host": options.host,
            "is_allowed": verdict.is_allowed,
            "rule": verdict.rule,
        }
        print(json_line(fields))
        return
    what = f"{principal} {options.operation.lower()} {_argument(resource.type)} {resource.name}"
    print(f"{'allowed' if verdict.is_allowed else 'denied'}: {what}: {verdict.rule}")


def _parse_resource(text: str) -> Named:
    if text == "cluster":
        return Named(AclResourceType.CLUSTER, rules.CLUSTER_NAME)
    type_name, _, name = text.partition(":")
    type_ = RESOURCES.get(type_name.replace("-", "_"))
    if type_ is None or not name:
        raise CommandError(
            ExitCode.USAGE, f"{text!r} is not a resource", "write topic:orders, group:billing or cluster"
        )
    return Named(type_, name)


def _as_rule(acl: Acl) -> rules.Acl:
    return rules.Acl(
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )


@dataclass(frozen=True, slots=True)
class _AuthorizerSettings:
    super_users: frozenset[str]
    allows_unnamed: bool


async def _authorizer_settings(admin: Admin) -> _AuthorizerSettings:
    """Which rules hold beside the ACLs, by the settings of a broker: they are the same on all of them."""
    broker = (await admin.describe_cluster()).brokers[0]
    config = await admin.describe_config(ConfigResource(ResourceType.BROKER, str(broker.broker_id)))

    def value(name: str) -> str:
        return (config[name].value or "") if name in config else ""

    return _AuthorizerSettings(
        rules.parse_super_users(value("super.users")), value("allow.everyone.if.no.acl.found") == "true"
    )


# -- shown -------------------------------------------------------------------------------------------------------------


def _order(acl: Acl) -> tuple[int, str, int, str, int]:
    return acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal, acl.operation


def _show(acls: Iterable[Acl], options: argparse.Namespace) -> None:
    if not options.json:
        print_table(
            ("PERMISSION", "PRINCIPAL", "OPERATION", "RESOURCE", "NAME", "PATTERN", "HOST"),
            [
                (
                    Cell(acl.permission.name.lower(), Style.BAD if acl.permission is AclPermission.DENY else None),
                    acl.principal,
                    acl.operation.name.lower().replace("_", "-"),
                    _argument(acl.resource_type),
                    acl.resource_name,
                    acl.pattern_type.name.lower(),
                    acl.host,
                )
                for acl in acls
            ],
            if_empty="there are no such rules",
        )
        return
    for acl in acls:
        fields: dict[str, Json] = {
            "principal": acl.principal,
            "permission": acl.permission.name,
            "operation": acl.operation.name,
            "resource_type": acl.resource_type.name,
            "resource_name": acl.resource_name,
            "pattern_type": acl.pattern_type.name,
            "host": acl.host,
        }
        print(json_line(fields))


COMMAND: Final = command_group(
    "acls",
    "who may do what",
    "Add, list, check and remove ACLs: the rules by which brokers with an authorizer (authorizer.class.name) decide\n"
    "who may do what. What no rule allows is denied, except to super users; a rule that denies is stronger than all\n"
    "that allow. Changes count for every open connection at once.",
    [
        Command(
            "add",
            "allow or deny something to somebody",
            "Allow something to somebody, or deny it: by role, which gives all the rights that one needs, or by\n"
            "operation. A rule that exists already is accepted.",
            _add_add_arguments,
            _add,
        ),
        Command("list", "list rules", "List the rules that fit all that is named.", _add_list_arguments, _list),
        Command(
            "check",
            "ask whether WHO may do WHAT with WHICH",
            "Say whether somebody may do something, and which rule decides it: by the ACLs, the super users and the\n"
            "settings of the cluster, with the code by which brokers decide. The exit code is 0 if it is allowed and\n"
            "6 if it is not.",
            _add_check_arguments,
            _check,
        ),
        Command(
            "remove",
            "remove rules",
            "Remove the rules that fit all that is named, and show them.",
            _add_remove_arguments,
            _remove,
        ),
    ],
)

"""ACLs: who may, or may not, do what with which resources; filters over them; and how ZooKeeper keeps them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from ottla.errors import ApiError, ErrorCode, OttlaError

WILDCARD = "*"
CLUSTER_NAME = "kafka-cluster"
LITERAL_ROOT = "/kafka-acl"
PREFIXED_ROOT = "/kafka-acl-extended/prefixed"
LITERAL_CHANGES = "/kafka-acl-changes"
PREFIXED_CHANGES = "/kafka-acl-extended-changes"


class Resource(IntEnum):
    """Kafka's numbers of the types of resources."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @property
    def node_name(self) -> str:
        return "".join(part.capitalize() for part in self.name.split("_"))


class Pattern(IntEnum):
    """How the name of an ACL's resource is meant."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """Kafka's numbers of the operations that rights are given for."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    @property
    def node_name(self) -> str:
        return "".join(part.capitalize() for part in self.name.split("_"))


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


REAL_RESOURCES = frozenset(Resource) - {Resource.UNKNOWN, Resource.ANY}
REAL_OPERATIONS = frozenset(Operation) - {Operation.UNKNOWN, Operation.ANY}


class DamagedAclError(OttlaError):
    """What is stored is not a list of ACLs."""


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One rule."""

    resource: Resource
    name: str
    pattern: Pattern
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        what = f"{self.resource.node_name}:{self.pattern.name}:{self.name}"
        return f"{self.permission.name} {self.principal} from {self.host} to {self.operation.name} {what}"

    def check(self) -> None:
        """ApiError (INVALID_REQUEST) if no such rule can be."""
        problem = None
        if self.resource not in REAL_RESOURCES or self.operation not in REAL_OPERATIONS:
            problem = "the type of the resource and the operation must be named"
        elif self.pattern not in (Pattern.LITERAL, Pattern.PREFIXED):
            problem = "the pattern must be literal or prefixed"
        elif self.permission not in (Permission.ALLOW, Permission.DENY):
            problem = "the permission must be ALLOW or DENY"
        elif not self.name:
            problem = "the resource must have a name"
        elif self.resource is Resource.CLUSTER and self.name != CLUSTER_NAME:
            problem = f"the only resource of type CLUSTER is {CLUSTER_NAME}"
        elif "/" in self.name:
            problem = "the name of the resource has a slash in it"
        elif ":" not in self.principal:
            problem = "the principal must have a type, such as User:alice"
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_REQUEST, problem)


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which rules are meant: None and ANY are every one."""

    resource: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource in (Resource.ANY, acl.resource)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern in (Pattern.LITERAL, Pattern.PREFIXED) and self.pattern != acl.pattern:
            return False
        if self.name is None or self.name == acl.name:
            return True
        if self.pattern != Pattern.MATCH:
            return False
        return applies_to(acl, self.name)


def parse_super_users(text: str) -> frozenset[str]:
    """The principals that `super.users` lists; semicolons separate them, as the names in certificates have commas."""
    return frozenset(filter(None, (user.strip() for user in text.split(";"))))


def applies_to(acl: Acl, name: str) -> bool:
    """Whether the rule is about the resource of this name."""
    if acl.pattern is Pattern.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, WILDCARD)


# -- in ZooKeeper ------------------------------------------------------------------------------------------------------

_BY_NODE_NAME = {resource.node_name: resource for resource in REAL_RESOURCES}
_OPERATIONS = {operation.node_name: operation for operation in REAL_OPERATIONS}
_PERMISSIONS = {"Allow": Permission.ALLOW, "Deny": Permission.DENY}


def node_path(resource: Resource, pattern: Pattern, name: str) -> str:
    root = LITERAL_ROOT if pattern is Pattern.LITERAL else PREFIXED_ROOT
    return f"{root}/{resource.node_name}/{name}"


def change_node(resource: Resource, pattern: Pattern, name: str) -> tuple[str, bytes]:
    """Where brokers look for changes, and what stands there."""
    if pattern is Pattern.LITERAL:
        return f"{LITERAL_CHANGES}/acl_changes_", f"{resource.name}:{name}".encode()
    value = {"version": 1, "resourceType": resource.name, "name": name, "patternType": pattern.name}
    return f"{PREFIXED_CHANGES}/acl_changes_", json.dumps(value, separators=(",", ":")).encode()


def encode_acls(acls: Iterable[Acl]) -> bytes:
    entries = [
        {
            "principal": acl.principal,
            "permissionType": acl.permission.name.capitalize(),
            "operation": acl.operation.node_name,
            "host": acl.host,
        }
        for acl in sorted(acls)
    ]
    return json.dumps({"version": 1, "acls": entries}, separators=(",", ":")).encode()


def decode_acls(resource: Resource, pattern: Pattern, name: str, data: bytes) -> frozenset[Acl]:
    """The rules of a node; DamagedAclError where it does not hold any, so that nobody takes that for freedom."""
    try:
        entries = json.loads(data)["acls"]
        return frozenset(
            Acl(
                resource,
                name,
                pattern,
                str(entry["principal"]),
                str(entry["host"]),
                _OPERATIONS[entry["operation"]],
                _PERMISSIONS[entry["permissionType"]],
            )
            for entry in entries
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedAclError(f"the ACLs of {resource.name} {name} cannot be read") from error


def resource_of_node(name: str) -> Resource | None:
    """The type whose ACLs are below a node of this name."""
    return _BY_NODE_NAME.get(name)

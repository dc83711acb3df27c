"""Whether somebody may do something: Kafka's rules over a set of ACLs, as one immutable value.

A super user may. Otherwise all ACLs that are about the resource are taken: a DENY that fits forbids, an ALLOW that fits
permits, and where no ACL is about the resource at all, `allow.everyone.if.no.acl.found` decides. No ACL is stronger for
being more specific.
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ottla.security.acls import WILDCARD, Acl, Operation, Pattern, Permission, Resource

EVERYBODY = "User:*"
DECISIONS_MAX = 10_000  # remembered: whoever asks for ever new names does not fill the memory with them
NAME_LENGTH_MAX = 256  # of a name in a decision that is remembered
# What an ALLOW of others gives besides; a DENY gives nothing.
IMPLIED_BY = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether something is allowed, and which rule says so."""

    is_allowed: bool
    rule: str


SUPER_USER = Verdict(True, "super user")
OPEN = Verdict(True, "no ACL is about it, and allow.everyone.if.no.acl.found=true")
NOT_ALLOWED = Verdict(False, "no ACL allows it")


def right_number(operation: Operation, resource: Resource) -> int:
    """Of an operation with a type of resource. The hash of a member is computed from its name each time."""
    return operation._value_ << 4 | resource._value_


class Authorizer:
    """What holds at one time. `acls` None: they could not be read, and only super users may do anything."""

    def __init__(
        self, acls: Iterable[Acl] | None, super_users: frozenset[str] = frozenset(), *, allows_unnamed: bool = False
    ) -> None:
        self.super_users = super_users
        self.acls = frozenset(acls or ())
        self.is_closed = acls is None
        self._allows_unnamed = allows_unnamed and acls is not None
        self._literal: dict[tuple[Resource, str], list[Acl]] = defaultdict(list)
        self._prefixed: dict[Resource, dict[str, list[Acl]]] = defaultdict(lambda: defaultdict(list))
        self._by_host = [_as_peers_are_named(acl) for acl in self.acls]
        for acl in self._by_host:
            if acl.pattern is Pattern.LITERAL:
                self._literal[acl.resource, acl.name].append(acl)
            else:
                self._prefixed[acl.resource][acl.name].append(acl)
        # Looked up by length: as many look-ups as there are different lengths of prefixes.
        self._lengths = {
            resource: sorted({len(name) for name in of_resource}) for resource, of_resource in self._prefixed.items()
        }
        # A client asks for the same things with every request, and here nothing changes.
        self._decisions: dict[tuple[str, str, int, int, str], Verdict] = {}
        # Of these what is allowed: by principal and host, and by the number of the right, the names. Whoever holds a
        # part of it asks whether this is still the same one: there is another when it is full.
        self.allowed: dict[tuple[str, str], dict[int, set[str]]] = {}

    def about(self, resource: Resource, name: str) -> Iterator[Acl]:
        """Every ACL that is about the resource."""
        yield from self._literal.get((resource, name), ())
        if name != WILDCARD:
            yield from self._literal.get((resource, WILDCARD), ())
        prefixed = self._prefixed.get(resource)
        if prefixed is not None:
            for length in self._lengths[resource]:
                if length > len(name):
                    break
                yield from prefixed.get(name[:length], ())

    def decide(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> Verdict:
        asked = (principal, host, operation._value_, resource._value_, name)
        verdict = self._decisions.get(asked)
        if verdict is None:
            verdict = self._decide(principal, host, operation, resource, name)
            if len(name) <= NAME_LENGTH_MAX:
                if len(self._decisions) >= DECISIONS_MAX:
                    self._decisions = {}
                    self.allowed = {}
                self._decisions[asked] = verdict
                if verdict.is_allowed:
                    of_peer = self.allowed.setdefault((principal, host), {})
                    of_peer.setdefault(right_number(operation, resource), set()).add(name)
        return verdict

    def _decide(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> Verdict:
        if principal in self.super_users:
            return SUPER_USER
        if self.is_closed:
            return Verdict(False, "the ACLs cannot be read")
        allowing: Acl | None = None
        is_named = False
        implied_by = IMPLIED_BY.get(operation, frozenset())
        for acl in self.about(resource, name):
            is_named = True
            if acl.principal not in (principal, EVERYBODY) or acl.host not in (WILDCARD, host):
                continue
            if acl.permission is Permission.DENY:
                if acl.operation in (operation, Operation.ALL):
                    return Verdict(False, str(acl))
            elif acl.operation in (operation, Operation.ALL) or acl.operation in implied_by:
                allowing = acl
        if allowing is not None:
            return Verdict(True, str(allowing))
        return OPEN if not is_named and self._allows_unnamed else NOT_ALLOWED

    def decide_any(self, principal: str, host: str, operation: Operation, resource: Resource) -> Verdict:
        """Whether somebody may do it with any resource of the type at all."""
        if principal in self.super_users:
            return SUPER_USER
        if self.is_closed:
            return Verdict(False, "the ACLs cannot be read")
        fitting = [
            acl
            for acl in self._by_host
            if acl.resource is resource
            and acl.operation in (operation, Operation.ALL)
            and acl.principal in (principal, EVERYBODY)
            and acl.host in (WILDCARD, host)
        ]
        denied = [acl for acl in fitting if acl.permission is Permission.DENY]
        for acl in denied:
            if acl.pattern is Pattern.LITERAL and acl.name == WILDCARD:
                return Verdict(False, str(acl))
        if self._allows_unnamed:
            return OPEN
        for acl in fitting:
            if acl.permission is Permission.ALLOW and not any(_dominates(other, acl) for other in denied):
                return Verdict(True, str(acl))
        return NOT_ALLOWED


def _as_peers_are_named(acl: Acl) -> Acl:
    """An address of IPv6 can be written in many ways, and Java writes it otherwise than we do."""
    if ":" not in acl.host:
        return acl
    try:
        address = ipaddress.IPv6Address(acl.host.partition("%")[0])
    except ValueError:
        return acl
    return replace(acl, host=str(address.ipv4_mapped or address))


def _dominates(deny: Acl, allow: Acl) -> bool:
    """Whether the DENY covers everything that the ALLOW is about."""
    if deny.pattern is Pattern.PREFIXED:
        return allow.name.startswith(deny.name)
    return allow.pattern is Pattern.LITERAL and allow.name == deny.name

"""Kafka's rules: who may do what, rule by rule."""

from __future__ import annotations

import pytest

from ottla.errors import ApiError
from ottla.security.acls import (
    Acl,
    AclFilter,
    DamagedAclError,
    Operation,
    Pattern,
    Permission,
    Resource,
    decode_acls,
    encode_acls,
    node_path,
)
from ottla.security.authorizer import DECISIONS_MAX, Authorizer, right_number

ALICE, HOST = "User:alice", "10.0.0.1"


def acl(
    operation: Operation = Operation.READ,
    name: str = "t",
    *,
    principal: str = ALICE,
    host: str = "*",
    pattern: Pattern = Pattern.LITERAL,
    permission: Permission = Permission.ALLOW,
    resource: Resource = Resource.TOPIC,
) -> Acl:
    return Acl(resource, name, pattern, principal, host, operation, permission)


def deny(operation: Operation = Operation.READ, name: str = "t", **rest: object) -> Acl:
    return acl(operation, name, permission=Permission.DENY, **rest)  # type: ignore[arg-type]


def may(authorizer: Authorizer, operation: Operation = Operation.READ, name: str = "t", who: str = ALICE) -> bool:
    return authorizer.decide(who, HOST, operation, Resource.TOPIC, name).is_allowed


def test_without_acls_nobody_may_do_anything_but_super_users() -> None:
    authorizer = Authorizer([], frozenset({"User:admin"}))
    assert not may(authorizer)
    assert may(authorizer, who="User:admin")
    assert may(Authorizer([], allows_unnamed=True))


def test_an_acl_for_another_closes_what_is_open_to_everybody() -> None:
    authorizer = Authorizer([acl(principal="User:bob")], allows_unnamed=True)
    assert not may(authorizer)
    assert may(authorizer, name="other")


@pytest.mark.parametrize(
    "rule",
    [
        acl(),
        acl(Operation.ALL),
        acl(name="*"),
        acl(name="", pattern=Pattern.PREFIXED),
        acl(name="t", pattern=Pattern.PREFIXED),
        acl(principal="User:*"),
        acl(host=HOST),
    ],
)
def test_rules_that_allow(rule: Acl) -> None:
    assert may(Authorizer([rule]))
    assert not may(Authorizer([rule, deny()])), "a DENY is stronger than any ALLOW"


@pytest.mark.parametrize(
    "rule",
    [
        acl(name="tt"),
        acl(name="tt", pattern=Pattern.PREFIXED),
        acl(host="10.0.0.2"),
        acl(principal="User:Alice"),
        acl(principal="Group:alice"),
        acl(Operation.WRITE),
        acl(resource=Resource.GROUP),
    ],
)
def test_rules_for_others_or_something_else(rule: Acl) -> None:
    assert not may(Authorizer([rule]))
    denial = Acl(rule.resource, rule.name, rule.pattern, rule.principal, rule.host, rule.operation, Permission.DENY)
    assert may(Authorizer([acl(), denial]))


def test_what_an_allow_implies_and_a_deny_does_not() -> None:
    for operation in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER):
        assert may(Authorizer([acl(operation)]), Operation.DESCRIBE)
        assert may(Authorizer([acl(Operation.DESCRIBE), deny(operation)]), Operation.DESCRIBE)
    assert not may(Authorizer([acl(Operation.CREATE)]), Operation.DESCRIBE)
    assert may(Authorizer([acl(Operation.ALTER_CONFIGS)]), Operation.DESCRIBE_CONFIGS)
    assert not may(Authorizer([acl(Operation.ALL), deny(Operation.ALL)]), Operation.DESCRIBE)


def test_acls_that_cannot_be_read_close_everything_but_to_super_users() -> None:
    authorizer = Authorizer(None, frozenset({"User:admin"}), allows_unnamed=True)
    assert not may(authorizer)
    assert may(authorizer, who="User:admin")


def test_any_resource_of_a_type() -> None:
    def may_any(*rules: Acl, opens: bool = False) -> bool:
        verdict = Authorizer(rules, allows_unnamed=opens).decide_any(ALICE, HOST, Operation.WRITE, Resource.TOPIC)
        return verdict.is_allowed

    write = Operation.WRITE
    assert not may_any()
    assert may_any(acl(write))
    assert may_any(acl(write, "x", pattern=Pattern.PREFIXED))
    assert not may_any(acl(write), deny(write))
    assert not may_any(acl(write, "topic"), deny(write, "t", pattern=Pattern.PREFIXED))
    assert may_any(acl(write, "t", pattern=Pattern.PREFIXED), deny(write, "t"))
    assert not may_any(acl(write), deny(write, "*"))
    assert may_any(opens=True)
    assert not may_any(deny(write, "*"), opens=True)
    assert not may_any(acl(Operation.READ))


def test_cve_2024_27309_what_is_left_after_a_removal_still_decides() -> None:
    rules = {acl(), acl(principal="User:bob"), deny(host="10.0.0.9")}
    left = Authorizer(rules - {acl(principal="User:bob")})
    assert may(left)
    assert not left.decide(ALICE, "10.0.0.9", Operation.READ, Resource.TOPIC, "t").is_allowed


def test_filters() -> None:
    literal, wild, prefixed = acl(name="topic"), acl(name="*"), acl(name="to", pattern=Pattern.PREFIXED)
    everything = [literal, wild, prefixed, acl(name="topic", principal="User:*")]

    def found(name: str | None, pattern: Pattern, principal: str | None = None) -> list[Acl]:
        wanted = AclFilter(Resource.ANY, name, pattern, principal, None, Operation.ANY, Permission.ANY)
        return [one for one in everything if wanted.matches(one)]

    assert found(None, Pattern.ANY) == everything
    assert found("topic", Pattern.MATCH, ALICE) == [literal, wild, prefixed]
    assert found("topic", Pattern.ANY, ALICE) == [literal]
    assert found("to", Pattern.PREFIXED) == [prefixed]
    assert found("to", Pattern.LITERAL) == []
    assert found(None, Pattern.PREFIXED) == [prefixed]


def test_rules_that_cannot_be() -> None:
    for bad in (
        acl(name=""),
        acl(name="a/b"),
        acl(Operation.ANY),
        acl(pattern=Pattern.MATCH),
        acl(resource=Resource.CLUSTER),
        acl(resource=Resource.ANY),
        acl(permission=Permission.ANY),
        acl(principal="alice"),
    ):
        with pytest.raises(ApiError):
            bad.check()
    acl(resource=Resource.CLUSTER, name="kafka-cluster").check()


def test_the_nodes_are_those_of_kafka() -> None:
    rule = acl(Operation.IDEMPOTENT_WRITE, resource=Resource.TRANSACTIONAL_ID)
    assert node_path(rule.resource, rule.pattern, "t") == "/kafka-acl/TransactionalId/t"
    assert node_path(rule.resource, Pattern.PREFIXED, "t") == "/kafka-acl-extended/prefixed/TransactionalId/t"
    data = encode_acls([rule])
    assert data == (
        b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow",'
        b'"operation":"IdempotentWrite","host":"*"}]}'
    )
    assert decode_acls(rule.resource, rule.pattern, "t", data) == {rule}


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"acls":[{}]}', b'{"acls":5}', b'{"acls":[{"operation":"Fly"}]}', b"\xff"]
)
def test_a_damaged_node_is_an_error(data: bytes) -> None:
    with pytest.raises(DamagedAclError):
        decode_acls(Resource.TOPIC, Pattern.LITERAL, "t", data)


@pytest.mark.parametrize("written", ["::1", "0:0:0:0:0:0:0:1", "0000:0000:0000:0000:0000:0000:0000:0001"])
def test_an_address_of_ipv6_is_the_same_however_it_is_written(written: str) -> None:
    denied = deny(host=written)
    authorizer = Authorizer([acl(), denied])
    assert not authorizer.decide("User:alice", "::1", Operation.READ, Resource.TOPIC, "t").is_allowed
    assert authorizer.decide("User:alice", "::2", Operation.READ, Resource.TOPIC, "t").is_allowed
    assert authorizer.acls == {acl(), denied}, "as it was written"


def test_an_address_of_ipv4_inside_of_ipv6_is_one_of_ipv4() -> None:
    authorizer = Authorizer([acl(), deny(host="::ffff:10.0.0.1")])
    assert not authorizer.decide("User:alice", "10.0.0.1", Operation.READ, Resource.TOPIC, "t").is_allowed


# -- decisions that are remembered -------------------------------------------------------------------------------------


def test_a_decision_holds_for_nobody_and_nothing_else() -> None:
    rules = Authorizer({acl(host="10.0.0.1")})
    asked = (ALICE, "10.0.0.1", Operation.READ, Resource.TOPIC, "t")
    for _ in range(2):
        assert rules.decide(*asked).is_allowed
        for place, other in enumerate(("User:bob", "10.0.0.2", Operation.WRITE, Resource.GROUP, "u")):
            changed = [*asked]
            changed[place] = other
            assert not rules.decide(*changed).is_allowed  # type: ignore[arg-type]


def test_decisions_about_ever_new_names_are_not_kept_for_ever() -> None:
    rules = Authorizer({acl()})
    for number in range(DECISIONS_MAX + 10):
        assert not rules.decide(ALICE, HOST, Operation.READ, Resource.TOPIC, str(number)).is_allowed
    assert not rules.decide(ALICE, HOST, Operation.READ, Resource.TOPIC, "x" * 10_000).is_allowed
    assert len(rules._decisions) <= DECISIONS_MAX
    assert rules.allowed == {}
    assert all(len(name) < 10_000 for *_, name in rules._decisions)


def test_names_that_are_allowed_are_remembered_by_peer_and_right_and_forgotten_with_the_decisions() -> None:
    rules = Authorizer({acl(Operation.READ, name="t-", pattern=Pattern.PREFIXED)})
    rules.decide(ALICE, HOST, Operation.READ, Resource.TOPIC, "t-1")
    rules.decide(ALICE, HOST, Operation.WRITE, Resource.TOPIC, "t-1")
    first = rules.allowed
    assert first == {(ALICE, HOST): {right_number(Operation.READ, Resource.TOPIC): {"t-1"}}}
    for number in range(DECISIONS_MAX + 10):
        rules.decide(ALICE, HOST, Operation.READ, Resource.TOPIC, f"t-{number}")
    assert rules.allowed is not first, "whoever holds the first must notice"
    assert sum(map(len, rules.allowed[ALICE, HOST].values())) < DECISIONS_MAX


def test_every_right_has_a_number_of_its_own() -> None:
    numbers = {right_number(operation, resource) for operation in Operation for resource in Resource}
    assert len(numbers) == len(Operation) * len(Resource)

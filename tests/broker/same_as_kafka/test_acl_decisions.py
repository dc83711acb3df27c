"""Random ACLs: literal, prefixed and wildcard names, hosts, denials, everybody; who may do what is what Kafka says.

Each user has ACLs of its own, besides those of everybody, which are about names of this file only.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from ottla.protocol.messages.acls import AclCreation
from ottla.protocol.messages.groups import DescribeGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.topics import CreateTopicsRequest
from ottla.security.acls import Operation, Pattern, Permission, Resource
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import creatable, list_offsets
from ottla.testing.raw_transactions import init_request
from ottla.testing.security import ADMIN
from ottla.testing.side_by_side import Brokers
from ottla.testing.side_by_side.groups import wait_for_group_coordinator
from ottla.testing.side_by_side.rights import RANDOM_USERS
from ottla.testing.side_by_side.secured import acl, add_acls, connect
from ottla.testing.waiting import wait_until

NAMES = ("random", "random-a", "random-ab", "random-abc", "random-b")
PATTERNS = (*NAMES, "random-", "rand", "r", "random-abcd")
HOSTS = ("*", "*", "127.0.0.1", "10.0.0.1")
OF_GROUPS = ["ALL", "READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"]
OPERATIONS = {Resource.TOPIC: [*OF_GROUPS, "WRITE", "CREATE", "ALTER"], Resource.GROUP: OF_GROUPS}
EVERYBODY = "*"


def random_acls(user: str) -> list[AclCreation]:
    """At most fifteen, no two alike: a rule that is there already would not be counted as one more."""
    random = Random(user)
    found: dict[str, AclCreation] = {}
    for _ in range(random.randint(1, 15)):
        resource = random.choice(list(OPERATIONS))
        pattern = random.choice((Pattern.LITERAL, Pattern.PREFIXED))
        may_be_any = user != EVERYBODY and pattern is Pattern.LITERAL and random.random() < 0.2
        one = acl(
            user,
            Operation[random.choice(OPERATIONS[resource])],
            resource,
            "*" if may_be_any else random.choice(PATTERNS if user != EVERYBODY else NAMES[1:]),
            permission=random.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
            pattern=pattern,
            host=random.choice(HOSTS),
        )
        found[repr(one)] = one
    return list(found.values())


def decisions(bootstrap_servers: str) -> dict[str, Any]:
    """The operations that every user may do with every topic and group, and whether it may write to any topic."""
    with connect(bootstrap_servers, ADMIN) as admin:
        made = [creatable(name) for name in NAMES]
        admin.ask(CreateTopicsRequest(topics=made, timeout_ms=60_000), 7)
        wait_until(lambda: all(_is_there(admin, name) for name in NAMES))
        wait_for_group_coordinator(admin, "any")
        wait_until(lambda: admin.ask(init_request(None), 4).producer_id >= 0)
        add_acls(admin, [each for user in (*RANDOM_USERS, EVERYBODY) for each in random_acls(user)])
    return {user: _asked(bootstrap_servers, user) for user in RANDOM_USERS}


def _is_there(admin: RawClient, name: str) -> bool:
    return not admin.ask(list_offsets(name, -1), 7).topics[0].partitions[0].error_code


def _asked(bootstrap_servers: str, user: str) -> Any:
    topics = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in NAMES],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    groups = DescribeGroupsRequest(groups=list(NAMES), include_authorized_operations=True)
    with connect(bootstrap_servers, user) as client:
        return (
            sorted((one.name, one.error_code, one.topic_authorized_operations) for one in client.ask(topics, 9).topics),
            sorted((one.group_id, one.error_code, one.authorized_operations) for one in client.ask(groups, 5).groups),
            client.ask(init_request(None), 4).error_code,
        )


def test_random_acls_decide_as_in_kafka(secured: Brokers) -> None:
    with ThreadPoolExecutor() as threads:
        theirs, ours = threads.map(decisions, (secured.kafka, secured.ours))
    for user in RANDOM_USERS:
        assert ours[user] == theirs[user], f"{user} with {random_acls(user)} and {random_acls(EVERYBODY)}"
    seen = {code for topics, groups, _ in ours.values() for _, code, _ in (*topics, *groups)}
    assert seen == {0, 29, 30}
    assert {code for _, _, code in ours.values()} == {0, 31}

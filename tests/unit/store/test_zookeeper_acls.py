"""Who may do what with which node where `zookeeper.set.acl` is on: as in Kafka."""

from __future__ import annotations

import pytest
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from ottla.store.zookeeper import protecting_acl


@pytest.mark.parametrize(
    "path",
    [
        *["/config/users", "/config/users/alice", "/config/users/alice/clients/app", "/config/brokers"],
        *["/config/brokers/1", "/config/brokers/<default>", "/delegation_token/tokens", "/delegation_token/tokens/a"],
    ],
)
def test_only_brokers_read_credentials(path: str) -> None:
    assert protecting_acl(path) == CREATOR_ALL_ACL


@pytest.mark.parametrize(
    "path",
    [
        *[
            "/",
            "/brokers/ids/1",
            "/config",
            "/config/topics/t",
            "/config/usersguide",
            "/controller",
            "/kafka-acl/Topic/t",
        ],
        *["/kafka-acl-changes/acl_changes_0000000000", "/delegation_token", "/delegation_token/token_changes"],
        "/consumers/group/offsets/t/0",  # stored by a broker for a consumer that commits in version 0
    ],
)
def test_everybody_reads_the_rest_and_only_brokers_write_it(path: str) -> None:
    assert protecting_acl(path) == [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]


def test_the_oldest_consumers_make_their_nodes_themselves() -> None:
    assert protecting_acl("/consumers") == OPEN_ACL_UNSAFE

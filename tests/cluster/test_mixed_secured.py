"""Apache Kafka 3.9 and Ottla in one cluster whose brokers know each other by TLS, with users, ACLs and quotas."""

from __future__ import annotations

import base64
import json
import secrets
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import TopicPartition
from kazoo.client import KazooClient

from ottla import Admin
from ottla.client.errors import ConfigurationError
from ottla.config.jaas import MODULES
from ottla.errors import ErrorCode
from ottla.local_cluster.certificates import Authority
from ottla.protocol.messages.acls import CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from ottla.security.acls import Operation, Pattern, Resource
from ottla.security.scram import ScramMechanism, derive
from ottla.testing.apache_kafka import missing_programs
from ottla.testing.cluster_clients import consume, create_assigned, elect_preferred, new_producer, produce
from ottla.testing.mixed_cluster import KAFKA, OTTLA, MixedCluster
from ottla.testing.ports import free_port
from ottla.testing.raw_client import RawClient
from ottla.testing.raw_requests import one_batch
from ottla.testing.raw_requests import produce as produce_request
from ottla.testing.security import ADMIN, password, tls_settings
from ottla.testing.side_by_side.secured import acl, log_in
from ottla.testing.waiting import WAIT_S, wait_until

pytestmark = pytest.mark.skipif(bool(missing_programs()), reason=f"Kafka needs {missing_programs()}")

HOST: Final = "127.0.0.1"
SCRAM, PLAIN = "SCRAM-SHA-512", "PLAIN"
ANY: Final = 1  # in a filter of ACLs
USERS: Final = ("alice", "bob")
PARTITIONS: Final = (0, 1)  # led by broker 1, and by broker 2
# The test's own listener is open to everything; the survivor of two brokers is alone in sync.
SETTINGS: Final = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "inter.broker.listener.name": "BROKERS",
    "sasl.enabled.mechanisms": f"{SCRAM},{PLAIN}",
    "sasl.mechanism.inter.broker.protocol": SCRAM,
    "delegation.token.secret.key": "the same on all brokers",
    "min.insync.replicas": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
}


class Secured:
    """The listeners of each broker: one for the other brokers, one for users."""

    def __init__(self, directory: Path, protocol: str) -> None:
        self._protocol = protocol
        self.authority = Authority(directory / "certificates")
        self._files = self.authority.create("broker", (HOST,))
        self._users: dict[int, str] = {}

    def listeners(self, node_id: int) -> Mapping[str, str]:
        self._users[node_id] = users = f"{HOST}:{free_port()}"
        known = " ".join(f'user_{user}="{password(user)}"' for user in (ADMIN, *USERS))
        return {
            "listeners": f"BROKERS://{HOST}:{free_port()},USERS://{users}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,BROKERS:{self._protocol},USERS:SASL_SSL",
            "listener.name.brokers.ssl.client.auth": "required",
            "listener.name.brokers.sasl.enabled.mechanisms": SCRAM,
            f"listener.name.brokers.{SCRAM.lower()}.sasl.jaas.config": _login(SCRAM, ADMIN, password(ADMIN)),
            f"listener.name.users.{SCRAM.lower()}.sasl.jaas.config": f"{MODULES[SCRAM]} required;",
            f"listener.name.users.{PLAIN.lower()}.sasl.jaas.config": f"{MODULES[PLAIN]} required {known};",
            "super.users": f"User:ANONYMOUS;User:{ADMIN};User:CN=broker,O=Ottla",
            **tls_settings(self._files),
        }

    def settings(self, node_id: int, mechanism: str, login: str) -> dict[str, str]:
        """Of a client that knows one broker of the cluster only."""
        return {
            "bootstrap.servers": self._users[node_id],
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.truststore),
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": login,
        }

    def as_user(self, node_id: int, user: str) -> Admin:
        return Admin(self.settings(node_id, PLAIN, _login(PLAIN, user, password(user))))

    def lets_in(self, node_id: int, user: str, secret: str, options: str = "") -> bool:
        try:
            with Admin(self.settings(node_id, SCRAM, _login(SCRAM, user, secret, options))):
                return True
        except ConfigurationError:
            return False

    @contextmanager
    def raw(self, node_id: int, user: str) -> Iterator[RawClient]:
        """A connection of a user to this very broker."""
        context = ssl.create_default_context(cafile=self.authority.truststore)
        with RawClient(self._users[node_id]) as client:
            client.socket = context.wrap_socket(client.socket, server_hostname=HOST)
            yield log_in(client, user)


def _login(mechanism: str, user: str, secret: str, options: str = "") -> str:
    return f'{MODULES[mechanism]} required username="{user}" password="{secret}"{options};'


def store_first_user(connect: str) -> None:
    """The user of the brokers has to be there before any broker of Kafka."""
    credential = derive(ScramMechanism.SCRAM_SHA_512, password(ADMIN), secrets.token_bytes(16))
    node = {"version": 1, "config": {SCRAM: credential.to_text()}}
    servers, _, place = connect.partition("/")
    client = KazooClient(servers)
    try:
        client.start(WAIT_S)
        client.create(f"/{place}/config/users/{ADMIN}", json.dumps(node).encode(), makepath=True)
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("protocol", ["SASL_SSL", pytest.param("SSL", marks=pytest.mark.long)])
def test_brokers_that_log_in_to_each_other_replicate_and_follow_what_either_kind_changes(
    protocol: str, connect: str, tmp_path: Path
) -> None:
    """Under each kind of controller, through each kind of broker; each controller dies within a transaction."""
    store_first_user(connect)
    secured = Secured(tmp_path, protocol)
    with MixedCluster(connect, tmp_path, [KAFKA, OTTLA], SETTINGS, more_listeners=secured.listeners) as cluster:
        for topic in ("t", "of-alice"):
            create_assigned(cluster, topic, [1, 2], [2, 1])
        for_alice = acl("alice", Operation.WRITE, Resource.TOPIC, "of-alice")
        with RawClient(cluster.broker(1).bootstrap_servers) as client:
            assert not client.ask(CreateAclsRequest(creations=[for_alice]), 3).results[0].error_code
        values: list[bytes] = []
        for controller, heir in ((1, 2), (2, 1)):
            assert cluster.controller_id == controller
            for asked in (1, 2):
                acls_are_followed(cluster, secured, asked)
                quotas_are_followed(cluster, secured, asked)
                tokens_are_followed(secured, asked)
            passwords_are_followed(secured, controller)

            producer = new_producer(cluster, **{"transactional.id": "x"})
            producer.init_transactions(WAIT_S)
            producer.begin_transaction()
            values.append(b"under %d" % controller)
            for partition in PARTITIONS:
                produce(producer, "t", values[-1:], partition)
            cluster.kill(controller)
            producer.commit_transaction(WAIT_S)
            assert cluster.controller_id == heir
            for partition in PARTITIONS:
                assert cluster.state("t", partition)["leader"] == heir
            cluster.start_broker(controller)
            for partition in PARTITIONS:
                cluster.wait_for_isr("t", partition, 1, 2)
            for topic in ("t", "of-alice"):
                elect_preferred(cluster, *(TopicPartition(topic, partition) for partition in PARTITIONS))
        for partition in PARTITIONS:
            assert consume(cluster, "t", len(values), partition) == values
            cluster.wait_for_equal_logs("t", partition)


def acls_are_followed(cluster: MixedCluster, secured: Secured, asked: int) -> None:
    """Both leaders let bob write from when a rule says so until it is gone."""
    may_write = acl("bob", Operation.WRITE, Resource.TOPIC, "t")
    may_not_write = DeleteAclsFilter(
        resource_type_filter=Resource.TOPIC,
        resource_name_filter="t",
        pattern_type_filter=Pattern.LITERAL,
        principal_filter="User:bob",
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )

    def outcome(partition: int) -> ErrorCode:
        """What the partition's leader answers, who does not take the bytes for records."""
        with secured.raw(partition + 1, "bob") as client:
            answer = client.ask(produce_request("t", b"", partition=partition), 9)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    with RawClient(cluster.broker(asked).bootstrap_servers) as client:
        (created,) = client.ask(CreateAclsRequest(creations=[may_write]), 3).results
        assert created.error_code == ErrorCode.NONE, created
    for partition in PARTITIONS:
        wait_until(lambda: outcome(partition) != ErrorCode.TOPIC_AUTHORIZATION_FAILED)  # noqa: B023
    with RawClient(cluster.broker(3 - asked).bootstrap_servers) as client:
        (deleted,) = client.ask(DeleteAclsRequest(filters=[may_not_write]), 3).filter_results
        assert len(deleted.matching_acls) == 1, deleted
    for partition in PARTITIONS:
        wait_until(lambda: outcome(partition) == ErrorCode.TOPIC_AUTHORIZATION_FAILED)  # noqa: B023


def quotas_are_followed(cluster: MixedCluster, secured: Secured, asked: int) -> None:
    """Both leaders throttle alice."""

    def alter(node_id: int, rate: float | None) -> None:
        op = OpData(key="producer_byte_rate", value=rate or 0.0, remove=rate is None)
        alice = [EntityData(entity_type="user", entity_name="alice")]
        entry = AlterClientQuotasRequestEntryData(entity=alice, ops=[op])
        with RawClient(cluster.broker(node_id).bootstrap_servers) as client:
            answer = client.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
            assert answer.entries[0].error_code == ErrorCode.NONE, answer

    def is_throttled(partition: int) -> bool:
        with secured.raw(partition + 1, "alice") as client:
            request = produce_request("of-alice", one_batch(bytes(20_000)), partition=partition)
            return bool(client.ask(request, 9).throttle_time_ms)

    alter(asked, 1000.0)
    for partition in PARTITIONS:
        wait_until(lambda: is_throttled(partition))  # noqa: B023
    alter(3 - asked, None)
    for partition in PARTITIONS:
        wait_until(lambda: not is_throttled(partition))  # noqa: B023


def tokens_are_followed(secured: Secured, asked: int) -> None:
    """Whoever has the token is let in by both until the other kind ends it."""
    with secured.as_user(asked, "alice") as admin:
        made = admin.create_delegation_token()
    secret = base64.b64encode(made.hmac).decode()

    def is_let_in(node_id: int) -> bool:
        return secured.lets_in(node_id, made.token_id, secret, ' tokenauth="true"')

    for node_id in (1, 2):
        wait_until(lambda: is_let_in(node_id))  # noqa: B023
    with secured.as_user(3 - asked, "alice") as admin:
        admin.expire_delegation_token(made.hmac, period_ms=-1)
    for node_id in (1, 2):
        wait_until(lambda: not is_let_in(node_id))  # noqa: B023


def passwords_are_followed(secured: Secured, controller: int) -> None:
    """Only the controller changes them."""
    with secured.as_user(controller, ADMIN) as admin:
        admin.set_password("carol", f"of {controller}", ScramMechanism.SCRAM_SHA_512)
    for node_id in (1, 2):
        wait_until(lambda: secured.lets_in(node_id, "carol", f"of {controller}"))  # noqa: B023
    with secured.as_user(controller, ADMIN) as admin:
        admin.delete_password("carol", ScramMechanism.SCRAM_SHA_512)
    for node_id in (1, 2):
        wait_until(lambda: not secured.lets_in(node_id, "carol", f"of {controller}"))  # noqa: B023

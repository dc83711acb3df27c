"""Apache Kafka and our broker beside each other, with logins and ACLs: users by name, whose passwords `password` tells.

`admin` may do everything. The others may do what their ACLs say, which are given once, before anybody asks: a change of
ACLs reaches Kafka's broker only some time after its answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ottla.config.jaas import MODULES
from ottla.net.ports import free_ports
from ottla.protocol.messages.acls import AclCreation, CreateAclsRequest, DescribeAclsRequest
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.security.acls import Operation, Pattern, Permission, Resource
from ottla.security.sasl.plain import plain_token
from ottla.testing.apache_kafka import KAFKA_4, ApacheKafka, KafkaBroker
from ottla.testing.broker import Broker
from ottla.testing.raw_client import RawClient
from ottla.testing.security import ADMIN, Security, password
from ottla.testing.side_by_side.brokers import KAFKA_SETTINGS, SETTINGS, Brokers
from ottla.testing.waiting import wait_until

LISTENER = "SASL_PLAINTEXT"
ACLS_AT_ONCE = 1000
ANY = 1


def _settings(users: Iterable[str]) -> dict[str, str]:
    accounts = " ".join(f'user_{user}="{password(user)}"' for user in (ADMIN, *users))
    module = f'{MODULES["PLAIN"]} required username="{ADMIN}" password="{password(ADMIN)}" {accounts};'
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": module,
        "delegation.token.secret.key": "of both",
        "auto.create.topics.enable": "true",
        "transaction.two.phase.commit.enable": "true",
        # Members of groups stay although nobody sends heartbeats for them.
        "group.consumer.session.timeout.ms": "600000",
        "group.consumer.max.session.timeout.ms": "600000",
    }


@contextmanager
def secured_brokers(directory: Path, users: Sequence[str], settings: dict[str, str] | None = None) -> Iterator[Brokers]:
    """Both, until the end of the block; Kafka keeps its files in the directory."""
    common = {**SETTINGS, **_settings(users), **(settings or {})}
    broker_port, controller_port = free_ports(2)
    of_kafka = {
        **KAFKA_SETTINGS,
        **common,
        "inter.broker.listener.name": LISTENER,
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listeners": f"{LISTENER}://127.0.0.1:{broker_port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"{LISTENER}://127.0.0.1:{broker_port}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listener.security.protocol.map": f"{LISTENER}:{LISTENER},CONTROLLER:PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # The broker is nobody to its own controller, whose listener is open.
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
    }
    of_ours = {
        **common,
        "broker.id": "1",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{ADMIN}",
    }
    kafka = KafkaBroker(ApacheKafka.resolve(KAFKA_4), directory, of_kafka)
    with kafka, Broker(of_ours, security=Security(LISTENER, "PLAIN", (ADMIN, *users))) as ours:
        yield Brokers(f"127.0.0.1:{broker_port}", ours.bootstrap_servers)


def log_in(client: RawClient, user: str) -> RawClient:
    assert not client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=plain_token(user, password(user))), 1)
    assert not answer.error_code, answer
    return client


def connect(bootstrap_servers: str, user: str) -> RawClient:
    return log_in(RawClient(bootstrap_servers), user)


def acl(
    user: str,
    operation: Operation,
    resource: Resource,
    name: str = "*",
    *,
    permission: Permission = Permission.ALLOW,
    pattern: Pattern = Pattern.LITERAL,
    host: str = "*",
) -> AclCreation:
    return AclCreation(
        resource_type=resource,
        resource_name="kafka-cluster" if resource is Resource.CLUSTER else name,
        resource_pattern_type=pattern,
        principal=f"User:{user}",
        host=host,
        operation=operation,
        permission_type=permission,
    )


def add_acls(admin: RawClient, acls: Sequence[AclCreation]) -> None:
    """Adds ACLs, and returns when the broker goes by them."""
    before = count_acls(admin)
    for first in range(0, len(acls), ACLS_AT_ONCE):
        results = admin.ask(CreateAclsRequest(creations=list(acls[first : first + ACLS_AT_ONCE])), 3).results
        assert not [one for one in results if one.error_code], results
    wait_until(lambda: count_acls(admin) == before + len(acls))


def count_acls(admin: RawClient) -> int:
    everything = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    return sum(len(resource.acls) for resource in admin.ask(everything, 3).resources)

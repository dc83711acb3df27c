"""Every call of every client ends in its time, whatever the brokers do: all of this on virtual time.

A broker may refuse connections, never accept one, accept and never say a word, tell who it is and then be silent, or
know everything about the cluster and never do anything.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from tests.unit.client.conftest import all_versions

from ottla.client.admin.acls import Acl, AclFilter, AclOperation, AclResourceType
from ottla.client.admin.admin import Admin
from ottla.client.admin.cluster import FeatureUpdate
from ottla.client.admin.configs import ConfigResource
from ottla.client.admin.elections import ElectionType
from ottla.client.admin.groups import Member
from ottla.client.admin.quotas import QuotaEntity
from ottla.client.admin.topics import NewPartitions, NewTopic
from ottla.client.admin.transactions import OpenTransaction
from ottla.client.admin.users import ScramMechanism
from ottla.client.consumer.consumer import Consumer
from ottla.client.errors import BufferExhaustedError, TimedOutError
from ottla.client.producer.producer import Producer
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.testing import loop

TIMEOUT_S = 3.0
SLACK_S = 0.5  # of virtual time: whoever misses a deadline misses it by a request's 30 s or more
PLACE = TopicPartition("orders", 0)
UNREACHABLE = ["refused", "no connection", "no word"]
SILENCES = [*UNREACHABLE, "no metadata", "no answer", "no coordinator"]


class Silent(dict[type, Callable[[Any, int], object]]):
    """The scripts of a broker that answers nothing beyond what it knows."""

    def get(self, kind: type, default: object = None) -> Any:
        return super().get(kind, lambda request, version: None)


def silence(network: Any, kind: str) -> Callable[..., Awaitable[Any]]:
    """A connector to brokers that are silent in this way."""
    broker = network.add(1)
    known = dict(broker.scripts)
    broker.scripts = Silent()
    if kind != "no word":
        broker.scripts[ApiVersionsRequest] = all_versions
    if kind in ("no answer", "no coordinator"):
        broker.scripts[MetadataRequest] = known[MetadataRequest]
    if kind == "no answer":
        broker.scripts[FindCoordinatorRequest] = coordinator
    broker.is_down = kind == "refused"

    async def never(make_protocol: object, address: object) -> Any:
        await asyncio.get_running_loop().create_future()

    return never if kind == "no connection" else network.connector


def coordinator(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(node_id=1, host="broker", port=9001)


async def in_time(call: Awaitable[Any], limit_s: float, what: str, *, is_unreachable: bool = False) -> None:
    """`is_unreachable`: an error has to say who was to be reached."""
    clock = asyncio.get_running_loop()
    began_at = clock.time()
    try:
        async with asyncio.timeout(600):
            await call
    except BufferExhaustedError:
        pass  # the memory is full: whose fault that is, the records in it say
    except TimedOutError as error:
        if is_unreachable and "broker:9001" not in str(error):
            pytest.fail(f"{what}: {error}")
    except OttlaError:
        pass
    except TimeoutError:
        pytest.fail(f"{what} does not end")
    took_s = clock.time() - began_at
    assert took_s <= limit_s + SLACK_S, f"{what} took {took_s:g} s of {limit_s:g}"


def public_coroutines(kind: type) -> set[str]:
    found = {name for name, each in inspect.getmembers(kind, inspect.iscoroutinefunction) if not name.startswith("_")}
    return found - {"close"}  # every test ends with it


# -- admin -------------------------------------------------------------------------------------------------------------

ACL = Acl(AclResourceType.TOPIC, "orders", "User:me", AclOperation.READ)
ADMIN_CALLS: dict[str, tuple[Any, ...]] = {
    "start": (),
    "list_topics": (),
    "list_pipelines": (),
    "describe_topic": ("orders",),
    "describe_topics": (["orders"],),
    "metadata": (),
    "wait_for_topic": ("new",),
    "create_topic": ("new",),
    "create_topics": ([NewTopic("new")],),
    "delete_topic": ("orders",),
    "delete_topics": (["orders"],),
    "create_partitions": ("orders", 3),
    "create_partitions_of_topics": ({"orders": NewPartitions(3)},),
    "describe_config": (ConfigResource.topic("orders"),),
    "describe_configs": ([ConfigResource.topic("orders"), ConfigResource.broker(1)],),
    "alter_config": (ConfigResource.topic("orders"), {"a": "b"}),
    "alter_configs": ({ConfigResource.topic("orders"): {"a": "b"}, ConfigResource.broker(1): {"a": "b"}},),
    "list_config_resources": (),
    "describe_cluster": (),
    "describe_features": (),
    "update_features": ({"a": FeatureUpdate(1)},),
    "unregister_broker": (1,),
    "describe_quorum": (),
    "add_voter": (1, UUID(int=1), {}),
    "remove_voter": (1, UUID(int=1)),
    "list_offset": (PLACE, -1),
    "list_offsets": ({PLACE: -1},),
    "delete_records": ({PLACE: 3},),
    "describe_producers": ([PLACE],),
    "list_groups": (),
    "describe_group": ("g",),
    "describe_groups": (["g", "h"],),
    "delete_group": ("g",),
    "delete_groups": (["g"],),
    "remove_members": ("g", [Member("m")]),
    "committed_offsets": ("g",),
    "committed_offsets_of_groups": (["g"],),
    "lag": ("g",),
    "alter_offsets": ("g", {PLACE: 3}),
    "delete_offsets": ("g", [PLACE]),
    "reset_offsets": ("g", "earliest"),
    "list_transactions": (),
    "describe_transaction": ("t",),
    "describe_transactions": (["t"],),
    "open_transactions": ([PLACE],),
    "hanging_transactions": ([PLACE],),
    "fence_producer": ("t",),
    "fence_producers": (["t"],),
    "abort_transaction": ("t",),
    "abort_open_transaction": (OpenTransaction(PLACE, 1, 0, 0, 0, 0),),
    "elect_leaders": (ElectionType.PREFERRED,),
    "describe_log_dirs": (1,),
    "describe_log_dirs_of_brokers": ([1],),
    "alter_replica_log_dirs": (1, {PLACE: "/d"}),
    "alter_reassignments": ({PLACE: [1]},),
    "list_reassignments": (),
    "describe_acls": (),
    "create_acl": (ACL,),
    "create_acls": ([ACL],),
    "delete_acls": ([AclFilter()],),
    "describe_client_quotas": (),
    "alter_client_quota": (QuotaEntity(user="u"), {"producer_byte_rate": 1.0}),
    "alter_client_quotas": ({QuotaEntity(user="u"): {"producer_byte_rate": 1.0}},),
    "describe_user_scram_credentials": (),
    "set_password": ("u", "p"),
    "delete_password": ("u", ScramMechanism.SCRAM_SHA_256),
    "alter_user_scram_credentials": ([],),
    "create_delegation_token": (),
    "renew_delegation_token": (b"h",),
    "expire_delegation_token": (b"h",),
    "describe_delegation_tokens": (),
}


@pytest.mark.parametrize("kind", SILENCES)
def test_every_call_of_an_admin_client_ends_in_its_time(network: Any, kind: str) -> None:
    assert set(ADMIN_CALLS) == public_coroutines(Admin)
    connector = silence(network, kind)

    async def main() -> None:
        for name, arguments in ADMIN_CALLS.items():
            admin = Admin(bootstrap_servers="broker:9001", connector=connector)
            call = getattr(admin, name)(*arguments, timeout_s=TIMEOUT_S)
            await in_time(call, TIMEOUT_S, f"Admin.{name} with {kind}", is_unreachable=kind in UNREACHABLE)
            await in_time(admin.close(TIMEOUT_S), TIMEOUT_S, "Admin.close")

    loop.run(main())


# -- consumer ----------------------------------------------------------------------------------------------------------

CONSUMER_CALLS: dict[str, Callable[[Consumer[bytes, bytes]], Awaitable[Any]]] = {
    "start": lambda consumer: consumer.start(TIMEOUT_S),
    "poll": lambda consumer: consumer.poll(TIMEOUT_S),
    "take": lambda consumer: consumer.take(TIMEOUT_S),
    "take_some": lambda consumer: consumer.take_some(TIMEOUT_S, lambda: 1),
    "take_batches": lambda consumer: consumer.take_batches(TIMEOUT_S),
    "take_of_one": lambda consumer: consumer.take_of_one(TIMEOUT_S),
    "poll_arrow": lambda consumer: consumer.poll_arrow(TIMEOUT_S),
    "take_arrow": lambda consumer: consumer.take_arrow(TIMEOUT_S),
    "fill": lambda consumer: consumer.fill(TIMEOUT_S),
    "commit": lambda consumer: consumer.commit({PLACE: 3}, TIMEOUT_S),
    "committed": lambda consumer: consumer.committed([PLACE], TIMEOUT_S),
    "seek_to_committed": lambda consumer: consumer.seek_to_committed(PLACE, timeout_s=TIMEOUT_S),
    "seek_to_time": lambda consumer: consumer.seek_to_time(3, PLACE, timeout_s=TIMEOUT_S),
    "position": lambda consumer: consumer.position(PLACE, TIMEOUT_S),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([PLACE], TIMEOUT_S),
    "end_offsets": lambda consumer: consumer.end_offsets([PLACE], TIMEOUT_S),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({PLACE: 3}, TIMEOUT_S),
    "partitions_for": lambda consumer: consumer.partitions_for("other", TIMEOUT_S),
    "unsubscribe": lambda consumer: consumer.unsubscribe(TIMEOUT_S),
}


@pytest.mark.parametrize("protocol", ["assigned", "classic", "consumer"])
@pytest.mark.parametrize("kind", SILENCES)
def test_every_call_of_a_consumer_ends_in_its_time(network: Any, kind: str, protocol: str) -> None:
    assert set(CONSUMER_CALLS) == public_coroutines(Consumer) - {"process"}  # which ends when it is woken
    connector = silence(network, kind)

    async def main() -> None:
        for name, call in CONSUMER_CALLS.items():
            consumer = Consumer(
                bootstrap_servers="broker:9001",
                connector=connector,
                group_id="g",
                group_protocol="consumer" if protocol == "consumer" else "classic",
            )
            if protocol == "assigned" or name in ("position", "seek_to_committed", "seek_to_time"):
                consumer.assign([PLACE])
            else:
                consumer.subscribe(["orders"])
            await in_time(call(consumer), TIMEOUT_S, f"Consumer.{name} with {kind}", is_unreachable=kind in UNREACHABLE)
            await in_time(consumer.close(TIMEOUT_S), TIMEOUT_S, f"Consumer.close after {name} with {kind}")

    loop.run(main())


# -- producer ----------------------------------------------------------------------------------------------------------


async def sent(producer: Producer[bytes, bytes]) -> None:
    await producer.send("orders", b"v")


async def sent_columns(producer: Producer[bytes, bytes]) -> None:
    await (await producer.send_columns("orders", [b"v"]))


async def begun(producer: Producer[bytes, bytes]) -> None:
    async with producer.transaction() as transaction:
        transaction.send("orders", b"v")


# What may take as long as the delivery of a record, and what is to be over after `max_block_s`.
DELIVERY_S = 2 * TIMEOUT_S
PRODUCER_CALLS: dict[str, tuple[float, Callable[[Producer[bytes, bytes]], Awaitable[Any]]]] = {
    "send": (TIMEOUT_S + DELIVERY_S, sent),
    "send_columns": (TIMEOUT_S + DELIVERY_S, sent_columns),
    "send_records": (TIMEOUT_S + DELIVERY_S, sent_columns),
    "partitions_for": (TIMEOUT_S, lambda producer: producer.partitions_for("other", TIMEOUT_S)),
    "flush": (TIMEOUT_S, lambda producer: (producer.send("orders", b"v"), producer.flush(TIMEOUT_S))[1]),
    "room": (TIMEOUT_S, lambda producer: (producer.send("orders", b"v"), producer.room())[1]),
}
TRANSACTION_CALLS: dict[str, tuple[float, Callable[[Producer[bytes, bytes]], Awaitable[Any]]]] = {
    "init_transactions": (TIMEOUT_S, lambda producer: producer.init_transactions()),
    "send_offsets_to_transaction": (TIMEOUT_S, lambda producer: producer.send_offsets_to_transaction({PLACE: 3}, "g")),
    "commit_transaction": (TIMEOUT_S, lambda producer: producer.commit_transaction()),
    "abort_transaction": (TIMEOUT_S, lambda producer: producer.abort_transaction()),
    "transaction": (TIMEOUT_S, begun),
}


@pytest.mark.parametrize("kind", SILENCES)
def test_every_call_of_a_producer_ends_in_its_time(network: Any, kind: str) -> None:
    known = {*PRODUCER_CALLS, *TRANSACTION_CALLS} - {"send", "transaction"}
    assert known == public_coroutines(Producer) - {"accept"}  # a part of `send`
    connector = silence(network, kind)

    async def main() -> None:
        for calls, transactional_id in ((PRODUCER_CALLS, None), (TRANSACTION_CALLS, "t")):
            for name, (limit_s, call) in calls.items():
                producer = Producer(
                    bootstrap_servers="broker:9001",
                    connector=connector,
                    transactional_id=transactional_id,
                    max_block_s=TIMEOUT_S,
                    request_timeout_s=TIMEOUT_S,
                    delivery_timeout_s=DELIVERY_S,
                )
                producer.start()
                await in_time(
                    call(producer), limit_s, f"Producer.{name} with {kind}", is_unreachable=kind in UNREACHABLE
                )
                await in_time(producer.close(TIMEOUT_S), TIMEOUT_S, f"Producer.close after {name} with {kind}")

    loop.run(main())


IN_TRANSACTION: dict[str, Callable[[Producer[bytes, bytes]], Awaitable[Any]]] = {
    "send_offsets_to_transaction": lambda producer: producer.send_offsets_to_transaction({PLACE: 3}, "g"),
    "commit_transaction": lambda producer: producer.commit_transaction(),
    "abort_transaction": lambda producer: producer.abort_transaction(),
    "flush": lambda producer: producer.flush(TIMEOUT_S),
    "close": lambda producer: producer.close(TIMEOUT_S),
}


def test_every_call_ends_in_its_time_when_brokers_fall_silent_in_a_transaction(network: Any) -> None:
    connector = silence(network, "no answer")
    network.brokers[1].scripts[InitProducerIdRequest] = lambda request, version: InitProducerIdResponse(
        producer_id=7, producer_epoch=0
    )

    async def main() -> None:
        for name, call in IN_TRANSACTION.items():
            producer = Producer(
                bootstrap_servers="broker:9001",
                connector=connector,
                transactional_id="t",
                max_block_s=TIMEOUT_S,
                request_timeout_s=TIMEOUT_S,
                delivery_timeout_s=DELIVERY_S,
            )
            await producer.init_transactions()
            producer.begin_transaction()
            future = producer.send("orders", b"v")
            await in_time(call(producer), TIMEOUT_S, f"Producer.{name} in a transaction")
            await in_time(producer.close(TIMEOUT_S), TIMEOUT_S, f"Producer.close after {name} in a transaction")
            assert future.done()

    loop.run(main())


def test_waiting_for_room_behind_columns_ends_in_its_time_and_lets_others_work(network: Any) -> None:
    connector = silence(network, "no answer")

    async def main() -> None:
        producer = Producer(
            bootstrap_servers="broker:9001", connector=connector, buffer_memory=1000, max_block_s=TIMEOUT_S
        )
        await producer.send_columns("orders", [b"v" * 800])
        waiting = asyncio.create_task(producer.send_columns("orders", [b"v" * 800]))
        await asyncio.sleep(0.1)
        with pytest.raises(BufferExhaustedError):
            await producer.room(1.0)
        with pytest.raises(BufferExhaustedError):
            await waiting
        await producer.close(0)

    loop.run(main())

"""Plays the cases of `rights` to one broker: makes what is there first, and asks as each of the users."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from ottla.protocol.messages.tokens import CreateDelegationTokenRequest, DescribeDelegationTokenRequest
from ottla.protocol.messages.topics import CreateTopicsRequest
from ottla.protocol.schema import message_schema_of
from ottla.testing.raw_client import ConnectionEnded, RawClient
from ottla.testing.raw_groups import beat, commit, first_beat
from ottla.testing.raw_requests import creatable, list_offsets, one_batch, produce
from ottla.testing.raw_transactions import ask_until_ready, find_coordinator, init_request
from ottla.testing.security import ADMIN
from ottla.testing.side_by_side.groups import wait_for_group_coordinator
from ottla.testing.side_by_side.rights import Names, acls_of_users, cases, codes_in
from ottla.testing.side_by_side.secured import add_acls, connect
from ottla.testing.side_by_side.transcript import Line, Transcript
from ottla.testing.waiting import wait_until

KEPT = {"retention.ms": "-1"}  # the records of tests are old
# What tells the entries of a list apart; brokers list what they refused before or after the rest.
NAMING = ("name", "topic", "topic_name", "group_id", "key", "topic_id", "transactional_id", "partition_index")


def prepare(bootstrap_servers: str, users: Sequence[str]) -> list[Names]:
    """What every user finds."""
    with connect(bootstrap_servers, ADMIN) as admin:
        add_acls(admin, [each for each in acls_of_users() if each.principal.removeprefix("User:") in users])
        wanted = [creatable(Names(user).topics[0], config=KEPT) for user in users]
        made = admin.ask(CreateTopicsRequest(topics=wanted, timeout_ms=60_000), 7).topics
        ids = {topic.name: topic.topic_id for topic in made}
        everybody = [Names(user, ids[Names(user).topics[0]]) for user in users]
        wait_for_group_coordinator(admin, "any")
        find_coordinator(admin, "any")
        for names in everybody:
            _prepare_for(admin, names)
        owners = {names.of("granted") for names in everybody}
        wait_until(lambda: owners <= _owners_of_tokens(admin))
    return everybody


def _owners_of_tokens(admin: RawClient) -> set[str]:
    return {token.principal_name for token in admin.ask(DescribeDelegationTokenRequest(owners=None), 3).tokens}


def _prepare_for(admin: RawClient, names: Names) -> None:
    topic = names.topics[0]
    wait_until(lambda: not admin.ask(list_offsets(topic, -1), 7).topics[0].partitions[0].error_code)
    txn = names.of("txn")
    producer = ask_until_ready(admin, init_request(txn, timeout_ms=600_000), 5)
    records = one_batch(
        b"x",
        is_transactional=True,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
    )
    for request, version in (
        (produce(topic, one_batch(b"x")), 9),
        (produce(topic, records, transactional_id=txn), 12),
        (commit(names.groups[0], topic, {0: 1}), 9),
    ):
        assert not any(codes_in(admin.ask(request, version)))
    owner = CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name=names.of("granted"), renewers=[], max_lifetime_ms=-1
    )
    assert not admin.ask(owner, 3).error_code
    _assign(admin, names.of("consumers"), topic)


def _assign(admin: RawClient, group: str, topic: str) -> None:
    """A member of the group has the topic. Kafka's coordinator may learn of it after the member came."""
    described = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    epoch = admin.ask(first_beat(group, "m", topic), 1).member_epoch

    def is_assigned() -> bool:
        nonlocal epoch
        member = admin.ask(described, 1).groups[0].members[0]
        if not member.assignment.topic_partitions:
            epoch = admin.ask(beat(group, "m", epoch), 1).member_epoch
        return bool(member.assignment.topic_partitions)

    wait_until(is_assigned)


def announced(bootstrap_servers: str) -> dict[int, range]:
    with RawClient(bootstrap_servers) as client:
        answer = client.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 4)
    return {entry.api_key: range(entry.min_version, entry.max_version + 1) for entry in answer.api_keys}


class Played(NamedTuple):
    """What a user was answered, and the error codes of each API."""

    lines: list[Line]
    codes: dict[int, set[int]]


def play(bootstrap_servers: str, names: Names, served: Mapping[int, range]) -> Played:
    """What the user is answered to every case of an API and version that is served."""
    transcript = Transcript()
    codes: dict[int, set[int]] = defaultdict(set)
    client = connect(bootstrap_servers, names.user)
    try:
        for request, version, seen in cases(names):
            schema = message_schema_of(type(request))
            assert schema.key is not None
            if version not in served.get(schema.key, ()):
                continue
            question = f"{type(request).__name__} v{version}"
            try:
                answer = client.ask(request, version)
            except ConnectionEnded:
                client.close()
                client = connect(bootstrap_servers, names.user)
                transcript.add(question, "closed")
                continue
            codes[schema.key].update(codes_in(answer))
            transcript.add(question, in_order(answer) if seen is None else seen(answer))
    finally:
        client.close()
    return Played(transcript.lines, codes)


def in_order(answer: Any) -> Any:
    """The answer with every list of entries in the order of their names."""
    for field in type(answer).__slots__:
        value = getattr(answer, field)
        if isinstance(value, list) and value and hasattr(type(value[0]), "__schema__"):
            value.sort(key=lambda one: [str(getattr(one, name, "")) for name in NAMING])
            for one in value:
                in_order(one)
    return answer

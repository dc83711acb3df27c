"""What stands in the fields of requests: things that are there, things that are not, and what no client should send.

A field finds its values by its name, or by the name of its struct and its own. What a request speaks about (its topic,
group, member, producer) is chosen once for the whole request, so that its fields fit together more often than not.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final
from uuid import UUID

from ottla.config.topic import TOPIC_SETTINGS
from ottla.protocol.schema import Field, StructSchema
from ottla.protocol.wire import BOOL, BYTES, FLOAT64, RECORDS, STRING, UUID16, ZERO_UUID, Primitive
from ottla.testing.differential.batches import BASE_TIME_MS, draw_batch
from ottla.testing.differential.references import (
    Generation,
    Member,
    MemberEpoch,
    Name,
    ProducerEpoch,
    ProducerId,
    SessionEpoch,
    SessionId,
    Subscription,
    TopicId,
)

# The topics that every history finds, with their partitions and settings; the others may come to be.
TOPICS: Final[dict[str, tuple[int, dict[str, str]]]] = {
    "one": (1, {}),
    "three": (3, {}),
    "compacted": (1, {"cleanup.policy": "compact"}),
    "picky": (1, {"max.message.bytes": "300", "message.timestamp.type": "LogAppendTime"}),
}
COMPACTED: Final = "compacted"
NEW_TOPICS: Final = ("new", "newer")
GROUPS: Final = ("group-a", "group-b")
TRANSACTIONAL_IDS: Final = ("id-a", "id-b")
INSTANCES: Final = ("static-a", "static-b")
MEMBERS: Final = ("member-a", "member-b", "member-c")

# Names of the history's own even so: what one history makes, no other may find. The long ones reach 249 and 250.
STRANGE_NAMES: Final = ("", *map(Name, ("no such", "bad name!", "é", "x" * 237, "x" * 238, "never")))
NO_TOPIC_NAMES: Final = (".", "..")
INTERNAL_TOPICS: Final = ("__consumer_offsets", "__transaction_state", "__cluster_metadata")
STRANGE_UUIDS: Final = (ZERO_UUID, UUID(int=1), UUID(int=0xDEADBEEF))

TOPIC_CONFIG_VALUES: Final = (
    "", "0", "1", "-1", "-2", "1000", "1048576", "9223372036854775807", "9223372036854775808", "0.5", "1.5", "true",
    "false", "TRUE", "yes", "compact", "delete", "compact,delete", "gzip", "zstd", "producer", "none", "CreateTime",
    "LogAppendTime", " 1000 ", "1000ms", "*", "0:1", "a:b",
)  # fmt: skip
GROUP_CONFIGS: Final = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "streams.num.standby.replicas",
    "nonsense",
)
BROKER_CONFIGS: Final = ("log.retention.ms", "num.io.threads", "message.max.bytes", "log.cleanup.policy", "nonsense")


class Subjects:
    """What one request speaks about, and its random numbers."""

    def __init__(self, rng: Random, version: int, sequences: dict[tuple[str | None, str, int], int]) -> None:
        self.rng = rng
        self.version = version
        self._sequences = sequences
        self.topic = self.some_topic()
        self.partition = rng.choice((0, 0, 0, 0, 1, 2, 3, -1, 2**31 - 1, -(2**31)))
        self.group = rng.choice(GROUPS) if rng.random() < 0.3 else GROUPS[0]
        self.member_back = rng.choice((0, 0, 0, 1, 2))
        self.transactional = rng.choice(TRANSACTIONAL_IDS) if rng.random() < 0.3 else TRANSACTIONAL_IDS[0]
        self.producer: str | bool | None = rng.choice((False, False, None, self.transactional))
        self.named_member = rng.choice(MEMBERS)
        self.instance = rng.choice(INSTANCES) if rng.random() < 0.2 else None
        self.joins = rng.random() < 0.3
        self.session = rng.choice(("none", "none", "new", "goes on", "goes on"))

    def odds(self, chance: float) -> bool:
        return self.rng.random() < chance

    def one_of(self, *values: Any) -> Any:
        return self.rng.choice(values)

    def mostly(self, usual: Any, *others: Any, chance: float = 0.85) -> Any:
        return usual if not others or self.odds(chance) else self.rng.choice(others)

    def some_topic(self) -> str:
        return self.rng.choice((*TOPICS, *TOPICS, *NEW_TOPICS))

    def next_sequence(self, producer: str | None, topic: str, partition: int) -> int:
        """The sequence that fits if all that was drawn so far was appended."""
        place = producer, topic, partition
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + 1
        return sequence


Source = Callable[[Subjects], Any]


def _topic_name(s: Subjects) -> Any:
    if s.odds(0.04):
        return s.one_of(*STRANGE_NAMES, *NO_TOPIC_NAMES, *INTERNAL_TOPICS)
    return Name(s.topic if s.odds(0.7) else s.some_topic())


def _topic_id(s: Subjects) -> Any:
    return s.one_of(*STRANGE_UUIDS) if s.odds(0.06) else TopicId(s.topic if s.odds(0.7) else s.some_topic())


def _partition(s: Subjects) -> Any:
    return s.mostly(s.partition, 0, 1, 2, 3, -1, chance=0.85)


def _group(s: Subjects) -> Any:
    return s.mostly(Name(s.group), Name(s.one_of(*GROUPS)), Name("nobody"), *STRANGE_NAMES, chance=0.93)


def _member(s: Subjects) -> Any:
    known = Member(s.group, s.member_back)
    return s.mostly(known, known, s.named_member, "", "unknown", chance=0.7)


def _heartbeat_member(s: Subjects) -> Any:
    return s.mostly(s.named_member, Member(s.group), "", "unknown", chance=0.9)


def _generation(s: Subjects) -> Any:
    return Generation(s.group, s.mostly(0, -1, 1, -2)) if s.odds(0.75) else s.one_of(-1, -1, 0, 1, 2, -2, 2**31 - 1)


def _member_epoch(s: Subjects) -> Any:
    if s.joins:
        return 0
    if s.odds(0.8):
        return MemberEpoch(s.group, s.named_member, s.mostly(0, -1, 1))
    return s.one_of(-1, -1, -2, -3, 0, 1, 2**31 - 1)


def _instance(s: Subjects) -> Any:
    return Name(s.instance) if s.instance else s.mostly(None, "", Name("never"), chance=0.97)


def _producer_id(s: Subjects) -> Any:
    return s.mostly(ProducerId(s.transactional), ProducerId(None), -1, 0, 1_000_000, 2**63 - 1, chance=0.88)


def _producer_epoch(s: Subjects) -> Any:
    epoch = ProducerEpoch(s.transactional, s.mostly(0, -1, 1, -2, chance=0.88))
    return s.mostly(epoch, -1, 0, 32767, -32768, 32766, chance=0.93)


def _transactional(s: Subjects) -> Any:
    return s.mostly(Name(s.transactional), Name("nobody"), "", *(Name(one) for one in TRANSACTIONAL_IDS), chance=0.9)


def _offset(s: Subjects) -> Any:
    return s.mostly(s.one_of(0, 0, 1, 2, 3, 5), -1, -2, 100, 2**63 - 1, -(2**63), chance=0.85)


def _leader_epoch(s: Subjects) -> Any:
    return s.mostly(-1, 0, 0, 1, -2, 2**31 - 1, chance=0.7)


def _records(s: Subjects) -> Any:
    if s.odds(0.03):
        return s.one_of(None, b"", b"\0" * 12, b"\0" * 61)
    producer = s.producer
    sequence = 0 if isinstance(producer, bool) else s.next_sequence(producer, s.topic, s.partition)
    return draw_batch(s.rng, producer, sequence=sequence, needs_keys=s.topic == COMPACTED and s.odds(0.8))


def _config_name(s: Subjects) -> Any:
    return s.mostly(s.rng.choice(sorted(TOPIC_SETTINGS)), "nonsense", "", *GROUP_CONFIGS, *BROKER_CONFIGS, chance=0.9)


def _config_value(s: Subjects) -> Any:
    return s.mostly(s.rng.choice(TOPIC_CONFIG_VALUES), None, chance=0.92)


def _resource_name(s: Subjects) -> Any:
    return s.one_of(*(Name(s.topic),) * 8, Name(s.group), "1", "", "2", Name("never"), Name("bad name!"))


def _joined(usual: Source, absent: Any = None) -> Source:
    """What a member says when it joins, and leaves out as a rule when it only beats."""
    return lambda s: usual(s) if s.joins or s.odds(0.1) else absent


def _number_of(*numbers: Any) -> Source:
    return lambda s: s.one_of(*numbers)


def _usual(usual: Any, *others: Any, chance: float = 0.9) -> Source:
    return lambda s: s.mostly(usual, *others, chance=chance)


SOURCES: Final[dict[str, Source]] = {
    # topics and partitions
    "name": _topic_name,
    "topic": _topic_name,
    "topic_names": _topic_name,
    "topic_name": _topic_name,
    "topic_id": _topic_id,
    "index": _partition,
    "partition": _partition,
    "partitions": _partition,
    "partition_index": _partition,
    "partition_indexes": _partition,
    "MetadataRequestTopic.topic_id": lambda s: ZERO_UUID if s.odds(0.7) else _topic_id(s),
    "DeleteTopicState.name": lambda s: None if s.odds(0.4) else _topic_name(s),
    "DeleteTopicState.topic_id": lambda s: ZERO_UUID if s.odds(0.5) else _topic_id(s),
    "CreatableTopic.name": lambda s: Name(s.one_of(*NEW_TOPICS)) if s.odds(0.7) else _topic_name(s),
    "num_partitions": _number_of(1, 1, 1, 2, 3, -1, 0, -2, 10_001, 2**31 - 1),
    "replication_factor": _number_of(*(1,) * 6, -1, -1, 0, 2, -2, 32767),
    "count": _number_of(1, 2, 3, 4, 4, 5, 0, -1, 10_001, 2**31 - 1),
    "broker_ids": _number_of(1, 1, 1, 2, -1),
    "replicas": _number_of(1, 1, 1, 2, -1),
    "election_type": _number_of(0, 0, 0, 1, 1, 2, -1),
    "CreatableTopicConfig.name": _config_name,
    "AlterConfigsRequestAlterableConfig.name": _config_name,
    "IncrementalAlterConfigsRequestAlterableConfig.name": _config_name,
    "value": _config_value,
    "config_operation": _number_of(0, 0, 0, 1, 1, 2, 3, 4, -1, 127),
    "resource_type": _number_of(*(2,) * 12, 4, 4, 8, 16, 32, 32, 0, 1, 3, -1, 127),
    "resource_types": _number_of(2, 4, 8, 16, 32, 0, 1, -1, 127),
    "resource_name": _resource_name,
    "configuration_keys": _config_name,
    # records
    "records": _records,
    "acks": _usual(-1, 1, 1, 0, 2, -2, 32767, chance=0.7),
    "ProduceRequest.transactional_id": lambda s: (
        Name(s.producer) if isinstance(s.producer, str) else s.mostly(None, Name(s.transactional), "", chance=0.97)
    ),
    "timeout_ms": _usual(10_000),
    "max_wait_ms": _usual(0, 10, -1, chance=0.9),
    "min_bytes": _usual(1, 0, -1, 100, 2**31 - 1, chance=0.8),
    "max_bytes": _usual(1 << 20, 0, 1, 100, 200, -1, 2**31 - 1, chance=0.75),
    "partition_max_bytes": _usual(1 << 20, 0, 1, 100, 200, -1, 2**31 - 1, chance=0.75),
    "isolation_level": _number_of(0, 0, 0, 1, 1, 1),
    "replica_id": _usual(-1, -2, 0, 1, 5, chance=0.95),
    "session_id": lambda s: SessionId() if s.session == "goes on" else s.mostly(0, 1, -1, chance=0.97),
    "session_epoch": lambda s: {
        "none": -1,
        "new": 0,
        "goes on": SessionEpoch(s.mostly(0, -1, 1, chance=0.92)) if s.odds(0.95) else -1,
    }[s.session],
    "fetch_offset": _offset,
    "log_start_offset": _usual(-1, 0, 5),
    "current_leader_epoch": _leader_epoch,
    "last_fetched_epoch": _leader_epoch,
    "leader_epoch": _leader_epoch,
    "rack_id": _usual("", "rack"),
    "cluster_id": _usual(None, "", "never"),
    "replica_directory_id": _usual(ZERO_UUID),
    "high_watermark": _usual(2**63 - 1, 0, 1),
    "replica_epoch": _usual(-1, 0, 1),
    "timestamp": _number_of(
        -1, -1, -2, -2, -3, -4, -5, -6, -7, 0, BASE_TIME_MS, BASE_TIME_MS + 1, BASE_TIME_MS + 5, 2**63 - 1, -(2**63)
    ),
    "offset": _offset,
    # groups
    "group_id": _group,
    "groups": _group,
    "group_ids": _group,
    "groups_names": _group,
    "member_id": _member,
    "generation_id": _generation,
    "generation_id_or_member_epoch": _generation,
    "group_instance_id": _instance,
    "instance_id": _instance,
    "session_timeout_ms": _usual(30_000, 0, -1, 499, 2**31 - 1, 1_800_001, chance=0.93),
    "rebalance_timeout_ms": _usual(30_000, 60_000),
    "ConsumerGroupHeartbeatRequest.rebalance_timeout_ms": _joined(_usual(30_000, 0, -1, -2, chance=0.9), -1),
    "protocol_type": _usual("consumer", "connect", "", chance=0.93),
    "JoinGroupRequestProtocol.name": _number_of("range", "range", "range", "roundrobin", "cooperative-sticky", ""),
    "protocol_name": _usual("range", "roundrobin", "", None, chance=0.9),
    "metadata": lambda s: s.mostly(
        Subscription((s.topic,)), Subscription(()), Subscription(("one", "three")), b"", b"junk", chance=0.7
    ),
    "assignment": _usual(bytes.fromhex("0000 00000000 ffffffff"), b"", b"junk", chance=0.8),
    "reason": _usual(None, "", "because", "r" * 300, chance=0.7),
    "committed_offset": _offset,
    "committed_leader_epoch": _leader_epoch,
    "committed_metadata": _usual("", None, "note", "n" * 4096, "n" * 4097, chance=0.7),
    "commit_timestamp": _usual(-1, BASE_TIME_MS),
    "retention_time_ms": _usual(-1, 0, 10**9),
    "OffsetFetchRequestGroup.member_id": lambda s: None if s.odds(0.7) else _member(s),
    "OffsetFetchRequestGroup.member_epoch": lambda s: -1 if s.odds(0.7) else _generation(s),
    "key": lambda s: s.one_of(Name(s.group), Name(s.transactional), "", Name("never"), "a:b:0"),
    "coordinator_keys": lambda s: s.one_of(Name(s.group), Name(s.transactional), "", Name("never"), "a:b:0"),
    "key_type": _number_of(0, 0, 0, 1, 1, 2, 3, -1, 127),
    "states_filter": _number_of(
        "Stable", "Empty", "stable", "PreparingRebalance", "Reconciling", "Assigning", "Dead", "x", ""
    ),
    "types_filter": _number_of("consumer", "classic", "Classic", "share", "streams", "x", ""),
    "ConsumerGroupHeartbeatRequest.member_id": _heartbeat_member,
    "member_epoch": _member_epoch,
    "subscribed_topic_names": _topic_name,
    "subscribed_topic_regex": _usual(None, "", "(", chance=0.97),
    "server_assignor": _joined(_usual(None, "uniform", "range", "nonsense", "", chance=0.6)),
    "ConsumerGroupHeartbeatRequest.rack_id": _joined(_usual(None, "rack", "")),
    # transactions
    "transactional_id": _transactional,
    "transactional_ids": _transactional,
    "v3_and_below_transactional_id": _transactional,
    "producer_id": _producer_id,
    "producer_epoch": _producer_epoch,
    "v3_and_below_producer_id": _producer_id,
    "v3_and_below_producer_epoch": _producer_epoch,
    "transaction_timeout_ms": _usual(60_000, 0, -1, 900_000, 900_001, 2**31 - 1, chance=0.85),
    "InitProducerIdRequest.transactional_id": lambda s: None if s.odds(0.3) else _transactional(s),
    "InitProducerIdRequest.producer_id": lambda s: -1 if s.joins or s.odds(0.5) else _producer_id(s),
    "InitProducerIdRequest.producer_epoch": lambda s: -1 if s.joins or s.odds(0.5) else _producer_epoch(s),
    "TxnOffsetCommitRequest.generation_id": lambda s: -1 if s.odds(0.6) else _generation(s),
    "TxnOffsetCommitRequest.member_id": lambda s: "" if s.odds(0.6) else _member(s),
    "coordinator_epoch": _usual(0, 1, -1, 5, chance=0.7),
    "transaction_version": _number_of(0, 1, 2, 3, -1),
    "state_filters": _number_of("Ongoing", "Empty", "CompleteCommit", "PrepareAbort", "x", ""),
    "producer_id_filters": _producer_id,
    "duration_filter": _usual(-1, 0, 10**9, -5),
    "transactional_id_pattern": _usual(None, "", ".*", ".*id-a", "nothing", chance=0.4),
    # everything else
    "client_software_name": _usual("raw", "", "-", "a b", "é", chance=0.7),
    "client_software_version": _usual("1.0", "", "-", "a b", "1.0-", chance=0.7),
    "endpoint_type": _number_of(1, 1, 1, 2, 0, 3, -1),
    "response_partition_limit": _number_of(2000, 2000, 1, 2, 0, -1, 2001, 2**31 - 1),
}


def source_of(schema: StructSchema, field: Field) -> Source | None:
    return SOURCES.get(f"{schema.name}.{field.name}") or SOURCES.get(field.name)


def any_value(kind: Primitive, rng: Random) -> Any:
    """A value of a type that has no better source."""
    if kind is STRING:
        return rng.choice(STRANGE_NAMES)
    if kind in (BYTES, RECORDS):
        return rng.choice((b"", b"junk", b"\0" * 30))
    if kind is UUID16:
        return rng.choice(STRANGE_UUIDS)
    if kind is BOOL:
        return rng.random() < 0.5
    if kind is FLOAT64:
        return rng.choice((0.0, -1.0, 1e300))
    return strange_number(kind, rng)


def strange_number(kind: Primitive, rng: Random) -> int:
    highest = (1 << (kind.size * 8 - 1)) - 1
    return rng.choice((0, 1, -1, -2, 2, 7, highest, highest - 1, -highest - 1))

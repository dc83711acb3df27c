"""The error table and the exceptions of the house.

Three kinds of trouble, told apart by type: an `ApiError` is expected and becomes a code in a reply, a `ProtocolError`
means the peer broke the rules of the wire, a `StorageError` means the disk did. Whether a caller may try again is data
on the code, not a class tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, ClassVar

# What a client may do about a code. REFRESH implies RETRY: ask for new metadata, then try again.
RETRY = "retry"
REFRESH = "refresh"
ABORT = "abort"


class ErrorCode(IntEnum):
    """Every error code of the protocol, with what a client may do about it."""

    retriable: bool
    refresh_metadata: bool
    aborts_transaction: bool

    def __new__(cls, code: int, remedy: str = "") -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = remedy in (RETRY, REFRESH)
        member.refresh_metadata = remedy == REFRESH
        member.aborts_transaction = remedy == ABORT
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """What a peer answers; UNKNOWN_SERVER_ERROR for a code of later versions, as Kafka's brokers take it."""
        try:
            return cls(code)
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2, RETRY
    UNKNOWN_TOPIC_OR_PARTITION = 3, REFRESH
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5, REFRESH
    NOT_LEADER_OR_FOLLOWER = 6, REFRESH
    REQUEST_TIMED_OUT = 7, RETRY
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9, REFRESH
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13, REFRESH
    COORDINATOR_LOAD_IN_PROGRESS = 14, RETRY
    COORDINATOR_NOT_AVAILABLE = 15, REFRESH
    NOT_COORDINATOR = 16, REFRESH
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19, RETRY
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, RETRY
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41, RETRY
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51, RETRY
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56, REFRESH
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70, RETRY
    INVALID_FETCH_SESSION_EPOCH = 71, RETRY
    LISTENER_NOT_FOUND = 72, REFRESH
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74, REFRESH
    UNKNOWN_LEADER_EPOCH = 75, RETRY
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78, RETRY
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80, REFRESH
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, REFRESH
    ELECTION_NOT_NEEDED = 84, REFRESH
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88, RETRY
    THROTTLING_QUOTA_EXCEEDED = 89, RETRY
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100, REFRESH
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103, REFRESH
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106, RETRY
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120, ABORT
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122, RETRY
    INVALID_SHARE_SESSION_EPOCH = 123, RETRY
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133, RETRY


class OttlaError(Exception):
    """The root of all exceptions that Ottla raises on purpose. Each survives the way from one process to another."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own would call the constructor with the message alone, which most of ours do not take.
        return _copied, (type(self), self.args, self.__dict__)


def _copied(kind: type[OttlaError], arguments: tuple[object, ...], fields: dict[str, object]) -> OttlaError:
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(fields)
    return error


class ProtocolError(OttlaError):
    """The peer broke the rules of the wire: log one line and close the connection."""


class TooManyElementsError(ProtocolError):
    """A request has more elements than it may have."""


class CannotEncodeError(ProtocolError):
    """A value of a message of ours does not fit its field."""


class ApiError(OttlaError):
    """An expected failure that becomes `code` in a reply."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message


class RecordsError(ApiError):
    """Records that cannot be taken or read.

    `record_index` names the record of a batch that cannot be read, where known; `bad_records` are those that can be
    read and are not wanted, each with the reason: the others of their batch are innocent.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        record_index: int | None = None,
        bad_records: Sequence[tuple[int, str]] = (),
    ) -> None:
        super().__init__(code, message)
        self.record_index = record_index
        self.bad_records = bad_records


class ConfigError(OttlaError):
    """A setting that is unknown, of the wrong type or out of range."""


class StorageError(OttlaError):
    """The disk refused or failed: `path` says where. With a disk that fails, the log directory goes offline."""

    is_disk_failure: ClassVar[bool] = True

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class DiskFullError(StorageError):
    """No room left on the device. The log was put back to where it stood before the write."""


class OutOfDescriptorsError(StorageError):
    """The table of open files is full. Nothing is wrong with the disk: tried again later, it works."""

    is_disk_failure = False


class LockHeldError(StorageError):
    """Another process has the directory. Nothing is wrong with the disk: this process must not touch it."""

    is_disk_failure = False


class CorruptFileError(StorageError):
    """A file of the log directory does not hold what it must; never served, mended or reported by recovery.

    The other files of the directory are as good as before.
    """

    is_disk_failure = False

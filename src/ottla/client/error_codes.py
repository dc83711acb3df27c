"""A class for each error code, below the class that says what to do about it (`client.errors`).

Generated names: that of the code. `error_of_code` is the way from a code to its class.
"""

from __future__ import annotations

from typing import Final

from ottla.client.errors import AbortableError, CodedError, ConfigurationError, FatalError, RestartError, RetriableError
from ottla.errors import ErrorCode


class UnknownServerError(FatalError):
    CODE = ErrorCode.UNKNOWN_SERVER_ERROR


class OffsetOutOfRangeError(FatalError):
    CODE = ErrorCode.OFFSET_OUT_OF_RANGE


class CorruptMessageError(RetriableError):
    CODE = ErrorCode.CORRUPT_MESSAGE


class UnknownTopicOrPartitionError(RetriableError):
    CODE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class InvalidFetchSizeError(FatalError):
    CODE = ErrorCode.INVALID_FETCH_SIZE


class LeaderNotAvailableError(RetriableError):
    CODE = ErrorCode.LEADER_NOT_AVAILABLE


class NotLeaderOrFollowerError(RetriableError):
    CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER


class RequestTimedOutError(RetriableError):
    CODE = ErrorCode.REQUEST_TIMED_OUT


class BrokerNotAvailableError(FatalError):
    CODE = ErrorCode.BROKER_NOT_AVAILABLE


class ReplicaNotAvailableError(RetriableError):
    CODE = ErrorCode.REPLICA_NOT_AVAILABLE


class MessageTooLargeError(FatalError):
    CODE = ErrorCode.MESSAGE_TOO_LARGE


class StaleControllerEpochError(FatalError):
    CODE = ErrorCode.STALE_CONTROLLER_EPOCH


class OffsetMetadataTooLargeError(FatalError):
    CODE = ErrorCode.OFFSET_METADATA_TOO_LARGE


class NetworkError(RetriableError):
    CODE = ErrorCode.NETWORK_EXCEPTION


class CoordinatorLoadInProgressError(RetriableError):
    CODE = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailableError(RetriableError):
    CODE = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotCoordinatorError(RetriableError):
    CODE = ErrorCode.NOT_COORDINATOR


class InvalidTopicError(ConfigurationError):
    CODE = ErrorCode.INVALID_TOPIC_EXCEPTION


class RecordListTooLargeError(ConfigurationError):
    CODE = ErrorCode.RECORD_LIST_TOO_LARGE


class NotEnoughReplicasError(RetriableError):
    CODE = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppendError(RetriableError):
    CODE = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class InvalidRequiredAcksError(ConfigurationError):
    CODE = ErrorCode.INVALID_REQUIRED_ACKS


class IllegalGenerationError(RestartError):
    CODE = ErrorCode.ILLEGAL_GENERATION


class InconsistentGroupProtocolError(FatalError):
    CODE = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class InvalidGroupIdError(FatalError):
    CODE = ErrorCode.INVALID_GROUP_ID


class UnknownMemberIdError(RestartError):
    CODE = ErrorCode.UNKNOWN_MEMBER_ID


class InvalidSessionTimeoutError(FatalError):
    CODE = ErrorCode.INVALID_SESSION_TIMEOUT


class RebalanceInProgressError(FatalError):
    CODE = ErrorCode.REBALANCE_IN_PROGRESS


class InvalidCommitOffsetSizeError(FatalError):
    CODE = ErrorCode.INVALID_COMMIT_OFFSET_SIZE


class TopicAuthorizationFailedError(ConfigurationError):
    CODE = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupAuthorizationFailedError(ConfigurationError):
    CODE = ErrorCode.GROUP_AUTHORIZATION_FAILED


class ClusterAuthorizationFailedError(ConfigurationError):
    CODE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class InvalidTimestampError(FatalError):
    CODE = ErrorCode.INVALID_TIMESTAMP


class UnsupportedSaslMechanismError(ConfigurationError):
    CODE = ErrorCode.UNSUPPORTED_SASL_MECHANISM


class IllegalSaslStateError(ConfigurationError):
    CODE = ErrorCode.ILLEGAL_SASL_STATE


class UnsupportedVersionError(ConfigurationError):
    CODE = ErrorCode.UNSUPPORTED_VERSION


class TopicAlreadyExistsError(FatalError):
    CODE = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidPartitionsError(FatalError):
    CODE = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactorError(ConfigurationError):
    CODE = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignmentError(FatalError):
    CODE = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class InvalidConfigError(ConfigurationError):
    CODE = ErrorCode.INVALID_CONFIG


class NotControllerError(RetriableError):
    CODE = ErrorCode.NOT_CONTROLLER


class InvalidRequestError(FatalError):
    CODE = ErrorCode.INVALID_REQUEST


class UnsupportedForMessageFormatError(ConfigurationError):
    CODE = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class PolicyViolationError(FatalError):
    CODE = ErrorCode.POLICY_VIOLATION


class OutOfOrderSequenceNumberError(FatalError):
    CODE = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class DuplicateSequenceNumberError(FatalError):
    CODE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


class InvalidProducerEpochError(RestartError):
    CODE = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTxnStateError(FatalError):
    CODE = ErrorCode.INVALID_TXN_STATE


class InvalidProducerIdMappingError(RestartError):
    CODE = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class InvalidTransactionTimeoutError(FatalError):
    CODE = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class ConcurrentTransactionsError(RetriableError):
    CODE = ErrorCode.CONCURRENT_TRANSACTIONS


class TransactionCoordinatorFencedError(FatalError):
    CODE = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class TransactionalIdAuthorizationFailedError(ConfigurationError):
    CODE = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class SecurityDisabledError(FatalError):
    CODE = ErrorCode.SECURITY_DISABLED


class OperationNotAttemptedError(FatalError):
    CODE = ErrorCode.OPERATION_NOT_ATTEMPTED


class KafkaStorageError(RetriableError):
    CODE = ErrorCode.KAFKA_STORAGE_ERROR


class LogDirNotFoundError(FatalError):
    CODE = ErrorCode.LOG_DIR_NOT_FOUND


class SaslAuthenticationFailedError(ConfigurationError):
    CODE = ErrorCode.SASL_AUTHENTICATION_FAILED


class UnknownProducerIdError(FatalError):
    CODE = ErrorCode.UNKNOWN_PRODUCER_ID


class ReassignmentInProgressError(FatalError):
    CODE = ErrorCode.REASSIGNMENT_IN_PROGRESS


class DelegationTokenAuthDisabledError(FatalError):
    CODE = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


class DelegationTokenNotFoundError(FatalError):
    CODE = ErrorCode.DELEGATION_TOKEN_NOT_FOUND


class DelegationTokenOwnerMismatchError(FatalError):
    CODE = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


class DelegationTokenRequestNotAllowedError(FatalError):
    CODE = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class DelegationTokenAuthorizationFailedError(ConfigurationError):
    CODE = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED


class DelegationTokenExpiredError(FatalError):
    CODE = ErrorCode.DELEGATION_TOKEN_EXPIRED


class InvalidPrincipalTypeError(FatalError):
    CODE = ErrorCode.INVALID_PRINCIPAL_TYPE


class NonEmptyGroupError(FatalError):
    CODE = ErrorCode.NON_EMPTY_GROUP


class GroupIdNotFoundError(FatalError):
    CODE = ErrorCode.GROUP_ID_NOT_FOUND


class FetchSessionIdNotFoundError(RetriableError):
    CODE = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class InvalidFetchSessionEpochError(RetriableError):
    CODE = ErrorCode.INVALID_FETCH_SESSION_EPOCH


class ListenerNotFoundError(RetriableError):
    CODE = ErrorCode.LISTENER_NOT_FOUND


class TopicDeletionDisabledError(FatalError):
    CODE = ErrorCode.TOPIC_DELETION_DISABLED


class FencedLeaderEpochError(RetriableError):
    CODE = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpochError(RetriableError):
    CODE = ErrorCode.UNKNOWN_LEADER_EPOCH


class UnsupportedCompressionTypeError(FatalError):
    CODE = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class StaleBrokerEpochError(FatalError):
    CODE = ErrorCode.STALE_BROKER_EPOCH


class OffsetNotAvailableError(RetriableError):
    CODE = ErrorCode.OFFSET_NOT_AVAILABLE


class MemberIdRequiredError(FatalError):
    CODE = ErrorCode.MEMBER_ID_REQUIRED


class PreferredLeaderNotAvailableError(RetriableError):
    CODE = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


class GroupMaxSizeReachedError(FatalError):
    CODE = ErrorCode.GROUP_MAX_SIZE_REACHED


class FencedInstanceIdError(RestartError):
    CODE = ErrorCode.FENCED_INSTANCE_ID


class EligibleLeadersNotAvailableError(RetriableError):
    CODE = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


class ElectionNotNeededError(RetriableError):
    CODE = ErrorCode.ELECTION_NOT_NEEDED


class NoReassignmentInProgressError(FatalError):
    CODE = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class GroupSubscribedToTopicError(FatalError):
    CODE = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


class InvalidRecordError(ConfigurationError):
    CODE = ErrorCode.INVALID_RECORD


class UnstableOffsetCommitError(RetriableError):
    CODE = ErrorCode.UNSTABLE_OFFSET_COMMIT


class ThrottlingQuotaExceededError(RetriableError):
    CODE = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class ProducerFencedError(RestartError):
    CODE = ErrorCode.PRODUCER_FENCED


class ResourceNotFoundError(FatalError):
    CODE = ErrorCode.RESOURCE_NOT_FOUND


class DuplicateResourceError(FatalError):
    CODE = ErrorCode.DUPLICATE_RESOURCE


class UnacceptableCredentialError(FatalError):
    CODE = ErrorCode.UNACCEPTABLE_CREDENTIAL


class InconsistentVoterSetError(FatalError):
    CODE = ErrorCode.INCONSISTENT_VOTER_SET


class InvalidUpdateVersionError(FatalError):
    CODE = ErrorCode.INVALID_UPDATE_VERSION


class FeatureUpdateFailedError(FatalError):
    CODE = ErrorCode.FEATURE_UPDATE_FAILED


class PrincipalDeserializationFailureError(FatalError):
    CODE = ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE


class SnapshotNotFoundError(FatalError):
    CODE = ErrorCode.SNAPSHOT_NOT_FOUND


class PositionOutOfRangeError(FatalError):
    CODE = ErrorCode.POSITION_OUT_OF_RANGE


class UnknownTopicIdError(RetriableError):
    CODE = ErrorCode.UNKNOWN_TOPIC_ID


class DuplicateBrokerRegistrationError(FatalError):
    CODE = ErrorCode.DUPLICATE_BROKER_REGISTRATION


class BrokerIdNotRegisteredError(FatalError):
    CODE = ErrorCode.BROKER_ID_NOT_REGISTERED


class InconsistentTopicIdError(RetriableError):
    CODE = ErrorCode.INCONSISTENT_TOPIC_ID


class InconsistentClusterIdError(FatalError):
    CODE = ErrorCode.INCONSISTENT_CLUSTER_ID


class TransactionalIdNotFoundError(FatalError):
    CODE = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


class FetchSessionTopicIdError(RetriableError):
    CODE = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


class IneligibleReplicaError(FatalError):
    CODE = ErrorCode.INELIGIBLE_REPLICA


class NewLeaderElectedError(FatalError):
    CODE = ErrorCode.NEW_LEADER_ELECTED


class OffsetMovedToTieredStorageError(FatalError):
    CODE = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE


class FencedMemberEpochError(FatalError):
    CODE = ErrorCode.FENCED_MEMBER_EPOCH


class UnreleasedInstanceIdError(FatalError):
    CODE = ErrorCode.UNRELEASED_INSTANCE_ID


class UnsupportedAssignorError(FatalError):
    CODE = ErrorCode.UNSUPPORTED_ASSIGNOR


class StaleMemberEpochError(FatalError):
    CODE = ErrorCode.STALE_MEMBER_EPOCH


class MismatchedEndpointTypeError(FatalError):
    CODE = ErrorCode.MISMATCHED_ENDPOINT_TYPE


class UnsupportedEndpointTypeError(FatalError):
    CODE = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


class UnknownControllerIdError(FatalError):
    CODE = ErrorCode.UNKNOWN_CONTROLLER_ID


class UnknownSubscriptionIdError(FatalError):
    CODE = ErrorCode.UNKNOWN_SUBSCRIPTION_ID


class TelemetryTooLargeError(FatalError):
    CODE = ErrorCode.TELEMETRY_TOO_LARGE


class InvalidRegistrationError(FatalError):
    CODE = ErrorCode.INVALID_REGISTRATION


class TransactionAbortableError(AbortableError):
    CODE = ErrorCode.TRANSACTION_ABORTABLE


class InvalidRecordStateError(FatalError):
    CODE = ErrorCode.INVALID_RECORD_STATE


class ShareSessionNotFoundError(RetriableError):
    CODE = ErrorCode.SHARE_SESSION_NOT_FOUND


class InvalidShareSessionEpochError(RetriableError):
    CODE = ErrorCode.INVALID_SHARE_SESSION_EPOCH


class FencedStateEpochError(FatalError):
    CODE = ErrorCode.FENCED_STATE_EPOCH


class InvalidVoterKeyError(FatalError):
    CODE = ErrorCode.INVALID_VOTER_KEY


class DuplicateVoterError(FatalError):
    CODE = ErrorCode.DUPLICATE_VOTER


class VoterNotFoundError(FatalError):
    CODE = ErrorCode.VOTER_NOT_FOUND


class InvalidRegularExpressionError(FatalError):
    CODE = ErrorCode.INVALID_REGULAR_EXPRESSION


class RebootstrapRequiredError(FatalError):
    CODE = ErrorCode.REBOOTSTRAP_REQUIRED


class StreamsInvalidTopologyError(FatalError):
    CODE = ErrorCode.STREAMS_INVALID_TOPOLOGY


class StreamsInvalidTopologyEpochError(FatalError):
    CODE = ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH


class StreamsTopologyFencedError(FatalError):
    CODE = ErrorCode.STREAMS_TOPOLOGY_FENCED


class ShareSessionLimitReachedError(RetriableError):
    CODE = ErrorCode.SHARE_SESSION_LIMIT_REACHED


_CLASSES: Final[dict[ErrorCode, type[CodedError]]] = {
    each.CODE: each
    for group in (RetriableError, AbortableError, RestartError, ConfigurationError, FatalError)
    for each in group.__subclasses__()
    if each.__module__ == __name__
}


def error_of_code(code: ErrorCode, message: str = "") -> CodedError:
    """The error of a code, of its own class."""
    return _CLASSES[code](message)

"""Delegation tokens."""

from ottla.protocol.schema import message, struct, wire
from ottla.protocol.wire import Bytes, Int16, Int32, Int64, String


@struct
class CreatableRenewers:
    """An entry of `renewers` of `CreateDelegationTokenRequest`."""

    principal_type: String
    principal_name: String


@message(key=38, versions=(0, 3), flexible=2, listeners=("broker", "controller"), advertised=(1, 3))
class CreateDelegationTokenRequest:
    """Creates a delegation token."""

    owner_principal_type: String | None = wire(since=3, default=None)
    owner_principal_name: String | None = wire(since=3, default=None)
    renewers: list[CreatableRenewers]
    max_lifetime_ms: Int64


@message(key=38, versions=(0, 3), flexible=2)
class CreateDelegationTokenResponse:
    """The token, its secret and its times."""

    error_code: Int16 = wire(default=0)
    principal_type: String
    principal_name: String
    token_requester_principal_type: String = wire(since=3, default="")
    token_requester_principal_name: String = wire(since=3, default="")
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: String
    hmac: Bytes
    throttle_time_ms: Int32 = wire(default=0)


@message(key=39, versions=(0, 2), flexible=2, listeners=("broker", "controller"), advertised=(1, 2))
class RenewDelegationTokenRequest:
    """Extends the life of a token."""

    hmac: Bytes
    renew_period_ms: Int64


@message(key=39, versions=(0, 2), flexible=2)
class RenewDelegationTokenResponse:
    """The new time of expiry."""

    error_code: Int16 = wire(default=0)
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = wire(default=0)


@message(key=40, versions=(0, 2), flexible=2, listeners=("broker", "controller"), advertised=(1, 2))
class ExpireDelegationTokenRequest:
    """Shortens the life of a token or ends it."""

    hmac: Bytes
    expiry_time_period_ms: Int64


@message(key=40, versions=(0, 2), flexible=2)
class ExpireDelegationTokenResponse:
    """The new time of expiry."""

    error_code: Int16 = wire(default=0)
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = wire(default=0)


@struct
class DescribeDelegationTokenOwner:
    """An entry of `owners` of `DescribeDelegationTokenRequest`."""

    principal_type: String
    principal_name: String


@message(key=41, versions=(0, 3), flexible=2, listeners=("broker", "controller"), advertised=(1, 3))
class DescribeDelegationTokenRequest:
    """Asks for tokens, by owner."""

    owners: list[DescribeDelegationTokenOwner] | None


@struct
class DescribedDelegationTokenRenewer:
    """An entry of `renewers` of `DescribedDelegationToken`."""

    principal_type: String
    principal_name: String


@struct
class DescribedDelegationToken:
    """An entry of `tokens` of `DescribeDelegationTokenResponse`."""

    principal_type: String
    principal_name: String
    token_requester_principal_type: String = wire(since=3, default="")
    token_requester_principal_name: String = wire(since=3, default="")
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: String
    hmac: Bytes
    renewers: list[DescribedDelegationTokenRenewer]


@message(key=41, versions=(0, 3), flexible=2)
class DescribeDelegationTokenResponse:
    """The tokens found."""

    error_code: Int16 = wire(default=0)
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: Int32 = wire(default=0)

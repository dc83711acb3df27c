"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken.

They are refused where nobody knows who asks, and on a connection that was itself opened by a token: that look comes
first, so the rights are asked here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.broker.session import ANONYMOUS
from ottla.broker.token_store import TokenStore
from ottla.cluster.nodes import MetadataError
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ottla.security.acls import Operation, Resource
from ottla.security.delegation_tokens import DelegationToken
from ottla.store.api import StoreError

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

USER = "User"
NOT_SET = -1
FIRST_REQUESTER_VERSION = 3  # of CreateDelegationToken and DescribeDelegationToken


async def handle_create(
    broker: Broker, request: CreateDelegationTokenRequest, context: Context
) -> CreateDelegationTokenResponse:
    requester = context.session.principal
    owner = requester
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type or USER}:{request.owner_principal_name}"
    try:
        _check_connection(broker, context)
        if owner != requester and not _may(context, Operation.CREATE_TOKENS, Resource.USER, owner):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        if any(each.principal_type != USER for each in request.renewers):
            raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        renewers = tuple(f"{each.principal_type}:{each.principal_name}" for each in request.renewers)
        tokens = _enabled(broker)
        token = await tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    except (ApiError, StoreError) as error:
        return _not_created(_code(error), owner, requester, context.version)
    return CreateDelegationTokenResponse(
        **_principals(token.owner, token.requester, context.version),
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.token_id,
        hmac=tokens.hmac_of(token),
    )


def _not_created(code: ErrorCode, owner: str, requester: str, version: int) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=code,
        **_principals(owner, requester, version),
        issue_timestamp_ms=NOT_SET,
        expiry_timestamp_ms=NOT_SET,
        max_timestamp_ms=NOT_SET,
        token_id="",
        hmac=b"",
    )


async def handle_renew(
    broker: Broker, request: RenewDelegationTokenRequest, context: Context
) -> RenewDelegationTokenResponse:
    try:
        _check_connection(broker, context)
        token = await _enabled(broker).renew(bytes(request.hmac), context.session.principal, request.renew_period_ms)
    except (ApiError, StoreError, MetadataError) as error:
        return RenewDelegationTokenResponse(error_code=_code(error), expiry_timestamp_ms=_no_expiry(error))
    return RenewDelegationTokenResponse(expiry_timestamp_ms=token.expires_ms)


async def handle_expire(
    broker: Broker, request: ExpireDelegationTokenRequest, context: Context
) -> ExpireDelegationTokenResponse:
    try:
        _check_connection(broker, context)
        expires_ms = await _enabled(broker).expire(
            bytes(request.hmac), context.session.principal, request.expiry_time_period_ms
        )
    except (ApiError, StoreError, MetadataError) as error:
        return ExpireDelegationTokenResponse(error_code=_code(error), expiry_timestamp_ms=_no_expiry(error))
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_ms)


async def handle_describe(
    broker: Broker, request: DescribeDelegationTokenRequest, context: Context
) -> DescribeDelegationTokenResponse:
    try:
        _check_connection(broker, context)
        tokens = _enabled(broker)
        owners = (
            None
            if request.owners is None
            else {f"{each.principal_type}:{each.principal_name}" for each in request.owners}
        )
        found = [] if owners == set() else await tokens.all()
    except (ApiError, StoreError, MetadataError) as error:
        return DescribeDelegationTokenResponse(error_code=_code(error), tokens=[])
    visible = [token for token in found if (owners is None or token.owner in owners) and _is_visible(context, token)]
    return DescribeDelegationTokenResponse(
        tokens=[_described(token, tokens.hmac_of(token), context.version) for token in visible]
    )


def _is_visible(context: Context, token: DelegationToken) -> bool:
    """The answer has the secrets of the tokens."""
    return (
        token.is_visible_to(context.session.principal)
        or _may(context, Operation.DESCRIBE, Resource.DELEGATION_TOKEN, token.token_id, quietly=True)
        or _may(context, Operation.DESCRIBE_TOKENS, Resource.USER, token.owner, quietly=True)
    )


def _principals(owner: str, requester: str, version: int) -> dict[str, Any]:
    """The fields of an answer that say whose token it is, and who asked for it."""
    kind, _, name = owner.partition(":")
    fields: dict[str, Any] = {"principal_type": kind, "principal_name": name}
    if version >= FIRST_REQUESTER_VERSION:
        kind, _, name = requester.partition(":")
        fields |= {"token_requester_principal_type": kind, "token_requester_principal_name": name}
    return fields


def _described(token: DelegationToken, hmac: bytes, version: int) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        **_principals(token.owner, token.requester, version),
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, _, name in (each.partition(":") for each in token.renewers)
        ],
    )


def _check_connection(broker: Broker, context: Context) -> None:
    """ApiError where whoever asks has not shown who they are, or only by a token."""
    session = context.session
    protocol = broker.config.security_of_listeners[session.listener_name].protocol
    is_unknown = protocol == "PLAINTEXT" or (protocol == "SSL" and session.principal == ANONYMOUS)
    if is_unknown or session.is_by_token:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def _may(context: Context, operation: Operation, resource: Resource, name: str, *, quietly: bool = False) -> bool:
    """Without an authorizer everybody may do everything."""
    return context.rights is None or context.rights.may(operation, resource, name, quietly=quietly)


def _enabled(broker: Broker) -> TokenStore:
    if broker.tokens is None:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "set delegation.token.secret.key of the brokers")
    return broker.tokens


def _no_expiry(error: Exception) -> int:
    """As Kafka's broker says it, which does not ask its controller for such a connection; else as the controller."""
    return NOT_SET if _code(error) is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED else 0


def _code(error: Exception) -> ErrorCode:
    return error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR

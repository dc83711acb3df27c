"""DescribeUserScramCredentials and AlterUserScramCredentials: who has a password, and new ones. None is ever told."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from ottla.broker.scram_users import ScramChange, ScramUsers
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism, from_salted
from ottla.store.api import StoreError

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


async def handle_describe(
    broker: Broker, request: DescribeUserScramCredentialsRequest, context: Context
) -> DescribeUserScramCredentialsResponse:
    users = ScramUsers(broker.store)
    try:
        names = [one.name for one in request.users] if request.users else await users.names()
        asked = Counter(names)
        results = [await _described(users, name, asked[name]) for name in asked]
    except StoreError as error:
        return DescribeUserScramCredentialsResponse(
            error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message=str(error), results=[]
        )
    return DescribeUserScramCredentialsResponse(results=results)


async def _described(users: ScramUsers, name: str, times: int) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=name, credential_infos=[])
    if times > 1:
        result.error_code = ErrorCode.DUPLICATE_RESOURCE
        result.error_message = f"user {name} is named {times} times"
        return result
    credentials = await users.credentials(name)
    if not credentials:
        result.error_code = ErrorCode.RESOURCE_NOT_FOUND
        result.error_message = f"user {name} has no SCRAM credentials"
    result.credential_infos = [
        CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        for mechanism, credential in credentials.items()
    ]
    return result


async def handle_alter(
    broker: Broker, request: AlterUserScramCredentialsRequest, context: Context
) -> AlterUserScramCredentialsResponse:
    changes: dict[str, list[ScramCredentialDeletion | ScramCredentialUpsertion]] = defaultdict(list)
    for deletion in request.deletions:
        changes[deletion.name].append(deletion)
    for upsertion in request.upsertions:
        changes[upsertion.name].append(upsertion)
    users = ScramUsers(broker.store)
    return AlterUserScramCredentialsResponse(
        results=[await _altered(users, name, wanted) for name, wanted in changes.items()]
    )


async def _altered(
    users: ScramUsers, name: str, wanted: list[ScramCredentialDeletion | ScramCredentialUpsertion]
) -> AlterUserScramCredentialsResult:
    """One user: all changes or none."""
    try:
        if not name:
            raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "a user must have a name")
        if len({one.mechanism for one in wanted}) < len(wanted):
            raise ApiError(ErrorCode.DUPLICATE_RESOURCE, f"a credential of user {name} is changed twice")
        if not await users.change(name, [_change(one) for one in wanted]):
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"user {name} does not have the credential to be deleted")
    except ApiError as error:
        return AlterUserScramCredentialsResult(user=name, error_code=error.code, error_message=error.message)
    except StoreError as error:
        return AlterUserScramCredentialsResult(
            user=name, error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message=str(error)
        )
    return AlterUserScramCredentialsResult(user=name)


def _change(wanted: ScramCredentialDeletion | ScramCredentialUpsertion) -> ScramChange:
    try:
        mechanism = ScramMechanism(wanted.mechanism)
    except ValueError:
        raise ApiError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"there is no SCRAM mechanism {wanted.mechanism}"
        ) from None
    if isinstance(wanted, ScramCredentialDeletion):
        return ScramChange(mechanism, None)
    if not ITERATIONS_MIN <= wanted.iterations <= ITERATIONS_MAX:
        raise ApiError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"the iterations must be at least {ITERATIONS_MIN} and at most {ITERATIONS_MAX}",
        )
    # Two hashes: the thousands before them are done by whoever knows the password.
    return ScramChange(
        mechanism, from_salted(mechanism, bytes(wanted.salted_password), bytes(wanted.salt), wanted.iterations)
    )

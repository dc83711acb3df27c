"""DescribeUserScramCredentials and AlterUserScramCredentials: who has a password, and new ones, never a password."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla.broker.scram_users import ScramChange, ScramUsers
from ottla.cluster.nodes import MetadataError
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
from ottla.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, DamagedCredentialError, ScramMechanism, from_salted
from ottla.store.api import StoreError

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


async def handle_describe(
    broker: Broker, request: DescribeUserScramCredentialsRequest, context: Context
) -> DescribeUserScramCredentialsResponse:
    users = ScramUsers(broker.store)
    try:
        asked: Counter[str] = Counter()
        async for one in broker.turns.over(request.users or ()):
            asked[one.name] += 1
        if not asked:
            asked.update(await users.names(broker.turns))
        results = [await _described(users, name, asked[name]) async for name in broker.turns.over(asked)]
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
    try:
        credentials = await users.credentials(name)
    except (DamagedCredentialError, MetadataError) as error:  # of this user, and of no other
        result.error_code, result.error_message = ErrorCode.UNKNOWN_SERVER_ERROR, str(error)
        return result
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
    async for deletion in broker.turns.over(request.deletions):
        changes[deletion.name].append(deletion)
    async for upsertion in broker.turns.over(request.upsertions):
        changes[upsertion.name].append(upsertion)
    users = ScramUsers(broker.store)
    return AlterUserScramCredentialsResponse(
        results=[await _altered(users, name, wanted) async for name, wanted in broker.turns.over(changes.items())]
    )


async def _altered(
    users: ScramUsers, name: str, wanted: list[ScramCredentialDeletion | ScramCredentialUpsertion]
) -> AlterUserScramCredentialsResult:
    """One user: all changes or none."""
    try:
        if not name:
            raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "a user must have a name")
        changes = _changes(name, wanted, await users.mechanisms(name))
        if not await users.change(name, changes):
            raise _nothing_to_delete(name)  # any more
    except ApiError as error:
        return AlterUserScramCredentialsResult(user=name, error_code=error.code, error_message=error.message)
    except (StoreError, MetadataError) as error:
        return AlterUserScramCredentialsResult(
            user=name, error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message=str(error)
        )
    return AlterUserScramCredentialsResult(user=name)


def _changes(
    name: str, wanted: list[ScramCredentialDeletion | ScramCredentialUpsertion], present: Collection[ScramMechanism]
) -> list[ScramChange]:
    """The changes, or the first of them that cannot be: deletions come before what is set."""
    changes: dict[ScramMechanism, ScramChange] = {}
    for one in wanted:
        change = _change(one)
        if change.mechanism in changes:
            raise ApiError(ErrorCode.DUPLICATE_RESOURCE, f"a credential of user {name} is changed twice")
        if change.credential is None and change.mechanism not in present:
            raise _nothing_to_delete(name)
        changes[change.mechanism] = change
    return list(changes.values())


def _nothing_to_delete(name: str) -> ApiError:
    return ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"user {name} does not have the credential to be deleted")


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

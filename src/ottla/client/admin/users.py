"""Users and what they prove themselves by: SCRAM credentials and delegation tokens."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from ottla.client.admin.calls import AdminCalls, only
from ottla.client.retrying import error_of, raise_if
from ottla.errors import ApiError
from ottla.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from ottla.protocol.messages.tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ottla.security.scram import ITERATIONS_MIN, salted_password
from ottla.security.scram import ScramMechanism as ScramMechanism  # users import it from here

ITERATIONS_DEFAULT: Final = ITERATIONS_MIN
SALT_BYTES: Final = 16
DEFAULT_PERIOD_MS: Final = -1


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A mechanism that a user has a password for. The password is never returned."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class NewScramCredential:
    """A password to be set. It does not leave this process: brokers get a salted hash of it."""

    user: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256
    iterations: int = ITERATIONS_DEFAULT
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(SALT_BYTES), repr=False)

    def salted_password(self) -> bytes:
        return salted_password(self.mechanism, self.password, self.salt, self.iterations)


@dataclass(frozen=True, slots=True)
class Principal:
    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token that stands for its owner until it expires. `hmac` is the secret."""

    token_id: str
    hmac: bytes = field(repr=False)
    owner: Principal
    issued_ms: int
    expires_ms: int
    max_ms: int
    renewers: tuple[Principal, ...] = ()


class UserCalls(AdminCalls):
    # -- SCRAM ---------------------------------------------------------------------------------------------------------

    async def describe_user_scram_credentials(
        self, users: Collection[str] | None = None, *, timeout_s: float | None = None
    ) -> dict[str, tuple[ScramCredential, ...] | ApiError]:
        """Which mechanisms users have passwords for: of these users, or of all."""
        request = DescribeUserScramCredentialsRequest(
            users=None if users is None else [UserName(name=name) for name in users]
        )
        response = await self._cluster.ask_any(
            request, DescribeUserScramCredentialsResponse, deadline=self._deadline(timeout_s)
        )
        raise_if(error_of(response.error_code, response.error_message, "the credentials"))
        return {
            each.user: error_of(each.error_code, each.error_message, f"the user {each.user}")
            or tuple(ScramCredential(ScramMechanism(info.mechanism), info.iterations) for info in each.credential_infos)
            for each in response.results
        }

    async def set_password(
        self,
        user: str,
        password: str,
        mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256,
        iterations: int = ITERATIONS_DEFAULT,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Sets the password of a user for a mechanism of SCRAM."""
        credential = NewScramCredential(user, password, mechanism, iterations)
        only(await self.alter_user_scram_credentials([credential], timeout_s=timeout_s))

    async def delete_password(self, user: str, mechanism: ScramMechanism, *, timeout_s: float | None = None) -> None:
        """Deletes the password of a user for a mechanism of SCRAM: the user cannot log in by it any more."""
        only(await self.alter_user_scram_credentials(deletions=[(user, mechanism)], timeout_s=timeout_s))

    async def alter_user_scram_credentials(
        self,
        upsertions: Iterable[NewScramCredential] = (),
        deletions: Iterable[tuple[str, ScramMechanism]] = (),
        *,
        timeout_s: float | None = None,
    ) -> dict[str, ApiError | None]:
        """Sets and deletes passwords; what came of it by user."""
        request = AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name=user, mechanism=mechanism) for user, mechanism in deletions],
            upsertions=[
                ScramCredentialUpsertion(
                    name=each.user,
                    mechanism=each.mechanism,
                    iterations=each.iterations,
                    salt=each.salt,
                    salted_password=each.salted_password(),
                )
                for each in upsertions
            ],
        )
        response = await self._cluster.ask_controller(
            request,
            AlterUserScramCredentialsResponse,
            lambda answer: (each.error_code for each in answer.results),
            self._deadline(timeout_s),
        )
        return {
            each.user: error_of(each.error_code, each.error_message, f"the user {each.user}")
            for each in response.results
        }

    # -- delegation tokens ---------------------------------------------------------------------------------------------

    async def create_delegation_token(
        self,
        *,
        owner: Principal | None = None,
        renewers: Iterable[Principal] = (),
        max_lifetime_ms: int = DEFAULT_PERIOD_MS,
        timeout_s: float | None = None,
    ) -> DelegationToken:
        """A token for whoever this client has authenticated as, or for another owner."""
        allowed = tuple(renewers)
        request = CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else owner.type,
            owner_principal_name=None if owner is None else owner.name,
            renewers=[CreatableRenewers(principal_type=each.type, principal_name=each.name) for each in allowed],
            max_lifetime_ms=max_lifetime_ms,
        )
        found = await self._cluster.ask_any(
            request, CreateDelegationTokenResponse, lambda answer: (answer.error_code,), self._deadline(timeout_s)
        )
        raise_if(error_of(found.error_code, None, "the token"))
        return DelegationToken(
            found.token_id,
            bytes(found.hmac),
            Principal(found.principal_type, found.principal_name),
            found.issue_timestamp_ms,
            found.expiry_timestamp_ms,
            found.max_timestamp_ms,
            allowed,
        )

    async def renew_delegation_token(
        self, hmac: bytes, *, period_ms: int = DEFAULT_PERIOD_MS, timeout_s: float | None = None
    ) -> int:
        """Lets a token live on; when it expires now, in milliseconds since 1970."""
        found = await self._cluster.ask_any(
            RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms),
            RenewDelegationTokenResponse,
            lambda answer: (answer.error_code,),
            self._deadline(timeout_s),
        )
        raise_if(error_of(found.error_code, None, "the token"))
        return found.expiry_timestamp_ms

    async def expire_delegation_token(
        self, hmac: bytes, *, period_ms: int = DEFAULT_PERIOD_MS, timeout_s: float | None = None
    ) -> int:
        """Ends a token at once, or after `period_ms`; when it expires now, in milliseconds since 1970."""
        found = await self._cluster.ask_any(
            ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms),
            ExpireDelegationTokenResponse,
            lambda answer: (answer.error_code,),
            self._deadline(timeout_s),
        )
        raise_if(error_of(found.error_code, None, "the token"))
        return found.expiry_timestamp_ms

    async def describe_delegation_tokens(
        self, owners: Iterable[Principal] | None = None, *, timeout_s: float | None = None
    ) -> list[DelegationToken]:
        """The tokens of these owners, or all that this client may see."""
        request = DescribeDelegationTokenRequest(
            owners=None
            if owners is None
            else [DescribeDelegationTokenOwner(principal_type=each.type, principal_name=each.name) for each in owners]
        )
        found = await self._cluster.ask_any(
            request, DescribeDelegationTokenResponse, lambda answer: (answer.error_code,), self._deadline(timeout_s)
        )
        raise_if(error_of(found.error_code, None, "the tokens"))
        return [
            DelegationToken(
                each.token_id,
                bytes(each.hmac),
                Principal(each.principal_type, each.principal_name),
                each.issue_timestamp,
                each.expiry_timestamp,
                each.max_timestamp,
                tuple(Principal(renewer.principal_type, renewer.principal_name) for renewer in each.renewers),
            )
            for each in found.tokens
        ]

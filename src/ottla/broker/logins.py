"""What a mechanism of SASL asks and answers on this broker, one step after the other."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from ottla.broker.jwks import Jwks
from ottla.broker.scram_users import ScramUsers
from ottla.broker.token_store import TokenStore
from ottla.config.listener_security import Mechanism
from ottla.config.security_settings import OAUTHBEARER, PLAIN
from ottla.errors import OttlaError
from ottla.security.delegation_tokens import USER_PREFIX
from ottla.security.jwt import InvalidTokenError
from ottla.security.sasl.failure import LoginFailed
from ottla.security.sasl.oauthbearer import INVALID_TOKEN, parse_bearer
from ottla.security.sasl.plain import check_plain
from ottla.security.sasl.scram import ClientFirst, ScramServer, parse_client_first
from ottla.security.scram import BY_SASL_NAME, ScramCredential, ScramMechanism, fake_credential
from ottla.store.api import StoreError

logger = logging.getLogger(__name__)

NONCE_BYTES = 18
# Of this process: who tries a name twice gets the same salt, and cannot tell that there is no such user.
_FAKES = secrets.token_bytes(32)


@dataclass(frozen=True, slots=True)
class Step:
    """The broker's side of one exchange. `user`: who has logged in, once it is over; `ends_ms`: until when at most."""

    answer: bytes
    user: str | None = None
    ends_ms: int | None = None
    is_by_token: bool = False


class Login(Protocol):
    async def step(self, data: bytes) -> Step:
        """What to answer to the peer's next message; LoginFailed ends it."""
        ...


class PlainLogin:
    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    async def step(self, data: bytes) -> Step:
        return Step(b"", check_plain(data, self._passwords))


class ScramLogin:
    """A password, or the secret of a delegation token, whose owner then is the user."""

    def __init__(self, mechanism: ScramMechanism, users: ScramUsers, tokens: TokenStore | None) -> None:
        self._mechanism = mechanism
        self._users = users
        self._tokens = tokens
        self._server: ScramServer | None = None
        self._logged_in = Step(b"")

    async def step(self, data: bytes) -> Step:
        if self._server is not None:
            return replace(self._logged_in, answer=self._server.finish(data))
        first = parse_client_first(data)
        try:
            credential = await self._credential(first)
        except StoreError as error:
            raise LoginFailed(f"the credential of {first.user!r} cannot be read now: {error}") from error
        except OttlaError as error:
            raise LoginFailed(f"the credential of {first.user!r} is damaged: {error}") from error
        if credential is None:
            credential = fake_credential(self._mechanism, _FAKES, first.user)
        self._server = ScramServer(self._mechanism, first, credential, secrets.token_urlsafe(NONCE_BYTES))
        return Step(self._server.challenge)

    async def _credential(self, first: ClientFirst) -> ScramCredential | None:
        """What the proof is checked with, and whom it proves; None for a name that does not exist."""
        if not first.is_token:
            self._logged_in = Step(b"", first.user)
            return await self._users.credential(first.user, self._mechanism)
        token = None if self._tokens is None else await self._tokens.get(first.user)
        if self._tokens is None or token is None:
            return None
        owner = token.owner.removeprefix(USER_PREFIX)
        self._logged_in = Step(b"", owner, token.expires_ms, is_by_token=True)
        return await self._tokens.credential(token, self._mechanism)


class BearerLogin:
    """A token. One that is not accepted gets the reason; the login fails once the client has confirmed that."""

    def __init__(self, keys: Jwks) -> None:
        self._keys = keys
        self._is_refused = False

    async def step(self, data: bytes) -> Step:
        if self._is_refused:
            raise LoginFailed("the token was refused", INVALID_TOKEN.decode())
        message = parse_bearer(data)
        try:
            identity = await self._keys.verify(message.token)
        except InvalidTokenError as error:
            logger.info("a token of OAUTHBEARER was refused: %s", error)
            self._is_refused = True
            return Step(INVALID_TOKEN)
        if message.authorization_id not in (None, identity.subject):
            raise LoginFailed(f"{identity.subject!r} asks to be {message.authorization_id!r}")
        return Step(b"", identity.subject, int(identity.expires_s * 1000))


@dataclass(frozen=True, slots=True)
class LoginSources:
    """What logins of one listener are checked with. `keys`: those of OAUTHBEARER, where it was enabled at the start."""

    users: ScramUsers
    keys: Jwks | None
    tokens: TokenStore | None  # where delegation tokens are enabled
    now_ms: Callable[[], int]  # wall time: credentials say until when they last


def begin_login(mechanism: Mechanism, sources: LoginSources) -> Login:
    if mechanism.name == PLAIN:
        assert mechanism.jaas is not None, "checked when the settings were read"
        return PlainLogin(mechanism.jaas.users)
    if mechanism.name == OAUTHBEARER:
        assert sources.keys is not None, "a listener with this mechanism has keys from its start on"
        return BearerLogin(sources.keys)
    return ScramLogin(BY_SASL_NAME[mechanism.name], sources.users, sources.tokens)

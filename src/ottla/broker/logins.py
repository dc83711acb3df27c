"""What a mechanism of SASL asks and answers on this broker, one step after the other."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ottla.broker.scram_users import ScramUsers
from ottla.config.listener_security import Mechanism
from ottla.config.security_settings import PLAIN
from ottla.errors import OttlaError
from ottla.security.sasl.failure import LoginFailed
from ottla.security.sasl.plain import check_plain
from ottla.security.sasl.scram import ScramServer, parse_client_first
from ottla.security.scram import BY_SASL_NAME, ScramMechanism, fake_credential
from ottla.store.api import StoreError

logger = logging.getLogger(__name__)

NONCE_BYTES = 18
# Of this process: who tries a name twice gets the same salt, and cannot tell that there is no such user.
_FAKES = secrets.token_bytes(32)


@dataclass(frozen=True, slots=True)
class Step:
    """The broker's side of one exchange. `user`: who has logged in, once it is over."""

    answer: bytes
    user: str | None = None


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
    def __init__(self, mechanism: ScramMechanism, users: ScramUsers) -> None:
        self._mechanism = mechanism
        self._users = users
        self._server: ScramServer | None = None
        self._user = ""

    async def step(self, data: bytes) -> Step:
        if self._server is not None:
            return Step(self._server.finish(data), self._user)
        first = parse_client_first(data)
        if first.is_token:
            raise LoginFailed("delegation tokens are not served")
        self._user = first.user
        try:
            credential = await self._users.credential(first.user, self._mechanism)
        except StoreError as error:
            raise LoginFailed(f"the credential of {first.user!r} cannot be read now: {error}") from error
        except OttlaError as error:
            raise LoginFailed(f"the credential of {first.user!r} is damaged: {error}") from error
        if credential is None:
            credential = fake_credential(self._mechanism, _FAKES, first.user)
        self._server = ScramServer(self._mechanism, first, credential, secrets.token_urlsafe(NONCE_BYTES))
        return Step(self._server.challenge)


def begin_login(mechanism: Mechanism, users: ScramUsers) -> Login:
    if mechanism.name == PLAIN:
        assert mechanism.jaas is not None, "checked when the settings were read"
        return PlainLogin(mechanism.jaas.users)
    return ScramLogin(BY_SASL_NAME[mechanism.name], users)

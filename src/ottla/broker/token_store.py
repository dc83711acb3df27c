"""Delegation tokens in the metadata store, where Kafka keeps them in ZooKeeper, and logins by them.

A login reads the token from the store, so a change counts for the next login on every broker. The password of a token
takes thousands of hashes to check; what follows from it is kept for the tokens used last.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final
from urllib.parse import quote, unquote

from ottla.cluster import nodes
from ottla.config.broker import BrokerConfig
from ottla.errors import ApiError, ErrorCode
from ottla.runtime.offload import Offload
from ottla.runtime.turns import Turns
from ottla.security.delegation_tokens import (
    DelegationToken,
    TokenLifetimes,
    expired,
    new_token,
    renewed,
    token_hmac,
    token_password,
)
from ottla.security.scram import SALT_BYTES, ScramCredential, ScramMechanism, derive
from ottla.store.api import BadVersion, Create, Delete, NoNode, Put, Store
from ottla.store.recipes import ensure_path, remove_old_children, until_undisturbed

logger = logging.getLogger(__name__)

TOKENS: Final = "/delegation_token/tokens"
CHANGES: Final = "/delegation_token/token_changes"
VERSION: Final = 3
CREDENTIALS_MAX: Final = 1000
ID_LENGTH_MAX: Final = 255  # ours and Kafka's have 22
CHANGES_AGE_MS_MAX: Final = 15 * 60_000  # of a notification, as in Kafka


class TokenStore:
    """The tokens of the cluster. It has the key that makes their secrets, and shows it to nobody."""

    def __init__(
        self,
        store: Store,
        offload: Offload,
        turns: Turns,
        config: BrokerConfig,
        now_ms: Callable[[], int],
    ) -> None:
        assert config.delegation_token_secret_key, "tokens are enabled by it"
        self._store = store
        self._offload = offload
        self._turns = turns
        self._secret_key = config.delegation_token_secret_key
        self._lifetimes = TokenLifetimes(
            config.delegation_token_expiry_time_ms, config.delegation_token_max_lifetime_ms
        )
        self._now_ms = now_ms
        self._credentials: dict[tuple[str, ScramMechanism], ScramCredential] = {}

    async def open(self) -> None:
        await ensure_path(self._store, TOKENS, CHANGES)

    def hmac_of(self, token: DelegationToken) -> bytes:
        return token_hmac(self._secret_key, token.token_id)

    # -- looking -------------------------------------------------------------------------------------------------------

    async def get(self, token_id: str) -> DelegationToken | None:
        found = await self._read(token_id)
        return None if found is None else found[0]

    async def all(self) -> list[DelegationToken]:
        found: list[DelegationToken] = []
        async for token_id in self._turns.over(await self._store.children(TOKENS)):
            token = await self.get(token_id)
            found += [] if token is None else [token]
        return found

    async def credential(self, token: DelegationToken, mechanism: ScramMechanism) -> ScramCredential:
        """What proves that somebody knows the secret of a token."""
        key = (token.token_id, mechanism)
        known = self._credentials.get(key)
        if known is None:
            password = token_password(self.hmac_of(token))
            salt = secrets.token_bytes(SALT_BYTES)
            known = await self._offload.computed(partial(derive, mechanism, password, salt))
            while len(self._credentials) >= CREDENTIALS_MAX:
                del self._credentials[next(iter(self._credentials))]
            self._credentials[key] = known
        return known

    async def _read(self, token_id: str) -> tuple[DelegationToken, int] | None:
        path = _path(token_id)
        if path is None:
            return None
        node = await self._store.get(path)
        return None if node is None else (_decode(path, node.data), node.version)

    async def _by_hmac(self, secret: bytes) -> tuple[DelegationToken, int]:
        """The token with that secret; ApiError where there is none."""
        ids = await self._store.children(TOKENS)

        def find() -> str | None:
            matching = [each for each in ids if hmac.compare_digest(token_hmac(self._secret_key, each), secret)]
            return matching[0] if matching else None

        token_id = await self._offload.computed(find)
        found = None if token_id is None else await self._read(token_id)
        if found is None:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "there is no such token")
        return found

    # -- changing ------------------------------------------------------------------------------------------------------

    async def create(self, owner: str, requester: str, renewers: tuple[str, ...], wanted_ms: int) -> DelegationToken:
        token_id = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        token = new_token(token_id, owner, requester, renewers, wanted_ms, self._lifetimes, self._now_ms())
        path = _path(token_id)
        assert path is not None
        await self._store.commit(Create(path, _encode(token)), _change(token_id))
        return token

    async def renew(self, secret: bytes, principal: str, period_ms: int) -> DelegationToken:
        async def write() -> DelegationToken:
            token, version = await self._by_hmac(secret)
            new = renewed(token, principal, period_ms, self._lifetimes, self._now_ms())
            return await self._replace(new, version)

        return await until_undisturbed(write)

    async def expire(self, secret: bytes, principal: str, period_ms: int) -> int:
        """When the token expires now."""

        async def write() -> int:
            token, version = await self._by_hmac(secret)
            new = expired(token, principal, period_ms, self._now_ms())
            if new is not None:
                return (await self._replace(new, version)).expires_ms
            await self._remove(token, version)
            return self._now_ms()

        return await until_undisturbed(write)

    async def _replace(self, token: DelegationToken, version: int) -> DelegationToken:
        path = _path(token.token_id)
        assert path is not None
        await self._store.commit(Put(path, _encode(token), version), _change(token.token_id))
        return token

    async def remove_expired(self) -> None:
        """Every broker does this; one of them is first."""
        async for token_id in self._turns.over(await self._store.children(TOKENS)):
            try:
                found = await self._read(token_id)
            except nodes.MetadataError as error:
                logger.warning("%s; nobody can log in by this token", error)
                continue
            if found is not None and found[0].is_expired(self._now_ms()):
                with suppress(NoNode, BadVersion):  # another broker was faster, or somebody has renewed it
                    await self._remove(*found)
        await remove_old_children(self._store, CHANGES, self._now_ms() - CHANGES_AGE_MS_MAX, self._turns)

    async def _remove(self, token: DelegationToken, version: int) -> None:
        path = _path(token.token_id)
        assert path is not None
        for mechanism in ScramMechanism:
            self._credentials.pop((token.token_id, mechanism), None)
        await self._store.commit(Delete(path, version), _change(token.token_id))


def _path(token_id: str) -> str | None:
    """None for what cannot be the id of a token: whoever logs in chooses it."""
    is_plain = (
        len(token_id) <= ID_LENGTH_MAX and token_id.isascii() and token_id.replace("-", "").replace("_", "").isalnum()
    )
    return f"{TOKENS}/{token_id}" if is_plain else None


def _change(token_id: str) -> Create:
    return Create(f"{CHANGES}/token_change_", token_id.encode(), sequential=True)


def _encode(token: DelegationToken) -> bytes:
    return nodes.encode(
        {
            "version": VERSION,
            "owner": _sanitized(token.owner),
            "tokenRequester": _sanitized(token.requester),
            "renewers": [_sanitized(each) for each in token.renewers],
            "issueTimestamp": token.issued_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expires_ms,
            "tokenId": token.token_id,
        }
    )


def _decode(path: str, data: bytes) -> DelegationToken:
    document: Any = nodes.decode(path, data)
    try:
        owner = unquote(document["owner"])
        return DelegationToken(
            document["tokenId"],
            owner,
            unquote(document.get("tokenRequester") or document["owner"]),  # versions 1 and 2 have none
            tuple(unquote(each) for each in document["renewers"]),
            int(document["issueTimestamp"]),
            int(document["maxTimestamp"]),
            int(document["expiryTimestamp"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise nodes.MetadataError(path, f"is not a delegation token: {error!r}") from error


def _sanitized(principal: str) -> str:
    return quote(principal, safe="")

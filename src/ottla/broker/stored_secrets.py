"""Passwords among the dynamic settings: encrypted on the way to the metadata store, decrypted on the way back.

Without `password.encoder.secret` no password can be set while the broker runs, so none is ever stored as it is. One
that cannot be decrypted counts as not set.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from functools import partial

from ottla.config.broker import BROKER_SETTINGS, BrokerConfig
from ottla.config.dynamic import ConfigResourceType, ConfigScope
from ottla.config.listener_security import listener_setting
from ottla.errors import ApiError, ErrorCode
from ottla.runtime.offload import Offload
from ottla.security.password_encoder import (
    BLOCK_BYTES,
    KEY_FACTORY,
    SALT_BYTES,
    PasswordEncoder,
    UnreadablePasswordError,
    is_encoded,
)

logger = logging.getLogger(__name__)

NO_SECRET = "a password is stored encrypted: set password.encoder.secret of the broker before it is changed"


class StoredSecrets:
    """The encoders of a broker; their settings do not change while it runs."""

    def __init__(self, config: BrokerConfig, offload: Offload) -> None:
        """ConfigError where passwords cannot be encrypted as the settings say."""
        self._offload = offload
        self._encoder = _encoder(config, config.password_encoder_secret)
        self._old_encoder = _encoder(config, config.password_encoder_old_secret)
        self._known: dict[str, str] = {}  # what encrypted texts stand for, for the settings that there are

    def check(self, resource: ConfigScope, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """ApiError if a password would be changed that cannot be encrypted."""
        is_changed = any(_is_secret(resource, name) and before.get(name) != text for name, text in after.items())
        if is_changed and self._encoder is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, NO_SECRET)

    async def encrypted(self, resource: ConfigScope, overrides: Mapping[str, str]) -> dict[str, str]:
        """The settings of a resource as they are stored."""
        stored = dict(overrides)
        for name, text in overrides.items():
            if self._encoder is not None and _is_secret(resource, name):
                salt, vector = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(BLOCK_BYTES)
                stored[name] = await self._offload.computed(partial(self._encoder.encode, text, salt, vector))
        return stored

    async def decrypted(self, resource: ConfigScope, stored: Mapping[str, str]) -> dict[str, str]:
        """The settings of a resource as they hold. What was stored before there was a secret is taken as it is."""
        overrides = dict(stored)
        for name, text in stored.items():
            if _is_secret(resource, name) and is_encoded(text):
                try:
                    overrides[name] = await self._decoded(text)
                except UnreadablePasswordError as error:
                    logger.warning("%s of broker %s %s; it has no effect", name, resource.name, error)
                    del overrides[name]
        return overrides

    async def _decoded(self, text: str) -> str:
        known = self._known.get(text)
        if known is None:
            known = await self._offload.computed(partial(self._decode, text))
            if len(self._known) > len(BROKER_SETTINGS):
                self._known.clear()
            self._known[text] = known
        return known

    def _decode(self, text: str) -> str:
        failure = UnreadablePasswordError("is encrypted, and password.encoder.secret is not set")
        for encoder in (self._encoder, self._old_encoder):
            if encoder is not None:
                try:
                    return encoder.decode(text)
                except UnreadablePasswordError as error:
                    failure = error
        raise failure


def _encoder(config: BrokerConfig, secret: str | None) -> PasswordEncoder | None:
    if not secret:
        return None
    encoder = PasswordEncoder(
        secret,
        config.password_encoder_iterations,
        config.password_encoder_key_length,
        config.password_encoder_keyfactory_algorithm or KEY_FACTORY,
        config.password_encoder_cipher_algorithm,
    )
    encoder.check()
    return encoder


def _is_secret(resource: ConfigScope, name: str) -> bool:
    if resource.type != ConfigResourceType.BROKER:
        return False
    setting = BROKER_SETTINGS.get(name) or listener_setting(name)
    return setting is not None and setting.is_sensitive

"""The users of SCRAM, in the metadata store where Kafka keeps them: beside the quotas of a user, in the same node.

A login reads the credential from the store, so a change counts for the next login on every broker. The store being away
fails the login.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.cluster import nodes
from ottla.cluster.nodes import MetadataError
from ottla.runtime.turns import Turns
from ottla.security.scram import BY_SASL_NAME, ScramCredential, ScramMechanism
from ottla.store.api import Create, InvalidPath, Operation, Put, Store
from ottla.store.recipes import until_undisturbed

KIND = "users"
CHANGES = f"{nodes.CONFIG_CHANGES}/config_change_"


@dataclass(frozen=True, slots=True)
class ScramChange:
    """What becomes of one credential; None: it is removed."""

    mechanism: ScramMechanism
    credential: ScramCredential | None


class ScramUsers:
    """Reads and changes the credentials of users."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """What proves the user's password; DamagedCredentialError where it cannot be read."""
        config, _ = await self._config(user)
        text = config.get(mechanism.sasl_name)
        return None if text is None else ScramCredential.from_text(text)

    async def credentials(self, user: str) -> dict[ScramMechanism, ScramCredential]:
        config, _ = await self._config(user)
        return {
            mechanism: ScramCredential.from_text(config[name])
            for name, mechanism in BY_SASL_NAME.items()
            if name in config
        }

    async def mechanisms(self, user: str) -> set[ScramMechanism]:
        """Those that the user has a credential for, be it readable or not."""
        config, _ = await self._config(user)
        return {mechanism for name, mechanism in BY_SASL_NAME.items() if name in config}

    async def names(self, turns: Turns) -> list[str]:
        """Everybody who has a credential, be it readable or not."""
        found = []
        segments = await self._store.children(f"{nodes.CONFIGS}/{KIND}")
        async for segment in turns.over(segments):
            name = nodes.config_name(segment)
            if name and await self._may_have_one(name):
                found.append(name)
        return found

    async def _may_have_one(self, user: str) -> bool:
        try:
            return bool(await self.mechanisms(user))
        except MetadataError:
            return True  # it is there, and damaged: the answer about it says so

    async def change(self, user: str, changes: Iterable[ScramChange]) -> bool:
        """Makes all changes or none. False where a credential to be removed is not there."""
        changes = list(changes)

        async def write() -> bool:
            config, version = await self._config(user)
            for change in changes:
                if change.credential is not None:
                    config[change.mechanism.sasl_name] = change.credential.to_text()
                elif config.pop(change.mechanism.sasl_name, None) is None:
                    return False
            await self._write(user, config, version)
            return True

        return await until_undisturbed(write)  # somebody may change the user meanwhile, perhaps a quota

    async def _config(self, user: str) -> tuple[dict[str, str], int | None]:
        path = nodes.config_path(KIND, user)
        try:
            node = await self._store.get(path)
        except InvalidPath:  # whoever logs in chooses the name: no user can be called so
            node = None
        if node is None:
            return {}, None
        return (nodes.decode_config(path, node.data) if node.data else {}), node.version

    async def _write(self, user: str, config: Mapping[str, str], version: int | None) -> None:
        path = nodes.config_path(KIND, user)
        data = nodes.encode_config(dict(config))
        entity: Operation = Create(path, data) if version is None else Put(path, data, version)
        entity_path = path.removeprefix(f"{nodes.CONFIGS}/")
        await self._store.commit(entity, Create(CHANGES, nodes.encode_config_change(entity_path), sequential=True))

"""How much clients may do: quotas of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from ottla.client.admin.calls import AdminCalls, only
from ottla.client.errors import UsageError
from ottla.client.retrying import error_of, raise_if
from ottla.errors import ApiError
from ottla.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    OpData,
)

EntityType = Literal["user", "client-id", "ip"]
EXACT: Final = 0
DEFAULT_ENTITY: Final = 1


class Default:
    """The entity that every client falls under that has no quota of its own."""

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final = Default()


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Whose quota it is: a user, a client id, both together, or an address; `DEFAULT` for all others."""

    user: str | Default | None = None
    client_id: str | Default | None = None
    ip: str | Default | None = None

    def parts(self) -> dict[EntityType, str | Default]:
        found: dict[EntityType, str | Default | None] = {
            "user": self.user,
            "client-id": self.client_id,
            "ip": self.ip,
        }
        return {kind: name for kind, name in found.items() if name is not None}

    def __str__(self) -> str:
        return ", ".join(f"{kind} {name}" for kind, name in self.parts().items())


class QuotaCalls(AdminCalls):
    async def describe_client_quotas(
        self, entity: QuotaEntity | None = None, *, strict: bool = False, timeout_s: float | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas of an entity, or all of them. `strict`: only of entities with just these parts."""
        parts = {} if entity is None else entity.parts()
        request = DescribeClientQuotasRequest(
            components=[
                ComponentData(
                    entity_type=kind,
                    match_type=DEFAULT_ENTITY if isinstance(name, Default) else EXACT,
                    match=None if isinstance(name, Default) else name,
                )
                for kind, name in parts.items()
            ],
            strict=strict,
        )
        response = await self._cluster.ask_any(
            request, DescribeClientQuotasResponse, deadline=self._deadline(timeout_s)
        )
        raise_if(error_of(response.error_code, response.error_message, "the quotas"))
        return {
            _entity_of(found.entity): {value.key: value.value for value in found.values}
            for found in response.entries or ()
        }

    async def alter_client_quota(
        self,
        entity: QuotaEntity,
        quotas: Mapping[str, float | None],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Sets quotas of an entity, such as `producer_byte_rate`; None takes one away."""
        only(await self.alter_client_quotas({entity: quotas}, validate_only=validate_only, timeout_s=timeout_s))

    async def alter_client_quotas(
        self,
        quotas: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> dict[QuotaEntity, ApiError | None]:
        """Sets quotas of entities; None takes one away."""
        for entity in quotas:
            if not entity.parts():
                raise UsageError("a quota belongs to a user, a client id or an address")
        request = AlterClientQuotasRequest(
            entries=[
                AlterClientQuotasRequestEntryData(
                    entity=[
                        EntityData(entity_type=kind, entity_name=None if isinstance(name, Default) else name)
                        for kind, name in entity.parts().items()
                    ],
                    ops=[
                        OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
                        for key, value in changes.items()
                    ],
                )
                for entity, changes in quotas.items()
            ],
            validate_only=validate_only,
        )
        response = await self._cluster.ask_controller(
            request,
            AlterClientQuotasResponse,
            lambda answer: (each.error_code for each in answer.entries),
            self._deadline(timeout_s),
        )
        return {
            _entity_of(each.entity): error_of(
                each.error_code, each.error_message, f"the quotas of {_entity_of(each.entity)}"
            )
            for each in response.entries
        }


def _entity_of(parts: list[EntityData]) -> QuotaEntity:
    names: dict[str, str | Default] = {
        part.entity_type: DEFAULT if part.entity_name is None else part.entity_name for part in parts
    }
    return QuotaEntity(names.get("user"), names.get("client-id"), names.get("ip"))

"""DescribeClientQuotas and AlterClientQuotas: how much users, clients and addresses may do. Any broker serves them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.cluster.nodes import MetadataError
from ottla.errors import ApiError, ErrorCode
from ottla.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClientQuotasResponseEntryData,
    EntityData,
    ValueData,
)
from ottla.runtime.turns import STEP, Steps, in_turns
from ottla.security.quotas import Component, QuotaEntity, QuotaFilter, entity_of
from ottla.store.api import StoreError

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

audit = logging.getLogger("kafka.authorizer.logger")


@in_turns
def handle_describe(
    broker: Broker, request: DescribeClientQuotasRequest, context: Context
) -> Steps[DescribeClientQuotasResponse]:
    try:
        components = (Component(one.entity_type, one.match_type, one.match) for one in request.components)
        wanted = QuotaFilter.of(components, strict=request.strict)
    except ApiError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    entries = []
    for number, (entity, quotas) in enumerate(broker.quota_store.limits.quotas.items(), 1):
        if wanted.matches(entity):
            values = [ValueData(key=key, value=value) for key, value in quotas.items()]
            entries.append(DescribeClientQuotasResponseEntryData(entity=_parts(entity), values=values))
        if number % STEP == 0:
            yield
    return DescribeClientQuotasResponse(entries=entries)


async def handle_alter(
    broker: Broker, request: AlterClientQuotasRequest, context: Context
) -> AlterClientQuotasResponse:
    """Each entity by itself; one that is named again is refused then, as in Kafka."""
    outcomes: dict[QuotaEntity, ApiError | None] = {}
    async for entry in broker.turns.over(request.entries):
        entity = entity_of((part.entity_type, part.entity_name) for part in entry.entity)
        try:
            if entity in outcomes:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {entity}")
            await _alter(broker, entity, entry, validate_only=request.validate_only)
            outcomes[entity] = None
            if not request.validate_only:
                _note(context, entity, entry)
        except ApiError as error:
            outcomes[entity] = error
    entries = []
    async for entity, outcome in broker.turns.over(outcomes.items()):
        answer = AlterClientQuotasResponseEntryData(entity=_parts(entity))
        if outcome is not None:
            answer.error_code, answer.error_message = outcome.code, outcome.message
        entries.append(answer)
    return AlterClientQuotasResponse(entries=entries)


async def _alter(
    broker: Broker, entity: QuotaEntity, entry: AlterClientQuotasRequestEntryData, *, validate_only: bool
) -> None:
    changes = {op.key: None if op.remove else op.value for op in entry.ops}
    if len(changes) < len(entry.ops):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Duplicate quota key, not updating quota for this entity {entity}")
    broker.quota_store.check(entity, changes)
    if validate_only:
        return
    try:
        await broker.carried_out(broker.quota_store.change(entity, changes))
    except (StoreError, MetadataError) as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the quotas cannot be changed now: {error}") from error


def _note(context: Context, entity: QuotaEntity, entry: AlterClientQuotasRequestEntryData) -> None:
    changes = ", ".join(f"{op.key} removed" if op.remove else f"{op.key}={op.value:g}" for op in entry.ops)
    session = context.session
    audit.info(
        "Principal = %r from host = %s set the quotas of %s: %s",
        session.principal,
        session.client_host,
        entity,
        changes,
    )


def _parts(entity: QuotaEntity) -> list[EntityData]:
    return [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts]

"""What handlers and coordinators ask for when metadata has to change, whoever keeps it.

One broker alone changes its own (`controller`); in a cluster the change is written to the shared store, and the
cluster's controller acts on it (`cluster_metadata`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol
from uuid import UUID

from ottla.broker.client_quotas import Charge, free_of_charge
from ottla.cluster.image import ClusterImage, TopicState
from ottla.cluster.topics import DEFAULT, Assignment, check_name, decide_topic, new_topic_id
from ottla.config.dynamic import ConfigResourceType, ConfigScope, DynamicConfigs
from ottla.errors import ApiError, ErrorCode
from ottla.ids import TopicPartition

ANSWER_S: Final = 30.0  # how long a change may take before the request times out; the change goes on


@dataclass(frozen=True, slots=True)
class RequestedTopic:
    """A topic that somebody wants; -1 takes the broker's default."""

    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Sequence[Assignment] = ()
    config: Mapping[str, str | None] = field(default_factory=dict)


class MetadataChanges(Protocol):
    """Each change stands, and this broker knows of it, when the call returns; ApiError says why not."""

    def check_controller(self) -> None:
        """NOT_CONTROLLER where another broker is to be asked for most of this: before anything else is refused."""
        ...

    async def create_topics(
        self,
        all_requested: Iterable[RequestedTopic],
        *,
        validate_only: bool = False,
        wait_s: float = ANSWER_S,
        charge: Charge = free_of_charge,
    ) -> list[TopicState | ApiError]:
        """Each topic, or why it is not created. `charge` is called for each that can be, with its partitions."""
        ...

    async def auto_create(self, names: Iterable[str], *, charge: Charge = free_of_charge) -> dict[str, ApiError | None]:
        """Creates topics that a client named for the first time: name → why not, None where it is there now."""
        ...

    async def create_unless_there(self, requested: RequestedTopic) -> ApiError | None:
        """Creates a topic that may be there by now; why not, None where it is."""
        ...

    async def create_partitions(
        self,
        name: str,
        total: int,
        assignments: Sequence[Sequence[int]] | None,
        *,
        validate_only: bool = False,
        wait_s: float = ANSWER_S,
        charge: Charge = free_of_charge,
    ) -> TopicState: ...

    async def delete_topic(
        self,
        name: str,
        topic_id: UUID | None = None,
        *,
        wait_s: float = ANSWER_S,
        charge: Charge = free_of_charge,
    ) -> TopicState: ...

    async def change_config(
        self, resource: ConfigScope, decide: Callable[[DynamicConfigs], dict[str, str]], *, validate_only: bool
    ) -> None: ...

    async def replicas_lost(self, node_id: int, lost: Iterable[TopicPartition]) -> None:
        """A log directory of this broker failed, and these replicas are gone with it."""
        ...

    async def purge_notifications(self) -> None:
        """Takes away notifications of changed settings that everybody has seen."""
        ...


def unless_there(outcome: TopicState | ApiError) -> ApiError | None:
    """Why a topic is not there now, None where it is."""
    if isinstance(outcome, TopicState) or outcome.code == ErrorCode.TOPIC_ALREADY_EXISTS:
        return None
    return outcome


def decide_requested(
    requested: RequestedTopic, image: ClusterImage, configs: DynamicConfigs, rng: random.Random
) -> tuple[TopicState, dict[str, str]]:
    """The new topic and its settings, with what the broker has for what was left open; ApiError says why not."""
    # Of several errors Kafka reports the first in this order: name, settings, counts.
    check_name(image, requested.name)
    config = configs.alter(ConfigScope(ConfigResourceType.TOPIC, requested.name), _without_null(requested.config))
    count, factor = requested.partition_count, requested.replication_factor
    if not requested.assignments:
        settings = configs.broker_config()
        count = settings.num_partitions if count == DEFAULT else count
        factor = settings.default_replication_factor if factor == DEFAULT else factor
    topic = decide_topic(
        image,
        requested.name,
        partition_count=count,
        replication_factor=factor,
        assignments=requested.assignments,
        topic_id=new_topic_id(rng, image.names_by_id),
        rng=rng,
    )
    return topic, config


def _without_null(config: Mapping[str, str | None]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for name, value in config.items():
        if value is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{name}: null is not a value")
        settings[name] = value
    return settings

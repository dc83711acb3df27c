"""One run: the broker, what clients know of it, and whether it is time to end."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from ottla.testing.ledger import Ledger
from ottla.testing.network import Conditions
from ottla.testing.soak.actor import Actor, Settings, Topic
from ottla.testing.soak.admin import Admin, Janitor
from ottla.testing.soak.climate import Climate
from ottla.testing.soak.producers import CarelessProducer, IdempotentProducer, PlainProducer
from ottla.testing.soak.readers import Reader, Scout
from ottla.testing.soak.verdict import Verdict
from ottla.testing.soak.watch import Watch
from ottla.testing.soak.weather import Sickness, Weather
from ottla.testing.world import EPOCH_MS, World

BROKER: Final = "broker-1"
SECONDS_MAX: Final = 600.0
PROPERTIES: Final = {
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "log.retention.check.interval.ms": "700",
    "log.cleaner.backoff.ms": "400",
    "log.cleaner.dedupe.buffer.size": "1048576",
}


class Soak:
    """What the parts of a run share."""

    def __init__(self, world: World, climate: Climate) -> None:
        self.world = world
        self.climate = climate
        self.rng = world.rng("soak")
        self.ledger = Ledger()
        self.topics: dict[str, Topic] = {}
        self.settings = Settings()  # of all brokers
        self.reused_names: set[str] = set()
        self.producer_ids: set[int] = set()
        self.is_on = True
        self.skew_ms_max = 0  # by which the broker's wall clock ever was ahead
        self.directories = [f"/data-{number}" for number in range(climate.directories)]
        self.sickness = Sickness(self.time)
        self.sick_directories: set[str] = set()
        self.metadata_sickness = Sickness(self.time)
        self.process = world.broker(BROKER, {**PROPERTIES, "log.dirs": ",".join(self.directories)})
        self.watch = Watch(self)
        world.excuses = lambda message: any(directory in message for directory in self.sick_directories)

    @property
    def life(self) -> int | None:
        """Which of its lives the broker is in; None while it starts: it takes requests then, and knows more later."""
        return self.process.starts if self.process.is_running else None

    async def run(self) -> None:
        await self.process.start()
        async with asyncio.TaskGroup() as group:
            for actor in self._actors():
                group.create_task(actor.run(), name=actor.name)
            group.create_task(self.watch.run(), name="watch")
            await Weather(self).blow()
            self.is_on = False
        await Verdict(self).find()
        await self.process.stop()

    def _actors(self) -> list[Actor]:
        actors: list[Actor] = [Admin(self, "admin")]
        actors += [IdempotentProducer(self, f"idempotent-{number}") for number in range(self.rng.randint(1, 3))]
        actors += [PlainProducer(self, f"plain-{number}") for number in range(self.rng.randint(0, 2))]
        actors += [Reader(self, f"reader-{number}") for number in range(self.rng.randint(1, 3))]
        actors += [CarelessProducer(self, "careless")] * self.climate.sends_without_acks
        actors += [Janitor(self, "janitor")] * self.climate.deletes_records
        actors += [Scout(self, "scout")] * self.climate.asks_offsets
        return actors

    def time(self) -> float:
        return self.world.loop.time()

    def now_ms(self) -> int:
        """What the clocks of clients say."""
        return EPOCH_MS + int(self.time() * 1000)

    def latest_ms(self) -> int:
        """The latest that the broker may have taken for the time: what is too old then may be gone."""
        return self.now_ms() + self.skew_ms_max

    def some_topic(self, rng: Random) -> Topic | None:
        return rng.choice([*self.topics.values()]) if self.topics else None

    def drop(self, topic: Topic) -> None:
        """A response said that the topic does not exist."""
        assert topic.is_doomed, f"{topic.name} {topic.topic_id} is gone, and nobody deleted it"
        if self.topics.get(topic.name) is topic:
            del self.topics[topic.name]
        self.ledger.forget(topic.topic_id)


def soak(seed: int, climate: Climate | None = None) -> Soak:
    """A whole run; SimulationError if anything did not hold."""
    world = World(seed, Conditions(buffer_bytes=8_192))
    run = Soak(world, Climate.of(world.rng("climate")) if climate is None else climate)
    world.run(run.run(), seconds=SECONDS_MAX, replay=f"OTTLA_SIM_SEED={seed} pytest tests/sim/test_soak.py")
    return run

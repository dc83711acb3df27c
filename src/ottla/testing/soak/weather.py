"""What goes wrong, and when."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ottla.testing.disk import Kind
from ottla.testing.world import ProcessDiedError

if TYPE_CHECKING:
    from ottla.testing.soak.run import Soak

STORM_S: Final = 12.0  # how long clients work and things go wrong
METADATA_FILES: Final = ".ottla-metadata/*"
LOG_FILES: Final = "*-[0-9]*/*"
DISK_FAULTS: Final[list[tuple[Kind, int]]] = [
    ("write", errno.EIO),
    ("write", errno.ENOSPC),
    ("create", errno.ENOSPC),
    ("sync", errno.EIO),
    ("sync_directory", errno.EIO),
    ("read", errno.EIO),
    ("open", errno.EIO),
    ("rename", errno.EIO),
    ("unlink", errno.EIO),
]


MINUTE_MS: Final = 60_000
# By how much the broker's wall clock is wrong. Less than the hour by which records may be ahead of it, and less than
# the days that records and producers are kept; a world of years is that of groups, in tests/sim.
CLOCK_SKEWS_MS: Final = (-50 * MINUTE_MS, 0, 50 * MINUTE_MS, 12 * 60 * MINUTE_MS)


class Sickness:
    """Whether something does not work, and until when it did not."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._ended_at = -1.0
        self.is_there = False

    def begin(self) -> None:
        self.is_there = True

    def end(self) -> None:
        if self.is_there:
            self.is_there, self._ended_at = False, self._time()

    def was_there_since(self, time: float) -> bool:
        return self.is_there or self._ended_at >= time


class Weather:
    """Troubles of one run, one at a time."""

    def __init__(self, soak: Soak) -> None:
        self._soak = soak
        self._world = soak.world
        self._process = soak.process
        self._rng = soak.world.rng("weather")

    async def blow(self) -> None:
        troubles: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (4, self._reset_somebody),
            (2, self._cut_somebody_off),
            (2, self._slow_the_disk),
            (2, self._kill),
            (2, self._stop_in_an_operation),
            (1, self._turn_off),
            (1, self._restart),
            (4 if self._soak.climate.fails_disks else 0, self._fail_a_disk),
            (3 if self._soak.climate.fails_metadata else 0, self._fail_the_metadata),
            (3 if self._soak.climate.sets_the_clock else 0, self._set_the_clock),
        ]
        weights = [weight for weight, _ in troubles]
        end = self._world.loop.time() + STORM_S
        while self._world.loop.time() < end:
            await asyncio.sleep(self._rng.uniform(0.05, 2.0))
            ((_, trouble),) = self._rng.choices(troubles, weights)
            await trouble()
        self._world.network.heal()
        self._process.disk_delay_s = 0.0
        if self._soak.sickness.is_there:
            await self._restart()

    # -- the network ---------------------------------------------------------------------------------------------------

    async def _reset_somebody(self) -> None:
        connections = self._world.network.connections()
        if connections:
            self._world.network.reset(self._rng.choice(connections))

    async def _cut_somebody_off(self) -> None:
        name = self._rng.choice(["admin", "idempotent-0", "reader-0", "plain-0"])
        self._world.network.cut(self._process.name, name)
        self._world.loop.call_later(self._rng.uniform(0.1, 6.0), self._world.network.heal, self._process.name, name)

    # -- time ----------------------------------------------------------------------------------------------------------

    async def _set_the_clock(self) -> None:
        clock = self._process.clock
        clock.skew_ms = self._rng.choice(CLOCK_SKEWS_MS)
        self._soak.skew_ms_max = max(self._soak.skew_ms_max, clock.skew_ms)
        self._world.trace(f"{self._process.name} has its clock set to {clock.skew_ms} ms")

    # -- disks ---------------------------------------------------------------------------------------------------------

    async def _slow_the_disk(self) -> None:
        """From the next start on."""
        self._process.disk_delay_s = self._rng.choice([0.0, 0.01, 0.3])

    async def _fail_a_disk(self) -> None:
        """Something under the logs of one directory fails for a while; what went offline stays so until a restart.

        One at a time: without any directory there is no broker.
        """
        directory = self._rng.choice([*self._soak.sick_directories] or self._soak.directories)
        self._soak.sickness.begin()
        self._soak.sick_directories.add(directory)
        self._break(f"{directory}/{LOG_FILES}")
        await asyncio.sleep(self._rng.uniform(0.1, 2.0))
        if self._rng.random() < 0.3:  # it is still broken when the broker comes back
            await self._end_somehow()
            self._break(f"{directory}/{LOG_FILES}")
            await self._start_again()
            await asyncio.sleep(self._rng.uniform(0.1, 2.0))
        self._process.disk.heal()
        if self._rng.random() < 0.6:
            await self._end_somehow()
            await self._start_again()

    def _break(self, pattern: str) -> None:
        kind, number = self._rng.choice(DISK_FAULTS)
        times = self._rng.choice([1, 3, None])
        self._world.trace(f"{pattern}: {kind} fails with {errno.errorcode[number]}, {times or 'all'} times")
        self._process.disk.fail(pattern, kind, number, written=self._rng.random(), times=times)

    async def _fail_the_metadata(self) -> None:
        """Changes of topics and settings cannot be saved for a while; nothing goes offline."""
        kind, number = self._rng.choice([fault for fault in DISK_FAULTS if fault[0] in ("write", "sync", "create")])
        self._soak.metadata_sickness.begin()
        pattern = f"{self._soak.directories[0]}/{METADATA_FILES}"
        fault = self._process.disk.fail(pattern, kind, number, written=self._rng.random())
        await asyncio.sleep(self._rng.uniform(0.1, 3.0))
        self._process.disk.heal(fault)
        self._soak.metadata_sickness.end()

    # -- the process ---------------------------------------------------------------------------------------------------

    async def _kill(self) -> None:
        await self._crash(power_loss=False)
        await self._start_again()

    async def _stop_in_an_operation(self) -> None:
        power_loss = self._rng.random() < 0.3
        await self._process.disk_stops(self._rng.randint(0, 40), written=self._rng.random())
        await self._crash(power_loss=power_loss)
        await self._start_again()

    async def _turn_off(self) -> None:
        await self._crash(power_loss=True)
        await asyncio.sleep(self._rng.uniform(0, 3))
        await self._start_again()

    async def _end_somehow(self) -> None:
        if self._rng.random() < 0.4:
            await self._process.stop()
        else:
            await self._crash(power_loss=self._rng.random() < 0.3)

    async def _crash(self, *, power_loss: bool) -> None:
        self._soak.watch.look()
        if power_loss:
            self._soak.ledger.lose_power(self._soak.watch.recovery_points())
        await self._process.crash(power_loss=power_loss)

    async def _restart(self) -> None:
        before = self._soak.watch.bounds()
        await self._process.stop()
        await self._start_again()
        after = self._soak.watch.bounds()
        for key in before.keys() & after.keys():
            assert after[key].end >= before[key].end, f"{key} was {before[key]} before a clean stop, {after[key]} after"
            assert after[key].start >= before[key].start, f"{key}: {before[key]}, {after[key]} after a clean stop"

    async def _start_again(self) -> None:
        while True:
            start = asyncio.create_task(self._start())
            if self._rng.random() < 0.15:  # and once more while it recovers
                await asyncio.sleep(self._rng.random() * 0.02)
                if not start.done():
                    faults = self._process.disk.faults
                    await self._process.crash()
                    self._process.disk.faults = faults
            try:
                await start
                break
            except ProcessDiedError:
                continue

    async def _start(self) -> None:
        await self._process.start()
        if not self._process.disk.faults:
            self._soak.sickness.end()
            self._soak.sick_directories.clear()
        self._soak.watch.began()  # before the first client is served

"""A simulated world for brokers: time, network, disks and random numbers. A seed replays a run exactly, where sets are
walked in the same order (PYTHONHASHSEED).

    world = World(seed=7)

    async def scenario() -> None:
        broker = world.broker("broker-1")
        await broker.start()
        ...
        await broker.crash(power_loss=True)
        await broker.start()                     # with what was durable
        await broker.stop()

    world.run(scenario(), seconds=600)           # virtual seconds

Every broker is a process on a host of its own. Tasks and timers that its code starts belong to it, so a crash ends all
of them at once. At the end of a run nothing may be left: a task that still runs, an error in a log or an exception that
was never retrieved fails the run, and the message says how to replay it.

Limits: callbacks take no virtual time, nor do disk operations on the loop; only work for another thread does
(`SlowOffload`). A process ends between two callbacks, or at an operation of its disk (`disk_stops`).
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import hashlib
import logging
import os
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from random import Random
from typing import Any, TypeVar

from ottla.broker.broker import Broker
from ottla.config.broker import BrokerConfig
from ottla.errors import OttlaError
from ottla.runtime.turns import TURN_S, Turns
from ottla.store.api import SessionState, Store
from ottla.store.embedded import EmbeddedStore
from ottla.testing.disk import EVERY_FATE, DiskStopped, Fate, SimulatedDisk
from ottla.testing.loop import SimulatedLoop
from ottla.testing.network import Conditions, SimulatedNetwork
from ottla.testing.simulated_connector import simulated_connector
from ottla.testing.simulated_ensemble import SimulatedEnsemble, SimulatedStore

Result = TypeVar("Result")

EPOCH_MS = 1_700_000_000_000  # the wall time at which every world begins
TRACE_LINES_KEPT = 20_000
TRACE_LINES_SHOWN = 40
TURNS_TO_DIE_MAX = 1_000  # a task that survives being cancelled this often is a bug
LOOKS_PER_TURN = 1  # so that work which is short in life gives way here wherever it can
PORT = 9092
DATA_DIRECTORY = "/data"


def counting_timer() -> Callable[[], float]:
    """Time that passes by being read: long work yields at the same steps in every run."""
    looks = count()
    return lambda: next(looks) * TURN_S / LOOKS_PER_TURN


class SimulationError(AssertionError):
    """A run did not end as it should; the message says why and how to replay it."""


class ProcessDiedError(OttlaError):
    """The process crashed while something waited for it."""


class Trace:
    """What happened, line by line: a hash over all of it, and the last lines to look at."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._hash = hashlib.blake2b(digest_size=16)
        self.lines: deque[str] = deque(maxlen=TRACE_LINES_KEPT)

    def __call__(self, event: str) -> None:
        line = f"{self._now():.9f} {event}"
        self._hash.update(line.encode() + b"\n")
        self.lines.append(line)

    @property
    def digest(self) -> str:
        """Equal for two runs in which the same things happened at the same times."""
        return self._hash.hexdigest()


class SimulatedClock:
    """The time of one host. Its wall clock is wrong by `skew_ms`, which a test may change at any moment."""

    def __init__(self, loop: SimulatedLoop, skew_ms: int = 0) -> None:
        self._loop = loop
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return EPOCH_MS + self.steady_ms() + self.skew_ms

    def steady_ms(self) -> int:
        return int(self._loop.time() * 1000)


class SlowOffload:
    """Work that would run in threads or processes takes up to `delay_s`, and happens at some moment of that time."""

    def __init__(self, rng: Random, delay_s: float = 0.0) -> None:
        self._rng = rng
        self.delay_s = delay_s

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        await self._wait()
        result = work()
        await self._wait()
        return result

    async def computed(self, work: Callable[[], Result]) -> Result:
        return await self.in_thread(work)

    async def in_process(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await self.in_thread(partial(work, *arguments))

    async def _wait(self) -> None:
        await asyncio.sleep(self._rng.random() * self.delay_s / 2)

    async def finish(self) -> None:
        return  # who asked for the rest was cancelled, and it is part of their tasks

    def close(self) -> None:
        return


class Life:
    """One run of a process: all tasks that its code started, directly or not."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_over = False
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.context = contextvars.copy_context()
        self.context.run(LIFE.set, self)

    def add(self, task: asyncio.Task[Any]) -> None:
        self.tasks[task] = None
        task.add_done_callback(self._ended, context=contextvars.Context())

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)
        if self.is_over and not task.cancelled():
            task.exception()  # nobody is left to see it


LIFE: contextvars.ContextVar[Life | None] = contextvars.ContextVar("LIFE", default=None)


class BrokerProcess:
    """A broker on a host of its own: started, stopped, crashed and started again on the same disk."""

    def __init__(self, world: World, name: str, properties: Mapping[str, str]) -> None:
        self._world = world
        self.name = name
        self.host = world.network.host(name)
        self.clock = SimulatedClock(world.loop)
        self.disk = SimulatedDisk(now_ms=self.clock.now_ms)
        self._rng = world.rng(f"{name} crashes")
        self.properties = {"listeners": f"PLAINTEXT://{name}:{PORT}", "log.dirs": DATA_DIRECTORY, **properties}
        self.disk_delay_s = 0.0
        self.starts = 0
        self._life: Life | None = None
        self._broker: Broker | None = None
        self._store: SimulatedStore | None = None
        self._offload: SlowOffload | None = None

    @property
    def broker(self) -> Broker:
        assert self._broker is not None, f"{self.name} does not run"
        return self._broker

    @property
    def is_running(self) -> bool:
        return self._broker is not None

    @property
    def is_alive(self) -> bool:
        """Whether its process is there; it may not serve yet."""
        return self._life is not None

    @property
    def address(self) -> tuple[str, int]:
        return self.name, PORT

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when the broker serves; raises what it raised, or ProcessDiedError if it was crashed meanwhile."""
        assert self._life is None, f"{self.name} runs already"
        self._world.trace(f"{self.name} starts")
        self.host.power_on()
        self.starts += 1
        self._life = Life(f"{self.name} #{self.starts}")
        self._broker = await self._inside(self._started())

    def slow_disk(self, delay_s: float) -> None:
        """What runs in threads takes up to this long, until the next start."""
        if self._offload is not None:
            self._offload.delay_s = delay_s

    async def _started(self) -> Broker:
        offload = SlowOffload(self._world.rng(f"{self.name} disk {self.starts}"), self.disk_delay_s)
        self._offload = offload
        broker = Broker(
            self.properties,
            disk=self.disk,
            clock=self.clock,
            offload=offload,
            turns=Turns(counting_timer()),
            rng=self._world.rng(f"{self.name} {self.starts}"),
            bind=self.host.bind,
            open_store=partial(EmbeddedStore, run=offload.in_thread),
            connect_store=self._connect_store,
            connector=simulated_connector(self.host),
        )
        await broker.start()
        return broker

    async def _connect_store(self, config: BrokerConfig) -> Store:
        """The store of the world's cluster."""
        assert self._world.ensemble is not None, "a world without an ensemble has no cluster"
        store = self._store = self._world.ensemble.connect(self.name)
        while store.session.state is not SessionState.CONNECTED:
            await store.session.changed.wait()
        return store

    async def stop(self) -> None:
        """The clean end; a task or a socket that outlives it fails the run."""
        life, broker = self._life, self.broker
        assert life is not None
        self._world.trace(f"{self.name} stops")
        await self._inside(broker.stop())
        await asyncio.sleep(0)  # what was cancelled last ends in this turn
        for task in life.tasks:
            self._world.fail(f"{self.name} has stopped and its task {task.get_name()} has not: {task.get_coro()}")
        for sock in self.host.sockets.values():
            self._world.fail(f"{self.name} has stopped and left {sock} open")
        self._life = self._broker = None

    async def _inside(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs work as the process's own."""
        life = self._life
        assert life is not None
        task = self._world.loop.create_task(work, name=f"{life.name} main", context=life.context)
        await asyncio.wait([task])
        if life.is_over:
            raise ProcessDiedError(f"{self.name} died")
        return task.result()

    async def crash(self, *, power_loss: bool = False) -> None:
        """Ends the process at once: kill -9, or the whole machine, which loses everything that was not synced."""
        life, self._life, self._broker = self._life, None, None
        assert life is not None, f"{self.name} does not run"
        self._world.trace(f"{self.name} crashes{' without power' if power_loss else ''}")
        life.is_over = True
        self.disk.on_stop = None
        self.disk.stop()
        if power_loss:
            self.host.power_off()
        else:
            self.host.kill()
        if self._store is not None:
            self._store.vanish()
        self._world.loop.cancel_timers(lambda context: context.get(LIFE) is life)
        await self._end(life)
        self.disk = self.disk.crash(self._rng.getrandbits(32), EVERY_FATE if power_loss else (Fate.KEPT,))

    async def _end(self, life: Life) -> None:
        """A real process would just be gone; here its tasks are cancelled, in a world that they cannot change."""
        for _ in range(TURNS_TO_DIE_MAX):
            if not life.tasks:
                return
            for task in list(life.tasks):
                task.cancel()
            await asyncio.sleep(0)
        self._world.fail(f"{life.name} crashed, and some tasks cannot be cancelled: {list(life.tasks)}")

    def lose_disk(self) -> None:
        """The process is down, and gets an empty disk."""
        assert self._life is None, f"{self.name} runs"
        self._world.trace(f"{self.name} has an empty disk")
        self.disk = SimulatedDisk(now_ms=self.clock.now_ms)

    async def disk_stops(self, after_operations: int, *, written: float = 0.0) -> None:
        """Returns when the disk has stopped, after this many more changes, in the middle of an operation.

        The process cannot continue, and has to be crashed at once.
        """
        stopped = asyncio.Event()

        def stop() -> None:
            # Now, and not with the crash: callbacks that run before that would serve on without a disk.
            if self._life is not None:
                self._life.is_over = True
            self.host.kill()
            if self._store is not None:
                self._store.vanish()
            stopped.set()

        self.disk.on_stop = stop
        self.disk.stop_at(len(self.disk.operations) + after_operations, written=written)
        await stopped.wait()


class World:
    """Everything that one simulated run consists of."""

    def __init__(self, seed: int, conditions: Conditions | None = None) -> None:
        self.seed = seed
        self.loop = SimulatedLoop(self.rng("schedule"))
        self.trace = Trace(self.loop.time)
        self.network = SimulatedNetwork(self.loop, self.rng("network"), conditions, self.trace)
        self.failures: list[str] = []
        self.excuses: Callable[[str], bool] = lambda message: False  # errors in the log that a scenario provokes
        self._brokers: dict[str, BrokerProcess] = {}
        self.ensemble: SimulatedEnsemble | None = None  # of the brokers that have `zookeeper.connect`

    def rng(self, purpose: str) -> Random:
        """A generator for one purpose: its numbers do not depend on what others draw."""
        return Random(f"{self.seed}/{purpose}")

    def broker(self, name: str, properties: Mapping[str, str] | None = None) -> BrokerProcess:
        """A broker that can be started; there is one for each name."""
        assert name not in self._brokers, f"{name} is there already"
        process = self._brokers[name] = BrokerProcess(self, name, properties or {})
        return process

    def fail(self, reason: str) -> None:
        """Records something that must not happen; the run fails when it ends."""
        self.failures.append(f"at {self.loop.time():.6f}: {reason}")

    # -- running -------------------------------------------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, Result], *, seconds: float, replay: str = "") -> Result:
        """Runs a scenario to its end; SimulationError if it fails, lasts longer or leaves something behind."""
        self.loop.set_task_factory(_note_owner)
        self.loop.set_exception_handler(self._unseen)
        try:
            with self._errors_noticed(), asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                result = runner.run(self._bounded(main, seconds))
            gc.collect()  # an exception that was dropped unseen is reported with the garbage
        except Exception as error:
            raise self._failed(_reason(error), replay) from error
        if self.failures:
            raise self._failed("something must not happen", replay)
        return result

    async def _bounded(self, main: Coroutine[Any, Any, Result], seconds: float) -> Result:
        async with asyncio.timeout(seconds):
            result = await main
        for process in self._brokers.values():
            if process.is_running:
                await process.crash()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for name in sorted(f"{task.get_name()} {task.get_coro()}" for task in left):
            self.fail(f"the scenario is over and a task still runs: {name}")
        return result

    def _failed(self, reason: str, replay: str) -> SimulationError:
        lines = [
            f"seed {self.seed}: {reason}",
            *self.failures,
            f"the last of what happened, of all {self.trace.digest}:",
            *list(self.trace.lines)[-TRACE_LINES_SHOWN:],
        ]
        if replay:
            lines.append(f"to replay it: {replay}")
            # Histories depend on the order in which sets are walked.
            order = os.environ.get("PYTHONHASHSEED", "random")
            lines.append("with PYTHONHASHSEED=" + (order if order != "random" else "0 (this run had none)"))
        return SimulationError("\n".join(lines))

    def _unseen(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, DiskStopped):  # that is how a process notices that it is dead
            self.fail(f"{context.get('message')}: {error!r} {context.get('task') or context.get('handle') or ''}")

    @contextmanager
    def _errors_noticed(self) -> Iterator[None]:
        """Errors in the log and warnings of the interpreter fail the run."""
        handler = _LogWatch(self)
        logger = logging.getLogger("ottla")
        logger.addHandler(handler)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                yield
        finally:
            logger.removeHandler(handler)


def _reason(error: BaseException) -> str:
    """What went wrong, without the wrapping of task groups."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_reason(inner) for inner in error.exceptions)
    return f"{type(error).__name__}: {error}"


class _LogWatch(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        life = LIFE.get()
        error = record.exc_info[1] if record.exc_info else None
        is_dying = isinstance(error, DiskStopped) or (life is not None and life.is_over)
        is_excused = error is None and self._world.excuses(record.getMessage())
        if not is_dying and not is_excused:
            self._world.fail(f"an error in the log: {record.getMessage()}{f': {error!r}' if error else ''}")


def _note_owner(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
    context = options.get("context")
    life = LIFE.get() if context is None else context.get(LIFE)
    if life is not None:
        life.add(task)
    return task

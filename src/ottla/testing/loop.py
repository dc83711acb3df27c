"""An event loop with virtual time: nothing really waits, and a run can be replayed.

It is asyncio's own selector loop, so tasks, timeouts, locks, streams and `sock_*` are the real ones; what is replaced
is below them. Time jumps to the next timer when nothing is left to do. The selector knows only sockets of
`ottla.testing.network`. Work for an executor is done in place. Callbacks take no time at all.

    loop = SimulatedLoop()
    loop.run_until_complete(asyncio.sleep(3600))     # returns at once
    assert loop.time() == 3600

With `rng`, sockets that are ready together are reported in a random order and some a turn later, which a kernel may
do and rarely does. Callbacks run in the order in which they were registered, because asyncio promises that.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import socket
from asyncio import selector_events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextvars import Context
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

Result = TypeVar("Result")
Resolver = Callable[[str], str]

# More turns than this while the clock stands still: something waits in a circle, and would for ever.
TURNS_WITHOUT_TIME_MAX = 100_000
LATE_CHANCE = 0.2  # that a socket which is ready is reported in the next turn only
# Far from any descriptor of the operating system, so that a mix-up fails instead of reaching a real file.
FIRST_DESCRIPTOR = 1_000_000
TASKS_NAMED_MAX = 30
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class DeadlockError(RuntimeError):
    """Nothing is ready, no timer is set, and the coroutine that the loop runs is not done."""


class LivelockError(RuntimeError):
    """Callbacks keep each other busy and virtual time does not advance."""


class Pollable(Protocol):
    """A socket as the selector sees it."""

    def fileno(self) -> int: ...

    def is_readable(self) -> bool: ...

    def is_writable(self) -> bool: ...


def descriptor_of(fileobj: FileDescriptorLike) -> int:
    return fileobj if isinstance(fileobj, int) else fileobj.fileno()


class _Keys(Mapping["FileDescriptorLike", selectors.SelectorKey]):
    """What is registered; found by descriptor or by socket, as everywhere in `selectors`."""

    def __init__(self) -> None:
        self.by_descriptor: dict[int, selectors.SelectorKey] = {}

    def __getitem__(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self.by_descriptor[descriptor_of(fileobj)]

    def __iter__(self) -> Iterator[FileDescriptorLike]:
        return iter(self.by_descriptor)

    def __len__(self) -> int:
        return len(self.by_descriptor)


class SimulatedSelector(selectors.BaseSelector):
    """Level-triggered readiness of simulated sockets; waiting is the business of whoever owns the time.

    A socket says when its state may have changed (`look_at`), so that a thousand idle connections cost nothing.
    """

    def __init__(self, wait: Callable[[float | None], None], rng: Random | None = None) -> None:
        self._wait = wait
        self._rng = rng
        self._sockets: dict[int, Pollable] = {}
        self._keys = _Keys()
        self._suspects: dict[int, None] = {}  # in order: those that may be ready
        self._next_descriptor = FIRST_DESCRIPTOR

    # -- what sockets tell ---------------------------------------------------------------------------------------------

    def open(self, sock: Pollable) -> int:
        """A descriptor for a new socket. None is ever used twice: what was closed by mistake is found out."""
        descriptor = self._next_descriptor
        self._next_descriptor += 1
        self._sockets[descriptor] = sock
        return descriptor

    def look_at(self, descriptor: int) -> None:
        if descriptor in self._keys.by_descriptor:
            self._suspects[descriptor] = None

    def forget(self, descriptor: int) -> None:
        """The socket is closed. Whoever watches it has to stop before that, as with epoll."""
        assert descriptor not in self._keys, f"socket {descriptor} is closed while the loop still watches it"
        del self._sockets[descriptor]

    def abandon(self, descriptor: int) -> None:
        """Nobody is left who could react to the socket."""
        self._keys.by_descriptor.pop(descriptor, None)
        self._suspects.pop(descriptor, None)

    # -- what the loop asks --------------------------------------------------------------------------------------------

    def register(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> selectors.SelectorKey:
        descriptor = descriptor_of(fileobj)
        if descriptor not in self._sockets:
            raise ValueError(f"{descriptor} is not an open socket of the simulated network")
        if descriptor in self._keys.by_descriptor:
            raise KeyError(f"{descriptor} is registered already")
        key = self._keys.by_descriptor[descriptor] = selectors.SelectorKey(fileobj, descriptor, events, data)
        self._suspects[descriptor] = None
        return key

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        descriptor = descriptor_of(fileobj)
        self._suspects.pop(descriptor, None)
        return self._keys.by_descriptor.pop(descriptor)

    def get_key(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self._keys.by_descriptor[descriptor_of(fileobj)]  # asked at every wait, and mostly for what is not there

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return self._keys

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self.ready()
        if not ready and timeout != 0:
            self._wait(timeout)
        return ready if self._rng is None else self._shuffled(ready, self._rng)

    @staticmethod
    def _shuffled(
        ready: list[tuple[selectors.SelectorKey, int]], rng: Random
    ) -> list[tuple[selectors.SelectorKey, int]]:
        """In a random order and not always all; readiness lasts, so the rest comes again."""
        if len(ready) < 2:
            return ready  # most turns
        rng.shuffle(ready)
        return [event for number, event in enumerate(ready) if number == 0 or rng.random() >= LATE_CHANCE]

    def ready(self) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = []
        if not self._suspects:
            return ready  # most turns
        for descriptor in list(self._suspects):
            sock, key = self._sockets[descriptor], self._keys.by_descriptor[descriptor]
            events = 0
            if key.events & READ and sock.is_readable():
                events |= READ
            if key.events & WRITE and sock.is_writable():
                events |= WRITE
            if events:
                ready.append((key, events))
            else:
                del self._suspects[descriptor]
        return ready


class SimulatedLoop(selector_events.BaseSelectorEventLoop):
    """asyncio's selector loop on virtual time and simulated sockets."""

    # What the parent keeps for itself, and is needed here: all ready callbacks, and a heap of all timers.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, rng: Random | None = None) -> None:
        self.sockets = SimulatedSelector(self._pass_time, rng)
        self._now = 0.0
        self._turns_without_time = 0
        self._resolve: Resolver | None = None
        super().__init__(self.sockets)
        self._clock_resolution = math.ulp(self._now)

    # -- time ----------------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def _pass_time(self, timeout: float | None) -> None:
        """Called when nothing is ready: the only moment at which time moves."""
        if timeout is None:
            raise DeadlockError(f"nothing is ready and no timer is set; pending: {self._pending_tasks()}")
        # Exactly to the next timer, and not the shortest time further: a timer that came early would be set again.
        self._now = self._scheduled[0].when()
        self._clock_resolution = math.ulp(self._now)
        self._turns_without_time = 0

    def _pending_tasks(self) -> str:
        tasks = sorted(asyncio.all_tasks(self), key=asyncio.Task.get_name)
        names = [f"{task.get_name()} ({task.get_coro()})" for task in tasks[:TASKS_NAMED_MAX]]
        return ", ".join(names) or "no task"

    def _run_once(self) -> None:
        self._turns_without_time += 1
        if self._turns_without_time > TURNS_WITHOUT_TIME_MAX:
            self._turns_without_time = 0  # whoever cleans up needs some turns
            raise LivelockError(
                f"{TURNS_WITHOUT_TIME_MAX} turns at {self._now:.6f} s and time does not move; "
                f"next: {list(self._ready)[:TASKS_NAMED_MAX]}, ready: {self.sockets.ready()[:TASKS_NAMED_MAX]}"
            )
        super()._run_once()  # type: ignore[misc]

    def cancel_timers(self, is_meant: Callable[[Context], bool]) -> None:
        """Cancels what was to be called later out of those contexts: their owner is gone and takes its plans along."""
        for timer in list(self._scheduled):
            if is_meant(timer._context):  # type: ignore[attr-defined]
                timer.cancel()

    # -- nothing of the real world -------------------------------------------------------------------------------------

    def _make_self_pipe(self) -> None:
        """There is no other thread that had to wake this one."""

    def _close_self_pipe(self) -> None:
        return

    def _write_to_self(self) -> None:
        return

    def run_in_executor(self, executor: object, func: Callable[..., Result], *args: object) -> asyncio.Future[Result]:
        """Done in place and reported in the next turn; threads would make their own order."""
        future: asyncio.Future[Result] = self.create_future()
        try:
            future.set_result(func(*args))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            future.set_exception(error)
        return future

    def resolve_with(self, resolve: Resolver) -> None:
        """How names of hosts become addresses; OSError for those that nobody has."""
        self._resolve = resolve

    async def getaddrinfo(self, host: Any, port: Any, **hints: Any) -> Any:
        if self._resolve is None:
            raise socket.gaierror(socket.EAI_NONAME, f"no network is there to know {host}")
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (self._resolve(host), port))]


def run(main: Coroutine[Any, Any, Result], *, rng: Random | None = None) -> Result:
    """Runs one coroutine on a loop of its own; what is still running then is cancelled."""
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(rng)) as runner:
        return runner.run(main)

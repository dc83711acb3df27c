"""How everything beside others is measured: warm first, then in turns, told as median and spread.

A piece of work is run once and says what it cost, by name. Before it counts, each of those that are compared runs it in
rounds of its own until it is warm: until the median of the last `WINDOW` rounds is not more than `STILL_FALLING` below
that of the `WINDOW` before them, or until `WARM_UP_S` are over, which the result then says. A virtual machine that
compiles what it runs needs minutes of that at first; whoever is warm at once pays two windows. Then they take turns,
round by round, each as often first as last, so that a slow minute of the machine hits all of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

ROUNDS = 7
WINDOW = 5  # of three, a noisy minute looked like the end of it while Java still compiled
STILL_FALLING = 0.03
WARM_UP_S = 60.0

# Runs once; what it cost, by name. Less is better.
Work = Callable[[], Mapping[str, float]]


@dataclass(frozen=True)
class Spread:
    """Several measurements of one thing."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values), len(values))


@dataclass(frozen=True)
class WarmUp:
    rounds: int
    seconds: float
    is_warm: bool  # False: it was still getting better when its time was over


@dataclass(frozen=True)
class Plan:
    """How long to measure; a rehearsal only sees that everything works."""

    rounds: int = ROUNDS
    warm_up_s: float = WARM_UP_S


REHEARSAL = Plan(rounds=1, warm_up_s=0.0)
REHEARSAL_SCALE = 0.02


def measure_alone(run: Callable[..., dict[str, Any]], description: str | None) -> None:
    """One benchmark as a program of its own."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true", help="small and once: does everything work?")
    arguments = parser.parse_args()
    print(json.dumps(run(REHEARSAL, REHEARSAL_SCALE) if arguments.rehearse else run(), indent=2))


def what_must_settle(costs: Mapping[str, float]) -> float:
    """CPU where it was measured: times, and the slowest ones above all, go up and down by themselves."""
    return sum(cost for name, cost in costs.items() if "cpu" in name) or sum(costs.values())


def is_warm(costs: Sequence[float]) -> bool:
    if len(costs) < 2 * WINDOW:
        return False
    before, last = costs[-2 * WINDOW : -WINDOW], costs[-WINDOW:]
    return statistics.median(last) >= statistics.median(before) * (1 - STILL_FALLING)


def warm_up(work: Work, seconds_max: float, clock: Callable[[], float] = time.monotonic) -> WarmUp:
    costs: list[float] = []
    started = clock()
    while not is_warm(costs) and clock() - started < seconds_max:
        costs.append(what_must_settle(work()))
    return WarmUp(len(costs), clock() - started, is_warm(costs))


def take_turns(works: Mapping[str, Work], plan: Plan = Plan()) -> dict[str, Any]:
    """Who is compared → what it cost → its spread; and beside those, how each was warmed up."""
    warmed = {name: warm_up(work, plan.warm_up_s) for name, work in works.items()}
    seen: dict[str, dict[str, list[float]]] = {name: {} for name in works}
    for number in range(plan.rounds):
        for name in reversed(list(works)) if number % 2 else works:
            for what, cost in works[name]().items():
                seen[name].setdefault(what, []).append(cost)
    results: dict[str, Any] = {
        name: {what: asdict(Spread.of(costs)) for what, costs in by_name.items()} for name, by_name in seen.items()
    }
    results["warm_up"] = {name: asdict(each) for name, each in warmed.items()}
    return results

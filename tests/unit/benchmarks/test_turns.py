"""How benchmarks measure: everybody warm, in turns, median and spread."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat

import pytest

from turns import WINDOW, Plan, Spread, is_warm, take_turns, warm_up


def falling_to(cost: float, rounds: int) -> Iterator[float]:
    """As of a machine that compiles what it runs: a tenth less each time, until it is compiled."""
    return chain((cost * 1.1 ** (rounds - number) for number in range(rounds)), repeat(cost))


def test_what_is_even_is_warm_after_two_windows() -> None:
    costs = [1.0] * (2 * WINDOW)
    assert not is_warm(costs[:-1])
    assert is_warm(costs)


@pytest.mark.parametrize("rounds", [0, 1, 5, 30])
def test_warming_up_goes_on_until_the_cost_no_longer_falls(rounds: int) -> None:
    costs = falling_to(1.0, rounds)
    warmed = warm_up(lambda: {"cpu": next(costs)}, seconds_max=1e9)
    assert warmed.is_warm
    assert rounds <= warmed.rounds <= rounds + 2 * WINDOW
    assert next(costs) == 1.0


def test_warming_up_has_an_end_and_says_that_it_was_not_enough() -> None:
    costs, clock = falling_to(1.0, 1000), iter(range(1000))
    warmed = warm_up(lambda: {"cpu": next(costs)}, seconds_max=50, clock=lambda: float(next(clock)))
    assert not warmed.is_warm
    assert warmed.rounds == 49


def test_times_do_not_keep_cpu_from_being_warm() -> None:
    slower_and_slower = falling_to(1.0, 1000)
    warmed = warm_up(lambda: {"cpu_us": 1.0, "p99_ms": next(slower_and_slower)}, seconds_max=1e9)
    assert warmed.rounds == 2 * WINDOW


def test_each_comes_first_as_often_as_last_and_nothing_of_the_warm_up_counts() -> None:
    order: list[str] = []
    costs = {"a": falling_to(1.0, 8), "b": repeat(2.0)}

    def once(name: str) -> dict[str, float]:
        order.append(name)
        return {"cpu": next(costs[name])}

    results = take_turns({"a": lambda: once("a"), "b": lambda: once("b")}, Plan(rounds=4, warm_up_s=1e9))
    assert order[-8:] == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert results["a"]["cpu"] == {"median": 1.0, "low": 1.0, "high": 1.0, "rounds": 4}
    assert results["warm_up"]["b"]["rounds"] == 2 * WINDOW


def test_the_spread_is_the_smallest_and_the_largest() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(median=2.0, low=1.0, high=3.0, rounds=3)

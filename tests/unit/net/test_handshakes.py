"""Handshakes take a limited time of each turn, in order, and leave the rest of it to others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla.net.handshakes import TURN_S, HandshakeTurns


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_who_finds_the_time_of_a_turn_used_up_waits_for_the_next_in_order() -> None:
    clock = Clock()
    log: list[str] = []

    async def main() -> None:
        turns = HandshakeTurns(asyncio.get_running_loop(), clock)

        def shake(name: str) -> Callable[[], None]:
            def step() -> None:
                log.append(name)
                clock.now += TURN_S * 0.6

            def come() -> None:
                if not turns.take(step):
                    turns.wait(come)

            return come

        for name in "abcde":
            shake(name)()
        log.append("|")
        for _ in range(4):
            await asyncio.sleep(0)
            log.append("|")

    asyncio.run(main())
    assert "".join(log) == "ab|cd|e|||"

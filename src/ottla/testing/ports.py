"""Ports for the brokers and clusters of tests, which come back to where they were."""

from __future__ import annotations

import random

from ottla.net.ports import FIRST_PORT, LAST_PORT, bind_if_free, free_ports


def free_port(host: str = "127.0.0.1") -> int:
    return free_ports(1, host)[0]


def free_range(count: int, host: str = "127.0.0.1") -> int:
    """The first of several ports that follow each other and that nobody has now."""
    while True:
        first = random.SystemRandom().randrange(FIRST_PORT, LAST_PORT + 2 - count)
        held = [bind_if_free(host, first + number) for number in range(count)]
        for sock in held:
            if sock is not None:
                sock.close()
        if None not in held:
            return first

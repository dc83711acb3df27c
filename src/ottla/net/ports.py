"""Ports for programs that are given one to listen on, or that come back to the one they had.

The system gives everybody who connects a port from a range. One of that range that a program has left for a moment, or
is about to take, may be somebody's end of a connection by then; a client that keeps knocking where nobody listens can
even meet itself. So these lie below the range.
"""

from __future__ import annotations

import random
import socket

FIRST_PORT = 10_000
LAST_PORT = 32_767  # Linux hands out those above
_rng = random.SystemRandom()  # not the one that a test may have set: others look for ports at the same time


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports that nobody has now, all different because they are held open together."""
    held: list[socket.socket] = []
    try:
        for port in _rng.sample(range(FIRST_PORT, LAST_PORT + 1), LAST_PORT + 1 - FIRST_PORT):
            if len(held) == count:
                break
            if (sock := bind_if_free(host, port)) is not None:
                held.append(sock)
        assert len(held) == count, "no port is free"
        return [sock.getsockname()[1] for sock in held]
    finally:
        for sock in held:
            sock.close()


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now: what is left of connections that have ended is not in its way."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError:
            return False
    return True


def bind_if_free(host: str, port: int) -> socket.socket | None:
    """A socket on that port; None if somebody has it."""
    sock = socket.socket()
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        return None
    return sock

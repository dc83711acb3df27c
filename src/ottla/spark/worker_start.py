"""How a Python worker of Spark starts: it connects to Spark first, and loads pyspark behind that.

    python -P worker_start.py -m pyspark.sql.streaming.python_streaming_source_runner

Spark gives a worker that it starts by itself, such as the one that plans the batches of a stream, ten seconds from its
start to its connection; no setting changes that, and a query ends where they are over. pyspark loads half of itself
before it connects, which is a quarter of a second of CPU, and more than ten seconds where many programs want the CPU.
Connected, Spark waits for as long as it takes.

It runs as a file, by whatever `worker_python` writes, so that nothing is imported before the connection is made that
need not be. A connection that cannot be made is left to pyspark, which says why.
"""

from __future__ import annotations

import os
import runpy
import socket
import struct
import sys
from importlib import import_module
from typing import Any, Final

PATH_VARIABLE: Final = "PYTHON_WORKER_FACTORY_SOCK_PATH"
PORT_VARIABLE: Final = "PYTHON_WORKER_FACTORY_PORT"
SECRET_VARIABLE: Final = "PYTHON_WORKER_FACTORY_SECRET"
TIMEOUT_S: Final = 15  # as pyspark has it
BUFFER_BYTES: Final = 65_536
ACCEPTED: Final = b"\0\0\0\2ok"


def connected() -> socket.socket | None:
    """A connection to the Spark that has started this process, with the secret sent; None where there is none."""
    try:
        if (path := os.environ.get(PATH_VARIABLE)) is not None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(TIMEOUT_S)
            sock.connect(path)
            return sock
        host = "::1" if os.environ.get("SPARK_PREFER_IPV6", "false").lower() == "true" else "127.0.0.1"
        sock = socket.create_connection((host, int(os.environ[PORT_VARIABLE])), TIMEOUT_S)
        secret = os.environ[SECRET_VARIABLE].encode()
        sock.sendall(struct.pack("!i", len(secret)) + secret)
    except (OSError, KeyError, ValueError):
        return None
    return sock


def hand_over(sock: socket.socket) -> None:
    """Lets pyspark have the connection in place of the first one that it makes."""
    worker_util: Any = import_module("pyspark.worker_util")
    connect = worker_util.local_connect_and_auth

    def take(conn_info: Any, auth_secret: str | None) -> tuple[Any, socket.socket]:
        worker_util.local_connect_and_auth = connect  # whatever else is asked for is another connection
        sock.settimeout(TIMEOUT_S)
        file = sock.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", BUFFER_BYTES)))
        if PATH_VARIABLE not in os.environ and file.read(len(ACCEPTED)) != ACCEPTED:
            raise ConnectionError("Spark does not accept the secret that it gave to this worker")
        return file, sock

    worker_util.local_connect_and_auth = take


def main() -> None:
    _, flag, module, *arguments = sys.argv
    assert flag == "-m", "it is for workers that are started as modules"
    sock = connected()
    if not os.environ.get("PYTHONSAFEPATH"):
        sys.path.insert(0, os.getcwd())  # where `python -m` looks first
    if sock is not None:
        hand_over(sock)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

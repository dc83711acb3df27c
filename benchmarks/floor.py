"""The floor beside each row: `floor.c`, a server that does a broker's system calls and nothing else, built and run."""

from __future__ import annotations

import contextlib
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from wire import Peer, RawConnection

SOURCE = Path(__file__).with_name("floor.c")
HEADERS = Path(__file__).parents[1] / "src" / "ottla" / "records"
FETCH, ANSWER_SIZE, BEGIN_ANEW = 1, 998, 999
FETCH_BYTES = 4 << 20  # of a file, asked for at a time
STOP_S = 10


def missing() -> str | None:
    return None if shutil.which("gcc") else "gcc is not here, so the floor is left out"


def build(directory: str) -> Path:
    program = Path(directory, "floor")
    subprocess.run(["gcc", "-O2", "-Wno-unused-function", f"-I{HEADERS}", str(SOURCE), "-o", str(program)], check=True)
    return program


def append_cpu_s(program: Path, file: Path, size: int, count: int) -> float:
    """CPU seconds to checksum and append so many times so many bytes."""
    done = subprocess.run([program, file, str(size), str(count)], check=True, capture_output=True, text=True)
    file.unlink()
    return float(done.stdout)


@contextlib.contextmanager
def floor() -> Iterator[Peer]:
    with tempfile.TemporaryDirectory(prefix="ottla-floor-") as directory:
        program = build(directory)
        started = time.perf_counter()
        process = subprocess.Popen(
            [program, Path(directory, "log")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            yield Peer("floor", f"127.0.0.1:{port}", process.pid, time.perf_counter() - started)
        finally:
            process.stdin.close()
            process.stdout.close()
            process.wait(STOP_S)


def frame(key: int, body: bytes) -> bytes:
    return struct.pack(">ih", 2 + len(body), key) + body


def set_answer_size(connection: RawConnection, size: int) -> None:
    connection.send(frame(ANSWER_SIZE, struct.pack(">i", size)))
    connection.receive(size)


def begin_anew(connection: RawConnection, answer_bytes: int) -> None:
    connection.send(frame(BEGIN_ANEW, b""))
    connection.receive(answer_bytes)


def read_file(connection: RawConnection, answer_bytes: int, size: int) -> None:
    """Fetches the first `size` bytes of the file."""
    for position in range(0, size, FETCH_BYTES):
        wanted = min(FETCH_BYTES, size - position)
        connection.send(frame(FETCH, struct.pack(">qi", position, wanted)))
        connection.skip(answer_bytes + wanted)

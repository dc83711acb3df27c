"""Standard input in the loop: pipes, files, ends, and readers that give up."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from ottla.cli.command import CommandError
from ottla.cli.standard_input import CHUNK_BYTES, StandardInput


async def read(descriptor: int) -> list[bytes]:
    return [chunk async for chunk in StandardInput(descriptor).chunks()]


def test_a_file_comes_in_large_pieces(tmp_path: Path):
    content = os.urandom(3 * CHUNK_BYTES + 5)
    (tmp_path / "lines").write_bytes(content)
    with (tmp_path / "lines").open("rb") as file:
        chunks = asyncio.run(read(file.fileno()))
    assert b"".join(chunks) == content
    assert len(chunks) <= 4


def test_a_pipe_is_waited_for_without_stopping_the_loop():
    source, sink = os.pipe()

    async def main() -> list[bytes]:
        reading = asyncio.ensure_future(read(source))
        for piece in (b"first", b"second"):
            await asyncio.sleep(0.01)
            os.write(sink, piece)
        await asyncio.sleep(0.01)
        os.close(sink)
        return await reading

    assert asyncio.run(main()) == [b"first", b"second"]
    os.close(source)


def test_what_arrives_while_its_user_is_busy_comes_in_one_piece():
    source, sink = os.pipe()

    async def main() -> list[bytes]:
        chunks = []
        async for chunk in StandardInput(source).chunks():
            chunks.append(chunk)
            if chunk == b"0":
                for number in range(1, 4):
                    os.write(sink, b"%d" % number)
                    await asyncio.sleep(0.01)
                os.close(sink)
                await asyncio.sleep(0.01)
        return chunks

    os.write(sink, b"0")
    assert asyncio.run(main()) == [b"0", b"123"]
    os.close(source)


def test_a_user_that_gives_up_is_not_held(tmp_path: Path):
    (tmp_path / "lines").write_bytes(bytes(20 * CHUNK_BYTES))

    async def main(descriptor: int) -> None:
        async for _ in StandardInput(descriptor).chunks():
            await asyncio.sleep(0.01)  # the reader fills its queue meanwhile
            raise ZeroDivisionError

    with (tmp_path / "lines").open("rb") as file, pytest.raises(ZeroDivisionError):
        asyncio.run(asyncio.wait_for(main(file.fileno()), 10))


def test_what_cannot_be_read_is_told(tmp_path: Path):
    descriptor = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(CommandError, match="cannot be read: Is a directory"):
        asyncio.run(read(descriptor))
    os.close(descriptor)

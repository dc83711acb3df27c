from random import Random

import pytest

from ottla.errors import ProtocolError
from ottla.protocol.frames import framed
from ottla.testing.frame_parser import FrameParser


def test_frames_come_out_whole_however_the_stream_is_cut() -> None:
    random = Random(7)
    frames = [random.randbytes(random.choice((0, 1, 3, 100, 5000))) for _ in range(200)]
    stream = b"".join(framed(content) for content in frames)
    for most in (1, 3, 7, 100, 4096, len(stream)):
        parser = FrameParser()
        received: list[bytes] = []
        position = 0
        while position < len(stream):
            size = random.randint(1, most)
            received += parser.feed(memoryview(stream)[position : position + size])
            position += size
        assert received == frames
        assert parser.pending_bytes == 0


def test_an_incomplete_frame_waits() -> None:
    parser = FrameParser()
    assert parser.feed(b"\x00\x00\x00\x03ab") == []
    assert parser.pending_bytes == 6
    assert parser.feed(b"c\x00") == [b"abc"]
    assert parser.pending_bytes == 1


def test_frames_do_not_change_when_the_receive_buffer_is_used_again() -> None:
    buffer = bytearray(framed(b"first"))
    (received,) = FrameParser().feed(buffer)
    buffer[4:] = b"other"
    assert received == b"first"


@pytest.mark.parametrize("length", [-1, -(1 << 31), 101, (1 << 31) - 1])
def test_a_length_out_of_bounds_is_refused_before_the_frame_arrives(length: int) -> None:
    with pytest.raises(ProtocolError, match=str(length)):
        FrameParser(frame_bytes_max=100).feed(length.to_bytes(4, "big", signed=True))


def test_the_largest_frame_is_taken() -> None:
    assert FrameParser(frame_bytes_max=100).feed(framed(bytes(60), bytes(40))) == [bytes(100)]


def test_memory_grows_with_what_came_not_with_what_was_announced() -> None:
    parser = FrameParser()
    parser.feed((50 << 20).to_bytes(4, "big") + b"some")
    assert parser.pending_bytes == 8

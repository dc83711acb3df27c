"""Messages in pieces: the same bytes as in one, and large records are not copied."""

import pytest

from ottla.protocol.codec import LARGE_PIECE_BYTES, encode, encode_pieces
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


@pytest.mark.parametrize("sizes", [(), (10,), (LARGE_PIECE_BYTES,), (LARGE_PIECE_BYTES, 7, LARGE_PIECE_BYTES + 1)])
def test_the_pieces_of_a_message_are_its_bytes_and_large_ones_are_the_callers(sizes):
    records = [bytearray(b"r" * size) for size in sizes]
    partitions = [PartitionProduceData(index=at, records=memoryview(each)) for at, each in enumerate(records)]
    topics = [TopicProduceData(name="orders", partition_data=partitions)]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)
    pieces = encode_pieces(b"start", request, 9)
    assert b"".join(pieces) == b"start" + encode(request, 9)
    assert isinstance(pieces[0], bytes)
    shared = [each for each in records if len(each) >= LARGE_PIECE_BYTES]
    assert [piece.obj for piece in pieces if isinstance(piece, memoryview)] == shared
    assert all(any(piece.obj is each for piece in pieces if isinstance(piece, memoryview)) for each in shared)

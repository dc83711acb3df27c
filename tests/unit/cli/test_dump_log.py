"""`ottla dump-log` on sound files, damaged files and things that are no log files."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from ottla.cli.command import ExitCode
from ottla.cli.inspection import segments
from ottla.records import batch

FIRST = "00000000000000000000"
SECOND = "00000000000000000009"


def documents(result) -> list[dict]:
    return [json.loads(line) for line in result.lines]


def of_kind(result, kind: str) -> list[dict]:
    return [document for document in documents(result) if document["kind"] == kind]


def overwrite(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def flip(path: Path, position: int) -> None:
    overwrite(path, position, bytes([path.read_bytes()[position] ^ 0x01]))


# -- what is shown -------------------------------------------------------------------------------------------


def test_every_batch_of_a_segment_is_a_line(ottla, orders: Path):
    result = ottla("dump-log", orders / f"{FIRST}.log")
    assert result.code == ExitCode.OK
    assert result.lines[0].endswith(f"{FIRST}.log: segment, 556 bytes")
    assert [line.split("  ")[3] for line in result.lines[1:-1]] == [
        "offsets 0..2",
        "offsets 3..5",
        "offsets 6..7",
        "offsets 8..8",
    ]
    assert result.lines[-1] == "  4 batches, 9 records"


def test_a_batch_says_what_it_is(ottla, orders: Path):
    plain, compressed, transactional, marker = ottla("dump-log", orders / f"{FIRST}.log").lines[1:-1]
    assert "  none  2023-11-14T22:13:22.000Z  leader epoch 4  producer 7 epoch 0 sequence 0..2" in plain
    assert "  lz4  " in compressed
    assert transactional.endswith("  transactional")
    assert marker.endswith("  control: abort, coordinator epoch 1")


def test_deep_shows_key_value_and_headers_of_every_record(ottla, orders: Path):
    result = ottla("dump-log", "--deep", orders / f"{FIRST}.log")
    assert (
        '    offset 4  2023-11-14T22:13:24.000Z  key "order-4"  value "{\\"total\\": 400}"  header "source"="web"'
        in result.lines
    )
    assert sum(line.startswith("    offset") for line in result.lines) == 9


def test_a_directory_is_all_files_of_its_partition_in_order(ottla, orders: Path):
    (orders / "notes.txt").write_text("not ours")
    files = of_kind(ottla("dump-log", "--json", orders), "file")
    assert [(Path(each["file"]).name, each["holds"]) for each in files] == [
        (f"{FIRST}.log", "segment"),
        (f"{FIRST}.index", "offset index"),
        (f"{FIRST}.timeindex", "time index"),
        (f"{FIRST}.txnindex", "transaction index"),
        (f"{SECOND}.log", "segment"),
        (f"{SECOND}.index", "offset index"),
        (f"{SECOND}.timeindex", "time index"),
        (f"{SECOND}.snapshot", "producer snapshot"),
        ("00000000000000000013.snapshot", "producer snapshot"),
        ("leader-epoch-checkpoint", "leader epoch checkpoint"),
        ("partition.metadata", "partition metadata"),
    ]


def test_json_has_every_field_of_a_batch(ottla, orders: Path):
    first = of_kind(ottla("dump-log", "--json", orders / f"{FIRST}.log"), "batch")[1]
    header = batch.read_header((orders / f"{FIRST}.log").read_bytes(), 178)
    assert first == {
        "file": str(orders / f"{FIRST}.log"),
        "kind": "batch",
        "position": 178,
        "size_bytes": 160,
        "base_offset": 3,
        "last_offset": 5,
        "record_count": 3,
        "compression": "lz4",
        "base_timestamp": 1_700_000_003_000,
        "max_timestamp": 1_700_000_005_000,
        "is_log_append_time": False,
        "leader_epoch": 4,
        "producer_id": 7,
        "producer_epoch": 0,
        "base_sequence": 3,
        "last_sequence": 5,
        "is_transactional": False,
        "is_control": False,
        "delete_horizon_ms": None,
        "crc": header.crc,
        "control": None,
    }


def test_json_has_the_records(ottla, orders: Path):
    records = of_kind(ottla("dump-log", "--json", "--deep", orders / f"{SECOND}.log"), "record")
    assert [record["offset"] for record in records] == [9, 10, 11, 12]
    assert records[0]["key"] == "order-9"
    assert json.loads(records[0]["value"]) == {"total": 900}
    assert records[0]["headers"] == [["source", "web"]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"{FIRST}.index", {"kind": "offset_index_entry", "offset": 5, "position": 178}),
        (f"{FIRST}.timeindex", {"kind": "time_index_entry", "timestamp": 1_700_000_005_000, "offset": 5}),
        (
            f"{FIRST}.txnindex",
            {
                "kind": "aborted_transaction",
                "producer_id": 8,
                "first_offset": 6,
                "last_offset": 8,
                "last_stable_offset": 9,
            },
        ),
        (
            f"{SECOND}.snapshot",
            {
                "kind": "producer",
                "producer_id": 7,
                "producer_epoch": 0,
                "coordinator_epoch": -1,
                "last_timestamp": 1_700_000_005_000,
                "transaction_first_offset": None,
                "first_sequence": 3,
                "last_sequence": 5,
                "first_offset": 3,
                "last_offset": 5,
            },
        ),
        ("leader-epoch-checkpoint", {"kind": "leader_epoch", "epoch": 4, "start_offset": 0}),
        ("partition.metadata", {"kind": "partition_metadata", "topic_id": "b3R0bGEtZ3VpZGUtMTIzNA"}),
    ],
)
def test_every_other_file_is_read_too(ottla, orders: Path, name: str, expected: dict):
    path = orders / name
    assert documents(ottla("dump-log", "--json", path))[1] == {"file": str(path), **expected}


def test_checkpoints_of_a_log_directory_are_read(ottla, tmp_path: Path):
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n2\norders 0 13\norders 1 5\n")
    assert of_kind(ottla("dump-log", "--json", tmp_path), "checkpoint_offset") == [
        {
            "file": str(tmp_path / "recovery-point-offset-checkpoint"),
            "kind": "checkpoint_offset",
            "topic": "orders",
            "partition": partition,
            "offset": offset,
        }
        for partition, offset in ((0, 13), (1, 5))
    ]


def test_from_offset_passes_over_what_ends_before(ottla, orders: Path):
    batches = of_kind(ottla("dump-log", "--json", "--from-offset", 4, orders / f"{FIRST}.log"), "batch")
    assert [each["base_offset"] for each in batches] == [3, 6, 8]


def test_max_bytes_stops_at_the_batch_that_does_not_fit(ottla, orders: Path):
    result = ottla("dump-log", "--json", "--max-bytes", 400, orders / f"{FIRST}.log")
    assert [each["position"] for each in of_kind(result, "batch")] == [0, 178]
    assert of_kind(result, "note")[0]["position"] == 338


@pytest.mark.parametrize("chunk_bytes", [61, 100, 178, 300])
def test_the_size_of_the_pieces_does_not_show(ottla, orders: Path, monkeypatch, chunk_bytes: int):
    whole = ottla("dump-log", "--deep", "--verify", orders)
    monkeypatch.setattr(segments, "CHUNK_BYTES", chunk_bytes)
    assert ottla("dump-log", "--deep", "--verify", orders) == whole
    assert whole.code == ExitCode.OK


# -- what is damaged -----------------------------------------------------------------------------------------


def test_a_sound_partition_verifies(ottla, orders: Path):
    result = ottla("dump-log", "--verify", orders)
    assert result.code == ExitCode.OK
    assert result.err == ""
    ends = [line for line in result.lines if line.endswith("; verified")]
    assert len(ends) == 11


def test_a_flipped_bit_is_found_and_hides_no_later_batch(ottla, orders: Path):
    flip(orders / f"{FIRST}.log", 178 + 100)
    result = ottla("dump-log", "--json", "--verify", orders / f"{FIRST}.log")
    assert result.code == ExitCode.DAMAGED
    (damage,) = of_kind(result, "damage")
    assert (damage["position"], damage["offset"]) == (178, 3)
    assert "checksum" in damage["text"]
    assert len(of_kind(result, "batch")) == 4
    assert result.err.startswith("ottla: 1 damaged place in the files above; ")


def test_without_verify_checksums_are_not_looked_at(ottla, orders: Path):
    flip(orders / f"{FIRST}.log", 178 + 100)
    assert ottla("dump-log", orders / f"{FIRST}.log").code == ExitCode.OK


@pytest.mark.parametrize(
    ("position", "data", "words"),
    [
        (16, b"\x07", "magic"),
        (8, b"\x7f\xff\xff\xff", "claims more bytes than there are"),
        (8, bytes(4), "length is below the smallest possible"),
        (0, b"\x02" * 160, "more bytes than there are"),
    ],
    ids=["magic", "length too large", "length too small", "overwritten"],
)
def test_a_header_that_is_gone_costs_its_own_batch_only(ottla, orders: Path, position: int, data: bytes, words: str):
    overwrite(orders / f"{FIRST}.log", 178 + position, data)
    result = ottla("dump-log", "--json", "--verify", orders / f"{FIRST}.log")
    assert result.code == ExitCode.DAMAGED
    (damage,) = of_kind(result, "damage")
    assert (damage["position"], damage["offset"]) == (178, 3)
    assert words in damage["text"]
    assert damage["text"].endswith("160 bytes cannot be read")
    assert [each["position"] for each in of_kind(result, "batch")] == [0, 338, 478]


@pytest.mark.parametrize("chunk_bytes", [61, 70, 100, 200])
def test_the_next_sound_batch_is_found_across_pieces(ottla, orders: Path, monkeypatch, chunk_bytes: int):
    overwrite(orders / f"{FIRST}.log", 178, b"\x07" * 160)
    monkeypatch.setattr(segments, "CHUNK_BYTES", chunk_bytes)
    result = ottla("dump-log", "--json", orders / f"{FIRST}.log")
    assert [each["position"] for each in of_kind(result, "batch")] == [0, 338, 478]


def test_a_wrong_length_in_the_newest_segment_is_not_taken_for_a_torn_tail(ottla, orders: Path):
    overwrite(orders / f"{SECOND}.log", 8, b"\x7f\xff\xff\xff")
    result = ottla("dump-log", "--json", orders / f"{SECOND}.log")
    assert result.code == ExitCode.DAMAGED
    assert [each["base_offset"] for each in of_kind(result, "batch")] == [11]


def test_where_nothing_sound_follows_the_rest_is_given_up_and_told(ottla, orders: Path):
    overwrite(orders / f"{FIRST}.log", 178, b"\x07" * 378)
    result = ottla("dump-log", "--json", orders / f"{FIRST}.log")
    assert result.code == ExitCode.DAMAGED
    (damage,) = of_kind(result, "damage")
    assert (damage["position"], damage["offset"]) == (178, 3)
    assert "378 bytes cannot be read" in damage["text"]


def test_offsets_that_go_back_are_damage(ottla, orders: Path):
    overwrite(orders / f"{FIRST}.log", 178, struct.pack(">q", 1))
    result = ottla("dump-log", "--json", orders / f"{FIRST}.log")
    assert result.code == ExitCode.DAMAGED
    assert of_kind(result, "damage")[0]["text"] == "offset 1 where 3 or more is due"


@pytest.mark.parametrize("tail", [b"\x00" * 500, b"torn"], ids=["zeros", "half a batch"])
def test_a_torn_tail_of_the_newest_segment_is_no_damage(ottla, orders: Path, tail: bytes):
    path = orders / f"{SECOND}.log"
    path.write_bytes(path.read_bytes() + tail)
    result = ottla("dump-log", "--json", "--verify", path)
    assert result.code == ExitCode.OK
    (note,) = of_kind(result, "note")
    assert note["position"] == 286
    assert str(len(tail)) in note["text"]


def test_a_torn_tail_of_an_older_segment_is_damage(ottla, orders: Path):
    path = orders / f"{FIRST}.log"
    path.write_bytes(path.read_bytes()[:-1])
    result = ottla("dump-log", "--json", path)
    assert result.code == ExitCode.DAMAGED
    (damage,) = of_kind(result, "damage")
    assert (damage["position"], damage["offset"]) == (478, 8)


def test_a_message_of_an_old_format_is_named(ottla, orders: Path):
    message = struct.pack(">qiIbbii", 0, 14, 0, 1, 0, -1, -1)
    (orders / f"{FIRST}.log").write_bytes(message + bytes(100))
    (damage,) = of_kind(ottla("dump-log", "--json", orders / f"{FIRST}.log"), "damage")
    assert "old magic" in damage["text"]


def test_a_control_batch_without_a_marker_is_shown_all_the_same(ottla, orders: Path):
    overwrite(orders / f"{FIRST}.log", 478 + 61 + 4, b"\x01")  # the length of the key
    result = ottla("dump-log", "--json", orders / f"{FIRST}.log")
    assert of_kind(result, "batch")[3]["control"].startswith("unreadable, ")


def test_records_that_cannot_be_read_are_damage(ottla, orders: Path):
    overwrite(orders / f"{FIRST}.log", 178 + 61, b"\xff\xff\xff\xff")  # no lz4 frame begins so
    result = ottla("dump-log", "--json", "--deep", orders / f"{FIRST}.log")
    assert result.code == ExitCode.DAMAGED
    assert [record["offset"] for record in of_kind(result, "record")] == [0, 1, 2, 6, 7, 8]


def test_reserved_zeros_of_an_index_are_no_damage(ottla, orders: Path):
    for suffix, entry_bytes in ((".index", 8), (".timeindex", 12)):
        path = orders / f"{SECOND}{suffix}"
        path.write_bytes(path.read_bytes() + bytes(entry_bytes * 100))
        result = ottla("dump-log", "--json", "--verify", path)
        assert result.code == ExitCode.OK
        assert of_kind(result, "note")[0]["text"].startswith("100 unused entries of zeros")


@pytest.mark.parametrize(
    ("suffix", "position", "data", "words"),
    [
        (".index", 4, struct.pack(">i", 179), "no batch that leads to it begins at byte 179"),
        (".index", 4, struct.pack(">i", 9999), "no batch that leads to it begins at byte 9999"),
        (".index", 0, struct.pack(">i", 1), "no batch that leads to it begins at byte 178"),
        (".index", 8, struct.pack(">i", 5), "does not rise"),
        (".index", 8, bytes(8), "1 entries of zeros before entry 2"),
        (".timeindex", 0, struct.pack(">q", 1_700_000_005_001), "the largest timestamp up to it is 1700000005000"),
        (".timeindex", 8, struct.pack(">i", 7), "the largest timestamp up to it is 1700000007000"),
        (".timeindex", 12, struct.pack(">q", 1_700_000_005_000), "does not rise"),
        (".timeindex", 24 + 8, struct.pack(">i", 99), "the segment ends before it"),
        (".txnindex", 0, struct.pack(">h", 9), "version 9"),
    ],
)
def test_an_index_that_lies_is_found(ottla, orders: Path, suffix: str, position: int, data: bytes, words: str):
    overwrite(orders / f"{FIRST}{suffix}", position, data)
    result = ottla("dump-log", "--verify", orders / f"{FIRST}{suffix}")
    assert result.code == ExitCode.DAMAGED
    assert any("DAMAGED: " in line and words in line for line in result.lines), result.out


def test_an_index_without_its_segment_is_checked_in_itself(ottla, orders: Path):
    (orders / f"{FIRST}.log").unlink()
    result = ottla("dump-log", "--verify", orders / f"{FIRST}.index", orders / f"{FIRST}.timeindex")
    assert result.code == ExitCode.OK
    assert sum("no segment beside it" in line for line in result.lines) == 2


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_an_index_cut_inside_an_entry_is_damaged(ottla, orders: Path, suffix: str):
    path = orders / f"{FIRST}{suffix}"
    path.write_bytes(path.read_bytes()[:-1])
    assert ottla("dump-log", path).code == ExitCode.DAMAGED


def test_a_snapshot_with_a_flipped_bit_is_damaged_and_the_next_file_is_still_shown(ottla, orders: Path):
    flip(orders / f"{SECOND}.snapshot", 40)
    result = ottla("dump-log", orders / f"{SECOND}.snapshot", orders / "leader-epoch-checkpoint")
    assert result.code == ExitCode.DAMAGED
    assert "checksum" in result.out
    assert "  leader epoch 4  from offset 0" in result.lines


def test_a_checkpoint_that_is_cut_is_damaged(ottla, orders: Path):
    (orders / "leader-epoch-checkpoint").write_text("0\n3\n4 0\n")
    result = ottla("dump-log", orders / "leader-epoch-checkpoint")
    assert result.code == ExitCode.DAMAGED
    assert "announces '3' entries and has 1" in result.out


# -- what is no log file -------------------------------------------------------------------------------------


def test_a_missing_file_is_not_found(ottla, tmp_path: Path):
    result = ottla("dump-log", tmp_path / f"{FIRST}.log")
    assert result.code == ExitCode.NOT_FOUND
    assert result.err.startswith(f"ottla: {tmp_path}/{FIRST}.log: no such file or directory; ")


def test_a_directory_without_log_files_is_not_found(ottla, tmp_path: Path):
    result = ottla("dump-log", tmp_path)
    assert result.code == ExitCode.NOT_FOUND
    assert "give the directory of a partition" in result.err


def test_a_file_of_another_name_is_bad_usage(ottla, tmp_path: Path):
    (tmp_path / "server.log").write_text("hello")
    result = ottla("dump-log", tmp_path / "server.log")
    assert result.code == ExitCode.USAGE
    assert "unknown kind of file" in result.err


def test_nothing_is_shown_before_every_name_is_known_to_be_right(ottla, orders: Path):
    assert ottla("dump-log", orders, orders / "missing").out == ""

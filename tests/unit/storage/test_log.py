"""Appending, rolling and reading: what a leader and its clients see of a log."""

import pytest

from ottla.disk import RealFile
from ottla.errors import ApiError, ErrorCode, RecordsError, StorageError
from ottla.records import batch
from ottla.records.batch import Compression
from ottla.storage.appended import Appended
from ottla.storage.index import RELATIVE_OFFSET_MAX, TimestampOffset
from ottla.testing.audit import batches_of
from ottla.testing.log_upkeep import unlink_due_segments

HOUR = 3_600_000
ONE = len(batch.build(None, [b"v"], 0))  # the bytes of a batch of one such record
EVERY_BATCH = {"index_interval_bytes": 0}


def read_values(log, offset: int, max_bytes: int = 10**6, **options) -> list[bytes | None]:
    """The values of the whole batches that one read returns."""
    found = log.read(offset, max_bytes, **options)
    if found is None:
        return []
    data = found.records.read()
    scanned = batch.scan(data)
    return [value for position in scanned.positions for value in batch.decode(data, position).values]


def out_of_range(log, offset: int, **options) -> bool:
    with pytest.raises(ApiError) as caught:
        log.read(offset, 1000, **options)
    return caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


# -- appending ---------------------------------------------------------------------------------------------------------


def test_a_new_log_is_empty_and_starts_at_zero(home) -> None:
    log = home.open()
    assert (log.log_start_offset, log.end_offset, log.recovery_point, log.size_bytes) == (0, 0, 0, 0)
    assert home.files(".log") == ["00000000000000000000.log"]


def test_batches_get_the_next_offsets_and_the_leader_epoch(home) -> None:
    log = home.open()
    assert home.produce(log, b"a", b"b", leader_epoch=3) == Appended(0, 1, -1)
    assert home.produce(log, b"c", leader_epoch=3) == Appended(2, 2, -1)
    assert log.end_offset == 3
    assert home.records(log) == [(0, None, b"a"), (1, None, b"b"), (2, None, b"c")]
    assert [header.leader_epoch for header in home.headers(log)] == [3, 3]
    assert [tuple(entry) for entry in log.epochs.entries] == [(3, 0)]


def test_the_bytes_of_the_producer_are_stored_but_for_offset_and_epoch(home) -> None:
    log = home.open()
    home.produce(log, b"first")
    sent = bytes(home.batch(b"a", b"b", compression=Compression.ZSTD))
    log.append(sent, leader_epoch=7, now_ms=home.now_ms)
    stored = home.content("00000000000000000000.log")[-len(sent) :]
    assert stored[:8] == (1).to_bytes(8, "big")
    assert stored[12:16] == (7).to_bytes(4, "big")
    assert stored[8:12] == sent[8:12]
    assert stored[16:] == sent[16:]


def test_a_batch_of_the_brokers_own_stands_as_it_was_made_but_for_offset_and_epoch(home) -> None:
    log = home.open()
    home.produce(log, b"first")
    later_ms = home.now_ms + 9
    made = batch.build([b"k", b"k"], [b"a", None], later_ms)
    sent = bytes(made)
    assert log.append_own(made, 2, leader_epoch=7, now_ms=later_ms) == 3
    assert home.records(log)[1:] == [(1, b"k", b"a"), (2, b"k", None)]
    assert [header.leader_epoch for header in home.headers(log)][1:] == [7]
    assert home.content("00000000000000000000.log")[-len(sent) + 16 :] == sent[16:]
    assert log.active.max_timestamp == TimestampOffset(later_ms, 2)


def test_a_batch_of_the_brokers_own_that_is_larger_than_a_segment_is_refused(home) -> None:
    log = home.open(segment_bytes=ONE)
    with pytest.raises(RecordsError) as caught:
        log.append_own(batch.build(None, [b"longer"], home.now_ms), 1, leader_epoch=0, now_ms=home.now_ms)
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.end_offset == 0


def test_log_append_time_is_answered(home) -> None:
    log = home.open(message_timestamp_type="LogAppendTime")
    assert home.produce(log, b"a", at=5, now_ms=home.now_ms + 9).append_time_ms == home.now_ms + 9
    assert log.offset_of_max_timestamp() == TimestampOffset(home.now_ms + 9, 0)


def test_settings_may_change_while_the_log_is_in_use(home) -> None:
    log = home.open()
    home.produce(log, b"a")
    log.config = type(log.config)(max_message_bytes=10)
    with pytest.raises(RecordsError):
        home.produce(log, b"b")


def test_a_batch_larger_than_a_segment_is_refused(home) -> None:
    log = home.open(segment_bytes=ONE)
    home.produce(log, b"v")
    with pytest.raises(RecordsError) as caught:
        home.produce(log, b"vv")
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.end_offset == 1


def test_a_refused_batch_changes_nothing(home) -> None:
    log = home.open()
    home.produce(log, b"a")
    with pytest.raises(RecordsError):
        log.append(home.batch(b"b") + home.batch(b"c"), leader_epoch=5, now_ms=home.now_ms)
    assert (log.end_offset, log.epochs.latest) == (1, 0)
    assert home.values(log) == [b"a"]


@pytest.mark.parametrize("ending", ["close", "abandon"])
def test_a_closed_log_takes_nothing(home, ending: str) -> None:
    log = home.open()
    home.produce(log, b"a")
    getattr(log, ending)()
    with pytest.raises(StorageError, match="closed"):
        home.produce(log, b"b")
    with pytest.raises(StorageError, match="closed"):
        log.append_as_follower(home.batch(b"b", base_offset=1), now_ms=home.now_ms)
    assert len(home.content("00000000000000000000.log")) == log.size_bytes


# -- following ---------------------------------------------------------------------------------------------------------


def test_a_follower_takes_the_leaders_bytes_as_they_are(home, tmp_path) -> None:
    leader = home.open()
    home.produce(leader, b"a", b"b", leader_epoch=1)
    home.send(leader, 7, 0, b"c", leader_epoch=2)
    sent = leader.read(0, 10**6).records.read()
    home.directory = str(tmp_path / "follower")
    follower = home.open()
    assert follower.append_as_follower(sent, now_ms=home.now_ms) == 3
    assert follower.read(0, 10**6).records.read() == sent
    assert follower.epochs.entries == leader.epochs.entries
    assert follower.producers.snapshot() == leader.producers.snapshot()


def test_a_follower_takes_the_whole_batches_of_a_cut_answer(home) -> None:
    log = home.open()
    data = home.batch(b"a") + home.batch(b"b", base_offset=1)
    assert log.append_as_follower(data[:-1], now_ms=home.now_ms) == 1
    assert log.append_as_follower(home.batch(b"b", base_offset=1)[:40], now_ms=home.now_ms) == 1
    assert log.size_bytes == len(home.batch(b"a"))


def test_a_follower_writes_what_came_in_one_response_at_once(home, monkeypatch) -> None:
    log = home.open()
    written = []
    write = RealFile.write

    def write_and_note(file: RealFile, position: int, data: bytes) -> None:
        written.append((position, len(data)))
        write(file, position, data)

    monkeypatch.setattr(RealFile, "write", write_and_note)
    data = home.batch(b"a", b"b") + home.batch(b"c", base_offset=2) + home.batch(b"d", base_offset=3)
    assert log.append_as_follower(data + b"cut", now_ms=home.now_ms) == 4
    assert written == [(0, len(data))]
    assert home.values(log) == [b"a", b"b", b"c", b"d"]
    assert [log.read(offset, 10**6).first_offset for offset in range(4)] == [0, 0, 2, 3]


def test_of_damaged_batches_a_follower_takes_not_even_those_before(home) -> None:
    log = home.open()
    damaged = home.batch(b"b", base_offset=1)
    damaged[-2] ^= 1
    with pytest.raises(RecordsError):
        log.append_as_follower(home.batch(b"a") + damaged, now_ms=home.now_ms)
    assert (log.end_offset, log.size_bytes) == (0, 0)


def test_a_follower_whose_write_fails_has_what_it_had(home, monkeypatch) -> None:
    log = home.open(index_interval_bytes=0)
    home.send(log, 7, 0, b"a")
    before = (log.end_offset, log.size_bytes, log.producers.snapshot(), log.active.max_timestamp)

    def fail(file: RealFile, position: int, data: bytes) -> None:
        raise StorageError(file.path, "cannot write")

    sent = home.batch(b"b", at=home.now_ms + 5, base_offset=1, producer_id=7, producer_epoch=0, base_sequence=1)
    with monkeypatch.context() as broken:
        broken.setattr(RealFile, "write", fail)
        with pytest.raises(StorageError):
            log.append_as_follower(sent, now_ms=home.now_ms)
    assert (log.end_offset, log.size_bytes, log.producers.snapshot(), log.active.max_timestamp) == before
    assert log.append_as_follower(sent, now_ms=home.now_ms) == 2


def test_a_follower_refuses_what_was_damaged_on_the_way(home) -> None:
    log = home.open()
    data = home.batch(b"a")
    data[-2] ^= 1
    with pytest.raises(RecordsError) as caught:
        log.append_as_follower(data, now_ms=home.now_ms)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.end_offset == 0


def test_a_follower_refuses_offsets_that_it_has(home) -> None:
    log = home.open()
    home.produce(log, b"a", b"b")
    with pytest.raises(ApiError) as caught:
        log.append_as_follower(home.batch(b"x", base_offset=1), now_ms=home.now_ms)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_starts_in_the_middle_of_a_batch_as_its_leader_does(home) -> None:
    """Records were deleted up to there. What comes is the whole batch; what was deleted stays so."""
    log = home.open()
    log.truncate_fully(2, now_ms=home.now_ms)
    data = home.batch(b"a", b"b", b"c", leader_epoch=4) + home.batch(b"d", base_offset=3, leader_epoch=4)
    assert log.append_as_follower(data, now_ms=home.now_ms) == 4
    assert (log.log_start_offset, log.end_offset) == (2, 4)
    assert log.epochs.entries == ((4, 2),)
    piece = log.read(2, 10**6)
    assert piece is not None
    assert piece.records.read() == data
    log.close()
    assert home.open(is_clean=True).end_offset == 4


def test_a_follower_that_has_records_takes_no_batch_that_begins_among_them(home) -> None:
    log = home.open()
    log.append_as_follower(home.batch(b"a", b"b", b"c"), now_ms=home.now_ms)
    for log_start_offset in (1, 2):
        log.advance_log_start(log_start_offset)
        with pytest.raises(ApiError):
            log.append_as_follower(home.batch(b"b", b"c", b"d", base_offset=1), now_ms=home.now_ms)
        assert (log.log_start_offset, log.end_offset) == (log_start_offset, 3)


@pytest.mark.parametrize(("base_offset", "is_taken"), [(1, False), (2, True), (3, True), (4, True), (5, True)])
def test_an_empty_log_takes_what_reaches_beyond_its_start(home, base_offset: int, is_taken: bool) -> None:
    log = home.open()
    log.truncate_fully(4, now_ms=home.now_ms)
    data = home.batch(b"a", b"b", b"c", base_offset=base_offset)
    if is_taken:
        log.append_as_follower(data, now_ms=home.now_ms)
        assert (log.log_start_offset, log.end_offset) == (4, base_offset + 3)
    else:
        with pytest.raises(ApiError):
            log.append_as_follower(data, now_ms=home.now_ms)
        assert (log.log_start_offset, log.end_offset) == (4, 4)


def test_a_follower_takes_the_gaps_that_compaction_left_on_the_leader(home) -> None:
    log = home.open()
    log.append_as_follower(home.batch(b"a", base_offset=5), now_ms=home.now_ms)
    log.append_as_follower(home.batch(b"b", b"c", base_offset=10, offset_deltas=[2, 7]), now_ms=home.now_ms)
    assert log.end_offset == 18
    assert [offset for offset, _, _ in home.records(log)] == [5, 12, 17]


def test_a_follower_drops_the_epochs_that_its_leaders_batches_contradict(home) -> None:
    """It was a leader for a moment and wrote nothing; the real history went on with an older epoch."""
    log = home.open()
    home.produce(log, b"a", leader_epoch=1)
    log.assign_epoch(5)
    log.append_as_follower(home.batch(b"b", base_offset=1, leader_epoch=2), now_ms=home.now_ms)
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0), (2, 1)]


# -- rolling -----------------------------------------------------------------------------------------------------------


def test_a_segment_is_filled_to_the_byte_and_then_rolled(home) -> None:
    log = home.open(segment_bytes=3 * ONE)
    for _ in range(7):
        home.produce(log, b"v")
    assert home.bases(log) == [0, 3, 6]
    assert [segment.size_bytes for segment in log.segments] == [3 * ONE, 3 * ONE, ONE]


def test_the_active_segment_rolls_by_the_time_of_its_records(home) -> None:
    log = home.open(segment_ms=HOUR)
    home.produce(log, b"a", at=home.now_ms - 10 * HOUR)
    home.produce(log, b"b", at=home.now_ms - 9 * HOUR, now_ms=home.now_ms + 99 * HOUR)
    assert home.bases(log) == [0]
    home.produce(log, b"c", at=home.now_ms - 9 * HOUR + 1)
    assert home.bases(log) == [0, 2]


def test_the_segment_of_a_follower_rolls_by_the_time_of_a_later_batch_of_a_response(home) -> None:
    log = home.open(segment_ms=HOUR)
    times = (home.now_ms, home.now_ms + HOUR, home.now_ms + HOUR + 1, home.now_ms)
    sent = b"".join(home.batch(b"v", base_offset=offset, at=at) for offset, at in enumerate(times))
    log.append_as_follower(sent, now_ms=home.now_ms)
    assert home.bases(log) == [0, 2]


def test_without_record_times_the_active_segment_rolls_by_the_clock(home) -> None:
    log = home.open(segment_ms=HOUR)
    home.produce(log, b"a", at=-1)
    home.produce(log, b"b", at=-1, now_ms=home.now_ms + HOUR)
    assert home.bases(log) == [0]
    home.produce(log, b"c", at=-1, now_ms=home.now_ms + HOUR + 1)
    assert home.bases(log) == [0, 2]


def test_an_empty_segment_does_not_roll(home) -> None:
    log = home.open(segment_ms=1)
    home.produce(log, b"a", at=home.now_ms, now_ms=home.now_ms + HOUR)
    assert home.bases(log) == [0]


def test_jitter_brings_the_roll_forward_by_chance(home) -> None:
    log = home.open(segment_ms=100 * HOUR, segment_jitter_ms=50 * HOUR, segment_bytes=10 * ONE, seed=1)
    jitters = {log.roll(home.now_ms).jitter_ms for _ in range(5) if home.produce(log, b"v")}
    assert len(jitters) == 5
    assert all(0 <= jitter <= 50 * HOUR for jitter in jitters)
    home.produce(log, b"a", at=home.now_ms)
    active = log.active
    home.produce(log, b"b", at=home.now_ms + 100 * HOUR - active.jitter_ms, now_ms=home.now_ms + 100 * HOUR)
    assert log.active is active
    home.produce(log, b"c", at=home.now_ms + 100 * HOUR - active.jitter_ms + 1, now_ms=home.now_ms + 100 * HOUR)
    assert log.active is not active


def test_a_compacted_log_rolls_in_time_for_its_compaction_lag(home) -> None:
    log = home.open(cleanup_policy=("compact",), segment_ms=100 * HOUR, max_compaction_lag_ms=HOUR)
    home.put(log, (b"k", b"1"))
    home.put(log, (b"k", b"2"), at=home.now_ms + HOUR)
    assert home.bases(log) == [0]
    home.put(log, (b"k", b"3"), at=home.now_ms + HOUR + 1, now_ms=home.now_ms + HOUR)
    assert home.bases(log) == [0, 2]


def test_a_full_offset_index_rolls_the_segment(home) -> None:
    log = home.open(segment_index_bytes=40, **EVERY_BATCH)  # five offset entries, two time entries and a spare one
    for number in range(8):
        home.produce(log, b"v", at=home.now_ms - number)  # the time index stays as it is
    assert home.bases(log) == [0, 6]
    assert log.segments[0].offset_index.entry_count == 5


def test_a_full_time_index_rolls_the_segment_before_its_last_entry(home) -> None:
    log = home.open(segment_index_bytes=48, **EVERY_BATCH)  # four time entries, one of them for sealing
    for number in range(8):
        home.produce(log, b"v", at=home.now_ms + number)
    assert home.bases(log) == [0, 4]
    assert log.segments[0].time_index.entry_count == 3


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("segment_index_bytes", [12, 24, 40])
def test_a_follower_rolls_within_a_response_where_its_leader_did(
    home, tmp_path, segment_index_bytes: int, is_killed: bool
) -> None:
    leader = home.open(segment_index_bytes=segment_index_bytes, **EVERY_BATCH)
    for number in range(4):
        home.produce(leader, b"v", at=home.now_ms + number)
    sent = b"".join(data for _, data in batches_of(leader))
    home.directory = str(tmp_path / "follower")
    follower = home.open(segment_index_bytes=segment_index_bytes, **EVERY_BATCH)
    if is_killed:
        follower.append_as_follower(sent[: len(sent) // 4], now_ms=home.now_ms)
        follower = home.restart_after_kill(follower)
        sent = sent[len(sent) // 4 :]
    follower.append_as_follower(sent, now_ms=home.now_ms)
    assert home.bases(follower) == home.bases(leader)


def test_the_smallest_index_still_lets_the_log_grow(home) -> None:
    log = home.open(segment_index_bytes=12, **EVERY_BATCH)
    for _ in range(4):
        home.produce(log, b"v")
    assert len(log.segments) > 1
    assert home.values(log) == [b"v"] * 4


def test_an_offset_beyond_the_reach_of_the_index_rolls_the_segment(home) -> None:
    log = home.open()
    home.produce(log, b"a")
    reach = RELATIVE_OFFSET_MAX
    log.append_as_follower(home.batch(b"b", base_offset=reach), now_ms=home.now_ms)
    assert home.bases(log) == [0]
    log.append_as_follower(home.batch(b"c", base_offset=reach + 1), now_ms=home.now_ms)
    assert home.bases(log) == [0, reach + 1]
    log.append_as_follower(home.batch(b"d", base_offset=10 * reach), now_ms=home.now_ms)
    assert home.bases(log) == [0, reach + 1, 10 * reach]
    assert home.records(log) == [
        (0, None, b"a"),
        (reach, None, b"b"),
        (reach + 1, None, b"c"),
        (10 * reach, None, b"d"),
    ]
    again = home.restart_after_kill(log)
    assert home.bases(again) == [0, reach + 1, 10 * reach]
    assert again.end_offset == 10 * reach + 1
    assert home.report.problems == []


def test_a_segment_that_is_full_before_a_far_offset_rolls_to_where_that_is(home) -> None:
    log = home.open(segment_bytes=100)
    home.produce(log, b"a")
    log.append_as_follower(home.batch(b"b", base_offset=1 + 2**32), now_ms=home.now_ms)
    assert home.bases(log) == [0, 1 + 2**32]
    assert home.values(log) == [b"a", b"b"]


def test_the_first_batch_of_a_follower_may_be_far_from_the_start(home) -> None:
    log = home.open()
    log.append_as_follower(home.batch(b"a", base_offset=2**40), now_ms=home.now_ms)
    assert home.bases(log) == [2**40]
    assert log.end_offset == 2**40 + 1


def test_a_roll_leaves_a_snapshot_of_the_producers_at_the_new_segment(home) -> None:
    log = home.open()
    home.send(log, 7, 0, b"a", b"b")
    log.roll(home.now_ms)
    assert home.content("00000000000000000002.snapshot") == log.producers.snapshot()


def test_rolling_an_empty_segment_does_nothing(home) -> None:
    log = home.open()
    home.produce(log, b"a")
    log.roll(home.now_ms)
    log.roll(home.now_ms)
    assert home.bases(log) == [0, 1]


def test_a_sealed_segment_has_its_largest_timestamp_in_the_time_index(home) -> None:
    log = home.open()
    home.produce(log, b"a", b"b", at=[home.now_ms, home.now_ms + 5])
    log.roll(home.now_ms)
    assert home.content("00000000000000000000.timeindex") == (home.now_ms + 5).to_bytes(8, "big") + b"\0\0\0\1"
    assert home.content("00000000000000000000.index") == b""


# -- reading -----------------------------------------------------------------------------------------------------------


def test_a_read_returns_batches_up_to_the_limit(home) -> None:
    log = home.open()
    for value in (b"a", b"b", b"c"):
        home.produce(log, value)
    assert read_values(log, 0) == [b"a", b"b", b"c"]
    assert read_values(log, 1) == [b"b", b"c"]
    assert read_values(log, 0, 2 * ONE) == [b"a", b"b"]
    assert log.read(0, 2 * ONE + 10).records.size_bytes == 2 * ONE + 10  # the rest is a cut batch, which is legal


def test_the_first_batch_comes_whole_even_if_it_is_larger_than_the_limit(home) -> None:
    log = home.open()
    home.produce(log, b"x" * 1000)
    home.produce(log, b"b")
    assert read_values(log, 0, 1) == [b"x" * 1000]
    assert log.read(0, 1).records.size_bytes == log.read(0, 0).records.size_bytes == ONE + 999 + 2


def test_where_not_even_one_batch_must_come_nothing_does(home) -> None:
    log = home.open()
    home.produce(log, b"x" * 1000)
    assert log.read(0, 999, at_least_one=False) is None
    assert read_values(log, 0, 5000, at_least_one=False) == [b"x" * 1000]


def test_a_batch_that_begins_before_the_offset_is_returned_whole(home) -> None:
    log = home.open()
    home.produce(log, b"a", b"b", b"c")
    found = log.read(2, 1000)
    assert found.first_offset == 0
    assert read_values(log, 2) == [b"a", b"b", b"c"]


def test_offsets_below_the_start_and_past_the_end_are_out_of_range(home) -> None:
    log = home.open()
    for _ in range(5):
        home.produce(log, b"v")
    log.advance_log_start(2)
    assert out_of_range(log, 1)
    assert out_of_range(log, 6)
    assert out_of_range(log, -1)
    assert log.read(5, 1000) is None
    assert read_values(log, 2) == [b"v"] * 3


def test_between_the_high_watermark_and_the_end_there_is_nothing_and_no_error(home) -> None:
    log = home.open()
    for _ in range(5):
        home.produce(log, b"v")
    assert read_values(log, 0, upper_offset=3) == [b"v"] * 3
    for offset in (3, 4, 5):
        assert log.read(offset, 1000, upper_offset=3) is None
    assert out_of_range(log, 6, upper_offset=3)


def test_an_upper_bound_inside_of_a_batch_keeps_that_batch_back(home) -> None:
    """A high watermark from a checkpoint may stand anywhere; what is not below it was perhaps never committed."""
    log = home.open()
    home.produce(log, b"a")
    home.produce(log, b"b", b"c", b"d")
    assert read_values(log, 0, upper_offset=3) == [b"a"]
    assert log.read(1, 1000, upper_offset=3) is None
    assert log.read(2, 1000, upper_offset=3) is None


def test_an_upper_bound_past_the_end_is_the_end(home) -> None:
    log = home.open()
    home.produce(log, b"a")
    assert read_values(log, 0, upper_offset=100) == [b"a"]


def test_a_read_stays_within_one_segment_and_goes_on_in_the_next(home) -> None:
    log = home.open(segment_bytes=2 * ONE)
    for value in (b"a", b"b", b"c", b"d", b"e"):
        home.produce(log, value)
    first = log.read(1, 10**6)
    assert (first.first_offset, first.upper_offset) == (1, 2)
    assert read_values(log, 1) == [b"b"]
    assert read_values(log, 2) == [b"c", b"d"]
    assert read_values(log, 4) == [b"e"]


def test_an_upper_bound_at_a_segments_border_cuts_there(home) -> None:
    log = home.open(segment_bytes=2 * ONE)
    for value in (b"a", b"b", b"c", b"d", b"e"):
        home.produce(log, value)
    assert read_values(log, 0, upper_offset=2) == [b"a", b"b"]
    assert log.read(2, 1000, upper_offset=2) is None
    assert read_values(log, 2, upper_offset=3) == [b"c"]


def test_the_upper_offset_of_a_slice_is_past_all_that_it_holds(home) -> None:
    log = home.open(index_interval_bytes=3 * ONE)
    for _ in range(40):
        home.produce(log, b"v")
    for offset in range(40):
        for count in (1, 2, 3, 7):
            found = log.read(offset, count * ONE, upper_offset=35) if offset < 35 else None
            if found is not None:
                assert min(offset + count, 35) <= found.upper_offset <= min(offset + count + 5, 35)


def test_a_gap_that_compaction_left_is_read_over(home) -> None:
    log = home.open()
    log.append_as_follower(home.batch(b"a", base_offset=0), now_ms=home.now_ms)
    log.append_as_follower(home.batch(b"b", base_offset=10), now_ms=home.now_ms)
    log.roll(home.now_ms)
    log.append_as_follower(home.batch(b"c", base_offset=20), now_ms=home.now_ms)
    assert read_values(log, 5) == [b"b"]
    assert read_values(log, 11) == [b"c"]  # the rest of the first segment is gone
    assert read_values(log, 15) == [b"c"]
    assert log.read(5, 1000, upper_offset=8) is None


def test_a_slice_survives_retention_and_unlinking(home) -> None:
    log = home.open(segment_bytes=ONE, retention_bytes=0)
    home.produce(log, b"v")
    home.produce(log, b"v")
    found = log.read(0, 1000)
    expected = found.records.read()
    log.delete_expired(home.now_ms, high_watermark=2)
    assert unlink_due_segments(log, home.now_ms + 60_000) == 2
    assert home.files(".deleted") == []
    assert found.records.read() == expected


def test_idle_files_are_let_go_and_come_back_when_read(home) -> None:
    log = home.open(segment_bytes=ONE)
    for _ in range(5):
        home.produce(log, b"v")
    held = log.read(0, 1000)
    log.release_idle_files()
    log.release_idle_files()
    assert [segment._file is None for segment in log.segments] == [True] * 4 + [False]
    assert held.records.read() == log.read(0, 1000).records.read()
    assert home.values(log) == [b"v"] * 5


# -- by time -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_the_first_record_at_or_after_a_moment_is_found_across_segments(home, compression: Compression) -> None:
    log = home.open()
    start = home.now_ms - 1000
    for number in range(4):
        times = [start + 20 * number, start + 20 * number + 10]
        home.produce(log, b"a", b"b", at=times, compression=compression)
        log.roll(home.now_ms)
    assert log.offset_for_time(0) == TimestampOffset(start, 0)
    assert log.offset_for_time(start + 10) == TimestampOffset(start + 10, 1)
    assert log.offset_for_time(start + 11) == TimestampOffset(start + 20, 2)
    assert log.offset_for_time(start + 61) == TimestampOffset(start + 70, 7)
    assert log.offset_for_time(start + 71) is None


def test_records_below_the_log_start_are_not_found_by_time(home) -> None:
    log = home.open()
    home.produce(log, b"a", b"b", b"c", at=home.now_ms)
    log.advance_log_start(2)
    assert log.offset_for_time(0) == TimestampOffset(home.now_ms, 2)
    log.advance_log_start(3)
    assert log.offset_for_time(0) is None


def test_a_log_without_records_or_without_timestamps_answers_no_time(home) -> None:
    log = home.open()
    assert log.offset_for_time(0) is None
    assert log.offset_of_max_timestamp() is None
    home.produce(log, b"a", at=-1)
    assert log.offset_for_time(0) is None
    assert log.offset_of_max_timestamp() is None


def test_the_largest_timestamp_is_found_with_the_first_record_that_has_it(home) -> None:
    log = home.open()
    home.produce(log, b"a", b"b", at=[home.now_ms, home.now_ms + 5])
    log.roll(home.now_ms)
    home.produce(log, b"c", b"d", b"e", at=[home.now_ms + 1, home.now_ms + 9, home.now_ms + 9])
    home.produce(log, b"f", at=home.now_ms + 9)
    assert log.offset_of_max_timestamp() == TimestampOffset(home.now_ms + 9, 3)


def test_log_append_time_finds_the_first_record_of_the_batch(home) -> None:
    log = home.open(message_timestamp_type="LogAppendTime")
    home.produce(log, b"a", now_ms=home.now_ms)
    home.produce(log, b"b", b"c", at=[5, 6], now_ms=home.now_ms + 10, compression=Compression.LZ4)
    assert log.offset_for_time(home.now_ms + 1) == TimestampOffset(home.now_ms + 10, 1)
    assert log.offset_of_max_timestamp() == TimestampOffset(home.now_ms + 10, 1)

import pytest

from ottla.errors import RecordsError
from ottla.records import batch, control
from ottla.records.control import ControlType, EndTransactionMarker

pytestmark = pytest.mark.usefixtures("core")
T = 1_700_000_000_000


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_read_back(commit):
    data = control.build_marker(4000, 2, EndTransactionMarker(commit, 17), T, base_offset=11, leader_epoch=5)
    header = batch.check(data, strict=False).header
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert (header.producer_id, header.producer_epoch) == (4000, 2)
    assert (header.base_offset, header.leader_epoch, header.max_timestamp) == (11, 5, T)
    assert control.read_marker(bytes(3) + data, 3) == EndTransactionMarker(commit, 17)
    assert control.control_type_name(data) == ("COMMIT" if commit else "ABORT")


def control_batch(key: bytes | None, value: bytes | None) -> bytearray:
    return batch.build([key], [value], T, is_control=True)


@pytest.mark.parametrize("kind", [kind for kind in ControlType if kind > 1])
def test_other_control_records_are_named_and_are_no_markers(kind):
    data = control_batch(bytes([0, 0, 0, kind]), b"")
    assert control.read_marker(data) is None
    assert control.control_type_name(data) == kind.name


def test_a_control_record_of_the_future_is_named_by_its_number():
    data = control_batch(b"\x00\x00\x01\x00", b"")
    assert control.read_marker(data) is None
    assert control.control_type_name(data) == "UNKNOWN_256"


def test_a_longer_value_of_a_newer_version_is_read():
    data = control_batch(b"\x00\x01\x00\x01more", b"\x00\x01\x00\x00\x00\x09more")
    assert control.read_marker(data) == EndTransactionMarker(True, 9)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0\0\0\0\0"),
        (b"\0\0\0", b"\0\0\0\0\0\0"),
        (b"\xff\xff\0\1", b"\0\0\0\0\0\0"),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0\0\0\0\0"),
        (b"\0\0\0\1", b"\xff\xff\0\0\0\0"),
    ],
)
def test_a_marker_that_makes_no_sense_is_refused(key, value):
    with pytest.raises(RecordsError):
        control.read_marker(control_batch(key, value))


def test_an_empty_control_batch_is_refused():
    header = batch.read_header(control_batch(b"\0\0\0\1", b""))
    with pytest.raises(RecordsError):
        control.read_marker(batch.rebuild(header, b"", record_count=0, max_timestamp=T))

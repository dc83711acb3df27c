# cython: language_level=3
"""The two steps of a repeated Produce request that are nothing but bytes, compiled.

`repeated_produce` has both in Python under the same names; they are the reference.
"""

from cpython.buffer cimport Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem, PyDict_Next
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

cdef extern from "Python.h":
    Py_buffer *PyMemoryView_GET_BUFFER(object view)

cdef extern from *:
    """
    static inline uint64_t ottla_swap_64(uint64_t value) { return __builtin_bswap64(value); }
    static inline int ottla_is_little(void) { return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__; }
    """
    uint64_t ottla_swap_64(uint64_t value) nogil
    bint ottla_is_little() nogil

cdef enum:
    KEY_START = 8
    VERSION_AT = 3
    FIRST_FLEXIBLE_VERSION = 9
    NO_TAGS_BYTES = 3
    MAGIC_AT = 16
    MAGIC = 2


def locate(memoryview_of_frame, dict targets):
    """The target that a frame repeats and its records; None where there is none."""
    cdef Py_buffer *buffer = PyMemoryView_GET_BUFFER(memoryview_of_frame)
    cdef const uint8_t *frame = <const uint8_t *> buffer.buf
    cdef Py_ssize_t size = buffer.len, key_end, start, end, place = 0
    cdef PyObject *key_end_object
    cdef PyObject *by_key
    cdef PyObject *found
    cdef bytes head
    while PyDict_Next(targets, &place, &key_end_object, &by_key):
        key_end = <object> key_end_object
        if size < key_end + 8:
            continue
        key = PyBytes_FromStringAndSize(<const char *> frame + KEY_START, key_end - KEY_START)
        found = PyDict_GetItem(<dict> by_key, key)
        if found == NULL:
            continue
        target = <object> found
        head = target.head
        if memcmp(frame, PyBytes_AS_STRING(head), 4) != 0:
            continue
        start, end = key_end, size
        if not find_records(frame, &start, &end, frame[VERSION_AT] >= FIRST_FLEXIBLE_VERSION):
            return None
        return target, memoryview_of_frame[start:end]
    return None


cdef bint find_records(const uint8_t *frame, Py_ssize_t *start, Py_ssize_t *end, bint is_flexible) noexcept:
    """Whether the frame ends with the records whose size stands at `start`; then both ends are theirs."""
    cdef Py_ssize_t position = start[0], size = 0
    cdef int shift = 0
    if is_flexible:
        while shift < 28:
            size |= <Py_ssize_t> (frame[position] & 0x7F) << shift
            position += 1
            if frame[position - 1] < 0x80:
                break
            shift += 7
        size -= 1
        end[0] -= NO_TAGS_BYTES
        if frame[end[0]] or frame[end[0] + 1] or frame[end[0] + 2]:
            return False
    else:
        size = <int> (
            (<uint32_t> frame[position] << 24) | (frame[position + 1] << 16) | (frame[position + 2] << 8) | frame[position + 3]
        )
        position += 4
    start[0] = position
    return position + size == end[0] and size > MAGIC_AT and frame[position + MAGIC_AT] == MAGIC


def fill(bytes template, Py_ssize_t offsets_at, memoryview_of_frame, int64_t base_offset, int64_t time_ms, int64_t log_start):
    """The answer with the correlation id of a frame and the three offsets in their places."""
    cdef const uint8_t *frame = <const uint8_t *> PyMemoryView_GET_BUFFER(memoryview_of_frame).buf
    cdef Py_ssize_t size = PyBytes_GET_SIZE(template)
    assert 8 <= offsets_at and offsets_at + 24 <= size
    answer = PyBytes_FromStringAndSize(PyBytes_AS_STRING(template), size)
    cdef char *at = PyBytes_AS_STRING(answer)
    memcpy(at + 4, frame + 4, 4)
    put_64(at + offsets_at, base_offset)
    put_64(at + offsets_at + 8, time_ms)
    put_64(at + offsets_at + 16, log_start)
    return answer


cdef void put_64(char *at, int64_t value) noexcept:
    cdef uint64_t big = ottla_swap_64(<uint64_t> value) if ottla_is_little() else <uint64_t> value
    memcpy(at, &big, 8)

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The record core, compiled: `reference/` says what each function means, the same tests run on both.

Three rules keep it safe. Every byte is read through a pointer that was compared with the end of its buffer. A field is
read once: the buffer may belong to a file that someone else writes, so nothing is checked first and read again later.
And what is allocated is bounded by the bytes that came in, never by a number in them. Loops run without the GIL unless
they make Python objects.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF, PyObject
from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

import secrets

from ottla.records.avro import AvroBuffers
from ottla.records.layout import (
    BatchHeader,
    BinaryColumn,
    Checked,
    Columns,
    DecodedColumns,
    EncodedColumns,
    HeadersColumn,
    Problem,
    RefusedRecord,
    Retained,
    Scan,
    ScanEnd,
    refusal,
)

cdef extern from "_crc32c.h" nogil:
    void crc32c_prepare "ottla_crc32c_prepare"()
    uint32_t crc32c_of "ottla_crc32c_of"(uint32_t value, const uint8_t *data, size_t size)
    uint32_t crc32c_by_portable "ottla_crc32c_portable"(uint32_t value, const uint8_t *data, size_t size)
    int64_t big_endian_64 "ottla_big_endian_64"(const uint8_t *data)
    int32_t big_endian_32 "ottla_big_endian_32"(const uint8_t *data)
    int16_t big_endian_16 "ottla_big_endian_16"(const uint8_t *data)

cdef extern from "_record.h" nogil:
    enum:
        RECORD_BYTES_MIN "OTTLA_RECORD_BYTES_MIN"
        HEADER_COUNT "OTTLA_PROBLEM_HEADER_COUNT"
        HEADER_KEY "OTTLA_PROBLEM_HEADER_KEY"

    ctypedef struct RawRecord "ottla_raw_record":
        const uint8_t *start
        const uint8_t *end
        const uint8_t *after_timestamp
        const uint8_t *key
        const uint8_t *value
        const uint8_t *headers
        int64_t timestamp_delta
        int32_t offset_delta
        int32_t key_size
        int32_t value_size
        int32_t header_count
        uint8_t attributes

    ctypedef struct RawHeader "ottla_raw_header":
        const uint8_t *key
        const uint8_t *value
        int32_t key_size
        int32_t value_size

    int read_record "ottla_read_record"(const uint8_t *at, const uint8_t *section_end, RawRecord *record)
    int read_record_header "ottla_read_record_header"(const uint8_t **at, const uint8_t *end, RawHeader *header)
    int varint_size "ottla_varint_size"(int64_t value)
    int64_t nullable_size "ottla_nullable_size"(const uint8_t *data, int64_t size)
    uint8_t *write_varint "ottla_write_varint"(uint8_t *to, int64_t value)
    uint8_t *write_nullable "ottla_write_nullable"(uint8_t *to, const uint8_t *data, int64_t size)

cdef extern from *:
    """
    /* An empty instance of a NamedTuple class, as tuple.__new__ makes it. */
    static inline PyObject *ottla_new_named_tuple(PyObject *type, Py_ssize_t size) {
        return ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, size);
    }
    static inline int ottla_add_overflows(int64_t a, int64_t b, int64_t *sum) {
        return __builtin_add_overflow(a, b, sum);
    }
    static inline int ottla_subtract_overflows(int64_t a, int64_t b, int64_t *out) {
        return __builtin_sub_overflow(a, b, out);
    }
    static inline int ottla_multiply_overflows(int64_t a, int64_t b, int64_t *out) {
        return __builtin_mul_overflow(a, b, out);
    }
    """
    object new_named_tuple "ottla_new_named_tuple"(object type, Py_ssize_t size)
    bint add_overflows "ottla_add_overflows"(int64_t a, int64_t b, int64_t *sum) nogil
    bint subtract_overflows "ottla_subtract_overflows"(int64_t a, int64_t b, int64_t *out) nogil
    bint multiply_overflows "ottla_multiply_overflows"(int64_t a, int64_t b, int64_t *out) nogil

crc32c_prepare()

# The numbers of `layout.Problem` that are found here; _record.h has those of a record. 0 is none.
cdef enum:
    SHORT = 1
    LENGTH = 2
    LEGACY_MAGIC = 3
    MAGIC = 4
    CRC = 5
    CODEC = 6
    OFFSETS = 8
    COUNT = 9
    CONTROL = 10
    SEQUENCE = 11
    BASE_OFFSET = 12
    OFFSET_DELTA = 27
    TIMESTAMP = 28
    TRAILING = 29
    TOO_LARGE = 30

cdef enum:
    HEADER_BYTES = 61
    LENGTH_PREFIX = 12
    LENGTH_MIN = 49
    LEGACY_LENGTH_MIN = 14
    MAGIC_AT = 16
    ATTRIBUTES_AT = 21
    COMPRESSION_MASK = 0x07
    ZSTD = 4
    LEADER_EPOCH_AT = 12
    LOG_APPEND_TIME_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20
    VARINT_BYTES_MAX = 5
    # Beside key, value and headers: length, attributes, timestamp delta, offset delta, two lengths, header count.
    RECORD_OVERHEAD_MAX = 5 + 1 + 10 + 5 + 5 + 5 + 5
    RECORD_OVERHEAD_BYTES = 24
    SCAN_CHUNK = 512


cdef class _View:
    """The bytes of any buffer, held for as long as this lives."""

    cdef Py_buffer buffer
    cdef const uint8_t *data
    cdef Py_ssize_t size

    def __cinit__(self, source):
        PyObject_GetBuffer(source, &self.buffer, PyBUF_SIMPLE)
        self.data = <const uint8_t *>self.buffer.buf
        self.size = self.buffer.len

    def __dealloc__(self):
        PyBuffer_Release(&self.buffer)


cdef raise_problem(int problem, int64_t index=-1):
    raise refusal(Problem._value2member_map_[problem], index)


# --- checksum -----------------------------------------------------------------------------------------------

def crc32c(data, uint32_t value=0):
    cdef _View view = _View(data)
    with nogil:
        value = crc32c_of(value, view.data, view.size)
    return value


def crc32c_portable(data, uint32_t value=0):
    """The same without the CPU's instruction, so that tests reach it on every machine."""
    cdef _View view = _View(data)
    with nogil:
        value = crc32c_by_portable(value, view.data, view.size)
    return value


# --- batches ------------------------------------------------------------------------------------------------

cdef struct Header:
    int64_t base_offset
    int32_t batch_length
    int32_t leader_epoch
    int32_t magic
    uint32_t crc
    int32_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t producer_epoch
    int32_t base_sequence
    int32_t record_count


cdef inline void load_header(const uint8_t *data, Header *header) noexcept nogil:
    header.base_offset = big_endian_64(data)
    header.batch_length = big_endian_32(data + 8)
    header.leader_epoch = big_endian_32(data + 12)
    header.magic = data[MAGIC_AT]
    header.crc = <uint32_t>big_endian_32(data + 17)
    header.attributes = big_endian_16(data + ATTRIBUTES_AT)
    header.last_offset_delta = big_endian_32(data + 23)
    header.base_timestamp = big_endian_64(data + 27)
    header.max_timestamp = big_endian_64(data + 35)
    header.producer_id = big_endian_64(data + 43)
    header.producer_epoch = big_endian_16(data + 51)
    header.base_sequence = big_endian_32(data + 53)
    header.record_count = big_endian_32(data + 57)


cdef inline void put(object target, Py_ssize_t index, object value) noexcept:
    Py_INCREF(value)
    PyTuple_SET_ITEM(target, index, value)


cdef object header_tuple(const Header *header):
    cdef object fields = new_named_tuple(BatchHeader, 13)
    put(fields, 0, header.base_offset)
    put(fields, 1, header.batch_length)
    put(fields, 2, header.leader_epoch)
    put(fields, 3, header.magic)
    put(fields, 4, header.crc)
    put(fields, 5, header.attributes)
    put(fields, 6, header.last_offset_delta)
    put(fields, 7, header.base_timestamp)
    put(fields, 8, header.max_timestamp)
    put(fields, 9, header.producer_id)
    put(fields, 10, header.producer_epoch)
    put(fields, 11, header.base_sequence)
    put(fields, 12, header.record_count)
    return fields


cdef object checked_tuple(object header, int64_t max_timestamp, int32_t delta, int64_t null_key_index, bint in_order):
    cdef object fields = new_named_tuple(Checked, 5)
    put(fields, 0, header)
    put(fields, 1, max_timestamp)
    put(fields, 2, delta)
    put(fields, 3, null_key_index)
    put(fields, 4, in_order)
    return fields


cdef inline int read_header_of(const uint8_t *data, Py_ssize_t size, Py_ssize_t position, Header *header) noexcept nogil:
    if position < 0 or position > size or size - position <= MAGIC_AT:
        return SHORT
    cdef int magic = data[position + MAGIC_AT]
    if magic <= 1:
        return LEGACY_MAGIC
    if magic != 2:
        return MAGIC
    if size - position < HEADER_BYTES:
        return SHORT
    load_header(data + position, header)
    return LENGTH if header.batch_length < LENGTH_MIN else 0


cdef inline int header_problem(const Header *header) noexcept nogil:
    if (header.base_offset < 0 or header.last_offset_delta < 0
            or header.last_offset_delta > INT64_MAX - 1 - header.base_offset):
        return OFFSETS
    return COUNT if header.record_count < 0 else 0


cdef inline int producer_problem(const Header *header) noexcept nogil:
    if header.attributes & CONTROL_BIT:
        return CONTROL
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        return COUNT
    return SEQUENCE if header.producer_id >= 0 and header.base_sequence < 0 else 0


def read_header(data, Py_ssize_t position=0):
    cdef _View view = _View(data)
    cdef Header header
    cdef int problem = read_header_of(view.data, view.size, position, &header)
    if problem:
        raise_problem(problem)
    return header_tuple(&header)


cdef int check_framing(
    const uint8_t *data, Py_ssize_t size, Py_ssize_t position, bint strict, Header *header
) noexcept nogil:
    """Everything about a batch that can be said without its records."""
    cdef int problem = read_header_of(data, size, position, header)
    if problem:
        return problem
    if header.batch_length > size - position - LENGTH_PREFIX:
        return SHORT
    if strict and header.base_offset:
        return BASE_OFFSET
    cdef size_t covered = LENGTH_PREFIX + header.batch_length - ATTRIBUTES_AT
    if crc32c_of(0, data + position + ATTRIBUTES_AT, covered) != header.crc:
        return CRC
    problem = producer_problem(header) if strict else 0
    if not problem:
        problem = header_problem(header)
    if not problem and header.attributes & COMPRESSION_MASK > ZSTD:
        problem = CODEC
    return problem


def check_batch(data, Py_ssize_t position, bint strict, bint deep):
    cdef _View view = _View(data)
    cdef Header header
    cdef Walk walk
    cdef int problem
    walk.index = -1
    walk.offset_of_max = -1
    with nogil:
        problem = check_framing(view.data, view.size, position, strict, &header)
        if not problem and deep and not header.attributes & COMPRESSION_MASK:
            problem = check_walk(
                view.data + position + HEADER_BYTES, header.batch_length - LENGTH_MIN, &header, strict, &walk
            )
    if problem:
        raise_problem(problem, walk.index)
    if walk.offset_of_max < 0:
        return checked_tuple(header_tuple(&header), header.max_timestamp, header.last_offset_delta, -1, True)
    return checked_tuple(
        header_tuple(&header), walk.max_timestamp, walk.offset_of_max, walk.null_key_index, walk.is_in_order
    )


def check_records(records, header, bint strict):
    cdef _View view = _View(records)
    cdef Header fields
    cdef Walk walk
    cdef int problem
    fields.record_count = header.record_count
    fields.last_offset_delta = header.last_offset_delta
    fields.base_timestamp = header.base_timestamp
    fields.max_timestamp = header.max_timestamp
    fields.attributes = header.attributes
    with nogil:
        problem = check_walk(view.data, view.size, &fields, strict, &walk)
    if problem:
        raise_problem(problem, walk.index)
    if walk.offset_of_max < 0:
        return checked_tuple(header, fields.max_timestamp, fields.last_offset_delta, -1, True)
    return checked_tuple(header, walk.max_timestamp, walk.offset_of_max, walk.null_key_index, walk.is_in_order)


cdef int scan_one(const uint8_t *data, Py_ssize_t remaining, bint check_crc, Header *header, bint *cut) noexcept nogil:
    """Whether a whole, sound batch stands at `data`; `cut` if more bytes are needed to tell."""
    cut[0] = remaining < LENGTH_PREFIX
    if cut[0]:
        return 0
    cdef int32_t length = big_endian_32(data + 8)
    if length < LEGACY_LENGTH_MIN:
        return LENGTH
    cut[0] = remaining <= MAGIC_AT
    if cut[0]:
        return 0
    cdef int magic = data[MAGIC_AT]
    if magic <= 1:
        return LEGACY_MAGIC
    if magic != 2:
        return MAGIC
    if length < LENGTH_MIN:
        return LENGTH
    cut[0] = length > remaining - LENGTH_PREFIX
    if cut[0]:
        return 0
    load_header(data, header)
    header.batch_length = length
    cdef int problem = header_problem(header)
    if problem:
        return problem
    if check_crc and crc32c_of(0, data + ATTRIBUTES_AT, LENGTH_PREFIX + length - ATTRIBUTES_AT) != header.crc:
        return CRC
    return 0


cdef Py_ssize_t scan_some(
    const uint8_t *data,
    Py_ssize_t *position,
    Py_ssize_t end,
    bint check_crc,
    Header *found,
    Py_ssize_t count_max,
    int *problem,
    bint *cut,
) noexcept nogil:
    """The headers of the next batches, and how many; `position` is behind them then."""
    cdef Py_ssize_t count = 0
    while position[0] < end and count < count_max:
        problem[0] = scan_one(data + position[0], end - position[0], check_crc, &found[count], cut)
        if problem[0] or cut[0]:
            break
        position[0] += LENGTH_PREFIX + found[count].batch_length
        count += 1
    return count


def scan(data, Py_ssize_t position, Py_ssize_t end, bint check_crc, Py_ssize_t batches_max):
    cdef _View view = _View(data)
    cdef list headers = []
    # Headers are found without the GIL, a chunk at a time, and become objects with it.
    cdef Header found[SCAN_CHUNK]
    cdef Py_ssize_t count, index, left = batches_max
    cdef int problem = 0
    cdef bint cut = False
    if not 0 <= position <= end <= view.size:
        raise_problem(SHORT)
    while position < end and left > 0 and not cut and not problem:
        with nogil:
            count = scan_some(
                view.data, &position, end, check_crc, found, min(left, SCAN_CHUNK), &problem, &cut
            )
        for index in range(count):
            headers.append(header_tuple(&found[index]))
        left -= count
    if problem:
        ended = ScanEnd.LEGACY if problem == LEGACY_MAGIC else ScanEnd.BAD
        return Scan(headers, position, ended, Problem._value2member_map_[problem].text)
    if cut:
        return Scan(headers, position, ScanEnd.CUT, None)
    return Scan(headers, position, ScanEnd.END if position == end else ScanEnd.MORE, None)


# --- records ------------------------------------------------------------------------------------------------

# What a walk over records has seen, and where it failed.
cdef struct Walk:
    int64_t index
    int64_t max_timestamp
    int64_t null_key_index
    int32_t offset_of_max
    bint is_in_order


cdef inline int offset_problem(const RawRecord *record, int64_t base_offset) noexcept nogil:
    if base_offset < 0 or record.offset_delta < 0 or record.offset_delta > INT64_MAX - 1 - base_offset:
        return OFFSET_DELTA
    return 0


cdef int check_walk(
    const uint8_t *section, Py_ssize_t size, const Header *header, bint strict, Walk *walk
) noexcept nogil:
    cdef const uint8_t *at = section
    cdef const uint8_t *end = section + size
    cdef RawRecord record
    cdef int64_t index, timestamp, max_timestamp = INT64_MIN, null_key_index = -1
    cdef int32_t count = header.record_count, previous = -1, last = header.last_offset_delta, offset_of_max = -1
    cdef int64_t base_timestamp = header.base_timestamp
    cdef bint is_append_time = header.attributes & LOG_APPEND_TIME_BIT
    cdef bint is_in_order = True
    cdef int problem
    walk.index = -1
    walk.offset_of_max = -1
    walk.is_in_order = True
    if count < 0 or count > size // RECORD_BYTES_MIN:
        return COUNT
    for index in range(count):
        problem = read_record(at, end, &record)
        if problem:
            walk.index = index
            return problem
        if record.offset_delta != index:
            is_in_order = False
        if not strict and (record.offset_delta <= previous or record.offset_delta > last):
            walk.index = index
            return OFFSET_DELTA
        previous = record.offset_delta
        if add_overflows(base_timestamp, record.timestamp_delta, &timestamp):
            walk.index = index
            return TIMESTAMP
        if is_append_time:
            timestamp = header.max_timestamp
        if timestamp > max_timestamp or offset_of_max < 0:
            max_timestamp = timestamp
            offset_of_max = record.offset_delta
        if record.key == NULL and null_key_index < 0:
            null_key_index = index
        at = record.end
    if at != end:
        return TRAILING
    walk.max_timestamp = max_timestamp
    walk.offset_of_max = offset_of_max
    walk.null_key_index = null_key_index
    walk.is_in_order = is_in_order
    return 0


def refused_records(
    records, header, bint needs_keys, int64_t timestamp_min, int64_t timestamp_max, Py_ssize_t records_max
):
    cdef _View view = _View(records)
    cdef const uint8_t *at = view.data
    cdef const uint8_t *end = view.data + view.size
    cdef RawRecord record
    cdef int64_t index, timestamp, count = header.record_count, base_timestamp = header.base_timestamp
    cdef int64_t append_time = header.max_timestamp
    cdef bint is_append_time = header.attributes & LOG_APPEND_TIME_BIT, lacks_key
    cdef list refused = []
    cdef int problem
    if count < 0 or count > view.size // RECORD_BYTES_MIN:
        raise_problem(COUNT)
    for index in range(count):
        problem = read_record(at, end, &record)
        if problem:
            raise_problem(problem, index)
        if add_overflows(base_timestamp, record.timestamp_delta, &timestamp):
            raise_problem(TIMESTAMP, index)
        if is_append_time:
            timestamp = append_time
        lacks_key = needs_keys and record.key == NULL
        if (lacks_key or (timestamp != -1 and (timestamp < timestamp_min or timestamp > timestamp_max))) and (
            len(refused) < records_max
        ):
            refused.append(RefusedRecord(index, timestamp, not lacks_key))
        at = record.end
    if at != end:
        raise_problem(TRAILING)
    return refused


cdef tuple decode_headers(const uint8_t *at, const uint8_t *end, int32_t count):
    """The headers of a record that was read; checked again, for the bytes may not be ours alone."""
    cdef RawHeader header
    cdef list headers = []
    cdef int problem
    for _ in range(count):
        problem = read_record_header(&at, end, &header)
        if problem:
            raise_problem(problem)
        key = PyUnicode_DecodeUTF8(<const char *>header.key, header.key_size, "surrogateescape")
        headers.append((key, owned(header.value, header.value_size)))
    return tuple(headers)


cdef inline object owned(const uint8_t *data, int32_t size):
    return None if data == NULL else PyBytes_FromStringAndSize(<const char *>data, size)


cdef inline void set_item(list target, Py_ssize_t index, object value) noexcept:
    Py_INCREF(value)
    PyList_SET_ITEM(target, index, value)


def decode_records(records, int32_t record_count, int64_t base_offset, int64_t base_timestamp, append_time):
    cdef _View view = _View(records)
    cdef const uint8_t *at = view.data
    cdef const uint8_t *end = at + view.size
    cdef RawRecord record
    cdef int64_t index, timestamp, first = 0, shared_timestamp = 0
    cdef int problem
    cdef bint has_gaps = False, is_append_time = append_time is not None
    if record_count < 0 or record_count > view.size // RECORD_BYTES_MIN:
        raise_problem(COUNT)
    # On an exception this list dies with places still unset, which the list type allows.
    cdef list values = PyList_New(record_count)
    # These are mostly the same all over, so they are filled at once and mended where a record differs.
    cdef list keys = [None] * record_count
    cdef list headers = [()] * record_count
    cdef list timestamps = [append_time] * record_count
    cdef list offsets = []
    for index in range(record_count):
        problem = read_record(at, end, &record)
        if not problem and add_overflows(base_timestamp, record.timestamp_delta, &timestamp):
            problem = TIMESTAMP
        if not problem:
            problem = offset_problem(&record, base_offset)
        if problem:
            raise_problem(problem, index)
        if not is_append_time:
            if index == 0:
                shared_timestamp = timestamp
                timestamps = [timestamp] * record_count
            elif timestamp != shared_timestamp:
                timestamps[index] = timestamp
        if record.key != NULL:
            keys[index] = owned(record.key, record.key_size)
        set_item(values, index, owned(record.value, record.value_size))
        if record.header_count:
            headers[index] = decode_headers(record.headers, record.end, record.header_count)
        if index == 0:
            first = record.offset_delta
        elif not has_gaps and record.offset_delta != first + index:
            has_gaps = True
            offsets = list(range(base_offset + first, base_offset + first + index))
        if has_gaps:
            offsets.append(base_offset + record.offset_delta)
        at = record.end
    if at != end:
        raise_problem(TRAILING)
    if not has_gaps:
        first = base_offset + first if record_count else 0
        return Columns(range(first, first + record_count), timestamps, keys, values, headers)
    return Columns(offsets, timestamps, keys, values, headers)


cdef class _Section:
    """A bytearray that is written from the front and grows as needed."""

    cdef bytearray out
    cdef uint8_t *at
    cdef uint8_t *end

    def __cinit__(self, Py_ssize_t prefix_bytes, Py_ssize_t expected_bytes):
        self.out = PyByteArray_FromStringAndSize(NULL, prefix_bytes + expected_bytes)
        self.at = <uint8_t *>PyByteArray_AS_STRING(self.out)
        self.end = self.at + prefix_bytes + expected_bytes
        memset(self.at, 0, prefix_bytes)
        self.at += prefix_bytes

    cdef int grow(self, Py_ssize_t needed) except -1:
        cdef uint8_t *start = <uint8_t *>PyByteArray_AS_STRING(self.out)
        cdef Py_ssize_t used = self.at - start
        cdef Py_ssize_t size = used + needed + (used >> 1)
        PyByteArray_Resize(self.out, size)
        start = <uint8_t *>PyByteArray_AS_STRING(self.out)
        self.at = start + used
        self.end = start + size
        return 0

    cdef bytearray finish(self):
        PyByteArray_Resize(self.out, self.at - <uint8_t *>PyByteArray_AS_STRING(self.out))
        return self.out


cdef inline object as_bytes(object value):
    """A bytes object for anything bytes-like; a bytes object itself is the fast way in."""
    return value if PyBytes_CheckExact(value) else bytes(memoryview(value))


cdef list as_list(object column, Py_ssize_t count):
    """A list of our own length, so that its items may be taken without further checks."""
    cdef list items = list(column) if type(column) is not list else column
    if len(items) != count:
        raise ValueError(f"columns of different lengths: {len(items)} beside {count} values")
    return items


cdef bytes encode_headers(record_headers):
    """The header count and the headers of a record."""
    cdef bytearray out = bytearray()
    cdef uint8_t number[VARINT_BYTES_MAX]
    cdef bytes key_bytes
    out += number[:write_varint(number, len(record_headers)) - number]
    for key, value in record_headers:
        key_bytes = key.encode("utf-8", "surrogateescape") if isinstance(key, str) else as_bytes(key)
        out += number[:write_varint(number, len(key_bytes)) - number]
        out += key_bytes
        if value is None:
            out.append(1)
        else:
            value = as_bytes(value)
            out += number[:write_varint(number, len(value)) - number]
            out += value
    return bytes(out)


def encode_records(keys, values, timestamps, headers, offset_deltas, base_timestamp, Py_ssize_t prefix_bytes):
    cdef int64_t base = as_timestamp(base_timestamp, 0)
    cdef Py_ssize_t count = len(values)
    cdef list value_list = as_list(values, count)
    cdef list key_list = None if keys is None else as_list(keys, count)
    cdef list header_list = None if headers is None else as_list(headers, count)
    cdef list delta_list = None if offset_deltas is None else as_list(offset_deltas, count)
    cdef list timestamp_list = None if isinstance(timestamps, int) else as_list(timestamps, count)
    cdef int64_t timestamp_delta = 0, offset_delta, body, index
    cdef int64_t key_size = 0, value_size = 0, headers_size = 1, first_size = 0
    cdef const uint8_t *key_data = NULL
    cdef const uint8_t *value_data = NULL
    cdef const uint8_t *headers_data = b"\x00"
    cdef object key = None, value = None, header_bytes = None
    cdef uint8_t *at
    if timestamp_list is None and subtract_overflows(as_timestamp(timestamps, 0), base, &timestamp_delta):
        raise_problem(TIMESTAMP, 0)
    if count and PyBytes_CheckExact(value_list[0]):
        first_size = PyBytes_GET_SIZE(value_list[0])
    # Records of one batch are mostly alike: room for this many of the first's size, more when it proves too little.
    cdef _Section out = _Section(prefix_bytes, min(count * (first_size + 16), INT32_MAX))
    for index in range(count):
        if timestamp_list is not None and subtract_overflows(
            as_timestamp(timestamp_list[index], index), base, &timestamp_delta
        ):
            raise_problem(TIMESTAMP, index)
        offset_delta = index if delta_list is None else as_offset_delta(delta_list[index], index)
        if key_list is not None:
            key = key_list[index]
            if key is None:
                key_data = NULL
            else:
                key = as_bytes(key)
                key_data = <const uint8_t *>PyBytes_AS_STRING(key)
                key_size = PyBytes_GET_SIZE(key)
        value = value_list[index]
        if value is None:
            value_data = NULL
            value_size = 0
        else:
            value = as_bytes(value)
            value_data = <const uint8_t *>PyBytes_AS_STRING(value)
            value_size = PyBytes_GET_SIZE(value)
        if header_list is not None:
            header_bytes = encode_headers(header_list[index])
            headers_data = <const uint8_t *>PyBytes_AS_STRING(header_bytes)
            headers_size = PyBytes_GET_SIZE(header_bytes)
        body = (
            1 + varint_size(timestamp_delta) + varint_size(offset_delta)
            + nullable_size(key_data, key_size) + nullable_size(value_data, value_size) + headers_size
        )
        if body > INT32_MAX:
            raise_problem(TOO_LARGE, index)
        if body + VARINT_BYTES_MAX > out.end - out.at:
            out.grow(body + VARINT_BYTES_MAX)
        at = write_varint(out.at, body)
        at[0] = 0  # attributes
        at = write_varint(at + 1, timestamp_delta)
        at = write_varint(at, offset_delta)
        at = write_nullable(at, key_data, key_size)
        at = write_nullable(at, value_data, value_size)
        memcpy(at, headers_data, headers_size)
        out.at = at + headers_size
        if out.at - <uint8_t *>PyByteArray_AS_STRING(out.out) > INT32_MAX:
            raise_problem(TOO_LARGE, index)
    return out.finish()


cdef int64_t as_timestamp(object value, int64_t index) except? -2:
    try:
        return value
    except OverflowError:
        raise_problem(TIMESTAMP, index)


cdef int64_t as_offset_delta(object value, int64_t index) except? -2:
    cdef int64_t delta = -1
    try:
        delta = value
    except OverflowError:
        pass
    if not 0 <= delta <= INT32_MAX:
        raise_problem(OFFSET_DELTA, index)
    return delta


def first_at_or_after(
    records, int32_t record_count, int64_t base_offset, int64_t base_timestamp, append_time, int64_t timestamp,
    int64_t start_offset,
):
    cdef _View view = _View(records)
    cdef const uint8_t *at = view.data
    cdef const uint8_t *end = at + view.size
    cdef RawRecord record
    cdef bint is_append_time = append_time is not None
    cdef int64_t index, offset = 0, found = 0, everyones = append_time if is_append_time else 0
    cdef int problem = 0
    if record_count < 0 or record_count > view.size // RECORD_BYTES_MIN:
        raise_problem(COUNT)
    with nogil:
        for index in range(record_count):
            problem = read_record(at, end, &record)
            if not problem:
                problem = offset_problem(&record, base_offset)
            if not problem and add_overflows(base_timestamp, record.timestamp_delta, &found):
                problem = TIMESTAMP
            if problem:
                break
            at = record.end
            offset = base_offset + record.offset_delta
            if is_append_time:
                found = everyones
            if found >= timestamp and offset >= start_offset:
                break
        else:
            index = -1
            if at != end:
                problem = TRAILING
    if problem:
        raise_problem(problem, index)
    return None if index < 0 else (offset, found)


include "_native_arrow.pxi"
include "_native_rows.pxi"
include "_native_compaction.pxi"
include "_native_plain.pxi"
include "_native_named.pxi"
include "_native_writer.pxi"
include "_native_avro.pxi"

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The record core, compiled: `reference.py` says what each function means, the same tests run on both.

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
from libc.string cimport memcpy, memset

import secrets

from ottla.records.layout import (
    BatchHeader,
    BinaryColumn,
    Checked,
    Columns,
    DecodedColumns,
    EncodedColumns,
    HeadersColumn,
    Problem,
    Retained,
    Scan,
    ScanEnd,
    refusal,
)

cdef extern from "_crc32c.h" nogil:
    void crc32c_prepare()
    uint32_t crc32c_of(uint32_t value, const uint8_t *data, size_t size)
    uint32_t crc32c_by_portable "crc32c_portable"(uint32_t value, const uint8_t *data, size_t size)
    int64_t big_endian_64(const uint8_t *data)
    int32_t big_endian_32(const uint8_t *data)
    int16_t big_endian_16(const uint8_t *data)

cdef extern from *:
    """
    /* An empty instance of a NamedTuple class, as tuple.__new__ makes it. */
    static inline PyObject *new_named_tuple(PyObject *type, Py_ssize_t size) {
        return ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, size);
    }
    static inline uint64_t high_of_product(uint64_t a, uint64_t b) {
        return (uint64_t)((unsigned __int128)a * b >> 64);
    }
    static inline int add_overflows(int64_t a, int64_t b, int64_t *sum) { return __builtin_add_overflow(a, b, sum); }
    static inline int subtract_overflows(int64_t a, int64_t b, int64_t *out) { return __builtin_sub_overflow(a, b, out); }
    static inline uint64_t rotate(uint64_t word, int bits) { return word << bits | word >> (64 - bits); }
    static inline uint64_t little_endian_64(const uint8_t *bytes) {
        uint64_t word = load_64(bytes);
        return OTTLA_BIG_ENDIAN ? __builtin_bswap64(word) : word;
    }
    """
    object new_named_tuple(object type, Py_ssize_t size)
    uint64_t high_of_product(uint64_t a, uint64_t b) nogil
    bint add_overflows(int64_t a, int64_t b, int64_t *sum) nogil
    bint subtract_overflows(int64_t a, int64_t b, int64_t *out) nogil
    uint64_t rotate(uint64_t word, int bits) nogil
    uint64_t little_endian_64(const uint8_t *data) nogil

crc32c_prepare()

# The numbers of `layout.Problem`; 0 is none.
cdef enum:
    SHORT = 1
    LENGTH = 2
    LEGACY_MAGIC = 3
    MAGIC = 4
    CRC = 5
    CODEC = 6
    ATTRIBUTES = 7
    OFFSETS = 8
    COUNT = 9
    CONTROL = 10
    SEQUENCE = 11
    VARINT = 20
    RECORD_LENGTH = 21
    KEY_LENGTH = 22
    VALUE_LENGTH = 23
    HEADER_COUNT = 24
    HEADER_KEY = 25
    HEADER_VALUE = 26
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
    LOG_APPEND_TIME_BIT = 0x08
    CONTROL_BIT = 0x20
    KNOWN_ATTRIBUTES = 0x7F
    RECORD_BYTES_MIN = 7
    RECORD_HEADER_BYTES_MIN = 2
    VARINT_BYTES_MAX = 5
    # Beside key, value and headers: length, attributes, timestamp delta, offset delta, two lengths, header count.
    RECORD_OVERHEAD_MAX = 5 + 1 + 10 + 5 + 5 + 5 + 5
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


cdef inline void put(object target, Py_ssize_t index, object value):
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


cdef object checked_tuple(object header, int64_t max_timestamp, int32_t delta, int64_t null_key_index):
    cdef object fields = new_named_tuple(Checked, 4)
    put(fields, 0, header)
    put(fields, 1, max_timestamp)
    put(fields, 2, delta)
    put(fields, 3, null_key_index)
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
    if header.attributes & ~KNOWN_ATTRIBUTES:
        return ATTRIBUTES
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
    cdef size_t covered = LENGTH_PREFIX + header.batch_length - ATTRIBUTES_AT
    if crc32c_of(0, data + position + ATTRIBUTES_AT, covered) != header.crc:
        return CRC
    problem = header_problem(header)
    if not problem and header.attributes & COMPRESSION_MASK > ZSTD:
        problem = CODEC
    if not problem and strict:
        problem = producer_problem(header)
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
        return checked_tuple(header_tuple(&header), header.max_timestamp, header.last_offset_delta, -1)
    return checked_tuple(header_tuple(&header), walk.max_timestamp, walk.offset_of_max, walk.null_key_index)


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
        return checked_tuple(header, fields.max_timestamp, fields.last_offset_delta, -1)
    return checked_tuple(header, walk.max_timestamp, walk.offset_of_max, walk.null_key_index)


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


def scan(data, Py_ssize_t position, Py_ssize_t end, bint check_crc, Py_ssize_t batches_max):
    cdef _View view = _View(data)
    cdef list headers = []
    # Headers are found without the GIL, a chunk at a time, and become objects with it.
    cdef Header found[SCAN_CHUNK]
    cdef Py_ssize_t count, index, wanted, left = batches_max
    cdef int problem = 0
    cdef bint cut = False
    if not 0 <= position <= end <= view.size:
        raise_problem(SHORT)
    while position < end and left > 0 and not cut and not problem:
        wanted = min(left, SCAN_CHUNK)
        count = 0
        with nogil:
            while position < end and count < wanted:
                problem = scan_one(view.data + position, end - position, check_crc, &found[count], &cut)
                if problem or cut:
                    break
                position += LENGTH_PREFIX + found[count].batch_length
                count += 1
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

# A record as it lies in its section. A null key or value has no pointer.
cdef struct RawRecord:
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


# What a walk over records has seen, and where it failed.
cdef struct Walk:
    int64_t index
    int64_t max_timestamp
    int64_t null_key_index
    int32_t offset_of_max


cdef inline const uint8_t *read_long_varint(const uint8_t *at, const uint8_t *end, int bits, uint64_t *out) noexcept nogil:
    """The position behind the number, NULL if it runs past `end` or past its width."""
    cdef uint64_t result = 0
    cdef uint64_t byte
    cdef int shift = 0
    while True:
        if at >= end or shift >= bits:
            return NULL
        byte = at[0]
        at += 1
        # The last byte of a full-width number has room for few bits.
        if shift + 7 > bits and (byte & 0x7F) >> (bits - shift):
            return NULL
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            out[0] = result
            return at
        shift += 7


cdef inline const uint8_t *read_varint(const uint8_t *at, const uint8_t *end, int32_t *out) noexcept nogil:
    cdef uint64_t raw
    # Nearly all numbers of a record have one byte, its length often two.
    if at < end and at[0] < 0x80:
        raw = at[0]
        at += 1
    elif end - at >= 2 and at[1] < 0x80:
        raw = (at[0] & 0x7F) | <uint64_t>at[1] << 7
        at += 2
    else:
        at = read_long_varint(at, end, 32, &raw)
        if at == NULL:
            return NULL
    out[0] = <int32_t>((raw >> 1) ^ (~(raw & 1) + 1))
    return at


cdef inline const uint8_t *read_varlong(const uint8_t *at, const uint8_t *end, int64_t *out) noexcept nogil:
    cdef uint64_t raw
    if at < end and at[0] < 0x80:
        raw = at[0]
        at += 1
    else:
        at = read_long_varint(at, end, 64, &raw)
        if at == NULL:
            return NULL
    out[0] = <int64_t>((raw >> 1) ^ (~(raw & 1) + 1))
    return at


cdef inline int read_nullable(
    const uint8_t **at, const uint8_t *end, const uint8_t **data, int32_t *size, int problem
) noexcept nogil:
    """Bytes behind their length; no pointer and size 0 for a length of -1."""
    cdef int32_t length = 0
    cdef const uint8_t *behind = read_varint(at[0], end, &length)
    if behind == NULL:
        return VARINT
    if length < 0:
        data[0] = NULL
        size[0] = 0
        at[0] = behind
        return 0 if length == -1 else problem
    if length > end - behind:
        return problem
    data[0] = behind
    size[0] = length
    at[0] = behind + length
    return 0


cdef inline int read_record_header(
    const uint8_t **at, const uint8_t *end,
    const uint8_t **key, int32_t *key_size, const uint8_t **value, int32_t *value_size,
) noexcept nogil:
    cdef int problem = read_nullable(at, end, key, key_size, HEADER_KEY)
    if problem:
        return problem
    if key[0] == NULL:
        return HEADER_KEY
    return read_nullable(at, end, value, value_size, HEADER_VALUE)


cdef int skip_headers(const uint8_t *at, const uint8_t *end, int32_t count, const uint8_t **behind) noexcept nogil:
    cdef const uint8_t *unused
    cdef int32_t size
    cdef int problem
    for _ in range(count):
        problem = read_record_header(&at, end, &unused, &size, &unused, &size)
        if problem:
            return problem
    behind[0] = at
    return 0


cdef inline int read_record(const uint8_t *at, const uint8_t *section_end, RawRecord *record) noexcept nogil:
    cdef int32_t length = 0
    cdef int problem
    cdef const uint8_t *end
    cdef const uint8_t *behind_headers = NULL
    record.start = at
    at = read_varint(at, section_end, &length)
    if at == NULL:
        return VARINT
    if length < RECORD_BYTES_MIN - 1 or length > section_end - at:
        return RECORD_LENGTH
    end = at + length
    record.end = end
    record.attributes = at[0]
    at = read_varlong(at + 1, end, &record.timestamp_delta)
    if at == NULL:
        return VARINT
    record.after_timestamp = at
    at = read_varint(at, end, &record.offset_delta)
    if at == NULL:
        return VARINT
    problem = read_nullable(&at, end, &record.key, &record.key_size, KEY_LENGTH)
    if problem:
        return problem
    problem = read_nullable(&at, end, &record.value, &record.value_size, VALUE_LENGTH)
    if problem:
        return problem
    at = read_varint(at, end, &record.header_count)
    if at == NULL:
        return VARINT
    record.headers = at
    if record.header_count:
        if record.header_count < 0 or record.header_count > (end - at) // RECORD_HEADER_BYTES_MIN:
            return HEADER_COUNT
        # A variable of its own: one whose address leaves this function could not stay in a register.
        problem = skip_headers(at, end, record.header_count, &behind_headers)
        if problem:
            return problem
        at = behind_headers
    return 0 if at == end else RECORD_LENGTH


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
    cdef int problem
    walk.index = -1
    walk.offset_of_max = -1
    if count < 0 or count > size // RECORD_BYTES_MIN:
        return COUNT
    for index in range(count):
        problem = read_record(at, end, &record)
        if problem:
            walk.index = index
            return problem
        if strict:
            if record.offset_delta != index:
                walk.index = index
                return OFFSET_DELTA
        elif record.offset_delta <= previous or record.offset_delta > last:
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
    return 0


cdef tuple decode_headers(const uint8_t *at, const uint8_t *end, int32_t count):
    """The headers of a record that was read; checked again, for the bytes may not be ours alone."""
    cdef const uint8_t *key
    cdef const uint8_t *value
    cdef int32_t key_size, value_size
    cdef list headers = []
    cdef int problem
    for _ in range(count):
        problem = read_record_header(&at, end, &key, &key_size, &value, &value_size)
        if problem:
            raise_problem(problem)
        headers.append((
            PyUnicode_DecodeUTF8(<const char *>key, key_size, "surrogateescape"),
            None if value == NULL else PyBytes_FromStringAndSize(<const char *>value, value_size),
        ))
    return tuple(headers)


cdef inline object owned(const uint8_t *data, int32_t size):
    return None if data == NULL else PyBytes_FromStringAndSize(<const char *>data, size)


cdef inline void set_item(list target, Py_ssize_t index, object value):
    Py_INCREF(value)
    PyList_SET_ITEM(target, index, value)


def decode_records(records, int32_t record_count, int64_t base_offset, int64_t base_timestamp, append_time):
    cdef _View view = _View(records)
    cdef const uint8_t *at = view.data
    cdef const uint8_t *end = at + view.size
    cdef RawRecord record
    cdef int64_t index, timestamp, first = 0, previous_timestamp = 0
    cdef int problem
    cdef bint has_gaps = False, is_append_time = append_time is not None
    cdef object timestamp_object = append_time
    if record_count < 0 or record_count > view.size // RECORD_BYTES_MIN:
        raise_problem(COUNT)
    # On an exception the lists die with places still unset, which the list type allows.
    cdef list timestamps = PyList_New(record_count)
    cdef list keys = PyList_New(record_count)
    cdef list values = PyList_New(record_count)
    cdef list headers = PyList_New(record_count)
    cdef list offsets = []
    cdef tuple no_headers = ()
    for index in range(record_count):
        problem = read_record(at, end, &record)
        if not problem and add_overflows(base_timestamp, record.timestamp_delta, &timestamp):
            problem = TIMESTAMP
        if not problem:
            problem = offset_problem(&record, base_offset)
        if problem:
            raise_problem(problem, index)
        if not is_append_time and (index == 0 or timestamp != previous_timestamp):
            # Records written together share their time: they share the object too.
            timestamp_object = timestamp
            previous_timestamp = timestamp
        set_item(timestamps, index, timestamp_object)
        set_item(keys, index, owned(record.key, record.key_size))
        set_item(values, index, owned(record.value, record.value_size))
        if record.header_count:
            set_item(headers, index, decode_headers(record.headers, record.end, record.header_count))
        else:
            set_item(headers, index, no_headers)
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


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int varint_size(uint64_t raw) noexcept nogil:
    cdef int size = 1
    while raw > 0x7F:
        raw >>= 7
        size += 1
    return size


cdef inline uint8_t *write_raw_varint(uint8_t *at, uint64_t raw) noexcept nogil:
    while raw > 0x7F:
        at[0] = <uint8_t>(raw | 0x80)
        raw >>= 7
        at += 1
    at[0] = <uint8_t>raw
    return at + 1


cdef inline uint8_t *write_varint(uint8_t *at, int64_t value) noexcept nogil:
    return write_raw_varint(at, zigzag(value))


cdef inline uint8_t *write_nullable(uint8_t *at, const uint8_t *data, int64_t size) noexcept nogil:
    if data == NULL:
        at[0] = 1  # a length of -1
        return at + 1
    at = write_varint(at, size)
    memcpy(at, data, size)
    return at + size


cdef inline int64_t nullable_size(const uint8_t *data, int64_t size) noexcept nogil:
    return 1 if data == NULL else varint_size(zigzag(size)) + size


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


def encode_records(keys, values, timestamps, headers, offset_deltas, int64_t base_timestamp, Py_ssize_t prefix_bytes):
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
    if timestamp_list is None and subtract_overflows(as_timestamp(timestamps, 0), base_timestamp, &timestamp_delta):
        raise_problem(TIMESTAMP, 0)
    if count and PyBytes_CheckExact(value_list[0]):
        first_size = PyBytes_GET_SIZE(value_list[0])
    # Records of one batch are mostly alike: room for this many of the first's size, more when it proves too little.
    cdef _Section out = _Section(prefix_bytes, min(count * (first_size + 16), INT32_MAX))
    for index in range(count):
        if timestamp_list is not None and subtract_overflows(
            as_timestamp(timestamp_list[index], index), base_timestamp, &timestamp_delta
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
            1 + varint_size(zigzag(timestamp_delta)) + varint_size(zigzag(offset_delta))
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


# --- Arrow columns ------------------------------------------------------------------------------------------

cdef enum:
    # Not a `Problem`: the caller's columns are wrong, not a peer's bytes.
    MISFIT = -1

cdef uint8_t nothing = 0  # stands for the data of an empty buffer, whose pointer may be NULL


cdef struct Column:
    const uint8_t *offsets
    const uint8_t *data
    const uint8_t *validity
    Py_ssize_t data_size
    Py_ssize_t first_bit


cdef class _ColumnViews:
    """Holds the buffers of a `BinaryColumn` or of the lists of a `HeadersColumn`, checked to cover its rows."""

    cdef Column column
    cdef _View offsets
    cdef _View data
    cdef _View validity

    def __cinit__(self, offsets, data, validity, Py_ssize_t first_bit, Py_ssize_t row_count):
        self.offsets = _View(offsets)
        self.column.offsets = self.offsets.data
        if self.offsets.size // 4 < row_count + 1:
            raise ValueError("the offsets of an Arrow column are fewer than its rows")
        if data is not None:
            self.data = _View(data)
            self.column.data = self.data.data if self.data.size else &nothing
            self.column.data_size = self.data.size
        if validity is not None:
            self.validity = _View(validity)
            if first_bit < 0 or self.validity.size * 8 < first_bit + row_count:
                raise ValueError("the validity bits of an Arrow column are fewer than its rows")
            self.column.validity = self.validity.data
            self.column.first_bit = first_bit


cdef inline int32_t column_offset(const Column *column, Py_ssize_t row) noexcept nogil:
    cdef int32_t offset
    memcpy(&offset, column.offsets + 4 * row, 4)
    return offset


cdef inline bint is_null(const Column *column, Py_ssize_t row) noexcept nogil:
    cdef Py_ssize_t bit = column.first_bit + row
    return column.validity != NULL and not column.validity[bit >> 3] >> (bit & 7) & 1


cdef inline int read_cell(const Column *column, Py_ssize_t row, const uint8_t **data, int64_t *size) noexcept nogil:
    cdef int32_t start = column_offset(column, row), end = column_offset(column, row + 1)
    if start < 0 or start > end or end > column.data_size:
        return MISFIT
    data[0] = NULL if is_null(column, row) else column.data + start
    size[0] = end - start
    return 0


cdef int measure_headers(
    const Column *lists, const Column *keys, const Column *values, Py_ssize_t row, int64_t *size, int32_t *count
) noexcept nogil:
    """How many headers a row has, and their size with their count in front."""
    cdef int32_t at, first = column_offset(lists, row), end = column_offset(lists, row + 1)
    cdef const uint8_t *data
    cdef int64_t cell_size
    if first < 0 or first > end or end > lists.data_size:
        return MISFIT
    if is_null(lists, row):
        end = first
    count[0] = end - first
    size[0] = varint_size(zigzag(count[0]))
    for at in range(first, end):
        if read_cell(keys, at, &data, &cell_size):
            return MISFIT
        if data == NULL:
            return HEADER_KEY
        size[0] += nullable_size(data, cell_size)
        if read_cell(values, at, &data, &cell_size):
            return MISFIT
        size[0] += nullable_size(data, cell_size)
    return 0


cdef int write_headers(
    uint8_t **to, const uint8_t *room_end, const Column *lists, const Column *keys, const Column *values,
    Py_ssize_t row, int32_t count,
) noexcept nogil:
    cdef int32_t at, first = column_offset(lists, row)
    cdef const uint8_t *key
    cdef const uint8_t *value
    cdef int64_t key_size, value_size
    to[0] = write_varint(to[0], count)
    for at in range(first, first + count):
        if read_cell(keys, at, &key, &key_size) or key == NULL or read_cell(values, at, &value, &value_size):
            return MISFIT
        # The columns may have changed since they were measured: never beyond the room.
        if nullable_size(key, key_size) + nullable_size(value, value_size) > room_end - to[0]:
            return MISFIT
        to[0] = write_nullable(to[0], key, key_size)
        to[0] = write_nullable(to[0], value, value_size)
    return 0


cdef int64_t column_bytes(const Column *column, Py_ssize_t row_count) noexcept nogil:
    """What the rows of a column take, if its offsets are in order; `read_cell` finds out whether they are."""
    cdef int64_t size = <int64_t>column_offset(column, row_count) - column_offset(column, 0)
    return min(max(size, 0), column.data_size)


def encode_columns(Py_ssize_t row_count, keys, values, timestamps, headers, Py_ssize_t prefix_bytes):
    if row_count < 1:
        raise ValueError("a batch is built of at least one record")
    cdef _ColumnViews value_views = _ColumnViews(values.offsets, values.data, values.validity, values.first_bit, row_count)
    cdef _ColumnViews key_views = None, list_views = None, header_key_views = None, header_value_views = None
    cdef _View timestamp_view = None
    cdef const Column *key_column = NULL
    cdef const Column *value_column = &value_views.column
    cdef const Column *list_column = NULL
    cdef const Column *header_keys = NULL
    cdef const Column *header_values = NULL
    cdef const uint8_t *timestamp_data = NULL
    cdef int64_t timestamp = 0, base_timestamp, max_timestamp
    cdef int64_t bound = column_bytes(value_column, row_count) + row_count * RECORD_OVERHEAD_MAX
    cdef int32_t header_rows
    if isinstance(timestamps, int):
        timestamp = as_timestamp(timestamps, 0)
    else:
        timestamp_view = _View(timestamps)
        if timestamp_view.size // 8 < row_count:
            raise ValueError("there are fewer timestamps than rows")
        timestamp_data = timestamp_view.data
        memcpy(&timestamp, timestamp_data, 8)
    if keys is not None:
        key_views = _ColumnViews(keys.offsets, keys.data, keys.validity, keys.first_bit, row_count)
        key_column = &key_views.column
        bound += column_bytes(key_column, row_count)
    if headers is not None:
        list_views = _ColumnViews(headers.offsets, None, headers.validity, headers.first_bit, row_count)
        header_rows = column_offset(&list_views.column, row_count)
        if header_rows < 0:
            raise ValueError("the offsets of an Arrow column do not fit its data")
        list_views.column.data_size = header_rows
        list_column = &list_views.column
        header_key_views = _ColumnViews(
            headers.keys.offsets, headers.keys.data, headers.keys.validity, headers.keys.first_bit, header_rows)
        header_keys = &header_key_views.column
        header_value_views = _ColumnViews(
            headers.values.offsets, headers.values.data, headers.values.validity, headers.values.first_bit, header_rows)
        header_values = &header_value_views.column
        bound += (
            column_bytes(header_keys, header_rows) + column_bytes(header_values, header_rows)
            + 2 * VARINT_BYTES_MAX * <int64_t>header_rows
        )
    cdef _Section out = _Section(prefix_bytes, min(bound, <int64_t>INT32_MAX))
    cdef uint8_t *at = out.at
    cdef const uint8_t *key = NULL
    cdef const uint8_t *value = NULL
    cdef int64_t row = 0, body, timestamp_delta = 0, key_size = 0, value_size = 0, headers_size = 1
    cdef int32_t header_count = 0
    cdef int problem = 0
    base_timestamp = max_timestamp = timestamp
    with nogil:
        for row in range(row_count):
            if timestamp_data != NULL:
                memcpy(&timestamp, timestamp_data + 8 * row, 8)
                if subtract_overflows(timestamp, base_timestamp, &timestamp_delta):
                    problem = TIMESTAMP
                    break
                max_timestamp = max(max_timestamp, timestamp)
            if key_column != NULL:
                problem = read_cell(key_column, row, &key, &key_size)
                if problem:
                    break
            problem = read_cell(value_column, row, &value, &value_size)
            if problem:
                break
            if list_column != NULL:
                problem = measure_headers(list_column, header_keys, header_values, row, &headers_size, &header_count)
                if problem:
                    break
            body = (
                1 + varint_size(zigzag(timestamp_delta)) + varint_size(zigzag(row))
                + nullable_size(key, key_size) + nullable_size(value, value_size) + headers_size
            )
            if body > INT32_MAX or body + VARINT_BYTES_MAX > out.end - at:
                problem = TOO_LARGE
                break
            at = write_varint(at, body)
            at[0] = 0  # attributes
            at = write_varint(at + 1, timestamp_delta)
            at = write_varint(at, row)
            at = write_nullable(at, key, key_size)
            at = write_nullable(at, value, value_size)
            if list_column == NULL:
                at[0] = 0
                at += 1
            else:
                problem = write_headers(&at, out.end, list_column, header_keys, header_values, row, header_count)
                if problem:
                    break
    if problem == MISFIT:
        raise ValueError("the offsets of an Arrow column do not fit its data")
    if problem:
        raise_problem(problem, row)
    out.at = at
    return EncodedColumns(out.finish(), base_timestamp, max_timestamp)


cdef class _Memory:
    """A buffer over bytes from malloc, which it owns."""

    cdef uint8_t *data
    cdef Py_ssize_t size

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.size, 1, flags)


cdef _Memory allocated(Py_ssize_t size):
    cdef _Memory memory = _Memory()
    memory.data = <uint8_t *>malloc(size + 1)  # never of size 0, for which malloc may answer NULL
    if memory.data == NULL:
        raise MemoryError()
    memory.size = size
    return memory


cdef class _BinaryWriter:
    """A binary column in the making. Its data grow without the GIL."""

    cdef _Memory offsets_memory
    cdef _Memory validity_memory
    cdef _Memory data_memory
    cdef uint8_t *offsets
    cdef uint8_t *validity
    cdef uint8_t *data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef Py_ssize_t row_count
    cdef Py_ssize_t null_count

    def __cinit__(self, Py_ssize_t row_count, Py_ssize_t expected_bytes):
        self.offsets_memory = allocated(4 * (row_count + 1))
        self.offsets = self.offsets_memory.data
        memset(self.offsets, 0, 4)
        self.validity_memory = allocated((row_count + 7) // 8)
        self.validity = self.validity_memory.data
        memset(self.validity, 0, self.validity_memory.size)
        self.data_memory = _Memory()
        if self.reserve(expected_bytes):
            raise MemoryError()

    def __dealloc__(self):
        free(self.data)

    cdef int reserve(self, Py_ssize_t capacity) noexcept nogil:
        cdef void *moved = realloc(self.data, capacity + 1)
        if moved == NULL:
            return MISFIT
        self.data = <uint8_t *>moved
        self.capacity = capacity
        return 0

    cdef inline int add(self, const uint8_t *data, int32_t size) noexcept nogil:
        cdef Py_ssize_t row = self.row_count
        cdef int32_t end
        if data == NULL:
            self.null_count += 1
        else:
            if size > self.capacity - self.size and self.reserve(self.size + size + (self.size >> 1) + 4096):
                return MISFIT
            memcpy(self.data + self.size, data, size)
            self.size += size
            self.validity[row >> 3] |= <uint8_t>(1 << (row & 7))
        end = <int32_t>self.size
        memcpy(self.offsets + 4 * (row + 1), &end, 4)
        self.row_count = row + 1
        return 0

    cdef object finish(self):
        self.reserve(self.size)
        self.data_memory.data = self.data
        self.data_memory.size = self.size
        self.data = NULL
        validity = self.validity_memory if self.null_count else None
        return BinaryColumn(self.offsets_memory, self.data_memory, validity, 0)


def decode_columns(records, int32_t record_count, int64_t base_offset, int64_t base_timestamp, append_time):
    cdef _View view = _View(records)
    cdef const uint8_t *at = view.data
    cdef const uint8_t *end = at + view.size
    cdef RawRecord record
    cdef bint is_append_time = append_time is not None
    cdef int64_t index = 0, timestamp = 0, offset, everyones = append_time if is_append_time else 0
    cdef int problem = 0
    if record_count < 0 or record_count > view.size // RECORD_BYTES_MIN:
        raise_problem(COUNT)
    if view.size > INT32_MAX:  # the offsets of an Arrow column could not say so
        raise_problem(TOO_LARGE)
    cdef _Memory offsets = allocated(8 * <Py_ssize_t>record_count)
    cdef _Memory timestamps = allocated(8 * <Py_ssize_t>record_count)
    cdef _Memory header_ends = allocated(4 * (<Py_ssize_t>record_count + 1))
    # Values are most of a batch, so they get room for all of it, and what they leave is given back.
    cdef _BinaryWriter values = _BinaryWriter(record_count, view.size)
    cdef _BinaryWriter keys = _BinaryWriter(record_count, 0)
    cdef int32_t header_end = 0
    memcpy(header_ends.data, &header_end, 4)
    with nogil:
        for index in range(record_count):
            problem = read_record(at, end, &record)
            if not problem and add_overflows(base_timestamp, record.timestamp_delta, &timestamp):
                problem = TIMESTAMP
            if not problem:
                problem = offset_problem(&record, base_offset)
            if not problem:
                problem = keys.add(record.key, record.key_size)
            if not problem:
                problem = values.add(record.value, record.value_size)
            if problem:
                break
            if is_append_time:
                timestamp = everyones
            offset = base_offset + record.offset_delta
            memcpy(offsets.data + 8 * index, &offset, 8)
            memcpy(timestamps.data + 8 * index, &timestamp, 8)
            header_end += record.header_count
            memcpy(header_ends.data + 4 * (index + 1), &header_end, 4)
            at = record.end
        else:
            index = -1
            if at != end:
                problem = TRAILING
    if problem == MISFIT:
        raise MemoryError()
    if problem:
        raise_problem(problem, index)
    headers = None
    if header_end:
        headers = decode_header_columns(view, record_count, header_ends, header_end)
    return DecodedColumns(record_count, offsets, timestamps, keys.finish(), values.finish(), headers)


cdef object decode_header_columns(_View view, int32_t record_count, _Memory header_ends, int32_t header_count):
    """A second walk, for the batches that have headers: few do, and the first walk stays simple and fast."""
    cdef _BinaryWriter keys = _BinaryWriter(header_count, 0)
    cdef _BinaryWriter values = _BinaryWriter(header_count, 0)
    cdef const uint8_t *at = view.data
    cdef const uint8_t *key
    cdef const uint8_t *value
    cdef int32_t key_size, value_size
    cdef int64_t index = 0
    cdef RawRecord record
    cdef int problem = 0
    with nogil:
        for index in range(record_count):
            problem = read_record(at, view.data + view.size, &record)
            if problem:
                break
            at = record.headers
            for _ in range(record.header_count):
                problem = read_record_header(&at, record.end, &key, &key_size, &value, &value_size)
                # More than at first: the bytes changed under us.
                if not problem and keys.row_count == header_count:
                    problem = HEADER_COUNT
                if not problem:
                    problem = keys.add(key, key_size)
                if not problem:
                    problem = values.add(value, value_size)
                if problem:
                    break
            if problem:
                break
            at = record.end
    if problem == MISFIT:
        raise MemoryError()
    if not problem and keys.row_count != header_count:
        problem = HEADER_COUNT
    if problem:
        raise_problem(problem, index)
    return HeadersColumn(header_ends, keys.finish(), values.finish(), None, 0)


# --- compaction ---------------------------------------------------------------------------------------------

cdef struct Slot:
    uint64_t low
    uint64_t high
    int64_t end  # the key's latest offset + 1, so that a zeroed table is an empty one


cdef inline void sip_round(uint64_t *v0, uint64_t *v1, uint64_t *v2, uint64_t *v3) noexcept nogil:
    v0[0] += v1[0]
    v1[0] = rotate(v1[0], 13) ^ v0[0]
    v0[0] = rotate(v0[0], 32)
    v2[0] += v3[0]
    v3[0] = rotate(v3[0], 16) ^ v2[0]
    v0[0] += v3[0]
    v3[0] = rotate(v3[0], 21) ^ v0[0]
    v2[0] += v1[0]
    v1[0] = rotate(v1[0], 17) ^ v2[0]
    v2[0] = rotate(v2[0], 32)


cdef void siphash_128(
    uint64_t key_low, uint64_t key_high, const uint8_t *data, size_t size, uint64_t *low, uint64_t *high
) noexcept nogil:
    """SipHash-2-4 with a result of 128 bits: a keyed hash, fast on the short strings that keys are."""
    cdef uint64_t v0 = key_low ^ <uint64_t>0x736F6D6570736575
    cdef uint64_t v1 = key_high ^ <uint64_t>0x646F72616E646F6D ^ 0xEE
    cdef uint64_t v2 = key_low ^ <uint64_t>0x6C7967656E657261
    cdef uint64_t v3 = key_high ^ <uint64_t>0x7465646279746573
    cdef uint64_t word
    cdef size_t at = 0, index
    while size - at >= 8:
        word = little_endian_64(data + at)
        v3 ^= word
        sip_round(&v0, &v1, &v2, &v3)
        sip_round(&v0, &v1, &v2, &v3)
        v0 ^= word
        at += 8
    word = <uint64_t>size << 56
    for index in range(size - at):
        word |= <uint64_t>data[at + index] << (8 * index)
    v3 ^= word
    sip_round(&v0, &v1, &v2, &v3)
    sip_round(&v0, &v1, &v2, &v3)
    v0 ^= word
    v2 ^= 0xEE
    for index in range(4):
        sip_round(&v0, &v1, &v2, &v3)
    low[0] = v0 ^ v1 ^ v2 ^ v3
    v1 ^= 0xDD
    for index in range(4):
        sip_round(&v0, &v1, &v2, &v3)
    high[0] = v0 ^ v1 ^ v2 ^ v3


cdef class KeyOffsetMap:
    """The latest offset of each key in bounded memory: an open table of 24-byte slots, at most nine tenths full.

    A slot holds 128 bits of SipHash under a secret of this map, not the key. The width makes an accidental collision
    (which would lose a record) as unlikely as a broken disk; the secret makes one that a producer prepares just as
    unlikely, which an unkeyed hash such as MD5 does not.
    """

    cdef Slot *slots
    cdef uint64_t slot_count
    cdef uint64_t key_low
    cdef uint64_t key_high
    cdef int64_t used
    cdef bint busy
    cdef readonly int64_t capacity
    cdef readonly bint is_full

    def __cinit__(self, int64_t memory_bytes, bytes secret=None):
        cdef int64_t slot_count = memory_bytes // <int64_t>sizeof(Slot)
        self.capacity = <int64_t>(slot_count * 0.9)
        if memory_bytes < 0 or self.capacity < 1:
            raise ValueError(f"{memory_bytes} bytes hold no key: at least {2 * sizeof(Slot)} are needed")
        if secret is None:
            secret = secrets.token_bytes(16)
        if len(secret) != 16:
            raise ValueError("the secret has 16 bytes")
        self.key_low = little_endian_64(<const uint8_t *>PyBytes_AS_STRING(secret))
        self.key_high = little_endian_64(<const uint8_t *>PyBytes_AS_STRING(secret) + 8)
        self.slot_count = slot_count
        self.slots = <Slot *>calloc(slot_count, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.slots)

    def __len__(self):
        return self.used

    cdef Slot *find(self, const uint8_t *key, size_t size) noexcept nogil:
        """The slot of this key, or the empty one where it would go: a tenth of the table is always empty."""
        cdef uint64_t low, high, place
        siphash_128(self.key_low, self.key_high, key, size, &low, &high)
        place = high_of_product(low, self.slot_count)
        while self.slots[place].end and not (self.slots[place].low == low and self.slots[place].high == high):
            place += 1
            if place == self.slot_count:
                place = 0
        if not self.slots[place].end:
            self.slots[place].low = low
            self.slots[place].high = high
        return &self.slots[place]

    cdef void enter(self) except *:
        # The loops below run without the GIL; two of them in one table would be a race.
        if self.busy:
            raise RuntimeError("a KeyOffsetMap serves one thread at a time")
        self.busy = True

    def note(self, records, int32_t record_count, int64_t base_offset, int64_t start_offset):
        cdef _View view = _View(records)
        cdef int64_t index = -1, end_offset = start_offset
        cdef int problem
        self.enter()
        with nogil:
            problem = self.note_section(view.data, view.size, record_count, base_offset, &end_offset, &index)
        self.busy = False
        if problem:
            raise_problem(problem, index)
        return end_offset

    cdef int note_section(
        self, const uint8_t *at, Py_ssize_t size, int32_t count, int64_t base_offset, int64_t *end_offset, int64_t *bad
    ) noexcept nogil:
        cdef const uint8_t *end = at + size
        cdef int64_t start_offset = end_offset[0]
        cdef int64_t index, offset
        cdef RawRecord record
        cdef Slot *slot
        cdef int problem
        if count < 0 or count > size // RECORD_BYTES_MIN:
            return COUNT
        for index in range(count):
            problem = read_record(at, end, &record)
            if not problem:
                problem = offset_problem(&record, base_offset)
            if problem:
                bad[0] = index
                return problem
            at = record.end
            offset = base_offset + record.offset_delta
            if offset < start_offset:
                continue
            if record.key != NULL:
                slot = self.find(record.key, record.key_size)
                if not slot.end:
                    if self.used >= self.capacity:
                        self.is_full = True
                        end_offset[0] = offset
                        return 0
                    self.used += 1
                if slot.end <= offset:
                    slot.end = offset + 1
            end_offset[0] = offset + 1
        return 0 if at == end else TRAILING

    def latest(self, key):
        cdef _View view = _View(key)
        self.enter()
        cdef int64_t end = self.find(view.data, view.size).end
        self.busy = False
        return end - 1


def retain(
    records, int32_t record_count, int64_t base_offset, KeyOffsetMap key_map, bint drop_tombstones,
    int64_t timestamp_shift=0,
):
    cdef _View view = _View(records)
    cdef const uint8_t *at = view.data
    cdef const uint8_t *end = at + view.size
    cdef RawRecord record
    cdef int64_t index, timestamp_delta, max_timestamp_delta = INT64_MIN, kept_count = 0
    cdef bint has_tombstones = False
    cdef int problem = 0
    if record_count < 0 or record_count > view.size // RECORD_BYTES_MIN:
        raise_problem(COUNT)
    # A shifted timestamp delta may be longer than the old one, and the length of its record with it.
    cdef _Section out = _Section(0, view.size + (14 * <Py_ssize_t>record_count if timestamp_shift else 0))
    cdef uint8_t *to = out.at
    key_map.enter()
    with nogil:
        for index in range(record_count):
            problem = read_record(at, end, &record)
            if not problem:
                problem = offset_problem(&record, base_offset)
            if problem:
                break
            at = record.end
            if record.key == NULL:
                continue
            if base_offset + record.offset_delta < key_map.find(record.key, record.key_size).end - 1:
                continue
            if record.value == NULL:
                if drop_tombstones:
                    continue
                has_tombstones = True
            if add_overflows(record.timestamp_delta, timestamp_shift, &timestamp_delta):
                problem = TIMESTAMP
                break
            if timestamp_shift:
                to = write_varint(
                    to, 1 + varint_size(zigzag(timestamp_delta)) + (record.end - record.after_timestamp)
                )
                to[0] = record.attributes
                to = write_varint(to + 1, timestamp_delta)
                record.start = record.after_timestamp
            memcpy(to, record.start, record.end - record.start)
            to += record.end - record.start
            kept_count += 1
            if timestamp_delta > max_timestamp_delta:
                max_timestamp_delta = timestamp_delta
        else:
            index = -1
            if at != end:
                problem = TRAILING
    key_map.busy = False
    if problem:
        raise_problem(problem, index)
    out.at = to
    if not kept_count:
        max_timestamp_delta = 0
    return Retained(out.finish(), kept_count, max_timestamp_delta, has_tombstones, kept_count < record_count)


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

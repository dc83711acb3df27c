# Batches that are being filled record by record, compiled; see reference/writer.py. Part of _native.pyx.
#
# An append is one step that no other thread sees half of, without a lock: between the moment at which it looks whether
# the batch is open and the moment at which the record is in it, nothing is called that could run Python. What has to be
# allocated is allocated before, for that may collect garbage, and so run anything.

from cpython.long cimport PyLong_CheckExact

cdef extern from *:
    """
    /* An instance as object.__new__ makes it, without the call of __init__. */
    static inline PyObject *ottla_new_instance(PyObject *type, PyObject *no_arguments) {
        return ((PyTypeObject *)type)->tp_new((PyTypeObject *)type, no_arguments, NULL);
    }
    """
    object new_instance "ottla_new_instance"(object type, object no_arguments)
    long long as_long_long "PyLong_AsLongLongAndOverflow"(object number, int *overflow) except? -1

cdef enum:
    NS_PER_MS = 1000000
    WRITER_FIRST_BYTES = 16384
    TIMES_FIRST = 64

cdef tuple NO_ARGUMENTS = ()


cdef class RecordPlace:
    cdef public object delivery
    cdef public Py_ssize_t index

    def __init__(self, delivery, Py_ssize_t index):
        self.delivery = delivery
        self.index = index


cdef class BatchWriter:
    cdef object kind
    cdef object delivery
    cdef list callbacks
    cdef bytearray out
    cdef Py_ssize_t used
    cdef Py_ssize_t capacity
    cdef int64_t limit_bytes
    cdef int64_t *times
    cdef Py_ssize_t times_capacity
    cdef int64_t max_timestamp
    cdef readonly Py_ssize_t record_count
    cdef readonly bint is_closed

    def __cinit__(self, int64_t limit_bytes, kind, delivery, list callbacks not None):
        if not (isinstance(kind, type) and issubclass(kind, RecordPlace)):
            raise TypeError("the places of records are RecordPlaces")
        self.kind = kind
        self.delivery = delivery
        self.callbacks = callbacks
        self.limit_bytes = limit_bytes
        self.out = bytearray()  # gets its room with the first record
        self.used = HEADER_BYTES

    def __dealloc__(self):
        free(self.times)

    @property
    def size_bytes(self):
        return self.used

    @property
    def timestamps(self):
        cdef _Memory times = allocated(8 * self.record_count)
        memcpy(times.data, self.times, 8 * self.record_count)
        return memoryview(times).cast("q")

    cdef int reserve(self, Py_ssize_t size_bytes) except -1:
        """Room for one record more, of so many bytes."""
        cdef Py_ssize_t wanted
        cdef int64_t *times
        if self.used + size_bytes > self.capacity:
            wanted = max(2 * self.capacity, min(self.limit_bytes, WRITER_FIRST_BYTES), self.used + size_bytes)
            PyByteArray_Resize(self.out, wanted)
            if not self.capacity:
                memset(PyByteArray_AS_STRING(self.out), 0, HEADER_BYTES)
            self.capacity = wanted
        if self.record_count == self.times_capacity:
            wanted = max(2 * self.times_capacity, TIMES_FIRST)
            times = <int64_t *>realloc(self.times, 8 * wanted)
            if times == NULL:
                raise MemoryError()
            self.times = times
            self.times_capacity = wanted
        return 0

    cdef RecordPlace put_in(
        self, object key, object value, int64_t timestamp, bytes headers, object callback, int64_t limit_bytes
    ):
        """Key and value are bytes or None. None where there is no room, or the batch is closed."""
        cdef RecordPlace place = new_instance(self.kind, NO_ARGUMENTS)
        cdef tuple pair = None
        cdef Py_ssize_t index = self.record_count
        if callback is not None:
            pair = (index, callback)
            while index != self.record_count:  # the tuple took its time, and another thread came in between
                index = self.record_count
                pair = (index, callback)
        # From here to the end is the one step.
        if self.is_closed:
            return None
        index = self.record_count
        cdef const uint8_t *key_data = NULL
        cdef const uint8_t *value_data = NULL
        cdef const uint8_t *headers_data = b"\x00"
        cdef int64_t key_size = 0, value_size = 0, headers_size = 1, delta = 0, body, size
        cdef uint8_t *at
        if key is not None:
            key_data = <const uint8_t *>PyBytes_AS_STRING(key)
            key_size = PyBytes_GET_SIZE(key)
        if value is not None:
            value_data = <const uint8_t *>PyBytes_AS_STRING(value)
            value_size = PyBytes_GET_SIZE(value)
        if headers is not None:
            headers_data = <const uint8_t *>PyBytes_AS_STRING(headers)
            headers_size = PyBytes_GET_SIZE(headers)
        if index and subtract_overflows(timestamp, self.times[0], &delta):
            raise_problem(TIMESTAMP, index)
        body = (1 + varint_size(delta) + varint_size(index) + nullable_size(key_data, key_size)
                + nullable_size(value_data, value_size) + headers_size)
        size = varint_size(body) + body
        if index and self.used + size > limit_bytes:
            return None
        if self.used + size > INT32_MAX:
            raise_problem(TOO_LARGE, index)
        if self.used + size > self.capacity or index == self.times_capacity:
            self.reserve(size)
        at = <uint8_t *>PyByteArray_AS_STRING(self.out) + self.used
        at = write_varint(at, body)
        at[0] = 0  # attributes: none are defined for a record
        at = write_varint(at + 1, delta)
        at = write_varint(at, index)
        at = write_nullable(at, key_data, key_size)
        at = write_nullable(at, value_data, value_size)
        memcpy(at, headers_data, headers_size)
        if pair is not None:
            self.callbacks.append(pair)
        self.used += size
        self.times[index] = timestamp
        if timestamp > self.max_timestamp or not index:
            self.max_timestamp = timestamp
        self.record_count = index + 1
        place.delivery = self.delivery
        place.index = index
        return place

    def append(self, key, value, timestamp, headers, callback):
        cdef bytes header_bytes = encode_headers(headers) if headers else None
        if key is not None:
            key = as_bytes(key)
        if value is not None:
            value = as_bytes(value)
        return self.put_in(
            key, value, as_timestamp(timestamp, self.record_count), header_bytes, callback, self.limit_bytes
        )

    def append_below(self, bytes key, bytes value, int64_t timestamp, callback):
        if not self.record_count:
            return None
        return self.put_in(key, value, timestamp, None, callback, self.limit_bytes - 1)

    def close(self):
        self.is_closed = True

    def finish(self):
        self.is_closed = True
        if self.capacity != self.used:
            PyByteArray_Resize(self.out, self.used)
            if not self.capacity:
                memset(PyByteArray_AS_STRING(self.out), 0, HEADER_BYTES)
            self.capacity = self.used
        return EncodedColumns(self.out, self.times[0] if self.record_count else 0, self.max_timestamp)


cdef class OpenBatches:
    cdef object now_ns
    cdef int64_t record_bytes_max
    cdef list writers  # BatchWriter or None
    cdef int32_t partition_count
    cdef int32_t sticky
    cdef int64_t sticky_bytes_left
    cdef readonly int64_t sticky_bytes

    def __cinit__(self, int64_t record_bytes_max, now_ns):
        self.record_bytes_max = record_bytes_max
        self.now_ns = now_ns
        self.writers = []
        self.sticky = -1

    def resize(self, int32_t partition_count):
        check_partition_count(partition_count)
        cdef list writers = self.writers[:partition_count]
        writers.extend([None] * (partition_count - len(writers)))
        self.partition_count = 0  # in between nothing fits
        self.writers = writers
        self.partition_count = partition_count

    def open(self, int32_t partition, BatchWriter writer not None):
        if not 0 <= partition < self.partition_count:
            raise IndexError("list assignment index out of range")
        self.writers[partition] = writer

    def close(self, int32_t partition):
        if 0 <= partition < self.partition_count:
            self.writers[partition] = None

    def stick_to(self, int32_t partition, int64_t bytes_max):
        self.sticky = partition
        self.sticky_bytes_left = bytes_max
        self.sticky_bytes = 0

    def append(self, key, value, partition, timestamp, callback):
        cdef int64_t size = RECORD_OVERHEAD_BYTES, time_ms
        cdef int32_t number
        cdef int overflow = 0
        cdef long long given
        cdef bint is_sticky = False
        cdef object writer
        cdef RecordPlace place
        if key is not None:
            if not PyBytes_CheckExact(key):
                return None
            size += PyBytes_GET_SIZE(key)
        if value is not None:
            if not PyBytes_CheckExact(value):
                return None
            size += PyBytes_GET_SIZE(value)
        if size > self.record_bytes_max or not self.partition_count:
            return None
        if timestamp is None:
            time_ms = <long long>self.now_ns() // NS_PER_MS
        elif PyLong_CheckExact(timestamp):
            time_ms = as_long_long(timestamp, &overflow)
            if overflow or time_ms < 0:
                return None
        else:
            return None
        if partition is not None:
            if not PyLong_CheckExact(partition):
                return None
            given = as_long_long(partition, &overflow)
            if overflow or not 0 <= given < self.partition_count:
                return None
            number = <int32_t>given
        elif key is None:
            is_sticky = True
            number = self.sticky
            if self.sticky_bytes_left <= 0 or not 0 <= number < self.partition_count:
                return None
        else:
            number = partition_of(
                <const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), self.partition_count)
        writer = self.writers[number]
        if writer is None or not (<BatchWriter>writer).record_count:
            return None
        place = (<BatchWriter>writer).put_in(
            key, value, time_ms, None, callback, (<BatchWriter>writer).limit_bytes - 1)
        if is_sticky and place is not None:
            self.sticky_bytes_left -= size
            self.sticky_bytes += size
        return place

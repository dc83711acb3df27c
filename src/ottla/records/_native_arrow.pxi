# Arrow columns in and out, compiled: part of _native.pyx.

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
    data[0] = column.data + start
    if is_null(column, row):
        data[0] = NULL
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
    size[0] = varint_size(count[0])
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


cdef class _RecordColumns:
    """Holds the columns of records, their buffers checked to cover their rows, and says which rows are meant."""

    cdef _ColumnViews key_views
    cdef _ColumnViews value_views
    cdef _ColumnViews list_views
    cdef _ColumnViews header_key_views
    cdef _ColumnViews header_value_views
    cdef _View selection
    # These point into the views; NULL where there is no such column.
    cdef const Column *keys
    cdef const Column *values
    cdef const Column *lists
    cdef const Column *header_keys
    cdef const Column *header_values
    cdef const uint8_t *selected
    cdef Py_ssize_t row_count
    cdef Py_ssize_t count
    cdef Py_ssize_t header_rows

    def __cinit__(self, Py_ssize_t row_count, keys, values, headers, rows):
        self.row_count = self.count = row_count
        self.value_views = binary_views(values, row_count)
        self.values = &self.value_views.column
        if keys is not None:
            self.key_views = binary_views(keys, row_count)
            self.keys = &self.key_views.column
        if headers is not None:
            self.list_views = _ColumnViews(headers.offsets, None, headers.validity, headers.first_bit, row_count)
            self.header_rows = column_offset(&self.list_views.column, row_count)
            if self.header_rows < 0:
                raise ValueError("the offsets of an Arrow column do not fit its data")
            self.list_views.column.data_size = self.header_rows
            self.lists = &self.list_views.column
            self.header_key_views = binary_views(headers.keys, self.header_rows)
            self.header_keys = &self.header_key_views.column
            self.header_value_views = binary_views(headers.values, self.header_rows)
            self.header_values = &self.header_value_views.column
        if rows is not None:
            self.selection = _View(rows)
            self.selected = self.selection.data
            self.count = self.selection.size // 4

    cdef inline int find_row(self, Py_ssize_t index, Py_ssize_t *row) noexcept nogil:
        """The row of the record `index`."""
        cdef int32_t number
        row[0] = index
        if self.selected != NULL:
            memcpy(&number, self.selected + 4 * index, 4)
            row[0] = number
        return 0 if 0 <= row[0] < self.row_count else MISFIT

    cdef int measure(self, Py_ssize_t index, int64_t *size) noexcept nogil:
        """The bytes of a record's key, value and headers, the latter with their lengths."""
        cdef const uint8_t *data = NULL
        cdef int64_t cell_size = 0
        cdef int32_t header_count
        cdef Py_ssize_t row
        cdef int problem = self.find_row(index, &row)
        if not problem:
            problem = read_cell(self.values, row, &data, &cell_size)
        size[0] = cell_size if data != NULL else 0
        if not problem and self.keys != NULL:
            problem = read_cell(self.keys, row, &data, &cell_size)
            size[0] += cell_size if data != NULL else 0
        if not problem and self.lists != NULL:
            problem = measure_headers(self.lists, self.header_keys, self.header_values, row, &cell_size, &header_count)
            size[0] += cell_size
        return problem

    cdef int64_t bytes_max(self) noexcept nogil:
        """No fewer bytes than the encoded records take; what is wrong with them is found out when they are."""
        cdef int64_t size, total = self.count * <int64_t>RECORD_OVERHEAD_MAX
        cdef Py_ssize_t index
        if self.selected != NULL:
            for index in range(self.count):
                if self.measure(index, &size):
                    break
                total += size
            return total
        total += column_bytes(self.values, self.count)
        if self.keys != NULL:
            total += column_bytes(self.keys, self.count)
        if self.lists != NULL:
            total += (
                column_bytes(self.header_keys, self.header_rows) + column_bytes(self.header_values, self.header_rows)
                + 2 * VARINT_BYTES_MAX * <int64_t>self.header_rows
            )
        return total


cdef _ColumnViews binary_views(column, Py_ssize_t row_count):
    return _ColumnViews(column.offsets, column.data, column.validity, column.first_bit, row_count)


cdef raise_column_problem(int problem, int64_t index):
    if problem == MISFIT:
        raise ValueError("the offsets of an Arrow column do not fit its data, or a row is not there")
    raise_problem(problem, index)


def encode_columns(Py_ssize_t row_count, keys, values, timestamps, headers, Py_ssize_t prefix_bytes, rows=None):
    cdef _RecordColumns columns = _RecordColumns(row_count, keys, values, headers, rows)
    if columns.count < 1:
        raise ValueError("a batch is built of at least one record")
    cdef _View timestamp_view = None
    cdef const uint8_t *timestamp_data = NULL
    cdef int64_t timestamp = 0, base_timestamp = 0, max_timestamp = INT64_MIN
    if isinstance(timestamps, int):
        base_timestamp = max_timestamp = as_timestamp(timestamps, 0)
    else:
        timestamp_view = _View(timestamps)
        if timestamp_view.size // 8 < row_count:
            raise ValueError("there are fewer timestamps than rows")
        timestamp_data = timestamp_view.data
    cdef _Section out = _Section(prefix_bytes, min(columns.bytes_max(), <int64_t>INT32_MAX))
    cdef uint8_t *at = out.at
    cdef const uint8_t *key = NULL
    cdef const uint8_t *value = NULL
    cdef Py_ssize_t index = 0, row = 0
    cdef int64_t body, timestamp_delta = 0, key_size = 0, value_size = 0, headers_size = 1
    cdef int32_t header_count = 0
    cdef int problem = 0
    with nogil:
        for index in range(columns.count):
            problem = columns.find_row(index, &row)
            if problem:
                break
            if timestamp_data != NULL:
                memcpy(&timestamp, timestamp_data + 8 * row, 8)
                if index == 0:
                    base_timestamp = timestamp
                if subtract_overflows(timestamp, base_timestamp, &timestamp_delta):
                    problem = TIMESTAMP
                    break
                max_timestamp = max(max_timestamp, timestamp)
            if columns.keys != NULL:
                problem = read_cell(columns.keys, row, &key, &key_size)
                if problem:
                    break
            problem = read_cell(columns.values, row, &value, &value_size)
            if problem:
                break
            if columns.lists != NULL:
                problem = measure_headers(
                    columns.lists, columns.header_keys, columns.header_values, row, &headers_size, &header_count)
                if problem:
                    break
            body = (
                1 + varint_size(timestamp_delta) + varint_size(index)
                + nullable_size(key, key_size) + nullable_size(value, value_size) + headers_size
            )
            if body > INT32_MAX or body + VARINT_BYTES_MAX > out.end - at:
                problem = TOO_LARGE
                break
            at = write_varint(at, body)
            at[0] = 0  # attributes
            at = write_varint(at + 1, timestamp_delta)
            at = write_varint(at, index)
            at = write_nullable(at, key, key_size)
            at = write_nullable(at, value, value_size)
            if columns.lists == NULL:
                at[0] = 0
                at += 1
            else:
                problem = write_headers(
                    &at, out.end, columns.lists, columns.header_keys, columns.header_values, row, header_count)
                if problem:
                    break
    if problem:
        raise_column_problem(problem, index)
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
    """A binary column in the making. It grows without the GIL."""

    cdef uint8_t *offsets
    cdef uint8_t *validity
    cdef uint8_t *data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef Py_ssize_t row_count
    cdef Py_ssize_t rows_max
    cdef Py_ssize_t null_count

    def __dealloc__(self):
        free(self.offsets)
        free(self.validity)
        free(self.data)

    cdef int reserve(self, Py_ssize_t capacity) noexcept nogil:
        return resize(&self.data, capacity, &self.capacity)

    cdef int reserve_rows(self, Py_ssize_t rows_max) noexcept nogil:
        """Room for that many rows in all."""
        cdef Py_ssize_t done = (self.rows_max + 7) // 8, unused = 0
        if rows_max <= self.rows_max and self.offsets != NULL:
            return 0
        if resize(&self.offsets, 4 * (rows_max + 1), &unused) or resize(&self.validity, (rows_max + 7) // 8, &unused):
            return MISFIT
        if not self.rows_max:
            memset(self.offsets, 0, 4)
        memset(self.validity + done, 0, (rows_max + 7) // 8 - done)
        self.rows_max = rows_max
        return 0

    cdef inline int add(self, const uint8_t *data, int32_t size) noexcept nogil:
        cdef Py_ssize_t row = self.row_count
        cdef int32_t end
        if data == NULL:
            self.null_count += 1
        else:
            if size > self.capacity - self.size:
                if size > INT32_MAX - self.size:  # the offsets of an Arrow column could not say so
                    return TOO_LARGE
                if self.reserve(self.size + size + (self.size >> 1) + 4096):
                    return MISFIT
            if size:  # nothing may have been reserved yet, and memcpy takes no NULL
                memcpy(self.data + self.size, data, size)
            self.size += size
            self.validity[row >> 3] |= <uint8_t>(1 << (row & 7))
        end = <int32_t>self.size
        memcpy(self.offsets + 4 * (row + 1), &end, 4)
        self.row_count = row + 1
        return 0

    cdef object finish(self):
        if self.reserve_rows(self.row_count) or self.reserve(self.size):
            raise MemoryError()
        offsets = taken(&self.offsets, 4 * (self.row_count + 1))
        data = taken(&self.data, self.size)
        validity = taken(&self.validity, (self.row_count + 7) // 8) if self.null_count else None
        return BinaryColumn(offsets, data, validity, 0)


cdef int resize(uint8_t **data, Py_ssize_t size, Py_ssize_t *capacity) noexcept nogil:
    cdef void *moved = realloc(data[0], size + 1)  # never of size 0, for which NULL may be the answer
    if moved == NULL:
        return MISFIT
    data[0] = <uint8_t *>moved
    capacity[0] = size
    return 0


cdef _Memory taken(uint8_t **data, Py_ssize_t size):
    """The bytes under an owner of their own."""
    cdef _Memory memory = _Memory()
    memory.data = data[0]
    memory.size = size
    data[0] = NULL
    return memory


cdef class ColumnsDecoder:
    """See the reference."""

    cdef _BinaryWriter keys
    cdef _BinaryWriter values
    cdef _BinaryWriter header_keys
    cdef _BinaryWriter header_values
    cdef uint8_t *offsets
    cdef uint8_t *timestamps
    cdef uint8_t *header_ends
    cdef Py_ssize_t rows_max
    cdef readonly Py_ssize_t row_count
    cdef int32_t header_end
    cdef bint wants_keys
    cdef bint wants_values
    cdef bint wants_headers
    cdef int64_t ticks_per_ms

    def __cinit__(self, *, bint keys=True, bint values=True, bint headers=True, int64_t ticks_per_ms=1):
        self.wants_keys = keys
        self.wants_values = values
        self.wants_headers = headers
        self.ticks_per_ms = ticks_per_ms
        self.begin()

    def __dealloc__(self):
        free(self.offsets)
        free(self.timestamps)
        free(self.header_ends)

    cdef begin(self):
        self.keys = _BinaryWriter()
        self.values = _BinaryWriter()
        self.header_keys = _BinaryWriter()
        self.header_values = _BinaryWriter()
        self.row_count = 0
        self.rows_max = 0
        self.header_end = 0

    @property
    def byte_count(self):
        return self.keys.size + self.values.size + self.header_keys.size + self.header_values.size

    cdef int reserve_rows(self, Py_ssize_t rows_max) noexcept nogil:
        cdef Py_ssize_t unused = 0
        if rows_max <= self.rows_max and self.offsets != NULL:
            return 0
        if (
            resize(&self.offsets, 8 * rows_max, &unused)
            or resize(&self.timestamps, 8 * rows_max, &unused)
            or resize(&self.header_ends, 4 * (rows_max + 1), &unused)
        ):
            return MISFIT
        if not self.rows_max:
            memset(self.header_ends, 0, 4)
        self.rows_max = rows_max
        return 0

    def add(
        self, records, int32_t record_count, int64_t base_offset, int64_t base_timestamp, append_time,
        int64_t start_offset=0, int64_t end_offset=INT64_MAX,
    ):
        cdef _View view = _View(records)
        cdef const uint8_t *at = view.data
        cdef const uint8_t *end = at + view.size
        cdef RawRecord record
        cdef bint is_append_time = append_time is not None
        cdef bint wants_keys = self.wants_keys, wants_values = self.wants_values, wants_headers = self.wants_headers
        cdef int64_t index = 0, timestamp = 0, offset, everyones = append_time if is_append_time else 0
        cdef int64_t ticks_per_ms = self.ticks_per_ms
        cdef Py_ssize_t row = self.row_count, rows_max = row + record_count
        cdef int32_t header_end = self.header_end
        cdef int problem = 0
        cdef _BinaryWriter keys = self.keys
        cdef _BinaryWriter values = self.values
        if record_count < 0 or record_count > view.size // RECORD_BYTES_MIN:
            raise_problem(COUNT)
        if view.size > INT32_MAX - values.size:
            raise_problem(TOO_LARGE)
        if rows_max > self.rows_max:
            rows_max = max(rows_max, min(rows_max + row // 2, rows_max + 65536))
        if self.reserve_rows(rows_max) or keys.reserve_rows(rows_max) or values.reserve_rows(rows_max):
            raise MemoryError()
        # Values are most of a batch, so they get room for all of it, and what they leave is given back.
        if wants_values and view.size > values.capacity - values.size:
            if values.reserve(values.size + view.size + (values.size >> 1)):
                raise MemoryError()
        with nogil:
            for index in range(record_count):
                problem = read_record(at, end, &record)
                if not problem and add_overflows(base_timestamp, record.timestamp_delta, &timestamp):
                    problem = TIMESTAMP
                if not problem:
                    problem = offset_problem(&record, base_offset)
                if problem:
                    break
                at = record.end
                offset = base_offset + record.offset_delta
                if offset < start_offset or offset >= end_offset:
                    continue
                if wants_keys:
                    problem = keys.add(record.key, record.key_size)
                if wants_values and not problem:
                    problem = values.add(record.value, record.value_size)
                if problem:
                    break
                if is_append_time:
                    timestamp = everyones
                if ticks_per_ms != 1 and multiply_overflows(timestamp, ticks_per_ms, &timestamp):
                    problem = TIMESTAMP
                    break
                memcpy(self.offsets + 8 * row, &offset, 8)
                memcpy(self.timestamps + 8 * row, &timestamp, 8)
                row += 1
                if wants_headers:
                    header_end += record.header_count
                memcpy(self.header_ends + 4 * row, &header_end, 4)
            else:
                index = -1
                if at != end:
                    problem = TRAILING
        if problem == MISFIT:
            raise MemoryError()
        if problem:
            raise_problem(problem, index)
        if header_end != self.header_end:
            self.add_headers(view, record_count, base_offset, start_offset, end_offset, header_end)
            self.header_end = header_end
        self.row_count = row

    cdef add_headers(
        self, _View view, int32_t record_count, int64_t base_offset, int64_t start_offset, int64_t end_offset,
        int32_t header_end,
    ):
        """A second walk, for the batches that have headers: few do, and the first walk stays simple and fast."""
        cdef _BinaryWriter keys = self.header_keys
        cdef _BinaryWriter values = self.header_values
        cdef const uint8_t *at = view.data
        cdef int64_t index = 0, offset
        cdef RawRecord record
        cdef RawHeader header
        cdef int problem = 0
        if keys.reserve_rows(header_end) or values.reserve_rows(header_end):
            raise MemoryError()
        with nogil:
            for index in range(record_count):
                problem = read_record(at, view.data + view.size, &record)
                if problem:
                    break
                at = record.headers
                offset = base_offset + record.offset_delta
                if start_offset <= offset < end_offset:
                    for _ in range(record.header_count):
                        problem = read_record_header(&at, record.end, &header)
                        # More than at first: the bytes changed under us.
                        if not problem and keys.row_count == header_end:
                            problem = HEADER_COUNT
                        if not problem:
                            problem = keys.add(header.key, header.key_size)
                        if not problem:
                            problem = values.add(header.value, header.value_size)
                        if problem:
                            break
                if problem:
                    break
                at = record.end
        if problem == MISFIT:
            raise MemoryError()
        if not problem and keys.row_count != header_end:
            problem = HEADER_COUNT
        if problem:
            raise_problem(problem, index)

    def finish(self):
        cdef Py_ssize_t count = self.row_count
        if self.reserve_rows(count):
            raise MemoryError()
        # Whoever holds the columns holds this room too: what was reserved in vain is given back.
        cdef Py_ssize_t unused = 0
        if resize(&self.offsets, 8 * count, &unused) or resize(&self.timestamps, 8 * count, &unused):
            raise MemoryError()
        headers = None
        if self.header_end:
            headers = HeadersColumn(
                taken(&self.header_ends, 4 * (count + 1)), self.header_keys.finish(), self.header_values.finish(), None, 0
            )
        decoded = DecodedColumns(
            count,
            taken(&self.offsets, 8 * count),
            taken(&self.timestamps, 8 * count),
            self.keys.finish() if self.wants_keys else None,
            self.values.finish() if self.wants_values else None,
            headers,
        )
        self.begin()
        return decoded


def decode_columns(records, int32_t record_count, int64_t base_offset, int64_t base_timestamp, append_time):
    cdef ColumnsDecoder decoder = ColumnsDecoder()
    decoder.add(records, record_count, base_offset, base_timestamp, append_time)
    return decoder.finish()

# Avro into columns: runs the program of a schema (ottla.records.avro) over a batch of values.

cdef enum:
    AVRO_BOOLEAN = 0
    AVRO_INT = 1
    AVRO_LONG = 2
    AVRO_FLOAT = 3
    AVRO_DOUBLE = 4
    AVRO_BYTES = 5
    AVRO_STRING = 6
    AVRO_FIXED = 7
    AVRO_ENUM = 8
    AVRO_MILLIS = 9
    AVRO_DECIMAL = 10
    AVRO_DECIMAL_FIXED = 11
    AVRO_RECORD = 12
    AVRO_ARRAY = 13
    AVRO_MAP = 14

    AVRO_NODE_FIELDS = 6
    AVRO_PREFIX_BYTES = 5
    AVRO_MAP_ENTRIES_MAX = 32
    AVRO_ROOM_MIN = 64

    AVRO_REFUSED = 1
    AVRO_NO_MEMORY = 2

cdef extern from *:
    """
    typedef __int128 ottla_int128;
    """
    ctypedef long long int128 "ottla_int128"

cdef int64_t AVRO_MILLIS_MIN = -62_135_596_800_000
cdef int64_t AVRO_MILLIS_MAX = 253_402_300_799_999


cdef struct AvroColumn:
    int32_t op
    int32_t null_index
    int32_t end
    int32_t parent
    int32_t size
    int32_t digits
    int width  # of a value in bytes; 4 where there are offsets, 0 where there are bits or nothing
    bint has_offsets
    int128 limit  # of a decimal
    Py_ssize_t count
    Py_ssize_t room
    Py_ssize_t data_size
    Py_ssize_t data_room
    uint8_t *validity
    uint8_t *values
    uint8_t *data


cdef inline int read_avro_varint(const uint8_t **at, const uint8_t *end, int64_t *value) noexcept nogil:
    cdef const uint8_t *byte = at[0]
    cdef uint64_t number = 0
    cdef int shift = 0
    while True:
        if byte == end or shift > 63:
            return AVRO_REFUSED
        number |= <uint64_t>(byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            break
        byte += 1
        shift += 7
    if shift == 63 and byte[0] > 1:
        return AVRO_REFUSED
    at[0] = byte + 1
    value[0] = <int64_t>(number >> 1) ^ -<int64_t>(number & 1)
    return 0


cdef bint is_utf8(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """As Python's strict decoder has it: shortest forms, no surrogates, nothing above U+10FFFF."""
    cdef uint64_t word
    cdef uint8_t first, least, most
    cdef int following
    while at < end:
        if end - at >= 8:
            memcpy(&word, at, 8)
            if not word & 0x8080808080808080ULL:
                at += 8
                continue
        first = at[0]
        at += 1
        if first < 0x80:
            continue
        least, most = 0x80, 0xBF  # of the second byte
        if first < 0xC2 or first > 0xF4:
            return False
        if first < 0xE0:
            following = 1
        elif first < 0xF0:
            following = 2
            if first == 0xE0:
                least = 0xA0
            elif first == 0xED:
                most = 0x9F
        else:
            following = 3
            if first == 0xF0:
                least = 0x90
            elif first == 0xF4:
                most = 0x8F
        if end - at < following or not least <= at[0] <= most:
            return False
        if following > 1 and at[1] & 0xC0 != 0x80:
            return False
        if following > 2 and at[2] & 0xC0 != 0x80:
            return False
        at += following
    return True


cdef inline void put_bit(uint8_t *bits, Py_ssize_t index, bint flag) noexcept nogil:
    cdef uint8_t mask = <uint8_t>(1 << (index & 7))
    if flag:
        bits[index >> 3] |= mask
    else:
        bits[index >> 3] &= ~mask


cdef inline int32_t avro_offset(const AvroColumn *column, Py_ssize_t index) noexcept nogil:
    return (<int32_t *>column.values)[index]


cdef int grow_avro(AvroColumn *column, Py_ssize_t room) noexcept nogil:
    """Room for so many values, and for one offset more. It is zeros, so that bits have no past."""
    cdef Py_ssize_t bits = (room + 7) >> 3, old_bits = (column.room + 7) >> 3
    cdef Py_ssize_t size = (room + column.has_offsets) * column.width if column.width else bits
    cdef Py_ssize_t old_size = (column.room + column.has_offsets) * column.width if column.width else old_bits
    cdef uint8_t *grown
    if column.values == NULL:
        old_size = 0
    grown = <uint8_t *>realloc(column.validity, bits)
    if grown == NULL:
        return AVRO_NO_MEMORY
    column.validity = grown
    memset(grown + old_bits, 0, bits - old_bits)
    grown = <uint8_t *>realloc(column.values, size)
    if grown == NULL:
        return AVRO_NO_MEMORY
    column.values = grown
    memset(grown + old_size, 0, size - old_size)
    column.room = room
    return 0


cdef inline int make_avro_room(AvroColumn *column) noexcept nogil:
    if column.count < column.room:
        return 0
    return grow_avro(column, 2 * column.room)


cdef int append_avro_data(AvroColumn *column, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """The sizes of all values together are less than what came in, so their offsets fit 32 bits."""
    cdef Py_ssize_t room = column.data_room
    cdef uint8_t *grown
    if column.data_size + size > room:
        room = max(2 * room, column.data_size + size, AVRO_ROOM_MIN)
        grown = <uint8_t *>realloc(column.data, room)
        if grown == NULL:
            return AVRO_NO_MEMORY
        column.data, column.data_room = grown, room
    if size:
        memcpy(column.data + column.data_size, data, size)
    column.data_size += size
    (<int32_t *>column.values)[column.count + 1] = <int32_t>column.data_size
    return 0


cdef int append_avro_nulls(AvroColumn *columns, int32_t at) noexcept nogil:
    """No value of a node, so none of its fields either; a list that is not there has no elements."""
    cdef int32_t end = columns[at].end
    cdef AvroColumn *column
    while at < end:
        column = columns + at
        if make_avro_room(column):
            return AVRO_NO_MEMORY
        put_bit(column.validity, column.count, False)
        if column.has_offsets:
            (<int32_t *>column.values)[column.count + 1] = avro_offset(column, column.count)
        elif column.width:
            memset(column.values + column.count * column.width, 0, column.width)
        elif column.op == AVRO_BOOLEAN:
            put_bit(column.values, column.count, False)
        column.count += 1
        at = column.end if column.op >= AVRO_ARRAY else at + 1
    return 0


cdef int read_avro_decimal(AvroColumn *column, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    cdef int128 number = -1 if size and data[0] & 0x80 else 0
    cdef Py_ssize_t index
    if size > 16:
        return AVRO_REFUSED
    for index in range(size):
        number = number * 256 + data[index]
    if number > column.limit or number < -column.limit:
        return AVRO_REFUSED
    memcpy(column.values + column.count * 16, &number, 16)
    return 0


cdef bint has_double_key(const AvroColumn *keys, Py_ssize_t first) noexcept nogil:
    cdef Py_ssize_t one, other
    cdef int32_t size
    for one in range(first + 1, keys.count):
        size = avro_offset(keys, one + 1) - avro_offset(keys, one)
        for other in range(first, one):
            if avro_offset(keys, other + 1) - avro_offset(keys, other) == size and (
                not size or not memcmp(keys.data + avro_offset(keys, one), keys.data + avro_offset(keys, other), size)
            ):
                return True
    return False


cdef int read_avro_elements(
    AvroColumn *columns, int32_t at, const uint8_t **data, const uint8_t *data_end
) noexcept nogil:
    cdef AvroColumn *column = columns + at
    cdef AvroColumn *elements = column + 1
    cdef Py_ssize_t first = elements.count
    cdef int64_t count, index, size
    cdef int problem
    while True:
        if read_avro_varint(data, data_end, &count):
            return AVRO_REFUSED
        if count == 0:
            break
        if count < 0:
            if count == INT64_MIN or read_avro_varint(data, data_end, &size):
                return AVRO_REFUSED
            count = -count
        if count > data_end - data[0]:
            return AVRO_REFUSED  # each element has a byte at least
        if column.op == AVRO_MAP and elements.count - first + count > AVRO_MAP_ENTRIES_MAX:
            return AVRO_REFUSED
        for index in range(count):
            problem = run_avro(columns, at + 1, column.end, data, data_end)
            if problem:
                return problem
    if column.op == AVRO_MAP and has_double_key(elements, first):
        return AVRO_REFUSED
    (<int32_t *>column.values)[column.count + 1] = <int32_t>elements.count
    return 0


cdef int run_avro(
    AvroColumn *columns, int32_t at, int32_t end, const uint8_t **data, const uint8_t *data_end
) noexcept nogil:
    """Reads one value of each node. Calls itself for the elements of lists only: as deep as the schema has them."""
    cdef AvroColumn *column
    cdef int64_t number
    cdef int problem, op
    while at < end:
        column = columns + at
        op = column.op
        if column.null_index >= 0:
            if read_avro_varint(data, data_end, &number) or not 0 <= number <= 1:
                return AVRO_REFUSED
            if number == column.null_index:
                if append_avro_nulls(columns, at):
                    return AVRO_NO_MEMORY
                at = column.end
                continue
        if make_avro_room(column):
            return AVRO_NO_MEMORY
        if op == AVRO_LONG or op == AVRO_INT or op == AVRO_MILLIS or op == AVRO_ENUM:
            if read_avro_varint(data, data_end, &number):
                return AVRO_REFUSED
            if op == AVRO_LONG:
                (<int64_t *>column.values)[column.count] = number
            elif op == AVRO_MILLIS:
                if not AVRO_MILLIS_MIN <= number <= AVRO_MILLIS_MAX:
                    return AVRO_REFUSED
                (<int64_t *>column.values)[column.count] = 1000 * number
            else:
                if number != <int32_t>number or (op == AVRO_ENUM and not 0 <= number < column.size):
                    return AVRO_REFUSED
                (<int32_t *>column.values)[column.count] = <int32_t>number
        elif op == AVRO_RECORD:
            pass
        elif op == AVRO_BOOLEAN:
            if data[0] == data_end or data[0][0] > 1:
                return AVRO_REFUSED
            put_bit(column.values, column.count, data[0][0])
            data[0] += 1
        elif op == AVRO_FLOAT or op == AVRO_DOUBLE:
            if data_end - data[0] < column.width:
                return AVRO_REFUSED
            memcpy(column.values + column.count * column.width, data[0], column.width)
            data[0] += column.width
        elif op >= AVRO_ARRAY:
            problem = read_avro_elements(columns, at, data, data_end)
            if problem:
                return problem
        else:
            number = column.size
            if op != AVRO_FIXED and op != AVRO_DECIMAL_FIXED and read_avro_varint(data, data_end, &number):
                return AVRO_REFUSED
            if not 0 <= number <= data_end - data[0]:
                return AVRO_REFUSED
            if op == AVRO_DECIMAL or op == AVRO_DECIMAL_FIXED:
                if read_avro_decimal(column, data[0], number):
                    return AVRO_REFUSED
            else:
                if op == AVRO_STRING and not is_utf8(data[0], data[0] + number):
                    return AVRO_REFUSED
                if append_avro_data(column, data[0], number):
                    return AVRO_NO_MEMORY
            data[0] += number
        put_bit(column.validity, column.count, True)
        column.count += 1
        at = column.end if op >= AVRO_ARRAY else at + 1
    return 0


cdef class _AvroRun:
    """The columns of a program while they are filled."""

    cdef AvroColumn *columns
    cdef int32_t node_count

    def __cinit__(self, bytes program, Py_ssize_t row_count):
        cdef Py_ssize_t count = len(program) // (4 * AVRO_NODE_FIELDS)
        cdef AvroColumn *column
        cdef int32_t index
        self.columns = <AvroColumn *>calloc(max(count, 1), sizeof(AvroColumn))
        if self.columns == NULL:
            raise MemoryError
        self.node_count = <int32_t>count
        for index in range(self.node_count):
            column = self.columns + index
            # The first fields of a column are those of a node.
            memcpy(column, PyBytes_AS_STRING(program) + index * 4 * AVRO_NODE_FIELDS, 4 * AVRO_NODE_FIELDS)
            if not (AVRO_BOOLEAN <= column.op <= AVRO_MAP and index < column.end <= count and column.parent < index):
                raise ValueError("not a program of an Avro schema")
            if column.op >= AVRO_ARRAY and column.end < index + 2:
                raise ValueError("not a program of an Avro schema")
            if column.op == AVRO_INT or column.op == AVRO_FLOAT or column.op == AVRO_ENUM:
                column.width = 4
            elif column.op == AVRO_LONG or column.op == AVRO_DOUBLE or column.op == AVRO_MILLIS:
                column.width = 8
            elif column.op == AVRO_DECIMAL or column.op == AVRO_DECIMAL_FIXED:
                column.width = 16
                column.limit = 1
                for _ in range(min(column.digits, 38)):
                    column.limit = column.limit * 10
                column.limit = column.limit - 1
            elif column.op != AVRO_BOOLEAN and column.op != AVRO_RECORD:
                column.width = 4
                column.has_offsets = True
            if grow_avro(column, max(row_count, 1) if column.parent < 0 else AVRO_ROOM_MIN):
                raise MemoryError

    def __dealloc__(self):
        cdef int32_t index
        if self.columns != NULL:
            for index in range(self.node_count):
                free(self.columns[index].validity)
                free(self.columns[index].values)
                free(self.columns[index].data)
            free(self.columns)

    cdef void take_back(self, Py_ssize_t row_count) noexcept nogil:
        """As if the values after so many rows had never been read."""
        cdef int32_t index
        cdef AvroColumn *column
        cdef AvroColumn *parent
        for index in range(self.node_count):
            column = self.columns + index
            column.count = row_count
            if column.parent >= 0:
                parent = self.columns + column.parent
                column.count = avro_offset(parent, parent.count)
            if column.has_offsets and column.op < AVRO_ARRAY:
                column.data_size = avro_offset(column, column.count)

    cdef int read(
        self, const uint8_t *data, int64_t size, const uint8_t *prefixes, Py_ssize_t prefixes_size
    ) noexcept nogil:
        cdef const uint8_t *end = data + size
        cdef Py_ssize_t index
        cdef int problem
        if prefixes_size:
            if size < AVRO_PREFIX_BYTES:
                return AVRO_REFUSED
            for index in range(prefixes_size // AVRO_PREFIX_BYTES):
                if not memcmp(data, prefixes + AVRO_PREFIX_BYTES * index, AVRO_PREFIX_BYTES):
                    break
            else:
                return AVRO_REFUSED
            data += AVRO_PREFIX_BYTES
        problem = run_avro(self.columns, 0, self.node_count, &data, end)
        return AVRO_REFUSED if not problem and data != end else problem

    cdef buffers(self, int32_t index):
        cdef AvroColumn *column = self.columns + index
        cdef Py_ssize_t bits = (column.count + 7) >> 3
        cdef Py_ssize_t size = (column.count + column.has_offsets) * column.width
        if column.op == AVRO_BOOLEAN:
            size = bits
        # What was taken back may have left bits behind the last one.
        if column.count & 7:
            column.validity[bits - 1] &= (1 << (column.count & 7)) - 1
            if column.op == AVRO_BOOLEAN:
                column.values[bits - 1] &= (1 << (column.count & 7)) - 1
        return AvroBuffers(
            column.count,
            PyBytes_FromStringAndSize(<char *>column.validity, bits),
            PyBytes_FromStringAndSize(<char *>column.values, size),
            PyBytes_FromStringAndSize(<char *>column.data, column.data_size) if column.data_size else b"",
        )


def decode_avro(bytes program, values, Py_ssize_t row_count, bytes prefixes):
    cdef _AvroRun run = _AvroRun(program, row_count)
    cdef _ColumnViews views = binary_views(values, row_count)
    cdef const Column *column = &views.column
    cdef const uint8_t *known = <const uint8_t *>PyBytes_AS_STRING(prefixes)
    cdef Py_ssize_t known_size = PyBytes_GET_SIZE(prefixes)
    cdef bytearray refused = PyByteArray_FromStringAndSize(NULL, row_count)
    cdef uint8_t *is_refused = <uint8_t *>PyByteArray_AS_STRING(refused)
    cdef Py_ssize_t row
    cdef const uint8_t *data
    cdef int64_t size
    cdef int problem = 0
    if not run.node_count:
        raise ValueError("not a program of an Avro schema")
    with nogil:
        for row in range(row_count):
            is_refused[row] = False
            problem = read_cell(column, row, &data, &size)
            if problem:
                break
            if data != NULL:
                problem = run.read(data, size, known, known_size)
                if not problem:
                    continue
                if problem == AVRO_NO_MEMORY:
                    break
                is_refused[row] = True
                run.take_back(row)
            problem = append_avro_nulls(run.columns, 0)
            if problem:
                break
    if problem == MISFIT:
        raise_column_problem(problem, row)
    if problem:
        raise MemoryError
    cdef int32_t index
    return (
        [row for row in range(row_count) if is_refused[row]],
        [run.buffers(index) for index in range(run.node_count)],
    )

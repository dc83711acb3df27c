# Which record goes where, compiled: partitions by key, rows by partition, rows by size. Part of _native.pyx.

cdef enum:
    MURMUR_SEED = 0x1747B28C  # with the highest bit, which an enum has no room for, set below
    MURMUR_MULTIPLIER = 0x5BD1E995


cdef uint32_t murmur2(const uint8_t *key, Py_ssize_t size) noexcept nogil:
    cdef uint32_t multiplier = MURMUR_MULTIPLIER
    cdef uint32_t value = (MURMUR_SEED | <uint32_t>0x80000000) ^ <uint32_t>size
    cdef const uint8_t *end = key + (size & ~3)
    cdef uint32_t word
    while key != end:
        word = key[0] | <uint32_t>key[1] << 8 | <uint32_t>key[2] << 16 | <uint32_t>key[3] << 24
        word *= multiplier
        word = (word ^ word >> 24) * multiplier
        value = value * multiplier ^ word
        key += 4
    size &= 3
    if size:
        word = key[0]
        if size > 1:
            word |= <uint32_t>key[1] << 8
        if size > 2:
            word |= <uint32_t>key[2] << 16
        value = (value ^ word) * multiplier
    value = (value ^ value >> 13) * multiplier
    return value ^ value >> 15


cdef inline int32_t partition_of(const uint8_t *key, Py_ssize_t size, int32_t partition_count) noexcept nogil:
    return <int32_t>(murmur2(key, size) & 0x7FFFFFFF) % partition_count


cdef int check_partition_count(int32_t partition_count) except -1:
    if partition_count < 1:
        raise ValueError(f"keys cannot go to {partition_count} partitions")
    return 0


def partitions_of_keys(keys, int32_t partition_count, int32_t keyless):
    check_partition_count(partition_count)
    cdef list key_list = list(keys) if type(keys) is not list else keys
    cdef Py_ssize_t count = len(key_list), index
    cdef _Memory partitions = allocated(4 * count)
    cdef int32_t partition
    for index in range(count):
        key = key_list[index]
        if key is None:
            partition = keyless
        else:
            key = as_bytes(key)
            partition = partition_of(
                <const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), partition_count)
        memcpy(partitions.data + 4 * index, &partition, 4)
    return partitions


def partitions_of_column(Py_ssize_t row_count, keys, int32_t partition_count, int32_t keyless):
    check_partition_count(partition_count)
    cdef _ColumnViews views = binary_views(keys, row_count)
    cdef _Memory partitions = allocated(4 * row_count)
    cdef const uint8_t *key = NULL
    cdef int64_t size = 0
    cdef int32_t partition
    cdef Py_ssize_t row = 0
    cdef int problem = 0
    with nogil:
        for row in range(row_count):
            problem = read_cell(&views.column, row, &key, &size)
            if problem:
                break
            partition = keyless if key == NULL else partition_of(key, size, partition_count)
            memcpy(partitions.data + 4 * row, &partition, 4)
    if problem:
        raise_column_problem(problem, row)
    return partitions


def group_rows(numbers, int32_t group_count):
    cdef _View view = _View(numbers)
    cdef Py_ssize_t row_count = view.size // 4, place = 0, row
    cdef _Memory rows = allocated(4 * row_count)
    cdef int64_t *ends = <int64_t *>calloc(max(group_count, 0) + 1, sizeof(int64_t))
    cdef int32_t number, row_number
    cdef bint is_misfit = False
    cdef list groups = []
    if ends == NULL:
        raise MemoryError()
    try:
        with nogil:
            # First how many there are of each, so that every row knows its place.
            for row in range(row_count):
                memcpy(&number, view.data + 4 * row, 4)
                if not 0 <= number < group_count:
                    is_misfit = True
                    break
                ends[number] += 1
            if not is_misfit:
                for number in range(group_count):
                    row = ends[number]
                    ends[number] = place
                    place += row
                for row in range(row_count):
                    memcpy(&number, view.data + 4 * row, 4)
                    # The numbers may have changed since they were counted: never beyond the room.
                    if not 0 <= number < group_count or ends[number] >= row_count:
                        is_misfit = True
                        break
                    row_number = <int32_t>row
                    memcpy(rows.data + 4 * ends[number], &row_number, 4)
                    ends[number] += 1
        if is_misfit or row_count > INT32_MAX:
            raise ValueError(f"a row belongs to a group that is none of {group_count}")
        whole = memoryview(rows)
        place = 0
        for number in range(group_count):
            if ends[number] > place:
                groups.append((number, whole[4 * place : 4 * ends[number]]))
                place = ends[number]
    finally:
        free(ends)
    return groups


def split_columns(Py_ssize_t row_count, keys, values, headers, int64_t bytes_max, rows=None):
    cdef _RecordColumns columns = _RecordColumns(row_count, keys, values, headers, rows)
    cdef int64_t size = 0, total = 0
    cdef Py_ssize_t index = 0, start = 0
    cdef list ends = []
    cdef int problem = 0
    while index < columns.count:
        with nogil:
            while index < columns.count:
                problem = columns.measure(index, &size)
                if problem:
                    break
                size += RECORD_OVERHEAD_BYTES
                if index > start and total + size > bytes_max:
                    break
                total += size
                index += 1
        if problem:
            raise_column_problem(problem, index)
        ends.append(index)
        start = index
        total = 0
    return ends

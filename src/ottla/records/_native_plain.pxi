# The short ways of batches into the log: most of them are plain, and one call finds out.

cdef void put_big_endian(uint8_t *at, uint64_t value, int size) noexcept nogil:
    cdef int index
    for index in range(size):
        at[index] = <uint8_t> (value >> (8 * (size - 1 - index)))


def stamp_plain(
    data,
    int64_t base_offset,
    int32_t leader_epoch,
    Py_ssize_t size_max,
    int64_t timestamp_max,
    bint needs_keys,
):
    cdef _View view = _View(data)
    cdef Header header
    cdef Walk walk
    cdef int problem
    if view.buffer.readonly or not HEADER_BYTES <= view.size <= size_max:
        return None
    # Before the checksum: it would be made for nothing.
    if view.data[ATTRIBUTES_AT + 1] & (COMPRESSION_MASK | LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT):
        return None
    with nogil:
        problem = check_framing(view.data, view.size, 0, True, &header)
        if not problem and header.batch_length + LENGTH_PREFIX != view.size:
            problem = LENGTH
        if not problem:
            problem = check_walk(view.data + HEADER_BYTES, header.batch_length - LENGTH_MIN, &header, True, &walk)
    if problem or not walk.is_in_order or walk.max_timestamp != header.max_timestamp or walk.max_timestamp > timestamp_max:
        return None
    if needs_keys and walk.null_key_index >= 0:
        return None
    put_big_endian(<uint8_t *> view.data, <uint64_t> base_offset, 8)
    put_big_endian(<uint8_t *> view.data + LEADER_EPOCH_AT, <uint32_t> leader_epoch, 4)
    if header.producer_id < 0:
        return header.record_count, header.max_timestamp, None
    header.base_offset = base_offset
    header.leader_epoch = leader_epoch
    return header.record_count, header.max_timestamp, header_tuple(&header)


def walk_run(data, int64_t end_offset, int64_t bytes_since_index, int64_t index_interval_bytes):
    cdef _View view = _View(data)
    cdef Header found[SCAN_CHUNK]
    cdef Header *header
    cdef list index_entries = None, of_producers = None
    cdef int64_t base_offset = 0, last_offset, first_timestamp = 0, max_timestamp = 0, offset_of_max = 0
    cdef int32_t leader_epoch = 0
    cdef Py_ssize_t position = 0, scanned = 0, count, index
    cdef int problem = 0
    cdef bint cut = False
    while scanned < view.size and not cut:
        with nogil:
            count = scan_some(view.data, &scanned, view.size, True, found, SCAN_CHUNK, &problem, &cut)
        if problem:
            return None
        for index in range(count):
            header = &found[index]
            last_offset = header.base_offset + header.last_offset_delta
            if position == 0:
                base_offset, leader_epoch = header.base_offset, header.leader_epoch
                first_timestamp = max_timestamp = header.max_timestamp
                offset_of_max = last_offset
            if (
                header.base_offset < end_offset
                or header.leader_epoch != leader_epoch
                or header.attributes & CONTROL_BIT
            ):
                return None
            if header.max_timestamp > max_timestamp:
                max_timestamp, offset_of_max = header.max_timestamp, last_offset
            if bytes_since_index > index_interval_bytes:
                if index_entries is None:
                    index_entries = []
                index_entries.append((last_offset, position, max_timestamp, offset_of_max))
                bytes_since_index = 0
            if header.producer_id >= 0:
                if of_producers is None:
                    of_producers = []
                of_producers.append(header_tuple(header))
            bytes_since_index += LENGTH_PREFIX + header.batch_length
            position += LENGTH_PREFIX + header.batch_length
            end_offset = last_offset + 1
    if position == 0:
        return None
    return (
        position,
        base_offset,
        end_offset - 1,
        leader_epoch,
        first_timestamp,
        max_timestamp,
        offset_of_max,
        bytes_since_index,
        () if index_entries is None else index_entries,
        () if of_producers is None else of_producers,
    )

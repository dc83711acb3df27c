# The short way of a batch into the log: most batches are plain, and one call finds out and stamps them.

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

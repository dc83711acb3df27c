# The records of a batch for a consumer: each becomes a named tuple at once, without columns in between.
#
# The collector is told to leave them alone. A record of bytes, numbers and text cannot be part of a cycle, and whoever
# reads has thousands of them alive at a time: to look through them again and again was half of the cost of a consumer.

cdef extern from "Python.h":
    void leave_to_reference_counts "PyObject_GC_UnTrack"(void *instance)


def decode_named(
    records,
    int32_t record_count,
    int64_t base_offset,
    int64_t base_timestamp,
    append_time,
    int64_t start_offset,
    kind,
    topic,
    partition,
    timestamp_type,
    leader_epoch,
):
    cdef _View view = _View(records)
    cdef const uint8_t *at = view.data
    cdef const uint8_t *end = at + view.size
    cdef RawRecord record
    cdef int64_t index, timestamp, shared_timestamp = 0
    cdef int problem
    cdef object made, stamp = append_time
    cdef tuple no_headers = ()
    cdef list found = []
    if not (isinstance(kind, type) and issubclass(kind, tuple)):
        raise TypeError("records become named tuples")
    if record_count < 0 or record_count > view.size // RECORD_BYTES_MIN:
        raise_problem(COUNT)
    for index in range(record_count):
        problem = read_record(at, end, &record)
        if not problem and add_overflows(base_timestamp, record.timestamp_delta, &timestamp):
            problem = TIMESTAMP
        if not problem:
            problem = offset_problem(&record, base_offset)
        if problem:
            raise_problem(problem, index)
        at = record.end
        if base_offset + record.offset_delta < start_offset:
            continue
        # Records that were sent together mostly have the same time: one number serves them all.
        if append_time is None and (stamp is None or timestamp != shared_timestamp):
            shared_timestamp = timestamp
            stamp = timestamp
        made = new_named_tuple(kind, 11)
        put(made, 0, topic)
        put(made, 1, partition)
        put(made, 2, base_offset + record.offset_delta)
        put(made, 3, stamp)
        put(made, 4, timestamp_type)
        put(made, 5, owned(record.key, record.key_size))
        put(made, 6, owned(record.value, record.value_size))
        put(
            made,
            7,
            decode_headers(record.headers, record.end, record.header_count) if record.header_count else no_headers,
        )
        put(made, 8, leader_epoch)
        put(made, 9, record.key_size if record.key != NULL else -1)
        put(made, 10, record.value_size if record.value != NULL else -1)
        leave_to_reference_counts(<void *>made)
        found.append(made)
    if at != end:
        raise_problem(TRAILING)
    return found

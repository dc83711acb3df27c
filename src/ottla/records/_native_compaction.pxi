# What compaction does with records, compiled: part of _native.pyx.

cdef extern from "_siphash.h" nogil:
    ctypedef struct Hash128 "ottla_hash_128":
        uint64_t low
        uint64_t high

    Hash128 siphash_128 "ottla_siphash_128"(Hash128 key, const uint8_t *data, size_t size)
    uint64_t little_endian_64 "ottla_little_endian_64"(const uint8_t *data)
    uint64_t scaled "ottla_scaled"(uint64_t hash, uint64_t bound)


def siphash(bytes secret, data):
    """The hash that `KeyOffsetMap` knows keys by, so that a test can compare it with the published vectors."""
    cdef _View view = _View(data)
    cdef Hash128 hash = siphash_128(as_secret(secret), view.data, view.size)
    return hash.low.to_bytes(8, "little") + hash.high.to_bytes(8, "little")


cdef Hash128 as_secret(bytes secret) except *:
    cdef Hash128 key
    if len(secret) != 16:
        raise ValueError("the secret has 16 bytes")
    key.low = little_endian_64(<const uint8_t *>PyBytes_AS_STRING(secret))
    key.high = little_endian_64(<const uint8_t *>PyBytes_AS_STRING(secret) + 8)
    return key


cdef struct Slot:
    Hash128 hash
    int64_t end  # the key's latest offset + 1, so that a zeroed table is an empty one


cdef class KeyOffsetMap:
    """The latest offset of each key in bounded memory: an open table of 24-byte slots, at most nine tenths full.

    A slot holds 128 bits of SipHash under a secret of this map, not the key. The width makes an accidental collision
    (which would lose a record) as unlikely as a broken disk; the secret makes one that a producer prepares just as
    unlikely, which an unkeyed hash such as MD5 does not.
    """

    cdef Slot *slots
    cdef uint64_t slot_count
    cdef Hash128 secret
    cdef int64_t used
    cdef bint busy
    cdef readonly int64_t capacity
    cdef readonly bint is_full

    def __cinit__(self, int64_t memory_bytes, bytes secret=None):
        cdef int64_t slot_count = memory_bytes // <int64_t>sizeof(Slot)
        self.capacity = <int64_t>(slot_count * 0.9)
        if memory_bytes < 0 or self.capacity < 1:
            raise ValueError(f"{memory_bytes} bytes hold no key: at least {2 * sizeof(Slot)} are needed")
        self.secret = as_secret(secrets.token_bytes(16) if secret is None else secret)
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
        cdef Hash128 hash = siphash_128(self.secret, key, size)
        cdef Slot *slot = self.slots + scaled(hash.low, self.slot_count)
        while slot.end and not (slot.hash.low == hash.low and slot.hash.high == hash.high):
            slot += 1
            if slot == self.slots + self.slot_count:
                slot = self.slots
        slot.hash = hash
        return slot

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
                    to, 1 + varint_size(timestamp_delta) + (record.end - record.after_timestamp)
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

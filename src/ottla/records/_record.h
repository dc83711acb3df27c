/* A record of a batch: its numbers, how it is read and how it is written. For _native.pyx.
 *
 * Reading never trusts a byte: every pointer is compared with the end of its buffer before it is followed. Functions
 * return 0 or the number of the `Problem` (layout.py) that they found.
 */
#ifndef OTTLA_RECORD_H
#define OTTLA_RECORD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The walk over a batch keeps the fields of a record in registers only if all of it is inlined, which gains a sixth;
 * compilers decide otherwise when left alone. */
#define OTTLA_ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    OTTLA_PROBLEM_VARINT = 20,
    OTTLA_PROBLEM_RECORD_LENGTH = 21,
    OTTLA_PROBLEM_KEY_LENGTH = 22,
    OTTLA_PROBLEM_VALUE_LENGTH = 23,
    OTTLA_PROBLEM_HEADER_COUNT = 24,
    OTTLA_PROBLEM_HEADER_KEY = 25,
    OTTLA_PROBLEM_HEADER_VALUE = 26,
};

enum {
    OTTLA_RECORD_BYTES_MIN = 7,        /* as in layout.py */
    OTTLA_RECORD_HEADER_BYTES_MIN = 2,
};

/* A record as it lies in its section. A null key or value has no pointer. */
typedef struct {
    const uint8_t *start; /* of its length */
    const uint8_t *end;
    const uint8_t *after_timestamp;
    const uint8_t *key;
    const uint8_t *value;
    const uint8_t *headers;
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t key_size;
    int32_t value_size;
    int32_t header_count;
    uint8_t attributes;
} ottla_raw_record;

typedef struct {
    const uint8_t *key;
    const uint8_t *value;
    int32_t key_size;
    int32_t value_size;
} ottla_raw_header;

/* --- numbers ------------------------------------------------------------------------------------------------------ */

OTTLA_ALWAYS_INLINE uint64_t ottla_zigzag(int64_t value) { return (uint64_t)value << 1 ^ (uint64_t)(value >> 63); }

OTTLA_ALWAYS_INLINE int64_t ottla_unzigzag(uint64_t raw) { return (int64_t)(raw >> 1 ^ (0 - (raw & 1))); }

OTTLA_ALWAYS_INLINE int ottla_varint_size(int64_t value) {
    int size = 1;
    for (uint64_t raw = ottla_zigzag(value); raw > 0x7F; raw >>= 7)
        size++;
    return size;
}

OTTLA_ALWAYS_INLINE uint8_t *ottla_write_varint(uint8_t *to, int64_t value) {
    uint64_t raw = ottla_zigzag(value);
    for (; raw > 0x7F; raw >>= 7)
        *to++ = (uint8_t)(raw | 0x80);
    *to++ = (uint8_t)raw;
    return to;
}

/* A number of any length up to `bits`. The position behind it, or NULL if it runs past `end` or its width. */
static const uint8_t *ottla_read_long_varint(const uint8_t *at, const uint8_t *end, int bits, uint64_t *raw) {
    uint64_t result = 0;
    for (int shift = 0; at < end && shift < bits; shift += 7) {
        uint64_t byte = *at++;
        /* The last byte of a full-width number has room for few bits. */
        if (shift + 7 > bits && (byte & 0x7F) >> (bits - shift))
            return NULL;
        result |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            *raw = result;
            return at;
        }
    }
    return NULL;
}

/* Nearly all numbers of a record have one to three bytes. The slow path gets copies: a variable whose address leaves the
 * function cannot stay in a register. */
OTTLA_ALWAYS_INLINE const uint8_t *ottla_read_raw(const uint8_t *at, const uint8_t *end, int bits, uint64_t *raw) {
    if (at < end && *at < 0x80) {
        *raw = *at;
        return at + 1;
    }
    if (end - at >= 3) {
        uint32_t first = at[0], second = at[1], third = at[2];
        if (second < 0x80) {
            *raw = (first & 0x7F) | second << 7;
            return at + 2;
        }
        if (third < 0x80) {
            *raw = (first & 0x7F) | (second & 0x7F) << 7 | third << 14;
            return at + 3;
        }
    }
    uint64_t slow = 0;
    const uint8_t *behind = ottla_read_long_varint(at, end, bits, &slow);
    *raw = slow;
    return behind;
}

OTTLA_ALWAYS_INLINE const uint8_t *ottla_read_number(const uint8_t *at, const uint8_t *end, int bits, int64_t *value) {
    uint64_t raw;
    at = ottla_read_raw(at, end, bits, &raw);
    *value = ottla_unzigzag(raw);
    return at;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Bytes behind their length; no pointer and size 0 for a negative one: writers use -1, and Kafka reads any as null. */
OTTLA_ALWAYS_INLINE int ottla_read_nullable(const uint8_t **at, const uint8_t *end, const uint8_t **data,
                                            int32_t *size, int problem) {
    uint64_t raw;
    const uint8_t *behind = ottla_read_raw(*at, end, 32, &raw);
    if (behind == NULL)
        return OTTLA_PROBLEM_VARINT;
    if (raw & 1) { /* a negative length */
        *data = NULL;
        *size = 0;
        *at = behind;
        return 0;
    }
    uint64_t length = raw >> 1;
    if (length > (uint64_t)(end - behind))
        return problem;
    *data = behind;
    *size = (int32_t)length;
    *at = behind + length;
    return 0;
}

static int ottla_read_record_header(const uint8_t **at, const uint8_t *end, ottla_raw_header *header) {
    int problem = ottla_read_nullable(at, end, &header->key, &header->key_size, OTTLA_PROBLEM_HEADER_KEY);
    if (problem)
        return problem;
    if (header->key == NULL)
        return OTTLA_PROBLEM_HEADER_KEY;
    return ottla_read_nullable(at, end, &header->value, &header->value_size, OTTLA_PROBLEM_HEADER_VALUE);
}

static int ottla_skip_headers(const uint8_t *at, const uint8_t *end, int32_t count, const uint8_t **behind) {
    ottla_raw_header header;
    for (int32_t index = 0; index < count; index++) {
        int problem = ottla_read_record_header(&at, end, &header);
        if (problem)
            return problem;
    }
    *behind = at;
    return 0;
}

OTTLA_ALWAYS_INLINE int ottla_read_record(const uint8_t *at, const uint8_t *section_end, ottla_raw_record *record) {
    int64_t number;
    record->start = at;
    at = ottla_read_number(at, section_end, 32, &number);
    if (at == NULL)
        return OTTLA_PROBLEM_VARINT;
    if (number < OTTLA_RECORD_BYTES_MIN - 1 || number > section_end - at)
        return OTTLA_PROBLEM_RECORD_LENGTH;
    const uint8_t *end = at + number;
    record->end = end;
    record->attributes = *at++;
    at = ottla_read_number(at, end, 64, &record->timestamp_delta);
    if (at == NULL)
        return OTTLA_PROBLEM_VARINT;
    record->after_timestamp = at;
    at = ottla_read_number(at, end, 32, &number);
    if (at == NULL)
        return OTTLA_PROBLEM_VARINT;
    record->offset_delta = (int32_t)number;
    int problem = ottla_read_nullable(&at, end, &record->key, &record->key_size, OTTLA_PROBLEM_KEY_LENGTH);
    if (problem)
        return problem;
    problem = ottla_read_nullable(&at, end, &record->value, &record->value_size, OTTLA_PROBLEM_VALUE_LENGTH);
    if (problem)
        return problem;
    at = ottla_read_number(at, end, 32, &number);
    if (at == NULL)
        return OTTLA_PROBLEM_VARINT;
    record->headers = at;
    record->header_count = (int32_t)number;
    if (number) {
        if (number < 0 || number > (end - at) / OTTLA_RECORD_HEADER_BYTES_MIN)
            return OTTLA_PROBLEM_HEADER_COUNT;
        const uint8_t *behind = NULL;
        problem = ottla_skip_headers(at, end, (int32_t)number, &behind);
        if (problem)
            return problem;
        at = behind;
    }
    return at == end ? 0 : OTTLA_PROBLEM_RECORD_LENGTH;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

OTTLA_ALWAYS_INLINE int64_t ottla_nullable_size(const uint8_t *data, int64_t size) {
    return data == NULL ? 1 : ottla_varint_size(size) + size;
}

OTTLA_ALWAYS_INLINE uint8_t *ottla_write_nullable(uint8_t *to, const uint8_t *data, int64_t size) {
    if (data == NULL) {
        *to = 1; /* a length of -1 */
        return to + 1;
    }
    to = ottla_write_varint(to, size);
    memcpy(to, data, (size_t)size);
    return to + size;
}

#endif

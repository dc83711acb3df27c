/* CRC-32C (Castagnoli) and loads of big-endian numbers, for _native.pyx.
 *
 * Where the CPU has an instruction for it, three streams run side by side: the instruction takes three cycles but a new
 * one may start in each, so a single stream would use a third of it. A stream's checksum is carried over the bytes of
 * the streams behind it by a table, because appending zero bytes is linear in the checksum.
 */
#ifndef OTTLA_CRC32C_H
#define OTTLA_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define OTTLA_CRC32C_POLYNOMIAL 0x82F63B78u
#define OTTLA_CRC32C_LONG 1024 /* bytes of a stream: long for the bulk, short for what is left of it */
#define OTTLA_CRC32C_SHORT 128

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define OTTLA_BIG_ENDIAN 1
#else
#define OTTLA_BIG_ENDIAN 0
#endif

static inline uint64_t ottla_load_64(const uint8_t *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

static inline int64_t ottla_big_endian_64(const uint8_t *bytes) {
    uint64_t word = ottla_load_64(bytes);
    return (int64_t)(OTTLA_BIG_ENDIAN ? word : __builtin_bswap64(word));
}

static inline int32_t ottla_big_endian_32(const uint8_t *bytes) {
    uint32_t word;
    memcpy(&word, bytes, sizeof word);
    return (int32_t)(OTTLA_BIG_ENDIAN ? word : __builtin_bswap32(word));
}

static inline int16_t ottla_big_endian_16(const uint8_t *bytes) {
    return (int16_t)((uint16_t)bytes[0] << 8 | bytes[1]);
}

static uint32_t ottla_crc32c_table[8][256];

/* Eight bytes a step, by eight tables. */
static uint32_t ottla_crc32c_by_table(uint32_t crc, const uint8_t *bytes, size_t size) {
    for (; size >= 8; bytes += 8, size -= 8) {
        uint32_t low = crc ^ ((uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                              (uint32_t)bytes[3] << 24);
        crc = ottla_crc32c_table[7][low & 0xFF] ^ ottla_crc32c_table[6][low >> 8 & 0xFF] ^
              ottla_crc32c_table[5][low >> 16 & 0xFF] ^ ottla_crc32c_table[4][low >> 24] ^
              ottla_crc32c_table[3][bytes[4]] ^ ottla_crc32c_table[2][bytes[5]] ^
              ottla_crc32c_table[1][bytes[6]] ^ ottla_crc32c_table[0][bytes[7]];
    }
    for (; size; bytes++, size--)
        crc = crc >> 8 ^ ottla_crc32c_table[0][(crc ^ *bytes) & 0xFF];
    return crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>
#define OTTLA_CRC32C_HARDWARE __attribute__((target("sse4.2")))
#define OTTLA_CRC32C_WORD(crc, word) _mm_crc32_u64(crc, word)
#define OTTLA_CRC32C_BYTE(crc, byte) _mm_crc32_u8((uint32_t)(crc), byte)
#define OTTLA_CRC32C_HAS_HARDWARE() __builtin_cpu_supports("sse4.2")
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32) && !OTTLA_BIG_ENDIAN
#include <arm_acle.h>
#define OTTLA_CRC32C_HARDWARE
#define OTTLA_CRC32C_WORD(crc, word) __crc32cd((uint32_t)(crc), word)
#define OTTLA_CRC32C_BYTE(crc, byte) __crc32cb((uint32_t)(crc), byte)
#define OTTLA_CRC32C_HAS_HARDWARE() 1
#endif

#ifdef OTTLA_CRC32C_HARDWARE

static uint32_t ottla_crc32c_over_long[4][256], ottla_crc32c_over_short[4][256];

static inline uint32_t ottla_crc32c_shift(uint32_t table[4][256], uint32_t crc) {
    return table[0][crc & 0xFF] ^ table[1][crc >> 8 & 0xFF] ^ table[2][crc >> 16 & 0xFF] ^ table[3][crc >> 24];
}

/* What each byte of a checksum becomes when `zeros` zero bytes follow. */
static void ottla_crc32c_make_shift(uint32_t table[4][256], size_t zeros) {
    static const uint8_t nothing[OTTLA_CRC32C_LONG];
    for (int place = 0; place < 4; place++)
        for (uint32_t byte = 0; byte < 256; byte++)
            table[place][byte] = ottla_crc32c_by_table(byte << 8 * place, nothing, zeros);
}

OTTLA_CRC32C_HARDWARE static inline uint32_t ottla_crc32c_three(uint32_t crc, const uint8_t *bytes, size_t stream,
                                                                uint32_t shift[4][256]) {
    uint64_t first = crc, second = 0, third = 0;
    for (size_t at = 0; at < stream; at += 8) {
        first = OTTLA_CRC32C_WORD(first, ottla_load_64(bytes + at));
        second = OTTLA_CRC32C_WORD(second, ottla_load_64(bytes + stream + at));
        third = OTTLA_CRC32C_WORD(third, ottla_load_64(bytes + 2 * stream + at));
    }
    uint32_t both = ottla_crc32c_shift(shift, (uint32_t)first) ^ (uint32_t)second;
    return ottla_crc32c_shift(shift, both) ^ (uint32_t)third;
}

OTTLA_CRC32C_HARDWARE static uint32_t ottla_crc32c_by_instruction(uint32_t crc, const uint8_t *bytes, size_t size) {
    for (; size >= 3 * OTTLA_CRC32C_LONG; bytes += 3 * OTTLA_CRC32C_LONG, size -= 3 * OTTLA_CRC32C_LONG)
        crc = ottla_crc32c_three(crc, bytes, OTTLA_CRC32C_LONG, ottla_crc32c_over_long);
    for (; size >= 3 * OTTLA_CRC32C_SHORT; bytes += 3 * OTTLA_CRC32C_SHORT, size -= 3 * OTTLA_CRC32C_SHORT)
        crc = ottla_crc32c_three(crc, bytes, OTTLA_CRC32C_SHORT, ottla_crc32c_over_short);
    uint64_t wide = crc;
    for (; size >= 8; bytes += 8, size -= 8)
        wide = OTTLA_CRC32C_WORD(wide, ottla_load_64(bytes));
    crc = (uint32_t)wide;
    for (; size; bytes++, size--)
        crc = OTTLA_CRC32C_BYTE(crc, *bytes);
    return crc;
}

#endif

typedef uint32_t (*ottla_crc32c_function)(uint32_t, const uint8_t *, size_t);
static ottla_crc32c_function ottla_crc32c_best = ottla_crc32c_by_table;

/* Once, before anything else here is called. */
static void ottla_crc32c_prepare(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ OTTLA_CRC32C_POLYNOMIAL : crc >> 1;
        ottla_crc32c_table[0][byte] = crc;
    }
    for (int step = 1; step < 8; step++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = ottla_crc32c_table[step - 1][byte];
            ottla_crc32c_table[step][byte] = crc >> 8 ^ ottla_crc32c_table[0][crc & 0xFF];
        }
#ifdef OTTLA_CRC32C_HARDWARE
    if (OTTLA_CRC32C_HAS_HARDWARE()) {
        ottla_crc32c_make_shift(ottla_crc32c_over_long, OTTLA_CRC32C_LONG);
        ottla_crc32c_make_shift(ottla_crc32c_over_short, OTTLA_CRC32C_SHORT);
        ottla_crc32c_best = ottla_crc32c_by_instruction;
    }
#endif
}

static inline uint32_t ottla_crc32c_of(uint32_t value, const uint8_t *bytes, size_t size) {
    return ~ottla_crc32c_best(~value, bytes, size);
}

static inline uint32_t ottla_crc32c_portable(uint32_t value, const uint8_t *bytes, size_t size) {
    return ~ottla_crc32c_by_table(~value, bytes, size);
}

#endif

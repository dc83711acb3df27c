/* SipHash-2-4 with a result of 128 bits (Aumasson, Bernstein): a keyed hash, fast on strings as short as keys are.
 * For _native.pyx. */
#ifndef OTTLA_SIPHASH_H
#define OTTLA_SIPHASH_H

#include "_crc32c.h"

typedef struct {
    uint64_t low, high;
} ottla_hash_128;

static inline uint64_t ottla_rotate(uint64_t word, int bits) { return word << bits | word >> (64 - bits); }

static inline uint64_t ottla_little_endian_64(const uint8_t *bytes) {
    uint64_t word = ottla_load_64(bytes);
    return OTTLA_BIG_ENDIAN ? __builtin_bswap64(word) : word;
}

static inline void ottla_sip_rounds(uint64_t v[4], int count) {
    while (count--) {
        v[0] += v[1];
        v[1] = ottla_rotate(v[1], 13) ^ v[0];
        v[0] = ottla_rotate(v[0], 32);
        v[2] += v[3];
        v[3] = ottla_rotate(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = ottla_rotate(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = ottla_rotate(v[1], 17) ^ v[2];
        v[2] = ottla_rotate(v[2], 32);
    }
}

static ottla_hash_128 ottla_siphash_128(ottla_hash_128 key, const uint8_t *bytes, size_t size) {
    uint64_t v[4] = {
        key.low ^ 0x736f6d6570736575u,
        key.high ^ 0x646f72616e646f6du ^ 0xee,
        key.low ^ 0x6c7967656e657261u,
        key.high ^ 0x7465646279746573u,
    };
    uint64_t last = (uint64_t)size << 56;
    for (; size >= 8; bytes += 8, size -= 8) {
        uint64_t word = ottla_little_endian_64(bytes);
        v[3] ^= word;
        ottla_sip_rounds(v, 2);
        v[0] ^= word;
    }
    for (size_t index = 0; index < size; index++)
        last |= (uint64_t)bytes[index] << 8 * index;
    v[3] ^= last;
    ottla_sip_rounds(v, 2);
    v[0] ^= last;
    ottla_hash_128 hash;
    v[2] ^= 0xee;
    ottla_sip_rounds(v, 4);
    hash.low = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    ottla_sip_rounds(v, 4);
    hash.high = v[0] ^ v[1] ^ v[2] ^ v[3];
    return hash;
}

/* A number below `bound`, spread evenly: the high half of the product, cheaper than a remainder. */
static inline uint64_t ottla_scaled(uint64_t hash, uint64_t bound) {
    return (uint64_t)((unsigned __int128)hash * bound >> 64);
}

#endif

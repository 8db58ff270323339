/* lookup3.h - Bob Jenkins' hash of May 2006 (lookup3.c, "hashlittle"), the checksum of HDF5's metadata. */
#ifndef ZS_LOOKUP3_H
#define ZS_LOOKUP3_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint32_t a, b, c;
} zs_lookup3_state;

static inline uint32_t zs_lookup3_turn(uint32_t word, int bits) { return word << bits | word >> (32 - bits); }

static inline void zs_lookup3_add(zs_lookup3_state *now, const uint8_t *data) {
    uint32_t words[3];
    for (int at = 0; at < 3; at++, data += 4)
        words[at] = data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
    now->a += words[0];
    now->b += words[1];
    now->c += words[2];
}

static inline void zs_lookup3_mix(zs_lookup3_state *now) {
    static const int bits[6] = {4, 6, 8, 16, 19, 4};
    uint32_t a = now->a, b = now->b, c = now->c;
    for (int at = 0; at < 6; at++) {
        uint32_t mixed = (a - c) ^ zs_lookup3_turn(c, bits[at]);
        uint32_t sum = c + b;
        a = b;
        b = sum;
        c = mixed;
    }
    now->a = a;
    now->b = b;
    now->c = c;
}

static uint32_t zs_lookup3(const uint8_t *data, size_t size) {
    static const int bits[7] = {14, 11, 25, 16, 4, 14, 24};
    uint32_t start = 0xdeadbeefu + (uint32_t)size;
    zs_lookup3_state now = {start, start, start};
    for (; size > 12; data += 12, size -= 12) {
        zs_lookup3_add(&now, data);
        zs_lookup3_mix(&now);
    }
    if (size == 0) return now.c;
    uint8_t rest[12] = {0};
    memcpy(rest, data, size);
    zs_lookup3_add(&now, rest);
    uint32_t a = now.a, b = now.b, c = now.c;
    for (int at = 0; at < 7; at++) {
        uint32_t mixed = (c ^ b) - zs_lookup3_turn(b, bits[at]);
        c = a;
        a = b;
        b = mixed;
    }
    /* The last of seven turns leaves the result in `b`. */
    return b;
}

#endif

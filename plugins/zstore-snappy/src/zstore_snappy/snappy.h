/* snappy.h - raw Snappy blocks, through the functions that zstore's C ABI asks for.
 *
 * A block is the decoded size as a varint, then elements. The low two bits of an element's first byte say what it is:
 * 0 a literal, 1 to 3 a copy of what was decoded before, with an offset of 11, 16 or 32 bits. */
#ifndef ZSTORE_SNAPPY_H
#define ZSTORE_SNAPPY_H

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "zstore_codec.h"

#define SNAPPY_SIZE_MAX UINT32_MAX
#define SNAPPY_BLOCK ((size_t)1 << 16) /* matches never reach out of it, so offsets take 16 bits */
#define SNAPPY_HASH_BITS 14
#define SNAPPY_MATCH 4 /* bytes that must agree for a copy */

static atomic_uint_fast64_t snappy_decodes;

static uint64_t snappy_decode_count(void) { return atomic_load(&snappy_decodes); }

static inline uint32_t snappy_load32(const uint8_t *at) {
    uint32_t v;
    memcpy(&v, at, 4);
    return v;
}

static size_t snappy_bound(const void *state, size_t size) {
    (void)state;
    return size > SNAPPY_SIZE_MAX ? SIZE_MAX : 32 + size + size / 6;
}

/* What the block claims to decode to; `*header_size` is where its elements begin. */
static int64_t snappy_header(const uint8_t *src, size_t src_size, size_t *header_size) {
    uint64_t size = 0;
    for (size_t at = 0; at < src_size && at < 5; at++) {
        size |= (uint64_t)(src[at] & 0x7f) << (7 * at);
        if (src[at] & 0x80) continue;
        *header_size = at + 1;
        return size > SNAPPY_SIZE_MAX ? ZSTORE_EDAMAGED : (int64_t)size;
    }
    return ZSTORE_EDAMAGED;
}

static int64_t snappy_decoded_size(const void *state, const void *src, size_t src_size) {
    size_t header_size;
    (void)state;
    return snappy_header(src, src_size, &header_size);
}

/* A copy may overlap what it writes: it then repeats a pattern of `offset` bytes. */
static inline void snappy_repeat(uint8_t *dst, size_t offset, size_t size) {
    const uint8_t *from = dst - offset;
    if (offset >= size) {
        memcpy(dst, from, size);
        return;
    }
    for (size_t i = 0; i < size; i++) dst[i] = from[i];
}

static int64_t snappy_decode(const void *state, const void *source, size_t src_size, void *target, size_t capacity) {
    const uint8_t *src = source;
    uint8_t *dst = target;
    size_t at, written = 0;
    const int64_t claim = snappy_header(src, src_size, &at);
    (void)state;
    if (claim < 0) return claim;
    if ((uint64_t)claim > capacity) return ZSTORE_ECAPACITY;
    const size_t whole = (size_t)claim;
    while (at < src_size) {
        const uint8_t tag = src[at++];
        const size_t kind = tag & 3;
        /* How many bytes follow the tag, besides a literal's own. */
        const size_t extra = kind == 0 ? (tag >> 2 < 60 ? 0 : (size_t)(tag >> 2) - 59) : kind == 3 ? 4 : kind;
        if (src_size - at < extra) return ZSTORE_EDAMAGED;
        uint32_t number = 0;
        for (size_t i = 0; i < extra; i++) number |= (uint32_t)src[at + i] << (8 * i);
        at += extra;
        if (kind == 0) {
            const size_t size = 1 + (extra ? (size_t)number : (size_t)(tag >> 2));
            if (size > src_size - at || size > whole - written) return ZSTORE_EDAMAGED;
            memcpy(dst + written, src + at, size);
            at += size;
            written += size;
            continue;
        }
        const size_t size = kind == 1 ? 4 + (size_t)((tag >> 2) & 7) : 1 + (size_t)(tag >> 2);
        const size_t offset = kind == 1 ? ((size_t)(tag >> 5) << 8) | number : number;
        if (offset == 0 || offset > written || size > whole - written) return ZSTORE_EDAMAGED;
        snappy_repeat(dst + written, offset, size);
        written += size;
    }
    if (written != whole) return ZSTORE_EDAMAGED;
    atomic_fetch_add_explicit(&snappy_decodes, 1, memory_order_relaxed);
    return claim;
}

static uint8_t *snappy_literal(uint8_t *dst, const uint8_t *src, size_t size) {
    if (size == 0) return dst;
    const size_t n = size - 1; /* below SNAPPY_BLOCK: two bytes hold it */
    if (n < 60) {
        *dst++ = (uint8_t)(n << 2);
    } else if (n < 256) {
        *dst++ = 60 << 2;
        *dst++ = (uint8_t)n;
    } else {
        *dst++ = 61 << 2;
        *dst++ = (uint8_t)n;
        *dst++ = (uint8_t)(n >> 8);
    }
    memcpy(dst, src, size);
    return dst + size;
}

static uint8_t *snappy_copy(uint8_t *dst, size_t offset, size_t size) {
    while (size) {
        const size_t n = size > 64 ? 64 : size;
        *dst++ = (uint8_t)(2 | (n - 1) << 2);
        *dst++ = (uint8_t)offset;
        *dst++ = (uint8_t)(offset >> 8);
        size -= n;
    }
    return dst;
}

/* One block's elements: at each place, the last place with the same four bytes is looked up by their hash. */
static uint8_t *snappy_block(uint8_t *dst, const uint8_t *src, size_t size, uint16_t *table) {
    size_t done = 0, at = 1, misses = 0;
    memset(table, 0, sizeof(uint16_t) << SNAPPY_HASH_BITS);
    while (at + SNAPPY_MATCH <= size) {
        const uint32_t four = snappy_load32(src + at);
        uint16_t *slot = &table[(four * 0x1e35a7bdu) >> (32 - SNAPPY_HASH_BITS)];
        const size_t from = *slot;
        *slot = (uint16_t)at;
        if (snappy_load32(src + from) != four) {
            at += 1 + (misses++ >> 5); /* what does not compress is passed over ever faster */
            continue;
        }
        size_t length = SNAPPY_MATCH;
        while (at + length < size && src[from + length] == src[at + length]) length++;
        dst = snappy_literal(dst, src + done, at - done);
        dst = snappy_copy(dst, at - from, length);
        at += length;
        done = at;
        misses = 0;
    }
    return snappy_literal(dst, src + done, size - done);
}

static int64_t snappy_encode(const void *state, const void *source, size_t src_size, void *target, size_t capacity) {
    const uint8_t *src = source;
    uint8_t *dst = target;
    uint16_t table[(size_t)1 << SNAPPY_HASH_BITS];
    if (src_size > SNAPPY_SIZE_MAX) return ZSTORE_EINTERNAL;
    if (capacity < snappy_bound(state, src_size)) return ZSTORE_ECAPACITY;
    size_t left = src_size;
    for (; left >= 0x80; left >>= 7) *dst++ = (uint8_t)(left | 0x80);
    *dst++ = (uint8_t)left;
    for (size_t at = 0; at < src_size; at += SNAPPY_BLOCK) {
        const size_t size = src_size - at < SNAPPY_BLOCK ? src_size - at : SNAPPY_BLOCK;
        dst = snappy_block(dst, src + at, size, table);
    }
    return dst - (uint8_t *)target;
}

static void snappy_destroy(zstore_codec *codec) { free(codec); }

static zstore_codec *snappy_new(void) {
    zstore_codec *codec = calloc(1, sizeof(zstore_codec));
    if (codec == NULL) return NULL;
    codec->struct_size = sizeof(zstore_codec);
    codec->encode_bound = snappy_bound;
    codec->encode = snappy_encode;
    codec->decode = snappy_decode;
    codec->decoded_size = snappy_decoded_size;
    codec->destroy = snappy_destroy;
    return codec;
}

#endif

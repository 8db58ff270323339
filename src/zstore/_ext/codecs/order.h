/* order.h - items with parts of either byte order, turned round: the step between memory and what is stored.
 *
 * A layout's one swap unit is for items that are reversed throughout, and costs nothing. This is for the others,
 * structured items above all; encoding and decoding are the same. */
#ifndef ZS_CODEC_ORDER_H
#define ZS_CODEC_ORDER_H

#include "runtime.h"

#define ZS_ORDER_PARTS 64
#define ZS_ORDER_BLOCK ((size_t)16 << 10) /* turned round while it is in the nearest cache */

typedef struct zs_order_part {
    int64_t offset, unit, count; /* `count` units of `unit` bytes (2, 4, 8 or 16), from `offset` within an item */
} zs_order_part;

typedef struct zs_order_params {
    int64_t item;
    int64_t n_parts;
    zs_order_part part[ZS_ORDER_PARTS];
} zs_order_params;

static size_t zs_order_bound(const void *state, size_t src_size) {
    (void)state;
    return src_size;
}

static inline unsigned __int128 zs_order_swap16(unsigned __int128 v) {
    return (unsigned __int128)__builtin_bswap64((uint64_t)v) << 64 | __builtin_bswap64((uint64_t)(v >> 64));
}

#define ZS_ORDER_PART(T, SWAP)                                    \
    do {                                                          \
        for (size_t i = 0; i < n; i++, at += item)                \
            for (int64_t k = 0; k < part->count; k++) {           \
                T v;                                              \
                memcpy(&v, at + k * (int64_t)sizeof v, sizeof v); \
                v = SWAP(v);                                      \
                memcpy(at + k * (int64_t)sizeof v, &v, sizeof v); \
            }                                                     \
    } while (0)

static void zs_order_turn(const zs_order_part *part, uint8_t *items, size_t n, int64_t item) {
    uint8_t *at = items + part->offset;
    if (part->unit == 2) ZS_ORDER_PART(uint16_t, __builtin_bswap16);
    else if (part->unit == 4) ZS_ORDER_PART(uint32_t, __builtin_bswap32);
    else if (part->unit == 8) ZS_ORDER_PART(uint64_t, __builtin_bswap64);
    else ZS_ORDER_PART(unsigned __int128, zs_order_swap16);
}

static int64_t zs_order_apply(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity) {
    const zs_order_params *params = state;
    if (src_size > dst_capacity) return ZSTORE_ECAPACITY;
    const size_t item = (size_t)params->item, whole = src_size / item;
    const size_t step = ZS_ORDER_BLOCK / item ? ZS_ORDER_BLOCK / item : 1;
    for (size_t first = 0; first < whole; first += step) {
        const size_t n = whole - first < step ? whole - first : step;
        uint8_t *items = (uint8_t *)dst + first * item;
        memcpy(items, (const uint8_t *)src + first * item, n * item);
        for (int64_t p = 0; p < params->n_parts; p++) zs_order_turn(&params->part[p], items, n, params->item);
    }
    /* What is left of a damaged chunk: its size tells. */
    memcpy((uint8_t *)dst + whole * item, (const uint8_t *)src + whole * item, src_size - whole * item);
    return (int64_t)src_size;
}

static int64_t zs_order_size(const void *state, const void *src, size_t src_size) {
    (void)state;
    (void)src;
    return (int64_t)src_size;
}

static zstore_codec *zs_order_new(const zs_order_params *params) {
    static const zstore_codec functions = {
        .encode_bound = zs_order_bound,
        .encode = zs_order_apply,
        .decode = zs_order_apply,
        .decoded_size = zs_order_size,
    };
    return zs_codec_new(&functions, params, sizeof(*params));
}

#endif

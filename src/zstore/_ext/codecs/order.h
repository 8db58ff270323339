/* order.h - byte swapping of parts of items, as a codec: for items that are stored in another byte order than in
 * memory.
 *
 * Items of a single unit are swapped by the engine while it copies them (a layout's swap unit). This is for all others,
 * most of them structured; encoding and decoding are the same. */
#ifndef ZS_CODEC_ORDER_H
#define ZS_CODEC_ORDER_H

#include "runtime.h"

#define ZS_ORDER_PARTS 64
#define ZS_ORDER_BLOCK ((size_t)16 << 10) /* bytes copied and swapped at a time, while they are in the L1 cache */

typedef struct zs_order_part {
    int64_t offset, unit, count; /* `count` units of `unit` bytes (2, 4, 8 or 16), from `offset` within an item */
} zs_order_part;

typedef struct zs_order_params {
    int64_t item;
    int64_t n_parts;
    zs_order_part part[ZS_ORDER_PARTS];
} zs_order_params;

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

static void zs_order_swap(const zs_order_part *part, uint8_t *items, size_t n, int64_t item) {
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
        for (int64_t p = 0; p < params->n_parts; p++) zs_order_swap(&params->part[p], items, n, params->item);
    }
    /* The rest of a damaged chunk is copied, so that its size shows the damage. */
    memcpy((uint8_t *)dst + whole * item, (const uint8_t *)src + whole * item, src_size - whole * item);
    return (int64_t)src_size;
}

static zstore_codec *zs_order_new(const zs_order_params *params) {
    static const zstore_codec functions = {
        .encode_bound = zs_same_bound,
        .encode = zs_order_apply,
        .decode = zs_order_apply,
        .decoded_size = zs_same_size,
    };
    return zs_codec_new(&functions, params, sizeof(*params));
}

#endif

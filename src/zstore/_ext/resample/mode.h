/* mode.h - the most frequent value of every window; among equals, the first to reach the top count in
 * row-major order. Nodata does not count; NaN equals NaN and -0 equals 0. Works on bit patterns of 1, 2, 4 or 8 bytes.
 */
#ifndef ZSTORE_RESAMPLE_MODE_H
#define ZSTORE_RESAMPLE_MODE_H

#include "block.h"

/* Up to this many cells every pair is compared, many windows at a time; beyond, each window is counted in a table. */
ZR_INLINE int64_t zr_mode_paired(size_t size) { return size == 1 ? 100 : size == 2 ? 64 : size == 4 ? 36 : 25; }

/* Masks rather than conditions: compilers would branch, and a branch keeps the loops from becoming vectors. */
ZR_INLINE uint32_t zr_key_f32(uint32_t bits)
{
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    const uint32_t is_nan = 0u - (uint32_t)(magnitude > 0x7F800000u), is_set = 0u - (uint32_t)(magnitude != 0);
    return ((bits & ~is_nan) | (0x7FC00000u & is_nan)) & is_set;
}
ZR_INLINE uint64_t zr_key_f64(uint64_t bits)
{
    const uint64_t magnitude = bits & 0x7FFFFFFFFFFFFFFFull;
    const uint64_t is_nan = 0u - (uint64_t)(magnitude > 0x7FF0000000000000ull), is_set = 0u - (uint64_t)(magnitude != 0);
    return ((bits & ~is_nan) | (0x7FF8000000000000ull & is_nan)) & is_set;
}

typedef struct {
    uint64_t *keys;
    int64_t *counts; /* 0: empty */
    uint64_t capacity;
} zr_tally;

ZR_INLINE uint64_t zr_tally_slot(const zr_tally *tally, uint64_t key)
{
    uint64_t at = (key * 0x9E3779B97F4A7C15ull) >> 20 & (tally->capacity - 1);
    while (tally->counts[at] && tally->keys[at] != key) at = (at + 1) & (tally->capacity - 1);
    return at;
}

#define ZR_ID 1
#define ZR_T uint8_t
#define ZR_S int8_t
#define ZR_KEY(bits) (bits)
#include "mode_windows.h"
#define ZR_ID 2
#define ZR_T uint16_t
#define ZR_S int16_t
#define ZR_KEY(bits) (bits)
#include "mode_windows.h"
#define ZR_ID 4
#define ZR_T uint32_t
#define ZR_S int32_t
#define ZR_KEY(bits) (bits)
#include "mode_windows.h"
#define ZR_ID 8
#define ZR_T uint64_t
#define ZR_S int64_t
#define ZR_KEY(bits) (bits)
#include "mode_windows.h"
#define ZR_ID f32
#define ZR_T uint32_t
#define ZR_S int32_t
#define ZR_KEY(bits) zr_key_f32(bits)
#include "mode_windows.h"
#define ZR_ID f64
#define ZR_T uint64_t
#define ZR_S int64_t
#define ZR_KEY(bits) zr_key_f64(bits)
#include "mode_windows.h"

#endif

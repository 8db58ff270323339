/* block.h - what one call of a resampling kernel sees, and how kernels are written for many types.
 *
 * A kernel makes `count` neighbouring outputs out of `row_count` contiguous, aligned rows in native byte order.
 * Output i of lane l is made of the cells rows[r][(i * factor + k) * lanes + l], 0 <= k < factor, in row-major
 * order of the window: r first, then k. Every window is full: the driver hands over the narrower one at the far edge
 * in a call of its own.
 */
#ifndef ZSTORE_RESAMPLE_BLOCK_H
#define ZSTORE_RESAMPLE_BLOCK_H

#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "clones.h"

/* A cell that differs from itself is a NaN; the templates ask that of every type. */
#pragma GCC diagnostic ignored "-Wtautological-compare"

#define ZR_PASTE_(a, b) a##_##b
#define ZR_PASTE(a, b) ZR_PASTE_(a, b)
#define ZR_FN(name) ZR_PASTE(name, ZR_ID)

enum { ZR_BLOCK = 4096 }; /* input cells of one row per kernel call, unless one window alone is wider */
enum { ZR_SCRATCH = 64 }; /* bytes of scratch per such cell */

enum { ZR_PLAIN = 0, ZR_SKIP_VALUE = 1, ZR_SKIP_NAN = 2 };

typedef union {
    uint64_t bits;
    uint8_t u8;
    int8_t i8;
    uint16_t u16;
    int16_t i16;
    uint32_t u32;
    int32_t i32;
    uint64_t u64;
    int64_t i64;
    float f32;
    double f64;
} zr_value;

/* Two neighbouring cells as one word. */
typedef uint16_t __attribute__((may_alias, aligned(1))) zr_pair8;
typedef uint32_t __attribute__((may_alias, aligned(1))) zr_pair16;

/* The cell if it is to be kept, else 0: without the branch that compilers make of a conditional here. */
ZR_INLINE float zr_keep_f32(float cell, int keep)
{
    uint32_t bits;
    memcpy(&bits, &cell, sizeof bits);
    bits &= 0u - (uint32_t)keep;
    memcpy(&cell, &bits, sizeof bits);
    return cell;
}

ZR_INLINE double zr_keep_f64(double cell, int keep)
{
    uint64_t bits;
    memcpy(&bits, &cell, sizeof bits);
    bits &= 0u - (uint64_t)keep;
    memcpy(&cell, &bits, sizeof bits);
    return cell;
}

typedef struct {
    const char *const *rows;
    int64_t row_count;
    int64_t factor;
    int64_t lanes;
    int64_t count;
    int skip;            /* ZR_PLAIN, ZR_SKIP_VALUE or ZR_SKIP_NAN */
    zr_value nodata;     /* what an output without a valid cell becomes */
    zr_value substitute; /* what a valid output that equals nodata becomes */
    int quarters;        /* of the cells that lie below a quantile */
    int64_t item_size;
    int *out_of_memory; /* set by a kernel that needed memory and got none */
    void *scratch; /* ZR_SCRATCH * (ZR_BLOCK + 16) bytes, aligned to 64 */
} zr_block;

typedef void (*zr_kernel)(const zr_block *block, void *out);

#endif

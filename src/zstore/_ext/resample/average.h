/* average.h - means of windows: GDAL's arithmetic.
 *
 * 8- and 16-bit unsigned: floor(x + 1/2). Other integers: half away from zero, 8- and 16-bit ones from the mean as a
 * float32. float32 in float64 sums, but a 2 x 2 window without nodata in float32 (columns first). float64 row by row.
 * 64-bit integers, where GDAL rounds through float64, are exact: 128-bit sums.
 */
#ifndef ZSTORE_RESAMPLE_AVERAGE_H
#define ZSTORE_RESAMPLE_AVERAGE_H

#include "block.h"

/* ---- sums: (suffix, cell, column sum, column count, window sum) ---- */
#define ZR_EXACT
#define ZR_T uint8_t
#define ZR_ID u8
#define ZR_V uint16_t
#define ZR_C uint8_t
#define ZR_H uint32_t
#include "sums.h"
#define ZR_ID u8w
#define ZR_V int64_t
#define ZR_C int64_t
#define ZR_H int64_t
#include "sums.h"
#undef ZR_T

#define ZR_T int8_t
#define ZR_ID i8
#define ZR_V int16_t
#define ZR_C uint8_t
#define ZR_H int32_t
#include "sums.h"
#define ZR_ID i8w
#define ZR_V int64_t
#define ZR_C int64_t
#define ZR_H int64_t
#include "sums.h"
#undef ZR_T

#define ZR_T uint16_t
#define ZR_ID u16
#define ZR_V uint32_t
#define ZR_C uint16_t
#define ZR_H uint32_t
#include "sums.h"
#define ZR_ID u16w
#define ZR_V int64_t
#define ZR_C int64_t
#define ZR_H int64_t
#include "sums.h"
#undef ZR_T

#define ZR_T int16_t
#define ZR_ID i16
#define ZR_V int32_t
#define ZR_C uint16_t
#define ZR_H int32_t
#include "sums.h"
#define ZR_ID i16w
#define ZR_V int64_t
#define ZR_C int64_t
#define ZR_H int64_t
#include "sums.h"
#undef ZR_T

#define ZR_T uint32_t
#define ZR_ID u32w
#define ZR_V int64_t
#define ZR_C int64_t
#define ZR_H int64_t
#include "sums.h"
#undef ZR_T

#define ZR_T int32_t
#define ZR_ID i32w
#define ZR_V int64_t
#define ZR_C int64_t
#define ZR_H int64_t
#include "sums.h"
#undef ZR_T

#define ZR_T uint64_t
#define ZR_ID u64
#define ZR_V __int128
#define ZR_C int64_t
#define ZR_H __int128
#include "sums.h"
#undef ZR_T

#define ZR_T int64_t
#define ZR_ID i64
#define ZR_V __int128
#define ZR_C int64_t
#define ZR_H __int128
#include "sums.h"
#undef ZR_T

#undef ZR_EXACT
#undef ZR_KEEP
#define ZR_KEEP zr_keep_f32
#define ZR_T float
#define ZR_ID f32
#define ZR_V double
#define ZR_C int32_t
#define ZR_H double
#include "sums.h"
#undef ZR_T
#undef ZR_KEEP
#undef ZR_LOAD
#define ZR_T double
#define ZR_ID f64
#define ZR_V double
#define ZR_C int64_t
#define ZR_H double
#include "sums.h"
#undef ZR_T
#undef ZR_KEEP
#undef ZR_LOAD

/* ---- rounding: a window sum and how many cells it holds -> the mean. Window sums and counts are exact. ---- */
#define ZR_NARROW_MEANS(ID, T, H, F, SIGNED)                                                                       \
    ZR_INLINE void ZR_PASTE(means, ID)(const H *restrict sum, int64_t outputs, int64_t cells, T *restrict out)     \
    {                                                                                                              \
        /* (|sum| + n/2 + 1/4) / n lies at least 1/(4n) from any integer: more than the product can be off. */     \
        const F inverse = (F)1 / (F)cells, bias = (F)0.5 * (F)cells + (F)0.25;                                     \
        for (int64_t i = 0; i < outputs; i++) {                                                                    \
            const int32_t magnitude = (int32_t)(SIGNED && (int32_t)sum[i] < 0 ? -(int32_t)sum[i] : (int32_t)sum[i]); \
            const int32_t mean = (int32_t)(((F)magnitude + bias) * inverse);                                       \
            out[i] = (T)(SIGNED && (int32_t)sum[i] < 0 ? -mean : mean);                                            \
        }                                                                                                          \
    }                                                                                                              \
    ZR_INLINE void ZR_PASTE(valid_means, ID)(const H *restrict sum, const H *restrict valid, int64_t outputs,      \
                                             T *restrict out, T nodata, T substitute)                              \
    {                                                                                                              \
        for (int64_t i = 0; i < outputs; i++) {                                                                    \
            const int32_t magnitude = (int32_t)(SIGNED && (int32_t)sum[i] < 0 ? -(int32_t)sum[i] : (int32_t)sum[i]); \
            const int32_t cells = (int32_t)valid[i];                                                               \
            const F twice = (F)(2 * (cells + (cells == 0)));                                                       \
            const int32_t rounded = (int32_t)((F)(2 * magnitude + cells) / twice);                                 \
            T mean = (T)(SIGNED && (int32_t)sum[i] < 0 ? -rounded : rounded);                                      \
            mean = mean == nodata ? substitute : mean;                                                             \
            out[i] = cells ? mean : nodata;                                                                        \
        }                                                                                                          \
    }
ZR_NARROW_MEANS(u8, uint8_t, uint32_t, float, 0)
ZR_NARROW_MEANS(i8, int8_t, int32_t, float, 1)
ZR_NARROW_MEANS(u16, uint16_t, uint32_t, float, 0)
ZR_NARROW_MEANS(i16, int16_t, int32_t, float, 1)

/* through_float: GDAL's way with 8- and 16-bit signed cells, visible from 512 cells on. */
ZR_INLINE int64_t zr_wide_mean(int64_t sum, int64_t cells, int through_float)
{
    if (through_float) {
        const float mean = (float)((double)sum / (double)cells);
        return (int64_t)((double)mean + copysign(0.5, (double)mean));
    }
    if (cells < 65536) {
        const double mean = (double)sum / (double)cells;
        return (int64_t)(mean + copysign(0.5, mean));
    }
    const uint64_t magnitude = sum < 0 ? 0 - (uint64_t)sum : (uint64_t)sum, n = (uint64_t)cells;
    const uint64_t mean = magnitude / n + (magnitude % n >= n - n / 2);
    return sum < 0 ? -(int64_t)mean : (int64_t)mean;
}

ZR_INLINE __int128 zr_exact_mean(__int128 sum, int64_t cells)
{
    const unsigned __int128 magnitude = sum < 0 ? -(unsigned __int128)sum : (unsigned __int128)sum;
    const uint64_t n = (uint64_t)cells;
    __int128 mean;
    if (magnitude >> 64 == 0) {
        const uint64_t low = (uint64_t)magnitude;
        mean = (__int128)(low / n) + (low % n >= n - n / 2);
    } else if ((n & (n - 1)) == 0) {
        mean = (__int128)((magnitude + n / 2) >> __builtin_ctzll(n));
    } else {
        mean = (__int128)((magnitude + n / 2) / n);
    }
    return sum < 0 ? -mean : mean;
}

#define ZR_WIDE_MEANS(ID, T, H, MEAN)                                                                              \
    ZR_INLINE void ZR_PASTE(means, ID)(const H *restrict sum, int64_t outputs, int64_t cells, T *restrict out)     \
    {                                                                                                              \
        for (int64_t i = 0; i < outputs; i++) out[i] = (T)MEAN(sum[i], cells);                                     \
    }                                                                                                              \
    ZR_INLINE void ZR_PASTE(valid_means, ID)(const H *restrict sum, const H *restrict valid, int64_t outputs,      \
                                             T *restrict out, T nodata, T substitute)                              \
    {                                                                                                              \
        for (int64_t i = 0; i < outputs; i++) {                                                                    \
            const int64_t cells = (int64_t)valid[i];                                                               \
            const T mean = (T)MEAN(sum[i], cells + (cells == 0));                                                  \
            out[i] = cells == 0 ? nodata : mean == nodata ? substitute : mean;                                     \
        }                                                                                                          \
    }
#define ZR_MEAN_THROUGH_FLOAT(sum, cells) zr_wide_mean(sum, cells, 1)
#define ZR_MEAN_INTEGER(sum, cells) zr_wide_mean(sum, cells, 0)
#define ZR_MEAN_FLOAT(sum, cells) ((sum) / (double)(cells))
ZR_WIDE_MEANS(u8w, uint8_t, int64_t, ZR_MEAN_INTEGER)
ZR_WIDE_MEANS(u16w, uint16_t, int64_t, ZR_MEAN_INTEGER)
ZR_WIDE_MEANS(i8w, int8_t, int64_t, ZR_MEAN_THROUGH_FLOAT)
ZR_WIDE_MEANS(i16w, int16_t, int64_t, ZR_MEAN_THROUGH_FLOAT)
ZR_WIDE_MEANS(u32w, uint32_t, int64_t, ZR_MEAN_INTEGER)
ZR_WIDE_MEANS(i32w, int32_t, int64_t, ZR_MEAN_INTEGER)
ZR_WIDE_MEANS(u64, uint64_t, __int128, zr_exact_mean)
ZR_WIDE_MEANS(i64, int64_t, __int128, zr_exact_mean)
ZR_WIDE_MEANS(f32, float, double, ZR_MEAN_FLOAT)

#include "quads.h"

/* ---- the kernels ---- */
#define ZR_SUMMED_MEANS(ID, T, H, MEMBER)                                                                          \
    do {                                                                                                           \
        H *valid;                                                                                                  \
        const int64_t outputs = b->count * b->lanes, cells = b->row_count * b->factor;                             \
        if (b->skip == ZR_PLAIN) {                                                                                 \
            const H *sum = ZR_PASTE(window_sums, ID)(b, &valid, ZR_PLAIN, 0);                                      \
            ZR_PASTE(means, ID)(sum, outputs, cells, (T *)out);                                                    \
        } else {                                                                                                   \
            const H *sum = ZR_PASTE(window_sums, ID)(b, &valid, ZR_SKIP_VALUE, b->nodata.MEMBER);                  \
            ZR_PASTE(valid_means, ID)(sum, valid, outputs, (T *)out, b->nodata.MEMBER, b->substitute.MEMBER);      \
        }                                                                                                          \
    } while (0)

#define ZR_IS_QUAD(b) ((b)->row_count == 2 && (b)->factor == 2 && (b)->lanes == 1)

/* 16-bit cells: float32 holds twice the sum of 16 of them, and rounds its quotient well enough, exactly. */
#define ZR_SMALL_AVERAGE(ID, T, H, NARROW_CELLS)                                                                   \
    ZR_CLONES static void zr_average_##ID(const zr_block *b, void *out)                                            \
    {                                                                                                              \
        const int quad = ZR_IS_QUAD(b);                                                                            \
        if (quad && b->skip == ZR_PLAIN)                                                                           \
            ZR_PASTE(means4, ID)(b, (T *)out);                                                                     \
        else if (quad && ZR_HAS_VALID4_##ID)                                                                       \
            ZR_VALID4_##ID(b, (T *)out, b->nodata.ID, b->substitute.ID);                                           \
        else if (b->row_count * b->factor <= NARROW_CELLS)                                                         \
            ZR_SUMMED_MEANS(ID, T, H, ID);                                                                         \
        else                                                                                                       \
            ZR_SUMMED_MEANS(ID##w, T, int64_t, ID);                                                                \
    }
#define ZR_HAS_VALID4_u8 1
#define ZR_HAS_VALID4_i8 0
#define ZR_HAS_VALID4_u16 1
#define ZR_HAS_VALID4_i16 1
#define ZR_VALID4_u8 zr_valid_means4_u8
#define ZR_VALID4_u16 zr_valid_means4_u16
#define ZR_VALID4_i16 zr_valid_means4_i16
#define ZR_VALID4_i8(b, out, nodata, substitute) (void)0
ZR_SMALL_AVERAGE(u8, uint8_t, uint32_t, 255)
ZR_SMALL_AVERAGE(i8, int8_t, int32_t, 255)
ZR_SMALL_AVERAGE(u16, uint16_t, uint32_t, 16)
ZR_SMALL_AVERAGE(i16, int16_t, int32_t, 16)

#define ZR_LARGE_AVERAGE(ID, T)                                                                                    \
    ZR_CLONES static void zr_average_##ID(const zr_block *b, void *out)                                            \
    {                                                                                                              \
        if (ZR_IS_QUAD(b) && b->skip == ZR_PLAIN)                                                                  \
            ZR_PASTE(means4, ID)(b, (T *)out);                                                                     \
        else                                                                                                       \
            ZR_SUMMED_MEANS(ID##w, T, int64_t, ID);                                                                \
    }
ZR_LARGE_AVERAGE(u32, uint32_t)
ZR_LARGE_AVERAGE(i32, int32_t)

static void zr_average_u64(const zr_block *b, void *out) { ZR_SUMMED_MEANS(u64, uint64_t, __int128, u64); }
static void zr_average_i64(const zr_block *b, void *out) { ZR_SUMMED_MEANS(i64, int64_t, __int128, i64); }

enum { ZR_STRETCH = 256 }; /* outputs at a time: their sums and counts stay in the nearest cache */

/* 2 x 2; `skip` is a constant wherever this is called. ZERO + the sum: with 0.0, negative zeros come to a positive one. */
#define ZR_VALID_QUADS(ID, T, ZERO)                                                                                \
    ZR_INLINE void zr_valid_quads_##ID(const zr_block *b, T *restrict out, int skip)                               \
    {                                                                                                              \
        const T nodata = b->nodata.ID, substitute = b->substitute.ID;                                              \
        double *restrict sum = (double *)b->scratch, *restrict valid = sum + ZR_STRETCH;                           \
        for (int64_t from = 0; from < b->count; from += ZR_STRETCH, out += ZR_STRETCH) {                           \
            const int64_t here = b->count - from < ZR_STRETCH ? b->count - from : ZR_STRETCH;                      \
            zr_valid_sums4_##ID((const T *)b->rows[0] + 2 * from, (const T *)b->rows[1] + 2 * from, here, sum,     \
                                valid, skip, nodata);                                                              \
            for (int64_t i = 0; i < here; i++) out[i] = (T)((ZERO + sum[i]) / valid[i]);                           \
            for (int64_t i = 0; i < here; i++) {                                                                   \
                const T mean = out[i] == nodata ? substitute : out[i];                                             \
                out[i] = valid[i] != 0 ? mean : nodata;                                                            \
            }                                                                                                      \
        }                                                                                                          \
    }
ZR_VALID_QUADS(f32, float, -0.0)
ZR_VALID_QUADS(f64, double, 0.0)

ZR_INLINE void zr_valid_average_f32(const zr_block *b, float *restrict out, int skip)
{
    const float nodata = b->nodata.f32, substitute = b->substitute.f32;
    const int64_t outputs = b->count * b->lanes;
    double *valid;
    const double *sum = window_sums_f32(b, &valid, skip, nodata);
    for (int64_t i = 0; i < outputs; i++) out[i] = (float)(sum[i] / valid[i]);
    for (int64_t i = 0; i < outputs; i++) {
        const float mean = out[i] == nodata ? substitute : out[i];
        out[i] = valid[i] != 0 ? mean : nodata;
    }
}

ZR_CLONES static void zr_average_f32(const zr_block *b, void *out)
{
    const int quad = ZR_IS_QUAD(b);
    if (b->skip == ZR_PLAIN && quad) {
        means4_f32(b, (float *)out);
    } else if (b->skip == ZR_PLAIN) {
        double *valid;
        const double *sum = window_sums_f32(b, &valid, ZR_PLAIN, 0);
        means_f32(sum, b->count * b->lanes, b->row_count * b->factor, (float *)out);
    } else if (b->skip == ZR_SKIP_NAN) {
        if (quad)
            zr_valid_quads_f32(b, (float *)out, ZR_SKIP_NAN);
        else
            zr_valid_average_f32(b, (float *)out, ZR_SKIP_NAN);
    } else if (quad) {
        zr_valid_quads_f32(b, (float *)out, ZR_SKIP_VALUE);
    } else {
        zr_valid_average_f32(b, (float *)out, ZR_SKIP_VALUE);
    }
}

/* Row by row, as GDAL does: here the order of the additions shows in the result. */
ZR_INLINE void zr_row_average_f64(const zr_block *b, double *restrict out, int skip)
{
    const int64_t factor = b->factor, lanes = b->lanes;
    const double nodata = b->nodata.f64, substitute = b->substitute.f64;
    for (int64_t i = 0; i < b->count; i++)
        for (int64_t l = 0; l < lanes; l++) {
            double sum = 0, cells = 0;
            for (int64_t r = 0; r < b->row_count; r++) {
                const double *p = (const double *)b->rows[r] + i * factor * lanes + l;
                double line = 0, line_cells = 0;
                for (int64_t k = 0; k < factor; k++) {
                    const double v = p[k * lanes];
                    const int ok = skip == ZR_PLAIN || (skip == ZR_SKIP_NAN ? v == v : v != nodata);
                    line += ok ? v : 0;
                    line_cells += ok;
                }
                sum += line;
                cells += line_cells;
            }
            double mean = sum / cells;
            if (skip != ZR_PLAIN) mean = cells == 0 ? nodata : mean == nodata ? substitute : mean;
            out[i * lanes + l] = mean;
        }
}

ZR_CLONES static void zr_average_f64(const zr_block *b, void *out)
{
    const int quad = ZR_IS_QUAD(b);
    if (b->skip == ZR_PLAIN && quad)
        means4_f64(b, (double *)out);
    else if (b->skip == ZR_PLAIN)
        zr_row_average_f64(b, (double *)out, ZR_PLAIN);
    else if (b->skip == ZR_SKIP_NAN && quad)
        zr_valid_quads_f64(b, (double *)out, ZR_SKIP_NAN);
    else if (b->skip == ZR_SKIP_NAN)
        zr_row_average_f64(b, (double *)out, ZR_SKIP_NAN);
    else if (quad)
        zr_valid_quads_f64(b, (double *)out, ZR_SKIP_VALUE);
    else
        zr_row_average_f64(b, (double *)out, ZR_SKIP_VALUE);
}

#endif

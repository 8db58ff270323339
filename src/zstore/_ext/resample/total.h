/* total.h - sums and root mean squares of windows.
 *
 * A sum that the type cannot hold becomes its nearest bound; sums of 64-bit integers are exact up to there. The root
 * mean square of uint8 and uint16 is the integer whose square lies nearest the mean square, of other integers the root
 * rounded half away from zero; all through float64.
 */
#ifndef ZSTORE_RESAMPLE_TOTAL_H
#define ZSTORE_RESAMPLE_TOTAL_H

#include "average.h"
#include "block.h"

#define ZR_INTEGER_TOTAL(ID, T, SUMS, H, LOW, HIGH)                                                                 \
    ZR_CLONES static void zr_sum_##ID(const zr_block *b, void *out)                                                 \
    {                                                                                                               \
        T *restrict totals = (T *)out;                                                                              \
        const T nodata = b->nodata.ID, substitute = b->substitute.ID;                                               \
        const int64_t outputs = b->count * b->lanes;                                                                \
        H *valid;                                                                                                   \
        const H *sum = ZR_PASTE(window_sums, SUMS)(b, &valid, b->skip ? ZR_SKIP_VALUE : ZR_PLAIN, nodata);          \
        for (int64_t i = 0; i < outputs; i++)                                                                       \
            totals[i] = sum[i] < (H)LOW ? LOW : sum[i] > (H)HIGH ? HIGH : (T)sum[i];                                \
        for (int64_t i = 0; b->skip && i < outputs; i++)                                                            \
            totals[i] = !valid[i] ? nodata : totals[i] == nodata ? substitute : totals[i];                          \
    }
ZR_INTEGER_TOTAL(u8, uint8_t, u8w, int64_t, 0, UINT8_MAX)
ZR_INTEGER_TOTAL(i8, int8_t, i8w, int64_t, INT8_MIN, INT8_MAX)
ZR_INTEGER_TOTAL(u16, uint16_t, u16w, int64_t, 0, UINT16_MAX)
ZR_INTEGER_TOTAL(i16, int16_t, i16w, int64_t, INT16_MIN, INT16_MAX)
ZR_INTEGER_TOTAL(u32, uint32_t, u32w, int64_t, 0, UINT32_MAX)
ZR_INTEGER_TOTAL(i32, int32_t, i32w, int64_t, INT32_MIN, INT32_MAX)
ZR_INTEGER_TOTAL(u64, uint64_t, u64, __int128, 0, UINT64_MAX)
ZR_INTEGER_TOTAL(i64, int64_t, i64, __int128, INT64_MIN, INT64_MAX)

/* ---- sums of squares ---- */
#define ZR_ID u8sq
#define ZR_T uint8_t
#define ZR_V double
#define ZR_C int64_t
#define ZR_H double
#define ZR_LOAD(cell) ((double)(cell) * (double)(cell))
#include "sums.h"
#undef ZR_LOAD
#undef ZR_KEEP
#undef ZR_T
#define ZR_ID i8sq
#define ZR_T int8_t
#define ZR_V double
#define ZR_C int64_t
#define ZR_H double
#define ZR_LOAD(cell) ((double)(cell) * (double)(cell))
#include "sums.h"
#undef ZR_LOAD
#undef ZR_KEEP
#undef ZR_T
#define ZR_ID u16sq
#define ZR_T uint16_t
#define ZR_V double
#define ZR_C int64_t
#define ZR_H double
#define ZR_LOAD(cell) ((double)(cell) * (double)(cell))
#include "sums.h"
#undef ZR_LOAD
#undef ZR_KEEP
#undef ZR_T
#define ZR_ID i16sq
#define ZR_T int16_t
#define ZR_V double
#define ZR_C int64_t
#define ZR_H double
#define ZR_LOAD(cell) ((double)(cell) * (double)(cell))
#include "sums.h"
#undef ZR_LOAD
#undef ZR_KEEP
#undef ZR_T
#define ZR_ID u32sq
#define ZR_T uint32_t
#define ZR_V double
#define ZR_C int64_t
#define ZR_H double
#define ZR_LOAD(cell) ((double)(cell) * (double)(cell))
#include "sums.h"
#undef ZR_LOAD
#undef ZR_KEEP
#undef ZR_T
#define ZR_ID i32sq
#define ZR_T int32_t
#define ZR_V double
#define ZR_C int64_t
#define ZR_H double
#define ZR_LOAD(cell) ((double)(cell) * (double)(cell))
#include "sums.h"
#undef ZR_LOAD
#undef ZR_KEEP
#undef ZR_T
#define ZR_ID u64sq
#define ZR_T uint64_t
#define ZR_V double
#define ZR_C int64_t
#define ZR_H double
#define ZR_LOAD(cell) ((double)(cell) * (double)(cell))
#include "sums.h"
#undef ZR_LOAD
#undef ZR_KEEP
#undef ZR_T
#define ZR_ID i64sq
#define ZR_T int64_t
#define ZR_V double
#define ZR_C int64_t
#define ZR_H double
#define ZR_LOAD(cell) ((double)(cell) * (double)(cell))
#include "sums.h"
#undef ZR_LOAD
#undef ZR_KEEP
#undef ZR_T
#define ZR_ID f32sq
#define ZR_T float
#define ZR_V double
#define ZR_C int64_t
#define ZR_H double
#define ZR_LOAD(cell) ((double)(cell) * (double)(cell))
#include "sums.h"
#undef ZR_LOAD
#undef ZR_KEEP
#undef ZR_T
#define ZR_ID f64sq
#define ZR_T double
#define ZR_V double
#define ZR_C int64_t
#define ZR_H double
#define ZR_LOAD(cell) ((double)(cell) * (double)(cell))
#include "sums.h"
#undef ZR_LOAD
#undef ZR_KEEP
#undef ZR_T

#define ZR_FLOAT_TOTAL(ID, T)                                                                                       \
    ZR_CLONES static void zr_sum_##ID(const zr_block *b, void *out)                                                 \
    {                                                                                                               \
        T *restrict totals = (T *)out;                                                                              \
        const T nodata = b->nodata.ID, substitute = b->substitute.ID;                                               \
        const int64_t outputs = b->count * b->lanes;                                                                \
        double *valid;                                                                                              \
        const double *sum = ZR_PASTE(window_sums, ID)(b, &valid, b->skip, nodata);                                  \
        for (int64_t i = 0; i < outputs; i++) totals[i] = (T)sum[i];                                                \
        for (int64_t i = 0; b->skip && i < outputs; i++)                                                            \
            totals[i] = valid[i] == 0 ? nodata : totals[i] == nodata ? substitute : totals[i];                      \
    }
ZR_FLOAT_TOTAL(f32, float)
ZR_FLOAT_TOTAL(f64, double)

/* k or k + 1, whichever square lies nearer the mean square: their squares' midpoint is k^2 + k + 1/2. */
ZR_INLINE double zr_nearest_square_root(double square)
{
    const double root = floor(sqrt(square));
    return root + (square - (root * root + root) > 0.5);
}
ZR_INLINE double zr_rounded_root(double square) { return floor(sqrt(square) + 0.5); }

#define ZR_ROOT_MEAN_SQUARE(ID, T, ROOT, HIGH)                                                                      \
    ZR_CLONES static void zr_rms_##ID(const zr_block *b, void *out)                                                 \
    {                                                                                                               \
        T *restrict roots = (T *)out;                                                                               \
        const T nodata = b->nodata.ID, substitute = b->substitute.ID;                                               \
        const int64_t outputs = b->count * b->lanes;                                                                \
        const double cells = (double)(b->row_count * b->factor);                                                    \
        double *valid;                                                                                              \
        double *sum = ZR_PASTE(window_sums, ID##sq)(b, &valid, b->skip, nodata);                                    \
        for (int64_t i = 0; i < outputs; i++) sum[i] /= b->skip ? valid[i] + (valid[i] == 0) : cells;               \
        for (int64_t i = 0; i < outputs; i++) {                                                                     \
            const double root = ROOT(sum[i]);                                                                       \
            roots[i] = root >= (double)HIGH ? HIGH : (T)root;                                                       \
        }                                                                                                           \
        for (int64_t i = 0; b->skip && i < outputs; i++)                                                            \
            roots[i] = valid[i] == 0 ? nodata : roots[i] == nodata ? substitute : roots[i];                         \
    }
ZR_ROOT_MEAN_SQUARE(u8, uint8_t, zr_nearest_square_root, UINT8_MAX)
ZR_ROOT_MEAN_SQUARE(i8, int8_t, zr_rounded_root, INT8_MAX)
ZR_ROOT_MEAN_SQUARE(u16, uint16_t, zr_nearest_square_root, UINT16_MAX)
ZR_ROOT_MEAN_SQUARE(i16, int16_t, zr_rounded_root, INT16_MAX)
ZR_ROOT_MEAN_SQUARE(u32, uint32_t, zr_rounded_root, UINT32_MAX)
ZR_ROOT_MEAN_SQUARE(i32, int32_t, zr_rounded_root, INT32_MAX)
ZR_ROOT_MEAN_SQUARE(u64, uint64_t, zr_rounded_root, UINT64_MAX)
ZR_ROOT_MEAN_SQUARE(i64, int64_t, zr_rounded_root, INT64_MAX)
ZR_ROOT_MEAN_SQUARE(f32, float, sqrt, INFINITY)
ZR_ROOT_MEAN_SQUARE(f64, double, sqrt, INFINITY)

#endif

/* cells.h - cells of any type as float64, and weighted means of them back as cells.
 *
 * Rounding is half away from zero; what a type cannot hold becomes its nearest bound. GDAL keeps some intermediate
 * results of the 8- and 16-bit types and of float32 as float32 before it rounds them: `through_float`.
 */
#ifndef ZSTORE_RESAMPLE_CELLS_H
#define ZSTORE_RESAMPLE_CELLS_H

#include "block.h"
#include "total.h"

/* What becomes of the sums of a window, and in what form cells go in. */
enum { ZR_FILTERED, ZR_MEAN, ZR_ROOT_MEAN, ZR_SUM };

typedef struct {
    int purpose;
    int through_float;
    int nearest_square; /* the root whose square lies nearest, as for uint8 and uint16 */
    int skip;
    zr_value nodata, substitute;
} zr_conversion;

/* Cells into `values`; `valid` gets 1 or 0, and an invalid value 0. Gives how many are valid. A filter does not look at
 * `valid` where all are, and it may be left as it was. */
typedef int64_t (*zr_load_cells)(const zr_conversion *how, const void *cells, int64_t count, double *values,
                                 double *valid);
/* `values` are sums, or results where nothing is left to divide; `weights`, the weight in each, is NULL where none
 * is needed or `weight` is that of all. */
typedef void (*zr_store_cells)(const zr_conversion *how, double *values, const double *weights, int64_t count,
                               void *cells);

#define ZR_LOAD_CELLS(ID, T)                                                                                        \
    ZR_CLONES static int64_t zr_load_##ID(const zr_conversion *how, const void *cells, int64_t count,               \
                                          double *restrict values, double *restrict valid)                          \
    {                                                                                                               \
        const T *restrict p = (const T *)cells;                                                                     \
        const T nodata = how->nodata.ID;                                                                            \
        int64_t kept = count;                                                                                       \
        for (int64_t i = 0; i < count; i++) values[i] = (double)p[i];                                               \
        if (how->skip != ZR_PLAIN) {                                                                                \
            const int skips_nan = how->skip == ZR_SKIP_NAN;                                                         \
            kept = 0;                                                                                               \
            for (int64_t i = 0; i < count; i++) kept += skips_nan ? p[i] == p[i] : p[i] != nodata;                  \
            if (kept == count && how->purpose == ZR_FILTERED) return kept;                                          \
            for (int64_t i = 0; i < count; i++) {                                                                   \
                valid[i] = (skips_nan ? p[i] == p[i] : p[i] != nodata) ? 1.0 : 0.0;                                 \
                values[i] = valid[i] != 0 ? values[i] : 0.0;                                                        \
            }                                                                                                       \
        }                                                                                                           \
        if (how->purpose == ZR_ROOT_MEAN)                                                                           \
            for (int64_t i = 0; i < count; i++) values[i] *= values[i];                                             \
        return kept;                                                                                                \
    }

/* The quotient or root that the sums stand for, before it is made a cell. */
ZR_INLINE void zr_finish_sums(const zr_conversion *how, double *restrict values, const double *restrict weights,
                              int64_t count)
{
    if (weights && (how->purpose == ZR_MEAN || how->purpose == ZR_ROOT_MEAN))
        for (int64_t i = 0; i < count; i++) values[i] /= weights[i] != 0 ? weights[i] : 1.0;
    if (how->purpose == ZR_ROOT_MEAN && how->nearest_square)
        for (int64_t i = 0; i < count; i++) values[i] = zr_nearest_square_root(values[i]);
    else if (how->purpose == ZR_ROOT_MEAN)
        for (int64_t i = 0; i < count; i++) values[i] = sqrt(values[i]);
    if (how->through_float)
        for (int64_t i = 0; i < count; i++) values[i] = (double)(float)values[i];
}

#define ZR_STORE_CELLS(ID, T, LOW, HIGH, TO_CELL)                                                                   \
    ZR_CLONES static void zr_store_##ID(const zr_conversion *how, double *restrict values,                          \
                                        const double *restrict weights, int64_t count, void *cells)                 \
    {                                                                                                               \
        T *restrict out = (T *)cells;                                                                               \
        const T nodata = how->nodata.ID, substitute = how->substitute.ID;                                           \
        zr_finish_sums(how, values, weights, count);                                                                \
        for (int64_t i = 0; i < count; i++) out[i] = TO_CELL(T, values[i], LOW, HIGH);                              \
        if (how->skip == ZR_PLAIN) return;                                                                          \
        for (int64_t i = 0; i < count; i++) out[i] = out[i] == nodata ? substitute : out[i];                        \
        for (int64_t i = 0; weights && i < count; i++) out[i] = weights[i] != 0 ? out[i] : nodata;                  \
    }
/* The bounds, as float64, may lie one beyond the type's: hence >= and <=. */
#define ZR_ROUNDED(T, x, LOW, HIGH)                                                                                 \
    ((x) >= (double)HIGH ? (T)HIGH : (x) <= (double)LOW ? (T)LOW : (T)((x) + copysign(0.5, x)))
#define ZR_CAST(T, x, LOW, HIGH) ((T)(x))

#define ZR_CELLS(ID, T, LOW, HIGH, TO_CELL)                                                                         \
    ZR_LOAD_CELLS(ID, T)                                                                                            \
    ZR_STORE_CELLS(ID, T, LOW, HIGH, TO_CELL)
ZR_CELLS(u8, uint8_t, 0, UINT8_MAX, ZR_ROUNDED)
ZR_CELLS(i8, int8_t, INT8_MIN, INT8_MAX, ZR_ROUNDED)
ZR_CELLS(u16, uint16_t, 0, UINT16_MAX, ZR_ROUNDED)
ZR_CELLS(i16, int16_t, INT16_MIN, INT16_MAX, ZR_ROUNDED)
ZR_CELLS(u32, uint32_t, 0, UINT32_MAX, ZR_ROUNDED)
ZR_CELLS(i32, int32_t, INT32_MIN, INT32_MAX, ZR_ROUNDED)
ZR_CELLS(u64, uint64_t, 0, UINT64_MAX, ZR_ROUNDED)
ZR_CELLS(i64, int64_t, INT64_MIN, INT64_MAX, ZR_ROUNDED)
ZR_CELLS(f32, float, 0, 0, ZR_CAST)
ZR_CELLS(f64, double, 0, 0, ZR_CAST)

#endif

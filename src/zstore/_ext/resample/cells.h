/* cells.h - convert cells of any type to float64, and weighted means back to cells.
 *
 * Rounding is half away from zero; a value that the type cannot hold becomes its nearest bound. GDAL keeps intermediate
 * results of the 8- and 16-bit types and of float32 as float32 before it rounds them: `through_float`.
 */
#ifndef ZS_CELLS_H
#define ZS_CELLS_H

#include "block.h"
#include "total.h"

/* How the sums of a window become the result, and in what form cells are added. */
enum { ZS_FILTERED, ZS_MEAN, ZS_ROOT_MEAN, ZS_SUM };

typedef struct {
    int purpose;
    int through_float;
    int nearest_square; /* the root whose square lies nearest, as for uint8 and uint16 */
    int skip;
    uint64_t nodata, substitute; /* the bytes of a cell, and zeros */
} zs_conversion;

/* Convert cells to `values`; `valid` becomes 1 or 0, and an invalid value 0. Returns how many are valid. Where all are,
 * nobody reads `valid`, and it may be left unset. */
typedef int64_t (*zs_load_cells)(const zs_conversion *how, const void *cells, int64_t count, double *values,
                                 double *valid);
/* `values` are sums, or results where nothing is left to divide; `weights`, the weight in each, is NULL where none
 * is needed or `weight` is that of all. */
typedef void (*zs_store_cells)(const zs_conversion *how, double *values, const double *weights, int64_t count,
                               void *cells);

template <class T> ZS_CLONES static int64_t zs_load(const zs_conversion *how, const void *cells, int64_t count,
                                                    double *restrict values, double *restrict valid) {
    const T *restrict p = (const T *)cells;
    const T nodata = zs_cell<T>(how->nodata);
    const int skips_nan = how->skip == ZS_SKIP_NAN;
    int64_t kept = count;
    for (int64_t i = 0; i < count; i++) values[i] = (double)p[i];
    if (how->skip != ZS_PLAIN) {
        kept = 0;
        for (int64_t i = 0; i < count; i++) kept += skips_nan ? !zs_is_nan(p[i]) : p[i] != nodata;
        if (kept == count && how->purpose == ZS_FILTERED) return kept;
        for (int64_t i = 0; i < count; i++) {
            valid[i] = (skips_nan ? !zs_is_nan(p[i]) : p[i] != nodata) ? 1.0 : 0.0;
            values[i] = valid[i] != 0 ? values[i] : 0.0;
        }
    }
    if (how->purpose == ZS_ROOT_MEAN)
        for (int64_t i = 0; i < count; i++) values[i] *= values[i];
    return kept;
}

/* The quotient or root of the sums, before it is converted to a cell. */
ZS_INLINE void zs_finish_sums(const zs_conversion *how, double *restrict values, const double *restrict weights,
                              int64_t count) {
    if (weights && (how->purpose == ZS_MEAN || how->purpose == ZS_ROOT_MEAN))
        for (int64_t i = 0; i < count; i++) values[i] /= weights[i] != 0 ? weights[i] : 1.0;
    if (how->purpose == ZS_ROOT_MEAN && how->nearest_square)
        for (int64_t i = 0; i < count; i++) values[i] = zs_nearest_square_root(values[i]);
    else if (how->purpose == ZS_ROOT_MEAN)
        for (int64_t i = 0; i < count; i++) values[i] = sqrt(values[i]);
    if (how->through_float)
        for (int64_t i = 0; i < count; i++) values[i] = (double)(float)values[i];
}

/* A bound, as float64, may exceed the type's by one: hence >= and <=. */
template <class T> ZS_INLINE T zs_round_cell(double value) {
    if constexpr (zs_is_float<T>) return (T)value;
    return value >= (double)zs_highest<T>  ? zs_highest<T>
           : value <= (double)zs_lowest<T> ? zs_lowest<T>
                                           : (T)(value + copysign(0.5, value));
}

template <class T> ZS_CLONES static void zs_store(const zs_conversion *how, double *restrict values,
                                                  const double *restrict weights, int64_t count, void *cells) {
    T *restrict out = (T *)cells;
    const T nodata = zs_cell<T>(how->nodata), substitute = zs_cell<T>(how->substitute);
    zs_finish_sums(how, values, weights, count);
    for (int64_t i = 0; i < count; i++) out[i] = zs_round_cell<T>(values[i]);
    if (how->skip == ZS_PLAIN) return;
    for (int64_t i = 0; i < count; i++) out[i] = out[i] == nodata ? substitute : out[i];
    for (int64_t i = 0; weights && i < count; i++) out[i] = weights[i] != 0 ? out[i] : nodata;
}

#endif

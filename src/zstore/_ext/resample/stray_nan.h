/* stray_nan.h - floats without nodata: NaN is left out, and all else stays as it would be without.
 *
 * A kernel that knows no nodata makes NaN of every window that holds one. Only those windows are made again, of their
 * valid cells, so that where there is no NaN it costs nothing and changes no digit.
 */
#ifndef ZSTORE_RESAMPLE_STRAY_NAN_H
#define ZSTORE_RESAMPLE_STRAY_NAN_H

#include "block.h"

#define ZR_STRAY_NAN(ID, T, MASK)                                                                                    \
    ZR_CLONES static int zr_find_nan_##ID(const T *cells, int64_t count)                                            \
    {                                                                                                               \
        MASK any = 0;                                                                                               \
        for (int64_t i = 0; i < count; i++) any |= (MASK)(cells[i] != cells[i]);                                    \
        return any != 0;                                                                                            \
    }                                                                                                               \
    ZR_CLONES static void zr_replace_nan_##ID(T *restrict cells, const T *restrict instead, int64_t count)          \
    {                                                                                                               \
        for (int64_t i = 0; i < count; i++) cells[i] = cells[i] == cells[i] ? cells[i] : instead[i];                \
    }
ZR_STRAY_NAN(f32, float, uint32_t)
ZR_STRAY_NAN(f64, double, uint64_t)

static int zr_find_nan(int64_t item_size, const void *cells, int64_t count)
{
    return item_size == 4 ? zr_find_nan_f32(cells, count) : zr_find_nan_f64(cells, count);
}

static void zr_replace_nan(int64_t item_size, void *cells, const void *instead, int64_t count)
{
    if (item_size == 4)
        zr_replace_nan_f32(cells, instead, count);
    else
        zr_replace_nan_f64(cells, instead, count);
}

#endif

/* stray_nan.h - leave NaN out of windows of floats without nodata.
 *
 * A kernel without nodata returns NaN for every window that holds one. Only those windows are computed again, from
 * their valid cells, so that data without NaN costs no time and keeps every digit.
 */
#ifndef ZS_STRAY_NAN_H
#define ZS_STRAY_NAN_H

#include "block.h"

template <class T> ZS_CLONES static int zs_find_nan_of(const T *cells, int64_t count) {
    zs_bits<T> any = 0;
    for (int64_t i = 0; i < count; i++) any |= (zs_bits<T>)zs_is_nan(cells[i]);
    return any != 0;
}

template <class T>
ZS_CLONES static void zs_replace_nan_of(T *restrict cells, const T *restrict instead, int64_t count) {
    for (int64_t i = 0; i < count; i++) cells[i] = zs_is_nan(cells[i]) ? instead[i] : cells[i];
}

static int zs_find_nan(int64_t item_size, const void *cells, int64_t count) {
    if (item_size == 4) return zs_find_nan_of((const float *)cells, count);
    return zs_find_nan_of((const double *)cells, count);
}

static void zs_replace_nan(int64_t item_size, void *cells, const void *instead, int64_t count) {
    if (item_size == 4) zs_replace_nan_of((float *)cells, (const float *)instead, count);
    else zs_replace_nan_of((double *)cells, (const double *)instead, count);
}

#endif

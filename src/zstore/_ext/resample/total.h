/* total.h - sums and root mean squares of windows.
 *
 * A sum that the type cannot hold becomes its nearest bound; sums of 64-bit integers are exact up to there. The root
 * mean square of uint8 and uint16 is the integer whose square lies nearest the mean square, of other integers the root
 * rounded half away from zero; all through float64.
 */
#ifndef ZS_TOTAL_H
#define ZS_TOTAL_H

#include "block.h"
#include "sums.h"

/* The sums of windows, by the way of skipping cells. */
template <template <class> class Sums, class T>
ZS_INLINE typename Sums<T>::Sum *zs_sum_windows(const zs_block *b, typename Sums<T>::Sum **valid) {
    if (b->skip == ZS_PLAIN) return Sums<T>::template of_windows<ZS_PLAIN>(b, valid);
    if (zs_is_float<T> && b->skip == ZS_SKIP_NAN) return Sums<T>::template of_windows<ZS_SKIP_NAN>(b, valid);
    return Sums<T>::template of_windows<ZS_SKIP_VALUE>(b, valid);
}

template <class T> ZS_CLONES static void zs_sum(const zs_block *b, void *out) {
    T *restrict totals = (T *)out;
    typedef typename zs_wide_sums<T>::Sum Sum;
    const int64_t outputs = b->count * b->lanes;
    Sum *valid;
    const Sum *sum = zs_sum_windows<zs_wide_sums, T>(b, &valid);
    for (int64_t i = 0; i < outputs; i++) {
        if constexpr (zs_is_float<T>) totals[i] = (T)sum[i];
        else
            totals[i] =
                sum[i]<(Sum)zs_lowest<T> ? zs_lowest<T> : sum[i]>(Sum) zs_highest<T> ? zs_highest<T> : (T)sum[i];
    }
    if (b->skip) zs_mark_holes(b, valid, outputs, totals);
}

/* k or k + 1, whichever square lies nearer the mean square: their squares' midpoint is k^2 + k + 1/2. */
ZS_INLINE double zs_nearest_square_root(double square) {
    const double root = floor(sqrt(square));
    return root + (square - (root * root + root) > 0.5);
}

template <class T> ZS_INLINE double zs_root(double square) {
    if (zs_is_float<T>) return sqrt(square);
    if (!zs_is_signed<T> && sizeof(T) <= 2) return zs_nearest_square_root(square);
    return floor(sqrt(square) + 0.5);
}

template <class T> ZS_CLONES static void zs_rms(const zs_block *b, void *out) {
    T *restrict roots = (T *)out;
    const int64_t outputs = b->count * b->lanes;
    const double cells = (double)(b->row_count * b->factor);
    double *valid;
    double *sum = zs_sum_windows<zs_square_sums, T>(b, &valid);
    for (int64_t i = 0; i < outputs; i++) sum[i] /= b->skip ? valid[i] + (valid[i] == 0) : cells;
    for (int64_t i = 0; i < outputs; i++) {
        const double root = zs_root<T>(sum[i]);
        roots[i] = root >= (double)zs_highest<T> ? zs_highest<T> : (T)root;
    }
    if (b->skip) zs_mark_holes(b, valid, outputs, roots);
}

#endif

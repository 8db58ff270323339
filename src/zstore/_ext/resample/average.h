/* average.h - means of windows: GDAL's arithmetic.
 *
 * 8- and 16-bit unsigned: floor(x + 1/2). Other integers: half away from zero, 8- and 16-bit ones from the mean as a
 * float32. float32 in float64 sums, but a 2 x 2 window without nodata in float32 (columns first). float64 row by row.
 * 64-bit integers, where GDAL rounds through float64, are exact: 128-bit sums.
 */
#ifndef ZS_AVERAGE_H
#define ZS_AVERAGE_H

#include "block.h"
#include "quads.h"
#include "sums.h"

/* ---- rounding: from the exact sum of a window and its number of cells to the mean ---- */

/* through_float: GDAL's way with 8- and 16-bit signed cells, visible from 512 cells on. */
ZS_INLINE int64_t zs_divide_rounding(int64_t sum, int64_t cells, bool through_float) {
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

ZS_INLINE __int128 zs_divide_rounding(__int128 sum, int64_t cells, bool through_float) {
    const unsigned __int128 magnitude = sum < 0 ? -(unsigned __int128)sum : (unsigned __int128)sum;
    const uint64_t n = (uint64_t)cells;
    __int128 mean;
    (void)through_float;
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

template <class T, class Sum>
ZS_INLINE void zs_means(const Sum *restrict sum, int64_t outputs, int64_t cells, T *restrict out) {
    constexpr bool through_float = zs_is_signed<T> && sizeof(T) <= 2;
    for (int64_t i = 0; i < outputs; i++) out[i] = (T)zs_divide_rounding(sum[i], cells, through_float);
}

template <class T, class Sum> ZS_INLINE void zs_valid_means(const zs_block *b, const Sum *restrict sum,
                                                            const Sum *restrict valid, int64_t outputs,
                                                            T *restrict out) {
    constexpr bool through_float = zs_is_signed<T> && sizeof(T) <= 2;
    const T nodata = zs_cell<T>(b->nodata), substitute = zs_cell<T>(b->substitute);
    for (int64_t i = 0; i < outputs; i++) {
        const int64_t cells = (int64_t)valid[i];
        const T mean = (T)zs_divide_rounding(sum[i], cells + (cells == 0), through_float);
        out[i] = cells == 0 ? nodata : mean == nodata ? substitute : mean;
    }
}

/* The same for narrow sums: float32 holds twice any of them, and its quotient is precise enough for an exact result.
 * (|sum| + n/2 + 1/4) / n lies at least 1/(4n) from any integer: more than the product can be off. */
template <class T, class Sum>
ZS_INLINE void zs_narrow_means(const Sum *restrict sum, int64_t outputs, int64_t cells, T *restrict out) {
    const float inverse = 1.0f / (float)cells, bias = 0.5f * (float)cells + 0.25f;
    for (int64_t i = 0; i < outputs; i++) {
        const bool is_negative = zs_is_signed<T> && (int32_t)sum[i] < 0;
        const int32_t magnitude = is_negative ? -(int32_t)sum[i] : (int32_t)sum[i];
        const int32_t mean = (int32_t)(((float)magnitude + bias) * inverse);
        out[i] = (T)(is_negative ? -mean : mean);
    }
}

template <class T, class Sum> ZS_INLINE void zs_valid_narrow_means(const zs_block *b, const Sum *restrict sum,
                                                                   const Sum *restrict valid, int64_t outputs,
                                                                   T *restrict out) {
    const T nodata = zs_cell<T>(b->nodata), substitute = zs_cell<T>(b->substitute);
    for (int64_t i = 0; i < outputs; i++) {
        const bool is_negative = zs_is_signed<T> && (int32_t)sum[i] < 0;
        const int32_t magnitude = is_negative ? -(int32_t)sum[i] : (int32_t)sum[i], cells = (int32_t)valid[i];
        const float twice = (float)(2 * (cells + (cells == 0)));
        const int32_t rounded = (int32_t)((float)(2 * magnitude + cells) / twice);
        T mean = (T)(is_negative ? -rounded : rounded);
        mean = mean == nodata ? substitute : mean;
        out[i] = cells ? mean : nodata;
    }
}

/* ---- the kernels ---- */

template <int skip, class T> ZS_INLINE void zs_average_integers(const zs_block *b, T *restrict out) {
    const int64_t outputs = b->count * b->lanes, cells = b->row_count * b->factor;
    if constexpr (sizeof(T) <= 2) {
        if (cells <= (sizeof(T) == 1 ? 255 : 16)) {
            typename zs_narrow_sums<T>::Sum *valid;
            const auto *sum = zs_narrow_sums<T>::template of_windows<skip>(b, &valid);
            if constexpr (skip == ZS_PLAIN) zs_narrow_means(sum, outputs, cells, out);
            else zs_valid_narrow_means(b, sum, valid, outputs, out);
            return;
        }
    }
    typename zs_wide_sums<T>::Sum *valid;
    const auto *sum = zs_wide_sums<T>::template of_windows<skip>(b, &valid);
    if constexpr (skip == ZS_PLAIN) zs_means(sum, outputs, cells, out);
    else zs_valid_means(b, sum, valid, outputs, out);
}

template <int skip> ZS_INLINE void zs_average_floats(const zs_block *b, float *restrict out) {
    const int64_t outputs = b->count * b->lanes, cells = b->row_count * b->factor;
    double *valid;
    const double *sum = zs_wide_sums<float>::of_windows<skip>(b, &valid);
    for (int64_t i = 0; i < outputs; i++) out[i] = (float)(sum[i] / (skip == ZS_PLAIN ? (double)cells : valid[i]));
    if (skip != ZS_PLAIN) zs_mark_holes(b, valid, outputs, out);
}

/* Row by row, as GDAL does: here the order of the additions shows in the result. */
template <int skip> ZS_INLINE void zs_average_floats(const zs_block *b, double *restrict out) {
    const int64_t factor = b->factor, lanes = b->lanes;
    const double nodata = zs_cell<double>(b->nodata), substitute = zs_cell<double>(b->substitute);
    for (int64_t i = 0; i < b->count; i++)
        for (int64_t l = 0; l < lanes; l++) {
            double sum = 0, cells = 0;
            for (int64_t r = 0; r < b->row_count; r++) {
                const double *p = (const double *)b->rows[r] + i * factor * lanes + l;
                double line = 0, line_cells = 0;
                for (int64_t k = 0; k < factor; k++) {
                    const double v = p[k * lanes];
                    const int ok = zs_is_valid<skip>(v, nodata);
                    line += ok ? v : 0;
                    line_cells += ok;
                }
                sum += line;
                cells += line_cells;
            }
            double mean = sum / cells;
            if (skip != ZS_PLAIN) mean = cells == 0 ? nodata : mean == nodata ? substitute : mean;
            out[i * lanes + l] = mean;
        }
}

template <int size, int skip, class T> ZS_INLINE void zs_average_skipping(const zs_block *b, T *restrict out) {
    if constexpr (skip == ZS_PLAIN && (zs_is_float<T> || sizeof(T) < 8)) {
        if (zs_is_quad(b)) return zs_quad_means(b, out);
    } else if constexpr (zs_is_float<T>) {
        if (zs_is_quad(b)) return zs_valid_float_quad_means<skip>(b, out);
    } else if constexpr (std::is_same<T, uint8_t>::value) {
        if (zs_is_quad(b)) return zs_valid_quad_means(b, out);
    } else if constexpr (sizeof(T) == 2) {
        if (zs_is_quad(b)) return zs_valid_pair_means<size>(b, out);
    }
    if constexpr (zs_is_float<T>) zs_average_floats<skip>(b, out);
    else zs_average_integers<skip>(b, out);
}

template <class T> struct zs_averages {
    template <int size> ZS_INLINE void run(const zs_block *b, void *out) {
        if (b->skip == ZS_PLAIN) zs_average_skipping<size, ZS_PLAIN>(b, (T *)out);
        else if (zs_is_float<T> && b->skip == ZS_SKIP_NAN) zs_average_skipping<size, ZS_SKIP_NAN>(b, (T *)out);
        else zs_average_skipping<size, ZS_SKIP_VALUE>(b, (T *)out);
    }
};

template <class T> constexpr zs_kernel zs_average = zs_by_width<zs_averages<T>>;

#endif

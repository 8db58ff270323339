/* rank.h - max, min, median and quartiles of windows.
 *
 * The quantile q of n valid cells is the one at position ceil(q n) of the sorted cells: always one of the cells.
 * A NaN that is not nodata makes the result NaN.
 */
#ifndef ZS_RANK_H
#define ZS_RANK_H

#include "block.h"
#include "mode.h"

/* ---- max and min ---- */

/* NaN is the result where there is one: nothing compares as greater or less than it. */
template <bool upwards, class T> ZS_INLINE T zs_further(T best, T cell) {
    return ((upwards ? cell > best : cell < best) | zs_is_nan(cell)) ? cell : best;
}

template <int skip, class T> ZS_INLINE T zs_valid_or(T cell, T nodata, T instead) {
    return zs_is_valid<skip>(cell, nodata) ? cell : instead;
}

/* With a constant for the factor. */
template <bool upwards, class T>
ZS_INLINE void zs_fold_extremes(int64_t factor, const T *restrict best, int64_t count, int64_t lanes, T *restrict out) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t l = 0; l < lanes; l++) {
            const int64_t x = i * factor * lanes + l;
            T extreme = best[x];
            for (int64_t k = 1; k < factor; k++) extreme = zs_further<upwards>(extreme, best[x + k * lanes]);
            out[i * lanes + l] = extreme;
        }
}

/* Columns first, then neighbouring columns. */
template <bool upwards, int skip, class T> ZS_INLINE void zs_extremes(const zs_block *b, T *restrict out) {
    const int64_t factor = b->factor, lanes = b->lanes, outputs = b->count * lanes, width = outputs * factor;
    const T nodata = zs_cell<T>(b->nodata), worst = upwards ? zs_lowest<T> : zs_highest<T>;
    T *restrict best = (T *)b->scratch;
    uint8_t *restrict valid = (uint8_t *)(best + ZS_BLOCK);
    if (width > ZS_BLOCK) { /* one window, too wide for the scratch memory */
        for (int64_t l = 0; l < lanes; l++) out[l] = worst, valid[l] = 0;
        for (int64_t r = 0; r < b->row_count; r++)
            for (int64_t x = 0; x < width; x++) {
                const T cell = ((const T *)b->rows[r])[x];
                out[x % lanes] = zs_further<upwards>(out[x % lanes], zs_valid_or<skip>(cell, nodata, worst));
                valid[x % lanes] |= (uint8_t)zs_is_valid<skip>(cell, nodata);
            }
        for (int64_t l = 0; l < lanes; l++) out[l] = valid[l] ? out[l] : nodata;
        return;
    }
    for (int64_t r = 0; r < b->row_count; r++) {
        const T *restrict p = (const T *)b->rows[r];
        if (r == 0)
            for (int64_t x = 0; x < width; x++) best[x] = zs_valid_or<skip>(p[x], nodata, worst);
        else
            for (int64_t x = 0; x < width; x++)
                best[x] = zs_further<upwards>(best[x], zs_valid_or<skip>(p[x], nodata, worst));
    }
    if (lanes == 1 && factor == 2)
        for (int64_t i = 0; i < b->count; i++) out[i] = zs_further<upwards>(best[2 * i], best[2 * i + 1]);
    else if (factor == 3) zs_fold_extremes<upwards>(3, best, b->count, lanes, out);
    else zs_fold_extremes<upwards>(factor, best, b->count, lanes, out);
    if (skip == ZS_PLAIN) return;
    /* only what no cell got beyond can be a window of holes */
    uint32_t doubtful = 0;
    for (int64_t i = 0; i < outputs; i++) doubtful |= (uint32_t)(out[i] == worst);
    if (!doubtful) return;
    memset(valid, 0, (size_t)outputs);
    for (int64_t r = 0; r < b->row_count; r++)
        for (int64_t k = 0; k < factor; k++) {
            const T *restrict p = (const T *)b->rows[r] + k * lanes;
            if (lanes == 1)
                for (int64_t i = 0; i < outputs; i++) valid[i] |= (uint8_t)zs_is_valid<skip>(p[i * factor], nodata);
            else
                for (int64_t i = 0; i < outputs; i++)
                    valid[i] |= (uint8_t)zs_is_valid<skip>(p[i / lanes * factor * lanes + i % lanes], nodata);
        }
    for (int64_t i = 0; i < outputs; i++) out[i] = valid[i] ? out[i] : nodata;
}

template <bool upwards, class T> ZS_TWO_CLONES static void zs_extreme(const zs_block *b, void *out) {
    if (b->skip == ZS_PLAIN) zs_extremes<upwards, ZS_PLAIN>(b, (T *)out);
    else if (zs_is_float<T> && b->skip == ZS_SKIP_NAN) zs_extremes<upwards, ZS_SKIP_NAN>(b, (T *)out);
    else zs_extremes<upwards, ZS_SKIP_VALUE>(b, (T *)out);
}
template <class T> constexpr zs_kernel zs_max = zs_extreme<true, T>;
template <class T> constexpr zs_kernel zs_min = zs_extreme<false, T>;

/* ---- quantiles ---- */

/* Counts, or vectors of them, to ranks: ceil(quarters / 4 * count) - 1. */
template <class Number> ZS_INLINE void zs_rank(Number &count, int quarters) {
    count = quarters == 2 ? (count - 1) >> 1 : quarters == 1 ? (count - 1) >> 2 : (3 * count - 1) >> 2;
}

/* The cell of rank `rank` (from 0) among `count`, by partitioning. */
template <class T> static T zs_select(T *cells, int64_t count, int64_t rank) {
    int64_t low = 0, high = count - 1;
    while (low < high) {
        const T pivot = cells[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (cells[i] < pivot) i++;
            while (pivot < cells[j]) j--;
            if (i <= j) {
                const T swap = cells[i];
                cells[i++] = cells[j];
                cells[j--] = swap;
            }
        }
        if (rank <= j) high = j;
        else if (rank >= i) low = i;
        else break;
    }
    return cells[rank];
}

template <int skip, class T> static void zs_selected_quantiles(const zs_block *b, T *out) {
    const T nodata = zs_cell<T>(b->nodata);
    T *cells = (T *)malloc((size_t)(b->row_count * b->factor) * sizeof *cells);
    if (!cells) {
        *b->out_of_memory = 1;
        return;
    }
    for (int64_t o = 0; o < b->count * b->lanes; o++) {
        const int64_t start = o / b->lanes * b->factor * b->lanes + o % b->lanes;
        int64_t count = 0, has_nan = 0;
        T nan = nodata;
        for (int64_t r = 0; r < b->row_count; r++)
            for (int64_t k = 0; k < b->factor; k++) {
                const T cell = ((const T *)b->rows[r])[start + k * b->lanes];
                if (!zs_is_valid<skip>(cell, nodata)) continue;
                if (zs_is_nan(cell)) {
                    has_nan = 1;
                    nan = cell;
                }
                cells[count++] = cell;
            }
        int64_t rank = count;
        zs_rank(rank, b->quarters);
        out[o] = has_nan ? nan : count ? zs_select(cells, count, rank) : nodata;
    }
    free(cells);
}

/* Many windows at a time: bubble the least cells down until the wanted rank is in place. Holes sort last. */
template <int size, int skip, class T> ZS_INLINE void zs_sorted_quantiles(const zs_block *b, T *restrict out) {
    typedef zs_vector<T, size> vec;
    typedef zs_vector<zs_integer<T>, size> mask;
    constexpr int64_t width = size / sizeof(T);
    const int64_t cells = b->row_count * b->factor, outputs = b->count * b->lanes;
    int64_t rank = cells;
    zs_rank(rank, b->quarters);
    vec *v = (vec *)b->scratch;
    const vec holes = (vec){0} + zs_cell<T>(b->nodata), last = (vec){0} + zs_highest<T>;
    memset((void *)v, 0, (size_t)cells * sizeof *v);
    for (int64_t first = 0; first < outputs; first += width) {
        const int64_t here = outputs - first < width ? outputs - first : width;
        zs_split(b, first, here, (zs_bits<T> *)v, width);
        mask count = {0}, nan = {0};
        for (int64_t c = 0; c < cells; c++) {
            if (skip) {
                const mask ok = skip == ZS_SKIP_NAN ? (mask)(v[c] == v[c]) : (mask)(v[c] != holes);
                count -= ok;
                v[c] = (vec)(((mask)v[c] & ok) | ((mask)last & ~ok));
            }
            if constexpr (zs_is_float<T>) nan |= (mask)(v[c] != v[c]);
        }
        const int64_t passes = skip ? cells - 1 : rank + 1;
        for (int64_t i = 0; i < passes; i++)
            for (int64_t c = cells - 1; c > i; c--) {
                const vec a = v[c - 1], d = v[c];
                const mask swap = (mask)(d < a);
                v[c - 1] = (vec)(((mask)d & swap) | ((mask)a & ~swap));
                v[c] = (vec)(((mask)a & swap) | ((mask)d & ~swap));
            }
        mask found = (mask)v[rank];
        if (skip) {
            zs_rank(count, b->quarters); /* -1 without a valid cell */
            found = (mask)holes;
            for (int64_t c = 0; c < cells; c++) {
                const mask is_it = (mask)(count == (zs_integer<T>)c);
                found = ((mask)v[c] & is_it) | (found & ~is_it);
            }
        }
        if (zs_is_float<T>) found |= nan; /* all bits set is a NaN */
        memcpy(out + first, &found, (size_t)here * sizeof(T));
    }
}

/* Two by two: the least, the lower and the upper of the middle two; holes lie last. */
template <int skip, int quarters, class T> ZS_INLINE void zs_quad_quantiles(const zs_block *b, T *restrict out) {
    typedef zs_integer<T> Count;
    const T *restrict p = (const T *)b->rows[0], *restrict q = (const T *)b->rows[1];
    const T nodata = zs_cell<T>(b->nodata), last = zs_highest<T>;
    for (int64_t i = 0; i < b->count; i++) {
        T a = p[2 * i], c = p[2 * i + 1], d = q[2 * i], e = q[2 * i + 1];
        Count count = 4;
        if (skip) {
            const Count va = (Count)zs_is_valid<skip>(a, nodata), vc = (Count)zs_is_valid<skip>(c, nodata);
            const Count vd = (Count)zs_is_valid<skip>(d, nodata), ve = (Count)zs_is_valid<skip>(e, nodata);
            a = zs_valid_or<skip>(a, nodata, last);
            c = zs_valid_or<skip>(c, nodata, last);
            d = zs_valid_or<skip>(d, nodata, last);
            e = zs_valid_or<skip>(e, nodata, last);
            count = (Count)(va + vc + vd + ve);
        }
        const T low1 = a < c ? a : c, high1 = a < c ? c : a, low2 = d < e ? d : e, high2 = d < e ? e : d;
        const T low = low1 < low2 ? low1 : low2, raised = low1 < low2 ? low2 : low1;
        const T lowered = high1 < high2 ? high1 : high2;
        const T second = raised < lowered ? raised : lowered, third = raised < lowered ? lowered : raised;
        T found = quarters == 1 ? low : quarters == 2 ? (count > 2 ? second : low) : count > 2 ? third : second;
        if (skip && quarters == 3) found = count == 1 ? low : found;
        if (zs_is_float<T> && skip != ZS_SKIP_NAN) {
            found = zs_is_nan(a) ? a : found;
            found = zs_is_nan(c) ? c : found;
            found = zs_is_nan(d) ? d : found;
            found = zs_is_nan(e) ? e : found;
        }
        out[i] = skip && count == 0 ? nodata : found;
    }
}

template <int size, int skip, class T> ZS_INLINE void zs_quantiles_of(const zs_block *b, T *out) {
    /* Bytes count up to 42 valid cells, three times which fit them. */
    constexpr int64_t sorted = skip && sizeof(T) == 1 ? 42 : 64;
    if (zs_is_quad(b)) {
        if (b->quarters == 1) zs_quad_quantiles<skip, 1>(b, out);
        else if (b->quarters == 2) zs_quad_quantiles<skip, 2>(b, out);
        else zs_quad_quantiles<skip, 3>(b, out);
    } else if (b->row_count * b->factor <= sorted) {
        zs_sorted_quantiles<size, skip>(b, out);
    } else {
        zs_selected_quantiles<skip>(b, out);
    }
}

template <class T> struct zs_quantiles {
    template <int size> ZS_INLINE void run(const zs_block *b, void *out) {
        if (b->skip == ZS_PLAIN) zs_quantiles_of<size, ZS_PLAIN>(b, (T *)out);
        else if (zs_is_float<T> && b->skip == ZS_SKIP_NAN) zs_quantiles_of<size, ZS_SKIP_NAN>(b, (T *)out);
        else zs_quantiles_of<size, ZS_SKIP_VALUE>(b, (T *)out);
    }
};

template <class T> constexpr zs_kernel zs_quantile = zs_by_width<zs_quantiles<T>>;

#endif

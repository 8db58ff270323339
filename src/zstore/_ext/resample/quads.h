/* quads.h - means of 2 x 2 windows, which most pyramids are made of, with little or no scratch memory. */
#ifndef ZS_QUADS_H
#define ZS_QUADS_H

#include "block.h"

/* Integers: halves go away from zero. */
template <class T, class Sum> ZS_INLINE T zs_quarter(Sum sum) {
    return (T)((sum + 2 + (zs_is_signed<T> ? sum >> (8 * sizeof sum - 1) : 0)) >> 2);
}
template <class T> ZS_INLINE T zs_mean4(T a, T b, T c, T d) {
    typedef std::conditional_t<zs_is_signed<T>, int64_t, uint64_t> wide;
    typedef std::conditional_t<zs_is_signed<T>, int32_t, uint32_t> narrow;
    typedef std::conditional_t<(sizeof(T) > 2), wide, narrow> Sum;
    return zs_quarter<T>((Sum)a + (Sum)b + (Sum)c + (Sum)d);
}
ZS_INLINE float zs_mean4(float a, float b, float c, float d) { return ((a + c) + (b + d)) * 0.25f; }
ZS_INLINE double zs_mean4(double a, double b, double c, double d) {
    return ((0.25 * a + 0.25 * b) + 0.25 * c) + 0.25 * d;
}

template <class T> ZS_INLINE void zs_quad_means(const zs_block *b, T *restrict out) {
    const T *restrict p = (const T *)b->rows[0], *restrict q = (const T *)b->rows[1];
    for (int64_t i = 0; i < b->count; i++) out[i] = zs_mean4(p[2 * i], p[2 * i + 1], q[2 * i], q[2 * i + 1]);
}

/* Two cells per machine word can be separated without a shuffle. */
ZS_INLINE void zs_quad_means(const zs_block *b, uint8_t *restrict out) {
    const zs_pair8 *restrict p = (const zs_pair8 *)b->rows[0], *restrict q = (const zs_pair8 *)b->rows[1];
    for (int64_t i = 0; i < b->count; i++)
        out[i] = zs_quarter<uint8_t>((uint32_t)(p[i] & 0xFF) + (p[i] >> 8) + (q[i] & 0xFF) + (q[i] >> 8));
}
ZS_INLINE void zs_quad_means(const zs_block *b, uint16_t *restrict out) {
    const zs_pair16 *restrict p = (const zs_pair16 *)b->rows[0], *restrict q = (const zs_pair16 *)b->rows[1];
    for (int64_t i = 0; i < b->count; i++)
        out[i] = zs_quarter<uint16_t>((p[i] & 0xFFFF) + (p[i] >> 16) + (q[i] & 0xFFFF) + (q[i] >> 16));
}
ZS_INLINE void zs_quad_means(const zs_block *b, int16_t *restrict out) {
    const zs_pair16 *restrict p = (const zs_pair16 *)b->rows[0], *restrict q = (const zs_pair16 *)b->rows[1];
    for (int64_t i = 0; i < b->count; i++)
        out[i] = zs_quarter<int16_t>(((int32_t)(p[i] << 16) >> 16) + ((int32_t)p[i] >> 16) +
                                     ((int32_t)(q[i] << 16) >> 16) + ((int32_t)q[i] >> 16));
}

/* Means of up to four valid cells each. 8-bit: t / (2n) as (t * ceil(65536 / 2n)) >> 16, exact for t <= 2044. */
ZS_INLINE void zs_valid_quad_means(const zs_block *b, uint8_t *restrict out) {
    const zs_pair8 *restrict p = (const zs_pair8 *)b->rows[0], *restrict q = (const zs_pair8 *)b->rows[1];
    const uint16_t hole = zs_cell<uint8_t>(b->nodata), instead = zs_cell<uint8_t>(b->substitute);
    for (int64_t i = 0; i < b->count; i++) {
        const uint16_t w = p[i], v = q[i];
        const uint16_t a = w & 0xFF, c = w >> 8, d = v & 0xFF, e = v >> 8;
        const uint16_t cells = (uint16_t)((a != hole) + (c != hole) + (d != hole) + (e != hole));
        const uint16_t sum = (uint16_t)(a + c + d + e - (4 - cells) * hole);
        const uint16_t inverse = cells == 4 ? 8192 : cells == 3 ? 10923 : cells == 2 ? 16384 : 32768;
        const uint16_t twice = (uint16_t)(2 * sum + cells);
        uint16_t mean = (uint16_t)(((uint32_t)twice * inverse) >> 16);
        mean = mean == hole ? instead : mean;
        out[i] = (uint8_t)(cells ? mean : hole);
    }
}

/* 16-bit: vectors spelt out. Both cells of a word are compared with nodata at once, and holes go as zeros into sums.
 * (2 sum + n) / 2n as a float32 quotient is exact to the integer below: it lies 1 / 2n from the next, or on it. */
template <int size, class T> ZS_INLINE void zs_valid_pair_means(const zs_block *b, T *restrict out) {
    typedef zs_vector<T, size> pairs;
    typedef zs_vector<T, size / 2> results;
    typedef zs_vector<uint32_t, size> words;
    typedef zs_vector<int32_t, size> sums;
    typedef zs_vector<float, size> floats;
    constexpr int64_t width = size / 4;
    constexpr bool is_signed = zs_is_signed<T>;
    const int32_t nodata = zs_cell<T>(b->nodata), substitute = zs_cell<T>(b->substitute);
    const pairs holes = (pairs){0} + (T)nodata;
    for (int64_t i = 0; i < b->count; i += width) {
        const int64_t here = b->count - i < width ? b->count - i : width;
        pairs p = {0}, q = {0};
        if (here == width) {
            memcpy(&p, b->rows[0] + 4 * i, sizeof p);
            memcpy(&q, b->rows[1] + 4 * i, sizeof q);
        } else {
            memcpy(&p, b->rows[0] + 4 * i, (size_t)here * 4);
            memcpy(&q, b->rows[1] + 4 * i, (size_t)here * 4);
        }
        const pairs p_hole = (pairs)(p == holes), q_hole = (pairs)(q == holes);
        const words u = (words)(p & ~p_hole), v = (words)(q & ~q_hole);
        const sums missing = (sums)(p_hole + q_hole); /* minus how many, in both halves */
        const sums n = 4 + (missing >> 16) + ((sums)((words)missing << 16) >> 16);
        const sums sum = is_signed
                             ? ((sums)u >> 16) + ((sums)v >> 16) + ((sums)(u << 16) >> 16) + ((sums)(v << 16) >> 16)
                             : (sums)((u >> 16) + (v >> 16) + (u & 0xFFFF) + (v & 0xFFFF));
        const sums sign = is_signed ? sum >> 31 : (sums){0}; /* halves go away from zero */
        const sums twice = 2 * ((sum ^ sign) - sign) + n, halves = 2 * (n + (sums)((n == 0) & 1));
        const floats mean = __builtin_convertvector(twice, floats) / __builtin_convertvector(halves, floats);
        const sums whole = (__builtin_convertvector(mean, sums) ^ sign) - sign;
        const sums is_hole = whole == nodata, is_empty = n == 0;
        const sums moved = (whole & ~is_hole) | (substitute & is_hole);
        const results cells = __builtin_convertvector((moved & ~is_empty) | (nodata & is_empty), results);
        if (here == width) memcpy(out + i, &cells, sizeof cells);
        else memcpy(out + i, &cells, (size_t)here * sizeof *out);
    }
}

constexpr int64_t ZS_STRETCH = 256; /* outputs at a time: their sums and counts stay in the nearest cache */

/* Floats. Sums and counts go through memory: in one loop the compiler guards the division with a branch, and scalar
 * code it is. A float32 that is a sum of negative zeros keeps their sign, a float64 does not. */
template <int skip, class T> ZS_INLINE void zs_valid_float_quad_means(const zs_block *b, T *restrict out) {
    const T nodata = zs_cell<T>(b->nodata);
    const double zero = sizeof(T) == 4 ? -0.0 : 0.0;
    double *restrict sum = (double *)b->scratch, *restrict valid = sum + ZS_STRETCH;
    for (int64_t from = 0; from < b->count; from += ZS_STRETCH, out += ZS_STRETCH) {
        const int64_t here = b->count - from < ZS_STRETCH ? b->count - from : ZS_STRETCH;
        const T *restrict p = (const T *)b->rows[0] + 2 * from, *restrict q = (const T *)b->rows[1] + 2 * from;
        for (int64_t i = 0; i < here; i++) {
            const T a = p[2 * i], c = p[2 * i + 1], d = q[2 * i], e = q[2 * i + 1];
            const int va = zs_is_valid<skip>(a, nodata), vc = zs_is_valid<skip>(c, nodata);
            const int vd = zs_is_valid<skip>(d, nodata), ve = zs_is_valid<skip>(e, nodata);
            sum[i] =
                ((double)zs_keep(a, va) + (double)zs_keep(c, vc)) + ((double)zs_keep(d, vd) + (double)zs_keep(e, ve));
            valid[i] = (double)(va + vc + vd + ve);
        }
        for (int64_t i = 0; i < here; i++) out[i] = (T)((zero + sum[i]) / valid[i]);
        zs_mark_holes(b, valid, here, out);
    }
}

#endif

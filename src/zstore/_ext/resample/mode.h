/* mode.h - the most frequent value of every window; among equals, the first to reach the top count in
 * row-major order. Nodata does not count; NaN equals NaN and -0 equals 0. Works on bit patterns of 1, 2, 4 or 8 bytes.
 */
#ifndef ZS_MODE_H
#define ZS_MODE_H

#include "block.h"

/* The bits of a cell that are compared; for floats, all NaN are one value, and so are both zeros. Masks rather than
 * conditions: compilers would branch, and loops with a branch are not vectorized. */
template <bool is_float, class Bits> ZS_INLINE Bits zs_key(Bits bits) {
    if constexpr (!is_float) return bits;
    const Bits sign = (Bits)1 << (8 * sizeof bits - 1),
               infinity = sizeof bits == 4 ? 0x7F800000u : (Bits)0x7FF0000000000000u;
    const Bits nan = infinity | infinity >> 1, magnitude = bits & (Bits)~sign;
    const Bits is_nan = (Bits)0 - (Bits)(magnitude > infinity), is_set = (Bits)0 - (Bits)(magnitude != 0);
    return ((bits & ~is_nan) | (nan & is_nan)) & is_set;
}

/* Two by two: the pairs in the order in which they complete decide. */
template <bool is_float, bool skips, class Bits>
ZS_INLINE void zs_quad_modes(const zs_block *b, Bits *restrict out, Bits hole) {
    const Bits *restrict p = (const Bits *)b->rows[0], *restrict q = (const Bits *)b->rows[1];
    for (int64_t i = 0; i < b->count; i++) {
        const Bits a = p[2 * i], c = p[2 * i + 1], d = q[2 * i], e = q[2 * i + 1];
        const Bits ka = zs_key<is_float>(a), kc = zs_key<is_float>(c);
        const Bits kd = zs_key<is_float>(d), ke = zs_key<is_float>(e);
        Bits mode = a;
        if (skips) mode = ka != hole ? a : kc != hole ? c : kd != hole ? d : e;
        mode = ((kd == ke) & (!skips | (kd != hole))) ? d : mode;
        mode = (((kc == kd) | (kc == ke)) & (!skips | (kc != hole))) ? c : mode;
        out[i] = (((ka == kc) | (ka == kd)) & (!skips | (ka != hole))) ? a : mode;
    }
}

/* One cell position of many windows after the other, in planes of `stride` cells. */
template <class Bits> ZS_CLONES static void zs_split(const zs_block *b, int64_t first, int64_t outputs,
                                                     Bits *restrict planes, int64_t stride) {
    const int64_t factor = b->factor, lanes = b->lanes;
    for (int64_t r = 0; r < b->row_count; r++)
        for (int64_t k = 0; k < factor; k++, planes += stride) {
            const Bits *restrict row = (const Bits *)b->rows[r];
            if (lanes > 1) {
                for (int64_t j = 0; j < outputs; j++) {
                    const int64_t i = (first + j) / lanes;
                    planes[j] = row[(i * factor + k) * lanes + (first + j) % lanes];
                }
                continue;
            }
            row += first * factor + k;
            switch (factor) {
            case 1: zs_take_every(1, row, outputs, planes); break;
            case 2: zs_take_every(2, row, outputs, planes); break;
            case 3: zs_take_every(3, row, outputs, planes); break;
            case 4: zs_take_every(4, row, outputs, planes); break;
            default: zs_take_every(factor, row, outputs, planes);
            }
        }
}

/* Count, for every cell, the equal ones up to it: the first cell that gets above the best so far is the winner. */
template <int size, bool is_float, bool skips, class Bits>
ZS_INLINE void zs_paired_modes(const zs_block *b, Bits *restrict out, Bits hole) {
    typedef zs_vector<Bits, size> vec;
    typedef zs_vector<zs_integer<Bits>, size> mask;
    constexpr int64_t width = size / sizeof(Bits);
    const int64_t cells = b->row_count * b->factor, outputs = b->count * b->lanes;
    vec *values = (vec *)b->scratch, *keys = values + cells;
    const vec holes = (vec){0} + hole;
    memset(values, 0, (size_t)cells * sizeof *values);
    for (int64_t first = 0; first < outputs; first += width) {
        const int64_t here = outputs - first < width ? outputs - first : width;
        zs_split(b, first, here, (Bits *)values, width);
        vec differs = {0};
        for (int64_t c = 0; c < cells; c++) {
            for (int64_t j = 0; j < width; j++) ((Bits *)(keys + c))[j] = zs_key<is_float>(((Bits *)(values + c))[j]);
            differs |= keys[c] ^ keys[0];
        }
        uint64_t words[size / 8], any = 0;
        memcpy(words, &differs, sizeof words);
        for (int w = 0; w < size / 8; w++) any |= words[w];
        if (!any) {
            memcpy(out + first, values, (size_t)here * sizeof(Bits));
            continue;
        }
        vec best = values[0];
        mask top = skips ? (mask)(keys[0] != holes) : (mask){0} - 1;
        for (int64_t c = 1; c < cells; c++) {
            mask count = {0};
            for (int64_t d = 0; d <= c; d++) count += (mask)(keys[d] == keys[c]);
            if (skips) count &= (mask)(keys[c] != holes);
            const mask wins = (mask)(count < top); /* both negative: a true comparison is -1 */
            top = (count & wins) | (top & ~wins);
            best = (values[c] & (vec)wins) | (best & (vec)~wins);
        }
        if (skips) {
            const vec none = (vec)(top == 0);
            best = (best & ~none) | (((vec){0} + zs_cell<Bits>(b->nodata)) & none);
        }
        memcpy(out + first, &best, (size_t)here * sizeof(Bits));
    }
}

typedef struct {
    uint64_t *keys;
    int64_t *counts; /* 0: empty */
    uint64_t capacity;
} zs_tally;

ZS_INLINE uint64_t zs_tally_slot(const zs_tally *tally, uint64_t key) {
    uint64_t at = (key * 0x9E3779B97F4A7C15ull) >> 20 & (tally->capacity - 1);
    while (tally->counts[at] && tally->keys[at] != key) at = (at + 1) & (tally->capacity - 1);
    return at;
}

/* Big windows, one at a time. A window of n cells never holds more than n values. */
template <bool is_float, class Bits> ZS_INLINE int zs_tallied_modes(const zs_block *b, Bits *restrict out, Bits hole) {
    const int64_t cells = b->row_count * b->factor;
    zs_tally tally = {NULL, NULL, 1024};
    const uint64_t values = sizeof(Bits) < 4 ? (uint64_t)1 << (8 * sizeof(Bits) % 64) : UINT64_MAX / 4;
    const uint64_t most = (uint64_t)cells < values ? (uint64_t)cells : values;
    while (tally.capacity < 2 * most) tally.capacity *= 2;
    tally.keys = (uint64_t *)malloc(tally.capacity * sizeof *tally.keys);
    tally.counts = (int64_t *)calloc(tally.capacity, sizeof *tally.counts);
    uint64_t *used = (uint64_t *)malloc((size_t)most * sizeof *used);
    const int failed = !tally.keys || !tally.counts || !used;
    for (int64_t o = 0; !failed && o < b->count * b->lanes; o++) {
        const int64_t start = o / b->lanes * b->factor * b->lanes + o % b->lanes;
        int64_t top = 0, used_count = 0;
        uint64_t slot = 0;
        Bits best = zs_cell<Bits>(b->nodata), last = 0;
        int has_last = 0;
        for (int64_t r = 0; r < b->row_count; r++) {
            const Bits *p = (const Bits *)b->rows[r] + start;
            for (int64_t k = 0; k < b->factor; k++) {
                const Bits value = p[k * b->lanes], key = zs_key<is_float>(value);
                if (b->skip && key == hole) continue;
                if (!has_last || key != last) {
                    slot = zs_tally_slot(&tally, key);
                    if (tally.counts[slot] == 0) {
                        tally.keys[slot] = key;
                        used[used_count++] = slot;
                    }
                    last = key;
                    has_last = 1;
                }
                if (++tally.counts[slot] > top) {
                    top = tally.counts[slot];
                    best = value;
                }
            }
        }
        for (int64_t u = 0; u < used_count; u++) tally.counts[used[u]] = 0;
        out[o] = best;
    }
    free(tally.keys);
    free(tally.counts);
    free(used);
    return failed;
}

template <bool is_float, class Bits> struct zs_modes {
    template <int size> ZS_INLINE void run(const zs_block *b, void *results) {
        /* Up to this many cells every pair is compared, many windows at a time; beyond, each window is counted in a
         * table. */
        constexpr int64_t paired = sizeof(Bits) == 1 ? 100 : sizeof(Bits) == 2 ? 64 : sizeof(Bits) == 4 ? 36 : 25;
        Bits *out = (Bits *)results;
        const Bits hole = zs_key<is_float>(zs_cell<Bits>(b->nodata));
        if (zs_is_quad(b)) {
            if (b->skip) zs_quad_modes<is_float, true>(b, out, hole);
            else zs_quad_modes<is_float, false>(b, out, hole);
        } else if (b->row_count * b->factor <= paired) {
            if (b->skip) zs_paired_modes<size, is_float, true>(b, out, hole);
            else zs_paired_modes<size, is_float, false>(b, out, hole);
        } else if (zs_tallied_modes<is_float>(b, out, hole)) {
            *b->out_of_memory = 1;
        }
    }
};

template <class T> constexpr zs_kernel zs_mode = zs_by_width<zs_modes<zs_is_float<T>, zs_bits<T>>>;

#endif

/* box.h - copies the items of an n-dimensional box between strided memory, or fills a box.
 *
 * Strides are in bytes and may be negative or zero. Items may be unaligned. With `unit` > 0 every item consists of
 * units of that many bytes (2, 4 or 8), whose byte order is swapped.
 */
#ifndef ZS_BOX_H
#define ZS_BOX_H

#include <stdint.h>
#include <string.h>

#define ZS_MAX_NDIM 32
#define ZS_TILE 32 /* items along the edge of the squares that a transposing copy goes through */

/* One dimension of a box: `count` items, with byte strides on both sides. */
typedef struct {
    int64_t count, to, from;
} zs_dim;

/* Integers at any address. */
typedef uint16_t __attribute__((may_alias, aligned(1))) zs_odd2;
typedef uint32_t __attribute__((may_alias, aligned(1))) zs_odd4;
typedef uint64_t __attribute__((may_alias, aligned(1))) zs_odd8;

#define ZS_LINE(T, EXPR, TO_STRIDE, FROM_STRIDE)            \
    do {                                                    \
        for (int64_t i = 0; i < n; i++) {                   \
            T v;                                            \
            memcpy(&v, from + i * (FROM_STRIDE), sizeof v); \
            v = EXPR;                                       \
            memcpy(to + i * (TO_STRIDE), &v, sizeof v);     \
        }                                                   \
    } while (0)
/* The same with constant strides, which the compiler can vectorize. */
#define ZS_RUN(T, EXPR) ZS_LINE(T, EXPR, (int64_t)sizeof(T), (int64_t)sizeof(T))
#define ZS_SWITCH_LINE(T, EXPR)                                                    \
    do {                                                                           \
        if (ds == (int64_t)sizeof(T) && ss == (int64_t)sizeof(T)) ZS_RUN(T, EXPR); \
        else ZS_LINE(T, EXPR, ds, ss);                                             \
    } while (0)

typedef struct {
    uint64_t lo, hi;
} zs_pair;

#if defined(__x86_64__) && defined(__GNUC__)
#define ZS_HAS_WIDE 1
/* Swap the bytes of contiguous units, by AVX2: the instructions for it are newer than the processors that everything
 * else is compiled for. */
__attribute__((target("avx2"))) static void zs_swap_wide(char *to, const char *from, int64_t size, int64_t unit) {
    const int64_t n = size / unit;
    if (to == from) { /* separate loops: for those below, the compiler would have to expect overlap */
        if (unit == 2)
            for (int64_t i = 0; i < n; i++) ((zs_odd2 *)to)[i] = __builtin_bswap16(((zs_odd2 *)to)[i]);
        else if (unit == 4)
            for (int64_t i = 0; i < n; i++) ((zs_odd4 *)to)[i] = __builtin_bswap32(((zs_odd4 *)to)[i]);
        else
            for (int64_t i = 0; i < n; i++) ((zs_odd8 *)to)[i] = __builtin_bswap64(((zs_odd8 *)to)[i]);
    } else if (unit == 2) ZS_RUN(uint16_t, __builtin_bswap16(v));
    else if (unit == 4) ZS_RUN(uint32_t, __builtin_bswap32(v));
    else ZS_RUN(uint64_t, __builtin_bswap64(v));
}
#endif

/* Copy one line of `n` items. */
static inline void zs_copy_line(char *to, int64_t ds, const char *from, int64_t ss, int64_t n, int64_t item, int swap) {
#ifdef ZS_HAS_WIDE
    if (swap && ds == item && ss == item && n * item >= 64 && __builtin_cpu_supports("avx2")) {
        zs_swap_wide(to, from, n * item, item);
        return;
    }
#endif
    if (swap) {
        if (item == 2) ZS_SWITCH_LINE(uint16_t, __builtin_bswap16(v));
        else if (item == 4) ZS_SWITCH_LINE(uint32_t, __builtin_bswap32(v));
        else ZS_SWITCH_LINE(uint64_t, __builtin_bswap64(v));
        return;
    }
    if (ds == item && ss == item) {
        memcpy(to, from, (size_t)(n * item));
        return;
    }
    switch (item) {
    case 1: ZS_LINE(uint8_t, v, ds, ss); return;
    case 2: ZS_LINE(uint16_t, v, ds, ss); return;
    case 4: ZS_LINE(uint32_t, v, ds, ss); return;
    case 8: ZS_LINE(uint64_t, v, ds, ss); return;
    case 16: ZS_LINE(zs_pair, v, ds, ss); return;
    default:
        for (int64_t i = 0; i < n; i++) memcpy(to + i * ds, from + i * ss, (size_t)item);
    }
}

/* Drop dimensions of one item, order the rest so that the innermost is contiguous at the destination, and merge
 * neighbours that are contiguous on both sides. Returns the number of dimensions left (0 for a single item). */
static inline int zs_simplify(zs_dim *d, int nd) {
    int n = 0;
    for (int k = 0; k < nd; k++)
        if (d[k].count != 1) d[n++] = d[k];
    for (int k = 1; k < n; k++) { /* insertion sort, widest destination stride first */
        zs_dim key = d[k];
        int64_t width = key.to < 0 ? -key.to : key.to;
        int j = k - 1;
        while (j >= 0 && (d[j].to < 0 ? -d[j].to : d[j].to) < width) {
            d[j + 1] = d[j];
            j--;
        }
        d[j + 1] = key;
    }
    int m = 0;
    for (int k = 1; k < n; k++) {
        if (d[m].to == d[k].to * d[k].count && d[m].from == d[k].from * d[k].count) {
            d[k].count *= d[m].count;
            d[m] = d[k];
        } else {
            d[++m] = d[k];
        }
    }
    return n ? m + 1 : 0;
}

/* Copy the two innermost dimensions in squares that fit the L1 cache: `b` is contiguous at the destination, `a` at the
 * source. */
static inline void zs_copy_tiles(char *to, const char *from, zs_dim a, zs_dim b, int64_t item, int swap) {
    for (int64_t i = 0; i < a.count; i += ZS_TILE) {
        int64_t rows = a.count - i < ZS_TILE ? a.count - i : ZS_TILE;
        for (int64_t j = 0; j < b.count; j += ZS_TILE) {
            int64_t columns = b.count - j < ZS_TILE ? b.count - j : ZS_TILE;
            char *t = to + i * a.to + j * b.to;
            const char *f = from + i * a.from + j * b.from;
            for (int64_t k = 0; k < rows; k++)
                zs_copy_line(t + k * a.to, b.to, f + k * a.from, b.from, columns, item, swap);
        }
    }
}

static inline void zs_copy_dims(char *to, const char *from, const zs_dim *d, int nd, int64_t item, int swap) {
    if (nd == 0) {
        zs_copy_line(to, item, from, item, 1, item, swap);
        return;
    }
    if (nd == 1) {
        zs_copy_line(to, d->to, from, d->from, d->count, item, swap);
        return;
    }
    if (nd == 2) {
        int64_t outer = d[0].from < 0 ? -d[0].from : d[0].from, inner = d[1].from < 0 ? -d[1].from : d[1].from;
        if (outer < inner && d[1].count > 4) {
            zs_copy_tiles(to, from, d[0], d[1], item, swap);
            return;
        }
        for (int64_t i = 0; i < d[0].count; i++)
            zs_copy_line(to + i * d[0].to, d[1].to, from + i * d[0].from, d[1].from, d[1].count, item, swap);
        return;
    }
    for (int64_t i = 0; i < d->count; i++) zs_copy_dims(to + i * d->to, from + i * d->from, d + 1, nd - 1, item, swap);
}

/* If the source's contiguous dimension is not among the two innermost (a transposed n-d chunk), move it next to the
 * innermost, for zs_copy_tiles. */
static inline void zs_pair_up(zs_dim *d, int nd) {
    if (nd < 3) return;
    int best = nd - 1;
    for (int k = 0; k < nd; k++) {
        int64_t a = d[k].from < 0 ? -d[k].from : d[k].from, b = d[best].from < 0 ? -d[best].from : d[best].from;
        if (a < b) best = k;
    }
    if (best >= nd - 2) return;
    zs_dim near = d[best];
    memmove(d + best, d + best + 1, sizeof *d * (size_t)(nd - 2 - best));
    d[nd - 2] = near;
}

/* Copy a box. */
static inline void zs_copy_box(char *to, const char *from, zs_dim *dims, int nd, int64_t item, int64_t unit) {
    for (int k = 0; k < nd; k++)
        if (dims[k].count == 0) return;
    zs_dim d[ZS_MAX_NDIM + 1];
    memcpy(d, dims, sizeof *d * (size_t)nd);
    if (unit && unit != item) d[nd++] = (zs_dim){item / unit, unit, unit};
    nd = zs_simplify(d, nd);
    zs_pair_up(d, nd);
    zs_copy_dims(to, from, d, nd, unit ? unit : item, unit != 0);
}

/* Swap the bytes of contiguous units in place. */
static inline void zs_swap_run(char *data, int64_t size, int64_t unit) {
    zs_copy_line(data, unit, data, unit, size / unit, unit, 1);
}

/* Fill `n` contiguous items with `value`. */
static inline void zs_fill_run(char *to, int64_t n, const char *value, int64_t item, int is_zero) {
    if (is_zero || item == 1) {
        memset(to, is_zero ? 0 : (unsigned char)*value, (size_t)(n * item));
        return;
    }
    if (n == 0) return;
    memcpy(to, value, (size_t)item);
    int64_t have = item, want = n * item; /* doubling, up to a piece that fits the cache */
    while (have < want) {
        int64_t piece = have < 16384 ? have : 16384 - 16384 % item;
        if (piece < item) piece = item;
        if (piece > want - have) piece = want - have;
        memcpy(to + have, to, (size_t)piece);
        have += piece;
    }
}

static inline void zs_fill_dims(char *to, const zs_dim *d, int nd, const char *value, int64_t item, int is_zero) {
    if (nd == 0) {
        memcpy(to, value, (size_t)item);
    } else if (nd == 1) {
        if (d->to == item) zs_fill_run(to, d->count, value, item, is_zero);
        else
            for (int64_t i = 0; i < d->count; i++) memcpy(to + i * d->to, value, (size_t)item);
    } else {
        for (int64_t i = 0; i < d->count; i++) zs_fill_dims(to + i * d->to, d + 1, nd - 1, value, item, is_zero);
    }
}

/* Fill a box with one value; only the destination's strides count. Overwrites `dims`. */
static inline void zs_fill_box(char *to, zs_dim *dims, int nd, const char *value, int64_t item, int is_zero) {
    for (int k = 0; k < nd; k++) {
        if (dims[k].count == 0) return;
        dims[k].from = dims[k].to; /* so that dimensions contiguous at the destination are merged */
    }
    nd = zs_simplify(dims, nd);
    zs_fill_dims(to, dims, nd, value, item, is_zero);
}

/* Whether all contiguous items equal `value` bit for bit: the first one does, and each equals the next. */
static inline int zs_is_filled(const char *data, int64_t size, const char *value, int64_t item) {
    if (size == 0) return 1;
    if (memcmp(data, value, (size_t)item)) return 0;
    return size == item || memcmp(data, data + item, (size_t)(size - item)) == 0;
}

#endif

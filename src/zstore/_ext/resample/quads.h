/* quads.h - means of 2 x 2 windows: the case that pyramids are made of, without scratch memory. */
#ifndef ZSTORE_RESAMPLE_QUADS_H
#define ZSTORE_RESAMPLE_QUADS_H

#include "block.h"

ZR_INLINE uint8_t zr_mean4_u8(uint32_t a, uint32_t b, uint32_t c, uint32_t d) { return (uint8_t)((a + b + c + d + 2) >> 2); }
ZR_INLINE int8_t zr_mean4_i8(int32_t a, int32_t b, int32_t c, int32_t d)
{
    const int32_t sum = a + b + c + d;
    return (int8_t)((sum + 2 + (sum >> 31)) >> 2);
}
ZR_INLINE int16_t zr_mean4_i16(int32_t a, int32_t b, int32_t c, int32_t d)
{
    const int32_t sum = a + b + c + d;
    return (int16_t)((sum + 2 + (sum >> 31)) >> 2);
}
ZR_INLINE uint32_t zr_mean4_u32(uint64_t a, uint64_t b, uint64_t c, uint64_t d) { return (uint32_t)((a + b + c + d + 2) >> 2); }
ZR_INLINE int32_t zr_mean4_i32(int64_t a, int64_t b, int64_t c, int64_t d)
{
    const int64_t sum = a + b + c + d;
    return (int32_t)((sum + 2 + (sum >> 63)) >> 2);
}
ZR_INLINE float zr_mean4_f32(float a, float b, float c, float d) { return ((a + c) + (b + d)) * 0.25f; }
ZR_INLINE double zr_mean4_f64(double a, double b, double c, double d)
{
    return ((0.25 * a + 0.25 * b) + 0.25 * c) + 0.25 * d;
}

#define ZR_MEANS4(ID, T)                                                                                           \
    ZR_INLINE void ZR_PASTE(means4, ID)(const zr_block *b, T *restrict out)                                        \
    {                                                                                                              \
        const T *restrict p = (const T *)b->rows[0], *restrict q = (const T *)b->rows[1];                          \
        for (int64_t i = 0; i < b->count; i++)                                                                     \
            out[i] = ZR_PASTE(zr_mean4, ID)(p[2 * i], p[2 * i + 1], q[2 * i], q[2 * i + 1]);                       \
    }
ZR_MEANS4(i8, int8_t)
ZR_MEANS4(u32, uint32_t)
ZR_MEANS4(i32, int32_t)
ZR_MEANS4(f32, float)
ZR_MEANS4(f64, double)

/* Two cells per machine word need no shuffle to be told apart. */
#define ZR_PAIRED_MEANS4(ID, T, PAIR, LOW, HIGH)                                                                   \
    ZR_INLINE void ZR_PASTE(means4, ID)(const zr_block *b, T *restrict out)                                        \
    {                                                                                                              \
        const PAIR *restrict p = (const PAIR *)b->rows[0], *restrict q = (const PAIR *)b->rows[1];                 \
        for (int64_t i = 0; i < b->count; i++)                                                                     \
            out[i] = ZR_PASTE(zr_mean4, ID)(LOW(p[i]), HIGH(p[i]), LOW(q[i]), HIGH(q[i]));                         \
    }
#define ZR_LOW8(w) ((w) & 0xFF)
#define ZR_HIGH8(w) ((w) >> 8)
#define ZR_LOW16(w) ((w) & 0xFFFF)
#define ZR_HIGH16(w) ((w) >> 16)
#define ZR_LOW16S(w) ((int32_t)((w) << 16) >> 16)
#define ZR_HIGH16S(w) ((int32_t)(w) >> 16)
ZR_INLINE uint16_t zr_mean4_u16(uint32_t a, uint32_t b, uint32_t c, uint32_t d) { return (uint16_t)((a + b + c + d + 2) >> 2); }
ZR_PAIRED_MEANS4(u8, uint8_t, zr_pair8, ZR_LOW8, ZR_HIGH8)
ZR_PAIRED_MEANS4(u16, uint16_t, zr_pair16, ZR_LOW16, ZR_HIGH16)
ZR_PAIRED_MEANS4(i16, int16_t, zr_pair16, ZR_LOW16S, ZR_HIGH16S)

/* Means of up to four valid cells each. 8-bit: t / (2n) as (t * ceil(65536 / 2n)) >> 16, exact for t <= 2044. */
ZR_INLINE void zr_valid_means4_u8(const zr_block *b, uint8_t *restrict out, uint8_t nodata, uint8_t substitute)
{
    const zr_pair8 *restrict p = (const zr_pair8 *)b->rows[0], *restrict q = (const zr_pair8 *)b->rows[1];
    const uint16_t hole = nodata, instead = substitute;
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
typedef uint32_t zr_words16 __attribute__((vector_size(64)));
typedef int32_t zr_sums16 __attribute__((vector_size(64)));
typedef float zr_floats16 __attribute__((vector_size(64)));

#define ZR_VALID_MEANS4_INTEGER(ID, T, SIGNED)                                                                     \
    typedef T zr_cells_##ID __attribute__((vector_size(64)));                                                      \
    typedef T zr_means_##ID __attribute__((vector_size(32)));                                                      \
    ZR_INLINE void zr_valid_means4_##ID(const zr_block *b, T *restrict out, T nodata, T substitute)                \
    {                                                                                                              \
        const zr_cells_##ID holes = (zr_cells_##ID){0} + nodata;                                                   \
        for (int64_t i = 0; i < b->count; i += 16) {                                                               \
            const int64_t here = b->count - i < 16 ? b->count - i : 16;                                            \
            zr_cells_##ID p = {0}, q = {0};                                                                        \
            if (here == 16) {                                                                                      \
                memcpy(&p, b->rows[0] + 4 * i, sizeof p);                                                          \
                memcpy(&q, b->rows[1] + 4 * i, sizeof q);                                                          \
            } else {                                                                                               \
                memcpy(&p, b->rows[0] + 4 * i, (size_t)here * 4);                                                  \
                memcpy(&q, b->rows[1] + 4 * i, (size_t)here * 4);                                                  \
            }                                                                                                      \
            const zr_cells_##ID p_hole = (zr_cells_##ID)(p == holes), q_hole = (zr_cells_##ID)(q == holes);        \
            const zr_words16 u = (zr_words16)(p & ~p_hole), v = (zr_words16)(q & ~q_hole);                         \
            const zr_sums16 missing = (zr_sums16)(p_hole + q_hole); /* minus how many, in both halves */           \
            const zr_sums16 n = 4 + (missing >> 16) + ((zr_sums16)((zr_words16)missing << 16) >> 16);              \
            const zr_sums16 sum = SIGNED ? ((zr_sums16)u >> 16) + ((zr_sums16)v >> 16) +                           \
                                               ((zr_sums16)(u << 16) >> 16) + ((zr_sums16)(v << 16) >> 16)         \
                                         : (zr_sums16)((u >> 16) + (v >> 16) + (u & 0xFFFF) + (v & 0xFFFF));       \
            const zr_sums16 sign = SIGNED ? sum >> 31 : (zr_sums16){0}; /* halves go away from zero */             \
            const zr_sums16 twice = 2 * ((sum ^ sign) - sign) + n, halves = 2 * (n + (zr_sums16)((n == 0) & 1));   \
            const zr_floats16 mean = __builtin_convertvector(twice, zr_floats16) /                                 \
                                     __builtin_convertvector(halves, zr_floats16);                                 \
            const zr_sums16 whole = (__builtin_convertvector(mean, zr_sums16) ^ sign) - sign;                      \
            const zr_sums16 is_hole = whole == (int32_t)nodata, is_empty = n == 0;                                 \
            const zr_sums16 moved = (whole & ~is_hole) | ((int32_t)substitute & is_hole);                          \
            const zr_means_##ID cells =                                                                            \
                __builtin_convertvector((moved & ~is_empty) | ((int32_t)nodata & is_empty), zr_means_##ID);        \
            if (here == 16)                                                                                        \
                memcpy(out + i, &cells, sizeof cells);                                                             \
            else                                                                                                   \
                memcpy(out + i, &cells, (size_t)here * sizeof *out);                                               \
        }                                                                                                          \
    }
ZR_VALID_MEANS4_INTEGER(u16, uint16_t, 0)
ZR_VALID_MEANS4_INTEGER(i16, int16_t, 1)

/* Sums and counts go through memory: in one loop the compiler guards the division with a branch, and scalar code it is. */
#define ZR_VALID_SUMS4(ID, T)                                                                                      \
    ZR_INLINE void zr_valid_sums4_##ID(const T *restrict p, const T *restrict q, int64_t count, double *restrict sum, \
                                       double *restrict valid, int skip, T nodata)                                 \
    {                                                                                                              \
        for (int64_t i = 0; i < count; i++) {                                                                      \
            const T a = p[2 * i], c = p[2 * i + 1], d = q[2 * i], e = q[2 * i + 1];                                \
            const int va = is_valid_##ID(a, skip, nodata), vc = is_valid_##ID(c, skip, nodata);                    \
            const int vd = is_valid_##ID(d, skip, nodata), ve = is_valid_##ID(e, skip, nodata);                    \
            sum[i] = ((double)zr_keep_##ID(a, va) + (double)zr_keep_##ID(c, vc)) +                                 \
                     ((double)zr_keep_##ID(d, vd) + (double)zr_keep_##ID(e, ve));                                  \
            valid[i] = (double)(va + vc + vd + ve);                                                                \
        }                                                                                                          \
    }
ZR_VALID_SUMS4(f32, float)
ZR_VALID_SUMS4(f64, double)

#endif

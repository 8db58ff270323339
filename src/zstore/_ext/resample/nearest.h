/* nearest.h - the first cell of every window, whatever its type. */
#ifndef ZSTORE_RESAMPLE_NEAREST_H
#define ZSTORE_RESAMPLE_NEAREST_H

#include "block.h"

/* Every second or fourth cell: a vector holds several of them. Beyond, a plain strided copy is as quick. */
#define ZR_NEAREST(T)                                                                                             \
    do {                                                                                                           \
        const T *restrict p = (const T *)b->rows[0];                                                               \
        T *restrict q = (T *)out;                                                                                  \
        if (b->factor == 2)                                                                                        \
            for (int64_t i = 0; i < b->count; i++) q[i] = p[2 * i];                                                \
        else                                                                                                       \
            for (int64_t i = 0; i < b->count; i++) q[i] = p[4 * i];                                                \
    } while (0)

/* Bytes two by two: narrowing a word is one instruction, picking every other byte is not. */
ZR_INLINE void zr_nearest_pairs(const zr_block *b, uint8_t *restrict out)
{
    const zr_pair8 *restrict p = (const zr_pair8 *)b->rows[0];
    const int shift = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 8 : 0;
    for (int64_t i = 0; i < b->count; i++) out[i] = (uint8_t)(p[i] >> shift);
}

ZR_CLONES static void zr_nearest(const zr_block *b, void *out)
{
    if (b->factor == 2 && b->lanes == 1 && b->item_size == 1) {
        zr_nearest_pairs(b, out);
        return;
    }
    if ((b->factor == 2 || b->factor == 4) && b->lanes == 1) {
        switch (b->item_size) {
        case 2: ZR_NEAREST(uint16_t); return;
        case 4: ZR_NEAREST(uint32_t); return;
        }
    }
    const size_t run = (size_t)(b->item_size * b->lanes);
    for (int64_t i = 0; i < b->count; i++)
        memcpy((char *)out + (size_t)i * run, b->rows[0] + (size_t)(i * b->factor) * run, run);
}

#endif

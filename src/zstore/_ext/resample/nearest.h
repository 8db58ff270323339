/* nearest.h - the first cell of every window, whatever its type. */
#ifndef ZS_NEAREST_H
#define ZS_NEAREST_H

#include "block.h"

/* Every second or fourth cell. For greater steps a plain strided copy is as fast. */
template <class Bits> ZS_INLINE void zs_pick(const zs_block *b, Bits *restrict out) {
    if (b->factor == 2) zs_take_every(2, (const Bits *)b->rows[0], b->count, out);
    else zs_take_every(4, (const Bits *)b->rows[0], b->count, out);
}

/* Bytes two by two: narrowing a word is one instruction, picking every other byte is not. */
ZS_INLINE void zs_pick_pairs(const zs_block *b, uint8_t *restrict out) {
    const zs_pair8 *restrict p = (const zs_pair8 *)b->rows[0];
    const int shift = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 8 : 0;
    for (int64_t i = 0; i < b->count; i++) out[i] = (uint8_t)(p[i] >> shift);
}

ZS_CLONES static void zs_nearest(const zs_block *b, void *out) {
    if (b->factor == 2 && b->lanes == 1 && b->item_size == 1) return zs_pick_pairs(b, (uint8_t *)out);
    if ((b->factor == 2 || b->factor == 4) && b->lanes == 1) {
        if (b->item_size == 2) return zs_pick(b, (uint16_t *)out);
        if (b->item_size == 4) return zs_pick(b, (uint32_t *)out);
    }
    const size_t run = (size_t)(b->item_size * b->lanes);
    for (int64_t i = 0; i < b->count; i++)
        memcpy((char *)out + (size_t)i * run, b->rows[0] + (size_t)(i * b->factor) * run, run);
}

#endif

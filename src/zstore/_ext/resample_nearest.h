/* resample_nearest.h - the first cell of every window, whatever its type. */
#ifndef ZSTORE_RESAMPLE_NEAREST_H
#define ZSTORE_RESAMPLE_NEAREST_H

#include "resample_block.h"

#define ZR_NEAREST(T)                                                                                              \
    do {                                                                                                           \
        const T *restrict p = (const T *)b->rows[0];                                                               \
        T *restrict q = (T *)out;                                                                                  \
        const int64_t step = b->factor * b->lanes;                                                                 \
        if (b->lanes > 1) {                                                                                        \
            for (int64_t i = 0; i < b->count; i++)                                                                 \
                for (int64_t l = 0; l < b->lanes; l++) q[i * b->lanes + l] = p[i * step + l];                      \
        } else if (step == 1) {                                                                                    \
            memcpy(q, p, (size_t)b->count * sizeof(T));                                                            \
        } else if (step == 2) {                                                                                    \
            for (int64_t i = 0; i < b->count; i++) q[i] = p[2 * i];                                                \
        } else if (step == 4) {                                                                                    \
            for (int64_t i = 0; i < b->count; i++) q[i] = p[4 * i];                                                \
        } else {                                                                                                   \
            for (int64_t i = 0; i < b->count; i++) q[i] = p[i * step];                                             \
        }                                                                                                          \
    } while (0)

ZR_CLONES static void zr_nearest(const zr_block *b, void *out)
{
    switch (b->item_size) {
    case 1: ZR_NEAREST(uint8_t); return;
    case 2: ZR_NEAREST(uint16_t); return;
    case 4: ZR_NEAREST(uint32_t); return;
    case 8: ZR_NEAREST(uint64_t); return;
    }
    const size_t run = (size_t)(b->item_size * b->lanes);
    for (int64_t i = 0; i < b->count; i++)
        memcpy((char *)out + (size_t)i * run, b->rows[0] + (size_t)(i * b->factor) * run, run);
}

#endif

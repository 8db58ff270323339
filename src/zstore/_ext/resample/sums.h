/* sums.h - sums over windows, as a template: column sums first, then neighbouring columns.
 *
 * Set before including: ZR_ID (suffix), ZR_T (cell), ZR_V (column sum), ZR_C (column count), ZR_H (window sum), and
 * ZR_EXACT if no sum ever rounds. Optional: ZR_LOAD (what is summed of a cell), ZR_KEEP (the cell if valid, else 0).
 */

#ifdef ZR_EXACT
#define ZR_CAN_BE_NAN 0
#else
#define ZR_CAN_BE_NAN 1
#endif
#ifndef ZR_LOAD
#define ZR_LOAD(cell) (cell)
#endif
#ifndef ZR_KEEP
#define ZR_KEEP(cell, keep) ((keep) ? (cell) : (ZR_T)0)
#endif

ZR_INLINE void ZR_FN(add_columns)(const zr_block *b, ZR_V *restrict sum)
{
    const int64_t width = b->count * b->factor * b->lanes;
    int64_t r = 2;
    const ZR_T *p = (const ZR_T *)b->rows[0];
    if (b->row_count == 1) {
        for (int64_t x = 0; x < width; x++) sum[x] = (ZR_V)ZR_LOAD(p[x]);
        return;
    }
    const ZR_T *q = (const ZR_T *)b->rows[1];
    if (b->row_count == 2) {
        for (int64_t x = 0; x < width; x++) sum[x] = (ZR_V)ZR_LOAD(p[x]) + (ZR_V)ZR_LOAD(q[x]);
        return;
    }
    const ZR_T *t = (const ZR_T *)b->rows[2];
    for (int64_t x = 0; x < width; x++) sum[x] = (ZR_V)ZR_LOAD(p[x]) + (ZR_V)ZR_LOAD(q[x]) + (ZR_V)ZR_LOAD(t[x]);
    for (r = 3; r + 1 < b->row_count; r += 2) {
        p = (const ZR_T *)b->rows[r];
        q = (const ZR_T *)b->rows[r + 1];
        for (int64_t x = 0; x < width; x++) sum[x] = sum[x] + (ZR_V)ZR_LOAD(p[x]) + (ZR_V)ZR_LOAD(q[x]);
    }
    if (r < b->row_count) {
        p = (const ZR_T *)b->rows[r];
        for (int64_t x = 0; x < width; x++) sum[x] += (ZR_V)ZR_LOAD(p[x]);
    }
}

ZR_INLINE int ZR_FN(is_valid)(ZR_T cell, int skip, ZR_T nodata)
{
    return skip == ZR_SKIP_NAN ? cell == cell : cell != nodata;
}

ZR_INLINE void ZR_FN(count_columns)(const zr_block *b, ZR_C *restrict valid, int skip, ZR_T nodata)
{
    const int64_t width = b->count * b->factor * b->lanes;
    int64_t r = 0;
    if (b->row_count % 2) {
        const ZR_T *p = (const ZR_T *)b->rows[r++];
        for (int64_t x = 0; x < width; x++) valid[x] = (ZR_C)ZR_FN(is_valid)(p[x], skip, nodata);
    } else {
        memset(valid, 0, (size_t)width * sizeof *valid);
    }
    for (; r < b->row_count; r += 2) {
        const ZR_T *p = (const ZR_T *)b->rows[r], *q = (const ZR_T *)b->rows[r + 1];
        for (int64_t x = 0; x < width; x++)
            valid[x] = (ZR_C)(valid[x] + (ZR_C)ZR_FN(is_valid)(p[x], skip, nodata) + (ZR_C)ZR_FN(is_valid)(q[x], skip, nodata));
    }
}

/* Integers need no selection: what the holes added is known and comes off again in `window_sums`. */
ZR_INLINE void ZR_FN(add_valid_columns)(const zr_block *b, ZR_V *restrict sum, int skip, ZR_T nodata)
{
#ifdef ZR_EXACT
    (void)skip;
    (void)nodata;
    ZR_FN(add_columns)(b, sum);
#else
    const int64_t width = b->count * b->factor * b->lanes;
    memset(sum, 0, (size_t)width * sizeof *sum);
    for (int64_t r = 0; r < b->row_count; r++) {
        const ZR_T *p = (const ZR_T *)b->rows[r];
        for (int64_t x = 0; x < width; x++) sum[x] += (ZR_V)ZR_LOAD(ZR_KEEP(p[x], ZR_FN(is_valid)(p[x], skip, nodata)));
    }
#endif
}

#define ZR_FOLD(NAME, FROM, TO)                                                                                     \
    ZR_INLINE void ZR_FN(NAME)(const zr_block *b, const FROM *restrict column, TO *restrict window)                 \
    {                                                                                                               \
        const int64_t count = b->count, factor = b->factor, lanes = b->lanes;                                       \
        if (factor == 1) {                                                                                          \
            for (int64_t i = 0; i < count * lanes; i++) window[i] = (TO)column[i];                                  \
        } else if (lanes > 1) {                                                                                     \
            for (int64_t i = 0; i < count; i++)                                                                     \
                for (int64_t l = 0; l < lanes; l++) {                                                               \
                    TO sum = (TO)column[i * factor * lanes + l];                                                    \
                    for (int64_t k = 1; k < factor; k++) sum += (TO)column[(i * factor + k) * lanes + l];           \
                    window[i * lanes + l] = sum;                                                                    \
                }                                                                                                   \
        } else if (factor == 2) {                                                                                   \
            for (int64_t i = 0; i < count; i++) window[i] = (TO)column[2 * i] + (TO)column[2 * i + 1];              \
        } else if (factor == 3) {                                                                                   \
            for (int64_t i = 0; i < count; i++)                                                                     \
                window[i] = (TO)column[3 * i] + (TO)column[3 * i + 1] + (TO)column[3 * i + 2];                      \
        } else if (factor == 4) {                                                                                   \
            for (int64_t i = 0; i < count; i++)                                                                     \
                window[i] = (TO)column[4 * i] + (TO)column[4 * i + 1] + (TO)column[4 * i + 2] + (TO)column[4 * i + 3]; \
        } else if (factor == 5) {                                                                                   \
            for (int64_t i = 0; i < count; i++)                                                                     \
                window[i] = (TO)column[5 * i] + (TO)column[5 * i + 1] + (TO)column[5 * i + 2] +                     \
                            (TO)column[5 * i + 3] + (TO)column[5 * i + 4];                                          \
        } else {                                                                                                    \
            for (int64_t i = 0; i < count; i++) {                                                                   \
                TO sum = (TO)column[i * factor];                                                                    \
                for (int64_t k = 1; k < factor; k++) sum += (TO)column[i * factor + k];                             \
                window[i] = sum;                                                                                    \
            }                                                                                                       \
        }                                                                                                           \
    }
ZR_FOLD(fold, ZR_V, ZR_H)
ZR_FOLD(fold_valid, ZR_C, ZR_H)
#undef ZR_FOLD

/* The window sums of a block in scratch memory, and in *valid_out how many cells each sum holds (when skipping). */
ZR_CLONES static ZR_H *ZR_FN(window_sums)(const zr_block *b, ZR_H **valid_out, int skip, ZR_T nodata)
{
    const int64_t width = b->count * b->factor * b->lanes, outputs = b->count * b->lanes;
    const size_t room = ((size_t)(width > ZR_BLOCK ? outputs : width) + 15) & ~(size_t)15;
    ZR_V *column = (ZR_V *)b->scratch;
    ZR_C *column_valid = (ZR_C *)(column + room);
    ZR_H *window = (ZR_H *)(column_valid + room);
    ZR_H *valid = window + room;
    *valid_out = valid;
    if (width > ZR_BLOCK) {
        memset(window, 0, (size_t)outputs * sizeof *window);
        memset(valid, 0, (size_t)outputs * sizeof *valid);
        for (int64_t r = 0; r < b->row_count; r++) {
            const ZR_T *p = (const ZR_T *)b->rows[r];
            for (int64_t k = 0; k < b->factor; k++)
                for (int64_t l = 0; l < b->lanes; l++, p++) {
                    const int ok = skip == ZR_PLAIN || ZR_FN(is_valid)(*p, skip, nodata);
                    window[l] += ok ? (ZR_H)ZR_LOAD(*p) : (ZR_H)0;
                    valid[l] += (ZR_H)ok;
                }
        }
        return window;
    }
    if (skip == ZR_PLAIN) {
        ZR_FN(add_columns)(b, column);
    } else {
        if (ZR_CAN_BE_NAN && skip == ZR_SKIP_NAN) {
            ZR_FN(add_valid_columns)(b, column, ZR_SKIP_NAN, nodata);
            ZR_FN(count_columns)(b, column_valid, ZR_SKIP_NAN, nodata);
        } else {
            ZR_FN(add_valid_columns)(b, column, ZR_SKIP_VALUE, nodata);
            ZR_FN(count_columns)(b, column_valid, ZR_SKIP_VALUE, nodata);
        }
        ZR_FN(fold_valid)(b, column_valid, valid);
    }
    ZR_FN(fold)(b, column, window);
#ifdef ZR_EXACT
    if (skip != ZR_PLAIN) {
        const ZR_H cells = (ZR_H)(b->row_count * b->factor);
        for (int64_t i = 0; i < outputs; i++) window[i] -= (ZR_H)nodata * (cells - valid[i]);
    }
#endif
    return window;
}

#undef ZR_CAN_BE_NAN
#undef ZR_ID
#undef ZR_V
#undef ZR_C
#undef ZR_H

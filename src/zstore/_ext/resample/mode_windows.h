/* mode_windows.h - the kernels of mode.h for one cell size, as a template.
 *
 * Set before including: ZR_ID (suffix), ZR_T (unsigned bit pattern), ZR_S (the signed one), ZR_KEY (pattern -> what is
 * compared, so that all NaN are one value).
 */

typedef ZR_T ZR_FN(zr_vec) __attribute__((vector_size(64)));
typedef ZR_S ZR_FN(zr_mask) __attribute__((vector_size(64)));

/* Two by two: the pairs in the order in which they complete decide. */
ZR_INLINE void ZR_FN(mode4)(const zr_block *b, ZR_T *restrict out, int skip, ZR_T hole)
{
    const ZR_T *restrict p = (const ZR_T *)b->rows[0], *restrict q = (const ZR_T *)b->rows[1];
    for (int64_t i = 0; i < b->count; i++) {
        const ZR_T a = p[2 * i], c = p[2 * i + 1], d = q[2 * i], e = q[2 * i + 1];
        const ZR_T ka = ZR_KEY(a), kc = ZR_KEY(c), kd = ZR_KEY(d), ke = ZR_KEY(e);
        ZR_T mode;
        if (skip) {
            const ZR_T first = ka != hole ? a : kc != hole ? c : kd != hole ? d : e;
            mode = ((kd == ke) & (kd != hole)) ? d : first;
            mode = (((kc == kd) | (kc == ke)) & (kc != hole)) ? c : mode;
            mode = (((ka == kc) | (ka == kd)) & (ka != hole)) ? a : mode;
            out[i] = mode;
        } else {
            mode = kd == ke ? d : a;
            mode = ((kc == kd) | (kc == ke)) ? c : mode;
            out[i] = ((ka == kc) | (ka == kd)) ? a : mode;
        }
    }
}

/* One cell position of many windows after the other, in planes of `stride` cells. */
ZR_CLONES static void ZR_FN(split)(const zr_block *b, int64_t first, int64_t outputs, ZR_T *restrict planes, int64_t stride)
{
    const int64_t factor = b->factor, lanes = b->lanes;
    for (int64_t r = 0; r < b->row_count; r++)
        for (int64_t k = 0; k < factor; k++, planes += stride) {
            const ZR_T *restrict row = (const ZR_T *)b->rows[r];
            if (lanes > 1) {
                for (int64_t j = 0; j < outputs; j++) {
                    const int64_t i = (first + j) / lanes;
                    planes[j] = row[(i * factor + k) * lanes + (first + j) % lanes];
                }
                continue;
            }
            row += first * factor + k;
            if (factor == 1)
                for (int64_t j = 0; j < outputs; j++) planes[j] = row[j];
            else if (factor == 2)
                for (int64_t j = 0; j < outputs; j++) planes[j] = row[2 * j];
            else if (factor == 3)
                for (int64_t j = 0; j < outputs; j++) planes[j] = row[3 * j];
            else if (factor == 4)
                for (int64_t j = 0; j < outputs; j++) planes[j] = row[4 * j];
            else
                for (int64_t j = 0; j < outputs; j++) planes[j] = row[factor * j];
        }
}

enum { ZR_FN(ZR_MODE_WIDTH) = 64 / sizeof(ZR_T) };

/* Count, for every cell, the equal ones up to it: the first cell that gets above the best so far is the winner. */
ZR_INLINE void ZR_FN(mode_paired)(const zr_block *b, ZR_T *restrict out, int skip, ZR_T hole)
{
    typedef ZR_FN(zr_vec) vec;
    typedef ZR_FN(zr_mask) mask;
    const int64_t cells = b->row_count * b->factor, outputs = b->count * b->lanes, width = ZR_FN(ZR_MODE_WIDTH);
    vec *values = (vec *)b->scratch, *keys = values + cells;
    const vec holes = (vec){0} + hole;
    memset(values, 0, (size_t)cells * sizeof *values);
    for (int64_t first = 0; first < outputs; first += width) {
        const int64_t here = outputs - first < width ? outputs - first : width;
        ZR_FN(split)(b, first, here, (ZR_T *)values, width);
        vec differs = {0};
        for (int64_t c = 0; c < cells; c++) {
            for (int64_t j = 0; j < width; j++) ((ZR_T *)(keys + c))[j] = ZR_KEY(((ZR_T *)(values + c))[j]);
            differs |= keys[c] ^ keys[0];
        }
        uint64_t words[8], any = 0;
        memcpy(words, &differs, sizeof words);
        for (int w = 0; w < 8; w++) any |= words[w];
        if (!any) {
            memcpy(out + first, values, (size_t)here * sizeof(ZR_T));
            continue;
        }
        vec best = values[0];
        mask top = skip ? (mask)(keys[0] != holes) : (mask){0} - 1;
        for (int64_t c = 1; c < cells; c++) {
            mask count = {0};
            for (int64_t d = 0; d <= c; d++) count += (mask)(keys[d] == keys[c]);
            if (skip) count &= (mask)(keys[c] != holes);
            const mask wins = (mask)(count < top); /* both negative: a true comparison is -1 */
            top = (count & wins) | (top & ~wins);
            best = (values[c] & (vec)wins) | (best & (vec)~wins);
        }
        if (skip) {
            const vec none = (vec)(top == 0);
            const ZR_T nodata = (ZR_T)b->nodata.bits;
            best = (best & ~none) | (((vec){0} + nodata) & none);
        }
        memcpy(out + first, &best, (size_t)here * sizeof(ZR_T));
    }
}

/* Big windows, one at a time. A window of n cells never holds more than n values. */
ZR_INLINE int ZR_FN(mode_tallied)(const zr_block *b, ZR_T *restrict out, int skip, ZR_T hole)
{
    const int64_t cells = b->row_count * b->factor;
    zr_tally tally = {.capacity = 1024};
    const uint64_t values = sizeof(ZR_T) < 4 ? (uint64_t)1 << (8 * sizeof(ZR_T)) : UINT64_MAX / 4;
    const uint64_t most = (uint64_t)cells < values ? (uint64_t)cells : values;
    while (tally.capacity < 2 * most) tally.capacity *= 2;
    tally.keys = malloc(tally.capacity * sizeof *tally.keys);
    tally.counts = calloc(tally.capacity, sizeof *tally.counts);
    uint64_t *used = malloc((size_t)most * sizeof *used);
    const int failed = !tally.keys || !tally.counts || !used;
    for (int64_t o = 0; !failed && o < b->count * b->lanes; o++) {
        const int64_t start = o / b->lanes * b->factor * b->lanes + o % b->lanes;
        int64_t top = 0, used_count = 0;
        uint64_t slot = 0;
        ZR_T best = (ZR_T)b->nodata.bits, last = 0;
        int has_last = 0;
        for (int64_t r = 0; r < b->row_count; r++) {
            const ZR_T *p = (const ZR_T *)b->rows[r] + start;
            for (int64_t k = 0; k < b->factor; k++) {
                const ZR_T value = p[k * b->lanes], key = ZR_KEY(value);
                if (skip && key == hole) continue;
                if (!has_last || key != last) {
                    slot = zr_tally_slot(&tally, key);
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

ZR_CLONES static void ZR_FN(zr_mode)(const zr_block *b, void *out)
{
    const int64_t cells = b->row_count * b->factor;
    const ZR_T hole = ZR_KEY((ZR_T)b->nodata.bits);
    const int quad = b->row_count == 2 && b->factor == 2 && b->lanes == 1;
    const int paired = cells <= zr_mode_paired(sizeof(ZR_T));
    if (quad && !b->skip)
        ZR_FN(mode4)(b, (ZR_T *)out, 0, hole);
    else if (quad)
        ZR_FN(mode4)(b, (ZR_T *)out, 1, hole);
    else if (paired && !b->skip)
        ZR_FN(mode_paired)(b, (ZR_T *)out, 0, hole);
    else if (paired)
        ZR_FN(mode_paired)(b, (ZR_T *)out, 1, hole);
    else if (ZR_FN(mode_tallied)(b, (ZR_T *)out, b->skip, hole))
        *b->out_of_memory = 1;
}

#undef ZR_ID
#undef ZR_T
#undef ZR_S
#undef ZR_KEY

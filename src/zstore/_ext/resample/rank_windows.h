/* rank_windows.h - the kernels of rank.h for one type, as a template.
 *
 * Set before including: ZR_ID (suffix), ZR_T (cell), ZR_S (signed integer of its size), ZR_SIZE (that size), ZR_LOW and
 * ZR_HIGH (no cell lies outside them), ZR_FLOAT (0 or 1).
 */

typedef ZR_T ZR_FN(zr_cells) __attribute__((vector_size(64)));
typedef ZR_S ZR_FN(zr_lanes) __attribute__((vector_size(64)));

ZR_INLINE int ZR_FN(counts)(ZR_T cell, int skip, ZR_T nodata)
{
    return skip == ZR_PLAIN ? 1 : skip == ZR_SKIP_NAN ? cell == cell : cell != nodata;
}

/* NaN wins: it is neither above nor below anything, and once it is in nothing beats it. */
ZR_INLINE ZR_T ZR_FN(further)(ZR_T best, ZR_T cell, int upwards)
{
    return ((upwards ? cell > best : cell < best) | (cell != cell)) ? cell : best;
}

ZR_INLINE ZR_T ZR_FN(kept)(ZR_T cell, int skip, ZR_T nodata, ZR_T worst)
{
    return ZR_FN(counts)(cell, skip, nodata) ? cell : worst;
}

#define ZR_FOLD_EXTREMES(FACTOR)                                                                                    \
    for (int64_t i = 0; i < b->count; i++)                                                                          \
        for (int64_t l = 0; l < lanes; l++) {                                                                       \
            const int64_t x = i * (FACTOR) * lanes + l;                                                             \
            ZR_T extreme = best[x];                                                                                 \
            for (int64_t k = 1; k < (FACTOR); k++) extreme = ZR_FN(further)(extreme, best[x + k * lanes], upwards); \
            out[i * lanes + l] = extreme;                                                                           \
        }

/* Columns first, then neighbouring columns; `skip` is a constant wherever this is called. */
ZR_INLINE void ZR_FN(extremes)(const zr_block *b, ZR_T *restrict out, int upwards, int skip)
{
    const int64_t factor = b->factor, lanes = b->lanes, outputs = b->count * lanes, width = outputs * factor;
    const ZR_T nodata = b->nodata.ZR_ID, worst = upwards ? ZR_LOW : ZR_HIGH;
    ZR_T *restrict best = (ZR_T *)b->scratch;
    uint8_t *restrict valid = (uint8_t *)(best + ZR_BLOCK);
    if (width > ZR_BLOCK) { /* one window, too wide for the scratch memory */
        for (int64_t l = 0; l < lanes; l++) out[l] = worst, valid[l] = 0;
        for (int64_t r = 0; r < b->row_count; r++)
            for (int64_t x = 0; x < width; x++) {
                const ZR_T cell = ((const ZR_T *)b->rows[r])[x];
                out[x % lanes] = ZR_FN(further)(out[x % lanes], ZR_FN(kept)(cell, skip, nodata, worst), upwards);
                valid[x % lanes] |= (uint8_t)ZR_FN(counts)(cell, skip, nodata);
            }
        for (int64_t l = 0; l < lanes; l++) out[l] = valid[l] ? out[l] : nodata;
        return;
    }
    for (int64_t r = 0; r < b->row_count; r++) {
        const ZR_T *restrict p = (const ZR_T *)b->rows[r];
        if (r == 0)
            for (int64_t x = 0; x < width; x++) best[x] = ZR_FN(kept)(p[x], skip, nodata, worst);
        else
            for (int64_t x = 0; x < width; x++)
                best[x] = ZR_FN(further)(best[x], ZR_FN(kept)(p[x], skip, nodata, worst), upwards);
    }
    if (lanes == 1 && factor == 2) {
        for (int64_t i = 0; i < b->count; i++) out[i] = ZR_FN(further)(best[2 * i], best[2 * i + 1], upwards);
    } else if (factor == 3) {
        ZR_FOLD_EXTREMES(3)
    } else {
        ZR_FOLD_EXTREMES(factor)
    }
    if (skip == ZR_PLAIN) return;
    /* only what no cell got beyond can be a window of holes */
    uint32_t doubtful = 0;
    for (int64_t i = 0; i < outputs; i++) doubtful |= (uint32_t)(out[i] == worst);
    if (!doubtful) return;
    memset(valid, 0, (size_t)outputs);
    for (int64_t r = 0; r < b->row_count; r++)
        for (int64_t k = 0; k < factor; k++) {
            const ZR_T *restrict p = (const ZR_T *)b->rows[r] + k * lanes;
            if (lanes == 1)
                for (int64_t i = 0; i < outputs; i++) valid[i] |= (uint8_t)ZR_FN(counts)(p[i * factor], skip, nodata);
            else
                for (int64_t i = 0; i < outputs; i++)
                    valid[i] |= (uint8_t)ZR_FN(counts)(p[i / lanes * factor * lanes + i % lanes], skip, nodata);
        }
    for (int64_t i = 0; i < outputs; i++) out[i] = valid[i] ? out[i] : nodata;
}

/* The cell of rank `rank` (from 0) among `count`, by partitioning. */
static ZR_T ZR_FN(select)(ZR_T *cells, int64_t count, int64_t rank)
{
    int64_t low = 0, high = count - 1;
    while (low < high) {
        const ZR_T pivot = cells[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (cells[i] < pivot) i++;
            while (pivot < cells[j]) j--;
            if (i <= j) {
                const ZR_T swap = cells[i];
                cells[i++] = cells[j];
                cells[j--] = swap;
            }
        }
        if (rank <= j)
            high = j;
        else if (rank >= i)
            low = i;
        else
            break;
    }
    return cells[rank];
}

static void ZR_FN(quantile_selected)(const zr_block *b, ZR_T *out, int quarters)
{
    const ZR_T nodata = b->nodata.ZR_ID;
    ZR_T *cells = malloc((size_t)(b->row_count * b->factor) * sizeof *cells);
    if (!cells) {
        *b->out_of_memory = 1;
        return;
    }
    for (int64_t o = 0; o < b->count * b->lanes; o++) {
        const int64_t start = o / b->lanes * b->factor * b->lanes + o % b->lanes;
        int64_t count = 0, nan = 0;
        ZR_T nan_cell = nodata;
        for (int64_t r = 0; r < b->row_count; r++)
            for (int64_t k = 0; k < b->factor; k++) {
                const ZR_T cell = ((const ZR_T *)b->rows[r])[start + k * b->lanes];
                if (!ZR_FN(counts)(cell, b->skip, nodata)) continue;
                if (cell != cell) {
                    nan = 1;
                    nan_cell = cell;
                }
                cells[count++] = cell;
            }
        out[o] = nan ? nan_cell : count ? ZR_FN(select)(cells, count, zr_rank(count, quarters)) : nodata;
    }
    free(cells);
}

/* Many windows at a time: bubble the least cells down until the wanted rank is in place. Holes sort last. */
ZR_INLINE void ZR_FN(quantile_sorted)(const zr_block *b, ZR_T *restrict out, int quarters, int skip)
{
    typedef ZR_FN(zr_cells) vec;
    typedef ZR_FN(zr_lanes) mask;
    const int64_t cells = b->row_count * b->factor, outputs = b->count * b->lanes, width = 64 / ZR_SIZE;
    const int64_t rank = zr_rank(cells, quarters);
    vec *v = (vec *)b->scratch;
    const ZR_T nodata = b->nodata.ZR_ID;
    const vec holes = (vec){0} + nodata, last = (vec){0} + ZR_HIGH;
    memset(v, 0, (size_t)cells * sizeof *v);
    for (int64_t first = 0; first < outputs; first += width) {
        const int64_t here = outputs - first < width ? outputs - first : width;
        ZR_PASTE(split, ZR_SIZE)(b, first, here, (void *)v, width);
        mask count = {0}, nan = {0};
        for (int64_t c = 0; c < cells; c++) {
            if (skip) {
                const mask ok = skip == ZR_SKIP_NAN ? (mask)(v[c] == v[c]) : (mask)(v[c] != holes);
                count -= ok;
                v[c] = (vec)(((mask)v[c] & ok) | ((mask)last & ~ok));
            }
            nan |= (mask)(v[c] != v[c]);
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
            found = (mask)holes;
            for (int64_t c = 0; c < cells; c++) {
                /* rank as zr_rank: count - 1 halved, quartered, or 3 count - 1 quartered; -1 without a valid cell */
                const mask at = quarters == 2 ? (count - 1) >> 1 : quarters == 1 ? (count - 1) >> 2 : (3 * count - 1) >> 2;
                const mask is_it = (mask)(at == (ZR_S)c);
                found = ((mask)v[c] & is_it) | (found & ~is_it);
            }
        }
        if (ZR_FLOAT) found |= nan; /* all bits set is a NaN */
        memcpy(out + first, &found, (size_t)here * sizeof(ZR_T));
    }
}

#define ZR_EXTREMES(NAME, UPWARDS)                                                                                  \
    ZR_CLONES static void ZR_FN(NAME)(const zr_block *b, void *out)                                                 \
    {                                                                                                               \
        if (b->skip == ZR_PLAIN)                                                                                    \
            ZR_FN(extremes)(b, (ZR_T *)out, UPWARDS, ZR_PLAIN);                                                     \
        else if (ZR_FLOAT && b->skip == ZR_SKIP_NAN)                                                                        \
            ZR_FN(extremes)(b, (ZR_T *)out, UPWARDS, ZR_SKIP_NAN);                                                  \
        else                                                                                                        \
            ZR_FN(extremes)(b, (ZR_T *)out, UPWARDS, ZR_SKIP_VALUE);                                                \
    }
ZR_EXTREMES(zr_max, 1)
ZR_EXTREMES(zr_min, 0)
#undef ZR_EXTREMES
#undef ZR_FOLD_EXTREMES

/* Two by two: the least, the lower and the upper of the middle two; holes lie last. */
ZR_INLINE void ZR_FN(quantile4)(const zr_block *b, ZR_T *restrict out, int quarters, int skip)
{
    const ZR_T *restrict p = (const ZR_T *)b->rows[0], *restrict q = (const ZR_T *)b->rows[1];
    const ZR_T nodata = b->nodata.ZR_ID, last = ZR_HIGH;
    for (int64_t i = 0; i < b->count; i++) {
        ZR_T a = p[2 * i], c = p[2 * i + 1], d = q[2 * i], e = q[2 * i + 1];
        ZR_S count = 4;
        if (skip) {
            const ZR_S va = (ZR_S)ZR_FN(counts)(a, skip, nodata), vc = (ZR_S)ZR_FN(counts)(c, skip, nodata);
            const ZR_S vd = (ZR_S)ZR_FN(counts)(d, skip, nodata), ve = (ZR_S)ZR_FN(counts)(e, skip, nodata);
            a = ZR_FN(kept)(a, skip, nodata, last);
            c = ZR_FN(kept)(c, skip, nodata, last);
            d = ZR_FN(kept)(d, skip, nodata, last);
            e = ZR_FN(kept)(e, skip, nodata, last);
            count = (ZR_S)(va + vc + vd + ve);
        }
        const ZR_T low1 = a < c ? a : c, high1 = a < c ? c : a, low2 = d < e ? d : e, high2 = d < e ? e : d;
        const ZR_T low = low1 < low2 ? low1 : low2, raised = low1 < low2 ? low2 : low1;
        const ZR_T lowered = high1 < high2 ? high1 : high2;
        const ZR_T second = raised < lowered ? raised : lowered, third = raised < lowered ? lowered : raised;
        ZR_T found = quarters == 1 ? low : quarters == 2 ? (count > 2 ? second : low) : count > 2 ? third : second;
        if (skip && quarters == 3) found = count == 1 ? low : found;
        if (ZR_FLOAT && skip != ZR_SKIP_NAN) {
            found = a != a ? a : found;
            found = c != c ? c : found;
            found = d != d ? d : found;
            found = e != e ? e : found;
        }
        out[i] = skip && count == 0 ? nodata : found;
    }
}

/* Only with constants the loop becomes vectors. */
#define ZR_QUANTILE4(SKIP)                                                                                          \
    (b->quarters == 1   ? ZR_FN(quantile4)(b, (ZR_T *)out, 1, SKIP)                                                 \
     : b->quarters == 2 ? ZR_FN(quantile4)(b, (ZR_T *)out, 2, SKIP)                                                 \
                        : ZR_FN(quantile4)(b, (ZR_T *)out, 3, SKIP))
/* Bytes count up to 42 valid cells, three times which fit them. */
ZR_CLONES static void ZR_FN(zr_quantile)(const zr_block *b, void *out)
{
    const int quad = b->row_count == 2 && b->factor == 2 && b->lanes == 1;
    if (quad && b->skip == ZR_PLAIN)
        ZR_QUANTILE4(ZR_PLAIN);
    else if (quad && ZR_FLOAT && b->skip == ZR_SKIP_NAN)
        ZR_QUANTILE4(ZR_SKIP_NAN);
    else if (quad)
        ZR_QUANTILE4(ZR_SKIP_VALUE);
    else if (b->row_count * b->factor > (b->skip && ZR_SIZE == 1 ? 42 : 64))
        ZR_FN(quantile_selected)(b, (ZR_T *)out, b->quarters);
    else if (b->skip == ZR_PLAIN)
        ZR_FN(quantile_sorted)(b, (ZR_T *)out, b->quarters, ZR_PLAIN);
    else if (ZR_FLOAT && b->skip == ZR_SKIP_NAN)
        ZR_FN(quantile_sorted)(b, (ZR_T *)out, b->quarters, ZR_SKIP_NAN);
    else
        ZR_FN(quantile_sorted)(b, (ZR_T *)out, b->quarters, ZR_SKIP_VALUE);
}

#undef ZR_QUANTILE4
#undef ZR_ID
#undef ZR_T
#undef ZR_S
#undef ZR_SIZE
#undef ZR_LOW
#undef ZR_HIGH
#undef ZR_FLOAT

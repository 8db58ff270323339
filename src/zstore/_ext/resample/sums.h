/* sums.h - sums over windows: column sums first, then neighbouring columns. */
#ifndef ZS_SUMS_H
#define ZS_SUMS_H

#include "block.h"

namespace {

/* Sums of cells of type T, or of their squares: `Column` holds those of a column, `Count` how many of its cells are
 * valid, `Window` both of a window. Integers are summed exactly. */
template <class T, class Column, class Count, class Window, bool squared = false> struct zs_summing {
    typedef T Cell;
    typedef Window Sum;
    static constexpr bool is_exact = !zs_is_float<Column>;

    ZS_INLINE Column load(T cell) { return squared ? (Column)cell * (Column)cell : (Column)cell; }

    ZS_INLINE void add_columns(const zs_block *b, Column *restrict sum) {
        const int64_t width = b->count * b->factor * b->lanes;
        const T *p = (const T *)b->rows[0];
        if (b->row_count == 1) {
            for (int64_t x = 0; x < width; x++) sum[x] = load(p[x]);
            return;
        }
        const T *q = (const T *)b->rows[1];
        if (b->row_count == 2) {
            for (int64_t x = 0; x < width; x++) sum[x] = load(p[x]) + load(q[x]);
            return;
        }
        const T *t = (const T *)b->rows[2];
        for (int64_t x = 0; x < width; x++) sum[x] = load(p[x]) + load(q[x]) + load(t[x]);
        int64_t r = 3;
        for (; r + 1 < b->row_count; r += 2) {
            p = (const T *)b->rows[r];
            q = (const T *)b->rows[r + 1];
            for (int64_t x = 0; x < width; x++) sum[x] = sum[x] + load(p[x]) + load(q[x]);
        }
        if (r < b->row_count) {
            p = (const T *)b->rows[r];
            for (int64_t x = 0; x < width; x++) sum[x] += load(p[x]);
        }
    }

    template <int skip> ZS_INLINE void count_columns(const zs_block *b, Count *restrict valid, T nodata) {
        const int64_t width = b->count * b->factor * b->lanes;
        int64_t r = 0;
        if (b->row_count % 2) {
            const T *p = (const T *)b->rows[r++];
            for (int64_t x = 0; x < width; x++) valid[x] = (Count)zs_is_valid<skip>(p[x], nodata);
        } else {
            memset(valid, 0, (size_t)width * sizeof *valid);
        }
        for (; r < b->row_count; r += 2) {
            const T *p = (const T *)b->rows[r], *q = (const T *)b->rows[r + 1];
            for (int64_t x = 0; x < width; x++)
                valid[x] =
                    (Count)(valid[x] + (Count)zs_is_valid<skip>(p[x], nodata) + (Count)zs_is_valid<skip>(q[x], nodata));
        }
    }

    template <int skip>
    ZS_INLINE void add_valid_columns(const zs_block *b, Column *restrict sum, Count *restrict valid, T nodata) {
        count_columns<skip>(b, valid, nodata);
        if (is_exact) { /* what the holes added is known and comes off again in `of_windows` */
            add_columns(b, sum);
            return;
        }
        const int64_t width = b->count * b->factor * b->lanes;
        memset(sum, 0, (size_t)width * sizeof *sum);
        for (int64_t r = 0; r < b->row_count; r++) {
            const T *p = (const T *)b->rows[r];
            for (int64_t x = 0; x < width; x++) {
                const int ok = zs_is_valid<skip>(p[x], nodata);
                sum[x] += load(sizeof(T) == 4 ? zs_keep(p[x], ok) : ok ? p[x] : (T)0); /* each the quicker one */
            }
        }
    }

    /* With a constant for the factor. */
    template <class From>
    ZS_INLINE void fold_by(int64_t factor, const From *restrict column, int64_t count, Window *restrict window) {
        for (int64_t i = 0; i < count; i++) {
            Window sum = (Window)column[i * factor];
            for (int64_t k = 1; k < factor; k++) sum += (Window)column[i * factor + k];
            window[i] = sum;
        }
    }

    template <class From> ZS_INLINE void fold(const zs_block *b, const From *restrict column, Window *restrict window) {
        const int64_t count = b->count, factor = b->factor, lanes = b->lanes;
        if (factor == 1) {
            for (int64_t i = 0; i < count * lanes; i++) window[i] = (Window)column[i];
        } else if (lanes > 1) {
            for (int64_t i = 0; i < count; i++)
                for (int64_t l = 0; l < lanes; l++) {
                    Window sum = (Window)column[i * factor * lanes + l];
                    for (int64_t k = 1; k < factor; k++) sum += (Window)column[(i * factor + k) * lanes + l];
                    window[i * lanes + l] = sum;
                }
        } else {
            switch (factor) {
            case 2: return fold_by(2, column, count, window);
            case 3: return fold_by(3, column, count, window);
            case 4: return fold_by(4, column, count, window);
            case 5: return fold_by(5, column, count, window);
            default: return fold_by(factor, column, count, window);
            }
        }
    }

    /* One window, too wide for the scratch memory. */
    template <int skip>
    ZS_INLINE void add_wide(const zs_block *b, Window *restrict window, Window *restrict valid, T nodata) {
        memset(window, 0, (size_t)b->lanes * sizeof *window);
        memset(valid, 0, (size_t)b->lanes * sizeof *valid);
        for (int64_t r = 0; r < b->row_count; r++) {
            const T *p = (const T *)b->rows[r];
            for (int64_t k = 0; k < b->factor; k++)
                for (int64_t l = 0; l < b->lanes; l++, p++) {
                    const int ok = zs_is_valid<skip>(*p, nodata);
                    window[l] += ok ? (Window)load(*p) : (Window)0;
                    valid[l] += (Window)ok;
                }
        }
    }

    /* The window sums of a block in scratch memory, and in *valid_out how many cells each sum holds (when skipping). */
    template <int skip> ZS_CLONES static Window *of_windows(const zs_block *b, Window **valid_out) {
        const int64_t width = b->count * b->factor * b->lanes, outputs = b->count * b->lanes;
        const size_t room = ((size_t)(width > ZS_BLOCK ? outputs : width) + 15) & ~(size_t)15;
        const T nodata = zs_cell<T>(b->nodata);
        Column *column = (Column *)b->scratch;
        Count *column_valid = (Count *)(column + room);
        Window *window = (Window *)(column_valid + room), *valid = window + room;
        *valid_out = valid;
        if (width > ZS_BLOCK) {
            add_wide<skip>(b, window, valid, nodata);
            return window;
        }
        if (skip == ZS_PLAIN) {
            add_columns(b, column);
            fold(b, column, window);
            return window;
        }
        add_valid_columns<skip>(b, column, column_valid, nodata);
        fold(b, column_valid, valid);
        fold(b, column, window);
        if (is_exact) {
            const Window cells = (Window)(b->row_count * b->factor);
            for (int64_t i = 0; i < outputs; i++) window[i] -= (Window)nodata * (cells - valid[i]);
        }
        return window;
    }
};

/* Sums wide enough for any window, and narrower ones for up to 255 cells of 8 bits, or 16 of 16. */
template <class T> struct zs_wide_sums : zs_summing<T, int64_t, int64_t, int64_t> {};
template <> struct zs_wide_sums<uint64_t> : zs_summing<uint64_t, __int128, int64_t, __int128> {};
template <> struct zs_wide_sums<int64_t> : zs_summing<int64_t, __int128, int64_t, __int128> {};
template <> struct zs_wide_sums<float> : zs_summing<float, double, int32_t, double> {};
template <> struct zs_wide_sums<double> : zs_summing<double, double, int64_t, double> {};
template <class T> struct zs_narrow_sums;
template <> struct zs_narrow_sums<uint8_t> : zs_summing<uint8_t, uint16_t, uint8_t, uint32_t> {};
template <> struct zs_narrow_sums<int8_t> : zs_summing<int8_t, int16_t, uint8_t, int32_t> {};
template <> struct zs_narrow_sums<uint16_t> : zs_summing<uint16_t, uint32_t, uint16_t, uint32_t> {};
template <> struct zs_narrow_sums<int16_t> : zs_summing<int16_t, int32_t, uint16_t, int32_t> {};
template <class T> struct zs_square_sums : zs_summing<T, double, int64_t, double, true> {};

} // namespace

#endif

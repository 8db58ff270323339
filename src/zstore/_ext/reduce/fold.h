/* fold.h - items of a box folded into the cells of a reduction: sums, extremes, counts, moments.
 *
 * A box is contiguous, in C order, aligned and in native byte order. Every dimension says how far a step along it moves
 * in the cells (0 where it is reduced), in the labels (0 where they do not vary) and in the number of an item among
 * those of its cell. What lies side by side along the last dimension goes one of three ways: `keep`, item i to cell i,
 * with all rows of the dimension before; `run`, all items to one cell; `each`, items to the cells of their labels.
 *
 * Sums of floats are compensated (Knuth's two-sum: `a` holds the sum, `b` what rounding took from it), so that no order
 * of additions shows but in the last digit; the order is that of the box all the same. Deviations are those of Welford,
 * Chan, Golub and LeVeque: `a` is the mean, `b` the sum of squared deviations from it.
 */
#ifndef ZS_FOLD_H
#define ZS_FOLD_H

#include "resample/block.h"

enum { ZS_FOLD_DIMS = 66 };
constexpr int64_t ZS_FOLD_WIDTH = 512; /* cells that are gone through at a time */
enum {
    ZS_SUM,
    ZS_WIDE_SUM,
    ZS_NARROW_SUM,
    ZS_LEAST,
    ZS_GREATEST,
    ZS_COUNTS,
    ZS_MOMENTS,
    ZS_SPREAD,
    ZS_FIRST_LEAST,
    ZS_FIRST_GREATEST,
    ZS_FOLD_COUNT
};

typedef struct {
    int dims;
    int64_t size[ZS_FOLD_DIMS], cell_step[ZS_FOLD_DIMS], label_step[ZS_FOLD_DIMS], number_step[ZS_FOLD_DIMS];
    const char *items;
    const int32_t *labels; /* NULL where there are no groups; a label that is none of the groups is left out */
    int64_t groups, group_step, first_number;
    int skip;
    uint64_t nodata;
    char *a, *b;
    uint32_t *count; /* of valid items; NULL where all are */
} zs_fold_job;

typedef __int128 zs_wide; /* in cells at multiples of 16 bytes */

/* Where neighbouring items go: `rows` of `n` items, `stride` items apart, and the number of the first. */
typedef struct {
    int64_t cell, n, stride, rows, number, row_numbers, item_numbers;
} zs_place;

ZS_INLINE void zs_two_sum(double *sum, double *rest, double x) {
    const double s = *sum, t = s + x, back = t - s;
    *rest += (s - (t - back)) + (x - back);
    *sum = t;
}

template <class T> ZS_INLINE double zs_value(T item, int keep) { return zs_keep((double)item, keep); }

/* ---- whole numbers, added exactly: items, or whether they are not zero, and their squares beside ---- */

template <class T> using zs_total = std::conditional_t<sizeof(T) == 8, zs_wide, int64_t>;
/* Of 8 and 16 bits: what holds the sum of as many items as make 32 bits. */
template <class T> using zs_part =
    std::conditional_t<sizeof(T) <= 2, std::conditional_t<zs_is_signed<T>, int32_t, uint32_t>, zs_total<T>>;

enum { ZS_ITEMS, ZS_SQUARES_TOO, ZS_NONZERO };

/* `a` has totals, and `b` those of the squares. So many items go to a part, which is added to a total then. */
template <class T, int skip, class Total, class Part, int what = ZS_ITEMS> struct zs_whole_sum {
    using Item = T;
    static constexpr int64_t most = sizeof(Part) == 4 && what != ZS_NONZERO ? 32768 : (int64_t)1 << 31;

    ZS_INLINE Part part(T x, int ok) {
        if (what == ZS_NONZERO) return (Part)(ok & (x != 0));
        return (Part)(ok ? x : (T)0);
    }
    ZS_INLINE uint32_t square(Part part) { return (uint32_t)part * (uint32_t)part; }
    ZS_INLINE void add(const zs_fold_job *j, int64_t cell, Part sum, int64_t squares, uint32_t valid) {
        ((Total *)j->a)[cell] += sum;
        if (what == ZS_SQUARES_TOO) ((int64_t *)j->b)[cell] += squares;
        if (skip) j->count[cell] += valid;
    }
    ZS_INLINE void keep(const zs_fold_job *j, const zs_place *p, const T *x) {
        const T nodata = zs_cell<T>(j->nodata);
        Part sum[ZS_FOLD_WIDTH];
        int64_t squares[ZS_FOLD_WIDTH];
        uint32_t valid[ZS_FOLD_WIDTH];
        for (int64_t begin = 0; begin < p->rows; begin += most) {
            const int64_t end = p->rows - begin < most ? p->rows : begin + most;
            for (int64_t i = 0; i < p->n; i++) sum[i] = 0, squares[i] = 0, valid[i] = 0;
            for (int64_t r = begin; r < end; r++) {
                const T *row = x + r * p->stride;
                for (int64_t i = 0; i < p->n; i++) {
                    const int ok = zs_is_valid<skip>(row[i], nodata);
                    const Part value = part(row[i], ok);
                    sum[i] += value;
                    if (what == ZS_SQUARES_TOO) squares[i] += square(value);
                    if (skip) valid[i] += (uint32_t)ok;
                }
            }
            for (int64_t i = 0; i < p->n; i++) add(j, p->cell + i, sum[i], squares[i], valid[i]);
        }
    }
    ZS_INLINE void run(const zs_fold_job *j, const zs_place *p, const T *x) {
        const T nodata = zs_cell<T>(j->nodata);
        for (int64_t begin = 0; begin < p->n; begin += most) {
            const int64_t end = p->n - begin < most ? p->n : begin + most;
            Part sum = 0;
            int64_t squares = 0;
            uint32_t valid = 0;
            for (int64_t i = begin; i < end; i++) {
                const int ok = zs_is_valid<skip>(x[i], nodata);
                const Part value = part(x[i], ok);
                sum += value;
                if (what == ZS_SQUARES_TOO) squares += square(value);
                if (skip) valid += (uint32_t)ok;
            }
            add(j, p->cell, sum, squares, valid);
        }
    }
    ZS_INLINE void one(const zs_fold_job *j, int64_t cell, T x, int64_t number) {
        const int ok = zs_is_valid<skip>(x, zs_cell<T>(j->nodata));
        const Part value = part(x, ok);
        (void)number;
        add(j, cell, value, square(value), (uint32_t)ok);
    }
};

/* In cells of half the size, for a few items only. */
template <class T, int skip> using zs_narrow_sum = zs_whole_sum<T, skip, zs_part<T>, zs_part<T>>;
/* Where a cell gets so many items of 32 bits that 64 bits might not hold their sum. */
template <class T, int skip> using zs_wide_sum = zs_whole_sum<T, skip, zs_wide, zs_part<T>>;
/* Of valid items, and in `a` of those among them that are not zero. */
template <class T, int skip> using zs_counts = zs_whole_sum<T, skip, uint32_t, uint32_t, ZS_NONZERO>;
/* Two exact moments, of 8 and 16 bits: `a` the sum, `b` the sum of squares. */
template <class T, int skip> using zs_two_moments = zs_whole_sum<T, skip, int64_t, int32_t, ZS_SQUARES_TOO>;

/* ---- sums of floats ---- */

/* A run in so many sums side by side, the last of the items behind them. */
enum { ZS_LANES = 32 };

template <class T, int skip>
ZS_INLINE uint32_t zs_sum_run(const T *restrict x, int64_t n, T nodata, double *sum, double *rest) {
    double sums[ZS_LANES] = {0}, rests[ZS_LANES] = {0};
    uint32_t valid[ZS_LANES] = {0}, all = 0;
    int64_t i = 0;
    for (; i + ZS_LANES <= n; i += ZS_LANES)
        for (int l = 0; l < ZS_LANES; l++) {
            const int ok = zs_is_valid<skip>(x[i + l], nodata);
            zs_two_sum(&sums[l], &rests[l], zs_value(x[i + l], ok));
            if (skip) valid[l] += (uint32_t)ok;
        }
    for (int l = 0; i < n; i++, l++) {
        const int ok = zs_is_valid<skip>(x[i], nodata);
        zs_two_sum(&sums[l], &rests[l], zs_value(x[i], ok));
        if (skip) valid[l] += (uint32_t)ok;
    }
    for (int half = ZS_LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++) {
            zs_two_sum(&sums[l], &rests[l], sums[l + half]);
            rests[l] += rests[l + half];
        }
    zs_two_sum(sum, rest, sums[0]);
    *rest += rests[0];
    for (int l = 0; l < ZS_LANES; l++) all += valid[l];
    return skip ? all : (uint32_t)n;
}

template <class T, int skip> struct zs_float_sum {
    using Item = T;
    ZS_INLINE void keep(const zs_fold_job *j, const zs_place *p, const T *x) {
        double *total = (double *)j->a + p->cell, *left = (double *)j->b + p->cell;
        const T nodata = zs_cell<T>(j->nodata);
        double sum[ZS_FOLD_WIDTH], rest[ZS_FOLD_WIDTH];
        uint32_t valid[ZS_FOLD_WIDTH];
        for (int64_t i = 0; i < p->n; i++) sum[i] = total[i], rest[i] = left[i], valid[i] = 0;
        for (int64_t r = 0; r < p->rows; r++) {
            const T *row = x + r * p->stride;
            for (int64_t i = 0; i < p->n; i++) {
                const int ok = zs_is_valid<skip>(row[i], nodata);
                zs_two_sum(&sum[i], &rest[i], zs_value(row[i], ok));
                if (skip) valid[i] += (uint32_t)ok;
            }
        }
        for (int64_t i = 0; i < p->n; i++) total[i] = sum[i], left[i] = rest[i];
        if (skip)
            for (int64_t i = 0; i < p->n; i++) j->count[p->cell + i] += valid[i];
    }
    ZS_INLINE void run(const zs_fold_job *j, const zs_place *p, const T *x) {
        double *sum = (double *)j->a + p->cell, *rest = (double *)j->b + p->cell;
        const uint32_t valid = zs_sum_run<T, skip>(x, p->n, zs_cell<T>(j->nodata), sum, rest);
        if (skip) j->count[p->cell] += valid;
    }
    ZS_INLINE void one(const zs_fold_job *j, int64_t cell, T x, int64_t number) {
        (void)number;
        if (!zs_is_valid<skip>(x, zs_cell<T>(j->nodata))) return;
        zs_two_sum((double *)j->a + cell, (double *)j->b + cell, (double)x);
        if (skip) j->count[cell]++;
    }
};

template <class T, int skip> using zs_sum =
    std::conditional_t<zs_is_float<T>, zs_float_sum<T, skip>, zs_whole_sum<T, skip, zs_total<T>, zs_part<T>>>;

/* ---- extremes: a cell that has had no valid item holds nodata, NaN, or the bound that any item is within ---- */

template <bool greatest, class T> ZS_INLINE int zs_is_better(T x, T best) { return greatest ? x > best : x < best; }

template <bool greatest, int skip, class T> ZS_INLINE int zs_takes(T x, T best, T nodata) {
    if (skip == ZS_SKIP_NAN) return (x == x) & !(greatest ? best >= x : best <= x);
    const int wins = zs_is_better<greatest>(x, best) | zs_is_nan(x);
    return skip == ZS_PLAIN ? wins : (x != nodata) & (wins | (best == nodata));
}

template <bool greatest, int skip, class T> ZS_INLINE T zs_best_of(const T *restrict x, int64_t n, T best, T nodata) {
    /* as measured: with fewer or more, compilers keep them in memory, or do them one by one */
    constexpr int lanes = zs_is_float<T> ? 32 : sizeof(T) <= 2 ? 128 / sizeof(T) : 16;
    constexpr T none = greatest ? zs_lowest<T> : zs_highest<T>;
    T bests[lanes];
    zs_bits<T> has_nan[lanes], has_valid[lanes], any_nan = 0, any_valid = 0;
    int64_t i = 0;
    /* NaN is neither less nor greater, so that it changes no lane; whether there was any is asked beside. */
    for (int l = 0; l < lanes; l++) bests[l] = none, has_nan[l] = has_valid[l] = 0;
    for (; i + lanes <= n; i += lanes)
        for (int l = 0; l < lanes; l++) {
            T item = x[i + l];
            if (skip == ZS_SKIP_VALUE) {
                has_valid[l] |= (zs_bits<T>)(item != nodata);
                item = item != nodata ? item : none;
            }
            if (zs_is_float<T> && skip == ZS_SKIP_NAN) has_valid[l] |= (zs_bits<T>)(item == item);
            if (zs_is_float<T> && skip != ZS_SKIP_NAN) has_nan[l] |= (zs_bits<T>)(item != item);
            bests[l] = zs_is_better<greatest>(item, bests[l]) ? item : bests[l];
        }
    for (int l = 0; l < lanes; l++) any_nan |= has_nan[l], any_valid |= has_valid[l];
    if (i > 0 && (skip == ZS_PLAIN || any_valid)) {
        for (int l = 1; l < lanes; l++) bests[0] = zs_is_better<greatest>(bests[l], bests[0]) ? bests[l] : bests[0];
        if (zs_is_float<T> && any_nan) bests[0] = zs_limits<T>::quiet_NaN();
        best = zs_takes<greatest, skip>(bests[0], best, nodata) ? bests[0] : best;
    }
    for (; i < n; i++) best = zs_takes<greatest, skip>(x[i], best, nodata) ? x[i] : best;
    return best;
}

template <class T, int skip, bool greatest> struct zs_extreme {
    using Item = T;
    ZS_INLINE void keep(const zs_fold_job *j, const zs_place *p, const T *x) {
        T *restrict best = (T *)j->a + p->cell;
        const T nodata = zs_cell<T>(j->nodata);
        for (int64_t r = 0; r < p->rows; r++) {
            const T *restrict row = x + r * p->stride;
            for (int64_t i = 0; i < p->n; i++)
                best[i] = zs_takes<greatest, skip>(row[i], best[i], nodata) ? row[i] : best[i];
        }
    }
    ZS_INLINE void run(const zs_fold_job *j, const zs_place *p, const T *x) {
        T *best = (T *)j->a + p->cell;
        *best = zs_best_of<greatest, skip>(x, p->n, *best, zs_cell<T>(j->nodata));
    }
    ZS_INLINE void one(const zs_fold_job *j, int64_t cell, T x, int64_t number) {
        T *best = (T *)j->a + cell;
        (void)number;
        if (zs_takes<greatest, skip>(x, *best, zs_cell<T>(j->nodata))) *best = x;
    }
};
template <class T, int skip> using zs_least_item = zs_extreme<T, skip, false>;
template <class T, int skip> using zs_greatest_item = zs_extreme<T, skip, true>;

/* The same, and in `b` the number of the first item that is it; -1 where there was none. */
template <class T, int skip, bool greatest> struct zs_first_extreme {
    using Item = T;
    ZS_INLINE int takes(T x, int64_t number, T best, int64_t found, T nodata) {
        const int is_same = (x == best) | (zs_is_nan(x) & zs_is_nan(best));
        const int wins = zs_is_better<greatest>(x, best) | (zs_is_nan(x) & !zs_is_nan(best));
        return zs_is_valid<skip>(x, nodata) & ((found < 0) | wins | (is_same & (number < found)));
    }
    ZS_INLINE void keep(const zs_fold_job *j, const zs_place *p, const T *x) {
        T *restrict best = (T *)j->a + p->cell;
        int64_t *restrict found = (int64_t *)j->b + p->cell;
        const T nodata = zs_cell<T>(j->nodata);
        for (int64_t r = 0; r < p->rows; r++) {
            const T *restrict row = x + r * p->stride;
            const int64_t number = p->number + r * p->row_numbers;
            for (int64_t i = 0; i < p->n; i++) {
                const int takes_it = takes(row[i], number, best[i], found[i], nodata);
                best[i] = takes_it ? row[i] : best[i];
                found[i] = takes_it ? number : found[i];
            }
        }
    }
    ZS_INLINE void run(const zs_fold_job *j, const zs_place *p, const T *x) {
        const T nodata = zs_cell<T>(j->nodata), none = greatest ? zs_lowest<T> : zs_highest<T>;
        const T start = skip == ZS_PLAIN ? none : nodata;
        const T best = zs_best_of<greatest, skip>(x, p->n, start, nodata);
        int64_t i = 0;
        if (!zs_is_valid<skip>(best, nodata)) return;
        if (!takes(best, p->number, ((T *)j->a)[p->cell], ((int64_t *)j->b)[p->cell], nodata)) return;
        while (i < p->n && !((x[i] == best) | (zs_is_nan(x[i]) & zs_is_nan(best)))) i++;
        if (i < p->n) one(j, p->cell, x[i], p->number + i * p->item_numbers);
    }
    ZS_INLINE void one(const zs_fold_job *j, int64_t cell, T x, int64_t number) {
        T *best = (T *)j->a + cell;
        int64_t *found = (int64_t *)j->b + cell;
        if (takes(x, number, *best, *found, zs_cell<T>(j->nodata))) *best = x, *found = number;
    }
};
template <class T, int skip> using zs_first_least = zs_first_extreme<T, skip, false>;
template <class T, int skip> using zs_first_greatest = zs_first_extreme<T, skip, true>;

/* ---- deviations ---- */

/* A mean and its deviations, joined by those of others. */
ZS_INLINE void zs_join(double *mean, double *deviations, uint32_t *count, double other, double others, uint32_t n) {
    const double old = *count, more = n, share = more / (old + more), way = other - *mean;
    const double joined = *deviations + (others + way * way * (old * share)), between = *mean + way * share;
    *deviations = n == 0 ? *deviations : old == 0 ? others : joined;
    *mean = n == 0 ? *mean : old == 0 ? other : between;
    *count += n;
}

template <class T, int skip> struct zs_deviations {
    using Item = T;
    ZS_INLINE void keep(const zs_fold_job *j, const zs_place *p, const T *x) {
        double *mean = (double *)j->a + p->cell, *squares = (double *)j->b + p->cell;
        uint32_t *count = j->count + p->cell;
        const T nodata = zs_cell<T>(j->nodata);
        double middle[ZS_FOLD_WIDTH], off[ZS_FOLD_WIDTH], square[ZS_FOLD_WIDTH];
        uint32_t valid[ZS_FOLD_WIDTH];
        for (int64_t i = 0; i < p->n; i++) middle[i] = off[i] = square[i] = 0, valid[i] = 0;
        for (int64_t r = 0; r < p->rows; r++) {
            const T *row = x + r * p->stride;
            for (int64_t i = 0; i < p->n; i++) {
                const int ok = zs_is_valid<skip>(row[i], nodata);
                middle[i] += zs_value(row[i], ok);
                valid[i] += (uint32_t)ok;
            }
        }
        if (p->rows > 1) {
            for (int64_t i = 0; i < p->n; i++) middle[i] /= valid[i] ? (double)valid[i] : 1.0;
            for (int64_t r = 0; r < p->rows; r++) {
                const T *row = x + r * p->stride;
                for (int64_t i = 0; i < p->n; i++) {
                    const double way = zs_keep((double)row[i] - middle[i], zs_is_valid<skip>(row[i], nodata));
                    off[i] += way;
                    square[i] += way * way;
                }
            }
            for (int64_t i = 0; i < p->n; i++) {
                const double more = off[i] / (valid[i] ? (double)valid[i] : 1.0);
                square[i] -= off[i] * more;
                middle[i] += more;
            }
        } else if (zs_is_float<T>) { /* of one item there is no deviation, unless it is not finite */
            for (int64_t i = 0; i < p->n; i++) square[i] = middle[i] - middle[i];
        }
        for (int64_t i = 0; i < p->n; i++) zs_join(&mean[i], &squares[i], &count[i], middle[i], square[i], valid[i]);
    }
    ZS_INLINE void run(const zs_fold_job *j, const zs_place *p, const T *x) {
        const T nodata = zs_cell<T>(j->nodata);
        double sum = 0, rest = 0, offs[ZS_LANES] = {0}, squares[ZS_LANES] = {0}, off = 0, square = 0;
        const uint32_t valid = zs_sum_run<T, skip>(x, p->n, nodata, &sum, &rest);
        const double middle = (sum + rest) / (valid ? (double)valid : 1.0);
        int64_t i = 0;
        for (; i + ZS_LANES <= p->n; i += ZS_LANES)
            for (int l = 0; l < ZS_LANES; l++) {
                const double way = zs_keep((double)x[i + l] - middle, zs_is_valid<skip>(x[i + l], nodata));
                offs[l] += way;
                squares[l] += way * way;
            }
        for (int l = 0; i < p->n; i++, l++) {
            const double way = zs_keep((double)x[i] - middle, zs_is_valid<skip>(x[i], nodata));
            offs[l] += way;
            squares[l] += way * way;
        }
        for (int l = 0; l < ZS_LANES; l++) off += offs[l], square += squares[l];
        const double more = off / (valid ? (double)valid : 1.0);
        zs_join((double *)j->a + p->cell, (double *)j->b + p->cell, j->count + p->cell, middle + more,
                square - off * more, valid);
    }
    ZS_INLINE void one(const zs_fold_job *j, int64_t cell, T x, int64_t number) {
        const double value = (double)x;
        (void)number;
        if (!zs_is_valid<skip>(x, zs_cell<T>(j->nodata))) return;
        zs_join((double *)j->a + cell, (double *)j->b + cell, j->count + cell, value, value - value, 1);
    }
};

/* ---- the way through a box ---- */

template <class Fold>
ZS_TWO_CLONES static void zs_keep_rows(const zs_fold_job *j, const zs_place *p, const typename Fold::Item *x) {
    zs_place part = *p;
    for (int64_t first = 0; first < p->n; first += ZS_FOLD_WIDTH) {
        part.cell = p->cell + first;
        part.n = p->n - first < ZS_FOLD_WIDTH ? p->n - first : ZS_FOLD_WIDTH;
        Fold::keep(j, &part, x + first);
    }
}
template <class Fold>
ZS_TWO_CLONES static void zs_run_row(const zs_fold_job *j, const zs_place *p, const typename Fold::Item *x) {
    Fold::run(j, p, x);
}
/* Items to the cells of their labels; those that lie side by side are a run. */
template <class Fold> static void zs_fold_each(const zs_fold_job *j, const zs_place *p, const typename Fold::Item *x,
                                               const int32_t *labels, int64_t label_step, int64_t cell_step) {
    for (int64_t i = 0, end; i < p->n; i = end) {
        const int32_t group = labels[i * label_step];
        end = i + 1;
        if (!cell_step)
            while (end < p->n && labels[end * label_step] == group) end++;
        if (group < 0 || group >= j->groups) continue;
        zs_place run = *p;
        run.cell += i * cell_step + group * j->group_step;
        run.n = end - i;
        run.number += i * p->item_numbers;
        if (run.n < 2 * ZS_LANES)
            for (; i < end; i++, run.number += p->item_numbers) Fold::one(j, run.cell, x[i], run.number);
        else zs_run_row<Fold>(j, &run, x + i);
    }
}

template <class Fold> static void zs_fold_rows(const zs_fold_job *j, zs_place p, const typename Fold::Item *x,
                                               const int32_t *label, int last) {
    const int has_rows = last > 0;
    const int64_t rows = has_rows ? j->size[last - 1] : 1, row_cells = has_rows ? j->cell_step[last - 1] : 0;
    const int64_t row_labels = has_rows ? j->label_step[last - 1] : 0, item_labels = j->label_step[last];
    const int64_t item_cells = j->cell_step[last], first_cell = p.cell, first_number = p.number;
    for (int64_t r = 0; r < rows; r += p.rows) {
        const int32_t *at = label ? label + r * row_labels : NULL;
        p.rows = 1;
        p.number = first_number + r * p.row_numbers;
        if (at && item_labels) {
            p.cell = first_cell + r * row_cells;
            zs_fold_each<Fold>(j, &p, x + r * p.n, at, item_labels, item_cells);
            continue;
        }
        p.cell = first_cell + r * row_cells;
        if (item_cells && !row_cells) /* as many rows as go to the same cells */
            while (r + p.rows < rows && (!at || at[p.rows * row_labels] == *at)) p.rows++;
        if (at) {
            if (*at < 0 || *at >= j->groups) continue;
            p.cell += *at * j->group_step;
        }
        if (item_cells) zs_keep_rows<Fold>(j, &p, x + r * p.n);
        else zs_run_row<Fold>(j, &p, x + r * p.n);
    }
}

template <class Fold> static void zs_fold_box(const zs_fold_job *j) {
    const int last = j->dims - 1, outer = last > 0 ? last - 1 : 0;
    const int64_t size = j->size[last] * (last > 0 ? j->size[last - 1] : 1);
    const typename Fold::Item *x = (const typename Fold::Item *)j->items;
    int64_t at[ZS_FOLD_DIMS] = {0}, label = 0;
    zs_place p = {0,
                  j->size[last],
                  j->size[last],
                  1,
                  j->first_number,
                  last > 0 ? j->number_step[last - 1] : 0,
                  j->number_step[last]};
    for (;;) {
        int d = outer - 1;
        zs_fold_rows<Fold>(j, p, x, j->labels ? j->labels + label : NULL, last);
        x += size;
        for (; d >= 0; d--) {
            p.cell += j->cell_step[d];
            p.number += j->number_step[d];
            label += j->label_step[d];
            if (++at[d] < j->size[d]) break;
            p.cell -= j->size[d] * j->cell_step[d];
            p.number -= j->size[d] * j->number_step[d];
            label -= j->size[d] * j->label_step[d];
            at[d] = 0;
        }
        if (d < 0) return;
    }
}

typedef void (*zs_folding)(const zs_fold_job *job);

template <template <class, int> class Fold, class T> static void zs_fold(const zs_fold_job *job) {
    if (job->skip == ZS_PLAIN) return zs_fold_box<Fold<T, ZS_PLAIN>>(job);
    if constexpr (zs_is_float<T>)
        if (job->skip == ZS_SKIP_NAN) return zs_fold_box<Fold<T, ZS_SKIP_NAN>>(job);
    zs_fold_box<Fold<T, ZS_SKIP_VALUE>>(job);
}

static const int64_t zs_fold_item_size[10] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8};

/* By fold and type; NULL where there is none. In templates.cc. */
extern const zs_folding zs_foldings[ZS_FOLD_COUNT][10];

#endif

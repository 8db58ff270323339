/* weigh.h - weighted sums of rows: the inner loops of everything that has weights.
 *
 * Every sum adds the rows in order, one product at a time, as GDAL does: where the weights are fractions, the order
 * changes the last bit, and the last bit decides how a mean of integers is rounded.
 */
#ifndef ZS_WEIGH_H
#define ZS_WEIGH_H

#include "block.h"

/* out[a] = sum over k of weights[k] * rows[k][a] */
ZS_CLONES static void zs_weigh(const double *const *rows, const double *weights, int64_t row_count, int64_t count,
                               double *restrict out) {
    int64_t k = 1;
    const double *restrict first = rows[0];
    const double w = weights[0];
    for (int64_t a = 0; a < count; a++) out[a] = first[a] * w;
    for (; k + 3 < row_count; k += 4) {
        const double *restrict p = rows[k], *restrict q = rows[k + 1];
        const double *restrict r = rows[k + 2], *restrict s = rows[k + 3];
        const double wp = weights[k], wq = weights[k + 1], wr = weights[k + 2], ws = weights[k + 3];
        for (int64_t a = 0; a < count; a++) out[a] = out[a] + p[a] * wp + q[a] * wq + r[a] * wr + s[a] * ws;
    }
    for (; k < row_count; k++) {
        const double *restrict p = rows[k];
        const double wp = weights[k];
        for (int64_t a = 0; a < count; a++) out[a] += p[a] * wp;
    }
}

/* best[a] = how many ones follow one another at most in rows[0][a], rows[1][a], ... */
ZS_CLONES static void zs_find_longest_runs(const double *const *rows, int64_t row_count, int64_t count,
                                           double *restrict run, double *restrict best) {
    for (int64_t a = 0; a < count; a++) run[a] = best[a] = rows[0][a];
    for (int64_t k = 1; k < row_count; k++) {
        const double *restrict p = rows[k];
        for (int64_t a = 0; a < count; a++) {
            run[a] = (run[a] + 1.0) * p[a];
            best[a] = run[a] > best[a] ? run[a] : best[a];
        }
    }
}

/* Turn weighted sums and their weights into means: valid ones have 1 in `valid`, others 0 there and in `values`. A sum
 * with all the weights is a mean already, and stays the same whether its neighbours have holes or not. */
ZS_CLONES static void zs_divide(double *restrict values, double *restrict valid, const double *restrict best,
                                double least_run, double all, int64_t count) {
    if (best)
        for (int64_t a = 0; a < count; a++) valid[a] = best[a] >= least_run ? valid[a] : 0.0;
    for (int64_t a = 0; a < count; a++) {
        const double weight = valid[a] > 0 && valid[a] != all ? valid[a] : 1.0, keep = valid[a] > 0 ? 1.0 : 0.0;
        values[a] = keep != 0 ? values[a] / weight : 0.0;
        valid[a] = keep;
    }
}

static void zs_split_phases(const double *restrict row, int64_t count, int64_t step, int64_t phase_size,
                            double *restrict phases) {
    for (int64_t p = 0; p < step; p++) {
        double *restrict phase = phases + p * phase_size;
        const int64_t cells = (count - p + step - 1) / step;
        for (int64_t i = 0; i < cells; i++) phase[i] = row[i * step + p];
    }
}

#endif

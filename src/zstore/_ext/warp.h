/* warp.h - cells of one grid sampled at any places of another: nearest, bilinear, cubic, and means over areas.
 *
 * Places are in cells of the source, (0, 0) the outer corner of its first cell. A place outside the source gives
 * nothing. The rules are those of gdalwarp: weights count only where cells are valid and are made to sum to one;
 * where the result is coarser than the source, kernels are stretched; a cubic that lacks a cell becomes bilinear,
 * unless it is stretched.
 */
#ifndef ZS_WARP_H
#define ZS_WARP_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pool.h"

enum { ZW_NEAREST, ZW_BILINEAR, ZW_CUBIC, ZW_AVERAGE };

#define ZW_ROWS 8          /* rows of the result that a thread takes at a time */
#define ZW_LEAST_SUM 1e-5  /* weights that sum to less are none */
#define ZW_SLACK 1e-10     /* what rounding may take from a place on an edge */
#define ZW_FINE 0.95       /* cells of the result per cell of the source, from which kernels are not stretched */

typedef struct {
    zs_job job;
    int method;
    int64_t layers, height, width;         /* of the source */
    int64_t out_height, out_width;         /* of the result, and of the places (one more for ZW_AVERAGE) */
    const char *cells;                     /* contiguous; doubles, or items of any kind for ZW_NEAREST */
    int64_t item_size;
    const uint8_t *valid;                  /* per cell of the source; NULL: all are */
    const double *columns, *rows;
    double x_scale, y_scale;               /* cells of the result per cell of the source */
    int64_t taps;                          /* room that weights along one dimension need */
    char *out;
    uint8_t *found;                        /* per cell of the result: whether there is a value */
    _Atomic int64_t next;
    _Atomic int failed;
} zw_job;

static double zw_linear(double x) {
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static double zw_cubic(double x) {
    x = fabs(x);
    if (x <= 1) return x * x * (1.5 * x - 2.5) + 1;
    return x < 2 ? x * (x * (2.5 - 0.5 * x) - 4) + 2 : 0;
}

/* Where the window of a kernel begins, and what its cells weigh. */
static int64_t zw_weigh(double (*kernel)(double), int radius, double scale, double place, int64_t size, double *weights,
                        int64_t *count, int *is_cut) {
    double stretch = scale >= ZW_FINE ? 1 : scale, near = floor(place - 0.5), shift = place - 0.5 - near;
    int64_t reach = (int64_t)ceil(radius / stretch), first = (int64_t)near - reach + 1, last = (int64_t)near + reach;
    *is_cut = first < 0 || last >= size;
    if (first < 0) first = 0;
    if (last >= size) last = size - 1;
    *count = last - first + 1;
    for (int64_t i = 0; i < *count; i++) weights[i] = kernel(((double)(first + i) - near - shift) * stretch);
    return first;
}

static int zw_sum(const double *cells, const uint8_t *valid, int64_t width, int64_t row, int64_t rows, int64_t column,
                  int64_t columns, const double *y, const double *x, int needs_all, double *result) {
    double sum = 0, total = 0;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t at = (row + i) * width + column;
        for (int64_t j = 0; j < columns; j++) {
            const double weight = y[i] * x[j];
            if (weight == 0) continue;
            if (valid && !valid[at + j]) {
                if (needs_all) return 0;
                continue;
            }
            sum += weight * cells[at + j];
            total += weight;
        }
    }
    if (total < ZW_LEAST_SUM) return 0;
    *result = total == 1 ? sum : sum / total;
    return 1;
}

static int zw_filter(const zw_job *j, const double *cells, const uint8_t *valid, double column, double row,
                     double *weights, double *result) {
    double *x = weights, *y = weights + j->taps;
    int64_t rows, columns, top, left;
    int cut_x, cut_y;
    if (j->method == ZW_CUBIC) {
        left = zw_weigh(zw_cubic, 2, j->x_scale, column, j->width, x, &columns, &cut_x);
        top = zw_weigh(zw_cubic, 2, j->y_scale, row, j->height, y, &rows, &cut_y);
        const int is_fine = j->x_scale >= ZW_FINE && j->y_scale >= ZW_FINE;
        if ((!is_fine || (!cut_x && !cut_y)) &&
            zw_sum(cells, valid, j->width, top, rows, left, columns, y, x, is_fine, result))
            return 1;
    }
    left = zw_weigh(zw_linear, 1, j->x_scale, column, j->width, x, &columns, &cut_x);
    top = zw_weigh(zw_linear, 1, j->y_scale, row, j->height, y, &rows, &cut_y);
    return zw_sum(cells, valid, j->width, top, rows, left, columns, y, x, 0, result);
}

/* How the cells between two places weigh: by what of them lies between; where nothing does, the cell there. */
static int64_t zw_cover(double low, double high, int64_t size, double *weights, int64_t *count) {
    int64_t first = (int64_t)floor(low + ZW_SLACK), end = (int64_t)ceil(high - ZW_SLACK);
    if (first >= size) first = size - 1;
    if (end <= first) end = first + 1;
    *count = end - first;
    for (int64_t i = 0; i < *count; i++) {
        double from = (double)(first + i), to = from + 1;
        from = from < low ? low : from;
        to = to > high ? high : to;
        weights[i] = to > from ? to - from : 0;
    }
    if (*count == 1) weights[0] = 1;
    return first;
}

/* The area of a cell of the result, as the box around its four corners. */
static int zw_area(const zw_job *j, int64_t at, double *box) {
    const int64_t corners[4] = {at, at + 1, at + j->out_width + 1, at + j->out_width + 2};
    box[0] = box[2] = INFINITY;
    box[1] = box[3] = -INFINITY;
    for (int i = 0; i < 4; i++) {
        const double x = j->columns[corners[i]], y = j->rows[corners[i]];
        if (!isfinite(x) || !isfinite(y)) return 0;
        box[0] = x < box[0] ? x : box[0];
        box[1] = x > box[1] ? x : box[1];
        box[2] = y < box[2] ? y : box[2];
        box[3] = y > box[3] ? y : box[3];
    }
    if (!(box[1] > 0 && box[3] > 0 && box[0] < (double)j->width && box[2] < (double)j->height)) return 0;
    for (int i = 0; i < 4; i++) {
        const double most = (double)(i < 2 ? j->width : j->height);
        box[i] = box[i] < 0 ? 0 : box[i] > most ? most : box[i];
    }
    return 1;
}

static int zw_mean(const zw_job *j, const double *cells, const uint8_t *valid, const double *box, double **weights,
                   int64_t *room, double *result) {
    int64_t rows, columns, wide = (int64_t)(box[1] - box[0]) + 3, high = (int64_t)(box[3] - box[2]) + 3;
    wide = wide > j->width + 1 ? j->width + 1 : wide;
    high = high > j->height + 1 ? j->height + 1 : high;
    if (wide + high > *room) {
        double *more = realloc(*weights, (size_t)(wide + high) * sizeof(double));
        if (!more) return -1;
        *weights = more;
        *room = wide + high;
    }
    double *x = *weights, *y = *weights + wide;
    int64_t left = zw_cover(box[0], box[1], j->width, x, &columns);
    int64_t top = zw_cover(box[2], box[3], j->height, y, &rows);
    return zw_sum(cells, valid, j->width, top, rows, left, columns, y, x, 0, result);
}

/* Whether a place lies in the source, its edges included, and in which cell. */
static int zw_is_inside(double place, int64_t size, int64_t *cell) {
    if (!(place >= 0 && place <= (double)size)) return 0;
    *cell = (int64_t)floor(place + ZW_SLACK);
    if (*cell == size) --*cell;
    return 1;
}

static int zw_row(const zw_job *j, int64_t layer, int64_t row, double **weights, int64_t *room) {
    const int64_t plane = j->height * j->width, line = (layer * j->out_height + row) * j->out_width;
    const char *cells = j->cells + layer * plane * j->item_size;
    const uint8_t *valid = j->valid ? j->valid + layer * plane : NULL;
    for (int64_t column = 0; column < j->out_width; column++) {
        char *out = j->out + (line + column) * j->item_size;
        int found = 0;
        if (j->method == ZW_AVERAGE) {
            double box[4];
            if (zw_area(j, row * (j->out_width + 1) + column, box))
                found = zw_mean(j, (const double *)cells, valid, box, weights, room, (double *)out);
            if (found < 0) return -1;
        } else {
            const double x = j->columns[row * j->out_width + column], y = j->rows[row * j->out_width + column];
            int64_t cell_x, cell_y;
            if (zw_is_inside(x, j->width, &cell_x) && zw_is_inside(y, j->height, &cell_y)) {
                const int64_t at = cell_y * j->width + cell_x;
                if (j->method == ZW_NEAREST) {
                    memcpy(out, cells + at * j->item_size, (size_t)j->item_size);
                    found = !valid || valid[at];
                } else if (!valid || valid[at]) {
                    found = zw_filter(j, (const double *)cells, valid, x, y, *weights, (double *)out);
                }
            }
        }
        j->found[line + column] = (uint8_t)found;
    }
    return 0;
}

static void zw_work(zs_job *job, int is_caller) {
    zw_job *j = (zw_job *)job;
    const int64_t groups = (j->out_height + ZW_ROWS - 1) / ZW_ROWS;
    int64_t room = 2 * j->taps, mine;
    double *weights = malloc((size_t)(room ? room : 1) * sizeof(double));
    (void)is_caller;
    if (!weights) j->failed = 1;
    while (!j->failed && (mine = j->next++) < groups * j->layers) {
        const int64_t first = mine % groups * ZW_ROWS;
        for (int64_t row = first; row < first + ZW_ROWS && row < j->out_height; row++)
            if (zw_row(j, mine / groups, row, &weights, &room) < 0) j->failed = 1;
    }
    free(weights);
}

/* 0, or -1 where memory is short. */
static int zw_run(zw_job *j, int threads) {
    const double least = j->x_scale < j->y_scale ? j->x_scale : j->y_scale;
    j->taps = j->method == ZW_AVERAGE ? 0 : 2 * (int64_t)ceil(2 / (least >= ZW_FINE ? 1 : least)) + 1;
    j->next = 0;
    j->failed = 0;
    j->job.work = zw_work;
    zs_pool_run(&j->job, threads);
    return j->failed ? -1 : 0;
}

#endif

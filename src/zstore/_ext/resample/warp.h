/* warp.h - cells of one grid sampled at any places of another: nearest, bilinear, cubic, and means and modes of areas.
 *
 * Positions are in cells of the source, (0, 0) the outer corner of its first cell. A position outside the source has no
 * value. The rules are those of gdalwarp: only valid cells count, and their weights are scaled to sum to one; where the
 * result is coarser than the source, kernels are stretched; a cubic that lacks a cell becomes bilinear, unless it is
 * stretched.
 */
#ifndef ZS_WARP_H
#define ZS_WARP_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "clones.h"
#include "pool.h"

enum { ZS_NEAREST, ZS_BILINEAR, ZS_CUBIC, ZS_AVERAGE, ZS_MODE };

#define ZS_ROWS 8         /* rows of the result that a thread takes at a time */
#define ZS_LEAST_SUM 1e-5 /* weights that sum to less are none */
#define ZS_EVEN 1e-6      /* parts of an area that differ by less, in cells, are equal */
#define ZS_SLACK 1e-10    /* what rounding may take from a place on an edge */
#define ZS_FINE 0.95      /* cells of the result per cell of the source, from which kernels are not stretched */

typedef struct {
    zs_job job;
    int method;
    int64_t layers, height, width; /* of the source */
    int64_t out_height, out_width; /* of the result, and of the places (one more for areas) */
    const char *cells; /* contiguous; doubles, or items of any kind for ZS_NEAREST, of up to 8 bytes for ZS_MODE */
    int64_t item_size;
    const uint8_t *valid; /* per cell of the source; NULL: all are */
    const double *columns, *rows;
    double left, top;        /* the place of the source's corner, in the places' numbers */
    double x_scale, y_scale; /* cells of the result per cell of the source */
    int is_whole;            /* whether results are rounded, halves up, */
    double least, most;      /* and stopped at these */
    int64_t taps;            /* room that weights along one dimension need */
    uint8_t *runs;           /* how many valid cells begin at a cell, as far as a byte can say */
    char *out;
    uint8_t *found; /* per cell of the result: whether there is a value */
    _Atomic int64_t next;
    _Atomic int failed;
} zs_warp_job;

/* The weights of cells along one dimension: of `count` cells from `first` on, with the sum `total`. */
typedef struct {
    int64_t first, count;
    const double *weights;
    double total;
    int is_cut;
} zs_taps;

ZS_INLINE double zs_kernel_weight(int is_cubic, double x) {
    x = fabs(x);
    if (!is_cubic) return x < 1 ? 1 - x : 0;
    const double near = x * x * (1.5 * x - 2.5) + 1, far = x * (x * (2.5 - 0.5 * x) - 4) + 2;
    return x <= 1 ? near : x < 2 ? far : 0;
}

/* `reach` cells on each side have a weight, as far as they lie in the source. */
ZS_INLINE void zs_weigh_place(int is_cubic, int64_t reach, double stretch, double place, int64_t size, double *weights,
                              zs_taps *span) {
    const double near = floor(place - 0.5), shift = place - 0.5 - near;
    const int64_t first = (int64_t)near - reach + 1, last = (int64_t)near + reach;
    for (int64_t i = 0; i < 2 * reach; i++)
        weights[i] = zs_kernel_weight(is_cubic, ((double)(1 - reach + i) - shift) * stretch);
    const int64_t skipped = first < 0 ? -first : 0, lost = last >= size ? last - size + 1 : 0;
    span->first = first + skipped;
    span->count = 2 * reach - skipped - lost;
    span->weights = weights + skipped;
    span->is_cut = skipped || lost;
    span->total = 0;
    for (int64_t i = 0; i < span->count; i++) span->total += span->weights[i];
}

/* The weighted sum, cell by cell, without those that are not valid. */
static int zs_sum_valid(const double *cells, const uint8_t *valid, int64_t width, const zs_taps *y, const zs_taps *x,
                        int needs_all, double *result) {
    double sum = 0, total = 0;
    for (int64_t i = 0; i < y->count; i++) {
        const int64_t at = (y->first + i) * width + x->first;
        for (int64_t j = 0; j < x->count; j++) {
            const double weight = y->weights[i] * x->weights[j];
            if (weight == 0) continue;
            if (valid && !valid[at + j]) {
                if (needs_all) return 0;
                continue;
            }
            sum += weight * cells[at + j];
            total += weight;
        }
    }
    if (total < ZS_LEAST_SUM) return 0;
    *result = total == 1 ? sum : sum / total;
    return 1;
}

/* The same where all cells are valid: columns first, as many as the compiler is told. */
ZS_INLINE double zs_sum_solid(const double *cells, int64_t width, const zs_taps *y, const zs_taps *x, int64_t count) {
    double sums[8] = {0}, sum = 0;
    cells += y->first * width + x->first;
    for (int64_t i = 0; i < y->count; i++, cells += width)
        for (int64_t j = 0; j < count; j++) sums[j] += y->weights[i] * cells[j];
    for (int64_t j = 0; j < count; j++) sum += sums[j] * x->weights[j];
    return sum;
}

ZS_INLINE int zs_is_solid(const uint8_t *runs, int64_t width, const zs_taps *y, const zs_taps *x) {
    runs += y->first * width + x->first;
    for (int64_t i = 0; i < y->count; i++, runs += width)
        if (*runs < x->count) return 0;
    return 1;
}

ZS_INLINE int zs_sum_weighted(const double *cells, const uint8_t *valid, const uint8_t *runs, int64_t width,
                              const zs_taps *y, const zs_taps *x, int needs_all, double *result) {
    const double total = y->total * x->total;
    if (x->count <= 8 && total >= ZS_LEAST_SUM && (!runs || zs_is_solid(runs, width, y, x))) {
        double sum;
        switch (x->count) {
        case 1: sum = zs_sum_solid(cells, width, y, x, 1); break;
        case 2: sum = zs_sum_solid(cells, width, y, x, 2); break;
        case 3: sum = zs_sum_solid(cells, width, y, x, 3); break;
        case 4: sum = zs_sum_solid(cells, width, y, x, 4); break;
        case 6: sum = zs_sum_solid(cells, width, y, x, 6); break;
        default: sum = zs_sum_solid(cells, width, y, x, x->count);
        }
        /* An infinite cell that weighs nothing is to have no part in this. */
        if (isfinite(sum)) {
            *result = total == 1 ? sum : sum / total;
            return 1;
        }
    }
    return zs_sum_valid(cells, valid, width, y, x, needs_all, result);
}

ZS_INLINE double zs_stretch(double scale) { return scale >= ZS_FINE ? 1 : scale; }

ZS_INLINE int64_t zs_reach(int radius, double scale) { return (int64_t)ceil(radius / zs_stretch(scale)); }

/* The cells between two positions; where none lies, the cell there. */
ZS_INLINE void zs_span_area(double low, double high, int64_t size, int64_t *first, int64_t *end) {
    *first = (int64_t)floor(low + ZS_SLACK), *end = (int64_t)ceil(high - ZS_SLACK);
    if (*first >= size) *first = size - 1;
    if (*end <= *first) *end = *first + 1;
}

/* The weights of the cells between two positions: the part of each that lies between. */
ZS_INLINE void zs_weigh_area(double low, double high, int64_t size, double *weights, zs_taps *span) {
    int64_t first, end;
    zs_span_area(low, high, size, &first, &end);
    span->first = first;
    span->count = end - first;
    span->weights = weights;
    span->total = 0;
    for (int64_t i = 0; i < span->count; i++) {
        double from = (double)(first + i), to = from + 1;
        from = from < low ? low : from;
        to = to > high ? high : to;
        weights[i] = span->count == 1 ? 1 : to > from ? to - from : 0;
        span->total += weights[i];
    }
}

/* The area of a cell of the result, as far as it lies in the source: as in gdalwarp, the box between its first corner
 * and the one across.
 */
ZS_INLINE int zs_find_area(const zs_warp_job *j, int64_t at, double *box) {
    const int64_t across = at + j->out_width + 2;
    const double x[2] = {j->columns[at] - j->left, j->columns[across] - j->left};
    const double y[2] = {j->rows[at] - j->top, j->rows[across] - j->top};
    /* All four, since a comparison may drop a NaN. */
    if ((x[0] - x[0]) + (y[0] - y[0]) + (x[1] - x[1]) + (y[1] - y[1]) != 0) return 0;
    box[0] = x[0] < x[1] ? x[0] : x[1];
    box[1] = x[0] < x[1] ? x[1] : x[0];
    box[2] = y[0] < y[1] ? y[0] : y[1];
    box[3] = y[0] < y[1] ? y[1] : y[0];
    if (!(box[1] > 0 && box[3] > 0 && box[0] < (double)j->width && box[2] < (double)j->height)) return 0;
    for (int i = 0; i < 4; i++) {
        const double most = (double)(i < 2 ? j->width : j->height);
        box[i] = box[i] < 0 ? 0 : box[i] > most ? most : box[i];
    }
    return 1;
}

/* Room for so many doubles; returns 0, or -1 if memory is short. */
ZS_INLINE int zs_make_room(double **memory, int64_t *room, int64_t count) {
    if (count <= *room) return 0;
    double *more = realloc(*memory, (size_t)count * sizeof(double));
    if (!more) return -1;
    *memory = more;
    *room = count;
    return 0;
}

ZS_INLINE int zs_mean_area(const zs_warp_job *j, const double *cells, const uint8_t *valid, const uint8_t *runs,
                           const double *box, double **weights, int64_t *room, double *result) {
    zs_taps y, x;
    int64_t wide = (int64_t)(box[1] - box[0]) + 3, high = (int64_t)(box[3] - box[2]) + 3;
    wide = wide > j->width + 1 ? j->width + 1 : wide;
    high = high > j->height + 1 ? j->height + 1 : high;
    if (zs_make_room(weights, room, wide + high) < 0) return -1;
    zs_weigh_area(box[0], box[1], j->width, *weights, &x);
    zs_weigh_area(box[2], box[3], j->height, *weights + wide, &y);
    return zs_sum_weighted(cells, valid, runs, j->width, &y, &x, 0, result);
}

/* The part of an area that has a value. */
typedef struct {
    uint64_t value;
    double size;
} zs_tally;

/* The first cell of an area, row by row, with which a value has come to have most of what of the area is valid; -1:
 * nothing is, -2: memory is short. As in gdalwarp from 3.12 on, cells count by the part of them that lies in the area,
 * and of values with equal parts that one is taken whose part was there first.
 */
ZS_INLINE int64_t zs_find_mode(const zs_warp_job *j, const char *cells, const uint8_t *valid, const double *box,
                               double **memory, int64_t *room, int64_t item_size) {
    int64_t left, right, top, bottom, found = -1;
    double most = 0;
    zs_taps y, x;
    int bits = 3;
    zs_span_area(box[0], box[1], j->width, &left, &right);
    zs_span_area(box[2], box[3], j->height, &top, &bottom);
    const int64_t wide = right - left, high = bottom - top;
    while ((INT64_C(1) << bits) < 2 * wide * high) bits++;
    const int64_t size = INT64_C(1) << bits;
    if (zs_make_room(memory, room, 2 * size + wide + high) < 0) return -2;
    zs_tally *const tallies = (zs_tally *)*memory;
    memset(tallies, 0, (size_t)size * sizeof(zs_tally));
    zs_weigh_area(box[0], box[1], j->width, *memory + 2 * size, &x);
    zs_weigh_area(box[2], box[3], j->height, *memory + 2 * size + wide, &y);
    for (int64_t row = 0; row < high; row++)
        for (int64_t column = 0; column < wide; column++) {
            const int64_t at = (top + row) * j->width + left + column;
            if (valid && !valid[at]) continue;
            uint64_t value = 0;
            memcpy(&value, cells + at * item_size, (size_t)item_size);
            int64_t slot = (int64_t)(value * UINT64_C(0x9E3779B97F4A7C15) >> (64 - bits));
            while (tallies[slot].size > 0 && tallies[slot].value != value) slot = (slot + 1) & (size - 1);
            tallies[slot].value = value;
            tallies[slot].size += y.weights[row] * x.weights[column];
            if (tallies[slot].size > most + ZS_EVEN) {
                most = tallies[slot].size;
                found = at;
            }
        }
    return found;
}

/* Whether a position lies in the source, its edges included, and in which cell. */
ZS_INLINE int zs_is_inside(double place, int64_t size, int64_t *cell) {
    if (!(place >= 0 && place <= (double)size)) return 0;
    *cell = (int64_t)floor(place + ZS_SLACK);
    if (*cell == size) --*cell;
    return 1;
}

ZS_INLINE double zs_round_whole(const zs_warp_job *j, double value) {
    if (!j->is_whole) return value;
    value = floor(value + 0.5);
    return value >= j->most ? j->most : value > j->least ? value : isnan(value) ? 0 : j->least;
}

ZS_INLINE void zs_pick_row(const zs_warp_job *j, const char *cells, const uint8_t *valid, int64_t row, int64_t line,
                           int64_t item_size) {
    const double *columns = j->columns + row * j->out_width, *rows = j->rows + row * j->out_width;
    for (int64_t column = 0; column < j->out_width; column++) {
        int64_t x, y;
        uint8_t found = 0;
        if (zs_is_inside(columns[column] - j->left, j->width, &x) &&
            zs_is_inside(rows[column] - j->top, j->height, &y)) {
            const int64_t at = y * j->width + x;
            memcpy(j->out + (line + column) * item_size, cells + at * item_size, (size_t)item_size);
            found = !valid || valid[at];
        }
        j->found[line + column] = found;
    }
}

/* `is_fine`: neither kernel is stretched. The compiler knows it, and all counts of cells with it. */
ZS_INLINE void zs_filter_row(const zs_warp_job *j, const double *cells, const uint8_t *valid, const uint8_t *runs,
                             int64_t row, int64_t line, double *weights, int is_cubic, int is_fine) {
    const double *columns = j->columns + row * j->out_width, *rows = j->rows + row * j->out_width;
    const double x_scale = is_fine ? 1 : j->x_scale, y_scale = is_fine ? 1 : j->y_scale;
    const double x_stretch = zs_stretch(x_scale), y_stretch = zs_stretch(y_scale);
    const int64_t x_linear = zs_reach(1, x_scale), y_linear = zs_reach(1, y_scale);
    const int64_t x_cubic = zs_reach(2, x_scale), y_cubic = zs_reach(2, y_scale);
    double *const out = (double *)j->out + line;
    for (int64_t column = 0; column < j->out_width; column++) {
        const double place_x = columns[column] - j->left, place_y = rows[column] - j->top;
        int64_t cell_x, cell_y;
        int found = 0;
        zs_taps x, y;
        if (zs_is_inside(place_x, j->width, &cell_x) && zs_is_inside(place_y, j->height, &cell_y) &&
            (!valid || valid[cell_y * j->width + cell_x])) {
            if (is_cubic) {
                zs_weigh_place(1, x_cubic, x_stretch, place_x, j->width, weights, &x);
                zs_weigh_place(1, y_cubic, y_stretch, place_y, j->height, weights + j->taps, &y);
                if (!is_fine || (!x.is_cut && !y.is_cut))
                    found = zs_sum_weighted(cells, valid, runs, j->width, &y, &x, is_fine, out + column);
            }
            if (!found) {
                zs_weigh_place(0, x_linear, x_stretch, place_x, j->width, weights, &x);
                zs_weigh_place(0, y_linear, y_stretch, place_y, j->height, weights + j->taps, &y);
                found = zs_sum_weighted(cells, valid, runs, j->width, &y, &x, 0, out + column);
            }
            if (found) out[column] = zs_round_whole(j, out[column]);
        }
        j->found[line + column] = (uint8_t)found;
    }
}

ZS_INLINE int zs_average_row(const zs_warp_job *j, const double *cells, const uint8_t *valid, const uint8_t *runs,
                             int64_t row, int64_t line, double **weights, int64_t *room) {
    double *const out = (double *)j->out + line;
    double box[4];
    for (int64_t column = 0; column < j->out_width; column++) {
        int found = 0;
        if (zs_find_area(j, row * (j->out_width + 1) + column, box))
            found = zs_mean_area(j, cells, valid, runs, box, weights, room, out + column);
        if (found < 0) return -1;
        if (found) out[column] = zs_round_whole(j, out[column]);
        j->found[line + column] = (uint8_t)found;
    }
    return 0;
}

ZS_INLINE int zs_mode_row(const zs_warp_job *j, const char *cells, const uint8_t *valid, int64_t row, int64_t line,
                          double **memory, int64_t *room, int64_t item_size) {
    double box[4];
    for (int64_t column = 0; column < j->out_width; column++) {
        int64_t at = -1;
        if (zs_find_area(j, row * (j->out_width + 1) + column, box))
            at = zs_find_mode(j, cells, valid, box, memory, room, item_size);
        if (at < -1) return -1;
        if (at >= 0) memcpy(j->out + (line + column) * item_size, cells + at * item_size, (size_t)item_size);
        j->found[line + column] = at >= 0;
    }
    return 0;
}

ZS_CLONES static int zs_warp_row(const zs_warp_job *j, int64_t layer, int64_t row, double **weights, int64_t *room) {
    const int64_t plane = layer * j->height * j->width, line = (layer * j->out_height + row) * j->out_width;
    const char *items = j->cells + plane * j->item_size;
    const double *cells = (const double *)items;
    const uint8_t *valid = j->valid ? j->valid + plane : NULL, *runs = j->runs ? j->runs + plane : NULL;
    const int is_fine = j->x_scale >= ZS_FINE && j->y_scale >= ZS_FINE;
    if (j->method == ZS_AVERAGE) return zs_average_row(j, cells, valid, runs, row, line, weights, room);
    if (j->method == ZS_MODE)
        return j->item_size == 1   ? zs_mode_row(j, items, valid, row, line, weights, room, 1)
               : j->item_size == 2 ? zs_mode_row(j, items, valid, row, line, weights, room, 2)
                                   : zs_mode_row(j, items, valid, row, line, weights, room, j->item_size);
    if (j->method == ZS_CUBIC && is_fine) zs_filter_row(j, cells, valid, runs, row, line, *weights, 1, 1);
    else if (j->method == ZS_CUBIC) zs_filter_row(j, cells, valid, runs, row, line, *weights, 1, 0);
    else if (j->method == ZS_BILINEAR && is_fine) zs_filter_row(j, cells, valid, runs, row, line, *weights, 0, 1);
    else if (j->method == ZS_BILINEAR) zs_filter_row(j, cells, valid, runs, row, line, *weights, 0, 0);
    else if (j->item_size == 1) zs_pick_row(j, items, valid, row, line, 1);
    else if (j->item_size == 2) zs_pick_row(j, items, valid, row, line, 2);
    else if (j->item_size == 4) zs_pick_row(j, items, valid, row, line, 4);
    else if (j->item_size == 8) zs_pick_row(j, items, valid, row, line, 8);
    else zs_pick_row(j, items, valid, row, line, j->item_size);
    return 0;
}

/* Find the windows by the first cells of their rows, instead of cell by cell. */
static void zs_count_runs(zs_warp_job *j) {
    for (int64_t row = 0; row < j->layers * j->height; row++) {
        const uint8_t *valid = j->valid + row * j->width;
        uint8_t *runs = j->runs + row * j->width, run = 0;
        for (int64_t column = j->width - 1; column >= 0; column--) {
            run = valid[column] ? (uint8_t)(run < 255 ? run + 1 : 255) : 0;
            runs[column] = run;
        }
    }
}

static void zs_work_warp(zs_job *job, int is_caller) {
    zs_warp_job *j = (zs_warp_job *)job;
    const int64_t groups = (j->out_height + ZS_ROWS - 1) / ZS_ROWS;
    int64_t room = 2 * j->taps, mine;
    double *weights = malloc((size_t)(room ? room : 1) * sizeof(double));
    (void)is_caller;
    if (!weights) j->failed = 1;
    while (!j->failed && (mine = j->next++) < groups * j->layers) {
        const int64_t first = mine % groups * ZS_ROWS;
        for (int64_t row = first; row < first + ZS_ROWS && row < j->out_height; row++)
            if (zs_warp_row(j, mine / groups, row, &weights, &room) < 0) j->failed = 1;
    }
    free(weights);
}

/* Returns 0, or -1 if memory is short. */
static int zs_run_warp(zs_warp_job *j, int threads) {
    const double least = j->x_scale < j->y_scale ? j->x_scale : j->y_scale;
    j->taps = j->method >= ZS_AVERAGE ? 0 : 2 * (int64_t)ceil(2 / (least >= ZS_FINE ? 1 : least)) + 1;
    j->next = 0;
    j->failed = 0;
    j->runs = NULL;
    if (j->valid && j->method != ZS_NEAREST && j->method != ZS_MODE) {
        j->runs = malloc((size_t)(j->layers * j->height * j->width));
        if (!j->runs) return -1;
        zs_count_runs(j);
    }
    j->job.work = zs_work_warp;
    zs_pool_run(&j->job, threads);
    free(j->runs);
    return j->failed ? -1 : 0;
}

#endif

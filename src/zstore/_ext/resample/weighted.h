/* weighted.h - windows with weights, overlapping or fractional: the second driver.
 *
 * The resampled dimensions are processed one after another, the last first, in float64, tile by tile of the output.
 * A table per dimension gives the cells of every output and their weights; so a tile has the same result wherever it
 * lies, and from any part of the source that holds its cells. Dimensions that are not resampled are iterated over,
 * except the innermost, whose cells ("lanes") are weighted side by side.
 */
#ifndef ZS_WEIGHTED_H
#define ZS_WEIGHTED_H

#include "cells.h"
#include "crew.h"
#include "run.h"
#include "weigh.h"

enum { ZS_MAX_WEIGHTED = 8 };

typedef struct {
    int64_t source_size, size, source_stride, stride;
    const int64_t *first, *count; /* per output; neither first nor first + count ever goes back */
    const int64_t *reach;         /* the cells that count as asked for, present or not */
    const double *weights;        /* size x taps */
    const double *total;          /* what the weights of an output come to */
    int64_t taps;
    int64_t alike_begin, alike_end, step; /* outputs of equal weights, each `step` cells after the one before */
    int64_t tile, tile_cells;             /* made by zs_run_weighted: outputs at a time, and the most they look at */
} zs_weighted_axis;

typedef struct {
    zs_cells cells; /* its outer dimensions are not resampled: size and strides only */
    int axis_count, needs_runs;
    zs_weighted_axis axes[ZS_MAX_WEIGHTED];
    zs_conversion how;
    zs_load_cells load;
    zs_store_cells store;
    /* made by zs_run_weighted */
    int64_t lane_tile, task_count;
    int64_t next; /* shared by threads, as is status */
    int status;
} zs_weighted_job;

typedef struct {
    double *values, *valid;
} zs_plane;

typedef struct {
    zs_weighted_job *job;
    char *memory;
    int64_t begin[ZS_MAX_WEIGHTED], outputs[ZS_MAX_WEIGHTED], cells[ZS_MAX_WEIGHTED], low[ZS_MAX_WEIGHTED];
    int64_t inner[ZS_MAX_WEIGHTED + 1]; /* outputs of the tile along this dimension and all after it */
    int64_t lanes;
    zs_plane planes[ZS_MAX_WEIGHTED]; /* what is weighed along each dimension */
    zs_plane phases, result;
    double *run, *best;
    char *gathered, *scattered, *again;
    zs_conversion how;
    const double **rows;
} zs_weigher;

/* Compute one output (or, with phases, `count` of them) from the rows of values and of validity. */
static int zs_weigh_outputs(zs_weigher *w, const zs_weighted_axis *axis, int64_t i, const double *const *rows,
                            const double *const *valid_rows, int64_t count, double *values, double *valid) {
    const zs_weighted_job *job = w->job;
    const double *weights = axis->weights + i * axis->taps;
    zs_weigh(rows, weights, axis->count[i], count, values);
    if (!valid_rows) return 0;
    zs_weigh(valid_rows, weights, axis->count[i], count, valid);
    if (w->how.purpose != ZS_FILTERED) return 1;
    double all = weights[0];
    for (int64_t k = 1; k < axis->count[i]; k++) all += weights[k];
    if (job->needs_runs) zs_find_longest_runs(valid_rows, axis->count[i], count, w->run, w->best);
    zs_divide(values, valid, job->needs_runs ? w->best : NULL, (double)(axis->reach[i] / 2), all, count);
    return 1;
}

/* Along dimension d: planes[d] -> out. With `has_holes` validity counts, and out.valid is filled. */
static void zs_weigh_axis(zs_weigher *w, int d, int has_holes, zs_plane out) {
    const zs_weighted_job *job = w->job;
    const zs_weighted_axis *axis = &job->axes[d];
    const int64_t after = w->inner[d + 1], end = w->begin[d] + w->outputs[d];
    const zs_plane in = w->planes[d];
    int64_t i = w->begin[d];
    while (i < end) {
        const int64_t at = i - w->begin[d], from = axis->first[i] - w->low[d], taps = axis->count[i];
        const double **rows = w->rows, **valid_rows = has_holes ? w->rows + axis->taps : NULL;
        const int64_t alike = zs_least(axis->alike_end, end) - i;
        if (after == 1 && i >= axis->alike_begin && alike > 4 && axis->step <= 64) {
            const int64_t cells = (alike - 1) * axis->step + taps;
            const int64_t phase = (cells + axis->step - 1) / axis->step;
            zs_split_phases(in.values + from, cells, axis->step, phase, w->phases.values);
            if (has_holes) zs_split_phases(in.valid + from, cells, axis->step, phase, w->phases.valid);
            for (int64_t k = 0; k < taps; k++) {
                const int64_t place = k % axis->step * phase + k / axis->step;
                rows[k] = w->phases.values + place;
                if (has_holes) valid_rows[k] = w->phases.valid + place;
            }
            zs_weigh_outputs(w, axis, i, rows, valid_rows, alike, out.values + at, out.valid + at);
            i += alike;
            continue;
        }
        if (after == 1 && !(has_holes && w->how.purpose == ZS_FILTERED)) {
            const double *cell = in.values + from, *kept = in.valid + from, *weight = axis->weights + i * axis->taps;
            double sum = cell[0] * weight[0], valid = has_holes ? kept[0] * weight[0] : 0.0;
            for (int64_t k = 1; k < taps; k++) sum += cell[k] * weight[k];
            for (int64_t k = 1; has_holes && k < taps; k++) valid += kept[k] * weight[k];
            out.values[at] = sum;
            if (has_holes) out.valid[at] = valid;
            i++;
            continue;
        }
        for (int64_t k = 0; k < taps; k++) {
            rows[k] = in.values + (from + k) * after;
            if (has_holes) valid_rows[k] = in.valid + (from + k) * after;
        }
        zs_weigh_outputs(w, axis, i, rows, valid_rows, after, out.values + at * after, out.valid + at * after);
        i++;
    }
}

/* Convert the cells from `from` on, along the last dimension and the lanes, to float64. Returns whether any is invalid.
 */
static int zs_load_row(zs_weigher *w, int d, const char *from) {
    zs_weighted_job *job = w->job;
    const zs_weighted_axis *axis = &job->axes[d];
    const int64_t cells = w->cells[d] * w->lanes, size = job->cells.item_size;
    const int contiguous =
        !job->cells.is_half && !job->cells.source_swapped && !((uintptr_t)from & (uintptr_t)(size - 1)) &&
        (w->lanes == 1 || job->cells.lane.source_stride == size) && axis->source_stride == w->lanes * size;
    if (!contiguous) {
        zs_gather(&job->cells, from, axis->source_stride, w->cells[d], w->lanes, w->gathered);
        from = w->gathered;
    }
    return job->load(&w->how, from, cells, w->planes[d].values, w->planes[d].valid) < cells;
}

/* Compute the tile from dimension d on, at `from` of the source, to `out`. Returns whether out.valid is filled. */
static int zs_weigh_tile(zs_weigher *w, int d, const char *from, zs_plane out) {
    const zs_weighted_job *job = w->job;
    const zs_weighted_axis *axis = &job->axes[d];
    const int64_t inner = w->inner[d + 1];
    /* a filter over valid cells alone needs no validity; sums want theirs always, as other windows will have one */
    const int always = w->how.skip != ZS_PLAIN && w->how.purpose != ZS_FILTERED;
    int has_holes = always;
    if (d == job->axis_count - 1) {
        has_holes |= zs_load_row(w, d, from + w->low[d] * axis->source_stride);
    } else {
        int64_t checked = 0;
        for (int64_t s = 0; s < w->cells[d]; s++) {
            const zs_plane row = {w->planes[d].values + s * inner, w->planes[d].valid + s * inner};
            if (zs_weigh_tile(w, d + 1, from + (w->low[d] + s) * axis->source_stride, row)) {
                for (int64_t a = checked * inner; !always && a < s * inner; a++) w->planes[d].valid[a] = 1.0;
                checked = s + 1;
                has_holes = 1;
            }
        }
        if (has_holes && !always)
            for (int64_t a = checked * inner; a < w->cells[d] * inner; a++) w->planes[d].valid[a] = 1.0;
    }
    zs_weigh_axis(w, d, has_holes, out);
    return has_holes;
}

/* The sum of the weights of every output of the tile, where all cells are valid. */
static void zs_fill_totals(const zs_weigher *w, int d, double factor, double *totals) {
    const zs_weighted_job *job = w->job;
    for (int64_t i = 0; i < w->outputs[d]; i++) {
        const double total = factor * job->axes[d].total[w->begin[d] + i];
        if (d < job->axis_count - 1) zs_fill_totals(w, d + 1, total, totals + i * w->inner[d + 1]);
        else
            for (int64_t l = 0; l < w->lanes; l++) totals[i * w->lanes + l] = total;
    }
}

/* Store the finished tile, from dimension d on, in the output. */
static void zs_scatter_tile(const zs_weigher *w, int d, const char *cells, char *to) {
    const zs_weighted_job *job = w->job;
    const zs_weighted_axis *axis = &job->axes[d];
    to += w->begin[d] * axis->stride;
    if (d == job->axis_count - 1) {
        zs_scatter(&job->cells, cells, w->outputs[d], w->lanes, to, axis->stride);
        return;
    }
    for (int64_t i = 0; i < w->outputs[d]; i++)
        zs_scatter_tile(w, d + 1, cells + i * w->inner[d + 1] * job->cells.item_size, to + i * axis->stride);
}

/* Compute the tile that begins at `from` of the source, and store it as cells. */
static void zs_make_tile(zs_weigher *w, const char *from, char *cells) {
    const int has_holes = zs_weigh_tile(w, 0, from, w->result);
    const int divides = w->how.purpose == ZS_MEAN || w->how.purpose == ZS_ROOT_MEAN;
    if (!has_holes && divides) zs_fill_totals(w, 0, 1.0, w->result.valid);
    w->job->store(&w->how, w->result.values, has_holes || divides ? w->result.valid : NULL, w->inner[0], cells);
}

static int64_t zs_tiles(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

static void zs_run_task(zs_weigher *w, int64_t task) {
    zs_weighted_job *job = w->job;
    const int64_t lane = task % zs_tiles(job->cells.lane.size, job->lane_tile) * job->lane_tile;
    const char *from = job->cells.source + lane * job->cells.lane.source_stride;
    char *to = job->cells.out + lane * job->cells.lane.stride;
    task /= zs_tiles(job->cells.lane.size, job->lane_tile);
    w->lanes = w->inner[job->axis_count] = zs_least(job->lane_tile, job->cells.lane.size - lane);
    for (int d = job->axis_count - 1; d >= 0; d--) {
        const zs_weighted_axis *axis = &job->axes[d];
        const int64_t tiles = zs_tiles(axis->size, axis->tile);
        w->begin[d] = task % tiles * axis->tile;
        task /= tiles;
        w->outputs[d] = zs_least(axis->tile, axis->size - w->begin[d]);
        const int64_t last = w->begin[d] + w->outputs[d] - 1;
        w->low[d] = axis->first[w->begin[d]];
        w->cells[d] = axis->first[last] + axis->count[last] - w->low[d];
        w->inner[d] = w->outputs[d] * w->inner[d + 1];
    }
    for (int d = job->cells.outer_count - 1; d >= 0; d--) {
        from += task % job->cells.outer[d].size * job->cells.outer[d].source_stride;
        to += task % job->cells.outer[d].size * job->cells.outer[d].stride;
        task /= job->cells.outer[d].size;
    }
    zs_make_tile(w, from, w->scattered);
    if (job->cells.stray_nan && zs_find_nan(job->cells.item_size, w->scattered, w->inner[0])) {
        w->how.skip = ZS_SKIP_NAN;
        zs_make_tile(w, from, w->again);
        w->how.skip = ZS_PLAIN;
        zs_replace_nan(job->cells.item_size, w->scattered, w->again, w->inner[0]);
    }
    zs_scatter_tile(w, 0, w->scattered, to);
}

/* Tiles small enough for the CPU's caches, and large enough that what neighbours share is not computed too often. */
static void zs_choose_tiles(zs_weighted_job *job) {
    job->lane_tile = zs_least(job->cells.lane.size, 256);
    job->task_count = zs_tiles(job->cells.lane.size, job->lane_tile);
    for (int d = 0; d < job->axis_count; d++) {
        zs_weighted_axis *axis = &job->axes[d];
        const int64_t step = axis->source_size / axis->size + 1, depth = job->axis_count - 1 - d;
        const int64_t cells = depth == 1 ? 4096 : job->lane_tile > 1 ? 16384 / job->lane_tile : 768;
        const int64_t most = depth == 0 ? 256 : depth == 1 ? 64 : 4, fits = cells / step;
        axis->tile = zs_least(axis->size, fits > most ? most : fits > 1 ? fits : 1);
        axis->tile_cells = 0;
        for (int64_t begin = 0; begin < axis->size; begin += axis->tile) {
            const int64_t last = zs_least(begin + axis->tile, axis->size) - 1;
            const int64_t span = axis->first[last] + axis->count[last] - axis->first[begin];
            if (span > axis->tile_cells) axis->tile_cells = span;
        }
        job->task_count *= zs_tiles(axis->size, axis->tile);
    }
    for (int d = 0; d < job->cells.outer_count; d++) job->task_count *= job->cells.outer[d].size;
}

static int zs_prepare(zs_weighted_job *job, zs_weigher *w) {
    int64_t sizes[ZS_MAX_WEIGHTED], inner = job->lane_tile, widest = 0, taps = 0, total = 0;
    for (int d = job->axis_count - 1; d >= 0; d--) {
        sizes[d] = (job->axes[d].tile_cells * inner + 15) & ~(int64_t)7;
        inner *= job->axes[d].tile;
        if (job->axes[d].taps > taps) taps = job->axes[d].taps;
        total += 2 * sizes[d];
    }
    const zs_weighted_axis *last = &job->axes[job->axis_count - 1];
    /* phases are each as long as the longest */
    const int64_t phases = (last->tile_cells + 2 * 64 + 7) & ~(int64_t)7;
    const int64_t results = (inner + 7) & ~(int64_t)7, row = sizes[job->axis_count - 1];
    widest = results > phases ? results : phases;
    total += 2 * phases + 2 * results + 2 * widest + row + 2 * results;
    w->job = job;
    w->how = job->how;
    w->how.skip = job->cells.skip;
    w->how.nodata = job->cells.nodata;
    w->how.substitute = job->cells.substitute;
    w->rows = (const double **)malloc((size_t)(2 * taps) * sizeof *w->rows);
    if (posix_memalign((void **)&w->memory, 64, (size_t)total * sizeof(double))) w->memory = NULL;
    if (!w->rows || !w->memory) return ZS_NO_MEMORY;
    double *memory = (double *)w->memory;
    auto take = [&memory](int64_t size) { return (memory += size) - size; };
    for (int d = 0; d < job->axis_count; d++) w->planes[d] = {take(sizes[d]), take(sizes[d])};
    w->phases = {take(phases), take(phases)};
    w->result = {take(results), take(results)};
    w->run = take(widest);
    w->best = take(widest);
    w->gathered = (char *)take(row);
    w->scattered = (char *)take(results);
    w->again = (char *)take(results);
    return ZS_OK;
}

/* In templates.cc. */
int zs_run_weighted(zs_weighted_job *job, int threads);
extern const zs_load_cells zs_loads[ZS_TYPE_COUNT];
extern const zs_store_cells zs_stores[ZS_TYPE_COUNT];

#endif

/* run.h - one resampling call: which kernel, over which windows, on how many threads.
 *
 * The source has any number of outer dimensions (in row-major order of the window), one dimension x along which the
 * kernels run, and innermost lanes that are not resampled. Rows that are not contiguous, aligned and in native byte
 * order are copied block by block, so that kernels need to handle nothing else.
 */
#ifndef ZS_RUN_H
#define ZS_RUN_H

#include "average.h"
#include "block.h"
#include "crew.h"
#include "gather.h"
#include "stray_nan.h"
#include "mode.h"
#include "nearest.h"
#include "rank.h"
#include "total.h"

enum { ZS_U8, ZS_I8, ZS_U16, ZS_I16, ZS_U32, ZS_I32, ZS_U64, ZS_I64, ZS_F32, ZS_F64, ZS_TYPE_COUNT };
enum {
    ZS_NEAREST_METHOD,
    ZS_AVERAGE_METHOD,
    ZS_MODE_METHOD,
    ZS_SUM_METHOD,
    ZS_RMS_METHOD,
    ZS_MAX_METHOD,
    ZS_MIN_METHOD,
    ZS_QUANTILE_METHOD,
    ZS_METHOD_COUNT
};

static int64_t zs_cell_size(int cell_type) {
    static const uint8_t sizes[ZS_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8};
    return cell_type < 0 || cell_type >= ZS_TYPE_COUNT ? 0 : sizes[cell_type];
}

/* In templates.cc. */
zs_kernel zs_find_kernel(int method, int cell_type);

static int64_t zs_first_cell(const zs_axis *axis, int64_t output) {
    return axis->first ? axis->first[output] : output * axis->factor;
}

static int64_t zs_cell_count(const zs_axis *axis, int64_t output) {
    const int64_t rest = axis->source_size - output * axis->factor;
    return axis->first ? axis->count[output] : rest < axis->factor ? rest : axis->factor;
}

typedef struct {
    zs_cells cells;
    zs_axis x;
    zs_kernel kernel;
    int quarters;
    /* made by zs_run_windows */
    zs_block block; /* what all calls of the kernel have alike */
    int direct_source, direct_out;
    int64_t task_count, outer_total, x_block, x_blocks, window_rows;
    int64_t next; /* shared by threads, as is status */
    int status;
} zs_window_job;

typedef struct {
    zs_window_job *job;
    char *memory, *gathered, *scattered, *again;
    const char **rows, **windows;
} zs_window_worker;

/* The rows of the window of outer output `index`, in row-major order, from column `column` on. */
static int64_t zs_find_rows(const zs_window_job *job, int64_t index, int64_t column, const char **rows, char **out) {
    int64_t extent[ZS_MAX_OUTER], row_count = 1;
    const char *base = job->cells.source + column * job->x.source_stride;
    for (int d = job->cells.outer_count - 1; d >= 0; d--) {
        const zs_axis *axis = &job->cells.outer[d];
        const int64_t at = index % axis->size;
        index /= axis->size;
        *out += at * axis->stride;
        base += zs_first_cell(axis, at) * axis->source_stride;
        extent[d] = zs_cell_count(axis, at);
    }
    rows[0] = base;
    for (int d = 0; d < job->cells.outer_count; d++) {
        /* in place, from the back: every row so far becomes extent[d] rows */
        for (int64_t r = row_count - 1; r >= 0; r--) {
            const char *row = rows[r];
            for (int64_t k = extent[d] - 1; k >= 0; k--)
                rows[r * extent[d] + k] = row + k * job->cells.outer[d].source_stride;
        }
        row_count *= extent[d];
    }
    return row_count;
}

static void zs_make(const zs_window_worker *worker, zs_block *block, void *out) {
    const zs_window_job *job = worker->job;
    const int64_t outputs = block->count * block->lanes;
    job->kernel(block, out);
    if (!job->cells.stray_nan || !zs_find_nan(job->cells.item_size, out, outputs)) return;
    block->skip = ZS_SKIP_NAN;
    job->kernel(block, worker->again);
    block->skip = ZS_PLAIN;
    zs_replace_nan(job->cells.item_size, out, worker->again, outputs);
}

/* Windows along x that overlap or differ in length: those of one length at a time, side by side in a copy. */
static void zs_run_uneven(zs_window_worker *worker, zs_block *block, int64_t begin, int64_t count, char *out) {
    zs_window_job *job = worker->job;
    const int64_t lanes = job->cells.lane.size, cell = lanes * job->cells.item_size;
    const int64_t room = job->x_block * job->x.factor * cell;
    int64_t most = 1;
    for (int64_t i = begin; i < begin + count; i++)
        if (job->x.count[i] > most) most = job->x.count[i];
    for (int64_t r = 0; r < block->row_count; r++) {
        worker->windows[r] = worker->rows[r];
        worker->rows[r] = worker->gathered + r * room;
    }
    for (int64_t length = 1; length <= most; length++) {
        block->count = 0;
        block->factor = length;
        for (int64_t i = begin; i < begin + count; i++) {
            if (job->x.count[i] != length) continue;
            for (int64_t r = 0; r < block->row_count; r++)
                zs_gather(&job->cells, worker->windows[r] + job->x.first[i] * job->x.source_stride,
                          job->x.source_stride, length, lanes,
                          worker->gathered + r * room + block->count * length * cell);
            block->count++;
        }
        if (!block->count) continue;
        zs_make(worker, block, worker->scattered);
        for (int64_t i = begin, done = 0; i < begin + count; i++)
            if (job->x.count[i] == length)
                zs_scatter(&job->cells, worker->scattered + done++ * cell, 1, lanes, out + (i - begin) * job->x.stride,
                           job->x.stride);
    }
}

static void zs_run_task(zs_window_worker *worker, int64_t task) {
    zs_window_job *job = worker->job;
    const int rowwise = job->direct_source;
    const int64_t index = rowwise ? task / job->x_blocks : task % job->outer_total;
    const int64_t first = (rowwise ? task % job->x_blocks : task / job->outer_total) * job->x_block;
    const int64_t count = zs_least(job->x_block, job->x.size - first), factor = job->x.factor;
    const int64_t cells = zs_least(count * factor, job->x.source_size - first * factor);
    const int64_t full = cells / factor, rest = cells - full * factor, lanes = job->cells.lane.size;
    int out_of_memory = 0;
    char *out = job->cells.out + first * job->x.stride;
    zs_block block = job->block;
    block.row_count = zs_find_rows(job, index, job->x.first ? 0 : first * factor, worker->rows, &out);
    block.rows = worker->rows;
    block.lanes = lanes;
    block.scratch = worker->memory;
    block.out_of_memory = &out_of_memory;
    if (job->x.first) {
        zs_run_uneven(worker, &block, first, count, out);
        if (out_of_memory) __atomic_store_n(&job->status, ZS_NO_MEMORY, __ATOMIC_SEQ_CST);
        return;
    }
    if (!job->direct_source)
        for (int64_t r = 0; r < block.row_count; r++) {
            char *row = worker->gathered + r * job->x_block * factor * lanes * job->cells.item_size;
            zs_gather(&job->cells, worker->rows[r], job->x.source_stride, cells, lanes, row);
            worker->rows[r] = row;
        }
    char *results = job->direct_out ? out : worker->scattered;
    if (full) {
        block.factor = factor;
        block.count = full;
        zs_make(worker, &block, results);
    }
    if (rest) {
        for (int64_t r = 0; r < block.row_count; r++) worker->rows[r] += full * factor * lanes * job->cells.item_size;
        block.factor = rest;
        block.count = 1;
        zs_make(worker, &block, results + full * lanes * job->cells.item_size);
    }
    if (!job->direct_out) zs_scatter(&job->cells, results, count, lanes, out, job->x.stride);
    if (out_of_memory) __atomic_store_n(&job->status, ZS_NO_MEMORY, __ATOMIC_SEQ_CST);
}

static int zs_prepare(zs_window_job *job, zs_window_worker *worker) {
    const size_t scratch = (size_t)ZS_SCRATCH * (ZS_BLOCK + 16);
    const size_t row = (size_t)(job->x_block * job->x.factor * job->cells.lane.size * job->cells.item_size);
    const size_t gathered = job->direct_source ? 0 : ((size_t)job->window_rows * row + 63) & ~(size_t)63;
    const size_t results = ((size_t)(job->x_block * job->cells.lane.size * job->cells.item_size) + 63) & ~(size_t)63;
    const size_t scattered = job->direct_out ? 0 : results, again = job->cells.stray_nan ? results : 0;
    worker->job = job;
    worker->rows = (const char **)malloc(2 * (size_t)job->window_rows * sizeof *worker->rows);
    if (posix_memalign((void **)&worker->memory, 64, scratch + gathered + scattered + again)) worker->memory = NULL;
    if (!worker->rows || !worker->memory) return ZS_NO_MEMORY;
    worker->windows = worker->rows + job->window_rows;
    worker->gathered = worker->memory + scratch;
    worker->scattered = worker->gathered + gathered;
    worker->again = worker->scattered + scattered;
    return ZS_OK;
}

/* Whether kernels can work on the memory itself: rows contiguous, every cell aligned, nothing to convert. */
static void zs_look_at_memory(zs_window_job *job) {
    const int64_t size = job->cells.item_size, lanes = job->cells.lane.size;
    const uint64_t unaligned = (uint64_t)(zs_least(size & -size, 8) - 1);
    uint64_t source = (uint64_t)(uintptr_t)job->cells.source, out = (uint64_t)(uintptr_t)job->cells.out;
    for (int d = 0; d < job->cells.outer_count; d++) {
        source |= (uint64_t)job->cells.outer[d].source_stride;
        out |= (uint64_t)job->cells.outer[d].stride;
    }
    job->direct_source = !job->cells.is_half && !job->cells.source_swapped && !(source & unaligned) &&
                         job->x.source_stride == lanes * size && (lanes == 1 || job->cells.lane.source_stride == size);
    job->direct_out = !job->cells.is_half && !job->cells.out_swapped && !(out & unaligned) &&
                      job->x.stride == lanes * size && (lanes == 1 || job->cells.lane.stride == size);
    if (job->x.first) job->direct_source = job->direct_out = 0;
}

/* In templates.cc. */
int zs_run_windows(zs_window_job *job, int threads);

#endif

/* run.h - one resampling call: which kernel, over which windows, on how many threads.
 *
 * The source is seen as any number of outer dimensions (in row-major order of the window), one dimension x along
 * which the kernels run, and innermost lanes that are not resampled. Rows that are not contiguous, aligned and in
 * native byte order are copied block by block, so that no kernel ever sees anything else.
 */
#ifndef ZSTORE_RESAMPLE_RUN_H
#define ZSTORE_RESAMPLE_RUN_H

#include "pool.h"
#include "average.h"
#include "block.h"
#include "gather.h"
#include "stray_nan.h"
#include "mode.h"
#include "nearest.h"
#include "rank.h"
#include "total.h"

enum { ZR_MAX_OUTER = 64, ZR_MAX_THREADS = 64 };
enum { ZR_U8, ZR_I8, ZR_U16, ZR_I16, ZR_U32, ZR_I32, ZR_U64, ZR_I64, ZR_F32, ZR_F64, ZR_TYPE_COUNT };
enum {
    ZR_NEAREST_METHOD,
    ZR_AVERAGE_METHOD,
    ZR_MODE_METHOD,
    ZR_SUM_METHOD,
    ZR_RMS_METHOD,
    ZR_MAX_METHOD,
    ZR_MIN_METHOD,
    ZR_QUANTILE_METHOD,
    ZR_METHOD_COUNT
};
enum { ZR_OK = 0, ZR_NO_MEMORY = -1 };

static const zr_kernel zr_kernels[ZR_METHOD_COUNT][ZR_TYPE_COUNT] = {
    [ZR_AVERAGE_METHOD] = {zr_average_u8, zr_average_i8, zr_average_u16, zr_average_i16, zr_average_u32,
                           zr_average_i32, zr_average_u64, zr_average_i64, zr_average_f32, zr_average_f64},
    [ZR_MODE_METHOD] = {zr_mode_1, zr_mode_1, zr_mode_2, zr_mode_2, zr_mode_4, zr_mode_4, zr_mode_8, zr_mode_8,
                        zr_mode_f32, zr_mode_f64},
    [ZR_SUM_METHOD] = {zr_sum_u8, zr_sum_i8, zr_sum_u16, zr_sum_i16, zr_sum_u32, zr_sum_i32, zr_sum_u64,
        zr_sum_i64, zr_sum_f32, zr_sum_f64},
    [ZR_RMS_METHOD] = {zr_rms_u8, zr_rms_i8, zr_rms_u16, zr_rms_i16, zr_rms_u32, zr_rms_i32, zr_rms_u64,
        zr_rms_i64, zr_rms_f32, zr_rms_f64},
    [ZR_MAX_METHOD] = {zr_max_u8, zr_max_i8, zr_max_u16, zr_max_i16, zr_max_u32, zr_max_i32, zr_max_u64,
        zr_max_i64, zr_max_f32, zr_max_f64},
    [ZR_MIN_METHOD] = {zr_min_u8, zr_min_i8, zr_min_u16, zr_min_i16, zr_min_u32, zr_min_i32, zr_min_u64,
        zr_min_i64, zr_min_f32, zr_min_f64},
    [ZR_QUANTILE_METHOD] = {zr_quantile_u8, zr_quantile_i8, zr_quantile_u16, zr_quantile_i16, zr_quantile_u32, zr_quantile_i32, zr_quantile_u64,
        zr_quantile_i64, zr_quantile_f32, zr_quantile_f64},
};

static int64_t zr_cell_size(int cell_type)
{
    static const uint8_t sizes[ZR_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8};
    return cell_type < 0 || cell_type >= ZR_TYPE_COUNT ? 0 : sizes[cell_type];
}

static zr_kernel zr_find_kernel(int method, int cell_type)
{
    if (method == ZR_NEAREST_METHOD) return zr_nearest; /* takes cells of any type */
    if (method < 0 || method >= ZR_METHOD_COUNT || cell_type < 0 || cell_type >= ZR_TYPE_COUNT) return NULL;
    return zr_kernels[method][cell_type];
}

typedef struct {
    int64_t source_size; /* cells of the source along this dimension */
    int64_t size;        /* cells of the output */
    int64_t factor;
    int64_t source_stride; /* bytes */
    int64_t stride;
    const int64_t *first, *count; /* windows that are not `factor` cells side by side; factor is the most cells then */
} zr_axis;

static int64_t zr_first_cell(const zr_axis *axis, int64_t output)
{
    return axis->first ? axis->first[output] : output * axis->factor;
}

static int64_t zr_cell_count(const zr_axis *axis, int64_t output)
{
    const int64_t rest = axis->source_size - output * axis->factor;
    return axis->first ? axis->count[output] : rest < axis->factor ? rest : axis->factor;
}

typedef struct {
    const char *source;
    char *out;
    int outer_count;
    zr_axis outer[ZR_MAX_OUTER];
    zr_axis x;
    zr_axis lane; /* factor 1 */
    int64_t stored_size; /* bytes of a cell in memory; a float16 is computed as a float32 */
    int64_t item_size;
    int source_swapped, out_swapped, is_half;
    int stray_nan; /* there is no nodata, and cells are floats: see stray_nan.h */
    zr_kernel kernel;
    zr_block block; /* skip, nodata, substitute, item_size filled in */
    /* made by zr_run */
    int direct_source, direct_out;
    int64_t task_count, outer_total, x_block, x_blocks, window_rows;
    _Atomic int64_t next;
    _Atomic int status;
} zr_job;

typedef struct {
    zr_job *job;
    char *memory, *gathered, *scattered, *again;
    const char **rows, **windows;
} zr_worker;

typedef struct {
    zs_job pooled;
    zr_worker workers[ZR_MAX_THREADS];
    _Atomic int joined;
} zr_crew;

static void zr_gather(const zr_job *job, const char *from, int64_t count, char *to)
{
    zr_gather_cells(from, job->x.source_stride, job->lane.source_stride, count, job->lane.size, job->stored_size,
                    job->source_swapped, job->is_half, to);
}

static void zr_scatter(const zr_job *job, const char *from, int64_t count, char *to)
{
    zr_scatter_cells(from, to, job->x.stride, job->lane.stride, count, job->lane.size, job->stored_size,
                     job->out_swapped, job->is_half);
}

static int64_t zr_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The rows of the window of outer output `index`, in row-major order, from column `column` on. */
static int64_t zr_find_rows(const zr_job *job, int64_t index, int64_t column, const char **rows, char **out)
{
    int64_t extent[ZR_MAX_OUTER], row_count = 1;
    const char *base = job->source + column * job->x.source_stride;
    for (int d = job->outer_count - 1; d >= 0; d--) {
        const zr_axis *axis = &job->outer[d];
        const int64_t at = index % axis->size;
        index /= axis->size;
        *out += at * axis->stride;
        base += zr_first_cell(axis, at) * axis->source_stride;
        extent[d] = zr_cell_count(axis, at);
    }
    rows[0] = base;
    for (int d = 0; d < job->outer_count; d++) {
        /* in place, from the back: every row so far becomes extent[d] rows */
        for (int64_t r = row_count - 1; r >= 0; r--) {
            const char *row = rows[r];
            for (int64_t k = extent[d] - 1; k >= 0; k--) rows[r * extent[d] + k] = row + k * job->outer[d].source_stride;
        }
        row_count *= extent[d];
    }
    return row_count;
}

static void zr_make(const zr_worker *worker, zr_block *block, void *out)
{
    const zr_job *job = worker->job;
    const int64_t outputs = block->count * block->lanes;
    job->kernel(block, out);
    if (!job->stray_nan || !zr_find_nan(job->item_size, out, outputs)) return;
    block->skip = ZR_SKIP_NAN;
    job->kernel(block, worker->again);
    block->skip = ZR_PLAIN;
    zr_replace_nan(job->item_size, out, worker->again, outputs);
}

/* Windows along x that overlap or differ in length: those of one length at a time, side by side in a copy. */
static void zr_run_uneven(zr_worker *worker, zr_block *block, int64_t begin, int64_t count, char *out)
{
    zr_job *job = worker->job;
    const int64_t lanes = job->lane.size, cell = lanes * job->item_size;
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
                zr_gather(job, worker->windows[r] + job->x.first[i] * job->x.source_stride, length,
                          worker->gathered + r * room + block->count * length * cell);
            block->count++;
        }
        if (!block->count) continue;
        zr_make(worker, block, worker->scattered);
        for (int64_t i = begin, done = 0; i < begin + count; i++)
            if (job->x.count[i] == length)
                zr_scatter(job, worker->scattered + done++ * cell, 1, out + (i - begin) * job->x.stride);
    }
}

static void zr_run_task(zr_worker *worker, int64_t task)
{
    zr_job *job = worker->job;
    const int rowwise = job->direct_source;
    const int64_t index = rowwise ? task / job->x_blocks : task % job->outer_total;
    const int64_t first = (rowwise ? task % job->x_blocks : task / job->outer_total) * job->x_block;
    const int64_t count = zr_least(job->x_block, job->x.size - first), factor = job->x.factor;
    const int64_t cells = zr_least(count * factor, job->x.source_size - first * factor);
    const int64_t full = cells / factor, rest = cells - full * factor, lanes = job->lane.size;
    int out_of_memory = 0;
    char *out = job->out + first * job->x.stride;
    zr_block block = job->block;
    block.row_count = zr_find_rows(job, index, job->x.first ? 0 : first * factor, worker->rows, &out);
    block.rows = worker->rows;
    block.lanes = lanes;
    block.scratch = worker->memory;
    block.out_of_memory = &out_of_memory;
    if (job->x.first) {
        zr_run_uneven(worker, &block, first, count, out);
        if (out_of_memory) atomic_store(&job->status, ZR_NO_MEMORY);
        return;
    }
    if (!job->direct_source)
        for (int64_t r = 0; r < block.row_count; r++) {
            char *row = worker->gathered + r * job->x_block * factor * lanes * job->item_size;
            zr_gather(job, worker->rows[r], cells, row);
            worker->rows[r] = row;
        }
    char *results = job->direct_out ? out : worker->scattered;
    if (full) {
        block.factor = factor;
        block.count = full;
        zr_make(worker, &block, results);
    }
    if (rest) {
        for (int64_t r = 0; r < block.row_count; r++) worker->rows[r] += full * factor * lanes * job->item_size;
        block.factor = rest;
        block.count = 1;
        zr_make(worker, &block, results + full * lanes * job->item_size);
    }
    if (!job->direct_out) zr_scatter(job, results, count, out);
    if (out_of_memory) atomic_store(&job->status, ZR_NO_MEMORY);
}

static void zr_work(zs_job *pooled, int is_caller)
{
    zr_crew *crew = (zr_crew *)pooled;
    zr_worker *worker = &crew->workers[atomic_fetch_add(&crew->joined, 1)];
    zr_job *job = worker->job;
    (void)is_caller;
    const int64_t step = 1 + job->task_count / 256;
    for (;;) {
        const int64_t begin = atomic_fetch_add(&job->next, step);
        if (begin >= job->task_count || atomic_load(&job->status) != ZR_OK) return;
        for (int64_t task = begin; task < zr_least(begin + step, job->task_count); task++) zr_run_task(worker, task);
    }
}

static int zr_prepare_worker(zr_job *job, zr_worker *worker)
{
    const size_t scratch = (size_t)ZR_SCRATCH * (ZR_BLOCK + 16);
    const size_t row = (size_t)(job->x_block * job->x.factor * job->lane.size * job->item_size);
    const size_t gathered = job->direct_source ? 0 : ((size_t)job->window_rows * row + 63) & ~(size_t)63;
    const size_t results = ((size_t)(job->x_block * job->lane.size * job->item_size) + 63) & ~(size_t)63;
    const size_t scattered = job->direct_out ? 0 : results, again = job->stray_nan ? results : 0;
    worker->job = job;
    worker->rows = malloc(2 * (size_t)job->window_rows * sizeof *worker->rows);
    if (posix_memalign((void **)&worker->memory, 64, scratch + gathered + scattered + again)) worker->memory = NULL;
    if (!worker->rows || !worker->memory) return ZR_NO_MEMORY;
    worker->windows = worker->rows + job->window_rows;
    worker->gathered = worker->memory + scratch;
    worker->scattered = worker->gathered + gathered;
    worker->again = worker->scattered + scattered;
    return ZR_OK;
}

/* Whether kernels can work on the memory itself: rows contiguous, every cell aligned, nothing to convert. */
static void zr_look_at_memory(zr_job *job)
{
    const int64_t size = job->item_size, lanes = job->lane.size;
    const uint64_t unaligned = (uint64_t)(zr_least(size & -size, 8) - 1);
    uint64_t source = (uint64_t)(uintptr_t)job->source, out = (uint64_t)(uintptr_t)job->out;
    for (int d = 0; d < job->outer_count; d++) {
        source |= (uint64_t)job->outer[d].source_stride;
        out |= (uint64_t)job->outer[d].stride;
    }
    job->direct_source = !job->is_half && !job->source_swapped && !(source & unaligned) &&
                         job->x.source_stride == lanes * size && (lanes == 1 || job->lane.source_stride == size);
    job->direct_out = !job->is_half && !job->out_swapped && !(out & unaligned) && job->x.stride == lanes * size &&
                      (lanes == 1 || job->lane.stride == size);
    if (job->x.first) job->direct_source = job->direct_out = 0;
}

static int zr_run(zr_job *job, int threads)
{
    zr_crew crew = {.pooled = {.work = zr_work}};
    int prepared = 0;
    zr_look_at_memory(job);
    job->outer_total = job->window_rows = 1;
    for (int d = 0; d < job->outer_count; d++) {
        job->outer_total *= job->outer[d].size;
        job->window_rows *= zr_least(job->outer[d].factor, job->outer[d].source_size);
    }
    const int64_t window = zr_least(job->x.factor, job->x.source_size) * job->lane.size;
    const int64_t room = job->direct_source ? ZR_BLOCK : ZR_BLOCK / zr_least(job->window_rows, 8);
    job->x_block = zr_least(room > window ? room / window : 1, job->x.size);
    job->x_blocks = (job->x.size + job->x_block - 1) / job->x_block;
    job->task_count = job->outer_total * job->x_blocks;
    atomic_init(&job->next, 0);
    atomic_init(&job->status, ZR_OK);
    threads = (int)zr_least(zr_least(threads, ZR_MAX_THREADS), job->task_count);
    while (prepared < threads && zr_prepare_worker(job, &crew.workers[prepared]) == ZR_OK) prepared++;
    if (prepared == 0)
        atomic_store(&job->status, ZR_NO_MEMORY);
    else
        zs_pool_run(&crew.pooled, prepared);
    for (int t = 0; t < threads; t++) {
        free(crew.workers[t].rows);
        free(crew.workers[t].memory);
    }
    return atomic_load(&job->status);
}

#endif

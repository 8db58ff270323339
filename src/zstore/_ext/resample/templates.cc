/* templates.cc - the templates of down-sampling for every type of cells. Nothing here knows of Python: what takes
 * longest is compiled once for all its versions.
 */
#include "weighted.h"

/* In the order of the methods, from average on. */
static const zs_kernel zs_kernels[][ZS_TYPE_COUNT] = {
    ZS_FOR_TYPES(zs_average), ZS_FOR_TYPES(zs_mode), ZS_FOR_TYPES(zs_sum),      ZS_FOR_TYPES(zs_rms),
    ZS_FOR_TYPES(zs_max),     ZS_FOR_TYPES(zs_min),  ZS_FOR_TYPES(zs_quantile),
};

zs_kernel zs_find_kernel(int method, int cell_type) {
    if (method == ZS_NEAREST_METHOD) return zs_nearest; /* takes cells of any type */
    if (method < 0 || method >= ZS_METHOD_COUNT || cell_type < 0 || cell_type >= ZS_TYPE_COUNT) return NULL;
    return zs_kernels[method - ZS_AVERAGE_METHOD][cell_type];
}

int zs_run_windows(zs_window_job *job, int threads) {
    zs_look_at_memory(job);
    job->outer_total = job->window_rows = 1;
    for (int d = 0; d < job->cells.outer_count; d++) {
        job->outer_total *= job->cells.outer[d].size;
        job->window_rows *= zs_least(job->cells.outer[d].factor, job->cells.outer[d].source_size);
    }
    const int64_t window = zs_least(job->x.factor, job->x.source_size) * job->cells.lane.size;
    const int64_t room = job->direct_source ? ZS_BLOCK : ZS_BLOCK / zs_least(job->window_rows, 8);
    job->x_block = zs_least(room > window ? room / window : 1, job->x.size);
    job->x_blocks = (job->x.size + job->x_block - 1) / job->x_block;
    job->task_count = job->outer_total * job->x_blocks;
    job->block.skip = job->cells.skip;
    job->block.nodata = job->cells.nodata;
    job->block.substitute = job->cells.substitute;
    job->block.quarters = job->quarters;
    job->block.item_size = job->cells.item_size;
    return zs_run_crew<zs_window_worker>(job, threads);
}

int zs_run_weighted(zs_weighted_job *job, int threads) {
    zs_choose_tiles(job);
    return zs_run_crew<zs_weigher>(job, threads);
}

const zs_load_cells zs_loads[ZS_TYPE_COUNT] = ZS_FOR_TYPES(zs_load);
const zs_store_cells zs_stores[ZS_TYPE_COUNT] = ZS_FOR_TYPES(zs_store);

# What blocks.pyx sees of the C headers.

from libc.stdint cimport int64_t, uint64_t


cdef extern from "weighted.h" nogil:
    enum:
        ZS_MAX_OUTER
        ZS_MAX_WEIGHTED
        ZS_FILTERED
        ZS_MEAN
        ZS_ROOT_MEAN
        ZS_SUM
        ZS_NEAREST_METHOD
        ZS_AVERAGE_METHOD
        ZS_MODE_METHOD
        ZS_SUM_METHOD
        ZS_RMS_METHOD
        ZS_MAX_METHOD
        ZS_MIN_METHOD
        ZS_QUANTILE_METHOD
        ZS_PLAIN
        ZS_F32
        ZS_F64
        ZS_OK
    ctypedef void (*zs_kernel)(const void *block, void *out)
    ctypedef struct zs_block:
        int skip
        int quarters
        uint64_t nodata
        uint64_t substitute
        int64_t item_size
    ctypedef struct zs_axis:
        int64_t source_size
        int64_t size
        int64_t factor
        int64_t source_stride
        int64_t stride
        const int64_t *first
        const int64_t *count
    ctypedef struct zs_window_job:
        const char *source
        char *out
        int outer_count
        zs_axis *outer
        zs_axis x
        zs_axis lane
        int64_t stored_size
        int64_t item_size
        int source_swapped
        int out_swapped
        int is_half
        int stray_nan
        zs_kernel kernel
        zs_block block
    zs_kernel zs_find_kernel(int method, int cell_type)
    int64_t zs_cell_size(int cell_type)
    int zs_run_windows(zs_window_job *job, int threads)
    ctypedef struct zs_conversion:
        int purpose
        int through_float
        int nearest_square
        int skip
        uint64_t nodata
        uint64_t substitute
    ctypedef struct zs_weighted_axis:
        int64_t source_size
        int64_t size
        int64_t source_stride
        int64_t stride
        const int64_t *first
        const int64_t *count
        const int64_t *reach
        const double *weights
        const double *total
        int64_t taps
        int64_t alike_begin
        int64_t alike_end
        int64_t step
    ctypedef int64_t (*zs_load_cells)(const zs_conversion *how, const void *cells, int64_t count, double *values,
                                      double *valid)
    ctypedef void (*zs_store_cells)(const zs_conversion *how, double *values, const double *weights, int64_t count,
                                    void *cells)
    ctypedef struct zs_weighted_job:
        const char *source
        char *out
        int axis_count
        int outer_count
        int needs_runs
        int is_half
        int source_swapped
        int out_swapped
        int stray_nan
        zs_weighted_axis *axes
        zs_axis *outer
        zs_axis lane
        int64_t stored_size
        int64_t item_size
        zs_conversion how
        zs_load_cells load
        zs_store_cells store
    zs_load_cells *zs_loads
    zs_store_cells *zs_stores
    int zs_run_weighted(zs_weighted_job *job, int threads)

# What blocks.pyx sees of the C headers.

from libc.stdint cimport int64_t, uint64_t


cdef extern from "weighted.h" nogil:
    enum:
        ZR_MAX_OUTER
        ZR_MAX_WEIGHTED
        ZR_FILTERED
        ZR_MEAN
        ZR_ROOT_MEAN
        ZR_SUM
        ZR_NEAREST_METHOD
        ZR_AVERAGE_METHOD
        ZR_MODE_METHOD
        ZR_SUM_METHOD
        ZR_RMS_METHOD
        ZR_MAX_METHOD
        ZR_MIN_METHOD
        ZR_QUANTILE_METHOD
        ZR_PLAIN
        ZR_F32
        ZR_F64
        ZR_OK
    ctypedef void (*zr_kernel)(const void *block, void *out)
    ctypedef union zr_value:
        uint64_t bits
    ctypedef struct zr_block:
        int skip
        int quarters
        zr_value nodata
        zr_value substitute
        int64_t item_size
    ctypedef struct zr_axis:
        int64_t source_size
        int64_t size
        int64_t factor
        int64_t source_stride
        int64_t stride
        const int64_t *first
        const int64_t *count
    ctypedef struct zr_job:
        const char *source
        char *out
        int outer_count
        zr_axis *outer
        zr_axis x
        zr_axis lane
        int64_t stored_size
        int64_t item_size
        int source_swapped
        int out_swapped
        int is_half
        int stray_nan
        zr_kernel kernel
        zr_block block
    zr_kernel zr_find_kernel(int method, int cell_type)
    int64_t zr_cell_size(int cell_type)
    int zr_run(zr_job *job, int threads)
    ctypedef struct zr_conversion:
        int purpose
        int through_float
        int nearest_square
        int skip
        zr_value nodata
        zr_value substitute
    ctypedef struct zr_weighted_axis:
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
    ctypedef int64_t (*zr_load_cells)(const zr_conversion *how, const void *cells, int64_t count, double *values,
                                      double *valid)
    ctypedef void (*zr_store_cells)(const zr_conversion *how, double *values, const double *weights, int64_t count,
                                    void *cells)
    ctypedef struct zr_weighted_job:
        const char *source
        char *out
        int axis_count
        int outer_count
        int needs_runs
        int is_half
        int source_swapped
        int out_swapped
        int stray_nan
        zr_weighted_axis *axes
        zr_axis *outer
        zr_axis lane
        int64_t stored_size
        int64_t item_size
        zr_conversion how
        zr_load_cells load
        zr_store_cells store
    zr_load_cells *zr_loads
    zr_store_cells *zr_stores
    int zr_run_weighted(zr_weighted_job *job, int threads)

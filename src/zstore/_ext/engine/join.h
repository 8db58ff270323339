/* join.h - reads selections of several arrays in one batch. */
#ifndef ZS_JOIN_H
#define ZS_JOIN_H

#include "read.h"

typedef struct {
    zs_batch batch;       /* its tasks are those of all parts, one behind the other */
    int64_t n;            /* parts */
    const zs_batch *part; /* of each array: a batch of its own, of which nothing is taken but by these tasks */
    const int64_t *start; /* [n + 1] the first task of each */
} zs_join;

/* Whether plans for one layout are plans for the other: chunks are cut alike, and their items lie alike. */
static inline int zs_is_alike(const zs_layout *a, const zs_layout *b) {
    if (a->ndim != b->ndim || a->item != b->item || !a->n_levels != !b->n_levels) return 0;
    for (int d = 0; d < a->ndim; d++)
        if (a->shape[d] != b->shape[d] || a->chunk[d] != b->chunk[d] || a->per_outer[d] != b->per_outer[d] ||
            a->stride[d] != b->stride[d])
            return 0;
    return 1;
}

/* Run one task: of the part that it belongs to. */
static int zs_join_task(zs_batch *batch, int64_t task, zs_thread *thread, zs_fault *fault) {
    const zs_join *join = (const zs_join *)batch;
    const int64_t *start = join->start;
    int64_t part = thread->part;
    if (task < start[part] || task >= start[part + 1]) {
        zs_close_files(&thread->open);
        part = thread->part = zs_find_stretch(start, join->n, task);
    }
    fault->part = part;
    return zs_read_task((zs_batch *)&join->part[part], task - start[part], thread, fault);
}

/* Run all tasks; join->batch.fault has the first fault, and the number of its part. */
static void zs_join_run(zs_join *join, int threads) {
    join->batch.run = zs_join_task;
    zs_batch_run(&join->batch, threads);
}

#endif

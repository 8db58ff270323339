/* many.h - reads several selections of one array in one batch: a chunk that several of them touch is located, fetched
 * and decoded once, and scattered to all of them. */
#ifndef ZS_MANY_H
#define ZS_MANY_H

#include "read.h"

/* A task of a plan that needs a chunk. */
typedef struct {
    int64_t plan, task;
} zs_visit;

/* The visits, grouped by chunk. */
typedef struct {
    zs_visit *visit;
    zs_groups groups;
} zs_bundle;

typedef struct {
    zs_batch batch; /* its tasks are the bundle's chunks */
    const zs_bundle *bundle;
    const zs_batch *part; /* for each plan, a batch with the plan, the caller's memory and its strides */
} zs_many;

static inline void zs_bundle_free(zs_bundle *bundle) {
    free(bundle->visit);
    zs_groups_free(&bundle->groups);
    memset(bundle, 0, sizeof *bundle);
}

/* The range of outer chunks of all tasks along every dimension, low[d] … low[d] + wide[d]. Returns the number of inner
 * chunks in these ranges, -1 if that is too large to number them. */
static inline int64_t zs_bundle_limits(const zs_layout *layout, const zs_batch *part, int64_t n, int64_t *low,
                                       int64_t *wide) {
    int64_t limit = 1;
    for (int d = 0; d < layout->ndim; d++) {
        int64_t least = INT64_MAX, most = 0;
        for (int64_t p = 0; p < n; p++) {
            int64_t tasks = part[p].n_tasks;
            if (part[p].points) {
                for (int64_t g = 0; g < tasks; g++) {
                    int64_t cell = part[p].points->groups.cell[g * layout->ndim + d];
                    if (cell < least) least = cell;
                    if (cell > most) most = cell;
                }
            } else if (tasks) {
                const zs_axis *axis = &part[p].plan->axis[d]; /* its cells ascend */
                if (axis->cell[0] < least) least = axis->cell[0];
                if (axis->cell[axis->n - 1] > most) most = axis->cell[axis->n - 1];
            }
        }
        low[d] = least == INT64_MAX ? 0 : least / layout->per_outer[d];
        wide[d] = most / layout->per_outer[d] - low[d] + 1;
        if (__builtin_mul_overflow(limit, wide[d], &limit) ||
            __builtin_mul_overflow(limit, layout->per_outer[d], &limit))
            return -1;
    }
    return limit > (int64_t)1 << 61 ? -1 : limit;
}

/* Group the visits of `n` parts by chunk. -1: out of memory; -2: they span more chunks than can be numbered. */
static inline int zs_bundle_make(const zs_layout *layout, const zs_batch *part, int64_t n, zs_bundle *bundle) {
    int64_t low[ZS_MAX_NDIM], wide[ZS_MAX_NDIM], visits = 0, slots = 1, v = 0;
    int64_t limit = zs_bundle_limits(layout, part, n, low, wide);
    if (limit < 0) return -2;
    for (int64_t p = 0; p < n; p++) visits += part[p].n_tasks;
    for (int d = 0; d < layout->ndim; d++) slots *= layout->per_outer[d];
    int64_t *key = malloc(sizeof(int64_t) * (size_t)(2 * visits + 1)),
            *order = malloc(sizeof(int64_t) * (size_t)(visits + 1));
    zs_visit *visit = malloc(sizeof *visit * (size_t)(visits + 1));
    bundle->visit = malloc(sizeof *visit * (size_t)(visits + 1));
    int code = key && order && visit && bundle->visit ? 0 : -1;
    for (int64_t p = 0; !code && p < n; p++) {
        for (int64_t task = 0; task < part[p].n_tasks; task++) {
            int64_t outer = 0, slot = 0;
            zs_spot spot;
            zs_fault where;
            zs_task_spot(&part[p], task, -1, &spot, &where);
            for (int d = 0; d < layout->ndim; d++) {
                outer = outer * wide[d] + (spot.cell[d] - low[d]);
                slot = slot * layout->per_outer[d] + spot.within[d];
            }
            visit[v] = (zs_visit){p, task};
            key[v++] = outer * slots + slot;
        }
    }
    if (!code) code = zs_sort_order(key, visits, limit, order);
    int64_t *sorted = key + visits;
    for (int64_t m = 0; !code && m < visits; m++) {
        bundle->visit[m] = visit[order[m]];
        sorted[m] = key[order[m]];
    }
    if (!code) code = zs_groups_make(layout, sorted, visits, slots, low, wide, &bundle->groups);
    free(key);
    free(order);
    free(visit);
    if (code) zs_bundle_free(bundle);
    return code;
}

static inline void zs_visit_box(const zs_batch *part, int64_t task, zs_move *box) {
    int64_t segment[ZS_MAX_NDIM], cell[ZS_MAX_NDIM];
    zs_plan_task(part->plan, task, segment, cell);
    zs_move_make(part->layout, part->plan, segment, part->memory, part->stride, box);
}

/* Whether visits need more than `limit` bytes of their chunk in total; points need the whole chunk. */
static inline int zs_need_more(const zs_many *many, int64_t first, int64_t last, int64_t limit) {
    int64_t needed = 0, from;
    zs_move box;
    for (int64_t m = first; m < last && needed <= limit; m++) {
        const zs_visit *visit = &many->bundle->visit[m];
        if (many->part[visit->plan].points) return 1;
        zs_visit_box(&many->part[visit->plan], visit->task, &box);
        needed += zs_span(many->batch.layout, &box, &from);
    }
    return needed > limit;
}

/* Decode only the ranges of a chunk that the visits need, if they are much less than all of it; returns whether it did.
 */
static int zs_visit_ranges(const zs_batch *batch, int64_t first, int64_t last, const char *raw, int64_t size,
                           char *into) {
    const zs_many *many = (const zs_many *)batch;
    const zs_layout *layout = batch->layout;
    zs_move box;
    if (layout->n_steps != 1 || !ZSTORE_CODEC_HAS(layout->step[0], decode_range)) return 0;
    if (zs_need_more(many, first, last, layout->chunk_size - layout->chunk_size / 4)) return 0;
    for (int64_t m = first; m < last; m++) {
        const zs_visit *visit = &many->bundle->visit[m];
        zs_visit_box(&many->part[visit->plan], visit->task, &box);
        if (!zs_read_range(layout, raw, size, &box, into)) return 0;
        zs_to_outside(layout, &box, into);
    }
    return 1;
}

/* Scatter a decoded chunk to all visits. */
static void zs_visit_all(const zs_batch *batch, int64_t first, int64_t last, const char *chunk) {
    const zs_many *many = (const zs_many *)batch;
    zs_move box;
    for (int64_t m = first; m < last; m++) {
        const zs_visit *visit = &many->bundle->visit[m];
        const zs_batch *part = &many->part[visit->plan];
        if (part->points) {
            const int64_t *start = part->points->groups.start + visit->task;
            zs_points_out(part, start[0], start[1], chunk);
            continue;
        }
        zs_visit_box(part, visit->task, &box);
        zs_to_outside(part->layout, &box, chunk);
    }
}

/* One task: reads an inner chunk for all visits. */
static int zs_many_task(zs_batch *batch, int64_t c, zs_thread *thread, zs_fault *fault) {
    const zs_many *many = (const zs_many *)batch;
    const zs_bundle *bundle = many->bundle;
    int64_t first = bundle->groups.start[c], last = bundle->groups.start[c + 1];
    zs_spot spot;
    zs_source given;
    const zs_source *source;
    zs_entry where;
    zs_task_spot(&many->part[bundle->visit[first].plan], bundle->visit[first].task, -1, &spot, fault);
    spot.outer = zs_group_outer(&bundle->groups, c, thread->open.outer);
    int code = zs_find_task(batch, c, &spot, thread, &given, &source, &where, fault);
    if (code) return code;
    /* A chunk that is stored without codecs is fetched whole if that is less than the visits need in total. */
    const zs_layout *layout = batch->layout;
    int is_shared = last - first > 1 && where.offset != ZS_EMPTY;
    if (is_shared && layout->n_steps == 0)
        is_shared = (int64_t)where.size == layout->chunk_size && zs_need_more(many, first, last, layout->chunk_size);
    if (is_shared)
        return zs_use_chunk(batch, source, where, first, last, zs_visit_all, zs_visit_ranges, thread->scratch, fault);
    for (int64_t m = first; m < last && !code; m++) {
        const zs_batch *part = &many->part[bundle->visit[m].plan];
        int64_t cell[ZS_MAX_NDIM], task = bundle->visit[m].task;
        if (!part->points) zs_plan_task(part->plan, task, spot.segment, cell);
        code = zs_read_found(part, task, &spot, source, where, thread->scratch, fault);
    }
    return code;
}

/* Run all tasks; many->batch.fault has the first fault. */
static void zs_many_run(zs_many *many, int threads) {
    many->batch.run = zs_many_task;
    zs_batch_run(&many->batch, threads);
}

#endif

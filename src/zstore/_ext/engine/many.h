/* many.h - several selections of one array in one batch: a chunk that many of them touch is located, fetched and
 * decoded once, and scattered to all of them. */
#ifndef ZS_MANY_H
#define ZS_MANY_H

#include "read.h"

/* Which task of which plan wants a chunk. */
typedef struct {
    i64 plan, task;
} zs_visit;

/* The visits in groups of those that want one chunk. */
typedef struct {
    zs_visit *visit;
    zs_groups groups;
} zs_bundle;

typedef struct {
    zs_batch batch; /* its tasks are the bundle's chunks */
    const zs_bundle *bundle;
    const zs_batch *part; /* for each plan: that, the caller's memory and its strides, and what all have alike */
} zs_many;

static inline void zs_bundle_free(zs_bundle *bundle) {
    free(bundle->visit);
    zs_groups_free(&bundle->groups);
    memset(bundle, 0, sizeof *bundle);
}

static inline i64 zs_part_tasks(const zs_batch *part) {
    return part->points ? part->points->groups.n : part->plan->n_chunks;
}

/* Grid coordinates of the inner chunk of a task. */
static inline void zs_part_cell(const zs_batch *part, i64 task, i64 *cell) {
    int nd = part->layout->ndim;
    i64 segment[ZS_MAX_NDIM], outer[ZS_MAX_NDIM];
    if (part->points) {
        memcpy(cell, part->points->groups.cell + task * nd, sizeof(i64) * (size_t)nd);
        return;
    }
    zs_plan_task(part->plan, task, segment, outer);
    for (int d = 0; d < nd; d++) cell[d] = part->plan->axis[d].cell[segment[d]];
}

/* The outer chunks among which all tasks lie, along every dimension: low[d] … low[d] + wide[d]. How many numbers
 * their inner chunks take; -1 where that is too many. */
static inline i64 zs_bundle_limits(const zs_layout *layout, const zs_batch *part, i64 n, i64 *low, i64 *wide) {
    i64 limit = 1;
    for (int d = 0; d < layout->ndim; d++) {
        i64 least = INT64_MAX, most = 0;
        for (i64 p = 0; p < n; p++) {
            i64 tasks = zs_part_tasks(&part[p]);
            if (part[p].points) {
                for (i64 g = 0; g < tasks; g++) {
                    i64 cell = part[p].points->groups.cell[g * layout->ndim + d];
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
        if (__builtin_mul_overflow(limit, wide[d], &limit) || __builtin_mul_overflow(limit, layout->per_outer[d], &limit))
            return -1;
    }
    return limit > (i64)1 << 61 ? -1 : limit;
}

/* Which chunks the `n` parts touch. -1: no memory; -2: they span more chunks than can be numbered. */
static inline int zs_bundle_make(const zs_layout *layout, const zs_batch *part, i64 n, zs_bundle *bundle) {
    i64 low[ZS_MAX_NDIM], wide[ZS_MAX_NDIM], cell[ZS_MAX_NDIM], visits = 0, slots = 1, v = 0;
    i64 limit = zs_bundle_limits(layout, part, n, low, wide);
    if (limit < 0) return -2;
    for (i64 p = 0; p < n; p++) visits += zs_part_tasks(&part[p]);
    for (int d = 0; d < layout->ndim; d++) slots *= layout->per_outer[d];
    i64 *key = malloc(sizeof(i64) * (size_t)(2 * visits + 1)), *order = malloc(sizeof(i64) * (size_t)(visits + 1));
    zs_visit *visit = malloc(sizeof *visit * (size_t)(visits + 1));
    bundle->visit = malloc(sizeof *visit * (size_t)(visits + 1));
    int code = key && order && visit && bundle->visit ? 0 : -1;
    for (i64 p = 0; !code && p < n; p++) {
        i64 tasks = zs_part_tasks(&part[p]);
        for (i64 task = 0; task < tasks; task++) {
            i64 outer = 0, slot = 0;
            zs_part_cell(&part[p], task, cell);
            for (int d = 0; d < layout->ndim; d++) {
                i64 at = cell[d] / layout->per_outer[d];
                outer = outer * wide[d] + (at - low[d]);
                slot = slot * layout->per_outer[d] + (cell[d] - at * layout->per_outer[d]);
            }
            visit[v] = (zs_visit){p, task};
            key[v++] = outer * slots + slot;
        }
    }
    if (!code) code = zs_sort_order(key, visits, limit, order);
    i64 *sorted = key + visits;
    for (i64 m = 0; !code && m < visits; m++) {
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

static inline void zs_visit_box(const zs_batch *part, i64 task, zs_move *box) {
    i64 segment[ZS_MAX_NDIM], cell[ZS_MAX_NDIM];
    zs_plan_task(part->plan, task, segment, cell);
    zs_move_make(part->layout, part->plan, segment, part->memory, part->stride, box);
}

/* Whether a chunk is fetched whole for all its visits: one that is stored as it is, where together they read more. */
static inline int zs_are_shared(const zs_many *many, i64 first, i64 last, zs_entry where) {
    const zs_layout *layout = many->batch.layout;
    i64 read = 0, from;
    zs_move box;
    if (layout->n_steps) return 1;
    if ((i64)where.size != layout->chunk_size) return 0; /* each of them will say so */
    for (i64 m = first; m < last && read <= layout->chunk_size; m++) {
        const zs_visit *visit = &many->bundle->visit[m];
        if (many->part[visit->plan].points) return 1; /* which take the whole chunk */
        zs_visit_box(&many->part[visit->plan], visit->task, &box);
        read += zs_span(layout, &box, &from);
    }
    return read > layout->chunk_size;
}

/* Decode only what the visits need of a chunk, where that is much less than all of it; whether it did. */
static inline int zs_visit_ranges(const zs_many *many, i64 first, i64 last, const char *raw, i64 size, char *into) {
    const zs_layout *layout = many->batch.layout;
    i64 needed = 0, from;
    zs_move box;
    if (layout->n_steps != 1 || !ZSTORE_CODEC_HAS(layout->step[0], decode_range)) return 0;
    for (i64 m = first; m < last; m++) {
        const zs_visit *visit = &many->bundle->visit[m];
        if (many->part[visit->plan].points) return 0;
        zs_visit_box(&many->part[visit->plan], visit->task, &box);
        needed += zs_span(layout, &box, &from);
        if (needed > layout->chunk_size - layout->chunk_size / 4) return 0;
    }
    for (i64 m = first; m < last; m++) {
        const zs_visit *visit = &many->bundle->visit[m];
        zs_visit_box(&many->part[visit->plan], visit->task, &box);
        if (!zs_read_range(layout, raw, size, &box, into)) return 0;
        zs_to_outside(layout, &box, into);
    }
    return 1;
}

/* From a decoded chunk to everybody who wants some of it. */
static inline void zs_visit_all(const zs_many *many, i64 first, i64 last, const char *chunk) {
    zs_move box;
    for (i64 m = first; m < last; m++) {
        const zs_visit *visit = &many->bundle->visit[m];
        const zs_batch *part = &many->part[visit->plan];
        if (part->points) {
            zs_points_out(part, chunk, part->points->groups.start[visit->task], part->points->groups.start[visit->task + 1]);
            continue;
        }
        zs_visit_box(part, visit->task, &box);
        zs_to_outside(part->layout, &box, chunk);
    }
}

/* A chunk that several visits want: fetched and decoded once. */
static inline int zs_visit_shared(const zs_many *many, i64 first, i64 last, const zs_source *source, zs_entry where,
                                  zs_scratch *scratch, zs_fault *fault) {
    const zs_layout *layout = many->batch.layout;
    const char *raw, *chunk;
    zs_cache *keeper;
    zs_kept *kept;
    int code = zs_get_chunk(&many->batch, source, where, 1, scratch, &keeper, &kept, &raw, fault);
    if (code) return code;
    if (kept) {
        zs_visit_all(many, first, last, kept->payload);
        zs_kept_release(keeper, kept);
        return ZS_OK;
    }
    char *into = zs_reserve(&scratch->chunk, layout->chunk_size);
    if (!into) return zs_fail(fault, ZS_FAULT_MEMORY, 0, layout->chunk_size);
    if (zs_visit_ranges(many, first, last, raw, (i64)where.size, into)) return ZS_OK;
    code = zs_decode(layout, scratch, raw, (i64)where.size, into, &chunk, fault);
    if (!code) zs_visit_all(many, first, last, chunk);
    return code;
}

/* One task: an inner chunk, for all who want some of it. */
static int zs_many_task(zs_batch *batch, i64 c, zs_thread *thread, zs_fault *fault) {
    const zs_many *many = (const zs_many *)batch;
    const zs_bundle *bundle = many->bundle;
    i64 first = bundle->groups.start[c], last = bundle->groups.start[c + 1];
    zs_spot spot;
    zs_entry where;
    zs_task_spot(&many->part[bundle->visit[first].plan], bundle->visit[first].task, -1, &spot, fault);
    spot.outer = zs_group_outer(&bundle->groups, c, thread->open.outer);
    int code = zs_find_chunk(batch, &spot, thread, &where, fault);
    if (code) return code;
    if (last - first > 1 && where.offset != ZS_EMPTY && zs_are_shared(many, first, last, where))
        return zs_visit_shared(many, first, last, &thread->open.source, where, thread->scratch, fault);
    for (i64 m = first; m < last && !code; m++) {
        const zs_batch *part = &many->part[bundle->visit[m].plan];
        i64 cell[ZS_MAX_NDIM], task = bundle->visit[m].task;
        if (!part->points) zs_plan_task(part->plan, task, spot.segment, cell);
        code = zs_read_found(part, task, &spot, &thread->open.source, where, thread->scratch, fault);
    }
    return code;
}

/* Do all of it; the first fault ends up in many->batch.fault. */
static void zs_many_run(zs_many *many, int threads) {
    many->batch.run = zs_many_task;
    zs_batch_run(&many->batch, threads);
}

#endif

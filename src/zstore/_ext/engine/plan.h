/* plan.h - plans: selections divided along the chunk grid.
 *
 * A box plan has one table per dimension (its segments), none per chunk: the chunks touched are the product of the
 * tables. A point plan has the points sorted by the chunk that contains them.
 */
#ifndef ZS_PLAN_H
#define ZS_PLAN_H

#include "layout.h"
#include <stdlib.h>

/* The part of the selection along one dimension, chunk by chunk.
 * Segment s is `items[s]` items `first[s]`, `first[s] + step`, … of chunk `cell[s]`, which go to positions `at[s]`,
 * `at[s] + 1`, … of the caller's memory. With tables, entry k of at[s] … at[s] + items[s] is item inside[k] of the
 * chunk, which goes to outside[k]. Segments of one outer chunk (a shard) are neighbours: outer chunk o has the segments
 * outer_from[o] … outer_from[o + 1]. */
typedef struct {
    int64_t n, step, n_outer;
    int64_t *cell, *first, *items, *at;
    int64_t *outer_cell, *outer_from;
    int64_t *inside, *outside;
    int flip; /* the step was negative: the caller's memory is filled from its end */
    void *memory;
} zs_axis;

typedef struct {
    int ndim;
    int64_t n_outer;      /* outer chunks touched */
    int64_t n_chunks;     /* inner chunks touched */
    int64_t *outer_start; /* [n_outer + 1] first task of each outer chunk; NULL when every one is a single task */
    zs_axis axis[ZS_MAX_NDIM];
} zs_plan;

/* Members sorted by chunk: group g has members start[g] … start[g + 1], all in the inner chunk at cell[g * ndim] …;
 * outer chunk o has groups outer_start[o] … outer_start[o + 1]. */
typedef struct {
    int64_t n, n_outer;
    int64_t *start, *cell, *outer_start;
} zs_groups;

typedef struct {
    int64_t n;
    zs_groups groups;
    int64_t *inside; /* byte offset of a member in its (C-ordered or transposed) chunk */
    int64_t *order;  /* which point a member is; NULL when the points came sorted */
} zs_points;

static inline void zs_axis_free(zs_axis *axis) {
    free(axis->memory);
    free(axis->inside);
    memset(axis, 0, sizeof *axis);
}

static inline void zs_plan_free(zs_plan *plan) {
    for (int d = 0; d < plan->ndim; d++) zs_axis_free(&plan->axis[d]);
    free(plan->outer_start);
    plan->outer_start = NULL;
}

static inline void zs_groups_free(zs_groups *groups) {
    free(groups->start);
    free(groups->cell);
    free(groups->outer_start);
}

static inline void zs_points_free(zs_points *points) {
    zs_groups_free(&points->groups);
    free(points->inside);
    free(points->order);
    memset(points, 0, sizeof *points);
}

static inline int zs_axis_reserve(zs_axis *axis, int64_t n) {
    int64_t *memory = n < INT64_MAX / 64 ? malloc(sizeof(int64_t) * (size_t)(6 * n + 7)) : NULL;
    if (!memory) return -1;
    axis->memory = memory;
    axis->cell = memory;
    axis->first = memory + n;
    axis->items = memory + 2 * n;
    axis->at = memory + 3 * n;
    axis->outer_cell = memory + 4 * n;
    axis->outer_from = memory + 5 * n;
    return 0;
}

/* Group the segments by outer chunk, of `per_outer` inner chunks each. */
static inline void zs_axis_group(zs_axis *axis, int64_t per_outer) {
    int64_t n = 0;
    for (int64_t s = 0; s < axis->n; s++) {
        int64_t outer = axis->cell[s] / per_outer;
        if (n == 0 || axis->outer_cell[n - 1] != outer) {
            axis->outer_cell[n] = outer;
            axis->outer_from[n++] = s;
        }
    }
    axis->outer_from[n] = axis->n;
    axis->n_outer = n;
}

/* `count` positions from `start`, `step` > 0 apart, along chunks of `chunk` items. */
static inline int zs_axis_slice(zs_axis *axis, int64_t start, int64_t count, int64_t step, int64_t chunk,
                                int64_t per_outer) {
    int64_t last = count ? start + (count - 1) * step : start;
    int64_t most = count ? last / chunk - start / chunk + 1 : 0;
    if (most > count) most = count;
    if (zs_axis_reserve(axis, most)) return -1;
    axis->step = step;
    int64_t s = 0;
    for (int64_t k = 0; k < count; s++) {
        int64_t position = start + k * step, cell = position / chunk;
        int64_t fits = (chunk - 1 - (position - cell * chunk)) / step + 1;
        if (fits > count - k) fits = count - k;
        axis->cell[s] = cell;
        axis->first[s] = position - cell * chunk;
        axis->items[s] = fits;
        axis->at[s] = k;
        k += fits;
    }
    axis->n = s;
    zs_axis_group(axis, per_outer);
    return 0;
}

/* A stable order of 0 … n - 1 by key[i] in 0 … limit - 1: counting where the keys are few, else radix. */
static inline int zs_sort_order(const int64_t *key, int64_t n, int64_t limit, int64_t *order) {
    int bits = 0;
    while (bits < 62 && ((int64_t)1 << bits) < limit) bits++;
    int digit = bits <= 20 && ((int64_t)1 << bits) <= 4 * n + 1024 ? (bits ? bits : 1) : 11;
    int passes = bits > digit ? (bits + digit - 1) / digit : 1;
    int64_t buckets = (int64_t)1 << digit, *from = NULL; /* in the order they came */
    int64_t *count = malloc(sizeof(int64_t) * (size_t)(buckets + 1));
    int64_t *other = passes > 1 ? malloc(sizeof(int64_t) * (size_t)(n + 1)) : order;
    int failed = !count || !other;
    for (int pass = 0; !failed && pass < passes; pass++) {
        int shift = pass * digit;
        int64_t *to = (passes - pass) % 2 ? order : other;
        memset(count, 0, sizeof(int64_t) * (size_t)(buckets + 1));
        for (int64_t i = 0; i < n; i++) count[((key[i] >> shift) & (buckets - 1)) + 1]++;
        for (int64_t b = 0; b < buckets; b++) count[b + 1] += count[b];
        for (int64_t i = 0; i < n; i++) {
            int64_t item = from ? from[i] : i;
            to[count[(key[item] >> shift) & (buckets - 1)]++] = item;
        }
        from = to;
    }
    if (passes > 1) free(other);
    free(count);
    return failed ? -1 : 0;
}

/* Any positions (checked to lie in 0 … length - 1), in any order, also repeated. */
static inline int zs_axis_table(zs_axis *axis, const int64_t *position, int64_t n, int64_t length, int64_t chunk,
                                int64_t per_outer) {
    int64_t *tables = malloc(sizeof(int64_t) * (size_t)(2 * n + 1));
    int64_t *key = malloc(sizeof(int64_t) * (size_t)(2 * n + 1));
    if (!tables || !key) goto fail;
    int64_t *order = key + n, segments = 0, sorted = 1;
    for (int64_t i = 0; i < n; i++) {
        key[i] = position[i] / chunk;
        if (i == 0 || key[i] != key[i - 1]) segments++;
        if (i && key[i] < key[i - 1]) sorted = 0;
    }
    if (!sorted) {
        if (zs_sort_order(key, n, length / chunk + 1, order)) goto fail;
        segments = 0;
        for (int64_t i = 0; i < n; i++)
            if (i == 0 || key[order[i]] != key[order[i - 1]]) segments++;
    }
    if (zs_axis_reserve(axis, segments)) goto fail;
    axis->step = 1;
    axis->inside = tables;
    axis->outside = tables + n;
    int64_t s = -1;
    for (int64_t k = 0; k < n; k++) {
        int64_t i = sorted ? k : order[k];
        if (s < 0 || axis->cell[s] != key[i]) {
            s++;
            axis->cell[s] = key[i];
            axis->first[s] = 0;
            axis->items[s] = 0;
            axis->at[s] = k;
        }
        axis->items[s]++;
        axis->inside[k] = position[i] - key[i] * chunk;
        axis->outside[k] = i;
    }
    axis->n = s + 1;
    free(key);
    zs_axis_group(axis, per_outer);
    return 0;
fail:
    free(tables);
    free(key);
    axis->inside = NULL;
    return -1;
}

/* Count the tasks, after all axes are made; -1 where they are too many to number. */
static inline int zs_plan_finish(zs_plan *plan, int is_sharded) {
    int is_empty = 0;
    for (int d = 0; d < plan->ndim; d++) is_empty |= plan->axis[d].n == 0;
    plan->n_outer = plan->n_chunks = !is_empty;
    for (int d = 0; d < plan->ndim; d++)
        if (__builtin_mul_overflow(plan->n_outer, plan->axis[d].n_outer, &plan->n_outer) ||
            __builtin_mul_overflow(plan->n_chunks, plan->axis[d].n, &plan->n_chunks))
            return -1;
    if (!is_sharded || is_empty) return 0;
    plan->outer_start = malloc(sizeof(int64_t) * (size_t)(plan->n_outer + 1));
    if (!plan->outer_start) return -1;
    int64_t index[ZS_MAX_NDIM] = {0}, total = 0;
    for (int64_t o = 0; o < plan->n_outer; o++) {
        int64_t inner = 1;
        for (int d = 0; d < plan->ndim; d++) {
            zs_axis *axis = &plan->axis[d];
            inner *= axis->outer_from[index[d] + 1] - axis->outer_from[index[d]];
        }
        plan->outer_start[o] = total;
        total += inner;
        for (int d = plan->ndim - 1; d >= 0 && ++index[d] == plan->axis[d].n_outer; d--) index[d] = 0;
    }
    plan->outer_start[plan->n_outer] = total;
    return 0;
}

/* Find the stretch, of `n`, that contains an item: stretch k has items start[k] … start[k + 1]. */
static inline int64_t zs_find_stretch(const int64_t *start, int64_t n, int64_t item) {
    int64_t low = 0, high = n;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (start[middle] <= item) low = middle;
        else high = middle;
    }
    return low;
}

/* The segment of every dimension for one task, and the outer chunk's coordinates. */
static inline int64_t zs_plan_task(const zs_plan *plan, int64_t task, int64_t *segment, int64_t *outer_cell) {
    int64_t outer = plan->outer_start ? zs_find_stretch(plan->outer_start, plan->n_outer, task) : task;
    int64_t rest = outer, group[ZS_MAX_NDIM];
    for (int d = plan->ndim - 1; d >= 0; d--) {
        group[d] = rest % plan->axis[d].n_outer;
        rest /= plan->axis[d].n_outer;
        outer_cell[d] = plan->axis[d].outer_cell[group[d]];
    }
    rest = plan->outer_start ? task - plan->outer_start[outer] : 0;
    for (int d = plan->ndim - 1; d >= 0; d--) {
        const zs_axis *axis = &plan->axis[d];
        int64_t from = axis->outer_from[group[d]], n = axis->outer_from[group[d] + 1] - from;
        segment[d] = from + rest % n;
        rest /= n;
    }
    return outer;
}

/* The outer chunk of a group; `guess` is that of the previous group. */
static inline int64_t zs_group_outer(const zs_groups *groups, int64_t group, int64_t guess) {
    const int64_t *start = groups->outer_start;
    if (guess >= 0 && start[guess] <= group && group < start[guess + 1]) return guess;
    return zs_find_stretch(start, groups->n_outer, group);
}

/* Group members by inner chunk. They are sorted by the number of their inner chunk, of which each outer chunk has
 * `slots`; the outer chunks are those from low[d] to low[d] + wide[d] along each dimension d. */
static inline int zs_groups_make(const zs_layout *layout, const int64_t *number, int64_t n, int64_t slots,
                                 const int64_t *low, const int64_t *wide, zs_groups *groups) {
    int nd = layout->ndim;
    int64_t g = -1, o = -1;
    groups->n = groups->n_outer = 0;
    for (int64_t m = 0; m < n; m++) {
        groups->n += m == 0 || number[m] != number[m - 1];
        groups->n_outer += m == 0 || number[m] / slots != number[m - 1] / slots;
    }
    groups->start = malloc(sizeof(int64_t) * (size_t)(groups->n + 1));
    groups->cell = malloc(sizeof(int64_t) * (size_t)(groups->n * nd + 1));
    groups->outer_start = malloc(sizeof(int64_t) * (size_t)(groups->n_outer + 1));
    if (!groups->start || !groups->cell || !groups->outer_start) return -1;
    for (int64_t m = 0; m < n; m++) {
        if (m && number[m] == number[m - 1]) continue;
        groups->start[++g] = m;
        int64_t outer = number[m] / slots, slot = number[m] % slots;
        if (m == 0 || outer != number[m - 1] / slots) groups->outer_start[++o] = g;
        for (int d = nd - 1; d >= 0; d--) {
            groups->cell[g * nd + d] = (outer % wide[d] + low[d]) * layout->per_outer[d] + slot % layout->per_outer[d];
            outer /= wide[d];
            slot /= layout->per_outer[d];
        }
    }
    groups->start[groups->n] = n;
    groups->outer_start[groups->n_outer] = groups->n;
    return 0;
}

/* Sort points by outer chunk, then by inner chunk. index[d][i] is the position of point i along dimension d; negative
 * ones count from the end. -1: out of memory; -2: point *bad is out of bounds along dimension *bad_dim; -3: the points
 * span more chunks than can be numbered. */
static inline int zs_points_make(const zs_layout *layout, const int64_t *const *index, int64_t n, zs_points *points,
                                 int64_t *bad, int *bad_dim) {
    int nd = layout->ndim;
    int64_t low[ZS_MAX_NDIM], wide[ZS_MAX_NDIM], slots = 1, limit = 1;
    memset(points, 0, sizeof *points);
    points->n = n;
    for (int d = 0; d < nd; d++) {
        int64_t least = INT64_MAX, most = 0, length = layout->shape[d];
        for (int64_t i = 0; i < n; i++) {
            int64_t p = index[d][i];
            if (p < 0) p += length;
            if (p < 0 || p >= length) {
                *bad = i;
                *bad_dim = d;
                return -2;
            }
            if (p < least) least = p;
            if (p > most) most = p;
        }
        int64_t outer = layout->chunk[d] * layout->per_outer[d];
        low[d] = n ? least / outer : 0;
        wide[d] = n ? most / outer - low[d] + 1 : 1;
        slots *= layout->per_outer[d];
        if (__builtin_mul_overflow(limit, wide[d], &limit)) return -3;
    }
    if (__builtin_mul_overflow(limit, slots, &limit) || limit > (int64_t)1 << 61) return -3;
    int64_t *key = malloc(sizeof(int64_t) * (size_t)(n + 1));
    points->inside = malloc(sizeof(int64_t) * (size_t)(n + 1));
    if (!key || !points->inside) goto fail;
    int sorted = 1;
    for (int64_t i = 0; i < n; i++) {
        int64_t outer = 0, slot = 0, offset = 0;
        for (int d = 0; d < nd; d++) {
            int64_t p = index[d][i];
            if (p < 0) p += layout->shape[d];
            int64_t inner = p / layout->chunk[d], o = inner / layout->per_outer[d];
            offset += (p - inner * layout->chunk[d]) * layout->stride[d];
            outer = outer * wide[d] + (o - low[d]);
            slot = slot * layout->per_outer[d] + (inner - o * layout->per_outer[d]);
        }
        key[i] = outer * slots + slot;
        points->inside[i] = offset;
        if (i && key[i] < key[i - 1]) sorted = 0;
    }
    if (!sorted) {
        points->order = malloc(sizeof(int64_t) * (size_t)n);
        int64_t *moved = malloc(sizeof(int64_t) * (size_t)(2 * n));
        if (!points->order || !moved || zs_sort_order(key, n, limit, points->order)) {
            free(moved);
            goto fail;
        }
        for (int64_t m = 0; m < n; m++) moved[m] = points->inside[points->order[m]];
        for (int64_t m = 0; m < n; m++) moved[n + m] = key[points->order[m]];
        memcpy(points->inside, moved, sizeof(int64_t) * (size_t)n);
        memcpy(key, moved + n, sizeof(int64_t) * (size_t)n);
        free(moved);
    }
    if (zs_groups_make(layout, key, n, slots, low, wide, &points->groups)) goto fail;
    free(key);
    return 0;
fail:
    free(key);
    zs_points_free(points);
    return -1;
}

#endif

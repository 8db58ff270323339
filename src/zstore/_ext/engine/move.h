/* move.h - moves one chunk's part of a selection between the decoded chunk and the caller's memory. */
#ifndef ZS_MOVE_H
#define ZS_MOVE_H

#include "layout.h"
#include "plan.h"

typedef struct {
    int64_t count;
    int64_t inside, outside;                     /* byte strides in the chunk and in the caller's memory */
    const int64_t *inside_table, *outside_table; /* positions to multiply these with; NULL: 0, 1, 2, … */
} zs_move_dim;

typedef struct {
    zs_move_dim dim[ZS_MAX_NDIM];
    int64_t inside_offset; /* of the first item in the chunk */
    char *outside;         /* the first item in the caller's memory */
    int has_tables;
    int is_whole;  /* it has every item of the chunk within the array's shape, as its reader knows it */
    int is_direct; /* it is the whole chunk, with the same strides in the caller's memory */
} zs_move;

/* Make the move for segment[d] of every dimension d. */
static inline void zs_move_make(const zs_layout *layout, const zs_plan *plan, const int64_t *segment, char *outside,
                                const int64_t *outside_stride, zs_move *move) {
    move->inside_offset = 0;
    move->outside = outside;
    move->has_tables = 0;
    move->is_whole = move->is_direct = 1;
    for (int d = 0; d < layout->ndim; d++) {
        const zs_axis *axis = &plan->axis[d];
        int64_t s = segment[d], n = axis->items[s];
        zs_move_dim *dim = &move->dim[d];
        dim->count = n;
        dim->outside = outside_stride[d];
        dim->inside = layout->stride[d] * axis->step;
        dim->inside_table = dim->outside_table = NULL;
        if (axis->inside) {
            dim->inside_table = axis->inside + axis->at[s];
            dim->outside_table = axis->outside + axis->at[s];
            move->has_tables = 1;
            move->is_whole = move->is_direct = 0;
            continue;
        }
        int64_t exists = layout->shape[d] - axis->cell[s] * layout->chunk[d];
        if (exists > layout->chunk[d]) exists = layout->chunk[d];
        if (n != exists) move->is_whole = 0;
        if (n != layout->chunk[d] || (n > 1 && dim->inside != dim->outside)) move->is_direct = 0;
        move->inside_offset += axis->first[s] * layout->stride[d];
        move->outside += axis->at[s] * outside_stride[d];
    }
}

/* The range of the decoded chunk's bytes that is needed: its size, and where it begins. */
static inline int64_t zs_span(const zs_layout *layout, const zs_move *move, int64_t *begin) {
    int64_t low = move->inside_offset, high = low;
    for (int d = 0; d < layout->ndim; d++) {
        const zs_move_dim *dim = &move->dim[d];
        if (!dim->inside_table) {
            high += (dim->count - 1) * dim->inside;
            continue;
        }
        int64_t least = dim->inside_table[0], most = least;
        for (int64_t k = 1; k < dim->count; k++) {
            if (dim->inside_table[k] < least) least = dim->inside_table[k];
            if (dim->inside_table[k] > most) most = dim->inside_table[k];
        }
        low += least * dim->inside;
        high += most * dim->inside;
    }
    *begin = low;
    return high + layout->item - low;
}

static inline void zs_copy_item(char *to, const char *from, int64_t item, int64_t unit) {
    if (unit) zs_copy_line(to, unit, from, unit, item / unit, unit, 1);
    else memcpy(to, from, (size_t)item);
}

#define ZS_TABLE_LINE(T, EXPR)                                                   \
    do {                                                                         \
        for (int64_t k = 0; k < n; k++) {                                        \
            T v;                                                                 \
            memcpy(&v, from + from_table[k] * from_stride, sizeof v);            \
            v = EXPR;                                                            \
            memcpy(to + (to_table ? to_table[k] : k) * to_stride, &v, sizeof v); \
        }                                                                        \
    } while (0)

/* Copy one line of items whose positions are in tables; the caller's memory may have no table. */
static inline void zs_table_line(const zs_layout *layout, const zs_move_dim *dim, char *chunk, char *outside,
                                 int to_chunk) {
    const int64_t n = dim->count, item = layout->item, unit = layout->unit;
    const int64_t to_stride = to_chunk ? dim->inside : dim->outside,
                  from_stride = to_chunk ? dim->outside : dim->inside;
    const int64_t *to_table = to_chunk ? dim->inside_table : dim->outside_table;
    const int64_t *from_table = to_chunk ? dim->outside_table : dim->inside_table;
    char *to = to_chunk ? chunk : outside;
    const char *from = to_chunk ? outside : chunk;
    if (unit == item) {
        if (item == 2) ZS_TABLE_LINE(uint16_t, __builtin_bswap16(v));
        else if (item == 4) ZS_TABLE_LINE(uint32_t, __builtin_bswap32(v));
        else ZS_TABLE_LINE(uint64_t, __builtin_bswap64(v));
        return;
    }
    if (!unit && item == 1) ZS_TABLE_LINE(uint8_t, v);
    else if (!unit && item == 2) ZS_TABLE_LINE(uint16_t, v);
    else if (!unit && item == 4) ZS_TABLE_LINE(uint32_t, v);
    else if (!unit && item == 8) ZS_TABLE_LINE(uint64_t, v);
    else
        for (int64_t k = 0; k < n; k++)
            zs_copy_item(to + (to_table ? to_table[k] : k) * to_stride, from + from_table[k] * from_stride, item, unit);
}

typedef struct {
    const zs_layout *layout;
    const zs_move_dim *outer[ZS_MAX_NDIM]; /* looped over item by item, outermost first */
    int n_outer;
    const zs_move_dim *line;     /* the innermost dimension if it has tables, else NULL: … */
    zs_dim box[ZS_MAX_NDIM + 1]; /* … then the rest is a strided box */
    int n_box;
    int to_chunk;
} zs_table_walk;

static inline void zs_walk_tables(const zs_table_walk *walk, int depth, char *chunk, char *outside) {
    const zs_layout *layout = walk->layout;
    if (depth < walk->n_outer) {
        const zs_move_dim *dim = walk->outer[depth];
        for (int64_t k = 0; k < dim->count; k++) {
            int64_t a = dim->inside_table ? dim->inside_table[k] : k,
                    b = dim->outside_table ? dim->outside_table[k] : k;
            zs_walk_tables(walk, depth + 1, chunk + a * dim->inside, outside + b * dim->outside);
        }
    } else if (walk->line) {
        zs_table_line(layout, walk->line, chunk, outside, walk->to_chunk);
    } else {
        int64_t unit = layout->unit;
        if (walk->to_chunk) zs_copy_dims(chunk, outside, walk->box, walk->n_box, unit ? unit : layout->item, unit != 0);
        else zs_copy_dims(outside, chunk, walk->box, walk->n_box, unit ? unit : layout->item, unit != 0);
    }
}

static inline void zs_move_tables(const zs_layout *layout, const zs_move *move, char *chunk, int to_chunk) {
    zs_table_walk walk = {.layout = layout, .to_chunk = to_chunk};
    int last = layout->ndim - 1;
    if (move->dim[last].inside_table) walk.line = &move->dim[last];
    for (int d = 0; d < layout->ndim; d++) {
        const zs_move_dim *dim = &move->dim[d];
        if (dim == walk.line) continue;
        if (walk.line || dim->inside_table) walk.outer[walk.n_outer++] = dim;
        else if (to_chunk) walk.box[walk.n_box++] = (zs_dim){dim->count, dim->inside, dim->outside};
        else walk.box[walk.n_box++] = (zs_dim){dim->count, dim->outside, dim->inside};
    }
    if (!walk.line) {
        int64_t unit = layout->unit;
        if (unit && unit != layout->item) walk.box[walk.n_box++] = (zs_dim){layout->item / unit, unit, unit};
        walk.n_box = zs_simplify(walk.box, walk.n_box);
    }
    zs_walk_tables(&walk, 0, chunk + move->inside_offset, move->outside);
}

static inline void zs_move_box(const zs_layout *layout, const zs_move *move, char *chunk, int to_chunk) {
    if (move->has_tables) {
        zs_move_tables(layout, move, chunk, to_chunk);
        return;
    }
    zs_dim box[ZS_MAX_NDIM + 1];
    for (int d = 0; d < layout->ndim; d++) {
        const zs_move_dim *dim = &move->dim[d];
        box[d] = to_chunk ? (zs_dim){dim->count, dim->inside, dim->outside}
                          : (zs_dim){dim->count, dim->outside, dim->inside};
    }
    chunk += move->inside_offset;
    if (to_chunk) zs_copy_box(chunk, move->outside, box, layout->ndim, layout->item, layout->unit);
    else zs_copy_box(move->outside, chunk, box, layout->ndim, layout->item, layout->unit);
}

/* Scatter: from the decoded chunk to the caller's memory. */
static inline void zs_to_outside(const zs_layout *layout, const zs_move *move, const char *chunk) {
    zs_move_box(layout, move, (char *)chunk, 0);
}

/* Gather: from the caller's memory into the decoded chunk. Of repeated positions the last one counts. */
static inline void zs_to_chunk(const zs_layout *layout, const zs_move *move, char *chunk) {
    zs_move_box(layout, move, chunk, 1);
}

/* Put the fill value into the caller's memory, for a chunk that is missing. */
static inline void zs_fill_outside(const zs_layout *layout, const zs_move *move, int depth, char *outside) {
    if (!move->has_tables) {
        zs_dim dim[ZS_MAX_NDIM];
        for (int d = 0; d < layout->ndim; d++) dim[d] = (zs_dim){move->dim[d].count, move->dim[d].outside, 0};
        zs_fill_box(outside, dim, layout->ndim, layout->fill_native, layout->item, layout->fill_is_zero);
        return;
    }
    if (depth == layout->ndim) {
        memcpy(outside, layout->fill_native, (size_t)layout->item);
        return;
    }
    const zs_move_dim *dim = &move->dim[depth];
    for (int64_t k = 0; k < dim->count; k++)
        zs_fill_outside(layout, move, depth + 1,
                        outside + (dim->outside_table ? dim->outside_table[k] : k) * dim->outside);
}

#endif

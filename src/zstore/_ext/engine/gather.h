/* gather.h - copies windows of an array out of blocks of it in memory.
 *
 * The blocks are cells of a grid, each contiguous in C order and numbered in that order; a window may lie in several.
 */
#ifndef ZS_GATHER_H
#define ZS_GATHER_H

#include "box.h"

typedef struct {
    int64_t count;          /* of its cells */
    const int64_t *borders; /* count + 1 of them, ascending */
    int64_t length, to;     /* of a window, and its byte stride in the caller's memory */
} zs_side;

typedef struct {
    int ndim;
    int64_t item;
    zs_side side[ZS_MAX_NDIM];
    int64_t n_blocks;
    const int64_t *numbers; /* of the blocks, ascending */
    char **blocks;
} zs_windows;

/* The last of `n` ascending values that is not greater than `value`; -1: all are. */
static inline int64_t zs_last_not_above(const int64_t *values, int64_t n, int64_t value) {
    int64_t low = 0, high = n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (values[middle] <= value) low = middle + 1;
        else high = middle;
    }
    return low - 1;
}

/* The bytes of a block; 0 where the grid has no such number. */
static inline int64_t zs_block_size(const zs_windows *w, int64_t number) {
    int64_t size = w->item;
    if (number < 0) return 0;
    for (int d = w->ndim - 1; d >= 0; d--) {
        const zs_side *s = &w->side[d];
        if (s->count == 0) return 0;
        size *= s->borders[number % s->count + 1] - s->borders[number % s->count];
        number /= s->count;
    }
    return number ? 0 : size;
}

/* Copy the part of a window that lies in the block at `cell`. */
static inline void zs_copy_part(const zs_windows *w, const int64_t *start, const int64_t *cell, const char *block,
                                char *out) {
    zs_dim dims[ZS_MAX_NDIM];
    int64_t stride = w->item;
    if (w->ndim < 0) __builtin_unreachable(); /* for the compiler, which else warns of it */
    for (int d = w->ndim - 1; d >= 0; d--) {
        const zs_side *s = &w->side[d];
        int64_t first = s->borders[cell[d]], last = s->borders[cell[d] + 1];
        int64_t begin = start[d] > first ? start[d] : first;
        int64_t end = start[d] + s->length < last ? start[d] + s->length : last;
        dims[d] = (zs_dim){end - begin, s->to, stride};
        block += (begin - first) * stride;
        out += (begin - start[d]) * s->to;
        stride *= last - first;
    }
    zs_copy_box(out, block, dims, w->ndim, w->item, 0);
}

/* Copy a window; returns -1, or the number of a block that is missing, or -2 where it lies outside the grid. */
static inline int64_t zs_gather(const zs_windows *w, const int64_t *start, char *out) {
    int64_t first[ZS_MAX_NDIM], last[ZS_MAX_NDIM], cell[ZS_MAX_NDIM];
    for (int d = 0; d < w->ndim; d++) {
        const zs_side *s = &w->side[d];
        if (start[d] < s->borders[0] || start[d] > s->borders[s->count] - s->length) return -2;
        first[d] = cell[d] = zs_last_not_above(s->borders, s->count, start[d]);
        last[d] = zs_last_not_above(s->borders, s->count, start[d] + s->length - 1);
    }
    for (;;) {
        int64_t number = 0;
        for (int d = 0; d < w->ndim; d++) number = number * w->side[d].count + cell[d];
        int64_t at = zs_last_not_above(w->numbers, w->n_blocks, number);
        if (at < 0 || w->numbers[at] != number) return number;
        zs_copy_part(w, start, cell, w->blocks[at], out);
        int d = w->ndim - 1;
        while (d >= 0 && cell[d] == last[d]) {
            cell[d] = first[d];
            d--;
        }
        if (d < 0) return -1;
        cell[d]++;
    }
}

#endif

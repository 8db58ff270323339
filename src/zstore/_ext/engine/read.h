/* read.h - a batch of reads: locate, fetch, decode and scatter, without the GIL, on any number of threads. */
#ifndef ZS_READ_H
#define ZS_READ_H

#include "batch.h"
#include "recode.h"

#define ZS_BLOCK_SIZE ((int64_t)128 << 10)

/* Read a box of a chunk stored without encoding, block by block: a block is still in the CPU's cache when its items
 * are moved. */
static inline int zs_read_blocks(const zs_layout *layout, const zs_source *source, int64_t offset, const zs_move *box,
                                 zs_scratch *scratch, zs_fault *fault) {
    zs_move part = *box;
    int widest = 0;
    for (int d = 1; d < layout->ndim; d++)
        if (box->dim[d].count > 1 && (box->dim[widest].count == 1 || box->dim[d].inside > box->dim[widest].inside))
            widest = d;
    int64_t count = layout->ndim ? box->dim[widest].count : 1, step = count;
    if (count > 1) step = box->dim[widest].inside < ZS_BLOCK_SIZE ? ZS_BLOCK_SIZE / box->dim[widest].inside : 1;
    for (int64_t done = 0; done < count; done += step) {
        const char *at;
        int64_t from;
        if (layout->ndim) part.dim[widest].count = count - done < step ? count - done : step;
        part.inside_offset = box->inside_offset + (count > 1 ? done * box->dim[widest].inside : 0);
        part.outside = box->outside + (count > 1 ? done * box->dim[widest].outside : 0);
        int64_t span = zs_span(layout, &part, &from);
        int code = zs_fetch(source, offset + from, span, &scratch->raw, &at, fault);
        if (code) return code;
        part.inside_offset = 0;
        zs_to_outside(layout, &part, at);
    }
    return ZS_OK;
}

/* Read a box of a chunk stored without encoding: straight from the file where that takes few calls, else through one
 * read of the range that holds it. */
static inline int zs_read_plain(const zs_batch *batch, const zs_source *source, int64_t offset, const zs_move *box,
                                zs_scratch *scratch, zs_fault *fault) {
    const zs_layout *layout = batch->layout;
    int64_t from, span = zs_span(layout, box, &from), run = 1, rows = 1;
    zs_dim dim[ZS_MAX_NDIM + 1];
    for (int d = 0; d < layout->ndim; d++)
        dim[d] = (zs_dim){box->dim[d].count, box->dim[d].outside, box->dim[d].inside};
    int n = layout->unit ? -1 : zs_simplify(dim, layout->ndim);
    if (n == 0) run = layout->item;
    else if (n > 0 && dim[n - 1].to == layout->item && dim[n - 1].from == layout->item) {
        run = dim[n - 1].count * layout->item;
        if (n == 2) rows = dim[0].count;
        else if (n > 2) rows = -1;
    } else rows = -1;
    if (source->file >= 0 && rows > 0) {
        int64_t got = -2;
        if (rows == 1) got = zs_pread(source->file, box->outside, run, offset + from);
        else if (dim[0].from == run && run >= 1024)
            got = zs_pread_rows(source->file, box->outside, rows, run, dim[0].to, offset + from);
        else if (rows * (run + 4096) < span) {
            got = 0;
            for (int64_t row = 0; row < rows; row++) {
                int64_t part =
                    zs_pread(source->file, box->outside + row * dim[0].to, run, offset + from + row * dim[0].from);
                if (part < 0) {
                    got = -1;
                    break;
                }
                got += part;
            }
        }
        if (got == -1) return zs_store_fault(fault);
        if (got >= 0) return got == rows * run ? ZS_OK : zs_fail(fault, ZS_FAULT_SIZE, got, rows * run);
    }
    return zs_read_blocks(layout, source, offset, box, scratch, fault);
}

/* Whether a codec may decode only what a box needs of a chunk, which saves much. */
static inline int zs_has_range(const zs_layout *layout, const zs_move *box) {
    int64_t from;
    return layout->n_steps == 1 && ZSTORE_CODEC_HAS(layout->step[0], decode_range) &&
           ZSTORE_CODEC_HAS(layout->step[0], decoded_size) &&
           zs_span(layout, box, &from) <= layout->chunk_size - layout->chunk_size / 4;
}

/* Decode only the part of a chunk that a box needs, where the codec can and it saves much. Returns whether it did:
 * otherwise a whole decode gives the chunk or says what is wrong with it. */
static inline int zs_read_range(const zs_layout *layout, const char *raw, int64_t size, const zs_move *box,
                                char *into) {
    const zstore_codec *codec = layout->step[0];
    if (!zs_has_range(layout, box)) return 0;
    int64_t from, span = zs_span(layout, box, &from);
    if (codec->decoded_size(codec->state, raw, (size_t)size) != layout->chunk_size) return 0;
    return codec->decode_range(codec->state, raw, (size_t)size, (size_t)from, (size_t)span, into + from,
                               (size_t)span) == span;
}

/* The cache for a chunk of which `items` are wanted, and its base there; NULL: it is not to be cached. Chunks that are
 * stored as they are go to no cache that nobody asked for: the system has them. */
static inline zs_cache *zs_keeper(const zs_batch *batch, const zs_source *source, int64_t items, int64_t *base) {
    const zs_layout *layout = batch->layout;
    if (source->file < 0) return NULL;
    *base = -1;
    if (batch->keeps_chunks) return zs_cache_fits(batch->cache, layout->chunk_size) ? batch->cache : NULL;
    if (!layout->n_steps || !batch->owner || items * layout->item >= layout->chunk_size) return NULL;
    if (layout->chunk_size > __atomic_load_n(&zs_shared.limit, __ATOMIC_RELAXED) / ZS_SHARED_PARTS) return NULL;
    *base = -batch->owner->id;
    return &zs_shared;
}

/* Whether a box spans at most a quarter of what the array has of its chunk. Its neighbours may well be asked for next:
 * it was cut from the chunk, where items that are wide apart come from one pass over it. */
static inline int zs_is_narrow(const zs_layout *layout, const int64_t *cell, const zs_move *box) {
    int64_t spanned = 1, whole = 1;
    if (!box || box->has_tables) return 0;
    for (int d = 0; d < layout->ndim; d++) {
        int64_t exists = layout->shape[d] - cell[d] * layout->chunk[d];
        whole *= exists < layout->chunk[d] ? exists : layout->chunk[d];
        spanned *= (box->dim[d].count - 1) * (box->dim[d].inside / layout->stride[d]) + 1;
    }
    return spanned <= whole / 4;
}

/* Whether a chunk that was last touched `since` chunks ago (-1: that is not remembered) is worth keeping in the cache
 * of all arrays: where there is room, from its second use on, and from the first where the codec has to decode all of
 * it for a narrow box. */
static inline int zs_is_kept(const zs_batch *batch, const int64_t *cell, int64_t since, const zs_move *box) {
    const zs_layout *layout = batch->layout;
    if (since >= 0) return zs_cache_admits(&zs_shared, layout->chunk_size, since);
    return zs_is_narrow(layout, cell, box) && !zs_has_range(layout, box) &&
           zs_cache_has_room(&zs_shared, layout->chunk_size);
}

/* A decoded chunk through its cache, to be released; none where it is not to be kept: part of it is enough then. */
static inline int zs_read_kept(const zs_batch *batch, zs_cache *keeper, int64_t base, const zs_source *source,
                               zs_entry where, const zs_move *box, zs_scratch *scratch, zs_kept **chunk,
                               zs_fault *fault) {
    const zs_layout *layout = batch->layout;
    int64_t since = keeper == &zs_shared ? zs_touch(fault->inner, layout->ndim, base) : 0;
    if ((*chunk = zs_cache_find(keeper, fault->inner, layout->ndim, base, source))) return ZS_OK;
    if (keeper == &zs_shared && !zs_is_kept(batch, fault->inner, since, box)) return ZS_OK;
    zs_kept *made = zs_kept_make(fault->inner, layout->ndim, base, source, layout->chunk_size);
    if (!made) return zs_fail(fault, ZS_FAULT_MEMORY, 0, layout->chunk_size);
    int code = zs_fetch_decoded(layout, source, where, scratch, made->payload, fault);
    if (code) {
        free(made);
        return code;
    }
    if (keeper == &zs_shared) atomic_store_explicit(&batch->owner->has_kept, 1, memory_order_relaxed);
    zs_cache_keep(keeper, made);
    *chunk = made;
    return ZS_OK;
}

/* A chunk of which `items` are wanted, those of `box` unless it is NULL: decoded, from its cache (to be released), or
 * else as it is stored. */
static inline int zs_get_chunk(const zs_batch *batch, const zs_source *source, zs_entry where, int64_t items,
                               const zs_move *box, zs_scratch *scratch, zs_cache **keeper, zs_kept **kept,
                               const char **raw, zs_fault *fault) {
    int64_t base;
    *kept = NULL;
    int code = zs_check_size(batch->layout, (int64_t)where.size, fault);
    if (code) return code;
    *keeper = zs_keeper(batch, source, items, &base);
    if (*keeper) {
        code = zs_read_kept(batch, *keeper, base, source, where, box, scratch, kept, fault);
        if (code || *kept) return code;
    }
    return zs_fetch(source, (int64_t)where.offset, (int64_t)where.size, &scratch->raw, raw, fault);
}

/* Decode one inner chunk and move its items to where the box says. */
static inline int zs_read_box(const zs_batch *batch, const zs_source *source, zs_entry where, zs_move *box,
                              zs_scratch *scratch, zs_fault *fault) {
    const zs_layout *layout = batch->layout;
    const char *raw, *chunk;
    int64_t items = 1, size = (int64_t)where.size, base;
    if (layout->n_steps == 0) {
        if (size != layout->chunk_size) return zs_fail(fault, ZS_FAULT_SIZE, size, layout->chunk_size);
        if (!box->has_tables && !zs_keeper(batch, source, 1, &base))
            return zs_read_plain(batch, source, (int64_t)where.offset, box, scratch, fault);
    }
    for (int d = 0; d < layout->ndim; d++) items *= box->dim[d].count;
    zs_cache *keeper;
    zs_kept *kept;
    int code = zs_get_chunk(batch, source, where, items, box, scratch, &keeper, &kept, &raw, fault);
    if (code) return code;
    if (kept || layout->n_steps == 0) {
        zs_to_outside(layout, box, kept ? kept->payload : raw);
        zs_kept_release(keeper, kept);
        return ZS_OK;
    }
    if (box->is_direct) {
        code = zs_decode(layout, scratch, raw, size, box->outside, &chunk, fault);
        if (!code && layout->unit) zs_swap_run(box->outside, layout->chunk_size, layout->unit);
        return code;
    }
    char *into = zs_reserve(&scratch->chunk, layout->chunk_size);
    if (!into) return zs_fail(fault, ZS_FAULT_MEMORY, 0, layout->chunk_size);
    if (zs_read_range(layout, raw, size, box, into)) {
        zs_to_outside(layout, box, into);
        return ZS_OK;
    }
    code = zs_decode(layout, scratch, raw, size, into, &chunk, fault);
    if (!code) zs_to_outside(layout, box, chunk);
    return code;
}

/* Get a chunk and call `use` with it decoded, for first … last; unless `partly`, called with the stored chunk and
 * memory for a decoded one, could do with less. */
static inline int
zs_use_chunk(const zs_batch *batch, const zs_source *source, zs_entry where, int64_t first, int64_t last,
             void (*use)(const zs_batch *, int64_t first, int64_t last, const char *chunk),
             int (*partly)(const zs_batch *, int64_t first, int64_t last, const char *raw, int64_t size, char *into),
             zs_scratch *scratch, zs_fault *fault) {
    const zs_layout *layout = batch->layout;
    const char *raw, *chunk;
    zs_cache *keeper;
    zs_kept *kept;
    int code = zs_get_chunk(batch, source, where, 1, NULL, scratch, &keeper, &kept, &raw, fault);
    if (code) return code;
    if (kept) {
        use(batch, first, last, kept->payload);
        zs_kept_release(keeper, kept);
        return ZS_OK;
    }
    char *into = layout->n_steps ? zs_reserve(&scratch->chunk, layout->chunk_size) : NULL;
    if (layout->n_steps && !into) return zs_fail(fault, ZS_FAULT_MEMORY, 0, layout->chunk_size);
    if (partly && partly(batch, first, last, raw, (int64_t)where.size, into)) return ZS_OK;
    code = zs_decode(layout, scratch, raw, (int64_t)where.size, into, &chunk, fault);
    if (!code) use(batch, first, last, chunk);
    return code;
}

/* Read the members first … last of a group from its decoded chunk. */
static void zs_points_out(const zs_batch *batch, int64_t first, int64_t last, const char *chunk) {
    const zs_points *points = batch->points;
    const zs_move_dim line = {last - first, 1, batch->stride[0], points->inside + first,
                              points->order ? points->order + first : NULL};
    char *outside = points->order ? batch->memory : batch->memory + first * batch->stride[0];
    zs_table_line(batch->layout, &line, (char *)chunk, outside, 0);
}

/* Read the points of one group: chunk by chunk, or item by item where few lie in a chunk stored without encoding. */
static inline int zs_read_points(const zs_batch *batch, const zs_source *source, zs_entry where, int64_t group,
                                 zs_scratch *scratch, zs_fault *fault) {
    const zs_layout *layout = batch->layout;
    int64_t first = batch->points->groups.start[group], last = batch->points->groups.start[group + 1],
            size = (int64_t)where.size, base;
    const char *raw;
    if (layout->n_steps == 0 && size != layout->chunk_size)
        return zs_fail(fault, ZS_FAULT_SIZE, size, layout->chunk_size);
    if (layout->n_steps == 0 && source->file >= 0 && (last - first) * 4096 < size &&
        !zs_keeper(batch, source, 1, &base)) {
        for (int64_t m = first; m < last; m++) {
            int64_t at = (int64_t)where.offset + batch->points->inside[m];
            int code = zs_fetch(source, at, layout->item, &scratch->raw, &raw, fault);
            if (code) return code;
            zs_copy_item(zs_point_at(batch, m), raw, layout->item, layout->unit);
        }
        return ZS_OK;
    }
    return zs_use_chunk(batch, source, where, first, last, zs_points_out, NULL, scratch, fault);
}

/* Where the inner chunk of a spot lies in its outer chunk, which is opened unless the thread has it open; ZS_EMPTY
 * twice where it is missing and that is no fault. */
static inline int zs_find_chunk(const zs_batch *batch, const zs_spot *spot, zs_thread *thread, zs_entry *where,
                                zs_fault *fault) {
    zs_open_chunk *open = &thread->open;
    *where = (zs_entry){ZS_EMPTY, ZS_EMPTY};
    if (open->outer != spot->outer) {
        zs_close_chunk(open);
        open->cache = batch->cache;
        int code = zs_open_outer(batch, spot->outer, spot->cell, &open->held, &open->missed, &open->source,
                                 &open->is_missing, fault);
        if (code) return code;
        open->outer = spot->outer;
    }
    if (!open->is_missing) {
        int code = zs_locate(batch->layout, batch->cache, &open->source, spot->cell, spot->within, open->index,
                             thread->scratch, where, fault);
        if (code) return code;
    }
    fault->has_inner = batch->layout->n_levels > 0;
    if (where->offset == ZS_EMPTY && batch->missing_is_fault) return zs_fail(fault, ZS_FAULT_MISSING, 0, 0);
    return ZS_OK;
}

/* Read what a task wants of its chunk, whose place is known. */
static inline int zs_read_found(const zs_batch *batch, int64_t task, const zs_spot *spot, const zs_source *source,
                                zs_entry where, zs_scratch *scratch, zs_fault *fault) {
    const zs_layout *layout = batch->layout;
    if (batch->points) {
        if (where.offset != ZS_EMPTY) return zs_read_points(batch, source, where, task, scratch, fault);
        for (int64_t m = batch->points->groups.start[task]; m < batch->points->groups.start[task + 1]; m++)
            memcpy(zs_point_at(batch, m), layout->fill_native, (size_t)layout->item);
        return ZS_OK;
    }
    zs_move box;
    zs_move_make(layout, batch->plan, spot->segment, batch->memory, batch->stride, &box);
    if (where.offset != ZS_EMPTY) return zs_read_box(batch, source, where, &box, scratch, fault);
    zs_fill_outside(layout, &box, 0, box.outside);
    return ZS_OK;
}

/* Where a task's chunk is: among the inner chunks that were given, which `given` stands for then, or below its outer
 * chunk, which is opened. */
static inline int zs_find_task(const zs_batch *batch, int64_t task, const zs_spot *spot, zs_thread *thread,
                               zs_source *given, const zs_source **source, zs_entry *where, zs_fault *fault) {
    if (!batch->inner) {
        *source = &thread->open.source;
        return zs_find_chunk(batch, spot, thread, where, fault);
    }
    *given = (zs_source){.file = -1, .data = batch->inner[task].data, .size = batch->inner[task].size};
    *source = given;
    *where = given->data ? (zs_entry){0, (uint64_t)given->size} : (zs_entry){ZS_EMPTY, ZS_EMPTY};
    fault->has_inner = batch->layout->n_levels > 0;
    return given->data || !batch->missing_is_fault ? ZS_OK : zs_fail(fault, ZS_FAULT_MISSING, 0, 0);
}

/* Run one task: an inner chunk of a box plan, or a group of points. */
static int zs_read_task(zs_batch *batch, int64_t task, zs_thread *thread, zs_fault *fault) {
    zs_spot spot;
    zs_source given;
    const zs_source *source;
    zs_entry where;
    zs_task_spot(batch, task, thread->open.outer, &spot, fault);
    int code = zs_find_task(batch, task, &spot, thread, &given, &source, &where, fault);
    return code ? code : zs_read_found(batch, task, &spot, source, where, thread->scratch, fault);
}

/* Run the whole batch; the first fault is in batch->fault afterwards. */
static void zs_read_run(zs_batch *batch, int threads) {
    batch->run = zs_read_task;
    zs_batch_run(batch, threads);
}

/* Opens, reads and writes that were counted and not noted one by one, while a trace was open. */
enum { ZS_BRIEF_OPEN, ZS_BRIEF_READ, ZS_BRIEF_WRITE, ZS_BRIEF_KINDS };

static struct {
    _Atomic int64_t calls, nanoseconds, chunks, bytes;
} zs_brief[ZS_BRIEF_KINDS];

static inline int64_t zs_tick(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return zs_nanoseconds(&now);
}

static inline void zs_brief_count(int kind, int64_t nanoseconds, int64_t chunks, int64_t bytes) {
    atomic_fetch_add_explicit(&zs_brief[kind].calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&zs_brief[kind].nanoseconds, nanoseconds, memory_order_relaxed);
    atomic_fetch_add_explicit(&zs_brief[kind].chunks, chunks, memory_order_relaxed);
    atomic_fetch_add_explicit(&zs_brief[kind].bytes, bytes, memory_order_relaxed);
}

#endif

/* write.h - a batch of writes: gather, encode and put; a chunk that is covered in part is read first.
 *
 * A chunk without sharding is one task. The inner chunks of a shard are tasks of their own; whoever finishes the
 * last one puts the shard, in which inner chunks that were not touched keep their encoded bytes.
 */
#ifndef ZS_WRITE_H
#define ZS_WRITE_H

#include "batch.h"
#include "recode.h"

#define ZS_MAX_ROWS 1024
#define ZS_ROW_SIZE 1024

/* A flag that any thread may set, and none clears. */
static inline void zs_say(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_RELAXED); }

enum { ZS_UNCHANGED, ZS_REPLACED, ZS_REMOVED };

/* The encoded outer chunk, where the caller stores it. */
typedef struct {
    int kind;
    char *data; /* malloc'd */
    int64_t size;
} zs_result;

typedef struct {
    pthread_mutex_t lock;
    int is_begun, failed;
    int lock_file; /* -1: none held */
    zs_source source;
    int is_missing;
    zs_kept *index;       /* of the stored shard; NULL where all of it is replaced */
    zs_bytes *piece;      /* encoded inner chunks; size ZS_UNTOUCHED: as it was; data NULL: empty */
    _Atomic int64_t left; /* tasks to go */
} zs_shard;

#define ZS_UNTOUCHED (-1)

typedef struct {
    zs_batch batch;
    int skip_empty;    /* chunks of nothing but the fill value are not stored */
    zs_result *result; /* per outer chunk, where the caller keeps the bytes */
    zs_shard *shard;   /* per outer chunk, where there are shards */
} zs_write_job;

/* Write the points of one group into a decoded chunk; of repeated points the last one counts. */
static inline void zs_points_in(const zs_batch *batch, int64_t group, char *chunk) {
    const zs_points *points = batch->points;
    for (int64_t m = points->groups.start[group]; m < points->groups.start[group + 1]; m++)
        zs_copy_item(chunk + points->inside[m], zs_point_at(batch, m), batch->layout->item, batch->layout->unit);
}

/* Whether a box covers every item of its chunk, none of which lies outside the array. */
static inline int zs_takes_all(const zs_layout *layout, const zs_move *box) {
    if (!box || !box->is_whole) return 0;
    for (int d = 0; d < layout->ndim; d++)
        if (box->dim[d].count != layout->chunk[d]) return 0;
    return 1;
}

/* Whether the fault is damage that may be overwritten, as all items there are replaced (`is_replaced`); the fault is
 * cleared then. */
static inline int zs_is_damage(zs_fault *fault, int is_replaced) {
    int is_damage = fault->code != ZS_OK && fault->code != ZS_FAULT_STORE && fault->code != ZS_FAULT_MEMORY;
    if (!is_damage || !is_replaced) return 0;
    fault->code = ZS_OK;
    return 1;
}

/* Compose a decoded inner chunk in `into`: the stored items (at `where`), overwritten by the caller's. */
static inline int zs_compose(const zs_batch *batch, int64_t task, const zs_move *box, const zs_source *source,
                             zs_entry where, zs_scratch *scratch, char *into, zs_fault *fault) {
    const zs_layout *layout = batch->layout;
    int is_there = where.offset != ZS_EMPTY;
    if (is_there) {
        int code = zs_fetch_decoded(layout, source, where, scratch, into, fault);
        is_there = !zs_is_damage(fault, box && box->is_whole);
        if (code && is_there) return code;
    }
    if (!is_there && !zs_takes_all(layout, box))
        zs_fill_run(into, layout->chunk_size / layout->item, layout->fill, layout->item, layout->fill_is_zero);
    if (box) zs_to_chunk(layout, box, into);
    else zs_points_in(batch, task, into);
    return ZS_OK;
}

/* Hand over one outer chunk, to its file or to the caller; without parts it is to be removed. */
static inline int zs_deliver(zs_write_job *job, int64_t outer, const char *key, const zs_part *parts, int n, int old,
                             zs_parent *parent, zs_fault *fault) {
    const zs_place *place = &job->batch.place;
    if (!job->result) {
        int failed = n ? zs_put(place, key, parts, n, old, parent) : zs_remove(place, key, parent);
        return failed < 0 ? zs_store_fault(fault) : ZS_OK;
    }
    zs_result *result = &job->result[outer];
    result->kind = n ? ZS_REPLACED : ZS_REMOVED;
    for (int i = 0; i < n; i++) result->size += parts[i].size;
    if (!n) return ZS_OK;
    char *to = result->data = malloc((size_t)result->size + 1);
    if (!to) return zs_fail(fault, ZS_FAULT_MEMORY, 0, result->size);
    for (int i = 0; i < n; i++) {
        memcpy(to, parts[i].data, (size_t)parts[i].size);
        to += parts[i].size;
    }
    return ZS_OK;
}

static inline int zs_dims_are_filled(const char *at, const zs_dim *dim, int n, const char *fill, int64_t item) {
    if (n == 0) return !memcmp(at, fill, (size_t)item);
    if (n == 1 && dim->from == item) return zs_is_filled(at, dim->count * item, fill, item);
    for (int64_t i = 0; i < dim->count; i++)
        if (!zs_dims_are_filled(at + i * dim->from, dim + 1, n - 1, fill, item)) return 0;
    return 1;
}

/* Whether the caller's items are all the fill value, bit for bit: known before any of them is moved. */
static inline int zs_is_box_filled(const zs_layout *layout, const zs_move *box) {
    zs_dim dim[ZS_MAX_NDIM];
    int n = 0;
    for (int d = 0; d < layout->ndim; d++)
        if (box->dim[d].outside) dim[n++] = (zs_dim){box->dim[d].count, box->dim[d].outside, box->dim[d].outside};
    n = zs_simplify(dim, n);
    return zs_dims_are_filled(box->outside, dim, n, layout->fill_native, layout->item);
}

/* The rows of a box that covers a whole chunk, in the caller's memory and in stored order; 0 where they are too many
 * or too short to be written from there. */
static inline int zs_rows_of(const zs_layout *layout, const zs_move *box, zs_part *rows) {
    zs_dim dim[ZS_MAX_NDIM];
    for (int d = 0; d < layout->ndim; d++)
        dim[d] = (zs_dim){box->dim[d].count, box->dim[d].inside, box->dim[d].outside};
    int n = zs_simplify(dim, layout->ndim);
    if (n == 0 || n > 2 || dim[n - 1].to != layout->item || dim[n - 1].from != layout->item) return 0;
    int64_t count = n == 2 ? dim[0].count : 1, run = dim[n - 1].count * layout->item;
    if (count > ZS_MAX_ROWS || run < ZS_ROW_SIZE) return 0;
    for (int64_t i = 0; i < count; i++) rows[i] = (zs_part){box->outside + i * dim[0].from, 0, run};
    return (int)count;
}

/* An inner chunk as it is to be stored: `*encoded`, which lies in scratch, where it was composed (`room`) or in the
 * caller's memory; NULL where it holds nothing but the fill value, and such are not stored. */
static inline int zs_make_stored(zs_write_job *job, int64_t task, const zs_move *box, const zs_source *source,
                                 zs_entry where, zs_scratch *scratch, zs_buffer *room, const char **encoded,
                                 int64_t *size, zs_fault *fault) {
    const zs_layout *layout = job->batch.layout;
    if (zs_replace_blocks(layout, box, source, where, job->skip_empty, scratch, encoded, size)) return ZS_OK;
    const char *chunk = box ? box->outside : NULL;
    if (!box || !box->is_direct || layout->unit) {
        char *into = zs_reserve(room, layout->chunk_size);
        if (!into) return zs_fail(fault, ZS_FAULT_MEMORY, 0, layout->chunk_size);
        int code = zs_compose(&job->batch, task, box, source, where, scratch, into, fault);
        if (code) return code;
        chunk = into;
    }
    *encoded = NULL;
    if (job->skip_empty && !zs_takes_all(layout, box) &&
        zs_is_filled(chunk, layout->chunk_size, layout->fill, layout->item))
        return ZS_OK;
    return zs_encode(layout, scratch, chunk, encoded, size, fault);
}

static inline int zs_write_plain(zs_write_job *job, int64_t task, const zs_spot *spot, const zs_move *box,
                                 const char *key, zs_thread *thread, zs_fault *fault) {
    const zs_layout *layout = job->batch.layout;
    zs_source source = {.file = -1};
    zs_entry where = {ZS_EMPTY, ZS_EMPTY};
    zs_part part = {NULL, 0, 0};
    int code = ZS_OK, is_missing = 1;
    if (layout->n_steps == 0 && !layout->unit && zs_takes_all(layout, box)) {
        zs_part *rows = (zs_part *)zs_reserve(&thread->scratch->chunk, ZS_MAX_ROWS * sizeof *rows);
        if (!rows) return zs_fail(fault, ZS_FAULT_MEMORY, 0, ZS_MAX_ROWS * sizeof *rows);
        int n = zs_rows_of(layout, box, rows);
        if (n) return zs_deliver(job, spot->outer, key, rows, n, -1, &thread->parent, fault);
    }
    if (!zs_takes_all(layout, box))
        code = zs_open_outer(&job->batch, spot->outer, spot->cell, NULL, NULL, &source, &is_missing, fault);
    if (!code && !is_missing) where = (zs_entry){0, (uint64_t)source.size};
    if (!code)
        code = zs_make_stored(job, task, box, &source, where, thread->scratch, &thread->scratch->chunk, &part.data,
                              &part.size, fault);
    if (source.file >= 0) close(source.file);
    if (code) return code;
    return zs_deliver(job, spot->outer, key, &part, part.data != NULL, -1, &thread->parent, fault);
}

/* Prepare a shard, in its first task: lock it, and read its index unless all inner chunks are replaced. */
static inline int zs_shard_begin(zs_write_job *job, zs_shard *shard, const zs_spot *spot, const char *key,
                                 zs_thread *thread, zs_fault *fault) {
    const zs_layout *layout = job->batch.layout;
    const zs_level *level = &layout->level[0];
    const int64_t *start = job->batch.points ? job->batch.points->groups.outer_start : job->batch.plan->outer_start;
    shard->left = start[spot->outer + 1] - start[spot->outer];
    shard->is_missing = 1;
    shard->source.file = shard->lock_file = -1;
    shard->is_begun = 1;
    shard->piece = calloc((size_t)level->n, sizeof *shard->piece);
    if (!shard->piece) return zs_fail(fault, ZS_FAULT_MEMORY, 0, level->n * 16);
    for (int64_t i = 0; i < level->n; i++) shard->piece[i].size = ZS_UNTOUCHED;
    if (zs_has_locks(&job->batch.place) &&
        zs_lock(&job->batch.place, key, &shard->lock_file, thread->poll, &job->batch.stop))
        return zs_store_fault(fault);
    int covers = zs_covers_outer(&job->batch, spot->cell);
    if (covers == 2) return ZS_OK;
    int code =
        zs_open_outer(&job->batch, spot->outer, spot->cell, NULL, NULL, &shard->source, &shard->is_missing, fault);
    if (code || shard->is_missing) return code;
    code = zs_index_get(layout, level, job->batch.cache, &shard->source, spot->cell, 0, shard->source.size,
                        thread->scratch, &shard->index, fault);
    return zs_is_damage(fault, covers == 1) ? ZS_OK : code;
}

static inline void zs_shard_end(zs_write_job *job, zs_shard *shard) {
    if (shard->piece)
        for (int64_t i = 0; i < job->batch.layout->level[0].n; i++) free((void *)shard->piece[i].data);
    free(shard->piece);
    shard->piece = NULL;
    zs_kept_release(job->batch.cache, shard->index);
    shard->index = NULL;
    if (shard->source.file >= 0) close(shard->source.file);
    if (shard->lock_file >= 0) {
        zs_unlock(shard->lock_file);
        close(shard->lock_file);
    }
    shard->source.file = shard->lock_file = -1;
}

static inline void zs_store64(char *at, uint64_t v, int is_big) {
    if (is_big) v = __builtin_bswap64(v);
    memcpy(at, &v, 8);
}

/* Lay out the inner chunks one after another and write the index. Untouched ones keep their encoded bytes, and
 * neighbours among them become one part. Returns the number of parts. */
static inline int zs_shard_lay_out(zs_write_job *job, const zs_shard *shard, char *index, zs_part *parts) {
    const zs_level *level = &job->batch.layout->level[0];
    int64_t index_size = zs_index_size(level), offset = level->index_at_start ? index_size : 0;
    int n = level->index_at_start;
    for (int64_t i = 0; i < level->n; i++) {
        zs_part part = {shard->piece[i].data, 0, shard->piece[i].size};
        int is_there = part.data != NULL, is_kept = part.size == ZS_UNTOUCHED;
        if (is_kept && shard->index) {
            zs_entry entry = zs_entries(shard->index)[i];
            is_there = entry.offset != ZS_EMPTY;
            part = (zs_part){NULL, (int64_t)entry.offset, (int64_t)entry.size};
            if (is_there && shard->source.file < 0) part.data = shard->source.data + entry.offset;
        }
        zs_store64(index + 16 * i, is_there ? (uint64_t)offset : ZS_EMPTY, level->index_is_big);
        zs_store64(index + 16 * i + 8, is_there ? (uint64_t)part.size : ZS_EMPTY, level->index_is_big);
        if (!is_there) continue;
        zs_part *last = n ? &parts[n - 1] : NULL;
        if (!part.data && last && n > level->index_at_start && !last->data && last->from + last->size == part.from)
            last->size += part.size;
        else parts[n++] = part;
        offset += part.size;
    }
    if (n == level->index_at_start) return 0;
    if (level->has_checksum) {
        uint32_t sum = zs_crc32c(index, (size_t)(level->n * 16));
        memcpy(index + level->n * 16, &sum, 4);
    }
    parts[level->index_at_start ? 0 : n] = (zs_part){index, 0, index_size};
    return level->index_at_start ? n : n + 1;
}

static inline int zs_shard_put(zs_write_job *job, zs_shard *shard, int64_t outer, const char *key, zs_thread *thread,
                               zs_fault *fault) {
    const zs_level *level = &job->batch.layout->level[0];
    zs_part *parts = malloc(sizeof *parts * (size_t)(level->n + 1));
    char *index = malloc((size_t)zs_index_size(level));
    int code;
    if (parts && index) {
        int n = zs_shard_lay_out(job, shard, index, parts);
        code = zs_deliver(job, outer, key, parts, n, shard->source.file, &thread->parent, fault);
    } else {
        code = zs_fail(fault, ZS_FAULT_MEMORY, 0, level->n * 40);
    }
    free(parts);
    free(index);
    return code;
}

/* One inner chunk, encoded, in memory of its own; data NULL where it holds nothing but the fill value. */
static inline int zs_make_piece(zs_write_job *job, int64_t task, const zs_move *box, const zs_source *source,
                                zs_entry where, zs_scratch *scratch, zs_bytes *piece, zs_fault *fault) {
    const zs_layout *layout = job->batch.layout;
    const char *encoded;
    int64_t size = layout->chunk_size;
    zs_buffer own = {NULL, 0}; /* where nothing is encoded, a chunk is composed in its own memory at once */
    if (layout->n_steps == 0 && (own.data = malloc((size_t)size + 1))) own.size = (size_t)size;
    int code = zs_make_stored(job, task, box, source, where, scratch, own.data ? &own : &scratch->chunk, &encoded,
                              &size, fault);
    if (!code && encoded && encoded != own.data) {
        if (!own.data) own.data = malloc((size_t)size + 1);
        if (!own.data) return zs_fail(fault, ZS_FAULT_MEMORY, 0, size);
        memcpy(own.data, encoded, (size_t)size);
    }
    if (code || !encoded) free(own.data);
    else *piece = (zs_bytes){own.data, size};
    return code;
}

static inline int zs_write_piece(zs_write_job *job, int64_t task, const zs_spot *spot, const zs_move *box,
                                 const char *key, zs_thread *thread, zs_fault *fault) {
    const zs_layout *layout = job->batch.layout;
    const zs_level *level = &layout->level[0];
    zs_shard *shard = &job->shard[spot->outer];
    zs_entry where = {ZS_EMPTY, ZS_EMPTY};
    int64_t slot = 0;
    int code = ZS_OK;
    if (zs_enter(&shard->lock, thread, fault)) return fault->code;
    if (!shard->is_begun) shard->failed = code = zs_shard_begin(job, shard, spot, key, thread, fault);
    int failed = shard->failed;
    pthread_mutex_unlock(&shard->lock);
    if (code) return code;
    if (failed) { /* another thread has reported it */
        atomic_store(&job->batch.stop, 1);
        return ZS_OK;
    }
    for (int d = 0; d < layout->ndim; d++) slot = slot * level->count[d] + spot->within[d];
    if (shard->index && !zs_takes_all(layout, box)) where = zs_entries(shard->index)[slot];
    fault->has_inner = 1;
    zs_bytes piece = {NULL, 0};
    if (!job->skip_empty || !zs_takes_all(layout, box) || !zs_is_box_filled(layout, box)) {
        code = zs_make_piece(job, task, box, &shard->source, where, thread->scratch, &piece, fault);
        if (code) return code;
    }
    shard->piece[slot] = piece;
    if (atomic_fetch_sub(&shard->left, 1) > 1) return ZS_OK;
    fault->has_inner = 0;
    code = zs_shard_put(job, shard, spot->outer, key, thread, fault);
    zs_shard_end(job, shard);
    return code;
}

static int zs_write_task(zs_batch *batch, int64_t task, zs_thread *thread, zs_fault *fault) {
    zs_write_job *job = (zs_write_job *)batch;
    char key[ZS_KEY_SIZE];
    zs_spot spot;
    zs_move made, *box = NULL;
    zs_task_spot(batch, task, -1, &spot, fault);
    zs_key(batch->layout, spot.cell, key);
    if (!batch->points) {
        box = &made;
        zs_move_make(batch->layout, batch->plan, spot.segment, batch->memory, batch->stride, box);
    }
    if (job->shard) return zs_write_piece(job, task, &spot, box, key, thread, fault);
    int is_locked = zs_has_locks(&batch->place);
    int is_empty = job->skip_empty && zs_takes_all(batch->layout, box) && zs_is_box_filled(batch->layout, box);
    if (is_empty && batch->place.directory >= 0 && zs_was_absent(&batch->place, key, &thread->parent)) return ZS_OK;
    if (is_locked && zs_lock(&batch->place, key, &thread->document, thread->poll, &batch->stop))
        return zs_store_fault(fault);
    int code = is_empty ? zs_deliver(job, spot.outer, key, NULL, 0, -1, &thread->parent, fault)
                        : zs_write_plain(job, task, &spot, box, key, thread, fault);
    if (is_locked) zs_unlock(thread->document);
    return code;
}

/* Run the whole batch; what a fault left unfinished is released, and nothing of it stored. */
static void zs_write_run(zs_write_job *job, int threads) {
    int64_t n = job->batch.points ? job->batch.points->groups.n_outer : job->batch.plan->n_outer;
    if (job->batch.layout->n_levels) {
        job->shard = calloc((size_t)n + 1, sizeof *job->shard);
        if (!job->shard) {
            zs_fail(&job->batch.fault, ZS_FAULT_MEMORY, 0, n);
            return;
        }
        for (int64_t o = 0; o < n; o++) {
            pthread_mutex_init(&job->shard[o].lock, NULL);
            job->shard[o].source.file = job->shard[o].lock_file = -1;
        }
    }
    job->batch.run = zs_write_task;
    zs_batch_run(&job->batch, threads);
    for (int64_t o = 0; job->shard && o < n; o++) {
        if (job->shard[o].lock_file >= 0 || job->shard[o].piece) zs_shard_end(job, &job->shard[o]);
        pthread_mutex_destroy(&job->shard[o].lock);
    }
    free(job->shard);
}

#endif

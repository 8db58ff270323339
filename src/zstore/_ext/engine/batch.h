/* batch.h - runs the tasks of one read or write on several threads; the first fault stops all of them. */
#ifndef ZS_BATCH_H
#define ZS_BATCH_H

#include "move.h"
#include "pool.h"
#include "put.h"
#include "shard.h"
#include "stretch.h"
#include <time.h>

#define ZS_MAX_GRAIN 32 /* the most tasks that a thread takes at a time */

/* A value in memory; data NULL: there is no value. */
typedef struct {
    const char *data;
    int64_t size;
} zs_bytes;

/* A directory in which a thread has missed a chunk, for as long as one call lasts: what is below one that was missing
 * at some moment of the call was missing too. */
typedef struct {
    char path[ZS_KEY_SIZE]; /* the topmost one that is missing */
    size_t size;            /* of `path`; 0: none */
    int is_asked, is_missing;
} zs_missed;

/* The outer chunk that a thread has open, for its next tasks too. */
typedef struct {
    zs_missed missed;
    int64_t outer; /* its number in the plan, -1: none */
    int is_missing;
    zs_source source;
    zs_held held; /* source.file too, where chunks are stretches of files */
    zs_cache *cache;
    zs_kept *index[ZS_MAX_LEVELS]; /* of that cache */
} zs_open_chunk;

/* The state of one thread while it works on a batch. */
typedef struct {
    zs_scratch *scratch;
    zs_open_chunk open;
    zs_parent parent;
    int document;      /* the array's, opened for locking; -1: not yet */
    int (*poll)(void); /* on the caller's thread: asks Python whether to stop */
    int64_t part;      /* that it has a chunk of open, in a batch of several parts */
} zs_thread;

typedef struct zs_batch {
    zs_job job;
    const zs_layout *layout;
    const zs_plan *plan;           /* boxes, or … */
    const zs_points *points;       /* … points */
    char *memory;                  /* the caller's */
    int64_t stride[ZS_MAX_NDIM];   /* of it, per dimension of the array; for points stride[0] */
    zs_place place;                /* place.directory -1: the bytes are given */
    const zs_stretches *stretches; /* or every outer chunk is a stretch of some file */
    const zs_bytes *outer;         /* the outer chunks' bytes, in order of the plan */
    const zs_bytes *inner;         /* or the inner chunks', in order of the plan */
    zs_cache *cache;
    int keeps_chunks; /* decoded chunks go into the cache too */
    zs_owner *owner;  /* else chunks read in part go into the shared one; NULL: they don't */
    int missing_is_fault;
    int (*poll)(void); /* asks Python, on the caller's thread, whether to stop */
    int (*run)(struct zs_batch *batch, int64_t task, zs_thread *thread, zs_fault *fault);
    int64_t n_tasks; /* tasks `next` … n_tasks - 1 are to be done … */
    int threads;     /* … by so many */
    _Atomic int64_t next;
    atomic_int stop;
    pthread_mutex_t lock; /* of what follows, and of the shards being written */
    zs_fault fault;
} zs_batch;

/* The position of a task: its segments (of boxes), its outer chunk, that chunk's coordinates, and its own within it. */
typedef struct {
    int64_t segment[ZS_MAX_NDIM], cell[ZS_MAX_NDIM], within[ZS_MAX_NDIM];
    int64_t outer;
} zs_spot;

static inline void zs_task_spot(const zs_batch *batch, int64_t task, int64_t guess, zs_spot *spot, zs_fault *fault) {
    const zs_layout *layout = batch->layout;
    if (batch->points) {
        const int64_t *inner = batch->points->groups.cell + task * layout->ndim;
        spot->outer = zs_group_outer(&batch->points->groups, task, guess);
        for (int d = 0; d < layout->ndim; d++) {
            fault->inner[d] = inner[d];
            spot->cell[d] = inner[d] / layout->per_outer[d];
        }
    } else {
        spot->outer = zs_plan_task(batch->plan, task, spot->segment, spot->cell);
        for (int d = 0; d < layout->ndim; d++) fault->inner[d] = batch->plan->axis[d].cell[spot->segment[d]];
    }
    for (int d = 0; d < layout->ndim; d++) spot->within[d] = fault->inner[d] - spot->cell[d] * layout->per_outer[d];
    memcpy(fault->cell, spot->cell, sizeof(int64_t) * (size_t)layout->ndim);
    fault->has_inner = 0;
}

/* The address of a member of a group of points in the caller's memory. */
static inline char *zs_point_at(const zs_batch *batch, int64_t member) {
    int64_t point = batch->points->order ? batch->points->order[member] : member;
    return batch->memory + point * batch->stride[0];
}

/* How much of an outer chunk a box plan covers: 2 all of it, 1 the part within the array's shape as its reader knows it
 * (others may have appended since), 0 less. */
static inline int zs_covers_outer(const zs_batch *batch, const int64_t *cell) {
    const zs_layout *layout = batch->layout;
    int covers = batch->points ? 0 : 2;
    for (int d = 0; covers && d < layout->ndim; d++) {
        const zs_axis *axis = &batch->plan->axis[d];
        if (axis->inside || axis->step != 1) return 0;
        int64_t first = cell[d] * layout->per_outer[d] * layout->chunk[d];
        int64_t last = first + layout->per_outer[d] * layout->chunk[d], end = axis->n - 1;
        if (last > layout->shape[d]) {
            last = layout->shape[d];
            covers = 1;
        }
        int64_t begin = axis->cell[0] * layout->chunk[d] + axis->first[0]; /* contiguous, so both ends are enough */
        int64_t finish = axis->cell[end] * layout->chunk[d] + axis->first[end] + axis->items[end];
        if (begin > first || finish < last) return 0;
    }
    return covers;
}

/* Wait for a mutex for at most ZS_POLL_INTERVAL: 0 if it was locked. macOS has no timed wait, so it is tried twice. */
static inline int zs_try_enter(pthread_mutex_t *lock) {
#if !defined(__APPLE__) && !defined(ZS_PORTABLE)
    struct timespec until = zs_after(CLOCK_REALTIME, ZS_POLL_INTERVAL);
    return pthread_mutex_timedlock(lock, &until);
#else
    if (!pthread_mutex_trylock(lock)) return 0;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return pthread_mutex_trylock(lock);
#endif
}

/* Lock a mutex whose holder may be waiting for others; on the caller's thread, until a signal says stop. */
static inline int zs_enter(pthread_mutex_t *lock, const zs_thread *thread, zs_fault *fault) {
    while (thread->poll) {
        if (!zs_try_enter(lock)) return ZS_OK;
        if (thread->poll()) return zs_fail(fault, ZS_FAULT_SIGNAL, 0, 0);
    }
    pthread_mutex_lock(lock);
    return ZS_OK;
}

/* Whether the directory `path` is missing: a link that leads nowhere is not. */
static inline int zs_is_absent(const zs_place *place, const char *path) {
    int file = zs_open_linked(place, path, ZS_PLACE | O_DIRECTORY), reason = errno;
    if (file >= 0) close(file);
    return file < 0 && reason == ENOENT;
}

/* Note that a key was missing. Of two in one directory, the second asks for the directory, and for those above it. */
static inline void zs_note_missed(const zs_place *place, const char *key, zs_missed *missed) {
    const char *slash = strrchr(key, '/');
    size_t size = slash ? (size_t)(slash - key) : 0;
    if (!size) return;
    if (missed->is_missing || missed->size != size || strncmp(missed->path, key, size)) {
        memcpy(missed->path, key, size);
        missed->path[size] = 0;
        missed->size = size;
        missed->is_asked = missed->is_missing = 0;
        return;
    }
    if (missed->is_asked) return;
    missed->is_asked = 1;
    missed->is_missing = zs_is_absent(place, missed->path);
    for (char *end; missed->is_missing && (end = strrchr(missed->path, '/'));) {
        *end = 0;
        if (!zs_is_absent(place, missed->path)) {
            *end = '/';
            break;
        }
        missed->size = (size_t)(end - missed->path);
    }
}

/* Open the file of an outer chunk; a missing file is no fault here. `missed` may be NULL. */
static inline int zs_open_source(const zs_layout *layout, const zs_place *place, const int64_t *cell, zs_missed *missed,
                                 zs_source *source, int *is_missing, zs_fault *fault) {
    char key[ZS_KEY_SIZE];
    struct stat status;
    zs_key(layout, cell, key);
    source->file = -1;
    *is_missing = missed && missed->is_missing && !strncmp(missed->path, key, missed->size) && key[missed->size] == '/';
    if (*is_missing) return ZS_OK;
    int flags = O_RDONLY | O_NONBLOCK; /* a pipe must not make us wait */
    source->file = zs_open_linked(place, key, flags);
    if (source->file < 0) {
        *is_missing = errno == ENOENT;
        if (*is_missing && missed) zs_note_missed(place, key, missed);
        return *is_missing ? ZS_OK : zs_store_fault(fault);
    }
    if (fstat(source->file, &status)) return zs_store_fault(fault);
    if (!S_ISREG(status.st_mode)) {
        close(source->file);
        source->file = -1;
        *is_missing = S_ISDIR(status.st_mode);
        errno = EINVAL;
        return *is_missing ? ZS_OK : zs_store_fault(fault);
    }
    source->offset = 0;
    source->size = status.st_size;
    source->identity = zs_identify(&status);
    return ZS_OK;
}

/* Open the source of an outer chunk's bytes: a stretch of a file, a file, or memory. */
static inline int zs_open_outer(const zs_batch *batch, int64_t outer, const int64_t *cell, zs_held *held,
                                zs_missed *missed, zs_source *source, int *is_missing, zs_fault *fault) {
    if (batch->stretches) return zs_open_stretch(batch->stretches, cell, held, source, is_missing, fault);
    if (batch->place.directory >= 0)
        return zs_open_source(batch->layout, &batch->place, cell, missed, source, is_missing, fault);
    *source = (zs_source){.file = -1, .data = batch->outer[outer].data, .size = batch->outer[outer].size};
    *is_missing = source->data == NULL;
    return ZS_OK;
}

static inline void zs_close_chunk(zs_open_chunk *open) {
    for (int l = 0; l < ZS_MAX_LEVELS; l++) {
        zs_kept_release(open->cache, open->index[l]);
        open->index[l] = NULL;
    }
    if (open->source.file >= 0 && open->source.file != open->held.file) close(open->source.file);
    open->source.file = -1;
    open->outer = -1;
}

/* Close the chunk that a thread has open, and the file that chunks are stretches of; forget what was missed. */
static inline void zs_close_files(zs_open_chunk *open) {
    zs_close_chunk(open);
    if (open->held.file >= 0) close(open->held.file);
    open->held.file = -1;
    open->missed.size = 0;
    open->missed.is_missing = 0;
}

static inline int64_t zs_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Keep the first fault and stop all threads. An exception of a signal handler takes precedence: it is already set, and
 * no other may be raised with it. */
static inline void zs_report(zs_batch *batch, const zs_fault *fault) {
    int is_signal = fault->code == ZS_FAULT_SIGNAL;
    pthread_mutex_lock(&batch->lock);
    if (fault->code != ZS_FAULT_STOPPED && (!batch->fault.code || is_signal)) batch->fault = *fault;
    pthread_mutex_unlock(&batch->lock);
    atomic_store(&batch->stop, 1);
}

/* Take the next tasks, up to `*end`: several neighbours while many are left, single ones at the end, so that all
 * threads finish at about the same time. */
static inline int64_t zs_batch_take(zs_batch *batch, int64_t *end) {
    int64_t task = atomic_load_explicit(&batch->next, memory_order_relaxed);
    do {
        int64_t grain = (batch->n_tasks - task) / (batch->threads * 4);
        *end = task + (grain < 1 ? 1 : grain > ZS_MAX_GRAIN ? ZS_MAX_GRAIN : grain);
    } while (task < batch->n_tasks && !atomic_compare_exchange_weak(&batch->next, &task, *end));
    return task;
}

/* Decoded chunks of so many bytes may take their codecs long. */
#define ZS_LONG_SIZE ((int64_t)16 << 20)

/* What codecs ask in the midst of a chunk: whether others have stopped, or, on the caller's thread, whether a signal
 * says so. */
typedef struct {
    zs_batch *batch;
    int (*poll)(void);
    int64_t asked;
} zs_watch;

static int zs_watch_asks(void *whom) {
    zs_watch *watch = whom;
    if (atomic_load(&watch->batch->stop)) return 1;
    if (!watch->poll || zs_now() - watch->asked <= ZS_POLL_INTERVAL) return 0;
    watch->asked = zs_now();
    if (!watch->poll()) return 0;
    zs_fault fault = {0};
    zs_fail(&fault, ZS_FAULT_SIGNAL, 0, 0);
    zs_report(watch->batch, &fault);
    return 1;
}

/* Let the codecs of large chunks ask `watch`, on this thread; NULL: no more. */
static inline void zs_watch_codecs(const zs_layout *layout, zs_watch *watch) {
    for (int s = 0; layout->chunk_size >= ZS_LONG_SIZE && s < layout->n_steps; s++)
        if (ZSTORE_CODEC_HAS(layout->step[s], watch)) layout->step[s]->watch(watch ? zs_watch_asks : NULL, watch);
}

static void zs_batch_work(zs_job *job, int is_caller) {
    zs_batch *batch = (zs_batch *)job;
    zs_thread thread = {.scratch = zs_scratch_get(),
                        .open = {.outer = -1, .source = {.file = -1}, .held = {.file = -1}},
                        .parent = {.file = -1},
                        .document = -1};
    zs_fault fault = {0};
    int is_polled = is_caller && batch->n_tasks > 1;
    int64_t asked = is_polled ? zs_now() : 0;
    if (is_caller) thread.poll = batch->poll;
    zs_watch watch = {batch, thread.poll, zs_now()};
    zs_watch_codecs(batch->layout, &watch);
    if (!thread.scratch) zs_fail(&fault, ZS_FAULT_MEMORY, 0, 0);
    while (!fault.code && !atomic_load_explicit(&batch->stop, memory_order_relaxed)) {
        int64_t end, task = zs_batch_take(batch, &end);
        if (task >= batch->n_tasks) break;
        for (; task < end && !fault.code; task++) batch->run(batch, task, &thread, &fault);
        if (is_polled && !fault.code && zs_now() - asked > ZS_POLL_INTERVAL) {
            if (batch->poll()) zs_fail(&fault, ZS_FAULT_SIGNAL, 0, 0);
            asked = zs_now();
        }
    }
    zs_watch_codecs(batch->layout, NULL);
    if (fault.code) zs_report(batch, &fault);
    zs_close_files(&thread.open);
    zs_parent_close(&thread.parent);
    if (thread.document >= 0) close(thread.document);
    if (thread.scratch) zs_scratch_trim(thread.scratch, ZS_KEEP_SIZE);
}

/* Called while the caller's thread waits for the others: checks for Python's signals. */
static void zs_batch_wait(zs_job *job) {
    zs_batch *batch = (zs_batch *)job;
    zs_fault fault = {0};
    if (atomic_load(&batch->stop) || !batch->poll()) return;
    zs_fail(&fault, ZS_FAULT_SIGNAL, 0, 0);
    zs_report(batch, &fault);
}

/* Run all tasks on at most `threads` threads. */
static void zs_batch_run(zs_batch *batch, int threads) {
    int64_t n = batch->n_tasks - batch->next;
    if (n <= 0) return;
    if (threads > n) threads = (int)n;
    batch->threads = threads;
    batch->job.work = zs_batch_work;
    batch->job.wait = zs_batch_wait;
    pthread_mutex_init(&batch->lock, NULL);
    zs_pool_run(&batch->job, threads);
    pthread_mutex_destroy(&batch->lock);
}

#endif

/* cache.h - least-recently-used caches, limited in bytes, of shard indexes and decoded chunks.
 *
 * Every entry has the identity of the file that it was read from, and is valid only while the file still has it. Each
 * array has a cache of its own for its indexes (and for its chunks, if the caller asked for that); all arrays share one
 * for chunks that were read in part more than once, or decoded for a narrow box.
 */
#ifndef ZS_CACHE_H
#define ZS_CACHE_H

#include "files.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define ZS_CACHE_BUCKETS 1024
#define ZS_TOUCHED_SLOTS 65536
#define ZS_CLOCK_BITS 24 /* of a slot; the others are of the chunk's hash */
#define ZS_SHARED_SIZE ((int64_t)128 << 20)
#define ZS_SHARED_PARTS 8 /* a chunk may take at most the n-th part of the shared cache */

/* The location of an outer chunk's bytes: in an open file, or in memory. */
typedef struct {
    int file;         /* -1: none */
    const char *data; /* when in memory */
    int64_t offset;   /* where in the file they begin */
    int64_t size;
    zs_identity identity;
} zs_source;

/* An entry of a cache; it exists while the cache or any thread refers to it. */
typedef struct zs_kept {
    struct zs_kept *next;          /* in its bucket */
    struct zs_kept *newer, *older; /* by last use */
    int64_t cell[ZS_MAX_NDIM],
        base; /* the key: an outer chunk and zs_index_place, or an inner chunk and zs_keeper's base */
    int ndim;
    zs_identity identity;
    int64_t payload_size;
    int64_t used; /* by the clock, when it was last asked for */
    int references;
    _Alignas(16) char payload[];
} zs_kept;

typedef struct zs_cache {
    pthread_mutex_t lock;
    struct zs_cache *next, **link; /* among all caches */
    zs_kept *bucket[ZS_CACHE_BUCKETS];
    zs_kept *newest, *oldest;
    int64_t bytes, limit;
    _Atomic int64_t hits, misses; /* entries that were asked for and there, and not there */
    int64_t evictions;            /* entries that were dropped for others */
    _Atomic int64_t thrash;       /* chunks that were decoded again while there was no room */
} zs_cache;

/* The identity of an array in the shared cache; its chunks have the base -id there. */
typedef struct {
    int64_t id;
    atomic_int has_kept;
} zs_owner;

/* The id of a new owner, which none has had before. */
static _Atomic int64_t zs_owner_count;
static inline int64_t zs_owner_next(void) { return ++zs_owner_count; }

static zs_cache zs_shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .limit = ZS_SHARED_SIZE};
static _Atomic uint64_t
    zs_touched[ZS_TOUCHED_SLOTS]; /* of chunks that were read in part, the last of each slot: its hash, and when */
static _Atomic int64_t zs_clock;  /* counts the chunks that were read in part */

static struct {
    pthread_mutex_t lock;
    pthread_once_t once;
    zs_cache *first;
} zs_caches = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

/* Every cache is locked during a fork. Otherwise a thread that the child does not have could leave a lock held for ever
 * there, and lists half changed. */
static void zs_caches_before_fork(void) {
    pthread_mutex_lock(&zs_caches.lock);
    for (zs_cache *cache = zs_caches.first; cache; cache = cache->next) pthread_mutex_lock(&cache->lock);
    pthread_mutex_lock(&zs_shared.lock);
}
static void zs_caches_after_fork(void) {
    pthread_mutex_unlock(&zs_shared.lock);
    for (zs_cache *cache = zs_caches.first; cache; cache = cache->next) pthread_mutex_unlock(&cache->lock);
    pthread_mutex_unlock(&zs_caches.lock);
}
static void zs_caches_start(void) { pthread_atfork(zs_caches_before_fork, zs_caches_after_fork, zs_caches_after_fork); }

static inline zs_cache *zs_cache_make(int64_t limit) {
    zs_cache *cache = calloc(1, sizeof *cache);
    if (!cache) return NULL;
    pthread_mutex_init(&cache->lock, NULL);
    cache->limit = limit;
    pthread_once(&zs_caches.once, zs_caches_start);
    pthread_mutex_lock(&zs_caches.lock);
    cache->next = zs_caches.first;
    cache->link = &zs_caches.first;
    if (cache->next) cache->next->link = &cache->next;
    zs_caches.first = cache;
    pthread_mutex_unlock(&zs_caches.lock);
    return cache;
}

/* A new entry for a piece of the source, with room for its payload and one reference; not in the cache yet. */
static inline zs_kept *zs_kept_make(const int64_t *cell, int ndim, int64_t base, const zs_source *source,
                                    int64_t payload_size) {
    zs_kept *kept = malloc(sizeof *kept + (size_t)payload_size);
    if (!kept) return NULL;
    memset(kept, 0, sizeof *kept);
    memcpy(kept->cell, cell, sizeof(int64_t) * (size_t)ndim);
    kept->base = base;
    kept->ndim = ndim;
    kept->identity = source->identity;
    kept->payload_size = payload_size;
    kept->references = 1;
    return kept;
}

static inline uint64_t zs_cache_hash(const int64_t *cell, int ndim, int64_t base) {
    uint64_t h = (uint64_t)base * 0x9E3779B97F4A7C15u;
    for (int d = 0; d < ndim; d++) h = (h ^ (uint64_t)cell[d]) * 0x9E3779B97F4A7C15u;
    return h;
}

static inline zs_kept **zs_cache_bucket(zs_cache *cache, const int64_t *cell, int ndim, int64_t base) {
    return &cache->bucket[(zs_cache_hash(cell, ndim, base) >> 40) % ZS_CACHE_BUCKETS];
}

/* How many chunks were touched since this one was, -1 if that is not remembered; marks it as touched. */
static inline int64_t zs_touch(const int64_t *cell, int ndim, int64_t base) {
    const uint64_t clock = ((uint64_t)1 << ZS_CLOCK_BITS) - 1;
    uint64_t h = zs_cache_hash(cell, ndim, base);
    uint64_t now = (uint64_t)atomic_fetch_add_explicit(&zs_clock, 1, memory_order_relaxed);
    uint64_t last = atomic_exchange_explicit(&zs_touched[(h >> 40) % ZS_TOUCHED_SLOTS], (h & ~clock) | (now & clock),
                                             memory_order_relaxed);
    return last && (last & ~clock) == (h & ~clock) ? (int64_t)((now - last) & clock) : -1;
}

static inline void zs_kept_release(zs_cache *cache, zs_kept *kept) {
    if (!kept) return;
    if (cache) pthread_mutex_lock(&cache->lock);
    int left = --kept->references;
    if (cache) pthread_mutex_unlock(&cache->lock);
    if (left == 0) free(kept);
}

static inline void zs_cache_unlink(zs_cache *cache, zs_kept *kept) {
    *(kept->newer ? &kept->newer->older : &cache->newest) = kept->older;
    *(kept->older ? &kept->older->newer : &cache->oldest) = kept->newer;
}

static inline void zs_cache_link(zs_cache *cache, zs_kept *kept) {
    kept->newer = NULL;
    kept->older = cache->newest;
    *(cache->newest ? &cache->newest->newer : &cache->oldest) = kept;
    cache->newest = kept;
}

static inline void zs_cache_drop(zs_cache *cache, zs_kept **link) {
    zs_kept *kept = *link;
    *link = kept->next;
    zs_cache_unlink(cache, kept);
    cache->bytes -= (int64_t)sizeof *kept + kept->payload_size;
    if (--kept->references == 0) free(kept);
}

static inline zs_kept **zs_cache_look(zs_cache *cache, const int64_t *cell, int ndim, int64_t base) {
    zs_kept **link = zs_cache_bucket(cache, cell, ndim, base);
    while (*link && ((*link)->base != base || memcmp((*link)->cell, cell, sizeof(int64_t) * (size_t)ndim)))
        link = &(*link)->next;
    return link;
}

/* Find an entry that was read from the same state of the same file; NULL if there is none. The caller releases it. */
static inline zs_kept *zs_cache_find(zs_cache *cache, const int64_t *cell, int ndim, int64_t base,
                                     const zs_source *source) {
    pthread_mutex_lock(&cache->lock);
    zs_kept **link = zs_cache_look(cache, cell, ndim, base), *kept = *link;
    if (kept && !memcmp(&kept->identity, &source->identity, sizeof kept->identity)) {
        kept->references++;
        kept->used = atomic_load_explicit(&zs_clock, memory_order_relaxed);
        zs_cache_unlink(cache, kept);
        zs_cache_link(cache, kept);
    } else if (kept) {
        zs_cache_drop(cache, link);
        kept = NULL;
    }
    atomic_fetch_add_explicit(kept ? &cache->hits : &cache->misses, 1, memory_order_relaxed);
    pthread_mutex_unlock(&cache->lock);
    return kept;
}

static inline void zs_cache_drop_kept(zs_cache *cache, const zs_kept *kept) {
    zs_kept **link = zs_cache_bucket(cache, kept->cell, kept->ndim, kept->base);
    while (*link != kept) link = &(*link)->next;
    zs_cache_drop(cache, link);
}

static inline void zs_cache_shrink(zs_cache *cache, int64_t most) {
    for (; cache->bytes > most; cache->evictions++) zs_cache_drop_kept(cache, cache->oldest);
}

/* Whether to keep a chunk that was last touched `since` chunks ago: if there is room, or if those that it would drop
 * were left alone for longer. So a loop over more than there is room for keeps some of it, and hits those, where the
 * least recently used would always be the next one needed. */
static inline int zs_cache_admits(zs_cache *cache, int64_t payload_size, int64_t since) {
    pthread_mutex_lock(&cache->lock);
    int64_t left = cache->bytes + (int64_t)sizeof(zs_kept) + payload_size - cache->limit;
    int64_t before = atomic_load_explicit(&zs_clock, memory_order_relaxed) - since - since / 8;
    cache->thrash += left > 0;
    for (const zs_kept *kept = cache->oldest; kept && left > 0 && kept->used < before; kept = kept->newer)
        left -= (int64_t)sizeof *kept + kept->payload_size;
    pthread_mutex_unlock(&cache->lock);
    return left <= 0;
}

/* Whether a chunk of that size can be kept beside all that is. */
static inline int zs_cache_has_room(zs_cache *cache, int64_t payload_size) {
    pthread_mutex_lock(&cache->lock);
    int has_room = cache->bytes + (int64_t)sizeof(zs_kept) + payload_size <= cache->limit;
    pthread_mutex_unlock(&cache->lock);
    return has_room;
}

/* Whether a chunk of that size can be kept at all. */
static inline int zs_cache_fits(const zs_cache *cache, int64_t payload_size) {
    return (int64_t)sizeof(zs_kept) + payload_size <= __atomic_load_n(&cache->limit, __ATOMIC_RELAXED);
}

static inline void zs_cache_keep(zs_cache *cache, zs_kept *kept) {
    int64_t bytes = (int64_t)sizeof *kept + kept->payload_size;
    if (!zs_cache_fits(cache, kept->payload_size) || !zs_is_settled(&kept->identity)) return;
    pthread_mutex_lock(&cache->lock);
    zs_kept **link = zs_cache_look(cache, kept->cell, kept->ndim, kept->base);
    if (*link) zs_cache_drop(cache, link);
    zs_cache_shrink(cache, cache->limit - bytes);
    link = zs_cache_bucket(cache, kept->cell, kept->ndim, kept->base);
    kept->references++;
    kept->used = atomic_load_explicit(&zs_clock, memory_order_relaxed);
    kept->next = *link;
    *link = kept;
    zs_cache_link(cache, kept);
    cache->bytes += bytes;
    pthread_mutex_unlock(&cache->lock);
}

/* Drop all entries with this base. */
static inline void zs_cache_forget(zs_cache *cache, int64_t base) {
    pthread_mutex_lock(&cache->lock);
    for (zs_kept *kept = cache->newest, *older; kept; kept = older) {
        older = kept->older;
        if (kept->base == base) zs_cache_drop_kept(cache, kept);
    }
    pthread_mutex_unlock(&cache->lock);
}

static inline void zs_cache_limit(zs_cache *cache, int64_t limit) {
    pthread_mutex_lock(&cache->lock);
    __atomic_store_n(&cache->limit, limit, __ATOMIC_RELAXED);
    zs_cache_shrink(cache, limit);
    pthread_mutex_unlock(&cache->lock);
}

static inline void zs_cache_free(zs_cache *cache) {
    if (!cache) return;
    pthread_mutex_lock(&zs_caches.lock);
    *cache->link = cache->next;
    if (cache->next) cache->next->link = cache->link;
    pthread_mutex_unlock(&zs_caches.lock);
    for (int b = 0; b < ZS_CACHE_BUCKETS; b++)
        while (cache->bucket[b]) zs_cache_drop(cache, &cache->bucket[b]);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

#endif

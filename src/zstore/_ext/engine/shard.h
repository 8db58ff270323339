/* shard.h - the index of a shard: read, verified, and cached.
 *
 * Spec: Zarr v3 codec "sharding_indexed" 1.0, binary shard format.
 */
#ifndef ZS_SHARD_H
#define ZS_SHARD_H

#include "cache.h"
#include "chain.h"
#include "checksum.h"
#include "files.h"

#define ZS_EMPTY UINT64_MAX

typedef struct {
    uint64_t offset, size; /* both ZS_EMPTY: the piece is not there */
} zs_entry;

static inline zs_entry *zs_entries(zs_kept *index) { return (zs_entry *)index->payload; }

static inline int64_t zs_index_size(const zs_level *level) { return level->n * 16 + (level->has_checksum ? 4 : 0); }

static inline uint64_t zs_load64(const char *at, int is_big) {
    uint64_t v;
    memcpy(&v, at, 8);
    return is_big ? __builtin_bswap64(v) : v;
}

/* Read `size` bytes at `offset` of the source: `*at` points at them, in `buffer` or in the source's own memory. */
static inline int zs_fetch(const zs_source *source, int64_t offset, int64_t size, zs_buffer *buffer, const char **at,
                           zs_fault *fault) {
    if (source->file < 0) {
        *at = source->data + offset;
        return ZS_OK;
    }
    char *to = zs_reserve(buffer, size);
    if (!to) return zs_fail(fault, ZS_FAULT_MEMORY, 0, size);
    int64_t got = zs_pread(source->file, to, size, offset);
    if (got < 0) return zs_store_fault(fault);
    if (got != size) return zs_fail(fault, ZS_FAULT_SIZE, got, size);
    *at = to;
    return ZS_OK;
}

/* Decode and verify the index of the shard that lies at `base`, `size` bytes long. */
static inline int zs_index_parse(const zs_level *level, const char *raw, int64_t base, int64_t size, zs_entry *entry,
                                 zs_fault *fault) {
    if (level->has_checksum) {
        uint32_t stored;
        memcpy(&stored, raw + level->n * 16, 4);
        if (stored != zs_crc32c(raw, (size_t)(level->n * 16))) return zs_fail(fault, ZS_FAULT_CHECKSUM, stored, 0);
    }
    uint64_t index_size = (uint64_t)zs_index_size(level);
    uint64_t low = level->index_at_start ? index_size : 0, high = (uint64_t)size - (index_size - low);
    for (int64_t i = 0; i < level->n; i++) {
        uint64_t offset = zs_load64(raw + 16 * i, level->index_is_big);
        uint64_t length = zs_load64(raw + 16 * i + 8, level->index_is_big);
        if (offset == ZS_EMPTY && length == ZS_EMPTY) {
            entry[i] = (zs_entry){ZS_EMPTY, ZS_EMPTY};
            continue;
        }
        if (offset < low || offset > high || length > high - offset)
            return zs_fail(fault, ZS_FAULT_ENTRY, (int64_t)offset, (int64_t)length);
        entry[i] = (zs_entry){(uint64_t)base + offset, length};
    }
    return ZS_OK;
}

/* The cache's key of an index besides its cell: the offset of its shard, and its nesting depth, as the first shard
 * inside a shard may begin at the same offset. */
static inline int64_t zs_index_place(const zs_layout *layout, const zs_level *level, int64_t base) {
    return base * ZS_MAX_LEVELS + (level - layout->level);
}

/* The index of the shard of outer chunk `cell` that lies at `base`, `size` bytes long: level->n entries; to be
 * released. */
static inline int zs_index_get(const zs_layout *layout, const zs_level *level, zs_cache *cache, const zs_source *source,
                               const int64_t *cell, int64_t base, int64_t size, zs_scratch *scratch, zs_kept **result,
                               zs_fault *fault) {
    int is_cached = cache && source->file >= 0;
    int64_t place = zs_index_place(layout, level, base);
    if (is_cached && (*result = zs_cache_find(cache, cell, layout->ndim, place, source))) return ZS_OK;
    int64_t index_size = zs_index_size(level);
    if (size < index_size) return zs_fail(fault, ZS_FAULT_SHORT, size, index_size);
    const char *raw;
    int64_t at = level->index_at_start ? base : base + size - index_size;
    int code = zs_fetch(source, at, index_size, &scratch->index, &raw, fault);
    if (code) return code;
    zs_kept *index = zs_kept_make(cell, layout->ndim, place, source, level->n * (int64_t)sizeof(zs_entry));
    if (!index) return zs_fail(fault, ZS_FAULT_MEMORY, 0, index_size);
    code = zs_index_parse(level, raw, base, size, zs_entries(index), fault);
    if (code) {
        free(index);
        return code;
    }
    if (is_cached) zs_cache_keep(cache, index);
    *result = index;
    return ZS_OK;
}

/* Where the piece with inner coordinates `within` (inside its outer chunk) lies: offset and size in the source,
 * or ZS_EMPTY twice. `index` holds one reference per level, kept from task to task of the same outer chunk. */
static inline int zs_locate(const zs_layout *layout, zs_cache *cache, const zs_source *source, const int64_t *cell,
                            const int64_t *within, zs_kept **index, zs_scratch *scratch, zs_entry *where,
                            zs_fault *fault) {
    int64_t rest[ZS_MAX_NDIM], part[ZS_MAX_NDIM];
    *where = (zs_entry){(uint64_t)source->offset, (uint64_t)source->size};
    for (int d = 0; d < layout->ndim; d++) {
        rest[d] = within[d];
        part[d] = layout->per_outer[d];
    }
    for (int l = 0; l < layout->n_levels; l++) {
        const zs_level *level = &layout->level[l];
        int64_t base = (int64_t)where->offset;
        if (index[l] && index[l]->base != zs_index_place(layout, level, base)) {
            zs_kept_release(cache, index[l]);
            index[l] = NULL;
        }
        if (!index[l]) {
            int code =
                zs_index_get(layout, level, cache, source, cell, base, (int64_t)where->size, scratch, &index[l], fault);
            if (code) return code;
        }
        int64_t slot = 0;
        for (int d = 0; d < layout->ndim; d++) {
            part[d] /= level->count[d];
            slot = slot * level->count[d] + rest[d] / part[d];
            rest[d] %= part[d];
        }
        *where = zs_entries(index[l])[slot];
        if (where->offset == ZS_EMPTY) return ZS_OK;
    }
    return ZS_OK;
}

#endif

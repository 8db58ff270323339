/* layout.h - the layout of an array's chunks in its store, and faults.
 *
 * An "inner chunk" is the innermost piece that is encoded on its own, an "outer chunk" has a key; without sharding they
 * are the same.
 */
#ifndef ZS_LAYOUT_H
#define ZS_LAYOUT_H

#include "box.h"
#include "zstore_codec.h"
#include <errno.h>

#define ZS_MAX_STEPS 16
#define ZS_MAX_LEVELS 4

/* One level of sharding: a shard holds product(count) pieces, each with an (offset, size) entry in its index. */
typedef struct {
    int64_t count[ZS_MAX_NDIM];
    int64_t n;
    int index_at_start, has_checksum, index_is_big;
} zs_level;

typedef struct {
    int ndim;
    int64_t item;                   /* bytes per item */
    int64_t unit;                   /* bytes of the units to swap while copying, 0 for none */
    int64_t chunk[ZS_MAX_NDIM];     /* shape of an inner chunk */
    int64_t stride[ZS_MAX_NDIM];    /* byte strides of a decoded inner chunk */
    int64_t chunk_size;             /* bytes of a decoded inner chunk */
    int64_t per_outer[ZS_MAX_NDIM]; /* inner chunks in an outer chunk */
    int64_t shape[ZS_MAX_NDIM];     /* of the array */
    int n_levels;
    zs_level level[ZS_MAX_LEVELS];
    int n_steps;
    const zstore_codec *step[ZS_MAX_STEPS];
    int64_t bound[ZS_MAX_STEPS + 1]; /* the most bytes that step i encodes */
    char *fill;                      /* one item in the stored byte order */
    char *fill_native;               /* one item as in memory */
    int fill_is_zero;
    int key_has_c;
    char separator;
} zs_layout;

#define ZS_KEY_SIZE (ZS_MAX_NDIM * 21 + 3)

/* The store key of an outer chunk, relative to the array. */
static inline void zs_key(const zs_layout *layout, const int64_t *cell, char *key) {
    char *end = key;
    if (layout->key_has_c) *end++ = 'c';
    for (int d = 0; d < layout->ndim; d++) {
        if (end != key) *end++ = layout->separator;
        char digits[21];
        int n = 0;
        int64_t v = cell[d];
        do digits[n++] = (char)('0' + v % 10);
        while (v /= 10);
        while (n) *end++ = digits[--n];
    }
    if (end == key) *end++ = '0';
    *end = 0;
}

enum {
    ZS_OK = 0,
    ZS_FAULT_STORE, /* the operating system said errno */
    ZS_FAULT_MEMORY,
    ZS_FAULT_CODEC,    /* codec `step` returned `got` */
    ZS_FAULT_SIZE,     /* an inner chunk has `got` bytes, not `expected` */
    ZS_FAULT_MISSING,  /* a chunk is missing, which the caller wants to be a fault */
    ZS_FAULT_SHORT,    /* the shard has `got` bytes, its index alone takes `expected` */
    ZS_FAULT_CHECKSUM, /* the shard index does not match its checksum */
    ZS_FAULT_ENTRY,    /* the index places an inner chunk outside the shard (offset `got`, size `expected`) */
    ZS_FAULT_LONG,     /* a stored chunk has `got` bytes, more than `expected`, which none can need */
    ZS_FAULT_CHANGED,  /* the file that a chunk is a stretch of has `got` bytes, or is of another time (`expected`: its
                        * bytes, or -1), than it had */
    ZS_FAULT_BEYOND,   /* a stretch ends at `expected` of a file of `got` bytes */
    ZS_FAULT_SIGNAL,   /* a Python signal handler raised */
    ZS_FAULT_STOPPED,  /* another thread has a fault, and this one gave up waiting */
};

/* The first fault, and where it occurred. */
typedef struct {
    int code, error_number, step, has_inner;
    int64_t part; /* of a batch of several parts */
    int64_t got, expected;
    int64_t cell[ZS_MAX_NDIM];  /* outer chunk */
    int64_t inner[ZS_MAX_NDIM]; /* inner chunk within the array, where has_inner */
} zs_fault;

static inline int zs_fail(zs_fault *fault, int code, int64_t got, int64_t expected) {
    fault->code = code;
    fault->got = got;
    fault->expected = expected;
    return code;
}

/* The fault for errno. */
static inline int zs_store_fault(zs_fault *fault) {
    fault->error_number = errno;
    int is_stopped = errno == ESHUTDOWN;
    return zs_fail(fault, errno == ECANCELED ? ZS_FAULT_SIGNAL : is_stopped ? ZS_FAULT_STOPPED : ZS_FAULT_STORE, 0, 0);
}

#endif

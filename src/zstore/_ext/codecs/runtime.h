/* runtime.h - shared by the built-in codecs: contexts of each thread, little-endian integers, making a codec. */
#ifndef ZS_CODEC_RUNTIME_H
#define ZS_CODEC_RUNTIME_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "zstore_codec.h"

/* Contexts are made once per thread and freed when the thread ends, because making a zstd or deflate context takes
 * longer than decoding a small chunk with it. */
enum {
    ZS_SLOT_ZSTD_ENCODE,
    ZS_SLOT_ZSTD_DECODE,
    ZS_SLOT_DEFLATE_GZIP,
    ZS_SLOT_DEFLATE_ZLIB,
    ZS_SLOT_INFLATE_GZIP,
    ZS_SLOT_INFLATE_ZLIB,
    ZS_SLOT_LZ4HC,
    ZS_SLOT_BLOSCLZ,
    ZS_SLOT_FILTERED,
    ZS_SLOT_BLOCK,
    ZS_SLOT_COUNT
};

typedef struct zs_slot {
    void *object;
    size_t size; /* of a scratch buffer */
    void (*release)(void *object);
} zs_slot;

static _Thread_local zs_slot *zs_thread_slots;
static pthread_key_t zs_thread_key;
static pthread_once_t zs_thread_once = PTHREAD_ONCE_INIT;

static void zs_slot_clear(zs_slot *slot) {
    if (slot->object != NULL) slot->release(slot->object);
    slot->object = NULL;
    slot->size = 0;
}

static void zs_thread_end(void *slots) {
    zs_thread_slots = NULL;
    for (int index = 0; index < ZS_SLOT_COUNT; index++) zs_slot_clear((zs_slot *)slots + index);
    free(slots);
}

static void zs_thread_start(void) {
    if (pthread_key_create(&zs_thread_key, zs_thread_end) != 0) abort();
}

/* This thread's slot with that index; NULL if out of memory. */
static zs_slot *zs_slot_of(int index) {
    if (__builtin_expect(zs_thread_slots == NULL, 0)) {
        pthread_once(&zs_thread_once, zs_thread_start);
        zs_slot *slots = calloc(ZS_SLOT_COUNT, sizeof(zs_slot));
        if (slots == NULL || pthread_setspecific(zs_thread_key, slots) != 0) {
            free(slots);
            return NULL;
        }
        zs_thread_slots = slots;
    }
    return zs_thread_slots + index;
}

#define ZS_SCRATCH_KEPT ((size_t)4 << 20)

/* A buffer of at least `size` bytes, for this thread, valid until its next call with the same slot. */
static uint8_t *zs_scratch(int index, size_t size) {
    zs_slot *slot = zs_slot_of(index);
    if (slot == NULL) return NULL;
    if (slot->size < size || (slot->size > ZS_SCRATCH_KEPT && size <= ZS_SCRATCH_KEPT)) {
        zs_slot_clear(slot);
        size_t rounded = (size + 65535) & ~(size_t)65535;
        void *buffer = NULL;
        if (posix_memalign(&buffer, 64, rounded) != 0) return NULL;
        slot->object = buffer;
        slot->size = rounded;
        slot->release = free;
    }
    return slot->object;
}

static inline uint32_t zs_load32(const void *at) {
    const uint8_t *p = at;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline void zs_store32(void *at, uint32_t value) {
    uint8_t *p = at;
    p[0] = (uint8_t)value;
    p[1] = (uint8_t)(value >> 8);
    p[2] = (uint8_t)(value >> 16);
    p[3] = (uint8_t)(value >> 24);
}

/* Functions of codecs that never change the size. */
static inline size_t zs_same_bound(const void *state, size_t src_size) {
    (void)state;
    return src_size;
}

static inline int64_t zs_same_size(const void *state, const void *src, size_t src_size) {
    (void)state;
    (void)src;
    return (int64_t)src_size;
}

/* Who is to be asked in the midst of a long call on this thread, and how many bytes may be worked on in between. */
static _Thread_local struct {
    int (*asks)(void *whom);
    void *whom;
} zs_watcher;

#define ZS_PIECE ((size_t)1 << 18)

static void zs_codec_watch(int (*asks)(void *whom), void *whom) {
    zs_watcher.asks = asks;
    zs_watcher.whom = whom;
}

static inline int zs_is_watched(void) { return zs_watcher.asks != NULL; }

static inline int zs_is_stopped(void) { return zs_is_watched() && zs_watcher.asks(zs_watcher.whom); }

static void zs_codec_free(zstore_codec *codec) { free(codec); }

/* A new codec with a copy of `params` as its state, in one allocation; NULL if out of memory. */
static zstore_codec *zs_codec_new(const zstore_codec *functions, const void *params, size_t params_size) {
    zstore_codec *codec = malloc(sizeof(*codec) + params_size);
    if (codec == NULL) return NULL;
    *codec = *functions;
    codec->struct_size = sizeof(*codec);
    codec->reserved = 0;
    codec->state = codec + 1;
    codec->destroy = zs_codec_free;
    memcpy(codec->state, params, params_size);
    return codec;
}

#endif

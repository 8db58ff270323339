/* chain.h - decodes and encodes one chunk by a chain of native codecs. */
#ifndef ZS_CHAIN_H
#define ZS_CHAIN_H

#include "layout.h"
#include <pthread.h>
#include <stdlib.h>

#define ZS_KEEP_SIZE ((size_t)8 << 20) /* larger buffers of a thread are freed after each call */

typedef struct {
    char *data;
    size_t size;
} zs_buffer;

/* The buffers that a thread reuses from chunk to chunk. */
typedef struct {
    zs_buffer raw;     /* stored bytes */
    zs_buffer chunk;   /* an inner chunk, decoded */
    zs_buffer step[2]; /* between two codecs */
    zs_buffer index;
} zs_scratch;

static pthread_key_t zs_scratch_key;
static pthread_once_t zs_scratch_once = PTHREAD_ONCE_INIT;
static __thread zs_scratch *zs_scratch_mine;

static inline void zs_scratch_trim(zs_scratch *scratch, size_t most) {
    zs_buffer *buffers[] = {&scratch->raw, &scratch->chunk, &scratch->step[0], &scratch->step[1], &scratch->index};
    for (int b = 0; b < 5; b++) {
        if (buffers[b]->size <= most) continue;
        free(buffers[b]->data);
        *buffers[b] = (zs_buffer){0};
    }
}

static void zs_scratch_free(void *scratch) {
    zs_scratch_trim(scratch, 0);
    free(scratch);
}

static void zs_scratch_make_key(void) { pthread_key_create(&zs_scratch_key, zs_scratch_free); }

/* This thread's scratch; NULL if out of memory. */
static inline zs_scratch *zs_scratch_get(void) {
    if (zs_scratch_mine) return zs_scratch_mine;
    pthread_once(&zs_scratch_once, zs_scratch_make_key);
    zs_scratch_mine = calloc(1, sizeof *zs_scratch_mine);
    if (zs_scratch_mine) pthread_setspecific(zs_scratch_key, zs_scratch_mine);
    return zs_scratch_mine;
}

/* Make the buffer at least `size` bytes large; its content is undefined. NULL if out of memory. */
static inline char *zs_reserve(zs_buffer *buffer, int64_t size) {
    size_t want = size > 0 ? (size_t)size : 1;
    if (buffer->size >= want) return buffer->data;
    free(buffer->data);
    want = (want + 4095) & ~(size_t)4095;
    buffer->data = malloc(want);
    buffer->size = buffer->data ? want : 0;
    return buffer->data;
}

/* Check the size of a stored chunk before it is read into memory. The limit is generous, because other writers' frames
 * may be longer than ours. */
static inline int zs_check_size(const zs_layout *layout, int64_t size, zs_fault *fault) {
    int64_t quarter = layout->bound[layout->n_steps] + (1 << 18);
    return size / 4 > quarter ? zs_fail(fault, ZS_FAULT_LONG, size, 4 * quarter) : ZS_OK;
}

/* The fault of a codec's answer below 0. */
static inline int zs_codec_fault(zs_fault *fault, int step, int64_t answer, int64_t expected) {
    fault->step = step;
    return zs_fail(fault, answer == ZSTORE_ESTOPPED ? ZS_FAULT_STOPPED : ZS_FAULT_CODEC, answer, expected);
}

/* Decode `size` bytes at `src` to the layout's chunk size, into `into` (of that size); without codecs they stay where
 * they are. `*decoded` points at the result. */
static inline int zs_decode(const zs_layout *layout, zs_scratch *scratch, const char *src, int64_t size, char *into,
                            const char **decoded, zs_fault *fault) {
    for (int s = layout->n_steps - 1; s >= 0; s--) {
        char *dst = into;
        if (s > 0 && !(dst = zs_reserve(&scratch->step[s & 1], layout->bound[s])))
            return zs_fail(fault, ZS_FAULT_MEMORY, 0, layout->bound[s]);
        const zstore_codec *codec = layout->step[s];
        size = codec->decode(codec->state, src, (size_t)size, dst, (size_t)layout->bound[s]);
        if (size < 0) return zs_codec_fault(fault, s, size, layout->bound[s]);
        src = dst;
    }
    if (size != layout->chunk_size) return zs_fail(fault, ZS_FAULT_SIZE, size, layout->chunk_size);
    *decoded = src;
    return ZS_OK;
}

/* Encode one decoded chunk; `*encoded` points into scratch, or at `src` if the chain has no codec. */
static inline int zs_encode(const zs_layout *layout, zs_scratch *scratch, const char *src, const char **encoded,
                            int64_t *encoded_size, zs_fault *fault) {
    int64_t size = layout->chunk_size;
    for (int s = 0; s < layout->n_steps; s++) {
        char *dst = zs_reserve(&scratch->step[s & 1], layout->bound[s + 1]);
        if (!dst) return zs_fail(fault, ZS_FAULT_MEMORY, 0, layout->bound[s + 1]);
        const zstore_codec *codec = layout->step[s];
        size = codec->encode(codec->state, src, (size_t)size, dst, (size_t)layout->bound[s + 1]);
        if (size < 0) return zs_codec_fault(fault, s, size, layout->bound[s + 1]);
        src = dst;
    }
    *encoded = src;
    *encoded_size = size;
    return ZS_OK;
}

#endif

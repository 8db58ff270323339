/* deflate.h - gzip members (RFC 1952) and zlib streams (RFC 1950), both deflate, through zlib-ng. */
#ifndef ZS_CODEC_DEFLATE_H
#define ZS_CODEC_DEFLATE_H

#include "runtime.h"

/* zlib-ng's native interface; the archive that is linked ships no zlib-ng.h. The *Init2_ functions compare the size
 * of this struct with their own and refuse another layout. */
typedef struct zng_stream_s {
    const uint8_t *next_in;
    uint32_t avail_in;
    size_t total_in;
    uint8_t *next_out;
    uint32_t avail_out;
    size_t total_out;
    const char *msg;
    struct internal_state *state;
    void *(*zalloc)(void *opaque, unsigned items, unsigned size);
    void (*zfree)(void *opaque, void *address);
    void *opaque;
    int data_type;
    uint32_t adler;
    unsigned long reserved;
} zng_stream;

int32_t zng_deflateInit2_(zng_stream *stream, int32_t level, int32_t method, int32_t window_bits, int32_t memory_level,
                          int32_t strategy, const char *version, int32_t stream_size);
int32_t zng_deflate(zng_stream *stream, int32_t flush);
int32_t zng_deflateTune(zng_stream *stream, int32_t good_length, int32_t lazy_length, int32_t nice_length,
                        int32_t chain_length);
int32_t zng_deflateParams(zng_stream *stream, int32_t level, int32_t strategy);
int32_t zng_deflateReset(zng_stream *stream);
int32_t zng_deflateEnd(zng_stream *stream);
int32_t zng_inflateInit2_(zng_stream *stream, int32_t window_bits, const char *version, int32_t stream_size);
int32_t zng_inflate(zng_stream *stream, int32_t flush);
int32_t zng_inflateReset(zng_stream *stream);
int32_t zng_inflateEnd(zng_stream *stream);
size_t zng_compressBound(size_t src_size);

#define ZS_ZNG_VERSION "2"
#define ZS_ZNG_NO_FLUSH 0
#define ZS_ZNG_FINISH 4
#define ZS_ZNG_OK 0
#define ZS_ZNG_STREAM_END 1
#define ZS_ZNG_NEED_DICT 2
#define ZS_ZNG_DATA_ERROR (-3)
#define ZS_ZNG_MEM_ERROR (-4)
#define ZS_ZNG_BUF_ERROR (-5)
#define ZS_ZNG_DEFLATED 8
#define ZS_ZNG_MEMORY_LEVEL 8

/* The formats are named by what zlib calls window bits. */
#define ZS_ZLIB 15
#define ZS_GZIP 31

typedef struct zs_deflate_params {
    int format;
    int level;
} zs_deflate_params;

typedef struct zs_deflater {
    zng_stream stream;
    int method;
} zs_deflater;

/*
 * zlib's search parameters at each level: good, lazy, nice and chain length. At 9 the chain is half as long as zlib's:
 * zlib-ng's output with the longer one is 21 % larger for numbers in UTF-32.
 */
static const int16_t zs_efforts[10][4] = {
    {0, 0, 0, 0},    {4, 4, 8, 4},      {4, 5, 16, 8},     {4, 6, 32, 32},       {4, 4, 16, 16},
    {8, 16, 32, 32}, {8, 16, 128, 128}, {8, 32, 128, 256}, {32, 128, 258, 1024}, {32, 258, 258, 2048},
};

#define ZS_SAMPLE_SIZE 2048
#define ZS_SAMPLE_COUNT 4
#define ZS_SAMPLE_BITS 11
/* Of large chunks, a 32nd at two places each is compressed in two ways, to see which one does better. */
#define ZS_TRIAL_COUNT 2
#define ZS_TRIAL_SHARE 32
#define ZS_TRIAL_LEAST 4096
#define ZS_TRIAL_MOST 32768

/* Methods of zlib-ng, by their level; ZS_FIRST is the method of level 9 that takes the first match it finds. */
enum { ZS_STORED = 0, ZS_QUICK = 2, ZS_LAZY = 8, ZS_THOROUGH = 9, ZS_FIRST = 10 };

/* Count the positions of a sample whose next `length` bytes (3 or 4) occurred before. */
static size_t zs_count_repeats(const uint8_t *from, size_t size, size_t length) {
    uint16_t last[1 << ZS_SAMPLE_BITS] = {0}; /* positions counted from 1, 0 for none */
    size_t count = 0;
    for (size_t at = 0; at + 4 <= size; ++at) {
        uint32_t found = 0;
        memcpy(&found, from + at, length);
        uint16_t *slot = &last[(found * 0x9E3779B1u) >> (32 - ZS_SAMPLE_BITS)];
        count += *slot != 0 && memcmp(from + *slot - 1, from + at, length) == 0;
        *slot = (uint16_t)(at + 1);
    }
    return count;
}

/* The method for a sample of the bytes to compress. */
static int zs_sampled_method(const uint8_t *from, size_t size) {
    size_t three = zs_count_repeats(from, size, 3), four = zs_count_repeats(from, size, 4);
    if (three * 4 > size && three > 3 * four) return ZS_THOROUGH;
    return four * 4 < size * 3 ? ZS_FIRST : ZS_QUICK;
}

/* Sample `k` of `count`, evenly spread. */
static const uint8_t *zs_sample(const uint8_t *src, size_t src_size, size_t size, size_t k, size_t count) {
    return src + (src_size - size) / (2 * count) * (2 * k + 1);
}

static void zs_deflater_free(void *object) {
    zng_deflateEnd(&((zs_deflater *)object)->stream);
    free(object);
}

static void zs_inflater_free(void *object) {
    zng_inflateEnd(object);
    free(object);
}

/* What zlib-ng works on at once: its lengths have 32 bits, and who watches asks in between. */
static inline uint32_t zs_at_most(size_t size) {
    size_t most = zs_is_watched() ? ZS_PIECE : UINT32_MAX;
    return (uint32_t)(size > most ? most : size);
}

/* This thread's stream for the format, or NULL if out of memory. */
static zs_deflater *zs_deflater_of(int format) {
    zs_slot *slot = zs_slot_of(format == ZS_GZIP ? ZS_SLOT_DEFLATE_GZIP : ZS_SLOT_DEFLATE_ZLIB);
    if (slot == NULL || slot->object != NULL) return slot == NULL ? NULL : slot->object;
    zs_deflater *deflater = calloc(1, sizeof(*deflater));
    if (deflater == NULL) return NULL;
    deflater->method = ZS_THOROUGH;
    if (zng_deflateInit2_(&deflater->stream, deflater->method, ZS_ZNG_DEFLATED, format, ZS_ZNG_MEMORY_LEVEL, 0,
                          ZS_ZNG_VERSION, sizeof(zng_stream)) != ZS_ZNG_OK) {
        free(deflater);
        return NULL;
    }
    slot->object = deflater;
    slot->release = zs_deflater_free;
    return deflater;
}

/* Begin a stream that is compressed by `method` with zlib's search parameters of `level`. */
static int32_t zs_deflater_start(zs_deflater *deflater, int level, int method) {
    zng_stream *stream = &deflater->stream;
    int32_t code = zng_deflateReset(stream);
    if (code == ZS_ZNG_OK && method != deflater->method) {
        code = zng_deflateParams(stream, method == ZS_FIRST ? ZS_THOROUGH : method, 0);
        deflater->method = method;
    }
    if (code != ZS_ZNG_OK || method == ZS_STORED) return code;
    if (method == ZS_FIRST) /* lazy length 3: no match is shorter, so none is searched for a better one */
        return zng_deflateTune(stream, 4, 3, 32, 4 << level);
    const int16_t *effort = zs_efforts[level < 0 ? 6 : level];
    return zng_deflateTune(stream, effort[0], effort[1], effort[2], effort[3]);
}

/* One whole stream: its size, or an error. */
static int64_t zs_deflate_by(zs_deflater *deflater, int level, int method, const void *src, size_t src_size, void *dst,
                             size_t dst_capacity) {
    zng_stream *stream = &deflater->stream;
    if (zs_deflater_start(deflater, level, method) != ZS_ZNG_OK) return ZSTORE_EINTERNAL;
    const uint8_t nothing = 0;
    const uint8_t *in = src_size > 0 ? src : &nothing;
    uint8_t *out = dst;
    size_t in_left = src_size, out_left = dst_capacity;
    for (;;) {
        uint32_t given = zs_at_most(in_left), room = zs_at_most(out_left);
        if (zs_is_stopped()) return ZSTORE_ESTOPPED;
        if (room == 0) return ZSTORE_ECAPACITY;
        stream->next_in = in;
        stream->avail_in = given;
        stream->next_out = out;
        stream->avail_out = room;
        int32_t code = zng_deflate(stream, given == in_left ? ZS_ZNG_FINISH : ZS_ZNG_NO_FLUSH);
        in += given - stream->avail_in;
        in_left -= given - stream->avail_in;
        out += room - stream->avail_out;
        out_left -= room - stream->avail_out;
        if (code == ZS_ZNG_STREAM_END) return (int64_t)(dst_capacity - out_left);
        if (code != ZS_ZNG_OK && code != ZS_ZNG_BUF_ERROR) return ZSTORE_EINTERNAL;
    }
}

/* Whether samples are as small, to a 64th, without matches of three bytes. */
static int zs_lazy_does(zs_deflater *deflater, int level, const uint8_t *src, size_t src_size, void *dst,
                        size_t dst_capacity) {
    size_t size = src_size / ZS_TRIAL_SHARE;
    if (size < ZS_TRIAL_LEAST) return 0;
    if (size > ZS_TRIAL_MOST) size = ZS_TRIAL_MOST;
    int64_t lazy = 0, thorough = 0;
    for (size_t k = 0; k < ZS_TRIAL_COUNT; ++k) {
        const uint8_t *sample = zs_sample(src, src_size, size, k, ZS_TRIAL_COUNT);
        lazy += zs_deflate_by(deflater, level, ZS_LAZY, sample, size, dst, dst_capacity);
        thorough += zs_deflate_by(deflater, level, ZS_THOROUGH, sample, size, dst, dst_capacity);
    }
    return lazy <= thorough + thorough / 64;
}

/*
 * The method of zlib-ng that leaves no more than zlib at `level`, with zlib's search parameters. From level 4 on that
 * is one of those that look for a better match at the next byte: the thorough one, or the lazy one, which takes half
 * the time and finds no matches of three bytes, where samples show that these save nothing. (The methods between miss
 * many repeats: at 6, the output is 3.7 times zlib's for a text that repeats every 32,000 bytes.) Below level 4, zlib
 * takes the first match. So does the quick method, which is used where most bytes repeat; without matches of three
 * bytes, ascending 4-byte numbers take twice the room.
 */
static int zs_deflate_method(zs_deflater *deflater, int level, const uint8_t *src, size_t src_size, void *dst,
                             size_t dst_capacity) {
    if (level == 0) return ZS_STORED;
    if (level == 9) return ZS_THOROUGH; /* the lazy one's output is up to 1.8 times zlib's */
    if (level < 1 || level > 3)
        return zs_lazy_does(deflater, level, src, src_size, dst, dst_capacity) ? ZS_LAZY : ZS_THOROUGH;
    size_t size = src_size < ZS_SAMPLE_SIZE ? src_size : ZS_SAMPLE_SIZE;
    int counts[ZS_FIRST + 1] = {0};
    for (size_t k = 0; k < ZS_SAMPLE_COUNT; ++k)
        ++counts[zs_sampled_method(zs_sample(src, src_size, size, k, ZS_SAMPLE_COUNT), size)];
    if (counts[ZS_QUICK] == ZS_SAMPLE_COUNT) return ZS_QUICK;
    return counts[ZS_THOROUGH] * 2 > ZS_SAMPLE_COUNT ? ZS_THOROUGH : ZS_FIRST;
}

static size_t zs_deflate_bound(const void *state, size_t src_size) {
    (void)state;
    return src_size > SIZE_MAX / 2 ? SIZE_MAX : zng_compressBound(src_size) + 32;
}

static int64_t zs_deflate_encode(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity) {
    const zs_deflate_params *params = state;
    zs_deflater *deflater = zs_deflater_of(params->format);
    if (deflater == NULL) return ZSTORE_EMEMORY;
    int method = zs_deflate_method(deflater, params->level, src, src_size, dst, dst_capacity);
    return zs_deflate_by(deflater, params->level, method, src, src_size, dst, dst_capacity);
}

static zng_stream *zs_inflater_of(int format) {
    zs_slot *slot = zs_slot_of(format == ZS_GZIP ? ZS_SLOT_INFLATE_GZIP : ZS_SLOT_INFLATE_ZLIB);
    if (slot == NULL) return NULL;
    if (slot->object != NULL && zng_inflateReset(slot->object) == ZS_ZNG_OK) return slot->object;
    zs_slot_clear(slot);
    zng_stream *stream = calloc(1, sizeof(*stream));
    if (stream == NULL) return NULL;
    if (zng_inflateInit2_(stream, format, ZS_ZNG_VERSION, sizeof(zng_stream)) != ZS_ZNG_OK) {
        free(stream);
        return NULL;
    }
    slot->object = stream;
    slot->release = zs_inflater_free;
    return stream;
}

static int64_t zs_inflate_error(const zng_stream *stream, int32_t code) {
    if (code == ZS_ZNG_MEM_ERROR) return ZSTORE_EMEMORY;
    if (code == ZS_ZNG_DATA_ERROR && stream->msg != NULL && strcmp(stream->msg, "incorrect data check") == 0)
        return ZSTORE_ECHECKSUM;
    return code == ZS_ZNG_DATA_ERROR || code == ZS_ZNG_NEED_DICT ? ZSTORE_EDAMAGED : ZSTORE_EINTERNAL;
}

static int64_t zs_inflate(int format, const void *src, size_t src_size, void *dst, size_t dst_capacity) {
    zng_stream *stream = zs_inflater_of(format);
    if (stream == NULL) return ZSTORE_EMEMORY;
    const uint8_t *in = src;
    uint8_t *out = dst, spare;
    size_t in_left = src_size, out_left = dst_capacity;
    if (src_size == 0) return ZSTORE_EDAMAGED;
    for (;;) {
        /* Even with no room left there may be an end mark and a checksum to read. One spare byte of output shows
         * whether there would be more bytes. */
        int full = out_left == 0;
        uint32_t given = zs_at_most(in_left), room = full ? 1 : zs_at_most(out_left);
        if (zs_is_stopped()) return ZSTORE_ESTOPPED;
        stream->next_in = in;
        stream->avail_in = given;
        stream->next_out = full ? &spare : out;
        stream->avail_out = room;
        int32_t code = zng_inflate(stream, ZS_ZNG_FINISH);
        size_t taken = given - stream->avail_in, made = room - stream->avail_out;
        if (full && made > 0) return ZSTORE_ECAPACITY;
        in += taken;
        in_left -= taken;
        out += made;
        out_left -= made;
        if (code == ZS_ZNG_STREAM_END) {
            if (in_left == 0) return (int64_t)(dst_capacity - out_left);
            if (format != ZS_GZIP || in_left < 2 || in[0] != 0x1f || in[1] != 0x8b) return ZSTORE_EDAMAGED;
            if (zng_inflateReset(stream) != ZS_ZNG_OK) return ZSTORE_EINTERNAL;
        } else if (code != ZS_ZNG_OK && code != ZS_ZNG_BUF_ERROR) {
            return zs_inflate_error(stream, code);
        } else if (taken == 0 && made == 0) {
            return ZSTORE_EDAMAGED;
        }
    }
}

static int64_t zs_deflate_decode(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity) {
    return zs_inflate(((const zs_deflate_params *)state)->format, src, src_size, dst, dst_capacity);
}

static zstore_codec *zs_deflate_new(int format, int level) {
    static const zstore_codec functions = {
        .encode_bound = zs_deflate_bound,
        .encode = zs_deflate_encode,
        .decode = zs_deflate_decode,
        .watch = zs_codec_watch,
    };
    zs_deflate_params params = {format, level};
    return zs_codec_new(&functions, &params, sizeof(params));
}

#endif

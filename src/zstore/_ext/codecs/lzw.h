/* lzw.h - TIFF's LZW: codes of 9 to 12 bits, the highest first, each width one code earlier than it must be. */
#ifndef ZS_CODEC_LZW_H
#define ZS_CODEC_LZW_H

#include "runtime.h"

enum { ZS_LZW_CLEAR = 256, ZS_LZW_END = 257, ZS_LZW_FIRST = 258, ZS_LZW_CODES = 4096 };

/* The strings of codes, as where they stand in what was decoded: each is the one before it and a byte more. */
typedef struct zs_lzw_strings {
    size_t at[ZS_LZW_CODES];
    uint16_t length[ZS_LZW_CODES];
} zs_lzw_strings;

/* The strings of codes as a tree: below each, the last bytes of those that are one byte longer. */
typedef struct zs_lzw_tree {
    uint16_t below[ZS_LZW_CODES], beside[ZS_LZW_CODES];
    uint8_t last[ZS_LZW_CODES];
} zs_lzw_tree;

typedef struct zs_lzw_bits {
    uint8_t *out;
    uint32_t waiting;
    int count;
} zs_lzw_bits;

static void zs_lzw_put(zs_lzw_bits *bits, uint32_t code, int width) {
    bits->waiting = bits->waiting << width | code;
    for (bits->count += width; bits->count >= 8; bits->count -= 8)
        *bits->out++ = (uint8_t)(bits->waiting >> (bits->count - 8));
}

static size_t zs_lzw_bound(const void *state, size_t src_size) {
    (void)state;
    return src_size > SIZE_MAX / 2 - 16 ? SIZE_MAX : 2 * src_size + 16;
}

static int64_t zs_lzw_encode(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity) {
    if (dst_capacity < zs_lzw_bound(state, src_size)) return ZSTORE_ECAPACITY;
    zs_lzw_tree *tree = calloc(1, sizeof(*tree));
    if (tree == NULL) return ZSTORE_EMEMORY;
    const uint8_t *in = src, *end = in + src_size;
    zs_lzw_bits bits = {dst, 0, 0};
    int width = 9, next = ZS_LZW_FIRST;
    zs_lzw_put(&bits, ZS_LZW_CLEAR, width);
    while (in < end) {
        int code = *in++, longer = 0;
        for (; in < end; in++, code = longer) {
            longer = tree->below[code];
            while (longer != 0 && tree->last[longer] != *in) longer = tree->beside[longer];
            if (longer == 0) break;
        }
        zs_lzw_put(&bits, (uint32_t)code, width);
        if (in < end) {
            tree->last[next] = *in;
            tree->beside[next] = tree->below[code];
            tree->below[code] = (uint16_t)next;
        }
        if (++next == ZS_LZW_CODES - 2) {
            zs_lzw_put(&bits, ZS_LZW_CLEAR, width);
            memset(tree, 0, sizeof(*tree));
            width = 9;
            next = ZS_LZW_FIRST;
        } else if (next == 1 << width) {
            width++;
        }
    }
    zs_lzw_put(&bits, ZS_LZW_END, width);
    if (bits.count > 0) zs_lzw_put(&bits, 0, 8 - bits.count);
    free(tree);
    return bits.out - (uint8_t *)dst;
}

static int64_t zs_lzw_read(zs_lzw_strings *strings, const uint8_t *in, size_t src_size, uint8_t *out, size_t capacity) {
    uint32_t waiting = 0;
    int count = 0, width = 9, next = ZS_LZW_FIRST;
    size_t done = 0, before = 0, before_length = 0; /* the string before: none after a clear */
    for (const uint8_t *end = in + src_size;;) {
        for (; count < width && in < end; count += 8) waiting = waiting << 8 | *in++;
        if (count < width) return (int64_t)done; /* some writers leave the last code out */
        count -= width;
        int code = (int)(waiting >> count & ((1u << width) - 1));
        if (code == ZS_LZW_END) return (int64_t)done;
        if (code == ZS_LZW_CLEAR) {
            width = 9;
            next = ZS_LZW_FIRST;
            before_length = 0;
            continue;
        }
        if (before_length > 0 && next < ZS_LZW_CODES) {
            strings->at[next] = before;
            strings->length[next++] = (uint16_t)(before_length + 1);
            if (next == (1 << width) - 1 && width < 12) width++;
        }
        if (code >= next) return ZSTORE_EDAMAGED;
        size_t length = code < 256 ? 1 : strings->length[code];
        if (length > capacity - done) return ZSTORE_ECAPACITY;
        if (code < 256) out[done] = (uint8_t)code;
        /* A string may end with its own first byte, which is written just before it is read. */
        else
            for (size_t i = 0; i < length; i++) out[done + i] = out[strings->at[code] + i];
        before = done;
        before_length = length;
        done += length;
    }
}

static int64_t zs_lzw_decode(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity) {
    (void)state;
    const uint8_t *in = src;
    /* Files of TIFF 5 and older begin with a clear code whose lowest bits come first. */
    if (src_size > 1 && in[0] == 0 && (in[1] & 1) == 1) return ZSTORE_EDAMAGED;
    zs_lzw_strings *strings = malloc(sizeof(*strings));
    if (strings == NULL) return ZSTORE_EMEMORY;
    int64_t size = zs_lzw_read(strings, in, src_size, dst, dst_capacity);
    free(strings);
    return size;
}

static zstore_codec *zs_lzw_new(void) {
    static const zstore_codec functions = {
        .encode_bound = zs_lzw_bound,
        .encode = zs_lzw_encode,
        .decode = zs_lzw_decode,
    };
    return zs_codec_new(&functions, "", 1);
}

#endif

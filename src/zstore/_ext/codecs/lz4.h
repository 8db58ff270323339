/* lz4.h - numcodecs' LZ4 format: the decoded size as 4 little-endian bytes, then one raw LZ4 block. */
#ifndef ZS_CODEC_LZ4_H
#define ZS_CODEC_LZ4_H

#include "runtime.h"

/* The part of liblz4's stable interface that is used here; the archive that is linked ships no lz4.h. */
int LZ4_compressBound(int src_size);
int LZ4_compress_fast(const char *src, char *dst, int src_size, int dst_capacity, int acceleration);
int LZ4_decompress_safe(const char *src, char *dst, int src_size, int dst_capacity);
int LZ4_sizeofStateHC(void);
int LZ4_compress_HC_extStateHC(void *state, const char *src, char *dst, int src_size, int dst_capacity, int level);

#define ZS_LZ4_SIZE_MAX 0x7E000000u

typedef struct zs_lz4_params {
    int acceleration;
} zs_lz4_params;

static size_t zs_lz4_bound(const void *state, size_t src_size) {
    (void)state;
    return src_size > ZS_LZ4_SIZE_MAX ? SIZE_MAX : 4 + (size_t)LZ4_compressBound((int)src_size);
}

static int64_t zs_lz4_encode(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity) {
    if (src_size > ZS_LZ4_SIZE_MAX) return ZSTORE_EINTERNAL;
    if (dst_capacity < 5) return ZSTORE_ECAPACITY;
    size_t room = dst_capacity - 4;
    int written = LZ4_compress_fast(src, (char *)dst + 4, (int)src_size, room > INT32_MAX ? INT32_MAX : (int)room,
                                    ((const zs_lz4_params *)state)->acceleration);
    if (written <= 0) return ZSTORE_ECAPACITY;
    zs_store32(dst, (uint32_t)src_size);
    return 4 + (int64_t)written;
}

static int64_t zs_lz4_decoded_size(const void *state, const void *src, size_t src_size) {
    (void)state;
    if (src_size < 5) return ZSTORE_EDAMAGED;
    uint32_t size = zs_load32(src);
    return size > ZS_LZ4_SIZE_MAX ? ZSTORE_EDAMAGED : (int64_t)size;
}

static int64_t zs_lz4_decode(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity) {
    int64_t size = zs_lz4_decoded_size(state, src, src_size);
    if (size < 0 || src_size - 4 > INT32_MAX) return ZSTORE_EDAMAGED;
    if ((size_t)size > dst_capacity) return ZSTORE_ECAPACITY;
    int written = LZ4_decompress_safe((const char *)src + 4, dst, (int)(src_size - 4), (int)size);
    return written == size ? size : ZSTORE_EDAMAGED;
}

static zstore_codec *zs_lz4_new(int acceleration) {
    static const zstore_codec functions = {
        .encode_bound = zs_lz4_bound,
        .encode = zs_lz4_encode,
        .decode = zs_lz4_decode,
        .decoded_size = zs_lz4_decoded_size,
    };
    zs_lz4_params params = {acceleration};
    return zs_codec_new(&functions, &params, sizeof(params));
}

#endif

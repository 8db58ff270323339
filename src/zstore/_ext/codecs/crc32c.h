/* crc32c.h - the codec that stores a CRC-32C before or after the bytes. */
#ifndef ZS_CODEC_CRC32C_H
#define ZS_CODEC_CRC32C_H

#include "checksum.h"
#include "runtime.h"

typedef struct zs_crc32c_params {
    int at_start;
} zs_crc32c_params;

static size_t zs_crc32c_bound(const void *state, size_t src_size) {
    (void)state;
    return src_size > SIZE_MAX - 4 ? SIZE_MAX : src_size + 4;
}

static int64_t zs_crc32c_encode(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity) {
    int at_start = ((const zs_crc32c_params *)state)->at_start;
    if (dst_capacity < 4 || dst_capacity - 4 < src_size) return ZSTORE_ECAPACITY;
    uint8_t *out = dst;
    if (src_size > 0) memcpy(out + (at_start ? 4 : 0), src, src_size);
    zs_store32(out + (at_start ? 0 : src_size), zs_crc32c(src, src_size));
    return (int64_t)src_size + 4;
}

static int64_t zs_crc32c_decoded_size(const void *state, const void *src, size_t src_size) {
    (void)state;
    (void)src;
    return src_size < 4 ? ZSTORE_EDAMAGED : (int64_t)src_size - 4;
}

static int64_t zs_crc32c_decode(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity) {
    int at_start = ((const zs_crc32c_params *)state)->at_start;
    if (src_size < 4) return ZSTORE_EDAMAGED;
    size_t size = src_size - 4;
    if (size > dst_capacity) return ZSTORE_ECAPACITY;
    const uint8_t *in = src, *payload = in + (at_start ? 4 : 0);
    if (zs_crc32c(payload, size) != zs_load32(in + (at_start ? 0 : size))) return ZSTORE_ECHECKSUM;
    if (size > 0) memcpy(dst, payload, size);
    return (int64_t)size;
}

static zstore_codec *zs_crc32c_new(int at_start) {
    static const zstore_codec functions = {
        .encode_bound = zs_crc32c_bound,
        .encode = zs_crc32c_encode,
        .decode = zs_crc32c_decode,
        .decoded_size = zs_crc32c_decoded_size,
    };
    zs_crc32c_params params = {at_start};
    return zs_codec_new(&functions, &params, sizeof(params));
}

#endif

/* filters.h - the filters of HDF5 and TIFF that make items compress better: byte shuffling, differences to the sample
 * before in the same row (TIFF's predictor 2), and both together for floats (predictor 3).
 *
 * They never change the size. Input that is not whole items or rows is an error. */
#ifndef ZS_CODEC_FILTERS_H
#define ZS_CODEC_FILTERS_H

#include "blosc.h"
#include "runtime.h"

#define ZS_FILTER_DISTANCE 64 /* the most samples per pixel */

typedef struct zs_filter_params {
    int64_t item; /* bytes */
    int64_t row;  /* items */
    int64_t distance;
    int is_big;
} zs_filter_params;

static zstore_codec *zs_filter_new(const zs_filter_params *params, const zstore_codec *functions) {
    return zs_codec_new(functions, params, sizeof(*params));
}

/* Check that the input is whole units and fits the output: 0 or a negative status. */
static int64_t zs_filter_check(size_t unit, size_t src_size, size_t dst_capacity) {
    if (src_size > dst_capacity) return ZSTORE_ECAPACITY;
    return src_size % unit ? ZSTORE_EDAMAGED : 0;
}

/* Transpose `count` rows of `length` bytes. */
static void zs_transpose_bytes(const uint8_t *src, uint8_t *dst, size_t count, size_t length) {
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < length; k++) dst[k * count + i] = src[i * length + k];
}

static int64_t zs_shuffle_encode(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity) {
    const size_t item = (size_t)((const zs_filter_params *)state)->item;
    int64_t status = zs_filter_check(item, src_size, dst_capacity);
    if (status < 0 || src_size == 0) return status;
    if (item == 1) memcpy(dst, src, src_size);
    else if (item > 255 || src_size > INT32_MAX) zs_transpose_bytes(src, dst, src_size / item, item);
    else if (blosc2_shuffle((int32_t)item, (int32_t)src_size, src, dst) < 0) return ZSTORE_EINTERNAL;
    return (int64_t)src_size;
}

static int64_t zs_shuffle_decode(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity) {
    const size_t item = (size_t)((const zs_filter_params *)state)->item;
    int64_t status = zs_filter_check(item, src_size, dst_capacity);
    if (status < 0 || src_size == 0) return status;
    if (item == 1) memcpy(dst, src, src_size);
    else if (item > 255 || src_size > INT32_MAX) zs_transpose_bytes(src, dst, item, src_size / item);
    else if (blosc2_unshuffle((int32_t)item, (int32_t)src_size, src, dst) < 0) return ZSTORE_EINTERNAL;
    return (int64_t)src_size;
}

static zstore_codec *zs_shuffle_new(int64_t item) {
    static const zstore_codec functions = {
        .encode_bound = zs_same_bound,
        .encode = zs_shuffle_encode,
        .decode = zs_shuffle_decode,
        .decoded_size = zs_same_size,
    };
    const zs_filter_params params = {item, 1, 1, 0};
    return zs_filter_new(&params, &functions);
}

#define ZS_SAME(V) (V)

/* One sample of all pixels after the other: with a sum for each sample in memory, every item would wait for it. */
#define ZS_DELTA_ROWS(NAME, T, SWAP)                                                                       \
    static void zs_undelta_##NAME(const uint8_t *src, uint8_t *dst, size_t rows, size_t row, size_t far) { \
        for (size_t r = 0; r < rows; r++, src += row * sizeof(T), dst += row * sizeof(T))                  \
            for (size_t k = 0; k < far && k < row; k++) {                                                  \
                T sum = 0;                                                                                 \
                for (size_t i = k; i < row; i += far) {                                                    \
                    T v;                                                                                   \
                    memcpy(&v, src + i * sizeof v, sizeof v);                                              \
                    sum = (T)(sum + (T)SWAP(v));                                                           \
                    v = (T)SWAP(sum);                                                                      \
                    memcpy(dst + i * sizeof v, &v, sizeof v);                                              \
                }                                                                                          \
            }                                                                                              \
    }                                                                                                      \
    static void zs_delta_##NAME(const uint8_t *src, uint8_t *dst, size_t rows, size_t row, size_t far) {   \
        for (size_t r = 0; r < rows; r++, src += row * sizeof(T), dst += row * sizeof(T)) {                \
            for (size_t i = 0; i < row; i++) {                                                             \
                T v, before = 0;                                                                           \
                memcpy(&v, src + i * sizeof v, sizeof v);                                                  \
                if (i >= far) memcpy(&before, src + (i - far) * sizeof v, sizeof v);                       \
                v = (T)((T)SWAP(v) - (T)SWAP(before));                                                     \
                v = (T)SWAP(v);                                                                            \
                memcpy(dst + i * sizeof v, &v, sizeof v);                                                  \
            }                                                                                              \
        }                                                                                                  \
    }

ZS_DELTA_ROWS(1, uint8_t, ZS_SAME)
ZS_DELTA_ROWS(2, uint16_t, ZS_SAME)
ZS_DELTA_ROWS(4, uint32_t, ZS_SAME)
ZS_DELTA_ROWS(8, uint64_t, ZS_SAME)
ZS_DELTA_ROWS(2b, uint16_t, __builtin_bswap16)
ZS_DELTA_ROWS(4b, uint32_t, __builtin_bswap32)
ZS_DELTA_ROWS(8b, uint64_t, __builtin_bswap64)

typedef void (*zs_delta_rows)(const uint8_t *, uint8_t *, size_t, size_t, size_t);

/* Run the function of the table (items of 1, 2, 4, 8 bytes, then big-endian ones of 2, 4, 8) for the items. */
static int64_t zs_delta_run(const zs_delta_rows *table, const zs_filter_params *params, const void *src,
                            size_t src_size, void *dst, size_t dst_capacity) {
    const size_t unit = (size_t)(params->item * params->row);
    int64_t status = zs_filter_check(unit, src_size, dst_capacity);
    if (status < 0) return status;
    const int index = params->item == 1 ? 0 : params->item == 2 ? 1 : params->item == 4 ? 2 : 3;
    table[index && params->is_big ? index + 3 : index](src, dst, src_size / unit, (size_t)params->row,
                                                       (size_t)params->distance);
    return (int64_t)src_size;
}

static int64_t zs_delta_encode(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity) {
    static const zs_delta_rows table[] = {zs_delta_1,  zs_delta_2,  zs_delta_4, zs_delta_8,
                                          zs_delta_2b, zs_delta_4b, zs_delta_8b};
    return zs_delta_run(table, state, src, src_size, dst, dst_capacity);
}

static int64_t zs_delta_decode(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity) {
    static const zs_delta_rows table[] = {zs_undelta_1,  zs_undelta_2,  zs_undelta_4, zs_undelta_8,
                                          zs_undelta_2b, zs_undelta_4b, zs_undelta_8b};
    return zs_delta_run(table, state, src, src_size, dst, dst_capacity);
}

static zstore_codec *zs_delta_new(int64_t item, int64_t row, int64_t distance, int is_big) {
    static const zstore_codec functions = {
        .encode_bound = zs_same_bound,
        .encode = zs_delta_encode,
        .decode = zs_delta_decode,
        .decoded_size = zs_same_size,
    };
    const zs_filter_params params = {item, row, distance, is_big};
    return zs_filter_new(&params, &functions);
}

/* For each row: the highest bytes of its (little-endian) items, then the next lower ones, and so on; of these bytes,
 * each as its difference to the one `distance` before. */
static int64_t zs_planes_encode(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity) {
    const zs_filter_params *params = state;
    const size_t item = (size_t)params->item, row = (size_t)params->row, far = (size_t)params->distance;
    int64_t status = zs_filter_check(item * row, src_size, dst_capacity);
    if (status < 0) return status;
    for (size_t at = 0; at < src_size; at += item * row) {
        const uint8_t *in = (const uint8_t *)src + at;
        uint8_t *out = (uint8_t *)dst + at, last[ZS_FILTER_DISTANCE] = {0};
        for (size_t p = 0, b = 0, k = 0; p < item; p++)
            for (size_t i = 0; i < row; i++, b++, k = k + 1 == far ? 0 : k + 1) {
                const uint8_t v = in[i * item + item - 1 - p];
                out[b] = (uint8_t)(v - last[k]);
                last[k] = v;
            }
    }
    return (int64_t)src_size;
}

static int64_t zs_planes_decode(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity) {
    const zs_filter_params *params = state;
    const size_t item = (size_t)params->item, row = (size_t)params->row, far = (size_t)params->distance;
    int64_t status = zs_filter_check(item * row, src_size, dst_capacity);
    if (status < 0) return status;
    for (size_t at = 0; at < src_size; at += item * row) {
        const uint8_t *in = (const uint8_t *)src + at;
        uint8_t *out = (uint8_t *)dst + at;
        for (size_t k = 0; k < far && k < row * item; k++) {
            uint8_t sum = 0;
            size_t p = 0, i = k;
            for (size_t b = k; b < row * item; b += far, i += far) {
                for (; i >= row; p++) i -= row;
                sum = (uint8_t)(sum + in[b]);
                out[i * item + item - 1 - p] = sum;
            }
        }
    }
    return (int64_t)src_size;
}

static zstore_codec *zs_planes_new(int64_t item, int64_t row, int64_t distance) {
    static const zstore_codec functions = {
        .encode_bound = zs_same_bound,
        .encode = zs_planes_encode,
        .decode = zs_planes_decode,
        .decoded_size = zs_same_size,
    };
    const zs_filter_params params = {item, row, distance, 0};
    return zs_filter_new(&params, &functions);
}

#endif

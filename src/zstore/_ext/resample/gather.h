/* gather.h - cells between memory of any layout and contiguous rows: strides, byte order, half floats. */
#ifndef ZSTORE_RESAMPLE_GATHER_H
#define ZSTORE_RESAMPLE_GATHER_H

#include "block.h"

static float zr_half_to_float(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 0x3FF;
    uint32_t bits;
    float value;
    if (exponent == 0) {
        value = (float)fraction * 0x1p-24f;
        memcpy(&bits, &value, 4);
        bits |= sign;
    } else {
        bits = sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | fraction << 13;
    }
    memcpy(&value, &bits, 4);
    return value;
}

static uint16_t zr_float_to_half(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7FFFFFFFu;
    if (bits > 0x7F800000u) return (uint16_t)(sign | 0x7E00 | (bits >> 13 & 0x3FF));
    if (bits >= 0x477FF000u) return (uint16_t)(sign | 0x7C00); /* 65520 and more round to infinity */
    if (bits < 0x38800000u) {
        float magnitude;
        memcpy(&magnitude, &bits, 4);
        return (uint16_t)(sign | (uint16_t)lrintf(magnitude * 0x1p24f));
    }
    bits += 0xFFFu + (bits >> 13 & 1) - (112u << 23);
    return (uint16_t)(sign | bits >> 13);
}

/* Copy cells between strided memory and a contiguous row, byte order and half floats included. */
#define ZR_COPY_CELLS(T, SWAP)                                                                                     \
    for (int64_t i = 0; i < count; i++)                                                                            \
        for (int64_t l = 0; l < lanes; l++) {                                                                      \
            T cell;                                                                                                \
            memcpy(&cell, from + i * from_x + l * from_lane, sizeof cell);                                         \
            if (swapped) cell = SWAP(cell);                                                                        \
            memcpy(to + i * to_x + l * to_lane, &cell, sizeof cell);                                               \
        }                                                                                                          \
    return

static void zr_copy_cells(const char *from, int64_t from_x, int64_t from_lane, char *to, int64_t to_x, int64_t to_lane,
                          int64_t count, int64_t lanes, int64_t size, int swapped)
{
    switch (size) {
    case 1: ZR_COPY_CELLS(uint8_t, );
    case 2: ZR_COPY_CELLS(uint16_t, __builtin_bswap16);
    case 4: ZR_COPY_CELLS(uint32_t, __builtin_bswap32);
    case 8: ZR_COPY_CELLS(uint64_t, __builtin_bswap64);
    }
    /* Wider cells are only moved, source and output being of one type: their bytes stay in order. */
    for (int64_t i = 0; i < count; i++)
        for (int64_t l = 0; l < lanes; l++)
            memcpy(to + i * to_x + l * to_lane, from + i * from_x + l * from_lane, (size_t)size);
}

/* A float16 is computed as a float32. */
static void zr_gather_cells(const char *from, int64_t from_x, int64_t from_lane, int64_t count, int64_t lanes,
                            int64_t size, int swapped, int is_half, char *to)
{
    if (!is_half) {
        zr_copy_cells(from, from_x, from_lane, to, lanes * size, size, count, lanes, size, swapped);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        for (int64_t l = 0; l < lanes; l++) {
            uint16_t half;
            memcpy(&half, from + i * from_x + l * from_lane, sizeof half);
            ((float *)to)[i * lanes + l] = zr_half_to_float(swapped ? __builtin_bswap16(half) : half);
        }
}

static void zr_scatter_cells(const char *from, char *to, int64_t to_x, int64_t to_lane, int64_t count, int64_t lanes,
                             int64_t size, int swapped, int is_half)
{
    if (!is_half) {
        zr_copy_cells(from, lanes * size, size, to, to_x, to_lane, count, lanes, size, swapped);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        for (int64_t l = 0; l < lanes; l++) {
            uint16_t half = zr_float_to_half(((const float *)from)[i * lanes + l]);
            if (swapped) half = __builtin_bswap16(half);
            memcpy(to + i * to_x + l * to_lane, &half, sizeof half);
        }
}

#endif

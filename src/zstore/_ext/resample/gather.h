/* gather.h - copy cells between memory of any layout and contiguous rows: strides, byte order, half floats. */
#ifndef ZS_GATHER_H
#define ZS_GATHER_H

#include "block.h"

enum { ZS_MAX_OUTER = 64 };

typedef struct {
    int64_t source_size; /* cells of the source along this dimension */
    int64_t size;        /* cells of the output */
    int64_t factor;
    int64_t source_stride; /* bytes */
    int64_t stride;
    const int64_t *first, *count; /* windows that are not `factor` cells side by side; factor is the most cells then */
} zs_axis;

/* The memory of the source and of the output, the same for all drivers. */
typedef struct {
    const char *source;
    char *out;
    int outer_count;
    zs_axis outer[ZS_MAX_OUTER];
    zs_axis lane;      /* factor 1 */
    int64_t item_size; /* bytes of a cell as it is computed: of a float16, those of a float32 */
    int source_swapped, out_swapped, is_half;
    int skip;
    int stray_nan; /* there is no nodata, and cells are floats: see stray_nan.h */
    uint64_t nodata, substitute;
} zs_cells;

/* The bits of a float16 as those of a float32, and back. */
static uint32_t zs_half_to_float(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 0x3FF;
    if (exponent) return sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | fraction << 13;
    const float value = (float)fraction * 0x1p-24f;
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits | sign;
}

static uint16_t zs_float_to_half(uint32_t bits) {
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

template <class Bits> static Bits zs_same(Bits cell) { return cell; }

ZS_INLINE uint8_t zs_swapped(uint8_t cell) { return cell; }
ZS_INLINE uint16_t zs_swapped(uint16_t cell) { return __builtin_bswap16(cell); }
ZS_INLINE uint32_t zs_swapped(uint32_t cell) { return __builtin_bswap32(cell); }
ZS_INLINE uint64_t zs_swapped(uint64_t cell) { return __builtin_bswap64(cell); }

/* Copy `count` times `lanes` cells from and to memory of any strides, in bytes. */
typedef struct {
    const char *from;
    int64_t from_x, from_lane;
    char *to;
    int64_t to_x, to_lane;
    int64_t count, lanes, size;
    int swapped;
} zs_cell_copy;

/* Bytes are swapped in the form that lies in memory: the narrower one, if cells change their size. */
template <class From, class To, To convert(From)> ZS_INLINE void zs_copy_cells_as(const zs_cell_copy *copy) {
    for (int64_t i = 0; i < copy->count; i++)
        for (int64_t l = 0; l < copy->lanes; l++) {
            From cell;
            memcpy(&cell, copy->from + i * copy->from_x + l * copy->from_lane, sizeof cell);
            if (copy->swapped && sizeof(From) <= sizeof(To)) cell = zs_swapped(cell);
            To made = convert(cell);
            if (copy->swapped && sizeof(From) > sizeof(To)) made = zs_swapped(made);
            memcpy(copy->to + i * copy->to_x + l * copy->to_lane, &made, sizeof made);
        }
}

template <class Bits> ZS_INLINE void zs_copy_cells_of(const zs_cell_copy *copy) {
    zs_copy_cells_as<Bits, Bits, zs_same<Bits>>(copy);
}

static void zs_copy_cells(const zs_cell_copy *copy) {
    switch (copy->size) {
    case 1: return zs_copy_cells_of<uint8_t>(copy);
    case 2: return zs_copy_cells_of<uint16_t>(copy);
    case 4: return zs_copy_cells_of<uint32_t>(copy);
    case 8: return zs_copy_cells_of<uint64_t>(copy);
    }
    /* Wider cells are only moved, source and output being of one type: their bytes stay in order. */
    for (int64_t i = 0; i < copy->count; i++)
        for (int64_t l = 0; l < copy->lanes; l++)
            memcpy(copy->to + i * copy->to_x + l * copy->to_lane, copy->from + i * copy->from_x + l * copy->from_lane,
                   (size_t)copy->size);
}

/* Copy `count` times `lanes` cells at `from` of the source, `from_x` bytes apart, to a contiguous row. */
static void zs_gather(const zs_cells *cells, const char *from, int64_t from_x, int64_t count, int64_t lanes, char *to) {
    const int64_t size = cells->item_size;
    const zs_cell_copy copy = {from,  from_x, cells->lane.source_stride, to, lanes * size, size, count,
                               lanes, size,   cells->source_swapped};
    if (cells->is_half) zs_copy_cells_as<uint16_t, uint32_t, zs_half_to_float>(&copy);
    else zs_copy_cells(&copy);
}

/* Copy a contiguous row to the output. */
static void zs_scatter(const zs_cells *cells, const char *from, int64_t count, int64_t lanes, char *to, int64_t to_x) {
    const int64_t size = cells->item_size;
    const zs_cell_copy copy = {from, lanes * size,      size, to, to_x, cells->lane.stride, count, lanes,
                               size, cells->out_swapped};
    if (cells->is_half) zs_copy_cells_as<uint32_t, uint16_t, zs_float_to_half>(&copy);
    else zs_copy_cells(&copy);
}

#endif

/* block.h - the arguments of one call of a resampling kernel, and the means to write kernels for many types.
 *
 * A kernel computes `count` neighbouring outputs from `row_count` contiguous, aligned rows in native byte order.
 * Output i of lane l is made of the cells rows[r][(i * factor + k) * lanes + l], 0 <= k < factor, in row-major
 * order of the window: r first, then k. Every window is full: the driver passes the narrower one at the far edge in a
 * separate call.
 *
 * Kernels are C++ templates over the type of a cell, and use nothing else of C++. Whatever decides how a loop is
 * compiled, such as the way of skipping cells, is a template parameter too: compilers vectorize only with constants.
 */
#ifndef ZS_BLOCK_H
#define ZS_BLOCK_H

#include <limits>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>

#include "clones.h"

#define restrict __restrict

constexpr int64_t ZS_BLOCK = 4096; /* input cells of one row per kernel call, unless one window alone is wider */
constexpr int64_t ZS_SCRATCH = 64; /* bytes of scratch per such cell */

enum { ZS_PLAIN = 0, ZS_SKIP_VALUE = 1, ZS_SKIP_NAN = 2 };

typedef struct {
    const char *const *rows;
    int64_t row_count;
    int64_t factor;
    int64_t lanes;
    int64_t count;
    int skip;            /* ZS_PLAIN, ZS_SKIP_VALUE or ZS_SKIP_NAN */
    uint64_t nodata;     /* what an output without a valid cell becomes: the bytes of a cell, and zeros */
    uint64_t substitute; /* what a valid output that equals nodata becomes */
    int quarters;        /* of the cells that lie below a quantile */
    int64_t item_size;
    int *out_of_memory; /* set by a kernel that needed memory and got none */
    void *scratch;      /* ZS_SCRATCH * (ZS_BLOCK + 16) bytes, aligned to 64 */
} zs_block;

typedef void (*zs_kernel)(const zs_block *block, void *out);

/* A function for every type of cells, in the order of the enum in run.h. */
#define ZS_FOR_TYPES(FUNCTION)                                                                         \
    {FUNCTION<uint8_t>, FUNCTION<int8_t>,   FUNCTION<uint16_t>, FUNCTION<int16_t>, FUNCTION<uint32_t>, \
     FUNCTION<int32_t>, FUNCTION<uint64_t>, FUNCTION<int64_t>,  FUNCTION<float>,   FUNCTION<double>}

/* The unsigned and the signed integer of a type's size. */
template <class T> using zs_bits = std::conditional_t<
    sizeof(T) == 1, uint8_t,
    std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;
template <class T> using zs_integer = std::make_signed_t<zs_bits<T>>;
template <class T> constexpr bool zs_is_float = std::is_floating_point<T>::value;
template <class T> constexpr bool zs_is_signed = std::is_signed<T>::value;
template <class T> using zs_limits = std::numeric_limits<T>;
template <class T> constexpr T zs_highest = zs_is_float<T> ? zs_limits<T>::infinity() : zs_limits<T>::max();
template <class T> constexpr T zs_lowest = zs_is_float<T> ? -zs_limits<T>::infinity() : zs_limits<T>::lowest();

/* Two neighbouring cells as one word. */
typedef uint16_t __attribute__((may_alias, aligned(1))) zs_pair8;
typedef uint32_t __attribute__((may_alias, aligned(1))) zs_pair16;

/* nodata or substitute as a cell. */
template <class T> ZS_INLINE T zs_cell(uint64_t value) {
    T cell;
    memcpy(&cell, &value, sizeof cell);
    return cell;
}

template <class T> ZS_INLINE int zs_is_nan(T cell) {
    if constexpr (zs_is_float<T>) return cell != cell;
    return 0;
}

template <int skip, class T> ZS_INLINE int zs_is_valid(T cell, T nodata) {
    return skip == ZS_PLAIN ? 1 : skip == ZS_SKIP_NAN ? !zs_is_nan(cell) : cell != nodata;
}

/* The cell if it is to be kept, else 0: for floats without the branch that compilers make of a conditional here. */
template <class T> ZS_INLINE T zs_keep(T cell, int keep) {
    if constexpr (!zs_is_float<T>) return keep ? cell : (T)0;
    zs_bits<T> bits;
    memcpy(&bits, &cell, sizeof bits);
    bits &= (zs_bits<T>)0 - (zs_bits<T>)keep;
    memcpy(&cell, &bits, sizeof bits);
    return cell;
}

ZS_INLINE int zs_is_quad(const zs_block *b) { return b->row_count == 2 && b->factor == 2 && b->lanes == 1; }

/* Every step-th cell; with a constant step, a vector holds several of them. */
template <class Bits>
ZS_INLINE void zs_take_every(int64_t step, const Bits *restrict row, int64_t count, Bits *restrict out) {
    for (int64_t i = 0; i < count; i++) out[i] = row[step * i];
}

/* Vectors of `size` bytes, as many as the processor has: of wider ones, compilers compare item by item. */
template <class T, int size> struct zs_vector_of {
    typedef T type __attribute__((vector_size(size)));
};
template <class T, int size> using zs_vector = typename zs_vector_of<T, size>::type;

#if ZS_HAS_CLONES
template <class Work> __attribute__((target("arch=x86-64-v4"))) static void zs_by_64(const zs_block *b, void *out) {
    Work::template run<64>(b, out);
}
template <class Work> __attribute__((target("arch=x86-64-v3"))) static void zs_by_32(const zs_block *b, void *out) {
    Work::template run<32>(b, out);
}
#endif
template <class Work> static void zs_by_width(const zs_block *b, void *out) {
#if ZS_HAS_CLONES
    if (__builtin_cpu_supports("x86-64-v4")) return zs_by_64<Work>(b, out);
    if (__builtin_cpu_supports("x86-64-v3")) return zs_by_32<Work>(b, out);
#endif
    Work::template run<16>(b, out);
}

/* Outputs without a valid cell become nodata; results that only equal nodata become the substitute. */
template <class T, class Count>
ZS_INLINE void zs_mark_holes(const zs_block *b, const Count *restrict valid, int64_t outputs, T *restrict out) {
    const T nodata = zs_cell<T>(b->nodata), substitute = zs_cell<T>(b->substitute);
    for (int64_t i = 0; i < outputs; i++) {
        const T cell = out[i] == nodata ? substitute : out[i];
        out[i] = valid[i] != 0 ? cell : nodata;
    }
}

#endif

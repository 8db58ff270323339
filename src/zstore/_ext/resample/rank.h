/* rank.h - max, min, median and quartiles of windows.
 *
 * The quantile q of n valid cells is the one at position ceil(q n) of the sorted cells: always a cell that is there.
 * NaN, unless it is nodata, wins.
 */
#ifndef ZSTORE_RESAMPLE_RANK_H
#define ZSTORE_RESAMPLE_RANK_H

#include "block.h"
#include "mode.h"

/* ceil(quarters / 4 * count) - 1 */
ZR_INLINE int64_t zr_rank(int64_t count, int quarters)
{
    return quarters == 2 ? (count - 1) >> 1 : quarters == 1 ? (count - 1) >> 2 : (3 * count - 1) >> 2;
}

#define ZR_ID u8
#define ZR_T uint8_t
#define ZR_S int8_t
#define ZR_SIZE 1
#define ZR_LOW 0
#define ZR_HIGH UINT8_MAX
#define ZR_FLOAT 0
#include "rank_windows.h"
#define ZR_ID i8
#define ZR_T int8_t
#define ZR_S int8_t
#define ZR_SIZE 1
#define ZR_LOW INT8_MIN
#define ZR_HIGH INT8_MAX
#define ZR_FLOAT 0
#include "rank_windows.h"
#define ZR_ID u16
#define ZR_T uint16_t
#define ZR_S int16_t
#define ZR_SIZE 2
#define ZR_LOW 0
#define ZR_HIGH UINT16_MAX
#define ZR_FLOAT 0
#include "rank_windows.h"
#define ZR_ID i16
#define ZR_T int16_t
#define ZR_S int16_t
#define ZR_SIZE 2
#define ZR_LOW INT16_MIN
#define ZR_HIGH INT16_MAX
#define ZR_FLOAT 0
#include "rank_windows.h"
#define ZR_ID u32
#define ZR_T uint32_t
#define ZR_S int32_t
#define ZR_SIZE 4
#define ZR_LOW 0
#define ZR_HIGH UINT32_MAX
#define ZR_FLOAT 0
#include "rank_windows.h"
#define ZR_ID i32
#define ZR_T int32_t
#define ZR_S int32_t
#define ZR_SIZE 4
#define ZR_LOW INT32_MIN
#define ZR_HIGH INT32_MAX
#define ZR_FLOAT 0
#include "rank_windows.h"
#define ZR_ID u64
#define ZR_T uint64_t
#define ZR_S int64_t
#define ZR_SIZE 8
#define ZR_LOW 0
#define ZR_HIGH UINT64_MAX
#define ZR_FLOAT 0
#include "rank_windows.h"
#define ZR_ID i64
#define ZR_T int64_t
#define ZR_S int64_t
#define ZR_SIZE 8
#define ZR_LOW INT64_MIN
#define ZR_HIGH INT64_MAX
#define ZR_FLOAT 0
#include "rank_windows.h"
#define ZR_ID f32
#define ZR_T float
#define ZR_S int32_t
#define ZR_SIZE 4
#define ZR_LOW -INFINITY
#define ZR_HIGH INFINITY
#define ZR_FLOAT 1
#include "rank_windows.h"
#define ZR_ID f64
#define ZR_T double
#define ZR_S int64_t
#define ZR_SIZE 8
#define ZR_LOW -INFINITY
#define ZR_HIGH INFINITY
#define ZR_FLOAT 1
#include "rank_windows.h"

#endif

/* vlen.h - chunks of items of variable length: a count, then the size and the bytes of each item.
 *
 * All numbers are 32-bit little-endian. A handle stands for one item: it is the address of the item's size in the
 * chunk's bytes, which the caller must keep in place while the handle is in use; 0 stands for the fill value.
 */
#ifndef ZS_VLEN_H
#define ZS_VLEN_H

#include "runtime.h"
#include <stdatomic.h>

static atomic_int zs_has_numpy __attribute__((unused)); /* whether numpy's C API is loaded */

#define ZS_VLEN_HEADER 4

enum {
    ZS_VLEN_OK = 0,
    ZS_VLEN_SHORT,  /* too short for the count */
    ZS_VLEN_COUNT,  /* the count is `got` */
    ZS_VLEN_BEYOND, /* item `item` claims `got` bytes, more than are left */
    ZS_VLEN_TEXT,   /* item `item` is not UTF-8 */
    ZS_VLEN_JUNK,   /* `got` bytes follow the last item */
};

typedef struct {
    int code;
    int64_t item, got;
} zs_vlen_fault;

/* The bytes of the character at `s`, 0 if it is not valid UTF-8 (RFC 3629: nothing overlong, no surrogates). */
static inline int zs_utf8_size(const uint8_t *s, int64_t left) {
    uint8_t low = 0x80, high = 0xBF;
    int size;
    if (s[0] < 0x80) return 1;
    if (s[0] >= 0xC2 && s[0] <= 0xDF) size = 2;
    else if (s[0] >= 0xE0 && s[0] <= 0xEF) size = 3;
    else if (s[0] >= 0xF0 && s[0] <= 0xF4) size = 4;
    else return 0;
    if (size > left) return 0;
    if (s[0] == 0xE0) low = 0xA0;
    if (s[0] == 0xED) high = 0x9F;
    if (s[0] == 0xF0) low = 0x90;
    if (s[0] == 0xF4) high = 0x8F;
    if (s[1] < low || s[1] > high) return 0;
    for (int i = 2; i < size; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    return size;
}

static inline int zs_is_utf8(const uint8_t *s, int64_t n) {
    int64_t i = 0;
    while (i < n) {
        uint64_t eight;
        if (n - i >= 8) {
            memcpy(&eight, s + i, 8);
            if (!(eight & 0x8080808080808080u)) {
                i += 8;
                continue;
            }
        }
        int size = zs_utf8_size(s + i, n - i);
        if (!size) return 0;
        i += size;
    }
    return 1;
}

/* Find the handles of the items in `data`, which must be exactly `count`; `fault` tells what is wrong, if anything. */
static void zs_vlen_scan(const uint8_t *data, int64_t size, int64_t count, int is_text, const uint8_t *fill,
                         int64_t fill_size, uint64_t *handle, zs_vlen_fault *fault) {
    int64_t at = ZS_VLEN_HEADER;
    fault->code = ZS_VLEN_OK;
    fault->item = 0;
    fault->got = size;
    if (size < ZS_VLEN_HEADER) {
        fault->code = ZS_VLEN_SHORT;
        return;
    }
    fault->got = zs_load32(data);
    if (fault->got != count) {
        fault->code = ZS_VLEN_COUNT;
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *item = data + at;
        int64_t left = size - at - 4, length = left < 0 ? 0 : zs_load32(item);
        if (left < length) {
            *fault = (zs_vlen_fault){ZS_VLEN_BEYOND, i, length};
            return;
        }
        if (is_text && !zs_is_utf8(item + 4, length)) {
            *fault = (zs_vlen_fault){ZS_VLEN_TEXT, i, length};
            return;
        }
        int is_fill = length == fill_size && !memcmp(item + 4, fill, (size_t)length);
        handle[i] = is_fill ? 0 : (uint64_t)(uintptr_t)item;
        at += 4 + length;
    }
    if (at != size) *fault = (zs_vlen_fault){ZS_VLEN_JUNK, count, size - at};
}

#endif

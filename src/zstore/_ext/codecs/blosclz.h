/* blosclz.h - writes streams of BloscLZ, Blosc's own compressor: LZ77 in the format of FastLZ's second level.
 *
 * A byte below 32 begins a run of literals: it is their number less one. Any other begins a match: its upper three bits
 * are the length less two, 7 and more with bytes to be added up to the first that is not 255; its lower five and the
 * next byte are the distance less one. Where those are all ones, two more bytes are added to ZS_BLOSCLZ_NEAR. A stream
 * begins and ends with literals. The archive's own encoder gives up where it expects little of a stream from a part of
 * it: frames are then larger than those of c-blosc 1.
 */
#ifndef ZS_CODEC_BLOSCLZ_H
#define ZS_CODEC_BLOSCLZ_H

#include "runtime.h"

#define ZS_BLOSCLZ_NEAR 8191
#define ZS_BLOSCLZ_REACH (ZS_BLOSCLZ_NEAR + 65535)
#define ZS_BLOSCLZ_LEAST 16
/* Readers copy more than a byte at a time: the last bytes are literals. */
#define ZS_BLOSCLZ_TAIL 12
#define ZS_BLOSCLZ_HASH_BITS 14

static uint32_t zs_blosclz_hash(const uint8_t *at) {
    return zs_load32(at) * 2654435761u >> (32 - ZS_BLOSCLZ_HASH_BITS);
}

/* The number of equal bytes at two places, up to `most`. */
static int32_t zs_blosclz_alike(const uint8_t *one, const uint8_t *other, int32_t most) {
    int32_t length = 0;
    while (length + 8 <= most) {
        uint64_t a, b;
        memcpy(&a, one + length, 8);
        memcpy(&b, other + length, 8);
        if (a != b) break;
        length += 8;
    }
    while (length < most && one[length] == other[length]) length++;
    return length;
}

/* Write a run of literals: where it ends, NULL if it does not fit. */
static uint8_t *zs_blosclz_put_literals(uint8_t *to, const uint8_t *stop, const uint8_t *src, int32_t count) {
    if (to == NULL || count + (count + 31) / 32 > stop - to) return NULL;
    while (count > 0) {
        int32_t run = count < 32 ? count : 32;
        *to++ = (uint8_t)(run - 1);
        memcpy(to, src, (size_t)run);
        to += run, src += run, count -= run;
    }
    return to;
}

static uint8_t *zs_blosclz_put_match(uint8_t *to, const uint8_t *stop, uint32_t length, uint32_t distance) {
    if (to == NULL || length / 255 + 6 > (size_t)(stop - to)) return NULL;
    length -= 2, distance -= 1;
    int is_far = distance >= ZS_BLOSCLZ_NEAR;
    uint32_t high = is_far ? 31 : distance >> 8;
    *to++ = (uint8_t)((length < 7 ? length : 7) << 5 | high);
    if (length >= 7) {
        for (length -= 7; length >= 255; length -= 255) *to++ = 255;
        *to++ = (uint8_t)length;
    }
    *to++ = is_far ? 255 : (uint8_t)distance;
    if (is_far) {
        *to++ = (uint8_t)((distance - ZS_BLOSCLZ_NEAR) >> 8);
        *to++ = (uint8_t)(distance - ZS_BLOSCLZ_NEAR);
    }
    return to;
}

/* Compress a stream: its size, or 0 if it does not fit `capacity`. */
static int64_t zs_blosclz_encode(const uint8_t *src, int32_t size, uint8_t *dst, int32_t capacity) {
    if (size < ZS_BLOSCLZ_LEAST) return 0;
    /* The last place of each hash. The first place has no match, and is where every hash leads at first. */
    size_t places_size = sizeof(int32_t) << ZS_BLOSCLZ_HASH_BITS;
    int32_t *places = (int32_t *)zs_scratch(ZS_SLOT_BLOSCLZ, places_size);
    if (places == NULL) return 0;
    memset(places, 0, places_size);
    uint8_t *to = dst;
    const uint8_t *stop = dst + capacity;
    int32_t begin = 0, at = 1, last = size - ZS_BLOSCLZ_TAIL, end = size - 2, missed = 0;
    while (at < last && to != NULL) {
        int32_t *held = &places[zs_blosclz_hash(src + at)], place = *held, distance = at - place;
        *held = at;
        int is_alike = distance <= ZS_BLOSCLZ_REACH && zs_load32(src + place) == zs_load32(src + at);
        int32_t length = is_alike ? 4 + zs_blosclz_alike(src + place + 4, src + at + 4, end - at - 4) : 0;
        /* What it takes: two bytes or three, two more from afar, and one where it ends a run of literals. */
        if (length <= 2 + (length > 8) + 2 * (distance > ZS_BLOSCLZ_NEAR) + (begin < at)) {
            at += 1 + (missed++ >> 6);
            continue;
        }
        missed = 0;
        to = zs_blosclz_put_literals(to, stop, src + begin, at - begin);
        to = zs_blosclz_put_match(to, stop, (uint32_t)length, (uint32_t)distance);
        at = begin = at + length;
        for (int32_t near = at - 2; near < at && near < last; near++) places[zs_blosclz_hash(src + near)] = near;
    }
    to = zs_blosclz_put_literals(to, stop, src + begin, size - begin);
    if (to == NULL) return 0;
    dst[0] |= 1 << 5;
    return to - dst;
}

#endif

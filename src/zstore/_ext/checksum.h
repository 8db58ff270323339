/* checksum.h - CRC-32C (Castagnoli, RFC 3720). */
#ifndef ZS_CHECKSUM_H
#define ZS_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ZS_CRC32C_POLYNOMIAL 0x82F63B78u /* bits reversed */

/* Eight tables for the portable loop, then two that append ZS_CRC32C_LONG and ZS_CRC32C_SHORT zero bytes. */
#define ZS_CRC32C_LONG 4096
#define ZS_CRC32C_SHORT 256
static uint32_t zs_crc32c_bytes[8][256];
static uint32_t zs_crc32c_long[4][256];
static uint32_t zs_crc32c_short[4][256];
static int zs_crc32c_hardware;

static uint32_t zs_crc32c_append_zeros(uint32_t crc, size_t count) {
    while (count-- > 0) crc = (crc >> 8) ^ zs_crc32c_bytes[0][crc & 0xff];
    return crc;
}

/* Appending zeros is linear, so four tables of 256 follow from the 32 single bits. */
static void zs_crc32c_zeros_table(uint32_t table[4][256], size_t count) {
    for (int byte = 0; byte < 4; byte++) {
        table[byte][0] = 0;
        for (int bit = 0; bit < 8; bit++) {
            uint32_t moved = zs_crc32c_append_zeros((uint32_t)1 << (8 * byte + bit), count);
            for (int low = 0; low < 1 << bit; low++) table[byte][(1 << bit) + low] = moved ^ table[byte][low];
        }
    }
}

__attribute__((constructor)) static void zs_crc32c_prepare(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (crc & 1 ? ZS_CRC32C_POLYNOMIAL : 0);
        zs_crc32c_bytes[0][byte] = crc;
    }
    for (int row = 1; row < 8; row++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = zs_crc32c_bytes[row - 1][byte];
            zs_crc32c_bytes[row][byte] = (crc >> 8) ^ zs_crc32c_bytes[0][crc & 0xff];
        }
#if defined(__x86_64__)
    __builtin_cpu_init();
    zs_crc32c_hardware = __builtin_cpu_supports("sse4.2") != 0;
    zs_crc32c_zeros_table(zs_crc32c_long, ZS_CRC32C_LONG);
    zs_crc32c_zeros_table(zs_crc32c_short, ZS_CRC32C_SHORT);
#endif
}

static uint32_t zs_crc32c_portable(uint32_t crc, const uint8_t *data, size_t size) {
    while (size >= 8) {
        uint32_t low =
            crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        crc = zs_crc32c_bytes[7][low & 0xff] ^ zs_crc32c_bytes[6][(low >> 8) & 0xff] ^
              zs_crc32c_bytes[5][(low >> 16) & 0xff] ^ zs_crc32c_bytes[4][low >> 24] ^ zs_crc32c_bytes[3][data[4]] ^
              zs_crc32c_bytes[2][data[5]] ^ zs_crc32c_bytes[1][data[6]] ^ zs_crc32c_bytes[0][data[7]];
        data += 8;
        size -= 8;
    }
    while (size-- > 0) crc = (crc >> 8) ^ zs_crc32c_bytes[0][(crc ^ *data++) & 0xff];
    return crc;
}

#if defined(__x86_64__)
static inline uint64_t zs_crc32c_load64(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, 8);
    return word;
}

static inline uint64_t zs_crc32c_shift(uint32_t table[4][256], uint64_t crc) {
    return table[0][crc & 0xff] ^ table[1][(crc >> 8) & 0xff] ^ table[2][(crc >> 16) & 0xff] ^ table[3][crc >> 24];
}

/* The instruction has a latency of three cycles and a throughput of one per cycle: three stretches are interleaved. */
__attribute__((target("sse4.2,crc32"))) static uint64_t zs_crc32c_triple(uint64_t crc, const uint8_t *data,
                                                                         size_t stretch, uint32_t table[4][256]) {
    uint64_t second = 0, third = 0;
    for (size_t at = 0; at < stretch; at += 8) {
        crc = __builtin_ia32_crc32di(crc, zs_crc32c_load64(data + at));
        second = __builtin_ia32_crc32di(second, zs_crc32c_load64(data + stretch + at));
        third = __builtin_ia32_crc32di(third, zs_crc32c_load64(data + 2 * stretch + at));
    }
    crc = zs_crc32c_shift(table, crc) ^ second;
    return zs_crc32c_shift(table, crc) ^ third;
}

__attribute__((target("sse4.2,crc32"))) static uint32_t zs_crc32c_sse42(uint32_t start, const uint8_t *data,
                                                                        size_t size) {
    uint64_t crc = start;
    for (; size >= 3 * ZS_CRC32C_LONG; data += 3 * ZS_CRC32C_LONG, size -= 3 * ZS_CRC32C_LONG)
        crc = zs_crc32c_triple(crc, data, ZS_CRC32C_LONG, zs_crc32c_long);
    for (; size >= 3 * ZS_CRC32C_SHORT; data += 3 * ZS_CRC32C_SHORT, size -= 3 * ZS_CRC32C_SHORT)
        crc = zs_crc32c_triple(crc, data, ZS_CRC32C_SHORT, zs_crc32c_short);
    for (; size >= 8; data += 8, size -= 8) crc = __builtin_ia32_crc32di(crc, zs_crc32c_load64(data));
    for (; size > 0; data++, size--) crc = __builtin_ia32_crc32qi((uint32_t)crc, *data);
    return (uint32_t)crc;
}
#endif

/* The checksum of all bytes, where `crc` is the checksum of those before (0 for none). */
static uint32_t zs_crc32c_extend(uint32_t crc, const void *data, size_t size) {
#if defined(__x86_64__)
    if (zs_crc32c_hardware) return ~zs_crc32c_sse42(~crc, data, size);
#endif
    return ~zs_crc32c_portable(~crc, data, size);
}

static inline uint32_t zs_crc32c(const void *data, size_t size) { return zs_crc32c_extend(0, data, size); }

#endif

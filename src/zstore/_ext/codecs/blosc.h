/* blosc.h - Blosc1 frames (c-blosc 1.x, format version 2), written and read here.
 *
 * A frame is a 16-byte header (version, compressor's version, flags, typesize, then as little-endian int32 the
 * decoded size, the block size and the frame's size), an int32 offset per block, and the blocks. A block is one
 * stream, or one per byte of the item ("split"); a stream is its int32 size and its bytes, stored as they are where
 * compressing gained nothing. Blocks are shuffled one by one. A frame that gained nothing holds the bytes themselves.
 *
 * All compressors but BloscLZ's, and the shuffles, come from the linked archive. Its own frame functions don't serve:
 * they write Blosc1 only under a process-wide lock and an environment variable, and set up a context per call.
 */
#ifndef ZS_CODEC_BLOSC_H
#define ZS_CODEC_BLOSC_H

#include "blosclz.h"
#include "deflate.h"
#include "lz4.h"
#include "runtime.h"
#include "zstd.h"

int blosclz_decompress(const void *src, int src_size, void *dst, int dst_capacity);
int32_t blosc2_shuffle(int32_t typesize, int32_t size, const void *src, void *dst);
int32_t blosc2_unshuffle(int32_t typesize, int32_t size, const void *src, void *dst);
int32_t blosc2_bitshuffle(int32_t typesize, int32_t size, const void *src, void *dst);
int32_t blosc2_bitunshuffle(int32_t typesize, int32_t size, const void *src, void *dst);

#define ZS_BLOSC_HEADER 16
#define ZS_BLOSC_SIZE_MAX (INT32_MAX - ZS_BLOSC_HEADER)
#define ZS_BLOSC_TYPESIZE_MAX 255
#define ZS_BLOSC_BLOCK_MAX ((INT32_MAX - ZS_BLOSC_TYPESIZE_MAX * 4) / 3)
#define ZS_BLOSC_VERSION 2
#define ZS_BLOSC_COMPRESSOR_VERSION 1

#define ZS_BLOSC_SHUFFLE 0x01
#define ZS_BLOSC_STORED 0x02
#define ZS_BLOSC_BITSHUFFLE 0x04
#define ZS_BLOSC_RESERVED 0x08
#define ZS_BLOSC_UNSPLIT 0x10

/* Splitting is worth it only for streams of at least MIN_STREAM bytes and for items of at most MAX_SPLITS bytes;
 * readers apply the same rule to frames from before the UNSPLIT flag. */
#define ZS_BLOSC_MIN_STREAM 128
#define ZS_BLOSC_MAX_SPLITS 16

/* Compressors by c-blosc's codes. LZ4 and LZ4HC share one format. */
enum { ZS_BLOSC_BLOSCLZ, ZS_BLOSC_LZ4, ZS_BLOSC_LZ4HC, ZS_BLOSC_SNAPPY, ZS_BLOSC_ZLIB, ZS_BLOSC_ZSTD };
enum { ZS_FORMAT_BLOSCLZ, ZS_FORMAT_LZ4, ZS_FORMAT_SNAPPY, ZS_FORMAT_ZLIB, ZS_FORMAT_ZSTD };

typedef struct zs_blosc_params {
    int compressor;
    int level;
    int shuffle; /* 0 none, 1 bytes, 2 bits */
    int typesize;
    int blocksize; /* 0: chosen as c-blosc chooses */
} zs_blosc_params;

/* A frame that is read. */
typedef struct zs_blosc_frame {
    const uint8_t *src;
    int32_t src_size;
    int flags;
    int format;
    int32_t typesize;
    int32_t size;
    int32_t blocksize;
    int32_t block_count;
} zs_blosc_frame;

static int zs_blosc_splits(int compressor, int32_t typesize, int32_t blocksize) {
    return compressor != ZS_BLOSC_ZSTD && typesize <= ZS_BLOSC_MAX_SPLITS &&
           blocksize / typesize >= ZS_BLOSC_MIN_STREAM;
}

/* c-blosc's choice, so that size and speed are those its users know. */
static int32_t zs_blosc_blocksize(const zs_blosc_params *params, int32_t typesize, int32_t size) {
    static const int eighths[10] = {2, 4, 8, 16, 32, 32, 64, 64, 64, 64};
    const int32_t unit = 32 << 10;
    int32_t blocksize = size;
    if (size < typesize) return 1;
    if (params->blocksize > 0) {
        blocksize = params->blocksize;
        if (blocksize < ZS_BLOSC_MIN_STREAM) blocksize = ZS_BLOSC_MIN_STREAM;
        if (blocksize > ZS_BLOSC_BLOCK_MAX) blocksize = ZS_BLOSC_BLOCK_MAX;
    } else if (size >= unit) {
        int thorough = params->compressor == ZS_BLOSC_LZ4HC || params->compressor == ZS_BLOSC_ZLIB ||
                       params->compressor == ZS_BLOSC_ZSTD;
        blocksize = unit / 8 * eighths[params->level] * (thorough ? 2 : 1);
        if (params->level == 9 && thorough) blocksize *= 2;
    }
    if (params->level > 0 && zs_blosc_splits(params->compressor, typesize, blocksize)) {
        if (blocksize > 1 << 18) blocksize = 1 << 18;
        blocksize *= typesize;
        if (blocksize < 1 << 16) blocksize = 1 << 16;
        if (blocksize > 1 << 20) blocksize = 1 << 20;
    }
    if (blocksize > size) blocksize = size;
    return blocksize > typesize ? blocksize / typesize * typesize : blocksize;
}

/* --- writing ------------------------------------------------------------------------------------------------- */

/* Compress one stream: its size, or 0 or less if it does not fit `capacity`. */
static int64_t zs_blosc_compress(const zs_blosc_params *params, const uint8_t *src, int32_t size, uint8_t *dst,
                                 int32_t capacity) {
    switch (params->compressor) {
    case ZS_BLOSC_BLOSCLZ: return zs_blosclz_encode(src, size, dst, capacity);
    case ZS_BLOSC_LZ4: {
        int acceleration = 10 - params->level;
        return LZ4_compress_fast((const char *)src, (char *)dst, size, capacity, acceleration);
    }
    case ZS_BLOSC_LZ4HC: {
        void *state = zs_scratch(ZS_SLOT_LZ4HC, (size_t)LZ4_sizeofStateHC());
        if (state == NULL) return 0;
        return LZ4_compress_HC_extStateHC(state, (const char *)src, (char *)dst, size, capacity, params->level);
    }
    case ZS_BLOSC_ZLIB: {
        zs_deflate_params deflate = {ZS_ZLIB, params->level};
        return zs_deflate_encode(&deflate, src, (size_t)size, dst, (size_t)capacity);
    }
    default: {
        zs_zstd_params zstd = {params->level < 9 ? params->level * 2 - 1 : 22, 0};
        return zs_zstd_encode(&zstd, src, (size_t)size, dst, (size_t)capacity);
    }
    }
}

/* Shuffle one block before it is compressed: `src` itself or a copy in `scratch`; NULL if shuffling failed. */
static const uint8_t *zs_blosc_filter(int flags, int32_t typesize, int32_t size, const uint8_t *src, uint8_t *scratch) {
    if (flags & ZS_BLOSC_SHUFFLE && typesize > 1)
        return blosc2_shuffle(typesize, size, src, scratch) < 0 ? NULL : scratch;
    if (flags & ZS_BLOSC_BITSHUFFLE && size >= typesize && size / typesize % 8 == 0)
        return blosc2_bitshuffle(typesize, size, src, scratch) < 0 ? NULL : scratch;
    return src;
}

/* Encode one block into `dst`: its size there, 0 if it does not fit. */
static int32_t zs_blosc_encode_block(const zs_blosc_params *params, const uint8_t *block, int32_t size, int32_t streams,
                                     uint8_t *dst, int32_t capacity) {
    int32_t stream_size = size / streams, at = 0;
    for (int32_t stream = 0; stream < streams; stream++, block += stream_size) {
        int32_t room = capacity - at - 4;
        if (room <= 0) return 0;
        if (room > stream_size) room = stream_size;
        int64_t written = zs_blosc_compress(params, block, stream_size, dst + at + 4, room);
        if (written <= 0 || written >= stream_size) {
            if (room < stream_size) return 0;
            memcpy(dst + at + 4, block, (size_t)stream_size);
            written = stream_size;
        }
        zs_store32(dst + at, (uint32_t)written);
        at += 4 + (int32_t)written;
    }
    return at;
}

/* The end of a block's streams by their stored sizes; 0 if that lies outside the frame. */
static uint32_t zs_blosc_block_end(const zs_blosc_frame *frame, uint32_t offset, int32_t streams) {
    uint32_t src_size = (uint32_t)frame->src_size;
    for (int32_t stream = 0; stream < streams; stream++) {
        if (offset > src_size - 4) return 0;
        uint32_t size = zs_load32(frame->src + offset);
        offset += 4;
        if (size > src_size - offset) return 0;
        offset += size;
    }
    return offset;
}

/* Write offsets and blocks after the header: the frame's size, 0 if it does not fit, or a negative status. `fresh` has
 * the bytes start .. end of the decoded whole, whole blocks, to encode; other blocks are copied from the frame `old`.
 */
static int64_t zs_blosc_encode_blocks(const zs_blosc_params *params, int flags, int32_t blocksize, int32_t size,
                                      const uint8_t *fresh, size_t start, size_t end, const zs_blosc_frame *old,
                                      uint8_t *dst, int32_t capacity) {
    int32_t typesize = params->typesize, block_count = size / blocksize + (size % blocksize > 0);
    int64_t at = ZS_BLOSC_HEADER + 4 * (int64_t)block_count;
    if (at >= capacity) return 0;
    uint8_t *scratch = zs_scratch(ZS_SLOT_FILTERED, (size_t)blocksize);
    if (scratch == NULL) return ZSTORE_EMEMORY;
    for (int32_t block = 0; block < block_count; block++) {
        if (zs_is_stopped()) return ZSTORE_ESTOPPED;
        size_t begin = (size_t)block * (size_t)blocksize;
        int32_t left = size - (int32_t)begin, block_size = left < blocksize ? left : blocksize, written;
        int32_t streams = !(flags & ZS_BLOSC_UNSPLIT) && block_size == blocksize ? typesize : 1;
        if (begin >= start && begin < end) {
            const uint8_t *filtered = zs_blosc_filter(flags, typesize, block_size, fresh + (begin - start), scratch);
            if (filtered == NULL) return ZSTORE_EINTERNAL;
            written = zs_blosc_encode_block(params, filtered, block_size, streams, dst + at, capacity - (int32_t)at);
        } else {
            uint32_t from = zs_load32(old->src + ZS_BLOSC_HEADER + 4 * (size_t)block);
            uint32_t to = zs_blosc_block_end(old, from, streams);
            if (to == 0 || to - from > (uint32_t)(capacity - at)) return ZSTORE_EINTERNAL;
            written = (int32_t)(to - from);
            memcpy(dst + at, old->src + from, (size_t)written);
        }
        if (written == 0) return 0;
        zs_store32(dst + ZS_BLOSC_HEADER + 4 * (size_t)block, (uint32_t)at);
        at += written;
    }
    return at;
}

static size_t zs_blosc_bound(const void *state, size_t src_size) {
    (void)state;
    return src_size > SIZE_MAX - ZS_BLOSC_HEADER ? SIZE_MAX : src_size + ZS_BLOSC_HEADER;
}

static int zs_blosc_flags(const zs_blosc_params *params, int32_t blocksize) {
    static const int formats[] = {ZS_FORMAT_BLOSCLZ, ZS_FORMAT_LZ4,  ZS_FORMAT_LZ4,
                                  ZS_FORMAT_SNAPPY,  ZS_FORMAT_ZLIB, ZS_FORMAT_ZSTD};
    static const int shuffles[] = {0, ZS_BLOSC_SHUFFLE, ZS_BLOSC_BITSHUFFLE};
    int flags = formats[params->compressor] << 5 | shuffles[params->shuffle];
    return zs_blosc_splits(params->compressor, params->typesize, blocksize) ? flags : flags | ZS_BLOSC_UNSPLIT;
}

static void zs_blosc_header(uint8_t *header, int flags, int32_t typesize, int32_t size, int32_t blocksize,
                            int64_t written) {
    header[0] = ZS_BLOSC_VERSION;
    header[1] = ZS_BLOSC_COMPRESSOR_VERSION;
    header[2] = (uint8_t)flags;
    header[3] = (uint8_t)typesize;
    zs_store32(header + 4, (uint32_t)size);
    zs_store32(header + 8, (uint32_t)blocksize);
    zs_store32(header + 12, (uint32_t)written);
}

static int64_t zs_blosc_encode(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity) {
    const zs_blosc_params *params = state;
    if (src_size > ZS_BLOSC_SIZE_MAX) return ZSTORE_EINTERNAL;
    if (dst_capacity < ZS_BLOSC_HEADER) return ZSTORE_ECAPACITY;
    int32_t size = (int32_t)src_size, typesize = params->typesize;
    size_t stored_size = src_size + ZS_BLOSC_HEADER;
    int32_t capacity = (int32_t)(dst_capacity < stored_size ? dst_capacity : stored_size);
    int32_t blocksize = zs_blosc_blocksize(params, typesize, size);
    int flags = zs_blosc_flags(params, blocksize);

    int64_t written = 0;
    if (params->level > 0 && size >= ZS_BLOSC_MIN_STREAM)
        written = zs_blosc_encode_blocks(params, flags, blocksize, size, src, 0, src_size, NULL, dst, capacity);
    if (written < 0) return written;
    uint8_t *header = dst;
    if (written == 0) {
        if (dst_capacity < stored_size) return ZSTORE_ECAPACITY;
        if (size > 0) memcpy(header + ZS_BLOSC_HEADER, src, src_size);
        flags |= ZS_BLOSC_STORED;
        written = (int64_t)stored_size;
    }
    zs_blosc_header(header, flags, typesize, size, blocksize, written);
    return written;
}

/* --- reading ------------------------------------------------------------------------------------------------- */

/* Read the header and check it against the frame's size: 0 or ZSTORE_EDAMAGED. */
static int zs_blosc_parse(zs_blosc_frame *frame, const void *src, size_t src_size) {
    const uint8_t *header = src;
    if (src_size < ZS_BLOSC_HEADER || src_size > INT32_MAX) return ZSTORE_EDAMAGED;
    if (header[0] != ZS_BLOSC_VERSION || zs_load32(header + 12) != src_size) return ZSTORE_EDAMAGED;
    frame->src = src;
    frame->src_size = (int32_t)src_size;
    frame->flags = header[2];
    frame->format = header[2] >> 5;
    frame->typesize = header[3];
    uint32_t size = zs_load32(header + 4), blocksize = zs_load32(header + 8);
    if (size > ZS_BLOSC_SIZE_MAX) return ZSTORE_EDAMAGED;
    frame->size = (int32_t)size;
    frame->blocksize = frame->block_count = 0;
    if (size == 0) return src_size == ZS_BLOSC_HEADER ? 0 : ZSTORE_EDAMAGED;
    if (frame->flags & ZS_BLOSC_RESERVED || frame->typesize == 0) return ZSTORE_EDAMAGED;
    if (blocksize == 0 || blocksize > size) return ZSTORE_EDAMAGED;
    frame->blocksize = (int32_t)blocksize;
    frame->block_count = (int32_t)(size / blocksize + (size % blocksize > 0));
    if (frame->flags & ZS_BLOSC_STORED) return src_size == (size_t)size + ZS_BLOSC_HEADER ? 0 : ZSTORE_EDAMAGED;
    if (header[1] != ZS_BLOSC_COMPRESSOR_VERSION || frame->format == ZS_FORMAT_SNAPPY || frame->format > ZS_FORMAT_ZSTD)
        return ZSTORE_EDAMAGED;
    return frame->block_count > (frame->src_size - ZS_BLOSC_HEADER) / 4 ? ZSTORE_EDAMAGED : 0;
}

/* Decompress one stream of `size` bytes into `dst`: the number of bytes, or a negative status. */
static int64_t zs_blosc_decompress(int format, const uint8_t *src, int32_t src_size, uint8_t *dst, int32_t size) {
    int made;
    switch (format) {
    case ZS_FORMAT_BLOSCLZ:
        made = blosclz_decompress(src, src_size, dst, size);
        return made < 0 ? ZSTORE_EDAMAGED : made;
    case ZS_FORMAT_LZ4:
        made = LZ4_decompress_safe((const char *)src, (char *)dst, src_size, size);
        return made < 0 ? ZSTORE_EDAMAGED : made;
    case ZS_FORMAT_ZLIB: return zs_inflate(ZS_ZLIB, src, (size_t)src_size, dst, (size_t)size);
    default: return zs_zstd_decode(NULL, src, (size_t)src_size, dst, (size_t)size);
    }
}

/* Decompress the streams of one block, which stay shuffled, into `dst`: 0 or a negative status. */
static int zs_blosc_decode_streams(const zs_blosc_frame *frame, int32_t block, int32_t block_size, uint8_t *dst) {
    int split = !(frame->flags & ZS_BLOSC_UNSPLIT) && block_size == frame->blocksize &&
                frame->typesize <= ZS_BLOSC_MAX_SPLITS && block_size / frame->typesize >= ZS_BLOSC_MIN_STREAM;
    int32_t streams = split ? frame->typesize : 1, stream_size = block_size / streams;
    if (stream_size * streams != block_size) return ZSTORE_EDAMAGED;
    uint32_t offset = zs_load32(frame->src + ZS_BLOSC_HEADER + 4 * (size_t)block);
    uint32_t src_size = (uint32_t)frame->src_size;
    for (int32_t stream = 0; stream < streams; stream++, dst += stream_size) {
        if (offset > src_size - 4) return ZSTORE_EDAMAGED;
        uint32_t encoded_size = zs_load32(frame->src + offset);
        offset += 4;
        if (encoded_size > src_size - offset) return ZSTORE_EDAMAGED;
        const uint8_t *encoded = frame->src + offset;
        offset += encoded_size;
        if (encoded_size == (uint32_t)stream_size) {
            memcpy(dst, encoded, (size_t)stream_size);
            continue;
        }
        int64_t made = zs_blosc_decompress(frame->format, encoded, (int32_t)encoded_size, dst, stream_size);
        if (made == ZSTORE_EMEMORY) return ZSTORE_EMEMORY;
        if (made != stream_size) return ZSTORE_EDAMAGED;
    }
    return 0;
}

/* Decode one block into `dst`: 0 or a negative status. */
static int zs_blosc_decode_block(const zs_blosc_frame *frame, int32_t block, int32_t block_size, uint8_t *dst) {
    int32_t typesize = frame->typesize;
    int bytes = frame->flags & ZS_BLOSC_SHUFFLE && typesize > 1;
    int bits = !bytes && frame->flags & ZS_BLOSC_BITSHUFFLE && block_size >= typesize && block_size / typesize % 8 == 0;
    if (!bytes && !bits) return zs_blosc_decode_streams(frame, block, block_size, dst);
    uint8_t *scratch = zs_scratch(ZS_SLOT_FILTERED, (size_t)frame->blocksize);
    if (scratch == NULL) return ZSTORE_EMEMORY;
    int status = zs_blosc_decode_streams(frame, block, block_size, scratch);
    if (status != 0) return status;
    int32_t done = bytes ? blosc2_unshuffle(typesize, block_size, scratch, dst)
                         : blosc2_bitunshuffle(typesize, block_size, scratch, dst);
    return done < 0 ? ZSTORE_EINTERNAL : 0;
}

/* Decode bytes start .. start + size, which the caller has checked to exist, into `dst`. */
static int64_t zs_blosc_decode_part(const zs_blosc_frame *frame, int32_t start, int32_t size, uint8_t *dst) {
    if (size == 0) return 0;
    if (frame->flags & ZS_BLOSC_STORED) {
        memcpy(dst, frame->src + ZS_BLOSC_HEADER + start, (size_t)size);
        return size;
    }
    int32_t end = start + size, first = start / frame->blocksize, last = (end - 1) / frame->blocksize;
    for (int32_t block = first; block <= last; block++) {
        if (zs_is_stopped()) return ZSTORE_ESTOPPED;
        int32_t block_start = block * frame->blocksize;
        int32_t left = frame->size - block_start, block_size = left < frame->blocksize ? left : frame->blocksize;
        int32_t from = start > block_start ? start - block_start : 0;
        int32_t to = end - block_start < block_size ? end - block_start : block_size;
        int whole = from == 0 && to == block_size;
        uint8_t *target = whole ? dst + (block_start - start) : zs_scratch(ZS_SLOT_BLOCK, (size_t)frame->blocksize);
        if (target == NULL) return ZSTORE_EMEMORY;
        int status = zs_blosc_decode_block(frame, block, block_size, target);
        if (status != 0) return status;
        if (!whole) memcpy(dst + (block_start + from - start), target + from, (size_t)(to - from));
    }
    return size;
}

static int64_t zs_blosc_decoded_size(const void *state, const void *src, size_t src_size) {
    (void)state;
    zs_blosc_frame frame;
    return zs_blosc_parse(&frame, src, src_size) != 0 ? ZSTORE_EDAMAGED : frame.size;
}

static int64_t zs_blosc_decode(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity) {
    (void)state;
    zs_blosc_frame frame;
    if (zs_blosc_parse(&frame, src, src_size) != 0) return ZSTORE_EDAMAGED;
    if ((size_t)frame.size > dst_capacity) return ZSTORE_ECAPACITY;
    return zs_blosc_decode_part(&frame, 0, frame.size, dst);
}

static int64_t zs_blosc_decode_range(const void *state, const void *src, size_t src_size, size_t start, size_t size,
                                     void *dst, size_t dst_capacity) {
    (void)state;
    zs_blosc_frame frame;
    if (zs_blosc_parse(&frame, src, src_size) != 0) return ZSTORE_EDAMAGED;
    if (start > (size_t)frame.size || size > (size_t)frame.size - start) return ZSTORE_EDAMAGED;
    if (size > dst_capacity) return ZSTORE_ECAPACITY;
    return zs_blosc_decode_part(&frame, (int32_t)start, (int32_t)size, dst);
}

/* --- some blocks encoded anew, the others copied --------------------------------------------------------------- */

static size_t zs_blosc_block_size(const void *state, size_t src_size) {
    const zs_blosc_params *params = state;
    if (src_size > ZS_BLOSC_SIZE_MAX) return src_size;
    return (size_t)zs_blosc_blocksize(params, params->typesize, (int32_t)src_size);
}

static int64_t zs_blosc_replace_blocks(const void *state, const void *src, size_t src_size, size_t start, size_t size,
                                       const void *blocks, void *dst, size_t dst_capacity) {
    const zs_blosc_params *params = state;
    zs_blosc_frame frame;
    if (zs_blosc_parse(&frame, src, src_size) != 0 || frame.size == 0) return ZSTORE_EINTERNAL;
    int32_t blocksize = zs_blosc_blocksize(params, params->typesize, frame.size);
    int flags = zs_blosc_flags(params, blocksize);
    size_t end = start + size, stored_size = (size_t)frame.size + ZS_BLOSC_HEADER;
    if (frame.flags != flags || frame.typesize != params->typesize || frame.blocksize != blocksize || size == 0 ||
        start % (size_t)blocksize || (end % (size_t)blocksize && end != (size_t)frame.size) || end > (size_t)frame.size)
        return ZSTORE_EINTERNAL;
    int32_t capacity = (int32_t)(dst_capacity < stored_size ? dst_capacity : stored_size);
    int64_t written =
        zs_blosc_encode_blocks(params, flags, blocksize, frame.size, blocks, start, end, &frame, dst, capacity);
    if (written == 0) return ZSTORE_EINTERNAL;
    if (written > 0) zs_blosc_header(dst, flags, frame.typesize, frame.size, blocksize, written);
    return written;
}

static zstore_codec *zs_blosc_new(int compressor, int level, int shuffle, int typesize, int blocksize) {
    static const zstore_codec functions = {
        .encode_bound = zs_blosc_bound,
        .encode = zs_blosc_encode,
        .decode = zs_blosc_decode,
        .decode_range = zs_blosc_decode_range,
        .decoded_size = zs_blosc_decoded_size,
        .block_size = zs_blosc_block_size,
        .replace_blocks = zs_blosc_replace_blocks,
        .watch = zs_codec_watch,
    };
    zs_blosc_params params = {compressor, level, shuffle, typesize, blocksize};
    return zs_codec_new(&functions, &params, sizeof(params));
}

#endif

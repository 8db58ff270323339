/* blosc_replace.h - some blocks of a Blosc1 frame encoded anew, the others copied; a part of blosc.h. */
#ifndef ZS_CODEC_BLOSC_REPLACE_H
#define ZS_CODEC_BLOSC_REPLACE_H

static size_t zs_blosc_block_size(const void *state, size_t src_size) {
    const zs_blosc_params *params = state;
    if (src_size > ZS_BLOSC_SIZE_MAX) return src_size;
    return (size_t)zs_blosc_blocksize(params, params->typesize, (int32_t)src_size);
}

/* Where a block's streams end, as far as their sizes say; 0 where that is not in the frame. */
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

static int64_t zs_blosc_replace_blocks(const void *state, const void *src, size_t src_size, size_t start, size_t size,
                                       const void *blocks, void *dst, size_t dst_capacity) {
    const zs_blosc_params *params = state;
    zs_blosc_frame frame;
    if (zs_blosc_parse(&frame, src, src_size) != 0 || frame.size == 0) return ZSTORE_EINTERNAL;
    int32_t blocksize = zs_blosc_blocksize(params, params->typesize, frame.size);
    int flags = zs_blosc_flags(params, blocksize), is_split = !(flags & ZS_BLOSC_UNSPLIT);
    size_t end = start + size;
    if (frame.flags != flags || frame.typesize != params->typesize || frame.blocksize != blocksize || size == 0 ||
        start % (size_t)blocksize || (end % (size_t)blocksize && end != (size_t)frame.size) || end > (size_t)frame.size)
        return ZSTORE_EINTERNAL;
    uint8_t *scratch = zs_scratch(ZS_SLOT_FILTERED, (size_t)blocksize), *made = dst;
    if (scratch == NULL) return ZSTORE_EMEMORY;
    size_t stored_size = (size_t)frame.size + ZS_BLOSC_HEADER;
    int32_t capacity = (int32_t)(dst_capacity < stored_size ? dst_capacity : stored_size);
    int32_t at = ZS_BLOSC_HEADER + 4 * frame.block_count;
    if (at >= capacity) return ZSTORE_EINTERNAL;
    for (int32_t block = 0; block < frame.block_count; block++) {
        size_t begin = (size_t)block * (size_t)blocksize;
        int32_t block_size = frame.size - (int32_t)begin < blocksize ? frame.size - (int32_t)begin : blocksize, written;
        int32_t streams = is_split && block_size == blocksize ? frame.typesize : 1;
        if (begin >= start && begin < end) {
            const uint8_t *fresh = (const uint8_t *)blocks + (begin - start);
            const uint8_t *filtered = zs_blosc_filter(flags, frame.typesize, block_size, fresh, scratch);
            if (filtered == NULL) return ZSTORE_EINTERNAL;
            written = zs_blosc_encode_block(params, filtered, block_size, streams, made + at, capacity - at);
        } else {
            uint32_t from = zs_load32(frame.src + ZS_BLOSC_HEADER + 4 * (size_t)block);
            uint32_t to = zs_blosc_block_end(&frame, from, streams);
            if (to == 0 || to - from > (uint32_t)(capacity - at)) return ZSTORE_EINTERNAL;
            written = (int32_t)(to - from);
            memcpy(made + at, frame.src + from, (size_t)written);
        }
        if (written == 0) return ZSTORE_EINTERNAL;
        zs_store32(made + ZS_BLOSC_HEADER + 4 * (size_t)block, (uint32_t)at);
        at += written;
    }
    zs_blosc_header(made, flags, frame.typesize, frame.size, blocksize, at);
    return at;
}

#endif

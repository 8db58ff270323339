/* recode.h - the stored content of a chunk that is written in part: decoded, or with its untouched blocks kept. */
#ifndef ZS_RECODE_H
#define ZS_RECODE_H

#include "batch.h"

/* Decode the inner chunk that lies at `where` into `into`. */
static inline int zs_fetch_decoded(const zs_layout *layout, const zs_source *source, zs_entry where,
                                   zs_scratch *scratch, char *into, zs_fault *fault) {
    int64_t size = (int64_t)where.size;
    const char *raw, *decoded;
    int is_plain = layout->n_steps == 0;
    if (is_plain && size != layout->chunk_size) return zs_fail(fault, ZS_FAULT_SIZE, size, layout->chunk_size);
    zs_buffer lent = {into, (size_t)size}; /* bytes stored without encoding need no buffer in between */
    int code = zs_check_size(layout, size, fault);
    if (!code) code = zs_fetch(source, (int64_t)where.offset, size, is_plain ? &lent : &scratch->raw, &raw, fault);
    if (!code) code = zs_decode(layout, scratch, raw, size, into, &decoded, fault);
    if (!code && decoded != into) memcpy(into, decoded, (size_t)layout->chunk_size);
    return code;
}

/* Recode only the blocks of an encoded chunk that a box touches, where the codec can and it saves much: the encoded
 * chunk is in scratch then. Returns whether it did: otherwise recoding all gives the chunk or says what is wrong. */
static inline int zs_replace_blocks(const zs_layout *layout, const zs_move *box, const zs_source *source,
                                    zs_entry where, int skip_empty, zs_scratch *scratch, const char **encoded,
                                    int64_t *encoded_size) {
    const zstore_codec *codec = layout->step[0];
    zs_fault fault = {0};
    const char *raw;
    int64_t start, size = layout->chunk_size;
    if (!box || layout->n_steps != 1 || where.offset == ZS_EMPTY || !ZSTORE_CODEC_HAS(codec, replace_blocks)) return 0;
    if (!ZSTORE_CODEC_HAS(codec, block_size) || !ZSTORE_CODEC_HAS(codec, decode_range) ||
        !ZSTORE_CODEC_HAS(codec, decoded_size))
        return 0;
    int64_t block = (int64_t)codec->block_size(codec->state, (size_t)size), span = zs_span(layout, box, &start);
    if (block <= 0 || block > size) return 0;
    int64_t end = (start + span + block - 1) / block * block;
    start = start / block * block;
    if (end > size) end = size;
    if (end - start > size - size / 4) return 0;
    if (zs_check_size(layout, (int64_t)where.size, &fault)) return 0;
    if (zs_fetch(source, (int64_t)where.offset, (int64_t)where.size, &scratch->raw, &raw, &fault)) return 0;
    if (codec->decoded_size(codec->state, raw, (size_t)where.size) != size) return 0;
    char *chunk = zs_reserve(&scratch->chunk, size), *into = zs_reserve(&scratch->step[0], layout->bound[1]);
    if (!chunk || !into) return 0;
    size_t count = (size_t)(end - start);
    if (codec->decode_range(codec->state, raw, (size_t)where.size, (size_t)start, count, chunk + start, count) !=
        end - start)
        return 0;
    zs_to_chunk(layout, box, chunk);
    if (skip_empty && zs_is_filled(chunk + start, end - start, layout->fill, layout->item)) return 0; /* all of it? */
    int64_t made = codec->replace_blocks(codec->state, raw, (size_t)where.size, (size_t)start, count, chunk + start,
                                         into, (size_t)layout->bound[1]);
    if (made <= 0) return 0;
    *encoded = into;
    *encoded_size = made;
    return 1;
}

#endif

/* zstore_codec.h - the C ABI of a native chunk codec (bytes to bytes).
 *
 * A codec object offers it through a method `__zstore_codec__()` that returns a PyCapsule named
 * ZSTORE_CODEC_CAPSULE around a `zstore_codec`. The engine then calls `encode` and `decode` from its own
 * threads without the GIL.
 *
 * Rules
 *   - `state` never changes after the capsule exists; the functions are called from many threads at once and
 *     keep whatever they reuse (contexts, tables) in thread-local storage of their own.
 *   - The functions never touch Python, never write past `dst + dst_capacity`, never read past `src + src_size`.
 *   - They return the number of bytes written, or one of the negative ZSTORE_E* values below.
 *   - `struct_size` is sizeof(zstore_codec) of whoever made it: fields are only ever appended, and a field lies
 *     in the struct if and only if it ends within struct_size.
 *   - The capsule's destructor calls `destroy(codec)`, which frees the struct and its state.
 *   - Fields marked optional may be NULL or missing; ask ZSTORE_CODEC_HAS before calling one.
 */
#ifndef ZSTORE_CODEC_H
#define ZSTORE_CODEC_H

#include <stddef.h>
#include <stdint.h>

#define ZSTORE_CODEC_CAPSULE "zstore.codec.v1"

#define ZSTORE_EDAMAGED (-1)  /* the encoded bytes are not what this codec writes */
#define ZSTORE_ECAPACITY (-2) /* decodes to more than dst_capacity bytes, or encodes to more than that */
#define ZSTORE_ECHECKSUM (-3) /* a stored checksum does not match */
#define ZSTORE_EMEMORY (-4)   /* out of memory */
#define ZSTORE_EINTERNAL (-5) /* the codec library refused for a reason that is not the data's */
#define ZSTORE_ESTOPPED (-6)  /* who watches this thread said to stop */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zstore_codec {
    uint32_t struct_size;
    uint32_t reserved;
    void *state;
    /* the most bytes that `encode` may write for `src_size` bytes */
    size_t (*encode_bound)(const void *state, size_t src_size);
    int64_t (*encode)(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity);
    int64_t (*decode)(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity);
    void (*destroy)(struct zstore_codec *codec);
    /* optional: decode only bytes start .. start + size of the decoded whole; EDAMAGED where it has no such bytes */
    int64_t (*decode_range)(const void *state, const void *src, size_t src_size, size_t start, size_t size, void *dst,
                            size_t dst_capacity);
    /* optional: how many bytes the encoded bytes claim to decode to, unverified; ZSTORE_EDAMAGED where they don't say
     */
    int64_t (*decoded_size)(const void *state, const void *src, size_t src_size);
    /* optional, together with `decode_range`, `decoded_size` and `replace_blocks`: into blocks of how many bytes
     * `encode` cuts `src_size` bytes, each of which it encodes by itself */
    size_t (*block_size)(const void *state, size_t src_size);
    /* optional: encoded bytes `src` with some of their blocks encoded anew, from the decoded `size` bytes at `blocks`,
     * which begin at byte `start` of the decoded whole: whole blocks, or up to the end of it. The others stay as they
     * are encoded. EINTERNAL where `src` is not what `encode` would have made, or the result would not be. */
    int64_t (*replace_blocks)(const void *state, const void *src, size_t src_size, size_t start, size_t size,
                              const void *blocks, void *dst, size_t dst_capacity);
    /* optional: from now on, calls on this thread ask `asks(whom)` every few milliseconds, and end with ESTOPPED where
     * it says other than 0; NULL: no more. It is the caller's wish for long calls, so a codec may hear it late or not
     * at all.
     */
    void (*watch)(int (*asks)(void *whom), void *whom);
} zstore_codec;

#define ZSTORE_CODEC_HAS(codec, field) \
    (offsetof(zstore_codec, field) + sizeof((codec)->field) <= (codec)->struct_size && (codec)->field != NULL)

#ifdef __cplusplus
}
#endif
#endif

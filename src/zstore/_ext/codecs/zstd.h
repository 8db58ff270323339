/* zstd.h - Zstandard frames (RFC 8878), one or several, with skippable frames between them. */
#ifndef ZS_CODEC_ZSTD_H
#define ZS_CODEC_ZSTD_H

#include "runtime.h"

/* The part of libzstd's stable interface that is used here; the archive that is linked ships no zstd.h. */
typedef struct ZSTD_CCtx_s ZSTD_CCtx;
typedef struct ZSTD_DCtx_s ZSTD_DCtx;
ZSTD_CCtx *ZSTD_createCCtx(void);
size_t ZSTD_freeCCtx(ZSTD_CCtx *context);
size_t ZSTD_sizeof_CCtx(const ZSTD_CCtx *context);
size_t ZSTD_CCtx_setParameter(ZSTD_CCtx *context, int parameter, int value);
size_t ZSTD_compress2(ZSTD_CCtx *context, void *dst, size_t dst_capacity, const void *src, size_t src_size);
size_t ZSTD_compressBound(size_t src_size);
size_t ZSTD_CCtx_reset(ZSTD_CCtx *context, int what);
size_t ZSTD_CCtx_setPledgedSrcSize(ZSTD_CCtx *context, unsigned long long size);
typedef struct {
    const void *src;
    size_t size, pos;
} ZSTD_inBuffer;
typedef struct {
    void *dst;
    size_t size, pos;
} ZSTD_outBuffer;
size_t ZSTD_compressStream2(ZSTD_CCtx *context, ZSTD_outBuffer *out, ZSTD_inBuffer *in, int directive);
ZSTD_DCtx *ZSTD_createDCtx(void);
size_t ZSTD_freeDCtx(ZSTD_DCtx *context);
size_t ZSTD_decompressDCtx(ZSTD_DCtx *context, void *dst, size_t dst_capacity, const void *src, size_t src_size);
size_t ZSTD_decompressBegin(ZSTD_DCtx *context);
size_t ZSTD_nextSrcSizeToDecompress(ZSTD_DCtx *context);
size_t ZSTD_decompressContinue(ZSTD_DCtx *context, void *dst, size_t dst_capacity, const void *src, size_t src_size);
unsigned long long ZSTD_getFrameContentSize(const void *src, size_t src_size);
size_t ZSTD_findFrameCompressedSize(const void *src, size_t src_size);
unsigned ZSTD_isError(size_t code);
int ZSTD_getErrorCode(size_t code);

#define ZS_ZSTD_LEVEL 100
#define ZS_ZSTD_CHECKSUM 201
#define ZS_ZSTD_MEMORY 64
#define ZS_ZSTD_TOO_SMALL 70
#define ZS_ZSTD_CHECKSUM_WRONG 22
#define ZS_ZSTD_DAMAGED 20
#define ZS_ZSTD_STOP 119 /* none of the library's */
#define ZS_ZSTD_CODE(number) ((size_t)0 - (number))
#define ZS_ZSTD_SESSION 1 /* what is reset: not the parameters */
#define ZS_ZSTD_CONTINUE 0
#define ZS_ZSTD_END 2
#define ZS_ZSTD_MAGIC 0xFD2FB528u
#define ZS_ZSTD_SKIPPABLE 0x184D2A50u
#define ZS_ZSTD_SIZE_UNKNOWN (0ULL - 1)
#define ZS_ZSTD_SIZE_ERROR (0ULL - 2)

/* The largest encoding context a thread keeps: level 22 on a large chunk takes hundreds of MiB. */
#define ZS_ZSTD_KEPT ((size_t)32 << 20)

/* Sources of so many bytes are encoded in pieces. */
#define ZS_ZSTD_LONG ((size_t)16 << 20)

typedef struct zs_zstd_params {
    int level;
    int checksum;
} zs_zstd_params;

typedef struct zs_zstd_encoder {
    ZSTD_CCtx *context;
    zs_zstd_params params;
} zs_zstd_encoder;

static int64_t zs_zstd_error(size_t code) {
    switch (ZSTD_getErrorCode(code)) {
    case ZS_ZSTD_TOO_SMALL: return ZSTORE_ECAPACITY;
    case ZS_ZSTD_CHECKSUM_WRONG: return ZSTORE_ECHECKSUM;
    case ZS_ZSTD_MEMORY: return ZSTORE_EMEMORY;
    case ZS_ZSTD_STOP: return ZSTORE_ESTOPPED;
    default: return ZSTORE_EDAMAGED;
    }
}

static void zs_zstd_encoder_free(void *object) {
    zs_zstd_encoder *encoder = object;
    ZSTD_freeCCtx(encoder->context);
    free(encoder);
}

static void zs_zstd_decoder_free(void *object) { ZSTD_freeDCtx(object); }

static zs_zstd_encoder *zs_zstd_encoder_of(const zs_zstd_params *params) {
    zs_slot *slot = zs_slot_of(ZS_SLOT_ZSTD_ENCODE);
    if (slot == NULL) return NULL;
    zs_zstd_encoder *encoder = slot->object;
    if (encoder == NULL) {
        encoder = malloc(sizeof(*encoder));
        if (encoder == NULL) return NULL;
        encoder->context = ZSTD_createCCtx();
        if (encoder->context == NULL) {
            free(encoder);
            return NULL;
        }
        slot->object = encoder;
        slot->release = zs_zstd_encoder_free;
    } else if (encoder->params.level == params->level && encoder->params.checksum == params->checksum) {
        return encoder;
    }
    ZSTD_CCtx_setParameter(encoder->context, ZS_ZSTD_LEVEL, params->level);
    ZSTD_CCtx_setParameter(encoder->context, ZS_ZSTD_CHECKSUM, params->checksum);
    encoder->params = *params;
    return encoder;
}

static size_t zs_zstd_bound(const void *state, size_t src_size) {
    (void)state;
    size_t bound = ZSTD_compressBound(src_size);
    return ZSTD_isError(bound) ? SIZE_MAX : bound;
}

/* As ZSTD_compress2, in pieces of the source; ZS_ZSTD_STOP where who watches says so. The bytes may be others, so the
 * size alone decides. */
static size_t zs_zstd_encode_pieces(ZSTD_CCtx *context, void *dst, size_t dst_capacity, const void *src,
                                    size_t src_size) {
    ZSTD_inBuffer in = {src, 0, 0};
    ZSTD_outBuffer out = {dst, dst_capacity, 0};
    ZSTD_CCtx_reset(context, ZS_ZSTD_SESSION);
    size_t code = ZSTD_CCtx_setPledgedSrcSize(context, src_size);
    while (!ZSTD_isError(code)) {
        if (zs_is_stopped()) return ZS_ZSTD_CODE(ZS_ZSTD_STOP);
        in.size = src_size - in.pos > ZS_PIECE ? in.pos + ZS_PIECE : src_size;
        int directive = in.size == src_size ? ZS_ZSTD_END : ZS_ZSTD_CONTINUE;
        code = ZSTD_compressStream2(context, &out, &in, directive);
        if (code == 0 && directive == ZS_ZSTD_END) return out.pos;
        if (out.pos == out.size) return ZS_ZSTD_CODE(ZS_ZSTD_TOO_SMALL);
    }
    return code;
}

static int64_t zs_zstd_encode(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity) {
    zs_zstd_encoder *encoder = zs_zstd_encoder_of(state);
    if (encoder == NULL) return ZSTORE_EMEMORY;
    size_t written = src_size >= ZS_ZSTD_LONG
                         ? zs_zstd_encode_pieces(encoder->context, dst, dst_capacity, src, src_size)
                         : ZSTD_compress2(encoder->context, dst, dst_capacity, src, src_size);
    int failed = ZSTD_isError(written) != 0;
    int64_t status = 0;
    if (failed) {
        status = zs_zstd_error(written);
        if (status == ZSTORE_EDAMAGED || status == ZSTORE_ECHECKSUM) status = ZSTORE_EINTERNAL;
    }
    /* A context that failed half-way is not reused: its session would still be open. */
    if (failed || ZSTD_sizeof_CCtx(encoder->context) > ZS_ZSTD_KEPT) zs_slot_clear(zs_slot_of(ZS_SLOT_ZSTD_ENCODE));
    return failed ? status : (int64_t)written;
}

/* The decoded size that all frames together state: ZS_ZSTD_SIZE_UNKNOWN if one states none, ZS_ZSTD_SIZE_ERROR if the
 * bytes are not a sequence of whole frames. The archive's zstd would also decode the formats before 1.0, whose decoders
 * are no longer hardened; they are refused here. */
static unsigned long long zs_zstd_content_size(const uint8_t *src, size_t src_size) {
    unsigned long long total = 0;
    int unknown = 0;
    if (src_size == 0) return ZS_ZSTD_SIZE_ERROR;
    while (src_size > 0) {
        if (src_size < 8) return ZS_ZSTD_SIZE_ERROR;
        uint32_t magic = zs_load32(src);
        size_t frame_size;
        if ((magic & 0xFFFFFFF0u) == ZS_ZSTD_SKIPPABLE) {
            frame_size = (size_t)zs_load32(src + 4) + 8;
        } else if (magic == ZS_ZSTD_MAGIC) {
            frame_size = ZSTD_findFrameCompressedSize(src, src_size);
            unsigned long long content = ZSTD_getFrameContentSize(src, src_size);
            if (ZSTD_isError(frame_size) || content == ZS_ZSTD_SIZE_ERROR) return ZS_ZSTD_SIZE_ERROR;
            if (content == ZS_ZSTD_SIZE_UNKNOWN) unknown = 1;
            else if (total + content < total || total + content > INT64_MAX) return ZS_ZSTD_SIZE_ERROR;
            else total += content;
        } else {
            return ZS_ZSTD_SIZE_ERROR;
        }
        if (frame_size > src_size) return ZS_ZSTD_SIZE_ERROR;
        src += frame_size;
        src_size -= frame_size;
    }
    return unknown ? ZS_ZSTD_SIZE_UNKNOWN : total;
}

static int64_t zs_zstd_decoded_size(const void *state, const void *src, size_t src_size) {
    (void)state;
    unsigned long long total = zs_zstd_content_size(src, src_size);
    return total >= ZS_ZSTD_SIZE_ERROR ? ZSTORE_EDAMAGED : (int64_t)total;
}

/* As ZSTD_decompressDCtx does it, block by block, of frames that zs_zstd_content_size has seen; ZS_ZSTD_STOP where who
 * watches says so. */
static size_t zs_zstd_decode_watched(ZSTD_DCtx *context, uint8_t *dst, size_t dst_capacity, const uint8_t *src,
                                     size_t src_size) {
    size_t made = 0;
    while (src_size > 0) {
        size_t begun = ZSTD_decompressBegin(context), size;
        if (ZSTD_isError(begun)) return begun;
        while ((size = ZSTD_nextSrcSizeToDecompress(context)) > 0) {
            if (zs_is_stopped()) return ZS_ZSTD_CODE(ZS_ZSTD_STOP);
            if (size > src_size) return ZS_ZSTD_CODE(ZS_ZSTD_DAMAGED);
            size_t written = ZSTD_decompressContinue(context, dst + made, dst_capacity - made, src, size);
            if (ZSTD_isError(written)) return written;
            made += written;
            src += size;
            src_size -= size;
        }
    }
    return made;
}

static int64_t zs_zstd_decode(const void *state, const void *src, size_t src_size, void *dst, size_t dst_capacity) {
    (void)state;
    unsigned long long total = zs_zstd_content_size(src, src_size);
    if (total == ZS_ZSTD_SIZE_ERROR) return ZSTORE_EDAMAGED;
    if (total != ZS_ZSTD_SIZE_UNKNOWN && total > dst_capacity) return ZSTORE_ECAPACITY;
    zs_slot *slot = zs_slot_of(ZS_SLOT_ZSTD_DECODE);
    if (slot == NULL) return ZSTORE_EMEMORY;
    if (slot->object == NULL) {
        slot->object = ZSTD_createDCtx();
        slot->release = zs_zstd_decoder_free;
        if (slot->object == NULL) return ZSTORE_EMEMORY;
    }
    size_t written = zs_is_watched() ? zs_zstd_decode_watched(slot->object, dst, dst_capacity, src, src_size)
                                     : ZSTD_decompressDCtx(slot->object, dst, dst_capacity, src, src_size);
    if (!ZSTD_isError(written)) return (int64_t)written;
    int64_t status = zs_zstd_error(written);
    /* A known size fits, so running out of room means that a frame holds more than it states. */
    return status == ZSTORE_ECAPACITY && total != ZS_ZSTD_SIZE_UNKNOWN ? ZSTORE_EDAMAGED : status;
}

static zstore_codec *zs_zstd_new(int level, int checksum) {
    static const zstore_codec functions = {
        .encode_bound = zs_zstd_bound,
        .encode = zs_zstd_encode,
        .decode = zs_zstd_decode,
        .decoded_size = zs_zstd_decoded_size,
        .watch = zs_codec_watch,
    };
    zs_zstd_params params = {level, checksum};
    return zs_codec_new(&functions, &params, sizeof(params));
}

#endif

/* stretch.h - chunks that are byte ranges of other files: find where one lies, and open its file. */
#ifndef ZS_STRETCH_H
#define ZS_STRETCH_H

#include "cache.h"
#include "files.h"
#include "layout.h"

#define ZS_STRETCH_ABSENT -1 /* there is no such chunk */
#define ZS_STRETCH_INLINE -2 /* its bytes are in memory */
#define ZS_STRETCH_WHOLE -1  /* for a size: all from the offset on */

/* A file by its name below an open directory, which no link may leave, with its expected size and time; -1: unknown. */
typedef struct {
    const char *name;
    int directory;
    int64_t size, modified;
} zs_origin;

/* The chunks of an array: `n` rows, for the grid positions `number` (ascending); NULL: for all of them. */
typedef struct {
    int ndim;
    int64_t grid[ZS_MAX_NDIM];
    int64_t n;
    const int64_t *number;
    const int32_t *file;
    const int64_t *offset, *size;
    const zs_origin *origin;
    const char *data; /* of the chunks in memory */
} zs_stretches;

/* The file that a thread has open, and its number among the origins. */
typedef struct {
    int file; /* -1: none */
    int32_t origin;
} zs_held;

/* The row of a chunk, -1: there is none. */
static inline int64_t zs_stretch_row(const zs_stretches *stretches, const int64_t *cell) {
    int64_t number = 0;
    for (int d = 0; d < stretches->ndim; d++) {
        if (cell[d] >= stretches->grid[d]) return -1;
        number = number * stretches->grid[d] + cell[d];
    }
    if (!stretches->number) return number;
    int64_t low = 0, high = stretches->n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (stretches->number[middle] < number) low = middle + 1;
        else high = middle;
    }
    return low < stretches->n && stretches->number[low] == number ? low : -1;
}

/* Open the file that holds a chunk, unless the thread has it open; a missing file is a fault, as the table names it. */
static inline int zs_hold(const zs_stretches *stretches, int32_t number, zs_held *held, zs_fault *fault) {
    if (held->file >= 0 && held->origin == number) return ZS_OK;
    if (held->file >= 0) close(held->file);
    const zs_origin *origin = &stretches->origin[number];
    held->origin = number;
    held->file = zs_open(origin->directory, origin->name, O_RDONLY | O_NONBLOCK); /* opening a pipe must not block */
    return held->file < 0 ? zs_store_fault(fault) : ZS_OK;
}

/* The source of a chunk's bytes, in a file that has not changed. */
static inline int zs_open_stretch(const zs_stretches *stretches, const int64_t *cell, zs_held *held, zs_source *source,
                                  int *is_missing, zs_fault *fault) {
    int64_t row = zs_stretch_row(stretches, cell);
    int32_t number = row < 0 ? ZS_STRETCH_ABSENT : stretches->file[row];
    *source = (zs_source){.file = -1};
    *is_missing = number == ZS_STRETCH_ABSENT;
    if (*is_missing) return ZS_OK;
    int64_t offset = stretches->offset[row], size = stretches->size[row];
    if (number == ZS_STRETCH_INLINE) {
        source->data = stretches->data + offset;
        source->size = size;
        return ZS_OK;
    }
    struct stat status;
    int code = zs_hold(stretches, number, held, fault);
    if (code) return code;
    if (fstat(held->file, &status)) return zs_store_fault(fault);
    if (!S_ISREG(status.st_mode)) {
        errno = EINVAL;
        return zs_store_fault(fault);
    }
    const zs_origin *origin = &stretches->origin[number];
    if (origin->size >= 0 && origin->size != status.st_size)
        return zs_fail(fault, ZS_FAULT_CHANGED, status.st_size, origin->size);
    if (origin->modified >= 0 && origin->modified != zs_nanoseconds(&status.ZS_MODIFIED))
        return zs_fail(fault, ZS_FAULT_CHANGED, status.st_size, -1);
    if (size == ZS_STRETCH_WHOLE) size = status.st_size - offset;
    if (size < 0 || offset > status.st_size - size)
        return zs_fail(fault, ZS_FAULT_BEYOND, status.st_size, offset + (size < 0 ? 0 : size));
    source->file = held->file;
    source->offset = offset;
    source->size = size;
    source->identity = zs_identify(&status);
    return ZS_OK;
}

#endif

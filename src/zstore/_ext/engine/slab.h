/* slab.h - memory for what is kept: blocks of some KiB to MiB, side by side in huge pages where the system has them.
 *
 * Memory that is fresh from the system costs a page fault for each 4 KiB of it, which may be more than decoding what is
 * put there; a huge page takes one for 512 of these. A block that is freed gives its pages back at once, and none is
 * used again: what is kept takes no more memory than its size says, but for one page at either end.
 */
#ifndef ZS_SLAB_H
#define ZS_SLAB_H

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ZS_PAGE_SIZE ((uintptr_t)4096) /* or a multiple: then less is given back */
#define ZS_SLAB_SIZE ((uintptr_t)4 << 20)
#define ZS_LEAST_BLOCK ((size_t)64 << 10)
#define ZS_MOST_BLOCK ((size_t)2 << 20)

#if defined(MADV_HUGEPAGE) && !defined(ZS_PORTABLE) && !defined(__SANITIZE_ADDRESS__)
#define ZS_HAS_SLABS 1

/* The begin of a slab, which lies at a multiple of its size. */
typedef struct {
    _Alignas(64) uintptr_t used; /* bytes */
    int64_t blocks;              /* that are in use */
} zs_slab;

static struct {
    pthread_mutex_t lock;
    zs_slab *open; /* where the next block goes */
} zs_slabs = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A new slab; NULL: out of memory. */
static zs_slab *zs_slab_map(void) {
    char *whole = mmap(NULL, 2 * ZS_SLAB_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (whole == MAP_FAILED) return NULL;
    uintptr_t before = -(uintptr_t)whole & (ZS_SLAB_SIZE - 1);
    if (before) munmap(whole, before);
    munmap(whole + before + ZS_SLAB_SIZE, ZS_SLAB_SIZE - before);
    zs_slab *slab = (zs_slab *)(whole + before);
    (void)madvise(slab, ZS_SLAB_SIZE, MADV_HUGEPAGE); /* or without */
    *slab = (zs_slab){.used = sizeof *slab};
    return slab;
}

/* One block of a slab is in use no more; with the last one it goes, unless the next block may go there. */
static void zs_slab_leave(zs_slab *slab) {
    pthread_mutex_lock(&zs_slabs.lock);
    int is_last = --slab->blocks == 0;
    if (is_last && slab == zs_slabs.open) zs_slabs.open = NULL;
    pthread_mutex_unlock(&zs_slabs.lock);
    if (is_last) munmap(slab, ZS_SLAB_SIZE);
}

static void *zs_slab_block(size_t size) {
    size = (size + 63) & ~(size_t)63;
    pthread_mutex_lock(&zs_slabs.lock);
    if (!zs_slabs.open || zs_slabs.open->used + size > ZS_SLAB_SIZE) zs_slabs.open = zs_slab_map();
    zs_slab *slab = zs_slabs.open;
    char *block = slab ? (char *)slab + slab->used : NULL;
    if (slab) slab->used += size;
    if (slab) slab->blocks++;
    pthread_mutex_unlock(&zs_slabs.lock);
    return block;
}

/* Before and after a fork, which would leave the lock held if another thread has it. */
static void zs_slabs_fork(int is_before) {
    if (is_before) pthread_mutex_lock(&zs_slabs.lock);
    else pthread_mutex_unlock(&zs_slabs.lock);
}
#else
#define ZS_HAS_SLABS 0
static void zs_slabs_fork(int is_before) { (void)is_before; }
#endif

/* `size` bytes that are freed by `zs_block_free`; NULL: out of memory. */
static inline void *zs_block_make(size_t size) {
#if ZS_HAS_SLABS
    if (size >= ZS_LEAST_BLOCK && size <= ZS_MOST_BLOCK) return zs_slab_block(size);
#endif
    return malloc(size);
}

/* Free a block of `size` bytes. */
static inline void zs_block_free(void *block, size_t size) {
#if ZS_HAS_SLABS
    if (size >= ZS_LEAST_BLOCK && size <= ZS_MOST_BLOCK) {
        uintptr_t begin = ((uintptr_t)block + ZS_PAGE_SIZE - 1) & -ZS_PAGE_SIZE;
        uintptr_t end = ((uintptr_t)block + size) & -ZS_PAGE_SIZE;
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
        zs_slab_leave((zs_slab *)((uintptr_t)block & -ZS_SLAB_SIZE));
        return;
    }
#else
    (void)size;
#endif
    free(block);
}

#endif

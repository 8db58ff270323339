/* put.h - a chunk's file replaced whole or not at all, and kept from others between reading and replacing it.
 *
 * A value where there was none is written to a file that has no name yet (O_TMPFILE), which is then linked to its
 * key: nothing is left of a writer that dies. Where that cannot be, or a value is replaced, it is written to a
 * temporary file in ZS_SCRATCH below the array's directory, then renamed. That directory is there while somebody has
 * the array open and has written to it; no other program looks into an array's directory. The temporary is locked as
 * long as it has a writer, so that a dead writer's can be told from a living one's. The lock of a chunk is a byte of
 * the array's metadata document, locked through an open file description of its own: it excludes threads and processes
 * alike and ends with the process. The same protocols stand in storage/scratch.py and storage/locking.py.
 */
#ifndef ZS_PUT_H
#define ZS_PUT_H

#include "files.h"
#include "layout.h"
#include <stdatomic.h>
#include <sys/file.h>
#include <time.h>

#define ZS_SCRATCH ".zstore-tmp"
#define ZS_ATTEMPTS 128
#define ZS_LEAST_PAUSE 20000 /* nanoseconds between two tries to get a lock */
#define ZS_MOST_PAUSE 1000000

/* Where one array's chunks are written. */
typedef struct {
    int directory;        /* the array's */
    const char *document; /* the array's metadata document, in `directory` */
    int is_durable;
} zs_place;

/* The directory that holds the last file written, kept for the next one in it as long as one call lasts. */
typedef struct {
    int file;        /* -1: none */
    int is_missing;  /* there was no such directory when it was looked for */
    int has_no_tmpfile;
    int guess; /* 1: the last chunk was new, so the next one may well be; -1: that was wrong once */
    char path[ZS_KEY_SIZE];
} zs_parent;

static inline void zs_parent_close(zs_parent *parent) {
    if (parent->file >= 0) close(parent->file);
    parent->file = -1;
    parent->is_missing = 0;
}

/* Open the directory `path` below `directory`, making what is missing. */
static inline int zs_open_directory(int directory, const char *path, int make) {
    int file = zs_open(directory, path, O_RDONLY | O_DIRECTORY);
    if (file >= 0 || errno != ENOENT || !make) return file;
    char above[ZS_KEY_SIZE];
    strcpy(above, path);
    char *slash = strrchr(above, '/');
    if (slash) *slash = 0;
    int parent = slash ? zs_open_directory(directory, above, 1) : directory;
    if (parent < 0) return -1;
    int failed = mkdirat(parent, slash ? slash + 1 : above, 0777) && errno != EEXIST, reason = errno;
    if (slash) close(parent);
    errno = reason;
    return failed ? -1 : zs_open(directory, path, O_RDONLY | O_DIRECTORY);
}

/* The open directory that `key` lies in, and the last part of `key`; -1 with errno. It may have been removed since. */
static inline int zs_parent_of(const zs_place *place, const char *key, zs_parent *parent, int make, const char **leaf) {
    const char *slash = strrchr(key, '/');
    *leaf = slash ? slash + 1 : key;
    if (!slash) return place->directory;
    size_t size = (size_t)(slash - key);
    int is_same = (parent->file >= 0 || parent->is_missing) && !strncmp(parent->path, key, size) && !parent->path[size];
    errno = ENOENT;
    if (is_same && (parent->file >= 0 || !make)) return parent->file;
    zs_parent_close(parent);
    memcpy(parent->path, key, size);
    parent->path[size] = 0;
    parent->file = zs_open_directory(place->directory, parent->path, make);
    parent->is_missing = parent->file < 0 && (errno == ENOENT || errno == ENOTDIR);
    return parent->file;
}

/* Whether the file `key` was missing at some moment of this call, so that removing it is done. A directory that has
 * been removed since it was opened was empty then. */
static inline int zs_was_absent(const zs_place *place, const char *key, zs_parent *parent) {
    const char *leaf;
    int directory = zs_parent_of(place, key, parent, 0, &leaf);
    if (directory < 0) return errno == ENOENT || errno == ENOTDIR;
    return faccessat(directory, leaf, F_OK, AT_SYMLINK_NOFOLLOW) && errno == ENOENT;
}

/* A new temporary file in `directory` (relative to which `name` is made), locked by us. */
static inline int zs_temporary(int directory, const char *prefix, char *name) {
    static _Atomic uint64_t counter;
    for (int attempt = 0; attempt < ZS_ATTEMPTS; attempt++) {
        struct stat status;
        sprintf(name, "%s%lx-%llx", prefix, (long)getpid(), (unsigned long long)atomic_fetch_add(&counter, 1) | 1ull << 63);
        int file = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (file < 0 && errno == EEXIST) continue;
        if (file < 0) return -1;
        if (flock(file, LOCK_EX | LOCK_NB) == 0 && fstat(file, &status) == 0 && status.st_nlink) return file;
        close(file); /* somebody who cleans up was faster */
    }
    errno = EAGAIN;
    return -1;
}

/* A temporary file in the scratch directory; `name` is relative to the array's. */
static inline int zs_scratch_file(const zs_place *place, char *name) {
    for (int attempt = 0; attempt < ZS_ATTEMPTS; attempt++) {
        int file = zs_temporary(place->directory, ZS_SCRATCH "/", name);
        if (file >= 0 || errno != ENOENT) return file;
        if (mkdirat(place->directory, ZS_SCRATCH, 0777) && errno != EEXIST) return -1;
    }
    return -1;
}

/* The parts, where there is no `leaf` in `directory` yet, into a file without a name, then linked to it. 0; 1 where
 * that cannot be, and nothing was done; -1 with errno. */
static inline int zs_put_unnamed(const zs_place *place, int directory, const char *leaf, const zs_part *parts, int n,
                                 zs_parent *parent) {
#if defined(O_TMPFILE) && defined(AT_EMPTY_PATH)
    static atomic_int cannot_link; /* before Linux 6.10 that takes a privilege */
    if (parent->has_no_tmpfile || atomic_load_explicit(&cannot_link, memory_order_relaxed)) return 1;
    if (parent->guess < 1 && !faccessat(directory, leaf, F_OK, 0)) return 1;
    int file = openat(directory, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (file < 0) {
        parent->has_no_tmpfile = 1;
        return 1;
    }
    int failed = zs_write_parts(file, parts, n, -1) || (place->is_durable && fsync(file)) ? -1 : 0;
    if (!failed && linkat(file, "", directory, leaf, AT_EMPTY_PATH)) {
        int reason = errno;
        failed = reason == ENOENT && zs_folder_is_gone(directory) ? -1 : 1;
        if (reason == EEXIST) parent->guess = -1;
        else if (failed > 0) atomic_store(&cannot_link, 1);
        errno = reason;
    } else if (!failed && !parent->guess) {
        parent->guess = 1;
    }
    if (!failed && place->is_durable) failed = fsync(directory) ? -1 : 0;
    int reason = errno;
    close(file);
    errno = reason;
    return failed;
#else
    (void)place, (void)directory, (void)leaf, (void)parts, (void)n, (void)parent;
    return 1;
#endif
}

/* Remove the scratch directory, unless somebody has files in it. */
static inline void zs_leave_scratch(int directory) { unlinkat(directory, ZS_SCRATCH, AT_REMOVEDIR); }

/* The parts into a new temporary, then renamed to `leaf` of `directory`. `is_beside`: it is made right there. */
static inline int zs_put_through(const zs_place *place, int directory, const char *leaf, const zs_part *parts, int n,
                                 int old, int is_beside) {
    char name[64];
    int at = is_beside ? directory : place->directory;
    int file = is_beside ? zs_temporary(directory, ZS_SCRATCH ".", name) : zs_scratch_file(place, name);
    if (file < 0) return -1;
    int failed = zs_write_parts(file, parts, n, old) || (place->is_durable && fsync(file));
    if (!failed) failed = renameat(at, name, directory, leaf) != 0;
    if (!failed && place->is_durable) failed = fsync(directory) != 0;
    int reason = errno;
    if (failed) unlinkat(at, name, 0);
    close(file); /* not before: its lock says that the temporary has a writer */
    errno = reason;
    return failed ? -1 : 0;
}

/* Replace the file `key` (which is open as `old` where parts come from it) with the parts; 0, or -1 with errno and
 * nothing changed. */
static inline int zs_put(const zs_place *place, const char *key, const zs_part *parts, int n, int old,
                         zs_parent *parent) {
    int failed = 1, is_beside = 0;
    for (int attempt = 0; attempt < ZS_ATTEMPTS && failed; attempt++) {
        const char *leaf;
        int directory = zs_parent_of(place, key, parent, 1, &leaf);
        if (directory < 0) break;
        failed = old < 0 ? zs_put_unnamed(place, directory, leaf, parts, n, parent) : 1;
        if (failed > 0) failed = zs_put_through(place, directory, leaf, parts, n, old, is_beside);
        if (!failed) break;
        if (errno == EXDEV && !is_beside) is_beside = 1; /* chunks on another file system than the array */
        else if (errno != ENOENT || !zs_folder_is_gone(directory)) break;
        else zs_parent_close(parent); /* pruned meanwhile */
    }
    return failed ? -1 : 0;
}

/* Remove the file `key`; that there is none is no fault. */
static inline int zs_remove(const zs_place *place, const char *key, zs_parent *parent) {
    for (int attempt = 0;; attempt++) {
        const char *leaf;
        int directory = zs_parent_of(place, key, parent, 0, &leaf);
        if (directory < 0) return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
        if (!unlinkat(directory, leaf, 0)) return place->is_durable ? fsync(directory) : 0;
        if (errno != ENOENT) return -1;
        if (attempt == ZS_ATTEMPTS || !zs_folder_is_gone(directory)) return 0;
        zs_parent_close(parent); /* pruned meanwhile, and perhaps made again */
    }
}

/* FNV-1a, cut to 62 bits: the byte of the document that stands for a key. */
static inline off_t zs_lock_offset(const char *key) {
    uint64_t state = 0xCBF29CE484222325u;
    for (; *key; key++) state = (state ^ (unsigned char)*key) * 0x100000001B3u;
    return (off_t)(state & (((uint64_t)1 << 62) - 1));
}

/* Ask for the lock of `range`: now or not at all (EAGAIN), or waiting until a signal comes (EINTR). */
static inline int zs_ask_lock(int file, struct flock *range, int is_waiting) {
#ifdef F_OFD_SETLKW
    return fcntl(file, is_waiting ? F_OFD_SETLKW : F_OFD_SETLK, range);
#else
    (void)range;
    return flock(file, is_waiting ? LOCK_EX : LOCK_EX | LOCK_NB);
#endif
}

/* Hold `key` against every other writer, through `*file`: the array's document, opened here where it is -1, and good
 * for one lock at a time. 0, or -1 with errno: ECANCELED when a signal came and `poll` says stop; ESHUTDOWN when
 * `stop` was set. Signals come to the caller's thread, which waits in the kernel for its turn and has a `poll`; the
 * others have none, and ask again and again, so that nothing can hold them once they are to stop. */
static inline int zs_lock(const zs_place *place, const char *key, int *file, int (*poll)(void), atomic_int *stop) {
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = zs_lock_offset(key), .l_len = 1};
    long pause = ZS_LEAST_PAUSE;
    for (;;) {
        struct stat held;
        if (*file < 0 && (*file = zs_open(place->directory, place->document, O_RDWR)) < 0) return -1;
        int reason = zs_ask_lock(*file, &range, poll != NULL) ? errno : 0;
        if (reason && atomic_load_explicit(stop, memory_order_relaxed)) reason = ESHUTDOWN;
        else if (reason == EINTR && poll && poll()) reason = ECANCELED;
        else if (reason == EINTR) continue;
        else if (!poll && (reason == EAGAIN || reason == EACCES)) {
            nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
            pause = pause * 2 < ZS_MOST_PAUSE ? pause * 2 : ZS_MOST_PAUSE;
            continue;
        }
        if (reason) {
            errno = reason;
            return -1;
        }
        if (fstat(*file, &held) == 0 && held.st_nlink) return 0;
        close(*file); /* the document was replaced: whoever holds the new one does not see this lock */
        *file = -1;
    }
}

/* Let go of the lock that `file` holds. */
static inline void zs_unlock(int file) {
#ifdef F_OFD_SETLK
    struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    fcntl(file, F_OFD_SETLK, &all); /* closing alone would leave it with a child forked meanwhile */
#else
    flock(file, LOCK_UN);
#endif
}

#endif

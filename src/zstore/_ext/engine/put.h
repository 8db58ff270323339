/* put.h - replace a file atomically, and lock it between reading and replacing it.
 *
 * A new value is written to a file without a name (O_TMPFILE), which is then linked to its key: a writer that dies
 * leaves nothing behind. Where the system has no such files, or a value is replaced, the value is written to a
 * temporary file in ZS_SCRATCH below the store's (the array's) directory and then renamed. ZS_SCRATCH exists while
 * somebody writes, or keeps an array open that was written to. A temporary file is locked as long as its writer lives:
 * whoever opens a store (storage/local.py) removes those of dead writers and leaves the others. The lock of a chunk
 * is a byte range lock on the array's metadata document, held through an open file description of its own: it
 * excludes threads and processes alike and ends with the process (storage/locking.py locks any key of a store so).
 */
#ifndef ZS_PUT_H
#define ZS_PUT_H

#include "files.h"
#include <sys/file.h>
#include <time.h>

#define ZS_SCRATCH ".zstore-tmp"
#define ZS_ATTEMPTS 1000     /* how often others may remove a directory that was just made, before that is an error */
#define ZS_LEAST_PAUSE 20000 /* nanoseconds between two tries to get a lock */
#define ZS_MOST_PAUSE 1000000

/* Where the values of one store, or the chunks of one array, are written. */
typedef struct {
    int directory;        /* the store's, the array's */
    const char *document; /* the array's metadata document, in `directory`; "": none yet, so there is only one writer */
    int is_durable;       /* every change is synced to the disk */
    const char *root;     /* the directory of the array's store, where links may lead to; or NULL */
    const char *path;     /* the array's path in it */
    const char *allowed;  /* the directories elsewhere that links may lead into (see zs_open_allowed); or NULL */
    const zs_identity *known; /* of the document as it was read: locking a key of another is refused; NULL: any */
} zs_place;

/* The directory that holds the last file written, kept for the next one in it as long as one call lasts. */
typedef struct {
    int file;       /* -1: none */
    int is_missing; /* there was no such directory when it was looked for */
    int has_no_tmpfile;
    int guess; /* 1: the last value was new, so the next one may well be; -1: that was wrong once */
    int has_used_scratch;
    int is_new;   /* a value that is there stays, and putting another fails with EEXIST */
    int is_there; /* the directory is not made again: putting a value below one that was removed fails with ENOENT */
    char path[PATH_MAX];
} zs_parent;

static inline void zs_parent_close(zs_parent *parent) {
    if (parent->file >= 0) close(parent->file);
    parent->file = -1;
    parent->is_missing = 0;
}

/* Open what a link of the array leads to, anywhere in its store. */
static int zs_open_in_store(const zs_place *place, const char *key, int flags) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", place->path, key) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int root = zs_open_root(place->root, ZS_PLACE);
    if (root < 0) return -1;
    int file = zs_open(root, path, flags), reason = errno;
    close(root);
    errno = reason;
    return file;
}

/* Open an existing file, as zs_open; links may lead anywhere in the store, and to what is allowed. */
static inline int zs_open_linked(const zs_place *place, const char *key, int flags) {
    int file = zs_open(place->directory, key, flags);
    if (file < 0 && errno == EXDEV && place->root) file = zs_open_in_store(place, key, flags);
    if (file < 0 && errno == EXDEV && place->allowed)
        file = zs_open_allowed(place->directory, key, flags, place->allowed);
    return file;
}

/* Open a directory to work in it; changes can be synced only in one that may be listed. */
static inline int zs_open_directory(const zs_place *place, const char *path) {
    return zs_open_linked(place, path, O_DIRECTORY | (place->is_durable ? O_RDONLY : ZS_PLACE));
}

static inline int zs_confirm(const zs_place *place, int directory) {
    return place->is_durable ? ZS_AGAIN(fsync(directory)) : 0;
}

/* Open the directory `path`, and make it and those above it where they are missing; `path` is unchanged afterwards.
 * `is_new`: it is probably missing, so that it is made at once. */
static int zs_make_directory(const zs_place *place, char *path, int is_new) {
    int file = is_new ? -1 : zs_open_directory(place, path);
    if (file >= 0 || (!is_new && errno != ENOENT)) return file;
    char *slash = strrchr(path, '/');
    if (slash) *slash = 0;
    int above = slash ? zs_make_directory(place, path, 0) : place->directory;
    if (slash) *slash = '/';
    if (above < 0) return -1;
    int failed =
            (ZS_AGAIN(mkdirat(above, slash ? slash + 1 : path, 0777)) && errno != EEXIST) || zs_confirm(place, above),
        reason = errno;
    if (slash) close(above);
    errno = reason;
    return failed ? -1 : zs_open_directory(place, path);
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
    parent->file =
        make ? zs_make_directory(place, parent->path, parent->is_new) : zs_open_directory(place, parent->path);
    parent->is_missing = parent->file < 0 && (errno == ENOENT || errno == ENOTDIR);
    return parent->file;
}

/* Open a value and get its status. A value asked for alone is opened directly, others through their directory, which
 * stays open for the next ones. */
static inline int zs_open_value(const zs_place *place, const char *key, int flags, int is_alone, zs_parent *parent,
                                struct stat *status) {
    const char *leaf;
    int file = -1, directory = is_alone ? -1 : zs_parent_of(place, key, parent, 0, &leaf);
    if (directory < 0 && !is_alone) return -1;
    if (!is_alone) file = ZS_AGAIN(openat(directory, leaf, flags | O_NOFOLLOW | O_CLOEXEC));
    if (is_alone || (file < 0 && errno == ELOOP)) file = zs_open_linked(place, key, flags);
    if (file >= 0 && fstat(file, status)) {
        int reason = errno;
        close(file);
        errno = reason;
        return -1;
    }
    return file;
}

/* Whether the file `key` was missing at some moment of this call, so that there is nothing left to remove. A directory
 * that was removed after it was opened was empty at that time. */
static inline int zs_was_absent(const zs_place *place, const char *key, zs_parent *parent) {
    const char *leaf;
    int directory = zs_parent_of(place, key, parent, 0, &leaf);
    if (directory < 0) return errno == ENOENT || errno == ENOTDIR;
    return ZS_AGAIN(faccessat(directory, leaf, F_OK, AT_SYMLINK_NOFOLLOW)) && errno == ENOENT;
}

/* A new temporary file in `directory` (relative to which `name` is made), locked by us. */
static inline int zs_temporary(int directory, const char *prefix, char *name) {
    static _Atomic uint64_t counter;
    for (int attempt = 0; attempt < ZS_ATTEMPTS; attempt++) {
        struct stat status;
        sprintf(name, "%s%lx-%llx", prefix, (long)getpid(),
                (unsigned long long)atomic_fetch_add(&counter, 1) | 1ull << 63);
        int file = ZS_AGAIN(openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
        if (file < 0 && errno == EEXIST) continue;
        if (file < 0) return -1;
        /* Where files cannot be locked, nobody removes one as an orphan, either. */
        int is_ours = !ZS_AGAIN(flock(file, LOCK_EX | LOCK_NB)) || errno == ENOLCK || errno == ENOSYS ||
                      errno == ENOTSUP || errno == EINVAL;
        if (is_ours && fstat(file, &status) == 0 && status.st_nlink) return file;
        close(file); /* somebody who cleans up was faster */
    }
    errno = EAGAIN;
    return -1;
}

/* A temporary file in the scratch directory; `name` is relative to the place's. */
static inline int zs_scratch_file(const zs_place *place, char *name) {
    for (int attempt = 0; attempt < ZS_ATTEMPTS; attempt++) {
        int file = zs_temporary(place->directory, ZS_SCRATCH "/", name);
        if (file >= 0 || errno != ENOENT) return file;
        if (ZS_AGAIN(mkdirat(place->directory, ZS_SCRATCH, 0777)) && errno != EEXIST) return -1;
    }
    return -1;
}

#ifdef ZS_HAS_UNNAMED
/* Give a file without a name the name `leaf`. */
static inline int zs_link(int file, int directory, const char *leaf) {
    static atomic_int needs_proc; /* before Linux 6.10 the direct way takes a privilege */
    if (!atomic_load_explicit(&needs_proc, memory_order_relaxed)) {
        if (!ZS_AGAIN(linkat(file, "", directory, leaf, AT_EMPTY_PATH))) return 0;
        if (errno != ENOENT || zs_folder_is_gone(directory)) return -1;
        atomic_store(&needs_proc, 1);
    }
    char name[32];
    sprintf(name, "/proc/self/fd/%d", file);
    return ZS_AGAIN(linkat(AT_FDCWD, name, directory, leaf, AT_SYMLINK_FOLLOW));
}
#endif

/* Write the parts to a file without a name and link it to `leaf` of `directory`, which must not exist yet. 0; 1 where
 * that is impossible and nothing was done; -1 with errno. */
static inline int zs_put_unnamed(const zs_place *place, int directory, const char *leaf, const zs_part *parts, int n,
                                 zs_parent *parent) {
#ifdef ZS_HAS_UNNAMED
    if (parent->has_no_tmpfile) return 1;
    if (parent->guess < 1 && !parent->is_new && !ZS_AGAIN(faccessat(directory, leaf, F_OK, 0))) return 1;
    int file = ZS_AGAIN(openat(directory, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666));
    if (file < 0) {
        parent->has_no_tmpfile = errno != ENOENT;
        return 1;
    }
    int failed = zs_write_parts(file, parts, n, -1) || (place->is_durable && ZS_AGAIN(fsync(file))) ? -1 : 0;
    if (!failed && zs_link(file, directory, leaf)) {
        int reason = errno;
        int is_taken = reason == EEXIST && parent->is_new;
        failed = is_taken || (reason == ENOENT && zs_folder_is_gone(directory)) ? -1 : 1;
        if (reason == EEXIST) parent->guess = -1;
        else if (failed > 0) parent->has_no_tmpfile = 1;
        errno = reason;
    } else if (!failed && !parent->guess) {
        parent->guess = 1;
    }
    if (!failed && zs_confirm(place, directory)) failed = -1;
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
static inline void zs_leave_scratch(int directory) { (void)ZS_AGAIN(unlinkat(directory, ZS_SCRATCH, AT_REMOVEDIR)); }

/* Rename the file `name` of `at` to `leaf` of `directory`; EEXIST where that is there and `is_new`. */
static inline int zs_rename(int at, const char *name, int directory, const char *leaf, int is_new) {
    if (is_new) {
        if (!ZS_AGAIN(linkat(at, name, directory, leaf, 0))) return ZS_AGAIN(unlinkat(at, name, 0));
        if (errno != EPERM && errno != ENOTSUP && errno != ENOSYS) return -1;
        /* The file system has no links: others may come between these two. */
        if (!ZS_AGAIN(faccessat(directory, leaf, F_OK, AT_SYMLINK_NOFOLLOW))) {
            errno = EEXIST;
            return -1;
        }
    }
    return ZS_AGAIN(renameat(at, name, directory, leaf));
}

/* Write the parts to a new temporary file and rename it to `leaf` of `directory`. `is_beside`: the temporary file is
 * made in the same directory. */
static inline int zs_put_through(const zs_place *place, int directory, const char *leaf, const zs_part *parts, int n,
                                 int old, int is_beside, int is_new) {
    char name[64];
    int at = is_beside ? directory : place->directory;
    int file = is_beside ? zs_temporary(directory, ZS_SCRATCH ".", name) : zs_scratch_file(place, name);
    if (file < 0) return -1;
    int failed = zs_write_parts(file, parts, n, old) || (place->is_durable && ZS_AGAIN(fsync(file)));
    if (!failed) failed = zs_rename(at, name, directory, leaf, is_new) != 0;
    if (!failed) failed = zs_confirm(place, directory) != 0;
    int reason = errno;
    if (failed) (void)ZS_AGAIN(unlinkat(at, name, 0));
    close(file); /* only now: its lock says that the temporary file has a writer */
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
        int directory = zs_parent_of(place, key, parent, !parent->is_there, &leaf);
        if (directory < 0 && errno == ENOENT && !parent->is_there) continue; /* pruned as it was made */
        if (directory < 0) break;
        failed = old < 0 ? zs_put_unnamed(place, directory, leaf, parts, n, parent) : 1;
        if (failed > 0) {
            parent->has_used_scratch |= !is_beside;
            failed = zs_put_through(place, directory, leaf, parts, n, old, is_beside, parent->is_new);
        }
        if (!failed) break;
        if (errno == EXDEV && !is_beside) is_beside = 1; /* the key is on another file system than the place */
        else if (errno != ENOENT || parent->is_there || !zs_folder_is_gone(directory)) break;
        else zs_parent_close(parent); /* pruned meanwhile */
    }
    return failed ? -1 : 0;
}

/* Remove the file `key`; 1 where there is none, -1 with errno. */
static inline int zs_remove(const zs_place *place, const char *key, zs_parent *parent) {
    for (int attempt = 0;; attempt++) {
        const char *leaf;
        int directory = zs_parent_of(place, key, parent, 0, &leaf);
        if (directory < 0) return errno == ENOENT || errno == ENOTDIR ? 1 : -1;
        if (!ZS_AGAIN(unlinkat(directory, leaf, 0))) return zs_confirm(place, directory);
        if (errno != ENOENT) return -1;
        if (attempt == ZS_ATTEMPTS || !zs_folder_is_gone(directory)) return 1;
        zs_parent_close(parent); /* pruned meanwhile, and perhaps made again */
    }
}

/* Remove the directories above `key` that are empty, which is cut on the way. */
static inline void zs_prune(const zs_place *place, char *key, zs_parent *parent) {
    for (char *slash; (slash = strrchr(key, '/'));) {
        const char *leaf;
        *slash = 0;
        int directory = zs_parent_of(place, key, parent, 0, &leaf);
        if (directory < 0 || ZS_AGAIN(unlinkat(directory, leaf, AT_REMOVEDIR)) || zs_confirm(place, directory)) return;
    }
}

/* Whether there is anything to lock chunks on. */
static inline int zs_has_locks(const zs_place *place) { return place->directory >= 0 && place->document[0]; }

/* FNV-1a, cut to 62 bits: the byte of the document that stands for a key. */
static inline off_t zs_lock_offset(const char *key) {
    uint64_t state = 0xCBF29CE484222325u;
    for (; *key; key++) state = (state ^ (unsigned char)*key) * 0x100000001B3u;
    return (off_t)(state & (((uint64_t)1 << 62) - 1));
}

#ifdef F_OFD_SETLKW
#define ZS_WAIT_FOR_LOCK F_OFD_SETLKW
#else
#define ZS_WAIT_FOR_LOCK (-1)
#endif

/* A write lock of those bytes, or none. */
static inline struct flock zs_lock_range(int is_held, int64_t offset, int64_t length) {
    return (struct flock){
        .l_type = is_held ? F_WRLCK : F_UNLCK, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = (off_t)length};
}

/* Lock `range`: at once or not at all (EAGAIN), or wait until a signal comes (EINTR). Linux and macOS have such locks;
 * elsewhere nothing is locked, as a lock of the whole document would make its holder wait for itself. */
static inline int zs_ask_lock(int file, struct flock *range, int is_waiting) {
#ifdef F_OFD_SETLK
    return fcntl(file, is_waiting ? ZS_WAIT_FOR_LOCK : F_OFD_SETLK, range);
#else
    (void)file, (void)range, (void)is_waiting;
    errno = ENOLCK;
    return -1;
#endif
}

/* Release the lock that `file` holds. */
static inline void zs_unlock(int file) {
#ifdef F_OFD_SETLK
    struct flock all = zs_lock_range(0, 0, 0);
    fcntl(file, F_OFD_SETLK, &all); /* closing alone would leave it with a child forked meanwhile */
#else
    (void)file;
#endif
}

/* Lock `key` against every other writer, through `*file`: the array's document, opened here where it is -1, for one
 * lock at a time. 0, or -1 with errno: ECANCELED when a signal came and `poll` says stop; ESHUTDOWN when `stop` was
 * set; ESTALE where it is not the document that is known. Signals come to the caller's thread, which has a `poll` and
 * waits in the kernel; the other threads have no `poll` and try again and again, so that they see `stop`. */
static inline int zs_lock(const zs_place *place, const char *key, int *file, int (*poll)(void), atomic_int *stop) {
    struct flock range = zs_lock_range(1, zs_lock_offset(key), 1);
    long pause = ZS_LEAST_PAUSE;
    for (;;) {
        struct stat held;
        if (*file < 0 && (*file = zs_open_linked(place, place->document, O_RDWR)) < 0) return -1;
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
        if (fstat(*file, &held) == 0 && held.st_nlink) {
            zs_identity identity = zs_identify(&held);
            if (!place->known || !memcmp(place->known, &identity, sizeof identity)) return 0;
            zs_unlock(*file);
            errno = ESTALE;
            return -1;
        }
        close(*file); /* the document was replaced: whoever holds the new one does not see this lock */
        *file = -1;
    }
}

#endif

/* files.h - opens, reads and writes files below a directory, without following links out of it. */
#ifndef ZS_FILES_H
#define ZS_FILES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "box.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Features that only Linux has. ZS_PORTABLE leaves them out, to test on Linux what other systems do. */
#if defined(__linux__) && !defined(ZS_PORTABLE)
#include <sys/syscall.h>
#if __has_include(<linux/openat2.h>) && defined(SYS_openat2)
#include <linux/openat2.h>
#define ZS_HAS_OPENAT2 1
#endif
#if defined(O_TMPFILE) && defined(AT_EMPTY_PATH)
#define ZS_HAS_UNNAMED 1
#endif
#define ZS_PLACE O_PATH
#else
#define ZS_PLACE (O_RDONLY | O_NONBLOCK) /* opening a pipe must not block */
#endif

/* The times of the last change of a file's content, and of its content or metadata. */
#ifdef __APPLE__
#define ZS_MODIFIED st_mtimespec
#define ZS_CHANGED st_ctimespec
#else
#define ZS_MODIFIED st_mtim
#define ZS_CHANGED st_ctim
#endif

/* The identity and state of a file: unchanged as long as all of this is. */
typedef struct {
    uint64_t device, inode;
    int64_t size, modified, changed; /* bytes and nanoseconds */
} zs_identity;

static inline int64_t zs_nanoseconds(const struct timespec *at) { return at->tv_sec * 1000000000LL + at->tv_nsec; }

static inline zs_identity zs_identify(const struct stat *status) {
    return (zs_identity){
        .device = status->st_dev,
        .inode = status->st_ino,
        .size = status->st_size,
        .modified = zs_nanoseconds(&status->ZS_MODIFIED),
        .changed = zs_nanoseconds(&status->ZS_CHANGED),
    };
}

/* Whether a later change of a file will show in its times, whose resolution is a few milliseconds, on some file
 * systems two seconds: not if it was written just now. */
static inline int zs_is_settled(const zs_identity *identity) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t last = identity->modified > identity->changed ? identity->modified : identity->changed;
    int64_t wait = last % 1000000000 ? 100000000 : 2000000000;
    return zs_nanoseconds(&now) - last > wait;
}

/* Make a system call, again for as long as a signal interrupts it. */
#define ZS_AGAIN(call)                           \
    ({                                           \
        __typeof__(call) zs_result;              \
        do zs_result = (call);                   \
        while (zs_result < 0 && errno == EINTR); \
        zs_result;                               \
    })

static atomic_int zs_has_no_openat2 __attribute__((unused)); /* without the call nobody asks */

/* The path of an open directory: its length, or -1. */
static ssize_t zs_path_of(int directory, char path[PATH_MAX]) {
#ifdef F_GETPATH
    return fcntl(directory, F_GETPATH, path) ? -1 : (ssize_t)strlen(path);
#else
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size >= 0) path[size] = 0;
    return size;
#endif
}

/* Whether the directory of that status is `directory`, or one that `path` (which is cut and mended) leads through. */
static int zs_leads_back(int directory, char *path, const struct stat *status) {
    struct stat above;
    int is_back = !fstat(directory, &above) && above.st_dev == status->st_dev && above.st_ino == status->st_ino;
    for (char *end = strchr(path, '/'); end && !is_back; end = strchr(end + 1, '/')) {
        *end = 0;
        is_back = !ZS_AGAIN(fstatat(directory, path, &above, 0)) && above.st_dev == status->st_dev &&
                  above.st_ino == status->st_ino;
        *end = '/';
    }
    return is_back;
}

/* Of a file that could not be opened: ENOLINK for ENOENT where its name, or that of a directory above it, is that of a
 * symbolic link to nothing; ELOOP where a link leads back to a directory above. */
static void zs_check_link(int directory, const char *name) {
    struct stat status;
    char above[PATH_MAX];
    if (errno != ENOENT) return;
    for (const char *end = strchr(name, '/'); end && end - name < PATH_MAX; end = strchr(end + 1, '/')) {
        memcpy(above, name, (size_t)(end - name));
        above[end - name] = 0;
        if (ZS_AGAIN(fstatat(directory, above, &status, 0))) {
            name = above;
            break;
        }
        if (zs_leads_back(directory, above, &status)) {
            errno = ELOOP;
            return;
        }
    }
    /* Else it was made since: there was nothing when it was asked for. */
    int is_there = !ZS_AGAIN(fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW));
    errno = is_there && S_ISLNK(status.st_mode) ? ENOLINK : ENOENT;
}

/* Three paths: too much for a small stack. */
typedef struct {
    char top[PATH_MAX], whole[2 * PATH_MAX + 2], real[PATH_MAX];
} zs_paths;

/* Resolve `name` below a directory: 1 where all of it exists, 0 where `real` is the part that was resolved, or -1. */
static int zs_resolve(int directory, const char *name, zs_paths *path) {
    if (zs_path_of(directory, path->top) < 0) return -1;
    if (snprintf(path->whole, sizeof path->whole, "%s/%s", path->top, name) >= (int)sizeof path->whole) {
        errno = ENAMETOOLONG;
        return -1;
    }
    path->real[0] = 0;
    if (realpath(path->whole, path->real)) return 1;
    int reason = errno;
#ifdef ZS_PORTABLE
    path->real[0] = 0;
#endif
    /* What realpath leaves of a path that does not exist is open: musl leaves nothing, and its start is asked for
     * again. */
    for (size_t top = strlen(path->top); reason == ENOENT && !path->real[0];) {
        char *end = strrchr(path->whole, '/');
        if (end < path->whole + top) break;
        *end = 0;
        if (!realpath(*path->whole ? path->whole : "/", path->real)) path->real[0] = 0;
    }
    errno = reason;
    return 0;
}

/* The end of `path` below the directory `top`, "" for that itself; NULL where it lies elsewhere. */
static inline const char *zs_below(const char *path, const char *top) {
    size_t size = top[1] ? strlen(top) : 0; /* "/" */
    if (strncmp(path, top, size) || (path[size] && path[size] != '/')) return NULL;
    return path + size + (path[size] == '/');
}

static int zs_open_resolved(int directory, const char *name, int flags, zs_paths *path) {
    int is_whole = zs_resolve(directory, name, path);
    if (is_whole < 0) return -1;
    if (path->real[0] && !zs_below(path->real, path->top)) errno = EXDEV;
    else if (is_whole) return ZS_AGAIN(open(path->real, flags | O_NOFOLLOW | O_CLOEXEC));
    else zs_check_link(directory, name);
    return -1;
}

/* Open an existing file after checking where its real path lies. A link that is changed in between can deceive this. */
static int zs_open_checked(int directory, const char *name, int flags) {
    zs_paths *path = malloc(sizeof *path);
    if (!path) return -1;
    int file = zs_open_resolved(directory, name, flags, path), reason = errno;
    free(path);
    errno = reason;
    return file;
}

#ifdef ZS_HAS_OPENAT2
static inline int zs_open_beneath(int directory, const char *name, int flags, uint64_t also) {
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC), .resolve = RESOLVE_BENEATH | also};
    int file;
    do file = (int)syscall(SYS_openat2, directory, name, &how, sizeof how);
    while (file < 0 && (errno == EAGAIN || errno == EINTR));
    return file;
}
#endif

/*
 * Open an existing file; symbolic links within the directory are followed. EXDEV: one leads out of it; ENOLINK: the
 * name is that of a link to nothing, which is no missing file.
 */
static inline int zs_open(int directory, const char *name, int flags) {
#ifdef ZS_HAS_OPENAT2
    if (!atomic_load_explicit(&zs_has_no_openat2, memory_order_relaxed)) {
        int file = zs_open_beneath(directory, name, flags, RESOLVE_NO_SYMLINKS);
        if (file < 0 && errno == ELOOP) {
            file = zs_open_beneath(directory, name, flags, RESOLVE_NO_MAGICLINKS);
            if (file < 0) zs_check_link(directory, name);
        }
        /* EPERM: a sandbox forbids the call; EXDEV: also for an absolute link, which may still lead inside. */
        if (file >= 0 || (errno != ENOSYS && errno != EPERM && errno != EXDEV)) return file;
        if (errno == ENOSYS) atomic_store(&zs_has_no_openat2, 1);
    }
#endif
    return zs_open_checked(directory, name, flags);
}

/* Open a directory by its own path. */
static inline int zs_open_root(const char *path, int flags) {
    return ZS_AGAIN(open(path, flags | O_DIRECTORY | O_CLOEXEC));
}

/* Make a directory by its own path, unless others do, and open it. */
static inline int zs_make_root(const char *path) {
    if (ZS_AGAIN(mkdir(path, 0777)) && errno != EEXIST) return -1;
    return zs_open_root(path, ZS_PLACE);
}

static int zs_open_allowed_at(int directory, const char *name, int flags, const char *allowed, zs_paths *path) {
    int is_whole = zs_resolve(directory, name, path), reason = errno;
    if (is_whole < 0) return -1;
    for (; *allowed; allowed += strlen(allowed) + 1) {
        const char *below = zs_below(path->real, allowed);
        if (!below) continue;
        if (!is_whole) {
            errno = reason;
            zs_check_link(directory, name);
            return -1;
        }
        int top = zs_open_root(allowed, ZS_PLACE);
        int file = top < 0 ? -1 : zs_open(top, *below ? below : ".", flags);
        reason = errno;
        if (top >= 0) close(top);
        errno = reason;
        return file;
    }
    errno = EXDEV;
    return -1;
}

/* Open an existing file that a link below `directory` leads to, in one of the allowed directories: their real paths,
 * each with a NUL at its end, and an empty one behind the last. EXDEV: it lies in none of them. */
static int zs_open_allowed(int directory, const char *name, int flags, const char *allowed) {
    zs_paths *path = malloc(sizeof *path);
    if (!path) return -1;
    int file = zs_open_allowed_at(directory, name, flags, allowed, path), reason = errno;
    free(path);
    errno = reason;
    return file;
}

/* Read `size` bytes from `offset`: the number of bytes read, fewer only at the end of the file, or -1. */
static inline int64_t zs_pread(int file, char *to, int64_t size, int64_t offset) {
    int64_t have = 0;
    while (have < size) {
        ssize_t n = ZS_AGAIN(pread(file, to + have, (size_t)(size - have), (off_t)(offset + have)));
        if (n < 0) return -1;
        if (n == 0) break;
        have += n;
    }
    return have;
}

/* Read `rows` pieces of `run` bytes, contiguous in the file from `offset` on, into memory `stride` bytes apart. */
static inline int64_t zs_pread_rows(int file, char *to, int64_t rows, int64_t run, int64_t stride, int64_t offset) {
    struct iovec vector[256];
    int64_t have = 0;
    for (int64_t row = 0; row < rows;) {
        int n = 0;
        for (; n < 256 && row + n < rows; n++) vector[n] = (struct iovec){to + (row + n) * stride, (size_t)run};
        ssize_t got = ZS_AGAIN(preadv(file, vector, n, (off_t)(offset + have)));
        if (got < 0) return -1;
        have += got;
        if (got != n * run) { /* a short read: complete its last row by itself */
            int64_t part = got % run;
            row += got / run;
            if (row == rows) break;
            int64_t rest = zs_pread(file, to + row * stride + part, run - part, offset + have);
            if (rest < 0) return -1;
            have += rest;
            if (rest != run - part) return have;
            row++;
            continue;
        }
        row += n;
    }
    return have;
}

/* A part of a value to write: in memory, or (`data` NULL) `size` bytes at `from` of the file that it replaces. */
typedef struct {
    const char *data;
    int64_t from, size;
} zs_part;

/* Append parts that are in memory to a file, up to the first one that is not: how many, or -1. */
static inline int zs_write_memory(int file, const zs_part *part, int n) {
    struct iovec vector[256];
    int count = 0, at = 0;
    for (; count < n && count < 256 && part[count].data; count++)
        vector[count] = (struct iovec){(void *)part[count].data, (size_t)part[count].size};
    while (at < count) {
        ssize_t done = ZS_AGAIN(writev(file, vector + at, count - at));
        if (done < 0) return -1;
        while (at < count && (size_t)done >= vector[at].iov_len) done -= (ssize_t)vector[at++].iov_len;
        if (at == count) break;
        vector[at].iov_base = (char *)vector[at].iov_base + done;
        vector[at].iov_len -= (size_t)done;
    }
    return count;
}

#define ZS_COPY_SIZE 131072 /* fits the L2 cache, and no stack */

/* Append `size` bytes at `offset` of one file to another, through `block`. copy_file_range copies page by page in the
 * kernel; on ext4 and tmpfs it was no faster. */
static inline int zs_copy_range(int to, int from, int64_t offset, int64_t size, char *block) {
    while (size > 0) {
        int64_t want = size < ZS_COPY_SIZE ? size : ZS_COPY_SIZE, got = zs_pread(from, block, want, offset);
        zs_part part = {block, 0, got};
        if (got >= 0 && got < want) errno = EIO; /* the file has become shorter */
        if (got < want || zs_write_memory(to, &part, 1) < 0) return -1;
        offset += got;
        size -= got;
    }
    return 0;
}

/* Append all parts to a file; `old` is the file that some of them are copied from. */
static inline int zs_write_parts(int file, const zs_part *part, int n, int old) {
    char *block = NULL;
    int i = 0, reason;
    while (i < n) {
        int written = 1;
        if (part[i].data) written = zs_write_memory(file, part + i, n - i);
        else if (!block && !(block = malloc(ZS_COPY_SIZE))) written = -1;
        else if (zs_copy_range(file, old, part[i].from, part[i].size, block)) written = -1;
        if (written < 0) break;
        i += written;
    }
    reason = errno;
    free(block);
    errno = reason;
    return i < n ? -1 : 0;
}

static inline int zs_stat(const char *path, struct stat *status) { return ZS_AGAIN(stat(path, status)); }

/* Whether an open directory has been removed. */
static inline int zs_folder_is_gone(int directory) {
    struct stat status;
    return fstat(directory, &status) || status.st_nlink == 0;
}

#endif

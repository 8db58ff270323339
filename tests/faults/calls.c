/* System calls on files below one directory, counted, written down, and failing when told: preloaded into a process
 * (LD_PRELOAD), and told what to do through `calls_begin`, which tests/faults/calls.py calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN = 1, MAKE = 2, WRITE = 4, SYNC = 8, NAME = 16, REMOVE = 32, MKDIR = 64, LOCK = 128, READ = 256 };
/* Memory: whatever the thread that began asks for, and what the kernels ask for on any thread. */
enum { MEMORY = 512, KERNELS = 1024 };

static char root[PATH_MAX];
static unsigned kinds;          /* those that are counted */
static long count, first, last; /* calls first … last - 1 fail, counted from 0 */
static int failure;             /* an error number, or -1: they write half of what they were asked to */
static int log_file = -1;
static pthread_t beginner;

void calls_begin(const char *below, unsigned which, long from, long times, int error, int log) {
    snprintf(root, sizeof root, "%s", below);
    kinds = which;
    count = 0;
    first = from;
    last = from + times;
    failure = error;
    log_file = log;
    beginner = pthread_self();
}

long calls_end(void) {
    root[0] = 0;
    kinds = 0;
    return count;
}

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);

static int is_in(const void *code, const char *library) {
    Dl_info from;
    return dladdr(code, &from) && from.dli_fname && strstr(from.dli_fname, library);
}

/* Whether memory that is asked for is refused. What numpy asks for is given: without it numpy 2.4 crashes (the GIL is
 * not held where it sets the exception, a descriptor is used that there is not), or forgets the exception. */
static int refuses(void) {
    static __thread int is_asking;
    void *callers[6] = {0};
    if (!(kinds & (MEMORY | KERNELS)) || is_asking) return 0;
    is_asking = 1;
    backtrace(callers, 6);
    int is_ours = is_in(callers[2], "/_ext/"), is_numpys = 0;
    for (int i = 2; i < 6; i++) is_numpys |= is_in(callers[i], "/numpy/");
    is_asking = 0;
    if (!is_ours && (is_numpys || !(kinds & MEMORY) || !pthread_equal(beginner, pthread_self()))) return 0;
    long number = __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
    if (number < first || number >= last) return 0;
    errno = ENOMEM;
    return 1;
}
void *malloc(size_t size) { return refuses() ? NULL : __libc_malloc(size); }
void *calloc(size_t n, size_t size) { return refuses() ? NULL : __libc_calloc(n, size); }
void *realloc(void *old, size_t size) { return size && refuses() ? NULL : __libc_realloc(old, size); }
void *aligned_alloc(size_t alignment, size_t size) { return refuses() ? NULL : __libc_memalign(alignment, size); }
int posix_memalign(void **made, size_t alignment, size_t size) {
    if (refuses() || !(*made = __libc_memalign(alignment, size))) return ENOMEM;
    return 0;
}
void *mmap64(void *at, size_t size, int protection, int flags, int file, off64_t offset) {
    if (refuses()) return MAP_FAILED;
    return (void *)((long (*)(long, ...))dlsym(RTLD_NEXT, "syscall"))(SYS_mmap, at, size, protection, flags, file, offset);
}
void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
    if (refuses()) return MAP_FAILED;
    return (void *)((long (*)(long, ...))dlsym(RTLD_NEXT, "syscall"))(SYS_mmap, at, size, protection, flags, file, offset);
}

static void place_of(int directory, const char *name, char *path) {
    char link[64], above[PATH_MAX] = "";
    if (name && name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
        return;
    }
    if (directory == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
    else snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    ssize_t size = readlink(link, above, sizeof above - 1);
    above[size < 0 ? 0 : size] = 0;
    if (name && name[0]) snprintf(path, PATH_MAX, "%.2000s/%.2000s", above, name);
    else snprintf(path, PATH_MAX, "%s", above);
}

/* Whether this call fails; the answer then is in errno, or (2) it is to be a short one. */
static int meets(unsigned kind, const char *what, int directory, const char *name) {
    char path[PATH_MAX];
    int reason = errno;
    if (!root[0]) return 0;
    place_of(directory, name, path);
    errno = reason;
    size_t size = strlen(root);
    if (strncmp(path, root, size) || (path[size] && path[size] != '/')) return 0;
    if (log_file >= 0) dprintf(log_file, "%s %s\n", what, path[size] ? path + size + 1 : ".");
    if (!(kind & kinds)) return 0;
    long number = count++;
    if (number < first || number >= last) return 0;
    if (failure < 0) return 2;
    errno = failure;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define NAMED(name) (dlsym(RTLD_NEXT, name))

static unsigned kind_of(int flags) { return flags & (O_CREAT | __O_TMPFILE) ? MAKE : OPEN; }
static mode_t mode_of(int flags, va_list *rest) {
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(*rest, mode_t) : 0;
}

#define OPENER(name)                                                                                                   \
    int name(const char *path, int flags, ...) {                                                                       \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = mode_of(flags, &rest);                                                                           \
        va_end(rest);                                                                                                  \
        return meets(kind_of(flags), "open", AT_FDCWD, path) ? -1 : REAL(name)(path, flags, mode);                     \
    }
OPENER(open)
OPENER(open64)

#define OPENER_AT(name)                                                                                                \
    int name(int at, const char *path, int flags, ...) {                                                               \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = mode_of(flags, &rest);                                                                           \
        va_end(rest);                                                                                                  \
        return meets(kind_of(flags), "open", at, path) ? -1 : REAL(name)(at, path, flags, mode);                       \
    }
OPENER_AT(openat)
OPENER_AT(openat64)

int __openat_2(int at, const char *path, int flags) {
    if (meets(kind_of(flags), "open", at, path)) return -1;
    return ((int (*)(int, const char *, int))NAMED("__openat_2"))(at, path, flags);
}
int __openat64_2(int at, const char *path, int flags) {
    if (meets(kind_of(flags), "open", at, path)) return -1;
    return ((int (*)(int, const char *, int))NAMED("__openat64_2"))(at, path, flags);
}

long syscall(long number, ...) {
    long given[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++) given[i] = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_openat2 && meets(kind_of((int)((struct open_how *)given[2])->flags), "open", (int)given[0],
                                       (const char *)given[1]))
        return -1;
    return ((long (*)(long, ...))NAMED("syscall"))(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

static ssize_t half(int file, const struct iovec *vector, int n) {
    int i = 0;
    while (i < n - 1 && !vector[i].iov_len) i++;
    return REAL(write)(file, vector[i].iov_base, (vector[i].iov_len + 1) / 2);
}
ssize_t writev(int file, const struct iovec *vector, int n) {
    int met = meets(WRITE, "write", file, NULL);
    return met == 1 ? -1 : met ? half(file, vector, n) : REAL(writev)(file, vector, n);
}
ssize_t write(int file, const void *data, size_t size) {
    int met = meets(WRITE, "write", file, NULL);
    return met == 1 ? -1 : REAL(write)(file, data, met ? (size + 1) / 2 : size);
}
#define WRITER(name, at)                                                                                               \
    ssize_t name(int file, const void *data, size_t size, at offset) {                                                 \
        int met = meets(WRITE, "write", file, NULL);                                                                   \
        return met == 1 ? -1 : REAL(name)(file, data, met ? (size + 1) / 2 : size, offset);                            \
    }
WRITER(pwrite, off_t)
WRITER(pwrite64, off64_t)
#define VECTOR_WRITER(name, at)                                                                                        \
    ssize_t name(int file, const struct iovec *vector, int n, at offset) {                                             \
        int met = meets(WRITE, "write", file, NULL);                                                                   \
        if (met == 2) return REAL(pwrite64)(file, vector->iov_base, (vector->iov_len + 1) / 2, offset);                \
        return met ? -1 : REAL(name)(file, vector, n, offset);                                                         \
    }
VECTOR_WRITER(pwritev, off_t)
VECTOR_WRITER(pwritev64, off64_t)
#define READER(name, at)                                                                                               \
    ssize_t name(int file, void *data, size_t size, at offset) {                                                       \
        return meets(READ, "read", file, NULL) ? -1 : REAL(name)(file, data, size, offset);                            \
    }
READER(pread, off_t)
READER(pread64, off64_t)
#define VECTOR_READER(name, at)                                                                                        \
    ssize_t name(int file, const struct iovec *vector, int n, at offset) {                                             \
        return meets(READ, "read", file, NULL) ? -1 : REAL(name)(file, vector, n, offset);                             \
    }
VECTOR_READER(preadv, off_t)
VECTOR_READER(preadv64, off64_t)

int fsync(int file) { return meets(SYNC, "fsync", file, NULL) ? -1 : REAL(fsync)(file); }
int fdatasync(int file) { return meets(SYNC, "fsync", file, NULL) ? -1 : REAL(fdatasync)(file); }
int ftruncate64(int file, off64_t size) {
    return meets(WRITE, "truncate", file, NULL) ? -1 : REAL(ftruncate64)(file, size);
}
int flock(int file, int what) { return meets(LOCK, "lock", file, NULL) ? -1 : REAL(flock)(file, what); }
#define CONTROL(name)                                                                                                  \
    int name(int file, int command, ...) {                                                                             \
        va_list rest;                                                                                                  \
        va_start(rest, command);                                                                                       \
        void *given = va_arg(rest, void *);                                                                            \
        va_end(rest);                                                                                                  \
        int locks = command == F_OFD_SETLK || command == F_OFD_SETLKW;                                                 \
        int lets_go = locks && ((struct flock *)given)->l_type == F_UNLCK;                                             \
        return locks && !lets_go && meets(LOCK, "lock", file, NULL) ? -1 : REAL(name)(file, command, given);           \
    }
CONTROL(fcntl)
CONTROL(fcntl64)

int rename(const char *from, const char *to) {
    return meets(NAME, "name", AT_FDCWD, to) ? -1 : REAL(rename)(from, to);
}
int renameat(int from_at, const char *from, int at, const char *to) {
    return meets(NAME, "name", at, to) ? -1 : REAL(renameat)(from_at, from, at, to);
}
int linkat(int from_at, const char *from, int at, const char *to, int flags) {
    return meets(NAME, "name", at, to) ? -1 : REAL(linkat)(from_at, from, at, to, flags);
}
int unlink(const char *path) { return meets(REMOVE, "remove", AT_FDCWD, path) ? -1 : REAL(unlink)(path); }
int unlinkat(int at, const char *path, int flags) {
    return meets(REMOVE, "remove", at, path) ? -1 : REAL(unlinkat)(at, path, flags);
}
int rmdir(const char *path) { return meets(REMOVE, "remove", AT_FDCWD, path) ? -1 : REAL(rmdir)(path); }
int mkdir(const char *path, mode_t mode) {
    return meets(MKDIR, "mkdir", AT_FDCWD, path) ? -1 : REAL(mkdir)(path, mode);
}
int mkdirat(int at, const char *path, mode_t mode) {
    return meets(MKDIR, "mkdir", at, path) ? -1 : REAL(mkdirat)(at, path, mode);
}

/* pool.h - the engine's threads: started once, shared by all calls, and started anew after a fork.
 *
 * A job is a function that takes work until none is left. The calling thread always works too, so a job makes progress
 * however busy the pool is, and there are never more threads at work than callers and threads of the pool.
 */
#ifndef ZS_POOL_H
#define ZS_POOL_H

#include <pthread.h>
#include <string.h>
#include <time.h>

#define ZS_MAX_WORKERS 255
#define ZS_STACK_SIZE (1 << 20) /* of a worker, where musl alone would give 128 KiB */
#define ZS_POLL_INTERVAL 50     /* milliseconds between two looks at Python's signals */

typedef struct zs_job {
    void (*work)(struct zs_job *job, int is_caller);
    void (*wait)(struct zs_job *job); /* called at intervals while the caller waits for workers; may be NULL */
    int wanted;                       /* workers that may still join */
    int running;                      /* workers inside `work` */
    struct zs_job *next;
} zs_job;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t jobs, idle;
    zs_job *first;
    int workers, has_atfork;
} zs_pool = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0, 0};

static void *zs_pool_worker(void *unused) {
    (void)unused;
    pthread_mutex_lock(&zs_pool.lock);
    for (;;) {
        zs_job *job = zs_pool.first;
        while (job && job->wanted == 0) job = job->next;
        if (!job) {
            pthread_cond_wait(&zs_pool.jobs, &zs_pool.lock);
            continue;
        }
        job->wanted--;
        job->running++;
        pthread_mutex_unlock(&zs_pool.lock);
        job->work(job, 0);
        pthread_mutex_lock(&zs_pool.lock);
        if (--job->running == 0) pthread_cond_broadcast(&zs_pool.idle);
    }
    return NULL;
}

/* Only the thread that forks lives on in the child: hold the lock during the fork, then forget the others. */
static void zs_pool_before_fork(void) { pthread_mutex_lock(&zs_pool.lock); }
static void zs_pool_after_fork_parent(void) { pthread_mutex_unlock(&zs_pool.lock); }
static void zs_pool_after_fork_child(void) {
    pthread_mutex_init(&zs_pool.lock, NULL);
    pthread_cond_init(&zs_pool.jobs, NULL);
    pthread_cond_init(&zs_pool.idle, NULL);
    zs_pool.first = NULL;
    zs_pool.workers = 0;
}

static void zs_pool_grow(int workers) {
    pthread_attr_t attributes;
    if (!zs_pool.has_atfork) {
        pthread_atfork(zs_pool_before_fork, zs_pool_after_fork_parent, zs_pool_after_fork_child);
        zs_pool.has_atfork = 1;
    }
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, ZS_STACK_SIZE);
    while (zs_pool.workers < workers) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, zs_pool_worker, NULL)) break;
        zs_pool.workers++;
    }
    pthread_attr_destroy(&attributes);
}

static inline struct timespec zs_after(clockid_t clock, long milliseconds) {
    struct timespec at;
    clock_gettime(clock, &at);
    at.tv_nsec += milliseconds * 1000000;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

/* Run `job->work` on this thread and on up to `threads` - 1 others; returns when all of them have returned. */
static void zs_pool_run(zs_job *job, int threads) {
    if (threads <= 1) {
        job->work(job, 1);
        return;
    }
    if (threads > ZS_MAX_WORKERS) threads = ZS_MAX_WORKERS;
    job->wanted = threads - 1;
    job->running = 0;
    pthread_mutex_lock(&zs_pool.lock);
    zs_pool_grow(threads - 1);
    job->next = zs_pool.first;
    zs_pool.first = job;
    if (job->wanted == 1) pthread_cond_signal(&zs_pool.jobs);
    else pthread_cond_broadcast(&zs_pool.jobs);
    pthread_mutex_unlock(&zs_pool.lock);

    job->work(job, 1);

    pthread_mutex_lock(&zs_pool.lock);
    zs_job **link = &zs_pool.first;
    while (*link != job) link = &(*link)->next;
    *link = job->next;
    while (job->running) {
        struct timespec until = zs_after(CLOCK_REALTIME, ZS_POLL_INTERVAL);
        if (!pthread_cond_timedwait(&zs_pool.idle, &zs_pool.lock, &until) || !job->wait) continue;
        pthread_mutex_unlock(&zs_pool.lock); /* which a fork, holding the GIL, takes too */
        job->wait(job);
        pthread_mutex_lock(&zs_pool.lock);
    }
    pthread_mutex_unlock(&zs_pool.lock);
}

#endif

/* Memory for the bodies of answers. What was let go of is used again as long as requests are under way: its pages are
   there already, where memory of malloc's would be taken from the system, filled with zeros, and given back. */
#ifndef ZS_BODY_H
#define ZS_BODY_H
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

enum { ZS_SPARE_COUNT = 256, ZS_LEAST_SPARE = 16 << 10 };
#ifdef __SANITIZE_ADDRESS__
#define ZS_SPARE_SIZE ((int64_t)0) /* so that it sees who uses what he has let go of */
#else
#define ZS_SPARE_SIZE ((int64_t)16 << 20)
#endif

typedef struct {
    char *data;
    int64_t room; /* its bytes */
} zs_body;

static _Atomic int zs_batches; /* batches of requests that are under way in this process */

static struct {
    pthread_mutex_t lock;
    zs_body spare[ZS_SPARE_COUNT]; /* the one that was let go of last at the end */
    int count, used;               /* spare ones; those that somebody has */
    int64_t size;                  /* bytes of the spare ones */
} zs_bodies = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* In a forked process, another thread of the parent's may hold the lock for ever. */
static void zs_bodies_forked(void) {
    pthread_mutex_init(&zs_bodies.lock, NULL);
    zs_bodies.count = zs_bodies.used = 0;
    zs_bodies.size = 0;
}

/* Memory for so many bytes, 1 at least; NULL: there is none. */
static char *zs_body_take(int64_t size, zs_body *body) {
    *body = (zs_body){NULL, size};
    if (size >= ZS_LEAST_SPARE) {
        pthread_mutex_lock(&zs_bodies.lock);
        zs_bodies.used++;
        for (int k = zs_bodies.count - 1; k >= 0; k--) {
            if (zs_bodies.spare[k].room < size || zs_bodies.spare[k].room / 2 > size) continue;
            *body = zs_bodies.spare[k];
            zs_bodies.size -= body->room;
            zs_bodies.spare[k] = zs_bodies.spare[--zs_bodies.count];
            break;
        }
        pthread_mutex_unlock(&zs_bodies.lock);
    }
    if (!body->data) body->data = malloc((size_t)size);
    return body->data;
}

/* Free what is spare where nobody asks for anything, and nobody has any of it. */
static void zs_bodies_settle(void) {
    pthread_mutex_lock(&zs_bodies.lock);
    if (zs_bodies.used <= 0 && !atomic_load(&zs_batches)) {
        while (zs_bodies.count) free(zs_bodies.spare[--zs_bodies.count].data);
        zs_bodies.size = 0;
    }
    pthread_mutex_unlock(&zs_bodies.lock);
}

/* Let go of memory, if there is any. */
static void zs_body_give(zs_body *body) {
    if (body->room >= ZS_LEAST_SPARE) {
        pthread_mutex_lock(&zs_bodies.lock);
        zs_bodies.used--;
        if (body->data && zs_bodies.count < ZS_SPARE_COUNT && zs_bodies.size + body->room <= ZS_SPARE_SIZE) {
            zs_bodies.spare[zs_bodies.count++] = *body;
            zs_bodies.size += body->room;
            body->data = NULL;
        }
        pthread_mutex_unlock(&zs_bodies.lock);
        zs_bodies_settle();
    }
    free(body->data);
    *body = (zs_body){NULL, 0};
}
#endif

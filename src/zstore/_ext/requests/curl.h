/* The part of libcurl that is used here. It is loaded when it is first needed, by the name that it has had since
   2006, so that neither building nor installing needs it; names and numbers are those of <curl/curl.h>. */
#ifndef ZS_CURL_H
#define ZS_CURL_H
#include "body.h"

#include <dlfcn.h>
#include <stddef.h>

typedef struct {
    int what;
    void *easy;
    union {
        void *any;
        int result;
    } data;
} zs_curl_message;

enum {
    ZS_CURL_WRITEDATA = 10001,
    ZS_CURL_URL = 10002,
    ZS_CURL_PROXY = 10004,
    ZS_CURL_RANGE = 10007,
    ZS_CURL_POSTFIELDS = 10015,
    ZS_CURL_HTTPHEADER = 10023,
    ZS_CURL_HEADERDATA = 10029,
    ZS_CURL_CUSTOMREQUEST = 10036,
    ZS_CURL_CAINFO = 10065,
    ZS_CURL_PRIVATE = 10103,
    ZS_CURL_PREREQDATA = 10313,
    ZS_CURL_WRITEFUNCTION = 20011,
    ZS_CURL_HEADERFUNCTION = 20079,
    ZS_CURL_PREREQFUNCTION = 20312,
    ZS_CURL_UPLOAD_BUFFERSIZE = 280,
    ZS_CURL_POSTFIELDSIZE_LARGE = 30120,
    ZS_CURL_POST = 47,
    ZS_CURL_HTTP_VERSION = 84,
    ZS_CURL_BUFFERSIZE = 98,
    ZS_CURL_NOSIGNAL = 99,
    ZS_CURL_CONNECTTIMEOUT_MS = 156,
    ZS_CURL_PROTOCOLS = 181,
    ZS_CURL_PATH_AS_IS = 234,
    ZS_CURL_INFO_PRIVATE = 0x100015,
    ZS_CURL_INFO_SIZE_UPLOAD = 0x600007,
    ZS_CURL_MULTI_MAXCONNECTS = 6,
    ZS_CURL_MULTI_SOCKETDATA = 10002,
    ZS_CURL_MULTI_TIMERDATA = 10005,
    ZS_CURL_MULTI_SOCKETFUNCTION = 20001,
    ZS_CURL_MULTI_TIMERFUNCTION = 20004,
    ZS_CURL_POLL_IN = 1,
    ZS_CURL_POLL_OUT = 2,
    ZS_CURL_NO_SOCKET = -1,
    ZS_CURL_CAME = 1,
    ZS_CURL_MAY_SEND = 2,
    ZS_CURL_FAILED = 4,
    ZS_CURL_HTTP_1_1 = 2,
    ZS_CURL_HTTP_AND_HTTPS = 3,
    ZS_CURL_DONE = 1,
    ZS_CURL_PAUSE = 0x10000001, /* what takes a body says so that it is to wait */
    ZS_CURL_GO_ON = 0
};

/* Filled once, before anything else of it is used. */
static struct {
    const char *trouble;
    int puts; /* whether it says when it sends, as 7.80 and later do */
    int (*global_init)(long);
    const char *(*version)(void);
    void *(*easy_init)(void);
    int (*easy_setopt)(void *, int, ...);
    int (*easy_getinfo)(void *, int, ...);
    void (*easy_cleanup)(void *);
    int (*easy_pause)(void *, int);
    const char *(*easy_strerror)(int);
    void *(*slist_append)(void *, const char *);
    void (*slist_free_all)(void *);
    void *(*multi_init)(void);
    int (*multi_setopt)(void *, int, ...);
    int (*multi_add_handle)(void *, void *);
    int (*multi_remove_handle)(void *, void *);
    int (*multi_socket_action)(void *, int, int, int *);
    zs_curl_message *(*multi_info_read)(void *, int *);
    int (*multi_cleanup)(void *);
} zs_curl;
static pthread_once_t zs_curl_once = PTHREAD_ONCE_INIT;
static _Atomic int zs_asking; /* requests that are under way in this process */

static void zs_curl_forked(void) {
    zs_bodies_forked();
    atomic_store(&zs_asking, 0);
    atomic_store(&zs_batches, 0);
}

static void zs_curl_load(void) {
#ifdef __APPLE__
    void *library = dlopen("libcurl.4.dylib", RTLD_NOW | RTLD_LOCAL);
#else
    void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
#endif
    if (!library) {
        zs_curl.trouble = "not installed";
        return;
    }
    /* A name that is not there, as multi_poll before 7.66, makes the library too old. */
#define ZS_CURL_NAME(name)                                          \
    if (!(*(void **)&zs_curl.name = dlsym(library, "curl_" #name))) \
        zs_curl.trouble = "too old: it has no "                     \
                          "curl_" #name;
    ZS_CURL_NAME(global_init)
    ZS_CURL_NAME(version)
    ZS_CURL_NAME(easy_init)
    ZS_CURL_NAME(easy_setopt)
    ZS_CURL_NAME(easy_getinfo)
    ZS_CURL_NAME(easy_cleanup)
    ZS_CURL_NAME(easy_pause)
    ZS_CURL_NAME(easy_strerror)
    ZS_CURL_NAME(slist_append)
    ZS_CURL_NAME(slist_free_all)
    ZS_CURL_NAME(multi_init)
    ZS_CURL_NAME(multi_setopt)
    ZS_CURL_NAME(multi_add_handle)
    ZS_CURL_NAME(multi_remove_handle)
    ZS_CURL_NAME(multi_socket_action)
    ZS_CURL_NAME(multi_info_read)
    ZS_CURL_NAME(multi_cleanup)
#undef ZS_CURL_NAME
    if (!zs_curl.trouble && (zs_curl.global_init(3 /* TLS */) || pthread_atfork(NULL, NULL, zs_curl_forked)))
        zs_curl.trouble = "it does not start";
    if (!zs_curl.trouble) {
        void *easy = zs_curl.easy_init();
        zs_curl.puts = easy && !zs_curl.easy_setopt(easy, ZS_CURL_PREREQFUNCTION, NULL);
        if (easy) zs_curl.easy_cleanup(easy);
    }
}

/* NULL, or why libcurl cannot be used. */
static inline const char *zs_curl_trouble(void) {
    pthread_once(&zs_curl_once, zs_curl_load);
    return zs_curl.trouble;
}
#endif

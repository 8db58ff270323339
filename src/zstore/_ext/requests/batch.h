/* GETs and PUTs of many values, made at once by the calling thread through libcurl, over connections that are kept. */
#ifndef ZS_BATCH_H
#define ZS_BATCH_H
#include "curl.h"

#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum {
    ZS_BUFFER = 96 << 10,      /* bytes that one read of a socket brings at most */
    ZS_LEAST_BUFFER = 4 << 10, /* the same of what is said to a PUT */
    ZS_PIECE = 512 << 10,      /* bytes that one write to a socket takes at most: it is waited for between two */
    ZS_LEAST_PIECE = 64 << 10, /* libcurl's own */
    ZS_TEXT = 256,             /* bytes of a header that is kept */
    ZS_SAID = 4096,            /* bytes of a refusal that are kept */
    ZS_KEPT = 128,             /* connections that are kept without use, by each set of them */
    ZS_LOOK = 20,              /* ms between looks at the clock while an answer is waited for */
};
#define ZS_MOST_TRUSTED ((int64_t)1 << 30) /* bytes of a body that memory is taken for before they come */

/* What became of a request. */
enum {
    ZS_WAITING,
    ZS_UNDER_WAY,
    ZS_DONE,     /* all bytes that were wanted came; of a PUT, that it was done */
    ZS_REFUSED,  /* the server answered with a status of an error or another address, and a body */
    ZS_UNSIZED,  /* it did not say how long its answer is */
    ZS_UNRANGED, /* it sent the whole value in place of the range */
    ZS_BROKEN,   /* the connection broke after the request was sent */
    ZS_STALLED,  /* nothing came for `read_time` */
    ZS_SLOW,     /* the body took longer than it may */
    ZS_UNASKED   /* nobody was reached, or what came is not understood: it is to be asked in another way */
};

typedef struct {
    const char *url, *range; /* `range` as HTTP has it, without "bytes="; NULL: all */
    void *headers;
    int64_t limit;       /* the bytes of a whole value that are wanted at most; -1: all */
    int is_open;         /* whether the answer need not say how long it is: of less than `limit` bytes then */
    const char *content; /* of a PUT, the bytes that are sent; NULL: it is a GET */
    int64_t content_size;

    int outcome, status, failure; /* `failure`: libcurl's code */
    int64_t length, begin, end, total;
    int is_odd, has_head; /* a header came twice, or is none; whether the answer's head has ended */
    int is_sent;          /* of a PUT, whether it was sent to the server, so that its value may be there */
    int64_t sent_size;    /* of its bytes, those that were sent when somebody looked last */
    char tag[ZS_TEXT], version[ZS_TEXT], kind[ZS_TEXT], packing[ZS_TEXT];
    zs_body body;
    int64_t size, wanted, held; /* bytes that came, that are to come, and that are counted as held */
    struct zs_batch *batch;
    int is_paused; /* its body waits until there is room for it */
    void *easy;
    double asked, heard, begun, ended; /* when it was sent, something came last, the body began, it was over; seconds */
} zs_request;

/* Connections to one server, which one thread at a time uses. */
typedef struct {
    void *multi;
    const char *authorities; /* the file of certificates, NULL: libcurl's own */
    int count;               /* the most that may be open without use */
    /* what libcurl waits for: */
    struct pollfd *sockets;
    int socket_count, socket_room;
    double wakes; /* when it is to go on though nothing comes; negative: never */
} zs_connections;

/* How a batch is asked; times in seconds. */
typedef struct {
    int most; /* requests at once, of all batches of the process */
    double connect_time, read_time, total_time;
    int64_t progress_size; /* a body may take read_time for each such bytes and one more; 0: as long as it likes */
} zs_terms;

typedef struct zs_batch {
    zs_connections *at;
    zs_terms terms;
    zs_request *requests;
    int count, active, done, has_begun; /* places for requests; those under way; those whose answers were not taken */
    int allowed, paused;                /* requests at once so far; those whose bodies wait */
    int64_t most_size, held_size; /* bytes of bodies that have begun to come and were not taken: at most, and now */
} zs_batch;

static inline double zs_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

/* The value of a header of that name, without the space around it; NULL: it is another one. */
static inline const char *zs_header(const char *line, const char *end, const char *name, const char **last) {
    size_t size = strlen(name);
    if ((size_t)(end - line) <= size || line[size] != ':' || strncasecmp(line, name, size)) return NULL;
    line += size + 1;
    while (line < end && (*line == ' ' || *line == '\t')) line++;
    while (end > line && (end[-1] == ' ' || end[-1] == '\t')) end--;
    *last = end;
    return line;
}

/* Digits of a number below 10^18, all of the text up to `end`; -1: something else is there. */
static inline int64_t zs_number(const char *text, const char *end) {
    int64_t number = 0;
    if (text == end || end - text > 18) return -1;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9') return -1;
        number = 10 * number + (*text - '0');
    }
    return number;
}

static inline void zs_keep_text(zs_request *request, char *into, const char *value, const char *last) {
    if (into[0] || last - value >= ZS_TEXT || memchr(value, 0, (size_t)(last - value))) {
        request->is_odd = 1;
        return;
    }
    memcpy(into, value, (size_t)(last - value));
    into[last - value] = 0;
}

/* "bytes 0-9/100" */
static inline void zs_keep_range(zs_request *request, const char *value, const char *last) {
    const char *dash = memchr(value, '-', (size_t)(last - value)), *slash = memchr(value, '/', (size_t)(last - value));
    if (request->total >= 0 || !dash || !slash || slash < dash || strncasecmp(value, "bytes ", 6)) {
        request->is_odd = 1;
        return;
    }
    request->begin = zs_number(value + 6, dash);
    request->end = zs_number(dash + 1, slash) + 1;
    request->total = zs_number(slash + 1, last);
    if (request->begin < 0 || request->end <= request->begin || request->total < request->end) request->is_odd = 1;
}

static void zs_forget_answer(zs_request *request) {
    request->length = request->begin = request->end = request->total = -1;
    request->is_odd = request->has_head = 0;
    request->tag[0] = request->version[0] = request->kind[0] = request->packing[0] = 0;
}

/* libcurl calls this for each line of an answer's head, and for those of "100 Continue" before it. */
static size_t zs_take_header(char *line, size_t one, size_t size, void *of) {
    zs_request *request = of;
    const char *end = line + size, *value, *last;
    (void)one;
    request->heard = zs_now();
    while (end > line && (end[-1] == '\r' || end[-1] == '\n')) end--;
    if (end - line >= 12 && !memcmp(line, "HTTP/", 5)) {
        const char *space = memchr(line, ' ', (size_t)(end - line));
        request->status = space && end - space >= 4 ? (int)zs_number(space + 1, space + 4) : -1;
        zs_forget_answer(request);
    } else if (end == line) request->has_head = 1;
    else if ((value = zs_header(line, end, "content-length", &last))) {
        int64_t length = zs_number(value, last);
        request->is_odd |= length < 0 || (request->length >= 0 && request->length != length);
        request->length = length;
    } else if ((value = zs_header(line, end, "content-range", &last))) {
        if (request->status == 206) zs_keep_range(request, value, last);
    } else if ((value = zs_header(line, end, "etag", &last))) zs_keep_text(request, request->tag, value, last);
    else if ((value = zs_header(line, end, "x-amz-version-id", &last)))
        zs_keep_text(request, request->version, value, last);
    else if ((value = zs_header(line, end, "content-type", &last))) zs_keep_text(request, request->kind, value, last);
    else if ((value = zs_header(line, end, "content-encoding", &last)))
        zs_keep_text(request, request->packing, value, last);
    return size;
}

/* Settle from the head of an answer what is to come of its body, and take memory for that; otherwise the outcome. */
static int zs_expect_body(zs_request *request) {
    int status = request->status;
    if (!request->has_head) return ZS_BROKEN;
    if (request->content ? status < 200 || request->is_odd
                         : status < 200 || (status > 206 && status < 300) || (status > 200 && status < 206))
        return ZS_UNASKED;
    if (status >= 300 || request->content)
        request->wanted = request->length >= 0 && request->length < ZS_SAID ? request->length : ZS_SAID;
    else if (request->is_odd || (status == 206) > (request->range != NULL) || (status == 206 && request->total < 0))
        return ZS_UNASKED;
    else if (status == 200 && request->range) return ZS_UNRANGED;
    else if (request->length < 0 && !request->is_open) return ZS_UNSIZED;
    else if (request->length < 0) request->wanted = request->limit;
    else {
        request->wanted = request->length;
        if (status == 200) {
            request->begin = 0;
            request->end = request->total = request->length;
            if (request->limit >= 0 && request->limit < request->wanted) request->wanted = request->limit;
        } else if (request->end - request->begin != request->length) return ZS_UNASKED;
        if (request->wanted > ZS_MOST_TRUSTED) return ZS_UNASKED;
    }
    zs_body_give(&request->body);
    zs_body_take(request->wanted ? request->wanted : 1, &request->body);
    request->size = 0;
    request->begun = request->heard;
    return request->body.data ? ZS_UNDER_WAY : ZS_UNASKED;
}

/* Whether a body would take more memory than there is for those that were not taken. */
static int zs_has_to_wait(zs_request *request) {
    zs_batch *batch = request->batch;
    return batch->held_size && request->length > batch->most_size - batch->held_size;
}

/* libcurl calls this for each piece of a body; less than `size` makes it end the request. */
static size_t zs_take_body(char *piece, size_t one, size_t size, void *of) {
    zs_request *request = of;
    int64_t room, taken;
    (void)one;
    request->heard = zs_now();
    if (request->wanted < 0) {
        if (zs_has_to_wait(request)) {
            request->batch->paused += !request->is_paused;
            request->is_paused = 1;
            return ZS_CURL_PAUSE;
        }
        if ((request->outcome = zs_expect_body(request)) != ZS_UNDER_WAY) return 0;
        request->batch->held_size += request->held = request->wanted;
    }
    room = request->wanted - request->size;
    taken = (int64_t)size < room ? (int64_t)size : room;
    memcpy(request->body.data + request->size, piece, (size_t)taken);
    request->size += taken;
    return taken < (int64_t)size || (taken == room && request->wanted != request->length) ? 0 : size;
}

/* libcurl calls this before it sends a request; what is not 0 ends it. By itself it sends once more what it has sent
   over a connection that broke then. That is for those to decide who know what it means where it was done before. */
static int zs_before_sending(void *of, char *to, char *from, int to_port, int from_port) {
    zs_request *request = of;
    int was_sent = request->is_sent;
    (void)to, (void)from, (void)to_port, (void)from_port;
    request->is_sent = 1;
    return was_sent;
}

/* Have a request put its bytes; otherwise it is not made. libcurl before 7.80 does not say when it sends. */
static int zs_set_content(zs_request *request) {
    void *easy = request->easy;
    int64_t size = request->content_size > ZS_LEAST_PIECE ? request->content_size : ZS_LEAST_PIECE;
    return zs_curl.easy_setopt(easy, ZS_CURL_POST, 1L) | zs_curl.easy_setopt(easy, ZS_CURL_CUSTOMREQUEST, "PUT") |
           zs_curl.easy_setopt(easy, ZS_CURL_POSTFIELDS, request->content) |
           zs_curl.easy_setopt(easy, ZS_CURL_POSTFIELDSIZE_LARGE, request->content_size) |
           zs_curl.easy_setopt(easy, ZS_CURL_BUFFERSIZE, (long)ZS_LEAST_BUFFER) |
           zs_curl.easy_setopt(easy, ZS_CURL_UPLOAD_BUFFERSIZE, (long)(size < ZS_PIECE ? size : ZS_PIECE)) |
           zs_curl.easy_setopt(easy, ZS_CURL_PREREQFUNCTION, zs_before_sending) |
           zs_curl.easy_setopt(easy, ZS_CURL_PREREQDATA, request);
}

/* A handle for one request. It is never used again: libcurl before 8.0 reads what it has freed where the next answer's
   head begins with a space. */
static void *zs_easy(zs_connections *at) {
    void *easy = zs_curl.easy_init();
    int failed;
    if (!easy) return NULL;
    failed = zs_curl.easy_setopt(easy, ZS_CURL_NOSIGNAL, 1L) | zs_curl.easy_setopt(easy, ZS_CURL_PATH_AS_IS, 1L) |
             zs_curl.easy_setopt(easy, ZS_CURL_PROXY, "") |
             zs_curl.easy_setopt(easy, ZS_CURL_PROTOCOLS, (long)ZS_CURL_HTTP_AND_HTTPS) |
             zs_curl.easy_setopt(easy, ZS_CURL_HTTP_VERSION, (long)ZS_CURL_HTTP_1_1) |
             zs_curl.easy_setopt(easy, ZS_CURL_BUFFERSIZE, (long)ZS_BUFFER) |
             zs_curl.easy_setopt(easy, ZS_CURL_WRITEFUNCTION, zs_take_body) |
             zs_curl.easy_setopt(easy, ZS_CURL_HEADERFUNCTION, zs_take_header) |
             (at->authorities ? zs_curl.easy_setopt(easy, ZS_CURL_CAINFO, at->authorities) : 0);
    if (failed) {
        zs_curl.easy_cleanup(easy);
        return NULL;
    }
    return easy;
}

static int zs_start(zs_batch *batch, zs_request *request) {
    void *easy = zs_easy(batch->at);
    long connect_time = (long)(1000 * batch->terms.connect_time);
    if (!easy) return -1;
    request->easy = easy;
    request->batch = batch;
    request->outcome = ZS_UNDER_WAY;
    request->wanted = -1;
    request->asked = request->heard = request->begun = zs_now();
    zs_forget_answer(request);
    if (zs_curl.easy_setopt(easy, ZS_CURL_URL, request->url) |
            zs_curl.easy_setopt(easy, ZS_CURL_RANGE, request->range) |
            zs_curl.easy_setopt(easy, ZS_CURL_HTTPHEADER, request->headers) |
            zs_curl.easy_setopt(easy, ZS_CURL_CONNECTTIMEOUT_MS, connect_time > 0 ? connect_time : 1L) |
            zs_curl.easy_setopt(easy, ZS_CURL_WRITEDATA, request) |
            zs_curl.easy_setopt(easy, ZS_CURL_HEADERDATA, request) |
            zs_curl.easy_setopt(easy, ZS_CURL_PRIVATE, request) | (request->content ? zs_set_content(request) : 0) ||
        zs_curl.multi_add_handle(batch->at->multi, easy)) {
        zs_curl.easy_cleanup(easy);
        request->easy = NULL;
        return -1;
    }
    return 0;
}

/* End a request; the connection of one that is under way is closed. */
static void zs_end(zs_batch *batch, zs_request *request) {
    zs_curl.multi_remove_handle(batch->at->multi, request->easy);
    zs_curl.easy_cleanup(request->easy);
    request->easy = NULL;
    request->ended = zs_now();
    batch->paused -= request->is_paused;
    request->is_paused = 0;
    batch->active--;
    batch->done++;
    atomic_fetch_sub(&zs_asking, 1);
}

/* The outcome of a request that libcurl has ended with that code. */
static int zs_outcome(zs_request *request, int code) {
    enum { PARTIAL = 18, WRITING = 23, ABORTED = 42, NOTHING = 52, SENDING = 55, RECEIVING = 56 };
    request->failure = code;
    if (code == WRITING && request->outcome != ZS_UNDER_WAY) return request->outcome;
    if (request->content && request->has_head && request->status >= 200 && request->status < 300 && !request->is_odd)
        return ZS_DONE; /* whatever became of what the server says besides */
    if (code && code != WRITING)
        return code == PARTIAL || code == ABORTED || code == NOTHING || code == SENDING || code == RECEIVING
                   ? ZS_BROKEN
                   : ZS_UNASKED;
    if (request->wanted < 0 && (request->outcome = zs_expect_body(request)) != ZS_UNDER_WAY) return request->outcome;
    if (request->status >= 300) return ZS_REFUSED;
    if (request->content) return ZS_DONE;
    if (request->length < 0) return code ? ZS_UNASKED : ZS_DONE;
    return request->size == request->wanted ? ZS_DONE : ZS_BROKEN;
}

/* While the bytes of a PUT go out, something is heard of it. */
static void zs_look_at_content(zs_request *request, double now) {
    int64_t size = 0;
    if (!request->content || request->sent_size == request->content_size) return;
    zs_curl.easy_getinfo(request->easy, ZS_CURL_INFO_SIZE_UPLOAD, &size);
    if (size > request->sent_size) request->heard = now;
    request->sent_size = size;
}

/* What has taken too long ends. */
static void zs_look_at_clock(zs_batch *batch) {
    double now = zs_now();
    for (int i = 0; i < batch->count; i++) {
        zs_request *request = &batch->requests[i];
        int64_t progress = batch->terms.progress_size;
        double read_time = batch->terms.read_time;
        if (!request->easy) continue;
        zs_look_at_content(request, now);
        if ((now - request->heard > read_time && !request->is_paused) || now - request->asked > batch->terms.total_time)
            request->outcome = ZS_STALLED;
        else if (request->wanted >= 0 && progress &&
                 now - request->begun > read_time * (double)(1 + request->wanted / progress))
            request->outcome = ZS_SLOW;
        else continue;
        zs_end(batch, request);
    }
}

/* Let bodies come for which there is room now, the one that waits longest first. */
static void zs_resume(zs_batch *batch) {
    while (batch->paused) {
        zs_request *first = NULL;
        int code;
        for (int i = 0; i < batch->count; i++) {
            zs_request *request = &batch->requests[i];
            if (request->is_paused && (!first || request->asked < first->asked)) first = request;
        }
        if (zs_has_to_wait(first)) return;
        first->is_paused = 0;
        batch->paused--;
        first->heard = first->begun = zs_now();
        if ((code = zs_curl.easy_pause(first->easy, ZS_CURL_GO_ON))) {
            first->outcome = zs_outcome(first, code);
            zs_end(batch, first);
        }
    }
}

/* How many more requests a batch may have now: each has its share of those that are allowed, and of the connections;
   more and more, as long as their bodies do not wait for each other. */
static int zs_room(zs_batch *batch) {
    int most = batch->terms.most, share = most / atomic_load(&zs_batches), left = most - atomic_load(&zs_asking);
    int room = (batch->allowed < share ? batch->allowed : share) - batch->active;
    if (left < room) room = left;
    return room > 0 ? room : !batch->active;
}

/* Begin a request. */
static void zs_ask(zs_batch *batch, zs_request *request) {
    if (zs_start(batch, request)) {
        request->outcome = ZS_UNASKED;
        batch->done++;
        return;
    }
    batch->active++;
    atomic_fetch_add(&zs_asking, 1);
    if (batch->at->count < batch->active && batch->at->count < ZS_KEPT) batch->at->count++;
}

/* libcurl calls this to say what it waits for of a socket from now on. */
static int zs_watch(void *easy, int socket, int what, void *of, void *own) {
    zs_connections *at = of;
    short events = (short)((what & ZS_CURL_POLL_IN ? POLLIN : 0) | (what & ZS_CURL_POLL_OUT ? POLLOUT : 0));
    int k = 0;
    (void)easy, (void)own;
    while (k < at->socket_count && at->sockets[k].fd != socket) k++;
    if (k < at->socket_count && !events) at->sockets[k] = at->sockets[--at->socket_count];
    else if (events) {
        if (k == at->socket_room) {
            struct pollfd *more = realloc(at->sockets, (size_t)(2 * k + 16) * sizeof(struct pollfd));
            if (!more) return -1;
            at->sockets = more;
            at->socket_room = 2 * k + 16;
        }
        at->sockets[k] = (struct pollfd){socket, events, 0};
        if (k == at->socket_count) at->socket_count++;
    }
    return 0;
}

/* libcurl calls this to say in how many milliseconds it is to go on though nothing comes; -1: never. */
static int zs_wake_in(void *multi, long wait, void *of) {
    zs_connections *at = of;
    (void)multi;
    at->wakes = wait < 0 ? -1 : zs_now() + 1e-3 * (double)wait;
    return 0;
}

/* Have libcurl go on with what comes, or what it waits for no longer, for so many seconds at most; not 0: it cannot. */
static int zs_move(zs_connections *at, double seconds) {
    int count, failed = 0;
    if (at->wakes >= 0) {
        double left = at->wakes - zs_now();
        if (left <= 0) {
            at->wakes = -1;
            failed = zs_curl.multi_socket_action(at->multi, ZS_CURL_NO_SOCKET, 0, &count);
            seconds = 0;
        } else if (left < seconds) seconds = left;
    }
    count = poll(at->sockets, (nfds_t)at->socket_count, seconds > 0 ? 1 + (int)(1000 * seconds) : 0);
    /* Whatever libcurl adds or takes away meanwhile, none is passed over, nor is one taken twice. */
    for (int k = at->socket_count - 1; count > 0 && k >= 0 && !failed; k--) {
        int came = k < at->socket_count ? at->sockets[k].revents : 0, running;
        if (!came) continue;
        at->sockets[k].revents = 0;
        count--;
        failed = zs_curl.multi_socket_action(at->multi, at->sockets[k].fd,
                                             (came & (POLLIN | POLLHUP) ? ZS_CURL_CAME : 0) |
                                                 (came & POLLOUT ? ZS_CURL_MAY_SEND : 0) |
                                                 (came & (POLLERR | POLLNVAL) ? ZS_CURL_FAILED : 0),
                                             &running);
    }
    return failed;
}

/* Go on with a batch for so many seconds at most; 1: a request has ended. */
static int zs_go_on(zs_batch *batch, double seconds) {
    double now = zs_now(), until = now + seconds, looked = now;
    for (;;) {
        zs_curl_message *message;
        double left = until - now, look = 1e-3 * ZS_LOOK;
        int count;
        zs_resume(batch);
        if (zs_move(batch->at, batch->done ? 0 : left < look ? left : look)) return -1;
        while ((message = zs_curl.multi_info_read(batch->at->multi, &count)))
            if (message->what == ZS_CURL_DONE) {
                zs_request *request = NULL;
                int code = message->data.result;
                zs_curl.easy_getinfo(message->easy, ZS_CURL_INFO_PRIVATE, &request);
                request->outcome = zs_outcome(request, code);
                zs_end(batch, request);
                if (!batch->paused) batch->allowed++;
            }
        if (batch->done) return 1;
        now = zs_now();
        if (now - looked >= look) {
            zs_look_at_clock(batch);
            looked = now;
        }
        if (now >= until) return 0;
    }
}

static void zs_begin(zs_batch *batch) {
    batch->has_begun = 1;
    atomic_fetch_add(&zs_batches, 1);
}

/* Leave what is under way, whose connections are closed. */
static void zs_leave(zs_batch *batch) {
    if (batch->has_begun) atomic_fetch_sub(&zs_batches, 1);
    batch->has_begun = 0;
    for (int i = 0; i < batch->count; i++)
        if (batch->requests[i].easy) zs_end(batch, &batch->requests[i]);
    zs_bodies_settle();
}

static int zs_connections_open(zs_connections *at) {
    void *multi = at->multi = zs_curl.multi_init();
    at->wakes = -1;
    return !multi || zs_curl.multi_setopt(multi, ZS_CURL_MULTI_MAXCONNECTS, (long)ZS_KEPT) ||
           zs_curl.multi_setopt(multi, ZS_CURL_MULTI_SOCKETFUNCTION, zs_watch) ||
           zs_curl.multi_setopt(multi, ZS_CURL_MULTI_SOCKETDATA, at) ||
           zs_curl.multi_setopt(multi, ZS_CURL_MULTI_TIMERFUNCTION, zs_wake_in) ||
           zs_curl.multi_setopt(multi, ZS_CURL_MULTI_TIMERDATA, at);
}

static void zs_connections_close(zs_connections *at) {
    if (at->multi) zs_curl.multi_cleanup(at->multi);
    free(at->sockets);
}

static inline int zs_curl_puts(void) { return zs_curl.puts; }

static inline const char *zs_curl_version(void) { return zs_curl.version(); }

static inline const char *zs_curl_reason(int code) { return zs_curl.easy_strerror(code); }

/* The headers with another line; unchanged where there is no memory, which the server refuses. */
static inline void *zs_header_added(void *headers, const char *line) {
    void *more = zs_curl.slist_append(headers, line);
    return more ? more : headers;
}

static inline void zs_headers_freed(void *headers) { zs_curl.slist_free_all(headers); }
#endif

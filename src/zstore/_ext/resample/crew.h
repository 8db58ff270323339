/* crew.h - run the tasks of a job on as many threads as there is memory for. */
#ifndef ZS_CREW_H
#define ZS_CREW_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pool.h"

enum { ZS_OK = 0, ZS_NO_MEMORY = -1 };
enum { ZS_MAX_THREADS = 64 };

static int64_t zs_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* zs_prepare(job, worker) gives a worker its own `rows` and `memory`; zs_run_task(worker, task) runs a task. */
template <class Worker> struct zs_crew {
    zs_job pooled;
    Worker workers[ZS_MAX_THREADS];
    int joined;
};

template <class Worker> static void zs_work(zs_job *pooled, int is_caller) {
    zs_crew<Worker> *crew = (zs_crew<Worker> *)pooled;
    Worker *worker = &crew->workers[__atomic_fetch_add(&crew->joined, 1, __ATOMIC_SEQ_CST)];
    auto *job = worker->job;
    const int64_t step = 1 + job->task_count / 256;
    (void)is_caller;
    for (;;) {
        const int64_t begin = __atomic_fetch_add(&job->next, step, __ATOMIC_SEQ_CST);
        if (begin >= job->task_count || __atomic_load_n(&job->status, __ATOMIC_SEQ_CST) != ZS_OK) return;
        for (int64_t task = begin; task < zs_least(begin + step, job->task_count); task++) zs_run_task(worker, task);
    }
}

template <class Worker, class Job> static int zs_run_crew(Job *job, int threads) {
    zs_crew<Worker> crew;
    int prepared = 0;
    memset(&crew, 0, sizeof crew);
    crew.pooled.work = zs_work<Worker>;
    job->next = 0;
    job->status = ZS_OK;
    threads = (int)zs_least(zs_least(threads, ZS_MAX_THREADS), job->task_count);
    while (prepared < threads && zs_prepare(job, &crew.workers[prepared]) == ZS_OK) prepared++;
    if (prepared > 0) zs_pool_run(&crew.pooled, prepared);
    for (int t = 0; t < threads; t++) {
        free(crew.workers[t].rows);
        free(crew.workers[t].memory);
    }
    return prepared > 0 ? job->status : ZS_NO_MEMORY;
}

#endif

/*
 * engine.c -- the thread of chat_engine.h, and what others ask of it.
 *
 * One lock guards the schedule, the requests and the figures. It is not held while the model runs: then
 * requests may be added, cancelled and read, but neither moved nor freed.
 *
 * Between the end of a step and the launch of the next one a GPU has nothing to do. So only what the next
 * step wants is done then: each request's token, who leaves, the rows. Texts are made, clients told and
 * looked at while the GPU runs.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "chat_crew.h"
#include "chat_engine.h"
#include "chat_schedule.h"

enum { WATCH_MS = 20 }; /* between two looks at clients, while no step runs */

struct engine {
    struct engine_options opt;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;    /* for the thread */
    pthread_cond_t changed; /* for who waits for the thread */
    enum engine_state state;
    bool abort, quit;
    int held; /* requests that the server holds */
    struct fault why;
    struct schedule schedule;
    struct metrics metrics;
    struct crew *crew;
    struct runner *runner;   /* the first of them */
    double ended;            /* when the last step did; 0: there was nothing to do after it */
    struct runner_step last; /* that step */
};

static double monotonic(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* false once `until` is past. */
static bool wait_until(struct engine *e, pthread_cond_t *c, double until)
{
    struct timespec t = {.tv_sec = (time_t)until};
    t.tv_nsec = (long)((until - (double)t.tv_sec) * 1e9);
    return pthread_cond_timedwait(c, &e->lock, &t) == 0;
}

/* ---- Requests ---- */

static void wake(struct request *r)
{
    if (!r->waits || (r->whole && !r->finish)) return;
    r->waits = false;
    r->heard = monotonic();
    r->wake(r->context);
}

/* The engine lets go. */
static void retire(struct engine *e, struct request *r, enum finish finish)
{
    if (!r->finish) r->finish = finish;
    schedule_remove(&e->schedule, r);
    metrics_finish(&e->metrics, r, monotonic());
    r->engine_holds = false;
    if (r->server_holds) wake(r);
    else request_free(r);
    pthread_cond_broadcast(&e->changed);
}

static struct request *any(const struct schedule *s, int i)
{
    return i < s->running_count ? s->running[i] : s->waiting[i - s->running_count];
}

/* Those that are cancelled leave, and those whose text could not be made. */
static void sweep(struct engine *e)
{
    struct schedule *s = &e->schedule;
    for (int i = s->running_count + s->waiting_count - 1; i >= 0; i--) {
        struct request *r = any(s, i);
        if (r->cancelled || r->finish || e->abort) retire(e, r, FINISH_ABORT);
    }
}

/* Clients that are gone cancel their requests, silent ones are woken. */
static void look(struct engine *e, struct request *r, double now)
{
    if (r->server_holds && r->gone(r->context)) r->cancelled = true;
    if (!r->waits || r->cancelled || r->whole || now - r->heard <= e->opt.ping) return;
    r->ping = true;
    wake(r);
}

/* Tells all requests' clients the news. */
static void attend(struct engine *e)
{
    struct schedule *s = &e->schedule;
    double now = monotonic();
    for (int i = 0; i < s->running_count + s->waiting_count; i++) {
        struct request *r = any(s, i);
        if (r->news) request_tell(r), wake(r);
        r->news = false;
        look(e, r, now);
    }
}

static void fail_all(struct engine *e)
{
    struct schedule *s = &e->schedule;
    e->state = ENGINE_FAILED;
    while (s->running_count + s->waiting_count) retire(e, any(s, 0), FINISH_ERROR);
}

/* ---- A step ---- */

/* Without the lock: of the requests it reads what does not change, or this thread alone changes. */
static void choose_tokens(struct engine *e)
{
    const struct schedule *s = &e->schedule;
    for (int i = 0; i < s->running_count; i++) {
        struct request *r = s->running[i];
        if (!r->rows) continue;
        bool writes = r->cached + r->rows == r->count;
        struct fault f;
        r->unchosen = writes && !request_choose(r, e->runner, r->sequence, &f);
    }
}

/* Its text is made at once only if the request may be over with it. */
static void take_token(struct engine *e, struct request *r, double now)
{
    bool first = r->count == r->prompt;
    if (request_take(r) || r->stops) request_tell(r);
    r->news = true;
    e->metrics.generation_tokens++;
    if (first) {
        e->metrics.prompt_tokens += (uint64_t)r->prompt;
        r->first = now;
        metrics_observe(&e->metrics.first_token, now - r->submitted);
    } else {
        metrics_observe(&e->metrics.between_tokens, now - r->last);
    }
    r->last = now;
}

/* Backwards, as those that end leave. A request without a token, whose logits are no numbers, fails alone. */
static void take_tokens(struct engine *e, double now)
{
    struct schedule *s = &e->schedule;
    for (int i = s->running_count - 1; i >= 0; i--) {
        struct request *r = s->running[i];
        if (!r->rows) continue;
        r->cached += r->rows;
        if (r->cached < r->count || r->cancelled || r->finish) continue;
        if (!r->unchosen) take_token(e, r, now);
        else r->finish = FINISH_ERROR;
        if (r->finish) retire(e, r, r->finish);
    }
}

/* What the step that was launched last says of the one before it, if it followed at once. */
static void note_gap(struct engine *e, const struct runner_step *step, double launched)
{
    struct metrics *m = &e->metrics;
    if (!e->ended || !step->graph) return;
    metrics_observe(&m->host, launched - e->ended);
    if (!e->last.graph) return;
    metrics_observe(&m->graph, e->last.times.device);
    metrics_observe(&m->graph_step, step->times.since);
}

/* While the step runs, by a GPU. */
static bool finish_step(struct engine *e, struct runner_step *step)
{
    pthread_mutex_lock(&e->lock);
    if (e->opt.runner.gpu) attend(e);
    pthread_mutex_unlock(&e->lock);
    return crew_wait(e->crew, step, &e->why);
}

/* Runs one step, if there is something to do. */
static bool step(struct engine *e)
{
    struct runner_step step = {0};
    double began = monotonic();
    int rows = schedule_step(&e->schedule, began);
    if (!rows) return e->ended = 0, false;
    int sequences = schedule_fill(&e->schedule, runner_inputs(e->runner));
    pthread_mutex_unlock(&e->lock);
    bool good = crew_launch(e->crew, rows, sequences, &e->why);
    double launched = monotonic();
    good = good && finish_step(e, &step);
    double ended = monotonic();
    if (good) choose_tokens(e);
    pthread_mutex_lock(&e->lock);
    metrics_observe(&e->metrics.rows, rows);
    metrics_observe(&e->metrics.step, ended - began);
    note_gap(e, &step, launched);
    if (good) take_tokens(e, ended);
    else fail_all(e);
    e->ended = ended;
    e->last = step;
    return true;
}

static bool load(struct engine *e)
{
    struct crew *c = crew_new(&e->opt.runner, &e->why);
    bool good = c && crew_warm(c, &e->why);
    pthread_mutex_lock(&e->lock);
    e->crew = c;
    e->runner = c ? crew_runner(c) : NULL;
    if (e->state == ENGINE_LOADING) e->state = good ? ENGINE_READY : ENGINE_FAILED;
    pthread_cond_broadcast(&e->changed);
    return good;
}

static void *engine_main(void *arg)
{
    struct engine *e = arg;
    const struct schedule *s = &e->schedule;
    load(e);
    while (!e->quit) {
        if (!e->opt.runner.gpu) attend(e); /* there a step has the thread to itself */
        sweep(e);
        if (step(e)) continue;
        if (s->running_count + s->waiting_count) wait_until(e, &e->work, monotonic() + WATCH_MS * 1e-3);
        else if (!e->quit) pthread_cond_wait(&e->work, &e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    crew_free(e->crew);
    return NULL;
}

/* ---- Others' threads ---- */

struct engine *engine_new(const struct engine_options *opt)
{
    struct engine *e = calloc(1, sizeof *e);
    pthread_condattr_t by_clock;
    if (!e) return NULL;
    e->opt = *opt;
    metrics_init(&e->metrics);
    pthread_condattr_init(&by_clock);
    pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->work, &by_clock);
    pthread_cond_init(&e->changed, &by_clock);
    pthread_condattr_destroy(&by_clock);
    if (schedule_new(&e->schedule, &opt->runner, opt->queue) &&
        !pthread_create(&e->thread, NULL, engine_main, e))
        return e;
    schedule_free(&e->schedule);
    free(e);
    return NULL;
}

void engine_free(struct engine *e)
{
    if (!e) return;
    pthread_mutex_lock(&e->lock);
    e->quit = e->abort = true;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    schedule_free(&e->schedule);
    pthread_cond_destroy(&e->work);
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

const char *engine_device(const struct engine *e) { return runner_device(e->runner); }
void engine_lock(struct engine *e) { pthread_mutex_lock(&e->lock); }
void engine_unlock(struct engine *e) { pthread_mutex_unlock(&e->lock); }
const struct engine_options *engine_options(const struct engine *e) { return &e->opt; }

enum engine_state engine_state(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    enum engine_state state = e->state;
    pthread_mutex_unlock(&e->lock);
    return state;
}

bool engine_wait_loaded(struct engine *e, char *why, int size)
{
    pthread_mutex_lock(&e->lock);
    while (e->state == ENGINE_LOADING) pthread_cond_wait(&e->changed, &e->lock);
    bool good = e->state != ENGINE_FAILED;
    if (!good) snprintf(why, (size_t)size, "%s", e->why.text);
    pthread_mutex_unlock(&e->lock);
    return good;
}

enum submitted engine_submit(struct engine *e, struct request *r)
{
    enum submitted result = SUBMIT_CLOSED;
    pthread_mutex_lock(&e->lock);
    if (e->state == ENGINE_READY) {
        r->submitted = r->heard = monotonic();
        result = schedule_add(&e->schedule, r) ? SUBMIT_OK : SUBMIT_FULL;
    }
    if (result == SUBMIT_OK) {
        r->engine_holds = r->server_holds = true;
        e->held++;
        pthread_cond_signal(&e->work);
    }
    pthread_mutex_unlock(&e->lock);
    return result;
}

void engine_release(struct engine *e, struct request *r)
{
    pthread_mutex_lock(&e->lock);
    r->server_holds = r->waits = false;
    e->held--;
    if (r->engine_holds) r->cancelled = true;
    else request_free(r);
    pthread_cond_signal(&e->work);
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

bool engine_drain(struct engine *e, double seconds)
{
    const struct schedule *s = &e->schedule;
    double until = monotonic() + seconds;
    bool time_left = true, idle = false;
    pthread_mutex_lock(&e->lock);
    if (e->state != ENGINE_FAILED) e->state = ENGINE_DRAINING;
    while (!(idle = !s->running_count && !s->waiting_count && !e->held) && time_left)
        time_left = wait_until(e, &e->changed, until);
    pthread_mutex_unlock(&e->lock);
    return idle;
}

void engine_abort(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->abort = true;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
}

void engine_metrics(struct engine *e, const char *prefix, FILE *to)
{
    const struct schedule *s = &e->schedule;
    pthread_mutex_lock(&e->lock);
    struct metrics_now now = {.running = s->running_count,
                              .waiting = s->waiting_count,
                              .pages_used = s->pages - s->free_count,
                              .pages = s->pages,
                              .preemptions = s->preemptions};
    if (e->runner) runner_stats(e->runner, &now.runner);
    struct metrics copy = e->metrics;
    pthread_mutex_unlock(&e->lock);
    metrics_print(&copy, &now, prefix, e->opt.runner.served->name, to);
}

/* run.c -- the calls of a plan: arguments are checked, then each program is run, in order, by its runner. */
#include "kept.h"
#include "launches.h"
#include "runner.h"

static struct arguments arguments(const struct call *c, const char *name, bool prepare)
{
    const struct coda_plan *p = c->p;
    return (struct arguments){.call = name,
                              .place = p->place,
                              .places = p->args,
                              .args = c->args,
                              .workspace = c->workspace,
                              .workspace_bytes = p->plan.workspace,
                              .prepared = c->prepared,
                              .prepared_bytes = p->plan.prepared,
                              .prepare = prepare,
                              .states = p->states};
}

static coda_status check(const struct call *c, const struct arguments *b)
{
    if (!c->p->runnable) return fail(CODA_E_INVALID, "%s: the plan was compiled for no device", b->call);
    return arguments_check(b);
}

/* For profilers, and, on the CPU device, where a program has ended when its runner returns, for a trace. */
static coda_status run_named(const struct call *c, int index, const char *range)
{
    const struct runner *r = c->p->program[index].runner;
    bool listens = jit_ranges();
    double began = jit_milliseconds();
    if (listens) jit_range_push(range);
    coda_status status = r ? r->run(c, index) : CODA_OK;
    if (listens) jit_range_pop();
    if (r && r->synchronous && !status) jit_trace("", range, began, jit_milliseconds() - began);
    return status;
}

static coda_status run_one(const struct call *c, int index)
{
    const struct runner *r = c->p->program[index].runner;
    bool shown = debug_on(DEBUG_LAUNCH);
    double began = shown ? launch_clock() : 0;
    const char *range = c->p->program[index].range;
    coda_status status = range ? run_named(c, index, range) : r ? r->run(c, index) : CODA_OK;
    if (shown && !status) launch_show(c->p, index, r && r->synchronous ? launch_clock() - began : -1);
    return status;
}

/* On its stream, with what others wait for. */
static coda_status run_in_place(const struct call *whole, int index)
{
    struct call c = *whole;
    c.stream = aside_stream(whole, index);
    coda_status status = aside_before(whole, index);
    if (!status) status = run_one(&c, index);
    if (!status && c.done) status = completion_record(&c, index);
    return status ? status : aside_behind(whole, index);
}

/* *begun: programs that were begun. */
static coda_status run_programs(const struct call *c, bool prepare, int *begun)
{
    coda_status status = CODA_OK;
    for (int i = 0; i < c->p->plan.programs && !status; i++) {
        if (c->p->plan.program[i].prepare != prepare) continue;
        ++*begun;
        status = run_in_place(c, i);
        if (!status && c->watch) status = c->watch->behind(c->watch->context, i);
    }
    return status;
}

/* A rank that fails between exchanges would let the others wait for it. */
static void release_others(const struct call *c)
{
    struct failure why;
    fail_save(&why);
    for (int i = 0; i < c->p->args; i++)
        if (c->p->place[i].kind == CODA_ARG_GROUP && !ranks_check(c->args[i], c->p->place[i].name, -1))
            ranks_give_up(c->args[i], why.message);
    fail_restore(&why);
}

static bool is_gpu(const struct coda_plan *p) { return p->device == CODA_DEVICE_GPU; }

static coda_status check_done(const struct coda_plan *p, const coda_run_options *opt)
{
    if (!opt || !opt->done_count || (opt->done && opt->done_count == p->args)) return CODA_OK;
    return fail(CODA_E_INVALID, "run: done_count is %d and done is %s; the plan has %d arguments",
                opt->done_count, opt->done ? "there" : "NULL", p->args);
}

/* The default stream is the current context's, which may not be the plan's, though it be the same device's. A
 * plan of no device has none. */
static coda_status enter(const struct coda_plan *p, bool *entered)
{
    char err[JIT_ERROR_SIZE];
    *entered = is_gpu(p) && p->runnable && !jit_device_is_current(&p->gpu);
    coda_status status = *entered ? jit_device_enter(&p->gpu, err) : CODA_OK;
    if (!status) return CODA_OK;
    return *entered = false, fail(status, "%s", err);
}

static coda_status run(struct call *c, const coda_run_options *opt)
{
    const struct coda_plan *p = c->p;
    int begun = 0;
    struct arguments b = arguments(c, "run", false);
    coda_status status = check(c, &b);
    if (!status) status = check_done(p, opt);
    if (!status) status = kept_check(&b, p->plan.prepared_id);
    if (!status) status = steady_check(c);
    if (status) return status;
    if (opt && opt->done_count && is_gpu(p)) c->done = opt->done;
    int before = parallel_limit(opt ? opt->threads : 0);
    if (p->groups) status = agree(c);
    if (!status && c->done) status = completion_record(c, -1);
    if (!status && c->watch) status = c->watch->first(c->watch->context);
    if (!status) status = peers_find_inbox(c);
    if (!status) status = aside_open(c);
    if (!status) status = run_programs(c, false, &begun);
    status = aside_close(c, begun, status);
    if (status) release_others(c);
    parallel_limit(before);
    return status;
}

coda_status executable_run(const struct coda_plan *p, void *const *args, void *prepared, void *workspace,
                           coda_stream stream, const coda_run_options *opt)
{
    return executable_watched(p, args, prepared, workspace, stream, opt, NULL);
}

coda_status executable_watched(const struct coda_plan *p, void *const *args, void *prepared, void *workspace,
                               coda_stream stream, const coda_run_options *opt, const struct run_watch *watch)
{
    struct call c = {p, args, prepared, workspace, stream, NULL, watch, NULL, NULL, NULL, 0};
    bool entered;
    coda_status status = enter(p, &entered);
    if (!status) status = run(&c, opt);
    if (entered) jit_device_leave();
    return status;
}

static coda_status prepare(struct call *c)
{
    const struct coda_plan *p = c->p;
    struct keeping *keeping;
    int begun = 0;
    struct arguments b = arguments(c, "prepare", true);
    b.folds = true;
    coda_status status = check(c, &b);
    if (status || !p->plan.prepared_id) return status;
    status = kept_begin(&keeping, &b, p->plan.prepared_id, is_gpu(p));
    if (status) return status;
    if (p->prepares_exchange) status = agree(c);
    if (!status) status = run_programs(c, true, &begun);
    if (status) release_others(c);
    kept_end(keeping, status, begun > 0);
    return status;
}

coda_status executable_prepare(const struct coda_plan *p, void *const *args, void *prepared, void *workspace,
                               coda_stream stream)
{
    struct call c = {p, args, prepared, workspace, stream, NULL, NULL, NULL, NULL, NULL, 0};
    bool entered;
    coda_status status = enter(p, &entered);
    if (!status) status = prepare(&c);
    if (entered) jit_device_leave();
    return status;
}

coda_status executable_adopt(const struct coda_plan *p, void *const *args, void *prepared)
{
    struct call c = {p, args, prepared, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0};
    struct arguments b = arguments(&c, "prepare_adopt", true);
    bool entered;
    b.workspace_bytes = 0;
    coda_status status = enter(p, &entered);
    if (!status) status = check(&c, &b);
    if (!status && p->plan.prepared_id) status = kept_adopt(&b, p->plan.prepared_id, is_gpu(p));
    if (entered) jit_device_leave();
    return status;
}

/* api_shapes.c -- plans of graphs with symbols: runs, shapes made ahead, what is asked of one shape. */
#include "api.h"
#include "executable.h"
#include "shapes.h"

#include <time.h>

static const struct dims *symbols_of(const coda_plan *p)
{
    return p->shapes ? shapes_graph(p->shapes)->dims : NULL;
}

static int count_symbols(const coda_plan *p) { return p && p->shapes ? symbols_of(p)->symbols : 0; }

/* Values for each symbol, in order; a plan without symbols takes none. */
static coda_status check_dims(const char *call, const coda_plan *p, const int64_t *dims, int count)
{
    if (p->shapes) return symbols_check(call, "plan", "dim_count", symbols_of(p), dims, count);
    if (!count) return CODA_OK;
    return fail(CODA_E_INVALID, "%s: the plan has no symbols; dim_count is %d", call, count);
}

static coda_status check_threads(int threads)
{
    if (threads >= 0 && threads <= PARALLEL_MOST) return CODA_OK;
    return fail(CODA_E_INVALID, "run: threads is %d; must be 0..%d", threads, PARALLEL_MOST);
}

/* ---- Runs ---- */

CODA_API coda_status coda_run_shaped(const coda_plan *p, void *const *args, void *prepared, void *workspace,
                                     coda_stream stream, const coda_run_options *opt)
{
    const struct taker by = {"run", true, stream};
    coda_run_options own;
    struct shape *s;
    if (!p) return fail(CODA_E_INVALID, "run: plan is NULL");
    coda_status status = SIZED_READ("run", coda_run_options, &own, opt);
    if (!status) status = check_dims("run", p, own.dims, own.dim_count);
    if (!status) status = check_threads(own.threads);
    if (status) return status;
    if (!p->shapes) return executable_run(p, args, prepared, workspace, stream, &own);
    if (!p->runnable) return fail(CODA_E_INVALID, "run: the plan was compiled for no device");
    status = shapes_take(&s, p, &by, own.dims);
    if (status) return status;
    status = executable_run(shape_plan(s), args, prepared, workspace, stream, &own);
    shapes_give(p, s);
    return status;
}

/* ---- Ahead of runs ---- */

static int64_t milliseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static coda_status warm_one(const coda_plan *p, const int64_t *dims)
{
    const struct taker by = {.call = "warm"};
    struct shape *s;
    coda_status status = shapes_take(&s, p, &by, dims);
    if (!status) shapes_give(p, s);
    return status;
}

static coda_status check_warm(const coda_plan *p, const coda_warm_options *w)
{
    if (w->bindings < CODA_WARM_ALL)
        return fail(CODA_E_INVALID, "warm: bindings is %d; must be >= 0, or CODA_WARM_ALL", w->bindings);
    if (w->deadline_ms < 0)
        return fail(CODA_E_INVALID, "warm: deadline_ms is %d; must be >= 0", w->deadline_ms);
    if (w->bindings > 0 && !w->dims)
        return fail(CODA_E_INVALID, "warm: dims is NULL; bindings is %d", w->bindings);
    for (int i = 0; p->shapes && i < w->bindings; i++) {
        coda_status status = dims_check(symbols_of(p), "warm", w->dims + i * (int64_t)count_symbols(p));
        if (status) return status;
    }
    return CODA_OK;
}

/* A call of coda_warm. */
struct warm {
    const coda_warm_options *opt;
    int64_t began; /* ms */
    int shown;     /* kernels */
    struct warming way;
};

static bool is_late(const struct warm *w)
{
    if (w->way.freed) return true;
    return w->opt->deadline_ms && milliseconds() - w->began >= w->opt->deadline_ms;
}

static coda_status warm_each(const coda_plan *p, const struct warm *w)
{
    const coda_warm_options *o = w->opt;
    coda_status status = CODA_OK;
    for (int i = 0; !status && p->shapes && i < o->bindings && !is_late(w); i++) {
        status = warm_one(p, o->dims + i * (int64_t)count_symbols(p));
        if (!status && o->progress && o->progress(o->context, i + 1, o->bindings)) break;
    }
    return status;
}

/* The caller's functions get what is done; false if it has enough, or there is no time. */
static bool show_kernels(void *context, const coda_plan *p, int done)
{
    struct warm *w = context;
    const coda_warm_options *o = w->opt;
    for (; w->shown < done; w->shown++)
        if (o->kernel) o->kernel(o->context, &p->kernel[w->shown].info);
    return !(done && o->progress && o->progress(o->context, done, p->kernels)) && !is_late(w);
}

static coda_status warm_all(const coda_plan *p, struct warm *w)
{
    const struct gathering how = {.call = "warm", .load = true, .go_on = show_kernels, .context = w};
    coda_plan *all;
    coda_status status = shapes_gather(&all, p, &how);
    if (!status) executable_free(all);
    return status;
}

static coda_status warm(const coda_plan *p, struct warm *w)
{
    warming_begin(&w->way, p);
    coda_status status = w->opt->bindings == CODA_WARM_ALL ? warm_all(p, w) : warm_each(p, w);
    coda_plan_free(warming_end(&w->way));
    return status;
}

CODA_API coda_status coda_warm(const coda_plan *p, const coda_warm_options *opt)
{
    coda_warm_options own;
    struct warm w = {.opt = &own, .began = milliseconds()};
    if (!p) return fail(CODA_E_INVALID, "warm: plan is NULL");
    coda_status status = SIZED_READ("warm", coda_warm_options, &own, opt);
    if (!status) status = check_warm(p, &own);
    if (status || !p->shapes) return status;
    return warm(p, &w);
}

CODA_API coda_status coda_plan_seal(const coda_plan *p)
{
    if (!p) return fail(CODA_E_INVALID, "plan_seal: plan is NULL");
    if (p->shapes) shapes_seal(p);
    return CODA_OK;
}

CODA_API int coda_plan_ready(const coda_plan *p, const int64_t *dims)
{
    if (!p) return fail(CODA_E_INVALID, "plan_ready: plan is NULL");
    coda_status status = check_dims("plan_ready", p, dims, count_symbols(p));
    if (status) return status;
    return !p->shapes || shapes_have(p, dims);
}

/* ---- Questions ---- */

CODA_API int coda_plan_symbols(const coda_plan *p) { return count_symbols(p); }

CODA_API coda_status coda_plan_symbol(const coda_plan *p, int index, coda_symbol_info *out)
{
    if (!p || !out) return fail(CODA_E_INVALID, "plan_symbol: %s is NULL", p ? "out" : "plan");
    if (!p->shapes) return fail(CODA_E_INVALID, "plan_symbol: index is %d of 0", index);
    return symbol_info("plan_symbol", symbols_of(p), index, out);
}

CODA_API coda_status coda_plan_arg_for(const coda_plan *p, int index, const int64_t *dims, coda_arg_info *out)
{
    if (!p || !out) return fail(CODA_E_INVALID, "plan_arg_for: %s is NULL", p ? "out" : "plan");
    coda_status status = check_dims("plan_arg_for", p, dims, count_symbols(p));
    if (status || !p->shapes) return status ? status : coda_plan_arg(p, index, out);
    if (index < 0 || index >= p->args)
        return fail(CODA_E_INVALID, "plan_arg_for: %d is none of 0..%d", index, p->args - 1);
    if (SIZED_CHECK("plan_arg_for", coda_arg_info, out)) return CODA_E_INVALID;
    graph *g = graph_bind(shapes_graph(p->shapes), "plan_arg_for", dims);
    if (!g) return fail_status();
    coda_arg_info a = CODA_ARG_INFO_INIT;
    graph_arg(g, index, &a);
    a.name = p->arg[index].name;
    graph_free(g);
    SIZED_WRITE(coda_arg_info, out, &a);
    return CODA_OK;
}

CODA_API size_t coda_plan_workspace_for(const coda_plan *p, const int64_t *dims)
{
    int64_t bytes;
    if (!p) return fail(CODA_E_INVALID, "plan_workspace_for: plan is NULL"), SIZE_MAX;
    if (check_dims("plan_workspace_for", p, dims, count_symbols(p))) return SIZE_MAX;
    if (!p->shapes) return (size_t)p->plan.workspace;
    return shapes_workspace(p, dims, &bytes) ? SIZE_MAX : (size_t)bytes;
}

static coda_status check_buckets(const coda_plan *p, const struct bucket_request *w, const int64_t *out,
                                 int most)
{
    if (!p) return fail(CODA_E_INVALID, "plan_buckets: plan is NULL");
    if (w->symbol < 0 || w->symbol >= count_symbols(p))
        return fail(CODA_E_INVALID, "plan_buckets: symbol is %d of %d", w->symbol, count_symbols(p));
    if (w->percent < 1) return fail(CODA_E_INVALID, "plan_buckets: percent is %d; must be >= 1", w->percent);
    if (most < 0) return fail(CODA_E_INVALID, "plan_buckets: most is %d; must be >= 0", most);
    if (most && !out) return fail(CODA_E_INVALID, "plan_buckets: out is NULL; most is %d", most);
    return CODA_OK;
}

CODA_API int coda_plan_buckets(const coda_plan *p, int symbol, int percent, int64_t *out, int most)
{
    const struct bucket_request w = {symbol, percent};
    int count = 0;
    coda_status status = check_buckets(p, &w, out, most);
    if (!status) status = shapes_buckets(p, &w, out, most, &count);
    return status ? (int)status : count;
}

CODA_API coda_status coda_shape_stats_get(const coda_plan *p, coda_shape_stats *out)
{
    if (!p || !out) return fail(CODA_E_INVALID, "shape_stats: %s is NULL", p ? "out" : "plan");
    if (SIZED_CHECK("shape_stats", coda_shape_stats, out)) return CODA_E_INVALID;
    coda_shape_stats own = CODA_SHAPE_STATS_INIT;
    if (p->shapes) shapes_stats(p, &own);
    SIZED_WRITE(coda_shape_stats, out, &own);
    return CODA_OK;
}

/* api_profile.c -- the calls of coda_profile.h: every argument is checked here. */
#include "api.h"
#include "executable.h"
#include "profile.h"
#include "shapes.h"

#include <math.h>

enum { MOST_ROUNDS = 10000 };

static const struct dims *symbols_of(const coda_plan *p)
{
    return p->shapes ? shapes_graph(p->shapes)->dims : NULL;
}

static coda_status check_rate(const char *name, double rate)
{
    if (rate >= 0 && isfinite(rate)) return CODA_OK;
    return fail(CODA_E_INVALID, "plan_profile: %s is %g; must be >= 0", name, rate);
}

static coda_status check(const coda_plan *p, const coda_profile_options *o)
{
    if (o->threads < 0 || o->threads > PARALLEL_MOST)
        return fail(CODA_E_INVALID, "plan_profile: threads is %d; must be 0..%d", o->threads, PARALLEL_MOST);
    if (o->rounds < 0 || o->rounds > MOST_ROUNDS)
        return fail(CODA_E_INVALID, "plan_profile: rounds is %d; must be 0..%d", o->rounds, MOST_ROUNDS);
    coda_status status = check_rate("copy_rate", o->copy_rate);
    if (!status) status = check_rate("product_rate", o->product_rate);
    if (status) return status;
    if (p->shapes)
        return symbols_check("plan_profile", "plan", "dim_count", symbols_of(p), o->dims, o->dim_count);
    if (!o->dim_count) return CODA_OK;
    return fail(CODA_E_INVALID, "plan_profile: the plan has no symbols; dim_count is %d", o->dim_count);
}

static coda_status profile_shape(coda_profile **out, struct profiled run, const coda_profile_options *opt)
{
    const struct taker by = {"profile", false, run.stream};
    const coda_plan *p = run.plan;
    struct shape *s;
    if (!p->runnable) return fail(CODA_E_INVALID, "profile: the plan was compiled for no device");
    coda_status status = shapes_take(&s, p, &by, opt->dims);
    if (status) return status;
    run.plan = shape_plan(s);
    status = profile_plan(out, &run, opt);
    shapes_give(p, s);
    return status;
}

CODA_API coda_status coda_plan_profile(coda_profile **out, const coda_plan *p, void *const *args,
                                       void *prepared, void *workspace, coda_stream stream,
                                       const coda_profile_options *opt)
{
    const struct profiled run = {p, args, prepared, workspace, stream};
    coda_profile_options own;
    if (out) *out = NULL;
    if (!out || !p) return fail(CODA_E_INVALID, "plan_profile: %s is NULL", out ? "plan" : "out");
    coda_status status = SIZED_READ("plan_profile", coda_profile_options, &own, opt);
    if (!status) status = check(p, &own);
    if (status) return status;
    return p->shapes ? profile_shape(out, run, &own) : profile_plan(out, &run, &own);
}

CODA_API void coda_profile_free(coda_profile *f) { profile_free(f); }

CODA_API coda_status coda_profile_total_get(const coda_profile *f, coda_profile_total *out)
{
    if (!f || !out) return fail(CODA_E_INVALID, "profile_total_get: %s is NULL", f ? "out" : "profile");
    if (SIZED_CHECK("profile_total_get", coda_profile_total, out)) return CODA_E_INVALID;
    SIZED_WRITE(coda_profile_total, out, &f->total);
    return CODA_OK;
}

CODA_API coda_status coda_profile_launch_get(const coda_profile *f, int index, coda_profile_launch *out)
{
    if (!f || !out) return fail(CODA_E_INVALID, "profile_launch_get: %s is NULL", f ? "out" : "profile");
    if (index < 0 || index >= f->total.launches)
        return fail(CODA_E_INVALID, "profile_launch_get: %d is none of 0..%d", index, f->total.launches - 1);
    if (SIZED_CHECK("profile_launch_get", coda_profile_launch, out)) return CODA_E_INVALID;
    SIZED_WRITE(coda_profile_launch, out, &f->launch[index]);
    return CODA_OK;
}

CODA_API coda_status coda_on_event(void (*fn)(void *context, const coda_event *event), void *context,
                                   unsigned kinds)
{
    if (fn && (!kinds || kinds >= 2 * CODA_EVENT_UNWRITTEN))
        return fail(CODA_E_INVALID,
                    "on_event: kinds is 0x%x; must be a sum of CODA_EVENT_ values, 0x1 to 0x%x", kinds,
                    2 * CODA_EVENT_UNWRITTEN - 1);
    jit_listen(fn, context, kinds);
    return CODA_OK;
}

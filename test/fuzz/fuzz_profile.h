/* fuzz_profile.h -- a part of fuzz_api.c: the calls of coda_profile.h. */
static coda_profile *profiled; /* the last one; NULL at first */

static int profile(const struct memory *m)
{
    coda_profile_options o = {.dims = shape_any(m->p), .dim_count = count_any(m->p), .rounds = 1};
    o.copy_rate = chance(98) ? 1e9 : -1, o.product_rate = chance(98) ? 1e12 : -1;
    if (chance(5)) o.rounds = (int)number(), o.rounds = o.rounds > 3 && o.rounds <= 10000 ? 3 : o.rounds;
    if (chance(90) && prepare(m)) return CODA_E_INVALID;
    coda_profile_free(profiled);
    profiled = NULL;
    return coda_plan_profile(chance(99) ? &profiled : NULL, m->p, m->args, m->prepared, m->work, NULL,
                             BOXED(o));
}
/* It writes over some megabytes of memory: seldom. */
static int call_coda_plan_profile(void) { return chance(5) ? call_with(profile) : SILENT; }
static void hear(void *context, const coda_event *e)
{
    if (context != &profiled || e->size != sizeof *e || !e->name || !e->text || e->ms < 0)
        stop("coda_on_event", "no event");
}
static int call_coda_on_event(void)
{
    return coda_on_event(chance(80) ? hear : NULL, &profiled,
                         chance(95) ? (unsigned)below(128) : (unsigned)number());
}
static int call_coda_profile_free(void)
{
    coda_profile_free(profiled);
    profiled = NULL;
    return SILENT;
}
static int call_coda_profile_total_get(void)
{
    return coda_profile_total_get(profiled, filled(sizeof(coda_profile_total)));
}
static int call_coda_profile_launch_get(void)
{
    return coda_profile_launch_get(profiled, (int)number(), filled(sizeof(coda_profile_launch)));
}

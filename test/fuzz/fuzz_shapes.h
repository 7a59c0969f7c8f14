/* fuzz_shapes.h -- a part of fuzz_api.c: the calls that run, warm and ask plans, of graphs with symbols above
 * all. */
static int64_t *shape_any(const coda_plan *p)
{
    static int64_t values[20];
    for (int i = 0; i < 20; i++) {
        coda_symbol_info s = {.size = sizeof s, .least = 2, .most = 2, .multiple = 1};
        if (i < coda_plan_symbols(p)) coda_plan_symbol(p, i, &s);
        values[i] = s.least + s.multiple * below((s.most - s.least) / s.multiple + 1);
        if (chance(2)) values[i] = number();
    }
    return chance(99) ? values : NULL;
}
static int count_any(const coda_plan *p) { return chance(95) ? coda_plan_symbols(p) : (int)below(20); }
static int run_shaped(const struct memory *m)
{
    coda_run_options o = {.dims = shape_any(m->p), .dim_count = count_any(m->p)};
    if (chance(90) && prepare(m)) return CODA_E_INVALID;
    return coda_run_shaped(m->p, m->args, m->prepared, m->work, NULL, BOXED(o));
}
static int call_coda_run_shaped(void) { return call_with(run_shaped); }
static int after_some(void *context, int done, int all)
{
    if (done < 1 || done > all) stop("coda_warm", "counts wrong");
    return context != NULL;
}
static int call_coda_warm(void)
{
    const coda_plan *p = plan_any();
    coda_warm_options o = {.dims = shape_any(p), .bindings = coda_plan_symbols(p) ? chance(98) : 0};
    if (chance(5)) o.bindings = -(int)below(3);
    if (chance(5)) o.deadline_ms = chance(50) ? 1 : -1;
    if (chance(50)) o.progress = after_some;
    if (chance(20)) o.context = &o;
    return coda_warm(p, BOXED(o));
}
static int call_coda_plan_ready(void)
{
    const coda_plan *p = plan_any();
    int ready = coda_plan_ready(p, shape_any(p));
    if (ready > 1) stop("coda_plan_ready", "neither yes nor no");
    return ready < 0 ? ready : CODA_OK;
}
static int call_coda_plan_seal(void) { return coda_plan_seal(plan_any()); }
static int call_coda_plan_symbols(void) { return coda_plan_symbols(plan_any()), SILENT; }
static int call_coda_plan_symbol(void)
{
    return coda_plan_symbol(plan_any(), (int)number(), filled(sizeof(coda_symbol_info)));
}
static int call_coda_plan_arg_for(void)
{
    const coda_plan *p = plan_any();
    return coda_plan_arg_for(p, (int)number(), shape_any(p), filled(sizeof(coda_arg_info)));
}
static int call_coda_plan_workspace_for(void)
{
    const coda_plan *p = plan_any();
    size_t bytes = coda_plan_workspace_for(p, shape_any(p));
    if (bytes != SIZE_MAX && bytes > coda_plan_workspace(p))
        stop("coda_plan_workspace_for", "more than of all");
    return bytes == SIZE_MAX ? CODA_E_INVALID : CODA_OK;
}
static int call_coda_plan_find(void)
{
    const coda_plan *p = plan_any();
    const char *wanted = name();
    coda_arg_info a = CODA_ARG_INFO_INIT;
    int i = coda_plan_find(p, wanted);
    if (i >= 0 && (coda_plan_arg(p, i, &a) || strcmp(a.name, wanted))) stop("coda_plan_find", "another one");
    return i < 0 ? i : CODA_OK;
}
/* Each argument once, by and large, from some place on; success binds what was given. */
static int call_coda_bind(void)
{
    static void *args[300];
    static coda_binding list[300];
    const coda_plan *p = plan_any();
    int n = coda_plan_args(p), from = (int)below(n + 1), few = n < 290 ? n : 290;
    for (int i = 0; i < few; i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        coda_plan_arg(p, (from + i) % n, &a);
        list[i] = (coda_binding){chance(99) ? a.name : name(), &list[i], chance(98) ? a.bytes : 1};
    }
    int count = chance(95) ? few : (int)(number() % 300);
    for (int i = few; i < count; i++) list[i] = list[few ? i % few : 0];
    if (!few) count = 0;
    coda_status status = coda_bind(chance(98) ? args : NULL, p, chance(98) ? list : NULL, count,
                                   chance(80) ? NULL : shape_any(p));
    for (int i = 0; !status && i < n; i++)
        if (strcmp(((coda_binding *)args[i])->name, list[(i - from + n) % n].name))
            stop("coda_bind", "another one");
    return status;
}
static int call_coda_plan_buckets(void)
{
    const coda_plan *p = plan_any();
    int64_t value[8];
    int symbol = chance(90) ? (int)below(coda_plan_symbols(p) + 1) : (int)number();
    int percent = chance(90) ? 1 + (int)below(100) : (int)number();
    int room = chance(95) ? (int)below(9) : (int)number();
    room = room > 8 ? 8 : room;
    int n = coda_plan_buckets(p, symbol, percent, chance(95) ? value : NULL, room);
    coda_symbol_info s = {.size = sizeof s};
    if (n < 0) return n;
    coda_plan_symbol(p, symbol, &s);
    if (!n || (n <= room && value[n - 1] != s.most)) stop("coda_plan_buckets", "the most is none");
    for (int i = 1; i < n && i < room; i++)
        if (value[i] <= value[i - 1] || value[i] % s.multiple) stop("coda_plan_buckets", "no rising values");
    return CODA_OK;
}
static int call_coda_shape_stats_get(void)
{
    return coda_shape_stats_get(plan_any(), filled(sizeof(coda_shape_stats)));
}

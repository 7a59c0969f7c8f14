/* util_company.c -- rows of a pool, asked in many companies. */
#include "util_company.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util_device.h"
#include "util_random.h"

/* ---- Graphs ---- */

#define ROWS "dim %T = 1..4096\n"

const struct company_case company_cases[] = {
    {"norms and residuals",
     ROWS
     "%x = input bf16[T,1152]\n%w = weight bf16[320,1152]\n%v = weight bf16[1152,320]\n%u = weight "
     "bf16[192,1152]\n"
     "%n = rms_norm %x {eps=1e-5}\n%a = matmul %n, %w\n%s = silu %a\n%b = matmul %s, %v\n%h = add %b, %x\n"
     "%m = rms_norm %h {eps=1e-5}\n%c = matmul %m, %u\n%t = sum %c\noutput %y = %c\noutput %z = %h\n"
     "output %t = %t\n",
     false, false},
    {"heads that turn, gates",
     ROWS "%x = input bf16[T,256]\n%p = input i32[T]\n%w = weight bf16[384,256]\n%v = weight bf16[512,384]\n"
          "%u = weight bf16[128,256]\n%a = matmul %x, %w\n%h = reshape %a {rank=3, d0=T, d1=6, d2=64}\n"
          "%n = rms_norm %h {eps=1e-5}\n%f = reshape %n {rank=2, d0=T, d1=384}\n"
          "%r = rope %f, %p {base=10000,head_dim=64,rotary=64,heads=4,half=1}\n%b = matmul %r, %v\n"
          "%g = slice %b {axis=1,start=0,stop=256,step=1}\n%k = slice %b {axis=1,start=256,stop=512,step=1}\n"
          "%s = swiglu %g, %k\n%l = layer_norm %s {eps=1e-5}\n%c = matmul %l, %u\noutput %r = %r\noutput %y "
          "= %c\n",
     false, false},
    {"a head, its best and its loss",
     ROWS
     "%x = input bf16[T,256]\n%t = input i32[T]\n%w = weight bf16[1000,256]\n%n = layer_norm %x {eps=1e-5}\n"
     "%l = matmul %n, %w\n%b = arg_max %l\n%s = log_softmax %l\n%m = max %s\n"
     "%c = cross_entropy %l, %t {ignore=-100,reduction=0}\noutput %b = %b\noutput %m = %m\noutput %c = %c\n",
     false, false},
    {"products in fp32",
     ROWS
     "%x = input f32[T,72]\n%w = weight f32[136,72]\n%a = matmul %x, %w\n%n = softmax %a\noutput %y = %n\n",
     false, false},
    {"a block over its own rows",
     ROWS "%x = input bf16[T,128]\n%w = weight bf16[384,128]\n%o = weight bf16[128,128]\n%v = weight "
          "bf16[512,128]\n"
          "%d = weight bf16[128,256]\n%n = rms_norm %x {eps=1e-5}\n%a = matmul %n, %w\n"
          "%r = rope %a {base=10000,head_dim=64,rotary=64,heads=4,half=1}\n"
          "%q = slice %r {axis=1,start=0,stop=128,step=1}\n%k = slice %r {axis=1,start=128,stop=256,step=1}\n"
          "%e = slice %r {axis=1,start=256,stop=384,step=1}\n"
          "%t = attention %q, %k, %e {heads=2,kv_heads=2,causal=1}\n"
          "%z = attention %q, %k, %e {heads=2,kv_heads=2,causal=1,softcap=30}\n%b = matmul %t, %o\n%h = add "
          "%b, %x\n"
          "%m = rms_norm %h {eps=1e-5}\n%g = matmul %m, %v\n%i = slice %g {axis=1,start=0,stop=256,step=1}\n"
          "%j = slice %g {axis=1,start=256,stop=512,step=1}\n%s = swiglu %i, %j\n%f = matmul %s, %d\n"
          "%y = add %f, %h\noutput %y = %y\noutput %a = %t\noutput %z = %z\n",
     true, false},
    {"batches of weights of 8 bits", /* in fp32, which rounds nothing away */
     ROWS "%x = input bf16[T,5,1536]\n%w = weight f8e4m3[640,1536]\n%s = slice %x {axis=1,stop=4,step=1}\n"
          "%y = matmul %s, %w {f32=1}\n%v = weight bf16[320,1536]\n%z = matmul %x, %v\noutput %y = %y\n"
          "output %z = %z\n",
     false, false},
    {"positions that are counted in each sequence",
     ROWS "%x = input bf16[T,12,128]\n%w = weight bf16[256,128]\n%a = matmul %x, %w\n"
          "%r = rope %a {base=10000,head_dim=64,rotary=64,heads=4,half=1}\n%s = sum %r\noutput %y = %r\n"
          "output %s = %s\n",
     false, false},
    {"a block of the size of a model",
     ROWS
     "%x = input bf16[T,4096]\n%a = input bf16[T,4096]\n%p = input i32[T]\n%o = weight bf16[4096,4096]\n"
     "%w = weight bf16[11264,4096]\n%d = weight bf16[4096,5632]\n%v = weight bf16[6144,4096]\n"
     "%b = matmul %a, %o\n%h = add %b, %x\n%m = rms_norm %h {eps=1e-5}\n%c = matmul %m, %w\n"
     "%g = slice %c {axis=1,start=0,stop=5632,step=1}\n%k = slice %c {axis=1,start=5632,stop=11264,step=1}\n"
     "%s = swiglu %g, %k\n%e = matmul %s, %d\n%y = add %e, %h\n%n = rms_norm %y {eps=1e-5}\n"
     "%q = matmul %n, %v\n%r = rope %q, %p {base=10000,head_dim=128,rotary=128,heads=40,half=1}\n"
     "output %y = %y\noutput %r = %r\n",
     false, true},
    {"weights of 8 bits",
     ROWS "%x = input bf16[T,288]\n%w = weight f8e4m3[320,288]\n%v = weight bf16[288,320]\n"
          "%u = weight f8e5m2[192,288]\n%n = rms_norm %x {eps=1e-5}\n%a = matmul %n, %w\n%s = silu %a\n"
          "%b = matmul %s, %v\n%h = add %b, %x\n%m = rms_norm %h {eps=1e-5}\n%c = matmul %m, %u\n"
          "%t = sum %c\noutput %y = %c\noutput %z = %h\noutput %t = %t\n",
     false, false},
    {"a map of a vector that maps of rows read",
     ROWS "%x = input bf16[T,48]\n%s = input bf16[48]\n%o = constant {to=bf16,value=1}\n%a = add %s, %o\n"
          "%y = mul %x, %a\noutput %y = %y\n",
     false, false},
    {"a row's value in a map",
     ROWS "%x = input bf16[T,48]\n%r = input bf16[T,1]\n%a = mul %x, %x\n%b = silu %a\n%c = mul %b, %r\n"
          "%y = mul %x, %c\noutput %y = %y\n",
     false, false},
};
enum { MAPS_ALONE = 2 };
const int company_case_all = ARRAY_SIZE(company_cases);
const int company_case_count = ARRAY_SIZE(company_cases) - MAPS_ALONE;

/* ---- Memory ---- */

enum { MOST_ARGS = 64, PROBE = 1021 }; /* a number of rows that no dimension is */

struct argument {
    coda_dtype dtype;
    bool output, of_rows;
    int64_t outer;         /* indices before the row's */
    size_t bytes;          /* of a row at one of them, or of all */
    unsigned char *values; /* of the pool's rows, or all; of outputs, the answers */
    unsigned char *host;   /* of one run */
    void *memory;          /* the host's own, or the device's */
};

struct company_state {
    struct argument arg[MOST_ARGS];
    int args;
    bool on_gpu, ordered;
    bool *answered;
    int64_t *who;
    struct random r;
    unsigned char poison; /* of a run's workspace and outputs: others in each */
};

static void *take(const struct company_state *s, size_t bytes)
{
    return s->on_gpu ? device_alloc(bytes + 1) : aligned_alloc(256, (bytes + 256) / 256 * 256);
}
static void give(const struct company_state *s, void *p) { s->on_gpu ? device_free(p) : free(p); }
static bool put(const struct company_state *s, void *to, const void *from, size_t bytes)
{
    return s->on_gpu ? device_upload(to, from, bytes) : memcpy(to, from, bytes) != NULL;
}
static bool get(const struct company_state *s, void *to, const void *from, size_t bytes)
{
    return s->on_gpu ? device_download(to, from, bytes) : memcpy(to, from, bytes) != NULL;
}
static bool fill(const struct company_state *s, void *to, size_t bytes, unsigned char with)
{
    return s->on_gpu ? device_fill(to, with, bytes) : memset(to, with, bytes) != NULL;
}
static bool wait(const struct company_state *s) { return !s->on_gpu || device_wait(); }

/* Weights are scaled by what they are summed over. */
static void draw(struct argument *a, struct random *r, size_t bytes, int64_t columns)
{
    double scale = a->of_rows ? 1 : 1 / sqrt((double)columns);
    for (int64_t i = 0; i < (int64_t)bytes / dtype_bytes(a->dtype, 1); i++)
        if (a->dtype == CODA_I32) ((int32_t *)a->values)[i] = (int32_t)random_below(r, 100);
        else dtype_store(a->dtype, a->values, i, scale * random_normal(r));
}

static size_t bytes_of(const struct argument *a, int64_t rows)
{
    return a->bytes * (size_t)(a->outer * (a->of_rows ? rows : 1));
}

static bool open_argument(struct company *c, int index, const coda_arg_info *info)
{
    struct company_state *s = c->state;
    struct argument *a = &s->arg[index];
    int64_t elements = 1;
    for (int d = 0; d < info->rank; d++) elements *= info->dims[d];
    a->dtype = info->dtype;
    a->output = info->kind == CODA_ARG_OUTPUT;
    bool second = info->rank > 1 && info->dims[1] == PROBE;
    a->of_rows = second || (info->rank && info->dims[0] == PROBE);
    a->outer = second ? info->dims[0] : 1;
    a->bytes = (size_t)(elements / (a->of_rows ? PROBE * a->outer : 1) * dtype_bytes(a->dtype, 1));
    size_t all = bytes_of(a, c->pool);
    a->values = malloc(all + 1), a->host = malloc(all + 1), a->memory = take(s, all);
    if (!a->values || !a->host || !a->memory) return false;
    if (!a->output && !device_dry()) draw(a, &s->r, all, info->rank ? info->dims[info->rank - 1] : 1);
    return a->of_rows || put(s, a->memory, a->values, all);
}

static bool open_arguments(struct company *c)
{
    coda_graph *probe;
    coda_arg_info info = CODA_ARG_INFO_INIT;
    if (coda_graph_bind(&probe, c->graph, (int64_t[]){PROBE}, 1) != CODA_OK) return false;
    c->state->args = coda_graph_args(probe);
    bool good = c->state->args <= MOST_ARGS;
    for (int i = 0; i < c->state->args && good; i++)
        good = coda_graph_arg(probe, i, &info) == CODA_OK && open_argument(c, i, &info);
    coda_graph_free(probe);
    return good;
}

bool company_open(struct company *c, const struct company_case *of, int64_t pool, uint64_t seed, bool on_gpu)
{
    graph *g;
    *c = (struct company){.pool = pool};
    if (coda_graph_parse(&g, of->text) != CODA_OK) return false;
    bool good = company_open_graph(c, g, pool, seed, on_gpu);
    if (good) c->state->ordered = of->ordered;
    return good;
}

bool company_open_graph(struct company *c, graph *g, int64_t pool, uint64_t seed, bool on_gpu)
{
    *c = (struct company){.graph = g, .pool = pool, .state = calloc(1, sizeof *c->state)};
    struct company_state *s = c->state;
    if (!s) return false;
    s->on_gpu = on_gpu, s->r.state = seed;
    s->answered = calloc((size_t)pool, sizeof *s->answered);
    s->who = calloc((size_t)pool, sizeof *s->who);
    return s->answered && s->who && open_arguments(c);
}

void company_close(struct company *c)
{
    struct company_state *s = c->state;
    for (int i = 0; s && i < s->args; i++) {
        free(s->arg[i].values);
        free(s->arg[i].host);
        give(s, s->arg[i].memory);
    }
    if (s) free(s->answered), free(s->who);
    free(s);
    coda_graph_free(c->graph);
}

/* As a caller would make it who knows of no symbols. */
static coda_graph *with_numbers(const struct company *c, int64_t rows)
{
    coda_graph *bound, *g = NULL;
    struct text t = {0};
    if (coda_graph_bind(&bound, c->graph, &rows, 1) != CODA_OK) return NULL;
    graph_print(bound, &t);
    if (coda_graph_parse(&g, text_str(&t)) != CODA_OK) g = NULL;
    text_free(&t);
    coda_graph_free(bound);
    return g;
}

coda_plan *company_plan(const struct company *c, int64_t rows, const coda_compile_options *opt)
{
    coda_plan *p = NULL;
    if (!rows) return coda_compile(&p, c->graph, opt) == CODA_OK ? p : NULL;
    coda_graph *g = with_numbers(c, rows);
    if (!g) return NULL;
    coda_status status = coda_compile(&p, g, opt);
    coda_graph_free(g);
    return status == CODA_OK ? p : NULL;
}

/* ---- Questions ---- */

static unsigned char *in_run(const struct argument *a, int64_t rows, int64_t outer, int64_t i)
{
    return a->host + (size_t)(outer * rows + i) * a->bytes;
}
static unsigned char *in_pool(const struct argument *a, int64_t outer, int64_t who)
{
    return a->values + (size_t)(who * a->outer + outer) * a->bytes;
}

/* The pool's first row is in all companies, so that it is asked alone and among all numbers of others. */
static void gather(struct company *c, int64_t rows)
{
    struct company_state *s = c->state;
    for (int64_t i = 0; i < rows; i++) s->who[i] = s->ordered ? i : random_below(&s->r, c->pool);
    if (!s->ordered) s->who[random_below(&s->r, rows)] = 0;
    for (int k = 0; k < s->args; k++) {
        struct argument *a = &s->arg[k];
        for (int64_t i = 0; i < rows && a->of_rows && !a->output; i++)
            for (int64_t o = 0; o < a->outer; o++)
                memcpy(in_run(a, rows, o, i), in_pool(a, o, s->who[i]), a->bytes);
    }
}

/* Memory that goes, or gets weights anew, holds nothing that was prepared. */
static void forget(const struct company *c, void *const *args, const void *prepared, size_t bytes)
{
    const struct company_state *s = c->state;
    coda_prepare_forget(prepared, bytes);
    for (int k = 0; k < s->args; k++) coda_prepare_forget(args[k], bytes_of(&s->arg[k], c->pool));
}

static bool run(struct company *c, const coda_plan *p, int64_t rows)
{
    struct company_state *s = c->state;
    void *args[MOST_ARGS];
    size_t bytes = coda_plan_workspace(p);
    void *workspace = take(s, bytes), *prepared = take(s, coda_plan_prepared(p));
    bool good = workspace && prepared && fill(s, workspace, bytes, s->poison++);
    for (int k = 0; k < s->args && good; k++) {
        struct argument *a = &s->arg[k];
        args[k] = a->memory;
        if (a->output) good = fill(s, a->memory, bytes_of(a, rows), s->poison);
        else good = put(s, a->memory, a->of_rows ? a->host : a->values, bytes_of(a, rows));
    }
    good = good && wait(s);
    if (good && coda_plan_prepared_id(p)) good = coda_prepare(p, args, prepared, workspace, NULL) == CODA_OK;
    coda_run_options run = CODA_RUN_OPTIONS_INIT;
    run.dims = &rows, run.dim_count = 1;
    good = good && wait(s);
    if (good && coda_plan_symbols(p))
        good = coda_run_shaped(p, args, prepared, workspace, NULL, &run) == CODA_OK;
    else if (good) good = coda_run(p, args, prepared, workspace, NULL) == CODA_OK;
    good = good && wait(s);
    if (coda_plan_prepared_id(p)) forget(c, args, prepared, coda_plan_prepared(p));
    give(s, workspace);
    give(s, prepared);
    return good;
}

/* Has row `who`, at place i, the bits that it had before? */
static bool same(const struct company_state *s, int64_t rows, int64_t i, int64_t who, bool first)
{
    bool equal = true;
    for (int k = 0; k < s->args; k++) {
        const struct argument *a = &s->arg[k];
        for (int64_t o = 0; o < a->outer && a->output && a->of_rows; o++) {
            unsigned char *old = in_pool(a, o, who), *new = in_run(a, rows, o, i);
            if (first) memcpy(old, new, a->bytes);
            equal = equal && !memcmp(old, new, a->bytes);
        }
    }
    return equal;
}

bool company_ask(struct company *c, const coda_plan *p, int64_t rows)
{
    struct company_state *s = c->state;
    gather(c, rows);
    bool good = p && run(c, p, rows);
    for (int k = 0; k < s->args && good; k++)
        if (s->arg[k].output) good = get(s, s->arg[k].host, s->arg[k].memory, bytes_of(&s->arg[k], rows));
    for (int64_t i = 0; i < rows && good && !device_dry(); i++) {
        int64_t who = s->who[i];
        bool equal = same(s, rows, i, who, !s->answered[who]);
        c->compared += s->answered[who];
        s->answered[who] = true;
        if (!equal && !c->different++)
            snprintf(c->first, sizeof c->first, "; first: row %lld at place %lld of %lld", (long long)who,
                     (long long)i, (long long)rows);
    }
    return good;
}

bool company_makes_sense(const struct company *c)
{
    const struct company_state *s = c->state;
    bool sane = c->compared > 0;
    for (int k = 0; k < s->args; k++)
        for (int64_t who = 0; who < c->pool && s->arg[k].output; who++)
            for (int64_t e = 0;
                 e < (int64_t)s->arg[k].bytes / dtype_bytes(s->arg[k].dtype, 1) && s->answered[who]; e++)
                sane = sane && isfinite(dtype_load(s->arg[k].dtype,
                                                   s->arg[k].values + (size_t)who * s->arg[k].bytes, e));
    return sane;
}

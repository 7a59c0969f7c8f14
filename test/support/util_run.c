/* util_run.c -- compile a graph, run it with random arguments, compare with fp64. */
#include "util_run.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executable.h"
#include "util_device.h"

enum { FEW_COLUMNS = 8, NORM_COLUMNS = 4 };

const struct run_mode run_modes[RUN_MODES + 1] = {
    {"unfused", CODA_NO_FUSION, CODA_FOLD_NONE},
    {"fused", 0, CODA_FOLD_NONE},
    {"folded", 0, CODA_FOLD_COPY},
    {"folded in place", 0, CODA_FOLD_IN_PLACE},
    [RUN_ON_CUBLASLT] = {"unfused on cuBLASLt", CODA_NO_FUSION | CODA_CUBLASLT, CODA_FOLD_NONE},
};

void **run_reference(const graph *g, uint64_t seed)
{
    void **want = random_args(g, seed, true);
    if (device_dry()) return want;
    if (coda_evaluate(g, want) == CODA_OK) return want;
    random_args_free(g, want);
    return NULL;
}

/* What is too large for 16 bits is infinite there. */
static double rounded(coda_dtype t, double x)
{
    double memory = 0;
    dtype_store(t, &memory, 0, x);
    return dtype_load(t, &memory, 0);
}

double run_error(const graph *g, int output, const void *got, const double *want)
{
    const struct output *o = &g->output[output];
    const struct type *t = &g->node[o->value].type;
    double diff = 0, norm = 0;
    int64_t n = type_elements(t);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, rest = i;
        for (int d = t->rank - 1; d >= 0; rest /= t->dim[d--]) at += rest % t->dim[d] * o->stride[d];
        double x = dtype_load(t->dtype, got, at), y = want[i];
        if ((isnan(x) && isnan(y)) || x == y || x == rounded(t->dtype, y)) continue;
        if (!isfinite(x) || !isfinite(y)) return INFINITY;
        diff += (x - y) * (x - y);
        norm += y * y;
    }
    return n ? sqrt(diff) / (sqrt(norm) + 0.1 * sqrt((double)n)) : 0;
}

/* Of what a run left in a state, against what coda_evaluate did. */
static double state_error(const struct node *n, const void *got, const void *want)
{
    double diff = 0, norm = 0;
    int64_t total = type_elements(&n->type);
    for (int64_t i = 0; i < total; i++) {
        int64_t at = 0, rest = i;
        for (int d = n->type.rank - 1; d >= 0; rest /= n->type.dim[d--])
            at += rest % n->type.dim[d] * n->stride[d];
        double x = dtype_load(n->type.dtype, got, at), y = dtype_load(n->type.dtype, want, at);
        if ((isnan(x) && isnan(y)) || x == y) continue;
        if (!isfinite(x) || !isfinite(y)) return INFINITY;
        diff += (x - y) * (x - y);
        norm += y * y;
    }
    return total ? sqrt(diff) / (sqrt(norm) + 0.1 * sqrt((double)total)) : 0;
}

static bool is_state(const graph *g, int i) { return i < g->leaves && g->node[g->leaf[i]].op == OP_STATE; }

double run_worst_error(const graph *g, void **got, void **want)
{
    int leaves = coda_graph_args(g) - g->outputs;
    double worst = 0;
    if (device_dry()) return 0;
    for (int i = 0; i < g->outputs; i++)
        worst = fmax(worst, run_error(g, i, got[leaves + i], want[leaves + i]));
    for (int i = 0; i < leaves; i++)
        if (is_state(g, i)) worst = fmax(worst, state_error(&g->node[g->leaf[i]], got[i], want[i]));
    return worst;
}

static bool has_bf16(const graph *g)
{
    for (int i = 0; i < g->nodes; i++)
        if (g->node[i].type.dtype == CODA_BF16) return true;
    return false;
}

/* The last bit of each 16-bit element, of a leaf; of fp16, beside what is rounded to bf16, that of bf16. */
static void turn_last_bits(const struct node *n, bool coarse, uint16_t *at)
{
    size_t elements = dtype_bytes(n->type.dtype, 1) == 2 ? random_arg_bytes(&n->type, n->stride) / 2 : 0;
    uint16_t bit = coarse && n->type.dtype == CODA_F16 ? 1 << 3 : 1;
    for (size_t i = 0; i < elements; i++) at[i] ^= bit;
}

double run_sensitivity(const graph *g, uint64_t seed, void **want)
{
    void **turned = random_args(g, seed, true);
    double worst = 0;
    bool coarse = has_bf16(g);
    for (int i = 0; i < g->leaves; i++) turn_last_bits(&g->node[g->leaf[i]], coarse, turned[i]);
    bool good = coda_evaluate(g, turned) == CODA_OK;
    for (int o = 0; o < g->outputs && good; o++) {
        const double *x = turned[g->leaves + o], *y = want[g->leaves + o];
        int64_t n = type_elements(&g->node[g->output[o].value].type);
        double diff = 0, norm = 0;
        for (int64_t i = 0; i < n; i++) {
            if (!isfinite(x[i]) || !isfinite(y[i])) continue;
            diff += (x[i] - y[i]) * (x[i] - y[i]);
            norm += y[i] * y[i];
        }
        worst = fmax(worst, n ? sqrt(diff) / (sqrt(norm) + 0.1 * sqrt((double)n)) : 0);
    }
    random_args_free(g, turned);
    return worst;
}

/* A norm of what a product of few summands computes forgets its size, and keeps a sign that noise flips. */
static bool norm_of_few_summands(const graph *g)
{
    bool found = false, *few = calloc((size_t)g->nodes + 1, sizeof *few);
    for (int i = 0; few && i < g->nodes; i++) {
        const struct node *n = &g->node[i];
        for (int k = 0; k < n->nin; k++) few[i] = few[i] || (n->in[k] >= 0 && few[n->in[k]]);
        found = found || (n->op == OP_RMS_NORM && few[n->in[0]]);
        if (n->op == OP_MATMUL && type_columns(&g->node[n->in[0]].type) < NORM_COLUMNS) few[i] = true;
    }
    free(few);
    return found;
}

/* Maps that may give all columns of a row one value: a norm then divides rounding by the root of its eps. */
static bool may_be_constant(const struct node *n)
{
    static const char *const words[] = {"where", "clip", "sign", "round", "floor", "ceil", "valid", "keep"};
    bool found = n->op == OP_MAP && (strstr(n->prim->name, "less") || strstr(n->prim->name, "greater") ||
                                     strstr(n->prim->name, "equal") || strstr(n->prim->name, "logical"));
    for (int i = 0; i < ARRAY_SIZE(words); i++)
        found = found || (n->op == OP_MAP && !strcmp(n->prim->name, words[i]));
    return found;
}

static bool centres_constants(const graph *g)
{
    bool found = false, *flat = calloc((size_t)g->nodes + 1, sizeof *flat);
    for (int i = 0; flat && i < g->nodes; i++) {
        const struct node *n = &g->node[i];
        flat[i] = may_be_constant(n);
        for (int k = 0; k < n->nin; k++)
            flat[i] = flat[i] || (n->op != OP_MATMUL && n->in[k] >= 0 && flat[n->in[k]]);
        found = found || (n->op == OP_LAYER_NORM && flat[n->in[0]]);
    }
    free(flat);
    return found;
}

bool run_ill_conditioned(const graph *g)
{
    for (int i = 0; i < g->nodes; i++) {
        const struct node *n = &g->node[i];
        bool centres = n->op == OP_LAYER_NORM || n->op == OP_REDUCE, norm = n->op == OP_RMS_NORM;
        int64_t columns = n->nin ? type_columns(&g->node[n->in[0]].type) : FEW_COLUMNS;
        if (centres && columns < FEW_COLUMNS) return true;
        if (norm && columns < NORM_COLUMNS) return true; /* of one column: the sign, which noise flips */
    }
    return norm_of_few_summands(g) || centres_constants(g);
}

graph *run_load(const char *path)
{
    coda_graph *g = NULL;
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 20);
    bool read = f && text && fread(text, 1, (1 << 20) - 1, f);
    char *start = read ? strstr(text, "# >>> graph") : NULL;
    char *end = start ? strstr(start + 1, "# >>> ") : NULL;
    if (end) *end = 0; /* a golden's other sections */
    if (read) coda_graph_parse(&g, text);
    else fail(CODA_E_IO, "%s cannot be read", path);
    if (f) fclose(f);
    free(text);
    return g;
}

/* ---- Memory of both devices ---- */

static void *host_alloc(size_t bytes) { return aligned_alloc(256, (bytes + 255) / 256 * 256); }

static bool host_copy(void *to, const void *from, size_t bytes)
{
    if (bytes) memcpy(to, from, bytes);
    return true;
}

static bool host_fill(void *to, unsigned char byte, size_t bytes)
{
    memset(to, byte, bytes);
    return true;
}

static bool host_wait(void) { return true; }

struct run_device {
    void *(*alloc)(size_t bytes);
    void (*release)(void *p);
    bool (*upload)(void *to, const void *from, size_t bytes);
    bool (*download)(void *to, const void *from, size_t bytes);
    bool (*fill)(void *to, unsigned char byte, size_t bytes);
    bool (*wait)(void);
};
static const struct run_device host = {host_alloc, free, host_copy, host_copy, host_fill, host_wait},
                               gpu = {device_alloc,    device_free, device_upload,
                                      device_download, device_fill, device_wait};

/* ---- Arguments ---- */

static coda_arg_info arg(const graph *g, int i)
{
    coda_arg_info info = CODA_ARG_INFO_INIT;
    coda_graph_arg(g, i, &info);
    return info;
}

/* Numbers and handles stay where they are. */
static bool is_of_host(coda_arg_kind kind) { return kind == CODA_ARG_SCALAR || kind == CODA_ARG_GROUP; }

/* ---- Their memory ---- */

enum { MARGIN = 256, RUNS = 2 };

/* Memory with a margin that nobody may touch. All of it begins as one byte, each time another: NaN, large,
 * zero, and tiny numbers, and integers that are no index. It lies so many bytes past an aligned place. */
static struct run_memory fresh(const struct run_device *d, size_t bytes, size_t skipped)
{
    static const unsigned char poison[] = {0xff, 0x5f, 0x00, 0x81, 0x7b};
    static atomic_uint next;
    char *at = d->alloc(skipped + bytes + MARGIN);
    struct run_memory m = {at + skipped, bytes, skipped, poison[next++ % sizeof poison]};
    if (at && d->fill(at, m.poison, skipped + bytes + MARGIN)) return m;
    fail(CODA_E_MEMORY, "no memory for %zu bytes", bytes);
    return (struct run_memory){0};
}

/* That of argument i: on the CPU device it begins at an odd element. */
static struct run_memory fresh_argument(const struct run_device *d, const graph *g, int i)
{
    coda_arg_info a = arg(g, i);
    bool host_tensor = d == &host && !is_of_host(a.kind);
    return fresh(d, a.bytes, host_tensor ? (size_t)dtype_bytes(a.dtype, 1) : 0);
}

static void release(const struct run_device *d, struct run_memory *m)
{
    coda_prepare_forget(m->at, m->bytes);
    d->release((char *)m->at - m->skipped);
    *m = (struct run_memory){0};
}

static bool margin_good(const struct run_device *d, const struct run_memory *m, const char *what)
{
    unsigned char margin[MARGIN];
    if (device_dry()) return true;
    bool good = d->download(margin, (char *)m->at + m->bytes, MARGIN);
    for (int i = 0; i < MARGIN; i++) good = good && margin[i] == m->poison;
    if (!good) fail(CODA_E_INVALID, "%s: written past its end", what);
    return good;
}

bool run_upload(struct run_buffers *b, const graph *g, const coda_plan *p, void **args, bool on_gpu)
{
    const struct run_device *d = on_gpu ? &gpu : &host;
    *b = (struct run_buffers){.g = g, .device = d, .host = args, .n = coda_graph_args(g)};
    b->memory = calloc((size_t)b->n + 2, sizeof *b->memory);
    b->args = calloc((size_t)b->n + 1, sizeof *b->args);
    bool ok = b->memory && b->args;
    for (int i = 0; ok && i < b->n + 2; i++) {
        b->memory[i] = i < b->n ? fresh_argument(d, g, i)
                                : fresh(d, i == b->n ? coda_plan_prepared(p) : coda_plan_workspace(p), 0);
        ok = b->memory[i].at && (i >= b->n || d->upload(b->memory[i].at, args[i], b->memory[i].bytes));
        if (i < b->n) b->args[i] = is_of_host(arg(g, i).kind) ? args[i] : b->memory[i].at;
    }
    b->prepared = ok ? b->memory[b->n].at : NULL;
    b->workspace = ok ? b->memory[b->n + 1].at : NULL;
    if (!ok) fail(CODA_E_MEMORY, "no memory for %d arguments", b->n);
    return ok;
}

void run_share(struct run_buffers *b, const struct run_buffers *with)
{
    for (int i = 0; i < b->n; i++)
        for (int j = 0; j < with->n; j++)
            if (arg(b->g, i).kind == CODA_ARG_WEIGHT && !strcmp(arg(b->g, i).name, arg(with->g, j).name))
                b->args[i] = with->args[j];
    b->prepared = with->prepared;
}

static bool waited(const struct run_buffers *b)
{
    if (b->device->wait()) return true;
    fail(CODA_E_DEVICE, "the device's work failed");
    return false;
}

bool run_download(const struct run_buffers *b)
{
    if (!waited(b)) return false;
    for (int i = b->n - b->g->outputs; i < b->n; i++)
        if (!b->device->download(b->host[i], b->args[i], arg(b->g, i).bytes))
            return fail(CODA_E_DEVICE, "no download"), false;
    return true;
}

void run_release(struct run_buffers *b)
{
    for (int i = 0; b->memory && i < b->n + 2; i++)
        if (b->memory[i].at) release(b->device, &b->memory[i]);
    free(b->memory);
    free(b->args);
    *b = (struct run_buffers){0};
}

/* ---- Prepare and run ---- */

bool run_prepare(const struct run_buffers *b, const coda_plan *p)
{
    struct run_memory work = fresh(b->device, coda_plan_workspace(p), 0);
    bool ok = work.at && coda_prepare(p, b->args, b->prepared, work.at, NULL) == CODA_OK;
    ok = ok && waited(b);
    ok = ok && margin_good(b->device, &work, "prepare: workspace") &&
         margin_good(b->device, &b->memory[b->n], "prepare: prepared memory");
    release(b->device, &work);
    return ok;
}

/* Marks the bytes of a strided tensor's elements. */
static void mark_elements(unsigned char *map, const coda_arg_info *a)
{
    const int size = dtype_bytes(a->dtype, 1), last = a->rank - 1;
    const bool rows = a->rank && (a->strides[last] == 1 || a->dims[last] == 1);
    const int64_t row = rows ? a->dims[last] : 1;
    int64_t n = 1;
    for (int d = 0; d < a->rank; d++) n *= a->dims[d];
    for (int64_t i = 0; i < n; i += row) {
        int64_t at = 0, rest = i;
        for (int d = last; d >= 0; rest /= a->dims[d--]) at += rest % a->dims[d] * a->strides[d];
        memset(map + at * size, 1, (size_t)(row * size));
    }
}

/* An output of one run, into the host's or compared with it: what lies between its elements is as it was. */
static bool take_output(const struct run_buffers *b, int i, const struct run_memory *m, bool first)
{
    coda_arg_info a = arg(b->g, i);
    if (device_dry()) return true;
    unsigned char *got = malloc(m->bytes + 1), *map = calloc(m->bytes + 1, 1), *want = b->host[i];
    bool ok = got && map && b->device->download(got, m->at, m->bytes);
    if (map) mark_elements(map, &a);
    for (size_t j = 0; ok && j < m->bytes; j++) {
        if (map[j] && first) want[j] = got[j];
        if (got[j] == (map[j] ? want[j] : m->poison)) continue;
        fail(CODA_E_INVALID, "%s: byte %zu is 0x%02x, but %s 0x%02x", a.name, j, got[j],
             map[j] ? "another run left" : "was", map[j] ? want[j] : m->poison);
        ok = false;
    }
    free(got);
    free(map);
    return ok && margin_good(b->device, m, a.name);
}

/* What a run adds to; poison lies between. */
static bool begin_sum(const struct run_buffers *b, int output, const struct run_memory *m)
{
    void *begin = malloc(m->bytes + 1);
    if (begin) memset(begin, m->poison, m->bytes);
    if (begin) random_begin_sum(b->g, output, begin, false);
    bool ok = begin && b->device->upload(m->at, begin, m->bytes);
    free(begin);
    return ok;
}

/* What a state holds as a run begins: that was uploaded, which no run gets; poison lies between. */
static bool begin_state(const struct run_buffers *b, int i, const struct run_memory *m)
{
    coda_arg_info a = arg(b->g, i);
    unsigned char *begin = malloc(m->bytes + 1), *map = calloc(m->bytes + 1, 1);
    bool ok = begin && map && b->device->download(begin, b->memory[i].at, m->bytes);
    if (ok) mark_elements(map, &a);
    for (size_t j = 0; ok && j < m->bytes; j++)
        if (!map[j]) begin[j] = m->poison;
    ok = ok && b->device->upload(m->at, begin, m->bytes);
    free(begin);
    free(map);
    return ok;
}

/* An argument of which a run may leave anything. */
static bool is_consumed(const graph *g, int i)
{
    return i < g->leaves && node_is_written(&g->node[g->leaf[i]]) && !is_state(g, i);
}

/* Memory of its own for what a run writes: states, outputs, and last the workspace. */
static bool begin(const struct run_buffers *b, const coda_plan *p, int i, struct run_memory *m)
{
    int output = i - (b->n - b->g->outputs);
    if (output < 0 && !is_state(b->g, i) && !is_consumed(b->g, i)) return true;
    *m = i == b->n ? fresh(b->device, coda_plan_workspace(p), 0) : fresh_argument(b->device, b->g, i);
    if (!m->at || i == b->n) return m->at;
    if (output < 0) return begin_state(b, i, m);
    return !b->g->output[output].add || begin_sum(b, output, m);
}

static bool run_once(const struct run_buffers *b, const coda_plan *p, bool first)
{
    struct run_memory *m = calloc((size_t)b->n + 1, sizeof *m);
    void **args = calloc((size_t)b->n + 1, sizeof *args);
    bool ok = m && args;
    for (int i = 0; ok && i <= b->n; i++) ok = begin(b, p, i, &m[i]);
    for (int i = 0; ok && i < b->n; i++) args[i] = m[i].at ? m[i].at : p->place[i].unread ? NULL : b->args[i];
    coda_run_options opt = {.size = sizeof opt, .dims = b->dims, .dim_count = coda_plan_symbols(p)};
    ok = ok && coda_run_shaped(p, args, b->prepared, m[b->n].at, NULL, &opt) == CODA_OK;
    ok = ok && waited(b);
    for (int i = 0; ok && i < b->n; i++)
        ok = !m[i].at || (is_consumed(b->g, i) ? margin_good(b->device, &m[i], arg(b->g, i).name)
                                               : take_output(b, i, &m[i], first));
    ok = ok && margin_good(b->device, &m[b->n], "workspace");
    for (int i = 0; m && i <= b->n; i++)
        if (m[i].at) release(b->device, &m[i]);
    free(m);
    free(args);
    return ok;
}

/* What is folded in place has changed, and nothing else. */
static bool leaves_unchanged(const struct run_buffers *b, const coda_plan *p)
{
    bool ok = true;
    for (int i = 0; ok && !device_dry() && i < b->n - b->g->outputs; i++) {
        size_t bytes = arg(b->g, i).bytes;
        if (is_state(b->g, i)) continue;
        void *now = p->place[i].holds || b->args[i] != b->memory[i].at ? NULL : malloc(bytes + 1);
        if (now) ok = b->device->download(now, b->args[i], bytes) && !memcmp(now, b->host[i], bytes);
        if (!ok) fail(CODA_E_INVALID, "%s: an argument that is only read has changed", arg(b->g, i).name);
        ok = ok && margin_good(b->device, &b->memory[i], arg(b->g, i).name);
        free(now);
    }
    return ok;
}

bool run_plan(const struct run_buffers *b, const coda_plan *p)
{
    for (int i = 0; i < RUNS; i++)
        if (!run_once(b, p, i == 0)) return false;
    return leaves_unchanged(b, p);
}

bool run_same(const struct run_buffers *b, const coda_plan *p) { return run_once(b, p, false); }

/* A second plan of the graph shares what the first one has prepared. */
static bool run_both(const graph *g, const coda_compile_options *opt, const coda_plan *p, void **args)
{
    struct run_buffers b;
    coda_plan *twin = NULL;
    bool ok =
        run_upload(&b, g, p, args, opt->device == CODA_DEVICE_GPU) && run_prepare(&b, p) && run_plan(&b, p);
    if (ok && opt->fold) ok = coda_compile(&twin, g, opt) == CODA_OK && run_once(&b, twin, false);
    coda_plan_free(twin);
    run_release(&b);
    return ok;
}

static double run_on(coda_device device, const graph *g, uint64_t seed, const coda_compile_options *opt,
                     void **want)
{
    coda_compile_options o = *opt;
    coda_plan *p;
    o.device = device;
    if (coda_compile(&p, g, &o) != CODA_OK) return -1;
    void **args = random_args(g, seed, false);
    bool ok = run_both(g, &o, p, args);
    double error = !ok ? -1 : want ? run_worst_error(g, args, want) : 0;
    random_args_free(g, args);
    coda_plan_free(p);
    return error;
}

double run_on_cpu(const graph *g, uint64_t seed, const coda_compile_options *opt, void **want)
{
    return run_on(CODA_DEVICE_CPU, g, seed, opt, want);
}

double run_on_gpu(const graph *g, uint64_t seed, const coda_compile_options *opt, void **want)
{
    return run_on(CODA_DEVICE_GPU, g, seed, opt, want);
}

double run_args_error(const graph *g, const coda_compile_options *opt, void **want, void **got, bool on_gpu)
{
    struct run_buffers b = {0};
    coda_plan *p = NULL;
    bool ran = coda_compile(&p, g, opt) == CODA_OK && coda_evaluate(g, want) == CODA_OK &&
               run_upload(&b, g, p, got, on_gpu) && run_prepare(&b, p) && run_plan(&b, p);
    double error = ran ? run_worst_error(g, got, want) : -1;
    run_release(&b);
    coda_plan_free(p);
    return error;
}

/* tool_args.c -- what a graph is run on: values of its leaves, and memory on either device. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool_args.h"

bool is_result(const struct run *r, int i)
{
    coda_arg_kind kind = r->t.info[i].kind;
    return kind == CODA_ARG_OUTPUT || kind == CODA_ARG_SUM || kind == CODA_ARG_STATE;
}

int find_arg(const struct run *r, const char *name, bool is_output)
{
    for (int i = 0; i < r->t.n; i++)
        if (strcmp(r->t.info[i].name, name) == 0 &&
            (is_output ? is_result(r, i) : r->t.info[i].kind != CODA_ARG_OUTPUT))
            return i;
    return -1;
}

/* ---- Inputs ---- */

static bool same_shape(const struct npy *n, const coda_arg_info *a)
{
    if (n->rank != a->rank) return false;
    for (int d = 0; d < n->rank; d++)
        if (n->dim[d] != a->dims[d]) return false;
    return true;
}

static int refuse_name(const struct run *r, const char *kind, const char *name, bool of_outputs)
{
    struct nearest n = {.word = name};
    for (int i = 0; i < r->t.n; i++)
        if (of_outputs ? is_result(r, i) : r->t.info[i].kind != CODA_ARG_OUTPUT)
            nearest_try(&n, r->t.info[i].name);
    return complain("the graph has no %s \"%s\"%s", kind, name, nearest_text(&n));
}

/* "[2,3]" */
static const char *shape_text(char out[160], int rank, const int64_t *dim)
{
    int at = snprintf(out, 160, "[");
    for (int d = 0; d < rank && at < 140; d++)
        at += snprintf(out + at, (size_t)(160 - at), "%s%lld", d ? "," : "", (long long)dim[d]);
    snprintf(out + at, (size_t)(160 - at), "]");
    return out;
}

static int refuse_shape(const struct binding *b, const struct npy *n, const coda_arg_info *a)
{
    char is[160], wanted[160];
    return complain("%s has shape %s but %s is %s", b->path, shape_text(is, n->rank, n->dim), b->name,
                    shape_text(wanted, a->rank, a->dims));
}

static int load_input(struct run *r, const struct binding *b)
{
    struct npy n;
    int i = find_arg(r, b->name, false);
    if (i < 0) return refuse_name(r, "leaf", b->name, false);
    const char *error = npy_open(&n, b->path);
    if (error) return complain("%s %s", b->path, error);
    const coda_arg_info *a = &r->t.info[i];
    int bad = !same_shape(&n, a) ? refuse_shape(b, &n, a) : 0;
    if (!bad && (error = npy_load(&n))) bad = complain("%s %s", b->path, error);
    for (int64_t e = 0; !bad && e < n.elements; e++) {
        double v = npy_get(&n, e);
        if (a->dtype == CODA_I32 && !(v >= INT32_MIN && v <= INT32_MAX))
            bad = complain("%s: %g does not fit int32", b->path, v);
        else if (a->dtype == CODA_I64 && !(v >= -0x1p63 && v <= 0x1p63))
            bad = complain("%s: %g does not fit int64", b->path, v);
        else element_set(a->dtype, r->t.host[i], element_at(a, e), v);
    }
    npy_free(&n);
    return bad;
}

/* One element; the value stands where others have a path. */
static int set_scalar(struct run *r, const struct binding *b)
{
    char *end;
    int i = find_arg(r, b->name, false);
    double v = plain_number(b->path, &end);
    if (i < 0 || r->t.info[i].kind != CODA_ARG_SCALAR) return refuse_name(r, "scalar", b->name, false);
    if (!*b->path || *end) return complain("--scalar %s: \"%s\" is no number", b->name, b->path);
    if (r->t.info[i].dtype == CODA_I32 && !(v >= INT32_MIN && v <= INT32_MAX && v == floor(v)))
        return complain("--scalar %s: %g is no int32", b->name, v);
    element_set(r->t.info[i].dtype, r->t.host[i], 0, v);
    return 0;
}

/* Is the leaf the third operand of an append, "= append %STATE, %ROWS, %NAME"? */
static bool names_slots(const char *graph, const char *name)
{
    static const char append[] = "= append ";
    for (const char *at = graph; (at = strstr(at, append));) {
        at += sizeof append - 1;
        for (int comma = 0; comma < 2; comma++) at += strcspn(at, ",\n"), at += *at == ',';
        at += strspn(at, " %");
        size_t n = strcspn(at, ", \n");
        if (n == strlen(name) && !strncmp(at, name, n)) return true;
    }
    return false;
}

/* Rows of one slot would be in a race for it: each draws one that none before it has. */
static int draw_slots(const coda_arg_info *a, void *host, uint64_t *seed, int ints)
{
    int64_t n = element_count(a), slots = ints > n ? ints : n;
    bool *taken = calloc((size_t)slots + 1, sizeof *taken);
    for (int64_t i = 0; taken && i < n; i++) {
        int64_t slot = (int64_t)(uniform(seed) * (double)slots) % slots;
        while (taken[slot]) slot = (slot + 1) % slots;
        taken[slot] = true;
        element_set(a->dtype, host, element_at(a, i), (double)slot);
    }
    free(taken);
    return taken ? 0 : complain("out of memory");
}

/* As tensor_random, for numbers that only take time: those of a large dense tensor repeat. */
static void draw_repeated(const coda_arg_info *a, void *host, uint64_t *seed, int ints)
{
    enum { PERIOD = 1000003 };
    int64_t n = element_count(a);
    size_t size = dtype_bytes(a->dtype);
    coda_arg_info first = *a;
    if (n <= PERIOD || a->rank > 2 || a->bytes != (size_t)n * size) return tensor_random(a, host, seed, ints);
    first.dims[0] = (PERIOD - 1) / (n / a->dims[0]) + 1; /* whole rows */
    tensor_random(&first, host, seed, ints);
    for (size_t done = (size_t)element_count(&first) * size, more; done < a->bytes; done += more) {
        more = a->bytes - done < done ? a->bytes - done : done;
        memcpy((char *)host + done, host, more);
    }
}

static int draw_inputs(struct run *r, const char *graph)
{
    uint64_t seed = r->opt->seed;
    int bad = 0;
    for (int i = 0; !bad && i < r->t.n; i++) {
        const coda_arg_info *a = &r->t.info[i];
        if (a->kind == CODA_ARG_OUTPUT) continue;
        if (a->kind == CODA_ARG_GROUP)
            return complain("%s is a group of %lld ranks: a program runs them, with coda_group_local",
                            a->name, (long long)a->dims[0]);
        if (dtype_is_whole(a->dtype) && names_slots(graph, a->name))
            bad = draw_slots(a, r->t.host[i], &seed, r->opt->ints);
        else if (r->repeats) draw_repeated(a, r->t.host[i], &seed, r->opt->ints);
        else tensor_random(a, r->t.host[i], &seed, r->opt->ints);
    }
    return bad;
}

int make_inputs(struct run *r)
{
    int64_t length = coda_graph_print(r->g, NULL, 0);
    char *graph = length < 0 ? NULL : malloc((size_t)length + 1);
    if (graph) coda_graph_print(r->g, graph, (size_t)length + 1);
    int bad = !graph || tensors_new(&r->t, r->g) ? complain("out of memory for the tensors") : 0;
    if (!bad) bad = draw_inputs(r, graph);
    free(graph);
    for (int i = 0; !bad && i < r->opt->inputs; i++) bad = load_input(r, &r->opt->input[i]);
    for (int i = 0; !bad && i < r->opt->scalars; i++) bad = set_scalar(r, &r->opt->scalar[i]);
    for (int i = 0; !bad && i < r->opt->outputs; i++)
        if (find_arg(r, r->opt->output[i].name, true) < 0)
            bad = refuse_name(r, "output", r->opt->output[i].name, true);
    return bad;
}

/* ---- Memory ---- */

static int prepare(const struct run *r, const struct memory *m)
{
    if (!r->opt->compile.fold || coda_prepare(r->p, m->args, m->prepared, m->work, NULL) == CODA_OK) return 0;
    return complain("%s", coda_error());
}

int memory_host(const struct run *r, struct memory *m)
{
    *m = (struct memory){r->t.host, host_scratch(coda_plan_workspace(r->p)),
                         host_scratch(coda_plan_prepared(r->p))};
    return m->work && m->prepared ? prepare(r, m) : complain("out of memory");
}

void memory_free_host(struct memory *m)
{
    free(m->work);
    free(m->prepared);
}

int memory_gpu(const struct run *r, struct memory *m, const struct gpu *gpu)
{
    *m = (struct memory){calloc((size_t)r->t.n + 1, sizeof *m->args),
                         (void *)gpu_alloc(gpu, coda_plan_workspace(r->p)),
                         (void *)gpu_alloc(gpu, coda_plan_prepared(r->p))};
    if (!m->args) return complain("out of memory");
    if (!m->work || !m->prepared) return complain("the GPU has too little memory");
    for (int i = 0; i < r->t.n; i++) {
        m->args[i] = r->t.host[i];
        if (r->t.info[i].kind == CODA_ARG_SCALAR) continue;
        m->args[i] = (void *)gpu_alloc(gpu, r->t.info[i].bytes);
        if (!m->args[i] || gpu->upload((gpu_address)m->args[i], r->t.host[i], r->t.info[i].bytes))
            return complain("the GPU has too little memory");
    }
    return prepare(r, m);
}

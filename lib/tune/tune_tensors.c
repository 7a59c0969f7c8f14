/*
 * tune_tensors.c -- the tensors of a benchmark: which there are, their memory, their numbers.
 *
 * All candidates work on the same tensors. A set holds each of them once, and there are so many
 * sets that three times the L2 passes between two uses of one. Operands are normal, weights over the
 * root of K; fp32 vectors and statistics are about 1 and positive; integers are 0 to 255. The pattern's
 * length is eight times a prime, so that no two rows of a matrix are the same. Packed weights are whole
 * records, of codes and scales that are numbers.
 */
#include "tune_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERN = 8 * 131071, MOST_SETS = 24, ALIGN = 256, CHUNK = 1 << 20, L2_SIZES = 3 };

/* ---- Which ---- */

struct binding {
    struct tensors *ts;
    struct plan *plan;
    const struct coda_arg_info *arg;
    bool *bound; /* buffers */
};

static int find(const struct tensors *ts, const struct tensor *t)
{
    for (int i = 0; i < ts->n; i++) {
        const struct tensor *o = &ts->tensor[i];
        bool same = t->arg >= 0 ? o->arg == t->arg : o->arg < 0 && o->value == t->value;
        if (same && o->state == t->state && o->scratch == t->scratch) return i;
    }
    return -1;
}

/* Binds a buffer to a tensor of the benchmark. The first use of a buffer decides its contents. */
static bool touch(struct binding *b, int buffer, struct tensor t)
{
    struct buffer *to = &b->plan->buffer[buffer];
    if (b->bound[buffer]) return true;
    t.arg = to->space == SPACE_ARG ? to->arg : -1;
    t.value = to->value;
    t.bytes = t.arg >= 0 ? b->arg[t.arg].bytes : (size_t)to->bytes;
    int at = find(b->ts, &t);
    if (at < 0) {
        struct tensor *more = realloc(b->ts->tensor, sizeof t * (size_t)(b->ts->n + 1));
        if (!more) return false;
        b->ts->tensor = more;
        more[at = b->ts->n++] = t;
    }
    b->ts->tensor[at].bytes = MAX(b->ts->tensor[at].bytes, t.bytes);
    *to = (struct buffer){.space = SPACE_ARG, .arg = at, .bytes = to->bytes, .value = to->value};
    return b->bound[buffer] = true;
}

/* A factor of a row or a column scales a product: positive, so that it does not cancel. */
static bool is_factor(const struct program *q, const struct tensor_use *u)
{
    for (int i = 0; i < q->steps && u->dtype == CODA_F32; i++) {
        const struct step *s = &q->step[i];
        if (s->kind == STEP_LOAD && &q->port[s->port] == u && s->cls != CLASS_TILE) return true;
    }
    return false;
}

static struct tensor tensor_of(const struct program *q, const struct tensor_use *u)
{
    struct tensor t = {.dtype = u->dtype, .scale = 1, .scratch = u->role == USE_SCRATCH};
    t.scalar = u->role == USE_SCALAR;
    t.state = u->role == USE_PARTIAL_LOAD || u->role == USE_PARTIAL_STORE;
    if (t.state) t.dtype = CODA_F32, t.content = CONTENT_POSITIVE;
    else if (dtype_is_index(u->dtype)) t.content = CONTENT_INTEGER;
    else if (is_factor(q, u) || t.scalar) t.content = CONTENT_POSITIVE;
    if (u->role == USE_OPERAND && u != &q->a.data) t.scale = 1 / sqrt((double)MAX(q->k, 1));
    if (use_is_packed(u)) t.format = u->packing.format, t.dtype = CODA_U8;
    return t;
}

static bool touch_program(struct binding *b, const struct program *q)
{
    const struct tensor_use *u;
    for (int i = 0; (u = program_use(q, i)); i++)
        if (!touch(b, u->buffer, tensor_of(q, u))) return false;
    return true;
}

coda_status tensors_bind(struct tensors *ts, struct plan *plan, const struct coda_arg_info *arg)
{
    struct binding b = {ts, plan, arg, calloc((size_t)plan->buffers + 1, sizeof(bool))};
    bool ok = b.bound;
    for (int i = 0; i < plan->programs && ok; i++) ok = touch_program(&b, &plan->program[i]);
    free(b.bound);
    return ok ? CODA_OK : fail(CODA_E_MEMORY, "out of memory for %d tensors", ts->n);
}

/* ---- Numbers ---- */

static double uniform(uint64_t *seed) /* in (0, 1) */
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*seed >> 12) + 0.5) / (double)((uint64_t)1 << 52);
}

static double normal(uint64_t *seed)
{
    double r = sqrt(-2 * log(uniform(seed)));
    return r * cos(2 * M_PI * uniform(seed));
}

static double number(const struct tensor *t, uint64_t *seed)
{
    if (t->content == CONTENT_INTEGER) return floor(256 * uniform(seed));
    if (t->content == CONTENT_POSITIVE) return 0.75 + 0.25 * fabs(normal(seed));
    return t->scale * normal(seed);
}

/* A pattern of whole records. */
static void *packed_pattern(const struct tensor *t, uint64_t seed, size_t *size)
{
    const struct pack_format f = graph_format_of(t->format);
    int64_t columns = PATTERN / PACK_ROWS / PACK_STEP_MOST * PACK_STEP_MOST;
    *size = (size_t)pack_bytes(&f, PACK_ROWS, columns);
    uint8_t *pattern = malloc(*size);
    if (pattern) pack_random(&f, PACK_ROWS, columns, t->scale, seed, pattern);
    return pattern;
}

static void *plain_pattern(const struct tensor *t, uint64_t seed, size_t *size)
{
    size_t n = (size_t)MIN(PATTERN, dtype_elements(t->dtype, (int64_t)t->bytes) + 1);
    *size = (size_t)dtype_bytes(t->dtype, (int64_t)n);
    void *pattern = malloc(*size);
    for (size_t i = 0; i < n && pattern; i++) dtype_store(t->dtype, pattern, (int64_t)i, number(t, &seed));
    return pattern;
}

/* Every tensor has numbers of its own, the same in each set. */
coda_status tensor_fill(const struct tensors *ts, int index)
{
    struct tensor *t = &ts->tensor[index];
    char err[JIT_ERROR_SIZE];
    uint64_t seed = (uint64_t)(index + 1) * 0xd1342543de82ef95u;
    size_t size;
    if (t->scalar) {
        dtype_store(t->dtype, &t->number, 0, number(t, &seed));
        return CODA_OK;
    }
    void *pattern = (t->format ? packed_pattern : plain_pattern)(t, seed, &size);
    if (!pattern) return fail(CODA_E_MEMORY, "out of memory for %zu bytes of random numbers", size);
    coda_status status = CODA_OK;
    for (int s = 0; s < ts->sets && !status; s++)
        status = jit_fill(tensor_address(ts, index, s), t->bytes, pattern, size, err);
    free(pattern);
    return status ? fail(status, "tuning: %s", err) : CODA_OK;
}

/* ---- Memory ---- */

static void place(struct tensors *ts)
{
    ts->scratch = ts->step = 0;
    for (int i = 0; i < ts->n; i++) {
        struct tensor *t = &ts->tensor[i];
        size_t *end = t->scratch ? &ts->scratch : &ts->step;
        t->at = *end;
        *end += (t->bytes + ALIGN - 1) / ALIGN * ALIGN + ALIGN;
    }
}

coda_status tensors_load(struct tensors *ts, int64_t l2_size, char *why, size_t size)
{
    char err[JIT_ERROR_SIZE];
    coda_status status = CODA_OK;
    place(ts);
    size_t room = jit_memory_free() / 2,
           sets = CEIL_DIV((size_t)(L2_SIZES * l2_size), MAX(ts->step, (size_t)1));
    size_t most = room > ts->scratch ? (room - ts->scratch) / MAX(ts->step, (size_t)1) : 0;
    ts->sets = (int)MIN(MIN(sets, most), (size_t)MOST_SETS);
    if (ts->sets) status = jit_alloc((void **)&ts->memory, ts->scratch + (size_t)ts->sets * ts->step, err);
    if (!ts->sets || status == CODA_E_MEMORY) {
        format_line(why, size, "%.3f GB of the device's memory are needed, half of what is free is %.3f GB",
                    (double)(ts->scratch + ts->step) * 1e-9, (double)room * 1e-9);
        return CODA_OK;
    }
    if (status) return fail(status, "tuning: %s", err);
    for (int i = 0; i < ts->n && !status; i++)
        if (!ts->tensor[i].scratch) status = tensor_fill(ts, i);
    return status;
}

void *tensor_address(const struct tensors *ts, int index, int set)
{
    struct tensor *t = &ts->tensor[index];
    if (t->scalar) return &t->number;
    return ts->memory + t->at + (t->scratch ? 0 : ts->scratch + (size_t)set * ts->step);
}

void tensors_free(struct tensors *ts)
{
    jit_free(ts->memory);
    free(ts->tensor);
    *ts = (struct tensors){0};
}

/* ---- Results ---- */

coda_status tensor_poison(const struct tensors *ts, int index)
{
    char err[JIT_ERROR_SIZE];
    uint64_t nan[32];
    memset(nan, 0xff, sizeof nan);
    coda_status status =
        jit_fill(tensor_address(ts, index, 0), ts->tensor[index].bytes, nan, sizeof nan, err);
    return status ? fail(status, "tuning: %s", err) : CODA_OK;
}

coda_status tensor_download(void **out, const struct tensors *ts, int index)
{
    char err[JIT_ERROR_SIZE];
    size_t bytes = ts->tensor[index].bytes;
    *out = malloc(bytes + 1);
    if (!*out) return fail(CODA_E_MEMORY, "out of memory for %zu bytes of a result", bytes);
    coda_status status = jit_download(*out, tensor_address(ts, index, 0), bytes, err);
    return status ? fail(status, "tuning: %s", err) : CODA_OK;
}

struct comparison {
    const struct tensor *t;
    const void *got, *want;
    double tolerance, mean_square;
    double *square; /* of each chunk: the sum of want^2 */
    int *bad;
};

static int64_t chunk_end(const struct comparison *c, int64_t i)
{
    return MIN(dtype_elements(c->t->dtype, (int64_t)c->t->bytes), (i + 1) * CHUNK);
}

static void add_squares(void *ctx, int64_t i)
{
    const struct comparison *c = ctx;
    for (int64_t e = i * CHUNK; e < chunk_end(c, i); e++) {
        double x = dtype_load(c->t->dtype, c->want, e);
        if (isfinite(x)) c->square[i] += x * x;
    }
}

/* What is NaN in both is a gap between rows, or undefined. */
static void compare(void *ctx, int64_t i)
{
    const struct comparison *c = ctx;
    double rms = sqrt(c->mean_square);
    for (int64_t e = i * CHUNK; e < chunk_end(c, i); e++) {
        double x = dtype_load(c->t->dtype, c->got, e), y = dtype_load(c->t->dtype, c->want, e);
        if (x == y || (isnan(x) && isnan(y))) continue;
        c->bad[i] += !(fabs(x - y) <= c->tolerance * (fabs(y) + rms));
    }
}

bool tensor_agrees(const struct tensor *t, const void *got, const void *want, bool wide)
{
    int64_t n = dtype_elements(t->dtype, (int64_t)t->bytes), chunks = CEIL_DIV(n, CHUNK), bad = 0;
    struct comparison c = {t, got, want, .tolerance = wide ? 1e-3 : 0.05};
    c.square = calloc((size_t)chunks + 1, sizeof *c.square);
    c.bad = calloc((size_t)chunks + 1, sizeof *c.bad);
    bool ok = c.square && c.bad;
    if (ok) parallel_for(chunks, add_squares, &c);
    for (int64_t i = 0; ok && i < chunks; i++) c.mean_square += c.square[i] / (double)n;
    if (ok) parallel_for(chunks, compare, &c);
    for (int64_t i = 0; ok && i < chunks; i++) bad += c.bad[i];
    free(c.square);
    free(c.bad);
    return ok && !bad;
}

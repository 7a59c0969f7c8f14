/* test_bytes.c -- the bytes that a program is said to move are those of the elements that its steps touch,
 * each of which is counted here. */
#include "executable.h"
#include "util_random.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Elements of a buffer, from `first` on, that were touched. */
struct touched {
    bool *element;
    int64_t first, elements, count;
};

static void touch(struct touched *t, int64_t at)
{
    at -= t->first;
    ck_assert_msg(at >= 0 && at < t->elements, "element %lld of %lld", (long long)at, (long long)t->elements);
    t->count += !t->element[at];
    t->element[at] = true;
}

static int64_t samples_of(const struct program *q, int64_t row, int d, const int64_t *index)
{
    return q->sample && d == 0 ? row / q->sample : index[d];
}

/* Where column c of a row is from its first one on: in segments, or at even distances. */
static int64_t column_at(const struct program *q, const struct step *s, const struct tensor_use *port,
                         int64_t c)
{
    if (q->rank == 0 || s->cls == CLASS_ROW) return 0;
    if (s->cls == CLASS_SEGMENT) return c * port->stride[3];
    if (q->segment && s->kind == STEP_LOAD)
        return c / q->segment * port->stride[3] + c % q->segment * port->stride[2];
    return c * port->stride[q->rank - 1];
}

static int64_t columns_of(const struct program *q, const struct step *s)
{
    int64_t all = q->rank ? q->dim[q->rank - 1] : 1, n = s->half ? all / 2 : all;
    if (s->range) n = q->range[s->range - 1].end - q->range[s->range - 1].first;
    if (s->store_columns.end) n = s->store_columns.end - s->store_columns.first;
    if (s->cls == CLASS_SEGMENT) n /= q->segment;
    return s->cls == CLASS_ROW ? 1 : n;
}

static void touch_row(struct touched *t, const struct program *q, const struct step *s, int64_t row,
                      const int64_t *index)
{
    const struct tensor_use *port = &q->port[s->port];
    int64_t at = port->offset;
    for (int d = 0; d + 1 < q->rank; d++) at += port->stride[d] * samples_of(q, row, d, index);
    for (int64_t c = 0; c < columns_of(q, s); c++) touch(t, at + column_at(q, s, port, c));
}

static int64_t rows_of(const struct program *q)
{
    int64_t rows = 1;
    for (int d = 0; d + 1 < q->rank; d++) rows *= q->dim[d];
    return rows;
}

/* All that steps touch by a port, row by row. */
static int64_t count_port(const struct program *q, int port)
{
    enum { SPAN = 1 << 20 };
    struct touched t = {
        .element = calloc(SPAN, sizeof(bool)), .first = q->port[port].offset - SPAN / 2, SPAN};
    for (int i = 0; i < q->steps; i++) {
        if (q->step[i].port != port) continue;
        for (int64_t row = 0; row < rows_of(q); row++) {
            int64_t index[CODA_MAX_RANK], rest = row;
            for (int d = q->rank - 2; d >= 0; rest /= q->dim[d--]) index[d] = rest % q->dim[d];
            touch_row(&t, q, &q->step[i], row, index);
        }
    }
    free(t.element);
    int64_t bytes = t.count * (int64_t)dtype_bytes(q->port[port].dtype, 1);
    return use_effect(&q->port[port]) & EFFECT_ADD ? 2 * bytes : bytes; /* it is read, too */
}

static bool is_placed(const struct tensor_use *u) { return u->role == USE_LOAD || u->role == USE_STORE; }

/* Records that have elements of one batch. */
static int64_t count_packed(const struct program *q, const struct tensor_use *o)
{
    enum { MOST = 1 << 12 };
    struct pack_format f = graph_format_of(o->packing.format);
    struct pack_record p = pack_record(&f);
    static bool met[MOST];
    int64_t count = 0, across = pack_records(&f, o->packing.columns);
    memset(met, 0, sizeof met);
    for (int64_t n = 0; n < q->dim[2]; n++)
        for (int64_t k = 0; k < q->k; k++) {
            int64_t at = o->offset + n * o->row + k * o->k, row = at / o->packing.columns;
            int64_t record = row / PACK_ROWS * across + at % o->packing.columns / p.step;
            ck_assert(record < MOST);
            count += !met[record];
            met[record] = true;
        }
    return count * p.bytes;
}

static int64_t count_operand(const struct program *q, const struct tensor_use *o, int64_t rows)
{
    bool some = q->dim[0] && q->dim[1] && q->dim[2];
    if (some && use_is_packed(o)) return (o->batch ? q->dim[0] : 1) * count_packed(q, o);
    return some ? (o->batch ? q->dim[0] : 1) * rows * q->k * (int64_t)dtype_bytes(o->dtype, 1) : 0;
}

/* Ports that are found by ids, and states, have no places of their own: they are taken as they are, states
 * once. */
static int64_t count_program(const struct program *q)
{
    int64_t bytes = 0;
    for (int i = 0; i < q->ports; i++) {
        bool again = false;
        for (int j = 0; j < i && q->port[i].role == USE_PARTIAL_LOAD; j++)
            again = again || (q->port[j].role == USE_PARTIAL_LOAD && q->port[j].buffer == q->port[i].buffer);
        if (!again) bytes += is_placed(&q->port[i]) ? count_port(q, i) : port_bytes(q, i);
    }
    if (q->kind != PROGRAM_GEMM) return bytes;
    return bytes + count_operand(q, &q->a.data, q->dim[1]) + count_operand(q, &q->b.data, q->dim[2]);
}

static void check_plan(const struct plan *p, const char *name)
{
    struct text t = {0};
    for (int i = 0; i < p->programs; i++) {
        const struct program *q = &p->program[i];
        if (q->kind == PROGRAM_OWN || count_program(q) == program_bytes(q)) continue;
        program_print_head(q, &t);
        program_print_body(&(struct tensor_names){p->graph, p->buffer}, q, &t);
        ck_abort_msg("%s: %lld bytes are counted, %lld said\n%s", name, (long long)count_program(q),
                     (long long)program_bytes(q), text_str(&t));
    }
}

static void check(const graph *g, const char *name)
{
    static const unsigned flags[] = {0, CODA_NO_FUSION};
    for (int i = 0; i < ARRAY_SIZE(flags); i++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        coda_plan *p;
        opt.device = CODA_DEVICE_NONE;
        opt.arch = "sm_90a";
        opt.flags = CODA_PLAN_ONLY | flags[i];
        opt.fold = CODA_FOLD_COPY;
        ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s: %s", name, coda_error());
        check_plan(&p->plan, name);
        coda_plan_free(p);
    }
}

START_TEST(bytes_of_random_plans)
{
    static const struct random_options ro[] = {
        {.patterns = 4}, {.patterns = 5, .states = true}, {.patterns = 2, .most_dim = 64}};
    uint64_t seed = random_seed();
    for (uint64_t i = 0; i < (uint64_t)scaled(200); i++) {
        char name[32];
        graph *g = random_graph(seed + i, &ro[i % 3]);
        snprintf(name, sizeof name, "seed %llu", (unsigned long long)(seed + i));
        if (random_is_small(g)) check(g, name);
        graph_free(g);
    }
}
END_TEST

/* What ranges store and load, gains of segments, statistics of them, columns that go to a state, halves,
 * vectors of samples, nothing at all. */
static const char *const texts[] = {
    "%x = input bf16[24,32]\n%w = weight bf16[256,32]\n%p = matmul %x, %w\n%q = slice %p "
    "{axis=1,stop=128,step=1}\n"
    "%k = slice %p {axis=1,start=128,stop=192,step=1}\n%v = slice %p {axis=1,start=192,stop=256,step=1}\n"
    "%g = weight f32[32]\n%q3 = reshape %q {d0=24,d1=4,d2=32,rank=3}\n%qn = rms_norm %q3, %g {eps=1e-5}\n"
    "%k3 = reshape %k {d0=24,d1=2,d2=32,rank=3}\n%m = max %k3\noutput %y = %qn\noutput %m = %m\noutput %v = "
    "%v\n",
    "%x = input bf16[6,32]\n%w = weight bf16[96,32]\n%c = state bf16[16,32]\n%i = input i32[6]\n%p = matmul "
    "%x, %w\n"
    "%s = slice %p {axis=1,start=64,stop=96,step=1}\n%c1 = append %c, %s, %i\n"
    "%y = slice %p {axis=1,stop=32,step=1}\noutput %y = %y\n",
    "%x = input bf16[6,32]\n%w = weight bf16[128,32]\n%z = input bf16[6,64]\n%p = matmul %x, %w\n"
    "%a = slice %p {axis=1,stop=64,step=1}\n%b = slice %p {axis=1,start=64,stop=128,step=1}\n%y = swiglu %a, "
    "%b\n"
    "%r = add %y, %z\noutput %y = %r\n",
    "%x = input bf16[2,70,32]\n%w = weight bf16[64,32]\n%v = input f32[2,1,64]\n%r = input f32[2,70,1]\n"
    "%p = matmul %x, %w\n%a = mul %p, %v\n%y = mul %a, %r\noutput %y = %y\n",
    "%x = input bf16[0,5,32]\n%w = weight bf16[64,32]\n%p = matmul %x, %w\n%t = tanh %p\noutput %y = %t\n",
    "%x = input f32[9,40]\n%k = state f32[8,1]\n%i = input i32[9]\n%m = max %x\n%k1 = append %k, %m, %i\n"
    "%t = tanh %x\noutput %t += %t\n",
};

START_TEST(bytes_of_ranges_and_parts)
{
    graph *g = graph_parse(texts[_i]);
    ck_assert_msg(g != NULL, "%s", coda_error());
    check(g, "a text");
    graph_free(g);
}
END_TEST

TESTS(bytes, SECONDS(600), ONE(bytes_of_random_plans), EACH(bytes_of_ranges_and_parts, ARRAY_SIZE(texts)));

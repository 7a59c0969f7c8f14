/* test_exchange.c -- one graph over several ranks: threads on the CPU device and in the evaluator, against
 * the whole of it, and against loops; ranks that differ, are late, leave or fail. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit.h"
#include "util_overlap.h"
#include "util_random.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { MOST_RANKS = 8, MOST_ARGS = 16, MOST_TEXT = 2048, LONG_MS = 300000, SHORT_MS = 60, TOO_LATE = -1 };

static const int counts[] = {1, 2, 3, 4, 8};

/* ---- Ranks as threads ---- */

struct rank {
    coda_group *group;
    const coda_plan *plan; /* NULL: the graph is evaluated */
    const coda_graph *graph;
    void *args[MOST_ARGS];
    void *work;
    int delay_ms; /* TOO_LATE: until the group has failed without it */
    coda_status status;
    char error[1024];
};

static void *run_rank(void *ctx)
{
    struct rank *r = ctx;
    struct timespec t = {r->delay_ms / 1000, r->delay_ms % 1000 * 1000000L};
    if (r->delay_ms > 0) nanosleep(&t, NULL);
    while (r->delay_ms == TOO_LATE && !coda_group_status(r->group)) sched_yield();
    r->status = r->plan ? coda_run(r->plan, r->args, NULL, r->work, NULL) : coda_evaluate(r->graph, r->args);
    snprintf(r->error, sizeof r->error, "%s", r->status ? coda_error() : "");
    return NULL;
}

static void run_ranks(struct rank *r, int ranks)
{
    pthread_t thread[MOST_RANKS];
    for (int i = 0; i < ranks; i++) ck_assert_int_eq(pthread_create(&thread[i], NULL, run_rank, &r[i]), 0);
    for (int i = 0; i < ranks; i++) pthread_join(thread[i], NULL);
}

static void make_groups(struct rank *r, int ranks, int timeout_ms)
{
    coda_group *group[MOST_RANKS];
    coda_group_options opt = CODA_GROUP_OPTIONS_INIT;
    opt.timeout_ms = timeout_ms;
    ck_assert_msg(coda_group_local(group, ranks, &opt) == CODA_OK, "%s", coda_error());
    for (int i = 0; i < ranks; i++) {
        r[i].group = group[i];
        ck_assert_int_eq(coda_group_rank(group[i]), i);
        ck_assert_int_eq(coda_group_status(group[i]), CODA_OK);
    }
}

static void free_groups(struct rank *r, int ranks)
{
    for (int i = 0; i < ranks; i++) coda_group_free(r[i].group);
}

static coda_graph *parsed(const char *text)
{
    coda_graph *g;
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s\n%s", text, coda_error());
    return g;
}

static coda_plan *compiled(const coda_graph *g, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU;
    opt.flags = flags;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    return p;
}

/* Poisoned, another byte for each. */
static void *poisoned(size_t bytes, int how)
{
    void *p = NULL;
    ck_assert_int_eq(posix_memalign(&p, 256, bytes + 256), 0);
    memset(p, 0x40 + 0x3d * how, bytes + 256);
    return p;
}

/* ---- Each exchange, against loops ---- */

struct exchange_case {
    const char *operation;
    int rank, axis;
    int64_t dim[3]; /* of x; along the axis of each part */
};

static const struct exchange_case exchanges[] = {
    {"all_reduce", 2, -1, {5, 33}},    {"all_reduce", 1, -1, {3000}},
    {"reduce_scatter", 2, 0, {3, 40}}, {"reduce_scatter", 3, 1, {2, 3, 1100}},
    {"reduce_scatter", 2, 1, {4, 7}},  {"all_gather", 2, 0, {3, 10}},
    {"all_gather", 3, 1, {4, 2, 9}},   {"all_gather", 2, 1, {6, 5}},
    {"all_gather", 1, 0, {1}},
};

static int64_t times(const int64_t *dim, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++) n *= dim[d];
    return n;
}

/* x of each rank: small multiples of a power of two, so that any order of sums is exact. */
static float element(int rank, int64_t i) { return (float)((i * 7 + rank * 13) % 31 - 15) / 8; }

/* Element i of the result on rank r, in terms of x's shape and where its parts lie. */
static float expected(const struct exchange_case *c, const int64_t *dim, int ranks, int r, int64_t i)
{
    int axis = c->axis < 0 ? c->rank - 1 : c->axis;
    int64_t inner = times(dim, axis + 1, c->rank), extent = dim[axis];
    float sum = 0;
    if (!strcmp(c->operation, "all_gather")) {
        int64_t along = i / inner % (extent * ranks), outer = i / inner / (extent * ranks);
        return element((int)(along / extent), (outer * extent + along % extent) * inner + i % inner);
    }
    if (!strcmp(c->operation, "reduce_scatter")) {
        int64_t part = extent / ranks, along = i / inner % part, outer = i / inner / part;
        i = (outer * extent + r * part + along) * inner + i % inner;
    }
    for (int k = 0; k < ranks; k++) sum += element(k, i);
    return sum;
}

static void shape_of(const struct exchange_case *c, int ranks, int64_t *dim)
{
    for (int d = 0; d < c->rank; d++) dim[d] = c->dim[d];
    if (!strcmp(c->operation, "reduce_scatter")) dim[c->axis] *= ranks;
}

static void write_text(const struct exchange_case *c, const int64_t *dim, int ranks, const char *dtype,
                       char *text)
{
    char dims[64] = "", axis[32] = "";
    for (int d = 0; d < c->rank; d++)
        snprintf(dims + strlen(dims), sizeof dims - strlen(dims), "%s%lld", d ? "," : "", (long long)dim[d]);
    if (c->axis >= 0) snprintf(axis, sizeof axis, " {axis=%d}", c->axis);
    snprintf(text, MOST_TEXT,
             "%%tp = group {ranks=%d}\n%%x = input %s [%s]\n%%y = %s %%x, %%tp%s\noutput %%out = %%y\n",
             ranks, dtype, dims, c->operation, axis);
}

static float loaded(bool half, const void *base, int64_t i)
{
    uint32_t bits = half ? (uint32_t)((const uint16_t *)base)[i] << 16 : ((const uint32_t *)base)[i];
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void store(bool half, void *base, int64_t i, float x) /* exact, as all values of the cases are */
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (half) ((uint16_t *)base)[i] = (uint16_t)(bits >> 16);
    else ((uint32_t *)base)[i] = bits;
}

static void check_exchange(const struct exchange_case *c, int ranks, bool half, unsigned flags)
{
    char text[MOST_TEXT];
    int64_t dim[3], n, made;
    struct rank r[MOST_RANKS] = {{0}};
    size_t bytes = half ? 2 : 4;
    shape_of(c, ranks, dim);
    write_text(c, dim, ranks, half ? "bf16" : "f32", text);
    coda_graph *g = parsed(text);
    coda_plan *p = compiled(g, flags);
    coda_arg_info out = CODA_ARG_INFO_INIT;
    n = times(dim, 0, c->rank);
    ck_assert_int_eq(coda_plan_arg(p, 2, &out), CODA_OK);
    made = (int64_t)(out.bytes / bytes);
    make_groups(r, ranks, LONG_MS);
    for (int again = 0; again < 2; again++) {
        for (int k = 0; k < ranks; k++) {
            r[k].plan = p;
            r[k].args[0] = r[k].group;
            r[k].args[1] = poisoned((size_t)n * bytes, k);
            for (int64_t i = 0; i < n; i++) store(half, r[k].args[1], i, element(k, i));
            r[k].args[2] = poisoned((size_t)made * bytes, k + again);
            r[k].work = poisoned(coda_plan_workspace(p), k + again);
        }
        run_ranks(r, ranks);
        for (int k = 0; k < ranks; k++) {
            ck_assert_msg(!r[k].status, "%s\nrank %d: %s", text, k, r[k].error);
            for (int64_t i = 0; i < made; i++)
                ck_assert_msg(loaded(half, r[k].args[2], i) == expected(c, dim, ranks, k, i),
                              "%s\nrank %d: element %lld is %g, not %g", text, k, (long long)i,
                              loaded(half, r[k].args[2], i), expected(c, dim, ranks, k, i));
            free(r[k].args[1]), free(r[k].args[2]), free(r[k].work);
        }
    }
    free_groups(r, ranks);
    coda_plan_free(p);
    coda_graph_free(g);
}

START_TEST(moves_and_adds)
{
    for (int i = 0; i < ARRAY_SIZE(counts); i++)
        for (int half = 0; half < 2; half++)
            check_exchange(&exchanges[_i], counts[i], half, i % 2 ? CODA_NO_FUSION : 0);
}
END_TEST

/* ---- A block whose weights are cut, against the whole of it ---- */

enum { M = 6, K = 24, F = 48 };

static const char whole[] =
    "%x = input f32 [6,24]\n%g = weight f32 [24]\n%wu = weight f32 [48,24]\n"
    "%wd = weight f32 [24,48]\n%n = rms_norm %x, %g {eps=1e-5}\n%u = matmul %n, %wu\n"
    "%a = silu %u\n%z = matmul %a, %wd\n%r = add %x, %z\n%n2 = rms_norm %r, %g {eps=1e-5}\n"
    "%u2 = matmul %n2, %wu\n%a2 = relu %u2\n%z2 = matmul %a2, %wd\n%y = add %r, %z2\n"
    "output %out = %y\n";

/* Columns of wu and rows of wd, a part for each rank; the rows of what follows are cut, too, in the second
 * half: reduce_scatter, and all_gather ahead of the next product. */
static const char cut[] =
    "%%tp = group {ranks=%d}\n%%x = input f32 [6,24]\n%%g = weight f32 [24]\n%%wu = weight f32 [%d,24]\n"
    "%%wd = weight f32 [24,%d]\n%%n = rms_norm %%x, %%g {eps=1e-5}\n%%u = matmul %%n, %%wu\n%%a = silu %%u\n"
    "%%z = matmul %%a, %%wd\n%%s = all_reduce %%z, %%tp\n%%r = add %%x, %%s\n%%n2 = rms_norm %%r, %%g "
    "{eps=1e-5}\n"
    "%%u2 = matmul %%n2, %%wu\n%%a2 = relu %%u2\n%%z2 = matmul %%a2, %%wd\n"
    "%%p = reduce_scatter %%z2, %%tp, %%s {axis=0}\n%%q = all_gather %%p, %%tp, %%p {axis=0}\n"
    "%%y = add %%r, %%q\noutput %%out = %%y\n";

static void fill(float *x, int64_t n, struct random *r, double scale)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)(random_normal(r) * scale);
}

struct block {
    float x[M * K], g[K], wu[F * K], wd[K * F];
    double want[M * K];
};

static void evaluate_whole(struct block *b)
{
    coda_graph *g = parsed(whole);
    void *args[] = {b->x, b->g, b->wu, b->wd, b->want};
    ck_assert_msg(coda_evaluate(g, args) == CODA_OK, "%s", coda_error());
    coda_graph_free(g);
}

/* Rank k's arguments of the cut graph. */
static void cut_block(const struct block *b, struct rank *r, int ranks, int k)
{
    int part = F / ranks;
    float *wu = poisoned(sizeof *wu * (size_t)(part * K), k),
          *wd = poisoned(sizeof *wd * (size_t)(K * part), k);
    memcpy(wu, b->wu + k * part * K, sizeof *wu * (size_t)(part * K));
    for (int i = 0; i < K; i++) memcpy(wd + i * part, b->wd + i * F + k * part, sizeof *wd * (size_t)part);
    void *args[] = {r->group, (void *)b->x, (void *)b->g, wu, wd, poisoned(sizeof b->want, k)};
    memcpy(r->args, args, sizeof args);
}

static void free_block(struct rank *r)
{
    for (int i = 3; i < 6; i++) free(r->args[i]);
    free(r->work);
}

static void check_block(const struct block *b, int ranks, bool evaluated)
{
    char text[MOST_TEXT];
    struct rank r[MOST_RANKS] = {{0}};
    snprintf(text, sizeof text, cut, ranks, F / ranks, F / ranks);
    coda_graph *g = parsed(text);
    coda_plan *p = evaluated ? NULL : compiled(g, 0);
    make_groups(r, ranks, LONG_MS);
    for (int k = 0; k < ranks; k++) {
        cut_block(b, &r[k], ranks, k);
        r[k].plan = p, r[k].graph = g, r[k].delay_ms = k % 3;
        r[k].work = poisoned(p ? coda_plan_workspace(p) : 0, k);
    }
    run_ranks(r, ranks);
    for (int k = 0; k < ranks; k++) {
        ck_assert_msg(!r[k].status, "%d ranks, rank %d: %s", ranks, k, r[k].error);
        const double *exact = r[k].args[5];
        const float *got = r[k].args[5];
        for (int i = 0; i < M * K; i++) {
            double y = evaluated ? exact[i] : (double)got[i], allowed = evaluated ? 1e-12 : 2e-5;
            ck_assert_msg(fabs(y - b->want[i]) <= allowed * (1 + fabs(b->want[i])),
                          "%d ranks, rank %d: element %d is %.9g, not %.9g", ranks, k, i, y, b->want[i]);
        }
        size_t bytes = M * K * (evaluated ? sizeof(double) : sizeof(float));
        ck_assert_msg(!memcmp(r[k].args[5], r[0].args[5], bytes), "%d ranks: rank %d has other bits", ranks,
                      k);
    }
    for (int k = 0; k < ranks; k++) free_block(&r[k]);
    free_groups(r, ranks);
    coda_plan_free(p);
    coda_graph_free(g);
}

START_TEST(a_block_in_parts)
{
    struct block b;
    struct random r = {random_seed()};
    fill(b.x, M * K, &r, 1), fill(b.g, K, &r, 1);
    fill(b.wu, F * K, &r, 1 / sqrt(K)), fill(b.wd, K * F, &r, 1 / sqrt(F));
    evaluate_whole(&b);
    static const int of[] = {1, 2, 3, 6};
    for (int i = 0; i < ARRAY_SIZE(of); i++) check_block(&b, of[i], _i);
}
END_TEST

/* The builder keeps the order of calls: each exchange names the one before it, which the text form shows. */
START_TEST(calls_keep_their_order)
{
    char text[MOST_TEXT];
    coda_graph *g = coda_graph_new();
    coda_value tp = coda_group_input(g, "tp", 2), dp = coda_group_input(g, "dp", 3);
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){4, 6});
    coda_value a = coda_all_reduce(g, x, tp), b = coda_all_gather(g, x, -1, dp);
    coda_value c = coda_reduce_scatter(g, a, 0, tp);
    coda_output(g, "b", b), coda_output(g, "c", c);
    ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s", coda_error());
    ck_assert(coda_graph_print(g, text, sizeof text) < (int64_t)sizeof text);
    ck_assert_msg(strstr(text, "%tp = group {ranks=2}\n"), "%s", text);
    ck_assert_msg(strstr(text, "reduce_scatter %3, %tp, %3"), "%s", text);
    ck_assert_msg(strstr(text, "all_gather %x, %dp {axis=1}"), "%s", text);
    coda_graph *again = parsed(text);
    coda_arg_info info = CODA_ARG_INFO_INIT;
    ck_assert_int_eq(coda_graph_arg(again, 1, &info), CODA_OK);
    ck_assert(info.kind == CODA_ARG_GROUP && info.dims[0] == 3 && info.bytes == 0 &&
              !strcmp(info.name, "dp"));
    coda_graph_free(again);
    coda_graph_free(g);
}
END_TEST

/* ---- What is refused ---- */

static const struct {
    const char *text, *error;
} refused[] = {
    {"%g = group {ranks=0}\n", "group g: ranks is 0; must be 1..1024"},
    {"%g = group {ranks=1025}\n", "ranks is 1025; must be 1..1024"},
    {"%g = group {ranks=2}\noutput %y = %g\n", "the value is a group, no tensor"},
    {"%g = group {ranks=2}\n%x = input f32 [2,2]\n%y = add %x, %g\n", "operand 1 is a group, no tensor"},
    {"%g = group {ranks=2}\n%y = all_gather %g, %g {axis=0}\n", ": operand 0 is a group, no tensor"},
    {"%x = input f32 [2,2]\n%y = all_reduce %x, %x\n",
     ": group is f32[2,2], a tensor; must be of coda_group_input"},
    {"%g = group {ranks=2}\n%x = input f32 [2,2]\n%y = all_reduce %x, %g, %x\n", "must be an exchange's"},
    {"%g = group {ranks=2}\n%x = input i32 [2,2]\n%y = all_reduce %x, %g\n", "it must be f32, bf16 or f16"},
    {"%g = group {ranks=3}\n%x = input f32 [4,6]\n%y = reduce_scatter %x, %g {axis=0}\n",
     ": x is [4,6]; 3 ranks do not divide its 4 along axis 0"},
    {"%g = group {ranks=3}\n%x = input f32 [4,6]\n%y = reduce_scatter %x, %g {axis=2}\n", "it has no axis 2"},
    {"%g = group {ranks=1024}\n%x = input f32 [4611686018427387,6]\n%y = all_gather %x, %g {axis=0}\n", ""},
};

START_TEST(says_what_is_wrong)
{
    coda_graph *g;
    coda_status s = coda_graph_parse(&g, refused[_i].text);
    ck_assert_msg(s == CODA_E_INVALID, "%s: %s", refused[_i].text, coda_status_name(s));
    ck_assert_msg(strstr(coda_error(), refused[_i].error), "%s\n%s", refused[_i].text, coda_error());
    coda_graph_free(g);
}
END_TEST

static const char sum_of_two[] = "%tp = group {ranks=2}\n%x = input f32 [4]\n%y = all_reduce %x, %tp\n"
                                 "output %out = %y\n";

/* Two ranks of a plan, the second of another one if there is; what each says in the end. */
static void run_two(const char *first, const char *second, int timeout_ms, int delay_ms, struct rank *r)
{
    static float memory[2][2][64];
    const char *text[] = {first, second};
    coda_graph *g[2];
    coda_plan *p[2];
    make_groups(r, 2, timeout_ms);
    for (int k = 0; k < 2; k++) {
        g[k] = parsed(text[k]), p[k] = compiled(g[k], 0);
        r[k].plan = p[k];
        r[k].args[0] = r[k].group, r[k].args[1] = memory[k][0], r[k].args[2] = memory[k][1];
        r[k].work = poisoned(coda_plan_workspace(p[k]), k);
    }
    r[1].delay_ms = delay_ms;
    run_ranks(r, 2);
    for (int k = 0; k < 2; k++) coda_plan_free(p[k]), coda_graph_free(g[k]), free(r[k].work);
}

START_TEST(ranks_that_differ)
{
    static const char *const other[][2] = {
        {"%tp = group {ranks=2}\n%x = input f32 [5]\n%y = all_reduce %x, %tp\noutput %out = %y\n",
         "exchange 1: rank 0 has all_reduce of f32 [1,4,1], rank 1 has all_reduce of f32 [1,5,1]"},
        {"%tp = group {ranks=2}\n%x = input bf16 [4]\n%y = all_reduce %x, %tp\noutput %out = %y\n",
         "rank 1 has all_reduce of bf16 [1,4,1]"},
        {"%tp = group {ranks=2}\n%x = input f32 [4]\n%y = all_gather %x, %tp {axis=0}\noutput %out = %y\n",
         "rank 1 has all_gather of f32 [1,4,1]"},
        {"%tp = group {ranks=2}\n%x = input f32 [4]\n%h = relu %x\n%y = all_reduce %h, %tp\n"
         "output %out = %y\n",
         "rank 0 and rank 1 run other graphs, whose 1 exchanges are equal"},
        {"%tp = group {ranks=2}\n%x = input f32 [4]\n%h = all_reduce %x, %tp\n%s = add %h, %x\n"
         "%y = all_reduce %s, %tp, %h\noutput %out = %y\n",
         "exchange 2: rank 0 has no more, rank 1 has all_reduce of f32 [1,4,1]"}};
    for (int i = 0; i < ARRAY_SIZE(other); i++) {
        struct rank r[2] = {{0}};
        run_two(sum_of_two, other[i][0], LONG_MS, 0, r);
        for (int k = 0; k < 2; k++) {
            ck_assert_int_eq(r[k].status, CODA_E_INVALID);
            ck_assert_msg(strstr(r[k].error, other[i][1]), "rank %d: %s", k, r[k].error);
            ck_assert_int_eq(coda_group_status(r[k].group), CODA_E_INVALID);
        }
        free_groups(r, 2);
    }
}
END_TEST

/* The one that waits names the one that is late, and that one learns of it. */
START_TEST(a_rank_that_is_late)
{
    struct rank r[2] = {{0}};
    run_two(sum_of_two, sum_of_two, SHORT_MS, TOO_LATE, r);
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(r[k].status, CODA_E_DEVICE);
        ck_assert_msg(strstr(r[k].error, "rank 1 missed exchange 1 (all_reduce) for 60 ms"), "%s",
                      r[k].error);
    }
    free_groups(r, 2);
    memset(r, 0, sizeof r);
    run_two(sum_of_two, sum_of_two, LONG_MS, SHORT_MS,
            r); /* a new group works, and waits as long as it may */
    for (int k = 0; k < 2; k++) ck_assert_msg(!r[k].status, "%s", r[k].error);
    free_groups(r, 2);
}
END_TEST

static void *end_rank(void *ctx)
{
    struct rank *r = ctx;
    struct timespec t = {0, SHORT_MS * 1000000L};
    nanosleep(&t, NULL);
    if (r->delay_ms) coda_group_abort(r->group);
    else coda_group_free(r->group), r->group = NULL;
    return NULL;
}

/* A rank leaves, or gives up, while another one waits for it without end. */
START_TEST(a_rank_that_ends)
{
    static const char *const why[] = {"rank 1 left the group before exchange 1 (all_reduce)",
                                      "rank 1 gave up: coda_group_abort"};
    struct rank r[2] = {{0}};
    float x[4] = {0}, y[4];
    pthread_t other;
    coda_graph *g = parsed(sum_of_two);
    coda_plan *p = compiled(g, 0);
    make_groups(r, 2, -1);
    void *args[] = {r[0].group, x, y}, *work = poisoned(coda_plan_workspace(p), 0);
    r[1].delay_ms = _i;
    ck_assert_int_eq(pthread_create(&other, NULL, end_rank, &r[1]), 0);
    ck_assert_int_eq(coda_run(p, args, NULL, work, NULL), CODA_E_DEVICE);
    ck_assert_msg(strstr(coda_error(), why[_i]), "%s", coda_error());
    pthread_join(other, NULL);
    free_groups(r, 2);
    free(work);
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

/* ---- Ends at any moment ---- */

enum { INSTANTS = 32, ALL_INSTANTS = 1000, RUNS = 6 };

static const char three_sums[] =
    "%tp = group {ranks=3}\n%x = input f32 [66]\n%a = all_reduce %x, %tp\n%b = tanh %a\n"
    "%c = reduce_scatter %x, %tp, %a {axis=0}\n%d = all_gather %b, %tp, %c {axis=0}\n"
    "output %y = %d\noutput %z = %c\n";

struct mortal {
    struct rank rank;
    float x[66], y[198], z[22];
    int runs;     /* that it comes to */
    int wrong;    /* elements */
    int after_us; /* when it is ended by another thread */
    bool leaves;  /* its handle is freed behind its runs */
};

static void *live(void *ctx)
{
    struct mortal *m = ctx;
    void *args[] = {m->rank.group, m->x, m->y, m->z};
    for (int i = 0; i < m->runs && !m->rank.status; i++) {
        m->rank.status = coda_run(m->rank.plan, args, NULL, m->rank.work, NULL);
        snprintf(m->rank.error, sizeof m->rank.error, "%s", m->rank.status ? coda_error() : "");
        for (int k = 0; k < 66 && !m->rank.status; k++)
            m->wrong += fabsf(m->y[k] - tanhf(3.0f * (float)k / 64)) > 1e-6f;
    }
    if (m->leaves) coda_group_free(m->rank.group), m->rank.group = NULL;
    return NULL;
}

static void *end_after(void *ctx)
{
    struct mortal *m = ctx;
    struct timespec t = {0, m->after_us * 1000L};
    nanosleep(&t, NULL);
    coda_group_abort(m->rank.group);
    return NULL;
}

/* Three ranks, of which one leaves, is late or is ended: the others say so, by its number, or have come
 * through; what they had had is right, and a new group works. */
static void end_one(const coda_plan *p, struct random *draw, int how)
{
    static const char *const words[] = {"rank %d left the group before exchange ", "",
                                        "rank %d gave up: coda_group_abort"};
    struct mortal m[3] = {{.runs = 0}};
    struct rank r[3] = {{0}};
    pthread_t thread[3], other;
    char who[64];
    int victim = (int)(random_next(draw) % 3);
    make_groups(r, 3, how == 1 ? SHORT_MS / 6 : LONG_MS);
    for (int k = 0; k < 3; k++) {
        m[k].rank = r[k], m[k].rank.plan = p, m[k].runs = RUNS,
        m[k].rank.work = poisoned(coda_plan_workspace(p), k);
        for (int i = 0; i < 66; i++) m[k].x[i] = (float)i / 64;
    }
    if (how < 2) m[victim].runs = (int)(random_next(draw) % RUNS);
    m[victim].leaves = !how, m[victim].after_us = (int)(random_next(draw) % 1500);
    for (int k = 0; k < 3; k++) ck_assert(!pthread_create(&thread[k], NULL, live, &m[k]));
    if (how == 2) ck_assert(!pthread_create(&other, NULL, end_after, &m[victim]));
    for (int k = 0; k < 3; k++) pthread_join(thread[k], NULL);
    if (how == 2) pthread_join(other, NULL);
    if (how == 1) snprintf(who, sizeof who, " missed exchange "); /* another one may have been late as well */
    else snprintf(who, sizeof who, words[how], victim);
    for (int k = 0; k < 3; k++) {
        ck_assert_msg(how == 2 || k == victim || m[k].rank.status, "rank %d came through", k);
        ck_assert_msg(!m[k].rank.status || strstr(m[k].rank.error, who), "%s: %s", who, m[k].rank.error);
        ck_assert_int_eq(m[k].wrong, 0);
        free(m[k].rank.work);
        coda_group_free(m[k].rank.group);
    }
}

START_TEST(ends_at_any_moment)
{
    struct random draw = {random_seed() + (uint64_t)_i};
    coda_graph *g = parsed(three_sums);
    coda_plan *p = compiled(g, CODA_NO_FUSION);
    for (int i = 0; i < (scale_is_full() ? ALL_INSTANTS : INSTANTS); i++) end_one(p, &draw, _i);
    coda_plan_free(p), coda_graph_free(g);
}
END_TEST

/* Handles of other groups, and pointers that are none. */
START_TEST(wrong_handles)
{
    struct rank r[3] = {{0}};
    float x[4] = {0}, y[4], no_handle[64] = {0};
    coda_graph *g = parsed(sum_of_two);
    coda_plan *p = compiled(g, 0);
    void *work = poisoned(coda_plan_workspace(p), 0), *args[] = {no_handle, x, y};
    make_groups(r, 3, LONG_MS);
    ck_assert_int_eq(coda_run(p, args, NULL, work, NULL), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "its argument is no coda_group"), "%s", coda_error());
    args[0] = NULL;
    ck_assert_int_eq(coda_run(p, args, NULL, work, NULL), CODA_E_INVALID);
    args[0] = r[0].group;
    ck_assert_int_eq(coda_run(p, args, NULL, work, NULL), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "its coda_group has 3 ranks, the graph 2"), "%s", coda_error());
    coda_group *none[1];
    ck_assert_int_eq(coda_group_local(none, 0, NULL), CODA_E_INVALID);
    ck_assert_int_eq(coda_group_local(NULL, 1, NULL), CODA_E_INVALID);
    free_groups(r, 3);
    free(work);
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

/* ---- Exchanges beside others ---- */

/* Of rank k's arguments one that is no output has small numbers of its own. */
static void make_args(struct rank *r, const coda_plan *p, int k, bool *output, size_t *bytes)
{
    for (int i = 0; i < MOST_ARGS; i++) {
        coda_arg_info info = CODA_ARG_INFO_INIT;
        struct random draw = {(uint64_t)(i * 8 + k + 1)};
        output[i] = false;
        if (coda_plan_arg(p, i, &info) != CODA_OK) break;
        output[i] = info.kind == CODA_ARG_OUTPUT, bytes[i] = info.bytes;
        if (info.kind == CODA_ARG_GROUP) r->args[i] = r->group;
        else r->args[i] = poisoned(info.bytes, k);
        for (size_t e = 0; info.kind != CODA_ARG_GROUP && !output[i] && e < info.bytes / 2; e++)
            ((uint16_t *)r->args[i])[e] = (uint16_t)(0x3e00 + random_next(&draw) % 64);
    }
}

/* What ranks have of one graph, with a flag and without; out[rank][argument] of outputs. */
static void run_flagged(const char *text, unsigned flags, void *out[2][MOST_ARGS], size_t *bytes)
{
    struct rank r[2] = {{0}};
    bool output[MOST_ARGS];
    coda_graph *g = parsed(text);
    coda_plan *p = compiled(g, flags);
    make_groups(r, 2, LONG_MS);
    for (int k = 0; k < 2; k++) {
        r[k].plan = p, r[k].work = poisoned(coda_plan_workspace(p), k);
        make_args(&r[k], p, k, output, bytes);
    }
    run_ranks(r, 2);
    for (int k = 0; k < 2; k++) {
        ck_assert_msg(r[k].status == CODA_OK, "%s", r[k].error);
        for (int i = 0; i < MOST_ARGS; i++) {
            out[k][i] = output[i] ? r[k].args[i] : NULL;
            if (!output[i] && r[k].args[i] != r[k].group) free(r[k].args[i]);
        }
        free(r[k].work);
    }
    free_groups(r, 2);
    coda_plan_free(p), coda_graph_free(g);
}

static int count_of(const char *text, const char *words)
{
    int n = 0;
    while ((text = strstr(text, words))) n++, text++;
    return n;
}

START_TEST(others_run_beside_with_equal_bits)
{
    static const char *const shown[] = {"   beside @5..@10\n@5 gemm", "   beside @2..@3\n@2 gemm",
                                        "   beside @5..@10\n@5 gemm", "   beside @5..@10\n@5 gemm"};
    char text[OVERLAP_TEXT], plan[1 << 14];
    void *without[2][MOST_ARGS], *with[2][MOST_ARGS];
    size_t bytes[MOST_ARGS];
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    int which = _i % OVERLAP_GRAPHS;
    /* Copies are the same to the CPU device, so that sanitizers see nothing new. */
    if (SANITIZED && !scale_is_full() && (uint64_t)_i != random_seed() % OVERLAP_GRAPHS) return;
    overlap_graph(text, sizeof text, which);
    coda_graph *g = parsed(text);
    opt.device = CODA_DEVICE_NONE, opt.arch = "sm_90a", opt.flags = CODA_PLAN_ONLY | CODA_OVERLAP;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    ck_assert(coda_plan_print(p, CODA_TEXT_PLAN, plan, sizeof plan) < (int64_t)sizeof plan);
    ck_assert_msg(strstr(plan, shown[which]), "%s", plan);
    ck_assert_msg(count_of(plan, "   beside @") == count_of(plan, " all_reduce ranks="), "%s", plan);
    coda_plan_free(p), coda_graph_free(g);
    run_flagged(text, 0, without, bytes);
    if (_i >= OVERLAP_GRAPHS) setenv("CODA_EXCHANGE", "copies", 1); /* which the CPU device has no use for */
    run_flagged(text, CODA_OVERLAP, with, bytes);
    unsetenv("CODA_EXCHANGE");
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < MOST_ARGS; i++) {
            if (without[k][i]) ck_assert(!memcmp(without[k][i], with[k][i], bytes[i]));
            free(without[k][i]), free(with[k][i]);
        }
}
END_TEST

/* ---- By kernels of ours: which, and what they take in ---- */

/* A plan for a GPU shows its exchanges; one rank has none. */
START_TEST(plans_show_exchanges)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    char text[MOST_TEXT], one[MOST_TEXT];
    opt.arch = "sm_90a";
    opt.flags = CODA_PLAN_ONLY;
    opt.device = CODA_DEVICE_NONE;
    for (int ranks = 1; ranks <= 2; ranks++) {
        coda_plan *p;
        snprintf(one, sizeof one, "%s", sum_of_two);
        one[strcspn(one, "2")] = (char)('0' + ranks);
        coda_graph *g = parsed(one);
        ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
        ck_assert(coda_plan_print(p, CODA_TEXT_PLAN, text, sizeof text) < (int64_t)sizeof text);
        bool shown = strstr(text, "all_reduce ranks=2 outer=1 extent=4 inner=1");
        ck_assert_msg(shown == (ranks == 2), "%s", text);
        coda_plan_free(p);
        coda_graph_free(g);
    }
}
END_TEST

TESTS(exchange, EACH(moves_and_adds, ARRAY_SIZE(exchanges)), EACH(a_block_in_parts, 2),
      ONE(calls_keep_their_order), EACH(says_what_is_wrong, ARRAY_SIZE(refused)), ONE(ranks_that_differ),
      ONE(a_rank_that_is_late), EACH(a_rank_that_ends, 2), EACH(ends_at_any_moment, 3), ONE(wrong_handles),
      EACH(others_run_beside_with_equal_bits, 2 * OVERLAP_GRAPHS), ONE(plans_show_exchanges));

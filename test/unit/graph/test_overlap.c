/* test_overlap.c -- which tensors share a byte, against all their bytes; and who may not overlap whom in the
 * arguments of a run, by messages that name both. */
#include "bind.h"
#include "util_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

/* ---- Against a map of bytes ---- */

enum { BYTES = 1 << 16, PLENTY = 1 << 20 };

struct tensor {
    coda_dtype dtype;
    int size, rank;
    int64_t dim[CODA_MAX_RANK], stride[CODA_MAX_RANK];
};

/* Strides as they pass the checks: each steps over all that the smaller ones span. */
static struct tensor draw(struct random *r)
{
    static const coda_dtype dtype[] = {CODA_F8E4M3, CODA_BF16, CODA_F32, CODA_I64};
    int chosen = (int)random_below(r, 4);
    struct tensor t = {
        .dtype = dtype[chosen], .size = 1 << chosen, .rank = (int)random_below(r, CODA_MAX_RANK + 1)};
    int order[CODA_MAX_RANK];
    int64_t span = 1;
    for (int d = 0; d < t.rank; d++) order[d] = d;
    for (int d = t.rank - 1; d > 0; d--) {
        int j = (int)random_below(r, d + 1), o = order[d];
        order[d] = order[j];
        order[j] = o;
    }
    for (int d = 0; d < t.rank; d++) {
        int o = order[d];
        t.dim[o] = random_chance(r, 3) ? 0 : 1 + random_below(r, random_chance(r, 50) ? 3 : 7);
        t.stride[o] = random_chance(r, 40) ? span : span + random_below(r, random_chance(r, 50) ? 3 : 20);
        if (t.dim[o] > 1) span += t.stride[o] * (t.dim[o] - 1);
    }
    return t;
}

/* Marks the bytes of t from `at` on, or finds one that is marked. */
static bool walk(const struct tensor *t, int64_t at, unsigned char *map, bool mark)
{
    int64_t n = 1;
    bool met = false;
    for (int d = 0; d < t->rank; d++) n *= t->dim[d];
    for (int64_t i = 0; i < n; i++) {
        int64_t e = 0, rest = i;
        for (int d = t->rank - 1; d >= 0; rest /= t->dim[d--]) e += rest % t->dim[d] * t->stride[d];
        for (int b = 0; b < t->size; b++) {
            unsigned char *p = &map[at + e * t->size + b];
            met = met || *p;
            if (mark) *p = 1;
        }
    }
    return met;
}

static struct lattice lattice(const struct tensor *t)
{
    return lattice_strided(t->dtype, t->rank, t->dim, t->stride);
}

START_TEST(as_a_map_of_bytes_says)
{
    struct random r = {random_seed()};
    unsigned char *map = malloc(3 * BYTES + 8);
    int drawn = 0, met = 0, apart_inside = 0;
    while (drawn < 20000) {
        struct tensor a = draw(&r), b = draw(&r);
        if (random_chance(&r, 40)) b = a;
        struct lattice la = lattice(&a), lb = lattice(&b);
        if (la.bytes > BYTES || lb.bytes > BYTES) continue;
        int64_t from = random_below(&r, la.bytes + lb.bytes + 4) - lb.bytes - 2,
                reach = MAX(la.bytes, lb.bytes);
        memset(map, 0, (size_t)(3 * reach + 8));
        walk(&a, reach + 4, map, true);
        bool want = walk(&b, reach + 4 + from, map, false);
        int work = PLENTY;
        enum meeting got = lattices_meet(&la, &lb, from, &work);
        ck_assert_msg(got == (want ? MEET : APART), "%d, not %d, from %lld", got, want, (long long)from);
        ck_assert_int_eq(lattices_meet(&lb, &la, -from, &work), got);
        drawn++;
        met += want;
        apart_inside += !want && la.bytes && lb.bytes && from < la.bytes && -from < lb.bytes;
    }
    ck_assert_int_gt(met, drawn / 20);
    ck_assert_int_gt(apart_inside, drawn / 20); /* boxes that meet, and tensors that do not */
    free(map);
}
END_TEST

/* Sizes of the real world take few steps; large ones do not overflow. */
START_TEST(few_steps)
{
    int64_t cache[] = {64, 32, 4096, 128}, by_head[] = {32LL * 4096 * 256, 4096 * 256, 256, 1};
    struct lattice k = lattice_strided(CODA_BF16, 4, cache, by_head);
    int work = 8;
    ck_assert_int_eq(lattices_meet(&k, &k, 256, &work), APART); /* v beside k, head by head */
    ck_assert_int_eq(lattices_meet(&k, &k, 254, &work), MEET);
    struct lattice odd = lattice_strided(CODA_F32, 2, (int64_t[]){1 << 20, 1 << 10}, (int64_t[]){1 << 12, 2});
    ck_assert_int_eq(lattices_meet(&odd, &odd, 4, &work), APART);
    ck_assert_int_eq(lattices_meet(&odd, &odd, 8, &work), MEET);
    struct lattice p = lattice_strided(CODA_F32, 2, (int64_t[]){1 << 20, 3}, (int64_t[]){9973, 1});
    struct lattice q = lattice_strided(CODA_F32, 2, (int64_t[]){1 << 20, 3}, (int64_t[]){9967, 1});
    ck_assert_int_eq(lattices_meet(&p, &q, 4000, &work), MEET);
    struct lattice huge = lattice_strided(CODA_F32, 2, (int64_t[]){1LL << 30, 1}, (int64_t[]){1LL << 29, 1});
    ck_assert_int_eq(lattices_meet(&huge, &huge, 4, &work), APART);
    ck_assert_int_eq(lattices_meet(&huge, &huge, 1LL << 60, &work), MEET);
    ck_assert_int_gt(work, 0);
}
END_TEST

/* 10007 x - 10009 y + 16 k = from, x and y below a million and k from -2 to 2: 10007 (x - y) = from + 2 y -
 * 16 k, so of some 10007 values of y in turn five will do. The search ends before, and says that it does not
 * know. */
START_TEST(work_is_bounded)
{
    struct lattice a = lattice_strided(CODA_F8E4M3, 2, (int64_t[]){1000000, 3}, (int64_t[]){10007, 16});
    struct lattice b = lattice_strided(CODA_F8E4M3, 2, (int64_t[]){1000000, 3}, (int64_t[]){10009, 16});
    int64_t from = 10007 * 50 - 2 * 3000;
    int work = 1000;
    ck_assert_int_eq(lattices_meet(&a, &b, from, &work), UNDECIDED);
    ck_assert_int_lt(work, 0);
    work = 12000;
    ck_assert_int_eq(lattices_meet(&a, &b, from, &work), MEET);
    ck_assert_int_gt(work, 0);
}
END_TEST

/* ---- Arguments of calls ---- */

/* x [4,8], w [8,8], s [4,8] with strides of 16 and 2, y like s: as a plan that folds a gain in place, too. */
static graph *make(void)
{
    graph *g = coda_graph_new();
    const int64_t xd[] = {4, 8}, wd[] = {8, 8}, every_second[] = {16, 2};
    coda_value x = coda_input(g, "x", CODA_F32, 2, xd),
               s = coda_input_strided(g, "s", CODA_F32, 2, xd, every_second);
    coda_value w = coda_weight(g, "w", CODA_F32, 2, wd), gain = coda_weight(g, "g", CODA_F32, 1, xd + 1);
    coda_value none = coda_input(g, "none", CODA_F32, 2, (int64_t[]){0, 8}), p;
    p = coda_matmul(g, coda_rms_norm(g, coda_add(g, x, s), gain, 1e-5f), w);
    coda_output_strided(g, "y", coda_silu(g, p), every_second);
    coda_output(g, "z", coda_row_sum(g, p));
    coda_output(g, "nothing", coda_relu(g, none));
    return g;
}

enum { X, S, W, G, NONE, Y, Z, NOTHING, ARGS };

struct memory {
    _Alignas(256) float f[ARGS][128];
    _Alignas(256) char work[1 << 13], prepared[1 << 13];
    _Alignas(256) double wide[ARGS][128];
};

enum call { RUN, PREPARE, EVALUATE };

static coda_status call(enum call what, const graph *g, const coda_plan *p, struct memory *m, void **args)
{
    coda_prepare_forget(NULL, 0);
    if (what == PREPARE) return coda_prepare(p, args, m->prepared, m->work, NULL);
    if (what == EVALUATE) return coda_evaluate(g, args);
    if (coda_plan_prepared_id(p)) coda_prepare_adopt(p, args, m->prepared);
    return coda_run(p, args, m->prepared, m->work, NULL);
}

/* Argument `i` is bound to `at`. Expects a line with both names; none: that it is taken. */
static const struct binding {
    int i, with;    /* at the address of this one ... */
    int64_t offset; /* ... and so many bytes on */
    const char *one, *other;
} bindings[] = {
    {Y, X, 0, "output y", "input x"},
    {Y, X, 112, "output y", "input x"},
    {Y, X, 128, NULL, NULL},
    {Y, S, 0, "output y", "input s"},
    {Y, S, 16, "output y", "input s"},
    {Z, S, 16, "output z", "input s"},
    {Z, W, 240, "output z", "weight w"},
    {Z, W, 256, NULL, NULL},
    {Y, Z, 0, "output y", "output z"},
    {Z, Y, 0, "output y", "output z"},
    {Z, Y, 240, "output y", "output z"},
    {Z, Y, 256, NULL, NULL},
    {X, S, 0, NULL, NULL},
    {NOTHING, X, 0, NULL, NULL},
    {NONE, Y, 16, NULL, NULL},
    {G, Y, 224, "output y", "weight g"},
};

START_TEST(calls_refuse_overlaps)
{
    static struct memory m;
    graph *g = make();
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    for (int i = 0; i < ARRAY_SIZE(bindings); i++)
        for (enum call what = RUN; what <= PREPARE; what++) {
            const struct binding *b = &bindings[i];
            void *args[ARGS];
            for (int j = 0; j < ARGS; j++) args[j] = m.f[j];
            args[b->i] = (char *)m.f[b->with] + b->offset;
            coda_status s = call(what, g, p, &m, args);
            ck_assert_msg(s == (b->one ? CODA_E_INVALID : CODA_OK), "%d: %s", i, s ? coda_error() : "taken");
            if (s)
                ck_assert_msg(strstr(coda_error(), b->one) && strstr(coda_error(), b->other), "%s",
                              coda_error());
        }
    coda_plan_free(p);
    graph_free(g);
}
END_TEST

START_TEST(evaluate_refuses_overlaps)
{
    static struct memory m;
    graph *g = make();
    void *args[ARGS];
    for (int j = 0; j < ARGS; j++) args[j] = m.wide[j];
    ck_assert_int_eq(coda_evaluate(g, args), CODA_OK);
    args[Y] = m.wide[X];
    ck_assert_int_eq(coda_evaluate(g, args), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "output y") && strstr(coda_error(), "input x"), "%s", coda_error());
    args[Y] = (char *)m.wide[Z] - 8 * 31; /* dense doubles: 32 of them */
    ck_assert_int_eq(coda_evaluate(g, args), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "output y") && strstr(coda_error(), "output z"), "%s", coda_error());
    args[Y] = m.wide[Y];
    args[X] = (char *)m.wide[X] + 2;
    ck_assert_int_eq(coda_evaluate(g, args), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "(x)") && strstr(coda_error(), "multiple of 4"), "%s", coda_error());
    args[X] = (char *)m.wide[X] + 4;
    ck_assert_int_eq(coda_evaluate(g, args), CODA_OK);
    graph_free(g);
}
END_TEST

/* A slice of the columns of a buffer is written beside two that are read. */
START_TEST(slices_of_one_buffer)
{
    _Alignas(256) float qkv[16][48];
    for (int way = 0; way < 3; way++) {
        graph *g = coda_graph_new();
        const int64_t d[] = {16, 16}, apart[] = {48, 1};
        coda_value q = coda_input_strided(g, "q", CODA_F32, 2, d, apart);
        coda_value k = coda_input_strided(g, "k", CODA_F32, 2, d, apart);
        coda_output_strided(g, "v", coda_add(g, q, k), apart);
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        coda_plan *p;
        opt.device = CODA_DEVICE_CPU;
        ck_assert_int_eq(coda_compile(&p, g, &opt), CODA_OK);
        for (int i = 0; i < 16 * 48; i++) qkv[i / 48][i % 48] = (float)i;
        void *args[] = {&qkv[0][0], &qkv[0][16],
                        way == 0   ? &qkv[0][32]
                        : way == 1 ? &qkv[0][28]
                                   : &qkv[1][12]};
        coda_status s = coda_run(p, args, NULL, NULL, NULL);
        ck_assert_int_eq(s, way ? CODA_E_INVALID : CODA_OK);
        if (way) ck_assert_ptr_nonnull(strstr(coda_error(), way == 1 ? "k" : "q"));
        for (int i = 0; i < 16 * 48; i++) {
            float want = way || i % 48 < 32 ? (float)i : (float)(2 * i - 48);
            ck_assert_msg(qkv[i / 48][i % 48] == want, "%d, %d: %g", way, i, qkv[i / 48][i % 48]);
        }
        coda_plan_free(p);
        graph_free(g);
    }
}
END_TEST

/* The workspace, prepared memory, and a weight that is folded in place; NULL, and addresses that cannot be.
 */
START_TEST(memory_is_checked)
{
    static struct memory m;
    graph *g = make();
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    for (int f = CODA_FOLD_NONE; f <= CODA_FOLD_IN_PLACE; f++) {
        coda_plan *p;
        void *args[ARGS];
        opt.fold = (coda_fold)f;
        ck_assert_int_eq(coda_compile(&p, g, &opt), CODA_OK);
        size_t work = coda_plan_workspace(p), prepared = coda_plan_prepared(p);
        ck_assert(work > 0 && work <= sizeof m.work && prepared <= sizeof m.prepared);
        ck_assert(f != CODA_FOLD_COPY || prepared > 0);
        static const struct {
            const char *prepare[3], *run[3];
        } want[] = {
            {{"prepare: workspace is NULL", "prepare: workspace is at", "prepare: workspace"},
             {"run: workspace is NULL", "run: workspace is at", "run: workspace"}},
            {{"prepare: prepared memory is NULL", "prepare: prepared memory is at",
              "overlaps prepared memory"},
             {"run: prepared memory is NULL", "run: prepared memory is at", "overlaps prepared memory"}},
        };
        for (int i = 0; i < ARGS; i++) args[i] = m.f[i];
        for (int which = 0; which <= (prepared > 0); which++)
            for (int bad = 0; bad < 3; bad++) {
                void *at = bad == 0 ? NULL : bad == 1 ? m.work + 128 : which ? m.work : (char *)m.f[X];
                void *ws = which ? m.work : at, *pr = which ? at : m.prepared;
                ck_assert_int_eq(coda_prepare(p, args, pr, ws, NULL), CODA_E_INVALID);
                ck_assert_msg(strstr(coda_error(), want[which].prepare[bad]), "%s", coda_error());
                ck_assert_int_eq(coda_run(p, args, pr, ws, NULL), CODA_E_INVALID);
                ck_assert_msg(strstr(coda_error(), want[which].run[bad]), "%s", coda_error());
            }
        ck_assert_int_eq(coda_run(p, NULL, m.prepared, m.work, NULL), CODA_E_INVALID);
        ck_assert_ptr_nonnull(strstr(coda_error(), "run: args is NULL; 8 pointers"));
        for (int i = 0; i < ARGS; i++) {
            bool empty = i == NONE || i == NOTHING;
            args[i] = empty ? (void *)3 : NULL;
            coda_status s = call(PREPARE, g, p, &m, args);
            ck_assert_int_eq(s, empty ? CODA_OK : CODA_E_INVALID);
            args[i] = (void *)(UINTPTR_MAX - 15);
            s = call(PREPARE, g, p, &m, args);
            if (!empty) ck_assert_msg(s && strstr(coda_error(), "is no address"), "%s", coda_error());
            args[i] = (char *)m.f[i] + 2;
            s = call(PREPARE, g, p, &m, args);
            if (!empty) ck_assert_msg(s && strstr(coda_error(), "not a multiple of 4"), "%s", coda_error());
            args[i] = m.f[i];
        }
        args[X] = m.f[W]; /* written by a fold in place, and read by its run */
        coda_status s = call(PREPARE, g, p, &m, args);
        ck_assert_int_eq(s, f == CODA_FOLD_IN_PLACE ? CODA_E_INVALID : CODA_OK);
        if (s)
            ck_assert_msg(strstr(coda_error(), "weight w") && strstr(coda_error(), "input x"), "%s",
                          coda_error());
        coda_plan_free(p);
    }
    graph_free(g);
}
END_TEST

/* ---- All arguments of a call, at random addresses that nobody follows ---- */

enum { LEAVES = 5, OUTPUTS = 8, ALL = LEAVES + OUTPUTS + 2 };

struct bound_call {
    struct arguments b;
    struct place place[ALL]; /* the last two: workspace and prepared memory */
    void *at[ALL];
};

static void draw_call(struct random *r, struct bound_call *c)
{
    int leaves = (int)random_below(r, LEAVES + 1), n = leaves + (int)random_below(r, OUTPUTS + 1);
    int64_t room = (int64_t)64 << random_below(r, 14);
    for (int i = 0; i < n + 2; i++) {
        struct tensor t = i < n ? draw(r) : (struct tensor){CODA_F8E4M3, .size = 1, .rank = 1, .stride = {1}};
        if (i >= n) t.dim[0] = random_chance(r, 30) ? 0 : 1 + random_below(r, 300);
        coda_arg_kind kind = i < leaves ? CODA_ARG_INPUT : CODA_ARG_OUTPUT;
        int align = i < n ? 16 : 256;
        c->place[i] = place_of("t", kind, t.dtype, t.rank, t.dim, t.stride, false);
        uintptr_t at = (uintptr_t)(4096 + random_below(r, room) * align);
        if (random_chance(r, 1)) at = 0;
        if (random_chance(r, 1)) at += (uintptr_t)(1 + random_below(r, align - 1));
        if (random_chance(r, 1)) at = UINTPTR_MAX - (uintptr_t)(random_below(r, 40) * align + align - 1);
        c->at[i] = (void *)at;
    }
    c->b = (struct arguments){.call = "run",
                              .place = c->place,
                              .places = n,
                              .args = c->at,
                              .workspace = c->at[n],
                              .workspace_bytes = c->place[n].at.bytes,
                              .prepared = c->at[n + 1],
                              .prepared_bytes = c->place[n + 1].at.bytes};
}

static bool is_sound(const struct bound_call *c, int i)
{
    uintptr_t at = (uintptr_t)c->at[i], bytes = (uintptr_t)c->place[i].at.bytes;
    return !bytes || (at && at % (i < c->b.places ? 16 : 256) == 0 && UINTPTR_MAX - at >= bytes);
}

/* Every pair, by the lattices alone. */
static bool is_good(const struct bound_call *c)
{
    bool good = true;
    for (int i = 0; i < c->b.places + 2; i++) good = good && is_sound(c, i);
    for (int i = 0; i < c->b.places + 2 && good; i++)
        for (int j = 0; j < i; j++) {
            int work = PLENTY;
            bool written = c->place[i].kind == CODA_ARG_OUTPUT || c->place[j].kind == CODA_ARG_OUTPUT;
            int64_t from = (int64_t)((uintptr_t)c->at[i] - (uintptr_t)c->at[j]);
            const struct lattice *a = &c->place[j].at, *b = &c->place[i].at;
            if (written && lattices_meet(a, b, from, &work) != APART) good = false;
        }
    return good;
}

/* However many are written: few are compared one by one, many are sorted. */
START_TEST(as_every_pair_says)
{
    struct random r = {random_seed() + 1};
    int good[ALL] = {0}, bad[ALL] = {0};
    for (int i = 0; i < 30000; i++) {
        static struct bound_call c;
        int written = 0;
        draw_call(&r, &c);
        for (int j = 0; j < c.b.places; j++) written += c.place[j].kind == CODA_ARG_OUTPUT;
        bool want = is_good(&c);
        ck_assert_msg((arguments_check(&c.b) == CODA_OK) == want, "call %d: %s", i,
                      want ? coda_error() : "taken");
        (want ? good : bad)[written]++;
    }
    for (int n = 1; n <= OUTPUTS; n++) ck_assert_msg(good[n] > 100 && bad[n] > 100, "%d outputs", n);
}
END_TEST

/* More tensors than are sorted at a time, interleaved: each is found whom it meets, and nobody else. */
START_TEST(many_outputs)
{
    enum { N = 700 };
    static _Alignas(256) float all[4][N * 4], x[16];
    static void *args[N + 1];
    graph *g = coda_graph_new();
    const int64_t d[] = {4, 4}, apart[] = {N * 4, 1};
    coda_value v = coda_input(g, "x", CODA_F32, 2, d);
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        coda_output_strided(g, name, coda_scale(g, v, (float)i), apart);
    }
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    for (int i = 0; i < 16; i++) x[i] = 1 + (float)i;
    args[0] = x;
    for (int i = 0; i < N; i++) args[1 + i] = &all[0][(i * 267 % N) * 4]; /* in no order */
    void *work = aligned_alloc(256, coda_plan_workspace(p) / 256 * 256 + 256);
    ck_assert_msg(coda_run(p, args, NULL, work, NULL) == CODA_OK, "%s", coda_error());
    for (int i = 0; i < N; i++)
        for (int j = 0; j < 16; j++) ck_assert(all[j / 4][(i * 267 % N) * 4 + j % 4] == (float)i * x[j]);
    args[1 + 5] = args[1 + 690];
    ck_assert_int_eq(coda_run(p, args, NULL, work, NULL), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "output y5 ") && strstr(coda_error(), "output y690 "), "%s",
                  coda_error());
    free(work);
    coda_plan_free(p);
    graph_free(g);
}
END_TEST

TESTS(overlap, ONE(as_a_map_of_bytes_says), ONE(few_steps), ONE(work_is_bounded), ONE(calls_refuse_overlaps),
      ONE(evaluate_refuses_overlaps), ONE(slices_of_one_buffer), ONE(memory_is_checked),
      ONE(as_every_pair_says), ONE(many_outputs));

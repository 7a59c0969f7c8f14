/* test_state.c -- states: what appending and assigning leave in the caller's memory, from run to run, in
 * which order it is read and written, and what is refused. On the CPU device, in each mode. */
#include "base.h" /* before check.h, which has a macro `fail` */

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <string.h>

#include "graph.h"
#include "util_mistake.h"
#include "util_appends.h"
#include "util_run.h"
#include "util_scale.h"

static coda_plan *compile(const coda_graph *g, const struct run_mode *mode)
{
    coda_plan *p = NULL;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    opt.flags = mode->flags;
    opt.fold = mode->fold;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    return p;
}

static coda_graph *parse(const char *text)
{
    coda_graph *g = NULL;
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s", coda_error());
    return g;
}

/* ---- Rows by slots ---- */

enum { ROWS = 5, SLOTS = 8, COLUMNS = 4, PITCH = 6 };

struct memory {
    _Alignas(256) float x[ROWS * COLUMNS], w[COLUMNS * COLUMNS], k[SLOTS * PITCH], y[SLOTS * COLUMNS],
        old[COLUMNS];
    _Alignas(256) int32_t slot[ROWS], position[ROWS];
    _Alignas(256) char work[1 << 14], prepared[1 << 14];
};

/* A product is appended, and read together with what was there; positions count on. */
static coda_graph *make(void)
{
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){ROWS, COLUMNS});
    coda_value w = coda_weight(g, "w", CODA_F32, 2, (int64_t[]){COLUMNS, COLUMNS});
    coda_value k =
        coda_state_strided(g, "k", CODA_F32, 2, (int64_t[]){SLOTS, COLUMNS}, (int64_t[]){PITCH, 1});
    coda_value slot = coda_input(g, "slot", CODA_I32, 1, (int64_t[]){ROWS});
    coda_value at = coda_state(g, "position", CODA_I32, 1, (int64_t[]){ROWS});
    coda_value old = coda_slice(g, k, 0, 1, 2, 1);
    coda_value next = coda_append(g, k, coda_matmul(g, x, w), slot, NULL);
    coda_output(g, "y", coda_scale(g, next, 2));
    coda_output(g, "old", old);
    coda_assign(g, at, coda_cast(g, coda_add(g, at, coda_constant(g, CODA_I32, 1)), CODA_I32));
    return g;
}

static void fill(struct memory *m)
{
    memset(m, 0, sizeof *m);
    for (int i = 0; i < ROWS * COLUMNS; i++) m->x[i] = (float)(i % 7) - 3;
    for (int i = 0; i < COLUMNS * COLUMNS; i++) m->w[i] = (float)(i % 5) - 2;
    for (int i = 0; i < SLOTS * PITCH; i++) m->k[i] = (float)(100 + i);
    for (int i = 0; i < ROWS; i++) m->position[i] = 10 * i;
}

static float product(const struct memory *m, int row, int column)
{
    float sum = 0;
    for (int k = 0; k < COLUMNS; k++) sum += m->x[row * COLUMNS + k] * m->w[column * COLUMNS + k];
    return sum;
}

/* The rows that `slot` names are in their places; others, and what lies between rows, are as they were. */
static void check(const struct memory *m, struct memory *before, int run)
{
    for (int c = 0; c < COLUMNS; c++) ck_assert_float_eq(m->old[c], before->k[PITCH + c]);
    for (int r = 0; r < ROWS; r++) {
        if (m->slot[r] < 0 || m->slot[r] >= SLOTS) continue;
        for (int c = 0; c < COLUMNS; c++) before->k[m->slot[r] * PITCH + c] = product(m, r, c);
    }
    for (int i = 0; i < SLOTS * PITCH; i++) ck_assert_float_eq(m->k[i], before->k[i]);
    for (int i = 0; i < SLOTS * COLUMNS; i++)
        ck_assert_float_eq(m->y[i], 2 * before->k[i / COLUMNS * PITCH + i % COLUMNS]);
    for (int r = 0; r < ROWS; r++) ck_assert_int_eq(m->position[r], 10 * r + run);
}

START_TEST(runs_see_what_runs_have_left)
{
    static const int32_t slots[3][ROWS] = {
        {1, -1, 7, SLOTS, 0}, {INT32_MIN, 1, 6, INT32_MAX, 2}, {-1, -1, -5, SLOTS + 1, 1 << 24}};
    static struct memory m, before;
    coda_graph *g = make();
    coda_plan *p = compile(g, &run_modes[_i]);
    void *args[] = {m.x, m.w, m.k, m.slot, m.position, m.y, m.old};
    ck_assert_uint_le(coda_plan_workspace(p), sizeof m.work);
    fill(&m);
    for (int run = 1; run <= 3; run++) {
        memcpy(m.slot, slots[run - 1], sizeof m.slot);
        before = m;
        if (run_modes[_i].fold) ck_assert_int_eq(coda_prepare(p, args, m.prepared, m.work, NULL), CODA_OK);
        ck_assert_msg(coda_run(p, args, m.prepared, m.work, NULL) == CODA_OK, "%s", coda_error());
        check(&m, &before, run);
    }
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

START_TEST(a_state_shares_no_byte)
{
    static struct memory m;
    coda_graph *g = make();
    coda_plan *p = compile(g, &run_modes[1]);
    coda_arg_info a = CODA_ARG_INFO_INIT;
    void *args[] = {m.x, m.w, m.k, m.slot, m.position, m.y, m.old};
    fill(&m);
    ck_assert_int_eq(coda_plan_arg(p, 2, &a), CODA_OK);
    ck_assert(a.kind == CODA_ARG_STATE && a.strides[0] == PITCH && !strcmp(a.name, "k"));
    args[0] = m.k;
    ck_assert_int_eq(coda_run(p, args, m.prepared, m.work, NULL), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "state k") && strstr(coda_error(), "input x"), "%s", coda_error());
    args[0] = m.x;
    args[3] = m.position;
    ck_assert_int_eq(coda_run(p, args, m.prepared, m.work, NULL), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "state position") && strstr(coda_error(), "input slot"), "%s",
                  coda_error());
    args[3] = m.slot;
    args[5] = m.k;
    ck_assert_int_eq(coda_run(p, args, m.prepared, m.work, NULL), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "state k") && strstr(coda_error(), "output y"), "%s", coda_error());
    args[5] = m.y;
    ck_assert_int_eq(coda_run(p, args, m.prepared, m.work, NULL), CODA_OK);
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

/* ---- Heads that lie together: [pages][heads][page][columns], in strides of their own ---- */

enum { PAGES = 3, HEADS = 2, PAGE = 4, HEAD_DIM = 2, LANE = 3, KEYS = LANE * PAGE, WHOLE = KEYS * HEADS + 5 };

START_TEST(heads_of_a_page_lie_apart)
{
    static const char *const text[] = {
        "%x = input f32[5,4]\n%w = weight f32[4,4]\n%s = input i32[5]\n"
        "%k = state f32[3,2,4,2] stride=[29,12,3,1]\n%p = matmul %x, %w\n%k1 = append %k, %p, %s "
        "{layout=1}\n",
        "%x = input f32[5,4]\n%w = weight f32[4,4]\n%s = input i32[5]\n"
        "%k = state f32[3,2,4,2] stride=[29,12,3,1]\n%k1 = append %k, %x, %s {layout=1}\n"};
    static _Alignas(256) float k[PAGES * WHOLE];
    static struct memory m;
    coda_graph *g = parse(text[_i % 2]);
    coda_plan *p = compile(g, &run_modes[_i / 2]);
    fill(&m);
    memcpy(m.slot, (int32_t[]){11, -1, 12, 2, 5}, sizeof m.slot);
    for (int i = 0; i < PAGES * WHOLE; i++) k[i] = (float)(1000 + i);
    void *args[] = {m.x, m.w, m.slot, k};
    if (run_modes[_i / 2].fold) ck_assert_int_eq(coda_prepare(p, args, m.prepared, m.work, NULL), CODA_OK);
    ck_assert_msg(coda_run(p, args, m.prepared, m.work, NULL) == CODA_OK, "%s", coda_error());
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS && m.slot[r] >= 0 && m.slot[r] < PAGES * PAGE; c++) {
            int at = m.slot[r] / PAGE * WHOLE + c / HEAD_DIM * KEYS + m.slot[r] % PAGE * LANE + c % HEAD_DIM;
            ck_assert_float_eq(k[at], _i % 2 ? m.x[r * COLUMNS + c] : product(&m, r, c));
            k[at] = (float)(1000 + at);
        }
    for (int i = 0; i < PAGES * WHOLE; i++) ck_assert_float_eq(k[i], (float)(1000 + i));
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

/* ---- Eight bits: a quarter of the largest ulp away is the nearest, beyond 448 it is 448 ---- */

START_TEST(eight_bits_of_rows_over_scales)
{
    static const char *const text[] = {
        "%x = input f32[5,4]\n%w = weight f32[4,4]\n%i = input i32[5]\n%s = input f32[2]\n"
        "%k = state f8e4m3[8,4]\n%k1 = append %k, %x, %i, %s\n%c = cast %k1 {to=f32}\noutput %y = %c\n",
        "%x = input f32[5,4]\n%w = weight f32[4,4]\n%i = input i32[5]\n%s = input f32[2]\n"
        "%k = state f8e4m3[2,2,4,2]\n%p = matmul %x, %w\n%k1 = append %k, %p, %i, %s {layout=1}\n"
        "%c = cast %k1 {to=f32}\noutput %y = %c\n"};
    static const float row[COLUMNS] = {1.0625f, -3000, 7.4f, 0.001f}, want[COLUMNS] = {2, -448, 3.75f, 0};
    static _Alignas(256) float scale[2] = {0.5f, 2};
    static _Alignas(256) unsigned char k[SLOTS * COLUMNS];
    static struct memory m;
    coda_graph *g = parse(text[_i % 2]);
    coda_plan *p = compile(g, &run_modes[_i / 2]);
    fill(&m);
    for (int i = 0; i < ROWS * COLUMNS; i++) m.x[i] = row[i % COLUMNS];
    for (int i = 0; i < COLUMNS * COLUMNS; i++) m.w[i] = i % (COLUMNS + 1) == 0; /* as it is */
    memcpy(m.slot, (int32_t[]){7, -1, 8, 2, 5}, sizeof m.slot);
    for (int i = 0; i < SLOTS * COLUMNS; i++) k[i] = (unsigned char)(i & 0x3f);
    void *args[] = {m.x, m.w, m.slot, scale, k, m.y};
    if (run_modes[_i / 2].fold) ck_assert_int_eq(coda_prepare(p, args, m.prepared, m.work, NULL), CODA_OK);
    ck_assert_msg(coda_run(p, args, m.prepared, m.work, NULL) == CODA_OK, "%s", coda_error());
    for (int slot = 0; slot < SLOTS; slot++)
        for (int c = 0; c < COLUMNS; c++) {
            int at = _i % 2 ? ((slot / 4 * 2 + c / 2) * 4 + slot % 4) * 2 + c % 2 : slot * COLUMNS + c;
            bool written = slot == 7 || slot == 2 || slot == 5;
            ck_assert_float_eq(m.y[at], written ? want[c] : (float)dtype_load(CODA_F8E4M3, k, at));
            ck_assert_float_eq((float)dtype_load(CODA_F8E4M3, k, at), m.y[at]);
            if (!written) ck_assert_int_eq(k[at], at & 0x3f);
        }
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

/* ---- Order ---- */

/* What is read of a version is what it held, wherever rewrites and fusion would move the reader. */
static const char *const orders[] = {
    /* two appends to one state, each version read; an output of each */
    "%a = input f32[3,4]\n%s = input i32[3]\n%k = state f32[6,4]\n%r0 = tanh %k\n%k1 = append %k, %a, %s\n"
    "%r1 = tanh %k1\n%b = scale %a {alpha=2}\n%t = input i32[3]\n%k2 = append %k1, %b, %t\n%r2 = tanh %k2\n"
    "%d = sub %r0, %r1\n%e = sub %r1, %r2\noutput %d = %d\noutput %e = %e\noutput %k0 = %k\noutput %k1o = "
    "%k1\n"
    "output %k2o = %k2\n",
    /* a state that takes another's old contents, before that is written over */
    "%a = state f32[4]\n%b = state f32[4]\n%x = input f32[4]\n%a1 = assign %a, %b\n%a2 = assign %a1, %x\n"
    "%b1 = assign %b, %x\n",
    /* a statistic that what its program reads waits for */
    "%k = state f32[6,16]\n%x = input f32[6,16]\n%s = input i32[6]\n%v = add %k, %k\n"
    "%k1 = append %k, %x, %s\n%y = softmax %x\n%z = mul %v, %y\noutput %z = %z\n",
    "%a = input f32[16,16]\n%x = input f32[16,16]\n%v = add %a, %a\n%t = transpose %v {p0=1, p1=0}\n"
    "%u = add %x, %t\n%s = softmax %x\n%m = mul %v, %s\noutput %u = %u\noutput %m = %m\n",
    /* a residual that is a state, and its norm */
    "%h = state f32[4,64] stride=[128,2]\n%x = input f32[4,64]\n%r = add %h, %x\n%h1 = assign %h, %r\n"
    "%n = rms_norm %r {eps=1e-5}\noutput %n = %n\n",
    /* casts that would be one, the second after the append */
    "%a = input bf16[3,4]\n%s = input i32[3]\n%k = state bf16[6,4]\n%c = cast %k {to=f32}\n"
    "%k1 = append %k, %a, %s\n%d = cast %c {to=bf16}\n%e = add %d, %k1\noutput %e = %e\noutput %d = %d\n",
    /* a map that changes nothing */
    "%a = input f32[3,4]\n%s = input i32[3]\n%k = state f32[6,4]\n%c = scale %k {alpha=1}\n"
    "%k1 = append %k, %a, %s\n%d = sub %c, %k1\noutput %d = %d\n",
    /* a scale that is carried past a product, which comes after the append */
    "%a = input f32[6,8]\n%s = input i32[6]\n%w = weight f32[5,8]\n%k = state f32[6,8]\n"
    "%c = scale %k {alpha=0.5}\n%k1 = append %k, %a, %s\n%p = matmul %c, %w\n%q = matmul %k1, %w\n"
    "%d = sub %p, %q\noutput %d = %d\n",
    /* a part of a concat */
    "%a = input f32[3,4]\n%s = input i32[3]\n%k = state f32[6,4]\n%j = concat %k, %a\n%k1 = append %k, %a, "
    "%s\n"
    "%d = slice %j {stop=6, step=1}\n%e = sub %d, %k1\noutput %e = %e\noutput %j = %j\n",
    /* rows that are of the state itself */
    "%s = input i32[3]\n%k = state f32[6,4]\n%a = slice %k {start=2, stop=5, step=1}\n%k1 = append %k, %a, "
    "%s\n"
    "output %y = %k1\n",
    /* a product that reads the version which its result overwrites */
    "%s = input i32[6]\n%k = state f32[6,8]\n%w = weight f32[8,8]\n%p = matmul %k, %w\n%k1 = append %k, %p, "
    "%s\n"
    "%q = matmul %k1, %w\noutput %q = %q\n",
    /* a statistic of the version before, used after */
    "%a = input f32[3,4]\n%s = input i32[3]\n%k = state f32[6,4]\n%m = sum %k\n%k1 = append %k, %a, %s\n"
    "%d = mul %k1, %m\n%n = sum %d\noutput %d = %d\noutput %n = %n\n",
    /* a vector that its readers would compute again */
    "%k = state f32[16]\n%x = input f32[64,16]\n%one = constant {to=f32, value=1}\n%v = add %k, %one\n"
    "%n = input f32[16]\n%k1 = assign %k, %n\n%y = mul %x, %v\n%z = mul %y, %k1\noutput %z = %z\n",
    /* positions, read before and after they count on */
    "%x = input f32[4,8]\n%p = state i32[4]\n%r = rope %x, %p {head_dim=8}\n%one = constant {to=i32, "
    "value=1}\n"
    "%n = add %p, %one\n%i = cast %n {to=i32}\n%p1 = assign %p, %i\n%t = rope %r, %p1 {head_dim=8}\n"
    "output %t = %t\n",
    /* the best of a version, by a kernel of its own */
    "%a = input f32[6,64]\n%s = input i32[6]\n%k = state f32[6,64]\n%u = top_k %k {k=4}\n"
    "%k1 = append %k, %a, %s\n%v = top_k %k1 {k=4}\noutput %u = %u\noutput %v = %v\n",
    /* pages whose heads lie together, and a cache of two sequences that do */
    "%a = input f32[5,12]\n%s = input i32[5]\n%k = state f32[3,2,4,6]\n%k1 = append %k, %a, %s {layout=1}\n"
    "%y = tanh %k1\n%b = scale %a {alpha=2}\n%t = input i32[5]\n%k2 = append %k1, %b, %t {layout=1}\n"
    "%z = sub %k2, %y\noutput %z = %z\n",
    "%x = input f32[2,3,8]\n%w = weight f32[10,8]\n%s = input i32[2,3]\n%p = matmul %x, %w\n"
    "%c = slice %p {axis=2, start=4, stop=10, step=1}\n%k = state f32[2,3,7,2] stride=[1,14,2,100]\n"
    "%k1 = append %k, %c, %s {layout=1}\n%y = scale %k1 {alpha=2}\noutput %y = %y\noutput %p = %p\n",
    /* eight bits: what was read before, copies and views of it, and a state that takes another's */
    "%a = input f32[5,12]\n%s = input i32[5]\n%k = state f8e4m3[3,2,4,6]\n%c = cast %k {to=bf16}\n"
    "%k1 = append %k, %a, %s {layout=1}\n%d = cast %k1 {to=f32}\n%y = sub %d, %c\n"
    "%b = scale %a {alpha=2}\n%t = input i32[5]\n%r = input f32[2]\n%k2 = append %k1, %b, %t, %r {layout=1}\n"
    "%v = slice %k2 {axis=2, start=1, stop=3, step=1}\n%e = cast %v {to=f32}\n%o = state f8e4m3[3,2,4,6]\n"
    "%o1 = assign %o, %k2\noutput %y = %y\noutput %e = %e\noutput %k1o = %k1\noutput %k2o = %k2\n",
    /* half of a product's columns, and that half once more; all of them, and what is made of both halves */
    "%x = input f32[5,8]\n%w = weight f32[16,8]\n%s = input i32[5]\n%p = matmul %x, %w\n"
    "%h = slice %p {axis=1, stop=8, step=1}\n%k = state f32[9,8]\n%k1 = append %k, %h, %s\noutput %h = %h\n",
    "%x = input f32[5,8]\n%w = weight f32[16,8]\n%s = input i32[5]\n%p = matmul %x, %w\n%k = state "
    "f32[9,16]\n"
    "%k1 = append %k, %p, %s\n%g = slice %p {axis=1, stop=8, step=1}\n"
    "%u = slice %p {axis=1, start=8, stop=16, step=1}\n%y = swiglu %g, %u\noutput %y = %y\n",
    /* segments of a product, and every other column */
    "%x = input f32[5,8]\n%w = weight f32[64,8]\n%s = input i32[5]\n%p = matmul %x, %w\n"
    "%h = reshape %p {d0=5, d1=2, d2=32, rank=3}\n%m = max %h\n%d = sub %h, %m\n"
    "%r = reshape %d {d0=5, d1=64, rank=2}\n%k = state f32[9,64]\n%k1 = append %k, %r, %s\n"
    "%e = slice %p {axis=1, stop=63, step=2}\n%o = slice %p {axis=1, start=1, stop=64, step=2}\n"
    "%y = swiglu %e, %o\noutput %y = %y\n",
    /* a state of rank 0, and one of three dimensions whose rows are counted through */
    "%c = state f32[]\n%h = scale %c {alpha=0.5}\n%c1 = assign %c, %h\n%k = state f32[2,3,4]\n"
    "%a = input f32[2,2,4]\n%s = input i32[2,2]\n%k1 = append %k, %a, %s\n%y = mul %k1, %c1\noutput %y = "
    "%y\n",
    /* a map of a state, which another program of rows reads beside what the state becomes */
    "%r = state f32[1,8,4]\n%r1 = assign %r, %r\n%s = state f32[1,8,4]\n%a = add %s, %r1\n"
    "%s1 = assign %s, %r1\n%h = slice %s1 {axis=1, stop=1, step=1}\n%y = mul %a, %h\noutput %y = %y\n",
};

START_TEST(each_reader_sees_its_version)
{
    coda_graph *g = parse(orders[_i]);
    void **want = run_reference(g, 7);
    ck_assert_msg(want != NULL, "%s", coda_error());
    for (int m = 0; m < RUN_MODES; m++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        opt.flags = run_modes[m].flags;
        opt.fold = run_modes[m].fold;
        double e = run_on_cpu(g, 7, &opt, want);
        ck_assert_msg(e >= 0 && e < 1e-2, "%s: error %g, %s", run_modes[m].name, e, coda_error());
    }
    random_args_free(g, want);
    coda_graph_free(g);
}
END_TEST

/* ---- Random ones, in which all numbers are exact ---- */

START_TEST(caches_hold_the_same_bits)
{
    uint64_t seed = random_seed();
    for (int i = 0; i < scaled(150); i++, seed++) {
        graph *g = random_appends(seed);
        void **want = g ? run_reference(g, seed) : NULL;
        ck_assert_msg(want != NULL, "seed %llu: %s", (unsigned long long)seed, coda_error());
        for (int m = 0; m < RUN_MODES; m++) {
            coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
            opt.flags = run_modes[m].flags;
            opt.fold = run_modes[m].fold;
            double e = run_on_cpu(g, seed, &opt, want);
            ck_assert_msg(e == 0, "seed %llu, %s: error %g, %s", (unsigned long long)seed, run_modes[m].name,
                          e, coda_error());
        }
        random_args_free(g, want);
        graph_free(g);
    }
}
END_TEST

/* ---- Slots from a table of pages ---- */

/* ---- What no one wrote ---- */

/* NaN of several bits each, as memory has them that was never written. */
static const struct {
    const char *state, *rows;
    size_t size;
    uint32_t nan[4];
} unwritten[] = {
    {"f32", "f32", 4, {0x7fc01234, 0xff812345, 0x7f800001, 0xffffffff}},
    {"bf16", "bf16", 2, {0x7fc1, 0xff81, 0x7f81, 0xffff}},
    {"f16", "f16", 2, {0x7e01, 0xfc01, 0x7c01, 0xffff}},
    {"f8e4m3", "bf16", 1, {0x7f, 0xff, 0x7f, 0xff}},
};

START_TEST(evaluation_keeps_the_bits_of_other_rows)
{
    enum { PLACES = SLOTS * PITCH };
    _Alignas(64) unsigned char was[PLACES * 4], is[PLACES * 4], row[64] = {0};
    _Alignas(64) int32_t slot[2] = {3, -1};
    char text[200];
    size_t size = unwritten[_i].size;
    snprintf(text, sizeof text,
             "%%k = state %s[8,4] stride=[6,1]\n%%x = input %s[2,4]\n%%i = input i32[2]\n"
             "%%n = append %%k, %%x, %%i\n",
             unwritten[_i].state, unwritten[_i].rows);
    for (int e = 0; e < PLACES; e++) memcpy(was + (size_t)e * size, &unwritten[_i].nan[e % 4], size);
    memcpy(is, was, sizeof was);
    coda_graph *g = parse(text);
    ck_assert_msg(coda_evaluate(g, (void *[]){is, row, slot}) == CODA_OK, "%s", coda_error());
    memset(was + 3 * PITCH * size, 0, COLUMNS * size); /* what the run writes */
    ck_assert_mem_eq(is, was, PLACES * size);
    coda_graph_free(g);
}
END_TEST

START_TEST(slots_may_be_computed)
{
    static const char *const text =
        "%rows = input f32[4,2]\n%at = state i32[4]\n%table = input i32[12,1]\n%k = state f32[40,2]\n"
        "%f = cast %at {to=f32}\n%page = constant {to=f32, value=4}\n%q = div %f, %page\n%n = cast %q "
        "{to=i32}\n"
        "%each = constant {to=f32, value=3}\n%i = input i32[4]\n%first = mul %i, %each\n%id = add %first, "
        "%n\n"
        "%ids = cast %id {to=i32}\n%found = embedding %table, %ids\n%flat = reshape %found {d0=4, rank=1}\n"
        "%base = mul %flat, %page\n%whole = mul %n, %page\n%rest = sub %f, %whole\n%slot = add %base, %rest\n"
        "%slots = cast %slot {to=i32}\n%k1 = append %k, %rows, %slots\n%one = constant {to=i32, value=1}\n"
        "%up = add %at, %one\n%next = cast %up {to=i32}\n%at1 = assign %at, %next\noutput %s = %slots\n";
    _Alignas(16) float rows[8], k[80];
    _Alignas(16) int32_t at[4] = {0, 3, 6, 11}, table[12] = {9, 2, 5, 0, 7, 1, 3, 8, 4, 6, 1, 2},
                         i[4] = {0, 1, 2, 3}, slot[4];
    static _Alignas(256) char work[4096];
    coda_graph *g = parse(text);
    coda_plan *p = compile(g, &run_modes[_i]);
    void *args[] = {rows, at, table, k, i, slot};
    for (int r = 0; r < 8; r++) rows[r] = (float)(r + 1);
    for (int run = 0; run < 3; run++) {
        memset(k, 0, sizeof k);
        int32_t was[4];
        memcpy(was, at, sizeof was);
        ck_assert_msg(coda_run(p, args, NULL, work, NULL) == CODA_OK, "%s", coda_error());
        for (int b = 0; b < 4 && (run == 0 || was[b] < 12); b++) {
            ck_assert_int_eq(slot[b], table[3 * b + was[b] / 4] * 4 + was[b] % 4);
            ck_assert_int_eq(at[b], was[b] + 1);
            ck_assert_float_eq(k[2 * slot[b] + 1], rows[2 * b + 1]);
        }
        at[3] = 5 + run;
    }
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

/* ---- Mistakes ---- */

static const struct mistake {
    const char *text, *message;
} mistakes[] = {
    {"%k = state f32[4]\n%t = input f32[4]\n%a = input f32[4]\n%1 = assign %k, %t, _, %a\n",
     "assign: operand 2 is CODA_NONE"},
    {"%k = input f32[4,2]\n%a = input f32[3,2]\n%s = input i32[3]\n%1 = append %k, %a, %s\n",
     "append: the first operand, f32[4,2], is no state but the result of input"},
    {"%k = state f32[4,2]\n%v = reshape %k {d0=2, d1=4, rank=2}\n%a = input f32[2,4]\n%1 = assign %v, %a\n",
     "assign: the first operand, f32[2,4], is no state but the result of reshape"},
    {"%k = state f32[4]\n%a = input f32[3,4]\n%s = input i32[3]\n%1 = append %k, %a, %s\n",
     "append: the state is [4]; it needs rank 2 or more"},
    {"%k = state f32[2,3,4] stride=[16,4,1]\n%a = input f32[3,4]\n%s = input i32[3]\n%1 = append %k, %a, "
     "%s\n",
     "append: the state is [2,3,4]; it needs rank 2 or more, and rows evenly apart"},
    {"%k = state f32[4,2]\n%a = input f32[3,2]\n%s = input i32[3]\n%c = input f32[1]\n%1 = append %k, %a, "
     "%s, %c\n",
     "append: the state is f32[4,2]; rows are scaled for f8e4m3 alone"},
    {"%k = state f8e4m3[4,2]\n%a = input f32[3,2]\n%s = input i32[3]\n%c = input f32[3]\n"
     "%1 = append %k, %a, %s, %c\n",
     "append: the scale is f32[3]; must be f32[1], or one for each head of 2 columns"},
    {"%k = state f8e4m3[4,2]\n%a = input f32[3,2]\n%s = input i32[3]\n%c = input i32[1]\n"
     "%1 = append %k, %a, %s, %c\n",
     "append: the scale is i32[1]; must be f32[1], or one for each head of 2 columns"},
    {"%k = state i8[4,2]\n%a = input f32[3,2]\n%s = input i32[3]\n%1 = append %k, %a, %s\n",
     "append: the state is i8[4,2] but rows are f32[3,2]; rows of its dtype alone are appended"},
    {"%k = state f8e4m3[4,2]\n%a = input i32[3,2]\n%s = input i32[3]\n%1 = append %k, %a, %s\n",
     "append: the state is f8e4m3[4,2] but rows are i32[3,2]; coda_cast them"},
    {"%k = state f8e4m3[4,2]\n%y = tanh %k\n",
     "tanh: operand 0 is f8e4m3[4,2]; only a product's w, attention's k and v, coda_cast, views, "
     "coda_all_gather and coda_assign read 8 bits"},
    {"%k = input f8e4m3[4,2]\n%w = weight bf16[4,2]\n%y = matmul %k, %w\n",
     "matmul: operand 0 is f8e4m3[4,2]; only a product's w"},
    {"%k = input i32[4,2]\n%y = cast %k {to=f8e4m3}\n",
     "cast: x is i32[4,2]; of 8 bits only f8e4m3 and f8e5m2 are written, of f32, bf16 or f16"},
    {"%k = input f32[4,2]\n%y = cast %k {to=i8}\n",
     "cast: x is f32[4,2]; of 8 bits only f8e4m3 and f8e5m2 are written"},
    {"%k = constant {to=f8e4m3, value=1}\n", "constant: f8e4m3 is storage of caches and weights"},
    {"%k = state f32[2,3,4]\n%a = input f32[3,4]\n%s = input i32[3]\n%1 = append %k, %a, %s {layout=1}\n",
     "append: the state is [2,3,4]; of layout HND it is [pages,heads,page,head_dim]"},
    {"%k = state f32[2,3,4,5]\n%a = input f32[3,4]\n%s = input i32[3]\n%1 = append %k, %a, %s {layout=1}\n",
     "append: the state is [2,3,4,5] but rows are [3,4]; their columns differ"},
    {"%k = state f32[2,3,4,5]\n%a = input f32[3,15]\n%s = input i32[3]\n%1 = append %k, %a, %s {layout=2}\n",
     "append: layout is 2; must be 0..1"},
    {"%k = state f32[4097,1,4096,1]\n%a = input f32[3,1]\n%s = input i32[3]\n"
     "%1 = append %k, %a, %s {layout=1}\n",
     "append: the state is [4097,1,4096,1], 16781312 slots; most are 16777216"},
    {"%k = state f32[16777217,1]\n%a = input f32[3,1]\n%s = input i32[3]\n%1 = append %k, %a, %s\n",
     "append: the state is [16777217,1], 16777217 rows; most are 16777216"},
    {"%k = state bf16[4,2]\n%a = input f32[3,2]\n%s = input i32[3]\n%1 = append %k, %a, %s\n",
     "append: the state is bf16[4,2] but rows are f32[3,2]; coda_cast them"},
    {"%k = state f32[4,2]\n%a = input f32[3,4]\n%s = input i32[3]\n%1 = append %k, %a, %s\n",
     "append: the state is [4,2] but rows are [3,4]; their columns differ"},
    {"%k = state f32[4,2]\n%a = input f32[3,2]\n%s = input i32[4]\n%1 = append %k, %a, %s\n",
     "append: rows are [3,2] but slots are i32[4]; must be i32 or i64, one for each row"},
    {"%k = state f32[4,2]\n%a = input f32[3,2]\n%s = input f32[3]\n%1 = append %k, %a, %s\n",
     "append: rows are [3,2] but slots are f32[3]; must be i32 or i64, one for each row"},
    {"%k = state f32[4,2]\n%a = input f32[3,2]\n%1 = append %k, %a\n", "append: takes 3 to"},
    {"%k = state i32[4]\n%a = input f32[4]\n%1 = assign %k, %a\n",
     "assign: the state is i32[4] but the value is f32[4]; they must be equal"},
    {"%k = state f32[4]\n%a = input f32[4]\n%1 = assign %k, %a\n%2 = tanh %k\n",
     "tanh: operand 0 is state k as it was before %2, an assign, wrote to it"},
    {"%k = state f32[4]\n%a = input f32[4]\n%v = slice %k {stop=2, step=1}\n%1 = assign %k, %a\n%2 = tanh "
     "%v\n",
     "tanh: operand 0 is state k as it was before %3, an assign, wrote to it"},
    {"%k = state f32[4,2]\n%a = input f32[3,2]\n%s = input i32[3]\n%1 = append %k, %a, %s\n"
     "%2 = append %k, %a, %s\n",
     "append: operand 0 is state k as it was before %3, an append, wrote to it"},
    {"%k = state f32[4,2] stride=[1,1]\n", "state k"},
};

START_TEST(mistakes_are_named)
{
    const struct mistake *m = &mistakes[_i];
    coda_graph *g = NULL;
    ck_assert_int_eq(coda_graph_parse(&g, m->text), CODA_E_INVALID);
    ck_assert_msg(strstr(mistake_plain(coda_error()), m->message), "%s", coda_error());
}
END_TEST

START_TEST(options_of_tomorrow_are_refused)
{
    struct {
        coda_append_options o;
        size_t more;
    } opt = {CODA_APPEND_OPTIONS_INIT, 0};
    for (int unknown = 0; unknown < 2; unknown++) {
        coda_graph *g = coda_graph_new();
        coda_value k = coda_state(g, "k", CODA_F32, 2, (int64_t[]){4, 2});
        coda_value a = coda_input(g, "a", CODA_F32, 2, (int64_t[]){3, 2});
        opt.o.size = sizeof opt;
        opt.more = (size_t)unknown;
        coda_append(g, k, a, coda_input(g, "s", CODA_I32, 1, (int64_t[]){3}), &opt.o);
        ck_assert_int_eq(coda_graph_status(g), unknown ? CODA_E_INVALID : CODA_OK);
        coda_graph_free(g);
    }
}
END_TEST

TESTS(state, EACH(runs_see_what_runs_have_left, RUN_MODES), EACH(heads_of_a_page_lie_apart, 2 * RUN_MODES),
      EACH(eight_bits_of_rows_over_scales, 2 * RUN_MODES), ONE(a_state_shares_no_byte),
      ONE(caches_hold_the_same_bits), EACH(each_reader_sees_its_version, ARRAY_SIZE(orders)),
      EACH(evaluation_keeps_the_bits_of_other_rows, ARRAY_SIZE(unwritten)), EACH(slots_may_be_computed, 2),
      CASE("mistakes"), EACH(mistakes_are_named, ARRAY_SIZE(mistakes)), ONE(options_of_tomorrow_are_refused));

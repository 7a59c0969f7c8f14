/*
 * product.c -- wgmma: products of a warpgroup, which take effect some time before somebody has waited.
 *
 * While a product is in flight its accumulators are not the threads': they lie here, and what the threads
 * have are NaNs of one pattern, which must still be there when a wait gives the sums back. The operands
 * are read when the product takes effect.
 */
#include "machine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POISON 0x7fc0deadu

/* ---- Numbers ---- */

static float half_float(uint16_t h)
{
    uint32_t e = h >> 10 & 31, m = h & 1023u, sign = (uint32_t)(h & 0x8000u) << 16, bits;
    float x;
    if (!e) return (h & 0x8000u ? -1.0f : 1.0f) * (float)m * 0x1p-24f;
    bits = sign | (e == 31 ? 255u << 23 : (e + 112) << 23) | m << 13;
    memcpy(&x, &bits, 4);
    return x;
}

float element_value(uint16_t h, bool half)
{
    uint32_t bits = (uint32_t)h << 16;
    float x;
    if (half) return half_float(h);
    memcpy(&x, &bits, 4);
    return x;
}

/* ---- Operands in shared memory ---- */

/* Of e4m3 (1) or e5m2 (2): e5m2 is the upper byte of an f16, of which e4m3's exponent counts 8 more. */
static float f8_value(uint8_t b, int kind)
{
    if (kind == 2) return half_float((uint16_t)(b << 8));
    if ((b & 0x7f) == 0x7f) return NAN;
    return 256.0f * half_float((uint16_t)((b & 0x80) << 8 | (b & 0x7f) << 7));
}

struct view {
    uint32_t start, leading, stride;
    bool mn;
};

static struct view view_of(uint64_t d, bool mn)
{
    return (struct view){(uint32_t)(d & 0x3fff) << 4, (uint32_t)(d >> 16 & 0x3fff) << 4,
                         (uint32_t)(d >> 32 & 0x3fff) << 4, mn};
}

static uint32_t place(const struct view *v, uint32_t row, uint32_t k)
{
    uint32_t at = v->mn ? v->start + row / 64 * v->leading + k / 8 * v->stride + k % 8 * 128 + row % 64 * 2
                        : v->start + row / 8 * v->stride + row % 8 * 128 + k * 2;
    return at ^ (at >> 3 & 0x70);
}

/* The bytes that hold the first `rows` rows, rounded to where the swizzle ends. */
static void extent(const struct view *v, uint32_t rows, uint32_t *first, uint32_t *bytes)
{
    uint32_t last = v->mn ? v->start + (rows - 1) / 64 * v->leading + v->stride
                          : v->start / 1024 * 1024 + (rows - 1) / 8 * v->stride;
    *first = v->start / 1024 * 1024;
    *bytes = last / 1024 * 1024 + 1024 - *first;
}

static void check_view(const struct thread *t, uint64_t d, bool mn, uint32_t rows, char name)
{
    const struct view v = view_of(d, mn);
    uint32_t first, bytes;
    if (d >> 62 != 1 || d >> 49 & 7)
        fail_thread(t, "the descriptor of %c is 0x%llx", name, (unsigned long long)d);
    if (v.stride != 1024) fail_thread(t, "%c has groups of 8 rows %u bytes apart", name, v.stride);
    if (v.start % 32 || v.start % 1024 >= 128 || (mn && v.start % 128 && v.start % 128 / 2 + rows > 64))
        fail_thread(t, "%c starts at 0x%x, not at a k of the first of 8 rows", name, v.start);
    extent(&v, rows, &first, &bytes);
    own_offset(t, first, bytes, 16, "product");
}

/* Of A only the first group of 8 rows is sure to be meant: products of few rows read on. */
static bool touches(const struct product *p, uint32_t from, uint32_t bytes)
{
    uint32_t first, size;
    for (int i = p->from_registers; i < 2; i++) {
        const struct view v = view_of(i ? p->what.b : p->what.a, i ? p->what.b_mn : p->what.a_mn);
        extent(&v, i ? (uint32_t)p->what.n : 8, &first, &size);
        first -= SHARED_BASE;
        if (first < from + bytes && from < first + size) return true;
    }
    return false;
}

bool product_reads(const struct block *b, uint32_t from, uint32_t bytes)
{
    for (int i = 0; i < b->groups; i++) {
        const struct group *g = &b->group[i];
        for (uint64_t p = g->retired; p < g->issued; p++)
            if (touches(&g->product[p % PRODUCTS], from, bytes)) return true;
    }
    return false;
}

static void check_operands(const struct thread *t, const struct product *p)
{
    uint32_t first, bytes;
    for (int i = p->from_registers; i < 2; i++) {
        const struct view v = view_of(i ? p->what.b : p->what.a, i ? p->what.b_mn : p->what.a_mn);
        extent(&v, i ? (uint32_t)p->what.n : 8, &first, &bytes);
        if (load_overlaps(t->block, first - SHARED_BASE, bytes))
            fail_thread(t, "issues a product of 0x%x, where a load is on its way", first);
    }
}

/* ---- Taking effect ---- */

enum { DEPTH = 32 /* k of a product of fp8; others have 16 */ };
#define F8_BITS 13u

static void read_f8(const struct block *b, uint64_t descriptor, uint32_t rows, int kind, float *out,
                    uint32_t row_step, uint32_t k_step)
{
    const struct view v = view_of(descriptor, false);
    const unsigned char *window = b->shared - SHARED_BASE;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t k = 0; k < DEPTH; k++) {
            uint32_t at = place(&v, r, k / 2); /* 16 bits, of two */
            out[r * row_step + k * k_step] = f8_value(window[at + k % 2], kind);
        }
}

static void read_operand(const struct block *b, uint64_t descriptor, bool mn, uint32_t rows, bool half,
                         float *out, uint32_t row_step, uint32_t k_step)
{
    const struct view v = view_of(descriptor, mn);
    const unsigned char *window = b->shared - SHARED_BASE;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t k = 0; k < 16; k++) {
            uint16_t bits;
            memcpy(&bits, window + place(&v, r, k), 2);
            out[r * row_step + k * k_step] = element_value(bits, half);
        }
}

/* A's fragment: register i of thread t has rows 16 w + l / 4 + 8 (i & 1), columns 2 (l % 4) + 8 (i >> 1). */
static void read_registers(const struct thread *t, const struct product *p, float a[64][DEPTH])
{
    for (int i = 0; i < EMU_GROUP; i++) {
        if (memcmp(p->a_reg[i], p->a_copy[i], sizeof p->a_copy[i]))
            fail_thread(
                t, "thread %d of its warpgroup changed registers of A while the product was in flight", i);
        for (int r = 0; r < 4; r++)
            for (int e = 0; e < 2; e++)
                a[i / 32 * 16 + i % 32 / 4 + 8 * (r & 1)][2 * (i % 4) + 8 * (r >> 1) + e] =
                    element_value((uint16_t)(p->a_copy[i][r] >> 16 * e), p->what.half);
    }
}

/* Columns, of which a product has eight or a multiple. */
typedef float eight __attribute__((vector_size(32), aligned(4)));

#ifndef __clang__
__attribute__((target_clones("arch=x86-64-v3", "default"), optimize("O3")))
#endif
static void
multiply(float d[64][256], float a[64][DEPTH], float b[DEPTH][256], int n)
{
    enum { ROWS = 4 }; /* whose sums are in registers */
    for (int r = 0; r < 64; r += ROWS)
        for (int j = 0; j < n; j += 8) {
            eight sum[ROWS];
            for (int i = 0; i < ROWS; i++) sum[i] = *(const eight *)&d[r + i][j];
            for (int k = 0; k < 16; k++) {
                const eight y = *(const eight *)&b[k][j];
                for (int i = 0; i < ROWS; i++) sum[i] += a[r + i][k] * y;
            }
            for (int i = 0; i < ROWS; i++) *(eight *)&d[r + i][j] = sum[i];
        }
}

/* Products of fp8 are added to a sum of few bits: all addends are cut off F8_BITS below the first bit of the
 * largest. That is what is reported of Hopper (arXiv 2412.19437), not known to the last bit. */
#ifndef __clang__
__attribute__((target_clones("arch=x86-64-v3", "default"), optimize("O3")))
#endif
static void
multiply_f8(float d[64][256], float a[64][DEPTH], float b[DEPTH][256], int n)
{
    float most[256], sum[256], plain[256];
    for (int r = 0; r < 64; r++) {
        for (int j = 0; j < n; j++) most[j] = fabsf(d[r][j]), plain[j] = d[r][j], sum[j] = 0;
        for (int k = 0; k < DEPTH; k++)
            for (int j = 0; j < n; j++) {
                const float p = a[r][k] * b[k][j];
                plain[j] += p;
                most[j] = fabsf(p) > most[j] ? fabsf(p) : most[j];
            }
        for (int j = 0; j < n; j++) { /* the power of two in which addends are counted */
            uint32_t bits;
            memcpy(&bits, &most[j], 4);
            bits = (bits & 0x7f800000u) > F8_BITS << 23 ? (bits & 0x7f800000u) - (F8_BITS << 23) : 1;
            memcpy(&most[j], &bits, 4);
        }
        for (int k = -1; k < DEPTH; k++)
            for (int j = 0; j < n; j++) {
                const float p = k < 0 ? d[r][j] : a[r][k] * b[k][j];
                sum[j] += truncf(p / most[j]);
            }
        for (int j = 0; j < n; j++) d[r][j] = isfinite(plain[j]) ? sum[j] * most[j] : plain[j];
    }
}

static void execute(const struct thread *t, struct group *g)
{
    struct product *p = &g->product[g->executed % PRODUCTS];
    const struct emu_product *w = &p->what;
    static _Thread_local float a[64][DEPTH], b[DEPTH][256]; /* 40 KB, for which a fiber's stack has no room */
    if (p->from_registers) read_registers(t, p, a);
    else if (w->a_f8) read_f8(t->block, w->a, 64, w->a_f8, a[0], DEPTH, 1);
    else read_operand(t->block, w->a, w->a_mn, 64, w->half, a[0], DEPTH, 1);
    if (w->b_f8) read_f8(t->block, w->b, (uint32_t)w->n, w->b_f8, b[0], 1, 256);
    else read_operand(t->block, w->b, w->b_mn, (uint32_t)w->n, w->half, b[0], 1, 256);
    if (!w->accumulate)
        for (int r = 0; r < 64; r++) memset(p->sums->value[r], 0, sizeof(float) * (size_t)w->n);
    if (w->a_f8) multiply_f8(p->sums->value, a, b, w->n);
    else multiply(p->sums->value, a, b, w->n);
    g->executed++;
    t->cluster->products--;
}

static bool can_execute(const struct group *g)
{
    return g->executed < g->issued && g->product[g->executed % PRODUCTS].threads == EMU_GROUP;
}

bool advance_products(struct cluster *c, bool must)
{
    if (!c->products || (!must && !chance(c, c->policy.product))) return false;
    for (int r = 0; r < c->blocks; r++)
        for (int i = 0; i < c->block[r].groups; i++) {
            struct group *g = &c->block[r].group[i];
            if (!can_execute(g)) continue;
            execute(c->block[r].thread[i * EMU_GROUP], g);
            return true;
        }
    return false;
}

/* ---- Accumulators change hands ---- */

static float *element(struct sums *s, int thread, int i)
{
    int w = thread / 32, l = thread % 32;
    return &s->value[16 * w + l / 4 + 8 * (i >> 1 & 1)][8 * (i >> 2) + 2 * (l % 4) + (i & 1)];
}

static void poison(float *x)
{
    const uint32_t bits = POISON;
    memcpy(x, &bits, 4);
}

static struct sums *find_sums(const struct thread *t, struct group *g, int i, const float *d, int n)
{
    struct sums *unused = NULL;
    for (int s = 0; s < SUMS; s++) {
        struct sums *x = &g->sums[s];
        if (!x->live) unused = x;
        else if (x->reg[i] == d && !x->back[i]) return x;
    }
    if (!unused) fail_thread(t, "more than %d accumulators with products", SUMS);
    unused->live = true;
    unused->n = n;
    unused->returned = 0;
    memset(unused->reg, 0, sizeof unused->reg);
    memset(unused->back, 0, sizeof unused->back);
    return unused;
}

static void take_sums(struct thread *t, struct sums *s, int i, float *d, int n)
{
    if (s->n != n) fail_thread(t, "a product of %d columns to accumulators of one of %d", n, s->n);
    if (s->reg[i] == d && !s->back[i]) return;
    if (s->reg[i]) fail_thread(t, "a product to other accumulators than its warpgroup's");
    if (!t->fenced) fail_thread(t, "gives accumulators to a product without wgmma.fence before it");
    for (int e = 0; e < n / 2; e++) {
        *element(s, i, e) = d[e];
        poison(&d[e]);
    }
    s->reg[i] = d;
}

static void give_sums(struct thread *t, struct sums *s, int i)
{
    const uint32_t want = POISON;
    for (int e = 0; e < s->n / 2; e++) {
        if (memcmp(&s->reg[i][e], &want, 4))
            fail_thread(t, "accumulator %d was written while products were in flight", e);
        s->reg[i][e] = *element(s, i, e);
    }
    s->back[i] = true;
    if (++s->returned == EMU_GROUP) s->live = false;
}

/* ---- The calls ---- */

static void open_group(const struct thread *t, struct group *g)
{
    if (t->block->threads < (t->index / EMU_GROUP + 1) * EMU_GROUP)
        fail_thread(t, "is in no whole warpgroup");
    if (!g->product) g->product = calloc(PRODUCTS, sizeof *g->product);
    if (!g->sums) g->sums = calloc(SUMS, sizeof *g->sums);
    if (!g->product || !g->sums) abort();
}

static struct product *open_product(const struct thread *t, struct group *g, const struct emu_product *what,
                                    bool from_registers)
{
    struct product *p = &g->product[t->issued % PRODUCTS];
    if (t->issued == g->issued) {
        uint64_t done = g->executed < g->retired ? g->executed : g->retired;
        if (g->issued - done >= PRODUCTS) fail_thread(t, "more than %d products in flight", PRODUCTS);
        p->what = *what;
        p->from_registers = from_registers;
        p->threads = 0;
        p->sums = NULL;
        if (!from_registers) check_view(t, what->a, what->a_mn, 64, 'A');
        check_view(t, what->b, what->b_mn, (uint32_t)what->n, 'B');
        check_operands(t, p);
        g->issued++;
        t->cluster->products++;
    }
    const struct emu_product *w = &p->what;
    if (w->a != what->a || w->b != what->b || w->n != what->n || w->accumulate != what->accumulate ||
        w->a_f8 != what->a_f8 || w->b_f8 != what->b_f8 || p->from_registers != from_registers)
        fail_thread(t, "issues another product than the rest of its warpgroup");
    return p;
}

void emu_wgmma(float *d, const struct emu_product *what, const uint32_t *a_regs)
{
    struct thread *t = self_thread();
    struct group *g = t->group;
    int i = t->index % EMU_GROUP;
    open_group(t, g);
    struct product *p = open_product(t, g, what, a_regs);
    if (!p->sums) p->sums = find_sums(t, g, i, d, what->n);
    take_sums(t, p->sums, i, d, what->n);
    p->sums->last[i] = t->issued++;
    if (a_regs && !t->fenced)
        fail_thread(t, "gives registers of A to a product without wgmma.fence before it");
    if (a_regs) memcpy(p->a_copy[i], a_regs, sizeof p->a_copy[i]);
    p->a_reg[i] = a_regs;
    if (++p->threads < EMU_GROUP) return;
    wake_all(&g->waiting);
    while (can_execute(g) && chance(t->cluster, t->cluster->policy.product)) execute(t, g);
}

void emu_wgmma_fence(void) { self_thread()->fenced = true; }

void emu_wgmma_commit(void)
{
    struct thread *t = self_thread();
    t->group_end[t->groups++ % GROUPS] = t->issued;
}

static uint64_t last_committed(const struct thread *t, unsigned back)
{
    return t->groups > back ? t->group_end[(t->groups - 1 - back) % GROUPS] : 0;
}

void emu_wgmma_wait(int pending)
{
    struct thread *t = self_thread();
    struct group *g = t->group;
    int i = t->index % EMU_GROUP;
    if (pending < 0 || pending >= GROUPS) fail_thread(t, "wgmma.wait_group %d", pending);
    if (last_committed(t, 0) != t->issued)
        fail_thread(t, "waits for products, of which some are not committed");
    uint64_t target = last_committed(t, (unsigned)pending);
    while (g->executed < target) {
        if (can_execute(g)) execute(t, g);
        else sleep_on(t, &g->waiting, AT_PRODUCT, 0, 0);
    }
    if (g->retired < target) g->retired = target;
    for (int s = 0; g->sums && s < SUMS; s++) {
        struct sums *x = &g->sums[s];
        if (x->live && x->reg[i] && !x->back[i] && x->last[i] < target) give_sums(t, x, i);
    }
    t->fenced = false;
    let_others_run(t);
}

void check_products_of_ended(const struct thread *t)
{
    if (t->group->retired < t->issued) fail_thread(t, "ended with products in flight");
}

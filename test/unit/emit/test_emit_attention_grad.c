/* test_emit_attention_grad.c -- kernels of attention's gradients: what NVRTC makes of them on each
 * architecture, what launches pass, and which heads no tile holds. */
#include "attention_grad_kernel.h"
#include "jit.h"
#include "pipeline.h"
#include "shim/shim.h"
#include "util_attention_grad.h"
#include "util_scale.h"

#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

static coda_plan *planned(const struct attention_grad_case *c, const char *arch, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    graph *g = attention_grad_graph(c, false);
    ck_assert_msg(g != NULL, "%s: %s", c->name, coda_error());
    opt.device = CODA_DEVICE_NONE;
    opt.arch = arch;
    opt.flags = flags;
    coda_status s = coda_compile(&p, g, &opt);
    graph_free(g);
    return s == CODA_OK ? p : NULL;
}

/* One case in so many, by the seed, on each: many runs see all. */
enum { SHARE = 60, MOST_HEAD = 512 };
static const char *const architectures[] = {"sm_90a", "sm_80", "sm_86", "sm_89", "sm_100a", "sm_120"};

START_TEST(compiles_without_spills)
{
    char why[256];
    if (!jit_nvrtc_info(why, sizeof why)) return;
    for (int i = 0; i < attention_grad_case_count; i++) {
        const struct attention_grad_case *c = &attention_grad_cases[i];
        if (!scale_takes_one_in(SHARE, i + _i)) continue;
        if (c->head_dim > MOST_HEAD && _i) continue; /* only Hopper's cards have shared memory for it */
        coda_plan *p = planned(c, architectures[_i], scale_kernels_are_kept() ? 0 : CODA_NO_CACHE);
        ck_assert_msg(p != NULL, "%s, %s: %s", c->name, architectures[_i], coda_error());
        for (int k = 0; k < p->kernels; k++) {
            ck_assert_msg(p->kernel[k].info.spill_bytes == 0, "%s, %s: %d bytes of spills", c->name,
                          architectures[_i], p->kernel[k].info.spill_bytes);
            ck_assert_msg(!p->kernel[k].cubin.warning[0], "%s: %s", c->name, p->kernel[k].cubin.warning);
        }
        coda_plan_free(p);
    }
}
END_TEST

/* The program of gradients, which is not the one of their deltas. */
static int gradients(const struct plan *p)
{
    for (int i = 0; i < p->programs; i++)
        if (p->schedule[i].attention_grad) return i;
    ck_abort_msg("no program of gradients");
    return -1;
}

/* Each kind of block has as many as there are tiles of what it writes. */
START_TEST(blocks_are_of_what_they_write)
{
    static const struct {
        struct attention_grad_case c;
        int64_t keys, queries, pairs, heads;
    } known[] = {
        {{"plain", CODA_F32, 2, 100, 130, 4, 2, 64, .options = 0}, 2 * 2 * 3, 2 * 4 * 2, 0, 0},
        {{"sinks", CODA_F32, 2, 100, 130, 4, 2, 64, .options = GRAD_SINKS}, 2 * 2 * 3, 2 * 4 * 2, 0, 4},
        {{"bias", CODA_F32, 2, 100, 130, 4, 2, 64, .options = 0, .bias_rank = 4, .bias = BIAS_OF_ALL,
          .results = 16},
         0,
         0,
         2 * 4 * 2 * 5,
         0},
        {{"bias of keys", CODA_F32, 2, 100, 130, 4, 2, 64, .options = 0, .bias_rank = 1, .bias = BIAS_OF_KEYS,
          .results = 16},
         0,
         0,
         5,
         0},
        {{"bias of heads", CODA_F32, 2, 100, 130, 4, 2, 64, .options = 0, .bias_rank = 3,
          .bias = BIAS_OF_HEADS | BIAS_OF_QUERIES, .results = 16},
         0,
         0,
         4 * 2,
         0},
        {{"packed", CODA_F32, 3, 100, 130, 4, 2, 64, .options = GRAD_STARTS, .results = 1},
         0,
         4 * ((100 + 5 * 63) / 64),
         0,
         0},
    };
    const struct plan_options o = {.fuse = true, .target = target_rows[TARGET_H200]};
    for (int i = 0; i < ARRAY_SIZE(known); i++) {
        struct plan p;
        graph *g = attention_grad_graph(&known[i].c, false);
        ck_assert_msg(g && plan_build(&p, g, &o) == CODA_OK, "%s: %s", known[i].c.name, coda_error());
        const struct schedule *s = &p.schedule[gradients(&p)];
        struct attention_grad_blocks b = attention_grad_blocks(p.program[gradients(&p)].spec, &s->tile);
        ck_assert_int_eq(s->tile.bm, 64);
        ck_assert_int_eq(s->tile.bn, 32);
        ck_assert_msg(b.keys == known[i].keys && b.queries == known[i].queries && b.pairs == known[i].pairs &&
                          b.heads == known[i].heads,
                      "%s: %d, %d, %d, %d", known[i].c.name, (int)b.keys, (int)b.queries, (int)b.pairs,
                      (int)b.heads);
        ck_assert_int_eq(s->grid, b.keys + b.queries + b.pairs + b.heads);
        plan_free(&p);
        graph_free(g);
    }
}
END_TEST

/* Nor do tiles, and with them bits, depend on how many SMs there are. */
START_TEST(tiles_do_not_depend_on_sms)
{
    for (int i = 0; i < attention_grad_case_count; i++) {
        struct plan p[2];
        graph *g = attention_grad_graph(&attention_grad_cases[i], false);
        for (int k = 0; k < 2; k++) {
            struct plan_options o = {.fuse = true, .target = target_rows[TARGET_H200]};
            if (k) o.target.sms = 2;
            ck_assert_msg(g && plan_build(&p[k], g, &o) == CODA_OK, "%s", coda_error());
        }
        const struct schedule *many = &p[0].schedule[gradients(&p[0])],
                              *few = &p[1].schedule[gradients(&p[1])];
        ck_assert_int_eq(many->tile.bm, few->tile.bm);
        ck_assert_int_eq(many->tile.bn, few->tile.bn);
        ck_assert_int_eq(many->tile.bk, few->tile.bk);
        ck_assert_int_eq(many->grid, few->grid);
        for (int k = 0; k < 2; k++) plan_free(&p[k]);
        graph_free(g);
    }
}
END_TEST

/* wgmma multiplies 16 bits of heads of up to 128 columns without anything but a window, where each query sees
 * a key; mma.sync those whose rows begin at multiples of 16 bytes, of heads of up to 256 columns. */
START_TEST(tensor_cores_take_what_they_can)
{
    static const struct {
        const char *suffix;
        struct attention_grad_case c;
    } known[] = {
        {"wgmma", {"bf16", CODA_BF16, 1, 40, 40, 2, 1, 64, .options = 0}},
        {"wgmma", {"f16", CODA_F16, 1, 40, 40, 2, 1, 72, .options = GRAD_CAUSAL | GRAD_DLSE}},
        {"mma", {"256", CODA_BF16, 2, 40, 40, 2, 1, 256, .options = GRAD_PADDED}},
        {"simt", {"f32", CODA_F32, 1, 40, 40, 2, 1, 64, .options = 0}},
        {"simt", {"320", CODA_BF16, 1, 40, 40, 2, 1, 320, .options = 0}},
        {"simt", {"60", CODA_BF16, 1, 40, 40, 2, 1, 60, .options = 0}},
        {"mma", {"blind", CODA_BF16, 1, 41, 40, 2, 1, 64, .options = GRAD_CAUSAL}},
        {"wgmma",
         {"start", CODA_BF16, 1, 41, 40, 2, 1, 64, .options = GRAD_CAUSAL, .align = CODA_ALIGN_START}},
        {"mma", {"behind", CODA_BF16, 1, 80, 40, 2, 1, 64, .window = 30, .align = CODA_ALIGN_START}},
        {"mma", {"lengths", CODA_BF16, 1, 40, 40, 2, 1, 64, .options = GRAD_LENGTHS}},
        {"mma", {"slopes", CODA_BF16, 1, 40, 40, 2, 1, 64, .options = GRAD_SLOPES, .results = 7}},
        {"mma", {"sinks", CODA_BF16, 1, 40, 40, 2, 1, 64, .options = GRAD_SINKS}},
    };
    enum { SMALL = 2 }; /* ... of a card that has 99 KB */
    for (int i = 0; i < ARRAY_SIZE(known); i++) {
        struct plan_options o = {.fuse = true, .target = target_rows[TARGET_H200]};
        struct plan p;
        graph *g = attention_grad_graph(&known[i].c, false);
        if (i == SMALL) o.target.shared_bytes = 99 << 10;
        ck_assert_msg(g && plan_build(&p, g, &o) == CODA_OK, "%s: %s", known[i].c.name, coda_error());
        const struct schedule *s = &p.schedule[gradients(&p)];
        if (i == SMALL) ck_assert_int_eq(s->tile.bn, 16);
        ck_assert_msg(!strcmp(s->attention_grad->suffix, known[i].suffix), "%s: %s", known[i].c.name,
                      s->attention_grad->suffix);
        plan_free(&p);
        graph_free(g);
    }
}
END_TEST

/* ---- Walks ---- */

enum { MOST_TILES = 1 << 15 };

/* What a tile costs: rows that it walks, of three products, or of four. */
static double work(const struct shim_grad_walk *w, const struct shim_grad_tile *t, int time)
{
    double walked = !w->causal ? time : t->of_keys ? time - t->row : t->row + w->bm;
    return t->of_keys ? 4.0 * walked * (w->heads / w->kv_heads) : 3.0 * walked;
}

/* The largest sum of a block in units of the mean one. Each tile is some block's, once. */
static double busiest(const struct shim_grad_walk *w, int batch, int time, int blocks)
{
    static char seen[2][MOST_TILES];
    static struct shim_grad_tile own[MOST_TILES];
    struct attention_grad_case c = {"walk",      CODA_BF16, batch,
                                    time,        time,      w->heads,
                                    w->kv_heads, 128,       .options = w->causal ? GRAD_CAUSAL : 0};
    const struct plan_options o = {.fuse = true, .target = target_rows[TARGET_H200]};
    struct shim_grad_tiles of[2];
    struct plan p;
    graph *g = attention_grad_graph(&c, false);
    ck_assert_msg(g && plan_build(&p, g, &o) == CODA_OK, "%s", coda_error());
    double sum = 0, most = 0;
    int rows = CEIL_DIV(time, w->bm), tiles = 0;
    for (int i = 0; i < 2; i++) {
        const struct attention_grad_walk n =
            attention_grad_walk(p.program[gradients(&p)].spec, &p.schedule[gradients(&p)].tile, i == 0);
        of[i] = (struct shim_grad_tiles){(int)n.rows, (int)n.streams, (int)n.bands, (int)n.band};
        ck_assert_int_eq(n.rows, rows);
    }
    plan_free(&p);
    graph_free(g);
    memset(seen, 0, sizeof seen);
    for (int b = 0; b < blocks; b++) {
        double all = 0;
        int n = w->tiles(of, blocks, b, own, MOST_TILES);
        for (int i = 0; i < n; i++) {
            int heads = own[i].of_keys ? w->kv_heads : w->heads, row = own[i].row / w->bm;
            int at = (own[i].batch * heads + own[i].head) * rows + row;
            ck_assert(own[i].batch >= 0 && own[i].batch < batch && own[i].head >= 0 && own[i].head < heads);
            ck_assert(row >= 0 && row < rows && own[i].row % w->bm == 0);
            ck_assert_msg(!seen[!own[i].of_keys][at]++, "tile %d of %d twice", at, own[i].of_keys);
            all += work(w, &own[i], time);
        }
        tiles += n, sum += all, most = MAX(most, all);
    }
    ck_assert_int_eq(tiles, batch * rows * (w->kv_heads + w->heads));
    return most / (sum / blocks);
}

START_TEST(walks_take_each_tile_once)
{
    static const int blocks[] = {1, 2, 7, 100, 132, 5000}, time[] = {1, 128, 300, 2048};
    for (int i = 0; i < ARRAY_SIZE(blocks); i++)
        for (int k = 0; k < ARRAY_SIZE(time); k++)
            for (int batch = 1; batch <= 3; batch++) busiest(&shim_grad_walks[_i], batch, time[k], blocks[i]);
}
END_TEST

/* Blocks of long sequences have about the same to do, whatever the heads of a band. */
START_TEST(walks_end_together)
{
    static const struct {
        int batch, time;
    } known[] = {{2, 8192}, {4, 4096}, {8, 2048}, {1, 16384}};
    const struct shim_grad_walk *w = &shim_grad_walks[_i];
    if (w->heads < 8) return; /* that is too few tiles */
    for (int i = 0; i < ARRAY_SIZE(known); i++) {
        double most = busiest(w, known[i].batch, known[i].time, 132);
        ck_assert_msg(most < 1.07, "%d x %d: %.3f of the mean", known[i].batch, known[i].time, most);
    }
}
END_TEST

START_TEST(refuses_what_no_tile_holds)
{
    struct attention_grad_case c = {"wide", CODA_F32, 1, 4, 4, 1, 1, 5000, .options = 0};
    ck_assert_ptr_null(planned(&c, "sm_90a", CODA_PLAN_ONLY));
    ck_assert_ptr_nonnull(strstr(coda_error(), "head_dim is 5000; no tile of it fits 232448 bytes"));
}
END_TEST

TESTS(emit_attention_grad, ONE(blocks_are_of_what_they_write), ONE(tiles_do_not_depend_on_sms),
      ONE(tensor_cores_take_what_they_can), ONE(refuses_what_no_tile_holds),
      EACH(walks_take_each_tile_once, shim_grad_walk_count), EACH(walks_end_together, shim_grad_walk_count),
      CASE("nvrtc"), TAG("nvrtc"), EACH(compiles_without_spills, ARRAY_SIZE(architectures)));

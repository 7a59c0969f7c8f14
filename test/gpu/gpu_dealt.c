/*
 * gpu_dealt.c -- products by packed weights whose slots of K are dealt to all SMs (tile/pieces.cuh), one
 * behind another, each of which begins before the one ahead has ended: against fp64; with the same bits
 * in each run, whatever the workspace held, also what another plan's run left. On the emulator the threads of
 * all blocks take turns in an order that each launch draws.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "executable.h"
#include "gpu_case.h"
#include "schedule.h"
#include "util_device.h"
#include "util_run.h"
#include "util_scale.h"

int gpu_dealt(void);

/* y = x w + r, and so on with y as r: `tiles` of them for each 4 SMs, `columns` wide. */
static const struct product {
    const char *format;
    int products, rows, tiles, columns, k;
} all[] = {
    {"int4_g128_bf16", 3, 120, 5, 128, 2048}, /* beginnings and ends of tiles */
    {"int4_g128_bf16", 1, 50, 2, 64, 3072},   /* two blocks of an SM, of which several have one tile */
    {"int4_g128_bf16", 1, 96, 6, 192, 2048},  /* three consumers */
    {"q4_0", 1, 64, 3, 192, 4096},            /* several scales in a slot, ... */
    {"q6_k", 1, 64, 3, 192, 4096},            /* ... and of each 16 k */
    {"q4_k", 2, 64, 3, 192, 4096},            /* two of bf16 for each weight */
    {"mxfp4", 1, 128, 6, 192, 2048},          /* scales that fold */
    {"int4_g128_bf16", 2, 250, 5, 128, 2048}, /* 256 rows, whose sums are scaled in place */
    {"q4_k", 1, 144, 5, 128, 4096},           /* ... and some of them */
};

static graph *graph_of(const struct product *c, int sms)
{
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    coda_pack_format_find(c->format, &f);
    int n = sms * c->tiles * c->columns / 4;
    char text[2048];
    int at = snprintf(text, sizeof text, "%%x = input bf16[%d,%d]\n%%y0 = input bf16[%d,%d]\n", c->rows, c->k,
                      c->rows, n);
    for (int i = 1; i <= c->products; i++)
        at += snprintf(
            text + at, sizeof text - (size_t)at,
            "%%p%d = weight u8[%lld]\n%%w%d = unpack %%p%d {format=%s,d0=%d,d1=%d,rank=2,to=bf16}\n"
            "%%m%d = matmul %%x, %%w%d\n%%y%d = add %%m%d, %%y%d\n",
            i, (long long)coda_packed_bytes(&f, n, c->k), i, i, c->format, n, c->k, i, i, i, i, i - 1);
    snprintf(text + at, sizeof text - (size_t)at, "output %%y = %%y%d\n", c->products);
    return graph_parse(text);
}

static coda_plan *plan_of(graph *g, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    opt.device = CODA_DEVICE_GPU;
    opt.flags = flags;
    return coda_compile(&p, g, &opt) == CODA_OK ? p : NULL;
}

static int dealt(const coda_plan *p)
{
    int n = 0;
    for (int i = 0; p && i < p->plan.programs; i++) n += p->plan.schedule[i].tile.dealt;
    return n;
}

static int check_numbers(const struct product *c, graph *g)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = plan_of(g, 0), *invariant = plan_of(g, CODA_PLAN_ONLY | CODA_BATCH_INVARIANT);
    void **want = run_reference(g, 3);
    double error = want ? run_on_gpu(g, 3, &opt, want) : -1;
    bool good = error >= 0 && error <= 5e-3 && dealt(p) == c->products && invariant && !dealt(invariant);
    int failed =
        gpu_case(good, "dealt", "%s, %d rows: %d of %d dealt, %d invariant, error %.2e %s", c->format,
                 c->rows, dealt(p), c->products, dealt(invariant), error, error < 0 ? coda_error() : "");
    if (want) random_args_free(g, want);
    coda_plan_free(p);
    coda_plan_free(invariant);
    return failed;
}

/* ---- One workspace ---- */

enum { TURNS = 4 };

struct user {
    graph *g;
    coda_plan *plan;
    struct run_buffers b;
    void **host;
};

static bool open_user(struct user *u, const struct product *c, int sms)
{
    u->g = graph_of(c, sms);
    u->plan = u->g ? plan_of(u->g, 0) : NULL;
    u->host = u->plan ? random_args(u->g, 5, false) : NULL;
    return u->host && run_upload(&u->b, u->g, u->plan, u->host, true) &&
           coda_prepare(u->plan, u->b.args, u->b.prepared, u->b.workspace, NULL) == CODA_OK &&
           run_plan(&u->b, u->plan);
}

/* Both run again and again, and then have the bits that they had by themselves. */
static bool take_turns(struct user *u, void *workspace)
{
    bool good =
        device_fill(workspace, 0x5f, MAX(coda_plan_workspace(u[0].plan), coda_plan_workspace(u[1].plan)));
    for (int i = 0; good && i < 2 * TURNS; i++) {
        struct user *of = &u[i % 2];
        good = coda_run(of->plan, of->b.args, of->b.prepared, workspace, NULL) == CODA_OK;
    }
    for (int i = 0; good && i < 2; i++) {
        int y = u[i].b.n - 1;
        size_t bytes = u[i].b.memory[y].bytes;
        void *got = malloc(bytes);
        good = got && device_wait() && device_download(got, u[i].b.args[y], bytes) &&
               (device_dry() || !memcmp(got, u[i].host[y], bytes));
        free(got);
    }
    return good;
}

static int check_turns(int sms)
{
    struct user u[2] = {{0}};
    bool good = open_user(&u[0], &all[1], sms) && open_user(&u[1], &all[5], sms);
    size_t most = good ? MAX(coda_plan_workspace(u[0].plan), coda_plan_workspace(u[1].plan)) : 0;
    void *workspace = good ? device_alloc(most) : NULL;
    good = workspace && take_turns(u, workspace);
    int failed = gpu_case(good, "dealt", "two plans in one workspace %s", good ? "" : coda_error());
    device_free(workspace);
    for (int i = 0; i < 2; i++) {
        run_release(&u[i].b);
        if (u[i].host) random_args_free(u[i].g, u[i].host);
        coda_plan_free(u[i].plan);
        graph_free(u[i].g);
    }
    return failed;
}

int gpu_dealt(void)
{
    struct jit_device dev;
    char err[JIT_ERROR_SIZE];
    int failed = 0;
    if (!device_open(&dev, err)) return gpu_case(false, "dealt", "%s", err);
    for (int i = 0; i < ARRAY_SIZE(all); i++) {
        if (device_emulated(&dev) && !scale_takes_half(i)) continue;
        graph *g = graph_of(&all[i], dev.sms);
        if (!g) return failed + gpu_case(false, "dealt", "%s", coda_error());
        failed += check_numbers(&all[i], g);
        graph_free(g);
    }
    return failed + check_turns(dev.sms);
}

/*
 * emit_gemm.c -- a GEMM program becomes a kernel: the text instantiates the main loop's template
 * (primitives/tile) with a Config of constants (emit_gemm_config.c) and the Epilogue that emit_epilogue.c
 * prints, and reads its parameters from a struct (emit_gemm_args.c).
 */
#include "emit_gemm.h"

#include "emit.h"
#include "emit_epilogue.h"
#include "mainloop.h"

static void print_share(const struct gemm *g)
{
    int share = tile_share(&g->s->tile);
    text_append(g->t, "\nstruct Share : Config {\n");
    gemm_print_columns(g, share);
    text_printf(g->t, "    static constexpr int bn = %d;\n};\n", share);
}

static void print_head(const struct gemm *g)
{
    const struct program *p = g->p;
    struct text *t = g->t;
    struct word m = emit_word(gemm_passes_rows(g) ? "m" : "%lld", (wide)p->dim[1]);
    text_append(t, "// ");
    if (gemm_is_batched(g)) text_append(t, "batches of ");
    text_printf(t, "[%s, %lld] = [%s, %lld] [%lld, %lld]^T, %s", m.s, (wide)p->dim[2], m.s, (wide)p->k,
                (wide)p->dim[2], (wide)p->k, dtype_name(p->a.dtype));
    for (int i = 0; i < p->steps; i++) {
        const struct step *s = &p->step[i];
        const char *name = step_name(p, s);
        if (name) text_printf(t, " | %s%s", s->kind == STEP_PARTIAL ? "finish " : "", name);
        unsigned effect = s->kind == STEP_STORE ? use_effect(&p->port[s->port]) : 0;
        if (effect)
            text_append(t, effect & EFFECT_ADD      ? " | add to"
                           : effect & EFFECT_APPEND ? " | append"
                                                    : " | store");
    }
    text_append(t, "\n");
}

static void print_body_and_entry(const struct gemm *g)
{
    const struct tile *c = &g->s->tile;
    enum { BESIDE_A_WARP = 160 }; /* 3 x 4 warps of it and a warp of 32 registers are an SM's */
    const struct entry entry = {.registers = g->s->leaves_warp ? BESIDE_A_WARP : 0,
                                .cluster = tile_splits(c) * tile_cluster(c),
                                .residents = c->mainloop->shares_sm(g->p, c) ? "2" : "1"};
    emit_body(g->t);
    text_printf(g->t, "    %s<Config, Epilogue%s>(a, block);\n}\n", c->mainloop->kernel,
                c->scattered ? ", Share" : "");
    emit_entry(g->k, &entry, g->t);
}

/* Coordinates of TMA and of the epilogue are ints; tiles may reach past the end by a cluster's size. */
static bool fits_int(const struct program *p, const struct schedule *s)
{
    int64_t most = INT32_MAX - 256 * tile_cluster(&s->tile);
    return s->grid <= most && p->dim[0] <= most && p->dim[1] <= most && p->dim[2] <= most && p->k <= most;
}

static coda_status check(const struct gemm *g)
{
    const struct program *p = g->p;
    if (!g->k->symbol) return fail(CODA_E_MEMORY, "out of memory for a kernel's name");
    if (!fits_int(p, g->s))
        return fail(CODA_E_UNSUPPORTED, "a GEMM of %lld times [%lld, %lld, %lld] exceeds 31-bit coordinates",
                    (wide)p->dim[0], (wide)p->dim[1], (wide)p->dim[2], (wide)p->k);
    for (int i = 0; i < p->ports; i++) {
        bool columns = p->port[i].axis == REDUCE_COLUMNS;
        int64_t states = columns ? g->s->layout.column_states : g->s->layout.states;
        if (p->port[i].role == USE_PARTIAL_STORE && p->port[i].blocks != states)
            return fail(CODA_E_INVALID, "port %d has %d states for a %s of %lld tiles", i, p->port[i].blocks,
                        columns ? "column" : "row", (wide)states);
    }
    return CODA_OK;
}

static void print_kernel(const struct gemm *g)
{
    const struct mainloop *loop = g->s->tile.mainloop;
    if (g->t->silent) {
        gemm_print_args(g); /* which fills them, too */
        return;
    }
    print_head(g);
    if (loop->print_products) loop->print_products(g->p, g->s, g->t);
    text_printf(g->t, "#include \"tile/%s.cuh\"\n", loop->kernel);
    emit_includes(g->p, g->t);
    text_append(g->t, "\nusing namespace coda;\n");
    gemm_print_args(g);
    gemm_print_config(g);
    if (g->s->tile.scattered) print_share(g);
    emit_epilogue(g->p, &g->s->layout, g->t);
    print_body_and_entry(g);
}

coda_status emit_gemm(struct plan *plan, const struct program *p, const struct schedule *s, struct kernel *k)
{
    struct text t = {.silent = k->text};
    struct gemm g = {.p = p, .s = s, .k = k, .t = &t};
    if (!k->symbol) k->symbol = emit_symbol(plan, p, "coda_gemm");
    if (s->tile.mainloop->tma) emit_gemm_maps(p, s, k);
    coda_status status = check(&g);
    if (!status) print_kernel(&g);
    if (!status && !k->text) k->text = arena_string(&plan->arena, text_str(&t));
    bool lost = t.failed || plan->arena.failed;
    text_free(&t);
    return status ? status : lost ? fail(CODA_E_MEMORY, "out of memory for a kernel's text") : CODA_OK;
}

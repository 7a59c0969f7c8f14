/* emit_attention_grad.c -- the gradients of attention become a kernel: the struct of constants that
 * attention_grad.cuh and its units want, what the launch passes, and the entry. */
#include "emit_attention_grad.h"

#include <inttypes.h>
#include <string.h>

/* Fields of AttentionGradTensors, in its order: operands, then results. */
static const struct {
    int use;
    const char *strides; /* NULL: it is dense, or has no rows */
    const char *quads;   /* NULL: it moves one by one */
} tensors[] = {{ATTENTION_GRAD_Q, "of_q", "q_quads"},    {ATTENTION_GRAD_K, "of_k", "k_quads"},
               {ATTENTION_GRAD_V, "of_v", "v_quads"},    {ATTENTION_GRAD_O, "of_delta", NULL},
               {ATTENTION_GRAD_DO, "of_do", "do_quads"}, {ATTENTION_GRAD_LSE, "of_lse", NULL},
               {ATTENTION_GRAD_DQ, "of_dq", "dq_quads"}, {ATTENTION_GRAD_DK, "of_dk", "dk_quads"},
               {ATTENTION_GRAD_DV, "of_dv", "dv_quads"}, {ATTENTION_GRAD_DSINKS, NULL, NULL},
               {ATTENTION_GRAD_DBIAS, NULL, NULL},       {ATTENTION_GRAD_DSLOPES, NULL, NULL}};

/* Do all rows begin at multiples of 4 elements? Buffers begin at multiples of 16 bytes. */
static bool moves_by_quads(const struct attention_spec *a, const struct tensor_use *v)
{
    return a->head_dim % 4 == 0 && v->offset % 4 == 0 && v->batch % 4 == 0 && v->time % 4 == 0 &&
           v->head % 4 == 0;
}

/* What is added to scores of different batches, heads, queries or keys is not the same element. */
static void emit_places(const struct grad_text *g)
{
    static const char *const name[] = {"dbias_batch", "dbias_heads", "dbias_time", "dbias_key"};
    const struct tensor_use *u = &g->s->use[ATTENTION_GRAD_DBIAS];
    for (int i = 0; i < 4; i++) emit_constant(g->e.t, "bool", name[i], u->buffer >= 0 && u->stride[i]);
}

/* Config::score_grad: the derivative of the map of scores by the score. */
static void emit_partial(const struct grad_text *g)
{
    const struct attention_spec *a = g->e.a;
    const char *given[PRIM_MAX_INPUTS];
    enum prim_partial how = a->score ? prim_partial(a->score, SCORE_ITSELF) : PRIM_PARTIAL_NONE;
    bool linear = how == PRIM_PARTIAL_LINEAR;
    if (!a->score) return;
    for (int i = 0; i < PRIM_MAX_INPUTS; i++)
        given[i] = linear && i == SCORE_ITSELF                  ? "1.0f"
                   : linear && score_partial_drops(a->score, i) ? "0.0f"
                                                                : attention_score_operand[i];
    if (linear) emit_attention_score(a, "score_grad", a->score, given, g->e.t);
    else if (g->e.partial) emit_attention_score(a, "score_grad", g->e.partial, given, g->e.t);
    else
        text_printf(g->e.t, "    DEV static float score_grad(float, float, float, float) { return %s; }\n",
                    how == PRIM_PARTIAL_ONE ? "1.0f" : "0.0f");
}

static void emit_config(struct grad_text *g)
{
    struct text *t = g->e.t;
    struct word header = emit_word("attention/attention_grad_%s.cuh", g->e.s->attention_grad->suffix);
    emit_attention_head(&g->e, header.s);
    for (int i = ATTENTION_GRAD_Q; i <= ATTENTION_GRAD_V; i++)
        text_printf(t, "    typedef %s %c;\n", emit_dtype(g->s->use[i].dtype), "QKV"[i - ATTENTION_GRAD_Q]);
    emit_attention_semantics(&g->e, false);
    emit_partial(g);
    for (int i = 0; i < ARRAY_SIZE(tensors); i++)
        if (tensors[i].quads)
            emit_constant(t, "bool", tensors[i].quads, moves_by_quads(g->e.a, &g->s->use[tensors[i].use]));
    emit_grad_results(g);
    emit_places(g);
    emit_constant(t, "i32", "bm", g->e.s->tile.bm);
    emit_constant(t, "i32", "bn", g->e.s->tile.bn);
    if (g->e.s->residents) emit_constant(t, "i32", "stages", g->e.s->tile.stages);
    if (g->e.s->residents) emit_constant(t, "i32", "residents", g->e.s->residents);
    text_append(t, "};\n");
}

static void emit_args(struct grad_text *g)
{
    struct text *t = g->e.t;
    const struct attention_grad_blocks b = attention_grad_blocks(g->s, &g->e.s->tile);
    const int64_t number[] = {b.keys,      b.queries,      b.pairs,      b.heads,
                              b.key_tiles, b.walked_tiles, b.query_tiles};
    struct tensor_use of[ATTENTION_GRAD_USES];
    memcpy(of, g->s->use, sizeof of);
    of[ATTENTION_GRAD_O] = attention_delta_use(g->s);
    text_printf(t, "struct Args {\n    void *pointer[%d];\n", g->e.k->pointers);
    for (int i = 0; i < ARRAY_SIZE(tensors); i++)
        if (tensors[i].strides) emit_attention_strides(&g->e, tensors[i].strides, &of[tensors[i].use]);
    emit_attention_extents(&g->e, false);
    emit_attention_bias(&g->e, "of_dbias", &g->s->use[ATTENTION_GRAD_DBIAS]);
    for (int i = 0; i < ARRAY_SIZE(number); i++) emit_number(g->e.k, number[i]);
    text_append(t, "    AttentionGradBlocks blocks;\n};\n");
}

static void emit_run(struct grad_text *g)
{
    struct text *t = g->e.t;
    emit_body(t);
    text_append(t, "    Kernel::run(block,\n                {");
    for (int i = 0; i < ARRAY_SIZE(tensors); i++) {
        emit_grad_tensor(g, tensors[i].use, t);
        text_append(t, ",\n                 ");
    }
    for (int i = 0; i < ARRAY_SIZE(tensors); i++)
        if (tensors[i].strides) text_printf(t, "a.%s, ", tensors[i].strides);
    text_append(t, "a.of_dbias, a.blocks},\n                ");
    emit_attention_beside(&g->e);
    text_append(t, ");\n}\n");
}

static void print_kernel(struct grad_text *g)
{
    struct kernel *k = g->e.k;
    if (g->e.s->attention_grad->index == ATTENTION_GRAD_BY_WGMMA) {
        emit_attention_grad_wgmma(g);
        return;
    }
    emit_grad_pointers(g);
    emit_attention_pointers(&g->e);
    emit_config(g);
    text_printf(g->e.t, "typedef %s<Config> Kernel;\nstatic_assert(Kernel::shared_bytes == %d);\n\n",
                g->e.s->attention_grad->unit, k->launch.shared_bytes);
    emit_args(g);
    emit_run(g);
    emit_entry(k, &(struct entry){.residents = "Kernel::blocks"}, g->e.t);
}

static void print_nothing(struct grad_text *g)
{
    text_append(g->e.t,
                "// no gradients\n#include \"tile/block.cuh\"\n\nusing namespace coda;\n\nstruct Args {};\n");
    emit_body(g->e.t);
    text_append(g->e.t, "}\n");
    emit_entry(g->e.k, &(struct entry){.cluster = 1}, g->e.t);
}

/* What launches pass is counted in 32 bits. */
static coda_status check(const struct attention_spec *a, const struct schedule *s, int shared)
{
    if (!s->tile.bm)
        return fail(CODA_E_UNSUPPORTED,
                    "attention_grad: head_dim is %" PRId64 "; no tile of it fits %d bytes of shared memory",
                    a->head_dim, shared);
    if (MAX(s->grid, a->batch) <= ATTENTION_MOST_BLOCKS && a->tq <= ATTENTION_MOST_TIME &&
        a->tk <= ATTENTION_MOST_TIME)
        return CODA_OK;
    return fail(CODA_E_UNSUPPORTED,
                "attention_grad: %" PRId64 " sequences of %" PRId64 " queries, %" PRId64 " keys and %" PRId64
                " heads are too many for one launch",
                a->batch, a->tq, a->tk, a->heads);
}

static const char *name_kernel(struct plan *plan, const struct program *p, const struct schedule *s,
                               const struct attention_spec *a)
{
    const char *name =
        arena_format(&plan->arena, "coda_attention_grad%s%s%s%s%s%s_%s", a->causal ? "_causal" : "",
                     a->window > 0 ? "_window" : "", attention_has(a, ATTENTION_LENGTHS) ? "_lengths" : "",
                     attention_is_packed(a) ? "_packed" : "", attention_has(a, ATTENTION_BIAS) ? "_bias" : "",
                     a->score ? "_score" : "", s->attention_grad->suffix);
    return name ? emit_symbol(plan, p, name) : NULL;
}

coda_status emit_attention_grad(struct plan *plan, const struct program *p, const struct schedule *s,
                                struct kernel *k)
{
    const struct attention_grad_spec *spec = p->spec;
    const struct attention_spec a = attention_grad_of(spec);
    const struct prim *partial = a.score ? a.score->facts.grad[SCORE_ITSELF] : NULL;
    struct text t = {0};
    coda_status status = s->grid || !s->tile.bm ? check(&a, s, plan->target.shared_bytes) : CODA_OK;
    struct grad_text g = {.e = {"attention_grad", &a, s, k, &t, {0}, partial}, .s = spec};
    k->symbol = name_kernel(plan, p, s, &a);
    if (!status && k->symbol && s->grid) print_kernel(&g);
    else if (!status && k->symbol) print_nothing(&g);
    if (!status) k->text = arena_string(&plan->arena, text_str(&t));
    bool failed = t.failed || plan->arena.failed;
    text_free(&t);
    return status   ? status
           : failed ? fail(CODA_E_MEMORY, "attention_grad: no memory for the kernel's text")
                    : CODA_OK;
}

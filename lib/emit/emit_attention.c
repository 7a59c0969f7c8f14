/*
 * emit_attention.c -- an attention program becomes a kernel: o = softmax(scale q k^T + mask) v.
 *
 * The schedule names the kernel, a template of primitives/attention: those for Hopper take 16-bit tensors
 * through tensor maps over [batch, time, head, column], another one the rest through plain loads. The emitted
 * text is the struct of constants that it wants and the entry. How many sequences, queries and keys there
 * are, and what follows from that, is no constant: the launch passes it (attention/extents.cuh).
 */
#include <inttypes.h>

#include "emit_attention.h"

static const char *name_kernel(struct plan *plan, const struct program *p, const struct schedule *s)
{
    const struct attention_spec *a = p->spec;
    const char *name =
        arena_format(&plan->arena, "coda_attention%s%s%s%s%s%s%s", a->causal ? "_causal" : "",
                     a->window > 0 ? "_window" : "", attention_has(a, ATTENTION_LENGTHS) ? "_lengths" : "",
                     attention_is_packed(a) ? "_packed" : "", attention_has(a, ATTENTION_BIAS) ? "_bias" : "",
                     a->score ? "_score" : "", s->attention->suffix);
    return name ? emit_symbol(plan, p, name) : NULL;
}

/* A tile was chosen for any head and any length: here those end that no kernel takes. What launches pass
 * is multiplied in 32 bits, sequences by heads and these by tiles of queries; the grid has as many blocks. */
static coda_status check(const struct attention_spec *a, const struct schedule *s, int shared)
{
    if (a->kv_heads <= 0 || a->heads % a->kv_heads)
        return fail(CODA_E_INVALID, "attention: %" PRId64 " heads on %" PRId64 " kv_heads", a->heads,
                    a->kv_heads);
    if (!s->tile.bm)
        return fail(CODA_E_UNSUPPORTED,
                    "attention: head_dim is %" PRId64 "; no tile of it fits %d bytes of shared memory",
                    a->head_dim, shared);
    if (MAX(s->grid, a->batch) > ATTENTION_MOST_BLOCKS || a->tq > ATTENTION_MOST_TIME ||
        a->tk > ATTENTION_MOST_TIME)
        return fail(CODA_E_UNSUPPORTED,
                    "attention: %" PRId64 " sequences of %" PRId64 " queries, %" PRId64 " keys and %" PRId64
                    " heads are too many for one launch",
                    a->batch, a->tq, a->tk, a->heads);
    if (a->page && a->slots > INT32_MAX)
        return fail(CODA_E_UNSUPPORTED, "attention: a pool of %" PRId64 " rows; kernels count to %d",
                    a->slots, INT32_MAX);
    return CODA_OK;
}

static void print_nothing(struct attention_text *e)
{
    text_append(e->t,
                "// no queries\n#include \"tile/block.cuh\"\n\nusing namespace coda;\n\nstruct Args {};\n");
    emit_body(e->t);
    text_append(e->t, "}\n");
    emit_entry(e->k, &(struct entry){.cluster = 1}, e->t);
}

static void print_kernel(struct attention_text *e)
{
    static void (*const by[])(struct attention_text *) = {
#define X(NAME, name) emit_attention_##name,
        ATTENTION_KERNELS(X)
#undef X
    };
    if (attention_is_empty(e->a)) print_nothing(e);
    else by[e->s->attention->index](e);
}

coda_status emit_attention(struct plan *plan, const struct program *p, const struct schedule *s,
                           struct kernel *k)
{
    const struct attention_spec *a = p->spec;
    struct text t = {0};
    coda_status status = attention_is_empty(a) ? CODA_OK : check(a, s, plan->target.shared_bytes);
    k->symbol = name_kernel(plan, p, s);
    if (!status && k->symbol)
        print_kernel(&(struct attention_text){"attention", a, s, k, &t, {0}, NULL, plan->target.sms, 0});
    if (!status) k->text = arena_string(&plan->arena, text_str(&t));
    bool failed = t.failed || plan->arena.failed;
    text_free(&t);
    return status   ? status
           : failed ? fail(CODA_E_MEMORY, "attention: no memory for the kernel's text")
                    : CODA_OK;
}

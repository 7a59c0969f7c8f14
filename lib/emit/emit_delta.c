/* emit_delta.c -- the gated delta rule becomes a kernel, or two: the struct of constants that
 * recurrent/delta.cuh wants, or delta_chunks.cuh, and the entry. Tokens, sequences and strides are
 * arguments. */
#include "delta.h"
#include "emit_recurrent.h"

/* Do n neighbouring elements of a tensor lie at a multiple of their bytes, or of 16? */
static bool is_aligned(const struct tensor_use *u, int strides, int n)
{
    bool good = u->offset % n == 0;
    for (int i = 0; i < strides; i++) good = good && u->stride[i] % n == 0;
    return u->buffer < 0 || good;
}

/* Constants of the kernel that goes token by token: what of a token and a state moves by several elements. */
static void print_steps(const struct delta_spec *s, const struct schedule *of, struct text *t)
{
    enum { WIDTH = 4 };
    const struct tensor_use *u = s->use;
    int64_t rows = of->tile.bm, groups = of->tile.bk;
    int of_row = (int)(dtype_bytes(u[DELTA_K].dtype, rows) / 4);
    int many = (of_row % 4 == 0 ? 4 : of_row % 2 == 0 ? 2 : 1) * 4 / (int)dtype_bytes(u[DELTA_K].dtype, 1);
    emit_constant(t, "i32", "groups", groups);
    emit_constant(t, "bool", "key_pieces",
                  rows * groups == s->keys && is_aligned(&u[DELTA_K], 2, many) &&
                      is_aligned(&u[DELTA_Q], 2, many));
    emit_constant(t, "bool", "value_pieces",
                  s->values % WIDTH == 0 && is_aligned(&u[DELTA_V], 2, WIDTH) &&
                      is_aligned(&u[DELTA_O], 2, WIDTH));
    emit_constant(t, "bool", "state_pieces",
                  s->values % WIDTH == 0 && is_aligned(&u[DELTA_BEFORE], 3, WIDTH) &&
                      is_aligned(&u[DELTA_AFTER], 3, WIDTH));
}

/* Does the kernel wait itself, behind its first loads of states? Where sequences begin may be of this run. */
static bool waits(const struct delta_spec *s, const struct schedule *of)
{
    return of->pdl && of->grid && !of->chunk && s->early && s->use[DELTA_STARTS].buffer < 0;
}

/* What the kernel makes of a token's gates, and whether it asks for states before it waits. */
static void print_gates(const struct delta_spec *s, const struct schedule *of, struct text *t)
{
    emit_constant(t, "bool", "gates", s->gates);
    emit_constant(t, "bool", "early", waits(s, of));
    emit_constant(t, "bool", "gated", s->gated);
    emit_constant(t, "bool", "gated_pieces", s->gated && is_aligned(&s->z, 2, 4));
    text_printf(t, "    static constexpr float factor = %af, inv_n = %af, norm_eps = %af;\n",
                (double)s->factor, (double)s->inv_n, (double)s->norm_eps);
}

static const char *const words[DELTA_USES] = {
    [DELTA_Q] = "q",           [DELTA_K] = "k",       [DELTA_V] = "v",
    [DELTA_DECAY] = "decay",   [DELTA_BETA] = "beta", [DELTA_BEFORE] = "before",
    [DELTA_STARTS] = "starts", [DELTA_O] = "o",       [DELTA_AFTER] = "after"};

struct name {
    const char *file, *name, *symbol;
};
static const struct name steps = {"delta", "Delta", "coda_delta"},
                         chunks = {"delta_chunks", "DeltaChunks", "coda_delta"},
                         sm90 = {"delta_chunks_sm90", "DeltaChunksSm90", "coda_delta"},
                         prepare = {"delta_prepare", "DeltaPrepare", "coda_delta_prepare"};

static void print_config(const struct delta_spec *s, const struct schedule *of, struct text *t)
{
    static const struct recurrent_type types[] = {{DELTA_K, "T"},         {DELTA_DECAY, "Decay"},
                                                  {DELTA_BETA, "Beta"},   {DELTA_BEFORE, "Before"},
                                                  {DELTA_AFTER, "After"}, {DELTA_STARTS, "Index"}};
    static const int flags[] = {DELTA_O, DELTA_BEFORE, DELTA_AFTER};
    emit_recurrent_types(s->use, types, ARRAY_SIZE(types), t);
    for (int i = 0; i < ARRAY_SIZE(flags); i++)
        emit_constant(t, "bool", words[flags[i]], s->use[flags[i]].buffer >= 0);
    emit_constant(t, "bool", "packed", s->use[DELTA_STARTS].buffer >= 0);
    text_printf(t, "    typedef %s Gain;\n", s->gated ? emit_dtype(s->gain.dtype) : "float");
    emit_constant(t, "bool", "by_row", s->by_row);
    emit_constant(t, "bool", "norm", s->norm);
    emit_constant(t, "bool", "with_p", s->with_p);
    emit_constant(t, "i32", "keys", s->keys);
    emit_constant(t, "i32", "values", s->values);
    emit_constant(t, "i32", "heads", s->heads);
    emit_constant(t, "i32", "group", s->heads / s->key_heads);
    if (of->chunk) {
        emit_constant(t, "i32", "slice", of->tile.bm);
        emit_constant(t, "i32", "ring", of->tile.stages);
    } else {
        emit_constant(t, "i32", "rows", of->tile.bm);
        emit_constant(t, "i32", "warps", of->tile.groups);
    }
    if (!of->chunk) print_steps(s, of, t);
    if (!of->chunk) print_gates(s, of, t);
    emit_constant(t, "i64", "starts_stride", s->use[DELTA_STARTS].stride[0]);
    text_printf(t, "    static constexpr float scale = %af, eps = %af;\n};\n", (double)s->scale,
                (double)s->eps);
}

static void print_numbers(const struct delta_spec *s, struct kernel *k, struct text *args, struct text *call)
{
    static const int rows[] = {DELTA_Q, DELTA_K, DELTA_V, DELTA_DECAY, DELTA_BETA, DELTA_O};
    static const int states[] = {DELTA_BEFORE, DELTA_AFTER};
    for (int i = 0; i < ARRAY_SIZE(rows); i++)
        emit_recurrent_strides(k, &s->use[rows[i]], words[rows[i]], 2, args, call);
    for (int i = 0; i < ARRAY_SIZE(states); i++)
        emit_recurrent_strides(k, &s->use[states[i]], words[states[i]], 3, args, call);
    emit_count(k, s->sequences);
    emit_count(k, s->time);
    text_append(args, "    u32 sequences, time;\n");
    text_append(call, "a.sequences, a.time");
}

/* Behind the numbers in the call, but among the pointers in args. */
static void print_vectors(const struct delta_spec *s, struct kernel *k, struct text *args, struct text *last)
{
    const struct tensor_use *const use[] = {&s->bias, &s->rate, &s->gain, &s->z};
    const char *const type[] = {"float", "float", "Config::Gain", "Config::T"};
    for (int i = 0; i < ARRAY_SIZE(use) && (s->gates || s->gated); i++) {
        if (!(i < 2 ? s->gates : s->gated)) {
            text_append(last, ", nullptr");
            continue;
        }
        int known = k->pointers, at = emit_use(k, use[i]);
        if (at == known) text_printf(args, "    void *a%d;\n", at);
        text_printf(last, ", (const %s *)a.a%d", type[i], at);
    }
}

static coda_status emit_kernel(struct plan *plan, const struct program *p, const struct schedule *s,
                               const struct delta_spec *of, const struct name *name, struct kernel *k)
{
    struct text t = {0}, args = {0}, call = {0}, last = {0};
    k->symbol = emit_symbol(plan, p, name->symbol);
    if (k->symbol) {
        emit_recurrent_tensors(k, of->use, DELTA_USES, DELTA_O, &args, &call);
        print_vectors(of, k, &args, &last);
        print_numbers(of, k, &args, &call);
        text_append(&call, text_str(&last));
        if (of->gated) {
            text_append(&call, ", ");
            emit_recurrent_strides(k, &of->z, "z", 2, &args, &call);
        }
        text_printf(&t, "// the gated delta rule of %lld heads of %lld x %lld\n", (wide)of->heads,
                    (wide)of->keys, (wide)of->values);
        emit_recurrent_begin(&t, name->file, &args);
        print_config(of, s, &t);
        if (s->chunk)
            text_printf(&t, "\nstatic_assert((%s<Config>::shared_bytes + 1023) / 1024 * 1024 == %d);\n",
                        name->name, s->shared_bytes);
        else text_append(&t, "\nusing Shared = Delta<Config>::Shared;\n");
        emit_recurrent_body(k, s, name->name, !s->chunk, waits(of, s), &call, &t);
    }
    t.failed = t.failed || last.failed;
    text_free(&last);
    return emit_recurrent_finish(plan, k, "delta", &t, &args, &call);
}

coda_status emit_delta(struct plan *plan, const struct program *p, const struct schedule *s, struct kernel *k)
{
    const struct delta_spec *of = p->spec;
    return emit_kernel(plan, p, s, of, of->prepared ? &sm90 : s->chunk ? &chunks : &steps, k);
}

coda_status emit_delta_prepare(struct plan *plan, const struct program *p, const struct schedule *s,
                               struct kernel *k)
{
    struct delta_spec of = delta_of_prepare(p->spec);
    of.use[DELTA_O].dtype = CODA_BF16; /* as the rule's o */
    return emit_kernel(plan, p, s, &of, &prepare, k);
}

/*
 * fuzz_build.c -- random builder calls, some with hostile arguments: fuzz_build SECONDS [SEED].
 *
 * After each call the graph either verifies, or is poisoned with one line of text, stays so, and is
 * made again from the text of its last good state. Run it under sanitizers.
 */
#include "graph.h"
#include "util_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct fuzz {
    struct random r;
    coda_graph *g;
    struct text good; /* of the graph before its last mistake */
    long calls, mistakes;
};

static void stop(const struct fuzz *f, const char *what)
{
    fprintf(stderr, "fuzz_build: %s: %s\n%s", what, coda_error(), text_str(&f->good));
    abort();
}

/* ---- Arguments ---- */

static int64_t number(struct fuzz *f)
{
    static const int64_t hostile[] = {-1,        -2,        7,         1 << 20,   INT32_MAX,
                                      INT32_MIN, INT64_MAX, INT64_MIN, 1LL << 62, 1LL << 40};
    static const int64_t usual[] = {0, 1, 1, 2, 2, 2, 3, 4, 4, 4, 8};
    if (f->g->dims->expressions && random_chance(&f->r, 25))
        return DIM_FIRST - random_below(&f->r, f->g->dims->expressions); /* one of the graph's */
    if (random_chance(&f->r, 3)) return hostile[random_below(&f->r, ARRAY_SIZE(hostile))];
    return usual[random_below(&f->r, ARRAY_SIZE(usual))];
}

static const int64_t *numbers(struct fuzz *f, int64_t *out)
{
    for (int i = 0; i < 8; i++) out[i] = number(f);
    return random_chance(&f->r, 1) ? NULL : out;
}

static int rank(struct fuzz *f)
{
    return random_chance(&f->r, 97) ? (int)random_below(&f->r, 5) : (int)number(f);
}

static coda_dtype dtype(struct fuzz *f)
{
    return random_chance(&f->r, 98) ? (coda_dtype)(1 + random_below(&f->r, CODA_U8)) : (coda_dtype)number(f);
}

static coda_value value(struct fuzz *f)
{
    if (random_chance(&f->r, 2)) return CODA_NONE;
    if (random_chance(&f->r, 1)) return (coda_value){(uint32_t)random_next(&f->r)};
    return (coda_value){(uint32_t)(1 + random_below(&f->r, f->g->nodes + random_chance(&f->r, 1)))};
}

static coda_value maybe(struct fuzz *f) { return random_chance(&f->r, 50) ? CODA_NONE : value(f); }

static float real(struct fuzz *f)
{
    uint32_t bits = (uint32_t)random_next(&f->r);
    float x;
    memcpy(&x, &bits, sizeof x);
    return random_chance(&f->r, 90) ? 0.5f : x;
}

static const char *name(struct fuzz *f, char *buf)
{
    static const char *const hostile[] = {"", "1", "a b", "\xff", "a%n%s", "..", "a\nb", "\"", NULL};
    if (random_chance(&f->r, 4)) return hostile[random_below(&f->r, ARRAY_SIZE(hostile))];
    sprintf(buf, "n%d", (int)random_below(&f->r, 1000));
    return buf;
}

/* ---- Calls ---- */

static void leaf(struct fuzz *f)
{
    int64_t dims[8], strides[8];
    char buf[32];
    const char *n = name(f, buf);
    coda_dtype t = dtype(f);
    int r = rank(f);
    const int64_t *d = numbers(f, dims), *s = numbers(f, strides);
    switch (random_below(&f->r, 9)) {
    case 7: coda_state(f->g, n, t, r, d); break;
    case 8: coda_state_strided(f->g, n, t, r, d, s); break;
    case 6: coda_scalar(f->g, n, t); break;
    case 0: coda_weight_strided(f->g, n, t, r, d, s); break;
    case 1: coda_input_strided(f->g, n, t, r, d, s); break;
    case 2:
    case 3: coda_weight(f->g, n, t, r, d); break;
    default: coda_input(f->g, n, t, r, d);
    }
}

static void constant(struct fuzz *f)
{
    coda_constant(f->g, dtype(f), random_chance(&f->r, 50) ? real(f) : (double)number(f));
}

static void symbol(struct fuzz *f)
{
    char buf[32];
    if (random_chance(&f->r, 70)) return (void)coda_symbol(f->g, name(f, buf), number(f) & 3, number(f), 1);
    coda_symbol(f->g, name(f, buf), number(f), number(f), number(f));
}

static void extent(struct fuzz *f)
{
    int64_t a = number(f), b = number(f);
    coda_dim d = random_chance(&f->r, 50)   ? coda_dim_mul(f->g, a, b)
                 : random_chance(&f->r, 70) ? coda_dim_add(f->g, a, b)
                                            : coda_dim_sub(f->g, a, b);
    if ((d == INT64_MIN) != (f->g->status != CODA_OK)) stop(f, "no dimension, and no mistake");
}

static void output(struct fuzz *f)
{
    int64_t strides[8];
    char buf[32];
    const char *n = name(f, buf);
    if (random_chance(&f->r, 60)) coda_output(f->g, n, value(f));
    else if (random_chance(&f->r, 30)) coda_output_add(f->g, n, value(f));
    else if (random_chance(&f->r, 20)) coda_output_add_strided(f->g, n, value(f), numbers(f, strides));
    else coda_output_strided(f->g, n, value(f), numbers(f, strides));
}

/* Some that there may be, and more pushes than pops. */
static void scope(struct fuzz *f)
{
    static const char *const hostile[] = {"", "a b", "%", "\xff", "a@b", "a\nb"};
    if (random_chance(&f->r, 2))
        coda_scope_push(f->g, "%s", hostile[random_below(&f->r, ARRAY_SIZE(hostile))]);
    else if (random_chance(&f->r, 2)) coda_scope_push(f->g, "%0*d", (int)random_below(&f->r, 300), 1);
    else if (random_chance(&f->r, 55)) coda_scope_push(f->g, "n.%d", (int)random_below(&f->r, 5));
    else if (f->g->depth || random_chance(&f->r, 5)) coda_scope_pop(f->g);
}

static void conv1d(struct fuzz *f)
{
    coda_value after, bias = maybe(f), before = maybe(f);
    coda_conv1d(f->g, value(f), value(f), bias, before, maybe(f), random_chance(&f->r, 70) ? &after : NULL);
}

static void scan(struct fuzz *f)
{
    coda_scan_options o = {0, number(f), (int)random_below(&f->r, 2), maybe(f), maybe(f), maybe(f)};
    coda_value after, b = value(f), state = maybe(f);
    coda_scan(f->g, value(f), value(f), value(f), b, b, state, maybe(f), &o,
              random_chance(&f->r, 70) ? &after : NULL);
}

static void delta(struct fuzz *f)
{
    coda_delta_options o = CODA_DELTA_OPTIONS_INIT;
    coda_value after, q = value(f), k = random_chance(&f->r, 50) ? q : value(f), before = maybe(f);
    o.heads = random_below(&f->r, 4), o.norm = random_chance(&f->r, 50), o.eps = real(f);
    coda_delta(f->g, q, k, value(f), value(f), value(f), before, maybe(f), &o, &after);
}

static void elementwise(struct fuzz *f)
{
    static coda_value (*const unary[])(coda_graph *, coda_value) = {
        coda_relu,    coda_relu2,   coda_gelu_erf, coda_gelu_tanh,   coda_gelu_quick, coda_exp,
        coda_silu,    coda_tanh,    coda_sigmoid,  coda_softplus,    coda_softmax,    coda_log,
        coda_row_sum, coda_row_max, coda_row_mean, coda_log_sum_exp, coda_neg,        coda_reciprocal};
    static coda_value (*const binary[])(coda_graph *, coda_value, coda_value) = {
        coda_add,    coda_sub,       coda_mul,       coda_div,     coda_bias,
        coda_matmul, coda_matmul_kn, coda_embedding, coda_maximum, coda_less_equal};
    static coda_value (*const gated[])(coda_graph *, coda_value, coda_layout) = {
        coda_swiglu, coda_geglu, coda_reglu, coda_glu, coda_geglu_erf};
    switch (random_below(&f->r, 10)) {
    case 9: delta(f); break;
    case 8: scan(f); break;
    case 7: conv1d(f); break;
    case 6: coda_row_sums(f->g, value(f), value(f), number(f)); break;
    case 5:
        if (random_chance(&f->r, 70)) coda_where(f->g, value(f), value(f), value(f));
        else if (random_chance(&f->r, 50)) coda_clip(f->g, value(f), real(f), real(f));
        else coda_swiglu_clamped(f->g, value(f), (coda_layout)random_below(&f->r, 3), real(f), real(f));
        break;
    case 4: coda_reduce_columns(f->g, prim_table[random_below(&f->r, prim_count)].name, value(f)); break;
    case 0: unary[random_below(&f->r, ARRAY_SIZE(unary))](f->g, value(f)); break;
    case 1: coda_scale(f->g, value(f), real(f)); break;
    case 2:
        gated[random_below(&f->r, ARRAY_SIZE(gated))](f->g, value(f), (coda_layout)random_below(&f->r, 3));
        break;
    default: binary[random_below(&f->r, ARRAY_SIZE(binary))](f->g, value(f), value(f));
    }
}

static void apply(struct fuzz *f)
{
    coda_value in[PRIM_MAX_INPUTS] = {value(f), value(f), value(f), value(f)};
    float params[PRIM_MAX_PARAMS] = {real(f), real(f), real(f), real(f)};
    int user = f->g->maps ? (int)random_below(&f->r, 2) : 0;
    const struct prim *p =
        user ? f->g->map[random_below(&f->r, f->g->maps)] : &prim_table[random_below(&f->r, prim_count)];
    int n = random_chance(&f->r, 95) ? p->inputs : (int)number(f);
    coda_apply(f->g, random_chance(&f->r, 98) ? p->name : "no.such", random_chance(&f->r, 99) ? in : NULL, n,
               random_chance(&f->r, 95) ? params : NULL);
}

static void define(struct fuzz *f)
{
    coda_map_def d = CODA_MAP_DEF_INIT;
    char buf[32], source[64];
    int n = (int)random_below(&f->r, 60);
    for (int i = 0; i < n; i++) source[i] = (char)(1 + random_below(&f->r, 255));
    source[n] = 0;
    d.name = name(f, buf);
    d.inputs = (int)number(f);
    d.params = (int)number(f);
    d.source = source;
    if (random_chance(&f->r, 3)) d.size = (size_t)random_below(&f->r, sizeof d + 8);
    coda_define_map(f->g, &d);
}

static void norm(struct fuzz *f)
{
    if (random_chance(&f->r, 50)) coda_rms_norm(f->g, value(f), maybe(f), real(f));
    else coda_layer_norm(f->g, value(f), maybe(f), maybe(f), real(f));
}

/* Mostly the right size, sometimes an older caller's, sometimes nonsense. */
static size_t options_size(struct fuzz *f, size_t size)
{
    if (random_chance(&f->r, 90)) return size;
    return random_chance(&f->r, 50) ? (size_t)random_below(&f->r, (int64_t)size) : (size_t)random_next(&f->r);
}

static void rope(struct fuzz *f)
{
    coda_rope_options o = {
        .size = options_size(f, sizeof o),
        .head_dim = number(f),
        .rotary = 2 * (number(f) / 2),
        .heads = number(f),
        .base = (float)(100 * real(f)),
        .style = (coda_rope_style)random_below(&f->r, 2),
        .scale = random_chance(&f->r, 70) ? 0 : (float)real(f),
        .inverse = random_chance(&f->r, 30),
    };
    if (random_chance(&f->r, 20)) o.frequencies = value(f);
    if (random_chance(&f->r, 50)) o.rotary = o.heads = 0;
    for (int i = 0; i < 4 && random_chance(&f->r, 30); i++) o.sections[i] = number(f);
    o.interleave_sections = random_chance(&f->r, 10);
    coda_rope(f->g, value(f), maybe(f), random_chance(&f->r, 70) ? &o : NULL);
}

static void attention(struct fuzz *f)
{
    coda_attention_options o = {
        .size = options_size(f, sizeof o),
        .heads = number(f),
        .kv_heads = number(f),
        .window = number(f),
        .causal = (int)number(f),
        .scale = real(f),
        .align = (coda_attention_align)number(f),
        .ahead = random_chance(&f->r, 70) ? 0 : number(f),
        .softcap = random_chance(&f->r, 70) ? 0 : real(f),
        .layout = (coda_cache_layout)(random_chance(&f->r, 70) ? 0 : number(f)),
    };
    if (random_chance(&f->r, 20)) o.ranges = value(f);
    if (random_chance(&f->r, 20)) o.slopes = value(f);
    if (random_chance(&f->r, 20)) o.k_scale = value(f);
    if (random_chance(&f->r, 20)) o.v_scale = value(f);
    if (random_chance(&f->r, 20)) o.sinks = value(f);
    if (random_chance(&f->r, 20)) o.starts = value(f);
    if (random_chance(&f->r, 20)) o.bias = value(f);
    if (random_chance(&f->r, 20)) o.score = prim_table[random_below(&f->r, prim_count)].name;
    if (f->g->maps && random_chance(&f->r, 20)) o.score = f->g->map[0]->name;
    for (int i = 0; i < 4 && random_chance(&f->r, 30); i++) o.score_params[i] = real(f);
    coda_value q = value(f), k = random_chance(&f->r, 50) ? q : value(f);
    coda_value v = random_chance(&f->r, 70) ? k : value(f), lengths = maybe(f), sums;
    const coda_attention_options *opt = random_chance(&f->r, 50) ? &o : NULL;
    if (random_chance(&f->r, 70)) coda_attention(f->g, q, k, v, lengths, opt);
    else coda_attention_lse(f->g, q, k, v, lengths, opt, random_chance(&f->r, 95) ? &sums : NULL);
}

/* What fits a state, or anything. */
static void state(struct fuzz *f)
{
    coda_append_options o = {options_size(f, sizeof o), (coda_cache_layout)random_below(&f->r, 3), maybe(f)};
    coda_value s = value(f), rows = value(f), slots = value(f);
    for (int tries = 0; tries < 20 && s.id && s.id <= (uint32_t)f->g->nodes; tries++, s = value(f))
        if (f->g->node[s.id - 1].state == (int)s.id - 1 && f->g->node[s.id - 1].next < 0) break;
    if (!s.id || s.id > (uint32_t)f->g->nodes || random_chance(&f->r, 40)) {
        coda_append(f->g, s, rows, slots, random_chance(&f->r, 50) ? &o : NULL);
        return;
    }
    const struct type *t = &f->g->node[s.id - 1].type;
    bool heads = t->rank == 4 && random_chance(&f->r, 70);
    if (random_chance(&f->r, 40)) coda_assign(f->g, s, random_chance(&f->r, 50) ? s : rows);
    else if (t->rank >= 1) {
        int64_t n[] = {2, t->dim[t->rank - 1] * (heads ? t->dim[1] : 1)};
        o = (coda_append_options){.layout = heads ? CODA_LAYOUT_HND : CODA_LAYOUT_NHD};
        char a[32], b[32];
        bool narrow = t->dtype == CODA_F8E4M3;
        if (narrow && random_chance(&f->r, 50)) {
            int64_t scales = random_chance(&f->r, 50) ? 1 : n[1];
            char c[32];
            o.scale = coda_input(f->g, name(f, c), CODA_F32, 1, &scales);
        }
        rows = coda_input(f->g, name(f, a), narrow ? CODA_BF16 : t->dtype, 2, n);
        coda_dtype whole = random_chance(&f->r, 50) ? CODA_I32 : CODA_I64;
        coda_append(f->g, s, rows, coda_input(f->g, name(f, b), whole, 1, n), &o);
    }
}

static void loss(struct fuzz *f)
{
    coda_cross_entropy_options o = {options_size(f, sizeof o), (int32_t)number(f),
                                    (coda_reduction)random_below(&f->r, 4), random_chance(&f->r, 10)};
    coda_cross_entropy(f->g, value(f), value(f), random_chance(&f->r, 50) ? &o : NULL);
}

static void top_k(struct fuzz *f)
{
    coda_value best[2];
    coda_value *values = random_chance(&f->r, 70) ? &best[0] : NULL;
    coda_top_k(f->g, value(f), number(f), values, random_chance(&f->r, 70) ? &best[1] : NULL);
}

static void gradient(struct fuzz *f)
{
    coda_grad_options o = {options_size(f, sizeof o), (coda_dtype)random_below(&f->r, 5)};
    coda_value y[2] = {value(f), value(f)}, dy[2] = {maybe(f), maybe(f)}, x[2] = {value(f), value(f)}, dx[2];
    coda_grad(f->g, y, random_chance(&f->r, 60) ? NULL : dy, 1 + (int)random_below(&f->r, 2), x, 2, dx,
              random_chance(&f->r, 60) ? NULL : &o);
}

static void draw(struct fuzz *f)
{
    coda_sample_options o = CODA_SAMPLE_OPTIONS_INIT;
    coda_value logprob;
    if (random_chance(&f->r, 30)) o.temperature = value(f), o.top_p = value(f);
    if (random_chance(&f->r, 30)) o.top_k = value(f), o.bias = value(f);
    if (random_chance(&f->r, 30)) coda_iota(f->g, number(f));
    else if (random_chance(&f->r, 50)) coda_nucleus(f->g, value(f), CODA_NONE, value(f), CODA_NONE, o.min_p);
    else coda_sample(f->g, value(f), value(f), value(f), &o, random_chance(&f->r, 50) ? &logprob : NULL);
}

static void move(struct fuzz *f)
{
    int64_t dims[8];
    int perm[8];
    coda_value in[104] = {value(f), value(f), value(f)}, x = in[0];
    const struct type *t = x.id && x.id <= (uint32_t)f->g->nodes ? &f->g->node[x.id - 1].type : NULL;
    int shift = (int)random_below(&f->r, 4), axis = (int)random_below(&f->r, 4) - random_chance(&f->r, 2);
    for (int i = 0; i < 8; i++) perm[i] = t && t->rank ? (i + shift) % t->rank : (int)number(f);
    if (random_chance(&f->r, 50)) in[1] = in[2] = x;
    for (int i = 3; i < ARRAY_SIZE(in); i++) in[i] = in[i - 3];
    switch (random_below(&f->r, 5)) {
    case 0: coda_cast(f->g, x, dtype(f)); break;
    case 1: coda_slice(f->g, x, axis, number(f) / 2, number(f), number(f)); break;
    case 2:
        (random_chance(&f->r, 50) ? coda_concat : coda_interleave)(
            f->g, axis, in, random_chance(&f->r, 98) ? 1 + shift % 3 : 100 + shift);
        break;
    case 3:
        if (!t || random_chance(&f->r, 30)) coda_reshape(f->g, x, rank(f), numbers(f, dims));
        else coda_reshape(f->g, x, 2, (int64_t[]){type_rows(t), type_columns(t)});
        break;
    default: coda_transpose(f->g, x, perm);
    }
}

/* ---- Checks ---- */

/* What was built until the mistake is a graph; the mistake is its text's last line, a comment. */
static void check_text(struct fuzz *f)
{
    struct text t = {0};
    coda_graph *again;
    graph_print(f->g, &t);
    const char *last = text_str(&t) + t.length - 1;
    while (last > text_str(&t) && last[-1] != '\n') last--;
    if (strncmp(last, "; mistake: ", 11)) stop(f, "the text of a poisoned graph does not say so");
    if (coda_graph_parse(&again, text_str(&t)) != CODA_OK) stop(f, "the text of a poisoned graph is wrong");
    coda_graph_free(again);
    text_free(&t);
}

/* A poisoned graph keeps its message and takes no more calls. */
static void check_poison(struct fuzz *f)
{
    char message[sizeof f->g->error];
    int nodes = f->g->nodes, outputs = f->g->outputs;
    coda_status s = coda_graph_status(f->g);
    bool without = s == CODA_E_UNSUPPORTED && !strncmp(coda_error(), "grad", 4); /* what has no derivative */
    if (s != CODA_E_INVALID && !without) stop(f, "poison is no mistake of the caller");
    snprintf(message, sizeof message, "%s", coda_error());
    if (!message[0] || strchr(message, '\n')) stop(f, "poison without a line");
    (coda_relu)(f->g, (coda_value){1});
    coda_output(f->g, "more", (coda_value){1});
    coda_graph_status(f->g);
    if (strncmp(message, coda_error(), strlen(message)) != 0) stop(f, "the message changed");
    if (f->g->nodes != nodes || f->g->outputs != outputs) stop(f, "a poisoned graph grew");
    if (random_chance(&f->r, 20)) check_text(f);
}

static void check_args(const struct fuzz *f)
{
    coda_arg_info a = CODA_ARG_INFO_INIT;
    for (int i = 0; i < coda_graph_args(f->g); i++)
        if (coda_graph_arg(f->g, i, &a) != CODA_OK || !a.name || a.bytes > (size_t)1 << 62)
            stop(f, "argument");
    for (int i = 0; i < f->g->nodes; i++) {
        int64_t dims[CODA_MAX_RANK];
        coda_dtype t;
        if (coda_value_shape(f->g, (coda_value){(uint32_t)i + 1}, dims, &t) < 0) stop(f, "value_shape");
    }
}

/* The graph's text, which must be a fixed point. */
static void save(struct fuzz *f)
{
    coda_graph *again;
    struct text t = {0};
    text_free(&f->good);
    graph_print(f->g, &f->good);
    if (coda_graph_parse(&again, text_str(&f->good)) != CODA_OK) stop(f, "printed but not read");
    graph_print(again, &t);
    if (strcmp(text_str(&t), text_str(&f->good)) != 0) stop(f, "no fixed point");
    text_free(&t);
    coda_graph_free(again);
}

/* With numbers for its symbols a graph is one again, unless the numbers are refused. */
static void check_bound(struct fuzz *f)
{
    int64_t values[MOST_SYMBOLS];
    coda_graph *bound;
    const struct dims *d = f->g->dims;
    bool good = true;
    for (int i = 0; i < d->symbols; i++) {
        const struct symbol *s = &d->symbol[i];
        int64_t steps = (s->most - s->least) / s->multiple;
        values[i] = s->least + s->multiple * random_below(&f->r, steps + (steps < INT64_MAX));
        if (random_chance(&f->r, 2)) values[i] = number(f);
        good = good && values[i] >= s->least && values[i] <= s->most && values[i] % s->multiple == 0;
    }
    coda_status s = coda_graph_bind(&bound, f->g, values, d->symbols);
    if ((s == CODA_OK) != good) stop(f, "bind");
    if (s == CODA_OK && graph_verify(bound) != CODA_OK) stop(f, "bound but not valid");
    coda_graph_free(bound);
}

static void step(struct fuzz *f)
{
    static void (*const call[])(struct fuzz *) = {
        symbol,      extent,      leaf,   leaf, output, elementwise, constant, apply,
        elementwise, elementwise, define, norm, rope,   attention,   loss,     move,
        move,        top_k,       state,  draw, scope,  gradient};
    call[random_below(&f->r, ARRAY_SIZE(call))](f);
    f->calls++;
    if (f->g->status == CODA_OK) {
        if (graph_verify(f->g) != CODA_OK) stop(f, "built but not valid");
        if (f->g->dims->symbols && random_chance(&f->r, 20)) check_bound(f);
        save(f);
        return;
    }
    f->mistakes++;
    check_poison(f);
    coda_graph_free(f->g);
    if (coda_graph_parse(&f->g, text_str(&f->good)) != CODA_OK) stop(f, "good text refused");
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    unsigned long long seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (unsigned long long)time(NULL);
    struct fuzz f = {.r = {seed}};
    time_t begin = time(NULL);
    printf("fuzz_build: seed %llu\n", seed);
    fflush(stdout);
    while (difftime(time(NULL), begin) < seconds) {
        f.g = coda_graph_new();
        text_free(&f.good);
        while (f.g->nodes < 30 && random_chance(&f.r, 99)) step(&f);
        check_args(&f);
        coda_graph_free(f.g);
    }
    text_free(&f.good);
    printf("fuzz_build: %ld calls, %ld of them mistakes, seed %llu: ok\n", f.calls, f.mistakes, seed);
    return 0;
}

/*
 * build.c -- weights by name, products, norms, attention over caches or pages.
 */
#include <stdio.h>
#include <string.h>

#include "cut.h"
#include "tensor.h"

void build_root(struct build *b, const char *name, const char *const *roots, int count)
{
    char path[128];
    snprintf(b->root, sizeof b->root, "%s", b->from ? "" : roots[0]);
    for (int i = 0; i < count && !b->root[0]; i++) {
        snprintf(path, sizeof path, "%s%s", roots[i], name);
        if (checkpoint_find(b->from, path)) snprintf(b->root, sizeof b->root, "%s", roots[i]);
    }
    build_prefix(b, "", 0);
}

void build_decoder(struct build *b)
{
    static const char *const roots[] = {"model.", "language_model.model.", "model.language_model."};
    build_root(b, "embed_tokens.weight", roots, sizeof roots / sizeof *roots);
}

/* In place of the last one: "layers.17." is the scope layers.17, "" is none. */
static void open_scope(struct build *b, const char *prefix)
{
    int n = (int)strlen(prefix);
    if (b->scoped) coda_scope_pop(b->g);
    b->scoped = n > 1;
    if (b->scoped) coda_scope_push(b->g, "%.*s", n - (prefix[n - 1] == '.'), prefix);
}

void build_prefix(struct build *b, const char *format, int layer)
{
    int n = snprintf(b->prefix, sizeof b->prefix, "%s", b->root);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
    snprintf(b->prefix + n, sizeof b->prefix - (size_t)n, format, layer);
#pragma GCC diagnostic pop
    open_scope(b, b->prefix + n);
}

/* ---- Weights ---- */

coda_value build_fail(struct build *b) { return b->failed = true, CODA_NONE; }

/* What has more dimensions than a matrix may be one all the same: leading ones count for nothing, and a
 * filter [rows, channels, height, width] is rows of all that is behind, of which this is the number. */
static int64_t behind(const struct stored_tensor *t, int wanted, int64_t *rows)
{
    int64_t count = 1;
    int d = 0;
    while (t->rank - d > wanted && t->dims[d] == 1) d++;
    *rows = d < t->rank ? t->dims[d] : 1;
    for (int i = d + 1; i < t->rank; i++) count *= t->dims[i];
    return count;
}

const struct stored_tensor *build_tensor(struct build *b, const char *name, int64_t rows, int64_t columns)
{
    const struct stored_tensor *t = checkpoint_use(b->from, name);
    if (!t) return fault_set(b->fault, "tensor %s is missing", name), NULL;
    if (!t->dtype)
        return fault_set(b->fault, "tensor %s: %s is not supported: F32, F16 or BF16 are", name, t->type),
               NULL;
    int64_t there, wide = behind(t, columns ? 2 : 1, &there);
    if (t->rank < (columns ? 2 : 1) || there != rows || wide != (columns ? columns : 1))
        return fault_set(b->fault, "tensor %s: rank %d and %lld x %lld, where the config wants %lld x %lld",
                         name, t->rank, (long long)there, (long long)wide, (long long)rows,
                         (long long)(columns ? columns : 1)),
               NULL;
    return t;
}

bool build_learns(const struct build *b, const struct weight *w, const char *name)
{
    return w->stored_count && (!b->adapter || strstr(name, ".adapter."));
}

coda_value build_leaf(struct build *b, struct weight *w, const char *name, int64_t rows, int64_t columns)
{
    bool state = b->updates && build_learns(b, w, name);
    int64_t dims[] = {rows, columns};
    w->height = rows;
    if (w->kind == WEIGHT_PACKED) {
        w->value = coda_weight_packed(b->g, name, &w->matrix[0].format, 2, dims, w->dtype);
        w->bytes = (size_t)coda_packed_bytes(&w->matrix[0].format, rows, columns);
    } else {
        w->value = (state ? coda_state : coda_weight)(b->g, name, w->dtype, columns ? 2 : 1, dims);
        w->bytes = (size_t)(rows * (columns ? columns : 1)) * dtype_bytes(w->dtype);
    }
    if (weights_add(b->weights, w, name)) return w->value;
    weight_drop(w);
    return fault_set(b->fault, "%s: out of memory", name), build_fail(b);
}

/* The next part of a weight, and where the checkpoint has it. */
static bool add_part(struct build *b, struct weight *w, enum cut cut, const char *name, int64_t rows,
                     int64_t columns)
{
    int i = w->stored_count;
    if (!(w->stored[i] = strdup(name))) return fault_set(b->fault, "%s: out of memory", name);
    w->rows[i] = rows;
    w->stored_count++;
    if (!b->from) return true;
    if (cut != CUT_NONE) return build_cut_part(b, w, cut, name, rows, columns, false);
    return (w->part[w->parts++] = build_tensor(b, name, rows, columns)) != NULL;
}

static coda_value stacked(struct build *b, const struct part *parts, int n, const char *suffix,
                          int64_t columns, struct weight *w)
{
    char name[160], first[160];
    int64_t rows = 0;
    if (b->failed) return CODA_NONE;
    snprintf(first, sizeof first, "%s%s%s%s", b->prefix, parts[0].name, suffix,
             build_cut(b, parts[0].name) ? ".part" : "");
    const struct weight *known = weights_find(b->weights, first);
    if (known) return known->value;
    w->columns = columns;
    for (int i = 0; i < n; rows += parts[i++].rows) {
        enum cut cut = build_cut(b, parts[i].name);
        snprintf(name, sizeof name, "%s%s%s", b->prefix, parts[i].name, suffix);
        if (!add_part(b, w, cut, name, parts[i].rows, columns)) return weight_drop(w), build_fail(b);
    }
    return build_leaf(b, w, first, rows, columns);
}

coda_value build_one(struct build *b, const char *name, const char *suffix, int64_t rows, int64_t columns,
                     struct weight *w)
{
    return stacked(b, PART({name, rows}), suffix, columns, w);
}

coda_value build_times(struct build *b, coda_value x, float factor)
{
    return factor == 1 ? x : coda_scale(b->g, x, factor);
}

coda_value build_weight(struct build *b, const struct part *parts, int n, const char *suffix, int64_t columns)
{
    struct weight w = {.dtype = b->dtype};
    return stacked(b, parts, n, suffix, columns, &w);
}

coda_value build_turned(struct build *b, const char *name, int64_t inputs, int64_t outputs)
{
    char stored[160], leaf[170];
    struct weight w = {.dtype = b->dtype, .columns = outputs};
    enum cut cut = build_cut(b, name);
    if (cut == CUT_NONE) return build_weight(b, PART({name, inputs}), ".weight", outputs);
    if (b->failed) return CODA_NONE;
    snprintf(stored, sizeof stored, "%s%s.weight", b->prefix, name);
    snprintf(leaf, sizeof leaf, "%s.part", stored);
    if (b->from && !build_cut_part(b, &w, cut, stored, outputs, inputs, true)) return build_fail(b);
    return build_leaf(b, &w, leaf, inputs, outputs);
}

coda_value build_gain(struct build *b, const char *name, int64_t rows, bool unit)
{
    struct weight w = {.dtype = unit ? CODA_F32 : b->dtype, .plus = unit};
    return stacked(b, PART({name, rows}), ".weight", 0, &w);
}

coda_value build_exact(struct build *b, const char *name, const char *suffix, int64_t rows, int64_t columns,
                       bool rates)
{
    struct weight w = {.dtype = CODA_F32, .rates = rates};
    return build_one(b, name, suffix, rows, columns, &w);
}

static coda_value frequencies(struct build *b, const struct rope *r)
{
    const char *name = r == &b->c->rope ? "rope.frequencies" : "rope.sliding_frequencies";
    const struct weight *known = weights_find(b->weights, name);
    bool far = r->original && b->context > r->original;
    struct weight w = {.dtype = CODA_F32, .numbers = far ? r->long_frequencies : r->frequencies};
    return known ? known->value : build_leaf(b, &w, name, r->rotary / 2, 0);
}

/* ---- Parts of a block ---- */

coda_value build_rms_norm(struct build *b, coda_value x, const char *name)
{
    return coda_rms_norm(b->g, x, build_gain(b, name, b->c->hidden, b->c->unit_gains), b->c->eps);
}

coda_value build_layer_norm(struct build *b, coda_value x, const char *name)
{
    coda_value gain = build_gain(b, name, b->c->hidden, false);
    return coda_layer_norm(b->g, x, gain, build_weight(b, PART({name, b->c->hidden}), ".bias", 0), b->c->eps);
}

coda_value build_activation(struct build *b, coda_value x)
{
    switch (b->c->activation) {
    case ACTIVATION_SILU: return coda_silu(b->g, x);
    case ACTIVATION_GELU: return coda_gelu_erf(b->g, x);
    case ACTIVATION_GELU_TANH: return coda_gelu_tanh(b->g, x);
    case ACTIVATION_GELU_QUICK: return coda_gelu_quick(b->g, x);
    case ACTIVATION_RELU: return coda_relu(b->g, x);
    case ACTIVATION_RELU2: return coda_relu2(b->g, x);
    }
    return CODA_NONE;
}

/* ---- Attention over caches, or over pages ---- */

static coda_value cached(struct build *b, const char *name, int layer, coda_value rows, int64_t width)
{
    char numbered[32];
    snprintf(numbered, sizeof numbered, "%.16s.%d", name, layer);
    coda_value cache = b->page
                           ? coda_state(b->g, numbered, b->dtype, DIMS((int64_t)b->pages * b->page, width))
                           : coda_state(b->g, numbered, b->dtype, DIMS(1, b->context, width));
    return coda_append(b->g, cache, rows, b->slots, NULL);
}

coda_value build_range(struct build *b, coda_value x, int64_t from, int64_t columns)
{
    return coda_slice(b->g, x, -1, from, from + columns, 1);
}

coda_value build_apart(struct build *b, coda_value x, int64_t heads, int64_t columns)
{
    int64_t texts = b->sentences ? b->sentences : 1;
    return b->page ? coda_reshape(b->g, x, DIMS(b->rows, heads, columns))
                   : coda_reshape(b->g, x, DIMS(texts, b->rows, heads, columns));
}

coda_value build_together(struct build *b, coda_value x, int64_t columns)
{
    int64_t texts = b->sentences ? b->sentences : 1;
    return b->page ? coda_reshape(b->g, x, DIMS(b->rows, columns))
                   : coda_reshape(b->g, x, DIMS(texts, b->rows, columns));
}

/* Each head's columns over the root of their mean square. */
static coda_value head_norm(struct build *b, coda_value x, const char *name, int64_t heads, bool unit)
{
    int64_t head = b->c->head_dim;
    coda_value gain = build_gain(b, name, head, unit);
    coda_value y = coda_rms_norm(b->g, build_apart(b, x, heads, head), gain, b->c->eps);
    return build_together(b, y, heads * head);
}

static coda_value rotated(struct build *b, coda_value x, const struct rope *r)
{
    coda_rope_options o = CODA_ROPE_OPTIONS_INIT;
    o.head_dim = b->c->head_dim;
    o.rotary = r->rotary;
    o.base = (float)r->base;
    o.style = r->interleaved ? CODA_ROPE_INTERLEAVED : CODA_ROPE_HALF;
    o.scale = r->scale;
    if (r->scaled) o.frequencies = frequencies(b, r);
    return coda_rope(b->g, x, b->positions, &o);
}

coda_value build_attend(struct build *b, coda_value q, coda_value k, coda_value v, int layer,
                        struct attention how)
{
    const struct config *c = b->c;
    int64_t keys = (int64_t)c->kv_heads * c->head_dim;
    const struct rope *r = c->sliding[layer] ? &c->sliding_rope : &c->rope;
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    o.heads = c->heads;
    o.kv_heads = c->kv_heads;
    bool text = !b->sentences; /* whose keys are in caches */
    o.causal = text || b->packed;
    o.align = text ? CODA_ALIGN_LENGTH : CODA_ALIGN_START;
    o.window = c->sliding[layer] ? c->window : 0;
    o.ahead = !o.causal && o.window ? o.window - 1 : 0;
    o.ranges = b->ranges;
    o.scale = c->attention_scale;
    o.softcap = c->attention_cap;
    if (b->page) o.page = b->page, o.table = b->table, o.starts = b->starts;

    if (how.norms) q = head_norm(b, q, "self_attn.q_norm", c->heads, how.unit);
    if (how.norms) k = head_norm(b, k, "self_attn.k_norm", c->kv_heads, how.unit);
    if (how.rope) q = rotated(b, q, r);
    if (how.rope) k = rotated(b, k, r);
    if (text) k = cached(b, "keys", layer, k, keys);
    if (text) v = cached(b, "values", layer, v, keys);
    return coda_attention(b->g, q, k, v, b->lengths, &o);
}

coda_value build_attention(struct build *b, coda_value qkv, int layer, struct attention how)
{
    int64_t q = (int64_t)b->c->heads * b->c->head_dim, k = (int64_t)b->c->kv_heads * b->c->head_dim;
    return build_attend(b, build_range(b, qkv, 0, q), build_range(b, qkv, q, k),
                        build_range(b, qkv, q + k, k), layer, how);
}

/* ---- An MLP ---- */

coda_value build_swiglu(struct build *b, coda_value x)
{
    const struct config *c = b->c;
    coda_value both = build_linear(b, x, PART({"mlp.gate_proj", c->inner}, {"mlp.up_proj", c->inner}),
                                   c->hidden, c->mlp_bias);
    return build_linear(b, coda_swiglu(b->g, both, CODA_STACKED), PART({"mlp.down_proj", c->hidden}),
                        c->inner, c->mlp_bias);
}

/* ---- The head ---- */

coda_value build_last(struct build *b, coda_value x)
{
    if (b->page) return coda_embedding(b->g, x, b->last);
    if (b->every_row) return x;
    return coda_slice(b->g, x, 1, coda_dim_sub(b->g, b->rows, 1), b->rows, 1);
}

/* What is in front of the head's name, however it is stored; NULL: there is no head. */
static const char *head_root(const struct build *b)
{
    static const char *const roots[] = {"", "language_model."};
    static const char *const ends[] = {"weight", "weight_packed", "qweight"};
    char name[64];
    if (!b->from) return "";
    for (int r = 0; r < 2; r++)
        for (int e = 0; e < 3; e++) {
            snprintf(name, sizeof name, "%slm_head.%s", roots[r], ends[e]);
            if (checkpoint_find(b->from, name)) return roots[r];
        }
    return NULL;
}

static coda_value capped(struct build *b, coda_value logits)
{
    const struct config *c = b->c;
    coda_value y = build_times(b, coda_cast(b->g, logits, CODA_F32), c->times.logits);
    if (c->logit_cap == 0) return y;
    return coda_scale(b->g, coda_tanh(b->g, coda_scale(b->g, y, 1 / c->logit_cap)), c->logit_cap);
}

/* Of several ranks each has a part of the vocabulary, if they divide that. */
static coda_value logits_of(struct build *b, coda_value x, const char *head)
{
    const struct config *c = b->c;
    b->cuts_head = c->ranks > 1 && c->vocabulary % c->ranks == 0;
    int64_t rows = b->cuts_head ? c->vocabulary / c->ranks : c->vocabulary;
    coda_value y = build_product(b, x, PART({head, rows}), c->hidden);
    if (b->cuts_head) y = build_gathered(b, y);
    return b->cuts_head = false, y;
}

coda_value build_logits(struct build *b, coda_value x, const char *table)
{
    const struct config *c = b->c;
    const char *root = head_root(b);
    bool tied = c->tied > 0 || (c->tied < 0 && !root);
    if (tied) build_prefix(b, "", 0);
    else snprintf(b->prefix, sizeof b->prefix, "%s", root ? root : "");
    const char *head = tied ? table : "lm_head";
    if (!b->headless) return capped(b, logits_of(b, x, head));
    b->head = build_weight(b, PART({head, c->vocabulary}), ".weight", c->hidden);
    return x;
}

coda_value build_head(struct build *b, coda_value states, coda_value head)
{
    return capped(b, coda_matmul(b->g, states, head));
}

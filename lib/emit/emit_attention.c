/*
 * emit_attention.c -- an attention program becomes a kernel: o = softmax(scale q k^T + mask) v.
 *
 * attention/attention_sm90.cuh takes 16-bit tensors through tensor maps over [batch, time, head, column];
 * attention/attention_simt.cuh takes the rest through plain loads. The emitted text is the struct of
 * constants that they want and the entry.
 */
#include <float.h>
#include <inttypes.h>

#include "attention_tile.h"
#include "emit.h"
#include "emit_text.h"

#define LOG2_E 1.4426950408889634
#define BAND_BYTES (32 << 20)         /* keys and values that stay in L2                           */

/* ---- Text that both kernels share ---- */

static void constant(struct text *t, const char *type, const char *name, int64_t value)
{
    text_printf(t, "    static constexpr %s %s = %" PRId64 ";\n", type, name, value);
}

static void emit_head(const struct attention_spec *a, const char *header, struct text *t)
{
    text_printf(t, "// attention %s: batch %" PRId64 ", %" PRId64 " queries, %" PRId64 " keys, ",
                dtype_name(a->q.dtype), a->batch, a->tq, a->tk);
    text_printf(t, "%" PRId64 " heads on %" PRId64 " of %" PRId64 " columns%s", a->heads, a->kv_heads,
                a->head_dim, a->causal ? ", causal" : "");
    if (a->window > 0) text_printf(t, ", window %" PRId64, a->window);
    text_printf(t, "%s\n#include \"%s\"\nusing namespace coda;\n\nstruct Config {\n",
                a->lengths >= 0 ? ", lengths" : "", header);
}

static void emit_semantics(const struct attention_spec *a, struct text *t)
{
    /* A window that reaches back to key 0 from the last query hides nothing. A scale of 0 would turn -inf
     * into NaN. Without a mask there are no positions. */
    bool start = a->align == CODA_ALIGN_START, masked = a->causal || a->window;
    int64_t window = a->window < (start ? a->tq : a->tk) ? a->window : 0;
    double scale = a->scale == 0 ? FLT_MIN : (float)(a->scale * LOG2_E);
    constant(t, "i32", "tq", a->tq);
    constant(t, "i32", "tk", a->tk);
    constant(t, "i32", "heads", a->heads);
    constant(t, "i32", "group", a->heads / a->kv_heads);
    constant(t, "i32", "head_dim", a->head_dim);
    constant(t, "i32", "window", MAX(window, 0));
    constant(t, "bool", "causal", a->causal);
    constant(t, "bool", "lengths", a->lengths >= 0);
    constant(t, "bool", "from_length", masked && a->align == CODA_ALIGN_LENGTH);
    constant(t, "i32", "shift", start ? 0 : a->tk - a->tq);
    constant(t, "i64", "lengths_stride", a->lengths_stride);
    text_printf(t, "    static constexpr float scale_log2 = %af; // %g log2 e\n", scale, a->scale);
}

static void emit_strides(const char *name, const struct attention_view *v, struct text *t)
{
    text_printf(
        t, "    static constexpr i64 %s_batch = %" PRId64 ", %s_time = %" PRId64 ", %s_head = %" PRId64 ";\n",
        name, v->batch, name, v->time, name, v->head);
}

static int view_pointer(struct program *p, const struct attention_view *v)
{
    return emit_pointer(p, v->buffer, v->offset * dtype_size(v->dtype));
}

static int lengths_pointer(struct program *p)
{
    const struct attention_spec *a = &p->attention;
    return a->lengths < 0 ? -1 : emit_pointer(p, a->lengths, a->lengths_offset * 4);
}

static void emit_lengths(int pointer, struct text *t)
{
    if (pointer < 0)
        text_append(t, "nullptr");
    else
        text_printf(t, "static_cast<const i32 *>(args.pointer[%d])", pointer);
}

static void name_kernel(struct plan *plan, struct program *p)
{
    const struct attention_spec *a = &p->attention;
    const char *name = arena_format(&plan->arena, "coda_attention%s%s%s%s", a->causal ? "_causal" : "",
                                    a->window > 0 ? "_window" : "", a->lengths >= 0 ? "_lengths" : "",
                                    a->sm90 ? "" : "_simt");
    if (name) emit_symbol(plan, p, name);
}

static coda_status keep_text(struct plan *plan, struct program *p, struct text *t)
{
    p->kernel.text = arena_string(&plan->arena, text_str(t));
    bool failed = t->failed || plan->arena.failed || !p->kernel.text || !p->kernel.symbol;
    text_free(t);
    return failed ? fail(CODA_E_MEMORY, "attention: no memory for the kernel's text") : CODA_OK;
}

/* ---- Hopper ---- */

/* A dimension of extent 1 has no stride of its own; the map still wants a plausible one. */
static void sm90_map(struct program *p, const struct attention_view *v, int64_t heads, int64_t time, int rows)
{
    const struct attention_spec *a = &p->attention;
    struct map_spec *m = &p->kernel.map[p->kernel.maps++];
    *m = (struct map_spec){.buffer = v->buffer,
                           .offset = v->offset,
                           .dtype = v->dtype,
                           .rank = 4,
                           .dim = {a->head_dim, heads, time, a->batch},
                           .stride = {1, v->head, v->time, v->batch},
                           .box = {64, 1, rows, 1},
                           .swizzle = 128};
    for (int i = 1; i < 4; i++)
        if (m->dim[i] == 1) m->stride[i] = m->stride[i - 1] * m->dim[i - 1];
}

/* Query heads in a band: bands are as equal as can be, and the keys and values of one fit in L2. */
static int64_t band(const struct attention_spec *a)
{
    int64_t bytes = 4 * a->tk * a->head_dim, fit = MAX(1, BAND_BYTES / bytes);
    int64_t heads = a->batch * a->kv_heads, bands = CEIL_DIV(heads, fit);
    return CEIL_DIV(heads, bands) * (a->heads / a->kv_heads);
}

static void emit_sm90_config(const struct attention_spec *a, struct attention_tile tile, struct text *t)
{
    emit_head(a, "attention/attention_sm90.cuh", t);
    text_printf(t, "    typedef %s T;\n", emit_dtype(a->q.dtype));
    constant(t, "i32", "batch", a->batch);
    emit_semantics(a, t);
    emit_strides("o", &a->o, t);
    constant(t, "i32", "bn", tile.bn);
    constant(t, "i32", "stages", tile.stages);
    constant(t, "i32", "groups", tile.groups);
    constant(t, "i32", "band", band(a));
    text_append(t, "};\n");
}

static void emit_sm90_entry(const struct program *p, int out, int lengths, struct text *t)
{
    const struct kernel_spec *k = &p->kernel;
    text_printf(t, "typedef AttentionSm90<Config> Kernel;\nstatic_assert(Kernel::shared_bytes == %d);\n\n",
                k->shared_bytes);
    text_printf(t, "struct Args {\n    TensorMap q, k, v;\n    void *pointer[%d];\n};\n\n", k->pointers);
    text_printf(t, "extern \"C\" __global__ void __launch_bounds__(%d, 1)\n", k->threads);
    text_printf(t, "%s(const __grid_constant__ Args args)\n{\n", k->symbol);
    text_printf(t, "    Kernel::run(args.q, args.k, args.v, static_cast<%s *>(args.pointer[%d]), ",
                emit_dtype(p->attention.o.dtype), out);
    emit_lengths(lengths, t);
    text_append(t, ");\n}\n");
}

static coda_status emit_sm90(struct plan *plan, struct program *p, const struct machine *m)
{
    const struct attention_spec *a = &p->attention;
    if (!attention_fits_sm90(a, m))
        return fail(CODA_E_UNSUPPORTED,
                    "attention: head_dim %" PRId64 " and these strides do not fit the Hopper kernel",
                    a->head_dim);
    struct kernel_spec *k = &p->kernel;
    struct attention_tile tile = attention_tile(a->head_dim);
    k->grid = attention_blocks(a, 64 * tile.groups);
    k->persistent = true;
    k->threads = 128 * (1 + tile.groups);
    k->shared_bytes = (int)attention_shared(a, tile);
    sm90_map(p, &a->q, a->heads, a->tq, 64 * tile.groups);
    sm90_map(p, &a->k, a->kv_heads, a->tk, tile.bn);
    sm90_map(p, &a->v, a->kv_heads, a->tk, tile.bn);
    int out = view_pointer(p, &a->o), lengths = lengths_pointer(p);
    struct text t = {0};
    emit_sm90_config(a, tile, &t);
    emit_sm90_entry(p, out, lengths, &t);
    return keep_text(plan, p, &t);
}

/* ---- Any GPU ---- */

struct simt_tile {
    int rows, keys; /* of 16                                                                       */
};

static int64_t simt_shared(const struct attention_spec *a, struct simt_tile t)
{
    int64_t pitch = 64 * CEIL_DIV(a->head_dim, 64) + 4, bm = 16 * t.rows, bn = 16 * t.keys;
    return 4 * ((bm + bn) * pitch + bm * (bn + 4));
}

/* A thread holds rows * head_dim / 16 sums: 64 or fewer where it can, 128 at most. rows is 0 if none
 * fits. */
static struct simt_tile simt_tile(const struct attention_spec *a, int64_t shared)
{
    int64_t chunks = CEIL_DIV(a->head_dim, 64);
    struct simt_tile t = {chunks <= 4 ? 4 : chunks <= 8 ? 2 : chunks <= 32 ? 1 : 0, 4};
    if (!t.rows) return t;
    while (t.rows > 1 && 16 * (t.rows / 2) >= a->tq) t.rows /= 2;
    while (t.keys > 1 && simt_shared(a, t) > shared) t.keys /= 2;
    while (t.rows > 0 && simt_shared(a, t) > shared) t.rows /= 2;
    return t;
}

static void emit_simt_config(const struct attention_spec *a, struct simt_tile tile, struct text *t)
{
    emit_head(a, "attention/attention_simt.cuh", t);
    text_printf(t, "    typedef %s Q;\n    typedef %s K;\n", emit_dtype(a->q.dtype), emit_dtype(a->k.dtype));
    text_printf(t, "    typedef %s V;\n    typedef %s O;\n", emit_dtype(a->v.dtype), emit_dtype(a->o.dtype));
    emit_semantics(a, t);
    emit_strides("q", &a->q, t);
    emit_strides("k", &a->k, t);
    emit_strides("v", &a->v, t);
    emit_strides("o", &a->o, t);
    constant(t, "i32", "rows", tile.rows);
    constant(t, "i32", "keys", tile.keys);
    text_append(t, "};\n");
}

static void emit_argument(const char *type, int pointer, struct text *t)
{
    text_printf(t, "static_cast<%s *>(args.pointer[%d]),\n                ", type, pointer);
}

static void emit_simt_entry(struct program *p, struct text *t)
{
    struct kernel_spec *k = &p->kernel;
    const struct attention_spec *a = &p->attention;
    int q = view_pointer(p, &a->q), key = view_pointer(p, &a->k), value = view_pointer(p, &a->v);
    int out = view_pointer(p, &a->o), lengths = lengths_pointer(p);
    text_printf(t,
                "typedef AttentionSimt<Config> Kernel;\nstatic_assert(4 * Kernel::shared_floats == %d);\n\n",
                k->shared_bytes);
    text_printf(t, "struct Args {\n    void *pointer[%d];\n};\n\n", k->pointers);
    text_printf(t, "extern \"C\" __global__ void __launch_bounds__(%d, 1)\n", k->threads);
    text_printf(t, "%s(const __grid_constant__ Args args)\n{\n    Kernel::run(", k->symbol);
    emit_argument("const Config::Q", q, t);
    emit_argument("const Config::K", key, t);
    emit_argument("const Config::V", value, t);
    emit_argument("Config::O", out, t);
    emit_lengths(lengths, t);
    text_append(t, ");\n}\n");
}

static coda_status emit_simt(struct plan *plan, struct program *p, const struct machine *m)
{
    const struct attention_spec *a = &p->attention;
    struct kernel_spec *k = &p->kernel;
    struct simt_tile tile = simt_tile(a, m->shared_bytes);
    if (!tile.rows)
        return fail(CODA_E_UNSUPPORTED,
                    "attention: head_dim is %" PRId64 "; no tile of it fits %d bytes of shared memory",
                    a->head_dim, m->shared_bytes);
    k->grid = attention_blocks(a, 16 * tile.rows);
    if (k->grid > ATTENTION_MOST_BLOCKS || a->tq > ATTENTION_MOST_TIME || a->tk > ATTENTION_MOST_TIME)
        return fail(CODA_E_UNSUPPORTED,
                    "attention: %" PRId64 " sequences of %" PRId64 " queries, %" PRId64 " keys and %" PRId64
                    " heads are too many for one launch",
                    a->batch, a->tq, a->tk, a->heads);
    k->threads = 256;
    k->shared_bytes = (int)simt_shared(a, tile);
    struct text t = {0};
    emit_simt_config(a, tile, &t);
    emit_simt_entry(p, &t);
    return keep_text(plan, p, &t);
}

coda_status emit_attention(struct plan *plan, struct program *p, const struct machine *m)
{
    const struct attention_spec *a = &p->attention;
    if (!emit_begin(plan, p)) return fail(CODA_E_MEMORY, "out of memory for a kernel");
    name_kernel(plan, p);
    if (attention_is_empty(a)) {
        struct text t = {0};
        text_printf(&t, "// no queries\nextern \"C\" __global__ void %s() {}\n", p->kernel.symbol);
        return keep_text(plan, p, &t);
    }
    if (a->kv_heads <= 0 || a->heads % a->kv_heads)
        return fail(CODA_E_INVALID, "attention: %" PRId64 " heads on %" PRId64 " kv_heads", a->heads,
                    a->kv_heads);
    return a->sm90 ? emit_sm90(plan, p, m) : emit_simt(plan, p, m);
}

/*
 * emit_attention.c -- an attention program becomes a kernel: o = softmax(scale q k^T + mask) v.
 *
 * attention/attention_sm90.cuh takes 16-bit tensors through tensor maps over [batch, time, head, column], and
 * attention/attention_split_sm90.cuh keys and values of the same, for few queries;
 * attention/attention_simt.cuh takes the rest through plain loads. The emitted text is the struct of
 * constants that they want and the entry. How many sequences, queries and keys there are, and what follows
 * from that, is no constant: the launch passes it (attention/extents.cuh).
 */
#include <float.h>
#include <inttypes.h>

#include "attention.h"
#include "emit.h"
#include "emit_text.h"

#define LOG2_E 1.4426950408889634
#define BAND_BYTES (32 << 20) /* keys and values that stay in L2 */

enum {
    STRIDE_WORDS = 3 * 2,
    EXTENT_WORDS = 16,
    BIAS_WORDS = 4 * 2,
    MOST_WORDS = 4 * STRIDE_WORDS + EXTENT_WORDS + BIAS_WORDS
};

/* ---- Text that both kernels share ---- */

static void constant(struct text *t, const char *type, const char *name, int64_t value)
{
    text_printf(t, "    static constexpr %s %s = %" PRId64 ";\n", type, name, value);
}

static void emit_head(const struct attention_spec *a, const char *header, struct text *t)
{
    text_printf(t, "// attention %s: %" PRId64 " heads on %" PRId64 " of %" PRId64 " columns%s",
                dtype_name(a->use[ATTENTION_Q].dtype), a->heads, a->kv_heads, a->head_dim,
                a->causal ? ", causal" : "");
    if (a->window > 0) text_printf(t, ", window %" PRId64, a->window);
    if (a->ahead > 0) text_printf(t, ", %" PRId64 " ahead", a->ahead);
    if (a->softcap != 0) text_printf(t, ", softcap %g", a->softcap);
    if (a->page) text_printf(t, ", pages of %" PRId64, a->page);
    if (a->use[ATTENTION_K].dtype != a->use[ATTENTION_Q].dtype)
        text_printf(t, ", keys %s", dtype_name(a->use[ATTENTION_K].dtype));
    text_printf(t, "%s%s%s%s%s", attention_has(a, ATTENTION_LENGTHS) ? ", lengths" : "",
                attention_has(a, ATTENTION_RANGES) ? ", ranges" : "",
                attention_has(a, ATTENTION_SLOPES) ? ", slopes" : "",
                attention_has(a, ATTENTION_SINKS) ? ", sinks" : "", attention_is_packed(a) ? ", starts" : "");
    if (attention_has(a, ATTENTION_BIAS))
        text_printf(t, ", bias %s", dtype_name(a->use[ATTENTION_BIAS].dtype));
    if (a->score) text_printf(t, ", score %s", a->score->name);
    text_printf(t, "\n#include \"%s\"\n", header);
    if (a->score) emit_map(a->score, t);
    text_append(t, "using namespace coda;\n\nstruct Config {\n");
}

/* Config::score: the map of scores with its constants, of as many operands as it has. */
static void emit_score(const struct attention_spec *a, struct text *t)
{
    static const char *const operand[PRIM_MAX_INPUTS] = {"s", "position", "key", "head"};
    const struct prim *map = a->score;
    if (!map) return;
    text_append(t, "    static constexpr bool mapped = true;\n    DEV static float score(");
    for (int i = 0; i < PRIM_MAX_INPUTS; i++)
        text_printf(t, "%sfloat%s%s", i ? ", " : "", i < map->inputs ? " " : "",
                    i < map->inputs ? operand[i] : "");
    text_printf(t, ")\n    {\n        return %s%s::apply(", emit_map_prefix(map), map->name);
    for (int i = 0; i < map->inputs; i++) text_printf(t, "%s%s", i ? ", " : "", operand[i]);
    for (int i = 0; i < map->params; i++) text_printf(t, ", %s", emit_float(a->score_param[i]).s);
    text_append(t, ");\n    }\n");
}

/* May an even key's bias and the next one's be loaded at once? */
static bool bias_has_pairs(const struct attention_spec *a)
{
    const int64_t *stride = a->use[ATTENTION_BIAS].stride;
    bool even = a->use[ATTENTION_BIAS].offset % 2 == 0 && stride[0] % 2 == 0 && stride[1] % 2 == 0 &&
                stride[2] % 2 == 0;
    return even && stride[3] == 1 && a->tk % 2 == 0;
}

/* What is added to scores: its dtype, and how it lies along the keys. */
static void emit_bias(const struct attention_spec *a, struct text *t)
{
    int64_t key = a->use[ATTENTION_BIAS].stride[3];
    if (!attention_has(a, ATTENTION_BIAS)) return;
    text_printf(t, "    typedef %s Bias;\n", emit_dtype(a->use[ATTENTION_BIAS].dtype));
    constant(t, "bool", "biased", true);
    constant(t, "bool", "bias_pairs", bias_has_pairs(a));
    constant(t, "i64", "bias_key", key == 0 || key == 1 ? key : -1);
}

/* A query's position less its number; packed, less the row of its sequence from which positions count. */
static int64_t shift(const struct attention_spec *a)
{
    if (a->align == CODA_ALIGN_START) return 0;
    return attention_is_packed(a) ? a->tk : a->tk - a->tq;
}

/* Are there queries so far before the first key that they see none? Packed ones are not asked. */
static bool is_blind(const struct attention_spec *a)
{
    return attention_is_limited(a) && !attention_is_packed(a) && shift(a) + a->ahead < 0;
}

/* `single`: the kernel takes a single query of each sequence. */
static void emit_semantics(const struct attention_spec *a, bool single, struct text *t)
{
    /* A window that reaches back to key 0 from the last query hides nothing. A scale of 0 would turn -inf
     * into NaN. Without a mask there are no positions. */
    bool start = a->align == CODA_ALIGN_START, limited = attention_is_limited(a);
    bool packed = attention_is_packed(a);
    bool placed = limited || a->window || attention_is_placed(a);
    int64_t window = a->window < (start ? a->tq : a->tk) ? a->window : 0;
    double scale = a->scale == 0 ? FLT_MIN : (float)(a->scale * LOG2_E);
    constant(t, "i32", "heads", a->heads);
    constant(t, "i32", "group", a->heads / a->kv_heads);
    constant(t, "i32", "head_dim", a->head_dim);
    constant(t, "i32", "window", MAX(window, 0));
    constant(t, "i32", "ahead", MIN(a->ahead, ATTENTION_MOST_TIME - 1));
    constant(t, "bool", "limited", limited);
    constant(t, "bool", "blind", is_blind(a));
    constant(t, "bool", "single", single);
    constant(t, "bool", "lengths", attention_has(a, ATTENTION_LENGTHS));
    constant(t, "bool", "ranges", attention_has(a, ATTENTION_RANGES));
    constant(t, "bool", "slopes", attention_has(a, ATTENTION_SLOPES));
    constant(t, "bool", "stored", attention_has(a, ATTENTION_O));
    constant(t, "bool", "lse", attention_has(a, ATTENTION_LSE));
    constant(t, "bool", "sinks", attention_has(a, ATTENTION_SINKS));
    constant(t, "bool", "from_length", placed && a->align == CODA_ALIGN_LENGTH);
    constant(t, "bool", "starts", packed);
    if (packed) constant(t, "bool", "from_start", start);
    if (packed) constant(t, "i64", "starts_stride", a->use[ATTENTION_STARTS].stride[0]);
    constant(t, "i64", "lengths_stride", a->use[ATTENTION_LENGTHS].stride[0]);
    text_printf(t, "    static constexpr i64 ranges_time = %" PRId64 ", ranges_end = %" PRId64 ";\n",
                a->use[ATTENTION_RANGES].stride[1], a->use[ATTENTION_RANGES].stride[2]);
    constant(t, "i32", "page", a->page);
    constant(t, "i64", "table_page", a->use[ATTENTION_TABLE].stride[1]);
    constant(t, "i64", "slopes_stride", a->use[ATTENTION_SLOPES].stride[0]);
    constant(t, "i64", "sinks_stride", a->use[ATTENTION_SINKS].stride[0]);
    constant(t, "bool", "k_scales", attention_has(a, ATTENTION_K_SCALE));
    constant(t, "bool", "v_scales", attention_has(a, ATTENTION_V_SCALE));
    text_printf(t, "    static constexpr i64 k_scale_stride = %" PRId64 ", v_scale_stride = %" PRId64 ";\n",
                a->use[ATTENTION_K_SCALE].stride[0], a->use[ATTENTION_V_SCALE].stride[0]);
    text_printf(t, "    static constexpr float scale = %af, softcap = %af;\n", a->scale, a->softcap);
    text_printf(t, "    static constexpr float scale_log2 = %af; // %g log2 e\n", scale, a->scale);
    emit_bias(a, t);
    emit_score(a, t);
}

/* ---- What the launch passes ---- */

static void emit_long(struct kernel *k, int64_t number)
{
    emit_number(k, number & UINT32_MAX);
    emit_number(k, number >> 32);
}

/* An AttentionStrides of Args. */
static void emit_strides(struct kernel *k, const char *name, const struct tensor_use *v, struct text *t)
{
    emit_long(k, v->batch);
    emit_long(k, v->time);
    emit_long(k, v->head);
    text_printf(t, "    AttentionStrides %s;\n", name);
}

/* Query heads in a band: bands are as equal as can be, and the keys and values of one fit in L2. */
static int64_t band(const struct attention_spec *a)
{
    int64_t bytes = 4 * a->tk * a->head_dim, fit = MAX(1, BAND_BYTES / bytes);
    int64_t heads = a->batch * a->kv_heads, bands = CEIL_DIV(heads, fit);
    return CEIL_DIV(heads, bands) * (a->heads / a->kv_heads);
}

/* Args' AttentionExtents. The walk is that of a persistent kernel over tiles of equal sequences. */
static void emit_extents(struct kernel *k, const struct attention_spec *a, const struct schedule *s,
                         struct text *t)
{
    bool walks = s->sm90 && s->tile.splits <= 1 && !attention_is_packed(a) && !s->resident;
    int64_t blocks = CEIL_DIV(a->tq, s->tile.bm), width = walks ? band(a) : 1;
    int64_t streams = walks ? a->batch * a->heads : 0;
    emit_long(k, a->use[ATTENTION_RANGES].stride[0]);
    emit_long(k, a->use[ATTENTION_TABLE].stride[0]);
    int64_t number[] = {a->batch, a->tq, a->tk, shift(a), a->slots, blocks, streams, CEIL_DIV(streams, width),
                        width};
    for (int i = 0; i < ARRAY_SIZE(number); i++) emit_number(k, number[i]);
    emit_divisor(k, width * blocks);
    text_append(t, "    AttentionExtents extents;\n");
    for (int i = 0; i < 4 && attention_has(a, ATTENTION_BIAS); i++)
        emit_long(k, a->use[ATTENTION_BIAS].stride[i]);
    if (attention_has(a, ATTENTION_BIAS)) text_append(t, "    AttentionBias of_bias;\n");
}

/* ---- Pointers ---- */

static int view_pointer(struct kernel *k, const struct tensor_use *v)
{
    if (v->buffer < 0) return -1;
    return emit_use(k, v);
}

/* The pointers of AttentionInputs, in its order; a bias comes behind the extents. */
static const int beside[] = {ATTENTION_LENGTHS, ATTENTION_RANGES,  ATTENTION_SLOPES,
                             ATTENTION_SINKS,   ATTENTION_TABLE,   ATTENTION_LSE,
                             ATTENTION_K_SCALE, ATTENTION_V_SCALE, ATTENTION_STARTS};

struct beside {
    int pointer[ATTENTION_USES]; /* -1: not there */
};

static struct beside beside_pointers(struct kernel *k, const struct attention_spec *a)
{
    struct beside b;
    for (int i = 0; i < ARRAY_SIZE(beside); i++) b.pointer[beside[i]] = view_pointer(k, &a->use[beside[i]]);
    b.pointer[ATTENTION_BIAS] = view_pointer(k, &a->use[ATTENTION_BIAS]);
    return b;
}

static void emit_result(const struct attention_spec *a, int pointer, struct text *t)
{
    if (pointer < 0) text_append(t, "nullptr");
    else
        text_printf(t, "static_cast<%s *>(args.pointer[%d])", emit_dtype(a->use[ATTENTION_O].dtype), pointer);
}

static void emit_beside(const struct attention_spec *a, const struct beside *b, struct text *t)
{
    for (int i = 0; i < ARRAY_SIZE(beside); i++) {
        const struct tensor_use *u = &a->use[beside[i]];
        const char *type = u->dtype == CODA_F32 ? "float" : emit_dtype(u->dtype), *comma = i ? ", " : "{";
        const char *is_const = use_effect(u) == EFFECT_READ ? "const " : "";
        int pointer = b->pointer[beside[i]];
        if (pointer < 0) text_printf(t, "%snullptr", comma);
        else text_printf(t, "%sstatic_cast<%s%s *>(args.pointer[%d])", comma, is_const, type, pointer);
    }
    text_append(t, ", args.extents");
    if (b->pointer[ATTENTION_BIAS] >= 0)
        text_printf(t, ",\n                 args.pointer[%d], &args.of_bias", b->pointer[ATTENTION_BIAS]);
    text_append(t, "}");
}

static const char *name_kernel(struct plan *plan, const struct program *p, const struct schedule *s)
{
    const struct attention_spec *a = p->spec;
    const char *name =
        arena_format(&plan->arena, "coda_attention%s%s%s%s%s%s%s", a->causal ? "_causal" : "",
                     a->window > 0 ? "_window" : "", attention_has(a, ATTENTION_LENGTHS) ? "_lengths" : "",
                     attention_is_packed(a) ? "_packed" : "", attention_has(a, ATTENTION_BIAS) ? "_bias" : "",
                     a->score ? "_score" : "",
                     !s->sm90             ? "_simt"
                     : s->tile.splits > 1 ? "_split"
                                          : "");
    return name ? emit_symbol(plan, p, name) : NULL;
}

/* ---- Hopper ---- */

/* A dimension of extent 1 has no stride of its own; the map still wants a plausible one. L2 fetches no more
 * than a copy asks for: what lies beside a chunk is another head's, for another block. */
static void sm90_map(struct kernel *k, const struct attention_spec *a, const struct tensor_use *v,
                     int64_t heads, int64_t time, int64_t batch, int rows)
{
    struct map_spec *m = &k->map[k->maps++];
    *m = (struct map_spec){.buffer = v->buffer,
                           .offset = v->offset,
                           .dtype = v->dtype,
                           .rank = 4,
                           .dim = {a->head_dim, heads, time, batch},
                           .stride = {1, v->head, v->time, v->batch},
                           .box = {(int)dtype_elements(v->dtype, 128), 1, rows, 1},
                           .swizzle = 128};
    for (int i = 1; i < 4; i++)
        if (m->dim[i] == 1) m->stride[i] = m->stride[i - 1] * m->dim[i - 1];
}

/* Keys or values: a copy brings a tile of `rows`, or of those what a page has. */
static void sm90_keys_map(struct kernel *k, const struct attention_spec *a, const struct tensor_use *v,
                          int rows)
{
    sm90_map(k, a, v, a->kv_heads, attention_lot(a), attention_lots(a), attention_box(a, rows));
}

/* Do rows of keys fill several chunks of 128 bytes? Then one copy can bring them all, chunk by chunk. */
static bool has_whole_chunks(const struct attention_spec *a)
{
    int64_t chunk = dtype_elements(a->use[ATTENTION_K].dtype, 128);
    return a->head_dim % chunk == 0 && a->head_dim > chunk;
}

/* The same, with the chunks of a row as a dimension behind the rows. */
static void sm90_chunks_map(struct kernel *k, const struct attention_spec *a, const struct tensor_use *v,
                            int rows)
{
    sm90_keys_map(k, a, v, rows);
    if (!has_whole_chunks(a)) return;
    struct map_spec *m = &k->map[k->maps - 1];
    m->rank = 5;
    m->dim[4] = m->dim[3], m->stride[4] = m->stride[3], m->box[4] = 1;
    m->dim[3] = a->head_dim / m->box[0], m->stride[3] = m->box[0], m->box[3] = (int)m->dim[3];
    m->dim[0] = m->box[0];
}

static void emit_sm90_config(const struct attention_spec *a, const struct schedule *s, struct text *t)
{
    const struct tile *tile = &s->tile;
    emit_head(a, s->resident ? "attention/attention_short_sm90.cuh" : "attention/attention_sm90.cuh", t);
    text_printf(t, "    typedef %s T;\n", emit_dtype(a->use[ATTENTION_Q].dtype));
    emit_semantics(a, false, t);
    if (!s->resident) constant(t, "i32", "box", attention_box(a, tile->bn));
    constant(t, "i32", "bn", tile->bn);
    if (s->resident) {
        text_append(t, "};\n");
        return;
    }
    constant(t, "i32", "stages", tile->stages);
    constant(t, "i32", "groups", tile->bm / 64);
    constant(t, "i32", "cluster", MAX(s->cluster, 1));
    text_append(t, "};\n");
}

static void emit_sm90_entry(struct kernel *k, const struct attention_spec *a, const struct schedule *s,
                            int out, struct beside pointers, struct text *t)
{
    text_printf(t, "typedef %s<Config> Kernel;\nstatic_assert(Kernel::shared_bytes == %d);\n\n",
                s->resident ? "AttentionShort" : "AttentionSm90", k->launch.shared_bytes);
    text_printf(t, "struct Args {\n    TensorMap q, k, v;\n    void *pointer[%d];\n", k->pointers);
    emit_strides(k, "of_o", &a->use[ATTENTION_O], t);
    emit_extents(k, a, s, t);
    text_append(t, "};\n\n");
    text_printf(t, "extern \"C\" __global__ void ");
    if (k->launch.cluster > 1) text_printf(t, "__cluster_dims__(%d, 1, 1) ", k->launch.cluster);
    text_printf(t, "__launch_bounds__(%d, %d)\n", k->launch.threads, MAX(s->resident, 1));
    text_printf(t, "%s(const __grid_constant__ Args args)\n{\n", k->symbol);
    text_append(t, "    Kernel::run(args.q, args.k, args.v, ");
    emit_result(a, out, t);
    text_append(t, ", args.of_o,\n                ");
    emit_beside(a, &pointers, t);
    text_append(t, ");\n}\n");
}

static void emit_sm90(const struct attention_spec *a, const struct schedule *s, struct kernel *k,
                      struct text *t)
{
    const struct tile *tile = &s->tile;
    sm90_map(k, a, &a->use[ATTENTION_Q], a->heads, a->tq, attention_batches(a), tile->bm);
    sm90_keys_map(k, a, &a->use[ATTENTION_K], tile->bn);
    sm90_keys_map(k, a, &a->use[ATTENTION_V], tile->bn);
    int out = view_pointer(k, &a->use[ATTENTION_O]);
    struct beside pointers = beside_pointers(k, a);
    emit_sm90_config(a, s, t);
    emit_sm90_entry(k, a, s, out, pointers, t);
}

/* ---- Hopper, few queries ---- */

static void emit_split_config(const struct attention_spec *a, const struct schedule *s, struct text *t)
{
    emit_head(a, "attention/attention_split_sm90.cuh", t);
    text_printf(t, "    typedef %s T;\n", emit_dtype(a->use[ATTENTION_Q].dtype));
    emit_semantics(a, a->tq == 1 && !attention_is_packed(a), t);
    constant(t, "i32", "rows", s->tile.bm);
    if (attention_is_packed(a)) constant(t, "i32", "bm", s->tile.bm * a->kv_heads / a->heads);
    constant(t, "i32", "box", attention_box(a, s->tile.bn));
    constant(t, "i32", "bn", s->tile.bn);
    constant(t, "i32", "stages", s->tile.stages);
    constant(t, "i32", "cluster", s->tile.splits);
    constant(t, "bool", "early", s->early);
    constant(t, "bool", "narrow", attention_is_narrow(a));
    constant(t, "bool", "whole_rows", has_whole_chunks(a));
    constant(t, "bool", "bf16_queries", a->use[ATTENTION_Q].dtype == CODA_BF16);
    text_append(t, "};\n");
}

static void emit_split(const struct attention_spec *a, const struct schedule *s, struct kernel *k,
                       struct text *t)
{
    sm90_chunks_map(k, a, &a->use[ATTENTION_K], s->tile.bn);
    sm90_chunks_map(k, a, &a->use[ATTENTION_V], s->tile.bn);
    int q = view_pointer(k, &a->use[ATTENTION_Q]), out = view_pointer(k, &a->use[ATTENTION_O]);
    struct beside pointers = beside_pointers(k, a);
    emit_split_config(a, s, t);
    text_printf(t, "typedef AttentionSplit<Config> Kernel;\nstatic_assert(Kernel::shared_bytes == %d);\n\n",
                k->launch.shared_bytes);
    text_printf(t, "struct Args {\n    TensorMap k, v;\n    void *pointer[%d];\n", k->pointers);
    emit_strides(k, "of_q", &a->use[ATTENTION_Q], t);
    emit_strides(k, "of_o", &a->use[ATTENTION_O], t);
    emit_extents(k, a, s, t);
    text_append(t, "};\n\n");
    text_printf(t, "extern \"C\" __global__ void __cluster_dims__(%d, 1, 1) __launch_bounds__(%d, 1)\n",
                s->tile.splits, k->launch.threads);
    text_printf(t, "%s(const __grid_constant__ Args args)\n{\n", k->symbol);
    text_printf(t, "    Kernel::run(args.k, args.v, static_cast<const %s *>(args.pointer[%d]), args.of_q,\n",
                emit_dtype(a->use[ATTENTION_Q].dtype), q);
    text_append(t, "                ");
    emit_result(a, out, t);
    text_append(t, ", args.of_o,\n                ");
    emit_beside(a, &pointers, t);
    text_append(t, ");\n}\n");
}

/* ---- Any GPU ---- */

/* Do all rows begin at multiples of 4 elements? Buffers begin at multiples of 16 bytes. */
static bool moves_by_quads(const struct attention_spec *a, const struct tensor_use *v)
{
    return a->head_dim % 4 == 0 && v->offset % 4 == 0 && v->batch % 4 == 0 && v->time % 4 == 0 &&
           v->head % 4 == 0;
}

static void emit_simt_config(const struct attention_spec *a, const struct tile *tile, struct text *t)
{
    emit_head(a, "attention/attention_simt.cuh", t);
    text_printf(t, "    typedef %s Q;\n    typedef %s K;\n", emit_dtype(a->use[ATTENTION_Q].dtype),
                emit_dtype(a->use[ATTENTION_K].dtype));
    text_printf(t, "    typedef %s V;\n    typedef %s O;\n", emit_dtype(a->use[ATTENTION_V].dtype),
                emit_dtype(a->use[ATTENTION_O].dtype));
    emit_semantics(a, false, t);
    constant(t, "bool", "q_quads", moves_by_quads(a, &a->use[ATTENTION_Q]));
    constant(t, "bool", "k_quads", moves_by_quads(a, &a->use[ATTENTION_K]));
    constant(t, "bool", "v_quads", moves_by_quads(a, &a->use[ATTENTION_V]));
    constant(t, "bool", "o_quads", moves_by_quads(a, &a->use[ATTENTION_O]));
    constant(t, "i32", "bm", tile->bm);
    constant(t, "i32", "bn", tile->bn);
    text_append(t, "};\n");
}

static void emit_argument(const char *type, int pointer, struct text *t)
{
    text_printf(t, "static_cast<%s *>(args.pointer[%d]),\n                ", type, pointer);
}

static void emit_simt_entry(struct kernel *k, const struct attention_spec *a, const struct schedule *s,
                            struct text *t)
{
    int q = view_pointer(k, &a->use[ATTENTION_Q]), key = view_pointer(k, &a->use[ATTENTION_K]),
        value = view_pointer(k, &a->use[ATTENTION_V]);
    int out = view_pointer(k, &a->use[ATTENTION_O]);
    struct beside pointers = beside_pointers(k, a);
    text_printf(t,
                "typedef AttentionSimt<Config> Kernel;\nstatic_assert(4 * Kernel::shared_floats == %d);\n\n",
                k->launch.shared_bytes);
    text_printf(t, "struct Args {\n    void *pointer[%d];\n", k->pointers);
    emit_strides(k, "of_q", &a->use[ATTENTION_Q], t);
    emit_strides(k, "of_k", &a->use[ATTENTION_K], t);
    emit_strides(k, "of_v", &a->use[ATTENTION_V], t);
    emit_strides(k, "of_o", &a->use[ATTENTION_O], t);
    emit_extents(k, a, s, t);
    text_append(t, "};\n\n");
    text_append(t, "extern \"C\" __global__ void __launch_bounds__(Kernel::threads, Kernel::blocks)\n");
    text_printf(t, "%s(const __grid_constant__ Args args)\n{\n    Kernel::run(", k->symbol);
    emit_argument("const Config::Q", q, t);
    emit_argument("const Config::K", key, t);
    emit_argument("const Config::V", value, t);
    emit_result(a, out, t);
    text_append(t, ",\n                {args.of_q, args.of_k, args.of_v, args.of_o},\n                ");
    emit_beside(a, &pointers, t);
    text_append(t, ");\n}\n");
}

/* ---- Either ---- */

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

static void print_kernel(const struct attention_spec *a, const struct schedule *s, struct kernel *k,
                         struct text *t)
{
    if (attention_is_empty(a)) {
        text_printf(t, "// no queries\nextern \"C\" __global__ void %s() {}\n", k->symbol);
    } else if (s->tile.splits > 1) {
        emit_split(a, s, k, t);
    } else if (s->sm90) {
        emit_sm90(a, s, k, t);
    } else {
        emit_simt_config(a, &s->tile, t);
        emit_simt_entry(k, a, s, t);
    }
}

coda_status emit_attention(struct plan *plan, const struct program *p, const struct schedule *s,
                           struct kernel *k)
{
    const struct attention_spec *a = p->spec;
    struct text t = {0};
    coda_status status = attention_is_empty(a) ? CODA_OK : check(a, s, plan->target.shared_bytes);
    k->symbol = name_kernel(plan, p, s);
    k->scalar = ARENA_NEW(&plan->arena, struct scalar_spec, MOST_WORDS);
    if (!status && k->symbol && k->scalar) print_kernel(a, s, k, &t);
    if (!status) k->text = arena_string(&plan->arena, text_str(&t));
    bool failed = t.failed || plan->arena.failed;
    text_free(&t);
    return status   ? status
           : failed ? fail(CODA_E_MEMORY, "attention: no memory for the kernel's text")
                    : CODA_OK;
}

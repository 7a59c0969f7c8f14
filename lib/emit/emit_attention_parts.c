/* emit_attention_parts.c -- what the texts of all attention kernels share: tensor maps, pointers, constants
 * of Config, what a launch passes. */
#include <float.h>
#include <inttypes.h>

#include "emit_attention.h"

#define LOG2_E 1.4426950408889634

/* ---- Tensor maps ---- */

/* A dimension of extent 1 has no stride of its own; the map still wants a plausible one. L2 fetches no more
 * than a copy asks for: what lies beside a chunk is another head's, for another block. */
void emit_attention_map(struct attention_text *e, int use, int64_t heads, int64_t time, int64_t batch,
                        int rows)
{
    const struct tensor_use *v = &e->a->use[use];
    struct map_spec *m = &e->k->map[e->k->maps++];
    *m = (struct map_spec){.buffer = v->buffer,
                           .offset = v->offset,
                           .dtype = v->dtype,
                           .rank = 4,
                           .dim = {e->a->head_dim, heads, time, batch},
                           .stride = {1, v->head, v->time, v->batch},
                           .box = {(int)dtype_elements(v->dtype, 128), 1, rows, 1},
                           .swizzle = 128};
    for (int i = 1; i < 4; i++)
        if (m->dim[i] == 1) m->stride[i] = m->stride[i - 1] * m->dim[i - 1];
}

/* Prints the tensor map of k or v; its box is the part of a tile's keys that lies in one page. */
void emit_attention_keys_map(struct attention_text *e, int use)
{
    const struct attention_spec *a = e->a;
    emit_attention_map(e, use, a->kv_heads, attention_lot(a), attention_lots(a),
                       attention_box(a, e->s->tile.bn));
}

/* ---- Pointers ---- */

void emit_attention_pointer(struct attention_text *e, int use)
{
    const struct tensor_use *v = &e->a->use[use];
    e->pointer[use] = v->buffer < 0 ? -1 : emit_use(e->k, v);
}

/* The pointers of AttentionInputs, in its order; a bias comes behind the extents. */
static const int beside[] = {ATTENTION_LENGTHS, ATTENTION_RANGES,  ATTENTION_SLOPES,
                             ATTENTION_SINKS,   ATTENTION_TABLE,   ATTENTION_LSE,
                             ATTENTION_K_SCALE, ATTENTION_V_SCALE, ATTENTION_STARTS};

void emit_attention_pointers(struct attention_text *e)
{
    emit_attention_pointer(e, ATTENTION_O);
    for (int i = 0; i < ARRAY_SIZE(beside); i++) emit_attention_pointer(e, beside[i]);
    emit_attention_pointer(e, ATTENTION_BIAS);
    e->parts = e->a->shares ? emit_use(e->k, &e->a->parts) + 1 : 0;
}

void emit_attention_maps(struct attention_text *e)
{
    const struct attention_spec *a = e->a;
    emit_attention_map(e, ATTENTION_Q, a->heads, a->tq, attention_batches(a), e->s->tile.bm);
    emit_attention_keys_map(e, ATTENTION_K);
    emit_attention_keys_map(e, ATTENTION_V);
    emit_attention_pointers(e);
}

/* ---- Config ---- */

void emit_attention_head(struct attention_text *e, const char *header)
{
    static const int said[] = {ATTENTION_LENGTHS, ATTENTION_RANGES, ATTENTION_SLOPES, ATTENTION_SINKS,
                               ATTENTION_STARTS};
    const struct attention_spec *a = e->a;
    struct text *t = e->t;
    text_printf(t, "// %s %s: %" PRId64 " heads on %" PRId64 " of %" PRId64 " columns%s", e->what,
                dtype_name(a->use[ATTENTION_Q].dtype), a->heads, a->kv_heads, a->head_dim,
                a->causal ? ", causal" : "");
    if (a->window > 0) text_printf(t, ", window %" PRId64, a->window);
    if (a->ahead > 0) text_printf(t, ", %" PRId64 " ahead", a->ahead);
    if (a->softcap != 0) text_printf(t, ", softcap %g", a->softcap);
    if (a->page) text_printf(t, ", pages of %" PRId64, a->page);
    if (a->use[ATTENTION_K].dtype != a->use[ATTENTION_Q].dtype)
        text_printf(t, ", keys %s", dtype_name(a->use[ATTENTION_K].dtype));
    for (int i = 0; i < ARRAY_SIZE(said); i++)
        if (attention_has(a, said[i])) text_printf(t, ", %s", op_info[OP_ATTENTION].name[said[i]]);
    if (attention_has(a, ATTENTION_BIAS))
        text_printf(t, ", bias %s", dtype_name(a->use[ATTENTION_BIAS].dtype));
    if (a->score) text_printf(t, ", score %s", a->score->name);
    text_printf(t, "\n#include \"%s\"\n", header);
    if (a->score) emit_map(a->score, t);
    if (e->partial && e->partial != a->score) emit_map(e->partial, t);
    text_append(t, "using namespace coda;\n\nstruct Config {\n");
}

const char *const attention_score_operand[PRIM_MAX_INPUTS] = {"s", "position", "key", "head"};

void emit_attention_score(const struct attention_spec *a, const char *name, const struct prim *map,
                          const char *const *given, struct text *t)
{
    text_printf(t, "    DEV static float %s(", name);
    for (int i = 0; i < PRIM_MAX_INPUTS; i++) {
        bool is_read = i < map->inputs && given[i] == attention_score_operand[i];
        text_printf(t, "%sfloat%s%s", i ? ", " : "", is_read ? " " : "", is_read ? given[i] : "");
    }
    text_printf(t, ")\n    {\n        return %s%s::apply(", emit_map_prefix(map), map->name);
    for (int i = 0; i < map->inputs; i++) text_printf(t, "%s%s", i ? ", " : "", given[i]);
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

/* Prints the dtype of the bias that is added to scores, and how it lies along the keys. */
static void emit_bias(const struct attention_spec *a, struct text *t)
{
    int64_t key = a->use[ATTENTION_BIAS].stride[3];
    if (!attention_has(a, ATTENTION_BIAS)) return;
    text_printf(t, "    typedef %s Bias;\n", emit_dtype(a->use[ATTENTION_BIAS].dtype));
    emit_constant(t, "bool", "biased", true);
    emit_constant(t, "bool", "bias_pairs", bias_has_pairs(a));
    emit_constant(t, "i64", "bias_key", key == 0 || key == 1 ? key : -1);
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

void emit_attention_semantics(struct attention_text *e, bool single)
{
    const struct attention_spec *a = e->a;
    struct text *t = e->t;
    /* A window that reaches back to key 0 from the last query hides nothing. A scale of 0 would turn -inf
     * into NaN. Without a mask there are no positions. */
    bool start = a->align == CODA_ALIGN_START, limited = attention_is_limited(a);
    bool packed = attention_is_packed(a);
    bool placed = limited || a->window || attention_is_placed(a);
    int64_t window = a->window < (start ? a->tq : a->tk) ? a->window : 0;
    double scale = a->scale == 0 ? FLT_MIN : (float)(a->scale * LOG2_E);
    emit_constant(t, "i32", "heads", a->heads);
    emit_constant(t, "i32", "group", a->heads / a->kv_heads);
    emit_constant(t, "i32", "head_dim", a->head_dim);
    emit_constant(t, "i32", "window", MAX(window, 0));
    emit_constant(t, "i32", "ahead", MIN(a->ahead, ATTENTION_MOST_TIME - 1));
    emit_constant(t, "bool", "limited", limited);
    emit_constant(t, "bool", "blind", is_blind(a));
    emit_constant(t, "bool", "single", single);
    emit_constant(t, "bool", "lengths", attention_has(a, ATTENTION_LENGTHS));
    emit_constant(t, "bool", "ranges", attention_has(a, ATTENTION_RANGES));
    emit_constant(t, "bool", "slopes", attention_has(a, ATTENTION_SLOPES));
    emit_constant(t, "bool", "stored", attention_has(a, ATTENTION_O));
    emit_constant(t, "bool", "lse", attention_has(a, ATTENTION_LSE));
    emit_constant(t, "bool", "sinks", attention_has(a, ATTENTION_SINKS));
    emit_constant(t, "bool", "from_length", placed && a->align == CODA_ALIGN_LENGTH);
    emit_constant(t, "bool", "starts", packed);
    if (packed) emit_constant(t, "bool", "from_start", start);
    if (packed) emit_constant(t, "i64", "starts_stride", a->use[ATTENTION_STARTS].stride[0]);
    emit_constant(t, "i64", "lengths_stride", a->use[ATTENTION_LENGTHS].stride[0]);
    text_printf(t, "    static constexpr i64 ranges_time = %" PRId64 ", ranges_end = %" PRId64 ";\n",
                a->use[ATTENTION_RANGES].stride[1], a->use[ATTENTION_RANGES].stride[2]);
    emit_constant(t, "i32", "page", a->page);
    emit_constant(t, "i64", "table_page", a->use[ATTENTION_TABLE].stride[1]);
    emit_constant(t, "i64", "slopes_stride", a->use[ATTENTION_SLOPES].stride[0]);
    emit_constant(t, "i64", "sinks_stride", a->use[ATTENTION_SINKS].stride[0]);
    emit_constant(t, "bool", "k_scales", attention_has(a, ATTENTION_K_SCALE));
    emit_constant(t, "bool", "v_scales", attention_has(a, ATTENTION_V_SCALE));
    text_printf(t, "    static constexpr i64 k_scale_stride = %" PRId64 ", v_scale_stride = %" PRId64 ";\n",
                a->use[ATTENTION_K_SCALE].stride[0], a->use[ATTENTION_V_SCALE].stride[0]);
    text_printf(t, "    static constexpr float scale = %af, softcap = %af;\n", a->scale, a->softcap);
    text_printf(t, "    static constexpr float scale_log2 = %af; // %g log2 e\n", scale, a->scale);
    emit_bias(a, t);
    if (!a->score) return;
    text_append(t, "    static constexpr bool mapped = true;\n");
    emit_attention_score(a, "score", a->score, attention_score_operand, t);
}

/* ---- What the launch passes ---- */

void emit_attention_strides(struct attention_text *e, const char *name, const struct tensor_use *v)
{
    emit_long(e->k, v->batch);
    emit_long(e->k, v->time);
    emit_long(e->k, v->head);
    text_printf(e->t, "    AttentionStrides %s;\n", name);
}

void emit_attention_bias(struct attention_text *e, const char *name, const struct tensor_use *v)
{
    for (int i = 0; i < 4; i++) emit_long(e->k, v->stride[i]);
    text_printf(e->t, "    AttentionBias %s;\n", name);
}

void emit_attention_extents(struct attention_text *e, bool walks)
{
    const struct attention_spec *a = e->a;
    struct kernel *k = e->k;
    struct text *t = e->t;
    int64_t blocks = walks ? emit_attention_whole(e) : CEIL_DIV(a->tq, e->s->tile.bm);
    int64_t width = walks ? emit_attention_band(e) : 1, streams = walks ? a->batch * a->heads : 0;
    emit_long(k, a->use[ATTENTION_RANGES].stride[0]);
    emit_long(k, a->use[ATTENTION_TABLE].stride[0]);
    int64_t number[] = {a->batch, a->tq, a->tk, shift(a), a->slots, blocks, streams, CEIL_DIV(streams, width),
                        width};
    for (int i = 0; i < ARRAY_SIZE(number); i++) emit_number(k, number[i]);
    emit_divisor(k, width * blocks);
    text_append(t, "    AttentionExtents extents;\n");
    if (attention_has(a, ATTENTION_BIAS)) emit_attention_bias(e, "of_bias", &a->use[ATTENTION_BIAS]);
}

/* ---- Arguments ---- */

void emit_attention_result(struct attention_text *e)
{
    const char *type = emit_dtype(e->a->use[ATTENTION_O].dtype);
    if (e->pointer[ATTENTION_O] < 0) text_append(e->t, "nullptr");
    else text_printf(e->t, "static_cast<%s *>(a.pointer[%d])", type, e->pointer[ATTENTION_O]);
}

void emit_attention_beside(struct attention_text *e)
{
    struct text *t = e->t;
    for (int i = 0; i < ARRAY_SIZE(beside); i++) {
        const struct tensor_use *u = &e->a->use[beside[i]];
        const char *type = u->dtype == CODA_F32 ? "float" : emit_dtype(u->dtype), *comma = i ? ", " : "{";
        const char *is_const = use_effect(u) == EFFECT_READ ? "const " : "";
        int pointer = e->pointer[beside[i]];
        if (pointer < 0) text_printf(t, "%snullptr", comma);
        else text_printf(t, "%sstatic_cast<%s%s *>(a.pointer[%d])", comma, is_const, type, pointer);
    }
    text_append(t, ", a.extents");
    if (e->pointer[ATTENTION_BIAS] >= 0)
        text_printf(t, ",\n                 a.pointer[%d], &a.of_bias", e->pointer[ATTENTION_BIAS]);
    if (e->parts)
        text_printf(t, ",\n                 nullptr, nullptr, static_cast<u8 *>(a.pointer[%d])",
                    e->parts - 1);
    text_append(t, "}");
}

void emit_attention_entry(struct attention_text *e, const char *kernel, bool walks)
{
    const struct launch_spec *launch = &e->k->launch;
    struct text *t = e->t;
    text_printf(t, "typedef %s<Config> Kernel;\nstatic_assert(Kernel::shared_bytes == %d);\n\n", kernel,
                launch->shared_bytes);
    text_printf(t, "struct Args {\n    TensorMap q, k, v;\n    void *pointer[%d];\n", e->k->pointers);
    emit_attention_strides(e, "of_o", &e->a->use[ATTENTION_O]);
    emit_attention_extents(e, walks);
    struct word residents = emit_word("%d", MAX(e->s->residents, 1));
    text_append(t, "};\n");
    emit_body(t);
    text_append(t, "    Kernel::run(block, a.q, a.k, a.v, ");
    emit_attention_result(e);
    text_append(t, ", a.of_o,\n                ");
    emit_attention_beside(e);
    text_append(t, ");\n}\n");
    emit_entry(e->k, &(struct entry){.cluster = launch->cluster, .residents = residents.s}, t);
}

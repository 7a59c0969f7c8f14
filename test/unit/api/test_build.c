/* test_build.c -- every builder call, right (the nodes it makes) and wrong (the message it leaves). */
#include "graph.h" /* before check.h, which has a macro called fail */

#include "util_mistake.h"
#include "tests.h" /* last: Check has a macro named fail */
#include <string.h>

static coda_graph *g;
static coda_value x, m, v, v8, w, wkn, ids, odd, scalar; /* the leaves */

static void setup(void)
{
    g = coda_graph_new();
    x = coda_input(g, "x", CODA_BF16, 3, (int64_t[]){2, 8, 64});
    m = coda_input(g, "m", CODA_F32, 2, (int64_t[]){8, 64});
    v = coda_weight(g, "v", CODA_F32, 1, (int64_t[]){64});
    v8 = coda_weight(g, "v8", CODA_F32, 1, (int64_t[]){8});
    w = coda_weight(g, "w", CODA_BF16, 2, (int64_t[]){96, 64});
    wkn = coda_weight(g, "wkn", CODA_BF16, 2, (int64_t[]){64, 96});
    ids = coda_input(g, "ids", CODA_I32, 2, (int64_t[]){2, 8});
    odd = coda_input(g, "odd", CODA_F32, 2, (int64_t[]){3, 7});
    scalar = coda_input(g, "scalar", CODA_F32, 0, NULL);
}

static void teardown(void)
{
    coda_graph_free(g);
    g = NULL;
}

/* ---- Right ---- */

static coda_value matmul(void) { return coda_matmul(g, x, w); }
static coda_value matmul_kn(void) { return coda_matmul_kn(g, x, wkn); }
static coda_value add(void) { return coda_add(g, x, m); }
static coda_value sub(void) { return coda_sub(g, m, v); }
static coda_value mul(void) { return coda_mul(g, m, m); }
static coda_value divide(void) { return coda_div(g, m, scalar); }
static coda_value scale(void) { return coda_scale(g, m, 0.5f); }
static coda_value bias(void) { return coda_bias(g, x, v); }
static coda_value bias_vector(void) { return coda_bias(g, v, v); }
static coda_value relu(void) { return coda_relu(g, x); }
static coda_value relu2(void) { return coda_relu2(g, x); }
static coda_value gelu_erf(void) { return coda_gelu_erf(g, x); }
static coda_value gelu_tanh(void) { return coda_gelu_tanh(g, x); }
static coda_value gelu_quick(void) { return coda_gelu_quick(g, x); }
static coda_value silu(void) { return coda_silu(g, x); }
static coda_value tanh_(void) { return coda_tanh(g, x); }
static coda_value sigmoid(void) { return coda_sigmoid(g, x); }
static coda_value softplus(void) { return coda_softplus(g, ids); }
static coda_value apply(void) { return coda_apply(g, "rsqrt_mean", &m, 1, (float[]){0.5f, 0.25f}); }
static coda_value apply2(void) { return coda_apply(g, "swiglu", (coda_value[]){m, v}, 2, NULL); }

static coda_value user_map(void)
{
    coda_map_def def = CODA_MAP_DEF_INIT;
    def.name = "leaky";
    def.inputs = 2;
    def.params = 1;
    def.source = "DEV ...";
    ck_assert_int_eq(coda_define_map(g, &def), CODA_OK);
    return coda_apply(g, "leaky", (coda_value[]){m, v}, 2, (float[]){0.5f});
}

static coda_value widest_map(void)
{
    coda_map_def def = {sizeof def, "wide", 4, 4, "DEV ...", NULL, {NULL}};
    ck_assert_int_eq(coda_define_map(g, &def), CODA_OK);
    return coda_apply(g, "wide", (coda_value[]){m, v, m, v}, 4, (float[]){1, 2, 4, 8});
}

static coda_value swiglu(void) { return coda_swiglu(g, x, CODA_STACKED); }
static coda_value geglu(void) { return coda_geglu(g, x, CODA_INTERLEAVED); }
static coda_value reglu(void) { return coda_reglu(g, m, CODA_STACKED); }
static coda_value glu(void) { return coda_glu(g, m, CODA_INTERLEAVED); }
static coda_value empty_glu(void) { return coda_glu(g, coda_slice(g, m, 1, 0, 0, 1), CODA_INTERLEAVED); }
static coda_value rms_norm(void) { return coda_rms_norm(g, x, v, 0.5f); }
static coda_value rms_norm_plain(void) { return coda_rms_norm(g, x, CODA_NONE, 0); }
static coda_value layer_norm(void) { return coda_layer_norm(g, x, v, v, 0.5f); }
static coda_value layer_norm_bias(void) { return coda_layer_norm(g, x, CODA_NONE, v, 0.5f); }
static coda_value softmax(void) { return coda_softmax(g, m); }
static coda_value row_sum(void) { return coda_row_sum(g, x); }
static coda_value reduce_m2(void) { return coda_reduce(g, "m2", x, CODA_NONE); }
static coda_value reduce_select(void) { return coda_reduce(g, "select", x, ids); }
static coda_value column_sum(void) { return coda_reduce_columns(g, "sum", x); }
static coda_value column_m2(void) { return coda_reduce_columns(g, "m2", m); }
static coda_value row_max(void) { return coda_row_max(g, x); }
static coda_value row_mean(void) { return coda_row_mean(g, x); }
static coda_value log_sum_exp(void) { return coda_log_sum_exp(g, x); }
static coda_value top_k(void)
{
    coda_value values, indices;
    coda_top_k(g, x, 5, &values, &indices);
    ck_assert_int_eq((int)indices.id, (int)values.id + 1);
    return indices;
}
static coda_value top_k_indices(void)
{
    coda_value y;
    coda_top_k(g, m, 64, NULL, &y);
    return y;
}
static coda_value rope_plain(void) { return coda_rope(g, x, CODA_NONE, NULL); }

static coda_value rope(void)
{
    coda_rope_options o = CODA_ROPE_OPTIONS_INIT;
    o.head_dim = 16;
    o.rotary = 8;
    o.heads = 3;
    o.base = 1024;
    o.style = CODA_ROPE_INTERLEAVED;
    return coda_rope(g, x, ids, &o);
}

static coda_value rope_sections(void)
{
    coda_rope_options o = CODA_ROPE_OPTIONS_INIT;
    int64_t sections[] = {11, 11, 10};
    memcpy(o.sections, sections, sizeof sections);
    o.interleave_sections = 7;
    return coda_rope(g, x, coda_input(g, "grid", CODA_I32, 2, (int64_t[]){8, 3}), &o);
}

static coda_value attention_plain(void) { return coda_attention(g, m, m, m, CODA_NONE, NULL); }

static coda_value attention(void)
{
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    coda_value kv = coda_slice(g, x, 2, 0, 32, 1);
    o.heads = 4;
    o.kv_heads = 2;
    o.window = 5;
    o.causal = 7;
    o.scale = 0.5f;
    return coda_attention(g, x, kv, kv, coda_input(g, "len", CODA_I32, 1, (int64_t[]){2}), &o);
}

static coda_value attention_bias(void)
{
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    o.heads = 2;
    o.bias = coda_input(g, "bias", CODA_F32, 3, (int64_t[]){2, 8, 8});
    return coda_attention(g, m, m, m, CODA_NONE, &o);
}

static coda_value attention_score(void)
{
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    o.heads = 2;
    o.score = "clip";
    o.score_params[0] = -0.5f;
    o.score_params[1] = 2;
    return coda_attention(g, m, m, m, CODA_NONE, &o);
}

static coda_value cross_entropy(void) { return coda_cross_entropy(g, x, ids, NULL); }

static coda_value cross_entropy_rows(void)
{
    coda_cross_entropy_options o = CODA_CROSS_ENTROPY_OPTIONS_INIT;
    o.reduction = CODA_REDUCE_NONE;
    o.ignore_zero = 1;
    return coda_cross_entropy(g, x, ids, &o);
}

static coda_value embedding(void) { return coda_embedding(g, w, ids); }
static coda_value row_sums(void) { return coda_row_sums(g, x, ids, 96); }
static coda_value cast(void) { return coda_cast(g, x, CODA_F16); }
static coda_value slice(void) { return coda_slice(g, x, 1, 1, 8, 3); }
static coda_value concat(void) { return coda_concat(g, 1, (coda_value[]){m, m, m}, 3); }
static coda_value interleave(void) { return coda_interleave(g, 1, (coda_value[]){m, m, m}, 3); }
static coda_value reshape(void) { return coda_reshape(g, x, 2, (int64_t[]){16, 64}); }
static coda_value transpose(void) { return coda_transpose(g, x, (int[]){2, 0, 1}); }
static coda_value transpose_scalar(void) { return coda_transpose(g, scalar, NULL); }

static const struct {
    coda_value (*call)(void);
    const char *nodes; /* all but the leaves */
} right[] = {
    {matmul, "%9 = matmul %x, %w  ; bf16[2,8,96]\n"},
    {matmul_kn, "%9 = matmul %x, %wkn {kn=1}  ; bf16[2,8,96]\n"},
    {add, "%9 = add %x, %m  ; bf16[2,8,64]\n"},
    {sub, "%9 = sub %m, %v  ; f32[8,64]\n"},
    {mul, "%9 = mul %m, %m  ; f32[8,64]\n"},
    {divide, "%9 = div %m, %scalar  ; f32[8,64]\n"},
    {scale, "%9 = scale %m {alpha=0x1p-1}  ; f32[8,64]\n"},
    {bias, "%9 = add %x, %v  ; bf16[2,8,64]\n"},
    {bias_vector, "%9 = add %v, %v  ; f32[64]\n"},
    {relu, "%9 = relu %x  ; bf16[2,8,64]\n"},
    {relu2, "%9 = relu2 %x  ; bf16[2,8,64]\n"},
    {gelu_erf, "%9 = gelu_erf %x  ; bf16[2,8,64]\n"},
    {gelu_tanh, "%9 = gelu_tanh %x  ; bf16[2,8,64]\n"},
    {gelu_quick, "%9 = gelu_quick %x  ; bf16[2,8,64]\n"},
    {silu, "%9 = silu %x  ; bf16[2,8,64]\n"},
    {tanh_, "%9 = tanh %x  ; bf16[2,8,64]\n"},
    {sigmoid, "%9 = sigmoid %x  ; bf16[2,8,64]\n"},
    {softplus, "%9 = softplus %ids  ; f32[2,8]\n"},
    {apply, "%9 = rsqrt_mean %m {inv_n=0x1p-1, eps=0x1p-2}  ; f32[8,64]\n"},
    {apply2, "%9 = swiglu %m, %v  ; f32[8,64]\n"},
    {user_map, "%9 = leaky %m, %v {p0=0x1p-1}  ; f32[8,64]\n"},
    {widest_map, "%9 = wide %m, %v, %m, %v {p0=0x1p+0, p1=0x1p+1, p2=0x1p+2, p3=0x1p+3}  ; f32[8,64]\n"},
    {swiglu, "%9 = slice %x {axis=2, stop=32, step=1}  ; bf16[2,8,32]\n"
             "%10 = slice %x {axis=2, start=32, stop=64, step=1} @%9  ; bf16[2,8,32]\n"
             "%11 = swiglu %9, %10 @%9  ; bf16[2,8,32]\n"},
    {geglu, "%9 = slice %x {axis=2, stop=64, step=2}  ; bf16[2,8,32]\n"
            "%10 = slice %x {axis=2, start=1, stop=64, step=2} @%9  ; bf16[2,8,32]\n"
            "%11 = geglu %9, %10 @%9  ; bf16[2,8,32]\n"},
    {reglu, "%9 = slice %m {axis=1, stop=32, step=1}  ; f32[8,32]\n"
            "%10 = slice %m {axis=1, start=32, stop=64, step=1} @%9  ; f32[8,32]\n"
            "%11 = reglu %9, %10 @%9  ; f32[8,32]\n"},
    {glu, "%9 = slice %m {axis=1, stop=64, step=2}  ; f32[8,32]\n"
          "%10 = slice %m {axis=1, start=1, stop=64, step=2} @%9  ; f32[8,32]\n"
          "%11 = glu %9, %10 @%9  ; f32[8,32]\n"},
    {empty_glu, "%9 = slice %m {axis=1, step=1}  ; f32[8,0]\n"
                "%10 = slice %9 {axis=1, step=2}  ; f32[8,0]\n"
                "%11 = slice %9 {axis=1, step=2} @%10  ; f32[8,0]\n"
                "%12 = glu %10, %11 @%10  ; f32[8,0]\n"},
    {rms_norm, "%9 = rms_norm %x, %v {eps=0x1p-1}  ; bf16[2,8,64]\n"},
    {rms_norm_plain, "%9 = rms_norm %x {eps=0x0p+0}  ; bf16[2,8,64]\n"},
    {layer_norm, "%9 = layer_norm %x, %v, %v {eps=0x1p-1}  ; bf16[2,8,64]\n"},
    {layer_norm_bias, "%9 = layer_norm %x, _, %v {eps=0x1p-1}  ; bf16[2,8,64]\n"},
    {softmax, "%9 = softmax %m  ; f32[8,64]\n"},
    {row_sum, "%9 = sum %x  ; f32[2,8,1]\n"},
    {reduce_m2, "%9 = m2 %x  ; f32[2,8,1]\n"},
    {column_sum, "%9 = sum %x {columns=1}  ; f32[2,1,64]\n"},
    {column_m2, "%9 = m2 %m {columns=1}  ; f32[1,64]\n"},
    {reduce_select, "%9 = select %x, %ids  ; f32[2,8,1]\n"},
    {row_max, "%9 = max %x  ; f32[2,8,1]\n"},
    {row_mean, "%9 = cast %x {to=f32}  ; f32[2,8,64]\n%10 = scale %9 {alpha=0x1p-6} @%9  ; f32[2,8,64]\n"
               "%11 = sum %10 @%9  ; f32[2,8,1]\n%12 = scale %11 {alpha=0x1p+0} @%9  ; f32[2,8,1]\n"},
    {log_sum_exp, "%9 = log_sum_exp %x  ; f32[2,8,1]\n"},
    {rope_plain,
     "%9 = rope %x {base=0x1.388p+13, head_dim=64, rotary=64, heads=1, half=1}  ; bf16[2,8,64]\n"},
    {rope_sections,
     "%10 = rope %x, %grid {base=0x1.388p+13, head_dim=64, rotary=64, heads=1, half=1, section0=11,"
     " section1=11, section2=10, interleave_sections=1}  ; bf16[2,8,64]\n"},
    {rope, "%9 = rope %x, %ids {base=0x1p+10, head_dim=16, rotary=8, heads=3}  ; bf16[2,8,64]\n"},
    {attention_plain, "%9 = attention %m, %m, %m {scale=0x1p-3, heads=1, kv_heads=1}  ; f32[8,64]\n"},
    {attention_score, "%9 = attention %m, %m, %m {scale=0x1.6a09e6p-3, heads=2, kv_heads=2,"
                      " score=clip {low=-0x1p-1, high=0x1p+1}}  ; f32[8,64]\n"},
    {attention_bias,
     "%10 = attention %m, %m, %m, _, _, _, _, _, _, _, _, %bias {scale=0x1.6a09e6p-3, heads=2,"
     " kv_heads=2}  ; f32[8,64]\n"},
    {attention, "%9 = slice %x {axis=2, stop=32, step=1}  ; bf16[2,8,32]\n"
                "%11 = attention %x, %9, %9, %len {scale=0x1p-1, heads=4, kv_heads=2, window=5, causal=1}"
                "  ; bf16[2,8,64]\n"},
    {cross_entropy, "%9 = cross_entropy %x, %ids {ignore=-100, reduction=1}  ; f32[1]\n"},
    {cross_entropy_rows, "%9 = cross_entropy %x, %ids  ; f32[2,8]\n"},
    {embedding, "%9 = embedding %w, %ids  ; bf16[2,8,64]\n"},
    {row_sums, "%9 = row_sums %x, %ids {rows=96}  ; f32[96,64]\n"},
    {cast, "%9 = cast %x {to=f16}  ; f16[2,8,64]\n"},
    {slice, "%9 = slice %x {axis=1, start=1, stop=8, step=3}  ; bf16[2,3,64]\n"},
    {concat, "%9 = concat %m, %m, %m {axis=1}  ; f32[8,192]\n"},
    {interleave, "%9 = concat %m, %m, %m {axis=1, interleave=1}  ; f32[8,192]\n"},
    {top_k, "%9 = top_k %x {k=5}  ; bf16[2,8,5]\n%10 = top_k %x {k=5, indices=1} @%9  ; i32[2,8,5]\n"},
    {top_k_indices, "%9 = top_k %m {k=64, indices=1}  ; i32[8,64]\n"},
    {reshape, "%9 = reshape %x {d0=16, d1=64, rank=2}  ; bf16[16,64]\n"},
    {transpose, "%9 = transpose %x {p0=2, p2=1}  ; bf16[64,2,8]\n"},
    {transpose_scalar, "%9 = transpose %scalar  ; f32[]\n"},
};

START_TEST(call)
{
    coda_value y = right[_i].call();
    struct text t = {0};
    ck_assert_msg(y.id != 0, "%s", coda_error());
    ck_assert_int_eq(coda_graph_status(g), CODA_OK);
    ck_assert_int_eq(graph_verify(g), CODA_OK);
    ck_assert_int_eq((int)y.id, g->nodes);
    for (int i = 0; i < g->nodes; i++) {
        if (op_is_leaf(g->node[i].op)) continue;
        node_print(g, i, &t);
        text_append(&t, "\n");
    }
    ck_assert_str_eq(text_str(&t), right[_i].nodes);
    text_free(&t);
}
END_TEST

/* ---- Wrong ---- */

static void bad_name(void) { coda_input(g, "a-b", CODA_F32, 0, NULL); }
static void taken_name(void) { coda_weight(g, "x", CODA_F32, 0, NULL); }
static void bad_dtype(void) { coda_input(g, "a", (coda_dtype)0, 0, NULL); }
static void bad_rank(void) { coda_input(g, "a", CODA_F32, 7, (int64_t[]){1, 1, 1, 1, 1, 1, 1}); }
static void negative_rank(void) { coda_input(g, "a", CODA_F32, -1, (int64_t[]){1}); }
static void huge_rank(void) { coda_input(g, "a", CODA_F32, 2000000000, (int64_t[]){1}); }
static void null_dims(void) { coda_input(g, "a", CODA_F32, 1, NULL); }
static void negative_dim(void) { coda_weight(g, "a", CODA_F32, 2, (int64_t[]){3, -5}); }
static void huge_dims(void) { coda_input(g, "a", CODA_F32, 2, (int64_t[]){1LL << 40, 1LL << 40}); }
static void null_strides(void) { coda_input_strided(g, "a", CODA_F32, 1, (int64_t[]){3}, NULL); }
static void overlap(void) { coda_weight_strided(g, "a", CODA_F32, 2, (int64_t[]){3, 4}, (int64_t[]){3, 1}); }
static void output_none(void) { coda_output(g, "y", CODA_NONE); }
static void output_foreign(void) { coda_output(g, "y", (coda_value){1000}); }
static void output_name(void) { coda_output(g, NULL, x); }
static void output_taken(void) { coda_output(g, "x", x); }
static void output_null_strides(void) { coda_output_strided(g, "y", x, NULL); }
static void sum_null_strides(void) { coda_output_add_strided(g, "y", coda_row_sum(g, m), NULL); }
static void sum_dtype(void) { coda_output_add(g, "y", x); }
static void output_overlap(void) { coda_output_strided(g, "y", m, (int64_t[]){32, 1}); }
static void matmul_sizes(void) { coda_matmul(g, x, wkn); }
static void matmul_none(void) { coda_matmul(g, x, CODA_NONE); }
static void matmul_foreign(void) { coda_matmul(g, (coda_value){UINT32_MAX}, w); }
static void add_shapes(void) { coda_add(g, m, v8); }
static void bias_rank(void) { coda_bias(g, x, m); }
static void bias_size(void) { coda_bias(g, x, v8); }
static void bias_none(void) { coda_bias(g, x, CODA_NONE); }
static coda_value top[2];
static void top_k_most(void) { coda_top_k(g, m, 65, &top[0], &top[1]); }
static void top_k_columns(void) { coda_top_k(g, v8, 9, &top[0], NULL); }
static void top_k_null(void) { coda_top_k(g, m, 1, NULL, NULL); }
static void top_k_none(void) { coda_top_k(g, CODA_NONE, 1, &top[0], &top[1]); }
static void top_k_foreign(void) { coda_top_k(g, (coda_value){10}, 1, &top[0], &top[1]); }
static void apply_unknown(void) { coda_apply(g, "frobnicate", &m, 1, NULL); }
static void apply_null(void) { coda_apply(g, NULL, &m, 1, NULL); }
static void apply_no_operands(void) { coda_apply(g, "relu", NULL, 1, NULL); }
static void apply_count(void) { coda_apply(g, "relu", &m, 1000000000, NULL); }
static void apply_arity(void) { coda_apply(g, "relu", (coda_value[]){m, m}, 2, NULL); }
static void apply_params(void) { coda_apply(g, "scale", &m, 1, NULL); }
static void reduce_unknown(void) { coda_reduce(g, "frobnicate", m, CODA_NONE); }
static void reduce_null(void) { coda_reduce(g, NULL, m, CODA_NONE); }
static void reduce_map(void) { coda_reduce(g, "relu", m, CODA_NONE); }
static void reduce_no_key(void) { coda_reduce(g, "select", m, CODA_NONE); }
static void reduce_needless_key(void) { coda_reduce(g, "sum", x, ids); }
static void reduce_key_shape(void) { coda_reduce(g, "select", x, v8); }
static void columns_unknown(void) { coda_reduce_columns(g, "frobnicate", m); }
static void columns_key(void) { coda_reduce_columns(g, "select", m); }
static void columns_rank(void) { coda_reduce_columns(g, "sum", v8); }
static void apply_reduction(void) { coda_apply(g, "sum", &m, 1, NULL); }

static void define(const char *name, int inputs, int params, const char *source)
{
    coda_map_def def = {sizeof def, name, inputs, params, source, NULL, {NULL}};
    ck_assert_int_eq(coda_define_map(g, &def), CODA_E_INVALID);
}
static void define_name(void) { define("a.b", 1, 0, "s"); }
static void define_null(void) { define(NULL, 1, 0, "s"); }
static void define_taken(void) { define("swiglu", 1, 0, "s"); }
static void define_reserved(void) { define("output", 1, 0, "s"); }
static void define_inputs(void) { define("f", 5, 0, "s"); }
static void define_params(void) { define("f", 1, -1, "s"); }
static void define_source(void) { define("f", 1, 0, NULL); }
static void define_grad(const char *by0, const char *by1)
{
    coda_map_def def = {sizeof def, "f", 2, 1, "s", NULL, {by0, NULL, by1, NULL}};
    ck_assert_int_eq(coda_define_map(g, &def), CODA_E_INVALID);
}
static void define_grad_none(void) { define_grad("frobnicate", NULL); }
static void define_grad_reduction(void) { define_grad("sum", NULL); }
static void define_grad_params(void) { define_grad("silu", NULL); }
static void define_grad_operand(void) { define_grad("f", "0"); }
static void define_grad_operands(void)
{
    coda_map_def def = {sizeof def, "f", 2, 0, "s", NULL, {NULL, "where"}};
    ck_assert_int_eq(coda_define_map(g, &def), CODA_E_INVALID);
}
static void define_size(void) { coda_define_map(g, &(coda_map_def){.size = 32}); }

static void glu_odd(void) { coda_glu(g, odd, CODA_STACKED); }
static void glu_layout(void) { coda_swiglu(g, m, (coda_layout)2); }
static void glu_none(void) { coda_reglu(g, CODA_NONE, CODA_STACKED); }
static void glu_foreign(void) { coda_geglu(g, (coda_value){10}, CODA_STACKED); }
static void glu_scalar(void) { coda_glu(g, scalar, CODA_STACKED); }
static void rms_gain(void) { coda_rms_norm(g, m, v8, 1); }
static void rms_eps(void) { coda_rms_norm(g, m, v, -0.5f); }
static void layer_bias(void) { coda_layer_norm(g, m, v, m, 1); }
static void softmax_int(void) { coda_softmax(g, ids); }
static void mean_scalar(void) { coda_row_mean(g, scalar); }
static void mean_none(void) { coda_row_mean(g, CODA_NONE); }
static void rope_size(void) { coda_rope(g, x, CODA_NONE, &(coda_rope_options){.size = 32}); }
static void rope_huge(void) { coda_rope(g, x, CODA_NONE, &(coda_rope_options){.size = 1u << 30}); }
static void rope_cut(void) { coda_rope(g, x, CODA_NONE, &(coda_rope_options){.size = 36}); }
static void rope_positions(void) { coda_rope(g, m, v8, NULL); }

static void rope_style(void)
{
    coda_rope_options o = CODA_ROPE_OPTIONS_INIT;
    o.style = (coda_rope_style)5;
    coda_rope(g, x, CODA_NONE, &o);
}

static void attention_heads(void)
{
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    o.heads = 7;
    coda_attention(g, x, x, x, CODA_NONE, &o);
}
static void score_of(const char *name, int params)
{
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    o.score = name;
    for (int i = 0; i < params; i++) o.score_params[i] = 1.5f;
    coda_attention(g, x, x, x, CODA_NONE, &o);
}
static void score_unknown(void) { score_of("alibi", 0); }
static void score_reduction(void) { score_of("max", 0); }
static void score_params(void) { score_of("softcap", 2); }
static void score_of_none(void) { score_of(NULL, 1); }
static void attention_rank(void) { coda_attention(g, v, v, v, CODA_NONE, NULL); }
static void attention_sums(void) { coda_attention_lse(g, x, x, x, CODA_NONE, NULL, NULL); }
static void attention_size(void)
{
    coda_attention(g, x, x, x, CODA_NONE, &(coda_attention_options){.size = 8});
}
static void loss_targets(void) { coda_cross_entropy(g, m, ids, NULL); }

static void loss_reduction(void)
{
    coda_cross_entropy_options o = CODA_CROSS_ENTROPY_OPTIONS_INIT;
    o.reduction = (coda_reduction)9;
    coda_cross_entropy(g, x, ids, &o);
}
static void loss_ignored(void)
{
    coda_cross_entropy_options o = CODA_CROSS_ENTROPY_OPTIONS_INIT;
    o.ignore_zero = 1;
    o.ignore_index = 7;
    coda_cross_entropy(g, x, ids, &o);
}
static void embedding_ids(void) { coda_embedding(g, w, m); }
static void row_sums_ids(void) { coda_row_sums(g, m, ids, 9); }
static void row_sums_rows(void) { coda_row_sums(g, x, ids, -1); }
static void cast_dtype(void) { coda_cast(g, x, (coda_dtype)77); }
static void slice_axis(void) { coda_slice(g, x, 3, 0, 1, 1); }
static void slice_range(void) { coda_slice(g, x, 2, 0, 65, 1); }
static void concat_count(void) { coda_concat(g, 0, &m, 0); }
static void interleave_count(void) { coda_interleave(g, 0, &m, -1); }
static void interleave_none(void) { coda_interleave(g, 0, (coda_value[]){m, CODA_NONE}, 2); }
static void interleave_shapes(void) { coda_interleave(g, 0, (coda_value[]){m, odd}, 2); }
static void concat_null(void) { coda_concat(g, 0, NULL, 2); }
static void concat_shapes(void) { coda_concat(g, 0, (coda_value[]){m, odd}, 2); }
static void reshape_null(void) { coda_reshape(g, m, 2, NULL); }
static void reshape_size(void) { coda_reshape(g, m, 1, (int64_t[]){500}); }
static void reshape_rank(void) { coda_reshape(g, m, 8, (int64_t[]){1, 1, 1, 1, 1, 1, 1, 1}); }
static void transpose_null(void) { coda_transpose(g, m, NULL); }
static void transpose_perm(void) { coda_transpose(g, m, (int[]){0, 0}); }
static void reduce_scalar(void) { coda_row_mean(g, scalar); }

#define NAME_RULE "a letter or _, then letters, digits, _ or ., at most 255"

static const struct {
    void (*call)(void);
    const char *message;
} wrong[] = {
    {bad_name, "input: `a-b` is no name: " NAME_RULE},
    {taken_name, "weight x: the name is taken, by input bf16[2,8,64]"},
    {bad_dtype, "input a: 0 is no dtype"},
    {bad_rank, "input a: rank is 7; must be 0..6"},
    {negative_rank, "input a: rank is -1; must be 0..6"},
    {huge_rank, "input a: rank is 2000000000; must be 0..6"},
    {null_dims, "input a: dims are NULL"},
    {negative_dim, "weight a: dimension 1 is -5; must be >= 0"},
    {huge_dims, "input a: f32[1099511627776,1099511627776] does not fit in 2^62 bytes"},
    {null_strides, "input a: strides are NULL"},
    {overlap, "weight a: stride 0 is 3 but the dimensions below it span 4 elements; they overlap"},
    {output_none, "output y: the value is CODA_NONE"},
    {output_foreign, "output: value 1000 is of another graph; this one has 9"},
    {output_name, "output: the name is NULL"},
    {output_taken, "output x: the name is taken, by input bf16[2,8,64]"},
    {output_null_strides, "output y: strides are NULL"},
    {sum_null_strides, "output y: strides are NULL"},
    {sum_dtype, "output y: bf16[2,8,64] cannot be added to, only f32"},
    {output_overlap, "output y: stride 0 is 32 but the dimensions below it span 64 elements; they overlap"},
    {matmul_sizes, "matmul: x is [2,8,64] but w is [64,96]; inner sizes 64 and 96 differ; a w of [K,N] is "
                   "for coda_matmul_kn, or kn=1"},
    {matmul_none, "matmul: operand 1 (w) is CODA_NONE"},
    {matmul_foreign, "matmul: value 4294967295 is of another graph; this one has 9"},
    {add_shapes, "add: operand 0 is [8,64] but operand 1 is [8]; they do not broadcast: 64 and 8 differ"},
    {bias_rank, "bias: x is [2,8,64] but bias is [8,64]; must be [64]"},
    {bias_size, "bias: x is [2,8,64] but bias is [8]; must be [64]"},
    {bias_none, "add: operand 1 is CODA_NONE"},
    {top_k_most, "top_k: k is 65; must be 1..64"},
    {top_k_columns, "top_k: x is [8]; k is 9, and it needs 9..2147483647 columns"},
    {top_k_null, "top_k: values and indices are both NULL"},
    {top_k_none, "top_k: operand 0 (x) is CODA_NONE"},
    {top_k_foreign, "top_k: value 10 is of another graph; this one has 9"},
    {apply_unknown, "apply: no map is called `frobnicate`"},
    {apply_null, "apply: (NULL): the name is NULL, or n = 1 is not 1..4"},
    {apply_no_operands, "apply: relu: in is NULL, or n = 1 is not 1..4"},
    {apply_count, "apply: relu: in is NULL, or n = 1000000000 is not 1..4"},
    {apply_arity, "relu: takes 1 operands, got 2"},
    {apply_params, "scale: takes 1 params, got NULL"},
    {reduce_unknown, "reduce: no reduction is called `frobnicate`"},
    {reduce_null, "reduce: no reduction is called `(NULL)`"},
    {reduce_map, "reduce: no reduction is called `relu`"},
    {reduce_no_key, "select: operand 1 (key) is CODA_NONE"},
    {reduce_needless_key, "sum: takes 1 operands, got 2"},
    {columns_unknown, "reduce_columns: no reduction is called `frobnicate`"},
    {columns_key, "reduce_columns: select takes a key, one value for each row"},
    {columns_rank, "sum: x is [8]; a column needs rank 2 or more"},
    {reduce_key_shape, "select: x is [2,8,64] but the key is [8]; it must be one value for each row"},
    {apply_reduction, "sum: it is a reduction, not a map"},
    {define_name, "map: `a.b` is no identifier of at most 63 characters"},
    {define_null, "map: `(NULL)` is no identifier of at most 63 characters"},
    {define_taken, "map swiglu: the name is taken"},
    {define_reserved, "map output: the name is taken"},
    {define_inputs, "map f: 5 inputs; must be 1..4"},
    {define_params, "map f: -1 params; must be 0..4"},
    {define_source, "map f: it has no source"},
    {define_grad_none, "map f: grad[0] is `frobnicate`, which is no map of this graph, nor 0 or 1"},
    {define_grad_reduction, "map f: grad[0] is `sum`, which is no map of this graph, nor 0 or 1"},
    {define_grad_params, "map f: grad[0] is silu, which takes 1 operands and 0 params; f has 2 and 1"},
    {define_grad_operands, "map f: grad[1] is where, which takes 3 operands and 0 params; f has 2 and 0"},
    {define_grad_operand, "map f: grad[2] is `0`, but it has 2 operands"},
    {define_size, "define_map: the size of a coda_map_def is 32; INIT sets 72"},
    {glu_odd, "glu: x is [3,7]; its columns must be even"},
    {glu_layout, "swiglu: layout is 2; must be 0 or 1"},
    {glu_none, "reglu: x is CODA_NONE"},
    {glu_foreign, "geglu: value 10 is of another graph; this one has 9"},
    {glu_scalar, "glu: x is []; its columns must be even"},
    {rms_gain, "rms_norm: x is [8,64] but gain is [8]; it must be [64]"},
    {rms_eps, "rms_norm: eps is -0.5; it must be finite and >= 0"},
    {layer_bias, "layer_norm: x is [8,64] but bias is [8,64]; it must be [64]"},
    {softmax_int, "softmax: x is i32[2,8]; it must be f32, bf16 or f16"},
    {mean_scalar, "sum: x is []; it needs rank 1 or more"},
    {mean_none, "sum: operand 0 (x) is CODA_NONE"},
    {rope_size, "rope: the size of a coda_rope_options is 32; INIT sets 96"},
    {rope_huge, "rope: the size of a coda_rope_options is 1073741824; INIT sets 96"},
    {rope_cut, "rope: the size of a coda_rope_options is 36; INIT sets 96"},
    {rope_positions,
     "rope: x is [8,64] but positions are f32[8]; must be i32 or i64 with x's leading dimensions or [8]"},
    {rope_style, "rope: style is 5; must be 0..1"},
    {attention_heads, "attention: q is [2,8,64]; 7 heads must divide its columns"},
    {attention_rank, "attention: q is [64]; it needs rank 2 or more"},
    {attention_sums, "attention_lse: lse is NULL"},
    {score_unknown, "attention: no map is called `alibi`"},
    {score_reduction, "attention: score is max, a reduction; it must be a map"},
    {score_params, "attention: score_params[1] is 1.5; score is softcap, of 1 params"},
    {score_of_none, "attention: score_params[0] is 1.5; score is NULL, of 0 params"},
    {attention_size, "attention: the size of a coda_attention_options is 8; INIT sets 136"},
    {loss_targets,
     "cross_entropy: logits are [8,64] but targets are i32[2,8]; must be i32 or i64, one for each row"},
    {loss_reduction, "cross_entropy: reduction is 9; must be 0..2"},
    {loss_ignored, "cross_entropy: ignore_zero is set, but ignore_index is 7"},
    {embedding_ids,
     "embedding: table is bf16[96,64] and ids are f32[8,64]; need [V,N] and i32 or i64 of rank < 6"},
    {row_sums_ids, "row_sums: x is [8,64] but ids are i32[2,8]; must be i32 or i64, one for each row of x"},
    {row_sums_rows, "row_sums: rows is -1; must be 0..16777216"},
    {cast_dtype, "cast: 77 is no dtype"},
    {slice_axis, "slice: x is [2,8,64]; it has no axis 3"},
    {slice_range, "slice: start 0, stop 65, step 1; need 0 <= start <= stop <= 64 and step >= 1"},
    {concat_count, "concat: in is NULL, or n = 0 is not positive"},
    {interleave_count, "interleave: in is NULL, or n = -1 is not positive"},
    {interleave_none, "interleave: operand 1 is CODA_NONE"},
    {interleave_shapes,
     "interleave: operand 0 is f32[8,64] but operand 1 is f32[3,7]; only equal types interleave"},
    {concat_null, "concat: in is NULL, or n = 2 is not positive"},
    {concat_shapes, "concat: operand 0 is f32[8,64] but operand 1 is f32[3,7]; only axis 0 may differ"},
    {reshape_null, "reshape: rank is 2 but dims are NULL"},
    {reshape_size, "reshape: x is [8,64], 512 elements, but [500] has 500"},
    {reshape_rank, "reshape: rank is 8; must be 0..6"},
    {transpose_null, "transpose: x is [8,64] but perm is NULL"},
    {transpose_perm, "transpose: x is [8,64]; p1 = 0 makes no permutation"},
    {reduce_scalar, "sum: x is []; it needs rank 1 or more"},
};

/* The mistake is kept; every later call is quiet and has no effect. */
START_TEST(mistake)
{
    wrong[_i].call();
    int nodes = g->nodes, outputs = g->outputs;
    ck_assert_str_eq(mistake_plain(coda_error()), wrong[_i].message);
    ck_assert(!g->later); /* no call came after it, nor one that the same call makes */
    coda_map_def def = {sizeof def, "later", 1, 0, "source", NULL, {NULL}};
    coda_matmul(g, v, v);
    ck_assert_int_eq(coda_define_map(g, &def), CODA_E_INVALID);
    ck_assert_int_eq(g->maps, 0);
    ck_assert_int_eq((int)coda_add(g, m, m).id, 0);
    ck_assert_int_eq((int)coda_glu(g, m, CODA_STACKED).id, 0);
    coda_output(g, "later", m);
    ck_assert_int_eq(coda_graph_status(g), CODA_E_INVALID);
    ck_assert_str_eq(mistake_plain(coda_error()), wrong[_i].message);
    ck_assert_ptr_nonnull(strstr(coda_error(), "; calls after it did nothing"));
    ck_assert_int_eq(g->nodes, nodes);
    ck_assert_int_eq(g->outputs, outputs);
}
END_TEST

/* ---- Counted from the end ---- */

static void check_dims(coda_graph *of, coda_value made, const char *want)
{
    ck_assert_msg(made.id, "%s", coda_error());
    ck_assert_str_eq(type_text(&of->node[made.id - 1].type).s, want);
}

/* With the number of a symbol, too, which is never -1. */
START_TEST(from_the_end)
{
    coda_graph *own = coda_graph_new();
    coda_dim b = coda_symbol(own, "B", 1, 8, 1), t = coda_symbol(own, "T", 1, 64, 1);
    coda_value free_rows = coda_input(own, "v", CODA_F32, 3, (int64_t[]){b, t, 64});
    coda_value n = coda_input(own, "n", CODA_F32, 3, (int64_t[]){2, 3, 4});
    check_dims(own, coda_reshape(own, free_rows, 2, (int64_t[]){-1, 64}), "f32[B*T,64]");
    check_dims(own, coda_reshape(own, free_rows, 3, (int64_t[]){b, -1, 32}), "f32[B,2*T,32]");
    check_dims(own, coda_reshape(own, free_rows, 1, (int64_t[]){-1}), "f32[64*B*T]");
    check_dims(own, coda_reshape(own, n, 2, (int64_t[]){-1, 8}), "f32[3,8]");
    check_dims(own, coda_slice(own, free_rows, -1, 0, 8, 1), "f32[B,T,8]");
    check_dims(own, coda_slice(own, n, -3, 1, 2, 1), "f32[1,3,4]");
    check_dims(own, coda_concat(own, -1, (coda_value[]){n, n}, 2), "f32[2,3,8]");
    check_dims(own, coda_interleave(own, -2, (coda_value[]){n, n}, 2), "f32[2,6,4]");
    check_dims(own, coda_transpose(own, n, (int[]){0, -1, -2}), "f32[2,4,3]");
    check_dims(own, coda_reshape(own, free_rows, 3, (int64_t[]){b, t, 64}), "f32[B,T,64]");
    ck_assert_int_eq((int)coda_reshape(own, free_rows, 2, (int64_t[]){-1, 48}).id, 0);
    coda_graph_status(own);
    ck_assert_str_eq(coda_error(),
                     "reshape %12: x is [B,T,64], 64*B*T elements; the dimensions beside the -1 make 48,"
                     " which does not divide them; where x = v f32[B,T,64]");
    coda_graph_free(own);
}
END_TEST

/* ---- Without a graph ---- */

#define EXPECT_NULL(call, what)                                                                              \
    do {                                                                                                     \
        ck_assert_int_eq((int)(call).id, 0);                                                                 \
        ck_assert_str_eq(coda_error(), what ": the graph is NULL");                                          \
    } while (0)

START_TEST(null_graph)
{
    coda_value n = CODA_NONE;
    EXPECT_NULL(coda_input(NULL, "x", CODA_F32, 0, NULL), "input");
    EXPECT_NULL(coda_weight_strided(NULL, "x", CODA_F32, 0, NULL, NULL), "weight");
    EXPECT_NULL(coda_matmul(NULL, n, n), "matmul");
    EXPECT_NULL(coda_matmul_kn(NULL, x, w), "matmul_kn");
    EXPECT_NULL(coda_add(NULL, x, w), "add");
    EXPECT_NULL(coda_bias(NULL, x, w), "bias");
    EXPECT_NULL(coda_scale(NULL, x, 1), "scale");
    EXPECT_NULL(coda_relu(NULL, x), "relu");
    EXPECT_NULL(coda_apply(NULL, "relu", &x, 1, NULL), "apply");
    EXPECT_NULL(coda_swiglu(NULL, x, CODA_STACKED), "swiglu");
    EXPECT_NULL(coda_rms_norm(NULL, x, n, 1), "rms_norm");
    EXPECT_NULL(coda_layer_norm(NULL, x, n, n, 1), "layer_norm");
    EXPECT_NULL(coda_softmax(NULL, x), "softmax");
    EXPECT_NULL(coda_row_mean(NULL, x), "reduce");
    EXPECT_NULL(coda_row_max(NULL, x), "reduce");
    EXPECT_NULL(coda_reduce(NULL, "sum", x, n), "reduce");
    EXPECT_NULL(coda_reduce_columns(NULL, "sum", x), "reduce_columns");
    EXPECT_NULL(coda_rope(NULL, x, n, NULL), "rope");
    EXPECT_NULL(coda_attention(NULL, x, x, x, n, NULL), "attention");
    EXPECT_NULL(coda_cross_entropy(NULL, x, x, NULL), "cross_entropy");
    EXPECT_NULL(coda_embedding(NULL, x, x), "embedding");
    EXPECT_NULL(coda_row_sums(NULL, x, x, 1), "row_sums");
    EXPECT_NULL(coda_cast(NULL, x, CODA_F32), "cast");
    EXPECT_NULL(coda_slice(NULL, x, 0, 0, 0, 1), "slice");
    EXPECT_NULL(coda_concat(NULL, 0, &x, 1), "concat");
    EXPECT_NULL(coda_interleave(NULL, 0, &x, 1), "interleave");
    EXPECT_NULL(coda_reshape(NULL, x, 0, NULL), "reshape");
    EXPECT_NULL(coda_transpose(NULL, x, NULL), "transpose");
    coda_top_k(NULL, x, 1, &n, NULL);
    ck_assert_int_eq((int)n.id, 0);
    ck_assert_str_eq(coda_error(), "top_k: the graph is NULL");
    coda_output(NULL, "y", x);
    ck_assert_str_eq(coda_error(), "output: the graph is NULL");
    coda_output_strided(NULL, "y", x, NULL);
    coda_output_add(NULL, "y", x);
    ck_assert_str_eq(coda_error(), "output: the graph is NULL");
    coda_output_add_strided(NULL, "y", x, NULL);
    coda_graph_free(NULL);
    ck_assert_int_eq(coda_define_map(NULL, NULL), CODA_E_INVALID);
    ck_assert_int_eq(coda_graph_status(NULL), CODA_E_INVALID);
    ck_assert_int_eq(coda_graph_args(NULL), 0);
    ck_assert_int_eq(coda_graph_arg(NULL, 0, NULL), CODA_E_INVALID);
    ck_assert_int_eq(coda_value_shape(NULL, x, NULL, NULL), -1);
    ck_assert_int_eq(coda_evaluate(NULL, NULL), CODA_E_INVALID);
}
END_TEST

START_TEST(null_map)
{
    ck_assert_int_eq(coda_define_map(g, NULL), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "define_map: def is NULL");
}
END_TEST

/* ---- Questions ---- */

START_TEST(value_shape)
{
    int64_t dims[CODA_MAX_RANK] = {-1, -1, -1, -1, -1, -1};
    coda_dtype t;
    ck_assert_int_eq(coda_value_shape(g, x, dims, &t), 3);
    ck_assert_int_eq(dims[0], 2);
    ck_assert_int_eq(dims[1], 8);
    ck_assert_int_eq(dims[2], 64);
    ck_assert_int_eq(t, CODA_BF16);
    ck_assert_int_eq(coda_value_shape(g, scalar, NULL, NULL), 0);
    ck_assert_int_eq(coda_value_shape(g, CODA_NONE, dims, &t), -1);
    ck_assert_int_eq(coda_value_shape(g, (coda_value){10}, dims, &t), -1);
    ck_assert_str_eq(coda_error(), "value_shape: value 10 of 9");
}
END_TEST

START_TEST(arguments)
{
    coda_arg_info a = CODA_ARG_INFO_INIT;
    coda_weight_strided(g, "pitched", CODA_F16, 2, (int64_t[]){5, 3}, (int64_t[]){8, 2});
    coda_input(g, "empty", CODA_F32, 2, (int64_t[]){0, 3});
    coda_output_strided(g, "y", coda_row_sum(g, m), (int64_t[]){4, 1});
    coda_output_add(g, "more", coda_row_sum(g, m));
    ck_assert_int_eq(coda_graph_args(g), 13);
    ck_assert_int_eq(coda_graph_arg(g, 0, &a), CODA_OK);
    ck_assert_str_eq(a.name, "x");
    ck_assert_int_eq(a.kind, CODA_ARG_INPUT);
    ck_assert_uint_eq(a.bytes, 2 * 8 * 64 * 2);
    ck_assert_int_eq(coda_graph_arg(g, 9, &a), CODA_OK);
    ck_assert_str_eq(a.name, "pitched");
    ck_assert_int_eq(a.kind, CODA_ARG_WEIGHT);
    ck_assert_int_eq(a.rank, 2);
    ck_assert_int_eq(a.dims[0], 5);
    ck_assert_int_eq(a.strides[0], 8);
    ck_assert_uint_eq(a.bytes, (4 * 8 + 2 * 2 + 1) * 2);
    ck_assert_int_eq(coda_graph_arg(g, 10, &a), CODA_OK);
    ck_assert_uint_eq(a.bytes, 0);
    ck_assert_int_eq(coda_graph_arg(g, 11, &a), CODA_OK);
    ck_assert_str_eq(a.name, "y");
    ck_assert_int_eq(a.kind, CODA_ARG_OUTPUT);
    ck_assert_int_eq(a.dtype, CODA_F32);
    ck_assert_uint_eq(a.bytes, (7 * 4 + 1) * 4);
    ck_assert_int_eq(coda_graph_arg(g, 12, &a), CODA_OK);
    ck_assert_str_eq(a.name, "more");
    ck_assert_int_eq(a.kind, CODA_ARG_SUM);
    ck_assert_uint_eq(a.bytes, 8 * 4);
    ck_assert_int_eq(coda_graph_arg(g, 13, &a), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "graph_arg: index is 13 of 13");
    ck_assert_int_eq(coda_graph_arg(g, -1, &a), CODA_E_INVALID);
    ck_assert_int_eq(coda_graph_arg(g, 0, NULL), CODA_E_INVALID);
}
END_TEST

START_TEST(evaluate)
{
    coda_graph *h = coda_graph_new();
    float in[3] = {1, 2, 4}, empty_in = 0;
    double out[3] = {0};
    coda_value a = coda_input(h, "a", CODA_F32, 1, (int64_t[]){3});
    coda_input(h, "e", CODA_F32, 1, (int64_t[]){0});
    coda_output(h, "y", coda_scale(h, a, 0.5f));
    void *args[3] = {in, NULL, out};
    ck_assert_int_eq(coda_evaluate(h, args), CODA_OK);
    ck_assert(out[0] == 0.5 && out[1] == 1 && out[2] == 2);
    args[1] = &empty_in;
    args[2] = NULL;
    ck_assert_int_eq(coda_evaluate(h, args), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "evaluate: args[2] (y, 24 bytes) is NULL");
    ck_assert_int_eq(coda_evaluate(h, NULL), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "evaluate: args is NULL; 3 pointers are needed");
    coda_relu(h, CODA_NONE);
    ck_assert_int_eq(coda_evaluate(h, args), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "relu %3: operand 0 is CODA_NONE");
    coda_graph_free(h);
}
END_TEST

/* The caller's strings and arrays may change after the call. */
START_TEST(copies_arguments)
{
    char name[] = "late";
    int64_t dims[] = {3, 4}, strides[] = {4, 1};
    coda_value a = coda_input_strided(g, name, CODA_F32, 2, dims, strides);
    name[0] = '?';
    dims[0] = strides[0] = -1;
    ck_assert_str_eq(g->node[a.id - 1].name, "late");
    ck_assert_int_eq(graph_verify(g), CODA_OK);
}
END_TEST

TESTS(build, AROUND(setup, teardown), EACH(call, ARRAY_SIZE(right)), EACH(mistake, ARRAY_SIZE(wrong)),
      ONE(from_the_end), ONE(null_graph), ONE(null_map), ONE(value_shape), ONE(arguments), ONE(evaluate),
      ONE(copies_arguments));

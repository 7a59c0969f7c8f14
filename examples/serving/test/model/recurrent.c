/*
 * recurrent.c -- families whose layers carry a state: configs and tensors whose sizes do not fit, texts that
 * begin anew, and what cannot be forgotten.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_test.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* ---- Sizes ---- */

static const struct change of_mamba[] = {
    {"no states", "\"state_size\": 5", "\"state_size\": 0", "state_size is no whole number from 1 to 256"},
    {"many states", "\"state_size\": 5", "\"state_size\": 257",
     "state_size is no whole number from 1 to 256"},
    {"more states", "\"state_size\": 5", "\"state_size\": 6",
     "tensor backbone.layers.0.mixer.x_proj.weight: rank 2 and 13 x 64, where the config wants 15 x 64"},
    {"other columns", "\"intermediate_size\": 64", "\"intermediate_size\": 63",
     "intermediate_size 63, where expand 2 of 32 is 64"},
    {"no columns", "\"expand\": 2", "\"expand\": 0", "expand is no number"},
    {"another tap", "\"conv_kernel\": 4", "\"conv_kernel\": 5",
     "mixer.conv1d.weight: rank 3 and 64 x 4, where the config wants 64 x 5"},
    {"one tap", "\"conv_kernel\": 4", "\"conv_kernel\": 1", "conv_kernel is no whole number from 2 to 16"},
    {"another rank", "\"time_step_rank\": 3", "\"time_step_rank\": 2",
     "13 x 64, where the config wants 12 x 64"},
    {"a rank in words", "\"time_step_rank\": 3", "\"time_step_rank\": \"three\"",
     "time_step_rank is no whole"},
    {"an activation", "\"silu\"", "\"relu\"", "the activation must be silu"},
    {"a bias", "\"use_bias\": false", "\"use_bias\": true", "mixer.in_proj.bias is missing"},
    {"no bias", "\"use_conv_bias\": true", "\"use_conv_bias\": false", "mixer.conv1d.bias is not read"},
    {"experts", "\"expand\"", "\"num_experts\": 8, \"expand\"", "experts are not supported"},
};
static const struct change of_mamba2[] = {
    {"heads", "\"num_heads\": 8", "\"num_heads\": 4", "4 heads of 8, where the scan has 64 columns"},
    {"groups", "\"n_groups\": 2", "\"n_groups\": 3", "8 heads are no multiple of 3 groups"},
    {"more groups", "\"n_groups\": 2", "\"n_groups\": 4", "where the config wants 184 x 32"},
    {"limits", "0.0,", "0.5,", "a time_step_limit but 0 to infinity"},
    {"one limit", "0.0,", "", "a time_step_limit but 0 to infinity"},
    {"a norm", "\"n_groups\"", "\"rms_norm\": false, \"n_groups\"", "'rms_norm'"},
};
static const struct change of_qwen35[] = {
    {"heads", "\"linear_num_value_heads\": 4", "\"linear_num_value_heads\": 5",
     "5 heads of values are no multiple of 2 of keys"},
    {"more heads", "\"linear_num_value_heads\": 4", "\"linear_num_value_heads\": 6",
     "in_proj_qkv.weight: rank 2 and 80 x 32, where the config wants 104 x 32"},
    {"key columns", "\"linear_key_head_dim\": 8", "\"linear_key_head_dim\": 257", "from 1 to 256"},
    {"value columns", "\"linear_value_head_dim\": 12", "\"linear_value_head_dim\": 11", "wants 76 x 32"},
    {"taps", "\"linear_conv_kernel_dim\": 4", "\"linear_conv_kernel_dim\": 3",
     "80 x 4, where the config wants 80 x 3"},
    {"a layer less", "  \"linear_attention\",\n  \"full", "  \"full",
     "layer_types has 2 entries for 3 layers"},
    {"a layer of another kind", "\"full_attention\"", "\"odd_attention\"", "layer_types: 'odd_attention'"},
    {"a layer that attends", "\"linear_attention\",\n  \"full", "\"full_attention\",\n  \"full",
     "tensor model.layers.0.self_attn.q_proj.weight is missing"},
    {"no gate", "\"attention_bias\"", "\"attn_output_gate\": false, \"attention_bias\"",
     "'attn_output_gate'"},
    {"experts", "\"attention_bias\"", "\"num_experts\": 8, \"attention_bias\"", "experts are not supported"},
    {"experts by name", "\"qwen3_5_text\"", "\"qwen3_5_moe_text\"",
     "family qwen3_5_moe_text, which has experts, is not supported"},
    {"Qwen3-Next", "\"qwen3_5_text\"", "\"qwen3_next\"",
     "family qwen3_next, which has experts, is not supported"},
    {"an activation", "\"silu\"", "\"relu\"", "the activation must be silu"},
};
static const struct change of_nemotron[] = {
    {"heads", "\"mamba_num_heads\": 4", "\"mamba_num_heads\": 5", "5 heads are no multiple of 2 groups"},
    {"columns", "\"mamba_head_dim\": 12", "\"mamba_head_dim\": 13", "where the config wants 132 x 32"},
    {"no layers", "\"linear_attention\",\n  \"mlp\",\n  \"full_attention\",\n  \"linear_attention\"", "",
     "num_hidden_layers is missing"},
    {"another number", "\"layers_block", "\"num_hidden_layers\": 5, \"layers_block",
     "num_hidden_layers 5, where the layers' types are 4"},
    {"a layer of experts", "\"mlp\"", "\"moe\"", "layer 1 has experts, which are not supported"},
    {"an odd layer", "\"mlp\"", "\"odd\"", "layer_types: 'odd'"},
    {"an odd letter", "\"layers_block_type\": [", "\"hybrid_override_pattern\": \"M-*X\", \"mtp_layers\": [",
     "layer_types: 'X'"},
    {"experts by letter", "\"layers_block_type\": [",
     "\"hybrid_override_pattern\": \"ME*M\", \"mtp_layers\": [", "layer 1 has experts"},
    {"an activation", "\"mamba_hidden_act\": \"silu\"", "\"mamba_hidden_act\": \"gelu\"",
     "'mamba_hidden_act'"},
};
static const struct change of_granite[] = {
    {"experts", "\"num_local_experts\": 0", "\"num_local_experts\": 4", "experts are not supported"},
    {"positions", "\"nope\"", "\"absolute\"", "position_embedding_type is neither nope nor rope"},
    {"a multiplier", "\"residual_multiplier\": 0.4", "\"residual_multiplier\": 0",
     "residual_multiplier is no number"},
    {"a divisor", "\"logits_scaling\": 1.5", "\"logits_scaling\": 0", "logits_scaling is no number"},
    {"heads", "\"mamba_n_heads\": 8", "\"mamba_n_heads\": 4", "4 heads of 8, where the scan has 64 columns"},
    {"states", "\"mamba_d_state\": 6", "\"mamba_d_state\": 300",
     "mamba_d_state is no whole number from 1 to 256"},
};
static const struct change of_falcon[] = {
    {"columns", "\"mamba_d_ssm\": 40", "\"mamba_d_ssm\": 44", "4 heads of 10, where the scan has 44 columns"},
    {"few multipliers", "  0.8,\n  0.7\n", "  0.8\n", "mlp_multipliers is no list of 2 numbers"},
    {"odd multipliers", "  0.9,\n  1.1", "  0.9,\n  \"1\"", "ssm_multipliers is no list of 5 numbers"},
    {"a norm", "\"mamba_rms_norm\": false", "\"mamba_rms_norm\": true", "mamba.norm.weight is missing"},
};
static const struct change tensors[] = {
    {"no rates", "mixer.A_log", "mixer.A_lag", "tensor backbone.layers.0.mixer.A_log is missing"},
    {"no skip", "1.mixer.D\"", "1.mixer.E\"", "tensor backbone.layers.1.mixer.D is missing"},
    {"turned taps", "[64,1,4]", "[4,1,64]", "rank 3 and 4 x 64, where the config wants 64 x 4"},
};

/* Of equal length, in the file that change_each has left. */
static bool write_over(const char *path, const char *old, const char *new)
{
    char text[2048] = {0};
    FILE *f = fopen(path, "r+");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    const char *at = n ? strstr(text, old) : NULL;
    bool good = at && !fseek(f, at - text, SEEK_SET) && fwrite(new, 1, strlen(new), f) == strlen(new);
    return f && !fclose(f) && good;
}

/* As older versions of transformers write it. */
static void test_infinity(const char *tiny, const char *scratch)
{
    static const struct change odd[] = {
        {"infinity and more", "{\n   \"__float__\": \"Infinity\"\n  }", "Infinity, 0", "a time_step_limit"},
        {"no number", "{\n   \"__float__\": \"Infinity\"\n  }", "Infinite", "line 24: invalid token"}};
    char path[512];
    struct fault f = {{0}};
    struct model_options o = {.device = CODA_DEVICE_CPU};
    snprintf(path, sizeof path, "%s/mamba2", tiny);
    change_each(path, scratch, "config.json", odd, COUNT(odd));
    snprintf(path, sizeof path, "%s/config.json", scratch);
    struct model *m = write_over(path, "Infinite", "Infinity") ? model_open(scratch, &o, &f) : NULL;
    CHECK(m != NULL, "a limit of Infinity: %s", f.text);
    model_close(m);
}

/* ---- Texts ---- */

static struct model *opened(const char *tiny, const char *name)
{
    char path[512];
    struct fault f = {{0}};
    struct model_options o = {.device = CODA_DEVICE_CPU, .every_row = true, .rows = 16, .context = 64};
    snprintf(path, sizeof path, "%s/%s", tiny, name);
    struct model *m = model_open(path, &o, &f);
    CHECK(m && m->recurrent > 0, "%s: %s", name, f.text);
    return m;
}

enum { FEW = 7 };

static bool logits_of(struct model *m, const int32_t *ids, float *to, struct fault *f)
{
    int32_t next;
    return model_decode(m, ids, FEW, &next, f) && model_logits(m, to, 1, f);
}

/* One text behind another, that goes on where the first one ended: as if each were alone. */
static void test_texts(const char *tiny, const char *name)
{
    static const int32_t one[FEW] = {1, 17, 4, 33, 9, 70, 2}, other[FEW] = {5, 6, 7, 8, 9, 10, 11};
    float *first = calloc(3 * 80, sizeof *first), *second = first + 80, *again = second + 80;
    struct fault f = {{0}};
    struct model *m = opened(tiny, name);
    bool ran = m && logits_of(m, one, first, &f);
    CHECK(ran && model_rewind(m, FEW) && m->length == FEW, "%s: %s", name, f.text);
    CHECK(m && !model_rewind(m, 3) && m->length == FEW, "%s: a state went back", name);
    CHECK(m && model_rewind(m, 0) && m->length == 0, "%s: a text cannot begin", name);
    ran = ran && logits_of(m, other, second, &f) && model_rewind(m, 0) && logits_of(m, one, again, &f);
    CHECK(ran && !memcmp(first, again, 80 * sizeof *first), "%s: a text depends on the one before: %s", name,
          f.text);
    CHECK(memcmp(first, second, 80 * sizeof *first), "%s: texts are alike", name);
    if (m) m->lost = true;
    CHECK(m && !logits_of(m, one, again, &f) && strstr(f.text, "begin anew"), "%s: %s", name, f.text);
    CHECK(m && model_rewind(m, 0) && logits_of(m, one, again, &f), "%s: %s", name, f.text);
    CHECK(!memcmp(first, again, 80 * sizeof *first), "%s: a text depends on a run that failed", name);
    model_close(m);
    free(first);
}

/* What learns reads windows of texts, and wants gradients. */
static void test_windows(const char *tiny, const char *name)
{
    struct weights weights = {0};
    struct fault f = {{0}};
    struct model *m = opened(tiny, name);
    if (!m) return;
    struct build b = {.g = coda_graph_new(),
                      .c = &m->config,
                      .from = &m->files,
                      .weights = &weights,
                      .fault = &f,
                      .dtype = CODA_F32,
                      .rows = 8,
                      .sentences = 2,
                      .packed = true};
    b.positions = coda_input(b.g, "positions", CODA_I32, DIMS(2, 8));
    m->family->graph(&b, coda_input(b.g, "ids", CODA_I32, DIMS(2, 8)));
    CHECK(b.failed && strstr(f.text, "cannot be trained"), "%s: %s", name, f.text);
    coda_graph_free(b.g);
    weights_free(&weights);
    model_close(m);
}

void test_recurrent(const char *tiny, const char *scratch)
{
    char mamba[512], mamba2[512], qwen35[512], path[512];
    snprintf(mamba, sizeof mamba, "%s/mamba", tiny);
    snprintf(mamba2, sizeof mamba2, "%s/mamba2", tiny);
    snprintf(qwen35, sizeof qwen35, "%s/qwen3_5", tiny);
    change_each(mamba, scratch, "config.json", of_mamba, COUNT(of_mamba));
    change_each(mamba2, scratch, "config.json", of_mamba2, COUNT(of_mamba2));
    change_each(qwen35, scratch, "config.json", of_qwen35, COUNT(of_qwen35));
    snprintf(path, sizeof path, "%s/nemotron_h", tiny);
    change_each(path, scratch, "config.json", of_nemotron, COUNT(of_nemotron));
    snprintf(path, sizeof path, "%s/granite4", tiny);
    change_each(path, scratch, "config.json", of_granite, COUNT(of_granite));
    snprintf(path, sizeof path, "%s/falcon_h1", tiny);
    change_each(path, scratch, "config.json", of_falcon, COUNT(of_falcon));
    change_each(mamba, scratch, "model.safetensors", tensors, COUNT(tensors));
    test_infinity(tiny, scratch);
    test_texts(tiny, "mamba");
    test_texts(tiny, "mamba2");
    test_texts(tiny, "qwen3_5");
    test_texts(tiny, "nemotron_h");
    test_texts(tiny, "falcon_h1");
    test_windows(tiny, "mamba");
    test_windows(tiny, "qwen3_5");
    test_windows(tiny, "granite4");
}

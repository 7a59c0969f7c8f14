/*
 * gguf_config.c -- GGUF's metadata in the words of config.json.
 *
 * Values differ, too: LLaMA's rows of q and k are permuted so that RoPE turns neighbours, Gemma's gains have
 * their 1, GPT-2's matrices are turned, LLaMA 3.1's frequencies are divided by the tensor rope_freqs, those
 * of LongRoPE by rope_factors_short and rope_factors_long. What a file leaves out is what llama.cpp takes it
 * for.
 */
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "config_keys.h"
#include "gguf.h"
#include "words_keys.h"

/* A file while it is read. */
struct reading {
    struct keys k;
    const struct checkpoint *c;
    const char *architecture;
    json_t *config;
    struct fault *f;
    bool failed; /* the fault says why */
};

static const struct pair {
    const char *gguf, *ours;
} sizes[] = {{"ARCH.block_count", "num_hidden_layers"},
             {"ARCH.context_length", "max_position_embeddings"},
             {"ARCH.embedding_length", "hidden_size"},
             {"ARCH.feed_forward_length", "intermediate_size"},
             {"ARCH.attention.head_count", "num_attention_heads"},
             {"ARCH.attention.layer_norm_rms_epsilon", "rms_norm_eps"},
             {"ARCH.attention.layer_norm_epsilon", "layer_norm_eps"},
             {"ARCH.attention.sliding_window", "sliding_window"},
             {"ARCH.attention.sliding_window_pattern", "sliding_window_pattern"},
             {"ARCH.rope.freq_base", "rope_theta"},
             {"ARCH.rope.freq_base_swa", "rope_local_base_freq"},
             {"ARCH.attn_logit_softcapping", "attn_logit_softcapping"},
             {"ARCH.final_logit_softcapping", "final_logit_softcapping"},
             {"ARCH.pooling_type", "gguf:pooling_type"},
             {"tokenizer.chat_template", "chat_template"}};

static bool is(const struct reading *r, const char *architecture)
{
    return !strcmp(r->architecture, architecture);
}

static void set(struct reading *r, const char *name, json_t *value)
{
    json_object_set_new(r->config, name, value);
}

static json_int_t whole(const struct reading *r, const char *name)
{
    return json_integer_value(json_object_get(r->config, name));
}

/* What is no number sets `failed`. */
static double real(struct reading *r, const char *name, double otherwise)
{
    const json_t *v = keys_get(&r->k, name);
    if (v && !json_is_number(v))
        r->failed = !fault_set(r->f, "%s: %s%s is no number", r->k.what, r->architecture, name + 4);
    return json_is_number(v) ? json_number_value(v) : otherwise;
}

/* Rows of a table, by GGUF's name of it. */
static json_int_t rows_of(const struct reading *r, const char *name)
{
    char ours[128];
    gguf_name(r->architecture, name, ours, sizeof ours);
    const struct stored_tensor *t = checkpoint_find(r->c, ours);
    return t && t->rank == 2 ? (json_int_t)t->dims[0] : 0;
}

/* ---- Sizes ---- */

static bool set_sizes(struct reading *r)
{
    json_int_t rows = rows_of(r, "token_embd.weight");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        json_t *v = keys_get(&r->k, sizes[i].gguf);
        if (v) json_object_set(r->config, sizes[i].ours, v);
    }
    const json_t *chat = json_object_get(r->config, "chat_template");
    if (chat && !json_is_string(chat))
        return fault_set(r->f, "%s: tokenizer.chat_template is no text of at most 256 kB", r->k.what);
    const json_t *pooling = json_object_get(r->config, "gguf:pooling_type");
    if (pooling &&
        (!json_is_integer(pooling) || json_integer_value(pooling) < 0 || json_integer_value(pooling) > 3))
        return fault_set(r->f, "%s: %s.pooling_type is no number from 0 to 3", r->k.what, r->architecture);
    set(r, "model_type", json_string(gguf_family(r->architecture)));
    set(r, "gguf:activation", json_string("silu"));
    if (rows) set(r, "vocab_size", json_integer(rows));
    return true;
}

/* Heads of queries, of keys and values, and their columns, which are equal in all of them. */
static bool set_heads(struct reading *r)
{
    bool alike = is(r, "bert") || is(r, "gpt2");
    json_int_t heads = whole(r, "num_attention_heads"), width = whole(r, "hidden_size");
    json_t *kv = keys_get(&r->k, "ARCH.attention.head_count_kv");
    json_t *key = keys_get(&r->k, "ARCH.attention.key_length"),
           *value = keys_get(&r->k, "ARCH.attention.value_length");
    json_int_t usual = heads > 0 ? width / heads : 0, columns = key ? json_integer_value(key) : usual;
    if (alike && kv && json_integer_value(kv) != heads)
        return fault_set(r->f, "%s: %s.attention.head_count_kv is not head_count", r->k.what,
                         r->architecture);
    if (!alike && kv) json_object_set(r->config, "num_key_value_heads", kv);
    if (value && json_integer_value(value) != columns)
        return fault_set(r->f, "%s: %s.attention.value_length is %lld, but keys have %lld columns", r->k.what,
                         r->architecture, (long long)json_integer_value(value), (long long)columns);
    if (alike && columns != usual)
        return fault_set(r->f, "%s: %s.attention.key_length is %lld, and not %lld", r->k.what,
                         r->architecture, (long long)columns, (long long)usual);
    if (!alike && key) json_object_set(r->config, "head_dim", key);
    return true;
}

/* llama.cpp's list of what ends a text. */
static void set_ends(struct reading *r)
{
    static const char *const names[] = {"tokenizer.ggml.eos_token_id",     "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id",     "tokenizer.ggml.fim_pad_token_id",
                                        "tokenizer.ggml.fim_rep_token_id", "tokenizer.ggml.fim_sep_token_id"};
    json_t *ends = json_array();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *id = keys_get(&r->k, names[i]);
        bool none = json_is_integer(id) && json_integer_value(id) == UINT32_MAX; /* LLAMA_TOKEN_NULL */
        if (id && !none) json_array_append(ends, id);
    }
    if (json_array_size(ends)) set(r, "eos_token_id", ends);
    else json_decref(ends);
}

/* ---- What architectures have ---- */

static bool there(const struct reading *r, const char *name) { return checkpoint_find(r->c, name) != NULL; }

static void set_biases(struct reading *r)
{
    if (is(r, "bert") || is(r, "gpt2") || is(r, "phi3")) return;
    set(r, "gguf:qkv_bias", json_boolean(there(r, "model.layers.0.self_attn.q_proj.bias")));
    set(r, "gguf:out_bias", json_boolean(there(r, "model.layers.0.self_attn.o_proj.bias")));
    if (is(r, "llama")) set(r, "mlp_bias", json_boolean(there(r, "model.layers.0.mlp.down_proj.bias")));
}

/* Gemma's larger models divide scores by the root of another number, which files do not tell. */
static void set_gemma(struct reading *r)
{
    json_int_t layers = whole(r, "num_hidden_layers"), heads = whole(r, "num_attention_heads");
    bool large = (is(r, "gemma2") && layers == 46) || (is(r, "gemma3") && layers == 62);
    json_int_t head = whole(r, "head_dim"), width = whole(r, "hidden_size");
    if (!head && heads > 0) head = width / heads;
    if (!is(r, "gemma"))
        set(r, "query_pre_attn_scalar", json_integer(large && heads > 0 ? width / heads : head));
    /* What gemma2 leaves out is by both the same as in config.json; of the others llama.cpp has no window. */
    if (!is(r, "gemma") && !is(r, "gemma2") && !json_object_get(r->config, "sliding_window"))
        set(r, "sliding_window", json_integer(0));
    set(r, "gguf:activation", json_string("gelu_pytorch_tanh"));
    set(r, "gguf:unit_gains", json_false());
    set(r, "use_bidirectional_attention", json_boolean(is(r, "gemma-embedding")));
}

static void set_family(struct reading *r)
{
    if (!strncmp(r->architecture, "gemma", 5)) set_gemma(r);
    if (is(r, "bert")) set(r, "type_vocab_size", json_integer(rows_of(r, "token_types.weight")));
    if (is(r, "bert")) set(r, "gguf:activation", json_string("gelu"));
    if (is(r, "gpt2")) set(r, "gguf:activation", json_string("gelu_new"));
    if (is(r, "gpt2")) set(r, "gguf:turned", json_true()); /* [out, in], as others have them */
}

/* ---- RoPE ---- */

/* The factors that frequencies are divided by, as a list; NULL for what is no vector of F32. */
static json_t *factors_in(const struct reading *r, const char *name)
{
    const struct stored_tensor *t = checkpoint_find(r->c, name);
    if (!t || t->dtype != CODA_F32 || t->rank != 1 || t->dims[0] > MOST_FREQUENCIES) return NULL;
    checkpoint_use(r->c, name); /* another one is refused by its name */
    json_t *list = json_array();
    for (int64_t i = 0; i < t->dims[0]; i++) {
        float x;
        memcpy(&x, t->data + 4 * i, sizeof x);
        json_array_append_new(list, json_real((double)x));
    }
    return list;
}

static double original_context(struct reading *r)
{
    double n =
        real(r, "ARCH.rope.scaling.original_context_length", (double)whole(r, "max_position_embeddings"));
    if (!(n >= 0 && n <= INT32_MAX)) /* the caller makes an integer of it */
        r->failed =
            !fault_set(r->f, "%s: rope.scaling.original_context_length is no number of tokens", r->k.what);
    return r->failed ? 0 : n;
}

/* Long and short factors, of Phi-3 and of LLaMAs that say longrope. */
static bool set_longrope(struct reading *r, const char *type)
{
    bool wanted = is(r, "phi3") || (is(r, "llama") && type && !strcmp(type, "longrope"));
    json_t *brief = wanted ? factors_in(r, "rope_factors_short.weight") : NULL;
    json_t *far = wanted ? factors_in(r, "rope_factors_long.weight") : NULL;
    if (brief && far)
        set(r, "rope_scaling",
            json_pack("{s:s, s:f, s:I, s:O, s:O}", "rope_type", "longrope", "attention_factor", 1.0,
                      "original_max_position_embeddings", (json_int_t)original_context(r), "short_factor",
                      brief, "long_factor", far));
    if (!brief != !far)
        r->failed = !fault_set(
            r->f, "%s: of rope_factors_short and rope_factors_long one is missing, or no vector of F32",
            r->k.what);
    json_decref(brief);
    json_decref(far);
    return brief && far;
}

static void set_yarn(struct reading *r, double factor)
{
    set(r, "rope_scaling",
        json_pack("{s:s, s:f, s:f, s:f, s:f}", "rope_type", "yarn", "factor", factor,
                  "original_max_position_embeddings", original_context(r), "beta_fast",
                  real(r, "ARCH.rope.scaling.yarn_beta_fast", 32), "beta_slow",
                  real(r, "ARCH.rope.scaling.yarn_beta_slow", 1)));
}

/* Factors of tensors; else by the type, which is linear where there is none. */
static bool set_scaling(struct reading *r)
{
    json_t *named = keys_get(&r->k, "ARCH.rope.scaling.type");
    const char *type = json_string_value(named);
    double older = real(r, "ARCH.rope.scale_linear", 0), factor = real(r, "ARCH.rope.scaling.factor", older);
    json_t *factors = is(r, "llama") ? factors_in(r, "rope_freqs.weight") : NULL;
    bool none = type && !strcmp(type, "none");
    bool divided = !none && factor != 0 && factor != 1;
    bool linear = divided && (!type || !strcmp(type, "linear"));
    bool yarn = type && !strcmp(type, "yarn"), lasting = set_longrope(r, type);
    if (factors)
        set(r, "rope_scaling", json_pack("{s:s, s:o}", "rope_type", "gguf:factors", "factors", factors));
    if ((factors || lasting) && (divided || yarn))
        return fault_set(r->f, "%s: RoPE is scaled by tensors and by %s.rope.scaling.factor", r->k.what,
                         r->architecture);
    if (type && !lasting && !none && !yarn && strcmp(type, "linear"))
        return fault_set(r->f, "%s: RoPE of type '%.40s' is not supported%s", r->k.what, type,
                         strcmp(type, "longrope") ? "" : " without rope_factors_short and rope_factors_long");
    if (named && !type)
        return fault_set(r->f, "%s: %s.rope.scaling.type is no text", r->k.what, r->architecture);
    if (linear) set(r, "rope_scaling", json_pack("{s:s, s:f}", "rope_type", "linear", "factor", factor));
    if (yarn) set_yarn(r, factor == 0 ? 1 : factor);
    return !r->failed;
}

static bool set_rope(struct reading *r)
{
    json_t *rotary = keys_get(&r->k, "ARCH.rope.dimension_count");
    json_t *scale = keys_get(&r->k, "ARCH.rope.scaling.attn_factor");
    if (is(r, "bert") || is(r, "gpt2")) return true;
    if (rotary) json_object_set(r->config, "gguf:rotary", rotary);
    if (scale) json_object_set(r->config, "gguf:rope_scale", scale);
    set(r, "gguf:rope_interleaved", json_boolean(is(r, "llama")));
    return set_scaling(r);
}

/* ---- The whole ---- */

static bool read_all(struct reading *r, const json_t *meta)
{
    static const char *const container[] = {"general.architecture", "general.alignment", "split.no",
                                            "split.count", "split.tensors.count"};
    for (size_t i = 0; i < sizeof container / sizeof *container; i++) keys_get(&r->k, container[i]);
    if (!set_sizes(r) || !set_heads(r)) return false;
    set_ends(r);
    set_biases(r);
    set_family(r);
    return set_rope(r) && words_keys_known(meta, r->k.what, r->f->text, sizeof r->f->text);
}

json_t *gguf_config(const struct checkpoint *c, const char *file, const json_t *meta, struct fault *f)
{
    struct reading r = {.c = c,
                        .architecture = json_string_value(json_object_get(meta, "general.architecture")),
                        .config = json_object(),
                        .f = f};
    bool good = gguf_family(r.architecture) ||
                fault_set(f, "GGUF: architecture %.40s is not supported", r.architecture);
    keys_begin(&r.k, &gguf_keys, r.architecture, meta, file);
    r.k.architecture = r.architecture;
    good = good && read_all(&r, meta);
    good = config_done(&r.k, good, f);
    if (good) return r.config;
    fault_clean(f);
    json_decref(r.config);
    return NULL;
}

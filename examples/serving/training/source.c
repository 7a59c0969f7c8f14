/*
 * source.c -- what is trained.
 */
#include <limits.h>
#include <string.h>

#include "text.h"
#include "tokenizer.h"
#include "train_aside.h"
#include "train_source.h"

enum { EVEN = 8 /* rows of a table of tokens are a multiple of it */, POSITIONS = 2048 };

static json_t *config_of(const struct source *s, const struct settings *o)
{
    int words = s->tokenizer ? tokenizer_size(s->tokenizer) : BYTES;
    int64_t positions = o->tokens > POSITIONS ? o->tokens : POSITIONS;
    json_t *c = json_pack("{s:[s], s:s, s:s, s:b, s:b, s:b, s:f}", "architectures", "LlamaForCausalLM",
                          "model_type", "llama", "hidden_act", "silu", "tie_word_embeddings", 1,
                          "attention_bias", 0, "mlp_bias", 0, "rms_norm_eps", 1e-5);
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"hidden_size", o->hidden},
                 {"intermediate_size", o->inner},
                 {"num_hidden_layers", o->layers},
                 {"num_attention_heads", o->heads},
                 {"num_key_value_heads", o->kv_heads},
                 {"head_dim", o->hidden / o->heads},
                 {"vocab_size", (words + EVEN - 1) / EVEN * EVEN},
                 {"max_position_embeddings", positions}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        json_object_set_new(c, sizes[i].name, json_integer(sizes[i].value));
    json_object_set_new(c, "rope_theta", json_real(10000));
    int begins = s->tokenizer ? tokenizer_special(s->tokenizer, "bos") : BYTES_END;
    if (begins >= 0) json_object_set_new(c, "bos_token_id", json_integer(begins));
    if (s->ends >= 0) json_object_set_new(c, "eos_token_id", json_integer(s->ends));
    return c;
}

static bool open_words(struct source *s, const struct settings *o, struct fault *f)
{
    s->speaks = o->from ? o->from : o->tokenizer;
    s->begins = s->ends = BYTES_END;
    if (!s->speaks) return true;
    s->begins = -1; /* the tokenizer does it */
    s->tokenizer = text_tokenizer(s->speaks, f);
    s->ends = s->tokenizer ? tokenizer_special(s->tokenizer, "eos") : -1;
    return s->tokenizer != NULL;
}

static bool read_sizes(struct source *s, const struct settings *o, struct fault *f)
{
    if (!config_read(&s->config, s->object, f) || !(s->family = family_find(&s->config, f))) return false;
    if (s->family->encoder) return fault_set(f, "family %s makes no text", s->config.family);
    return o->tokens <= s->config.positions ||
           fault_set(f, "windows of %lld tokens, but the model was made for %d", (long long)o->tokens,
                     s->config.positions);
}

/* A GGUF file's config in words that files have: those of its own say how the numbers lie. What save_model
 * does not lay as safetensors have it is refused. */
static bool translate(const struct source *s, json_t *o, struct fault *f)
{
    const char *name;
    json_t *v;
    void *next;
    json_object_foreach_safe(o, next, name, v)
    {
        if (strncmp(name, "gguf:", 5)) continue;
        const char *word = name + 5;
        bool known = !strcmp(word, "rope_interleaved") ||
                     (!strcmp(word, "rotary") && json_integer_value(v) == s->config.head_dim) ||
                     (!strcmp(word, "activation") && !strcmp(json_string_value(v), "silu")) ||
                     (!strcmp(word, "qkv_bias") && json_is_true(v) == !strcmp(s->config.family, "qwen2")) ||
                     (!strcmp(word, "out_bias") && json_is_false(v));
        if (!known)
            return fault_set(f, "a GGUF file of %s cannot be gone on with: its %s; safetensors can",
                             s->config.family, word);
        json_object_del(o, name);
    }
    if (json_object_get(json_object_get(o, "rope_scaling"), "factors"))
        return fault_set(f, "a GGUF file with factors of RoPE cannot be gone on with; safetensors can");
    json_object_del(o, "chat_template");
    return json_object_get(o, "hidden_act") || !json_object_set_new(o, "hidden_act", json_string("silu")) ||
           fault_set(f, "out of memory");
}

/* config.json as it is written. */
static bool make_written(struct source *s, struct fault *f)
{
    s->written = json_copy(s->object);
    if (!s->written) return fault_set(f, "out of memory");
    return !json_object_get(s->object, "gguf:activation") || translate(s, s->written, f);
}

bool source_open(struct source *s, const struct settings *o, struct fault *f)
{
    *s = (struct source){0};
    if (!o->from) {
        if (!open_words(s, o, f)) return false;
        s->object = config_of(s, o);
        return s->object ? read_sizes(s, o, f) && make_written(s, f) : fault_set(f, "out of memory");
    }
    s->opened = true;
    if (!checkpoint_open(&s->files, o->from, f)) return false;
    s->object = json_incref(s->files.config);
    return read_sizes(s, o, f) && make_written(s, f) && open_words(s, o, f);
}

void source_close(struct source *s)
{
    if (s->tokenizer) tokenizer_close(s->tokenizer);
    if (s->opened) checkpoint_close(&s->files);
    json_decref(s->object);
    json_decref(s->written);
    *s = (struct source){0};
}

bool source_write(const struct source *s, const char *folder, coda_dtype dtype, struct fault *f)
{
    static const char *const names[] = {"float32", "bfloat16", "float16"}; /* by coda_dtype */
    if (json_object_set_new(s->written, "torch_dtype", json_string(names[dtype - CODA_F32])))
        return fault_set(f, "out of memory");
    if (!aside_json(folder, "config.json", s->written, f)) return false;
    return s->speaks ? vocabulary_copy(s->speaks, folder, f) : vocabulary_write_bytes(folder, f);
}

/*
 * gguf_keys.c -- the keys of GGUF's metadata, by architecture: what llama.cpp acts on, and what else its
 * converters write. ARCH is the architecture's name. Keys of tokenizers: tokenizer/words_keys.c.
 */
#include "config_keys.h"

static const char *const architectures[] = {"llama",  "qwen2",           "qwen3", "phi3", "gemma", "gemma2",
                                            "gemma3", "gemma-embedding", "bert",  "gpt2", NULL};
enum {
    LLAMA = 1 << 0,
    QWEN2 = 1 << 1,
    QWEN3 = 1 << 2,
    PHI3 = 1 << 3,
    GEMMA = 1 << 4,
    GEMMA2 = 1 << 5,
    GEMMA3 = 1 << 6,
    EMBEDDING = 1 << 7,
    BERT = 1 << 8,
    GPT2 = 1 << 9,
    ROTARY = LLAMA | QWEN2 | QWEN3 | PHI3 | GEMMA | GEMMA2 | GEMMA3 | EMBEDDING,
    ENCODERS = BERT | EMBEDDING,
};

static const struct key keys[] = {
    {"general.architecture", KEY_ALL, KEY_READ, NULL, "the architecture"},
    {"general.alignment", KEY_ALL, KEY_READ, NULL, "tensors begin at multiples of it"},
    {"general.type", KEY_ALL, KEY_IGNORED, "[\"model\"]",
     "an adapter, a projector or an imatrix is no model"},
    {"general.name general.basename general.author general.organization general.version general.description"
     " general.finetune general.size_label general.quantized_by general.license general.license.*"
     " general.url general.doi general.uuid general.repo_url general.source.* general.base_model.*"
     " general.dataset.* general.datasets general.tags general.languages general.hf.* general.created_by",
     KEY_ALL, KEY_IGNORED, NULL, "who made it of what"},
    {"general.file_type general.quantization_version", KEY_ALL, KEY_IGNORED, NULL,
     "each tensor says its type itself"},
    {"general.sampling.*", KEY_ALL, KEY_IGNORED, NULL,
     "how tokens are chosen from logits: the command line or the request says it"},
    {"quantize.imatrix.*", KEY_ALL, KEY_IGNORED, NULL, "how weights were rounded, which are as they are"},
    {"split.no split.count split.tensors.count", KEY_ALL, KEY_READ, NULL, "which part of how many"},
    {"tokenizer.*", KEY_ALL, KEY_IGNORED, NULL, "the tokenizer has a table of its own, which is asked, too"},
    {"tokenizer.ggml.eos_token_id tokenizer.ggml.eot_token_id tokenizer.ggml.eom_token_id"
     " tokenizer.ggml.fim_pad_token_id tokenizer.ggml.fim_rep_token_id tokenizer.ggml.fim_sep_token_id",
     KEY_ALL, KEY_READ, NULL, "tokens that end a text"},
    {"tokenizer.chat_template", KEY_ALL, KEY_READ, NULL, "the template of chats"},

    {"ARCH.block_count ARCH.context_length ARCH.embedding_length ARCH.feed_forward_length"
     " ARCH.attention.head_count",
     KEY_ALL, KEY_READ, NULL, "sizes"},
    {"ARCH.attention.head_count_kv", KEY_ALL, KEY_READ, NULL,
     "heads of keys and values; of bert and gpt2 as many as of queries"},
    {"ARCH.attention.key_length ARCH.attention.value_length", KEY_ALL, KEY_READ, NULL,
     "columns of a head, which are equal; embedding_length / head_count if absent"},
    {"ARCH.attention.layer_norm_rms_epsilon", ROTARY, KEY_READ, NULL, "added to the mean square"},
    {"ARCH.attention.layer_norm_epsilon", BERT | GPT2, KEY_READ, NULL, "added to the variance"},
    {"ARCH.attention.causal", ROTARY & ~EMBEDDING, KEY_IGNORED, "[true]", "these graphs are causal"},
    {"ARCH.attention.causal", GPT2, KEY_IGNORED, "[true]", "this graph is causal"},
    {"ARCH.attention.causal", ENCODERS, KEY_IGNORED, "[false]", "these attend in both directions"},
    {"ARCH.attention.sliding_window", PHI3 | GEMMA2 | GEMMA3 | EMBEDDING, KEY_READ, NULL,
     "keys that a layer which slides sees; 4096 where gemma2 says nothing, as llama.cpp has it"},
    {"ARCH.attention.sliding_window_pattern", GEMMA2 | GEMMA3 | EMBEDDING, KEY_READ, NULL,
     "each so-manieth layer does not slide"},
    {"ARCH.attention.sliding_window", ROTARY, KEY_IGNORED, "[0]", "llama.cpp has no window there"},
    {"ARCH.attention.scale ARCH.attention.clamp_kqv ARCH.attention.max_alibi_bias", KEY_ALL, KEY_IGNORED,
     "[0]", "of other architectures"},
    {"ARCH.attn_logit_softcapping", GEMMA2, KEY_READ, NULL, "50 if absent, as llama.cpp has it"},
    {"ARCH.final_logit_softcapping", GEMMA2 | GEMMA3, KEY_READ, NULL, "of gemma2 30 if absent"},
    {"ARCH.pooling_type", ENCODERS, KEY_READ, NULL, "how states become a vector"},
    {"ARCH.pooling_type", ~(unsigned)ENCODERS, KEY_IGNORED, NULL, "logits do not go through it"},
    {"ARCH.vocab_size", KEY_ALL, KEY_IGNORED, NULL, "the table of tokens has so many rows as it has"},
    {"ARCH.tensor_data_layout", KEY_ALL, KEY_IGNORED, NULL,
     "older converters' word, which llama.cpp ignores"},
    {"ARCH.use_parallel_residual", KEY_ALL, KEY_IGNORED, "[false]", "of other architectures"},
    {"ARCH.expert_count ARCH.expert_used_count", KEY_ALL, KEY_IGNORED, "[0]", "experts are not supported"},
    {"ARCH.dense_#_feat_in ARCH.dense_#_feat_out", EMBEDDING, KEY_IGNORED, NULL,
     "the layers' matrices have their sizes"},

    {"ARCH.rope.dimension_count", ROTARY, KEY_READ, NULL, "columns of a head that are rotated"},
    {"ARCH.rope.dimension_count", BERT | GPT2, KEY_IGNORED, NULL, "these have no RoPE"},
    {"ARCH.rope.freq_base", ROTARY, KEY_READ, NULL, "the base"},
    {"ARCH.rope.freq_base_swa", GEMMA3 | EMBEDDING, KEY_READ, NULL, "the base of layers that slide"},
    {"ARCH.rope.scaling.type", ROTARY, KEY_READ, NULL, "none, linear (also if absent), yarn, longrope"},
    {"ARCH.rope.scaling.factor ARCH.rope.scale_linear", ROTARY, KEY_READ, NULL,
     "frequencies are divided by it; scale_linear is the older name, and counts if the other is absent"},
    {"ARCH.rope.scaling.attn_factor", ROTARY, KEY_READ, NULL, "a factor of cosine and sine"},
    {"ARCH.rope.scaling.original_context_length", ROTARY, KEY_READ, NULL,
     "where yarn, or the long factors, begin; context_length if absent"},
    {"ARCH.rope.scaling.original_context_length", ROTARY, KEY_IGNORED, NULL,
     "without yarn or long factors no angle depends on it"},
    {"ARCH.rope.scaling.yarn_beta_fast ARCH.rope.scaling.yarn_beta_slow", ROTARY, KEY_READ, NULL, "of yarn"},
    {"ARCH.rope.scaling.yarn_beta_fast ARCH.rope.scaling.yarn_beta_slow", ROTARY, KEY_IGNORED, NULL,
     "without yarn no angle depends on them"},
    {"ARCH.rope.scaling.yarn_ext_factor ARCH.rope.scaling.yarn_attn_factor", ROTARY, KEY_IGNORED, "[1]",
     "other mixtures of yarn are not supported"},
    {"ARCH.rope.scaling.finetuned", ROTARY, KEY_IGNORED, NULL, "llama.cpp prints it"},
    {"ARCH.rope.dimension_sections", ROTARY, KEY_REFUSED, NULL,
     "RoPE of several coordinates is not supported"},
};
const struct key_table gguf_keys = {"metadata of GGUF", architectures, keys, sizeof keys / sizeof *keys};

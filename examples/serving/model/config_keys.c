/*
 * config_keys.c -- the members of config.json, as transformers writes it in versions 4 and 5. Those that
 * begin with "gguf:" are words of gguf_config, which no file may have.
 */
#include "config_keys.h"

static const char *const families[] = {"llama",     "mistral",     "qwen2",
                                       "qwen3",     "phi3",        "gemma",
                                       "gemma2",    "gemma3_text", "gpt2",
                                       "bert",      "vit",         "siglip_vision_model",
                                       "gemma3",    "mistral3",    "siglip",
                                       "mamba",     "mamba2",      "qwen3_5_text",
                                       "qwen3_5",   "nemotron_h",  "granitemoehybrid",
                                       "falcon_h1", NULL};
enum {
    LLAMA = 1 << 0,
    MISTRAL = 1 << 1,
    QWEN2 = 1 << 2,
    QWEN3 = 1 << 3,
    PHI3 = 1 << 4,
    GEMMA = 1 << 5,
    GEMMA2 = 1 << 6,
    GEMMA3 = 1 << 7,
    GPT2 = 1 << 8,
    BERT = 1 << 9,
    VIT = 1 << 10,
    SIGLIP = 1 << 11,
    GEMMA3_WHOLE = 1 << 12,
    MISTRAL3_WHOLE = 1 << 13,
    SIGLIP_WHOLE = 1 << 14,
    MAMBA = 1 << 15,
    MAMBA2 = 1 << 16,
    QWEN35 = 1 << 17,
    QWEN35_WHOLE = 1 << 18,
    NEMOTRON = 1 << 19,
    GRANITE = 1 << 20,
    FALCON = 1 << 21,

    QWEN = QWEN2 | QWEN3,
    LLAMAS = LLAMA | MISTRAL | QWEN | PHI3,
    GEMMAS = GEMMA | GEMMA2 | GEMMA3,
    HYBRIDS = NEMOTRON | GRANITE | FALCON,
    MAMBAS = MAMBA | MAMBA2,
    STATES = QWEN35 | HYBRIDS | MAMBAS,
    ROTARY = LLAMAS | GEMMAS | QWEN35 | GRANITE | FALCON,
    DECODERS = ROTARY | GPT2 | MAMBAS | NEMOTRON,
    IMAGES = VIT | SIGLIP,
    WHOLE = GEMMA3_WHOLE | MISTRAL3_WHOLE | SIGLIP_WHOLE | QWEN35_WHOLE,
    WRITING = GEMMA3_WHOLE | MISTRAL3_WHOLE | QWEN35_WHOLE,
    ONE = DECODERS | BERT | IMAGES,
};

static const struct key keys[] = {
    {"model_type", KEY_ALL, KEY_READ, NULL, "the family"},
    {"num_hidden_layers hidden_size", ONE & ~GPT2, KEY_READ, NULL, "sizes"},
    {"num_attention_heads intermediate_size", ONE & ~GPT2 & ~MAMBAS & ~GRANITE, KEY_READ, NULL, "sizes"},
    {"num_attention_heads shared_intermediate_size", GRANITE, KEY_READ, NULL, "sizes"},
    {"intermediate_size", GRANITE, KEY_IGNORED, NULL, "of experts; there are none"},
    {"n_layer num_hidden_layers n_embd hidden_size n_head num_attention_heads n_inner intermediate_size",
     GPT2, KEY_READ, NULL, "sizes, by either name; n_inner is 4 n_embd where it is null"},
    {"vocab_size", ONE & ~IMAGES, KEY_READ, NULL, "rows of the table of tokens"},
    {"max_position_embeddings", ONE & ~IMAGES & ~MAMBAS, KEY_READ, NULL, "tokens of a text"},
    {"n_positions", GPT2, KEY_READ, NULL, "tokens of a text"},
    {"n_ctx", GPT2, KEY_IGNORED, NULL, "an older name of n_positions, which transformers does not read"},
    {"num_key_value_heads", ROTARY | NEMOTRON, KEY_READ, NULL, "heads of keys and values"},
    {"num_key_value_heads", BERT | GPT2 | IMAGES, KEY_IGNORED, NULL,
     "these have as many as of queries, and transformers does not read it"},
    {"head_dim", ROTARY | NEMOTRON, KEY_READ, NULL,
     "columns of a head; hidden_size / heads where it is null"},
    {"rms_norm_eps", ROTARY, KEY_READ, NULL, "added to the mean square"},
    {"layer_norm_eps", BERT | IMAGES | GPT2, KEY_READ, NULL, "added to the variance; of gpt2 by GGUF"},
    {"layer_norm_epsilon", GPT2 | MAMBAS | NEMOTRON, KEY_READ, NULL,
     "added to the variance, or to the mean square"},
    {"hidden_act", ONE & ~GPT2 & ~GEMMA & ~NEMOTRON, KEY_READ, NULL, "the activation"},
    {"mlp_hidden_act", NEMOTRON, KEY_READ, NULL, "the activation"},
    {"hidden_activation", GEMMA2 | GEMMA3, KEY_READ, NULL, "the activation, before hidden_act"},
    {"hidden_act hidden_activation", GEMMA, KEY_IGNORED, "[\"gelu\", \"gelu_pytorch_tanh\"]",
     "both mean gelu's tanh form, as the authors have declared"},
    {"gguf:activation", (DECODERS | BERT) & ~STATES, KEY_READ, NULL,
     "by GGUF: the activation of the architecture"},
    {"activation_function", GPT2, KEY_READ, NULL, "the activation"},
    {"tie_word_embeddings", DECODERS | WRITING, KEY_READ, NULL,
     "whether the head is the table of tokens; where it is absent, if there is no other. Of a larger model, "
     "where"
     " both objects say it, the same"},
    {"tie_word_embeddings", BERT | IMAGES | SIGLIP_WHOLE, KEY_IGNORED, NULL,
     "vectors do not go through a head of tokens"},
    {"eos_token_id", ONE | WHOLE, KEY_READ, NULL, "tokens that end a text"},
    {"bos_token_id pad_token_id sep_token_id cls_token_id decoder_start_token_id", KEY_ALL, KEY_IGNORED, NULL,
     "no graph has them; the tokenizer names its own"},

    /* ---- Attention ---- */
    {"attention_bias", LLAMA | QWEN3 | QWEN35 | GEMMAS | GRANITE | FALCON, KEY_READ, NULL,
     "biases of all four products of attention"},
    {"attention_bias", MISTRAL | PHI3 | QWEN2 | NEMOTRON, KEY_IGNORED, "[false]",
     "transformers does not read it"},
    {"gguf:qkv_bias gguf:out_bias", LLAMA | QWEN | GEMMAS, KEY_READ, NULL, "by GGUF: biases that are there"},
    {"mlp_bias", LLAMA | NEMOTRON | FALCON, KEY_READ, NULL, "biases of the three products of an MLP"},
    {"mlp_bias", MISTRAL | QWEN | QWEN35 | PHI3 | GEMMAS | GRANITE, KEY_IGNORED, "[false]",
     "transformers does not read it"},
    {"lm_head_bias", PHI3, KEY_IGNORED, "[false]", "no graph has a bias there"},
    {"full_attn_mod interpolate_factor", PHI3, KEY_IGNORED, "[1]", "Phi-4-mini has them, nothing reads them"},
    {"sliding_window", MISTRAL | QWEN | PHI3 | GEMMA2 | GEMMA3, KEY_READ, NULL,
     "keys that a layer which slides sees; 4096 where mistral, gemma2 and gemma3 say nothing"},
    {"sliding_window", LLAMA | GEMMA | NEMOTRON, KEY_IGNORED, "[0]", "transformers reads none"},
    {"sliding_window_size", GEMMA2, KEY_IGNORED, "[4096]", "an older name of sliding_window, of this value"},
    {"layer_types", QWEN | GEMMA2 | GEMMA3 | PHI3 | MISTRAL, KEY_READ, NULL, "which layers slide"},
    {"use_sliding_window max_window_layers", QWEN, KEY_READ, NULL, "whether layers slide, and from which on"},
    {"use_mrope", QWEN, KEY_IGNORED, "[false]", "RoPE of three coordinates, of images"},
    {"sliding_window_pattern _sliding_window_pattern", GEMMA2 | GEMMA3, KEY_READ, NULL,
     "each so-manieth layer does not slide; where there are layer_types, these count"},
    {"query_pre_attn_scalar", GEMMA2 | GEMMA3, KEY_READ, NULL,
     "scores are divided by its root; 256 if absent"},
    {"attn_logit_softcapping final_logit_softcapping", GEMMA2 | GEMMA3, KEY_READ, NULL,
     "soft caps of scores and logits; 50 and 30 where gemma2 says nothing"},
    {"use_bidirectional_attention", GEMMA | GEMMA2 | GEMMA3, KEY_READ, NULL,
     "an encoder; of gemma3_text alone"},
    {"use_bidirectional_attention", LLAMAS, KEY_READ, NULL, "refused where it is true"},
    {"gguf:unit_gains", GEMMAS, KEY_READ, NULL, "by GGUF: gains have their 1"},
    {"scale_attn_weights scale_attn_by_inverse_layer_idx", GPT2, KEY_READ, NULL,
     "true and false; others are refused"},
    {"reorder_and_upcast_attn", GPT2, KEY_IGNORED, NULL, "the order of roundings, in real numbers the same"},
    {"gguf:turned", GPT2, KEY_READ, NULL, "by GGUF: matrices are [out, in]"},

    /* ---- RoPE ---- */
    {"rope_theta", ROTARY, KEY_READ, NULL, "the base"},
    {"rope_local_base_freq", GEMMA3, KEY_READ, NULL, "the base of layers that slide"},
    {"rope_scaling rope_parameters", ROTARY, KEY_READ, NULL, "an object with a table of its own"},
    {"partial_rotary_factor", LLAMAS | QWEN35, KEY_READ, NULL, "the share of a head that is rotated"},
    {"original_max_position_embeddings", PHI3, KEY_READ, NULL, "of LongRoPE"},
    {"original_max_position_embeddings", PHI3, KEY_IGNORED, NULL, "without LongRoPE nothing reads it"},
    {"rope_interleaved", LLAMAS, KEY_IGNORED, "[false]", "SmolLM's, which transformers does not read"},
    {"gguf:rope_interleaved gguf:rotary gguf:rope_scale", ROTARY & ~STATES, KEY_READ, NULL,
     "by GGUF: the order of columns, how many rotate, a factor of cosine and sine"},

    /* ---- Layers that carry a state ---- */
    {"state_size conv_kernel expand use_bias use_conv_bias", MAMBAS, KEY_READ, NULL,
     "sizes and biases of the layers; 16 states of mamba, 128 of mamba2, where it is absent"},
    {"intermediate_size", MAMBAS, KEY_READ, NULL, "must be expand times hidden_size"},
    {"time_step_rank", MAMBA, KEY_READ, NULL,
     "columns of what steps are made of; a sixteenth where it is auto"},
    {"num_heads head_dim n_groups", MAMBA2, KEY_READ, NULL, "heads of the scan, and groups of them"},
    {"time_step_limit", MAMBA2 | HYBRIDS, KEY_READ, NULL, "refused unless it is 0 to infinity"},
    {"residual_in_fp32", MAMBAS | NEMOTRON, KEY_READ, NULL, "whether what layers add up is fp32"},
    {"time_step_rank", MAMBA2, KEY_IGNORED, NULL, "steps are made without a product of their own"},
    {"chunk_size use_mambapy use_associative_scan fused_add_norm use_mem_eff_path", MAMBAS, KEY_IGNORED, NULL,
     "how scans are computed, in real numbers the same"},
    {"time_step_min time_step_max time_step_floor time_step_scale time_step_init_scheme"
     " rescale_prenorm_residual",
     MAMBAS, KEY_IGNORED, NULL, "of weights before their training"},
    {"d_model d_inner n_layer ssm_cfg pad_vocab_size_multiple", MAMBAS, KEY_IGNORED, NULL,
     "the authors' own words, which transformers does not read"},
    {"rms_norm", MAMBAS, KEY_IGNORED, "[true]", "another norm has other states"},
    {"norm_before_gate", MAMBA2, KEY_IGNORED, NULL, "transformers does not read it: the gate comes first"},

    {"mamba_num_heads mamba_head_dim ssm_state_size n_groups conv_kernel use_bias use_conv_bias", NEMOTRON,
     KEY_READ, NULL, "sizes and biases of the layers of Mamba-2"},
    {"mamba_n_heads mamba_d_head mamba_d_state mamba_n_groups mamba_d_conv mamba_conv_bias mamba_proj_bias"
     " mamba_expand",
     GRANITE | FALCON, KEY_READ, NULL, "likewise"},
    {"mamba_d_ssm mamba_rms_norm mamba_norm_before_gate projectors_bias", FALCON, KEY_READ, NULL,
     "columns of the scan; whether a norm is behind it, and in front of the gate; biases at its end"},
    {"mamba_expand", FALCON, KEY_IGNORED, NULL, "where there is mamba_d_ssm nothing reads it"},
    {"layers_block_type hybrid_override_pattern", NEMOTRON, KEY_READ, NULL,
     "what each layer does: by name, or by letter"},
    {"layer_types", GRANITE, KEY_READ, NULL, "which layers attend; where it is absent, none"},
    {"position_embedding_type", GRANITE, KEY_READ, NULL, "whether attention has RoPE"},
    {"rope_theta rope_scaling rope_parameters", GRANITE | NEMOTRON, KEY_IGNORED, NULL,
     "without RoPE nothing reads it"},
    {"embedding_multiplier", GRANITE | FALCON, KEY_READ, NULL, "a factor of what the table of tokens gives"},
    {"attention_multiplier residual_multiplier logits_scaling", GRANITE, KEY_READ, NULL,
     "factors of scores and of what layers add; logits are divided by the last"},
    {"lm_head_multiplier key_multiplier attention_in_multiplier attention_out_multiplier ssm_in_multiplier"
     " ssm_out_multiplier mlp_multipliers ssm_multipliers",
     FALCON, KEY_READ, NULL, "factors of logits, keys, what goes into layers and comes out"},
    {"mamba_hidden_act", NEMOTRON, KEY_IGNORED, "[\"silu\"]", "the activation of Mamba-2's layers"},
    {"mamba_proj_bias", NEMOTRON, KEY_IGNORED, "[false]", "transformers does not read it"},
    {"rms_norm_eps expand attention_head_dim time_step_rank num_query_groups", NEMOTRON, KEY_IGNORED, NULL,
     "transformers does not read it"},
    {"init_method", GRANITE, KEY_IGNORED, NULL, "of weights before their training"},
    {"normalization_function", GRANITE, KEY_IGNORED, "[\"rmsnorm\"]", "another norm has other states"},
    {"attn_layer_indices", FALCON, KEY_IGNORED, "[null]", "all layers attend"},
    {"mamba_use_mlp", FALCON, KEY_IGNORED, "[true]", "all layers have an MLP"},
    {"mlp_expansion_factor", FALCON, KEY_IGNORED, NULL, "transformers reads intermediate_size"},
    {"time_step_min", HYBRIDS, KEY_IGNORED, NULL,
     "of weights before their training; transformers raises Nemotron's steps to it, in prompts alone"},
    {"time_step_max time_step_floor rescale_prenorm_residual", HYBRIDS, KEY_IGNORED, NULL,
     "of weights before their training"},
    {"chunk_size mamba_chunk_size use_mamba_kernels mamba_ssm_cache_dtype num_logits_to_keep", HYBRIDS,
     KEY_IGNORED, NULL, "how it is computed, in real numbers the same"},
    {"num_local_experts", GRANITE, KEY_IGNORED, "[0]", "experts are not supported"},
    {"num_experts_per_tok output_router_logits router_aux_loss_coef", GRANITE | NEMOTRON, KEY_IGNORED, NULL,
     "of experts; there are none"},
    {"n_routed_experts n_shared_experts moe_* n_group topk_group norm_topk_prob routed_scaling_factor",
     NEMOTRON, KEY_IGNORED, NULL, "of layers with experts, which are refused"},
    {"num_nextn_predict_layers mtp_*", NEMOTRON, KEY_IGNORED, NULL,
     "layers that draft further tokens: the others do not read them"},
    {"linear_num_value_heads linear_num_key_heads linear_value_head_dim linear_key_head_dim"
     " linear_conv_kernel_dim",
     QWEN35, KEY_READ, NULL, "sizes of layers that carry a state"},
    {"layer_types full_attention_interval", QWEN35, KEY_READ, NULL,
     "which layers attend: by name, else each so-manieth"},
    {"attn_output_gate", QWEN35, KEY_IGNORED, "[true]", "the gate behind attention is always there"},
    {"mamba_ssm_dtype", QWEN35, KEY_IGNORED, NULL, "states are fp32"},
    {"mtp_*", QWEN35, KEY_IGNORED, NULL, "a layer that drafts further tokens: the others do not read it"},
    {"mlp_only_layers", QWEN35, KEY_IGNORED, "[[]]", "layers without experts, where others have some"},

    /* ---- BERT ---- */
    {"type_vocab_size", BERT, KEY_READ, NULL, "rows of the table of types"},
    {"gguf:pooling_type", BERT | GEMMA3, KEY_IGNORED, NULL,
     "by GGUF: how states become a vector, which is done behind the graph of the family"},
    {"position_embedding_type", BERT, KEY_IGNORED, "[\"absolute\"]", "relative positions have other scores"},
    {"position_embedding_type", SIGLIP | GPT2, KEY_IGNORED, "[\"absolute\"]", "these have no other"},
    {"is_decoder add_cross_attention", ONE | WHOLE, KEY_IGNORED, "[false]",
     "a decoder of BERT's is causal, and one that crosses reads another model"},
    {"pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type"
     " directionality",
     BERT, KEY_IGNORED, NULL,
     "of the pooler, which vectors do not go through; transformers does not read it"},

    /* ---- Images ---- */
    {"image_size patch_size num_channels", IMAGES, KEY_READ, NULL, "pixels of a side, of a patch's; colours"},
    {"qkv_bias", VIT, KEY_READ, NULL, "biases of queries, keys and values"},
    {"vision_use_head", SIGLIP, KEY_READ, NULL, "refused where it is false"},
    {"encoder_stride pooler_act pooler_output_size", VIT, KEY_IGNORED, NULL,
     "of the pooler and of masked images, which come behind the vector"},
    {"projection_size", SIGLIP, KEY_IGNORED, NULL, "of the text tower's projection"},

    /* ---- Larger models, of which one tower is read ---- */
    {"text_config", WRITING, KEY_READ, NULL, "the decoder"},
    {"vision_config", WRITING, KEY_IGNORED, NULL, "a text has no images"},
    {"vision_config", SIGLIP_WHOLE, KEY_READ, NULL, "the encoder of images"},
    {"text_config logit_scale_init_value", SIGLIP_WHOLE, KEY_IGNORED, NULL,
     "the other tower's, and its loss's"},
    {"boi_token_index eoi_token_index image_token_index boi_token_id eoi_token_id image_token_id"
     " mm_tokens_per_image multimodal_projector_bias projector_hidden_act spatial_merge_size"
     " vision_feature_layer vision_feature_select_strategy image_seq_length video_token_id"
     " vision_start_token_id vision_end_token_id",
     WRITING, KEY_IGNORED, NULL, "how images come into a text; a text has none"},

    /* ---- What every model's file may have ---- */
    {"chat_template", KEY_ALL, KEY_IGNORED, NULL, "of chats; no graph has it"},
    {"quantization_config compression_config", KEY_ALL, KEY_READ, NULL,
     "how weights are quantised, an object with a table of its own"},
    {"num_experts num_local_experts", KEY_ALL, KEY_REFUSED, NULL, "experts are not supported"},
    {"num_experts_per_tok n_routed_experts", KEY_ALL & ~HYBRIDS, KEY_REFUSED, NULL,
     "experts are not supported"},
    {"architectures", KEY_ALL, KEY_IGNORED, NULL,
     "the class with its head: a head that is not read has tensors, which are refused"},
    {"torch_dtype dtype use_bfloat16", KEY_ALL, KEY_IGNORED, NULL, "tensors have types of their own"},
    {"transformers_version transformers.js_config _name_or_path name_or_path _commit_hash model_name"
     " unsloth_version unsloth_fixed is_llama_config _from_model_config tokenizer_class",
     KEY_ALL, KEY_IGNORED, NULL, "where the file comes from"},
    {"auto_map", KEY_ALL, KEY_IGNORED, NULL,
     "code of the authors': transformers' own is what is computed here"},
    {"use_cache cache_implementation pretraining_tp _attn_implementation attn_implementation"
     " _attn_implementation_autoset _attn_implementation_internal use_flash_attn use_flash_attention"
     " chunk_size_feed_forward gradient_checkpointing torchscript use_return_dict",
     KEY_ALL, KEY_IGNORED, NULL, "how it is computed, in real numbers the same"},
    {"initializer_range initializer_factor", KEY_ALL, KEY_IGNORED, NULL, "of weights before their training"},
    {"attention_dropout attention_probs_dropout_prob hidden_dropout_prob hidden_dropout attn_pdrop embd_pdrop"
     " resid_pdrop resid_dropout dropout classifier_dropout",
     KEY_ALL, KEY_IGNORED, NULL, "of training alone"},
    {"id2label label2id num_labels _num_labels problem_type finetuning_task task_specific_params summary_*"
     " label_smoothing predict_special_tokens n_special output_past",
     KEY_ALL, KEY_IGNORED, NULL, "of heads that classify, which come behind the states"},
    {"return_dict output_hidden_states output_attentions return_dict_in_generate output_scores", KEY_ALL,
     KEY_IGNORED, NULL, "what else a caller wants to see"},
    {"max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature"
     " top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size"
     " encoder_no_repeat_ngram_size num_return_sequences remove_invalid_values",
     KEY_ALL, KEY_IGNORED, NULL,
     "how tokens are chosen from logits: the command line or the request says it"},
    {"bad_words_ids forced_bos_token_id forced_eos_token_id exponential_decay_length_penalty suppress_tokens"
     " begin_suppress_tokens cross_attention_hidden_size",
     KEY_ALL, KEY_IGNORED, "[null]", "tokens that may not or must be chosen: not supported"},
    {"prefix", KEY_ALL, KEY_IGNORED, "[\"\"]", "a text in front of all others: not supported"},
    {"pruned_heads", KEY_ALL, KEY_IGNORED, "[{}]", "heads that are not there"},
    {"is_encoder_decoder tie_encoder_decoder tf_legacy_loss", KEY_ALL, KEY_IGNORED, "[false]",
     "no family here has both halves"},
};
const struct key_table config_keys = {"config.json", families, keys, sizeof keys / sizeof *keys};

/* ---- RoPE ---- */

static const char *const ropes[] = {"default", "linear", "llama3", "yarn", "longrope", "gguf:factors", NULL};
enum { DEFAULT = 1, LINEAR = 2, LLAMA3 = 4, YARN = 8, LONGROPE = 16, FACTORS = 32 };

static const struct key rope[] = {
    {"rope_type type", KEY_ALL, KEY_READ, NULL, "which; no others are supported"},
    {"rope_theta", KEY_ALL, KEY_READ, NULL, "the base, before the one outside"},
    {"partial_rotary_factor", KEY_ALL, KEY_READ, NULL, "the share of a head that is rotated"},
    {"mrope_section mrope_interleaved", KEY_ALL, KEY_IGNORED, NULL,
     "which frequencies turn by which of three coordinates: those of a text are the same"},
    {"factor", LINEAR | LLAMA3 | YARN | LONGROPE, KEY_READ, NULL, "frequencies are divided by it"},
    {"factor", DEFAULT, KEY_IGNORED, "[1]", "nothing is divided"},
    {"low_freq_factor high_freq_factor", LLAMA3, KEY_READ, NULL, "turns in the original context"},
    {"original_max_position_embeddings", LLAMA3 | YARN | LONGROPE, KEY_READ, NULL, "the original context"},
    {"original_max_position_embeddings", DEFAULT | LINEAR, KEY_IGNORED, NULL,
     "no frequency depends on it, and transformers does not read it"},
    {"beta_fast beta_slow", YARN, KEY_READ, NULL, "turns between which frequencies are mixed"},
    {"attention_factor", YARN | LONGROPE, KEY_READ, NULL, "a factor of cosine and sine"},
    {"attention_factor", DEFAULT | LINEAR | LLAMA3, KEY_IGNORED, "[1]", "transformers does not read it"},
    {"truncate", YARN, KEY_IGNORED, "[true]", "ends of the ramp that are not whole are not supported"},
    {"mscale mscale_all_dim", YARN, KEY_REFUSED, NULL, "yarn with mscale is not supported"},
    {"short_factor long_factor", LONGROPE, KEY_READ, NULL, "frequencies are divided by them"},
    {"finetuned", YARN | LINEAR, KEY_IGNORED, NULL, "how the weights were made"},
    {"factors", FACTORS, KEY_READ, NULL, "by GGUF: frequencies are divided by them"},
};
const struct key_table rope_keys = {"rope_scaling and rope_parameters of config.json", ropes, rope,
                                    sizeof rope / sizeof *rope};

/* ---- generation_config.json ---- */

static const char *const all[] = {"all", NULL};

static const struct key generation[] = {
    {"eos_token_id", KEY_ALL, KEY_READ, NULL, "tokens that end a text, beside those of config.json"},
    {"do_sample temperature top_k top_p min_p typical_p epsilon_cutoff eta_cutoff top_h repetition_penalty"
     " length_penalty num_beams num_beam_groups diversity_penalty num_return_sequences penalty_alpha"
     " early_stopping encoder_repetition_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size",
     KEY_ALL, KEY_IGNORED, NULL,
     "how tokens are chosen from logits, which stay the same: the command line or the request says it"},
    {"max_length max_new_tokens min_length min_new_tokens max_time max_matching_ngram_size", KEY_ALL,
     KEY_IGNORED, NULL, "how long a text becomes: the command line or the request says it"},
    {"bos_token_id pad_token_id decoder_start_token_id", KEY_ALL, KEY_IGNORED, NULL,
     "what the tokenizer puts around a text, it says itself; there is no padding"},
    {"transformers_version _from_model_config _commit_hash trust_remote_code", KEY_ALL, KEY_IGNORED, NULL,
     "where the file comes from"},
    {"use_cache cache_implementation cache_config return_legacy_cache compile_config disable_compile"
     " prompt_lookup_num_tokens num_assistant_tokens num_assistant_tokens_schedule"
     " assistant_confidence_threshold assistant_early_exit assistant_lookbehind target_lookbehind "
     "is_assistant"
     " prefill_chunk_size low_memory renormalize_logits remove_invalid_values speculative_*",
     KEY_ALL, KEY_IGNORED, NULL, "how it is computed, with the same logits"},
    {"output_attentions output_hidden_states output_scores output_logits return_dict_in_generate", KEY_ALL,
     KEY_IGNORED, NULL, "what else a caller wants to see"},
    {"suppress_tokens begin_suppress_tokens bad_words_ids force_words_ids forced_bos_token_id"
     " forced_eos_token_id forced_decoder_ids sequence_bias constraints exponential_decay_length_penalty"
     " stop_strings dola_layers watermarking_config",
     KEY_ALL, KEY_IGNORED, "[[]]", "tokens that may not or must be chosen: not supported"},
    {"guidance_scale", KEY_ALL, KEY_IGNORED, "[1]", "a second run without the prompt: not supported"},
    {"token_healing", KEY_ALL, KEY_IGNORED, "[false]", "the prompt's last token made anew: not supported"},
};
const struct key_table generation_keys = {"generation_config.json", all, generation,
                                          sizeof generation / sizeof *generation};

/* ---- sentence-transformers ---- */

static const char *const files[] = {
    "modules", "pooling", "dense", "normalize", "sentence_bert_config", "config_sentence_transformers", NULL};
enum { MODULES = 1, POOLING = 2, DENSE = 4, NORMALIZE = 8, SENTENCES = 16, PROMPTS = 32 };

static const struct key modules[] = {
    {"type path", MODULES, KEY_READ, NULL, "which module, and its folder"},
    {"idx name", MODULES, KEY_IGNORED, NULL, "modules follow in their order"},
    {"kwargs", MODULES, KEY_IGNORED, "[[]]", "arguments of encode() for a module: not supported"},
    {"pooling_mode pooling_mode_*", POOLING, KEY_READ, NULL, "which pooling"},
    {"word_embedding_dimension embedding_dimension", POOLING, KEY_IGNORED, NULL,
     "columns of the states, which the model has"},
    {"include_prompt", POOLING, KEY_IGNORED, NULL, "there is no prompt that could be left out"},
    {"in_features out_features bias activation_function module_input_name", DENSE, KEY_READ, NULL,
     "the layer"},
    {"module_output_name", DENSE, KEY_IGNORED, "[\"sentence_embedding\"]", "what it is called behind"},
    {"module_input_name module_output_name", NORMALIZE, KEY_IGNORED, "[\"sentence_embedding\"]",
     "what is normalised"},
    {"max_seq_length", SENTENCES, KEY_READ, NULL, "tokens of a text that count"},
    {"do_lower_case", SENTENCES, KEY_READ, NULL, "texts are put in lower case first"},
    {"transformer_task", SENTENCES, KEY_IGNORED, "[\"feature-extraction\"]", "states are what is wanted"},
    {"modality_config", SENTENCES, KEY_IGNORED, NULL, "which of the model's outputs are states of a text"},
    {"module_output_name", SENTENCES, KEY_IGNORED, "[\"token_embeddings\"]", "what states are called"},
    {"model_args config_args tokenizer_args processing_kwargs", SENTENCES, KEY_IGNORED, "[{}]",
     "other arguments for transformers: not supported"},
    {"default_prompt_name", PROMPTS, KEY_IGNORED, "[null]",
     "a text in front of all others: not supported, it is the caller's to write"},
    {"prompts", PROMPTS, KEY_IGNORED, NULL, "texts that a caller may write in front of his own"},
    {"__version__ similarity_fn_name model_type", PROMPTS, KEY_IGNORED, NULL,
     "where the file comes from; how vectors are compared"},
    {"truncate_dim", PROMPTS, KEY_IGNORED, "[null]", "vectors that are cut: not supported"},
};
const struct key_table modules_keys = {"files of sentence-transformers", files, modules,
                                       sizeof modules / sizeof *modules};

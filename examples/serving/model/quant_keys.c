/*
 * quant_keys.c -- the members of quantization_config in config.json, by quant_method, and of the objects in
 * config_groups.
 */
#include "config_keys.h"

static const char *const methods[] = {"compressed-tensors", "fp8", "fbgemm_fp8", "gptq", "awq",
                                      "modelopt",           NULL};
enum { COMPRESSED = 1, FP8 = 2, FBGEMM = 4, GPTQ = 8, AWQ = 16, MODELOPT = 32 };

static const struct key keys[] = {
    {"quant_method", KEY_ALL, KEY_READ, NULL, "which; no others are supported"},
    {"config_groups", COMPRESSED, KEY_READ, NULL, "an object of objects with a table of their own"},
    {"weight_block_size", FP8, KEY_READ, NULL,
     "rows and columns that share a scale; null: a tensor, or a row"},
    {"bits", GPTQ, KEY_READ, NULL, "of a weight: 4 or 8"},
    {"bits", AWQ, KEY_READ, NULL, "of a weight: 4"},
    {"group_size", GPTQ | AWQ, KEY_READ, NULL, "columns that share a scale; -1: all of them"},
    {"checkpoint_format", GPTQ, KEY_READ, NULL,
     "gptq (also if absent): zero points are stored less 1; gptq_v2: as they are"},
    {"quant_algo", MODELOPT, KEY_READ, NULL, "FP8 or NVFP4"},
    {"sparsity_config", COMPRESSED, KEY_READ, NULL, "refused but where its format is dense"},

    {"ignore ignored_layers modules_to_not_convert exclude_modules lm_head", KEY_ALL, KEY_IGNORED, NULL,
     "which products are not quantised: their tensors say it"},
    {"format", COMPRESSED, KEY_IGNORED,
     "[\"pack-quantized\", \"float-quantized\", \"int-quantized\", \"naive-quantized\","
     " \"nvfp4-pack-quantized\", \"mxfp4-pack-quantized\", \"mixed-precision\"]",
     "how tensors lie, which they say themselves"},
    {"quantization_status", COMPRESSED, KEY_IGNORED, "[\"compressed\"]",
     "weights that are not stored as codes"},
    {"transform_config", COMPRESSED, KEY_IGNORED, "[{}]", "rotations of activations: not supported"},
    {"kv_cache_scheme kv_cache_quant_algo", KEY_ALL, KEY_IGNORED, NULL,
     "how caches may be quantised: here they have the activations' type"},
    {"activation_scheme activation_scale_ub scale_fmt", FP8 | FBGEMM, KEY_IGNORED, NULL,
     "how activations may be quantised: here they are not"},
    {"fmt", FP8, KEY_IGNORED, "[\"e4m3\"]", "the type that tensors have"},
    {"dequantize", FP8, KEY_IGNORED, NULL, "how it is computed"},
    {"config_groups group_size", MODELOPT, KEY_IGNORED, NULL, "what quant_algo says"},
    {"desc_act static_groups sym", GPTQ, KEY_IGNORED, NULL, "what g_idx and qzeros say"},
    {"is_marlin_format", GPTQ, KEY_IGNORED, "[false]", "another order of codes"},
    {"pack_dtype", GPTQ, KEY_IGNORED, "[\"int32\"]", "words of another size"},
    {"dynamic", GPTQ, KEY_IGNORED, "[{}]", "products with bits of their own: not supported"},
    {"damp_percent damp_auto_increment true_sequential dataset tokenizer batch_size pad_token_id"
     " cache_block_outputs model_seqlen model_name_or_path model_file_base_name block_name_to_quantize"
     " module_name_preceding_first_block modules_in_block_to_quantize quantizer meta act_group_aware mse",
     GPTQ, KEY_IGNORED, NULL, "how the weights were made"},
    {"use_cuda_fp16 use_exllama disable_exllama exllama_config max_input_length backend", GPTQ | AWQ,
     KEY_IGNORED, NULL, "which kernels others use"},
    {"zero_point", AWQ, KEY_IGNORED, NULL, "what qzeros says"},
    {"version", AWQ, KEY_IGNORED, "[\"gemm\", \"GEMM\"]", "the order of codes"},
    {"do_fuse fuse_max_seq_len modules_to_fuse", AWQ, KEY_IGNORED, NULL, "which kernels others use"},
    {"version global_compression_ratio producer", COMPRESSED | MODELOPT, KEY_IGNORED, NULL,
     "where the file comes from"},
};
const struct key_table quant_keys = {"quantization_config of config.json", methods, keys,
                                     sizeof keys / sizeof *keys};

static const char *const all[] = {"all", NULL};

static const struct key group[] = {
    {"weights", KEY_ALL, KEY_READ, NULL, "an object with a table of its own; null: they are not quantised"},
    {"targets", KEY_ALL, KEY_IGNORED, NULL, "which products are quantised: their tensors say it"},
    {"input_activations output_activations", KEY_ALL, KEY_IGNORED, NULL,
     "how activations may be quantised: here they are not"},
    {"format", KEY_ALL, KEY_IGNORED, NULL, "how tensors lie, which they say themselves"},
};
const struct key_table quant_group_keys = {"an object of config_groups", all, group,
                                           sizeof group / sizeof *group};

static const struct key weights[] = {
    {"num_bits type", KEY_ALL, KEY_READ, NULL, "int of 4 or 8, float of 4 or 8"},
    {"strategy", KEY_ALL, KEY_READ, NULL, "tensor, channel, group, tensor_group or block"},
    {"group_size", KEY_ALL, KEY_READ, NULL, "columns that share a scale"},
    {"block_structure", KEY_ALL, KEY_READ, NULL, "rows and columns that share one"},
    {"symmetric", KEY_ALL, KEY_IGNORED, NULL, "whether there are zero points: their tensors say it"},
    {"actorder", KEY_ALL, KEY_IGNORED, NULL, "whether columns of a group lie apart: weight_g_idx says it"},
    {"dynamic", KEY_ALL, KEY_IGNORED, "[false]", "of activations alone"},
    {"scale_dtype zp_dtype", KEY_ALL, KEY_IGNORED, NULL, "types that tensors have"},
    {"observer observer_kwargs", KEY_ALL, KEY_IGNORED, NULL, "how the weights were made"},
};
const struct key_table quant_weights_keys = {"weights of an object of config_groups", all, weights,
                                             sizeof weights / sizeof *weights};

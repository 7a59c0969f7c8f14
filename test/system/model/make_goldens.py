#!/usr/bin/env python3
"""make_goldens.py -- tiny checkpoints of each family with random weights, and what transformers makes of them.

    python3 test/system/model/make_goldens.py [FOLDER]          writes test/system/model/tiny, or FOLDER

Made with torch 2.15.0, transformers 5.23.0, numpy 2.4.6, gguf 0.19.0. The weights are rounded to
the dtype of the file; the model then runs in fp64 (where transformers does not insist on fp32, as for angles).
golden.safetensors has the tokens and their logits, or of an encoder the mean of each sentence's states.
"""
import json
import os
import shutil
import sys

import gguf
import torch
import transformers as tf
from safetensors.torch import save_file

SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=48, vocab_size=80, max_position_embeddings=1024, pad_token_id=0,
             bos_token_id=1, eos_token_id=2, attn_implementation="eager")
TOKENS = 40


def rope(theta=10000.0, **more):
    return dict(dict(rope_theta=theta, rope_type="default"), **more)


LLAMA3 = rope(500000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
YARN = rope(1e6, rope_type="yarn", factor=4.0, original_max_position_embeddings=256)
LONGROPE = rope(rope_type="longrope", partial_rotary_factor=0.5, original_max_position_embeddings=32,
                short_factor=[1.0, 1.5], long_factor=[2.5, 7.0])
SHORT = 20  # tokens of a text within the original context

# name: configuration, class, dtype, shards
MODELS = {
    "llama": (tf.LlamaConfig(**SIZES, rms_norm_eps=1e-5, tie_word_embeddings=False), tf.LlamaForCausalLM,
              torch.float32, 1),
    "llama3": (tf.LlamaConfig(**SIZES, head_dim=16, rope_parameters=LLAMA3, tie_word_embeddings=True,
                              attention_bias=True, mlp_bias=True), tf.LlamaForCausalLM, torch.bfloat16, 3),
    "mistral": (tf.MistralConfig(**SIZES, sliding_window=7, head_dim=8), tf.MistralForCausalLM, torch.bfloat16, 1),
    "qwen2": (tf.Qwen2Config(**SIZES, rope_parameters=rope(1e6), use_sliding_window=True, sliding_window=9,
                             max_window_layers=1), tf.Qwen2ForCausalLM, torch.bfloat16, 1),
    "qwen3": (tf.Qwen3Config(**SIZES, rope_parameters=YARN, head_dim=16, tie_word_embeddings=True),
              tf.Qwen3ForCausalLM, torch.bfloat16, 1),
    "gemma": (tf.GemmaConfig(**SIZES, head_dim=16, tie_word_embeddings=True), tf.GemmaForCausalLM,
              torch.bfloat16, 1),
    "gemma2": (tf.Gemma2Config(**SIZES, head_dim=16, query_pre_attn_scalar=16, sliding_window=6,
                               attn_logit_softcapping=3.0, final_logit_softcapping=5.0),
               tf.Gemma2ForCausalLM, torch.bfloat16, 1),
    "gemma3": (tf.Gemma3TextConfig(**SIZES, head_dim=16, query_pre_attn_scalar=24, sliding_window=5,
                                   layer_types=["sliding_attention", "full_attention"],
                                   rope_parameters={"sliding_attention": rope(10000.0),
                                                    "full_attention": rope(1e6, rope_type="linear", factor=8.0)}),
               tf.Gemma3ForCausalLM, torch.bfloat16, 1),
    "phi3": (tf.Phi3Config(**SIZES, rope_parameters=LONGROPE, original_max_position_embeddings=32,
                           sliding_window=11, tie_word_embeddings=False), tf.Phi3ForCausalLM, torch.bfloat16, 1),
    "gpt2": (tf.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=80, n_positions=256, n_inner=48,
                           bos_token_id=1, eos_token_id=2, attn_implementation="eager"), tf.GPT2LMHeadModel,
             torch.float16, 1),
    "bert": (tf.BertConfig(**{**SIZES, "max_position_embeddings": 64}), tf.BertModel, torch.float32, 1),
}

GGUF = {"llama3": "llama", "gemma2": "gemma2"}  # the same models once more, as these architectures


def draw(model, dtype):
    """Values that make every part of the formula matter; transformers' own are so small that much of it is 0."""
    for name, p in model.named_parameters():
        wide = p.dim() > 1
        noise = torch.randn(p.shape) * (1.2 * p.shape[-1] ** -0.5 if wide else 0.3)
        if not wide and p.abs().sum() == p.numel():
            noise += 1  # gains
        p.data = noise.to(dtype).double()
    return model.double().eval()


def older(name, folder):
    """Three of them in the words of version 4."""
    path = os.path.join(folder, "config.json")
    with open(path) as f:
        c = json.load(f)
    if name == "llama3":
        scaling = c.pop("rope_parameters")
        c["rope_theta"] = scaling.pop("rope_theta")
        c["rope_scaling"] = scaling
    if name in ("gemma2", "qwen2"):
        c.pop("layer_types")
        c["rope_theta"] = c.pop("rope_parameters")["rope_theta"]
    c.pop("dtype", None)
    with open(path, "w") as f:
        json.dump(c, f, indent=1)
        f.write("\n")


def decoded(model):
    ids = torch.randint(0, 80, (1, TOKENS))
    short = model(ids[:, :SHORT]).logits[0].float().contiguous()  # first: transformers goes from short to long
    return {"ids": ids[0].int(), "logits": model(ids).logits[0].float().contiguous(), "short": short}


def encoded(model):
    counts = [1, 9, 30, 64]
    ids = [torch.randint(1, 80, (1, n)) for n in counts]
    means = [model(i).last_hidden_state[0].mean(0) for i in ids]
    return {"ids": torch.cat(ids, 1)[0].int(), "counts": torch.tensor(counts).int(),
            "vectors": torch.stack(means).float()}


def save(model, folder, dtype, shards):
    state = {k: v.to(dtype).contiguous() for k, v in model.state_dict().items()}
    if model.config.tie_word_embeddings or "lm_head.weight" not in state:
        state.pop("lm_head.weight", None)
    if shards == 1:
        return save_file(state, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    place = {}
    for i in range(shards):
        name = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = {k: state[k] for k in sorted(state)[i::shards]}
        save_file(part, os.path.join(folder, name), {"format": "pt"})
        place.update({k: name for k in part})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {}, "weight_map": place}, f, indent=1)
        f.write("\n")


def gguf_value(name, architecture, p, config):
    """What converters to GGUF do to values: LLaMA's q and k have pairs of columns beside each other."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
    if architecture == "llama" and heads:
        p = p.reshape(heads, 2, p.shape[0] // heads // 2, *p.shape[1:]).swapaxes(1, 2).reshape(p.shape)
    return p + 1 if architecture.startswith("gemma") and name.endswith("norm.weight") else p


def save_gguf(model, folder, architecture):
    c = model.config
    w = gguf.GGUFWriter(os.path.join(folder, "model.gguf"), architecture)
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_key_length(c.head_dim)
    w.add_value_length(c.head_dim)
    w.add_rope_dimension_count(c.head_dim)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_rope_freq_base(c.rope_parameters["rope_theta"])
    w.add_token_list([f"t{i}" for i in range(c.vocab_size)])
    w.add_eos_token_id(2)
    if architecture == "gemma2":
        w.add_sliding_window(c.sliding_window)
        w.add_attn_logit_softcapping(c.attn_logit_softcapping)
        w.add_final_logit_softcapping(c.final_logit_softcapping)
    else:
        r = c.rope_parameters
        waves = torch.pi * 2 * r["rope_theta"] ** (torch.arange(0, c.head_dim, 2) / c.head_dim)
        mix = (r["original_max_position_embeddings"] / waves - r["low_freq_factor"])
        mix = (mix / (r["high_freq_factor"] - r["low_freq_factor"])).clamp(0, 1)
        w.add_tensor("rope_freqs.weight", (1 / (mix + (1 - mix) / r["factor"])).float().numpy())
    names = gguf.get_tensor_name_map(next(
        a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == architecture), c.num_hidden_layers)
    for name, p in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        p = gguf_value(name, architecture, p, c)
        name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        kind = gguf.GGMLQuantizationType.F32 if p.dim() == 1 else gguf.GGMLQuantizationType.BF16
        w.add_tensor(name, gguf.quants.quantize(p.float().numpy(), kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "tiny")
    shutil.rmtree(root, ignore_errors=True)
    for number, (name, (config, kind, dtype, shards)) in enumerate(MODELS.items()):
        torch.manual_seed(number)
        folder = os.path.join(root, name)
        os.makedirs(folder)
        model = draw(kind(config), dtype)
        config.save_pretrained(folder)
        older(name, folder)
        save(model, folder, dtype, shards)
        if name in GGUF:
            save_gguf(model, folder, GGUF[name])
        with torch.no_grad():
            golden = encoded(model) if name == "bert" else decoded(model)
            if name != "phi3":
                golden.pop("short", None)
        save_file(golden, os.path.join(folder, "golden.safetensors"))


main()

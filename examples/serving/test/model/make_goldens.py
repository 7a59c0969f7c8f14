#!/usr/bin/env python3
"""make_goldens.py -- tiny checkpoints of each family with random weights, and what transformers makes of them.

    python3 test/model/make_goldens.py [FOLDER [NAME]...]    writes test/model/tiny, or FOLDER; all, or these

Made with torch 2.15.0, transformers 5.23.0 (layers that carry a state 5.24.0), numpy 2.4.6, gguf 0.19.0,
sentence-transformers 6.2.0. The weights are rounded to the dtype of the file; the model then runs in fp64
(where transformers does not insist on fp32, as for angles).
golden.safetensors has the tokens and their logits, or of an encoder the mean of each sentence's states, or the
pixels of images and their vectors; and how far torch is off in 16 bits.
"""
import copy
import json
import os
import shutil
import sys

import gguf
import torch
import transformers as tf
from safetensors.torch import save_file
from sentence_transformers.base.modules.dense import Dense
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=48, vocab_size=80, max_position_embeddings=1024, pad_token_id=0,
             bos_token_id=1, eos_token_id=2, attn_implementation="eager")
TOKENS = 40
TOWER = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
             attn_implementation="eager")
IMAGES = dict(**TOWER, patch_size=8)
EYE = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, image_size=32, patch_size=16)


def rope(theta=10000.0, **more):
    return dict(dict(rope_theta=theta, rope_type="default"), **more)


LLAMA3 = rope(500000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
YARN = rope(1e6, rope_type="yarn", factor=4.0, original_max_position_embeddings=256)
LONGROPE = rope(rope_type="longrope", partial_rotary_factor=0.5, original_max_position_embeddings=32,
                short_factor=[1.0, 1.5], long_factor=[2.5, 7.0])
SCANNED = dict(hidden_size=32, num_hidden_layers=2, vocab_size=80, pad_token_id=0, bos_token_id=1, eos_token_id=2)
DELTA = dict(**{**SIZES, "num_hidden_layers": 3}, head_dim=16, linear_key_head_dim=8, linear_value_head_dim=12, linear_num_key_heads=2,
             linear_num_value_heads=4, layer_types=["linear_attention", "full_attention", "linear_attention"])
SHORT = 20  # tokens of a text within the original context

# name: configuration, class, dtype, shards, or 0: as save_pretrained names tensors
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
    "vit": (tf.ViTConfig(**IMAGES, image_size=24), tf.ViTModel, torch.float32, 0),
    "siglip_vision": (tf.SiglipVisionConfig(**IMAGES, image_size=30), tf.SiglipVisionModel, torch.bfloat16, 0),
    "siglip": (tf.SiglipConfig(text_config=dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
                                                intermediate_size=8, vocab_size=20, max_position_embeddings=8),
                               vision_config=dict(**IMAGES, image_size=32), attn_implementation="eager"),
               tf.SiglipModel, torch.float16, 0),
    "gemma3_encoder": (tf.Gemma3TextConfig(**SIZES, head_dim=16, query_pre_attn_scalar=16, sliding_window=9,
                                           layer_types=["sliding_attention", "full_attention"],
                                           use_bidirectional_attention=True),
                       tf.Gemma3TextModel, torch.bfloat16, 1),
    # Decoders within models that also see; the tower leaves out what is transformers' default.
    "gemma3_whole": (tf.Gemma3Config(text_config=dict(**SIZES, head_dim=16, sliding_window=5, layer_types=["sliding_attention", "full_attention"],
                                                      rope_parameters={"sliding_attention": rope(10000.0),
                                                                       "full_attention": rope(1e6, rope_type="linear", factor=8.0)}),
                                     vision_config=EYE, mm_tokens_per_image=4, image_token_index=79,
                                     boi_token_index=77, eoi_token_index=78, eos_token_id=[2, 3], attn_implementation="eager"),
                     tf.Gemma3ForConditionalGeneration, torch.bfloat16, 1),
    "mistral3": (tf.Mistral3Config(text_config=dict(**SIZES, model_type="mistral", head_dim=16, sliding_window=None, rms_norm_eps=1e-5,
                                                    tie_word_embeddings=False),
                                   vision_config=dict(**EYE, model_type="pixtral", head_dim=8), image_token_index=79,
                                   tie_word_embeddings=False, attn_implementation="eager"),
                 tf.Mistral3ForConditionalGeneration, torch.bfloat16, 1),
    "mamba": (tf.MambaConfig(**SCANNED, state_size=5, time_step_rank=3), tf.MambaForCausalLM, torch.float32, 1),
    "mamba2": (tf.Mamba2Config(**SCANNED, state_size=6, num_heads=8, head_dim=8, n_groups=2, chunk_size=16,
                               use_bias=True, tie_word_embeddings=False), tf.Mamba2ForCausalLM, torch.bfloat16, 1),
    "qwen3_5": (tf.Qwen3_5TextConfig(**DELTA, rope_parameters=rope(1e6, partial_rotary_factor=0.25)), tf.Qwen3_5ForCausalLM,
                torch.float32, 1),
    "qwen3_5_whole": (tf.Qwen3_5Config(text_config=dict(**DELTA, tie_word_embeddings=True, rope_parameters=rope(1e6, partial_rotary_factor=0.25, mrope_section=[1, 1, 0],
                                                                                     mrope_interleaved=True)),
                                       vision_config=dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=1, patch_size=4,
                                                          temporal_patch_size=1, spatial_merge_size=1, out_hidden_size=32,
                                                          num_position_embeddings=4),
                                       tie_word_embeddings=True, image_token_id=79, video_token_id=78, vision_start_token_id=77,
                                       vision_end_token_id=76), tf.Qwen3_5ForConditionalGeneration, torch.bfloat16, 1),
    # Steps are never below 0: transformers would raise those of prompts alone to time_step_min.
    "nemotron_h": (tf.NemotronHConfig(**{k: v for k, v in SIZES.items() if k != "num_hidden_layers"}, head_dim=16, ssm_state_size=6,
                                      layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention"],
                                      mamba_num_heads=4, mamba_head_dim=12, n_groups=2, chunk_size=16, time_step_min=1e-12),
                   tf.NemotronHForCausalLM, torch.bfloat16, 1),
    "granite4": (tf.GraniteMoeHybridConfig(**{**SIZES, "num_hidden_layers": 3}, layer_types=["linear_attention", "full_attention", "linear_attention"],
                                           num_local_experts=0, shared_intermediate_size=48, position_embedding_type="nope",
                                           mamba_n_heads=8, mamba_d_state=6, mamba_n_groups=1, mamba_chunk_size=16,
                                           embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.4,
                                           logits_scaling=1.5, tie_word_embeddings=True), tf.GraniteMoeHybridForCausalLM, torch.float32, 1),
    "falcon_h1": (tf.FalconH1Config(**SIZES, mamba_d_ssm=40, mamba_n_heads=4, mamba_d_state=6, mamba_n_groups=2, mamba_chunk_size=16,
                                    lm_head_multiplier=0.5, embedding_multiplier=2.5, mlp_multipliers=[0.8, 0.7], key_multiplier=0.6,
                                    attention_out_multiplier=0.9, attention_in_multiplier=1.1, ssm_in_multiplier=1.2, ssm_out_multiplier=0.7,
                                    ssm_multipliers=[0.7, 0.8, 0.9, 1.1, 1.3]), tf.FalconH1ForCausalLM, torch.bfloat16, 1),
    "falcon_h1_norm": (tf.FalconH1Config(**SIZES, mamba_d_ssm=40, mamba_n_heads=4, mamba_d_state=6, mamba_n_groups=2, mamba_chunk_size=16,
                                         mamba_rms_norm=True), tf.FalconH1ForCausalLM, torch.float32, 1),
}

GGUF = {"llama3": "llama", "gemma2": "gemma2", "bert": "bert", "gpt2": "gpt2", "gemma3_encoder": "gemma-embedding"}  # the same models once more, as these architectures


def draw(model, dtype):
    """Values that make every part of the formula matter; transformers' own are so small that much of it is 0."""
    for name, p in model.named_parameters():
        wide = p.dim() > 1
        behind = p[0].numel() if p.dim() == 4 else p.shape[-1]
        noise = torch.randn(p.shape) * (1.2 * behind ** -0.5 if wide else 0.3)
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
    if name == "gemma3_whole":
        tower = c["text_config"]
        for member in ("rms_norm_eps", "query_pre_attn_scalar", "hidden_activation", "layer_types", "eos_token_id"):
            tower.pop(member)
        tower["sliding_window_pattern"] = 2
        both = tower.pop("rope_parameters")
        tower.update(rope_theta=both["full_attention"]["rope_theta"], rope_local_base_freq=both["sliding_attention"]["rope_theta"],
                     rope_scaling={"rope_type": "linear", "factor": 8.0})
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


def pooled(states, modules):
    if not modules:
        return torch.stack([s.mean(0) for s in states])
    vectors = []
    for s in states:
        features = {"token_embeddings": s[None], "attention_mask": torch.ones(1, len(s))}
        for m in modules:
            features = m(features)
        vectors.append(features["sentence_embedding"][0])
    return torch.stack(vectors)


def encoded(model, modules=()):
    counts = [1, 9, 30, 64]
    ids = [torch.randint(1, 80, (1, n)) for n in counts]
    states = [model(i).last_hidden_state[0] for i in ids]
    tokens = {"ids": torch.cat(ids, 1)[0].int(), "counts": torch.tensor(counts).int()}
    tokens["vectors"] = pooled(states, modules).float()
    if not modules:
        return tokens
    d2, d3 = stored_dense()
    return dict(tokens,
                gguf=(torch.stack([s.mean(0) for s in states]) @ d2.T @ d3.T).float(), first=torch.stack([s[0] for s in states]).float(),
                last=torch.stack([s[-1] for s in states]).float())


def save_modules(folder, dtype):
    """What sentence-transformers puts behind EmbeddingGemma."""
    modules = [Pooling(32, "mean"), draw(Dense(32, 40, bias=True, activation_function=torch.nn.Tanh()), dtype),
               draw(Dense(40, 24, bias=False, activation_function=torch.nn.Identity()), dtype), Normalize()]
    known = [dict(idx=0, name="0", path="", type="sentence_transformers.models.Transformer")]
    for i, m in enumerate(modules, 1):
        path = f"{i}_{type(m).__name__}"
        os.makedirs(os.path.join(folder, path))
        m.to(dtype).save(os.path.join(folder, path))
        m.double()
        known.append(dict(idx=i, name=str(i), path=path, type=f"sentence_transformers.models.{type(m).__name__}"))
    with open(os.path.join(folder, "modules.json"), "w") as f:
        json.dump(known, f, indent=1)
        f.write("\n")
    return modules


def vectors_of(model, pixels, config):
    out = getattr(model, "vision_model", model)(pixels)
    return out.last_hidden_state[:, 0] if config.model_type == "vit" else out.pooler_output


def seen(model, config):
    side = getattr(config, "vision_config", config).image_size
    pixels = torch.randn(3, 3, side, side)
    return {"pixels": pixels, "vectors": vectors_of(model, pixels.double(), config).float().contiguous()}


def save(model, folder, dtype, shards):
    if not shards:
        model.to(dtype).save_pretrained(folder)
        model.double()
        return
    state = {k: v.to(dtype).contiguous() for k, v in model.state_dict().items()}
    if isinstance(model, tf.Mistral3ForConditionalGeneration):  # as its files on the hub
        state = {k.replace("model.language_model.", "language_model.model.").replace("lm_head.", "language_model.lm_head."): v
                 for k, v in state.items()}
    if getattr(model.config, "text_config", model.config).tie_word_embeddings or "lm_head.weight" not in state:
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
    if architecture in ("bert", "gpt2"):
        return p.T if "c_" in name and p.dim() == 2 else p
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
    if architecture == "llama" and heads:
        p = p.reshape(heads, 2, p.shape[0] // heads // 2, *p.shape[1:]).swapaxes(1, 2).reshape(p.shape)
    return p + 1 if architecture.startswith("gemma") and name.endswith("norm.weight") else p


# Words of llama.cpp's converter: of WordPiece those that begin a word have a mark in front, the others lose theirs.
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "fox", "bark", "##s", "##ing", ".", "##fox"]
LETTERS = ["<|endoftext|>", *"abcdefghijklmnopqrstuvwxyz.,!", "Ġ", "Ċ", "fo", "fox", "Ġa", "Ġfox", "Ġfo"]
MERGES = ["f o", "fo x", "Ġ a", "Ġ fo", "Ġfo x"]


def save_words(w, architecture, count):
    """Tokens, their kinds (1 normal, 3 control, 5 unused) and special ids; of other tokenizers names alone."""
    tokens = {"bert": WORDS, "gpt2": LETTERS}.get(architecture, [])
    kinds = [3 if t[0] in "[<" else 1 for t in tokens] + [5] * (count - len(tokens))
    if architecture == "bert":
        tokens = [t if k == 3 else t[2:] if t.startswith("##") else "\u2581" + t for t, k in zip(tokens, kinds)]
        w.add_tokenizer_model("bert")
        w.add_token_type_count(2)
        for name, token in ("unknown", 1), ("cls", 2), ("seperator", 3), ("padding", 0), ("mask", 4):
            w.add_uint32(f"tokenizer.ggml.{name}_token_id", token)
    if architecture == "gpt2":
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("gpt-2")
        w.add_token_merges(MERGES)
        w.add_bos_token_id(0)
        w.add_eos_token_id(0)
    w.add_token_list(tokens + [f"t{i}" for i in range(len(tokens), count)])
    if tokens:
        w.add_token_types(kinds)
    else:
        w.add_eos_token_id(2)


def save_sizes(w, architecture, c):
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.n_inner if architecture == "gpt2" else c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    if architecture in ("bert", "gpt2"):
        w.add_layer_norm_eps(c.layer_norm_eps if architecture == "bert" else c.layer_norm_epsilon)
    else:
        w.add_head_count_kv(c.num_key_value_heads)
        w.add_key_length(c.head_dim)
        w.add_value_length(c.head_dim)
        w.add_rope_dimension_count(c.head_dim)
        w.add_layer_norm_rms_eps(c.rms_norm_eps)
        full = c.rope_parameters.get("full_attention", c.rope_parameters)
        w.add_rope_freq_base(full["rope_theta"])
    if architecture in ("bert", "gemma-embedding"):
        w.add_causal_attention(False)
        w.add_pooling_type(gguf.PoolingType.MEAN)


def stored_dense():
    """Matrices that GGUF has for EmbeddingGemma's dense layers."""
    draw = torch.Generator().manual_seed(2)
    return [(torch.randn(a, b, generator=draw) * b ** -0.5).double() for a, b in ((20, 32), (12, 20))]


def save_gguf(model, folder, architecture):
    c = model.config
    w = gguf.GGUFWriter(os.path.join(folder, "model.gguf"), architecture)
    save_sizes(w, architecture, c)
    save_words(w, architecture, c.vocab_size)
    if architecture == "gemma2":
        w.add_sliding_window(c.sliding_window)
        w.add_attn_logit_softcapping(c.attn_logit_softcapping)
        w.add_final_logit_softcapping(c.final_logit_softcapping)
    elif architecture == "gemma-embedding":
        w.add_sliding_window((c.sliding_window - 1) * 2)
        w.add_sliding_window_pattern(2)
        for i, d in enumerate(stored_dense(), 2):
            w.add_tensor(f"dense_{i}.weight", d.float().numpy())
    elif architecture == "llama":
        r = c.rope_parameters
        waves = torch.pi * 2 * r["rope_theta"] ** (torch.arange(0, c.head_dim, 2) / c.head_dim)
        mix = (r["original_max_position_embeddings"] / waves - r["low_freq_factor"])
        mix = (mix / (r["high_freq_factor"] - r["low_freq_factor"])).clamp(0, 1)
        w.add_tensor("rope_freqs.weight", (1 / (mix + (1 - mix) / r["factor"])).float().numpy())
    names = gguf.get_tensor_name_map(next(
        a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == architecture), c.num_hidden_layers)
    for name, p in model.state_dict().items():
        if name == "lm_head.weight" or "pooler" in name:
            continue
        p = gguf_value(name, architecture, p, c)
        name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        kind = gguf.GGMLQuantizationType.F32 if p.dim() == 1 or architecture == "bert" else \
            gguf.GGMLQuantizationType.BF16 if model.stored == torch.bfloat16 else gguf.GGMLQuantizationType.F16
        w.add_tensor(name, gguf.quants.quantize(p.float().numpy(), kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def rounded(model, golden, config, modules):
    """How far the same model is off where torch rounds each operation to 16 bits, relative to all of the golden."""
    name, want = ("logits", golden["logits"]) if "logits" in golden else ("vectors", golden["vectors"])
    for dtype, word in (torch.bfloat16, "bf16"), (torch.float16, "f16"):
        half = copy.deepcopy(model).to(dtype)
        later = [copy.deepcopy(m).to(dtype) for m in modules]
        if name == "logits":
            got = half(golden["ids"].long()[None]).logits[0]
        elif "pixels" in golden:
            got = vectors_of(half, golden["pixels"].to(dtype), config)
        else:
            texts = golden["ids"].long().split(golden["counts"].tolist())
            got = pooled([half(t[None]).last_hidden_state[0] for t in texts], later)
        error = (got.double() - want.double()).norm() / want.double().norm()
        golden[f"error.{word}"] = error.float().reshape(1)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "tiny")
    if not sys.argv[2:]:
        shutil.rmtree(root, ignore_errors=True)
    for number, (name, (config, kind, dtype, shards)) in enumerate(MODELS.items()):
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        torch.manual_seed(number)
        folder = os.path.join(root, name)
        os.makedirs(folder)
        model = draw(kind(config), dtype)
        config.save_pretrained(folder)
        save(model, folder, dtype, shards)
        older(name, folder)
        if name in GGUF:
            model.stored = dtype
            save_gguf(model, folder, GGUF[name])
        modules = save_modules(folder, dtype) if name == "gemma3_encoder" else []
        with torch.no_grad():
            golden = (seen(model, config) if not shards else
                      encoded(model, modules) if isinstance(model, (tf.BertModel, tf.Gemma3TextModel)) else decoded(model))
            if name != "phi3":
                golden.pop("short", None)
            rounded(model, golden, config, modules)
        save_file(golden, os.path.join(folder, "golden.safetensors"))


main()

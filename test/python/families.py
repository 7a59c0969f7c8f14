"""families.py -- small seeded models of transformers, as it makes them: what test_dynamo.py compiles and record.py
records."""
import random

import torch
import transformers

LLAMA = dict(vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)
BERT = {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}
VIT = {k: v for k, v in BERT.items() if k not in ("vocab_size", "max_position_embeddings")}
T5 = dict(vocab_size=128, d_model=64, d_ff=96, d_kv=16, num_layers=2, num_heads=4)
WHISPER = dict(vocab_size=128, d_model=64, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=96, decoder_layers=2,
               decoder_attention_heads=4, decoder_ffn_dim=96, num_mel_bins=16, max_source_positions=24, pad_token_id=0,
               bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
LONG = dict(BERT, max_position_embeddings=80)  # positions begin behind that of padding
PIXELS = dict(image_size=32, patch_size=8)
GPT2 = dict(vocab_size=128, n_embd=64, n_layer=2, n_head=4, n_positions=64)
B, T = 2, 24


def of(model, config, **options):
    return lambda: getattr(transformers, model)(getattr(transformers, config)(**options))


FAMILIES = {
    "llama": of("LlamaForCausalLM", "LlamaConfig", **LLAMA),
    "llama31": of("LlamaForCausalLM", "LlamaConfig", **LLAMA, rope_parameters=dict(
        rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=32)),
    "mistral": of("MistralForCausalLM", "MistralConfig", **LLAMA, sliding_window=9),
    "qwen2": of("Qwen2ForCausalLM", "Qwen2Config", **LLAMA),
    "qwen3": of("Qwen3ForCausalLM", "Qwen3Config", **LLAMA, head_dim=16),
    "gemma": of("GemmaForCausalLM", "GemmaConfig", **LLAMA, head_dim=16),
    "gemma2": of("Gemma2ForCausalLM", "Gemma2Config", **LLAMA, head_dim=16, sliding_window=9),
    "gemma3": of("Gemma3ForCausalLM", "Gemma3TextConfig", **LLAMA, head_dim=16, sliding_window=9),
    "phi3": of("Phi3ForCausalLM", "Phi3Config", **LLAMA, pad_token_id=0, partial_rotary_factor=0.5),
    "gpt2": of("GPT2LMHeadModel", "GPT2Config", **GPT2),
    "bert": of("BertModel", "BertConfig", **BERT),
    "vit": of("ViTModel", "ViTConfig", **VIT, image_size=32, patch_size=8),
    "neox": of("GPTNeoXForCausalLM", "GPTNeoXConfig", **BERT),
    "olmo2": of("Olmo2ForCausalLM", "Olmo2Config", **LLAMA),
    "glm4": of("Glm4ForCausalLM", "Glm4Config", **LLAMA, head_dim=16, pad_token_id=0),
    "granite": of("GraniteForCausalLM", "GraniteConfig", **LLAMA),
    "cohere": of("CohereForCausalLM", "CohereConfig", **LLAMA, pad_token_id=0),
    "starcoder2": of("Starcoder2ForCausalLM", "Starcoder2Config", **LLAMA),
    "opt": of("OPTForCausalLM", "OPTConfig", vocab_size=128, hidden_size=64, ffn_dim=96, num_hidden_layers=2,
              num_attention_heads=4, word_embed_proj_dim=64),
    "distilbert": of("DistilBertModel", "DistilBertConfig", vocab_size=128, dim=64, hidden_dim=96, n_layers=2, n_heads=4),
    "smollm": of("LlamaForCausalLM", "LlamaConfig", **LLAMA, tie_word_embeddings=True),
    "smollm3": of("SmolLM3ForCausalLM", "SmolLM3Config", **LLAMA, pad_token_id=0),
    "olmo3": of("Olmo3ForCausalLM", "Olmo3Config", **LLAMA, pad_token_id=0, sliding_window=9),
    "exaone4": of("Exaone4ForCausalLM", "Exaone4Config", **LLAMA, pad_token_id=0, sliding_window=9, sliding_window_pattern=2),
    "phi": of("PhiForCausalLM", "PhiConfig", **LLAMA),
    "gptj": of("GPTJForCausalLM", "GPTJConfig", **GPT2, rotary_dim=8),
    "bloom": of("BloomForCausalLM", "BloomConfig", vocab_size=128, hidden_size=64, n_layer=2, n_head=4),
    "roberta": of("RobertaModel", "RobertaConfig", **LONG),
    "mpnet": of("MPNetModel", "MPNetConfig", **LONG),
    "modernbert": of("ModernBertModel", "ModernBertConfig", **BERT, pad_token_id=0, global_attn_every_n_layers=2,
                     local_attention=8),
    "t5_encoder": of("T5EncoderModel", "T5Config", **T5),
    "t5": of("T5ForConditionalGeneration", "T5Config", **T5),
    "whisper": of("WhisperModel", "WhisperConfig", **WHISPER),
    "clip_text": of("CLIPTextModel", "CLIPTextConfig", **BERT, eos_token_id=2),
    "clip_vision": of("CLIPVisionModel", "CLIPVisionConfig", **VIT, **PIXELS),
    "dinov2": of("Dinov2Model", "Dinov2Config", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, **PIXELS),
    "seed_oss": of("SeedOssForCausalLM", "SeedOssConfig", **LLAMA, head_dim=16, pad_token_id=0),
    "ministral": of("MinistralForCausalLM", "MinistralConfig", **LLAMA, head_dim=16, sliding_window=9, pad_token_id=0),
    "cohere2": of("Cohere2ForCausalLM", "Cohere2Config", **LLAMA, sliding_window=9, pad_token_id=0),
    "ernie4_5": of("Ernie4_5ForCausalLM", "Ernie4_5Config", **LLAMA, pad_token_id=0),
    "hunyuan": of("HunYuanDenseV1ForCausalLM", "HunYuanDenseV1Config", **LLAMA, head_dim=16, pad_token_id=0),
    "helium": of("HeliumForCausalLM", "HeliumConfig", **LLAMA, head_dim=16, pad_token_id=0),
    "stablelm": of("StableLmForCausalLM", "StableLmConfig", **LLAMA),
    "nemotron": of("NemotronForCausalLM", "NemotronConfig", **LLAMA, head_dim=16),
    "persimmon": of("PersimmonForCausalLM", "PersimmonConfig", **BERT),
    "gpt_neo": of("GPTNeoForCausalLM", "GPTNeoConfig", vocab_size=128, hidden_size=64, num_layers=2, num_heads=4, window_size=8,
                  attention_types=[[["global", "local"], 1]], max_position_embeddings=64),
    "electra": of("ElectraModel", "ElectraConfig", **BERT, embedding_size=64),
    "albert": of("AlbertModel", "AlbertConfig", **BERT, embedding_size=32),
    "eurobert": of("EuroBertModel", "EuroBertConfig", **LLAMA, pad_token_id=0),
    "deit": of("DeiTModel", "DeiTConfig", **VIT, **PIXELS),
    "dinov3": of("DINOv3ViTModel", "DINOv3ViTConfig", **VIT, **PIXELS, num_register_tokens=2),
}
RECORDED = "llama llama31 mistral qwen2 qwen3 gemma gemma2 gemma3 phi3 gpt2 bert vit".split()
PADDED = ("bert", "llama")  # with an attention_mask, too
SEEING = {"vit": (3, 32, 32), "clip_vision": (3, 32, 32), "dinov2": (3, 32, 32), "deit": (3, 32, 32), "dinov3": (3, 32, 32), "whisper": (16, 48)}  # or hearing
UNCACHED = {"bert", "distilbert", "roberta", "mpnet", "modernbert", "t5_encoder", "clip_text", "electra", "albert", "eurobert"}
DECODED = ("llama", "qwen3")  # a token behind a static cache of KEYS, which has PAST
KEYS, PAST, TOKEN = 16, 7, 77


def fill(name, shape, integers=None):
    """Numbers that depend on a name alone, as a list: weights near their usual size; gains near 1; or integers below
    a bound. test_graphs.py has the same without PyTorch."""
    rng, n = random.Random(name), 1
    for d in shape:
        n *= d
    if integers:
        return [rng.randrange(1, integers) for _ in range(n)]
    if len(shape) > 1:
        fan = n // shape[0] if shape[0] else 1
        return [(2 * rng.random() - 1) * (3 / fan) ** 0.5 for _ in range(n)]
    middle = 1.0 if name.endswith("weight") else 0.0
    return [middle + 0.4 * (rng.random() - 0.5) for _ in range(n)]


def model_of(family, dtype=torch.float32):
    """A model with filled parameters."""
    model = FAMILIES[family]().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.tensor(fill(name, p.shape), dtype=torch.float64).reshape(p.shape))
    return model.to(dtype)


def inputs_of(family, dtype=torch.float32, padded=False, tokens=T, sequences=B):
    if family in SEEING:
        shape, word = (sequences, *SEEING[family]), "input_features" if family == "whisper" else "pixel_values"
        seen = {word: torch.tensor(fill(word, shape)).reshape(shape).to(dtype)}
        return dict(seen, use_cache=False, decoder_input_ids=torch.ones(2, 5, dtype=torch.int64)) if family == "whisper" else seen
    ids = torch.tensor(fill("input_ids", (sequences, tokens), 128)).reshape(sequences, tokens)
    more = {} if family in UNCACHED else {"use_cache": False}
    if family == "t5":
        more["decoder_input_ids"] = ids[:, :7]
    if padded:
        more["attention_mask"] = torch.ones(sequences, tokens, dtype=torch.int64)
        more["attention_mask"][0, -5:] = 0
    return dict(input_ids=ids, **more)

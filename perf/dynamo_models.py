"""dynamo_models.py -- models of transformers by their configurations, with random weights, and a prompt. For dynamo.py,
and for first_token.py, which imports nothing that a side does not need."""
import torch
import transformers

MODES = {"coda": {"backend": "coda", "options": {"fullgraph": True}}, "compile": {"mode": "reduce-overhead"},
         "autotune": {"mode": "max-autotune"}}
TOKENS = 2048


def decoder_sizes(opt, layers):
    if opt.cpu:
        return dict(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, vocab_size=512, max_position_embeddings=4096)
    return dict(num_hidden_layers=opt.layers or layers, num_attention_heads=32, num_key_value_heads=8,
                hidden_size=4096, max_position_embeddings=8192)


def config_of(name, opt):
    if name == "minilm":
        return transformers.BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    if name == "llama-8b":
        return transformers.LlamaConfig(**{"intermediate_size": 14336, "vocab_size": 128256, "rope_theta": 500000.0,
                                           **decoder_sizes(opt, 32)})
    return transformers.Qwen3Config(**{"intermediate_size": 12288, "vocab_size": 151936, "head_dim": 128,
                                       **decoder_sizes(opt, 36)})


def model_of(name, opt, device):
    config = config_of(name, opt)
    kind = {"llama-8b": "LlamaForCausalLM", "qwen3-8b": "Qwen3ForCausalLM", "minilm": "BertModel"}[name]
    torch.manual_seed(7)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = getattr(transformers, kind)(config).eval()
    torch.set_default_dtype(torch.float32)
    return model


def ids_of(model, device, sequences, tokens):
    made = torch.Generator(device).manual_seed(11)
    return torch.randint(model.config.vocab_size, (sequences, tokens), device=device, generator=made)


class Prefill:
    """The logits of the last token."""

    def __init__(self, model, opt, device):
        self.ids = ids_of(model, device, 1, 64 if opt.cpu else TOKENS)

    def __call__(self, f):
        return f(input_ids=self.ids, use_cache=False, logits_to_keep=1).logits

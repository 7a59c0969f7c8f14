"""recurrent_layers.py -- writes recurrent_layers.h: a Mamba and a Mamba-2 layer of transformers in fp64, whose
random weights and x are fp32 numbers. Run as:

    python3 test/unit/library/recurrent_layers.py > test/unit/library/recurrent_layers.h
"""
import torch
import transformers
from transformers import Mamba2Config, MambaConfig
from transformers.models.mamba.modeling_mamba import MambaMixer
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer


def draw(layer):
    with torch.no_grad():
        for name, p in layer.named_parameters():
            p.copy_(torch.randn(p.shape) * (0.3 if p.dim() > 1 else 0.5))
            if name == "norm.weight":
                p.add_(1)
    return layer.double()


def write(kind, name, x):
    form = "%.9gf" if kind == "float" else "%.17g"
    words = [form % v for v in x.flatten().tolist()]
    words = [w if "." in w or "e" in w else w.replace("f", ".0f") for w in words]
    print("static const %s %s[%d] = {" % (kind, name, len(words)))
    each = 6 if kind == "float" else 4
    for i in range(0, len(words), each):
        print("    " + ", ".join(words[i:i + each]) + ("," if i + each < len(words) else "};"))


def write_layer(prefix, layer):
    x = torch.randn(7, 8)
    for name, p in draw(layer).named_parameters():
        write("float", prefix + "_" + name.replace(".", "_"), p.detach())
    write("float", prefix + "_x", x)
    with torch.no_grad():
        write("double", prefix + "_y", layer(x[None].double())[0])


torch.manual_seed(7)
print("/* recurrent_layers.h -- by recurrent_layers.py: layers, and what transformers %s makes of x in fp64. */"
      % transformers.__version__)
print("/* clang-format off */")
shared = dict(hidden_size=8, conv_kernel=4, use_bias=False, use_conv_bias=True, hidden_act="silu")
write_layer("mamba", MambaMixer(MambaConfig(intermediate_size=16, state_size=4, time_step_rank=3, **shared), 0))
write_layer("mamba2", Mamba2Mixer(Mamba2Config(num_heads=4, head_dim=4, expand=2, state_size=6, n_groups=2,
                                               chunk_size=4, **shared), 0))
print("/* clang-format on */")

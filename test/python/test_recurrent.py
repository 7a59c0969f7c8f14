#!/usr/bin/env python3
"""test_recurrent.py -- the layer of Qwen 3.5 whose state follows the gated delta rule, beside that of transformers.

The layer has a few small heads and random weights. A prompt, and the same tokens in pieces and one by one, whose states
are left from run to run, give on the CPU device what transformers computes of the whole, which it does in fp64 but for
the rule itself. Prints CODA_SEED, from which all is drawn.
"""
import os
import sys

try:
    import numpy as np
    import torch
    from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5GatedDeltaNet
except ImportError as e:
    print("test_recurrent.py: skipped: %s" % e)
    sys.exit(0)

import libcoda as coda

D, KEY_HEADS, HEADS, K, V, TAPS, EPS = 24, 2, 4, 16, 12, 4, 1e-6
N = 2 * KEY_HEADS * K + HEADS * V

# The layer behind its norm. A row of the states is one of a sequence; %x has T of B sequences.
LAYER = """%x = input f32[{B},{T},{D}]
%qkv = weight f32[{N},{D}]
%wz = weight f32[{Z},{D}]
%wb = weight f32[{H},{D}]
%wa = weight f32[{H},{D}]
%taps = weight f32[{N},{TAPS}]
%bias = weight f32[{H}]
%log = weight f32[{H}]
%gain = weight f32[{V}]
%wo = weight f32[{D},{Z}]
%last = state f32[{B},{KEPT},{N}]
%s = state f32[{B},{H},{K},{V}]
%p = matmul %x, %qkv
%c = conv1d %p, %taps, _, %last
%kept = conv1d %p, %taps, _, %last {{after=1}} @%c
%last1 = assign %last, %kept
%u = silu %c
%q = slice %u {{axis=2, start=0, stop={Q}, step=1}}
%k = slice %u {{axis=2, start={Q}, stop={QK}, step=1}}
%v = slice %u {{axis=2, start={QK}, stop={N}, step=1}}
%b = matmul %x, %wb
%beta = sigmoid %b
%a = matmul %x, %wa
%t = add %a, %bias
%plus = softplus %t
%rate = exp %log
%decay = mul %plus, %rate
%g = scale %decay {{alpha=-1}}
%o = delta %q, %k, %v, %g, %beta, %s {{heads={H}, key_heads={KH}, norm=1, eps=1e-6}}
%s2 = delta %q, %k, %v, %g, %beta, %s {{heads={H}, key_heads={KH}, norm=1, eps=1e-6, after=1}} @%o
%s1 = assign %s, %s2
%heads = reshape %o {{rank=4, d0={B}, d1={T}, d2={H}, d3={V}}}
%n = rms_norm %heads, %gain {{eps=1e-6}}
%z = matmul %x, %wz
%zh = reshape %z {{rank=4, d0={B}, d1={T}, d2={H}, d3={V}}}
%gate = silu %zh
%y = mul %n, %gate
%yr = reshape %y {{rank=3, d0={B}, d1={T}, d2={Z}}}
%r = matmul %yr, %wo
output %y = %r
"""


def layer_of(seed):
    torch.manual_seed(seed)
    config = Qwen3_5TextConfig(hidden_size=D, linear_num_value_heads=HEADS, linear_num_key_heads=KEY_HEADS,
                               linear_key_head_dim=K, linear_value_head_dim=V, linear_conv_kernel_dim=TAPS,
                               rms_norm_eps=EPS, num_hidden_layers=1, layer_types=["linear_attention"])
    layer = Qwen3_5GatedDeltaNet(config, 0)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn(p.shape) * 0.4)
    return layer


def weights_of(layer):
    named = {"qkv": layer.in_proj_qkv.weight, "wz": layer.in_proj_z.weight, "wb": layer.in_proj_b.weight,
             "wa": layer.in_proj_a.weight, "taps": layer.conv1d.weight[:, 0], "bias": layer.dt_bias,
             "log": layer.A_log, "gain": layer.norm.weight, "wo": layer.out_proj.weight}
    return {n: np.ascontiguousarray(t.detach().float().numpy()) for n, t in named.items()}


def text_of(batch, tokens):
    return LAYER.format(B=batch, T=tokens, D=D, N=N, Z=HEADS * V, H=HEADS, KH=KEY_HEADS, K=K, V=V, TAPS=TAPS,
                        KEPT=TAPS - 1, Q=KEY_HEADS * K, QK=2 * KEY_HEADS * K)


def run(x, pieces, weights):
    """The tokens in pieces, by the CPU device; the states go from one to the next."""
    batch = x.shape[0]
    state = {"last": np.zeros((batch, TAPS - 1, N), np.float32), "s": np.zeros((batch, HEADS, K, V), np.float32)}
    out, at = [], 0
    for n in pieces:
        plan = coda.Graph(text_of(batch, n)).compile("cpu")
        part = np.ascontiguousarray(x[:, at:at + n])
        out.append(np.array(plan(dict(weights, x=part, **state))))
        at += n
    return np.concatenate(out, 1)


def check(what, got, want, bar):
    error = np.abs(got - want).max() / np.sqrt((want ** 2).mean())
    print("  %-28s error %.1e, allowed %.0e" % (what, error, bar))
    return error <= bar


def main():
    seed = int(os.environ.get("CODA_SEED", "0")) or int.from_bytes(os.urandom(4), "little")
    print("CODA_SEED=%d" % seed)
    layer, random = layer_of(seed), np.random.default_rng(seed)
    batch, tokens = 2, 70
    x, weights = random.standard_normal((batch, tokens, D)).astype(np.float32), weights_of(layer)
    with torch.no_grad():
        want = layer.double()(torch.from_numpy(x).double()).numpy()
    good = True
    for what, pieces in (("a prompt", [tokens]), ("in pieces", [1, 33, 3, 33]), ("by steps", [40] + [1] * 30)):
        good &= check(what, run(x, pieces, weights), want, 5e-5)
    return not good


if __name__ == "__main__":
    sys.exit(main())

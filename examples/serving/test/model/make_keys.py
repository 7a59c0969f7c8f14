#!/usr/bin/env python3
"""make_keys.py -- weights of three tiny models, and their logits in fp64 by the formula that each key of a file asks for.

    python3 test/model/make_keys.py    writes test/model/keys.safetensors

Wants numpy and safetensors. The formula is that of the papers (RMSNorm, RoPE, YaRN, LongRoPE, SwiGLU; Gemma 2 and 3 by their reports)
as numpy has it. Tensors are named FAMILY/NAME as GGUF names them, logits want/CASE; keys.c writes the files.
"""
import os

import numpy as np
from safetensors.numpy import save_file

V, D, LAYERS, HEADS, KV, HEAD, INNER, TOKENS = 32, 16, 2, 2, 1, 8, 24, 12
IDS = np.array([1, 5, 9, 31, 2, 30, 17, 17, 4, 8, 25, 11])


def draw(seed, norms):
    r = np.random.default_rng(seed)

    def matrix(*shape):
        return (r.standard_normal(shape) * 0.4).astype(np.float32)

    def gain(n):
        return (1 + 0.2 * r.standard_normal(n)).astype(np.float32)
    w = {"token_embd.weight": matrix(V, D), "output_norm.weight": gain(D), "output.weight": matrix(V, D)}
    for layer in range(LAYERS):
        p = f"blk.{layer}."
        w[p + "attn_q.weight"], w[p + "attn_k.weight"] = matrix(HEADS * HEAD, D), matrix(KV * HEAD, D)
        w[p + "attn_v.weight"], w[p + "attn_output.weight"] = matrix(KV * HEAD, D), matrix(D, HEADS * HEAD)
        w[p + "ffn_gate.weight"], w[p + "ffn_up.weight"] = matrix(INNER, D), matrix(INNER, D)
        w[p + "ffn_down.weight"] = matrix(D, INNER)
        for n in norms:
            w[p + n + ".weight"] = gain(HEAD if n in ("attn_q_norm", "attn_k_norm") else D)
    return w


def biases(seed):
    r = np.random.default_rng(seed)
    sizes = {"attn_q": HEADS * HEAD, "attn_k": KV * HEAD, "attn_v": KV * HEAD, "attn_output": D}
    return {f"blk.{layer}.{n}.bias": (0.5 * r.standard_normal(size)).astype(np.float32)
            for layer in range(LAYERS) for n, size in sizes.items()}


def angles(base=1e4, columns=HEAD, divide=1.0):
    return base ** (-np.arange(0, columns, 2) / columns) / divide


def yarn(base, factor, original, fast=32.0, slow=1.0, columns=HEAD):
    """arXiv 2309.00071: kept below `low`, divided by the factor from `high` on, a ramp between; and the temperature."""
    def at(turns):
        return columns * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(base))
    low, high = max(0, np.floor(at(fast))), min(columns - 1, np.ceil(at(slow)))
    ramp = np.clip((np.arange(columns // 2) - low) / max(high - low, 0.001), 0, 1)
    w = angles(base, columns)
    return w * (1 - ramp) + w / factor * ramp, 0.1 * np.log(factor) + 1


def rotate(x, w, scale):
    """x is [tokens, heads, columns]: the first half of what rotates with the second."""
    n = len(w)
    turn = np.arange(len(x))[:, None] * w[None]
    c, s = np.cos(turn)[:, None] * scale, np.sin(turn)[:, None] * scale
    a, b = x[..., :n].copy(), x[..., n:2 * n].copy()
    return np.concatenate([a * c - b * s, a * s + b * c, x[..., 2 * n:]], -1)


def rms(x, gain):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


def capped(x, cap):
    return cap * np.tanh(x / cap) if cap else x


def logits(w, rope=None, scale=1.0, gemma=False, cap=0, last_cap=0, window=lambda layer: 0, local=None):
    """`local`: the angles of layers that have a window."""
    w = {k: v.astype(np.float64) for k, v in w.items()}
    rope = angles() if rope is None else rope
    i = np.arange(TOKENS)
    x = w["token_embd.weight"][IDS] * (np.sqrt(D) if gemma else 1)
    for layer in range(LAYERS):
        p = f"blk.{layer}."
        seen = i[:, None] >= i[None]
        if window(layer):
            seen = seen & (i[:, None] - i[None] < window(layer))
        turn = local if local is not None and window(layer) else rope
        h = rms(x, w[p + "attn_norm.weight"])
        q, k, v = (h @ w[p + f"attn_{n}.weight"].T + w.get(p + f"attn_{n}.bias", 0) for n in "qkv")
        q, k, v = q.reshape(TOKENS, HEADS, HEAD), k.reshape(TOKENS, KV, HEAD), v.reshape(TOKENS, KV, HEAD)
        if p + "attn_q_norm.weight" in w:
            q, k = rms(q, w[p + "attn_q_norm.weight"]), rms(k, w[p + "attn_k_norm.weight"])
        q, k = rotate(q, turn, scale), rotate(k, turn, scale)
        k, v = np.repeat(k, HEADS // KV, 1), np.repeat(v, HEADS // KV, 1)
        s = capped(np.einsum("qhd,khd->hqk", q, k) / np.sqrt(HEAD), cap)
        s = np.exp(np.where(seen[None], s, -np.inf))
        a = np.einsum("hqk,khd->qhd", s / s.sum(-1, keepdims=True), v).reshape(TOKENS, -1)
        a = a @ w[p + "attn_output.weight"].T + w.get(p + "attn_output.bias", 0)
        x = x + (rms(a, w[p + "post_attention_norm.weight"]) if gemma else a)
        h = rms(x, w[p + "ffn_norm.weight"])
        m = ((gelu if gemma else silu)(h @ w[p + "ffn_gate.weight"].T) * (h @ w[p + "ffn_up.weight"].T)) @ w[p + "ffn_down.weight"].T
        x = x + (rms(m, w[p + "post_ffw_norm.weight"]) if gemma else m)
    x = rms(x, w["output_norm.weight"])
    return capped(x @ (w["token_embd.weight"] if gemma else w["output.weight"]).T, last_cap)


def neighbours(x, heads):
    """LLaMA's rows of q and k in GGUF: what rotates together lies side by side."""
    return np.ascontiguousarray(x.reshape(heads, 2, HEAD // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape))


def of_llama(w):
    out = dict(w)
    for k in w:
        if ".attn_q." in k or ".attn_k." in k:
            out[k] = neighbours(w[k], HEADS if ".attn_q." in k else KV)
    return out


def of_phi3(w):
    out = {k: v for k, v in w.items() if not any(n in k for n in ("attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"))}
    for layer in range(LAYERS):
        p = f"blk.{layer}."
        out[p + "attn_qkv.weight"] = np.concatenate([w[p + f"attn_{n}.weight"] for n in "qkv"])
        out[p + "ffn_up.weight"] = np.concatenate([w[p + "ffn_gate.weight"], w[p + "ffn_up.weight"]])
    return out


def main():
    plain, both = ("attn_norm", "ffn_norm"), ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    w, g2, g3, b = draw(1, plain), draw(2, both), draw(3, both + ("attn_q_norm", "attn_k_norm")), biases(4)
    g2.pop("output.weight"), g3.pop("output.weight")
    front = {k: v for k, v in b.items() if "output" not in k}
    behind = {k: v for k, v in b.items() if "output" in k}
    short, long = np.array([1.1, 1.5, 2, 3], np.float32), np.array([2, 4, 8, 16], np.float32)
    ramp, warm = yarn(1e4, 8.0, 64, 4, 0.5)
    ramp0, warm0 = yarn(1e4, 4.0, 128)
    want = {
        "plain": logits(w), "front": logits({**w, **front}), "behind": logits({**w, **behind}), "all": logits({**w, **b}),
        "linear": logits(w, angles(divide=4)), "warm": logits(w, angles(divide=4), 1.3), "warm_alone": logits(w, scale=1.19),
        "yarn": logits(w, ramp, warm), "yarn_usual": logits(w, ramp0, warm0), "yarn_warm": logits(w, ramp0, warm0 * 1.1),
        "short": logits(w, angles(divide=short), 1.19), "long": logits(w, angles(divide=long), 1.19),
        "base": logits(w, angles(5e5)), "part": logits(w, angles(columns=4)),
        "gemma2": logits(g2, gemma=True, cap=50, last_cap=30), "gemma2_caps": logits(g2, gemma=True, cap=2, last_cap=3),
        "gemma2_window": logits(g2, gemma=True, cap=50, last_cap=30, window=lambda l: 5 if l % 2 == 0 else 0),
        "gemma3": logits(g3, angles(1e6), gemma=True, window=lambda l: 4 if l == 0 else 0, local=angles(3e3)),
        "gemma3_usual": logits(g3, angles(1e6), gemma=True, window=lambda l: 4, local=angles(1e4)),
        "gemma3_linear": logits(g3, angles(1e6, divide=8), gemma=True, window=lambda l: 4 if l == 0 else 0, local=angles(1e4)),
    }
    out = {f"want/{k}": v.astype(np.float32) for k, v in want.items()}
    out["ids"] = IDS.astype(np.int32)
    for family, tensors in ("llama", of_llama({**w, **b})), ("phi3", of_phi3(w)), ("gemma2", g2), ("gemma3", g3):
        out.update({f"{family}/{k}": v for k, v in tensors.items()})
    out["phi3/rope_factors_short.weight"] = out["llama/rope_factors_short.weight"] = short
    out["phi3/rope_factors_long.weight"] = out["llama/rope_factors_long.weight"] = long
    save_file(out, os.path.join(os.path.dirname(os.path.abspath(__file__)), "keys.safetensors"))


main()

#!/usr/bin/env python3
"""families.py -- blocks of diffusion transformers and operations with states, beside PyTorch, in one process, in turns.

    families.py [--quick] [--seconds N] [--profile] [--out FILE] [--cpu] [PATTERN...]

    picture    a block of SD3 (arXiv 2403.03206) of 512 x 512 and 1024 x 1024, batch 2; FLUX.1's single block of
               1024 x 1024; a block of DiT-XL/2, batch 8. Modulations are inputs of both sides
    latent     what is ahead of DeepSeek-V3's attention (2412.19437): three products, two norms of latent vectors
    head       attention of 4,096 tokens to all, heads of 64 to 96 columns; SD3's at its own two lengths
    delta      the gated delta rule (2412.06464) of Qwen3.5-35B-A3B's shape: prompts, and a step of some sequences
    scan       Mamba's scan of the 2.8B shape (2312.00752), and SSD of Mamba-2 2.7B (2405.21060)

Sides: "coda"; "compile" (torch.compile) and "eager"; "cudnn" and "flash" for attention; "fla" (the Triton kernels
of the package flash-linear-attention, where it is installed), "mamba" (serving_peers.py), "stream" (a copy of as
many bytes as a step's states are read and written). All is measured and checked as serving.py does; results go to
perf/results/CARD/families.json.
"""
import importlib.util
import math
import sys

import serving
import serving_cases
import serving_peers
import torch
import torch.nn.functional as F

import libcoda as coda

EPS = 1e-6


class Case(serving_cases.Case):
    """graph() makes the outputs of the leaves, which are attributes of one object; outputs are named y, y1, ..."""

    def __init__(self, name, device):
        super().__init__(name, device)
        self.name = name

    def text(self):
        g, t = coda.Graph(), self.tensors()
        kinds = {**dict.fromkeys(self.weights, "weight"), **dict.fromkeys(self.states, "state")}
        leaves = {n: getattr(g, kinds.get(n, "input"))(n, serving_cases.CTYPE[x.dtype], tuple(x.shape)) for n, x in t.items()}
        for i, y in enumerate(self.graph(g, leaves)):
            g.output("y%s" % (i or ""), y)
        return str(g)

    def copy(self):
        t = self.tensors()
        for i, shape in enumerate(self.shapes):
            t["y%s" % (i or "")] = torch.full(shape, math.nan, dtype=self.out, device=self.device)
        return t

    def formula(self, t):
        """The first output; peers compute all."""
        return self.all(t)[0]

    def peers(self):
        yield "eager", self.all
        yield "compile", serving_cases.compiled(self.all)


def modulated(x, shift, scale):
    return F.layer_norm(x, x.shape[-1:], eps=EPS) * (1 + scale) + shift


def modulated_graph(x, shift, scale):
    return coda.layer_norm(x, None, None, EPS) * (scale + 1) + shift


def columns(x, n):
    d = x.shape[-1] // n
    return [x[..., i * d:(i + 1) * d] for i in range(n)]


# ---- Pictures ----

class Block(Case):
    def weight(self, made, name, n, k):
        made["w_" + name], made["b_" + name] = self.random(n, k, by=k ** -0.5), self.random(n, by=0.1)

    def vectors(self, made, name, batch, n):
        made[name] = self.random(batch, 1, n, by=0.3)

    @property
    def weights(self):
        return [n for n in self.tensors() if n[:2] in ("w_", "b_", "g_")]

    def linear(self, t, x, name):
        return F.linear(x, t["w_" + name], t["b_" + name])

    def linear_graph(self, t, x, name):
        return coda.matmul(x, t["w_" + name]) + t["b_" + name]

    def mlp(self, t, x, name):
        return self.linear(t, F.gelu(self.linear(t, x, "up_" + name), approximate="tanh"), "down_" + name)

    def mlp_graph(self, t, x, name):
        return self.linear_graph(t, coda.gelu_tanh(self.linear_graph(t, x, "up_" + name)), "down_" + name)


class SD3(Block):
    """Both streams: the picture's tokens x, then the text's c."""

    def __init__(self, device, tokens, text=333, batch=2, hidden=1536, count=24):
        super().__init__("picture/sd3/%dx%d" % (batch, tokens), device)
        self.hidden, self.count, self.tokens = hidden, count, tokens
        self.shapes = (batch, tokens, hidden), (batch, text, hidden)

    def tensors(self):
        d, made = self.hidden, {}
        for s, shape in zip("xc", self.shapes):
            made[s] = self.random(*shape)
            self.vectors(made, "mod_" + s, shape[0], 6 * d)
            for name, n, k in (("qkv", 3 * d, d), ("o", d, d), ("up", 4 * d, d), ("down", d, 4 * d)):
                self.weight(made, "%s_%s" % (name, s), n, k)
        return made

    def graph(self, g, t):
        m, qkv = {s: columns(t["mod_" + s], 6) for s in "xc"}, {}
        for s in "xc":
            qkv[s] = columns(self.linear_graph(t, modulated_graph(t[s], m[s][0], m[s][1]), "qkv_" + s), 3)
        a = coda.attention(*[coda.concat(1, [x, y]) for x, y in zip(qkv["x"], qkv["c"])], heads=self.count)
        for s, of in ("x", a[:, :self.tokens]), ("c", a[:, self.tokens:]):
            h = t[s] + m[s][2] * self.linear_graph(t, of, "o_" + s)
            yield h + m[s][5] * self.mlp_graph(t, modulated_graph(h, m[s][3], m[s][4]), s)

    def all(self, t):
        m, qkv, out = {s: t["mod_" + s].chunk(6, -1) for s in "xc"}, {}, []
        for s in "xc":
            qkv[s] = self.linear(t, modulated(t[s], m[s][0], m[s][1]), "qkv_" + s).chunk(3, -1)
        a = serving_cases.attend(*(serving_cases.heads(torch.cat(z, 1), self.count) for z in zip(qkv["x"], qkv["c"])))
        for s, of in ("x", a[:, :self.tokens]), ("c", a[:, self.tokens:]):
            h = t[s] + m[s][2] * self.linear(t, of, "o_" + s)
            out.append(h + m[s][5] * self.mlp(t, modulated(h, m[s][3], m[s][4]), s))
        return out


class Flux(Block):
    """The single block: one product of q, k, v and the MLP, one of attention and activation."""
    sections = 8, 28, 28

    def __init__(self, device, tokens, hidden=3072, count=24, batch=1):
        super().__init__("picture/flux_single/%dx%d" % (batch, tokens), device)
        self.hidden, self.count, self.tokens = hidden, count, tokens
        self.shapes = (batch, tokens, hidden),

    def tensors(self):
        d, made = self.hidden, {"x": self.random(*self.shapes[0])}
        self.vectors(made, "mod", self.shapes[0][0], 3 * d)
        side = math.isqrt(self.tokens)
        made["positions"] = self.ints([[0, i // side, i % side] for i in range(self.tokens)])
        made["frequencies"] = torch.cat([10000.0 ** -(torch.arange(n) / n) for n in self.sections]).to(self.device)
        made["g_q"], made["g_k"] = (1 + self.random(d // self.count, by=0.1) for _ in "qk")
        self.weight(made, "in", 7 * d, d)
        self.weight(made, "out", d, 5 * d)
        return made

    def graph(self, g, t):
        d, dim = self.hidden, self.hidden // self.count
        shift, scale, gate = columns(t["mod"], 3)
        p = self.linear_graph(t, modulated_graph(t["x"], shift, scale), "in")

        def turned(x, gain):
            x = coda.rms_norm(x.reshape(*x.shape[:-1], self.count, dim), t[gain], EPS).reshape(*x.shape)
            return coda.rope(x, t["positions"], head_dim=dim, style="interleaved", sections=self.sections,
                             frequencies=t["frequencies"])
        a = coda.attention(turned(p[..., :d], "g_q"), turned(p[..., d:2 * d], "g_k"), p[..., 2 * d:3 * d],
                           heads=self.count)
        both = coda.concat(2, [a, coda.gelu_tanh(p[..., 3 * d:])])
        yield t["x"] + gate * self.linear_graph(t, both, "out")

    def turned(self, t, x, gain):
        x = serving_cases.heads(x, self.count)
        x = F.rms_norm(x, x.shape[-1:], t[gain], EPS)
        axis = torch.tensor([i for i, n in enumerate(self.sections) for _ in range(n)], device=self.device)
        angle = t["positions"].float()[:, axis] * t["frequencies"].float()
        even, odd = x.float()[..., 0::2], x.float()[..., 1::2]
        cos, sin = angle.cos(), angle.sin()
        return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2).to(x.dtype)

    def all(self, t):
        d = self.hidden
        shift, scale, gate = t["mod"].chunk(3, -1)
        q, k, v, m = self.linear(t, modulated(t["x"], shift, scale), "in").split([d, d, d, 4 * d], -1)
        a = serving_cases.attend(self.turned(t, q, "g_q"), self.turned(t, k, "g_k"), serving_cases.heads(v, self.count))
        both = torch.cat((a, F.gelu(m, approximate="tanh")), -1)
        return t["x"] + gate * self.linear(t, both, "out"),


class DiT(Block):
    """adaLN-Zero; heads of 72 columns."""

    def __init__(self, device, batch, tokens=256, hidden=1152, count=16):
        super().__init__("picture/dit/%dx%d" % (batch, tokens), device)
        self.hidden, self.count = hidden, count
        self.shapes = (batch, tokens, hidden),

    def tensors(self):
        d, made = self.hidden, {"x": self.random(*self.shapes[0])}
        self.vectors(made, "mod", self.shapes[0][0], 6 * d)
        for name, n, k in (("qkv", 3 * d, d), ("o", d, d), ("up_x", 4 * d, d), ("down_x", d, 4 * d)):
            self.weight(made, name, n, k)
        return made

    def graph(self, g, t):
        s1, a1, g1, s2, a2, g2 = columns(t["mod"], 6)
        q, k, v = columns(self.linear_graph(t, modulated_graph(t["x"], s1, a1), "qkv"), 3)
        h = t["x"] + g1 * self.linear_graph(t, coda.attention(q, k, v, heads=self.count), "o")
        yield h + g2 * self.mlp_graph(t, modulated_graph(h, s2, a2), "x")

    def all(self, t):
        s1, a1, g1, s2, a2, g2 = t["mod"].chunk(6, -1)
        q, k, v = self.linear(t, modulated(t["x"], s1, a1), "qkv").chunk(3, -1)
        h = t["x"] + g1 * self.linear(t, serving_cases.attend(*(serving_cases.heads(z, self.count) for z in (q, k, v))), "o")
        return h + g2 * self.mlp(t, modulated(h, s2, a2), "x"),


# ---- Latent vectors ----

class Latent(Case):
    """The products ahead of DeepSeek-V3's attention: latent vectors of queries, of keys and values, with a norm of each."""

    def __init__(self, device, rows, hidden=7168, q=1536, c=512, turned=64, heads=128):
        super().__init__("latent/%d" % rows, device)
        self.rows, self.hidden, self.q, self.c, self.turned, self.heads = rows, hidden, q, c, turned, heads
        self.shapes = (rows, heads * 192), (rows, heads * 256), (rows, turned)

    weights = "w_down", "w_q", "w_kv", "g_q", "g_c"

    def tensors(self):
        d, q, c = self.hidden, self.q, self.c
        sizes = {"w_down": (q + c + self.turned, d), "w_q": (self.heads * 192, q), "w_kv": (self.heads * 256, c)}
        made = {"x": self.random(self.rows, d), **{n: self.random(*z, by=z[1] ** -0.5) for n, z in sizes.items()}}
        return {**made, "g_q": 1 + self.random(q, by=0.1), "g_c": 1 + self.random(c, by=0.1)}

    def parts(self, p):
        return p[..., :self.q], p[..., self.q:self.q + self.c], p[..., self.q + self.c:]

    def graph(self, g, t):
        q, c, k = self.parts(coda.matmul(t["x"], t["w_down"]))
        yield coda.matmul(coda.rms_norm(q, t["g_q"], EPS), t["w_q"])
        yield coda.matmul(coda.rms_norm(c, t["g_c"], EPS), t["w_kv"])
        yield coda.silu(k)

    def all(self, t):
        q, c, k = self.parts(F.linear(t["x"], t["w_down"]))
        q, c = F.rms_norm(q, (self.q,), t["g_q"], EPS), F.rms_norm(c, (self.c,), t["g_c"], EPS)
        return F.linear(q, t["w_q"]), F.linear(c, t["w_kv"]), F.silu(k)

    def products(self, t):
        """Nothing but these, of what lies ready."""
        p = F.linear(t["x"], t["w_down"])
        return F.linear(p[:, :self.q], t["w_q"]), F.linear(p[:, self.q:self.q + self.c], t["w_kv"])

    def peers(self):
        yield from super().peers()
        yield "products", self.products


# ---- States ----

class Recurrent(Case):
    """States begin as zeros and are left by each run: the first one is compared with fp32, token by token."""
    out, allowed = torch.bfloat16, 2e-2

    def like(self, *shape, by=1.0):
        return torch.randn(shape, device=self.device) * by

    def peers(self):
        if self.tokens == 1:
            yield "stream", lambda t: t["room"].copy_(t["s"])
        if importlib.util.find_spec("fla"):
            yield "fla", self.fla

    def copy(self):
        t = super().copy()
        if self.tokens == 1:
            t = {**t, "room": torch.empty_like(t["s"])}
        return t


class Delta(Recurrent):
    states = "s",

    def __init__(self, device, batch, tokens, key_heads=16, count=32, dim=128):
        super().__init__("delta/%dx%d" % (batch, tokens), device)
        self.batch, self.tokens, self.key_heads, self.count, self.dim = batch, tokens, key_heads, count, dim
        self.shapes = (batch, tokens, count * dim),
        self.bytes = 8 * batch * count * dim * dim

    def tensors(self):
        b, n, keys, h = self.batch, self.tokens, self.key_heads * self.dim, self.count
        return {"q": self.random(b, n, keys), "k": self.random(b, n, keys), "v": self.random(b, n, h * self.dim),
                "d": F.logsigmoid(self.like(b, n, h) + 3), "b": torch.sigmoid(self.like(b, n, h)),
                "s": torch.zeros(b, h, self.dim, self.dim, device=self.device)}

    def graph(self, g, t):
        y, after = coda.delta(t["q"], t["k"], t["v"], t["d"], t["b"], t["s"], None, heads=self.count,
                              key_heads=self.key_heads, norm=1, eps=EPS)
        coda.assign(t["s"], after)
        yield y

    def by_head(self, t):
        q, k, v = (t[n].unflatten(-1, (-1, self.dim)) for n in "qkv")
        return q, k, v

    def formula(self, t):
        q, k, v = (x.float() for x in self.by_head(t))
        q, k = ((x * torch.rsqrt((x * x).sum(-1, keepdim=True) + EPS)).repeat_interleave(
            self.count // self.key_heads, 2) for x in (q, k))
        keep, beta, y = t["d"].float().exp(), t["b"].float(), torch.empty_like(v)
        s = torch.zeros(self.batch, self.count, self.dim, self.dim, device=self.device)
        for i in range(self.tokens):
            s = s * keep[:, i, :, None, None]
            e = beta[:, i, :, None] * (v[:, i] - torch.einsum("bhk,bhkv->bhv", k[:, i], s))
            s = s + k[:, i, :, :, None] * e[:, :, None]
            y[:, i] = torch.einsum("bhk,bhkv->bhv", q[:, i], s) * self.dim ** -0.5
        return y.flatten(2)

    def fla(self, t):
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule
        rule = fused_recurrent_gated_delta_rule if self.tokens == 1 else chunk_gated_delta_rule
        q, k, v = self.by_head(t)
        y, after = rule(q, k, v, t["d"], beta=t["b"], initial_state=t["s"], output_final_state=True,
                        use_qk_l2norm_in_kernel=True)
        return y, after


class Scan(Recurrent):
    """Heads of one column are Mamba's, whose decay has each of a column's states; more are SSD's."""
    states, weights = ("s",), ("a", "bias", "skip")

    def __init__(self, device, batch, tokens, count, dim, n):
        super().__init__("scan/%s/%dx%d" % ("ssd" if dim > 1 else "mamba", batch, tokens), device)
        self.batch, self.tokens, self.count, self.dim, self.n = batch, tokens, count, dim, n
        self.shapes = (batch, tokens, count * dim),
        self.bytes = 8 * batch * count * dim * n

    def tensors(self):
        b, length, h, n = self.batch, self.tokens, self.count, self.n
        t = {"x": self.random(*self.shapes[0]), "dt": self.random(b, length, h),
             "a": -(1 + torch.arange(n, device=self.device).float()).repeat(h, 1) if self.dim == 1
             else -torch.rand(h, device=self.device) * 15 - 1,
             "b": self.random(b, length, n), "c": self.random(b, length, n),
             "bias": self.like(h) - 4, "skip": self.like(h)}
        if self.dim == 1:
            t["gate"] = self.random(*self.shapes[0])
        t["s"] = torch.zeros(b, h * self.dim, n, device=self.device)
        return t

    def graph(self, g, t):
        y, after = coda.scan(t["x"], t["dt"], t["a"], t["b"], t["c"], t["s"], None, softplus=1, dt_bias=t["bias"],
                             skip=t["skip"], gate=t.get("gate"))
        coda.assign(t["s"], after)
        yield y

    def steps(self, t):
        """softplus of the steps, by head."""
        return F.softplus(t["dt"].float() + t["bias"].float())

    def formula(self, t):
        x = t["x"].float().unflatten(-1, (self.count, self.dim))
        d, a, b, c = self.steps(t), t["a"].float().view(self.count, -1), t["b"].float(), t["c"].float()
        s, y = torch.zeros(self.batch, self.count, self.dim, self.n, device=self.device), torch.empty_like(x)
        for i in range(self.tokens):
            keep = (d[:, i, :, None] * a).exp()[:, :, None]
            s = keep * s + (d[:, i, :, None] * x[:, i])[..., None] * b[:, i, None, None]
            y[:, i] = (s * c[:, i, None, None]).sum(-1)
        y = (y + t["skip"].float()[:, None] * x).flatten(2)
        return y * F.silu(t["gate"].float()) if "gate" in t else y

    def peers(self):
        if self.dim > 1:
            yield from super().peers()
            yield from serving_peers.states(self)

    def fla(self, t):
        """SSD is a gated linear attention: c asks, b is the key, d x the value, d a the logarithm of the gate."""
        from fla.ops.simple_gla import chunk_simple_gla, fused_recurrent_simple_gla
        rule = fused_recurrent_simple_gla if self.tokens == 1 else chunk_simple_gla
        x, d = t["x"].unflatten(-1, (self.count, self.dim)), self.steps(t)
        c, b = (t[n][:, :, None].expand(-1, -1, self.count, -1).contiguous() for n in "cb")
        y, after = rule(c, b, (x * d[..., None]).to(x.dtype), d * t["a"], scale=1.0, output_final_state=True,
                        initial_state=t["s"].view(self.batch, self.count, self.dim, self.n).mT.contiguous())
        return y + x * t["skip"].to(x.dtype)[:, None], after


# ---- All ----

def all_cases(opt):
    if opt.cpu:
        return [SD3("cpu", 16, text=7, hidden=128, count=2), Flux("cpu", 16, hidden=256, count=2),
                DiT("cpu", 2, tokens=16, hidden=144, count=2),
                Latent("cpu", 9, hidden=128, q=384, c=320, heads=2), Delta("cpu", 2, 9, 2, 4, 16),
                Scan("cpu", 2, 9, 8, 1, 4), Scan("cpu", 2, 9, 4, 8, 4)]
    heads = [serving_cases.Attention("head", "cuda", 2, t, t, 24, 24, 64, False) for t in (1357, 4429)]
    heads += [serving_cases.Attention("head", "cuda", 2, 4096, 4096, 16, 16, n, False) for n in (64, 72, 80, 96, 128)]
    for case in heads:
        case.name = case.name.replace("serving/", "")
    return [SD3("cuda", 1024), SD3("cuda", 4096), Flux("cuda", 4608), DiT("cuda", 8)] + heads + [
        Latent("cuda", 16), Latent("cuda", 4096),
        Delta("cuda", 1, 8192), Delta("cuda", 8, 2048), Delta("cuda", 64, 1), Delta("cuda", 1, 1),
        Scan("cuda", 1, 8192, 5120, 1, 16), Scan("cuda", 1, 8192, 80, 64, 128), Scan("cuda", 64, 1, 80, 64, 128)]


if __name__ == "__main__":
    sys.exit(serving.main("families", all_cases, __doc__))

"""families_pictures.py -- blocks of diffusion transformers and the products ahead of DeepSeek's attention, cases of families.py."""
import math

import serving_cases
import torch
import torch.nn.functional as F
from families_cases import EPS, Case, columns

import libcoda as coda


def modulated(x, shift, scale):
    return F.layer_norm(x, x.shape[-1:], eps=EPS) * (1 + scale) + shift


def modulated_graph(x, shift, scale):
    return coda.layer_norm(x, None, None, EPS) * (scale + 1) + shift


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

"""families_layers.py -- layers that carry a state, from their norm to the residual, cases of families.py.

A peer is the layer's formula by torch.compile with a package's Triton kernels, or triton_scan.py, for what carries the
state. The convolution is a sum of shifted rows there, which a compiler makes one kernel of.
"""
import importlib.util

import serving_peers
import torch
import torch.nn.functional as F
from families_cases import EPS
from families_states import Delta, Recurrent, Scan

import libcoda as coda

TAPS = 4


class Layer(Recurrent):
    """x + mixer(rms_norm(x)). The state of the convolution is "rows", that of the rule "s"; a `rule` computes the latter."""
    states = "rows", "s"

    def __init__(self, name, rule, hidden, mixed):
        super().__init__("recurrent/%s/%dx%d" % (name, rule.batch, rule.tokens), rule.device)
        self.rule, self.hidden, self.mixed = rule, hidden, mixed
        self.batch, self.tokens = rule.batch, rule.tokens
        self.shapes = (self.batch, self.tokens, hidden),

    @property
    def weights(self):
        return [n for n in self.tensors() if n not in ("x",) + self.states]

    def matrix(self, n, k):
        return self.random(n, k, by=k ** -0.5)

    def common(self, n_in, n_out):
        d = self.hidden
        return {"x": self.random(*self.shapes[0]), "g_in": 1 + self.random(d, by=0.1), "w_in": self.matrix(n_in, d),
                "taps": self.random(self.mixed, TAPS, by=0.5), "w_out": self.matrix(d, n_out),
                "rows": torch.zeros(self.batch, TAPS - 1, self.mixed, dtype=self.out, device=self.device)}

    def convolved_graph(self, t, x):
        y, after = coda.conv1d(x, t["taps"], t.get("taps_bias"), t["rows"], None)
        coda.assign(t["rows"], after)
        return coda.silu(y)

    def convolved(self, t, x):
        """Also the rows that the next run begins with."""
        both = torch.cat((t["rows"].to(x.dtype), x), 1)
        y = sum(both[:, j:j + self.tokens] * t["taps"][:, j] for j in range(TAPS))
        return F.silu(y + t["taps_bias"] if "taps_bias" in t else y), both[:, self.tokens:]

    def graph(self, g, t):
        yield t["x"] + coda.matmul(self.mixer_graph(t, coda.matmul(coda.rms_norm(t["x"], t["g_in"], EPS), t["w_in"])), t["w_out"])

    def all(self, t, rule):
        y, *states = self.mixer(t, F.linear(F.rms_norm(t["x"], (self.hidden,), t["g_in"], EPS), t["w_in"]), rule)
        return t["x"] + F.linear(y, t["w_out"]), *states

    def formula(self, t):
        """From states that are zeros, as libcoda's first run was."""
        t = {**t, "rows": torch.zeros_like(t["rows"])}
        return self.all(t, lambda part: (self.rule.formula(part).to(t["x"].dtype), None))[0]

    def compiled(self, rule):
        """Kernels of packages run as they are, between the graphs that the compiler makes of the rest."""
        torch._dynamo.reset()
        rule = torch.compiler.disable(rule)
        return torch.compile(lambda t: self.all(t, rule), dynamic=False)


class DeltaLayer(Layer):
    """Of Qwen3.5-35B-A3B, without its experts. Columns of the product in front: q, k, v, gate, beta, decay."""

    def __init__(self, device, batch, tokens, hidden=2048, key_heads=16, count=32, dim=128):
        rule = Delta(device, batch, tokens, key_heads, count, dim)
        super().__init__("delta", rule, hidden, (2 * key_heads + count) * dim)

    def tensors(self):
        h, inner = self.rule.count, self.rule.count * self.rule.dim
        return {**self.common(self.mixed + inner + 2 * h, inner), "gain": 1 + self.random(self.rule.dim, by=0.1),
                "rate": torch.rand(h, device=self.device) + 0.1, "bias": self.like(h),
                "s": torch.zeros(self.batch, h, self.rule.dim, self.rule.dim, device=self.device)}

    def parts(self, p):
        """Of the product in front: what is convolved, gate, beta and decay."""
        inner, h = self.rule.count * self.rule.dim, self.rule.count
        at = [0, self.mixed, self.mixed + inner, self.mixed + inner + h, self.mixed + inner + 2 * h]
        return [p[..., i:j] for i, j in zip(at, at[1:])]

    def sections(self, u):
        n = self.rule.key_heads * self.rule.dim
        return u[..., :n], u[..., n:2 * n], u[..., 2 * n:]

    def mixer_graph(self, t, p):
        r, (u, z, beta, a) = self.rule, self.parts(p)
        q, k, v = self.sections(self.convolved_graph(t, u))
        decay = coda.softplus(a.astype("f32") + t["bias"]) * -t["rate"]
        y, after = coda.delta(q, k, v, decay, coda.sigmoid(beta.astype("f32")), t["s"], None, heads=r.count,
                              key_heads=r.key_heads, norm=1, eps=EPS)
        coda.assign(t["s"], after)
        by_head = (*y.shape[:-1], r.count, r.dim)
        return (coda.rms_norm(y.reshape(*by_head), t["gain"], EPS) * coda.silu(z.reshape(*by_head))).reshape(*y.shape)

    def mixer(self, t, p, rule):
        u, z, beta, a = self.parts(p)
        u, rows = self.convolved(t, u)
        q, k, v = self.sections(u)
        decay = F.softplus(a.float() + t["bias"]) * -t["rate"]
        y, after = rule({"q": q, "k": k, "v": v, "d": decay, "b": torch.sigmoid(beta.float()), "s": t["s"]})
        y = F.rms_norm(y.unflatten(-1, (self.rule.count, self.rule.dim)), (self.rule.dim,), t["gain"], EPS)
        return y.reshape(z.shape) * F.silu(z), rows, after

    def peers(self):
        if importlib.util.find_spec("fla"):
            yield "fla", self.compiled(lambda part: self.rule.fla(part))


class MambaLayer(Layer):
    """Of Mamba 2.8B. Columns of the product in front: what is convolved, gate."""

    def __init__(self, device, batch, tokens, hidden=2560, inner=5120, rank=160, n=16):
        super().__init__("mamba", Scan(device, batch, tokens, inner, 1, n), hidden, inner)
        self.rank = rank

    def tensors(self):
        inner, n = self.mixed, self.rule.n
        return {**self.common(2 * inner, inner), "taps_bias": self.random(inner, by=0.1),
                "w_x": self.matrix(self.rank + 2 * n, inner), "w_dt": self.matrix(inner, self.rank),
                "a": -(1 + torch.arange(n, device=self.device).float()).repeat(inner, 1), "bias": self.like(inner) - 4,
                "skip": self.like(inner), "s": torch.zeros(self.batch, inner, n, device=self.device)}

    def parts(self, p):
        r, n = self.rank, self.rule.n
        return p[..., :r], p[..., r:r + n], p[..., r + n:]

    def mixer_graph(self, t, p):
        u = self.convolved_graph(t, p[..., :self.mixed])
        d, b, c = self.parts(coda.matmul(u, t["w_x"]))
        y, after = coda.scan(u, coda.matmul(d, t["w_dt"]), t["a"], b, c, t["s"], None, softplus=1, dt_bias=t["bias"],
                             skip=t["skip"], gate=p[..., self.mixed:])
        coda.assign(t["s"], after)
        return y

    def mixer(self, t, p, rule):
        u, rows = self.convolved(t, p[..., :self.mixed])
        d, b, c = self.parts(F.linear(u, t["w_x"]))
        y, after = rule({"x": u, "dt": F.linear(d, t["w_dt"]), "b": b, "c": c, "gate": p[..., self.mixed:],
                         **{n: t[n] for n in ("a", "bias", "skip", "s")}})
        return y, rows, after

    def peers(self):
        if self.device == "cuda":
            yield "triton", self.compiled(serving_peers.scan)


class Mamba2Layer(Layer):
    """Of Mamba-2 2.7B. Columns of the product in front: gate, what is convolved (x, b, c), steps."""

    def __init__(self, device, batch, tokens, hidden=2560, count=80, dim=64, n=128):
        super().__init__("mamba2", Scan(device, batch, tokens, count, dim, n), hidden, count * dim + 2 * n)

    def tensors(self):
        h, inner, n = self.rule.count, self.rule.count * self.rule.dim, self.rule.n
        return {**self.common(inner + self.mixed + h, inner), "taps_bias": self.random(self.mixed, by=0.1),
                "a": -torch.rand(h, device=self.device) * 15 - 1, "bias": self.like(h) - 4, "skip": self.like(h),
                "gain": 1 + self.random(inner, by=0.1), "s": torch.zeros(self.batch, inner, n, device=self.device)}

    def parts(self, p):
        inner = self.rule.count * self.rule.dim
        return p[..., :inner], p[..., inner:inner + self.mixed], p[..., inner + self.mixed:]

    def sections(self, u):
        inner, n = self.rule.count * self.rule.dim, self.rule.n
        return u[..., :inner], u[..., inner:inner + n], u[..., inner + n:]

    def mixer_graph(self, t, p):
        z, u, dt = self.parts(p)
        x, b, c = self.sections(self.convolved_graph(t, u))
        y, after = coda.scan(x, dt.astype("f32"), t["a"], b, c, t["s"], None, softplus=1, dt_bias=t["bias"], skip=t["skip"], gate=z)
        coda.assign(t["s"], after)
        return coda.rms_norm(y, t["gain"], EPS)

    def mixer(self, t, p, rule):
        z, u, dt = self.parts(p)
        u, rows = self.convolved(t, u)
        x, b, c = self.sections(u)
        y, after = rule({"x": x, "dt": dt, "b": b, "c": c, **{n: t[n] for n in ("a", "bias", "skip", "s")}})
        return F.rms_norm(y.reshape(z.shape) * F.silu(z), z.shape[-1:], t["gain"], EPS), rows, after

    def peers(self):
        if importlib.util.find_spec("fla"):
            yield "fla", self.compiled(lambda part: self.rule.fla(part))
        for name, rule in serving_peers.states(self.rule):
            yield name, self.compiled(rule)

"""families_states.py -- operations that carry a state along a sequence, cases of families.py."""
import importlib.util

import serving_peers
import torch
import torch.nn.functional as F
from families_cases import EPS, Case

import libcoda as coda


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
        return y.flatten(2), after


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
        return (y + x * t["skip"].to(x.dtype)[:, None]).flatten(2), after

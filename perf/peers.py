"""peers.py -- the patterns and the layer of pytorch.py as XLA, Liger and quack compute them.

`formulas(case)` yields (name, prepare): prepare() returns a function without arguments that computes the case's
outputs as that peer's users would write it, with weights in the order that it likes best. A peer whose package
is missing yields nothing.

    liger   torch's products, and Liger's kernels for add + RMSNorm, SwiGLU, RoPE and linear cross-entropy
    quack   quack's products with their epilogues (statistic, gain, activation); RoPE and loss are kernels of its
            own after the product; the fastest of three tiles, found before anything is timed
    jax     jax.jit of the same formula, by the host's clock
"""
import importlib.util

import torch
import torch.nn.functional as F

EPS = 1e-5
HEAD = 128


def has(package):
    return importlib.util.find_spec(package) is not None


def formulas(case, with_jax):
    if has("liger_kernel"):
        yield "liger", lambda: Liger(case).formula
    if has("quack"):
        yield "quack", lambda: Quack(case).formula
    if with_jax and has("jax"):
        yield "jax", lambda: Jax(case).formula


class Peer:
    """A formula for each kind of case. norm(), gated() and so on are the peer's own."""

    def __init__(self, case):
        self.case, self.t = case, case.tensors

    def formula(self):
        return getattr(self, self.case.kind)()

    def waits(self):
        """Whether the formula waits for the device, so that no CUDA graph can hold it."""
        return False


# ---- Liger: kernels between torch's products ----

class Liger(Peer):
    def __init__(self, case):
        super().__init__(case)
        from liger_kernel.transformers import functional
        self.f = functional
        self.cos, self.sin = (torch.cat((case.tensors[n][:, 0],) * 2, -1).bfloat16()[None]
                              for n in ("cos", "sin"))

    def waits(self):
        return self.case.kind == "loss"

    def added(self, gain="gain", base="r"):
        """h = a w' + base, and its norm."""
        y, h = self.f.liger_fused_add_rms_norm(F.linear(self.t["a"], self.t["w" if base == "r" else "w_o"]),
                                               self.t[base], self.t[gain], EPS, 0.0, "llama", False)
        return h, y

    def gated(self, y):
        gate, up = y.chunk(2, -1)
        return self.f.liger_swiglu(gate, up)

    def rotated(self, y):
        m, n = y.shape
        q, k = (y[:, i * n // 3:(i + 1) * n // 3].view(1, m, -1, HEAD).transpose(1, 2) for i in (0, 1))
        q, k = self.f.liger_rope(q, k, self.cos, self.sin)
        return torch.cat([x.transpose(1, 2).reshape(m, -1) for x in (q, k)], -1)

    def plain(self):
        h, x = self.added()
        return h, F.linear(x, self.t["v"])

    def swiglu(self):
        h, y = self.plain()
        return h, self.gated(y)

    def rope(self):
        h, y = self.plain()
        return h, self.rotated(y), y

    def loss(self):
        x = self.added()[1]
        return self.f.liger_fused_linear_cross_entropy(x, self.t["v"], self.t["target"].long(), reduction="none"),

    def layer(self):
        x = self.f.liger_rms_norm(self.t["x"], self.t["gain"], EPS, 0.0, "llama", False)
        qkv = F.linear(x, self.t["w_qkv"])
        h, x = self.added("gain_mlp", "x")
        z = self.gated(F.linear(x, self.t["w_gate_up"]))
        return self.rotated(qkv), F.linear(z, self.t["w_down"]) + h, qkv


# ---- quack: products with epilogues ----

class Quack(Peer):
    TILES = ((128, 192, True), (256, 128, False), (128, 256, False))  # rows, columns, ping-pong

    def __init__(self, case):
        super().__init__(case)
        from quack import gemm_interface, linear_cross_entropy, rmsnorm, rotary
        from quack.gemm_config import GemmConfig
        self.gemm, self.cross_entropy = gemm_interface, linear_cross_entropy.linear_cross_entropy_func
        self.rms_norm, self.rotary = rmsnorm, rotary.apply_rotary_emb
        self.cos, self.sin = (case.tensors[n][:, 0].bfloat16() for n in ("cos", "sin"))
        self.w = {n: self.weight(n).mT for n in case.weights if case.tensors[n].dim() == 2}
        self.config = self.fastest([GemmConfig(tile_m=m, tile_n=n, pingpong=p, cluster_m=2, cluster_n=1,
                                               is_dynamic_persistent=False, device_capacity=9)
                                    for m, n, p in self.TILES])

    def weight(self, name):
        """Gate and up rows in turns, which is how its gated epilogues take them."""
        w = self.t[name]
        gates = name == "w_gate_up" or (name == "v" and self.case.kind == "swiglu")
        return torch.stack(w.chunk(2), 1).flatten(0, 1).contiguous() if gates else w

    def fastest(self, configs):
        times = []
        for self.config in configs:
            with torch.no_grad():
                self.formula()
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                for _ in range(5):
                    self.formula()
                end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end))
        return configs[times.index(min(times))]

    def product(self, x, w, rstd=None, activation=None):
        return self.gemm.gemm_norm_act(x, self.w[w], rstd=rstd, activation=activation, tuned=False,
                                       config=self.config)[1]

    def added(self, w, base, gain):
        h = torch.empty_like(self.t[base])
        x, rstd = self.gemm.gemm_rms(self.t["a"], self.w[w], C=self.t[base], norm_weight=self.t[gain],
                                     premult_out=h, eps=EPS, tuned=False, config=self.config)
        return h, x, rstd

    def rotated(self, y):
        m, n = y.shape
        x = y[:, :2 * n // 3].view(1, m, -1, HEAD)
        return self.rotary(x, self.cos, self.sin).view(m, -1)

    def plain(self, activation=None):
        h, x, rstd = self.added("w", "r", "gain")
        return h, self.product(x, "v", rstd, activation)

    def swiglu(self):
        return self.plain("swiglu")

    def rope(self):
        h, y = self.plain()
        return h, self.rotated(y), y

    def loss(self):
        h = self.gemm.gemm_add(self.t["a"], self.w["w"], self.t["r"], tuned=False)
        x = self.rms_norm.rmsnorm(h, self.t["gain"], eps=EPS)
        return self.cross_entropy(x, self.t["v"], None, self.t["target"].long(), reduction="none"),

    def layer(self):
        x = self.rms_norm.rmsnorm(self.t["x"], self.t["gain"], eps=EPS)
        qkv = self.product(x, "w_qkv")
        h, x, rstd = self.added("w_o", "x", "gain_mlp")
        z = self.product(x, "w_gate_up", rstd, "swiglu")
        return self.rotated(qkv), self.gemm.gemm_add(z, self.w["w_down"], h, tuned=False), qkv


# ---- JAX ----

class Jax(Peer):
    def __init__(self, case):
        super().__init__(case)
        import jax
        import jax.numpy as jnp
        self.jax, self.jnp = jax, jnp
        self.x = {n: jnp.from_dlpack(t) for n, t in case.tensors.items()}
        self.call = jax.jit(getattr(self, case.kind))

    def formula(self):
        return self.jax.block_until_ready(self.call(self.x))

    def several(self, n):
        for _ in range(n):
            y = self.call(self.x)
        self.jax.block_until_ready(y)

    def linear(self, a, w):
        return self.jax.lax.dot_general(a, w, (((1,), (1,)), ((), ())))

    def norm(self, a, gain):
        f = a.astype(self.jnp.float32)
        scale = self.jax.lax.rsqrt(self.jnp.mean(f * f, -1, keepdims=True) + EPS)
        return (f * scale).astype(a.dtype) * gain

    def gated(self, y):
        gate, up = self.jnp.split(y, 2, -1)
        return self.jax.nn.silu(gate) * up

    def rotated(self, qkv, t):
        heads = qkv[:, :2 * qkv.shape[1] // 3].reshape(qkv.shape[0], -1, HEAD).astype(self.jnp.float32)
        a, b = self.jnp.split(heads, 2, -1)
        y = self.jnp.concatenate((a * t["cos"] - b * t["sin"], b * t["cos"] + a * t["sin"]), -1)
        return y.astype(qkv.dtype).reshape(qkv.shape[0], -1)

    def plain(self, t):
        h = self.linear(t["a"], t["w"]) + t["r"]
        return h, self.linear(self.norm(h, t["gain"]), t["v"])

    def swiglu(self, t):
        h, y = self.plain(t)
        return h, self.gated(y)

    def rope(self, t):
        h, y = self.plain(t)
        return h, self.rotated(y, t), y

    def loss(self, t):
        y = self.plain(t)[1].astype(self.jnp.float32)
        target = self.jnp.take_along_axis(y, t["target"][:, None], 1)[:, 0]
        return self.jax.scipy.special.logsumexp(y, 1) - target,

    def layer(self, t):
        qkv = self.linear(self.norm(t["x"], t["gain"]), t["w_qkv"])
        h = self.linear(t["a"], t["w_o"]) + t["x"]
        z = self.gated(self.linear(self.norm(h, t["gain_mlp"]), t["w_gate_up"]))
        return self.rotated(qkv, t), self.linear(z, t["w_down"]) + h, qkv

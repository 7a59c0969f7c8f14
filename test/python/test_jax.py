#!/usr/bin/env python3
"""test_jax.py -- gradients of blocks, as coda_grad makes them, beside those of jax.vjp in fp64.

The graphs are evaluated in fp64, where both may differ by rounding alone, and run as plans in fp32 on the CPU device.
Prints CODA_SEED, from which leaves and cotangents are drawn.
"""
import os
import sys

try:
    import jax
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    import jax.numpy as jnp
    import numpy as np
except ImportError as e:
    print("test_jax.py: skipped: %s" % e)
    sys.exit(0)

import formulas
from formulas import EPS, HEAD, IGNORED


class Jax(formulas.Arithmetic):
    """Formulas of the papers: RMSNorm, LayerNorm, GELU, SwiGLU, RoPE, attention."""
    eps = float(np.float32(EPS))

    def linear(self, x, w):
        return x @ w.T

    def norm(self, x, gain):
        return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + self.eps) * gain

    def layer_norm(self, x, gain, shift):
        mean = x.mean(-1, keepdims=True)
        return (x - mean) / jnp.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + self.eps) * gain + shift

    def gelu_tanh(self, x):
        return jax.nn.gelu(x, approximate=True)

    def gelu_erf(self, x):
        return jax.nn.gelu(x, approximate=False)

    def swiglu(self, x):
        gate, up = jnp.split(x, 2, -1)
        return jax.nn.silu(gate) * up

    def geglu(self, x):
        gate, up = jnp.split(x, 2, -1)
        return jax.nn.gelu(gate, approximate=True) * up

    def softmax(self, x):
        return jax.nn.softmax(x, -1)

    def tanh(self, x):
        return jnp.tanh(x)

    def columns(self, x, a, b):
        return x[..., a:b]

    def heads(self, x, n):
        return x.reshape(*x.shape[:-1], n, -1)

    def together(self, x):
        return x.reshape(*x.shape[:-2], -1)

    def rope(self, x, heads):
        x = self.heads(x, heads)
        angle = jnp.arange(x.shape[1])[:, None] * 10000.0 ** (-jnp.arange(0, HEAD, 2) / HEAD)
        turn = jnp.exp(1j * angle)[:, None]
        y = (x[..., :HEAD // 2] + 1j * x[..., HEAD // 2:]) * turn
        return self.together(jnp.concatenate((y.real, y.imag), -1))

    def attention(self, q, k, v, heads, kv_heads, causal=False, window=0, softcap=0.0):
        q, k, v = (self.heads(x, n) for x, n in ((q, heads), (k, kv_heads), (v, kv_heads)))
        k, v = (jnp.repeat(x, heads // kv_heads, 2) for x in (k, v))
        s = jnp.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(q.shape[-1])
        if softcap:
            s = softcap * jnp.tanh(s / softcap)
        i, j = (jnp.arange(n) for n in s.shape[2:])
        seen = jnp.ones(s.shape[2:], bool)
        if causal:
            seen &= i[:, None] >= j
        if window:
            seen &= i[:, None] - j < window
        p = jax.nn.softmax(jnp.where(seen, s, -jnp.inf), -1)
        return self.together(jnp.einsum("bhij,bjhd->bihd", p, v))

    def table(self, w, ids):
        return w[ids]

    def loss(self, logits, target):
        taken = jnp.take_along_axis(jax.nn.log_softmax(logits, -1), jnp.maximum(target, 0)[..., None], -1)[..., 0]
        counts = target != IGNORED
        return (-jnp.where(counts, taken, 0).sum() / counts.sum())[None]


def drawn(case, seed):
    random, leaves = np.random.default_rng(seed), {}
    for name, shape in case.shapes.items():
        if name in case.integers:
            leaves[name] = random.integers(case.integers[name], size=shape).astype(np.int32)
            if name == "target":
                leaves[name].flat[::5] = IGNORED
        else:
            factor, shift = formulas.size_of(name, shape)
            leaves[name] = (random.standard_normal(shape) * factor + shift).astype(np.float32)
    return leaves


def run(case, leaves):
    """By name: in fp64 by evaluation, in fp32 on the CPU device."""
    g = formulas.graph_of(case, "f32", weights=False)
    results = [a for a in g.args if a.kind == "output"]
    exact = [np.asarray(y) for y in g.evaluate(**leaves)]
    plain = {a.name: np.full(a.dims, np.nan, np.float32) for a in results}
    g.compile("cpu")(leaves, out=plain)
    return [{a.name: y for a, y in zip(results, exact)}, plain]


def wanted(case, leaves):
    exact = {n: x if n in case.integers else x.astype(np.float64) for n, x in leaves.items()}
    fixed = {n: exact[n] for n in case.integers}
    y, back = jax.vjp(lambda *x: case.formula(Jax(), {**fixed, **dict(zip(case.floats(), x))}),
                      *(exact[n] for n in case.floats()))
    return {"y": np.asarray(y), **{"d." + n: np.asarray(d) for n, d in zip(case.floats(), back(exact["dy"]))}}


def main():
    seed = int(os.environ.get("CODA_SEED", 1))
    print("test_jax.py: jax %s, seed %d" % (jax.__version__, seed))
    failed = checks = 0
    for case in formulas.CASES:
        leaves = drawn(case, seed)
        shape = (1,) if case.name == "model" else leaves["x"].shape
        leaves["dy"] = np.random.default_rng(seed + 1).standard_normal(shape).astype(np.float32)
        want, worst = wanted(case, leaves), [0, 0]
        for k, (got, bar) in enumerate(zip(run(case, leaves), (1e-8, 1e-5))):
            for name, w in want.items():
                off = np.linalg.norm(got[name] - w) / np.linalg.norm(w)
                worst[k], checks = max(worst[k], off), checks + 1
                if not off <= bar:
                    print("test_jax.py: %s: %s is off by %.2e in %s" % (case.name, name, off, ("fp64", "fp32")[k]))
                    failed += 1
        print("%-8s %2d gradients, off by %.1e in fp64, %.1e in fp32" % (case.name, len(want) - 1, *worst))
    print("test_jax.py: %d checks, %d failures" % (checks, failed))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())

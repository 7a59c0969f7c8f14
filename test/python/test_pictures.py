#!/usr/bin/env python3
"""test_pictures.py -- blocks of diffusion transformers, as those who use them write them, at a small size: SD3
(arXiv 2403.03206), SD3.5 with a second attention of the picture, FLUX.1's two kinds, DiT (2212.09748) and PixArt
(2310.00426), behind the products that embed pictures and text. Modulations are weights, as of one step of a sampler.
The CPU device gives what NumPy gives in fp64 of the papers' formulas; what is fused is no further from it in bf16
than what is not; and plans for a GPU have the launches and bytes that are written here."""
import ctypes
import os
import re
import sys
import unittest

try:
    import numpy as np
except ImportError as e:
    print("test_pictures.py: skipped: %s" % e)
    sys.exit(0)

import libcoda as coda

B, T, L, D, F, K = 2, 64, 110, 1152, 384, 16  # samples, tokens of a picture and of text, columns, of an MLP, embedded
EPS = 1e-6
SEED = int(os.environ.get("CODA_SEED", 1))
FULL = os.environ.get("CODA_FULL")  # runs all blocks, in both dtypes


# ---- The papers' formulas ----

def norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + EPS)


def rms(x):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


def attend(q, k, v, heads, by_head=lambda x, name: x):
    def split(x):
        return x.reshape(*x.shape[:-1], heads, -1).swapaxes(1, 2)
    q, k, v = by_head(split(q), "q"), by_head(split(k), "k"), split(v)
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    p = np.exp(s - s.max(-1, keepdims=True))
    o = (p / p.sum(-1, keepdims=True)) @ v
    return o.swapaxes(1, 2).reshape(o.shape[0], o.shape[2], -1)


def turn(x, at, frequencies, sections):
    """Rotates pairs of neighbours, of which each section counts another axis of the positions."""
    axis = np.repeat(np.arange(len(sections)), sections)
    angle = at[:, axis] * frequencies
    even, odd = x[..., 0::2], x[..., 1::2]
    out = np.empty_like(x)
    out[..., 0::2] = even * np.cos(angle) - odd * np.sin(angle)
    out[..., 1::2] = odd * np.cos(angle) + even * np.sin(angle)
    return out


# ---- Graphs and formulas ----

class Block:
    """A graph in `dtype`, and the numbers of its leaves, in fp64 as they are rounded."""

    def __init__(self, dtype):
        self.g, self.dtype, self.v = coda.Graph(), dtype, {}
        self.rng = np.random.default_rng(SEED)

    def leaf(self, kind, name, *dims, scale=1.0, shift=0.0):
        x = (scale * self.rng.standard_normal(dims) + shift).astype("f")
        self.v[name] = (rounded(x) if self.dtype == "bf16" else x).astype("d")
        return getattr(self.g, kind)(name, self.dtype, dims)

    def linear(self, x, name, n):
        """x W^T + b."""
        k = x.shape[-1]
        w = self.leaf("weight", "w_" + name, n, k, scale=k ** -0.5)
        return coda.matmul(x, w) + self.leaf("weight", "b_" + name, n, scale=0.1)

    def embedded(self, name, tokens, table=False):
        x = self.linear(self.leaf("input", name, B, tokens, K), "embed_" + name, D)
        return x + self.leaf("weight", "table_" + name, tokens, D, shift=0.5) if table else x

    def vectors(self, name, n):
        m = self.leaf("weight", name, B, 1, n * D, scale=0.3)
        return [m[..., i * D:(i + 1) * D] for i in range(n)]

    def modulated(self, x, shift, scale):
        return coda.layer_norm(x, None, None, EPS) * (scale + 1) + shift

    def by_head(self, x, name, heads):
        """RMS norm of each head, with a gain."""
        y = coda.rms_norm(x.reshape(*x.shape[:-1], heads, D // heads),
                          self.leaf("weight", name, D // heads, scale=0.1, shift=1.0), EPS)
        return y.reshape(*x.shape)

    def mlp(self, x, name):
        return self.linear(coda.gelu_tanh(self.linear(x, "up_" + name, F)), "down_" + name, D)


def parts(x, n):
    d = x.shape[-1] // n
    return [x[..., i * d:(i + 1) * d] for i in range(n)]


class Numbers:
    """The same pieces in NumPy."""

    def __init__(self, v):
        self.v = v

    def linear(self, x, name):
        columns = np.ascontiguousarray(x.reshape(-1, x.shape[-1]).T)  # in a plain BLAS dots take twice as long
        return (self.v["w_" + name] @ columns).T.reshape(*x.shape[:-1], -1) + self.v["b_" + name]

    def embedded(self, name):
        x = self.linear(self.v[name], "embed_" + name)
        return x + self.v.get("table_" + name, 0)

    def mlp(self, x, name):
        return self.linear(gelu(self.linear(x, "up_" + name)), "down_" + name)


def sd3_graph(o, dual):
    """Image first. With `dual`, QK-norm, and the picture has three more vectors, and attention to itself."""
    heads, x, qkv, m = D // 64, {}, {}, {}
    x["x"], x["y"] = o.embedded("x", T, table=True), o.embedded("y", L)

    def projected(h, name):
        q, k, v = parts(o.linear(h, "qkv_" + name, 3 * D), 3)
        return (o.by_head(q, "gq_" + name, heads), o.by_head(k, "gk_" + name, heads), v) if dual else (q, k, v)

    for s in "xy":
        m[s] = o.vectors("mod_" + s, 9 if dual and s == "x" else 6)
        qkv[s] = projected(o.modulated(x[s], m[s][0], m[s][1]), s)
    a = coda.attention(*[coda.concat(1, [a, b]) for a, b in zip(qkv["x"], qkv["y"])], heads=heads)
    second = coda.attention(*projected(o.modulated(x["x"], m["x"][6], m["x"][7]), "x2"), heads=heads) if dual else None
    for s, of in ("x", a[:, :T]), ("y", a[:, T:]):
        h = x[s] + m[s][2] * o.linear(of, "o_" + s, D)
        if dual and s == "x":
            h = h + m[s][8] * o.linear(second, "o_x2", D)
        o.g.output(s + "_out", h + m[s][5] * o.mlp(o.modulated(h, m[s][3], m[s][4]), s))


def sd3_numbers(n, dual):
    heads, x, qkv, m = D // 64, {}, {}, {}
    for s in "xy":
        x[s] = n.embedded(s)
        m[s] = parts(n.v["mod_" + s], 9 if dual and s == "x" else 6)
        qkv[s] = parts(n.linear(norm(x[s]) * (1 + m[s][1]) + m[s][0], "qkv_" + s), 3)

    def gained(z, name, s):
        return rms(z.reshape(*z.shape[:-1], heads, -1)) * n.v["g%s_%s" % (name, s)] if dual else z

    def joint(i, name):
        both = [gained(qkv[s][i], name, s).reshape(*qkv[s][i].shape) for s in "xy"]
        return np.concatenate(both, 1)

    a = attend(joint(0, "q"), joint(1, "k"), np.concatenate([qkv[s][2] for s in "xy"], 1), heads)
    out = {}
    for s, of in ("x", a[:, :T]), ("y", a[:, T:]):
        h = x[s] + m[s][2] * n.linear(of, "o_" + s)
        if dual and s == "x":
            q, k, v = parts(n.linear(norm(x[s]) * (1 + m[s][7]) + m[s][6], "qkv_x2"), 3)
            of = attend(q, k, v, heads, lambda z, name: rms(z) * n.v["g%s_x2" % name])
            h = h + m[s][8] * n.linear(of, "o_x2")
        out[s + "_out"] = h + m[s][5] * n.mlp(norm(h) * (1 + m[s][4]) + m[s][3], s)
    return out


SECTIONS = 8, 28, 28
FREQUENCIES = np.concatenate([10000.0 ** -(np.arange(n) / n) for n in SECTIONS])


def rope_of(o, tokens):
    at = o.g.input("positions", "i32", (tokens, 3))
    frequencies = o.g.input("frequencies", "f32", (64,))
    o.v["positions"] = o.rng.integers(0, 40, (tokens, 3)).astype("d")
    o.v["frequencies"] = FREQUENCIES.astype("f").astype("d")

    def rope(x):
        return coda.rope(x, at, head_dim=128, style="interleaved", sections=SECTIONS, frequencies=frequencies)
    return rope


def flux_single_graph(o):
    heads = D // 128
    x, rope = o.embedded("x", T), rope_of(o, T)
    shift, scale, gate = o.vectors("mod", 3)
    p = o.linear(o.modulated(x, shift, scale), "in", 3 * D + F)
    q, k, v, m = p[..., :D], p[..., D:2 * D], p[..., 2 * D:3 * D], p[..., 3 * D:]
    q, k = rope(o.by_head(q, "gq", heads)), rope(o.by_head(k, "gk", heads))
    both = coda.concat(2, [coda.attention(q, k, v, heads=heads), coda.gelu_tanh(m)])
    o.g.output("x_out", x + gate * o.linear(both, "out", D))


def flux_single_numbers(n):
    x, heads = n.embedded("x"), D // 128
    shift, scale, gate = parts(n.v["mod"], 3)
    p = n.linear(norm(x) * (1 + scale) + shift, "in")
    a = attend(*parts(p[..., :3 * D], 3), heads,
               lambda z, name: turn(rms(z) * n.v["g" + name], n.v["positions"], n.v["frequencies"], SECTIONS))
    return {"x_out": x + gate * n.linear(np.concatenate([a, gelu(p[..., 3 * D:])], -1), "out")}


def flux_dual_graph(o):
    """Text first; all of it is turned."""
    heads, x, m, qkv = D // 128, {"y": o.embedded("y", L), "x": o.embedded("x", T)}, {}, {}
    rope = rope_of(o, L + T)
    for s in "yx":
        m[s] = o.vectors("mod_" + s, 6)
        q, k, v = parts(o.linear(o.modulated(x[s], m[s][0], m[s][1]), "qkv_" + s, 3 * D), 3)
        qkv[s] = o.by_head(q, "gq_" + s, heads), o.by_head(k, "gk_" + s, heads), v
    q, k, v = (coda.concat(1, [qkv["y"][i], qkv["x"][i]]) for i in range(3))
    a = coda.attention(rope(q), rope(k), v, heads=heads)
    for s, of in ("y", a[:, :L]), ("x", a[:, L:]):
        h = x[s] + m[s][2] * o.linear(of, "o_" + s, D)
        o.g.output(s + "_out", h + m[s][5] * o.mlp(o.modulated(h, m[s][3], m[s][4]), s))


def flux_dual_numbers(n):
    heads, x, m, qkv, out = D // 128, {}, {}, {}, {}
    for s in "yx":
        x[s], m[s] = n.embedded(s), parts(n.v["mod_" + s], 6)
        q, k, v = parts(n.linear(norm(x[s]) * (1 + m[s][1]) + m[s][0], "qkv_" + s), 3)
        q, k = (rms(z.reshape(B, -1, heads, 128)) * n.v["g%s_%s" % (name, s)] for z, name in ((q, "q"), (k, "k")))
        qkv[s] = q.reshape(v.shape), k.reshape(v.shape), v
    q, k, v = (np.concatenate([qkv["y"][i], qkv["x"][i]], 1) for i in range(3))
    a = attend(q, k, v, heads, lambda z, name: turn(z, n.v["positions"], n.v["frequencies"], SECTIONS))
    for s, of in ("y", a[:, :L]), ("x", a[:, L:]):
        h = x[s] + m[s][2] * n.linear(of, "o_" + s)
        out[s + "_out"] = h + m[s][5] * n.mlp(norm(h) * (1 + m[s][4]) + m[s][3], s)
    return out


def dit_graph(o):
    """adaLN-Zero."""
    x = o.embedded("x", T, table=True)
    s1, a1, g1, s2, a2, g2 = o.vectors("mod", 6)
    q, k, v = parts(o.linear(o.modulated(x, s1, a1), "qkv", 3 * D), 3)
    h = x + g1 * o.linear(coda.attention(q, k, v, heads=16), "o", D)
    o.g.output("x_out", h + g2 * o.mlp(o.modulated(h, s2, a2), "x"))


def dit_numbers(n):
    x = n.embedded("x")
    s1, a1, g1, s2, a2, g2 = parts(n.v["mod"], 6)
    h = x + g1 * n.linear(attend(*parts(n.linear(norm(x) * (1 + a1) + s1, "qkv"), 3), 16), "o")
    return {"x_out": h + g2 * n.mlp(norm(h) * (1 + a2) + s2, "x")}


def pixart_graph(o):
    """adaLN-single: a table of the block, and a vector of the model; attention to the text between."""
    x, y = o.embedded("x", T, table=True), o.leaf("input", "y", B, L, D)
    table, m = o.leaf("weight", "table", 6, D, scale=0.2), o.vectors("mod", 6)
    s1, a1, g1, s2, a2, g2 = [m[i] + table[i] for i in range(6)]
    q, k, v = parts(o.linear(o.modulated(x, s1, a1), "qkv", 3 * D), 3)
    h = x + g1 * o.linear(coda.attention(q, k, v, heads=16), "o", D)
    k, v = parts(o.linear(y, "kv", 2 * D), 2)
    h = h + o.linear(coda.attention(o.linear(h, "q", D), k, v, heads=16), "cross", D)
    o.g.output("x_out", h + g2 * o.mlp(o.modulated(h, s2, a2), "x"))


def pixart_numbers(n):
    x, y = n.embedded("x"), n.v["y"]
    s1, a1, g1, s2, a2, g2 = [a + b for a, b in zip(parts(n.v["mod"], 6), n.v["table"])]
    h = x + g1 * n.linear(attend(*parts(n.linear(norm(x) * (1 + a1) + s1, "qkv"), 3), 16), "o")
    h = h + n.linear(attend(n.linear(h, "q"), *parts(n.linear(y, "kv"), 2), 16), "cross")
    return {"x_out": h + g2 * n.mlp(norm(h) * (1 + a2) + s2, "x")}


# ---- Runs ----

def rounded(x):
    """fp32 to the nearest bf16, ties to even."""
    bits = np.ascontiguousarray(x, "f").view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000).astype(np.uint32).view("f")


def memory(x, a):
    """The argument, with these numbers."""
    made = coda.Array(a.dims, a.dtype)
    if a.dtype == "bf16":
        data = (rounded(x).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    else:
        data = x.astype({"f32": "f", "i32": "i"}[a.dtype]).tobytes()
    ctypes.memmove(made.memory.address, data, len(data))
    return made


def numbers(x, a):
    raw = ctypes.string_at(x.memory.address, x.nbytes)
    if a.dtype == "f32":
        return np.frombuffer(raw, "f").astype("d").reshape(a.dims)
    return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view("f").astype("d").reshape(a.dims)


def run(block, **options):
    plan = block.g.compile("cpu", **options)
    given = {a.name: memory(block.v[a.name], a) for a in plan.args if a.kind != "output"}
    of = {a.name: a for a in plan.args if a.kind == "output"}
    out = {name: coda.Array(a.dims, a.dtype) for name, a in of.items()}
    for x in out.values():
        ctypes.memset(x.memory.address, 0xff, x.nbytes)  # NaN
    plan(given, out=out)
    return {name: numbers(x, of[name]) for name, x in out.items()}


def error(got, want):
    """Root of the mean square of differences, over that of the values."""
    return max(np.sqrt(((got[k] - want[k]) ** 2).mean() / (want[k] ** 2).mean()) for k in want)


def launches(plan):
    """What each launch of a run computes: samples x rows x columns x K of a product, with + what it computes besides;
    samples x queries x keys of attention."""
    made = {}
    for line in str(plan).split("\n"):
        program = re.match(r"@(\d+) (?!prepare)(.*)", line)
        other = re.match(r"   in the launch of @(\d+)", line)
        if program:
            at = int(program[1])
            made[at] = re.sub(r"gemm batch=(\d+) m=(\d+) n=(\d+) k=(\d+)( sample=\d+)?", r"\1x\2x\3x\4", program[2])
            made[at] = re.sub(r"attention batch=(\d+) tq=(\d+) tk=(\d+).*", r"attention \1x\2x\3", made[at])
        elif other:
            made[int(other[1])] += " + " + made.pop(at)
    return list(made.values())


class Pictures(unittest.TestCase):
    maxDiff = None

    def block(self, name, graph, formula, programs, megabytes, runs=False, rounds=False):
        o = Block("bf16")
        graph(o)
        plan = o.g.compile("none", fold="copy", flags=coda.c.CODA_PLAN_ONLY, arch="sm_90a")
        self.assertEqual(launches(plan), programs.split(", "), name)
        self.assertEqual(len(programs.split(", ")), plan.stats.launches, name)
        self.assertEqual("%.2f MB" % (plan.stats.bytes / 1e6), megabytes + " MB", "%s: %s" % (name, plan))
        got = "%d launches, %s MB" % (plan.stats.launches, megabytes)
        if runs or FULL:
            got += ", " + self.close(name, graph, formula, rounds or bool(FULL))
        print("  %-12s %s" % (name, got))

    def close(self, name, graph, formula, rounds):
        for dtype, bar in [("f32", 1e-5)] + [("bf16", 1e-2)] * rounds:
            o = Block(dtype)
            graph(o)
            want = formula(Numbers(o.v))
            off = error(run(o, fold="copy"), want)
            self.assertLess(off, bar, "%s in %s" % (name, dtype))  # NaN is no less
        if not rounds:
            return "off by %.1e in f32" % off
        apart = error(run(o, flags=coda.c.CODA_NO_FUSION), want)
        self.assertLess(off, 1.05 * apart, "%s: rounded, where nothing is fused: %g" % (name, apart))
        return "off by %.1e in bf16, one by one %.1e" % (off, apart)

    def test_sd3(self):
        """Two products embed; then a product of each stream four times, three of which are a launch with the other
        stream's, and attention."""
        self.block("sd3", lambda o: sd3_graph(o, False), lambda n: sd3_numbers(n, False),
                   "2x64x1152x16, 1x220x1152x16, 2x64x3456x1152 + 2x110x3456x1152, attention 2x174x174, "
                   "2x64x1152x1152 + 2x110x1152x1152, 1x128x384x1152, 1x220x384x1152, 2x64x1152x384 + 2x110x1152x384",
                   "39.60")

    def test_sd35(self):
        """The picture's own attention besides, between its two products."""
        self.block("sd3.5", lambda o: sd3_graph(o, True), lambda n: sd3_numbers(n, True),
                   "2x64x1152x16, 1x220x1152x16, 2x64x3456x1152 + 2x110x3456x1152, attention 2x174x174, 1x128x3456x1152, "
                   "attention 2x64x64, 2x64x1152x1152, 1x128x1152x1152, 1x128x384x1152, 2x110x1152x1152, 1x220x384x1152, "
                   "2x64x1152x384 + 2x110x1152x384",
                   "53.80", runs=True)

    def test_flux_single(self):
        self.block("flux single", flux_single_graph, flux_single_numbers,
                   "1x128x1152x16, 2x64x3840x1152 rope, attention 2x64x64, 1x128x1152x1536",
                   "16.57", runs=True, rounds=True)

    def test_flux_dual(self):
        """Text first; users turn it together with the picture."""
        self.block("flux dual", flux_dual_graph, flux_dual_numbers,
                   "1x220x1152x16, 1x128x1152x16, 2x110x3456x1152 rope, 2x64x3456x1152 rope, attention 2x174x174, "
                   "2x110x1152x1152 + 2x64x1152x1152, 1x220x384x1152, 1x128x384x1152, 2x110x1152x384 + 2x64x1152x384",
                   "39.43")

    def test_dit(self):
        self.block("dit", dit_graph, dit_numbers,
                   "2x64x1152x16, 1x128x3456x1152, attention 2x64x64, 1x128x1152x1152, 1x128x384x1152, 1x128x1152x384",
                   "17.96")

    def test_no_deferral(self):
        """Norms are made, and rounded, ahead of their products: a pass over rows for each."""
        o = Block("bf16")
        dit_graph(o)
        plan = o.g.compile("none", fold="copy", flags=coda.c.CODA_PLAN_ONLY | coda.c.CODA_NO_DEFERRAL, arch="sm_90a")
        self.assertEqual(plan.stats.launches, 8, launches(plan))

    def test_pixart(self):
        self.block("pixart", pixart_graph, pixart_numbers,
                   "2x64x1152x16, 1x128x3456x1152, attention 2x64x64, 1x128x1152x1152, 1x220x2304x1152, 1x128x1152x1152, "
                   "attention 2x64x110, 1x128x1152x1152, 1x128x384x1152, 1x128x1152x384",
                   "33.19", runs=True)


if __name__ == "__main__":
    unittest.main()

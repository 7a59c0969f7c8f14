#!/usr/bin/env python3
"""test_numpy.py -- the package with NumPy's arrays: the program of its first page, results as NumPy has them, views,
16 bits by ml_dtypes, DLPack both ways."""
import os
import re
import sys
import unittest

try:
    import numpy as np
except ImportError as e:
    print("test_numpy.py: skipped: %s" % e)
    sys.exit(0)
try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

import libcoda as coda


class Producer:
    """An array by DLPack alone."""

    def __init__(self, x):
        self.x = x

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **how):
        return self.x.__dlpack__()


SEED = int(os.environ.get("CODA_SEED", 1))


class Numpy(unittest.TestCase):
    def setUp(self):
        self.rng = np.random.default_rng(SEED)

    def drawn(self, *shape):
        return self.rng.standard_normal(shape).astype("f")

    def close(self, got, want, bar=2e-6):
        self.assertEqual(got.shape, want.shape)
        off = abs(got - want).max() / abs(want).max()
        self.assertTrue(off <= bar, "off by %g" % off)

    def test_originals_that_are_gone(self):
        """What a plan has folded it is called without; what it reads, and a change of it, it still asks for."""
        import gc
        import weakref
        g = coda.Graph()
        x, gain, w, v = g.input("x", "f32", (4, 8)), g.weight("gain", "f32", (8,)), g.weight("w", "f32", (6, 8)), \
            g.weight("v", "f32", (6, 6))
        g.output("y", (x * gain) @ w.T @ v.T)
        plan, a, m = g.compile("cpu", fold="copy"), self.drawn(4, 8), self.drawn(6, 6)
        self.assertEqual(plan.unread, ["gain", "w"])
        with self.assertRaisesRegex(coda.InvalidError, "weight gain: no array is given"):
            plan(x=a, v=m)
        gains, weights = self.drawn(8), self.drawn(6, 8)
        want, gone = plan(a, gains, weights, m), [weakref.ref(gains), weakref.ref(weights)]
        self.close(want, (a * gains) @ weights.T @ m.T)
        del gains, weights
        gc.collect()
        self.assertEqual([r() for r in gone], [None, None])
        self.assertTrue(np.array_equal(plan(x=a, v=m), want))
        self.assertTrue(np.array_equal(plan.bind(x=a, v=m)(), want))
        other = m.copy()  # at another address: weights would be folded anew
        with self.assertRaisesRegex(coda.InvalidError, "weight gain: weights are folded anew"):
            plan(x=a, v=other)
        with self.assertRaisesRegex(coda.InvalidError, "input x: no array is given"):
            plan(v=m)
        self.close(plan(a, np.ones(8, "f"), np.eye(6, 8, dtype="f"), m), a[:, :6] @ m.T)
        self.assertEqual(g.compile("cpu").unread, [])

    def test_the_first_program(self):
        """That of the package's page: at most 10 lines, and right."""
        text = re.sub(r"(?m)^    ", "", coda.__doc__[coda.__doc__.index(
            "    import numpy"):coda.__doc__.index("\nGraph, Value")])
        lines = [line for line in text.splitlines() if line.strip()]
        self.assertLessEqual(len(lines), 10)
        made = {}
        exec(text, made)
        x, w, d = (made[n].astype("d") for n in "xwd")
        h = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) @ w.T
        gate, up = np.split(h, 2, -1)
        self.close(made["y"], gate / (1 + np.exp(-gate)) * up @ d.T + x)
        self.assertIs(type(made["y"]), np.ndarray)

    def test_layers(self):
        """Layer norm, gelu and attention of two heads, against their formulas."""
        x, w, o, gain, bias = self.drawn(2, 10, 16), self.drawn(
            48, 16) / 4, self.drawn(16, 16) / 4, self.drawn(16), self.drawn(16)
        g = coda.Graph()
        v = {n: g.input(n, a) for n, a in (("x", x), ("w", w), ("o", o), ("gain", gain), ("bias", bias))}
        p = coda.layer_norm(v["x"], v["gain"], v["bias"], 1e-5) @ v["w"].T
        a = coda.attention(p[..., :16], p[..., 16:32], p[..., 32:], heads=2, causal=1)
        g.output("y", coda.gelu_tanh(a @ v["o"].T) + v["x"])
        y = g.compile("cpu")(x, w, o, gain, bias)
        x, w, o, gain, bias = (t.astype("d") for t in (x, w, o, gain, bias))
        n = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * gain + bias
        q, k, u = (t.reshape(2, 10, 2, 8).transpose(0, 2, 1, 3) for t in np.split(n @ w.T, 3, -1))
        s = q @ k.transpose(0, 1, 3, 2) / np.sqrt(8) + np.where(np.tri(10), 0, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        h = (e / e.sum(-1, keepdims=True) @ u).transpose(0, 2, 1, 3).reshape(2, 10, 16) @ o.T
        self.close(y, h / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h ** 3))) + x)

    def test_views(self):
        """A view is taken as it lies by a graph made of it, and copied where the graph wants a dense one."""
        base = self.drawn(8, 12)
        view = base[::2, ::3]
        for leaf in (view, np.ascontiguousarray(view)):
            g = coda.Graph()
            g.output("y", g.input("x", leaf) * 2)
            self.close(g.compile("cpu")(view), view * 2, 0)
        with self.assertRaisesRegex(coda.InvalidError, "strides"):
            g = coda.Graph()
            g.input("x", base[::-1])
        out = np.full((4, 4), np.nan, "f")
        g = coda.Graph()
        g.output("y", g.input("x", "f32", [4, 4]) * 2)
        self.assertIs(g.compile("cpu")(view, out=out), out)
        self.close(out, view * 2, 0)
        with self.assertRaisesRegex(coda.InvalidError, "output y"):
            g.compile("cpu")(view, out=base[1::2, ::3])

    def test_bind_copies_nothing(self):
        """What is bound is read anew at each call; what would have to be copied is refused, and run from a copy."""
        base, w = self.drawn(4, 9), self.drawn(3, 8)
        g = coda.Graph()
        g.output("y", g.input("v", "f32", [4, 8]) @ g.weight("w", w).T)
        plan, v = g.compile("cpu"), base[:, 1:]
        self.close(plan(v, w), v @ w.T)
        with self.assertRaisesRegex(coda.InvalidError, r"input v: strides \[9, 1\] .* a bound plan copies nothing"):
            plan.bind(v, w)
        odd = np.empty(33, "f")[1:].reshape(4, 8)
        odd[:] = v
        self.close(plan(odd, w), v @ w.T)
        if odd.ctypes.data % 16:
            with self.assertRaisesRegex(coda.InvalidError, "input v: .* modulo 16"):
                plan.bind(odd, w)
        with self.assertRaisesRegex(coda.InvalidError, "input v: a read-only buffer"):
            plan.bind(memoryview(bytes(128)).cast("f", (4, 8)), w)

    def test_folded_weights_that_are_copied(self):
        """A copy may lie where the last one did, and holds other values."""
        g = coda.Graph()
        x, gain, w = g.input("x", "f32", [4, 8]), g.weight("gain", "f32", [8]), g.weight("w", "f32", [6, 8])
        g.output("y", coda.rms_norm(x, gain, 1e-5) @ w.T)
        plan, a, m, gains = g.compile("cpu", fold="copy"), self.drawn(4, 8), self.drawn(6, 8), self.drawn(8, 2)
        for _ in range(4):
            gains[:] = self.drawn(8, 2)
            s, d = gains[:, 0].astype("d"), a.astype("d")
            self.close(plan(a, gains[:, 0], m), d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * s @ m.T)

    def test_messages(self):
        x = self.drawn(4, 8)
        g = coda.Graph()
        for leaf, text in ((x[::-1], r"input x: negative strides .*\[-32, 4\] bytes: copy"),
                           (x.astype(">f4"), 'input x: an array of >f4 is big-endian.*"<f4"'),
                           (x.astype("d"), r'input x: f64 was given, and float64 is not computed: astype\("f4"\)')):
            with self.assertRaisesRegex(coda.InvalidError, text):
                g.input("x", leaf)
        g.output("y", g.input("x", x[:1][::-1]) * 2)  # the stride of one element is none
        plan = g.compile("cpu")
        self.close(plan(x[:1][::-1]), x[:1] * 2, 0)
        with self.assertRaisesRegex(coda.InvalidError, "input x: f64 was given for f32, and float64 is not computed"):
            plan(x[:1].astype("d"))
        with self.assertRaisesRegex(coda.InvalidError, r'input x: i64 was given for f32: astype\("float32"\) converts it'):
            plan(x[:1].astype("i8"))
        with self.assertRaisesRegex(coda.InvalidError, "input x: an array of >f4 is big-endian"):
            plan(x[:1].astype(">f4"))
        with self.assertRaisesRegex(coda.InvalidError, "input b: f64 was given, and float64 is not computed"):
            coda.jit(lambda a, b: a + b, device="cpu")(x, x.astype("d"))

    def test_dtypes_of_numpy(self):
        g = coda.Graph()
        x = g.input("x", np.float32, [3])
        for dtype, word in ((np.float16, "f16"), (np.dtype("i8"), "i64"), ("bfloat16", "bf16"), (coda.c.CODA_I32, "i32")):
            self.assertEqual(x.astype(dtype).dtype, word)
        with self.assertRaisesRegex(coda.InvalidError, "weight w: f64 was given, and float64 is not computed"):
            g.weight("w", np.float64, [3])
        with self.assertRaisesRegex(coda.InvalidError, "<class 'bool'> is no coda_dtype: f32, "):
            x.astype(bool)

    def test_operators_beside_numpy(self):
        g = coda.Graph()
        x = g.input("x", "f32", [3])
        g.output("y", np.float32(2) * x + np.float64(1))
        a = self.drawn(3)
        self.close(g.compile("cpu")(a), 2 * a + 1)
        with self.assertRaises(TypeError):
            x + a

    def test_empty_and_integers(self):
        g = coda.Graph()
        ids = g.input("ids", "i64", [5])
        g.output("y", coda.embedding(g.weight("table", "f32", [7, 4]), ids))
        table, i = self.drawn(7, 4), self.rng.integers(0, 7, 5)
        self.close(g.compile("cpu")(i, table), table[i], 0)
        g = coda.Graph()
        g.output("y", g.input("x", "f32", [0, 4]) * 2)
        self.assertEqual(g.compile("cpu")(np.empty((0, 4), "f")).shape, (0, 4))

    def test_dlpack(self):
        x = self.drawn(3, 4)
        m = coda.arrays.memory(Producer(x))
        self.assertEqual((m.address, m.shape, m.dtype), (x.ctypes.data, (3, 4), "f32"))
        ours = coda.Array((3, 4), "f32")
        ours.view()[2, 3] = 7.0
        theirs = np.from_dlpack(ours) if hasattr(np, "from_dlpack") else np.asarray(ours)
        self.assertEqual(theirs[2, 3], 7.0)
        self.assertEqual(np.asarray(ours).ctypes.data, ours.memory.address)
        written = np.asarray(ours)
        del ours
        written[0, 0] = 1.0  # the memory is still there
        self.assertEqual(theirs[0, 0], 1.0)

    @unittest.skipIf(ml_dtypes is None, "no ml_dtypes")
    def test_16_bits(self):
        x, w = (self.drawn(*s).astype(ml_dtypes.bfloat16) for s in ((5, 32), (7, 32)))
        g = coda.Graph()
        g.output("y", g.input("x", x) @ g.weight("w", w).T)
        y = g.compile("cpu")(x, w)
        self.assertEqual(y.dtype, ml_dtypes.bfloat16)
        self.close(y.astype("d"), x.astype("d") @ w.astype("d").T, 2.0 ** -8)


if __name__ == "__main__":
    print("CODA_SEED=%d" % SEED)
    unittest.main()

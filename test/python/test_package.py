#!/usr/bin/env python3
"""test_package.py -- the package libcoda with Python's standard library alone: graphs, operators, options, errors,
plans, runs, symbols, states, gradients, and arrays by every protocol, of which some are fakes. References are formulas
in fp64."""
import array
import copy
import ctypes
import functools
import gc
import math
import os
import pickle
import random
import subprocess
import sys
import threading
import unittest

import libcoda as coda
from libcoda import arrays, c, dlpack

SEED = int(os.environ.get("CODA_SEED", 1))
NAN = float("nan")


def floats(*dims, scale=1.0, rng=random.Random(SEED)):
    """Of the host, with numbers of a normal distribution."""
    x = coda.Array(dims, "f32")
    flat = x.view().cast("B").cast("f") if dims else x.view()
    for i in range(arrays.count(dims)):
        flat[i] = rng.gauss(0, scale)
    return x


def poisoned(*dims, dtype="f32"):
    x = coda.Array(dims, dtype)
    ctypes.memset(x.memory.address, 0xff, x.nbytes)
    return x


def product(x, w):
    return [[sum(a * b for a, b in zip(row, col)) for col in w] for row in x]


def flat(x):
    return [e for y in x for e in flat(y)] if isinstance(x, (list, tuple)) else [x]


class Case(unittest.TestCase):
    def close(self, got, want, bar=2e-6):
        got, want = flat(got.tolist() if hasattr(got, "tolist") else got), flat(want)
        self.assertEqual(len(got), len(want))
        off = max(abs(a - b) for a, b in zip(got, want)) / max(1e-9, max(map(abs, want)))
        self.assertTrue(off <= bar, "off by %g" % off)


class Graphs(Case):
    def test_operators(self):
        a, b = floats(3, 4), floats(3, 4)
        cases = [(lambda x, y: x + y, lambda x, y: x + y), (lambda x, y: 2 - x * y, lambda x, y: 2 - x * y),
                 (lambda x, y: (x - 1.5) / (abs(y) + 3), lambda x, y: (x - 1.5) / (abs(y) + 3)),
                 (lambda x, y: 1 / (-x * x - 1) + y / 2, lambda x, y: 1 / (-x * x - 1) + y / 2),
                 (lambda x, y: (x < y) + (x >= y) * 2 + (x > 0.5) + (x <= y),) * 2,
                 (lambda x, y: coda.maximum(x, y) + coda.where(x < 0, y, 7),
                  lambda x, y: max(x, y) + (y if x < 0 else 7))]
        for k, (ours, formula) in enumerate(cases):
            g = coda.Graph()
            g.output("y", ours(g.input("a", a), g.input("b", b)))
            out = poisoned(3, 4)
            self.assertIs(g.compile("cpu")(a, b, out=out), out)
            self.close(out, [formula(x, y) for x, y in zip(flat(a.tolist()), flat(b.tolist()))])

    def test_names_of_others(self):
        """Who knows an operation by another name is told this one."""
        for name, here in (("gelu", "here it is gelu_erf, or gelu_tanh"), ("swish", "here it is silu"), ("mean", "here it is row_mean"),
                           ("relu6", "do you mean relu"), ("dropout", "there is no dropout"), ("nothing_of_anybody", "")):
            with self.assertRaisesRegex(AttributeError, "^libcoda has no %s%s" % (name, here and "; " + here)):
                getattr(coda, name)
        x = coda.Graph().input("x", "f32", (2, 3))
        with self.assertRaisesRegex(AttributeError, r"a value of a graph has no tanh; libcoda.tanh\(x\) is a function"):
            x.tanh()
        with self.assertRaisesRegex(AttributeError, "a value of a graph has no sum; here it is row_sum"):
            x.sum(-1)
        self.assertFalse(hasattr(x, "__array_interface__") or hasattr(coda, "__path_of_nobody__"))
        for n, want in ((2, "mul"), (0.5, "sqrt"), (-0.5, "rsqrt"), (-1, "rcp")):
            g = coda.Graph()
            g.output("y", g.input("x", "f32", (2, 3)) ** n)
            self.assertIn("= %s %%x" % want, str(g))
        with self.assertRaises(TypeError):
            x ** 3

    def test_products(self):
        x, w = floats(5, 8), floats(6, 8)
        g = coda.Graph()
        vx, vw = g.input("x", x), g.weight("w", w)
        g.output("nk", vx @ vw.T)
        g.output("kn", vx @ vw.T.T.transpose(1, 0))
        g.output("t", vw.T + 0)
        nk, kn, t = g.compile("cpu")(x, w)
        want = product(x.tolist(), w.tolist())
        self.close(nk, want)
        self.close(kn, want)
        self.assertEqual(t.tolist(), [list(col) for col in zip(*w.tolist())])
        self.assertIn("%2 = matmul %x, %w  ;", str(g))  # w.T is no transpose ahead of a product

    def test_indices(self):
        x = floats(4, 6)
        rows = x.tolist()
        cases = [(lambda v: v[1:3], rows[1:3]), (lambda v: v[-1], rows[-1]),
                 (lambda v: v[..., 2:], [r[2:] for r in rows]),
                 (lambda v: v[:, 1], [r[1] for r in rows]), (lambda v: v[::2, 1::3], [r[1::3] for r in rows[::2]]),
                 (lambda v: v[None, 2], rows[2]), (lambda v: v[:-1, :-2], [r[:-2] for r in rows[:-1]]),
                 (lambda v: v[2, None, ..., 3], rows[2][3])]
        for f, want in cases:
            g = coda.Graph()
            g.output("y", f(g.input("x", x)) * 1)
            self.assertEqual(flat(g.compile("cpu")(x).tolist()), flat(want))
        g = coda.Graph()
        v = g.input("x", x)
        self.assertEqual((v[None, 2].shape, v[:, 1].shape, v[2, None, ..., 3].shape), ((1, 6), (4,), (1,)))
        for wrong, error in ((4, IndexError), (slice(None, None, -1), coda.InvalidError), ("a", TypeError)):
            with self.assertRaises(error):
                v[wrong]
        with self.assertRaises(IndexError):
            v[0, 0, 0]
        with self.assertRaises(TypeError):
            if v < v:
                pass

    def test_text(self):
        g = coda.Graph()
        with g.scope("layers.3"), g.scope("mlp"):
            y = coda.silu(g.input("x", "bf16", [2, 8]))
        g.output("y", y)
        self.assertIn("@layers.3.mlp", str(g))
        self.assertEqual(str(coda.Graph(str(g))), str(g))
        self.assertEqual(repr(y), "<libcoda.Value bf16[2,8]>")
        self.assertEqual([(a.name, a.kind, a.dtype, a.dims) for a in g.args],
                         [("x", "input", "bf16", (2, 8)), ("y", "output", "bf16", (2, 8))])

    def test_options(self):
        """Words for enumerators, values for operands, lists for arrays; an unknown one is refused by its name."""
        g = coda.Graph()
        x, f = g.input("x", "f32", [4, 32]), g.weight("f", "f32", [8])
        y = coda.rope(x, head_dim=16, frequencies=f, style="half")
        self.assertRegex(str(g), "rope %x, _, %f {.*head_dim=16, .*half=1}")
        self.assertEqual(y.shape, (4, 32))
        a, lse = coda.attention_lse(x, x, x, heads=2, causal=1, align="end")
        self.assertEqual((a.shape, lse.shape, lse.dtype), ((4, 32), (2, 4), "f32"))
        values, indices = coda.top_k(x, 3)
        self.assertEqual((values.shape, indices.dtype), ((4, 3), "i32"))
        with self.assertRaisesRegex(TypeError, "no option 'causl'.*causal"):
            coda.attention(x, x, x, causl=1)
        with self.assertRaisesRegex(coda.InvalidError, "'stack' is no coda_layout: interleaved, stacked"):
            coda.swiglu(x, "stack")

    def test_symbols(self):
        g = coda.Graph()
        t = g.symbol("T", 1, 64)
        x = g.input("x", "f32", [2, t, 8])
        g.output("y", coda.reshape(x, [g.dim_mul(2, t), 8]) * 2)
        plan = g.compile("cpu")
        self.assertEqual(g.symbols, [("T", 1, 64, 1)])
        for n in (1, 5, 64):
            a = floats(2, n, 8)
            y = plan(a)
            self.assertEqual(y.shape, (2 * n, 8))
            self.close(y, [2 * e for e in flat(a.tolist())])
        self.assertEqual(g.bind(3).args[0].dims, (2, 3, 8))
        with self.assertRaises(coda.InvalidError):
            plan(floats(2, 65, 8))

    def test_state_scalar_and_sum(self):
        g = coda.Graph()
        s, x, k = g.state("s", "f32", [2, 3]), g.input("x", "f32", [2, 3]), g.scalar("k", "f32")
        coda.assign(s, s + x * k)
        g.output_add("total", x * 1)
        plan = g.compile("cpu")
        state, a, total = coda.Array((2, 3)), floats(2, 3), coda.Array((2, 3))
        for _ in range(3):
            plan(state, a, 0.5, out={"total": total})
        self.close(state, [1.5 * e for e in flat(a.tolist())])
        self.close(total, [3 * e for e in flat(a.tolist())])
        with self.assertRaisesRegex(coda.InvalidError, "sum total: a run adds to it"):
            plan(state, a, 0.5)

    def test_gradients(self):
        """Of sum((x w')^2) by w: 2 (x w')' x."""
        x, w = floats(4, 3), floats(2, 3)
        g = coda.Graph()
        vx, vw, unused = g.input("x", x), g.weight("w", w), g.input("u", "f32", [2])
        y = vx @ vw.T
        loss = coda.row_sum(coda.reshape(y * y, [1, 8]))
        dw, du = g.grad(coda.reshape(loss, [1]), [vw, unused])
        self.assertIsNone(du)
        g.output("loss", loss)
        g.output("dw", dw)
        loss, dw = g.compile("cpu")(x, w, floats(2))
        p = product(x.tolist(), w.tolist())
        self.close(loss, [sum(e * e for e in flat(p))])
        self.close(dw, [[2 * sum(p[i][n] * x.tolist()[i][k] for i in range(4)) for k in range(3)] for n in range(2)])
        forward, backward = g.split(1)
        self.assertEqual([a.name for a in forward.args if a.kind == "output"][0], "loss")
        self.assertEqual([a.name for a in backward.args if a.kind == "output"], ["dw"])

    def test_a_map_of_ones_own(self):
        g = coda.Graph()
        g.define_map("leak", "DEV static float apply(float x, float a) { return x > 0 ? x : a * x; }", params=1,
                     reference=lambda x, p: x[0] if x[0] > 0 else p[0] * x[0])
        a = floats(3, 5)
        g.output("y", coda.apply("leak", [g.input("x", a)], [0.1]))
        plan = g.compile("cpu")
        del g
        gc.collect()
        self.close(plan(a), [e if e > 0 else 0.1 * e for e in flat(a.tolist())])

    def test_evaluate(self):
        x = floats(3, 4)
        g = coda.Graph()
        g.output("y", coda.softmax(g.input("x", x)))
        y = g.evaluate(x)
        want = [[math.exp(e) / sum(map(math.exp, r)) for e in r] for r in x.tolist()]
        self.assertEqual(y.dtype, "f64")
        self.close(y, want, 1e-14)


class Errors(Case):
    def test_a_class_for_each_status(self):
        g = coda.Graph()
        with self.assertRaisesRegex(coda.InvalidError, "layers.17.mlp.*65") as e, g.scope("layers.17.mlp"):
            g.input("x", "f32", [4, 64]) @ g.weight("w", "f32", [8, 65]).T
        self.assertTrue(isinstance(e.exception, ValueError) and e.exception.status == c.CODA_E_INVALID)
        with self.assertRaises(coda.InvalidError):  # the mistake stays the graph's
            g.compile("cpu")
        with self.assertRaisesRegex(coda.InvalidError, "line 2"):
            coda.Graph("%x = input f32 [4]\n%y = swish %x\n")
        with self.assertRaises(coda.FileError) as e:
            coda.errors.must(c.coda_bundle_print(b"/nonexistent", None, 0))
        self.assertIsInstance(e.exception, OSError)
        for status, of in ((c.CODA_E_UNSUPPORTED, NotImplementedError), (c.CODA_E_MEMORY, MemoryError),
                           (c.CODA_E_COMPILE, RuntimeError), (c.CODA_E_DEVICE, RuntimeError)):
            made = coda.errors.failure(status)
            self.assertTrue(isinstance(made, of) and isinstance(made, coda.Error) and made.status == status)
        self.assertEqual(len(coda.errors.CLASSES), 6)

    def test_graphs_do_not_mix(self):
        g, h = coda.Graph(), coda.Graph()
        with self.assertRaisesRegex(coda.InvalidError, "another graph"):
            g.input("x", "f32", [4]) + h.input("x", "f32", [4])
        with self.assertRaises(TypeError):
            coda.silu(3.0)
        with self.assertRaises(TypeError):
            coda.silu("x")
        with self.assertRaises(ctypes.ArgumentError):
            c.coda_plan_free(g.handle)

    def test_arguments(self):
        g = coda.Graph()
        g.output("y", g.input("x", "f32", [4, 8]) + g.weight("w", "f32", [8]))
        plan = g.compile("cpu")
        x, w = floats(4, 8), floats(8)
        wide, locked = coda.Array((4, 8), "i32"), coda.Array((4, 8), "f32", readonly=True)
        invalid = coda.InvalidError
        for call, error, text in (
                (lambda: plan(x), invalid, "weight w: no array"),
                (lambda: plan(x, w, x), TypeError, "3 arrays for 2 leaves: x, w"),
                (lambda: plan(x, v=w), TypeError, "no argument 'v': x, w, y"),
                (lambda: plan(x, w, x=x), TypeError, "'x' comes twice"),
                (lambda: plan(w, w), invalid, r"input x: shape \[8\] was given for \[4, 8\]"),
                (lambda: plan(wide, w), invalid, "input x: i32 was given for f32"),
                (lambda: plan(x, w, out=locked), invalid, "output y: the array is read-only"),
                (lambda: plan(x, w, out=[x, x]), TypeError, "out has 2 arrays for 1 results"),
                (lambda: plan(x, w, out=x), invalid, "overlap|share|same memory"),
                (lambda: plan(object(), w), invalid, "input x: object is no array"),
                (lambda: g.input("z", (4, 8)), invalid, r"input z: a dtype and dims are wanted, .* not \(4, 8\) alone"),
                (lambda: g.weight("z", "f32"), invalid, "weight z: a dtype and dims are wanted, .* not 'f32' alone"),
                (lambda: g.evaluate(x, object()), invalid, "weight w: object is no array")):
            with self.assertRaisesRegex(error, text):
                call()


class Runs(Case):
    def plan(self):
        g = coda.Graph()
        x, w = g.input("x", "f32", [4, 8]), g.weight("w", "f32", [6, 8])
        g.output("y", coda.relu(x @ w.T))
        return g.compile("cpu")

    def test_bind(self):
        plan, x, w, y = self.plan(), floats(4, 8), floats(6, 8), poisoned(4, 6)
        run = plan.bind(x, w, out=y)
        for _ in range(2):
            self.assertIs(run(), y)
            self.close(y, [max(0, e) for e in flat(product(x.tolist(), w.tolist()))])
            x.view()[0, 0] = 3.0  # what is bound is read anew
            ctypes.memset(y.memory.address, 0xff, y.nbytes)

    def test_names_and_threads(self):
        plan, x, w = self.plan(), floats(4, 8), floats(6, 8)
        want = plan(x, w).tolist()
        self.assertEqual(plan(w=w, x=x).tolist(), want)
        self.assertEqual(plan({"w": w, "x": x}).tolist(), want)
        self.assertEqual(plan(x, w, threads=1).tolist(), want)
        made = [None] * 4

        def work(k):
            for _ in range(20):
                made[k] = plan(x, w).tolist()
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(made, [want] * 4)

    def test_find(self):
        g = coda.Graph("%x = input f32[2,3]\n%w = weight f32[4,3]\n%p = matmul %x, %w\noutput %y = %p\n")
        g.output("dw", g.grad(g.find("y"), g.find("w"), g.find("y"))[0])
        self.assertEqual((g.find("x").shape, g.find("dw").shape), ((2, 3), (4, 3)))
        for name in ("p", "z", ""):
            with self.assertRaisesRegex(coda.InvalidError, "graph_find: none of 4 leaves and outputs"):
                g.find(name)

    def test_fold(self):
        """A gain that is folded into the weights; they change in place, and are prepared again on demand."""
        g = coda.Graph()
        x, gain, w = g.input("x", "f32", [4, 8]), g.weight("gain", "f32", [8]), g.weight("w", "f32", [6, 8])
        g.output("y", coda.rms_norm(x, gain, 1e-5) @ w.T)
        plain, folded = g.compile("cpu"), g.compile("cpu", fold="copy")
        a, s, m = floats(4, 8), floats(8), floats(6, 8)
        self.assertGreater(folded.prepared_bytes, 0)
        self.close(folded(a, s, m), plain(a, s, m).tolist())
        s.view()[0] = 5.0
        folded.prepare_again()
        self.close(folded(a, s, m), plain(a, s, m).tolist())
        other, bound = floats(8), folded.bind(a, s, m)
        self.close(folded(a, other, m), plain(a, other, m).tolist())
        kept = [poisoned(folded.prepared_bytes, dtype="u8") for _ in range(8)]  # where constants lay that nobody keeps
        self.close(bound(), plain(a, s, m).tolist())  # those of a bound plan are its own
        del kept

    def test_explain(self):
        plan = self.plan()
        self.assertIn("matmul", plan.explain("graph"))
        self.assertIn("@0 gemm batch=1 m=4 n=6 k=8", str(plan))
        self.assertTrue(plan.explain("dot").startswith("digraph"))
        self.assertEqual((plan.stats.launches, plan.stats.launches_unfused), (1, 2))
        self.assertIn("library", coda.info())

    def test_jit(self):
        seen = []

        @coda.jit(device="cpu", weights=("w",))
        def block(x, w):
            """Doc."""
            seen.append(x.shape)
            return coda.relu(x @ w.T), x * 2
        w = floats(6, 8)
        for n in (4, 4, 2):
            x = floats(n, 8)
            y, z = block(x, w)
            self.close(y, [max(0, e) for e in flat(product(x.tolist(), w.tolist()))])
            self.close(z, [2 * e for e in flat(x.tolist())])
        self.assertEqual((seen, block.__doc__), ([(4, 8), (2, 8)], "Doc."))
        self.assertIn("weight f32[6,8]", str(block.plan(x, w).explain("graph")).replace(" [", "["))

    def test_jit_of_any_function(self):
        """Lambdas, partial functions, arrays by name, as many as there are, and defaults."""
        x, w = floats(4, 8), floats(6, 8)
        want = product(x.tolist(), w.tolist())

        def scaled(x, w, factor=None, by=2):
            y = x @ w.T
            return (y if factor is None else y * factor) * by
        double = coda.jit(scaled, device="cpu", weights="w")
        for y in (double(x, w), double(x, w=w), double(w=w, x=x)):
            self.close(y, [2 * e for e in flat(want)])
        self.assertEqual(len(double.plans), 1)
        out, factor = poisoned(4, 6), floats(6)
        self.assertIs(double(x, w, factor, out=out, threads=1), out)
        self.close(out, [2 * e * f for row in want for e, f in zip(row, factor.tolist())])
        part = coda.jit(functools.partial(scaled, by=3), device="cpu")
        self.close(part(x, w), [3 * e for e in flat(want)])
        self.assertEqual([a.name for a in part.plan(x, w).args], ["x", "w", "output.0"])
        self.close(coda.jit(lambda x: x + 1, device="cpu")(x), [e + 1 for e in flat(x.tolist())])
        total = coda.jit(lambda *x, **more: x[0] + x[1] * more["by"], device="cpu", weights=("by",))
        self.close(total(x, x, by=x), [e + e * e for e in flat(x.tolist())])
        args = total.plan(x, x, by=x).args
        self.assertEqual([(a.kind, a.name) for a in args][1:3], [("input", "x.1"), ("weight", "by")])

    def test_jit_refuses(self):
        def block(x, w):
            return x @ w.T
        x, made = floats(4, 8), coda.jit(block, device="cpu")
        for call, error, text in (
                (lambda: coda.jit(block, weights=("wieght",)), TypeError, r"'wieght' is no argument of block\(x, w\)"),
                (lambda: coda.jit(weights=("wieght",))(block), TypeError, r"'wieght' is no argument of block\(x, w\)"),
                (lambda: made(x), TypeError, r"block\(x, w\): missing a required argument: 'w'"),
                (lambda: made(x, x, x), TypeError, r"block\(x, w\): too many positional arguments"),
                (lambda: made(x, v=x), TypeError, r"block\(x, w\): "),
                (lambda: made(x, 3), coda.InvalidError, "input w: int is no array"),
                (lambda: coda.jit(3), TypeError, "jit wants a function, and not int")):
            with self.assertRaisesRegex(error, text):
                call()

    def test_copies(self):
        """A copy of what owns an object of the library owns one of its own, or is that object, or there is none."""
        def numbers(x):
            return flat(x.view().tolist())
        g = coda.Graph()
        x = g.input("x", "f32", (2, 3))
        g.output("y", x * 2 + 1)
        plan, a = g.compile("cpu"), floats(2, 3)
        want = numbers(plan(a))
        for make in (copy.copy, copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))):
            again, b = make(g), make(a)
            self.assertEqual((str(again), numbers(b)), (str(g), numbers(a)))
            self.assertNotEqual(b.memory.address, a.memory.address)
            self.assertEqual(numbers(again.compile("cpu")(b)), want)
            del again, b
        for o in (plan, x):
            self.assertIs(copy.copy(o), o)
            self.assertIs(copy.deepcopy([o])[0], o)
        gc.collect()
        self.assertEqual((numbers(plan(a)), numbers(g.compile("cpu")(a))), (want, want))
        for o in (plan, x, plan.bind(a), g.handle, coda.Cache(dir="")):
            with self.assertRaisesRegex(TypeError, "^[^\n]*(process|bound to arrays)[^\n]*$"):
                pickle.dumps(o)
        for o in (plan.bind(a), g.handle):
            with self.assertRaises(TypeError):
                copy.deepcopy(o)
        own = coda.Graph()
        own.define_map("cube", "x * x * x", reference=lambda v: v ** 3)
        with self.assertRaisesRegex(TypeError, "maps of its own"):
            copy.copy(own)
        bad = coda.Graph()
        with self.assertRaises(coda.InvalidError):
            bad.input("q", "f32", (2, 3)) @ bad.input("w", "f32", (4, 3))
        with self.assertRaisesRegex(coda.InvalidError, "inner sizes"):
            pickle.dumps(bad)

    def test_nothing_is_left(self):
        def size():
            with open("/proc/self/statm", encoding="utf-8") as f:
                return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        x, w = floats(4, 8), floats(6, 8)
        for k in range(600):
            if k == 200:
                gc.collect()
                before = size()
            self.plan()(x, w)
        gc.collect()
        self.assertLess(size() - before, 2 << 20)

    def test_import(self):
        """Nothing but the standard library is imported, and the first program of the page runs."""
        code = "import sys, libcoda; print([m for m in ('numpy', 'torch', 'jax', 'inspect') if m in sys.modules])"
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        self.assertEqual(out.strip(), "[]")


class FakeCuda:
    """Memory of the host that says it is a GPU's."""

    def __init__(self, array, **more):
        m = array.memory
        self.keep = array
        self.__cuda_array_interface__ = dict({"shape": m.shape, "typestr": "<f4", "data": (
            m.address, False), "version": 3, "strides": None}, **more)


class Interface:
    def __init__(self, **given):
        self.__array_interface__ = given


class Capsule:
    """A producer of DLPack, of a version."""

    def __init__(self, array, version, device=1):
        self.array, self.version, self.device, self.asked = array, version, device, []

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, **how):
        self.asked.append(how)
        if self.version < 1 and "max_version" in how:
            raise TypeError("max_version")
        return dlpack.write(self.array, (1, 0) if self.version >= 1 else None)


class Arrays(Case):
    def test_buffers(self):
        a = array.array("f", range(24))
        m = arrays.memory(a)
        self.assertEqual((m.address, m.dtype, m.shape, m.readonly), (a.buffer_info()[0], "f32", (24,), False))
        self.assertEqual(arrays.memory(array.array("q", [1])).dtype, "i64")
        self.assertEqual(arrays.memory(memoryview(a).cast("B").cast("f", (4, 6))).shape, (4, 6))
        self.assertTrue(arrays.memory(b"abcd").readonly)
        for wrong in (array.array("H", [1]), memoryview(a)[::2], 3, None):
            with self.assertRaises(coda.InvalidError):
                arrays.memory(wrong)
        with self.assertRaisesRegex(coda.InvalidError, "'>f' is big-endian"):
            arrays.memory((ctypes.c_float.__ctype_be__ * 4)())
        with self.assertRaisesRegex(coda.InvalidError, r"strides of \[8\] bytes is not contiguous"):
            arrays.memory(memoryview(a)[::2])

    def test_array_interface(self):
        x = floats(4, 6)
        given = x.__array_interface__
        self.assertEqual(
    given, {
        "shape": (
            4, 6), "typestr": "<f4", "data": (
                x.memory.address, False), "strides": None, "version": 3})
        for strides, want in (((24, 4), None), ((4, 16), (1, 4)), (None, None), ((48, 4), (12, 1))):
            self.assertEqual(arrays.memory(Interface(**dict(given, strides=strides))).strides, want)
        for more, text in (({"typestr": ">f4"}, "big-endian"), ({"typestr": "<c8"}, "takes"), ({
                           "strides": (-24, 4)}, "negative strides are not supported"), ({"strides": (6, 4)}, "not multiples of an element's 4 bytes"), ({"mask": x}, "mask")):
            with self.assertRaisesRegex(coda.InvalidError, text):
                arrays.memory(Interface(**dict(given, **more)))
        with self.assertRaises(AttributeError):
            x.__cuda_array_interface__

    def test_cuda_array_interface(self):
        x = floats(4, 6)
        m = arrays.memory(FakeCuda(x, stream=7, data=(x.memory.address, True)))
        self.assertEqual((m.address, m.device, m.stream, m.readonly, m.dtype),
                         (x.memory.address, ("cuda", 0), 7, True, "f32"))
        y = coda.Array((4, 6), "f32", x.memory.address, ("cuda", 0), owner=x, stream=9)
        self.assertEqual(
    y.__cuda_array_interface__, {
        "shape": (
            4, 6), "typestr": "<f4", "data": (
                x.memory.address, False), "strides": None, "version": 3, "stream": 9})
        self.assertEqual(y.__dlpack_device__(), (2, 0))
        with self.assertRaises(AttributeError):
            y.__array_interface__
        with self.assertRaises(coda.InvalidError):
            y.view()
        with self.assertRaisesRegex(coda.InvalidError, "memory of a device"):
            coda.Array((4, 6), "f32", device=("cuda", 0))
        g = coda.Graph()
        g.output("y", g.input("x", "f32", [4, 6]) * 2)
        with self.assertRaisesRegex(coda.InvalidError, "input x: the array is on cuda, the plan on cpu"):
            g.compile("cpu")(y)

    def test_dlpack(self):
        x = floats(4, 6)
        for version in (0.8, 1.0):
            p = Capsule(x, version)
            m = arrays.memory(p)
            self.assertEqual((m.address, m.dtype, m.shape, m.strides, m.device),
                             (x.memory.address, "f32", (4, 6), None, ("cpu", 0)))
            self.assertEqual(p.asked[-1]["stream"], None)
            self.assertEqual(len(dlpack.exported), 1)
            del m
            gc.collect()
            self.assertEqual(len(dlpack.exported), 0)  # the capsule that nobody took has freed it
        p = Capsule(x, 1.0, device=2)
        arrays.memory(p, stream=5), arrays.memory(p, stream=0)
        self.assertEqual([a["stream"] for a in p.asked], [5, 1])
        locked = coda.Array((4, 6), "f32", x.memory.address, owner=x, readonly=True)
        self.assertTrue(arrays.memory(Capsule(locked, 1.0)).readonly)
        with self.assertRaises(BufferError):
            locked.__dlpack__()
        with self.assertRaises(BufferError):
            x.__dlpack__(copy=True)
        turned = coda.Array((6, 4), "bf16", x.memory.address, owner=x, strides=(1, 6))
        m = arrays.memory(Capsule(turned, 1.0))
        self.assertEqual((m.strides, m.dtype), ((1, 6), "bf16"))
        gc.collect()

    def test_dlpack_is_taken_once(self):
        """As a consumer of its own takes it: the name changes, and its deleter frees it."""
        x = floats(3)
        capsule = x.__dlpack__()
        rename = dlpack.python_call("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
        managed = dlpack.Managed.from_address(dlpack.capsule_get(capsule, b"dltensor"))
        used = b"used_dltensor"
        rename(capsule, used)
        del capsule
        gc.collect()
        self.assertEqual(len(dlpack.exported), 1)
        self.assertEqual([ctypes.cast(managed.tensor.data, ctypes.POINTER(ctypes.c_float))[i]
                         for i in range(3)], x.tolist())
        managed.deleter(ctypes.addressof(managed))
        self.assertEqual(len(dlpack.exported), 0)

    def test_strided_and_misaligned(self):
        """A graph that says strides takes them. At an odd address a leaf of neither NumPy nor PyTorch is refused, and so is
        what a run writes."""
        base = floats(8, 8)
        rows = base.tolist()
        view = coda.Array((4, 4), "f32", base.memory.address, owner=base, strides=(16, 2))
        g = coda.Graph()
        g.output("y", g.input("x", view) * 2)
        self.assertEqual(g.args[0].strides, (16, 2))
        self.close(g.compile("cpu")(view), [[2 * rows[2 * i][2 * j] for j in range(4)] for i in range(4)])
        room = array.array("f", range(64))
        odd = memoryview(room)[1:33].cast("B").cast("f", (4, 8))
        g = coda.Graph()
        g.output("y", g.input("x", "f32", [4, 8]) * 2)
        plan = g.compile("cpu")
        with self.assertRaisesRegex(coda.InvalidError, "input x: memoryview is strided or not aligned to 16"):
            plan(odd)
        with self.assertRaisesRegex(coda.InvalidError, "output y: .* modulo 16"):
            plan(floats(4, 8), out=odd)

    def test_streams(self):
        class Stream:
            cuda_stream = 11

        class Protocol:
            def __cuda_stream__(self):
                return 0, 12
        from libcoda.plan import current_stream, stream_of
        self.assertEqual([stream_of(s) for s in (None, 5, Stream(), Protocol())], [None, 5, 11, 12])
        with self.assertRaises(TypeError):
            stream_of("s")
        x = floats(2)
        same = [arrays.memory(FakeCuda(x, stream=s)) for s in (4, 4)]
        self.assertEqual(current_stream(None, same + [None]), 4)
        with self.assertRaisesRegex(coda.InvalidError, "2 streams"):
            current_stream(None, same + [arrays.memory(FakeCuda(x, stream=5))])


if __name__ == "__main__":
    print("CODA_SEED=%d" % SEED)
    unittest.main()

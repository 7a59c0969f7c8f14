#!/usr/bin/env python3
"""cpu_peers.py -- the CPU device beside PyTorch, or NumPy's products, in one process, in turns, on the same data.

    cpu_peers.py [--threads N] [--rounds N] [--library build/libcoda.so] [PATTERN...]

Each side runs for some 5 ms, then the other; each figure is the least of its rounds, since other programs of the
machine only ever add to it: milliseconds by the clock, and of processor time of all threads. A ratio is ours
over the peer's, beside the bar that it should stay below. Results are compared first. Products in bf16 have a
second line, beside our own fp32. Of the two BLAS, each chooses its kernels itself: OPENBLAS_CORETYPE and
MKL_ENABLE_INSTRUCTIONS should not be set.
"""
import argparse
import ctypes
import os
import sys
import time

here = os.path.dirname(os.path.abspath(__file__))
options = argparse.ArgumentParser(usage=__doc__)
options.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
options.add_argument("--rounds", type=int, default=30)
options.add_argument("--library", dest="shared_object", default=os.path.join(here, "..", "build", "libcoda.so"))
options.add_argument("patterns", nargs="*")
options = options.parse_args()
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = str(options.threads)

try:
    import numpy
except ImportError:
    sys.exit("cpu_peers.py: python3 finds no numpy, and so no peer; nothing is measured")
try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None

SETTLE_S = 0.04  # threads of OpenBLAS and OpenMP spin for a while after their loop
ROUND_S = 0.005

os.environ["CODA_LIBRARY"] = options.shared_object
sys.path.insert(0, os.path.join(here, "..", "build", "python"))
try:
    from libcoda import c as coda  # the calls of coda.h under their names
except ImportError as e:
    sys.exit(f"cpu_peers.py: {e}; `make python` makes the package")


# ---- libcoda, by its package ----


def check(status):
    if status:
        sys.exit(f"cpu_peers.py: {coda.coda_error().decode()}")


def address(array):
    return array.ctypes.data if isinstance(array, numpy.ndarray) else array.data_ptr()


class Ours:
    """A graph in the text form, compiled for the CPU device and bound to arrays in the order of its leaves."""

    def __init__(self, text, arrays):
        graph, self.plan = coda.coda_graph(), coda.coda_plan()
        o = coda.coda_compile_options(device=coda.CODA_DEVICE_CPU)
        check(coda.coda_graph_parse(ctypes.byref(graph), (text + "output %y = %y\n").encode()))
        check(coda.coda_compile(ctypes.byref(self.plan), graph, ctypes.byref(o)))
        self.arrays = arrays  # kept alive
        self.args = (ctypes.c_void_p * len(arrays))(*[address(a) for a in arrays])
        self.memory = numpy.empty(coda.coda_plan_workspace(self.plan) + 256, numpy.uint8)
        self.work = (self.memory.ctypes.data + 255) // 256 * 256
        self.options = coda.coda_run_options(threads=options.threads)

    def __call__(self):
        check(coda.coda_run_shaped(self.plan, self.args, None, self.work, None, ctypes.byref(self.options)))


# ---- In turns ----


class Side:
    def __init__(self, run):
        self.run, self.wall, self.cpu = run, 1e30, 1e30
        run()
        begun = time.perf_counter()
        run()
        self.runs = int(ROUND_S / max(time.perf_counter() - begun, 1e-7)) + 1

    def round(self):
        time.sleep(SETTLE_S)
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(self.runs):
            self.run()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        self.wall = min(self.wall, 1e3 * wall / self.runs)
        self.cpu = min(self.cpu, 1e3 * cpu / self.runs)


def verdict(ratio, bar):
    return "" if bar is None else f"{'pass' if ratio <= bar else 'MISS'} (<= {bar:g})"


def measure(name, ours, theirs, peer, wall=None, cpu=None):
    """The bars are what ours may take, as a multiple of theirs."""
    if options.patterns and not any(p in name for p in options.patterns):
        return
    a, b = Side(ours), Side(theirs)
    for _ in range(options.rounds):
        a.round()
        b.round()
    print(f"{name:24} wall {a.wall:8.3f} {b.wall:8.3f} ms {a.wall / b.wall:6.2f} {verdict(a.wall / b.wall, wall):14} "
          f"CPU {a.cpu:8.3f} {b.cpu:8.3f} ms {a.cpu / b.cpu:6.2f} {verdict(a.cpu / b.cpu, cpu):14} {peer}", flush=True)


def compare(name, got, want, allowed):
    error = float(abs(got - want).max() / abs(want).max())
    if not error <= allowed:
        sys.exit(f"cpu_peers.py: {name}: results differ by {error:g} of the largest")


# ---- Cases ----

PRODUCTS = ((1, 4096, 4096, 1.1, 1.5), (16, 4096, 4096, 1.0, None), (128, 4096, 4096, 1.1, None),
            (512, 1024, 1024, 1.2, None))


def product(m, n, k, dtype):
    return f"%x = input {dtype}[{m},{k}]\n%w = weight {dtype}[{n},{k}]\n%y = matmul %x, %w\n"


def by_numpy():
    r = numpy.random.default_rng(1)
    for m, n, k, wall, cpu in PRODUCTS:
        x, w = r.standard_normal((m, k), numpy.float32), r.standard_normal((n, k), numpy.float32)
        y, z = numpy.empty((m, n), numpy.float32), numpy.empty((m, n), numpy.float32)
        ours = Ours(product(m, n, k, "f32"), [x, w, y])
        ours(), numpy.matmul(x, w.T, out=z)
        compare(f"product/{m}x{n}x{k}", y, z, 1e-5)
        bars = (wall, cpu) if torch is None else (None, None)  # PyTorch's, if it is there
        measure(f"product/{m}x{n}x{k} f32", ours, lambda: numpy.matmul(x, w.T, out=z), "NumPy", *bars)


def products():
    for m, n, k, wall, cpu in PRODUCTS:
        runs = []
        for dtype, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
            x, w, y = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype), torch.empty(m, n, dtype=dtype)
            runs.append(Ours(product(m, n, k, name), [x, w, y]))
            runs[-1]()
            full = f"product/{m}x{n}x{k} {name}"
            compare(full, y.float(), F.linear(x.float(), w.float()), 1e-5 if name == "f32" else 1e-2)
            f32 = name == "f32"
            measure(full, runs[-1], lambda: F.linear(x, w), "PyTorch", wall if f32 else None, cpu if f32 else None)
        measure(full, runs[1], runs[0], "ours in f32", None, 1.0 if m <= 16 else None)


def rows():
    x, b, g, y = torch.randn(512, 1024), torch.randn(512, 1024), torch.randn(1024), torch.empty(512, 1024)
    x_text, g_text = "%x = input f32[512,1024]\n", "%g = weight f32[1024]\n%b = weight f32[1024]\n"
    cases = (("add", x_text + "%b = input f32[512,1024]\n%y = add %x, %b\n", [x, b, y], lambda: x + b),
             ("gelu_erf", x_text + "%y = gelu_erf %x\n", [x, y], lambda: F.gelu(x)),
             ("layer_norm", x_text + g_text + "%y = layer_norm %x, %g, %b {eps=1e-05}\n", [x, g, g, y],
              lambda: F.layer_norm(x, (1024,), g, g)),
             ("softmax", x_text + "%y = softmax %x\n", [x, y], lambda: F.softmax(x, -1)))
    for name, text, arrays, run in cases:
        ours = Ours(text, arrays)
        ours()
        compare("row/" + name, y, run(), 1e-5)
        measure("row/" + name, ours, run, "PyTorch", cpu=8)


def heads(x):  # [t, 512] as [1, 8, t, 64]
    return x.view(x.shape[0], 8, 64).transpose(0, 1)[None]


def attention(name, queries, keys, causal, cpu):
    q, k, v, y = (torch.randn(n, 512) for n in (queries, keys, keys, queries))
    text = "".join(f"%{x} = input f32[{n},512]\n" for x, n in (("q", queries), ("k", keys), ("v", keys)))
    ours = Ours(text + f"%y = attention %q, %k, %v {{heads=8, causal={int(causal)}}}\n", [q, k, v, y])
    a, b, c = (heads(x).contiguous() for x in (q, k, v))  # as PyTorch's own layers have them
    ours()
    compare(name, heads(y), F.scaled_dot_product_attention(a, b, c, is_causal=causal), 1e-5)
    measure(name, ours, lambda: F.scaled_dot_product_attention(a, b, c, is_causal=causal), "PyTorch", cpu=cpu)


print(f"{options.threads} threads; ours, the peer's, ours over the peer's")
by_numpy()
if torch is not None:
    torch.set_num_threads(options.threads)
    with torch.no_grad():
        products()
        rows()
        attention("attention/512 causal", 512, 512, True, 3)
        attention("attention/1 of 4096", 1, 4096, False, 5)

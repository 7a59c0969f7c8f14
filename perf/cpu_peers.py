#!/usr/bin/env python3
"""cpu_peers.py -- the cases of cpu.c in NumPy and PyTorch, as far as python3 has them.

    cpu_peers.py [--threads N] [PATTERN...]

Prints what cpu.c prints: the least of the rounds by the clock, and of processor time. NumPy does products alone; its
OpenBLAS chooses its kernels itself, so OPENBLAS_CORETYPE should not be set.
"""
import os
import resource
import sys
import time

threads = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv else ""
if threads:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = threads
patterns = [a for a in sys.argv[1:] if not a.startswith("-") and a != threads]

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None

PRODUCTS = ((1, 4096, 4096), (16, 4096, 4096), (128, 4096, 4096), (512, 1024, 1024))


def processor():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return 1e3 * (u.ru_utime + u.ru_stime)


def measure(name, peer, run):
    if patterns and not any(p in name for p in patterns):
        return
    wall = cpu = 1e30
    begun, runs = time.perf_counter(), 1
    for round in range(400):
        start, used = time.perf_counter(), processor()
        for _ in range(runs):
            run()
        once, used = 1e3 * (time.perf_counter() - start) / runs, (processor() - used) / runs
        if round:
            wall, cpu = min(wall, once), min(cpu, used)
        elif once < 4:
            runs = int(4 / once) + 1
        if round >= 5 and time.perf_counter() - begun > 0.4:
            break
    print(f"{name:28} {wall:9.3f} ms wall {cpu:9.3f} ms CPU  {peer}", flush=True)


def by_numpy():
    r = numpy.random.default_rng(1)
    for m, n, k in PRODUCTS:
        x, w = r.random((m, k), numpy.float32), r.random((n, k), numpy.float32)
        y = numpy.empty((m, n), numpy.float32)
        measure(f"product/{m}x{n}x{k} f32", "NumPy", lambda: numpy.matmul(x, w.T, out=y))


def by_torch():
    if threads:
        torch.set_num_threads(int(threads))
    for m, n, k in PRODUCTS:
        for dtype, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
            x, w = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)
            measure(f"product/{m}x{n}x{k} {name}", "PyTorch", lambda: F.linear(x, w))
    x, b, g = torch.randn(512, 1024), torch.randn(512, 1024), torch.randn(1024)
    measure("row/add", "PyTorch", lambda: x + b)
    measure("row/gelu_erf", "PyTorch", lambda: F.gelu(x))
    measure("row/layer_norm", "PyTorch", lambda: F.layer_norm(x, (1024,), g, g))
    measure("row/softmax", "PyTorch", lambda: F.softmax(x, -1))
    q = torch.randn(1, 8, 512, 64)
    measure("attention/512 causal", "PyTorch", lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True))
    one, many = torch.randn(1, 8, 1, 64), torch.randn(1, 8, 4096, 64)
    measure("attention/1 of 4096", "PyTorch", lambda: F.scaled_dot_product_attention(one, many, many))


if numpy is None and torch is None:
    sys.exit("cpu_peers.py: python3 finds neither numpy nor torch; nothing is measured")
if numpy is not None:
    by_numpy()
if torch is not None:
    with torch.no_grad():
        by_torch()

#!/usr/bin/env python3
"""pytorch.py -- libcoda beside PyTorch in one process, their runs in turns.

    pytorch.py [--all] [--max-autotune] [--jax] [--quick] [--seconds N] [--out FILE] [--cpu] [PATTERN...]

    plain, swiglu, rope, loss   h = a w' + r;  y = f(rms_norm(h) v')
    layer                       a LLaMA layer forward, attention aside

Sides: "coda" (gains in the epilogues), "folded" (gains folded into the weights), "gemms" (torch's products
and nothing else), "compile" (torch.compile), "eager"; "liger" and "quack" where their packages are (peers.py);
by option "autotune" (max-autotune, for the layer) and "jax" (jax.jit, by the host's clock, four runs at once).
"best" is the fastest peer. Every side but jax is a replay of a CUDA graph, after 40 ms of its own work, so that
it meets the clocks that its own power leaves, and after the L2 was flushed. Rows of the results are compared
with the same formula in fp32; a peer that cannot run, or computes something else, is left out with a word. The
patterns at D 8192 need --all; no case starts after --seconds (default 200). Results go to
perf/results/CARD/torch.json, unless patterns choose some. --cpu tries all on small shapes without a GPU, and stores
nothing.
"""
import argparse
import ctypes
import datetime
import importlib.metadata
import json
import math
import os
import statistics
import subprocess
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
START = time.monotonic()
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEAD, VOCABULARY, EPS = 128, 32768, 1e-5
FOLD_NONE, FOLD_COPY = 0, 1
JAX_RUNS = 4
PEERS = ("compile", "autotune", "liger", "quack", "jax")
DWELL = 40  # milliseconds of a side's own work before each of its timed runs
F32, BF16, I32 = 1, 2, 4
ROWS = 1  # CODA_REDUCE_NONE

sys.path.insert(0, os.path.join(ROOT, "build", "python"))
try:
    import torch
    import torch.nn.functional as F
    import peers
except ImportError:
    sys.exit("pytorch.py: python3 finds no torch; nothing is measured")
try:
    from libcoda import c  # the calls of coda.h under their names
except ImportError as e:
    sys.exit("pytorch.py: %s; `make python` makes the package" % e)


# ---- libcoda by its package ----

class Graph:
    """A graph under construction; args are its tensors in the order of their making."""

    def __init__(self, lib, case):
        self.lib, self.case, self.args = lib, case, []
        self.g = lib.coda_graph_new()

    def leaf(self, name):
        t = self.case.tensors[name]
        make = self.lib.coda_weight if name in self.case.weights else self.lib.coda_input
        dtype = {torch.bfloat16: BF16, torch.int32: I32, torch.float32: F32}[t.dtype]
        self.args.append(t)
        return make(self.g, name.encode(), dtype, t.dim(), (ctypes.c_int64 * t.dim())(*t.shape))

    def matmul(self, x, w):
        return self.lib.coda_matmul(self.g, x, self.leaf(w))

    def add(self, a, b):
        return self.lib.coda_add(self.g, a, b)

    def rms_norm(self, x, gain):
        return self.lib.coda_rms_norm(self.g, x, self.leaf(gain), ctypes.c_float(EPS))

    def swiglu(self, x):
        return self.lib.coda_swiglu(self.g, x, 1)

    def rope(self, x):
        opt = c.coda_rope_options(head_dim=HEAD, heads=2 * self.case.d // HEAD)
        return self.lib.coda_rope(self.g, x, c.coda_value(0), ctypes.byref(opt))

    def loss(self, x):
        opt = c.coda_cross_entropy_options(reduction=ROWS)
        return self.lib.coda_cross_entropy(self.g, x, self.leaf("target"), ctypes.byref(opt))

    def output(self, name, value, shape, dtype=torch.bfloat16):
        self.lib.coda_output(self.g, name.encode(), value)
        self.args.append(torch.full(shape, math.nan, dtype=dtype, device=self.case.device))
        return self.args[-1]


class Plan:
    """A compiled graph with its memory; a call enqueues it on torch's current stream."""

    def __init__(self, graph, outputs, fold):
        self.lib, self.case, self.outputs, self.keep = graph.lib, graph.case, outputs, graph.args
        self.p = c.coda_plan()
        cuda = self.case.device == "cuda"
        opt = c.coda_compile_options(device=0 if cuda else 1, fold=fold)
        self.must(self.lib.coda_compile(ctypes.byref(self.p), graph.g, ctypes.byref(opt)))
        self.lib.coda_graph_free(graph.g)
        self.work = self.scratch(self.lib.coda_plan_workspace(self.p))
        self.prepared = self.scratch(self.lib.coda_plan_prepared(self.p))
        self.args = (ctypes.c_void_p * len(self.keep))(*[t.data_ptr() for t in self.keep])
        self.enqueue(self.lib.coda_prepare)

    def scratch(self, size):
        return torch.empty(size + 512, dtype=torch.uint8, device=self.case.device)

    def must(self, status):
        if status:
            sys.exit("pytorch.py: " + self.lib.coda_error().decode())

    def enqueue(self, call):
        cuda = self.case.device == "cuda"
        stream = torch.cuda.current_stream().cuda_stream if cuda else None
        memory = [ctypes.c_void_p((t.data_ptr() + 255) // 256 * 256) for t in (self.prepared, self.work)]
        self.must(call(self.p, self.args, *memory, ctypes.c_void_p(stream)))

    def __call__(self):
        self.enqueue(self.lib.coda_run)
        return self.outputs

    def stats(self):
        s = c.coda_plan_stats()
        self.must(self.lib.coda_plan_stats_get(self.p, ctypes.byref(s)))
        return s

    def free(self):
        self.lib.coda_plan_free(self.p)


# ---- The formula in torch: any dtype ----

def rms_norm(x, gain):
    f = x.float()
    return (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + EPS)).to(x.dtype) * gain


def swiglu(x):
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def rope(qkv, cos, sin):
    """q and k, rotated; v stays where it is."""
    heads = qkv[:, :2 * qkv.shape[1] // 3].unflatten(1, (-1, HEAD))
    a, b = heads.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).flatten(1).to(qkv.dtype)


def pattern(kind, t):
    h = F.linear(t["a"], t["w"]) + t["r"]
    y = F.linear(rms_norm(h, t["gain"]), t["v"])
    if kind == "swiglu":
        return h, swiglu(y)
    if kind == "rope":
        return h, rope(y, t["cos"], t["sin"]), y
    if kind == "loss":
        return F.cross_entropy(y.float(), t["target"].long(), reduction="none"),
    return h, y


def layer(t):
    qkv = F.linear(rms_norm(t["x"], t["gain"]), t["w_qkv"])
    h = F.linear(t["a"], t["w_o"]) + t["x"]
    z = swiglu(F.linear(rms_norm(h, t["gain_mlp"]), t["w_gate_up"]))
    return rope(qkv, t["cos"], t["sin"]), F.linear(z, t["w_down"]) + h, qkv


# ---- Cases ----

class Case:
    def __init__(self, kind, m, d, f, device, vocabulary=VOCABULARY):
        self.kind, self.m, self.d, self.f, self.device, self.v = kind, m, d, f, device, vocabulary
        self.name = "torch/%s/%d" % (kind, d)
        self.tensors, self.weights = {}, set()

    def fill(self):
        m, d, f = self.m, self.d, self.f
        if self.kind == "layer":
            self.rows(x=d, a=d, z=f)
            self.matrices(w_qkv=(3 * d, d), w_o=(d, d), w_gate_up=(2 * f, d), w_down=(d, f))
            self.gains("gain", "gain_mlp")
        else:
            k = d if self.kind in ("plain", "swiglu") else f
            n = {"plain": d, "swiglu": 2 * f, "rope": 3 * d, "loss": self.v}[self.kind]
            self.rows(a=k, r=d)
            self.matrices(w=(d, k), v=(n, d))
            self.gains("gain")
        if self.kind == "loss":
            self.tensors["target"] = torch.randint(self.v, (m,), dtype=torch.int32, device=self.device)
        turns = 10000.0 ** (-torch.arange(0, HEAD, 2, dtype=torch.float64) / HEAD)
        angle = torch.outer(torch.arange(m, dtype=torch.float64), turns)
        self.tensors["cos"] = angle.cos().float()[:, None].to(self.device)
        self.tensors["sin"] = angle.sin().float()[:, None].to(self.device)

    def random(self, *shape):
        return torch.randn(shape, device=self.device)

    def rows(self, **columns):
        for name, n in columns.items():
            self.tensors[name] = self.random(self.m, n).bfloat16()

    def matrices(self, **shapes):
        for name, (n, k) in shapes.items():
            self.tensors[name] = (self.random(n, k) / math.sqrt(k)).bfloat16()
            self.weights.add(name)

    def gains(self, *names):
        for name in names:
            self.tensors[name] = (1 + 0.1 * self.random(self.d)).bfloat16()
            self.weights.add(name)

    def formula(self, t):
        return layer(t) if self.kind == "layer" else pattern(self.kind, t)

    def gemms(self, t):
        if self.kind == "layer":
            return [F.linear(t[x], t[w]) for x, w in
                    (("x", "w_qkv"), ("a", "w_o"), ("x", "w_gate_up"), ("z", "w_down"))]
        return [F.linear(t["a"], t["w"]), F.linear(t["r"], t["v"])]

    def plan(self, lib, fold):
        g = Graph(lib, self)
        return Plan(g, self.layer_graph(g) if self.kind == "layer" else self.pattern_graph(g), fold)

    def pattern_graph(self, g):
        m, d, f = self.m, self.d, self.f
        h = g.add(g.matmul(g.leaf("a"), "w"), g.leaf("r"))
        y = g.matmul(g.rms_norm(h, "gain"), "v")
        if self.kind == "loss":
            return g.output("y", g.loss(y), (m,), torch.float32),
        out = g.output("h", h, (m, d))
        if self.kind == "swiglu":
            return out, g.output("y", g.swiglu(y), (m, f))
        if self.kind == "rope":
            return out, g.output("y", g.rope(y), (m, 3 * d))[:, :2 * d]
        return out, g.output("y", y, (m, d))

    def layer_graph(self, g):
        m, d = self.m, self.d
        x = g.leaf("x")
        qkv = g.rope(g.matmul(g.rms_norm(x, "gain"), "w_qkv"))
        h = g.add(g.matmul(g.leaf("a"), "w_o"), x)
        z = g.swiglu(g.matmul(g.rms_norm(h, "gain_mlp"), "w_gate_up"))
        y = g.add(g.matmul(z, "w_down"), h)
        qkv = g.output("qkv", qkv, (m, 3 * d))
        return qkv[:, :2 * d], g.output("y", y, (m, d))

    def reference(self, row):
        """In fp32, of some rows."""
        by_row = ("x", "a", "r", "z", "target", "cos", "sin")
        t = {n: v[row] if n in by_row else v for n, v in self.tensors.items()}
        return self.formula({n: v.float() if v.dtype == torch.bfloat16 else v for n, v in t.items()})


def distance(got, want):
    return float((got.double() - want.double()).norm() / want.double().norm())


def check(case, sides):
    """libcoda's largest error, and that over its limit: 1.2 times eager's, or half a unit of bf16."""
    row = torch.randperm(case.m)[:256].to(case.device)
    error = excess = 0
    reference, eager = case.reference(row), sides["eager"][1]
    for name in list(sides.keys() - {"gemms"}):
        if not distance(sides[name][1][0][row], reference[0]) <= 2e-2:
            print("pytorch.py: %s: %s computes something else" % (case.name, name))
            if name in PEERS:
                del sides[name]
    for want, theirs, *ours in zip(reference, eager, sides["coda"][1], sides["folded"][1]):
        limit = min(1e-2, max(2.0 ** -8, 1.2 * distance(theirs[row], want)))
        for y in ours:
            e = distance(y[row], want)
            error, excess = max(error, e), max(excess, e / limit if e == e else math.inf)
    return error, excess


# ---- Sides: each a function that takes no time to call, and its result ----

def captured(fn):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(2):
            fn()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        out = fn()
    graph.replay()
    return graph.replay, out


def uncaptured(fn):
    with torch.no_grad():
        return fn, fn()


def sides_of(case, lib, opt):
    wrap = captured if case.device == "cuda" else uncaptured
    t = case.tensors
    plans = {"coda": case.plan(lib, FOLD_NONE), "folded": case.plan(lib, FOLD_COPY)}
    sides = {n: wrap(p) for n, p in plans.items()}
    sides["gemms"] = wrap(lambda: case.gemms(t))
    sides["compile"] = wrap(compiled(case, "default"))
    sides["eager"] = wrap(lambda: case.formula(t))
    if opt.max_autotune and case.kind == "layer":
        sides["autotune"] = wrap(compiled(case, "max-autotune-no-cudagraphs"))
    for name, prepare in peers.formulas(case, opt.jax):
        try:
            sides[name] = peer_side(name, prepare(), wrap)
        except Exception as e:  # whatever a peer raises, the others are measured
            print("pytorch.py: %s: %s cannot run: %s" % (case.name, name, str(e).splitlines()[:1]), flush=True)
    return sides, plans


def peer_side(name, formula, wrap):
    """jax: several runs at once, so that the host's clock sees the device. A peer that waits for the device
    within its formula is not captured."""
    if name == "jax":
        return lambda: formula.__self__.several(JAX_RUNS), [torch.from_dlpack(y) for y in formula()]
    return (uncaptured if formula.__self__.waits() else wrap)(formula)


def compiled(case, mode):
    torch._dynamo.reset()
    fn = torch.compile(case.formula, dynamic=False, fullgraph=True, mode=mode)
    return lambda: fn(case.tensors)


# ---- Time ----

class Clock:
    def __init__(self, device):
        self.cuda = device == "cuda"
        self.flush = torch.empty(1 << 28, dtype=torch.uint8, device=device) if self.cuda else None

    def host(self, fn):
        if self.cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        fn()
        if self.cuda:
            torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e3

    def events(self, fn):
        pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        self.flush.zero_()
        pair[0].record()
        fn()
        pair[1].record()
        return pair

    def round(self, sides, order, before):
        """Milliseconds of one run of each side, after before[name] runs of its own."""
        ms = {}
        for name in order:
            fn = sides[name][0]
            for _ in range(before[name]):
                fn()
            if name == "jax":
                ms[name] = self.host(fn) / JAX_RUNS
            else:
                ms[name] = self.events(fn) if self.cuda else self.host(fn)
        if self.cuda:
            torch.cuda.synchronize()
        return {n: v if isinstance(v, float) else v[0].elapsed_time(v[1]) for n, v in ms.items()}


def measure(clock, sides, quick):
    """A side's clocks are those that its own power draw leaves it, not its neighbour's."""
    names = list(sides)
    for _ in range(2):
        warm = clock.round(sides, names, dict.fromkeys(names, 0))
    before = {n: math.ceil((0 if quick else DWELL) / ms) for n, ms in warm.items()}
    each = sum((before[n] + 1) * ms for n, ms in warm.items())
    rounds = int(min(101, max(5 if quick else 11, (100 if quick else 1500) / each)))
    return [clock.round(sides, names[::-1] if r % 2 else names, before) for r in range(rounds)]


# ---- Report ----

def spread(v):
    return {"median": float("%.6g" % statistics.median(v)), "min": float("%.6g" % min(v)),
            "max": float("%.6g" % max(v))}


def ratios(rounds):
    r = {n: statistics.median(x[n] / x["coda"] for x in rounds) for n in rounds[0] if n != "coda"}
    r["best"] = min(r[n] for n in PEERS if n in r)
    return {n: round(v, 4) for n, v in r.items()}


def row_of(case, plan, rounds, error, excess):
    s = plan.stats()
    return {"case": case.name, "m": case.m, "n": case.d, "k": case.f, "flops": s.flops, "bytes": s.bytes,
            "launches": s.launches, "error": float("%.3g" % error), "excess": float("%.3g" % excess),
            "good": excess <= 1, "rounds": len(rounds),
            "sides": {n: spread([x[n] for x in rounds]) for n in rounds[0]}, "ratio": ratios(rounds)}


def clocks():
    query = "clocks.sm,clocks.mem,clocks.max.sm,power.draw,power.limit,temperature.gpu"
    keys = "sm memory sm_max power power_limit celsius".split()
    try:
        out = subprocess.run(["nvidia-smi", "-i", "0", "--format=csv,noheader", "--query-gpu=" + query],
                             capture_output=True, text=True, check=True).stdout
        return dict(zip(keys, (v.strip() for v in out.split(","))))
    except (OSError, subprocess.SubprocessError):
        return {}


def info(lib):
    text = ctypes.create_string_buffer(4096)
    lib.coda_info_print(text, 4096)
    pairs = [line.split(":", 1) for line in text.value.decode().splitlines() if ":" in line]
    out = {k: v.split(" /")[0].strip() for k, v in pairs if not k.startswith("cache")}
    out["torch"] = torch.__version__
    for name in ("triton", "jax", "liger-kernel", "quack-kernels"):
        try:
            out[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return out


def store(path, lib, rows, name="torch"):
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    with open(path, "w", encoding="utf-8") as f:
        f.write('{"name": "%s", "date": "%s",\n' % (name, date))
        f.write('"clocks": %s,\n"info": %s,\n' % (json.dumps(clocks()), json.dumps(info(lib))))
        f.write('"cases": [\n%s\n]}\n' % ",\n".join(json.dumps(r) for r in rows))


def say(row):
    print("%-22s %9.4f ms  %8.1e %5.2f %s " % (row["case"], row["sides"]["coda"]["median"], row["error"],
          row["excess"], "good " if row["good"] else "WRONG"),
          "  ".join("%s %.3f" % p for p in row["ratio"].items()),
          "  [%.0f s]" % (time.monotonic() - START), flush=True)


# ---- The program ----

def all_cases(opt):
    kinds, shapes = ("plain", "swiglu", "rope", "loss"), {2048: 5632, 4096: 11008, 8192: 22016}
    if opt.cpu:
        cases = [Case(kind, 48, 256, 512, "cpu", 1024) for kind in ("layer", *kinds)]
    else:
        cases = [Case("layer", 16384, d, f, "cuda") for d, f in shapes.items()]
        wide = [d for d in shapes if d < 8192 or opt.all]
        cases += [Case(kind, 16384, d, shapes[d], "cuda") for kind in kinds for d in wide]
    return [c for c in cases if not opt.pattern or any(p in c.name for p in opt.pattern)]


def one(case, lib, clock, opt):
    torch.manual_seed(7)
    case.fill()
    sides, plans = sides_of(case, lib, opt)
    error, excess = check(case, sides)
    row = row_of(case, plans["coda"], measure(clock, sides, opt.quick), error, excess)
    say(row)
    sides.clear()
    case.tensors.clear()
    for p in plans.values():
        p.free()
    if clock.cuda:
        torch.cuda.empty_cache()
    return row


def results(name):
    """perf/results/CARD/NAME.json: of the card's name the first word with a digit, "h100"."""
    words = torch.cuda.get_device_name().split()
    card = next((w for w in words if any(c.isdigit() for c in w)), words[-1]).lower()
    folder = os.path.join(ROOT, "perf", "results", card)
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, name + ".json")


def parse(description=__doc__, flags="--all --max-autotune --jax --quick --cpu", seconds=200):
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in flags.split():
        p.add_argument(flag, action="store_true")
    p.add_argument("--seconds", type=float, default=seconds)
    p.add_argument("--out")
    p.add_argument("pattern", nargs="*")
    return p.parse_args()


def main():
    opt = parse()
    if not opt.cpu and not torch.cuda.is_available():
        sys.exit("pytorch.py: torch finds no GPU; nothing is measured")
    chosen = opt.pattern or opt.cpu
    path = opt.out or (None if chosen else results("torch"))
    lib, clock, rows = c, Clock("cpu" if opt.cpu else "cuda"), []
    for case in all_cases(opt):
        if time.monotonic() - START > opt.seconds:
            print("%-22s left out: %g seconds are over" % (case.name, opt.seconds), flush=True)
            continue
        rows.append(one(case, lib, clock, opt))
        if path:
            store(path, lib, rows)
    return 0 if all(r["good"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

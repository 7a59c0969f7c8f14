#!/usr/bin/env python3
"""backward.py -- backward passes beside PyTorch, XLA and Liger in one process, their runs in turns.

    backward.py [--jax] [--quick] [--seconds N] [--out FILE] [--cpu] [PATTERN...]

    layer       the layer of backward.c, from what its forward has kept; XLA's time is that of forward and
                backward less that of forward, in each round
    both        its forward and backward in one call
    swiglu, rms SwiGLU, F to D, or RMSNorm, D to 3 D, and its product
    paper_rms, paper_swiglu   one product, M = N = K = D, and what the gradient of an RMSNorm or of SwiGLU does to
                its result: paper/rms and paper/swiglu of backward.c
    loss        linear cross-entropy, forward and backward; torch.compile by chunks of 4096 rows (mm, compiled
                loss, mm, addmm), "chunks" is libcoda by the same
    adamw       AdamW of 2^27 parameters and their copy in bf16; torch: the fused AdamW and a copy
    attention   its backward, causal, 2 x 32 x 8192 x 128: PyTorch's "cudnn" and "flash"

Sides: "coda", "compile" (torch.compile; backward by autograd), "jax" (by option, by the host's clock), "liger"
where its package is. Gradients of weights are bf16, as PyTorch's are. The rest is as in pytorch.py: CUDA graphs
where a side can be captured, 40 ms of a side's own work before it is timed (but not with --quick), an L2 that was
flushed. Results are compared with eager PyTorch's, whose bf16 differs by up to 2 %. A case that libcoda refuses is
left out with its reason. They go to perf/results/CARD/torch_backward.json, unless patterns choose some.
"""
import math
import sys
import time

import pytorch
from pytorch import distance
import torch
import torch._functorch.config
import backward_cases as cases
from backward_cases import AdamW, Layer, Refused, backward_of
import peers

OFF = 2e-2  # how far two computations in bf16 may be from each other


# ---- Sides: each a function that takes no time to call, and its results ----

def results(out):
    return list(out.values()) if isinstance(out, dict) else list(out)


def captured(make):
    """A backward runs on the stream of its forward, so both are made and captured on one of their own. It lives
    as long as its graph, since it owns what its forward has kept."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        fn = make()
        for _ in range(2):
            fn()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        out = fn()
    graph.replay()
    return lambda alive=fn: graph.replay(), results(out)


def uncaptured(make):
    fn = make()
    return fn, results(fn())


def side(case, name, make):
    if case.device != "cuda":
        return uncaptured(make)
    try:
        return captured(make)
    except Exception as e:  # whatever a capture does not like
        torch.cuda.synchronize()
        print("backward.py: %s: %s runs without a CUDA graph: %s" % (case.name, name, str(e).splitlines()[:1]),
              flush=True)
        return uncaptured(make)


def torch_sides(case):
    torch._dynamo.reset()
    if hasattr(case, "compiled"):
        yield "compile", case.compiled
    elif case.autograd:
        fn = torch.compile(case.formula, dynamic=False, fullgraph=True)
        yield "compile", lambda: backward_of(case, fn)
    else:
        fn = torch.compile(case.formula, dynamic=False, fullgraph=True)
        yield "compile", lambda: lambda: fn(case.tensors)
    if hasattr(case, "others"):
        yield from case.others()


def jax_sides(case):
    """A layer's forward, and that with its backward."""
    import jax
    import jax.numpy as jnp
    layer = JaxLayer(jax, jnp)
    t = {n: jnp.from_dlpack(case.tensors[n]) for n in case.x + case.dy + ("cos", "sin")}
    x, dy = [t[n] for n in case.x], tuple(t[n] for n in case.dy)

    def forward(x, cos, sin):
        return layer.forward(dict(zip(case.x, x), cos=cos, sin=sin))

    def both(x, dy, cos, sin):
        y, back = jax.vjp(lambda *a: forward(a, cos, sin), *x)
        return (*y, *back(dy))
    calls = {"jax_both": (jax.jit(both), (x, dy, t["cos"], t["sin"]))}
    if not case.joint:
        calls["jax_forward"] = (jax.jit(forward), (x, t["cos"], t["sin"]))

    def several(fn, args, n=pytorch.JAX_RUNS):
        for _ in range(n):
            y = fn(*args)
        return jax.block_until_ready(y)
    for name, (fn, args) in calls.items():
        out = [torch.from_dlpack(y) for y in several(fn, args, 1)]
        yield name, (lambda fn=fn, args=args: several(fn, args), out if case.joint else out[2:])


class JaxLayer(peers.Jax):
    def __init__(self, jax, jnp):
        self.jax, self.jnp = jax, jnp

    def forward(self, t):
        x1 = self.linear(t["y0"], t["w0"]) + t["x0"]
        z1 = self.linear(self.norm(x1, t["gain0"]), t["w1"])
        x2 = self.linear(self.gated(z1), t["w2"]) + x1
        qkv = self.linear(self.norm(x2, t["gain1"]), t["w3"])
        d = qkv.shape[1] // 3
        return x2, self.jnp.concatenate((self.rotated(qkv, t), qkv[:, 2 * d:]), 1)


# ---- Checks: against eager PyTorch ----

def check(case, sides, want):
    worst = 0
    for name in list(sides):
        got = sides[name][1]
        if name == "jax_forward" or not got or not want:
            continue
        off = max(distance(g.flatten(), w.flatten()) for g, w in zip(got, want, strict=True))
        if name in ("coda", "chunks"):
            worst = max(worst, off) if off == off else math.inf
        elif not off <= OFF:
            print("backward.py: %s: %s computes something else: %.1e" % (case.name, name, off))
            del sides[name]
    return worst


def check_adamw(case, plan):
    """A step by the formula of Loshchilov & Hutter in fp64."""
    t = {n: v.double() for n, v in case.tensors.items()}
    plan()
    b1, b2 = cases.BETAS
    m, v = b1 * t["m"] + (1 - b1) * t["grad"], b2 * t["v"] + (1 - b2) * t["grad"] ** 2
    step = m * float(t["c1"]) / (torch.sqrt(v * float(t["c2"])) + cases.TINY) + float(t["wd"]) * t["master"]
    want = t["master"] - float(t["lr"]) * step
    return max(distance(case.tensors[n], w) * s for n, w, s in
               (("master", want, 1e3), ("m", m, 1e3), ("v", v, 1e3), ("w", want, 1)))


def eager(case):
    if case.autograd:
        return results(backward_of(case, case.formula)())
    return results(case.formula(case.tensors))


# ---- The program ----

class Clock(pytorch.Clock):
    def round(self, sides, order, before):
        """As pytorch.py's; sides that begin with jax by the host's clock, and their difference."""
        ms = super().round({n: s for n, s in sides.items() if not n.startswith("jax")},
                           [n for n in order if not n.startswith("jax")], before)
        for name in (n for n in order if n.startswith("jax")):
            for _ in range(math.ceil(before[name] / pytorch.JAX_RUNS)):
                sides[name][0]()
            ms[name] = self.host(sides[name][0]) / pytorch.JAX_RUNS
        return ms


def settle(rounds):
    """XLA's backward is the difference."""
    for r in rounds:
        both, forward = r.pop("jax_both", None), r.pop("jax_forward", 0)
        if both:
            r["jax"] = both - forward
    return rounds


def ratios(rounds):
    r = {n: pytorch.statistics.median(x[n] / x["coda"] for x in rounds) for n in rounds[0] if n != "coda"}
    peer = [v for n, v in r.items() if n != "chunks"]
    r["best"] = min(peer) if peer else math.nan
    return {n: round(v, 4) for n, v in r.items()}


def sides_of(case, plans, opt):
    sides = {n: side(case, n, lambda p=p: p) for n, p in plans.items()}
    for name, make in torch_sides(case):
        try:
            sides[name] = side(case, name, make)
        except Exception as e:  # whatever a peer raises, the others are measured
            print("backward.py: %s: %s cannot run: %s" % (case.name, name, str(e).splitlines()[:1]), flush=True)
    if opt.jax and isinstance(case, Layer) and peers.has("jax"):
        sides.update(jax_sides(case))
    return sides


def row_of(case, plan, rounds, error):
    s = plan.stats()
    return {"case": case.name, "m": case.m, "n": case.d, "k": case.f, "flops": s.flops, "bytes": s.bytes,
            "launches": s.launches, "error": float("%.3g" % error), "excess": float("%.3g" % (error / OFF)),
            "good": error <= OFF, "rounds": len(rounds),
            "sides": {n: pytorch.spread([x[n] for x in rounds]) for n in rounds[0]}, "ratio": ratios(rounds)}


def say(row):
    pytorch.say(row)
    print("%-22s %d launches, %.0f MB; ms: %s" % ("", row["launches"], row["bytes"] / 1e6,
          ", ".join("%s %.4f" % (n, s["median"]) for n, s in row["sides"].items())), flush=True)


def one(case, lib, clock, opt):
    torch.manual_seed(7)
    case.fill()
    want = eager(case)
    plans = case.plans(lib)
    error = check_adamw(case, plans["coda"]) if isinstance(case, AdamW) else 0
    sides = sides_of(case, plans, opt)
    error = max(error, check(case, sides, want))
    del want
    row = row_of(case, plans["coda"], settle(pytorch.measure(clock, sides, opt.quick)), error)
    say(row)
    for p in (*plans.values(), *case.before):
        p.free()
    return row


def all_cases(opt):
    device, m = ("cpu", 64) if opt.cpu else ("cuda", 16384)
    shapes = {256: 320} if opt.cpu else {2048: 5632, 4096: 11008, 8192: 22016}
    kinds = {"layer": Layer, "both": cases.Both, "swiglu": cases.SwiGLU, "rms": cases.Norm,
             "paper_rms": cases.PaperNorm, "paper_swiglu": cases.PaperSwiGLU}
    all_of = [kind("%s/%d" % (n, d), m, d, f, device) for n, kind in kinds.items() for d, f in shapes.items()]
    for v in [512] if opt.cpu else [32768, 128256]:
        all_of.append(cases.Loss("loss/%d" % v, m, min(4096, 8 * m), v, device))
    all_of.append(AdamW("adamw", 64 if opt.cpu else 32768, 128 if opt.cpu else 4096, 0, device))
    heads = 2 if opt.cpu else 32
    all_of.append(cases.AttentionCase("attention", m, heads * cases.HEAD, m // cases.SEQUENCES, device))
    return [c for c in all_of if not opt.pattern or any(p in c.name for p in opt.pattern)]


def main():
    opt = pytorch.parse(__doc__, "--jax --quick --cpu", 400)
    if not opt.cpu and not torch.cuda.is_available():
        sys.exit("backward.py: torch finds no GPU; nothing is measured")
    torch._functorch.config.donated_buffer = False  # a backward runs again and again
    path = opt.out or (None if opt.pattern or opt.cpu else pytorch.results("torch_backward"))
    lib, clock, rows = pytorch.c, Clock("cpu" if opt.cpu else "cuda"), []
    for case in all_cases(opt):
        if time.monotonic() - pytorch.START > opt.seconds:
            print("%-22s left out: %g seconds are over" % (case.name, opt.seconds), flush=True)
            continue
        try:
            rows.append(one(case, lib, clock, opt))
        except Refused as e:
            print("%-22s left out: %s" % (case.name, e), flush=True)
        case.tensors.clear()
        if clock.cuda:
            torch.cuda.empty_cache()
        if path:
            pytorch.store(path, lib, rows, "torch_backward")
    return 0 if all(r["good"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

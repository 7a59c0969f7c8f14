#!/usr/bin/env python3
"""sustained.py -- a block of LLaMA with attention under sustained load, beside PyTorch's bare products and cuDNN's attention.

    sustained.py [--quick] [--seconds N] [--out FILE] [PATTERN...]

Two causal sequences of 8,192 tokens, heads of 128. Sides: "coda", the block; "bare", its four products by cuBLASLt and
its attention by cuDNN, and nothing else. Each side runs alone for a second and then timed for one (--quick: half of
that), while NVML gives watts and clock; then, without a pause, 50 runs more whose kernels CUPTI times: how much one
kernel's times spread says whether it holds its speed. Results go to perf/results/CARD/torch_sustained.json.
"""
import ctypes
import math
import sys
import threading
import time

import pytorch
import torch
import torch.nn.functional as F
from libcoda import c

TOKENS, SEQUENCES, HEAD, EPS = 16384, 2, 128, 1e-5
SHAPES = {2048: 5632, 4096: 11008, 8192: 22016}
RUNS, ROWS, SAMPLE = 50, 32, 0.004


class Power(threading.Thread):
    """NVML's energy counter and clock of the SMs, every few milliseconds."""

    def __init__(self):
        super().__init__(daemon=True)
        self.lib, self.device, self.log = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), []
        self.lib.nvmlInit_v2()
        self.lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device))
        self.start()

    def run(self):
        energy, mhz = ctypes.c_ulonglong(), ctypes.c_uint()
        while True:
            self.lib.nvmlDeviceGetTotalEnergyConsumption(self.device, ctypes.byref(energy))
            self.lib.nvmlDeviceGetClockInfo(self.device, 1, ctypes.byref(mhz))
            self.log.append((time.monotonic(), energy.value * 1e-3, mhz.value))
            time.sleep(SAMPLE)

    def between(self, begin, end):
        """Watts between the counter's first advance and its last one, and the mean clock."""
        seen = [x for x in self.log if begin <= x[0] <= end]
        steps = [b for a, b in zip(seen, seen[1:]) if b[1] != a[1]]
        watts = (steps[-1][1] - steps[0][1]) / (steps[-1][0] - steps[0][0]) if len(steps) > 1 else math.nan
        return watts, sum(x[2] for x in seen) / max(len(seen), 1)


class Block:
    kind = "block"

    def __init__(self, d):
        self.d, self.f, self.m, self.device = d, SHAPES[d], TOKENS, "cuda"
        self.name = "torch_sustained/block/%d" % d
        self.weights = {"gain", "w_qkv", "w_o", "gain_mlp", "w_gate_up", "w_down"}

    def fill(self):
        d, f = self.d, self.f
        matrix = lambda n, k: torch.randn(n, k, device="cuda", dtype=torch.bfloat16) / math.sqrt(k)
        gain = lambda: 1 + 0.1 * torch.randn(d, device="cuda", dtype=torch.bfloat16)
        rows = lambda n: torch.randn(TOKENS, n, device="cuda", dtype=torch.bfloat16)
        self.tensors = {"x": rows(d).view(SEQUENCES, -1, d), "gain": gain(), "w_qkv": matrix(3 * d, d), "w_o": matrix(d, d),
                        "gain_mlp": gain(), "w_gate_up": matrix(2 * f, d), "w_down": matrix(d, f)}
        self.z, self.qkv = rows(f), rows(3 * d)

    def plan(self):
        d, f, g = self.d, self.f, pytorch.Graph(c, self)
        x = g.leaf("x")
        qkv = g.matmul(g.rms_norm(x, "gain"), "w_qkv")
        opt = c.coda_rope_options(head_dim=HEAD, heads=2 * d // HEAD)
        qkv = c.coda_rope(g.g, qkv, c.coda_value(0), ctypes.byref(opt))
        q, k, v = (c.coda_slice(g.g, qkv, 2, i * d, (i + 1) * d, 1) for i in range(3))
        a = c.coda_attention(g.g, q, k, v, c.coda_value(0), ctypes.byref(c.coda_attention_options(heads=d // HEAD, causal=1)))
        h = g.add(g.matmul(a, "w_o"), x)
        z = g.swiglu(g.matmul(g.rms_norm(h, "gain_mlp"), "w_gate_up"))
        y = g.add(g.matmul(z, "w_down"), h)
        return pytorch.Plan(g, g.output("y", y, (SEQUENCES, TOKENS // SEQUENCES, d)), pytorch.FOLD_NONE)

    def bare(self):
        t, d = self.tensors, self.d
        x = t["x"].view(TOKENS, d)
        F.linear(x, t["w_qkv"])
        q, k, v = (s.unflatten(-1, (-1, HEAD)).transpose(1, 2) for s in self.qkv.view(SEQUENCES, -1, 3 * d).split(d, -1))
        with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.CUDNN_ATTENTION]):
            F.scaled_dot_product_attention(q, k, v, is_causal=True)
        F.linear(x, t["w_o"]), F.linear(x, t["w_gate_up"]), F.linear(self.z, t["w_down"])

    def error(self, y):
        """Of the second sequence's first rows, beside the formula in fp32."""
        t, d = {n: (x if x.dim() > 1 else x.float()) for n, x in self.tensors.items()}, self.d
        x = t["x"][1, :ROWS].float()
        times = lambda a, w: a @ t[w].float().t()
        turns = 10000.0 ** (-torch.arange(0, HEAD, 2, device="cuda", dtype=torch.float64) / HEAD)
        angle = torch.outer(torch.arange(ROWS, device="cuda", dtype=torch.float64), turns)[:, None]
        qkv = times(pytorch.rms_norm(x, t["gain"]), "w_qkv")
        rotated = pytorch.rope(qkv, angle.cos().float(), angle.sin().float())
        q, k, v = (s.unflatten(1, (-1, HEAD)).transpose(0, 1) for s in (*rotated.split(d, 1), qkv[:, 2 * d:]))
        later = torch.ones(ROWS, ROWS, device="cuda", dtype=torch.bool).triu(1)
        p = (q @ k.transpose(1, 2) / math.sqrt(HEAD)).masked_fill(later, -math.inf).softmax(-1)
        h = times((p @ v).transpose(0, 1).reshape(ROWS, d), "w_o") + x
        want = times(pytorch.swiglu(times(pytorch.rms_norm(h, t["gain_mlp"]), "w_gate_up")), "w_down") + h
        return pytorch.distance(y[1, :ROWS], want)


def kernels_of(run, runs):
    """Milliseconds of each kernel in so many runs, by its place in a run."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
        for _ in range(runs):
            run()
        torch.cuda.synchronize()
    seen = [e for e in p.events() if e.device_type == torch.autograd.DeviceType.CUDA and not e.name.startswith("Mem")]
    seen.sort(key=lambda e: e.time_range.start)
    each = len(seen) // runs
    out = []
    for i in range(each):
        ms = sorted((e.time_range.end - e.time_range.start) * 1e-3 for e in seen[i::each][-RUNS:])
        out.append({"name": seen[i].name[:60], "median": float("%.6g" % ms[len(ms) // 2]), "spread": round(ms[-1] / ms[0], 4)})
    return out


def sustained(run, power, span):
    """Alone for `span` seconds, then timed for as long."""
    event = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
    run()
    event[0].record()
    run(), run()
    event[1].record()
    event[1].synchronize()
    runs = max(2, round(span * 2e3 / event[0].elapsed_time(event[1])))
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(runs + 1)]
    for _ in range(runs):
        run()
    for mark in marks[:-1]:
        mark.record()
        run()
    marks[-1].record()
    marks[0].synchronize()
    begin = time.monotonic()
    marks[-1].synchronize()
    watts, mhz = power.between(begin, time.monotonic())
    ms = marks[0].elapsed_time(marks[-1]) / runs
    each = sorted(a.elapsed_time(b) for a, b in zip(marks, marks[1:]))
    warm = math.ceil(span * 500 / ms)  # the profiler's start is a pause
    kernels = kernels_of(run, RUNS + warm)
    long = [k["spread"] for k in kernels if k["median"] > ms / 20]
    return {"median": float("%.6g" % ms), "watts": round(watts, 1), "joules": float("%.4g" % (watts * ms * 1e-3)), "mhz": round(mhz),
            "replays": round(each[-1] / each[0], 4), "spread": max(long), "kernels": kernels}


def one(case, power, opt):
    torch.manual_seed(7)
    case.fill()
    plan = case.plan()
    error = case.error(plan())
    runs = {"coda": plan, "bare": case.bare}
    with torch.no_grad():
        sides = {n: sustained(f, power, 0.5 if opt.quick else 1) for n, f in runs.items()}
    s = plan.stats()
    ratio = {what: {"bare": round(sides["bare"][of] / sides["coda"][of], 4)} for what, of in (("ratio", "median"), ("energy", "joules"))}
    row = {"case": case.name, "m": TOKENS, "n": case.d, "k": case.f, "flops": s.flops, "bytes": s.bytes, "launches": s.launches,
           "error": float("%.3g" % error), "excess": float("%.3g" % (error / 1e-2)), "good": error <= 1e-2, "sides": sides, **ratio}
    print("%-28s %8.4f ms  error %.1e  %s  time %.4f  energy %.4f" % (case.name, sides["coda"]["median"], error,
          "good" if row["good"] else "WRONG", row["ratio"]["bare"], row["energy"]["bare"]), flush=True)
    for n, x in sides.items():
        print("    %-6s %8.4f ms  %4.0f W  %6.3f J  %4.0f MHz  spread %.3f" % (n, x["median"], x["watts"], x["joules"], x["mhz"], x["spread"]), flush=True)
    plan.free()
    return row


def main():
    opt, rows, power = pytorch.parse(__doc__, "--quick"), [], Power()
    path = opt.out or (None if opt.pattern else pytorch.results("torch_sustained"))
    for d in SHAPES:
        case = Block(d)
        left_out = opt.pattern and not any(p in case.name for p in opt.pattern)
        if left_out or time.monotonic() - pytorch.START > opt.seconds:
            continue
        rows.append(one(case, power, opt))
        torch.cuda.empty_cache()
        if path:
            pytorch.store(path, c, rows, "torch_sustained")
    return 0 if all(r["good"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

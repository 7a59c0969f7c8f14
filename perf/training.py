#!/usr/bin/env python3
"""training.py -- whole steps of training a LLaMA beside PyTorch.

    training.py [--quick] [--seconds N] [--out FILE] [--cpu] [speed] [losses] [kernels]

    speed     a model of 1.04e9 parameters, one sequence of 8192 tokens a step, random weights and tokens: forward,
              backward, clipping and AdamW. Steps a second and the most memory; torch.compile of the whole loss with
              SDPA and the fused AdamW; "apart" is libcoda with a plan for gradients and one for AdamW. Sides run in
              turns, each alone on the card, in a CUDA graph
    losses    300 steps of a small model on the bytes of a text, from the same start in the same order: how far bf16
              of libcoda and of PyTorch are from PyTorch's fp32. Of three starts

    kernels   what the GPU does in a step of both sides, by PyTorch's profiler: milliseconds of each kernel, only if
              it is asked for

Both sides keep fp32 weights, gradients and moments and compute in bf16, from weights that are rounded once a step.
Results go to perf/results/CARD/torch_training.json, unless one of both is chosen. --cpu tries all with small sizes
and no GPU; --quick: two layers, fewer steps.
"""
import contextlib
import gc
import math
import os
import statistics
import sys
import time

import pytorch
import torch
import torch.nn.functional as F
from training_models import Coda, Sizes, Torch

TEXT = os.path.join(pytorch.ROOT, "examples", "serving", "test", "training", "data", "readme.txt")
RATE, WARMUP = 1e-3, 20


# ---- Speed ----

def sizes_of_speed(opt):
    if opt.cpu:
        return Sizes(2, 128, 4, 2, 320, 512, 1, 64)
    return Sizes(2 if opt.quick else 16, 2048, 32, 8, 8192, 32768, 1, 8192)


def fastest_attention(sizes):
    """PyTorch's kernels for the model's attention, forward and backward: those of cuDNN or of FlashAttention."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    x = [torch.randn(sizes.rows, n, sizes.tokens, sizes.head, device="cuda", dtype=torch.bfloat16, requires_grad=True)
         for n in (sizes.heads, sizes.kv_heads, sizes.kv_heads)]
    ms = {}
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
        try:
            with sdpa_kernel(backend):
                for _ in range(3):
                    start = time.perf_counter()
                    y = F.scaled_dot_product_attention(*x, is_causal=True, enable_gqa=True)
                    torch.autograd.grad(y, x, y)
                    torch.cuda.synchronize()
                    ms[backend] = 1e3 * (time.perf_counter() - start)
        except RuntimeError as e:
            print("training.py: %s: %s" % (backend, str(e).splitlines()[:1]), flush=True)
    print("training.py: attention, ms: %s" % ", ".join("%s %.2f" % (b.name, t) for b, t in ms.items()), flush=True)
    best = min(ms, key=ms.get)
    return lambda: sdpa_kernel(best)


class Side:
    """Memory that is taken while it lives is its own."""

    def __init__(self, name, sizes, lib, device):
        self.name, self.cuda, self.before = name, device == "cuda", 0
        if self.cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()
        generator = torch.Generator(device).manual_seed(11)
        ids = torch.randint(sizes.vocabulary, (sizes.rows, sizes.tokens + 1), device=device, generator=generator)
        self.ids, self.target = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
        values = sizes.start(device, 5)
        if name in ("coda", "apart"):
            self.model = Coda(lib, sizes, values, device, apart=name == "apart")
            self.model.numbers(1e-4, 1)
        else:
            self.model = Torch(sizes, values, device, compiled=name == "compile", capture=self.cuda)
            self.model.rate.fill_(1e-4)
        del values
        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        self.backend = fastest_attention(sizes) if name == "compile" and self.cuda else contextlib.nullcontext
        for i in range(3):
            if isinstance(self.model, Coda):
                self.model.numbers(1e-4, i + 1)
            self.step()
        self.third = float(self.loss)
        self.run = self.captured() if self.cuda else self.step

    def step(self):
        with self.backend():
            self.loss = self.model.step(self.ids, self.target)

    def captured(self):
        """As in a run that goes on: the peak is that of steps behind the first, in which nothing is compiled."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.step()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self.step()
            torch.cuda.synchronize()
            self.peak = torch.cuda.max_memory_allocated() - self.before
            self.loss = None
            gc.collect()
            torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=stream):
                self.step()
        except Exception as e:  # whatever a capture does not like
            torch.cuda.synchronize()
            print("training.py: %s runs without a CUDA graph: %s" % (self.name, str(e).splitlines()[:1]), flush=True)
            return self.step
        return graph.replay

    def time(self, steps):
        """Seconds of a step, the median of some."""
        self.run()
        times = []
        for _ in range(steps):
            if self.cuda:
                pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
                pair[0].record()
                self.run()
                pair[1].record()
                times.append(pair)
            else:
                start = time.perf_counter()
                self.run()
                times.append(time.perf_counter() - start)
        if self.cuda:
            torch.cuda.synchronize()
            times = [a.elapsed_time(b) * 1e-3 for a, b in times]
        return statistics.median(times)

    def close(self):
        if isinstance(self.model, Coda):
            self.model.free()
        self.model = self.run = self.loss = None
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()


def speed(lib, opt):
    device, sizes = "cpu" if opt.cpu else "cuda", sizes_of_speed(opt)
    seconds, peak, loss = {}, {}, {}
    for name in ("compile", "coda", "apart", "compile", "coda"):
        if name in seconds and time.monotonic() - pytorch.START > opt.seconds:
            print("training.py: %s is not timed again: %g seconds are over" % (name, opt.seconds), flush=True)
            continue
        side = Side("eager" if name == "compile" and opt.cpu else name, sizes, lib, device)
        seconds.setdefault(name, []).append(side.time(4 if opt.quick or opt.cpu else 12))
        loss[name] = side.third
        peak[name] = getattr(side, "peak", 0)
        if name == "coda":
            plans = [p.stats() for p in side.model.plans]
        side.close()
        print("%-10s %8.2f ms a step  %6.2f GB  loss %.4f  [%.0f s]" % (name, 1e3 * seconds[name][-1],
              peak[name] / 1e9, loss[name], time.monotonic() - pytorch.START), flush=True)
    ratio = min(seconds["compile"]) / min(seconds["coda"])
    memory = peak["coda"] / peak["compile"] if peak["compile"] else math.nan
    tokens = sizes.rows * sizes.tokens
    print("training/speed: %.4g tokens/s, %.3f steps for one of torch.compile's, %.3f of its memory" %
          (tokens / min(seconds["coda"]), ratio, memory), flush=True)
    good = abs(loss["coda"] - loss["compile"]) <= 0.005 * abs(loss["compile"])
    if not good:
        print("training.py: the losses of the third step differ")
    return {"case": "training/speed", "parameters": sizes.count(), "tokens": tokens, "seconds": seconds,
            "peak": peak, "loss": loss, "ratio": round(ratio, 4), "memory": round(memory, 4),
            "launches": sum(p.launches for p in plans), "bytes": sum(p.bytes for p in plans), "good": good}


# ---- Kernels ----

MOST, WIDE = 40, 90  # kernels that are printed, and characters of their names


def kernels(lib, opt):
    sizes = sizes_of_speed(opt)
    for name in ("coda", "compile"):
        side = Side(name, sizes, lib, "cuda")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            side.step()
            torch.cuda.synchronize()
        spent = {}
        for e in profile.events():
            if e.device_type == torch.autograd.DeviceType.CUDA:
                n, ms = spent.get(e.name, (0, 0))
                spent[e.name] = n + 1, ms + e.device_time_total * 1e-3
        print("training/kernels: %s, %d launches, %.2f ms" % (name, sum(n for n, _ in spent.values()),
              sum(ms for _, ms in spent.values())))
        for kernel, (n, ms) in sorted(spent.items(), key=lambda k: -k[1][1])[:MOST]:
            print("  %8.3f ms  %4d x %8.4f  %s" % (ms, n, ms / n, kernel[:WIDE]))
        side.close()


# ---- Losses ----

def batches(sizes, count, first, device):
    """Windows of the text one behind the other, round and round."""
    with open(TEXT, "rb") as f:
        text = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8).long()
    each = sizes.rows * sizes.tokens
    for i in range(count):
        at = torch.arange(first + i * each, first + (i + 1) * each + 1) % len(text)
        row = text[at].to(device)
        yield row[:-1].view(sizes.rows, -1), row[1:].view(sizes.rows, -1)


def rate_at(step, steps):
    if step <= WARMUP:
        return RATE * step / WARMUP
    return RATE * (0.1 + 0.45 * (1 + math.cos(math.pi * (step - WARMUP) / (steps - WARMUP))))


def losses_of(model, sizes, steps, first, device):
    losses = torch.zeros(steps, device=device)
    for i, (ids, target) in enumerate(batches(sizes, steps, first, device)):
        if isinstance(model, Coda):
            model.numbers(rate_at(i + 1, steps), i + 1)
        else:
            model.rate.fill_(rate_at(i + 1, steps))
        losses[i] = model.step(ids, target).sum()
    return losses.double().cpu()


def losses(lib, opt):
    device = "cpu" if opt.cpu else "cuda"
    sizes = Sizes(2, 64, 4, 2, 160, 256, 2, 32) if opt.cpu else Sizes(4, 512, 8, 4, 1408, 512, 8, 128)
    steps = 40 if opt.cpu or opt.quick else 300
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    starts = []
    for seed in range(1 if opt.quick else 3):
        values, first = sizes.start(device, seed), 1000 * seed
        makes = {"fp32": lambda: Torch(sizes, values, device, torch.float32),
                 "bf16": lambda: Torch(sizes, values, device),
                 "coda": lambda: Coda(lib, sizes, values, device)}
        curves = {n: losses_of(make(), sizes, steps, first, device) for n, make in makes.items()}
        off = {n: float((curves[n] - curves["fp32"]).abs().mean()) for n in ("bf16", "coda")}
        last = {n: float(c[-20:].mean()) for n, c in curves.items()}
        starts.append({"off": off, "last": last})
        print("training/losses/%d: mean |loss - fp32's| of %d steps: libcoda %.3e, PyTorch %.3e; the last 20: %s" %
              (seed, steps, off["coda"], off["bf16"], ", ".join("%s %.4f" % p for p in last.items())), flush=True)
    ours, theirs = (statistics.mean(r["off"][n] for r in starts) for n in ("coda", "bf16"))
    good = ours <= theirs
    print("training/losses: %.3f of PyTorch's distance: %s" % (ours / theirs, "good" if good else "TOO FAR"),
          flush=True)
    return {"case": "training/losses", "steps": steps, "distance": round(ours / theirs, 4), "good": good,
            "starts": starts}


def main():
    opt = pytorch.parse(__doc__, "--quick --cpu", 240)
    if not opt.cpu and not torch.cuda.is_available():
        sys.exit("training.py: torch finds no GPU; nothing is measured")
    torch.set_float32_matmul_precision("highest")
    path = opt.out or (None if opt.pattern or opt.cpu or opt.quick else pytorch.results("torch_training"))
    lib, rows = pytorch.c, []
    for name, measure in (("losses", losses), ("speed", speed), ("kernels", kernels)):
        if name in (opt.pattern or ("losses", "speed")):
            rows += filter(None, [measure(lib, opt)])
            if path:
                pytorch.store(path, lib, rows, "torch_training")
    return 0 if all(r["good"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""pictures.py -- a picture of SD3-medium's shape beside the same loop in PyTorch.

    pictures.py [--size N] [--steps N] [--rounds N] [--config FILE] [--autotune] [--tune] [--out FILE] [--cpu]

"coda" is build/serving/draw --random, a program of its own that says how long each picture took; its first one with an
empty cache of kernels is timed from the program's start (first_s). "compile" is the same network as a formula in this
process, bf16: each block compiled by torch.compile, all of a step, with the modulations of its blocks, captured in one CUDA
graph, which a picture replays for each step. "ahead" is the same with all modulations made once a picture, as draw does it;
"eager" captures the formula as it stands. Two samples, guided; random weights; milliseconds a picture, sides in turns. The
error is that of draw in bf16 on the tiny network of the tests, against diffusers' latents. Results go to
perf/results/CARD/pictures.json at the top of the tree, unless --config or --cpu says otherwise.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PERF = os.path.join(HERE, "..", "..", "..", "perf")  # the library's measurements
sys.path.insert(0, PERF)

import numpy as np
import pytorch as base
import torch
import torch.nn.functional as F

BUILD = os.environ.get("BUILD", os.path.join(base.ROOT, "build"))
TINY = os.path.join(HERE, "..", "test", "picture", "tiny", "sd3")
SAID = re.compile(r"steps in ([0-9.]+) s")


# ---- libcoda ----

def run(opt, arguments, cache=None):
    """What draw says, and the seconds of the whole program."""
    command = [os.path.join(BUILD, "serving", "draw"), "--cpu" if opt.cpu else "--gpu", "--dtype", "bf16", *arguments]
    libs = [os.path.join(BUILD, "carry", "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    env = dict(os.environ, LD_LIBRARY_PATH=":".join(x for x in libs if x))
    if cache:
        env["CODA_CACHE_DIR"] = cache
    began = time.time()
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit("pictures.py: %s: %s" % (" ".join(command), done.stderr))
    return done.stderr, time.time() - began


def draw(opt, *more, cache=None):
    """Milliseconds of each picture, and the seconds of the program."""
    said, whole = run(opt, ["--random", "--size", str(opt.size), "--steps", str(opt.steps), "--guidance", "7", "--times", *more,
                            opt.config], cache)
    return [1e3 * float(x) for x in SAID.findall(said)], whole


def error(opt):
    with open(os.path.join(TINY, "arguments.json"), encoding="utf-8") as f:
        a = json.load(f)
    with tempfile.TemporaryDirectory() as at:
        files = [x for n in ("text", "pooled", "negative", "negative_pooled", "noise")
                 for x in ("--" + n.replace("_", "-"), os.path.join(TINY, n + ".npy"))]
        run(opt, ["--steps", str(a["steps"]), "--guidance", str(a["guidance"]), "--size", "%dx%d" % (8 * a["width"], 8 * a["height"]),
                  *files, "--latents", os.path.join(at, "latents.npy"), TINY])
        y, r = np.load(os.path.join(at, "latents.npy")), np.load(os.path.join(TINY, "latents.npy"))
    return float(np.sqrt(np.square(y - r).mean() / np.square(r).mean()))


# ---- PyTorch ----

def modulated(x, shift, scale):
    return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift


def qkv(x, w, b, heads):
    return [t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in F.linear(x, w, b).chunk(3, -1)]


def mlp(x, w):
    return F.linear(F.gelu(F.linear(x, w[0], w[1]), approximate="tanh"), w[2], w[3])


def block(x, y, mx, my, w, heads, last):
    """A block of arXiv 2403.03206 by its modulations [2, 1, columns]."""
    a, t = mx.chunk(6, -1), my.chunk(2 if last else 6, -1)
    k = modulated(y, t[1], t[0]) if last else modulated(y, t[0], t[1])
    p, q = qkv(modulated(x, a[0], a[1]), w[0], w[1], heads), qkv(k, w[2], w[3], heads)
    o = F.scaled_dot_product_attention(*[torch.cat(both, 2) for both in zip(p, q)]).transpose(1, 2).flatten(2)
    n = x.shape[1]
    x = x + a[2] * F.linear(o[:, :n], w[4], w[5])
    x = x + a[5] * mlp(modulated(x, a[3], a[4]), w[6:10])
    if last:
        return x, y
    y = y + t[2] * F.linear(o[:, n:], w[10], w[11])
    return x, y + t[5] * mlp(modulated(y, t[3], t[4]), w[12:16])


class Network:
    """Latents [1, patches, 64] in a static tensor, which a step writes over."""

    def __init__(self, c, side, steps, device):
        self.c, self.heads, self.device, self.dtype = c, c["num_attention_heads"], device, torch.bfloat16
        self.d, patches = self.heads * c["attention_head_dim"], (side // 16) ** 2
        d, self.layers = self.d, []
        for i in range(c["num_layers"]):
            last = i == c["num_layers"] - 1
            w = [*self.linear(3 * d, d), *self.linear(3 * d, d), *self.linear(d, d), *self.linear(4 * d, d), *self.linear(d, 4 * d)]
            if not last:
                w += [*self.linear(d, d), *self.linear(4 * d, d), *self.linear(d, 4 * d)]
            self.layers.append((w, self.linear(6 * d, d), self.linear((2 if last else 6) * d, d), last))
        self.end, self.first, self.out = self.linear(2 * d, d), self.linear(d, 64), self.linear(64, d)
        self.time = [*self.linear(d, 256), *self.linear(d, d)]
        self.at, self.text = self.random(patches, d), self.random(2, 333, d)
        self.pooled = self.random(2, d)
        self.x = torch.randn(1, patches, 64, device=device)
        sigma = torch.linspace(1, 0, steps + 1, device=device)
        self.dt, self.angles = sigma.diff(), self.random(steps, 256)
        self.number, self.steps = torch.zeros(1, dtype=torch.int64, device=device), steps

    def random(self, *dims, by=1.0):
        return (torch.randn(*dims, device=self.device) * by).to(self.dtype)

    def linear(self, n, k):
        return self.random(n, k, by=k ** -0.5), self.random(n, by=0.1)

    def conditions(self, rows):
        """silu of what blocks are told of a time and a text, [rows, 2, columns]."""
        h = F.silu(F.linear(rows, self.time[0], self.time[1]))
        return F.silu(F.linear(h, self.time[2], self.time[3])[:, None] + self.pooled)

    def prepare(self):
        """All steps' modulations, [steps, 2, columns] each."""
        c = self.conditions(self.angles)
        self.table = [[F.linear(c, *mx), F.linear(c, *my)] for _, mx, my, _ in self.layers] + [F.linear(c, *self.end)]

    def step(self, run, ahead):
        if ahead:
            mods = [[t[self.number].transpose(0, 1) for t in pair] for pair in self.table[:-1]]
            end = self.table[-1][self.number].transpose(0, 1)
        else:
            c = self.conditions(self.angles[self.number])[0][:, None]
            mods = [[F.linear(c, *mx), F.linear(c, *my)] for _, mx, my, _ in self.layers]
            end = F.linear(c, *self.end)
        h = self.x.to(self.dtype).expand(2, -1, -1)
        x, y = F.linear(h, *self.first) + self.at, self.text
        for (w, _, _, last), (mx, my) in zip(self.layers, mods):
            x, y = run(x, y, mx, my, w, self.heads, last)
        scale, shift = end.chunk(2, -1)
        v = F.linear(modulated(x, shift, scale), *self.out).float()
        self.x += self.dt[self.number] * (v[1:] + 7 * (v[:1] - v[1:]))
        self.number += 1


def captured(net, run, ahead):
    """Draws a picture; its milliseconds."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            net.number.zero_()
            net.step(run, ahead)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        net.step(run, ahead)

    def once():
        torch.cuda.synchronize()
        began = time.time()
        net.x.normal_()
        net.number.zero_()
        if ahead:
            net.prepare()
        for _ in range(net.steps):
            graph.replay()
        torch.cuda.synchronize()
        return 1e3 * (time.time() - began)
    return once


def peers(opt, c):
    with torch.no_grad():
        net = Network(c, opt.size, opt.steps, "cuda")
        net.prepare()
        compiled = torch.compile(block, mode="max-autotune-no-cudagraphs" if opt.tune else None, dynamic=False)
        return {"compile": captured(net, compiled, False), "ahead": captured(net, compiled, True), "eager": captured(net, block, False)}


def measure(opt):
    with open(opt.config, encoding="utf-8") as f:
        c = json.load(f)
    off, cold = error(opt), tempfile.mkdtemp()
    first = draw(opt, cache=cold)[1]
    shutil.rmtree(cold)
    if not opt.cpu and opt.autotune:
        draw(opt, "--autotune")
    times, rounds = {"coda": []}, []
    sides = {} if opt.cpu else peers(opt, c)
    for _ in range(opt.rounds):
        now = {"coda": draw(opt, "--repeat", "4")[0][1:]}
        for name, once in sides.items():
            with torch.no_grad():
                once()
                now[name] = [once() for _ in range(3)]
        for name, ms in now.items():
            times.setdefault(name, []).extend(ms)
        rounds.append({n: statistics.median(ms) for n, ms in now.items()})
    ratio = {n: round(statistics.median(r[n] / r["coda"] for r in rounds), 4) for n in sides}
    name = os.path.splitext(os.path.basename(opt.config))[0]
    return {"case": "picture/%s/%d" % (name, opt.size), "steps": opt.steps, "first_s": float("%.3g" % first),
            "error": float("%.3g" % off), "excess": float("%.3g" % (off / 1e-2)), "good": off <= 1e-2, "rounds": opt.rounds,
            "sides": {n: base.spread(v) for n, v in times.items()}, "ratio": ratio}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--size", type=int, default=512)
    p.add_argument("--steps", type=int, default=28)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--config")
    p.add_argument("--tune", action="store_true", help="of torch.compile: max-autotune")
    p.add_argument("--autotune", action="store_true", help="of libcoda: tiles are measured before")
    p.add_argument("--out")
    p.add_argument("--cpu", action="store_true")
    opt = p.parse_args()
    path = opt.out or (None if opt.config or opt.cpu else base.results("pictures"))
    opt.config = opt.config or os.path.join(HERE, "models", "sd3-medium.json")
    row = measure(opt)
    base.say(row)
    print("the first picture of an empty cache: %.2f s" % row["first_s"])
    if path:
        base.store(path, base.c, [row])
    return 0 if row["good"] else 1


if __name__ == "__main__":
    sys.exit(main())

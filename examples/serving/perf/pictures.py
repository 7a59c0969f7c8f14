#!/usr/bin/env python3
"""pictures.py -- a picture of SD3-medium's shape beside the same loop in PyTorch.

    pictures.py [--size N] [--steps N] [--rounds N] [--config FILE] [--out FILE] [--cpu]

"coda" is build/serving/draw --random, a program of its own that says how long each picture took; its first one with an
empty cache of kernels is timed from the program's start. "compile" is the same network as a formula in this process,
bf16: a block compiled by torch.compile, all of a step, with the modulations of its blocks, captured in one CUDA graph,
which a picture replays for each step. "ahead" is the same with all modulations made once a picture, as draw does it;
"eager" captures the formula as it stands. Two samples, guided; random weights. Seconds a picture, medians, sides in turns.
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

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
BUILD = os.environ.get("BUILD", os.path.join(ROOT, "build"))
SAID = re.compile(r"steps in ([0-9.]+) s")


# ---- libcoda ----

def draw(opt, *more, cache=None):
    """Seconds of each picture, and of the whole program."""
    command = [os.path.join(BUILD, "serving", "draw"), "--random", "--cpu" if opt.cpu else "--gpu", "--dtype", "bf16", "--size",
               str(opt.size), "--steps", str(opt.steps), "--guidance", "7", "--times", *more, opt.config]
    libs = [os.path.join(BUILD, "carry", "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    env = dict(os.environ, LD_LIBRARY_PATH=":".join(x for x in libs if x))
    if cache:
        env["CODA_CACHE_DIR"] = cache
    began = time.time()
    said = subprocess.run(command, env=env, capture_output=True, text=True)
    if said.returncode:
        sys.exit(said.stderr)
    return [float(x) for x in SAID.findall(said.stderr)], time.time() - began, said.stderr


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
    """Draws a picture; its seconds."""
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
        return time.time() - began
    return once


def peers(opt, c):
    with torch.no_grad():
        net = Network(c, opt.size, opt.steps, "cuda")
        net.prepare()
        compiled = torch.compile(block, mode="max-autotune-no-cudagraphs" if opt.tune else None, dynamic=False)
        return {"compile": captured(net, compiled, False), "ahead": captured(net, compiled, True), "eager": captured(net, block, False)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--size", type=int, default=512)
    p.add_argument("--steps", type=int, default=28)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--config", default=os.path.join(HERE, "models", "sd3-medium.json"))
    p.add_argument("--tune", action="store_true", help="of torch.compile: max-autotune")
    p.add_argument("--out", default=None)
    p.add_argument("--cpu", action="store_true")
    opt = p.parse_args()
    with open(opt.config, encoding="utf-8") as f:
        c = json.load(f)
    cold = tempfile.mkdtemp()
    first, whole, said = draw(opt, cache=cold)
    shutil.rmtree(cold)
    print("first picture of an empty cache: %.2f s of the program, %.3f s of its steps" % (whole, first[0]), flush=True)
    times = {"coda": []}
    sides = {} if opt.cpu else peers(opt, c)
    for _ in range(opt.rounds):
        times["coda"] += draw(opt, "--repeat", "4")[0][1:]
        for name, once in sides.items():
            with torch.no_grad():
                once()
                times.setdefault(name, []).extend(once() for _ in range(3))
    median = {k: statistics.median(v) for k, v in times.items()}
    for name, t in median.items():
        print("%-8s %.4f s a picture, %.3f ms a step, %.3f times" % (name, t, 1e3 * t / opt.steps, t / median["coda"]), flush=True)
    if opt.out:
        with open(opt.out, "w", encoding="utf-8") as f:
            json.dump({"config": os.path.basename(opt.config), "size": opt.size, "steps": opt.steps, "seconds": median,
                       "first_s": whole, "times": times}, f, indent=1)
            f.write("\n")


main()

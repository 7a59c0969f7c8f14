#!/usr/bin/env python3
"""generate.py -- a decoder that writes, beside PyTorch's fastest way to do so.

    generate.py [--quick] [--config FILE]... [--tokens N] [--prompt N] [--rounds N] [--out FILE] [--cpu]

"coda" is build/serving/generate --random, a program of its own that says how long its steps took. "layers"
and "compile" are gpt-fast's way in this process, of the same shapes (models/7b.json, and those of Mamba 2.8B and
Qwen 3.5 4B, whose states are tensors that a step writes over): bf16, batch 1, a static cache as long as the text, torch.compile with coordinate descent, by which a product of one row becomes a
kernel of Inductor's own, the step captured in one CUDA graph that holds token and position, the likeliest
token chosen by it. "layers" has each layer compiled by itself, "compile" the whole step; attention is written
in two ways, of which the faster counts. --quick leaves "compile" out, whose compilation takes a minute. Sides
run in turns, each alone on the GPU; times are of one token, by the host's clock over all steps of a text. The
logits of a compiled step must not be further from the same formula in fp32 than 1.5 times what the eager step's
in bf16 are. Results go to perf/results/CARD/generate.json at the
top of the tree, unless --config or --cpu, which tries models/small.json anywhere, says otherwise.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PERF = os.path.join(HERE, "..", "..", "..", "perf")  # the library's measurements
sys.path.insert(0, PERF)

import pytorch as base
import states
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BUILD = os.environ.get("BUILD", os.path.join(base.ROOT, "build"))
SAID = re.compile(r"then (\d+) steps in ([0-9.]+) s, ([0-9.]+) tokens/s: ([0-9.e+]+) MB each")
TUNED = {"coordinate_descent_tuning": True}


# ---- libcoda ----

def coda(opt):
    """Milliseconds of a token, and its megabytes."""
    command = [os.path.join(BUILD, "serving", "generate"), "--random", "--times",
               "--cpu" if opt.cpu else "--gpu", "--dtype", "bf16", "--tokens", str(opt.tokens),
               "--context", str(opt.prompt + opt.tokens), opt.config,
               ",".join(str(1 + i) for i in range(opt.prompt))]
    libs = [os.path.join(BUILD, "carry", "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    env = dict(os.environ, LD_LIBRARY_PATH=":".join(x for x in libs if x))
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    found = SAID.search(done.stderr)
    if done.returncode or not found:
        sys.exit("generate.py: %s: %s" % (" ".join(command), done.stderr))
    print(done.stderr.strip(), flush=True)
    return 1e3 / float(found.group(3)), float(found.group(4))


# ---- The same step in torch ----

class Model:
    """Weights, caches, and a text of one token after another."""

    def __init__(self, opt, device):
        with open(opt.config, encoding="utf-8") as f:
            c = json.load(f)
        self.c, self.device, self.length = c, device, opt.prompt + opt.tokens
        self.hidden, self.inner = c["hidden_size"], c["intermediate_size"]
        self.count = c["num_attention_heads"]
        self.kv, self.eps = c.get("num_key_value_heads", self.count), c["rms_norm_eps"]
        self.dim = c.get("head_dim", self.hidden // self.count)
        self.first = opt.prompt
        h, q, k = self.hidden, self.count * self.dim, self.kv * self.dim
        self.layers = [{"g_a": self.gain(), "qkv": self.matrix(q + 2 * k, h), "o": self.matrix(h, q),
                        "g_m": self.gain(), "up": self.matrix(2 * self.inner, h),
                        "down": self.matrix(h, self.inner),
                        "k": self.cache(), "v": self.cache()} for _ in range(c["num_hidden_layers"])]
        self.table, self.head = (self.matrix(c["vocab_size"], h) for _ in "th")
        self.g = self.gain()
        by = c["rope_theta"] ** (-torch.arange(0, self.dim, 2, dtype=torch.float64) / self.dim)
        angle = torch.outer(torch.arange(self.length + 1, dtype=torch.float64), by).to(device)
        self.cos, self.sin = angle.cos().float(), angle.sin().float()
        self.seen = torch.ones(self.length, self.length, dtype=torch.bool, device=device).tril()
        self.token = torch.ones(1, dtype=torch.int64, device=device)
        self.place = torch.full((1,), self.first, dtype=torch.int64, device=device)
        self.text = torch.zeros(self.length + 1, dtype=torch.int64, device=device)

    def matrix(self, n, k):
        return (torch.randn(n, k, device=self.device, dtype=torch.bfloat16) / k ** 0.5)

    def gain(self):
        return torch.ones(self.hidden, device=self.device, dtype=torch.bfloat16)

    def cache(self):
        return torch.randn(1, self.kv, self.length, self.dim, device=self.device, dtype=torch.bfloat16)

    def bytes(self):
        read = [x for w in self.layers for n, x in w.items() if n not in ("k", "v")] + [self.head]
        return sum(x.numel() * x.element_size() for x in read)

    def rewind(self):
        self.token.fill_(1), self.place.fill_(self.first)

    # One token, of which x are the states; `w` is a layer's.

    def turn(self, x, cos, sin):
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    def attention(self, q, w, mask, way):
        if way == "grouped":
            return F.scaled_dot_product_attention(q, w["k"], w["v"], attn_mask=mask,
                                                  enable_gqa=self.kv != self.count)
        keys, values = (w[n].repeat_interleave(self.count // self.kv, 1) for n in "kv")
        with sdpa_kernel([SDPBackend.MATH]):  # of which Inductor makes kernels of its own, as gpt-fast has it
            return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)

    def layer(self, x, w, place, cos, sin, mask, way):
        norm = lambda x, g: F.rms_norm(x, (self.hidden,), g, self.eps)
        wide, keys = self.count * self.dim, self.kv * self.dim
        q, k, v = F.linear(norm(x, w["g_a"]), w["qkv"]).split((wide, keys, keys), -1)
        q, k, v = (y.unflatten(-1, (-1, self.dim)).transpose(1, 2) for y in (q, k, v))
        w["k"][:, :, place], w["v"][:, :, place] = self.turn(k, cos, sin), v
        a = self.attention(self.turn(q, cos, sin), w, mask, way)
        x = F.linear(a.transpose(1, 2).flatten(2), w["o"]) + x
        gate, up = F.linear(norm(x, w["g_m"]), w["up"]).chunk(2, -1)
        return F.linear(F.silu(gate) * up, w["down"]) + x

    def begin(self, token, place):
        mask = self.seen[place][None, None]
        return F.embedding(token, self.table)[None], self.cos[place], self.sin[place], mask

    def choose(self, x):
        return F.linear(F.rms_norm(x, (self.hidden,), self.g, self.eps), self.head)[0]

    def logits(self, way, layer=None):
        layer = layer or self.layer
        x, cos, sin, mask = self.begin(self.token, self.place)
        for w in self.layers:
            x = layer(x, w, self.place, cos, sin, mask, way)
        return self.choose(x)

    def exact(self):
        """The same in fp32, a layer at a time; the caches stay as they are."""
        x, cos, sin, mask = self.begin(self.token, self.place)
        x = x.float()
        for w in self.layers:
            x = self.layer(x, {n: t.float() for n, t in w.items()}, self.place, cos, sin, mask, "grouped")
        x = F.rms_norm(x, (self.hidden,), self.g.float(), self.eps)
        return F.linear(x, self.head.float())[0]


def stepper(m, logits):
    """A step that leaves token and place for the next one."""
    def step():
        best = logits().argmax(-1)
        m.text.index_copy_(0, m.place, best)
        m.token.copy_(best)
        m.place.add_(1)
    return step


def compiled(formula):
    return torch.compile(formula, dynamic=False, fullgraph=True, options=TUNED)


def logits_by(m, side, way):
    if side == "eager":
        return lambda: m.logits(way)
    if side == "compile":
        return compiled(lambda: m.logits(way))
    begin, one, choose = compiled(m.begin), compiled(m.layer), compiled(m.choose)

    def run():
        x, cos, sin, mask = begin(m.token, m.place)
        for w in m.layers:
            x = one(x, w, m.place, cos, sin, mask, way)
        return choose(x)
    return run


def distances(m, way, formula):
    """How far the logits of the first step are from those in fp32, relative; and how far they may be."""
    with torch.no_grad():
        m.rewind()
        want = m.exact()
        got = formula()
        m.rewind()  # a step that carries a state begins with zeros
        return base.distance(got, want), max(2.0 ** -7, 1.5 * base.distance(m.logits(way), want))


class Side:
    def __init__(self, m, name, way, opt):
        self.m, self.way, self.steps = m, way, opt.tokens - 1
        formula = logits_by(m, name, way)
        self.error, self.limit = distances(m, way, formula)
        self.formula = formula  # a captured graph does not own its kernels
        step = stepper(m, formula)
        m.rewind()
        with torch.no_grad():
            self.replay = step if opt.cpu else base.captured(step)[0]

    def ms(self, opt):
        self.m.rewind()
        sync = (lambda: None) if opt.cpu else torch.cuda.synchronize
        sync()
        began = time.perf_counter()
        with torch.no_grad():
            for _ in range(self.steps):
                self.replay()
        sync()
        return (time.perf_counter() - began) * 1e3 / self.steps


def best_of(m, name, ways, opt):
    """The side with the faster way of attention."""
    sides = []
    for way in ways:
        try:
            s = Side(m, name, way, opt)
            s.ms(opt)
            sides.append((min(s.ms(opt) for _ in range(2)), s))
            print("generate.py: %s, %s: %.4f ms, error %.1e of %.1e [%.0f s]" % (
                name, way, sides[-1][0], s.error, s.limit, time.monotonic() - base.START), flush=True)
        except Exception as e:  # whatever a peer raises, the others are measured
            print("generate.py: %s, %s cannot run: %s" % (name, way, str(e).splitlines()[:1]), flush=True)
    return min(sides, key=lambda x: x[0])[1] if sides else None


MODELS = {"mistral": Model, **states.with_states(Model)}


def measure(opt):
    device = "cpu" if opt.cpu else "cuda"
    torch.manual_seed(7)
    with open(opt.config, encoding="utf-8") as f:
        m = MODELS[json.load(f)["model_type"]](opt, device)
    sides = {"layers": best_of(m, "layers", ("math", "grouped") if type(m) is Model else ("grouped",), opt)}
    if not opt.quick and sides["layers"]:
        sides["compile"] = best_of(m, "compile", (sides["layers"].way,), opt)
    sides, rounds = {n: s for n, s in sides.items() if s}, []
    if not sides:
        sys.exit("generate.py: no peer can run; nothing is measured")
    for _ in range(opt.rounds):
        ms, megabytes = coda(opt)
        rounds.append({"coda": ms, **{n: s.ms(opt) for n, s in sides.items()}})
    ratio = {n: round(statistics.median(x[n] / x["coda"] for x in rounds), 4) for n in sides}
    ratio["best"] = min(ratio.values())
    worst = max(sides.values(), key=lambda s: s.error / s.limit)
    error, excess = worst.error, worst.error / worst.limit
    name = os.path.splitext(os.path.basename(opt.config))[0]
    return {"case": "generate/%s/%d" % (name, opt.tokens), "bytes": int(megabytes * 1e6),
            "peer_bytes": m.bytes(), "error": float("%.3g" % error), "excess": float("%.3g" % excess), "good": excess <= 1,
            "rounds": len(rounds), "sides": {n: base.spread([x[n] for x in rounds]) for n in rounds[0]},
            "attention": {n: s.way for n, s in sides.items()}, "ratio": ratio}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quick", action="store_true")
    p.add_argument("--cpu", action="store_true")
    p.add_argument("--config", action="append")
    p.add_argument("--tokens", type=int, default=256)
    p.add_argument("--prompt", type=int, default=16)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--out")
    opt = p.parse_args()
    if not opt.cpu and not torch.cuda.is_available():
        sys.exit("generate.py: torch finds no GPU; nothing is measured")
    path = opt.out or (None if opt.config or opt.cpu else base.results("generate"))
    usual = ["small.json"] if opt.cpu else ["7b.json", "mamba-2.8b.json", "qwen3.5-4b.json"]
    rows = []
    for opt.config in opt.config or [os.path.join(HERE, "models", name) for name in usual]:
        rows.append(measure(opt))
        base.say(rows[-1])
        torch._dynamo.reset()
    if path:
        base.store(path, base.c, rows)
    return 0 if all(row["good"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""serving.py -- attention, an encoder and a decoder beside PyTorch in one process, their runs in turns.

    serving.py [--quick] [--layers N] [--seconds N] [--variants] [--search] [--profile] [--out FILE] [--cpu]
               [PATTERN...]

    decode     attention of one query of each sequence to its keys
    prefill    attention of as many queries as keys, causal or to all
    encoder    six layers of MiniLM's shape from ids, in fp16 (norms folded into the weights), and in fp32
    prompt     layers of LLaMA-7B's shape on the 2,048 tokens of one prompt
    token      the same layers and a head: one more token, to 1,024 keys before it in a cache of 2,048

Sides: "coda"; "cudnn" and "flash" (torch's scaled_dot_product_attention by that backend); those of
serving_peers.py, where its packages are installed; "products" (torch's products and cuDNN's attention, nothing
else); "compile" (torch.compile). Each is a replay of a CUDA graph. It
holds a run on each of several copies of the data, which are more than L2 together, as the layers of a model
are; a time is that of one run. Results are compared with the same formula in fp32, whose difference from coda's
must not be above 1.2 times the eager formula's in 16 bits; a row has the errors of all sides, and a peer that
cannot run, or computes something else, is left out with a word.
--variants adds libcoda's other ways to plan: "unfolded", or "folded" where that is the other, and "tuned" (CODA_AUTOTUNE); --search adds "searched"
(CODA_MAX_AUTOTUNE: up to half a minute for a product). Their figures stay in the cache: CODA_CACHE_DIR gives
one of its own. --profile prints the kernels of each side and their times, one by one.
Results go to perf/results/CARD/serving.json, unless patterns choose some. --cpu tries small shapes without a GPU.
"""
import argparse
import ctypes
import math
import os
import statistics
import string
import sys
import time

import pytorch as base
import serving_peers
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

COPIED = 1 << 28  # bytes of all copies of a case's data: several times an L2
CTYPE = {torch.bfloat16: "bf16", torch.float16: "f16", torch.int32: "i32", torch.float32: "f32"}
AUTOTUNE, MAX_AUTOTUNE = 16, 32
BACKEND = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


# ---- libcoda, by a graph's text ----

class Plan:
    """A compiled text. A run takes the tensors of its leaves, and its outputs, by name."""

    def __init__(self, lib, case, fold=0, flags=0):
        self.lib, self.cuda = lib, case.device == "cuda"
        graph, self.p = base.c.coda_graph(), base.c.coda_plan()
        self.must(lib.coda_graph_parse(ctypes.byref(graph), case.text().encode()))
        opt = base.c.coda_compile_options(device=0 if self.cuda else 1, fold=fold, flags=flags)
        self.must(lib.coda_compile(ctypes.byref(self.p), graph, ctypes.byref(opt)))
        lib.coda_graph_free(graph)
        stats = base.c.coda_plan_stats()
        self.must(lib.coda_plan_stats_get(self.p, ctypes.byref(stats)))
        self.launches = stats.launches
        self.work = self.scratch(lib.coda_plan_workspace(self.p), case.device)
        self.prepared = {}

    def scratch(self, size, device):
        t = torch.empty(size + 512, dtype=torch.uint8, device=device)
        return t, ctypes.c_void_p((t.data_ptr() + 255) // 256 * 256)

    def must(self, status):
        if status:
            sys.exit("serving.py: " + self.lib.coda_error().decode())

    def run(self, t):
        args = (ctypes.c_void_p * len(t))(*[x.data_ptr() for x in t.values()])
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream if self.cuda else None)
        if id(t) not in self.prepared:
            device = next(iter(t.values())).device
            self.prepared[id(t)] = self.scratch(self.lib.coda_plan_prepared(self.p), device)
            self.must(self.lib.coda_prepare(self.p, args, self.prepared[id(t)][1], self.work[1], stream))
        self.must(self.lib.coda_run(self.p, args, self.prepared[id(t)][1], self.work[1], stream))

    def free(self):
        self.lib.coda_plan_free(self.p)


def leaf(kind, name, t):
    return "%%%s = %s %s[%s]\n" % (name, kind, CTYPE[t.dtype], ",".join(map(str, t.shape)))


class Case:
    """tensors() makes a copy of the leaves, in their order; weights and states are told by name. formula() is
    the output in torch, of any dtype; peers() yields further sides."""
    weights, states, out, fold = (), (), torch.bfloat16, base.FOLD_NONE
    bounds = "products", "stream"  # peers that compute less, to say what time cannot be saved
    allowed = None  # the error that is good, if not eager's decides

    def __init__(self, name, device):
        self.name, self.device = "serving/" + name, device

    def random(self, *shape, by=1.0):
        return (torch.randn(shape, device=self.device) * by).to(self.out)

    def ints(self, values):
        return torch.tensor(values, dtype=torch.int32, device=self.device)

    def copy(self):
        t = self.tensors()
        t["y"] = torch.full(self.shape, math.nan, dtype=self.out, device=self.device)
        return t

    def text(self):
        t = self.tensors()
        kinds = {**dict.fromkeys(self.weights, "weight"), **dict.fromkeys(self.states, "state")}
        return "".join(leaf(kinds.get(n, "input"), n, x) for n, x in t.items()) + self.program() + \
            "output %y = %out\n"

    def peers(self):
        yield "compile", compiled(self.formula)


def compiled(formula):
    torch._dynamo.reset()
    return torch.compile(formula, dynamic=False, fullgraph=True)


def heads(x, count):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def attend(q, k, v, causal=False):
    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])
    return y.transpose(1, 2).flatten(2)


def by(backend, formula):
    def run(t):
        with sdpa_kernel([BACKEND[backend]]):
            return formula(t)
    return run


# ---- Attention ----

class Attention(Case):
    def __init__(self, kind, device, batch, queries, keys, count, kv, columns, causal):
        super().__init__("%s/%d/%dx%d/%dx%d%s" % (kind, count, kv, columns, batch, keys,
                                                  "/causal" if causal else ""), device)
        self.count, self.kv, self.causal, self.queries = count, kv, causal, queries
        self.sizes = batch, keys, columns
        self.shape = batch, queries, count * columns
        self.bytes = 4 * batch * keys * kv * columns
        self.flops = 4 * batch * queries * keys * count * columns / (2 if causal else 1)

    def tensors(self):
        batch, keys, columns = self.sizes
        return {"q": self.random(*self.shape), "k": self.random(batch, keys, self.kv * columns),
                "v": self.random(batch, keys, self.kv * columns)}

    def program(self):
        scale = 1 / math.sqrt(self.sizes[2])
        return "%%out = attention %%q, %%k, %%v {scale=%r,heads=%d,kv_heads=%d%s}\n" % (
            scale, self.count, self.kv, ",causal=1" if self.causal else "")

    def formula(self, t):
        return attend(heads(t["q"], self.count), heads(t["k"], self.kv), heads(t["v"], self.kv), self.causal)

    def peers(self):
        for name in BACKEND:
            yield name, by(name, self.formula)
        if self.queries == 1:
            yield from serving_peers.attention(self)


# ---- MiniLM ----

class Encoder(Case):
    """In 16 bits gains and biases of norms go into copies of the weights, but for few rows: there each
    product would finish the statistics of all rows again, which takes longer than the norms do."""

    def __init__(self, device, sentences, tokens, hidden=384, inner=1536, count=12, layers=6, words=30522,
                 out=torch.float16):
        super().__init__("encoder/%s%dx%d" % ("" if out == torch.float16 else "f32/", sentences, tokens), device)
        folds = out == torch.float16 and sentences * tokens > 64
        self.out, self.fold = out, base.FOLD_COPY if folds else base.FOLD_NONE
        self.shape = sentences, tokens, hidden
        self.hidden, self.inner, self.count, self.layers, self.words = hidden, inner, count, layers, words
        self.weights = [n for n in self.tensors() if n != "ids"]

    def tensors(self):
        h, f, made = self.hidden, self.inner, {}

        def linear(name, n, k):
            made["w_" + name] = self.random(n, k, by=1 / math.sqrt(k))
            made["b_" + name] = self.random(n, by=0.1)

        def norm(name):
            made["g_" + name], made["c_" + name] = 1 + self.random(h, by=0.1), self.random(h, by=0.1)

        made["ids"] = torch.randint(self.words, self.shape[:2], dtype=torch.int32, device=self.device)
        made["words"], made["places"] = self.random(self.words, h), self.random(self.shape[1], h)
        norm("e")
        for i in range(self.layers):
            linear("qkv%d" % i, 3 * h, h), linear("o%d" % i, h, h), norm("a%d" % i)
            linear("up%d" % i, f, h), linear("down%d" % i, h, f), norm("m%d" % i)
        return made

    def program(self):
        h = self.hidden
        text = "%word = embedding %words, %ids\n%sum = add %word, %places\n" \
            "%x0 = layer_norm %sum, %g_e, %c_e {eps=1e-12}\n"
        for i in range(self.layers):
            text += self.layer.substitute(
                i=i, next="out" if i + 1 == self.layers else "x%d" % (i + 1), h=h, h2=2 * h, h3=3 * h,
                count=self.count, scale=repr(1 / math.sqrt(h // self.count)))
        return text

    layer = string.Template("""%pq$i = matmul %x$i, %w_qkv$i
%qkv$i = add %pq$i, %b_qkv$i
%q$i = slice %qkv$i {axis=2,start=0,stop=$h,step=1}
%k$i = slice %qkv$i {axis=2,start=$h,stop=$h2,step=1}
%v$i = slice %qkv$i {axis=2,start=$h2,stop=$h3,step=1}
%a$i = attention %q$i, %k$i, %v$i {scale=$scale,heads=$count,kv_heads=$count}
%po$i = matmul %a$i, %w_o$i
%ob$i = add %po$i, %b_o$i
%or$i = add %ob$i, %x$i
%h$i = layer_norm %or$i, %g_a$i, %c_a$i {eps=1e-12}
%pu$i = matmul %h$i, %w_up$i
%ub$i = add %pu$i, %b_up$i
%u$i = gelu_erf %ub$i
%pd$i = matmul %u$i, %w_down$i
%db$i = add %pd$i, %b_down$i
%dr$i = add %db$i, %h$i
%$next = layer_norm %dr$i, %g_m$i, %c_m$i {eps=1e-12}
""")

    def formula(self, t):
        h, norm = self.hidden, lambda x, n: F.layer_norm(x, (self.hidden,), t["g_" + n], t["c_" + n], 1e-12)
        x = norm(F.embedding(t["ids"], t["words"]) + t["places"], "e")
        for i in range(self.layers):
            linear = lambda x, n: F.linear(x, t["w_%s%d" % (n, i)], t["b_%s%d" % (n, i)])
            a = attend(*(heads(y, self.count) for y in linear(x, "qkv").split(h, -1)))
            x = norm(linear(a, "o") + x, "a%d" % i)
            x = norm(linear(F.gelu(linear(x, "up")), "down") + x, "m%d" % i)
        return x

    def peers(self):
        yield "eager", self.formula
        yield "compile", compiled(self.formula)


# ---- LLaMA ----

class Prompt(Case):
    """Layers on the tokens of one prompt, none of which is in a cache."""

    def __init__(self, device, tokens, layers, hidden=4096, inner=11008, count=32):
        super().__init__("prompt/%dx%d" % (layers, tokens), device)
        self.hidden, self.inner, self.count, self.layers, self.tokens = hidden, inner, count, layers, tokens
        self.shape = 1, tokens, hidden
        self.weights = [n for n in self.tensors() if n[:2] in ("w_", "g_")]

    def layer_weights(self, made):
        h, f = self.hidden, self.inner
        for i in range(self.layers):
            made["g_a%d" % i] = 1 + self.random(h, by=0.1)
            made["w_qkv%d" % i] = self.random(3 * h, h, by=1 / math.sqrt(h))
            made["w_o%d" % i] = self.random(h, h, by=1 / math.sqrt(h))
            made["g_m%d" % i] = 1 + self.random(h, by=0.1)
            made["w_up%d" % i] = self.random(2 * f, h, by=1 / math.sqrt(h))
            made["w_down%d" % i] = self.random(h, f, by=1 / math.sqrt(f))
        return made

    def tensors(self):
        return self.layer_weights({"x0": self.random(*self.shape)})

    layer = """%n$i = rms_norm %x$i, %g_a$i {eps=1e-5}
%qkv$i = matmul %n$i, %w_qkv$i
%q$i = slice %qkv$i {axis=2,start=0,stop=$h,step=1}
%k$i = slice %qkv$i {axis=2,start=$h,stop=$h2,step=1}
%v$i = slice %qkv$i {axis=2,start=$h2,stop=$h3,step=1}
%qr$i = rope %q$i$positions {base=10000,head_dim=$dim,half=1}
%kr$i = rope %k$i$positions {base=10000,head_dim=$dim,half=1}
$attention%po$i = matmul %a$i, %w_o$i
%h$i = add %po$i, %x$i
%m$i = rms_norm %h$i, %g_m$i {eps=1e-5}
%gu$i = matmul %m$i, %w_up$i
%gate$i = slice %gu$i {axis=2,start=0,stop=$f,step=1}
%up$i = slice %gu$i {axis=2,start=$f,stop=$f2,step=1}
%s$i = swiglu %gate$i, %up$i
%pd$i = matmul %s$i, %w_down$i
%$next = add %pd$i, %h$i
"""
    attention = "%a$i = attention %qr$i, %kr$i, %v$i {scale=$scale,heads=$count,kv_heads=$count,causal=1}\n"
    positions = ""

    def program(self):
        h, f, text = self.hidden, self.inner, ""
        layer = string.Template(self.layer.replace("$attention", self.attention))
        for i in range(self.layers):
            last = i + 1 == self.layers and not self.head
            text += layer.substitute(
                i=i, next="out" if last else "x%d" % (i + 1), h=h, h2=2 * h, h3=3 * h, f=f, f2=2 * f,
                dim=h // self.count, count=self.count, scale=repr(1 / math.sqrt(h // self.count)),
                positions=self.positions)
        return text + self.head

    head = ""

    def turns(self, positions):
        dim = self.hidden // self.count
        by = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        angle = torch.outer(positions.double().cpu(), by).to(self.device)
        return angle.cos().float(), angle.sin().float()

    def rope(self, x, cos, sin):
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    def layers_of(self, t, attention):
        if not hasattr(self, "angles"):
            self.angles = self.turns(self.places())
        cos, sin = self.angles
        x = t["x0"]
        for i in range(self.layers):
            qkv = F.linear(base.rms_norm(x, t["g_a%d" % i]), t["w_qkv%d" % i])
            q, k, v = (heads(y, self.count) for y in qkv.split(self.hidden, -1))
            a = attention(t, i, self.rope(q, cos, sin), self.rope(k, cos, sin), v)
            h = F.linear(a, t["w_o%d" % i]) + x
            z = base.swiglu(F.linear(base.rms_norm(h, t["g_m%d" % i]), t["w_up%d" % i]))
            x = F.linear(z, t["w_down%d" % i]) + h
        return x

    def places(self):
        return torch.arange(self.tokens)

    def formula(self, t):
        return self.layers_of(t, lambda t, i, q, k, v: attend(q, k, v, True))

    def products(self, t):
        x = t["x0"]
        for i in range(self.layers):
            q, k, v = (heads(y, self.count) for y in F.linear(x, t["w_qkv%d" % i]).split(self.hidden, -1))
            h = F.linear(attend(q, k, v, True), t["w_o%d" % i])
            x = F.linear(F.linear(h, t["w_up%d" % i])[..., :self.inner], t["w_down%d" % i])
        return x

    def peers(self):
        self.formula(self.tensors())
        yield "products", by("cudnn", self.products)
        yield "compile", compiled(self.formula)


class Token(Prompt):
    """One more token after some in a cache: gpt-fast's way is a cache of a fixed size and a mask. Positions,
    slots and lengths stay, so that each run does the same."""

    def __init__(self, device, layers, before=1024, most=2048, words=32000, **shape):
        self.before, self.most, self.words = before, most, words
        super().__init__(device, 1, layers, **shape)
        self.name = "serving/token/%dx%d" % (layers, before)
        self.shape = 1, 1, words
        self.states = [n for n in self.tensors() if n[:2] in ("k_", "v_")]
        self.weights += ["g_f", "w_head"]
        self.weights = list(dict.fromkeys(self.weights))

    def tensors(self):
        h = self.hidden
        made = self.layer_weights({"x0": self.random(1, 1, h), "positions": self.ints([[self.before]]),
                                   "slots": self.ints([[self.before]]),
                                   "lengths": self.ints([self.before + 1])})
        for i in range(self.layers):
            made["k_%d" % i], made["v_%d" % i] = (self.random(1, self.most, h) for _ in "kv")
        made["g_f"] = 1 + self.random(h, by=0.1)
        made["w_head"] = self.random(self.words, h, by=1 / math.sqrt(h))
        return made

    positions = ", %positions"
    attention = """%kc$i = append %k_$i, %kr$i, %slots
%vc$i = append %v_$i, %v$i, %slots
%a$i = attention %qr$i, %kc$i, %vc$i, %lengths {scale=$scale,heads=$count,kv_heads=$count,causal=1,align=3}
"""
    head = ""

    def program(self):
        self.head = "%%f = rms_norm %%x%d, %%g_f {eps=1e-5}\n%%out = matmul %%f, %%w_head\n" % self.layers
        return super().program()

    def places(self):
        return torch.tensor([self.before])

    def cached(self, t, i, q, k, v):
        n = self.before
        if q.dtype == torch.float32 or self.device == "cpu":  # no write into what others read
            keys, values = (torch.cat((t[c % i][:, :n].unflatten(-1, (self.count, -1)).transpose(1, 2), x), 2)
                            for c, x in (("k_%d", k), ("v_%d", v)))
            return attend(q, keys, values)
        keys, values = (heads(t[c % i], self.count) for c in ("k_%d", "v_%d"))
        keys[:, :, self.slot], values[:, :, self.slot] = k, v
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=self.mask)
        return y.transpose(1, 2).flatten(2)

    def formula(self, t):
        if not hasattr(self, "mask"):
            self.slot = torch.tensor([self.before], device=self.device)
            self.mask = (torch.arange(self.most, device=self.device) <= self.before)[None, None, None]
        x = self.layers_of(t, self.cached)
        return F.linear(base.rms_norm(x, t["g_f"]), t["w_head"])

    def peers(self):
        self.formula(self.tensors())
        yield "compile", compiled(self.formula)


# ---- Right, and how fast ----

def wanted(case, t):
    """The formula's output in fp32."""
    return case.formula({n: x.float() if x.dtype.is_floating_point else x for n, x in t.items()})


def check(case, t, want, eager):
    """libcoda's error, and that over its limit."""
    limit = case.allowed or min(3e-2, max(2.0 ** -9, 1.2 * base.distance(eager, want)))
    error = base.distance(t["y"], want)
    return error, error / limit if error == error else math.inf


def copies_of(case):
    one = case.copy()
    size = sum(x.numel() * x.element_size() for x in one.values())
    n = 1 if case.device == "cpu" else max(1, min(64, math.ceil(COPIED / size)))
    return [one] + [case.copy() for _ in range(n - 1)]


def plans_of(case, lib, opt):
    ways = {"coda": (case.fold, 0)}
    if opt.variants:
        other = base.FOLD_COPY if case.fold == base.FOLD_NONE else base.FOLD_NONE
        ways["unfolded" if case.fold else "folded"] = other, 0
    if opt.variants and case.device == "cuda":
        ways["tuned"] = case.fold, AUTOTUNE
    if opt.search and case.device == "cuda":
        ways["searched"] = case.fold, MAX_AUTOTUNE
    return {name: Plan(lib, case, *way) for name, way in ways.items()}


def agree(case, name, y, want, errors):
    """Keeps a peer's error; raises if it is none that rounding makes."""
    if name not in case.bounds:
        errors[name] = float("%.3g" % base.distance(y[0] if isinstance(y, (tuple, list)) else y, want))
        if not errors[name] < 0.1:
            raise ValueError("computes something else, error %.2g" % errors[name])


def sides_of(case, plans, copies, first, want):
    """Replays of all copies, and the peers' errors on the first as it was."""
    wrap, errors = base.captured if case.device == "cuda" else base.uncaptured, {}
    sides = {n: wrap(lambda plan=plan: [plan.run(t) for t in copies])[0] for n, plan in plans.items()}
    for name, formula in case.peers():
        try:
            agree(case, name, formula({**first, **clones(first, case.states)}), want, errors)
            sides[name] = replayed(wrap, lambda formula=formula: [formula(t) for t in copies])
        except Exception as e:  # whatever a peer raises, the others are measured
            why = str(e).splitlines()[:1]
            print("serving.py: %s: %s cannot run: %s" % (case.name, name, why), flush=True)
    return sides, errors


def replayed(wrap, run):
    """A replay that keeps the run: its graph may read memory that the run holds."""
    replay = wrap(run)[0]
    return lambda kept=run: replay()


def clones(t, names):
    return {n: t[n].clone() for n in names}


class Clock(base.Clock):
    """Copies of the data, or one that is as large, leave nothing of the last run in L2."""

    def events(self, fn):
        pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        pair[0].record()
        fn()
        pair[1].record()
        return pair


def profile(sides, count):
    """Each side's kernels, of which neighbours may overlap: launches and microseconds of one run."""
    for name, replay in sides.items():
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
            replay()
            torch.cuda.synchronize()
        rows = sorted((x for x in p.key_averages() if x.device_time_total), key=lambda x: -x.device_time_total)
        print("  %s: %.1f us in all kernels" % (name, sum(x.device_time_total for x in rows) / count))
        for x in rows:
            print("    %6.1f launches %9.2f us each %9.1f us  %s" % (
                x.count / count, x.device_time_total / x.count, x.device_time_total / count, x.key[:70]))


def measure(clock, sides, count, quick):
    names, rounds = list(sides), []
    for r in range(12 if quick else 42):
        order = names[::-1] if r % 2 else names
        ms = clock.round({n: (f, None) for n, f in sides.items()}, order, dict.fromkeys(names, 1))
        if r > 1:
            rounds.append({n: x / count for n, x in ms.items()})
    return rounds


def ratios(rounds):
    peers = [n for n in rounds[0] if n != "coda"]
    return {n: round(statistics.median(x[n] / x["coda"] for x in rounds), 4) for n in peers}


def all_cases(opt):
    if opt.cpu:
        small = {"hidden": 256, "inner": 512, "count": 4}
        return [Attention("decode", "cpu", 2, 1, 128, 8, 2, 64, False),
                Attention("prefill", "cpu", 1, 64, 64, 4, 4, 64, True),
                Encoder("cpu", 2, 16, words=100, layers=2),
                Encoder("cpu", 2, 16, words=100, layers=2, out=torch.float32),
                Prompt("cpu", 32, 2, **small), Token("cpu", 2, before=20, most=64, words=128, **small)]
    cases = []
    for count, kv, columns in ((32, 8, 128), (32, 32, 128), (64, 8, 128), (32, 8, 64)):
        for keys in (1024, 8192, 32768):
            for batch in (1, 8, 64):
                if batch * keys * kv <= 64 * 8192 * 8:
                    cases.append(Attention("decode", "cuda", batch, 1, keys, count, kv, columns, False))
    for columns in (128, 64):
        for batch, keys in ((32, 512), (8, 2048), (2, 8192)):
            cases.append(Attention("prefill", "cuda", batch, keys, keys, 32, 32, columns, True))
    cases.append(Attention("prefill", "cuda", 2, 8192, 8192, 32, 32, 128, False))
    return cases + [Encoder("cuda", 32, 128), Encoder("cuda", 1, 16),
                    Encoder("cuda", 32, 128, out=torch.float32), Prompt("cuda", 2048, 2),
                    Token("cuda", opt.layers)]


def one(case, lib, clock, opt):
    torch.manual_seed(7)
    plans, copies, errors = plans_of(case, lib, opt), copies_of(case), []
    first = {**copies[0], **clones(copies[0], case.states)}
    with torch.no_grad():
        for plan in plans.values():
            copies[0]["y"].fill_(math.nan)
            plan.run(copies[0])
            if clock.cuda:
                torch.cuda.synchronize()
            want = wanted(case, copies[0])
            errors.append(check(case, copies[0], want, case.formula(copies[0])))
        error, excess = max(errors, key=lambda e: e[1])
        sides, others = sides_of(case, plans, copies, first, want)
        rounds = measure(clock, sides, len(copies), opt.quick)
        if opt.profile and clock.cuda:
            profile(sides, len(copies))
    row = {"case": case.name, "bytes": getattr(case, "bytes", 0), "flops": getattr(case, "flops", 0),
           "launches": plans["coda"].launches, "copies": len(copies), "error": float("%.3g" % error), "excess": float("%.3g" % excess),
           "errors": others, "good": excess <= 1, "rounds": len(rounds),
           "sides": {n: base.spread([x[n] for x in rounds]) for n in rounds[0]}, "ratio": ratios(rounds)}
    base.say(row)
    for plan in plans.values():
        plan.free()
    return row


def main(name, cases, text):
    """Measures the cases of perf/NAME.py, whose page is `text`."""
    p = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quick", action="store_true")
    p.add_argument("--cpu", action="store_true")
    p.add_argument("--variants", action="store_true")
    p.add_argument("--search", action="store_true")
    p.add_argument("--profile", action="store_true")
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--seconds", type=float, default=300)
    p.add_argument("--out")
    p.add_argument("pattern", nargs="*")
    opt = p.parse_args()
    if not opt.cpu and not torch.cuda.is_available():
        sys.exit("%s.py: torch finds no GPU; nothing is measured" % name)
    chosen = opt.pattern or opt.cpu
    path = opt.out or (None if chosen else base.results(name))
    lib, clock, rows = base.c, Clock("cpu" if opt.cpu else "cuda"), []
    for case in cases(opt):
        if opt.pattern and not any(x in case.name for x in opt.pattern):
            continue
        if time.monotonic() - base.START > opt.seconds:
            print("%-22s left out: %g seconds are over" % (case.name, opt.seconds), flush=True)
            continue
        rows.append(one(case, lib, clock, opt))
        if clock.cuda:
            torch.cuda.empty_cache()
        if path:
            base.store(path, lib, rows)
    return 0 if all(r["good"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main("serving", all_cases, __doc__))

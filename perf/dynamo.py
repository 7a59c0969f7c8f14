#!/usr/bin/env python3
"""dynamo.py -- models of transformers by torch.compile: backend="coda" beside Inductor, in one process.

    dynamo.py [--layers N] [--max-autotune] [--quick] [--seconds N] [--out FILE] [--warm SIDE,..] [--saved FOLDER] [--cpu]
              [PATTERN...]

    llama-8b, qwen3-8b   prefill: 2048 tokens and the logits of the last one; decode: a token behind 1024 others, by a
                         static cache; first: from the start of a process to its first token, all caches warm
                         (first_token.py); "saved": by a file of libcoda.dynamo.save; "weights": by it and weights, without transformers
    llama-8b/train       forward and backward of 2048 tokens by the loss, without an optimiser
    minilm               32 sentences of 128 tokens with a mask

Models are as transformers makes them, in bf16, of random weights. Sides: "coda"; "compile", Inductor by
mode="reduce-overhead"; by option "autotune", mode="max-autotune". "best" is the faster of Inductor's. Sides run in
turns, after two runs of their own each; times are the host's clock around runs that end in a wait. `error` is that of
logits to fp32's of the same weights, of their norm, and beside it that of PyTorch without a compiler. `memory` is the
most that PyTorch's allocator held for a side's runs, weights and all, with pools of its CUDA graphs, but without what
cuBLAS works in, which runs without a compiler leave; `reserved` is all that it has of the card; `over_us` what a call of
a compiled graph costs the host above coda_run, behind Dynamo's guards, `host_us` the same of one that is no replay,
`switch_us` what the first run behind a replay costs besides.
--layers: so many layers of 32 or 36, as compilers take minutes.
--quick: fewer runs. --warm: these sides are compiled, so that a later process finds them in its caches, and nothing is
measured; files of libcoda.dynamo.save are left in --saved, build/saved, by whose being there caches are known to be warm.
Results go to perf/results/CARD/torch_dynamo.json, unless patterns choose some. --cpu tries all with small
sizes and no GPU.
"""
import array
import contextlib
import copy
import ctypes
import gc
import os
import statistics
import subprocess
import sys
import time

import pytorch
import torch

try:
    import transformers
    from dynamo_models import MODES, TOKENS, Prefill, ids_of, model_of
except ImportError:
    sys.exit("dynamo.py: python3 finds no transformers; nothing is measured")
import libcoda.dynamo
from libcoda import c
from libcoda.dynamo.compiled import Program

CONTEXT = 1024
START = time.monotonic()


# ---- What a model does ----

class Decode:
    """A token; each side has a cache of its own, in which a run goes on."""

    def __init__(self, model, opt, device):
        self.opt, self.model, self.caches = opt, model, {}
        self.ids = ids_of(model, device, 1, 33 if opt.cpu else CONTEXT + 1)

    def cache(self):
        most = self.ids.shape[1] + (64 if self.opt.cpu else 511)
        cache = transformers.StaticCache(config=self.model.config, max_cache_len=most)
        self.model(input_ids=self.ids[:, :-1], past_key_values=cache, logits_to_keep=1)
        return cache

    def __call__(self, f):
        if f not in self.caches:
            self.caches[f] = self.cache()
        return f(input_ids=self.ids[:, -1:], past_key_values=self.caches[f]).logits


class Train:
    """Forward and backward of all layers that there are, by the loss; of its gradients one is looked at."""

    def __init__(self, model, opt, device):
        self.model, self.ids = model, ids_of(model, device, 1, 64 if opt.cpu else TOKENS)

    def __call__(self, f):
        self.model.zero_grad(set_to_none=True)
        with torch.enable_grad():
            f(input_ids=self.ids, labels=self.ids, use_cache=False).loss.backward()
        return self.model.model.layers[0].mlp.gate_proj.weight.grad[None]


class Sentences:
    def __init__(self, model, opt, device):
        self.ids = ids_of(model, device, 2 if opt.cpu else 32, 24 if opt.cpu else 128)
        self.mask = torch.ones_like(self.ids)
        self.mask[0, -5:] = 0

    def __call__(self, f):
        return f(input_ids=self.ids, attention_mask=self.mask).last_hidden_state


CASES = {"llama-8b/prefill": Prefill, "llama-8b/decode": Decode, "minilm/32x128": Sentences, "qwen3-8b/prefill": Prefill,
         "qwen3-8b/decode": Decode, "llama-8b/train": Train}


# ---- Measurements ----

def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def timed(call, n, device):
    """Milliseconds of a run, of n that end in a wait."""
    wait(device)
    start = time.perf_counter()
    for _ in range(n):
        call()
    wait(device)
    return 1e3 * (time.perf_counter() - start) / n


def error_of(y, want):
    """Of the norm; rows of padding are nobody's."""
    y, want = y.float()[-1:], want.float()[-1:]
    return float((y - want).norm() / want.norm())


def reference(model, case, device):
    """In fp32 without a compiler, and the error of bf16 so."""
    eager = case(model).float().clone()
    wide = copy.deepcopy(model).float()
    case.caches = {}
    kept, case.model = getattr(case, "model", None), wide
    want = case(wide).clone()
    case.model, case.caches = kept, {}
    del wide
    return want, error_of(eager, want)


def pools():
    """The memory of CUDA graphs, of which PyTorch's allocator says nothing in its counts: bytes by address."""
    parts = torch.cuda.memory_snapshot()
    return {s["address"]: s["total_size"] for s in parts if tuple(s["segment_pool_id"]) != (0, 0)}


def settled(device):
    """The bytes that are held where nothing is left over, and pools."""
    if device != "cuda":
        return 0, {}
    wait(device)
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated(), pools()


class Side:
    """A compiled model after its first run, and the most memory that its next runs hold."""

    def __init__(self, name, model, case, device):
        self.name, self.case = name, case
        self.compiled = torch.compile(model, dynamic=False, **MODES[name])
        held, older = settled(device)
        weights = sum(x.nbytes for x in (*model.parameters(), *model.buffers()))
        start = time.perf_counter()
        self.result = self.run().float().clone()
        wait(device)
        self.first = time.perf_counter() - start
        self.run()
        wait(device)
        self.memory = self.pools = 0
        if device == "cuda":
            settled(device)
            torch.cuda.reset_peak_memory_stats()
            self.run()
            wait(device)
            self.pools = sum(n for at, n in pools().items() if at not in older)
            self.memory = torch.cuda.max_memory_allocated() - held + weights + self.pools
            self.reserved = torch.cuda.memory_reserved()

    def run(self):
        if self.name != "coda":
            torch.compiler.cudagraph_mark_step_begin()
        return self.case(self.compiled)


def host_us(side, device):
    """What a call of the compiled graph costs the host, behind Dynamo's guards: `call_us`, as it is called; `run_us`,
    coda_run alone; `over_us`, what the one is above the other; `host_us`, the same of a call that is not replayed, and so
    of those that follow one another without a replay; of it `gather_us`, where leaves lie, and `memory_us`, for results and
    workspace. `switch_us`: what the first run behind a replay, be it coda_run alone, takes longer than the next ones."""
    seen, call = [], Program.__call__

    def spy(program, arguments):
        seen.append((program, arguments))
        return call(program, arguments)
    Program.__call__ = spy
    try:
        side.run()
    finally:
        Program.__call__ = call
    program, arguments = seen[-1]
    _, leaves = program.gather(arguments)
    made = program.fresh(None)
    addresses = array.array("Q", leaves)
    addresses.extend([x.data_ptr() for x in made])
    pointers = (ctypes.c_void_p * len(addresses)).from_buffer(addresses)
    room, _hold = program.scratch(program.plan)
    stream = torch.cuda.current_stream().cuda_stream if device == "cuda" else None

    def us(f):
        wait(device)
        start = time.perf_counter_ns()
        f()
        return (time.perf_counter_ns() - start) / 1e3

    def plain():
        replays, program.replays = program.replays, None
        try:
            return us(lambda: program(arguments))
        finally:
            program.replays = replays

    def bare():
        return us(lambda: c.coda_run(program.plan.handle, pointers, None, room, stream))

    def replayed():
        return us(lambda: program(arguments))
    took, n = {f: [] for f in (replayed, plain, bare)}, 7 if side.case.__class__ is Decode else 20
    switch = []
    for order in ((replayed, plain, bare), (bare, replayed, plain), (replayed, bare, plain)):
        for before, f in zip((None, *order), order):
            first, *rest = [f() for _ in range(n)]  # the first one finds the caches of another way to run
            took[f] += rest
            if before is replayed and f is not replayed:
                switch.append((f, first))
    call, whole, run = (statistics.median(took[f]) for f in (replayed, plain, bare))
    begins = [t - {plain: whole, bare: run}[f] for f, t in switch]
    parts = {"gather_us": lambda: program.gather(arguments), "memory_us": lambda: (program.fresh(None), program.scratch(
        program.plan))}
    parts = {k: round(statistics.median(us(f) for _ in range(20)), 1) for k, f in parts.items()}
    return {"call_us": round(call, 1), "run_us": round(run, 1), "over_us": round(max(call - run, 0), 1),
            "host_us": round(whole - run, 1), "switch_us": round(statistics.median(begins), 1), **parts}


def rounds_of(sides, opt, device):
    """Milliseconds of each side, in turns."""
    n = {s: max(1, min(30, int(60 / timed(s.run, 2, device)))) for s in sides}
    out = []
    for r in range(3 if opt.quick or opt.cpu else 9):
        turn = sides[::-1] if r % 2 else sides
        out.append({s.name: timed(s.run, n[s], device) for s in turn})
    return out


def ratios(rounds):
    r = {n: round(statistics.median(x[n] / x["coda"] for x in rounds), 4) for n in rounds[0] if n != "coda"}
    r["best"] = min(r.values())
    return r


def say(row):
    print("%-18s coda %8.3f ms  %s" % (row["case"], row["sides"]["coda"]["median"],
          "  ".join("%s %s" % p for p in row.items() if p[0] not in ("case", "sides", "rounds"))), flush=True)


def warm(name, model, opt, device):
    case = CASES[name](model, opt, device)
    for side in opt.warm.split(","):
        print("    %-18s %-9s first run after %.1f s  [%.0f s]" % (name, side, Side(side, model, case, device).first,
              time.monotonic() - START), flush=True)


def one(name, model, opt, device):
    case = CASES[name](model, opt, device)
    want, eager = reference(model, case, device)
    sides = []
    for side in ("coda", "compile") + (("autotune",) if opt.max_autotune else ()):
        if sides and time.monotonic() - START > opt.seconds:
            print("%s: %s left out: %g seconds are over" % (name, side, opt.seconds), flush=True)
            continue
        sides.append(Side(side, model, case, device))
        print("    %-18s %-9s first run after %.1f s, memory %.3f GB, %.3f of it pools, error %.2e (eager %.2e)  [%.0f s]" % (
              name, side, sides[-1].first, sides[-1].memory / 1e9, sides[-1].pools / 1e9, error_of(sides[-1].result, want), eager,
              time.monotonic() - START), flush=True)
        row = row_of(name, sides, opt, device, want, eager)
        if len(sides) > 1:
            say(row)
    return row


def row_of(name, sides, opt, device, want, eager):
    rounds, plan = rounds_of(sides, opt, device), libcoda.dynamo.last[-1].programs[0].plan
    peers = [s for s in sides if s.name != "coda"]
    row = {"case": "dynamo/" + name, "layers": opt.layers or 0, "launches": plan.stats.launches, "rounds": len(rounds),
           "sides": {n: pytorch.spread([x[n] for x in rounds]) for n in rounds[0]},
           "error": {s.name: float("%.3g" % error_of(s.result, want)) for s in sides},
           "cold_s": {s.name: round(s.first, 2) for s in sides}}
    if not isinstance(sides[0].case, Train):
        row.update(host_us(sides[0], device))
    row["error_ratio"] = round(row["error"]["coda"] / eager, 4)
    row["good"] = row["error_ratio"] <= 1
    if peers:
        row["ratio"] = ratios(rounds)
        if device == "cuda":
            row["memory"] = round(sides[0].memory / min(s.memory for s in peers), 4)
            row["reserved"] = round(sides[0].reserved / min(s.reserved for s in peers), 4)
    return row


# ---- From the start of a process ----

FIRST = ("coda", "compile", "saved")
PAIR = ("weights", "saved", "compile")  # which are compared, in turns; traced by Dynamo is looked at once, if time is left
STEPS = ("torch", "imported", "device", "model", "ready", "token")


def saved(name, opt):
    return os.path.join(opt.saved, "%s-%d.coda" % (name, opt.layers))


def started(name, side, opt):
    """A process on its way to the first token."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "first_token.py")
    command = [sys.executable, script, name, side, str(opt.layers), saved(name, opt), repr(time.time())]
    return subprocess.Popen(command + ["--cpu"] * opt.cpu, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def arrived(name, process, side):
    """The seconds of each of its steps, from the process's start."""
    out, wrong = process.communicate()
    steps = {words[0]: float(words[1]) for words in map(str.split, out.splitlines()) if words and words[0] in STEPS}
    if "token" not in steps:
        sys.exit("dynamo.py: %s got as far as %s: %s" % (side, steps, wrong[-500:]))
    print("    %-18s %-9s first token: %s" % (name, side, steps), *[x for x in out.splitlines() if x[:4] in ("hit ", "miss", "took")], flush=True)
    return steps


def warm_first(name, opt):
    """Processes side by side fill the caches, and one of them leaves a file."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(saved(name, opt))
    print("    %-18s caches as they were, side by side" % name, flush=True)
    for side, process in [(side, started(name, side, opt)) for side in FIRST]:
        arrived(name, process, side)


def first(name, opt):
    """Seconds to the first token in new processes whose caches are warm, one after the other; medians of the rounds for
    which there is time, of three at most."""
    if not os.path.exists(saved(name, opt)):
        warm_first(name, opt)
    rounds, took = [], 0
    for turn in (PAIR, PAIR[::-1], PAIR)[:1 if opt.quick else 3]:
        if rounds and time.monotonic() - START + took > opt.seconds:
            break
        began = time.monotonic()
        rounds.append({side: arrived(name, started(name, side, opt), side) for side in turn})
        took = time.monotonic() - began
    if time.monotonic() - START + took / 2 < opt.seconds:
        rounds[-1]["coda"] = arrived(name, started(name, "coda", opt), "coda")
    return first_row(name, opt, rounds)


def first_row(name, opt, rounds):
    """Medians of rounds, each a dict of sides with the seconds of their steps."""
    sides = [s for s in (*FIRST, "weights") if any(s in r for r in rounds)]
    out = {s: {k: statistics.median(r[s][k] for r in rounds if s in r) for k in STEPS} for s in sides}
    took = {side: x["token"] for side, x in out.items()}
    row = {"case": "dynamo/%s/first" % name, "layers": opt.layers or 0, "seconds": took, "steps": out, "good": True,
           "rounds": len(rounds), "each": rounds,
           "ratio": {word: round(took[side] / took["compile"], 4)
                     for word, side in (("best", "saved"), ("weights", "weights"), ("traced", "coda")) if side in took}}
    print("%-18s first token after %s s, ratio %s" % (name, took, row["ratio"]), flush=True)
    return row


# ---- The program ----

def arguments():
    values, given = {}, sys.argv[1:]
    for flag in ("--layers", "--warm", "--saved"):
        if flag in given:
            at = given.index(flag)
            values[flag] = given[at + 1]
            del given[at:at + 2]
    sys.argv[1:] = given
    opt = pytorch.parse(__doc__, "--max-autotune --quick --cpu", 600)
    opt.layers, opt.warm = int(values.get("--layers", 0)), values.get("--warm")
    opt.saved = values.get("--saved") or os.path.join(pytorch.ROOT, "build", "saved")
    os.makedirs(opt.saved, exist_ok=True)
    return opt


def main():
    opt = arguments()
    if not opt.cpu and not torch.cuda.is_available():
        sys.exit("dynamo.py: torch finds no GPU; nothing is measured")
    torch._dynamo.config.recompile_limit = 64
    torch.set_float32_matmul_precision("highest")
    device, rows, models = "cpu" if opt.cpu else "cuda", [], {}
    path = opt.out or (None if opt.pattern or opt.cpu or opt.warm else pytorch.results("torch_dynamo"))
    for name in [*CASES, "llama-8b/first", "qwen3-8b/first"]:
        if (opt.pattern and not any(p in name for p in opt.pattern)) or time.monotonic() - START > opt.seconds:
            continue
        family = name.split("/", maxsplit=1)[0]
        if name.endswith("/first"):
            models.clear()
            gc.collect()
            if device == "cuda":
                torch.cuda.empty_cache()
            if opt.warm:
                warm_first(family, opt)
            else:
                rows.append(first(family, opt))
        else:
            if family not in models:
                models.clear()
                models[family] = model_of(family, opt, device)
            with torch.no_grad():
                if opt.warm:
                    warm(name, models[family], opt, device)
                else:
                    rows.append(one(name, models[family], opt, device))
            torch._dynamo.reset()
            libcoda.dynamo.reset()
        if path:
            pytorch.store(path, c, rows, "torch_dynamo")
    return 0 if all(r["good"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

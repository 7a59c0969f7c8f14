#!/usr/bin/env python3
"""serving.py -- attention, an encoder and a decoder beside PyTorch in one process, their runs in turns.

    serving.py [--quick] [--layers N] [--seconds N] [--variants] [--search] [--profile] [--out FILE] [--cpu]
               [PATTERN...]

    decode     attention of one query of each sequence to its keys
    prefill    attention of as many queries as keys, causal or to all
    encoder    six layers of MiniLM's shape from ids, in fp16 (norms folded into the weights), and in fp32
    prompt     layers of LLaMA-7B's shape on the 2,048 tokens of one prompt
    token      the same layers and a head: one more token, to 1,024 keys before it in a cache of 2,048

The cases are those of serving_cases.py. Sides: "coda"; "cudnn" and "flash" (torch's
scaled_dot_product_attention by that backend); those of serving_peers.py, where its packages are installed;
"products" (torch's products and cuDNN's attention, nothing else); "compile" (torch.compile). Each is a replay
of a CUDA graph. It holds a run on each of several copies of the data, which are more than L2 together, as the
layers of a model are; a time is that of one run. Results are compared with the same formula in fp32, whose difference from coda's
must not be above 1.2 times the eager formula's in 16 bits; a row has the errors of all sides, and a peer that
cannot run, or computes something else, is left out with a word.
--variants adds libcoda's other ways to plan: "unfolded", or "folded" where that is the other, and "tuned"
(CODA_AUTOTUNE); --search adds "searched" (CODA_MAX_AUTOTUNE: up to half a minute for a product). Their figures
stay in the cache: CODA_CACHE_DIR gives one of its own. --profile prints the kernels of each side and their times, one by one.
Results go to perf/results/CARD/serving.json, unless patterns choose some. --cpu tries small shapes without a GPU.
"""
import argparse
import math
import statistics
import sys
import time

import pytorch as base
import torch
from serving_cases import Attention, Encoder, Plan, Prompt, Token

COPIED = 1 << 28  # bytes of all copies of a case's data: several times an L2
AUTOTUNE, MAX_AUTOTUNE = 16, 32


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

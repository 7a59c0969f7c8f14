#!/usr/bin/env python3
"""quant_peers.py -- products of quantised weights beside PyTorch's and others', each case in a process of its own.

    quant_peers.py [--quick] [--marlin LIBRARY] [--llama LIBRARY] [--out FILE] [--seconds N] [PATTERN...]

    int4/M      y = x w', w 22016 x 4096 in groups of 128: torch's _weight_int4pack_mm, Marlin, both products in bf16
    q4_k/M, ..  the same in llama.cpp's formats: its kernels for so many rows, x rounded to 8 bits on the way
    rows/M      fp8 by fp8, a scale for each row of both, w 12288 x 4096: torch._scaled_mm
    blocks/M    scales of 1 x 128 and 128 x 128: likewise
    chain/..    32 layers of a LLaMA but for attention, one row: a plain read of all their weights

A case is quant_cases.py, which takes turns with its sides. A peer that breaks the GPU's context, ends its process, or
says nothing for a minute costs no more than that: the case runs again without it, which the row says. So does nothing
else wait for long: no case begins after --seconds (540). Rows are printed as they come, and stored after each, in --out
or in perf/results/CARD/quant_peers.json, unless patterns choose some. LIBRARY is a peer's kernels behind a C entry,
which enqueues y = x w' on addresses of the GPU and returns 0:

    int marlin_product(f16 *x, words *w, f16 *y, f16 *scales, int m, int n, int k, int *locks, int group, cudaStream_t)
    int llama_product(int format, blocks *w, float *x, float *y, int n, int m, int k, cudaStream_t)

where format is 4, 6 or 8 for Q4_K, Q6_K, Q8_0.
"""
import argparse
import json
import os
import select
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ONE = [sys.executable, "-u", os.environ.get("QUANT_CASES", os.path.join(HERE, "quant_cases.py"))]
OURS = ("", "coda", "bf16", "rounds")  # what a case cannot do without
SILENCE = 60  # seconds without a word; 120 before the first, as kernels may be compiled

CASES = ["int4/%d" % m for m in (1, 8, 16, 64, 256)]
CASES += ["%s/%d" % (word, m) for word in ("q4_k", "q6_k", "q8_0") for m in (1, 8, 16, 64)]
CASES += ["%s/%d" % (kind, m) for kind in ("rows", "blocks") for m in (16, 2048)]
CASES += ["chain/f8/4096", "chain/int4/8192", "chain/int4/4096"]


class Case:
    """A process that measures a case: its row, if it had one, and what it did last."""

    def __init__(self, name, without, options):
        words = ["--without=" + n for n in without]
        self.process = subprocess.Popen(ONE + options + words + [name], stdout=subprocess.PIPE)
        self.row, self.at, self.late, self.rest = None, "", False, b""
        while self.hear(SILENCE if self.at else 2 * SILENCE):
            pass
        self.status = self.process.wait()

    def hear(self, seconds):
        """Reads what there is; False at the end, or where nothing came."""
        pipe = self.process.stdout
        if not select.select([pipe], [], [], seconds)[0]:
            self.late = True
            self.process.kill()
            return False
        said = os.read(pipe.fileno(), 1 << 16)
        *lines, self.rest = (self.rest + said).split(b"\n")
        for line in lines:
            self.take(line.decode(errors="replace"))
        return bool(said)

    def take(self, line):
        if line.startswith("@ at "):
            self.at = line[5:]
        elif line.startswith("@ row "):
            self.row = json.loads(line[6:])
        else:
            print("    " + line, flush=True)

    def why(self):
        how = "said nothing for too long" if self.late else "ended with status %d" % self.status
        return "%s at %s" % (how, self.at or "its beginning")


def measured(name, options):
    """The row of a case, without the sides that it failed at; None if it cannot do without."""
    without = []
    while True:
        one = Case(name, without, options)
        if one.row:
            return dict(one.row, without=without)
        print("%-16s %s" % (name, one.why()), flush=True)
        if one.at in OURS or one.at in without:
            return None
        without.append(one.at)


def say(row, began):
    words = []
    for n, side in row["sides"].items():
        ratio = " (%.3f)" % row["ratio"][n] if n in row["ratio"] else ""
        error = " err %.1e" % row["errors"][n] if n in row["errors"] else ""
        words.append("%s %.2f us%s%s" % (n, 1e3 * side["median"], ratio, error))
    print("%-16s" % row["case"][6:], "  ".join(words), "good" if row["good"] else "WRONG",
          "[%.0f s]" % (time.monotonic() - began), flush=True)


def store(path, rows):
    """By pytorch.py, which says what card and libraries these were; rows alone where that fails."""
    try:
        import pytorch as base
        base.store(path or base.results("quant_peers"), base.c, rows, "quant_peers")
    except (Exception, SystemExit) as e:
        print("quant_peers.py: %s: %s; rows alone" % (type(e).__name__, e), flush=True)
        with open(path or "quant_peers.json", "w", encoding="utf-8") as f:
            json.dump({"name": "quant_peers", "cases": rows}, f, indent=1)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quick", action="store_true")
    p.add_argument("--marlin")
    p.add_argument("--llama")
    p.add_argument("--out")
    p.add_argument("--seconds", type=float, default=540)
    p.add_argument("pattern", nargs="*")
    opt = p.parse_args()
    options = ["--quick"] if opt.quick else []
    options += [w for n in ("marlin", "llama") if getattr(opt, n) for w in ("--" + n, getattr(opt, n))]
    began, rows, bad = time.monotonic(), [], 0
    for name in (n for n in CASES if not opt.pattern or any(x in n for x in opt.pattern)):
        if time.monotonic() - began > opt.seconds:
            print("%-16s not begun after %.0f s" % (name, opt.seconds), flush=True)
            bad += 1
            continue
        row = measured(name, options)
        bad += not (row and row["good"])
        if row:
            rows.append(row)
            say(row, began)
        if row and (opt.out or not opt.pattern):
            store(opt.out, rows)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

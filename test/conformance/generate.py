#!/usr/bin/env python3
"""generate.py OUT [--subset SMALL] [NAME...] -- the ONNX operator suite as coda_* calls.

Writes OUT.calls, the cases as text, OUT.data, their inputs and expected outputs, and OUT.report: how many
cases there are, and by reason what cannot be expressed. SMALL.calls and SMALL.data get a few small cases of
every operator. Names, or parts of them, choose cases.
"""

import argparse
import collections
import sys

import numpy as np
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

import op_attention
import op_control
import op_maps
import op_moves
import op_products
import op_rows
from calls import INTEGERS, Inexpressible
from mapper import map_model, principal_type
from suite import NARROW, cases, is_float, reference, rounded

OPERATORS = (op_attention, op_control, op_maps, op_moves, op_products, op_rows)  # each registers its own
MODES = ("f32", "bf16", "f16")
SMALL_CASE, SMALL_SET = 4000, 220000  # bytes


def numbers(x):
    return np.asarray(x).astype(np.float64)


def close(got, want, tolerance):
    if got.shape != want.shape:
        return False
    return np.allclose(numbers(got), numbers(want), tolerance, tolerance, equal_nan=True)


def amplification(case, mode, narrow, want):
    """How much larger, in units of the result's size, are errors of the result than those of the inputs?"""
    feeds, worst, rng = rounded(case, mode, narrow), 1.0, np.random.default_rng(1)
    step = 2.0**-12
    for _ in range(3):
        moved = {
            k: (
                v * (1 + step * rng.uniform(-1, 1, v.shape))
                if is_float(case.feeds[k]) and k not in case.settings
                else v
            )
            for k, v in feeds.items()
        }
        got, double = reference(case, mode, moved, narrow)
        if not double:
            return 4.0
        for g, w in zip(got, want):
            w, g = numbers(w), numbers(g)
            good = np.isfinite(w) & np.isfinite(g)
            if good.any():
                size = np.sqrt(np.mean(w[good] ** 2)) or 1.0
                worst = max(worst, np.abs(g - w)[good].max() / (step * size))
    return float(min(worst, 8.0))


def leaves_range(case, mode, want):
    """Does something on the way overflow in fp16, though the results do not?"""
    if mode != "f16":
        return False
    feeds = {k: v.astype(np.float16) if is_float(v) else v for k, v in case.feeds.items()}
    try:
        got = ReferenceEvaluator(case.model).run(None, feeds)
    except Exception:  # the operator does not take fp16 in this version
        return False
    return any(np.any(np.isfinite(numbers(w)) & ~np.isfinite(numbers(g))) for g, w in zip(got, want))


def expected(case):
    """Outputs in every mode, and how errors grow. In the case's own precision they are the recorded ones, or,
    where the reference can compute in double, its: they agree with the recorded ones, or the case is refused.
    """
    narrow = principal_type(case.model, case.feeds)
    own = MODES[0] if narrow in (None, TensorProto.FLOAT) else NARROW.get(narrow)
    results = {}
    for mode in MODES:
        got, double = reference(case, mode, rounded(case, mode, narrow), narrow)
        if mode == own:
            if got and not all(
                close(g, w, 1e-2 if own != "f32" else 1e-3) for g, w in zip(got, case.outputs)
            ):
                raise Inexpressible("the reference disagrees with what is recorded")
            growth = amplification(case, mode, narrow, got) if got else 1.0
            results[mode] = (got if double else case.outputs), growth
        elif got and not leaves_range(case, mode, got):
            results[mode] = got, amplification(case, mode, narrow, got)
    return results


def packed(x, integers=False):
    return np.asarray(x).astype(np.int32 if integers else np.float32).tobytes()


def case_text(case, calls, results):
    """The case as lines and as bytes, in the order in which case.c reads them."""
    modes = [m for m in MODES if m in results]
    lines = (
        [f"case {case.name}"] + [f"in {m} ({results[m][1]:.3g})" for m in modes] + calls.text() + ["end\n"]
    )
    data = [packed(leaf.array, leaf.value.dtype in INTEGERS) for leaf in calls.leaves()]
    data += [packed(x) for m in modes for x in results[m][0]]
    return "\n".join(lines).encode(), b"".join(data)


class Writer:
    def __init__(self, path):
        self.calls, self.data, self.size = open(path + ".calls", "wb"), open(path + ".data", "wb"), 0

    def write(self, text):
        self.calls.write(text[0])
        self.data.write(text[1])
        self.size += len(text[0]) + len(text[1])


def group(case):
    """Cases that are alike: of one operator, or the body of one function."""
    if case.kind == "expanded":
        return "expanded", case.name.split("_")[1]
    return "node", "+".join(sorted({n.op_type for n in case.model.graph.node}))


def write_subset(path, small):
    """The two smallest cases of every operator, then third and fourth ones while there is room."""
    writer = Writer(path)
    chosen = {key: sorted(texts, key=lambda t: (len(t[0]) + len(t[1]), t)) for key, texts in small.items()}
    for place in range(4):
        for key in sorted(chosen):
            limit = 1 if key[0] == "expanded" else 4
            if place < min(limit, len(chosen[key])) and writer.size < SMALL_SET:
                writer.write(chosen[key][place])


def translate(case):
    """Raises Inexpressible with the reason."""
    if any(x is None for x in case.inputs):
        raise Inexpressible("sequences and optionals")
    calls, case.settings = map_model(case.model, case.feeds)
    results = expected(case)
    for v, x in zip(calls.outputs, case.outputs):
        if v.dims != np.shape(x):
            raise RuntimeError(f"{case.name}: {v.dims} for {np.shape(x)}")
    return case_text(case, calls, results)


def write_report(path, kinds, reasons):
    with open(path + ".report", "w") as f:
        for kind in dict.fromkeys(k for k, _ in kinds):
            f.write(f"{kinds[kind, 'all']:5d}  {kind}, expressible: {kinds[kind, 'expressible']}\n")
        for why, names in sorted(reasons.items(), key=lambda r: (-len(r[1]), r[0])):
            f.write(f"{len(names):5d}  not expressible: {why}\n")
            f.writelines(f"           {name}\n" for name in names)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--subset")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    writer, reasons, kinds = Writer(options.out), collections.defaultdict(list), collections.Counter()
    small = collections.defaultdict(list)
    for case in cases():
        if options.names and not any(n in case.name for n in options.names):
            continue
        kinds[case.kind, "all"] += 1
        try:
            text = translate(case)
        except Inexpressible as why:
            reasons[str(why)].append(case.name)
            continue
        writer.write(text)
        kinds[case.kind, "expressible"] += 1
        if len(text[0]) + len(text[1]) < SMALL_CASE:
            small[group(case)].append(text)
    write_report(options.out, kinds, reasons)
    if options.subset:
        write_subset(options.subset, small)
    count = {what: sum(n for (_, w), n in kinds.items() if w == what) for what in ("all", "expressible")}
    print(f"{count['all']} cases in the suite, {count['expressible']} expressible")


if __name__ == "__main__":
    sys.exit(main())

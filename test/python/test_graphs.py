#!/usr/bin/env python3
"""test_graphs.py -- graphs that the backend of torch.compile has made of models of transformers (graphs/*.coda, by
record.py), run on the CPU device without PyTorch: they give what PyTorch gave in fp64, from the same numbers."""
import array
import base64
import ctypes
import glob
import json
import os
import random
import sys

import libcoda as coda
from libcoda import arrays

HERE = os.path.dirname(os.path.abspath(__file__))
BAR = 1e-5  # of the largest


def fill(name, shape, integers=None):
    """As families.py fills parameters and inputs."""
    rng, n = random.Random(name), arrays.count(shape)
    if integers:
        return [rng.randrange(1, integers) for _ in range(n)]
    if len(shape) > 1:
        factor = (3 / (n // shape[0])) ** 0.5
        return [(2 * rng.random() - 1) * factor for _ in range(n)]
    middle = 1.0 if name.endswith("weight") else 0.0
    return [middle + 0.4 * (rng.random() - 0.5) for _ in range(n)]


def leaf(a, source):
    """The memory of an argument."""
    made = coda.Array(a.dims, a.dtype)
    if "bytes" in source:
        data = base64.b64decode(source["bytes"])
    else:
        numbers = source["values"] if "values" in source else fill(source["fill"], a.dims, source.get("integers"))
        data = array.array({"f32": "f", "i64": "q", "i32": "i"}[a.dtype], numbers).tobytes()
    if len(data) != made.nbytes:
        raise ValueError("%s has %d bytes, and %d are recorded" % (a.name, made.nbytes, len(data)))
    ctypes.memmove(made.memory.address, data, len(data))
    return made


def run(path):
    """(error over the largest, launches, launches that were recorded)"""
    with open(path, encoding="utf-8") as f:
        graph = coda.Graph(f.read())
    with open(path[:-5] + ".json", encoding="utf-8") as f:
        recorded = json.load(f)
    plan = graph.compile("cpu")
    given = {a.name: leaf(a, recorded["leaves"][a.name]) for a in plan.args if a.kind != "output"}
    out = {a.name: coda.Array(a.dims, a.dtype) for a in plan.args if a.kind == "output"}
    for x in out.values():
        ctypes.memset(x.memory.address, 0xff, x.nbytes)  # NaN
    plan(given, out=out)
    got = out["out.0"].view().cast("B").cast("f")
    errors = [abs(got[i] - v) for i, v in zip(recorded["places"], recorded["values"])]
    largest = max(errors) if all(e == e for e in errors) else float("inf")
    return largest / recorded["largest"], plan.stats.launches, recorded["launches"]


def main():
    failures = 0
    paths = sorted(glob.glob(os.path.join(HERE, "graphs", "*.coda")))
    for path in paths:
        name = os.path.basename(path)[:-5]
        off, launches, most = run(path)
        good = off <= BAR and launches <= most
        failures += not good
        print("  %-14s off by %.1e, %2d launches%s" %
              (name, off, launches, "" if good else ": WRONG, %d were recorded" % most))
    print("Ran %d tests\n" % len(paths))
    if failures or len(paths) < 12:
        print("FAILED (failures=%d)" % max(failures, 1))
    return failures > 0 or len(paths) < 12


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""record.py [NAME...] -- writes test/python/graphs: models of transformers as the backend of torch.compile makes
graphs of them, and what PyTorch makes of them in fp64. Run where PyTorch and transformers are, with the package on
PYTHONPATH; read the diff."""
import base64
import json
import os
import sys

import torch
import transformers

import families
import libcoda.dynamo

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "graphs")
KEPT = 128


def source_of(leaf, named, given, names):
    """Where test_graphs.py gets a leaf from."""
    if leaf.tensor is not None:
        t = leaf.tensor.contiguous()
        return {"bytes": base64.b64encode(t.numpy().tobytes()).decode()}
    x = given[leaf.argument]
    if id(x) in names:
        return {"fill": names[id(x)]}
    name = next(n for n, t in named.items() if t is x)
    return {"fill": name, "integers": 128} if name == "input_ids" else {"fill": name} if x.is_floating_point() else \
        {"values": x.flatten().tolist()}


def record(name):
    family, padded = name.removesuffix("_padded"), name.endswith("_padded")
    torch._dynamo.reset()
    libcoda.dynamo.reset()
    model, inputs = families.model_of(family), families.inputs_of(family, padded=padded)
    seen, names = [], {id(p): n for n, p in model.named_parameters()}

    def backend(module, example, **options):
        seen.append(example)
        return libcoda.dynamo.backend(module, example, options={"fullgraph": True})
    with torch.no_grad():
        torch.compile(model, backend=backend, fullgraph=True)(**inputs)
        exact = {k: v.double() if torch.is_tensor(v) and v.is_floating_point() else v for k, v in inputs.items()}
        want = model.double()(**exact)[0]
    model.float()
    done = libcoda.dynamo.last[-1]
    program = done.whole.first
    if padded:
        want[0, -5:] = 0
    flat = want.flatten()
    places = sorted(families.random.Random(name).sample([i for i in range(len(flat)) if flat[i] != 0], KEPT))
    out = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__, "nodes": done.nodes,
           "folded": program.folded, "launches": program.plan.stats.launches, "largest": float(flat.abs().max()),
           "leaves": {}, "places": places, "values": [float("%.12g" % flat[i]) for i in places]}
    for leaf in program.leaves:
        out["leaves"][leaf.node.id] = source_of(leaf, inputs, seen[0], names)
    with open(os.path.join(FOLDER, name + ".coda"), "w", encoding="utf-8") as f:
        f.write(program.text)
    with open(os.path.join(FOLDER, name + ".json"), "w", encoding="utf-8") as f:
        json.dump(out, f, indent=0, separators=(",", ":"))
        f.write("\n")
    print("%-14s %3d nodes, %2d folded, %2d launches, %d bytes" %
          (name, done.nodes, program.folded, out["launches"], len(program.text)))


if __name__ == "__main__":
    os.makedirs(FOLDER, exist_ok=True)
    for name in sys.argv[1:] or families.RECORDED + [n + "_padded" for n in families.PADDED]:
        record(name)

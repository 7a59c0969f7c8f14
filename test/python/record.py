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


def filled(name, like):
    return torch.tensor(families.fill(name, like.shape), dtype=torch.float64).reshape(like.shape)


def cache_of(model, dtype):
    """A static cache that has families.PAST keys, which depend on their names alone."""
    cache = transformers.StaticCache(config=model.config, max_cache_len=families.KEYS)
    model(input_ids=torch.ones(1, families.PAST, dtype=torch.int64), past_key_values=cache)
    for k, layer in enumerate(cache.layers):
        layer.keys.copy_(filled("cache.keys.%d" % k, layer.keys))
        layer.values.copy_(filled("cache.values.%d" % k, layer.values))
    return cache


def record_decode(family):
    """One token behind a cache."""
    torch._dynamo.reset()
    libcoda.dynamo.reset()
    model, ids, seen = families.model_of(family), torch.tensor([[families.TOKEN]]), []
    known = {id(p): {"fill": n} for n, p in model.named_parameters()}

    def backend(module, example, **options):
        seen.append(example)
        return libcoda.dynamo.backend(module, example, options={"fullgraph": True})
    with torch.no_grad():
        cache = cache_of(model, torch.float32)
        for k, layer in enumerate(cache.layers):
            known[id(layer.keys)] = {"fill": "cache.keys.%d" % k}
            known[id(layer.values)] = {"fill": "cache.values.%d" % k}
            known[id(layer.cumulative_length)] = {"values": [families.PAST]}
        known[id(ids)] = {"values": [families.TOKEN]}
        torch.compile(model, backend=backend, fullgraph=True)(input_ids=ids, past_key_values=cache)
        model.double()
        want = model(input_ids=ids, past_key_values=cache_of(model, torch.float64))[0]
    leaves = {}
    program = libcoda.dynamo.last[-1].whole.first
    for leaf in program.leaves:
        given = seen[0][leaf.argument] if leaf.argument is not None else None
        leaves[leaf.node.id] = known[id(given)] if given is not None else source_of(leaf, {}, [], {})
    write(family + "_decode", program, want, leaves)


def record(name):
    if name.endswith("_decode"):
        return record_decode(name.removesuffix("_decode"))
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
    program = libcoda.dynamo.last[-1].whole.first
    if padded:
        want[0, -5:] = 0
    write(name, program, want, {leaf.node.id: source_of(leaf, inputs, seen[0], names) for leaf in program.leaves})


def write(name, program, want, leaves):
    flat, done = want.flatten(), libcoda.dynamo.last[-1]
    places = sorted(families.random.Random(name).sample([i for i in range(len(flat)) if flat[i] != 0], KEPT))
    out = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__, "nodes": done.nodes,
           "folded": program.folded, "launches": program.plan.stats.launches, "largest": float(flat.abs().max()),
           "leaves": leaves, "places": places, "values": [float("%.12g" % flat[i]) for i in places]}
    with open(os.path.join(FOLDER, name + ".coda"), "w", encoding="utf-8") as f:
        f.write(program.text)
    with open(os.path.join(FOLDER, name + ".json"), "w", encoding="utf-8") as f:
        json.dump(out, f, indent=0, separators=(",", ":"))
        f.write("\n")
    print("%-14s %3d nodes, %2d folded, %2d launches, %d bytes" %
          (name, done.nodes, program.folded, out["launches"], len(program.text)))


if __name__ == "__main__":
    os.makedirs(FOLDER, exist_ok=True)
    for name in sys.argv[1:] or families.RECORDED + [n + "_padded" for n in families.PADDED] + \
            [n + "_decode" for n in families.DECODED]:
        record(name)

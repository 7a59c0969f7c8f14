#!/usr/bin/env python3
"""first_token.py -- a process from its start to the first token of a model behind a prompt; dynamo.py starts it.

    first_token.py MODEL SIDE LAYERS SAVED START [--cpu]

SIDE: "coda", "compile", "autotune", or "saved", by the file SAVED, which is made where it is not there, or "weights", by that
file and weights of the shapes in SAVED.json, which is made beside it, without transformers. START: the clock
when the process was started. Prints the seconds since then: when PyTorch was imported, when transformers was, too, and each
at once when the device could be used, when the model was there, when the call could be made, and when the token was there; then,
of Inductor's, how many graphs its caches had: "hits" of compiled graphs and of what autograd makes, and "misses".
"""
import argparse
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# No package that looks for a module of its own finds one of this folder, as `pytorch`, which imports much.
sys.path[0] = os.path.join(os.path.dirname(HERE), "build", "python")
import torch
TORCH = time.time()
BARE = sys.argv[2:3] == ["weights"]
if sys.argv[2:3] == ["coda"] or (sys.argv[2:3] == ["saved"] and os.path.exists(sys.argv[4])):
    import libcoda.dynamo
    libcoda.dynamo.defer()
if not BARE:
    import transformers
    sys.path.append(HERE)
    import dynamo_models
    sys.path.remove(HERE)
TOKENS = 2048


def loaded(model, path):
    import libcoda.dynamo

    def saving(**call):
        libcoda.dynamo.save(model, path, call)
        with open(path + ".json", "w") as f:
            json.dump({"vocabulary": model.config.vocab_size, "shapes": {n: x.shape for n, x in model.state_dict().items()}}, f)
        return libcoda.dynamo.load(model, path)(**call)
    return libcoda.dynamo.load(model, path) if os.path.exists(path) else saving


def weights_alone(path, device, tokens, reached):
    """The token by weights in bf16, and the package's file."""
    with open(path + ".json") as f:
        of = json.load(f)
    torch.manual_seed(7)
    weights = {n: torch.empty(shape, dtype=torch.bfloat16, device=device).normal_(0, 0.02) for n, shape in of["shapes"].items()}
    ids = torch.randint(of["vocabulary"], (1, tokens), device=device)
    if device == "cuda":
        torch.cuda.synchronize()
    reached("model")
    import libcoda.dynamo
    fast = libcoda.dynamo.load(weights, path)
    reached("ready")
    fast(input_ids=ids, use_cache=False, logits_to_keep=1).logits.argmax().item()
    reached("token")


def compiled(model, side):
    if side == "coda":
        import libcoda.dynamo
    return torch.compile(model, dynamic=False, **dynamo_models.MODES[side])


def cached():
    """Prints what Inductor's caches had, so that a warm process is seen to be one."""
    counters = torch._dynamo.utils.counters
    for word in ("hit", "miss"):
        kinds = [(of, key, n) for of in ("inductor", "aot_autograd") for key, n in counters[of].items() if "cache_" + word in key]
        print(word, *["%s.%s=%d" % k for k in kinds], flush=True)
    print("took", *["%s=%.2f" % (k, sum(v)) for k, v in torch._dynamo.utils.compilation_time_metrics.items() if sum(v) >= 0.1])


def main():
    name, side, layers, saved, start, *cpu = sys.argv[1:]
    opt, device = argparse.Namespace(layers=int(layers), cpu=bool(cpu)), "cpu" if cpu else "cuda"

    def reached(step):
        print(step, "%.3f" % (time.time() - float(start)), flush=True)
    print("torch", "%.3f" % (TORCH - float(start)))
    reached("imported")
    torch.set_float32_matmul_precision("highest")
    torch.zeros(1, device=device).item()
    reached("device")
    with torch.no_grad():
        if BARE:
            return weights_alone(saved, device, 64 if cpu else TOKENS, reached)
        model = dynamo_models.model_of(name, opt, device)
        case = dynamo_models.Prefill(model, opt, device)
        if not cpu:
            torch.cuda.synchronize()
        reached("model")
        fast = loaded(model, saved) if side == "saved" else compiled(model, side)
        reached("ready")
        case(fast).argmax().item()
        reached("token")
    if side in ("compile", "autotune"):
        cached()


if __name__ == "__main__":
    main()

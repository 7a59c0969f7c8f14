#!/usr/bin/env python3
"""cpu_models.py -- small models on the CPU device beside their peers, in turns.

    cpu_models.py --minilm build/minilm [--threads N] [--rounds N]
    cpu_models.py --stories LLAMA_BENCH [--threads N] [--rounds N]

--minilm: 64 sentences of 8 to 40 words become vectors, by embed, a process that stays, and by PyTorch with
the model and the tokenizer of Hugging Face's transformers, in batches of 32, padded. Vectors are compared first.
--stories: generate writes 199 tokens with stories260K; LLAMA_BENCH is llama.cpp's llama-bench, of which one
process, too, writes 199 (-p 0 -n 199 -r 1). The figure of each is what it prints itself.
Each figure is the best of its rounds, and beside it the upper quartile; processor time is that of all threads of a
side. Without --threads: one thread, then as many as there are cores.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import time

here = os.path.dirname(os.path.abspath(__file__))
top = os.path.join(here, "..", "..", "..")
options = argparse.ArgumentParser(usage=__doc__)
options.add_argument("--minilm")
options.add_argument("--stories")
options.add_argument("--threads", type=int)
options.add_argument("--rounds", type=int, default=15)
options = options.parse_args()
cores = sorted(os.sched_getaffinity(0))
STORY = os.path.join(here, "..", "stories260K", "stories260K.gguf")
TOKENS = 199
BARS = {1: 0.85, 2: 0.6}


def upper_quartile(x):
    return sorted(x)[-1 - len(x) // 4]


def report(name, threads, ours, theirs, peer, bar):
    ratio = max(ours) / max(theirs)
    verdict = "" if bar is None else f", {'pass' if ratio >= bar else 'MISS'} (>= {bar:g})"
    print(f"{name}, {threads} threads: ours {max(ours):.0f} ({upper_quartile(ours):.0f}), {peer} {max(theirs):.0f} "
          f"({upper_quartile(theirs):.0f}) a second; {ratio:.2f}{verdict}", flush=True)


# ---- stories260K ----


def generate(threads):
    p = subprocess.run([os.path.join(top, "build", "serving", "generate"), "--cpu", "--tokens", str(TOKENS), STORY, ""],
                       capture_output=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, cores[:threads]))
    return float(re.search(r"([0-9.]+) tokens/s", p.stderr).group(1))


def llama_bench(threads):
    p = subprocess.run([options.stories, "-m", STORY, "-p", "0", "-n", str(TOKENS), "-t", str(threads), "-r", "1", "-o",
                        "json"], capture_output=True, text=True,
                       preexec_fn=lambda: os.sched_setaffinity(0, cores[:threads]))
    return json.loads(p.stdout)[0]["avg_ts"]


def stories(threads):
    ours, theirs = [], []
    for _ in range(options.rounds):
        ours.append(generate(threads))
        theirs.append(llama_bench(threads))
    report("stories260K, tokens", threads, ours, theirs, "llama.cpp", BARS.get(threads))
    return max(ours)


# ---- MiniLM ----


def sentences():
    words = "a the fox river old stone runs quickly over under bright morning children sing of who would never leave " \
            "their small house before winter came back with snow and wind from far mountains".split()
    state, lines = 1, []
    for i in range(64):
        line = []
        for _ in range(8 + i % 33):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            line.append(words[(state >> 33) % len(words)])
        lines.append(" ".join(line) + ".")
    return lines


def processor_s(pid):
    """Of all threads of a process, in seconds."""
    total = 0
    for t in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{t}/schedstat") as f:
            total += int(f.read().split()[0])
    return total * 1e-9


class Embed:
    def __init__(self, threads, lines):
        self.lines = lines
        self.p = subprocess.Popen(["stdbuf", "-oL", os.path.join(top, "build", "serving", "embed"), "--cpu",
                                   options.minilm], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True,
                                  preexec_fn=lambda: os.sched_setaffinity(0, cores[:threads]))

    def __call__(self):
        self.p.stdin.write("".join(line + "\n" for line in self.lines))
        self.p.stdin.flush()
        return [self.p.stdout.readline() for _ in self.lines]

    def processor(self):
        return processor_s(self.p.pid)

    def close(self):
        self.p.stdin.close()
        self.p.wait()


def torch_side(threads, lines):
    import torch
    from transformers import AutoModel, AutoTokenizer
    torch.set_num_threads(threads)
    tokenizer, model = AutoTokenizer.from_pretrained(options.minilm), AutoModel.from_pretrained(options.minilm).eval()

    def run():
        out = []
        with torch.no_grad():
            for i in range(0, len(lines), 32):
                t = tokenizer(lines[i:i + 32], padding=True, truncation=True, max_length=256, return_tensors="pt")
                x = model(**t).last_hidden_state
                mask = t["attention_mask"][:, :, None].float()
                out.append(torch.nn.functional.normalize((x * mask).sum(1) / mask.sum(1)))
        return torch.cat(out)
    return run


def minilm(threads):
    os.sched_setaffinity(0, cores[:threads])
    lines = sentences()
    embed, peer = Embed(threads, lines), torch_side(threads, lines)
    import torch
    got = torch.tensor([[float(x) for x in line.split()] for line in embed()])
    error = (got - peer()).abs().max().item()
    if not error < 2e-5:
        sys.exit(f"cpu_models.py: vectors differ by {error:g}")
    wall, used = ([], []), ([], [])
    for _ in range(options.rounds):
        for side, run, processor in ((0, embed, embed.processor), (1, peer, time.process_time)):
            time.sleep(0.1)
            begun, before = time.perf_counter(), processor()
            run()
            wall[side].append(len(lines) / (time.perf_counter() - begun))
            used[side].append(len(lines) / (processor() - before))
    embed.close()
    report("MiniLM, sentences", threads, *wall, "PyTorch", 0.7 if threads == 2 else None)
    report("MiniLM, sentences by processor time", threads, *used, "PyTorch", None)


if not options.minilm and not options.stories:
    sys.exit("cpu_models.py: --minilm or --stories says what is measured")
counts = [options.threads] if options.threads else sorted({1, min(2, len(cores))})
if options.stories:
    made = [stories(n) for n in counts]
    if len(made) == 2:
        print(f"stories260K: two cores over one: {made[1] / made[0]:.2f}, {'pass' if made[1] >= made[0] else 'MISS'} "
              "(>= 1)")
if options.minilm:
    for n in counts[::-1]:
        minilm(n)

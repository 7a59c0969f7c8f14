#!/usr/bin/env python3
"""quantised.py -- how fast `generate` writes with weights of few bits, what memory it takes, how fast it loads them.

    quantised.py [--rounds N] [--prompt N] [--tokens N] [--files FOLDER] [--out FILE] [--seconds N] [CASE...]

    8b/bf16, 8b/fp8, 8b/q4_k_m     a LLaMA-3-8B, random weights, one text: tokens a second, in turns
    7b/bf16, 7b/int4               a LLaMA-2-7B, groups of 128
    70b/int4                       a LLaMA-3-70B
    load/7b/int4, load/8b/fp8, load/8b/q4_k_m   the same from a file of compressed-tensors, or GGUF, that has
                                   just been written into FOLDER, so that it is in the page cache

Device memory is what nvidia-smi says at most, less what it says of a model of 100 KB: beside it what --plan adds
up, weights, caches and the largest workspace. Host memory is the largest RssAnon, what no file backs, of the run that
needed least: others compile kernels. Beside it that of the model of 100 KB, which is CUDA's. Times of loading are
those of --times. `ratio` is that of tokens a second to bf16's of the same shape. Each run is printed as it ends, FILE
is written anew after each case; a run that fails, or takes two minutes, costs its own figures alone, and none begins
after --seconds (540).
"""
import argparse
import json
import os
import re
import shutil
import statistics
import struct
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "..", "..", "..")
BUILD = os.environ.get("BUILD", os.path.join(TOP, "build"))
GENERATE = os.environ.get("GENERATE", os.path.join(BUILD, "serving", "generate"))
BEGAN = time.monotonic()
LONGEST = 120  # seconds of a run
SAID = re.compile(r"then (\d+) steps in ([0-9.]+) s, ([0-9.]+) tokens/s: ([0-9.e+]+) MB each")


def shape(hidden, inner, layers, heads, kv, vocabulary):
    return {"model_type": "llama", "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
            "num_key_value_heads": kv, "intermediate_size": inner, "vocab_size": vocabulary, "rms_norm_eps": 1e-5,
            "hidden_act": "silu", "tie_word_embeddings": False, "max_position_embeddings": 8192,
            "rope_theta": 500000.0, "architectures": ["LlamaForCausalLM"]}


SHAPES = {"7b": shape(4096, 11008, 32, 32, 32, 32000), "8b": shape(4096, 14336, 32, 32, 8, 128256),
          "70b": shape(8192, 28672, 80, 64, 8, 128256), "none": shape(64, 128, 2, 4, 2, 320)}
WORDS = {"fp8": ["--weights", "fp8"], "int4": ["--weights", "int4_g128_bf16"], "q4_k_m": ["--weights", "q4_k_m"],
         "bf16": []}


# ---- Files of random weights ----

def matrices(c):
    h, f, d = c["hidden_size"], c["intermediate_size"], c["hidden_size"] // c["num_attention_heads"]
    kv = d * c["num_key_value_heads"]
    return {"self_attn.q_proj": (h, h), "self_attn.k_proj": (kv, h), "self_attn.v_proj": (kv, h),
            "self_attn.o_proj": (h, h), "mlp.gate_proj": (f, h), "mlp.up_proj": (f, h), "mlp.down_proj": (h, f)}


def repeated(piece, size):
    return (piece * (size // len(piece) + 1))[:size] if size else b""


def bf16_bytes(size, scale=0.02):
    words = bytearray()
    state = 1
    for _ in range(4096):
        state = (state * 1103515245 + 12345) & 0x7fffffff
        x = (state / 0x7fffffff - 0.5) * 2 * scale
        words += struct.pack("<f", x)[2:]
    return repeated(bytes(words), size)


def codes_of(kind, size):
    raw = bytearray(os.urandom(144 * 210 * 32))
    if kind == "fp8":  # below 2, so that none is NaN
        raw = bytearray(b & 0xbf for b in raw)
    for step in {"q4_k": [144], "q6_k": [210]}.get(kind, []):
        for at in range(0, len(raw), step):
            if step == 144:
                raw[at:at + 4] = struct.pack("<ee", 2e-4, 1e-3)
            else:
                raw[at + 208:at + 210] = struct.pack("<e", 2e-5)
    return repeated(bytes(raw), size)


def tensors_of(c, kind):
    """(name, dtype, dims, bytes) as compressed-tensors has them."""
    h, v = c["hidden_size"], c["vocab_size"]
    plain = lambda name, *dims: (name, "BF16", dims, lambda n: bf16_bytes(n))
    yield plain("model.embed_tokens.weight", v, h)
    for i in range(c["num_hidden_layers"]):
        layer = "model.layers.%d." % i
        yield plain(layer + "input_layernorm.weight", h)
        yield plain(layer + "post_attention_layernorm.weight", h)
        for name, (n, k) in matrices(c).items():
            if kind == "fp8":
                yield layer + name + ".weight", "F8_E4M3", (n, k), lambda s: codes_of("fp8", s)
                yield layer + name + ".weight_scale", "BF16", (n, 1), lambda s: bf16_bytes(s)
            else:
                yield layer + name + ".weight_packed", "I32", (n, k // 8), lambda s: codes_of("int4", s)
                yield layer + name + ".weight_scale", "BF16", (n, k // 128), lambda s: bf16_bytes(s)
                yield layer + name + ".weight_shape", "I64", (2,), lambda s, n=n, k=k: struct.pack("<qq", n, k)
    yield plain("model.norm.weight", h)
    yield plain("lm_head.weight", v, h)


SIZE = {"BF16": 2, "F8_E4M3": 1, "I32": 4, "I64": 8}


def write_safetensors(folder, c, kind):
    weights = {"num_bits": 8 if kind == "fp8" else 4, "type": "float" if kind == "fp8" else "int", "symmetric": True,
               "strategy": "channel" if kind == "fp8" else "group", "dynamic": False}
    if kind == "int4":
        weights["group_size"] = 128
    config = dict(c, quantization_config={
        "quant_method": "compressed-tensors", "format": "float-quantized" if kind == "fp8" else "pack-quantized",
        "quantization_status": "compressed", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}})
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    head, at, all_of = {}, 0, list(tensors_of(c, kind))
    for name, dtype, dims, _ in all_of:
        size = SIZE[dtype]
        for d in dims:
            size *= d
        head[name] = {"dtype": dtype, "shape": list(dims), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        made = {}
        for name, dtype, _, make in all_of:
            begin, end = head[name]["data_offsets"]
            key = (name.split(".")[-1], dtype, end - begin, name.split(".")[-2])
            if key not in made:
                made[key] = make(end - begin)
            f.write(made[key])
    return folder


def gguf_tensors(c):
    h, f, v, n = c["hidden_size"], c["intermediate_size"], c["vocab_size"], c["num_hidden_layers"]
    more = lambda i: i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down"}
    yield "token_embd.weight", (h, v), 12
    for i in range(n):
        yield "blk.%d.attn_norm.weight" % i, (h,), 0
        yield "blk.%d.ffn_norm.weight" % i, (h,), 0
        for name, (rows, columns) in matrices(c).items():
            six = names[name] in ("attn_v", "ffn_down") and more(i)
            yield "blk.%d.%s.weight" % (i, names[name]), (columns, rows), 14 if six else 12
    yield "output_norm.weight", (h,), 0
    yield "output.weight", (h, v), 14


def write_gguf(path, c):
    string = lambda s: struct.pack("<Q", len(s)) + s.encode()
    number = lambda key, x: string(key) + struct.pack("<II", 4, x)
    real = lambda key, x: string(key) + struct.pack("<If", 6, x)
    kv = [string("general.architecture") + struct.pack("<I", 8) + string("llama"),
          number("llama.block_count", c["num_hidden_layers"]), number("llama.context_length", 8192),
          number("llama.embedding_length", c["hidden_size"]),
          number("llama.feed_forward_length", c["intermediate_size"]),
          number("llama.attention.head_count", c["num_attention_heads"]),
          number("llama.attention.head_count_kv", c["num_key_value_heads"]),
          real("llama.attention.layer_norm_rms_epsilon", 1e-5), real("llama.rope.freq_base", c["rope_theta"])]
    infos, at, sizes = b"", 0, []
    block = {0: (1, 4), 12: (256, 144), 14: (256, 210)}
    all_of = list(gguf_tensors(c))
    for name, dims, kind in all_of:
        size = block[kind][1]
        for d in dims:
            size *= d
        size //= block[kind][0]
        infos += string(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
        infos += struct.pack("<IQ", kind, at)
        sizes.append(size)
        at += size + -size % 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(all_of), len(kv)) + b"".join(kv) + infos
    made = {}
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32))
        for (_, _, kind), size in zip(all_of, sizes):
            if (kind, size) not in made:
                word = {12: "q4_k", 14: "q6_k"}.get(kind)
                made[kind, size] = codes_of(word, size) if word else struct.pack("<f", 1) * (size // 4)
                made[kind, size] += b"\0" * (-size % 32)
            f.write(made[kind, size])
    return path


# ---- Runs ----

class Failed(Exception):
    """A run that has no figures, and why."""


class Watch:
    """The largest memory of a process while it runs."""

    def __init__(self, pid):
        self.pid, self.anon, self.all, self.device, self.going = pid, 0, 0, 0, True
        self.smi = subprocess.Popen(["nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits",
                                     "-lms", "50"], stdout=subprocess.PIPE, text=True) if shutil.which("nvidia-smi") else None
        self.threads = [threading.Thread(target=self.host)] + ([threading.Thread(target=self.gpu)] if self.smi else [])
        for t in self.threads:
            t.start()

    def host(self):
        while self.going:
            try:
                with open("/proc/%d/status" % self.pid, encoding="utf-8") as f:
                    said = dict(line.split(":", 1) for line in f if line.startswith("Rss") or line.startswith("VmHWM"))
                self.anon = max(self.anon, int(said["RssAnon"].split()[0]) + int(said["RssShmem"].split()[0]))
                self.all = max(self.all, int(said["VmHWM"].split()[0]))
            except (OSError, KeyError, ValueError):
                pass
            time.sleep(0.005)

    def gpu(self):
        for line in self.smi.stdout:
            self.device = max(self.device, int(line))

    def end(self):
        self.going = False
        if self.smi:
            self.smi.terminate()
        for t in self.threads:
            t.join()
        return {"host_anon_mb": self.anon / 1000, "host_peak_mb": self.all / 1000, "device_mib": self.device}


def run(opt, model, words, prompt, tokens):
    command = [GENERATE, opt.where, "--dtype", "bf16" if opt.where == "--gpu" else "f32", "--times", "--ids", "--tokens",
               str(tokens), "--context", str(prompt + tokens)] + words
    command += [model, ",".join(str(1 + i % 300) for i in range(prompt))]
    if time.monotonic() - BEGAN > opt.seconds:
        raise Failed("not begun after %.0f s" % opt.seconds)
    p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    watch = Watch(p.pid)
    try:
        said = p.communicate(timeout=LONGEST)[1]
    except subprocess.TimeoutExpired:
        p.kill()
        said = p.communicate()[1] + "; more than %d s" % LONGEST
    memory = watch.end()
    found = SAID.search(said)
    if p.returncode or not found:
        raise Failed("%s: %s" % (" ".join(command)[:300], said[-500:].strip()))
    parts = re.search(r"the first token: ([0-9.]+) ms, .*?: (.*)", said)
    times = {w.rsplit(" ", 1)[0]: float(w.rsplit(" ", 1)[1]) for w in parts.group(2).split(", ")}
    return dict(memory, tokens=float(found.group(3)), megabytes=float(found.group(4)), first_ms=float(parts.group(1)),
                times=times)


def planned(opt, model, words, context):
    """Megabytes of weights, caches and the largest workspace, by --plan."""
    out = subprocess.run([GENERATE, opt.where, "--plan", "--dtype", "bf16", "--context", str(context)] + words + [model],
                         capture_output=True, text=True).stdout
    get = lambda word: [int(x) for x in re.findall(r"^  %s +(\d+) bytes" % word, out, re.M)]
    if not get("weight"):
        return None
    return {"weights": max(get("weight")) / 1e6, "states": max(get("state")) / 1e6,
            "workspace": max(get("workspace")) / 1e6}


def config_file(opt, name):
    path = os.path.join(opt.files, name + ".json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(SHAPES[name], f)
    return path


def say(name, rows, plan, empty):
    median = lambda key: statistics.median(r[key] for r in rows)
    row = {"case": "quantised/" + name, "rounds": len(rows), "tokens": median("tokens"),
           "each": [r["tokens"] for r in rows], "megabytes": rows[0]["megabytes"],
           "first_ms": median("first_ms"), "times": rows[-1]["times"],
           "device_mb": (max(r["device_mib"] for r in rows) - empty["device_mib"]) * 1.048576,
           "host_anon_mb": min(r["host_anon_mb"] for r in rows) - empty["host_anon_mb"],
           "host_peak_mb": max(r["host_peak_mb"] for r in rows), "planned_mb": plan}
    total = sum(plan.values()) if plan else 0
    print("%-16s %7.1f tokens/s of %s (%.4g MB)  device %.0f MB, planned %.0f  host %.0f MB beyond CUDA's %.0f, peak %.0f  "
          "weights %.0f ms, first token %.0f ms" % (name, row["tokens"], row["each"], row["megabytes"], row["device_mb"], total,
          row["host_anon_mb"], empty["host_anon_mb"], row["host_peak_mb"], row["times"].get("weights", 0),
          row["first_ms"]), flush=True)
    return row


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--prompt", type=int, default=768)
    p.add_argument("--tokens", type=int, default=256)
    p.add_argument("--files", default="/tmp/quantised")
    p.add_argument("--out")
    p.add_argument("--seconds", type=float, default=540)
    p.add_argument("--cpu", action="store_const", dest="where", const="--cpu", default="--gpu")
    p.add_argument("case", nargs="*")
    opt = p.parse_args()
    os.makedirs(opt.files, exist_ok=True)
    random = ["8b/bf16", "8b/fp8", "8b/q4_k_m", "7b/bf16", "7b/int4", "70b/int4"]
    loads = ["load/7b/int4", "load/8b/fp8", "load/8b/q4_k_m"]
    chosen = [x for x in random + loads if not opt.case or x in opt.case]
    empty, rows, failed = run(opt, config_file(opt, "none"), ["--random"], 16, 16), [], []

    def tried(name, runs, *what):
        """Another run, if it has figures."""
        try:
            runs.append(run(opt, *what))
            print("  %-16s %7.1f tokens/s" % (name, runs[-1]["tokens"]), flush=True)
        except Failed as e:
            failed.append(name)
            print("  %-16s %s" % (name, e), flush=True)

    def ended(name, runs, *what):
        if runs:
            row = say(name, runs, planned(opt, *what), empty)
            base = [r for r in rows if r["case"] == "quantised/%s/bf16" % name.split("/")[0]]
            if base:
                row["ratio"] = {"bf16": round(row["tokens"] / base[0]["tokens"], 4)}
            rows.append(row)
        if opt.out:
            with open(opt.out, "w", encoding="utf-8") as f:
                lines = ",\n".join(json.dumps(r) for r in rows) # perf/summary reads a case from each line
                f.write('{"name": "quantised", "failed": %s, "cases": [\n%s\n]}\n' % (json.dumps(failed), lines))

    drawn = {x: [] for x in chosen if x in random}
    shape_of = lambda name: (config_file(opt, name.split("/")[0]), ["--random"] + WORDS[name.split("/")[1]])
    for i in range(opt.rounds):
        for name in list(drawn)[::-1 if i % 2 else 1]:
            if not i or not name.startswith("70b"):
                tried(name, drawn[name], *shape_of(name), opt.prompt, opt.tokens)
    for name, runs in drawn.items():
        ended(name, runs, *shape_of(name), opt.prompt + opt.tokens)
    for name in (x for x in chosen if x in loads):
        if time.monotonic() - BEGAN > opt.seconds:
            failed.append(name)
            continue
        _, size, word = name.split("/")
        began, runs = time.monotonic(), []
        folder = os.path.join(opt.files, size + "-" + word)
        os.makedirs(folder, exist_ok=True)
        model = write_gguf(os.path.join(folder, "model.gguf"), SHAPES[size]) if word == "q4_k_m" else \
            write_safetensors(folder, SHAPES[size], word)
        print("%s written in %.0f s" % (name, time.monotonic() - began), flush=True)
        for _ in range(max(2, opt.rounds)):
            tried(name, runs, model, [], 16, 16)
        ended(name, runs, model, [], 32)
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as e:
        sys.exit("quantised.py: the model of 100 KB: %s" % e)

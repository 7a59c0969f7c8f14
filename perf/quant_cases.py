#!/usr/bin/env python3
"""quant_cases.py -- one case of quant_peers.py, which runs this in a process of its own.

    quant_cases.py [--quick] [--marlin LIBRARY] [--llama LIBRARY] [--without SIDE]... CASE

It writes lines: "@ at SIDE" before it makes a side, replays it, or begins the rounds, "@ row JSON" at the end, and
words for people. It ends with status 3 as soon as a side has left the GPU's context broken, so that the last line
says whose fault it was.

Operands of fp8 are rounded beforehand, on both sides. A side is a replay of a CUDA graph that holds several
runs, each on weights of its own, so that more than L2 holds passes between two uses of any; sides take turns.
Errors are those of a sample of columns against fp64 of the weights that codes and scales mean.
"""
import argparse
import ctypes
import json
import math
import statistics
import sys

import pytorch as base
import torch
import torch.nn.functional as F

from libcoda import c

N, K, GROUP = 22016, 4096, 128
PACKED_ROWS = 2048  # after which packed weights repeat
L2_BYTES = 180e6
MOST_ROUNDS = 61
INNER = {4096: 11008, 8192: 28672}  # columns inside of an MLP
F8 = torch.float8_e4m3fn
NUMBER = {torch.float32: 1, torch.bfloat16: 2, torch.float16: 3, F8: 5, torch.uint8: 9}
BLOCK = {"q4_k": (144, 256, 4), "q6_k": (210, 256, 6), "q8_0": (34, 32, 8)}  # bytes, columns, llama's word here


# ---- Plans of libcoda ----

class Graph:
    def __init__(self):
        self.g, self.args, self.outputs = c.coda_graph_new(), [], []

    def leaf(self, name, t, weight=True):
        """A tensor that sets share, or a list of one for each set."""
        self.args.append(t)
        first = t[0] if isinstance(t, list) else t
        make = c.coda_weight if weight else c.coda_input
        dims = (ctypes.c_int64 * first.dim())(*first.shape)
        return make(self.g, name.encode(), NUMBER[first.dtype], first.dim(), dims)

    def packed(self, name, matrix, rows):
        self.args.append(matrix.bytes)
        dims = (ctypes.c_int64 * 2)(rows, matrix.columns)
        return c.coda_weight_packed(self.g, name.encode(), ctypes.byref(matrix.format), 2, dims, 2)

    def output(self, value, shape):
        c.coda_output(self.g, b"y", c.coda_cast(self.g, value, 2))
        self.args.append(torch.full(shape, math.nan, dtype=torch.bfloat16, device="cuda"))
        return self.args[-1]


def must(status):
    if status:
        raise RuntimeError(c.coda_error().decode())


class Plan:
    """A compiled graph; a call of set i enqueues it on torch's current stream."""

    def __init__(self, graph):
        self.p, self.graph = c.coda_plan(), graph
        opt = c.coda_compile_options(device=0)
        must(c.coda_compile(ctypes.byref(self.p), graph.g, ctypes.byref(opt)))
        c.coda_graph_free(graph.g)
        self.work = torch.empty(c.coda_plan_workspace(self.p) + 512, dtype=torch.uint8, device="cuda")

    def __call__(self, i):
        args = [(t[i % len(t)] if isinstance(t, list) else t).data_ptr() for t in self.graph.args]
        work = ctypes.c_void_p((self.work.data_ptr() + 255) // 256 * 256)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        must(c.coda_run(self.p, (ctypes.c_void_p * len(args))(*args), None, work, stream))

    def stats(self):
        s = c.coda_plan_stats()
        must(c.coda_plan_stats_get(self.p, ctypes.byref(s)))
        return s


# ---- Packed matrices of random codes ----

class Matrix:
    """PACKED_ROWS rows as a file has them, packed; `sets` copies of so many rows on the GPU."""

    def __init__(self, word, rows, columns, sets=1):
        self.word, self.columns = word, columns
        self.format = c.coda_pack_format()
        must(c.coda_pack_format_find(word.encode(), ctypes.byref(self.format)))
        one, period = self.pack(), -(-rows // PACKED_ROWS)
        used = c.coda_packed_bytes(ctypes.byref(self.format), rows, columns)
        whole = torch.from_numpy(one).cuda().repeat(period)[:used]
        self.bytes = [whole.clone() for _ in range(sets)] if sets > 1 else whole

    def pack(self):
        import numpy as np
        rows, k, random = PACKED_ROWS, self.columns, np.random.default_rng(1)
        s = c.coda_pack_source(rows=rows, columns=k)
        if self.word in BLOCK:
            size, width, _ = BLOCK[self.word]
            codes = random.integers(0, 256, (rows * k // width, size), dtype=np.uint8)
            scale = random.uniform(0.01, 0.02, (len(codes), 1)).astype(np.float16)
            place = {"q4_k": 0, "q6_k": 208, "q8_0": 0}[self.word]
            codes[:, place:place + 2] = scale.view(np.uint8)
            if self.word == "q4_k":
                codes[:, 2:4] = np.full_like(scale, 0.02).view(np.uint8)
            self.codes, s.kind = codes, 7
        else:
            self.codes, s.kind = random.integers(0, 256, (rows, k // 2), dtype=np.uint8), 3
            scale = torch.from_numpy(random.uniform(0.003, 0.005, (rows, k // GROUP))).bfloat16()
            self.scales = scale
            s.scales, s.scales_bytes = scale.data_ptr(), 2 * scale.numel()
        s.codes, s.codes_bytes = self.codes.ctypes.data, self.codes.nbytes
        out = np.empty(c.coda_packed_bytes(ctypes.byref(self.format), rows, k), np.uint8)
        must(c.coda_pack(ctypes.byref(self.format), ctypes.byref(s), 0, rows, out.ctypes.data))
        self.first = out
        return out

    def values(self, rows):
        """The first rows in fp64."""
        w = torch.empty(rows, self.columns, dtype=torch.float32)
        for r in range(rows):
            must(c.coda_unpack(ctypes.byref(self.format), self.first.ctypes.data, PACKED_ROWS, self.columns, r, 0,
                               self.columns, ctypes.cast(w[r].data_ptr(), ctypes.POINTER(ctypes.c_float))))
        return w.double().cuda()

    def nibbles(self):
        """Codes [rows, K] of int4 as uint8, before 8 is taken off."""
        q = torch.from_numpy(self.codes).cuda()
        return torch.stack((q & 15, q >> 4), -1).flatten(1)


def copies(make, sets):
    first = make()
    return [first] + [first.clone() for _ in range(sets - 1)]


def sets_of(size):
    return max(2, math.ceil(L2_BYTES / size))


# ---- Sides: functions of a set, and their results ----

class Side:
    def __init__(self, run, out, sets):
        """out: a tensor, or a function that has the last run's."""
        self.out, self.sets, self.run = out, sets, run  # what it enqueues reads memory that the run holds
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for i in range(2):
                run(i)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        self.runs = sets if sets == 1 else max(sets, 12)
        with torch.cuda.graph(self.graph):
            for i in range(self.runs):
                run(i)
        self.graph.replay()
        torch.cuda.synchronize()

    def time(self):
        pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        pair[0].record()
        self.graph.replay()
        pair[1].record()
        return pair

    def result(self):
        return self.out() if callable(self.out) else self.out


def kept(fn):
    """A function of a set that returns its result, as one that keeps the last."""
    last = []

    def run(i):
        last[:] = [fn(i)]
    return run, lambda: last[0]


def plain_bf16(x, sets):
    w = copies(lambda: (torch.randn(N, K, device="cuda") / 64).bfloat16(), max(2, sets // 3))
    g = Graph()
    product = c.coda_matmul(g.g, g.leaf("x", x, False), g.leaf("w", w))
    out = g.output(product, (x.shape[0], N))
    sides = {"bf16": Side(Plan(g), out, len(w))}
    run, last = kept(lambda i: F.linear(x, w[i % len(w)]))
    sides["torch_bf16"] = Side(run, last, len(w))
    return sides


def ours(x, matrix):
    g = Graph()
    value = c.coda_matmul(g.g, g.leaf("x", x, False), g.packed("w", matrix, N))
    out = g.output(value, (x.shape[0], N))
    plan = Plan(g)
    return Side(plan, out, len(matrix.bytes)), plan


def torch_int4(x, matrix, sets):
    q = matrix.nibbles().repeat(-(-N // PACKED_ROWS), 1)[:N]
    both = (q[:, ::2] << 4 | q[:, 1::2]).contiguous()
    w = copies(lambda: torch.ops.aten._convert_weight_to_int4pack(both, 8), sets)
    s = matrix.scales.cuda().repeat(-(-N // PACKED_ROWS), 1)[:N].t()
    pairs = torch.stack((s, torch.zeros_like(s)), -1).contiguous()
    run, last = kept(lambda i: torch.ops.aten._weight_int4pack_mm(x, w[i % sets], GROUP, pairs))
    return Side(run, last, sets)


def marlin_order():
    """Where Marlin wants the codes of 16 x 64 of a weight [K, N]: a lane's eight of each tile, then the words'."""
    order = []
    for lane in range(32):
        one = [16 * (2 * (lane % 4) + r) + lane // 4 + 8 * b for b in (0, 1) for r in (0, 1, 8, 9)]
        for tile in range(4):
            order += [p + 256 * tile for p in one]
    return torch.tensor(order).view(-1, 8)[:, [0, 2, 4, 6, 1, 3, 5, 7]].flatten()


def marlin(x, matrix, sets, path):
    lib = ctypes.CDLL(path)
    q = matrix.nibbles().repeat(-(-N // PACKED_ROWS), 1)[:N].t().int()
    tiles = q.view(K // 16, 16, N // 16, 16).permute(0, 2, 1, 3).reshape(-1, 1024)
    tiles = tiles[:, marlin_order().cuda()].view(K // 16, -1, 8)
    words = torch.zeros_like(tiles[..., 0])
    for i in range(8):
        words |= tiles[..., i] << 4 * i
    w = copies(lambda: words.contiguous(), sets)
    s = matrix.scales.cuda().half().repeat(-(-N // PACKED_ROWS), 1)[:N].t().contiguous()
    order = [i + 8 * j for i in range(8) for j in range(8)]
    s = s.view(-1, 64)[:, order].reshape(K // GROUP, N).contiguous()
    locks = torch.zeros(N // 128 * 16, dtype=torch.int32, device="cuda")
    half, y = x.half(), torch.empty(x.shape[0], N, dtype=torch.half, device="cuda")
    at = lambda t: ctypes.c_void_p(t.data_ptr())

    def run(i):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if lib.marlin_product(at(half), at(w[i % sets]), at(y), at(s), x.shape[0], N, K, at(locks), GROUP, stream):
            raise RuntimeError("marlin_product refused")
    return Side(run, y, sets)


def llama(x, matrix, sets, path):
    lib, m = ctypes.CDLL(path), x.shape[0]
    word = BLOCK[matrix.word][2]
    rows = torch.from_numpy(matrix.codes).cuda().view(PACKED_ROWS, -1)
    w = copies(lambda: rows.repeat(-(-N // PACKED_ROWS), 1)[:N].contiguous(), sets)
    wide, y = x.float(), torch.empty(m, N, device="cuda")
    at = lambda t: ctypes.c_void_p(t.data_ptr())

    def run(i):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if lib.llama_product(word, at(w[i % sets]), at(wide), at(y), N, m, K, stream):
            raise RuntimeError("llama_product refused")
    return Side(run, y, sets)


# ---- Cases: (sides, what the first columns should be, its columns, plan) ----

def tell(what, words):
    print("@ %s %s" % (what, words), flush=True)


def attempt(sides, name, make, opt):
    """A peer's side, unless it is not wanted, or raises, which is said."""
    if name in opt.without:
        return
    tell("at", name)
    try:
        sides[name] = make()
    except Exception as e:  # whatever a peer raises, the others are measured
        print("%s cannot run: %s: %s" % (name, type(e).__name__, (str(e).splitlines() or [""])[0]), flush=True)
        alive()


def alive():
    """Ends the process where the context is broken: all that follows would fail."""
    try:
        torch.cuda.synchronize()
    except Exception as e:
        print("the context is broken: %s" % str(e).splitlines()[:1], flush=True)
        sys.exit(3)


def weights_case(word, m, opt):
    name = "int4_g128_bf16" if word == "int4" else word
    bits = {"int4": 4.125, "q4_k": 4.5, "q6_k": 6.5625, "q8_0": 8.5}[word]
    sets = sets_of(N * K * bits / 8)
    x, matrix = torch.randn(m, K, device="cuda").bfloat16(), Matrix(name, N, K, sets)
    tell("at", "coda")
    side, plan = ours(x, matrix)
    sides = {"coda": side}
    if word == "int4":
        tell("at", "bf16")
        sides.update(plain_bf16(x, sets))
        attempt(sides, "torch_int4", lambda: torch_int4(x, matrix, sets), opt)
        if opt.marlin:
            attempt(sides, "marlin", lambda: marlin(x, matrix, sets, opt.marlin), opt)
    elif opt.llama:
        attempt(sides, "llama", lambda: llama(x, matrix, sets, opt.llama), opt)
    want = x.double() @ matrix.values(256).t()
    return sides, want, plan


def rounded(shape, block):
    """f8e4m3 with a scale for each block [rows, columns] of a random matrix."""
    t, (r, k) = torch.randn(shape, device="cuda"), block
    view = t.view(shape[0] // r, r, shape[1] // k, k)
    s = view.abs().amax((1, 3), keepdim=True) / 448
    q = (view / s).to(F8)
    return q.view(shape), s[:, 0, :, 0].contiguous(), (q.double() * s.double()).view(shape)


def fp8_case(kind, m, opt):
    n, sets = 12288, sets_of(12288 * K)
    by = (1, K) if kind == "rows" else (1, 128)
    x, xs, xv = rounded((m, K), by)
    w0, ws, wv = rounded((n, K), (1, K) if kind == "rows" else (128, 128))
    w = copies(lambda: w0, sets)
    g = Graph()
    vx, vw = g.leaf("x", x, False), None
    if kind == "rows":
        s = g.leaf("s", xs, False)
        vw = g.leaf("w", w)
        value = c.coda_mul(g.g, c.coda_mul(g.g, c.coda_matmul(g.g, vx, vw), s), g.leaf("t", ws.view(-1)))
        peer = lambda i: torch._scaled_mm(x, w[i % sets].t(), scale_a=xs, scale_b=ws.t(), out_dtype=torch.bfloat16)
    else:
        s = g.leaf("s", xs, False)
        vw = g.leaf("w", w)
        value = c.coda_scaled_matmul(g.g, vx, s, vw, g.leaf("t", ws))
        outer = xs.t().contiguous().t()  # torch wants the rows' scales column by column
        peer = lambda i: torch._scaled_mm(x, w[i % sets].t(), scale_a=outer, scale_b=ws.t(), out_dtype=torch.bfloat16)
    out = g.output(value, (m, n))
    tell("at", "coda")
    plan = Plan(g)
    sides = {"coda": Side(plan, out, sets)}
    attempt(sides, "torch_scaled", lambda: Side(*kept(peer), sets), opt)
    return sides, xv @ wv[:256].t(), plan


READ = """
extern "C" __global__ void read_all(const uint4 *data, unsigned *out, int count)
{
    const long long step = (long long)gridDim.x * blockDim.x;
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned all = 0;
    for (; i + 3 * step < count; i += 4 * step) {
        const uint4 a = data[i], b = data[i + step], c = data[i + 2 * step], d = data[i + 3 * step];
        all ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
    }
    for (; i < count; i += step) all ^= data[i].x;
    if (all == 0x12345678) *out = all;
}
"""


def reader(size):
    """A side that reads so many bytes, by a kernel of NVRTC's: Triton wants a compiler on the host."""
    data = torch.empty(size // 16 * 4, dtype=torch.int32, device="cuda").random_()
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    kernel = torch.cuda._compile_kernel(READ, "read_all")
    blocks = 8 * torch.cuda.get_device_properties(0).multi_processor_count
    return Side(lambda i: kernel((blocks, 1, 1), (256, 1, 1), (data, out, data.numel() // 4)), None, 1)


def reader_by_sum(size):
    data = torch.empty(size // 4, dtype=torch.float32, device="cuda").fill_(1)
    return Side(*kept(lambda i: data.sum()), 1)


def chain_case(word, d, opt):
    """Products of layers, a row: each reads what the one ahead of it wrote."""
    f, layers = INNER[d], 32
    torch.cuda.empty_cache()
    x = torch.randn(1, d, device="cuda").bfloat16()
    g, held = Graph(), []
    v = g.leaf("x", x, False)

    def product(v, name, n, k):
        if word == "f8":
            held.append((torch.randn(2048, k, device="cuda") / 2).to(F8).repeat(-(-n // 2048), 1)[:n].contiguous())
            y = c.coda_matmul(g.g, v, g.leaf(name, held[-1]))
            return c.coda_mul(g.g, y, g.leaf(name + ".s", torch.full((n,), 2 / math.sqrt(k), device="cuda")))
        one = firsts.setdefault(k, Matrix("int4_g128_bf16", PACKED_ROWS, k))
        m = Matrix.__new__(Matrix)
        m.format, m.columns = one.format, k
        used = c.coda_packed_bytes(ctypes.byref(m.format), n, k)
        m.bytes = one.bytes.repeat(-(-n // PACKED_ROWS))[:used].clone()
        held.append(m.bytes)
        return c.coda_matmul(g.g, v, g.packed(name, m, n))

    firsts = {}
    for i in range(layers):
        scope = "l%d." % i
        wide = product(c.coda_rms_norm(g.g, v, c.coda_value(0), ctypes.c_float(1e-5)), scope + "qkv", 3 * d, d)
        part = c.coda_slice(g.g, wide, 1, 2 * d, 3 * d, 1)
        v = c.coda_add(g.g, product(part, scope + "o", d, d), v)
        up = product(c.coda_rms_norm(g.g, v, c.coda_value(0), ctypes.c_float(1e-5)), scope + "up", 2 * f, d)
        v = c.coda_add(g.g, product(c.coda_swiglu(g.g, up, 1), scope + "down", d, f), v)
    out = g.output(v, (1, d))
    tell("at", "coda")
    plan = Plan(g)
    sides, size = {"coda": Side(plan, out, 1)}, sum(t.numel() * t.element_size() for t in held)
    attempt(sides, "read", lambda: reader(size), opt)
    if "read" not in sides:
        attempt(sides, "read_by_sum", lambda: reader_by_sum(size), opt)
    return sides, None, plan


# ---- The program ----

def error_of(side, want):
    got = side.result()[:, :want.shape[1]].double()
    return float((got - want).norm() / want.norm())


def judge(sides, want):
    """Errors of all sides that have some; peers that compute something else are left out, with a word."""
    errors = {n: error_of(s, want) for n, s in sides.items() if "bf16" not in n} if want is not None else {}
    for n, e in errors.items():
        if n != "coda" and not e < 0.1:
            print("%s computes something else, error %.2g" % (n, e), flush=True)
            del sides[n]
    return errors


def measure(sides, quick):
    each = 0
    for n, s in sides.items():  # one by one, so that a side that fails only in replays is known
        tell("at", n)
        pairs = [s.time() for _ in range(3)]
        alive()
        each += pairs[-1][0].elapsed_time(pairs[-1][1])
    names, rounds = list(sides), []
    tell("at", "rounds")
    for r in range(int(min(MOST_ROUNDS, max(7, (150 if quick else 1000) / each)))):
        pairs = {n: sides[n].time() for n in (names[::-1] if r % 2 else names)}
        torch.cuda.synchronize()
        rounds.append({n: pairs[n][0].elapsed_time(pairs[n][1]) / sides[n].runs for n in names})
    return rounds


def row_of(name, sides, want, plan, quick):
    errors = judge(sides, want)
    rounds = measure(sides, quick)
    stats, peers = plan.stats(), [n for n in sides if n != "coda"]
    finite = bool(sides["coda"].result().isfinite().all())
    return {"case": "peers/" + name, "flops": stats.flops, "bytes": stats.bytes, "launches": stats.launches,
            "error": float("%.3g" % errors.get("coda", 0)),
            "errors": {n: float("%.3g" % e) for n, e in errors.items()},
            "good": errors.get("coda", 0) < 0.004 and finite, "rounds": len(rounds),
            "sides": {n: base.spread([x[n] for x in rounds]) for n in sides},
            "ratio": {n: round(statistics.median(x[n] / x["coda"] for x in rounds), 4) for n in peers}}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quick", action="store_true")
    p.add_argument("--marlin")
    p.add_argument("--llama")
    p.add_argument("--without", action="append", default=[])
    p.add_argument("case")
    opt = p.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch finds no GPU; nothing is measured")
    torch.manual_seed(7)
    kind, *rest = opt.case.split("/")
    if kind == "chain":
        sides, want, plan = chain_case(rest[0], int(rest[1]), opt)
    else:
        make = fp8_case if kind in ("rows", "blocks") else weights_case
        sides, want, plan = make(kind, int(rest[0]), opt)
    tell("row", json.dumps(row_of(opt.case, sides, want, plan, opt.quick)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

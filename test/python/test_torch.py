#!/usr/bin/env python3
"""test_torch.py -- libcoda as a torch.autograd.Function: forward and backward are the plans of coda_split.

Blocks give the results and gradients of the same formula in PyTorch in fp64: in fp32 on the CPU device, and on a GPU,
if there is one, in bf16, by a CUDA graph as well. Then a model of PyTorch's parts and of one such block, which stands
in it twice, is trained. Prints CODA_SEED, from which all is drawn.
"""
import os
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError as e:
    print("test_torch.py: skipped: %s" % e)
    sys.exit(0)

import formulas
from formulas import EPS, HEAD, IGNORED

TYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}


# ---- libcoda as a function of PyTorch ----

class Part:
    """A plan whose arguments are tensors by name; what it makes are new ones, which were full of NaN."""

    def __init__(self, graph, device):
        self.device, self.plan = device, graph.compile("gpu" if device == "cuda" else "cpu")
        self.arguments = self.plan.args
        self.reads = [a.name for a in self.arguments if a.kind != "output"]

    def __call__(self, tensors):
        dtypes = {v: k for k, v in TYPES.items()}
        made = {a.name: torch.full(a.dims, float("nan"), dtype=dtypes[a.dtype], device=self.device)
                for a in self.arguments if a.kind == "output"}
        self.plan({n: tensors[n] for n in self.reads}, out=made)
        return made


class Block:
    """y = block(x of each leaf in order), with gradients by all floats."""

    def __init__(self, case, dtype, device):
        self.names, self.floats = list(case.shapes), case.floats()
        self.forward, self.backward = (Part(p, device) for p in formulas.graph_of(case, TYPES[dtype]).split(1))

    def __call__(self, *x):
        return Function.apply(self, *x)


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, block, *x):
        leaves = {n: v.contiguous() for n, v in zip(block.names, x)}
        made = block.forward(leaves)
        ctx.block, ctx.kept = block, [n for n in made if n != "y"]
        ctx.keeps_y = "y" in block.backward.reads
        ctx.save_for_backward(*leaves.values(), *(made[n] for n in ctx.kept), *((made["y"],) if ctx.keeps_y else ()))
        return made["y"]

    @staticmethod
    def backward(ctx, dy):
        block = ctx.block
        names = block.names + ctx.kept + (["y"] if ctx.keeps_y else [])
        tensors = dict(zip(names, ctx.saved_tensors), dy=dy.contiguous())
        made = block.backward(tensors)
        return (None, *(made["d." + n].to(tensors[n].dtype) if n in block.floats and needed else None
                        for n, needed in zip(block.names, ctx.needs_input_grad[1:])))


# ---- The operations in PyTorch ----

class Torch(formulas.Arithmetic):
    def linear(self, x, w):
        return F.linear(x, w)

    def norm(self, x, gain):
        return F.rms_norm(x, gain.shape, gain, EPS)

    def layer_norm(self, x, gain, shift):
        return F.layer_norm(x, gain.shape, gain, shift, EPS)

    def gelu_tanh(self, x):
        return F.gelu(x, approximate="tanh")

    def gelu_erf(self, x):
        return F.gelu(x)

    def swiglu(self, x):
        gate, up = x.chunk(2, -1)
        return F.silu(gate) * up

    def geglu(self, x):
        gate, up = x.chunk(2, -1)
        return F.gelu(gate, approximate="tanh") * up

    def softmax(self, x):
        return x.softmax(-1)

    def tanh(self, x):
        return x.tanh()

    def columns(self, x, a, b):
        return x[..., a:b]

    def heads(self, x, n):
        return x.unflatten(-1, (n, -1))

    def together(self, x):
        return x.flatten(-2)

    def rope(self, x, heads):
        x = self.heads(x, heads)
        turns = 10000.0 ** (-torch.arange(0, HEAD, 2, dtype=torch.float64) / HEAD)
        angle = torch.outer(torch.arange(x.shape[1], dtype=torch.float64), turns)[:, None].to(x.device)
        a, b = x.chunk(2, -1)
        y = torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)
        return self.together(y.to(x.dtype))

    def attention(self, q, k, v, heads, kv_heads, causal=False, window=0, softcap=0.0):
        q, k, v = (self.heads(x, n).transpose(1, 2) for x, n in ((q, heads), (k, kv_heads), (v, kv_heads)))
        k, v = (x.repeat_interleave(heads // kv_heads, 1) for x in (k, v))
        if not softcap:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        else:
            s = softcap * torch.tanh(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 / softcap)
            past = torch.arange(s.shape[-1], device=s.device)
            past = past[:, None] - past
            y = s.masked_fill((past < 0) | (past >= (window or s.shape[-1])), float("-inf")).softmax(-1) @ v
        return self.together(y.transpose(1, 2))

    def table(self, w, ids):
        return F.embedding(ids, w)

    def loss(self, logits, target):
        return F.cross_entropy(logits.flatten(0, -2), target.flatten().long(), ignore_index=IGNORED)[None]


# ---- Tests ----

class Counted:
    checks = failures = 0

    def check(self, good, text):
        self.checks += 1
        if not good:
            self.failures += 1
            print("test_torch.py: %s" % text, flush=True)


def drawn(case, dtype, device):
    leaves = {}
    for name, shape in case.shapes.items():
        if name in case.integers:
            leaves[name] = torch.randint(case.integers[name], shape, dtype=torch.int32)
            if name == "target":
                leaves[name].view(-1)[::5] = IGNORED
        else:
            factor, shift = formulas.size_of(name, shape)
            leaves[name] = (torch.randn(shape) * factor + shift).to(dtype)
        leaves[name] = leaves[name].to(device)
    return leaves


def gradients(run, case, leaves, dy):
    x = {n: v if n in case.integers else v.detach().requires_grad_() for n, v in leaves.items()}
    y = run(x)
    return [y.detach(), *torch.autograd.grad(y, [x[n] for n in case.floats()], dy.to(y.dtype))]


def distance(got, want):
    return float((got.double() - want.double()).norm() / want.double().norm())


def blocks(count, dtype, device, bar):
    """`bar` None: 1.2 times as far from fp64 as PyTorch in the same dtype, or half a unit of bf16."""
    for case in formulas.CASES:
        leaves, block = drawn(case, dtype, device), Block(case, dtype, device)
        dy = torch.randn((1,) if case.name == "model" else leaves["x"].shape).to(dtype).to(device)
        exact = {n: v if n in case.integers else v.double() for n, v in leaves.items()}
        want = gradients(lambda t: case.formula(Torch(), t), case, exact, dy.double())
        plain = gradients(lambda t: case.formula(Torch(), t), case, leaves, dy)
        got = gradients(lambda t: block(*t.values()), case, leaves, dy)
        worst = 0
        for name, g, p, w in zip(["y"] + case.floats(), got, plain, want):
            off, most = distance(g, w), bar or max(1.2 * distance(p, w), 2.0 ** -8)
            worst = max(worst, off)
            count.check(off <= most, "%s on %s: %s is off by %.2e, more than %.2e" %
                        (case.name, device, name, off, most))
        print("%-8s on %s, %s: off by %.1e" % (case.name, device, str(dtype)[6:], worst), flush=True)


def chosen(count, device):
    """Gradients of some leaves alone: the others get none."""
    case = formulas.CASES[0]
    leaves, block = drawn(case, torch.float32, device), Block(case, torch.float32, device)
    leaves["down"].requires_grad_()
    block(*leaves.values()).sum().backward()
    others = [n for n, v in leaves.items() if v.grad is not None]
    count.check(others == ["down"], "gradients of %s, where that of down was wanted" % others)


class Model(torch.nn.Module):
    """A table, one block twice, a head."""

    def __init__(self, run, leaves):
        super().__init__()
        self.run = run
        self.block = torch.nn.ParameterList(v.clone() for n, v in leaves.items() if n != "x")
        self.table = torch.nn.Embedding(formulas.V, formulas.D)
        self.head = torch.nn.Linear(formulas.D, formulas.V)

    def forward(self, ids):
        x = self.table(ids)
        for _ in range(2):
            x = self.run(x, *self.block)
        return self.head(F.layer_norm(x, x.shape[-1:]))


def trained(count, device, steps=20):
    case = formulas.CASES[0]
    leaves, block = drawn(case, torch.float32, device), Block(case, torch.float32, device)
    names = list(case.shapes)
    ids = torch.randint(formulas.V, (2, formulas.T + 1), device=device)
    start, losses = None, []
    for run in (block, lambda *x: case.formula(Torch(), dict(zip(names, x)))):
        model = Model(run, leaves).to(device)
        start = start or {n: v.clone() for n, v in model.state_dict().items()}
        model.load_state_dict(start)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        curve = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            curve.append(float(loss.detach()))
        losses.append(curve)
    off = max(abs(a - b) / b for a, b in zip(*losses))
    count.check(off <= 1e-3 and losses[0][-1] < losses[0][0] - 1, "losses %s and %s" % tuple(losses))
    print("%d steps on %s: the loss goes from %.3f to %.3f, off by %.1e" % (steps, device, losses[0][0],
          losses[0][-1], off), flush=True)


def captured(count):
    """Forward and backward in a CUDA graph leave the bits that they leave outside."""
    case = formulas.CASES[0]
    leaves, block = drawn(case, torch.bfloat16, "cuda"), Block(case, torch.bfloat16, "cuda")
    dy = torch.randn(leaves["x"].shape, device="cuda").bfloat16()
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        want = gradients(lambda t: block(*t.values()), case, leaves, dy)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        got = gradients(lambda t: block(*t.values()), case, leaves, dy)
    graph.replay()
    torch.cuda.synchronize()
    count.check(all(torch.equal(a, b) for a, b in zip(got, want)), "a CUDA graph leaves other bits")


def main():
    seed = int(os.environ.get("CODA_SEED", 1))
    print("test_torch.py: torch %s, seed %d" % (torch.__version__, seed), flush=True)
    torch.manual_seed(seed)
    torch.backends.cuda.matmul.allow_tf32 = False
    count = Counted()
    blocks(count, torch.float32, "cpu", 1e-5)
    chosen(count, "cpu")
    trained(count, "cpu")
    if torch.cuda.is_available():
        blocks(count, torch.bfloat16, "cuda", None)
        chosen(count, "cuda")
        trained(count, "cuda")
        captured(count)
    else:
        print("test_torch.py: there is no GPU: the CPU device alone")
    print("test_torch.py: %d checks, %d failures" % (count.checks, count.failures))
    return count.failures > 0


if __name__ == "__main__":
    sys.exit(main())

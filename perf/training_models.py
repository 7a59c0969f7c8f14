"""training_models.py -- what training.py trains: a LLaMA with AdamW, in PyTorch and as graphs of libcoda.

Both hold fp32 weights, gradients and moments, and compute in bf16 from weights rounded once a step; matrices decay,
vectors do not; the gradient is clipped to a norm of 1. Embedding and head are one table.
"""
import ctypes
import math

import torch
import torch.nn.functional as F
from backward_cases import Joint, Plan
from pytorch import F32, c

BETAS, TINY, DECAY, EPS, BASE = (0.9, 0.95), 1e-8, 0.1, 1e-5, 10000.0
ROW = 1024          # columns of flat memory
ALIGNED = 64        # elements: where parameters begin in it
LOGITS = 1 << 27    # elements of a chunk of logits, at most


class Sizes:
    def __init__(self, layers, hidden, heads, kv_heads, inner, vocabulary, rows, tokens):
        self.layers, self.hidden, self.heads, self.kv_heads = layers, hidden, heads, kv_heads
        self.inner, self.vocabulary, self.rows, self.tokens = inner, vocabulary, rows, tokens
        self.head = hidden // heads

    def shapes(self):
        """Of each parameter: vectors in front."""
        d, kv = self.hidden, self.kv_heads * self.head
        layers = range(self.layers)
        vectors = {"norm%d.%d" % (i, n): (d,) for n in layers for i in (1, 2)}
        matrices = {"embed": (self.vocabulary, d)}
        for n in layers:
            matrices.update({"qkv.%d" % n: (d + 2 * kv, d), "out.%d" % n: (d, d),
                             "up.%d" % n: (2 * self.inner, d), "down.%d" % n: (d, self.inner)})
        return {**vectors, "norm": (d,)}, matrices

    def count(self):
        return sum(math.prod(s) for part in self.shapes() for s in part.values())

    def start(self, device, seed):
        """Values at first: as train's, sqrt(2 / (5 hidden)), of what is added to a state over sqrt(2 layers)."""
        generator = torch.Generator(device).manual_seed(seed)
        vectors, matrices = self.shapes()
        values = {n: torch.ones(s, device=device) for n, s in vectors.items()}
        for n, s in matrices.items():
            small = math.sqrt(0.4 / self.hidden) / (math.sqrt(2 * self.layers) if n[:3] in ("out", "dow") else 1)
            values[n] = torch.randn(s, device=device, generator=generator) * small
        return values


# ---- PyTorch ----

def norm(x, gain):
    f = x.float()
    return (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + EPS)).to(x.dtype) * gain


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Torch:
    """Weights are cast to `dtype` in the forward, once a step, so that their gradients come back in fp32."""

    def __init__(self, sizes, values, device, dtype=torch.bfloat16, compiled=False, capture=False):
        self.sizes, self.dtype = sizes, dtype
        self.p = {n: torch.nn.Parameter(v.clone()) for n, v in values.items()}
        turns = BASE ** (-torch.arange(0, sizes.head, 2, dtype=torch.float64) / sizes.head)
        angle = torch.outer(torch.arange(sizes.tokens, dtype=torch.float64), turns)
        self.cos, self.sin = angle.cos().float().to(device), angle.sin().float().to(device)
        self.rate = torch.tensor(1e-3, device=device)
        groups = [{"params": [p for p in self.p.values() if p.dim() == d], "weight_decay": w}
                  for d, w in ((1, 0.0), (2, DECAY))]
        self.optimizer = torch.optim.AdamW(groups, lr=self.rate, betas=BETAS, eps=TINY, fused=True,
                                           capturable=capture)
        self.forward = torch.compile(self.loss_of, dynamic=False, fullgraph=True) if compiled else self.loss_of

    def attention(self, x, w, n):
        s = self.sizes
        heads = [y.unflatten(-1, (-1, s.head)).transpose(1, 2) for y in
                 F.linear(x, w["qkv.%d" % n]).split((s.hidden, s.kv_heads * s.head, s.kv_heads * s.head), -1)]
        q, k = (turned(y, self.cos, self.sin) for y in heads[:2])
        y = F.scaled_dot_product_attention(q, k, heads[2], is_causal=True, enable_gqa=s.kv_heads < s.heads)
        return F.linear(y.transpose(1, 2).flatten(2), w["out.%d" % n])

    def loss_of(self, p, ids, target):
        w = {n: v.to(self.dtype) for n, v in p.items()}
        x = F.embedding(ids, w["embed"])
        for n in range(self.sizes.layers):
            x = x + self.attention(norm(x, w["norm1.%d" % n]), w, n)
            gate, up = F.linear(norm(x, w["norm2.%d" % n]), w["up.%d" % n]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, w["down.%d" % n])
        logits = F.linear(norm(x, w["norm"]), w["embed"])
        return F.cross_entropy(logits.float().flatten(0, 1), target.flatten())

    def step(self, ids, target):
        """A step; its loss stays on the device."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.forward(self.p, ids, target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.p.values(), 1.0, foreach=True)
        self.optimizer.step()
        return loss.detach()


# ---- libcoda ----

class Bound(Plan):
    """Whose outputs are tensors that are there."""

    def bind(self, i):
        a = c.coda_arg_info()
        self.must(self.lib.coda_plan_arg(self.p, i, ctypes.byref(a)))
        self.keep.append(self.case.tensors[a.name.decode()])


class Coda:
    """Its memory is flat: p, g, m and v of fp32, w of bf16, in which vectors stand in front. A step is one plan, which
    has gradients in its workspace, so that they take the place of what the forward has kept; or if it is `apart` two,
    and AdamW is a launch for all vectors and one for all matrices."""
    scalars = ()

    def __init__(self, lib, sizes, values, device, apart=False):
        self.lib, self.sizes, self.device, self.apart = lib, sizes, device, apart
        self.names, self.first, self.begin = sizes.shapes(), {}, []
        at = 0
        for part in self.names:
            self.begin.append(at)
            for name, shape in part.items():
                self.first[name] = at
                at += (math.prod(shape) + ALIGNED - 1) // ALIGNED * ALIGNED
            at = (at + ROW - 1) // ROW * ROW
        self.begin.append(at)
        self.flat = {n: torch.zeros(at, device=device) for n in ("pgmv" if apart else "pmv")}
        for name, v in values.items():
            self.part("p", name, v.shape).copy_(v)
        self.flat["w"] = self.flat["p"].bfloat16()
        self.tensors = {n: torch.zeros(1, device=device) for n in ("rate", "unbias_m", "unbias_v", "norm2", "loss")}
        for n in ("ids", "target"):
            self.tensors[n] = torch.zeros(sizes.rows, sizes.tokens, dtype=torch.int32, device=device)
        self.weights, self.states = (set(self.first), set()) if apart else (set(), set(self.first))
        views = {"": "w", "d.": "g"} if apart else {"": "w", "p.": "p", "m.": "m", "v.": "v"}
        for part in self.names:
            for name, shape in part.items():
                self.tensors.update((x + name, self.part(of, name, shape)) for x, of in views.items())
        if not apart:
            self.states.update(x + n for n in self.first for x in ("p.", "m.", "v."))
        self.plans = [Bound(lib, self, make()) for make in
                      ((self.learning, self.improving) if apart else (self.learning,))]

    def part(self, what, name, shape):
        return self.flat[what][self.first[name]:self.first[name] + math.prod(shape)].view(shape)

    # -- The plan of a loss and its gradients --

    def attention(self, g, x, n):
        s, kv = self.sizes, self.sizes.kv_heads * self.sizes.head
        qkv = g.matmul(g.norm(x, g.leaf("norm1.%d" % n)), g.leaf("qkv.%d" % n))
        q, k, v = (g.slice(qkv, 2, a, b, 1) for a, b in
                   ((0, s.hidden), (s.hidden, s.hidden + kv), (s.hidden + kv, s.hidden + 2 * kv)))
        turn = c.coda_rope_options(head_dim=s.head)
        q, k = (g.rope(y, c.coda_value(0), ctypes.byref(turn)) for y in (q, k))
        opt = c.coda_attention_options(heads=s.heads, kv_heads=s.kv_heads, causal=1)
        return g.matmul(g.attention(q, k, v, c.coda_value(0), ctypes.byref(opt)), g.leaf("out.%d" % n))

    def states_of(self, g, embed):
        x = g.embedding(embed, g.leaf("ids"))
        for n in range(self.sizes.layers):
            x = g.add(self.attention(g, x, n), x)
            z = g.matmul(g.norm(x, g.leaf("norm2.%d" % n)), g.leaf("up.%d" % n))
            x = g.add(g.matmul(g.swiglu_of(z), g.leaf("down.%d" % n)), x)
        return g.norm(x, g.leaf("norm"))

    def grad(self, g, y, dy, x):
        dx, opt = (c.coda_value * len(x))(), c.coda_grad_options(weights=F32)
        self.lib.coda_grad(g.g, (c.coda_value * 1)(y), (c.coda_value * 1)(dy), 1, (c.coda_value * len(x))(*x), len(x), dx,
                           ctypes.byref(opt))
        return list(dx)

    def learning(self):
        """Logits by chunks of rows, each with its gradient behind it, so that only one chunk's are there."""
        s, g = self.sizes, Leaves(self.lib, self)
        rows = s.rows * s.tokens
        chunk = min(rows, max(128, LOGITS // s.vocabulary // 128 * 128))
        embed = g.leaf("embed")
        states = self.states_of(g, embed)
        flat, target = g.shape(states, rows, s.hidden), g.shape(g.leaf("target"), rows)
        share, loss, d_head, parts = g.constants(1 / rows), None, None, []
        for a in range(0, rows, chunk):
            b = min(rows, a + chunk)
            x, view = g.slice(flat, 0, a, b, 1), g.shape(embed, s.vocabulary, s.hidden)
            one = g.loss(g.matmul(x, view), g.slice(target, 0, a, b, 1), 2)
            dx = self.grad(g, one, share, [x, view])
            parts.append(dx[0])
            loss, d_head = (g.add(loss, one), g.add(d_head, dx[1])) if loss else (one, dx[1])
        d = g.shape(g.concat(0, (c.coda_value * len(parts))(*parts), len(parts)), s.rows, s.tokens, s.hidden)
        names = list(self.first)
        gradients = dict(zip(names, self.grad(g, states, d, [g.leaf(n) for n in names])))
        gradients["embed"] = g.add(gradients["embed"], d_head)
        g.output(b"loss", g.scale(loss, 1 / rows))
        if self.apart:
            g.outputs(**{"d." + n: v for n, v in gradients.items()})
        else:
            how = self.clipped(g, list(gradients.values()))
            for name, grad in gradients.items():
                self.adamw(g, how, 0 if name in self.names[0] else DECAY, grad,
                           g.leaves("p." + name, "m." + name, "v." + name, name))
        return g.g

    # -- The optimiser --

    def clipped(self, g, gradients):
        """What a step of AdamW takes but for its operands."""
        norm2 = g.norm_squared((c.coda_value * len(gradients))(*gradients), len(gradients))
        g.output(b"norm2", norm2)
        how = dict(zip(("lr_value", "correction1", "correction2"), g.leaves("rate", "unbias_m", "unbias_v")))
        how["clip"] = g.minimum(g.constant(F32, 1), g.rsqrt(norm2))
        how["update"] = g.equal(g.sub(norm2, norm2), g.constant(F32, 0))
        return how

    def adamw(self, g, how, decay, grad, states):
        opt = c.coda_adamw_options(beta1=BETAS[0], beta2=BETAS[1], eps=TINY, weight_decay=decay, **how)
        self.lib.coda_adamw(g.g, grad, *states, ctypes.byref(opt))

    def improving(self):
        """Of all vectors, and of all matrices, at once."""
        g = Leaves(self.lib, self)
        self.tensors["grad"] = self.flat["g"].view(-1, ROW)
        how = self.clipped(g, [g.leaf("grad")])
        for part, decay in ((0, 0), (1, DECAY)):
            names = ["%s%d" % (n, part) for n in "gpmvw"]
            for name in names:
                self.tensors[name] = self.flat[name[0]][self.begin[part]:self.begin[part + 1]].view(-1, ROW)
            self.states.update(names[1:])
            leaves = g.leaves(*names)
            self.adamw(g, how, decay, leaves[0], leaves[1:])
        return g.g

    def numbers(self, rate, step):
        for name, x in (("rate", rate), ("unbias_m", 1 / (1 - BETAS[0] ** step)),
                        ("unbias_v", 1 / (1 - BETAS[1] ** step))):
            self.tensors[name].fill_(x)

    def step(self, ids, target):
        self.tensors["ids"].copy_(ids)
        self.tensors["target"].copy_(target)
        for plan in self.plans:
            plan()
        return self.tensors["loss"]

    def free(self):
        for plan in self.plans:
            plan.free()


class Leaves(Joint):
    """Each leaf once."""

    def __init__(self, lib, case):
        super().__init__(lib, case)
        self.made = {}

    def leaf(self, name):
        if name not in self.made:
            self.made[name] = super().leaf(name)
        return self.made[name]

    def shape(self, x, *dims):
        return self.reshape(x, len(dims), (ctypes.c_int64 * len(dims))(*dims))

    def constants(self, x):
        """f32 [1]."""
        return self.shape(self.constant(F32, x), 1)

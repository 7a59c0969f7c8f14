"""backward_cases.py -- what backward.py measures: each case as a graph of libcoda and as a formula of PyTorch."""
import ctypes
import math

import pytorch
from pytorch import BF16, F32, I32, c, swiglu
import torch
import torch.nn.functional as F
import peers

HEAD, EPS, CHUNK, SEQUENCES = 128, 1e-5, 4096, 2
BETAS, RATE, DECAY, TINY = (0.9, 0.95), 1e-3, 0.1, 1e-8
KEEP_MORE, STACKED, REDUCE_MEAN, REDUCE_SUM = 1, 1, 0, 2
OUTPUT = 2  # of coda_arg_kind
DTYPES = {F32: torch.float32, BF16: torch.bfloat16, I32: torch.int32}
IDS = {t: i for i, t in DTYPES.items()}


# ---- libcoda by its package ----

class Refused(Exception):
    pass


class Joint:
    """A graph under construction: joint.mul(a, b) is coda_mul. Its leaves are the case's tensors by name."""

    def __init__(self, lib, case):
        self.lib, self.case = lib, case
        self.g = lib.coda_graph_new()

    def __getattr__(self, name):
        call = getattr(self.lib, "coda_" + name)
        return lambda *args: call(self.g, *args)

    def leaf(self, name):
        t = self.case.tensors[name]
        if name in self.case.scalars:
            return self.scalar(name.encode(), IDS[t.dtype])
        make = self.weight if name in self.case.weights else self.state if name in self.case.states else self.input
        return make(name.encode(), IDS[t.dtype], t.dim(), (ctypes.c_int64 * t.dim())(*t.shape))

    def leaves(self, *names):
        return [self.leaf(n) for n in names]

    def outputs(self, **values):
        for name, v in values.items():
            self.output(name.encode(), v)

    def swiglu_of(self, z):
        return self.swiglu(z, STACKED)

    def norm(self, x, gain):
        return self.rms_norm(x, gain, EPS)

    def turned(self, qkv):
        opt = c.coda_rope_options(head_dim=HEAD, heads=2 * self.case.d // HEAD)
        return self.rope(qkv, c.coda_value(0), ctypes.byref(opt))

    def loss(self, logits, target, reduction):
        return self.cross_entropy(logits, target, ctypes.byref(c.coda_cross_entropy_options(reduction=reduction)))

    def gradients(self, y, dy, x, weights=BF16):
        dx = (c.coda_value * len(x))()
        given = (c.coda_value * len(dy))(*dy) if dy else None
        opt = c.coda_grad_options(weights=weights)
        self.lib.coda_grad(self.g, (c.coda_value * len(y))(*y), given, len(y), (c.coda_value * len(x))(*x), len(x), dx,
                           ctypes.byref(opt))
        return list(dx)

    def split(self, outputs):
        part = [c.coda_graph(), c.coda_graph()]
        opt = c.coda_split_options(keep=KEEP_MORE)
        status = self.lib.coda_split(self.g, outputs, ctypes.byref(opt), *map(ctypes.byref, part))
        self.lib.coda_graph_free(self.g)
        refuse(self.lib, status)
        return part


def refuse(lib, status):
    if status:
        raise Refused(lib.coda_error().decode())


class Plan(pytorch.Plan):
    """A compiled graph whose arguments are the case's tensors by name; it makes those of its outputs."""

    def __init__(self, lib, case, g):
        self.lib, self.case, self.p = lib, case, c.coda_plan()
        opt = c.coda_compile_options(device=0 if case.device == "cuda" else 1)
        status = lib.coda_compile(ctypes.byref(self.p), g, ctypes.byref(opt))
        lib.coda_graph_free(g)
        refuse(lib, status)
        self.outputs, self.keep = {}, []
        for i in range(lib.coda_plan_args(self.p)):
            self.bind(i)
        self.work = self.scratch(lib.coda_plan_workspace(self.p))
        self.prepared = self.scratch(lib.coda_plan_prepared(self.p))
        self.args = (ctypes.c_void_p * len(self.keep))(*[t.data_ptr() for t in self.keep])
        self.enqueue(lib.coda_prepare)

    def bind(self, i):
        a = c.coda_arg_info()
        self.must(self.lib.coda_plan_arg(self.p, i, ctypes.byref(a)))
        name = a.name.decode()
        if a.kind == OUTPUT:
            shape = tuple(a.dims[:a.rank])
            self.outputs[name] = torch.full(shape, math.nan, dtype=DTYPES[a.dtype], device=self.case.device)
        self.keep.append(self.outputs[name] if a.kind == OUTPUT else self.case.tensors[name])


# ---- Cases ----

class Case:
    states, scalars, weights = (), (), ()
    before = ()  # plans that made tensors of it
    autograd = True  # torch's side is the backward of formula(); otherwise formula() itself

    def __init__(self, name, m, d, f, device):
        self.m, self.d, self.f, self.device = m, d, f, device
        self.name = "torch_backward/%s" % name
        self.tensors = {}

    def rows(self, **columns):
        for name, n in columns.items():
            self.tensors[name] = torch.randn(self.m, n, device=self.device).bfloat16()

    def matrices(self, **shapes):
        for name, (n, k) in shapes.items():
            self.tensors[name] = (torch.randn(n, k, device=self.device) / math.sqrt(k)).bfloat16()

    def gains(self, n, *names):
        for name in names:
            self.tensors[name] = (1 + 0.1 * torch.randn(n, device=self.device)).bfloat16()

    def plans(self, lib):
        g = Joint(lib, self)
        self.graph(g)
        return {"coda": Plan(lib, self, g.g)}


def norm_of(x, gain):
    f = x.float()
    return (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + EPS)).to(x.dtype) * gain


class Layer(Case):
    weights = ("w0", "w1", "w2", "w3", "gain0", "gain1")
    x, dy = ("x0", "y0") + weights, ("dx2", "dqkv")
    joint = False

    def fill(self):
        d, f = self.d, self.f
        self.rows(x0=d, y0=d, dx2=d, dqkv=3 * d)
        self.matrices(w0=(d, d), w1=(2 * f, d), w2=(d, f), w3=(3 * d, d))
        self.gains(d, "gain0", "gain1")
        turns = 10000.0 ** (-torch.arange(0, HEAD, 2, dtype=torch.float64) / HEAD)
        angle = torch.outer(torch.arange(self.m, dtype=torch.float64), turns)
        self.tensors["cos"], self.tensors["sin"] = (v.float()[:, None].to(self.device)
                                                    for v in (angle.cos(), angle.sin()))

    def formula(self, t):
        x1 = F.linear(t["y0"], t["w0"]) + t["x0"]
        x2 = F.linear(swiglu(F.linear(norm_of(x1, t["gain0"]), t["w1"])), t["w2"]) + x1
        qkv = F.linear(norm_of(x2, t["gain1"]), t["w3"])
        return x2, torch.cat((pytorch.rope(qkv, t["cos"], t["sin"]), qkv[:, 2 * self.d:]), 1)

    def plans(self, lib):
        g = Joint(lib, self)
        x = g.leaves(*self.x)
        x1 = g.add(g.matmul(x[1], x[2]), x[0])
        x2 = g.add(g.matmul(g.swiglu_of(g.matmul(g.norm(x1, x[6]), x[3])), x[4]), x1)
        qkv = g.turned(g.matmul(g.norm(x2, x[7]), x[5]))
        g.outputs(x2=x2, qkv=qkv)
        dx = g.gradients([x2, qkv], g.leaves(*self.dy), x)
        g.outputs(**{"d" + n: v for n, v in zip(self.x, dx)})
        if self.joint:
            return {"coda": Plan(lib, self, g.g)}
        forward, backward = g.split(2)
        self.before = (Plan(lib, self, forward),)
        self.tensors.update(self.before[0]())
        return {"coda": Plan(lib, self, backward)}


class Both(Layer):
    joint = True


class SwiGLU(Case):
    weights, x, dy = ("w",), ("z", "w"), ("dy",)

    def fill(self):
        self.rows(z=2 * self.f, dy=self.d)
        self.matrices(w=(self.d, self.f))

    def formula(self, t):
        return F.linear(swiglu(t["z"]), t["w"]),

    def graph(self, g):
        x = g.leaves(*self.x)
        dx = g.gradients([g.matmul(g.swiglu_of(x[0]), x[1])], g.leaves(*self.dy), x)
        g.outputs(dz=dx[0], dw=dx[1])


class Norm(Case):
    weights, x, dy = ("w", "gain"), ("x", "w", "gain"), ("dy",)

    def fill(self):
        self.rows(x=self.d, dy=3 * self.d)
        self.matrices(w=(3 * self.d, self.d))
        self.gains(self.d, "gain")

    def formula(self, t):
        return F.linear(norm_of(t["x"], t["gain"]), t["w"]),

    def graph(self, g):
        x = g.leaves(*self.x)
        dx = g.gradients([g.matmul(g.norm(x[0], x[2]), x[1])], g.leaves(*self.dy), x)
        g.outputs(dx=dx[0], dw=dx[1], dgain=dx[2])


class PaperNorm(Case):
    autograd = False
    weights = ("w", "gain")

    def fill(self):
        self.m = d = self.d
        self.rows(dz=d, x=d, g=d)
        self.matrices(w=(d, d))
        self.gains(d, "gain")
        for name in ("r", "zdz"):
            self.tensors[name] = 0.75 + 0.25 * torch.randn(d, 1, device=self.device).abs()

    def formula(self, t):
        acc = (t["dz"] @ t["w"]).float()
        xhat = t["x"] * t["r"]
        dx = t["g"] + (acc * t["gain"] - xhat * t["zdz"]) * t["r"]
        return dx.bfloat16(), (acc * xhat).sum(0)

    def graph(self, g):
        dz, w, r, zdz, x, gain, base = g.leaves("dz", "w", "r", "zdz", "x", "gain", "g")
        acc, xhat = g.matmul_kn(dz, w), g.mul(x, r)
        t = g.sub(g.mul(acc, gain), g.mul(xhat, zdz))
        g.outputs(dx=g.add(base, g.mul(t, r)), dgain=g.reduce_columns(b"sum", g.mul(acc, xhat)))


class PaperSwiGLU(Case):
    autograd = False
    weights = ("w",)

    def fill(self):
        self.m = d = self.d
        self.rows(dy=d, z=2 * d)
        self.matrices(w=(d, d))

    def formula(self, t):
        dy, gate, up = (v.float() for v in (t["dy"] @ t["w"], t["z"][:, 0::2], t["z"][:, 1::2]))
        s = torch.sigmoid(gate)
        a = gate * s
        dg, du = dy * up * (s + a * (1 - s)), dy * a
        dots = (gate * dg + up * du).sum(1, keepdim=True)
        return (a * up).bfloat16(), dots, torch.stack((dg, du), -1).bfloat16().flatten(1)

    def graph(self, g):
        dy, w, z = g.leaves("dy", "w", "z")
        dy, one = g.matmul_kn(dy, w), g.constant(BF16, 1)
        gate, up = (g.slice(z, 1, i, 2 * self.d, 2) for i in (0, 1))
        s = g.sigmoid(gate)
        a = g.mul(gate, s)
        dg = g.mul(g.mul(dy, up), g.add(s, g.mul(a, g.sub(one, s))))
        du = g.mul(dy, a)
        dots = g.row_sum(g.add(g.mul(gate, dg), g.mul(up, du)))
        g.outputs(y=g.mul(a, up), dots=dots, dz=g.interleave(1, (c.coda_value * 2)(dg, du), 2))


def loss_of_logits(logits, target, m):
    """A chunk's loss and the gradient of its logits."""
    f = logits.float()
    lse = torch.logsumexp(f, -1, keepdim=True)
    at = target[:, None]
    one = torch.arange(f.shape[1], device=f.device) == at
    return (lse - f.gather(1, at)).sum() / m, ((torch.exp(f - lse) - one.float()) / m).to(logits.dtype)


class Loss(Case):
    """Its f is the vocabulary."""
    autograd = False
    weights = ("w",)

    def fill(self):
        self.chunk = min(CHUNK, self.m // 4)
        self.rows(x=self.d)
        self.matrices(w=(self.f, self.d))
        self.tensors["target"] = torch.randint(self.f, (self.m,), dtype=torch.int32, device=self.device)
        self.ids = self.tensors["target"].long()
        self.one_chunk = loss_of_logits

    def formula(self, t):
        x, w, loss, dx = t["x"], t["w"], 0, torch.empty_like(t["x"])
        dw = torch.zeros_like(w)
        for i in range(0, self.m, self.chunk):
            some = slice(i, i + self.chunk)
            part, dz = self.one_chunk(x[some] @ w.T, self.ids[some], self.m)
            loss = loss + part
            torch.mm(dz, w, out=dx[some])
            dw.addmm_(dz.T, x[some])
        return loss, dx, dw

    def compiled(self):
        one = torch.compile(loss_of_logits, dynamic=False, fullgraph=True)

        def run():
            self.one_chunk = one
            return self.formula(self.tensors)
        return run

    def graph(self, g, by_chunks=False):
        x, w, target = g.leaves("x", "w", "target")
        if by_chunks:
            loss = None
            for i in range(0, self.m, self.chunk):
                part = [g.slice(v, 0, i, i + self.chunk, 1) for v in (x, target)]
                one = g.loss(g.matmul(part[0], w), part[1], REDUCE_SUM)
                loss = g.add(loss, one) if loss else one
            loss = g.scale(loss, 1 / self.m)
        else:
            loss = g.loss(g.matmul(x, w), target, REDUCE_MEAN)
        dx = g.gradients([loss], None, [x, w], F32 if by_chunks else BF16)
        g.outputs(loss=loss, dx=dx[0], dw=dx[1])

    def plans(self, lib):
        g = Joint(lib, self)
        self.graph(g, True)
        return {**super().plans(lib), "chunks": Plan(lib, self, g.g)}

    def others(self):
        if peers.has("liger_kernel"):
            yield "liger", self.liger

    def liger(self):
        from liger_kernel.transformers import functional
        x, w = (self.tensors[n].detach().requires_grad_() for n in ("x", "w"))

        def run():
            loss = functional.liger_fused_linear_cross_entropy(x, w, self.ids)
            return (loss.detach(), *torch.autograd.grad(loss, (x, w)))
        return run


class AdamW(Case):
    """m rows of d parameters."""
    autograd = False
    states, scalars = ("master", "m", "v", "w"), ("lr", "c1", "c2", "wd")

    def fill(self):
        size = (self.m, self.d)
        for name in ("master", "m", "grad"):
            self.tensors[name] = torch.randn(size, device=self.device)
        self.tensors["v"] = torch.rand(size, device=self.device) + 0.1
        self.tensors["w"] = self.tensors["master"].bfloat16()
        for name, v in zip(self.scalars, (RATE, 1 / (1 - BETAS[0]), 1 / (1 - BETAS[1]), DECAY)):
            self.tensors[name] = torch.tensor([v])  # of the host

    def graph(self, g):
        master, m, v, w, grad, lr, c1, c2, wd = g.leaves("master", "m", "v", "w", "grad", *self.scalars)
        m2 = g.add(g.scale(m, BETAS[0]), g.scale(grad, 1 - BETAS[0]))
        v2 = g.add(g.scale(v, BETAS[1]), g.scale(g.mul(grad, grad), 1 - BETAS[1]))
        step = g.div(g.mul(m2, c1), g.add(g.sqrt(g.mul(v2, c2)), g.constant(F32, TINY)))
        following = g.sub(master, g.mul(g.add(step, g.mul(master, wd)), lr))
        for state, value in ((m, m2), (v, v2), (master, following), (w, g.cast(following, BF16))):
            g.assign(state, value)

    def compiled(self):
        """The fused optimiser on its own copy of the states; a step of 1 corrects as c1 and c2 do."""
        t = {n: v.clone() for n, v in self.tensors.items() if v.dim() == 2}
        capture = self.device == "cuda"
        p = torch.nn.Parameter(t["master"])
        opt = torch.optim.AdamW([p], lr=RATE, betas=BETAS, eps=TINY, weight_decay=DECAY, fused=True,
                                capturable=capture)
        p.grad = t["grad"]
        opt.state[p] = {"step": torch.zeros((), device=self.device), "exp_avg": t["m"], "exp_avg_sq": t["v"]}

        def run():
            opt.step()
            t["w"].copy_(p.detach())
            return ()
        return run

    def formula(self, t):
        return ()


class AttentionCase(Case):
    """Its f is the tokens of a sequence."""
    x, dy = ("q", "k", "v"), ("do",)

    def fill(self):
        size = (self.m // self.f, self.f, self.d)
        for name in ("q", "k", "v", "do"):
            self.tensors[name] = torch.randn(size, device=self.device).bfloat16()

    def formula(self, t):
        q, k, v = (t[n].unflatten(-1, (-1, HEAD)).transpose(1, 2) for n in self.x)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2),

    def plans(self, lib):
        g = Joint(lib, self)
        x = g.leaves(*self.x)
        opt = c.coda_attention_options(heads=self.d // HEAD, causal=1)
        y = g.attention(*x, c.coda_value(0), ctypes.byref(opt))
        g.outputs(y=y)
        g.outputs(**dict(zip(("dq", "dk", "dv"), g.gradients([y], g.leaves("do"), x))))
        forward, backward = g.split(1)
        self.before = (Plan(lib, self, forward),)
        self.tensors.update(self.before[0]())
        return {"coda": Plan(lib, self, backward)}

    def others(self):
        from torch.nn.attention import SDPBackend
        if self.device == "cuda":
            yield "cudnn", lambda: self.by(SDPBackend.CUDNN_ATTENTION)
            yield "flash", lambda: self.by(SDPBackend.FLASH_ATTENTION)

    def by(self, backend):
        from torch.nn.attention import sdpa_kernel
        with sdpa_kernel(backend):
            return backward_of(self, self.formula)


# ---- Backward by autograd ----

def leaves_of(case):
    t = {n: v.detach() for n, v in case.tensors.items()}
    for name in case.x:
        t[name].requires_grad_()
    return t


def backward_of(case, formula):
    """The backward alone, of a forward that has run; or both, where the case wants it."""
    t = leaves_of(case)
    x, dy = [t[n] for n in case.x], [t[n] for n in case.dy]
    if getattr(case, "joint", False):
        def both():
            y = formula(t)
            return [v.detach() for v in y] + list(torch.autograd.grad(y, x, dy))
        return both
    y = formula(t)
    return lambda: torch.autograd.grad(y, x, dy, retain_graph=True)

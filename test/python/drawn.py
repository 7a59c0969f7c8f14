"""drawn.py -- random modules of PyTorch, as people write them: norms, linears, gates, attention, reshapes, residuals, in
the spellings that there are. A seed is a module, of a dtype, with its inputs. What is discontinuous, as comparisons are, is first
in them, and reads the input alone: so a module in fp64 says what is right. test_drawn.py compiles them."""
import math
import random

import torch

nn, F = torch.nn, torch.nn.functional
# Functions of (rng, width, is it the first), each of which draws a module of [B, T, width] -> [B, T, width of its own].
PARTS, FIRST = [], []


def part(weight=1, first=False):
    def put(f):
        FIRST.extend([f] * weight)
        PARTS.extend([f] * (0 if first else weight))
        return f
    return put


def wide(x):
    """fp32 of 16 bits, as models write norms; fp64 stays what it is."""
    return x if x.dtype == torch.float64 else x.to(torch.float32)


class Of(nn.Module):
    """A function of x and of the module itself, whose parameters and buffers are given by name."""

    def __init__(self, what, call, width, **parts):
        super().__init__()
        self.what, self.call, self.width = what, call, width
        for name, p in parts.items():
            if isinstance(p, torch.Tensor) and not isinstance(p, nn.Parameter):
                self.register_buffer(name, p)
            else:
                setattr(self, name, p)

    def forward(self, x):
        return self.call(self, x)

    def extra_repr(self):
        return self.what


def weight(*shape):
    return nn.Parameter(torch.randn(shape) / math.sqrt(shape[-1]))


def gain(n):
    return nn.Parameter(1 + 0.3 * torch.randn(n))


def linear(rng, k, n):
    return nn.Linear(k, n, bias=rng.random() < 0.5)


# ---- Norms ----

@part(3)
def norm(rng, d, first):
    kind = rng.randrange(10)
    eps = rng.choice((1e-5, 1e-6, 1e-3))
    if kind == 0:
        return Of("layer_norm", lambda s, x: s.n(x), d, n=nn.LayerNorm(d, eps, rng.random() < 0.7, rng.random() < 0.7))
    if kind == 1:
        return Of("rms_norm", lambda s, x: s.n(x), d, n=nn.RMSNorm(d, rng.choice((None, eps)), rng.random() < 0.7))

    def llama(s, x):
        y = wide(x)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
        return s.g * y.to(x.dtype)

    def gemma(s, x):
        y = wide(x)
        y = y / (y * y).mean(dim=-1, keepdim=True).add(eps).sqrt()
        return (y * (1.0 + wide(s.g))).to(x.dtype)

    def spelt(s, x):
        u = x.mean(-1, keepdim=True)
        v = (x - u).square().mean(-1, keepdim=True)
        return s.g * ((x - u) / torch.sqrt(v + eps)) + s.b

    def by_var(s, x):
        return (x - x.mean(-1, True)) * (x.var(-1, unbiased=False, keepdim=True) + eps).rsqrt()

    def by_std(s, x):
        return (x - x.mean(-1, True)) / (x.var(-1, keepdim=True, correction=1).sqrt() + 0.1)

    def unit(s, x):
        return F.normalize(x, dim=-1) * math.sqrt(d)

    def heads(s, x):
        y = x.view(*x.shape[:-1], -1, d // 4)
        return F.rms_norm(y, (d // 4,), s.h, 1e-5).flatten(-2)

    def of_time(s, x):
        return x - x.mean(1, keepdim=True) + F.layer_norm(x, (d,), None, s.b, 1e-5)
    f = rng.choice((llama, gemma, spelt, by_var, by_std, unit, heads, of_time))
    return Of("norm: " + f.__name__, f, d, g=gain(d), b=weight(d), h=gain(d // 4))


# ---- Products ----

@part(3)
def product(rng, d, first):
    n = rng.choice((16, 24, 32, 48, 64))
    other = rng.choice((8, 16))

    def plain(s, x):
        return s.a(x)

    def kn(s, x):
        return x @ s.w

    def low_rank(s, x):
        return s.a(x) + s.up(s.down(x)) * 0.5

    def tied(s, x):
        return F.linear(F.linear(x, s.square), s.square)

    def flat(s, x):
        b, t, _ = x.shape
        return torch.addmm(s.c, x.reshape(b * t, -1), s.w).view(b, t, -1)

    def baked(s, x):
        return F.linear(x, s.w.t() * 1.5, s.c)

    def summed(s, x):
        return torch.matmul(x, s.w) + s.a(x).sum(1, keepdim=True) / x.shape[1] + s.c

    def grouped(s, x):
        b, t, _ = x.shape
        y = x.view(b, t, 4, d // 4).permute(2, 0, 1, 3).reshape(4, b * t, d // 4)
        return torch.bmm(y, s.each).view(4, b, t, other).permute(1, 2, 0, 3).reshape(b, t, 4 * other)

    def einsum(s, x):
        return torch.einsum("btk,kn->btn", x, s.w)

    def similar(s, x):
        return (x @ x.transpose(1, 2) / d) @ s.a(x)

    def joined(s, x):
        return torch.cat((s.a(x), s.down(x)), -1)

    def two_dtypes(s, x):
        return F.linear(wide(x), wide(s.w.t())).to(x.dtype)
    f = rng.choice((plain, plain, plain, kn, low_rank, tied, flat, baked, summed, grouped, einsum, similar, joined, two_dtypes))
    out = {"tied": d, "grouped": 4 * other, "joined": n + other}.get(f.__name__, n)
    return Of("product: %s" % f.__name__, f, out, a=linear(rng, d, n), w=weight(d, n), c=weight(n), square=weight(d, d),
              down=linear(rng, d, other), up=linear(rng, other, n), each=weight(4, d // 4, other))


# ---- Elementwise ----

ACTS = {
    "silu": F.silu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "relu": torch.relu,
    "sigmoid": torch.sigmoid, "tanh": torch.tanh, "softplus": F.softplus, "squared": lambda x: F.relu(x).square(),
    "quick": lambda x: x * torch.sigmoid(1.702 * x), "new": lambda x: 0.5 * x * (
        1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0)))),
    "clamped": lambda x: x.clamp(-0.7, 1.3), "floor": lambda x: x.clamp(min=-0.5), "softsign": lambda x: x / (1 + x.abs()),
    "capped": lambda x: 3.0 * torch.tanh(x / 3.0), "leaky": lambda x: F.leaky_relu(x, 0.1), "elu": F.elu, "mish": F.mish,
    "hard": F.hardswish, "log": lambda x: torch.log1p(x.abs()), "swish": lambda x: x / (1 + torch.exp(-x)),
    "where": lambda x: torch.where(x > 0, x, 0.1 * x), "masked": lambda x: x.masked_fill(x < 0, 0.0),
    "rational": lambda x: (x ** 2 - 0.3) / (x ** 2 + 1), "root": lambda x: (x * x + 0.1) ** 0.5,
    "rroot": lambda x: x * (x.pow(2) + 0.5) ** -0.5, "one_minus": lambda x: 1 - x.neg().exp().reciprocal() * 0.05,
    "beta": lambda x: F.softplus(x, 2.0), "alpha": lambda x: torch.add(x, x.abs(), alpha=-0.3), "rsub": lambda x: 1.5 - x,
    "rdiv": lambda x: 0.7 / (1.1 + x.abs()), "max": lambda x: torch.maximum(x, -0.2 * x), "min": lambda x: torch.min(x, x * x),
    "fourth": lambda x: x.clamp(-1.5, 1.5) ** 4, "erf": torch.erf, "cos": torch.cos}


@part(2)
def act(rng, d, first):
    name = rng.choice(sorted(ACTS))
    return Of("act: " + name, lambda s, x: ACTS[name](x), d)


@part(3)
def gate(rng, d, first):
    name, n = rng.choice(("silu", "gelu", "gelu_tanh", "sigmoid", "relu", "tanh", "squared")), rng.choice((32, 48, 64))
    f = ACTS[name]

    def apart(s, x):
        return s.down(f(s.a(x)) * s.b(x))

    def chunked(s, x):
        g, u = s.both(x).chunk(2, dim=-1)
        return s.down(f(g) * u)

    def halves(s, x):
        y = s.both(x)
        return s.down(y[..., n:] * f(y[..., :n]))

    def woven(s, x):
        y = s.both(x)
        return s.down((y[..., 1::2] + 1) * f(y[..., ::2]))

    def glu(s, x):
        return s.down(F.glu(s.both(x), dim=-1))

    def rows(s, x):
        return x * torch.sigmoid(s.one(x))

    def of_pairs(s, x):
        y = s.both(x).unflatten(-1, (2, n))
        return s.down(y[..., 0, :] * f(y[..., 1, :]))

    def in_place(s, x):
        y = s.a(x)
        y = f(y) * 0.5  # of which autograd keeps nothing
        y *= s.b(x)
        return s.down(y)
    g = rng.choice((apart, apart, chunked, halves, woven, glu, rows, of_pairs, in_place))
    return Of("gate: %s, %s" % (g.__name__, name), g, d, a=linear(rng, d, n), b=linear(rng, d, n),
              both=linear(rng, d, 2 * n), down=linear(rng, n, d), one=linear(rng, d, 1))


@part(2)
def expression(rng, d, first):
    """A tree of operations on x, its products, rows of parameters, statistics and numbers."""
    leaves = ("x", "x", "a", "g", "mean", "scalar", "column", "time")
    ops = ("add", "sub", "mul", "mul", "div", "max", "act", "lerp") + ("where",) * first

    def draw(depth):
        if depth == 0 or rng.random() < 0.15:
            return (rng.choice(leaves), round(rng.uniform(-2, 2), 2))
        op = rng.choice(ops)
        if op == "act":
            return (op, rng.choice(("silu", "tanh", "sigmoid", "gelu", "softsign", "relu")), draw(depth - 1))
        return (op, draw(depth - 1), draw(depth - 1))
    tree = draw(rng.randrange(2, 5))

    def value(s, x, t):
        if t[0] == "x":
            return x
        if t[0] == "a":
            return s.a(x)
        if t[0] == "g":
            return s.g
        if t[0] == "mean":
            return x.mean(-1, keepdim=True)
        if t[0] == "scalar":
            return torch.tensor(t[1], dtype=x.dtype) if t[1] > 1 else t[1]
        if t[0] == "column":
            return x[..., :1] * 0.5
        if t[0] == "time":
            return x.mean(1, keepdim=True)
        if t[0] == "act":
            v = value(s, x, t[2])
            return ACTS[t[1]](v) if torch.is_tensor(v) else math.tanh(v)
        a, b = value(s, x, t[1]), value(s, x, t[2])
        if t[0] == "add":
            return a + b
        if t[0] == "sub":
            return a - b
        if t[0] == "mul":
            return a * b
        if t[0] == "div":
            return a / (abs(b) + 0.7)
        if t[0] == "max":
            return torch.maximum(a, b) if torch.is_tensor(a) and torch.is_tensor(b) else a + b
        if t[0] == "where":
            return torch.where(x > t[1][1] if isinstance(t[1][1], float) else x > 0, a, b)
        return a + 0.3 * (b - a)

    def call(s, x):
        return torch.tanh(x + value(s, x, tree))
    return Of("expression: %s" % (tree,), call, d, a=linear(rng, d, d), g=gain(d))


# ---- Attention ----

def rotated(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def rotated_pairs(x, cos, sin):
    a, b = x[..., ::2], x[..., 1::2]
    c, s = cos[..., :a.shape[-1]], sin[..., :a.shape[-1]]
    return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)


MASKS = ("none", "causal", "tril", "float", "window", "padding", "bias", "alibi")


def masked(kind, s, x):
    """(attn_mask, is_causal)"""
    t = x.shape[1]
    if kind in ("none", "causal"):
        return None, kind == "causal"
    if kind == "padding":  # from the input: a key that is there in all sequences is the first
        seen = x[..., 0] > -0.8
        return (seen | (torch.arange(t) == 0))[:, None, None, :], False
    if kind == "bias":
        return (x[:, None, :, :1] * x[:, None, :, 1:2].transpose(2, 3)).tanh(), False
    i = torch.arange(t)
    if kind == "tril":
        return torch.ones(t, t, dtype=torch.bool).tril(), False
    if kind == "float":
        return torch.full((t, t), float("-inf"), dtype=x.dtype).triu(1), False
    if kind == "window":
        return (i[:, None] >= i) & (i[:, None] - i < 4), False
    slope = torch.tensor([2.0 ** -(h + 1) for h in range(s.heads)], dtype=x.dtype)
    return (slope[:, None, None] * (i - i[:, None]).to(x.dtype)).masked_fill(i > i[:, None], float("-inf"))[None], False


@part(3)
def attention(rng, d, first):
    heads, size = rng.choice(((4, 8), (2, 16), (4, 16), (1, 32), (3, 8)))
    kv = rng.choice([k for k in (1, 2, heads) if heads % k == 0])
    mask, turn, spelt = rng.choice(MASKS if first else [m for m in MASKS if m != "padding"]), rng.choice((None, None, rotated, rotated_pairs)), rng.random() < 0.4
    qk_norm, scale, cap = rng.random() < 0.3, rng.choice((None, 0.25)), rng.choice((0, 0, 0, 5.0))
    n = (heads + 2 * kv) * size
    turns = 50.0 ** -(torch.arange(0, size, 2) / size)

    def call(s, x):
        b, t, _ = x.shape
        q, k, v = s.qkv(x).split((heads * size, kv * size, kv * size), dim=-1)
        q = q.view(b, t, heads, size).transpose(1, 2)
        k, v = (y.view(b, t, kv, size).transpose(1, 2) for y in (k, v))
        if qk_norm:
            q, k = s.nq(q), s.nk(k)
        if turn:
            angle = torch.arange(t, device=x.device)[:, None] * torch.cat((s.turns, s.turns))
            q, k = (turn(y, angle.cos().to(x.dtype), angle.sin().to(x.dtype)) for y in (q, k))
        if kv != heads:
            k, v = (y[:, :, None].expand(b, kv, heads // kv, t, size).reshape(b, heads, t, size) for y in (k, v))
        m, causal = masked(mask, s, x)
        if not spelt and not cap:
            o = F.scaled_dot_product_attention(q, k, v, attn_mask=m, is_causal=causal, scale=scale)
        else:
            p = torch.matmul(q, k.transpose(-1, -2)) * (scale or size ** -0.5)
            if cap:
                p = torch.tanh(p / cap) * cap
            if causal:
                p = p.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), float("-inf"))
            elif m is not None:
                p = p.masked_fill(~m, torch.finfo(p.dtype).min) if m.dtype == torch.bool else p + m
            o = torch.matmul(F.softmax(wide(p), dim=-1).to(q.dtype), v)
        return s.out(o.transpose(1, 2).reshape(b, t, heads * size))
    what = "attention: %d of %d, %d, mask %s, turn %s%s%s, scale %s, cap %g" % (
        heads, size, kv, mask, turn and turn.__name__, ", spelt" * spelt, ", qk norm" * qk_norm, scale, cap)
    return Of(what, call, d, qkv=linear(rng, d, n), out=linear(rng, heads * size, d), nq=nn.RMSNorm(size, 1e-6),
              nk=nn.RMSNorm(size, 1e-6), turns=turns, heads=heads)


# ---- Views ----

@part(3)
def views(rng, d, first):
    """A chain of views and copies, and at last [B, T, ...] again."""
    steps, dims = [], ["b", "t", d]

    def static():
        return [k for k, n in enumerate(dims) if isinstance(n, int)]

    def add(what, f):
        steps.append((what, f))
    for _ in range(rng.randrange(2, 8)):
        kind, k = rng.choice("unflatten transpose permute unsqueeze slice stride cat stack chunk expand flat param flip roll "
                             "select pad repeat interleave tensor_split unbind squeeze movedim narrow".split()), rng.choice(static())
        n, r = dims[k], len(dims)
        if kind == "unflatten" and n % 4 == 0 and r < 5:
            a = rng.choice((2, 4))
            add("unflatten(%d, (%d, -1))" % (k, a), lambda x, k=k, a=a: x.unflatten(k, (a, -1)))
            dims[k:k + 1] = [a, n // a]
        elif kind == "transpose":
            i, j = rng.randrange(r), rng.randrange(r)
            add("transpose(%d, %d)" % (i, j), lambda x, i=i, j=j: x.transpose(i, j))
            dims[i], dims[j] = dims[j], dims[i]
        elif kind in ("permute", "movedim"):
            order = rng.sample(range(r), r)
            if kind == "movedim":
                order = [j for j in range(r) if j != k]
                order.insert(0, k)
                add("movedim(%d, 0)" % k, lambda x, k=k: x.movedim(k, 0))
            else:
                add("permute(%s)" % order, lambda x, o=tuple(order): x.permute(*o))
            dims[:] = [dims[j] for j in order]
        elif kind == "unsqueeze" and r < 5:
            at = rng.randrange(r + 1)
            add("unsqueeze(%d)" % at, lambda x, at=at: x.unsqueeze(at))
            dims.insert(at, 1)
        elif kind == "squeeze" and n == 1:
            add("squeeze(%d)" % k, lambda x, k=k: x.squeeze(k))
            del dims[k]
        elif kind in ("slice", "narrow") and n > 2:
            a, b = rng.randrange(n // 2), rng.randrange(n // 2 + 1, n + 1)
            if kind == "slice":
                index = [slice(None)] * k + [slice(a, b)]
                add("[%d: %d:%d]" % (k, a, b), lambda x, i=tuple(index): x[i])
            else:
                add("narrow(%d, %d, %d)" % (k, a, b - a), lambda x, k=k, a=a, n=b - a: x.narrow(k, a, n))
            dims[k] = b - a
        elif kind == "stride" and n > 3:
            index = [slice(None)] * k + [slice(1, None, 2)]
            add("[%d: 1::2]" % k, lambda x, i=tuple(index): x[i])
            dims[k] = n // 2
        elif kind == "cat" and n <= 64:
            add("cat(%d)" % k, lambda x, k=k: torch.cat((x * 0.5, x), k))
            dims[k] = 2 * n
        elif kind == "stack" and r < 5:
            add("stack(%d)" % k, lambda x, k=k: torch.stack((x, -x), dim=k))
            dims.insert(k, 2)
        elif kind == "chunk" and n > 2:
            c = rng.choice((2, 3))
            add("chunk(%d, %d)" % (c, k), lambda x, c=c, k=k: x.chunk(c, k)[-1])
            size = -(-n // c)
            dims[k] = n - size * (-(-n // size) - 1)
        elif kind == "tensor_split" and n > 4:
            add("tensor_split(3, %d)" % k, lambda x, k=k: x.tensor_split(3, dim=k)[0])
            dims[k] = n // 3 + (n % 3 > 0)
        elif kind == "unbind" and n <= 8 and r > 3:
            add("unbind(%d)" % k, lambda x, k=k: torch.unbind(x, k)[0] + 0.5 * x.select(k, -1))
            del dims[k]
        elif kind == "select" and r > 3:
            add("select(%d, 0)" % k, lambda x, k=k: x.select(k, 0))
            del dims[k]
        elif kind == "expand" and r < 5:
            add("expand, sum (%d)" % k, lambda x, k=k: (x.unsqueeze(k).expand(*x.shape[:k], 3, *x.shape[k:]) *
                                                        torch.arange(1.0, 4).to(x.dtype).view(3, *[1] * (x.ndim - k))).mean(k))
        elif kind == "flat" and k + 1 < r and isinstance(dims[k + 1], int):
            add("flatten(%d, %d)" % (k, k + 1), lambda x, k=k: x.flatten(k, k + 1))
            dims[k:k + 2] = [n * dims[k + 1]]
        elif kind == "param":
            v = torch.linspace(0.5, 1.5, n)
            add("* row (%d)" % k, lambda x, k=k, v=v: x * v.to(x.dtype).view(-1, *[1] * (x.ndim - 1 - k)))
        elif kind == "flip":
            add("flip(%d)" % k, lambda x, k=k: x.flip(k))
        elif kind == "roll":
            add("roll(1, %d)" % k, lambda x, k=k: torch.roll(x, 1, k))
        elif kind == "pad" and isinstance(dims[-1], int):
            a, b = rng.randrange(3), rng.randrange(3)
            add("pad((%d, %d))" % (a, b), lambda x, a=a, b=b: F.pad(x, (a, b)))
            dims[-1] += a + b
        elif kind == "repeat" and n <= 32:
            add("repeat(%d)" % k, lambda x, k=k: x.repeat(*[1] * k, 2, *[1] * (x.ndim - 1 - k)))
            dims[k] = 2 * n
        elif kind == "interleave" and n <= 32:
            add("repeat_interleave(2, %d)" % k, lambda x, k=k: x.repeat_interleave(2, k))
            dims[k] = 2 * n
    first = [dims.index("b"), dims.index("t")]
    order = first + [k for k in range(len(dims)) if k not in first]
    width = math.prod(n for n in dims if isinstance(n, int))
    contiguous = rng.random() < 0.3

    def call(s, x):
        b, t, _ = x.shape
        for _, f in steps:
            x = f(x)
        x = x.permute(order)
        return s.back((x.contiguous().view(b, t, width) if contiguous else x.reshape(b, t, width)))
    return Of("views: " + ", ".join(w for w, _ in steps), call, d, back=linear(rng, width, d))


# ---- Statistics, tables, others ----

@part(2)
def statistic(rng, d, first):
    def pooled(s, x):
        return x + s.a(x.mean(dim=1)).unsqueeze(1)

    def first(s, x):
        return x * torch.sigmoid(s.a(x[:, 0]))[:, None]

    def last(s, x):
        return x + s.a(x[:, -1:])

    def soft(s, x):
        return F.softmax(s.a(x), dim=-1) * d * x

    def over_time(s, x):
        return x + F.softmax(s.a(x), 1) * 2

    def log_soft(s, x):
        return F.log_softmax(s.a(x), -1)

    def most(s, x):
        return x - s.a(x).amax(-1, keepdim=True)

    def least(s, x):
        return x + x.amin(dim=-1, keepdim=True)

    def total(s, x):
        return x + s.a(x).sum((1, 2), keepdim=True) / (d * x.shape[1])

    def length(s, x):
        return x / (s.a(x).norm(dim=-1, keepdim=True) + 1)

    def length_1(s, x):
        return x / (torch.linalg.vector_norm(x, ord=1, dim=-1, keepdim=True) / d + 1)

    def lse(s, x):
        return x - torch.logsumexp(s.a(x), -1, keepdim=True)

    def std(s, x):
        return x / (s.a(x).std(-1, keepdim=True) + 0.5)

    def spread(s, x):
        v, m = torch.var_mean(x, dim=-1, keepdim=True)
        return (x - m) / (v + 0.5)

    def running(s, x):
        return x + torch.cumsum(s.a(x), 1) / x.shape[1]

    def experts(s, x):
        p = s.few(x).softmax(-1)
        y = torch.stack((s.a(x), x, torch.tanh(x)), -2)
        return (p.unsqueeze(-1) * y).sum(-2)

    def mixed(s, x):
        shifted = torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1)
        return x + (shifted - x) * s.g
    f = rng.choice((pooled, first, last, soft, over_time, log_soft, most, least, total, length, length_1, lse, std, spread,
                    running, experts, mixed))
    return Of("statistic: " + f.__name__, f, d, a=linear(rng, d, d), few=linear(rng, d, 3), g=gain(d))


@part()
def table(rng, d, first):
    """Positions, types and ids, which buffers or the input say."""
    def positions(s, x):
        return x + s.e(torch.arange(x.shape[1], device=x.device))

    def types(s, x):
        return x + s.e((x[..., 0] > 0).long())

    def sines(s, x):
        i = torch.arange(x.shape[1])[:, None] * s.rate
        return x + torch.cat((i.sin(), i.cos()), -1)[None].to(x.dtype)

    def ids(s, x):
        return x + F.embedding((x[..., 1] * 2).clamp(0, 5).floor().to(torch.int64), s.e.weight)

    def hot(s, x):
        return x + F.one_hot((x[..., 1] > 0).long(), d).to(x.dtype)
    f = rng.choice((positions, sines) + (types, ids, hot) * first)
    return Of("table: " + f.__name__, f, d, e=nn.Embedding(40, d), rate=20.0 ** -(torch.arange(0, d // 2) / d))


@part(3, first=True)
def integers(rng, d, first):
    """Comparisons and arithmetic of integers and of bools that come of the input."""
    def count(s, x):
        return x * (x > 0).sum(-1, keepdim=True).to(x.dtype) / d

    def both(s, x):
        m = (x > 0) & ~(x > 1) | (x == x[:, :1])
        return torch.where(m, x, -x)

    def product_of_mask(s, x):
        return s.a(x) * (x[..., :1] >= 0)

    def whole(s, x):
        k = (x * 4).clamp(-9, 9).to(torch.int32)
        return x + (k.abs() - k.clamp(min=-2)).to(x.dtype) * 0.1

    def sign(s, x):
        return x.sign() * x.abs().sqrt() + x.round() * 0.1 + x.floor() - x.ceil()

    def negated(s, x):
        return x - (-(x * 2).long()).to(x.dtype) * 0.2

    def remainder(s, x):
        return x + (torch.arange(d) % 3).to(x.dtype) * 0.1 + (torch.arange(d) // 5).to(x.dtype) * 0.01

    def lost(s, x):  # of which PyTorch's gradient is what its own rounding leaves
        return s.a(x) + 20 * (x - x.to(torch.bfloat16).to(x.dtype)).detach()

    def straight(s, x):
        return x + (x.half().to(x.dtype) * (x.bfloat16() > 0.3) - x).detach()

    def places(s, x):
        seen = (x[..., 0] > 0).int()
        return x + F.embedding(torch.cumsum(seen, 1) * seen, s.e)

    def largest(s, x):
        return x * 0.5 + F.embedding(x.argmax(-1), s.e) + x[torch.arange(x.shape[0]), (x[..., 1] > 0).int().argmax(1)][:, None]
    f = rng.choice((count, both, product_of_mask, whole, sign, negated, remainder, lost, straight, places, largest))
    return Of("integers: " + f.__name__, f, d, a=linear(rng, d, d), e=weight(64, d))


@part()
def convolution(rng, d, first):
    def depthwise(s, x):
        return F.conv1d(F.pad(x.transpose(1, 2), (3, 0)), s.w, None, groups=d).transpose(1, 2)

    def pointwise(s, x):
        return F.conv1d(x.transpose(1, 2), s.p).transpose(1, 2)

    def group(s, x):
        return F.group_norm(x.transpose(1, 2), 4, s.g, s.b).transpose(1, 2)
    f = rng.choice((depthwise, pointwise, group))
    return Of("convolution: " + f.__name__, f, d, w=weight(d, 1, 4), p=weight(d, d, 1), g=gain(d), b=weight(d))


# ---- Modules ----

class Residual(nn.Module):
    def __init__(self, kind, inner, back, d):
        super().__init__()
        self.kind, self.inner, self.back, self.scale = kind, inner, back, nn.Parameter(torch.full((d,), 0.4))

    def forward(self, x):
        y = self.back(self.inner(x))
        if self.kind == "add":
            return x + y
        if self.kind == "scaled":
            return torch.add(x * 0.7, y, alpha=0.3)
        if self.kind == "in place":
            y = y * 0.5  # of which autograd keeps nothing
            y += x
            return y
        if self.kind == "gated":
            return x + y * torch.sigmoid(self.scale)
        if self.kind == "normed":
            return F.layer_norm(x + y, (x.shape[-1],))
        return y - x


class Drawn(nn.Module):
    """`results`: what is returned, of the values that there were."""

    def __init__(self, layers, results):
        super().__init__()
        self.layers, self.results = nn.ModuleList(layers), results

    def forward(self, x):
        values = [x]
        for layer in self.layers:
            values.append(layer(values[-1]))
        return tuple(values[k] for k in self.results) if len(self.results) > 1 else values[self.results[0]]


def layer(rng, d, first):
    made = rng.choice(FIRST if first else PARTS)(rng, d, first)
    if rng.random() < 0.4:
        kind = rng.choice(("add", "add", "scaled", "in place", "gated", "normed", "sub"))
        back = nn.Identity() if made.width == d else nn.Linear(made.width, d)
        return Residual(kind, made, back, d), d
    if rng.random() < 0.1:
        return nn.Sequential(made, nn.Dropout(0.3)), made.width
    return made, made.width


def module(seed):
    """A module and the width of its input."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    d = start = rng.choice((16, 32, 32, 64))
    layers = []
    for _ in range(rng.randrange(2, 6)):
        made, width = layer(rng, d, not layers)
        if width % 4 or width > 96:
            made, width = nn.Sequential(made, nn.Linear(width, 32)), 32
        layers.append(made)
        d = width
    results = [len(layers)]
    if rng.random() < 0.25:
        results = sorted(rng.sample(range(1, len(layers) + 1), min(2, len(layers))))
    return Drawn(layers, results).eval(), start


DTYPES = (torch.float32, torch.float32, torch.float32, torch.bfloat16, torch.bfloat16, torch.float16)


def sizes(seed):
    """(B, T) of the calls: T is another one in each, and so a symbol from the second on; B not."""
    rng = random.Random("sizes %d" % seed)
    b = rng.choice((1, 2, 2, 3))
    return [(b, t) for t in rng.sample((2, 3, 5, 6, 7, 8, 12, 13, 16, 24, 31), rng.choice((1, 2, 2, 3)))]


def given(seed, d, b, t, dtype):
    """An input as one meets them: dense, a part of something, turned, at an odd address."""
    rng = random.Random("input %d %d" % (seed, t))
    torch.manual_seed(seed * 101 + t)
    how = rng.choice(("dense", "dense", "dense", "part", "turned", "odd", "repeated"))
    if how == "part":
        return torch.randn(b, t, 2 * d).to(dtype)[..., d:]
    if how == "turned":
        return torch.randn(t, b, d).to(dtype).transpose(0, 1)
    if how == "odd":
        return torch.randn(b * t * d + 1).to(dtype)[1:].view(b, t, d)
    if how == "repeated":
        return torch.randn(1, t, d).to(dtype).expand(b, t, d)
    return torch.randn(b, t, d).to(dtype)

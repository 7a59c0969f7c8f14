"""op_products.py -- matrix products, einsum, convolution and recurrent layers."""

import math

import numpy as np

from calls import Inexpressible, broadcast
from mapper import op


def matmul(c, a, b):
    """numpy.matmul of any ranks."""
    rows, columns = a.rank == 1, b.rank == 1
    a = c.reshape(a, 1, -1) if rows else a
    b = c.reshape(b, -1, 1) if columns else b
    if b.rank == 2:
        y = c.matmul(a, b, kn=True)
    else:
        lead = broadcast(a.dims[:-2], b.dims[:-2])
        y = c.matmul(c.expand(a, lead + a.dims[-2:]), c.expand(b, lead + b.dims[-2:]), kn=True)
    dims = list(y.dims)
    if rows:
        del dims[-2]
    if columns:
        del dims[-1]
    return c.reshape(y, *dims)


@op("MatMul")
def matmul_op(n):
    return matmul(n.c, n.x(0), n.x(1))


@op("Gemm")
def gemm(n):
    c, a, b = n.c, n.x(0), n.x(1)
    a = c.transpose(a, [1, 0]) if n.attr("transA", 0) else a
    y = c.scale(c.matmul(a, b, kn=not n.attr("transB", 0)), n.attr("alpha", 1.0))
    return c.map("add", y, c.scale(n.x(2), n.attr("beta", 1.0))) if n.has(2) else y


def diagonals(c, x, letters):
    """One axis for each letter that repeats."""
    for l in dict.fromkeys(letters):
        while letters.count(l) > 1:
            i = letters.index(l)
            j = letters.index(l, i + 1)
            size = x.dims[i]
            x = c.move(c.move(x, i, x.rank - 1), j - 1, x.rank - 1)
            x = c.slice(c.reshape(x, *x.dims[:-2], -1), x.rank - 2, 0, size * size, size + 1)
            letters = letters[:i] + letters[i + 1 : j] + letters[j + 1 :] + l
    return x, letters


@op("Einsum")
def einsum(n):
    c, equation = n.c, n.attr("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    operands, dots = [], max(
        (x.rank - len(t.replace("...", "")) for x, t in zip(n.all(), left.split(","))), default=0
    )
    upper = "ABCDEF"[:dots]
    for x, letters in zip(n.all(), left.split(",")):
        here = x.rank - len(letters.replace("...", ""))
        operands.append(diagonals(c, x, letters.replace("...", upper[dots - here :])))
    seen = "".join(l for _, l in operands)
    if not arrow:
        right = "..." + "".join(sorted(l for l in set(seen) if seen.count(l) == 1 and l not in upper))
    out = right.replace("...", upper)
    summed = [l for l in dict.fromkeys(seen) if l not in out]
    order = list(out) + summed
    y = None
    for x, letters in operands:
        x = c.transpose(x, [letters.index(l) for l in order if l in letters])
        sizes = iter(x.dims)
        x = c.reshape(x, *[next(sizes) if l in letters else 1 for l in order])
        y = x if y is None else c.map("mul", y, x)
    kept = y.dims[: len(out)]
    return c.reshape(c.statistic("row_sum", c.reshape(y, *kept, -1)), *kept) if summed else y


# ---- Convolutions, as sums over the kernel's positions ----


def padding(n, x, kernel, strides, dilations):
    """Before and after each axis, by the attributes."""
    k = len(kernel)
    pads = n.attr("pads", [0] * (2 * k))
    if n.attr("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        need = [
            max(0, (-(-d // s) - 1) * s + (w - 1) * g + 1 - d)
            for d, s, w, g in zip(x.dims[2:], strides, kernel, dilations)
        ]
        small, large = [p // 2 for p in need], [p - p // 2 for p in need]
        pads = small + large if n.attr("auto_pad") == "SAME_UPPER" else large + small
    return list(pads[:k]), list(pads[k:])


def padded(c, x, before, after, value):
    for i in range(len(before)):
        parts = []
        for p in (before[i], after[i]):
            dims = [p if a == i + 2 else d for a, d in enumerate(x.dims)]
            parts.append(
                c.expand(c.constant(np.full([1] * x.rank, value), x.dtype), tuple(dims)) if p else None
            )
        x = c.concat(i + 2, [p for p in (parts[0], x, parts[1]) if p])
    return x


def windows(c, x, kernel, strides, dilations):
    """For each position of the kernel: (position, what it sees, one element for each output)."""
    outputs = [(d - (w - 1) * g - 1) // s + 1 for d, w, s, g in zip(x.dims[2:], kernel, strides, dilations)]
    for at in np.ndindex(*kernel):
        y = x
        for i, (p, s, g, count) in enumerate(zip(at, strides, dilations, outputs)):
            y = c.slice(y, i + 2, p * g, p * g + (count - 1) * s + 1, s)
        yield at, y


def geometry(n, kernel):
    k = len(kernel)
    return n.attr("strides", [1] * k), n.attr("dilations", [1] * k)


@op("Conv")
def conv(n):
    c, x, w = n.c, n.x(0), n.x(1)
    kernel, groups = w.dims[2:], n.attr("group", 1)
    if math.prod(kernel) * groups > 64:
        raise Inexpressible("convolutions of more than 64 positions and groups")
    strides, dilations = geometry(n, kernel)
    x = padded(c, x, *padding(n, x, kernel, strides, dilations), 0)
    last = [0, *range(2, x.rank), 1]
    y = None
    for at, part in windows(c, x, kernel, strides, dilations):
        factor = w
        for i, p in enumerate(at):
            factor = c.slice(factor, i + 2, p, p + 1)
        factor = c.reshape(factor, *w.dims[:2])
        part = c.transpose(part, last)
        if w.dims[1] == 1 and w.dims[0] == groups:  # by channel
            part = c.map("mul", part, c.reshape(factor, -1))
        else:
            each = w.dims[0] // groups
            part = c.concat(
                part.rank - 1,
                [
                    c.matmul(
                        c.slice(part, part.rank - 1, g * w.dims[1], (g + 1) * w.dims[1]),
                        c.slice(factor, 0, g * each, (g + 1) * each),
                    )
                    for g in range(groups)
                ],
            )
        y = part if y is None else c.map("add", y, part)
    y = c.map("add", y, n.x(2)) if n.has(2) else y
    return c.move(y, y.rank - 1, 1)


class Pool:
    """A pooling's windows: x padded as it says, then as much as a last window that is cut short lacks."""

    def __init__(self, n):
        self.n, self.c, self.x, self.kernel = n, n.c, n.x(), n.attr("kernel_shape")
        if n.wants(1) or math.prod(self.kernel) > 128:
            raise Inexpressible("pooling with indices or more than 128 positions")
        self.strides, self.dilations = geometry(n, self.kernel)
        self.before, self.after = padding(n, self.x, self.kernel, self.strides, self.dilations)
        self.more = [self.cut(i) if n.attr("ceil_mode", 0) else 0 for i in range(len(self.kernel))]

    def cut(self, i):
        size = self.x.dims[i + 2] + self.before[i] + self.after[i]
        reach, stride = (self.kernel[i] - 1) * self.dilations[i] + 1, self.strides[i]
        count = -(-(size - reach) // stride) + 1
        if (count - 1) * stride >= self.x.dims[i + 2] + self.before[i]:  # it would begin in the padding
            count -= 1
        return max(0, (count - 1) * stride + reach - size)

    def fold(self, word, x, value, beyond=None):
        c, y = self.c, None
        x = padded(c, x, self.before, self.after, value)
        x = padded(c, x, [0] * len(self.more), self.more, value if beyond is None else beyond)
        for _, part in windows(c, x, self.kernel, self.strides, self.dilations):
            y = part if y is None else c.map(word, y, part)
        return y


@op("MaxPool")
def max_pool(n):
    p = Pool(n)
    return p.fold("maximum", p.x, -np.inf)


@op("AveragePool")
def average_pool(n):
    p = Pool(n)
    ones = n.c.constant(np.ones((1, 1) + p.x.dims[2:]), "f32")
    return n.c.map("div", p.fold("add", p.x, 0), p.fold("add", ones, n.attr("count_include_pad", 0), 0))


@op("LpPool")
def lp_pool(n):
    p, power = Pool(n), n.attr("p", 2)
    c = n.c
    if power not in (1, 2):
        raise Inexpressible("pooling by other powers than 1 and 2")
    x = c.map("abs", p.x) if power == 1 else c.map("mul", p.x, p.x)
    y = p.fold("add", x, 0)
    return y if power == 1 else c.map("sqrt", y)


@op("CausalConvWithState")
def causal_conv(n):
    c, x, w = n.c, n.x(0), n.x(1)
    k, channels = w.dims[2], w.dims[0]
    past = n.x(3) if n.has(3) else c.constant(np.zeros((x.dims[0], channels, k - 1)), x.dtype)
    line = c.concat(2, [past, x])
    y = None
    for i in range(k):
        part = c.map(
            "mul", c.slice(line, 2, i, i + x.dims[2]), c.reshape(c.slice(w, 2, i, i + 1), channels, 1)
        )
        y = part if y is None else c.map("add", y, part)
    y = c.map("add", y, c.reshape(n.x(2), channels, 1)) if n.has(2) else y
    y = c.map("silu", y) if n.attr("activation", "none") in ("silu", "swish") else y
    return y, c.slice(line, 2, line.dims[2] - (k - 1), line.dims[2])


# ---- Recurrent layers, one step after another ----


def recurrent(n, gates, cell, states):
    """Y and the last states. x [T, B, I], w [D, gates H, I], r [D, gates H, H], b [D, 2 gates H]."""
    c = n.c
    x, hidden, layout = n.x(0), n.attr("hidden_size"), n.attr("layout", 0)
    if (
        n.has(4)
        or n.attr("direction", "forward") != "forward"
        or "activations" in n.attrs
        or "clip" in n.attrs
    ):
        raise Inexpressible("recurrent layers with lengths, directions, clips or other activations")
    x = c.transpose(x, [1, 0, 2]) if layout else x
    steps, batch = x.dims[:2]
    w, r = (c.reshape(n.x(i), gates * hidden, -1) for i in (1, 2))
    b = c.reshape(n.x(3), 2, gates * hidden) if n.has(3) else None
    bias = [c.reshape(c.slice(b, 0, i, i + 1), -1) if b else None for i in (0, 1)]

    def start(i):
        v = n.x(i)
        return c.reshape(v, batch, hidden) if v else c.constant(np.zeros((batch, hidden)), x.dtype)

    state, outputs = [start(5 + i) for i in range(states)], []
    for t in range(steps):
        now = c.matmul(c.reshape(c.slice(x, 0, t, t + 1), batch, -1), w)
        now = c.map("add", now, bias[0]) if b else now
        then = c.matmul(state[0], r)
        then = c.map("add", then, bias[1]) if b else then
        state = cell(
            n,
            *[[c.slice(v, 1, g * hidden, (g + 1) * hidden) for g in range(gates)] for v in (now, then)],
            state,
            r,
            bias[1]
        )
        outputs.append(c.reshape(state[0], 1, 1, batch, hidden))
    y = c.concat(0, outputs)
    last = [c.reshape(s, 1, batch, hidden) for s in state]
    if layout:
        y, last = c.transpose(y, [2, 0, 1, 3]), [c.transpose(s, [1, 0, 2]) for s in last]
    return [y] + last


@op("RNN")
def rnn(n):
    def cell(n, now, then, state, r, b):
        return [n.c.map("tanh", n.c.map("add", now[0], then[0]))]

    return recurrent(n, 1, cell, 1)


@op("GRU")
def gru(n):
    def cell(n, now, then, state, r, b):
        c, hidden = n.c, state[0].dims[1]
        z, reset = (c.map("sigmoid", c.map("add", now[g], then[g])) for g in (0, 1))
        if n.attr("linear_before_reset", 0):
            h = c.map("mul", reset, then[2])
        else:
            h = c.matmul(c.map("mul", reset, state[0]), c.slice(r, 0, 2 * hidden, 3 * hidden))
            h = c.map("add", h, c.slice(b, 0, 2 * hidden, 3 * hidden)) if b else h
        h = c.map("tanh", c.map("add", now[2], h))
        return [c.map("add", c.map("mul", c.affine(z, -1, 1), h), c.map("mul", z, state[0]))]

    return recurrent(n, 3, cell, 1)


@op("LSTM")
def lstm(n):
    c, p = n.c, n.x(7)

    def cell(n, now, then, state, r, b):
        h, s = state
        size = h.dims[1]
        i, o, f, g = (c.map("add", now[k], then[k]) for k in range(4))

        def peep(v, k, s):
            return (
                c.map("add", v, c.map("mul", s, c.slice(c.reshape(p, -1), 0, k * size, (k + 1) * size)))
                if p
                else v
            )

        i, f = c.map("sigmoid", peep(i, 0, s)), c.map("sigmoid", peep(f, 2, s))
        s = c.map("add", c.map("mul", f, s), c.map("mul", i, c.map("tanh", g)))
        return [c.map("mul", c.map("sigmoid", peep(o, 1, s)), c.map("tanh", s)), s]

    return recurrent(n, 4, cell, 2)

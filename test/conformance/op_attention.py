"""op_attention.py -- attention in all its forms, rotary embedding, linear attention."""

import math

import numpy as np
from onnx import TensorProto

from mapper import Entry, op

START, END, LENGTH = 1, 2, 3  # coda_attention_align


def heads_apart(c, x, heads):
    """[B, T, heads D] -> [B, heads, T, D]."""
    return c.transpose(c.reshape(x, *x.dims[:2], heads, -1), [0, 2, 1, 3])


def heads_together(c, x):
    x = c.transpose(x, [0, 2, 1, 3])
    return c.reshape(x, *x.dims[:2], -1)


def repeated(c, x, heads):
    """[B, kv_heads, T, D] -> [B, heads, T, D], each head for a group of neighbours."""
    b, kv, t, d = x.dims
    if kv == heads:
        return x
    return c.reshape(c.expand(c.reshape(x, b, kv, 1, t, d), (b, kv, heads // kv, t, d)), b, heads, t, d)


class Attention:
    def __init__(self, n):
        c, self.n = n.c, n
        q, k, v = n.x(0), n.x(1), n.x(2)
        self.packed = q.rank == 3
        if self.packed:
            q = heads_apart(c, q, n.attr("q_num_heads"))
            k, v = (heads_apart(c, x, n.attr("kv_num_heads")) for x in (k, v))
        self.past = n.x(4).dims[2] if n.has(4) else 0
        if n.has(4):
            k, v = c.concat(2, [n.x(4), k]), c.concat(2, [n.x(5), v])
        self.q, self.k, self.v, self.lengths = q, k, v, n.x(6)
        self.scale = n.attr("scale") or 1 / math.sqrt(q.dims[3])
        self.causal, self.softcap = n.attr("is_causal", 0), n.attr("softcap", 0.0)
        self.left, self.right = n.attr("left_window_size", -1), n.attr("right_window_size", -1)

    def align(self):
        """Where coda_attention has the queries so; 0: nowhere."""
        if self.lengths:
            return LENGTH
        ends = self.past == self.k.dims[2] - self.q.dims[2]
        return END if ends else START if self.past == 0 else 0

    def is_native(self):
        """Does coda_attention say it?"""
        return not self.n.wants(3) and self.right <= 0 and self.k.dims[3] == self.v.dims[3] and self.align()

    def native(self):
        c, heads, kv = self.n.c, self.q.dims[1], self.k.dims[1]
        q, k, v = (heads_together(c, x) for x in (self.q, self.k, self.v))
        causal = self.causal or self.right == 0
        ints = [heads, kv, self.left + 1, 1 if causal else 0, self.align()]
        floats = [self.scale, self.softcap]
        y = c.call("attention", [q, k, v, self.lengths, self.bias()], q.dims, q.dtype, ints, floats)
        if not self.n.has(3):
            return y if self.packed else heads_apart(c, y, heads)
        y = c.where(self.blind(), c.constant(0.0, y.dtype), heads_apart(c, y, heads))
        return heads_together(c, y) if self.packed else y

    def bias(self):
        """What the mask adds to scores."""
        c = self.n.c
        if not self.n.has(3):
            return None
        if self.n.etype(3) != TensorProto.BOOL:
            return self.mask(-np.inf)
        return c.where(self.mask(0), c.constant(0.0, "f32"), c.constant(-np.inf, "f32"))

    def blind(self):
        """Which queries see nothing; None: all see something."""
        c, seen, bias = self.n.c, self.visible(), None
        lowest = c.constant(-np.inf, "f32")
        if self.n.has(3) and self.n.etype(3) != TensorProto.BOOL:
            bias = self.mask(-np.inf)
        if seen:
            bias = c.where(seen, bias or c.constant(0.0, "f32"), lowest)
        if not bias:
            return None
        most = c.statistic("row_max", c.expand(bias, bias.dims[:-1] + (self.k.dims[2],)))
        return c.map("equal", most, lowest)

    def visible(self):
        """Which keys each query sees, as 0 and 1; None: all."""
        c, parts = self.n.c, []
        tq, tk = self.q.dims[2], self.k.dims[2]
        keys = c.constant(np.arange(tk).reshape(1, 1, 1, tk), "i32")
        at = c.constant(np.arange(tq).reshape(1, 1, tq, 1) + (0 if self.lengths else self.past), "i32")
        if self.lengths:
            lengths = c.reshape(self.lengths, -1, 1, 1, 1)
            parts.append(c.map("less", keys, lengths))
            at = c.map("add", at, c.affine(lengths, 1, -tq))
        if self.causal:
            parts.append(c.map("less_equal", keys, at))
        if self.left >= 0:
            parts.append(c.map("greater_equal", keys, c.affine(at, 1, -self.left)))
        if self.right >= 0:
            parts.append(c.map("less_equal", keys, c.affine(at, 1, self.right)))
        if self.n.has(3) and self.n.etype(3) == TensorProto.BOOL:
            parts.append(self.mask(0))
        y = None
        for p in parts:
            y = p if y is None else c.map("logical_and", y, p)
        return y

    def mask(self, beyond):
        """The mask, wide enough for all keys."""
        c, mask, tk = self.n.c, self.n.x(3), self.k.dims[2]
        more = tk - mask.dims[-1]
        if more <= 0:
            return mask
        tail = c.expand(c.constant(np.full([1] * mask.rank, beyond), mask.dtype), mask.dims[:-1] + (more,))
        return c.concat(mask.rank - 1, [mask, tail])

    def scores(self, modifier=None):
        """Before and after softcap and mask."""
        c, heads = self.n.c, self.q.dims[1]
        q = c.cast(self.q, "f32") if self.wide() else self.q
        k = repeated(c, self.k, heads)
        raw = c.scale(c.matmul(q, c.cast(k, q.dtype)), self.scale)
        capped = c.map("softcap", raw, params=[self.softcap]) if self.softcap else raw
        lowest = c.constant(-np.inf, "f32")
        seen, masked = self.visible(), capped
        if self.n.has(3) and self.n.etype(3) != TensorProto.BOOL:
            masked = c.map("add", masked, self.mask(-np.inf))
        if seen:
            masked = c.where(seen, masked, lowest)
        return raw, capped, masked

    def wide(self):
        return self.n.attr("softmax_precision") == TensorProto.FLOAT

    def decomposed(self):
        c = self.n.c
        raw, capped, masked = self.scores()
        blind = self.blind()
        p = c.softmax(masked)
        if blind:
            p = c.where(blind, c.constant(0, p.dtype), p)
        v = repeated(c, self.v, self.q.dims[1])
        y = c.matmul(c.cast(p, v.dtype), v, kn=True)
        mode = self.n.attr("qk_matmul_output_mode", 0)
        shown = [raw, capped, masked, p][mode] if self.n.wants(3) else None
        return heads_together(c, y) if self.packed else y, shown


@op("Attention")
def attention(n):
    a = Attention(n)
    if a.is_native():
        return a.native(), a.k, a.v, None
    y, shown = a.decomposed()
    return y, a.k, a.v, shown


@op("FlexAttention")
def flex_attention(n):
    """Scores and probabilities pass through graphs of the case's own."""
    c, (q, k, v) = n.c, (n.x(i) for i in (0, 1, 2))
    heads = q.dims[1]
    scale = n.attr("scale") or 1 / math.sqrt(q.dims[3])

    def modified(x, name):
        if name not in n.attrs:
            return x
        (e,) = n.m.subgraph(n.attrs[name], [Entry(n.etype(0), value=x)])
        return n.m.value(e)

    s = modified(c.scale(c.matmul(q, repeated(c, k, heads)), scale), "score_mod")
    p = modified(c.softmax(s), "prob_mod")
    return c.matmul(p, repeated(c, v, heads), kn=True)


@op("RotaryEmbedding")
def rotary(n):
    """By the tables of the case, which need not be cosines."""
    c, x, ids = n.c, n.x(0), n.x(3)
    packed = x.rank == 3
    x = x if not packed else heads_apart(c, x, n.attr("num_heads"))
    size = x.dims[3]
    width = n.attr("rotary_embedding_dim", 0) or size

    def table(i):
        t = n.x(i)
        if ids:
            t = c.call("embedding", [t, ids], ids.dims + (t.dims[1],), t.dtype)
        return c.reshape(t, t.dims[0], 1, t.dims[1], t.dims[2])

    cosine, sine = table(1), table(2)
    part = c.slice(x, 3, 0, width)
    if n.attr("interleaved", 0):
        a, b = c.slice(part, 3, 0, width, 2), c.slice(part, 3, 1, width, 2)
    else:
        a, b = c.slice(part, 3, 0, width // 2), c.slice(part, 3, width // 2, width)
    real = c.map("sub", c.map("mul", a, cosine), c.map("mul", b, sine))
    imaginary = c.map("add", c.map("mul", a, sine), c.map("mul", b, cosine))
    if n.attr("interleaved", 0):
        pairs = [c.reshape(v, *v.dims, 1) for v in (real, imaginary)]
        y = c.reshape(c.concat(4, pairs), *part.dims)
    else:
        y = c.concat(3, [real, imaginary])
    y = c.concat(3, [y, c.slice(x, 3, width, size)]) if width < size else y
    return heads_together(c, y) if packed else y


@op("LinearAttention")
def linear_attention(n):
    """The recurrence, one token after another, on [B, heads, d_k, d_v] states."""
    c = n.c
    heads, kv, rule = n.attr("q_num_heads"), n.attr("kv_num_heads"), n.attr("update_rule", "gated_delta")
    q, k, v = (heads_apart(c, n.x(i), h) for i, h in ((0, heads), (1, kv), (2, kv)))
    b, _, steps, dk = q.dims
    dv = v.dims[3]
    scale = n.attr("scale", 0.0) or 1 / math.sqrt(dk)
    decay = heads_apart(c, n.x(4), kv) if n.has(4) else None
    beta = heads_apart(c, n.x(5), n.x(5).dims[2]) if n.has(5) else None
    state = n.x(3) if n.has(3) else c.constant(np.zeros((b, kv, dk, dv)), q.dtype)
    outputs = []
    for t in range(steps):
        q_t, k_t, v_t = (c.slice(x, 2, t, t + 1) for x in (q, k, v))
        key = c.transpose(k_t, [0, 1, 3, 2])
        if decay:
            state = c.map("mul", state, c.transpose(c.map("exp", c.slice(decay, 2, t, t + 1)), [0, 1, 3, 2]))
        if "delta" in rule:
            v_t = c.map("mul", c.map("sub", v_t, c.matmul(k_t, state, kn=True)), c.slice(beta, 2, t, t + 1))
        state = c.map("add", state, c.map("mul", key, v_t))
        outputs.append(c.scale(c.matmul(q_t, repeated(c, state, heads), kn=True), scale))
    return heads_together(c, c.concat(2, outputs)), state

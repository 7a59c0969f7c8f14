"""op_rows.py -- what goes over rows: reductions, norms, softmax, losses."""

import math

import numpy as np
from onnx import TensorProto

from calls import Inexpressible
from mapper import Typed, integer, op

# ---- Reductions ----


def product(c, x):
    """By halves: [..., n] -> [..., 1]."""
    n = x.dims[-1]
    if n == 0:
        return c.affine(c.statistic("row_sum", x), 0, 1)
    while n > 1:
        half = n // 2
        y = c.map("mul", c.slice(x, x.rank - 1, 0, half), c.slice(x, x.rank - 1, half, 2 * half))
        if n % 2:
            y = c.concat(x.rank - 1, [y, c.slice(x, x.rank - 1, n - 1, n)])
        x, n = y, half + n % 2
    return x


def smallest(c, x):
    return c.scale(c.statistic("row_max", c.scale(x, -1)), -1)


def total(c, x):
    return c.statistic("row_sum", x)


def square(c, x):
    return c.map("mul", x, x)


REDUCTIONS = {  # what is done to each element before, the reduction, and what after
    "ReduceSum": (None, total, None),
    "ReduceMean": (None, lambda c, x: c.statistic("row_mean", x), None),
    "ReduceMax": (None, lambda c, x: c.statistic("row_max", x), None),
    "ReduceMin": (None, smallest, None),
    "ReduceProd": (None, product, None),
    "ReduceL1": ("abs", total, None),
    "ReduceL2": (square, total, "sqrt"),
    "ReduceSumSquare": (square, total, None),
    "ReduceLogSum": (None, total, "log"),
    "ReduceLogSumExp": (None, lambda c, x: c.statistic("log_sum_exp", x), None),
}


def apply(c, f, x):
    return x if f is None else c.map(f, x) if isinstance(f, str) else f(c, x)


def reduction(n):
    c, x = n.c, n.x()
    before, reduce, after = REDUCTIONS[n.proto.op_type]
    axes = n.axes(rank=x.rank)
    if not axes:
        if n.attr("noop_with_empty_axes", 0):
            return apply(c, after, apply(c, before, x))
        axes = list(range(x.rank))
    y = apply(c, after, reduce(c, apply(c, before, c.rows(x, axes))))
    if n.etype() == TensorProto.BOOL and 0 in x.dims:  # of nothing, the least
        y = c.affine(c.map("equal", y, y), 0, 0 if n.proto.op_type == "ReduceMax" else 1)
    dims = [1 if a in axes else d for a, d in enumerate(x.dims)]
    if not n.attr("keepdims", 1):
        dims = [d for a, d in enumerate(x.dims) if a not in axes]
    return c.reshape(y, *dims)


for name in REDUCTIONS:
    op(name)(reduction)


@op("ArgMax", "ArgMin")
def arg_extreme(n):
    c, x = n.c, n.x()
    axis = n.attr("axis", 0) % x.rank
    rows = c.rows(x, [axis])
    extreme = c.statistic("row_max", rows) if n.proto.op_type == "ArgMax" else smallest(c, rows)
    if n.attr("select_last_index", 0):
        hit = c.map("equal", rows, extreme)
        y = c.statistic("row_max", c.where(hit, c.iota(x.dims[axis]), c.constant(-1, "i32")))
    else:
        y = c.first_index(rows, extreme)
    dims = list(x.dims)
    dims[axis : axis + 1] = [1] if n.attr("keepdims", 1) else []
    return integer(c.reshape(y, *dims))


@op("Hardmax")
def hardmax(n):
    c, x = n.c, n.x()

    def one_hot(rows):
        return c.map("equal", c.iota(rows.dims[-1]), c.first_index(rows, c.statistic("row_max", rows)))

    return c.over(x, [n.attr("axis", -1) % x.rank], one_hot)


@op("TopK")
def top_k(n):
    c, x = n.c, n.x()
    axis, k = n.attr("axis", -1) % x.rank, int(n.known(1).ravel()[0])
    sign = 1 if n.attr("largest", 1) else -1
    rows = c.scale(c.floats(c.rows(x, [axis])), sign)
    dims = list(x.dims)
    dims[axis] = k
    best = rows.dims[:-1] + (k,)
    values = c.call("top_k_values", [rows], best, rows.dtype, [k])
    indices = c.cast(c.call("top_k_indices", [rows], best, "i32", [k]), "i64")
    values, indices = (c.from_rows(v, dims, [axis]) for v in (values, indices))
    return c.scale(values, sign), integer(indices)


# ---- Sums along an axis ----


@op("CumSum")
def cumulative_sum(n):
    c, x = n.c, n.x()
    axis, size = int(n.known(1).ravel()[0]) % x.rank, x.dims[int(n.known(1).ravel()[0])]
    ones = np.tri(size, size, -1 if n.attr("exclusive", 0) else 0)
    factor = c.constant(ones.T if n.attr("reverse", 0) else ones, "f32")
    return c.over(x, [axis], lambda rows: c.matmul(rows, factor))


@op("CumProd")
def cumulative_product(n):
    c, x = n.c, n.x()
    axis = int(n.known(1).ravel()[0]) % x.rank
    parts = [c.slice(x, axis, i, i + 1) for i in range(x.dims[axis])]
    if n.attr("reverse", 0):
        parts.reverse()
    results = [c.affine(parts[0], 0, 1)] if n.attr("exclusive", 0) else [parts[0]]
    for i in range(1, len(parts)):
        results.append(c.map("mul", results[-1], parts[i - 1 if n.attr("exclusive", 0) else i]))
    return c.concat(axis, results[::-1] if n.attr("reverse", 0) else results)


# ---- Norms ----


def inverse_deviation(c, rows, eps):
    """1 / sqrt(var + eps) of rows."""
    centred = c.map("sub", rows, c.statistic("row_mean", rows))
    return c.map("rsqrt_eps", c.statistic("row_mean", square(c, centred)), params=[eps])


@op("LayerNormalization")
def layer_norm(n):
    c, x = n.c, n.x()
    axis, eps = n.attr("axis", -1) % x.rank, n.attr("epsilon", 1e-5)
    size = math.prod(x.dims[axis:])
    rows = c.reshape(x, *x.dims[:axis], size)
    vectors = [n.x(i) for i in (1, 2)]
    inside = all(v is None or v.dims == x.dims[axis:] for v in vectors)
    gain, bias = (c.reshape(v, size) if v and inside else None for v in vectors)
    y = c.call("layer_norm", [rows, gain, bias], rows.dims, x.dtype, floats=[eps])
    y = c.reshape(y, *x.dims)
    if not inside:
        y = c.map("mul", y, vectors[0])
        y = c.map("add", y, vectors[1]) if vectors[1] else y
    small = x.dims[:axis] + (1,) * (x.rank - axis)
    mean = c.reshape(c.statistic("row_mean", rows), *small) if n.wants(1) else None
    deviation = c.reshape(inverse_deviation(c, rows, eps), *small) if n.wants(2) else None
    return y, mean, deviation


@op("RMSNormalization")
def rms_norm(n):
    c, x, gain = n.c, n.x(0), n.x(1)
    axis = n.attr("axis", -1) % x.rank
    rows = c.reshape(x, *x.dims[:axis], -1)
    inside = gain.dims == x.dims[axis:]
    vector = c.reshape(gain, -1) if inside else None
    y = c.call("rms_norm", [rows, vector], rows.dims, x.dtype, floats=[n.attr("epsilon", 1e-5)])
    y = c.reshape(y, *x.dims)
    return y if inside else c.map("mul", y, gain)


def by_channel(c, v, x):
    return c.reshape(v, v.size, *[1] * (x.rank - 2))


@op("GroupNormalization", "InstanceNormalization")
def group_norm(n):
    c, x = n.c, n.x()
    groups = n.attr("num_groups", x.dims[1])
    rows = c.reshape(x, x.dims[0], groups, -1)
    y = c.call("layer_norm", [rows, None, None], rows.dims, x.dtype, floats=[n.attr("epsilon", 1e-5)])
    if n.x(1).size == groups:  # one gain for each group, before version 21
        y = c.map("add", c.map("mul", y, c.reshape(n.x(1), groups, 1)), c.reshape(n.x(2), groups, 1))
        return c.reshape(y, *x.dims)
    y = c.reshape(y, *x.dims)
    return c.map("add", c.map("mul", y, by_channel(c, n.x(1), x)), by_channel(c, n.x(2), x))


@op("BatchNormalization")
def batch_norm(n):
    c, x = n.c, n.x()
    mean, var, eps, m = n.x(3), n.x(4), n.attr("epsilon", 1e-5), n.attr("momentum", 0.9)
    running = None, None
    if n.attr("training_mode", 0):
        rows = c.rows(x, [a for a in range(x.rank) if a != 1])
        now = c.statistic("row_mean", rows)
        spread = c.statistic("row_mean", square(c, c.map("sub", rows, now)))
        now, spread = c.reshape(now, -1), c.reshape(spread, -1)
        running = tuple(
            c.map("add", c.scale(old, m), c.scale(new, 1 - m)) for old, new in ((mean, now), (var, spread))
        )
        mean, var = now, spread
    y = c.map("sub", x, by_channel(c, mean, x))
    y = c.map("mul", y, by_channel(c, c.map("rsqrt_eps", var, params=[eps]), x))
    y = c.map("add", c.map("mul", y, by_channel(c, n.x(1), x)), by_channel(c, n.x(2), x))
    return (y,) + running


@op("MeanVarianceNormalization")
def mean_variance(n):
    c, x = n.c, n.x()

    def normal(rows):
        centred = c.map("sub", rows, c.statistic("row_mean", rows))
        deviation = c.map("sqrt", c.statistic("row_mean", square(c, centred)))
        return c.map("div", centred, c.affine(deviation, 1, 1e-9))

    return c.over(x, sorted(a % x.rank for a in n.attr("axes", [0, 2, 3])), normal)


@op("LpNormalization")
def lp_norm(n):
    c, x = n.c, n.x()

    def normal(rows):
        size = c.statistic("row_sum", c.map("abs", rows) if n.attr("p", 2) == 1 else square(c, rows))
        size = size if n.attr("p", 2) == 1 else c.map("sqrt", size)
        zero = c.constant(0, "i32")
        return c.where(size, c.map("div", rows, size), zero)  # a row of zeros stays

    return c.over(x, [n.attr("axis", -1) % x.rank], normal)


@op("LRN")
def local_response(n):
    c, x = n.c, n.x()
    size, channels = n.attr("size"), x.dims[1]
    at = np.arange(channels)
    near = at[None, :] - at[:, None]
    band = ((near >= -((size - 1) // 2)) & (near <= size // 2)).astype(float)
    sums = c.over(square(c, x), [1], lambda rows: c.matmul(rows, c.constant(band, "f32")))
    base = c.affine(sums, n.attr("alpha", 1e-4) / size, n.attr("bias", 1.0))
    return c.map("div", x, c.map("pow", base, c.constant(n.attr("beta", 0.75), "f32")))


@op("GlobalAveragePool", "GlobalMaxPool")
def global_pool(n):
    c, x = n.c, n.x()
    word = "row_mean" if n.proto.op_type == "GlobalAveragePool" else "row_max"
    return c.reshape(c.statistic(word, c.reshape(x, *x.dims[:2], -1)), *x.dims[:2], *[1] * (x.rank - 2))


# ---- Softmax ----


def softmax_over(n, f):
    c, x = n.c, n.x()
    axis = n.attr("axis", -1 if n.m.version() >= 13 else 1) % x.rank
    if n.m.version() >= 13:
        return c.over(x, [axis], f)
    return c.reshape(f(c.reshape(x, math.prod(x.dims[:axis]), -1)), *x.dims)


def log_softmax_rows(c, rows):
    """Less the largest first: the rest is of order 1, however large the scores are."""
    rows = c.map("sub", rows, c.statistic("row_max", rows))
    return c.map("sub", rows, c.statistic("log_sum_exp", rows))


@op("Softmax")
def softmax(n):
    return softmax_over(n, n.c.softmax)


@op("LogSoftmax")
def log_softmax(n):
    return softmax_over(n, lambda rows: log_softmax_rows(n.c, rows))


# ---- Losses: scores [N, C, d...], targets [N, d...] ----


def classes_last(c, x):
    return c.move(x, 1, x.rank - 1)


def weighed(n, loss, targets, ignore):
    """Losses of all targets, weighed by class, ignored ones 0, and reduced; scores are operand 0."""
    c, weights = n.c, n.x(2)
    classes = n.x(0).dims[1]
    zero = c.constant(0, "i32")
    ignored = None if ignore is None else c.map("equal", targets, c.constant(ignore, "i32"))
    if weights:
        ids = c.reshape(targets, -1)
        w = c.call("embedding", [c.reshape(weights, classes, 1), ids], (ids.size, 1), weights.dtype)
        w = c.reshape(w, *targets.dims)
    else:
        w = c.constant(np.ones(targets.dims), loss.dtype)
    if ignored:
        loss, w = (c.where(ignored, zero, v) for v in (loss, w))
    loss = c.map("mul", loss, w)
    if n.attr("reduction", "mean") == "none":
        return loss
    total = c.statistic("row_sum", c.reshape(loss, 1, -1))
    if n.attr("reduction", "mean") == "mean":
        total = c.map("div", total, c.statistic("row_sum", c.reshape(w, 1, -1)))
    return c.reshape(total)


@op("NegativeLogLikelihoodLoss")
def negative_log_likelihood(n):
    c, x, targets = n.c, n.x(0), n.x(1)
    loss = c.pick(classes_last(c, x), c.reshape(targets, *targets.dims, 1))
    loss = c.scale(c.reshape(loss, *targets.dims), -1)
    return Typed(weighed(n, loss, targets, n.attr("ignore_index")), n.etype(0))


@op("SoftmaxCrossEntropyLoss")
def cross_entropy(n):
    c, x, targets = n.c, n.x(0), n.x(1)
    ignore, kind = n.attr("ignore_index"), n.attr("reduction", "mean")
    scores = classes_last(c, x)
    code = ["none", "mean", "sum"].index("none" if n.has(2) else kind)
    loss = c.call(
        "cross_entropy",
        [scores, targets],
        (1,) if code else targets.dims,
        "f32",
        [-100 if ignore is None else ignore, code],
    )
    loss = weighed(n, loss, targets, ignore) if n.has(2) else c.reshape(loss, *([] if code else targets.dims))
    log_prob = c.move(log_softmax_rows(c, scores), x.rank - 1, 1) if n.wants(1) else None
    return loss, log_prob


@op("Det")
def determinant(n):
    c, x = n.c, n.x()
    if x.dims[-1] != 2:
        raise Inexpressible("operator Det of more than 2 rows")
    e = [[c.slice(c.slice(x, x.rank - 2, i, i + 1), x.rank - 1, j, j + 1) for j in (0, 1)] for i in (0, 1)]
    d = c.map("sub", c.map("mul", e[0][0], e[1][1]), c.map("mul", e[0][1], e[1][0]))
    return c.reshape(d, *x.dims[:-2])

"""op_moves.py -- operators that move data: views, slices, gathers and scatters."""

import math

import numpy as np

from calls import INTEGERS
from mapper import Typed, op


@op("Reshape")
def reshape(n):
    dims = [int(d) for d in n.known(1)]
    if not n.attr("allowzero", 0):
        dims = [n.x().dims[i] if d == 0 else d for i, d in enumerate(dims)]
    return n.c.reshape(n.x(), *dims)


@op("Flatten")
def flatten(n):
    axis = n.attr("axis", 1)
    dims = n.x().dims
    axis += len(dims) if axis < 0 else 0
    return n.c.reshape(n.x(), math.prod(dims[:axis]), math.prod(dims[axis:]))


@op("Squeeze")
def squeeze(n):
    x = n.x()
    axes = n.axes(rank=x.rank)
    return n.c.reshape(x, *[d for a, d in enumerate(x.dims) if (d != 1 if axes is None else a not in axes)])


@op("Unsqueeze")
def unsqueeze(n):
    x = n.x()
    given = n.known(1) if n.has(1) else n.attr("axes")
    rank = x.rank + np.size(given)
    axes = n.axes(rank=rank)
    rest = iter(x.dims)
    return n.c.reshape(x, *[1 if a in axes else next(rest) for a in range(rank)])


@op("Transpose")
def transpose(n):
    return n.c.transpose(n.x(), n.attr("perm", list(range(n.x().rank))[::-1]))


@op("Expand")
def expand(n):
    return n.c.expand(n.x(), tuple(int(d) for d in n.known(1)))


@op("Concat")
def concat(n):
    parts = n.all()
    return n.c.concat(n.attr("axis", 1) % parts[0].rank, parts)


@op("Slice")
def slices(n):
    x = n.x()
    if len(n) > 1:
        starts, ends, axes, steps = (n.known(i) for i in (1, 2, 3, 4))
    else:
        starts, ends, axes, steps = n.attr("starts"), n.attr("ends"), n.attr("axes"), None
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, axes, steps):
        axis = int(axis) % x.rank
        indices = range(x.dims[axis])[int(start) : int(end) : int(step)]
        x = n.c.select_along(x, axis, indices)
    return x


@op("Split")
def split(n):
    x = n.x()
    axis, count = n.attr("axis", 0) % x.rank, len(n.proto.output)
    each = -(-x.dims[axis] // count)
    sizes = n.known(1) if n.has(1) else n.attr("split")
    if sizes is None:
        sizes = [min(each, x.dims[axis] - i * each) for i in range(count)]
    at = np.cumsum([0] + [int(s) for s in sizes])
    return [n.c.slice(x, axis, int(a), int(b)) for a, b in zip(at, at[1:])]


def filled(c, dims, value, dtype):
    """A tensor of one value."""
    return c.expand(c.constant(np.full([1] * len(dims), value), dtype), tuple(dims))


@op("Pad")
def pad(n):
    c, x = n.c, n.x()
    pads = [int(p) for p in (n.known(1) if n.has(1) else n.attr("pads"))]
    axes = [int(a) % x.rank for a in n.known(3)] if n.has(3) else range(x.rank)
    value = n.x(2) if n.has(2) else c.constant(n.attr("value", 0.0), x.dtype)
    mode = n.attr("mode", "constant")
    for i, axis in enumerate(axes):
        before, after, size = pads[i], pads[len(pads) // 2 + i], x.dims[axis]
        x = c.slice(x, axis, max(0, -before), size - max(0, -after))
        before, after = max(0, before), max(0, after)
        if mode == "constant":
            parts = [
                c.expand(c.reshape(value, *[1] * x.rank), x.dims[:axis] + (k,) + x.dims[axis + 1 :])
                for k in (before, after)
            ]
            x = c.concat(axis, [p for p in (parts[0], x, parts[1]) if p.dims[axis]])
        elif before or after:
            x = c.select_along(x, axis, np.pad(np.arange(x.dims[axis]), (before, after), mode=mode))
    return x


@op("Tile")
def tile(n):
    x = n.x()
    for axis, times in enumerate(n.known(1)):
        x = n.c.concat(axis, [x] * int(times)) if times else n.c.slice(x, axis, 0, 0)
    return x


@op("CenterCropPad")
def center_crop_pad(n):
    c, x = n.c, n.x()
    axes = [a % x.rank for a in n.attr("axes", list(range(x.rank)))]
    for axis, to in zip(axes, (int(d) for d in n.known(1))):
        more = to - x.dims[axis]
        if more < 0:
            x = c.slice(x, axis, -more // 2, -more // 2 + to)
        elif more > 0:
            sides = [
                filled(c, [*x.dims[:axis], k, *x.dims[axis + 1 :]], 0, x.dtype)
                for k in (more // 2, more - more // 2)
            ]
            x = c.concat(axis, [p for p in (sides[0], x, sides[1]) if p.dims[axis]])
    return x


@op("DepthToSpace")
def depth_to_space(n):
    c, x, b = n.c, n.x(), n.attr("blocksize")
    s, d, h, w = x.dims
    if n.attr("mode", "DCR") == "DCR":
        x = c.transpose(c.reshape(x, s, b, b, d // b // b, h, w), [0, 3, 4, 1, 5, 2])
    else:
        x = c.transpose(c.reshape(x, s, d // b // b, b, b, h, w), [0, 1, 4, 2, 5, 3])
    return c.reshape(x, s, -1, h * b, w * b)


@op("SpaceToDepth")
def space_to_depth(n):
    c, x, b = n.c, n.x(), n.attr("blocksize")
    s, d, h, w = x.dims
    order = [0, 3, 5, 1, 2, 4] if n.attr("mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
    return c.reshape(c.transpose(c.reshape(x, s, d, h // b, b, w // b, b), order), s, -1, h // b, w // b)


@op("Trilu")
def triangle(n):
    x = n.x()
    k = int(np.ravel(n.known(1))[0]) if n.has(1) else 0
    rows, columns = x.dims[-2:]
    ones = np.ones((rows, columns), np.int32)
    mask = np.triu(ones, k) if n.attr("upper", 1) else np.tril(ones, k)
    return n.c.where(n.c.constant(mask, "i32"), x, n.c.constant(0, "i32"))


@op("ReverseSequence")
def reverse_sequence(n):
    c, x = n.c, n.x()
    time, batch = n.attr("time_axis", 0), n.attr("batch_axis", 1)
    rows = []
    for b, length in enumerate(int(v) for v in n.known(1)):
        order = list(range(length))[::-1] + list(range(length, x.dims[time]))
        rows.append(c.select_along(c.slice(x, batch, b, b + 1), time, order))
    return c.concat(batch, rows)


@op("Compress")
def compress(n):
    x = n.x() if "axis" in n.attrs else n.c.reshape(n.x(), -1)
    return n.c.select_along(x, n.attr("axis", 0) % x.rank, np.nonzero(n.known(1))[0])


@op("OneHot")
def one_hot(n):
    c, ids = n.c, n.x(0)
    depth, (off, on) = int(np.ravel(n.setting(1))[0]), (float(v) for v in n.setting(2))
    axis = n.attr("axis", -1) % (ids.rank + 1)
    hit = c.map("equal", c.iota(depth), c.reshape(c.map("wrap", ids, params=[depth]), *ids.dims, 1))
    y = c.affine(hit, on - off, off)
    return Typed(c.move(y, y.rank - 1, axis), n.etype(2))


# ---- Gathers ----


@op("Gather")
def gather(n):
    c, x, ids = n.c, n.x(0), n.x(1)
    axis = n.attr("axis", 0) % x.rank
    n_rows = x.dims[axis]
    known = n.entry(1).array
    negative = known is not None and np.size(known) and np.min(known) < 0
    rest = x.dims[:axis] + x.dims[axis + 1 :]
    if n.is_int(0) or ids.dtype not in INTEGERS or negative:
        flat = c.reshape(c.move(x, axis, x.rank - 1), -1, n_rows)
        picked = c.pick(
            flat,
            (
                c.reshape(c.map("wrap", ids, params=[n_rows]), 1, -1)
                if flat.dims[0] == 1
                else c.expand(c.reshape(c.map("wrap", ids, params=[n_rows]), 1, -1), (flat.dims[0], ids.size))
            ),
        )
        y = c.reshape(picked, *rest, *ids.dims)
        order = [*range(axis), *range(len(rest), len(rest) + ids.rank), *range(axis, len(rest))]
        return c.transpose(y, order)
    table = c.reshape(c.move(x, axis, 0), n_rows, -1)
    y = c.call("embedding", [table, c.reshape(ids, -1)], (ids.size, table.dims[1]), x.dtype)
    y = c.reshape(y, *ids.dims, *rest)
    order = [*range(ids.rank, ids.rank + axis), *range(ids.rank), *range(ids.rank + axis, y.rank)]
    return c.transpose(y, order)


@op("GatherElements")
def gather_elements(n):
    """Along rows, by comparing columns; the other axes of x may be longer than those of the indices."""
    c, x, ids = n.c, n.x(0), n.x(1)
    axis = n.attr("axis", 0) % x.rank
    size = x.dims[axis]
    for a in range(x.rank):
        if a != axis:
            x = c.slice(x, a, 0, ids.dims[a])
    ids = c.map("wrap", c.move(ids, axis, ids.rank - 1), params=[size])
    return c.move(c.pick(c.move(x, axis, x.rank - 1), ids), axis=ids.rank - 1, to=axis)


def flat_index(c, ids, dims):
    """Indices [..., k] into the first k dims as one number: [...]."""
    at = None
    for i, d in enumerate(dims):
        one = c.map("wrap", c.slice(ids, ids.rank - 1, i, i + 1), params=[d])
        at = one if at is None else c.map("add", c.scale(at, d), one)
    return c.reshape(at, *ids.dims[:-1])


@op("GatherND")
def gather_nd(n):
    c, x, ids, batch = n.c, n.x(0), n.x(1), n.attr("batch_dims", 0)
    k = ids.dims[-1]
    inner = x.dims[batch : batch + k]
    at = flat_index(c, ids, inner)
    lead = math.prod(x.dims[:batch])
    rest = x.dims[batch + k :]
    table = c.transpose(c.reshape(x, lead, math.prod(inner), -1), [0, 2, 1])  # [lead, rest, inner]
    at = c.reshape(at, lead, 1, -1)
    at = c.expand(at, (lead, table.dims[1], at.dims[2]))
    y = c.transpose(c.pick(table, at), [0, 2, 1])
    return c.reshape(y, *ids.dims[:-1], *rest)


# ---- Scatters: where an index meets its column, the update ----


def scatter_rows(c, x, at, updates, reduction):
    """x [r, n], at and updates [r, m]."""
    n = x.dims[1]
    zero = c.constant(0, "i32")
    hit = c.map("equal", c.reshape(at, *at.dims, 1), c.iota(n))  # [r, m, n]
    updates = c.reshape(updates, *updates.dims, 1)

    def over_updates(word, neutral):
        y = c.where(hit, updates, neutral)
        return c.reshape(c.statistic(word, c.transpose(y, [0, 2, 1])), x.dims[0], n)

    if reduction == "none":
        any_hit = c.reshape(c.statistic("row_max", c.transpose(hit, [0, 2, 1])), x.dims[0], n)
        return c.where(any_hit, over_updates("row_sum", zero), x)
    if reduction == "add":
        return c.map("add", x, over_updates("row_sum", zero))
    if reduction == "max":
        return c.map("maximum", x, over_updates("row_max", c.constant(-np.inf, "f32")))
    if reduction == "min":
        updates, x = c.scale(updates, -1), c.scale(x, -1)
        return c.scale(c.map("maximum", x, over_updates("row_max", c.constant(-np.inf, "f32"))), -1)
    y = c.where(hit, updates, c.constant(1, "i32"))
    for i in range(y.dims[1]):
        x = c.map("mul", x, c.reshape(c.slice(y, 1, i, i + 1), x.dims[0], n))
    return x


@op("Scatter", "ScatterElements")
def scatter_elements(n):
    c, x, ids, updates = n.c, n.x(0), n.x(1), n.x(2)
    axis, dims = n.attr("axis", 0) % x.rank, x.dims
    at = c.map("wrap", ids, params=[x.dims[axis]])
    for a in range(x.rank):  # lines of x beside those of the indices get an index that is nowhere
        if a != axis and ids.dims[a] < dims[a]:
            more = [dims[a] - ids.dims[a] if b == a else d for b, d in enumerate(at.dims)]
            at = c.concat(a, [at, filled(c, more, -1, at.dtype)])
            updates = c.concat(a, [updates, filled(c, more, 0, updates.dtype)])
    line = [c.reshape(c.move(v, axis, v.rank - 1), -1, v.dims[axis]) for v in (x, at, updates)]
    y = scatter_rows(c, *line, n.attr("reduction", "none"))
    y = c.reshape(y, *[d for a, d in enumerate(dims) if a != axis], dims[axis])
    return c.move(y, y.rank - 1, axis)


@op("ScatterND")
def scatter_nd(n):
    c, x, ids, updates = n.c, n.x(0), n.x(1), n.x(2)
    k = ids.dims[-1]
    at = c.reshape(flat_index(c, ids, x.dims[:k]), 1, -1)
    table = c.transpose(c.reshape(x, math.prod(x.dims[:k]), -1), [1, 0])  # [rest, positions]
    news = c.transpose(c.reshape(updates, at.dims[1], -1), [1, 0])
    at = c.expand(at, (table.dims[0], at.dims[1]))
    y = scatter_rows(c, table, at, news, n.attr("reduction", "none"))
    return c.reshape(c.transpose(y, [1, 0]), *x.dims)


@op("TensorScatter")
def tensor_scatter(n):
    """A cache's slots: where one is `write index + i`, row i of the update."""
    c, x, update = n.c, n.x(0), n.x(1)
    axis = n.attr("axis", -2) % x.rank
    slots, count, batch = x.dims[axis], update.dims[axis], x.dims[0]
    first = c.reshape(n.x(2), batch, 1) if n.has(2) else c.constant(np.zeros((batch, 1)), "i32")
    at = c.map("add", first, c.iota(count))
    if n.attr("mode", "linear") == "circular":
        at = c.map("mod", at, c.constant(slots, "i32"))
    lines = math.prod(x.dims) // max(batch * slots, 1)
    at = c.reshape(c.expand(c.reshape(at, batch, 1, count), (batch, lines, count)), batch * lines, count)
    line = [c.reshape(c.move(v, axis, v.rank - 1), -1, v.dims[axis]) for v in (x, update)]
    y = scatter_rows(c, line[0], at, line[1], "none")
    y = c.reshape(y, *[d for a, d in enumerate(x.dims) if a != axis], slots)
    return c.move(y, y.rank - 1, axis)
